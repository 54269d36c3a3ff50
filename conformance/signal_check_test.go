package conformance_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/kahntest"
)

// Checking a request changes nothing. In every state of a run the check returns the answer that the request would get.
func TestCheckedRequests(t *testing.T) {
	nodes, edges, err := kahntest.Parse("a>ask ask-[yes]>b ask-[no]>c step>last never>late off>far ask{gate} late{gate} far{gate} off{off}")
	require.NoError(t, err)
	inner := kahntest.Graph(t, "x>inside inside{gate}")
	g := new(kahn.Graph).Add(nodes...).Connect(edges...).Add(kahn.Node{ID: "S", Sub: inner})
	plan, err := g.Compile()
	require.NoError(t, err)
	c, err := kahn.NewCoordinator(plan, deskEpoch, kahn.RunID("r"))
	require.NoError(t, err)
	run := c.Run()
	text := func(err error) string {
		if err == nil {
			return ""
		}
		return err.Error()
	}
	state := func() string {
		data, err := json.Marshal(run.Snapshot())
		require.NoError(t, err)
		_, last := run.EventRange()
		return fmt.Sprint(last, string(data))
	}
	type request struct {
		gate  string
		value any
	}
	signal := func(want error, r request) {
		t.Helper()
		before := state()
		checked := run.CheckSignal(r.gate, r.value)
		require.Equal(t, before, state(), "a check has changed the run")
		sent := run.Signal(context.Background(), r.gate, r.value)
		require.Equal(t, text(sent), text(checked), "%v", r)
		require.ErrorIs(t, checked, want, "%v", r)
	}
	cancel := func(want error, id string) {
		t.Helper()
		before := state()
		checked := run.CheckCancelNode(id)
		require.Equal(t, before, state(), "a check has changed the run")
		require.Equal(t, text(run.CancelNode(id)), text(checked), id)
		require.ErrorIs(t, checked, want, id)
	}
	reply := map[string]error{"step": kahn.Suspend("token", nil, nil), "never": errors.New("no")}
	perform := func() {
		for s, ok := c.Next(); ok; s, ok = c.Next() {
			err := reply[s.ID()]
			delete(reply, s.ID())
			require.NoError(t, c.Return(s, nil, err))
		}
	}
	signal(kahn.ErrUnknownGate, request{"token", 1})
	perform()
	signal(kahn.ErrChoice, request{"ask", "perhaps"})
	signal(kahn.ErrUnknownGate, request{"nobody", 1})
	signal(kahn.ErrUnknownGate, request{"a", 1})
	signal(kahn.ErrTransition, request{"late", 1})
	signal(kahn.ErrBadValue, request{"ask", kahn.Decision{Value: "yes", ID: "\xff"}})
	signal(nil, request{"ask", kahn.Decision{Value: "yes", ID: "1"}})
	signal(nil, request{"ask", kahn.Decision{Value: "yes", ID: "1"}})
	signal(kahn.ErrSignalConflict, request{"ask", kahn.Decision{Value: "no", ID: "1"}})
	signal(kahn.ErrAnswered, request{"ask", "no"})
	signal(nil, request{"token", 7})
	signal(kahn.ErrUnknownGate, request{"token", 8})
	signal(kahn.ErrAnswered, request{"step", 8})
	signal(nil, request{"S/inside", 1})
	signal(kahn.ErrUnknownGate, request{"S/nobody", 1})
	cancel(kahn.ErrUnknownNode, "nobody")
	cancel(kahn.ErrTransition, "a")
	cancel(nil, "last")
	perform()
	res, err := c.Result()
	require.Error(t, err)
	require.True(t, res.Status.Terminal())
	signal(kahn.ErrFinished, request{"far", 1})
	signal(nil, request{"ask", kahn.Decision{Value: "yes", ID: "1"}})
	cancel(kahn.ErrFinished, "far")
}

// A host reports that an attempt's process keeps dying. The node then fails with that cause, is not retried, and its failure edges are followed.
func TestCoordinatorCrash(t *testing.T) {
	for name, row := range map[string]struct {
		node kahn.Node
		err  error
		want string
	}{
		"nobody answers":   {kahn.Node{}, errors.New("oh"), "a:F b:X"},
		"no other attempt": {kahn.Node{Retry: kahn.Retry{MaxAttempts: 5, RetryOn: []kahn.CauseKind{kahn.CauseStepError, kahn.CausePanic}}}, nil, "a:F b:X"},
		"a fallback":       {kahn.Node{Fallback: func(context.Context, error) (any, error) { return 7, nil }}, kahn.ErrCrashed, "a:ok b:ok"},
		"tolerated":        {kahn.Node{ContinueOnFail: true}, nil, "a:F b:ok"},
	} {
		t.Run(name, func(t *testing.T) {
			a := row.node
			a.ID = "a"
			g := new(kahn.Graph).Add(a, kahn.Node{ID: "b", After: []string{"a"}})
			var events []event.Event
			c := coordinate(t, g, kahn.OnEvent(func(e event.Event) { events = append(events, e) }))
			s := nextOf(t, c, "a")
			require.NoError(t, c.Crash(s, row.err))
			require.ErrorIs(t, c.Crash(s, row.err), kahn.ErrStale)
			for s, ok := c.Next(); ok; s, ok = c.Next() {
				require.Equal(t, "b", s.ID())
				require.NoError(t, c.Return(s, nil, nil))
			}
			res, _ := c.Result()
			require.NoError(t, kahntest.CheckEvents(g, res, events))
			kahntest.RequireStatuses(t, res, row.want)
			n, _ := res.Node("a")
			if n.Status == kahn.Failed {
				require.Equal(t, kahn.CauseCrashed, n.Cause.Kind)
				require.ErrorIs(t, n.Err, kahn.ErrCrashed)
			}
			if row.err != nil && n.Err != nil {
				require.ErrorIs(t, n.Err, row.err)
			}
			require.Equal(t, 1, n.Attempts)
		})
	}
}
