package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
)

func TestScenarioSubGraph(t *testing.T) {
	xy := func() *kahn.Graph { return graph(after("x"), after("y", "x")) }

	for _, opts := range [][]kahn.Option{{kahn.Limit(1)}, {kahn.Limit(2)}, {}, {kahn.Waves, kahn.Limit(1)}, {kahn.Waves}} {
		inBubble(t, fmt.Sprintf("125 a composite holds no slot, %v", opts), func(t *testing.T) {
			r := try(t, graph(after("P"), subgraph("S1", xy(), "P")), takes(10*ms), opts...)
			r.expect("P:ok S1:ok", "completed")
			if got := r.started(); got != "P S1 S1/x S1/y" {
				t.Errorf("started in the order %s", got)
			}
			r.order("node.started S1", "node.queued S1/x", "node.completed S1/x", "node.queued S1/y", "node.completed S1/y", "node.completed S1")
			if out, err := kahn.Output[string](r.Result, "S1"); out != "y" || err != nil {
				t.Errorf("S1 = %q, %v", out, err)
			}
			if r.Duration != 30*ms || r.node("S1").Duration != 20*ms {
				t.Errorf("it took %v, S1 %v", r.Duration, r.node("S1").Duration)
			}
		})
		inBubble(t, fmt.Sprintf("125 three deep, %v", opts), func(t *testing.T) {
			deep := graph(after("a"), subgraph("T", graph(after("b"), subgraph("U", xy(), "b"), after("c")), "a"), subgraph("V", xy()))
			r := try(t, graph(subgraph("S", deep), subgraph("W", deep), after("z", "S", "W")), takes(10*ms), opts...)
			r.expect("S:ok W:ok z:ok", "completed")
			if n := len(strings.Fields(r.started())); n != 2*(3+3+2+2)+3 {
				t.Errorf("%d starts: %s", n, r.started())
			}
		})
	}

	inBubble(t, "124 under a limit the order of starts is that of one graph", func(t *testing.T) {
		inner := func(p int) *kahn.Graph { return graph(kahn.Node{ID: "x", Priority: p}, after("y", "x")) }
		for range 20 {
			r := try(t, graph(subgraph("S", inner(1)), kahn.Node{ID: "A", Priority: 2}, subgraph("T", inner(3)), after("B"), after("C", "T")),
				takes(10*ms), kahn.Limit(1))
			// T/y is on a longer path of the graph than S/y and B.
			if got := r.started(); got != "S T T/x A S/x T/y S/y B C" {
				t.Errorf("started in the order %s", got)
			}
		}
	})

	inBubble(t, "244 a failure handled inside degrades the run", func(t *testing.T) {
		g := graph(subgraph("S", graph(after("x"), kahn.Node{ID: "h", In: []kahn.Edge{{From: "x", On: kahn.OnFailure}}})))
		r := try(t, g, breaks("S/x"))
		r.expect("S:ok", "completed+d")
		if n := r.node("S"); !n.Tolerated || n.Sub == nil || !n.Sub.Degraded || n.Output != "h" {
			t.Errorf("S is %+v", n)
		}
		if n, ok := r.node("S").Sub.Node("x"); !ok || n.Status != kahn.Failed || !errors.Is(n.Err, errStep) {
			t.Errorf("S/x is %+v", n)
		}
	})
	inBubble(t, "244 tolerated inside", func(t *testing.T) {
		r := try(t, graph(subgraph("S", graph(kahn.Node{ID: "x", ContinueOnFail: true})), after("A", "S")), breaks("S/x"))
		r.expect("S:ok A:ok", "completed+d")
	})

	inBubble(t, "245 the end of the child runs, the parent catches", func(t *testing.T) {
		child := graph(after("x"), kahn.Node{ID: "end", Kind: kahn.KindEnd})
		r := try(t, graph(subgraph("S", child), kahn.Node{ID: "H", In: []kahn.Edge{{From: "S", On: kahn.OnFailure}}}), breaks("S/x"))
		r.expect("S:F H:ok", "completed+d")
		r.cause("S", kahn.CauseSubrun)
		r.order("node.failed S/x", "node.completed S/end", "node.failed S", "node.started H")
		r.count(event.NodeCompleted, "S/end", 1)
		if !errors.Is(r.node("S").Err, errStep) {
			t.Errorf("S has %v", r.node("S").Err)
		}
	})
	inBubble(t, "245 the child's verdict is inherited", func(t *testing.T) {
		child := graph(after("x"), kahn.Node{ID: "end", Kind: kahn.KindEnd, Do: func(context.Context, *kahn.Step) (any, error) {
			return kahn.EndVerdict{Status: kahn.RunCompleted, Output: "rescued"}, nil
		}})
		r := try(t, graph(subgraph("S", child)), breaks("S/x"))
		r.expect("S:ok", "completed")
		if r.Output() != "rescued" {
			t.Errorf("output %v", r.Output())
		}
		child = graph(after("x"), kahn.Node{ID: "end", Kind: kahn.KindEnd, Do: func(context.Context, *kahn.Step) (any, error) {
			return kahn.EndVerdict{Status: kahn.RunFailed}, nil
		}})
		r = try(t, graph(subgraph("S", child)), breaks())
		r.expect("S:F", "failed")
		r.cause("S", kahn.CauseSubrun)
	})
	inBubble(t, "245 an end node that fails", func(t *testing.T) {
		child := graph(after("x"), kahn.Node{ID: "end", Kind: kahn.KindEnd})
		r := try(t, graph(subgraph("S", child)), breaks("S/end"))
		r.expect("S:F", "failed")
		r.cause("S", kahn.CauseSubrun)
	})

	inBubble(t, "244 outputs", func(t *testing.T) {
		r := try(t, graph(
			subgraph("end", graph(after("x"), kahn.Node{ID: "e", Kind: kahn.KindEnd, After: []string{"x"}})),
			subgraph("leaf", xy()),
			subgraph("leaves", graph(after("x"), after("y"), kahn.Node{ID: "off", Disabled: true})),
			subgraph("none", graph())), takes(0))
		for id, want := range map[string]string{"end": "e", "leaf": "y", "leaves": "map[x:x y:y]", "none": "map[]"} {
			if got := fmt.Sprint(r.node(id).Output); got != want {
				t.Errorf("%s = %s, expected %s", id, got, want)
			}
		}
	})

	inBubble(t, "244 inputs", func(t *testing.T) {
		child := graph(kahn.Node{ID: "x", Ports: []kahn.Port{{Name: "rows", Required: true}, {Name: "n"}, {Name: "other", Default: "d"}},
			Do: func(_ context.Context, s *kahn.Step) (any, error) { return s.Params(), nil }},
			kahn.Node{ID: "free", Do: func(_ context.Context, s *kahn.Step) (any, error) { return s.Params(), nil }})
		child.Inputs = append(inputs("rows"), kahn.Input{Name: "n", Optional: true})
		between := graph(kahn.Node{ID: "in", Sub: child})
		between.Inputs = child.Inputs
		r := try(t, graph(after("A"), kahn.Node{ID: "S", Sub: between, In: []kahn.Edge{{From: "A", Param: "rows"}},
			Params: map[string]any{"n": 7}}), takes(0), kahn.Inputs(map[string]any{"rows": "hidden", "other": "hidden"}))
		r.expect("A:ok S:ok", "completed")
		if got := fmt.Sprint(r.Output()); got != "map[free:map[n:7 rows:A] x:map[n:7 other:d rows:A]]" {
			t.Errorf("%s", got)
		}
	})

	inBubble(t, "246 paths and keys", func(t *testing.T) {
		keys := map[string]bool{}
		r := try(t, graph(subgraph("S", graph(kahn.Node{ID: "x", Do: func(_ context.Context, s *kahn.Step) (any, error) {
			keys[s.IdempotencyKey()] = true
			s.Emit("chunk")
			return s.Path() + " " + s.ID(), nil
		}})), kahn.Node{ID: "x", Do: func(_ context.Context, s *kahn.Step) (any, error) {
			keys[s.IdempotencyKey()] = true
			return nil, nil
		}}), nil, kahn.RunID("r"), kahn.Limit(1))
		if r.node("S").Output != "S/x x" || len(keys) != 2 {
			t.Errorf("%v, %v", r.node("S").Output, keys)
		}
		r.count(event.NodeDelta, "S/x", 1)
		for _, e := range r.events {
			if e.RunID != "r" {
				t.Errorf("%v is of run %s", e, e.RunID)
			}
		}
		if r.node("S").Sub.ID() != "r" {
			t.Errorf("the nested run is %s", r.node("S").Sub.ID())
		}
	})

	inBubble(t, "245 a retry is a fresh run", func(t *testing.T) {
		var c calls
		failures := 2
		s := subgraph("S", graph(after("x"), after("y", "x")))
		s.Retry = kahn.RetryStandard()
		r := try(t, graph(s), c.count(func(_ context.Context, s *kahn.Step) (any, error) {
			if s.ID() == "y" && failures > 0 {
				failures--
				return nil, errStep
			}
			return s.Path(), nil
		}))
		r.expect("S:ok", "completed")
		if c.of("x") != 3 || c.of("y") != 3 || r.Duration != 3*time.Second {
			t.Errorf("x was called %d times, y %d times, in %v", c.of("x"), c.of("y"), r.Duration)
		}
		r.count(event.NodeRetried, "S", 2)
	})
	inBubble(t, "245 no default retry of a composite", func(t *testing.T) {
		var c calls
		r := try(t, graph(subgraph("S", graph(after("x")))), c.count(breaks("S/x")), kahn.RetryStandard())
		r.expect("S:F", "failed")
		r.count(event.NodeRetried, "S", 0)
		r.count(event.NodeRetried, "S/x", 2)
		if c.of("x") != 3 {
			t.Errorf("x was called %d times", c.of("x"))
		}
	})
	inBubble(t, "245 a fallback makes up for the run", func(t *testing.T) {
		s := subgraph("S", graph(after("x")))
		s.Fallback = func(ctx context.Context, err error) (any, error) { return "instead", nil }
		r := try(t, graph(s), breaks("S/x"))
		r.expect("S:ok", "completed")
		if r.Output() != "instead" || !r.node("S").Fallback {
			t.Errorf("%v", r.Output())
		}
	})
	inBubble(t, "245 branches by the output of a sub-graph", func(t *testing.T) {
		s := subgraph("S", xy())
		s.Routes = true
		r := try(t, graph(s, kahn.Node{ID: "A", In: []kahn.Edge{{From: "S", Label: "y"}}}, kahn.Node{ID: "B", In: []kahn.Edge{{From: "S", Label: "x"}}}), takes(0))
		r.expect("S:ok A:ok B:S/br", "completed")
	})
	inBubble(t, "245 a call inside that is aborted externally", func(t *testing.T) {
		r := try(t, graph(subgraph("S", graph(after("x")))), func(context.Context, *kahn.Step) (any, error) { return nil, kahn.ErrCallAborted })
		r.expect("S:C", "cancelled")
		r.cause("S", kahn.CauseExternal)
	})
	inBubble(t, "245 guards and ports of a composite", func(t *testing.T) {
		s := subgraph("S", xy())
		s.When = func(kahn.View) (bool, error) { return false, nil }
		p := subgraph("P", xy())
		p.Ports = []kahn.Port{{Name: "in", Required: true}}
		p.In = []kahn.Edge{{From: "A", Param: "in"}}
		r := try(t, graph(kahn.Node{ID: "A", Do: func(context.Context, *kahn.Step) (any, error) { return nil, nil }}, s, p), neverStep(t))
		r.expect("A:ok S:S/when P:S/null", "completed")
	})
}

