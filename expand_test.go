package kahn_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-c794f7ef/kahn"
)

// expands is a step that returns graphs for the nodes of the given paths, and performs the others with step.
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
			r.count(kahn.EventNodeStarted, "E", 1)
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
				r.count(kahn.EventNodeCompleted, path, 1)
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
		r.expect("E:ok", "completed") // nothing to do
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

// TestExpandReleasesSlots: what the step of an expanded node held is free for what is inside.
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
		r := try(t, graph(after("E")), expands(takes(0), expansions{"E": graph(after("x"), after("y"))}), kahn.StartRate(kahn.Rate{Starts: 1, Per: 10 * ms}))
		r.expect("E:ok", "completed")
		if r.Duration != 20*ms { // three starts
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
		r.count(kahn.EventNodeAborted, "E/x", 1)
		r.count(kahn.EventNodeAborted, "S/E/x", 1)
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
		r := try(t, graph(after("E")), expands(fails(ms), expansions{"E": graph(kahn.Node{ID: "bad", Retry: kahn.Retry{MaxAttempts: 1}})}), kahn.DefaultRetry(retry))
		r.cause("E", kahn.CauseSubrun)
		r.count(kahn.EventNodeFailed, "E/bad", 2)
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
		r.count(kahn.EventNodeAborted, "E/x", 1)
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

// outputs is a contract of one value.
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
		"Cancel":   (*kahn.Run).Cancel,
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
				r.count(kahn.EventNodeCompleted, "E/c", 1)
				r.count(kahn.EventNodeStarted, "E/y", 0)
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
		r.count(kahn.EventNodeCompleted, "E/y", 1)
	})
}

// planner is a step that returns graphs, and keeps what it was asked.
type planner struct {
	paths
	graphs expansions
	states []any // that the step of an expanded node was given
}

func (p *planner) step(step kahn.StepFunc) kahn.StepFunc {
	return p.count(func(ctx context.Context, s *kahn.Step) (any, error) {
		if g := p.graphs[s.Path()]; g != nil {
			p.mu.Lock()
			p.states = append(p.states, s.SavedState())
			p.mu.Unlock()
			return nil, kahn.Expand(g, nil, fmt.Sprint("plan of ", s.Path(), ", attempt ", s.Attempt()))
		}
		return step(ctx, s)
	})
}

