package conformance_test

import (
	"context"
	"errors"
	"go/ast"
	goparser "go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
)

// TestSlips lists mistakes of hosts, with the error text and the place where each is reported: Compile, the call before the run starts, a signal,
// or the node. A mistake that may be intended is reported as a warning.
func TestSlips(t *testing.T) {
	t.Parallel()
	steps := kahn.Mux{"http": nop, "sql": nop, "unset": nil}
	compile := func(g *kahn.Graph) error {
		_, err := g.Compile()
		return err
	}
	execute := func(g *kahn.Graph, step kahn.StepFunc, opts ...kahn.Option) error {
		res, err := kahn.Execute(t.Context(), g, step, opts...)
		require.Nil(t, res, "something was run")
		return err
	}
	run := func(g *kahn.Graph, step kahn.StepFunc, opts ...kahn.Option) *kahn.Result {
		res, _ := kahn.Execute(t.Context(), g, step, opts...)
		require.NotNil(t, res)
		return res
	}
	node := func(res *kahn.Result, id string) kahn.NodeResult {
		n, ok := res.Node(id)
		require.True(t, ok)
		return n
	}
	warning := func(res *kahn.Result) error {
		require.Len(t, res.Warnings, 1)
		require.Equal(t, kahn.RunCompleted, res.Status)
		return res.Warnings[0]
	}
	numbered := graph(mapped("each", numbers(2), kahn.Map{}), kahn.Node{ID: "M", Sub: graph(after("A")), Map: &kahn.Map{Over: "l"}}, kahn.Node{ID: "L", Sub: graph(after("A")), Loop: &kahn.Loop{MaxIterations: 2, Until: func(kahn.View) (bool, error) { return true, nil }}})
	misspelt := graph(kahn.Node{ID: "A", Kind: "htpp"}, kahn.Node{ID: "B", Kind: "sql", After: []string{"A"}})
	asksFor := func(read func(kahn.View)) func(kahn.View) (bool, error) {
		return func(v kahn.View) (bool, error) { read(v); return true, nil }
	}
	status := asksFor(func(v kahn.View) { v.Status("fecth") })
	declares := func(g *kahn.Graph, in ...kahn.Input) *kahn.Graph { g.Inputs = in; return g }
	strict := graph(after("fetch"), kahn.Node{ID: "B", After: []string{"fetch"}, WhenExpr: "fecth"})
	strict.Evaluator, strict.StrictGuards = checked(""), true
	reads := func(read func(*kahn.Step) error) *kahn.Graph {
		return graph(kahn.Node{ID: "rows", Do: yields(0, nil)}, kahn.Node{ID: "B", In: []kahn.Edge{{From: "rows", Param: "rows"}},
			Do: func(_ context.Context, s *kahn.Step) (any, error) { return nil, read(s) }})
	}
	waits := func(g *kahn.Graph) *kahn.Snapshot {
		return run(g, neverStep(t)).Snapshot()
	}
	_, resumed := kahn.Execute(t.Context(), asked(nil, "go"), neverStep(t), kahn.Resume(waits(asked(nil, "go"))), kahn.EarlySignals(map[string]any{"g": "go"}))
	_, redriven := kahn.Execute(t.Context(), graph(after("fetch")), neverStep(t), kahn.Redrive(run(graph(after("fetch")), nop).Snapshot(), []string{"fecth"}))
	_, wrongOutput := kahn.Output[int](run(graph(after("fetch")), nop), "fecth")
	stopping, err := kahn.Start(t.Context(), asked(nil, "go"), neverStep(t))
	require.NoError(t, err)
	stopping.Cancel(kahn.Request{Actor: "ann", Reason: "the wrong customer"})
	_, stopped := stopping.Wait()
	ifExpr := kahn.If("?", nil)
	ifExpr.TestExpr = "fetch"
	ifExpr.After = []string{"fetch"}
	answers := func(label string) *kahn.Graph {
		g := graph(after("fetch"), ifExpr, branch("B", "?", label))
		g.Evaluator = checked("")
		return g
	}
	misread := graph(after("fetch"), kahn.Node{ID: "B", After: []string{"fetch"}, WhenExpr: "fecth"})
	misread.Evaluator = checked("")
	expands := func(_ context.Context, s *kahn.Step) (any, error) {
		if s.ID() == "E" {
			return nil, kahn.Expand(misread, nil, nil)
		}
		return nil, nil
	}
	later := subgraph("S2", graph(subgraph("T", graph(gate("g")))), "G")
	aside := graph(gate("G"), later, subgraph("D", graph(gate("g"), subgraph("T", graph(gate("g")), "g"))), kahn.Node{ID: "L", After: []string{"G"}, Sub: graph(gate("g")),
		Loop: &kahn.Loop{MaxIterations: 2, While: func(kahn.View) (bool, error) { return false, nil }}})
	signals := func(names ...string) (errs []error) {
		r, err := kahn.Start(t.Context(), aside, nop)
		require.NoError(t, err)
		for _, id := range []string{"G", "D"} {
			_, err := r.WaitFor(t.Context(), id, kahn.Suspended)
			require.NoError(t, err)
		}
		for _, name := range names {
			errs = append(errs, r.Signal(context.Background(), name, true))
		}
		require.NoError(t, r.Signal(context.Background(), "D/g", true))
		r.Cancel()
		_, _ = r.Wait()
		return errs
	}
	signalled := signals("S2/T/g", "L/g", "L#1/g", "D/h", "S2/T/x", "D/T/g")
	resume := func(name string) error {
		_, err := kahn.Execute(t.Context(), aside, neverStep(t), kahn.Resume(waits(aside)), kahn.EarlySignals(map[string]any{name: true}))
		return err
	}
	const gateChoices = `no such choice: "aproved"; choose one of "approved"`
	for _, slip := range []struct {
		name string
		err  error
		is   error
		text string
	}{
		// Reported by Compile.
		{"an edge from nowhere", compile(graph(after("fetch"), after("B", "fecth"))), kahn.ErrUnknownNode,
			`edge "fecth" -> "B": unknown node: "fecth"; did you mean "fetch"? (there is "fetch", "B")`},
		{"an edge label of an If", compile(graph(kahn.If("?", status), branch("B", "?", "ture"))), kahn.ErrBadEdge, `the label "ture" can never match: the choices of "?" are "true", "false", "yes", "no"; did you mean "true"?`},
		{"the same inside", compile(graph(subgraph("S", graph(kahn.If("?", status), branch("B", "?", "ture"))))), kahn.ErrBadEdge, `in "S": edge "?" -> "B"`},
		{"a label of a Switch with choices", compile(graph(kahn.Node{ID: "?", Routes: true, Choices: []string{"red"}}, branch("B", "?", "rde"))), kahn.ErrBadEdge, `did you mean "red"?`},
		{"a text guard under StrictGuards", compile(strict), kahn.ErrNotAncestor, `node "B": WhenExpr: bad expression: not an ancestor: "fecth"; did you mean "fetch"? (there is "fetch")`},
		{"the key of an edge", compile(graph(kahn.Node{ID: "A", Outputs: []string{"rows", "header"}}, kahn.Node{ID: "B", In: []kahn.Edge{{From: "A", Key: "haeder"}}})), kahn.ErrBadEdge,
			`the Key "haeder" names none of the Outputs of "A"; did you mean "header"? (there is "rows", "header")`},
		{"a parameter of a composite", compile(graph(kahn.Node{ID: "S", Sub: declares(graph(after("x")), kahn.Input{Name: "rows", Optional: true}), Params: map[string]any{"rosw": 1}})),
			kahn.ErrUnknownInput, `node "S": unknown root input of its graph: "rosw"; did you mean "rows"? (there is "rows")`},
		{"a composite without an input", compile(graph(kahn.Node{ID: "S", Sub: declares(graph(after("x")), kahn.Input{Name: "rows"})})), kahn.ErrUnboundPort, `nothing provides the input "rows" of its graph`},
		{"a group", compile(&kahn.Graph{Groups: []kahn.Group{{Name: "database"}}}), nil, ""},
		{"a misspelt group", compile((&kahn.Graph{Groups: []kahn.Group{{Name: "database"}}}).Add(kahn.Node{ID: "A", Groups: []string{"databse"}})), kahn.ErrBadValue,
			`group "databse" is not declared; did you mean "database"? (there is "database")`},
		{"a merge strategy", compile(graph(kahn.Node{ID: "A", Merge: "arary"})), kahn.ErrBadValue, `no merge strategy "arary"; did you mean "array"?`},

		{"the list of a map", compile(graph(after("A"), kahn.Node{ID: "M", After: []string{"A"}, Params: map[string]any{"list": nil}, Map: &kahn.Map{Over: "lits"}})), kahn.ErrBadValue,
			`node "M": bad value: Map.Over names the parameter "lits", which nothing provides; did you mean "list"? (there is "list")`},
		{"inside of a map, an input", compile(graph(kahn.Node{ID: "S", Sub: declares(graph(kahn.Node{ID: "M", Map: &kahn.Map{Over: "lits"}}), kahn.Input{Name: "list", Optional: true})})),
			kahn.ErrBadValue, `in "S": node "M": bad value: Map.Over names the parameter "lits", which nothing provides; did you mean "list"? (there is "list")`},
		{"a map over an input that is not declared", compile(graph(kahn.Node{ID: "M", Map: &kahn.Map{Over: "list"}})), nil, ""},
		{"a map over the item of another one", compile(graph(kahn.Node{ID: "N", Params: map[string]any{"lists": nil}, Map: &kahn.Map{Over: "lists"},
			Sub: declares(graph(kahn.Node{ID: "M", Map: &kahn.Map{Over: "item"}}), kahn.Input{Name: "x", Optional: true})})), nil, ""},

		{"an edge in a node that leads elsewhere", compile(graph(after("A"), after("C"), kahn.Node{ID: "B", In: []kahn.Edge{{From: "A", To: "C"}}})), kahn.ErrBadEdge,
			`node "B": bad edge: an edge in In leads to this node, but the To of the edge from "A" names "C": leave To empty, or add the edge with Connect`},
		{"a misspelt end", compile(graph(after("A"), kahn.Node{ID: "store", In: []kahn.Edge{{From: "A", To: "stroe"}}})), kahn.ErrBadEdge, `the To of the edge from "A" names "stroe": leave To empty, or add the edge with Connect; did you mean "store"?`},
		{"one that says where it stands", compile(graph(after("A"), kahn.Node{ID: "B", In: []kahn.Edge{{From: "A", To: "B"}}})), nil, ""},
		{"an edge label of an If with a text", compile(answers("ture")), kahn.ErrBadEdge, `the label "ture" can never match: the choices of "?" are "true", "false", "yes", "no"; did you mean "true"?`},
		{"a label that matches", compile(answers("true")), nil, ""},

		// Reported by the call that starts the run.
		{"a kind that the Mux lacks, by Check", steps.Check(misspelt), kahn.ErrUnknownKind,
			`invalid graph: node "A": unknown kind: "htpp"; did you mean "http"? (there is "http", "sql")`},
		{"by the option Kinds", execute(misspelt, neverStep(t), kahn.Kinds(steps)), kahn.ErrUnknownKind,
			`invalid graph: node "A": unknown kind: "htpp"; did you mean "http"? (there is "http", "sql")`},
		{"a kind whose function is nil", kahn.Mux{"http": nil, "sql": nop}.Check(graph(kahn.Node{ID: "A", Kind: "http"})), kahn.ErrUnknownKind, `invalid graph: node "A": unknown kind: "http": its function is nil`},
		{"by the option Kinds", execute(graph(kahn.Node{ID: "A", Kind: "http"}), neverStep(t), kahn.Kinds(kahn.Mux{"http": nil})), kahn.ErrUnknownKind, `node "A": unknown kind: "http": its function is nil`},
		{"by the step", node(run(graph(kahn.Node{ID: "A", Kind: "http"}), kahn.Mux{"http": nil}.Step), "A").Err, kahn.ErrUnknownKind, `unknown kind: "http": its function is nil`},
		{"inside, by the option Kinds", execute(graph(subgraph("S", misspelt)), neverStep(t), kahn.Kinds(steps)), kahn.ErrUnknownKind, `node "S/A": unknown kind: "htpp"`},
		{"a Mux without functions", kahn.Mux{}.Check(graph(kahn.Node{ID: "A"})), kahn.ErrUnknownKind,
			`invalid graph: node "A": unknown kind: "" (there are none)`},
		{"Kinds of nothing", execute(misspelt, nop, kahn.Kinds(nil)), kahn.ErrBadOption, `bad option: Kinds(nil)`},
		{"one node without a step function", execute(graph(after("A")), nil), kahn.ErrNoStep, `no step function: node "A" needs one`},
		{"one inside", execute(graph(subgraph("S", graph(kahn.Node{ID: "M", Sub: graph(after("A")), Map: &kahn.Map{Over: "l"}}))), nil), kahn.ErrNoStep, `no step function: node "S/M[]/A" needs one`},
		{"two", execute(graph(after("A"), after("B")), nil), kahn.ErrNoStep, `no step function: node "A", the first of 2, needs one`},
		{"a node without a moderator", execute(graph(kahn.Node{ID: "A", Moderation: kahn.ModerateOutput}), nop), kahn.ErrNoModerator,
			`no moderator: node "A" asks for one`},
		{"an input that is not declared", execute(declares(graph(after("A")), kahn.Input{Name: "reader"}), neverStep(t), kahn.Inputs(map[string]any{"redaer": 1})), kahn.ErrUnknownInput,
			`unknown root input: "redaer"; did you mean "reader"? (there is "reader"); missing root input: "reader"`},
		{"an early answer", execute(asked(nil, "approved"), neverStep(t), kahn.EarlySignals(map[string]any{"G": "aproved"})), kahn.ErrChoice, `node "G": ` + gateChoices},
		{"an answer in test mode", execute(asked(nil, "approved"), neverStep(t), kahn.TestMode{Mocks: mocks{"G": {Value: "aproved"}}}), kahn.ErrChoice, gateChoices},
		{"an early answer for no gate", execute(asked(nil, "approved"), neverStep(t), kahn.EarlySignals(map[string]any{"g": "approved"})), kahn.ErrUnknownGate, `unknown gate: "g"; did you mean "G"? (there is "G")`},
		{"an answer for no gate", resumed, kahn.ErrUnknownGate, `unknown gate: "g"; did you mean "G"? (there is "G")`},
		{"an early answer inside a composite that has not begun", execute(aside, neverStep(t), kahn.EarlySignals(map[string]any{"S2/T/g": true})), kahn.ErrUnknownGate, `unknown gate: "S2/T/g" is inside "S2", which has not begun`},
		{"an early answer for no gate inside", execute(aside, neverStep(t), kahn.EarlySignals(map[string]any{"D/h": true})), kahn.ErrUnknownGate, `unknown gate: "D/h"; did you mean "D/g"? (there is "D/g")`},
		{"an answer inside a composite that has not begun, later", resume("S2/T/g"), kahn.ErrUnknownGate, `unknown gate: "S2/T/g" is inside "S2", which has not begun`},
		{"an answer for no gate inside, later", resume("D/h"), kahn.ErrUnknownGate, `unknown gate: "D/h"; did you mean "D/g"? (there is "D/g")`},
		{"an answer inside a composite that has not begun", signalled[0], kahn.ErrUnknownGate, `unknown gate: "S2/T/g" is inside "S2", which has not begun`},
		{"an answer inside of a loop", signalled[1], kahn.ErrUnknownGate, `unknown gate: "L/g"; did you mean "L#1/g"?`},
		{"inside its first iteration", signalled[2], kahn.ErrUnknownGate, `unknown gate: "L#1/g" is inside "L", which has not begun`},
		{"an answer for no gate inside of what runs", signalled[3], kahn.ErrUnknownGate, `unknown gate: "D/h"; did you mean "D/g"? (there is "D/g")`},
		{"an answer for no gate inside of what has not begun", signalled[4], kahn.ErrUnknownGate, `unknown gate: "S2/T/x"; did you mean "S2/T/g"? (there is "S2/T/g")`},
		{"an answer for what begins later inside of what runs", signalled[5], kahn.ErrUnknownGate, `unknown gate: "D/T/g" is inside "D/T", which has not begun`},
		{"the same, later", resume("D/T/g"), kahn.ErrUnknownGate, `unknown gate: "D/T/g" is inside "D/T", which has not begun`},
		{"a mock of no node", execute(graph(after("fetch")), neverStep(t), kahn.TestMode{Mocks: mocks{"fecth": {}}}), kahn.ErrUnknownNode, `TestMode.Mocks: unknown node: "fecth"; did you mean "fetch"? (there is "fetch")`},
		{"a mock of no node inside", execute(graph(subgraph("S", graph(after("fetch")))), neverStep(t), kahn.TestMode{Mocks: mocks{"S/fecth": {}}}), kahn.ErrUnknownNode,
			`unknown node: "S/fecth"; did you mean "S/fetch"? (there is "S/fetch")`},
		{"a mock of one item", execute(numbered, neverStep(t), kahn.TestMode{Mocks: mocks{"each[0]": {}}}), kahn.ErrUnknownNode,
			`TestMode.Mocks: unknown node: "each[0]": a path names a node in all items and iterations: write "each[]"`},
		{"a mock inside one item", execute(numbered, neverStep(t), kahn.TestMode{Mocks: mocks{"M[2]/A": {}}}), kahn.ErrUnknownNode, `unknown node: "M[2]/A": a path names a node in all items and iterations: write "M/A"`},
		{"real steps of one iteration", execute(numbered, neverStep(t), kahn.TestMode{Unmock: []string{"L#1/A"}}), kahn.ErrUnknownNode, `TestMode.Unmock: unknown node: "L#1/A": a path names a node in all items and iterations: write "L/A"`},
		{"no node in one item", execute(numbered, neverStep(t), kahn.TestMode{Mocks: mocks{"M[2]/B": {}}}), kahn.ErrUnknownNode, `unknown node: "M[2]/B"`},
		{"a node to redrive", redriven, kahn.ErrUnknownNode, `unknown node: "fecth"; did you mean "fetch"?`},
		{"the output of no node", wrongOutput, kahn.ErrUnknownNode, `unknown node: "fecth"; did you mean "fetch"?`},

		{"a request to stop", stopped, kahn.ErrCancelled, `run cancelled (cancel_run) by "ann" because "the wrong customer"`},

		// Reported by the node.
		{"a condition that asks for no ancestor", node(run(graph(after("fetch"), kahn.If("?", status, "fetch")), nop), "?").Err, kahn.ErrNotAncestor,
			`node "?": condition_error: not an ancestor: "fecth"; did you mean "fetch"? (there is "fetch")`},
		{"a guard that does", node(run(graph(after("fetch"), kahn.Node{ID: "B", After: []string{"fetch"}, When: status}), nop), "B").GuardErr, kahn.ErrNotAncestor,
			`not an ancestor: "fecth"; did you mean "fetch"? (there is "fetch")`},
		{"a guard that asks for no input", node(run(declares(graph(kahn.Node{ID: "B", When: func(v kahn.View) (bool, error) { _, ok := v.Root("redaer"); return ok, nil }}), kahn.Input{Name: "reader", Optional: true}), nop), "B").GuardErr,
			kahn.ErrUnknownInput, `unknown root input: "redaer"; did you mean "reader"? (there is "reader")`},
		{"a parameter", node(run(reads(func(s *kahn.Step) error { _, err := kahn.Param[int](s, "rosw"); return err }), nil), "B").Err, kahn.ErrNoValue,
			`parameter "rosw": no value: the node has no such parameter; did you mean "rows"? (there is "rows")`},
		{"a predecessor", node(run(reads(func(s *kahn.Step) error { _, err := kahn.Upstream[int](s, "rosw"); return err }), nil), "B").Err, kahn.ErrNoValue,
			`upstream "rosw": no value: no edge from it leads to this node; did you mean "rows"? (there is "rows")`},
		{"a path into an output", node(run(graph(kahn.Node{ID: "A", Do: yields(0, map[string]any{"user": struct {
			Name string `json:"name"`
			Age  int
		}{}, "rows": 1})}, kahn.Node{ID: "B", In: []kahn.Edge{{From: "A", Key: "user.nmae", Param: "who"}}, Do: func(_ context.Context, s *kahn.Step) (any, error) {
			_, err := kahn.Param[string](s, "who")
			return nil, err
		}}), nil), "B").Err, kahn.ErrNoValue, `parameter "who": no value: nothing was delivered; the output of "A" has no "user.nmae"; did you mean "user.name"? (there is "user.Age", "user.name")`},
		{"the list of a map that may be an input", node(run(graph(kahn.Node{ID: "M", Params: map[string]any{"list": nil}, Map: &kahn.Map{Over: "lits"}}), nop), "M").Err, kahn.ErrNoValue,
			`node "M": contract_violated_input: parameter "lits": no value: the node has no such parameter; did you mean "list"? (there is "list")`},
		{"a null", node(run(reads(func(s *kahn.Step) error { _, err := kahn.Param[int](s, "rows"); return err }), nil), "B").Err, kahn.ErrNoValue, `parameter "rows": no value: it is null`},
		{"a root input", node(run(reads(func(s *kahn.Step) error { _, err := kahn.Root[int](s, "redaer"); return err }), nil, kahn.Inputs(map[string]any{"reader": 1})), "B").Err, kahn.ErrNoValue,
			`root input "redaer": no value: the run has no such input; did you mean "reader"? (there is "reader")`},
		{"a kind that is met at run time", node(run(misspelt, steps.Step), "A").Err, kahn.ErrUnknownKind, `unknown kind: "htpp"; did you mean "http"?`},
		{"a panic", node(run(graph(after("A")), func(context.Context, *kahn.Step) (any, error) { panic("oh") }), "A").Err, nil, `node "A": panic: oh`},

		// Reported as a warning.
		{"an answer that meets no edge", warning(run(graph(kahn.Node{ID: "?", Routes: true, Do: yields(0, "gren")}, branch("B", "?", "green")), nop)), kahn.ErrNoMatch,
			`no branch matches: node "?": no such choice: "gren"; choose one of "green"; did you mean "green"?`},
		{"a guard in a graph that a step returns", warning(run(graph(subgraph("S", graph(after("E")))), expands)), kahn.ErrBadExpression, `in "S": in "E": node "B": WhenExpr: bad expression: not an ancestor: "fecth"`},
		{"the same for each item of a map", warning(run(graph(kahn.Node{ID: "M", Params: map[string]any{"list": []int{1, 2, 3}}, Map: &kahn.Map{Over: "list"},
			Do: func(context.Context, *kahn.Step) (any, error) { return nil, kahn.Expand(misread, nil, nil) }}), nop)), kahn.ErrBadExpression, `in "M": node "B": WhenExpr`},
		{"a trigger", warning(run(graph(kahn.Node{ID: "nightly", Kind: kahn.KindTrigger}), nil, kahn.Fire("nihgtly", nil))), kahn.ErrUnknownTrigger,
			`unknown trigger: "nihgtly"; did you mean "nightly"? (there is "nightly")`},
	} {
		t.Run(slip.name, func(t *testing.T) {
			if slip.text == "" {
				require.NoError(t, slip.err)
				return
			}
			require.ErrorContains(t, slip.err, slip.text)
			if slip.is != nil {
				require.ErrorIs(t, slip.err, slip.is)
			}
			require.NotContains(t, slip.err.Error(), "and 0 more")
			require.NotContains(t, slip.err.Error(), "panic: panic:")
		})
	}
}

