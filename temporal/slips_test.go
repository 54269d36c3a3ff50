package temporal

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/testsuite"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/kahntest"
)

// A mistake in a plan gets the same error text on Temporal as from kahn.Execute; see slips_table_test.go in the folder conformance.
func TestSlips(t *testing.T) {
	t.Parallel()
	graph := func(nodes ...kahn.Node) *kahn.Graph { return (&kahn.Graph{Name: "slips"}).Add(nodes...) }
	large := func(v kahn.View) (bool, error) { n, _ := v.Output("fails").(int); return n > 1000, nil }
	branches := func(decides kahn.Node) *kahn.Graph {
		return graph(kahn.Node{ID: "fails"}, decides, kahn.Node{ID: "batch", In: []kahn.Edge{{From: decides.ID, Label: "true"}}}, kahn.Node{ID: "inline", In: []kahn.Edge{{From: decides.ID, Label: "false"}}})
	}
	step := func(ctx context.Context, s *kahn.Step) (any, error) {
		switch s.ID() {
		case "fails":
			return nil, errStep
		case "sum": // the node has an early join
			for _, id := range []string{"a", "b"} {
				if _, err := kahn.Upstream[int](s, id); err != nil && !errors.Is(err, kahn.ErrNoValue) {
					return nil, err
				}
			}
			return nil, nil
		case "slow":
			return kahn.Root[int](s, "n")
		case "words":
			list, err := kahn.Param[[]int](s, "of")
			return len(list), err
		}
		return 1, nil
	}
	for _, c := range []struct {
		name, node, text string // node is the node that fails; "" if none fails
		statuses         string
		g                *kahn.Graph
	}{
		{"1 a test reads the output of a failed node", "large?", "unread failure", "fails:F large?:F batch:X inline:X", branches(kahn.If("large?", large, "fails"))},
		{"1 and asks", "", "", "fails:F large?:ok batch:S/br inline:ok", branches(kahn.If("large?", func(v kahn.View) (bool, error) { return v.Status("fails") == kahn.Completed, nil }, "fails"))},
		{"2 a guard returns an error", "delete", "the step broke", "delete:F", graph(kahn.Node{ID: "delete", When: func(kahn.View) (bool, error) { return true, errStep }})},
		{"2 a guard panics", "delete", "panic: oh", "delete:F", graph(kahn.Node{ID: "delete", When: func(kahn.View) (bool, error) { panic("oh") }})},
		{"3 an early join", "sum", `too early: "b" is waiting, and the join any_succeeded began this node without it`, "a:ok gate:ok b:ok sum:F",
			graph(kahn.Node{ID: "a"}, kahn.Node{ID: "gate", Kind: kahn.KindGate}, kahn.Node{ID: "b", After: []string{"gate"}}, kahn.Node{ID: "sum", Join: kahn.AnySucceeded, After: []string{"a", "b"}})},
		{"4 a catch node that observes", "", "", "fails:F h:ok", graph(kahn.Node{ID: "fails"}, kahn.Node{ID: "h", Handling: kahn.Observes, In: []kahn.Edge{{From: "fails", On: kahn.OnFailure}}})},
		{"4 AllDone that handles", "", "", "fails:F h:ok", graph(kahn.Node{ID: "fails"}, kahn.Node{ID: "h", Handling: kahn.Handles, Join: kahn.AllDone, After: []string{"fails"}})},
		{"14 a number from JSON", "", "", "slow:ok", graph(kahn.Node{ID: "slow"})},
		{"14 the output of a map", "", "", "m:ok words:ok", graph(kahn.Node{ID: "m", Params: map[string]any{"of": []int{1, 2}}, Map: &kahn.Map{Over: "of"}}, kahn.Node{ID: "words", In: []kahn.Edge{{From: "m", Param: "of"}}})},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			x := &trial{workflow: Workflow{Plan: plan(t, c.g)}, options: Options{Step: step}, inputs: map[string]any{"n": 3.0}}
			if _, waits := x.workflow.Plan.Ref("gate"); waits {
				x.during = func(env *testsuite.TestWorkflowEnvironment, _ int) {
					env.RegisterDelayedCallback(func() {
						env.UpdateWorkflow(SignalUpdate, "", &testsuite.TestUpdateCallback{OnReject: func(err error) { t.Error(err) }, OnAccept: func() {}, OnComplete: func(any, error) {}},
							signalRequest{Gate: "gate", Value: []byte(`true`)})
					}, time.Hour)
				}
			}
			res, err := x.run(t)
			kahntest.RequireStatuses(t, res, c.statuses)
			if c.text == "" {
				return
			}
			require.Error(t, err)
			n, _ := res.Node(c.node)
			require.ErrorContains(t, n.Err, c.text)
		})
	}
}

// A nearly right answer at a gate is refused with a suggestion, and the run keeps waiting.
func TestNearMissAtAGate(t *testing.T) {
	t.Parallel()
	g := kahntest.Graph(t, "ok?-[aproved]>ship ok?-[rejected]>no ok?{gate}")
	var refused error
	x := &trial{workflow: Workflow{Plan: plan(t, g)}, options: Options{Step: func(context.Context, *kahn.Step) (any, error) { return nil, nil }}}
	x.during = func(env *testsuite.TestWorkflowEnvironment, _ int) {
		ask := func(after time.Duration, value string, reject func(error)) {
			env.RegisterDelayedCallback(func() {
				env.UpdateWorkflow(SignalUpdate, "", &testsuite.TestUpdateCallback{OnReject: reject, OnAccept: func() {}, OnComplete: func(any, error) {}}, signalRequest{Gate: "ok?", Value: []byte(value)})
			}, after)
		}
		ask(time.Hour, `"approved"`, func(err error) { refused = decodeRefusal(err) })
		ask(2*time.Hour, `"aproved"`, func(err error) { t.Error(err) })
	}
	res, err := x.run(t)
	require.NoError(t, err)
	kahntest.RequireStatuses(t, res, "ok?:ok ship:ok no:S/br")
	require.ErrorIs(t, refused, kahn.ErrChoice)
	require.ErrorContains(t, refused, `did you mean "aproved"?`)
}
