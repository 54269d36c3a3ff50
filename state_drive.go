package kahn

import (
	"errors"
	"fmt"
	"slices"

	"github.com/seed-c794f7ef/kahn/reactive"
)

// ErrNoSlot: a ready node cannot begin yet, because of a limit or because the run is on hold.
var ErrNoSlot = errors.New("no slot is free")

// Begin is Next for one node, which the coordinator knows to be ready: it hands out that node's attempt, check or gate,
// whatever others come before it. The error matches [ErrNoSlot] if a limit is in the way; the node then keeps its place, and
// Next hands it out in time. It matches [ErrTransition] if the node is not ready, and [ErrUnknownNode].
func (s *State) Begin(r Ref) (Task, error) {
	if err := s.drive(); err != nil {
		return Task{}, err
	}
	defer s.unlock()
	if err := s.known(r); err != nil {
		return Task{}, err
	}
	w := s.words[r]
	switch {
	case w&wordChecking != 0 && s.inline.Remove(int(r)):
		return Task{Token: Token{Ref: r}, Check: true}, nil
	case s.status(r) != Ready:
		return Task{}, &TransitionError{Node: s.plan.ID(r), From: s.status(r), To: Running}
	case s.plan.facts[r].is(factGate):
		s.gates = slices.DeleteFunc(s.gates, func(x Ref) bool { return x == r })
		return Task{Token: Token{Ref: r}, Gate: true}, nil
	case s.plan.facts[r].is(factInline):
		s.inline.Remove(int(r))
		return s.start(r), nil
	case s.hold != holdNothing || s.limit > 0 && s.running >= s.limit || !s.ready.Remove(int(s.pos[r])) || !s.acquire(r):
		return Task{}, fmt.Errorf("%w: node %s", ErrNoSlot, quoteID(s.plan.ID(r)))
	}
	s.running++
	return s.start(r), nil
}

// WorkSignal returns, as a signal, how often Next has had a new task after it had none: it changes when a node becomes
// ready, a slot becomes free, or a check becomes due, and Next could hand out nothing before. An effect that reads it and
// calls Next until there are no tasks starts everything that can be started.
func (s *State) WorkSignal() *reactive.Value[int] {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.observers()
	if o.work == nil {
		o.hadWork = s.hasNext()
		o.work = reactive.NewValue(&o.source, 0)
	}
	return o.work
}

// noteWork counts new tasks for WorkSignal. It is called before the lock is released.
func (o *observers) noteWork() {
	has := o.st.hasNext()
	if has && !o.hadWork {
		o.workCount++
		o.pend()
	}
	o.hadWork = has
}