func TestExpandGoesOn(t *testing.T) {
	xyz := func() *kahn.Graph { return graph(after("x"), after("y", "x"), after("z", "y")) }
	twice := kahn.Retry{MaxAttempts: 2, InitialDelay: ms, Jitter: kahn.JitterNone}

	for _, opts := range [][]kahn.Option{nil, {kahn.Limit(1)}, {kahn.Waves}} {
		inBubble(t, fmt.Sprintf("the step is called again, %v", opts), func(t *testing.T) {
			p := &planner{graphs: expansions{"E": xyz()}}
			g := graph(after("E"), after("B", "E"))
			r := left(t, g, p.step(takes(10*ms)), 15*ms, opts...)
			r = r.resume(g, p.step(takes(10*ms)), nil, opts...)
			r.expect("E:ok B:ok", "completed")
			if got := fmt.Sprint(p.states, p.n); got != "[<nil> plan of E, attempt 1] map[B:1 E:2 E/x:1 E/y:1 E/z:1]" {
				t.Errorf("called: %s", got)
			}
			if n := r.node("E"); n.Attempts != 1 || n.Output != "z" || n.Sub.Count(kahn.Completed) != 3 {
				t.Errorf("E is %+v", n)
			}
		})
	}
	inBubble(t, "no event tells of it", func(t *testing.T) {
		p := &planner{graphs: expansions{"E": xyz()}}
		g := graph(after("E"))
		rec := newRecorder()
		s := crashed(t, g, p.step(takes(10*ms)), 15*ms, kahn.OnEvent(rec.add))
		last := slices.IndexFunc(rec.all(), func(e kahn.Event) bool { return e.Type == kahn.EventNodeStarted && e.Path == "E/y" })
		r := trial{nil, t, nil, rec.all()[:last+1]}
		again := newRecorder()
		res, err := kahn.Resume(t.Context(), g, p.step(takes(10*ms)), s, nil, kahn.OnEvent(again.add))
		r = trial{res, t, err, append(r.events, again.all()...)}
		r.expect("E:ok", "completed")
		checkEvents(t, g, res, r.events)
		r.count(kahn.EventNodeQueued, "E", 1)
		r.count(kahn.EventNodeStarted, "E", 1)
		r.count(kahn.EventNodeStarted, "E/y", 2)
		if r.node("E").Attempts != 1 || p.n["E"] != 2 || p.n["E/x"] != 1 {
			t.Errorf("called: %v", p.n)
		}
	})
	inBubble(t, "in the same attempt", func(t *testing.T) {
		p := &planner{graphs: expansions{"E": xyz()}}
		failing := p.step(func(ctx context.Context, s *kahn.Step) (any, error) {
			if p.n["E/x"] == 1 {
				return nil, errStep
			}
			return takes(10*ms)(ctx, s)
		})
		g := graph(kahn.Node{ID: "E", Retry: twice})
		r := left(t, g, failing, 15*ms).resume(g, failing, nil)
		r.expect("E:ok", "completed")
		if got := fmt.Sprint(p.states); got != "[<nil> <nil> plan of E, attempt 2]" || r.node("E").Attempts != 2 {
			t.Errorf("states %s, %d attempts", got, r.node("E").Attempts)
		}
	})

	changed := func(second kahn.StepFunc) func(ctx context.Context, s *kahn.Step) (any, error) {
		return func(ctx context.Context, s *kahn.Step) (any, error) {
			switch {
			case s.Path() != "E":
				return takes(10*ms)(ctx, s)
			case s.SavedState() != nil:
				return second(ctx, s)
			}
			return nil, kahn.Expand(xyz(), nil, "state")
		}
	}
	for name, c := range map[string]struct {
		step  kahn.StepFunc
		cause kahn.CauseKind
		is    error
	}{
		"another graph": {func(context.Context, *kahn.Step) (any, error) { return nil, kahn.Expand(graph(after("x")), nil, 1) }, kahn.CauseSubrun, kahn.ErrGraphChanged},
		"a value":       {func(context.Context, *kahn.Step) (any, error) { return 1, nil }, kahn.CauseSubrun, kahn.ErrGraphChanged},
		"a skip":        {func(context.Context, *kahn.Step) (any, error) { return nil, kahn.Skip("no") }, kahn.CauseSubrun, kahn.ErrGraphChanged},
		"a wait":        {func(context.Context, *kahn.Step) (any, error) { return nil, kahn.Suspend("", nil, nil) }, kahn.CauseSubrun, kahn.ErrGraphChanged},
		"an error":      {fails(ms), kahn.CauseStepError, errStep},
		"a panic":       {func(context.Context, *kahn.Step) (any, error) { panic("no") }, kahn.CausePanic, nil},
	} {
		inBubble(t, name, func(t *testing.T) {
			g := graph(after("E"))
			r := left(t, g, changed(c.step), 15*ms)
			r = r.resume(g, changed(c.step), nil)
			r.cause("E", c.cause)
			if n := r.node("E"); n.Attempts != 1 || c.is != nil && !errors.Is(n.Err, c.is) {
				t.Errorf("E is %+v", n)
			}
			r.count(kahn.EventNodeStarted, "E", 1)
			g = graph(kahn.Node{ID: "E", Retry: kahn.Retry{MaxAttempts: 2, InitialDelay: ms, RetryOn: []kahn.CauseKind{kahn.CauseStepError, kahn.CausePanic}}})
			r = left(t, g, changed(c.step), 15*ms).resume(g, changed(c.step), nil)
			r.expect("E:ok", "completed") // a new attempt has no state
			if n := r.node("E"); n.Attempts != 2 || n.Sub.Len() != 3 {
				t.Errorf("E is %+v", n)
			}
		})
	}
	inBubble(t, "it is left again before the graph is known", func(t *testing.T) {
		p := &planner{graphs: expansions{"E": graph(after("x"), gate("g"), after("y", "x", "g"))}}
		g := graph(after("E"))
		r := left(t, g, p.step(takes(10*ms)), 5*ms)
		slow := p.step(takes(10 * ms))
		for range 3 { // the step does not return in time
			rec := newRecorder()
			rn := new(kahn.Runner)
			run, err := rn.Start(t.Context(), g, func(ctx context.Context, s *kahn.Step) (any, error) {
				if s.Path() == "E" {
					return untilStopped(ctx, s)
				}
				return slow(ctx, s)
			}, kahn.ResumeFrom(reload(t, r.Snapshot()), nil), kahn.OnEvent(rec.add))
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(5 * ms)
			ctx, cancel := context.WithTimeout(t.Context(), ms)
			_ = rn.Shutdown(ctx)
			cancel()
			res, err := run.Wait()
			r = trial{res, t, err, append(r.events, rec.all()...)}
			checkEvents(t, g, res, r.events)
			if res.Status != kahn.RunSuspended {
				t.Fatalf("it is %v\n%s", res.Status, eventText(r.events))
			}
		}
		if got := fmt.Sprint(r.Snapshot().Waiting()); got != "[E/g]" {
			t.Errorf("waiting: %s", got)
		}
		r = r.resume(g, slow, map[string]any{"E/g": true})
		r.expect("E:ok", "completed")
		if n := r.node("E"); n.Attempts != 1 {
			t.Errorf("E is %+v", n)
		}
		r.count(kahn.EventNodeStarted, "E", 2) // the second time when what is inside goes on
	})
	for _, limit := range []int{0, 1, 2} {
		inBubble(t, fmt.Sprintf("a step that is interrupted returns its graph, limit %d", limit), func(t *testing.T) {
			g := graph(kahn.Node{ID: "E", Priority: 1}, after("B"), subgraph("S", graph(after("x"), kahn.Node{ID: "c", Cleanup: true})))
			step := func(ctx context.Context, s *kahn.Step) (any, error) {
				if s.Path() == "E" {
					time.Sleep(10 * ms)
					return nil, kahn.Expand(xyz(), nil, "state")
				}
				return takes(10*ms)(ctx, s)
			}
			rn, rec := new(kahn.Runner), newRecorder()
			run, err := rn.Start(t.Context(), g, step, kahn.Limit(limit), kahn.OnEvent(rec.add))
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(5 * ms)
			if err := run.CancelNode("S"); err != nil { // its cleanup is not left
				t.Error(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			_ = rn.Shutdown(ctx)
			select {
			case <-run.Done():
			case <-time.After(time.Second):
				t.Fatalf("it has not ended\n%s", eventText(rec.all()))
			}
			res, err := run.Wait()
			r := trial{res, t, err, rec.all()}
			checkEvents(t, g, res, r.events)
			r = r.resume(g, step, nil, kahn.Limit(limit))
			r.expect("E:ok B:ok S:C", "cancelled")
			r.count(kahn.EventNodeCompleted, "S/c", 1)
			if n := r.node("E"); n.Attempts != 1 {
				t.Errorf("E is %+v", n)
			}
		})
	}
	inBubble(t, "what has ended", func(t *testing.T) {
		p := &planner{graphs: expansions{"E": xyz()}}
		g := graph(after("E"), gate("B", "E"))
		r := left(t, g, p.step(takes(10*ms)), 35*ms)
		if n := r.node("E"); n.Status != kahn.Completed {
			t.Fatalf("E is %+v", n)
		}
		again, err := kahn.Resume(t.Context(), g, takes(10*ms), r.Snapshot(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if n, _ := again.Node("E"); n.Sub == nil || n.Sub.Count(kahn.Completed) != 3 {
			t.Errorf("in the same process E is %+v", n)
		}
		next := r.resume(g, neverStep(t), map[string]any{"B": true})
		if n := next.node("E"); n.Sub != nil || n.Output != "z" {
			t.Errorf("from a file E is %+v", n)
		}
		redriven := next.redrive(g, p.step(takes(10*ms)), "E")
		if n := redriven.node("E"); n.Sub == nil || n.Output != "z" {
			t.Errorf("driven again E is %+v", n)
		}
	})
	inBubble(t, "a run that is stopped before the graph is known", func(t *testing.T) {
		p := &planner{graphs: expansions{"E": graph(after("x"), gate("g"))}}
		g := graph(after("E"))
		r := left(t, g, p.step(takes(10*ms)), 5*ms)
		rec := newRecorder()
		run, err := kahn.Start(t.Context(), g, untilStopped, kahn.ResumeFrom(reload(t, r.Snapshot()), nil), kahn.OnEvent(rec.add))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * ms)
		run.Cancel()
		res, err := run.Wait()
		r = trial{res, t, err, append(r.events, rec.all()...)}
		r.expect("E:C", "cancelled")
		checkEvents(t, g, res, r.events)
	})
	inBubble(t, "a store", func(t *testing.T) {
		store := new(kahn.MemoryStore)
		p := &planner{graphs: expansions{"E": graph(after("x"), after("F", "x")), "E/F": xyz(), "M[1]": xyz()}}
		g := graph(after("E"), mapped("M", []int{1, 2}, kahn.Map{}))
		opts := []kahn.Option{kahn.Durable(store), kahn.RunID("r"), kahn.Encoding(kahn.Types{"ints": []int(nil)})}
		r := left(t, g, p.step(takes(10*ms)), 15*ms, opts...)
		r = r.goOn(g, p.step(takes(10*ms)), opts)
		r.expect("E:ok M:ok", "completed")
		for path, n := range p.n {
			if want := map[bool]int{false: 1, true: 2}[p.graphs[path] != nil]; n != want {
				t.Errorf("%s was called %d times", path, n)
			}
		}
	})
}

func TestExpandWaits(t *testing.T) {
	inner := func() *kahn.Graph { return graph(gate("g"), after("x", "g"), after("w")) }
	for _, opts := range [][]kahn.Option{nil, {kahn.Limit(1)}, {kahn.SuspendStop}} {
		inBubble(t, fmt.Sprintf("a signal by path and by token, %v", opts), func(t *testing.T) {
			step := expands(waitsOnce("E/w"), expansions{"E": inner()})
			r := tryControlled(t, t.Context(), graph(after("E")), step, func(run *kahn.Run) {
				time.Sleep(50 * ms)
				if got := fmt.Sprint(run.Waiting()[0].Node, run.Waiting()[1].Node, run.Status()); got != "E/gE/wsuspended" {
					t.Errorf("waiting: %s", got)
				}
				if err := errors.Join(run.Signal("E/g", true), run.Signal("E/w", 1)); err != nil {
					t.Error(err)
				}
			}, opts...)
			r.expect("E:ok", "completed")
		})
		inBubble(t, fmt.Sprintf("answers for what is inside of a graph that is not known, %v", opts), func(t *testing.T) {
			p := &planner{graphs: expansions{"E": graph(after("F")), "E/F": inner()}}
			g := graph(after("E"))
			r := left(t, g, p.step(waitsOnce("E/F/w")), 50*ms, opts...)
			for name, err := range map[string]error{"E/F/q": kahn.ErrUnknownGate, "E/F/x": kahn.ErrUnknownGate} {
				if _, got := kahn.Resume(t.Context(), g, nop, reload(t, r.Snapshot()), map[string]any{name: 1}); !errors.Is(got, err) {
					t.Errorf("a signal for %s: %v", name, got)
				}
			}
			step := p.step(waitsOnce("E/F/w"))
			r = r.resume(g, step, map[string]any{"E/F/w": 1}, opts...)
			if got := fmt.Sprint(r.Status, r.Waiting[0].Node, len(r.Waiting)); got != "suspendedE/F/g1" {
				t.Errorf("it is %s", got)
			}
			r = r.resume(g, step, map[string]any{"E/F/g": true}, opts...)
			r.expect("E:ok", "completed")
			p.mu.Lock()
			defer p.mu.Unlock()
			if got := fmt.Sprint(p.n); got != "map[E:3 E/F:3 E/F/w:2 E/F/x:1]" {
				t.Errorf("called: %s", got)
			}
		})
	}
	inBubble(t, "a signal while the step is called again", func(t *testing.T) {
		g := graph(after("E"))
		step := expands(waitsOnce("E/w"), expansions{"E": inner()})
		r := left(t, g, step, 50*ms)
		slow := func(ctx context.Context, s *kahn.Step) (any, error) {
			if s.Path() == "E" {
				time.Sleep(10 * ms)
			}
			return step(ctx, s)
		}
		rec := newRecorder()
		run, err := kahn.Start(t.Context(), g, slow, kahn.ResumeFrom(reload(t, r.Snapshot()), nil), kahn.OnEvent(rec.add))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * ms)
		if err := errors.Join(run.Signal("E/g", true), run.Signal("E/w", 1)); err != nil {
			t.Error(err)
		}
		if err := run.Signal("E/w", 2); !errors.Is(err, kahn.ErrAnswered) {
			t.Error(err)
		}
		if err := run.Signal("E/z", 2); !errors.Is(err, kahn.ErrUnknownGate) {
			t.Error(err)
		}
		if got := reload(t, run.Snapshot()).Waiting(); len(got) > 0 {
			t.Errorf("a snapshot waits for %v", got)
		}
		res, err := run.Wait()
		r = trial{res, t, err, append(r.events, rec.all()...)}
		r.expect("E:ok", "completed")
		checkEvents(t, g, res, r.events)
	})
	inBubble(t, "a signal whose value is encoded while the graph becomes known", func(t *testing.T) {
		g := graph(after("E"))
		step := expands(takes(ms), expansions{"E": graph(gate("g"))})
		r := left(t, g, step, 50*ms)
		slow := func(ctx context.Context, s *kahn.Step) (any, error) {
			time.Sleep(10 * ms)
			return step(ctx, s)
		}
		rec := newRecorder()
		run, err := kahn.Start(t.Context(), g, slow, kahn.ResumeFrom(reload(t, r.Snapshot()), nil), kahn.Encoding(kahn.Types{"slow": slowlyEncoded{}}), kahn.OnEvent(rec.add))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * ms)
		if err := run.Signal("E/g", slowlyEncoded{20 * ms}); err != nil {
			t.Error(err)
			run.Cancel()
		}
		res, err := run.Wait()
		r = trial{res, t, err, append(r.events, rec.all()...)}
		r.expect("E:ok", "completed")
		checkEvents(t, g, res, r.events)
	})
	inBubble(t, "a step that waits before it returns its graph", func(t *testing.T) {
		g := graph(after("E"))
		step := func(_ context.Context, s *kahn.Step) (any, error) {
			answer, ok := s.Resumed()
			switch {
			case s.Path() != "E":
				return s.ID(), nil
			case !ok:
				return nil, kahn.Suspend("plan", nil, "first")
			}
			return nil, kahn.Expand(graph(kahn.Node{ID: answer.(string)}, gate("g")), nil, "second")
		}
		r := left(t, g, step, ms).resume(g, step, map[string]any{"plan": "x"})
		r = r.resume(g, step, map[string]any{"E/g": true})
		r.expect("E:ok", "completed")
		r.count(kahn.EventNodeCompleted, "E/x", 1)
	})
	inBubble(t, "a gate whose time is up while the run is away", func(t *testing.T) {
		g := graph(after("E"))
		step := expands(takes(ms), expansions{"E": graph(kahn.Node{ID: "g", Kind: kahn.KindGate, Gate: &kahn.Gate{Timeout: 50 * ms}})})
		r := left(t, g, step, 10*ms)
		time.Sleep(100 * ms)
		r = r.resume(g, step, map[string]any{"E/g": true})
		r.cause("E", kahn.CauseSubrun)
		if n, _ := r.node("E").Sub.Node("g"); n.Cause.Kind != kahn.CauseGateTimeout {
			t.Errorf("E/g is %+v", n)
		}
	})
}

// slowlyEncoded is a value whose encoding takes a while.
type slowlyEncoded struct{ takes time.Duration }

func (v slowlyEncoded) MarshalJSON() ([]byte, error) {
	time.Sleep(v.takes)
	return []byte("true"), nil
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
		r.count(kahn.EventNodeCompleted, "E/y", 1)
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

// TestExpandPlain: nodes that are performed at the same time as one is expanded, by as many workers as there are.
func TestExpandPlain(t *testing.T) {
	t.Parallel()
	g := new(kahn.Graph)
	for i := range 200 {
		g.Add(after(fmt.Sprint("a", i)), after(fmt.Sprint("b", i), fmt.Sprint("a", i)))
	}
	inner := graph(after("x"), after("y", "x"))
	for range 20 {
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
