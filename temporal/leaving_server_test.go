//go:build server

package temporal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/temporalproto"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/kahntest"
)

// startWorker starts a worker of a task queue.
func startWorker(t testing.TB, c client.Client, queue string, o Options) worker.Worker {
	t.Helper()
	w, err := NewWorker(c, queue, o)
	require.NoError(t, err)
	require.NoError(t, w.Start())
	return w
}

// If a worker is stopped gracefully during an attempt, this does not count as a crash. The next worker gets the details that the step recorded,
// whether or not the step returns when its context ends.
func TestServerStops(t *testing.T) {
	c := dial(t)
	for name, returns := range map[string]bool{"it returns": true, "it does not": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const lives = 3 // more stops than MaxCrashes
			begun, release := make(chan error, lives), make(chan struct{})
			t.Cleanup(func() { close(release) })
			var life atomic.Int32
			step := func(ctx context.Context, s *kahn.Step) (any, error) {
				n := int(life.Add(1))
				var before int
				if err := activity.GetHeartbeatDetails(ctx, &before); n > 1 && (err != nil || before != n-1) {
					begun <- errors.Join(err, fmt.Errorf("life %d sees %d", n, before))
					return nil, nil
				}
				if n == lives {
					begun <- nil
					return s.Attempt(), nil
				}
				activity.RecordHeartbeat(ctx, n)
				begun <- nil
				if returns {
					<-ctx.Done()
					return nil, context.Cause(ctx)
				}
				<-release
				return nil, nil
			}
			p := plan(t, new(kahn.Graph).Add(kahn.Node{ID: "a", MaxCrashes: 1}))
			o := Options{Plans: []*kahn.Plan{p}, Step: step, Heartbeat: 100 * time.Millisecond}
			id := fmt.Sprint("stops-", time.Now().UnixNano())
			run, err := Start(t.Context(), c, Workflow{ID: id, TaskQueue: id, Plan: p}, nil)
			require.NoError(t, err)
			for range lives - 1 {
				w := startWorker(t, c, id, o)
				require.NoError(t, <-begun)
				w.Stop()
			}
			w := startWorker(t, c, id, o)
			defer w.Stop()
			require.NoError(t, <-begun)
			res, err := run.Wait(t.Context())
			require.NoError(t, err)
			require.Equal(t, 1, res.Output(), "the number of the attempt")
			require.EqualValues(t, lives, life.Load())
		})
	}
}

// A worker without the plan of a run leaves the run and its attempts to a worker that has the plan.
func TestServerRollingDeploy(t *testing.T) {
	c := dial(t)
	old := plan(t, kahntest.Graph(t, "a>b"))
	young := plan(t, layers(4, 5))
	var calls atomic.Int32
	step := func(_ context.Context, s *kahn.Step) (any, error) { calls.Add(1); return s.ID(), nil }
	queue := fmt.Sprint("deploy-", time.Now().UnixNano())
	first := startWorker(t, c, queue, Options{Plans: []*kahn.Plan{old}, Step: step})
	defer first.Stop()
	second := startWorker(t, c, queue, Options{Plans: []*kahn.Plan{old, young}, Step: step})
	defer second.Stop()
	for i := range 5 {
		calls.Store(0)
		res, err := Execute(t.Context(), c, Workflow{ID: fmt.Sprint(queue, i), TaskQueue: queue, Plan: young}, nil)
		require.NoError(t, err)
		require.Equal(t, 20, res.Count(kahn.Completed))
		require.EqualValues(t, 20, calls.Load())
	}
}

// activities registers only the activity.
type activities struct{ worker.Worker }

func (activities) RegisterWorkflowWithOptions(any, workflow.RegisterOptions) {}

// If Temporal cancels the workflow in the task whose result would make the run continue as new, the run is cancelled. TestReplay replays this
// history.
func TestServerCancelAtTheEnd(t *testing.T) {
	c := dial(t)
	r := earlier["cancelatend"]
	p := plan(t, r.graph(true))
	id := fmt.Sprint("cancel-", time.Now().UnixNano())
	begun, release := make(chan bool, 9), make(chan bool, 9)
	step := func(ctx context.Context, s *kahn.Step) (any, error) {
		begun <- true
		<-release
		return recordedStep(ctx, s)
	}
	o := r.options
	o.Plans, o.Step = []*kahn.Plan{p}, step
	steps := worker.New(c, id, worker.Options{DisableWorkflowWorker: true})
	require.NoError(t, o.Register(activities{steps}))
	require.NoError(t, steps.Start())
	defer steps.Stop()
	o.Worker = worker.Options{LocalActivityWorkerOnly: true}
	decisions := startWorker(t, c, id, o)
	run, err := Start(t.Context(), c, Workflow{ID: id, TaskQueue: id, Plan: p}, nil)
	require.NoError(t, err)
	<-begun
	decisions.Stop()
	release <- true
	has := func(kind enums.EventType) func() bool {
		return func() bool {
			for _, e := range histories(t, c, id, run.get.GetRunID())[0].Events {
				if e.GetEventType() == kind {
					return true
				}
			}
			return false
		}
	}
	require.Eventually(t, has(enums.EVENT_TYPE_ACTIVITY_TASK_COMPLETED), 10*time.Second, 20*time.Millisecond)
	require.NoError(t, c.CancelWorkflow(t.Context(), id, ""))
	require.Eventually(t, has(enums.EVENT_TYPE_WORKFLOW_EXECUTION_CANCEL_REQUESTED), 10*time.Second, 20*time.Millisecond)
	release <- true // releases the next step if it is called by mistake
	decisions = startWorker(t, c, id, o)
	defer decisions.Stop()
	res, err := run.Wait(t.Context())
	require.ErrorIs(t, err, kahn.ErrCancelled)
	kahntest.RequireStatuses(t, res, "a:ok b:C")
	all := histories(t, c, id, run.get.GetRunID())
	require.Len(t, all, 1)
	if dir := os.Getenv("KAHN_TEMPORAL_RECORD"); dir != "" {
		host, err := os.Hostname()
		require.NoError(t, err)
		data, err := temporalproto.CustomJSONMarshalOptions{Indent: " "}.Marshal(all[0])
		require.NoError(t, err)
		data = bytes.ReplaceAll(data, []byte(`"`+host+`:`), []byte(`"host:`))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "cancelatend-0.json"), append(data, '\n'), 0o644))
	}
}

// Refused requests leave no events in the history.
func TestServerRefusals(t *testing.T) {
	c := dial(t)
	w := serve(t, c, plan(t, kahntest.Graph(t, "ask-[yes]>b ask-[no]>c ask{gate}")), Options{Step: recordedStep})
	run, err := Start(t.Context(), c, w, nil)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		status, _, err := run.Waiting(t.Context())
		return err == nil && status == kahn.RunSuspended
	}, 10*time.Second, 20*time.Millisecond)
	before := len(histories(t, c, w.ID, run.get.GetRunID())[0].Events)
	require.ErrorIs(t, run.Signal(t.Context(), "ask", "perhaps"), kahn.ErrChoice)
	require.ErrorIs(t, run.Signal(t.Context(), "nobody", 1), kahn.ErrUnknownGate)
	require.ErrorIs(t, run.CancelNode(t.Context(), "nobody"), kahn.ErrUnknownNode)
	require.Len(t, histories(t, c, w.ID, run.get.GetRunID())[0].Events, before)
	require.NoError(t, run.Signal(t.Context(), "ask", "yes"))
	_, err = run.Wait(t.Context())
	require.NoError(t, err)
}
