package postgres_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
	"github.com/seed-c794f7ef/kahn/store/postgres/postgrestest"
)

// largeCommit returns a commit of about 20 MB. It ends n nodes, and has an event for each node; the ids of the events begin with "event".
func largeCommit(sequence, event uint64, n int) store.Commit {
	c := store.Commit{Sequence: sequence, Run: []byte(`{"large":true}`)}
	for i := range n {
		record := store.NodeRecord{Node: fmt.Sprint("n", i), Terminal: true}
		record.Status, record.Record = kahn.Cancelled, []byte(`"`+strings.Repeat("x", 20_000_000/n)+`"`)
		c.Nodes = append(c.Nodes, record)
		c.Events = append(c.Events, anEvent(event+uint64(i)))
	}
	return c
}

// TestCommitInParts: a commit that is too large for one statement is written completely or not at all. It leaves nothing behind if its lease was
// lost, or if it contradicts the stored state. The lease can be renewed while the commit is written.
func TestCommitInParts(t *testing.T) {
	t.Parallel()
	const nodes = 6000
	counter := new(statements)
	pool, schema := postgrestest.NewPool(t, database, func(c *pgxpool.Config) { c.ConnConfig.Tracer = counter }), newSchema()
	s := openStore(t, pool, schema)
	lease := logged(t, s, 1)
	stored := func() *store.Run {
		r, err := s.Load(t.Context(), "r")
		require.NoError(t, err)
		return r
	}
	before := counter.count.Load()
	commit(t, s, lease, largeCommit(3, 2, nodes))
	require.Greater(t, counter.count.Load()-before, int64(4), "it is written in parts")
	r := stored()
	require.Len(t, r.Nodes, nodes)
	require.Equal(t, uint64(1+nodes), r.LastEvent)
	require.JSONEq(t, `{"large":true}`, string(r.Record))
	for i := range nodes {
		n := r.Nodes[fmt.Sprint("n", i)]
		require.True(t, n.Terminal && n.Status == kahn.Cancelled && len(n.Record) == 20_000_000/nodes+2, i)
	}
	again, err := s.Commit(t.Context(), lease, largeCommit(3, 2, nodes))
	require.NoError(t, err)
	require.Equal(t, store.Duplicate, again)
	ended, err := s.Commit(t.Context(), lease, largeCommit(4, 2+nodes, nodes))
	require.NoError(t, err)
	require.Equal(t, store.Conflict, ended, "the nodes have ended")

	lease = begun(t, s, "q")
	done := make(chan error, 1)
	go func() {
		for range 20 {
			if err := s.Renew(t.Context(), lease, time.Minute); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	commit(t, s, lease, largeCommit(2, 1, nodes))
	require.NoError(t, answer(t, done))

	lease = begun(t, s, "o")
	_, _, err = openStore(t, pool, schema).Acquire(t.Context(), "o", "owner", time.Minute)
	require.NoError(t, err)
	_, err = s.Commit(t.Context(), lease, largeCommit(2, 1, nodes))
	require.ErrorIs(t, err, store.ErrFenced)
	overtaken, err := s.Load(t.Context(), "o")
	require.NoError(t, err)
	require.Zero(t, len(overtaken.Nodes)) // Empty would print megabytes if it failed
	require.Zero(t, overtaken.LastEvent)
}
