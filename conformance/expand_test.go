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

// expands returns a step that returns graphs for the nodes of the given paths, and performs other nodes with step.
func expands(step kahn.StepFunc, graphs map[string]*kahn.Graph) kahn.StepFunc {
	return func(ctx context.Context, s *kahn.Step) (any, error) {
		if g := graphs[s.Path()]; g != nil {
			return nil, kahn.Expand(g, nil, "state")
		}
		return step(ctx, s)
	}
}

// expansions are the graphs that the steps of some nodes return, by path.
type expansions = map[string]*kahn.Graph

func TestScenarioExpand(t *testing.T) {
	xy := func() *kahn.Graph { return graph(after("x"), after("y", "x")) }

	for _, opts := range [][]kahn.Option{{kahn.Limit(1)}, {kahn.Limit(2)}, {}, {kahn.Waves, kahn.Limit(1)}, {kahn.Waves}} {
		inBubble(t, fmt.Sprintf("a graph is performed as a sub-graph, %v", opts), func(t *testing.T) {
			r := try(t, graph(after("A"), after("E", "A"), after("B", "E")), expands(takes(10*ms), expansions{"E": xy()}), opts...)
			r.expect("A:ok E:ok B:ok", "completed")
			r.order("node.started E", "node.queued E/x", "node.started E/x", "node.completed E/x", "node.started E/y", "node.completed E/y", "node.completed E", "node.started B")
			r.count(event.NodeStarted, "E", 1)
			if out, err := kahn.Output[string](r.Result, "E"); out != "y" || err != nil {
				t.Errorf("E = %q, %v", out, err)
			}
			if n := r.node("E"); n.Sub == nil || n.Sub.Count(kahn.Completed) != 2 || n.Attempts != 1 || n.Duration != 20*ms {
				t.Errorf("E is %+v", n)
			}
		})
		inBubble(t, fmt.Sprintf("in a sub-graph, in an expanded graph, in items and iterations, %v", opts), func(t *testing.T) {
			g := graph(subgraph("S", graph(after("E"))), mapped("M", []string{"a", "b"}, kahn.Map{}), after("F"),
				kahn.Node{ID: "L", Sub: graph(after("E")), Loop: &kahn.Loop{While: whileLess(2), MaxIterations: 3}})
			inner := graph(after("e"), mapped("m", []int{1}, kahn.Map{}))
			r := try(t, g, expands(takes(10*ms), expansions{"S/E": xy(), "M[0]": xy(), "M[1]": inner, "M[1]/m[0]": xy(), "F": inner, "F/e": xy(), "L#2/E": xy()}), opts...)
			r.expect("S:ok M:ok F:ok L:ok", "completed")
			for _, path := range strings.Fields("S/E/y M[0]/y M[1]/e M[1]/m[0]/y F/e/y F/m[0] L#1/E L#2/E/y") {
				r.count(event.NodeCompleted, path, 1)
			}
			if got := fmt.Sprint(r.node("M").Output); got != "[y map[e:e m:[y]]]" {
				t.Errorf("M came to %s", got)
			}
		})
	}

	inBubble(t, "the order of starts under a limit is that of one graph", func(t *testing.T) {
		for range 20 {
			r := try(t, graph(after("A"), after("E"), after("F"), after("B")), expands(takes(10*ms), expansions{"E": xy(), "F": xy()}), kahn.Limit(1))
			if got := r.started(); got != "A E E/x E/y F F/x F/y B" {
				t.Errorf("started in the order %s", got)
			}
		}
	})
	inBubble(t, "the output routes", func(t *testing.T) {
		g := graph(kahn.Node{ID: "E", Routes: true}, kahn.Node{ID: "X", In: []kahn.Edge{{From: "E", Label: "x"}}}, kahn.Node{ID: "Y", In: []kahn.Edge{{From: "E", Label: "y"}}})
		try(t, g, expands(takes(ms), expansions{"E": xy()})).expect("E:ok X:S/br Y:ok", "completed")
	})
	inBubble(t, "what all skip themselves", func(t *testing.T) {
		g := graph(after("E"), after("B", "E"))
		r := try(t, g, expands(takes(ms), expansions{"E": graph(kahn.Node{ID: "x", Disabled: true})}))
		if n := r.node("E"); n.Status != kahn.Skipped || n.Skip.Kind != kahn.SkipSelf {
			t.Errorf("E is %+v", n)
		}
		r = try(t, graph(after("E")), expands(takes(ms), expansions{"E": graph()}))
		r.expect("E:ok", "completed") // the graph is empty
	})
	inBubble(t, "inputs", func(t *testing.T) {
		inner := graph(kahn.Node{ID: "x", Ports: []kahn.Port{{Name: "in", Required: true}}})
		inner.Inputs = []kahn.Input{{Name: "in"}}
		inputs := map[string]any{"in": []int{1}}
		step := func(_ context.Context, s *kahn.Step) (any, error) {
			if s.ID() == "E" {
				err := kahn.Expand(inner, inputs, nil)
				inputs["in"] = "changed"
				return nil, err
			}
			v, _ := s.Param("in")
			list := v.([]int)
			list[0]++
			_, own := s.Root("own")
			return []any{list, own}, nil
		}
		e := kahn.Node{ID: "E", Params: map[string]any{"own": 1}}
		clone := kahn.CloneInputs(func(v any) any {
			if list, ok := v.([]int); ok {
				return slices.Clone(list)
			}
			return v
		})
		given := inputs["in"].([]int)
		r := try(t, graph(e), step, clone)
		if got := fmt.Sprint(r.node("E").Output); got != "[[2] false]" || given[0] != 1 {
			t.Errorf("E came to %s, given is %v", got, given)
		}
	})
	inBubble(t, "a graph that is changed afterwards", func(t *testing.T) {
		inner, begun := xy(), make(chan struct{})
		step := func(ctx context.Context, s *kahn.Step) (any, error) {
			if s.Path() == "E/x" {
				close(begun)
			}
			return takes(10*ms)(ctx, s)
		}
		r := tryControlled(t, t.Context(), graph(after("E")), expands(step, expansions{"E": inner}), func(*kahn.Run) {
			<-begun
			inner.Add(after("z", "y"))
		})
		if n := r.node("E"); n.Output != "y" || n.Sub.Len() != 2 {
			t.Errorf("E is %+v", n)
		}
	})
	inBubble(t, "defaults and groups are those of the graph around it", func(t *testing.T) {
		inner := func() *kahn.Graph { return graph(kahn.Node{ID: "x", Groups: []string{"db"}}) }
		e := func(id string) kahn.Node { return kahn.Node{ID: id, Timeout: kahn.NoTimeout} }
		g := graph(e("E"), e("F"), subgraph("S", graph(e("E"))))
		g.Groups = []kahn.Group{{Name: "db", Limit: 1}}
		g.Defaults.Timeout = 50 * ms
		r := try(t, g, expands(takes(10*ms), expansions{"E": inner(), "F": inner(), "S/E": inner()}))
		r.expect("E:ok F:ok S:ok", "completed")
		if r.Duration != 30*ms {
			t.Errorf("it took %v", r.Duration)
		}
		r = try(t, g, expands(takes(60*ms), expansions{"E": inner()}))
		if n, _ := r.node("E").Sub.Node("x"); n.Status != kahn.Failed || n.Cause.Kind != kahn.CauseTimeout {
			t.Errorf("E/x is %+v", n)
		}
	})
}

