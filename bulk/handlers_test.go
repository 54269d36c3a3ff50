package bulk_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/bulk"
	"github.com/seed-c794f7ef/kahn/store"
)

// A run with a handled failure is redriven or forked only with the option DespiteHandlers. Without it, the run's error in the report says so,
// also in a dry run.
func TestHandlers(t *testing.T) {
	t.Parallel()
	done := func(context.Context, *kahn.Step) (any, error) { return nil, nil }
	bad := func(context.Context, *kahn.Step) (any, error) { return nil, errors.New("no carrier") }
	shop := func() *kahn.Graph {
		return new(kahn.Graph).Add(kahn.Node{ID: "charge", Do: done}, kahn.Node{ID: "ship", After: []string{"charge"}, Do: bad},
			kahn.Node{ID: "refund", In: []kahn.Edge{{From: "ship", On: kahn.OnFailure}}, Do: done})
	}
	m := &store.Memory{}
	_, err := kahn.Execute(t.Context(), shop(), nil, kahn.Durable(m), kahn.RunID("r"))
	require.NoError(t, err)
	b := bulk.Selection{Filter: store.Filter{Statuses: []kahn.RunStatus{kahn.RunCompleted}}}
	forked := func(run string) string { return run + "+" }
	for _, b.DryRun = range []bool{true, false} {
		report, err := bulk.Redrive(t.Context(), []*kahn.Graph{shop()}, m, b, nil)
		require.NoError(t, err)
		require.Len(t, report.Runs, 1)
		require.ErrorIs(t, report.Runs[0].Err, kahn.ErrHandlers)
		report, err = bulk.Fork(t.Context(), shop(), m, b, forked, nil)
		require.NoError(t, err)
		require.Len(t, report.Runs, 1)
		require.ErrorIs(t, report.Runs[0].Err, kahn.ErrHandlers)
	}
	for _, b.DryRun = range []bool{true, false} {
		report, err := bulk.Fork(t.Context(), shop(), m, b, forked, nil, kahn.DespiteHandlers)
		require.NoError(t, err)
		require.Equal(t, []bulk.Run{{Run: "r"}}, report.Runs)
		report, err = bulk.Redrive(t.Context(), []*kahn.Graph{shop()}, m, b, nil, kahn.DespiteHandlers)
		require.NoError(t, err)
		require.Equal(t, []bulk.Run{{Run: "r"}}, report.Runs)
	}
	counts, err := m.Count(t.Context(), store.Filter{Statuses: []kahn.RunStatus{kahn.RunSuspended, kahn.RunRunning}})
	require.NoError(t, err)
	require.Equal(t, []store.Count{{Status: kahn.RunSuspended, Runs: 2}}, counts, "the run and its fork are due")
}
