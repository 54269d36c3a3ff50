package storetest_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/seed-c794f7ef/kahn/machine"
	"github.com/seed-c794f7ef/kahn/store"
	"github.com/seed-c794f7ef/kahn/storetest"
)

func TestMemoryEvents(t *testing.T) {
	t.Parallel()
	storetest.RunEvents(t, func(*testing.T) store.EventStore { return new(store.Memory) })
}

type commitFunc func(s *forgetful, ctx context.Context, l store.Lease, c store.Commit) (store.Applied, error)

// forgetful is a correct store of events behind a layer with one defect.
type forgetful struct {
	*store.Memory
	lease  store.Lease // the newest lease
	commit commitFunc
	page   func(s *forgetful, run string, after uint64, p *store.EventPage) // changes what LoadEvents returns
	run    func(r *store.Run)                                               // changes what Acquire and Load return
	insert func(r *store.Run)
	runID  func(id string) string // changes the run's id in LoadEvents
	told   func(id string) string // changes the run's id in NotifyEvents
	deaf   bool                   // LoadEvents ignores its context
	blind  bool                   // LoadEvents does not know which runs exist
	old    map[string]store.EventPage
}

func (s *forgetful) Acquire(ctx context.Context, run, owner string, ttl time.Duration) (store.Lease, *store.Run, error) {
	l, r, err := s.Memory.Acquire(ctx, run, owner, ttl)
	if s.lease = l; err == nil && s.run != nil {
		s.run(r)
	}
	return l, r, err
}

func (s *forgetful) Commit(ctx context.Context, l store.Lease, c store.Commit) (store.Applied, error) {
	if s.commit != nil {
		return s.commit(s, ctx, l, c)
	}
	return s.Memory.Commit(ctx, l, c)
}

func (s *forgetful) Load(ctx context.Context, run string) (*store.Run, error) {
	r, err := s.Memory.Load(ctx, run)
	if err == nil && s.run != nil {
		s.run(r)
	}
	return r, err
}

func (s *forgetful) LoadEvents(ctx context.Context, run string, after uint64, limit int) (store.EventPage, error) {
	if s.deaf {
		ctx = context.WithoutCancel(ctx)
	}
	p, err := s.Memory.LoadEvents(ctx, through(s.runID, run), after, limit)
	if s.blind && errors.Is(err, store.ErrUnknownRun) {
		return store.EventPage{}, nil
	}
	if err == nil && s.page != nil {
		s.page(s, run, after, &p)
	}
	return p, err
}

func (s *forgetful) Insert(ctx context.Context, r *store.Run) error {
	if s.insert != nil {
		other := *r
		s.insert(&other)
		r = &other
	}
	return s.Memory.Insert(ctx, r)
}

func (s *forgetful) NotifyEvents(run string) (<-chan struct{}, func()) {
	return s.Memory.NotifyEvents(through(s.told, run))
}

// twoCommits stores the events of a commit separately, before or after the rest of the commit.
func twoCommits(before bool) commitFunc {
	return func(s *forgetful, ctx context.Context, l store.Lease, c store.Commit) (store.Applied, error) {
		r, err := s.Memory.Load(ctx, l.Run)
		if err != nil || len(c.Events) == 0 || len(c.Nodes)+len(c.Completed)+len(c.Started)+len(c.Readiness)+len(c.Reset) == 0 && c.Status == 0 {
			return s.Memory.Commit(ctx, l, c)
		}
		if before {
			early := store.Commit{Sequence: r.Sequence + 1, Events: c.Events, WakeAt: r.WakeAt}
			if a, err := s.Memory.Commit(ctx, l, early); err != nil || a != store.AppliedNow {
				return a, err
			}
			c.Events, c.Sequence = nil, c.Sequence+1
			return s.Memory.Commit(ctx, l, c)
		}
		late := store.Commit{Sequence: c.Sequence + 1, Events: c.Events, WakeAt: c.WakeAt, Reopen: true}
		c.Events = nil
		a, err := s.Memory.Commit(ctx, l, c)
		if err == nil && a == store.AppliedNow {
			time.Sleep(time.Millisecond)
			return s.Memory.Commit(ctx, l, late)
		}
		return a, err
	}
}

