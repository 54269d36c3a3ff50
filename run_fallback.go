package kahn

import (
	"errors"

	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/machine"
)

// wantsFallback reports whether the node's fallback is called: not for a node that was stopped, nor after its overall
// timeout, nor for inputs that were refused.
func (r *Run) wantsFallback(ref Ref) bool {
	x := r.extras[ref]
	return r.plan.node(ref).Fallback != nil && !r.st.Word(ref).Is(machine.WordStopping|machine.WordAdmitting) && (x == nil || x.timedOut != timeoutOverall)
}

// beginFallback makes the node's fallback a part of the attempt that has failed, with a Step, and so a context, of its own,
// in the critical section in which the attempt ended: no stop and no timeout gets lost between the two.
func (w *worker) beginFallback(failed conclusion) {
	r, old := w.run, w.step
	x := r.extra(old.ref)
	r.disarm(&x.attempt)
	r.disarm(&x.grace)
	x.lastErr, x.timedOut = failed.err, timeoutNone
	step := &Step{run: r, ref: old.ref, attempt: old.attempt, flags: old.flags | stepFallback}
	r.activate(step)
	w.step, w.failed = step, &failed
	r.armTimeouts(r.plan.node(old.ref), step, true, w.now)
}

// fallback performs the fallback that has begun.
func (w *worker) fallback() bool {
	r, ref, failed := w.run, w.task.Ref, w.failed
	w.phase = phaseUser
	var value any
	err := w.protect(func() (err error) {
		value, err = r.callFallback(w.step, failed.err)
		return err
	})
	w.now = r.now()
	c := conclusion{Outcome: machine.Outcome{Status: Completed}, value: value, fallback: true}
	if err != nil {
		c = *failed
		c.err = errors.Join(failed.err, bounded(err))
	} else if r.plan.net.Router(ref) >= 0 || r.plan.net.Is(ref, factJudge) || ref == r.plan.end || r.cfg.checkValues {
		if c = w.conclude(attemptResult{value: value}); c.Status == Completed {
			c.fallback = true
		} else {
			c.noRetry = failed.noRetry // why the fallback was called
		}
	}
	w.phase = phaseEngine
	return w.finishFallback(c, true)
}

// finishFallback is finish for a fallback: there is no other attempt after it.
func (w *worker) finishFallback(c conclusion, goOn bool) bool {
	r, step, failed, returned := w.run, w.step, w.failed, w.now
	w.failed, w.resumed = nil, false
	step.returned()
	for waited := r.durable == nil; ; {
		r.lock()
		if r.records[step.ref].returned {
			w.endWait(c.Status == Failed)
		}
		r.ringDue(w.now)
		if r.current(step.ref) != step {
			r.release(w.now)
			return false
		}
		if r.isLost() {
			r.drop(step, w.now)
			return w.next(goOn)
		}
		if !w.alone && r.putsOff(w.now) {
			w.failed = failed
			return w.putOff(c, attemptResult{}, goOn, true)
		}
		if waited || !w.awaitRoom(r.sizeOf(&c, &w.kept)) {
			break
		}
		waited = true
	}
	if x := r.extras[step.ref]; x.timedOut != timeoutNone {
		c = conclusion{Outcome: machine.Outcome{Status: Failed, Cause: CauseTimeout}, err: timeoutAfter(x.timeout, failed.err), noRetry: failed.noRetry}
		if x.timedOut == timeoutOverall {
			c.noRetry = event.NoRetryOverall
		}
	}
	if x := r.extras[step.ref]; c.Status == Failed && r.cutShort(step, x, &c) {
		if step.flags&stepCrashed == 0 {
			x.crashes = 0
		}
		r.giveBack(step, x, w.now)
	} else {
		r.outputText(step.ref, c.Status, w.kept[0])
		r.settle(step, c, returned)
	}
	return w.next(goOn)
}
