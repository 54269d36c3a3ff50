package temporal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sdk "go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/kahntest"
	"github.com/seed-c794f7ef/kahn/machine"
)

type conforms struct{}

func (conforms) Check(any) []kahn.Violation { return nil }

// equals is an Evaluator for texts that compare the output of a node with a number.
type equals struct{ id, number string }

func (equals) Parse(text string) (kahn.Expression, error) {
	id, number, _ := strings.Cut(text, "=")
	return equals{id, number}, nil
}

func (e equals) Evaluate(_ context.Context, v kahn.View) (any, error) {
	return fmt.Sprint(v.Output(e.id)) == e.number, nil
}

// Check names exactly the nodes that do not carry over, also inside composites, with the reason.
func TestCheck(t *testing.T) {
	t.Parallel()
	yes := func(kahn.View) (bool, error) { return true, nil }
	sub := new(kahn.Graph).Add(kahn.Node{ID: "x", InputSchema: conforms{}})
	fields := map[string]kahn.Node{
		"InputSchema":  {InputSchema: conforms{}},
		"OutputSchema": {OutputSchema: conforms{}},
		"Map.Key":      {Map: &kahn.Map{Over: "m", Key: func(any) string { return "" }}, Params: map[string]any{"m": nil}},
		"Map.Estimate": {Map: &kahn.Map{Over: "m", Estimate: func(any) time.Duration { return 0 }}, Params: map[string]any{"m": nil}},
		`the merge "m`: {Merge: "mine"},
		`the merge "e`: {In: []kahn.Edge{{From: "start", Param: "p", Merge: "else"}}},
	}
	for name, n := range fields {
		n.ID = "bad"
		g := new(kahn.Graph).RegisterMerge("mine", func([]kahn.Contribution) (any, error) { return nil, nil })
		g.RegisterMerge("else", func([]kahn.Contribution) (any, error) { return nil, nil })
		g.Add(kahn.Node{ID: "start"}, kahn.Node{ID: "good", Do: func(context.Context, *kahn.Step) (any, error) { return nil, nil }}, n)
		p := plan(t, g)
		err := Check(p)
		require.ErrorIs(t, err, ErrUnsupported, name)
		require.ErrorContains(t, err, `node "bad": `, name)
		require.ErrorContains(t, err, name, name)
		require.NotContains(t, err.Error(), "good", name)
		require.NoError(t, check(p, true), name)
	}
	err := Check(plan(t, new(kahn.Graph).Add(kahn.Node{ID: "S", Sub: sub}, kahn.Node{ID: "m", Moderation: kahn.ModerateInput})))
	require.ErrorContains(t, err, `node "S/x": unsupported on Temporal: InputSchema`)
	require.ErrorContains(t, err, `node "m": unsupported on Temporal: Moderation`)
	moderated := plan(t, new(kahn.Graph).Add(kahn.Node{ID: "m", Moderation: kahn.ModerateInput}))
	require.ErrorIs(t, check(moderated, true), ErrUnsupported, "not even if all functions are pure")
	undo := func(context.Context, *kahn.Step) error { return nil }
	require.NoError(t, Check(plan(t, new(kahn.Graph).Add(kahn.Node{ID: "a", Compensate: undo}, kahn.Node{ID: "b", CompensateBy: &kahn.CompensateBy{Kind: "refund"}}))))
	quick, slow := kahn.Node{ID: "a", Compensate: undo}, kahn.Node{ID: "a", Compensate: undo, CompensateTimeout: time.Second}
	require.NotEqual(t, fingerprint(plan(t, new(kahn.Graph).Add(quick))), fingerprint(plan(t, new(kahn.Graph).Add(slow))), "the timing of compensations decides, too")
	require.ErrorIs(t, Check(nil), kahn.ErrNoGraph)

	// Functions that make decisions carry over: the history records what they return.
	deciding := new(kahn.Graph).Add(
		kahn.Node{ID: "a", When: yes, Fallback: func(context.Context, error) (any, error) { return nil, nil }}, kahn.Node{ID: "b", Test: func(kahn.View) (any, error) { return true, nil }},
		kahn.Node{ID: "c", Sub: kahntest.Graph(t, "x"), Loop: &kahn.Loop{While: yes, MaxIterations: 1}}, kahn.Node{ID: "d", Sub: kahntest.Graph(t, "x"), Loop: &kahn.Loop{Until: yes, MaxIterations: 1}})
	require.NoError(t, Check(plan(t, deciding)))

	// Texts that an Evaluator reads carry over.
	texts := &kahn.Graph{Evaluator: equals{}, StrictGuards: true}
	texts.Add(kahn.Node{ID: "a"}, kahn.Node{ID: "b", After: []string{"a"}, WhenExpr: "a=7"}, kahn.Node{ID: "c", After: []string{"a"}, WhenExpr: "a=8"})
	require.NoError(t, Check(plan(t, texts)))
	x := &trial{workflow: Workflow{Plan: plan(t, texts)}, options: Options{Step: func(context.Context, *kahn.Step) (any, error) { return 7, nil }}}
	res, err := x.run(t)
	require.NoError(t, err)
	kahntest.RequireStatuses(t, res, "a:ok b:ok c:S/when")
}

