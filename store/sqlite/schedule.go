package sqlite

import (
	"context"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/seed-c794f7ef/kahn/store"
)

var _ store.ScheduleStore = (*Store)(nil)

// schedulesQuery is the statement of Schedules. %s is replaced by the expression for the time. If no schedule is found, the result is one
// row that has only the time.
const schedulesQuery = "SELECT s.name, s.revision, s.paused, s.tick, s.active, s.definition," +
	" coalesce(t.status <> 'pending', 1), t.id IS NULL OR t.ended IS NOT NULL, a.id IS NOT NULL AND a.ended IS NULL AND (a.status <> 'pending' OR a.owner <> '' AND a.expires > n.now), n.now" +
	" FROM (SELECT %s AS now) n LEFT JOIN kahn_schedules s ON (? = 'null' OR s.name IN (SELECT value FROM json_each(?)))" +
	" LEFT JOIN kahn_runs t ON t.id = s.tick LEFT JOIN kahn_runs a ON a.id = s.active ORDER BY s.name"

// Schedules implements [store.ScheduleStore].
func (s *Store) Schedules(ctx context.Context, names ...string) (list []store.ScheduleState, now time.Time, err error) {
	if len(names) == 0 {
		names = nil // null in JSON: all schedules
	}
	asked, err := json.Marshal(names)
	if err == nil {
		err = s.read(ctx, sqlAt(schedulesQuery, s.now), func(row []driver.Value) error {
			now = timeOf(row[9])
			var x store.ScheduleState
			var there bool
			if x.Name, there = row[0].(string); !there {
				return nil
			}
			integer := func(i int) int64 {
				n, _ := row[i].(int64)
				return n
			}
			x.Revision, x.Paused = uint64(integer(1)), integer(2) != 0
			x.Tick, _ = row[3].(string)
			x.Active, _ = row[4].(string)
			definition, _ := row[5].(string)
			x.Definition = json.RawMessage(definition)
			x.Begun, x.Ended, x.Busy = integer(6) != 0, integer(7) != 0, integer(8) != 0
			list = append(list, x)
			return nil
		}, string(asked), string(asked))
	}
	if err != nil {
		return nil, now, fmt.Errorf("list schedules: %w", err)
	}
	return list, now, nil
}

// PutSchedule implements [store.ScheduleStore].
func (s *Store) PutSchedule(ctx context.Context, x store.Schedule, create *store.NewRun) error {
	err := errors.Join(x.Check(), ctx.Err())
	if err == nil && create != nil {
		err = create.Check()
	}
	if err != nil {
		return aboutSchedule("write", x.Name, err)
	}
	w := s.writer
	var refused error
	err = w.write(ctx, func() (err error) {
		if refused, err = w.unchanged(&x); err != nil || refused != nil {
			return err
		}
		if create != nil {
			delete(w.runs, create.ID)
			if _, _, refused, err = s.creation(w.in, create); err != nil || refused != nil {
				return err
			}
		}
		paused := int64(0)
		if x.Paused {
			paused = 1
		}
		return w.in("INSERT INTO kahn_schedules (name, revision, paused, tick, active, definition) VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET"+
			" revision = excluded.revision, paused = excluded.paused, tick = excluded.tick, active = excluded.active, definition = excluded.definition",
			nil, x.Name, int64(x.Revision+1), paused, x.Tick, x.Active, string(x.Definition))
	})
	if err == nil {
		err = refused
	}
	return aboutSchedule("write", x.Name, err)
}

// RemoveSchedule implements [store.ScheduleStore].
func (s *Store) RemoveSchedule(ctx context.Context, name string, revision uint64) error {
	if err := ctx.Err(); err != nil {
		return aboutSchedule("remove", name, err)
	}
	x, w := store.Schedule{Name: name, Revision: revision}, s.writer
	var refused error
	err := w.write(ctx, func() (err error) {
		if refused, err = w.unchanged(&x); err != nil || refused != nil {
			return err
		}
		return w.in("DELETE FROM kahn_schedules WHERE name = ?", nil, name)
	})
	if err == nil {
		err = refused
	}
	return aboutSchedule("remove", name, err)
}

// The method `unchanged` returns an error in the result "refused" if the stored revision of the schedule differs from x.Revision.
func (w *writer) unchanged(x *store.Schedule) (refused, err error) {
	stored := int64(0)
	err = w.in("SELECT revision FROM kahn_schedules WHERE name = ?", func(row []driver.Value) error {
		stored, _ = row[0].(int64)
		return nil
	}, x.Name)
	if err == nil && uint64(stored) != x.Revision {
		refused = x.Changed(uint64(stored))
	}
	return refused, err
}

func aboutSchedule(call, name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s schedule %q: %w", call, name, err)
}
