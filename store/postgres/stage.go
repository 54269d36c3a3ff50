package postgres

import (
	"fmt"
	"math"

	"github.com/seed-c794f7ef/kahn/machine"
	"github.com/seed-c794f7ef/kahn/store"
)

// The type `run` is the remembered state of a run that the process has acquired. It has everything that `judge` needs. The fields below `lease`
// belong to the goroutine that performs commits.
type run struct {
	number   int64
	lease    store.Lease
	status   machine.RunStatus
	sequence uint64
	event    uint64 // the id of the last stored event, 0 if none is stored
	posted   uint64 // the number of the last request that was posted before the run was loaded
	taken    uint64 // the number of the last request that was answered
	nodes    map[string]*node
}

// newRun returns the state of a run that was loaded or created. The state has no nodes yet.
func newRun(number int64, l store.Lease, stored *store.Run) *run {
	return &run{number: number, lease: l, status: stored.Status, sequence: stored.Sequence, event: stored.LastEvent, posted: stored.Posted, taken: stored.Taken, nodes: map[string]*node{}}
}

// The type `node` is the state of a node, without its record.
type node struct {
	store.State
	number int32 // the number of nodes of the run that were inserted before this node
	staged int   // the position of the node's change in the stage, from 1
}

// The type `stage` is a commit that is being judged. The run changes only after the commit is written.
type stage struct {
	run     *run
	changes []change
}

// The type `change` is the next state of a node.
type change struct {
	key    string
	node   *node
	next   store.State
	record *store.Columns // nil if the record does not change
	fresh  bool           // the node has no row yet
}

// The method `judge` decides whether a commit applies, and stages its changes. The parameter "posted" is the number of the run's last request. A
// caller that does not know this number passes a higher one. If the answer is AppliedNow, the caller must later call keep or drop for the stage. If
// the answer is another one, the run is unchanged.
func (r *run) judge(c *store.Commit, posted uint64) (*stage, store.Applied, error) {
	st := &stage{run: r}
	applied, err := c.Judge(r.sequence, r.status, func(key string) *store.State { return &st.node(key).next })
	if err == nil && applied == store.AppliedNow {
		applied, err = r.judgeEvents(c)
	}
	if err == nil && applied == store.AppliedNow && !c.TakenFollow(r.taken, posted) {
		applied = store.Conflict
	}
	if err != nil || applied != store.AppliedNow {
		st.drop()
		return nil, applied, err
	}
	for _, key := range c.Reset {
		st.node(key).record = new(store.Columns)
	}
	for i := range c.Nodes {
		st.node(c.Nodes[i].Node).record = &c.Nodes[i].Columns
	}
	return st, applied, nil
}

// judgeEvents judges the events of a commit.
func (r *run) judgeEvents(c *store.Commit) (store.Applied, error) {
	switch n := len(c.Events); {
	case !c.EventsFollow(r.event):
		return store.Conflict, nil
	case n > 0 && c.Events[n-1].ID > math.MaxInt64:
		return 0, fmt.Errorf("%w: event %d of a run, which has events up to %d", store.ErrRejected, c.Events[n-1].ID, math.MaxInt64)
	}
	return store.AppliedNow, nil
}

// The method `node` returns the staged change of a node. If the stage has no change of the node yet, the method adds one.
func (st *stage) node(key string) *change {
	n := st.run.nodes[key]
	fresh := n == nil
	if fresh {
		n = &node{number: int32(len(st.run.nodes))}
		st.run.nodes[key] = n
	}
	if n.staged == 0 {
		ch := change{key: key, node: n, next: n.State, fresh: fresh}
		if fresh {
			ch.record = new(store.Columns)
		}
		st.changes = append(st.changes, ch)
		n.staged = len(st.changes)
	}
	return &st.changes[n.staged-1]
}

// The method `drop` discards the changes that `judge` has staged.
func (st *stage) drop() {
	for i := range st.changes {
		ch := &st.changes[i]
		if ch.node.staged = 0; ch.fresh {
			delete(st.run.nodes, ch.key)
		}
	}
}

// The method `keep` replaces the state of the run by the staged state.
func (st *stage) keep(c *store.Commit) {
	for i := range st.changes {
		ch := &st.changes[i]
		ch.node.State, ch.node.staged = ch.next, 0
	}
	st.run.sequence = c.Sequence
	if n := len(c.Events); n > 0 {
		st.run.event = c.Events[n-1].ID
	}
	st.run.taken += uint64(len(c.Taken))
	if c.Status != machine.RunPending {
		st.run.status = c.Status
	}
	if st.run.status.Terminal() {
		// The statement has set the column "taken" to the value of the column "posted". This process may not know that value, so it sets st.run.taken
		// to 0. Because of the 0, `judge` returns Conflict for the next commit that answers a request. Then the store loads the run and judges the
		// commit again.
		st.run.taken = 0
	}
}
