package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/seed-c794f7ef/kahn/machine"
	"github.com/seed-c794f7ef/kahn/store"
)

// RunQueues tests what [store.QueueStore] promises beyond [store.Admin]. Like [Run] it runs each check as a subtest.
func RunQueues(t *testing.T, open func(t *testing.T) store.QueueStore) {
	runAll(t, queueChecks, open)
}

// CheckQueues checks what [store.QueueStore] promises beyond [store.Admin], and returns the failures as [Check] does.
func CheckQueues(ctx context.Context, open func() store.QueueStore) []error {
	return findAll(ctx, queueChecks, open)
}

var queueChecks = []check[store.QueueStore]{
	{"runs that are due", dueRuns},
	{"pages of runs that are due", duePages},
	{"a run that is leased", dueLeased},
	{"a run changes", dueChanges},
	{"queues", queueStates},
	{"announcements", announced},
	{"owners of one name", ownersInUse},
	{"queries and announcements that make no sense", queuesBad},
	{"a cancelled context", queuesContext},
}

// The constant `short` is the duration of leases, announcements and rates in checks that wait until this duration has passed. A check must succeed
// even if its other calls take longer than this on a slow machine.
const short = 100 * time.Millisecond

var oneQueue, otherQueue = store.Queue{Workflow: "w1", Plan: "p1"}, store.Queue{Workflow: "w1", Plan: "p2"}

// The function `queued` returns a run in a queue. The run has begun, unless its status is RunPending.
func queued(id string, q store.Queue, status machine.RunStatus, created, wake time.Time) *store.Run {
	r := &store.Run{ID: id, Spec: store.Spec{Workflow: q.Workflow, Plan: q.Plan}, Status: status, Created: created, WakeAt: wake}
	if status != machine.RunPending {
		r.Sequence, r.Record = 1, record("run")
	}
	if status.Terminal() {
		r.Ended = created.Add(time.Second)
	}
	return r
}

// insertAll inserts runs.
func insertAll(ctx context.Context, s store.Admin, runs ...*store.Run) error {
	for _, r := range runs {
		if err := s.Insert(ctx, r); err != nil {
			return fmt.Errorf("insert %s: %w", r.ID, err)
		}
	}
	return nil
}

// The function `past` returns the time d ago, in whole seconds.
func past(d time.Duration) time.Time { return time.Now().Add(-d).UTC().Truncate(time.Second) }

