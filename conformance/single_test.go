package conformance_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
)

// TestNothingBeginsBeforeAnInterruptedStepReturns: with one slot, if an attempt is asked to stop, no node starts before the attempt returns, not
// even a guard, which needs no slot. A condition that returns meanwhile changes nothing.
func TestNothingBeginsBeforeAnInterruptedStepReturns(t *testing.T) {
	for _, nested := range []bool{false, true} {
		inBubble(t, fmt.Sprint("nested ", nested), func(t *testing.T) {
			begin := time.Now()
			var asked time.Duration
			g := graph(
				kahn.Node{ID: "A", Do: func(context.Context, *kahn.Step) (any, error) { time.Sleep(100 * ms); return nil, errStep }},
				gate("G"),
				kahn.Node{ID: "I", After: []string{"G"}, Test: func(kahn.View) (any, error) { time.Sleep(50 * ms); return true, nil }},
				kahn.Node{ID: "K", After: []string{"I"}, Cleanup: true, When: func(kahn.View) (bool, error) { asked = time.Since(begin); return true, nil }},
			)
			path, want := "", "A:C G:ok I:ok K:ok"
			if nested {
				g, path, want = graph(subgraph("S", g)), "S/", "S:C"
			}
			r := tryControlled(t, t.Context(), g, nothing, func(run *kahn.Run) {
				time.Sleep(10 * ms)
				if err := run.Signal(context.Background(), path+"G", true); err != nil {
					t.Error(err)
				}
				time.Sleep(10 * ms)
				run.Cancel() // A returns at 100 ms, I at 60 ms
			}, kahn.Limit(1), kahn.CancelGrace(time.Second))
			r.expect(want, "cancelled")
			if asked != 100*ms {
				t.Errorf("the guard of K was asked after %v\n%s", asked, eventText(r.events))
			}
		})
	}
}

// TestNothingBeginsWhileAConditionIsEvaluated: with one slot, a step is abandoned while a condition is evaluated. The next step gets the slot
// only after the condition has returned.
func TestNothingBeginsWhileAConditionIsEvaluated(t *testing.T) {
	nodes := func() []kahn.Node {
		return []kahn.Node{
			{ID: "A", Timeout: 20 * ms, Do: func(context.Context, *kahn.Step) (any, error) { time.Sleep(time.Second); return nil, nil }},
			gate("G"),
			{ID: "I", After: []string{"G"}, Test: func(kahn.View) (any, error) { time.Sleep(50 * ms); return true, nil }},
			after("B"),
		}
	}
	for name, row := range map[string]struct {
		g    *kahn.Graph
		path string // of the composite around the condition; "" for none
		want string
	}{
		"a run":                      {graph(nodes()...), "", "A:F G:ok I:ok B:ok"},
		"a run with a composite":     {graph(append(nodes(), subgraph("S", graph(after("x"))))...), "", "A:F G:ok I:ok B:ok S:ok"},
		"inside of a composite":      {graph(subgraph("S", graph(nodes()...))), "S/", "S:F"},
		"a condition in a composite": {graph(append(nodes()[:1], after("B"), subgraph("S", graph(nodes()[1:3]...)))...), "", "A:F B:ok S:ok"},
	} {
		inBubble(t, name, func(t *testing.T) {
			waits := row.path + "G"
			if name == "a condition in a composite" {
				waits = "S/G"
			}
			r := tryControlled(t, t.Context(), row.g, takes(5*ms), func(run *kahn.Run) {
				time.Sleep(10 * ms)
				if err := run.Signal(context.Background(), waits, true); err != nil {
					t.Error(err)
				}
			}, kahn.Limit(1), kahn.CancelGrace(10*ms))
			r.expect(row.want, "failed")
			if failed, b := r.at(event.NodeFailed, row.path+"A"), r.at(event.NodeStarted, row.path+"B"); failed != 30*ms || b != 60*ms {
				t.Errorf("A failed after %v, B began after %v\n%s", failed, b, eventText(r.events))
			}
			time.Sleep(2 * time.Second) // abandoned steps return
		})
	}
}

// TestGatesAreReachedWhenNothingElseCanStart: with one slot, a gate starts to wait as soon as the last startable step has started. It does not
// wait for the end of this step.
func TestGatesAreReachedWhenNothingElseCanStart(t *testing.T) {
	asks := kahn.Node{ID: "I", Test: func(kahn.View) (any, error) { return true, nil }}
	for name, row := range map[string]struct {
		g     *kahn.Graph
		gates []string
		want  []string
	}{
		"one step":        {graph(after("A"), gate("G")), []string{"G"}, []string{"node.started A", "node.suspended G", "node.completed A"}},
		"two gates":       {graph(gate("H"), after("A"), gate("G")), []string{"G", "H"}, []string{"node.started A", "node.suspended H", "node.suspended G", "node.completed A"}},
		"no free slot":    {graph(after("A"), after("B"), gate("G")), []string{"G"}, []string{"node.started A", "node.suspended G", "node.completed A", "node.started B"}},
		"a condition":     {graph(after("A"), asks, gate("G")), []string{"G"}, []string{"node.completed I", "node.started A", "node.suspended G", "node.completed A"}},
		"in a composite":  {graph(subgraph("S", graph(after("A"), gate("G")))), []string{"S/G"}, []string{"node.started S/A", "node.suspended S/G", "node.completed S/A"}},
		"after the steps": {graph(after("A"), gate("G", "A"), after("B", "A")), []string{"G"}, []string{"node.completed A", "node.started B", "node.suspended G", "node.completed B"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for i := range 20 { // if gates started to wait at any other time, the order would be random
				rec := newRecorder()
				opts := []kahn.Option{kahn.Limit(1), kahn.OnEvent(rec.add)}
				if i%2 == 1 { // a test mode in which the gates are not mocked
					opts = append(opts, kahn.TestMode{Unmock: row.gates})
				}
				res, err := kahn.Execute(t.Context(), row.g, nothing, opts...)
				if err != nil || res.Status != kahn.RunSuspended {
					t.Fatal(res.Status, err)
				}
				trial{res, t, nil, rec.all()}.order(row.want...)
				if t.Failed() {
					return
				}
			}
		})
	}
}
