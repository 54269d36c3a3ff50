package kahn_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
)

func TestTiersAreLongestPaths(t *testing.T) {
	var g kahn.Graph
	g.Add(
		kahn.Node{ID: "d", After: []string{"c", "a"}},
		kahn.Node{ID: "a"},
		kahn.Node{ID: "c", After: []string{"b"}},
		kahn.Node{ID: "b", After: []string{"a"}},
		kahn.Node{ID: "alone"},
		kahn.Node{ID: "last", Kind: kahn.KindEnd},
	)
	plan, err := g.Compile()
	require.NoError(t, err)
	require.Equal(t, [][]string{{"a", "alone"}, {"b"}, {"c"}, {"d"}, {"last"}}, plan.Tiers())
	require.Equal(t, []string{"a", "b", "c", "d"}, plan.CriticalPath())
	var declared []string
	for _, id := range plan.Declared() {
		declared = append(declared, id)
	}
	require.Equal(t, []string{"d", "a", "c", "b", "alone", "last"}, declared)
}

func TestCriticalPathByEstimates(t *testing.T) {
	var g kahn.Graph
	g.Add(
		kahn.Node{ID: "a", Estimate: time.Second},
		kahn.Node{ID: "b", After: []string{"a"}},
		kahn.Node{ID: "c", After: []string{"b"}},
		kahn.Node{ID: "slow", Estimate: time.Minute},
	)
	plan, err := g.Compile()
	require.NoError(t, err)
	require.Equal(t, []string{"slow"}, plan.CriticalPath())
}

func TestPlanIsKeptUntilTheGraphChanges(t *testing.T) {
	g := chainGraph(3)
	first, err := g.Compile()
	require.NoError(t, err)
	again, err := g.Compile()
	require.NoError(t, err)
	require.Same(t, first, again)

	g.Add(kahn.Node{ID: "more"})
	changed, err := g.Compile()
	require.NoError(t, err)
	require.Equal(t, []int{3, 4}, []int{first.Len(), changed.Len()})

	g.Defaults.SkipMode = kahn.SkipStrict
	defaults, err := g.Compile()
	require.NoError(t, err)
	require.NotSame(t, changed, defaults)

	g.Connect(kahn.Edge{From: "more", To: "gone"})
	_, err = g.Compile()
	require.ErrorIs(t, err, kahn.ErrUnknownNode)
	_, err = g.Compile()
	require.ErrorIs(t, err, kahn.ErrUnknownNode, "an error is kept like a plan")
}

func TestCompileIsSafeForConcurrentUse(t *testing.T) {
	g := chainGraph(100)
	var wg sync.WaitGroup
	plans := make([]*kahn.Plan, 8)
	for i := range plans {
		wg.Go(func() { plans[i], _ = g.Compile() })
	}
	wg.Wait()
	for _, p := range plans {
		require.Same(t, plans[0], p)
	}
}

// layered returns layers of the given width; each node has in-edges from random nodes of the previous layer.
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

// bipartite returns n sources that all precede n sinks.
func bipartite(n int, sink kahn.Node) *kahn.Graph {
	var g kahn.Graph
	for i := range n {
		g.Add(kahn.Node{ID: fmt.Sprint("a", i)})
	}
	for i := range n {
		sink.ID = fmt.Sprint("b", i)
		g.Add(sink)
		for j := range n {
			g.Connect(kahn.Edge{From: fmt.Sprint("a", j), To: sink.ID})
		}
	}
	return &g
}

// TestEveryEdgeIsVisitedOnce: the work of a run is linear in its edges, regardless of the shape of the graph, the join rule and the outcomes.
func TestEveryEdgeIsVisitedOnce(t *testing.T) {
	fail := func(kahn.View) (any, error) { return nil, errStep }
	shapes := map[string]*kahn.Graph{
		"chain":             chainGraph(5000),
		"layered":           layered(5000, 50, 3),
		"bipartite":         bipartite(100, kahn.Node{}),
		"bipartite any":     bipartite(100, kahn.Node{Join: kahn.AnySucceeded}),
		"bipartite atleast": bipartite(100, kahn.Node{Join: kahn.AtLeast(50)}),
	}
	broken := chainGraph(5000)
	broken.Add(kahn.Node{ID: "cause", Test: fail}).Connect(kahn.Edge{From: "cause", To: "n1"})
	shapes["cascade"] = broken
	for name, end := range map[string]kahn.StepFunc{
		"end":           nothing,
		"end fails":     func(context.Context, *kahn.Step) (any, error) { return nil, errStep },
		"end says fail": func(context.Context, *kahn.Step) (any, error) { return kahn.EndVerdict{Status: kahn.RunFailed}, nil },
	} { // no node has a compensation, so the run does not look for nodes to undo after the end node
		shapes[name] = layered(5000, 50, 3).Add(kahn.Node{ID: "end", Kind: kahn.KindEnd, Do: end})
	}
	for name, g := range shapes {
		t.Run(name, func(t *testing.T) {
			for _, mode := range []kahn.Mode{kahn.Eager, kahn.Waves} {
				res, _ := kahn.Execute(t.Context(), g, nothing, mode)
				require.Equal(t, int64(len(g.Edges())), res.EdgeVisits())
			}
		})
	}
}

