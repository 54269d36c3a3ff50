package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/machine"
	"github.com/seed-c794f7ef/kahn/store"
)

// A call with invalid arguments returns an error before the run starts.
func TestBadCalls(t *testing.T) {
	one := graph(after("A"))
	plan, err := one.Compile()
	if err != nil {
		t.Fatal(err)
	}
	type call struct {
		name string
		ctx  context.Context
		g    *kahn.Graph
		p    *kahn.Plan
		step kahn.StepFunc
		opt  kahn.Option // passed, even if nil, in rows that expect ErrBadOption
		want []error
	}
	ctx := t.Context()
	var noPlan *kahn.Plan
	rows := []call{
		{name: "nil context", g: one, p: plan, step: nop, want: []error{kahn.ErrNoContext}},
		{name: "nil graph", ctx: ctx, p: noPlan, step: nop, want: []error{kahn.ErrNoGraph}},
		{name: "nil step", ctx: ctx, g: one, p: plan, want: []error{kahn.ErrNoStep}},
	}
	for name, opt := range map[string]kahn.Option{
		"nil option":                      nil,
		"negative Limit":                  kahn.Limit(-1),
		"most negative Limit":             kahn.Limit(math.MinInt),
		"negative Timeout":                kahn.Timeout(-1),
		"negative CancelGrace":            kahn.CancelGrace(-time.Second),
		"negative CleanupTimeout":         kahn.CleanupTimeout(math.MinInt64),
		"nil sink":                        kahn.OnEvent(nil),
		"nil PerRun":                      kahn.PerRun(nil),
		"PerRun that panics":              kahn.PerRun(func() []kahn.Option { panic("no") }),
		"PerRun with a nil option":        kahn.PerRun(func() []kahn.Option { return []kahn.Option{nil} }),
		"unknown mode":                    kahn.Mode(99),
		"unknown failure mode":            kahn.FailureMode(99),
		"unknown status rule":             kahn.StatusRule(99),
		"negative MaxAttempts":            kahn.Retry{MaxAttempts: -1},
		"negative Multiplier":             kahn.Retry{MaxAttempts: 2, Multiplier: -2},
		"Multiplier that is not a number": kahn.Retry{MaxAttempts: 2, Multiplier: math.NaN()},
		"infinite Multiplier":             kahn.Retry{MaxAttempts: 2, Multiplier: math.Inf(1)},
		"negative MaxRetryAfter":          kahn.Retry{MaxAttempts: 2, MaxRetryAfter: -1},
		"unknown Jitter":                  kahn.Retry{MaxAttempts: 2, Jitter: 99},
		"RetryOn what is never retried":   kahn.Retry{MaxAttempts: 2, RetryOn: []kahn.CauseKind{kahn.CauseGoexit}},
		"RetryOn what no cause is":        kahn.Retry{MaxAttempts: 2, RetryOn: []kahn.CauseKind{kahn.CauseNone}},
		"RetryOn beyond the enumeration":  kahn.Retry{MaxAttempts: 2, RetryOn: []kahn.CauseKind{255}},
	} {
		rows = append(rows, call{name: name, ctx: ctx, g: one, p: plan, step: nop, opt: opt, want: []error{kahn.ErrBadOption}})
	}
	for _, c := range rows {
		inBubble(t, c.name, func(t *testing.T) {
			step := c.step
			if step != nil {
				step = neverStep(t)
			}
			opts := []kahn.Option{kahn.OnEvent(func(e kahn.Event) { t.Errorf("event %v", e) })}
			if c.opt != nil || slices.Contains(c.want, kahn.ErrBadOption) {
				opts = append(opts, c.opt)
			}
			check := func(how string, res *kahn.Result, err error) {
				t.Helper()
				if res != nil || err == nil {
					t.Errorf("%s: %v, %v", how, res, err)
				}
				for _, want := range c.want {
					if !errors.Is(err, want) {
						t.Errorf("%s: %v, expected %v", how, err, want)
					}
				}
			}
			res, err := kahn.Execute(c.ctx, c.g, step, opts...)
			check("Execute", res, err)
			run, err := kahn.Start(c.ctx, c.g, step, opts...)
			if run != nil {
				t.Errorf("Start: %v", run)
			}
			check("Start", nil, err)
			res, err = c.p.Execute(c.ctx, step, opts...)
			check("Plan.Execute", res, err)
			run, err = c.p.Start(c.ctx, step, opts...)
			if run != nil {
				t.Errorf("Plan.Start: %v", run)
			}
			check("Plan.Start", nil, err)
		})
	}
}

