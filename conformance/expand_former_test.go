package conformance_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// expandsTwice is a node E that is expanded, and may be attempted twice. The first attempt fails when the node "b" of its graph fails. Then "a" is
// undone, and E backs off for 10 seconds.
func expandsTwice(id string) kahn.Node {
	return kahn.Node{ID: id, Retry: secondTryAfter(10 * time.Second), Key: "k"}
}

// undoneOnce is the graph of E.
func undoneOnce() *kahn.Graph {
	return graph(kahn.Node{ID: "a", Compensate: succeedsUndo}, after("b", "a"), after("c", "b"))
}

// An expanded node that is stopped before its second attempt keeps the nested run of its first attempt in its result, as a node with a Sub does. A cut
// in the backoff, or while the node waits for a slot after the backoff, loses neither the nested run nor the compensations in it.
func TestCutBeforeTheNextAttemptOfAnExpandedNode(t *testing.T) {
	items := map[string]any{"items": numbers(1)}
	item := expandsTwice("X")
	item.Map, item.Params = &kahn.Map{Over: "items"}, items
	again := expandsTwice("X")
	for _, shape := range []struct {
		path string
		of   kahn.Node
	}{
		{"X", again},
		{"X/E", subgraph("X", graph(expandsTwice("E")))},
		{"X#1/E", kahn.Node{ID: "X", Sub: graph(expandsTwice("E")), Loop: &kahn.Loop{MaxIterations: 1, While: whileLess(1)}}},
		{"X[0]/E", kahn.Node{ID: "X", Map: &kahn.Map{Over: "items"}, Params: items, Sub: graph(expandsTwice("E"))}},
		{"X[0]", item},
		{"X/E/E", subgraph("X", graph(kahn.Node{ID: "E"}))},
	} {
		for _, stop := range []string{"cancel", "cancel X", "abort", "failure", "timeout"} {
			for _, waits := range []bool{false, true} {
				if stop == "timeout" && !waits {
					continue // a node does not back off beyond the deadline of its run
				}
				t.Run(fmt.Sprint(shape.path, " ", stop, " ", waits), func(t *testing.T) {
					g := graph(shape.of, after("w"), after("s"), kahn.Node{ID: "v", Key: "k", After: []string{"s"}})
					outer := graph(expandsTwice("E"))
					graphOf := func(path string, state any) (*kahn.Graph, error) {
						require.Equal(t, "of "+path, state)
						if path == "X/E" && shape.path == "X/E/E" {
							return outer, nil
						}
						return undoneOnce(), nil
					}
					stories := map[string]bool{}
					bothWays(t, g, []kahn.Option{kahn.AbortRunning, kahn.Timeout(time.Minute), kahn.KeyLimit(1), kahn.ExpandedGraphs(graphOf)}, nil, func(x *courier) {
						expand := func(path string) {
							g, _ := graphOf(path, "of "+path)
							x.reply(path, nil, kahn.Expand(g, nil, "of "+path))
						}
						if shape.path == "X/E/E" {
							expand("X/E")
						}
						expand(shape.path)
						x.reply("s", nil, nil) // now v takes the key
						x.cut()
						x.reply(shape.path+"/a", 1, nil)
						x.reply(shape.path+"/b", nil, errStep)
						x.reply(shape.path+"/a", nil, nil)
						x.cut()
						x.due(10 * time.Second)
						if waits {
							x.wait(10 * time.Second)
							x.due(time.Minute)
						}
						x.cut()
						x.cut()
						switch stop {
						case "cancel":
							require.NoError(t, x.c.Run().Cancel())
						case "cancel X":
							require.NoError(t, x.c.Run().CancelNode("X"))
							x.reply("w", nil, errStep)
						case "abort":
							require.NoError(t, x.c.Run().AbortAll(nil))
						case "failure":
							x.reply("w", nil, errStep)
						case "timeout":
							x.wait(time.Minute)
						}
						ends := func() bool { return x.c.Run().Status().Terminal() }
						if !ends() {
							x.cut()
						}
						for s, ok := x.c.NextStop(); ok; s, ok = x.c.NextStop() {
							if require.NoError(t, x.c.Return(s, nil, errStep)); !ends() {
								x.cut()
							}
						}
						res, err := x.c.Result()
						require.Error(t, err)
						require.NotContains(t, x.log, "10s "+shape.path, "it is not attempted again")
						story := storyInside(res, "")
						require.Contains(t, story, " a completed done", "cuts %v", x.cuts)
						stories[story] = true
					})
					require.Len(t, stories, 1, stories)
				})
			}
		}
	}
}

