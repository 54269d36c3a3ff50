package conformance_test

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
)

func TestSchemaProblems(t *testing.T) {
	g := graph(kahn.Node{ID: "A", InputSchema: 7}, kahn.Node{ID: "B", OutputSchema: map[string]any{}})
	_, err := g.Compile()
	require.ErrorIs(t, err, kahn.ErrNoSchemas)
	g.Schemas = shapes{}
	_, err = g.Compile()
	require.ErrorIs(t, err, kahn.ErrBadSchema)
	require.ErrorIs(t, err, errStep)
	require.ErrorContains(t, err, `"A": InputSchema`)
	require.NotContains(t, err.Error(), `"B"`)

	_, err = graph(kahn.Node{ID: "G", Kind: kahn.KindGate, OutputSchema: shape{}}).Compile()
	require.ErrorIs(t, err, kahn.ErrBadValue)
}

var onContract = kahn.Retry{MaxAttempts: 3, Jitter: kahn.JitterNone, RetryOn: []kahn.CauseKind{kahn.CauseContractOutput}}

func TestScenarioContract(t *testing.T) {
	bothModes(t, "161 an output that violates its contract is retried if the policy lists it", func(t *testing.T, mode kahn.Mode) {
		var c calls
		r := try(t, graph(kahn.Node{ID: "A", OutputSchema: wants(2), Retry: onContract}),
			c.count(func(_ context.Context, s *kahn.Step) (any, error) { return s.Attempt(), nil }), mode)
		r.expect("A:ok", "completed")
		r.order("node.queued A", "node.started A", "contract.violated A", "node.retried A", "node.queued A", "node.started A", "node.completed A")
		r.count(event.ContractViolated, "A", 1)
		e := r.find(event.ContractViolated, "A")[0]
		if p := e.Payload.(event.Breach); p.Phase != event.PhaseOutput || len(p.Errors) != 1 || p.Errors[0] != tooSmall.String() || e.Attempt != 1 {
			t.Errorf("event %v", e)
		}
		if cause := r.find(event.NodeRetried, "A")[0].Payload.(event.Retry).Cause; cause != kahn.CauseContractOutput {
			t.Errorf("retried for %v", cause)
		}
		if c.of("A") != 2 || r.node("A").Output != 2 {
			t.Errorf("%d calls, %+v", c.of("A"), r.node("A"))
		}
	})

	bothModes(t, "161 and not if it does not", func(t *testing.T, mode kahn.Mode) {
		var c calls
		r := try(t, graph(kahn.Node{ID: "A", OutputSchema: wants(2), Retry: kahn.RetryStandard()}, after("B", "A")), c.count(nop), mode)
		r.expect("A:F B:X", "failed")
		r.cause("A", kahn.CauseContractOutput)
		r.order("contract.violated A", "node.failed A")
		r.count(event.NodeRetried, "A", 0)
		var broken *kahn.ContractError
		if !errors.As(r.err, &broken) || broken.Phase != event.PhaseOutput || broken.Violations[0] != tooSmall ||
			!strings.Contains(r.err.Error(), "output_contract_violation: /size: must be at least 3") {
			t.Errorf("error %v", r.err)
		}
		if c.of("A") != 1 || r.node("A").Attempts != 1 || r.node("A").Output != nil {
			t.Errorf("%d calls, %+v", c.of("A"), r.node("A"))
		}
	})

	bothModes(t, "162 inputs that violate their contract are final", func(t *testing.T, mode kahn.Mode) {
		r := try(t, graph(kahn.Node{ID: "A", Params: map[string]any{"size": 2}, InputSchema: wants(map[string]any{"size": 3}), Retry: onContract,
			Fallback: func(context.Context, error) (any, error) { t.Error("the fallback was called"); return nil, nil }}, after("B", "A")),
			neverStep(t), mode, kahn.Limit(1))
		r.expect("A:F B:X", "failed")
		r.cause("A", kahn.CauseContractInput)
		r.order("node.queued A", "contract.violated A", "node.failed A")
		r.count(event.NodeStarted, "A", 0)
		r.count(event.NodeRetried, "A", 0)
		if p := r.find(event.ContractViolated, "A")[0].Payload.(event.Breach); p.Phase != event.PhaseInput || p.Errors[0] != tooSmall.String() {
			t.Errorf("event %v", p)
		}
		if !strings.Contains(r.err.Error(), "input_contract_violation") || r.node("A").Attempts != 0 || !r.node("A").Start.IsZero() {
			t.Errorf("error %v, %+v", r.err, r.node("A"))
		}
	})
}

