package temporal

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/interceptor"
	sdk "go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/kahntest"
)

// called records the types and options of the activities that workflows start, by the paths of nodes.
type called struct {
	interceptor.WorkflowOutboundInterceptorBase
	mu      *sync.Mutex
	types   map[string]string
	options map[string]workflow.ActivityOptions
}

func newCalled() called {
	return called{mu: new(sync.Mutex), types: map[string]string{}, options: map[string]workflow.ActivityOptions{}}
}

func (c called) follow(next interceptor.WorkflowOutboundInterceptor) interceptor.WorkflowOutboundInterceptor {
	c.Next = next
	return &c
}

func (c *called) ExecuteActivity(ctx workflow.Context, name string, args ...any) workflow.Future {
	c.note(name, args)
	c.mu.Lock()
	c.options[args[0].(task).Path] = workflow.GetActivityOptions(ctx)
	c.mu.Unlock()
	ctx = workflow.WithTaskQueue(ctx, workflow.GetInfo(ctx).TaskQueueName) // the environment has only one queue
	return c.Next.ExecuteActivity(ctx, name, args...)
}

func (c *called) ExecuteLocalActivity(ctx workflow.Context, name string, args ...any) workflow.Future {
	c.note("local "+name, args)
	return c.Next.ExecuteLocalActivity(ctx, name, args...)
}

func (c *called) note(name string, args []any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.types[args[0].(task).Path] += name
}

// Activities and workflows have the names of kinds and graphs, or the names that the host's functions return. Runs that former versions started
// keep the former names. Each kind has its own options, even in the child workflows of large maps, and a compensation has the options of its own
// kind.
func TestNames(t *testing.T) {
	t.Parallel()
	graph := func() *kahn.Graph {
		g := &kahn.Graph{Name: "orders"}
		return g.Add(kahn.Node{ID: "plain"}, kahn.Node{ID: "charge", Kind: "charge", Key: strings.Repeat("k", 70), CompensateBy: &kahn.CompensateBy{Kind: "refund"}},
			kahn.Node{ID: "quick", Kind: "quick"}, kahn.Node{ID: "own", Kind: "own", Do: nothing},
			kahn.Node{ID: "each", Kind: "charge", Params: map[string]any{"items": []any{1, 2, 3, 4, 5}}, Map: &kahn.Map{Over: "items"}, Key: "acme"},
			kahn.Node{ID: "bad", Kind: "bad", After: []string{"plain", "charge", "quick", "own", "each"}})
	}
	kinds := map[string]Kind{
		"charge": {TaskQueue: "bank", LostAfter: 7 * time.Hour, StartToClose: time.Minute, ScheduleToStart: time.Hour, Priority: sdk.Priority{PriorityKey: 2, FairnessWeight: 3}, FairByKey: true},
		"quick":  {Local: true},
	}
	for name, row := range map[string]struct {
		former           bool
		byHost           func(string) string
		workflow         string
		plain, charge    string
		quick, own, undo string
	}{
		"by default":       {false, nil, "orders", "kahn.Step", "charge", "local quick", "own", "refund"},
		"by the host":      {false, strings.ToUpper, "ORDERS", "kahn.Step", "CHARGE", "local QUICK", "OWN", "REFUND"},
		"former version's": {true, nil, "kahn.Run", "kahn.Step", "kahn.Step", "kahn.Step", "kahn.Step", "kahn.Step"},
	} {
		seen := newCalled()
		o := Options{Kinds: kinds, WorkflowType: row.byHost, ActivityType: row.byHost, Step: func(ctx context.Context, s *kahn.Step) (any, error) {
			if s.Kind() == "bad" {
				return nil, kahn.Permanent(errStep)
			}
			return nil, nil
		}}
		x := &trial{former: row.former, workflow: Workflow{Plan: plan(t, graph()), Settings: Settings{MapChildren: 4}}, options: o}
		if row.byHost != nil {
			x.workflow.Type = row.workflow
		}
		x.during = func(env *testsuite.TestWorkflowEnvironment, _ int) {
			env.SetWorkerOptions(worker.Options{DeadlockDetectionTimeout: time.Minute, Interceptors: before(seen.follow)})
		}
		res, err := x.run(t)
		require.ErrorContains(t, err, errStep.Error(), name)
		kahntest.RequireStatuses(t, res, "plain:ok charge:ok quick:ok own:ok each:ok bad:F")
		require.Equal(t, map[string]string{
			"plain": row.plain, "charge": row.charge + row.undo, "quick": row.quick, "own": row.own, "bad": map[string]string{"CHARGE": "BAD", "charge": "bad"}[row.charge] + map[bool]string{true: "kahn.Step"}[row.former],
			"each[0]": row.charge, "each[1]": row.charge, "each[2]": row.charge, "each[3]": row.charge, "each[4]": row.charge,
		}, seen.types, name)
		if row.former {
			continue // the former version's child workflows do not know the kinds of calls
		}
		got := seen.options["each[2]"]
		require.Equal(t, []any{"bank", 7 * time.Hour, time.Minute, time.Hour}, []any{got.TaskQueue, got.HeartbeatTimeout, got.StartToCloseTimeout, got.ScheduleToStartTimeout}, name)
		require.Equal(t, sdk.Priority{PriorityKey: 2, FairnessWeight: 3, FairnessKey: "acme"}, got.Priority, name)
	}
}

