package kahn

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/internal/saturate"
	"github.com/seed-c794f7ef/kahn/machine"
)

// conclusion is what the result of an attempt means for the attempt's node.
type conclusion struct {
	machine.Outcome
	value    any    // the output of a completed node
	err      error  // the error of a node that has not completed
	warning  error  // the warning about a condition whose answer is not one of its choices; otherwise nil
	answer   string // the answer of a condition, if it differs from the labels of the branches taken
	skip     string
	suspend  *suspendError // the wait that the step has requested
	expand   *expansion    // the graph that the step has returned
	random   float64       // in [0, 1), for the delay before another attempt
	hint     time.Duration // the wait that a RateLimited error demands, or 0
	noRetry  event.NoRetry // why the failure is not retried; zero if the attempt has not failed, or if amend decides later whether it is retried
	abortRun bool
	harmless bool       // whether the attempt certainly had no effect
	fallback bool       // whether the fallback produced the value
	hit      *event.Hit // set if the value comes from another run; otherwise nil
}

// conclude makes a conclusion from the result of an attempt, as far as this is possible without the run's lock: see amend. It may call user code.
func (w *worker) conclude(res attemptResult) conclusion {
	w.kept = [2]json.RawMessage{}
	return w.concludeKept(res)
}

// concludeKept does the same as conclude. But if w.kept already contains the encoded output, concludeKept does not encode the output again.
func (w *worker) concludeKept(res attemptResult) conclusion {
	ref := w.task.Ref
	n, p := w.run.plan.node(ref), w.run.plan
	if res.err == nil && p.net.Is(ref, factJudge) && !res.judged {
		if refused := w.judgeOutput(res.value); refused.err != nil {
			return w.failure(refused)
		}
	}
	if res.err == nil {
		c := conclusion{Outcome: machine.Outcome{Status: Completed}, value: res.value, hit: res.hit}
		if v, ok := res.value.(EndVerdict); ok && ref == w.run.plan.end && v.Status != RunPending && v.Status != RunCompleted && v.Status != RunFailed {
			return w.failure(attemptResult{err: fmt.Errorf("%w: status %v", ErrBadVerdict, v.Status), kind: CauseStepError})
		}
		if w.kept[0] == nil {
			var err error
			if w.kept[0], err = w.run.keep(res.value); err != nil {
				return w.failure(attemptResult{err: err, kind: causeOfKeep(err)})
			}
		}
		at := p.net.Router(ref)
		if at < 0 {
			return c
		}
		err := w.protect(func() error {
			if p.net.Is(ref, machine.FlagMocked) && isGate(n) { // if a gate is not mocked, its answer was checked when the signal arrived
				if err := w.run.plan.refuse(ref, w.run.path(ref), res.value); err != nil {
					return err
				}
			}
			return w.run.plan.takeBranches(ref, w.run.path(ref), &c)
		})
		if err != nil {
			return w.failure(noBranches(err))
		}
		return c
	}
	return w.failure(res)
}

// takeBranches determines which branches a condition or a gate takes for the value in c, and stores them in c. It may call user code.
func (p *Plan) takeBranches(ref machine.Ref, path string, c *conclusion) error {
	n := p.node(ref)
	labels, router, matched := labelsOf(c.value), p.routers[p.net.Router(ref)], false
	c.Route, matched = router.route(labels)
	c.answer = router.answer(c.value, labels, c.Route)
	if !matched && n.NoMatch == NoMatchFail {
		if err := p.refuseChoice(ref, path, c.value); err != nil {
			return &noMatchError{fmt.Errorf("%w: %w", ErrNoMatch, err)}
		}
		return &noMatchError{fmt.Errorf("%w: output %s", ErrNoMatch, valueText(c.value))}
	}
	if !matched && !isGate(n) {
		if err := p.refuse(ref, path, c.value); err != nil {
			c.warning = fmt.Errorf("%w: %w", ErrNoMatch, err)
		}
	}
	return nil
}

// noMatchError wraps the error of a condition that has no branch for its answer.
type noMatchError struct{ error }