// TestExpandReleasesSlots: the slots of an expanded node's step are free for the nodes inside.
func TestExpandReleasesSlots(t *testing.T) {
	inner := func() *kahn.Graph { return graph(kahn.Node{ID: "x", Groups: []string{"g"}, Key: "k"}) }
	e := func(id string) kahn.Node { return kahn.Node{ID: id, Groups: []string{"g"}, Key: "k"} }
	g := func() *kahn.Graph {
		g := graph(e("E"), e("F"))
		g.Groups = []kahn.Group{{Name: "g", Limit: 1}}
		return g
	}
	step := func(ctx context.Context, s *kahn.Step) (any, error) {
		v, err := takes(10*ms)(ctx, s)
		if err == nil && (s.Path() == "E" || s.Path() == "F") {
			return nil, kahn.Expand(inner(), nil, nil)
		}
		return v, err
	}
	for _, opts := range [][]kahn.Option{nil, {kahn.Limit(1)}, {kahn.Limit(3)}, {kahn.KeyLimit(1)}, {kahn.KeyLimit(1), kahn.Limit(1)}} {
		inBubble(t, fmt.Sprint(opts), func(t *testing.T) {
			r := try(t, g(), step, opts...)
			r.expect("E:ok F:ok", "completed")
			if r.Duration != 40*ms {
				t.Errorf("it took %v\n%s", r.Duration, eventText(r.events))
			}
		})
	}
	inBubble(t, "tokens", func(t *testing.T) {
		r := try(t, graph(after("E")), expands(takes(0), expansions{"E": graph(after("x"), after("y"))}), kahn.Rate{Starts: 1, Per: 10 * ms})
		r.expect("E:ok", "completed")
		if r.Duration != 20*ms { // three starts, one per 10 ms
			t.Errorf("it took %v", r.Duration)
		}
	})
	inBubble(t, "an item is performed until what is inside has ended", func(t *testing.T) {
		r := try(t, graph(mapped("M", []int{1, 2, 3}, kahn.Map{Limit: 1})), expands(takes(10*ms), expansions{"M[0]": graph(after("x")), "M[1]": graph(after("x"))}))
		r.expect("M:ok", "completed")
		r.order("node.completed M[0]", "node.started M[1]", "node.completed M[1]", "node.started M[2]")
	})
	inBubble(t, "siblings of a group", func(t *testing.T) {
		g := graph(after("E"), kahn.Node{ID: "A", Groups: []string{"g"}}, kahn.Node{ID: "B", Groups: []string{"g"}}, subgraph("S", graph(after("E"))))
		g.Groups = []kahn.Group{{Name: "g", CancelOnFailure: true}}
		step := expands(takes(20*ms), expansions{"E": inner(), "S/E": inner()})
		r := try(t, g, func(ctx context.Context, s *kahn.Step) (any, error) {
			if s.Path() == "A" {
				return fails(10*ms)(ctx, s)
			}
			return step(ctx, s)
		})
		r.count(event.NodeAborted, "E/x", 1)
		r.count(event.NodeAborted, "S/E/x", 1)
		r.cause("B", kahn.CauseSiblingFailure)
	})
}

