package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-c794f7ef/kahn/machine"
	"github.com/seed-c794f7ef/kahn/store"
)

// RunTurns tests what [store.TurnStore] promises beyond [store.QueueStore]. Like [Run] it runs each check as a subtest.
func RunTurns(t *testing.T, open func(t *testing.T) store.TurnStore) {
	runAll(t, turnChecks, open)
}

// CheckTurns checks what [store.TurnStore] promises beyond [store.QueueStore], and returns the failures as [Check] does.
func CheckTurns(ctx context.Context, open func() store.TurnStore) []error {
	return findAll(ctx, turnChecks, open)
}

var turnChecks = []check[store.TurnStore]{
	{"a key and a priority are stored", keysStored},
	{"turns of a page", turnsOfPage},
	{"turns of one run after the other", turnsOfRuns},
	{"turns of many keys", turnsOfMany},
	{"a key that is full", keyFull},
	{"redrives of a key that is full", redrivesOfFullKey},
	{"of competing acquisitions of a key as many succeed as may", keyCompetes},
	{"a run of another key is not acquired", otherKey},
	{"turns under a cancelled context", turnsContext},
}

// The function `keyed` returns a run that has been due for the given time.
func keyed(id, key string, priority int, due time.Duration) *store.Run {
	r := queued(id, oneQueue, machine.RunPending, past(due), time.Time{})
	r.Key, r.Priority = key, priority
	return r
}

// keysStored: Create, AcquireTurn, List and Load return the key and the priority of a run, and a commit can change both.
func keysStored(ctx context.Context, s store.TurnStore) error {
	spec := store.Spec{Workflow: oneQueue.Workflow, Plan: oneQueue.Plan, Key: "acmé", Priority: -7}
	stored, _, err := s.Create(ctx, store.NewRun{ID: "r", Spec: spec})
	if err != nil {
		return err
	}
	if err := errors.Join(same("the key that Create returns", stored.Key, spec.Key), same("the priority", stored.Priority, -7), insertAll(ctx, s, keyed("other", "Acmé", 3, time.Hour), keyed("none", "", 0, time.Hour))); err != nil {
		return err
	}
	lease, loaded, err := s.AcquireTurn(ctx, "r", "owner", ttl, store.Turn{Key: "acmé"})
	if err != nil {
		return err
	}
	if err := errors.Join(same("the key that is loaded", loaded.Key, spec.Key), same("the priority that is loaded", loaded.Priority, -7)); err != nil {
		return err
	}
	page, err := s.List(ctx, store.Query{Filter: store.Filter{Key: "acmé"}})
	if err != nil {
		return err
	}
	if len(page.Runs) != 1 || page.Runs[0].Key != "acmé" || page.Runs[0].Priority != -7 {
		return fmt.Errorf("the list of a key: %+v", page.Runs)
	}
	counts, err := s.Count(ctx, store.Filter{Key: "Acmé"})
	if err := errors.Join(err, same("the count of a key", counts, []store.Count{{Workflow: "w1", Status: machine.RunPending, Runs: 1}})); err != nil {
		return err
	}
	spec.Key, spec.Priority = "b", 5
	for i, c := range []store.Commit{{Status: machine.RunRunning, Spec: &spec}, {Usage: map[string]float64{"x": 1}}} {
		c.Sequence, c.Run = uint64(i+1), record("run")
		applied, err := s.Commit(ctx, lease, c)
		if err := expect(fmt.Sprint("commit ", i+1), applied, err, store.AppliedNow); err != nil {
			return err
		}
	}
	if loaded, err = s.Load(ctx, "r"); err != nil {
		return err
	}
	if err := errors.Join(same("the key after a commit", loaded.Key, "b"), same("the priority after a commit", loaded.Priority, 5)); err != nil {
		return err
	}
	for _, n := range []store.NewRun{{ID: "x", Spec: store.Spec{Key: strings.Repeat("k", store.MaxKey+1)}}, {ID: "x", Spec: store.Spec{Priority: store.MaxPriority + 1}}, {ID: "x", Spec: store.Spec{Key: "\xff"}}} {
		_, _, err := s.Create(ctx, n)
		if err := expectError("a key or a priority that makes no sense", err, machine.ErrBadValue); err != nil {
			return err
		}
	}
	return nil
}

