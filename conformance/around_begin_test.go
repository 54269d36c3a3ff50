package conformance_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/kahntest"
)

// While a function of Around runs, the run is pending: the host can cancel or leave the run, but cannot stop a node of the run.
func TestAroundAPendingRun(t *testing.T) {
	t.Parallel()
	g := graph(after("a"), after("b", "a"))
	first, _ := kahn.Execute(t.Context(), g, func(context.Context, *kahn.Step) (any, error) { return nil, errStep })
	acts := map[string]struct {
		act  func(*kahn.Run)
		want kahn.RunStatus
	}{
		"look":   {func(*kahn.Run) {}, kahn.RunCompleted},
		"cancel": {func(r *kahn.Run) { r.Cancel() }, kahn.RunCancelled},
		"abort":  {func(r *kahn.Run) { r.AbortAll(errHost) }, kahn.RunFailed},
		"leave":  {(*kahn.Run).Leave, kahn.RunSuspended},
	}
	lives := map[string][]kahn.Option{"new": nil, "redriven": {kahn.Redrive(first.Snapshot(), nil)}}
	for name, c := range acts {
		for life, opts := range lives {
			for kind, start := range map[string]func(context.Context, *kahn.Graph, kahn.StepFunc, ...kahn.Option) (*kahn.Run, error){
				"alone": kahn.Start, "runner": new(kahn.Runner).Start,
			} {
				var ended kahn.RunStatus
				steps := 0
				rec := newRecorder()
				run, err := start(t.Context(), g, func(context.Context, *kahn.Step) (any, error) { steps++; return nil, nil }, append(opts[:len(opts):len(opts)],
					kahn.Limit(1), kahn.OnEvent(rec.add), kahn.Around(func(ctx context.Context, r *kahn.Run) (context.Context, func(*kahn.Result)) {
						if status, at := r.Status(), r.Started(); status != kahn.RunPending || !at.IsZero() {
							t.Errorf("%s, %s: before it begins the run is %v, since %v", life, kind, status, at)
						}
						if y, err := r.Why("b"); err != nil || y.Kind != kahn.WhyPending {
							t.Errorf("%s, %s: b: %v, error %v", life, kind, y, err)
						}
						if err := r.CancelNode("b"); !errors.Is(err, kahn.ErrTransition) {
							t.Errorf("%s, %s: a node was cancelled before the run has begun: %v", life, kind, err)
						}
						c.act(r)
						return ctx, func(res *kahn.Result) { ended = res.Status }
					}))...)
				require.NoError(t, err)
				res, _ := run.Wait()
				if res.Status != c.want || ended != c.want || (steps == 2) != (c.want == kahn.RunCompleted) {
					t.Errorf("%s, %s, %s: %v after %d steps, Around was told %v, expected %v", name, life, kind, res.Status, steps, ended, c.want)
				}
				if life == "new" {
					if err := kahntest.CheckEvents(g, res, rec.all()); err != nil {
						t.Errorf("%s, %s: %v\n%s", name, kind, err, eventText(rec.all()))
					}
				}
			}
		}
	}
}

// If a function of Around calls Goexit while its run begins, other runs still begin.
func TestAroundEndsTheGoroutineOfARunner(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rn := &kahn.Runner{MaxRuns: 1}
		g := graph(after("a"))
		var runs []*kahn.Run
		for range 4 {
			run, err := rn.Start(t.Context(), g, takes(10*ms), kahn.Around(func(ctx context.Context, r *kahn.Run) (context.Context, func(*kahn.Result)) {
				if len(runs) > 0 {
					runtime.Goexit()
				}
				return ctx, nil
			}))
			require.NoError(t, err)
			runs = append(runs, run)
		}
		synctest.Wait()
		watch := map[string]kahn.RunStatus{}
		ctx, cancel := context.WithTimeout(t.Context(), 100*ms)
		defer cancel()
		for c := range rn.Watch(ctx) {
			watch[c.Run.ID()] = c.Status
		}
		for i, run := range runs {
			if run.Status() != kahn.RunCompleted || watch[run.ID()] != kahn.RunCompleted {
				t.Errorf("run %d is %v, and watchers were told %v", i, run.Status(), watch[run.ID()])
			}
			run.Cancel()
		}
	})
}

// The value that Around puts into the context also reaches the nodes of a composite that a later process continues.
func TestAroundInALaterLife(t *testing.T) {
	t.Parallel()
	inBubble(t, "", func(t *testing.T) {
		var n notes
		seen := func(ctx context.Context, s *kahn.Step) (any, error) {
			n.add("%s %v", s.Path(), ctx.Value(noteKey{}))
			return takes(time.Second)(ctx, s)
		}
		inner := graph(kahn.Node{ID: "a", Do: seen}, kahn.Node{ID: "b", After: []string{"a"}, Do: seen})
		g := graph(subgraph("S", inner), subgraph("T", graph(subgraph("U", inner))))
		run, err := kahn.Start(t.Context(), g, nil)
		require.NoError(t, err)
		time.Sleep(500 * ms)
		run.Leave()
		res, err := run.Wait()
		require.NoError(t, err)
		n.list = nil
		_, err = kahn.Execute(t.Context(), g, nil, kahn.Around(func(ctx context.Context, _ *kahn.Run) (context.Context, func(*kahn.Result)) {
			return context.WithValue(ctx, noteKey{}, "span"), nil
		}), kahn.Resume(res.Snapshot()))
		require.NoError(t, err)
		require.ElementsMatch(t, []string{"S/b span", "T/U/b span"}, n.all())
	})
}

// A function of Around that blocks does not keep other runs from beginning, whether they were queued before or after its own run.
func TestAroundBlocksItsOwnRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rn := &kahn.Runner{MaxRuns: 2}
		g := graph(after("a"))
		gate := make(chan struct{})
		start := func(around ...func()) *kahn.Run {
			var opts []kahn.Option
			for _, f := range around {
				opts = append(opts, kahn.Around(func(ctx context.Context, _ *kahn.Run) (context.Context, func(*kahn.Result)) { f(); return ctx, nil }))
			}
			run, err := rn.Start(t.Context(), g, takes(time.Second), opts...)
			require.NoError(t, err)
			return run
		}
		start()
		start()
		stuck := start(func() { <-gate })
		var others []*kahn.Run
		for i := range 5 {
			if i%2 == 0 {
				others = append(others, start())
			} else {
				others = append(others, start(func() {}))
			}
		}
		time.Sleep(6*time.Second - ms) // the five runs share the one free slot
		for i, run := range others {
			if want := kahn.RunCompleted; i < 4 && run.Status() != want {
				t.Errorf("run %d is %v after 6 seconds", i, run.Status())
			}
		}
		time.Sleep(2 * ms)
		if stuck.Status() != kahn.RunPending || others[4].Status() != kahn.RunCompleted {
			t.Errorf("the run whose Around is at work is %v, the last one %v", stuck.Status(), others[4].Status())
		}
		close(gate)
		res, err := stuck.Wait()
		require.NoError(t, err)
		require.Equal(t, kahn.RunCompleted, res.Status)
	})
}
