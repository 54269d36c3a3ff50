package conformance_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// A resumed or redriven run that is still pending accepts answers for waiting nodes, at every depth, by path and by token. It delivers the
// answers when it begins. With a store, Signal returns once the answer is stored, even if the run is then left without beginning.
func TestSignalsOfAPendingRunThatGoesOn(t *testing.T) {
	t.Parallel()
	asks := func(token string) kahn.StepFunc {
		return func(_ context.Context, s *kahn.Step) (any, error) {
			if v, ok := s.Resumed(); ok {
				return v, nil
			}
			return nil, kahn.Suspend(token, nil, nil)
		}
	}
	inner := func() *kahn.Graph { return graph(gate("in"), kahn.Node{ID: "t", Do: asks("deep token")}) }
	g := graph(
		kahn.Node{ID: "a", Do: nop}, kahn.Node{ID: "g", Kind: kahn.KindGate, After: []string{"a"}},
		kahn.Node{ID: "t", Do: asks("a token")}, kahn.Node{ID: "S", Sub: inner()},
		kahn.Node{ID: "grown", Do: func(context.Context, *kahn.Step) (any, error) { return nil, kahn.Expand(inner(), nil, nil) }},
		kahn.Node{ID: "z", After: []string{"g", "t", "S"}, Do: nop},
	)
	names := []string{"g", "a token", "S/in", "deep token", "grown/in", "grown/t"}
	for _, durable := range []bool{false, true} {
		for _, redriven := range []bool{false, true} {
			for _, left := range []bool{false, true} {
				inBubble(t, fmt.Sprint(durable, redriven, left), func(t *testing.T) {
					names := names
					if redriven { // the nodes inside composites no longer exist
						names = []string{"g"}
					}
					db := &store.Memory{}
					opts := []kahn.Option{kahn.RunID("r")}
					if durable {
						opts = append(opts, kahn.Durable(db))
					}
					first, err := kahn.Start(t.Context(), g, nil, opts...)
					require.NoError(t, err)
					synctest.Wait()
					if redriven {
						first.Cancel()
					} else {
						first.Leave()
					}
					res, _ := first.Wait()

					free := make(chan struct{})
					rn := &kahn.Runner{MaxRuns: 1}
					_, err = rn.Start(t.Context(), graph(kahn.Node{ID: "busy", Do: func(context.Context, *kahn.Step) (any, error) {
						<-free
						return nil, nil
					}}), nil)
					require.NoError(t, err)
					switch {
					case redriven && durable:
						opts = append(opts, kahn.Redrive(nil, nil))
					case redriven:
						opts = append(opts, kahn.Redrive(res.Snapshot(), nil))
					case !durable:
						opts = append(opts, kahn.Resume(res.Snapshot()))
					}
					run, err := rn.Start(t.Context(), g, nil, opts...)
					require.NoError(t, err)
					require.Equal(t, kahn.RunPending, run.Status())

					require.ErrorIs(t, run.Signal(context.Background(), "nobody", 1), kahn.ErrUnknownGate)
					answers := make(chan error, len(names))
					for i, name := range names {
						go func() { answers <- run.Signal(context.Background(), name, kahn.Decision{Value: i, ID: name}) }()
					}
					synctest.Wait()
					require.ErrorIs(t, run.Signal(context.Background(), "g", 7), kahn.ErrAnswered)
					require.ErrorIs(t, run.Signal(context.Background(), "g", kahn.Decision{Value: 7, ID: "g"}), kahn.ErrSignalConflict)
					go func() { answers <- run.Signal(context.Background(), "g", kahn.Decision{Value: 0, ID: "g"}) }() // a repetition
					synctest.Wait()
					if durable {
						require.Empty(t, answers, "an answer is acknowledged that is not stored")
					}
					if left {
						run.Leave()
					}
					close(free)
					for range len(names) + 1 {
						require.NoError(t, <-answers)
					}
					if redriven && !left { // the other nodes wait
						synctest.Wait()
						run.Leave()
					}
					res, err = run.Wait()
					require.NoError(t, err)
					if left {
						require.Equal(t, kahn.RunSuspended, res.Status)
						opts := []kahn.Option{kahn.RunID("r")}
						if durable {
							opts = append(opts, kahn.Durable(db))
						} else {
							opts = append(opts, kahn.Resume(res.Snapshot()))
						}
						next, err := kahn.Start(t.Context(), g, nil, opts...)
						require.NoError(t, err)
						if redriven {
							synctest.Wait()
							next.Leave()
						}
						res, err = next.Wait()
						require.NoError(t, err)
					}
					n, _ := res.Node("g")
					require.Equal(t, kahn.Completed, n.Status)
					require.EqualValues(t, 0, n.Output)
					require.Equal(t, redriven, res.Status == kahn.RunSuspended, "%v", res.Waiting)
					require.NoError(t, rn.Shutdown(t.Context()))
				})
			}
		}
	}
}

