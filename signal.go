package kahn

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/seed-c794f7ef/kahn/internal/enum"
	"github.com/seed-c794f7ef/kahn/internal/ordset"
	"github.com/seed-c794f7ef/kahn/machine"
)

// NewState returns the state of a run that has not begun: disabled nodes are skipped, and roots are ready. It uses the options [Mode],
// [FailureMode], [StopMode], [SuspendMode], [Limit] and [KeyLimit], and the rates. [machine.State.RunStatusSignal] also uses the status rules.
// Instead of the option [Fire], use [Plan.Prune].
func NewState(p *Plan, opts ...Option) (*machine.State, error) {
	var c config
	if err := c.apply(opts); err != nil {
		return nil, err
	}
	if !p.isCompiled() {
		return nil, ErrNoGraph
	}
	if p.undoes {
		return nil, errNoUndo
	}
	x := c.setup(p)
	return machine.New(&p.net, &x), nil
}

// RestoreState returns the State of a run that continues from a snapshot, with the options of [NewState]. The [Mode] must equal the Mode of the
// snapshot. Any other option may have another value, which applies from now on. If a limit is now less than the number of running nodes, no node
// starts until enough nodes have ended. The State first hands out the ready gates that were already handed out before the snapshot, sorted by Ref,
// if the host had not yet reported that they wait or have ended. Then it hands out all other ready gates, in the order in which they became ready.
//
// The error matches [ErrGraphChanged] if the snapshot is for another plan. It matches [ErrBadValue] if the snapshot has another
// [machine.StateVersion], was taken in another Mode, or is damaged. To find damage, RestoreState compares the state of each node with the states of
// the node's predecessors.
func RestoreState(p *Plan, from machine.StateSnapshot, opts ...Option) (*machine.State, error) {
	var c config
	if err := c.apply(opts); err != nil {
		return nil, err
	}
	if !p.isCompiled() {
		return nil, ErrNoGraph
	}
	if p.undoes {
		return nil, errNoUndo
	}
	x := c.setup(p)
	return machine.RestoreState(&p.net, &x, &from)
}

// These flags describe a node for this package. The State does not use them.
const (
	factTimed = machine.FlagHost << iota // the node has a timeout
	factOwn                              // the node has a Do, a Test or inputs to check, so an attempt is more than a call of the host's step function
	factJudge                            // the output of the node is checked
	factOnce                             // the mock of the node is called once, and not retried
)

// These are values of package machine, under names of this package.
const (
	noRef = machine.NoRef

	statusCount     = machine.Skipped + 1
	causeCount      = machine.CauseSuperseded + 1
	skipModeCount   = machine.SkipStrict + 1
	upstreamCount   = machine.UpstreamSubstitute + 1
	joinDefault     = Join(0)
	skipModeDefault = machine.SkipMode(0)
	upstreamDefault = machine.UpstreamPolicy(0)
)

var (
	skipModeNames = enum.Names[machine.SkipMode]()
	upstreamNames = enum.Names[machine.UpstreamPolicy]()
)

// State returns the run's state, for reading and observing. The State's signals follow the run, and the effects on these signals may call the
// methods of the Run. Only the run itself can change the State. If a program calls a method to change the State, the method returns
// [machine.ErrDriven], or does nothing if it has no error result.
func (r *Run) State() *machine.State { return (*machine.State)(&r.st) }

// WaitFor waits until the node is in one of the statuses, and returns this status. If no statuses are given, it waits for any terminal status.
// WaitFor notices every status that the node enters after the call, even for a moment.
//
// The error matches [ErrNoContext] if ctx is nil, [ErrUnknownNode] if there is no such node, [ErrTransition] if the node is terminal in another
// status, and [ErrFinished] if the run has ended and the node is not terminal. If ctx ends first, the error is ctx's cause. If WaitFor returns an
// error, it also returns the node's current status.
func (r *Run) WaitFor(ctx context.Context, node string, statuses ...Status) (Status, error) {
	if ctx == nil {
		return Idle, ErrNoContext
	}
	ref, ok := r.plan.Ref(node)
	if !ok {
		return Idle, r.plan.unknownOwn(node)
	}
	w := &waiter{got: make(chan Status, 1)}
	for _, status := range statuses {
		w.want |= 1 << status
	}
	s := &r.st
	s.Lock()
	status := s.Watch(ref, w)[ref]
	w.Note(ref, status)
	s.Unlock()
	defer func() {
		s.Lock()
		defer s.Unlock()
		s.Unwatch(ref, w)
	}()
	select {
	case status = <-w.got:
	case <-ctx.Done():
		select {
		case status = <-w.got:
		default:
			return r.lastStatus(ref), context.Cause(ctx)
		}
	case <-r.Done():
		select {
		case status = <-w.got:
		default:
			return r.lastStatus(ref), ErrFinished
		}
	}
	return r.reached(ref, status, w.want)
}

