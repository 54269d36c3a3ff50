package kahn

import (
	"cmp"
	"container/heap"
	"slices"

	"github.com/seed-c794f7ef/kahn/internal/saturate"
	"github.com/seed-c794f7ef/kahn/machine"
)

// tree is the state that a run and the runs nested in it share besides the lock: the slots of Limit, which the leaves of the
// tree hold and composites do not, and the list of runs that a critical section has touched. Only a run whose plan has
// composites has one. All of it is guarded by the common lock.
//
// With one slot the order of everything is determined. Three rules make it so: a worker that may take something takes the
// first of the whole tree, not of its own run; tasks without a slot come before tasks with one; and while a worker evaluates
// something without a slot, no worker takes a task. So the next event is a function of the state of the tree alone,
// whichever worker comes first.
type tree struct {
	root    *Run
	cfg     *config // of the nested runs; nil before the first one
	workers int     // goroutines at work in all runs together, abandoned ones not counted
	limit   int     // slots of all runs together; 0 means no limit
	machine.TreeSlots
	waiting queue       // runs with a ready node that wants a slot, with one slot all that could go on; the best first; empty without a limit
	touched []*Run      // to be attended before the lock is released
	ending  []stopOrder // attempts whose contexts end when the lock is released
	keys    map[string]*machine.Slots
	flights map[place]*flight // of nodes that are memoized and have been expanded
	nested  map[string]*Run   // those that have not ended, by the prefix of the paths in them; without those of items
	longest int               // the length of the longest prefix that there was
	tokens  map[string][]*Run // runs that are nested in which a step waits, by its token, in the order of declaration
	steps   int64             // runs visited, by which tests check that the work is linear
	deltas  deltaCounts

	// Of a tree with one slot.
	alone  int    // workers that evaluate something without a slot, see Run.alone
	coming bool   // a worker was started that has not taken its first task
	gated  []*Run // runs with gates that were not reached
}

// turn is the place of a run among those that wait for a slot: that of its best ready node, by priority, then by the
// longest remaining path up to the end of the outermost run, then by declaration, as if the graphs were one.
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

// touch notes a change of a run that the run's own worker may not see.
func (t *tree) touch(r *Run) {
	if !r.touched {
		r.touched = true
		t.touched = append(t.touched, r)
	}
}

// settle attends every run that was touched, and hands the free slots out.
func (t *tree) settle(now int64) {
	t.attend(now)
	if t.root.isLost() {
		t.touch(t.root) // which ends when no goroutine of any run is left
		t.attend(now)
		return
	}
	t.root.awaitToken(now)
	switch {
	case t.limit == 1:
		t.pass(now)
	// A worker that has been started and has not taken its task gets the next slot, and then attends the other runs.
	case len(t.waiting) > 0 && t.Used < t.limit:
		t.waiting[0].dispatch(now)
	}
	if t.root.leaving && t.workers == 0 { // only once every run that was touched has started its remaining work
		t.root.rest(now)
		t.touch(t.root)
		t.attend(now)
	}
}

// attend logs the changes of every run that was touched, updates its place in the queue, and starts a worker if it needs one.
func (t *tree) attend(now int64) {
	for len(t.touched) > 0 {
		r := t.touched[len(t.touched)-1]
		t.touched = t.touched[:len(t.touched)-1]
		t.steps++
		r.touched = false
		if r.outer != nil && r.concluded() && !r.isPutAway() {
			r.conclude(now) // and nothing else: a worker of the outer run may be reading the verdict, without the lock
			continue
		}
		t.ending = append(t.ending, r.endings()...)
		if t.limit == 1 && r.st.HasGates() {
			r.reachEarly(now)
		}
		r.flush(now)
		t.queue(r)
		r.dispatch(now)
	}
}