// noBranches returns the result of a condition for which takeBranches has returned err.
func noBranches(err error) attemptResult {
	if e, is := err.(*noMatchError); is {
		return attemptResult{err: e.error, kind: CauseNoBranchMatch}
	}
	return attemptResult{err: err, kind: CauseConditionError}
}

// failure makes a conclusion from a result that contains an error.
func (w *worker) failure(res attemptResult) conclusion {
	r, ref := w.run, w.task.Ref
	facts := inspectError(res.err)
	c := conclusion{Outcome: machine.Outcome{Status: Failed, Cause: res.kind}, err: res.err, abortRun: facts.abortRun, harmless: facts.noEffect || facts.skip != nil}
	if facts.permanent || facts.abortRun {
		c.noRetry = event.NoRetryPermanent
	}
	if facts.unsafe {
		c.err = bounded(res.err)
	}
	switch {
	case res.kind != CauseNone && res.kind != CauseConditionError:
	case facts.skip != nil && ref != r.plan.end:
		c.Outcome, c.skip = machine.Outcome{Status: Skipped}, facts.skip.message
		return c
	case facts.skip != nil:
		c.Cause, c.err = CauseStepError, fmt.Errorf("%w: the end node cannot be skipped", ErrBadEnd)
	case facts.suspend != nil && ref != r.plan.end:
		var err1, err2 error
		w.kept[0], err1 = r.keep(facts.suspend.info)
		w.kept[1], err2 = r.keep(facts.suspend.state)
		if err := errors.Join(err1, err2); err != nil {
			c.Cause, c.err, c.noRetry = causeOfKeep(err), err, event.NoRetryCause
			return c
		}
		c.suspend = facts.suspend
		c.Cause, c.noRetry = CauseStepError, event.NoRetryCause // the cause if amend refuses the wait
		return c
	case facts.suspend != nil:
		c.Cause, c.err = CauseStepError, fmt.Errorf("%w: the end node cannot wait", ErrBadEnd)
	case facts.expand != nil:
		return w.expansion(facts.expand, c)
	case res.kind == CauseConditionError:
	case facts.external && ref != r.plan.end:
		c.Outcome = machine.Outcome{Status: Cancelled, Cause: CauseExternal}
		return c
	default:
		c.Cause, c.hint = facts.cause(), facts.hint()
	}
	return c
}

// CauseOf classifies the error of an attempt in the same way as a run. It returns [CauseRateLimit] for [RateLimited], [CauseTimeout] for an error
// that wraps [context.DeadlineExceeded], [CauseExternal] for [ErrCallAborted], [CausePanic] for a [*PanicError], [CauseGoexit] for [ErrGoexit], and
// [CauseStepError] for any other error. It returns [CauseNone] for nil, and for [Skip], [Suspend] and [Expand], since these are not failures.
func CauseOf(err error) CauseKind {
	if kind := causeOfEnd(err); err == nil || kind != CauseNone {
		return kind
	}
	facts := inspectError(err)
	switch {
	case facts.skip != nil || facts.suspend != nil || facts.expand != nil:
		return CauseNone
	case facts.external:
		return CauseExternal
	}
	return facts.cause()
}

// causeOfEnd returns CausePanic or CauseGoexit for the error of a step that ended without returning. Otherwise it returns CauseNone.
func causeOfEnd(err error) CauseKind {
	if _, is := err.(*PanicError); is {
		return CausePanic
	}
	if err == ErrGoexit {
		return CauseGoexit
	}
	return CauseNone
}

// cause returns the cause of a failure that has this error.
func (f *errorFacts) cause() CauseKind {
	switch {
	case f.rate != nil:
		return CauseRateLimit
	case f.deadline:
		return CauseTimeout
	}
	return CauseStepError
}

// hint returns the wait that a RateLimited error demands, or 0 for any other error.
func (f *errorFacts) hint() time.Duration {
	if f.rate == nil {
		return 0
	}
	return max(f.rate.after, 0)
}

