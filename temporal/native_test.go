package temporal

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	sdk "go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-c794f7ef/kahn"
)

// orders returns a graph that asks before it ships.
func orders(label string) *kahn.Graph {
	g := &kahn.Graph{Name: "orders"}
	return g.Add(kahn.Node{ID: "take", Label: label},
		kahn.Node{ID: "ask", Kind: kahn.KindGate, After: []string{"take"}, Gate: &kahn.Gate{Choices: []string{"yes", "no"}}}, kahn.Node{ID: "ship", In: []kahn.Edge{{From: "ask", Label: "yes"}}})
}

// environment returns a test environment of the SDK with a worker's workflows.
func environment(t *testing.T, o Options) *testsuite.TestWorkflowEnvironment {
	t.Helper()
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(discard)
	env := suite.NewTestWorkflowEnvironment()
	env.SetTestTimeout(time.Minute)
	env.SetWorkerOptions(worker.Options{DeadlockDetectionTimeout: time.Minute})
	o.LostAfter = time.Hour
	require.NoError(t, o.Register(env))
	return env
}

// Any client can start a run with the documented JSON, and answer its gates by signals. The run uses the worker's first plan with the name, and
// has its own id. A signal that the run refuses changes nothing.
func TestForeignStart(t *testing.T) {
	t.Parallel()
	young, old := plan(t, orders("young")), plan(t, orders("old"))
	step := func(_ context.Context, s *kahn.Step) (any, error) {
		order, _ := s.Root("order")
		return []any{s.Label(), order, s.RunID() != ""}, nil
	}
	for text, label := range map[string]string{
		`{"inputs": {"order": 17}}`:                                                      "young",
		`{"inputs": {"order": 17}, "plan": {"name": "orders"}}`:                          "young",
		`{"inputs": {"order": 17}, "plan": {"fingerprint": "` + fingerprint(old) + `"}}`: "old",
	} {
		env := environment(t, Options{Plans: []*kahn.Plan{young, old}, Step: step})
		env.OnUpsertMemo(mock.MatchedBy(func(fields map[string]any) bool {
			m, is := fields[memoName].(memo)
			return is && m.Plan.Name == "orders"
		})).Return(nil).Once()
		env.RegisterDelayedCallback(func() { env.SignalWorkflow(SignalName, json.RawMessage(`{"gate": "ask", "value": "perhaps"}`)) }, time.Hour)
		env.RegisterDelayedCallback(func() { env.SignalWorkflow(SignalName, json.RawMessage(`"nonsense"`)) }, time.Hour)
		env.RegisterDelayedCallback(func() {
			env.SignalWorkflow(SignalName, json.RawMessage(`{"gate": "ask", "value": "yes", "actor": "ann"}`))
		}, 2*time.Hour)
		env.ExecuteWorkflow("orders", json.RawMessage(text))
		var out output
		require.NoError(t, env.GetWorkflowResult(&out), text)
		res, err := Workflow{Plan: map[string]*kahn.Plan{"young": young, "old": old}[label]}.result(out)
		require.NoError(t, err)
		take, _ := res.Node("take")
		require.Equal(t, []any{label, 17.0, true}, take.Output, "a number without a type is a float64")
		ask, _ := res.Node("ask")
		require.Equal(t, "ann", ask.Decision.Actor)
		ship, _ := res.Node("ship")
		require.Equal(t, kahn.Completed, ship.Status)
	}
	env := environment(t, Options{Plans: []*kahn.Plan{young}, Step: step})
	env.ExecuteWorkflow("orders", json.RawMessage(`{"plan": {"name": "nobody's"}}`))
	var panicked *sdk.PanicError // the worker leaves the workflow task to another worker
	require.ErrorAs(t, env.GetWorkflowError(), &panicked)
	require.ErrorContains(t, panicked, ErrUnknownPlan.Error())
}

