package conformance_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
)

// lifeOfExpansion describes one life of a run with an expanded node: what happens while the node's step is called, or after it.
type lifeOfExpansion byte

const (
	dying   lifeOfExpansion = 'd' // the process dies while the step is called
	leaving lifeOfExpansion = 'l' // the run is left while the step is called
	inner   lifeOfExpansion = 'i' // the step returns its graph, and the process dies while a node inside runs
	whole   lifeOfExpansion = 'w' // the step returns its graph, and the process does not die
)

// TestMaxCrashesOfExpandedNodes: a step is called again for its graph, and each of these calls crashes the process. The node fails after more
// than MaxCrashes crashes. Crashes of nodes inside do not count, and the count begins at 0 once the step returns a graph.
func TestMaxCrashesOfExpandedNodes(t *testing.T) {
	t.Parallel()
	catch := func(n kahn.Node) *kahn.Graph {
		return graph(n, kahn.Node{ID: "H", In: []kahn.Edge{{From: n.ID, On: kahn.OnFailure}}, Do: nothing})
	}
	for _, row := range []struct {
		lives string // what the step does in each life; the test checks the last life
		most  int
		calls int  // expected calls of the step in the last life
		ends  bool // whether the node ends as crashed
	}{
		{"idw", 0, 0, true},
		{"iddw", 1, 0, true},
		{"idddw", 2, 0, true},
		{"iiiiw", 0, 1, false},
		{"idw", 1, 1, false},
		{"iddw", 2, 1, false},
		{"idddddddddw", -1, 1, false},
		{"ididididw", 1, 1, false},
		{"ididdw", 1, 0, true},
		{"idldw", 1, 1, false},
		{"illlw", 0, 1, false},
		{"ddiw", 2, 1, false}, // crashes of the first call, which never returned a graph
		{"ddw", 1, 0, true},
	} {
		for shape, path := range map[string]string{"outermost": "E", "in a sub-graph": "S/E", "an item": "M[0]", "in an expanded node": "D/E"} {
			inBubble(t, fmt.Sprintf("%s under %d, %s", row.lives, row.most, shape), func(t *testing.T) {
				var now lifeOfExpansion
				calls := 0
				x := kahn.Node{ID: "x", MaxCrashes: -1, Do: func(ctx context.Context, _ *kahn.Step) (any, error) {
					if now == whole {
						return "done", nil
					}
					return takes(time.Minute)(ctx, nil)
				}}
				e := kahn.Node{ID: "E", Do: func(ctx context.Context, _ *kahn.Step) (any, error) {
					calls++
					if now == dying || now == leaving {
						return takes(time.Minute)(ctx, nil)
					}
					return nil, kahn.Expand(graph(x), nil, "state")
				}}
				var g *kahn.Graph
				switch shape {
				case "outermost":
					g = catch(e)
				case "in a sub-graph":
					g = graph(subgraph("S", catch(e)))
				case "an item":
					e.ID, e.Map, e.Params = "M", &kahn.Map{Over: "items"}, map[string]any{"items": []any{1}}
					g = catch(e)
				case "in an expanded node":
					d := catch(e)
					g = graph(kahn.Node{ID: "D", MaxCrashes: -1, Do: func(context.Context, *kahn.Step) (any, error) { return nil, kahn.Expand(d, nil, nil) }})
				}
				opts := []kahn.Option{kahn.MaxCrashes(row.most)}
				db := new(journal)
				for _, life := range []byte(row.lives[:len(row.lives)-1]) {
					if now = lifeOfExpansion(life); now != leaving {
						db = dies(t, g, nil, db, time.Second, opts...)
						continue
					}
					rn := new(kahn.Runner)
					run, err := rn.Start(t.Context(), g, nil, append(opts, kahn.Durable(db), kahn.RunID("r"))...)
					require.NoError(t, err)
					time.Sleep(time.Second)
					ctx, cancel := context.WithCancel(t.Context())
					cancel()
					_ = rn.Shutdown(ctx)
					res, err := run.Wait()
					require.NoError(t, err)
					require.Equal(t, kahn.RunSuspended, res.Status)
				}
				now, calls = whole, 0
				rec := newRecorder()
				res, err := kahn.Execute(t.Context(), g, nil, append(opts, kahn.Durable(db), kahn.RunID("r"), kahn.OnEvent(rec.add))...)
				require.NoError(t, err) // H has caught the failure
				checkEvents(t, g, res, rec.all())
				require.Equal(t, row.calls, calls)
				if outer, _, nested := strings.Cut(path, "/"); nested {
					n, _ := res.Node(outer)
					res = n.Sub
				} else if path == "M[0]" {
					n, _ := res.Node("M")
					res = n.Sub
				}
				node, ok := res.Node(path[strings.IndexByte(path, '/')+1:])
				require.True(t, ok)
				if row.ends {
					require.Equal(t, kahn.CauseCrashed, node.Cause.Kind)
					require.ErrorIs(t, node.Err, kahn.ErrCrashed)
				} else {
					require.Equal(t, "done", node.Output)
				}
			})
		}
	}
}

