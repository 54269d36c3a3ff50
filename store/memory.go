package store

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/seed-c794f7ef/kahn/internal/foreign"
	"github.com/seed-c794f7ef/kahn/internal/notify"
	"github.com/seed-c794f7ef/kahn/machine"
)

// Memory is a [Store] in memory, for tests and for runs that need not survive their process. The zero value is empty and ready for use.
type Memory struct {
	mu     sync.Mutex // guards the fields below
	runs   map[string]*memoryRun
	blobs  map[string]bool             // the keys of blobs of pruned and replaced runs, until Prune removes the blobs
	board  notify.Board                // wakes readers of runs that have new events
	watch  notify.Watchers             // the watches that WatchRequests has begun
	served map[Queue]map[string]server // maps each queue to the processes that serve it, see Announce

	schedules map[string]Schedule
	awaited   map[string]map[awaiting]bool // maps each awaited run to the nodes that await it

	turn  int64            // the number of the last turn of any key
	turns map[string]int64 // maps each key to the number of its last turn

	grants map[string]*Grants // maps the name of each limit to its state
	swept  int                // how many limits remained when the expired limits were last removed
}

// memoryRun is a run whose nodes are in a list, and not in Run.Nodes.
type memoryRun struct {
	Run
	nodes   []memoryNode    // in the order in which they were first written
	at      map[string]int  // the indexes of nodes by their keys
	changes []change        // the changes of the commit that is being judged
	stored  int             // the number of nodes before that commit
	blobs   map[string]bool // the keys of all blobs to which the run has ever referred
	inbox   inbox
	awaits  map[string]string // maps the path of each awaiting node to the awaited run
	lease   Lease
	expires time.Time
}

type memoryNode struct {
	ListedNode
	staged int // the position of the node's change in memoryRun.changes, from 1; 0 if there is none
}

// The type `change` holds the state of a node after the commit that is being judged.
type change struct {
	at   int
	next State
}

// The method `leased` reports whether the run has a lease that has not expired.
func (r *memoryRun) leased() bool { return r.lease.Owner != "" && time.Now().Before(r.expires) }

// Acquire implements [Store].
func (m *Memory) Acquire(ctx context.Context, run, owner string, ttl time.Duration) (Lease, *Run, error) {
	if err := ctx.Err(); err != nil {
		return Lease{}, nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.acquire(run, owner, ttl)
}

// The method `acquire` implements Acquire for a caller that holds m.mu.
func (m *Memory) acquire(run, owner string, ttl time.Duration) (Lease, *Run, error) {
	now, r := time.Now(), m.runs[run]
	if r == nil {
		r = m.add(Run{ID: run, Created: now})
	}
	if r.lease.Owner != owner && r.leased() {
		return Lease{}, nil, fmt.Errorf("%w: run %s, by %s", ErrLeased, foreign.Quote(run), foreign.Quote(r.lease.Owner))
	}
	r.lease = Lease{Run: run, Owner: owner, Epoch: r.lease.Epoch + 1}
	r.expires = now.Add(ttl)
	return r.lease, r.copy(), nil
}

// The method `add` adds a run, or replaces the run with the same id.
func (m *Memory) add(r Run) *memoryRun {
	if m.runs == nil {
		m.runs = map[string]*memoryRun{}
	}
	x := &memoryRun{Run: r, lease: Lease{Run: r.ID}, at: make(map[string]int, len(r.Nodes)), blobs: map[string]bool{}}
	for _, key := range slices.Sorted(maps.Keys(r.Nodes)) {
		x.insert(key).Node = r.Nodes[key]
	}
	x.Nodes, x.Events, x.stored = nil, slices.Clone(r.Events), len(x.nodes)
	x.Posted, x.Taken = 0, 0
	x.refer(r.BlobKeys())
	if old := m.runs[r.ID]; old != nil {
		x.lease, x.expires = old.lease, old.expires // the ended lease is kept, so that the next lease has a higher epoch
		m.leave(old)
		m.withdrawAll(old)
	}
	m.runs[r.ID] = x
	return x
}

// The method `leave` records the keys of a run's blobs when the run is removed or replaced, so that Prune can remove the blobs.
func (m *Memory) leave(r *memoryRun) {
	if m.blobs == nil {
		m.blobs = map[string]bool{}
	}
	maps.Copy(m.blobs, r.blobs)
}

// The method `insert` adds a node that the run does not have yet.
func (r *memoryRun) insert(key string) *memoryNode {
	r.at[key] = len(r.nodes)
	r.nodes = append(r.nodes, memoryNode{ListedNode: ListedNode{Key: key}})
	return &r.nodes[len(r.nodes)-1]
}

// The method `next` returns the staged State of a node, for [Commit.Judge] to change. It adds the node if the run does not have it yet.
func (r *memoryRun) next(key string) *State {
	at, known := r.at[key]
	if !known {
		at = len(r.nodes)
		r.insert(key)
	}
	n := &r.nodes[at]
	if n.staged == 0 {
		r.changes = append(r.changes, change{at, n.State})
		n.staged = len(r.changes)
	}
	return &r.changes[n.staged-1].next
}

// The method `apply` writes the staged changes of a commit to the nodes, and stores the commit's records of nodes.
func (r *memoryRun) apply(c *Commit) {
	for i := range r.changes {
		r.nodes[r.changes[i].at].State = r.changes[i].next
	}
	for _, key := range c.Reset {
		r.nodes[r.at[key]].Columns = Columns{}
	}
	for i := range c.Nodes {
		record := &c.Nodes[i]
		r.nodes[r.at[record.Node]].Columns = record.Columns
	}
	r.refer(c.BlobKeys())
	r.stored = len(r.nodes)
}

// The method `refer` records that the run refers to the blobs with the given keys.
func (r *memoryRun) refer(keys []string) {
	for _, key := range keys {
		r.blobs[key] = true
	}
}

// The method `settle` clears the staged changes after a commit was applied or refused. If the commit was refused, `settle` also removes the nodes
// that the commit would have added.
func (r *memoryRun) settle() {
	for i := range r.changes {
		r.nodes[r.changes[i].at].staged = 0
	}
	for i := r.stored; i < len(r.nodes); i++ {
		delete(r.at, r.nodes[i].Key)
	}
	r.changes, r.nodes = r.changes[:0], r.nodes[:r.stored]
}

func (r *memoryRun) copy() *Run {
	c := r.Run
	c.Labels, c.Usage, c.Events, c.Nodes = maps.Clone(r.Labels), maps.Clone(r.Usage), nil, make(map[string]Node, len(r.nodes))
	for i := range r.nodes {
		c.Nodes[r.nodes[i].Key] = r.nodes[i].Node
	}
	return &c
}

// The method `held` returns the run of a lease. It returns an error if the lease is not the newest, was released or has run out.
func (m *Memory) held(ctx context.Context, lease Lease) (*memoryRun, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	r := m.runs[lease.Run]
	switch {
	case r == nil:
		return nil, fmt.Errorf("%w: %s", ErrUnknownRun, foreign.Quote(lease.Run))
	case r.lease != lease || lease.Owner == "" || !time.Now().Before(r.expires):
		return nil, fmt.Errorf("%w: run %s, epoch %d", ErrFenced, foreign.Quote(lease.Run), lease.Epoch)
	}
	return r, nil
}

// Renew implements [Store].
func (m *Memory) Renew(ctx context.Context, lease Lease, ttl time.Duration) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, err := m.held(ctx, lease)
	if err == nil {
		r.expires = time.Now().Add(ttl)
	}
	return err
}

