package event

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/seed-c794f7ef/kahn/internal/enum"
	"github.com/seed-c794f7ef/kahn/internal/foreign"
	"github.com/seed-c794f7ef/kahn/internal/jsonwrite"
	"github.com/seed-c794f7ef/kahn/machine"
)

// envelopeJSON is the JSON form of an Event.
type envelopeJSON struct {
	ID          uint64          `json:"eventId,omitempty"`
	Sequence    uint64          `json:"sequence,omitempty"`
	Type        Type            `json:"type"`
	RunID       string          `json:"runId"`
	Workflow    string          `json:"workflowId,omitempty"`
	Time        time.Time       `json:"timestamp"`
	Correlation correlationJSON `json:"correlation"`
	Payload     json.RawMessage `json:"payload"`
}

type correlationJSON struct {
	TraceID string `json:"traceId,omitempty"`
	Parent  uint64 `json:"parentEventId,omitempty"`
	Wave    *int   `json:"wave,omitempty"`
	Phase   string `json:"phase,omitempty"`
}

// payloadJSON is the union of all payloads in JSON. The type of the event decides which members exist. Most members are omitted if they are empty. A
// member has a pointer type if an empty value must be written, too.
type payloadJSON struct {
	// node events
	Node    string `json:"nodeId,omitempty"`
	Path    string `json:"path,omitempty"`
	Attempt *int   `json:"attempt,omitempty"`
	Tier    *int   `json:"tier,omitempty"` // also a member of wave events
	Epoch   int    `json:"epoch,omitempty"`

	// run events
	Workflow    *string            `json:"workflowId,omitempty"`
	TotalNodes  *int               `json:"totalNodes,omitempty"`
	Mode        *modeJSON          `json:"mode,omitempty"`
	Test        *bool              `json:"test,omitempty"`
	Forked      string             `json:"forkedFrom,omitempty"`
	From        *machine.RunStatus `json:"from,omitempty"`
	To          *machine.RunStatus `json:"to,omitempty"`
	Waiting     *[]string          `json:"waiting,omitempty"`
	AllWaiting  *int               `json:"totalWaiting,omitempty"`
	FromEvent   *uint64            `json:"fromEventId,omitempty"`
	LastEvent   *uint64            `json:"lastEventId,omitempty"`
	Status      *machine.RunStatus `json:"status,omitempty"`
	Degraded    *bool              `json:"degraded,omitempty"`
	ByEnd       bool               `json:"evaluated_by_end_step,omitempty"` // always true in an event that ends a run: the run is evaluated at its end
	TotalSteps  *int               `json:"total_steps,omitempty"`
	FailedSteps *int               `json:"failed_steps_count,omitempty"`
	Failed      *[]string          `json:"failed,omitempty"`
	RunTimeout  *durationJSON      `json:"timeoutMs,omitempty"`
	Cancelling  bool               `json:"cancellation_requested,omitempty"`
	Nodes       *[]string          `json:"nodeIds,omitempty"`

	// members that only some types of events have
	Wave         *int                    `json:"wave,omitempty"`
	Cause        machine.CauseKind       `json:"cause,omitempty"`
	Origins      *[]string               `json:"origins,omitempty"`
	Duration     *durationJSON           `json:"duration_ms,omitempty"`
	Iteration    *int                    `json:"iteration,omitempty"`
	DeltaIndex   *int                    `json:"deltaIndex,omitempty"`
	Text         *string                 `json:"text,omitempty"`
	Chunk        json.RawMessage         `json:"chunk,omitempty"`
	Level        string                  `json:"level,omitempty"`
	Message      *string                 `json:"message,omitempty"`
	Phase        string                  `json:"phase,omitempty"`
	Errors       *[]string               `json:"errors,omitempty"`
	Timeout      *durationJSON           `json:"timeout_ms,omitempty"`
	Scope        string                  `json:"scope,omitempty"`
	Delay        *durationJSON           `json:"delay_ms,omitempty"`
	Error        *string                 `json:"error,omitempty"`
	Certain      *bool                   `json:"certain,omitempty"`
	Policy       *machine.UpstreamPolicy `json:"policy,omitempty"`
	Token        *string                 `json:"token,omitempty"`
	Info         json.RawMessage         `json:"info,omitempty"`
	Deadline     *time.Time              `json:"deadline,omitempty"`
	Value        json.RawMessage         `json:"value,omitempty"`
	Actor        string                  `json:"actor,omitempty"`
	Comment      string                  `json:"comment,omitempty"`
	SignalID     string                  `json:"signal_id,omitempty"`
	Reason       json.RawMessage         `json:"reason,omitempty"`
	Label        *string                 `json:"label,omitempty"`
	Labels       []string                `json:"labels,omitempty"`
	Memoized     *bool                   `json:"memoized,omitempty"`
	Hit          *Hit                    `json:"hit,omitempty"`
	Fallback     *bool                   `json:"fallback,omitempty"`
	InputTokens  int                     `json:"input_tokens,omitempty"`
	OutputTokens int                     `json:"output_tokens,omitempty"`
	Usage        map[string]float64      `json:"usage,omitempty"`
	ErrorCode    string                  `json:"error_code,omitempty"`
	ErrorMessage *string                 `json:"error_message,omitempty"`
	Abandoned    bool                    `json:"abandoned,omitempty"`
	RoutedToEnd  bool                    `json:"routed_to_end,omitempty"`
	FirstFailed  string                  `json:"original_failed_step,omitempty"`
	Output       json.RawMessage         `json:"output,omitempty"`
	Aggregation  json.RawMessage         `json:"aggregation_data,omitempty"` // the output in the event that ends a run
	OutputBytes  int                     `json:"output_bytes,omitempty"`     // the length of output or of aggregation_data
	OutputError  *string                 `json:"output_error,omitempty"`
	NoRetry      NoRetry                 `json:"no_retry,omitempty"`
	Request      *Request                `json:"request,omitempty"`
}