// turnsOfPage: the first run of each key comes before the second run of any key. Within a key, runs with higher priorities come first. At equal
// priority, runs that have been due for longer come first.
func turnsOfPage(ctx context.Context, s store.TurnStore) error {
	var many []string
	for i := range 200 {
		r := keyed(fmt.Sprintf("a-%03d", i), "a", 0, 5*time.Hour-time.Duration(i)*time.Second)
		if err := insertAll(ctx, s, r); err != nil {
			return err
		}
		many = append(many, r.ID)
	}
	if err := insertAll(ctx, s, keyed("b", "b", 0, time.Hour)); err != nil {
		return err
	}
	q := store.DueQuery{Queues: []store.Queue{oneQueue, otherQueue}, Limit: 20}
	page, err := s.Due(ctx, q)
	if err != nil {
		return err
	}
	var ids []string
	for _, r := range page.Runs {
		ids = append(ids, r.ID)
	}
	if at := slices.Index(ids, "b"); at != 1 {
		return fmt.Errorf("the run of the key b, due after 200 of the key a, is at the place %d of the page: %q", at, ids)
	}
	if want := append([]string{"a-000", "b"}, many[1:]...)[:len(ids)]; !slices.Equal(ids, want) || page.Next != 0 || !page.Keyed {
		return fmt.Errorf("the page has %q, not %q, Next %v, Keyed %v", ids, want, page.Next, page.Keyed)
	}
	later := keyed("later", "c", 9, time.Hour)
	later.WakeAt = past(-time.Hour)
	of := keyed("of another plan", "a", 1, time.Minute)
	of.Plan = otherQueue.Plan
	if err := insertAll(ctx, s, later, of, keyed("urgent", "b", 2, time.Minute), keyed("urgent too", "b", 2, time.Second), keyed("low", "b", -1, 9*time.Hour), keyed("none", "", 0, 2*time.Hour), keyed("none too", "", 0, 90*time.Minute)); err != nil {
		return err
	}
	q.Limit, q.Except = 8, []string{"a-000", "a-002"}
	page, err = s.Due(ctx, q)
	if err := expectDue("with priorities", page, err, "urgent", "of another plan", "none", "urgent too", "a-001", "none too", "a-003", "b"); err != nil {
		return err
	}
	q.Full, q.Limit = []string{"a", "nobody"}, 100
	page, err = s.Due(ctx, q)
	if err := expectDue("without a key that is full", page, err, "urgent", "none", "urgent too", "none too", "b", "low"); err != nil {
		return err
	}
	if page.Next < 50*time.Minute || page.Next > time.Hour {
		return fmt.Errorf("the next run is due in an hour, not in %v", page.Next)
	}
	q.Full = []string{"a", "b", ""}
	page, err = s.Due(ctx, q)
	return expectDue("all keys are full", page, err)
}

// takeTurn acquires the first run that is due, and ends it.
func takeTurn(ctx context.Context, s store.TurnStore, q store.DueQuery) (string, error) {
	q.Limit = 1
	page, err := s.Due(ctx, q)
	if err != nil || len(page.Runs) != 1 {
		return "", fmt.Errorf("%d runs are due, %w", len(page.Runs), err)
	}
	r := page.Runs[0]
	lease, _, err := s.AcquireTurn(ctx, r.ID, "owner", ttl, store.Turn{Key: r.Key})
	if err != nil {
		return "", err
	}
	applied, err := s.Commit(ctx, lease, store.Commit{Sequence: 1, Run: record("run"), Status: machine.RunCompleted})
	return r.ID, errors.Join(expect("the end of "+r.ID, applied, err, store.AppliedNow), s.Release(ctx, lease))
}

// turnsOfRuns: if a process takes one run after the other, the keys take turns, and a late run waits for at most one run of each other key.
func turnsOfRuns(ctx context.Context, s store.TurnStore) error {
	for i := range 6 {
		if err := insertAll(ctx, s, keyed(fmt.Sprint("a", i), "a", 0, 9*time.Hour-time.Duration(i)*time.Minute), keyed(fmt.Sprint("b", i), "b", 9, 5*time.Hour-time.Duration(i)*time.Minute), keyed(fmt.Sprint("n", i), "", 0, 3*time.Hour-time.Duration(i)*time.Minute)); err != nil {
			return err
		}
	}
	q := store.DueQuery{Queues: []store.Queue{oneQueue}}
	var got []string
	for i := range 12 {
		if i == 7 {
			if err := insertAll(ctx, s, keyed("late", "c", -5, time.Minute)); err != nil {
				return err
			}
		}
		id, err := takeTurn(ctx, s, q)
		if err != nil {
			return err
		}
		got = append(got, id)
	}
	return same("the order in which runs were taken", got, []string{"b0", "a0", "n0", "b1", "a1", "n1", "b2", "late", "a2", "n2", "b3", "a3"})
}

