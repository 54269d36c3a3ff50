package kahn_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/machine"
	"github.com/seed-c794f7ef/kahn/store"
)

// TestGrowthOfSlashedIDs: an id that looks like a path inside an expanded node is found without a search among all ids.
func TestGrowthOfSlashedIDs(t *testing.T) {
	t.Parallel()
	g := &kahn.Graph{}
	for _, id := range []string{"a", "a/b", "ab/c", "a/", "/", "b", "a b/c", "c", "c/"} {
		g.Add(kahn.Node{ID: id})
	}
	p := compiled(t, g)
	for id, want := range map[string]string{"a": "a/", "a/b": "", "ab": "ab/c", "": "/", "b": "", "a b": "a b/c", "c": "c/", "A": ""} {
		other, ok := p.Within(id)
		require.Equal(t, want, other, "%q", id)
		require.Equal(t, want != "", ok)
	}
}

// TestGrowthOfBranches: the skip reason of each branch that a condition has not taken contains the labels that the condition took. The test
// counts bytes, so it does not run in parallel.
func TestGrowthOfBranches(t *testing.T) {
	for _, taken := range []func(n int) int{func(int) int { return 1 }, func(n int) int { return n / 2 }} {
		grows(t, 250, func(n int) int64 {
			var labels []string
			g := graph(kahn.Node{ID: "c", Test: func(kahn.View) (any, error) { return labels[:taken(n)], nil }})
			for i := range n {
				labels = append(labels, fmt.Sprint("label", i))
				g.Add(kahn.Node{ID: fmt.Sprint("n", i), In: []kahn.Edge{{From: "c", Label: labels[i]}}})
			}
			p, rec := compiled(t, g), newRecorder()
			var res *kahn.Result
			bytes, _ := allocated(func() {
				var err error
				res, err = p.Execute(t.Context(), nothing, kahn.OnEvent(rec.add))
				require.NoError(t, err)
			})
			skipped := 0
			for node := range res.Nodes() {
				if node.Status == kahn.Skipped {
					skipped++
					require.True(t, strings.HasPrefix(node.Skip.Answer, "label0"))
					require.LessOrEqual(t, len(node.Skip.Answer), 2000)
				}
			}
			require.Equal(t, n-taken(n), skipped)
			checkEvents(t, g, res, rec.all())
			if taken(n) == 1 { // otherwise the run has stored the answer, shortened
				require.Equal(t, 1, kahn.BranchTexts(res), "each of them looked at all labels")
			}
			return bytes
		})
	}
}

// TestGrowthOfDeclarations compiles a node with n outputs, each used by an edge, and a node with n groups. Outputs and groups are found by name.
// A node that names a group twice is still reported.
func TestGrowthOfDeclarations(t *testing.T) {
	t.Parallel()
	const n = 2000
	id := func(what string, i int) string { return fmt.Sprint(what, i) }
	a, b, g := kahn.Node{ID: "a"}, kahn.Node{ID: "b"}, &kahn.Graph{}
	for i := range n {
		a.Outputs, b.Groups = append(a.Outputs, id("out", i)), append(b.Groups, id("g", i))
		g.Groups = append(g.Groups, kahn.Group{Name: id("g", i)})
		g.Add(kahn.Node{ID: id("n", i), In: []kahn.Edge{{From: "a", Key: id("out", i) + strings.Repeat(".x", i%3)}}})
	}
	g.Add(a, b)
	compiled(t, g)
	twice := (&kahn.Graph{}).Add(b, kahn.Node{ID: "c", Groups: []string{"g1", "g2", "g1"}})
	twice.Groups = g.Groups
	_, err := twice.Compile()
	require.ErrorContains(t, err, `node "c": bad value: group "g1" is named twice`)
	_, err = g.Add(kahn.Node{ID: "d", In: []kahn.Edge{{From: "a", Key: "out.1"}}}).Compile()
	require.ErrorContains(t, err, `edge "a" -> "d": bad edge: the Key "out.1" names none of the Outputs of "a"`)
}

