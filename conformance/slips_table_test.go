package conformance_test

import (
	"errors"
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/machine"
	"github.com/seed-c794f7ef/kahn/store"
)

// drivers are the ways to perform a graph. All must give the same result.
var drivers = map[string]func(t *testing.T, g *kahn.Graph, step kahn.StepFunc, opts ...kahn.Option) (*kahn.Result, error){
	"Execute": func(t *testing.T, g *kahn.Graph, step kahn.StepFunc, opts ...kahn.Option) (*kahn.Result, error) {
		return kahn.Execute(t.Context(), g, step, opts...)
	},
	"waves": func(t *testing.T, g *kahn.Graph, step kahn.StepFunc, opts ...kahn.Option) (*kahn.Result, error) {
		return kahn.Execute(t.Context(), g, step, append(opts, kahn.Waves)...)
	},
	"over a store": func(t *testing.T, g *kahn.Graph, step kahn.StepFunc, opts ...kahn.Option) (*kahn.Result, error) {
		return kahn.Execute(t.Context(), g, step, append(opts, kahn.Durable(new(store.Memory)), kahn.RunID("1"))...)
	},
	"Coordinator": driven,
	"Coordinator with a history": func(t *testing.T, g *kahn.Graph, step kahn.StepFunc, opts ...kahn.Option) (*kahn.Result, error) {
		type reply struct {
			value    any
			err      error
			panicked any
		}
		history := map[string]reply{}
		record := kahn.GraphCalls(func(path, field string, call func() (any, error)) (any, error) {
			defer func() {
				if v := recover(); v != nil {
					history[path+field] = reply{panicked: v}
					panic(v)
				}
			}()
			value, err := call()
			history[path+field] = reply{value, err, nil}
			return value, err
		})
		first, _ := driven(t, g, step, append(opts, record)...)
		replay := kahn.GraphCalls(func(path, field string, _ func() (any, error)) (any, error) {
			r, ok := history[path+field]
			if !ok {
				return nil, errors.New("no such call")
			}
			if r.panicked != nil {
				panic(r.panicked)
			}
			return r.value, r.err
		})
		res, err := driven(t, g, step, append(opts, replay)...)
		require.Equal(t, statusesOf(first.Nodes()), statusesOf(res.Nodes()), "a replay decides the same")
		return res, err
	},
}

// driven performs a graph with a Coordinator.
func driven(t *testing.T, g *kahn.Graph, step kahn.StepFunc, opts ...kahn.Option) (*kahn.Result, error) {
	t.Helper()
	c := coordinate(t, g, opts...)
	for s, ok := c.Next(); ok; s, ok = c.Next() {
		do := step
		if n, _ := c.Run().Plan().At(s.Path()); n.Do != nil {
			do = n.Do
		}
		reply := s.Call().Perform(t.Context(), do, nil)
		require.NoError(t, c.Return(s, reply.Value, reply.Err))
	}
	return c.Result()
}

// countingGraph returns a graph with a step that counts and fails, and a node that decides by the count.
func countingGraph(decides kahn.Node) *kahn.Graph {
	return graph(
		kahn.Node{ID: "count", Do: always(errStep)}, decides,
		kahn.Node{ID: "batch", In: []kahn.Edge{{From: "large?", Label: "true"}}},
		kahn.Node{ID: "inline", In: []kahn.Edge{{From: "large?", Label: "false"}}},
	)
}

const unreadText = `unread failure: the output of node "count" was read, and it has none (node "count": step_error: the step broke): ask for its status or its error as well`

