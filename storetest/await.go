package storetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/machine"
	"github.com/seed-c794f7ef/kahn/store"
)

// RunAwaits tests what [store.Awaiter] promises beyond [store.Inbox]. Like [Run] it runs each check as a subtest. If the store is a
// [store.Admin], RunAwaits also tests runs that are created, replaced, inserted and removed.
func RunAwaits(t *testing.T, open func(t *testing.T) store.Awaiter) {
	runAll(t, awaitChecks, open)
}

// CheckAwaits checks what [store.Awaiter] promises beyond [store.Inbox], and returns the failures as [Check] does.
func CheckAwaits(ctx context.Context, open func() store.Awaiter) []error {
	return findAll(ctx, awaitChecks, open)
}

// awaitChecks get new and empty stores.
var awaitChecks = []check[store.Awaiter]{
	{"the end of a run answers", awaitsAnswered},
	{"what has ended, and what is unknown, answers at once", awaitsAtOnce},
	{"runs do not await one another", awaitsCycles},
	{"a node awaits one run", awaitsReplaced},
	{"a commit that is not applied awaits nothing", awaitsRefused},
	{"a run that has ended gets no answer", awaitsLate},
	{"a run that has not begun is awaited", awaitsPending},
	{"an await and an end at one moment", awaitsRace},
	{"cycles that close at one moment", awaitsRing},
	{"many await one run", awaitsMany},
	{"only the store posts answers", awaitsPosted},
	{"runs of kahn await others", engineAwaits},
}

// The function `awaits` returns a commit with which nodes begin to await runs. An element of list is "node run", or "node" if the node ceases to
// await a run.
func awaits(sequence uint64, list ...string) store.Commit {
	c := store.Commit{Sequence: sequence}
	for _, text := range list {
		node, run, _ := strings.Cut(text, " ")
		c.Awaits = append(c.Awaits, store.Await{Node: node, Run: run})
	}
	return c
}

// The function `ending` returns a commit that ends a run.
func ending(sequence uint64, status machine.RunStatus) store.Commit {
	return store.Commit{Sequence: sequence, Status: status}
}

// The function `applies` makes the commits in the list, and returns an error unless the store applies each of them.
func applies(ctx context.Context, s store.Store, l store.Lease, list ...store.Commit) error {
	for _, c := range list {
		got, err := s.Commit(ctx, l, c)
		if err := expect(fmt.Sprintf("commit %d of run %s", c.Sequence, l.Run), got, err, store.AppliedNow); err != nil {
			return err
		}
	}
	return nil
}

// answersOf returns the answers that were posted for a run, sorted: "node run status", "node run unknown", "node run cycle a b".
func answersOf(ctx context.Context, s store.Awaiter, run string) (answers []string, err error) {
	list, err := s.LoadRequests(ctx, run, 0, store.MaxPage)
	for i := range list {
		q := &list[i]
		e, bad := q.Ended()
		if bad != nil || q.Kind != store.KindEnded {
			return nil, fmt.Errorf("request %d for run %s is a %v: %w", q.Number, run, q.Kind, bad)
		}
		text := q.Node + " " + e.Run
		if e.Status != machine.RunPending {
			text += " " + e.Status.String()
		}
		if e.Unknown {
			text += " unknown"
		}
		if e.Cycle != nil {
			text += " cycle " + strings.Join(e.Cycle, " ")
		}
		answers = append(answers, text)
		if found, err := s.FindRequest(ctx, run, q.ID); err != nil || found.Number != q.Number {
			return nil, fmt.Errorf("request %d for run %s is not found by its id, %s: %w", q.Number, run, q.ID, err)
		}
	}
	slices.Sort(answers)
	return answers, err
}

// expectAnswers compares the answers that were posted for a run with the list "want".
func expectAnswers(ctx context.Context, s store.Awaiter, run string, want ...string) error {
	got, err := answersOf(ctx, s, run)
	slices.Sort(want)
	return errors.Join(err, same("the answers for run "+run, got, want))
}

// expectAwaits compares the awaits of a run with the list "want", each written as "node run".
func expectAwaits(ctx context.Context, s store.Awaiter, run string, want ...string) error {
	list, err := s.LoadAwaits(ctx, run)
	var got []string
	for _, a := range list {
		got = append(got, a.Node+" "+a.Run)
	}
	return errors.Join(err, same("what run "+run+" awaits", got, want))
}

