package machine_test

import (
	"fmt"
	"math"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn/internal/bucket"
	"github.com/seed-c794f7ef/kahn/machine"
)

// numbered returns the ids and specs of n nodes.
func numbered(n int, x machine.NodeSpec) (ids string, nodes []machine.NodeSpec) {
	names := make([]string, n)
	nodes = make([]machine.NodeSpec, n)
	for i := range n {
		names[i], nodes[i] = fmt.Sprint("n", i), x
	}
	return strings.Join(names, " "), nodes
}

// Without a limit, OnlyGates returns false for a State with a ready node.
func TestOnlyGates(t *testing.T) {
	t.Parallel()
	net := build(t, "g a b", []machine.NodeSpec{{Flags: machine.FlagGate | machine.FlagInline}, {}, {}})
	for limit, want := range map[int][]bool{0: {false, false, true}, 1: {false, true, true}, 2: {false, false, true}} {
		st := machine.New(net, &machine.Setup{Limit: limit})
		var got []bool
		for range 3 {
			got = append(got, (*machine.Locked)(st).OnlyGates())
			if !(*machine.Locked)(st).OnlyGates() {
				_, ok := st.Next()
				require.True(t, ok)
			}
		}
		require.Equal(t, want, got, "limit %d", limit)
	}
}

// depth is a Watcher that measures how deeply its calls nest.
type depth struct{ most int }

func (d *depth) Note(machine.Ref, machine.Status) {
	var pcs [10_000]uintptr
	d.most = max(d.most, runtime.Callers(0, pcs[:]))
}

// One failure may stop many nodes whose joins were decided before. The State makes these stops one after the other, not recursively, and judges
// the consequences of each stop at once.
func TestLateFailureStopsManyNodes(t *testing.T) {
	t.Parallel()
	calls := func(n int) int {
		ids, nodes := numbered(2+2*n, machine.NodeSpec{})
		var edges []machine.Edge
		for i := range n {
			late, after := machine.Ref(2+i), machine.Ref(2+n+i)
			nodes[late] = machine.NodeSpec{Join: machine.AnySucceeded, Flags: machine.FlagLateCancel}
			edges = append(edges, edge(0, late), edge(1, late), edge(late, after))
		}
		net := build(t, ids, nodes, edges...)
		st := machine.New(net, &machine.Setup{Limit: 2})
		good, _ := st.Next()
		bad, _ := st.Next()
		require.NoError(t, st.Settle(good.Token, machine.Outcome{Status: machine.Completed}))
		runs, ok := st.Next()
		require.True(t, ok)
		d := &depth{}
		s := (*machine.Locked)(st)
		s.Watch(machine.NoRef, d)
		require.NoError(t, st.Settle(bad.Token, machine.Outcome{Status: machine.Failed, Cause: machine.CauseStepError}))
		stop, ok := st.NextStop()
		require.True(t, ok)
		require.Equal(t, runs.Token, stop, "the one that runs is asked to stop")
		require.NoError(t, st.Settle(stop, machine.Outcome{Status: machine.Failed, Cause: machine.CauseStepError}))
		for i := range n {
			require.Equal(t, machine.Aborted, st.Status(machine.Ref(2+i)))
			require.Equal(t, machine.Aborted, st.Status(machine.Ref(2+n+i)))
		}
		require.True(t, st.Done())
		return d.most
	}
	require.Equal(t, calls(3), calls(300))
}

// Drive also aborts calls that began before Drive was called: in the State from which this State was restored, or through Next.
func TestDriveAbortsWhatRunsAlready(t *testing.T) {
	t.Parallel()
	net := build(t, "a b", nil)
	for _, restored := range []bool{false, true} {
		st := machine.New(net, &machine.Setup{Limit: 1})
		a, ok := st.Next()
		require.True(t, ok)
		require.NoError(t, st.Retry(a.Token))
		require.NoError(t, st.Requeue(a.Token))
		again, ok := st.Next()
		require.True(t, ok)
		if restored {
			x := st.Snapshot()
			var err error
			st, err = machine.RestoreState(net, &machine.Setup{Limit: 1}, &x)
			require.NoError(t, err)
		}
		var aborted []machine.Token
		require.NoError(t, st.Drive(func(machine.Task) {}, func(call machine.Token) { aborted = append(aborted, call) }))
		require.Empty(t, aborted)
		require.NoError(t, st.AbortNode(again.Ref, machine.CauseAbortAll))
		require.Equal(t, []machine.Token{{Ref: again.Ref, Attempt: 2}}, aborted, "restored: %v", restored)
		st.Dispose()
	}
}

