package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// TestMaxCrashes: if a process dies during the same step more than MaxCrashes times, the step fails.
func TestMaxCrashes(t *testing.T) {
	t.Parallel()
	retry := kahn.Retry{MaxAttempts: 3, InitialDelay: ms, Jitter: kahn.JitterNone}
	made := func(context.Context, error) (any, error) { return "made up", nil }
	for name, row := range map[string]struct {
		node    kahn.Node
		opts    []kahn.Option
		crashes int // number of crashes after which the next life fails the node
		want    string
		run     string
	}{
		"by default":                {kahn.Node{}, nil, 4, "A:F H:ok B:S/br", "completed+d"},
		"by the option":             {kahn.Node{}, []kahn.Option{kahn.MaxCrashes(1)}, 2, "A:F H:ok B:S/br", "completed+d"},
		"never, by the option":      {kahn.Node{}, []kahn.Option{kahn.MaxCrashes(-1)}, 9, "A:ok H:S/br B:ok", "completed"},
		"zero by the option":        {kahn.Node{}, []kahn.Option{kahn.MaxCrashes(0)}, 1, "A:F H:ok B:S/br", "completed+d"},
		"by the node":               {kahn.Node{MaxCrashes: 2}, []kahn.Option{kahn.MaxCrashes(-1)}, 3, "A:F H:ok B:S/br", "completed+d"},
		"never, by the node":        {kahn.Node{MaxCrashes: -1}, nil, 9, "A:ok H:S/br B:ok", "completed"},
		"it is not retried":         {kahn.Node{Retry: retry}, nil, 4, "A:F H:ok B:S/br", "completed+d"},
		"ContinueOnFail":            {kahn.Node{ContinueOnFail: true}, nil, 4, "A:F H:ok B:ok", "completed+d"},
		"Fallback":                  {kahn.Node{Fallback: made}, nil, 4, "A:ok H:S/br B:ok", "completed"},
		"Fallback of what is tried": {kahn.Node{Fallback: made, Retry: retry}, nil, 4, "A:ok H:S/br B:ok", "completed"},
	} {
		inBubble(t, name, func(t *testing.T) {
			n := row.node
			n.ID = "A"
			g := graph(n, kahn.Node{ID: "H", In: []kahn.Edge{{From: "A", On: kahn.OnFailure}}}, after("B", "A"))
			store := new(journal)
			for range row.crashes {
				store = dies(t, g, takes(time.Minute), store, time.Second, row.opts...)
			}
			called := 0
			r := try2(t, g, func(ctx context.Context, s *kahn.Step) (any, error) {
				if s.ID() == "A" {
					called++
				}
				return nil, nil
			}, append(row.opts, kahn.Durable(store), kahn.RunID("r"))...)
			r.expect(row.want, row.run)
			a := r.node("A")
			if failed := a.Status == kahn.Failed || a.Fallback; failed != (called == 0) {
				t.Errorf("%v, fallback %v after %d calls", a.Status, a.Fallback, called)
			}
			if err := errors.Join(a.Err, a.LastErr); called == 0 && !errors.Is(err, kahn.ErrCrashed) {
				t.Error(err)
			}
			if a.Status == kahn.Failed {
				r.cause("A", kahn.CauseCrashed)
				if a.Attempts != row.crashes {
					t.Errorf("%d attempts", a.Attempts)
				}
			}
		})
	}

	for _, where := range []string{"S/A", "M[0]", "L#1/A"} {
		inBubble(t, "inside: "+where, func(t *testing.T) {
			inner := graph(after("A"))
			g := map[string]*kahn.Graph{
				"S/A": graph(subgraph("S", inner)), "M[0]": graph(mapped("M", numbers(1), kahn.Map{})),
				"L#1/A": graph(kahn.Node{ID: "L", Sub: inner, Loop: &kahn.Loop{MaxIterations: 1, OnLimit: kahn.LoopStop, While: whileLess(2)}}),
			}[where]
			store := new(journal)
			for range 4 {
				store = dies(t, g, takes(time.Minute), store, time.Second)
			}
			if r := try2(t, g, neverStep(t), kahn.Durable(store), kahn.RunID("r")); r.Status != kahn.RunFailed {
				t.Error(r.Status)
			}
		})
	}

	for most := range 3 {
		for _, fails := range []bool{false, true} { // true: the step fails; false: the process dies during the step, and later during the fallback
			inBubble(t, fmt.Sprintf("a fallback that takes the process down, under %d, after a failure %v", most, fails), func(t *testing.T) {
				fallbacks, calls := 0, 0
				g := graph(kahn.Node{ID: "A", Fallback: func(ctx context.Context, _ error) (any, error) {
					fallbacks++
					return takes(time.Minute)(ctx, nil)
				}})
				step := func(ctx context.Context, s *kahn.Step) (any, error) {
					if calls++; fails {
						return nil, errStep
					}
					return takes(time.Minute)(ctx, s)
				}
				store := new(journal)
				for range 2 * (most + 1) {
					store = dies(t, g, step, store, time.Second, kahn.MaxCrashes(most))
				}
				want := []int{most + 1, most + 1} // calls of the step and of the fallback
				if fails {
					want[1] += most + 1
				}
				require.Equal(t, want, []int{calls, fallbacks})
				r := try2(t, g, step, kahn.MaxCrashes(most), kahn.Durable(store), kahn.RunID("r"))
				r.cause("A", kahn.CauseCrashed)
				require.Equal(t, want, []int{calls, fallbacks})
			})
		}
	}

	inBubble(t, "an end of an attempt sets the count back", func(t *testing.T) {
		g := graph(kahn.Node{ID: "A", Retry: kahn.Retry{MaxAttempts: 9, InitialDelay: ms, Jitter: kahn.JitterNone}})
		calls := 0
		step := func(ctx context.Context, s *kahn.Step) (any, error) {
			if calls++; calls%4 == 0 {
				return nil, errStep
			}
			return takes(time.Minute)(ctx, s)
		}
		store := new(journal)
		for range 9 {
			store = dies(t, g, step, store, time.Second)
		}
		try2(t, g, takes(0), kahn.Durable(store), kahn.RunID("r")).expect("A:ok", "completed")
	})

	inBubble(t, "an attempt that was left is no crash", func(t *testing.T) {
		g := graph(after("A"))
		store := new(store.Memory)
		for range 6 {
			l := &lives{t: t, g: g, step: untilStopped, store: store}
			if res, err := l.next(10*ms, nil); err != nil || res.Status != kahn.RunSuspended {
				t.Fatal(res.Status, err)
			}
		}
		try2(t, g, takes(0), kahn.Durable(store), kahn.RunID("r")).expect("A:ok", "completed")
	})
}

