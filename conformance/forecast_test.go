package conformance_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
)

// paced returns a step that takes as long as its node's kind says, or as long as the given map says for its path.
func paced(other map[string]time.Duration) kahn.StepFunc {
	return func(ctx context.Context, s *kahn.Step) (any, error) {
		d, ok := other[s.Path()]
		if !ok {
			var err error
			if d, err = time.ParseDuration(s.Kind()); err != nil {
				return nil, err
			}
		}
		return takes(d)(ctx, s)
	}
}

// slow returns a node whose Kind is the time that its step takes under paced.
func slow(id, took string, sources ...string) kahn.Node {
	return kahn.Node{ID: id, Kind: took, After: sources}
}

// moment is a time in a run, and the expected forecast of the run at this time.
type moment struct {
	at    time.Duration
	left  time.Duration // -1 for no forecast
	waits bool
	late  time.Duration
	node  string // the late step
}

// foretells starts a run, checks its forecasts at the given moments, and cancels the run.
func foretells(t *testing.T, g *kahn.Graph, step kahn.StepFunc, moments []moment, opts ...kahn.Option) {
	t.Helper()
	r, err := kahn.Start(t.Context(), g, step, opts...)
	require.NoError(t, err)
	agrees(t, r, moments)
	r.Cancel()
	_, _ = r.Wait() // it was cancelled, if it has not ended before
}

// agrees checks the forecasts of a run that begins now.
func agrees(t *testing.T, r *kahn.Run, moments []moment) {
	t.Helper()
	began := time.Now()
	for _, m := range moments {
		time.Sleep(m.at - time.Since(began))
		synctest.Wait()
		f, ok := r.Forecast()
		if m.left < 0 {
			require.False(t, ok, "at %v: %v", m.at, f)
			require.Zero(t, f)
			continue
		}
		require.True(t, ok, "at %v", m.at)
		require.Equal(t, kahn.Forecast{Left: m.left, Waits: m.waits, Late: m.late, LateNode: m.node}, f, "at %v", m.at)
	}
}

