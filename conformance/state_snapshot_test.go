package conformance_test

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/machine"
)

// A node that runs, waits, backs off or is being stopped has the same status and token in the restored State.
func TestStateSnapshot(t *testing.T) {
	g := graph(kahn.Node{ID: "a", Groups: []string{"one"}}, kahn.Node{ID: "b", Groups: []string{"one"}}, kahn.Node{ID: "g", Kind: kahn.KindGate}, after("r"),
		kahn.Node{ID: "when", When: func(kahn.View) (bool, error) { return true, nil }}, after("late", "a"), kahn.Node{ID: "end", Kind: kahn.KindEnd})
	g.Groups = []kahn.Group{{Name: "one", Limit: 1}}
	plan, st := stateOf(t, g)
	tasks := map[string]machine.Task{}
	next := func() (ids []string) {
		for task, ok := st.Next(); ok; task, ok = st.Next() {
			tasks[plan.ID(task.Ref)] = task
			ids = append(ids, plan.ID(task.Ref))
		}
		return ids
	}
	cut := func() { st = cutState(t, plan, st) }
	require.ElementsMatch(t, []string{"a", "g", "r", "when"}, next())
	cut()
	require.Equal(t, []string{"when", "g"}, next(), "checks and gates that were not reported are handed out again, and b has no slot")
	require.NoError(t, st.Suspend(tasks["g"].Token))
	require.NoError(t, st.Retry(tasks["r"].Token))
	cut()
	require.Equal(t, kahn.Suspended, st.Status(tasks["g"].Ref))
	require.Equal(t, kahn.Retrying, st.Status(tasks["r"].Ref))
	require.NoError(t, st.Requeue(tasks["r"].Token))
	require.NoError(t, st.Checked(next2(t, st, "when", plan).Token, machine.CheckVerdict{}))
	require.NoError(t, st.Stop(kahn.CauseCancelRun))
	cut()
	stop, ok := st.NextStop()
	require.True(t, ok)
	require.Equal(t, tasks["a"].Token, stop)
	cut()
	_, ok = st.NextStop()
	require.False(t, ok, "it is asked once")
	require.NoError(t, st.Settle(tasks["a"].Token, machine.Outcome{Status: kahn.Failed, Cause: kahn.CauseStepError}))
	require.Equal(t, kahn.Cancelled, st.Status(tasks["a"].Ref))
	cut()
	require.Equal(t, []string{"end"}, next())
	require.NoError(t, st.Settle(tasks["end"].Token, completed))
	cut()
	require.True(t, st.Done())
	status, _ := st.RunStatus(machine.StatusEscaped)
	require.Equal(t, kahn.RunCancelled, status)
}

// next2 returns the next task, and expects that it belongs to the given node.
func next2(t *testing.T, st *machine.State, id string, plan *kahn.Plan) machine.Task {
	task, ok := st.Next()
	require.True(t, ok)
	require.Equal(t, id, plan.ID(task.Ref))
	return task
}

// Nodes that run when the snapshot is taken also hold their slots in the restored State.
func TestStateSnapshotHoldsSlots(t *testing.T) {
	plan, _ := stateOf(t, graph(after("a"), after("b"), after("c")))
	st, err := kahn.NewState(plan, kahn.Limit(2))
	require.NoError(t, err)
	first, ok := st.Next()
	require.True(t, ok)
	_, ok = st.Next()
	require.True(t, ok)
	st = cutState(t, plan, st, kahn.Limit(2))
	_, ok = st.Next()
	require.False(t, ok, "two run, of two that may")
	require.NoError(t, st.Settle(first.Token, machine.Outcome{Status: kahn.Completed}))
	third, ok := st.Next()
	require.True(t, ok)
	require.Equal(t, "c", plan.ID(third.Ref))
}