// TestScenarioSubGraphStop: stopping a composite stops the nodes inside in two phases.
func TestScenarioSubGraphStop(t *testing.T) {
	child := func() *kahn.Graph {
		return graph(after("x"), after("y", "x"), kahn.Node{ID: "clean", Cleanup: true, After: []string{"x"}, Do: takes(10 * ms)},
			kahn.Node{ID: "end", Kind: kahn.KindEnd, Do: takes(10 * ms)})
	}
	stopped := func(t *testing.T, r trial, x, y string) {
		t.Helper()
		r.order("node.started S/x", "node."+x+" S/x", "node.completed S/clean", "node.completed S/end")
		r.count(event.Type("node."+y), "S/y", 1)
	}
	inBubble(t, "245 cancel", func(t *testing.T) {
		r := tryControlled(t, t.Context(), graph(subgraph("S", child()), after("A", "S")), untilStopped, soon(func(r *kahn.Run) { r.Cancel() }))
		r.expect("S:C A:C", "cancelled")
		r.cause("S", kahn.CauseCancelRun)
		stopped(t, r, "cancelled", "cancelled")
		if sub := r.node("S").Sub; sub.Status != kahn.RunCancelled || !sub.CancelRequested {
			t.Errorf("the nested run is %v", sub.Status)
		}
	})
	inBubble(t, "245 the caller's context", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 50*ms)
		defer cancel()
		r := tryControlled(t, ctx, graph(subgraph("S", graph(subgraph("T", child())))), untilStopped, nil)
		r.expect("S:C", "cancelled")
		r.cause("S", kahn.CauseContext)
		r.order("node.cancelled S/T/x", "node.completed S/T/end", "node.cancelled S/T", "node.cancelled S")
	})
	inBubble(t, "245 abort", func(t *testing.T) {
		r := tryControlled(t, t.Context(), graph(subgraph("S", child())), untilStopped, soon(func(r *kahn.Run) { r.AbortAll(errHost) }))
		r.expect("S:X", "failed")
		r.cause("S", kahn.CauseAbortAll)
		stopped(t, r, "aborted", "aborted")
		if !errors.Is(r.err, errHost) {
			t.Errorf("%v", r.err)
		}
	})
	inBubble(t, "245 the failure of another node", func(t *testing.T) {
		r := try(t, graph(subgraph("S", child()), kahn.Node{ID: "A", Do: fails(50 * ms)}), untilStopped, kahn.AbortRunning)
		r.expect("S:X A:F", "failed")
		r.cause("S", kahn.CauseFailFast)
		stopped(t, r, "aborted", "aborted")
	})
	inBubble(t, "245 scheduling stops, what runs goes on", func(t *testing.T) {
		r := try(t, graph(subgraph("S", child()), kahn.Node{ID: "A", Do: fails(5 * ms)}), takes(10*ms), kahn.StopScheduling)
		r.expect("S:X A:F", "failed")
		stopped(t, r, "completed", "aborted")
	})
	inBubble(t, "245 drain", func(t *testing.T) {
		r := tryControlled(t, t.Context(), graph(subgraph("S", child())), takes(200*ms), soon(func(r *kahn.Run) { r.Cancel() }), kahn.Drain)
		r.expect("S:C", "cancelled")
		stopped(t, r, "completed", "cancelled")
	})
	inBubble(t, "245 one node", func(t *testing.T) {
		r := tryControlled(t, t.Context(), graph(subgraph("S", child()), after("A", "S"), kahn.Node{ID: "B", Do: takes(ms)}), untilStopped,
			soon(func(r *kahn.Run) {
				if err := r.CancelNode("S"); err != nil {
					t.Error(err)
				}
			}))
		r.expect("S:C A:X B:ok", "cancelled")
		r.cause("S", kahn.CauseCancelNode)
		stopped(t, r, "cancelled", "cancelled")
	})
	inBubble(t, "245 a timeout of the composite", func(t *testing.T) {
		s := subgraph("S", child())
		s.Timeout = 50 * ms
		r := try(t, graph(s, kahn.Node{ID: "H", In: []kahn.Edge{{From: "S", On: kahn.OnFailure}}, Do: takes(0)}), untilStopped)
		r.expect("S:F H:ok", "completed+d")
		r.cause("S", kahn.CauseTimeout)
		stopped(t, r, "aborted", "aborted")
		r.order("node.timed_out S", "node.aborted S/x", "node.failed S")
	})
	inBubble(t, "245 deadlines are those of the composite", func(t *testing.T) {
		s := subgraph("S", graph(kahn.Node{ID: "x", Do: func(ctx context.Context, s *kahn.Step) (any, error) {
			d, ok := ctx.Deadline()
			return time.Until(d), map[bool]error{true: nil, false: errStep}[ok]
		}}))
		s.OverallTimeout = time.Minute
		r := try(t, graph(kahn.Node{ID: "A", Do: takes(time.Second)}, s), nil, kahn.Timeout(time.Hour))
		if r.node("S").Output != time.Minute {
			t.Errorf("%v, %v", r.node("S").Output, r.node("S").Err)
		}
	})
	inBubble(t, "245 the run's timeout", func(t *testing.T) {
		r := try(t, graph(subgraph("S", child())), untilStopped, kahn.Timeout(50*ms))
		r.expect("S:X", "failed")
		r.cause("S", kahn.CauseRunTimeout)
		stopped(t, r, "aborted", "aborted")
		if r.last() != event.RunTimedOut {
			t.Errorf("the last event is %v", r.last())
		}
	})
	inBubble(t, "245 a loser", func(t *testing.T) {
		j := kahn.Node{ID: "J", After: []string{"S", "A"}, Join: kahn.AnySucceeded, CancelLosers: true}
		r := try(t, graph(subgraph("S", graph(kahn.Node{ID: "x", Do: untilStopped})), after("A"), j), takes(10*ms))
		r.expect("S:C A:ok J:ok", "completed")
		r.cause("S", kahn.CauseSuperseded)
	})
	inBubble(t, "245 a success that arrives anyway is kept", func(t *testing.T) {
		r := tryControlled(t, t.Context(), graph(subgraph("S", graph(after("x")))), func(ctx context.Context, _ *kahn.Step) (any, error) {
			<-ctx.Done()
			return "done", nil
		}, soon(func(r *kahn.Run) { r.Cancel() }))
		r.expect("S:ok", "completed")
		if r.node("S").Output != "done" {
			t.Errorf("%v", r.node("S").Output)
		}
	})
	inBubble(t, "245 a step inside that ignores its context", func(t *testing.T) {
		release := make(chan struct{})
		r := tryControlled(t, t.Context(), graph(subgraph("S", graph(subgraph("T", graph(after("x")))))), func(context.Context, *kahn.Step) (any, error) {
			<-release
			return nil, nil
		}, soon(func(r *kahn.Run) { r.Cancel() }), kahn.CancelGrace(time.Second))
		r.expect("S:C", "cancelled")
		if !slices.Equal(r.Abandoned, []string{"S/T/x"}) {
			t.Errorf("abandoned %v", r.Abandoned)
		}
		close(release)
	})
	inBubble(t, "245 a cleanup node that is a composite is not stopped", func(t *testing.T) {
		s := subgraph("S", child(), "A")
		s.Cleanup = true
		r := tryControlled(t, t.Context(), graph(kahn.Node{ID: "A", Do: untilStopped}, s), takes(10*ms), soon(func(r *kahn.Run) { r.Cancel() }))
		r.expect("A:C S:ok", "cancelled")
	})
	inBubble(t, "245 a cancel while the composite backs off", func(t *testing.T) {
		s := subgraph("S", graph(after("x")))
		s.Retry = kahn.Retry{MaxAttempts: 2, InitialDelay: time.Hour, MaxDelay: time.Hour, Jitter: kahn.JitterNone}
		r := tryControlled(t, t.Context(), graph(s), fails(0), soon(func(r *kahn.Run) { r.Cancel() }))
		r.expect("S:C", "cancelled")
		if !errors.Is(r.node("S").LastErr, errStep) {
			t.Errorf("%v", r.node("S").LastErr)
		}
	})
}