// The host's own workflow starts a run as its child, and answers the run's gates. It gets the Result even if the run has failed or was
// cancelled.
func TestExecuteChild(t *testing.T) {
	t.Parallel()
	p := plan(t, orders(""))
	for name, row := range map[string]struct {
		answer any
		inputs map[string]any
		w      Workflow
		want   kahn.RunStatus
		text   string
	}{
		"completes":      {"yes", map[string]any{"order": 17}, Workflow{Plan: p}, kahn.RunCompleted, ""},
		"fails":          {"yes", map[string]any{"order": -1}, Workflow{Plan: p}, kahn.RunFailed, errStep.Error()},
		"is cancelled":   {nil, map[string]any{"order": 17}, Workflow{Plan: p}, kahn.RunCancelled, "cancelled"},
		"never begins":   {"yes", nil, Workflow{Plan: p, Settings: Settings{Limit: -1}}, 0, "Limit"},
		"without a plan": {"yes", nil, Workflow{}, 0, kahn.ErrNoGraph.Error()},
	} {
		env := environment(t, Options{Plans: []*kahn.Plan{p}, Step: func(_ context.Context, s *kahn.Step) (any, error) {
			if order, _ := s.Root("order"); order == -1 {
				return nil, kahn.Permanent(errStep)
			}
			return s.ID(), nil
		}})
		parent := func(ctx workflow.Context) error {
			of, cancel := workflow.WithCancel(ctx)
			child := ExecuteChild(of, row.w, row.inputs)
			if err := workflow.Sleep(ctx, time.Hour); err != nil {
				return err
			}
			if row.answer == nil {
				cancel()
			} else if row.want == kahn.RunCompleted {
				if err := child.Signal(ctx, "ask", kahn.Decision{Value: row.answer, Actor: "parent"}); err != nil {
					return err
				}
			}
			res, err := child.Wait(ctx)
			if res != nil {
				require.Equal(t, row.want, res.Status, name)
			} else {
				require.Zero(t, row.want, name)
			}
			return err
		}
		env.RegisterWorkflowWithOptions(parent, workflow.RegisterOptions{Name: "parent"})
		env.ExecuteWorkflow("parent")
		require.True(t, env.IsWorkflowCompleted())
		if err := env.GetWorkflowError(); row.text == "" {
			require.NoError(t, err, name)
		} else {
			require.ErrorContains(t, err, row.text, name)
		}
	}
}

// A workflow that is cancelled while it waits for its run, and returns the error of Wait, ends as cancelled. The error still is the run's.
func TestCancelledParent(t *testing.T) {
	t.Parallel()
	p := plan(t, orders(""))
	env := environment(t, Options{Plans: []*kahn.Plan{p}, Step: func(_ context.Context, s *kahn.Step) (any, error) { return s.ID(), nil }})
	var waited error
	parent := func(ctx workflow.Context) error {
		var res *kahn.Result
		res, waited = ExecuteChild(ctx, Workflow{Plan: p}, map[string]any{"order": 17}).Wait(ctx)
		require.Equal(t, kahn.RunCancelled, res.Status)
		return waited
	}
	env.RegisterWorkflow(parent)
	env.RegisterDelayedCallback(env.CancelWorkflow, time.Hour)
	env.ExecuteWorkflow(parent)
	require.True(t, sdk.IsCanceledError(env.GetWorkflowError()), env.GetWorkflowError())
	var failed *kahn.RunError
	require.ErrorAs(t, waited, &failed)
}

// Two plans that differ only by their names are two plans.
func TestPlansOfOneShape(t *testing.T) {
	t.Parallel()
	a, b := orders(""), orders("")
	a.Name, b.Name = "a", "b"
	plans := []*kahn.Plan{plan(t, a), plan(t, b)}
	for _, p := range plans {
		env := environment(t, Options{Plans: plans, Step: recordedStep})
		env.RegisterDelayedCallback(func() { update(t, env, SignalUpdate, signalRequest{Gate: "ask", Value: []byte(`"no"`)}) }, time.Hour)
		in, err := Workflow{Plan: p}.input(nil)
		require.NoError(t, err)
		env.ExecuteWorkflow(p.Name(), in)
		require.NoError(t, env.GetWorkflowError())
		var answer eventsAnswer
		value, err := env.QueryWorkflow(EventsQuery, eventsRequest{})
		require.NoError(t, err)
		require.NoError(t, value.Get(&answer))
		require.Equal(t, p.Name(), answer.Page.Workflow)
	}
}
