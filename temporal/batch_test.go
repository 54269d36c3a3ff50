package temporal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
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
	"github.com/seed-c794f7ef/kahn/store"
)

// shares counts the attempts of a run by who performs them: the run's own workflow, or batches.
type shares struct {
	mu      sync.Mutex // guards the rest
	own     int        // attempts that the run's workflow performs
	batches []int      // the number of attempts in each batch
}

func (x *shares) listen(t testing.TB, env *testsuite.TestWorkflowEnvironment) {
	env.SetOnActivityStartedListener(func(info *activity.Info, _ context.Context, _ converter.EncodedValues) {
		x.mu.Lock()
		defer x.mu.Unlock()
		if info.WorkflowType.Name != BatchName && info.WorkflowType.Name != ItemsName {
			x.own++
		}
	})
	env.SetOnChildWorkflowStartedListener(func(_ *workflow.Info, _ workflow.Context, args converter.EncodedValues) {
		var in batch
		if err := args.Get(&in); err != nil {
			t.Error(err)
		}
		x.mu.Lock()
		defer x.mu.Unlock()
		x.batches = append(x.batches, len(in.Calls))
	})
}

// overItems returns a graph of a map over n numbers.
func overItems(n int, m kahn.Map, node kahn.Node) *kahn.Graph {
	items := make([]any, n)
	for i := range items {
		items[i] = float64(i)
	}
	m.Over = "items"
	node.ID, node.Map, node.Params = "M", &m, map[string]any{"items": items}
	return new(kahn.Graph).Add(node)
}

// TestRandomMaps compares runs whose maps are performed by child workflows with runs in one process. The maps are of steps and of graphs, with
// gates, retries, limits, tolerated failures, and maps in maps. Gates are answered one at a time, in an order that depends on the batches. A
// gate in a cleanup node may wait long for its turn, so cleanup nodes get long timeouts.
func TestRandomMaps(t *testing.T) {
	t.Parallel()
	n, from := seeds(t, 30, 600)
	var all shares
	for seed := from; seed != from+n; seed++ {
		rng := rand.New(rand.NewPCG(23, seed))
		m := kahn.Map{Limit: []int{0, 0, 5}[rng.IntN(3)], ToleratedPercent: float64(rng.IntN(101)), Compact: rng.IntN(2) == 0}
		node := kahn.Node{ContinueOnFail: rng.IntN(2) == 0, Retry: kahn.Retry{MaxAttempts: 1 + rng.IntN(3), InitialDelay: time.Duration(rng.IntN(100)) * time.Second}}
		if rng.IntN(2) == 0 {
			node.Sub = randomGraph(rng, 1)
		}
		g := overItems(rng.IntN(30), m, node).Add(kahn.Node{ID: "after", In: []kahn.Edge{{From: "M", On: kahn.OnAlways}}})
		s := Settings{MapChildren: 3 + rng.IntN(5), Limit: []int{0, 10}[rng.IntN(2)], Mode: kahn.Mode(rng.IntN(2)), CleanupTimeout: 1_000_000 * time.Hour}
		want := here(t, g, seed, s)
		got, x := there(t, g, seed, s, []int{0, 0, 20, 50}[rng.IntN(4)], &all)
		require.Positive(t, x.executions)
		slices.Sort(want)
		slices.Sort(got)
		require.Equal(t, want, got, "seed %d", seed)
	}
	require.Greater(t, uint64(len(all.batches)), 2*n)
}

// The length of a run's history depends on the number of batches of a large map, not on the number of items. The list of the map is stored as a
// blob.
func TestLargeMap(t *testing.T) {
	t.Parallel()
	n := 1000
	if os.Getenv("KAHN_LONG") != "" {
		n = 10_000
	}
	step := func(_ context.Context, s *kahn.Step) (any, error) { return kahn.Param[string](s, "item") }
	items := make([]string, n)
	for i := range items {
		items[i] = fmt.Sprintf("the item with the number %d of the list", i)
	}
	g := new(kahn.Graph).Add(kahn.Node{ID: "M", Map: &kahn.Map{Over: "items"}, Params: map[string]any{"items": items}})
	x := &trial{workflow: Workflow{Plan: plan(t, g)}, options: Options{Step: step, Blobs: store.Dir(t.TempDir())}}
	var by shares
	x.during = func(env *testsuite.TestWorkflowEnvironment, _ int) { by.listen(t, env) }
	res, err := x.run(t)
	require.NoError(t, err)
	list := res.Output().([]any)
	require.Len(t, list, n)
	for i, v := range list {
		require.Equal(t, items[i], v)
	}
	require.Less(t, by.own+len(by.batches), n/20)
	require.Equal(t, 1, x.executions, "a batch counts as one attempt")
}