func TestContract(t *testing.T) {
	bothModes(t, "what conforms runs; inputs are judged once", func(t *testing.T, mode kahn.Mode) {
		judged := 0
		count := shape{func(value any) []kahn.Violation {
			judged++
			if !reflect.DeepEqual(value, map[string]any{"p": "A", "q": 1}) {
				t.Errorf("judged %v", value)
			}
			return nil
		}}
		r := try(t, graph(after("A"),
			kahn.Node{ID: "B", Params: map[string]any{"q": 1}, In: into("A"), InputSchema: count, OutputSchema: wants("B"), Retry: kahn.RetryStandard(),
				Do: func(ctx context.Context, s *kahn.Step) (any, error) {
					if s.Attempt() < 3 {
						return nil, errStep
					}
					return s.ID(), nil
				}}, after("C", "B")), takes(ms), mode)
		r.expect("A:ok B:ok C:ok", "completed")
		if judged != 1 || r.node("B").Attempts != 3 {
			t.Errorf("judged %d times, %+v", judged, r.node("B"))
		}
	})

	bothModes(t, "a slot is held, and given back", func(t *testing.T, mode kahn.Mode) {
		g := graph()
		for _, id := range []string{"A", "B", "C"} {
			g.Add(kahn.Node{ID: id, Groups: []string{"g"}, Key: "k", InputSchema: wants(nil), ContinueOnFail: id == "A"})
		}
		g.Groups = []kahn.Group{{Name: "g", Limit: 1}}
		r := tryControlled(t, t.Context(), g, neverStep(t), func(run *kahn.Run) {
			<-run.Done()
			if left := leftovers(run); left != "" {
				t.Error(left)
			}
		}, mode, kahn.Limit(1), kahn.KeyLimit(1))
		r.expect("A:F B:F C:F", "failed")
		if !r.node("A").Tolerated {
			t.Error("A is not tolerated")
		}
	})

	bothModes(t, "a condition may have contracts", func(t *testing.T, mode kahn.Mode) {
		g := graph(
			kahn.Node{ID: "C", Test: func(kahn.View) (any, error) { return "yes", nil }, InputSchema: wants(map[string]any{}), OutputSchema: wants("yes")},
			kahn.Node{ID: "D", Test: func(kahn.View) (any, error) { return "no", nil }, OutputSchema: wants("yes")},
			kahn.Node{ID: "E", Test: func(kahn.View) (any, error) { t.Error("asked"); return nil, nil }, InputSchema: wants("x")})
		r := try(t, g, nil, mode)
		r.expect("C:ok D:F E:F", "failed")
		r.cause("D", kahn.CauseContractOutput)
		r.cause("E", kahn.CauseContractInput)
	})

	bothModes(t, "the end node", func(t *testing.T, mode kahn.Mode) {
		r := try(t, graph(after("A"), kahn.Node{ID: "Z", Kind: kahn.KindEnd, OutputSchema: wants("out"),
			Do: func(context.Context, *kahn.Step) (any, error) {
				return kahn.EndVerdict{Status: kahn.RunCompleted, Output: "out"}, nil
			}}), nop, mode)
		r.expect("A:ok Z:ok", "completed")
		r = try(t, graph(after("A"), kahn.Node{ID: "Z", Kind: kahn.KindEnd, InputSchema: wants("in")}), nop, mode)
		r.expect("A:ok Z:F", "failed")
	})

	bothModes(t, "a fallback's value is judged too", func(t *testing.T, mode kahn.Mode) {
		for value, want := range map[any]string{"good": "A:ok", "bad": "A:F"} {
			r := try(t, graph(kahn.Node{ID: "A", OutputSchema: wants("good"), Do: yields(0, "worse"),
				Fallback: func(_ context.Context, err error) (any, error) {
					if !strings.Contains(err.Error(), "output_contract_violation") {
						t.Errorf("fallback for %v", err)
					}
					return value, nil
				}}), nil, mode)
			if got := r.node("A"); "A:"+shortStatus(got) != want || got.Fallback != (want == "A:ok") {
				t.Errorf("%v: %+v", value, got)
			}
		}
	})

	bothModes(t, "an attempt that was too late is too late, whatever it returned", func(t *testing.T, mode kahn.Mode) {
		r := try(t, graph(kahn.Node{ID: "A", Timeout: ms, OutputSchema: wants(1), Do: yields(2*ms, 2)}), nil, mode)
		r.expect("A:F", "failed")
		r.cause("A", kahn.CauseTimeout)
	})

	inBubble(t, "a stopped node whose late output violates its contract was stopped", func(t *testing.T) {
		r := tryControlled(t, t.Context(), graph(kahn.Node{ID: "A", OutputSchema: wants(1)}), func(ctx context.Context, _ *kahn.Step) (any, error) {
			<-ctx.Done()
			return 2, nil
		}, func(run *kahn.Run) {
			time.Sleep(ms)
			run.Cancel()
		})
		r.expect("A:C", "cancelled")
	})

	// No user code runs under the run's lock. A node whose inputs are being checked is ready, not running.
	inBubble(t, "ready while it is judged", func(t *testing.T) {
		judging, release := make(chan struct{}), make(chan struct{})
		g := graph(kahn.Node{ID: "A", InputSchema: shape{func(any) []kahn.Violation {
			close(judging)
			<-release
			return nil
		}}}, after("B", "A"))
		r := tryControlled(t, t.Context(), g, nop, func(run *kahn.Run) {
			<-judging
			a, _ := run.NodeStatus("A")
			b, _ := run.NodeStatus("B")
			if a != kahn.Ready || b != kahn.Idle {
				t.Errorf("A is %v, B is %v", a, b)
			}
			close(release)
		})
		r.expect("A:ok B:ok", "completed")
	})

	inBubble(t, "a superseded loser that was being judged is skipped", func(t *testing.T) {
		g := graph(kahn.Node{ID: "A", Do: takes(ms)}, kahn.Node{ID: "B", InputSchema: shape{func(any) []kahn.Violation {
			time.Sleep(2 * ms)
			return nil
		}}, Do: neverStep(t)}, kahn.Node{ID: "J", After: []string{"A", "B"}, Join: kahn.AnySucceeded, CancelLosers: true})
		r := try(t, g, takes(10*ms))
		r.expect("A:ok B:S/superseded J:ok", "completed")
	})
}
