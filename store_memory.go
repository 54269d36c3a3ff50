package kahn

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// MemoryStore is a [Store] in memory, for tests and for runs that need to survive no more than their Run. The zero value is
// empty and ready for use.
type MemoryStore struct {
	mu   sync.Mutex // guards what follows
	runs map[string]*memoryRun
}

type memoryRun struct {
	StoredRun
	lease   Lease
	expires time.Time
}

// Acquire implements [Store].
func (m *MemoryStore) Acquire(ctx context.Context, run, owner string, ttl time.Duration) (Lease, *StoredRun, error) {
	if err := ctx.Err(); err != nil {
		return Lease{}, nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.runs[run]
	if r == nil {
		if m.runs == nil {
			m.runs = map[string]*memoryRun{}
		}
		r = &memoryRun{StoredRun: StoredRun{ID: run, Nodes: map[string]StoredNode{}}, lease: Lease{Run: run}}
		m.runs[run] = r
	}
	now := time.Now()
	if r.lease.Owner != "" && r.lease.Owner != owner && now.Before(r.expires) {
		return Lease{}, nil, fmt.Errorf("%w: run %s, by %s", ErrLeased, quoteID(run), quoteID(r.lease.Owner))
	}
	r.lease = Lease{Run: run, Owner: owner, Epoch: r.lease.Epoch + 1}
	r.expires = now.Add(ttl)
	return r.lease, r.copy(), nil
}

func (r *memoryRun) copy() *StoredRun {
	c := r.StoredRun
	c.Nodes = maps.Clone(r.Nodes)
	return &c
}

// held returns the run of a lease that is the newest and has not run out.
func (m *MemoryStore) held(ctx context.Context, lease Lease) (*memoryRun, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	r := m.runs[lease.Run]
	switch {
	case r == nil:
		return nil, fmt.Errorf("%w: %s", ErrUnknownRun, quoteID(lease.Run))
	case r.lease != lease || lease.Owner == "" || !time.Now().Before(r.expires):
		return nil, fmt.Errorf("%w: run %s, epoch %d", ErrFenced, quoteID(lease.Run), lease.Epoch)
	}
	return r, nil
}

// Renew implements [Store].
func (m *MemoryStore) Renew(ctx context.Context, lease Lease, ttl time.Duration) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, err := m.held(ctx, lease)
	if err == nil {
		r.expires = time.Now().Add(ttl)
	}
	return err
}

// Release implements [Store].
func (m *MemoryStore) Release(_ context.Context, lease Lease) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.runs[lease.Run]; r != nil && r.lease == lease {
		r.lease.Owner = ""
	}
	return nil
}

// StartAttempt implements [Store].
func (m *MemoryStore) StartAttempt(ctx context.Context, lease Lease, start AttemptStart) (Applied, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, err := m.held(ctx, lease)
	if err != nil {
		return 0, err
	}
	n := r.Nodes[start.Node]
	switch {
	case start.Attempt < n.Attempt:
		return Stale, nil
	case start.Attempt == n.Attempt:
		return Duplicate, nil
	case start.Attempt != n.Attempt+1 || n.Terminal || r.Status.Terminal():
		return Conflict, nil
	}
	n.Attempt, n.Record, n.Queued, n.Completed = start.Attempt, start.Record, false, false
	r.Nodes[start.Node] = n
	return AppliedNow, nil
}

// Commit implements [Store].
func (m *MemoryStore) Commit(ctx context.Context, lease Lease, c Commit) (Applied, error) {
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
	case c.Sequence != r.Sequence+1 || r.Status.Terminal():
		return Conflict, nil
	}
	if done := c.Completed; done.Node != "" {
		switch n := r.Nodes[done.Node]; {
		case done.Attempt < n.Attempt:
			return Stale, nil
		case done.Attempt != n.Attempt || n.Completed:
			return Conflict, nil
		}
	}
	for _, record := range c.Nodes {
		if r.Nodes[record.Node].Terminal {
			return Conflict, nil
		}
	}
	counted := make(map[string]StoredNode, len(c.Readiness)) // apart, so that nothing is applied if something is wrong
	for _, inc := range c.Readiness {
		n, ok := counted[inc.Node]
		if !ok {
			n = r.Nodes[inc.Node]
		}
		n.Resolved += inc.By
		if n.Required = inc.Required; n.Resolved > n.Required {
			return 0, fmt.Errorf("%w: node %s: %d of %d", ErrReadinessOverflow, quoteID(inc.Node), n.Resolved, n.Required)
		}
		counted[inc.Node] = n
	}
	nodes := r.Nodes
	maps.Copy(nodes, counted)
	if done := c.Completed; done.Node != "" {
		n := nodes[done.Node]
		n.Completed = true
		nodes[done.Node] = n
	}
	for _, record := range c.Nodes {
		n := nodes[record.Node]
		n.Record, n.Terminal = record.Record, record.Terminal
		n.Queued = n.Queued && !n.Terminal
		nodes[record.Node] = n
	}
	for _, id := range c.Ready {
		n := nodes[id]
		n.Queued = true
		nodes[id] = n
	}
	r.Sequence = c.Sequence
	if c.Run != nil {
		r.Record = c.Run
	}
	if c.Status != RunPending {
		r.Status = c.Status
	}
	return AppliedNow, nil
}

// Load implements [Store].
func (m *MemoryStore) Load(ctx context.Context, run string) (*StoredRun, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.runs[run]
	if r == nil {
		return nil, fmt.Errorf("%w: %s", ErrUnknownRun, quoteID(run))
	}
	return r.copy(), nil
}

// Runs returns the ids of all runs, sorted.
func (m *MemoryStore) Runs() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.runs))
}
