package conformance_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/machine"
	"github.com/seed-c794f7ef/kahn/reactive"
)

// react performs the scenario as drive does, but without polling: an effect takes all tasks as soon as there are any, and effects on the nodes
// record how the nodes end. Completions come in random order, mixed with duplicate and late completions.
func (s *scenario) react(t *testing.T, seed uint64, limit int, opts ...kahn.Option) (*kahn.Plan, *machine.State) {
	plan, err := s.graph.Compile()
	require.NoError(t, err)
	st, err := kahn.NewState(plan, append(opts, kahn.Limit(limit))...)
	require.NoError(t, err)
	c := &coordinator{t, s, plan, st, rand.New(rand.NewPCG(seed, 0)), map[string]any{}, nil, limit}
	ended := st.RunStatusSignal()
	seen := map[machine.Ref]kahn.Status{}
	for r := range plan.Declared() {
		status, ready := st.StatusSignal(r), st.ReadySignal(r)
		_, err := reactive.NewEffect(st.Scope(), func(w reactive.Writer) {
			seen[r] = status.Get(w)
			if seen[r] == kahn.Running && !ready.Get(w) {
				t.Errorf("%s runs and was never ready", plan.ID(r))
			}
		})
		require.NoError(t, err)
	}
	begin := func(task machine.Task) {
		if !task.Check {
			c.running = append(c.running, task)
			return
		}
		verdict := c.verdict(task.Ref)
		if err := st.Checked(task.Token, verdict); err != nil {
			t.Error(err)
		}
		if err := st.Checked(task.Token, verdict); err == nil {
			t.Error("a check was answered twice")
		}
	}
	aborted := map[machine.Token]bool{}
	require.NoError(t, st.Drive(begin, func(call machine.Token) { aborted[call] = true }))
	var late []machine.Task
	for !ended.Load().Terminal() {
		require.NotEmpty(t, c.running, "nothing runs, and the run has not ended")
		i := c.rng.IntN(len(c.running))
		task := c.running[i]
		c.running = append(c.running[:i], c.running[i+1:]...)
		c.settle(task)
		late = append(late, task)
	}
	for _, task := range late {
		status := st.Status(task.Ref)
		require.Equal(t, (status == kahn.Aborted || status == kahn.Cancelled) && task.Attempt > 0, aborted[task.Token], "%v", task)
		require.ErrorIs(t, st.Settle(task.Token, completed), kahn.ErrStale)
	}
	require.NoError(t, st.Scope().Err())
	for r, id := range plan.Declared() {
		require.Equal(t, st.Status(r), seen[r], "what the effects have seen of %s", id)
	}
	st.Dispose()
	return plan, st
}

// TestBegin: a coordinator may begin a ready node that is not the best one.
func TestBegin(t *testing.T) {
	var g kahn.Graph
	g.Groups = []kahn.Group{{Name: "one", Limit: 1}}
	g.Add(kahn.Node{ID: "a"}, kahn.Node{ID: "b", Groups: []string{"one"}}, kahn.Node{ID: "c", Groups: []string{"one"}},
		kahn.Node{ID: "next", After: []string{"b"}}, kahn.Node{ID: "when", When: func(kahn.View) (bool, error) { return true, nil }})
	plan, st := stateOf(t, &g, kahn.Limit(2))
	begin := func(id string) (machine.Task, error) { return st.Begin(ref(t, plan, id)) }
	c, err := begin("c")
	require.NoError(t, err)
	require.Equal(t, kahn.Running, st.Status(c.Ref))
	_, err = begin("c")
	require.ErrorIs(t, err, kahn.ErrTransition)
	_, err = begin("next")
	require.ErrorIs(t, err, kahn.ErrTransition)
	_, err = st.Begin(99)
	require.ErrorIs(t, err, kahn.ErrUnknownNode)
	_, err = begin("b")
	require.ErrorIs(t, err, machine.ErrNoSlot, "the group is full")
	check, err := begin("when")
	require.NoError(t, err)
	require.True(t, check.Check)
	require.NoError(t, st.Checked(check.Token, machine.CheckVerdict{}))
	_, err = begin("a")
	require.NoError(t, err)
	_, err = begin("when")
	require.ErrorIs(t, err, machine.ErrNoSlot, "the limit is reached")
	work := st.WorkSignal()
	before := work.Load()
	require.NoError(t, st.Settle(c.Token, completed))
	require.Greater(t, work.Load(), before, "a slot is free")
	b, err := begin("b")
	require.NoError(t, err)
	require.NoError(t, st.Settle(b.Token, completed))
	require.Equal(t, kahn.Ready, st.Status(ref(t, plan, "next")))
}
