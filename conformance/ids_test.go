package conformance_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// TestIDsWithMarksOfKeys: a compensation of node x is stored under the key x#undo, and the nodes of the second attempt of composite S under keys
// that begin with S#try2. A graph with such an id does not compile, in a sub-graph neither; similar ids are valid, and their nodes are undone.
func TestIDsWithMarksOfKeys(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"x#undo", "#undo", "x#try2", "x#try2/y", "#try", "a#tryx"} {
		_, err := graph(kahn.Node{ID: id}).Compile()
		require.ErrorIs(t, err, kahn.ErrBadValue, id)
		require.ErrorContains(t, err, "in a store", id)
		_, err = graph(kahn.Node{ID: "S", Sub: graph(kahn.Node{ID: id})}).Compile()
		require.ErrorIs(t, err, kahn.ErrBadValue, id)
	}
	for _, id := range []string{"x#undone", "undo", "x#Undo", "try2", "x#tr", "#", "x#1"} {
		undone := []string{}
		undo := func(_ context.Context, s *kahn.Step) error {
			undone = append(undone, s.ID())
			return nil
		}
		fails := func(context.Context, *kahn.Step) (any, error) { return nil, errors.New("no") }
		g := graph(kahn.Node{ID: "x", Do: nothing, Compensate: undo}, kahn.Node{ID: id, After: []string{"x"}, Do: nothing, Compensate: undo}, kahn.Node{ID: "last", After: []string{id}, Do: fails})
		db := new(store.Memory)
		_, err := kahn.Execute(t.Context(), g, nil, kahn.Durable(db), kahn.RunID("r"))
		require.ErrorContains(t, err, "no")
		require.Equal(t, []string{id, "x"}, undone, id)
		read, err := kahn.ReadRun(t.Context(), db, "r")
		require.NoError(t, err)
		require.Equal(t, []any{kahn.RunFailed, kahn.CompensationDone}, []any{read.Status, read.Compensation})
	}
}