// A mistake in a guard or a condition fails its node, with an error that says what is wrong and how to correct it, with every driver.
func TestSlipsOfTests(t *testing.T) {
	t.Parallel()
	count := func(v kahn.View) int { n, _ := v.Output("count").(int); return n }
	large := func(v kahn.View) (bool, error) { return count(v) > 1000, nil }
	guarded := func(when func(kahn.View) (bool, error)) *kahn.Graph {
		return graph(kahn.Node{ID: "count", Do: always(errStep)}, kahn.Node{ID: "delete all", When: when, Join: kahn.AllDoneMinOne, After: []string{"count", "dry"}}, kahn.Node{ID: "dry"}, kahn.Node{ID: "far"})
	}
	joined := func(n kahn.Node, join kahn.Join) kahn.Node { n.Join = join; return n }
	const (
		orJoin = ", or set Join: AllSucceeded to be stopped by failures"
		fails  = `guard could not decide: node "delete all" fails: `
	)
	for _, c := range []struct {
		name, node, text, warning string
		is                        error
		g                         *kahn.Graph
	}{
		{"1 If reads", "large?", unreadText + orJoin, "", kahn.ErrUnreadFailure, countingGraph(kahn.If("large?", large, "count"))},
		{"1 Switch reads", "large?", unreadText + orJoin, "", kahn.ErrUnreadFailure, countingGraph(kahn.Switch("large?", func(v kahn.View) (string, error) { return fmt.Sprint(count(v) > 9), nil }, "count"))},
		{"1 any other join", "large?", unreadText + orJoin, "", kahn.ErrUnreadFailure, countingGraph(joined(kahn.If("large?", large, "count"), kahn.AllDone))},
		{"1 the error of the test, too", "large?", unreadText + orJoin + ": no count", "", kahn.ErrUnreadFailure, countingGraph(kahn.If("large?", func(v kahn.View) (bool, error) { count(v); return false, errors.New("no count") }, "count"))},
		{"1 one of two", "large?", unreadText + orJoin, "", kahn.ErrUnreadFailure, countingGraph(kahn.If("large?", func(v kahn.View) (bool, error) { return v.Status("other") == kahn.Completed || count(v) > 9, nil }, "count", "other")).Add(kahn.Node{ID: "other", Do: always(errStep)})},
		{"1 the test of a loop", "loop", unreadText, "", kahn.ErrUnreadFailure, graph(kahn.Node{ID: "loop", Loop: &kahn.Loop{While: large, MaxIterations: 3}, Sub: graph(kahn.Node{ID: "count", Do: always(errStep)}, kahn.Node{ID: "catch", In: []kahn.Edge{{From: "count", On: kahn.OnFailure}}})})},
		{"1 a guard", "delete all", unreadText + orJoin, fails + unreadText + orJoin, kahn.ErrUnreadFailure, guarded(large)},
		{"2 a guard returns an error", "delete all", "the step broke", fails + "the step broke", errStep, guarded(func(kahn.View) (bool, error) { return true, errStep })},
		{"2 a guard panics", "delete all", "panic: oh", fails + "panic: oh", nil, guarded(func(kahn.View) (bool, error) { panic("oh") })},
		{"2 a guard asks a node that is not an ancestor", "delete all", `not an ancestor: "far": no edge leads from it to this node, directly or through others (ancestors: "count", "dry")`, fails + `not an ancestor: "far": no edge leads from it to this node, directly or through others (ancestors: "count", "dry")`, kahn.ErrNotAncestor, guarded(func(v kahn.View) (bool, error) { return v.Status("far") != kahn.Failed, nil })},
	} {
		for driver, drive := range drivers {
			t.Run(c.name+", "+driver, func(t *testing.T) {
				res, err := drive(t, c.g, nop)
				require.Error(t, err)
				require.Equal(t, kahn.RunFailed, res.Status)
				n, _ := res.Node(c.node)
				require.Equal(t, kahn.Failed, n.Status)
				require.Equal(t, kahn.CauseConditionError, n.Cause.Kind)
				require.Equal(t, c.text, errors.Unwrap(n.Err).Error())
				if c.is != nil {
					require.ErrorIs(t, n.Err, c.is)
				}
				if c.warning == "" {
					require.Empty(t, res.Warnings)
					return
				}
				require.Len(t, res.Warnings, 1)
				require.EqualError(t, res.Warnings[0], c.warning)
				require.ErrorIs(t, res.Warnings[0], kahn.ErrGuard)
				require.EqualError(t, n.GuardErr, c.text)
			})
		}
	}
}

// These are not mistakes: a test that asks for the status or the error, a skipped or a tolerated node, a guard with another policy.
func TestNoSlips(t *testing.T) {
	t.Parallel()
	reads := func(v kahn.View) (bool, error) { return v.Output("count") != nil, nil }
	before := func(v kahn.View) (bool, error) {
		return v.Status("count") == kahn.Completed && v.Output("count") != nil, nil
	}
	after := func(v kahn.View) (bool, error) { return v.Output("count") != nil && true || v.Err("count") == nil, nil }
	rebuilt := func(v kahn.View) (bool, error) { return kahn.NewView(v.Data()).Output("count") != nil, nil }
	for _, c := range []struct {
		name string
		g    *kahn.Graph
	}{
		{"asks before", countingGraph(kahn.If("large?", before, "count"))},
		{"asks after", countingGraph(kahn.If("large?", after, "count"))},
		{"asks for everything", countingGraph(kahn.If("large?", rebuilt, "count"))},
		{"skips", graph(kahn.Node{ID: "count", Disabled: true}, kahn.If("large?", reads, "count"), kahn.Node{ID: "batch", In: []kahn.Edge{{From: "large?", Label: "true"}}})},
		{"tolerated", graph(kahn.Node{ID: "count", Do: always(errStep), ContinueOnFail: true}, kahn.If("large?", reads, "count"), kahn.Node{ID: "batch", In: []kahn.Edge{{From: "large?", Label: "true"}}})},
		{"allowed", graph(kahn.Node{ID: "count", Do: always(errStep)}, kahn.Node{ID: "x", Join: kahn.OneFailed, GuardErrors: kahn.GuardAllow, When: reads, After: []string{"count"}})},
		{"skipped", graph(kahn.Node{ID: "count", ContinueOnFail: true, Do: always(errStep)}, kahn.Node{ID: "x", GuardErrors: kahn.GuardSkip, After: []string{"count"}, When: func(kahn.View) (bool, error) { return true, errStep }})},
	} {
		for driver, drive := range drivers {
			t.Run(c.name+", "+driver, func(t *testing.T) {
				res, err := drive(t, c.g, nop)
				require.NoError(t, err)
				require.Equal(t, kahn.RunCompleted, res.Status)
			})
		}
	}
}

