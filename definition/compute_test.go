package definition_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/definition"
)

// A node with an expression has the same join as a step, and Encode writes its expression.
func TestExpressionOfANode(t *testing.T) {
	t.Parallel()
	g, err := definition.Decode([]byte(`{"version": 1, "nodes": [
  {"id": "a", "expression": "1 + 1"},
  {"id": "b", "kind": "assignment", "expression": {"total": "x", "a \"b\"": "y"}},
  {"id": "c", "kind": "expression", "expression": "z", "join": "all_done"},
  {"id": "d", "test": "x"}
]}`), definition.Limits{})
	require.NoError(t, err)
	type shape struct {
		kind, test string
		join       kahn.Join
	}
	var got []shape
	for _, n := range g.Nodes() {
		got = append(got, shape{n.Kind, n.TestExpr, n.Join})
	}
	require.Equal(t, []shape{
		{"expression", "1 + 1", kahn.AllSucceeded}, {"assignment", "{\"total\": (x\n), \"a \\\"b\\\"\": (y\n)}", kahn.AllSucceeded},
		{"expression", "z", kahn.AllDone}, {"", "x", kahn.Join(0)},
	}, got)
	text, err := definition.Encode(g)
	require.NoError(t, err)
	require.JSONEq(t, `{"version": 1, "nodes": [
  {"id": "a", "kind": "expression", "expression": "1 + 1"},
  {"id": "b", "kind": "assignment", "expression": "{\"total\": (x\n), \"a \\\"b\\\"\": (y\n)}"},
  {"id": "c", "kind": "expression", "test": "z", "join": "all_done"},
  {"id": "d", "test": "x"}
]}`, string(text))
	again, err := definition.Decode(text, definition.Limits{})
	require.NoError(t, err)
	require.Equal(t, g.Nodes(), again.Nodes())
}

func TestWrongExpressionsOfNodes(t *testing.T) {
	t.Parallel()
	_, err := definition.Decode([]byte(`{"version": 1, "nodes": [
  {"id": "a", "expression": 1},
  {"id": "b", "expression": {}},
  {"id": "c", "expression": {"x": 1, "y": "", "x": "z"}},
  {"id": "d", "kind": "exec", "expression": "x"},
  {"id": "e", "expression": "x", "test": "y", "routes": true},
  {"id": "f", "expression": ""}
]}`), definition.Limits{})
	require.EqualError(t, err, `definition: 9 problems
	line 2, column 29: $.nodes[0].expression: node "a": expected an expression, or an object with an expression for each name, got 1
	line 3, column 29: $.nodes[1].expression: node "b": an assignment has at least one name
	line 4, column 35: $.nodes[2].expression.x: node "c": expected text, got 1; write it in quotes
	line 4, column 43: $.nodes[2].expression.y: node "c": must not be empty; leave it out instead
	line 4, column 47: $.nodes[2].expression.x: node "c": the name occurs twice
	line 5, column 23: $.nodes[3]: node "d": a node with an expression is of kind "expression" or "assignment"
	line 6, column 34: $.nodes[4]: node "e": a node with an expression computes its output, and has no test
	line 6, column 47: $.nodes[4]: node "e": a node with an expression computes its output, and has no routes
	line 7, column 29: $.nodes[5].expression: node "f": "" must not be empty; leave it out instead`)
}

// A member with an empty name does not hide wrong expressions of later members.
func TestExpressionAfterAnEmptyName(t *testing.T) {
	t.Parallel()
	loader := definition.Loader{Prepare: func(g *kahn.Graph) { g.Evaluator = namesEvaluator{} }}
	for _, text := range []string{`{"": "x", "total": "("}`, `{"a": "x", "total": "("}`} {
		_, err := loader.Load([]byte(`{"version": 1, "nodes": [{"id": "b", "kind": "assignment", "expression": ` + text + `}]}`))
		require.ErrorContains(t, err, "$.nodes[0].expression.total")
	}
}