// turnsOfMany: a page of many keys may have fewer runs than its limit, although more runs are due. Its Next is then 0, and the other runs are on
// later pages.
func turnsOfMany(ctx context.Context, s store.TurnStore) error {
	want := map[string]bool{}
	for k := range 12 {
		for i := range 1 + k*k/8 {
			r := keyed(fmt.Sprintf("%d-%d", k, i), fmt.Sprint("key", k), i%3, time.Hour+time.Duration(i)*time.Second)
			if err := insertAll(ctx, s, r); err != nil {
				return err
			}
			want[r.ID] = true
		}
	}
	q, pages := store.DueQuery{Queues: []store.Queue{oneQueue}, Limit: 10}, 0
	ranks := map[string]int{} // by key: how many runs of the key were seen before
	for last := 0; len(want) > 0; pages++ {
		page, err := s.Due(ctx, q)
		if err != nil {
			return err
		}
		for _, r := range page.Runs {
			if !want[r.ID] {
				return fmt.Errorf("page %d has %s twice", pages, r.ID)
			}
			delete(want, r.ID)
			q.Except = append(q.Except, r.ID)
			ranks[r.Key]++
		}
		if len(page.Runs) == 0 || len(page.Runs) > 10 || (page.Next == 0) != (len(want) > 0) {
			return fmt.Errorf("page %d has %d runs, Next %v, and %d are left", pages, len(page.Runs), page.Next, len(want))
		}
		if last += len(page.Runs); pages == 1 && len(ranks) < 12 {
			return fmt.Errorf("after %d runs only %d of 12 keys have had a turn", last, len(ranks))
		}
	}
	return nil
}

// redrivesOfFullKey: Due returns the redrives of other keys even if the redrives of a full key alone would fill a page.
func redrivesOfFullKey(ctx context.Context, s store.TurnStore) error {
	inbox, ok := s.(store.Inbox)
	if !ok {
		return nil
	}
	for _, id := range []string{"a1", "a2", "a3", "b"} {
		n := store.NewRun{ID: id, Spec: store.Spec{Workflow: oneQueue.Workflow, Plan: oneQueue.Plan, Key: id[:1]}}
		lease, err := begunAs(ctx, s, n)
		if err != nil {
			return err
		}
		got, err := s.Commit(ctx, lease, store.Commit{Sequence: 2, Status: machine.RunFailed, Run: record("failed")})
		if err := errors.Join(expect("the end", got, err, store.AppliedNow), s.Release(ctx, lease), postTo(ctx, inbox, id, aRedrive("1"))); err != nil {
			return err
		}
	}
	page, err := s.Due(ctx, store.DueQuery{Queues: []store.Queue{oneQueue}, Full: []string{"a"}, Limit: 1})
	return expectDue("the redrive of a key that is not full", page, err, "b")
}

// keyFull: at most Turn.Most runs of a key are leased at once. Another run can be acquired when one of these leases was released or has expired, or
// when one of these runs has ended.
func keyFull(ctx context.Context, s store.TurnStore) error {
	for i := range 5 {
		if err := insertAll(ctx, s, keyed(fmt.Sprint("a", i), "a", 0, time.Hour), keyed(fmt.Sprint("n", i), "", 0, time.Hour)); err != nil {
			return err
		}
	}
	if err := insertAll(ctx, s, keyed("b", "b", 0, time.Hour)); err != nil {
		return err
	}
	take := func(id, key string, d time.Duration) (store.Lease, error) {
		lease, _, err := s.AcquireTurn(ctx, id, "owner", d, store.Turn{Key: key, Most: 2})
		return lease, err
	}
	first, err := take("a0", "a", ttl)
	if err != nil {
		return err
	}
	second, err := take("a1", "a", ttl)
	if err != nil {
		return err
	}
	_, err = take("a2", "a", ttl)
	if err := expectError("a third run of a key that may have two", err, store.ErrKeyFull); err != nil {
		return err
	}
	if _, err = take("a1", "a", ttl); err != nil {
		return fmt.Errorf("the same owner takes one of the two again: %w", err)
	}
	if _, err = take("b", "b", ttl); err != nil {
		return fmt.Errorf("a run of another key: %w", err)
	}
	keys, err := s.LeasedKeys(ctx)
	if err := errors.Join(err, same("the leased keys", keys, map[string]int{"a": 2, "b": 1})); err != nil {
		return err
	}
	if err := s.Release(ctx, first); err != nil {
		return err
	}
	if _, err = take("a2", "a", short); err != nil {
		return fmt.Errorf("a place was given back: %w", err)
	}
	_, err = take("a3", "a", ttl)
	if err := expectError("both places are taken again", err, store.ErrKeyFull); err != nil {
		return err
	}
	time.Sleep(short + 20*time.Millisecond)
	third, err := take("a3", "a", ttl)
	if err != nil {
		return fmt.Errorf("a lease has run out: %w", err)
	}
	applied, err := s.Commit(ctx, third, store.Commit{Sequence: 1, Run: record("run"), Status: machine.RunFailed})
	if err := expect("the end of a run", applied, err, store.AppliedNow); err != nil {
		return err
	}
	if _, err = take("a4", "a", ttl); err != nil {
		return fmt.Errorf("a run has ended: %w", err)
	}
	keys, err = s.LeasedKeys(ctx)
	if err := errors.Join(err, same("the leased keys at the end", keys, map[string]int{"a": 2, "b": 1})); err != nil {
		return err
	}
	return expectError("a renewal by the lease before the owner took the run again", s.Renew(ctx, second, ttl), store.ErrFenced)
}

