package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/store"
)

// TestMemoWhole performs a graph with a memoized composite, changes the graph or its input, performs it again, and checks which steps the second
// run calls.
func TestMemoWhole(t *testing.T) {
	// The first step inside "S" reads the input x. "last" follows "S".
	inner := func() *kahn.Graph { return graph(kahn.Node{ID: "a"}, after("b", "a")) }
	sub := func(version string) *kahn.Graph {
		return graph(kahn.Node{ID: "S", Memo: version, Sub: inner()}, kahn.Node{ID: "last", After: []string{"S"}, Memo: version})
	}
	loop := func(version string) *kahn.Graph {
		return graph(kahn.Node{ID: "S", Memo: version, Sub: inner(), Loop: &kahn.Loop{MaxIterations: 2, Until: func(v kahn.View) (bool, error) { return v.Iteration() == 2, nil }}}, kahn.Node{ID: "last", After: []string{"S"}, Memo: version})
	}
	list := func(version string) *kahn.Graph {
		return graph(kahn.Node{ID: "M", Memo: version, Sub: inner(), Map: &kahn.Map{Over: "list"}, Ports: []kahn.Port{{Name: "list"}}})
	}
	step := func(_ context.Context, s *kahn.Step) (any, error) {
		switch s.ID() {
		case "a":
			if item, ok := s.Item(); ok {
				return fmt.Sprint("item ", item), nil
			}
			x, err := kahn.Root[string](s, "x")
			return x, err
		case "b":
			x, err := kahn.Upstream[string](s, "a")
			return float64(len(x)), err
		}
		return "last", nil
	}
	given := func(x string, items ...string) map[string]any {
		return map[string]any{"x": x, "list": items, "request": "1"}
	}
	for name, x := range map[string]struct {
		build   func(version string) *kahn.Graph
		second  map[string]any
		version string
		opts    []kahn.Option
		between func(memo *kahn.Memo, cache mapCache)
		calls   []string
	}{
		"sub-graph, nothing":            {build: sub},
		"sub-graph, an unrelated input": {build: sub, second: map[string]any{"x": "a", "request": "2", "more": 1}},
		"sub-graph, an input":           {build: sub, second: given("bb"), calls: []string{"S/a", "S/b", "last"}},
		"sub-graph, early cutoff":       {build: sub, second: given("b"), calls: []string{"S/a", "S/b"}},
		"sub-graph, the code":           {build: sub, version: "v2", calls: []string{"S/a", "S/b", "last"}},
		"sub-graph, the graph": {build: func(version string) *kahn.Graph {
			g := inner()
			if version == "v2" {
				g.Add(kahn.Node{ID: "c", After: []string{"b"}})
			}
			return graph(kahn.Node{ID: "S", Memo: "v1", Sub: g})
		}, version: "v2", calls: []string{"S/a", "S/b", "S/c"}},
		"sub-graph, refreshed": {build: sub, opts: []kahn.Option{kahn.Refresh()}, calls: []string{"S/a", "S/b", "last"}},
		"sub-graph, expired": {build: sub, between: func(memo *kahn.Memo, _ mapCache) {
			memo.MaxAge = time.Hour
			time.Sleep(time.Hour)
		}, calls: []string{"S/a", "S/b", "last"}},
		"sub-graph, not expired": {build: sub, between: func(memo *kahn.Memo, _ mapCache) {
			memo.MaxAge = time.Hour
			time.Sleep(59 * time.Minute)
		}},
		"sub-graph, damaged": {build: sub, between: func(_ *kahn.Memo, cache mapCache) {
			for key, data := range cache {
				cache[key] = data[:len(data)-1]
			}
		}, calls: []string{"S/a", "S/b", "last"}},
		"loop, nothing":            {build: loop},
		"loop, an unrelated input": {build: loop, second: map[string]any{"x": "a", "request": "2"}},
		"loop, an input":           {build: loop, second: given("bb"), calls: []string{"S#1/a", "S#1/b", "S#2/a", "S#2/b", "last"}},
		"map, an item is added":    {build: list, second: given("a", "x", "y", "z"), calls: []string{"M[2]/a", "M[2]/b"}},
		"map, an item is moved":    {build: list, second: given("a", "y", "x")},
		"map, an item is removed":  {build: list, second: given("b", "y")},
		"map, an item is changed":  {build: list, second: given("b", "x", "w"), calls: []string{"M[1]/a", "M[1]/b"}},
		"a condition that is a step": {build: func(version string) *kahn.Graph {
			return graph(kahn.Node{ID: "a", Kind: kahn.KindCondition, Memo: version, Choices: []string{"yes", "no"}}, kahn.Node{ID: "b", In: []kahn.Edge{{From: "a", Label: "yes"}}},
				kahn.Node{ID: "c", In: []kahn.Edge{{From: "a", Label: "no"}}, Memo: version})
		}, second: map[string]any{"x": "no", "request": "2"}},
	} {
		for _, cached := range []bool{true, false} {
			for _, opts := range [][]kahn.Option{nil, {kahn.Limit(1)}, {kahn.Durable(new(store.Memory))}, {kahn.Waves}} {
				inBubble(t, fmt.Sprint(name, ", with a cache ", cached, opts), func(t *testing.T) {
					memo, cache := new(kahn.Memo), mapCache{}
					if cached {
						memo.Cache = cache
					} else if name == "sub-graph, damaged" {
						return
					}
					if len(opts) == 0 { // a map is not safe for several goroutines
						opts = []kahn.Option{kahn.Limit(1)}
						memo.Cache = nil
						if x.between != nil {
							return
						}
					} else if cached {
						opts = append(slices.Clip(opts), kahn.Limit(1))
					}
					began := time.Now()
					inputs := given("a", "x", "y")
					if name == "a condition that is a step" {
						inputs = given("no")
					}
					var c calls
					try(t, x.build("v1"), c.by((*kahn.Step).Path, step), append(slices.Clip(opts), memo, kahn.Inputs(inputs), kahn.RunID("first"))...)
					require.NotEmpty(t, c.called())
					if x.between != nil {
						x.between(memo, cache)
					}
					version := "v1"
					if x.version != "" {
						version = x.version
					}
					if x.second != nil {
						inputs = x.second
					}
					c = calls{}
					r := try(t, x.build(version), c.by((*kahn.Step).Path, step), append(slices.Concat(opts, x.opts), memo, kahn.Inputs(inputs))...)
					slices.Sort(x.calls)
					require.Equal(t, fmt.Sprint(x.calls), fmt.Sprint(c.called()))
					if n := len(x.calls); n == 0 {
						for n := range r.Nodes() {
							if n.ID == "M" || n.ID == "b" {
								continue
							}
							require.True(t, n.Memoized, n.ID)
							require.Equal(t, "first", n.Hit.Run, n.ID)
							require.True(t, began.Equal(n.Hit.At), n.ID)
							r.count(event.NodeStarted, n.ID, 0)
							r.count(event.NodeCompleted, n.ID, 1)
						}
					}
				})
			}
		}
	}
}

