package kahn_test

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// TestGrowthOfSignals answers n gates inside n nodes, or inside one node, before and during the resumption of the run. The test counts objects,
// so it does not run in parallel.
func TestGrowthOfSignals(t *testing.T) {
	nested := func(n int, node func(id string, sub *kahn.Graph) kahn.Node) (g *kahn.Graph, paths []string) {
		g = &kahn.Graph{}
		for i := range n {
			id := fmt.Sprint("n", i)
			g.Add(node(id, graph(gate("g"))))
			paths = append(paths, id+"/g")
		}
		return g, paths
	}
	asks := func(id string, _ *kahn.Graph) kahn.Node {
		return kahn.Node{ID: id, Sub: graph(kahn.Node{ID: "g", Do: func(_ context.Context, s *kahn.Step) (any, error) {
			if v, ok := s.Resumed(); ok {
				return v, nil
			}
			return nil, kahn.Suspend("token "+id, nil, nil)
		}})}
	}
	var hold chan struct{} // expanded nodes return their graphs when hold is closed
	expanded := func(id string, sub *kahn.Graph) kahn.Node {
		return kahn.Node{ID: id, Do: func(_ context.Context, s *kahn.Step) (any, error) {
			<-hold
			return nil, kahn.Expand(sub, nil, nil)
		}}
	}
	open := make(chan struct{})
	close(open)
	for _, row := range []struct {
		name string
		make func(n int) (*kahn.Graph, []string)
		kept bool // whether the signals arrive before the graphs are known
	}{
		{"sub-graphs", func(n int) (*kahn.Graph, []string) { return nested(n, asks) }, false},
		{"tokens", func(n int) (*kahn.Graph, []string) {
			g, names := nested(n, asks)
			for i := range names {
				names[i] = fmt.Sprint("token n", i)
			}
			return g, names
		}, false},
		{"expanded nodes", func(n int) (*kahn.Graph, []string) { return nested(n, expanded) }, true},
		{"an expanded node", func(n int) (*kahn.Graph, []string) {
			inner, paths := gates(n), []string(nil)
			for i := range n {
				paths = append(paths, fmt.Sprint("D/g", i))
			}
			return graph(expanded("D", inner)), paths
		}, true},
	} {
		for _, how := range []string{"before", "during"} { // before or during the resumption
			t.Run(row.name+" "+how, func(t *testing.T) {
				least := 100
				if how == "before" {
					least = 200
				}
				grows(t, least, func(n int) (objects int64) {
					hold = open
					g, paths := row.make(n)
					rec := newRecorder()
					first, err := kahn.Execute(t.Context(), g, nil, kahn.OnEvent(rec.add))
					require.NoError(t, err)
					require.Len(t, first.Waiting, n)
					signals := map[string]any{}
					for _, path := range paths {
						signals[path] = true
					}
					s := reload(t, first.Snapshot())
					if how == "during" {
						signals = nil
					}
					if hold = open; row.kept {
						hold = make(chan struct{})
					}
					var run *kahn.Run
					_, objects = allocated(func() {
						run, err = kahn.Start(t.Context(), g, nil, kahn.Resume(s), kahn.EarlySignals(signals), kahn.OnEvent(rec.add), kahn.Retain(0))
						require.NoError(t, err)
						if how == "during" {
							for _, path := range paths {
								require.NoError(t, run.Signal(context.Background(), path, true))
								if row.kept {
									require.ErrorIs(t, run.Signal(context.Background(), path, true), kahn.ErrAnswered)
								}
							}
						}
						if row.kept {
							close(hold)
						}
						_, err = run.Wait()
					})
					require.NoError(t, err)
					res, _ := run.Wait()
					require.Equal(t, kahn.RunCompleted, res.Status)
					checkEvents(t, g, res, rec.all())
					if !row.kept && how == "during" {
						return run.TreeSteps() // visits do not allocate
					}
					return objects
				})
			})
		}
	}
}

