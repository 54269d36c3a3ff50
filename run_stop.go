package kahn

import (
	"context"
	"fmt"
	"slices"

	"github.com/seed-c794f7ef/kahn/machine"
)

// Cancel asks the run to stop: nodes that have not started are cancelled at once, the contexts of running steps end, and
// cleanup nodes and the end node still run. Cancelling a run that has ended does nothing.
func (r *Run) Cancel() { r.CancelBy(Request{}) }

// CancelBy is Cancel with a Request that tells who asks, and why. The first request to stop a run stands, even an empty one.
func (r *Run) CancelBy(q Request) {
	q = shortened(q)
	r.control(func(int64) { r.cancel(q) })
}

func (r *Run) cancel(q Request) {
	r.cancelled = true
	r.ask(q)
	r.stop(CauseCancelRun, noRef, &stopCause{ErrCancelled, context.Canceled}, r.cfg.stopMode.manner())
}

// AbortAll stops the run like Cancel, because of a failure that the host knows of: nodes are aborted and the run fails with
// err, or with [ErrAborted] if it is nil.
func (r *Run) AbortAll(err error) { r.AbortAllBy(err, Request{}) }

// AbortAllBy is AbortAll with a Request that tells who asks, and why. The first request to stop a run stands, even an empty
// one.
func (r *Run) AbortAllBy(err error, q Request) {
	if err = bounded(err); err == nil {
		err = ErrAborted
	}
	q = shortened(q)
	r.control(func(int64) {
		r.ask(q)
		r.stop(CauseAbortAll, noRef, &stopCause{err, context.Canceled}, r.cfg.stopMode.manner())
	})
}

// CancelNode asks one node to stop. Its dependents are aborted when it has stopped. The error matches [ErrUnknownNode],
// [ErrFinished], or [ErrTransition] if the node is terminal or is the end node, or the run is pending.
func (r *Run) CancelNode(id string) error {
	ref, ok := r.plan.Ref(id)
	if !ok {
		return r.plan.unknownOwn(id)
	}
	err := ErrFinished
	r.control(func(now int64) { err = r.cancelNode(ref, now) })
	return err
}

func (r *Run) cancelNode(ref Ref, now int64) error {
	switch {
	case r.stage == stagePending:
		return fmt.Errorf("%w: the run is pending", ErrTransition)
	case r.isLost():
		return r.durable.failed
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

// control runs f with the lock held, unless the run has ended, and applies the consequences.
func (r *Run) control(f func(now int64)) {
	r.st.Lock()
	ended := r.concluded()
	if !ended {
		r.timers++ // the run does not end before f
	}
	r.st.Unlock()
	if !ended {
		r.callback(f)
	}
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
	if r.st.StoppedFor() == CauseNone {
		r.stopManner, r.stopOrigin = manner, origin
	}
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
