//go:build server

package temporal

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/temporalproto"
	"go.temporal.io/sdk/client"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/kahntest"
)

// The tests with the tag server need a Temporal service at the address KAHN_TEMPORAL, such as cmd/temporal-dev starts, and its namespace
// KAHN_TEMPORAL_NAMESPACE.

func dial(t testing.TB) client.Client {
	t.Helper()
	require.NotEmpty(t, os.Getenv("KAHN_TEMPORAL"), "the address of a Temporal service")
	c, err := client.Dial(client.Options{HostPort: os.Getenv("KAHN_TEMPORAL"), Namespace: os.Getenv("KAHN_TEMPORAL_NAMESPACE"), Logger: discard, Identity: "test"})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// serve runs a worker for a plan until the test has ended.
func serve(t testing.TB, c client.Client, p *kahn.Plan, o Options) Workflow {
	t.Helper()
	w := Workflow{ID: fmt.Sprintf("%s-%d", t.Name(), time.Now().UnixNano()), Plan: p}
	w.TaskQueue = w.ID
	o.Plans = append(o.Plans, p)
	worker, err := NewWorker(c, w.TaskQueue, o)
	require.NoError(t, err)
	require.NoError(t, worker.Start())
	t.Cleanup(worker.Stop)
	return w
}

func TestServerGate(t *testing.T) {
	c := dial(t)
	step := func(_ context.Context, s *kahn.Step) (any, error) {
		if s.ID() == "a" && s.Attempt() == 1 {
			return nil, errStep
		}
		return s.ID(), nil
	}
	w := serve(t, c, plan(t, kahntest.Graph(t, "a>ask ask-[yes]>b ask-[no]>c ask{gate}")), Options{Step: step})
	w.Settings.DefaultRetry = &kahn.Retry{MaxAttempts: 2, InitialDelay: 10 * time.Millisecond}
	run, err := Start(t.Context(), c, w, nil)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		status, waits, err := run.Waiting(t.Context())
		return err == nil && status == kahn.RunSuspended && len(waits) == 1 && waits[0].Node == "ask"
	}, 10*time.Second, 50*time.Millisecond)
	require.ErrorIs(t, run.Signal(t.Context(), "ask", "perhaps"), kahn.ErrChoice)
	require.ErrorIs(t, run.Signal(t.Context(), "nobody", "yes"), kahn.ErrUnknownGate)
	require.NoError(t, run.Signal(t.Context(), "ask", kahn.Decision{Value: "yes", Actor: "me", ID: "1"}))
	res, err := run.Wait(t.Context())
	require.NoError(t, err)
	kahntest.RequireStatuses(t, res, "a:ok ask:ok b:ok c:S/br")

	again, err := Execute(t.Context(), c, w, nil)
	require.NoError(t, err)
	require.Equal(t, res.ID(), again.ID(), "it is the same run")
	w.Settings.Limit = 7
	_, err = Start(t.Context(), c, w, nil)
	require.ErrorIs(t, err, kahn.ErrKeyConflict)
}

// A cancellation reaches a running step within two seconds, by whatever way it comes; cleanup nodes run, and the Result tells who has asked.
func TestServerCancel(t *testing.T) {
	c := dial(t)
	for name, cancel := range map[string]func(run *Run) error{
		"update":   func(run *Run) error { return run.Cancel(t.Context(), kahn.Request{Actor: "me"}) },
		"temporal": func(run *Run) error { return c.CancelWorkflow(t.Context(), run.ID(), "") },
		"node":     func(run *Run) error { return run.CancelNode(t.Context(), "a") },
	} {
		t.Run(name, func(t *testing.T) {
			begun := make(chan bool, 1)
			var stopped atomic.Int64
			step := func(ctx context.Context, s *kahn.Step) (any, error) {
				if s.ID() != "a" {
					return nil, nil
				}
				begun <- true
				<-ctx.Done()
				stopped.Store(time.Now().UnixNano())
				return nil, ctx.Err()
			}
			w := serve(t, c, plan(t, kahntest.Graph(t, "a>b b>clean clean{clean}")), Options{Step: step})
			run, err := Start(t.Context(), c, w, nil)
			require.NoError(t, err)
			<-begun
			asked := time.Now()
			require.NoError(t, cancel(run))
			res, err := run.Wait(t.Context())
			require.Error(t, err)
			require.Equal(t, kahn.RunCancelled, res.Status, "%v", err)
			require.Less(t, time.Unix(0, stopped.Load()).Sub(asked), 2*time.Second)
			clean, _ := res.Node("clean")
			require.Equal(t, kahn.Completed, clean.Status)
		})
	}
}

// A step that ignores the end of its context is abandoned.
func TestServerAbandoned(t *testing.T) {
	c := dial(t)
	release := make(chan struct{})
	w := serve(t, c, plan(t, new(kahn.Graph).Add(kahn.Node{ID: "a", Timeout: time.Second})), Options{Step: func(context.Context, *kahn.Step) (any, error) { <-release; return nil, nil }})
	t.Cleanup(func() { close(release) }) // before the worker stops
	w.Settings.CancelGrace = time.Second
	res, err := Execute(t.Context(), c, w, nil)
	require.Error(t, err)
	a, _ := res.Node("a")
	require.True(t, a.Abandoned)
}

// TestServerHistories records the histories that TestReplay replays.
func TestServerHistories(t *testing.T) {
	c := dial(t)
	host, err := os.Hostname()
	require.NoError(t, err)
	dir := filepath.Join("testdata", "histories")
	require.NoError(t, os.MkdirAll(dir, 0o755))
	for name, r := range records {
		o := r.options
		o.Step = recordedStep
		w := serve(t, c, plan(t, r.graph(true)), o)
		w.Settings = r.settings
		run, err := Start(t.Context(), c, w, nil)
		require.NoError(t, err)
		first := run.get.GetRunID()
		for answered := 0; answered < len(r.answers) || r.cancel; {
			_, waits, err := run.Waiting(t.Context())
			require.NoError(t, err)
			if len(waits) > 0 && r.cancel {
				require.NoError(t, run.Cancel(t.Context(), kahn.Request{}))
				break
			}
			for _, x := range waits {
				require.NoError(t, run.Signal(t.Context(), x.Node, r.answers[x.Node]))
				answered++
			}
			time.Sleep(20 * time.Millisecond)
		}
		res, err := run.Wait(t.Context())
		require.NotNil(t, res, "%v", err)
		number := 0
		for id := first; id != ""; number++ {
			var history historypb.History
			next := ""
			for events := c.GetWorkflowHistory(t.Context(), w.ID, id, false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT); events.HasNext(); {
				e, err := events.Next()
				require.NoError(t, err)
				history.Events = append(history.Events, e)
				next = e.GetWorkflowExecutionContinuedAsNewEventAttributes().GetNewExecutionRunId()
			}
			data, err := temporalproto.CustomJSONMarshalOptions{Indent: " "}.Marshal(&history)
			require.NoError(t, err)
			data = bytes.ReplaceAll(data, []byte(`"`+host+`:`), []byte(`"host:`)) // in the names of task queues
			require.NoError(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("%s-%d.json", name, number)), append(data, '\n'), 0o644))
			id = next
		}
		t.Log(name, res.Status, number)
	}
}
