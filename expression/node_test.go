package expression_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/definition"
	"github.com/seed-c794f7ef/kahn/expression"
	"github.com/seed-c794f7ef/kahn/kahntest"
)

// Nodes of kind expression and assignment compute values. A failed predecessor blocks such a node, as it blocks a step; it
// would not block a condition.
func TestNodesThatCompute(t *testing.T) {
	t.Parallel()
	document := []byte(`{"version": 1, "strict_guards": true, "nodes": [
  {"id": "a", "kind": "step"},
  {"id": "sum", "kind": "expression", "expression": "$nodes.a.output.n * 2 + 1", "after": "a"},
  {"id": "vars", "kind": "assignment", "expression": {"double": "$nodes.sum.output * 2", "text": "upper($nodes.a.output.s)"}, "after": ["a", "sum"]},
  {"id": "b", "kind": "step", "after": {"from": "vars", "key": "double", "param": "n"}},
  {"id": "judge", "kind": "condition", "test": "$nodes.a.status", "after": "a"}
]}`)
	doc, err := definition.Loader{
		Kinds:   map[string]definition.Kind{"step": {}},
		Prepare: func(g *kahn.Graph) { g.Evaluator = expression.Evaluator{} },
	}.Load(document)
	require.NoError(t, err)

	steps := &kahntest.Script{Acts: map[string][]kahntest.Act{"a": {{Value: map[string]any{"n": 3, "s": "x"}}}}}
	r := kahntest.Run(t, doc.Graph, steps.Step)
	require.NoError(t, r.Err)
	vars, _ := r.Node("vars")
	require.Equal(t, map[string]any{"double": int64(14), "text": "X"}, vars.Output)
	require.Equal(t, map[string]any{"n": int64(14)}, steps.Calls()[1].Params)

	broken := &kahntest.Script{Acts: map[string][]kahntest.Act{"a": {{Err: errors.New("broken")}}}}
	r = kahntest.Run(t, doc.Graph, broken.Step)
	kahntest.RequireStatuses(t, r.Result, "a:F sum:X vars:X b:X judge:ok")

	strange := &kahntest.Script{Acts: map[string][]kahntest.Act{"a": {{Value: map[string]any{"n": "x", "s": "x"}}}}}
	r = kahntest.Run(t, doc.Graph, strange.Step)
	kahntest.RequireStatuses(t, r.Result, "a:ok sum:F vars:X b:X judge:ok")
	require.ErrorIs(t, r.Err, kahn.ErrType)
}
