package conformance_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
)

// The limits that docs/limits.md names for graphs and values: values at a limit work, and values beyond it are refused where they are made.

func nestedGraph(depth int) *kahn.Graph {
	g := new(kahn.Graph).Add(kahn.Node{ID: "n", Do: nothing})
	for range depth {
		g = new(kahn.Graph).Add(kahn.Node{ID: "n", Sub: g})
	}
	return g
}

func TestLimitOfNesting(t *testing.T) {
	_, err := nestedGraph(100).Compile()
	require.NoError(t, err)
	_, err = nestedGraph(101).Compile()
	require.ErrorIs(t, err, kahn.ErrBadValue)
	require.ErrorContains(t, err, "more than 100 deep")
}

func TestLimitOfItems(t *testing.T) {
	const most = 1<<30 - 1
	g := new(kahn.Graph).Add(kahn.Node{ID: "m", Map: &kahn.Map{Over: "items"}, Do: nothing, Params: map[string]any{"items": make([]struct{}, most+1)}})
	res, err := kahn.Execute(t.Context(), g, nil)
	require.Equal(t, kahn.RunFailed, res.Status)
	require.ErrorIs(t, err, kahn.ErrBadValue)
	require.ErrorContains(t, err, "more than 1073741823 items")
}

func TestLimitOfValues(t *testing.T) {
	nested := func(depth int) (v any) { // each list of any takes two of the 1,000 levels
		for range depth {
			v = []any{v}
		}
		return v
	}
	for depth, ok := range map[int]bool{500: true, 501: false} {
		data, err := kahn.Types(nil).Encode(nested(depth))
		require.Equal(t, ok, err == nil, "%d: %v", depth, err)
		if !ok {
			require.ErrorIs(t, err, kahn.ErrNotEncodable)
			continue
		}
		_, err = kahn.Types(nil).Decode(data)
		require.NoError(t, err)
	}
}

func TestLimitOfProblems(t *testing.T) {
	g := new(kahn.Graph)
	for range 150 {
		g.Add(kahn.Node{ID: "", Do: nothing})
	}
	_, err := g.Compile()
	var list interface{ Unwrap() []error }
	require.True(t, errors.As(err, &list))
	require.LessOrEqual(t, len(list.Unwrap()), 101, "100 problems, and how many more there are")
}
