package conformance_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
)

// outcomes renders the outcomes of the nodes of a trial.
func outcomes(r trial) string {
	var all []string
	for _, n := range r.Test.Nodes {
		all = append(all, fmt.Sprintf("%s:%v", n.Path, n.Outcome))
	}
	return strings.Join(all, " ")
}

func (r trial) outcomes(want string) {
	r.t.Helper()
	if got := outcomes(r); got != want {
		r.t.Errorf("outcomes %s\nexpected %s", got, want)
	}
}

func TestScenarioMock(t *testing.T) {
	inBubble(t, "266 a mocked node and one that falls through", func(t *testing.T) {
		var c calls
		r := try(t, graph(after("A"), after("B", "A")), c.count(takes(10*ms)), kahn.TestMode{Mocks: mocks{"A": {Value: 7}}})
		r.expect("A:ok B:ok", "completed")
		r.outcomes("A:mocked B:fallthrough")
		r.order("node.queued A", "node.mocked A", "node.completed A", "node.queued B", "node.started B", "node.completed B")
		r.count(event.NodeStarted, "A", 0)
		r.count(event.NodeMocked, "B", 0)
		if c.of("A") != 0 || c.of("B") != 1 || r.node("A").Output != 7 || !r.node("A").Mocked || r.node("B").Mocked {
			t.Errorf("A was called %d times, B %d, A came to %v", c.of("A"), c.of("B"), r.node("A"))
		}
		if !slices.Equal(r.Test.Uncovered, []string{"B"}) {
			t.Errorf("uncovered: %v", r.Test.Uncovered)
		}
		if p := r.events[0].Payload.(event.Start); !p.Test {
			t.Errorf("%v does not tell that it is a test", r.events[0])
		}
		if r.Duration != 10*ms {
			t.Errorf("it took %v", r.Duration)
		}
	})

	inBubble(t, "268 a gate without a mock", func(t *testing.T) {
		g := graph(kahn.Node{ID: "G", Kind: kahn.KindGate, Gate: &kahn.Gate{Timeout: time.Hour}}, after("A", "G"),
			kahn.Node{ID: "yes", In: []kahn.Edge{{From: "G", Label: "approve"}}},
			kahn.Node{ID: "no", In: []kahn.Edge{{From: "G", Label: "rejected"}}})
		r := try(t, g, takes(0), kahn.TestMode{Unmock: []string{"A"}})
		r.expect("G:ok A:ok yes:ok no:S/br", "completed")
		r.outcomes("G:auto A:real yes:fallthrough no:skipped")
		out, err := kahn.Output[map[string]any](r.Result, "G")
		if err != nil || len(out) != 2 || out["approved"] != true || out["auto"] != true {
			t.Errorf("G = %v, %v", out, err)
		}
		r.count(event.NodeSuspended, "G", 0)
		r.count(event.NodeMocked, "G", 0)
	})

	inBubble(t, "268 an unmocked gate waits", func(t *testing.T) {
		g := graph(kahn.Node{ID: "G", Kind: kahn.KindGate}, after("A", "G"))
		res, err := executeRun(t, t.Context(), g, takes(0), kahn.TestMode{
			Unmock: []string{"G"}, Mocks: mocks{"G": {Value: true}, "A": {}},
			Assertions: []kahn.Assertion{kahn.AssertStatus("G", kahn.Suspended), kahn.AssertStatus("A", kahn.Waiting), kahn.AssertCalls("A", 0)},
		})
		if err != nil || res.Status != kahn.RunSuspended || res.Test.Err() != nil {
			t.Errorf("%v, %v, %v", res.Status, err, res.Test.Err())
		}
		if n, _ := res.Test.Node("G"); n.Outcome != kahn.TestReal {
			t.Errorf("G: %v", n)
		}
		if n, _ := res.Test.Node("A"); n.Outcome != kahn.TestNotReached {
			t.Errorf("A: %v", n)
		}
	})

	inBubble(t, "268 a mocked gate", func(t *testing.T) {
		g := graph(kahn.Node{ID: "G", Kind: kahn.KindGate}, kahn.Node{ID: "yes", In: []kahn.Edge{{From: "G", Label: "approved"}}},
			kahn.Node{ID: "no", In: []kahn.Edge{{From: "G", Label: "rejected"}}})
		r := try(t, g, takes(0), kahn.TestMode{Mocks: mocks{"G": {Value: "reject"}}})
		r.expect("G:ok yes:S/br no:ok", "completed")
		r.order("node.mocked G", "node.completed G")
		r.outcomes("G:mocked yes:skipped no:fallthrough")
	})

	inBubble(t, "269 a mocked error is final", func(t *testing.T) {
		for _, mock := range []kahn.Mock{
			{Err: errStep},
			{Do: func(context.Context, *kahn.Step) (any, error) { return nil, errStep }},
		} {
			r := try(t, graph(kahn.Node{ID: "A", Retry: kahn.RetryStandard()}, after("B", "A")), neverStep(t), kahn.TestMode{Mocks: mocks{"A": mock}})
			r.expect("A:F B:X", "failed")
			r.cause("A", kahn.CauseStepError)
			r.order("node.mocked A", "node.failed A", "node.aborted B")
			r.count(event.NodeRetried, "A", 0)
			r.outcomes("A:mocked B:not_reached")
			if r.Duration != 0 || r.node("A").Attempts != 1 || !errors.Is(r.err, errStep) {
				t.Errorf("%v, %d attempts, %v", r.Duration, r.node("A").Attempts, r.err)
			}
		}
	})

	inBubble(t, "269 the run's default policy, a timeout and a panic are as final", func(t *testing.T) {
		g := graph(kahn.Node{ID: "A", Timeout: time.Second}, after("B"), after("C"))
		r := try(t, g, neverStep(t), kahn.Retry{MaxAttempts: 5, RetryOn: []kahn.CauseKind{kahn.CauseTimeout, kahn.CausePanic, kahn.CauseStepError}},
			kahn.TestMode{Mocks: mocks{
				"A": {Do: untilStopped},
				"B": {Do: func(context.Context, *kahn.Step) (any, error) { panic("mock") }},
				"C": {Do: func(context.Context, *kahn.Step) (any, error) { runtime.Goexit(); return nil, nil }},
			}})
		r.expect("A:F B:F C:F", "failed")
		r.cause("A", kahn.CauseTimeout)
		r.cause("B", kahn.CausePanic)
		r.cause("C", kahn.CauseGoexit)
		if r.Duration != time.Second {
			t.Errorf("it took %v", r.Duration)
		}
	})

	inBubble(t, "270 a failing assertion does not change the run", func(t *testing.T) {
		r := try(t, graph(after("A")), takes(0), kahn.TestMode{Mocks: mocks{"A": {Value: 1}}, Assertions: []kahn.Assertion{
			kahn.AssertStatus("A", kahn.Completed), kahn.AssertOutput("A", "", 2),
		}})
		r.expect("A:ok", "completed")
		if r.Test.Passed != 1 || r.Test.Failed != 1 || len(r.Test.Failures) != 1 {
			t.Errorf("%+v", r.Test)
		}
		var failure *kahn.Assertion
		if err := r.Test.Err(); !errors.As(err, &failure) || failure.Node != "A" || err.Error() != `node "A": expected output 2: 1` {
			t.Errorf("%v", err)
		}
		if r.last() != event.RunCompleted {
			t.Errorf("the last event is %v", r.last())
		}
	})

	inBubble(t, "272 a mocked condition routes for real", func(t *testing.T) {
		g := graph(
			kahn.If("C", func(kahn.View) (bool, error) { t.Error("the test was asked"); return true, nil }),
			kahn.Node{ID: "yes", In: []kahn.Edge{{From: "C", Label: "true"}}},
			kahn.Node{ID: "no", In: []kahn.Edge{{From: "C", Label: "no"}}}, after("end", "yes", "no"))
		r := try(t, g, takes(0), kahn.TestMode{Mocks: mocks{"C": {Value: false}}})
		r.expect("C:ok yes:S/br no:ok end:ok", "completed")
		r.outcomes("C:mocked yes:skipped no:fallthrough end:fallthrough")
		r.order("node.mocked C", "node.completed C")
		r.count(event.NodeStarted, "C", 0)
	})

	inBubble(t, "a condition that fails takes no branch", func(t *testing.T) {
		g := graph(kahn.If("C", func(kahn.View) (bool, error) { return true, nil }), kahn.Node{ID: "yes", In: []kahn.Edge{{From: "C", Label: "true"}}})
		r := try(t, g, takes(0), kahn.TestMode{Mocks: mocks{"C": {Err: errStep}}})
		r.expect("C:F yes:X", "failed")
		r.cause("C", kahn.CauseConditionError)
	})

	inBubble(t, "a sequence goes through the node's policy", func(t *testing.T) {
		g := graph(kahn.Node{ID: "A", Retry: kahn.RetryStandard()}, after("B", "A"))
		r := try(t, g, takes(0), kahn.TestMode{
			Mocks: mocks{"A": {Sequence: []kahn.Mock{{Err: errStep}, {Err: kahn.RateLimited(errStep, 5*time.Second)}, {Value: "third"}}}},
			Assertions: []kahn.Assertion{
				kahn.AssertCalls("A", 3), kahn.AssertOutput("A", "", "third"), kahn.AssertError("A", nil), kahn.AssertCalls("B", 1),
			}})
		r.expect("A:ok B:ok", "completed")
		r.order("node.queued A", "node.mocked A", "node.retried A", "node.queued A", "node.mocked A", "node.retried A",
			"node.queued A", "node.mocked A", "node.completed A")
		if r.Duration != 6*time.Second || r.Test.Err() != nil || r.node("A").Attempts != 3 {
			t.Errorf("it took %v, %d attempts, %v", r.Duration, r.node("A").Attempts, r.Test.Err())
		}
		short := try(t, g, takes(0), kahn.TestMode{Mocks: mocks{"A": {Sequence: []kahn.Mock{{Err: errStep}}}}})
		short.expect("A:F B:X", "failed")
		if n := short.node("A"); n.Attempts != 3 {
			t.Errorf("the last of a sequence is for all that follow: %d attempts", n.Attempts)
		}
		final := try(t, g, takes(0), kahn.TestMode{Mocks: mocks{"A": {Sequence: []kahn.Mock{{Err: kahn.Permanent(errStep)}, {}}}}})
		final.expect("A:F B:X", "failed")
	})

	inBubble(t, "guards, ports, merges, policies and fallbacks are real", func(t *testing.T) {
		g := graph(after("A"), after("N"),
			kahn.Node{ID: "off", Disabled: true},
			kahn.Node{ID: "when", After: []string{"A"}, When: func(v kahn.View) (bool, error) { return v.Output("A") == "go", nil }},
			kahn.Node{ID: "null", Ports: []kahn.Port{{Name: "p", Required: true}}, In: []kahn.Edge{{From: "N", Param: "p"}}},
			kahn.Node{ID: "sum", In: []kahn.Edge{{From: "A", Param: "all", Merge: kahn.MergeArray}, {From: "N", Param: "all"}}},
			kahn.Node{ID: "saved", Fallback: func(_ context.Context, err error) (any, error) { return "instead of " + err.Error(), nil }},
			kahn.Node{ID: "self"}, kahn.Node{ID: "tolerated", ContinueOnFail: true})
		r := try(t, g, neverStep(t), kahn.TestMode{Mocks: mocks{
			"A": {Value: "stay"}, "N": {}, "off": {Value: 1}, "when": {Value: 1}, "null": {Value: 1},
			"sum":   {Do: func(_ context.Context, s *kahn.Step) (any, error) { return s.Params()["all"], nil }},
			"saved": {Err: errStep}, "self": {Err: kahn.Skip("no need")}, "tolerated": {Err: errStep},
		}, Assertions: []kahn.Assertion{
			kahn.AssertSkip("off", kahn.SkipAnnotation), kahn.AssertSkip("when", kahn.SkipWhenGuard), kahn.AssertSkip("null", kahn.SkipNullPropagation),
			kahn.AssertOutput("sum", "0", "stay"), kahn.AssertOutput("sum", "1", nil), kahn.AssertOutput("saved", "", "instead of the step broke"),
			kahn.AssertSkip("self", kahn.SkipSelf), kahn.AssertError("tolerated", errStep), kahn.AssertCalls("null", 0),
		}})
		r.expect("A:ok N:ok off:S/ann when:S/when null:S/null sum:ok saved:ok self:S/self tolerated:F", "completed+d")
		r.outcomes("A:mocked N:mocked off:skipped when:skipped null:skipped sum:mocked saved:mocked self:mocked tolerated:mocked")
		if err := r.Test.Err(); err != nil {
			t.Error(err)
		}
	})

	inBubble(t, "a mock comes before contracts and moderation", func(t *testing.T) {
		g := graph(kahn.Node{ID: "A", InputSchema: refusesAll{}, OutputSchema: refusesAll{}, Moderation: kahn.ModerateBoth})
		r := try(t, g, nil, kahn.TestMode{Mocks: mocks{"A": {Value: 1}}})
		r.expect("A:ok", "completed")
		real := try(t, g, takes(0), kahn.TestMode{}, kahn.Moderate(never))
		real.expect("A:F", "failed")
		real.cause("A", kahn.CauseContractInput)
		real.outcomes("A:not_reached")
	})

	inBubble(t, "what is missing", func(t *testing.T) {
		g := graph(after("A"), kahn.If("C", func(v kahn.View) (bool, error) { return v.Status("A") == kahn.Completed, nil }, "A"),
			kahn.Node{ID: "B", In: []kahn.Edge{{From: "C", Label: "true"}}}, kahn.Node{ID: "G", Kind: kahn.KindGate, After: []string{"B"}})
		stub := try(t, g, nil, kahn.TestMode{OnMissing: kahn.MissingStub})
		stub.expect("A:ok C:ok B:ok G:ok", "completed")
		stub.outcomes("A:mocked C:real B:mocked G:auto")
		if out := stub.node("A").Output; out != nil || len(stub.Test.Uncovered) > 0 {
			t.Errorf("A = %v, uncovered %v", out, stub.Test.Uncovered)
		}
		fail := try(t, g, neverStep(t), kahn.TestMode{OnMissing: kahn.MissingFail, Mocks: mocks{"A": {}}})
		fail.expect("A:ok C:ok B:F G:X", "failed")
		fail.outcomes("A:mocked C:real B:fallthrough G:not_reached")
		if !errors.Is(fail.err, kahn.ErrNoMock) || !slices.Equal(fail.Test.Uncovered, []string{"B"}) {
			t.Errorf("%v, uncovered %v", fail.err, fail.Test.Uncovered)
		}
		if _, err := kahn.Execute(t.Context(), g, nil, kahn.TestMode{Mocks: mocks{"A": {}}}); !errors.Is(err, kahn.ErrNoStep) {
			t.Errorf("B has no step: %v", err)
		}
	})

	inBubble(t, "no slot is left taken, no group", func(t *testing.T) {
		g := graph(kahn.Node{ID: "A", Groups: []string{"one"}}, kahn.Node{ID: "B", Groups: []string{"one"}, After: []string{"A"}},
			kahn.Node{ID: "G", Kind: kahn.KindGate}, subgraph("S", graph(after("x"))))
		g.Groups = []kahn.Group{{Name: "one", Limit: 1}}
		var left *kahn.Run
		r := tryControlled(t, t.Context(), g, takes(0), func(run *kahn.Run) { left = run }, kahn.Limit(1),
			kahn.TestMode{Mocks: mocks{"A": {}, "B": {Do: takes(10 * ms)}, "G": {Value: true}, "S": {Value: 1}}})
		r.expect("A:ok B:ok G:ok S:ok", "completed")
		if text := leftovers(left); text != "" {
			t.Error(text)
		}
		if r.node("S").Sub != nil {
			t.Error("the graph of a mocked composite was begun")
		}
	})

	inBubble(t, "a mock is stopped like a step", func(t *testing.T) {
		r := tryControlled(t, t.Context(), graph(after("A"), after("B", "A")), nil, func(run *kahn.Run) {
			time.Sleep(time.Second)
			run.Cancel()
		}, kahn.TestMode{Mocks: mocks{"A": {Do: untilStopped}, "B": {}}})
		r.expect("A:C B:C", "cancelled")
		r.outcomes("A:mocked B:not_reached")
	})

	inBubble(t, "triggers are real, and may leave out what is mocked", func(t *testing.T) {
		g := graph(kahn.Node{ID: "T", Kind: kahn.KindTrigger}, kahn.Node{ID: "U", Kind: kahn.KindTrigger}, after("A", "T"), after("B", "U"))
		r := try(t, g, neverStep(t), kahn.Fire("T", "payload"), kahn.TestMode{
			OnMissing: kahn.MissingFail, Mocks: mocks{"A": {Do: func(_ context.Context, s *kahn.Step) (any, error) { v, _ := s.Upstream("T"); return v, nil }}, "B": {}},
			Assertions: []kahn.Assertion{kahn.AssertOutput("A", "", "payload"), kahn.AssertCalls("B", 0), kahn.AssertStatus("B", kahn.Idle)},
		})
		r.expect("T:ok A:ok", "completed")
		r.outcomes("T:real A:mocked")
		if err := r.Test.Err(); err != nil {
			t.Error(err)
		}
	})

	inBubble(t, "the end node", func(t *testing.T) {
		g := graph(after("A"), kahn.Node{ID: "E", Kind: kahn.KindEnd})
		r := try(t, g, nil, kahn.TestMode{Mocks: mocks{"A": {Err: errStep}, "E": {Value: kahn.EndVerdict{Status: kahn.RunCompleted, Output: 9}}}})
		r.expect("A:F E:ok", "completed") // the verdict accepts the failure
		if r.Output() != 9 {
			t.Errorf("output %v", r.Output())
		}
	})
}

