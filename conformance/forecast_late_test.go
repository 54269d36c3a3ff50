package conformance_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// A step that exceeds its estimate makes the run late, by as much as the step with the largest excess.
func TestForecastLate(t *testing.T) {
	declared := func(id string, d time.Duration, sources ...string) kahn.Node {
		return kahn.Node{ID: id, Kind: "100ms", After: sources, Estimate: d}
	}
	again := func(kahn.View) (bool, error) { return false, nil }
	for _, x := range []struct {
		name    string
		graph   *kahn.Graph
		moments []moment
	}{
		{
			"the largest excess counts", graph(declared("a", 30*ms), declared("b", 50*ms), declared("c", 20*ms, "a")),
			[]moment{{30 * ms, 20 * ms, false, 0, ""}, {40 * ms, 20 * ms, false, 10 * ms, "a"}, {90 * ms, 20 * ms, false, 60 * ms, "a"}, {101 * ms, 19 * ms, false, 0, ""}, {125 * ms, 0, false, 5 * ms, "c"}},
		},
		{
			"in a composite", graph(kahn.Node{ID: "S", Estimate: 200 * ms, Sub: graph(declared("x", 10*ms), declared("y", 40*ms, "x"))}, declared("z", 30*ms, "S")),
			[]moment{{50 * ms, 70 * ms, false, 40 * ms, "S/x"}, {120 * ms, 50 * ms, false, 0, ""}, {150 * ms, 30 * ms, false, 10 * ms, "S/y"}},
		},
		{
			"the estimate of a composite does not count, only the steps in it", graph(kahn.Node{ID: "S", Estimate: 50 * ms, Sub: graph(declared("x", 100*ms), declared("y", 100*ms, "x"))}),
			[]moment{{90 * ms, 110 * ms, false, 0, ""}, {190 * ms, 10 * ms, false, 0, ""}},
		},
		{
			"a loop with more iterations than expected", graph(kahn.Node{ID: "L", Estimate: 100 * ms, Sub: graph(declared("x", 100*ms)), Loop: &kahn.Loop{MaxIterations: 3, Until: again, OnLimit: kahn.LoopStop}}),
			[]moment{{50 * ms, 50 * ms, false, 0, ""}, {250 * ms, 50 * ms, false, 0, ""}},
		},
		{
			"items", graph(kahn.Node{ID: "M", Kind: "100ms", Params: map[string]any{"list": []int{10, 70}}, Map: &kahn.Map{Over: "list", Estimate: func(item any) time.Duration { return time.Duration(item.(int)) * ms }}}),
			[]moment{{5 * ms, 65 * ms, false, 0, ""}, {60 * ms, 10 * ms, false, 50 * ms, "M[0]"}},
		},
		{
			"a gate is not late", graph(declared("a", 10*ms), kahn.Node{ID: "G", Kind: kahn.KindGate, Estimate: 5 * ms}, declared("b", 40*ms, "a", "G")),
			[]moment{{time.Hour, 40 * ms, true, 0, ""}},
		},
	} {
		inBubble(t, x.name, func(t *testing.T) { foretells(t, x.graph, paced(nil), x.moments) })
	}

	inBubble(t, "each attempt counts alone", func(t *testing.T) {
		g := graph(kahn.Node{ID: "a", Kind: "100ms", Estimate: 60 * ms, Retry: kahn.Retry{MaxAttempts: 2, InitialDelay: 50 * ms, Jitter: kahn.JitterNone}})
		step := func(ctx context.Context, s *kahn.Step) (any, error) {
			if s.Attempt() == 1 {
				return fails(100*ms)(ctx, s)
			}
			return paced(nil)(ctx, s)
		}
		foretells(t, g, step, []moment{{90 * ms, 0, false, 30 * ms, "a"}, {110 * ms, 100 * ms, false, 0, ""}, {160 * ms, 50 * ms, false, 0, ""}, {230 * ms, 0, false, 20 * ms, "a"}})
	})
}

