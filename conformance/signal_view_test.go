package conformance_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// seenDecisions records the decisions that a step's View shows, also in another process.
type seenDecisions map[string]*kahn.Decision

func (m seenDecisions) step(t *testing.T, ids ...string) kahn.StepFunc {
	return func(_ context.Context, s *kahn.Step) (any, error) {
		text, err := json.Marshal(s.Call())
		require.NoError(t, err)
		var c kahn.Call
		require.NoError(t, json.Unmarshal(text, &c))
		for _, id := range ids {
			m[id] = s.View().Decision(id)
			require.Equal(t, m[id], kahn.NewStep(s, c, nil).View().Decision(id), "in another process")
		}
		return nil, nil
	}
}

// A step, a guard and a condition that follow a gate see who answered the gate.
func TestViewDecision(t *testing.T) {
	ann := kahn.Decision{Value: []any{"yes", 7}, Actor: "ann", Comment: "as agreed", ID: "message-1"}
	inBubble(t, "of gates, in the same life", func(t *testing.T) {
		seen := seenDecisions{}
		g := graph(
			kahn.Node{ID: "answered", Kind: kahn.KindGate}, kahn.Node{ID: "by a bare value", Kind: kahn.KindGate},
			kahn.Node{ID: "in vain", Kind: kahn.KindGate, Gate: &kahn.Gate{Timeout: time.Minute, OnTimeout: kahn.GateLabel}}, after("step"),
			kahn.Node{ID: "B", After: []string{"answered", "by a bare value", "in vain", "step"}, Do: seen.step(t, "answered", "by a bare value", "in vain", "step", "later"),
				When: func(v kahn.View) (bool, error) { return v.Decision("answered").Actor == "ann", nil }},
			kahn.If("by ann?", func(v kahn.View) (bool, error) { return v.Decision("answered").Actor == "ann", nil }, "answered"),
			kahn.Node{ID: "yes", In: []kahn.Edge{{From: "by ann?", Label: "true"}}}, kahn.Node{ID: "later", After: []string{"B"}},
		)
		r := try(t, g, nop, kahn.EarlySignals(map[string]any{"answered": ann, "by a bare value": "yes"}))
		r.expect("answered:ok by a bare value:ok in vain:ok step:ok B:ok by ann?:ok yes:ok later:ok", "completed")
		require.Equal(t, seenDecisions{"answered": &ann, "by a bare value": {Value: "yes"}, "in vain": nil, "step": nil, "later": nil}, seen)
		seen["answered"].Actor = "eve"
		require.Equal(t, "ann", r.node("answered").Decision.Actor, "the step has a copy")
	})
	inBubble(t, "in a later life", func(t *testing.T) {
		seen, db := seenDecisions{}, new(store.Memory)
		g := graph(kahn.Node{ID: "first", Kind: kahn.KindGate}, kahn.Node{ID: "second", Kind: kahn.KindGate, After: []string{"first"}},
			kahn.Node{ID: "waits", After: []string{"second"}, Do: func(_ context.Context, s *kahn.Step) (any, error) {
				if _, ok := s.Resumed(); ok {
					return nil, nil
				}
				return nil, kahn.Suspend("job", nil, nil)
			}},
			kahn.Node{ID: "B", After: []string{"waits"}, Do: seen.step(t, "first", "second", "waits")})
		for _, gate := range []string{"first", "second", "job"} {
			try2(t, g, nop, kahn.RunID("r"), kahn.Durable(db), kahn.EarlySignals(map[string]any{gate: kahn.Decision{Value: gate, Actor: "ann", Comment: "of " + gate}}))
		}
		require.Equal(t, seenDecisions{"first": {Value: "first", Actor: "ann", Comment: "of first"}, "second": {Value: "second", Actor: "ann", Comment: "of second"},
			"waits": {Value: "job", Actor: "ann", Comment: "of job"}}, seen)
	})
	inBubble(t, "in a memoized step", func(t *testing.T) {
		g := graph(kahn.Node{ID: "approve", Kind: kahn.KindGate}, kahn.Node{ID: "sign", After: []string{"approve"}, Memo: "v1", Do: func(_ context.Context, s *kahn.Step) (any, error) {
			return "signed by " + s.View().Decision("approve").Actor, nil
		}})
		var memo kahn.Memo
		for _, row := range []struct {
			actor string
			hit   bool
		}{{"ann", false}, {"bob", false}, {"ann", true}} {
			r := try(t, g, nop, &memo, kahn.EarlySignals(map[string]any{"approve": kahn.Decision{Value: "yes", Actor: row.actor}}))
			require.Equal(t, "signed by "+row.actor, r.node("sign").Output)
			require.Equal(t, row.hit, r.node("sign").Memoized, row.actor)
		}
	})
}
