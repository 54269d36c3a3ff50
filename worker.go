package kahn

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"time"
)

// worker is a goroutine that performs steps, one after the other, until there is nothing left to do.
type worker struct {
	run      *Run
	task     Task
	step     *Step        // of the task; nil for a check
	failed   *conclusion  // of the attempt whose fallback is being performed, else nil
	caught   error        // the panic that has ended perform, else nil
	now      int64        // the clock, read once for each completion: the end of one step is the start of the next
	recorded *transaction // of the task's start, under a store
	phase    phase
	alone    bool // see Run.alone; guarded by the run's lock
}

// phase tells whether the worker is in user code, for the case that this code ends the goroutine.
type phase uint8

const (
	phaseEngine phase = iota
	phaseUser
	phaseCrash // RePanic: the panic is on its way out, hands off
)

func (r *Run) work() {
	w := worker{run: r, now: r.now()}
	defer w.exit()
	r.st.mu.Lock()
	r.starting = false
	for more := w.take(); more; {
		more = w.perform()
		if w.phase == phaseUser {
			// recover has stopped a panic and has not told: under GODEBUG=panicnil=1 panic(nil) does that.
			w.phase, w.caught = phaseEngine, newPanicError(nil)
		}
		if w.caught != nil {
			more = w.crashed()
		}
	}
}

// perform performs one task after the other until there is none left. A panic in a step ends it early: one deferred function
// is there for all attempts, which saves the nodes that do not panic 5 ns each.
func (w *worker) perform() (more bool) {
	defer func() {
		if w.phase == phaseUser { // a panic, or a Goexit, which is left to exit
			if v := recover(); v != nil {
				w.caught = w.panicked(v)
			}
		}
	}()
	for more = true; more; {
		switch {
		case w.step == nil:
			more = w.check()
		case w.recorded == nil && w.run.plan.facts[w.task.Ref].is(factPlain):
			more = w.performPlain()
		default:
			more = w.attemptAndFinish()
		}
	}
	return more
}

// crashed is finish for an attempt that has panicked.
func (w *worker) crashed() (more bool) {
	res := attemptResult{err: w.caught, kind: CausePanic}
	if w.run.plan.nodes[w.task.Ref].Test != nil {
		res.kind = CauseConditionError
	}
	w.caught, w.now = nil, w.run.now()
	return w.finish(res, true)
}

// performPlain performs plain nodes for as long as one follows another: attempt, finish and take in one, for nodes that
// complete and that nobody has asked to stop.
func (w *worker) performPlain() (more bool) {
	r, step := w.run, w.step
	s := &r.st
	chained := r.tree == nil && r.durable == nil // else there is more to be seen to between two nodes
	for {
		ref := step.ref
		do := r.step
		if r.plan.facts[ref].is(factOwn) && !r.wrapped {
			do = r.plan.nodes[ref].Do
		}
		w.phase = phaseUser
		value, err := do(step, step)
		w.phase = phaseEngine
		w.now = r.now()
		if err != nil || r.careful && (r.cfg.checkValues || r.ctx.Err() != nil) {
			return w.finishPlain(value, err)
		}
		s.mu.Lock()
		rec := &r.records[ref]
		if r.current(ref) != step || s.words[ref]&wordStopping != 0 {
			s.mu.Unlock()
			return w.finishPlain(value, err)
		}
		rec.active, rec.end = activeNone, w.now
		if value != nil {
			rec.value = value
		}
		s.complete(ref)
		next, ok := noRef, false
		if chained && s.obs == nil {
			next, ok = s.nextPlain()
		}
		if !ok {
			more = w.take()
			step.returned()
			return more
		}
		returned := step
		rec = &r.records[next]
		step = &rec.first
		step.run, step.ref, step.attempt = r, next, 1
		rec.active, rec.attempts, rec.start = activeFirst, 1, w.now
		w.step, w.task.Ref = step, next
		if s.logged {
			r.flush(w.now)
		}
		another := !r.starting && s.hasNext()
		if another {
			r.starting = true
			r.workers++
		}
		s.mu.Unlock()
		if another {
			go r.work()
		}
		returned.returned()
	}
}