// TestGrowthOfProblems compiles graphs of n nodes that each use an unknown name, with n known names. Compile looks for similar names only for the
// problems that it reports. The test counts bytes, so it does not run in parallel.
func TestGrowthOfProblems(t *testing.T) {
	id := func(what string, i int) string { return fmt.Sprint(what, i) }
	for name, try := range map[string]func(g *kahn.Graph, n int) error{
		"merge strategies of nodes": func(g *kahn.Graph, n int) error {
			for i := range n {
				g.RegisterMerge(id("merge", i), func([]kahn.Contribution) (any, error) { return nil, nil })
				g.Add(kahn.Node{ID: id("n", i), Merge: id("marge", i)})
			}
			_, err := g.Compile()
			return err
		},
		"merge strategies of edges": func(g *kahn.Graph, n int) error {
			g.Add(kahn.Node{ID: "a"})
			for i := range n {
				g.RegisterMerge(id("merge", i), func([]kahn.Contribution) (any, error) { return nil, nil })
				g.Add(kahn.Node{ID: id("n", i), In: []kahn.Edge{{From: "a", Param: "p", Merge: id("marge", i)}}})
			}
			_, err := g.Compile()
			return err
		},
		"nodes": func(g *kahn.Graph, n int) error {
			for i := range n {
				g.Add(kahn.Node{ID: id("node", i), After: []string{id("ndoe", i)}})
			}
			_, err := g.Compile()
			return err
		},
		"groups": func(g *kahn.Graph, n int) error {
			for i := range n {
				g.Groups = append(g.Groups, kahn.Group{Name: id("group", i)})
				g.Add(kahn.Node{ID: id("n", i), Groups: []string{id("grupo", i)}})
			}
			_, err := g.Compile()
			return err
		},
		"groups of graphs inside": func(g *kahn.Graph, n int) error {
			for i := range n {
				g.Groups = append(g.Groups, kahn.Group{Name: id("group", i)})
				g.Add(kahn.Node{ID: id("n", i), Sub: graph(kahn.Node{ID: "x", Groups: []string{id("grupo", i)}})})
			}
			_, err := g.Compile()
			return err
		},
		"inputs of a graph inside": func(g *kahn.Graph, n int) error {
			sub, params := &kahn.Graph{}, map[string]any{}
			for i := range n {
				sub.Inputs = append(sub.Inputs, kahn.Input{Name: id("input", i), Optional: true})
				params[id("inptu", i)] = i
			}
			_, err := g.Add(kahn.Node{ID: "S", Sub: sub, Params: params}).Compile()
			return err
		},
		"labels of a gate with choices": func(g *kahn.Graph, n int) error {
			choices := []string{"approved"}
			for i := range n {
				choices = append(choices, id("label", i))
				g.Add(kahn.Node{ID: id("n", i), In: []kahn.Edge{{From: "g", Label: id("lebal", i)}}})
			}
			_, err := g.Add(kahn.Node{ID: "g", Kind: kahn.KindGate, Gate: &kahn.Gate{Choices: choices}}).Compile()
			return err
		},
		"kinds": func(g *kahn.Graph, n int) error {
			mux := kahn.Mux{}
			for i := range n {
				mux[id("kind", i)] = nothing
				g.Add(kahn.Node{ID: id("n", i), Kind: id("knid", i)})
			}
			return mux.Check(g)
		},
	} {
		t.Run(name, func(t *testing.T) {
			grows(t, 500, func(n int) int64 {
				g := &kahn.Graph{}
				var err error
				bytes, _ := allocated(func() { err = try(g, n) })
				var problems *kahn.GraphError
				require.ErrorAs(t, err, &problems)
				require.Equal(t, n, len(problems.Problems)+problems.More)
				require.Contains(t, problems.Problems[0].Error(), "did you mean")
				return bytes
			})
		})
	}
}

