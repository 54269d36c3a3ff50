package conformance_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/machine"
)

// drive runs the scenario to its end and returns the driven State.
func (s *scenario) drive(t *testing.T, seed uint64, limit int, opts ...kahn.Option) (*kahn.Plan, *machine.State) {
	plan, err := s.graph.Compile()
	require.NoError(t, err)
	st, err := kahn.NewState(plan, append(opts, kahn.Limit(limit))...)
	require.NoError(t, err)
	c := &coordinator{t, s, plan, st, rand.New(rand.NewPCG(seed, 0)), map[string]any{}, nil, limit}
	for !st.Done() {
		if c.rng.IntN(2) == 0 {
			st = cutState(t, plan, st, append(opts, kahn.Limit(limit))...)
			c.st = st
		}
		for task, ok := st.Next(); ok; task, ok = st.Next() {
			if task.Check {
				verdict := c.verdict(task.Ref)
				require.NoError(t, st.Checked(task.Token, verdict))
				require.ErrorIs(t, st.Checked(task.Token, verdict), kahn.ErrStale)
				continue
			}
			require.Equal(t, kahn.Running, st.Status(task.Ref))
			c.running = append(c.running, task)
		}
		if st.Done() {
			break // a check was the last decision
		}
		require.NotEmpty(t, c.running, "nothing to do, and not done")
		if limit > 0 {
			slots := 0
			for _, task := range c.running {
				if plan.Node(task.Ref).Test == nil {
					slots++
				}
			}
			require.LessOrEqual(t, slots, limit)
		}
		i := c.rng.IntN(len(c.running))
		task := c.running[i]
		c.running = append(c.running[:i], c.running[i+1:]...)
		c.settle(task)
	}
	return plan, st
}

func TestStateAllocatesNothing(t *testing.T) {
	plan, err := chainGraph(1200).Compile()
	require.NoError(t, err)
	st, err := kahn.NewState(plan)
	require.NoError(t, err)
	task, ok := st.Next()
	require.True(t, ok)
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		if task, ok, err = st.SettleNext(task.Token, completed); !ok || err != nil {
			panic("no next task")
		}
	}))

	var wide kahn.Graph
	wide.Add(kahn.Node{ID: "join", Join: kahn.AtLeast(900)})
	for i := range 1200 {
		id := fmt.Sprint("n", i)
		wide.Add(kahn.Node{ID: id}).Connect(kahn.Edge{From: id, To: "join"})
	}
	_, st = stateOf(t, &wide)
	_, _ = st.Next()
	task, _ = st.Next()
	require.NoError(t, st.Settle(task.Token, completed)) // allocates the objects that a run allocates once
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		task, _ := st.Next()
		if err := st.Settle(task.Token, completed); err != nil {
			panic(err)
		}
	}))
}