// The concurrency key of a node becomes the fairness key of its tasks, cut to the length that Temporal allows.
func TestFairness(t *testing.T) {
	t.Parallel()
	seen := newCalled()
	g := new(kahn.Graph).Add(kahn.Node{ID: "static", Kind: "fair", Key: strings.Repeat("k", 70)}, kahn.Node{ID: "from", Kind: "fair", KeyFrom: "tenant", Params: map[string]any{"tenant": "acme"}},
		kahn.Node{ID: "unkeyed", Kind: "fair"}, kahn.Node{ID: "other", Kind: "other", Key: "x"})
	x := &trial{workflow: Workflow{Plan: plan(t, g)}, options: Options{Step: nothing, Kinds: map[string]Kind{"fair": {FairByKey: true, Priority: sdk.Priority{PriorityKey: 1}}}}}
	x.during = func(env *testsuite.TestWorkflowEnvironment, _ int) {
		env.SetWorkerOptions(worker.Options{DeadlockDetectionTimeout: time.Minute, Interceptors: before(seen.follow)})
	}
	_, err := x.run(t)
	require.NoError(t, err)
	for path, want := range map[string]sdk.Priority{
		"static": {PriorityKey: 1, FairnessKey: strings.Repeat("k", 64)}, "from": {PriorityKey: 1, FairnessKey: "acme"}, "unkeyed": {PriorityKey: 1}, "other": {},
	} {
		require.Equal(t, want, seen.options[path].Priority, path)
	}
}

// An attempt that no worker takes in time has had no effect, so it is not undone. The node's Retry decides whether it is repeated.
func TestUntaken(t *testing.T) {
	t.Parallel()
	var l ledger
	g := new(kahn.Graph).Add(kahn.Node{ID: "a", Do: l.does, Compensate: l.undoes, MaxCrashes: 7, Retry: kahn.Retry{MaxAttempts: 2}})
	x := &trial{workflow: Workflow{Plan: plan(t, g)}}
	x.during = func(env *testsuite.TestWorkflowEnvironment, _ int) {
		env.SetWorkerOptions(once())
		env.OnActivity(ActivityName, mock.Anything, mock.Anything).Return(nil, sdk.NewTimeoutError(enums.TIMEOUT_TYPE_SCHEDULE_TO_START, nil))
	}
	res, err := x.run(t)
	require.ErrorContains(t, err, "no worker has taken the attempt in time")
	a, _ := res.Node("a")
	require.Equal(t, 2, a.Attempts)
	require.Equal(t, kahn.CompensationNone, a.Compensation)
	require.Empty(t, l.String())
}

// Register refuses bad Kinds.
func TestBadKinds(t *testing.T) {
	t.Parallel()
	for text, k := range map[string]Kind{
		"must not be negative": {StartToClose: -1}, `kind "k": bad option: StartToClose 5ns: is its unit missing?`: {StartToClose: 5}, "ScheduleToStart 5ns: is its unit missing?": {ScheduleToStart: 5},
		"must be longer than Heartbeat": {LostAfter: time.Second},
	} {
		err := Options{Kinds: map[string]Kind{"k": k}}.Register(nil)
		require.ErrorIs(t, err, kahn.ErrBadOption)
		require.ErrorContains(t, err, text)
	}
}