// attemptAndFinish, like finishPlain, is a function of its own to keep frames small: a goroutine begins with 2 kB of stack,
// and to grow it costs as much as ten nodes.
//
//go:noinline
func (w *worker) attemptAndFinish() (more bool) { return w.finish(w.attempt(), true) }

//go:noinline
func (w *worker) finishPlain(value any, err error) (more bool) {
	return w.finish(attemptResult{value: value, err: err}, true)
}

// exit is reached with nothing to do when the worker is done, and in the middle of user code when that called
// runtime.Goexit: the node fails then, and if there is more to do another worker does it.
func (w *worker) exit() {
	if w.phase != phaseUser {
		return
	}
	w.phase = phaseEngine
	w.now = w.run.now()
	switch {
	case w.failed != nil: // in a fallback
		w.finishFallback(conclusion{Outcome: Outcome{Status: Failed, Cause: CauseGoexit}, err: errors.Join(w.failed.err, ErrGoexit)}, false)
		return
	case w.step != nil:
		w.finish(attemptResult{err: ErrGoexit, kind: CauseGoexit}, false)
		return
	}
	w.run.st.mu.Lock()
	w.run.settleCheck(w.task.Token, checkResult{verdict: CheckVerdict{Fail: CauseGoexit}, err: ErrGoexit}, w.now)
	w.leave()
}

// take takes the next task and releases the lock, which the caller holds. If there is yet more to do it starts a worker
// for it. If it returns false this one has given up its place and must return.
func (w *worker) take() bool {
	r := w.run
	s := &r.st
	if w.alone {
		w.alone = false
		r.alone--
	}
	if r.alone > 0 { // whoever evaluates goes on
		w.leave()
		return false
	}
	t, ok := s.next()
	for ok && t.Gate {
		r.reachGate(t.Ref, w.now)
		t, ok = s.next()
	}
	if r.plan.composite {
		t, ok = w.beginComposites(t, ok)
	}
	if !ok {
		w.leave()
		return false
	}
	w.task, w.step = t, nil
	if s.limit == 1 && r.tree == nil && (t.Check || r.plan.facts[t.Ref].is(factInline)) {
		w.alone = true
		r.alone++
	}
	if !t.Check {
		w.begin(t)
		if r.durable != nil {
			w.record(t)
		}
	}
	if s.noted || len(s.stopping) > 0 || len(r.ending) > 0 || s.left == 0 || r.tree != nil {
		r.release(w.now)
		return true
	}
	more := !r.starting && r.alone == 0 && s.hasNext()
	if more {
		r.starting = true
		r.workers++
	}
	s.mu.Unlock()
	if more {
		go r.work()
	}
	return true
}

// leave gives up the worker's place and releases the lock.
func (w *worker) leave() {
	if w.alone {
		w.alone = false
		w.run.alone--
	}
	w.run.workers--
	w.run.release(w.now)
}

// begin makes the Step of an attempt that the state has started.
func (w *worker) begin(t Task) {
	r := w.run
	rec := &r.records[t.Ref]
	step := &rec.first
	if step.run != nil {
		step = &Step{} // no Step is used twice: contexts leak
	}
	w.step = step
	step.run, step.ref, step.attempt = r, t.Ref, t.Attempt
	if r.reentered {
		step.attempt = r.attemptOf(t.Ref, t.Attempt)
	}
	r.activate(step)
	rec.attempts = step.attempt
	if t.Attempt == 1 {
		rec.start = w.now
	}
	if word := r.st.words[t.Ref]; word&(wordSubstituted|wordAdmitting) != 0 {
		if word&wordSubstituted != 0 {
			step.flags |= stepSubstituted
		}
		if word&wordAdmitting != 0 {
			step.flags |= stepAdmitting
			rec.attempts = 0
		}
	}
	f := &r.plan.facts[t.Ref] // not the Node, which is large and cold
	if f.is(factCleanup) {
		step.flags |= stepDetached
	}
	if f.is(factTimed) {
		r.armTimeouts(&r.plan.nodes[t.Ref], step, false, w.now)
	}
}

