package conformance_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
)

// Test mode mocks compensations by path. A mocked node is undone only if its compensation is mocked. Any other node is undone by the mock of
// its compensation or, without a mock, by the compensation itself.
func TestCompensationMocks(t *testing.T) {
	bothModes(t, "mocks", func(t *testing.T, mode kahn.Mode) {
		var l undoLog
		real := func(id string, sources ...string) kahn.Node {
			return kahn.Node{ID: id, Do: succeeds(id), Compensate: l.undo, CompensateRetry: kahn.Retry{InitialDelay: -1}, After: sources}
		}
		items := mapped("M", numbers(2), kahn.Map{})
		items.Do, items.Compensate, items.After = succeeds(1), l.undo, []string{"d"}
		stubbed := mapped("N", numbers(2), kahn.Map{})
		stubbed.Do, stubbed.Compensate, stubbed.After = succeeds(1), l.undo, []string{"M"}
		inner := subgraph("S", graph(real("x"), real("y", "x")), "N")
		whole := subgraph("W", graph(real("x")), "S")
		whole.Compensate = l.undo
		g := graph(real("a"), real("b", "a"), real("c", "b"), real("d", "c"), items, stubbed, inner, whole,
			kahn.Node{ID: "ship", Do: always(errSoldOut), After: []string{"W"}})
		attempts := 0
		var mu sync.Mutex // guards outputs and seen: the items of M are undone at the same time
		outputs := map[string]any{}
		keep := func(_ context.Context, s *kahn.Step) (any, error) {
			mu.Lock()
			defer mu.Unlock()
			outputs[s.Path()], _ = s.Compensated()
			return nil, nil
		}
		seen := 0
		use := kahn.Use(func(next kahn.StepFunc) kahn.StepFunc {
			return func(ctx context.Context, s *kahn.Step) (any, error) {
				if s.Compensating() {
					mu.Lock()
					seen++
					mu.Unlock()
				}
				return next(ctx, s)
			}
		})
		test := kahn.TestMode{
			Mocks: map[string]kahn.Mock{"a": {Value: "mocked"}, "b": {Value: "mocked"}, "N[]": {Value: 7}, "W": {Value: "whole"}},
			Undos: map[string]kahn.Mock{
				"b":   {Do: keep},
				"c":   {Sequence: []kahn.Mock{{Err: errors.New("busy")}, {Do: func(context.Context, *kahn.Step) (any, error) { attempts++; return nil, nil }}}},
				"M[]": {Do: keep}, "S/x": {Err: kahn.Permanent(errSoldOut)}, "W": {Do: keep},
			},
			Assertions: []kahn.Assertion{
				kahn.AssertCompensation("a", kahn.CompensationNone), kahn.AssertCompensation("b", kahn.CompensationDone), kahn.AssertCompensation("c", kahn.CompensationDone),
				kahn.AssertCompensation("S/x", kahn.CompensationFailed), kahn.AssertCompensation("N", kahn.CompensationNone), kahn.AssertCompensation("M[1]", kahn.CompensationDone),
				kahn.AssertCompensation("S/x", kahn.CompensationDone), kahn.AssertCompensation("a", kahn.CompensationDone),
			},
		}
		r := try(t, g, nil, mode, test, use)
		require.Equal(t, map[string]any{"b": "mocked", "M[0]": 1, "M[1]": 1, "W": "whole"}, outputs)
		require.Equal(t, 1, attempts)
		require.Equal(t, "S/y d", l.String())
		require.Equal(t, 2, seen)
		require.ErrorIs(t, r.err, kahn.ErrCompensation)
		require.Equal(t, 6, r.Test.Passed)
		require.Len(t, r.Test.Failures, 2)
		require.EqualError(t, r.Test.Failures[0], `node "S/x": expected compensation done: failed: sold out`)
		require.EqualError(t, r.Test.Failures[1], `node "a": expected compensation done: none`)
	})
}

