package temporal

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sdk "go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/kahntest"
)

// parcel is an argument, and the result, of the workflow "ship".
type parcel struct {
	Order string
	Label string
}

// shipping is a graph with a step that a workflow performs.
func shipping(change func(*kahn.Node)) *kahn.Graph {
	ship := kahn.Node{ID: "ship", Kind: "ship", In: []kahn.Edge{{From: "take", Param: "order"}}}
	if change != nil {
		change(&ship)
	}
	return (&kahn.Graph{Name: "orders"}).Add(kahn.Node{ID: "take"}, ship, kahn.Node{ID: "tell", In: []kahn.Edge{{From: "ship", Param: "parcel"}}})
}

// byShip is the Kind.Workflow of the tests.
func byShip(s *kahn.Step) (StepWorkflow, error) {
	order, err := kahn.Param[string](s, "order")
	return StepWorkflow{Type: "ship", Args: []any{parcel{Order: order}}, Result: new(parcel)}, err
}

// ships makes each environment of a trial have the workflow "ship".
func (x *trial) ships(f any) {
	x.during = func(env *testsuite.TestWorkflowEnvironment, _ int) {
		env.RegisterWorkflowWithOptions(f, workflow.RegisterOptions{Name: "ship"})
	}
}

// shippingTypes are the types of values of the trials.
func shippingTypes() kahn.Types { return kahn.Types{"parcel": parcel{}} }

func takes(_ context.Context, s *kahn.Step) (any, error) {
	if s.ID() == "tell" {
		p, err := kahn.Param[parcel](s, "parcel")
		return p.Label, err
	}
	return "17", nil
}

// A workflow of the host performs a step. Each attempt is a workflow of its own with an id that names node and attempt, and its result, of a type of
// the host, is the output of the node.
func TestStepWorkflow(t *testing.T) {
	t.Parallel()
	var ids []string
	x := &trial{workflow: Workflow{ID: "order-17", Plan: plan(t, shipping(func(n *kahn.Node) { n.Retry = kahn.Retry{MaxAttempts: 3, InitialDelay: time.Minute} }))},
		options: Options{Types: shippingTypes(), Step: takes, Kinds: map[string]Kind{"ship": {TaskQueue: "ships", Workflow: byShip}}}}
	x.ships(func(ctx workflow.Context, p parcel) (parcel, error) {
		info := workflow.GetInfo(ctx)
		ids = append(ids, info.WorkflowExecution.ID+" at "+info.TaskQueueName)
		if strings.HasSuffix(info.WorkflowExecution.ID, "/2") {
			p.Label = "label of " + p.Order
			return p, workflow.Sleep(ctx, time.Hour)
		}
		return p, errors.New("no truck")
	})
	res, err := x.run(t)
	require.NoError(t, err)
	require.Equal(t, "label of 17", res.Output())
	ship, _ := res.Node("ship")
	require.Equal(t, parcel{"17", "label of 17"}, ship.Output)
	require.Equal(t, 2, ship.Attempts)
	require.GreaterOrEqual(t, ship.Duration, time.Hour)
	require.Equal(t, []string{"order-17/ship/1 at ships", "order-17/ship/2 at ships"}, ids)
}

// The result of a child without StepWorkflow.Result is read as plain JSON. The function may choose the id, what it logs is dropped, and a plan whose steps are all
// performed by workflows needs no step function.
func TestStepWorkflowPlain(t *testing.T) {
	t.Parallel()
	for _, want := range []any{nil, true, "text", 7.0, []any{1.0, "x"}, map[string]any{"a": 1.0}} {
		x := &trial{workflow: Workflow{ID: "order-17", Plan: plan(t, new(kahn.Graph).Add(kahn.Node{ID: "a", Kind: "ship"}))}, options: Options{Kinds: map[string]Kind{"ship": {
			Workflow: func(s *kahn.Step) (StepWorkflow, error) {
				s.Log(slog.LevelInfo, "dropped, since it would be logged again by each replay")
				return StepWorkflow{Type: "ship", ID: "own-" + s.ID()}, nil
			},
		}}}}
		var id string
		x.ships(func(ctx workflow.Context) (any, error) {
			id = workflow.GetInfo(ctx).WorkflowExecution.ID
			return want, nil
		})
		res, err := x.run(t)
		require.NoError(t, err)
		require.Equal(t, want, res.Output())
		require.Equal(t, "own-a", id)
		value, err := x.envs[0].QueryWorkflow(EventsQuery, eventsRequest{Limit: 100})
		require.NoError(t, err)
		var answer eventsAnswer
		require.NoError(t, value.Get(&answer))
		for _, e := range answer.Page.Events {
			require.NotContains(t, string(e.Data), "dropped")
		}
	}
}

