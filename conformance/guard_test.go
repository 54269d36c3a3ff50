package conformance_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
)

// phrases is an evaluator that parses only a few known texts.
type phrases map[string]expression

type expression func(context.Context, kahn.View) (any, error)

func (e expression) Evaluate(ctx context.Context, v kahn.View) (any, error) { return e(ctx, v) }

var errSyntax = errors.New("unexpected end of text")

func (p *phrases) Parse(text string) (kahn.Expression, error) {
	if e, ok := (*p)[text]; ok {
		return e, nil
	}
	return nil, fmt.Errorf("%q: %w", text, errSyntax)
}

var errNoPath = errors.New("no such path")

// fluent evaluates the guard texts of these tests.
var fluent = &phrases{
	"panics": func(context.Context, kahn.View) (any, error) { panic(errNoPath) },
	"nodes.A.output.flag": func(_ context.Context, v kahn.View) (any, error) {
		m, _ := v.Output("A").(map[string]any)
		if flag, ok := m["flag"]; ok {
			return flag, nil
		}
		return nil, errNoPath
	},
	"size": func(_ context.Context, v kahn.View) (any, error) { return v.Output("A"), nil },
}

func TestScenarioGuardText(t *testing.T) {
	for _, row := range []struct {
		name   string
		text   string
		policy kahn.GuardPolicy
		output any // output of A
		want   string
		err    error
	}{
		{"206 a path that does not exist allows", "nodes.A.output.flag", 0, map[string]any{}, "ok", errNoPath},
		{"206 GuardErrors skip", "nodes.A.output.flag", kahn.GuardSkip, nil, "S/when", errNoPath},
		{"207 a path that holds null is a value", "nodes.A.output.flag", 0, map[string]any{"flag": nil}, "S/when", nil},
		{"207 true", "nodes.A.output.flag", 0, map[string]any{"flag": true}, "ok", nil},
		{"207 a template's false", "nodes.A.output.flag", 0, map[string]any{"flag": "false"}, "S/when", nil},
		{"207 a value that is truthy", "nodes.A.output.flag", 0, map[string]any{"flag": []int{0}}, "ok", nil},
		{"208 a malformed guard allows", "(((", 0, nil, "ok", kahn.ErrBadExpression},
		{"208 GuardErrors skip", "(((", kahn.GuardSkip, nil, "S/when", kahn.ErrBadExpression},
		{"209 GuardErrors fail", "(((", kahn.GuardFail, nil, "F", kahn.ErrBadExpression},
		{"210 a guard that panics allows", "panics", 0, nil, "ok", errNoPath},
		{"210 GuardErrors fail", "panics", kahn.GuardFail, nil, "F", errNoPath},
	} {
		bothModes(t, row.name, func(t *testing.T, mode kahn.Mode) {
			g := graph(kahn.Node{ID: "A", Do: yields(0, row.output)},
				kahn.Node{ID: "B", After: []string{"A"}, WhenExpr: row.text, GuardErrors: row.policy, Retry: kahn.RetryStandard()})
			g.Evaluator = fluent
			var c calls
			r := try(t, g, c.count(takes(ms)), mode)
			run := "completed"
			if row.want == "F" {
				run = "failed"
				r.cause("B", kahn.CauseConditionError)
			}
			r.expect("A:ok B:"+row.want, run)
			n := r.node("B")
			if !errors.Is(n.GuardErr, row.err) || (n.GuardErr == nil) != (row.err == nil) || (c.of("B") == 1) != (row.want == "ok") {
				t.Errorf("%+v, %d calls", n, c.of("B"))
			}
			if row.want == "S/when" && n.Skip.Expression != row.text {
				t.Errorf("skipped for %v", n.Skip)
			}
			logs := r.find(event.NodeLog, "B")
			if (len(logs) == 1) != (row.err != nil) {
				t.Fatalf("logs %v", logs)
			}
			if row.err == nil {
				return
			}
			log := logs[0].Payload.(event.LogRecord)
			if log.Level != slog.LevelWarn || !strings.Contains(log.Message, "guard could not decide") {
				t.Errorf("log %+v", log)
			}
		})
	}
}