// draw draws the random number for the delay before another attempt, if another attempt may follow. Later, amend decides whether one follows. The
// source of random numbers is user code, so the caller must not hold the run's lock.
func (w *worker) draw(res attemptResult, c *conclusion) {
	most, counted := w.run.plan.retryOf(w.task.Ref, w.run.cfg.defaultRetry).MaxAttempts, int(w.step.attempt)
	if most > 1 && counted >= most {
		w.run.lock()
		counted = w.run.attemptsCounted(w.step)
		w.run.st.Unlock()
	}
	if counted >= most || res.kind == CauseGoexit {
		return
	}
	if err := w.protect(func() error { c.random = w.run.random(); return nil }); err != nil {
		*c = conclusion{Outcome: machine.Outcome{Status: Failed, Cause: CausePanic}, err: err, noRetry: event.NoRetryCause}
	}
}

// random draws a number from the run's source of random numbers. If the host gave the source, random limits the number to [0, 1].
func (r *Run) random() float64 {
	if r.cfg.random == nil {
		return rand.Float64()
	}
	if u := r.cfg.random(); u >= 0 { // false for NaN
		return min(u, 1)
	}
	return 0
}

// amend adjusts a conclusion to facts that are known only under the lock: whether the attempt timed out, whether the node is being stopped, and
// whether another attempt follows. The result `again` is true if another attempt follows. There are three such cases: the failure is retried, the
// attempt was interrupted because the run is being left, or the attempt ended with errBoardAgain.
func (r *Run) amend(step *Step, x *extra, c conclusion, now int64) (_ conclusion, again bool) {
	ref := step.ref
	if x != nil && x.Crashes != 0 && step.flags&stepCrashed == 0 {
		x.Crashes = 0
	}
	if r.cutShort(step, x, &c) {
		r.giveBack(step, x, now)
		return c, true
	}
	stopping := r.st.Word(ref).Is(machine.WordStopping)
	if c.err == errBoardAgain && !stopping && (x == nil || x.timedOut == timeoutNone) {
		r.giveBack(step, r.extra(ref), now)
		return c, true
	}
	if x != nil && x.timedOut != timeoutNone {
		if c.err == ErrAborted && r.plan.node(ref).Loop != nil {
			c.err = ErrTimeout // see stoppedLoop: the loop has no error of its own, and the timeout passed while the nodes inside were undone
		}
		c = conclusion{Outcome: machine.Outcome{Status: Failed, Cause: CauseTimeout}, err: timeoutAfter(x.timeout, c.err), random: c.random}
		if x.timedOut == timeoutOverall {
			c.noRetry = event.NoRetryOverall
		}
	} else if stopping && c.Cause == CauseTimeout {
		c.Cause = CauseStepError // no timeout has passed: the stop caused the step's deadline error
	}
	if x != nil && x.behind && c.Status == Failed {
		c.noRetry = event.NoRetryAbandoned
	}
	if c.suspend != nil || c.expand != nil {
		if r.st.Word(ref).Is(machine.WordDraining) { // the node may finish, but must not wait or begin nested runs
			r.st.StopDrained(ref)
			stopping = true
		}
		if stopping {
			c.suspend, c.expand = nil, nil
		} else if c.suspend != nil && !c.suspend.sleeps {
			if err := r.duplicateToken(ref, c.suspend.token); err != nil {
				c.suspend, c.err = nil, err
			} else if c.suspend.run != "" && !r.mayAwait() {
				c.err = fmt.Errorf("%w: run %s", ErrNoAwait, quoteID(c.suspend.run))
				c.suspend = nil
			}
		}
	}
	switch {
	case c.Status != Failed || c.noRetry != 0:
		return c, false
	case stopping:
		c.noRetry = event.NoRetryStopping
		return c, false
	case r.st.Word(ref).Is(machine.WordAdmitting):
		c.noRetry = event.NoRetryUnstarted
		return c, false
	}
	delay, refused := r.grantRetry(step, c, now)
	if refused != 0 {
		c.noRetry = refused
		return c, false
	}
	x = r.extra(ref)
	x.lastErr = c.err
	x.errs = append(x.errs, attemptError{attempt: step.attempt, number: step.attempt, err: c.err, start: r.attemptStart(ref, x), end: now, delay: delay})
	x.timedOut = timeoutNone
	if c.harmless {
		x.Harmless++
	}
	r.contract(x)
	r.landFlight(ref, false)
	r.disarmAttempt(ref)
	r.disarm(&x.grace)
	r.records[ref].active, r.records[ref].end = activeNone, now
	token := r.st.Token(ref)
	if err := r.st.Retry(token); err != nil {
		r.st.NoteBug(err)
	}
	r.event(entry{kind: evNodeRetried, ref: ref, attempt: step.attempt, at: now, arg: event.Retry{Cause: c.Cause, Delay: delay, Err: c.err}})
	x.due = saturate.Add(now, int64(delay))
	r.awaitBackoff(ref, x, now)
	return c, true
}