// TestBackoffOfALaterLife: a backoff ends at the same time, however the run is interrupted.
func TestBackoffOfALaterLife(t *testing.T) {
	t.Parallel()
	retry := kahn.Retry{MaxAttempts: 2, InitialDelay: time.Minute, MaxDelay: time.Hour, Jitter: kahn.JitterNone}
	for name, cut := range map[string]func(t *testing.T, g *kahn.Graph, step kahn.StepFunc) []kahn.Option{
		"a crash": func(t *testing.T, g *kahn.Graph, step kahn.StepFunc) []kahn.Option {
			return []kahn.Option{kahn.Durable(dies(t, g, step, new(journal), 10*time.Second)), kahn.RunID("r")}
		},
		"two crashes": func(t *testing.T, g *kahn.Graph, step kahn.StepFunc) []kahn.Option {
			store := dies(t, g, step, new(journal), 5*time.Second)
			return []kahn.Option{kahn.Durable(dies(t, g, step, store, 5*time.Second)), kahn.RunID("r")}
		},
		"a snapshot": func(t *testing.T, g *kahn.Graph, step kahn.StepFunc) []kahn.Option {
			return []kahn.Option{kahn.Resume(crashed(t, g, step, 10*time.Second))}
		},
		"it is left": func(t *testing.T, g *kahn.Graph, step kahn.StepFunc) []kahn.Option {
			run, err := kahn.Start(t.Context(), g, step)
			require.NoError(t, err)
			time.Sleep(10 * time.Second)
			run.Leave()
			res, err := run.Wait()
			require.NoError(t, err)
			return []kahn.Option{kahn.Resume(reload(t, res.Snapshot()))}
		},
	} {
		for _, away := range []time.Duration{10 * time.Second, time.Hour} {
			for where, g := range map[string]*kahn.Graph{
				"A": graph(kahn.Node{ID: "A", Retry: retry}), "S/A": graph(subgraph("S", graph(kahn.Node{ID: "A", Retry: retry}))),
				"S": graph(kahn.Node{ID: "S", Sub: graph(after("A")), Retry: retry}),
			} {
				for limit := range 2 {
					inBubble(t, fmt.Sprint(name, ", away for ", away, ", ", where, ", limit ", limit), func(t *testing.T) {
						begin := time.Now()
						var at []time.Duration
						step := func(context.Context, *kahn.Step) (any, error) {
							if at = append(at, time.Since(begin)); len(at) == 1 {
								return nil, errStep
							}
							return nil, nil
						}
						opts := cut(t, g, step)
						time.Sleep(away)
						r := try2(t, g, step, append(opts, kahn.Limit(limit))...)
						if want := []time.Duration{0, max(time.Minute, away+10*time.Second)}; r.Status != kahn.RunCompleted || !slices.Equal(at, want) {
							t.Errorf("%v, called at %v, expected %v", r.Status, at, want)
						}
					})
				}
			}
		}
	}
	inBubble(t, "a stop ends it at once", func(t *testing.T) {
		g := graph(kahn.Node{ID: "A", Retry: retry})
		opts := []kahn.Option{kahn.Durable(dies(t, g, always(errStep), new(journal), 10*time.Second)), kahn.RunID("r")}
		run, err := kahn.Start(t.Context(), g, neverStep(t), opts...)
		require.NoError(t, err)
		synctest.Wait()
		status, _ := run.NodeStatus("A")
		require.Equal(t, kahn.Retrying, status)
		run.Cancel()
		res, _ := run.Wait()
		require.Equal(t, kahn.RunCancelled, res.Status)
		require.Empty(t, leftovers(run))
	})
}

