package kahn

import (
	"cmp"
	"container/heap"
	"slices"
)

// tree is what a run and the runs nested in it share besides the lock: the slots of Limit, which the leaves of the tree
// hold and composites do not, and the list of runs that a critical section has touched. Only a run whose plan has
// composites has one. All of it is guarded by the common lock.
type tree struct {
	root    *Run
	limit   int    // slots of all runs together; 0 means no limit
	used    int    //
	waiting queue  // runs with a ready node that wants a slot, the best first; empty without a limit
	touched []*Run // to be seen to before the lock is released
	keys    map[string]*slots
	deltas  map[string]int // how many the nodes of nested runs have emitted, over all attempts of theirs and of their composites, by path
}

// countedDeltas notes how many deltas the node with this path has emitted.
func (t *tree) countedDeltas(path string, n int) {
	if t.deltas == nil {
		t.deltas = map[string]int{}
	}
	t.deltas[path] = n
}

// turn is the place of a run among those that wait for a slot: that of its best ready node, by priority, then by the
// longest remaining path up to the end of the outermost run, then by declaration, as if the graphs were one.
type turn struct {
	run      *Run
	index    int // in the queue plus one; 0 means that it is not in there
	priority int
	rank     int64
	order    []int32 // of the composites that the run is in, each followed by the run's number
	node     int32   // of the best ready node
}

// touch notes that something has happened to a run which its own worker may not see.
func (t *tree) touch(r *Run) {
	if !r.touched {
		r.touched = true
		t.touched = append(t.touched, r)
	}
}

// settle sees to every run that was touched, and hands the free slots out. It returns the attempts whose contexts are to
// end when the lock is released.
func (t *tree) settle(now int64) (ending []stopOrder) {
	for len(t.touched) > 0 {
		r := t.touched[len(t.touched)-1]
		t.touched = t.touched[:len(t.touched)-1]
		r.touched = false
		r.collectStops()
		ending = append(ending, r.ending...)
		r.ending = nil
		r.flush(now)
		t.queue(&r.st)
		r.dispatch(now)
	}
	// A worker that has been started and has not taken its task is the next to have a slot, and sees to the others then.
	if len(t.waiting) > 0 && t.used < t.limit {
		t.waiting[0].turn.run.dispatch(now)
	}
	return ending
}

// queue puts a run into its place among those that wait for a slot.
func (t *tree) queue(s *State) {
	if s.tree == nil {
		return
	}
	s.turn.update(s)
	wants := s.ready.Len() > 0 && s.running < s.limit
	switch {
	case wants && s.turn.index == 0:
		heap.Push(&t.waiting, s)
	case wants:
		heap.Fix(&t.waiting, s.turn.index-1)
	case s.turn.index > 0:
		heap.Remove(&t.waiting, s.turn.index-1)
	}
}

// update works out the place of the run's best ready node.
func (x *turn) update(s *State) {
	if pos, ok := s.ready.Min(); ok {
		ref := s.at[pos]
		x.priority, x.rank = s.plan.nodes[ref].Priority, saturatingAdd(s.plan.rank[ref], x.run.remaining)
		x.node = s.plan.decl[ref]
	}
}

// grants reports whether the best ready node of a run may have a slot: one is free, and no other run is before it.
func (t *tree) grants(s *State) bool {
	if t.used >= t.limit {
		return false
	}
	if len(t.waiting) == 0 || t.waiting[0] == s {
		return true
	}
	mine := s.turn
	mine.update(s)
	return !t.waiting[0].turn.before(&mine)
}

func (x *turn) before(y *turn) bool {
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
type queue []*State

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].turn.before(&q[j].turn) }

func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].turn.index, q[j].turn.index = i+1, j+1
}

func (q *queue) Push(x any) {
	s := x.(*State)
	*q = append(*q, s)
	s.turn.index = len(*q)
}

func (q *queue) Pop() any {
	last := len(*q) - 1
	s := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	s.turn.index = 0
	return s
}