func TestExpandIsRefused(t *testing.T) {
	needs := graph(kahn.Node{ID: "x", Ports: []kahn.Port{{Name: "in", Required: true}}})
	needs.Inputs = []kahn.Input{{Name: "in"}}
	node := func(n kahn.Node) *kahn.Graph { return graph(n) }
	e := after("E")
	for name, c := range map[string]struct {
		g, inner *kahn.Graph
		cause    kahn.CauseKind
		is       error
		opts     []kahn.Option
	}{
		"nil graph":  {graph(e), nil, kahn.CauseContractOutput, kahn.ErrNoGraph, nil},
		"cycle":      {graph(e), graph(after("a", "b"), after("b", "a")), kahn.CauseContractOutput, kahn.ErrCycle, nil},
		"no input":   {graph(e), needs, kahn.CauseContractOutput, kahn.ErrMissingInput, nil},
		"no kind":    {graph(kahn.Node{ID: "E", Kind: "plan"}), node(kahn.Node{ID: "x", Kind: "plam"}), kahn.CauseContractOutput, kahn.ErrUnknownKind, []kahn.Option{kahn.Kinds(kahn.Mux{"plan": nop})}},
		"no group":   {graph(e), node(kahn.Node{ID: "x", Groups: []string{"g"}}), kahn.CauseContractOutput, kahn.ErrBadValue, nil},
		"taken path": {graph(e, after("E/x")), graph(after("x")), kahn.CauseContractOutput, kahn.ErrBadValue, nil},
		"moderator":  {graph(e), node(kahn.Node{ID: "x", Moderation: kahn.ModerateBoth}), kahn.CauseContractOutput, kahn.ErrNoModerator, nil},
		"state":      {graph(e), graph(after("x")), kahn.CauseStoreError, kahn.ErrNotEncodable, []kahn.Option{kahn.Encoding(kahn.Types{})}},
		"end":        {graph(kahn.Node{ID: "E", Kind: kahn.KindEnd}), graph(after("x")), kahn.CauseStepError, kahn.ErrBadEnd, nil},
	} {
		inBubble(t, name, func(t *testing.T) {
			r := try(t, c.g, func(_ context.Context, s *kahn.Step) (any, error) {
				if s.Path() == "E" {
					return nil, kahn.Expand(c.inner, nil, make(chan int))
				}
				return nil, nil
			}, c.opts...)
			n := r.node("E")
			if n.Status != kahn.Failed || n.Cause.Kind != c.cause || !errors.Is(n.Err, c.is) || n.Sub != nil {
				t.Errorf("E is %+v", n)
			}
		})
	}
	inBubble(t, "no step function", func(t *testing.T) {
		g := graph(kahn.Node{ID: "E", Do: func(context.Context, *kahn.Step) (any, error) { return nil, kahn.Expand(graph(after("x")), nil, nil) }})
		r := try(t, g, nil)
		if n := r.node("E"); n.Cause.Kind != kahn.CauseContractOutput || !errors.Is(n.Err, kahn.ErrNoStep) {
			t.Errorf("E is %+v", n)
		}
	})
	inBubble(t, "a test", func(t *testing.T) {
		r := try(t, graph(kahn.Node{ID: "E", Test: func(kahn.View) (any, error) { return nil, kahn.Expand(graph(after("x")), nil, nil) }}), nil)
		r.cause("E", kahn.CauseConditionError)
	})
	inBubble(t, "a fallback", func(t *testing.T) {
		r := try(t, graph(kahn.Node{ID: "E", Fallback: func(context.Context, error) (any, error) { return nil, kahn.Expand(graph(after("x")), nil, nil) }}), fails(ms))
		r.cause("E", kahn.CauseStepError)
	})
	for depth, want := range map[int]string{32: "E:ok", 33: "E:F"} {
		inBubble(t, fmt.Sprintf("%d deep", depth), func(t *testing.T) {
			r := try(t, graph(after("E")), func(_ context.Context, s *kahn.Step) (any, error) {
				if strings.Count(s.Path(), "/") < depth {
					return nil, kahn.Expand(graph(after("E")), nil, nil)
				}
				return nil, nil
			})
			if got := strings.Fields(r.started()); len(got) != 33 {
				t.Errorf("%d starts", len(got))
			}
			if n := r.node("E"); "E:"+shortStatus(n) != want || n.Status == kahn.Failed && n.Cause.Kind != kahn.CauseSubrun {
				t.Errorf("E is %+v", n)
			}
		})
	}
}

