//go:build server

package temporal

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	sdk "go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-c794f7ef/kahn"
)

// serveShips runs a worker with the workflow "ship" until the test has ended.
func serveShips(t *testing.T, c client.Client, queue string) {
	t.Helper()
	w := worker.New(c, queue, worker.Options{})
	w.RegisterWorkflowWithOptions(ship, workflow.RegisterOptions{Name: "ship"})
	require.NoError(t, w.Start())
	t.Cleanup(w.Stop)
}

// ship is a workflow of the host: it fails in the first attempt, waits for its cancellation if the order is "stuck", and returns a label otherwise.
func ship(ctx workflow.Context, p parcel) (parcel, error) {
	switch {
	case p.Order == "bad":
		return p, sdk.NewNonRetryableApplicationError("no address", "Address", nil)
	case p.Order == "stuck":
		err := workflow.Sleep(ctx, time.Hour)
		free, _ := workflow.NewDisconnectedContext(ctx)
		return p, errors.Join(err, workflow.Sleep(free, 2*time.Second))
	case p.Label == "1":
		return p, errors.New("no truck")
	}
	p.Label = "label of " + p.Order
	return p, nil
}

// A workflow of the host performs a step on a service: with a retry, a failure, a cancellation for which the run waits, and the end of an execution
// in between. The ids of the children name nodes and attempts, and the histories replay.
func TestServerStepWorkflow(t *testing.T) {
	c := dial(t)
	queue := fmt.Sprint(t.Name(), "-ships-", time.Now().UnixNano())
	serveShips(t, c, queue)
	for order, row := range map[string]struct {
		attempts int
		status   kahn.Status
		text     string
		after    int
	}{
		"taken": {2, kahn.Completed, "", 0},
		"17":    {2, kahn.Completed, "", 0}, "18": {2, kahn.Completed, "", 1}, "bad": {1, kahn.Failed, "no address", 0}, "stuck": {1, kahn.Cancelled, "cancel", 0},
	} {
		t.Run(order, func(t *testing.T) {
			o := Options{Types: shippingTypes(), ContinueAfter: row.after, Step: takes}
			o.Kinds = map[string]Kind{"ship": {TaskQueue: queue, Workflow: func(s *kahn.Step) (StepWorkflow, error) {
				p := parcel{order, fmt.Sprint(s.Attempt())}
				return StepWorkflow{Type: "ship", Args: []any{p}, Result: new(parcel), ExecutionTimeout: time.Hour, Memo: map[string]any{"order": order}}, nil
			}}}
			w := serve(t, c, plan(t, shipping(func(n *kahn.Node) { n.Retry = kahn.Retry{MaxAttempts: 3, InitialDelay: 10 * time.Millisecond} })), o)
			w.Types = o.Types
			id := func(attempt int) string { return fmt.Sprintf("%s/ship/%d", w.ID, attempt) }
			if order == "taken" { // a workflow with the id of the first attempt is running, so this attempt fails without effect
				other, err := c.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: id(1), TaskQueue: queue}, "ship", parcel{Order: "stuck"})
				require.NoError(t, err)
				t.Cleanup(func() { require.NoError(t, c.TerminateWorkflow(context.Background(), other.GetID(), "", "")) })
			}
			run, err := Start(t.Context(), c, w, nil)
			require.NoError(t, err)
			first := run.get.GetRunID()
			if order == "stuck" {
				require.Eventually(t, func() bool {
					about, err := c.DescribeWorkflowExecution(t.Context(), id(1), "")
					return err == nil && about.GetWorkflowExecutionInfo().GetType().GetName() == "ship"
				}, 10*time.Second, 50*time.Millisecond)
				require.NoError(t, c.CancelWorkflow(t.Context(), w.ID, ""))
			}
			res, err := run.Wait(t.Context())
			n, _ := res.Node("ship")
			require.Equal(t, []any{row.status, row.attempts}, []any{n.Status, n.Attempts}, "%v", err)
			if row.text != "" {
				require.ErrorContains(t, err, row.text)
			} else {
				require.Equal(t, "label of "+order, res.Output())
			}
			require.False(t, n.Abandoned)
			about, err := c.DescribeWorkflowExecution(t.Context(), id(row.attempts), "")
			require.NoError(t, err)
			require.False(t, about.GetWorkflowExecutionInfo().GetCloseTime().AsTime().IsZero(), "the child has ended")
			require.Equal(t, w.ID, about.GetWorkflowExecutionInfo().GetParentExecution().GetWorkflowId())
			var noted string
			require.NoError(t, converter.GetDefaultDataConverter().FromPayload(about.GetWorkflowExecutionInfo().GetMemo().GetFields()["order"], &noted))
			require.Equal(t, order, noted)
			all := histories(t, c, w.ID, first)
			if row.after > 0 {
				require.Greater(t, len(all), 1)
			}
			if order == "bad" { // a redrive begins with attempt 1 again, and with the same id
				again, err := run.Redrive(t.Context(), nil, kahn.Request{})
				require.NoError(t, err)
				_, err = again.Wait(t.Context())
				require.ErrorContains(t, err, "no address")
				all = append(all, histories(t, c, w.ID, again.get.GetRunID())...)
			}
			o.Plans = []*kahn.Plan{w.Plan}
			for _, h := range all {
				replayer, err := o.Replayer()
				require.NoError(t, err)
				require.NoError(t, replayer.ReplayWorkflowHistory(discard, h))
			}
		})
	}
}