// TestGrowthOfNestedWaits answers many waiting nodes in nested runs, with a store and without: gates in sub-graphs and in items of maps, and steps
// that wait under their own tokens.
func TestGrowthOfNestedWaits(t *testing.T) {
	t.Parallel()
	asks := func(_ context.Context, s *kahn.Step) (any, error) {
		if v, ok := s.Resumed(); ok {
			return v, nil
		}
		return nil, kahn.Suspend("token of "+s.Path(), nil, nil)
	}
	sub := (&kahn.Graph{}).Add(gate("g"), kahn.Node{ID: "s", Do: asks})
	for _, durable := range []bool{false, true} {
		grows(t, 20, func(n int) int64 {
			g := &kahn.Graph{}
			var answers []string
			for i := range n {
				id := fmt.Sprint("n", i)
				g.Add(kahn.Node{ID: id, Sub: sub})
				answers = append(answers, id+"/g", "token of "+id+"/s")
			}
			g.Add(kahn.Node{ID: "m", Map: &kahn.Map{Over: "items"}, Params: map[string]any{"items": make([]int, n)}, Do: asks},
				kahn.Node{ID: "k", Map: &kahn.Map{Over: "items"}, Params: map[string]any{"items": make([]int, n)}, Sub: sub})
			for i := range n {
				answers = append(answers, fmt.Sprintf("m[%d]", i), fmt.Sprintf("k[%d]/s", i), fmt.Sprintf("k[%d]/g", i))
			}
			rec := newRecorder()
			opts := []kahn.Option{kahn.OnEvent(rec.add)}
			if durable {
				opts = append(opts, kahn.Durable(&store.Memory{}))
			}
			run, err := kahn.Start(t.Context(), g, nothing, opts...)
			require.NoError(t, err)
			for run.Status() != kahn.RunSuspended {
				runtime.Gosched()
			}
			require.Len(t, run.Waiting(), len(answers))
			require.ErrorIs(t, run.Signal(context.Background(), "n0/h", true), kahn.ErrUnknownGate)
			require.ErrorIs(t, run.Signal(context.Background(), fmt.Sprintf("m[%d]", n), true), kahn.ErrUnknownGate)
			for _, name := range answers {
				require.NoError(t, run.Signal(context.Background(), name, true), name)
			}
			res, err := run.Wait()
			require.NoError(t, err)
			checkEvents(t, g, res, rec.all())
			return run.TreeSteps()
		})
	}
}

// TestGrowthOfLeaving leaves a run while steps run in many nested runs. The steps end one after the other.
func TestGrowthOfLeaving(t *testing.T) {
	t.Parallel()
	grows(t, 30, func(n int) (steps int64) {
		synctest.Test(t, func(t *testing.T) {
			begun, g := make(chan struct{}), &kahn.Graph{}
			sub := (&kahn.Graph{}).Add(kahn.Node{ID: "x", Do: func(context.Context, *kahn.Step) (any, error) {
				<-begun
				return nil, nil
			}}, kahn.Node{ID: "y", After: []string{"x"}, Do: nothing})
			for i := range n {
				g.Add(kahn.Node{ID: fmt.Sprint("n", i), Sub: sub})
			}
			rec := newRecorder()
			run, err := kahn.Start(t.Context(), g, nil, kahn.OnEvent(rec.add))
			require.NoError(t, err)
			synctest.Wait()
			run.Leave()
			for range n {
				begun <- struct{}{}
			}
			res, err := run.Wait()
			require.NoError(t, err)
			require.Equal(t, kahn.RunSuspended, res.Status)
			checkEvents(t, g, res, rec.all())
			steps = run.TreeSteps()
		})
		return steps
	})
}

// TestGrowthOfSignalIDs answers n gates with signals that have IDs, and repeats each signal. The test counts bytes that are allocated or written
// to the store, so it does not run in parallel.
func TestGrowthOfSignalIDs(t *testing.T) {
	decision := func(i int) kahn.Decision { return kahn.Decision{ID: fmt.Sprint("id", i), Value: i} }
	each := func(t *testing.T, n int, run *kahn.Run) {
		for range 2 {
			for i := range n {
				require.NoError(t, run.Signal(context.Background(), fmt.Sprint("g", i), decision(i)))
			}
		}
		require.ErrorIs(t, run.Signal(context.Background(), "g0", kahn.Decision{ID: "id0", Value: "another"}), kahn.ErrSignalConflict)
		_, err := run.Wait()
		require.NoError(t, err)
	}
	all := func(n int) map[string]any {
		signals := map[string]any{}
		for i := range n {
			signals[fmt.Sprint("g", i)] = decision(i)
		}
		return signals
	}
	written := func(t *testing.T, j *eventStore) (bytes int64) {
		for _, c := range j.commits {
			data, err := json.Marshal(c)
			require.NoError(t, err)
			bytes += int64(len(data))
		}
		return bytes
	}
	for name, count := range map[string]func(t *testing.T, n int) int64{
		"in memory": func(t *testing.T, n int) int64 {
			bytes, _ := allocated(func() {
				run, err := kahn.Start(t.Context(), gates(n), nil, kahn.Retain(0))
				require.NoError(t, err)
				each(t, n, run)
			})
			return bytes
		},
		"as a run goes on": func(t *testing.T, n int) int64 {
			res, err := kahn.Execute(t.Context(), gates(n), nil)
			require.NoError(t, err)
			s := res.Snapshot()
			bytes, _ := allocated(func() {
				run, err := kahn.Start(t.Context(), gates(n), nil, kahn.Resume(s), kahn.EarlySignals(all(n)), kahn.Retain(0))
				require.NoError(t, err)
				each(t, n, run)
			})
			return bytes
		},
		"over a store": func(t *testing.T, n int) int64 {
			j := new(eventStore)
			run, err := kahn.Start(t.Context(), gates(n), nil, kahn.Durable(j), kahn.RunID("r"))
			require.NoError(t, err)
			each(t, n, run)
			return written(t, j)
		},
		"over a store, at once": func(t *testing.T, n int) int64 {
			j := new(eventStore)
			run, err := kahn.Start(t.Context(), gates(n), nil, kahn.Durable(j), kahn.RunID("r"), kahn.EarlySignals(all(n)))
			require.NoError(t, err)
			each(t, n, run)
			return written(t, j)
		},
	} {
		t.Run(name, func(t *testing.T) {
			doubles(t, 100, func(n int) int64 { return count(t, n) })
		})
	}
}

