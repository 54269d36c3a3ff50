package storetest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-c794f7ef/kahn/machine"
	"github.com/seed-c794f7ef/kahn/store"
)

// dueNow returns an error if the run is due but "want" is false, or if it is not due but "want" is true. It looks at the WakeAt that Load returns.
// If the store is a [store.Admin], it also looks at the WakeAt that List returns.
func dueNow(ctx context.Context, s store.Inbox, run string, want bool) error {
	r, err := s.Load(ctx, run)
	if err != nil {
		return err
	}
	times := []time.Time{r.WakeAt}
	if admin, ok := s.(store.Admin); ok {
		page, err := admin.List(ctx, store.Query{Filter: store.Filter{Prefix: run}})
		if err != nil || len(page.Runs) != 1 {
			return fmt.Errorf("%d runs are listed, %w", len(page.Runs), err)
		}
		times = append(times, page.Runs[0].WakeAt)
	}
	for _, t := range times {
		if due := !t.IsZero() && t.Before(time.Now().Add(time.Second)); due != want {
			return fmt.Errorf("the run wakes at %v, and is due: %v instead of %v", t, due, want)
		}
	}
	return nil
}

func requestsDue(ctx context.Context, s store.Inbox) error {
	lease, err := begun(ctx, s, "r")
	if err != nil {
		return err
	}
	rest := store.Commit{Sequence: 2, Status: machine.RunSuspended}
	got, err := s.Commit(ctx, lease, rest)
	if err := errors.Join(expect("the rest", got, err, store.AppliedNow), dueNow(ctx, s, "r", false), postTo(ctx, s, "r", aSignal(1)), dueNow(ctx, s, "r", true)); err != nil {
		return err
	}
	for i, row := range []struct {
		what    string
		wakeAt  time.Time
		answers []string
		posted  int // the number of the request that is posted after the commit; 0 if there is none
		due     bool
	}{
		{"without an answer", time.Time{}, nil, 0, true},
		{"that wakes later, without an answer", future, nil, 0, true},
		{"with the answer", time.Time{}, []string{"1"}, 0, false},
		{"that wakes later", future, nil, 2, true},
		{"that answers one of two", future, nil, 3, true},
		{"that answers one of two", future, []string{"2"}, 0, true},
		{"that answers the other", future, []string{"3: no"}, 0, false},
	} {
		c := answering(uint64(3+i), row.answers...)
		c.WakeAt = row.wakeAt
		got, err := s.Commit(ctx, lease, c)
		if err := expect("a commit "+row.what, got, err, store.AppliedNow); err != nil {
			return err
		}
		if row.posted > 0 {
			if err := postTo(ctx, s, "r", aSignal(row.posted)); err != nil {
				return err
			}
		}
		if err := dueNow(ctx, s, "r", row.due); err != nil {
			return fmt.Errorf("a commit %s: %w", row.what, err)
		}
	}
	return nil
}

// requestsServed: the method Due of a QueueStore returns a run while one of its requests waits, unless the run is leased.
func requestsServed(ctx context.Context, s store.Inbox) error {
	queues, ok := s.(store.QueueStore)
	if !ok {
		return nil
	}
	lease, err := begun(ctx, s, "r")
	if err != nil {
		return err
	}
	due := func(what string, want int) error {
		page, err := queues.Due(ctx, store.DueQuery{Queues: []store.Queue{{}}})
		return errors.Join(err, same("runs that are due "+what, len(page.Runs), want))
	}
	got, err := s.Commit(ctx, lease, store.Commit{Sequence: 2, Status: machine.RunSuspended, WakeAt: future})
	if err := errors.Join(expect("the rest", got, err, store.AppliedNow), s.Release(ctx, lease), due("without a request", 0), postTo(ctx, s, "r", aSignal(1)), due("with a request", 1)); err != nil {
		return err
	}
	lease, _, err = s.Acquire(ctx, "r", "owner", ttl)
	if err := errors.Join(err, due("while somebody has the run", 0)); err != nil {
		return err
	}
	c := answering(3, "1")
	c.WakeAt = future
	got, err = s.Commit(ctx, lease, c)
	return errors.Join(expect("the answer", got, err, store.AppliedNow), s.Release(ctx, lease), due("after the answer", 0))
}

func requestsBeforeBegin(ctx context.Context, s store.Inbox) error {
	admin, ok := s.(store.Admin)
	if !ok {
		return nil
	}
	n := aRun("r", "later", store.Refuse)
	n.NotBefore = future
	if _, _, err := admin.Create(ctx, n); err != nil {
		return err
	}
	if err := errors.Join(postTo(ctx, s, "r", aSignal(1)), dueNow(ctx, s, "r", false), postTo(ctx, s, "r", aCancel), dueNow(ctx, s, "r", true), postTo(ctx, s, "r", aSignal(2)), dueNow(ctx, s, "r", true)); err != nil {
		return err
	}
	n = aRun("x", "later", store.Refuse)
	n.NotBefore = future
	if _, _, err := admin.Create(ctx, n); err != nil {
		return err
	}
	if err := errors.Join(postTo(ctx, s, "x", aSignal(1)), dueNow(ctx, s, "x", false)); err != nil {
		return err
	}
	if _, err := begun(ctx, s, "x"); err != nil {
		return err
	}
	return dueNow(ctx, s, "x", true)
}
