package kahn_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
)

// TestAncestry compares IsAncestor, for all pairs of nodes, with a search over the edges.
func TestAncestry(t *testing.T) {
	t.Parallel()
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 1))
		n := 2 + rng.IntN(40)
		var g kahn.Graph
		for i := range n {
			g.Add(kahn.Node{ID: fmt.Sprint("n", i)})
		}
		edges := map[[2]int]bool{}
		for range rng.IntN(3 * n) {
			if from, to := rng.IntN(n), rng.IntN(n); from < to && !edges[[2]int{from, to}] {
				edges[[2]int{from, to}] = true
				g.Connect(kahn.Edge{From: fmt.Sprint("n", from), To: fmt.Sprint("n", to)})
			}
		}
		leads := map[[2]int]bool{} // by declaration, whose order is topological here
		for to := range n {
			for via := range to {
				if edges[[2]int{via, to}] {
					leads[[2]int{via, to}] = true
					for from := range via {
						leads[[2]int{from, to}] = leads[[2]int{from, to}] || leads[[2]int{from, via}]
					}
				}
			}
		}
		p := compiled(t, &g)
		for from := range n {
			for to := range n {
				a, _ := p.Ref(fmt.Sprint("n", from))
				r, _ := p.Ref(fmt.Sprint("n", to))
				require.Equal(t, leads[[2]int{from, to}], p.IsAncestor(a, r), "seed %d: %d, %d", seed, from, to)
			}
		}
	}
}

// ancestryShapes are graphs of about n nodes.
func ancestryShapes(n int) map[string]*kahn.Graph {
	chain, tree, comb, grid := &kahn.Graph{}, &kahn.Graph{}, &kahn.Graph{}, &kahn.Graph{}
	id := func(i int) string { return fmt.Sprint("n", i) }
	side := 1
	for side*side < n {
		side++
	}
	for i := range n {
		chain.Add(kahn.Node{ID: id(i)})
		tree.Add(kahn.Node{ID: id(i)})
		comb.Add(kahn.Node{ID: fmt.Sprint("tooth", i)}, kahn.Node{ID: id(i), After: []string{fmt.Sprint("tooth", i)}})
		if i > 0 {
			chain.Connect(kahn.Edge{From: id(i - 1), To: id(i)})
			tree.Connect(kahn.Edge{From: id((i - 1) / 2), To: id(i)})
			comb.Connect(kahn.Edge{From: id(i - 1), To: id(i)})
		}
	}
	for i := range side * side {
		grid.Add(kahn.Node{ID: id(i)})
		if i%side > 0 {
			grid.Connect(kahn.Edge{From: id(i - 1), To: id(i)})
		}
		if i >= side {
			grid.Connect(kahn.Edge{From: id(i - side), To: id(i)})
		}
	}
	return map[string]*kahn.Graph{"chain": chain, "tree": tree, "comb": comb, "grid": grid}
}

// TestGrowthOfAncestry: a question about distant ancestors does not walk the way to them.
func TestGrowthOfAncestry(t *testing.T) {
	t.Parallel()
	for name := range ancestryShapes(1) {
		grows(t, 500, func(n int) int64 {
			p := compiled(t, ancestryShapes(n)[name])
			rng := rand.New(rand.NewPCG(3, uint64(n)))
			first, _ := p.Ref("n0")
			for r := range kahn.Ref(p.Len()) {
				p.IsAncestor(first, r)
				if name != "grid" { // the way to another node is as long as the grid is wide
					p.IsAncestor(kahn.Ref(rng.IntN(p.Len())), r)
					p.IsAncestor(r/2, r)
				}
			}
			t.Log(name, p.Len(), p.AncestrySteps())
			return p.AncestrySteps()
		})
	}
}