// Build rejects values that would cause a panic later.
func TestBuildRefusesValues(t *testing.T) {
	t.Parallel()
	labelled := func(id int32) machine.Edge {
		e := edge(0, 1, machine.EdgeLabelled)
		e.LabelID = id
		return e
	}
	taken := build(t, "a b c", []machine.NodeSpec{{}, {}, {Join: machine.AtLeast(1)}}, edge(0, 2), edge(1, 2)).Edge(0)
	require.NotZero(t, taken.Flags, "the edge has counters beside the word of its target")
	taken.To = 1
	for _, c := range []struct {
		node machine.NodeSpec
		edge machine.Edge
		want string
	}{
		{machine.NodeSpec{Join: machine.Join(200)}, edge(0, 1), `node "b": join rule Join(200)`},
		{machine.NodeSpec{Join: machine.AtLeast(-1)}, edge(0, 1), `node "b": join rule at_least(0)`},
		{machine.NodeSpec{Skip: 9}, edge(0, 1), `node "b": skip mode SkipMode(9)`},
		{machine.NodeSpec{Upstream: 9}, edge(0, 1), `node "b": upstream policy UpstreamPolicy(9)`},
		{machine.NodeSpec{Ports: -1}, edge(0, 1), `node "b": -1 parameters`},
		{machine.NodeSpec{Flags: machine.FlagEarly}, edge(0, 1), `node "b": flags 0x20 are set by Build alone`},
		{machine.NodeSpec{}, edge(0, 1, 0x80), "edge number 0 belongs to another net"},
		{machine.NodeSpec{}, taken, "edge number 0 belongs to another net"},
		{machine.NodeSpec{}, labelled(-1), "edge number 0 needs a label number from 0 to 16777214, not -1"},
		{machine.NodeSpec{}, labelled(math.MaxInt32), "edge number 0 needs a label number from 0 to 16777214, not 2147483647"},
	} {
		_, err := machine.Build([]string{"a", "b"}, []machine.NodeSpec{{}, c.node}, []machine.Edge{c.edge})
		require.ErrorIs(t, err, machine.ErrBadValue)
		require.EqualError(t, err, "bad value: "+c.want)
	}
	// Build ignores a given FlagPlain and decides it itself.
	net := build(t, "a", []machine.NodeSpec{{Flags: machine.FlagPlain | machine.FlagInline}})
	require.False(t, net.Is(0, machine.FlagPlain))
}

// A snapshot fits only a net that makes the same decisions. A net with another order of declaration makes other decisions, and is refused.
func TestSnapshotNamesItsNet(t *testing.T) {
	t.Parallel()
	x := machine.New(build(t, "a b c", nil, edge(0, 2)), &machine.Setup{}).Snapshot()
	for name, net := range map[string]*machine.Net{
		"":            build(t, "a b c", nil, edge(0, 2)),
		"declaration": build(t, "a c b", nil, edge(0, 1)),
	} {
		_, err := machine.RestoreState(net, &machine.Setup{}, &x)
		if name == "" {
			require.NoError(t, err)
		} else {
			require.ErrorIs(t, err, machine.ErrGraphChanged, name)
		}
	}
}

// No State can have a node that runs without an attempt, or a gate that runs. A snapshot with such a node is refused.
func TestSnapshotOfWhatCannotRun(t *testing.T) {
	t.Parallel()
	net := build(t, "step gate", []machine.NodeSpec{{}, {Flags: machine.FlagGate | machine.FlagInline}})
	for node := range 2 {
		for attempts := range byte(2) {
			x := machine.New(net, &machine.Setup{}).Snapshot()
			word := x.Words[8*node:]
			require.Equal(t, byte(machine.Ready), word[4])
			word[0], word[4] = attempts, byte(machine.Running)
			_, err := machine.RestoreState(net, &machine.Setup{}, &x)
			if node == 0 && attempts > 0 {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, machine.ErrBadValue, "node %d, %d attempts", node, attempts)
			}
		}
	}
}