// attemptResult is what a call of user code came to.
type attemptResult struct {
	value any
	err   error
	kind  CauseKind // of err, where it is known without a look at err
}

// attempt calls the user's function.
func (w *worker) attempt() (res attemptResult) {
	n := &w.run.plan.nodes[w.task.Ref]
	if w.recorded != nil {
		if err := w.awaitRecord(); err != nil {
			return attemptResult{err: err, kind: CauseStoreError}
		}
	}
	w.phase = phaseUser
	switch {
	case !w.run.plan.facts[w.task.Ref].is(factOwn):
		res.value, res.err = w.run.step(w.step, w.step)
	default:
		res = w.own(n)
	}
	w.phase = phaseEngine
	w.now = w.run.now()
	return res
}

// own is attempt for a node that has more to it than the host's step function.
func (w *worker) own(n *Node) (res attemptResult) {
	if m := w.run.cfg.memo; m != nil && n.Memo != "" && w.run.cfg.test == nil {
		return m.through(w.step, func() attemptResult { return w.performOwn(n) })
	}
	return w.performOwn(n)
}

// performOwn is own for what is to be performed indeed.
func (w *worker) performOwn(n *Node) (res attemptResult) {
	r, step := w.run, w.step
	if step.flags&stepAdmitting != 0 {
		if res = w.admit(); res.err != nil {
			return res
		}
	}
	if r.cfg.test != nil {
		d := r.plan.doubles[step.ref]
		d.calls.Add(1)
		if d.mock != nil {
			return d.mock.perform(n, step)
		}
	}
	switch {
	case n.Kind == KindTrigger:
		res.value = r.payload()
	case n.Test != nil:
		if res.value, res.err = n.Test(View{run: r, ref: step.ref}); res.err != nil {
			res.kind = CauseConditionError
		}
	case n.Do != nil && !r.wrapped:
		res.value, res.err = n.Do(step, step)
	default:
		res.value, res.err = r.step(step, step)
	}
	return res
}

// panicked turns a recovered panic into an error, or under RePanic lets it go on, with the stack of its origin below.
func (w *worker) panicked(v any) error {
	if w.run.cfg.rePanic {
		w.phase = phaseCrash
		panic(v)
	}
	w.phase = phaseEngine
	return newPanicError(v)
}

func newPanicError(v any) *PanicError {
	if err, ok := v.(error); ok && inspectError(err).cyclic {
		v = fmt.Sprintf("%T: %v", v, ErrCyclicError)
	}
	return &PanicError{Value: v, Stack: debug.Stack()}
}

// protect calls user code outside an attempt and returns its panic as an error.
func (w *worker) protect(f func() error) error {
	err := w.recovering(f)
	if w.phase == phaseUser { // see work
		w.phase = phaseEngine
		err = newPanicError(nil)
	}
	return err
}

func (w *worker) recovering(f func() error) (err error) {
	w.phase = phaseUser
	defer func() {
		if w.phase == phaseUser {
			if v := recover(); v != nil {
				err = w.panicked(v)
			}
		}
	}()
	err = f()
	w.phase = phaseEngine
	return err
}

// conclusion is what the result of an attempt means.
type conclusion struct {
	Outcome
	value    any   // of a completed node
	err      error // of any other
	skip     string
	suspend  *suspendError // what the step wants to wait for
	random   float64       // in [0, 1), for the delay before another attempt
	hint     time.Duration // what a RateLimited error asked for, or 0
	final    bool          // not to be retried
	abortRun bool
	fallback bool // the value is the fallback's
}

