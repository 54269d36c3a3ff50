package postgres_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn/internal/sagas"
	"github.com/seed-c794f7ef/kahn/kahntest"
	"github.com/seed-c794f7ef/kahn/store"
	"github.com/seed-c794f7ef/kahn/store/postgres/postgrestest"
)

// TestSagas performs random graphs with compensations. Processes die during some of their writes. No pending compensation is lost. The test
// cannot move the server's clock, so it releases the lease of a dead process.
func TestSagas(t *testing.T) {
	t.Parallel()
	s := openStore(t, postgrestest.NewPool(t, database), newSchema())
	first := uint64(0)
	if size(0, 1) > 0 {
		first = rand.Uint64N(1e9)
	}
	runs := 0
	died, undone := sagas.EachDeath(first, size(2, 60), false, func(x sagas.Trial) *sagas.Outcome {
		runs++
		x.Run, x.CheckEvents = fmt.Sprint("saga ", runs), kahntest.CheckEvents
		x.Away = func(dead store.Lease) { require.NoError(t, s.Release(context.Background(), dead)) }
		o := x.Perform(t.Context(), s)
		require.Empty(t, o.Wrong, "seed %d, depth %d, deaths %v, kept %v: %v", x.Seed, x.Depth, x.Deaths, x.Kept, o)
		return o
	})
	t.Log(died, undone)
	require.Greater(t, undone, died/2)
}
