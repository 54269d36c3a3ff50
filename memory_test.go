package kahn_test

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
)

// heap is how many bytes are in use.
func heap() int64 {
	runtime.GC()
	runtime.GC() // what the first one has finalized
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestMemoryOfOrigins bounds the memory for the origins of one node of a comb, and of all.
func TestMemoryOfOrigins(t *testing.T) {
	n := 4000
	res := failedComb(t, n)
	before := heap()
	res.Node("v0")
	one := heap() - before
	for node := range res.Nodes() {
		_ = node.Cause.Origins
	}
	all := heap() - before
	runtime.KeepAlive(res)
	require.Less(t, one, int64(100*n), "one node")
	require.Less(t, all, int64(400*n), "all nodes")
}

// TestMemoryOfContexts bounds the memory that a Result keeps for attempts that have used their contexts.
func TestMemoryOfContexts(t *testing.T) {
	g := &kahn.Graph{}
	n := 4000
	for i := range n {
		g.Add(kahn.Node{ID: fmt.Sprint("n", i)})
	}
	p := compiled(t, g)
	least := int64(math.MaxInt64)
	for range 3 {
		before := heap()
		res, err := p.Execute(t.Context(), func(ctx context.Context, s *kahn.Step) (any, error) {
			child, cancel := context.WithCancel(ctx)
			defer cancel()
			return nil, child.Err()
		}, kahn.Limit(2))
		require.NoError(t, err)
		least = min(least, heap()-before)
		runtime.KeepAlive(res)
	}
	require.Less(t, least, int64(250*n), "a Step and a little for each node")
}

// TestMemoryOfLog bounds the memory of the default log for the iterations of a loop: it keeps their events, not their runs.
func TestMemoryOfLog(t *testing.T) {
	const n = 4000
	sub := (&kahn.Graph{}).Add(kahn.Node{ID: "x", Do: nothing})
	g := graph(kahn.Node{ID: "L", Sub: sub, Loop: &kahn.Loop{
		While: func(v kahn.View) (bool, error) { return v.Iteration() < n, nil }, MaxIterations: n,
	}})
	observed := make(chan struct{}, n+1) // what an observer has not been told of yet is kept for it
	for name, opts := range map[string][]kahn.Option{
		"plain": nil, "observed": {kahn.OnNode(func(kahn.NodeResult) { observed <- struct{}{} })},
	} {
		least := int64(math.MaxInt64) // what earlier tests have left running shares the heap, and only adds to it
		for try := 0; try < 3 || try < 10 && least >= 800*n; try++ {
			before := heap()
			run, err := kahn.Start(t.Context(), g, nil, opts...)
			require.NoError(t, err)
			_, err = run.Wait()
			require.NoError(t, err)
			for range len(opts) * (n + 1) {
				<-observed
			}
			least = min(least, heap()-before)
			i := 0
			for e, err := range run.Events(t.Context(), 0) {
				require.NoError(t, err)
				if e.Type == event.NodeCompleted && e.Node == "x" {
					i++
					require.Equal(t, fmt.Sprintf("L#%d/x", i), e.Path)
				}
			}
			require.Equal(t, n, i)
		}
		require.Less(t, least, int64(800*n), "%s: %d bytes an iteration", name, least/n)
		t.Log(name, least/n, "bytes an iteration")
	}
}

// TestMemoryOfItems bounds the memory that the Result of a map keeps for each item: a step, or a nested run of one node.
func TestMemoryOfItems(t *testing.T) {
	const n = 4000
	for name, c := range map[string]struct {
		node  kahn.Node
		bound int64
	}{
		"steps": {kahn.Node{Do: nothing}, 300},
		"runs":  {kahn.Node{Sub: (&kahn.Graph{}).Add(kahn.Node{ID: "x", Do: nothing})}, 2900},
	} {
		node := c.node
		node.ID, node.Map, node.Params = "M", &kahn.Map{Over: "items"}, map[string]any{"items": make([]struct{}, n)}
		p := compiled(t, graph(node))
		least := int64(math.MaxInt64)
		for range 3 {
			before := heap()
			res, err := p.Execute(t.Context(), nil, kahn.Limit(2))
			require.NoError(t, err)
			least = min(least, heap()-before)
			require.Equal(t, n, items(t, res, "M").Count(kahn.Completed))
		}
		runtime.KeepAlive(p)
		t.Log(name, least/n, "bytes an item")
		require.Less(t, least, c.bound*n, "%s: %d bytes an item", name, least/n)
	}
}