// TestMemoWholeReads: the memo key of a composite covers every value that nodes inside read from outside the composite, at every depth. This
// includes reads by a node whose own output was memoized, so that it read nothing in this run.
func TestMemoWholeReads(t *testing.T) {
	in := func(pairs ...any) kahn.Option {
		m := map[string]any{}
		for i := 0; i < len(pairs); i += 2 {
			m[pairs[i].(string)] = pairs[i+1]
		}
		return kahn.Inputs(m)
	}
	for name, x := range map[string]struct {
		node func(do kahn.StepFunc) kahn.Node
		in   []kahn.Option // each entry changes an input
		want []int         // calls of x so far
	}{
		"an input, two deep": {func(do kahn.StepFunc) kahn.Node {
			return subgraph("S", graph(subgraph("T", graph(kahn.Node{ID: "x", Do: do}))))
		}, []kahn.Option{in("x", 1), in("x", 1, "y", 1), in("x", 2), in("x", 1)}, []int{1, 1, 2, 2}},
		"an input that a guard reads": {func(do kahn.StepFunc) kahn.Node {
			return subgraph("S", graph(kahn.Node{ID: "x", Do: do, When: func(v kahn.View) (bool, error) {
				y, _ := v.Root("y")
				return y == nil, nil
			}}, kahn.Node{ID: "other", Do: takes(0)}))
		}, []kahn.Option{in("x", 1), in("x", 1, "z", 1), in("x", 1, "y", 1), in("x", 1)}, []int{1, 1, 1, 1}},
		"an input that the test of a loop reads": {func(do kahn.StepFunc) kahn.Node {
			n := subgraph("S", graph(kahn.Node{ID: "x", Do: do}))
			n.Loop = &kahn.Loop{MaxIterations: 3, Until: func(v kahn.View) (bool, error) {
				n, _ := v.Root("n")
				return v.Iteration() == n, nil
			}}
			return n
		}, []kahn.Option{in("x", 1, "n", 1), in("x", 1, "n", 1, "z", 1), in("x", 1, "n", 2)}, []int{1, 1, 3}},
		"a step that is memoized itself": {func(do kahn.StepFunc) kahn.Node {
			return subgraph("S", graph(kahn.Node{ID: "first", Do: takes(0)}, kahn.Node{ID: "x", Memo: "1", Do: do}))
		}, []kahn.Option{in("x", 1), in("x", 1, "y", 1), in("x", 2)}, []int{1, 1, 2}},
		"all parameters": {func(do kahn.StepFunc) kahn.Node {
			return subgraph("S", graph(kahn.Node{ID: "x", Do: func(ctx context.Context, s *kahn.Step) (any, error) {
				_ = s.Params()
				return do(ctx, s)
			}}))
		}, []kahn.Option{in("x", 1), in("x", 1), in("x", 1, "y", 1)}, []int{1, 1, 2}},
		"ports": {func(do kahn.StepFunc) kahn.Node {
			n := subgraph("S", graph(kahn.Node{ID: "x", Do: func(ctx context.Context, s *kahn.Step) (any, error) {
				_ = s.Params()
				return do(ctx, s)
			}}))
			n.Ports = []kahn.Port{{Name: "x"}}
			return n
		}, []kahn.Option{in("x", 1), in("x", 1, "y", 1), in("x", 2)}, []int{1, 1, 2}},
		"the index of an item": {func(do kahn.StepFunc) kahn.Node {
			n := mapped("S", []int{7, 7}, kahn.Map{})
			n.Sub = graph(kahn.Node{ID: "x", Do: func(ctx context.Context, s *kahn.Step) (any, error) {
				_ = s.Index()
				return do(ctx, s)
			}})
			return n
		}, []kahn.Option{in("x", 1), in("x", 1), in("x", 2)}, []int{2, 2, 4}},
		"the iteration around": {func(do kahn.StepFunc) kahn.Node {
			n := subgraph("L", graph(kahn.Node{ID: "S", Memo: "1", Sub: graph(kahn.Node{ID: "x", Do: func(ctx context.Context, s *kahn.Step) (any, error) {
				_ = s.Iteration()
				return do(ctx, s)
			}})}))
			n.Loop = &kahn.Loop{MaxIterations: 2, Until: func(v kahn.View) (bool, error) { return v.Iteration() == 2, nil }}
			return n
		}, []kahn.Option{in("x", 1), in("x", 1), in("x", 2)}, []int{2, 2, 4}},
	} {
		inBubble(t, name, func(t *testing.T) {
			var c calls
			n := x.node(c.count(func(_ context.Context, s *kahn.Step) (any, error) {
				v, _ := s.Root("x")
				return v, nil
			}))
			if n.ID != "L" {
				n.Memo = "1"
			}
			memo := new(kahn.Memo)
			for i, opt := range x.in {
				try(t, graph(n), nil, memo, opt)
				require.Equal(t, x.want[i], c.of("x"), "run %d", i)
			}
		})
	}
	inBubble(t, "what a node inside has not read again, since it was found", func(t *testing.T) {
		var c calls
		memo := new(kahn.Memo)
		g := func(version string) *kahn.Graph {
			n := subgraph("S", graph(kahn.Node{ID: "x", Memo: "1", Do: c.count(func(_ context.Context, s *kahn.Step) (any, error) {
				v, _ := s.Root("x")
				return v, nil
			})}))
			n.Memo = version
			return graph(n)
		}
		try(t, g("1"), nil, memo, in("x", 1))
		try(t, g("2"), nil, memo, in("x", 1)) // the output of x is memoized
		require.Equal(t, 1, c.of("x"))
		r := try(t, g("2"), nil, memo, in("x", 2))
		require.Equal(t, 2, c.of("x"))
		require.Equal(t, 2, r.node("S").Output)
		r = try(t, g("2"), nil, memo, in("x", 1))
		require.True(t, r.node("S").Memoized)
		require.Equal(t, 1, r.node("S").Output)
	})
}

