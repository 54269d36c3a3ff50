package kahn

import (
	"context"
	"fmt"
	"slices"

	"github.com/seed-c794f7ef/kahn/machine"
	"github.com/seed-c794f7ef/kahn/store"
)

// Cancel asks the run to stop: nodes that have not started are cancelled at once, the contexts of running steps end, and
// cleanup nodes and the end node still run. Cancelling a run that has ended does nothing. CancelBy, which
// returns an error, also tells whether a run at rest will be cancelled.
func (r *Run) Cancel() { _ = r.CancelBy(Request{}) }

// CancelBy is Cancel with a Request that tells who asks, and why. The first request to stop a run stands, even an empty one.
//
// If the run is at rest, CancelBy posts the request in the run's store, as [Run.Signal] posts an answer, and the process that goes on with the
// run cancels it. An error is returned if the store takes no requests ([ErrAtRest]), if the store fails ([ErrStore]), or if the run has
// ended in another life ([ErrFinished]). CancelBy of a run that is at work, or has ended in this life, returns nil.
func (r *Run) CancelBy(q Request) error {
	q = shortened(q)
	if r.control(func(int64) { r.cancel(q) }) || !r.isAtRest() {
		return nil
	}
	return r.post(context.Background(), store.Request{Kind: store.KindCancel, Actor: q.Actor, Comment: q.Reason})
}

func (r *Run) cancel(q Request) {
	r.cancelled = true
	r.ask(q)
	r.stop(CauseCancelRun, noRef, &stopCause{ErrCancelled, context.Canceled}, r.cfg.stopMode.manner())
}

// AbortAll stops the run like Cancel, because of a failure that the host knows of: nodes are aborted and the run fails with
// err, or with [ErrAborted] if it is nil. AbortAll does not stop a run at rest; AbortAllBy says so.
func (r *Run) AbortAll(err error) { _ = r.AbortAllBy(err, Request{}) }

// AbortAllBy is AbortAll with a Request that tells who asks, and why. The first request to stop a run stands, even an empty
// one. [ErrAtRest] is returned if the run is at rest: no store keeps such a request. CancelBy stops it.
func (r *Run) AbortAllBy(err error, q Request) error {
	if err = bounded(err); err == nil {
		err = ErrAborted
	}
	q = shortened(q)
	called := r.control(func(int64) {
		r.ask(q)
		r.stop(CauseAbortAll, noRef, &stopCause{err, context.Canceled}, r.cfg.stopMode.manner())
	})
	if !called && r.isAtRest() {
		return ErrAtRest
	}
	return nil
}

// isAtRest reports whether this life of the run is over and the run is not, so that another process may go on with it.
func (r *Run) isAtRest() bool {
	r.st.Lock()
	defer r.st.Unlock()
	return r.isPutAway() && !r.isLost()
}

// CancelNode asks one node to stop. Its dependents are aborted when it has stopped. The error matches [ErrUnknownNode],
// [ErrFinished], or [ErrTransition] if the node is terminal or is the end node, or the run is pending. For a run at rest the request is
// posted in its store, or refused with [ErrAtRest], as that of [Run.Signal] is.
func (r *Run) CancelNode(id string) error {
	ref, ok := r.plan.Ref(id)
	if !ok {
		return r.plan.unknownOwn(id)
	}
	err := ErrFinished
	r.control(func(now int64) { err = r.cancelNode(ref, now) })
	if err != ErrFinished {
		return err
	}
	if err := r.judgeCancelAtRest(ref); err != nil {
		return err
	}
	return r.post(context.Background(), store.Request{Kind: store.KindCancelNode, Node: id})
}

// judgeCancelAtRest is why nobody can cancel a node of a run that has ended, nil if the run is at rest and the request is to be posted.
func (r *Run) judgeCancelAtRest(ref Ref) error {
	r.st.Lock()
	defer r.st.Unlock()
	switch status := r.st.Word(ref).Status(); {
	case !r.isPutAway() || r.isLost():
		return ErrFinished
	case status.Terminal() || ref == r.plan.end:
		return &machine.TransitionError{Node: r.plan.names[ref], From: status, To: Cancelled}
	case r.mailbox() == nil:
		return ErrAtRest
	}
	return nil
}

// CheckCancelNode returns the error with which CancelNode would refuse now, and changes nothing. See [Run.CheckSignal].
func (r *Run) CheckCancelNode(id string) error {
	ref, ok := r.plan.Ref(id)
	if !ok {
		return r.plan.unknownOwn(id)
	}
	r.st.Lock()
	if r.concluded() {
		r.st.Unlock()
		return r.judgeCancelAtRest(ref)
	}
	defer r.st.Unlock()
	if err := r.mayBeCancelled(); err != nil {
		return err
	}
	return r.st.MayStop(ref, CauseCancelNode)
}