// awaitBackoff arms the alarm for the end of a node's backoff.
func (r *Run) awaitBackoff(ref machine.Ref, x *extra, now int64) {
	token := r.st.Token(ref)
	x.own().backoff = r.afterAsStored(time.Duration(x.due-now), func(now int64) {
		if r.st.Current(token, Retrying) == nil { // the node still backs off: no stop and no retry has ended the backoff meanwhile
			r.endBackoff(token, x, now)
		}
	})
}

// endBackoff makes a node ready again after its backoff.
func (r *Run) endBackoff(token machine.Token, x *extra, now int64) {
	m := x.own()
	m.ready, m.Sleeps = now, false
	r.wake(now) // the run may be suspended by now: a run that is being left waits for no backoff, but alarms ring until its last record is written
	if err := r.st.Requeue(token, Retrying); err != nil {
		r.st.NoteBug(err)
	}
}

// timeoutAfter returns the error of a node whose timeout has passed. It does not make the text of the step's error: this calls user code, and the
// caller of timeoutAfter holds the lock. The method Error makes the text later.
func timeoutAfter(after time.Duration, err error) error { return &lateError{after, err} }

type lateError struct {
	after time.Duration
	err   error // the step's error; may be nil
}

func (e *lateError) Error() string {
	text := fmt.Sprintf("%v after %v", ErrTimeout, e.after)
	if e.err != nil && e.err != ErrTimeout { // the step has returned an error of its own instead of the cause of its context
		text += ": " + errorText(e.err)
	}
	return text
}

func (e *lateError) Unwrap() []error { return []error{ErrTimeout, e.err} }

// attemptsCounted returns the number of the attempt, without counting the attempts that were interrupted because the run was left. The node's retry
// policy uses this number.
func (r *Run) attemptsCounted(step *Step) int {
	if x := r.extras[step.ref]; x != nil {
		return int(step.attempt - x.Cut)
	}
	return int(step.attempt)
}

// grantRetry returns the delay after which a failure is retried, or the reason why it is not retried. For example, a failure is not retried if the
// delay would not end before the node's deadline or, unless the node is a cleanup node, before the run's deadline.
func (r *Run) grantRetry(step *Step, c conclusion, now int64) (delay time.Duration, refused event.NoRetry) {
	ref := step.ref
	n, policy := r.plan.node(ref), r.plan.retryOf(ref, r.cfg.defaultRetry)
	if !r.st.MayRetry(ref) {
		return 0, event.NoRetryStopping
	}
	delay, refused = policy.next(r.attemptsCounted(step), c.Cause, c.hint, c.random)
	if (refused == 0 || refused > event.NoRetryCause) && r.keepsEffects(ref) {
		refused = event.NoRetryCause
	}
	if refused != 0 {
		return 0, refused
	}
	ready := saturate.Add(now, int64(delay))
	if n.OverallTimeout > 0 && ready >= saturate.Add(r.records[ref].start, int64(n.OverallTimeout)) {
		return 0, event.NoRetryDeadline
	}
	if r.bound != 0 && ready >= r.bound && !r.plan.net.Is(ref, machine.FlagCleanup) {
		return 0, event.NoRetryDeadline
	}
	return delay, 0
}