// conclude works out what a result means, as far as it does without the lock. User code that it needs, for labels or
// random numbers, runs here.
func (w *worker) conclude(res attemptResult) conclusion {
	ref := w.task.Ref
	n, f := &w.run.plan.nodes[ref], &w.run.plan.facts[ref]
	if res.err == nil && f.is(factJudge) {
		if refused := w.judgeOutput(res.value); refused.err != nil {
			return w.failure(refused)
		}
	}
	if res.err == nil {
		c := conclusion{Outcome: Outcome{Status: Completed}, value: res.value}
		if v, ok := res.value.(EndVerdict); ok && ref == w.run.plan.end && v.Status != RunPending && v.Status != RunCompleted && v.Status != RunFailed {
			return w.failure(attemptResult{err: fmt.Errorf("%w: status %v", ErrBadVerdict, v.Status), kind: CauseStepError})
		}
		if w.run.cfg.checkValues {
			if _, err := encodeValue(w.run.cfg.codec, res.value); err != nil {
				return w.failure(attemptResult{err: err, kind: CauseStoreError})
			}
		}
		if f.router < 0 {
			return c
		}
		kind := CauseConditionError
		err := w.protect(func() error {
			var matched bool
			if c.Route, matched = w.run.plan.Route(ref, res.value); !matched && n.NoMatch == NoMatchFail {
				kind = CauseNoBranchMatch
				return fmt.Errorf("%w: output %s", ErrNoMatch, valueText(res.value))
			}
			return nil
		})
		if err != nil {
			return w.failure(attemptResult{err: err, kind: kind})
		}
		return c
	}
	return w.failure(res)
}

// failure works out what an error means.
func (w *worker) failure(res attemptResult) conclusion {
	r, ref := w.run, w.task.Ref
	facts := inspectError(res.err)
	c := conclusion{Outcome: Outcome{Status: Failed, Cause: res.kind}, err: res.err, final: facts.permanent, abortRun: facts.abortRun}
	if facts.cyclic {
		c.err = bounded(res.err)
	}
	switch {
	case res.kind != CauseNone && res.kind != CauseConditionError:
	case facts.skip != nil && ref != r.plan.end:
		c.Outcome, c.skip = Outcome{Status: Skipped}, facts.skip.message
		return c
	case facts.skip != nil:
		c.Cause, c.err = CauseStepError, fmt.Errorf("%w: the end node cannot be skipped", ErrBadEnd)
	case facts.suspend != nil && ref != r.plan.end:
		c.suspend = facts.suspend
		c.Cause, c.final = CauseStepError, true // if it may not wait
		return c
	case facts.suspend != nil:
		c.Cause, c.err = CauseStepError, fmt.Errorf("%w: the end node cannot wait", ErrBadEnd)
	case res.kind == CauseConditionError:
	case facts.external && ref != r.plan.end:
		c.Outcome = Outcome{Status: Cancelled, Cause: CauseExternal}
		return c
	case facts.rate != nil:
		c.Cause, c.hint = CauseRateLimit, max(facts.rate.after, 0)
	case facts.deadline:
		c.Cause = CauseTimeout
	default:
		c.Cause = CauseStepError
	}
	c.final = c.final || c.abortRun
	return c
}

// draw draws the random number for the delay before another attempt, if there may be one. It is user code, and so is
// called before it is known, under the lock, whether there is one.
func (w *worker) draw(res attemptResult, c *conclusion) error {
	if w.run.retryOf(w.task.Ref).MaxAttempts <= int(w.step.attempt) || res.kind == CauseGoexit {
		return nil
	}
	return w.protect(func() error { c.random = w.run.random(); return nil })
}

// random draws from the run's source. What a host's source says is forced into [0, 1].
func (r *Run) random() float64 {
	if r.cfg.random == nil {
		return rand.Float64()
	}
	if u := r.cfg.random(); u >= 0 { // not so for NaN
		return min(u, 1)
	}
	return 0
}