func TestKinds(t *testing.T) {
	steps := kahn.Mux{"a": func(context.Context, *kahn.Step) (any, error) { return 1, nil }}
	list := map[string]any{"l": []int{1}}
	sub := func() *kahn.Graph { return graph(kahn.Node{ID: "x", Kind: "a"}, kahn.Node{ID: "y", Kind: "b"}) }
	for _, row := range []struct {
		name string
		g    *kahn.Graph
		opts []kahn.Option
		want []string // the nodes that the error names
	}{
		{"known", graph(kahn.Node{ID: "A", Kind: "a"}), nil, nil},
		{"every node of an unknown kind", graph(kahn.Node{ID: "A", Kind: "b"}, kahn.Node{ID: "B"}), nil, []string{`"A"`, `"B"`}},
		{"those that need no kind", graph(
			kahn.Node{ID: "do", Do: nop}, kahn.If("if", func(kahn.View) (bool, error) { return true, nil }), kahn.Node{ID: "off", Disabled: true},
			kahn.Node{ID: "gate", Kind: kahn.KindGate, Disabled: true}), nil, nil},
		{"nested", graph(kahn.Node{ID: "S", Sub: graph(kahn.Node{ID: "T", Sub: sub()})}), nil, []string{`"S/T/y"`}},
		{"nested and disabled", graph(kahn.Node{ID: "S", Sub: sub(), Disabled: true}), nil, nil},
		{"a map of steps, a map of graphs and a loop", graph(kahn.Node{ID: "M", Kind: "b", Map: &kahn.Map{Over: "l"}, Params: list},
			kahn.Node{ID: "N", Sub: sub(), Map: &kahn.Map{Over: "l"}, Params: list},
			kahn.Node{ID: "L", Sub: sub(), Loop: &kahn.Loop{MaxIterations: 1, While: func(kahn.View) (bool, error) { return false, nil }}}), nil, []string{`"M`, `"N[]/y"`, `"L/y"`}},
		{"the end node", graph(kahn.Node{ID: "E", Kind: kahn.KindEnd}), nil, []string{`"E"`}},
		{"mocked", graph(kahn.Node{ID: "A", Kind: "b"}), []kahn.Option{kahn.TestMode{Mocks: mocks{"A": {}}}}, nil},
		{"mocked inside", graph(kahn.Node{ID: "S", Sub: sub()}), []kahn.Option{kahn.TestMode{Mocks: mocks{"S/y": {}}}}, nil},
		{"mocked inside, but another", graph(kahn.Node{ID: "S", Sub: sub()}), []kahn.Option{kahn.TestMode{Mocks: mocks{"S/x": {}}}}, []string{`"S/y"`}},
	} {
		inBubble(t, row.name, func(t *testing.T) {
			calls := map[string]func(...kahn.Option) error{
				"Execute": func(o ...kahn.Option) error { _, err := kahn.Execute(t.Context(), row.g, steps.Step, o...); return err },
				"Runner": func(o ...kahn.Option) error {
					_, err := new(kahn.Runner).Execute(t.Context(), row.g, steps.Step, o...)
					return err
				},
			}
			for name, call := range calls {
				err := call(append(row.opts, kahn.Kinds(steps))...)
				var bad *kahn.GraphError
				if !errors.As(err, &bad) {
					require.Empty(t, row.want, name)
					require.NoError(t, err, name)
					continue
				}
				require.Len(t, bad.Problems, len(row.want), "%s: %v", name, err)
				for i, id := range row.want {
					require.ErrorIs(t, bad.Problems[i], kahn.ErrUnknownKind)
					require.ErrorContains(t, bad.Problems[i], "node "+id)
				}
			}
		})
	}
}