// modeJSON encodes Start.Waves as the name of the mode.
type modeJSON uint8

const inWaves modeJSON = 1

var modeNames = enum.Of[modeJSON]("mode", "eager", "waves")

func modeOf(waves bool) *modeJSON {
	var mode modeJSON
	if waves {
		mode = inWaves
	}
	return &mode
}

// MarshalText implements encoding.TextMarshaler.
func (m modeJSON) MarshalText() ([]byte, error) { return modeNames.Text(m) }

// UnmarshalText implements encoding.TextUnmarshaler.
func (m *modeJSON) UnmarshalText(text []byte) error { return modeNames.Parse(m, text) }

// durationJSON is a duration in milliseconds, with a fraction.
type durationJSON time.Duration

// MarshalJSON implements json.Marshaler.
func (d durationJSON) MarshalJSON() ([]byte, error) {
	return json.Marshal(milliseconds(time.Duration(d)))
}

// UnmarshalJSON implements json.Unmarshaler.
func (d *durationJSON) UnmarshalJSON(data []byte) error {
	var ms float64
	if err := json.Unmarshal(data, &ms); err != nil {
		return err
	}
	ns := math.Round(ms * float64(time.Millisecond))
	switch {
	case ns == math.MaxInt64: // the longest duration, which is 1<<63 as a float64
		*d = math.MaxInt64
	case ns > math.MaxInt64 || ns <= math.MinInt64:
		return fmt.Errorf("%w: %v ms", machine.ErrBadValue, ms)
	default:
		*d = durationJSON(ns)
	}
	return nil
}

// MarshalJSON encodes the event as an envelope. It writes only the text of an error, shortened to about a kilobyte. It does the same for a value of
// user code that JSON cannot express.
func (e Event) MarshalJSON() ([]byte, error) {
	phase := "engine"
	if e.Type == Heartbeat {
		phase = "transport"
	}
	return e.marshal(func(w *writer, wave *int) { w.envelope(&e, phase, wave) })
}

// marshal encodes the event. The function `envelope` writes the part before the payload. Its argument `wave` is the tier of the event, or nil if the
// event has no tier.
func (e *Event) marshal(envelope func(w *writer, wave *int)) ([]byte, error) {
	w := writer{jsonwrite.Writer{Data: make([]byte, 0, 512)}}
	if raw, ok := e.Payload.(json.RawMessage); ok {
		var wave *int
		if e.Node != "" {
			wave = &e.Tier
		}
		envelope(&w, wave)
		w.JSON("payload", raw)
	} else {
		var p payloadJSON
		if e.Node != "" {
			p.Node, p.Path, p.Attempt, p.Tier, p.Epoch = e.Node, e.Path, &e.Attempt, &e.Tier, e.Epoch
		}
		if err := p.encode(e); err != nil {
			return nil, err
		}
		envelope(&w, p.Tier)
		w.payload(&p)
	}
	w.Close()
	if w.Err != nil {
		return nil, fmt.Errorf("event %s: %w", e.Type, w.Err)
	}
	return w.Data, nil
}

