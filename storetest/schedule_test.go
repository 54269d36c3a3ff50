package storetest_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/seed-c794f7ef/kahn/store"
	"github.com/seed-c794f7ef/kahn/storetest"
)

func TestMemorySchedules(t *testing.T) {
	t.Parallel()
	storetest.RunSchedules(t, func(*testing.T) store.ScheduleStore { return new(store.Memory) })
}

// scheduled is a correct store behind a layer that changes what is read and written.
type scheduled struct {
	*store.Memory
	read  func(x *store.ScheduleState)
	list  func(list []store.ScheduleState) []store.ScheduleState
	now   func(now time.Time) time.Time
	write func(x *store.Schedule)
	put   func(ctx context.Context, m *store.Memory, x store.Schedule, create *store.NewRun) error
	gone  func(revision, stored uint64) uint64
	prune func(m *store.Memory)
	deaf  bool // Schedules ignores its context
}

func (s *scheduled) Schedules(ctx context.Context, names ...string) ([]store.ScheduleState, time.Time, error) {
	if s.deaf {
		ctx = context.WithoutCancel(ctx)
	}
	list, now, err := s.Memory.Schedules(ctx, names...)
	for i := range list {
		change(s.read, &list[i])
	}
	return through(s.list, list), through(s.now, now), err
}

func (s *scheduled) PutSchedule(ctx context.Context, x store.Schedule, create *store.NewRun) error {
	change(s.write, &x)
	if s.put != nil {
		return s.put(ctx, s.Memory, x, create)
	}
	return s.Memory.PutSchedule(ctx, x, create)
}

func (s *scheduled) RemoveSchedule(ctx context.Context, name string, revision uint64) error {
	if s.gone != nil {
		list, _, err := s.Memory.Schedules(ctx, name)
		if err == nil && len(list) > 0 {
			revision = s.gone(revision, list[0].Revision)
		}
	}
	return s.Memory.RemoveSchedule(ctx, name, revision)
}

func (s *scheduled) Prune(ctx context.Context, q store.PruneQuery) (store.Pruned, error) {
	if s.prune != nil {
		s.prune(s.Memory)
	}
	return s.Memory.Prune(ctx, q)
}

// TestScheduleDefects plants defects in store.ScheduleStore; the named check must find each of them.
func TestScheduleDefects(t *testing.T) {
	t.Parallel()
	newest := func(x *store.Schedule, m *store.Memory) {
		if list, _, err := m.Schedules(context.Background(), x.Name); err == nil && len(list) > 0 {
			x.Revision = list[0].Revision
		}
	}
	for _, row := range []struct {
		name  string
		store scheduled
		check string
	}{
		{"no defect", scheduled{}, ""},
		{"pauses are lost", scheduled{write: func(x *store.Schedule) { x.Paused = false }}, "schedules"},
		{"ticks are lost", scheduled{write: func(x *store.Schedule) { x.Tick = "" }}, "schedules"},
		{"no order", scheduled{list: func(list []store.ScheduleState) []store.ScheduleState { slices.Reverse(list); return list }}, "schedules"},
		{"no clock without a schedule", scheduled{now: func(time.Time) time.Time { return time.Time{} }}, "schedules"},
		{"a definition stays", scheduled{read: func(x *store.ScheduleState) { x.Definition = aDefinition }}, "schedules"},
		{"the last writer wins", scheduled{put: func(ctx context.Context, m *store.Memory, x store.Schedule, create *store.NewRun) error {
			newest(&x, m)
			return m.PutSchedule(ctx, x, create)
		}}, "revisions"},
		{"a removal of any revision", scheduled{gone: func(_, stored uint64) uint64 { return stored }}, "revisions"},
		{"the run comes first", scheduled{put: func(ctx context.Context, m *store.Memory, x store.Schedule, create *store.NewRun) error {
			if create != nil {
				if _, _, err := m.Create(ctx, *create); err != nil {
					return err
				}
			}
			return m.PutSchedule(ctx, x, nil)
		}}, "revisions"},
		{"the schedule comes first", scheduled{put: func(ctx context.Context, m *store.Memory, x store.Schedule, create *store.NewRun) error {
			err := m.PutSchedule(ctx, x, nil)
			if err == nil && create != nil {
				_, _, err = m.Create(ctx, *create)
			}
			return err
		}}, "a schedule and its run"},
		{"a run that is there is replaced", scheduled{put: func(ctx context.Context, m *store.Memory, x store.Schedule, create *store.NewRun) error {
			if create != nil {
				n := *create
				n.IfExists = store.Replace
				create = &n
			}
			return m.PutSchedule(ctx, x, create)
		}}, "a schedule and its run"},
		{"a revision is judged before it is written", scheduled{put: func(ctx context.Context, m *store.Memory, x store.Schedule, create *store.NewRun) error {
			list, _, err := m.Schedules(ctx, x.Name)
			if err != nil || len(list) == 0 || list[0].Revision != x.Revision {
				return m.PutSchedule(ctx, x, create)
			}
			time.Sleep(10 * time.Millisecond) // other writers pass the check, too
			newest(&x, m)
			return m.PutSchedule(ctx, x, create)
		}}, "writers of one schedule"},
		{"what has begun is pending", scheduled{read: func(x *store.ScheduleState) { x.Begun = x.Ended }}, "what has become of a tick"},
		{"what waits has ended", scheduled{read: func(x *store.ScheduleState) { x.Busy = x.Busy && !x.Begun }}, "what has become of a tick"},
		{"ticks are pruned", scheduled{prune: func(m *store.Memory) {
			list, _, err := m.Schedules(context.Background())
			for _, x := range list {
				if x.Tick = ""; err == nil {
					err = m.PutSchedule(context.Background(), x.Schedule, nil)
				}
			}
		}}, "the latest tick is not pruned"},
		{"a definition of anything", scheduled{write: func(x *store.Schedule) {
			if x.Definition == nil {
				x.Definition = aDefinition
			}
		}}, "schedules that make no sense"},
		{"Schedules under a dead context", scheduled{deaf: true}, "schedules that make no sense"},
	} {
		expectFound(t, row.name, row.check, storetest.CheckSchedules, func() store.ScheduleStore {
			s := row.store
			s.Memory = new(store.Memory)
			return &s
		})
	}
}

var aDefinition = []byte(`{"cron": "@hourly"}`)