// TestWakeAt: the store contains the time at which a run can continue without a signal.
func TestWakeAt(t *testing.T) {
	t.Parallel()
	retry := kahn.Retry{MaxAttempts: 2, InitialDelay: time.Minute, MaxDelay: time.Hour, Jitter: kahn.JitterNone}
	timed := func(d time.Duration) kahn.Node {
		return kahn.Node{ID: "G", Kind: kahn.KindGate, Gate: &kahn.Gate{Timeout: d}}
	}
	failing := kahn.Node{ID: "A", Retry: retry, Do: always(errStep)}
	slow := kahn.Node{ID: "O", OverallTimeout: 20 * time.Minute, Do: takes(15 * time.Minute)}
	pausing := kahn.Node{ID: "L", Sub: graph(kahn.Node{ID: "x", Do: nop}), Loop: &kahn.Loop{MaxIterations: 3, Pause: 5 * time.Minute, While: whileLess(3)}}
	for name, row := range map[string]struct {
		nodes []kahn.Node
		opts  []kahn.Option
		want  time.Duration // after the start; 0 if never
		ends  bool
	}{
		"nothing":                   {[]kahn.Node{gate("G")}, nil, 0, false},
		"a gate":                    {[]kahn.Node{timed(time.Hour)}, nil, time.Hour, false},
		"a gate inside":             {[]kahn.Node{subgraph("S", graph(timed(time.Hour)))}, nil, time.Hour, false},
		"a backoff":                 {[]kahn.Node{failing, timed(time.Hour)}, nil, time.Minute, false},
		"a backoff inside":          {[]kahn.Node{subgraph("S", graph(failing)), timed(time.Hour)}, nil, time.Minute, false},
		"a pause":                   {[]kahn.Node{pausing, timed(time.Hour)}, nil, 5 * time.Minute, false},
		"the time of all attempts":  {[]kahn.Node{slow, timed(time.Hour)}, nil, 20 * time.Minute, false},
		"the time of the whole run": {[]kahn.Node{timed(time.Hour)}, []kahn.Option{kahn.Timeout(10 * time.Minute)}, 10 * time.Minute, false},
		"a run that is over":        {[]kahn.Node{after("A")}, []kahn.Option{kahn.Timeout(10 * time.Minute)}, 0, true},
	} {
		inBubble(t, name, func(t *testing.T) {
			begin := time.Now()
			g := graph(row.nodes...)
			store := dies(t, g, takes(0), new(journal), time.Second, row.opts...)
			check := func(when string) {
				stored, err := store.Load(t.Context(), "r")
				require.NoError(t, err)
				want := time.Time{}
				if row.want != 0 {
					want = begin.Add(row.want)
				}
				require.True(t, stored.WakeAt.Equal(want), "%s: %v instead of %v", when, stored.WakeAt, want)
				require.Equal(t, row.ends, stored.Status.Terminal())
			}
			check("in the first life")
			if row.ends {
				return
			}
			time.Sleep(time.Second)
			store = dies(t, g, takes(0), store, time.Second, row.opts...)
			check("in the second life")
		})
	}

	for limit := range 2 {
		inBubble(t, fmt.Sprint("what has passed is forgotten, limit ", limit), func(t *testing.T) {
			store := new(store.Memory)
			g := graph(timed(time.Hour), kahn.Node{ID: "A", Retry: retry}, kahn.Node{ID: "B", Retry: retry})
			run, err := kahn.Start(t.Context(), g, func(_ context.Context, s *kahn.Step) (any, error) {
				if s.Attempt() > 1 {
					time.Sleep(time.Minute)
				}
				return nil, errStep
			}, kahn.Durable(store), kahn.RunID("r"), kahn.Limit(limit))
			require.NoError(t, err)
			begin := time.Now()
			for _, want := range []time.Time{begin.Add(time.Minute), begin.Add(time.Hour), {}} {
				synctest.Wait()
				stored, err := store.Load(t.Context(), "r")
				require.NoError(t, err)
				require.True(t, stored.WakeAt.Equal(want), "%v instead of %v", stored.WakeAt, want)
				time.Sleep(time.Until(want))
			}
			_, _ = run.Wait()
		})
	}

	inBubble(t, "many deadlines that do not pass", func(t *testing.T) {
		store := new(journal)
		var g kahn.Graph
		for i := range 500 {
			g.Add(kahn.Node{ID: fmt.Sprint("n", i), OverallTimeout: time.Hour})
			if i > 0 {
				g.Connect(kahn.Edge{From: fmt.Sprint("n", i-1), To: fmt.Sprint("n", i)})
			}
		}
		store = dies(t, &g, takes(time.Second), store, 400*time.Second+500*ms)
		stored, err := store.Load(t.Context(), "r")
		require.NoError(t, err)
		require.Equal(t, time.Hour-500*ms, time.Until(stored.WakeAt).Round(ms))
	})
}