func TestNilStep(t *testing.T) {
	inBubble(t, "allowed where no node needs it", func(t *testing.T) {
		r := try(t, graph(kahn.Node{ID: "A", Do: nop}, kahn.If("B", func(kahn.View) (bool, error) { return true, nil }, "A")), nil)
		r.expect("A:ok B:ok", "completed")
	})
	inBubble(t, "refused where one does, by its name", func(t *testing.T) {
		_, err := kahn.Execute(t.Context(), graph(kahn.Node{ID: "A", Do: neverStep(t)}, after("naked", "A")), nil)
		if !errors.Is(err, kahn.ErrNoStep) || !strings.Contains(err.Error(), `"naked"`) {
			t.Errorf("Execute: %v", err)
		}
	})
	inBubble(t, "also of the end node and of cleanup nodes", func(t *testing.T) {
		for _, n := range []kahn.Node{{ID: "A", Kind: kahn.KindEnd}, {ID: "A", Cleanup: true}} {
			if _, err := kahn.Execute(t.Context(), graph(n), nil); !errors.Is(err, kahn.ErrNoStep) {
				t.Errorf("Execute: %v", err)
			}
		}
	})
	inBubble(t, "also in a graph with a trigger, which may be fired later", func(t *testing.T) {
		g := graph(kahn.Node{ID: "T", Kind: kahn.KindTrigger}, after("A", "T"))
		for name, opts := range map[string][]kahn.Option{
			"": nil, "fired": {kahn.Fire("T", nil)}, "stored": {kahn.Durable(new(store.Memory)), kahn.RunID("r")},
		} {
			if res, err := kahn.Execute(t.Context(), g, nil, opts...); res != nil || !errors.Is(err, kahn.ErrNoStep) {
				t.Errorf("%s: Execute: %v, %v", name, res, err)
			}
		}
	})
	inBubble(t, "a Mux without the kind", func(t *testing.T) {
		for _, m := range []kahn.Mux{nil, {"other": nop}, {"k": nil}} {
			r := try(t, graph(kahn.Node{ID: "A", Kind: "k", Retry: kahn.RetryStandard()}), m.Step)
			r.expect("A:F", "failed")
			r.expectDelays("A")
			if !errors.Is(r.err, kahn.ErrUnknownKind) || !strings.Contains(r.err.Error(), `"k"`) {
				t.Errorf("error %v", r.err)
			}
		}
	})
}

func TestMissingInput(t *testing.T) {
	g := graph(kahn.Node{ID: "A", Ports: []kahn.Port{{Name: "p", Required: true}}})
	g.Inputs = inputs("p")
	inBubble(t, "refused", func(t *testing.T) {
		for _, in := range []map[string]any{nil, {}, {"q": 1}} {
			_, err := kahn.Execute(t.Context(), g, neverStep(t), kahn.Inputs(in))
			if !errors.Is(err, kahn.ErrMissingInput) || !strings.Contains(err.Error(), `missing root input: "p"`) {
				t.Errorf("Execute: %v", err)
			}
		}
	})
	inBubble(t, "a null input is there, and skips the node", func(t *testing.T) {
		try(t, g, nop, kahn.Inputs(map[string]any{"p": nil})).expect("A:S/null", "completed")
		try(t, g, nop, kahn.Inputs(map[string]any{"p": 1})).expect("A:ok", "completed")
	})
}