// TestGrowthOfChoices: each of n labels is one of n choices of its gate. The test counts bytes, so it does not run in parallel.
func TestGrowthOfChoices(t *testing.T) {
	for _, onTimeout := range []kahn.GateTimeout{kahn.GateFail, kahn.GateLabel} {
		grows(t, 500, func(n int) int64 {
			choices := []string{"approved"} // "approved" has aliases, which are added to a copy of the list
			g := &kahn.Graph{}
			for i := range n {
				choices = append(choices, fmt.Sprint("label", i))
				g.Add(kahn.Node{ID: fmt.Sprint("n", i), In: []kahn.Edge{{From: "g", Label: choices[i]}}})
			}
			g.Add(kahn.Node{ID: "late", In: []kahn.Edge{{From: "g", Label: "timeout"}}}, kahn.Node{ID: "no", In: []kahn.Edge{{From: "g", Label: "Yes"}}})
			g.Add(kahn.Node{ID: "g", Kind: kahn.KindGate, Gate: &kahn.Gate{Choices: append(choices, "timeout"), OnTimeout: onTimeout, Timeout: time.Hour}})
			bytes, _ := allocated(func() {
				_, err := g.Compile()
				require.NoError(t, err)
			})
			return bytes
		})
	}
}

// allocated returns the allocations of f, provided that no other code runs.
func allocated(f func()) (bytes, objects int64) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return int64(after.TotalAlloc - before.TotalAlloc), int64(after.Mallocs - before.Mallocs)
}

// TestGrowthOfGuards: the guard of every node in a chain reads the first node.
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

// TestGrowthOfBoundaries compiles graphs in which error boundaries judge distant failures, or many boundaries judge
// the same failures.
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

// TestGrowthOfParams reads all parameters of a node.
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
		require.Equal(t, want, res.Output())
		ref, _ := p.Ref("sink")
		steps := 0
		for name := range want {
			steps += p.ParamSteps(ref, name)
		}
		return int64(steps)
	})
}

// TestTypesAreIndexed: Encoding makes an index of the registered types, so a value is not compared with each type. The index omits names of
// built-in types, and all names of a type but the first.
func TestTypesAreIndexed(t *testing.T) {
	types := kahn.Types{"order": order{}, "a second name": (*order)(nil), "the order": order{}}
	if n := kahn.IndexedNames(kahn.Encoding(types)); n != 2 {
		t.Errorf("%d names", n)
	}
	for _, codec := range []kahn.Codec{types, &store.Blobs{Codec: types, Store: new(store.MemoryBlobs)}} {
		var got kahn.Codec
		g := graph(kahn.Node{ID: "A", Do: func(_ context.Context, s *kahn.Step) (any, error) {
			got = s.Call().Codec
			return nil, nil
		}})
		if _, err := kahn.Execute(t.Context(), g, nil, kahn.Encoding(codec)); err != nil {
			t.Fatal(err)
		}
		data, err := got.Encode([]order{{ID: 1}})
		plain, _ := types.Encode([]order{{ID: 1}})
		if err != nil || string(data) != string(plain) || !strings.Contains(string(data), `"[]order"`) {
			t.Errorf("%s instead of %s, %v", data, plain, err)
		}
	}
}

type order struct {
	ID    int64    `json:"id"`
	Lines []string `json:"lines"`
}

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
		leads := map[[2]int]bool{} // by declaration index, which is in topological order here
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

// ancestryShapes returns graphs of about n nodes.
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

// TestGrowthOfAncestry: the search for a distant ancestor does not visit all edges up to it.
func TestGrowthOfAncestry(t *testing.T) {
	t.Parallel()
	for name := range ancestryShapes(1) {
		grows(t, 500, func(n int) int64 {
			p := compiled(t, ancestryShapes(n)[name])
			rng := rand.New(rand.NewPCG(3, uint64(n)))
			first, _ := p.Ref("n0")
			for r := range machine.Ref(p.Len()) {
				p.IsAncestor(first, r)
				if name != "grid" { // in a grid, a search for another node takes as many steps as the grid is wide
					p.IsAncestor(machine.Ref(rng.IntN(p.Len())), r)
					p.IsAncestor(r/2, r)
				}
			}
			t.Log(name, p.Len(), p.AncestrySteps())
			return p.AncestrySteps()
		})
	}
}