// TestWakeAtOfLeftRuns: a run that was left with steps to call is due at once. A run that waits for an answer is not due.
func TestWakeAtOfLeftRuns(t *testing.T) {
	t.Parallel()
	slow := kahn.Node{ID: "A", Do: takes(time.Minute)}
	for name, row := range map[string]struct {
		g   *kahn.Graph
		due bool
	}{
		"a gate":                {graph(gate("G")), false},
		"a gate inside":         {graph(subgraph("S", graph(gate("G")))), false},
		"a step that had begun": {graph(slow, gate("G")), false}, // A finishes
		"a step that had not":   {graph(slow, kahn.Node{ID: "B", After: []string{"A"}, Do: nop}), true},
		"a step inside":         {graph(subgraph("S", graph(slow, kahn.Node{ID: "B", After: []string{"A"}, Do: nop})), gate("G")), true},
		"a backoff":             {graph(kahn.Node{ID: "A", Retry: kahn.Retry{MaxAttempts: 2, InitialDelay: time.Hour, Jitter: kahn.JitterNone, MaxDelay: time.Hour}, Do: always(errStep)}), false},
		"a pause of a loop":     {graph(kahn.Node{ID: "L", Sub: graph(kahn.Node{ID: "x", Do: nop}), Loop: &kahn.Loop{MaxIterations: 3, Pause: time.Hour, While: whileLess(3)}}), false},
		"a pause and an item": {graph(
			kahn.Node{ID: "L", Sub: graph(kahn.Node{ID: "x", Do: nop}), Loop: &kahn.Loop{MaxIterations: 3, Pause: time.Hour, While: whileLess(3)}},
			slow, kahn.Node{ID: "B", After: []string{"A"}, Do: nop},
		), true},
		"a guard that does not return": {graph(kahn.Node{ID: "A", Do: nop, When: func(kahn.View) (bool, error) {
			time.Sleep(time.Minute)
			return true, nil
		}}), true},
		"items": {graph(
			kahn.Node{ID: "list", Do: func(context.Context, *kahn.Step) (any, error) { return []any{1, 2, 3}, nil }},
			kahn.Node{ID: "M", Map: &kahn.Map{Over: "items", Limit: 1}, In: []kahn.Edge{{From: "list", Param: "items"}}, Do: takes(time.Minute)},
		), true},
	} {
		inBubble(t, name, func(t *testing.T) {
			db := new(store.Memory)
			run, err := kahn.Start(t.Context(), row.g, nil, kahn.Durable(db), kahn.RunID("r"))
			require.NoError(t, err)
			time.Sleep(time.Second)
			run.Leave()
			res, err := run.Wait()
			require.NoError(t, err)
			require.True(t, res.Left || !row.due)
			stored, err := db.Load(t.Context(), "r")
			require.NoError(t, err)
			require.Equal(t, kahn.RunSuspended, stored.Status)
			require.Equal(t, row.due, !stored.WakeAt.IsZero() && !stored.WakeAt.After(time.Now()), "%v", stored.WakeAt)
			time.Sleep(time.Minute) // abandoned steps return
		})
	}
	inBubble(t, "a run that was pending", func(t *testing.T) {
		db, free := new(store.Memory), make(chan struct{})
		rn := &kahn.Runner{MaxRuns: 1}
		_, err := rn.Start(t.Context(), graph(kahn.Node{ID: "busy", Do: func(context.Context, *kahn.Step) (any, error) {
			<-free
			return nil, nil
		}}), nil)
		require.NoError(t, err)
		run, err := rn.Start(t.Context(), graph(slow), nil, kahn.Durable(db), kahn.RunID("r"))
		require.NoError(t, err)
		require.Equal(t, kahn.RunPending, run.Status())
		run.Leave()
		_, err = run.Wait()
		require.NoError(t, err)
		close(free)
		stored, err := db.Load(t.Context(), "r")
		require.NoError(t, err)
		require.True(t, stored.Status == kahn.RunPending || !stored.WakeAt.IsZero(), "%v %v", stored.Status, stored.WakeAt)
	})
}