// TestGrowthOfWhy calls Why for each of n nodes that wait for the same limit. The last node in declaration order holds the slot.
func TestGrowthOfWhy(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		opts     []kahn.Option
		group    string
		nest     bool
		suspends bool
		kind     kahn.WhyKind
	}{
		"a slot":             {opts: []kahn.Option{kahn.Limit(1)}, kind: kahn.WhySlot},
		"a slot of a group":  {group: "g", kind: kahn.WhySlot},
		"a slot of the tree": {opts: []kahn.Option{kahn.Limit(1)}, nest: true, kind: kahn.WhySlot},
		"an end of the hold": {opts: []kahn.Option{kahn.Limit(1), kahn.SuspendStop}, suspends: true, kind: kahn.WhyHeld},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			doubles(t, 50, func(n int) (visits int64) {
				synctest.Test(t, func(t *testing.T) {
					g, rec, hold := &kahn.Graph{}, newRecorder(), make(chan struct{})
					g.Groups = []kahn.Group{{Name: "g", Limit: 1}}
					node := func(id string) kahn.Node {
						x := kahn.Node{ID: id}
						if row.group != "" {
							x.Groups = []string{row.group}
						}
						return x
					}
					for i := range n {
						g.Add(node(fmt.Sprint("n", i)))
					}
					last := node("last")
					last.Priority = 1
					if row.nest {
						last.Sub = graph(kahn.Node{ID: "x", Priority: 1})
					}
					run, err := kahn.Start(t.Context(), g.Add(last), func(context.Context, *kahn.Step) (any, error) {
						if row.suspends {
							return nil, kahn.Suspend("", nil, nil)
						}
						<-hold
						return nil, nil
					}, append(row.opts, kahn.OnEvent(rec.add))...)
					require.NoError(t, err)
					synctest.Wait()
					before := run.Visits() + run.TreeSteps()
					holder := "last"
					if row.nest {
						holder = "last/x"
					}
					for i := range n {
						y, err := run.Why(fmt.Sprint("n", i))
						require.NoError(t, err)
						require.Equal(t, row.kind, y.Kind)
						require.Equal(t, []string{holder}, y.Nodes)
						require.Zero(t, y.More)
					}
					visits = run.Visits() + run.TreeSteps() - before
					close(hold)
					run.Leave()
					res, err := run.Wait()
					require.NoError(t, err)
					checkEvents(t, g, res, rec.all())
				})
				return visits
			})
		})
	}
}

// TestQueuedOfManyPredecessors: Step.Queued takes time linear in the in-edges of the node, even if no predecessor has an end time.
func TestQueuedOfManyPredecessors(t *testing.T) {
	const n = 4000
	g, ids := graph(), []string{}
	for i := range n {
		ids = append(ids, fmt.Sprint("n", i))
		g.Add(kahn.Node{ID: ids[i]})
	}
	c := coordinate(t, g.Add(kahn.Node{ID: "z", After: ids}))
	var last *kahn.Step
	for s, ok := c.Next(); ok; s, ok = c.Next() {
		last = s
		require.NoError(t, c.Return(s, 1, nil))
	}
	require.Equal(t, "z", last.ID())
	before := c.Run().Visits()
	last.Queued()
	require.Less(t, c.Run().Visits()-before, int64(300*n), "each predecessor is visited once, and compared with few others")
}
