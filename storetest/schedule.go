package storetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/seed-c794f7ef/kahn/machine"
	"github.com/seed-c794f7ef/kahn/store"
)

// RunSchedules tests what [store.ScheduleStore] promises beyond [store.QueueStore]. Like [Run] it runs each check as a subtest.
func RunSchedules(t *testing.T, open func(t *testing.T) store.ScheduleStore) {
	runAll(t, scheduleChecks, open)
}

// CheckSchedules checks what [store.ScheduleStore] promises beyond [store.QueueStore], and returns the failures as [Check] does.
func CheckSchedules(ctx context.Context, open func() store.ScheduleStore) []error {
	return findAll(ctx, scheduleChecks, open)
}

var scheduleChecks = []check[store.ScheduleStore]{
	{"schedules", schedules},
	{"revisions", scheduleRevisions},
	{"a schedule and its run", scheduleRun},
	{"writers of one schedule", scheduleRace},
	{"what has become of a tick", scheduleTick},
	{"the latest tick is not pruned", schedulePrune},
	{"schedules that make no sense", scheduleBad},
}

func aSchedule(name string, revision uint64) store.Schedule {
	return store.Schedule{Name: name, Revision: revision, Definition: json.RawMessage(fmt.Sprintf(`{"cron": "@daily", "revision": %d}`, revision))}
}

// The function `rows` returns the schedules without the state of their runs.
func rows(list []store.ScheduleState) (rows []store.Schedule) {
	for _, x := range list {
		rows = append(rows, x.Schedule)
	}
	return rows
}

// The function `stored` returns the schedule that a store has after x was written: its Revision is one higher.
func stored(x store.Schedule) store.Schedule {
	x.Revision++
	return x
}

func schedules(ctx context.Context, s store.ScheduleStore) error {
	before := time.Now()
	list, now, err := s.Schedules(ctx)
	if err := errors.Join(err, same("the schedules of a new store", len(list), 0)); err != nil {
		return err
	}
	// The clock of the store may differ from the clock of this machine by at most a minute.
	if d := now.Sub(before); d < -time.Minute || d > time.Minute {
		return fmt.Errorf("the clock of the store without schedules is %v, and not near %v", now, before)
	}
	b, a := aSchedule("b", 0), aSchedule("a'%_", 0)
	b.Paused, b.Tick, b.Active = true, "b@1", "b@0"
	if err := errors.Join(s.PutSchedule(ctx, b, nil), s.PutSchedule(ctx, a, nil), s.PutSchedule(ctx, aSchedule("c", 0), nil)); err != nil {
		return err
	}
	if list, now, err = s.Schedules(ctx); err != nil {
		return err
	}
	if d := now.Sub(before); d < -time.Minute || d > time.Minute {
		return fmt.Errorf("the clock of the store is %v, and not near %v", now, before)
	}
	all := []store.Schedule{stored(a), stored(b), stored(aSchedule("c", 0))}
	if err := same("all schedules", rows(list), all); err != nil {
		return err
	}
	list, _, err = s.Schedules(ctx, []string{}...)
	if err := errors.Join(err, same("all schedules, by an empty list of names", rows(list), all)); err != nil {
		return err
	}
	list, _, err = s.Schedules(ctx, "c", "none", "a'%_", "c")
	if err := errors.Join(err, same("some schedules", rows(list), []store.Schedule{stored(a), stored(aSchedule("c", 0))})); err != nil {
		return err
	}
	list, now, err = s.Schedules(ctx, "none")
	if err := errors.Join(err, same("no schedule", len(list), 0)); err != nil || now.IsZero() {
		return fmt.Errorf("a name that is not stored: the time %v, %w", now, err)
	}
	return nil
}

