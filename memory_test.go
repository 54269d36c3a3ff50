package kahn_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/store"
)

// heap returns the number of bytes in use.
func heap() int64 {
	runtime.GC()
	runtime.GC() // frees objects that the first collection has finalized
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestMemoryOfOrigins bounds the memory for the origins of one node, and of all nodes, of a failedComb.
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

// TestMemoryOfLog bounds the memory of the default log for the iterations of a loop: the log keeps their events and not their nested runs.
func TestMemoryOfLog(t *testing.T) {
	const n = 4000
	sub := (&kahn.Graph{}).Add(kahn.Node{ID: "x", Do: nothing})
	g := graph(kahn.Node{ID: "L", Sub: sub, Loop: &kahn.Loop{
		While: func(v kahn.View) (bool, error) { return v.Iteration() < n, nil }, MaxIterations: n,
	}})
	observed := make(chan struct{}, n+1) // the run keeps events that an observer has not seen yet
	for name, row := range map[string]struct {
		opts []kahn.Option
		seen int
	}{
		"plain":              {nil, 0},
		"observed":           {[]kahn.Option{kahn.OnNode(func(kahn.NodeResult) { observed <- struct{}{} })}, n + 1},
		"by one that panics": {[]kahn.Option{kahn.OnNode(func(kahn.NodeResult) { panic("no") })}, 0},
	} {
		least := int64(math.MaxInt64) // goroutines of earlier tests use the same heap, which can only increase the result
		for try := 0; try < 3 || try < 10 && least >= 800*n; try++ {
			before := heap()
			run, err := kahn.Start(t.Context(), g, nil, row.opts...)
			require.NoError(t, err)
			_, err = run.Wait()
			require.NoError(t, err)
			for range row.seen {
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

// TestMemoryOfItems bounds the memory that the Result of a map keeps for each item: a step, a nested run of one node, or a step that expands into a
// graph of three nodes.
func TestMemoryOfItems(t *testing.T) {
	const n = 4000
	for name, c := range map[string]struct {
		node  kahn.Node
		bound int64
	}{
		"steps": {kahn.Node{Do: nothing}, 300},
		"runs":  {kahn.Node{Sub: (&kahn.Graph{}).Add(kahn.Node{ID: "x", Do: nothing})}, 1350},
		"expansions": {kahn.Node{Do: func(context.Context, *kahn.Step) (any, error) {
			return nil, kahn.Expand((&kahn.Graph{}).Add(kahn.Node{ID: "a", Do: nothing}, kahn.Node{ID: "b", Do: nothing, After: []string{"a"}},
				kahn.Node{ID: "c", Do: nothing, After: []string{"b"}}), nil, nil)
		}}, 3300},
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

// TestMemoryOfLoading reads an ended run from its store. The Result uses at most one and a half times the memory of the run itself. While the Result
// is loaded, one more copy of the run's records exists.
func TestMemoryOfLoading(t *testing.T) {
	const n = 2_000
	for name, row := range map[string]struct {
		g    *kahn.Graph
		most int64 // allocated bytes per node
	}{
		"items": {graph(kahn.Node{ID: "M", Map: &kahn.Map{Over: "list"}, Params: map[string]any{"list": make([]int, n)}, Sub: graph(after("a"), after("b", "a"), after("c", "b"))}, after("Z", "M")), 3_300},
		"nodes": {chainGraph(4 * n), 2_100},
	} {
		db, p := new(store.Memory), compiled(t, row.g)
		before := heap()
		held := func() int64 {
			res, err := p.Execute(t.Context(), nothing, kahn.Durable(db), kahn.RunID("r"))
			require.NoError(t, err)
			both := heap() - before
			runtime.KeepAlive(res)
			return both
		}()
		stored := heap() - before
		held -= stored
		var read *kahn.Result
		var err error
		loaded, _ := allocated(func() { read, err = kahn.ReadResult(t.Context(), row.g, db, "r") })
		require.NoError(t, err)
		holds := heap() - before - stored
		require.Equal(t, kahn.RunCompleted, read.Status)
		t.Logf("%s: the run held %d bytes a node; reading it takes %d, and holds %d", name, held/(4*n), loaded/(4*n), holds/(4*n))
		require.LessOrEqual(t, holds, held*3/2, name)
		require.LessOrEqual(t, loaded, row.most*4*n, name)
		runtime.KeepAlive(db)
	}
}

// layers returns a graph of n nodes, each after the three previous nodes, with one call of Add per node.
func layers(n int) *kahn.Graph {
	g := &kahn.Graph{}
	ids := make([]string, n)
	for i := range ids {
		ids[i] = strconv.Itoa(i)
		g.Add(kahn.Node{ID: ids[i], After: ids[max(i-3, 0):i]})
	}
	return g
}

// TestAllocationsOfBuilding: graphs grow by doubling, however many nodes one call adds, and the number of objects that Compile makes does not
// grow.
func TestAllocationsOfBuilding(t *testing.T) {
	one := kahn.Node{ID: "a"}
	require.LessOrEqual(t, testing.AllocsPerRun(20, func() { new(kahn.Graph).Add(one) }), 3.0, "one node")
	ids := 900.0 // the decimal numbers from 100 on, which are the ids
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

	for n, most := range map[int]float64{1: 13, 3: 15, 10: 15, 30: 15, 100: 15, 1000: 15, 3000: 15} {
		g := layers(n)
		require.LessOrEqual(t, testing.AllocsPerRun(5, func() {
			_, err := g.Connect().Compile()
			require.NoError(t, err)
		}), most, "%d nodes", n)
	}
}

// TestMemoryOfPlans: a graph and its plan share as much memory as they can.
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

// TestAllocationsOfRuns: a run allocates at most five objects, for any number of nodes and leaves: the Run with its State and its Result, the
// words of nodes and queue, the records, the function of its workers and, if Execute has to wait, the channel of Done. A context that may end needs
// no further object. A small run takes few bytes. A State alone allocates three objects: itself, the words, and its options.
func TestAllocationsOfRuns(t *testing.T) {
	mayEnd, cancel := context.WithCancel(context.Background())
	defer cancel()
	for _, x := range []struct {
		nodes int
		bytes uint64 // of a run of one leaf
	}{{1, 1300}, {3, 1460}, {10, 2100}, {100, 0}} {
		leaves := &kahn.Graph{}
		for i := range x.nodes {
			leaves.Add(kahn.Node{ID: strconv.Itoa(i)})
		}
		for shape, g := range map[string]*kahn.Graph{"a chain": chainGraph(x.nodes), "leaves": leaves} {
			p := compiled(t, g)
			require.LessOrEqual(t, testing.AllocsPerRun(50, func() { _, _ = kahn.NewState(p) }), 3.0, "the State, %d nodes, %s", x.nodes, shape)
			for _, ctx := range []context.Context{context.Background(), mayEnd} {
				run := func() {
					_, err := p.Execute(ctx, nothing)
					require.NoError(t, err)
				}
				require.LessOrEqual(t, testing.AllocsPerRun(50, run), 5.0, "%d nodes, %s, %v", x.nodes, shape, ctx)
				if x.bytes > 0 && shape == "a chain" {
					require.LessOrEqual(t, bytesPerRun(run), x.bytes, "%d nodes", x.nodes)
				}
			}
		}
	}
}

// TestAllocationsOfGuards: a worker reuses the memory in which it registers a check.
func TestAllocationsOfGuards(t *testing.T) {
	measure := func(n int) float64 {
		g := &kahn.Graph{}
		for i := range n {
			x := kahn.Node{ID: strconv.Itoa(i), When: func(kahn.View) (bool, error) { return true, nil }}
			if i > 0 {
				x.After = []string{strconv.Itoa(i - 1)}
			}
			g.Add(x)
		}
		p := compiled(t, g)
		return testing.AllocsPerRun(50, func() {
			_, err := p.Execute(context.Background(), nothing)
			require.NoError(t, err)
		})
	}
	require.LessOrEqual(t, (measure(200)-measure(100))/100, 0.5)
}

// TestAllocationsOfMemosAndUsage: no node of the run is memoized, names a file, or reports usage. So with a Memo and a Budget the run allocates
// as much as without, except for the options themselves. Over a store it also writes as much.
func TestAllocationsOfMemosAndUsage(t *testing.T) {
	const n = 50
	p := compiled(t, chainGraph(n))
	measure := func(opts ...kahn.Option) (objects float64, bytes uint64) {
		run := func() {
			_, err := p.Execute(context.Background(), nothing, opts...)
			require.NoError(t, err)
		}
		return testing.AllocsPerRun(50, run), bytesPerRun(run)
	}
	objects, bytes := measure()
	more, moreBytes := measure(new(kahn.Memo), kahn.Refresh(), kahn.Budget(func(kahn.Usage) error { return errors.New("nothing was used") }))
	require.LessOrEqual(t, more, objects+1, "the settings of the run")
	require.LessOrEqual(t, moreBytes, bytes+1024)
	stored := func(opts ...kahn.Option) (objects float64, bytes int) {
		var db *store.Memory
		objects = testing.AllocsPerRun(20, func() {
			db = new(store.Memory)
			_, err := p.Execute(context.Background(), nothing, append(opts, kahn.RunID("r"), kahn.Durable(db))...)
			require.NoError(t, err)
		})
		run, err := db.Load(context.Background(), "r")
		require.NoError(t, err)
		require.Nil(t, run.Usage)
		for _, node := range run.Nodes {
			bytes += len(node.Record)
		}
		return objects, bytes + len(run.Record)
	}
	objects, written := stored()
	more, moreWritten := stored(new(kahn.Memo), kahn.Budget(func(kahn.Usage) error { return nil }))
	require.LessOrEqual(t, more, objects+n/2, "an object a node would be n; the committer decides how many transactions there are")
	require.InDelta(t, written, moreWritten, 100, "times have more digits or fewer")
}

// TestAllocationsOfAttemptContexts counts the objects for a step that uses the channel of its context, and for a step with a Timeout. The
// standard library makes three objects for context.WithCancel and five for context.WithTimeout. One timer serves all timeouts of a run.
func TestAllocationsOfAttemptContexts(t *testing.T) {
	const n = 200
	asks := func(ctx context.Context, _ *kahn.Step) (any, error) {
		_ = ctx.Done()
		return nil, nil
	}
	perNode := func(step kahn.StepFunc, timeout time.Duration) float64 {
		g := &kahn.Graph{}
		for _, node := range chainGraph(n).Nodes() {
			node.Timeout = timeout
			g.Add(node)
		}
		p := compiled(t, g.Connect(chainGraph(n).Edges()...))
		return testing.AllocsPerRun(20, func() {
			_, err := p.Execute(t.Context(), step)
			require.NoError(t, err)
		}) / n
	}
	require.Less(t, perNode(nothing, 0), 0.1)
	require.Less(t, perNode(asks, 0), 4.1)
	require.Less(t, perNode(nothing, time.Hour), 1.1)
	require.Less(t, perNode(asks, time.Hour), 7.1)
}

// bytesPerRun returns the number of bytes that f allocates. The runtime's own goroutines allocate, too, so it returns the minimum of five
// measurements.
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

// TestEndedNodesKeepNoTexts: a run keeps the encoded values of a waiting node only until the store has the node's end.
func TestEndedNodesKeepNoTexts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := new(kahn.Graph).Add(kahn.Node{ID: "ask"}, kahn.Node{ID: "busy"})
		step := func(ctx context.Context, s *kahn.Step) (any, error) {
			if _, ok := s.Resumed(); s.ID() == "ask" && !ok {
				return nil, kahn.Suspend("", "info", "state")
			}
			if s.ID() == "busy" {
				time.Sleep(time.Hour)
			}
			return s.ID(), nil
		}
		run, err := kahn.Start(t.Context(), g, step, kahn.Durable(new(store.Memory)), kahn.RunID("r"))
		require.NoError(t, err)
		synctest.Wait()
		require.Equal(t, 1, kahn.KeptTexts(run))
		require.NoError(t, run.Signal(t.Context(), "ask", true))
		time.Sleep(time.Minute)
		require.Zero(t, kahn.KeptTexts(run))
		_, err = run.Wait()
		require.NoError(t, err)
	})
}