// The failure of a child fails the attempt. The node's Retry decides, unless the child's error is not retryable.
func TestStepWorkflowFails(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		err      error
		attempts int
	}{
		"an error":                   {errors.New("no truck"), 3},
		"an application error":       {sdk.NewApplicationError("no truck", "Truck"), 3},
		"a non-retryable error":      {sdk.NewNonRetryableApplicationError("no truck", "Truck", nil), 1},
		"a cancellation of its own":  {sdk.NewCanceledError(), 3},
		"a continued run that fails": {fmt.Errorf("wrapped: %w", errors.New("no truck")), 3},
	} {
		var got []error
		x := &trial{workflow: Workflow{ID: "order-17", Plan: plan(t, shipping(func(n *kahn.Node) {
			n.Retry = kahn.Retry{MaxAttempts: 3, InitialDelay: time.Minute}
		}))}, options: Options{Types: shippingTypes(), Step: takes, Kinds: map[string]Kind{"ship": {Workflow: func(s *kahn.Step) (StepWorkflow, error) {
			if s.LastErr() != nil {
				got = append(got, s.LastErr())
			}
			return byShip(s)
		}}}}}
		x.ships(func(workflow.Context, parcel) (parcel, error) { return parcel{}, row.err })
		res, err := x.run(t)
		require.Error(t, err, name)
		ship, _ := res.Node("ship")
		require.Equal(t, kahn.Failed, ship.Status, name)
		require.Equal(t, row.attempts, ship.Attempts, name)
		require.ErrorContains(t, ship.Err, `workflow "ship"`, name)
		if row.attempts > 1 {
			var application *sdk.ApplicationError
			require.Equal(t, !sdk.IsCanceledError(row.err), errors.As(got[0], &application), "the child's failure is the cause: %s", name)
		}
		tell, _ := res.Node("tell")
		require.NotEqual(t, kahn.Completed, tell.Status, name)
	}
}

// A timeout or a stop of the node cancels the child. The run waits for the child as for an activity: a success counts, and after CancelGrace the run
// no longer waits.
func TestStepWorkflowStops(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		cleanup  time.Duration // the time that the child needs after it was cancelled
		succeeds bool
		timeout  bool
		want     kahn.Status
		abandons bool
	}{
		"a timeout":                        {cleanup: time.Second, timeout: true, want: kahn.Failed},
		"a cancelled run":                  {cleanup: time.Second, want: kahn.Cancelled},
		"a success after the cancellation": {cleanup: time.Second, succeeds: true, want: kahn.Completed},
		"a slow child":                     {cleanup: time.Hour, timeout: true, want: kahn.Failed, abandons: true},
	} {
		var began, ended time.Time
		x := &trial{workflow: Workflow{ID: "order-17", Plan: plan(t, shipping(func(n *kahn.Node) {
			if row.timeout {
				n.Timeout = time.Minute
			}
		}))}, options: Options{Types: shippingTypes(), Step: takes, Kinds: map[string]Kind{"ship": {Workflow: byShip}}}}
		x.during = func(env *testsuite.TestWorkflowEnvironment, _ int) {
			env.RegisterWorkflowWithOptions(func(ctx workflow.Context, p parcel) (parcel, error) {
				began = workflow.Now(ctx)
				err := workflow.Sleep(ctx, 24*time.Hour)
				free, _ := workflow.NewDisconnectedContext(ctx)
				if err := workflow.Sleep(free, row.cleanup); err != nil {
					return p, err
				}
				if ended = workflow.Now(ctx); row.succeeds {
					err = nil
				}
				return p, err
			}, workflow.RegisterOptions{Name: "ship"})
			if !row.timeout {
				env.RegisterDelayedCallback(func() { env.CancelWorkflow() }, time.Minute)
			}
		}
		res, err := x.run(t)
		require.Error(t, err, name)
		ship, _ := res.Node("ship")
		require.Equal(t, row.want, ship.Status, "%s: %v", name, ship.Err)
		require.Equal(t, row.abandons, ship.Abandoned, name)
		if !row.abandons {
			require.Equal(t, time.Minute+time.Second, ended.Sub(began).Round(time.Second), name)
			require.WithinDuration(t, ended, ship.Start.Add(ship.Duration), 0, "the run has waited: %s", name)
		}
	}
}

