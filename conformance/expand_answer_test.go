package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/kahntest"
	"github.com/seed-c794f7ef/kahn/store"
)

// asks is a step that waits for an answer and returns it.
func asks(_ context.Context, s *kahn.Step) (any, error) {
	if v, ok := s.Resumed(); ok {
		return v, nil
	}
	return nil, kahn.Suspend("", nil, nil)
}

// expandedAsks returns graphs in which the step of node E returns a graph with a waiting node, and the paths of both nodes. The step of E calls
// slow before it returns its graph.
func expandedAsks(slow func(ctx context.Context) error) map[string]struct {
	g     *kahn.Graph
	waits string
} {
	ask := func() *kahn.Graph { return graph(kahn.Node{ID: "t", Do: asks}) }
	expand := func(inner *kahn.Graph) kahn.Node {
		return kahn.Node{ID: "E", Do: func(ctx context.Context, _ *kahn.Step) (any, error) {
			if err := slow(ctx); err != nil {
				return nil, err
			}
			return nil, kahn.Expand(inner, nil, nil)
		}}
	}
	grown := func(inner *kahn.Graph) kahn.Node {
		return kahn.Node{ID: "F", Do: func(context.Context, *kahn.Step) (any, error) { return nil, kahn.Expand(inner, nil, nil) }}
	}
	one := map[string]any{"items": []any{1}}
	return map[string]struct {
		g     *kahn.Graph
		waits string
	}{
		"itself":                          {graph(expand(ask())), "E/t"},
		"a sub-graph":                     {graph(expand(graph(subgraph("S", ask())))), "E/S/t"},
		"a gate":                          {graph(expand(graph(subgraph("S", graph(gate("t")))))), "E/S/t"},
		"a loop":                          {graph(expand(graph(kahn.Node{ID: "L", Sub: ask(), Loop: &kahn.Loop{While: whileLess(1), MaxIterations: 2}}))), "E/L#1/t"},
		"a map":                           {graph(expand(graph(kahn.Node{ID: "M", Params: one, Map: &kahn.Map{Over: "items"}, Do: asks}))), "E/M[0]"},
		"a map of graphs":                 {graph(expand(graph(kahn.Node{ID: "M", Params: one, Map: &kahn.Map{Over: "items"}, Sub: ask()}))), "E/M[0]/t"},
		"an expanded node":                {graph(expand(graph(grown(ask())))), "E/F/t"},
		"an expanded node in a sub-graph": {graph(expand(graph(subgraph("S", graph(grown(graph(subgraph("T", ask())))))))), "E/S/F/T/t"},
		"a sub-graph, around a sub-graph": {graph(subgraph("O", graph(expand(graph(subgraph("S", ask())))))), "O/E/S/t"},
		"a sub-graph, around a map":       {graph(kahn.Node{ID: "O", Params: one, Map: &kahn.Map{Over: "items"}, Sub: graph(expand(graph(subgraph("S", ask()))))}), "O[0]/E/S/t"},
	}
}

// TestAnswersInsideOfExpandedNodes: while a step is called again for its graph, an answer arrives for a node of that graph. The answer is kept,
// at any depth, and however that life of the run ends.
func TestAnswersInsideOfExpandedNodes(t *testing.T) {
	var slow func(ctx context.Context) error
	graphs := expandedAsks(func(ctx context.Context) error { return slow(ctx) })
	for _, shape := range slices.Sorted(maps.Keys(graphs)) {
		for _, how := range []string{"posted at rest", "posted meanwhile", "signalled", "given"} {
			for _, end := range []string{"killed", "killed twice", "shut down", "shut down, without a store"} {
				stored := end != "shut down, without a store"
				if !stored && strings.HasPrefix(how, "posted") {
					continue
				}
				inBubble(t, fmt.Sprintf("%s, %s, %s", shape, how, end), func(t *testing.T) {
					g, waits := graphs[shape].g, graphs[shape].waits
					db, answer := new(store.Memory), kahn.Decision{Value: "yes", Actor: "ann", ID: "1"}
					opts := []kahn.Option{kahn.RunID("r")}
					if stored {
						opts = append(opts, kahn.Lease("us", 0), kahn.StoreEvents())
					}
					var events []kahn.Event
					var last *kahn.Snapshot
					live := func(given map[string]any, act func(*kahn.Runner, *kahn.Run, *mortal)) (*kahn.Result, error) {
						rn, rec, process := new(kahn.Runner), newRecorder(), &mortal{eternal: db}
						more := append(slices.Clone(opts), kahn.OnEvent(rec.add))
						if stored {
							more = append(more, kahn.Durable(process), kahn.EarlySignals(given))
						} else if last != nil {
							more = append(more, kahn.Resume(last), kahn.EarlySignals(given))
						}
						run, err := rn.Start(t.Context(), g, nothing, more...)
						require.NoError(t, err)
						time.Sleep(10 * ms)
						act(rn, run, process)
						res, err := run.Wait()
						events = append(events, rec.all()...)
						if last = reload(t, res.Snapshot()); stored {
							events = storedEvents(t, db, "r")
						}
						return res, err
					}
					leave := func(rn *kahn.Runner, _ *kahn.Run, _ *mortal) {
						ctx, cancel := context.WithCancel(t.Context())
						cancel()
						_ = rn.Shutdown(ctx) // the context has ended, so Shutdown does not wait
					}
					slow = func(context.Context) error { return nil }
					res, err := live(nil, leave)
					require.NoError(t, err)
					require.Equal(t, []string{waits}, res.Snapshot().Waiting())

					q, err := kahn.PrepareSignal(waits, answer)
					require.NoError(t, err)
					given := map[string]any{}
					switch how {
					case "posted at rest":
						postRequest(t, db, q)
					case "given":
						given[waits] = answer
					}
					slow = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
					for n := range map[string]int{"killed twice": 1}[end] + 1 {
						_, err = live(given, func(rn *kahn.Runner, run *kahn.Run, process *mortal) {
							switch {
							case n > 0:
							case how == "posted meanwhile":
								postRequest(t, db, q)
							case how == "signalled":
								require.NoError(t, run.Signal(context.Background(), waits, answer))
							}
							synctest.Wait()
							if strings.HasPrefix(end, "killed") {
								process.dead.Store(true)
							}
							leave(rn, run, process)
						})
						require.Equal(t, strings.HasPrefix(end, "killed"), errors.Is(err, kahn.ErrStore), "%v", err)
						given = nil
					}
					if stored {
						s, err := kahn.ReadSnapshot(t.Context(), db, "r")
						require.NoError(t, err)
						require.Empty(t, s.Waiting())
					} else {
						require.Empty(t, last.Waiting())
					}
					slow = func(context.Context) error { return nil }
					res, err = live(nil, func(*kahn.Runner, *kahn.Run, *mortal) {})
					require.NoError(t, err)
					require.Equal(t, kahn.RunCompleted, res.Status)
					require.NoError(t, kahntest.CheckEvents(g, res, events))
					signalled := slices.DeleteFunc(events, func(e kahn.Event) bool { return e.Type != event.NodeSignalled })
					require.Len(t, signalled, 1)
					require.Equal(t, waits, signalled[0].Path)
					if strings.HasPrefix(how, "posted") {
						expectApplied(t, db, "1")
					}
				})
			}
		}
	}
}

