package schedule

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-c794f7ef/kahn/machine"
	"github.com/seed-c794f7ef/kahn/store"
)

// Pause pauses a schedule: its ticks do not run until Resume is called. If the run of a tick becomes due during the pause, it is cancelled with the
// reason "paused". The error matches [ErrUnknownSchedule] if the store does not have the schedule.
func (s *Scheduler) Pause(ctx context.Context, name string) error {
	return s.change(ctx, name, func(x *store.ScheduleState, _ time.Time) (*store.NewRun, bool, error) {
		if x.Revision == 0 {
			return nil, false, fmt.Errorf("%w %q: no running Scheduler has stored it yet", ErrUnknownSchedule, name)
		}
		changed := !x.Paused
		x.Paused = true
		return nil, changed, nil
	})
}

// Resume ends a pause. Ticks during the pause do not count as missed: the next tick is the first tick after the call. The error
// matches [ErrUnknownSchedule] if the store does not have the schedule, and [ErrBadSchedule] if this Scheduler does not have
// the schedule.
func (s *Scheduler) Resume(ctx context.Context, name string) error {
	var skip, tick time.Time
	for {
		overdue := ""
		err := s.change(ctx, name, func(x *store.ScheduleState, now time.Time) (*store.NewRun, bool, error) {
			r, err := s.mine(x)
			if err != nil || !x.Paused {
				return nil, false, err
			}
			x.Paused = false
			if !x.Begun && tickOf(name, x.Tick).After(now) {
				return nil, true, nil
			}
			if !x.Begun {
				overdue = x.Tick
			}
			if tick = r.times.Next(now); !tick.After(skip) {
				tick = r.times.Next(skip)
			}
			if tick.IsZero() {
				return nil, true, nil
			}
			x.Tick = tickID(name, tick)
			n := s.newRun(r, x.Tick, "", tick)
			n.IfExists = store.ReplaceUnasked
			return &n, true, nil
		})
		if taken(err) {
			skip = tick
			continue
		}
		if err == nil && overdue != "" {
			err = s.leaveOut(ctx, overdue, "paused")
		}
		return err
	}
}

// The method `mine` returns the rule of a schedule, or an error if this process cannot create the schedule's runs.
func (s *Scheduler) mine(x *store.ScheduleState) (*rule, error) {
	r, err := s.ruleOf(&x.Schedule)
	if err == nil && !s.creates(r) {
		err = fmt.Errorf("%w %q: this process does not serve it", ErrBadSchedule, x.Name)
	}
	return r, err
}

// RunNow creates a run of a schedule and returns the run's id. The run is due at once, even if the schedule is paused or another run is running.
// RunNow returns the same errors as Resume.
func (s *Scheduler) RunNow(ctx context.Context, name string) (id string, err error) {
	list, now, err := s.store.Schedules(ctx, name)
	if err != nil {
		return "", err
	}
	list = append(list, store.ScheduleState{Schedule: store.Schedule{Name: name}})
	r, err := s.mine(&list[0])
	if err != nil {
		return "", err
	}
	for {
		id = name + "@" + now.UTC().Format(time.RFC3339Nano) + "/now"
		n := s.newRun(r, id, kindNow, now)
		if _, _, err = s.store.Create(ctx, n); !errors.Is(err, store.ErrExists) {
			if err == nil {
				s.reportLeftOut(&n)
			}
			return id, err
		}
		now = now.Add(time.Millisecond)
	}
}

