package store

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/seed-c794f7ef/kahn/internal/foreign"
	"github.com/seed-c794f7ef/kahn/internal/keyset"
)

var (
	_ Admin         = (*Memory)(nil)
	_ EventNotifier = (*Memory)(nil)
)

// The method `lock` locks m.mu, unless the context has ended.
func (m *Memory) lock(ctx context.Context) (unlock func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	return m.mu.Unlock, nil
}

// The method `head` returns the run without its record, events and nodes.
func (r *memoryRun) head() Run {
	head := r.Run
	head.Record, head.Events, head.Labels, head.Usage = nil, nil, maps.Clone(r.Labels), maps.Clone(r.Usage)
	return head
}

// The method `listed` returns the run as List and Due return it.
func (r *memoryRun) listed() Run {
	head := r.head()
	head.Inputs, head.Sequence, head.LastEvent, head.Posted, head.Taken = nil, 0, 0, 0, 0
	return head
}

// ReadLease implements [LeaseReader].
func (m *Memory) ReadLease(ctx context.Context, run string) (owner string, until time.Time, err error) {
	r, unlock, err := m.lockRun(ctx, run)
	if err != nil {
		return "", until, err
	}
	defer unlock()
	if r.leased() {
		owner, until = r.lease.Owner, r.expires
	}
	return owner, until, nil
}

// Create implements [Admin].
func (m *Memory) Create(ctx context.Context, n NewRun) (*Run, bool, error) {
	if err := n.Check(); err != nil {
		return nil, false, err
	}
	unlock, err := m.lock(ctx)
	if err != nil {
		return nil, false, err
	}
	defer unlock()
	return m.create(&n)
}

// The method `create` implements Create for a caller that has checked n and holds m.mu.
func (m *Memory) create(n *NewRun) (*Run, bool, error) {
	if r := m.runs[n.ID]; r != nil {
		if write, err := n.Judge(&r.Run, r.leased()); err != nil || !write {
			head := r.head()
			return &head, false, err
		}
	}
	head := m.add(Run{ID: n.ID, Spec: n.Spec, Created: time.Now(), WakeAt: n.NotBefore}).head()
	return &head, true, nil
}

// Insert implements [Admin].
func (m *Memory) Insert(ctx context.Context, r *Run) error {
	if err := r.Check(); err != nil {
		return err
	}
	unlock, err := m.lock(ctx)
	if err != nil {
		return err
	}
	if old := m.runs[r.ID]; old != nil {
		n := NewRun{ID: r.ID}
		if _, err := n.Judge(&old.Run, old.leased()); err != nil {
			unlock()
			return err
		}
	}
	posted := m.endAwaits(m.add(*r))
	unlock()
	for _, run := range posted {
		m.watch.Tell(run)
	}
	return nil
}

// The method `matching` returns the runs that the filter selects, the newest first.
func (m *Memory) matching(f *Filter) (list []*memoryRun) {
	for _, r := range m.runs {
		if f.Matches(&r.Run) {
			list = append(list, r)
		}
	}
	slices.SortFunc(list, func(a, b *memoryRun) int { return listOrder(&a.Run, b.Created.UnixNano(), b.ID) })
	return list
}

// listOrder compares the place of a run with the place of a cursor, in a list that begins with the newest run.
func listOrder(r *Run, created int64, id string) int {
	return cmp.Or(cmp.Compare(created, r.Created.UnixNano()), strings.Compare(r.ID, id))
}

// List implements [Admin].
func (m *Memory) List(ctx context.Context, q Query) (page Page, err error) {
	most, err := q.Bound()
	if err != nil {
		return page, err
	}
	after := func(*Run) bool { return true }
	if q.After != "" {
		created, id, err := keyset.Decode(q.After)
		if err != nil {
			return page, err
		}
		after = func(r *Run) bool { return listOrder(r, created, id) > 0 }
	}
	unlock, err := m.lock(ctx)
	if err != nil {
		return page, err
	}
	defer unlock()
	for _, r := range m.matching(&q.Filter) {
		if !after(&r.Run) {
			continue
		}
		if page.Runs = append(page.Runs, r.listed()); len(page.Runs) > most {
			break
		}
	}
	page.Cut(most, time.Time.UnixNano)
	return page, nil
}

