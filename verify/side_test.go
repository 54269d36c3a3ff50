package verify

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
)

// branchyGraph returns a graph of n nodes, most of them on branches, with plain edges from near and far nodes.
func branchyGraph(rng *rand.Rand, n int) *graph {
	g := &graph{}
	near := 1 + rng.IntN(n)       // the length of most edges
	far := rng.IntN(4)            // how many of sixteen edges are longer
	routing := 2 + rng.IntN(12)   // how many of sixteen nodes are on a branch
	conditions := 4 + rng.IntN(9) // how many of sixteen nodes have labels
	routes := make([]bool, n)
	for i := range n {
		to := &node{id: nodeName(i)}
		routes[i] = rng.IntN(16) < conditions
		to.routes = routes[i]
		g.nodes = append(g.nodes, to)
		if i == 0 {
			continue
		}
		source := func() int {
			if rng.IntN(16) < far {
				return rng.IntN(i)
			}
			return i - 1 - rng.IntN(min(near, i))
		}
		if rng.IntN(16) < routing {
			for range 1 + rng.IntN(3)/2 {
				from := source()
				e := &edge{from: nodeName(from), to: to.id, on: '!'}
				if routes[from] && rng.IntN(4) > 0 {
					e.on, e.label = 0, edgeLabels[rng.IntN(3)]
				}
				g.connect(e)
			}
		}
		plain := rng.IntN(4)
		if i >= 100 && rng.IntN(16) == 0 {
			plain = 30
		}
		for range plain {
			e := &edge{from: nodeName(source()), to: to.id}
			switch rng.IntN(12) {
			case 0:
				e.on = '*'
			case 1:
				e.data = true
			}
			g.connect(e)
		}
	}
	for _, n := range g.nodes {
		n.routes = n.routes && !g.condition(n)
	}
	return g
}

// TestSideEdges: in graphs of all sizes, the side edges of the plan are exactly the side edges by the model's
// definition.
func TestSideEdges(t *testing.T) {
	t.Parallel()
	graphs := 400
	if long() {
		graphs = 20_000
	}
	rng := rand.New(rand.NewPCG(seed(t), 1))
	found := [earlierWayIn + 2]int{}
	for i := range graphs {
		n := 2 + rng.IntN(30)
		if i%50 == 0 {
			n = 100 + rng.IntN(150)
		}
		g := branchyGraph(rng, n)
		plan, err := (&host{g: g, p: &prediction{g: g}}).build().Compile()
		require.NoError(t, err)
		p := &prediction{g: g}
		p.findAncestors()
		var want, got []string
		for _, e := range g.edges {
			standing := p.standing(e)
			found[standing]++
			if standing == sideEdge {
				want = append(want, e.String())
			}
		}
		for e, side := range plan.Edges() {
			if side {
				got = append(got, fmt.Sprintf("%s>%s", e.From, e.To))
			}
		}
		require.Equal(t, want, got, "graph %d, side edges of %v", i, g)
	}
	for standing, n := range found {
		require.Greater(t, n, graphs/10, "edges of the standing %d", standing)
	}
}

// TestBranches compares runs of graphs with many branches with the model, since only a run shows whether a router was
// evaluated.
func TestBranches(t *testing.T) {
	t.Parallel()
	graphs := 600
	if long() {
		graphs = 60_000
	}
	rng := rand.New(rand.NewPCG(seed(t), 2))
	for i := range graphs {
		n := 4 + rng.IntN(8)
		if i%100 == 0 {
			n = 60 + rng.IntN(120)
		}
		g := branchyGraph(rng, n)
		for _, n := range g.nodes {
			drawOutcome(rng, g, n)
		}
		w := way{kahn.Mode(rng.IntN(2)), rng.IntN(3), statusRules[rng.IntN(3)]}
		require.NoError(t, check(t, g, w), "graph %d, %v: %v", i, w, g)
	}
}

// drawOutcome draws a node's outcome and its options for decisions.
func drawOutcome(rng *rand.Rand, g *graph, n *node) {
	n.ms = rng.IntN(5)
	switch rng.IntN(12) {
	case 0, 3:
		n.outcome = "err"
	case 1:
		n.outcome = "skip"
	case 2:
		n.cof, n.outcome = true, "err"
	}
	if n.outcome == "" && g.condition(n) {
		n.outcome, n.labels = "label", outcomeLabels[rng.IntN(len(outcomeLabels))]
	}
	if rng.IntN(4) == 0 {
		n.join = []string{"bnd", "bnd", "any", "nofail", "done1"}[rng.IntN(5)]
	}
	n.skip = []string{"", "", "", "sat", "strict"}[rng.IntN(5)]
	n.up = []string{"", "skip", "def", "def"}[rng.IntN(4)]
}