// TestStrictGuards: a condition's text that does not parse is reported before the run starts. With StrictGuards this also holds for guards.
func TestStrictGuards(t *testing.T) {
	whole := func(change func(*kahn.Graph), n kahn.Node) error {
		n.ID = "X"
		g := graph(n)
		g.Evaluator = fluent
		change(g)
		_, err := g.Compile()
		res, runErr := kahn.Execute(t.Context(), g, nop)
		if (res == nil) != (err != nil) || fmt.Sprint(err) != fmt.Sprint(runErr) && err != nil {
			t.Errorf("Compile says %v, Execute %v", err, runErr)
		}
		return err
	}
	lenient := func(*kahn.Graph) {}
	strict := func(g *kahn.Graph) { g.StrictGuards = true }
	mute := func(g *kahn.Graph) { g.Evaluator = nil }
	nobody := func(g *kahn.Graph) { g.Evaluator = (*phrases)(nil) }
	anyTest := func(kahn.View) (any, error) { return true, nil }

	require.NoError(t, whole(lenient, kahn.Node{WhenExpr: "((("}))
	require.NoError(t, whole(strict, kahn.Node{WhenExpr: "size"}))
	for _, c := range []struct {
		name   string
		change func(*kahn.Graph)
		node   kahn.Node
		want   error
	}{
		{"strict", strict, kahn.Node{WhenExpr: "((("}, kahn.ErrBadExpression},
		{"strict, the evaluator's error", strict, kahn.Node{WhenExpr: "((("}, errSyntax},
		{"condition", lenient, kahn.Node{TestExpr: "((("}, kahn.ErrBadExpression},
		{"no evaluator", mute, kahn.Node{WhenExpr: "size"}, kahn.ErrNoEvaluator},
		{"no evaluator for a condition", mute, kahn.Node{TestExpr: "size"}, kahn.ErrNoEvaluator},
		{"nil evaluator", nobody, kahn.Node{WhenExpr: "size"}, kahn.ErrNoEvaluator},
		{"two guards", lenient, kahn.Node{WhenExpr: "size", When: func(kahn.View) (bool, error) { return true, nil }}, kahn.ErrBadValue},
		{"two tests", lenient, kahn.Node{TestExpr: "size", Test: anyTest}, kahn.ErrBadValue},
		{"Do and TestExpr", lenient, kahn.Node{TestExpr: "size", Do: nop}, kahn.ErrBadValue},
		{"guarded end", lenient, kahn.Node{Kind: kahn.KindEnd, WhenExpr: "size"}, kahn.ErrBadEnd},
		{"testing end", lenient, kahn.Node{Kind: kahn.KindEnd, TestExpr: "size"}, kahn.ErrBadEnd},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := whole(c.change, c.node)
			require.ErrorIs(t, err, c.want)
			require.ErrorContains(t, err, `"X"`)
		})
	}
}

// TestConditionText: a condition given as a text behaves like any other condition: it is evaluated inline, may be an error boundary, and is
// routed by its value.
func TestConditionText(t *testing.T) {
	for _, c := range []struct {
		text   string
		a      kahn.StepFunc
		expect string
		run    string
	}{
		{"size", yields(0, "small"), "A:ok C:ok small:ok other:S/br", "completed"},
		{"size", yields(0, 7), "A:ok C:ok small:S/br other:ok", "completed"}, // no branch has this label, so the default branch is taken
		{"size", always(errStep), "A:F C:F small:X other:X", "failed"},       // the text reads the output of a failed node without checking its status
		{"nodes.A.output.flag", yields(0, "small"), "A:ok C:F small:X other:X", "failed"},
		{"panics", yields(0, "small"), "A:ok C:F small:X other:X", "failed"},
	} {
		bothModes(t, c.text+" "+c.expect, func(t *testing.T, mode kahn.Mode) {
			g := graph(kahn.Node{ID: "A", Do: c.a}, kahn.Node{ID: "C", After: []string{"A"}, TestExpr: c.text},
				kahn.Node{ID: "small", In: []kahn.Edge{{From: "C", Label: "small"}}},
				kahn.Node{ID: "other", In: []kahn.Edge{{From: "C", Label: "default"}}})
			g.Evaluator = fluent
			r := try(t, g, nop, mode, kahn.Limit(1))
			r.expect(c.expect, c.run)
			r.count(event.NodeQueued, "C", 0)
			if c.run == "failed" {
				r.cause("C", kahn.CauseConditionError)
			}
		})
	}
}

