package conformance_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// A process learns that the store has a newer schema. It finishes its running runs, begins no other runs, and reports the newer schema
// once. Then Serve returns.
func TestServeOutdated(t *testing.T) {
	t.Parallel()
	inBubble(t, "while a run is at work", func(t *testing.T) {
		s := new(served)
		newer := func(call, _ string) error {
			if call == "announce" {
				return fmt.Errorf("%w: 8", store.ErrNewerSchema)
			}
			return nil
		}
		long := flow("long", kahn.Node{ID: "a", Do: func(ctx context.Context, step *kahn.Step) (any, error) {
			s.note("%s begins", step.RunID())
			time.Sleep(5 * time.Minute)
			return s.step(ctx, step)
		}}, kahn.Node{ID: "b", After: []string{"a"}})
		s.create(t, long, time.Time{}, "one")
		over, told := make(chan error, 1), make(chan error, 10)
		v := s.service(long)
		v.OnError = func(run string, _ store.Queue, err error) { told <- err }
		go func() { over <- new(kahn.Runner).Serve(t.Context(), v) }()
		time.Sleep(time.Second)
		require.Equal(t, []string{"one begins"}, s.take())
		s.mu.Lock()
		s.fail = newer
		s.mu.Unlock()
		time.Sleep(time.Minute) // the process announces itself at shorter intervals
		s.create(t, long, time.Time{}, "two")
		time.Sleep(time.Minute)
		require.ErrorIs(t, <-told, store.ErrNewerSchema)
		require.Empty(t, told)
		require.Empty(t, over)
		require.Empty(t, s.take())
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		require.Equal(t, []string{"one a", "one b"}, s.take())
		err := <-over
		require.ErrorIs(t, err, kahn.ErrStore)
		require.ErrorIs(t, err, store.ErrNewerSchema)
		require.Empty(t, told)
		require.Equal(t, kahn.RunCompleted, s.status(t, "one"))
		require.Equal(t, kahn.RunPending, s.status(t, "two"))
	})
}