// Gates are handed out in the order in which they became ready. A restored State first hands out the gates that were handed out before. Next does
// not hand out a gate that Begin has handed out, or that was stopped.
func TestGatesAreHandedOutOnce(t *testing.T) {
	t.Parallel()
	ids, nodes := numbered(6, machine.NodeSpec{Flags: machine.FlagGate | machine.FlagInline})
	net := build(t, ids, nodes)
	st := machine.New(net, &machine.Setup{})
	rest := func() (refs []machine.Ref) {
		for task, ok := st.Next(); ok; task, ok = st.Next() {
			require.True(t, task.Gate)
			refs = append(refs, task.Ref)
		}
		return refs
	}
	for _, r := range []machine.Ref{3, 3, 1} {
		task, err := st.Begin(r)
		require.NoError(t, err)
		require.Equal(t, machine.Task{Token: machine.Token{Ref: r}, Gate: true}, task)
	}
	require.NoError(t, st.CancelNode(4))
	x := st.Snapshot()
	require.Equal(t, []machine.Ref{0, 2, 5}, x.Gates)
	require.Equal(t, []machine.Ref{0, 2, 5}, rest())
	var err error
	x.Gates = append(x.Gates, 2) // a duplicate entry, which does no harm
	st, err = machine.RestoreState(net, &machine.Setup{}, &x)
	require.NoError(t, err)
	require.Equal(t, []machine.Ref{1, 3, 0, 2, 5}, rest())
	require.False(t, (*machine.Locked)(st).HasNext())
}

// When the clock reaches its largest value, all nodes that wait for a token start.
func TestTokensAtTheEndOfTheClock(t *testing.T) {
	t.Parallel()
	ids, nodes := numbered(4, machine.NodeSpec{})
	st := machine.New(build(t, ids, nodes), &machine.Setup{SlotSetup: machine.SlotSetup{StartRate: bucket.Rate{Starts: 1, Per: 1e9}}})
	begun := 0
	for range 2 {
		require.NoError(t, st.Advance(math.MaxInt64))
		for task, ok := st.Next(); ok; task, ok = st.Next() {
			begun++
			require.NoError(t, st.Settle(task.Token, machine.Outcome{Status: machine.Completed}))
		}
	}
	require.Equal(t, 4, begun)
	require.True(t, st.Done())
}

// Runs that share a group get its slots in the order in which they began to wait, however many of their nodes wait.
func TestSlotsGoToTheRunThatHasWaitedLongest(t *testing.T) {
	t.Parallel()
	state := func(ids string, member [][]int32, edges ...machine.Edge) *machine.State {
		net := build(t, ids, nil, edges...)
		net.SetGroups(member, []machine.Bound{{Limit: 1}, {Limit: 9}})
		return machine.New(net, &machine.Setup{})
	}
	x := state("first a held b last", [][]int32{{}, {0}, {0}, {0, 1}, {0}}, edge(0, 3), edge(1, 4), edge(2, 4), edge(3, 4))
	y, z := state("y", [][]int32{{0}}), state("z", [][]int32{{0}})
	for _, st := range []*machine.State{y, z} {
		(*machine.Locked)(st).UseSlots(0, (*machine.Locked)(x).SlotsOf(0))
	}
	begin := func(st *machine.State) machine.Token {
		task, ok := st.Next()
		require.True(t, ok)
		return task.Token
	}
	waits := func(st *machine.State) {
		_, ok := st.Next()
		require.False(t, ok)
	}
	end := func(st *machine.State, token machine.Token) {
		require.NoError(t, st.Settle(token, machine.Outcome{Status: machine.Completed}))
	}
	first, held := begin(x), begin(x)
	waits(x)
	waits(y)
	end(x, first)
	waits(x) // node b waits now, too: it has another set of groups
	waits(z)
	end(x, held)
	end(x, begin(x)) // x has its turn and ends it
	end(x, begin(x))
	now := begin(y)
	waits(x) // x waits again, now behind z
	end(y, now)
	now = begin(z)
	waits(x)
	end(z, now)
	end(x, begin(x))
	require.True(t, x.Done())
}

// Nodes are held back while the run is being left. After Stay they wait for slots again, within the limit.
func TestStayKeepsTheLimit(t *testing.T) {
	t.Parallel()
	st := machine.New(build(t, "a b", []machine.NodeSpec{{}, {}}), &machine.Setup{Limit: 1})
	s := (*machine.Locked)(st)
	s.Leave()
	_, ok := s.Next()
	require.False(t, ok, "nothing starts while the run is being left")
	s.Stay()
	first, ok := s.Next()
	require.True(t, ok)
	_, ok = s.Next()
	require.False(t, ok, "the only slot is taken")
	require.NoError(t, s.Settle(first.Token, machine.Outcome{Status: machine.Completed}))
	_, ok = s.Next()
	require.True(t, ok)
}

