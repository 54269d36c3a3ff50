package postgres_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/kahntest"
	"github.com/seed-c794f7ef/kahn/store"
	"github.com/seed-c794f7ef/kahn/store/postgres/postgrestest"
)

// TestCancelAndRedrive cancels and redrives a run many times, each time with a new Store, as in another process. Completed steps are not called
// again, and all events are in one log.
func TestCancelAndRedrive(t *testing.T) {
	t.Parallel()
	lives := size(12, 300)
	pool, schema, g := postgrestest.NewPool(t, database), newSchema(), row(2*lives)
	random := rand.New(rand.NewPCG(47, 53))
	completed := map[string]int{}
	var res *kahn.Result
	for life, stop := 0, 0; life <= lives; life++ {
		s := openStore(t, pool, schema)
		started := make(chan *kahn.Run, 1)
		step := func(ctx context.Context, step *kahn.Step) (any, error) {
			if step.ID() == fmt.Sprint("n", stop) && life < lives {
				run := <-started
				run.Cancel()
				<-ctx.Done()
				return nil, ctx.Err()
			}
			completed[step.ID()]++ // no lock is needed, since the steps of a chain run one after the other
			return nil, nil
		}
		opts := []kahn.Option{kahn.RunID("r"), kahn.Durable(s), kahn.StoreEvents()}
		if life > 0 {
			opts = append(opts, kahn.Redrive(nil, nil))
		}
		run, err := kahn.Start(t.Context(), g, step, opts...)
		require.NoError(t, err)
		started <- run
		res, err = run.Wait()
		if life < lives {
			require.ErrorIs(t, err, kahn.ErrCancelled, "life %d", life)
			require.Equal(t, kahn.RunCancelled, res.Status)
			stop += random.IntN(3)
		} else {
			require.NoError(t, err)
		}
		require.NoError(t, s.Close())
	}
	require.Equal(t, 2*lives, res.Count(kahn.Completed))
	for id, times := range completed {
		require.Equal(t, 1, times, id)
	}
	s := openStore(t, pool, schema)
	stored, err := s.Load(t.Context(), "r")
	require.NoError(t, err)
	for key, n := range stored.Nodes {
		require.Equal(t, n.Required, n.Resolved, key)
	}
	log, err := store.OpenEvents(t.Context(), s, "r")
	require.NoError(t, err)
	var events []kahn.Event
	for e, err := range log.Events(t.Context(), 0) {
		require.NoError(t, err)
		events = append(events, e)
	}
	require.NoError(t, kahntest.CheckEvents(g, res, events))
}