// TestMemoWholeKeeps: the output of a composite is memoized only if it depends only on inputs and hides no failure.
func TestMemoWholeKeeps(t *testing.T) {
	for name, x := range map[string]struct {
		node kahn.Node
		host func(*kahn.Run)
		kept bool
	}{
		"completed": {node: subgraph("S", graph(kahn.Node{ID: "x"})), kept: true},
		"with its second attempt": {node: kahn.Node{ID: "S", Retry: thrice(ms), Sub: graph(kahn.Node{ID: "x", Do: func() kahn.StepFunc {
			n := 0
			return func(context.Context, *kahn.Step) (any, error) {
				if n++; n == 1 {
					return nil, errStep
				}
				return n, nil
			}
		}()})}, kept: true},
		"failed":                {node: subgraph("S", graph(kahn.Node{ID: "x", Do: fails(0)}))},
		"all was skipped":       {node: subgraph("S", graph(kahn.Node{ID: "x", Do: always(kahn.Skip("not today"))}))},
		"a failure inside":      {node: subgraph("S", graph(kahn.Node{ID: "x", Do: fails(0), ContinueOnFail: true}, after("y", "x")))},
		"a gate":                {node: subgraph("S", graph(gate("G"))), host: soon(func(run *kahn.Run) { _ = run.Signal(context.Background(), "S/G", "yes") })},
		"a gate that timed out": {node: subgraph("S", graph(kahn.Node{ID: "G", Kind: kahn.KindGate, Gate: &kahn.Gate{Timeout: time.Hour, OnTimeout: kahn.GateLabel}})), host: func(*kahn.Run) {}},
		"a pause": {node: subgraph("S", graph(kahn.Node{ID: "x", Do: func(_ context.Context, s *kahn.Step) (any, error) {
			if s.SavedState() != nil {
				return 1, nil
			}
			return nil, kahn.SuspendUntil(time.Now().Add(time.Minute), "state")
		}})), kept: true},
		"with a fallback": {node: kahn.Node{ID: "S", Sub: graph(kahn.Node{ID: "x", Do: fails(0)}), Fallback: func(context.Context, error) (any, error) { return 1, nil }}},
	} {
		inBubble(t, name, func(t *testing.T) {
			memo := new(kahn.Memo)
			x.node.Memo = "1"
			var last trial
			for range 2 {
				last = tryControlled(t, t.Context(), graph(x.node), takes(0), x.host, memo)
			}
			require.Equal(t, x.kept, last.node("S").Memoized)
		})
	}
	inBubble(t, "what continues in another life is performed, and the next run finds it", func(t *testing.T) {
		db, memo := new(store.Memory), new(kahn.Memo)
		var c calls
		slow := c.by((*kahn.Step).Path, func(ctx context.Context, s *kahn.Step) (any, error) {
			if s.ID() == "y" {
				return takes(time.Second)(ctx, s)
			}
			return s.ID(), nil
		})
		g := graph(kahn.Node{ID: "S", Memo: "1", Sub: graph(after("x"), after("y", "x"))}, after("last", "S"))
		run, err := kahn.Start(t.Context(), g, slow, memo, kahn.Durable(db), kahn.RunID("r"))
		require.NoError(t, err)
		time.Sleep(ms)
		run.Leave()
		time.Sleep(time.Minute)
		res, err := run.Wait()
		require.NoError(t, err)
		require.Equal(t, kahn.RunSuspended, res.Status)
		res, err = kahn.Execute(t.Context(), g, slow, memo, kahn.Durable(db), kahn.RunID("r"))
		require.NoError(t, err)
		require.Equal(t, kahn.RunCompleted, res.Status)
		require.Equal(t, []string{"S/x", "S/y", "last"}, c.called())
		for range 2 {
			res, err = kahn.Execute(t.Context(), g, slow, memo)
			require.NoError(t, err)
		}
		n, _ := res.Node("S")
		require.True(t, n.Memoized)
		_, err = kahn.Execute(t.Context(), g, slow, kahn.Redrive(res.Snapshot(), []string{"S"}))
		require.NoError(t, err)
	})
	inBubble(t, "a run without a Memo, and a Coordinator, perform it", func(t *testing.T) {
		n := kahn.Node{ID: "S", Memo: "1", Sub: graph(after("x"))}
		r := try(t, graph(n, after("last", "S")), takes(0))
		r.expect("S:ok last:ok", "completed")
		r.count(event.NodeStarted, "S", 1)
		require.Equal(t, 1, r.node("S").Attempts)
		c := coordinate(t, graph(n))
		require.NoError(t, c.Return(nextOf(t, c, "S/x"), 7, nil))
		res, err := c.Result()
		require.NoError(t, err)
		require.Equal(t, 7, res.Output())
	})
}

