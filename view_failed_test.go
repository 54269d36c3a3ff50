package kahn_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
)

// TestPanicOfAConditionAfterAFailure: a condition that panics because a failed node has no output fails with the cause, and not only with
// the panic.
func TestPanicOfAConditionAfterAFailure(t *testing.T) {
	t.Parallel()
	declined := errors.New("declined")
	node := func(test func(v kahn.View) (bool, error)) *kahn.Graph {
		return new(kahn.Graph).Add(kahn.Node{ID: "order", Do: func(_ context.Context, _ *kahn.Step) (any, error) { return nil, declined }},
			kahn.If("big?", test, "order"), kahn.Node{ID: "split", In: []kahn.Edge{{From: "big?", Label: "true"}}})
	}
	for name, opts := range map[string][]kahn.Option{"eager": nil, "waves": {kahn.Waves}} {
		res, err := kahn.Execute(t.Context(), node(func(v kahn.View) (bool, error) { return v.Output("order").(int) > 9, nil }), none, opts...)
		require.ErrorIs(t, err, kahn.ErrUnreadFailure, name)
		require.ErrorContains(t, err, `the output of node "order" was read, and it has none (node "order": step_error: declined)`, name)
		require.ErrorContains(t, err, "panic: interface conversion", name)
		n, _ := res.Node("big?")
		require.Equal(t, kahn.CauseConditionError, n.Cause.Kind, name)
		var panicked *kahn.PanicError
		require.ErrorAs(t, n.Err, &panicked, name)

		_, err = kahn.Execute(t.Context(), node(func(v kahn.View) (bool, error) {
			if v.Err("order") != nil {
				panic("oh")
			}
			return true, nil
		}), none, opts...)
		require.NotErrorIs(t, err, kahn.ErrUnreadFailure, name)
		require.ErrorContains(t, err, "panic: oh", name)
	}
}

// TestUpstreamErrOfNoAncestor: a step that asks for the error of a node that is not before it gets nil, and the log says so.
func TestUpstreamErrOfNoAncestor(t *testing.T) {
	t.Parallel()
	var logged []string
	g := new(kahn.Graph).Add(
		kahn.Node{ID: "pay", Do: func(_ context.Context, _ *kahn.Step) (any, error) { return nil, errors.New("declined") }},
		kahn.Node{ID: "sorry", In: []kahn.Edge{{From: "pay", On: kahn.OnFailure}}, Do: func(_ context.Context, s *kahn.Step) (any, error) {
			if s.UpstreamErr("pay") == nil || s.UpstreamErr("pya") != nil {
				return nil, errors.New("wrong")
			}
			return nil, nil
		}})
	_, err := kahn.Execute(t.Context(), g, none, kahn.OnEvent(func(e event.Event) {
		if r, ok := e.Payload.(event.LogRecord); ok {
			logged = append(logged, r.Level.String()+" "+r.Message)
		}
	}))
	require.NoError(t, err)
	require.Equal(t, []string{`WARN UpstreamErr: not an ancestor: "pya"; did you mean "pay"? (there is "pay")`}, logged)
}

func none(context.Context, *kahn.Step) (any, error) { return nil, nil }