// TestTimedOutExpansionAfterACrash: an attempt times out, and the process dies while a node inside is still stopping. The outer node, which
// was expanded or has a sub-graph, ends as timed out, however the nodes inside end.
func TestTimedOutExpansionAfterACrash(t *testing.T) {
	t.Parallel()
	late := func() *kahn.Graph { // x ignores its context
		return graph(kahn.Node{ID: "x", Do: func(context.Context, *kahn.Step) (any, error) { time.Sleep(3 * time.Second); return "late", nil }},
			kahn.Node{ID: "c", After: []string{"x"}, Cleanup: true, Do: takes(time.Second)})
	}
	expands := func(context.Context, *kahn.Step) (any, error) {
		time.Sleep(time.Second)
		return nil, kahn.Expand(late(), nil, nil)
	}
	for name, limit := range map[string]func(*kahn.Node){
		"an attempt":   func(n *kahn.Node) { n.Timeout = 2 * time.Second },
		"all attempts": func(n *kahn.Node) { n.OverallTimeout = 2 * time.Second },
	} {
		sub, expanded := subgraph("N", late()), kahn.Node{ID: "N", Do: expands}
		limit(&sub)
		limit(&expanded)
		around := kahn.Node{ID: "E", Do: func(context.Context, *kahn.Step) (any, error) { return nil, kahn.Expand(graph(expanded), nil, nil) }}
		for _, c := range []struct {
			shape, path string
			dies        time.Duration // whether the process dies, while c runs
			g           *kahn.Graph
		}{
			{"sub-graph", "N", 3500 * ms, graph(sub)},
			{"expanded", "N", 4500 * ms, graph(expanded)},
			{"expanded in a sub-graph", "S/N", 4500 * ms, graph(subgraph("S", graph(expanded)))},
			{"expanded in an expanded node", "E/N", 4500 * ms, graph(around)},
		} {
			for _, stored := range []bool{false, true} {
				inBubble(t, fmt.Sprint(name, ", ", c.shape, ", stored: ", stored), func(t *testing.T) {
					opts := crash(t, c.g, nothing, stored, lasting(c.dies), kahn.CancelGrace(time.Minute))
					if !stored { // the process dies once more, while the step is called for the graph
						run, err := kahn.Start(t.Context(), c.g, nothing, opts...)
						require.NoError(t, err)
						time.Sleep(500 * ms)
						if now := run.Snapshot(); !now.Status().Terminal() {
							opts = []kahn.Option{kahn.Resume(reload(t, now)), kahn.CancelGrace(time.Minute)}
						}
						_ = run.Cancel()
						_, err = run.Wait()
						require.Error(t, err)
					}
					res, err := kahn.Execute(t.Context(), c.g, nothing, opts...)
					require.ErrorIs(t, err, kahn.ErrTimeout)
					outer, inner, _ := strings.Cut(c.path, "/")
					n, _ := res.Node(outer)
					require.Equal(t, kahn.Failed, n.Status)
					require.Equal(t, inner == "", n.Cause.Kind == kahn.CauseTimeout)
				})
			}
		}
	}
}

// If the repeated call of a step does not return its graph, the node fails, and the nodes inside have no end. Each further life of the run, in
// this process or another, continues from the previous life's snapshot.
func TestLivesAfterAnExpansionThatWasNotRepeated(t *testing.T) {
	for _, decoded := range []bool{false, true} {
		inBubble(t, fmt.Sprint("decoded ", decoded), func(t *testing.T) {
			life := 0
			inner := graph(subgraph("S", graph(kahn.Node{ID: "waits", Kind: kahn.KindGate}, after("next", "waits"))))
			g := graph(kahn.Node{ID: "e", Do: func(context.Context, *kahn.Step) (any, error) {
				if life > 0 {
					return nil, errors.New("no graph")
				}
				return nil, kahn.Expand(inner, nil, nil)
			}}, kahn.Node{ID: "gate", Kind: kahn.KindGate})
			res, err := kahn.Execute(t.Context(), g, takes(0))
			require.NoError(t, err)
			for life = 1; life < 5; life++ {
				s := res.Snapshot()
				if decoded {
					data, err := json.Marshal(s)
					require.NoError(t, err)
					s = new(kahn.Snapshot)
					require.NoError(t, json.Unmarshal(data, s))
				}
				res, err = kahn.Execute(t.Context(), g, takes(0), kahn.Resume(s))
				require.NoError(t, err)
				require.Equal(t, kahn.RunSuspended, res.Status)
				require.Equal(t, kahn.Failed, must(res.Node("e")).Status)
			}
		})
	}
}
