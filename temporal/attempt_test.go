package temporal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/interceptor"
	sdk "go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/kahntest"
)

// update sends a request to the workflow, and fails the test if the workflow refuses it.
func update(t testing.TB, env *testsuite.TestWorkflowEnvironment, name string, argument any) {
	env.UpdateWorkflow(name, "", &testsuite.TestUpdateCallback{
		OnAccept: func() {}, OnReject: func(err error) { t.Error(err) }, OnComplete: func(_ any, err error) {
			if err != nil {
				t.Error(err)
			}
		},
	}, argument)
}

// A step that returns a non-retryable error of Temporal's SDK, also wrapped, is not called again. The node's Retry decides about any other error.
func TestNonRetryableErrors(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		err   error
		calls int32
	}{
		"non-retryable":          {sdk.NewNonRetryableApplicationError("no money", "NoMoney", nil), 1},
		"wrapped, non-retryable": {fmt.Errorf("bank: %w", sdk.NewNonRetryableApplicationError("no money", "NoMoney", nil)), 1},
		"retryable":              {sdk.NewApplicationError("no answer", "Timeout"), 3},
		"any":                    {errors.New("no answer"), 3},
	} {
		var calls atomic.Int32
		g := new(kahn.Graph).Add(kahn.Node{ID: "pay", Retry: kahn.Retry{MaxAttempts: 3, InitialDelay: time.Second}})
		x := &trial{workflow: Workflow{ID: "order-17", Plan: plan(t, g)}, options: Options{Step: func(context.Context, *kahn.Step) (any, error) {
			calls.Add(1)
			return nil, row.err
		}}}
		res, err := x.run(t)
		require.ErrorContains(t, err, row.err.Error(), name)
		require.Equal(t, row.calls, calls.Load(), name)
		pay, _ := res.Node("pay")
		require.Equal(t, int(row.calls), pay.Attempts, name)
	}
}

// A step on Temporal gets the same data from its Step as under kahn.Execute.
func TestStep(t *testing.T) {
	t.Parallel()
	var g kahn.Graph
	sub := new(kahn.Graph)
	var seen atomic.Int32
	check := func(want map[string]any) kahn.StepFunc {
		return func(ctx context.Context, s *kahn.Step) (any, error) {
			seen.Add(1)
			deadline, _ := ctx.Deadline()
			derived, cancel := context.WithCancel(ctx)
			defer cancel()
			if kahn.StepOf(derived) != s {
				return nil, kahn.Permanent(fmt.Errorf("StepOf found %v in %v", kahn.StepOf(derived), s))
			}
			item, inMap := s.Item()
			got := map[string]any{
				"id": s.ID(), "path": s.Path(), "kind": s.Kind(), "label": s.Label(), "attempt": s.Attempt(), "config": s.Config(), "params": s.Params(),
				"deadline": !deadline.IsZero(), "item": item, "inMap": inMap, "index": s.Index(), "run": s.RunID() != "", "key": s.IdempotencyKey() != "",
			}
			for name, v := range want {
				if fmt.Sprint(v) != fmt.Sprint(got[name]) {
					return nil, kahn.Permanent(fmt.Errorf("%s of %s is %v, expected %v", name, s.Path(), got[name], v))
				}
			}
			s.Log(0, "seen")
			s.Emit("seen")
			return s.ID(), nil
		}
	}
	type private struct{ f func() }
	sub.Add(kahn.Node{ID: "x", Config: private{func() {}}, Do: check(map[string]any{"path": "each[1]/x", "id": "x", "inMap": true, "index": 1, "item": "b"})})
	g.Add(
		kahn.Node{ID: "a", Kind: "k", Label: "L", Config: 7, Timeout: time.Hour, Params: map[string]any{"p": []int{1}}, Do: check(map[string]any{
			"id": "a", "path": "a", "kind": "k", "label": "L", "attempt": 1, "config": 7, "params": map[string]any{"p": []int{1}}, "deadline": true, "inMap": false,
			"run": true, "key": true,
		})},
		kahn.Node{ID: "each", Sub: sub, Map: &kahn.Map{Over: "list", ToleratedCount: 1}, Params: map[string]any{"list": []string{"a", "b"}}},
	)
	x := &trial{workflow: Workflow{Plan: plan(t, &g)}}
	res, err := x.run(t)
	require.NoError(t, err)
	require.EqualValues(t, 3, seen.Load())
	each, _ := res.Node("each")
	require.Equal(t, []any{nil, "x"}, each.Output, "each[0] is not what was expected, each[1] is")
}