// expectDue returns an error unless a page has the wanted runs in the wanted order.
func expectDue(what string, page store.DuePage, err error, want ...string) error {
	var got []string
	for _, r := range page.Runs {
		got = append(got, r.ID)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return same(what, got, want)
}

// dueRuns: Due returns the runs that are due, in the right order, and the time until the next run is due.
func dueRuns(ctx context.Context, s store.QueueStore) error {
	soon, now := past(-time.Hour), past(0)
	err := insertAll(ctx, s,
		queued("b-woken", oneQueue, machine.RunSuspended, past(9*time.Hour), past(3*time.Hour)),
		queued("a-woken", oneQueue, machine.RunSuspended, past(8*time.Hour), past(3*time.Hour)),
		queued("waiting", oneQueue, machine.RunSuspended, past(9*time.Hour), time.Time{}),
		queued("later", oneQueue, machine.RunSuspended, past(9*time.Hour), soon),
		queued("crashed", oneQueue, machine.RunRunning, past(2*time.Hour), soon.Add(time.Hour)),
		queued("created", oneQueue, machine.RunPending, past(4*time.Hour), time.Time{}),
		queued("not-before", oneQueue, machine.RunPending, past(9*time.Hour), now),
		queued("tomorrow", oneQueue, machine.RunPending, past(9*time.Hour), soon.Add(time.Minute)),
		queued("completed", oneQueue, machine.RunCompleted, past(9*time.Hour), time.Time{}),
		queued("failed", oneQueue, machine.RunFailed, past(9*time.Hour), past(time.Hour)),
		queued("cancelled", oneQueue, machine.RunCancelled, past(9*time.Hour), time.Time{}),
		queued("of another plan", otherQueue, machine.RunRunning, past(5*time.Hour), time.Time{}),
		queued("of another workflow", store.Queue{Workflow: "W1", Plan: "p1"}, machine.RunRunning, past(5*time.Hour), time.Time{}),
		queued("without a plan", store.Queue{Workflow: "w1"}, machine.RunPending, past(6*time.Hour), time.Time{}),
	)
	if err != nil {
		return err
	}
	for what, row := range map[string]struct {
		q    store.DueQuery
		want []string
		next time.Duration // the least time until the next run is due; 0 if more runs are due now; store.Never if no run becomes due
	}{
		"one queue":             {store.DueQuery{Queues: []store.Queue{oneQueue}}, []string{"created", "a-woken", "b-woken", "crashed", "not-before"}, 50 * time.Minute},
		"two queues, one twice": {store.DueQuery{Queues: []store.Queue{otherQueue, oneQueue, otherQueue}}, []string{"of another plan", "created", "a-woken", "b-woken", "crashed", "not-before"}, 50 * time.Minute},
		"without a plan":        {store.DueQuery{Queues: []store.Queue{{Workflow: "w1"}}}, []string{"without a plan"}, store.Never},
		"with exceptions":       {store.DueQuery{Queues: []store.Queue{oneQueue}, Except: []string{"created", "b-woken", "nobody", "later"}}, []string{"a-woken", "crashed", "not-before"}, 50 * time.Minute},
		"as many as are asked":  {store.DueQuery{Queues: []store.Queue{oneQueue}, Limit: 5}, []string{"created", "a-woken", "b-woken", "crashed", "not-before"}, 50 * time.Minute},
		"fewer than there are":  {store.DueQuery{Queues: []store.Queue{otherQueue, oneQueue}, Limit: 3}, []string{"of another plan", "created", "a-woken"}, 0},
		"no such queue":         {store.DueQuery{Queues: []store.Queue{{Workflow: "w2", Plan: "p1"}}}, nil, store.Never},
		"no queue":              {store.DueQuery{}, nil, store.Never},
	} {
		page, err := s.Due(ctx, row.q)
		if err := expectDue(what, page, err, row.want...); err != nil {
			return err
		}
		if least := row.next; page.Next < least || page.Next > least+20*time.Minute || least <= 0 && page.Next != least {
			return fmt.Errorf("%s: the next one in %v instead of about %v", what, page.Next, least)
		}
		for _, r := range page.Runs {
			if r.Inputs != nil || r.Record != nil || r.Sequence != 0 || len(r.Nodes) > 0 || r.Workflow == "" || r.Created.IsZero() {
				return fmt.Errorf("%s: %+v is not as in a list", what, r)
			}
		}
	}
	return nil
}

// duePages: a query that leaves out the runs of one page gets the next page.
func duePages(ctx context.Context, s store.QueueStore) error {
	var want, got []string
	for i := range 25 {
		r := queued(fmt.Sprintf("r-%02d", 99-i), oneQueue, machine.RunRunning, past(time.Hour).Add(time.Duration(i)*time.Second), time.Time{})
		if err := insertAll(ctx, s, r); err != nil {
			return err
		}
		want = append(want, r.ID)
	}
	for range 3 {
		page, err := s.Due(ctx, store.DueQuery{Queues: []store.Queue{oneQueue}, Except: got, Limit: 10})
		if err != nil {
			return err
		}
		if more := len(got) < 15; more != (page.Next == 0) {
			return fmt.Errorf("after %d runs Next is %v", len(got), page.Next)
		}
		for _, r := range page.Runs {
			got = append(got, r.ID)
		}
	}
	return same("the runs of three pages", got, want)
}

// dueLeased: a leased run is not due; it becomes due when the lease runs out.
func dueLeased(ctx context.Context, s store.QueueStore) error {
	if err := insertAll(ctx, s, queued("r", oneQueue, machine.RunRunning, past(time.Hour), time.Time{}), queued("w", oneQueue, machine.RunSuspended, past(time.Hour), past(time.Minute))); err != nil {
		return err
	}
	q := store.DueQuery{Queues: []store.Queue{oneQueue}}
	lease, _, err := s.Acquire(ctx, "r", "owner", 2*ttl)
	if err != nil {
		return err
	}
	if _, _, err = s.Acquire(ctx, "w", "owner", ttl); err != nil {
		return err
	}
	page, err := s.Due(ctx, q)
	if err := expectDue("both are leased", page, err); err != nil {
		return err
	}
	if page.Next <= 0 || page.Next > ttl {
		return fmt.Errorf("the first lease ends in %v at the latest, and the next run is due in %v", ttl, page.Next)
	}
	if _, _, err = s.Acquire(ctx, "w", "owner", short); err != nil {
		return err
	}
	time.Sleep(short + 20*time.Millisecond)
	page, err = s.Due(ctx, q)
	if err := expectDue("a lease has run out", page, err, "w"); err != nil {
		return err
	}
	if err := s.Release(ctx, lease); err != nil {
		return err
	}
	page, err = s.Due(ctx, q)
	return expectDue("a lease was released", page, err, "r", "w")
}

// dueChanges: a commit can change the time at which a run is due, and the queue that the run is in.
func dueChanges(ctx context.Context, s store.QueueStore) error {
	if _, _, err := s.Create(ctx, store.NewRun{ID: "r", Spec: store.Spec{Workflow: "w1", Plan: "p1"}}); err != nil {
		return err
	}
	both := store.DueQuery{Queues: []store.Queue{oneQueue, otherQueue}}
	for i, row := range []struct {
		c    store.Commit
		q    store.DueQuery
		want []string
		next bool
	}{
		{store.Commit{Status: machine.RunRunning}, both, []string{"r"}, false},
		{store.Commit{Status: machine.RunSuspended}, both, nil, false},
		{store.Commit{WakeAt: past(time.Minute)}, both, []string{"r"}, false},
		{store.Commit{WakeAt: past(-time.Hour)}, both, nil, true},
		{store.Commit{Status: machine.RunRunning, Spec: &store.Spec{Workflow: "w1", Plan: "p2"}}, store.DueQuery{Queues: []store.Queue{oneQueue}}, nil, false},
		{store.Commit{}, store.DueQuery{Queues: []store.Queue{otherQueue}}, []string{"r"}, false},
		{store.Commit{Status: machine.RunCompleted}, both, nil, false},
	} {
		lease, _, err := s.Acquire(ctx, "r", "owner", ttl)
		if err != nil {
			return err
		}
		row.c.Sequence, row.c.Run = uint64(i+1), record("run")
		applied, err := s.Commit(ctx, lease, row.c)
		if err := expect(fmt.Sprint("commit ", i+1), applied, err, store.AppliedNow); err != nil {
			return err
		}
		if err := s.Release(ctx, lease); err != nil {
			return err
		}
		page, err := s.Due(ctx, row.q)
		if err := expectDue(fmt.Sprint("after commit ", i+1), page, err, row.want...); err != nil {
			return err
		}
		if row.next != (page.Next > 0) {
			return fmt.Errorf("after commit %d the next run is due in %v", i+1, page.Next)
		}
	}
	return nil
}

// queueStates: Queues returns the queues of the runs that have not ended.
func queueStates(ctx context.Context, s store.QueueStore) error {
	if _, _, err := s.Acquire(ctx, "of nothing", "owner", ttl); err != nil {
		return err
	}
	at := past(time.Hour)
	err := insertAll(ctx, s,
		queued("a", otherQueue, machine.RunSuspended, past(5*time.Hour), time.Time{}),
		queued("b", oneQueue, machine.RunSuspended, past(5*time.Hour), at), queued("c", oneQueue, machine.RunPending, past(5*time.Hour), at.Add(time.Minute)),
		queued("d", oneQueue, machine.RunCompleted, past(9*time.Hour), time.Time{}),
		queued("e", store.Queue{Workflow: "w0", Plan: "p"}, machine.RunFailed, past(9*time.Hour), time.Time{}),
		queued("f", store.Queue{Workflow: "w2"}, machine.RunPending, at, time.Time{}),
	)
	if err != nil {
		return err
	}
	got, err := s.Queues(ctx)
	if err != nil {
		return err
	}
	return same("the queues", utc(got), []store.QueueState{
		{Queue: oneQueue, Runs: 2, Due: at}, {Queue: otherQueue, Runs: 1}, {Queue: store.Queue{Workflow: "w2"}, Runs: 1, Due: at},
	})
}

func utc(list []store.QueueState) []store.QueueState {
	for i := range list {
		list[i].Due, list[i].Served = list[i].Due.UTC(), list[i].Served.UTC()
	}
	return list
}

// liveQueues returns the plans of the queues that a live process serves.
func liveQueues(ctx context.Context, s store.QueueStore) (live []string, served map[string]time.Time, err error) {
	list, err := s.Queues(ctx)
	served = map[string]time.Time{}
	for _, q := range list {
		if served[q.Plan] = q.Served; q.Live {
			live = append(live, q.Plan)
		}
	}
	return live, served, err
}

// announced: an announcement replaces the former announcement of the same process, and ends when its TTL has passed. For a queue that no process
// serves any longer, Queues returns as Served when the last announcement ended.
func announced(ctx context.Context, s store.QueueStore) error {
	third := store.Queue{Workflow: "w1", Plan: "p3"}
	for i, q := range []store.Queue{oneQueue, otherQueue, third} {
		if err := insertAll(ctx, s, queued(fmt.Sprint(i), q, machine.RunSuspended, past(time.Hour), time.Time{})); err != nil {
			return err
		}
	}
	for i, row := range []struct {
		process string
		queues  []store.Queue
		live    []string
	}{
		{"one", []store.Queue{oneQueue, otherQueue, oneQueue}, []string{"p1", "p2"}},
		{"one", []store.Queue{third, oneQueue}, []string{"p1", "p3"}},
		{"two", []store.Queue{oneQueue, otherQueue}, []string{"p1", "p2", "p3"}},
		{"one", nil, []string{"p1", "p2"}},
		{"three", nil, []string{"p1", "p2"}},
		{"two", []store.Queue{otherQueue}, []string{"p2"}},
	} {
		if err := s.Announce(ctx, store.Announcement{Process: row.process, Queues: row.queues, TTL: ttl}); err != nil {
			return err
		}
		live, _, err := liveQueues(ctx, s)
		if err := errors.Join(err, same(fmt.Sprint("the live queues after announcement ", i+1), live, row.live)); err != nil {
			return err
		}
	}
	if err := s.Announce(ctx, store.Announcement{Process: "two", Queues: []store.Queue{otherQueue}, TTL: short}); err != nil {
		return err
	}
	time.Sleep(short + 20*time.Millisecond)
	live, served, err := liveQueues(ctx, s)
	if err := errors.Join(err, same("the live queues when the time has passed", live, nil)); err != nil {
		return err
	}
	for plan, at := range served {
		if ago := time.Since(at); at.IsZero() || ago < 0 || ago > time.Minute/2 {
			return fmt.Errorf("the queue %s was served until %v", plan, at)
		}
	}
	stranded, err := store.Unclaimable(ctx, s)
	return errors.Join(err, same("the unclaimable queues", len(stranded), 3))
}

// ownersInUse: if two processes announce the same owner, the store refuses the second process until the announcement of the first has ended.
func ownersInUse(ctx context.Context, s store.QueueStore) error {
	if err := insertAll(ctx, s, queued("a", oneQueue, machine.RunSuspended, past(time.Hour), time.Time{}), queued("b", otherQueue, machine.RunSuspended, past(time.Hour), time.Time{})); err != nil {
		return err
	}
	announce := func(process, owner string, d time.Duration, queues ...store.Queue) error {
		return s.Announce(ctx, store.Announcement{Process: process, Owner: owner, Queues: queues, TTL: d})
	}
	if err := errors.Join(announce("one", "us", ttl, oneQueue), announce("other", "them", ttl, oneQueue), announce("none", "", ttl, oneQueue), announce("none too", "", ttl, oneQueue)); err != nil {
		return err
	}
	if err := expectError("a second process", announce("two", "us", ttl, otherQueue), store.ErrOwnerInUse); err != nil {
		return err
	}
	if live, _, err := liveQueues(ctx, s); err != nil || !slices.Equal(live, []string{"p1"}) {
		return fmt.Errorf("a refused announcement has made %q live, %w", live, err)
	}
	if err := errors.Join(announce("one", "us", ttl, oneQueue), announce("two", "us", ttl)); err != nil {
		return fmt.Errorf("the first process goes on, and the second one has nothing to announce: %w", err)
	}
	if err := expectError("a second process", announce("two", "us", ttl, otherQueue), store.ErrOwnerInUse); err != nil {
		return err
	}
	if err := announce("one", "us", short, oneQueue); err != nil {
		return err
	}
	time.Sleep(short + 20*time.Millisecond)
	if err := announce("two", "us", ttl, otherQueue); err != nil {
		return fmt.Errorf("the first process is gone: %w", err)
	}
	if err := expectError("the first process comes back", announce("one", "us", ttl, oneQueue), store.ErrOwnerInUse); err != nil {
		return err
	}
	return errors.Join(announce("two", "us", 0), announce("one", "us", ttl, oneQueue))
}

func queuesBad(ctx context.Context, s store.QueueStore) error {
	for what, f := range map[string]func() error{
		"a negative limit":     func() error { _, err := s.Due(ctx, store.DueQuery{Limit: -1}); return err },
		"a limit that is high": func() error { _, err := s.Due(ctx, store.DueQuery{Limit: store.MaxPage + 1}); return err },
		"no process":           func() error { return s.Announce(ctx, store.Announcement{Queues: []store.Queue{oneQueue}, TTL: ttl}) },
		"no time": func() error {
			return s.Announce(ctx, store.Announcement{Process: "p", Queues: []store.Queue{oneQueue}})
		},
	} {
		if err := expectError(what, f(), machine.ErrBadValue); err != nil {
			return err
		}
	}
	return nil
}

func queuesContext(ctx context.Context, s store.QueueStore) error {
	dead, cancel := context.WithCancel(ctx)
	cancel()
	_, due := s.Due(dead, store.DueQuery{Queues: []store.Queue{oneQueue}})
	_, queues := s.Queues(dead)
	announce := s.Announce(dead, store.Announcement{Process: "p", Queues: []store.Queue{oneQueue}, TTL: ttl})
	for what, err := range map[string]error{"Due": due, "Queues": queues, "Announce": announce} {
		if err := expectError(what, err, context.Canceled); err != nil {
			return err
		}
	}
	return nil
}
