package kahn

import (
	"context"
	"errors"
)

// ErrLeft is the cause of the context of an attempt that was interrupted because its run is being left, see [Runner.Shutdown].
var ErrLeft = errors.New("the run is being left")

// interrupt leaves the run and interrupts what still runs: attempts whose steps return an error are given back. A run that was
// stopped is not left; what it has left to finish is interrupted.
func (r *Run) interrupt() {
	r.control(func(now int64) {
		if r.pending {
			r.openUnbegun(now)
		}
		r.leave()
		r.interruptAttempts()
	})
}

func (r *Run) interruptAttempts() {
	if r.st.stopped != CauseNone {
		if r.stopManner == stopDraining {
			r.stopManner = stopAsking
			r.wake(r.now()) // the stop lifts the hold, and what was held goes on
			r.outdate()
			r.st.stop(r.st.stopped, r.stopOrigin, stopAsking)
		}
		return
	}
	for i, w := range r.st.words {
		ref := Ref(i)
		if statusOf(w) != Running || w&wordStopping != 0 {
			continue
		}
		step := r.current(ref)
		switch x := r.extras[ref]; {
		case w&wordDraining != 0:
			r.st.askToStop(ref, kindOf(w), Ref(int32(r.st.stopOrigin(ref))))
		case x != nil && x.atWork() != nil:
			x.comp.child.interruptAttempts()
			r.tree.touch(x.comp.child)
		case step == nil || x != nil && x.comp != nil && step.flags&stepFallback == 0:
			// What the nested run came to is about to be found out.
		case x == nil || x.timedOut == timeoutNone && !x.left:
			x = r.extra(ref)
			x.left = true
			r.disarm(&x.attempt)
			r.armGrace(step, x)
			r.ending = append(r.ending, stopOrder{step, &stopCause{ErrLeft, context.Canceled}})
		}
	}
}

// cutShort reports whether an attempt that was interrupted, because the run is being left, has come to nothing for that reason.
// What the step has completed is kept, and so is a wait, and a stop of the node that has come meanwhile. A stop that was to let
// the attempt finish has come too late for that, and stops the node like any other.
func (r *Run) cutShort(step *Step, x *extra, c *conclusion) bool {
	if x == nil || !x.left || x.timedOut != timeoutNone || r.st.words[step.ref]&wordStopping != 0 || c.suspend != nil || c.expand != nil {
		return false
	}
	if r.st.words[step.ref]&wordDraining != 0 {
		r.st.words[step.ref] |= wordStopping
		return false
	}
	const returned = causeSet(1<<CauseStepError | 1<<CauseRateLimit | 1<<CauseTimeout)
	if r.st.words[step.ref]&wordAdmitting != 0 {
		return true // who judges the inputs may have been interrupted, whatever the verdict
	}
	// A fallback that fails leaves the cause of the failure before it.
	return c.Status == Failed && (returned.has(c.Cause) || step.flags&stepFallback != 0) || c.Status == Cancelled
}

// giveBack makes the node of an attempt that was cut short ready again: for the next life of the run, as a rule.
func (r *Run) giveBack(step *Step, x *extra, now int64) {
	ref := step.ref
	quiet := r.st.words[ref]&wordAdmitting != 0 || step.flags&stepAgain != 0
	x.left = false
	if quiet { // it has not started, or has begun in an earlier life: the number is given again
		x.reentries++
		r.reentered = true
	} else {
		x.cut++
	}
	r.disarm(&x.attempt)
	r.disarm(&x.grace)
	r.records[ref].active, r.records[ref].end = activeNone, now
	if err := r.st.requeue(r.st.token(ref), Running); err != nil {
		r.st.noteBug(err)
	}
	if quiet {
		r.st.hush(ref) // it was to everybody what it is all the time
	}
}
