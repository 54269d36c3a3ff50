package temporal

import (
	"context"
	"encoding/json"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/interceptor"
	sdk "go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"

	"github.com/seed-c794f7ef/kahn"
)

// wrist is an interceptor that records the heartbeats that would reach Temporal.
type wrist struct {
	interceptor.ActivityOutboundInterceptorBase
	beats  chan []any
	before details // the details that Temporal has
}

func (w *wrist) RecordHeartbeat(_ context.Context, values ...any) { w.beats <- values }
func (w *wrist) HasHeartbeatDetails(context.Context) bool         { return w.before != nil }
func (w *wrist) GetHeartbeatDetails(_ context.Context, into ...any) error {
	return converter.GetDefaultDataConverter().FromPayloads(&commonpb.Payloads{Payloads: w.before}, into...)
}

func payloads(t testing.TB, values ...any) details {
	t.Helper()
	p, err := converter.GetDefaultDataConverter().ToPayloads(values...)
	require.NoError(t, err)
	return p.Payloads
}

// The worker's heartbeats repeat the details that the step recorded last. If it has recorded none, they repeat the details of the previous
// attempt. Details that Temporal itself has take precedence over the details in the task.
func TestPulse(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		task, temporal details
		first          []any
	}{
		"a first attempt":            {nil, nil, nil},
		"after a lost worker":        {payloads(t, "task", 1), nil, []any{"task", 1.}},
		"after a stopped worker":     {nil, payloads(t, "own"), []any{"own"}},
		"after one, and the other":   {payloads(t, "task"), payloads(t, "own", nil, 3), []any{"own", nil, 3.}},
		"of more than are passed on": {nil, payloads(t, 1, 2, 3, 4, 5, 6, 7, 8, 9), []any{1., 2., 3., 4., 5., 6., 7., 8.}},
	} {
		w := &wrist{beats: make(chan []any, 10), before: row.temporal}
		p := &pulse{next: w, dc: converter.GetDefaultDataConverter()}
		ctx := context.WithValue(t.Context(), pulseKey{}, p)
		p.begin(ctx, row.task)
		sent := func() (values []any) {
			for _, v := range <-w.beats {
				if raw, is := v.(converter.RawValue); is {
					var value any
					require.NoError(t, converter.GetDefaultDataConverter().FromPayload(raw.Payload(), &value))
					v = value
				}
				values = append(values, v)
			}
			return values
		}
		p.beat(ctx)
		require.Equal(t, row.first, sent(), name)
		out := &pulsing{interceptor.ActivityOutboundInterceptorBase{Next: w}}
		require.Equal(t, row.task != nil || row.temporal != nil, out.HasHeartbeatDetails(ctx), name)
		if row.first != nil {
			var value any
			require.NoError(t, out.GetHeartbeatDetails(ctx, &value), name)
			require.Equal(t, row.first[0], value, name)
		}
		progress := map[string]any{"at": 7.}
		out.RecordHeartbeat(ctx, progress)
		require.Equal(t, []any{progress}, sent(), name)
		delete(progress, "at") // the step changes its map after the heartbeat
		p.beat(ctx)
		require.Equal(t, []any{map[string]any{"at": 7.}}, sent(), name)
		out.RecordHeartbeat(ctx)
		require.Empty(t, sent(), name)
		p.beat(ctx)
		require.Empty(t, sent(), "the step has recorded that there is nothing")
	}
}

// Each attempt gets the details that the previous attempt of its node recorded: after a failure, a stopped worker or a lost worker, and after
// continue-as-new. Other nodes do not get them, nor does an attempt after a success.
func TestHeartbeatDetails(t *testing.T) {
	t.Parallel()
	sub := new(kahn.Graph).Add(kahn.Node{ID: "x", Kind: "item"})
	g := new(kahn.Graph).Add(kahn.Node{ID: "a", Kind: "item"}, kahn.Node{ID: "m", Sub: sub, Map: &kahn.Map{Over: "items"}, Params: map[string]any{"items": []any{1., 2., 3., 4., 5.}}})
	var calls atomic.Int32
	step := func(ctx context.Context, s *kahn.Step) (any, error) {
		calls.Add(1)
		has := activity.HasHeartbeatDetails(ctx)
		if s.Attempt() == 1 {
			if has {
				return nil, kahn.Permanent(errors.New("the first attempt has details"))
			}
			activity.RecordHeartbeat(ctx, s.Path(), 1)
			return nil, errStep
		}
		var path string
		var n int
		if err := activity.GetHeartbeatDetails(ctx, &path, &n); err != nil {
			return nil, kahn.Permanent(err)
		}
		if path != s.Path() || n != s.Attempt()-1 {
			return nil, kahn.Permanent(errors.New("the details are another attempt's"))
		}
		if s.Attempt() == 2 {
			activity.RecordHeartbeat(s, s.Path(), 2) // a *kahn.Step is a context
			return nil, errStep
		}
		return nil, nil
	}
	for name, o := range map[string]Options{"one execution": {}, "many executions": {ContinueAfter: 2}} {
		calls.Store(0)
		o.Step = step
		x := &trial{workflow: Workflow{Plan: plan(t, g), Settings: Settings{DefaultRetry: retried, MapChildren: 4}}, options: o}
		x.during = func(env *testsuite.TestWorkflowEnvironment, _ int) {
			env.SetWorkerOptions(worker.Options{DeadlockDetectionTimeout: time.Minute, Interceptors: []interceptor.WorkerInterceptor{x.options.Interceptor()}})
		}
		_, err := x.run(t)
		require.NoError(t, err, name)
		require.EqualValues(t, 3*6, calls.Load(), name)
	}
}

// If a worker is lost, the next attempt gets the details of the worker's last heartbeat.
func TestDetailsOfLostWorkers(t *testing.T) {
	t.Parallel()
	fromTemporal := func(err error) error {
		c := sdk.GetDefaultFailureConverter()
		return c.FailureToError(c.ErrorToFailure(err))
	}
	data, err := json.Marshal(outcomeOf(nil, fromTemporal(sdk.NewHeartbeatTimeoutError("checkpoint", 7))))
	require.NoError(t, err)
	var o outcome // the outcome as a batch reports it
	require.NoError(t, json.Unmarshal(data, &o))
	require.True(t, o.lost())
	require.Len(t, o.Details, 2)
	var checkpoint string
	var n int
	require.NoError(t, converter.GetDefaultDataConverter().FromPayloads(&commonpb.Payloads{Payloads: o.Details}, &checkpoint, &n))
	require.Equal(t, []any{"checkpoint", 7}, []any{checkpoint, n})
	require.Empty(t, outcomeOf(nil, fromTemporal(sdk.NewHeartbeatTimeoutError())).Details)
}