func TestCompileSubGraphs(t *testing.T) {
	inside := graph(after("x", "nowhere"), kahn.Node{ID: "y", Timeout: -2})
	outer := graph(subgraph("S", graph(subgraph("T", inside))), subgraph("U", inside), after("S/T"), after("bad", "bad"))
	_, err := outer.Compile()
	var all *kahn.GraphError
	if !errors.As(err, &all) || len(all.Problems) != 4 {
		t.Fatalf("%v", err)
	}
	for _, want := range []error{kahn.ErrUnknownNode, kahn.ErrBadValue, kahn.ErrCycle} {
		if !errors.Is(err, want) {
			t.Errorf("no %v in %v", want, err)
		}
	}
	for _, want := range []string{`in "S/T": edge "nowhere"`, `in "S/T": node "y"`, `"S/T": bad value: the id looks like`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %s in %v", want, err)
		}
	}

	self := graph(after("a"))
	self.Add(subgraph("S", graph(subgraph("T", self))))
	if _, err := self.Compile(); !errors.Is(err, kahn.ErrCycle) {
		t.Errorf("a graph that contains itself: %v", err)
	}
	deep := graph(after("x"))
	for range 1000 {
		deep = graph(subgraph("S", deep))
	}
	if _, err := deep.Compile(); !errors.Is(err, kahn.ErrBadValue) {
		t.Errorf("nested 1000 deep: %v", err)
	}
	twice := graph(after("x"))
	for range 60 {
		twice = graph(subgraph("S", twice), subgraph("T", twice))
	}
	if _, err := twice.Compile(); err != nil {
		t.Errorf("shared graphs: %v", err)
	}

	for name, g := range map[string]*kahn.Graph{
		"do":   graph(kahn.Node{ID: "S", Sub: graph(), Do: takes(0)}),
		"test": graph(kahn.Node{ID: "S", Sub: graph(), Test: func(kahn.View) (any, error) { return nil, nil }}),
		"end":  graph(kahn.Node{ID: "S", Sub: graph(), Kind: kahn.KindEnd}),
	} {
		if _, err := g.Compile(); err == nil {
			t.Errorf("%s: no error", name)
		}
	}

	needy := graph(kahn.Node{ID: "x", Ports: []kahn.Port{{Name: "rows", Required: true}}})
	needy.Inputs = inputs("rows")
	if _, err := graph(subgraph("S", needy)).Compile(); !errors.Is(err, kahn.ErrUnboundPort) {
		t.Errorf("%v", err)
	}
	passes := graph(subgraph("S", needy))
	passes.Inputs = inputs("rows")
	if _, err := executeRun(t, t.Context(), passes, takes(0)); !errors.Is(err, kahn.ErrMissingInput) {
		t.Errorf("%v", err)
	}
	if _, err := executeRun(t, t.Context(), passes, takes(0), kahn.Inputs(map[string]any{"rows": 1})); err != nil {
		t.Errorf("%v", err)
	}
	if _, err := kahn.Execute(t.Context(), graph(subgraph("S", graph(after("x")))), nil); !errors.Is(err, kahn.ErrNoStep) {
		t.Errorf("%v", err)
	}

	// Compile notices a change of an inner graph.
	inner := graph(after("x"))
	g := graph(subgraph("S", inner))
	before, err := g.Compile()
	if err != nil {
		t.Fatal(err)
	}
	if same, _ := g.Compile(); same != before {
		t.Error("nothing has changed")
	}
	inner.Add(after("y", "x"))
	if res, err := executeRun(t, t.Context(), g, takes(0)); err != nil || res.Output() != "y" {
		t.Errorf("%v, %v", res, err)
	}
}
