package conformance_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/store"
)

// uses returns a step that reports the usage of one token, and of half a cent if its kind is "model", and then calls step.
func uses(step kahn.StepFunc) kahn.StepFunc {
	return func(ctx context.Context, s *kahn.Step) (any, error) {
		s.Use("tokens", 1)
		if s.Kind() == "model" {
			s.Use("cents", 0.5)
		}
		return step(ctx, s)
	}
}

// TestUsage: a run adds up the usage of its attempts, items, iterations and lives, however they end.
func TestUsage(t *testing.T) {
	tokens := func(n float64) kahn.Usage { return kahn.Usage{"tokens": n} }
	for _, opts := range [][]kahn.Option{nil, {kahn.Limit(1)}, {kahn.Waves}, {kahn.Durable(new(store.Memory))}} {
		for name, x := range map[string]struct {
			g     *kahn.Graph
			step  kahn.StepFunc
			want  kahn.Usage
			nodes map[string]kahn.Usage
			kinds map[string]kahn.Usage
		}{
			"plain": {graph(after("A"), after("B", "A")), takes(0), tokens(2), map[string]kahn.Usage{"A": tokens(1), "B": tokens(1)}, map[string]kahn.Usage{"": tokens(2)}},
			"attempts that failed": {graph(kahn.Node{ID: "A", Retry: thrice(ms), Kind: "model"}), fails(ms), kahn.Usage{"tokens": 3, "cents": 1.5},
				map[string]kahn.Usage{"A": {"tokens": 3, "cents": 1.5}}, map[string]kahn.Usage{"model": {"tokens": 3, "cents": 1.5}}},
			"a panic":    {graph(after("A")), func(context.Context, *kahn.Step) (any, error) { panic("x") }, tokens(1), map[string]kahn.Usage{"A": tokens(1)}, map[string]kahn.Usage{"": tokens(1)}},
			"a timeout":  {graph(kahn.Node{ID: "A", Timeout: time.Second}), takes(time.Hour), tokens(1), map[string]kahn.Usage{"A": tokens(1)}, map[string]kahn.Usage{"": tokens(1)}},
			"items":      {graph(mapped("M", numbers(5), kahn.Map{})), takes(0), tokens(5), map[string]kahn.Usage{"M": tokens(5)}, map[string]kahn.Usage{"": tokens(5)}},
			"iterations": {graph(kahn.Node{ID: "L", Sub: graph(after("x")), Loop: &kahn.Loop{MaxIterations: 3, Until: func(v kahn.View) (bool, error) { return v.Iteration() == 3, nil }}}, after("B", "L")), takes(0), tokens(4), map[string]kahn.Usage{"L": tokens(3), "B": tokens(1)}, map[string]kahn.Usage{"": tokens(4)}},
			"attempts of a sub-graph, two deep": {graph(kahn.Node{ID: "S", Retry: thrice(ms), Sub: graph(subgraph("T", graph(kahn.Node{ID: "x", Kind: "model"})))}), fails(ms), kahn.Usage{"tokens": 3, "cents": 1.5},
				map[string]kahn.Usage{"S": {"tokens": 3, "cents": 1.5}}, map[string]kahn.Usage{"model": {"tokens": 3, "cents": 1.5}}},
			"a graph that a step returns": {graph(after("E")), func(ctx context.Context, s *kahn.Step) (any, error) {
				if s.Path() == "E" {
					return nil, kahn.Expand(graph(kahn.Node{ID: "x", Kind: "model"}), nil, nil)
				}
				return nil, nil
			}, kahn.Usage{"tokens": 2, "cents": 0.5}, map[string]kahn.Usage{"E": {"tokens": 2, "cents": 0.5}}, map[string]kahn.Usage{"": tokens(1), "model": {"tokens": 1, "cents": 0.5}}},
			"a pause": {graph(after("A")), func(_ context.Context, s *kahn.Step) (any, error) {
				if s.SavedState() == nil {
					return nil, kahn.SuspendUntil(time.Now().Add(time.Minute), "state")
				}
				return 1, nil
			}, tokens(2), map[string]kahn.Usage{"A": tokens(2)}, map[string]kahn.Usage{"": tokens(2)}},
			"a compensation": {graph(kahn.Node{ID: "A", Compensate: func(_ context.Context, s *kahn.Step) error { s.Use("undos", 1); return nil }}, after("B", "A")), func(_ context.Context, s *kahn.Step) (any, error) {
				if s.ID() == "B" {
					return nil, errStep
				}
				return nil, nil
			}, kahn.Usage{"tokens": 2, "undos": 1}, map[string]kahn.Usage{"A": {"tokens": 1, "undos": 1}, "B": tokens(1)}, map[string]kahn.Usage{"": {"tokens": 2, "undos": 1}}},
			"nothing": {graph(kahn.Node{ID: "A", Do: takes(0)}), nil, nil, map[string]kahn.Usage{"A": nil}, nil},
		} {
			inBubble(t, fmt.Sprint(name, opts), func(t *testing.T) {
				step := x.step
				if step != nil {
					step = uses(step)
				}
				r := try(t, x.g, step, opts...)
				require.Equal(t, x.want, r.Usage())
				require.Equal(t, x.kinds, r.UsageByKind())
				for id, want := range x.nodes {
					require.Equal(t, want, r.node(id).Usage, id)
					if inside := r.node(id).Sub; inside != nil {
						require.Equal(t, x.want, inside.Usage(), "inside %s", id)
					}
				}
				end := r.events[len(r.events)-1].Payload.(event.RunEnd)
				require.Equal(t, map[string]float64(x.want), end.Usage)
				sum := kahn.Usage{} // the sum over node events
				for _, e := range r.events {
					used := map[string]float64(nil)
					switch p := e.Payload.(type) {
					case event.Completion:
						used = p.Usage
					case event.NodeEnd:
						used = p.Usage
					}
					for name, n := range used {
						sum[name] += n
					}
				}
				if x.want != nil && name != "a compensation" {
					require.Equal(t, x.want, sum)
				}
			})
		}
	}
	inBubble(t, "tokens are two names", func(t *testing.T) {
		r := try(t, graph(after("A")), func(_ context.Context, s *kahn.Step) (any, error) {
			s.Tokens(10, 0)
			s.Tokens(5, 3)
			return nil, nil
		})
		require.Equal(t, kahn.Usage{kahn.UsageInputTokens: 15, kahn.UsageOutputTokens: 3}, r.Usage())
		done := r.find(event.NodeCompleted, "A")[0].Payload.(event.Completion)
		require.Equal(t, []int{15, 3}, []int{done.InputTokens, done.OutputTokens})
	})
	inBubble(t, "what is refused", func(t *testing.T) {
		r := try(t, graph(after("A")), func(_ context.Context, s *kahn.Step) (any, error) {
			s.Use("", 1)
			s.Use(strings.Repeat("x", 101), 1)
			s.Use("n", -1)
			s.Use("n", math.NaN())
			s.Use("n", math.Inf(1))
			s.Use("n", 0)
			for i := range 101 {
				s.Use(fmt.Sprint("n", i), 1)
			}
			return nil, nil
		})
		require.Len(t, r.Usage(), 100)
		require.Len(t, r.find(event.NodeLog, "A"), 6)
	})
	inBubble(t, "after the end nothing counts", func(t *testing.T) {
		var kept *kahn.Step
		r := try(t, graph(after("A"), after("B", "A")), func(_ context.Context, s *kahn.Step) (any, error) {
			if s.ID() == "B" {
				kept.Use("late", 1)
			}
			kept = s
			return nil, nil
		})
		kept.Use("late", 1)
		require.Nil(t, r.Usage())
	})
}