// mayBeCancelled returns the error of a run whose nodes nobody can cancel now.
func (r *Run) mayBeCancelled() error {
	switch {
	case r.stage == stagePending:
		return fmt.Errorf("%w: the run is pending", ErrTransition)
	case r.isLost():
		return r.durable.failed
	}
	return nil
}

func (r *Run) cancelNode(ref Ref, now int64) error {
	if err := r.mayBeCancelled(); err != nil {
		return err
	}
	r.wake(now)
	if err := r.st.StopNode(ref, CauseCancelNode, ref, machine.StopAsking); err != nil {
		return err
	}
	if x := r.extra(ref); x.stop == nil {
		x.stop = ErrNodeStopped
	}
	if r.st.Word(ref).Status().Terminal() {
		r.disarmNode(ref)
	}
	return nil
}

// control runs f with the lock held, unless the run has ended, applies the consequences, and reports whether it has called f.
func (r *Run) control(f func(now int64)) bool {
	r.st.Lock()
	ended := r.concluded()
	if !ended {
		r.timers++ // the run does not end before f
	}
	r.st.Unlock()
	if !ended {
		r.callback(f)
	}
	return !ended
}

// stop stops the whole run. The first cause stands.
func (r *Run) stop(kind CauseKind, origin Ref, cause *stopCause, manner machine.StopManner) {
	if r.st.Done() || r.isLost() {
		return
	}
	if r.stage == stagePending {
		r.openUnbegun(r.now())
	}
	r.wake(r.now())
	r.stay(r.now())
	r.outdate() // the next life of the run stops it, too
	if r.stopCauses[kind] == nil {
		if r.stopCauses == nil {
			r.stopCauses = map[CauseKind]*stopCause{}
		}
		r.stopCauses[kind] = cause
	}
	switch {
	case r.st.StoppedFor() == CauseNone:
		r.stopManner, r.stopOrigin = manner, origin
	case (manner == machine.StopDraining || r.stopsAll) && !r.st.IsClosed():
		return // a stop before has reached all nodes that this one would reach; each of many steps may ask for it
	}
	r.stopsAll = r.stopsAll || manner == machine.StopAsking
	r.st.CountVisits(len(r.extras))
	r.st.Stop(kind, origin, manner)
	if manner == machine.StopDraining && r.nests {
		r.drainChildren(kind, cause)
	}
	if r.nests {
		r.hurryInside()
	}
	for ref, x := range r.extras {
		if (x.backoff != nil || x.wait != nil) && r.st.Word(ref).Status().Terminal() {
			r.disarmNode(ref)
		}
	}
	r.boundWaits()
	if r.st.StoppedFor() != CauseNone {
		r.boundChecks()
	}
}

// hurryInside makes the runs nested in the cleanup composites of a run that is being stopped hurry: it bounds their checks
// and lifts their holds.
func (r *Run) hurryInside() {
	for _, c := range r.children() {
		if r.st.StoppedFor() == CauseNone || r.plan.net.Is(c.within.ref, machine.FlagCleanup) {
			c.st.Hurry()
			c.boundChecks()
			if c.st.LiftFresh() && c.stage == stageResting && c.st.MayGoOn() {
				c.wake(r.now())
			}
			c.hurryInside()
			r.tree.touch(c)
		}
	}
}

// boundWaits bounds the waits of the cleanup nodes of a run that was stopped, so that it ends.
func (r *Run) boundWaits() {
	if r.st.StoppedFor() == CauseNone || r.st.Sleepers() == 0 {
		return
	}
	r.st.CountVisits(len(r.plan.declared))
	for _, ref := range r.plan.declared {
		r.boundWait(ref)
	}
}

// boundWait bounds the wait of a node of a run that was stopped, if it is a cleanup node that waits.
func (r *Run) boundWait(ref Ref) {
	x := r.extras[ref]
	if r.st.Word(ref).Status() == Suspended && r.plan.net.Is(ref, machine.FlagCleanup) && x.gate == nil {
		x.gate = r.after(r.cfg.cleanupTimeout, func(now int64) {
			if r.st.Word(ref).Status() == Suspended {
				r.overallTimeOut(ref, x, r.cfg.cleanupTimeout, now)
			}
		})
	}
}

// callerCause is the cause of the end of a caller's context. It calls user code, and so is called without the lock.
func callerCause(ctx context.Context) *stopCause {
	cause := &stopCause{bounded(context.Cause(ctx)), context.Canceled}
	if ctx.Err() == context.DeadlineExceeded {
		cause.is = context.DeadlineExceeded
	}
	return cause
}