// The setting MapChildren decides which maps are large. If too few attempts begin together, the run performs them without a child workflow.
func TestBatches(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		items, above int
		m            kahn.Map
		own          int
		batches      []int
	}{
		"default":      {items: 200, own: 200},
		"above it":     {items: 201, batches: []int{100, 100}, own: 1},
		"small":        {items: 10, above: 10, own: 10},
		"large":        {items: 10, above: 4, batches: []int{4, 4}, own: 2},
		"one batch":    {items: 10, above: 9, batches: []int{9}, own: 1},
		"none":         {items: 300, above: -1, own: 300},
		"narrow":       {items: 10, above: 4, m: kahn.Map{Limit: 3}, own: 10},
		"under limits": {items: 12, above: 6, m: kahn.Map{Limit: 6}, batches: []int{6, 6}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var by shares
			x := &trial{workflow: Workflow{Plan: plan(t, overItems(row.items, row.m, kahn.Node{})), Settings: Settings{MapChildren: row.above}}}
			x.options.Step = func(context.Context, *kahn.Step) (any, error) { return nil, nil }
			x.during = func(env *testsuite.TestWorkflowEnvironment, _ int) { by.listen(t, env) }
			_, err := x.run(t)
			require.NoError(t, err)
			require.Equal(t, row.own, by.own)
			require.Equal(t, row.batches, by.batches)
		})
	}
}

// A run gets the outcomes of ended attempts before their batch has ended. In the first case, item 0 waits for the last item, which begins only
// when other items have ended. In the second case, a failed item stops all items that are running.
func TestReports(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		m    kahn.Map
		step func(ctx context.Context, index int, last chan struct{}) (any, error)
		want int // how many items complete
	}{
		"a slot": {kahn.Map{Limit: 4}, func(ctx context.Context, index int, last chan struct{}) (any, error) {
			switch index {
			case 0:
				select {
				case <-last:
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			case 11:
				close(last)
			}
			return index, nil
		}, 12},
		"a failure": {kahn.Map{FailFast: true}, func(ctx context.Context, index int, _ chan struct{}) (any, error) {
			if index == 7 {
				return nil, errStep
			}
			<-ctx.Done()
			return nil, ctx.Err()
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			last := make(chan struct{})
			step := func(ctx context.Context, s *kahn.Step) (any, error) { return row.step(ctx, s.Index(), last) }
			x := &trial{workflow: Workflow{Plan: plan(t, overItems(12, row.m, kahn.Node{})), Settings: Settings{MapChildren: 4}}, options: Options{Step: step}}
			res, err := x.run(t)
			require.NotNil(t, res, "%v", err)
			require.Equal(t, row.want == 12, err == nil, "%v", err)
			m, _ := res.Node("M")
			require.Equal(t, row.want, m.Sub.Count(kahn.Completed))
		})
	}
}

