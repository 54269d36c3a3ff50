package machine_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn/internal/strict"
	"github.com/seed-c794f7ef/kahn/machine"
)

func init() { strict.Transitions = true }

func build(t *testing.T, ids string, nodes []machine.NodeSpec, edges ...machine.Edge) *machine.Net {
	names := strings.Fields(ids)
	if nodes == nil {
		nodes = make([]machine.NodeSpec, len(names))
	}
	net, err := machine.Build(names, nodes, edges)
	require.NoError(t, err)
	return net
}

// perform runs a net to its end. Nodes with upper-case ids fail, and a condition takes its second label. perform returns the nodes in the order
// in which they began, followed by the statuses.
func perform(t *testing.T, net *machine.Net, x machine.Setup) string {
	st := machine.New(net, &x)
	var said []string
	for task, ok := st.Next(); ok; task, ok = st.Next() {
		id := net.ID(task.Ref)
		out := machine.Outcome{Status: machine.Completed}
		switch {
		case strings.ToUpper(id) == id && strings.ToLower(id) != id:
			out = machine.Outcome{Status: machine.Failed, Cause: machine.CauseStepError}
		case strings.HasSuffix(id, "?"):
			out.Route = []int32{1}
		}
		require.NoError(t, st.Settle(task.Token, out))
		require.ErrorIs(t, st.Settle(task.Token, out), machine.ErrStale)
		said = append(said, id)
	}
	require.True(t, st.Done())
	require.Empty(t, (*machine.Locked)(st).HeldSlots())
	said = append(said, "|")
	for r := range machine.Ref(net.Size()) {
		said = append(said, fmt.Sprintf("%s:%v", net.ID(r), st.Status(r)))
	}
	status, degraded := st.RunStatus(machine.StatusEscaped)
	return strings.Join(append(said, fmt.Sprint(status, " ", degraded)), " ")
}

func edge(from, to machine.Ref, flags ...uint8) machine.Edge {
	e := machine.Edge{From: from, To: to}
	for _, f := range flags {
		e.Flags |= f
	}
	return e
}

func TestNets(t *testing.T) {
	t.Parallel()
	label := func(e machine.Edge, id int32) machine.Edge {
		e.LabelID = id
		return e
	}
	for _, c := range []struct {
		name, ids, want string
		nodes           []machine.NodeSpec
		edges           []machine.Edge
		setup           machine.Setup
	}{
		{name: "no nodes", want: "| completed false"},
		{
			name: "the longest path first", ids: "short long a b", edges: []machine.Edge{edge(1, 2), edge(2, 3)}, setup: machine.Setup{Limit: 1},
			want: "long a short b | short:completed long:completed a:completed b:completed completed false",
		},
		{
			name: "tier by tier", ids: "short long a b", edges: []machine.Edge{edge(1, 2), edge(2, 3)}, setup: machine.Setup{Limit: 1, Waves: true},
			want: "long short a b | short:completed long:completed a:completed b:completed completed false",
		},
		{
			name: "a failure that is handled", ids: "A b c", edges: []machine.Edge{edge(0, 1), edge(0, 2, machine.EdgeFailure)},
			want: "A c | A:failed b:skipped c:completed completed true",
		},
		{
			name: "a branch", ids: "if? no yes", edges: []machine.Edge{label(edge(0, 1, machine.EdgeLabelled), 0), label(edge(0, 2, machine.EdgeLabelled), 1)},
			want: "if? yes | if?:completed no:skipped yes:completed completed false",
		},
		{
			name: "any of two, and the policies", ids: "A b any sub skip", edges: []machine.Edge{edge(0, 2), edge(1, 2), edge(0, 3), edge(0, 4)},
			nodes: []machine.NodeSpec{{}, {}, {Join: machine.AnySucceeded}, {Upstream: machine.UpstreamSubstitute}, {Upstream: machine.UpstreamSkip}},
			want:  "A b any sub | A:failed b:completed any:completed sub:completed skip:skipped completed true",
		},
		{ // NoneFailed does not handle the failure of A: b is aborted, and the run stops, which aborts c
			name: "NoneFailed handles no failure", ids: "A c b", edges: []machine.Edge{edge(0, 2)}, nodes: []machine.NodeSpec{{}, {}, {Join: machine.NoneFailed}},
			setup: machine.Setup{Limit: 1, Stops: machine.StopSetup{OnFailure: 2}}, want: "A | A:failed c:aborted b:aborted failed false",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, perform(t, build(t, c.ids, c.nodes, c.edges...), c.setup))
		})
	}
}

func TestBuildRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		nodes int
		edges []machine.Edge
		want  string
	}{
		{3, []machine.Edge{edge(0, 1), edge(1, 2), edge(2, 1)}, `bad value: cycle: "b" -> "c"`},
		{3, []machine.Edge{edge(0, 3)}, "bad value: edge number 0 leads from node number 0 to 3 of 3"},
		{3, []machine.Edge{edge(-1, 0)}, "bad value: edge number 0 leads from node number -1 to 0 of 3"},
		{2, nil, "bad value: 3 ids for 2 nodes"},
	} {
		_, err := machine.Build([]string{"a", "b", "c"}, make([]machine.NodeSpec, c.nodes), c.edges)
		require.ErrorIs(t, err, machine.ErrBadValue)
		require.EqualError(t, err, c.want)
	}
}

// If the last edge of each cycle that Levels returns is removed, the net has no cycle.
func TestLevelsLeavesNoCycle(t *testing.T) {
	t.Parallel()
	edges := []machine.Edge{edge(0, 2), edge(2, 1), edge(1, 0), edge(0, 1), edge(1, 2)}
	var b machine.Builder
	b.Begin(3, edges, -1)
	cycles := b.Levels()
	require.NotEmpty(t, cycles)
	var last []int32
	for _, cycle := range cycles {
		last = append(last, cycle[len(cycle)-1])
	}
	var rest []machine.Edge
	for i, e := range edges {
		if !slices.Contains(last, int32(i)) {
			rest = append(rest, e)
		}
	}
	b.Begin(3, rest, -1)
	require.Empty(t, b.Levels())
}

// After each step of a run, another State is made from the nodes that have ended. It continues the run exactly as the first State would.
func TestRestore(t *testing.T) {
	t.Parallel()
	net := build(t, "A b c d X e", []machine.NodeSpec{5: {Upstream: machine.UpstreamPropagate}}, edge(0, 1), edge(0, 2, machine.EdgeFailure), edge(2, 3), edge(4, 5))
	whole := perform(t, net, machine.Setup{Limit: 1})
	_, want, _ := strings.Cut(whole, "|")
	for cut := range 5 {
		st := machine.New(net, &machine.Setup{Limit: 1})
		for range cut {
			if task, ok := st.Next(); ok {
				out := machine.Outcome{Status: machine.Completed}
				if id := net.ID(task.Ref); id == "A" || id == "X" {
					out = machine.Outcome{Status: machine.Failed, Cause: machine.CauseStepError}
				}
				require.NoError(t, st.Settle(task.Token, out))
			}
		}
		var refs []machine.Ref
		var saved []machine.Restored
		for r, w := range (*machine.Locked)(st).Words() {
			if w.Status().Terminal() {
				refs, saved = append(refs, r), append(saved, (*machine.Locked)(st).Saved(r))
			}
		}
		again := &machine.Locked{}
		again.Init(net, &machine.Setup{Limit: 1})
		for i, r := range refs {
			again.Restore(r, &saved[i])
		}
		again.Rebuild(refs, saved, false)
		for i, r := range refs {
			require.Equal(t, saved[i], again.Saved(r), net.ID(r))
		}
		next := (*machine.State)(again)
		for task, ok := next.Next(); ok; task, ok = next.Next() {
			out := machine.Outcome{Status: machine.Completed}
			if id := net.ID(task.Ref); id == "A" || id == "X" {
				out = machine.Outcome{Status: machine.Failed, Cause: machine.CauseStepError}
			}
			require.NoError(t, next.Settle(task.Token, out))
		}
		var got []string
		for r := range machine.Ref(net.Size()) {
			got = append(got, fmt.Sprintf("%s:%v", net.ID(r), next.Status(r)))
		}
		status, degraded := next.RunStatus(machine.StatusEscaped)
		require.Equal(t, want, " "+strings.Join(append(got, fmt.Sprint(status, " ", degraded)), " "), "after %d nodes", cut)
	}
}
