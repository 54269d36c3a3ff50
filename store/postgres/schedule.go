package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/seed-c794f7ef/kahn/store"
)

var _ store.ScheduleStore = (*Store)(nil)

// schedulesText returns the statement of Schedules. Each row has the current time. If the statement finds no schedule, it returns one row without a
// name.
func schedulesText() string {
	return `SELECT coalesce(s.name, ''), coalesce(s.revision, 0), coalesce(s.paused, false), coalesce(s.tick, ''), coalesce(s.active, ''), s.definition,
	coalesce(t.status <> 'pending', true), t.run IS NULL OR t.ended IS NOT NULL, a.run IS NOT NULL AND a.ended IS NULL AND (a.status <> 'pending' OR a.owner <> '' AND a.expires > n.now), n.now
FROM (SELECT $NOW AS now) n LEFT JOIN $S.schedules s ON $1::text[] IS NULL OR s.name = ANY ($1)
	LEFT JOIN $S.runs t ON t.id = s.tick LEFT JOIN $S.runs a ON a.id = s.active ORDER BY s.name`
}

// Schedules implements [store.ScheduleStore].
func (s *Store) Schedules(ctx context.Context, names ...string) (list []store.ScheduleState, now time.Time, err error) {
	if err := s.check(ctx); err != nil {
		return nil, now, err
	}
	var asked []string // nil becomes NULL in SQL
	for _, name := range names {
		if asked == nil {
			asked = []string{}
		}
		if storable(name) {
			asked = append(asked, name)
		}
	}
	err = s.do(ctx, s.sql(schedulesText()), []any{asked}, func(rows pgx.Rows) error {
		var x store.ScheduleState
		var revision int64
		var definition []byte
		var clock pgtype.Timestamptz
		if err := rows.Scan(&x.Name, &revision, &x.Paused, &x.Tick, &x.Active, &definition, &x.Begun, &x.Ended, &x.Busy, &clock); err != nil {
			return err
		}
		now = timeOf(clock)
		if x.Revision, x.Definition = uint64(revision), definition; x.Name != "" {
			list = append(list, x)
		}
		return nil
	})
	if err != nil {
		return nil, now, fmt.Errorf("list schedules: %w", err)
	}
	return list, now, nil
}

// putScheduleText returns a statement that writes a row if the stored revision equals the argument $2. The statement returns whether it has written
// the row, and the previously stored revision.
func putScheduleText() string {
	return `WITH put AS (
	INSERT INTO $S.schedules AS s (name, revision, paused, tick, active, definition) SELECT $1, $2::bigint + 1, $3, $4, $5, $6
	WHERE $2::bigint = 0 OR EXISTS (SELECT FROM $S.schedules o WHERE o.name = $1)
	ON CONFLICT (name) DO UPDATE SET revision = excluded.revision, paused = excluded.paused, tick = excluded.tick, active = excluded.active, definition = excluded.definition
	WHERE s.revision = $2::bigint
	RETURNING 1
)
SELECT (SELECT count(*) FROM put) > 0, coalesce((SELECT revision FROM $S.schedules WHERE name = $1), 0)`
}

// PutSchedule implements [store.ScheduleStore]. One transaction writes the row of the schedule and creates the run.
func (s *Store) PutSchedule(ctx context.Context, x store.Schedule, create *store.NewRun) error {
	err := errors.Join(x.Check(), s.check(ctx))
	if err == nil {
		err = checkTexts(x.Name, x.Tick, x.Active)
	}
	if err == nil && create != nil {
		err = create.Check()
	}
	if err != nil {
		return aboutSchedule("write", x.Name, err)
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	err = pgx.BeginTxFunc(ctx, s.pool, s.begins(), func(tx pgx.Tx) error {
		var put bool
		var stored int64
		err := tx.QueryRow(ctx, s.sql(putScheduleText()), x.Name, int64(x.Revision), x.Paused, x.Tick, x.Active, []byte(x.Definition)).Scan(&put, &stored)
		if err == nil && !put {
			err = x.Changed(uint64(stored))
		}
		if err == nil && create != nil {
			_, _, err = s.create(ctx, tx, create)
		}
		return err
	})
	return aboutSchedule("write", x.Name, describe(err))
}

// RemoveSchedule implements [store.ScheduleStore].
func (s *Store) RemoveSchedule(ctx context.Context, name string, revision uint64) error {
	if err := s.check(ctx); err != nil {
		return aboutSchedule("remove", name, err)
	}
	x := store.Schedule{Name: name, Revision: revision}
	if !storable(name) {
		if revision == 0 {
			return nil
		}
		return aboutSchedule("remove", name, x.Changed(0))
	}
	var removed bool
	var stored int64
	const text = `WITH gone AS (DELETE FROM $S.schedules WHERE name = $1 AND revision = $2 RETURNING 1)
SELECT EXISTS (SELECT FROM gone), coalesce((SELECT revision FROM $S.schedules WHERE name = $1), 0)`
	err := s.do(ctx, s.sql(text), []any{name, int64(revision)}, func(rows pgx.Rows) error { return rows.Scan(&removed, &stored) })
	if err == nil && !removed && (stored != 0 || revision != 0) {
		err = x.Changed(uint64(stored))
	}
	return aboutSchedule("remove", name, err)
}

func aboutSchedule(call, name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s schedule %q: %w", call, name, err)
}