// A child in flight survives the end of an execution: like an activity, it ends before the run continues as new, and it is performed once.
func TestStepWorkflowContinues(t *testing.T) {
	t.Parallel()
	began := 0
	g := shipping(nil)
	g.Add(kahn.Node{ID: "b", After: []string{"take"}}, kahn.Node{ID: "c", After: []string{"b"}}, kahn.Node{ID: "d", After: []string{"c", "ship"}})
	x := &trial{workflow: Workflow{ID: "order-17", Plan: plan(t, g)}, options: Options{ContinueAfter: 2, Types: shippingTypes(), Step: takes, Kinds: map[string]Kind{"ship": {Workflow: byShip}}}}
	x.ships(func(ctx workflow.Context, p parcel) (parcel, error) {
		began++
		p.Label = "x"
		return p, workflow.Sleep(ctx, time.Hour)
	})
	res, err := x.run(t)
	require.NoError(t, err)
	require.Equal(t, 1, began)
	require.Greater(t, x.executions, 1)
	require.Equal(t, 6, res.Count(kahn.Completed))
	ship, _ := res.Node("ship")
	require.Equal(t, 1, ship.Attempts)
	c, _ := res.Node("c")
	require.False(t, c.Start.Before(ship.Start.Add(ship.Duration)), "no step begins while the run waits for the end of the execution")
}

// What is wrong in Kind.Workflow, or in the result of the child, fails the node at once, and the error says what.
func TestStepWorkflowMistakes(t *testing.T) {
	t.Parallel()
	made := 0
	for text, f := range map[string]func(*kahn.Step) (StepWorkflow, error){
		"RunTimeout 5ns: is its unit missing?": func(*kahn.Step) (StepWorkflow, error) { return StepWorkflow{Type: "w", RunTimeout: 5}, nil },
		"the workflow has no Type":             func(*kahn.Step) (StepWorkflow, error) { return StepWorkflow{}, nil },
		errStep.Error():                        func(*kahn.Step) (StepWorkflow, error) { return StepWorkflow{}, errStep },
		"not a pointer":                        func(*kahn.Step) (StepWorkflow, error) { return StepWorkflow{Type: "ship", Result: 7}, nil },
		"out of range": func(*kahn.Step) (StepWorkflow, error) {
			var none []int
			return StepWorkflow{ID: fmt.Sprint(none[1])}, nil
		},
		kahn.ErrGoexit.Error(): func(*kahn.Step) (StepWorkflow, error) { runtime.Goexit(); return StepWorkflow{}, nil },
		"the arguments: ":      func(*kahn.Step) (StepWorkflow, error) { return StepWorkflow{Type: "ship", Args: []any{func() {}}}, nil },
		"the worker takes 1048576": func(*kahn.Step) (StepWorkflow, error) {
			return StepWorkflow{Type: "ship", Args: []any{strings.Repeat("x", 2<<20)}}, nil
		},
		"the result of workflow \"ship\"": func(*kahn.Step) (StepWorkflow, error) { return StepWorkflow{Type: "ship", Result: new(int)}, nil },
		"parcel":                          func(*kahn.Step) (StepWorkflow, error) { return StepWorkflow{Type: "give", Result: new(parcel)}, nil },
	} {
		x := &trial{workflow: Workflow{ID: "order-17", Plan: plan(t, new(kahn.Graph).Add(kahn.Node{ID: "a", Kind: "ship", Retry: kahn.Retry{MaxAttempts: 3}, CompensateBy: &kahn.CompensateBy{Kind: "undo"}}))},
			options: Options{Step: func(context.Context, *kahn.Step) (any, error) { made++; return nil, nil }, Kinds: map[string]Kind{"ship": {Workflow: f}}}}
		x.during = func(env *testsuite.TestWorkflowEnvironment, _ int) {
			env.RegisterWorkflowWithOptions(func(workflow.Context) (string, error) { return "text", nil }, workflow.RegisterOptions{Name: "ship"})
			env.RegisterWorkflowWithOptions(func(workflow.Context) (parcel, error) { return parcel{}, nil }, workflow.RegisterOptions{Name: "give"})
		}
		res, err := x.run(t)
		require.ErrorContains(t, err, text)
		a, _ := res.Node("a")
		require.Equal(t, 1, a.Attempts, text)
	}
	require.Equal(t, 2, made, "only the children that have begun are undone")

	calls := 0
	x := &trial{workflow: Workflow{ID: "order-17", Plan: plan(t, shipping(nil))}, options: Options{Step: takes, Kinds: map[string]Kind{"ship": {Workflow: func(*kahn.Step) (StepWorkflow, error) {
		calls++
		return StepWorkflow{Type: "ship", Args: []any{calls}}, nil
	}}}}}
	x.ships(func(workflow.Context, int) error { return nil })
	_, err := x.run(t)
	require.ErrorContains(t, err, ErrImpure.Error(), "a replay would start another child")
}

