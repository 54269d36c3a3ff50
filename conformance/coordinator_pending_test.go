package conformance_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
)

// A function of Around stops or leaves a run that a Coordinator continues with attempts in flight, before the run goes on. The attempts stay in
// flight, and the run does what it does if the request comes a moment later. It once took no results any more, and never ended.
func TestStopBeforeAttemptsInFlightContinue(t *testing.T) {
	for name, row := range map[string]struct {
		stop  func(*kahn.Run)
		asked bool // whether the attempts are asked to stop
		ends  kahn.RunStatus
		tidy  kahn.Status // the status of the cleanup node
	}{
		"cancel": {func(r *kahn.Run) { _ = r.Cancel() }, true, kahn.RunCancelled, kahn.Completed},
		"abort":  {func(r *kahn.Run) { _ = r.AbortAll(errStep) }, true, kahn.RunFailed, kahn.Completed},
		"leave":  {func(r *kahn.Run) { r.Leave() }, false, kahn.RunSuspended, kahn.Idle},
	} {
		for _, around := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", by Around ", around), func(t *testing.T) {
				plan := compiled(t, graph(
					kahn.Node{ID: "a"}, kahn.Node{ID: "b", After: []string{"a"}}, kahn.Node{ID: "S", Sub: graph(kahn.Node{ID: "x"})}, kahn.Node{ID: "tidy", After: []string{"b"}, Cleanup: true, Join: kahn.AllDone},
				))
				c, err := kahn.NewCoordinator(plan, deskEpoch, kahn.RunID("r"))
				require.NoError(t, err)
				var tokens []string
				for s, ok := c.Next(); ok; s, ok = c.Next() {
					tokens = append(tokens, c.Token(s))
				}
				require.Equal(t, []string{"step:1:1:a@r", "step:1:1.1:S/x@r"}, tokens)
				opts := []kahn.Option{kahn.CancelGrace(time.Minute)}
				if around {
					opts = append(opts, kahn.Around(func(ctx context.Context, r *kahn.Run) (context.Context, func(*kahn.Result)) {
						row.stop(r)
						return ctx, nil
					}))
				}
				c = continued(t, c, plan, deskEpoch, opts...)
				if !around {
					row.stop(c.Run())
				}
				var flying, stopped []string
				for _, s := range c.InFlight() {
					flying = append(flying, c.Token(s))
				}
				require.Equal(t, tokens, flying)
				for s, ok := c.NextStop(); ok; s, ok = c.NextStop() {
					stopped = append(stopped, c.Token(s))
				}
				if row.asked {
					require.ElementsMatch(t, tokens, stopped)
				} else {
					require.Empty(t, stopped)
				}
				for _, token := range tokens {
					s, err := c.Attempt(token)
					require.NoError(t, err)
					require.NoError(t, c.Return(s, 1, nil))
				}
				for s, ok := c.Next(); ok; s, ok = c.Next() {
					require.Equal(t, "tidy", s.Path())
					require.NoError(t, c.Return(s, nil, nil))
				}
				res, _ := c.Result()
				require.NotNil(t, res)
				require.Equal(t, row.ends, res.Status)
				statuses := map[string]kahn.Status{}
				for n := range res.Nodes() {
					statuses[n.ID] = n.Status
				}
				require.Equal(t, row.tidy, statuses["tidy"])
				require.Equal(t, kahn.Completed, statuses["a"])
				require.NotEqual(t, kahn.Completed, statuses["b"])
			})
		}
	}
}
