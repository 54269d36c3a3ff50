package conformance

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// A wait has the answers that its gate accepts, wherever the wait is read: in the Result, in a snapshot, and in the store without the graph.
func TestWaitsHaveChoices(t *testing.T) {
	t.Parallel()
	inner := (&kahn.Graph{}).Add(kahn.Node{ID: "ship?", Kind: kahn.KindGate}, kahn.Node{ID: "air", In: []kahn.Edge{{From: "ship?", Label: "air"}}},
		kahn.Node{ID: "sea", In: []kahn.Edge{{From: "ship?", Label: "sea"}}})
	g := (&kahn.Graph{Name: "orders"}).Add(
		kahn.Node{ID: "ok?", Kind: kahn.KindGate, Gate: &kahn.Gate{Choices: []string{"red", "green"}}},
		kahn.Node{ID: "free", Kind: kahn.KindGate},
		kahn.Node{ID: "S", Sub: inner},
	)
	check := func(waits []kahn.Wait) {
		t.Helper()
		have := map[string][]string{}
		for _, w := range waits {
			have[w.Node] = w.Choices
		}
		require.Equal(t, map[string][]string{"ok?": {"red", "green"}, "free": nil, "S/ship?": {"air", "sea"}}, have)
	}
	db := new(store.Memory)
	res, err := kahn.Execute(t.Context(), g, kahn.Mux{}.Step, kahn.Durable(db), kahn.RunID("1"))
	require.NoError(t, err)
	check(res.Waiting)
	stored, err := kahn.ReadRun(t.Context(), db, "1")
	require.NoError(t, err)
	check(stored.Waiting)
	snapshot, err := kahn.ReadSnapshot(t.Context(), db, "1")
	require.NoError(t, err)
	nodes, err := snapshot.Nodes(nil)
	require.NoError(t, err)
	i := slices.IndexFunc(nodes, func(n kahn.SnapshotNode) bool { return n.ID == "ok?" })
	require.Equal(t, []string{"red", "green"}, nodes[i].Wait.Choices)

	nodes[i].Wait.Choices[0] = "mine" // the lists belong to the caller
	res.Waiting[0].Choices[0] = "mine"
	again, err := kahn.ReadRun(t.Context(), db, "1")
	require.NoError(t, err)
	check(again.Waiting)
}