// retryOf is the policy of a node, its defaults filled in; zero if there is none.
func (r *Run) retryOf(ref Ref) Retry {
	f := &r.plan.facts[ref]
	if f.is(factOnce) {
		return Retry{}
	}
	if policy := r.plan.nodes[ref].Retry; policy.MaxAttempts != 0 || f.is(factComposite) {
		return policy // a composite has no default: what it consists of has
	}
	return r.cfg.defaultRetry
}

// finish settles an attempt and, if the worker goes on, takes its next task, in one critical section. It reports whether
// there is a next task.
func (w *worker) finish(res attemptResult, goOn bool) bool {
	return w.finishAs(w.conclude(res), res, goOn)
}

// finishAs is finish for a result whose meaning is known.
func (w *worker) finishAs(c conclusion, res attemptResult, goOn bool) bool {
	r, step := w.run, w.step
	ref := step.ref
	if c.Status == Failed || step.ended() != nil {
		if err := w.draw(res, &c); err != nil {
			c = conclusion{Outcome: Outcome{Status: Failed, Cause: CausePanic}, err: err, final: true}
		}
	}
	var cause *stopCause // of the caller's context, whose end the step may have seen before the run did
	if r.detach != nil && r.ctx.Err() != nil {
		cause = r.callerCause()
	}
	r.st.mu.Lock()
	if r.current(ref) != step {
		r.st.mu.Unlock() // abandoned: its place was given up for it
		return false
	}
	if cause != nil {
		if r.outer == nil {
			r.stopForContext(cause)
		} else {
			r.tree.root.stopForContext(cause)
			r.spread()
		}
		r.collectStops()
	}
	retried := false
	if x := r.extras[ref]; x != nil || c.Status == Failed {
		c, retried = r.amend(step, x, c, w.now)
	}
	switch {
	case retried:
	case c.suspend != nil:
		r.suspend(step, c.suspend, w.now)
	case c.Status == Failed && goOn && r.wantsFallback(ref, c):
		w.beginFallback(c)
		r.st.mu.Unlock()
		step.returned()
		return w.fallback()
	default:
		r.settle(step, c, w.now)
	}
	ok := false
	if goOn {
		ok = w.take()
	} else {
		w.leave()
	}
	step.returned()
	return ok
}

// amend applies to a conclusion what is known only under the lock: whether the attempt had timed out, whether the node was
// asked to stop, and whether the failure is retried, which it then is.
func (r *Run) amend(step *Step, x *extra, c conclusion, now int64) (_ conclusion, retried bool) {
	ref := step.ref
	stopping := r.st.words[ref]&wordStopping != 0
	if x != nil && x.timedOut != timeoutNone {
		overall := x.timedOut == timeoutOverall
		c = conclusion{Outcome: Outcome{Status: Failed, Cause: CauseTimeout}, err: timeoutAfter(x.timeout, c.err), random: c.random, final: overall}
	} else if stopping && c.Cause == CauseTimeout {
		c.Cause = CauseStepError // the deadline that it saw is the stop
	}
	if c.suspend != nil {
		if stopping {
			c.suspend = nil
		} else if err := r.duplicateToken(ref, c.suspend.token); err != nil {
			c.suspend, c.err = nil, err
		}
	}
	if c.Status != Failed || c.final || stopping || r.st.words[ref]&wordAdmitting != 0 {
		return c, false
	}
	delay, granted := r.grantRetry(step, c, now)
	if !granted {
		return c, false
	}
	x = r.extra(ref)
	x.lastErr, x.errs = c.err, append(x.errs, c.err)
	x.timedOut = timeoutNone
	r.disarm(&x.attempt)
	r.disarm(&x.grace)
	r.records[ref].active, r.records[ref].end = activeNone, now
	token := r.st.token(ref)
	if err := r.st.retry(token); err != nil {
		r.st.noteBug(err)
	}
	r.event(entry{kind: evNodeRetried, ref: ref, attempt: step.attempt, at: now, arg: Retried{Cause: c.Cause, Delay: delay, Err: c.err}})
	x.backoff = r.after(delay, func(int64) {
		_ = r.st.requeue(token, Retrying) // stale if the node was stopped while it backed off
	})
	return c, true
}

