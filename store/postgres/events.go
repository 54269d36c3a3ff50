package postgres

import (
	"context"
	"fmt"
	"math"

	"github.com/jackc/pgx/v5"

	"github.com/seed-c794f7ef/kahn/internal/foreign"
	"github.com/seed-c794f7ef/kahn/machine"
	"github.com/seed-c794f7ef/kahn/store"
)

// eventRows holds rows of events, one slice for each column.
type eventRows struct {
	runs, ids []int64
	data      [][]byte
}

const eventColumns = "run bigint, event bigint, data bytea"

func (e *eventRows) add(run int64, events []store.EventRecord) {
	for i := range events {
		e.runs, e.ids, e.data = append(e.runs, run), append(e.ids, int64(events[i].ID)), append(e.data, events[i].Data)
	}
}

// lastEvent is the expression for the id of the last stored event of a run.
const lastEvent = "(SELECT e.event FROM $S.events e WHERE e.run = r.run ORDER BY e.event DESC LIMIT 1)"

// eventsQuery reads a part of the log of a run. If the run is stored and has no events in this part, the result has one row without an event.
const eventsQuery = `SELECT r.status, r.workflow, r.sequence > 0, (SELECT e.event FROM $S.events e WHERE e.run = r.run ORDER BY e.event LIMIT 1), ` + lastEvent + `, e.event, e.data
FROM $S.runs r LEFT JOIN LATERAL (SELECT e.event, e.data FROM $S.events e WHERE e.run = r.run AND e.event > $2 ORDER BY e.event LIMIT $3) e ON true
WHERE r.id = $1 ORDER BY e.event`

// LoadEvents implements [store.EventStore].
func (s *Store) LoadEvents(ctx context.Context, run string, after uint64, limit int) (page store.EventPage, err error) {
	if err = s.check(ctx); err == nil {
		page, err = s.loadEvents(ctx, run, after, limit)
	}
	if err != nil {
		return store.EventPage{}, about("load events of", run, err)
	}
	return page, nil
}

func (s *Store) loadEvents(ctx context.Context, run string, after uint64, limit int) (page store.EventPage, err error) {
	if !storable(run) {
		return page, store.ErrUnknownRun
	}
	known := false
	err = s.do(ctx, s.texts.events, []any{run, int64(min(after, math.MaxInt64)), limit}, func(rows pgx.Rows) error {
		var status string
		var first, last, id *int64
		var data []byte
		if err := rows.Scan(&status, &page.Workflow, &page.Begun, &first, &last, &id, &data); err != nil {
			return err
		}
		known = true
		if err := page.Status.UnmarshalText([]byte(status)); err != nil || page.Status > machine.RunCancelled {
			return fmt.Errorf("%w: the run's status is %s", ErrDamaged, foreign.Quote(status))
		}
		page.First, page.Last = idOf(first), idOf(last)
		if id == nil {
			return nil
		}
		if want := max(after+1, page.First) + uint64(len(page.Events)); idOf(id) != want {
			return fmt.Errorf("%w: event %d instead of %d", ErrDamaged, *id, want)
		}
		page.Events = append(page.Events, store.EventRecord{ID: idOf(id), Data: data})
		return nil
	})
	if err == nil && !known {
		err = store.ErrUnknownRun
	}
	return page, err
}

// idOf returns the id of an event, or 0 if there is no event.
func idOf(event *int64) uint64 {
	if event == nil {
		return 0
	}
	return uint64(*event)
}

// NotifyEvents implements [store.EventNotifier]. It reports only events that this Store has written. When a reader polls, it also finds the events
// of other processes.
func (s *Store) NotifyEvents(run string) (changed <-chan struct{}, stop func()) {
	return s.board.Wait(run)
}
