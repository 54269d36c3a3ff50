package kahn

import (
	"cmp"
	"container/heap"
	"math"
	"slices"
	"sync/atomic"

	"github.com/seed-c794f7ef/kahn/internal/saturate"
	"github.com/seed-c794f7ef/kahn/machine"
)

// order is the policy by which the workers of a run take tasks. In a run with one slot the policy determines the order completely. A policy has
// no state. The caller of its methods holds the run's lock.
type order interface {
	// arrived is called when a worker is about to take its first task.
	arrived(r *Run)
	// next returns the next task of a worker, and reports whether single.alone counts the worker while it performs the task. The method next also
	// reaches the gates and begins the composites that precede the task. All of this happens in one critical section, so that nothing else can change
	// the order in which nested runs begin.
	next(r *Run, now int64) (t machine.Task, alone, ok bool)
	// onlyGates is called after the worker has begun the task that `next` returned. It is called only if nothing but gates remains to be taken.
	onlyGates(r *Run, now int64)
	// announce lets the State announce work, unless single.halts reports that nothing may begin now. When something may begin again, Run.dispatch
	// calls announce again. In a tree with one slot, announce does nothing, since tree.pass announces work.
	announce(r *Run)
	// slotlessDue reports whether a task without a slot is being evaluated, or will begin next, while an attempt holds the only slot.
	slotlessDue(r *Run) bool
}

// order returns the run's current order. The order may change once: when the first node of the run is expanded, the run becomes the root of a tree.
func (r *Run) order() order {
	switch {
	case r.single == nil:
		return freeOrder{}
	case r.tree == nil:
		return slotOrder{}
	}
	return treeOrder{}
}

// freeOrder takes tasks in the order of the run's own ready queue.
type freeOrder struct{}

func (freeOrder) arrived(*Run) {}

func (freeOrder) next(r *Run, now int64) (t machine.Task, alone, ok bool) {
	for t, ok = r.st.Next(); ok; t, ok = r.st.Next() {
		switch {
		case t.Gate:
			r.reachGate(t.Ref, now)
			if r.durable != nil {
				r.flush(now)
			}
		case !t.Check && r.beginsInside(t.Ref):
			if r.beginInside(t, now); r.holdsBack() {
				return machine.Task{}, false, false
			}
		default:
			return t, false, true
		}
	}
	return t, false, false
}

// onlyGates reaches all remaining gates in the critical section in which the worker has begun its task. Otherwise several workers would compete
// later to reach these gates.
func (freeOrder) onlyGates(r *Run, now int64) {
	for r.st.OnlyGates() {
		g, ok := r.st.NextGate()
		if !ok {
			return
		}
		r.reachGate(g.Ref, now)
	}
}

func (freeOrder) announce(r *Run) { r.st.Announce() }

func (freeOrder) slotlessDue(*Run) bool { return false }

// single is the additional state of a run with one slot, shared by its tree. Such a run orders everything that can be ordered:
//
//   - Go fires timers of equal time in any order. So all due alarms ring under the lock before a worker reports a result, and whenever a timer
//     fires. Alarms of equal time ring in the order in which they were armed. If a step returns at the time of an alarm, its result is reported
//     after the alarm.
//   - Composites, checks and gates that an alarm makes due need no slot. They precede the result of a step that returns at the time of
//     the alarm: the result is put off until nothing precedes it.
//   - When an attempt is interrupted, nothing begins before the attempt has returned or has been abandoned. Without this rule, it would be random
//     whether another node begins before or after the attempt returns.
//   - A gate that already has its answer is reached at once, since its successors may need no slot. Nodes without a slot precede nodes that need
//     one. When an item of a map waits, the next item may begin. So if the map has a limit, gates in items are also reached at once. All other
//     gates are reached when nothing else can start.
//   - While a worker evaluates something without a slot, nothing begins. For runs with composites, see also tree.
//
// The run's lock guards all fields except `next`.
type single struct {
	alone int // the number of workers that evaluate something without a slot
	// unwritten is the number of ready nodes and ended nested runs that will be evaluated without a slot, but only after the store has written their
	// changes: see Run.awaitsWrite.
	unwritten   int
	next        atomic.Int64 // when the first alarm of the bell is due; readable without the lock
	interrupted *Step        // the last interrupted attempt that held the slot, or nil
	rang        int64        // when an alarm rang last
	off         []*putOff    // the results that were put off
}

