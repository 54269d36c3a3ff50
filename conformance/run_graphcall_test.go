package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/kahntest"
)

// decisions returns a graph with every kind of deciding function. Each function increments calls, and decides by the count.
func decisions(calls *int) *kahn.Graph {
	count := func() int { *calls++; return *calls }
	inner := new(kahn.Graph).Add(kahn.Node{ID: "x", When: func(kahn.View) (bool, error) { return count() > 0, nil }})
	return new(kahn.Graph).Add(
		kahn.Node{ID: "guard", When: func(kahn.View) (bool, error) { return count() < 0, nil }},
		kahn.Node{ID: "panics", When: func(kahn.View) (bool, error) { count(); panic("in the guard") }, GuardErrors: kahn.GuardFail, ContinueOnFail: true},
		kahn.Node{ID: "test", Test: func(kahn.View) (any, error) { return nil, fmt.Errorf("test %d", min(count(), 0)) }, ContinueOnFail: true},
		kahn.Node{ID: "none", Test: func(kahn.View) (any, error) { count(); return nil, nil }},
		kahn.Node{ID: "loop", Sub: inner, Loop: &kahn.Loop{MaxIterations: 9, Until: func(v kahn.View) (bool, error) { return v.Iteration() == 2 && count() > 0, nil }}},
		kahn.Node{ID: "falls", Do: func(context.Context, *kahn.Step) (any, error) { return nil, errStep }, Fallback: func(context.Context, error) (any, error) { return min(count(), 1), nil }},
	)
}

// A host records the results of the functions of a graph. It can then perform the same run without calling the functions.
func TestGraphCalls(t *testing.T) {
	type returned struct {
		path, field string
		value       any
		err         error
	}
	calls := 0
	var seen []returned
	record := kahn.GraphCalls(func(path, field string, call func() (any, error)) (value any, err error) {
		defer func() {
			p := recover()
			if seen = append(seen, returned{path, field, value, err}); p != nil {
				seen[len(seen)-1].err = fmt.Errorf("panic: %v", p)
				panic(p)
			}
		}()
		return call()
	})
	do := func(context.Context, *kahn.Step) (any, error) { return 1, nil }
	const want = "guard:S/when panics:F test:F none:ok loop:ok falls:ok"
	res, err := kahn.Execute(t.Context(), decisions(&calls), do, record, kahn.Limit(1))
	require.NoError(t, err)
	kahntest.RequireStatuses(t, res, want)
	require.Equal(t, calls+1, len(seen), "each function is called through the option; the first test of the loop counts nothing")

	made, next := calls, 0
	again := kahn.GraphCalls(func(path, field string, _ func() (any, error)) (any, error) {
		r := seen[next]
		next++
		require.Equal(t, []string{r.path, r.field}, []string{path, field})
		return r.value, r.err
	})
	res, err = kahn.Execute(t.Context(), decisions(&calls), do, again, kahn.Limit(1))
	require.NoError(t, err)
	kahntest.RequireStatuses(t, res, want)
	require.Equal(t, made, calls, "a function was called")
	falls, _ := res.Node("falls")
	require.Equal(t, 1, falls.Output)

	// If the host's record for a guard is not a bool, the guard fails.
	odd := kahn.GraphCalls(func(string, string, func() (any, error)) (any, error) { return "yes", nil })
	g := new(kahn.Graph).Add(kahn.Node{ID: "a", When: func(kahn.View) (bool, error) { return true, nil }, GuardErrors: kahn.GuardFail})
	_, err = kahn.Execute(t.Context(), g, do, odd)
	require.ErrorIs(t, err, kahn.ErrBadValue)
	require.ErrorContains(t, err, `GraphCalls has returned a string for When of node "a", not a bool`)
	_, err = kahn.Execute(t.Context(), g, do, kahn.GraphCalls(nil))
	require.True(t, errors.Is(err, kahn.ErrBadOption), "%v", err)
}

