//go:build server

package temporal

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// Runs are started in three ways: by a Schedule, together with the signal that answers a gate, and as a child of the host's own workflow. Lists
// show these runs, and they can be redriven.
func TestServerNative(t *testing.T) {
	c := dial(t)
	g := orders("")
	g.Add(kahn.Node{ID: "flaky", After: []string{"ship"}})
	w := serve(t, c, plan(t, g), Options{Step: recordedStep})
	in, err := w.Input(map[string]any{"order": 17})
	require.NoError(t, err)
	s, err := c.ScheduleClient().Create(t.Context(), client.ScheduleOptions{
		ID: w.ID, Spec: client.ScheduleSpec{}, TriggerImmediately: true, Action: &client.ScheduleWorkflowAction{ID: w.ID + "-by", Workflow: "orders", TaskQueue: w.TaskQueue, Args: []any{in}},
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Delete(context.Background())) })
	started, err := c.SignalWithStartWorkflow(t.Context(), w.ID+"-with", SignalName, json.RawMessage(`{"gate": "ask", "value": "yes"}`), client.StartWorkflowOptions{TaskQueue: w.TaskQueue},
		"orders", json.RawMessage(`{"inputs": {"order": 18}}`))
	require.NoError(t, err)
	w.ID += "-with"
	run := Attach(c, w)
	res, err := run.Wait(t.Context())
	require.ErrorContains(t, err, errStep.Error(), "it has no Retry")
	require.Equal(t, started.GetRunID(), res.ID())
	again, err := run.Redrive(t.Context(), nil, kahn.Request{})
	require.NoError(t, err)
	repeated, err := again.Wait(t.Context())
	require.ErrorContains(t, err, errStep.Error())
	require.Equal(t, res.ID(), repeated.ID())
	require.Eventually(t, func() bool { // the run of the Schedule, and the run started with a signal
		page, err := Store{Client: c}.List(t.Context(), store.Query{Filter: store.Filter{Prefix: w.TaskQueue, Workflow: "orders"}})
		return err == nil && len(page.Runs) >= 2
	}, 20*time.Second, 200*time.Millisecond)

	own := worker.New(c, w.TaskQueue+"-own", worker.Options{})
	own.RegisterWorkflowWithOptions(func(ctx workflow.Context) (string, error) {
		child := ExecuteChild(ctx, Workflow{TaskQueue: w.TaskQueue, Plan: w.Plan}, map[string]any{"order": 19})
		if err := child.Signal(ctx, "ask", "no"); err != nil {
			return "", err
		}
		res, err := child.Wait(ctx)
		return fmt.Sprint(res.Status), err
	}, workflow.RegisterOptions{Name: "own"})
	require.NoError(t, own.Start())
	t.Cleanup(own.Stop)
	parent, err := c.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: w.TaskQueue + "-own"}, "own")
	require.NoError(t, err)
	var status string
	require.NoError(t, parent.Get(t.Context(), &status))
	require.Equal(t, "completed", status)
}
