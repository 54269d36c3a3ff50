package conformance_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// TestFirstStarted requires that a continued run and a redriven run keep the time at which the first node started, and that a fork does not.
func TestFirstStarted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := (&kahn.Graph{Name: "g"}).Add(
			kahn.Node{ID: "first", Do: func(context.Context, *kahn.Step) (any, error) { return nil, nil }},
			kahn.Node{ID: "ok", Kind: kahn.KindGate, After: []string{"first"}},
		)
		memory := &store.Memory{}
		begin := func(opts ...kahn.Option) (*kahn.Run, time.Time) {
			t.Helper()
			now := time.Now()
			run, err := kahn.Start(t.Context(), g, nil, append(opts, kahn.RunID("r"), kahn.Durable(memory))...)
			require.NoError(t, err)
			return run, now
		}
		run, began := begin()
		_, err := run.WaitFor(t.Context(), "ok", kahn.Suspended)
		require.NoError(t, err)
		require.Equal(t, []time.Time{began, began}, []time.Time{run.Started(), run.FirstStarted()})
		run.Leave()
		_, _ = run.Wait()
		for _, opts := range [][]kahn.Option{{kahn.EarlySignals(map[string]any{"ok": true})}, {kahn.Redrive(nil, []string{"first"}), kahn.EarlySignals(map[string]any{"ok": true})}} {
			time.Sleep(time.Hour)
			again, now := begin(opts...)
			res, err := again.Wait()
			require.NoError(t, err)
			require.Equal(t, kahn.RunCompleted, res.Status)
			require.True(t, again.Started().Equal(now))
			require.True(t, again.FirstStarted().Equal(began), again.FirstStarted())
		}
		time.Sleep(time.Hour)
		from, err := kahn.ReadSnapshot(t.Context(), memory, "r")
		require.NoError(t, err)
		now := time.Now()
		fork, err := kahn.Start(t.Context(), g, nil, kahn.Fork(from, "ok"), kahn.RunID("fork"), kahn.EarlySignals(map[string]any{"ok": true}))
		require.NoError(t, err)
		_, _ = fork.Wait()
		require.True(t, fork.FirstStarted().Equal(now), fork.FirstStarted())
	})
}

// TestLastSign requires the latest of the times in the row of a run and in the nodes of its snapshot: without the nodes, the start of a later
// attempt is unknown.
func TestLastSign(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		memory, created := &store.Memory{}, time.Now()
		release := make(chan struct{})
		run, err := kahn.Start(t.Context(), (&kahn.Graph{Name: "g"}).Add(kahn.Node{
			ID: "n", Retry: kahn.Retry{MaxAttempts: 2, InitialDelay: time.Hour, Jitter: kahn.JitterNone}, Do: func(_ context.Context, s *kahn.Step) (any, error) {
				if s.Attempt() == 1 {
					return nil, errors.New("overloaded")
				}
				<-release
				return nil, nil
			},
		}), nil, kahn.RunID("r"), kahn.Durable(memory))
		require.NoError(t, err)
		time.Sleep(90 * time.Minute)
		row, err := memory.Load(t.Context(), "r")
		require.NoError(t, err)
		snapshot, err := kahn.ReadSnapshot(t.Context(), memory, "r")
		require.NoError(t, err)
		nodes, err := snapshot.Nodes(nil)
		require.NoError(t, err)
		require.Equal(t, time.Hour, kahn.LastSign(row, nodes).Sub(created).Round(time.Second))
		require.Equal(t, time.Duration(0), kahn.LastSign(row, nil).Sub(created).Round(time.Second))
		close(release)
		_, err = run.Wait()
		require.NoError(t, err)
	})
}
