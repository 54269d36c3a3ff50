package conformance_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/kahntest"
	"github.com/seed-c794f7ef/kahn/store"
)

// AdoptSnapshot continues a run from a snapshot with another version of its graph, by the rules of Adopt. An attempt that was in flight begins again
// with number 1, and the events name who has asked.
func TestAdoptSnapshot(t *testing.T) {
	t.Parallel()
	v1 := versionOf("small", kahn.Node{ID: "old", After: []string{"fetch"}}, kahn.Node{ID: "aside", After: []string{"fetch"}})
	v2 := versionOf("large", kahn.Node{ID: "aside", After: []string{"fetch"}}, kahn.Node{ID: "new", After: []string{"aside"}})
	s := new(served)
	res, err := kahn.Execute(t.Context(), v1, s.step, kahn.RunID("r"))
	require.NoError(t, err)
	require.Equal(t, kahn.RunSuspended, res.Status)
	s.take()
	data, err := json.Marshal(res.Snapshot())
	require.NoError(t, err)
	snapshot := new(kahn.Snapshot)
	require.NoError(t, json.Unmarshal(data, snapshot))
	p, err := v2.Compile()
	require.NoError(t, err)
	preview, err := kahn.AdoptPreview(p, snapshot)
	require.NoError(t, err)
	require.Equal(t, []string{"fetch", "aside"}, preview.Keep)
	require.Equal(t, []string{"old"}, preview.Dropped)
	for range 2 { // the snapshot belongs to the host, so it can be used again
		rec := newRecorder()
		res, err = kahn.Execute(t.Context(), v2, s.step, kahn.AdoptSnapshot(snapshot, kahn.Request{Actor: "ann", Reason: "deploy"}), kahn.EarlySignals(map[string]any{"ask": "yes"}), kahn.OnEvent(rec.add))
		require.NoError(t, err)
		require.Equal(t, kahn.RunCompleted, res.Status)
		require.Equal(t, "r", res.ID())
		require.ElementsMatch(t, []string{"r draft", "r check", "r new", "r send"}, s.take())
		require.NoError(t, kahntest.CheckEvents(v2, res, rec.all()))
		first := rec.all()[0]
		require.Equal(t, event.RunStatusChanged, first.Type)
		require.Equal(t, "ann", first.Payload.(event.StatusChange).Request.Actor)
	}
	_, err = kahn.Execute(t.Context(), v2, s.step, kahn.Resume(snapshot))
	require.ErrorIs(t, err, kahn.ErrGraphChanged)
	_, err = kahn.Execute(t.Context(), v2, s.step, kahn.AdoptSnapshot(snapshot), kahn.Resume(snapshot))
	require.ErrorIs(t, err, kahn.ErrGraphChanged, "the later option counts")
}

// AdoptSnapshot takes a snapshot of a run that is at work, and a Coordinator performs what follows.
func TestAdoptSnapshotInFlight(t *testing.T) {
	t.Parallel()
	build := func(config string) *kahn.Plan {
		p, err := (&kahn.Graph{Name: "w"}).Add(kahn.Node{ID: "a"}, kahn.Node{ID: "b", After: []string{"a"}}, kahn.Node{ID: "c", After: []string{"b"}, Config: config}).Compile()
		require.NoError(t, err)
		return p
	}
	now := time.Now()
	c, err := kahn.NewCoordinator(build("1"), now, kahn.RunID("r"))
	require.NoError(t, err)
	a, _ := c.Next()
	require.NoError(t, c.Return(a, "A", nil))
	b, ok := c.Next()
	require.True(t, ok)
	require.Equal(t, "b", b.ID())
	next, err := kahn.NewCoordinator(build("2"), now, kahn.AdoptSnapshot(c.Run().Snapshot()))
	require.NoError(t, err)
	again, ok := next.Next()
	require.True(t, ok)
	require.Equal(t, []any{"b", 1}, []any{again.ID(), again.Attempt()})
	require.NoError(t, next.Return(again, "B", nil))
	last, _ := next.Next()
	require.Equal(t, "2", last.Config())
	require.NoError(t, next.Return(last, "C", nil))
	res, err := next.Result()
	require.NoError(t, err)
	require.Equal(t, "C", res.Output())
}