// encode fills in the members of the event's payload.
func (p *payloadJSON) encode(e *Event) error {
	switch v := e.Payload.(type) {
	case nil:
		if e.Type == NodeStarted {
			p.Wave = &e.Tier
		}
	case Start:
		p.Workflow, p.TotalNodes, p.Mode, p.Test, p.Forked = &e.Workflow, &v.TotalNodes, modeOf(v.Waves), &v.Test, v.Forked
	case StatusChange:
		p.From, p.To, p.Waiting, p.AllWaiting, p.Request = &v.From, &v.To, listOf(v.Waiting), &v.TotalWaiting, v.Request.said()
	case Recovery:
		p.FromEvent = &v.From
	case RunEnd:
		p.Status, p.Degraded, p.Cause, p.ByEnd, p.TotalSteps = &v.Status, &v.Degraded, v.Cause, true, &v.TotalSteps
		p.FailedSteps, p.Failed, p.Duration = &v.FailedSteps, listOf(v.Failed), (*durationJSON)(&v.Duration)
		p.Request, p.Cancelling, p.Usage = v.Request.said(), v.CancellationRequested, v.Usage
		p.Aggregation, p.OutputBytes, p.OutputError = v.Aggregation.Value, v.Aggregation.Bytes, text(v.Aggregation.Err)
		if v.Timeout != 0 {
			p.RunTimeout = (*durationJSON)(&v.Timeout)
		}
	case Beat:
		p.LastEvent = &v.Last
	case Wave:
		p.Tier, p.Nodes = &v.Tier, listOf(v.Nodes)
	case Delta:
		p.DeltaIndex = &v.Index
		if text, ok := v.Chunk.(string); ok {
			p.Text = &text
		} else {
			p.Chunk = foreignJSON(v.Chunk)
		}
	case LogRecord:
		p.Level, p.Message = strings.ToLower(v.Level.String()), &v.Message
	case Breach:
		p.Phase, p.Errors = v.Phase.String(), listOf(v.Errors)
	case Refusal:
		p.Phase, p.Errors = v.Phase.String(), listOf(v.Errors)
	case Timeout:
		p.Timeout, p.Scope = (*durationJSON)(&v.Timeout), "attempt"
		if v.Overall {
			p.Scope = "overall"
		}
	case Retry:
		p.Cause, p.Delay, p.Error = v.Cause, (*durationJSON)(&v.Delay), text(v.Err)
	case Block:
		p.Origins, p.Policy = listOf(v.Origins), &v.Policy
	case Pause:
		p.Iteration, p.Delay = &v.Iteration, (*durationJSON)(&v.Delay)
	case Suspension:
		p.Token, p.Info = &v.Token, foreignJSON(v.Info)
		if !v.Deadline.IsZero() {
			v.Deadline = v.Deadline.UTC()
			p.Deadline = &v.Deadline
		}
	case Answer:
		p.Value, p.Actor, p.Comment, p.SignalID = foreignJSON(v.Value), v.Actor, v.Comment, v.ID
	case Invalidation:
		p.Reason, _ = json.Marshal(v.Reason) // no error: a string can always be encoded
		p.Request = v.Request.said()
	case Compensation:
		if p.ErrorMessage = text(v.Err); e.Type == NodeCompensated {
			p.Duration, p.Request = (*durationJSON)(&v.Duration), v.Request.said()
		} else {
			p.Certain = &v.Certain
		}
	case Completion:
		p.Duration, p.Memoized, p.Hit, p.Fallback = (*durationJSON)(&v.Duration), &v.Memoized, v.Hit, &v.Fallback
		p.InputTokens, p.OutputTokens, p.ErrorMessage = v.InputTokens, v.OutputTokens, text(v.Err)
		p.Usage = v.Usage
		p.Output, p.OutputBytes, p.OutputError = v.Output.Value, v.Output.Bytes, text(v.Output.Err)
		if len(v.Labels) == 1 {
			p.Label = &v.Labels[0]
		} else {
			p.Labels = v.Labels
		}
	case NodeEnd:
		p.Cause, p.Origins, p.Duration, p.Abandoned = v.Cause, listOf(v.Origins), (*durationJSON)(&v.Duration), v.Abandoned
		p.NoRetry, p.Request, p.RoutedToEnd, p.FirstFailed = v.NoRetry, v.Request.said(), v.RoutedToEnd, v.OriginalFailedStep
		p.Usage = v.Usage
		message := v.message()
		p.ErrorMessage = &message
		if e.Type == NodeFailed {
			p.ErrorCode = v.Cause.String()
		}
	case Skip:
		reason, err := json.Marshal(v.Reason)
		if err != nil {
			return fmt.Errorf("event %s: %w", e.Type, err)
		}
		p.Reason = reason
	default:
		return fmt.Errorf("%w: event %s with a payload of type %T", machine.ErrBadValue, e.Type, e.Payload)
	}
	return nil
}

