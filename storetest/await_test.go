package storetest_test

import (
	"context"
	"slices"
	"testing"

	"github.com/seed-c794f7ef/kahn/machine"
	"github.com/seed-c794f7ef/kahn/store"
	"github.com/seed-c794f7ef/kahn/storetest"
)

func TestMemoryAwaits(t *testing.T) {
	t.Parallel()
	storetest.RunAwaits(t, func(*testing.T) store.Awaiter { return new(store.Memory) })
}

// awaiter is a correct store behind a layer that changes commits, requests and awaits.
type awaiter struct {
	*store.Memory
	commit func(ctx context.Context, m *store.Memory, l store.Lease, c store.Commit) (store.Applied, error)
	answer func(e *store.Ended)
	list   func(list []store.Await) []store.Await
	post   func(q *store.Request)
	deaf   bool // WatchRequests never reports a request
}

func (s *awaiter) Commit(ctx context.Context, l store.Lease, c store.Commit) (store.Applied, error) {
	if s.commit != nil {
		return s.commit(ctx, s.Memory, l, c)
	}
	return s.Memory.Commit(ctx, l, c)
}

func (s *awaiter) LoadAwaits(ctx context.Context, run string) ([]store.Await, error) {
	list, err := s.Memory.LoadAwaits(ctx, run)
	return through(s.list, list), err
}

func (s *awaiter) Post(ctx context.Context, run string, q store.Request) (bool, error) {
	change(s.post, &q)
	return s.Memory.Post(ctx, run, q)
}

func (s *awaiter) LoadRequests(ctx context.Context, run string, after uint64, limit int) ([]store.PostedRequest, error) {
	list, err := s.Memory.LoadRequests(ctx, run, after, limit)
	for i := range list {
		if q := &list[i]; q.Kind == store.KindEnded && s.answer != nil {
			e, bad := q.Ended()
			s.answer(&e)
			told, bad2 := e.Request(q.Node, q.Number)
			if q.Value = told.Value; bad != nil || bad2 != nil {
				return nil, bad
			}
		}
	}
	return list, err
}

func (s *awaiter) WatchRequests(run string, arrived func(run string)) (stop func()) {
	if s.deaf {
		return func() {}
	}
	return s.Memory.WatchRequests(run, arrived)
}

// TestAwaitDefects plants defects in store.Awaiter; the named check must find each of them.
func TestAwaitDefects(t *testing.T) {
	t.Parallel()
	without := func(f func(c *store.Commit)) func(ctx context.Context, m *store.Memory, l store.Lease, c store.Commit) (store.Applied, error) {
		return func(ctx context.Context, m *store.Memory, l store.Lease, c store.Commit) (store.Applied, error) {
			f(&c)
			return m.Commit(ctx, l, c)
		}
	}
	for _, row := range []struct {
		name  string
		store awaiter
		check string
	}{
		{"no defect", awaiter{}, ""},
		{"nothing is awaited", awaiter{commit: without(func(c *store.Commit) { c.Awaits = nil })}, "the end of a run answers"},
		{"one node of a commit awaits", awaiter{commit: without(func(c *store.Commit) { c.Awaits = c.Awaits[:min(1, len(c.Awaits))] })}, "the end of a run answers"},
		{"each status is a success", awaiter{answer: func(e *store.Ended) {
			if e.Status.Terminal() {
				e.Status = machine.RunCompleted
			}
		}}, "the end of a run answers"},
		{"nobody is told", awaiter{deaf: true}, "the end of a run answers"},
		{"answered waits stay", awaiter{list: func(list []store.Await) []store.Await {
			return append(list, store.Await{Node: "x", Run: "c"})[:max(1, len(list))]
		}}, "the end of a run answers"},
		{"no order", awaiter{list: func(list []store.Await) []store.Await { slices.Reverse(list); return list }}, "the end of a run answers"},
		{"what is unknown has failed", awaiter{answer: func(e *store.Ended) {
			if e.Unknown {
				*e = store.Ended{Run: e.Run, Status: machine.RunFailed}
			}
		}}, "what has ended, and what is unknown, answers at once"},
		{"a cycle has no path", awaiter{answer: func(e *store.Ended) { e.Cycle = e.Cycle[:min(1, len(e.Cycle))] }}, "runs do not await one another"},
		{"nothing is withdrawn", awaiter{commit: without(func(c *store.Commit) {
			c.Awaits = slices.DeleteFunc(slices.Clone(c.Awaits), func(a store.Await) bool { return a.Run == "" })
		})}, "a node awaits one run"},
		{"a refused commit awaits", awaiter{commit: func(ctx context.Context, m *store.Memory, l store.Lease, c store.Commit) (store.Applied, error) {
			got, err := m.Commit(ctx, l, c)
			if r, failed := m.Load(ctx, l.Run); failed == nil && got != store.AppliedNow && len(c.Awaits) > 0 {
				_, _ = m.Commit(ctx, l, store.Commit{Sequence: r.Sequence + 1, Awaits: c.Awaits})
			}
			return got, err
		}}, "a commit that is not applied awaits nothing"},
		{"the end and its answers are two transactions", awaiter{commit: func(ctx context.Context, m *store.Memory, l store.Lease, c store.Commit) (store.Applied, error) {
			awaits := c.Awaits
			c.Awaits = nil
			got, err := m.Commit(ctx, l, c)
			if err != nil || got != store.AppliedNow || c.Status.Terminal() || len(awaits) == 0 {
				return got, err
			}
			return m.Commit(ctx, l, store.Commit{Sequence: c.Sequence + 1, Awaits: awaits}) // the sequence of the run's next commit will not fit
		}}, "a node awaits one run"},
		{"anybody posts answers", awaiter{post: func(q *store.Request) {
			if q.Kind == store.KindEnded {
				q.Kind, q.ID = store.KindSignal, "forged"
			}
		}}, "only the store posts answers"},
	} {
		expectFound(t, row.name, row.check, storetest.CheckAwaits, func() store.Awaiter {
			s := row.store
			s.Memory = new(store.Memory)
			return &s
		})
	}
}