// Execute refuses a mock for a compensation that does not exist, and the error suggests the right path.
func TestCompensationMocksAreRefused(t *testing.T) {
	undo := func(context.Context, *kahn.Step) error { return nil }
	items := mapped("M", numbers(2), kahn.Map{})
	items.Do, items.Compensate = succeeds(1), undo
	plain := mapped("P", numbers(2), kahn.Map{})
	plain.Do = succeeds(1)
	g := graph(kahn.Node{ID: "pay", Do: succeeds(1), Compensate: undo}, kahn.Node{ID: "ship", Do: succeeds(1)}, items, plain,
		subgraph("S", graph(kahn.Node{ID: "x", Do: succeeds(1)}, kahn.Node{ID: "y", Do: succeeds(1), Compensate: undo})))
	for path, want := range map[string]string{
		"pay": "", "M[]": "", "S/y": "", "pay/of/a/graph/that/it/returns": "",
		"ship": `TestMode.Undos: node "ship" has no Compensate`, "S/x": `TestMode.Undos: node "S/x" has no Compensate`, "S": `node "S" has no Compensate`,
		"M": `TestMode.Undos: node "M" is a map, whose items are undone one by one: write "M[]"`, "P[]": `node "P[]" has no Compensate`, "P": `node "P" has no Compensate`,
		"pya": `TestMode.Undos: unknown node: "pya"`, "S/z": `unknown node: "S/z"`,
		"S[]": `unknown node: "S[]"`, "S[]/y": `unknown node: "S[]/y"`, "pay[]": `unknown node: "pay[]"`, "M[": `unknown node: "M["`,
	} {
		_, err := kahn.Execute(t.Context(), g, nil, kahn.TestMode{Undos: map[string]kahn.Mock{path: {}}})
		if want == "" {
			require.NoError(t, err, path)
			continue
		}
		require.ErrorIs(t, err, kahn.ErrBadOption, path)
		require.ErrorContains(t, err, want)
	}
	_, err := kahn.Execute(t.Context(), g, nil, kahn.TestMode{Undos: map[string]kahn.Mock{"pay": {Value: 1, Err: errSoldOut}}})
	require.ErrorContains(t, err, `TestMode.Undos: "pay": bad value: at most one of Value, Err, Do and Sequence can be set`)
}

