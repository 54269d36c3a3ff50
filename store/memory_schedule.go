package store

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/seed-c794f7ef/kahn/machine"
)

var _ ScheduleStore = (*Memory)(nil)

// Schedules implements [ScheduleStore].
func (m *Memory) Schedules(ctx context.Context, names ...string) (list []ScheduleState, now time.Time, err error) {
	unlock, err := m.lock(ctx)
	if err != nil {
		return nil, now, err
	}
	defer unlock()
	for _, name := range slices.Sorted(maps.Keys(m.schedules)) {
		if len(names) > 0 && !slices.Contains(names, name) {
			continue
		}
		x := ScheduleState{Schedule: m.schedules[name]}
		x.Definition = slices.Clone(x.Definition)
		tick := m.runs[x.Tick]
		x.Begun, x.Ended = tick == nil || tick.Status != machine.RunPending, tick == nil || tick.Status.Terminal()
		if r := m.runs[x.Active]; r != nil {
			x.Busy = !r.Status.Terminal() && (r.Status != machine.RunPending || r.leased())
		}
		list = append(list, x)
	}
	return list, time.Now(), nil
}

// PutSchedule implements [ScheduleStore].
func (m *Memory) PutSchedule(ctx context.Context, s Schedule, create *NewRun) error {
	if err := s.Check(); err != nil {
		return err
	}
	if create != nil {
		if err := create.Check(); err != nil {
			return err
		}
	}
	unlock, err := m.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if stored := m.schedules[s.Name].Revision; stored != s.Revision {
		return s.Changed(stored)
	}
	if create != nil {
		if _, _, err := m.create(create); err != nil {
			return err
		}
	}
	if m.schedules == nil {
		m.schedules = map[string]Schedule{}
	}
	s.Revision++
	m.schedules[s.Name] = s
	return nil
}

// RemoveSchedule implements [ScheduleStore].
func (m *Memory) RemoveSchedule(ctx context.Context, name string, revision uint64) error {
	unlock, err := m.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	s := Schedule{Name: name, Revision: revision}
	if stored := m.schedules[name].Revision; stored != revision {
		return s.Changed(stored)
	}
	delete(m.schedules, name)
	return nil
}

// ticks returns the ids of the runs that schedules name in their field Tick. The caller holds m.mu.
func (m *Memory) ticks() map[string]bool {
	ticks := make(map[string]bool, len(m.schedules))
	for _, s := range m.schedules {
		ticks[s.Tick] = true
	}
	return ticks
}