// refusesAll is a contract that refuses every value.
type refusesAll struct{}

func (refusesAll) Check(any) []kahn.Violation { return []kahn.Violation{{Message: "no"}} }

// never is a moderator that the run must not call.
func never(context.Context, event.Phase, *kahn.Step, any) error { return kahn.Flag("asked") }

func TestScenarioMockNested(t *testing.T) {
	sub := func() *kahn.Graph {
		return graph(after("x"), kahn.Node{ID: "g", Kind: kahn.KindGate, After: []string{"x"}}, after("y", "g"))
	}

	inBubble(t, "nodes inside of a sub-graph", func(t *testing.T) {
		var c calls
		r := try(t, graph(subgraph("S", sub()), subgraph("T", sub(), "S")), c.count(takes(0)), kahn.TestMode{Mocks: mocks{"S/x": {Value: 1}, "T/y": {Err: errStep}}})
		r.expect("S:ok T:F", "failed")
		r.outcomes("S:real S/x:mocked S/g:auto S/y:fallthrough T:real T/x:fallthrough T/g:auto T/y:mocked")
		if c.of("x") != 1 || c.of("y") != 1 {
			t.Errorf("x was called %d times, y %d", c.of("x"), c.of("y"))
		}
		if !slices.Equal(r.Test.Uncovered, []string{"S/y", "T/x"}) {
			t.Errorf("uncovered: %v", r.Test.Uncovered)
		}
		r.order("node.started S", "node.mocked S/x", "node.completed S/g", "node.started S/y", "node.completed S")
	})

	inBubble(t, "a composite that is unmocked", func(t *testing.T) {
		r := try(t, graph(subgraph("S", graph(after("x"), after("y", "x")))), takes(0), kahn.TestMode{
			Unmock: []string{"S"}, OnMissing: kahn.MissingFail, Mocks: mocks{"S/x": {Value: 1}},
		})
		r.expect("S:ok", "completed")
		r.outcomes("S:real S/x:mocked S/y:real")
	})

	inBubble(t, "what a step function is needed for", func(t *testing.T) {
		inner := graph(after("x"))
		g := graph(subgraph("S", graph(subgraph("T", inner))), kahn.Node{ID: "M", Map: &kahn.Map{Over: "list"}, Params: map[string]any{"list": []int{1}}})
		for _, test := range []struct {
			kahn.TestMode
			needed bool
		}{
			{kahn.TestMode{}, true},
			{kahn.TestMode{Mocks: mocks{"S/T/x": {}}}, true},
			{kahn.TestMode{Mocks: mocks{"S/T/x": {}, "M[]": {}}}, false},
			{kahn.TestMode{Mocks: mocks{"S/T": {}, "M": {}}}, false},
			{kahn.TestMode{OnMissing: kahn.MissingStub}, false},
			{kahn.TestMode{OnMissing: kahn.MissingStub, Unmock: []string{"S/T"}}, true},
			{kahn.TestMode{OnMissing: kahn.MissingStub, Unmock: []string{"S"}, Mocks: mocks{"S/T": {}}}, false},
			{kahn.TestMode{OnMissing: kahn.MissingFail, Unmock: []string{"M[]"}}, true},
		} {
			res, err := kahn.Execute(t.Context(), g, nil, test.TestMode)
			if needed := errors.Is(err, kahn.ErrNoStep); needed != test.needed || !needed && res == nil {
				t.Errorf("%+v: %v", test.TestMode, err)
			}
		}
	})

	inBubble(t, "items and iterations", func(t *testing.T) {
		items := []int{10, 20, 30}
		g := graph(
			kahn.Node{ID: "M", Map: &kahn.Map{Over: "list", ToleratedCount: 1}, Params: map[string]any{"list": items}},
			kahn.Node{ID: "N", Map: &kahn.Map{Over: "list"}, Sub: graph(after("x"), after("y", "x")), Params: map[string]any{"list": items}},
			kahn.Node{ID: "L", Sub: graph(after("z")), Loop: &kahn.Loop{MaxIterations: 5, While: func(v kahn.View) (bool, error) { return v.Output("z") != 3, nil }}},
		)
		r := try(t, g, takes(0), kahn.TestMode{
			Mocks: mocks{
				"M[]": {Do: func(_ context.Context, s *kahn.Step) (any, error) {
					if s.Index() == 1 {
						return nil, errStep
					}
					v, _ := s.Item()
					return v, nil
				}},
				"N/x": {Value: "x"},
				"L/z": {Do: func(_ context.Context, s *kahn.Step) (any, error) { return s.Iteration(), nil }},
			},
			Assertions: []kahn.Assertion{
				kahn.AssertOutput("M", "2", 30), kahn.AssertStatus("M[1]", kahn.Failed), kahn.AssertStatus("M[2]", kahn.Completed),
				kahn.AssertCalls("M[]", 3), kahn.AssertCalls("M", 3), kahn.AssertCalls("N/x", 3), kahn.AssertOutput("N[1]/x", "", "x"), kahn.AssertStatus("N[]/y", kahn.Completed),
				kahn.AssertStatus("N/y", kahn.Completed), kahn.AssertCalls("L/z", 3), kahn.AssertOutput("L/z", "", 3),
				kahn.AssertStatus("M[]", kahn.Completed), // fails: not all items have completed
			},
		})
		r.expect("M:ok N:ok L:ok", "completed+d")
		r.outcomes("M:real M[]:mocked N:real N[]:real N/x:mocked N/y:fallthrough L:real L/z:mocked")
		if n, _ := r.Test.Node("M"); n.Calls != 3 {
			t.Errorf("the map has %d calls", n.Calls)
		}
		if len(r.Test.Failures) != 1 || !strings.Contains(r.Test.Err().Error(), `node "M[]": expected status completed: failed`) {
			t.Errorf("%v", r.Test.Err())
		}
	})

	inBubble(t, "a mocked map looks at no items", func(t *testing.T) {
		g := graph(kahn.Node{ID: "M", Map: &kahn.Map{Over: "list"}, Params: map[string]any{"list": "no list"}})
		r := try(t, g, takes(0), kahn.TestMode{Mocks: mocks{"M": {Value: []any{1}}}, Assertions: []kahn.Assertion{kahn.AssertStatus("M[]", kahn.Idle)}})
		r.expect("M:ok", "completed")
		if r.Test.Failed != 0 {
			t.Error(r.Test.Err())
		}
	})
}