// countedInput is a value that counts how often it is encoded.
type countedInput struct{ n *atomic.Int32 }

func (c countedInput) MarshalJSON() ([]byte, error) {
	c.n.Add(1)
	return []byte(`"value"`), nil
}

// TestMemoInputsOnce: a Memo encodes the inputs of a run once, however many nodes, items and nodes inside composites the run has.
func TestMemoInputsOnce(t *testing.T) {
	for _, nodes := range []int{1, 100} {
		inBubble(t, fmt.Sprint(nodes), func(t *testing.T) {
			g := new(kahn.Graph)
			for i := range nodes {
				g.Add(kahn.Node{ID: fmt.Sprint("n", i), Memo: "1"}, kahn.Node{ID: fmt.Sprint("s", i), Memo: "1", Sub: graph(after("x"))})
			}
			m := mapped("M", numbers(nodes), kahn.Map{})
			m.Memo = "1"
			g.Add(m)
			var n atomic.Int32
			for range 2 {
				n.Store(0)
				try(t, g, takes(ms), new(kahn.Memo), kahn.Inputs(map[string]any{"big": countedInput{&n}}))
				require.EqualValues(t, 1, n.Load())
			}
		})
	}
}

// TestMemoWholeFlight: if several runs and items need the same composite at the same time, only one of them performs it.
func TestMemoWholeFlight(t *testing.T) {
	t.Parallel()
	inner := func() *kahn.Graph { return graph(after("y")) }
	for kind, node := range map[string]kahn.Node{
		"sub-graph": {ID: "E", Memo: "v1", Sub: inner()},
		"loop":      {ID: "E", Memo: "v1", Sub: inner(), Loop: &kahn.Loop{MaxIterations: 1, Until: func(kahn.View) (bool, error) { return true, nil }}},
	} {
		for _, opts := range [][]kahn.Option{nil, {kahn.Limit(1)}, {kahn.Waves}, {kahn.Durable(new(store.Memory))}, {kahn.Durable(new(store.Memory)), kahn.Limit(1)}} {
			fly := func(name string, do func(t *testing.T, f *flock)) {
				inBubble(t, fmt.Sprint(kind, opts, ", ", name), func(t *testing.T) {
					f := &flock{t: t, g: graph(node, after("B", "E"))}
					f.rn.Options = append([]kahn.Option{new(kahn.Memo)}, opts...)
					do(t, f)
				})
			}
			second := func(ctx context.Context, s *kahn.Step) (any, error) {
				if s.ID() == "B" {
					return nil, nil
				}
				return takes(time.Second)(ctx, s)
			}
			failing := func(ctx context.Context, s *kahn.Step) (any, error) {
				_, err := second(ctx, s)
				return nil, errors.Join(err, errStep)
			}
			fly("three at once", func(t *testing.T, f *flock) {
				for range 3 {
					f.start(second)
				}
				require.Equal(t, []string{"ok 1s", "ok 1s memoized", "ok 1s memoized"}, f.end())
				require.Equal(t, 3, f.calls.n["B"])
				require.Len(t, f.calls.n, 2)
			})
			fly("another one flies after a failure", func(t *testing.T, f *flock) {
				f.start(failing)
				f.start(second)
				require.Equal(t, []string{"F 1s", "ok 2s"}, f.end())
			})
			fly("a run that waits is cancelled", func(t *testing.T, f *flock) {
				f.start(second)
				f.start(second)
				time.Sleep(500 * ms)
				f.runs[1].Cancel()
				require.Equal(t, []string{"ok 1s", "C 500ms"}, f.end())
			})
			fly("a run that performs is cancelled", func(t *testing.T, f *flock) {
				f.start(second)
				f.start(second)
				time.Sleep(500 * ms)
				f.runs[0].Cancel()
				require.Equal(t, []string{"C 500ms", "ok 1.5s"}, f.end())
			})
			fly("a run that performs is aborted, a run that waits is left", func(t *testing.T, f *flock) {
				f.start(second)
				f.start(second)
				time.Sleep(500 * ms)
				f.runs[1].Leave()
				synctest.Wait()
				require.NoError(t, f.runs[0].AbortAll(errStep))
				res, err := f.runs[1].Wait()
				require.NoError(t, err)
				require.Equal(t, kahn.RunSuspended, res.Status)
				f.runs, f.recs = f.runs[:1], f.recs[:1]
				require.Equal(t, []string{"X 500ms"}, f.end())
			})
		}
	}
	for _, limit := range []int{0, 1, 2} {
		for _, runs := range [][]kahn.Option{nil, {kahn.Limit(1)}, {kahn.Limit(2)}, {kahn.Durable(new(store.Memory)), kahn.Limit(1)}} {
			inBubble(t, fmt.Sprint("equal items, limit ", limit, runs), func(t *testing.T) {
				var c calls
				n := mapped("M", []int{7, 7, 8, 7}, kahn.Map{Limit: limit})
				n.Memo, n.Sub = "1", graph(kahn.Node{ID: "y", Do: c.by((*kahn.Step).Path, takes(time.Second))})
				r := try(t, graph(n), nil, append(runs, new(kahn.Memo))...)
				r.expect("M:ok", "completed")
				require.Len(t, c.called(), 2)
			})
		}
	}
	for _, opts := range [][]kahn.Option{nil, {kahn.Limit(1)}} {
		inBubble(t, fmt.Sprint("a step that waits for the output of a composite leaves its slot to the nodes inside, ", opts), func(t *testing.T) {
			shares := func(n kahn.Node) kahn.Node {
				n.Memo, n.MemoName, n.MemoKey = "v1", "m", func(*kahn.Step) (string, error) { return "k", nil }
				return n
			}
			first, waits := kahn.Node{ID: "A", Priority: 1}, kahn.Node{ID: "W", Priority: 1, After: []string{"A"}}
			f := &flock{t: t, g: graph(shares(kahn.Node{ID: "E", Sub: inner()}), first, shares(waits))}
			f.rn.Limit, f.rn.Options = 1, append(slices.Clone(opts), new(kahn.Memo))
			f.start(takes(time.Second))
			require.Equal(t, []string{"ok 2s"}, f.end())
			require.Equal(t, map[string]int{"A": 1, "E/y": 1}, f.calls.n)
		})
	}
	inBubble(t, "a timeout ends the wait", func(t *testing.T) {
		f := &flock{t: t, g: graph(kahn.Node{ID: "E", Memo: "v1", Sub: inner(), Timeout: 1200 * ms})}
		f.rn.Options = []kahn.Option{new(kahn.Memo)}
		f.start(takes(time.Second * 2))
		f.start(takes(time.Second * 2))
		require.Equal(t, []string{"F 1.2s", "F 1.2s"}, f.end())
	})
	inBubble(t, "a panic, and a Goexit, in the cache fail the node alone", func(t *testing.T) {
		for _, crash := range []func(){func() { panic("no disk") }} {
			r := try(t, graph(kahn.Node{ID: "E", Memo: "v1", Sub: inner()}, after("C")), takes(ms), &kahn.Memo{Cache: crashingCache(crash)}, kahn.Limit(1))
			r.expect("E:F C:ok", "failed")
			r.cause("E", kahn.CausePanic)
		}
	})
}