// timeoutAfter is the error of a node that ran out of time. It renders what the step returned only when it is asked to:
// that is user code, and this is called under the lock.
func timeoutAfter(after time.Duration, err error) error { return &lateError{after, err} }

type lateError struct {
	after time.Duration
	err   error // what the step returned, may be nil
}

func (e *lateError) Error() string {
	text := fmt.Sprintf("%v after %v", ErrTimeout, e.after)
	if e.err != nil && e.err != ErrTimeout { // a step may well return the cause of its context
		text += ": " + errorText(e.err)
	}
	return text
}

func (e *lateError) Unwrap() []error { return []error{ErrTimeout, e.err} }

// grantRetry decides whether a failure is retried, and after which delay. A wait that cannot end before the node's or the
// run's deadline is not begun.
func (r *Run) grantRetry(step *Step, c conclusion, now int64) (delay time.Duration, granted bool) {
	ref := step.ref
	n, policy := &r.plan.nodes[ref], r.retryOf(ref)
	if int(step.attempt) >= policy.MaxAttempts || !policy.causes().has(c.Cause) || c.hint > policy.MaxRetryAfter || !r.st.mayRetry(ref) {
		return 0, false
	}
	delay = max(policy.delay(int(step.attempt), c.random), c.hint)
	ready := saturatingAdd(now, int64(delay))
	if n.OverallTimeout > 0 && ready >= r.records[ref].start+int64(n.OverallTimeout) {
		return 0, false
	}
	if r.bound > 0 && ready >= r.bound && !r.plan.facts[ref].is(factCleanup) {
		return 0, false
	}
	return delay, true
}

// wantsFallback reports whether the node's fallback has a say: not for a node that was stopped, nor when its time is up, nor
// for inputs that were refused.
func (r *Run) wantsFallback(ref Ref, c conclusion) bool {
	x := r.extras[ref]
	return r.plan.nodes[ref].Fallback != nil && r.st.words[ref]&(wordStopping|wordAdmitting) == 0 && (x == nil || x.timedOut != timeoutOverall)
}

// beginFallback makes the node's fallback a part of the attempt that has failed, with a Step, and so a context, of its own,
// in the critical section in which the attempt ended: no stop and no timeout gets lost between the two.
func (w *worker) beginFallback(failed conclusion) {
	r, old := w.run, w.step
	x := r.extra(old.ref)
	r.disarm(&x.attempt)
	r.disarm(&x.grace)
	x.lastErr, x.timedOut = failed.err, timeoutNone
	step := &Step{run: r, ref: old.ref, attempt: old.attempt, flags: old.flags}
	r.activate(step)
	w.step, w.failed = step, &failed
	r.armTimeouts(&r.plan.nodes[old.ref], step, true, w.now)
}

// fallback performs the fallback that has begun.
func (w *worker) fallback() bool {
	r, ref, failed := w.run, w.task.Ref, w.failed
	var value any
	err := w.protect(func() (err error) {
		value, err = r.plan.nodes[ref].Fallback(w.step, failed.err)
		return err
	})
	w.now = r.now()
	c := conclusion{Outcome: Outcome{Status: Completed}, value: value, fallback: true}
	if err != nil {
		c = *failed
		c.err = errors.Join(failed.err, bounded(err))
	} else if r.plan.facts[ref].router >= 0 || r.plan.facts[ref].is(factJudge) || ref == r.plan.end || r.cfg.checkValues {
		if c = w.conclude(attemptResult{value: value}); c.Status == Completed {
			c.fallback = true
		}
	}
	return w.finishFallback(c, true)
}