func scheduleRevisions(ctx context.Context, s store.ScheduleStore) error {
	for revision := range uint64(3) {
		if err := s.PutSchedule(ctx, aSchedule("a", revision), nil); err != nil {
			return err
		}
	}
	for _, revision := range []uint64{0, 1, 2, 4} {
		for what, err := range map[string]error{
			"write":          s.PutSchedule(ctx, aSchedule("a", revision), nil),
			"write, and run": s.PutSchedule(ctx, aSchedule("a", revision), &store.NewRun{ID: "r", Spec: aSpec("x")}),
			"remove":         s.RemoveSchedule(ctx, "a", revision),
		} {
			if err := expectError(fmt.Sprintf("%s, revision %d", what, revision), err, store.ErrScheduleChanged); err != nil {
				return err
			}
		}
	}
	_, err := s.Load(ctx, "r")
	if err := expectError("the run of a schedule that was not written", err, store.ErrUnknownRun); err != nil {
		return err
	}
	list, _, err := s.Schedules(ctx)
	if err := errors.Join(err, same("the schedule", rows(list), []store.Schedule{stored(aSchedule("a", 2))})); err != nil {
		return err
	}
	err = errors.Join(
		expectError("another one", s.PutSchedule(ctx, aSchedule("b", 1), nil), store.ErrScheduleChanged),
		expectError("remove another one", s.RemoveSchedule(ctx, "b", 1), store.ErrScheduleChanged))
	if err = errors.Join(err, s.RemoveSchedule(ctx, "b", 0), s.RemoveSchedule(ctx, "a", 3)); err != nil {
		return err
	}
	if list, _, err = s.Schedules(ctx); err != nil || len(list) > 0 {
		return fmt.Errorf("after the removal: %v, %w", list, err)
	}
	return errors.Join(s.PutSchedule(ctx, aSchedule("a", 0), nil), s.RemoveSchedule(ctx, "a", 1))
}

func scheduleRun(ctx context.Context, s store.ScheduleStore) error {
	n := store.NewRun{ID: "a@1", Spec: aSpec("x"), NotBefore: future}
	if err := s.PutSchedule(ctx, aSchedule("a", 0), &n); err != nil {
		return err
	}
	r, err := s.Load(ctx, "a@1")
	if err != nil {
		return err
	}
	want := &store.Run{ID: "a@1", Spec: n.Spec, WakeAt: future, Nodes: map[string]store.Node{}}
	r.Created = time.Time{}
	if err := same("the run", normal(r), normal(want)); err != nil {
		return err
	}
	// If the store refuses the run, the schedule is unchanged. Reuse accepts an existing run, and Replace replaces a run that has not begun.
	if err := expectError("the same run", s.PutSchedule(ctx, aSchedule("a", 1), &n), store.ErrExists); err != nil {
		return err
	}
	other := store.NewRun{ID: "a@1", Spec: aSpec("y"), IfExists: store.Reuse}
	if err := expectError("another run", s.PutSchedule(ctx, aSchedule("a", 1), &other), store.ErrMismatch); err != nil {
		return err
	}
	list, _, err := s.Schedules(ctx)
	if err := errors.Join(err, same("the schedule", rows(list), []store.Schedule{stored(aSchedule("a", 0))})); err != nil {
		return err
	}
	n.IfExists, other.IfExists = store.Reuse, store.Replace
	if err := errors.Join(s.PutSchedule(ctx, aSchedule("a", 1), &n), s.PutSchedule(ctx, aSchedule("a", 2), &other)); err != nil {
		return err
	}
	if r, err = s.Load(ctx, "a@1"); err != nil {
		return err
	}
	return errors.Join(same("the workflow of the run that replaces it", r.Workflow, other.Workflow), same("its inputs", string(r.Inputs), string(other.Inputs)))
}

// scheduleRace: if several writers have read the same revision, exactly one of them succeeds.
func scheduleRace(ctx context.Context, s store.ScheduleStore) error {
	const writers, rounds = 4, 5
	for round := range uint64(rounds) {
		var wg sync.WaitGroup
		errs := make([]error, writers)
		for i := range writers {
			wg.Go(func() {
				x := aSchedule("a", round)
				x.Tick = fmt.Sprint("a@", i)
				errs[i] = s.PutSchedule(ctx, x, &store.NewRun{ID: fmt.Sprintf("a@%d/%d", round, i), Spec: aSpec("x")})
			})
		}
		wg.Wait()
		won := -1
		for i, err := range errs {
			switch {
			case err == nil && won < 0:
				won = i
			case err == nil:
				return fmt.Errorf("round %d: writers %d and %d have both written", round, won, i)
			case !errors.Is(err, store.ErrScheduleChanged):
				return err
			}
		}
		list, _, err := s.Schedules(ctx)
		if err != nil || won < 0 || len(list) != 1 || list[0].Tick != fmt.Sprint("a@", won) {
			return fmt.Errorf("round %d: writer %d has written, and the schedules are %+v, %w", round, won, list, err)
		}
	}
	counts, err := s.Count(ctx, store.Filter{})
	return errors.Join(err, same("the runs", counts, []store.Count{{Workflow: aSpec("x").Workflow, Status: machine.RunPending, Runs: rounds}}))
}