func TestExpandFails(t *testing.T) {
	bad := graph(after("bad"))
	retry := kahn.Retry{MaxAttempts: 2, InitialDelay: 10 * ms, Jitter: kahn.JitterNone}

	inBubble(t, "a new attempt returns another graph", func(t *testing.T) {
		r := try(t, graph(kahn.Node{ID: "E", Retry: retry}), func(_ context.Context, s *kahn.Step) (any, error) {
			switch {
			case s.Path() == "E/bad":
				return nil, errStep
			case s.Path() != "E":
				return "good", nil
			case s.SavedState() != nil:
				t.Errorf("attempt %d has the state %v", s.Attempt(), s.SavedState())
			case s.Attempt() == 2 && errors.Is(s.LastErr(), errStep):
				return nil, kahn.Expand(graph(after("good")), nil, 2)
			}
			return nil, kahn.Expand(bad, nil, 1)
		})
		r.expect("E:ok", "completed")
		r.order("node.failed E/bad", "node.retried E", "node.queued E", "node.started E", "node.completed E/good", "node.completed E")
		if n := r.node("E"); n.Output != "good" || n.Attempts != 2 || n.Sub.Len() != 1 {
			t.Errorf("E is %+v", n)
		}
	})
	inBubble(t, "a later attempt is one like any other", func(t *testing.T) {
		slow := func(ctx context.Context, s *kahn.Step) (any, error) {
			switch {
			case s.Path() == "E/bad":
				return nil, errStep
			case s.Attempt() == 1:
				return nil, kahn.Expand(bad, nil, 1)
			}
			return untilStopped(ctx, s)
		}
		r := tryControlled(t, t.Context(), graph(kahn.Node{ID: "E", Retry: retry}), slow, func(run *kahn.Run) {
			time.Sleep(50 * ms)
			run.Cancel()
		})
		r.expect("E:C", "cancelled")
		if r.Duration != 50*ms {
			t.Errorf("it took %v", r.Duration)
		}
	})
	inBubble(t, "the run's default retry", func(t *testing.T) {
		r := try(t, graph(after("E")), expands(fails(ms), expansions{"E": graph(kahn.Node{ID: "bad", Retry: kahn.Retry{MaxAttempts: 1}})}), retry)
		r.cause("E", kahn.CauseSubrun)
		r.count(event.NodeFailed, "E/bad", 2)
	})
	inBubble(t, "a fallback, and a contract", func(t *testing.T) {
		fallback := func(_ context.Context, err error) (any, error) { return errors.Is(err, errStep), nil }
		r := try(t, graph(kahn.Node{ID: "E", Fallback: fallback}), expands(fails(ms), expansions{"E": bad}))
		if n := r.node("E"); n.Output != true || !n.Fallback {
			t.Errorf("E is %+v", n)
		}
		r = try(t, graph(kahn.Node{ID: "E", OutputSchema: outputs("y")}, kahn.Node{ID: "F", OutputSchema: outputs("z")}),
			expands(takes(ms), expansions{"E": graph(after("x"), after("y", "x")), "F": graph(after("x"))}))
		r.expect("E:ok F:F", "failed")
		r.cause("F", kahn.CauseContractOutput)
	})
	inBubble(t, "the timeout spans the step and the run", func(t *testing.T) {
		step := func(ctx context.Context, s *kahn.Step) (any, error) {
			_, err := takes(30*ms)(ctx, s)
			if s.Path() == "E" && err == nil {
				err = kahn.Expand(graph(after("x")), nil, nil)
			}
			return nil, err
		}
		r := try(t, graph(kahn.Node{ID: "E", Timeout: 50 * ms}), step)
		r.cause("E", kahn.CauseTimeout)
		r.count(event.NodeAborted, "E/x", 1)
		if r.Duration != 50*ms {
			t.Errorf("it took %v", r.Duration)
		}
		r = try(t, graph(kahn.Node{ID: "E", OverallTimeout: 50 * ms, Retry: retry}), step)
		r.cause("E", kahn.CauseTimeout)
		if r.Duration != 50*ms {
			t.Errorf("it took %v", r.Duration)
		}
	})
}

