package temporal

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A process sends at most maxUpdates updates of one workflow at the same time. A caller stops waiting when its context ends.
func TestTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var ts turns
		var mu sync.Mutex // guards now and most
		var now, most int
		var all sync.WaitGroup
		update := func(id string) {
			all.Go(func() {
				done, err := ts.take(t.Context(), id)
				if err != nil {
					t.Error(err)
					return
				}
				defer done()
				mu.Lock()
				now++
				most = max(most, now)
				mu.Unlock()
				time.Sleep(time.Second)
				mu.Lock()
				now--
				mu.Unlock()
			})
		}
		began := time.Now()
		for range 4 * maxUpdates {
			update("a")
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
		defer cancel()
		_, err := ts.take(ctx, "a")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		all.Wait()
		require.Equal(t, maxUpdates, most)
		require.Equal(t, 4*time.Second, time.Since(began))
		require.Empty(t, ts.of, "nothing is kept of workflows without updates")

		began = time.Now()
		for range maxUpdates {
			update("a")
			update("b")
		}
		all.Wait()
		require.Equal(t, time.Second, time.Since(began), "other workflows do not wait")
	})
}