func TestTestRefused(t *testing.T) {
	g := graph(after("A"), subgraph("S", graph(after("x"))), kahn.Node{ID: "M", Map: &kahn.Map{Over: "list"}})
	fine := kahn.AssertStatus("A", kahn.Completed)
	for _, row := range []struct {
		name string
		test kahn.TestMode
		is   error
	}{
		{"unknown mock", kahn.TestMode{Mocks: mocks{"B": {}}}, kahn.ErrUnknownNode},
		{"unknown inside", kahn.TestMode{Mocks: mocks{"S/y": {}}}, kahn.ErrUnknownNode},
		{"an item", kahn.TestMode{Mocks: mocks{"M[1]": {}}}, kahn.ErrUnknownNode},
		{"unknown unmock", kahn.TestMode{Unmock: []string{"A", "S/x", ""}}, kahn.ErrUnknownNode},
		{"unknown assertion", kahn.TestMode{Assertions: []kahn.Assertion{fine, kahn.AssertCalls("S/A", 1)}}, kahn.ErrUnknownNode},
		{"bad item", kahn.TestMode{Assertions: []kahn.Assertion{kahn.AssertCalls("M[x]", 1)}}, kahn.ErrUnknownNode},
		{"empty assertion", kahn.TestMode{Assertions: []kahn.Assertion{{}}}, kahn.ErrBadOption},
		{"assertion without a check", kahn.TestMode{Assertions: []kahn.Assertion{kahn.Assert("A", "nothing", nil)}}, kahn.ErrBadOption},
		{"two in one", kahn.TestMode{Mocks: mocks{"A": {Value: 1, Err: errStep}}}, kahn.ErrBadValue},
		{"nested sequence", kahn.TestMode{Mocks: mocks{"A": {Sequence: []kahn.Mock{{Sequence: []kahn.Mock{{}}}}}}}, kahn.ErrBadValue},
		{"two in one of a sequence", kahn.TestMode{Mocks: mocks{"A": {Sequence: []kahn.Mock{{}, {Value: 1, Err: errStep}}}}}, kahn.ErrBadValue},
		{"OnMissing", kahn.TestMode{OnMissing: 9}, kahn.ErrBadOption},
	} {
		t.Run(row.name, func(t *testing.T) {
			res, err := executeRun(t, t.Context(), g, neverStep(t), row.test)
			if res != nil || !errors.Is(err, row.is) || !errors.Is(err, kahn.ErrBadOption) {
				t.Errorf("%v, %v", res, err)
			}
		})
	}
	_, err := executeRun(t, t.Context(), g, neverStep(t), kahn.TestMode{Mocks: mocks{"Z": {}, "B": {}}, Unmock: []string{"C"}})
	if err == nil || strings.Count(err.Error(), "\n") != 2 || strings.Index(err.Error(), `"B"`) > strings.Index(err.Error(), `"Z"`) {
		t.Errorf("not all that is unknown is named, in order: %v", err)
	}
	for want, sequence := range map[string][]kahn.Mock{
		"number 1 of the Sequence: ":               {{Value: 1, Err: errStep}, {}},
		"number 2 of the Sequence: ":               {{}, {Value: 1, Err: errStep}},
		"mock 2 of the Sequence has a Sequence it": {{}, {Sequence: []kahn.Mock{{}}}},
	} {
		_, err := executeRun(t, t.Context(), g, neverStep(t), kahn.TestMode{Mocks: mocks{"A": {Sequence: sequence}}})
		require.ErrorContains(t, err, want)
	}
}

