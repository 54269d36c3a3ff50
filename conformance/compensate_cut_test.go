package conformance_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// undoable returns the node x, and the node y after it, for a composite whose attempt fails when y fails. Then x is undone.
func undoable() *kahn.Graph {
	x := kahn.Node{ID: "x", Compensate: succeedsUndo, CompensateRetry: kahn.Retry{MaxAttempts: 3, InitialDelay: 2 * time.Second, Jitter: kahn.JitterNone}}
	return graph(x, after("y", "x"))
}

func succeedsUndo(context.Context, *kahn.Step) error { return nil }

// With one slot, nothing begins while the attempt of w is being stopped. A node inside a composite is undone meanwhile, and a cut loses neither its
// attempt nor its backoff.
func TestCutWhileANodeInsideIsUndone(t *testing.T) {
	items, twice := map[string]any{"items": numbers(2)}, &kahn.Loop{While: whileLess(2), MaxIterations: 2}
	loop := []string{"L#1/x", "L#1/y", "L#2/x", "L#2/y fails", "L#2/x"}
	inside := func(path string) (list []string) {
		for _, of := range loop {
			list = append(list, path+of)
		}
		return list
	}
	inner := graph(kahn.Node{ID: "L", Sub: undoable(), Loop: twice})
	steps := kahn.Node{ID: "M", Map: &kahn.Map{Over: "items"}, Params: items}
	steps.Compensate, steps.CompensateRetry = succeedsUndo, kahn.Retry{InitialDelay: 2 * time.Second, Jitter: kahn.JitterNone}
	for _, row := range []struct {
		name    string
		of      kahn.Node
		replies []string // the replies until the node `undoes` is being undone
		undoes  string
	}{
		{"sub-graph", subgraph("S", undoable()), []string{"S/x", "S/y fails"}, "S/x"},
		{"refused output", kahn.Node{ID: "S", Sub: undoable(), OutputSchema: wants(2)}, []string{"S/x", "S/y"}, "S/x"},
		{"item", steps, []string{"M[0]", "M[1] fails", "M[1]"}, "M[0]"},
		{"inside an item", kahn.Node{ID: "M", Map: &kahn.Map{Over: "items"}, Params: items, Sub: undoable()}, []string{"M[0]/x", "M[1]/x", "M[0]/y", "M[1]/y fails", "M[1]/x"}, "M[0]/x"},
		{"iteration", kahn.Node{ID: "L", Sub: undoable(), Loop: twice}, loop, "L#1/x"},
		{"two deep", subgraph("S", inner), inside("S/"), "S/L#1/x"},
		{"expanded node", kahn.Node{ID: "E"}, append([]string{"E"}, inside("E/")...), "E/L#1/x"},
	} {
		for _, backsOff := range []bool{false, true} {
			t.Run(fmt.Sprint(row.name, backsOff), func(t *testing.T) {
				row.of.Priority = 1
				g := graph(row.of, after("w"))
				opts := []kahn.Option{kahn.Limit(1), kahn.ExpandedGraphs(func(string, any) (*kahn.Graph, error) { return inner, nil })}
				bothWays(t, g, opts, nil, func(x *courier) {
					for _, reply := range row.replies {
						path, fails := strings.CutSuffix(reply, " fails")
						switch {
						case path == "E":
							x.reply(path, nil, kahn.Expand(inner, nil, nil))
						case fails:
							x.reply(path, nil, errStep)
						default:
							x.reply(path, 1, nil)
						}
					}
					require.NoError(t, x.c.Run().Cancel())
					s, ok := x.c.NextStop()
					require.True(t, ok)
					require.Equal(t, "w", s.Path())
					if backsOff {
						x.reply(row.undoes, nil, errStep)
						x.cut()
						x.due(2 * time.Second)
						x.wait(2 * time.Second)
					}
					x.cut()
					x.cut()
					x.reply(row.undoes, nil, nil)
					x.reply("w", nil, errStep)
					require.Contains(t, []kahn.RunStatus{kahn.RunCancelled, kahn.RunFailed}, x.c.Run().Status())
					res, err := x.c.Result()
					require.NotErrorIs(t, err, kahn.ErrCompensation)
					require.Equal(t, kahn.CompensationDone, must(res.Node(row.of.ID)).Compensation)
					undone := 0
					for _, call := range x.log {
						if slices.Contains([]string{"0s " + row.undoes, "2s " + row.undoes}, call) {
							undone++
						}
					}
					require.Equal(t, map[bool]int{false: 2, true: 3}[backsOff], undone, x.log)
				})
			})
		}
	}
}