func scheduleTick(ctx context.Context, s store.ScheduleStore) error {
	state := func(what string, begun, ended, busy bool) error {
		list, _, err := s.Schedules(ctx, "a")
		if err != nil || len(list) != 1 {
			return fmt.Errorf("%s: %+v, %w", what, list, err)
		}
		return same(what, []bool{list[0].Begun, list[0].Ended, list[0].Busy}, []bool{begun, ended, busy})
	}
	x := aSchedule("a", 0)
	if err := errors.Join(s.PutSchedule(ctx, x, nil), state("without a tick", true, true, false)); err != nil {
		return err
	}
	x.Revision, x.Tick, x.Active = 1, "a@1", "a@1"
	n := aRun("a@1", "x", store.Refuse)
	if err := errors.Join(s.PutSchedule(ctx, x, &n), state("pending", false, false, false)); err != nil {
		return err
	}
	held, _, err := s.Acquire(ctx, "a@1", "about to begin it", time.Minute)
	if err := errors.Join(err, state("pending, and held", false, false, true)); err != nil {
		return err
	}
	if err := errors.Join(s.Release(ctx, held), state("released", false, false, false)); err != nil {
		return err
	}
	lease, err := begunAs(ctx, s, aRun("a@1", "x", store.Reuse))
	if err := errors.Join(err, state("begun", true, false, true)); err != nil {
		return err
	}
	for i, status := range []machine.RunStatus{machine.RunSuspended, machine.RunCancelled} {
		if _, err := s.Commit(ctx, lease, store.Commit{Sequence: uint64(2 + i), Status: status}); err != nil {
			return err
		}
		if err := state(status.String(), true, status.Terminal(), !status.Terminal()); err != nil {
			return err
		}
	}
	x.Revision, x.Tick, x.Active = 2, "no run", "none either"
	return errors.Join(s.PutSchedule(ctx, x, nil), state("runs that are not stored", true, true, false))
}

func schedulePrune(ctx context.Context, s store.ScheduleStore) error {
	for _, id := range []string{"a@1", "a@2", "b@1"} {
		lease, err := begunAs(ctx, s, aRun(id, "x", store.Refuse))
		if err != nil {
			return err
		}
		if _, err := s.Commit(ctx, lease, store.Commit{Sequence: 2, Status: machine.RunCompleted}); err != nil {
			return err
		}
		if err := s.Release(ctx, lease); err != nil {
			return err
		}
	}
	a, b := aSchedule("a", 0), aSchedule("b", 0)
	a.Tick, a.Active, b.Tick = "a@2", "a@1", "b@1"
	if err := errors.Join(s.PutSchedule(ctx, a, nil), s.PutSchedule(ctx, b, nil)); err != nil {
		return err
	}
	left := func(what string, want ...string) error {
		pruned, err := s.Prune(ctx, store.PruneQuery{EndedBefore: future})
		have, listed := ids(ctx, s)
		return errors.Join(err, listed, same(what, have, want), same("more", pruned.More, false))
	}
	if err := left("the latest ticks", "a@2", "b@1"); err != nil {
		return err
	}
	if err := errors.Join(s.RemoveSchedule(ctx, "b", 1), left("without a schedule", "a@2")); err != nil {
		return err
	}
	a.Revision, a.Tick = 1, "a@3"
	return errors.Join(s.PutSchedule(ctx, a, nil), left("a former tick"))
}

func scheduleBad(ctx context.Context, s store.ScheduleStore) error {
	bad := map[string]store.Schedule{"no name": aSchedule("", 0), "a name that is not a text": aSchedule("a\xff", 0)}
	x := aSchedule("a", 0)
	x.Definition = nil
	bad["no definition"] = x
	x.Definition = json.RawMessage("{")
	bad["a definition that is not JSON"] = x
	x = aSchedule("a", 0)
	x.Tick = "\xff"
	bad["a tick that is not a text"] = x
	for what, x := range bad {
		if err := expectError(what, s.PutSchedule(ctx, x, nil), machine.ErrBadValue); err != nil {
			return err
		}
	}
	if err := expectError("a run without an id", s.PutSchedule(ctx, aSchedule("a", 0), &store.NewRun{}), machine.ErrBadValue); err != nil {
		return err
	}
	over, cancel := context.WithCancel(ctx)
	cancel()
	_, _, err := s.Schedules(over)
	for what, err := range map[string]error{"Schedules": err, "PutSchedule": s.PutSchedule(over, aSchedule("a", 0), nil), "RemoveSchedule": s.RemoveSchedule(over, "a", 0)} {
		if err := expectError(what+" under a context that has ended", err, context.Canceled); err != nil {
			return err
		}
	}
	list, _, err := s.Schedules(ctx)
	return errors.Join(err, same("the schedules", len(list), 0))
}