// A panic, a Goexit, a special error or an unusable value of a step fails its node as under kahn.Execute.
func TestReplies(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		do    kahn.StepFunc
		cause kahn.CauseKind
		is    error
		text  string
	}{
		"goexit":   {func(context.Context, *kahn.Step) (any, error) { runtime.Goexit(); return nil, nil }, kahn.CauseGoexit, kahn.ErrGoexit, ""},
		"panic":    {func(context.Context, *kahn.Step) (any, error) { panic("aaa") }, kahn.CausePanic, nil, "aaa"},
		"rate":     {func(context.Context, *kahn.Step) (any, error) { return nil, kahn.RateLimited(errStep, time.Hour) }, kahn.CauseRateLimit, nil, errStep.Error()},
		"external": {func(context.Context, *kahn.Step) (any, error) { return nil, kahn.ErrCallAborted }, kahn.CauseExternal, nil, ""},
		"deadline": {func(context.Context, *kahn.Step) (any, error) { return nil, context.DeadlineExceeded }, kahn.CauseTimeout, context.DeadlineExceeded, ""},
		"channel":  {func(context.Context, *kahn.Step) (any, error) { return make(chan int), nil }, kahn.CauseStepError, nil, "chan int"},
		"large":    {func(context.Context, *kahn.Step) (any, error) { return strings.Repeat("x", 20_000), nil }, kahn.CauseStepError, nil, "MaxBytes"},
		"expand":   {func(context.Context, *kahn.Step) (any, error) { return nil, kahn.Expand(new(kahn.Graph), nil, nil) }, kahn.CauseStepError, nil, "graph"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := &trial{workflow: Workflow{Plan: plan(t, new(kahn.Graph).Add(kahn.Node{ID: "a", Do: row.do}))}, options: Options{MaxBytes: 10_000}}
			res, err := x.run(t)
			require.Error(t, err)
			a, _ := res.Node("a")
			require.Equal(t, row.cause, a.Cause.Kind, "%v", a.Err)
			require.Equal(t, 1, a.Attempts)
			require.ErrorContains(t, a.Err, row.text)
			if row.is != nil {
				require.ErrorIs(t, a.Err, row.is)
			}
		})
	}
}

// If a composite is attempted again, its inner nodes may lose their workers MaxCrashes times again, since only losses in a row count.
func TestLossesOfAnotherAttempt(t *testing.T) {
	t.Parallel()
	sub := new(kahn.Graph).Add(kahn.Node{ID: "a", MaxCrashes: 1})
	g := new(kahn.Graph).Add(kahn.Node{ID: "c", Sub: sub, Retry: kahn.Retry{MaxAttempts: 2}})
	x := &trial{workflow: Workflow{Plan: plan(t, g)}, options: Options{Pure: true, Step: func(context.Context, *kahn.Step) (any, error) { return nil, nil }}}
	calls := 0
	x.during = func(env *testsuite.TestWorkflowEnvironment, _ int) {
		env.SetWorkerOptions(once())
		env.OnActivity(ActivityName, mock.Anything, mock.Anything).Return(func(context.Context, task) (json.RawMessage, error) {
			if calls++; calls <= 3 {
				return nil, sdk.NewHeartbeatTimeoutError()
			}
			return json.RawMessage(`{"value": 7}`), nil
		})
	}
	res, err := x.run(t)
	require.NoError(t, err)
	require.Equal(t, 4, calls, "two losses end the first attempt of c, and the second one has one")
	kahntest.RequireStatuses(t, res, "c:ok")
}

