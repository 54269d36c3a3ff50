package conformance_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
)

// parcelOf is a type of the host.
type parcelOf struct{ Order int }

// The error for a value that cannot be decoded names its owner: the input of the run, or the node.
func TestSnapshotNamesOwners(t *testing.T) {
	t.Parallel()
	types := kahn.Types{"parcel": parcelOf{}}
	for text, g := range map[string]*kahn.Graph{
		`snapshot: the run's input "first": bad value: type "parcel" is not registered`: new(kahn.Graph).Add(kahn.Node{ID: "ask", Kind: kahn.KindGate}),
		`snapshot: node "a": bad value: type "parcel" is not registered`:                new(kahn.Graph).Add(kahn.Node{ID: "a"}, kahn.Node{ID: "ask", Kind: kahn.KindGate, After: []string{"a"}}),
	} {
		step := func(context.Context, *kahn.Step) (any, error) { return parcelOf{2}, nil }
		inputs := kahn.Inputs(map[string]any{})
		if _, has := mustPlan(t, g).Ref("a"); !has {
			g.Inputs = []kahn.Input{{Name: "first"}, {Name: "second"}}
			inputs = kahn.Inputs(map[string]any{"first": parcelOf{1}, "second": 2.0})
		}
		res, err := kahn.Execute(t.Context(), g, step, types, inputs)
		require.NoError(t, err)
		data, err := json.Marshal(res.Snapshot())
		require.NoError(t, err)
		var s kahn.Snapshot
		require.NoError(t, json.Unmarshal(data, &s))
		_, err = kahn.Execute(t.Context(), g, step, kahn.Resume(&s))
		require.ErrorIs(t, err, kahn.ErrBadValue)
		require.ErrorContains(t, err, text)
	}
}

func mustPlan(t *testing.T, g *kahn.Graph) *kahn.Plan {
	t.Helper()
	p, err := g.Compile()
	require.NoError(t, err)
	return p
}
