package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/kahntest"
	"github.com/seed-c794f7ef/kahn/store"
)

// redriveStored redrives a run in its store. It returns the new life with the events of all epochs.
func (r trial) redriveStored(g *kahn.Graph, step kahn.StepFunc, opts []kahn.Option, nodes ...string) trial {
	r.t.Helper()
	return r.goOn(g, step, append(slices.Clone(opts), kahn.Redrive(nil, nodes)))
}

func TestRedriveInStore(t *testing.T) {
	t.Parallel()
	for _, kind := range []struct {
		name string
		more []kahn.Option
	}{{"eager", nil}, {"waves", []kahn.Option{kahn.Waves}}} {
		inBubble(t, "what failed and what follows it runs again, "+kind.name, func(t *testing.T) {
			store := new(store.Memory)
			opts := append([]kahn.Option{kahn.Durable(store), kahn.RunID("r")}, kind.more...)
			g := graph(after("A"), after("B", "A"), after("C", "B"), subgraph("S", graph(after("x"), after("y", "x")), "A"), after("D"), after("E", "C", "S", "D"))
			r := try(t, g, breaks("B", "S/y"), opts...)
			r.expect("A:ok B:F C:X S:F D:ok E:X", "failed")
			var c paths
			by := kahn.Request{Actor: "operator", Reason: "it is mended"}
			r = r.goOn(g, c.count(takes(time.Second)), append(slices.Clone(opts), kahn.Redrive(nil, nil, by)))
			r.expect("A:ok B:ok C:ok S:ok D:ok E:ok", "completed")
			require.Equal(t, map[string]int{"B": 1, "C": 1, "S/y": 1, "E": 1}, c.n)
			require.Equal(t, 1, r.node("B").Attempts)
			require.Equal(t, by, r.RedriveRequest)
			r.count(event.NodeInvalidated, "B", 1)
			r.count(event.NodeInvalidated, "A", 0)
			counted(t, store)
			read, err := kahn.ReadResult(t.Context(), g, store, "r")
			require.NoError(t, err)
			require.Equal(t, 6, read.Count(kahn.Completed))

			c = paths{}
			r = r.redriveStored(g, c.count(breaks("S/y")), opts, "S")
			r.expect("A:ok B:ok C:ok S:F D:ok E:X", "failed")
			require.Equal(t, map[string]int{"S/x": 1, "S/y": 1}, c.n)
			r = r.redriveStored(g, takes(0), opts)
			r.expect("A:ok B:ok C:ok S:ok D:ok E:ok", "completed")
			require.Equal(t, 4, r.Snapshot().Epoch())
			counted(t, store)
		})
	}

	inBubble(t, "composites go on inside", func(t *testing.T) {
		store := new(store.Memory)
		opts := []kahn.Option{kahn.Durable(store), kahn.RunID("r")}
		again := kahn.Retry{MaxAttempts: 2, InitialDelay: ms, Jitter: kahn.JitterNone}
		g := graph(
			kahn.Node{ID: "S", Sub: graph(after("x")), Retry: again}, mapped("M", []int{1, 2}, kahn.Map{}),
			kahn.Node{ID: "L", Sub: graph(after("x")), Loop: &kahn.Loop{MaxIterations: 2, OnLimit: kahn.LoopStop, While: func(kahn.View) (bool, error) { return true, nil }}},
			after("Z"))
		broken := true
		var c paths
		step := c.count(func(_ context.Context, s *kahn.Step) (any, error) {
			if broken && slices.Contains([]string{"S/x", "M[1]", "L#2/x"}, s.Path()) {
				return nil, errStep
			}
			return s.Path(), nil
		})
		r := try(t, g, step, opts...)
		r.expect("S:F M:F L:F Z:ok", "failed")
		broken, c = false, paths{}
		r = r.redriveStored(g, step, opts)
		r.expect("S:ok M:ok L:ok Z:ok", "completed")
		require.Equal(t, map[string]int{"S/x": 1, "M[1]": 1, "L#2/x": 1}, c.n)
		stored, err := store.Load(t.Context(), "r")
		require.NoError(t, err)
		for key, n := range stored.Nodes {
			if n.Attempt > 1 || !n.Terminal && n.Record != nil {
				t.Errorf("%s is stored as %+v", key, n)
			}
		}
	})

	inBubble(t, "kept descendants keep their epochs in a later life", func(t *testing.T) {
		store := new(journal)
		opts := []kahn.Option{kahn.Durable(store), kahn.RunID("r")}
		g := graph(after("A"), kahn.Node{ID: "H", In: []kahn.Edge{{From: "A", On: kahn.OnFailure}}})
		r := try(t, g, breaks("A"), opts...)
		r.expect("A:F H:ok", "completed+d")
		first := store.len()
		r = r.redriveStored(g, breaks("A"), append(opts, kahn.KeepDescendants, kahn.DespiteHandlers), "A")
		r.expect("A:F H:ok", "failed") // H has handled a failure of the previous epoch
		counted(t, store)
		for writes := first + 1; writes < store.len(); writes++ {
			cut := store.replay(t, "r", writes)
			try2(t, g, breaks("A"), kahn.Durable(cut), kahn.RunID("r")).expect("A:F H:ok", "failed")
			counted(t, cut)
		}
	})

	inBubble(t, "a run that waits, beside what failed", func(t *testing.T) {
		store := new(store.Memory)
		opts := []kahn.Option{kahn.Durable(store), kahn.RunID("r")}
		g := graph(gate("G"), after("B", "G"), after("A"), after("C", "A"))
		r := pause(t, g, breaks("A"), opts...)
		r = r.redriveStored(g, takes(0), opts)
		r.expect("G:suspended B:waiting A:ok C:ok", "suspended")
		r = r.goOn(g, takes(0), append(opts, kahn.EarlySignals(map[string]any{"G": true})))
		r.expect("G:ok B:ok A:ok C:ok", "completed")
		counted(t, store)
	})

	inBubble(t, "by a Runner", func(t *testing.T) {
		store := new(store.Memory)
		rn := &kahn.Runner{Options: []kahn.Option{kahn.Durable(store)}}
		broken := true
		step := func(context.Context, *kahn.Step) (any, error) {
			if broken {
				return nil, errStep
			}
			return nil, nil
		}
		g := graph(after("A"), after("B", "A"))
		_, err := rn.Execute(t.Context(), g, step, kahn.RunID("r"))
		require.ErrorIs(t, err, errStep)
		broken = false
		run, err := rn.Redrive(t.Context(), "r", nil, kahn.Request{})
		require.NoError(t, err)
		res, err := run.Wait()
		require.NoError(t, err)
		var events []event.Event
		for e, err := range run.Events(t.Context(), 0) {
			require.NoError(t, err)
			events = append(events, e)
		}
		checkEvents(t, g, res, events)
		require.Equal(t, event.RunStarted, events[0].Type)
		counted(t, store)
		// The Runner of another process does not have the run.
		other := &kahn.Runner{Options: rn.Options}
		_, err = other.Redrive(t.Context(), "r", nil, kahn.Request{})
		require.ErrorIs(t, err, kahn.ErrUnknownRun)
		res, err = other.Execute(t.Context(), g, step, kahn.RunID("r"), kahn.Redrive(nil, []string{"B"}))
		require.NoError(t, err)
		require.Equal(t, kahn.RunCompleted, res.Status)
	})

	inBubble(t, "what is refused changes nothing", func(t *testing.T) {
		store := new(store.Memory)
		opts := []kahn.Option{kahn.Durable(store), kahn.RunID("r")}
		g := graph(after("A"), after("B", "A"))
		r := try(t, g, breaks("A"), opts...)
		before, err := store.Load(t.Context(), "r")
		require.NoError(t, err)
		for _, row := range []struct {
			g    *kahn.Graph
			opts []kahn.Option
			want error
		}{
			{g, append(opts, kahn.Redrive(nil, []string{"C"})), kahn.ErrUnknownNode},
			{g, append(opts, kahn.Redrive(r.Snapshot(), nil)), kahn.ErrBadOption},
			{g, []kahn.Option{kahn.Redrive(nil, nil)}, kahn.ErrBadOption},
			{g, append(opts, kahn.RunID("another"), kahn.Redrive(nil, nil)), kahn.ErrUnknownRun},
			{graph(after("A")), append(opts, kahn.Redrive(nil, nil)), kahn.ErrGraphChanged},
			{g, opts, kahn.ErrFinished},
		} {
			res, err := kahn.Execute(t.Context(), row.g, neverStep(t), row.opts...)
			if res != nil || !errors.Is(err, row.want) {
				t.Errorf("%v, %v, expected %v", res, err, row.want)
			}
		}
		lease, _, err := store.Acquire(t.Context(), "r", "another", time.Minute)
		require.NoError(t, err)
		_, err = kahn.Execute(t.Context(), g, neverStep(t), append(opts, kahn.Redrive(nil, nil))...)
		require.ErrorIs(t, err, kahn.ErrLeased)
		require.NoError(t, store.Release(t.Context(), lease))
		after, err := store.Load(t.Context(), "r")
		require.NoError(t, err)
		require.Equal(t, before, after)
		require.Equal(t, []string{"r"}, store.Runs())
	})

	inBubble(t, "a store that does not answer the first write has the old run", func(t *testing.T) {
		inner := new(store.Memory)
		opts := []kahn.Option{kahn.RunID("r")}
		g := graph(after("A"), after("B", "A"))
		try(t, g, breaks("A"), append(opts, kahn.Durable(inner))...)
		down := &brokenStore{Store: inner, commit: func(store.Commit) error { return errDisk }}
		res, err := kahn.Execute(t.Context(), g, neverStep(t), append(opts, kahn.Durable(down), kahn.Redrive(nil, nil))...)
		require.ErrorIs(t, err, kahn.ErrStore)
		require.True(t, res.Left)
		stored, err := inner.Load(t.Context(), "r")
		require.NoError(t, err)
		require.Equal(t, kahn.RunFailed, stored.Status)
		res, err = kahn.Execute(t.Context(), g, takes(0), append(opts, kahn.Durable(inner), kahn.Redrive(nil, nil))...)
		require.NoError(t, err)
		require.Equal(t, kahn.RunCompleted, res.Status)
	})
}

