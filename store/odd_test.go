package store_test

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn/machine"
	"github.com/seed-c794f7ef/kahn/store"
)

// farthest is the latest time that package time can represent.
var farthest = time.Unix(1<<63-62135596801, 999999999)

// TestOddRuns: Run.Check and Insert refuse a run that a store could not return unchanged.
func TestOddRuns(t *testing.T) {
	run := func(change func(r *store.Run)) *store.Run {
		r := &store.Run{ID: "r", Created: time.Unix(5, 0), Status: machine.RunRunning, Sequence: 1, Record: json.RawMessage("{}"), Nodes: map[string]store.Node{}}
		change(r)
		return r
	}
	node := func(c store.Columns) *store.Run {
		return run(func(r *store.Run) { r.Nodes["x"] = store.Node{Columns: c, State: store.State{Attempt: 1}} })
	}
	require.NoError(t, run(func(*store.Run) {}).Check())
	require.NoError(t, node(store.Columns{Start: time.Unix(0, math.MinInt64), End: time.Unix(0, math.MaxInt64)}).Check())
	for name, r := range map[string]*store.Run{
		"year 0":            run(func(r *store.Run) { r.Created = time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC) }),
		"year 10000":        run(func(r *store.Run) { r.WakeAt = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC) }),
		"the end of time":   run(func(r *store.Run) { r.Created = farthest }),
		"a start in 1600":   node(store.Columns{Start: time.Date(1600, 1, 1, 0, 0, 0, 0, time.UTC)}),
		"an end in 2263":    node(store.Columns{End: time.Date(2263, 1, 1, 0, 0, 0, 0, time.UTC)}),
		"an empty hash":     node(store.Columns{Hash: []byte{}}),
		"an empty value":    node(store.Columns{Value: json.RawMessage{}}),
		"a label":           run(func(r *store.Run) { r.Labels = map[string]string{"name": "M\xfcller"} }),
		"a name of a label": run(func(r *store.Run) { r.Labels = map[string]string{"\xff": "x"} }),
		"a workflow":        run(func(r *store.Run) { r.Workflow = "\xff" }),
	} {
		require.ErrorIs(t, r.Check(), machine.ErrBadValue, name)
		require.ErrorIs(t, new(store.Memory).Insert(t.Context(), r), machine.ErrBadValue, name)
	}
	n := store.NewRun{ID: "r", NotBefore: farthest}
	require.ErrorIs(t, n.Check(), machine.ErrBadValue)
}

// TestExportOfNoText: Export refuses a run with two node ids that become equal in JSON.
func TestExportOfNoText(t *testing.T) {
	s := new(store.Memory)
	require.NoError(t, s.Insert(t.Context(), &store.Run{ID: "r", Created: time.Unix(5, 0), Status: machine.RunRunning, Sequence: 1, Record: json.RawMessage("{}"), Nodes: map[string]store.Node{"\xfe": {}, "\xff": {}}}))
	var b strings.Builder
	require.ErrorIs(t, store.Export(t.Context(), s, "r", &b), machine.ErrBadValue)
	require.Empty(t, b.String())
}