// settle makes a node terminal, as the conclusion of its attempt demands. If the node has failed, settle applies the consequences: see react. The
// caller holds the run's lock.
func (r *Run) settle(step *Step, c conclusion, now int64) {
	ref := step.ref
	rec := &r.records[ref]
	rec.active, rec.end, rec.fallback, rec.noRetry = activeNone, now, c.fallback, c.noRetry
	r.fold(ref)
	if c.harmless {
		r.extra(ref).Harmless++
	}
	switch {
	case c.Status == Completed:
		if c.warning != nil {
			r.warnOfAnswer(ref, c.warning, now)
		}
		if c.answer != "" {
			r.extra(ref).Answer = c.answer
		}
		if rec.value = c.value; c.hit != nil {
			x := r.extra(ref)
			x.Memoized, x.Hit = true, c.hit
			r.st.Refund(ref)
		}
	case c.Status == Skipped:
		r.extra(ref).Message = c.skip
	default:
		rec.value = c.err
	}
	if err := r.st.Settle(r.st.Token(ref), c.Outcome); err != nil {
		r.st.NoteBug(err)
	}
	r.landFlight(ref, c.Status == Completed && !c.fallback)
	r.disarmAttempt(ref)
	if len(r.extras) > 0 {
		r.disarmNode(ref)
		if x := r.extras[ref]; x != nil && x.comp != nil && x.comp.child != nil {
			r.groupsFailedInside(ref, x.comp.child)
		}
	}
	if c.Status == Failed {
		if r.st.Word(ref).Status() == Failed {
			r.react(ref, c.abortRun)
		} else {
			r.extra(ref).lastErr = c.err // the error that the stopped step returned
			rec.value = nil
		}
	}
}

// warnOfAnswer adds a warning about a condition whose answer matches no edge. For each condition of a graph it adds only the first warning.
func (r *Run) warnOfAnswer(ref machine.Ref, err error, now int64) {
	x, branches := r.outermost().remark(), r.plan.routers[r.plan.net.Router(ref)]
	if x.warned[branches] {
		return
	}
	if x.warned == nil {
		x.warned = map[*router]bool{}
	}
	x.warned[branches] = true
	x.warnings = append(x.warnings, err)
	r.event(entry{kind: evNodeLog, ref: ref, attempt: r.records[ref].attempts, at: now, arg: event.LogRecord{Level: slog.LevelWarn, Message: errorText(err)}})
}

// react applies the consequences of a node's failure, except those for the node's successors. It may stop the node's group, other items of a map, or
// the run.
func (r *Run) react(ref machine.Ref, abortRun bool) {
	if ref == r.plan.end || r.isLost() {
		return
	}
	if r.items != nil {
		r.itemFailed(ref, abortRun)
	}
	r.membersFailed(ref)
	manner, stops := r.st.Reaction(ref, abortRun)
	if !stops {
		return
	}
	err := fmt.Errorf("%w: node %s failed", ErrAborted, quoteID(r.plan.names[ref]))
	r.stop(CauseFailFast, ref, &stopCause{err, context.Canceled}, manner)
}

// verdict is the status of an ended run.
type verdict struct {
	status   RunStatus
	degraded bool
	cause    CauseKind // why the whole run was stopped, or CauseEndFailed or CauseCompensationFailed; otherwise CauseNone
	failed   int       // the number of nodes with status failed, without the end node
}

// EndVerdict is a value that an end node can return to replace the computed status of the run. It can make a cancelled run failed, but not completed.
// If the end node returns a value of another type, the run keeps the computed status, and the value is the run's output.
type EndVerdict struct {
	// Status is RunCompleted or RunFailed. The zero value keeps the computed status.
	Status RunStatus
	// Output is the output of the run.
	Output any
}

// judge computes the verdict of the run. It is called once, when every node is terminal.
func (r *Run) judge() {
	if r.verdict = (verdict{status: RunCompleted}); r.plan.end != noRef || !r.st.Untroubled() || r.undo != nil {
		r.judgeAll()
	}
}

//go:noinline
func (r *Run) judgeAll() { // not inlined into judge: see attemptAndFinish
	r.verdict = verdictOf(&r.st, r.plan.end, r.cfg.statusRule, r.endOutput())
	r.judgeUndone(&r.verdict)
}