// If a graph is nested twice on each of many levels, Mux.Check checks it once, not once for each path.
func TestKindsOfDeepGraphs(t *testing.T) {
	t.Parallel()
	g := graph(kahn.Node{ID: "x", Kind: "b"})
	for range 50 {
		g = graph(kahn.Node{ID: "l", Sub: g}, kahn.Node{ID: "r", Sub: g})
	}
	begun := time.Now()
	require.ErrorIs(t, kahn.Mux{"a": nop}.Check(g), kahn.ErrUnknownKind)
	require.Less(t, time.Since(begun), 10*time.Second)
}

// The default maximum delay does not shorten a longer InitialDelay.
func TestInitialDelayAboveDefaultCap(t *testing.T) {
	inBubble(t, "no cap is set", func(t *testing.T) {
		policy := kahn.Retry{MaxAttempts: 3, InitialDelay: time.Minute, Jitter: kahn.JitterNone}
		r := try(t, graph(kahn.Node{ID: "A", Retry: policy}), always(errStep))
		r.expectDelays("A", time.Minute, time.Minute)
	})
	inBubble(t, "one is set", func(t *testing.T) {
		policy := kahn.Retry{MaxAttempts: 3, InitialDelay: time.Minute, MaxDelay: time.Second, Jitter: kahn.JitterNone}
		r := try(t, graph(kahn.Node{ID: "A", Retry: policy}), always(errStep))
		r.expectDelays("A", time.Second, time.Second)
	})
}