func TestBadGraphs(t *testing.T) {
	label := []kahn.Edge{{From: "A", Label: "yes"}}
	join := func(j kahn.Join) *kahn.Graph {
		return graph(after("A"), after("B"), kahn.Node{ID: "J", After: []string{"A", "B"}, Join: j})
	}
	end := kahn.Node{ID: "Z", Kind: kahn.KindEnd}
	endWith := func(change func(*kahn.Node)) *kahn.Graph {
		z := end
		change(&z)
		return graph(after("A"), z)
	}
	node := func(change func(*kahn.Node)) *kahn.Graph {
		n := kahn.Node{ID: "N"}
		change(&n)
		return graph(n)
	}
	edge := func(e kahn.Edge) *kahn.Graph {
		e.From, e.To = "A", "B"
		return graph(after("A"), after("B")).Connect(e)
	}
	for _, row := range []struct {
		name  string
		g     *kahn.Graph
		want  error
		words string // the message must contain them
	}{
		{"empty id", graph(after("")), kahn.ErrBadValue, "1"},
		{"duplicate id", graph(after("A"), after("B"), after("A")), kahn.ErrDuplicateNode, `"A"`},
		{"unknown id in After", graph(after("A", "nowhere")), kahn.ErrUnknownNode, `"A" "nowhere"`},
		{"unknown id in In", graph(kahn.Node{ID: "A", In: label}, kahn.Node{ID: "B", In: []kahn.Edge{{From: "nowhere"}}}), kahn.ErrUnknownNode, `"B" "nowhere"`},
		{"unknown source in Connect", graph(after("A")).Connect(kahn.Edge{From: "nowhere", To: "A"}), kahn.ErrUnknownNode, `"A" "nowhere"`},
		{"unknown target in Connect", graph(after("A")).Connect(kahn.Edge{From: "A", To: "nowhere"}), kahn.ErrUnknownNode, `"A" "nowhere"`},
		{"empty source", graph(after("A")).Connect(kahn.Edge{To: "A"}), kahn.ErrUnknownNode, `"A"`},
		{"duplicate edge in After", graph(after("A"), after("B", "A", "A")), kahn.ErrDuplicateEdge, `"A" "B"`},
		{"duplicate edge in After and Connect", graph(after("A"), after("B", "A")).Connect(kahn.Edge{From: "A", To: "B"}), kahn.ErrDuplicateEdge, `"A" "B"`},
		{"duplicate edge that differs in Merge", graph(after("A"), after("B")).Connect(kahn.Edge{From: "A", To: "B", Param: "p"},
			kahn.Edge{From: "A", To: "B", Param: "p", Merge: kahn.MergeArray}), kahn.ErrDuplicateEdge, `"A" "B"`},
		{"self edge", graph(after("A", "A")), kahn.ErrCycle, `"A"`},
		{"self edge of data", graph(kahn.Node{ID: "A", In: []kahn.Edge{{From: "A", DataOnly: true}}}), kahn.ErrCycle, `"A"`},
		{"cycle through a catch edge", graph(after("A", "B"), kahn.Node{ID: "B", In: []kahn.Edge{{From: "A", On: kahn.OnFailure}}}), kahn.ErrCycle, `"A" "B"`},

		{"two end nodes", graph(end, kahn.Node{ID: "Y", Kind: kahn.KindEnd}), kahn.ErrBadEnd, `"Y" "Z"`},
		{"edge out of the end", graph(end, after("A", "Z")), kahn.ErrBadEnd, `"Z" "A"`},
		{"end with a join rule", endWith(func(z *kahn.Node) { z.Join = kahn.AllSucceeded }), kahn.ErrBadEnd, `"Z"`},
		{"end with AtLeast", endWith(func(z *kahn.Node) { z.Join = kahn.AtLeast(1) }), kahn.ErrBadEnd, `"Z"`},
		{"end with a guard", endWith(func(z *kahn.Node) { z.When = func(kahn.View) (bool, error) { return true, nil } }), kahn.ErrBadEnd, `"Z"`},
		{"end that is disabled", endWith(func(z *kahn.Node) { z.Disabled = true }), kahn.ErrBadEnd, `"Z"`},

		{"AtLeast more than there are edges", join(kahn.AtLeast(3)), kahn.ErrBadJoin, `"J" 3 2`},
		{"AtLeast of data edges", graph(after("A"), kahn.Node{ID: "J", Join: kahn.AtLeast(1), In: []kahn.Edge{{From: "A", DataOnly: true}}}), kahn.ErrBadJoin, `"J"`},
		{"AtLeast(0)", join(kahn.AtLeast(0)), kahn.ErrBadJoin, `"J"`},
		{"AtLeast(-1)", join(kahn.AtLeast(-1)), kahn.ErrBadJoin, `"J"`},
		{"AtLeast(most negative)", join(kahn.AtLeast(math.MinInt)), kahn.ErrBadJoin, `"J"`},
		{"AtLeast(most)", join(kahn.AtLeast(math.MaxInt)), kahn.ErrBadJoin, `"J"`},
		{"AtLeast that wraps around in 24 bits", join(kahn.AtLeast(1<<24 + 1)), kahn.ErrBadJoin, `"J"`},
		{"AtLeast that wraps around in 32 bits", join(kahn.AtLeast(1<<32 + 1)), kahn.ErrBadJoin, `"J"`},
		{"unknown join rule", join(kahn.Join(200)), kahn.ErrBadJoin, `"J"`},
		{"join rule with a count that it has not", join(kahn.AnySucceeded | 1<<8), kahn.ErrBadJoin, `"J"`},
		{"cleanup with another rule", graph(after("A"), kahn.Node{ID: "K", After: []string{"A"}, Cleanup: true, Join: kahn.AnySucceeded}), kahn.ErrBadJoin, `"K"`},

		{"label on a node that does not route", graph(after("A"), kahn.Node{ID: "B", In: label}), kahn.ErrBadEdge, `"A" "B" "yes"`},
		{"label on a catch edge", graph(kahn.Node{ID: "A", Routes: true}).Add(kahn.Node{ID: "B", In: []kahn.Edge{{From: "A", Label: "yes", On: kahn.OnFailure}}}), kahn.ErrBadEdge, `"A" "B"`},
		{"label on a data edge", graph(kahn.Node{ID: "A", Routes: true}).Add(kahn.Node{ID: "B", In: []kahn.Edge{{From: "A", Label: "yes", DataOnly: true}}}), kahn.ErrBadEdge, `"A" "B"`},
		{"data edge that waits for failure", edge(kahn.Edge{DataOnly: true, On: kahn.OnFailure}), kahn.ErrBadEdge, `"A" "B"`},
		{"causes on an edge that waits for success", edge(kahn.Edge{Causes: []kahn.CauseKind{kahn.CauseTimeout}}), kahn.ErrBadEdge, `"A" "B"`},
		{"unknown cause", edge(kahn.Edge{On: kahn.OnFailure, Causes: []kahn.CauseKind{255}}), kahn.ErrBadValue, `"A" "B"`},
		{"unknown On", edge(kahn.Edge{On: 99}), kahn.ErrBadValue, `"A" "B"`},

		{"unknown merge strategy of an edge", edge(kahn.Edge{Param: "p", Merge: "stir"}), kahn.ErrBadValue, `"A" "B" "stir"`},
		{"unknown merge strategy of a node", node(func(n *kahn.Node) { n.Merge = "stir" }), kahn.ErrBadValue, `"N" "stir"`},
		{"nil merge strategy", graph().RegisterMerge("stir", nil), kahn.ErrBadValue, `"stir"`},
		{"merge strategy that exists", graph().RegisterMerge(kahn.MergeArray, func([]kahn.Contribution) (any, error) { return nil, nil }), kahn.ErrBadValue, `"array"`},
		{"merge conflict", graph(after("A"), after("B"), kahn.Node{ID: "J", In: []kahn.Edge{
			{From: "A", Param: "p", Merge: kahn.MergeArray}, {From: "B", Param: "p", Merge: kahn.MergeConcat}}}), kahn.ErrMergeConflict, `"J" "p"`},

		{"unbound required port", node(func(n *kahn.Node) { n.Ports = []kahn.Port{{Name: "p", Required: true}} }), kahn.ErrUnboundPort, `"N" "p"`},
		{"port declared twice", node(func(n *kahn.Node) { n.Ports = []kahn.Port{{Name: "p"}, {Name: "p"}} }), kahn.ErrBadValue, `"N" "p"`},
		{"port without a name", node(func(n *kahn.Node) { n.Ports = []kahn.Port{{}} }), kahn.ErrBadValue, `"N"`},
		{"Do and Test", node(func(n *kahn.Node) { n.Do, n.Test = nop, func(kahn.View) (any, error) { return nil, nil } }), kahn.ErrBadValue, `"N" Do Test`},
		{"negative Timeout", node(func(n *kahn.Node) { n.Timeout = -2 }), kahn.ErrBadValue, `"N" Timeout`},
		{"negative OverallTimeout", node(func(n *kahn.Node) { n.OverallTimeout = -1 }), kahn.ErrBadValue, `"N" OverallTimeout`},
		{"negative Estimate", node(func(n *kahn.Node) { n.Estimate = -1 }), kahn.ErrBadValue, `"N" Estimate`},
		{"negative MaxAttempts", node(func(n *kahn.Node) { n.Retry.MaxAttempts = -1 }), kahn.ErrBadValue, `"N" MaxAttempts`},
		{"RetryOn what is never retried", node(func(n *kahn.Node) { n.Retry.RetryOn = []kahn.CauseKind{kahn.CauseFailFast} }), kahn.ErrBadValue, `"N" fail_fast`},
		{"unknown skip mode", node(func(n *kahn.Node) { n.SkipMode = 99 }), kahn.ErrBadValue, `"N"`},
		{"unknown policy", node(func(n *kahn.Node) { n.OnUpstreamFailure = 99 }), kahn.ErrBadValue, `"N"`},
		{"unknown guard policy", node(func(n *kahn.Node) { n.GuardErrors = 99 }), kahn.ErrBadValue, `"N"`},
		{"unknown NoMatch", node(func(n *kahn.Node) { n.NoMatch = 99 }), kahn.ErrBadValue, `"N"`},
		{"unknown default", &kahn.Graph{Defaults: kahn.Defaults{SkipMode: 99}}, kahn.ErrBadValue, "Defaults"},
		{"bad default retry", &kahn.Graph{Defaults: kahn.Defaults{Retry: kahn.Retry{MaxAttempts: -1}}}, kahn.ErrBadValue, "Defaults MaxAttempts"},
	} {
		t.Run(row.name, func(t *testing.T) {
			_, compileErr := row.g.Compile()
			res, err := kahn.Execute(t.Context(), row.g, neverStep(t), kahn.OnEvent(func(e kahn.Event) { t.Errorf("event %v", e) }))
			if res != nil || err == nil || compileErr == nil || err.Error() != compileErr.Error() {
				t.Fatalf("Compile: %v\nExecute: %v, %v", compileErr, res, err)
			}
			var graphErr *kahn.GraphError
			if !errors.Is(err, row.want) || !errors.As(err, &graphErr) {
				t.Errorf("%v, expected %v in a GraphError", err, row.want)
			}
			for word := range strings.FieldsSeq(row.words) {
				if !strings.Contains(err.Error(), word) {
					t.Errorf("%q does not say %s", err, word)
				}
			}
		})
	}
}