// UnmarshalJSON decodes an envelope. Each payload gets its original Go type. But an error in a payload keeps only its text, and a user value becomes
// what package json decodes into a variable of type any. The payload of an unknown event type becomes a json.RawMessage. UnmarshalJSON returns an
// error if a member has the wrong type. The error matches [machine.ErrBadValue] if a value is outside its enum.
func (e *Event) UnmarshalJSON(data []byte) error {
	var env envelopeJSON
	if err := json.Unmarshal(data, &env); err != nil {
		return err
	}
	*e = Event{
		ID: env.ID, Type: env.Type, RunID: env.RunID, Workflow: env.Workflow, Time: env.Time,
		TraceID: env.Correlation.TraceID, Parent: env.Correlation.Parent,
	}
	return e.unmarshal(env.Payload)
}

// unmarshal decodes the payload of an event whose type is set.
func (e *Event) unmarshal(payload json.RawMessage) error {
	if len(payload) == 0 {
		payload = json.RawMessage("{}")
	}
	if engineNames[e.Type] == nil {
		var p struct {
			Node    string `json:"nodeId"`
			Path    string `json:"path"`
			Attempt int    `json:"attempt"`
			Tier    int    `json:"tier"`
			Epoch   int    `json:"epoch"`
		}
		// If a member does not have its type in p, another program has written the payload. The fields Node to Epoch of e then stay empty.
		if json.Unmarshal(payload, &p) == nil {
			e.Node, e.Path, e.Attempt, e.Tier, e.Epoch = p.Node, p.Path, p.Attempt, p.Tier, p.Epoch
		}
		e.Payload = payload
		return nil
	}
	var p payloadJSON
	if err := json.Unmarshal(payload, &p); err != nil {
		return fmt.Errorf("event %s: %w", e.Type, err)
	}
	if e.Node, e.Path, e.Epoch = p.Node, p.Path, p.Epoch; e.Node != "" {
		e.Attempt, e.Tier = value(p.Attempt), value(p.Tier)
	}
	if err := p.decode(e); err != nil {
		return fmt.Errorf("event %s: %w", e.Type, err)
	}
	return nil
}