// slotOrder is the order of a run with one slot and without nested runs. While a worker evaluates a task without a slot, no other task begins.
type slotOrder struct{ freeOrder }

func (slotOrder) next(r *Run, now int64) (t machine.Task, alone, ok bool) {
	if r.st.HasGates() {
		r.reachEarly(now)
	}
	if t, _, ok = (freeOrder{}).next(r, now); ok && (t.Check || r.plan.net.Is(t.Ref, machine.FlagInline)) {
		alone = true
		r.single.alone++
	}
	return t, alone, ok
}

func (slotOrder) announce(r *Run) {
	if !r.single.halts() {
		r.st.Announce()
	}
}

func (slotOrder) slotlessDue(r *Run) bool {
	_, inline := r.st.FirstInline()
	return r.single.alone > 0 || r.single.unwritten > 0 || r.st.IsAnnounced() || !r.single.interrupts() && (inline || r.st.HasGates())
}

// evaluated is called after the worker has evaluated a task. From then on single.alone no longer counts the worker. Other workers can then continue.
func (w *worker) evaluated() {
	if w.alone {
		w.alone = false
		w.run.single.alone--
	}
}

// halts reports whether nothing may begin now. There are three reasons: a worker evaluates a task without a slot, a task without a slot waits for a
// write of the store, or an interrupted attempt has not returned.
func (q *single) halts() bool { return q != nil && (q.alone > 0 || q.unwritten > 0 || q.interrupts()) }

// interrupts reports whether an interrupted attempt has not returned.
func (q *single) interrupts() bool {
	return q != nil && q.interrupted != nil && q.interrupted.run.current(q.interrupted.ref) == q.interrupted
}

// needsNoSlot reports whether a node is performed without a slot. In a run with one slot, no other task begins while a worker evaluates such a node.
func (r *Run) needsNoSlot(ref machine.Ref) bool {
	return r.plan.net.Is(ref, machine.FlagInline) || r.performsInside(ref) || r.tree != nil && !r.st.InTree()
}

// putOff is a result that was put off, together with its worker. The run still counts this worker.
type putOff struct {
	worker worker
	c      conclusion
	res    attemptResult
	goOn   bool
}

// putsOff reports whether the result of an attempt must wait. The attempt holds the only slot. The parameter `now` is the time when the attempt
// returned.
func (r *Run) putsOff(now int64) bool {
	return r.single != nil && r.single.rang == now && r.manual == nil && r.slotlessDue()
}

// slotlessDue calls slotlessDue of the run's order. It returns false if the run has lost its store, since such a run begins nothing. It ignores
// tasks that cannot begin because an interrupted attempt has not returned.
func (r *Run) slotlessDue() bool { return !r.isLost() && r.order().slotlessDue(r) }

// putOff puts off the result of the worker's attempt, ends the worker and releases the lock. It disarms the attempt's timeout, since the attempt
// has returned in time. The evaluations that precede its result may take any time.
func (w *worker) putOff(c conclusion, res attemptResult, goOn bool) bool {
	q := w.run.single
	w.run.disarmAttempt(w.step.ref)
	q.off = append(q.off, &putOff{*w, c, res, goOn})
	w.flight = nil // the copy in q.off keeps the flight
	w.run.release(w.now)
	return false
}

// takeUp settles the results that were put off, if nothing precedes them any more. The caller holds the run's lock.
func (r *Run) takeUp() {
	if q := r.single; len(q.off) > 0 && !r.slotlessDue() {
		for _, x := range q.off {
			go x.work()
		}
		q.off = nil
	}
}

// The method `work` settles a result that was put off.
func (x *putOff) work() {
	w := &x.worker
	w.resumed = true
	defer w.exit()
	if w.failed != nil {
		w.goOn(w.finishFallback(x.c, x.goOn))
	} else {
		w.goOn(w.finishAs(x.c, x.res, x.goOn))
	}
}

// The method `note` updates the field `next` after a change of the run's alarms. The caller holds the run's lock.
func (q *single) note(r *Run) {
	if q == nil {
		return
	}
	first := int64(math.MaxInt64)
	if b := r.outermost().bell; b != nil {
		first = b.alarms.Due()
	}
	q.next.Store(first)
}

// isDue reports whether an alarm may be due at the time `now`. Without alarms the value of `next` is [math.MaxInt64], so isDue returns true if `now`
// also has this value.
func (q *single) isDue(now int64) bool { return q != nil && q.next.Load() <= now }