func TestForecast(t *testing.T) {
	again := func(kahn.View) (bool, error) { return false, nil }
	for _, x := range []struct {
		name    string
		graph   *kahn.Graph
		opts    []kahn.Option
		other   map[string]time.Duration // by path: the durations that differ from the former run
		moments []moment
	}{
		{
			"a chain", graph(slow("a", "10ms"), slow("b", "20ms", "a"), slow("c", "30ms", "b")), nil, nil,
			[]moment{{0, 60 * ms, false, 0, ""}, {4 * ms, 56 * ms, false, 0, ""}, {10 * ms, 50 * ms, false, 0, ""}, {15 * ms, 45 * ms, false, 0, ""}, {59 * ms, 1 * ms, false, 0, ""}, {60 * ms, -1, false, 0, ""}},
		},
		{
			"a diamond: the longer path counts", graph(slow("a", "10ms"), slow("b", "20ms", "a"), slow("c", "50ms", "a"), slow("d", "10ms", "b", "c")), nil, nil,
			[]moment{{0, 70 * ms, false, 0, ""}, {35 * ms, 35 * ms, false, 0, ""}, {65 * ms, 5 * ms, false, 0, ""}},
		},
		{
			"a node that takes longer than expected counts nothing then", graph(slow("a", "10ms"), slow("b", "10ms", "a")), nil, map[string]time.Duration{"a": 30 * ms},
			[]moment{{5 * ms, 15 * ms, false, 0, ""}, {25 * ms, 10 * ms, false, 15 * ms, "a"}, {35 * ms, 5 * ms, false, 0, ""}},
		},
		{
			"a limit: the work of all nodes counts", graph(slow("a", "10ms"), slow("b", "10ms"), slow("c", "10ms"), slow("d", "10ms"), slow("e", "10ms")), []kahn.Option{kahn.Limit(2)}, nil,
			[]moment{{0, 25 * ms, false, 0, ""}, {5 * ms, 20 * ms, false, 0, ""}, {25 * ms, 5 * ms, false, 0, ""}},
		},
		{
			"waves: the longest node of each tier counts", graph(slow("a", "10ms"), slow("b", "30ms"), slow("c", "30ms", "a")), []kahn.Option{kahn.Waves}, nil,
			[]moment{{0, 60 * ms, false, 0, ""}, {15 * ms, 45 * ms, false, 0, ""}, {40 * ms, 20 * ms, false, 0, ""}},
		},
		{
			"a sub-graph", graph(kahn.Node{ID: "S", Sub: graph(slow("x", "10ms"), slow("y", "20ms", "x"))}, slow("z", "10ms", "S"), kahn.Node{ID: "later", After: []string{"z"}, Sub: graph(slow("x", "7ms"))}), nil, nil,
			[]moment{{0, 47 * ms, false, 0, ""}, {15 * ms, 32 * ms, false, 0, ""}, {35 * ms, 12 * ms, false, 0, ""}, {42 * ms, 5 * ms, false, 0, ""}},
		},
		{
			"a sub-graph under the run's limit", graph(kahn.Node{ID: "S", Sub: graph(slow("x", "10ms"), slow("y", "10ms"), slow("z", "10ms"))}), []kahn.Option{kahn.Limit(1)}, nil,
			[]moment{{0, 30 * ms, false, 0, ""}, {15 * ms, 15 * ms, false, 0, ""}},
		},
		{
			"items under the limit of their map", graph(kahn.Node{ID: "M", Kind: "10ms", Params: map[string]any{"list": []int{1, 2, 3, 4, 5}}, Map: &kahn.Map{Over: "list", Limit: 2}}), nil, nil,
			[]moment{{0, 25 * ms, false, 0, ""}, {5 * ms, 20 * ms, false, 0, ""}, {15 * ms, 10 * ms, false, 0, ""}},
		},
		{
			"sub-graphs as items", graph(kahn.Node{ID: "M", Params: map[string]any{"list": []int{1, 2, 3}}, Map: &kahn.Map{Over: "list", Limit: 1}, Sub: graph(slow("x", "10ms"), slow("y", "5ms"))}), nil, nil,
			[]moment{{0, 30 * ms, false, 0, ""}, {7 * ms, 23 * ms, false, 0, ""}, {15 * ms, 15 * ms, false, 0, ""}},
		},
		{
			"a loop: as many iterations as before", graph(kahn.Node{ID: "L", Sub: graph(slow("x", "10ms")), Loop: &kahn.Loop{MaxIterations: 3, Until: again, OnLimit: kahn.LoopStop}}), nil, nil,
			[]moment{{0, 30 * ms, false, 0, ""}, {5 * ms, 25 * ms, false, 0, ""}, {15 * ms, 15 * ms, false, 0, ""}, {25 * ms, 5 * ms, false, 0, ""}},
		},
		{
			"a loop that takes longer than expected counts what is left of its iteration", graph(kahn.Node{ID: "L", Sub: graph(slow("x", "10ms"), slow("y", "10ms", "x")), Loop: &kahn.Loop{MaxIterations: 2, Until: again, OnLimit: kahn.LoopStop}}),
			nil, map[string]time.Duration{"L#1/x": 30 * ms}, []moment{{45 * ms, 15 * ms, false, 0, ""}},
		},
		{
			"a gate: its wait does not count", graph(slow("a", "10ms"), gate("G", "a"), slow("b", "20ms", "G")), []kahn.Option{kahn.EarlySignals(map[string]any{"G": 1})}, nil,
			[]moment{{5 * ms, 25 * ms, true, 0, ""}, {15 * ms, 15 * ms, false, 0, ""}},
		},
		{
			"a condition takes no time", graph(slow("a", "10ms"), kahn.Node{ID: "is", After: []string{"a"}, Test: func(kahn.View) (any, error) { return true, nil }}, slow("b", "20ms", "is")), nil, nil,
			[]moment{{0, 30 * ms, false, 0, ""}, {15 * ms, 15 * ms, false, 0, ""}},
		},
	} {
		inBubble(t, x.name, func(t *testing.T) {
			h := &kahn.History{}
			try(t, x.graph, paced(nil), append(x.opts, h)...)
			foretells(t, x.graph, paced(x.other), x.moments, append(x.opts, h)...)
		})
	}

	inBubble(t, "the delay before a retry", func(t *testing.T) {
		g := graph(kahn.Node{ID: "a", Kind: "10ms", Retry: kahn.Retry{MaxAttempts: 2, InitialDelay: 100 * ms, Jitter: kahn.JitterNone}}, slow("b", "5ms", "a"))
		h := &kahn.History{}
		try(t, g, paced(nil), h)
		step := func(ctx context.Context, s *kahn.Step) (any, error) {
			if s.ID() == "a" && s.Attempt() == 1 {
				return fails(10*ms)(ctx, s)
			}
			return paced(nil)(ctx, s)
		}
		foretells(t, g, step, []moment{{5 * ms, 10 * ms, false, 0, ""}, {30 * ms, 95 * ms, false, 0, ""}, {112 * ms, 13 * ms, false, 0, ""}}, h)
	})

	inBubble(t, "a run that waits for an answer", func(t *testing.T) {
		ask := graph(gate("ask"), slow("x", "10ms", "ask"))
		g := graph(slow("a", "10ms"), gate("G", "a"), slow("b", "20ms", "G"), kahn.Node{ID: "S", After: []string{"b"}, Sub: ask, Estimate: 10 * ms})
		h := &kahn.History{}
		r, err := kahn.Start(t.Context(), g, paced(nil), h, kahn.EarlySignals(map[string]any{"G": 1}))
		require.NoError(t, err)
		_, err = r.WaitFor(t.Context(), "S", kahn.Suspended)
		require.NoError(t, err)
		require.NoError(t, r.Signal(t.Context(), "S/ask", 1))
		_, err = r.Wait()
		require.NoError(t, err)
		r, err = kahn.Start(t.Context(), g, paced(nil), h)
		require.NoError(t, err)
		agrees(t, r, []moment{{0, 40 * ms, true, 0, ""}, {time.Hour, 30 * ms, true, 0, ""}})
		require.NoError(t, r.Signal(t.Context(), "G", 1))
		agrees(t, r, []moment{{5 * ms, 25 * ms, true, 0, ""}, {time.Hour, 10 * ms, true, 0, ""}}) // the gate in S waits, too
		require.NoError(t, r.Signal(t.Context(), "S/ask", 1))
		agrees(t, r, []moment{{4 * ms, 6 * ms, false, 0, ""}, {10 * ms, -1, false, 0, ""}})
		_, err = r.Wait()
		require.NoError(t, err)
	})

	inBubble(t, "a branch counts until it is skipped", func(t *testing.T) {
		long := true
		g := graph(slow("a", "10ms"), kahn.Node{ID: "is", After: []string{"a"}, Test: func(kahn.View) (any, error) { return long, nil }},
			kahn.Node{ID: "yes", Kind: "100ms", In: []kahn.Edge{{From: "is", Label: "true"}}}, kahn.Node{ID: "no", Kind: "10ms", In: []kahn.Edge{{From: "is", Label: "false"}}})
		h := &kahn.History{}
		try(t, g, paced(nil), h)
		long = false
		try(t, g, paced(nil), h)
		foretells(t, g, paced(nil), []moment{{5 * ms, 105 * ms, false, 0, ""}, {15 * ms, 5 * ms, false, 0, ""}}, h)
	})

	inBubble(t, "nodes after a failure do not count", func(t *testing.T) {
		g := graph(slow("a", "10ms"), slow("b", "100ms", "a"), slow("other", "40ms"))
		h := &kahn.History{}
		try(t, g, paced(nil), h)
		step := func(ctx context.Context, s *kahn.Step) (any, error) {
			if s.ID() == "a" {
				return fails(10*ms)(ctx, s)
			}
			return paced(nil)(ctx, s)
		}
		foretells(t, g, step, []moment{{5 * ms, 105 * ms, false, 0, ""}, {15 * ms, 25 * ms, false, 0, ""}, {40 * ms, -1, false, 0, ""}}, h)
	})

	inBubble(t, "a run that is being stopped has no forecast", func(t *testing.T) {
		g := graph(slow("a", "10ms"))
		h := &kahn.History{}
		try(t, g, paced(nil), h)
		for _, stop := range []func(*kahn.Run){func(r *kahn.Run) { r.Cancel() }, func(r *kahn.Run) { r.Leave() }} {
			r, err := kahn.Start(t.Context(), g, func(context.Context, *kahn.Step) (any, error) {
				time.Sleep(10 * ms)
				return nil, nil
			}, h)
			require.NoError(t, err)
			agrees(t, r, []moment{{5 * ms, 5 * ms, false, 0, ""}})
			stop(r)
			agrees(t, r, []moment{{0, -1, false, 0, ""}, {time.Second, -1, false, 0, ""}})
		}
	})

	inBubble(t, "a run that has not begun has no forecast", func(t *testing.T) {
		rn := &kahn.Runner{MaxRuns: 1, Learn: &kahn.History{}}
		g := graph(slow("a", "10ms"))
		_, err := rn.Execute(t.Context(), g, paced(nil))
		require.NoError(t, err)
		first, err := rn.Start(t.Context(), g, paced(nil))
		require.NoError(t, err)
		second, err := rn.Start(t.Context(), g, paced(nil))
		require.NoError(t, err)
		agrees(t, second, []moment{{5 * ms, -1, false, 0, ""}, {13 * ms, 7 * ms, false, 0, ""}})
		_, _ = first.Wait()
		_, _ = second.Wait()
	})

	inBubble(t, "declared durations", func(t *testing.T) {
		declared := func(id string, d time.Duration, sources ...string) kahn.Node {
			return kahn.Node{ID: id, Kind: "10ms", After: sources, Estimate: d}
		}
		foretells(t, graph(declared("a", 30*ms), declared("b", 5*ms, "a")), paced(nil), []moment{{4 * ms, 31 * ms, false, 0, ""}, {14 * ms, 1 * ms, false, 0, ""}})
		foretells(t, graph(declared("a", 30*ms), declared("b", 0, "a")), paced(nil), []moment{{4 * ms, -1, false, 0, ""}}) // the run has no estimate for b
		foretells(t, graph(declared("a", 0), declared("b", 20*ms, "a")), paced(nil), []moment{{4 * ms, -1, false, 0, ""}, {14 * ms, 16 * ms, false, 0, ""}})
		foretells(t, graph(slow("a", "10ms"), slow("b", "10ms", "a")), paced(nil), []moment{{0, -1, false, 0, ""}})
		items := kahn.Node{ID: "M", Kind: "10ms", Params: map[string]any{"list": []int{7, 9}}, Map: &kahn.Map{Over: "list", Limit: 1, Estimate: func(item any) time.Duration { return time.Duration(item.(int)) * ms }}}
		foretells(t, graph(items), paced(nil), []moment{{4 * ms, 12 * ms, false, 0, ""}}) // the longer item runs
	})

	inBubble(t, "the option Estimates", func(t *testing.T) {
		g := graph(slow("a", "10ms"), slow("b", "20ms", "a"))
		before := try(t, g, paced(nil))
		contrary := &kahn.History{}
		try(t, g, takes(500*ms), contrary)
		foretells(t, g, paced(nil), []moment{{4 * ms, 26 * ms, false, 0, ""}}, kahn.Estimates(before.Result), contrary)
		g.Add(slow("c", "10ms", "b"))
		foretells(t, g, paced(nil), []moment{{4 * ms, -1, false, 0, ""}}, kahn.Estimates(before.Result), contrary) // with the option Estimates, the History only learns
	})

	inBubble(t, "a node that the History does not know counts as its kind, or as all nodes", func(t *testing.T) {
		h := &kahn.History{}
		try(t, graph(slow("a", "10ms"), slow("b", "30ms")), paced(nil), h)
		foretells(t, graph(slow("new", "30ms"), slow("newer", "1ms", "new")), paced(nil), []moment{{0, 50 * ms, false, 0, ""}}, h)
	})

	inBubble(t, "a graph that a step returns", func(t *testing.T) {
		step := func(ctx context.Context, s *kahn.Step) (any, error) {
			if _, err := takes(5*ms)(ctx, s); err != nil || s.ID() != "a" {
				return nil, err
			}
			return nil, kahn.Expand(graph(slow("x", ""), slow("y", "", "x")), nil, nil)
		}
		g, h := graph(kahn.Node{ID: "a"}, after("b", "a")), &kahn.History{}
		try(t, g, step, h)
		foretells(t, g, step, []moment{{0, 20 * ms, false, 0, ""}, {7 * ms, 13 * ms, false, 0, ""}, {12 * ms, 8 * ms, false, 0, ""}}, h)
	})

	inBubble(t, "a resumed run", func(t *testing.T) {
		g := graph(slow("a", "10ms"), gate("G", "a"), slow("b", "20ms", "G"), slow("c", "30ms", "b"))
		h, answered := &kahn.History{}, kahn.EarlySignals(map[string]any{"G": 1})
		try(t, g, paced(nil), h, answered)
		res, err := kahn.Execute(t.Context(), g, paced(nil), h)
		require.NoError(t, err)
		require.Equal(t, kahn.RunSuspended, res.Status)
		time.Sleep(time.Hour)
		r, err := kahn.Start(t.Context(), g, paced(nil), kahn.Resume(reload(t, res.Snapshot())), answered)
		require.NoError(t, err)
		agrees(t, r, []moment{{5 * ms, 45 * ms, false, 0, ""}})
		d, ok := r.Estimate("c")
		require.True(t, ok)
		require.Equal(t, 30*ms, d)
		_, err = r.Wait()
		require.NoError(t, err)
	})

	inBubble(t, "a run that was left while a composite ran", func(t *testing.T) {
		g, h := graph(slow("a", "10ms"), kahn.Node{ID: "S", After: []string{"a"}, Sub: graph(slow("x", "20ms"), slow("y", "10ms", "x"))}), &kahn.History{}
		try(t, g, paced(nil), h)
		r, err := kahn.Start(t.Context(), g, paced(nil), h)
		require.NoError(t, err)
		time.Sleep(15 * ms)
		r.Leave()
		res, _ := r.Wait()
		require.True(t, res.Left)
		time.Sleep(time.Hour)
		r, err = kahn.Start(t.Context(), g, paced(nil), kahn.Resume(reload(t, res.Snapshot())))
		require.NoError(t, err)
		agrees(t, r, []moment{{4 * ms, 6 * ms, false, 0, ""}}) // x ended before the run was left
		_, err = r.Wait()
		require.NoError(t, err)
	})
}

