package postgres_test

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/kahntest"
	"github.com/seed-c794f7ef/kahn/store"
	"github.com/seed-c794f7ef/kahn/store/postgres"
	"github.com/seed-c794f7ef/kahn/store/postgres/postgrestest"
	"github.com/seed-c794f7ef/kahn/storetest"
)

func TestEvents(t *testing.T) {
	t.Parallel()
	pool := postgrestest.NewPool(t, database)
	open := newStores(pool)
	storetest.RunEvents(t, func(t *testing.T) store.EventStore { return open(t) })
}

// TestFollowedFromAnotherPool: a reader with its own pool, as in another process, follows a run that two Executes perform, and sees each event
// once.
func TestFollowedFromAnotherPool(t *testing.T) {
	t.Parallel()
	schema := newSchema()
	storetest.RunFollow(t, openStore(t, postgrestest.NewPool(t, database), schema), openStore(t, postgrestest.NewPool(t, database), schema), kahntest.CheckEvents)
}

// logged begins a run and commits events with the given ids.
func logged(t *testing.T, s store.Store, ids ...uint64) store.Lease {
	t.Helper()
	lease := begun(t, s, "r")
	for i, id := range ids {
		commit(t, s, lease, store.Commit{Sequence: uint64(i + 2), Events: []store.EventRecord{anEvent(id)}})
	}
	return lease
}

func anEvent(id uint64) store.EventRecord {
	return store.EventRecord{ID: id, Data: []byte(`{"type":"node.log","timestamp":"2026-01-02T03:04:05Z","payload":{"level":"info","message":"m"}}`)}
}

// TestOvertakenEvents: a process that has lost its lease without noticing cannot store an event.
func TestOvertakenEvents(t *testing.T) {
	t.Parallel()
	pool, schema := postgrestest.NewPool(t, database), newSchema()
	s := openStore(t, pool, schema)
	lease := logged(t, s, 1)
	_, _, err := openStore(t, pool, schema).Acquire(t.Context(), "r", "owner", time.Minute)
	require.NoError(t, err)
	_, err = s.Commit(t.Context(), lease, store.Commit{Sequence: 3, Events: []store.EventRecord{anEvent(2)}})
	require.ErrorIs(t, err, store.ErrFenced)
	page, err := s.LoadEvents(t.Context(), "r", 0, 10)
	require.NoError(t, err)
	require.Equal(t, uint64(1), page.Last)
}

// TestMissingEvents: a reader gets ErrDamaged for an event that is missing between two others. The run itself continues.
func TestMissingEvents(t *testing.T) {
	t.Parallel()
	pool, schema := postgrestest.NewPool(t, database), newSchema()
	s := openStore(t, pool, schema)
	lease := logged(t, s, 1, 2, 3, 4)
	_, err := pool.Exec(t.Context(), "DELETE FROM "+table(schema, "events")+" WHERE event = 3")
	require.NoError(t, err)
	first, err := store.ReadEvents(t.Context(), s, "r", 0, 2)
	require.NoError(t, err)
	require.Len(t, first, 2)
	_, err = store.ReadEvents(t.Context(), s, "r", 2, 2)
	require.ErrorIs(t, err, postgres.ErrDamaged)
	commit(t, s, lease, store.Commit{Sequence: 6, Events: []store.EventRecord{anEvent(5)}})
	last, err := store.ReadEvents(t.Context(), s, "r", 3, 2)
	require.NoError(t, err)
	require.Len(t, last, 2)
}

// TestHighestEvent: an event id may be as high as math.MaxInt64, the highest bigint of the server.
func TestHighestEvent(t *testing.T) {
	t.Parallel()
	s := openStore(t, postgrestest.NewPool(t, database), newSchema())
	lease := logged(t, s, math.MaxInt64-1, math.MaxInt64)
	_, err := s.Commit(t.Context(), lease, store.Commit{Sequence: 4, Events: []store.EventRecord{anEvent(math.MaxInt64 + 1)}})
	require.ErrorIs(t, err, store.ErrRejected)
	page, err := s.LoadEvents(t.Context(), "r", math.MaxInt64-1, 10)
	require.NoError(t, err)
	require.Equal(t, uint64(math.MaxInt64-1), page.First)
	require.Len(t, page.Events, 1)
}

// TestEventsShareStatements: the statement of a commit also writes the commit's events.
func TestEventsShareStatements(t *testing.T) {
	t.Parallel()
	counter := new(statements)
	s := openStore(t, postgrestest.NewPool(t, database, func(c *pgxpool.Config) { c.ConnConfig.Tracer = counter }), newSchema())
	const steps = 50
	before := counter.count.Load()
	step := func(context.Context, *kahn.Step) (any, error) { return 1, nil }
	_, err := kahn.Execute(t.Context(), row(steps), step, kahn.RunID("row"), kahn.Durable(s), kahn.StoreEvents())
	require.NoError(t, err)
	// The run needs one statement for each step, a few for its beginning and end, and sometimes two more if a renewal has locked the row.
	// Separate statements for events would double the number.
	require.LessOrEqual(t, counter.count.Load()-before, int64(steps+steps/5))
	page, err := s.LoadEvents(t.Context(), "row", 0, store.MaxPage)
	require.NoError(t, err)
	require.Greater(t, len(page.Events), 2*steps)
}