// A step that suspends itself is entered again with its state and the signal, in the same attempt.
func TestSuspend(t *testing.T) {
	t.Parallel()
	g := new(kahn.Graph).Add(kahn.Node{ID: "a", Do: func(_ context.Context, s *kahn.Step) (any, error) {
		if signal, ok := s.Resumed(); ok {
			return []any{s.SavedState(), signal, s.Attempt()}, nil
		}
		return nil, kahn.Suspend("token", "who?", 42)
	}})
	x := &trial{workflow: Workflow{Plan: plan(t, g)}}
	x.during = func(env *testsuite.TestWorkflowEnvironment, _ int) {
		env.RegisterDelayedCallback(func() {
			value, err := env.QueryWorkflow(StateQuery)
			require.NoError(t, err)
			var s state
			require.NoError(t, value.Get(&s))
			waits, err := s.waits(kahn.Types(nil))
			require.NoError(t, err)
			require.Equal(t, kahn.RunSuspended, s.Status)
			require.Len(t, waits, 1)
			require.Equal(t, []any{"a", "token", "who?"}, []any{waits[0].Node, waits[0].Token, waits[0].Info})
			update(t, env, SignalUpdate, signalRequest{Gate: "token", Value: []byte(`"me"`)})
		}, time.Hour)
	}
	res, err := x.run(t)
	require.NoError(t, err)
	require.Equal(t, []any{42, "me", 1}, res.Output())
}

// Stops of all kinds reach the steps. The nodes end as in one process, and cleanup nodes run.
func TestStops(t *testing.T) {
	t.Parallel()
	waits := func(ctx context.Context, _ *kahn.Step) (any, error) {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(time.Minute):
			return nil, errors.New("nobody has stopped the step")
		}
	}
	for name, row := range map[string]struct {
		node     kahn.Node
		settings Settings
		ask      func(t *testing.T, env *testsuite.TestWorkflowEnvironment)
		want     string
		status   kahn.RunStatus
		cause    kahn.CauseKind
		is       error
	}{
		"workflow": {ask: func(_ *testing.T, env *testsuite.TestWorkflowEnvironment) { env.CancelWorkflow() }, want: "a:C b:C clean:ok", status: kahn.RunCancelled, cause: kahn.CauseCancelRun, is: kahn.ErrCancelled},
		"cancel": {ask: func(t *testing.T, env *testsuite.TestWorkflowEnvironment) {
			update(t, env, StopUpdate, stopRequest{Actor: "me"})
		}, want: "a:C b:C clean:ok", status: kahn.RunCancelled, cause: kahn.CauseCancelRun, is: kahn.ErrCancelled},
		"abort": {ask: func(t *testing.T, env *testsuite.TestWorkflowEnvironment) {
			update(t, env, StopUpdate, stopRequest{Abort: true, Error: "fire"})
		}, want: "a:X b:X clean:ok", status: kahn.RunFailed, cause: kahn.CauseAbortAll},
		"node": {ask: func(t *testing.T, env *testsuite.TestWorkflowEnvironment) {
			update(t, env, StopUpdate, stopRequest{Node: "a"})
		}, want: "a:C b:X clean:ok", status: kahn.RunCancelled, cause: kahn.CauseCancelNode},
		"timeout":    {node: kahn.Node{Timeout: 100 * time.Millisecond}, want: "a:F b:X clean:ok", status: kahn.RunFailed, cause: kahn.CauseTimeout, is: kahn.ErrTimeout},
		"of the run": {settings: Settings{Timeout: 100 * time.Millisecond}, want: "a:X b:X clean:ok", status: kahn.RunFailed, cause: kahn.CauseRunTimeout, is: kahn.ErrRunTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := row.node
			a.ID, a.Do = "a", waits
			nothing := func(context.Context, *kahn.Step) (any, error) { return nil, nil }
			g := new(kahn.Graph).Add(a, kahn.Node{ID: "b", After: []string{"a"}, Do: nothing}, kahn.Node{ID: "clean", Cleanup: true, After: []string{"b"}, Do: nothing})
			x := &trial{workflow: Workflow{Plan: plan(t, g), Settings: row.settings}}
			x.during = func(env *testsuite.TestWorkflowEnvironment, _ int) {
				if row.ask != nil {
					env.SetOnActivityStartedListener(func(_ *activity.Info, _ context.Context, args converter.EncodedValues) {
						if callOf(t, args).ID == "a" {
							row.ask(t, env)
						}
					})
				}
			}
			res, err := x.run(t)
			require.NotNil(t, res, "%v", err)
			require.Error(t, err)
			kahntest.RequireStatuses(t, res, row.want)
			require.Equal(t, row.status, res.Status)
			n, _ := res.Node("a")
			require.Equal(t, row.cause, n.Cause.Kind)
			if row.is != nil {
				require.ErrorIs(t, err, row.is)
			}
			require.Equal(t, row.status == kahn.RunCancelled, sdk.IsCanceledError(x.err), "the workflow is cancelled if the run was: %v", x.err)
			if name == "cancel" {
				require.Equal(t, kahn.Request{Actor: "me"}, res.StopRequest)
			}
		})
	}
}

