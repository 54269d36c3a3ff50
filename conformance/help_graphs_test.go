package conformance_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
)

// This file makes nodes and graphs.

// graph builds a graph from the given nodes.
func graph(nodes ...kahn.Node) *kahn.Graph { return new(kahn.Graph).Add(nodes...) }

// after returns a node that follows the sources and does nothing else.
func after(id string, sources ...string) kahn.Node { return kahn.Node{ID: id, After: sources} }

// inputs declares required inputs of a run.
func inputs(names ...string) (list []kahn.Input) {
	for _, name := range names {
		list = append(list, kahn.Input{Name: name})
	}
	return list
}

func gate(id string, sources ...string) kahn.Node {
	return kahn.Node{ID: id, Kind: kahn.KindGate, After: sources}
}

func branch(id, from, label string) kahn.Node {
	return kahn.Node{ID: id, In: []kahn.Edge{{From: from, Label: label}}}
}

// subgraph returns a sub-graph node.
func subgraph(id string, sub *kahn.Graph, sources ...string) kahn.Node {
	return kahn.Node{ID: id, Sub: sub, After: sources}
}

// mapped returns a map node over the given items.
func mapped(id string, items any, m kahn.Map) kahn.Node {
	m.Over = "items"
	return kahn.Node{ID: id, Map: &m, Params: map[string]any{"items": items}}
}

// numbers returns the numbers 0 to n-1 as items.
func numbers(n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = i
	}
	return list
}

// asked returns a graph with a gate "G" that has a branch for each label, and declared choices.
func asked(choices []string, labels ...string) *kahn.Graph {
	nodes := []kahn.Node{{ID: "G", Kind: kahn.KindGate, Gate: &kahn.Gate{Choices: choices}}}
	for _, label := range labels {
		nodes = append(nodes, branch("on "+label, "G", label))
	}
	return graph(nodes...)
}

// flow returns a named graph of the given nodes, or of one node if none is given.
func flow(name string, nodes ...kahn.Node) *kahn.Graph {
	if len(nodes) == 0 {
		nodes = []kahn.Node{{ID: "a"}}
	}
	return (&kahn.Graph{Name: name}).Add(nodes...)
}

// into declares an edge from each source, all to the same parameter p.
func into(sources ...string) (edges []kahn.Edge) {
	for _, from := range sources {
		edges = append(edges, kahn.Edge{From: from, Param: "p"})
	}
	return edges
}

func whileLess(n int) func(kahn.View) (bool, error) {
	return func(v kahn.View) (bool, error) { return v.Iteration() < n, nil }
}

// chainGraph returns a chain of n nodes.
func chainGraph(n int) *kahn.Graph {
	var g kahn.Graph
	for i := range n {
		node := kahn.Node{ID: fmt.Sprint("n", i)}
		if i > 0 {
			node.After = []string{fmt.Sprint("n", i-1)}
		}
		g.Add(node)
	}
	return &g
}

// layered returns layers of the given width, each node with in-edges from random nodes of the layer before.
func layered(n, width, in int) *kahn.Graph {
	rng := rand.New(rand.NewPCG(7, uint64(n)))
	var g kahn.Graph
	for i := range n {
		g.Add(kahn.Node{ID: fmt.Sprint("n", i)})
		if i < width {
			continue
		}
		layer := i / width * width
		for _, j := range rng.Perm(width)[:in] {
			g.Connect(kahn.Edge{From: fmt.Sprint("n", layer-width+j), To: fmt.Sprint("n", i)})
		}
	}
	return &g
}

func compiled(t *testing.T, g *kahn.Graph) *kahn.Plan {
	t.Helper()
	p, err := g.Compile()
	require.NoError(t, err)
	return p
}

// thrice returns a policy of three attempts with the same delay before each retry.
func thrice(d time.Duration) kahn.Retry {
	return kahn.Retry{MaxAttempts: 3, InitialDelay: d, MaxDelay: d, Jitter: kahn.JitterNone}
}

// isStatic reports whether a warning is about the graph, not about the run.
func isStatic(warning error) bool { return errors.As(warning, new(*kahn.Problem)) }
