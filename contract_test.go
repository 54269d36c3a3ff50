package kahn_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
)

// shape is a contract that is a function.
type shape struct {
	check func(value any) []kahn.Violation
}

func (s shape) Check(value any) []kahn.Violation { return s.check(value) }

// shapes compiles maps, to contracts that everything conforms to.
type shapes struct{}

func (shapes) Compile(schema any) (kahn.Contract, error) {
	if _, ok := schema.(map[string]any); !ok {
		return nil, errStep
	}
	return shape{func(any) []kahn.Violation { return nil }}, nil
}

func TestSchemaProblems(t *testing.T) {
	g := graph(kahn.Node{ID: "A", InputSchema: 7}, kahn.Node{ID: "B", OutputSchema: map[string]any{}})
	_, err := g.Compile()
	require.ErrorIs(t, err, kahn.ErrNoSchemas)
	g.Schemas = shapes{}
	_, err = g.Compile()
	require.ErrorIs(t, err, kahn.ErrBadSchema)
	require.ErrorIs(t, err, errStep)
	require.ErrorContains(t, err, `"A": InputSchema`)
	require.NotContains(t, err.Error(), `"B"`)
}
