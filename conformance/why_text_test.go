package conformance_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
)

// TestWhyOfAnotherOutcome: the text for a node that was skipped because its source had another outcome names both outcomes.
func TestWhyOfAnotherOutcome(t *testing.T) {
	t.Parallel()
	catch := func(from string, causes ...kahn.CauseKind) []kahn.Edge {
		return []kahn.Edge{{From: from, On: kahn.OnFailure, Causes: causes}}
	}
	g := new(kahn.Graph).Add(
		kahn.Node{ID: "ok", Do: nothing}, kahn.Node{ID: "catch", Do: nothing, In: catch("ok")},
		kahn.Node{ID: "bad", Do: func(context.Context, *kahn.Step) (any, error) { return nil, errors.New("broken") }},
		kahn.Node{ID: "caught", Do: nothing, In: catch("bad")}, kahn.Node{ID: "next", Do: nothing, After: []string{"bad"}},
		kahn.Node{ID: "late", Do: nothing, In: catch("ok", kahn.CauseTimeout, kahn.CausePanic)},
	)
	res, _ := kahn.Execute(t.Context(), g, nil)
	for id, want := range map[string]string{
		"catch": "ok has completed, and only its failure leads here",
		"next":  "bad failed: step_error, and only its success leads here",
		"late":  "ok has completed, and only its failure with timeout or panic leads here",
	} {
		y, err := res.Why(id)
		require.NoError(t, err)
		require.Equal(t, want, y.String(), id)
	}
}

// TestWhyNamesTheFallback: the text for a node that took the output of its Fallback contains the failure, also for a run that continues from a
// snapshot.
func TestWhyNamesTheFallback(t *testing.T) {
	t.Parallel()
	g := new(kahn.Graph).Add(
		kahn.Node{ID: "price", Retry: kahn.Retry{MaxAttempts: 2}, Do: func(context.Context, *kahn.Step) (any, error) { return nil, errors.New("no answer") },
			Fallback: func(context.Context, error) (any, error) { return 7, nil }},
		kahn.Node{ID: "gate", Kind: kahn.KindGate, After: []string{"price"}}, kahn.Node{ID: "plain", Do: nothing},
	)
	res, err := kahn.Execute(t.Context(), g, nil)
	require.NoError(t, err)
	later, err := kahn.Execute(t.Context(), g, nil, kahn.Resume(res.Snapshot()), kahn.EarlySignals(map[string]any{"gate": "yes"}))
	require.NoError(t, err)
	for _, res := range []*kahn.Result{res, later} {
		for id, want := range map[string]string{"price": "it has completed with the output of its Fallback, after: no answer", "plain": "it has completed"} {
			y, err := res.Why(id)
			require.NoError(t, err)
			require.Equal(t, want, y.String(), id)
		}
	}
}
