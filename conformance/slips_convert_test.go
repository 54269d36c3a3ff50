package conformance_test

import (
	"context"
	"encoding/json"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
)

// rootAs reads a root input as a T, with every driver.
func rootAs[T any](t *testing.T, given any, want any, text string) {
	t.Helper()
	g := graph(kahn.Node{ID: "a", Do: func(_ context.Context, s *kahn.Step) (any, error) {
		root, err := kahn.Root[T](s, "x")
		param, err2 := kahn.Param[T](s, "x")
		if err == nil {
			require.Equal(t, root, param)
		} else {
			require.Error(t, err2)
		}
		return root, err
	}})
	for driver, drive := range drivers {
		res, err := drive(t, g, nop, kahn.Inputs(map[string]any{"x": given}))
		if text == "" {
			require.NoError(t, err, driver)
			require.Equal(t, want, res.Output(), driver)
			continue
		}
		require.ErrorIs(t, err, kahn.ErrType, driver)
		require.ErrorContains(t, err, text, driver)
	}
}

// Numbers and lists from JSON convert to every type that represents them exactly.
func TestValuesFromJSON(t *testing.T) {
	t.Parallel()
	rootAs[int](t, 3.0, 3, "")
	rootAs[int](t, -3.0, -3, "")
	rootAs[int](t, json.Number("3"), 3, "")
	rootAs[int](t, json.Number("3e2"), 300, "")
	rootAs[int64](t, json.Number("9007199254740993"), int64(9007199254740993), "")
	rootAs[uint64](t, json.Number("18446744073709551615"), uint64(math.MaxUint64), "")
	rootAs[uint8](t, 255.0, uint8(255), "")
	rootAs[float64](t, json.Number("0.5"), 0.5, "")
	rootAs[[]string](t, []any{"a", "b"}, []string{"a", "b"}, "")
	rootAs[[]int](t, []any{1.0, 2}, []int{1, 2}, "")
	rootAs[[][]int](t, []any{[]any{1.0}, []any{}}, [][]int{{1}, {}}, "")
	rootAs[[]string](t, []any{}, []string{}, "")
	rootAs[[]any](t, []any{nil}, []any{nil}, "")

	rootAs[int](t, 3.5, nil, "wrong type: float64 instead of int")
	rootAs[int8](t, 300.0, nil, "wrong type: float64 instead of int8")
	rootAs[uint](t, -1.0, nil, "wrong type: float64 instead of uint")
	rootAs[int](t, 1e300, nil, "wrong type: float64 instead of int")
	rootAs[int](t, 9007199254740994.0, nil, "wrong type: float64 instead of int")
	rootAs[int](t, json.Number("3.5"), nil, "wrong type: json.Number instead of int")
	rootAs[int](t, "3", nil, "wrong type: string instead of int")
	rootAs[float64](t, 3, nil, "wrong type: int instead of float64")
	rootAs[time.Duration](t, 3.0, nil, "wrong type: float64 instead of time.Duration")
	rootAs[[]string](t, []any{"a", 7}, nil, `wrong type: item 1 is int instead of string`)
	rootAs[[]string](t, []any{"a", nil}, nil, `wrong type: item 1 is null: UpstreamItems reports which items of a map have no value, and why`)
}

// A map's output is a slice of the type that its step returned, unless an item has no value.
func TestParamOfAMap(t *testing.T) {
	t.Parallel()
	g := func(tolerated float64) *kahn.Graph {
		return graph(kahn.Node{ID: "m", Params: map[string]any{"of": []int{0, 1}}, Map: &kahn.Map{Over: "of", ToleratedPercent: tolerated}, Do: func(_ context.Context, s *kahn.Step) (any, error) {
			if tolerated > 0 && s.Index() == 1 {
				return nil, errStep
			}
			return []string{"a", "b"}[s.Index()], nil
		}}, kahn.Node{ID: "x", In: []kahn.Edge{{From: "m", Param: "words"}}, Do: func(_ context.Context, s *kahn.Step) (any, error) {
			list, err := kahn.Param[[]string](s, "words")
			return list, err
		}})
	}
	for driver, drive := range drivers {
		res, err := drive(t, g(0), nop)
		require.NoError(t, err, driver)
		require.Equal(t, []string{"a", "b"}, res.Output(), driver)
		_, err = drive(t, g(50), nop)
		require.ErrorIs(t, err, kahn.ErrType, driver)
		require.ErrorContains(t, err, "UpstreamItems", driver)
	}
}

// If a map iterates over a root input that its node does not take as a parameter, the error says how to declare the parameter.
func TestMapOverARootInput(t *testing.T) {
	t.Parallel()
	over := func(n kahn.Node) *kahn.Graph {
		n.ID, n.Map = "m", &kahn.Map{Over: "rows"}
		g := graph(kahn.Node{ID: "a"}, n)
		g.Inputs = []kahn.Input{{Name: "rows"}}
		return g
	}
	_, err := over(kahn.Node{After: []string{"a"}}).Compile()
	require.ErrorContains(t, err, `node "m": bad value: Map.Over names the root input "rows", but a node with Ports or predecessors gets a root input only by a port: add a port with this name`)
	for _, n := range []kahn.Node{{}, {After: []string{"a"}, Ports: []kahn.Port{{Name: "rows"}}}} {
		for driver, drive := range drivers {
			res, err := drive(t, over(n), nop, kahn.Inputs(map[string]any{"rows": []any{1.0, 2.0}}))
			require.NoError(t, err, driver)
			require.Equal(t, kahn.RunCompleted, res.Status, driver)
		}
	}
}
