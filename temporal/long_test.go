package temporal

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
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

// A long run continues as new executions. Attempt numbers, backoffs, waiting nodes and the run's id carry over.
func TestContinueAsNew(t *testing.T) {
	t.Parallel()
	g := new(kahn.Graph)
	keys, runs := map[string]bool{}, map[string]bool{}
	step := func(_ context.Context, s *kahn.Step) (any, error) {
		keys[s.IdempotencyKey()], runs[s.RunID()] = true, true
		if s.Attempt() < 3 {
			return nil, errStep
		}
		return s.Path(), nil
	}
	for i := range 10 {
		n := kahn.Node{ID: fmt.Sprint("n", i), Retry: kahn.Retry{MaxAttempts: 3, InitialDelay: time.Hour, MaxDelay: -1, Jitter: kahn.JitterNone}}
		if i > 0 {
			n.After = []string{fmt.Sprint("n", i-1)}
		}
		g.Add(n)
	}
	x := &trial{workflow: Workflow{Plan: plan(t, g)}, options: Options{Step: step, ContinueAfter: 4}}
	res, err := x.run(t)
	require.NoError(t, err)
	require.Equal(t, "n9", res.Output())
	require.Equal(t, 8, x.executions, "30 attempts")
	require.Len(t, keys, 10, "attempts of a node share one")
	require.Len(t, runs, 1)
	for n := range res.Nodes() {
		require.Equal(t, 3, n.Attempts, n.ID)
		require.Equal(t, 3*time.Hour, n.Duration.Round(time.Minute), n.ID)
	}
}

// Answers and stops are not lost if they arrive while an execution waits for its last attempts before it continues as new.
func TestAskedWhileLeaving(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		ask        func(env *testsuite.TestWorkflowEnvironment)
		want       string
		executions int
	}{
		"signal": {func(env *testsuite.TestWorkflowEnvironment) {
			update(t, env, SignalUpdate, signalRequest{Gate: "ask", Value: []byte(`"yes"`)})
		}, "slow:ok ask:ok next:ok", 2},
		"early": {func(env *testsuite.TestWorkflowEnvironment) {
			update(t, env, SignalUpdate, signalRequest{Gate: "later", Value: []byte(`"yes"`)})
		}, "slow:ok later:ok next:ok", 2},
		"cancel": {func(env *testsuite.TestWorkflowEnvironment) { env.CancelWorkflow() }, "slow:C ask:C next:C", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			release := make(chan struct{})
			step := func(_ context.Context, s *kahn.Step) (any, error) {
				if s.ID() == "slow" {
					<-release
				}
				return nil, nil
			}
			text := "slow ask>next ask{gate}"
			if name == "early" {
				text = "slow>later later>next later{gate}"
			}
			x := &trial{workflow: Workflow{Plan: plan(t, kahntest.Graph(t, text))}, options: Options{Step: step, ContinueAfter: 1}}
			x.during = func(env *testsuite.TestWorkflowEnvironment, execution int) {
				env.SetOnActivityStartedListener(func(_ *activity.Info, _ context.Context, args converter.EncodedValues) {
					if callOf(t, args).ID == "slow" {
						row.ask(env)
						env.RegisterDelayedCallback(func() { close(release) }, 50*time.Millisecond)
					}
				})
			}
			res, err := x.run(t)
			require.NotNil(t, res, "%v", err)
			kahntest.RequireStatuses(t, res, row.want)
			require.Equal(t, row.executions, x.executions)
		})
	}
}

// If the calls of a wide graph do not fit into one workflow task, the workflow gives them to Temporal in several tasks, each with at most
// maxTaskBytes.
func TestWideCalls(t *testing.T) {
	t.Parallel()
	const width, size = 40, 200_000
	g := new(kahn.Graph).Add(kahn.Node{ID: "root"})
	for i := range width {
		g.Add(kahn.Node{ID: fmt.Sprint("n", i), In: []kahn.Edge{{From: "root", Param: "text"}}})
	}
	step := func(_ context.Context, s *kahn.Step) (any, error) {
		if s.ID() == "root" {
			return strings.Repeat("x", size), nil
		}
		text, err := kahn.Param[string](s, "text")
		return len(text), err
	}
	x := &trial{workflow: Workflow{Plan: plan(t, g)}, options: Options{Step: step}}
	timers := 0
	x.during = func(env *testsuite.TestWorkflowEnvironment, _ int) {
		env.SetOnTimerFiredListener(func(string) { timers++ })
	}
	res, err := x.run(t)
	require.NoError(t, err)
	require.Equal(t, width+1, res.Count(kahn.Completed))
	// Each call contains the text once, although it is a parameter and an upstream value: 8 MB in all.
	require.GreaterOrEqual(t, timers, width*size/maxTaskBytes)
	require.Less(t, timers, 2*width*size/maxTaskBytes)
}

// taskBytes sums the calls that a workflow gives to Temporal between two timers.
type taskBytes struct {
	interceptor.WorkflowOutboundInterceptorBase
	now, most int
	longest   int    // the longest call
	paused    func() // called when the workflow sets a timer
}

func (x *taskBytes) follow(next interceptor.WorkflowOutboundInterceptor) interceptor.WorkflowOutboundInterceptor {
	x.Next = next
	return x
}

