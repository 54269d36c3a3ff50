package kahn

import (
	"context"
	"math"
	"time"

	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/internal/due"
	"github.com/seed-c794f7ef/kahn/internal/saturate"
	"github.com/seed-c794f7ef/kahn/machine"
)

type timeoutScope uint8

const (
	timeoutNone timeoutScope = iota
	timeoutAttempt
	timeoutOverall
)

// disarmAll disarms the alarms of the nodes when the run ends. If `rests` is true, the run ends at rest, and disarmAll also disarms the alarms for
// OverallTimeout, for the deadlines of waits and for the backoffs of compensations.
func (r *Run) disarmAll(rests bool) {
	for ref, x := range r.extras {
		r.disarmNode(ref)
		if rests {
			r.disarm(&x.overall)
			r.disarm(&x.gate)
		}
	}
	if rests {
		r.restUndos()
	}
}

// bell rings the alarms of a run and its nested runs with one timer. The timer may fire before any alarm is due, since the timer is not reset
// when an alarm is disarmed. Under a Coordinator, only a run with one slot has a bell. The run's lock guards the bell.
type bell struct {
	alarms due.Queue[*alarm] // the armed alarms
	timer  *time.Timer
	fires  int64 // when the timer fires, in ns since the run's start; [math.MaxInt64] if it has already fired
	coming int   // the number of calls of ring that are scheduled or running
}

// bellOfAll returns the bell of the outermost run, and creates it if there is none.
func (r *Run) bellOfAll() *bell {
	root := r.outermost()
	if root.bell == nil {
		root.bell = &bell{fires: math.MaxInt64}
	}
	return root.bell
}

// wind sets the timer to fire when the first alarm is due. The run must be the outermost run and have a bell. The caller holds the run's lock.
func (r *Run) wind(now int64) {
	b := r.bell
	first := b.alarms.Due()
	if first >= b.fires {
		return
	}
	b.fires = first
	switch d := time.Duration(first - now); {
	case b.timer == nil:
		b.timer = time.AfterFunc(d, r.ring)
		b.coming++
	case !b.timer.Reset(d):
		b.coming++
	}
}

// ring is called by the timer of the outermost run. It rings the due alarms.
func (r *Run) ring() {
	now := r.now()
	r.st.Lock()
	b := r.bell
	b.fires = math.MaxInt64
	if r.single != nil {
		r.ringDue(now)
	} else {
		for a, ok := b.alarms.Next(now); ok; a, ok = b.alarms.Next(now) {
			a.run.timers--
			a.run.rung(a, now)
			a.run.release(now)
			now = r.now()
			r.st.Lock()
		}
	}
	b.coming--
	r.wind(now)
	r.release(now)
}

// silence stops the timer of the bell. It returns false as long as a call of ring is scheduled or running.
func (b *bell) silence() bool {
	if b == nil || b.timer == nil {
		return true
	}
	if b.timer.Stop() {
		b.coming--
	}
	b.fires = math.MaxInt64
	return b.coming == 0
}

// alarm is an armed callback. The embedded Entry is the alarm's entry in the bell. Entry.Due is the time when the alarm rings, in ns since the
// run's start.
type alarm struct {
	due.Entry
	run    *Run
	ring   func(now int64) // nil for the Timeout of an attempt
	step   *Step           // for the Timeout of an attempt: the Step of that attempt; otherwise nil
	lasts  time.Duration   // the attempt's Timeout
	timer  timer           // for a run that a Coordinator drives; otherwise nil
	stored *wake           // the alarm's entry in the queue of the alarms that the store records; nil if the store need not record the alarm
	over   bool            // whether the alarm has rung or was disarmed
}

// The method `after` arms an alarm. Unless the alarm is disarmed earlier, it calls f after the duration d, with the run's lock held. While an alarm
// is armed, Wait does not return.
func (r *Run) after(d time.Duration, f func(now int64)) *alarm {
	a := &alarm{run: r, ring: f}
	now := r.now()
	a.arm(saturate.Add(now, int64(max(d, 0))), now)
	return a
}

