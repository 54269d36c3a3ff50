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

func TestMemoryInbox(t *testing.T) {
	t.Parallel()
	storetest.RunInbox(t, func(*testing.T) store.Inbox { return new(store.Memory) })
}

// careless is a correct inbox behind a layer with one defect.
type careless struct {
	*store.Memory
	lease  store.Lease // the newest lease
	post   func(s *careless, ctx context.Context, run string, q store.Request) (bool, error)
	commit func(s *careless, ctx context.Context, l store.Lease, c store.Commit) (store.Applied, error)
	load   func(list []store.PostedRequest) []store.PostedRequest
	find   func(q *store.PostedRequest, err error) error
	run    func(r *store.Run)
	told   func(run string) string
	sleepy bool // Due ignores requests
	noisy  bool // watchers are called after their watch has ended
}

func (s *careless) Due(ctx context.Context, q store.DueQuery) (store.DuePage, error) {
	page, err := s.Memory.Due(ctx, q)
	page.Runs = slices.DeleteFunc(page.Runs, func(r store.Run) bool {
		stored, _ := s.Memory.Load(ctx, r.ID)
		return s.sleepy && stored.Posted > stored.Taken
	})
	return page, err
}

func (s *careless) Acquire(ctx context.Context, run, owner string, ttl time.Duration) (store.Lease, *store.Run, error) {
	l, r, err := s.Memory.Acquire(ctx, run, owner, ttl)
	if s.lease = l; err == nil && s.run != nil {
		s.run(r)
	}
	return l, r, err
}

func (s *careless) Load(ctx context.Context, run string) (*store.Run, error) {
	r, err := s.Memory.Load(ctx, run)
	if err == nil && s.run != nil {
		s.run(r)
	}
	return r, err
}

func (s *careless) Commit(ctx context.Context, l store.Lease, c store.Commit) (store.Applied, error) {
	if s.commit != nil {
		return s.commit(s, ctx, l, c)
	}
	return s.Memory.Commit(ctx, l, c)
}

func (s *careless) Post(ctx context.Context, run string, q store.Request) (bool, error) {
	if s.post != nil {
		return s.post(s, ctx, run, q)
	}
	return s.Memory.Post(ctx, run, q)
}

func (s *careless) LoadRequests(ctx context.Context, run string, after uint64, limit int) ([]store.PostedRequest, error) {
	list, err := s.Memory.LoadRequests(ctx, run, after, limit)
	if err == nil && s.load != nil {
		list = s.load(list)
	}
	return list, err
}

func (s *careless) FindRequest(ctx context.Context, run, id string) (store.PostedRequest, error) {
	q, err := s.Memory.FindRequest(ctx, run, id)
	if s.find != nil {
		err = s.find(&q, err)
	}
	return q, err
}

func (s *careless) WatchRequests(run string, arrived func(string)) func() {
	stop := s.Memory.WatchRequests(through(s.told, run), arrived)
	if s.noisy {
		stop = func() {}
	}
	return stop
}