// While the run is being left, a node does not begin its next attempt either.
func TestLeaveHoldsNextAttempts(t *testing.T) {
	t.Parallel()
	s := (*machine.Locked)(machine.New(build(t, "a b", []machine.NodeSpec{{}, {}}), &machine.Setup{Limit: 1}))
	first, _ := s.Next()
	require.NoError(t, s.Retry(first.Token))
	second, ok := s.Next()
	require.True(t, ok)
	require.NoError(t, s.Requeue(first.Token, machine.Retrying))
	s.Leave()
	require.NoError(t, s.Settle(second.Token, machine.Outcome{Status: machine.Completed}))
	_, ok = s.Next()
	require.False(t, ok)
	s.Stay()
	again, ok := s.Next()
	require.True(t, ok)
	require.Equal(t, machine.Token{Ref: first.Token.Ref, Attempt: 2}, again.Token)
}

// A node whose undoing pauses has returned its slots. If its turn ends during the pause, it does not return them again, so the group's limit is
// not exceeded.
func TestPausedUndoGivesItsSlotsBackOnce(t *testing.T) {
	t.Parallel()
	ids, nodes := numbered(3, machine.NodeSpec{})
	net := build(t, ids, nodes)
	net.SetGroups([][]int32{{0}, {0}, {0}}, []machine.Bound{{Limit: 1}})
	st := machine.New(net, &machine.Setup{})
	s := (*machine.Locked)(st)
	s.AllowUndo()
	for task, ok := st.Next(); ok; task, ok = st.Next() {
		require.NoError(t, st.Settle(task.Token, machine.Outcome{Status: machine.Completed}))
	}
	require.Equal(t, 3, s.Reverse(func(machine.Ref) bool { return true }, false))
	first, ok := s.NextUndo()
	require.True(t, ok)
	s.PauseUndo(first)
	second, ok := s.NextUndo()
	require.True(t, ok)
	require.False(t, s.Undone(first))
	_, ok = s.NextUndo()
	require.False(t, ok, "the slot is held")
	require.False(t, s.Undone(second))
	_, ok = s.NextUndo()
	require.True(t, ok)
}

// A restored node that backs off before it is undone again takes no slot, and returns none. It contends when its pause is over.
func TestDelayedUndoTakesNoSlots(t *testing.T) {
	t.Parallel()
	ids, nodes := numbered(2, machine.NodeSpec{})
	net := build(t, ids, nodes)
	net.SetGroups([][]int32{{0}, {0}}, []machine.Bound{{Limit: 1}})
	st := machine.New(net, &machine.Setup{})
	s := (*machine.Locked)(st)
	s.AllowUndo()
	for task, ok := st.Next(); ok; task, ok = st.Next() {
		require.NoError(t, st.Settle(task.Token, machine.Outcome{Status: machine.Completed}))
	}
	require.False(t, s.DelayUndo(0), "nothing is being undone")
	require.Equal(t, 2, s.Reverse(func(machine.Ref) bool { return true }, false))
	require.True(t, s.DelayUndo(0))
	require.False(t, s.DelayUndo(0), "it pauses")
	only, ok := s.NextUndo()
	require.True(t, ok)
	require.Equal(t, machine.Ref(1), only)
	require.False(t, s.DelayUndo(1), "it is being undone")
	s.ContinueUndo(0)
	_, ok = s.NextUndo()
	require.False(t, ok, "the slot is held")
	require.False(t, s.DelayUndo(0), "it waits in a line")
	require.False(t, s.Undone(1))
	next, ok := s.NextUndo()
	require.True(t, ok)
	require.Equal(t, machine.Ref(0), next)
	require.True(t, s.Undone(0))
}

// A composite that completed despite failures inside, and whose end cannot be written, fails like any node: the run has handled no failure.
func TestOverruledTolerance(t *testing.T) {
	t.Parallel()
	for _, own := range []bool{true, false} {
		for _, tolerant := range []bool{true, false} {
			a := machine.NodeSpec{Flags: machine.FlagComposite}
			if tolerant {
				a.Flags = machine.FlagTolerant
			}
			net := build(t, "a b", []machine.NodeSpec{a, {}})
			s := (*machine.Locked)(machine.New(net, &machine.Setup{}))
			task, ok := s.Next()
			require.True(t, ok)
			out := machine.Outcome{Status: machine.Completed, Degraded: true}
			if tolerant {
				out = machine.Outcome{Status: machine.Failed, Cause: machine.CauseStepError}
			}
			require.NoError(t, s.Settle(task.Token, out))
			require.True(t, s.HandledFailures())
			s.Overrule(task.Ref, own)
			require.False(t, s.HandledFailures())
		}
	}
}
