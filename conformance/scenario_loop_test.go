package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
)

// counting returns a graph whose output is the number of the current iteration.
func counting() *kahn.Graph {
	return graph(kahn.Node{ID: "x", Do: func(ctx context.Context, s *kahn.Step) (any, error) {
		n, _ := s.Root("iteration")
		return n, nil
	}})
}

func TestScenarioLoop(t *testing.T) {
	until3 := func(v kahn.View) (bool, error) { return v.Output("x") == 3, nil }
	never := func(kahn.View) (bool, error) { return false, nil }

	for name, l := range map[string]kahn.Loop{
		"until": {Until: until3, MaxIterations: 10},
		"while": {While: func(v kahn.View) (bool, error) { return v.Iteration() < 3, nil }, MaxIterations: 10},
		"bound": {Until: until3, MaxIterations: 3},
		"stop":  {Until: never, MaxIterations: 3, OnLimit: kahn.LoopStop},
	} {
		inBubble(t, "248 three iterations, "+name, func(t *testing.T) {
			for _, opts := range [][]kahn.Option{{}, {kahn.Limit(1)}, {kahn.Waves}} {
				r := try(t, graph(kahn.Node{ID: "L", Sub: counting(), Loop: &l}, after("A", "L")), takes(0), opts...)
				r.expect("L:ok A:ok", "completed")
				if r.node("L").Output != 3 {
					t.Errorf("%v", r.node("L").Output)
				}
				r.order("node.started L", "node.completed L#1/x", "node.started L#2/x", "node.completed L#3/x", "node.completed L")
				r.count(event.NodeStarted, "L#4/x", 0)
			}
		})
	}
	inBubble(t, "248 what a run of a loop is given are the parameters of its first nodes", func(t *testing.T) {
		child := graph(kahn.Node{ID: "x", Do: func(_ context.Context, s *kahn.Step) (any, error) { return fmt.Sprint(s.Params()), nil }})
		r := try(t, graph(kahn.Node{ID: "L", Sub: child, Params: map[string]any{"p": "q"}, Loop: &kahn.Loop{Until: never, MaxIterations: 2, OnLimit: kahn.LoopStop, Collect: true}}), nil)
		first := "map[iteration:1 p:q]"
		if got, want := fmt.Sprint(r.Output()), fmt.Sprintf("[%s map[iteration:2 p:q previous:%s]]", first, first); got != want {
			t.Errorf("%s, expected %s", got, want)
		}
	})
	inBubble(t, "248 collect, and what the iteration before came to", func(t *testing.T) {
		child := graph(kahn.Node{ID: "x", Ports: []kahn.Port{{Name: "previous", Default: 1}, {Name: "factor", Required: true}}, Do: func(_ context.Context, s *kahn.Step) (any, error) {
			previous, err := kahn.Param[int](s, "previous")
			factor, _ := kahn.Param[int](s, "factor")
			return previous * factor * s.Iteration(), err
		}})
		child.Inputs = inputs("factor")
		r := try(t, graph(kahn.Node{ID: "L", Sub: child, Params: map[string]any{"factor": 2},
			Loop: &kahn.Loop{Until: func(v kahn.View) (bool, error) {
				factor, ok := v.Root("factor")
				if !ok || factor != 2 || v.ID() != "L" {
					t.Errorf("the test sees %v, of %s", factor, v.ID())
				}
				return v.Output("x").(int) > 40, nil
			}, MaxIterations: 10, Collect: true}}), nil)
		r.expect("L:ok", "completed")
		if got := fmt.Sprint(r.Output()); got != "[2 8 48]" {
			t.Errorf("%s", got)
		}
	})

	inBubble(t, "249 the bound", func(t *testing.T) {
		r := try(t, graph(kahn.Node{ID: "L", Sub: counting(), Loop: &kahn.Loop{Until: never, MaxIterations: 5}}), nil)
		r.expect("L:F", "failed")
		r.cause("L", kahn.CauseLoopLimit)
		if !errors.Is(r.err, kahn.ErrLoopLimit) {
			t.Errorf("%v", r.err)
		}
		r.count(event.NodeCompleted, "L#5/x", 1)
		r.count(event.NodeStarted, "L#6/x", 0)
	})
	inBubble(t, "249 an iteration that fails", func(t *testing.T) {
		r := try(t, graph(kahn.Node{ID: "L", Sub: graph(after("x")), Loop: &kahn.Loop{Until: never, MaxIterations: 5}}), breaks("L#2/x"))
		r.expect("L:F", "failed")
		r.cause("L", kahn.CauseSubrun)
		r.count(event.NodeStarted, "L#3/x", 0)
	})
	inBubble(t, "249 an iteration that is degraded", func(t *testing.T) {
		child := graph(kahn.Node{ID: "x", ContinueOnFail: true})
		r := try(t, graph(kahn.Node{ID: "L", Sub: child, Loop: &kahn.Loop{While: func(v kahn.View) (bool, error) { return v.Iteration() < 3, nil }, MaxIterations: 5}}),
			breaks("L#2/x"))
		r.expect("L:ok", "completed+d")
	})
	for name, test := range map[string]func(kahn.View) (bool, error){
		"error": func(kahn.View) (bool, error) { return true, errStep },
		"panic": func(kahn.View) (bool, error) { panic(errStep) },
	} {
		inBubble(t, "249 a test that cannot decide: "+name, func(t *testing.T) {
			r := try(t, graph(kahn.Node{ID: "L", Sub: counting(), Loop: &kahn.Loop{Until: test, MaxIterations: 5}}), nil)
			r.expect("L:F", "failed")
			r.cause("L", kahn.CauseConditionError)
			if !errors.Is(r.err, errStep) {
				t.Errorf("%v", r.err)
			}
		})
	}
	inBubble(t, "249 a test that ends its goroutine", func(t *testing.T) {
		r := try(t, graph(kahn.Node{ID: "L", Sub: counting(), Loop: &kahn.Loop{Until: func(kahn.View) (bool, error) { runtime.Goexit(); return true, nil }, MaxIterations: 5}}, after("A")), takes(0))
		r.expect("L:F A:ok", "failed")
		r.cause("L", kahn.CauseGoexit)
	})
	inBubble(t, "249 a retry begins with the first iteration", func(t *testing.T) {
		broken := false
		r := try(t, graph(kahn.Node{ID: "L", Sub: graph(after("x")), Retry: kahn.RetryStandard(),
			Loop: &kahn.Loop{While: func(v kahn.View) (bool, error) { return v.Iteration() < 3, nil }, MaxIterations: 5}}), func(_ context.Context, s *kahn.Step) (any, error) {
			if s.Iteration() == 2 && !broken {
				broken = true
				return nil, errStep
			}
			return s.Iteration(), nil
		})
		r.expect("L:ok", "completed")
		r.order("node.failed L#2/x", "node.retried L", "node.started L#1/x", "node.started L#2/x", "node.started L#3/x", "node.completed L")
	})
	inBubble(t, "249 cancel", func(t *testing.T) {
		r := tryControlled(t, t.Context(), graph(kahn.Node{ID: "L", Sub: graph(kahn.Node{ID: "x", Do: takes(30 * ms)}, kahn.Node{ID: "end", Kind: kahn.KindEnd, Do: takes(0)}),
			Loop: &kahn.Loop{Until: never, MaxIterations: 1000}}), nil, soon(func(r *kahn.Run) { r.Cancel() }))
		r.expect("L:C", "cancelled")
		r.cause("L", kahn.CauseCancelRun)
		last := r.node("L").Sub
		if last.Status != kahn.RunCancelled {
			t.Errorf("the last iteration is %v", last.Status)
		}
	})
	inBubble(t, "249 drain", func(t *testing.T) {
		r := tryControlled(t, t.Context(), graph(kahn.Node{ID: "L", Sub: graph(kahn.Node{ID: "x", Do: takes(100 * ms)}),
			Loop: &kahn.Loop{Until: never, MaxIterations: 1000}}), nil, soon(func(r *kahn.Run) { r.Cancel() }), kahn.Drain)
		r.expect("L:C", "cancelled")
		if r.Duration != 100*ms {
			t.Errorf("it took %v", r.Duration)
		}
	})
	inBubble(t, "249 a timeout", func(t *testing.T) {
		r := try(t, graph(kahn.Node{ID: "L", Sub: graph(kahn.Node{ID: "x", Do: takes(30 * ms)}), Timeout: 100 * ms,
			Loop: &kahn.Loop{Until: never, MaxIterations: 1000}}), nil)
		r.expect("L:F", "failed")
		r.cause("L", kahn.CauseTimeout)
		if r.Duration != 100*ms {
			t.Errorf("it took %v", r.Duration)
		}
	})
	inBubble(t, "249 a test that ignores the end of the run", func(t *testing.T) {
		release := make(chan struct{})
		r := tryControlled(t, t.Context(), graph(kahn.Node{ID: "L", Sub: counting(),
			Loop: &kahn.Loop{Until: func(kahn.View) (bool, error) { <-release; return false, nil }, MaxIterations: 1000}}), nil,
			soon(func(r *kahn.Run) { r.Cancel() }), kahn.CancelGrace(time.Second))
		r.expect("L:C", "cancelled")
		if fmt.Sprint(r.Abandoned) != "[L]" {
			t.Errorf("abandoned %v", r.Abandoned)
		}
		close(release)
	})

	for name, n := range map[string]kahn.Node{
		"no sub":   {ID: "L", Loop: &kahn.Loop{Until: never, MaxIterations: 1}},
		"no bound": {ID: "L", Sub: graph(), Loop: &kahn.Loop{Until: never}},
		"no test":  {ID: "L", Sub: graph(), Loop: &kahn.Loop{MaxIterations: 1}},
		"two":      {ID: "L", Sub: graph(), Loop: &kahn.Loop{While: never, Until: never, MaxIterations: 1}},
		"limit":    {ID: "L", Sub: graph(), Loop: &kahn.Loop{Until: never, MaxIterations: 1, OnLimit: 9}},
		"map":      {ID: "L", Sub: graph(), Map: &kahn.Map{Over: "x"}, Loop: &kahn.Loop{Until: never, MaxIterations: 1}},
	} {
		if _, err := graph(n).Compile(); !errors.Is(err, kahn.ErrBadValue) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := graph(kahn.Node{ID: "L", Sub: graph(), Loop: &kahn.Loop{UntilExpr: "x", MaxIterations: 1}}).Compile(); !errors.Is(err, kahn.ErrNoEvaluator) {
		t.Errorf("%v", err)
	}
}