func TestStateSnapshotRefused(t *testing.T) {
	plan, st := stateOf(t, graph(after("a"), after("b", "a")))
	x := st.Snapshot()
	other, _ := stateOf(t, graph(after("a"), after("b")))
	_, err := kahn.RestoreState(other, x)
	require.ErrorIs(t, err, kahn.ErrGraphChanged)
	_, err = kahn.RestoreState(new(kahn.Plan), x)
	require.ErrorIs(t, err, kahn.ErrNoGraph)
	_, err = kahn.RestoreState(plan, x, kahn.Limit(-1))
	require.ErrorIs(t, err, kahn.ErrBadOption)
	for name, damage := range map[string]func(x *machine.StateSnapshot){
		"version": func(x *machine.StateSnapshot) { x.Version++ }, "short": func(x *machine.StateSnapshot) { x.Words = x.Words[1:] },
		"counters": func(x *machine.StateSnapshot) { x.Counters = []int32{1} }, "label": func(x *machine.StateSnapshot) { x.Taken = []int32{3} },
		"tier": func(x *machine.StateSnapshot) { x.Tier = 9 }, "stop": func(x *machine.StateSnapshot) { x.Stopping = []machine.Ref{-2} },
		"origin": func(x *machine.StateSnapshot) { x.Origins = map[machine.Ref]machine.Ref{0: 7} }, "times": func(x *machine.StateSnapshot) { x.Settled = []int32{1, 2} },
		"status": func(x *machine.StateSnapshot) { x.Words = append([]byte{0, 0, 0, 0, 0xff}, x.Words[5:]...) },
	} {
		y := x
		damage(&y)
		_, err := kahn.RestoreState(plan, y)
		require.ErrorIs(t, err, kahn.ErrBadValue, name)
	}
	run, err := kahn.Start(t.Context(), graph(after("a")), nothing)
	require.NoError(t, err)
	require.Zero(t, run.State().Snapshot(), "the run has a snapshot")
	_, err = run.Wait()
	require.NoError(t, err)
}

// A damaged snapshot is refused, or becomes a State that can be read and driven without a panic.
func TestStateSnapshotDamaged(t *testing.T) {
	refused := 0
	defer tolerateBugs()()
	for seed := range seeds(t, size(100, 30, 5000)) {
		rng := rand.New(rand.NewPCG(5, seed))
		g := ledgerGraph(rng, true)
		plan, err := g.Compile()
		if err != nil {
			continue
		}
		st, err := kahn.NewState(plan)
		require.NoError(t, err)
		drive := func(st *machine.State, n int) {
			for range n {
				task, ok := st.Next()
				if !ok {
					break
				}
				if task.Check {
					_ = st.Checked(task.Token, machine.CheckVerdict{})
					continue
				}
				_ = st.Settle(task.Token, machine.Outcome{Status: []kahn.Status{kahn.Completed, kahn.Failed}[rng.IntN(2)], Cause: kahn.CauseStepError})
			}
		}
		drive(st, rng.IntN(5))
		for range 10 {
			x := st.Snapshot()
			for range 1 + rng.IntN(3) {
				x.Words[rng.IntN(len(x.Words))] ^= 1 << rng.IntN(8)
			}
			damaged, err := kahn.RestoreState(plan, x)
			if err != nil {
				require.ErrorIs(t, err, kahn.ErrBadValue)
				refused++
				continue
			}
			drive(damaged, 20)
			for r := range plan.Declared() {
				_, _ = damaged.Cause(r)
				_ = plan.SkipReason(damaged, r)
			}
			damaged.AbortAll()
			_, _ = damaged.RunStatus(machine.StatusEscaped)
		}
	}
	require.Positive(t, refused)
}

