package conformance_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
)

// named is an evaluator of texts that name nodes: each word is the id of a node. A text that begins with "?" does not tell which nodes it
// names. Each is true.
type named struct{}

func (named) Parse(text string) (kahn.Expression, error) {
	if text[0] == '?' {
		return silent{}, nil
	}
	return namedNode(text), nil
}

type silent struct{}

func (silent) Evaluate(context.Context, kahn.View) (any, error) { return true, nil }

const unusedText = "nobody uses its answer: none of its edges has a label or a Param, and no guard or test names it"

// What is valid and probably a mistake is a warning of the plan, and of the Result of each run, whoever drives it.
func TestWarningsOfGraphs(t *testing.T) {
	t.Parallel()
	yes := kahn.If("ok?", func(kahn.View) (bool, error) { return true, nil })
	declared := kahn.Node{ID: "ok?", Kind: kahn.KindGate, Gate: &kahn.Gate{Choices: []string{"approved", "rejected"}}}
	early := func(join kahn.Join, ports ...kahn.Port) *kahn.Graph {
		return graph(kahn.Node{ID: "a"}, kahn.Node{ID: "b"}, kahn.Node{ID: "sum", Join: join, Ports: ports, In: []kahn.Edge{{From: "a", Param: "x"}, {From: "b", Param: "y"}, {From: "a", Param: "z"}, {From: "b", Param: "z"}}})
	}
	text := func(g *kahn.Graph) *kahn.Graph { g.Evaluator = named{}; return g }
	looks := func(kahn.View) (bool, error) { return true, nil }
	loop := func(l kahn.Loop) *kahn.Graph {
		l.MaxIterations = 3
		return text(graph(kahn.Node{ID: "loop", Loop: &l, Sub: graph(yes, after("x", "ok?"))}))
	}
	const earlyText = `node "sum": bad join: any_succeeded would let it run early, but "a", "b" feed its required ports, and it waits for all of them: join by all_done_min_one to take what succeeded`
	for _, c := range []struct {
		name    string
		g       *kahn.Graph
		warning string // empty: none
		is      error
	}{
		{"5 If with After instead of Label", graph(yes, after("x", "ok?")), `node "ok?": ` + unusedText, kahn.ErrNoMatch},
		{"5 Switch", graph(kahn.Switch("c", func(kahn.View) (string, error) { return "a", nil }), after("x", "c")), `node "c": ` + unusedText, kahn.ErrNoMatch},
		{"5 a step that routes", graph(kahn.Node{ID: "c", Routes: true}, after("x", "c")), `node "c": ` + unusedText, kahn.ErrNoMatch},
		{"5 a condition", graph(kahn.Node{ID: "c", Kind: kahn.KindCondition}, after("x", "c")), `node "c": ` + unusedText, kahn.ErrNoMatch},
		{"5 a text", text(graph(kahn.Node{ID: "c", TestExpr: "?"}, after("x", "c"))), `node "c": ` + unusedText, kahn.ErrNoMatch},
		{"5 a gate with choices", graph(declared, after("x", "ok?")), `node "ok?": ` + unusedText, kahn.ErrNoMatch},
		{"5 a catch edge beside", graph(yes, after("x", "ok?"), kahn.Node{ID: "h", In: []kahn.Edge{{From: "ok?", On: kahn.OnFailure}}}), `node "ok?": ` + unusedText, kahn.ErrNoMatch},
		{"5 an edge into the end beside", graph(yes, after("x", "ok?"), kahn.Node{ID: "end", Kind: kahn.KindEnd, After: []string{"ok?"}}), `node "ok?": ` + unusedText, kahn.ErrNoMatch},
		{"5 a text that names another", text(graph(yes, kahn.Node{ID: "a"}, kahn.Node{ID: "x", WhenExpr: "a", After: []string{"ok?", "a"}})), `node "ok?": ` + unusedText, kahn.ErrNoMatch},
		{"5 a function before it", graph(kahn.Node{ID: "a", When: looks}, kahn.If("ok?", looks, "a"), after("x", "ok?")), `node "ok?": ` + unusedText, kahn.ErrNoMatch},
		{"5 inside", graph(kahn.Node{ID: "s", Sub: graph(yes, after("x", "ok?"))}), `in "s": node "ok?": ` + unusedText, kahn.ErrNoMatch},
		{"5 inside a loop", loop(kahn.Loop{UntilExpr: "x"}), `in "loop": node "ok?": ` + unusedText, kahn.ErrNoMatch},
		{"3 two required ports", early(kahn.AnySucceeded, kahn.Port{Name: "x", Required: true}, kahn.Port{Name: "y", Required: true}), earlyText, kahn.ErrBadJoin},
		{"3 one port that two feed", early(kahn.AnySucceeded, kahn.Port{Name: "z", Required: true, Default: 1}), earlyText, kahn.ErrBadJoin},

		{"a label", graph(yes, after("x", "ok?"), kahn.Node{ID: "y", In: []kahn.Edge{{From: "ok?", Label: "true"}}}), "", nil},
		{"a label into the end", graph(yes, after("x", "ok?"), kahn.Node{ID: "end", Kind: kahn.KindEnd, In: []kahn.Edge{{From: "ok?", Label: "true"}}}), "", nil},
		{"a parameter", graph(yes, kahn.Node{ID: "x", In: []kahn.Edge{{From: "ok?", Param: "big"}}}), "", nil},
		{"data", graph(yes, kahn.Node{ID: "x", In: []kahn.Edge{{From: "ok?", DataOnly: true}}}), "", nil},
		{"a leaf", graph(yes), "", nil},
		{"before the end node alone", graph(yes, kahn.Node{ID: "end", Kind: kahn.KindEnd, After: []string{"ok?"}}), "", nil},
		{"a gate that anything opens", graph(kahn.Node{ID: "ok?", Kind: kahn.KindGate}, after("x", "ok?")), "", nil},
		{"a gate whose answer is data", graph(func() kahn.Node { n := declared; n.Outputs = []string{"output"}; return n }(), after("x", "ok?")), "", nil},
		{"a guard may look", graph(yes, kahn.Node{ID: "x", When: looks, After: []string{"ok?"}}), "", nil},
		{"a test far away may look", graph(yes, after("x", "ok?"), kahn.If("c", looks, "x")), "", nil},
		{"a text names it", text(graph(yes, after("x", "ok?"), kahn.Node{ID: "y", WhenExpr: "ok?", After: []string{"x"}})), "", nil},
		{"a text may name it", text(graph(yes, kahn.Node{ID: "x", WhenExpr: "?", After: []string{"ok?"}})), "", nil},
		{"a computed value", text(graph(kahn.Node{ID: "c", Kind: "expression", TestExpr: "?", Join: kahn.AllSucceeded}, after("x", "c"))), "", nil},
		{"the text of a loop names it", loop(kahn.Loop{UntilExpr: "ok?"}), "", nil},
		{"the text of a loop may name it", loop(kahn.Loop{UntilExpr: "?"}), "", nil},
		{"the test of a loop may look", loop(kahn.Loop{Until: looks}), "", nil},
		{"one required port", early(kahn.AnySucceeded, kahn.Port{Name: "x", Required: true}, kahn.Port{Name: "y"}), "", nil},
		{"a rule that waits", early(kahn.AllDoneMinOne, kahn.Port{Name: "x", Required: true}, kahn.Port{Name: "y", Required: true}), "", nil},
	} {
		plan, err := c.g.Compile()
		require.NoError(t, err, c.name)
		requireWarning(t, c.name, plan.Warnings(), c.warning, c.is)
		signals := map[string]any{}
		if ref, ok := plan.Ref("ok?"); ok && plan.Node(ref).Kind == kahn.KindGate {
			signals["ok?"] = "approved"
		}
		for driver, drive := range drivers {
			res, err := drive(t, c.g, nop, kahn.EarlySignals(signals))
			require.NoError(t, err, "%s, %s", c.name, driver)
			requireWarning(t, c.name+", "+driver, res.Warnings, c.warning, c.is)
		}
	}
}

func requireWarning(t *testing.T, name string, warnings []error, text string, is error) {
	t.Helper()
	if text == "" {
		require.Empty(t, warnings, name)
		return
	}
	require.Len(t, warnings, 1, name)
	require.EqualError(t, warnings[0], text, name)
	require.ErrorIs(t, warnings[0], is, name)
	var problem *kahn.Problem
	require.True(t, errors.As(warnings[0], &problem), name)
	require.NotEmpty(t, problem.Node, name)
}

// A graph that a step hands back warns in the same way.
func TestWarningsOfExpansions(t *testing.T) {
	t.Parallel()
	yes := kahn.If("ok?", func(kahn.View) (bool, error) { return true, nil })
	g := graph(kahn.Node{ID: "x", Do: func(context.Context, *kahn.Step) (any, error) {
		return nil, kahn.Expand(graph(yes, kahn.Node{ID: "y", After: []string{"ok?"}, Do: nop}), nil, nil)
	}})
	res, err := kahn.Execute(t.Context(), g, nop)
	require.NoError(t, err)
	requireWarning(t, "expansion", res.Warnings, `in "x": node "ok?": `+unusedText, kahn.ErrNoMatch)
}
