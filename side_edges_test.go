package kahn_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
)

// naiveStandings computes the standings of all edges directly from the definition in machine/net_side.go: for each exit, along all paths.
func naiveStandings(g *kahn.Graph) (list []string) {
	edges := g.Edges()
	leads := map[[2]string]bool{} // whether a path leads from the first to the second node; true for a node and itself
	for _, n := range g.Nodes() { // declared in topological order
		leads[[2]string{n.ID, n.ID}] = true
		for _, e := range edges {
			if e.To == n.ID {
				for _, m := range g.Nodes() {
					if leads[[2]string{m.ID, e.From}] {
						leads[[2]string{m.ID, n.ID}] = true
					}
				}
			}
		}
	}
	plain := func(e kahn.Edge) bool { return e.On == kahn.OnSuccess && e.Label == "" && !e.DataOnly }
	for _, e := range edges {
		var routers []string
		hangs := map[string]bool{}
		for _, in := range edges {
			if in.To == e.To && (in.Label != "" || in.On == kahn.OnFailure) {
				routers = append(routers, in.From)
				hangs[in.From] = hangs[in.From] || in.Label != ""
			}
		}
		standing := ""
		if len(routers) > 0 && plain(e) {
			standing = "side"
		}
		for _, n := range g.Nodes() {
			near := slices.Contains(routers, n.ID)
			if standing == "" || !slices.ContainsFunc(routers, func(r string) bool { return leads[[2]string{n.ID, r}] }) {
				continue
			}
			exits := map[string][]kahn.Edge{}
			for _, out := range edges {
				switch {
				case out.From != n.ID:
				case out.Label != "":
					exits["label "+out.Label] = append(exits["label "+out.Label], out)
				case out.On == kahn.OnFailure:
					exits["failure"] = append(exits["failure"], out)
				case plain(out):
					exits["success"] = append(exits["success"], out)
				}
			}
			if hangs[n.ID] || exits["failure"] == nil {
				delete(exits, "success")
			}
			for _, exit := range exits {
				to := func(id string) bool {
					return slices.ContainsFunc(exit, func(x kahn.Edge) bool { return leads[[2]string{x.To, id}] })
				}
				begins := slices.ContainsFunc(exit, func(x kahn.Edge) bool {
					return x.From == e.From && x.To == e.To && x.On == e.On && x.Label == e.Label && x.Param == e.Param && x.DataOnly == e.DataOnly
				})
				switch {
				case !begins && !to(e.From) || slices.ContainsFunc(routers, to):
				case near:
					standing = ""
				case standing == "side":
					standing = "spare"
				}
			}
		}
		list = append(list, standing)
	}
	return list
}

// branchy returns a random graph with many branches. Its nodes are in topological order.
func branchy(rng *rand.Rand, n int) *kahn.Graph {
	g := new(kahn.Graph)
	reach := 2 + rng.IntN(n)
	density := 1 + rng.IntN(4)
	for i := range n {
		node := kahn.Node{ID: fmt.Sprint(i), Routes: true}
		for from := max(0, i-reach); from < i; from++ {
			if rng.IntN(min(i, reach)) >= density {
				continue
			}
			e := kahn.Edge{From: fmt.Sprint(from)}
			switch rng.IntN(12) {
			case 0, 1, 2, 3:
				e.Label = string("abc"[rng.IntN(3)])
			case 4, 5:
				e.On = kahn.OnFailure
			case 6:
				e.On = kahn.OnAlways
			case 7:
				e.DataOnly = true
			}
			node.In = append(node.In, e)
			if rng.IntN(6) == 0 {
				node.In = append(node.In, kahn.Edge{From: e.From, Param: "p"})
			}
		}
		g.Add(node)
	}
	return g
}

// TestSideEdgesOfRandomGraphs compares the sweeps of Compile with the definition. Some graphs have more classes of targets than fit into one
// sweep.
func TestSideEdgesOfRandomGraphs(t *testing.T) {
	t.Parallel()
	small, large := size(500, 300, 100_000), size(4, 2, 300)
	seen := map[string]int{}
	compare := func(seed uint64, n int) {
		g := branchy(rand.New(rand.NewPCG(seed, uint64(n))), n)
		plan, err := g.Compile()
		require.NoError(t, err)
		want, got := naiveStandings(g), plan.Standings()
		for i, e := range g.Edges() {
			if seen[want[i]]++; got[i] != want[i] {
				t.Fatalf("seed %d, %d nodes: %s -> %s is %q, expected %q", seed, n, e.From, e.To, got[i], want[i])
			}
		}
	}
	for seed := range small {
		compare(uint64(seed), 2+seed%14)
		if seed%15 == 0 {
			compare(uint64(seed), 40)
		}
	}
	for seed := range large {
		compare(uint64(seed), 150)
	}
	t.Log(seen)
	for _, standing := range []string{"", "side", "spare"} {
		require.Greater(t, seen[standing], small/100, standing)
	}
}