func (x *taskBytes) ExecuteActivity(ctx workflow.Context, name string, args ...any) workflow.Future {
	x.now += len(args[0].(task).Call)
	x.most, x.longest = max(x.most, x.now), max(x.longest, len(args[0].(task).Call))
	return (&unrepeated{x.WorkflowOutboundInterceptorBase}).ExecuteActivity(ctx, name, args...)
}

func (x *taskBytes) NewTimer(ctx workflow.Context, d time.Duration) workflow.Future {
	x.now = 0
	if x.paused != nil {
		x.paused()
	}
	return x.WorkflowOutboundInterceptorBase.NewTimer(ctx, d)
}

// One workflow task has calls of at most maxTaskBytes, even if all calls are repeated because their worker was lost.
func TestBytesOfTasks(t *testing.T) {
	t.Parallel()
	const width, size = 6, 900_000
	for name, row := range map[string]struct {
		losses int
		cancel bool
	}{"none lost": {}, "all lost": {losses: 1}, "cancelled before they begin again": {losses: 1, cancel: true}} {
		g := &kahn.Graph{Inputs: []kahn.Input{{Name: "text"}}} // each call has the root inputs
		for i := range width {
			g.Add(kahn.Node{ID: fmt.Sprint("n", i)})
		}
		x := &trial{workflow: Workflow{Plan: plan(t, g)}, inputs: map[string]any{"text": strings.Repeat("x", size)}, options: Options{Step: func(context.Context, *kahn.Step) (any, error) { return nil, nil }}}
		var sums taskBytes
		var calls atomic.Int32
		allLost := make(chan struct{})
		x.during = func(env *testsuite.TestWorkflowEnvironment, _ int) {
			if row.cancel {
				sums.paused = func() {
					if calls.Load() >= width { // some of the lost calls wait for another workflow task
						env.CancelWorkflow()
						sums.paused = nil
					}
				}
			}
			env.SetWorkerOptions(worker.Options{DeadlockDetectionTimeout: time.Minute, Interceptors: before(sums.follow)})
			env.OnActivity(ActivityName, mock.Anything, mock.Anything).Return(func(context.Context, task) (json.RawMessage, error) {
				if n := calls.Add(1); n <= int32(row.losses*width) {
					if n == width {
						close(allLost)
					}
					<-allLost // the worker dies once all calls are running
					return nil, sdk.NewHeartbeatTimeoutError()
				}
				return json.RawMessage(`{}`), nil
			})
		}
		res, err := x.run(t)
		require.Greater(t, sums.most, size, name)
		require.LessOrEqual(t, sums.most, maxTaskBytes, name)
		if row.cancel {
			require.ErrorIs(t, err, kahn.ErrCancelled)
			require.EqualValues(t, width, calls.Load(), "none begins again")
			require.Equal(t, width, res.Count(kahn.Completed)+res.Count(kahn.Cancelled))
			continue
		}
		require.NoError(t, err, name)
		require.Equal(t, width, res.Count(kahn.Completed), name)
		require.EqualValues(t, width*(1+row.losses), calls.Load(), name)
	}
}

// The longest snapshot fits into a payload of 2 MiB together with the other fields of an input or output.
func TestRoomForSnapshots(t *testing.T) {
	t.Parallel()
	snapshot := packed{Gzip: make([]byte, packedBytes)}
	next := input{Plan: planID{strings.Repeat("n", 1000), strings.Repeat("f", 64)}, RunID: strings.Repeat("r", 1000), Snapshot: &snapshot, Settings: Settings{DefaultRetry: retried}}
	for _, v := range []any{next, output{Snapshot: snapshot}} {
		payloads, err := converter.GetDefaultDataConverter().ToPayloads(v)
		require.NoError(t, err)
		require.Less(t, payloads.Size(), 2<<20, "%T", v)
	}
}

// A value that Temporal would refuse fails the node, or the run, with the reason.
func TestTooLarge(t *testing.T) {
	t.Parallel()
	long := map[string]any{"text": strings.Repeat("x", 2<<20)}
	rng := rand.New(rand.NewPCG(1, 2))
	step := func(context.Context, *kahn.Step) (any, error) {
		noise := make([]byte, 700_000) // cannot be compressed
		for i := range noise {
			noise[i] = byte(rng.Uint32())
		}
		return noise, nil
	}
	g := (&kahn.Graph{Inputs: []kahn.Input{{Name: "text"}}}).Add(kahn.Node{ID: "a"})
	x := &trial{workflow: Workflow{Plan: plan(t, g)}, inputs: long, options: Options{Step: step}}
	_, err := x.run(t)
	require.ErrorContains(t, err, `node "a": the call is 2`)

	x = &trial{workflow: Workflow{Plan: plan(t, kahntest.Graph(t, "a b c")), Settings: Settings{Limit: 1}}, options: Options{Step: step}}
	res, err := x.run(t)
	require.ErrorContains(t, err, `do not fit into the results of the run`)
	kahntest.RequireStatuses(t, res, "a:ok b:ok c:F") // each output has 700 kB; the outputs of a and b fit, and the output of c does not
	a, _ := res.Node("a")
	require.Len(t, a.Output, 700_000)
}
