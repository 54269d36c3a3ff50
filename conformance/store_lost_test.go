package conformance_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// After a store failure a run is left. From then on the run writes nothing to the store: the next life decides what happens.
func TestNothingHappensInALostRun(t *testing.T) {
	t.Parallel()
	deaf := kahn.Node{ID: "deaf", Do: func(context.Context, *kahn.Step) (any, error) { time.Sleep(10 * time.Second); return nil, nil }}
	suspends := func(context.Context, *kahn.Step) (any, error) { return nil, kahn.Suspend("", nil, nil) }
	fails := func(context.Context, *kahn.Step) (any, error) { return nil, errStep }
	failsLate := func(ctx context.Context, s *kahn.Step) (any, error) {
		_, _ = takes(1200*ms)(ctx, s)
		return nil, errStep
	}
	slowly := func(context.Context, error) (any, error) { time.Sleep(5 * time.Second); return nil, errStep }
	for name, c := range map[string]struct {
		node kahn.Node
		opts []kahn.Option
		act  func(t *testing.T, run *kahn.Run)
		want string
	}{
		"cancel":      {node: kahn.Node{ID: "n", After: []string{"deaf"}}, act: func(_ *testing.T, r *kahn.Run) { r.Cancel() }, want: "waiting"},
		"abort":       {node: kahn.Node{ID: "n", After: []string{"deaf"}}, act: func(_ *testing.T, r *kahn.Run) { r.AbortAll(errHost) }, want: "waiting"},
		"run timeout": {node: kahn.Node{ID: "n", After: []string{"deaf"}}, opts: []kahn.Option{kahn.Timeout(3 * time.Second)}, want: "waiting"},
		"cancel node": {node: kahn.Node{ID: "n", After: []string{"deaf"}}, want: "waiting", act: func(t *testing.T, r *kahn.Run) {
			require.ErrorIs(t, r.CancelNode("n"), errDisk)
		}},
		"retry now": {node: kahn.Node{ID: "n", Do: fails, Retry: kahn.Retry{MaxAttempts: 2, InitialDelay: time.Hour}}, want: "retrying", act: func(t *testing.T, r *kahn.Run) {
			require.ErrorIs(t, r.RetryNow("n"), errDisk)
		}},
		"backoff":      {node: kahn.Node{ID: "n", Do: fails, Retry: kahn.Retry{MaxAttempts: 2, InitialDelay: 3 * time.Second, Jitter: kahn.JitterNone}}, want: "retrying"},
		"overall":      {node: kahn.Node{ID: "n", Do: suspends, OverallTimeout: 3 * time.Second}, want: "suspended"},
		"gate timeout": {node: kahn.Node{ID: "n", Kind: kahn.KindGate, Gate: &kahn.Gate{Timeout: 3 * time.Second}}, want: "suspended"},
		"attempt":      {node: kahn.Node{ID: "n", Do: failsLate, Retry: kahn.Retry{MaxAttempts: 2, InitialDelay: time.Hour}}, want: "ready"},
		"fallback":     {node: kahn.Node{ID: "n", Do: fails, Fallback: slowly}, want: "ready"},
		"abandoned":    {node: kahn.Node{ID: "n", Do: deaf.Do, Timeout: 700 * ms}, opts: []kahn.Option{kahn.CancelGrace(500 * ms)}, want: "ready"},
		"guard":        {node: kahn.Node{ID: "n", When: func(kahn.View) (bool, error) { time.Sleep(5 * time.Second); return false, nil }}, want: "idle"},
	} {
		inBubble(t, name, func(t *testing.T) {
			store := &outage{Memory: new(store.Memory), err: fmt.Errorf("%w: %w", kahn.ErrUnusable, errDisk), from: time.Now().Add(time.Second), to: time.Now().Add(time.Hour)}
			g := graph(deaf, c.node, kahn.Node{ID: "tick", Do: takes(1500 * ms)}, kahn.Node{ID: "cleanup", Cleanup: true, After: []string{"deaf"}, Do: neverStep(t)})
			opts := append([]kahn.Option{kahn.Durable(store), kahn.RunID("r"), kahn.CancelGrace(20 * time.Second), kahn.AbortRunning}, c.opts...)
			run, err := kahn.Start(t.Context(), g, takes(0), opts...)
			require.NoError(t, err)
			time.Sleep(2 * time.Second) // the end of tick was not written
			if c.act != nil {
				c.act(t, run)
			}
			time.Sleep(2500 * ms)
			if s := map[string]kahn.Status{"retrying": kahn.Retrying, "suspended": kahn.Suspended}[c.want]; s != 0 { // no deadline has changed the node
				if now, err := run.Node("n"); err != nil || now.Status != s {
					t.Error(now.Status, err)
				}
			}
			res, err := run.Wait()
			require.ErrorIs(t, err, kahn.ErrStore)
			require.True(t, res.Left)
			require.Equal(t, kahn.RunSuspended, res.Status)
			n, _ := res.Node("n")
			require.Equal(t, c.want, n.Status.String())
			require.NoError(t, n.Err)
			require.False(t, n.Abandoned)  // the store has no end of an abandoned attempt
			if n.Status != kahn.Retrying { // the store contains no other failed attempt
				require.NoError(t, n.LastErr)
			}
			d, _ := res.Node("deaf")
			require.Equal(t, kahn.Ready, d.Status)
			time.Sleep(10 * time.Second) // until the steps that the run has abandoned have returned
		})
	}
}

// A run whose store failed ends as soon as its attempts return. The run's end does not wait for a write of the last deltas
// of these attempts.
func TestLostRunWaitsForNoDelta(t *testing.T) {
	inBubble(t, "emit", func(t *testing.T) {
		begun := time.Now()
		db := &outage{Memory: new(store.Memory), err: fmt.Errorf("%w: %w", kahn.ErrUnusable, errDisk), from: begun.Add(time.Second), to: begun.Add(time.Hour)}
		emits := func(ctx context.Context, s *kahn.Step) (any, error) {
			<-ctx.Done()
			s.Emit("late")
			return nil, ctx.Err()
		}
		_, err := kahn.Execute(t.Context(), graph(kahn.Node{ID: "a", Do: emits}, kahn.Node{ID: "tick", Do: takes(1500 * ms)}), nil, kahn.Durable(db), kahn.RunID("r"), kahn.StoreEvents())
		require.ErrorIs(t, err, kahn.ErrStore)
		require.Equal(t, 1500*ms, time.Since(begun))
	})
}
