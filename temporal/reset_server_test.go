//go:build server

package temporal

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/kahntest"
)

// An operator resets the workflow while an attempt is in flight. The attempt begins again under its key, and the run keeps its id.
func TestServerReset(t *testing.T) {
	c := dial(t)
	type seen struct{ run, key string }
	calls, release := make(chan seen, 10), make(chan bool)
	step := func(ctx context.Context, s *kahn.Step) (any, error) {
		if s.ID() == "slow" {
			calls <- seen{s.RunID(), s.IdempotencyKey()}
			select {
			case <-release:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		return nil, nil
	}
	w := serve(t, c, plan(t, kahntest.Graph(t, "slow fast>next next>ask ask{gate}")), Options{Step: step})
	run, err := Start(t.Context(), c, w, nil)
	require.NoError(t, err)
	first := <-calls
	require.Equal(t, run.get.GetRunID(), first.run)
	require.Eventually(t, func() bool {
		_, waits, err := run.Waiting(t.Context())
		return err == nil && len(waits) == 1
	}, 10*time.Second, 20*time.Millisecond)
	var last int64
	for _, e := range histories(t, c, w.ID, run.get.GetRunID())[0].Events {
		if e.GetEventType() == enums.EVENT_TYPE_WORKFLOW_TASK_COMPLETED {
			last = e.GetEventId()
		}
	}
	_, err = c.ResetWorkflowExecution(t.Context(), &workflowservice.ResetWorkflowExecutionRequest{
		Namespace: os.Getenv("KAHN_TEMPORAL_NAMESPACE"), WorkflowExecution: &commonpb.WorkflowExecution{WorkflowId: w.ID, RunId: run.get.GetRunID()},
		Reason: "test", RequestId: w.ID, WorkflowTaskFinishEventId: last,
	})
	require.NoError(t, err)
	require.Equal(t, first, <-calls)
	close(release)
	run = Attach(c, w)
	require.Eventually(t, func() bool { return run.Signal(t.Context(), "ask", "yes") == nil }, 10*time.Second, 20*time.Millisecond)
	res, err := run.Wait(t.Context())
	require.NoError(t, err)
	require.Equal(t, first.run, res.ID())
}
