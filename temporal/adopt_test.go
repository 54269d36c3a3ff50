package temporal

import (
	"context"
	"encoding/json"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/kahntest"
)

// letters returns a version of a graph: its node "draft" differs by the model, and versions may have nodes of their own.
func letters(model string, own ...kahn.Node) *kahn.Graph {
	return (&kahn.Graph{Name: "letters"}).Add(kahn.Node{ID: "fetch"}, kahn.Node{ID: "draft", After: []string{"fetch"}, Config: model}, kahn.Node{ID: "slow", Kind: "slow", After: []string{"fetch"}},
		kahn.Node{ID: "approve", Kind: kahn.KindGate, After: []string{"draft", "slow"}}, kahn.Node{ID: "send", After: []string{"approve"}}).Add(own...)
}

// calledSteps records the calls of steps, with their configs.
type calledSteps struct {
	mu   sync.Mutex
	list []string
}

func (c *calledSteps) step(_ context.Context, s *kahn.Step) (any, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	model, _ := s.Config().(string)
	c.list = append(c.list, s.Path()+model)
	return s.Path() + model, nil
}

// adopter is a run of a former plan that operators ask to continue with another plan.
type adopter struct {
	trial
	old, young *kahn.Plan
	asks       []adoptAsk
	refused    []error // by ask; nil if the run has accepted the plan
}

// adoptAsk is a request in the first execution.
type adoptAsk struct {
	after time.Duration
	of    adoptRequest
}

// runs performs the run. The worker of the first execution has the former plan and, if both is set, the new plan; later workers have only the new
// plan. Gates are answered after two hours.
func (x *adopter) runs(t *testing.T, both bool, during func(env *testsuite.TestWorkflowEnvironment)) (*kahn.Result, error) {
	t.Helper()
	x.refused = make([]error, len(x.asks))
	x.workflow.Plan = x.old
	if both {
		x.options.Plans = []*kahn.Plan{x.young}
	}
	x.during = func(env *testsuite.TestWorkflowEnvironment, execution int) {
		env.OnUpsertMemo(mock.MatchedBy(func(fields map[string]any) bool { return fields[adoptedName] == idOf(x.young) })).Return(nil).Maybe()
		if execution > 0 {
			x.workflow.Plan = x.young // the client
			env.RegisterDelayedCallback(func() { update(t, env, SignalUpdate, signalRequest{Gate: "approve", Value: []byte(`"yes"`)}) }, 2*time.Hour)
			return
		}
		x.options.Plans = []*kahn.Plan{x.young} // of the next worker
		for i, ask := range x.asks {
			env.RegisterDelayedCallback(func() {
				env.UpdateWorkflow(AdoptUpdate, "", &testsuite.TestUpdateCallback{
					OnReject: func(err error) { x.refused[i] = decodeRefusal(err) }, OnAccept: func() {}, OnComplete: func(_ any, err error) {
						if err != nil {
							t.Error(err)
						}
					},
				}, ask.of)
			}, ask.after)
		}
		during(env)
	}
	return x.run(t)
}

func adoption(t *testing.T, step kahn.StepFunc, young *kahn.Graph, asks ...adoptAsk) *adopter {
	x := &adopter{old: plan(t, letters("small", kahn.Node{ID: "old", After: []string{"fetch"}})), young: plan(t, young), asks: asks}
	x.options.Step = step
	return x
}

// A run that waits is moved to another version of its plan. Completed nodes that are unchanged keep their results, the new execution needs only the
// new plan, and the events say who has asked.
func TestAdopt(t *testing.T) {
	t.Parallel()
	for name, both := range map[string]bool{"the worker has both plans": true, "the sender has checked": false} {
		c := new(calledSteps)
		x := adoption(t, c.step, letters("large", kahn.Node{ID: "new", After: []string{"fetch"}}))
		x.asks = []adoptAsk{{time.Hour, adoptRequest{Plan: idOf(x.young), Actor: "ann", Reason: "deploy", Checked: !both}}}
		res, err := x.runs(t, both, func(*testsuite.TestWorkflowEnvironment) {})
		require.NoError(t, err, name)
		require.Equal(t, []error{nil}, x.refused, name)
		require.Equal(t, 2, x.executions, name)
		kahntest.RequireStatuses(t, res, "fetch:ok draft:ok slow:ok approve:ok send:ok new:ok")
		require.ElementsMatch(t, []string{"fetch", "draftsmall", "slow", "old", "draftlarge", "new", "send"}, c.list, name)
		require.Equal(t, idOf(x.young), x.in.Plan, name)
		require.Equal(t, "ann", res.RedriveRequest.Actor, name)
		var page eventsAnswer
		value, err := x.envs[1].QueryWorkflow(EventsQuery, eventsRequest{After: 0, Limit: 100})
		require.NoError(t, err)
		require.NoError(t, value.Get(&page))
		require.Len(t, page.Earlier, 1, name)
		require.Greater(t, page.Page.First, uint64(1), "the ids of events continue")
		require.Equal(t, x.young.Hash(), page.Plan, name)
	}
}