// A graph with all kinds of problems reports all of them in one error.
func TestAllProblemsAtOnce(t *testing.T) {
	g := graph(
		after("A"), after("A"), after(""), after("B", "nowhere"), after("C", "D"), after("D", "C"), after("E", "A", "A"),
		kahn.Node{ID: "F", In: []kahn.Edge{{From: "A", Label: "yes"}}},
		kahn.Node{ID: "G", Join: kahn.AtLeast(2)},
		kahn.Node{ID: "Y", Kind: kahn.KindEnd}, kahn.Node{ID: "Z", Kind: kahn.KindEnd},
	)
	g.Name = "everything"
	_, err := g.Compile()
	var graphErr *kahn.GraphError
	if !errors.As(err, &graphErr) || graphErr.Graph != "everything" || graphErr.More != 0 {
		t.Fatalf("%v", err)
	}
	for _, want := range []error{kahn.ErrDuplicateNode, kahn.ErrBadValue, kahn.ErrUnknownNode, kahn.ErrCycle, kahn.ErrDuplicateEdge,
		kahn.ErrBadEdge, kahn.ErrBadJoin, kahn.ErrBadEnd} {
		n := 0
		for _, p := range graphErr.Problems {
			if errors.Is(p, want) {
				n++
			}
		}
		if n != 1 {
			t.Errorf("%d problems match %v, expected one:\n%v", n, want, err)
		}
	}

	// Compile finds these problems only in a graph with a sound structure, and reports them together.
	_, err = graph(after("A"), after("B"),
		kahn.Node{ID: "J", In: []kahn.Edge{{From: "A", Param: "p", Merge: kahn.MergeArray}, {From: "B", Param: "p", Merge: kahn.MergeConcat}}},
		kahn.Node{ID: "K", Ports: []kahn.Port{{Name: "p", Required: true}, {Name: "q", Required: true}}},
	).Compile()
	if !errors.Is(err, kahn.ErrMergeConflict) || !errors.Is(err, kahn.ErrUnboundPort) || strings.Count(err.Error(), kahn.ErrUnboundPort.Error()) != 2 {
		t.Errorf("%v", err)
	}
}