// TestEstimateOfNode: Estimate returns the declared duration or, without one, the duration learned for the node's own path. It does not guess from
// other nodes. The option Estimates takes precedence over the declared duration.
func TestEstimateOfNode(t *testing.T) {
	inBubble(t, "by path", func(t *testing.T) {
		inner := graph(slow("x", "10ms"))
		g := graph(
			slow("a", "10ms"), kahn.Node{ID: "declared", Kind: "10ms", Estimate: time.Minute}, gate("G"),
			kahn.Node{ID: "is", Test: func(kahn.View) (any, error) { return true, nil }},
			kahn.Node{ID: "M", Params: map[string]any{"list": []int{1, 2}}, Map: &kahn.Map{Over: "list", Limit: 1}, Sub: inner},
			kahn.Node{ID: "L", Sub: inner, Loop: &kahn.Loop{MaxIterations: 2, Until: func(kahn.View) (bool, error) { return false, nil }, OnLimit: kahn.LoopStop}},
			kahn.Node{ID: "E", Kind: "10ms", Params: map[string]any{"list": []int{3}}, Map: &kahn.Map{Over: "list", Estimate: func(any) time.Duration { return time.Hour }}},
		)
		h, answered := &kahn.History{}, kahn.EarlySignals(map[string]any{"G": 1})
		try(t, g, paced(nil), h, answered)
		g.Add(slow("new", "10ms"))
		r, err := kahn.Start(t.Context(), g, paced(nil), h, answered)
		require.NoError(t, err)
		time.Sleep(5 * ms)
		for path, want := range map[string]time.Duration{
			"a": 10 * ms, "declared": time.Minute, "M": 20 * ms, "M[1]": 10 * ms, "M[0]/x": 10 * ms, "L": 20 * ms, "L#1/x": 10 * ms, "E[0]": time.Hour,
			"G": -1, "is": -1, "new": -1, "none": -1, "M[7]": -1, "L#2/x": -1,
		} {
			d, ok := r.Estimate(path)
			require.Equal(t, want >= 0, ok, path)
			require.Equal(t, max(want, 0), d, path)
		}
		_, err = r.Wait()
		require.NoError(t, err)
		d, _ := r.Estimate("a")
		require.Equal(t, 10*ms, d, "after the end, too")
	})

	inBubble(t, "with the option Estimates", func(t *testing.T) {
		g := graph(slow("a", "10ms"), kahn.Node{ID: "b", Kind: "20ms", Estimate: time.Minute})
		before := try(t, g, paced(nil))
		g.Add(kahn.Node{ID: "c", Kind: "1ms", Estimate: time.Hour}, slow("d", "1ms"))
		h := &kahn.History{}
		try(t, g, takes(500*ms), h)
		r, err := kahn.Start(t.Context(), g, paced(nil), kahn.Estimates(before.Result), h)
		require.NoError(t, err)
		for path, want := range map[string]time.Duration{"a": 10 * ms, "b": 20 * ms, "c": time.Hour, "d": -1} {
			d, ok := r.Estimate(path)
			require.Equal(t, want >= 0, ok, path)
			require.Equal(t, max(want, 0), d, path)
		}
		_, err = r.Wait()
		require.NoError(t, err)
	})
}
