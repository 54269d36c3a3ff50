package machine

import (
	"errors"
	"fmt"

	"github.com/seed-c794f7ef/kahn/internal/foreign"
	"github.com/seed-c794f7ef/kahn/reactive"
)

// ErrNoSlot means that a ready node cannot begin yet, because of a limit or a hold.
var ErrNoSlot = errors.New("no slot is free")

// Begin is like Next, but hands out the attempt, the check or the gate of node r, even if Next would first hand out other nodes. The error matches
// [ErrNoSlot] if a limit or a hold keeps the node from starting; the node stays queued, and Next hands it out later. The error matches
// [ErrTransition] if no attempt, check or gate of the node is due, and [ErrUnknownNode] if r is outside the plan.
func (st *State) Begin(r Ref) (Task, error) {
	s, err := st.drive()
	if err != nil {
		return Task{}, err
	}
	defer s.unlockAndDeliver()
	if err := s.known(r); err != nil {
		return Task{}, err
	}
	w := s.words[r]
	switch {
	case w&WordChecking != 0 && s.inline.Remove(int(r)):
		return Task{Token: Token{Ref: r}, Check: true}, nil
	case s.Status(r) != Ready:
		return Task{}, &TransitionError{Node: s.net.ID(r), From: s.Status(r), To: Running}
	case s.net.facts[r].is(FlagGate):
		s.gates.remove(r)
		return Task{Token: Token{Ref: r}, Gate: true}, nil
	case s.net.facts[r].is(FlagInline):
		s.inline.Remove(int(r))
		return s.start(r), nil
	case s.hold != holdNothing || s.limit > 0 && s.running >= s.limit || !s.ready.Remove(int(s.order.pos[r])) || !s.acquire(r):
		return Task{}, fmt.Errorf("%w: node %s", ErrNoSlot, foreign.Quote(s.net.ID(r)))
	}
	s.occupy()
	return s.start(r), nil
}

// Drive is the smallest coordinator: it reacts to each change of the State with an effect of package reactive. Drive calls the function `begin` with
// each task as soon as the task is due. The function `begin` reports the verdict of a check with [State.Checked], makes a gate wait with
// [State.Suspend], or starts the work of the node (the node's call). When the call ends, the program reports its outcome with [State.Settle]. If a
// node is stopped or asked to stop, for example by [State.StopNode], Drive calls the function `abort` with the token of the node's call. By then
// the call may already have ended.
//
// Drive calls `begin` and `abort` one at a time. If a method of the State makes a task due or stops a node, Drive usually calls these functions
// before the method returns. But while a callback of [State.Scope] is running, such as `begin`, Drive waits until the callback has returned. Both
// functions may call methods of the State. After [State.Dispose], Drive calls neither. The error comes from [reactive.NewEffect], or matches
// [ErrBadValue] if `begin` or `abort` is nil.
func (st *State) Drive(begin func(Task), abort func(Token)) error {
	if begin == nil || abort == nil {
		return fmt.Errorf("%w: Drive needs two functions: begin and abort", ErrBadValue)
	}
	due := st.drives()
	_, err := reactive.NewEffect(st.Scope(), func(w reactive.Writer) {
		due.Get(w)
		for t, ok := st.nextAbort(); ok; t, ok = st.nextAbort() {
			abort(t)
		}
		for t, ok := st.Next(); ok; t, ok = st.Next() {
			begin(t)
		}
	})
	return err
}

// The method `drives` makes the State record the events to which Drive reacts, and returns a signal that changes with each event.
func (st *State) drives() *reactive.Value[int] {
	s := st.lock()
	defer s.Unlock()
	o := s.observers()
	if s.host == nil {
		s.Announce() // the first run of Drive's effect takes the tasks that exist already
	}
	if o.due == nil {
		o.due = reactive.NewValue(&o.source, 0)
	}
	return o.due
}

// noteAbort records that the call of node r must end, if the node had begun an attempt and has now been aborted or cancelled. The caller has already
// changed the node's word. The argument `was` is the old word.
func (o *observers) noteAbort(r Ref, was uint64) {
	if was&WordDecided != 0 && was&wordCount != 0 && statusOf(o.st.words[r]).CallAction() == CallAbort && !statusOf(was).Terminal() {
		o.aborts = append(o.aborts, Token{r, int32(was & wordCount)})
	}
}

// nextAbort returns the next token with which Drive must call `abort`.
func (st *State) nextAbort() (t Token, ok bool) {
	s, err := st.drive()
	if err != nil {
		return t, false
	}
	defer s.unlockAndDeliver()
	if o := s.obs; len(o.aborts) > 0 {
		t, o.aborts = o.aborts[0], o.aborts[1:]
		return t, true
	}
	return s.NextStop()
}

// WorkSignal returns a signal that changes whenever the State gets a task for Next while it has no other: a node became ready, a slot became free, or
// a check became due. The signal also changes when a running node is asked to stop. To start everything that can start, an effect reads the signal
// and calls Next until there are no tasks: see [State.Drive]. If a Run drives the State, the signal never changes, since the Run takes the tasks
// itself.
func (st *State) WorkSignal() *reactive.Value[int] {
	s := st.lock()
	defer s.Unlock()
	o := s.observers()
	if o.work == nil {
		if s.host == nil {
			s.Announce() // the signal does not change for tasks that exist already
		}
		o.work = reactive.NewValue(&o.source, 0)
	}
	return o.work
}

// noteWork announces a task if one is due. If the announcement is new, or another node was asked to stop, the signals of WorkSignal and Drive change.
// The signal of Drive also changes if another call must be aborted. If an announcement was open and no task is left, noteWork closes the
// announcement. The caller holds the State's lock and is about to release it.
func (o *observers) noteWork() {
	s := o.st
	was, stops, aborts := s.announced, len(s.stopping), len(o.aborts)
	if s.Announce(); was && !s.HasNext() {
		s.Answer()
	}
	work := s.announced && !was || stops > o.hadStops
	if work {
		o.workCount++
	}
	if work || aborts > o.hadAborts {
		o.dueCount++
		o.pend()
	}
	o.hadStops, o.hadAborts = stops, aborts
}
