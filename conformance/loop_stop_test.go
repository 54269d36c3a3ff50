package conformance_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-c794f7ef/kahn"
)

// TestLoopThatIsStopped: a stop waits for the step of the iteration, and keeps its success. Then the loop's test is called; if it wants
// another iteration, the loop ends as stopped.
func TestLoopThatIsStopped(t *testing.T) {
	stops := map[string]func(run *kahn.Run){
		"run":   func(run *kahn.Run) { run.Cancel() },
		"abort": func(run *kahn.Run) { run.AbortAll(errHost) },
		"node":  func(run *kahn.Run) { _ = run.CancelNode("L") },
	}
	want := map[string]kahn.Status{"run": kahn.Cancelled, "abort": kahn.Aborted, "node": kahn.Cancelled}
	for how, stop := range stops {
		for _, last := range []int{1, 3} {
			inBubble(t, fmt.Sprintf("%s, %d iterations", how, last), func(t *testing.T) {
				asked := 0
				g := graph(kahn.Node{
					ID: "L", Sub: graph(kahn.Node{ID: "x", Do: func(context.Context, *kahn.Step) (any, error) { time.Sleep(time.Second); return 1, nil }}),
					Loop: &kahn.Loop{MaxIterations: 3, Collect: true, While: func(v kahn.View) (bool, error) { asked++; return v.Iteration() < last, nil }},
				})
				r := tryControlled(t, t.Context(), g, takes(ms), func(run *kahn.Run) {
					synctest.Wait()
					stop(run)
				}, kahn.Drain)
				n := r.node("L")
				if asked != 1 {
					t.Errorf("the test was asked %d times", asked)
				}
				if last == 1 {
					if n.Status != kahn.Completed || fmt.Sprint(n.Output) != "[1]" {
						t.Errorf("%v %v, although the loop had finished", n.Status, n.Output)
					}
				} else if n.Status != want[how] || n.Output != nil {
					t.Errorf("%v %v, not %v", n.Status, n.Output, want[how])
				}
			})
		}
	}
}
