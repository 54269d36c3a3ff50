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

// order is the policy by which the workers of a run take tasks: with one slot the policy leaves nothing to chance. It has no state of
// its own. Its methods are called with the lock held.
type order interface {
	// arrived is called when a worker is about to take its first task.
	arrived(r *Run)
	// next returns the next task that a worker performs, and whether it is counted in single.alone meanwhile. It reaches the gates and begins the
	// composites that come before, in the same critical section, so that the order in which nested runs begin depends on nothing else.
	next(r *Run, now int64) (t machine.Task, alone, ok bool)
	// onlyGates is called when the worker has begun what next has returned, and nothing can be taken but gates.
	onlyGates(r *Run, now int64)
	// announce lets the State announce what there is to do, unless nothing may begin now: then what is in the way dispatches when it is gone.
	announce(r *Run)
	// slotlessDue reports whether something that needs no slot is evaluated, or about to be begun, while an attempt holds the only slot.
	slotlessDue(r *Run) bool
}

// order is the order of the run now: when its first node is expanded, it becomes a tree.
func (r *Run) order() order {
	switch {
	case r.single == nil:
		return freeOrder{}
	case r.tree == nil:
		return slotOrder{}
	}
	return treeOrder{}
}

// freeOrder is the order of the run's own ready queue.
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

// onlyGates reaches the gates at once: workers would race for them later.
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
//   - Timers of equal time go off in any order. So every holder of the lock, a worker that reports or a timer, rings all due
//     alarms first: alarms of equal time in the order of arming, and all of them before what a step does at that time.
//   - What alarms make due that needs no slot, composites, checks and gates, comes before the result of a step that returns at the time of
//     the alarm: that is put off meanwhile.
//   - When an attempt is interrupted nothing is begun before it has returned, or was abandoned: otherwise their order would be
//     random.
//   - A gate that has its answer is reached at once: its successors may need no slot, and then come before nodes that do. When
//     the item of a map waits, the next item may begin; so the gates inside items are reached at once, too, if the map has a
//     limit. Other gates that are going to wait are reached when nothing can be started any more.
//   - While a worker evaluates something without a slot, nothing is begun. See also, for runs with composites, tree.
//
// The lock guards all fields but next.
type single struct {
	alone       int          // workers that evaluate something without a slot
	unwritten   int          // what will be evaluated so when the store has written why: see Run.awaitsWrite
	next        atomic.Int64 // when the first alarm of the bell is due, for a look without the lock
	interrupted *Step        // the last attempt that held the slot and was interrupted, or nil
	rang        int64        // when an alarm last rang
	off         []*putOff    // results that are put off
}

// slotOrder is the order of a run with one slot and nothing nested in it: gates come in the order of their nodes, and a worker that evaluates
// something does so alone.
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

// evaluated lets other workers continue when the worker has evaluated something alone.
func (w *worker) evaluated() {
	if w.alone {
		w.alone = false
		w.run.single.alone--
	}
}

// halts reports whether nothing may be begun now: a worker evaluates something, or will when it is written, or an attempt that was interrupted has
// not returned.
func (q *single) halts() bool { return q != nil && (q.alone > 0 || q.unwritten > 0 || q.interrupts()) }

// interrupts reports whether an attempt that was interrupted has not returned.
func (q *single) interrupts() bool {
	return q != nil && q.interrupted != nil && q.interrupted.run.current(q.interrupted.ref) == q.interrupted
}

// needsNoSlot reports whether what performs a node, in a run with one slot, evaluates it alone.
func (r *Run) needsNoSlot(ref machine.Ref) bool {
	return r.plan.net.Is(ref, machine.FlagInline) || r.performsInside(ref) || r.tree != nil && !r.st.InTree()
}

// putOff is the result of an attempt that was put off, and its worker, which the run counts meanwhile.
type putOff struct {
	worker worker
	c      conclusion
	res    attemptResult
	goOn   bool
}

// putsOff reports whether the result of an attempt, which holds the slot and has returned at the given time, has to wait.
func (r *Run) putsOff(now int64) bool {
	return r.single != nil && r.single.rang == now && r.manual == nil && r.slotlessDue()
}

// slotlessDue asks the order. What an interrupted attempt keeps from beginning does not count, and a run without its store begins nothing.
func (r *Run) slotlessDue() bool { return !r.isLost() && r.order().slotlessDue(r) }

// putOff ends the worker of an attempt whose result is put off, and releases the lock. It disarms the attempt's timeout: the attempt has
// returned in time, however long the evaluations before its result take.
func (w *worker) putOff(c conclusion, res attemptResult, goOn bool) bool {
	q := w.run.single
	w.run.disarmAttempt(w.step.ref)
	q.off = append(q.off, &putOff{*w, c, res, goOn})
	w.flight = nil // the copy has it
	w.run.release(w.now)
	return false
}