// TestRedriveAtEveryWrite redrives random runs in their stores. After each write it resumes from the store's content, as after a crash. The store
// contains either the old run or the redriven run, and the redriven run ends like an uninterrupted one.
func TestRedriveAtEveryWrite(t *testing.T) {
	t.Parallel()
	cutRandomRuns(t, 7000, 13, (*cutter).redriveAtEveryWrite)
}

// cutRandomRuns calls cut for random runs. cut interrupts a run and returns how often it did so; cutRandomRuns logs the sum.
func cutRandomRuns(t *testing.T, first, stream uint64, cut func(*cutter, *testing.T, *rand.Rand, string) int) {
	graphs, cuts := size(30, 8, 1_500), 0
	for seed := range seeds(t, graphs) {
		synctest.Test(t, func(t *testing.T) {
			c := newCutter(first+seed, int(seed%3))
			cuts += cut(c, t, rand.New(rand.NewPCG(seed, stream)), fmt.Sprint("seed ", first+seed))
		})
		if t.Failed() {
			return
		}
	}
	t.Logf("%d graphs, %d cuts", graphs, cuts)
	if cuts < 2*graphs {
		t.Errorf("only %d cuts of %d graphs", cuts, graphs)
	}
}

func (c *cutter) redriveAtEveryWrite(t *testing.T, r *rand.Rand, name string) (cuts int) {
	whole := new(journal)
	durable := func(s store.Store, more ...kahn.Option) {
		c.more = append([]kahn.Option{kahn.Durable(s), kahn.RunID("r")}, more...)
	}
	durable(whole)
	_, _ = c.run(t, nil, false)
	counted(t, whole)
	old, events, first := c.res.Status, c.events, whole.len()
	var nodes []string
	for n := range c.res.Nodes() {
		if r.IntN(5) == 0 {
			nodes = append(nodes, n.ID)
		}
	}
	again := []kahn.Option{kahn.Redrive(nil, nodes)}
	if r.IntN(3) == 0 {
		again = append(again, kahn.KeepDescendants)
	} else if _, err := kahn.RedrivePreview(compiled(t, c.g), reload(t, c.res.Snapshot()), nodes); err != nil { // the graphs that steps have returned are unknown, as in a store
		require.ErrorIs(t, err, kahn.ErrHandlers)
		_, err = kahn.Execute(t.Context(), c.g, c.step, append(slices.Clone(again), kahn.Durable(whole), kahn.RunID("r"))...)
		require.ErrorIs(t, err, kahn.ErrHandlers)
		require.Equal(t, first, whole.len(), "a redrive that was refused has written")
	}
	again = append(again, kahn.DespiteHandlers)
	durable(whole, again...)
	_, want := c.run(t, nil, false)
	checkEvents(t, c.g, c.res, slices.Concat(events, c.events))
	counted(t, whole)
	for writes := first; writes < whole.len(); writes++ {
		store := whole.replay(t, "r", writes)
		before, err := store.Load(t.Context(), "r")
		require.NoError(t, err)
		switch durable(store); {
		case writes == first:
			require.Equal(t, old, before.Status)
			durable(store, again...)
		case before.Status.Terminal():
			continue // the write of a delta count, after the run's end
		}
		_, got := c.run(t, nil, false)
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s, nodes %v, after %d of %d to %d writes: \ngot  %v\nwant %v", name, nodes, writes, first, whole.len(), got, want)
		}
		if err := kahntest.CheckEvents(c.g, c.res, c.events); err != nil {
			t.Errorf("%s, after %d writes: %v\n%s", name, writes, err, eventText(c.events))
		}
		if again := c.repeatedKey(before); writes > first && again != "" {
			t.Errorf("%s, after %d writes: %s was performed again", name, writes, again)
		}
		counted(t, store)
		if t.Failed() {
			break
		}
		cuts++
	}
	return cuts
}
