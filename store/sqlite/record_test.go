package sqlite

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// TestColumns: Columns survive a round trip through a row, and every field changes the checksum.
func TestColumns(t *testing.T) {
	t.Parallel()
	start, end := time.Date(2026, 11, 22, 11, 42, 13, 462670135, time.UTC), time.Date(2026, 11, 22, 11, 42, 13, 500000000, time.UTC)
	sums := map[uint32]bool{}
	for _, d := range []store.Columns{
		{},
		{Status: kahn.Ready},
		{Status: kahn.Failed, Cause: kahn.CauseTimeout, Start: start, End: end, Record: json.RawMessage(`{"x":1}`)},
		{Status: kahn.Completed, Start: start, Value: json.RawMessage("null")},
		{Status: kahn.Completed, Start: end, Value: json.RawMessage("null")},
		{Status: kahn.Completed, Start: start, Record: json.RawMessage("null")},
		{Hash: []byte{0, 1}, Value: json.RawMessage("\xff\x00")},
	} {
		back, err := readColumns(appendColumns(nil, &d))
		require.NoError(t, err)
		require.Equal(t, d, back)
		require.False(t, sums[checksum(new(summer), &d)], "%+v", d)
		sums[checksum(new(summer), &d)] = true
	}
	empty := &store.Columns{Hash: []byte{}, Value: json.RawMessage{}, Record: json.RawMessage{}} // a driver returns empty bytes as nil
	require.Equal(t, appendColumns(nil, new(store.Columns)), appendColumns(nil, empty))
	require.Equal(t, noRecord, checksum(new(summer), empty))

	values := appendColumns(nil, new(store.Columns))
	values[0] = "unheard of"
	_, err := readColumns(values)
	require.ErrorIs(t, err, kahn.ErrBadValue)
}

// TestLastEvent: a commit is rejected if the id of its event does not fit into the row's number.
func TestLastEvent(t *testing.T) {
	t.Parallel()
	for id, ok := range map[uint64]bool{eventsOfRun - 1: true, eventsOfRun: false} {
		st := stage{run: &run{nodes: map[string]*node{}}, sums: new(summer)}
		applied, err := st.judge(&store.Commit{Sequence: 1, Events: []store.EventRecord{{ID: id}}})
		if ok {
			require.NoError(t, err)
			require.Equal(t, store.AppliedNow, applied)
			continue
		}
		require.ErrorIs(t, err, store.ErrRejected)
	}
}
