package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/kahntest"
	"github.com/seed-c794f7ef/kahn/store"
)

// forked forks a run, and returns the fork and the paths of the steps that it called.
func (r trial) forked(g *kahn.Graph, step kahn.StepFunc, nodes []string, opts ...kahn.Option) (trial, []string) {
	r.t.Helper()
	var c paths
	fork := try2(r.t, g, c.count(step), append(opts, kahn.Fork(reload(r.t, r.Snapshot()), nodes...))...)
	return fork, slices.Sorted(maps.Keys(c.n))
}

func TestFork(t *testing.T) {
	t.Parallel()
	of := func(text string) kahn.StepFunc {
		return func(context.Context, *kahn.Step) (any, error) { return text, nil }
	}
	for _, kind := range []struct {
		name string
		more []kahn.Option
	}{{"eager", nil}, {"waves", []kahn.Option{kahn.Waves}}} {
		inBubble(t, "results are kept, the rest runs, "+kind.name, func(t *testing.T) {
			mem := new(store.Memory)
			opts := append([]kahn.Option{kahn.Durable(mem), kahn.Inputs(map[string]any{"who": "we"})}, kind.more...)
			g := graph(after("A"), after("B", "A"), after("C", "B"), subgraph("S", graph(after("x")), "A"), after("D", "C", "S"), kahn.Node{ID: "end", Kind: kahn.KindEnd})
			old := try(t, g, breaks("C"), append(opts, kahn.RunID("old"))...)
			old.expect("A:ok B:ok C:F S:ok D:X end:ok", "failed")
			before, err := mem.Load(t.Context(), "old")
			require.NoError(t, err)
			s, err := kahn.ReadSnapshot(t.Context(), mem, "old")
			require.NoError(t, err)
			again, err := kahn.ForkPreview(compiled(t, g), s, []string{"B"})
			require.NoError(t, err)
			require.Equal(t, []string{"B", "C", "D", "end"}, again)

			var c paths
			fork := try2(t, g, c.count(func(_ context.Context, s *kahn.Step) (any, error) { who, _ := s.Root("who"); return who, nil }), append(opts, kahn.RunID("new"), kahn.Fork(s, "B"))...)
			fork.expect("A:ok B:ok C:ok S:ok D:ok end:ok", "completed")
			require.Equal(t, map[string]int{"B": 1, "C": 1, "D": 1, "end": 1}, c.n)
			require.Equal(t, "we", fork.node("D").Output)
			require.Equal(t, event.Start{TotalNodes: 6, Waves: kind.more != nil, Forked: "old"}, fork.events[0].Payload)
			require.Equal(t, 1, fork.Snapshot().Epoch())
			read, err := kahn.ReadResult(t.Context(), g, mem, "new")
			require.NoError(t, err)
			sub, _ := read.Node("S")
			require.Equal(t, 1, sub.Sub.Count(kahn.Completed))
			after, err := mem.Load(t.Context(), "old")
			require.NoError(t, err)
			require.Equal(t, before, after)
		})
	}

	inBubble(t, "under a changed graph", func(t *testing.T) {
		g := graph(after("A"), after("B", "A"), after("C", "B"), after("D", "A"), after("E"), after("F", "E"))
		old := try(t, g, of("old"))
		changed := graph(after("A"), kahn.Node{ID: "B", After: []string{"A"}, Config: "other"}, after("C", "B"), after("D", "A"), after("F"), after("N", "D"))
		fork, called := old.forked(changed, of("new"), nil)
		require.Equal(t, []string{"B", "C", "F", "N"}, called)
		preview, err := kahn.ForkPreview(compiled(t, changed), old.Snapshot(), nil)
		require.NoError(t, err)
		require.Equal(t, called, preview, "a node is gone")
		fork.expect("A:ok B:ok C:ok D:ok F:ok N:ok", "completed")
		require.Equal(t, "old", fork.node("D").Output)
		require.NotEqual(t, old.ID(), fork.ID())
	})

	inBubble(t, "a branch that was not taken, a gate, what waits", func(t *testing.T) {
		label := "yes"
		c := kahn.Node{ID: "C", Routes: true, Do: func(context.Context, *kahn.Step) (any, error) { return label, nil }}
		g := graph(c, branch("Y", "C", "yes"), branch("N", "C", "no"), gate("G"), after("H", "G"))
		old := pause(t, g, of("old"))
		old.expect("C:ok Y:ok N:S/br G:suspended H:waiting", "suspended")
		fork, called := old.forked(g, of("new"), nil, kahn.EarlySignals(map[string]any{"G": 1}))
		require.Equal(t, []string{"H"}, called)
		fork.expect("C:ok Y:ok N:S/br G:ok H:ok", "completed")
		label = "no"
		fork, called = fork.forked(g, of("new"), []string{"C"})
		require.Equal(t, []string{"N"}, called)
		fork.expect("C:ok Y:S/br N:ok G:ok H:ok", "completed")
	})

	inBubble(t, "losers run again with the node that had decided without them", func(t *testing.T) {
		slow := kahn.Node{ID: "B", Do: takes(1000 * ms)}
		j := kahn.Node{ID: "J", After: []string{"A", "L"}, Join: kahn.AnySucceeded, CancelLosers: true}
		g := graph(after("A"), slow, after("L", "B"), j, after("K"))
		old := try(t, g, takes(ms))
		old.expect("A:ok B:C L:S/superseded J:ok K:ok", "completed")
		for name, want := range map[string][]string{"K": {"K"}, "A": {"A", "B", "J", "L"}} {
			again, err := kahn.ForkPreview(compiled(t, g), old.Snapshot(), []string{name})
			require.NoError(t, err)
			slices.Sort(again)
			require.Equal(t, want, again)
		}
	})

	inBubble(t, "composites that a fork has kept go on inside in the next one", func(t *testing.T) {
		again := func(kahn.View) (bool, error) { return true, nil }
		g := graph(mapped("M", []int{1, 2, 3}, kahn.Map{}), kahn.Node{ID: "L", Sub: graph(after("x")), Loop: &kahn.Loop{MaxIterations: 3, OnLimit: kahn.LoopStop, While: again, Collect: true}}, after("Z"))
		db := new(store.Memory)
		stored := func(id string) []kahn.Option { return []kahn.Option{kahn.Durable(db), kahn.RunID(id)} }
		try(t, g, of("old"), stored("first")...)
		var c paths
		for i, names := range [][]string{{"Z"}, {"M[1]", "L#2"}} {
			from, err := kahn.ReadSnapshot(t.Context(), db, []string{"first", "second"}[i])
			require.NoError(t, err)
			c.n = nil
			try2(t, g, c.count(of("new")), append(stored([]string{"second", "third"}[i]), kahn.Fork(from, names...))...)
		}
		require.Equal(t, map[string]int{"M[1]": 1, "L#2/x": 1, "L#3/x": 1}, c.n)
	})

	inBubble(t, "what is refused, and what goes on", func(t *testing.T) {
		mem := new(journal)
		g := graph(after("A"), after("B", "A"))
		old := try(t, g, breaks("B"), kahn.RunID("old"))
		fork := func(s store.Store, id string, nodes ...string) []kahn.Option {
			return []kahn.Option{kahn.Durable(s), kahn.RunID(id), kahn.Fork(old.Snapshot(), nodes...)}
		}
		refused := func(want error, opts ...kahn.Option) {
			t.Helper()
			res, err := kahn.Execute(t.Context(), g, neverStep(t), opts...)
			require.Nil(t, res)
			require.ErrorIs(t, err, want)
		}
		refused(kahn.ErrUnknownNode, fork(mem, "new", "C")...)
		refused(kahn.ErrBadOption, fork(mem, "old")...)
		refused(kahn.ErrBadOption, kahn.Fork(nil))
		refused(kahn.ErrBadOption, append(fork(mem, "new"), kahn.KeepDescendants)...)
		require.Empty(t, mem.Runs())
		try(t, g, takes(0), kahn.Durable(mem), kahn.RunID("taken"))
		refused(kahn.ErrDuplicateRun, fork(mem, "taken")...)
		try2(t, g, takes(0), fork(mem, "new")...).expect("A:ok B:ok", "completed")
		refused(kahn.ErrFinished, fork(mem, "new")...)

		down := &brokenStore{Store: new(store.Memory), commit: func(store.Commit) error { return errDisk }}
		res, err := kahn.Execute(t.Context(), g, neverStep(t), fork(down, "new")...)
		require.ErrorIs(t, err, kahn.ErrStore)
		require.True(t, res.Left)
		require.Zero(t, res.Count(kahn.Completed)) // nothing was written
		down.commit = nil
		try2(t, g, takes(0), fork(down, "new")...).expect("A:ok B:ok", "completed")
	})
}