// Backfill creates runs for ticks that have no run yet, from the time "from" on (inclusive) until the time "before" (exclusive). It returns
// the ids of the new runs. The runs are due at once. They run side by side, as far as MaxRuns allows, even if Overlap is Skip. Backfill leaves out
// future ticks. It also leaves out the schedule's latest tick, whose run is usually pending. If there are more than 1,000 ticks, Backfill creates
// nothing and returns an error that matches [ErrBadSchedule]. Otherwise Backfill returns the same errors as Resume. A failed call may be repeated.
func (s *Scheduler) Backfill(ctx context.Context, name string, from, before time.Time) (created []string, err error) {
	list, now, err := s.store.Schedules(ctx, name)
	if err != nil {
		return nil, err
	}
	list = append(list, store.ScheduleState{Schedule: store.Schedule{Name: name}})
	r, err := s.mine(&list[0])
	if err != nil {
		return nil, err
	}
	if before.After(now) {
		before = now
	}
	var ticks []time.Time
	for tick := range r.times.Between(from, before) {
		if tickID(name, tick) == list[0].Tick {
			continue
		}
		if ticks = append(ticks, tick); len(ticks) > mostMissed {
			return nil, fmt.Errorf("%w %q: more than %d ticks from %v on; backfill them in parts", ErrBadSchedule, name, mostMissed, from.Format(time.RFC3339))
		}
	}
	for _, tick := range ticks {
		n := s.newRun(r, tickID(name, tick), kindBackfill, tick)
		switch _, _, err := s.store.Create(ctx, n); {
		case err == nil:
			created = append(created, n.ID)
			s.reportLeftOut(&n)
		case !taken(err):
			return created, err
		}
	}
	return created, nil
}

// Remove removes a schedule from the store, and cancels its pending tick. If a process calls Serve with the schedule later, that
// process stores the schedule again. The error matches [ErrUnknownSchedule] if the store does not have the schedule.
func (s *Scheduler) Remove(ctx context.Context, name string) error {
	for {
		list, _, err := s.store.Schedules(ctx, name)
		if err != nil {
			return err
		}
		if len(list) == 0 {
			return fmt.Errorf("%w %q: no running Scheduler has stored it yet", ErrUnknownSchedule, name)
		}
		err = s.store.RemoveSchedule(ctx, name, list[0].Revision)
		if errors.Is(err, store.ErrScheduleChanged) {
			continue
		}
		if err == nil && !list[0].Begun {
			err = s.leaveOut(ctx, list[0].Tick, "removed")
		}
		return err
	}
}

// Status is the stored state of a schedule.
type Status struct {
	Schedule
	Paused bool
	Next   []time.Time // the next ticks; none while the schedule is paused
	Last   []store.Run // the latest runs that are no longer pending, the newest first
}

// List returns all schedules in the store, sorted by name. The argument "ticks" is the greatest number of next ticks in a Status, and the argument
// "runs" is the greatest number of latest runs. If this Scheduler does not have a schedule, Inputs is nil in the schedule's Status.
func (s *Scheduler) List(ctx context.Context, ticks, runs int) (list []Status, err error) {
	rows, now, err := s.store.Schedules(ctx)
	if err != nil {
		return nil, err
	}
	for i := range rows {
		x := &rows[i]
		r, err := s.ruleOf(&x.Schedule)
		if err != nil {
			return nil, err
		}
		status := Status{Schedule: r.Schedule, Paused: x.Paused}
		tick := tickOf(x.Name, x.Tick)
		if x.Begun || tick.IsZero() {
			if tick.Before(now) {
				tick = now
			}
			tick = r.times.Next(tick)
		}
		for ; !x.Paused && len(status.Next) < ticks && !tick.IsZero(); tick = r.times.Next(tick) {
			status.Next = append(status.Next, tick.In(r.times.zone))
		}
		if runs > 0 {
			page, err := s.store.List(ctx, store.Query{Limit: runs, Filter: store.Filter{
				Labels:   map[string]string{LabelSchedule: x.Name},
				Statuses: []machine.RunStatus{machine.RunRunning, machine.RunSuspended, machine.RunCompleted, machine.RunFailed, machine.RunCancelled},
			}})
			if err != nil {
				return nil, err
			}
			status.Last = page.Runs
		}
		list = append(list, status)
	}
	return list, nil
}