// A function asks a View for a value that does not exist, and the host records the call with this error. Another run reaches the same decision
// from the record.
func TestGraphCallsOfSlips(t *testing.T) {
	t.Parallel()
	guard := func(ask func(kahn.View), fate error) func(kahn.View) (bool, error) {
		return func(v kahn.View) (bool, error) { ask(v); return true, fate }
	}
	other, input := func(v kahn.View) { v.Output("other") }, func(v kahn.View) { v.Root("undeclared") }
	silent := func(v kahn.View) { v.Has("other") }
	rows := map[string]struct {
		node kahn.Node
		want string
		err  error
	}{
		"guard":                 {kahn.Node{When: guard(other, nil), GuardErrors: kahn.GuardFail}, "F", kahn.ErrNotAncestor},
		"guard that skips":      {kahn.Node{When: guard(other, nil), GuardErrors: kahn.GuardSkip}, "S/when", nil},
		"guard that lets pass":  {kahn.Node{When: guard(other, nil), GuardErrors: kahn.GuardAllow}, "ok", nil},
		"guard, an input":       {kahn.Node{When: guard(input, nil), GuardErrors: kahn.GuardFail}, "F", kahn.ErrUnknownInput},
		"guard with an error":   {kahn.Node{When: guard(other, errStep), GuardErrors: kahn.GuardFail}, "F", errStep},
		"guard that may ask":    {kahn.Node{When: guard(silent, nil), GuardErrors: kahn.GuardFail}, "ok", nil},
		"guard that panics":     {kahn.Node{When: func(v kahn.View) (bool, error) { other(v); panic(errStep) }, GuardErrors: kahn.GuardFail}, "F", errStep},
		"condition":             {kahn.Node{Test: func(v kahn.View) (any, error) { return v.Status("other"), nil }}, "F", kahn.ErrNotAncestor},
		"condition that panics": {kahn.Node{Test: func(v kahn.View) (any, error) { other(v); panic(errStep) }}, "F", errStep},
		"loop": {kahn.Node{Sub: graph(after("x")), Loop: &kahn.Loop{MaxIterations: 3, While: func(v kahn.View) (bool, error) { return v.Output("other") != nil, nil }}},
			"F", kahn.ErrNotAncestor},
	}
	for name, row := range rows {
		row.node.ID = "n"
		g := graph(row.node, after("other"))
		g.Inputs = []kahn.Input{{Name: "declared", Default: 1}}
		var kept []func() (any, error)
		made := kahn.GraphCalls(func(_, _ string, call func() (any, error)) (value any, err error) {
			defer func() {
				p := recover()
				kept = append(kept, func() (any, error) {
					if p != nil {
						panic(p)
					}
					return value, err
				})
				if p != nil {
					panic(p)
				}
			}()
			return call()
		})
		recorded := kahn.GraphCalls(func(string, string, func() (any, error)) (any, error) {
			first := kept[0]
			kept = kept[1:]
			return first()
		})
		var texts []string
		for _, opts := range [][]kahn.Option{{}, {made}, {recorded}} {
			rec := newRecorder()
			res, err := kahn.Execute(t.Context(), g, nothing, append(opts, kahn.Limit(1), kahn.OnEvent(rec.add))...)
			kahntest.RequireStatuses(t, res, "n:"+row.want+" other:ok")
			checkEvents(t, g, res, rec.all())
			if n, _ := res.Node("n"); row.err != nil {
				require.ErrorIs(t, err, row.err, name)
				texts = append(texts, n.Err.Error())
			}
		}
		require.Empty(t, kept, name)
		if row.err != nil {
			require.Equal(t, texts[0], texts[1], name)
			if strings.HasSuffix(name, "that panics") { // the record contains only the panic
				require.Equal(t, `node "n": condition_error: panic: the step broke`, texts[2], name)
				if row.node.When != nil { // otherwise the call returns only the panic
					require.Contains(t, texts[0], "not an ancestor", name)
				}
				continue
			}
			require.Equal(t, texts[0], texts[2], name)
		}
	}
}