func TestErrorTexts(t *testing.T) {
	t.Run("none names the package, and none begins with a capital", func(t *testing.T) {
		files, err := filepath.Glob("../*.go")
		require.NoError(t, err)
		exported := 0
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			parsed, err := goparser.ParseFile(token.NewFileSet(), file, nil, 0)
			require.NoError(t, err)
			ast.Inspect(parsed, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.BasicLit:
					if n.Kind == token.STRING && strings.HasPrefix(n.Value, `"kahn:`) {
						t.Errorf("%s: %s", file, n.Value)
					}
				case *ast.ValueSpec:
					for i, name := range n.Names {
						if !strings.HasPrefix(name.Name, "Err") || i >= len(n.Values) {
							continue
						}
						exported++
						ast.Inspect(n.Values[i], func(v ast.Node) bool {
							if text, ok := v.(*ast.BasicLit); ok && unicode.IsUpper(rune(text.Value[1])) {
								t.Errorf("%s: %s is %s", file, name.Name, text.Value)
							}
							return true
						})
					}
				}
				return true
			})
		}
		require.Greater(t, exported, 40, "the errors of the package were not found")
	})
	inBubble(t, "a panic is called one once", func(t *testing.T) {
		r := try(t, graph(after("A")), func(context.Context, *kahn.Step) (any, error) { panic("oh") })
		require.EqualError(t, r.err, `run failed: node "A": panic: oh`)
	})
	inBubble(t, "a disabled node asks for nothing", func(t *testing.T) {
		off := kahn.Node{ID: "A", Disabled: true, Moderation: kahn.ModerateOutput, Ports: []kahn.Port{{Name: "p", Required: true}}}
		g := graph(off, kahn.Node{ID: "S", Disabled: true, Sub: graph(after("x"))})
		g.Inputs = []kahn.Input{{Name: "p", Optional: true}}
		try(t, g, nil).expect("A:S/ann S:S/ann", "completed")
	})
}