// A run with compensations by kind needs a step function, unless these compensations or their nodes are mocked.
func TestCompensationKinds(t *testing.T) {
	refund := func(kind string) *kahn.CompensateBy { return &kahn.CompensateBy{Kind: kind} }
	do := succeeds(1)
	items := mapped("M", numbers(2), kahn.Map{})
	items.Do, items.CompensateBy = do, refund("refnd")
	subs := mapped("N", numbers(2), kahn.Map{})
	subs.Sub, subs.CompensateBy = graph(kahn.Node{ID: "x", Do: do}), refund("refnd")
	whole := subgraph("S", graph(kahn.Node{ID: "x", Do: do, CompensateBy: refund("refund")}, kahn.Node{ID: "y", Do: do, CompensateBy: refund("unship")}))
	whole.CompensateBy = refund("refnd")
	mux := kahn.Mux{"refund": do, "charge": do}
	g := graph(kahn.Node{ID: "own", Do: do, CompensateBy: refund("refund")}, kahn.Node{ID: "pay", Kind: "charge", CompensateBy: refund("refnd")}, items, subs, whole)
	err := mux.Check(g)
	var all *kahn.GraphError
	require.ErrorAs(t, err, &all)
	var got []string
	for _, e := range all.Problems {
		require.ErrorIs(t, e, kahn.ErrUnknownKind)
		var p *kahn.Problem
		require.ErrorAs(t, e, &p)
		require.Equal(t, "CompensateBy.Kind", p.Field)
		got = append(got, e.Error())
	}
	require.Equal(t, []string{
		`node "pay": unknown kind: "refnd"; did you mean "refund"? (there is "charge", "refund")`, `node "M": unknown kind: "refnd"; did you mean "refund"? (there is "charge", "refund")`,
		`node "N[]": unknown kind: "refnd"; did you mean "refund"? (there is "charge", "refund")`, `node "S": unknown kind: "refnd"; did you mean "refund"? (there is "charge", "refund")`,
		`node "S/y": unknown kind: "unship" (there is "charge", "refund")`,
	}, got)
	_, err = kahn.Execute(t.Context(), g, mux.Step, kahn.Kinds(mux))
	require.ErrorIs(t, err, kahn.ErrUnknownKind)

	mocked := kahn.TestMode{
		Mocks: map[string]kahn.Mock{"S/y": {}, "N[]": {}}, Undos: map[string]kahn.Mock{"pay": {}, "M[]": {}, "S": {}},
	}
	_, err = kahn.Execute(t.Context(), g, mux.Step, kahn.Kinds(mux), mocked)
	require.NoError(t, err)
	delete(mocked.Undos, "S")
	_, err = kahn.Execute(t.Context(), g, mux.Step, kahn.Kinds(mux), mocked)
	require.ErrorContains(t, err, `node "S": unknown kind: "refnd"`)

	// Only the compensation of the composite itself needs the step function if all nodes inside are mocked.
	stubbed := subgraph("S", graph(kahn.Node{ID: "x", Kind: "unknown"}))
	stubbed.CompensateBy = refund("refund")
	_, err = kahn.Execute(t.Context(), graph(stubbed), mux.Step, kahn.Kinds(mux), kahn.TestMode{OnMissing: kahn.MissingStub})
	require.NoError(t, err)
	_, err = kahn.Execute(t.Context(), graph(stubbed), mux.Step, kahn.Kinds(mux), kahn.TestMode{})
	require.ErrorContains(t, err, `node "S/x": unknown kind: "unknown"`)

	// Without a step function, each compensation by kind must be mocked.
	g = graph(kahn.Node{ID: "own", Do: do, CompensateBy: refund("refund")}, items, whole)
	for _, row := range []struct{ undos, mocks, misses string }{
		{"", "", `node "own", the first of 3, needs one`},
		{"own M[] S S/x S/y", "", ""},
		{"own M[] S/x S/y", "", `node "S" needs one`},
		{"own M[] S", "", `node "S`},
		{"own M[]", "S", ""},
		{"own S S/x S/y", "", `node "M" needs one`},
		{"S S/x S/y", "own M", ""},
	} {
		test := kahn.TestMode{Mocks: map[string]kahn.Mock{}, Undos: map[string]kahn.Mock{}}
		for path := range strings.FieldsSeq(row.undos) {
			test.Undos[path] = kahn.Mock{}
		}
		for path := range strings.FieldsSeq(row.mocks) {
			test.Mocks[path] = kahn.Mock{}
		}
		_, err := kahn.Execute(t.Context(), g, nil, test)
		if row.misses == "" {
			require.NoError(t, err, "%+v", row)
			continue
		}
		require.ErrorIs(t, err, kahn.ErrNoStep, "%+v", row)
		require.ErrorContains(t, err, row.misses)
	}
	_, err = kahn.Execute(t.Context(), g, nil, kahn.TestMode{OnMissing: kahn.MissingStub, Undos: map[string]kahn.Mock{"S": {}}})
	require.NoError(t, err)
	own := subgraph("S", graph(kahn.Node{ID: "x", Do: do})) // nothing inside needs a step function
	own.CompensateBy = refund("refund")
	_, err = kahn.Execute(t.Context(), graph(own), nil, kahn.TestMode{Undos: map[string]kahn.Mock{"S": {}}})
	require.NoError(t, err)
	res, err := kahn.Execute(t.Context(), graph(subgraph("S", graph(own))), nil, kahn.TestMode{OnMissing: kahn.MissingStub}) // composites are not mocked
	require.ErrorIs(t, err, kahn.ErrNoStep)
	require.Nil(t, res)
}

// Undoing a composite with a Compensate function needs no step function. Its nodes need none either if all of them are mocked.
func TestCompensatedCompositeOfMocks(t *testing.T) {
	t.Parallel()
	whole := subgraph("W", graph(kahn.Node{ID: "x"}))
	whole.Compensate = func(context.Context, *kahn.Step) error { return nil }
	res, err := kahn.Execute(t.Context(), graph(whole), nil, kahn.TestMode{Mocks: map[string]kahn.Mock{"W/x": {Value: 7}}})
	require.NoError(t, err)
	require.Equal(t, 7, res.Output())
}