// Count implements [Admin].
func (m *Memory) Count(ctx context.Context, f Filter) (counts []Count, err error) {
	unlock, err := m.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	sums := map[Count]int{}
	for _, r := range m.matching(&f) {
		sums[Count{Workflow: r.Workflow, Status: r.Status}]++
	}
	for c, n := range sums {
		c.Runs = n
		counts = append(counts, c)
	}
	SortCounts(counts)
	return counts, nil
}

// ListNodes implements [Admin].
func (m *Memory) ListNodes(ctx context.Context, run string, q NodeQuery) (page NodePage, err error) {
	first, most, err := q.Range()
	if err != nil {
		return page, err
	}
	unlock, err := m.lock(ctx)
	if err != nil {
		return page, err
	}
	defer unlock()
	r := m.runs[run]
	if r == nil {
		return page, fmt.Errorf("%w: %s", ErrUnknownRun, foreign.Quote(run))
	}
	for i := first; i < int64(len(r.nodes)) && len(page.Nodes) <= most; i++ {
		n := r.nodes[i].ListedNode
		if !q.Values {
			n.Value, n.Record = nil, nil
		}
		page.Nodes = append(page.Nodes, n)
	}
	page.Cut(first, most)
	return page, nil
}

// addEvents appends events to the log of a run. The caller holds m.mu.
func (m *Memory) addEvents(r *memoryRun, events []EventRecord) {
	if len(events) > 0 {
		r.Events, r.LastEvent = append(r.Events, events...), events[len(events)-1].ID
		m.board.Notify(r.ID)
	}
}

// LoadEvents implements [EventStore].
func (m *Memory) LoadEvents(ctx context.Context, run string, after uint64, limit int) (page EventPage, err error) {
	unlock, err := m.lock(ctx)
	if err != nil {
		return page, err
	}
	defer unlock()
	r := m.runs[run]
	if r == nil {
		return page, fmt.Errorf("%w: %s", ErrUnknownRun, foreign.Quote(run))
	}
	page = EventPage{Begun: r.Sequence > 0, Status: r.Status, Workflow: r.Workflow, Last: r.LastEvent}
	if len(r.Events) == 0 {
		return page, nil
	}
	page.First = r.Events[0].ID
	before := page.First - 1
	rest := r.Events[min(max(after, before), page.Last)-before:]
	page.Events = slices.Clone(rest[:min(limit, len(rest))])
	return page, nil
}

// NotifyEvents implements [EventNotifier].
func (m *Memory) NotifyEvents(run string) (changed <-chan struct{}, stop func()) {
	return m.board.Wait(run)
}

// Prune implements [Admin].
func (m *Memory) Prune(ctx context.Context, q PruneQuery) (pruned Pruned, err error) {
	if err := q.Check(); err != nil {
		return pruned, err
	}
	unlock, err := m.lock(ctx)
	if err != nil {
		return pruned, err
	}
	ticks := m.ticks()
	list := slices.DeleteFunc(m.matching(&Filter{Workflow: q.Workflow, Statuses: q.Statuses, EndedBefore: q.EndedBefore}), func(r *memoryRun) bool {
		return r.leased() || !r.over() || ticks[r.ID]
	})
	slices.SortStableFunc(list, func(a, b *memoryRun) int { return a.Ended.Compare(b.Ended) })
	if pruned.More = len(list) > q.Limit; pruned.More {
		list = list[:q.Limit]
	}
	for _, r := range list {
		m.leave(r)
		m.withdrawAll(r)
		delete(m.runs, r.ID)
		m.board.Notify(r.ID)
		pruned.Runs, pruned.Nodes = pruned.Runs+1, pruned.Nodes+len(r.nodes)
	}
	for _, r := range m.runs {
		for key := range r.blobs {
			delete(m.blobs, key)
		}
	}
	keys := slices.Sorted(maps.Keys(m.blobs))
	unlock()
	if q.Blobs == nil || len(keys) == 0 {
		return pruned, nil
	}
	gone, err := q.Sweep(ctx, keys)
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, key := range gone {
		delete(m.blobs, key)
	}
	pruned.Blobs = len(gone)
	return pruned, err
}