// outputs is a contract to which exactly one string conforms.
type outputs string

func (c outputs) Check(v any) []kahn.Violation {
	if v == string(c) {
		return nil
	}
	return []kahn.Violation{{Message: fmt.Sprint("not ", string(c))}}
}

func TestExpandIsStopped(t *testing.T) {
	inner := func() *kahn.Graph { return graph(after("x"), after("y", "x"), kahn.Node{ID: "c", Cleanup: true}) }
	for name, stop := range map[string]func(*kahn.Run){
		"Cancel":   func(r *kahn.Run) { r.Cancel() },
		"AbortAll": func(run *kahn.Run) { run.AbortAll(errHost) },
		"node":     func(run *kahn.Run) { _ = run.CancelNode("E") },
	} {
		for _, opts := range [][]kahn.Option{nil, {kahn.Limit(1)}, {kahn.Drain}, {kahn.Drain, kahn.Limit(1)}} {
			inBubble(t, fmt.Sprint(name, opts), func(t *testing.T) {
				r := tryControlled(t, t.Context(), graph(after("E"), after("B", "E")), expands(takes(10*ms), expansions{"E": inner()}), func(run *kahn.Run) {
					time.Sleep(5 * ms)
					stop(run)
				}, opts...)
				if n := r.node("E"); n.Status != kahn.Aborted && n.Status != kahn.Cancelled {
					t.Errorf("E is %+v", n)
				}
				r.count(event.NodeCompleted, "E/c", 1)
				r.count(event.NodeStarted, "E/y", 0)
			})
		}
	}
	inBubble(t, "a node that is to stop is not expanded", func(t *testing.T) {
		step := func(ctx context.Context, s *kahn.Step) (any, error) {
			time.Sleep(10 * ms)
			return nil, kahn.Expand(inner(), nil, nil)
		}
		for _, mode := range []kahn.StopMode{kahn.Interrupt, kahn.Drain} {
			r := tryControlled(t, t.Context(), graph(after("E")), step, func(run *kahn.Run) {
				time.Sleep(5 * ms)
				run.Cancel()
			}, mode)
			r.expect("E:C", "cancelled")
			if r.node("E").Sub != nil {
				t.Errorf("%v: it was expanded", mode)
			}
		}
	})
	inBubble(t, "what ignores its context is abandoned", func(t *testing.T) {
		block := make(chan struct{})
		r := tryControlled(t, t.Context(), graph(after("E")), expands(func(context.Context, *kahn.Step) (any, error) { <-block; return nil, nil }, expansions{"E": graph(after("x"))}),
			func(run *kahn.Run) { time.Sleep(ms); run.Cancel() }, kahn.CancelGrace(20*ms))
		close(block)
		if !slices.Equal(r.Abandoned, []string{"E/x"}) {
			t.Errorf("abandoned %v", r.Abandoned)
		}
	})
	inBubble(t, "cleanup nodes are expanded in a run that stops", func(t *testing.T) {
		g := graph(after("A"), kahn.Node{ID: "E", Cleanup: true, After: []string{"A"}})
		r := tryControlled(t, t.Context(), g, expands(takes(10*ms), expansions{"E": inner()}), func(run *kahn.Run) { time.Sleep(ms); run.Cancel() })
		r.expect("A:C E:ok", "cancelled")
		r.count(event.NodeCompleted, "E/y", 1)
	})
}