// The error about a graph with thousands of problems is short enough to read.
func TestProblemsAreBounded(t *testing.T) {
	g := graph(after("A"))
	g.Name = strings.Repeat("n", 1<<20)
	long := strings.Repeat("x", 1<<20)
	for range 5000 {
		g.Connect(kahn.Edge{From: "A", To: long})
	}
	_, err := g.Compile()
	var graphErr *kahn.GraphError
	if !errors.As(err, &graphErr) || len(graphErr.Problems) != 100 || graphErr.More != 4900 {
		t.Fatalf("%.200v", err)
	}
	if n := len(err.Error()); n > 100_000 {
		t.Errorf("the message has %d bytes", n)
	}
}

func TestCycleNames(t *testing.T) {
	// The nodes "in" and "out" are connected to the cycle, but are not part of it.
	for i, order := range [][]string{{"A", "B", "C"}, {"B", "C", "A"}, {"C", "B", "A"}} {
		g := graph(after("in"), after("out", "B"))
		for _, id := range order {
			g.Add(after(id))
		}
		g.Connect(kahn.Edge{From: "in", To: "A"}, kahn.Edge{From: "A", To: "B"}, kahn.Edge{From: "B", To: "C"}, kahn.Edge{From: "C", To: "A"})
		_, err := g.Compile()
		var cycle *kahn.Problem
		if !errors.As(err, &cycle) || len(cycle.Cycle) != 3 {
			t.Fatalf("%d: %v", i, err)
		}
		at := slices.Index(cycle.Cycle, "A")
		if at < 0 || cycle.Cycle[(at+1)%3] != "B" || cycle.Cycle[(at+2)%3] != "C" {
			t.Errorf("%d: the cycle is %v", i, cycle.Cycle)
		}
		if !strings.Contains(strings.Repeat(`"A" -> "B" -> "C" -> `, 2), strings.TrimPrefix(cycle.Err.Error(), "cycle: ")) {
			t.Errorf("%d: %q", i, cycle.Error())
		}
	}
}