// What a forecast counts of nodes in rare states.
func TestForecastOfRareStates(t *testing.T) {
	inBubble(t, "a suspended step waits, and its wait is not counted", func(t *testing.T) {
		g := graph(kahn.Node{ID: "a", Estimate: 10 * ms}, kahn.Node{ID: "b", Kind: "20ms", Estimate: 20 * ms, After: []string{"a"}})
		step := func(ctx context.Context, s *kahn.Step) (any, error) {
			if s.ID() != "a" {
				return paced(nil)(ctx, s)
			}
			if _, err := takes(10*ms)(ctx, s); err != nil {
				return nil, err
			}
			if _, answered := s.Resumed(); answered {
				return nil, nil
			}
			return nil, kahn.Suspend("t", nil, nil)
		}
		r, err := kahn.Start(t.Context(), g, step)
		require.NoError(t, err)
		agrees(t, r, []moment{{4 * ms, 26 * ms, false, 0, ""}, {15 * ms, 20 * ms, true, 0, ""}, {time.Hour, 20 * ms, true, 0, ""}})
		require.NoError(t, r.Signal(t.Context(), "a", 1))
		agrees(t, r, []moment{{4 * ms, 26 * ms, false, 0, ""}, {15 * ms, 15 * ms, false, 0, ""}})
		_, err = r.Wait()
		require.NoError(t, err)
	})

	inBubble(t, "a node that is being stopped counts nothing", func(t *testing.T) {
		g := graph(kahn.Node{ID: "a", Estimate: 50 * ms}, kahn.Node{ID: "b", Estimate: 30 * ms}, kahn.Node{ID: "after", Join: kahn.AllDone, After: []string{"a"}, Estimate: 10 * ms})
		r, err := kahn.Start(t.Context(), g, func(context.Context, *kahn.Step) (any, error) {
			time.Sleep(100 * ms) // it ignores its context
			return nil, nil
		})
		require.NoError(t, err)
		agrees(t, r, []moment{{4 * ms, 56 * ms, false, 0, ""}})
		require.NoError(t, r.CancelNode("a"))
		agrees(t, r, []moment{{0, 26 * ms, false, 0, ""}, {70 * ms, 10 * ms, false, 44 * ms, "b"}})
		_, _ = r.Wait()
	})

	inBubble(t, "none while nodes are undone, and one again when they are", func(t *testing.T) {
		undo := func(context.Context, *kahn.Step) error {
			time.Sleep(40 * ms)
			return nil
		}
		inner := graph(kahn.Node{ID: "x", Kind: "10ms", Estimate: 10 * ms, Compensate: undo}, kahn.Node{ID: "y", Kind: "10ms", Estimate: 10 * ms, After: []string{"x"}})
		g := graph(kahn.Node{ID: "S", Sub: inner, Estimate: 20 * ms, Retry: kahn.Retry{MaxAttempts: 2, InitialDelay: -1}}, kahn.Node{ID: "z", Kind: "10ms", Estimate: 30 * ms})
		failed := false
		step := func(ctx context.Context, s *kahn.Step) (any, error) {
			if s.ID() == "y" && !failed {
				failed = true
				return fails(10*ms)(ctx, s)
			}
			return paced(nil)(ctx, s)
		}
		foretells(t, g, step, []moment{{5 * ms, 25 * ms, false, 0, ""}, {30 * ms, -1, false, 0, ""}, {65 * ms, 15 * ms, false, 0, ""}, {75 * ms, 5 * ms, false, 0, ""}, {80 * ms, -1, false, 0, ""}})
	})

	inBubble(t, "none after the last node has ended, while the store takes the end", func(t *testing.T) {
		g := graph(kahn.Node{ID: "a", Kind: "10ms", Estimate: 30 * ms})
		r, err := kahn.Start(t.Context(), g, paced(nil), kahn.Durable(&slowStore{Store: new(store.Memory), takes: 20 * ms}))
		require.NoError(t, err)
		agrees(t, r, []moment{{25 * ms, 5 * ms, false, 0, ""}, {40 * ms, -1, false, 0, ""}})
		_, err = r.Wait()
		require.NoError(t, err)
	})
}