func TestExpandInTestMode(t *testing.T) {
	inner := func() *kahn.Graph { return graph(after("x"), gate("g", "x"), after("y", "g")) }
	g := graph(after("E"), mapped("M", []int{1}, kahn.Map{}))
	step := expands(takes(ms), expansions{"E": inner(), "M[0]": inner()})
	inBubble(t, "mocks of nodes inside", func(t *testing.T) {
		r := try(t, g, step, kahn.TestMode{Mocks: map[string]kahn.Mock{"E/x": {Value: "mocked"}, "M/y": {Value: "item"}},
			Assertions: []kahn.Assertion{kahn.AssertStatus("E/y", kahn.Completed), kahn.AssertStatus("E/x", kahn.Completed)}})
		r.expect("E:ok M:ok", "completed")
		r.count("node.mocked", "E/x", 1)
		r.count("node.mocked", "M[0]/y", 1)
		if r.Test.Failed != 0 || fmt.Sprint(r.node("M").Output) != "[item]" {
			t.Errorf("%v, M came to %v", r.Test.Failures, r.node("M").Output)
		}
	})
	inBubble(t, "the expander is mocked", func(t *testing.T) {
		r := try(t, g, neverStep(t), kahn.TestMode{Mocks: map[string]kahn.Mock{"E": {Value: 1}, "M": {Value: 2}}})
		r.expect("E:ok M:ok", "completed")
		if r.node("E").Sub != nil {
			t.Error("E was expanded")
		}
	})
	inBubble(t, "a mock expands", func(t *testing.T) {
		r := try(t, g, takes(ms), kahn.TestMode{Mocks: map[string]kahn.Mock{"E": {Err: kahn.Expand(inner(), nil, nil)}, "M": {}}})
		r.expect("E:ok M:ok", "completed")
		r.count(event.NodeCompleted, "E/y", 1)
	})
	inBubble(t, "a gate that does not take approved", func(t *testing.T) {
		picky := graph(kahn.Node{ID: "g", Kind: kahn.KindGate, Gate: &kahn.Gate{Choices: []string{"a"}}})
		r := try(t, graph(after("E")), expands(takes(ms), expansions{"E": picky}), kahn.TestMode{})
		if n := r.node("E"); !errors.Is(n.Err, kahn.ErrNoMock) || n.Cause.Kind != kahn.CauseContractOutput {
			t.Errorf("E is %+v", n)
		}
	})
}

