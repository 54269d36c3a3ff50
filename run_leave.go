package kahn

import (
	"context"
	"errors"

	"github.com/seed-c794f7ef/kahn/machine"
)

// ErrLeft is the cause of the context of an attempt that was interrupted because its run is being left, see [Runner.Shutdown].
var ErrLeft = errors.New("the run is being left")

// interrupt leaves the run and interrupts its running attempts; those whose steps then return an error are given back. A run
// that was stopped is not left, but its attempts that were allowed to finish are interrupted.
func (r *Run) interrupt() {
	r.control(func(now int64) {
		if r.stage == stagePending {
			r.openUnbegun(now)
		}
		r.leave()
		r.interruptAttempts()
	})
}

func (r *Run) interruptAttempts() {
	if r.st.StoppedFor() != CauseNone {
		if r.stopManner == machine.StopDraining {
			r.stopManner = machine.StopAsking
			r.wake(r.now()) // the stop lifts the hold, and held nodes go on
			r.outdate()
			r.st.Stop(r.st.StoppedFor(), r.stopOrigin, machine.StopAsking)
		}
		return
	}
	for ref, w := range r.st.Words() {
		if w.Status() != Running || w.Is(machine.WordStopping) {
			continue
		}
		step := r.current(ref)
		switch x := r.extras[ref]; {
		case w.Is(machine.WordDraining):
			r.st.AskToStop(ref, w.Kind(), r.st.StopOrigin(ref))
		case x != nil && x.atWork() != nil:
			x.comp.child.interruptAttempts()
			r.tree.touch(x.comp.child)
		case step == nil || x != nil && x.comp != nil && step.flags&stepFallback == 0:
			// A worker is about to conclude the composite.
		case x == nil || x.timedOut == timeoutNone && !x.left:
			x = r.extra(ref)
			x.left = true
			r.disarm(&x.attempt)
			r.armGrace(step, x)
			r.ending = append(r.ending, stopOrder{step, &stopCause{ErrLeft, context.Canceled}})
		}
	}
}

// cutShort reports whether an attempt has no result because it was interrupted when the run was left. A success counts, and
// so does a wait, and a stop of the node that has come meanwhile. A stop that lets attempts finish has come too late for
// that, and stops the node like any other stop.
func (r *Run) cutShort(step *Step, x *extra, c *conclusion) bool {
	if x == nil || !x.left || x.timedOut != timeoutNone || r.st.Word(step.ref).Is(machine.WordStopping) || c.suspend != nil || c.expand != nil {
		return false
	}
	if r.st.Word(step.ref).Is(machine.WordDraining) {
		r.st.StopDrained(step.ref)
		return false
	}
	const returned = machine.CauseSet(1<<CauseStepError | 1<<CauseRateLimit | 1<<CauseTimeout)
	if r.st.Word(step.ref).Is(machine.WordAdmitting) {
		return true // the judge of the inputs may have been interrupted, whatever it returned
	}
	mocked := c.Cause == CauseConditionError && r.cfg.test != nil // of conditions, only mocks have a context, and so can be interrupted
	// A fallback that fails leaves the cause of the failure before it.
	return c.Status == Failed && (returned.Has(c.Cause) || mocked || step.flags&stepFallback != 0) || c.Status == Cancelled
}

// giveBack makes the node of an attempt that was cut short ready again: for the next life of the run, as a rule.
func (r *Run) giveBack(step *Step, x *extra, now int64) {
	ref := step.ref
	quiet := r.st.Word(ref).Is(machine.WordAdmitting) || step.flags&stepAgain != 0
	x.left = false
	r.landFlight(ref, nil, false)
	if quiet { // it has not started, or has begun in an earlier life: the next attempt has the same number
		x.reentries++
		r.reentered = true
	} else {
		x.cut++
	}
	r.disarm(&x.attempt)
	r.disarm(&x.grace)
	r.records[ref].active, r.records[ref].end = activeNone, now
	if err := r.st.Requeue(r.st.Token(ref), Running); err != nil {
		r.st.NoteBug(err)
	}
	if quiet {
		r.st.Hush(ref) // to observers its status has not changed
	}
}