// TestUsageLives: the usage of earlier lives counts, whether they were left or crashed. If a crash interrupts an attempt, only the usage of the
// repeated attempt counts.
func TestUsageLives(t *testing.T) {
	g := graph(after("A"), kahn.Node{ID: "S", After: []string{"A"}, Sub: graph(after("x"), after("y", "x"))}, gate("G", "S"), after("B", "G"))
	slow := uses(func(ctx context.Context, s *kahn.Step) (any, error) {
		if s.ID() == "y" {
			return takes(time.Second)(ctx, s)
		}
		return nil, nil
	})
	inBubble(t, "in a snapshot", func(t *testing.T) {
		res, err := kahn.Execute(t.Context(), g, slow)
		require.NoError(t, err)
		require.Equal(t, kahn.Usage{"tokens": 3}, res.Usage())
		snapshot := reload(t, res.Snapshot())
		require.Equal(t, kahn.Usage{"tokens": 3}, snapshot.Usage())
		res, err = kahn.Execute(t.Context(), g, slow, kahn.Resume(snapshot), kahn.EarlySignals(map[string]any{"G": true}))
		require.NoError(t, err)
		require.Equal(t, kahn.Usage{"tokens": 4}, res.Usage())
		n, _ := res.Node("S")
		require.Equal(t, kahn.Usage{"tokens": 2}, n.Usage)
		again, err := kahn.Execute(t.Context(), g, slow, kahn.Redrive(reload(t, res.Snapshot()), []string{"S/y"}), kahn.EarlySignals(map[string]any{"G": true}))
		require.NoError(t, err)
		require.Greater(t, again.Usage()["tokens"], 4.0) // usage from before the redrive still counts
		n, _ = again.Node("S")
		require.Equal(t, kahn.Usage{"tokens": 3}, n.Usage)
	})
	inBubble(t, "in a snapshot of an older version, which counted tokens", func(t *testing.T) {
		g := graph(after("A"), gate("G", "A"))
		res, err := kahn.Execute(t.Context(), g, takes(0))
		require.NoError(t, err)
		data, err := json.Marshal(res.Snapshot())
		require.NoError(t, err)
		old := strings.Replace(string(data), `"id":"A"`, `"id":"A","tokens":[15,3]`, 1)
		require.NotEqual(t, string(data), old)
		snapshot := new(kahn.Snapshot)
		require.NoError(t, json.Unmarshal([]byte(old), snapshot))
		for range 3 { // each life counts the usage once
			res, err = kahn.Execute(t.Context(), g, takes(0), kahn.Resume(snapshot))
			require.NoError(t, err)
			require.Equal(t, kahn.Usage{kahn.UsageInputTokens: 15, kahn.UsageOutputTokens: 3}, res.Usage())
			n, _ := res.Node("A")
			require.Equal(t, res.Usage(), n.Usage)
			snapshot = reload(t, res.Snapshot())
		}
	})
	inBubble(t, "after a crash in the middle of an attempt", func(t *testing.T) {
		db := dies(t, g, slow, new(journal), 500*ms, kahn.RunID("r"))
		s, err := kahn.ReadSnapshot(t.Context(), db, "r")
		require.NoError(t, err)
		require.Equal(t, kahn.Usage{"tokens": 2}, s.Usage()) // y has not ended
		res, err := kahn.Execute(t.Context(), g, slow, kahn.Durable(db), kahn.RunID("r"), kahn.EarlySignals(map[string]any{"G": true}))
		require.NoError(t, err)
		require.Equal(t, kahn.Usage{"tokens": 4}, res.Usage())
		n, _ := res.Node("S")
		require.Equal(t, kahn.Usage{"tokens": 2}, n.Usage)
	})
	inBubble(t, "in any life that the store has seen", func(t *testing.T) {
		db := new(journal)
		_, err := kahn.Execute(t.Context(), g, slow, kahn.Durable(db), kahn.RunID("r"))
		require.NoError(t, err)
		for n := 1; n <= db.len(); n++ {
			res, err := kahn.Execute(t.Context(), g, slow, kahn.Durable(db.replay(t, "r", n)), kahn.RunID("r"), kahn.EarlySignals(map[string]any{"G": true}))
			require.NoError(t, err)
			require.Equal(t, kahn.Usage{"tokens": 4}, res.Usage(), "after %d commits", n)
			s, _ := res.Node("S")
			require.Equal(t, kahn.Usage{"tokens": 2}, s.Usage, "after %d commits", n)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		run, err := kahn.Start(t.Context(), g, slow) // while it runs
		require.NoError(t, err)
		time.Sleep(ms)
		synctest.Wait()
		require.Equal(t, kahn.Usage{"tokens": 3}, run.Usage())
		require.Equal(t, kahn.Usage{"tokens": 2}, run.Snapshot().Usage())
		_ = run.Cancel()
		res, _ := run.Wait()
		require.Equal(t, kahn.Usage{"tokens": 3}, res.Usage())
	})
}

// TestBudget: a run whose usage over all lives exceeds its Budget is stopped as by AbortAll.
func TestBudget(t *testing.T) {
	errPoor := errors.New("no money left")
	atMost := func(n float64) kahn.Option {
		return kahn.Budget(func(u kahn.Usage) error {
			defer clear(u) // the map belongs to the Budget function
			if u["tokens"] > n {
				return errPoor
			}
			return nil
		})
	}
	for _, opts := range [][]kahn.Option{nil, {kahn.Limit(1)}, {kahn.Durable(new(store.Memory))}} {
		inBubble(t, fmt.Sprint(opts), func(t *testing.T) {
			g := chainGraph(5)
			r := try(t, g, uses(takes(ms)), append(opts, atMost(2))...)
			require.Equal(t, kahn.RunFailed, r.Status)
			require.Equal(t, kahn.CauseBudget, r.Cause.Kind)
			require.ErrorIs(t, r.err, errPoor)
			require.ErrorIs(t, r.err, kahn.ErrBudget)
			require.Equal(t, kahn.Usage{"tokens": 3}, r.Usage())
			var aborted int
			for n := range r.Nodes() {
				if n.Status == kahn.Aborted {
					aborted++
					require.Equal(t, kahn.CauseBudget, n.Cause.Kind)
				}
			}
			require.Equal(t, 3, aborted)
			require.Equal(t, kahn.RunCompleted, try(t, g, uses(takes(ms)), append(opts, atMost(5))...).Status)
		})
	}
	inBubble(t, "inside a composite", func(t *testing.T) {
		r := try(t, graph(mapped("M", numbers(9), kahn.Map{Limit: 1})), uses(takes(ms)), atMost(3))
		require.Equal(t, kahn.CauseBudget, r.Cause.Kind)
		require.Equal(t, kahn.Usage{"tokens": 4}, r.Usage())
	})
	inBubble(t, "over lives", func(t *testing.T) {
		g := graph(after("A"), gate("G", "A"), after("B", "G"), after("C", "B"))
		res, err := kahn.Execute(t.Context(), g, uses(takes(0)), atMost(1))
		require.NoError(t, err)
		_, err = kahn.Execute(t.Context(), g, uses(takes(0)), kahn.Resume(reload(t, res.Snapshot())), kahn.EarlySignals(map[string]any{"G": true}), atMost(1))
		require.ErrorIs(t, err, errPoor)
	})
	inBubble(t, "a panic", func(t *testing.T) {
		r := try(t, graph(after("A")), uses(untilStopped), kahn.Budget(func(kahn.Usage) error { panic("broken") }))
		require.Equal(t, kahn.CauseBudget, r.Cause.Kind)
		require.ErrorAs(t, r.err, new(*kahn.PanicError))
	})
	_, err := kahn.Execute(t.Context(), graph(after("A")), takes(0), kahn.Budget(nil))
	require.ErrorIs(t, err, kahn.ErrBadOption)
}

// TestSetLabel: a label that a step sets is committed with the step, is found by List, and remains in later lives.
func TestSetLabel(t *testing.T) {
	listed := func(t *testing.T, db store.Admin, name, value string) (ids []string) {
		t.Helper()
		page, err := db.List(t.Context(), store.Query{Filter: store.Filter{Labels: map[string]string{name: value}}})
		require.NoError(t, err)
		for i := range page.Runs {
			ids = append(ids, page.Runs[i].ID)
		}
		return ids
	}
	sets := func(then kahn.StepFunc) kahn.StepFunc {
		return func(ctx context.Context, s *kahn.Step) (any, error) {
			if err := s.SetLabel("last", s.ID()); err != nil {
				return nil, err
			}
			return then(ctx, s)
		}
	}
	describe := kahn.Describe(store.Spec{Labels: map[string]string{"team": "red", "last": "none"}})
	g := graph(after("A"), gate("G", "A"), kahn.Node{ID: "S", After: []string{"G"}, Sub: graph(kahn.Node{ID: "x", Retry: thrice(ms)})})
	for _, limit := range []int{0, 1} {
		inBubble(t, fmt.Sprint("over a store, limit ", limit), func(t *testing.T) {
			db := new(store.Memory)
			opts := []kahn.Option{kahn.Durable(db), kahn.RunID("r"), kahn.Limit(limit)}
			_, err := kahn.Execute(t.Context(), g, sets(takes(ms)), append(opts, describe)...)
			require.NoError(t, err)
			require.Equal(t, []string{"r"}, listed(t, db, "last", "A"))
			require.Equal(t, []string{"r"}, listed(t, db, "team", "red"))
			require.Empty(t, listed(t, db, "last", "none"))
			// The next life has other described labels, and fails. It keeps the labels that steps have set.
			_, err = kahn.Execute(t.Context(), g, sets(fails(ms)), append(opts, kahn.Describe(store.Spec{Labels: map[string]string{"team": "blue"}}), kahn.EarlySignals(map[string]any{"G": true}))...)
			require.Error(t, err)
			require.Equal(t, []string{"r"}, listed(t, db, "last", "x"))
			require.Equal(t, []string{"r"}, listed(t, db, "team", "blue"))
			run, err := kahn.Start(t.Context(), g, takes(ms), append(opts, kahn.Redrive(nil, []string{"S/x"}))...)
			if err != nil { // the redrive of a stored run uses this snapshot
				s, err := kahn.ReadSnapshot(t.Context(), db, "r")
				require.NoError(t, err)
				run, err = kahn.Start(t.Context(), g, takes(ms), append(opts, kahn.Redrive(s, []string{"S/x"}))...)
				require.NoError(t, err)
			}
			_, err = run.Wait()
			require.NoError(t, err)
			require.Equal(t, map[string]string{"team": "blue", "last": "x"}, run.Labels())
			require.Equal(t, []string{"r"}, listed(t, db, "last", "x"))
		})
	}
	inBubble(t, "with the step, and not before", func(t *testing.T) {
		db := dies(t, graph(after("A"), after("B", "A")), sets(func(ctx context.Context, s *kahn.Step) (any, error) {
			if s.ID() == "B" {
				return takes(time.Hour)(ctx, s)
			}
			return nil, nil
		}), new(journal), time.Second, kahn.RunID("r"))
		require.Equal(t, []string{"r"}, listed(t, db, "last", "A"))
	})
	inBubble(t, "in memory", func(t *testing.T) {
		run, err := kahn.Start(t.Context(), g, sets(takes(ms)), describe)
		require.NoError(t, err)
		time.Sleep(time.Second)
		require.Equal(t, map[string]string{"team": "red", "last": "A"}, run.Labels())
		snapshot := reload(t, run.Snapshot())
		_ = run.Cancel()
		_, _ = run.Wait()
		run, err = kahn.Start(t.Context(), g, takes(ms), kahn.Resume(snapshot))
		require.NoError(t, err)
		require.Equal(t, map[string]string{"last": "A"}, run.Labels())
		_ = run.Cancel()
		_, _ = run.Wait()
	})
	inBubble(t, "what is refused", func(t *testing.T) {
		r := try(t, graph(after("A")), func(_ context.Context, s *kahn.Step) (any, error) {
			for _, text := range []string{"\xff", strings.Repeat("x", 1001)} {
				require.ErrorIs(t, s.SetLabel(text, "x"), kahn.ErrBadValue)
				require.ErrorIs(t, s.SetLabel("x", text), kahn.ErrBadValue)
			}
			for i := range 100 {
				require.NoError(t, s.SetLabel(fmt.Sprint("n", i), ""))
			}
			require.NoError(t, s.SetLabel("n7", "again"))
			return nil, s.SetLabel("n100", "x")
		})
		require.ErrorIs(t, r.err, kahn.ErrBadValue)
		require.Equal(t, kahn.Failed, r.node("A").Status)
	})
	inBubble(t, "an attempt that has ended sets nothing", func(t *testing.T) {
		var first *kahn.Step
		a := after("A")
		a.Retry = kahn.Retry{MaxAttempts: 2, InitialDelay: -1}
		run, err := kahn.Start(t.Context(), graph(a), func(_ context.Context, s *kahn.Step) (any, error) {
			if first == nil {
				first = s
				return nil, errStep
			}
			require.NoError(t, first.SetLabel("late", "x"))
			return nil, s.SetLabel("last", "A")
		})
		require.NoError(t, err)
		_, err = run.Wait()
		require.NoError(t, err)
		require.Equal(t, map[string]string{"last": "A"}, run.Labels())
	})
}