func TestAssertions(t *testing.T) {
	type inner struct {
		Name string `json:"name"`
	}
	out := map[string]any{"list": []any{1, inner{"one"}}, "p": &inner{"two"}, "null": nil, "array": [2]int{7, 8}}
	base := kahn.TestMode{Mocks: mocks{"A": {Value: out}, "B": {Err: errStep}, "C": {}}}
	for _, row := range []struct {
		a    kahn.Assertion
		text string // of the failure; "" if the assertion holds
	}{
		{kahn.AssertOutput("A", "list.0", 1), ""},
		{kahn.AssertOutput("A", "list.1.name", "one"), ""},
		{kahn.AssertOutput("A", "p.name", "two"), ""},
		{kahn.AssertOutput("A", "null", nil), ""},
		{kahn.AssertOutput("A", "array.1", 8), ""},
		{kahn.AssertOutput("A", "list.0", 1.0), `expected output 1 at "list.0": 1, of type int instead of float64`},
		{kahn.AssertOutput("A", "list.2", 1), `expected output 1 at "list.2": <[]interface {}> has no "2"`},
		{kahn.AssertOutput("A", "nope", nil), `has no "nope"`},
		{kahn.AssertOutput("A", "list.0.x", nil), `1 has no "x"`},
		{kahn.AssertOutput("A", "null.x", nil), `has no "x"`},
		{kahn.AssertOutput("B", "", 1), `expected output 1: failed: `},
		{kahn.AssertStatus("C", kahn.Completed), `expected status completed: aborted: `},
		{kahn.AssertError("B", errStep), ""},
		{kahn.AssertError("B", nil), `expected no error: failed: node "B": step_error: the step broke`},
		{kahn.AssertError("A", errStep), `expected error the step broke: completed`},
		{kahn.AssertCalls("B", 2), `expected 2 calls: 1 calls`},
		{kahn.AssertSkip("C", kahn.SkipSelf), `expected skip reason self: aborted: `},
		{kahn.Assert("A", "to be late", func(n kahn.NodeResult) error { return fmt.Errorf("it took %v", n.Duration) }), `node "A": expected to be late: it took 0s`},
		{kahn.Assert("A", "nothing", func(n kahn.NodeResult) error { panic("oh") }), `panic: oh`},
		{kahn.Assert("C", "an upstream error", func(n kahn.NodeResult) error {
			if up := new(kahn.UpstreamError); !errors.As(n.Err, &up) {
				return n.Err
			}
			return nil
		}), ""},
	} {
		inBubble(t, row.text, func(t *testing.T) {
			test := base
			test.Assertions = []kahn.Assertion{row.a}
			r := try(t, graph(after("A"), after("B"), after("C", "B")), nil, test)
			switch err := r.Test.Err(); {
			case row.text == "" && (err != nil || r.Test.Passed != 1):
				t.Error(err)
			case row.text != "" && (err == nil || !strings.Contains(err.Error(), row.text) || r.Test.Failed != 1):
				t.Errorf("got %v, expected %s", err, row.text)
			}
		})
	}
}