// begunAll begins runs, and returns their leases.
func begunAll(ctx context.Context, s store.Store, runs ...string) (leases []store.Lease, err error) {
	for _, run := range runs {
		l, failed := begun(ctx, s, run)
		leases, err = append(leases, l), errors.Join(err, failed)
	}
	return leases, err
}

func awaitsAnswered(ctx context.Context, s store.Awaiter) error {
	l, err := begunAll(ctx, s, "a", "b", "c", "d")
	if err != nil {
		return err
	}
	heard := make(ear, 100)
	stop := s.WatchRequests("a", heard.tell)
	defer stop()
	suspended := awaits(2, "x c", "m[1]/y c", "z d")
	suspended.Status = machine.RunSuspended
	err = errors.Join(applies(ctx, s, l[0], suspended), applies(ctx, s, l[1], awaits(2, "x c")),
		expectAwaits(ctx, s, "a", "m[1]/y c", "x c", "z d"), expectAwaits(ctx, s, "b", "x c"), expectAwaits(ctx, s, "c"), expectAnswers(ctx, s, "a"))
	if err != nil {
		return err
	}
	before := time.Now()
	if err := applies(ctx, s, l[2], store.Commit{Sequence: 2, Status: machine.RunSuspended}, ending(3, machine.RunFailed)); err != nil {
		return err
	}
	r, err := s.Load(ctx, "a")
	if err != nil {
		return err
	}
	if r.WakeAt.IsZero() || r.WakeAt.After(time.Now().Add(time.Minute)) || r.WakeAt.Before(before.Add(-time.Minute)) {
		return fmt.Errorf("the WakeAt of a run with an answer: %v", r.WakeAt)
	}
	err = errors.Join(heard.heard("a watcher", "a"), expectAnswers(ctx, s, "a", "m[1]/y c failed", "x c failed"), expectAnswers(ctx, s, "b", "x c failed"),
		expectAwaits(ctx, s, "a", "z d"), expectAwaits(ctx, s, "b"), expectAnswers(ctx, s, "c"), expectAnswers(ctx, s, "d"))
	if err != nil {
		return err
	}
	taken := awaits(3, "x d") // the commit takes the answers, and x awaits d
	taken.Taken = []store.TakenRequest{{Number: 1}, {Number: 2}}
	_, unknown := s.LoadAwaits(ctx, "nobody")
	return errors.Join(applies(ctx, s, l[0], taken), applies(ctx, s, l[3], ending(2, machine.RunCompleted)), expectAwaits(ctx, s, "a"),
		expectAnswers(ctx, s, "a", "m[1]/y c failed", "x c failed", "x d completed", "z d completed"), expectError("the awaits of an unknown run", unknown, store.ErrUnknownRun))
}

func awaitsAtOnce(ctx context.Context, s store.Awaiter) error {
	l, err := begunAll(ctx, s, "a", "b", "c")
	if err != nil {
		return err
	}
	heard := make(ear, 100)
	stop := s.WatchRequests("a", heard.tell)
	defer stop()
	err = errors.Join(applies(ctx, s, l[1], ending(2, machine.RunCancelled)), applies(ctx, s, l[2], ending(2, machine.RunCompleted)), s.Release(ctx, l[2]),
		applies(ctx, s, l[0], awaits(2, "x b", "y nobody", "z c")), heard.heard("a watcher", "a"),
		expectAnswers(ctx, s, "a", "x b cancelled", "y nobody unknown", "z c completed"), expectAwaits(ctx, s, "a"))
	admin, ok := s.(store.Admin)
	if err != nil || !ok {
		return err
	}
	_, err = admin.Prune(ctx, store.PruneQuery{EndedBefore: time.Now().Add(time.Hour), Statuses: []machine.RunStatus{machine.RunCompleted}})
	return errors.Join(err, applies(ctx, s, l[0], awaits(3, "z c")),
		expectAnswers(ctx, s, "a", "x b cancelled", "y nobody unknown", "z c completed", "z c unknown"))
}