// arm makes an alarm ring at the given time. The caller holds the run's lock.
func (a *alarm) arm(at, now int64) {
	r := a.run
	r.timers++
	if r.manual == nil || r.single != nil {
		r.bellOfAll().alarms.Add(a, at)
		r.single.note(r)
	}
	if r.manual == nil {
		r.outermost().wind(now)
		return
	}
	a.Due = at
	a.timer = r.startTimer(time.Duration(at-now), func() {
		r.callback(func(now int64) {
			switch {
			case r.single == nil:
				r.rung(a, now)
			case r.bellOfAll().alarms.Has(a):
				r.ringDue(max(now, a.Due))
			}
		})
	})
}

// callback calls f with the run's lock held and applies the consequences. If the run has ended, callback does not call f.
func (r *Run) callback(f func(now int64)) {
	now := r.now()
	s := &r.st
	s.Lock()
	r.timers--
	if !r.concluded() {
		f(now)
	}
	r.release(now)
}

// end is called when an alarm rings or is disarmed. It marks the alarm as over, and removes it from the queue of the alarms that the store records.
func (r *Run) end(a *alarm) {
	if a.over = true; a.stored != nil {
		r.durable.alarms.Remove(a.stored)
	}
}

// disarm stops the alarm *t, if there is one, and sets *t to nil. Under a Coordinator, the alarm's timer may already have fired. Then the timer's
// callback still runs, but it ignores the alarm because the alarm is over. The callback does not read *t, since *t may by then be another alarm.
func (r *Run) disarm(t **alarm) {
	a := *t
	if a == nil {
		return
	}
	r.end(a)
	armed := false
	if in := r.outermost().bell; in != nil {
		armed = in.alarms.Remove(a)
		r.single.note(r)
	}
	if a.timer != nil {
		armed = a.timer.Stop()
	}
	if armed {
		r.timers--
	}
	*t = nil
}

// disarmAttempt stops the alarm for the Timeout of a node's last attempt. The caller holds the run's lock.
func (r *Run) disarmAttempt(ref machine.Ref) {
	if x := r.last(ref).ctx.Load(); x != nil {
		r.disarm(&x.timeout)
	}
}

// doze leaves a served run that will have nothing to do for longer than config.restAfter. It reports whether it has left the run. When the run's
// first alarm is due, the run continues, here or in another process. doze is called after every change of the run or of a nested run. The caller
// holds the run's lock.
func (r *Run) doze(now int64) bool {
	d, after := r.durable, r.cfg.restAfter
	if after == 0 || d == nil || r.leaving || r.stage != stageRunning || r.workers > 0 || r.tree != nil && r.tree.workers > 0 || d.alarms.Len() == 0 {
		return false
	}
	due := d.alarms.Due()
	if saturate.Add(due, -now) <= int64(after) || d.writing || d.hasWork() || d.inbox.isBusy() || r.st.StoppedFor() != CauseNone || r.st.HasNext() || !r.onlyWaits() {
		return false
	}
	// The run is left only if d.alarms contains all armed alarms, so that the store records when the run must continue. Some other alarms belong to an
	// attempt; the rest would begin again with their full duration when the run continues. The run's buckets of tokens must also be full at the first
	// alarm.
	armed := 0 // the number of armed alarms
	for _, of := range append(r.descendants(), r) {
		if armed += int(of.timers); !of.st.TokensBack(due) {
			return false
		}
		if of != r && !of.concluded() { // of.outer.timers also counts the nested run itself: see beginChild
			armed--
		}
	}
	if armed != d.alarms.Len() {
		return false
	}
	r.rare().dozes = saturate.Add(due, -now)
	r.leave()
	return true
}

// onlyWaits reports whether the run and its nested runs only wait. Two kinds of running composites only wait: loops that pause, and composites with a
// nested run that only waits but is not suspended. onlyWaits passes their number to HasWork, so that HasWork does not count them as work.
func (r *Run) onlyWaits() bool {
	waits := r.pausing()
	var inside []*Run
	if r.nests {
		inside = r.children()
	}
	for _, c := range inside {
		if !c.onlyWaits() {
			return false
		}
		if c.stage != stageResting {
			waits++
		}
	}
	return !r.st.HasWork(waits)
}

// awaitToken arms an alarm if a node of the run or of a nested run waits for a token. The alarm rings when the next token is due. The caller holds
// the run's lock and is about to release it.
func (r *Run) awaitToken(now int64) {
	due, ok := r.st.NextToken()
	switch {
	case r.tokenDue != nil && ok && r.tokenAt == due:
		return
	case r.tokenDue != nil:
		r.disarm(&r.tokenDue)
	}
	if !ok || r.concluded() {
		return
	}
	r.tokenComes(due, now)
}