// ringDue rings the due alarms of a run with one slot. The caller holds the run's lock.
func (r *Run) ringDue(now int64) {
	q, b := r.single, r.outermost().bell
	// Without a bell no alarm is armed. But isDue reports true even then if `now` is math.MaxInt64.
	for b != nil && q.isDue(now) {
		a, ok := b.alarms.Next(now)
		if !ok {
			return
		}
		q.note(r)
		q.rang = now
		if a.timer == nil || a.timer.Stop() {
			a.run.timers--
		} // if Stop returns false, the timer's callback still runs: it decrements `timers` and does nothing else
		a.run.rung(a, now)
		if r.tree != nil {
			r.tree.touch(a.run)
			r.tree.attend(now)
		}
	}
}

// rung times out the alarm's attempt or, if there is none, calls the alarm's callback. It does nothing if the alarm was disarmed or its run has
// ended.
func (r *Run) rung(a *alarm, now int64) {
	if !a.over && !r.concluded() {
		r.end(a)
		if a.step != nil {
			r.timeOut(a.step, r.extra(a.step.ref), timeoutAttempt, a.lasts, now)
			return
		}
		a.ring(now)
	}
}

// reachEarly reaches the gates of a run with one slot that may let other nodes begin: gates that have their answer or get it from a test (see
// TestAuto), and gates whose wait lets another item of a map begin. The caller holds the run's lock.
func (r *Run) reachEarly(now int64) {
	r.st.TakeGates(func(ref machine.Ref) bool {
		_, answered := r.signals[ref]
		return answered || r.turn != nil && r.turn.lends || r.cfg.test != nil && r.plan.doubles[ref].role == TestAuto
	}, func(ref machine.Ref) { r.reachGate(ref, now) })
}

// turn is the position of a run among the runs that wait for a slot. Runs are compared by their best ready nodes: first by priority, then by the
// longest remaining path to the end of the outermost run, then by declaration. All graphs of the tree count as a single graph. In a tree with one
// slot, a check or an inline node counts as a node with priority 0 and without a remaining path.
type turn struct {
	index    int32 // the index in the queue, plus one; 0 if the run is not in the queue
	node     int32 // the position of the best ready node
	gated    bool  // whether the run is in tree.gated
	slotless bool  // in a tree with one slot: whether the run's best node needs no slot
	lends    bool  // whether the run is in an item of a map with a limit; while the item waits, its slot of the map is free
	priority int
	rank     int64
	order    []int32 // the positions of the composites around the run, each followed by the number of the nested run in the composite
}

// placeInTree returns the field `order` of the run's turn, or nil for an outermost run.
func (r *Run) placeInTree() []int32 {
	if r.turn == nil {
		return nil
	}
	return r.turn.order
}

// The method `pass` announces the first task of a tree with one slot, so that a worker takes the task. If no task precedes a gate, pass itself
// reaches the gate.
func (t *tree) pass(now int64) {
	for !t.coming && !t.root.single.halts() {
		switch {
		case len(t.waiting) > 0 && t.hasTurn(t.waiting[0]):
			t.coming = true
			t.waiting[0].st.Announce()
			return
		case len(t.gated) == 0:
			return
		}
		// No other task precedes the gate, so it is reached at once.
		r := t.gated[0]
		t.gated = t.gated[1:]
		r.turn.gated = false
		for g, ok := r.st.NextGate(); ok; g, ok = r.st.NextGate() {
			r.reachGate(g.Ref, now)
		}
		t.touch(r)
		t.attend(now)
	}
}

// hasTurn reports whether the run may begin the first task of a tree with one slot: the task belongs to the run, nothing halts the tree, and a slot
// is free or not needed.
func (t *tree) hasTurn(r *Run) bool {
	return !t.root.single.halts() && len(t.waiting) > 0 && t.waiting[0] == r && (r.turn.slotless || t.Used < t.limit)
}

// treeOrder is the order of a tree with one slot. A worker takes the first task of the whole tree if this task belongs to the worker's run (see
// tree).
type treeOrder struct{}

func (treeOrder) arrived(r *Run) { r.tree.coming = false }