// TestMockReproducible: with one slot the events of all runs are equal, except for ids and times.
func TestMockReproducible(t *testing.T) {
	g := graph(after("A"), after("B"), after("C", "A", "B"), kahn.Node{ID: "G", Kind: kahn.KindGate, After: []string{"B"}},
		kahn.Node{ID: "R", After: []string{"G"}, Retry: kahn.RetryJittered(3)}, kahn.Node{ID: "D", After: []string{"R", "C"}})
	for i := range 40 {
		c := fmt.Sprint("if", i)
		g.Add(after(fmt.Sprint("more", i), "A"), kahn.If(c, func(kahn.View) (bool, error) { return i%2 == 0, nil }, "A"),
			kahn.Node{ID: fmt.Sprint("then", i), In: []kahn.Edge{{From: c, Label: "true"}}, When: func(kahn.View) (bool, error) { return true, nil }})
	}
	test := kahn.TestMode{OnMissing: kahn.MissingStub, Unmock: []string{"C"}, Mocks: mocks{
		"R": {Sequence: []kahn.Mock{{Err: errStep}, {Value: map[string]any{"b": 1, "a": 2}}}}, "D": {Do: takes(ms)},
	}}
	run := func(t *testing.T) (text string) {
		r := try(t, g, takes(5*ms), test, kahn.Limit(1), kahn.Random(func() float64 { return 0.25 }))
		for _, e := range r.events {
			e.RunID, e.TraceID, e.Time = "", "", time.Time{}
			data, err := json.Marshal(e)
			if err != nil {
				t.Fatal(err)
			}
			text += string(data) + "\n"
		}
		return text
	}
	first := ""
	for i := range 20 {
		inBubble(t, fmt.Sprint("run ", i), func(t *testing.T) {
			if first == "" {
				first = run(t)
			} else if again := run(t); again != first {
				t.Errorf("another time it went\n%s\nfirst\n%s", again, first)
			}
		})
	}
}