// tokenComes arms the alarm for a token that falls due at the given time.
func (r *Run) tokenComes(due, now int64) {
	x := r.rare()
	x.tokenAt = due
	// The field tokenDue stays set after this alarm has rung. The next token is due later than tokenAt, so awaitToken then arms a new alarm.
	x.tokenDue = r.after(time.Duration(due-now), func(now int64) {
		r.st.Advance(max(now, due))
	})
}

func (r *Run) armGrace(step *Step, x *extra) {
	if x.grace != nil {
		return // the attempt was interrupted earlier, and is now being stopped; its grace is already armed
	}
	r.graceEnds(step, x, r.cfg.cancelGrace)
}

// graceEnds makes the run abandon an attempt after the duration d.
func (r *Run) graceEnds(step *Step, x *extra, d time.Duration) {
	x.own().grace = r.after(d, func(now int64) { r.abandon(step, now) })
}

// armTimeouts arms the timeouts of an attempt, or of its fallback: see armTimeout and armOverall.
func (r *Run) armTimeouts(n *node, step *Step, fallback bool, now int64) {
	r.armTimeout(n, step, fallback, now)
	r.armOverall(n, step, fallback)
}

// armTimeout arms the Timeout of an attempt before its step is called. A fallback has no Timeout. CleanupTimeout bounds the attempts and the fallback
// of a cleanup node, even if the node has no Timeout.
func (r *Run) armTimeout(n *node, step *Step, fallback bool, now int64) {
	timeout := max(n.Timeout, 0)  // NoTimeout is negative
	if fallback || n.Map != nil { // the Timeout of a map bounds each item
		timeout = 0
	}
	if step.flags&stepDetached != 0 && (timeout == 0 || timeout > r.cfg.cleanupTimeout) {
		timeout = r.cfg.cleanupTimeout
	}
	if timeout > 0 {
		at := saturate.Add(now, int64(timeout))
		alarm := step.timeoutAlarm(timeout)
		step.endBy(at)
		alarm.arm(at, now)
	}
}

// unspent is the remaining Timeout of an attempt whose step has returned a graph. While the attempt waits for room in the outbox, its Timeout is
// suspended. After that, the remaining time bounds the nested run.
type unspent struct {
	left  int64
	lasts time.Duration // 0 without a Timeout
}

// The method `unspent` returns the remaining Timeout of the attempt. The caller holds the run's lock.
func (s *Step) unspent(now int64) (u unspent) {
	if x := s.ctx.Load(); x != nil && x.timeout != nil {
		u = unspent{max(x.timeout.Due-now, 0), x.timeout.lasts}
	}
	return u
}

// armUnspent rearms the Timeout of an attempt if it was disarmed while the attempt waited for room in the outbox.
func (r *Run) armUnspent(step *Step, u unspent, now int64) {
	if u.lasts > 0 && step.ctx.Load().timeout == nil && r.extras[step.ref].timedOut == timeoutNone {
		step.timeoutAlarm(u.lasts).arm(saturate.Add(now, u.left), now)
	}
}

// armOverall arms the OverallTimeout of a node, unless an earlier attempt has armed it or a fallback begins.
func (r *Run) armOverall(n *node, step *Step, fallback bool) {
	if n.OverallTimeout == 0 {
		return
	}
	step.endBy(saturate.Add(r.records[step.ref].start, int64(n.OverallTimeout)))
	if x := r.extra(step.ref); x.overall == nil && !fallback {
		x.overall = r.afterAsStored(n.OverallTimeout, func(now int64) {
			r.overallTimeOut(step.ref, x, n.OverallTimeout, now)
		})
	}
}