func TestLongCycle(t *testing.T) {
	const n = 100_000
	g := graph()
	for i := range n {
		g.Add(after(fmt.Sprint("node number ", i), fmt.Sprint("node number ", (i+n-1)%n)))
	}
	_, err := g.Compile()
	var cycle *kahn.Problem
	if !errors.As(err, &cycle) || len(cycle.Cycle) != n || len(err.Error()) >= 1000 {
		t.Errorf("%.300v", err)
	}
}

func TestUnknownNode(t *testing.T) {
	inBubble(t, "of a run", func(t *testing.T) {
		g := graph(after("A"), kahn.Node{ID: "off", Disabled: true}, kahn.Node{ID: "Z", Kind: kahn.KindEnd, Do: takes(ms)})
		tryControlled(t, t.Context(), g, takes(20*ms), soon(func(run *kahn.Run) {
			if err := run.CancelNode("nowhere"); !errors.Is(err, kahn.ErrUnknownNode) || !strings.Contains(err.Error(), `"nowhere"`) {
				t.Errorf("CancelNode(nowhere): %v", err)
			}
			if status, ok := run.NodeStatus("nowhere"); ok || status != kahn.Idle {
				t.Errorf("NodeStatus(nowhere): %v, %v", status, ok)
			}
			for _, id := range []string{"off", "Z"} { // a terminal node, and the end node
				var transition *machine.TransitionError
				if err := run.CancelNode(id); !errors.Is(err, kahn.ErrTransition) || !errors.As(err, &transition) || transition.Node != id {
					t.Errorf("CancelNode(%s): %v", id, err)
				}
			}
			if _, err := run.Wait(); err != nil {
				t.Errorf("Wait: %v", err)
			}
			if err := run.CancelNode("A"); !errors.Is(err, kahn.ErrFinished) {
				t.Errorf("CancelNode after the end: %v", err)
			}
			run.Cancel()
			run.AbortAll(errHost)
			if run.Status() != kahn.RunCompleted {
				t.Errorf("the run is %v", run.Status())
			}
		})).expect("A:ok off:S/ann Z:ok", "completed")
	})
	inBubble(t, "of a result", func(t *testing.T) {
		r := try(t, graph(after("A")), takes(0))
		if n, ok := r.Node("nowhere"); ok || n.ID != "" {
			t.Errorf("Node: %+v, %v", n, ok)
		}
		if _, err := kahn.Output[int](r.Result, "nowhere"); !errors.Is(err, kahn.ErrUnknownNode) {
			t.Errorf("Output: %v", err)
		}
		if _, err := kahn.Output[int](r.Result, "A"); !errors.Is(err, kahn.ErrType) {
			t.Errorf("Output of another type: %v", err)
		}
	})
	inBubble(t, "of a step", func(t *testing.T) {
		try(t, graph(after("B"), after("A")), func(_ context.Context, s *kahn.Step) (any, error) {
			if v, ok := s.Param("nothing"); v != nil || ok {
				t.Errorf("Param: %v, %v", v, ok)
			}
			for _, id := range []string{"nowhere", "B", "A"} { // none of them is an ancestor of the node
				if v, ok := s.Upstream(id); v != nil || ok || !errors.Is(s.UpstreamErr(id), kahn.ErrNotAncestor) || s.View().Status(id) != kahn.Idle {
					t.Errorf("Upstream(%s): %v, %v", id, v, ok)
				}
			}
			if _, err := kahn.Param[int](s, "nothing"); !errors.Is(err, kahn.ErrNoValue) {
				t.Errorf("Param[int]: %v", err)
			}
			if _, err := kahn.Upstream[int](s, "nowhere"); !errors.Is(err, kahn.ErrNoValue) {
				t.Errorf("Upstream[int]: %v", err)
			}
			return nil, nil
		}).expect("B:ok A:ok", "completed")
	})
}

