//go:build server

package temporal

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/worker"

	"github.com/seed-c794f7ef/kahn"
)

// During a rolling deploy a worker of a former version polls the queue, too. It cannot read short tasks. Temporal gives them to the new worker, and
// this does not count as an attempt.
func TestServerFormerWorker(t *testing.T) {
	c := dial(t)
	o := Options{Step: func(_ context.Context, s *kahn.Step) (any, error) { return s.Attempt(), nil }}
	o.Worker.DisableEagerActivities = true // otherwise the worker with the workflow gets all attempts
	w := serve(t, c, plan(t, inNotation("a>b b>c c>d d>e e>f f>g g>h h>i i>j")(true)), o)
	former := worker.New(c, w.TaskQueue, worker.Options{DisableWorkflowWorker: true})
	former.RegisterActivityWithOptions(func(context.Context, plainTask) (json.RawMessage, error) {
		return nil, errors.New("the former worker has read the task")
	}, activity.RegisterOptions{Name: ActivityName})
	require.NoError(t, former.Start())
	t.Cleanup(former.Stop)
	run, err := Start(t.Context(), c, w, nil)
	require.NoError(t, err)
	res, err := run.Wait(t.Context())
	require.NoError(t, err)
	for n := range res.Nodes() {
		require.Equal(t, 1, n.Attempts, n.ID)
		require.Equal(t, 1, n.Output, n.ID)
	}
	again := 0
	for _, e := range histories(t, c, w.ID, run.get.GetRunID())[0].Events {
		if a := e.GetActivityTaskStartedEventAttributes(); a.GetAttempt() > 1 {
			require.Contains(t, a.GetLastFailure().GetMessage(), "unable to decode")
			again++
		}
	}
	require.Positive(t, again, "the former worker had a task")
}
