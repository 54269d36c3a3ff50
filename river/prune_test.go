package riverkahn_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	riverkahn "github.com/seed-c794f7ef/kahn/river"
	"github.com/seed-c794f7ef/kahn/store"
)

// TestPrune: runs are removed by workflow, by status, and by the time since their ends.
func TestPrune(t *testing.T) {
	t.Parallel()
	x := newTables(t)
	other := order()
	other.Name = "other"
	step := func(_ context.Context, s *kahn.Step) (any, error) {
		if s.RunID() == "order fails" {
			return nil, errors.New("refused")
		}
		return nil, nil
	}
	c := x.perform(t, &riverkahn.Performer{
		Workflows: []riverkahn.Workflow{{Graph: order(), Step: step}, {Graph: other, Step: step}},
		Retention: []riverkahn.Retention{
			{Workflow: "order", Statuses: []kahn.RunStatus{kahn.RunCompleted}, For: time.Millisecond},
			{Workflow: "other", For: time.Hour},
		},
		PruneEvery: 50 * time.Millisecond,
	})
	create(t, c, order(), "order fails")
	create(t, c, other, "other")
	x.reaches(t, "order fails", kahn.RunFailed)
	x.reaches(t, "other", kahn.RunCompleted)
	create(t, c, order(), "order")
	require.Eventually(t, func() bool {
		_, err := x.store.Head(t.Context(), "order")
		return errors.Is(err, store.ErrUnknownRun)
	}, 10*time.Second, 5*time.Millisecond)
	for _, id := range []string{"order fails", "other"} {
		_, err := x.store.Head(t.Context(), id)
		require.NoError(t, err)
	}
}
