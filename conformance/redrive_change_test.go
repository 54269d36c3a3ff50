package conformance_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/kahntest"
	"github.com/seed-c794f7ef/kahn/store"
)

// TestRedriveOfAChangedGraph: a redrive may change nodes that run again, but not nodes that it keeps.
func TestRedriveOfAChangedGraph(t *testing.T) {
	config := func(id string, config any, after ...string) kahn.Node {
		return kahn.Node{ID: id, Config: config, After: after}
	}
	// A has completed and F, which follows A, has failed. D follows F. K is kept.
	before := func() *kahn.Graph {
		return graph(config("A", 1), config("F", "broken", "A"), config("D", 1, "F"), config("K", 1, "A"))
	}
	for _, row := range []struct {
		name  string
		after *kahn.Graph
		names []string
		ran   string // the calls; "" if the redrive is refused
	}{
		{"the failed node's config", graph(config("A", 1), config("F", "mended", "A"), config("D", 1, "F"), config("K", 1, "A")), nil, "FD"},
		{"that of one that follows it", graph(config("A", 1), config("F", "broken", "A"), config("D", 2, "F"), config("K", 1, "A")), nil, "FD"},
		{"its kind of node", graph(config("A", 1), subgraph("F", graph(after("x")), "A"), config("D", 1, "F"), config("K", 1, "A")), nil, "xD"},
		{"its in-edges", graph(config("A", 1), config("F", "broken", "A", "K"), config("D", 1, "F", "A"), config("K", 1, "A")), nil, "FD"},
		{"a new node before it", graph(config("A", 1), config("N", 1), config("F", "broken", "N"), config("D", 1, "F"), config("K", 1, "A")), nil, "NFD"},
		{"a named node, and what follows it", graph(config("A", 2), config("F", 2, "A"), config("D", 2, "F"), config("K", 2, "A")), []string{"A"}, "AFDK"},
		{"a kept node's config", graph(config("A", 1), config("F", "mended", "A"), config("D", 1, "F"), config("K", 2, "A")), nil, ""},
		{"an ancestor's config", graph(config("A", 2), config("F", "mended", "A"), config("D", 1, "F"), config("K", 1, "A")), nil, ""},
		{"an edge into a kept node", graph(config("A", 1), config("N", 1), config("F", 1, "A"), config("D", 1, "F"), config("K", 1, "A", "N")), nil, ""},
		{"no edge into a kept node", graph(config("A", 1), config("F", "broken", "A"), config("D", 1, "F"), config("K", 1)), nil, ""},
		{"the failed node is gone", graph(config("A", 1), config("D", 1, "A"), config("K", 1, "A")), nil, ""},
		{"one that is not named", graph(config("A", 1), config("F", "mended", "A"), config("D", 1, "F"), config("K", 1, "A")), []string{"K"}, ""},
	} {
		check := func(t *testing.T, before, after *kahn.Graph, names []string, ran string, opts ...kahn.Option) {
			var c calls
			s := reload(t, try(t, before, breaks("F", "S/F"), opts...).Snapshot())
			if _, err := kahn.Execute(t.Context(), after, neverStep(t), kahn.Redrive(s, names)); !errors.Is(err, kahn.ErrGraphChanged) {
				t.Errorf("without AllowGraphChange: %v", err)
			}
			res, err := kahn.Execute(t.Context(), after, c.count(takes(0)), kahn.AllowGraphChange(), kahn.Redrive(s, names))
			if ran == "" && !errors.Is(err, kahn.ErrGraphChanged) || ran != "" && err != nil {
				t.Fatalf("%v", err)
			}
			for _, id := range strings.Split("AFDKNxT", "") {
				want := strings.Count(ran, id)
				if c.of(id) != want {
					t.Errorf("%s was called %d times, expected %d", id, c.of(id), want)
				}
				if ran == "" {
					continue
				}
				if n, ok := res.Node(id); ok && (n.Status != kahn.Completed || want == 0 && n.Sub == nil && n.Output != id) {
					t.Errorf("%s is %v with %v", id, n.Status, n.Output)
				}
			}
		}
		inBubble(t, row.name, func(t *testing.T) { check(t, before(), row.after, row.names, row.ran) })
		inBubble(t, row.name+", of a run with a store", func(t *testing.T) {
			check(t, before(), row.after, row.names, row.ran, kahn.Durable(new(store.Memory)), kahn.RunID("one"))
		})
		inBubble(t, row.name+", inside", func(t *testing.T) { // a failed composite starts again, even if the graph inside has changed
			ran := ""
			for _, n := range row.after.Nodes() {
				if ran += n.ID; n.Sub != nil {
					ran = strings.TrimSuffix(ran, n.ID) + n.Sub.Nodes()[0].ID
				}
			}
			check(t, graph(subgraph("S", before()), after("T")), graph(subgraph("S", row.after), after("T")), nil, ran)
		})
		inBubble(t, row.name+", inside of what is kept", func(t *testing.T) {
			check(t, graph(subgraph("S", before()), after("T")), graph(subgraph("S", row.after), after("T")), []string{"T"}, "")
		})
	}
}

// AllowGraphChange does not affect a run that starts from the beginning. So a host that does not know whether its store has the run may always
// set the option.
func TestAllowGraphChangeOfANewRun(t *testing.T) {
	t.Parallel()
	db := new(store.Memory)
	deploy := func(g *kahn.Graph, opts ...kahn.Option) *kahn.Result {
		res, err := kahn.Execute(t.Context(), g, nop, append(opts, kahn.AllowGraphChange(), kahn.Durable(db), kahn.RunID("r"))...)
		require.NoError(t, err)
		require.Empty(t, res.Warnings)
		return res
	}
	first := deploy(graph(after("A"), gate("G", "A")))
	require.Equal(t, kahn.RunSuspended, first.Status)
	second := deploy(graph(after("A"), gate("G", "A"), after("B", "G")), kahn.EarlySignals(map[string]any{"G": "yes"}))
	kahntest.RequireStatuses(t, second, "A:ok G:ok B:ok")
	alone, err := kahn.Execute(t.Context(), graph(after("A")), nop, kahn.AllowGraphChange())
	require.NoError(t, err)
	require.Empty(t, alone.Warnings)
}