// TestStateVersion fails if the State's decisions have changed. Then raise StateVersion and add the digest of the new version. The digest covers
// the order and the results of all decisions in random runs, so it also changes if the test draws other graphs, or if a snapshot contains more.
func TestStateVersion(t *testing.T) {
	digests := map[int]string{1: "679990d51028790"}
	h := fnv.New64a()
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(9, seed))
		g := versionGraph(rng)
		plan, err := g.Compile()
		require.NoError(t, err)
		st, err := kahn.NewState(plan, kahn.Mode(rng.IntN(2)), kahn.Limit(rng.IntN(3)), kahn.FailureMode(rng.IntN(3)))
		require.NoError(t, err)
		var running []machine.Task
		for !st.Done() {
			for task, ok := st.Next(); ok; task, ok = st.Next() {
				_, _ = fmt.Fprintln(h, "next", task.Ref, task.Attempt)
				running = append(running, task)
			}
			for token, ok := st.NextStop(); ok; token, ok = st.NextStop() {
				_, _ = fmt.Fprintln(h, "stop", token)
			}
			i := rng.IntN(len(running))
			task := running[i]
			running = append(running[:i], running[i+1:]...)
			out := machine.Outcome{Status: []kahn.Status{kahn.Completed, kahn.Completed, kahn.Failed, kahn.Skipped}[rng.IntN(4)]}
			if out.Status == kahn.Failed {
				out.Cause = kahn.CauseStepError
			}
			if int(task.Ref) == plan.Len()-1 && out.Status == kahn.Skipped {
				out.Status = kahn.Completed
			}
			_, _ = fmt.Fprintln(h, st.Settle(task.Token, out))
		}
		for r := range plan.Declared() {
			kind, origins := st.Cause(r)
			_, _ = fmt.Fprintln(h, st.Status(r), kind, origins, plan.SkipReason(st, r))
		}
		status, degraded := st.RunStatus(machine.StatusRule(rng.IntN(3)))
		_, _ = fmt.Fprintln(h, status, degraded)
		snapshot := st.Snapshot()
		snapshot.Plan = 0 // depends on how a plan is stored, not on decisions
		data, err := json.Marshal(snapshot)
		require.NoError(t, err)
		_, _ = fmt.Fprintln(h, string(data))
	}
	require.Equal(t, digests[machine.StateVersion], fmt.Sprintf("%x", h.Sum64()), "decisions have changed: raise StateVersion and record its digest")
}

// versionGraph draws graphs with all join rules, policies and skip modes.
func versionGraph(rng *rand.Rand) *kahn.Graph {
	g := graph()
	g.Groups = []kahn.Group{{Name: "x", Limit: 1, CancelOnFailure: true}}
	joins := []kahn.Join{kahn.AllSucceeded, kahn.AnySucceeded, kahn.AllDone, kahn.AllDoneMinOne, kahn.OneFailed, kahn.AllFailed, kahn.NoneFailed, kahn.NoneSkipped,
		kahn.AllSkipped, kahn.OneDone, kahn.Boundary, kahn.AtLeast(1)}
	for i := range 2 + rng.IntN(8) {
		n := kahn.Node{ID: fmt.Sprint("n", i), Priority: rng.IntN(3), ContinueOnFail: rng.IntN(8) == 0, Critical: rng.IntN(12) == 0, Disabled: rng.IntN(12) == 0,
			SkipMode: machine.SkipMode(rng.IntN(4)), OnUpstreamFailure: machine.UpstreamPolicy(rng.IntN(5)), Cleanup: rng.IntN(10) == 0}
		for j := range i {
			if rng.IntN(3) == 0 {
				n.In = append(n.In, kahn.Edge{From: fmt.Sprint("n", j), On: []kahn.On{kahn.OnSuccess, kahn.OnSuccess, kahn.OnFailure, kahn.OnAlways}[rng.IntN(4)]})
			}
		}
		if rng.IntN(3) == 0 {
			n.Groups = []string{"x"}
		}
		if len(n.In) > 0 && !n.Cleanup {
			n.Join = joins[rng.IntN(len(joins))]
			n.CancelLosers = n.Join == kahn.AnySucceeded && rng.IntN(2) == 0
		}
		g.Add(n)
	}
	return g.Add(kahn.Node{ID: "end", Kind: kahn.KindEnd})
}