// timeOut stops an attempt whose timeout has passed. The attempt fails, whatever its step returns later.
func (r *Run) timeOut(step *Step, x *extra, scope timeoutScope, timeout time.Duration, now int64) {
	if r.current(step.ref) != step || r.st.Word(step.ref).Is(machine.WordStopping) || x.timedOut == timeoutOverall {
		return
	}
	if scope == timeoutAttempt && x.comp != nil && x.comp.hasFailed() {
		return
	}
	x.own()
	if r.records[step.ref].returned { // the Timeout is disarmed, so this is the OverallTimeout: see worker.endWait
		x.overdue = true
		return
	}
	// The run may already be suspended. A run that is being left is suspended when it has no worker (see rest), and a loop that pauses has no worker.
	// Until the last record of the run is written, this alarm can ring and make the run continue.
	r.wake(now)
	if x.timedOut == timeoutNone {
		r.halt(step, x, CauseRunTimeout, &stopCause{ErrTimeout, context.DeadlineExceeded})
	}
	x.timedOut, x.timeout = scope, timeout
	r.event(entry{kind: evNodeTimedOut, ref: step.ref, attempt: r.records[step.ref].attempts, at: now, arg: event.Timeout{Timeout: timeout, Overall: scope == timeoutOverall}})
	r.orderStop(step, &stopCause{ErrTimeout, context.DeadlineExceeded})
}

// overallTimeOut ends a node that has exceeded its OverallTimeout, or, in a stopped run, a cleanup node whose wait has exceeded CleanupTimeout.
func (r *Run) overallTimeOut(ref machine.Ref, x *extra, timeout time.Duration, now int64) {
	if step := r.current(ref); step != nil {
		r.timeOut(step, x, timeoutOverall, timeout, now)
		return
	}
	w := r.st.Word(ref)
	if w.Status().Terminal() {
		return
	}
	r.wake(now)
	r.event(entry{kind: evNodeTimedOut, ref: ref, attempt: r.records[ref].attempts, at: now, arg: event.Timeout{Timeout: timeout, Overall: true}})
	rec := &r.records[ref]
	rec.value, rec.end, rec.noRetry = timeoutAfter(timeout, x.lastErr), now, event.NoRetryOverall
	if err := r.st.Fail(r.st.Token(ref), CauseTimeout); err != nil {
		r.st.NoteBug(err)
	}
	r.disarmNode(ref)
	r.react(ref, false)
}

// abandon ends an attempt whose step has not returned within its grace. The attempt's slot becomes free. The run drops a later result of the step,
// because the node's record no longer names the attempt's Step.
func (r *Run) abandon(step *Step, now int64) {
	ref := step.ref
	if r.current(ref) != step || r.records[ref].returned {
		return
	}
	x := r.extra(ref)
	c := conclusion{Outcome: machine.Outcome{Status: Failed, Cause: CauseStepError}, err: errAbandoned, noRetry: event.NoRetryAbandoned}
	if r.isLost() {
		r.leftBehind(ref)
		r.dismiss()
		r.drop(step, now)
		return
	}
	r.manual.lapse(step)
	// If the attempt was interrupted because the run is being left, the node begins again when the run continues. So the snapshot must not say that the
	// node was abandoned.
	left := r.cutShort(step, x, &c) && r.leaving
	x.Abandoned = !left
	r.leftBehind(ref)
	r.dismiss()
	if q := r.single; q != nil && q.alone > 0 && r.needsNoSlot(ref) {
		q.alone--
	}
	if left {
		r.giveBack(step, x, now)
		return
	}
	if x.timedOut != timeoutNone {
		c.Cause, c.err = CauseTimeout, timeoutAfter(x.timeout, errAbandoned)
	}
	r.settle(step, c, now)
}

// leftBehind records that the run no longer waits for the goroutine that performs a node.
func (r *Run) leftBehind(ref machine.Ref) {
	x := r.remark()
	x.abandoned = append(x.abandoned, ref)
	if r.outer == nil {
		return
	}
	x = r.tree.root.remark()
	x.abandonedInside = append(x.abandonedInside, r.path(ref))
	// A composite around r must not be attempted again, since its next attempt would overlap with the abandoned attempt.
	for c := r; c.outer != nil; c = c.outer {
		c.outer.extra(c.within.ref).behind = true
	}
}