// Leave asks the run to end as it stands: nothing is started any more, and when the attempts that run have returned, Wait
// returns a Result in status [RunSuspended] with a [Snapshot] from which another run can go on. Nodes that back off do not
// wait for their next attempt. A guard or merge that does not return within [CancelGrace] is left behind, and its node is named
// in Result.Abandoned; it is asked again when the run goes on. A run that has nothing left to do but to wait for signals ends at once; one that was stopped, or
// is stopped before its last record is written, and one that has no node left to start, ends as usual.
func (r *Run) Leave() {
	r.control(func(int64) {
		if r.stage == stagePending {
			r.openUnbegun(r.now())
		}
		r.leave()
	})
}

// leave keeps the run, and the runs nested in it, from starting anything else. A run that was stopped goes on to its end,
// its cleanup included, and so do the runs nested in it. So a run that is being left was not stopped, and the run around it
// is being left too.
func (r *Run) leave() {
	if r.leaving || r.st.StoppedFor() != CauseNone {
		return
	}
	r.leaving = true
	r.st.Leave()
	r.leaveChecks()
	r.leaveReturns()
	if !r.nests {
		return
	}
	for _, c := range r.children() {
		c.leave()
		c.tree.touch(c)
	}
}

// leaveReturns bounds the tests of loops, and other user code that is called when a nested run has ended, in a run that is
// being left: it is called again when the run goes on.
func (r *Run) leaveReturns() {
	if !r.nests {
		return
	}
	for ref, x := range r.extras {
		if x.comp != nil && x.comp.working {
			r.armReturnGrace(ref, x)
		}
	}
}

func (r *Run) armReturnGrace(ref Ref, x *extra) {
	step := r.current(ref)
	if x.grace != nil || step == nil || step.flags&stepFallback != 0 {
		return
	}
	x.grace = r.after(r.cfg.cancelGrace, func(int64) {
		if r.leaving && r.current(ref) == step && x.comp.working && !r.records[ref].returned {
			r.abandonReturn(step, x)
		}
	})
	x.grace.dueIn(r.cfg.cancelGrace)
}

// abandonReturn gives up on a worker that concludes a composite, and leaves the composite as it was before.
func (r *Run) abandonReturn(step *Step, x *extra) {
	r.activate(&Step{run: r, ref: step.ref, attempt: step.attempt, flags: step.flags}) // so that the worker's conclusion is not the current Step's
	x.grace = nil
	x.comp.working, x.comp.put = false, true
	r.leftBehind(step.ref)
	r.dismiss()
	if r.tree.limit == 1 && r.tree.alone > 0 {
		r.tree.alone--
	}
}

// resumeReturns is the reverse of leaveReturns, for a run that is not left after all.
func (r *Run) resumeReturns() {
	if !r.nests {
		return
	}
	for ref, x := range r.extras {
		switch {
		case x.comp == nil:
		case x.comp.put:
			x.comp.put = false
			r.st.EvaluateInline(ref)
		case x.comp.working && x.timedOut == timeoutNone && !r.st.Word(ref).Is(machine.WordStopping):
			r.disarm(&x.grace) // a stop gives it its own
		}
	}
}

// stay undoes leave for the run, and for the runs nested in it: a stop takes precedence over leaving.
func (r *Run) stay(now int64) {
	if !r.leaving {
		return
	}
	r.leaving = false
	r.resumeChecks()
	r.resumeReturns()
	r.st.Stay()
	if !r.nests {
		return
	}
	for _, c := range r.children() {
		c.stay(now)
		if c.stage == stageResting && c.st.MayGoOn() {
			c.wake(now)
		}
		c.tree.touch(c)
	}
}

// leaveChecks bounds the checks of a run that is being left. Steps may finish, since their work would be lost; a check is
// performed again when the run goes on.
func (r *Run) leaveChecks() {
	for ref := range r.checks {
		r.armCheck(ref, false)
	}
}

// resumeChecks is the reverse of leaveChecks, for a run that is not left after all: nodes whose checks were abandoned are
// checked again.
func (r *Run) resumeChecks() {
	for ref, e := range r.checks {
		if e.grace != nil && r.st.Word(ref).Is(machine.WordChecking) {
			if e.grace.Stop() {
				r.timers--
			}
			e.grace = nil
		}
	}
	for _, ref := range r.remarked().abandoned {
		if r.st.Word(ref).Is(machine.WordChecking) && r.checks[ref] == nil {
			r.st.EvaluateInline(ref)
		}
	}
}
