package kahn

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
)

// ErrKeyConflict rejects an idempotency key that was used for another graph or other inputs.
var ErrKeyConflict = errors.New("idempotency key was used for something else")

// IdempotencyKey returns a key that is equal for runs of the same graph with the same inputs: the hex SHA-256 of the
// workflow's id and of the inputs as canonical JSON, with sorted keys, no insignificant space and numbers in their shortest
// form. An input that has no JSON form is an error that matches [ErrNotEncodable].
func IdempotencyKey(workflow string, inputs map[string]any) (string, error) {
	data, err := canonical(inputs)
	if err != nil {
		return "", err
	}
	h := sha256.New()
	h.Write([]byte(workflow))
	h.Write(data)
	return hex.EncodeToString(h.Sum(nil)), nil
}

// canonical is a JSON form that is the same for equal values. It calls user code.
func canonical(v any) ([]byte, error) {
	var text []byte
	err := contain(func() (err error) {
		text, err = json.Marshal(v)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotEncodable, err)
	}
	// Once more by way of maps, so that the fields of structs are sorted too.
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var form any
	if err := d.Decode(&form); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotEncodable, err)
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if err := e.Encode(shortest(form)); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotEncodable, err)
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), nil
}

// shortest brings the numbers of a JSON value into their shortest form, in place. An integer keeps all its digits.
func shortest(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key, x := range v {
			v[key] = shortest(x)
		}
	case []any:
		for i, x := range v {
			v[i] = shortest(x)
		}
	case json.Number:
		text := string(v)
		if whole, fraction, ok := strings.Cut(text, "."); ok && strings.Trim(fraction, "0") == "" {
			text = whole
		}
		if strings.ContainsAny(text, ".eE") {
			if f, err := strconv.ParseFloat(text, 64); err == nil {
				return f
			}
		}
		if text == "-0" {
			text = "0"
		}
		return json.Number(text)
	}
	return v
}

// IdempotencyStore starts only one run for each key, see [Idempotent]. The zero value is empty and ready for use, by any
// number of goroutines. It holds the runs, and so their Results, in memory.
type IdempotencyStore struct {
	// RetryFailed lets a key be used again, for the same graph and inputs, after a run that failed or was cancelled.
	RetryFailed bool

	mu   sync.Mutex // guards runs; a run's own lock may be taken while it is held, never the other way around
	runs map[string]idempotent
}

// idempotent is the run of a key, and the graph and inputs that it was started with.
type idempotent struct {
	run          *Run
	hash, inputs string
}

// same reports whether a run may replace the run of the key, or join it: it has the same inputs, and the same graph unless
// it goes on from that run and was allowed to change the graph.
func (i idempotent) same(r *Run, goesOn bool, inputs string) bool {
	return i.inputs == inputs && (i.hash == r.plan.Hash() || goesOn && r.cfg.allowChange)
}

// Idempotent makes the run the only run of its key in the store. If the key has a run that is at work, the caller joins it
// and waits for it; if that run has ended, the caller gets its Result, without any events. The caller's own options and step
// are not used then. If the caller's context ends while it waits, Execute returns a nil Result and the cause of that; the
// run goes on. A key whose run was of another graph or had other inputs is refused with [ErrKeyConflict]. A run that was
// suspended and left is replaced by one that goes on from its snapshot or its store.
func Idempotent(s *IdempotencyStore, key string) Option {
	return optionFunc(func(c *config) error {
		if s == nil || key == "" {
			return fmt.Errorf("%w: Idempotent(%v, %s)", ErrBadOption, s, quoteID(key))
		}
		c.idempotency, c.idempotencyKey = s, key
		return nil
	})
}

// Forget lets a key be used again. The run goes on.
func (s *IdempotencyStore) Forget(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.runs, key)
}

// claim returns the run of a key: r itself, if there is no other and admit lets it begin. Lookup and admission are one
// critical section: otherwise another caller might join a run that is refused and never begins.
func (s *IdempotencyStore) claim(r *Run, goesOn bool, admit func() error) (*Run, error) {
	inputs, err := canonical(r.cfg.inputs)
	if err != nil {
		return nil, err
	}
	hash := r.plan.Hash() // calls user code (MarshalJSON), so not under the lock
	s.mu.Lock()
	defer s.mu.Unlock()
	key := r.cfg.idempotencyKey
	old, ok := s.runs[key]
	if ok {
		status := old.run.Status()
		left := status == RunSuspended && old.run.hasLeft()
		failed := status == RunFailed || status == RunCancelled
		switch {
		case left && goesOn, r.cfg.replaces == old.run:
		case !old.same(r, goesOn, string(inputs)):
			return nil, fmt.Errorf("%w: %s", ErrKeyConflict, quoteID(key))
		case failed && s.RetryFailed:
		default:
			return old.run, nil
		}
	}
	if err := admit(); err != nil {
		return nil, err
	}
	if s.runs == nil {
		s.runs = map[string]idempotent{}
	}
	s.runs[key] = idempotent{r, hash, string(inputs)}
	return r, nil
}

// hasLeft reports whether a suspended run has ended as it was.
func (r *Run) hasLeft() bool {
	r.st.Lock()
	defer r.st.Unlock()
	return r.concluded()
}