// What Adopt refuses, AdoptSnapshot refuses, too. It also refuses a run with a store.
func TestAdoptSnapshotRefuses(t *testing.T) {
	t.Parallel()
	s := new(served)
	v1, v2 := versionOf("small"), versionOf("large")
	execute := func(opts ...kahn.Option) *kahn.Snapshot {
		res, err := kahn.Execute(t.Context(), v1, s.step, opts...)
		require.NoError(t, err)
		return res.Snapshot()
	}
	waits, ended := execute(), execute(kahn.EarlySignals(map[string]any{"ask": 1}))
	needy := versionOf("small")
	needy.Inputs = []kahn.Input{{Name: "n"}}
	for name, row := range map[string]struct {
		g    *kahn.Graph
		opts []kahn.Option
		want error
	}{
		"no snapshot":      {v2, []kahn.Option{kahn.AdoptSnapshot(nil)}, kahn.ErrBadOption},
		"a store":          {v2, []kahn.Option{kahn.AdoptSnapshot(waits), kahn.Durable(new(store.Memory)), kahn.RunID("r")}, kahn.ErrBadOption},
		"an ended run":     {v2, []kahn.Option{kahn.AdoptSnapshot(ended)}, kahn.ErrFinished},
		"another workflow": {(&kahn.Graph{Name: "other"}).Add(kahn.Node{ID: "fetch"}), []kahn.Option{kahn.AdoptSnapshot(waits)}, kahn.ErrGraphChanged},
		"a missing input":  {needy, []kahn.Option{kahn.AdoptSnapshot(waits)}, kahn.ErrMissingInput},
	} {
		s.take()
		_, err := kahn.Execute(context.Background(), row.g, s.step, row.opts...)
		require.ErrorIs(t, err, row.want, name)
		require.Empty(t, s.take(), name)
	}
}

// A run that a trigger fired is adopted with the part of the new graph to which the trigger leads. The preview shows only this part.
func TestAdoptFired(t *testing.T) {
	t.Parallel()
	version := func(config string) *kahn.Graph {
		return (&kahn.Graph{Name: "w"}).Add(kahn.Node{ID: "T", Kind: kahn.KindTrigger}, kahn.Node{ID: "other", Kind: kahn.KindTrigger},
			kahn.Node{ID: "a", After: []string{"T"}}, kahn.Node{ID: "ask", Kind: kahn.KindGate, After: []string{"a"}}, kahn.Node{ID: "b", After: []string{"ask"}, Config: config},
			kahn.Node{ID: "never", After: []string{"other"}})
	}
	want := []kahn.AdoptNode{{Node: "ask", Reason: kahn.AdoptNoResult}, {Node: "b", Reason: kahn.AdoptNoResult}}
	p, err := version("2").Compile()
	require.NoError(t, err)
	s := new(served)
	res, err := kahn.Execute(t.Context(), version("1"), s.step, kahn.RunID("r"), kahn.Durable(s), kahn.Fire("T", 7))
	require.NoError(t, err)
	snapshot, err := kahn.ReadSnapshot(t.Context(), s, "r")
	require.NoError(t, err)
	for name, of := range map[string]*kahn.Snapshot{"stored": snapshot, "of a Result": res.Snapshot()} {
		preview, err := kahn.AdoptPreview(p, of)
		require.NoError(t, err, name)
		require.Equal(t, []string{"T", "a"}, preview.Keep, name)
		require.Equal(t, want, preview.Run, name)
	}
	adopted, err := kahn.Adopt(t.Context(), version("2"), s, "r")
	require.NoError(t, err)
	require.Equal(t, want, adopted.Run)
	s.take()
	res, err = kahn.Execute(t.Context(), version("2"), s.step, kahn.AdoptSnapshot(res.Snapshot()), kahn.EarlySignals(map[string]any{"ask": 1}))
	require.NoError(t, err)
	require.Equal(t, []string{"r b"}, s.take())
	_, has := res.Node("never")
	require.False(t, has)
}
