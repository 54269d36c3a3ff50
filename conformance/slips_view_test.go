package conformance_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
)

// A guard or a condition that asks its View for a node that is not an ancestor fails.
func TestViewOfNoAncestor(t *testing.T) {
	ask := map[string]func(kahn.View, string){
		"Status": func(v kahn.View, id string) { v.Status(id) },
		"Output": func(v kahn.View, id string) { v.Output(id) },
		"Err":    func(v kahn.View, id string) { _ = v.Err(id) },

		"Decision": func(v kahn.View, id string) { v.Decision(id) },
	}
	asking := func(f func(kahn.View, string), id string) func(kahn.View) (bool, error) {
		return func(v kahn.View) (bool, error) { f(v, id); return false, nil }
	}
	with := func(n kahn.Node) *kahn.Graph {
		n.ID, n.After = "B", []string{"fetch"}
		return graph(after("fetch"), after("other"), n, after("later", "B"))
	}
	for name, f := range ask {
		for _, id := range []string{"fecth", "other", "later", "B"} {
			inBubble(t, name+" of "+id, func(t *testing.T) {
				r := try(t, with(kahn.Node{Test: func(v kahn.View) (any, error) { return asking(f, id)(v) }}), nop)
				r.expect("fetch:ok other:ok B:F later:X", "failed")
				r.cause("B", kahn.CauseConditionError)
				require.ErrorIs(t, r.err, kahn.ErrNotAncestor)

				r = try(t, with(kahn.Node{When: asking(f, id)}), nop)
				r.expect("fetch:ok other:ok B:F later:X", "failed")
				r.cause("B", kahn.CauseConditionError)
				require.ErrorIs(t, r.node("B").GuardErr, kahn.ErrNotAncestor)
				require.Len(t, r.find(event.NodeLog, "B"), 1)

				r = try(t, with(kahn.Node{When: asking(f, id), GuardErrors: kahn.GuardSkip}), nop)
				r.expect("fetch:ok other:ok B:S/when later:S/up", "completed")
				r = try(t, with(kahn.Node{When: asking(f, id), GuardErrors: kahn.GuardAllow}), nop)
				r.expect("fetch:ok other:ok B:ok later:ok", "completed")
			})
		}
		inBubble(t, name+" of an ancestor", func(t *testing.T) {
			r := try(t, with(kahn.Node{When: asking(f, "fetch")}), nop)
			r.expect("fetch:ok other:ok B:S/when later:S/up", "completed")
			require.NoError(t, r.node("B").GuardErr)
		})
		inBubble(t, name+" in the test of a loop", func(t *testing.T) {
			for id, want := range map[string]string{"x": "ok", "y": "F"} {
				r := try(t, graph(kahn.Node{ID: "L", Sub: graph(after("x")), Loop: &kahn.Loop{MaxIterations: 2, While: asking(f, id)}}), nop)
				r.expect("L:"+want, map[string]string{"ok": "completed", "F": "failed"}[want])
				require.Equal(t, want == "F", errors.Is(r.err, kahn.ErrNotAncestor))
			}
		})
		inBubble(t, name+" in a step", func(t *testing.T) {
			try(t, graph(after("A")), func(_ context.Context, s *kahn.Step) (any, error) { f(s.View(), "nobody"); return nil, nil }).
				expect("A:ok", "completed")
		})
	}
	inBubble(t, "one that a trigger has left out", func(t *testing.T) {
		g := graph(kahn.Node{ID: "T1", Kind: kahn.KindTrigger}, kahn.Node{ID: "T2", Kind: kahn.KindTrigger},
			kahn.Node{ID: "N", After: []string{"T1", "T2"}, When: func(v kahn.View) (bool, error) { return v.Status("T2") == kahn.Idle, nil }})
		r := try(t, g, nop, kahn.Fire("T1", nil))
		r.expect("T1:ok N:ok", "completed")
		require.NoError(t, r.node("N").GuardErr)
	})
	inBubble(t, "the texts", func(t *testing.T) {
		text := func(id string) string {
			return try(t, with(kahn.Node{When: asking(ask["Output"], id)}), nop).node("B").GuardErr.Error()
		}
		require.Equal(t, `not an ancestor: "fecth"; did you mean "fetch"? (there is "fetch")`, text("fecth"))
		require.Equal(t, `not an ancestor: "later": no edge leads from it to this node, directly or through others (ancestors: "fetch")`, text("later"))
	})
	inBubble(t, "an error of the guard's own is kept, a panic too", func(t *testing.T) {
		r := try(t, with(kahn.Node{When: func(v kahn.View) (bool, error) { v.Output("x"); return false, errStep }}), nop)
		require.ErrorIs(t, r.node("B").GuardErr, kahn.ErrNotAncestor)
		require.ErrorIs(t, r.node("B").GuardErr, errStep)
		r = try(t, with(kahn.Node{When: func(v kahn.View) (bool, error) { return v.Output("x").(bool), nil }}), nop)
		require.ErrorIs(t, r.node("B").GuardErr, kahn.ErrNotAncestor)
		var panicked *kahn.PanicError
		require.ErrorAs(t, r.node("B").GuardErr, &panicked)
	})
}

