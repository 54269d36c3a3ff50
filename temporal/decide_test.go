package temporal

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// deciders is a graph whose functions decide in every way that there is.
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

// Go functions decide as they do in one process, those that panic included.
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

// A function may take longer than the SDK allows a workflow, and end its goroutine; what it returns is bounded.
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
