package temporal

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"go.temporal.io/sdk/log"

	"github.com/seed-c794f7ef/kahn"
)

// remark is a report of a running step: a message, a chunk, tokens, usage, or a label.
type remark struct {
	Message *string         `json:"message,omitempty"`
	Level   slog.Level      `json:"level,omitempty"` // the level of a message
	Chunk   json.RawMessage `json:"chunk,omitempty"`
	Input   int             `json:"input,omitempty"` // input tokens
	Output  int             `json:"output,omitempty"`

	Used  map[string]float64 `json:"used,omitempty"`  // see kahn.Step.Use
	Label []string           `json:"label,omitempty"` // a name and a value, see kahn.Step.SetLabel
}

// remarkBytes is the most bytes of messages, chunks and labels that an attempt keeps. The bound exists because the history contains them.
// The attempt drops further remarks of these kinds, and a last message says how many.
const remarkBytes = 16 << 10

// maxUsed is the largest number of names under which an attempt counts usage. A run has the same bound.
const maxUsed = 100

// recorder collects what a step reports while it runs. The activity returns these reports with the result of the step. Messages also go to the
// log of the worker.
type recorder struct {
	log   log.Logger
	codec kahn.Codec

	mu      sync.Mutex // guards the fields below
	remarks []remark
	size    int
	dropped int
	tokens  remark
	used    map[string]float64
}

// Log records a message of the step.
func (r *recorder) Log(level slog.Level, message string) {
	write := r.log.Debug
	switch {
	case level >= slog.LevelError:
		write = r.log.Error
	case level >= slog.LevelWarn:
		write = r.log.Warn
	case level >= slog.LevelInfo:
		write = r.log.Info
	}
	write(message)
	r.keep(remark{Message: &message, Level: level}, len(message))
}

// Emit records a chunk of the step. If the chunk cannot be encoded, Emit drops it and logs a warning.
func (r *recorder) Emit(chunk any) {
	data, err := r.codec.Encode(chunk)
	if err != nil {
		r.log.Warn("kahn/temporal: a chunk cannot be written", "error", err)
		return
	}
	r.keep(remark{Chunk: data}, len(data))
}

// Tokens counts tokens of the step.
func (r *recorder) Tokens(input, output int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tokens.Input += input
	r.tokens.Output += output
}

// Use adds an amount to the usage of the step under a name. After maxUsed names, it drops the usage under new names.
func (r *recorder) Use(name string, amount float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.used == nil {
		r.used = map[string]float64{}
	}
	if _, known := r.used[name]; known || len(r.used) < maxUsed {
		r.used[name] += amount
	}
}

// SetLabel records a label that the step sets for its run.
func (r *recorder) SetLabel(name, value string) error {
	r.keep(remark{Label: []string{name, value}}, len(name)+len(value))
	return nil
}

func (r *recorder) keep(m remark, size int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.dropped > 0 || r.size+size > remarkBytes || len(r.remarks) >= remarkBytes/64 {
		r.dropped++
		return
	}
	r.remarks, r.size = append(r.remarks, m), r.size+size
}

// The method told returns the step's messages, chunks and labels so far, in order, and after them its tokens and its usage.
func (r *recorder) told() []remark {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := r.remarks
	if r.dropped > 0 {
		text := fmt.Sprintf("kahn/temporal: %d messages and chunks of the attempt were dropped: an attempt keeps at most %d bytes", r.dropped, remarkBytes)
		list = append(list, remark{Message: &text, Level: slog.LevelWarn})
	}
	if r.tokens.Input != 0 || r.tokens.Output != 0 {
		list = append(list, r.tokens)
	}
	if len(r.used) > 0 {
		list = append(list, remark{Used: maps.Clone(r.used)})
	}
	return list
}

// The method tell repeats in the run a report that the step has made in the worker.
func (m remark) tell(to *kahn.Step, codec kahn.Codec) {
	switch {
	case m.Message != nil:
		to.Log(m.Level, *m.Message)
	case m.Chunk != nil:
		if chunk, err := codec.Decode(m.Chunk); err == nil {
			to.Emit(chunk)
		}
	case len(m.Label) == 2:
		if err := to.SetLabel(m.Label[0], m.Label[1]); err != nil {
			to.Log(slog.LevelWarn, err.Error())
		}
	case m.Used != nil:
		for _, name := range slices.Sorted(maps.Keys(m.Used)) {
			to.Use(name, m.Used[name])
		}
	default:
		to.Tokens(m.Input, m.Output)
	}
}

// remarked is the result of an attempt whose step reported something in addition to its reply.
type remarked struct {
	Reply   json.RawMessage `json:"reply"`
	Remarks []remark        `json:"remarks"`
	Details details         `json:"details,omitempty"` // the details of the last heartbeat of a failed attempt
}

// remarkedPrefix is the beginning of the JSON of a value of type remarked. No other result begins with it.
var remarkedPrefix = []byte(`{"reply":`)

// shortResult shortens a result that consists of a value alone: it returns the value. If the value is an object, it returns the result unchanged,
// since the object would look like a reply. It also returns every other result unchanged.
func shortResult(result json.RawMessage) json.RawMessage {
	value, is := bytes.CutPrefix(result, []byte(`{"value":`))
	if value = bytes.TrimSuffix(value, []byte("}")); is && isValue(value) && json.Valid(value) {
		return value
	}
	return result
}

// isValue reports whether shortResult has shortened a result to its value.
func isValue(result json.RawMessage) bool { return len(result) > 0 && result[0] != '{' }

// The function split separates a result into the reply, the remarks and the details.
func split(text json.RawMessage) (r remarked, err error) {
	if !bytes.HasPrefix(text, remarkedPrefix) {
		return remarked{Reply: text}, nil
	}
	err = json.Unmarshal(text, &r)
	return r, err
}
