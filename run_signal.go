package kahn

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/seed-c794f7ef/kahn/machine"
	"github.com/seed-c794f7ef/kahn/store"
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
// A run that waits and is at rest, since it was left or [Runner.Serve] has put it away, goes on elsewhere. If its store is a
// [store.Inbox], Signal posts the answer there, as [PrepareSignal] and Post do, and whoever goes on with the run takes it: a Runner that
// serves the store does so at once. An ID stands for one request of the run there, whatever node it names. A gate that this life knew judges the answer before; the rest is judged then. Without such a store the
// error is [ErrAtRest].
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
	if err == ErrAtRest {
		return r.postSignal(ctx, &s)
	}
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

// CheckSignal returns the error with which Signal would refuse the answer now, and changes nothing. It is for hosts that accept a request
// before they perform it. The node may be answered, or the run may end, between the two calls, so that Signal refuses what CheckSignal did not.
func (r *Run) CheckSignal(gate string, value any) error {
	s := signal{gate: gate, Decision: decisionOf(value), unsent: true}
	if err := s.identify(); err != nil {
		return err
	}
	_, err := r.deliverSignal(&s)
	if err == ErrAtRest && r.mailbox() != nil {
		return r.judgeAtRest(&s)
	}
	return err
}

// deliverSignal delivers a signal. It returns the transaction with which the answer is written; nil without a store.
func (r *Run) deliverSignal(s *signal) (*writing, error) {
	written, err := r.trySignal(s)
	for err == errNotKept {
		written, err = r.trySignal(s)
	}
	return written, err
}

// isPutAway reports whether the run has ended at rest, so that another life goes on with it. The lock is held.
func (r *Run) isPutAway() bool { return r.concluded() && r.verdict.status == RunSuspended }

// postSignal posts a signal for a run at rest.
func (r *Run) postSignal(ctx context.Context, s *signal) error {
	if r.mailbox() == nil {
		return ErrAtRest
	}
	if err := r.judgeAtRest(s); err != nil {
		return err
	}
	text, err := r.keep(s.Value)
	if err == nil {
		err = r.post(ctx, store.Request{ID: s.ID, Kind: store.KindSignal, Node: s.gate, Value: text, Actor: s.Actor, Comment: s.Comment})
	}
	if errors.Is(err, store.ErrRequestConflict) {
		err = fmt.Errorf("%w: %w", ErrSignalConflict, err)
	}
	if err != nil {
		return fmt.Errorf("signal for %s: %w", quoteID(s.gate), err)
	}
	return nil
}

// judgeAtRest refuses a signal for what did not wait when the run came to rest, as Signal does for a run at work. It calls user code.
func (r *Run) judgeAtRest(s *signal) error {
	r.st.Lock()
	at, lost := r.locate(s.gate)
	if lost != nil || !at.run.plan.net.Is(at.ref, machine.FlagGate) {
		defer r.st.Unlock()
		named := func(w Wait) bool { return w.Node == s.gate || w.Token == s.gate }
		if len(r.waiters().keptAt) > 0 || slices.ContainsFunc(r.waiting(), named) { // or the graph is not known in which it waits
			return nil
		}
		return r.noGate(s.gate)
	}
	err := at.run.refusal(at.ref)
	r.st.Unlock()
	if err != nil {
		return err
	}
	return at.run.plan.refuse(at.ref, s.gate, s.Value)
}

// mailbox is where requests for the next life of the run are posted; nil if its store takes none.
func (r *Run) mailbox() store.Inbox {
	if r.durable == nil {
		return nil
	}
	in, _ := r.durable.store.(store.Inbox)
	return in
}

// post posts a request for the next life of a run at rest. Without an id it gets a new one.
func (r *Run) post(ctx context.Context, q store.Request) error {
	in := r.mailbox()
	if in == nil {
		return ErrAtRest
	}
	if q.ID == "" {
		q.ID = newRunID()
	}
	err := guarded(func() error {
		_, err := in.Post(ctx, r.ID(), q)
		return err
	})
	known := func(kind error) bool { return errors.Is(err, kind) }
	if err == nil || slices.ContainsFunc([]error{ErrFinished, ErrUnknownRun, ErrBadValue, store.ErrRequestConflict}, known) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrStore, err)
}

