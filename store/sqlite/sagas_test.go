package sqlite_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn/internal/sagas"
	"github.com/seed-c794f7ef/kahn/kahntest"
	"github.com/seed-c794f7ef/kahn/store"
	"github.com/seed-c794f7ef/kahn/store/sqlite"
)

// TestSagas performs random graphs with compensations, each over a new database. Processes die during some of their writes, or during every
// write if KAHN_LONG is set. No pending compensation is lost.
func TestSagas(t *testing.T) {
	t.Parallel()
	died, undone := sagas.EachDeath(first(), size(2, 40), size(0, 1) > 0, func(x sagas.Trial) (o *sagas.Outcome) {
		synctest.Test(t, func(t *testing.T) {
			x.Run, x.CheckEvents, x.Away = "r", kahntest.CheckEvents, func(store.Lease) { time.Sleep(time.Minute) }
			o = x.Perform(t.Context(), openStore(t, file(t), sqlite.Options{Synchronous: sqlite.Normal, Now: "test_now()"}))
		})
		require.Empty(t, o.Wrong, "seed %d, depth %d, deaths %v, kept %v: %v", x.Seed, x.Depth, x.Deaths, x.Kept, o)
		return o
	})
	t.Log(died, undone)
	require.Greater(t, undone, died/2)
}