// TestInboxDefects plants defects in how a store keeps requests; the named check must find each of them.
func TestInboxDefects(t *testing.T) {
	t.Parallel()
	const stored, answered, due, once = "requests are stored", "a commit answers requests", "a run with a request is due", "a request is posted once"
	type postFunc = func(s *careless, ctx context.Context, run string, q store.Request) (bool, error)
	type commitFunc = func(s *careless, ctx context.Context, l store.Lease, c store.Commit) (store.Applied, error)
	posted := func(change func(q *store.Request)) postFunc {
		return func(s *careless, ctx context.Context, run string, q store.Request) (bool, error) {
			change(&q)
			return s.Memory.Post(ctx, run, q)
		}
	}
	commit := func(change func(c *store.Commit)) commitFunc {
		return func(s *careless, ctx context.Context, l store.Lease, c store.Commit) (store.Applied, error) {
			change(&c)
			return s.Memory.Commit(ctx, l, c)
		}
	}
	forgiving := func(kind error) postFunc {
		return func(s *careless, ctx context.Context, run string, q store.Request) (bool, error) {
			ok, err := s.Memory.Post(ctx, run, q)
			if errors.Is(err, kind) {
				err = nil
			}
			return ok, err
		}
	}
	answersFirst := func(s *careless, ctx context.Context, l store.Lease, c store.Commit) (store.Applied, error) { // in a separate transaction
		r, err := s.Memory.Load(ctx, l.Run)
		if err != nil || len(c.Taken) == 0 || len(c.Started) == 0 || c.Sequence != r.Sequence+1 {
			return s.Memory.Commit(ctx, l, c)
		}
		if a, err := s.Memory.Commit(ctx, l, store.Commit{Sequence: c.Sequence, Taken: c.Taken}); err != nil || a != store.AppliedNow {
			return a, err
		}
		c.Taken, c.Sequence = nil, c.Sequence+1
		return s.Memory.Commit(ctx, l, c)
	}
	for _, row := range []struct {
		name  string
		store careless
		check string
	}{
		{"no defect", careless{}, ""},
		{"requests are lost", careless{post: func(_ *careless, _ context.Context, _ string, _ store.Request) (bool, error) { return true, nil }}, stored},
		{"the actor is lost", careless{post: posted(func(q *store.Request) { q.Actor = "" })}, stored},
		{"the newest request comes first", careless{load: func(list []store.PostedRequest) []store.PostedRequest {
			slices.Reverse(list)
			return list
		}}, stored},
		{"a page lacks its last request", careless{load: func(list []store.PostedRequest) []store.PostedRequest { return list[:min(len(list), 19)] }}, "requests are loaded in pages"},
		{"a conflict is forgiven", careless{post: forgiving(store.ErrRequestConflict)}, once},
		{"a repetition is told as new", careless{post: func(s *careless, ctx context.Context, run string, q store.Request) (bool, error) {
			_, err := s.Memory.Post(ctx, run, q)
			return err == nil, err
		}}, once},
		{"nonsense is dropped", careless{post: func(s *careless, ctx context.Context, run string, q store.Request) (bool, error) {
			if q.Check() != nil {
				return true, nil
			}
			return s.Memory.Post(ctx, run, q)
		}}, "requests that make no sense"},
		{"an unknown run takes requests", careless{post: forgiving(store.ErrUnknownRun)}, "requests for an unknown run"},
		{"an unknown request waits", careless{find: func(_ *store.PostedRequest, err error) error {
			if errors.Is(err, store.ErrUnknownRequest) {
				return nil
			}
			return err
		}}, "requests for an unknown run"},
		{"Post under a dead context", careless{post: func(s *careless, ctx context.Context, run string, q store.Request) (bool, error) {
			return s.Memory.Post(context.WithoutCancel(ctx), run, q)
		}}, "a cancelled context ends calls of an inbox"},
		{"answers are lost", careless{commit: commit(func(c *store.Commit) { c.Taken = nil })}, answered},
		{"one answer of a commit is stored", careless{commit: commit(func(c *store.Commit) { c.Taken = c.Taken[:min(1, len(c.Taken))] })}, answered},
		{"refused requests are applied", careless{commit: commit(func(c *store.Commit) {
			c.Taken = slices.Clone(c.Taken)
			for i := range c.Taken {
				c.Taken[i].Refused = ""
			}
		})}, answered},
		{"the numbers are not loaded", careless{run: func(r *store.Run) { r.Posted, r.Taken = 0, 0 }}, answered},
		{"answers are put in order", careless{commit: commit(func(c *store.Commit) {
			slices.SortFunc(c.Taken, func(a, b store.TakenRequest) int { return int(a.Number) - int(b.Number) })
		})}, "requests are answered in their order"},
		{"answers to nothing are dropped", careless{commit: func(s *careless, ctx context.Context, l store.Lease, c store.Commit) (store.Applied, error) {
			if r, err := s.Memory.Load(ctx, l.Run); err == nil && c.Sequence == r.Sequence+1 && !c.TakenFollow(r.Taken, r.Posted) {
				c.Taken = nil
			}
			return s.Memory.Commit(ctx, l, c)
		}}, "requests are answered in their order"},
		{"answers come before their effects", careless{commit: answersFirst}, "an answer and its effect are one transaction"},
		{"a duplicate answers the next one", careless{commit: func(s *careless, ctx context.Context, l store.Lease, c store.Commit) (store.Applied, error) {
			a, err := s.Memory.Commit(ctx, l, c)
			if a == store.Duplicate && len(c.Taken) > 0 {
				r, _ := s.Memory.Load(ctx, l.Run)
				_, _ = s.Memory.Commit(ctx, l, store.Commit{Sequence: c.Sequence + 1, Taken: []store.TakenRequest{{Number: r.Taken + 1}}})
			}
			return a, err
		}}, "a duplicate answers no request twice"},
		{"answers are not fenced", careless{commit: func(s *careless, ctx context.Context, l store.Lease, c store.Commit) (store.Applied, error) {
			if len(c.Taken) > 0 {
				l = s.lease
			}
			return s.Memory.Commit(ctx, l, c)
		}}, "who was overtaken answers no request"},
		{"a request makes no run due", careless{run: func(r *store.Run) {
			if r.Status == machine.RunSuspended && r.WakeAt.Before(time.Now().Add(time.Minute)) {
				r.WakeAt = time.Time{}
			}
		}}, due},
		{"who serves is not told of requests", careless{sleepy: true}, "a run with a request is due to those who serve"},
		{"any request makes a run due", careless{run: func(r *store.Run) {
			if r.Posted > r.Taken {
				r.WakeAt = time.Now()
			}
		}}, "a run that has not begun is due for a cancel"},
		{"a run that has ended takes requests", careless{post: forgiving(store.ErrEnded)}, "the end of a run refuses requests"},
		{"a redrive revives requests", careless{run: func(r *store.Run) {
			if r.Posted == 4 && r.Taken == 3 {
				r.Taken = 1
			}
		}}, "the end of a run refuses requests"},
		{"all runs have one inbox", careless{post: func(s *careless, ctx context.Context, run string, q store.Request) (bool, error) {
			if run == "x" {
				run = "r"
			}
			return s.Memory.Post(ctx, run, q)
		}}, "requests of runs are apart"},
		{"watchers are not told", careless{told: func(run string) string { return run + "!" }}, "watchers are notified of requests"},
		{"watchers are told after their end", careless{noisy: true}, "watchers are notified of requests"},
		{"an imported run counts requests", careless{run: func(r *store.Run) {
			if r.Status == machine.RunCompleted && r.Posted == 0 {
				r.Posted, r.Taken = 2, 2
			}
		}}, "requests of pruned and replaced runs are gone"},
		{"a run that goes on takes redrives", careless{post: forgiving(store.ErrNotEnded)}, "redrives are posted for runs that have ended"},
		{"redrives are told apart by their ids alone", careless{post: forgiving(store.ErrRequestConflict)}, "redrives are posted for runs that have ended"},
		{"a refused redrive ends its run once more", careless{commit: func(s *careless, ctx context.Context, l store.Lease, c store.Commit) (store.Applied, error) {
			if r, err := s.Memory.Load(ctx, l.Run); err == nil && r.Status.Terminal() && !c.Reopen && len(c.Taken) > 0 && c.Taken[0].Refused != "" {
				c.Reopen, c.Status = true, r.Status
			}
			return s.Memory.Commit(ctx, l, c)
		}}, "redrives are refused without a change of the run"},
		{"the answer to a redrive is lost", careless{commit: commit(func(c *store.Commit) {
			if c.Reopen {
				c.Taken = nil
			}
		})}, "a redrive and its answer are one transaction"},
		{"who serves is not told of redrives", careless{sleepy: true}, "a run with a redrive is due to those who serve"},
		{"watchers are told of every run", careless{told: func(string) string { return "" }}, "watchers are notified of requests"},
	} {
		expectFound(t, row.name, row.check, storetest.CheckInbox, func() store.Inbox {
			s := row.store
			s.Memory = new(store.Memory)
			return &s
		})
	}
}
