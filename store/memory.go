package store

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/seed-c794f7ef/kahn/internal/foreign"
	"github.com/seed-c794f7ef/kahn/machine"
)

// Memory is a [Store] in memory, for tests and for runs that need to survive no more than their Run. The zero value is
// empty and ready for use.
type Memory struct {
	mu    sync.Mutex // guards what follows
	runs  map[string]*memoryRun
	blobs map[string]bool // that runs which were pruned referred to, and that were not removed yet
}

type memoryRun struct {
	Run
	order   []string // the keys of the nodes, as they were first written
	lease   Lease
	expires time.Time
}

// leased reports whether somebody holds the run.
func (r *memoryRun) leased() bool { return r.lease.Owner != "" && time.Now().Before(r.expires) }

// Acquire implements [Store].
func (m *Memory) Acquire(ctx context.Context, run, owner string, ttl time.Duration) (Lease, *Run, error) {
	if err := ctx.Err(); err != nil {
		return Lease{}, nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
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

// add adds a run, or replaces one.
func (m *Memory) add(r Run) *memoryRun {
	if m.runs == nil {
		m.runs = map[string]*memoryRun{}
	}
	x := &memoryRun{Run: r, lease: Lease{Run: r.ID}, order: slices.Sorted(maps.Keys(r.Nodes))}
	if old := m.runs[r.ID]; old != nil {
		x.lease, x.expires = old.lease, old.expires // which has ended; the next epoch is higher
	}
	if x.Nodes = maps.Clone(r.Nodes); x.Nodes == nil {
		x.Nodes = map[string]Node{}
	}
	m.runs[r.ID] = x
	return x
}

func (r *memoryRun) copy() *Run {
	c := r.Run
	c.Nodes, c.Labels = maps.Clone(r.Nodes), maps.Clone(r.Labels)
	return &c
}

// held returns the run of a lease that is the newest and has not run out.
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
	m.mu.Lock()
	defer m.mu.Unlock()
	r, err := m.held(ctx, lease)
	if err != nil {
		return 0, err
	}
	switch {
	case c.Sequence < r.Sequence:
		return Stale, nil
	case c.Sequence == r.Sequence:
		return Duplicate, nil
	case c.Sequence != r.Sequence+1 || !c.Reopen && (r.Status.Terminal() || len(c.Reset) > 0):
		return Conflict, nil
	}
	changed := map[string]Node{} // apart, so that nothing is applied if something is wrong
	for _, id := range c.Reset {
		if _, ok := r.Nodes[id]; ok {
			changed[id] = Node{}
		}
	}
	var fresh []string
	node := func(id string) Node {
		if n, ok := changed[id]; ok {
			return n
		}
		n, ok := r.Nodes[id]
		if !ok {
			fresh = append(fresh, id)
		}
		return n
	}
	for _, end := range c.Completed {
		n := node(end.Node)
		switch {
		case end.Attempt < n.Attempt:
			return Stale, nil
		case end.Attempt != n.Attempt || n.Completed:
			return Conflict, nil
		}
		n.Completed = true
		changed[end.Node] = n
	}
	for _, start := range c.Started {
		n := node(start.Node)
		switch {
		case start.Attempt <= n.Attempt:
			return Stale, nil
		case start.Attempt != n.Attempt+1 || n.Terminal:
			return Conflict, nil
		}
		n.Attempt, n.Queued, n.Completed = start.Attempt, false, false
		changed[start.Node] = n
	}
	for _, record := range c.Nodes {
		n := node(record.Node)
		if n.Terminal {
			return Conflict, nil
		}
		n.Columns, n.Terminal = record.Columns, record.Terminal
		n.Queued = n.Queued && !n.Terminal
		changed[record.Node] = n
	}
	for _, inc := range c.Readiness {
		n := node(inc.Node)
		n.Resolved += inc.By
		if n.Required = inc.Required; n.Resolved > n.Required {
			return 0, fmt.Errorf("%w: node %s: %d of %d", ErrReadinessOverflow, foreign.Quote(inc.Node), n.Resolved, n.Required)
		}
		changed[inc.Node] = n
	}
	for _, id := range c.Ready {
		n := node(id)
		n.Queued = true
		changed[id] = n
	}
	maps.Copy(r.Nodes, changed)
	r.order = append(r.order, fresh...)
	r.Sequence, r.WakeAt = c.Sequence, c.WakeAt
	if c.Spec != nil {
		r.Spec = *c.Spec
	}
	if c.Run != nil {
		r.Record = c.Run
	}
	if c.Status != machine.RunPending {
		r.Status = c.Status
	}
	if r.Ended = (time.Time{}); r.Status.Terminal() {
		r.Ended = time.Now()
	}
	return AppliedNow, nil
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