// Register refuses plans that do not carry over, and bad options.
func TestRegister(t *testing.T) {
	t.Parallel()
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(discard)
	env := suite.NewTestWorkflowEnvironment()
	guarded := plan(t, new(kahn.Graph).Add(kahn.Node{ID: "a", OutputSchema: conforms{}}))
	require.ErrorIs(t, Options{Plans: []*kahn.Plan{guarded}}.Register(env), ErrUnsupported)
	require.ErrorIs(t, Options{Plans: []*kahn.Plan{nil}}.Register(env), kahn.ErrNoGraph)
	require.ErrorIs(t, Options{MaxBytes: -1}.Register(env), kahn.ErrBadOption)
	for _, o := range []Options{{Heartbeat: 30 * time.Second}, {LostAfter: time.Second}, {Heartbeat: time.Minute, LostAfter: time.Minute}} {
		require.ErrorIs(t, o.Register(env), kahn.ErrBadOption, "each attempt would be lost before its second heartbeat")
	}
	require.ErrorContains(t, Options{Heartbeat: 5}.Register(env), "Heartbeat 5ns: is its unit missing?")
	step := func(context.Context, *kahn.Step) (any, error) { return nil, nil }
	require.NoError(t, Options{Plans: []*kahn.Plan{guarded}, Pure: true, Step: step}.Register(env))
	for text, needs := range map[string]bool{"a": true, "a a{gate}": false, "a>b a{gate}": true, "a a{off}": false} {
		err := Options{Plans: []*kahn.Plan{plan(t, kahntest.Graph(t, text))}}.Register(suite.NewTestWorkflowEnvironment())
		require.Equal(t, needs, errors.Is(err, kahn.ErrNoStep), "%v: %v", text, err)
	}
	inside := plan(t, new(kahn.Graph).Add(kahn.Node{ID: "S", Sub: kahntest.Graph(t, "x")}))
	err := Options{Plans: []*kahn.Plan{inside}}.Register(env)
	require.ErrorIs(t, err, kahn.ErrNoStep)
	require.ErrorContains(t, err, `"S/x"`)
	_, err = NewWorker(nil, "q", Options{})
	require.ErrorIs(t, err, kahn.ErrBadOption)
}

// The fingerprint of a plan, unlike its hash, covers the fields that decide when and how often steps are performed.
func TestFingerprint(t *testing.T) {
	t.Parallel()
	of := func(n kahn.Node, groups ...kahn.Group) string {
		g := &kahn.Graph{Groups: append([]kahn.Group{{Name: "g"}}, groups...)}
		n.ID = "a"
		return fingerprint(plan(t, g.Add(n)))
	}
	sub := func(n kahn.Node) kahn.Node {
		n.ID = "x"
		return kahn.Node{Sub: new(kahn.Graph).Add(n)}
	}
	seen := map[string]string{}
	for name, print := range map[string]string{
		"plain": of(kahn.Node{}), "retry": of(kahn.Node{Retry: kahn.Retry{MaxAttempts: 2}}), "timeout": of(kahn.Node{Timeout: 1}), "overall": of(kahn.Node{OverallTimeout: 1}),
		"crashes": of(kahn.Node{MaxCrashes: 1}), "priority": of(kahn.Node{Priority: 1}), "estimate": of(kahn.Node{Estimate: 1}), "groups": of(kahn.Node{Groups: []string{"g"}}),
		"key": of(kahn.Node{Key: "k"}), "group": of(kahn.Node{}, kahn.Group{Name: "h", Limit: 1}), "limit": of(kahn.Node{}, kahn.Group{Name: "h", Limit: 2}),
		"sub": of(sub(kahn.Node{})), "inside": of(sub(kahn.Node{Timeout: 1})), "kind": of(kahn.Node{Kind: "k"}),
	} {
		require.Empty(t, seen[print], name)
		seen[print] = name
	}
	require.Equal(t, of(kahn.Node{}), of(kahn.Node{}))
}

// A worker leaves a run to another worker if it lacks the plan, has another StateVersion, or cannot read the inputs. This holds at the beginning
// of a run and when it continues.
func TestUnknownPlan(t *testing.T) {
	t.Parallel()
	old, young := plan(t, kahntest.Graph(t, "a")), plan(t, kahntest.Graph(t, "a a{cof}"))
	step := func(context.Context, *kahn.Step) (any, error) { return nil, nil }
	in, err := Workflow{Plan: old}.input(nil)
	require.NoError(t, err)
	other := in
	other.StateVersion = machine.StateVersion + 1
	continued := in
	continued.Continued = 1
	typed := in
	typed.Inputs = map[string]json.RawMessage{"n": json.RawMessage(`{"$type": "host.Money", "value": 7}`)}
	for name, row := range map[string]struct {
		in    input
		plans []*kahn.Plan
		text  string
	}{
		"another plan":     {in, []*kahn.Plan{young}, "does not have the plan"},
		"no plan":          {in, nil, "does not have the plan"},
		"another version":  {other, []*kahn.Plan{old, young}, "the run began with machine.StateVersion"},
		"in the middle":    {continued, []*kahn.Plan{young}, "does not have the plan"},
		"another type":     {typed, []*kahn.Plan{old}, "host.Money"},
		"among the others": {in, []*kahn.Plan{young, old}, ""},
	} {
		var suite testsuite.WorkflowTestSuite
		suite.SetLogger(discard)
		env := suite.NewTestWorkflowEnvironment()
		require.NoError(t, Options{Plans: row.plans, Step: step}.Register(env))
		env.ExecuteWorkflow(WorkflowName, row.in)
		err := env.GetWorkflowError()
		if row.text == "" {
			require.NoError(t, err, name)
			continue
		}
		require.ErrorContains(t, err, row.text, name)
		var panicked *sdk.PanicError // Temporal gives the workflow task to another worker
		require.ErrorAs(t, err, &panicked, name)
	}
}
