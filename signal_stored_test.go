package kahn_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// unusable is a store that fails for good from some moment on.
type unusable struct {
	store.Store
	dead atomic.Bool
}

func (s *unusable) Commit(ctx context.Context, l store.Lease, c store.Commit) (store.Applied, error) {
	if s.dead.Load() {
		return 0, fmt.Errorf("%w: it has died", store.ErrUnusable)
	}
	return s.Store.Commit(ctx, l, c)
}

// A signal that is sent again is acknowledged only if it is stored.
func TestSignalAgainThatIsNotStored(t *testing.T) {
	t.Parallel()
	for range size(30, 10, 300) {
		g, db := graph(gate("G")), &unusable{Store: new(kahn.MemoryStore)}
		run, err := kahn.Start(t.Context(), g, nothing, kahn.Durable(db), kahn.RunID("r"))
		require.NoError(t, err)
		_, err = run.WaitFor(t.Context(), "G", kahn.Suspended)
		require.NoError(t, err)
		db.dead.Store(true)
		d := kahn.Decision{ID: "1", Value: "yes"}
		require.ErrorIs(t, run.Signal("G", d), kahn.ErrStore)
		require.ErrorIs(t, run.Signal("G", d), kahn.ErrStore)
		_, _ = run.Wait()
		require.ErrorIs(t, run.Signal("G", d), kahn.ErrStore)
		require.ErrorIs(t, run.Signal("G", kahn.Decision{ID: "1", Value: "no"}), kahn.ErrStore, "nobody knows that it contradicts")

		res, err := kahn.Execute(t.Context(), g, nothing, kahn.Durable(db.Store), kahn.RunID("r"))
		require.NoError(t, err)
		require.Equal(t, kahn.RunSuspended, res.Status)
	}
}

// An answer that a run was given when it began or went on, and that it could not store, is not acknowledged either.
func TestEarlySignalThatIsNotStored(t *testing.T) {
	t.Parallel()
	d := kahn.Decision{ID: "1", Value: "yes"}
	fresh := &unusable{Store: new(kahn.MemoryStore)}
	fresh.dead.Store(true)
	began, err := kahn.Start(t.Context(), graph(gate("G")), nothing, kahn.Durable(fresh), kahn.RunID("r"), kahn.EarlySignals(map[string]any{"G": d}))
	require.NoError(t, err)
	_, _ = began.Wait()
	require.ErrorIs(t, began.Signal("G", d), kahn.ErrStore)

	g, db := graph(gate("G"), gate("H")), &unusable{Store: new(kahn.MemoryStore)}
	_, err = kahn.Execute(t.Context(), g, nothing, kahn.Durable(db), kahn.RunID("r"))
	require.NoError(t, err)
	db.dead.Store(true)
	run, err := kahn.Start(t.Context(), g, nothing, kahn.Durable(db), kahn.RunID("r"), kahn.EarlySignals(map[string]any{"G": d}))
	require.NoError(t, err)
	_, _ = run.Wait()
	require.ErrorIs(t, run.Signal("G", d), kahn.ErrStore)
}

// The same signal by many callers is one answer, also if it ends the run.
func TestSameSignalByMany(t *testing.T) {
	t.Parallel()
	for n := range size(400, 100, 4000) {
		var opts []kahn.Option
		if n%2 == 0 {
			opts = append(opts, kahn.Durable(new(kahn.MemoryStore)))
		}
		run, err := kahn.Start(t.Context(), graph(gate("G")), nothing, opts...)
		require.NoError(t, err)
		errs := make([]error, 6)
		var wg sync.WaitGroup
		for i := range errs {
			wg.Go(func() { errs[i] = run.Signal("G", kahn.Decision{ID: "1", Value: "yes"}) })
		}
		wg.Wait()
		for _, err := range errs {
			require.NoError(t, err)
		}
		res, err := run.Wait()
		require.NoError(t, err)
		require.Equal(t, kahn.RunCompleted, res.Status)
	}
}

// An ID that JSON cannot hold would be forgotten by the next life.
func TestSignalIDThatIsNoText(t *testing.T) {
	t.Parallel()
	run, err := kahn.Start(t.Context(), graph(gate("G")), nothing)
	require.NoError(t, err)
	require.ErrorIs(t, run.Signal("G", kahn.Decision{ID: "\xff", Value: "yes"}), kahn.ErrBadValue)
	require.NoError(t, run.Signal("G", "yes"))
	_, err = run.Wait()
	require.NoError(t, err)
}
