package conformance_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
)

// While the nodes inside a failed attempt of a composite are undone, the composite is stopped a second time. It ends in the same way whether or not the
// run was cut meanwhile: the attempt that is being undone has failed already, and why it failed is not forgotten.
func TestSecondStopWhileACompositeIsUndone(t *testing.T) {
	items := map[string]any{"items": numbers(2)}
	body := func() *kahn.Graph {
		return graph(kahn.Node{ID: "a", Compensate: succeedsUndo}, after("b", "a"))
	}
	for name, shape := range map[string]struct {
		inside string // the path of the nodes inside that are undone
		of     kahn.Node
	}{
		"sub-graph":     {"X/", kahn.Node{ID: "X", Sub: body()}},
		"loop":          {"X#2/", kahn.Node{ID: "X", Sub: body(), Loop: &kahn.Loop{MaxIterations: 3, While: whileLess(5)}}},
		"map":           {"X[1]/", kahn.Node{ID: "X", Sub: body(), Map: &kahn.Map{Over: "items"}, Params: items}},
		"expanded node": {"X/", kahn.Node{ID: "X"}},
		"refused":       {"X/", kahn.Node{ID: "X", Sub: body(), OutputSchema: wants(2)}},
		"inside":        {"X/Y/", subgraph("X", graph(kahn.Node{ID: "Y", Sub: body()}))},
		"loop inside":   {"X/Y#2/", subgraph("X", graph(kahn.Node{ID: "Y", Sub: body(), Loop: &kahn.Loop{MaxIterations: 3, While: whileLess(5)}}))},
	} {
		for _, retried := range []bool{false, true} {
			of := shape.of
			of.Timeout, of.OverallTimeout = 10*time.Second, 30*time.Second
			if retried {
				of.Retry = secondTryAfter(time.Second)
			}
			for _, first := range []string{"failure", "timeout", "cancel X"} {
				for _, second := range []string{"none", "cancel", "abort", "cancel X", "failure", "timeout of X", "timeout"} {
					for i, undone := range []error{nil, kahn.Permanent(errSoldOut), nil} {
						late := i == 2 // the second stop comes when the first node has been undone and the next one is being undone
						t.Run(fmt.Sprint(name, " ", retried, " ", first, " ", second, " ", undone, " ", late), func(t *testing.T) {
							graphOf := func(string, any) (*kahn.Graph, error) { return body(), nil }
							stories := map[string]bool{}
							opts := []kahn.Option{kahn.AbortRunning, kahn.Timeout(time.Minute), kahn.ExpandedGraphs(graphOf)}
							bothWays(t, graph(of, after("w")), opts, nil, func(x *courier) {
								reply := func(path string, value any, err error) {
									if token, ok := x.sent[path]; ok {
										delete(x.sent, path) // the answer may begin another call of the same node
										s, gone := x.c.Attempt(token)
										require.NoError(t, gone, path)
										require.NoError(t, x.c.Return(s, value, err))
										x.take()
									}
								}
								if name == "expanded node" {
									reply("X", nil, kahn.Expand(body(), nil, nil))
								}
								for _, before := range []string{"X#1/", "X/Y#1/", "X[0]/"} {
									reply(before+"a", 1, nil)
									reply(before+"b", 1, nil)
								}
								reply(shape.inside+"a", 1, nil)
								x.cut()
								switch first {
								case "failure":
									if name == "refused" {
										reply(shape.inside+"b", 1, nil)
									} else {
										reply(shape.inside+"b", nil, errStep)
									}
								case "timeout":
									x.wait(10 * time.Second)
								case "cancel X":
									require.NoError(t, x.c.Run().CancelNode("X"))
								}
								x.cut()
								x.returnStops()
								x.take()
								require.Contains(t, x.sent, shape.inside+"a", "it is being undone")
								if late {
									reply(shape.inside+"a", nil, nil)
								}
								how := second
								if x.c.Run().Status().Terminal() {
									how = "too late"
								} else {
									x.cut()
								}
								switch how {
								case "cancel":
									require.NoError(t, x.c.Run().Cancel())
								case "abort":
									require.NoError(t, x.c.Run().AbortAll(errHost))
								case "cancel X":
									_ = x.c.Run().CancelNode("X")
								case "failure":
									reply("w", nil, errHost)
								case "timeout of X":
									x.wait(30 * time.Second)
								case "timeout":
									x.wait(time.Minute)
								}
								x.returnStops()
								x.take()
								for n := 0; !x.c.Run().Status().Terminal(); n++ { // whatever begins ends, undoing with the given error, and other calls with a failure
									require.Less(t, n, 50)
									x.cut()
									if path, undoes := x.nextSent(); undoes {
										reply(path, nil, undone)
									} else if at, ok := x.c.Due(); path == "" || path == "w" && ok && at.Sub(x.now) < 20*time.Second {
										x.wait(at.Sub(deskEpoch)) // X is attempted again before w ends the run
									} else {
										reply(path, nil, errStep)
									}
									x.returnStops()
									x.take()
								}
								res, err := x.c.Result()
								require.Error(t, err)
								stories[storyInFull(res, "")+err.Error()] = true
							})
							require.Len(t, stories, 1, stories)
						})
					}
				}
			}
		}
	}
}

// storyInFull is storyInside with the causes and the errors.
func storyInFull(res *kahn.Result, indent string) string {
	var b strings.Builder
	fmt.Fprintln(&b, indent, res.Status)
	for n := range res.Nodes() {
		fmt.Fprintln(&b, indent+n.ID, n.Status, n.Cause, n.Compensation, n.Attempts, n.Err)
		if n.Sub != nil {
			b.WriteString(storyInFull(n.Sub, indent+"  "))
		}
	}
	return b.String()
}

// returnStops returns the attempts that have to stop.
func (x *courier) returnStops() {
	for s, ok := x.c.NextStop(); ok; s, ok = x.c.NextStop() {
		require.NoError(x.t, x.c.Return(s, nil, errStep))
	}
}

// nextSent returns a call without an answer. It prefers a call that undoes its node; otherwise it returns the first by path.
func (x *courier) nextSent() (path string, undoes bool) {
	for _, p := range slices.Sorted(maps.Keys(x.sent)) {
		s, err := x.c.Attempt(x.sent[p])
		if err != nil {
			delete(x.sent, p) // its attempt has ended
		} else if s.Compensating() {
			return p, true
		} else if path == "" {
			path = p
		}
	}
	return path, false
}