// verdictOf computes the verdict of a run from its State and the output of its end node. All nodes of the run are terminal. The caller holds the
// run's lock.
func verdictOf(s *machine.Locked, end machine.Ref, rule StatusRule, endOutput any) verdict {
	status, degraded := s.RunStatus(machine.StatusRule(rule))
	v := verdict{status: status, degraded: degraded, cause: s.StoppedFor()}
	for ref, w := range s.Words() {
		if w.Status() == Failed && ref != end {
			v.failed++
		}
	}
	if s.StoppedFor() == CauseStoreError {
		v.status, v.degraded = RunFailed, false // the end node cannot change this
	} else if end != noRef && !endStopped(s, end) {
		v.judgeEnd(s, end, endOutput)
	}
	if v.status == RunCompleted || v.status == RunCancelled && v.cause.StopStatus() == Aborted {
		v.cause = CauseNone // the stop came too late to affect the outcome
	}
	return v
}

// endStopped reports whether the stop of the run also stopped its end node. A stop spares the end node, unless the run is still pending at the time
// of the stop. The stop may have happened in this process or in an earlier one.
func endStopped(s *machine.Locked, end machine.Ref) bool {
	w := s.Word(end)
	return w.Kind() != CauseNone && w.Kind() == s.StoppedFor() && w.Status() != Failed
}

func (v *verdict) judgeEnd(s *machine.Locked, end machine.Ref, output any) {
	if s.Word(end).Status() != Completed {
		v.degraded = false
		if v.status != RunCancelled {
			v.status, v.cause = RunFailed, CauseEndFailed
		}
		return
	}
	said, ok := output.(EndVerdict)
	if !ok || said.Status == RunPending || v.status == RunCancelled && said.Status == RunCompleted {
		return
	}
	if said.Status == RunCompleted && v.status != RunCompleted {
		// The end node has accepted the unhandled failures, so only handled failures degrade the run.
		v.degraded = s.HandledFailures()
	}
	if said.Status != RunCompleted {
		v.degraded = false
	}
	v.status = said.Status
}

// wantsFallback reports whether the node's fallback must be called. The fallback is not called if the node is being stopped, if the node's
// OverallTimeout has passed, or if the node's inputs were refused.
func (r *Run) wantsFallback(ref machine.Ref) bool {
	x := r.extras[ref]
	return r.plan.node(ref).Fallback != nil && !r.st.Word(ref).Is(machine.WordStopping|machine.WordAdmitting) && (x == nil || x.timedOut != timeoutOverall)
}

// beginFallback continues the failed attempt with the node's fallback. The fallback gets its own Step and so its own context. The fallback begins in
// the critical section in which the attempt ended, so no stop or timeout can get lost in between.
func (w *worker) beginFallback(failed conclusion) {
	r, old := w.run, w.step
	x := r.extra(old.ref)
	r.disarmAttempt(old.ref)
	r.disarm(&x.grace)
	x.lastErr, x.timedOut = failed.err, timeoutNone
	step := &Step{run: r, ref: old.ref, attempt: old.attempt, flags: old.flags | stepFallback}
	r.activate(step)
	w.step, w.failed = step, &failed
	r.armTimeouts(r.plan.node(old.ref), step, true, w.now)
}

// fallback performs the fallback that beginFallback has begun.
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
		c.harmless = false // the fallback may have had an effect
		c.err = errors.Join(failed.err, bounded(err))
	} else if r.plan.net.Router(ref) >= 0 || r.plan.net.Is(ref, factJudge) || ref == r.plan.end || r.cfg.checkValues {
		if c = w.conclude(attemptResult{value: value}); c.Status == Completed {
			c.fallback = true
		} else {
			c.noRetry = failed.noRetry // why the fallback was called instead of another attempt
		}
	}
	w.phase = phaseEngine
	return w.finishFallback(c, true)
}

// finishFallback ends a fallback. A failed fallback is not retried.
func (w *worker) finishFallback(c conclusion, goOn bool) bool {
	r, step, failed, returned := w.run, w.step, w.failed, w.now
	w.resumed = false
	step.returned()
	if mine, more := w.enterEnd(&c, attemptResult{}, goOn, r.durable == nil); !mine {
		return more
	}
	if x := r.extras[step.ref]; x.timedOut != timeoutNone {
		c = conclusion{Outcome: machine.Outcome{Status: Failed, Cause: CauseTimeout}, err: timeoutAfter(x.timeout, failed.err), noRetry: failed.noRetry}
		if x.timedOut == timeoutOverall {
			c.noRetry = event.NoRetryOverall
		}
	}
	if x := r.extras[step.ref]; c.Status == Failed && r.cutShort(step, x, &c) {
		if step.flags&stepCrashed == 0 {
			x.Crashes = 0
		}
		r.giveBack(step, x, w.now)
	} else {
		r.outputText(step.ref, c.Status, w.kept[0])
		r.settle(step, c, returned)
	}
	return w.next(goOn)
}