// TestCallsThatTheTableForbids: a call that a node's status does not allow returns an error and changes nothing.
func TestCallsThatTheTableForbids(t *testing.T) {
	plan, st := stateOf(t, chainGraph(2))
	a, b := ref(t, plan, "n0"), ref(t, plan, "n1")
	task, ok := st.Next()
	require.True(t, ok)
	require.Equal(t, a, task.Ref)

	require.ErrorIs(t, st.Settle(machine.Token{Ref: b, Attempt: 1}, completed), kahn.ErrStale)
	require.ErrorIs(t, st.Settle(machine.Token{Ref: 99, Attempt: 1}, completed), kahn.ErrUnknownNode)
	require.ErrorIs(t, st.Settle(machine.Token{Ref: -1}, completed), kahn.ErrUnknownNode)
	require.ErrorIs(t, st.Settle(task.Token, machine.Outcome{Status: kahn.Ready}), kahn.ErrTransition)
	require.ErrorIs(t, st.Settle(task.Token, machine.Outcome{Status: kahn.Failed}), kahn.ErrBadValue)
	require.ErrorIs(t, st.Settle(task.Token, machine.Outcome{Status: kahn.Cancelled, Cause: 200}), kahn.ErrBadValue)
	require.ErrorIs(t, st.Requeue(task.Token), kahn.ErrStale)
	require.ErrorIs(t, st.Resume(task.Token), kahn.ErrStale)
	require.ErrorIs(t, st.Checked(task.Token, machine.CheckVerdict{}), kahn.ErrStale)
	require.ErrorIs(t, st.Fail(task.Token, kahn.CauseTimeout), kahn.ErrTransition)
	require.ErrorIs(t, st.AbortNode(a, kahn.CauseContext), kahn.ErrBadValue)
	require.ErrorIs(t, st.StopNode(99, kahn.CauseContext), kahn.ErrUnknownNode)
	require.ErrorIs(t, st.Stop(kahn.CauseNone), kahn.ErrBadValue)
	for cause := kahn.CauseNone; cause <= kahn.CauseSuperseded; cause++ {
		own := cause >= kahn.CauseStepError && cause < kahn.CauseEndFailed
		stops := cause > kahn.CauseEndFailed || cause == kahn.CauseStoreError
		for status, is := range map[kahn.Status]bool{kahn.Failed: own, kahn.Aborted: stops && cause.StopStatus() == kahn.Aborted, kahn.Cancelled: stops && cause.StopStatus() == kahn.Cancelled} {
			if !is {
				require.ErrorIs(t, st.Settle(task.Token, machine.Outcome{Status: status, Cause: cause}), kahn.ErrBadValue, "%v for %v", status, cause)
			} else {
				_, other := stateOf(t, chainGraph(2))
				task, _ := other.Next()
				require.NoError(t, other.Settle(task.Token, machine.Outcome{Status: status, Cause: cause}))
			}
		}
		if !stops {
			require.ErrorIs(t, st.Stop(cause), kahn.ErrBadValue)
			require.ErrorIs(t, st.Drain(cause), kahn.ErrBadValue)
			require.ErrorIs(t, st.StopNode(b, cause), kahn.ErrBadValue)
			require.ErrorIs(t, st.AbortNode(b, cause), kahn.ErrBadValue)
		}
	}
	_, gate := stateOf(t, graph(kahn.Node{ID: "g", Kind: kahn.KindGate}))
	require.ErrorIs(t, gate.Fail(machine.Token{}, kahn.CauseCancelRun), kahn.ErrBadValue)
	require.NoError(t, gate.Fail(machine.Token{}, kahn.CauseGateTimeout))
	for _, stranger := range []machine.Ref{-1, 2, 99} {
		require.Equal(t, kahn.Idle, st.Status(stranger))
		require.Equal(t, event.SkipReason{}, plan.SkipReason(st, stranger))
		kind, origins := st.Cause(stranger)
		require.Equal(t, kahn.CauseNone, kind)
		require.Empty(t, origins)
		for range st.Inputs(stranger) {
			t.Error("inputs of a node that is not there")
		}
	}
	require.Equal(t, kahn.Running, st.Status(a))
	require.Equal(t, kahn.Waiting, st.Status(b))

	require.NoError(t, st.Settle(task.Token, completed))
	err := st.AbortNode(a, kahn.CauseAbortAll)
	var te *machine.TransitionError
	require.ErrorAs(t, err, &te)
	require.Equal(t, machine.TransitionError{Node: "n0", From: kahn.Completed, To: kahn.Aborted}, *te)
	require.ErrorIs(t, st.CancelNode(a), kahn.ErrTransition)
}