// takeUp takes up the results that were put off, when nothing comes before them any more. It is called with the lock held.
func (r *Run) takeUp() {
	if q := r.single; len(q.off) > 0 && !r.slotlessDue() {
		for _, x := range q.off {
			go x.work()
		}
		q.off = nil
	}
}

// work settles a result that was put off.
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

// note is called with the lock held after every change of the alarms of the run.
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

// isDue reports whether an alarm may be due by now: at [math.MaxInt64], which next is without alarms, there may be none.
func (q *single) isDue(now int64) bool { return q != nil && q.next.Load() <= now }

// ringDue rings the alarms of a run with one slot that are due, with the lock held.
func (r *Run) ringDue(now int64) {
	q, b := r.single, r.outermost().bell
	for b != nil && q.isDue(now) { // without a bell there is no alarm, although one may be due at the end of the clock
		a, ok := b.alarms.Next(now)
		if !ok {
			return
		}
		q.note(r)
		q.rang = now
		if a.timer == nil || a.timer.Stop() {
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
		if a.step != nil {
			r.timeOut(a.step, r.extra(a.step.ref), timeoutAttempt, a.lasts, now)
			return
		}
		a.ring(now)
	}
}

// reachEarly reaches, in a run with one slot, the gates that let other nodes begin, with the lock held: gates that have
// their answer, and gates whose wait lets another item of a map begin.
func (r *Run) reachEarly(now int64) {
	r.st.TakeGates(func(ref machine.Ref) bool {
		_, answered := r.signals[ref]
		return answered || r.turn != nil && r.turn.lends || r.cfg.test != nil && r.plan.doubles[ref].role == TestAuto
	}, func(ref machine.Ref) { r.reachGate(ref, now) })
}

// turn is the place of a run among the runs that wait for a slot: the place of its best ready node, by priority,
// then by the longest remaining path up to the end of the outermost run, then by declaration, as if the graphs were
// one.
type turn struct {
	index    int  // in the queue plus one; 0 means that it is not in there
	gated    bool // it is among the tree's
	slotless bool // in a tree with one slot: its best node needs none
	lends    bool // it is inside an item of a map with a limit, to which the item's slot goes back while it waits
	priority int
	rank     int64
	order    []int32 // of the composites that the run is in, each followed by the run's number
	node     int32   // of the best ready node
}

// placeInTree is the order of the run's turn, nil for an outermost run.
func (r *Run) placeInTree() []int32 {
	if r.turn == nil {
		return nil
	}
	return r.turn.order
}

// pass starts, in a tree with one slot, the first of all tasks.
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
		// No other task comes before a gate: it is reached at once.
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

// hasTurn reports whether a run has the first task, in a tree with one slot.
func (t *tree) hasTurn(r *Run) bool {
	return !t.root.single.halts() && len(t.waiting) > 0 && t.waiting[0] == r && (r.turn.slotless || t.Used < t.limit)
}

// treeOrder is the order of a tree with one slot: a worker takes the first task of the whole tree, if it is one of its run, see tree.
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
		case ok && task.Gate: // only held tasks come before it
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

func (treeOrder) onlyGates(*Run, int64) {} // the tree reaches gates when no other task comes before

func (treeOrder) announce(*Run) {} // the tree does, see pass

func (treeOrder) slotlessDue(r *Run) bool {
	t, q := r.tree, r.single
	return q.alone > 0 || q.unwritten > 0 || t.coming || !q.interrupts() && (len(t.gated) > 0 || len(t.waiting) > 0 && t.waiting[0].turn.slotless)
}

// queue puts a run into its place among the runs that wait for a slot, or with one slot for anything.
func (t *tree) queue(r *Run) {
	s := &r.st
	wants := s.WantsSlot()
	switch {
	case t.limit == 1:
		if _, inline := s.FirstInline(); inline {
			wants = true
		}
		if s.HasGates() && !r.turn.gated {
			r.turn.gated = true
			t.gated = append(t.gated, r)
		}
	case !s.InTree():
		return
	}
	r.turn.update(r)
	switch {
	case wants && r.turn.index == 0:
		heap.Push(&t.waiting, r)
	case wants:
		heap.Fix(&t.waiting, r.turn.index-1)
	case r.turn.index > 0:
		heap.Remove(&t.waiting, r.turn.index-1)
	}
}

// update computes the place of the run's best ready node.
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

// grants reports whether the best ready node of the run may have a slot: one is free, and no other run is before it.
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

// at is the place of the composite at a depth of the nesting, or of the node itself.
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
	q[i].turn.index, q[j].turn.index = i+1, j+1
}

func (q *queue) Push(x any) {
	r := x.(*Run)
	*q = append(*q, r)
	r.turn.index = len(*q)
}

func (q *queue) Pop() any {
	last := len(*q) - 1
	r := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	r.turn.index = 0
	return r
}
