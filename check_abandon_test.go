package kahn_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-c794f7ef/kahn"
)

// A guard or a merge that does not return is waited for as long as the grace says when its node is stopped, and is then left
// behind. Whatever it says later is dropped.
func TestChecksThatDoNotReturn(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"guard", "merge"} {
		for _, how := range []string{"Cancel", "AbortAll", "CancelNode"} {
			for _, limit := range []int{0, 1} {
				for _, nested := range []bool{false, true} {
					inBubble(t, fmt.Sprintf("%s, %s, limit %d, nested %v", what, how, limit, nested), func(t *testing.T) {
						release := make(chan struct{})
						g := graph(after("A"), after("B"), kahn.Node{ID: "C", After: []string{"X"}, Cleanup: true})
						x := kahn.Node{ID: "X", In: []kahn.Edge{{From: "A", Param: "p"}, {From: "B", Param: "p"}}}
						if what == "guard" {
							x.When = func(kahn.View) (bool, error) { <-release; return true, nil }
						} else {
							x.Merge = "stuck"
							g.RegisterMerge("stuck", func([]kahn.Contribution) (any, error) { <-release; return 1, nil })
						}
						g.Add(x)
						stuck, composite := "X", ""
						if nested {
							g, stuck, composite = graph(subgraph("S", g)), "S/X", "S"
						}
						r := tryControlled(t, t.Context(), g, takes(ms), func(run *kahn.Run) {
							time.Sleep(10 * ms)
							switch {
							case how == "Cancel":
								run.Cancel()
							case how == "AbortAll":
								run.AbortAll(errHost)
							case nested:
								if err := run.CancelNode(composite); err != nil {
									t.Error(err)
								}
							default:
								if err := run.CancelNode("X"); err != nil {
									t.Error(err)
								}
							}
						}, kahn.Limit(limit), kahn.CancelGrace(100*ms))
						if !slices.Equal(r.Abandoned, []string{stuck}) {
							t.Errorf("abandoned are %q", r.Abandoned)
						}
						if r.Duration > 120*ms {
							t.Errorf("the run took %v", r.Duration)
						}
						before := eventText(r.events)
						close(release)
						synctest.Wait()
						if after := eventText(r.events); after != before {
							t.Errorf("what it said late was heard:\n%s", after)
						}
					})
				}
			}
		}
	}
	inBubble(t, "one that returns in time is not left behind", func(t *testing.T) {
		x := kahn.Node{ID: "X", When: func(kahn.View) (bool, error) { time.Sleep(50 * ms); return true, nil }}
		r := tryControlled(t, t.Context(), graph(x), takes(ms), func(run *kahn.Run) {
			time.Sleep(10 * ms)
			run.Cancel()
		}, kahn.CancelGrace(100*ms))
		r.expect("X:C", "cancelled")
		if len(r.Abandoned) > 0 || r.Duration > 51*ms {
			t.Errorf("abandoned are %q, after %v", r.Abandoned, r.Duration)
		}
	})
}