// TestVerdictsOfChecks: the verdict of a check lets a node run, skips it or fails it. An invalid verdict is refused, and the check stays open.
func TestVerdictsOfChecks(t *testing.T) {
	guard := func(kahn.View) (bool, error) { return true, nil }
	fails, skips, null := machine.CheckVerdict{Fail: kahn.CauseMergeError}, machine.CheckVerdict{Skip: kahn.SkipWhenGuard}, machine.CheckVerdict{Skip: kahn.SkipNullPropagation}
	nullOf := func(port int) machine.CheckVerdict {
		return machine.CheckVerdict{Skip: kahn.SkipNullPropagation, Port: port}
	}
	for ports, nonsense := range map[int][]machine.CheckVerdict{
		0: {null, nullOf(1), nullOf(-1)},
		2: {nullOf(-1), nullOf(2), nullOf(99), {Port: 1}, {Fail: 200}, {Skip: kahn.SkipSelf}, {Skip: kahn.SkipAnnotation}, {Skip: 200},
			{Skip: kahn.SkipWhenGuard, Fail: kahn.CausePanic}, {Skip: kahn.SkipNullPropagation, Fail: kahn.CausePanic, Port: 1}},
	} {
		n := kahn.Node{ID: "a", When: guard}
		for i := range ports {
			n.Ports = append(n.Ports, kahn.Port{Name: fmt.Sprint("p", i)})
		}
		for _, c := range []struct {
			verdict machine.CheckVerdict
			status  kahn.Status
			skip    event.SkipReason
			cause   kahn.CauseKind
		}{
			{machine.CheckVerdict{}, kahn.Ready, event.SkipReason{}, kahn.CauseNone},
			{fails, kahn.Failed, event.SkipReason{}, kahn.CauseMergeError},
			{skips, kahn.Skipped, event.SkipReason{Kind: kahn.SkipWhenGuard, Expression: "func"}, kahn.CauseNone},
			{null, kahn.Skipped, event.SkipReason{Kind: kahn.SkipNullPropagation, Port: "p0"}, kahn.CauseNone},
			{nullOf(1), kahn.Skipped, event.SkipReason{Kind: kahn.SkipNullPropagation, Port: "p1"}, kahn.CauseNone},
		} {
			if ports == 0 && c.verdict.Skip == kahn.SkipNullPropagation {
				continue
			}
			plan, st := stateOf(t, graph(n, after("b", "a")))
			task, ok := st.Next()
			require.True(t, ok && task.Check)
			for _, v := range nonsense {
				require.ErrorIs(t, st.Checked(task.Token, v), kahn.ErrBadValue, "%d ports, %+v", ports, v)
				require.Equal(t, kahn.Idle, st.Status(task.Ref))
			}
			require.ErrorIs(t, st.Checked(machine.Token{Ref: task.Ref, Attempt: 1}, c.verdict), kahn.ErrStale)
			require.ErrorIs(t, st.Checked(machine.Token{Ref: 99}, c.verdict), kahn.ErrUnknownNode)
			require.NoError(t, st.Checked(task.Token, c.verdict))
			require.Equal(t, c.status, st.Status(task.Ref))
			require.Equal(t, c.skip, plan.SkipReason(st, task.Ref))
			kind, _ := st.Cause(task.Ref)
			require.Equal(t, c.cause, kind)
			require.ErrorIs(t, st.Checked(task.Token, c.verdict), kahn.ErrStale)
			require.Equal(t, c.status == kahn.Failed, st.Status(ref(t, plan, "b")) == kahn.Aborted)
			_, ok = st.Next()
			require.Equal(t, c.status == kahn.Ready || c.status == kahn.Skipped && st.Status(ref(t, plan, "b")) == kahn.Running, ok)
		}
	}
}

func TestRetryAndSuspendKeepTheAttemptAndFreeTheSlot(t *testing.T) {
	var g kahn.Graph
	g.Add(kahn.Node{ID: "a"}, kahn.Node{ID: "b"})
	plan, st := stateOf(t, &g, kahn.Limit(1))
	first, _ := st.Next()
	_, ok := st.Next()
	require.False(t, ok, "the slot is taken")

	require.NoError(t, st.Retry(first.Token))
	require.Equal(t, kahn.Retrying, st.Status(first.Ref))
	second, ok := st.Next()
	require.True(t, ok, "backing off holds no slot")
	require.NotEqual(t, first.Ref, second.Ref)
	require.ErrorIs(t, st.Settle(first.Token, completed), kahn.ErrStale, "the attempt that failed is over")

	require.NoError(t, st.Requeue(first.Token))
	require.ErrorIs(t, st.Requeue(first.Token), kahn.ErrStale)
	require.NoError(t, st.Suspend(second.Token))
	again, ok := st.Next()
	require.True(t, ok)
	require.Equal(t, machine.Token{Ref: first.Ref, Attempt: 2}, again.Token)
	require.NoError(t, st.Settle(again.Token, completed))
	require.False(t, st.Done())

	require.Equal(t, kahn.Suspended, st.Status(second.Ref))
	require.NoError(t, st.Resume(second.Token))
	last, ok := st.Next()
	require.True(t, ok)
	require.NoError(t, st.Settle(last.Token, completed))
	require.True(t, st.Done())
	status, _ := st.RunStatus(machine.StatusEscaped)
	require.Equal(t, kahn.RunCompleted, status)
	_ = plan
}