// The items of a large map are performed by workflows of the host, and not in batches. Attempts to undo nodes have ids of their own.
func TestStepWorkflowItems(t *testing.T) {
	t.Parallel()
	ids := map[string]bool{}
	g := new(kahn.Graph).Add(kahn.Node{ID: "M", Map: &kahn.Map{Over: "items"}, Params: map[string]any{"items": []any{1., 2., 3., 4., 5., 6.}}, Kind: "ship", CompensateBy: &kahn.CompensateBy{Kind: "ship"}},
		kahn.Node{ID: "bad", After: []string{"M"}})
	x := &trial{workflow: Workflow{ID: "order-17", Plan: plan(t, g), Settings: Settings{MapChildren: 4}}, options: Options{Step: recordedStep, Kinds: map[string]Kind{"ship": {
		Workflow: func(s *kahn.Step) (StepWorkflow, error) {
			item, _ := s.Item()
			return StepWorkflow{Type: "ship", Args: []any{item}}, nil
		},
	}}}}
	x.ships(func(ctx workflow.Context, item any) (any, error) {
		ids[strings.TrimPrefix(workflow.GetInfo(ctx).WorkflowExecution.ID, "order-17/")] = true
		return item, nil
	})
	res, err := x.run(t)
	require.Error(t, err)
	kahntest.RequireStatuses(t, res, "M:ok bad:F")
	want := map[string]bool{}
	for i := range 6 {
		want[fmt.Sprintf("M[%d]/1", i)], want[fmt.Sprintf("undo:M[%d]/1", i)] = true, true
	}
	require.Equal(t, want, ids)
	m, _ := res.Node("M")
	for item := range m.Sub.Nodes() {
		require.Equal(t, kahn.CompensationDone, item.Compensation, item.ID)
	}
}

// Options of activities do not go with a Workflow.
func TestStepWorkflowKinds(t *testing.T) {
	t.Parallel()
	for _, k := range []Kind{{Local: true}, {LostAfter: time.Minute}, {StartToClose: time.Minute}, {ScheduleToStart: time.Minute}} {
		k.Workflow = byShip
		require.ErrorIs(t, errors.Join(Options{Kinds: map[string]Kind{"ship": k}}.checkKinds()...), kahn.ErrBadOption)
	}
	require.Empty(t, Options{Kinds: map[string]Kind{"ship": {TaskQueue: "q", FairByKey: true, Priority: sdk.Priority{PriorityKey: 1}, Workflow: byShip}}}.checkKinds())
}
