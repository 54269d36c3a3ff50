package sqlite

import (
	"context"
	"database/sql/driver"
	"encoding/json"
	"fmt"

	"github.com/seed-c794f7ef/kahn/store"
)

// eventsOfRun is one more than the highest id that an event of a run may have.
const eventsOfRun = 1 << 32

// eventSum is the checksum of the row of an event.
func eventSum(s *summer, row int64, data []byte) int64 {
	s.ints(row)
	s.part(data)
	return int64(s.sum())
}

// putEvents writes the next events of a run. The caller has already checked, in the same transaction, that it may write the run.
func (w *writer) putEvents(run int64, events []store.EventRecord) error {
	for i := range events {
		row := run*eventsOfRun + int64(events[i].ID)
		if _, err := w.rows.event.exec(row, string(events[i].Data), eventSum(&w.sums, row, events[i].Data)); err != nil {
			return err
		}
	}
	return nil
}

// The queries of LoadEvents.
const (
	logQuery = "SELECT run, status, workflow, sequence > 0," +
		" (SELECT event FROM kahn_events WHERE event >= run * 4294967296 AND event < (run + 1) * 4294967296 ORDER BY event LIMIT 1)," +
		" (SELECT event FROM kahn_events WHERE event >= run * 4294967296 AND event < (run + 1) * 4294967296 ORDER BY event DESC LIMIT 1)" +
		" FROM kahn_runs WHERE id = ?"
	eventsQuery = "SELECT event, data, checksum FROM kahn_events WHERE event >= ? AND event <= ? ORDER BY event LIMIT ?"
)

// LoadEvents implements [store.EventStore].
func (s *Store) LoadEvents(ctx context.Context, run string, after uint64, limit int) (page store.EventPage, err error) {
	err = s.view(ctx, func(do execution) error {
		number, err := readLog(do, run, &page)
		if err != nil || page.Last <= after {
			return err
		}
		next := max(after+1, page.First)
		first := number * eventsOfRun
		var sums summer
		return do(eventsQuery, func(row []driver.Value) error {
			id := next + uint64(len(page.Events))
			data, _ := row[1].(string)
			if row[0] != first+int64(id) || row[2] != eventSum(&sums, first+int64(id), []byte(data)) {
				return fmt.Errorf("%w: row %v of the events instead of %d", ErrDamaged, row[0], first+int64(id))
			}
			page.Events = append(page.Events, store.EventRecord{ID: id, Data: json.RawMessage(data)})
			return nil
		}, first+int64(next), first+int64(page.Last), int64(limit))
	})
	if err != nil {
		return store.EventPage{}, s.about("load events of", run, err)
	}
	return page, nil
}

// readLog reads the fields of a page other than its events, and returns the number of the run.
func readLog(do execution, run string, page *store.EventPage) (number int64, err error) {
	err = do(logQuery, func(row []driver.Value) error {
		number, _ = row[0].(int64)
		status, _ := row[1].(string)
		page.Workflow, _ = row[2].(string)
		page.Begun = row[3] != int64(0)
		for i, id := range []*uint64{&page.First, &page.Last} {
			if event, ok := row[4+i].(int64); ok {
				*id = uint64(event - number*eventsOfRun)
			}
		}
		if page.Status.UnmarshalText([]byte(status)) != nil {
			return fmt.Errorf("%w: the run's status is %q", ErrDamaged, status)
		}
		return nil
	}, run)
	if err == nil && number == 0 {
		err = store.ErrUnknownRun
	}
	return number, err
}

// NotifyEvents implements [store.EventNotifier]. It reports events that were written through this Store.
func (s *Store) NotifyEvents(run string) (changed <-chan struct{}, stop func()) {
	return s.board.Wait(run)
}
