package sqlite_test

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn/machine"
	"github.com/seed-c794f7ef/kahn/store"
	"github.com/seed-c794f7ef/kahn/store/sqlite"
)

// TestLongestLease: a lease with the longest Duration does not overflow.
func TestLongestLease(t *testing.T) {
	t.Parallel()
	s := openStore(t, file(t), sqlite.Options{})
	l, _, err := s.Acquire(t.Context(), "r", "one", math.MaxInt64)
	require.NoError(t, err)
	require.NoError(t, s.Renew(t.Context(), l, math.MaxInt64))
	_, _, err = s.Acquire(t.Context(), "r", "two", time.Minute)
	require.ErrorIs(t, err, store.ErrLeased)
}

// TestFarthestTimes: the earliest and the latest time that package time can represent can bound a Filter.
func TestFarthestTimes(t *testing.T) {
	t.Parallel()
	s := openStore(t, file(t), sqlite.Options{})
	require.NoError(t, s.Insert(t.Context(), &store.Run{ID: "r", Created: time.Unix(5, 0), Ended: time.Unix(6, 0), Status: machine.RunCompleted, Sequence: 1,
		Record: json.RawMessage("{}"), Nodes: map[string]store.Node{}}))
	last, first := time.Unix(1<<63-62135596801, 999999999), time.Unix(-1<<62, 0)
	for want, filters := range map[int][]store.Filter{
		1: {{CreatedBefore: last}, {EndedBefore: last}, {CreatedFrom: first}, {EndedFrom: first}},
		0: {{CreatedFrom: last}, {EndedFrom: last}, {CreatedBefore: first}, {EndedBefore: first}},
	} {
		for _, f := range filters {
			page, err := s.List(t.Context(), store.Query{Filter: f})
			require.NoError(t, err)
			require.Len(t, page.Runs, want, "%+v", f)
		}
	}
	pruned, err := s.Prune(t.Context(), store.PruneQuery{EndedBefore: last})
	require.NoError(t, err)
	require.Equal(t, 1, pruned.Runs)
}

// TestEmptyColumns: an empty slice in Columns is stored as nil.
func TestEmptyColumns(t *testing.T) {
	t.Parallel()
	s := openStore(t, file(t), sqlite.Options{})
	for id, c := range map[string]store.Columns{"value": {Value: json.RawMessage{}}, "record": {Record: json.RawMessage{}}, "hash": {Hash: []byte{}}} {
		l, _, err := s.Acquire(t.Context(), id, "one", time.Minute)
		require.NoError(t, err)
		_, err = s.Commit(t.Context(), l, store.Commit{Sequence: 1, Run: json.RawMessage("{}"), Nodes: []store.NodeRecord{{Node: "x", Columns: c}}})
		require.NoError(t, err)
		stored, err := s.Load(t.Context(), id)
		require.NoError(t, err, id)
		require.Equal(t, store.Columns{}, stored.Nodes["x"].Columns, id)
	}
}