func awaitsCycles(ctx context.Context, s store.Awaiter) error {
	l, err := begunAll(ctx, s, "a", "b", "c", "d", "e")
	if err != nil {
		return err
	}
	err = errors.Join(applies(ctx, s, l[0], awaits(2, "self a", "x b")), expectAnswers(ctx, s, "a", "self a cycle a"),
		applies(ctx, s, l[1], awaits(2, "x a", "y c")), expectAnswers(ctx, s, "b", "x a cycle a b"),
		applies(ctx, s, l[2], awaits(2, "x d", "y e")), applies(ctx, s, l[3], awaits(2, "x e")),
		applies(ctx, s, l[4], awaits(2, "x a", "y b", "z c")), expectAnswers(ctx, s, "e", "x a cycle a b c e", "y b cycle b c e", "z c cycle c e"),
		expectAwaits(ctx, s, "a", "x b"), expectAwaits(ctx, s, "b", "y c"), expectAwaits(ctx, s, "c", "x d", "y e"), expectAwaits(ctx, s, "e"))
	if err != nil {
		return err
	}
	// The awaits of a run that has ended are part of no cycle, nor are awaits that a commit has withdrawn.
	return errors.Join(applies(ctx, s, l[1], ending(3, machine.RunFailed)), applies(ctx, s, l[4], awaits(3, "x a")), expectAwaits(ctx, s, "e", "x a"),
		applies(ctx, s, l[2], awaits(3, "x", "y")), applies(ctx, s, l[3], awaits(3, "x c")), applies(ctx, s, l[2], awaits(4, "x e", "y d")),
		expectAnswers(ctx, s, "c", "y d cycle d c"), expectAwaits(ctx, s, "c", "x e"))
}

func awaitsReplaced(ctx context.Context, s store.Awaiter) error {
	l, err := begunAll(ctx, s, "a", "b", "c", "d")
	if err != nil {
		return err
	}
	return errors.Join(applies(ctx, s, l[0], awaits(2, "x b", "y c", "z d"), awaits(3, "x c", "y", "z d", "never")), expectAwaits(ctx, s, "a", "x c", "z d"),
		applies(ctx, s, l[1], ending(2, machine.RunCompleted)), expectAnswers(ctx, s, "a"),
		applies(ctx, s, l[2], ending(2, machine.RunFailed)), applies(ctx, s, l[3], ending(2, machine.RunCancelled)), expectAnswers(ctx, s, "a", "x c failed", "z d cancelled"))
}

func awaitsRefused(ctx context.Context, s store.Awaiter) error {
	l, err := begunAll(ctx, s, "a", "b")
	if err != nil {
		return err
	}
	conflict, err := s.Commit(ctx, l[0], awaits(7, "x b", "y nobody"))
	stale, err2 := s.Commit(ctx, l[0], awaits(1, "x b", "y nobody"))
	newer, _, err3 := s.Acquire(ctx, "a", l[0].Owner, ttl)
	_, fenced := s.Commit(ctx, l[0], awaits(2, "x b", "y nobody"))
	err = errors.Join(expect("a commit out of its turn", conflict, err, store.Conflict), expect("an old commit", stale, err2, store.Duplicate), err3,
		expectError("a commit under an old lease", fenced, store.ErrFenced), expectAwaits(ctx, s, "a"), expectAnswers(ctx, s, "a"))
	if err != nil {
		return err
	}
	twice := awaits(2, "x b", "y nobody")
	if err := applies(ctx, s, newer, twice); err != nil {
		return err
	}
	again, err := s.Commit(ctx, newer, awaits(2, "x b", "y nobody"))
	return errors.Join(expect("the same commit again", again, err, store.Duplicate), expectAwaits(ctx, s, "a", "x b"), expectAnswers(ctx, s, "a", "y nobody unknown"))
}

func awaitsLate(ctx context.Context, s store.Awaiter) error {
	l, err := begunAll(ctx, s, "a", "b", "c")
	if err != nil {
		return err
	}
	last := awaits(3, "y b")
	last.Status = machine.RunFailed
	err = errors.Join(applies(ctx, s, l[0], awaits(2, "x b"), last), applies(ctx, s, l[2], awaits(2, "x b")), s.Release(ctx, l[0]))
	admin, ok := s.(store.Admin)
	if ok && err == nil {
		_, err = admin.Prune(ctx, store.PruneQuery{EndedBefore: time.Now().Add(time.Hour)})
		_, gone := s.Load(ctx, "a")
		err = errors.Join(err, expectError("the run that was pruned", gone, store.ErrUnknownRun))
		if err == nil { // a new run with the id of the pruned run awaits nothing
			_, err = begun(ctx, s, "a")
		}
	}
	return errors.Join(err, applies(ctx, s, l[1], ending(2, machine.RunCompleted)), expectAnswers(ctx, s, "a"), expectAnswers(ctx, s, "c", "x b completed"))
}

