package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-c794f7ef/kahn"
)

// TestScenarioCompositeWaits: a composite counts as waiting when all its remaining nodes wait.
func TestScenarioCompositeWaits(t *testing.T) {
	gated := func() *kahn.Graph {
		return graph(kahn.Node{ID: "g", Kind: kahn.KindGate}, after("y", "g"), after("z"))
	}
	for _, deep := range []bool{false, true} {
		inBubble(t, fmt.Sprintf("246 a gate inside, deep %v", deep), func(t *testing.T) {
			g, gate := graph(subgraph("S", gated()), after("A", "S")), "S/g"
			if deep {
				g, gate = graph(subgraph("S", graph(subgraph("T", gated()))), after("A", "S")), "S/T/g"
			}
			var c calls
			r := tryControlled(t, t.Context(), g, c.count(takes(10*ms)), func(run *kahn.Run) {
				time.Sleep(50 * ms)
				synctest.Wait()
				if status, _ := run.NodeStatus("S"); status != kahn.Suspended {
					t.Errorf("S is %v", status)
				}
				if w := run.Waiting(); len(w) != 1 || w[0].Node != gate || w[0].Token != gate {
					t.Errorf("waiting %+v", w)
				}
				for _, wrong := range []string{"g", "S/x", "T/g"} {
					if err := run.Signal(context.Background(), wrong, "?"); !errors.Is(err, kahn.ErrUnknownGate) {
						t.Errorf("%s: %v", wrong, err)
					}
				}
				if err := run.Signal(context.Background(), gate, "go"); err != nil {
					t.Error(err)
				}
			})
			r.expect("S:ok A:ok", "completed")
			if c.of("z") != 1 || c.of("y") != 1 || r.node("S").Attempts != 1 {
				t.Errorf("z was called %d times, y %d times", c.of("z"), c.of("y"))
			}
			r.order("node.suspended "+gate, "node.suspended S", "run.status.changed", "node.started S", "node.completed "+gate, "node.completed S")
		})
	}
	inBubble(t, "246 a run that nobody can answer", func(t *testing.T) {
		res, err := executeRun(t, t.Context(), graph(subgraph("S", gated()), after("A", "S"), after("B")), takes(10*ms))
		if err != nil || res.Status != kahn.RunSuspended {
			t.Fatalf("%v, %v", res, err)
		}
		if n, _ := res.Node("B"); n.Status != kahn.Completed {
			t.Errorf("B is %v", n.Status)
		}
		snapshot := res.Snapshot()
		if snapshot == nil {
			t.Fatal("no snapshot")
		}
		// The snapshot contains the nodes inside the composite, which therefore continue.
		var c calls
		again, err := resumeRun(t, t.Context(), graph(subgraph("S", gated()), after("A", "S"), after("B")), c.count(takes(10*ms)), snapshot, nil)
		if err != nil || again.Status != kahn.RunSuspended || c.of("z") != 0 || c.of("B") != 0 {
			t.Errorf("%v, %v, z was called %d times, B %d times", again, err, c.of("z"), c.of("B"))
		}
	})
	inBubble(t, "242 an item that suspends itself", func(t *testing.T) {
		var c calls
		r := tryControlled(t, t.Context(), graph(mapped("M", numbers(3), kahn.Map{})), func(ctx context.Context, s *kahn.Step) (any, error) {
			return c.count(func(_ context.Context, s *kahn.Step) (any, error) {
				if answer, ok := s.Resumed(); ok {
					return answer, nil
				}
				if s.Index() == 1 {
					return nil, kahn.Suspend("", "info", nil)
				}
				time.Sleep(10 * ms)
				return s.Index(), nil
			})(ctx, s)
		}, func(run *kahn.Run) {
			time.Sleep(50 * ms)
			synctest.Wait()
			if status, _ := run.NodeStatus("M"); status != kahn.Suspended {
				t.Errorf("M is %v", status)
			}
			if err := run.Signal(context.Background(), "M[1]", "signal"); err != nil {
				t.Error(err)
			}
		})
		r.expect("M:ok", "completed")
		if got := fmt.Sprint(r.Output()); got != "[0 signal 2]" || c.of("M") != 4 {
			t.Errorf("%s after %d calls", got, c.of("M"))
		}
	})
	inBubble(t, "242 a gate in the sub-graph of an item, a token in a loop", func(t *testing.T) {
		m := mapped("M", numbers(2), kahn.Map{})
		m.Sub = gated()
		l := kahn.Node{ID: "L", Sub: graph(kahn.Node{ID: "x", Do: func(_ context.Context, s *kahn.Step) (any, error) {
			if answer, ok := s.Resumed(); ok {
				return answer, nil
			}
			return nil, kahn.Suspend(fmt.Sprint("ticket ", s.Iteration()), nil, nil)
		}}), Loop: &kahn.Loop{While: func(v kahn.View) (bool, error) { return v.Iteration() < 2, nil }, MaxIterations: 2}}
		r := tryControlled(t, t.Context(), graph(m, l), takes(10*ms), func(run *kahn.Run) {
			for _, gate := range []string{"M[1]/g", "ticket 1", "M[0]/g", "L#2/x"} {
				time.Sleep(50 * ms)
				synctest.Wait()
				if err := run.Signal(context.Background(), gate, gate); err != nil {
					t.Error(err)
				}
			}
		})
		r.expect("M:ok L:ok", "completed")
	})
	for name, stop := range map[string]func(*kahn.Run){
		"cancel": func(r *kahn.Run) { r.Cancel() },
		"node": func(r *kahn.Run) {
			if err := r.CancelNode("S"); err != nil {
				t.Error(err)
			}
		},
	} {
		inBubble(t, "232 a composite that waits is stopped: "+name, func(t *testing.T) {
			child := gated()
			child.Add(kahn.Node{ID: "end", Kind: kahn.KindEnd})
			r := tryControlled(t, t.Context(), graph(subgraph("S", graph(subgraph("T", child)))), takes(10*ms), soon(stop))
			r.expect("S:C", "cancelled")
			r.order("node.cancelled S/T/g", "node.completed S/T/end", "node.cancelled S/T", "node.cancelled S")
		})
	}
	inBubble(t, "232 a loser that waits", func(t *testing.T) {
		r := try(t, graph(subgraph("S", gated()), kahn.Node{ID: "A", Do: takes(time.Second)},
			kahn.Node{ID: "J", After: []string{"S", "A"}, Join: kahn.AnySucceeded, CancelLosers: true}), takes(10*ms))
		r.expect("S:C A:ok J:ok", "completed")
	})
	inBubble(t, "246 a deadline inside", func(t *testing.T) {
		child := graph(kahn.Node{ID: "g", Kind: kahn.KindGate, Gate: &kahn.Gate{Timeout: time.Hour}})
		r := try(t, graph(subgraph("S", child)), nil)
		r.expect("S:F", "failed")
		r.cause("S", kahn.CauseSubrun)
	})
	inBubble(t, "246 leaving", func(t *testing.T) {
		run, err := startRun(t, t.Context(), graph(subgraph("S", graph(after("x"), after("y", "x")))), takes(50*ms))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * ms)
		run.Leave()
		res, err := run.Wait()
		if err != nil || res.Status != kahn.RunSuspended {
			t.Fatalf("%v, %v", res, err)
		}
		if sub, _ := res.Node("S"); sub.Sub == nil {
			t.Errorf("S is %+v", sub)
		} else if x, _ := sub.Sub.Node("x"); x.Status != kahn.Completed {
			t.Errorf("S/x is %v", x.Status)
		}
	})
}