// If the store refuses an answer for a pending run, the run ends when its turn comes, and the Runner continues with other runs.
func TestPendingRunIsFenced(t *testing.T) {
	t.Parallel()
	for _, resumed := range []bool{false, true} {
		inBubble(t, fmt.Sprint(resumed), func(t *testing.T) {
			g := graph(gate("g"))
			db := &store.Memory{}
			opts := []kahn.Option{kahn.RunID("r"), kahn.Durable(db), kahn.Lease("me", 0)}
			if resumed {
				run, err := kahn.Start(t.Context(), g, nil, opts...)
				require.NoError(t, err)
				synctest.Wait()
				run.Leave()
				_, _ = run.Wait()
			}
			free := make(chan struct{})
			rn := &kahn.Runner{MaxRuns: 1}
			_, err := rn.Start(t.Context(), graph(kahn.Node{ID: "busy", Do: func(context.Context, *kahn.Step) (any, error) {
				<-free
				return nil, nil
			}}), nil)
			require.NoError(t, err)
			run, err := rn.Start(t.Context(), g, nil, opts...)
			require.NoError(t, err)
			_, _, err = db.Acquire(t.Context(), "r", "me", time.Hour)
			require.NoError(t, err)
			answer := make(chan error, 1)
			go func() { answer <- run.Signal(context.Background(), "g", 1) }()
			synctest.Wait()
			close(free)
			require.ErrorIs(t, <-answer, kahn.ErrStore)
			res, err := run.Wait()
			require.ErrorIs(t, err, kahn.ErrStore)
			require.Equal(t, kahn.RunFailed, res.Status)
			require.NoError(t, rn.Shutdown(t.Context()))
		})
	}
}

// In a redrive, EarlySignals answers the gates that run again. Answers are refused for the same reasons as in a Resume.
func TestEarlySignalsOfARedrive(t *testing.T) {
	t.Parallel()
	g := graph(gate("kept"), gate("again", "kept"), kahn.Node{ID: "z", After: []string{"again"}, Do: nop})
	for _, durable := range []bool{false, true} {
		inBubble(t, fmt.Sprint(durable), func(t *testing.T) {
			opts := []kahn.Option{kahn.RunID("r"), kahn.EarlySignals(map[string]any{"kept": "one", "again": "one"})}
			var db *store.Memory
			if durable {
				db = &store.Memory{}
				opts = append(opts, kahn.Durable(db))
			}
			rn := &kahn.Runner{}
			run, err := rn.Start(t.Context(), g, nil, opts...)
			require.NoError(t, err)
			res, err := run.Wait()
			require.NoError(t, err)
			require.Equal(t, kahn.RunCompleted, res.Status)

			redrive := func(signals map[string]any) (*kahn.Result, error) {
				opts := []kahn.Option{kahn.RunID("r"), kahn.EarlySignals(signals)}
				if durable {
					return kahn.Execute(t.Context(), g, nil, append(opts, kahn.Durable(db), kahn.Redrive(nil, []string{"again"}))...)
				}
				return kahn.Execute(t.Context(), g, nil, append(opts, kahn.Redrive(res.Snapshot(), []string{"again"}))...)
			}
			_, err = redrive(map[string]any{"kept": "two"})
			require.ErrorIs(t, err, kahn.ErrAnswered)
			_, err = redrive(map[string]any{"nobody": "two"})
			require.ErrorIs(t, err, kahn.ErrUnknownGate)
			res, err = redrive(map[string]any{"again": "two"})
			require.NoError(t, err)
			require.Equal(t, kahn.RunCompleted, res.Status)
			n, _ := res.Node("again")
			require.Equal(t, "two", n.Output)

			if !durable { // signals of the first life do not apply to the next life
				run, err = rn.Redrive(t.Context(), "r", []string{"again"}, kahn.Request{})
				require.NoError(t, err)
				synctest.Wait()
				require.Equal(t, kahn.RunSuspended, run.Status())
				require.NoError(t, rn.Shutdown(t.Context()))
			}
		})
	}
}