// pass starts, in a tree with one slot, the first of all tasks.
func (t *tree) pass(now int64) {
	for t.alone == 0 && !t.coming && !t.root.single.interrupts() {
		switch {
		case len(t.waiting) > 0 && t.hasTurn(t.waiting[0]):
			r := t.waiting[0]
			t.coming = true
			r.engage()
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
	return t.alone == 0 && !t.root.single.interrupts() && len(t.waiting) > 0 && t.waiting[0] == r && (r.turn.slotless || t.Used < t.limit)
}

// takeTurn is [machine.Locked.Next] for a worker of a tree with one slot, up to the first task that is for a worker.
func (w *worker) takeTurn() (machine.Task, bool) {
	r := w.run
	t, s := r.tree, &r.st
	for t.touch(r); ; t.touch(r) {
		t.attend(w.now)
		if !t.hasTurn(r) {
			return machine.Task{}, false
		}
		task, ok := s.Next()
		switch {
		case ok && task.Gate: // only held tasks come before it
			r.reachGate(task.Ref, w.now)
		case ok && !task.Check && r.plan.net.Is(task.Ref, machine.FlagComposite):
			w.beginInside(task)
		default:
			if ok && (task.Check || !s.InTree() || r.plan.net.Is(task.Ref, machine.FlagInline)) {
				w.alone = true
				t.alone++
			}
			return task, ok
		}
	}
}

// queue puts a run into its place among those that wait for a slot, or with one slot for anything.
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

// shareGroups connects this run to the limits that the tree shares: the slots and rates of keys, of the whole run, and of
// groups that a graph around this one declares.
func (r *Run) shareGroups() {
	s, t := &r.st, r.tree
	s.ShareLimits(&t.root.st)
	for i := range r.plan.groups {
		g := &r.plan.groups[i]
		switch own := s.SlotsOf(int32(i)); {
		case g.key && own != nil:
			if known := t.keys[g.Name]; known != nil {
				s.UseSlots(int32(i), known)
				continue
			}
			if s.Pooled() && !own.IsShared() {
				t.root.shareKey(own, g.Name)
			}
			t.keys[g.Name] = own
		case g.inherited:
			if common := r.outer.slotsOf(g.Name); common != nil {
				s.UseSlots(int32(i), common)
			}
		}
	}
}

// slotsOf returns the slots of a group that the run's graph, or the nearest around it, declares; nil if it has no limit.
func (r *Run) slotsOf(name string) *machine.Slots {
	for ; r != nil; r = r.outer {
		i, ok := r.plan.groupIndex[name]
		if !ok || r.plan.groups[i].inherited {
			continue
		}
		if g := &r.plan.groups[i]; r.nests && !r.plan.composite && (g.Limit > 0 || g.Rate != Rate{}) { // no node of the graph may be a member
			r.st.MakeSlots(i)
		}
		return r.st.SlotsOf(i)
	}
	return nil
}

// remainingAfter is the longest path that remains after a node, in the run and in the runs around it.
func (r *Run) remainingAfter(ref Ref) int64 {
	longest := int64(0)
	for _, a := range r.plan.net.Out(ref) {
		longest = max(longest, r.st.Rank(a.To()))
	}
	return saturate.Add(longest, r.remaining)
}

// makeTree makes the run the root of a tree, when it begins, or when the first of its nodes is expanded.
func (r *Run) makeTree() {
	r.tree = &tree{root: r, limit: r.cfg.limit, keys: map[string]*machine.Slots{}, nested: map[string]*Run{}}
	t := r.tree
	if t.workers = r.workers; t.limit > 0 {
		_, t.Used = r.st.OwnSlots()
	}
	t.alone, r.alone = r.alone, 0
	t.coming = t.limit == 1 && r.starting
	r.enter()
}

// enter makes the run's slots, and those of its groups and keys, the tree's.
func (r *Run) enter() {
	s := &r.st
	if r.turn == nil {
		r.turn = &turn{}
	}
	if o := r.outer; o != nil {
		limit, _ := o.st.OwnSlots()
		r.turn.lends = o.turn.lends || o.items != nil && limit > 0
	}
	r.shareGroups()
	if r.tree.limit == 0 || r.items != nil && r.plan.composite {
		return // the items of such a map hold slots of the map alone
	}
	s.ShareTree(&r.tree.TreeSlots)
}

// hurries reports whether a run around this one is being stopped.
func (r *Run) hurries() bool {
	for o := r.outer; o != nil; o = o.outer {
		if o.st.StoppedFor() != CauseNone {
			return true
		}
	}
	return false
}

// contends makes the tree check again whether a node of the run gets a slot.
func (r *Run) contends() {
	if r.turn != nil {
		r.tree.touch(r)
	}
}