// Several goroutines may wait for one Run, repeatedly, and all get the same Result.
func TestWaitTogether(t *testing.T) {
	inBubble(t, "several goroutines", func(t *testing.T) {
		run, err := kahn.Start(t.Context(), graph(after("A")), fails(10*ms))
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		results, errs := make([]*kahn.Result, 10), make([]error, 10)
		for i := range results {
			wg.Go(func() { results[i], errs[i] = run.Wait() })
		}
		synctest.Wait()
		select {
		case <-run.Done():
			t.Error("Done before the end")
		default:
		}
		wg.Wait()
		<-run.Done()
		again, errAgain := run.Wait()
		for i := range results {
			if results[i] != again || errs[i] != errAgain || again == nil || !errors.Is(errAgain, errStep) {
				t.Errorf("Wait: %v, %v and %v, %v", results[i], errs[i], again, errAgain)
			}
		}
	})
}

// Many runs execute one graph at the same time; the first of them compiles it.
func TestConcurrentRuns(t *testing.T) {
	g := graph(after("A"), after("B", "A"), kahn.Node{ID: "C", In: []kahn.Edge{{From: "A", Param: "p"}, {From: "B", Param: "p"}}, Merge: kahn.MergeArray},
		kahn.If("D", func(v kahn.View) (bool, error) { return v.Status("C") == kahn.Completed, nil }, "C"),
		kahn.Node{ID: "E", In: []kahn.Edge{{From: "D", Label: "true"}}})
	inBubble(t, "a hundred", func(t *testing.T) {
		var wg sync.WaitGroup
		for i := range 100 {
			wg.Go(func() {
				r := try(t, g, func(ctx context.Context, s *kahn.Step) (any, error) {
					time.Sleep(ms)
					if i%3 == 0 && s.ID() == "B" {
						return nil, errStep
					}
					s.Params()
					return i, nil
				}, kahn.Limit(i%4))
				if i%3 == 0 {
					r.expect("A:ok B:F C:X D:ok E:S/br", "completed+d")
				} else {
					r.expect("A:ok B:ok C:ok D:ok E:ok", "completed")
				}
			})
		}
		wg.Wait()
	})
}

// Runs without options share one default config. So a run must not store values in the config, such as whether it has a step function.
func TestConcurrentRunsWithoutOptions(t *testing.T) {
	needs, own := graph(after("A")), graph(kahn.Node{ID: "A", Do: nop})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 500 {
				if _, err := kahn.Execute(t.Context(), needs, nop); err != nil {
					t.Errorf("with a step function: %v", err)
				}
				if _, err := kahn.Execute(t.Context(), needs, nil); !errors.Is(err, kahn.ErrNoStep) {
					t.Errorf("without one: %v", err)
				}
				if _, err := kahn.Execute(t.Context(), own, nil); err != nil {
					t.Errorf("with a Do: %v", err)
				}
			}
		})
	}
	wg.Wait()
}