// Release implements [Store].
func (m *Memory) Release(_ context.Context, lease Lease) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.runs[lease.Run]; r != nil && r.lease == lease {
		r.lease.Owner = ""
	}
	return nil
}

// Commit implements [Store].
func (m *Memory) Commit(ctx context.Context, lease Lease, c Commit) (Applied, error) {
	applied, posted, err := m.commit(ctx, lease, &c)
	for _, run := range posted {
		m.watch.Tell(run)
	}
	return applied, err
}

// The method `commit` implements Commit, and also returns the runs for which it has posted requests.
func (m *Memory) commit(ctx context.Context, lease Lease, c *Commit) (applied Applied, posted []string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, err := m.held(ctx, lease)
	if err != nil {
		return 0, nil, err
	}
	defer r.settle()
	if applied, err := c.Judge(r.Sequence, r.Status, r.next); applied != AppliedNow || err != nil {
		return applied, nil, err
	}
	if !c.EventsFollow(r.LastEvent) || !c.TakenFollow(r.Taken, r.Posted) {
		return Conflict, nil, nil
	}
	r.apply(c)
	m.addEvents(r, c.Events)
	r.Sequence, r.WakeAt = c.Sequence, c.WakeAt
	if c.Spec != nil {
		r.Spec = *c.Spec
	}
	if c.Run != nil {
		r.Record = c.Run
	}
	if c.Compensation != nil {
		r.Compensation = *c.Compensation
	}
	if len(c.Usage) > 0 {
		r.Usage = c.Usage
	}
	if c.Status != machine.RunPending {
		r.Status = c.Status
	}
	switch {
	case c.Status.Terminal():
		r.Ended = time.Now()
	case !r.Status.Terminal():
		r.Ended = time.Time{}
	}
	r.answer(c)
	return AppliedNow, m.await(r, c), nil
}

// Load implements [Store].
func (m *Memory) Load(ctx context.Context, run string) (*Run, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.runs[run]
	if r == nil {
		return nil, fmt.Errorf("%w: %s", ErrUnknownRun, foreign.Quote(run))
	}
	return r.copy(), nil
}

// Runs returns the ids of all runs, sorted.
func (m *Memory) Runs() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.runs))
}