// once returns options with which the SDK's test environment performs each activity once. By default the environment, unlike the service, repeats
// activities that have timed out.
func once() worker.Options {
	return worker.Options{DeadlockDetectionTimeout: time.Minute, Interceptors: before(func(next interceptor.WorkflowOutboundInterceptor) interceptor.WorkflowOutboundInterceptor {
		return &unrepeated{interceptor.WorkflowOutboundInterceptorBase{Next: next}}
	})}
}

type unrepeated struct {
	interceptor.WorkflowOutboundInterceptorBase
}

func (u *unrepeated) ExecuteActivity(ctx workflow.Context, name string, args ...any) workflow.Future {
	return u.Next.ExecuteActivity(workflow.WithRetryPolicy(ctx, sdk.RetryPolicy{MaximumAttempts: 1}), name, args...)
}

// An attempt whose worker is lost is performed again, with the same number. After MaxCrashes losses in a row the node fails. A worker that is
// stopped, or lacks the plan, hands the attempt back. This does not count as a loss, whether Temporal or the run then repeats the activity.
func TestLostWorkers(t *testing.T) {
	t.Parallel()
	type row struct {
		losses, most, calls int
		status              kahn.Status
	}
	crashed := []row{{0, 0, 1, kahn.Completed}, {3, 0, 4, kahn.Completed}, {4, 0, 4, kahn.Failed}, {1, 1, 2, kahn.Completed}, {2, 1, 2, kahn.Failed}, {9, -1, 10, kahn.Completed}}
	left := []row{{3, 0, 4, kahn.Completed}, {9, 0, 10, kahn.Completed}, {9, 1, 10, kahn.Completed}}
	for name, loss := range map[string]struct {
		err  error
		rows []row
		once bool
	}{
		"killed":                  {sdk.NewHeartbeatTimeoutError(), crashed, true},
		"stopped":                 {sdk.NewApplicationErrorWithOptions("stopped", lostWorker, sdk.ApplicationErrorOptions{NextRetryDelay: handOver}), left, false},
		"without the plan":        {sdk.NewApplicationErrorWithOptions("unknown", unknownPlan, sdk.ApplicationErrorOptions{}), left, false},
		"stopped, and not again":  {sdk.NewNonRetryableApplicationError("the worker was stopped", lostWorker, nil), left, false}, // the form in which former versions report a stopped worker
		"without the plan, again": {sdk.NewApplicationErrorWithOptions("unknown", unknownPlan, sdk.ApplicationErrorOptions{}), left, true},
	} {
		for _, row := range loss.rows {
			t.Run(fmt.Sprintf("%s %d of %d", name, row.losses, row.most), func(t *testing.T) {
				t.Parallel()
				g := new(kahn.Graph).Add(kahn.Node{ID: "a", MaxCrashes: row.most, Retry: kahn.Retry{MaxAttempts: 5}})
				step := func(_ context.Context, s *kahn.Step) (any, error) { return s.Attempt(), nil }
				x := &trial{workflow: Workflow{Plan: plan(t, g)}, options: Options{Step: step}}
				calls := 0
				x.during = func(env *testsuite.TestWorkflowEnvironment, _ int) {
					if loss.once {
						env.SetWorkerOptions(once())
					}
					h := newHost(x.options)
					h.add(x.workflow.Plan)
					h.Heartbeat, h.MaxBytes, h.stopAfter = time.Second, 1000, -1
					env.OnActivity(ActivityName, mock.Anything, mock.Anything).Return(func(ctx context.Context, in task) (json.RawMessage, error) {
						if calls++; calls <= row.losses {
							return nil, loss.err
						}
						return h.step(ctx, in)
					})
				}
				res, _ := x.run(t)
				a, _ := res.Node("a")
				require.Equal(t, row.status, a.Status, "%v", a.Err)
				require.Equal(t, row.calls, calls)
				require.Equal(t, 1, a.Attempts)
				if row.status == kahn.Completed {
					require.Equal(t, 1, a.Output)
					return
				}
				require.Equal(t, kahn.CauseCrashed, a.Cause.Kind)
				require.ErrorIs(t, a.Err, kahn.ErrCrashed)
			})
		}
	}
}