func (r *Run) stopForContext(cause *stopCause) {
	r.cancelled = true
	r.stop(CauseContext, noRef, cause, machine.StopAsking)
}

// stopError is the error for which the run was stopped with a cause of this kind, or nil.
func (r *Run) stopError(kind CauseKind) error {
	if cause := r.stopCauses[kind]; cause != nil {
		return cause.err
	}
	return nil
}

// collectStops arms the grace of the attempts that are to stop, and puts the nodes' records, which have the cause of the stop, into the
// transaction of what caused it: after a crash the next life stops the nodes. The attempts' contexts end when the lock is released.
func (r *Run) collectStops() {
	for _, ref := range r.st.TakeUnchecked() {
		r.armCheck(ref, false)
	}
	for t, ok := r.st.NextStop(); ok; t, ok = r.st.NextStop() {
		r.outdated(t.Ref)
		step := r.current(t.Ref)
		if step == nil {
			continue // an inline node, whose test cannot be interrupted
		}
		x := r.extra(t.Ref)
		cause := r.causeOf(t.Ref)
		if x.timedOut == timeoutNone { // else its timeout has stopped it already
			r.disarm(&x.attempt)
			r.halt(step, x, r.st.Word(t.Ref).Kind(), cause)
		}
		r.ending = append(r.ending, stopOrder{step, cause})
	}
}

// causeOf is the cause of a node's stop, as its context reports it.
func (r *Run) causeOf(ref Ref) *stopCause {
	switch kind := r.st.Word(ref).Kind(); kind {
	case CauseSuperseded:
		return &stopCause{ErrSuperseded, context.Canceled}
	case CauseUpstreamFailure, CauseUpstreamCancelled:
		return &stopCause{ErrLateFailure, context.Canceled}
	case CauseCancelNode, CauseSiblingFailure:
		return &stopCause{r.extra(ref).stop, context.Canceled}
	default:
		return r.stopCauses[kind]
	}
}

type stopOrder struct {
	step  *Step
	cause *stopCause
}

// endings are the attempts whose contexts are to end.
func (r *Run) endings() []stopOrder {
	r.collectStops()
	ending := r.ending
	r.ending = nil
	if r.single != nil {
		for _, o := range ending {
			if in := o.step.run; !in.plan.net.Is(o.step.ref, machine.FlagInline) && !in.performsInside(o.step.ref) {
				r.single.interrupted = o.step
			}
		}
	}
	return ending
}

// halt bounds the time that an attempt may take after it was asked to stop: it arms the grace, or, if nested runs perform
// it, stops these, which arm the grace for their own attempts.
func (r *Run) halt(step *Step, x *extra, kind CauseKind, cause *stopCause) {
	switch c := x.atWork(); {
	case x.comp == nil || x.comp.working:
		r.armGrace(step, x)
	case x.comp.pause != nil:
		r.interruptPause(step.ref, x)
	case c != nil:
		c.stopFor(kind, cause, machine.StopAsking)
	}
}

// stopFor stops a nested run for the cause of its composite's stop.
func (r *Run) stopFor(kind CauseKind, cause *stopCause, manner machine.StopManner) {
	r.wake(r.now())
	r.stoppedBy = kind
	switch kind {
	case CauseFailFast, CauseAbortAll, CauseRunTimeout, CauseContext, CauseCancelRun, CauseStoreError:
	default: // a cause that concerned the node concerns its whole run
		if kind = CauseCancelRun; r.stoppedBy.StopStatus() == Aborted {
			kind = CauseAbortAll
		}
	}
	r.cancelled = kind.StopStatus() == Cancelled
	r.stop(kind, noRef, cause, manner)
	r.tree.touch(r)
}

// drainChildren passes a stop that lets running steps finish on to the nested runs.
func (r *Run) drainChildren(kind CauseKind, cause *stopCause) {
	var refs []Ref
	for ref, x := range r.extras {
		if x.comp != nil && !r.plan.net.Is(ref, machine.FlagCleanup) {
			refs = append(refs, ref)
		}
	}
	slices.Sort(refs)
	for _, ref := range refs {
		r.drainChild(ref, kind, cause)
	}
}

func (r *Run) drainChild(ref Ref, kind CauseKind, cause *stopCause) {
	x := r.extras[ref]
	if x == nil || x.comp == nil {
		return
	}
	if c := x.atWork(); c != nil {
		c.stopFor(kind, cause, machine.StopDraining)
	} else if x.comp.pause != nil && r.st.Word(ref).Status() == Running {
		r.interruptPause(ref, x)
	}
}