func awaitsPending(ctx context.Context, s store.Awaiter) error {
	l, err := begunAll(ctx, s, "a")
	admin, ok := s.(store.Admin)
	if err != nil || !ok {
		return err
	}
	replacing := aRun("c", "two", store.Replace)
	_, _, err = admin.Create(ctx, aRun("b", "one", store.Refuse))
	_, _, err2 := admin.Create(ctx, aRun("c", "one", store.Refuse))
	blank, _, err3 := s.Acquire(ctx, "d", "owner", ttl)
	if err := errors.Join(err, err2, err3, s.Release(ctx, blank), applies(ctx, s, l[0], awaits(2, "x b", "y c", "z d"))); err != nil {
		return err
	}
	if _, _, err := admin.Create(ctx, replacing); err != nil {
		return err
	}
	if err := errors.Join(expectAwaits(ctx, s, "a", "x b", "y c", "z d"), postTo(ctx, s, "b", aCancel)); err != nil {
		return err
	}
	copied := storedRun("d", 1)
	copied.Status, copied.Ended = machine.RunCompleted, cmp.Or(copied.Ended, copied.Created)
	if err := admin.Insert(ctx, copied); err != nil {
		return err
	}
	cancelled := ending(1, machine.RunCancelled)
	cancelled.Taken = []store.TakenRequest{{Number: 1}}
	for run, c := range map[string]store.Commit{"b": cancelled, "c": ending(1, machine.RunCancelled)} {
		lease, _, err := s.Acquire(ctx, run, "owner", ttl)
		if err := errors.Join(err, applies(ctx, s, lease, c)); err != nil {
			return err
		}
	}
	return errors.Join(expectAnswers(ctx, s, "a", "x b cancelled", "y c cancelled", "z d completed"), expectAwaits(ctx, s, "a"))
}