// TestAllocations bounds the allocations of a run, except outputs: the number of objects does not depend on the number of nodes, and most of the
// memory is used for the records of the nodes.
func TestAllocations(t *testing.T) {
	for name, g := range map[string]*kahn.Graph{
		"single": chainGraph(1), "chain": chainGraph(2000), "layered": layered(2000, 50, 3), "bipartite": bipartite(100, kahn.Node{}),
	} {
		plan, err := g.Compile()
		require.NoError(t, err)
		run := func() {
			if _, err := plan.Execute(t.Context(), nothing); err != nil {
				t.Error(err)
			}
		}
		// Execute allocates four or five objects, the caller's context two or three, and each worker that starts one.
		require.LessOrEqual(t, testing.AllocsPerRun(20, run), 40.0, name)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range 20 {
			run()
		}
		runtime.ReadMemStats(&after)
		bytes := float64(after.TotalAlloc-before.TotalAlloc) / 20
		require.LessOrEqual(t, bytes, 5000+120*float64(plan.Len()), name)
	}
}

// TestPlanTellsEdgesAndGroups checks Plan.Edges and Plan.Groups, which other packages read to draw a plan.
func TestPlanTellsEdgesAndGroups(t *testing.T) {
	var g kahn.Graph
	g.Groups = []kahn.Group{{Name: "disk", Limit: 1}, {Name: "net"}}
	g.Add(
		kahn.Node{ID: "b", After: []string{"a"}, In: []kahn.Edge{{From: "a", DataOnly: true, Param: "x"}}, Key: "k"},
		kahn.Node{ID: "a", Groups: []string{"net"}},
		kahn.Node{ID: "end", Kind: kahn.KindEnd},
	)
	g.Connect(kahn.Edge{From: "a", To: "end", On: kahn.OnFailure})
	plan, err := g.Compile()
	require.NoError(t, err)
	var edges []kahn.Edge
	for e, side := range plan.Edges() {
		require.False(t, side)
		edges = append(edges, e)
	}
	require.Equal(t, []kahn.Edge{{From: "a", To: "b"}, {From: "a", To: "b", DataOnly: true, Param: "x"}, {From: "a", To: "end", On: kahn.OnFailure}, {From: "b", To: "end"}}, edges)
	require.Equal(t, g.Groups, plan.Groups(), "keys are no groups")
}

// TestPlanAt: At finds a node by the path that its step has, in composites of all kinds and at any depth.
func TestPlanAt(t *testing.T) {
	t.Parallel()
	leaf := graph(kahn.Node{ID: "x", Config: "x of leaf"}, kahn.Node{ID: "y[0]", Config: "y of leaf", After: []string{"x"}})
	item := kahn.Map{Over: "item"}
	list := map[string]any{"item": []any{1, 2}}
	inner := graph(
		kahn.Node{ID: "M", Config: "M of inner", Map: &item, Params: list},
		kahn.Node{ID: "N", Map: &item, Params: list, Sub: leaf, After: []string{"M"}},
	)
	g := graph(
		kahn.Node{ID: "S", Config: "S", Sub: inner},
		kahn.Node{ID: "T/M", Config: "an id with a slash", After: []string{"S"}},
		kahn.Node{ID: "L", Sub: inner, Loop: &kahn.Loop{Until: func(kahn.View) (bool, error) { return true, nil }, MaxIterations: 2}},
	)
	plan, err := g.Compile()
	require.NoError(t, err)
	paths := map[string]any{}
	_, err = plan.Execute(t.Context(), func(_ context.Context, s *kahn.Step) (any, error) {
		n, ok := plan.At(s.Path())
		if !ok || n.Config != s.Config() {
			return nil, fmt.Errorf("At(%s) finds %v, %v", s.Path(), n.ID, ok)
		}
		paths[s.Path()] = n.Config
		return nil, nil
	}, kahn.Limit(1))
	require.NoError(t, err)
	require.Equal(t, map[string]any{
		"S/M[0]": "M of inner", "S/M[1]": "M of inner", "S/N[0]/x": "x of leaf", "S/N[0]/y[0]": "y of leaf", "S/N[1]/x": "x of leaf", "S/N[1]/y[0]": "y of leaf",
		"T/M": "an id with a slash", "L#1/M[0]": "M of inner", "L#1/M[1]": "M of inner", "L#1/N[0]/x": "x of leaf", "L#1/N[0]/y[0]": "y of leaf",
		"L#1/N[1]/x": "x of leaf", "L#1/N[1]/y[0]": "y of leaf",
	}, paths)
	for _, path := range []string{"", "T", "S/", "S/T", "T/M/x", "T/M[0]", "L/", "S[0]", "S/M]"} {
		_, ok := plan.At(path)
		require.False(t, ok, path)
	}
}
