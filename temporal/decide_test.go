package temporal

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sdk "go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/kahntest"
	"github.com/seed-c794f7ef/kahn/store"
)

// deciders returns a graph with every kind of function that decides.
func deciders() *kahn.Graph {
	inner := new(kahn.Graph).Add(kahn.Node{ID: "x", When: func(v kahn.View) (bool, error) { return v.Iteration() != 1, nil }})
	fails := func(context.Context, *kahn.Step) (any, error) { return nil, errStep }
	return new(kahn.Graph).Add(
		kahn.Node{ID: "no", When: func(kahn.View) (bool, error) { return false, nil }},
		kahn.Node{ID: "panics", When: func(kahn.View) (bool, error) { panic("in the guard") }, GuardErrors: kahn.GuardFail, ContinueOnFail: true},
		kahn.Node{ID: "errs", When: func(kahn.View) (bool, error) { return false, errStep }, GuardErrors: kahn.GuardSkip},
		kahn.Node{ID: "routes", Test: func(kahn.View) (any, error) { return "left", nil }},
		kahn.Node{ID: "left", In: []kahn.Edge{{From: "routes", Label: "left"}}}, kahn.Node{ID: "right", In: []kahn.Edge{{From: "routes", Label: "right"}}},
		kahn.Node{ID: "broken", Test: func(kahn.View) (any, error) { panic(errStep) }, ContinueOnFail: true},
		kahn.Node{ID: "long", Test: func(kahn.View) (any, error) { return strings.Repeat("x", 2<<20), nil }},
		kahn.Node{ID: "loop", Sub: inner, Loop: &kahn.Loop{MaxIterations: 5, Collect: true, While: func(v kahn.View) (bool, error) { return v.Iteration() < 3, nil }}},
		kahn.Node{ID: "back", Do: fails, Fallback: func(_ context.Context, err error) (any, error) { return err.Error(), nil }},
		kahn.Node{ID: "failed", Do: fails, Fallback: func(context.Context, error) (any, error) { return nil, errors.New("the fallback, too") }, ContinueOnFail: true},
	)
}

// Go functions that make decisions work as in one process, even if they panic.
func TestDecide(t *testing.T) {
	t.Parallel()
	step := func(_ context.Context, s *kahn.Step) (any, error) { return s.Path(), nil }
	here, err := kahn.Execute(t.Context(), deciders(), step)
	require.NoError(t, err)
	x := &trial{workflow: Workflow{Plan: plan(t, deciders())}, options: Options{Step: step, Blobs: new(store.MemoryBlobs)}}
	there, err := x.run(t)
	require.NoError(t, err)
	for n := range here.Nodes() {
		got, _ := there.Node(n.ID)
		require.Equal(t, n.Status, got.Status, "%s: %v", n.ID, got.Err)
		require.Equal(t, n.Cause.Kind, got.Cause.Kind, n.ID)
		require.Equal(t, n.Output, got.Output, n.ID)
		if n.Err != nil {
			require.EqualError(t, got.Err, n.Err.Error())
		}
	}
}

// A Go function may run longer than the SDK allows for a workflow, and may call Goexit. The length of its result is bounded.
func TestOddFunctions(t *testing.T) {
	t.Parallel()
	g := new(kahn.Graph).Add(
		kahn.Node{ID: "gone", Test: func(kahn.View) (any, error) { runtime.Goexit(); return nil, nil }, ContinueOnFail: true},
		kahn.Node{ID: "slow", When: func(kahn.View) (bool, error) { time.Sleep(2500 * time.Millisecond); return false, nil }},
		kahn.Node{ID: "long", Test: func(kahn.View) (any, error) { return strings.Repeat("x", 2<<20), nil }, ContinueOnFail: true},
	)
	x := &trial{workflow: Workflow{Plan: plan(t, g)}, options: Options{Step: recordedStep}}
	x.during = func(env *testsuite.TestWorkflowEnvironment, _ int) {
		env.SetWorkerOptions(worker.Options{DeadlockDetectionTimeout: 2 * time.Second})
	}
	res, err := x.run(t)
	require.NoError(t, err)
	slow, _ := res.Node("slow")
	require.Equal(t, kahn.Skipped, slow.Status)
	gone, _ := res.Node("gone")
	require.ErrorIs(t, gone.Err, kahn.ErrGoexit)
	tooLong, _ := res.Node("long")
	require.ErrorContains(t, tooLong.Err, "Options.Blobs")
}