// signal is a signal on its way to its node.
type signal struct {
	Decision
	gate   string // the node's path, or its token
	sum    string // of the value; "" without an ID
	number uint64 // of the request of the inbox that it is; 0 if it is none
	unsent bool   // it is to be judged alone, and changes nothing
	unkept bool   // the value cannot be encoded now
}

// keepSignal is keep for the value of a signal.
func (r *Run) keepSignal(s *signal) (json.RawMessage, error) {
	text, err := r.keep(s.Value)
	if err == nil {
		return text, nil
	}
	s.unkept = !errors.Is(err, ErrRejected)
	return nil, fmt.Errorf("signal for %s: %w", quoteID(s.gate), err)
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

// takenSignals are the signals with IDs that a run was given, in their order. Snapshots share the list, to which only more is added.
type takenSignals struct {
	list   []answeredState
	at     map[signalName]int // indexes in the list
	before int                // as many of the list were taken before this life
	stored int                // as many of the list have records in the store, or are in a transaction
}

// signalName tells signals apart.
type signalName struct{ id, gate string }

// takenBefore are the signals that a snapshot has, from which other runs may go on, too. As many as stored have records in the store.
func takenBefore(list []answeredState, stored int) takenSignals {
	x := takenSignals{list: slices.Clip(list), before: len(list), stored: stored}
	for i := range list {
		x.index(i)
	}
	return x
}

func (x *takenSignals) index(i int) {
	if x.at == nil {
		x.at = map[signalName]int{}
	}
	name := signalName{x.list[i].ID, x.list[i].Gate}
	if _, known := x.at[name]; !known {
		x.at[name] = i
	}
}

// take adds a signal, unless it has no ID.
func (x *takenSignals) take(s *signal, in *writing) {
	if s.ID != "" {
		x.list = append(x.list, answeredState{s.ID, s.gate, s.sum, in})
		x.index(len(x.list) - 1)
	}
}

// repeats reports whether a signal is the repetition of one that was taken, and with which transaction that one was written; or
// it contradicts one. What a store may not have is neither repeated nor contradicted: who asks learns that it may not be stored.
func (x *takenSignals) repeats(s *signal) (in *writing, repeated bool, err error) {
	i, known := x.at[signalName{s.ID, s.gate}]
	if s.ID == "" || !known {
		return nil, false, nil
	}
	a := &x.list[i]
	if a.Sum != s.sum && !a.in.failed() {
		return nil, false, fmt.Errorf("%w: signal %s for %s", ErrSignalConflict, quoteID(s.ID), quoteID(s.gate))
	}
	return a.in, true, nil
}

// unstored are the signals that the store has no records of. They are to be written with the next transaction.
func (x *takenSignals) unstored() (list []answeredState, first int) {
	list, first = x.list[x.stored:], x.stored+1
	x.stored = len(x.list)
	return list, first
}

// signalKey is the key of the record of a signal with an ID in the store: by its number, from 1. It is not the id of a node.
func (p *Plan) signalKey(number int) string {
	key := fmt.Sprint("#signal", number)
	for _, taken := p.Ref(key); taken; _, taken = p.Ref(key) {
		key = "#" + key
	}
	return key
}

// signalNumber is the reverse, which needs no plan; 0 for no such key.
func signalNumber(key string) int {
	number, _ := strings.CutPrefix(strings.TrimLeft(key, "#"), "signal")
	n, _ := strconv.Atoi(number)
	return n
}

// withoutAgain are the signals that a redrive does not forget: those that have named a node which does not run again. What a token
// stood for is not known any more.
func withoutAgain(p *Plan, taken []answeredState, again []bool) []answeredState {
	return slices.DeleteFunc(slices.Clone(taken), func(a answeredState) bool {
		ref, ok := p.outermost(a.Gate)
		return !ok || again[ref]
	})
}
