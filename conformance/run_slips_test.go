package conformance_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/kahntest"
)

// The counts of a Result agree with its nodes, even if the run was left while nodes waited.
func TestResultCountsItsNodes(t *testing.T) {
	t.Parallel()
	g := graph(kahn.Node{ID: "sub", Sub: graph(kahn.Node{ID: "ask", Kind: kahn.KindGate})}, after("next", "sub"), after("last", "next"))
	run, err := kahn.Start(t.Context(), g, nothing)
	require.NoError(t, err)
	_, err = run.WaitFor(t.Context(), "sub", kahn.Suspended)
	require.NoError(t, err)
	run.Leave()
	res, err := run.Wait()
	require.NoError(t, err)
	counts := map[kahn.Status]int{}
	for n := range res.Nodes() {
		counts[n.Status]++
	}
	require.Equal(t, map[kahn.Status]int{kahn.Suspended: 1, kahn.Waiting: 1, kahn.Idle: 1}, counts)
	require.Equal(t, counts, run.Counts())
	for s := kahn.Idle; s <= kahn.Skipped; s++ {
		require.Equal(t, counts[s], res.Count(s), s)
	}
}

// After a step has returned a graph, the run drops what the step still reports, because the attempt now belongs to the graph.
func TestStepReportsNothingAfterExpand(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var kept *kahn.Step
		rec := newRecorder()
		g := graph(kahn.Node{ID: "x", Do: func(_ context.Context, s *kahn.Step) (any, error) {
			kept = s
			s.Emit("in time")
			s.Tokens(1, 2)
			return nil, kahn.Expand(graph(kahn.Node{ID: "ask", Kind: kahn.KindGate}), nil, nil)
		}})
		run, err := kahn.Start(t.Context(), g, nil, kahn.OnEvent(rec.add))
		require.NoError(t, err)
		synctest.Wait()
		status, _ := run.NodeStatus("x")
		require.Equal(t, kahn.Suspended, status)
		kept.Emit("late")
		kept.Log(0, "late")
		kept.Tokens(10, 20)
		require.NoError(t, run.Signal(context.Background(), "x/ask", "yes"))
		res, err := run.Wait()
		require.NoError(t, err)
		require.NoError(t, kahntest.CheckEvents(g, res, rec.all()))
		deltas := 0
		for _, e := range rec.all() {
			require.NotEqual(t, event.NodeLog, e.Type)
			if payload, is := e.Payload.(event.Delta); is {
				require.Equal(t, "in time", payload.Chunk)
				deltas++
			}
		}
		require.Equal(t, 1, deltas)
	})
}

// Functions that take node ids of the graph refuse a path, with an error that says so.
func TestPathsThatAreNoIDs(t *testing.T) {
	t.Parallel()
	g := graph(kahn.Node{ID: "x", Sub: graph(kahn.Node{ID: "ask", Kind: kahn.KindGate})}, kahn.Node{ID: "m", Map: &kahn.Map{Over: "of"}, Params: map[string]any{"of": []int{1}}})
	run, err := kahn.Start(t.Context(), g, nothing)
	require.NoError(t, err)
	defer func() { run.Cancel(); _, _ = run.Wait() }()
	_, err = run.WaitFor(t.Context(), "x", kahn.Suspended)
	require.NoError(t, err)
	const text = `unknown node: "x/ask": only nodes of the graph itself can be named, such as "x"`
	require.EqualError(t, run.CancelNode("x/ask"), text)
	_, err = run.WaitFor(t.Context(), "x/ask")
	require.EqualError(t, err, text)
	require.ErrorIs(t, err, kahn.ErrUnknownNode)
}

// The error about an invalid enum option names the option, even for the zero SuspendMode.
func TestOptionsOfNoValueAreNamed(t *testing.T) {
	t.Parallel()
	plan, err := graph(after("a")).Compile()
	require.NoError(t, err)
	for text, o := range map[string]kahn.Option{
		"bad option: SuspendMode 0 is none of drain, stop": kahn.SuspendMode(0), "bad option: SuspendMode 3 is none of drain, stop": kahn.SuspendMode(3),
		"bad option: Mode(2)": kahn.Mode(2), "bad option: StatusRule(3)": kahn.StatusRule(3), "bad option: FailureMode(3)": kahn.FailureMode(3),
		"bad option: StopMode(2)": kahn.StopMode(2), "bad option: PruneMode(2)": kahn.PruneMode(2), "bad option: OnMissing(3)": kahn.TestMode{OnMissing: 3},
	} {
		_, err := kahn.NewState(plan, o)
		require.ErrorIs(t, err, kahn.ErrBadOption)
		require.EqualError(t, err, text)
	}
}
