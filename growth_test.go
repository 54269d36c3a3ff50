package kahn_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
)

// The tests of this file count steps: edges visited, entries looked at, bytes kept. What a run costs is to grow with its
// work: eight times the nodes may take twice eight times the steps, for a logarithm and what is left over, but not 64 times.

// grows fails if count grows much faster than its argument.
func grows(t *testing.T, n int, count func(n int) int64) {
	t.Helper()
	small, large := count(n), count(8*n)
	require.Positive(t, small, "nothing was counted")
	require.LessOrEqual(t, large, 16*small, "%d steps for %d, %d steps for %d", small, n, large, 8*n)
}

func compiled(t *testing.T, g *kahn.Graph) *kahn.Plan {
	t.Helper()
	p, err := g.Compile()
	require.NoError(t, err)
	return p
}

// TestAncestry holds the answers for all pairs of nodes against what a search from each node finds.
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

// TestGrowthOfAncestry: whoever asks about ancestors far away does not walk there.
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

// TestGrowthOfGuards: every node of a chain asks about the first one.
func TestGrowthOfGuards(t *testing.T) {
	t.Parallel()
	grows(t, 250, func(n int) int64 {
		g := chainGraph(n)
		p := compiled(t, g)
		res, err := p.Execute(t.Context(), func(_ context.Context, s *kahn.Step) (any, error) {
			if s.Tier() > 0 && s.View().Status("n0") != kahn.Completed {
				return nil, errStep
			}
			return nil, nil
		})
		require.NoError(t, err)
		require.Equal(t, n, res.Count(kahn.Completed))
		return p.AncestrySteps()
	})
}

// TestGrowthOfBoundaries compiles graphs in which error boundaries judge failures from far above, or many of the same.
func TestGrowthOfBoundaries(t *testing.T) {
	t.Parallel()
	judge := func(kahn.View) (any, error) { return true, nil }
	id := func(kind string, i int) string { return fmt.Sprint(kind, i) }
	for name, add := range map[string]func(g *kahn.Graph, n int){
		"one long ancestry": func(g *kahn.Graph, n int) {
			for i := range n {
				a := kahn.Node{ID: id("a", i)}
				if i > 0 {
					a.After = []string{id("a", i-1)}
				}
				g.Add(a, kahn.Node{ID: id("b", i), After: []string{a.ID}, Test: judge}, kahn.Node{ID: id("t", i), After: []string{id("b", i), "a0"}})
			}
		},
		"one boundary, many dependents": func(g *kahn.Graph, n int) {
			g.Add(kahn.Node{ID: "a"}, kahn.Node{ID: "b", After: []string{"a"}, Test: judge})
			for i := range n {
				g.Add(kahn.Node{ID: id("t", i), After: []string{"a", "b"}})
			}
		},
		"many boundaries, one dependent": func(g *kahn.Graph, n int) {
			t := kahn.Node{ID: "t"}
			for i := range n {
				g.Add(kahn.Node{ID: id("a", i)}, kahn.Node{ID: id("b", i), After: []string{id("a", i)}, Test: judge})
				t.After = append(t.After, id("a", i), id("b", i))
			}
			g.Add(t)
		},
	} {
		grows(t, 250, func(n int) int64 {
			g := &kahn.Graph{}
			add(g, n)
			p := compiled(t, g)
			t.Log(name, n, p.AncestrySteps())
			return p.AncestrySteps()
		})
	}
}

// TestGrowthOfParams assembles all parameters of a node.
func TestGrowthOfParams(t *testing.T) {
	t.Parallel()
	grows(t, 100, func(n int) int64 {
		g := &kahn.Graph{}
		sink := kahn.Node{ID: "sink", Do: func(_ context.Context, s *kahn.Step) (any, error) { return s.Params(), nil }}
		want := map[string]any{}
		for i := range n {
			id, name := fmt.Sprint("n", i), fmt.Sprint("p", i)
			g.Add(kahn.Node{ID: id, Do: func(context.Context, *kahn.Step) (any, error) { return i, nil }})
			sink.In = append(sink.In, kahn.Edge{From: id, Param: name})
			sink.Ports = append(sink.Ports, kahn.Port{Name: name, Required: true})
			want[name] = i
		}
		p := compiled(t, g.Add(sink))
		res, err := p.Execute(t.Context(), nil)
		require.NoError(t, err)
		require.Equal(t, want, res.Output)
		ref, _ := p.Ref("sink")
		steps := 0
		for name := range want {
			steps += p.ParamSteps(ref, name)
		}
		return int64(steps)
	})
}

// TestGrowthOfPending: runs wait for others, are cancelled while they wait, begin in their order, end and are forgotten.
func TestGrowthOfPending(t *testing.T) {
	t.Parallel()
	grows(t, 100, func(n int) int64 {
		rn := &kahn.Runner{MaxRuns: 1, History: 10}
		gate := make(chan struct{})
		var order []int
		var runs []*kahn.Run
		for i := range n {
			run, err := rn.Start(t.Context(), graph(kahn.Node{ID: "A", Do: func(context.Context, *kahn.Step) (any, error) {
				<-gate
				order = append(order, i) // one at a time
				return nil, nil
			}}), nil, kahn.Retain(0))
			require.NoError(t, err)
			runs = append(runs, run)
		}
		var want []int
		for i, run := range runs {
			if i%3 == 1 {
				run.Cancel()
			} else {
				want = append(want, i)
			}
		}
		close(gate)
		for i, run := range runs {
			res, _ := run.Wait()
			require.Equal(t, i%3 == 1, res.Status == kahn.RunCancelled)
		}
		require.Equal(t, want, order)
		return rn.Steps()
	})
}