// decode sets the event's payload.
func (p *payloadJSON) decode(e *Event) (err error) {
	switch e.Type {
	case RunStarted:
		e.Payload = Start{TotalNodes: value(p.TotalNodes), Waves: value(p.Mode) == inWaves, Test: value(p.Test), Forked: p.Forked}
	case RunStatusChanged:
		e.Payload = StatusChange{From: value(p.From), To: value(p.To), Waiting: value(p.Waiting), TotalWaiting: value(p.AllWaiting), Request: value(p.Request)}
	case RunRecovered:
		e.Payload = Recovery{From: value(p.FromEvent)}
	case RunCompleted, RunFailed, RunCancelled, RunTimedOut:
		e.Payload = RunEnd{
			Status: value(p.Status), Degraded: value(p.Degraded), Cause: p.Cause, TotalSteps: value(p.TotalSteps),
			FailedSteps: value(p.FailedSteps), Failed: value(p.Failed), Duration: time.Duration(value(p.Duration)),
			Timeout: time.Duration(value(p.RunTimeout)), Request: value(p.Request), CancellationRequested: p.Cancelling,
			Aggregation: Output{p.Aggregation, p.OutputBytes, textError(p.OutputError)}, Usage: p.Usage,
		}
	case Heartbeat:
		e.Payload = Beat{Last: value(p.LastEvent)}
	case WaveStarted, WaveCompleted:
		e.Payload = Wave{Tier: value(p.Tier), Nodes: value(p.Nodes)}
	case NodeDelta:
		delta := Delta{Index: value(p.DeltaIndex)}
		if p.Text != nil {
			delta.Chunk = *p.Text
		} else {
			delta.Chunk, err = foreignValue(p.Chunk)
		}
		e.Payload = delta
	case NodeLog:
		var level slog.Level
		err = level.UnmarshalText([]byte(p.Level))
		e.Payload = LogRecord{Level: level, Message: value(p.Message)}
	case ContractViolated:
		var phase Phase
		err = phase.UnmarshalText([]byte(p.Phase))
		e.Payload = Breach{Phase: phase, Errors: value(p.Errors)}
	case ModerationFlagged:
		var phase Phase
		err = phase.UnmarshalText([]byte(p.Phase))
		e.Payload = Refusal{Phase: phase, Errors: value(p.Errors)}
	case NodeTimedOut:
		e.Payload = Timeout{Timeout: time.Duration(value(p.Timeout)), Overall: p.Scope == "overall"}
	case NodeRetried:
		e.Payload = Retry{Cause: p.Cause, Delay: time.Duration(value(p.Delay)), Err: textError(p.Error)}
	case NodeBlocked:
		e.Payload = Block{Origins: value(p.Origins), Policy: value(p.Policy)}
	case NodePaused:
		e.Payload = Pause{Iteration: value(p.Iteration), Delay: time.Duration(value(p.Delay))}
	case NodeSuspended:
		suspended := Suspension{Token: value(p.Token), Deadline: value(p.Deadline)}
		suspended.Info, err = foreignValue(p.Info)
		e.Payload = suspended
	case NodeSignalled:
		signalled := Answer{Actor: p.Actor, Comment: p.Comment, ID: p.SignalID}
		signalled.Value, err = foreignValue(p.Value)
		e.Payload = signalled
	case NodeInvalidated:
		var reason string
		err = json.Unmarshal(p.Reason, &reason)
		e.Payload = Invalidation{Reason: reason, Request: value(p.Request)}
	case NodeCompensating, NodeCompensated:
		e.Payload = Compensation{Certain: value(p.Certain), Err: textError(p.ErrorMessage), Duration: time.Duration(value(p.Duration)), Request: value(p.Request)}
	case NodeCompleted:
		done := Completion{
			Duration: time.Duration(value(p.Duration)), Labels: p.Labels, Memoized: value(p.Memoized), Hit: p.Hit,
			Fallback: value(p.Fallback), Err: textError(p.ErrorMessage), InputTokens: p.InputTokens, OutputTokens: p.OutputTokens, Usage: p.Usage,
			Output: Output{p.Output, p.OutputBytes, textError(p.OutputError)},
		}
		if p.Label != nil {
			done.Labels = []string{*p.Label}
		}
		e.Payload = done
	case NodeFailed, NodeAborted, NodeCancelled:
		e.Payload = NodeEnd{
			Cause: p.Cause, Origins: value(p.Origins), Err: textError(p.ErrorMessage), Duration: time.Duration(value(p.Duration)),
			Abandoned: p.Abandoned, Usage: p.Usage, NoRetry: p.NoRetry, Request: value(p.Request), RoutedToEnd: p.RoutedToEnd, OriginalFailedStep: p.FirstFailed,
		}
	case NodeSkipped:
		var reason SkipReason
		err = json.Unmarshal(p.Reason, &reason)
		e.Payload = Skip{Reason: reason}
	}
	return err
}

// foreignJSON encodes a user value. If a method of the value panics, or JSON cannot express the value, or the value is nested too deeply, foreignJSON
// encodes the value's text instead.
func foreignJSON(v any) (data json.RawMessage) {
	err := foreign.Contain(func() (err error) {
		data, err = json.Marshal(v)
		return err
	}, func(v any) error { return foreign.NewPanicError(v) })
	// The second part of the condition is true if the value is nested so deeply that package json could not read an event with this value.
	if err != nil || len(data) > maxJSONDepth && !json.Valid(slices.Concat(jsonOpen, data, jsonClose)) {
		data, _ = json.Marshal(foreign.ValueText(v)) // no error: a string can always be encoded
	}
	return data
}

// maxJSONDepth is the deepest nesting that package json reads.
const maxJSONDepth = 10_000

// In the JSON of an event, a user value is inside two objects. These two arrays stand for the objects.
var jsonOpen, jsonClose = []byte("[["), []byte("]]")

func foreignValue(data json.RawMessage) (v any, err error) {
	if data == nil {
		return nil, nil
	}
	err = json.Unmarshal(data, &v)
	return v, err
}

// listOf turns nil into an empty list.
func listOf(names []string) *[]string {
	if names == nil {
		names = []string{}
	}
	return &names
}

// messageOf renders an error with bounded length. The text of a decoded error is already bounded.
func messageOf(err error) string {
	if e, ok := err.(decodedError); ok {
		return string(e)
	}
	return foreign.ErrorText(err)
}

// The function `text` renders an error. It returns nil if err is nil.
func text(err error) *string {
	if err == nil {
		return nil
	}
	s := messageOf(err)
	return &s
}

func textError(s *string) error {
	if s == nil {
		return nil
	}
	return decodedError(*s)
}

// decodedError is the text of a decoded error.
type decodedError string

func (e decodedError) Error() string { return string(e) }

func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}