func TestExpandIsMemoized(t *testing.T) {
	inBubble(t, "by the output of the graph", func(t *testing.T) {
		memo := new(kahn.Memo)
		var p paths
		step := p.count(expands(takes(ms), expansions{"E": graph(after("x"))}))
		g := graph(kahn.Node{ID: "E", Memo: "v1"})
		for i, want := range []string{"map[E:1 E/x:1]", "map[E:1 E/x:1]"} {
			r := try(t, g, step, memo)
			if n := r.node("E"); n.Output != "x" || n.Memoized != (i > 0) {
				t.Errorf("E is %+v", n)
			}
			if got := fmt.Sprint(p.n); got != want {
				t.Errorf("called: %s", got)
			}
		}
		r := try(t, graph(kahn.Node{ID: "F", Memo: "v1"}), expands(fails(ms), expansions{"F": graph(after("x"))}), memo)
		r.expect("F:F", "failed")
		r = try(t, graph(kahn.Node{ID: "F", Memo: "v1"}), expands(takes(ms), expansions{"F": graph(after("x"))}), memo)
		if n := r.node("F"); n.Memoized || n.Output != "x" {
			t.Errorf("F is %+v", n)
		}
	})
}

// TestExpandPlain: many workers perform plain nodes while another node is expanded.
func TestExpandPlain(t *testing.T) {
	t.Parallel()
	g := new(kahn.Graph)
	for i := range 200 {
		g.Add(after(fmt.Sprint("a", i)), after(fmt.Sprint("b", i), fmt.Sprint("a", i)))
	}
	inner := graph(after("x"), after("y", "x"))
	for range size(8, 3, 200) {
		r := try(t, g, func(_ context.Context, s *kahn.Step) (any, error) {
			if strings.HasSuffix(s.ID(), "7") && !strings.Contains(s.Path(), "/") {
				return nil, kahn.Expand(inner, nil, nil)
			}
			return s.ID(), nil
		})
		if r.Status != kahn.RunCompleted || r.Count(kahn.Completed) != 400 {
			t.Fatal(r.Status, r.err)
		}
	}
}