// awaitsRace checks that each awaiting run gets exactly one answer, even if the awaited run ends at the moment at which the await begins.
func awaitsRace(ctx context.Context, s store.Awaiter) error {
	const pairs = 40
	var group errgroup.Group
	for i := range pairs {
		l, err := begunAll(ctx, s, fmt.Sprint("a", i), fmt.Sprint("b", i))
		if err != nil {
			return errors.Join(err, group.Wait())
		}
		group.Go(func() error { return applies(ctx, s, l[0], awaits(2, "x "+l[1].Run)) })
		group.Go(func() error { return applies(ctx, s, l[1], ending(2, machine.RunCompleted)) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for i := range pairs {
		run := fmt.Sprint("a", i)
		if err := errors.Join(expectAnswers(ctx, s, run, fmt.Sprintf("x b%d completed", i)), expectAwaits(ctx, s, run)); err != nil {
			return err
		}
	}
	return nil
}

// awaitsRing: in a ring, each run awaits the next one. If all these awaits begin at the same moment, exactly one run gets an answer with a Cycle.
func awaitsRing(ctx context.Context, s store.Awaiter) error {
	for round, size := range []int{2, 3, 4, 6, 6, 6} {
		var runs []string
		for i := range size {
			runs = append(runs, fmt.Sprintf("r%d-%d", round, i))
		}
		l, err := begunAll(ctx, s, runs...)
		if err != nil {
			return err
		}
		var group errgroup.Group
		for i := range size {
			group.Go(func() error { return applies(ctx, s, l[i], awaits(2, "x "+runs[(i+1)%size])) })
		}
		if err := group.Wait(); err != nil {
			return err
		}
		closed := 0
		for _, run := range runs {
			answers, err := answersOf(ctx, s, run)
			if closed += len(answers); err != nil {
				return err
			}
		}
		if err := same(fmt.Sprintf("how many of %d runs close the cycle", size), closed, 1); err != nil {
			return err
		}
	}
	return nil
}

func awaitsMany(ctx context.Context, s store.Awaiter) error {
	const many = 150
	last, err := begun(ctx, s, "last")
	if err != nil {
		return err
	}
	for i := range many {
		l, err := begun(ctx, s, fmt.Sprint("r", i))
		if err := errors.Join(err, applies(ctx, s, l, awaits(2, "x last", "y last"))); err != nil {
			return err
		}
	}
	if err := applies(ctx, s, last, ending(2, machine.RunCompleted)); err != nil {
		return err
	}
	for i := range many {
		if err := expectAnswers(ctx, s, fmt.Sprint("r", i), "x last completed", "y last completed"); err != nil {
			return err
		}
	}
	return nil
}

func awaitsPosted(ctx context.Context, s store.Awaiter) error {
	l, err := begunAll(ctx, s, "a", "b")
	if err != nil {
		return err
	}
	e := store.Ended{Run: "b", Status: machine.RunCompleted}
	forged, err := e.Request("x", 1)
	_, kind := s.Post(ctx, "a", forged)
	forged.Kind = store.KindSignal
	_, id := s.Post(ctx, "a", forged)
	return errors.Join(err, applies(ctx, s, l[0], awaits(2, "x b")), expectError("an answer that is posted", kind, machine.ErrBadValue),
		expectError("a signal with the id of an answer", id, machine.ErrBadValue), expectAnswers(ctx, s, "a"), expectAwaits(ctx, s, "a", "x b"))
}

// engineAwaits performs a run whose steps await a run that completes, a cancelled run, an unknown run, and their own run. Some of the steps are
// items of a map.
func engineAwaits(ctx context.Context, s store.Awaiter) error {
	step := func(ctx context.Context, step *kahn.Step) (any, error) {
		item, _ := step.Item()
		id, _ := item.(string)
		if id == "" {
			id = step.ID()
		}
		first, err := kahn.AwaitRun(ctx, id)
		switch {
		case errors.Is(err, kahn.ErrUnknownRun):
			return "unknown", nil
		case errors.Is(err, kahn.ErrAwaitCycle):
			return "cycle", nil
		case err != nil:
			return nil, err
		}
		// The same attempt awaits a second run. When that run has ended, the step is called again, and AwaitRun then returns both statuses.
		again, err := kahn.AwaitRun(ctx, "two")
		return first.String() + " " + again.String(), err
	}
	g := (&kahn.Graph{Name: "awaiting"}).Add(kahn.Node{ID: "m", Map: &kahn.Map{Over: "runs"}, Params: map[string]any{"runs": []any{"one", "nobody", "r"}}}, kahn.Node{ID: "two"})
	other := (&kahn.Graph{Name: "other"}).Add(kahn.Node{ID: "gate", Kind: kahn.KindGate})
	opts := func(id string) []kahn.Option { return []kahn.Option{kahn.RunID(id), kahn.Durable(s)} }
	for _, id := range []string{"one", "two"} {
		if res, err := kahn.Execute(ctx, other, nil, opts(id)...); err != nil || res.Status != kahn.RunSuspended {
			return fmt.Errorf("run %s: %w", id, err)
		}
	}
	res, err := kahn.Execute(ctx, g, step, opts("r")...)
	if err != nil || res.Status != kahn.RunSuspended {
		return fmt.Errorf("the run that awaits: %w", err)
	}
	if err := expectAwaits(ctx, s, "r", "m[0] one", "two two"); err != nil {
		return err
	}
	run, err := kahn.Start(ctx, g, step, opts("r")...)
	if err != nil {
		return err
	}
	q, err := kahn.PrepareSignal("gate", "yes")
	if err := errors.Join(err, postTo(ctx, s, "one", q), postTo(ctx, s, "two", aCancel)); err != nil {
		return err
	}
	for id, want := range map[string]kahn.RunStatus{"one": kahn.RunCompleted, "two": kahn.RunCancelled} {
		if res, err := kahn.Execute(ctx, other, nil, opts(id)...); res.Status != want {
			return fmt.Errorf("run %s is %v: %w", id, res.Status, err)
		}
	}
	select {
	case <-run.Done():
	case <-time.After(time.Minute):
		return errors.Join(errors.New("the end of a run has no effect on the run that awaits it"), run.Cancel())
	}
	if res, err = run.Wait(); err != nil {
		return err
	}
	m, _ := res.Node("m")
	two, _ := res.Node("two")
	return errors.Join(same("the status", res.Status, kahn.RunCompleted), same("what the map has awaited", m.Output, any([]any{"completed cancelled", "unknown", "cycle"})),
		same("what the node has awaited", two.Output, any("cancelled cancelled")), expectAwaits(ctx, s, "r"))
}