func (r *Run) lastStatus(ref machine.Ref) Status { return r.State().Status(ref) }

// The method `reached` returns the result of WaitFor for a status that ends the wait.
func (r *Run) reached(ref machine.Ref, status Status, want uint32) (Status, error) {
	if want == 0 || want&(1<<status) != 0 {
		return status, nil
	}
	for to := range statusCount {
		if want&(1<<to) != 0 {
			return status, &machine.TransitionError{Node: r.plan.ID(ref), From: status, To: to}
		}
	}
	return status, fmt.Errorf("%w: no such status to wait for", ErrBadValue)
}

// waiter waits for one node to enter one of several statuses.
type waiter struct {
	want uint32 // a bit for each status; 0 means the terminal statuses
	got  chan Status
}

// Note receives every status that the node enters.
func (w *waiter) Note(_ machine.Ref, status Status) {
	if w.want&(1<<status) == 0 && !status.Terminal() {
		return
	}
	select {
	case w.got <- status:
	default: // the wait has already ended
	}
}

// Watch yields the current status of every node, in topological order, and then the newest status of each node whose status has changed. Watch ends
// when ctx ends, or when the run has ended and the last status of every node was yielded. A slow consumer may miss intermediate statuses, but never
// the last one, and does not delay the run. If ctx is nil, Watch yields nothing.
func (r *Run) Watch(ctx context.Context) iter.Seq2[string, Status] {
	return func(yield func(string, Status) bool) {
		if ctx == nil {
			return
		}
		s := &r.st
		n := len(r.plan.names)
		w := &changeWatcher{changed: ordset.Make(n), wake: make(chan struct{}, 1)}
		seen := make([]Status, n)
		for ref := range n {
			w.changed.Insert(ref)
			seen[ref] = statusCount
		}
		s.Lock()
		last := s.Watch(noRef, w)
		s.Unlock()
		defer func() {
			s.Lock()
			defer s.Unlock()
			s.Unwatch(noRef, w)
		}()
		for ctx.Err() == nil {
			ended := r.isOver()
			s.Lock()
			ref, ok := w.changed.PopMin()
			status := statusCount
			if ok {
				status = last[ref]
			}
			s.Unlock()
			switch {
			case ok && status != seen[ref]:
				seen[ref] = status
				if !yield(r.plan.ID(machine.Ref(ref)), status) {
					return
				}
			case ok:
			case ended:
				return
			default:
				select {
				case <-w.wake:
				case <-r.Done():
				case <-ctx.Done():
				}
			}
		}
	}
}

// changeWatcher collects the nodes whose status has changed.
type changeWatcher struct {
	changed ordset.Set
	wake    chan struct{}
}

func (w *changeWatcher) Note(r machine.Ref, _ Status) {
	w.changed.Insert(int(r))
	select {
	case w.wake <- struct{}{}:
	default: // the reader is awake, or a wake-up is pending
	}
}

// bringSignals starts a goroutine that publishes the changes of the run's signals. Publishing calls effects. These are user code, so they may be
// slow or call Goexit. The caller holds the run's lock.
func (r *Run) bringSignals() {
	// No goroutine is needed while r.flushing is set, since another goroutine then publishes them. A Coordinator (r.manual) publishes them itself.
	if r.st.SignalsDue() && r.flushing == nil && r.manual == nil {
		r.rare().flushing = make(chan struct{})
		go r.flushSignals()
	}
}

// flushSignals runs on a goroutine of its own. It publishes pending changes until none remain.
func (r *Run) flushSignals() {
	s := &r.st
	returned := false
	defer func() {
		if !returned { // an effect has called Goexit
			go r.flushSignals()
		}
	}()
	for more := true; more; {
		s.PublishSignals()
		s.Lock()
		if more = s.SignalsDue(); !more {
			close(r.flushing)
			r.runRare.flushing = nil
		}
		s.Unlock()
	}
	returned = true
}

// The method `observed` waits until the effects on the run's signals have seen the end of the run, but at most for the grace. It returns the errors
// of the effects, and errStuckEffect if the grace ends first.
func (r *Run) observed(grace time.Duration) error {
	s := &r.st
	s.Lock()
	observed, idle := s.IsObserved(), r.flushing
	s.Unlock()
	if !observed {
		return nil
	}
	if idle != nil {
		timer := time.NewTimer(grace)
		defer timer.Stop()
		select {
		case <-idle:
		case <-timer.C:
			return errors.Join(r.State().Scope().Err(), errStuckEffect)
		}
	}
	return r.State().Scope().Err()
}

var errStuckEffect = errors.New("effects: a callback was still running when the grace after the end of the run was over")
