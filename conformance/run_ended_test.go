package conformance_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// If a run ends while it is pending, no function of Around is called. If the run ends while a function of Around is running, no further
// function of Around is called, and Wait waits for the functions that were called.
func TestAroundARunThatEnds(t *testing.T) {
	t.Parallel()
	type around = func(ctx context.Context, r *kahn.Run) (context.Context, func(*kahn.Result))
	for name, end := range map[string]struct {
		act  func(*kahn.Runner, *kahn.Run)
		want kahn.RunStatus
	}{
		"wait":     {func(_ *kahn.Runner, r *kahn.Run) { r.Cancel(); _, _ = r.Wait() }, kahn.RunCancelled},
		"shutdown": {func(rn *kahn.Runner, _ *kahn.Run) { _ = rn.Shutdown(context.Background()) }, kahn.RunSuspended},
	} {
		inBubble(t, name, func(t *testing.T) {
			rn := &kahn.Runner{MaxRuns: 1}
			var said []string
			first, err := rn.Start(t.Context(), graph(after("a")), takes(time.Second))
			require.NoError(t, err)
			slow := func(ctx context.Context, r *kahn.Run) (context.Context, func(*kahn.Result)) {
				said = append(said, "begins")
				time.Sleep(time.Second)
				said = append(said, "has begun")
				defer panic("in Around")
				return ctx, nil
			}
			told := func(ctx context.Context, r *kahn.Run) (context.Context, func(*kahn.Result)) {
				return ctx, func(res *kahn.Result) { said = append(said, "ended "+res.Status.String()) }
			}
			late := func(ctx context.Context, r *kahn.Run) (context.Context, func(*kahn.Result)) {
				t.Error("it is called in a run that has ended")
				return ctx, nil
			}
			run, err := rn.Start(t.Context(), graph(after("a")), neverStep(t), kahn.Around(told), kahn.Around(slow), kahn.Around(late))
			require.NoError(t, err)
			_, _ = first.Wait()
			synctest.Wait()
			end.act(rn, run)
			require.Equal(t, []string{"begins", "has begun", "ended " + end.want.String()}, said)
			res, _ := run.Wait()
			require.Len(t, res.Warnings, 1)
			require.ErrorContains(t, res.Warnings[0], "in Around")
		})
	}
	inBubble(t, "due", func(t *testing.T) {
		// The Runner performs two runs at a time. After one second the first two runs end, and the other two become due. While Around of the third
		// run blocks, the fourth run is cancelled.
		rn := &kahn.Runner{MaxRuns: 2}
		var runs []*kahn.Run
		start := func(f around) {
			run, err := rn.Start(t.Context(), graph(after("a")), takes(time.Second), kahn.Around(f))
			require.NoError(t, err)
			runs = append(runs, run)
		}
		quick := func(ctx context.Context, _ *kahn.Run) (context.Context, func(*kahn.Result)) { return ctx, nil }
		start(quick)
		start(quick)
		start(func(ctx context.Context, _ *kahn.Run) (context.Context, func(*kahn.Result)) {
			time.Sleep(time.Second)
			return ctx, nil
		})
		start(func(ctx context.Context, r *kahn.Run) (context.Context, func(*kahn.Result)) {
			if r.Status() != kahn.RunPending {
				t.Errorf("Around of a run that is %v", r.Status())
			}
			return ctx, nil
		})
		time.Sleep(1500 * ms)
		runs[3].Cancel()
		for _, run := range runs {
			_, _ = run.Wait()
		}
	})
}

// A guard may read a predecessor of its node while the store refuses to write the end of this predecessor.
func TestGuardDuringARollback(t *testing.T) {
	t.Parallel()
	for range 20 {
		reading, refused := make(chan struct{}), make(chan struct{})
		fenced := &refusing{Memory: new(store.Memory), after: 1, wait: reading, refused: refused}
		g := graph(after("a"), kahn.Node{ID: "guarded", After: []string{"a"}, Ports: []kahn.Port{{Name: "p"}},
			In: []kahn.Edge{{From: "a", Param: "merged"}}, When: func(v kahn.View) (bool, error) {
				close(reading)
				for range 200 {
					if v.Status("a") == kahn.Completed && v.Output("a") == nil && v.Status("a") == kahn.Completed {
						t.Error("it has completed and has no output")
					}
				}
				<-refused
				for range 200 {
					_ = v.Output("a")
				}
				return true, nil
			}})
		_, err := kahn.Execute(t.Context(), g, func(context.Context, *kahn.Step) (any, error) { return "output", nil }, kahn.Durable(fenced))
		require.ErrorIs(t, err, kahn.ErrStore)
	}
}

// refusing is a store that refuses all commits after a number of commits.
type refusing struct {
	*store.Memory
	after         int
	wait, refused chan struct{}
}

func (s *refusing) Commit(ctx context.Context, l store.Lease, c store.Commit) (store.Applied, error) {
	if s.after--; s.after >= 0 {
		return s.Memory.Commit(ctx, l, c)
	}
	if s.wait != nil {
		<-s.wait
		s.wait = nil
		close(s.refused)
	}
	return 0, kahn.ErrFenced
}
