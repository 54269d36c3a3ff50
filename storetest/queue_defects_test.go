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

// queues is a correct store behind a layer that changes queries, announcements and answers.
type queues struct {
	*store.Memory
	query    func(q *store.DueQuery)
	page     func(p *store.DuePage)
	announce func(a *store.Announcement)
	states   func(list []store.QueueState) []store.QueueState
	commit   func(c *store.Commit)
	deaf     bool // Due ignores its context

	said map[string][]store.Queue
}

func change[T any](f func(*T), x *T) {
	if f != nil {
		f(x)
	}
}

func (s *queues) Due(ctx context.Context, q store.DueQuery) (store.DuePage, error) {
	if s.deaf {
		ctx = context.WithoutCancel(ctx)
	}
	change(s.query, &q)
	p, err := s.Memory.Due(ctx, q)
	change(s.page, &p)
	return p, err
}

func (s *queues) Announce(ctx context.Context, a store.Announcement) error {
	change(s.announce, &a)
	if s.said != nil { // adds to the process's earlier announcements
		s.said[a.Process] = append(s.said[a.Process], a.Queues...)
		a.Queues = s.said[a.Process]
	}
	return s.Memory.Announce(ctx, a)
}

func (s *queues) Queues(ctx context.Context) ([]store.QueueState, error) {
	list, err := s.Memory.Queues(ctx)
	return through(s.states, list), err
}

func (s *queues) Commit(ctx context.Context, l store.Lease, c store.Commit) (store.Applied, error) {
	change(s.commit, &c)
	return s.Memory.Commit(ctx, l, c)
}

// TestQueueDefects plants defects in store.QueueStore; the named check must find each of them.
func TestQueueDefects(t *testing.T) {
	t.Parallel()
	each := func(f func(q *store.QueueState)) func([]store.QueueState) []store.QueueState {
		return func(list []store.QueueState) []store.QueueState {
			for i := range list {
				f(&list[i])
			}
			return list
		}
	}
	const due = "runs that are due"
	for _, row := range []struct {
		name  string
		store queues
		check string
	}{
		{"no defect", queues{}, ""},
		{"exceptions are due", queues{query: func(q *store.DueQuery) { q.Except = nil }}, due},
		{"a page has more than is asked", queues{query: func(q *store.DueQuery) { q.Limit = max(q.Limit, 0) * 10 }}, due},
		{"a negative limit is none", queues{query: func(q *store.DueQuery) { q.Limit = max(q.Limit, 0) }}, "queries and announcements that make no sense"},
		{"a page is in the order of ids", queues{page: func(p *store.DuePage) {
			slices.SortFunc(p.Runs, func(a, b store.Run) int { return strings.Compare(a.ID, b.ID) })
		}}, due},
		{"no run is due later", queues{page: func(p *store.DuePage) { p.Next = store.Never }}, due},
		{"a page has what a list leaves out", queues{page: func(p *store.DuePage) {
			for i := range p.Runs {
				p.Runs[i].Sequence = 1
			}
		}}, due},
		{"the end of a lease makes nothing due", queues{page: func(p *store.DuePage) {
			if p.Next > 0 && p.Next < 10*time.Minute {
				p.Next = time.Hour
			}
		}}, "a run that is leased"},
		{"a run stays in the queue of its first plan", queues{commit: func(c *store.Commit) { c.Spec = nil }}, "a run changes"},
		{"a time to wake is lost", queues{commit: func(c *store.Commit) { c.WakeAt = time.Time{} }}, "a run changes"},
		{"a queue is due at no time", queues{states: each(func(q *store.QueueState) { q.Due = time.Time{} })}, "queues"},
		{"plans of a workflow are one queue", queues{states: func(list []store.QueueState) []store.QueueState {
			return slices.CompactFunc(list, func(a, b store.QueueState) bool { return a.Workflow == b.Workflow })
		}}, "queues"},
		{"no queue is live", queues{states: each(func(q *store.QueueState) { q.Live = false })}, "announcements"},
		{"nobody knows when a queue was served", queues{states: each(func(q *store.QueueState) { q.Served = time.Time{} })}, "announcements"},
		{"announcements last", queues{announce: func(a *store.Announcement) { a.TTL = max(a.TTL, time.Hour) }}, "announcements"},
		{"announcements add up", queues{said: map[string][]store.Queue{}}, "announcements"},
		{"owners of one name", queues{announce: func(a *store.Announcement) { a.Owner = "" }}, "owners of one name"},
		{"Due under a dead context", queues{deaf: true}, "a cancelled context"},
	} {
		expectFound(t, row.name, row.check, storetest.CheckQueues, func() store.QueueStore {
			s := row.store
			s.Memory = new(store.Memory)
			if s.said != nil {
				s.said = map[string][]store.Queue{}
			}
			return &s
		})
	}
}
