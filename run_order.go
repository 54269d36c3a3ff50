package kahn

import (
	"sync/atomic"

	"github.com/seed-c794f7ef/kahn/internal/due"
)

// single is the additional state of a run with one slot, shared by its tree. Such a run orders everything that can be ordered:
//
//   - Timers of equal time go off in any order. So every holder of the lock, a worker that reports or a timer, rings all alarms
//     that are due first: those of equal time in the order of arming, and all of them before what a step does at that time.
//   - What alarms make due that needs no slot, composites, checks and gates, comes before the result of a step that returns at the time of
//     the alarm: that is put off meanwhile.
//   - When an attempt is interrupted nothing is begun before it has returned, or was abandoned: otherwise their order would be
//     random.
//   - A gate that has its answer is reached at once: its successors may need no slot, and then come before nodes that do. When
//     the item of a map waits, the next item may begin; so the gates inside of items are reached at once, too, if the map has a
//     limit. Other gates that are going to wait are reached when nothing can be started any more.
//   - See also Run.alone and, for runs with composites, tree.
//
// The lock guards all fields but next.
type single struct {
	alarms      due.Queue[*alarm] // those that are armed
	next        atomic.Int64      // when the first of them is due, for a look without the lock
	interrupted *Step             // the last attempt that held the slot and was interrupted, or nil
	rang        int64             // when an alarm has rung, the last time
	off         []*putOff         // results that are put off
}

// putOff is the result of an attempt that was put off, and its worker, which the run counts meanwhile.
type putOff struct {
	worker   worker
	c        conclusion
	res      attemptResult
	goOn     bool
	fallback bool // it is that of a fallback
}

// putsOff reports whether the result of an attempt, which holds the slot and has returned at the given time, has to wait.
func (r *Run) putsOff(now int64) bool {
	return r.single != nil && r.single.rang == now && r.manual == nil && r.slotlessDue()
}

// slotlessDue reports whether something is evaluated, or about to be begun, that needs no slot, while an attempt holds it. What an interrupted
// attempt keeps from beginning does not count, and a run without its store begins nothing.
func (r *Run) slotlessDue() bool {
	if r.isLost() {
		return false
	}
	if t := r.tree; t != nil {
		return t.alone > 0 || t.coming || !r.single.interrupts() && (len(t.gated) > 0 || len(t.waiting) > 0 && t.waiting[0].turn.slotless)
	}
	_, inline := r.st.FirstInline()
	return r.alone > 0 || r.starting || !r.single.interrupts() && (inline || r.st.HasGates())
}

// putOff ends the worker of an attempt whose result is put off, and releases the lock. The attempt has returned in time, however long the
// evaluation takes that comes before.
func (w *worker) putOff(c conclusion, res attemptResult, goOn, fallback bool) bool {
	q := w.run.single
	if x := w.run.extras[w.step.ref]; x != nil {
		w.run.disarm(&x.attempt)
	}
	q.off = append(q.off, &putOff{*w, c, res, goOn, fallback})
	w.flight = nil // the copy has it
	w.run.release(w.now)
	return false
}

// interrupts reports whether an attempt that was interrupted has not returned.
func (q *single) interrupts() bool {
	return q != nil && q.interrupted != nil && q.interrupted.run.current(q.interrupted.ref) == q.interrupted
}

// note is called with the lock held after every change of the alarms.
func (q *single) note() { q.next.Store(q.alarms.Due()) }

// isDue reports whether an alarm may be due by now: at [math.MaxInt64], which next is without alarms, there may be none.
func (q *single) isDue(now int64) bool { return q != nil && q.next.Load() <= now }

// ringDue rings the alarms of a run with one slot that are due, with the lock held.
func (r *Run) ringDue(now int64) {
	q := r.single
	for q.isDue(now) {
		a, ok := q.alarms.Next(now)
		if !ok {
			return
		}
		q.note()
		q.rang = now
		if a.timer.Stop() {
			a.run.timers--
		} // else it finds nothing left to do
		a.run.rung(a, now)
		if r.tree != nil {
			r.tree.touch(a.run)
			r.tree.attend(now)
		}
	}
}

// rung calls an alarm back, unless it was disarmed or its run has ended.
func (r *Run) rung(a *alarm, now int64) {
	if !a.over && !r.concluded() {
		r.end(a)
		a.ring(now)
	}
}

// reachEarly reaches, in a run with one slot, the gates that let other nodes begin, with the lock held: those that have
// their answer, and those whose wait lets another item of a map begin.
func (r *Run) reachEarly(now int64) {
	r.st.TakeGates(func(ref Ref) bool {
		_, answered := r.signals[ref]
		return answered || r.turn != nil && r.turn.lends || r.cfg.test != nil && r.plan.doubles[ref].role == TestAuto
	}, func(ref Ref) { r.reachGate(ref, now) })
}