// A guard that calls Goexit also fails its node.
func TestGuardEndsItsGoroutine(t *testing.T) {
	t.Parallel()
	g := graph(kahn.Node{ID: "delete all", When: func(kahn.View) (bool, error) { runtime.Goexit(); return true, nil }})
	res, err := kahn.Execute(t.Context(), g, nop)
	require.Error(t, err)
	n, _ := res.Node("delete all")
	require.Equal(t, kahn.Failed, n.Status)
	require.ErrorIs(t, n.Err, kahn.ErrGoexit)
	require.Equal(t, kahn.CauseConditionError, n.Cause.Kind)
	require.ErrorIs(t, n.GuardErr, kahn.ErrGoexit)
	require.Len(t, res.Warnings, 1)
}

// If guards of items or iterations cannot decide, the run has one warning per node of the graph. The warning contains the path of the first
// failure.
func TestGuardWarningsInside(t *testing.T) {
	t.Parallel()
	broken := func(kahn.View) (bool, error) { return false, errStep }
	g := graph(kahn.Node{ID: "m", Params: map[string]any{"of": []int{1, 2, 3}}, Map: &kahn.Map{Over: "of"}, Sub: graph(
		kahn.Node{ID: "x", When: broken, GuardErrors: kahn.GuardAllow}, kahn.Node{ID: "y", When: broken, GuardErrors: kahn.GuardSkip},
	)})
	res, err := kahn.Execute(t.Context(), g, nop, kahn.Limit(1))
	require.NoError(t, err)
	require.Len(t, res.Warnings, 2)
	require.EqualError(t, res.Warnings[0], `guard could not decide: node "m[0]/x" runs: the step broke`)
	require.EqualError(t, res.Warnings[1], `guard could not decide: node "m[0]/y" is skipped: the step broke`)
}

// A coordinator that drives a State without a Run gets the same errors about these mistakes.
func TestSlipsBesideAState(t *testing.T) {
	t.Parallel()
	plan, err := countingGraph(kahn.If("large?", func(v kahn.View) (bool, error) { return v.Output("count") != nil, nil }, "count")).Compile()
	require.NoError(t, err)
	_, out, err := evaluateAfterFailure(t, plan)
	require.ErrorIs(t, err, kahn.ErrUnreadFailure)
	require.Equal(t, kahn.CauseConditionError, out.Cause)

	plan, err = countingGraph(kahn.If("large?", func(v kahn.View) (bool, error) {
		return v.Output("count") != nil && v.Err("count") == nil, v.Unread("far")
	}, "count")).Compile()
	require.NoError(t, err)
	_, _, err = evaluateAfterFailure(t, plan)
	require.ErrorIs(t, err, kahn.ErrUnreadFailure, "what is not reached is not asked")

	plan, err = countingGraph(kahn.If("large?", func(v kahn.View) (bool, error) { return v.Err("count") == nil && v.Output("count") != nil, nil }, "count")).Compile()
	require.NoError(t, err)
	value, _, err := evaluateAfterFailure(t, plan)
	require.NoError(t, err)
	require.Equal(t, false, value)
}

// evaluateAfterFailure drives the State of a countingGraph up to the condition, and evaluates the condition.
func evaluateAfterFailure(t *testing.T, plan *kahn.Plan) (value any, out machine.Outcome, err error) {
	t.Helper()
	st, err := kahn.NewState(plan)
	require.NoError(t, err)
	task, ok := st.Next()
	require.True(t, ok)
	out, err = plan.Conclude(task.Ref, nil, errStep)
	require.ErrorIs(t, err, errStep)
	require.NoError(t, st.Settle(task.Token, out))
	task, ok = st.Next()
	require.True(t, ok)
	require.Equal(t, "large?", plan.ID(task.Ref))
	return plan.Evaluate(st, task.Ref, &kahn.Values{Errs: map[string]error{"count": errStep}})
}

// Unread does not allocate if no ancestor failed.
func TestUnreadAllocatesNothing(t *testing.T) {
	v := kahn.NewView(kahn.ViewData{Nodes: map[string]kahn.NodeData{"a": {Status: kahn.Completed, Output: 1}, "b": {Status: kahn.Failed, Tolerated: true}, "c": {Status: kahn.Failed, Err: errStep}}})
	require.Zero(t, testing.AllocsPerRun(100, func() { _, _, _ = v.Unread("a"), v.Unread("b"), v.Unread("nobody") }))
	require.EqualError(t, v.Unread("c"), `unread failure: the output of node "c" was read, and it has none (the step broke): ask for its status or its error as well, or set Join: AllSucceeded to be stopped by failures`)
	var allocs float64
	g := graph(kahn.Node{ID: "count", Do: yields(0, 7)}, kahn.If("large?", func(v kahn.View) (bool, error) {
		allocs = testing.AllocsPerRun(100, func() { _, _, _ = v.Output("count"), v.Status("count"), v.Unread("count") })
		return true, nil
	}, "count"))
	_, err := kahn.Execute(t.Context(), g, nop)
	require.NoError(t, err)
	require.Zero(t, allocs)
}