// keyCompetes: if more than Turn.Most calls acquire runs of a key at once, exactly Turn.Most calls succeed.
func keyCompetes(ctx context.Context, s store.TurnStore) error {
	const rounds, n = 12, 6
	for round := range rounds {
		key, most := fmt.Sprint("key", round), 1+round%3
		for i := range n {
			if err := insertAll(ctx, s, keyed(fmt.Sprint(key, "-", i), key, 0, time.Hour)); err != nil {
				return err
			}
		}
		errs := make([]error, n)
		var all sync.WaitGroup
		for i := range n {
			all.Go(func() {
				_, _, errs[i] = s.AcquireTurn(ctx, fmt.Sprint(key, "-", i), fmt.Sprint("owner", i), ttl, store.Turn{Key: key, Most: most})
			})
		}
		all.Wait()
		taken := 0
		for _, err := range errs {
			switch {
			case err == nil:
				taken++
			case !errors.Is(err, store.ErrKeyFull):
				return fmt.Errorf("an acquisition at once with others: %w", err)
			}
		}
		if err := same("the runs that were taken at once", taken, most); err != nil {
			return err
		}
	}
	return nil
}

// otherKey: a call of AcquireTurn acquires neither a run with another key nor a run that is not stored.
func otherKey(ctx context.Context, s store.TurnStore) error {
	if err := insertAll(ctx, s, keyed("r", "a", 0, time.Hour)); err != nil {
		return err
	}
	for _, t := range []struct {
		run string
		store.Turn
	}{{"r", store.Turn{Key: "b"}}, {"r", store.Turn{Key: "", Most: 1}}, {"none", store.Turn{Key: "a", Most: 1}}, {"none", store.Turn{}}} {
		_, _, err := s.AcquireTurn(ctx, t.run, "owner", ttl, t.Turn)
		if err := expectError(fmt.Sprintf("%s with the key %q", t.run, t.Key), err, store.ErrUnknownRun); err != nil {
			return err
		}
	}
	_, err := s.Load(ctx, "none")
	if err := expectError("a run that was not stored", err, store.ErrUnknownRun); err != nil {
		return err
	}
	if _, _, err = s.AcquireTurn(ctx, "r", "owner", ttl, store.Turn{Key: "a", Most: 1}); err != nil {
		return err
	}
	_, _, err = s.AcquireTurn(ctx, "r", "other", ttl, store.Turn{Key: "a", Most: 1})
	return expectError("a run that another owner has", err, store.ErrLeased)
}

func turnsContext(ctx context.Context, s store.TurnStore) error {
	if err := insertAll(ctx, s, keyed("r", "a", 0, time.Hour)); err != nil {
		return err
	}
	dead, cancel := context.WithCancel(ctx)
	cancel()
	_, keys := s.LeasedKeys(dead)
	_, _, turn := s.AcquireTurn(dead, "r", "owner", ttl, store.Turn{Key: "a", Most: 1})
	for what, err := range map[string]error{"LeasedKeys": keys, "AcquireTurn": turn} {
		if err := expectError(what, err, context.Canceled); err != nil {
			return err
		}
	}
	return nil
}