// Stops of all kinds reach the steps of batches. The timeout of one item does not affect the other items.
func TestStopsOfBatches(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		node   kahn.Node
		ask    func(t *testing.T, env *testsuite.TestWorkflowEnvironment)
		cause  kahn.CauseKind // the cause of item 3
		alone  bool           // only item 3 waits until it is stopped
		status kahn.RunStatus
	}{
		"workflow": {ask: func(_ *testing.T, env *testsuite.TestWorkflowEnvironment) { env.CancelWorkflow() }, cause: kahn.CauseCancelRun, status: kahn.RunCancelled},
		"cancel":   {ask: func(t *testing.T, env *testsuite.TestWorkflowEnvironment) { update(t, env, StopUpdate, stopRequest{}) }, cause: kahn.CauseCancelRun, status: kahn.RunCancelled},
		"abort": {ask: func(t *testing.T, env *testsuite.TestWorkflowEnvironment) {
			update(t, env, StopUpdate, stopRequest{Abort: true})
		}, cause: kahn.CauseAbortAll, status: kahn.RunFailed},
		"node": {ask: func(t *testing.T, env *testsuite.TestWorkflowEnvironment) {
			update(t, env, StopUpdate, stopRequest{Node: "M"})
		}, cause: kahn.CauseCancelRun, status: kahn.RunCancelled},
		"overall": {node: kahn.Node{OverallTimeout: 400 * time.Millisecond}, cause: kahn.CauseRunTimeout, status: kahn.RunFailed, alone: true},
		"timeout": {node: kahn.Node{Timeout: 300 * time.Millisecond}, cause: kahn.CauseTimeout, status: kahn.RunFailed, alone: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var called atomic.Int32
			step := func(ctx context.Context, s *kahn.Step) (any, error) {
				called.Add(1)
				if row.alone && s.Index() != 3 {
					return nil, nil
				}
				select {
				case <-ctx.Done():
					return nil, ctx.Err()
				case <-time.After(time.Minute):
					return nil, errors.New("nobody has stopped the step")
				}
			}
			x := &trial{workflow: Workflow{Plan: plan(t, overItems(8, kahn.Map{}, row.node)), Settings: Settings{MapChildren: 4}}, options: Options{Step: step}}
			x.during = func(env *testsuite.TestWorkflowEnvironment, _ int) {
				env.SetOnActivityStartedListener(func(_ *activity.Info, _ context.Context, args converter.EncodedValues) {
					if row.ask != nil && callOf(t, args).Path == "M[7]" {
						row.ask(t, env)
					}
				})
			}
			res, err := x.run(t)
			require.NotNil(t, res, "%v", err)
			require.Equal(t, row.status, res.Status, "%v", err)
			m, _ := res.Node("M")
			third, _ := m.Sub.Node("M[3]")
			require.Equal(t, row.cause, third.Cause.Kind, "%v", third.Err)
			require.False(t, third.Abandoned, "its step was asked to stop")
			if !row.alone {
				require.Zero(t, m.Sub.Count(kahn.Completed))
			} else {
				require.Equal(t, 7, m.Sub.Count(kahn.Completed))
			}
		})
	}
}

// Attempts whose worker is lost, or whose child workflow is terminated, are performed again with the same number, up to MaxCrashes times in a row.
func TestLostBatches(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		batch, step error
		losses      int32
		failed      int
	}{
		"workers":       {step: sdk.NewHeartbeatTimeoutError(), losses: 8},
		"children":      {batch: sdk.NewNonRetryableApplicationError("terminated", "", nil), losses: 2},
		"always":        {batch: sdk.NewNonRetryableApplicationError("terminated", "", nil), losses: 1000, failed: 8},
		"not so often":  {batch: sdk.NewNonRetryableApplicationError("terminated", "", nil), losses: 3},
		"lost for good": {step: sdk.NewHeartbeatTimeoutError(), losses: 1000, failed: 8},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := &trial{workflow: Workflow{Plan: plan(t, overItems(8, kahn.Map{}, kahn.Node{})), Settings: Settings{MapChildren: 4}}}
			x.options.Step = func(_ context.Context, s *kahn.Step) (any, error) { return s.Attempt(), nil }
			var losses atomic.Int32
			x.during = func(env *testsuite.TestWorkflowEnvironment, _ int) {
				h := newHost(x.options)
				h.add(x.workflow.Plan)
				h.Heartbeat, h.MaxBytes, h.LostAfter = time.Second, 1000, time.Hour
				if row.batch != nil {
					env.OnWorkflow(ItemsName, mock.Anything, mock.Anything).Return(func(ctx workflow.Context, in batch) (report, error) {
						if losses.Add(1) <= row.losses {
							return report{}, row.batch
						}
						return h.batch(ctx, in)
					})
					return
				}
				env.OnActivity(ActivityName, mock.Anything, mock.Anything).Return(func(ctx context.Context, in task) (json.RawMessage, error) {
					if losses.Add(1) <= row.losses {
						return nil, row.step
					}
					return h.step(ctx, in)
				})
			}
			res, err := x.run(t)
			require.NotNil(t, res, "%v", err)
			m, _ := res.Node("M")
			require.Equal(t, row.failed, m.Sub.Count(kahn.Failed))
			for n := range m.Sub.Nodes() {
				require.Equal(t, 1, n.Attempts)
			}
			if row.failed == 0 {
				require.NoError(t, err)
				require.Equal(t, slices.Repeat([]any{1}, 8), res.Output())
			}
		})
	}
}