// armCheck makes the run abandon a check that does not return in time. If `cleanup` is true, the check may take CleanupTimeout. Otherwise the check's
// node was stopped or the run is being left, and the check may take CancelGrace. armCheck uses a timer instead of an alarm, since the timer must
// fire even after everything else has ended.
func (r *Run) armCheck(ref machine.Ref, cleanup bool) {
	e := r.checks[ref]
	if e == nil || e.grace != nil && (cleanup || !e.cleanup) {
		return
	}
	if e.grace != nil && e.grace.Stop() { // the node is a cleanup node, and a stop has now reached it
		r.timers--
	}
	d := r.cfg.cancelGrace
	if e.cleanup = cleanup; cleanup {
		d = r.cfg.cleanupTimeout
	}
	r.timers++
	e.armed = true
	e.grace = r.startTimer(d, func() {
		now := r.now()
		r.st.Lock()
		r.timers--
		stopped := !r.st.Word(ref).Is(machine.WordChecking)
		// If the timer was started because the run was being left, and the run has stayed since, the timer does nothing.
		if r.checks[ref] == e && (r.leaving || stopped || cleanup) {
			r.abandonCheck(ref, e)
			if cleanup && !stopped {
				r.settleCheck(machine.Token{Ref: ref}, checkResult{verdict: machine.CheckVerdict{Fail: CauseTimeout}, err: timeoutAfter(d, errAbandoned)}, now)
			}
		}
		r.release(now)
	})
}

// boundChecks bounds the time of the running checks of cleanup nodes, so that a stopped run ends.
func (r *Run) boundChecks() {
	for ref := range r.checks {
		if r.st.Word(ref).Is(machine.WordChecking) {
			r.armCheck(ref, true)
		}
	}
}

// abandonCheck abandons a check that does not return. A late result is dropped. There are three cases. A node that was stopped has already ended. If
// a cleanup node's check has taken too long, the caller settles the check as timed out. Otherwise the run is being left: the node still needs its
// check, but no worker begins one now.
func (r *Run) abandonCheck(ref machine.Ref, e *evaluation) {
	e.abandoned = true
	delete(r.checks, ref)
	r.leftBehind(ref)
	r.dismiss()
	if e.alone {
		r.single.alone--
	}
}

// disarmNode disarms the Timeout, the grace and the backoff of a node. If the node is terminal, disarmNode also disarms the OverallTimeout and ends
// the wait.
func (r *Run) disarmNode(ref machine.Ref) {
	r.disarmAttempt(ref)
	if x := r.extras[ref]; x != nil {
		r.disarm(&x.grace)
		r.disarm(&x.backoff)
		if r.st.Word(ref).Status().Terminal() {
			r.disarm(&x.overall)
			r.endWait(x)
		}
	}
}

// timer is a [time.Timer] or a manualTimer.
type timer interface{ Stop() bool }

// startTimer starts a timer that calls f on a separate goroutine after the duration d. Under a Coordinator, the Coordinator calls f when its clock
// has advanced by d. The caller holds the run's lock.
func (r *Run) startTimer(d time.Duration, f func()) timer {
	if h := r.manual; h != nil {
		t := &manualTimer{of: h, f: f}
		h.timers.Add(t, saturate.Add(h.clock.Load(), int64(max(d, 0))))
		return t
	}
	return time.AfterFunc(d, f)
}

// wallClock returns the current time. Under a Coordinator this is the time of the Coordinator's clock.
func (r *Run) wallClock() time.Time {
	if r.manual != nil {
		return r.timeAt(r.now())
	}
	return time.Now()
}

// RetryNow ends the backoff of a node, so that the node is ready for its next attempt at once. path names the node as in [Run.Node]. RetryNow returns
// a [*PathError] if path names no node. The error matches [ErrTransition] if the node is not in a backoff, [ErrFinished] if the run has ended, and
// [ErrAtRest] if the run is at rest.
func (r *Run) RetryNow(path string) error {
	var lost *PathError
	err := ErrFinished
	r.control(func(now int64) {
		var at place
		if at, lost = r.locate(path); lost != nil {
			return
		}
		if err = at.retryNow(now); at.run.tree != nil {
			at.run.tree.touch(at.run)
		}
	})
	if lost != nil {
		return lost.complete()
	}
	if err == ErrFinished {
		r.st.Lock()
		defer r.st.Unlock()
		if r.isPutAway() {
			return ErrAtRest
		}
	}
	return err
}

func (at place) retryNow(now int64) error {
	r, ref := at.run, at.ref
	if r.isLost() {
		return r.durable.failed
	}
	if r.st.Word(ref).Status() != Retrying {
		return &machine.TransitionError{Node: r.path(ref), From: r.st.Status(ref), To: Ready}
	}
	x := r.extras[ref]
	r.disarm(&x.backoff)
	r.endBackoff(r.st.Token(ref), x, now)
	return nil
}
