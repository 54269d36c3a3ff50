package kahn

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"
)

// ErrSignalConflict rejects a signal whose [Decision].ID came with another value before.
var ErrSignalConflict = errors.New("the id of the signal came with another value")

// Signal answers a node that waits: a gate completes with the value, a step that returned [Suspend] is entered again. gate
// is the node's id, inside a composite its path, or the token that the step gave. A gate may be answered before it is
// reached; it does not wait then. A value that is a [Decision] tells who has answered, too.
//
// The first answer wins: a second one is refused with an error that matches [ErrAnswered]. A name that is neither that of a
// gate nor one that a step waits under is refused with [ErrUnknownGate], an answer that is none of the choices of a [Gate] with a
// [*ChoiceError], a node that was stopped or skipped with
// [ErrTransition], a value that the run's [Encoding] cannot encode with [ErrNotEncodable], and any answer after the run's
// end with [ErrFinished].
//
// A signal with a [Decision].ID may be repeated: the same ID and value under the same name is one answer, and no error, also when the
// run has ended or has gone on in another life. The same ID with another value is refused with [ErrSignalConflict]. A redrive forgets the
// IDs of signals for nodes that run again, and of those that named a token. An ID that is not UTF-8 is refused with [ErrBadValue].
//
// The Signal of a durable run returns when the answer is stored, or with an error that matches [ErrStore] if the run is left before: then
// the answer may be stored or not, and an ID tells the two apart. The store must not wait for the caller. A durable run that goes on and waits
// for its turn at a [Runner] stores the answer when it begins, so Signal waits until then; [Run.SignalContext] bounds that.
func (r *Run) Signal(gate string, value any) error {
	return r.SignalContext(context.Background(), gate, value)
}

// SignalContext is Signal with a context that ends the waiting for the store. The error is the context's cause then, and the answer is
// on its way.
func (r *Run) SignalContext(ctx context.Context, gate string, value any) error {
	if ctx == nil {
		return ErrNoContext
	}
	s := signal{gate: gate, Decision: decisionOf(value)}
	if err := s.identify(); err != nil {
		return err
	}
	written, err := r.deliverSignal(&s)
	if err != nil || written == nil {
		return err
	}
	select {
	case <-written.done:
		err = written.err
	case <-ctx.Done():
		err = bounded(context.Cause(ctx))
	}
	if err != nil {
		return fmt.Errorf("signal for %s: %w", quoteID(gate), err)
	}
	return nil
}

// deliverSignal delivers a signal. It returns the transaction with which the answer is written; nil without a store.
func (r *Run) deliverSignal(s *signal) (*writing, error) {
	written, err := r.trySignal(s)
	for err == errNotKept {
		written, err = r.trySignal(s)
	}
	return written, err
}

// signal is a signal on its way to its node.
type signal struct {
	Decision
	gate   string // the node's path, or its token
	sum    string // of the value; "" without an ID
	number uint64 // of the request of the inbox that it is; 0 if it is none
}

// answered notes that the signal takes effect, if it is a request: with the lock held, in the critical section of the effect.
func (s *signal) answered(root *Run) {
	if s.number > 0 {
		root.durable.answerRequest(s.number, nil)
	}
}

// identify computes what tells whether another signal of the same ID has the same value. It calls user code.
func (s *signal) identify() error {
	if s.ID == "" {
		return nil
	}
	if !utf8.ValidString(s.ID) {
		return fmt.Errorf("%w: the ID of a signal, %s, is not UTF-8", ErrBadValue, quoteID(s.ID))
	}
	data, err := canonical(map[string]any{"": s.Value})
	if err != nil {
		return fmt.Errorf("signal for %s: %w", quoteID(s.gate), err)
	}
	sum := sha256.Sum256(data)
	s.sum = hex.EncodeToString(sum[:16])
	return nil
}

// answeredState is a signal with an ID that has answered a node.
type answeredState struct {
	ID   string   `json:"id"`
	Gate string   `json:"gate"` // as the signal named it
	Sum  string   `json:"sum"`  // of the value
	in   *writing // the transaction that holds it; nil without a store, and for one that an earlier life has stored
}

// take adds the signal to those that were taken, unless it has no ID.
func (s *signal) take(taken []answeredState, in *writing) []answeredState {
	if s.ID == "" {
		return taken
	}
	return append(slices.Clip(taken), answeredState{s.ID, s.gate, s.sum, in}) // a snapshot may have the list
}

// repeats reports whether a signal is the repetition of one among those that were taken, and with which transaction that one was written; or
// it contradicts one. What a store may not have is neither repeated nor contradicted: who asks learns that it may not be stored.
func (s *signal) repeats(taken []answeredState) (in *writing, repeated bool, err error) {
	if s.ID == "" {
		return nil, false, nil
	}
	for i := range taken {
		switch a := &taken[i]; {
		case a.ID != s.ID || a.Gate != s.gate:
		case a.Sum != s.sum && !a.in.failed():
			return nil, false, fmt.Errorf("%w: signal %s for %s", ErrSignalConflict, quoteID(s.ID), quoteID(s.gate))
		default:
			return a.in, true, nil
		}
	}
	return nil, false, nil
}

// withoutAgain are the signals that a redrive does not forget: those that have named a node which does not run again. What a token
// stood for is not known any more.
func withoutAgain(p *Plan, taken []answeredState, again []bool) []answeredState {
	return slices.DeleteFunc(slices.Clone(taken), func(a answeredState) bool {
		ref, ok := p.outermost(a.Gate)
		return !ok || again[ref]
	})
}