// defaultMaxCrashes is the bound for a run without the option MaxCrashes.
const defaultMaxCrashes = 3

// MaxCrashes sets how many successive times the process may die during attempts of one node. If the process dies one more time, the node fails with
// [CauseCrashed] when the run continues. So a step cannot crash its process forever. This failure is not retried, but catch edges, error boundaries,
// ContinueOnFail and Fallback apply to it. While the Fallback runs, the process may die the same number of times again. Only a [Durable] run counts
// crashes. If a process stops performing the run because the store does not answer, this counts as a crash for the attempts in progress. An attempt
// that ends in any other way resets the count. If n is negative, there is no bound. Node.MaxCrashes sets the bound for one node. Default: 3.
func MaxCrashes(n int) Option {
	return optionFunc(func(c *config) error { c.maxCrashes = n; return nil })
}

// doomed returns why a node must fail when the run continues: the process has died too often during the node's attempts, or the store has refused
// the node's output. It returns nil if the node need not fail.
func (r *Run) doomed(ref machine.Ref) error {
	x := r.extras[ref]
	switch {
	case x == nil:
		return nil
	case x.refused != nil:
		return x.refused
	case x.Crashes == 0:
		return nil
	}
	if most := r.mostCrashes(ref); most < 0 || int(x.Crashes) <= most {
		return nil
	}
	return fmt.Errorf("%w: %d", ErrCrashed, x.Crashes)
}

// mostCrashes returns how many successive times the process may die during attempts of a node. A negative result means no bound.
func (r *Run) mostCrashes(ref machine.Ref) int {
	if n := r.plan.node(ref).MaxCrashes; n != 0 {
		return n
	}
	return r.cfg.maxCrashes
}

// The method `saves` reports whether kahn calls the Fallback of a doomed node. kahn does not call it if it produced the output that the store has
// refused, or if the process has died in the Fallback more often than the bound permits.
func (r *Run) saves(ref machine.Ref) bool {
	x, most := r.extras[ref], r.mostCrashes(ref)
	bound := most
	if x.refused == nil {
		bound = 2*most + 1
	}
	return r.wantsFallback(ref) && !r.records[ref].fallback && (most < 0 || int(x.Crashes) <= bound)
}

// causeOfDoom returns the cause with which a doomed node fails.
func causeOfDoom(err error) CauseKind {
	if errors.Is(err, ErrCrashed) {
		return CauseCrashed
	}
	return CauseStoreRejected
}

// endDoomed makes the doomed nodes fail when the run continues, before anything else happens. A doomed node with a Fallback that kahn calls (see
// saves) stays ready instead, and its next attempt calls only the Fallback (see resultOfDoom).
func (h *held) endDoomed(now int64) {
	h.each(func(h *held) {
		r := h.run
		for _, ref := range r.plan.declared {
			err, rec := r.doomed(ref), &r.records[ref]
			if err == nil || r.st.Status(ref) != Ready || r.saves(ref) {
				continue
			}
			rec.value, rec.end, rec.noRetry, rec.fallback = err, now, event.NoRetryCause, false
			if err := r.st.Fail(r.st.Token(ref), causeOfDoom(err)); err != nil {
				r.st.NoteBug(err)
			}
			r.disarmNode(ref)
			r.react(ref, false)
		}
	})
}

// resultOfDoom returns the result of an attempt of a doomed node. Such an attempt does not call the node's step: its result is the error that makes
// the node fail. Then it calls the node's Fallback.
func (r *Run) resultOfDoom(ref machine.Ref) attemptResult {
	r.st.Lock()
	defer r.st.Unlock()
	err := r.doomed(ref)
	return attemptResult{err: err, kind: causeOfDoom(err)}
}
