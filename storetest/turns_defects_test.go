package storetest_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-c794f7ef/kahn/store"
	"github.com/seed-c794f7ef/kahn/storetest"
)

// turns is a correct store behind a layer that changes queries and answers about keys.
type turns struct {
	*store.Memory
	query  func(q *store.DueQuery)
	page   func(p *store.DuePage)
	turn   func(t *store.Turn)
	keys   func(k map[string]int) map[string]int
	filter func(f *store.Filter)
	create func(n *store.NewRun)
	commit func(c *store.Commit)
	forget bool // turns are not recorded
	late   bool // the number of runs is read before the lease is taken
	deaf   bool // AcquireTurn ignores its context

}

func (s *turns) Due(ctx context.Context, q store.DueQuery) (store.DuePage, error) {
	change(s.query, &q)
	p, err := s.Memory.Due(ctx, q)
	change(s.page, &p)
	return p, err
}

func (s *turns) AcquireTurn(ctx context.Context, run, owner string, ttl time.Duration, t store.Turn) (store.Lease, *store.Run, error) {
	if s.deaf {
		ctx = context.WithoutCancel(ctx)
	}
	change(s.turn, &t)
	if s.forget {
		return s.Acquire(ctx, run, owner, ttl)
	}
	if s.late && t.Most > 0 {
		keys, err := s.Memory.LeasedKeys(ctx)
		if err == nil && keys[t.Key] >= t.Most {
			owns, _, _ := s.ReadLease(ctx, run)
			if owns == "" {
				return store.Lease{}, nil, store.KeyFull(t)
			}
		}
		time.Sleep(10 * time.Millisecond)
		t.Most = 0
	}
	return s.Memory.AcquireTurn(ctx, run, owner, ttl, t)
}

func (s *turns) LeasedKeys(ctx context.Context) (map[string]int, error) {
	k, err := s.Memory.LeasedKeys(ctx)
	return through(s.keys, k), err
}

func (s *turns) List(ctx context.Context, q store.Query) (store.Page, error) {
	change(s.filter, &q.Filter)
	return s.Memory.List(ctx, q)
}

func (s *turns) Create(ctx context.Context, n store.NewRun) (*store.Run, bool, error) {
	if n.Check() == nil {
		change(s.create, &n)
	}
	return s.Memory.Create(ctx, n)
}

func (s *turns) Commit(ctx context.Context, l store.Lease, c store.Commit) (store.Applied, error) {
	change(s.commit, &c)
	return s.Memory.Commit(ctx, l, c)
}

// TestTurnDefects plants defects in store.TurnStore; the named check must find each of them.
func TestTurnDefects(t *testing.T) {
	t.Parallel()
	const stored, page, runs, full = "a key and a priority are stored", "turns of a page", "turns of one run after the other", "a key that is full"
	sortRuns := func(less func(a, b store.Run) int) func(*store.DuePage) {
		return func(p *store.DuePage) { slices.SortStableFunc(p.Runs, less) }
	}
	for _, row := range []struct {
		name  string
		store turns
		check string
	}{
		{"no defect", turns{}, ""},
		{"a priority is lost", turns{create: func(n *store.NewRun) { n.Priority = 0 }}, stored},
		{"a key is lost", turns{create: func(n *store.NewRun) { n.Key = "" }}, stored},
		{"a commit does not change the key", turns{commit: func(c *store.Commit) { c.Spec = nil }}, stored},
		{"a list knows no keys", turns{filter: func(f *store.Filter) { f.Key = "" }}, stored},
		{"a page has one key after the other", turns{page: sortRuns(func(a, b store.Run) int { return strings.Compare(a.Key, b.Key) })}, page},
		{"priorities come before turns", turns{page: sortRuns(func(a, b store.Run) int { return b.Priority - a.Priority })}, page},
		{"a full key is due", turns{query: func(q *store.DueQuery) { q.Full = nil }}, page},
		{"pages tell of no keys", turns{page: func(p *store.DuePage) { p.Keyed = false }}, page},
		{"turns are not noted", turns{forget: true}, runs},
		{"all turns are those of one key", turns{turn: func(t *store.Turn) { t.Key = "a" }}, runs},
		{"a page that was cut has no next one", turns{page: func(p *store.DuePage) {
			if p.Next == 0 {
				p.Next = store.Never
			}
		}}, "turns of many keys"},
		{"keys have no bound", turns{turn: func(t *store.Turn) { t.Most = 0 }}, full},
		{"the bound is one more", turns{turn: func(t *store.Turn) {
			if t.Most > 0 {
				t.Most++
			}
		}}, full},
		{"the runs without a key are counted", turns{keys: func(k map[string]int) map[string]int {
			if k != nil {
				k[""] = 1
			}
			return k
		}}, full},
		{"runs are counted, and then taken", turns{late: true}, "of competing acquisitions of a key as many succeed as may"},
		{"a run of another key is taken", turns{turn: func(t *store.Turn) { *t = store.Turn{Key: "a", Most: 1} }}, "a run of another key is not acquired"},
		{"AcquireTurn under a dead context", turns{deaf: true}, "turns under a cancelled context"},
	} {
		expectFound(t, row.name, row.check, storetest.CheckTurns, func() store.TurnStore {
			s := row.store
			s.Memory = new(store.Memory)
			return &s
		})
	}
}