// TestForkAtEveryWrite forks random runs. After each write of the fork it repeats the call with the store's content, as after a crash. The steps
// are deterministic, so the fork has the results of the old run. It calls only the nodes of the preview.
func TestForkAtEveryWrite(t *testing.T) {
	t.Parallel()
	cutRandomRuns(t, 8000, 17, (*cutter).forkAtEveryWrite)
}

func (c *cutter) forkAtEveryWrite(t *testing.T, r *rand.Rand, name string) (cuts int) {
	old, whole := new(store.Memory), new(journal)
	c.more = []kahn.Option{kahn.Durable(old), kahn.RunID("old")}
	_, want := c.run(t, nil, false)
	before, err := old.Load(t.Context(), "old")
	require.NoError(t, err)
	s, err := kahn.ReadSnapshot(t.Context(), old, "old")
	require.NoError(t, err)
	var nodes []string
	for n := range c.res.Nodes() {
		if r.IntN(5) == 0 {
			nodes = append(nodes, n.ID)
		}
	}
	again, err := kahn.ForkPreview(compiled(t, c.g), s, nodes)
	if !errors.Is(err, kahn.ErrHandlers) {
		require.NoError(t, err)
	}
	fork := func(s2 store.Store) {
		c.more = []kahn.Option{kahn.Durable(s2), kahn.RunID("r"), kahn.Fork(s, nodes...), kahn.DespiteHandlers}
	}
	check := func(what string) {
		t.Helper()
		if err := kahntest.CheckEvents(c.g, c.res, c.events); err != nil {
			t.Errorf("%s, %s: %v\n%s", name, what, err, eventText(c.events))
		}
		for called := range c.called {
			if path, ok := strings.CutPrefix(called, "step "); ok && !slices.Contains(again, strings.FieldsFunc(path, func(r rune) bool { return strings.ContainsRune("/[#", r) })[0]) {
				t.Errorf("%s, %s: %s was called, and %v run again", name, what, path, again)
			}
		}
	}
	fork(whole)
	_, got := c.run(t, nil, false)
	if check("uncut"); !reflect.DeepEqual(got, want) {
		t.Errorf("%s, nodes %v:\ngot  %v\nwant %v", name, nodes, got, want)
	}
	counted(t, whole)
	for writes := range whole.len() {
		cut := whole.replay(t, "r", writes)
		stored, err := cut.Load(t.Context(), "r")
		if require.NoError(t, err); stored.Status.Terminal() {
			continue // the write of a delta count, after the run's end
		}
		fork(cut)
		_, got := c.run(t, nil, false)
		if check(fmt.Sprintf("after %d writes", writes)); !reflect.DeepEqual(got, want) {
			t.Errorf("%s, nodes %v, after %d of %d writes: \ngot  %v\nwant %v", name, nodes, writes, whole.len(), got, want)
		}
		if again := c.repeatedKey(stored); again != "" {
			t.Errorf("%s, after %d writes: %s was performed again", name, writes, again)
		}
		counted(t, cut)
		if t.Failed() {
			break
		}
		cuts++
	}
	after, err := old.Load(t.Context(), "old")
	require.NoError(t, err)
	require.Equal(t, before, after)
	return cuts
}