// TestAssertionThatWaits: assertions are user code. An assertion that waits for its own run or calls Goexit does not block the caller.
func TestAssertionThatWaits(t *testing.T) {
	inBubble(t, "for its run", func(t *testing.T) {
		var run *kahn.Run
		asked := 0
		waits := kahn.Assert("A", "to wait", func(kahn.NodeResult) error {
			asked++
			res, err := run.Wait()
			if err != nil || res.Test != nil || res.Count(kahn.Completed) != 1 {
				t.Errorf("inside it is %v, %v", res.Test, err)
			}
			return errStep
		})
		run, err := startRun(t, t.Context(), graph(after("A")), nop, kahn.TestMode{Assertions: []kahn.Assertion{waits, kahn.AssertStatus("A", kahn.Completed)}})
		if err != nil {
			t.Fatal(err)
		}
		go func() { _, _ = run.Wait() }()
		_, _ = run.Wait()
		for range 2 {
			synctest.Wait()
			if res, _ := run.Wait(); res.Test.Failed != 1 || res.Test.Passed != 1 || !errors.Is(res.Test.Err(), errStep) {
				t.Errorf("%+v", res.Test)
			}
		}
		if asked != 1 {
			t.Errorf("it was asked %d times", asked)
		}
	})
	inBubble(t, "for nothing", func(t *testing.T) {
		ends := kahn.Assert("A", "to end", func(kahn.NodeResult) error { runtime.Goexit(); return nil })
		run, err := startRun(t, t.Context(), graph(after("A")), nop, kahn.TestMode{Assertions: []kahn.Assertion{ends}})
		if err != nil {
			t.Fatal(err)
		}
		go func() { _, _ = run.Wait() }()
		synctest.Wait()
		if res, _ := run.Wait(); res.Test.Failed != 1 || !errors.Is(res.Test.Err(), kahn.ErrGoexit) {
			t.Errorf("%+v", res.Test)
		}
	})
}