// stuckCache is a cache that finds no entry. Its nth Get takes a given time, even if its context ends.
type stuckCache struct {
	nth, asked int
	takes      time.Duration
}

func (c *stuckCache) Get(context.Context, string) ([]byte, bool, error) {
	if c.asked++; c.asked == c.nth {
		time.Sleep(c.takes)
	}
	return nil, false, nil
}

func (*stuckCache) Put(context.Context, string, []byte) error { return nil }

// TestMemoWholeStopped: a composite that is stopped while the Cache is searched starts no node inside, in any attempt.
func TestMemoWholeStopped(t *testing.T) {
	t.Parallel()
	for name, stop := range map[string]func(*kahn.Run){
		"the run":  func(run *kahn.Run) { _ = run.Cancel() },
		"the node": func(run *kahn.Run) { _ = run.CancelNode("S") },
	} {
		for _, attempt := range []int{1, 2} {
			for takes, want := range map[time.Duration]time.Duration{2 * time.Second: time.Second, time.Hour: 5 * time.Second} { // the grace is 5 s
				inBubble(t, fmt.Sprint(name, ", attempt ", attempt, ", ", takes), func(t *testing.T) {
					var c calls
					g := graph(kahn.Node{ID: "S", Memo: "1", Retry: thrice(-1), Sub: graph(kahn.Node{ID: "x", Do: c.count(always(errStep))})})
					r := tryControlled(t, t.Context(), g, nil, func(run *kahn.Run) {
						time.Sleep(time.Second)
						stop(run)
					}, &kahn.Memo{Cache: &stuckCache{nth: attempt, takes: takes}})
					r.expect("S:C", "cancelled")
					require.Equal(t, time.Second+want, r.Duration)
					time.Sleep(2 * time.Hour)
					require.Equal(t, attempt-1, c.of("x"))
				})
			}
		}
	}
}