// A running attempt ends before the run continues with the new plan, and no other attempt begins. The attempt is not repeated if its node is unchanged.
func TestAdoptRunning(t *testing.T) {
	t.Parallel()
	c := new(calledSteps)
	g := letters("large")
	x := adoption(t, c.step, g)
	x.asks = []adoptAsk{{time.Minute, adoptRequest{Plan: idOf(x.young)}}, {2 * time.Minute, adoptRequest{Plan: idOf(x.young)}}}
	res, err := x.runs(t, true, func(env *testsuite.TestWorkflowEnvironment) {
		env.OnActivity("slow", mock.Anything, mock.Anything).After(time.Hour).Return(json.RawMessage(`{"value": "slowly"}`), nil).Once()
	})
	require.NoError(t, err)
	require.Equal(t, []error{nil, nil}, x.refused)
	slow, _ := res.Node("slow")
	require.Equal(t, []any{"slowly", 1}, []any{slow.Output, slow.Attempts})
	require.ElementsMatch(t, []string{"fetch", "draftsmall", "old", "draftlarge", "send"}, c.list)
}

// The run refuses a plan that does not fit. The error says why, and lists the plans that the worker has.
func TestAdoptRefused(t *testing.T) {
	t.Parallel()
	needy := letters("large")
	needy.Inputs = []kahn.Input{{Name: "n"}}
	other := letters("large", kahn.Node{ID: "more"})
	other.Name = "other"
	x := adoption(t, new(calledSteps).step, needy)
	foreign := plan(t, other)
	x.options.Plans = []*kahn.Plan{foreign}
	x.asks = []adoptAsk{
		{time.Hour, adoptRequest{Plan: planID{"letters", "nobody's"}}},
		{time.Hour, adoptRequest{Plan: idOf(x.young)}},
		{time.Hour, adoptRequest{Plan: idOf(foreign)}},
		{time.Hour, adoptRequest{Plan: planID{"other", "another"}, Checked: true}},
		{time.Hour, adoptRequest{Plan: idOf(x.old)}}, // the run has the plan already
	}
	x.options.Plans = append(x.options.Plans, x.young)
	res, err := x.runs(t, false, func(env *testsuite.TestWorkflowEnvironment) {
		env.RegisterDelayedCallback(func() { update(t, env, SignalUpdate, signalRequest{Gate: "approve", Value: []byte(`"yes"`)}) }, 2*time.Hour)
	})
	require.NoError(t, err)
	require.Equal(t, 1, x.executions)
	require.Equal(t, 6, res.Count(kahn.Completed), "the run is unchanged")
	for i, want := range []error{ErrUnknownPlan, kahn.ErrMissingInput, kahn.ErrGraphChanged, kahn.ErrGraphChanged} {
		require.ErrorIs(t, x.refused[i], want, "%d", i)
	}
	require.ErrorContains(t, x.refused[0], fingerprint(x.old)+" (the plan of the run)")
	require.ErrorContains(t, x.refused[0], fingerprint(x.young))
	require.NotContains(t, x.refused[0].Error(), fingerprint(foreign), "it belongs to another workflow")
	require.NoError(t, x.refused[4])
}

// A run that is stopped keeps its plan, whether the stop comes before or after the request.
func TestAdoptStopped(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		stop time.Duration
		want error
	}{"before": {time.Minute, kahn.ErrFinished}, "after": {3 * time.Minute, nil}} {
		x := adoption(t, new(calledSteps).step, letters("large"))
		x.asks = []adoptAsk{{2 * time.Minute, adoptRequest{Plan: idOf(x.young)}}}
		x.workflow.Settings.StopMode = kahn.Drain // the running attempt ends after an hour
		_, err := x.runs(t, true, func(env *testsuite.TestWorkflowEnvironment) {
			env.OnActivity("slow", mock.Anything, mock.Anything).After(time.Hour).Return(json.RawMessage(`{"value": "slowly"}`), nil).Once()
			env.RegisterDelayedCallback(func() { update(t, env, StopUpdate, stopRequest{}) }, row.stop)
		})
		require.Error(t, err, name)
		require.ErrorIs(t, x.refused[0], row.want, name)
		require.Equal(t, 1, x.executions, name)
		require.Equal(t, kahn.RunCancelled, x.out.Status, name)
	}
}