// If a function was wrongly declared as pure, its first call fails, before the history records its result.
func TestImpure(t *testing.T) {
	t.Parallel()
	calls := 0
	counts := func() int { calls++; return calls }
	inner := func() *kahn.Graph { return kahntest.Graph(t, "x") }
	for name, row := range map[string]struct {
		node kahn.Node
		text string
	}{
		"a guard":       {kahn.Node{When: func(kahn.View) (bool, error) { return counts()%2 == 0, nil }}, "When of node"},
		"a test":        {kahn.Node{Test: func(kahn.View) (any, error) { return counts(), nil }}, "Test of node"},
		"an error":      {kahn.Node{Test: func(kahn.View) (any, error) { return nil, fmt.Errorf("call %d", counts()) }}, "the error"},
		"a panic":       {kahn.Node{When: func(kahn.View) (bool, error) { panic(counts()) }}, "the panic"},
		"a loop's test": {kahn.Node{Sub: inner(), Loop: &kahn.Loop{MaxIterations: 9, While: func(kahn.View) (bool, error) { return counts()%2 == 0, nil }}}, "Loop of node"},
		"a fallback": {kahn.Node{Do: func(context.Context, *kahn.Step) (any, error) { return nil, kahn.Permanent(errStep) },
			Fallback: func(context.Context, error) (any, error) { return counts(), nil }}, "Fallback of node"},
	} {
		row.node.ID = "n"
		x := &trial{workflow: Workflow{Plan: plan(t, new(kahn.Graph).Add(row.node))}, options: Options{Pure: true, Step: nothing}}
		_, err := x.run(t)
		var panicked *sdk.PanicError // the workflow task has failed
		require.ErrorAs(t, err, &panicked, name)
		require.ErrorContains(t, err, ErrImpure.Error(), name)
		require.ErrorContains(t, err, row.text, name)
	}
}

// A worker verifies each function of a plan once, however many items and iterations share it. Pure functions pass this check even if they panic
// or call Goexit.
func TestPureCalls(t *testing.T) {
	t.Parallel()
	v := new(verified)
	for i, row := range []struct {
		plan, path, field string
		asks              bool
	}{
		{"p", "M[0]/a", "When", true}, {"p", "M[17]/a", "When", false}, {"p", "M[0]/a", "Test", true}, {"p", "L#1/a", "When", true}, {"p", "L#2/a", "When", false},
		{"q", "M[0]/a", "When", true}, {"p", "a1", "When", true}, {"p", "a2", "When", true},
	} {
		require.Equal(t, row.asks, v.asks(row.plan, row.path, row.field), "%d", i)
	}
	for name, do := range map[string]func() (any, error){
		"a value":  func() (any, error) { return map[string]any{"label": "left"}, nil },
		"an error": func() (any, error) { return nil, errors.New("always") },
		"a panic":  func() (any, error) { panic("always") },
		"a goexit": func() (any, error) { runtime.Goexit(); return nil, nil },
	} {
		x := &trial{workflow: Workflow{Plan: plan(t, new(kahn.Graph).Add(kahn.Node{ID: "n", Test: func(kahn.View) (any, error) { return do() }}))}, options: Options{Pure: true, Step: nothing}}
		res, err := x.run(t)
		require.NotNil(t, res, "%s: %v", name, err)
		n, _ := res.Node("n")
		require.Equal(t, name == "a value", n.Status == kahn.Completed, name)
	}
}