// A cancelled run undoes its nodes, and then a cleanup node fails. The end node accepts this failure but cannot complete the run, so the run is
// cancelled. This holds also if the process dies after the failure, or if a repair repeats the compensation.
func TestUndoingKeepsItsStatus(t *testing.T) {
	var refund error
	graphOf := func() *kahn.Graph {
		return graph(
			kahn.Node{ID: "a", Do: succeeds(1), Compensate: func(ctx context.Context, _ *kahn.Step) error {
				select {
				case <-time.After(time.Minute):
					return refund
				case <-ctx.Done():
					return ctx.Err()
				}
			}},
			kahn.Node{ID: "b", Do: takes(time.Hour)},
			kahn.Node{ID: "tidy", Cleanup: true, Do: fails(30 * time.Second), After: []string{"a"}},
			kahn.Node{ID: "end", Kind: kahn.KindEnd, Do: succeeds(kahn.EndVerdict{Status: kahn.RunCompleted})},
		)
	}
	t.Run("cut", func(t *testing.T) {
		bothWays(t, graphOf(), nil, nil, func(x *courier) {
			x.reply("a", 1, nil)
			require.NoError(t, x.c.Run().Cancel())
			x.reply("b", nil, errStep)
			x.reply("tidy", nil, errStep)
			x.cut()
			x.reply("a", nil, nil)
			x.reply("end", kahn.EndVerdict{Status: kahn.RunCompleted}, nil)
			require.Equal(t, kahn.RunCancelled, x.c.Run().Status())
		})
	})
	for _, stored := range []bool{false, true} {
		inBubble(t, fmt.Sprint("crash ", stored), func(t *testing.T) {
			refund = nil
			opts := crash(t, graphOf(), nil, stored, func(run *kahn.Run) {
				time.Sleep(time.Second)
				require.NoError(t, run.Cancel())
				time.Sleep(40 * time.Second)
			})
			res, _ := kahn.Execute(t.Context(), graphOf(), nil, opts...)
			require.Equal(t, kahn.Failed, must(res.Node("tidy")).Status)
			require.Equal(t, kahn.CompensationDone, must(res.Node("a")).Compensation)
			require.Equal(t, kahn.RunCancelled, res.Status)
		})
		inBubble(t, fmt.Sprint("repair ", stored), func(t *testing.T) {
			refund = kahn.Permanent(errStep)
			opts := []kahn.Option{kahn.RunID("r")}
			if stored {
				opts = append(opts, kahn.Durable(new(store.Memory)))
			}
			run, err := kahn.Start(t.Context(), graphOf(), nil, opts...)
			require.NoError(t, err)
			time.Sleep(time.Second)
			require.NoError(t, run.Cancel())
			res, err := run.Wait()
			require.ErrorIs(t, err, kahn.ErrCompensation)
			require.Equal(t, kahn.RunCancelled, res.Status)
			refund = nil
			var from *kahn.Snapshot
			if !stored {
				from = reload(t, res.Snapshot())
			}
			res, err = kahn.Execute(t.Context(), graphOf(), nil, append(opts, kahn.Redrive(from, nil), kahn.RepeatCompensations)...)
			require.NotErrorIs(t, err, kahn.ErrCompensation)
			require.Equal(t, kahn.CompensationDone, must(res.Node("a")).Compensation)
			require.Equal(t, kahn.RunCancelled, res.Status)
		})
	}
}