// TestPathsIntoItems: the path of a node inside a map has no brackets in a mock. A path with brackets would match no node, so it is refused.
func TestPathsIntoItems(t *testing.T) {
	t.Parallel()
	undone := kahn.Node{ID: "x", Do: takes(0), Compensate: func(context.Context, *kahn.Step) error { return nil }}
	m := mapped("M", numbers(2), kahn.Map{})
	m.Sub = graph(undone)
	g := graph(subgraph("S", graph(m)), after("A"))
	for name, mode := range map[string]kahn.TestMode{
		"Mocks":  {Mocks: map[string]kahn.Mock{"S/M[]/x": {}}},
		"Undos":  {Undos: map[string]kahn.Mock{"S/M[]/x": {}}},
		"Unmock": {Unmock: []string{"S/M[]/x"}},
	} {
		_, err := kahn.Execute(t.Context(), g, nop, mode)
		for _, is := range []error{kahn.ErrBadOption, kahn.ErrUnknownNode} {
			if !errors.Is(err, is) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if err == nil || !strings.Contains(err.Error(), `write "S/M/x"`) {
			t.Errorf("%s: %v", name, err)
		}
	}
	res, err := kahn.Execute(t.Context(), g, nop, kahn.TestMode{Mocks: map[string]kahn.Mock{"S/M/x": {Value: 1}}, Assertions: []kahn.Assertion{kahn.AssertStatus("S/M[1]/x", kahn.Completed)}})
	if err != nil || res.Test.Err() != nil {
		t.Errorf("%v: %+v", err, res.Test)
	}
}
