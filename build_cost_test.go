package kahn_test

import (
	"context"
	"math"
	"runtime"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
)

// layers declares n nodes, each after the three before it, one call of Add a node.
func layers(n int) *kahn.Graph {
	g := &kahn.Graph{}
	ids := make([]string, n)
	for i := range ids {
		ids[i] = strconv.Itoa(i)
		g.Add(kahn.Node{ID: ids[i], After: ids[max(i-3, 0):i]})
	}
	return g
}

// TestAllocationsOfBuilding: graphs grow by doubling, whatever is added at a time, and what Compile makes is a number of objects
// that does not grow.
func TestAllocationsOfBuilding(t *testing.T) {
	one := kahn.Node{ID: "a"}
	require.LessOrEqual(t, testing.AllocsPerRun(20, func() { new(kahn.Graph).Add(one) }), 3.0, "one node")
	ids := 900.0 // the decimal numbers from 100 that are ids
	for _, n := range []int{100, 1000} {
		built := testing.AllocsPerRun(5, func() { layers(n) })
		if n == 100 {
			require.LessOrEqual(t, built, 40.0)
		} else {
			require.LessOrEqual(t, built-ids, 70.0)
		}
	}
	nodes := make([]kahn.Node, 1000)
	edges := make([]kahn.Edge, 0, 3000)
	for i := range nodes {
		nodes[i].ID = strconv.Itoa(i)
		for k := max(i-3, 0); k < i; k++ {
			edges = append(edges, kahn.Edge{From: nodes[k].ID, To: nodes[i].ID})
		}
	}
	require.LessOrEqual(t, testing.AllocsPerRun(5, func() { new(kahn.Graph).Add(nodes...).Connect(edges...) }), 5.0, "all at once")

	for n, most := range map[int]float64{1: 21, 30: 23, 3000: 23} {
		g := layers(n)
		require.LessOrEqual(t, testing.AllocsPerRun(5, func() {
			_, err := g.Connect().Compile()
			require.NoError(t, err)
		}), most, "%d nodes", n)
	}
}

// TestMemoryOfPlans: a graph and its plan share what they can.
func TestMemoryOfPlans(t *testing.T) {
	const n = 10_000
	empty := heap()
	g := layers(n)
	built := heap() - empty
	p := compiled(t, g)
	both := heap() - empty
	require.Less(t, built, int64(500*n), "the graph: nodes, three edges each, ids")
	require.Less(t, both, int64(800*n), "the graph and the plan")
	runtime.KeepAlive(g)
	runtime.KeepAlive(p)
}

// TestAllocationsOfSmallRuns: a run of few nodes makes five objects: the Run with its State and its Result, the channel that Wait
// waits for, the words of nodes and queue, the records, and the start of a worker.
func TestAllocationsOfSmallRuns(t *testing.T) {
	for n, bytes := range map[int]uint64{1: 1638, 3: 1850, 10: 2450} {
		p := compiled(t, chainGraph(n))
		run := func() {
			_, err := p.Execute(context.Background(), nothing)
			require.NoError(t, err)
		}
		require.LessOrEqual(t, testing.AllocsPerRun(50, run), 5.0, "%d nodes", n)
		require.LessOrEqual(t, bytesPerRun(run), bytes, "%d nodes", n)
	}
}

// bytesPerRun returns how many bytes f allocates. The runtime's own goroutines allocate, too, so it measures five times and returns the least.
func bytesPerRun(f func()) uint64 {
	const times = 100
	least := uint64(math.MaxUint64)
	for range 5 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range times {
			f()
		}
		runtime.ReadMemStats(&after)
		least = min(least, (after.TotalAlloc-before.TotalAlloc)/times)
	}
	return least
}