// A draining stop ends a loop after its current iteration. While the iteration is undone, OverallTimeout passes. The error then says only that,
// since the loop itself has returned no error; so a cut does not change it.
func TestTimeoutOfALoopWhoseIterationIsUndone(t *testing.T) {
	x := kahn.Node{ID: "x", Compensate: succeedsUndo}
	g := graph(kahn.Node{ID: "L", Sub: graph(x), Loop: &kahn.Loop{MaxIterations: 3, While: whileLess(3)}, OverallTimeout: time.Minute}, after("w"))
	bothWays(t, g, []kahn.Option{kahn.StopScheduling}, nil, func(x *courier) {
		x.reply("w", nil, errStep)
		x.reply("L#1/x", 1, nil)
		x.cut()
		x.wait(time.Minute)
		x.cut()
		x.reply("L#1/x", nil, nil)
		res, err := x.c.Result()
		require.Error(t, err)
		l := must(res.Node("L"))
		require.Equal(t, kahn.CauseTimeout, l.Cause.Kind)
		require.Equal(t, kahn.CompensationDone, l.Compensation)
		require.EqualError(t, l.Cause.Err, `node "L": timeout: timed out after 1m0s`, "cuts %v", x.cuts)
		require.NotErrorIs(t, l.Cause.Err, kahn.ErrAborted)
	})
}

// Nodes of several runs wait for a key in order to be undone, and a node that backs off joins them when its backoff ends. A cut changes neither who
// waits nor the order in which the runs wait.
func TestCutWhileNodesWaitToBeUndone(t *testing.T) {
	x := kahn.Node{ID: "x", Key: "k", Compensate: succeedsUndo, CompensateRetry: kahn.Retry{MaxAttempts: 5, InitialDelay: 2 * time.Second, Jitter: kahn.JitterNone}}
	inner := graph(x)
	subs := graph(subgraph("S0", inner), subgraph("S1", inner), subgraph("S2", inner), after("f", "S0", "S1", "S2"))
	items := graph(kahn.Node{ID: "M", Map: &kahn.Map{Over: "items"}, Params: map[string]any{"items": numbers(3)}, Sub: inner}, after("f", "M"))
	expanded := graph(after("E0"), after("E1"), after("E2"), after("f", "E0", "E1", "E2"))
	for _, row := range []struct {
		name  string
		g     *kahn.Graph
		fails string
	}{
		{"sub-graphs", subs, "f"},
		{"items", items, "f"},
		{"expanded nodes", expanded, "f"},
		{"inside a sub-graph", graph(subgraph("O", subs)), "O/f"},
	} {
		for _, at := range []string{"in the backoff", "after the backoff", "always"} {
			t.Run(row.name+" "+at, func(t *testing.T) {
				opts := []kahn.Option{kahn.KeyLimit(1), kahn.ExpandedGraphs(func(string, any) (*kahn.Graph, error) { return inner, nil })}
				var order []string
				bothWays(t, row.g, opts, nil, func(x *courier) {
					cut := func(now string) {
						if at == now || at == "always" {
							x.cut()
						}
					}
					if row.name == "expanded nodes" {
						for i := range 3 {
							x.reply(fmt.Sprint("E", i), nil, kahn.Expand(inner, nil, nil))
						}
					}
					last := func() string { return strings.Fields(x.log[len(x.log)-1])[1] }
					for range 3 {
						x.reply(last(), 1, nil)
					}
					begun := len(x.log)
					x.reply(row.fails, nil, errStep)
					first := last()
					x.reply(first, nil, errStep) // first backs off, and the second is being undone
					second := last()
					cut("in the backoff")
					cut("in the backoff")
					x.due(2 * time.Second)
					x.wait(2 * time.Second)
					cut("after the backoff")
					cut("after the backoff")
					x.reply(second, nil, errStep)
					third := last()
					require.NotEqual(t, first, third, "the third has waited longer")
					cut("after the backoff")
					x.wait(4 * time.Second)
					cut("after the backoff")
					for _, path := range []string{third, first, second} {
						require.Equal(t, path, last())
						x.reply(path, nil, nil)
					}
					require.True(t, x.c.Run().Status().Terminal())
					order = append(order, fmt.Sprint(x.log[begun:]))
				})
				require.Equal(t, order[0], order[1])
			})
		}
	}
}