func (treeOrder) next(r *Run, now int64) (task machine.Task, alone, ok bool) {
	t, s := r.tree, &r.st
	for t.touch(r); ; t.touch(r) {
		t.attend(now)
		if !t.hasTurn(r) {
			return machine.Task{}, false, false
		}
		task, ok = s.Next()
		switch {
		case ok && task.Gate: // Next returns a gate only if no other task of the run can start
			r.reachGate(task.Ref, now)
		case ok && !task.Check && r.beginsInside(task.Ref):
			r.beginInside(task, now)
		default:
			if ok && (task.Check || !s.InTree() || r.plan.net.Is(task.Ref, machine.FlagInline)) {
				alone = true
				r.single.alone++
			}
			return task, alone, ok
		}
	}
}

func (treeOrder) onlyGates(*Run, int64) {} // the tree reaches gates when no other task precedes them

func (treeOrder) announce(*Run) {} // in a tree, pass announces work

func (treeOrder) slotlessDue(r *Run) bool {
	t, q := r.tree, r.single
	return q.alone > 0 || q.unwritten > 0 || t.coming || !q.interrupts() && (len(t.gated) > 0 || len(t.waiting) > 0 && t.waiting[0].turn.slotless)
}

// awaitGates adds a run with ready gates to the runs that wait until no other node can start.
func (t *tree) awaitGates(r *Run) {
	if r.st.HasGates() && !r.turn.gated {
		r.turn.gated = true
		t.gated = append(t.gated, r)
	}
}

// The method `queue` updates the run's position among the waiting runs. A run waits if one of its ready nodes needs a slot. In a tree with one
// slot, a run also waits if it has a task that needs no slot.
func (t *tree) queue(r *Run) {
	s := &r.st
	wants := s.WantsSlot()
	switch {
	case t.limit == 1:
		if _, inline := s.FirstInline(); inline {
			wants = true
		}
		t.awaitGates(r)
	case !s.InTree():
		return
	}
	r.turn.update(r)
	switch {
	case wants && r.turn.index == 0:
		heap.Push(&t.waiting, r)
	case wants:
		heap.Fix(&t.waiting, int(r.turn.index)-1)
	case r.turn.index > 0:
		heap.Remove(&t.waiting, int(r.turn.index)-1)
	}
}

// update computes the position of the run's best ready node.
func (x *turn) update(r *Run) {
	s := &r.st
	if first, ok := s.FirstInline(); ok && r.tree.limit == 1 {
		x.slotless, x.priority, x.rank, x.node = true, 0, 0, r.plan.decl[first]
		return
	}
	if ref, ok := s.FirstReady(); ok {
		x.slotless = !s.InTree()
		x.priority, x.rank = r.plan.node(ref).Priority, saturate.Add(s.Rank(ref), r.remaining)
		x.node = r.plan.decl[ref]
	}
}

// grants reports whether the best ready node of the run may have a slot. The node may have one if a slot is free and no other run precedes this
// run.
func (r *Run) grants() bool {
	t := r.tree
	if t.Used >= t.limit {
		return false
	}
	if len(t.waiting) == 0 || t.waiting[0] == r {
		return true
	}
	mine := *r.turn
	mine.update(r)
	return !t.waiting[0].turn.before(&mine)
}

// contends makes the tree check again whether a node of the run gets a slot.
func (r *Run) contends() {
	if r.turn != nil {
		r.tree.touch(r)
	}
}

func (x *turn) before(y *turn) bool {
	if x.slotless != y.slotless {
		return x.slotless
	}
	if c := cmp.Or(cmp.Compare(y.priority, x.priority), cmp.Compare(y.rank, x.rank)); c != 0 {
		return c < 0
	}
	both := min(len(x.order), len(y.order))
	return cmp.Or(slices.Compare(x.order[:both], y.order[:both]), cmp.Compare(x.at(both), y.at(both))) < 0
}

// The method `at` returns the position of the composite at this depth of nesting. At the depth of the run itself, it returns the position of the best
// ready node.
func (x *turn) at(depth int) int32 {
	if depth < len(x.order) {
		return x.order[depth]
	}
	return x.node
}

// queue is a heap of runs that wait for a slot.
type queue []*Run

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].turn.before(q[j].turn) }

func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].turn.index, q[j].turn.index = int32(i)+1, int32(j)+1
}

func (q *queue) Push(x any) {
	r := x.(*Run)
	*q = append(*q, r)
	r.turn.index = int32(len(*q))
}

func (q *queue) Pop() any {
	last := len(*q) - 1
	r := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	r.turn.index = 0
	return r
}