// TestAnswersAndDeadlines: an answer that came before the deadline of its gate is delivered, even if the step returns the gate's graph only after
// the deadline. A later answer is refused.
func TestAnswersAndDeadlines(t *testing.T) {
	t.Parallel()
	ask := func() *kahn.Graph {
		return graph(kahn.Node{ID: "t", Kind: kahn.KindGate, Gate: &kahn.Gate{Timeout: time.Minute}})
	}
	for shape, waits := range map[string]string{"plain": "t", "inside": "S/t", "expanded": "E/t", "inside of an expanded node": "E/S/t"} {
		for _, late := range []bool{false, true} {
			for _, how := range []string{"signalled", "posted", "signalled and killed", "posted and killed"} {
				expanded, killed := strings.HasPrefix(waits, "E"), strings.HasSuffix(how, "killed")
				if !late && !expanded {
					continue // the life that begins after the deadline finds the gate answered
				}
				inBubble(t, fmt.Sprintf("%s, %s, late %v", shape, how, late), func(t *testing.T) {
					takes := time.Duration(0)
					inner := ask()
					if strings.Contains(waits, "S/") {
						inner = graph(subgraph("S", inner))
					}
					g := inner
					if expanded {
						g = graph(kahn.Node{ID: "E", Do: func(context.Context, *kahn.Step) (any, error) {
							time.Sleep(takes)
							return nil, kahn.Expand(inner, nil, nil)
						}})
					}
					db, opts := new(store.Memory), []kahn.Option{kahn.RunID("r"), kahn.Lease("us", 0)}
					res, err := kahn.Execute(t.Context(), g, nothing, append(opts, kahn.Durable(db))...)
					require.NoError(t, err)
					require.Equal(t, []string{waits}, res.Snapshot().Waiting())
					time.Sleep(50 * time.Second)
					if late {
						time.Sleep(20 * time.Second)
					}
					q, err := kahn.PrepareSignal(waits, kahn.Decision{Value: "yes", ID: "1"})
					require.NoError(t, err)
					posted := strings.HasPrefix(how, "posted")
					if posted {
						postRequest(t, db, q)
					}
					takes = 30 * time.Second
					process := &mortal{eternal: db}
					run, err := kahn.Start(t.Context(), g, nothing, append(opts, kahn.Durable(process))...)
					require.NoError(t, err)
					if !posted {
						err := run.Signal(context.Background(), waits, kahn.Decision{Value: "yes", ID: "1"})
						if late {
							require.Error(t, err)
						} else {
							require.NoError(t, err)
						}
					}
					synctest.Wait()
					if posted {
						status, why := became(t, db, "1")
						require.Equal(t, map[bool]store.RequestStatus{false: store.RequestApplied, true: store.RequestRefused}[late], status, why)
					}
					if killed && expanded {
						process.dead.Store(true)
						run.Cancel()
						_, _ = run.Wait()
						run, err = kahn.Start(t.Context(), g, nothing, append(opts, kahn.Durable(db))...)
						require.NoError(t, err)
					}
					res, _ = run.Wait()
					require.Empty(t, res.Warnings)
					require.Equal(t, map[bool]kahn.RunStatus{false: kahn.RunCompleted, true: kahn.RunFailed}[late], res.Status)
				})
			}
		}
	}
}