// TestEventDefects plants defects in how a store keeps events; the named check must find each of them.
func TestEventDefects(t *testing.T) {
	t.Parallel()
	const stored, follow, whole, none, pages = "events are stored", "ids of events have no hole", "events and facts are one transaction", "a run without events", "events are loaded in pages"
	commit := func(change func(c *store.Commit)) commitFunc {
		return func(s *forgetful, ctx context.Context, l store.Lease, c store.Commit) (store.Applied, error) {
			change(&c)
			return s.Memory.Commit(ctx, l, c)
		}
	}
	page := func(change func(after uint64, p *store.EventPage)) func(*forgetful, string, uint64, *store.EventPage) {
		return func(_ *forgetful, _ string, after uint64, p *store.EventPage) { change(after, p) }
	}
	for _, row := range []struct {
		name  string
		store forgetful
		check string
	}{
		{"no defect", forgetful{}, ""},
		{"events are lost", forgetful{commit: commit(func(c *store.Commit) { c.Events = nil })}, stored},
		{"one event of a commit is stored", forgetful{commit: commit(func(c *store.Commit) { c.Events = c.Events[:min(1, len(c.Events))] })}, stored},
		{"events without records are lost", forgetful{commit: commit(func(c *store.Commit) {
			if c.Run == nil && c.Status == 0 {
				c.Events = nil
			}
		})}, stored},
		{"the events of the end are lost", forgetful{commit: commit(func(c *store.Commit) {
			if c.Status.Terminal() {
				c.Events = nil
			}
		})}, stored},
		{"data is cut", forgetful{commit: commit(func(c *store.Commit) {
			c.Events = slices.Clone(c.Events)
			for i := range c.Events {
				c.Events[i].Data = c.Events[i].Data[:min(64<<10, len(c.Events[i].Data))]
			}
		})}, "events of any size and characters"},
		{"logs begin with 1", forgetful{commit: commit(func(c *store.Commit) {
			if len(c.Events) > 0 && c.Events[0].ID == 21 {
				c.Events = slices.Clone(c.Events)
				for i := range c.Events {
					c.Events[i].ID -= 20
				}
			}
		})}, "a log begins with any id"},
		{"any ids are stored", forgetful{commit: func(s *forgetful, ctx context.Context, l store.Lease, c store.Commit) (store.Applied, error) {
			if r, err := s.Memory.Load(ctx, l.Run); err == nil && c.Sequence == r.Sequence+1 && !c.EventsFollow(r.LastEvent) {
				c.Events = nil
			}
			return s.Memory.Commit(ctx, l, c)
		}}, follow},
		{"events are stored before the rest", forgetful{commit: twoCommits(true)}, whole},
		{"events are stored after the rest", forgetful{commit: twoCommits(false)}, "a page shows the run at one moment"},
		{"a duplicate stores its events", forgetful{commit: func(s *forgetful, ctx context.Context, l store.Lease, c store.Commit) (store.Applied, error) {
			a, err := s.Memory.Commit(ctx, l, c)
			if a == store.Duplicate && len(c.Events) > 0 {
				r, _ := s.Memory.Load(ctx, l.Run)
				next := slices.Clone(c.Events)
				for i := range next {
					next[i].ID = r.LastEvent + 1 + uint64(i)
				}
				_, _ = s.Memory.Commit(ctx, l, store.Commit{Sequence: c.Sequence + 1, Events: next})
			}
			return a, err
		}}, "a duplicate stores no event twice"},
		{"events are not fenced", forgetful{commit: func(s *forgetful, ctx context.Context, l store.Lease, c store.Commit) (store.Applied, error) {
			if len(c.Events) > 0 {
				l = s.lease
			}
			return s.Memory.Commit(ctx, l, c)
		}}, "who was overtaken stores no event"},
		{"the last event is not loaded", forgetful{run: func(r *store.Run) { r.LastEvent = 0 }}, "the next owner learns the last event"},
		{"a redrive stores no events", forgetful{commit: commit(func(c *store.Commit) {
			if c.Reopen {
				c.Events = nil
			}
		})}, "a redrive goes on in the log"},
		{"all runs have one log", forgetful{runID: func(string) string { return "r" }}, "logs of runs are apart"},
		{"every run has begun", forgetful{page: page(func(_ uint64, p *store.EventPage) { p.Begun = true })}, none},
		{"the status is not told", forgetful{page: page(func(_ uint64, p *store.EventPage) { p.Status = machine.RunRunning })}, none},
		{"the workflow is not told", forgetful{page: page(func(_ uint64, p *store.EventPage) { p.Workflow = "" })}, none},
		{"an empty log has a first event", forgetful{page: page(func(_ uint64, p *store.EventPage) { p.First = max(1, p.First) })}, none},
		{"a page repeats its cursor", forgetful{page: page(func(after uint64, p *store.EventPage) {
			if after > 0 && len(p.Events) > 0 {
				p.Events[0].ID--
			}
		})}, pages},
		{"pages are empty", forgetful{page: page(func(after uint64, p *store.EventPage) {
			if after == 7 {
				p.Events = nil
			}
		})}, pages},
		{"the last event is that of the page", forgetful{page: page(func(_ uint64, p *store.EventPage) {
			if n := len(p.Events); n > 0 {
				p.Last = p.Events[n-1].ID
			}
		})}, pages},
		{"a page has one more", forgetful{page: page(func(_ uint64, p *store.EventPage) {
			if n := len(p.Events); n > 0 && p.Events[n-1].ID < p.Last {
				p.Events = append(p.Events, store.EventRecord{ID: p.Events[n-1].ID + 1})
			}
		})}, pages},
		{"an unknown run is empty", forgetful{blind: true}, "events of an unknown run"},
		{"LoadEvents under a dead context", forgetful{deaf: true}, "a cancelled context ends the loading of events"},
		{"readers are not told", forgetful{told: func(id string) string { return id + "!" }}, "readers are notified of new events"},
		{"readers are told of every run", forgetful{told: func(string) string { return "other" }}, "readers are notified of new events"},
		{"events of pruned runs stay", forgetful{page: func(s *forgetful, run string, _ uint64, p *store.EventPage) {
			if s.old == nil {
				s.old = map[string]store.EventPage{}
			}
			if p.Last == 0 && !p.Begun && p.Workflow != "" {
				*p = s.old[run]
			} else if p.Last > 0 {
				s.old[run] = *p
			}
		}}, "pruned events are gone"},
		{"events are not inserted", forgetful{insert: func(r *store.Run) { r.Events, r.LastEvent = nil, 0 }}, "events are exported and imported"},
		{"one page of events is inserted", forgetful{insert: func(r *store.Run) {
			r.Events = r.Events[:min(len(r.Events), store.MaxPage)]
			r.LastEvent = r.Events[len(r.Events)-1].ID
		}}, "events are exported and imported"},
	} {
		expectFound(t, row.name, row.check, storetest.CheckEvents, func() store.EventStore {
			s := row.store
			s.Memory = new(store.Memory)
			return &s
		})
	}
}