// storyInside renders the statuses and the compensations of the nodes of a run, at every depth.
func storyInside(res *kahn.Result, indent string) string {
	var b strings.Builder
	for n := range res.Nodes() {
		fmt.Fprintln(&b, indent+n.ID, n.Status, n.Compensation)
		if n.Sub != nil {
			b.WriteString(storyInside(n.Sub, indent+"  "))
		}
	}
	return b.String()
}

// A process dies while an expanded node backs off, and the next one stops the node. Its compensations are known, as if no process had died, and a
// redrive continues inside the graph of the ended attempt: it repeats what failed or was undone, and keeps the rest. The step is not called again only
// to find that nothing has to be undone.
func TestLivesBeforeTheNextAttemptOfAnExpandedNode(t *testing.T) {
	for _, shape := range []struct {
		path string
		of   func(kahn.Node) kahn.Node
	}{
		{"E", func(n kahn.Node) kahn.Node { return n }},
		{"S/E", func(n kahn.Node) kahn.Node { return subgraph("S", graph(n)) }},
		{"M[0]/E", func(n kahn.Node) kahn.Node {
			return kahn.Node{ID: "M", Map: &kahn.Map{Over: "items"}, Params: map[string]any{"items": numbers(1)}, Sub: graph(n)}
		}},
		{"L#1/E", func(n kahn.Node) kahn.Node {
			return kahn.Node{ID: "L", Sub: graph(n), Loop: &kahn.Loop{MaxIterations: 2, While: whileLess(2)}}
		}},
	} {
		for _, stored := range []bool{false, true} {
			for deaths := range 4 {
				inBubble(t, fmt.Sprint(shape.path, " ", stored, " ", deaths), func(t *testing.T) {
					var p paths
					broken := true
					inner := graph(kahn.Node{ID: "a", Compensate: succeedsUndo}, after("b", "a"), after("c", "b"), after("d"))
					step := p.count(func(ctx context.Context, s *kahn.Step) (any, error) {
						switch {
						case s.ID() == "E" && s.SavedState() != nil && s.SavedState() != "state":
							return nil, kahn.Permanent(fmt.Errorf("another state: %v", s.SavedState()))
						case s.ID() == "E":
							return nil, kahn.Expand(inner, nil, "state")
						case s.ID() == "b" && broken:
							return nil, errStep
						case s.ID() == "w" && broken:
							<-ctx.Done()
							return nil, ctx.Err()
						}
						return 1, nil
					})
					g := graph(shape.of(expandsTwice("E")), after("w"))
					l := &lives{t: t, g: g, step: step}
					if stored {
						l.store = new(store.Memory)
					}
					for range deaths {
						_, err := l.next(2*time.Second, nil)
						require.NoError(t, err)
					}
					res, err := l.next(time.Second, func(run *kahn.Run) { require.NoError(t, run.Cancel()) })
					require.ErrorIs(t, err, kahn.ErrCancelled)
					require.NotErrorIs(t, err, kahn.ErrCompensation)
					delete(p.n, "w") // each life calls it
					p.once(t, shape.path, shape.path+"/a", shape.path+"/b", shape.path+"/d")
					require.Equal(t, kahn.CompensationDone, must(res.Node(g.Nodes()[0].ID)).Compensation)
					if shape.path == "E" && !stored {
						res, err = l.last.Result(compiled(t, g))
						require.Error(t, err)
						require.Equal(t, kahn.CompensationDone, must(res.Node("E")).Compensation)
					}
					p, broken = paths{}, false
					opts := []kahn.Option{kahn.Redrive(l.last, nil)}
					if stored {
						opts = []kahn.Option{kahn.Redrive(nil, nil), kahn.Durable(l.store), kahn.RunID("r")}
					}
					_, err = kahn.Execute(t.Context(), g, step, opts...)
					require.NoError(t, err)
					want := []string{shape.path, shape.path + "/a", shape.path + "/b", shape.path + "/c", "w"}
					if shape.path == "L#1/E" {
						want = append(want, "L#2/E", "L#2/E/a", "L#2/E/b", "L#2/E/c", "L#2/E/d")
					}
					p.once(t, want...)
				})
			}
		}
	}
}