// deaf is an interceptor that drops the signals between workflows.
type deaf struct {
	interceptor.WorkflowOutboundInterceptorBase
	told chan struct{} // closed at the first signal
}

func (x *deaf) SignalExternalWorkflow(ctx workflow.Context, _, _, _ string, _ any) workflow.Future {
	close(x.told)
	f, done := workflow.NewFuture(ctx)
	done.SetError(errors.New("the run has ended"))
	return f
}

// If a report does not reach the run, its outcomes are in the child's last report.
func TestReportsFail(t *testing.T) {
	t.Parallel()
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(discard)
	env := suite.NewTestWorkflowEnvironment()
	told := make(chan struct{})
	p := plan(t, kahntest.Graph(t, "soon later"))
	o := Options{Plans: []*kahn.Plan{p}, LostAfter: time.Hour, Step: func(_ context.Context, s *kahn.Step) (any, error) {
		if s.ID() == "later" {
			<-told
		}
		return s.ID(), nil
	}}
	env.SetTestTimeout(time.Minute)
	env.SetWorkerOptions(worker.Options{Interceptors: before(func(next interceptor.WorkflowOutboundInterceptor) interceptor.WorkflowOutboundInterceptor {
		return &deaf{interceptor.WorkflowOutboundInterceptorBase{Next: next}, told}
	})})
	require.NoError(t, o.Register(env))
	in := batch{Plan: idOf(p)}
	for _, id := range []string{"soon", "later"} {
		in.Calls = append(in.Calls, call{Path: id, Call: fmt.Appendf(nil, `{"id": %q, "path": %q}`, id, id)})
	}
	env.ExecuteWorkflow(ItemsName, in)
	var last report
	require.NoError(t, env.GetWorkflowResult(&last))
	replies := map[int]string{}
	for _, p := range last.Outcomes {
		replies[p.Place] = string(p.Reply)
	}
	require.Equal(t, map[int]string{0: `{"value":"soon"}`, 1: `{"value":"later"}`}, replies)
}

// Repeated reports, and reports with unknown attempts, change nothing.
func TestReportsTwice(t *testing.T) {
	t.Parallel()
	x := &trial{workflow: Workflow{Plan: plan(t, overItems(8, kahn.Map{}, kahn.Node{})), Settings: Settings{MapChildren: 7}}}
	x.options.Step = func(_ context.Context, s *kahn.Step) (any, error) { return float64(s.Index()), nil }
	x.during = func(env *testsuite.TestWorkflowEnvironment, _ int) {
		env.OnWorkflow(ItemsName, mock.Anything, mock.Anything).Return(func(ctx workflow.Context, in batch) (report, error) {
			run := workflow.GetInfo(ctx).ParentWorkflowExecution
			wrong := placed{99, outcome{Reply: []byte(`{"value": 7}`)}}
			r := report{in.Number, []placed{wrong}}
			for place := range in.Calls {
				r.Outcomes = append(r.Outcomes, placed{place, outcome{Reply: fmt.Appendf(nil, `{"value": %d}`, place)}})
			}
			for range 2 {
				if err := workflow.SignalExternalWorkflow(ctx, run.ID, run.RunID, endedSignal, r).Get(ctx, nil); err != nil {
					return report{}, err
				}
			}
			r.Outcomes = []placed{{0, outcome{Reply: []byte(`{"value": 8}`)}}}
			return r, nil
		})
	}
	res, err := x.run(t)
	require.NoError(t, err)
	kahntest.RequireStatuses(t, res, "M:ok")
	require.Equal(t, []any{0., 1., 2., 3., 4., 5., 6., 7.}, res.Output())
}
