package kahn

import (
	"bytes"
	"context"
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
// form. No inputs are an empty object, whether the map is nil or empty. Inputs with texts that are not UTF-8, which JSON cannot tell apart, are
// written as nil [Types] write them. An input that has no such form is an error that matches [ErrNotEncodable].
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

// hasReplaced reports whether package json has written `\ufffd`, as it does for bytes that are not UTF-8, whatever they are. It writes that
// character, where a text has it, as it is.
func hasReplaced(text []byte) bool {
	for from := 0; ; from++ {
		i := bytes.Index(text[from:], []byte(`\ufffd`))
		if i < 0 {
			return false
		}
		from += i
		if before := bytes.TrimRight(text[:from], `\`); (from-len(before))%2 == 0 { // else the backslash is one of the text
			return true
		}
	}
}

// canonical is a JSON form of inputs that is the same for equal values. It calls user code.
func canonical(inputs map[string]any) ([]byte, error) {
	if inputs == nil {
		inputs = map[string]any{}
	}
	var text []byte
	err := contain(func() (err error) {
		text, err = json.Marshal(inputs)
		return err
	})
	if err == nil && hasReplaced(text) {
		text, err = encodeValue(nil, inputs)
	}
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

	mu       sync.Mutex // guards what follows; a run's own lock may be taken while it is held, never the other way around
	runs     map[string]*idempotent
	reserved map[string]chan struct{} // the keys of runs that are about to begin; closed when they have, or will not
}

// idempotent is the run of a key, and the graph and inputs that it was started with.
type idempotent struct {
	run          *Run
	hash, inputs string
}

// newIdempotent describes a run. It calls user code (MarshalJSON).
func newIdempotent(r *Run) (*idempotent, error) {
	inputs, err := canonical(r.cfg.inputs)
	if err != nil {
		return nil, err
	}
	return &idempotent{r, r.plan.Hash(), string(inputs)}, nil
}

// goesOnWith reports whether another run goes on from a snapshot, or from the stored state of the run of the key.
func (i *idempotent) goesOnWith(r *Run) bool {
	return r.cfg.from != nil || r.cfg.store != nil && r.cfg.runID != "" && r.cfg.runID == i.run.ID()
}

// same reports whether a run may replace the run of the key, or join it: it has the same inputs, and the same graph unless
// it goes on from that run and was allowed to change the graph. A run of the same id in a store has its inputs from there if it is
// given none.
func (i *idempotent) same(r *idempotent) bool {
	c, goesOn := r.run.cfg, i.goesOnWith(r.run)
	return (i.inputs == r.inputs || goesOn && c.store != nil && c.inputs == nil) && (i.hash == r.hash || goesOn && c.allowChange)
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

// reserve returns the run of a key, or nil if there is none to be joined: the key is reserved for r then. While the key is reserved for
// another run, the caller waits: it must not join a run that is refused and never begins.
func (s *IdempotencyStore) reserve(r *Run) (*Run, error) {
	claim, err := newIdempotent(r)
	if err != nil {
		return nil, err
	}
	for {
		other, reserved, err := s.tryReserve(claim)
		if reserved == nil {
			return other, err
		}
		select {
		case <-reserved:
		case <-r.ctx.Done():
			return nil, bounded(context.Cause(r.ctx))
		}
	}
}

// tryReserve is one try of reserve. The channel is nil unless the key is reserved for another run.
func (s *IdempotencyStore) tryReserve(claim *idempotent) (*Run, <-chan struct{}, error) {
	r := claim.run
	key := r.cfg.idempotencyKey
	s.mu.Lock()
	defer s.mu.Unlock()
	if reserved := s.reserved[key]; reserved != nil {
		return nil, reserved, nil
	}
	if old := s.runs[key]; old != nil {
		status := old.run.Status()
		left := status == RunSuspended && old.run.hasLeft()
		failed := status == RunFailed || status == RunCancelled
		switch {
		case left && old.goesOnWith(r), r.cfg.replaces == old.run:
		case !old.same(claim):
			return nil, nil, fmt.Errorf("%w: %s", ErrKeyConflict, quoteID(key))
		case failed && s.RetryFailed:
		default:
			return old.run, nil, nil
		}
	}
	if s.reserved == nil {
		s.reserved = map[string]chan struct{}{}
	}
	s.reserved[key] = make(chan struct{})
	return nil, nil, nil
}

// settle ends the reservation of a run's key: claim is the run's from now on, unless it is nil.
func (s *IdempotencyStore) settle(r *Run, claim *idempotent) {
	key := r.cfg.idempotencyKey
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.reserved[key])
	delete(s.reserved, key)
	if claim == nil {
		return
	}
	if s.runs == nil {
		s.runs = map[string]*idempotent{}
	}
	s.runs[key] = claim
}

// hasLeft reports whether a suspended run has ended as it was.
func (r *Run) hasLeft() bool {
	r.st.Lock()
	defer r.st.Unlock()
	return r.concluded()
}