// TestExpressionContext: the context of an expression lasts one second, also in a run that is being stopped, and has the values of the caller's
// context.
func TestExpressionContext(t *testing.T) {
	type key struct{}
	inBubble(t, "deadline", func(t *testing.T) {
		g := graph(kahn.Node{ID: "A", WhenExpr: "slow"})
		g.Evaluator = &phrases{"slow": func(ctx context.Context, v kahn.View) (any, error) {
			if ctx.Value(key{}) != "value" {
				t.Errorf("no value in %v", ctx)
			}
			<-ctx.Done()
			return nil, ctx.Err()
		}}
		r := tryControlled(t, context.WithValue(t.Context(), key{}, "value"), g, nop, nil)
		r.expect("A:ok", "completed")
		if !errors.Is(r.node("A").GuardErr, context.DeadlineExceeded) || r.at(event.NodeStarted, "A") != time.Second {
			t.Errorf("%+v", r.node("A"))
		}
	})
	inBubble(t, "cleanup in a stopped run", func(t *testing.T) {
		g := graph(kahn.Node{ID: "A"}, kahn.Node{ID: "K", After: []string{"A"}, Cleanup: true, WhenExpr: "live"})
		g.Evaluator = &phrases{"live": func(ctx context.Context, v kahn.View) (any, error) {
			return v.Status("A") == kahn.Cancelled, ctx.Err()
		}}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		r := tryControlled(t, ctx, g, nop, nil)
		r.expect("A:C K:ok", "cancelled")
		if err := r.node("K").GuardErr; err != nil {
			t.Error(err)
		}
	})
}

// TestTextIsPortable: Plan reports texts and data schemas as portable, and functions and contracts as not portable. The plan returns the texts of
// the graph.
func TestTextIsPortable(t *testing.T) {
	n := kahn.Node{ID: "C", TestExpr: "size", WhenExpr: "size", InputSchema: map[string]any{"type": "object"}}
	g := graph(n)
	g.Evaluator, g.Schemas = fluent, shapes{}
	p, err := g.Compile()
	require.NoError(t, err)
	require.NoError(t, p.Portable())
	n.GuardErrors = kahn.GuardAllow // the default that Compile fills in
	require.Equal(t, n, p.Node(0))

	step := func(context.Context, *kahn.Step) (any, error) { return nil, nil }
	asks := func(kahn.View) (bool, error) { return false, nil }
	nodes := map[string]kahn.Node{
		"Do":           {Do: step},
		"Test":         {Test: func(kahn.View) (any, error) { return "", nil }},
		"When":         {When: asks},
		"Fallback":     {Fallback: func(context.Context, error) (any, error) { return nil, nil }},
		"Compensate":   {Compensate: func(context.Context, *kahn.Step) error { return nil }},
		"MemoKey":      {Memo: "1", MemoKey: func(*kahn.Step) (string, error) { return "", nil }},
		"Gate.Check":   {Kind: kahn.KindGate, Gate: &kahn.Gate{Check: func(any) error { return nil }}},
		"Gate.Schema":  {Kind: kahn.KindGate, Gate: &kahn.Gate{Schema: shape{}}},
		"InputSchema":  {InputSchema: shape{}},
		"OutputSchema": {OutputSchema: shape{}},
		"Map.Key":      {Map: &kahn.Map{Over: "list", Key: func(any) string { return "" }}},
		"Map.Estimate": {Map: &kahn.Map{Over: "list", Estimate: func(any) time.Duration { return 0 }}},
		"Loop.While":   {Sub: graph(after("x")), Loop: &kahn.Loop{MaxIterations: 2, While: asks}},
		"Loop.Until":   {Sub: graph(after("x")), Loop: &kahn.Loop{MaxIterations: 2, Until: asks}},
	}
	for _, of := range []reflect.Type{reflect.TypeFor[kahn.Node](), reflect.TypeFor[kahn.Edge](), reflect.TypeFor[kahn.Graph]()} {
		for _, name := range functionFields(of, "") {
			require.Contains(t, nodes, name, "a function field of %v without a case", of)
		}
	}
	for name, n := range nodes {
		n.ID = "X"
		p, err = graph(n).Compile()
		require.NoError(t, err, name)
		err = p.Portable()
		require.ErrorContains(t, err, name+" is Go code")
		require.Equal(t, 1, strings.Count(err.Error(), "is Go code"), "%s: %v", name, err)
	}
}

// functionFields returns the names of the exported fields that contain functions, in a struct and in the structs of its fields, except for sub-graphs.
func functionFields(of reflect.Type, prefix string) (names []string) {
	for _, f := range reflect.VisibleFields(of) {
		inner := f.Type
		for inner.Kind() == reflect.Pointer || inner.Kind() == reflect.Slice || inner.Kind() == reflect.Map {
			inner = inner.Elem()
		}
		switch {
		case !f.IsExported() || inner == reflect.TypeFor[kahn.Graph]():
		case inner.Kind() == reflect.Func:
			names = append(names, prefix+f.Name)
		case inner.Kind() == reflect.Struct:
			names = append(names, functionFields(inner, prefix+f.Name+".")...)
		}
	}
	return names
}