// TestStopAsksRunningNodes: a stop in two phases asks running nodes once to stop, and the coordinator settles these nodes later.
func TestStopAsksRunningNodes(t *testing.T) {
	var g kahn.Graph
	g.Add(kahn.Node{ID: "a"}, kahn.Node{ID: "b"}, kahn.Node{ID: "c", After: []string{"a"}},
		kahn.Node{ID: "clean", After: []string{"a", "b"}, Cleanup: true})
	plan, st := stateOf(t, &g)
	a, _ := st.Next()
	b, _ := st.Next()
	require.NoError(t, st.Stop(kahn.CauseCancelRun))
	require.Equal(t, kahn.Cancelled, st.Status(ref(t, plan, "c")))
	require.Equal(t, kahn.Running, st.Status(a.Ref))

	asked := map[machine.Token]bool{}
	for tok, ok := st.NextStop(); ok; tok, ok = st.NextStop() {
		asked[tok] = true
	}
	require.Equal(t, map[machine.Token]bool{a.Token: true, b.Token: true}, asked)
	require.ErrorIs(t, st.Retry(a.Token), kahn.ErrTransition, "a stopping node gets no other attempt")
	require.NoError(t, st.Stop(kahn.CauseAbortAll), "the first cause stands")

	require.NoError(t, st.Settle(a.Token, machine.Outcome{Status: kahn.Failed, Cause: kahn.CauseStepError}))
	require.Equal(t, kahn.Cancelled, st.Status(a.Ref), "an error is the answer to being asked to stop")
	require.NoError(t, st.Settle(b.Token, completed))
	require.Equal(t, kahn.Completed, st.Status(b.Ref), "a success that arrives anyway is kept")

	clean, ok := st.Next()
	require.True(t, ok, "cleanup starts in a stopping run")
	require.NoError(t, st.Settle(clean.Token, completed))
	require.True(t, st.Done())
	status, _ := st.RunStatus(machine.StatusEscaped)
	require.Equal(t, kahn.RunCancelled, status)
}

// TestAbortAllIsInstant: AbortAll of a State ends all nodes at once.
func TestAbortAllIsInstant(t *testing.T) {
	var g kahn.Graph
	g.Add(kahn.Node{ID: "off", Disabled: true}, kahn.Node{ID: "done"}, kahn.Node{ID: "runs"},
		kahn.Node{ID: "next", After: []string{"runs"}})
	plan, st := stateOf(t, &g)
	tasks := map[string]machine.Task{}
	for task, ok := st.Next(); ok; task, ok = st.Next() {
		tasks[plan.ID(task.Ref)] = task
	}
	require.NoError(t, st.Settle(tasks["done"].Token, completed))
	st.AbortAll()
	require.Equal(t, kahn.Skipped, st.Status(ref(t, plan, "off")))
	require.Equal(t, kahn.Completed, st.Status(ref(t, plan, "done")))
	require.Equal(t, kahn.Aborted, st.Status(ref(t, plan, "runs")))
	require.Equal(t, kahn.Aborted, st.Status(ref(t, plan, "next")))
	kind, origins := st.Cause(ref(t, plan, "next"))
	require.Equal(t, kahn.CauseAbortAll, kind, "stopped with the run, not a victim of its predecessor")
	require.Empty(t, origins)
	require.ErrorIs(t, st.Settle(tasks["runs"].Token, completed), kahn.ErrStale)
	require.True(t, st.Done())
	status, _ := st.RunStatus(machine.StatusEscaped)
	require.Equal(t, kahn.RunFailed, status)
}

func TestAbortNodeCascades(t *testing.T) {
	plan, st := stateOf(t, chainGraph(4))
	task, _ := st.Next()
	require.NoError(t, st.AbortNode(task.Ref, kahn.CauseAbortAll))
	for r := range plan.Declared() {
		require.Equal(t, kahn.Aborted, st.Status(r), "visible when the call returns")
	}
	require.ErrorIs(t, st.Settle(task.Token, completed), kahn.ErrStale)
	kind, origins := st.Cause(ref(t, plan, "n3"))
	require.Equal(t, kahn.CauseUpstreamFailure, kind)
	require.Equal(t, []machine.Ref{task.Ref}, origins)
}

// TestWaitingIsWorkedOut: a node is Waiting as soon as a predecessor has started or ended.
func TestWaitingIsWorkedOut(t *testing.T) {
	plan, st := stateOf(t, chainGraph(3))
	b, c := ref(t, plan, "n1"), ref(t, plan, "n2")
	require.Equal(t, kahn.Idle, st.Status(b))
	task, _ := st.Next()
	require.Equal(t, kahn.Waiting, st.Status(b))
	require.Equal(t, kahn.Idle, st.Status(c))
	require.NoError(t, st.Settle(task.Token, completed))
	require.Equal(t, kahn.Ready, st.Status(b))
}

func TestNewStateRefusesNonsense(t *testing.T) {
	_, err := kahn.NewState(nil)
	require.ErrorIs(t, err, kahn.ErrNoGraph)
	plan, err := chainGraph(1).Compile()
	require.NoError(t, err)
	_, err = kahn.NewState(plan, kahn.Limit(-1))
	require.True(t, errors.Is(err, kahn.ErrBadOption))
}