// After an adoption the run may continue as new again, be adopted again, and be redriven. The adoption is performed once.
func TestAdoptAgain(t *testing.T) {
	t.Parallel()
	c := new(calledSteps)
	young := letters("large", kahn.Node{ID: "n1", After: []string{"send"}}, kahn.Node{ID: "n2", After: []string{"n1"}}, kahn.Node{ID: "bad", After: []string{"n2"}})
	x := adoption(t, func(ctx context.Context, s *kahn.Step) (any, error) {
		if v, err := c.step(ctx, s); s.ID() != "bad" {
			return v, err
		}
		return nil, kahn.Permanent(errStep)
	}, young)
	x.options.ContinueAfter = 2 // so the request comes in a later execution
	x.redrive = &redriving{}
	asked := false
	x.workflow.Plan, x.options.Plans = x.old, []*kahn.Plan{x.young}
	x.during = func(env *testsuite.TestWorkflowEnvironment, execution int) {
		env.OnUpsertMemo(mock.Anything).Return(nil).Maybe()
		env.RegisterDelayedCallback(func() {
			if !asked {
				asked = true
				update(t, env, AdoptUpdate, adoptRequest{Plan: idOf(x.young)})
				x.workflow.Plan = x.young
				return
			}
			env.UpdateWorkflow(SignalUpdate, "", &testsuite.TestUpdateCallback{OnAccept: func() {}, OnReject: func(error) {}, OnComplete: func(any, error) {}}, signalRequest{Gate: "approve", Value: []byte(`"yes"`)})
		}, time.Hour)
	}
	res, err := x.run(t)
	require.ErrorContains(t, err, errStep.Error())
	require.Greater(t, x.executions, 4)
	kahntest.RequireStatuses(t, res, "fetch:ok draft:ok slow:ok approve:ok send:ok n1:ok n2:ok bad:F")
	require.ElementsMatch(t, []string{"fetch", "draftsmall", "slow", "old", "draftlarge", "send", "n1", "n2", "bad", "bad"}, c.list)
	require.Nil(t, x.in.Adopting)
}

// If the worker lacks the plan with which the run would continue, the new execution waits for another worker.
func TestAdoptedPlanIsMissing(t *testing.T) {
	t.Parallel()
	x := adoption(t, new(calledSteps).step, letters("large"))
	env := environment(t, Options{Plans: []*kahn.Plan{x.old}, Step: new(calledSteps).step})
	in := input{Plan: idOf(x.young), RunID: "r", StateVersion: 1, Continued: 1, Adopting: &adopting{}}
	env.ExecuteWorkflow("letters", in)
	require.ErrorContains(t, env.GetWorkflowError(), ErrUnknownPlan.Error())
	var more *workflow.ContinueAsNewError
	require.NotErrorAs(t, env.GetWorkflowError(), &more)
}

// A run that a trigger fired is adopted with the part of the new plan to which the trigger leads.
func TestAdoptFired(t *testing.T) {
	t.Parallel()
	triggered := func(model string) *kahn.Graph {
		g := letters(model, kahn.Node{ID: "T", Kind: kahn.KindTrigger}, kahn.Node{ID: "other", Kind: kahn.KindTrigger}, kahn.Node{ID: "never", After: []string{"other"}})
		return g.Connect(kahn.Edge{From: "T", To: "fetch"})
	}
	c := new(calledSteps)
	x := adoption(t, c.step, triggered("large"), adoptAsk{})
	x.old = plan(t, triggered("small"))
	x.workflow.Fire = &Fire{Trigger: "T", Payload: 7}
	x.asks[0] = adoptAsk{time.Hour, adoptRequest{Plan: idOf(x.young)}}
	res, err := x.runs(t, true, func(*testsuite.TestWorkflowEnvironment) {})
	require.NoError(t, err)
	kahntest.RequireStatuses(t, res, "T:ok fetch:ok draft:ok slow:ok approve:ok send:ok")
	require.ElementsMatch(t, []string{"fetch", "draftsmall", "slow", "draftlarge", "send"}, c.list)
}