// TestSideEdgesGrowth counts the edges that Compile visits to find side edges, on graphs of n and of 4n nodes. The count must be linear in the
// size of the graph.
func TestSideEdgesGrowth(t *testing.T) {
	t.Parallel()
	id := func(s string, i int) string { return fmt.Sprint(s, i) }
	label := func(from, label string) kahn.Edge { return kahn.Edge{From: from, Label: label} }
	catch := func(from string) kahn.Edge { return kahn.Edge{From: from, On: kahn.OnFailure} }
	plain := func(from string) kahn.Edge { return kahn.Edge{From: from} }
	for _, shape := range []struct {
		name string
		make func(g *kahn.Graph, n int)
		most float64 // visits per edge
	}{
		{"one condition, n dependents, data from before it", func(g *kahn.Graph, n int) {
			g.Add(after("A"), kahn.Node{ID: "C", Routes: true, After: []string{"A"}})
			for i := range n {
				g.Add(kahn.Node{ID: id("T", i), In: []kahn.Edge{label("C", "true"), plain("A")}})
			}
		}, 1},
		{"one condition at the end of a chain, n dependents, data from all along it", func(g *kahn.Graph, n int) {
			g.Add(kahn.Node{ID: "S", Routes: true}, kahn.Node{ID: "A0", In: []kahn.Edge{label("S", "go")}})
			for i := range n {
				g.Add(after(id("A", i+1), id("A", i)))
			}
			g.Add(kahn.Node{ID: "C", Routes: true, After: []string{id("A", n)}})
			for i := range n {
				g.Add(kahn.Node{ID: id("T", i), In: []kahn.Edge{label("C", "true"), plain(id("A", i))}})
			}
		}, 2},
		{"one condition, a long branch, n dependents on the other", func(g *kahn.Graph, n int) {
			g.Add(kahn.Node{ID: "C", Routes: true}, kahn.Node{ID: "X0", In: []kahn.Edge{label("C", "true")}})
			for i := range n {
				g.Add(after(id("X", i+1), id("X", i)), kahn.Node{ID: id("T", i), In: []kahn.Edge{label("C", "false"), plain(id("X", i))}})
			}
		}, 3},
		{"n handlers of neighbours in a chain, data from the neighbour before", func(g *kahn.Graph, n int) {
			g.Add(after("X0"))
			for i := range n {
				g.Add(after(id("X", i+1), id("X", i)), kahn.Node{ID: id("H", i), In: []kahn.Edge{plain(id("X", i)), catch(id("X", i+1))}})
			}
		}, 4},
		{"n handlers along a chain, data from one root", func(g *kahn.Graph, n int) {
			g.Add(after("order"), after("X0"))
			for i := range n {
				g.Add(after(id("X", i+1), id("X", i)), kahn.Node{ID: id("H", i), In: []kahn.Edge{plain("order"), catch(id("X", i+1))}})
			}
		}, 0},
		{"n conditions in a chain, each with labels, data from the one before", func(g *kahn.Graph, n int) {
			g.Add(kahn.Node{ID: "C0", Routes: true})
			for i := range n {
				g.Add(kahn.Node{ID: id("C", i+1), Routes: true, In: []kahn.Edge{label(id("C", i), "next")}},
					kahn.Node{ID: id("T", i), In: []kahn.Edge{label(id("C", i+1), "stop"), plain(id("C", i))}})
			}
		}, 4},
		{"n conditions in a chain that fall through", func(g *kahn.Graph, n int) {
			g.Add(kahn.Node{ID: "C0", Routes: true}, kahn.Node{ID: "T0", In: []kahn.Edge{label("C0", "stop")}})
			for i := range n {
				g.Add(kahn.Node{ID: id("C", i+1), Routes: true, In: []kahn.Edge{label(id("C", i), "next")}},
					kahn.Node{ID: id("T", i+1), In: []kahn.Edge{label(id("C", i+1), "stop"), plain(id("T", i))}})
			}
		}, 4},
		{"a switch that falls through", func(g *kahn.Graph, n int) {
			g.Add(kahn.Node{ID: "S", Routes: true}, kahn.Node{ID: "T0", In: []kahn.Edge{label("S", "0")}})
			for i := range n {
				g.Add(kahn.Node{ID: id("T", i+1), In: []kahn.Edge{label("S", fmt.Sprint(i+1)), plain(id("T", i))}})
			}
		}, 3},
		{"layers of three conditions, each with a dependent", func(g *kahn.Graph, n int) {
			for i := range n {
				for k := range 3 {
					c := kahn.Node{ID: fmt.Sprint("C", i, ".", k), Routes: true}
					for from := range 3 {
						if i > 0 {
							c.In = append(c.In, label(fmt.Sprint("C", i-1, ".", from), fmt.Sprint(k)))
						}
					}
					g.Add(c, kahn.Node{ID: fmt.Sprint("T", i, ".", k), In: []kahn.Edge{label(c.ID, "x"), plain("R")}})
				}
			}
			g.Add(after("R"))
		}, 0},
		{"n handlers along a chain, data from its head, which has one too", func(g *kahn.Graph, n int) {
			g.Add(after("X0"), kahn.Node{ID: "H", In: []kahn.Edge{catch("X0")}})
			for i := range n {
				g.Add(after(id("X", i+1), id("X", i)), kahn.Node{ID: id("H", i), In: []kahn.Edge{plain("X0"), catch(id("X", i+1))}})
			}
		}, 4},
		{"n handlers along a chain and their data, all on one branch", func(g *kahn.Graph, n int) {
			g.Add(kahn.Node{ID: "S", Routes: true}, kahn.Node{ID: "order", In: []kahn.Edge{label("S", "go")}}, kahn.Node{ID: "X0", In: []kahn.Edge{label("S", "go")}})
			for i := range n {
				g.Add(after(id("X", i+1), id("X", i)), kahn.Node{ID: id("H", i), In: []kahn.Edge{plain("order"), catch(id("X", i+1))}})
			}
		}, 4},
		{"two chains that follow one condition, n handlers along one with data from along the other", func(g *kahn.Graph, n int) {
			g.Add(kahn.Node{ID: "S", Routes: true}, kahn.Node{ID: "D0", In: []kahn.Edge{label("S", "go")}}, kahn.Node{ID: "X0", In: []kahn.Edge{label("S", "go")}})
			for i := range n {
				g.Add(after(id("D", i+1), id("D", i)), after(id("X", i+1), id("X", i)),
					kahn.Node{ID: id("H", i), In: []kahn.Edge{plain(id("D", i)), catch(id("X", i+1))}})
			}
		}, 4},
		// The visits per edge are about n/64: Compile must follow each handler up to the condition, past all branches in between.
		{"two chains that follow one condition, the data's own of branches that meet again", func(g *kahn.Graph, n int) {
			g.Add(kahn.Node{ID: "S", Routes: true}, kahn.Node{ID: "D0", Routes: true, In: []kahn.Edge{label("S", "go")}}, kahn.Node{ID: "X0", In: []kahn.Edge{label("S", "go")}})
			for i := range n {
				g.Add(kahn.Node{ID: id("D", i+1), Routes: true, In: []kahn.Edge{label(id("D", i), "a"), plain(id("D", i))}}, after(id("X", i+1), id("X", i)),
					kahn.Node{ID: id("H", i), In: []kahn.Edge{plain(id("D", i)), catch(id("X", i+1))}})
			}
		}, 40},
	} {
		t.Run(shape.name, func(t *testing.T) {
			t.Parallel()
			var visits [2]float64
			for i, n := range []int{500, 2000} {
				g := new(kahn.Graph)
				shape.make(g, n)
				plan, err := g.Compile()
				require.NoError(t, err)
				visits[i] = float64(plan.SideSteps()) / float64(len(g.Edges()))
			}
			t.Logf("visits for each edge: %.2f and %.2f", visits[0], visits[1])
			if visits[0] > shape.most || visits[1] > shape.most {
				t.Errorf("more than %v", shape.most)
			}
		})
	}
}