// TestMergesAreNotPortable: another process does not have the merge strategies that were registered, even if the plan uses none of them.
func TestMergesAreNotPortable(t *testing.T) {
	t.Parallel()
	merge := func([]kahn.Contribution) (any, error) { return nil, nil }
	inner := graph(after("x")).RegisterMerge("most", merge)
	p, err := graph(kahn.Node{ID: "S", Sub: inner}).RegisterMerge("least", merge).RegisterMerge("all", merge).Compile()
	require.NoError(t, err)
	var problems *kahn.GraphError
	require.ErrorAs(t, p.Portable(), &problems)
	var texts []string
	for _, problem := range problems.Problems {
		texts = append(texts, problem.Error())
	}
	require.Equal(t, []string{`bad value: the merge strategy "all" is Go code`, `bad value: the merge strategy "least" is Go code`,
		`in "S": bad value: the merge strategy "most" is Go code`}, texts)

	fired, err := graph(kahn.Node{ID: "T", Kind: kahn.KindTrigger}).RegisterMerge("all", merge).Compile()
	require.NoError(t, err)
	pruned, err := fired.Prune("T", 0)
	require.NoError(t, err)
	require.ErrorContains(t, pruned.Portable(), `the merge strategy "all" is Go code`)
}

// TestCompileAgain: compiling an unchanged graph again returns the same plan. With another Evaluator or SchemaCompiler it returns a new plan.
func TestCompileAgain(t *testing.T) {
	g := graph(kahn.Node{ID: "A", WhenExpr: "((("})
	g.Evaluator = fluent
	p, err := g.Compile()
	require.NoError(t, err)
	again, err := g.Compile()
	require.NoError(t, err)
	require.Same(t, p, again)
	g.StrictGuards = true
	_, err = g.Compile()
	require.ErrorIs(t, err, kahn.ErrBadExpression)
	g.StrictGuards = false
	g.Evaluator = nil
	_, err = g.Compile()
	require.ErrorIs(t, err, kahn.ErrNoEvaluator)
	g.Evaluator = reads{"(((": nil} // not comparable, so it counts as changed
	for range 2 {
		again, err = g.Compile()
		require.NoError(t, err)
		require.NotSame(t, p, again)
		p = again
	}
}

// reads is an evaluator of a map type, which cannot be compared.
type reads map[string]expression

func (r reads) Parse(text string) (kahn.Expression, error) { return r[text], nil }

// TestHostileParser: if an evaluator panics, or returns nil without an error, Compile reports a problem of the text. No lock is held while the
// evaluator is called.
func TestHostileParser(t *testing.T) {
	for name, parse := range map[string]parser{
		"panics":   func(string) (kahn.Expression, error) { panic("no") },
		"nothing":  func(string) (kahn.Expression, error) { return nil, nil },
		"typedNil": func(string) (kahn.Expression, error) { return expression(nil), nil },
	} {
		t.Run(name, func(t *testing.T) {
			g := graph(kahn.Node{ID: "A", TestExpr: "x"})
			g.Evaluator = &parse
			_, err := g.Compile()
			require.ErrorIs(t, err, kahn.ErrBadExpression)
		})
	}
	g := graph(kahn.Node{ID: "A", TestExpr: "x"})
	depth := 0
	own := parser(func(string) (kahn.Expression, error) {
		if depth++; depth == 1 {
			if _, err := g.Compile(); err != nil {
				return nil, err
			}
		}
		return fluent.Parse("size")
	})
	g.Evaluator = &own
	_, err := g.Compile()
	require.NoError(t, err)
}

type parser func(string) (kahn.Expression, error)

func (p *parser) Parse(text string) (kahn.Expression, error) { return (*p)(text) }

func TestTruthy(t *testing.T) {
	type text string
	type flag bool
	var nilMap map[string]int
	zero, one := 0, 1
	for _, v := range []any{nil, false, flag(false), 0, int8(0), uint64(0), 0.0, "", "false", text("false"), nilMap, []int{}, []string(nil),
		map[string]any{}, [0]int{}, json.Number("0"), json.Number("0.00"), json.RawMessage("null"), (*int)(nil), &zero, time.Duration(0)} {
		require.False(t, kahn.Truthy(v), "%T %v", v, v)
	}
	for _, v := range []any{true, flag(true), 1, -1, 0.5, "0", "true", "False", " ", "no", text("x"), []int{0}, map[string]any{"a": nil},
		json.Number("1e-3"), &one, struct{}{}, time.Second, 2i} {
		require.True(t, kahn.Truthy(v), "%T %v", v, v)
	}
}