// The error for a missing value says why the value is missing.
func TestNoValue(t *testing.T) {
	off := after("off")
	off.Disabled = true
	g := graph(
		kahn.Node{ID: "rows", Do: yields(0, map[string]any{"n": 1})}, kahn.Node{ID: "null", Do: yields(0, nil)}, off,
		kahn.Node{ID: "N", In: []kahn.Edge{
			{From: "rows", Param: "rows"}, {From: "null", Param: "null"}, {From: "off", Param: "off"},
		}}, kahn.Node{ID: "M", In: []kahn.Edge{{From: "rows", Key: "m", Param: "m"}}})
	get := map[string]func(s *kahn.Step) error{
		"rows": func(s *kahn.Step) error { _, err := kahn.Param[int](s, "rows"); return err },
		"rosw": func(s *kahn.Step) error { _, err := kahn.Param[int](s, "rosw"); return err },
		"null": func(s *kahn.Step) error { _, err := kahn.Param[int](s, "null"); return err },
		"off":  func(s *kahn.Step) error { _, err := kahn.Param[int](s, "off"); return err },

		"upstream rows": func(s *kahn.Step) error { _, err := kahn.Upstream[int](s, "rows"); return err },
		"upstream rosw": func(s *kahn.Step) error { _, err := kahn.Upstream[int](s, "rosw"); return err },
		"upstream null": func(s *kahn.Step) error { _, err := kahn.Upstream[int](s, "null"); return err },
		"upstream off":  func(s *kahn.Step) error { _, err := kahn.Upstream[int](s, "off"); return err },

		"root": func(s *kahn.Step) error { _, err := kahn.Root[int](s, "redaer"); return err },
	}
	want := map[string]string{
		"rows": `parameter "rows": wrong type: map[string]interface {} instead of int`,
		"rosw": `parameter "rosw": no value: the node has no such parameter; did you mean "rows"? (there is "null", "off", "rows")`,
		"null": `parameter "null": no value: it is null`,
		"off":  `parameter "off": no value: nothing was delivered; "off" is skipped`,

		"upstream rows": `upstream "rows": wrong type: map[string]interface {} instead of int`,
		"upstream rosw": `upstream "rosw": no value: no edge from it leads to this node; did you mean "rows"? (there is "null", "off", "rows")`,
		"upstream null": `upstream "null": no value: it is null`,
		"upstream off":  `upstream "off": no value: it is skipped`,

		"root": `root input "redaer": no value: the run has no such input; did you mean "reader"? (there is "reader")`,
	}
	inBubble(t, "in a step", func(t *testing.T) {
		r := try(t, g, func(_ context.Context, s *kahn.Step) (any, error) {
			if s.ID() == "M" {
				_, err := kahn.Upstream[int](s, "rows")
				require.EqualError(t, err, `upstream "rows": no value: its output has no "m" (there is "n")`)
				return nil, nil
			}
			for name, f := range get {
				err := f(s)
				require.EqualError(t, err, want[name])
				require.True(t, errors.Is(err, kahn.ErrNoValue) != errors.Is(err, kahn.ErrType), name)
			}
			return nil, nil
		}, kahn.Inputs(map[string]any{"reader": "x"}))
		r.expect("rows:ok null:ok off:S/ann N:ok M:ok", "completed")
		_, err := kahn.Output[int](r.Result, "off")
		require.EqualError(t, err, `output of "off": no value: it is skipped`)
	})
	inBubble(t, "a type that no codec knows", func(t *testing.T) {
		type order struct{}
		r := try(t, graph(kahn.Node{ID: "A", Do: yields(0, order{})}), nop, kahn.Encoding(kahn.Types{}))
		require.ErrorContains(t, r.err, "add it to the Types of the option Encoding")
	})
}

// checked is an expression that asks for one node. The text of the expression is the node's id.
type checked string

func (c checked) Parse(text string) (kahn.Expression, error) { return checked(text), nil }

func (c checked) Evaluate(context.Context, kahn.View) (any, error) { return true, nil }

func (c checked) Check(ancestor, _ func(string) error) error { return ancestor(string(c)) }

func TestTextsOfNoAncestor(t *testing.T) {
	t.Parallel()
	compile := func(strict bool, n kahn.Node) error {
		n.ID, n.After = "B", []string{"fetch"}
		g := graph(after("fetch"), n, after("later", "B"))
		g.Evaluator, g.StrictGuards = checked(""), strict
		_, err := g.Compile()
		return err
	}
	for _, id := range []string{"fecth", "later", "B"} {
		require.ErrorIs(t, compile(true, kahn.Node{WhenExpr: id}), kahn.ErrNotAncestor)
		require.NoError(t, compile(false, kahn.Node{WhenExpr: id}))
		require.ErrorIs(t, compile(false, kahn.Node{TestExpr: id}), kahn.ErrNotAncestor)
		loop := kahn.Node{Sub: graph(after("x")), Loop: &kahn.Loop{MaxIterations: 2, UntilExpr: id}}
		require.ErrorIs(t, compile(false, loop), kahn.ErrNotAncestor)
	}
	require.NoError(t, compile(true, kahn.Node{WhenExpr: "fetch"}))
	require.NoError(t, compile(true, kahn.Node{TestExpr: "fetch"}))
	require.NoError(t, compile(true, kahn.Node{Sub: graph(after("x")), Loop: &kahn.Loop{MaxIterations: 2, UntilExpr: "x"}}))
	require.EqualError(t, compile(true, kahn.Node{WhenExpr: "fecth"}),
		`invalid graph: node "B": WhenExpr: bad expression: not an ancestor: "fecth"; did you mean "fetch"? (there is "fetch")`)
}