// finishFallback is finish for a fallback: there is no other attempt after it.
func (w *worker) finishFallback(c conclusion, goOn bool) bool {
	r, step, failed := w.run, w.step, w.failed
	w.failed = nil
	r.st.mu.Lock()
	if r.current(step.ref) != step {
		r.st.mu.Unlock()
		return false
	}
	if x := r.extras[step.ref]; x.timedOut != timeoutNone {
		c = conclusion{Outcome: Outcome{Status: Failed, Cause: CauseTimeout}, err: timeoutAfter(x.timeout, failed.err)}
	}
	r.settle(step, c, w.now)
	ok := false
	if goOn {
		ok = w.take()
	} else {
		w.leave()
	}
	step.returned()
	return ok
}

var errAbandoned = errors.New("abandoned: the step ignored its context")

// settle makes a node terminal with what its attempt came to, and reacts to its failure. It is called with the lock held.
func (r *Run) settle(step *Step, c conclusion, now int64) {
	ref := step.ref
	rec := &r.records[ref]
	rec.active, rec.end, rec.fallback = activeNone, now, c.fallback
	switch {
	case c.Status == Completed:
		rec.value = c.value
		if ref == r.plan.end {
			r.endOutput = c.value
		}
	case c.Status == Skipped:
		r.extra(ref).skip = c.skip
	default:
		rec.value = c.err
	}
	if err := r.st.settle(r.st.token(ref), c.Outcome); err != nil {
		r.st.noteBug(err)
	}
	if len(r.extras) > 0 {
		r.disarmNode(ref)
	}
	if c.Status == Failed {
		if statusOf(r.st.words[ref]) == Failed {
			r.react(ref, c.abortRun)
		} else {
			r.extra(ref).lastErr = c.err // the step's answer to being stopped
			rec.value = nil
		}
	}
}

// react does what a node's failure is to do beyond its descendants: stop its group, or the run.
func (r *Run) react(ref Ref, abortRun bool) {
	f := &r.plan.facts[ref]
	if ref == r.plan.end {
		return
	}
	if r.items != nil {
		r.itemFailed(ref, abortRun)
	}
	if r.plan.member != nil && !f.is(factTolerant) {
		for _, g := range r.plan.member[ref] {
			if r.plan.groups[g].CancelOnFailure {
				r.stopGroup(ref, g)
			}
		}
	}
	manner := r.cfg.stopMode.manner()
	switch {
	case r.st.stopped != CauseNone:
		return
	case abortRun || f.is(factCritical):
	case r.cfg.onFailure == Continue || f.is(factHandled|factTolerant):
		return
	case r.cfg.onFailure == StopScheduling:
		manner = stopDraining
	}
	err := fmt.Errorf("%w: node %s failed", ErrAborted, quoteID(r.plan.nodes[ref].ID))
	r.stop(CauseFailFast, ref, &stopCause{err, context.Canceled}, manner)
}

func (r *Run) stopGroup(ref Ref, g int32) {
	group := &r.plan.groups[g]
	err := fmt.Errorf("%w: node %s of group %s failed", ErrAborted, quoteID(r.plan.nodes[ref].ID), quoteID(group.Name))
	for _, m := range group.members {
		if statusOf(r.st.words[m]).Terminal() || r.plan.facts[m].is(factCleanup) {
			continue // a cleanup node, and the end node, is not stopped by anything that fails
		}
		x := r.extra(m)
		if x.stop == nil {
			x.stop = err
		}
		if e := r.st.stopNode(m, CauseSiblingFailure, ref, r.cfg.stopMode.manner()); e != nil {
			r.st.noteBug(e)
		}
		if statusOf(r.st.words[m]).Terminal() {
			r.disarmNode(m)
		}
	}
}
