package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// A compensation fails if the process dies during the compensation more than MaxCrashes times in a row. The MaxCrashes of a node overrides the
// option. An attempt that ends, or that is interrupted because the run is left, is not a crash. If an operator repeats the compensation, the count
// begins at 0.
func TestMaxCrashesOfCompensations(t *testing.T) {
	const dies, leaves, fails, succeeds = "dies", "leaves", "fails", "succeeds"
	for _, row := range []struct {
		name  string
		lives []string // by life: how the attempt to undo the node ends
		most  int      // MaxCrashes of the run
		own   int      // MaxCrashes of the node
		want  kahn.Compensation
		calls int
	}{
		{"one more than it may", []string{dies, dies, dies, succeeds}, 2, 0, kahn.CompensationFailed, 3},
		{"as often as it may", []string{dies, dies, succeeds}, 2, 0, kahn.CompensationDone, 3},
		{"the node's own bound", []string{dies, dies, succeeds}, 9, 1, kahn.CompensationFailed, 2},
		{"no bound", []string{dies, dies, dies, dies, dies, succeeds}, 2, -1, kahn.CompensationDone, 6},
		{"never again", []string{dies, succeeds}, 0, 0, kahn.CompensationFailed, 1},
		{"an attempt that fails between them", []string{dies, dies, fails, dies, dies, succeeds}, 2, 0, kahn.CompensationDone, 6},
		{"lives that leave it", []string{dies, leaves, leaves, leaves, dies, succeeds}, 2, 0, kahn.CompensationDone, 6},
	} {
		inBubble(t, row.name, func(t *testing.T) {
			calls, keys := 0, map[string]bool{}
			g := graph(
				kahn.Node{ID: "pay", Do: func(context.Context, *kahn.Step) (any, error) { return "receipt", nil }, MaxCrashes: row.own,
					CompensateRetry: kahn.Retry{MaxAttempts: 2, InitialDelay: -1}, // crashes, and attempts that are interrupted by leaving, do not count
					Compensate: func(ctx context.Context, s *kahn.Step) error {
						keys[s.IdempotencyKey()] = true
						calls++
						switch row.lives[calls-1] {
						case dies, leaves:
							<-ctx.Done()
							return ctx.Err()
						case fails:
							return errors.New("busy")
						}
						return nil
					}},
				kahn.Node{ID: "ship", After: []string{"pay"}, Do: always(kahn.NoEffect(errSoldOut))})
			j := new(journal)
			opts := []kahn.Option{kahn.RunID("r"), kahn.MaxCrashes(row.most)}
			var res *kahn.Result
			for life := 0; res == nil; life++ {
				require.Less(t, life, 9)
				rn := new(kahn.Runner)
				run, err := rn.Start(t.Context(), g, nil, append(opts, kahn.Durable(j))...)
				require.NoError(t, err)
				time.Sleep(ms)
				synctest.Wait()
				if !run.Status().Terminal() {
					if row.lives[calls-1] == leaves {
						shutDown(t, rn)
						_, err := run.Wait()
						require.NoError(t, err)
						continue
					}
					next := j.replay(t, "r", j.len())
					next.writes = j.writes[:j.len()]
					_ = run.AbortAll(nil)
					_ = run.AbortAll(nil)
					_, _ = run.Wait()
					j = next
					continue
				}
				res, _ = run.Wait()
			}
			pay := must(res.Node("pay"))
			require.Equal(t, row.want, pay.Compensation, pay.CompensationErr)
			require.Equal(t, row.calls, calls)
			require.Len(t, keys, 1)
			if row.want == kahn.CompensationDone {
				return
			}
			require.ErrorIs(t, pay.CompensationErr, kahn.ErrCrashed)
			require.ErrorContains(t, pay.CompensationErr, fmt.Sprintf("%d times in a row", row.calls))
			require.Equal(t, kahn.CauseCompensationFailed, res.Cause.Kind)
			row.lives[calls] = succeeds
			res, err := kahn.Execute(t.Context(), g, nil, append(opts, kahn.Durable(j), kahn.Redrive(nil, nil), kahn.RepeatCompensations)...)
			require.NotErrorIs(t, err, kahn.ErrCompensation)
			require.Equal(t, kahn.CompensationDone, must(res.Node("pay")).Compensation)
			require.Len(t, keys, 1)
		})
	}
}

// If a process leaves a run that is undoing nodes, the running compensations end, or are interrupted when the context of Shutdown ends. No other
// compensation begins. The next process performs the remaining compensations, then the cleanup nodes and the end node.
func TestCompensatingRunIsLeft(t *testing.T) {
	for _, stored := range []bool{false, true} {
		for _, how := range []string{"leave", "patient", "interrupted"} {
			inBubble(t, fmt.Sprint(how, " ", stored), func(t *testing.T) {
				var l undoLog
				busy := how == "interrupted"
				slow := func(ctx context.Context, s *kahn.Step) error {
					l.add(s.Path())
					select {
					case <-ctx.Done():
						l.add("cut")
						return ctx.Err()
					case <-time.After(10 * ms):
						if busy {
							busy = false
							return errors.New("busy")
						}
						l.add(s.Path() + ".")
						return nil
					}
				}
				late := func(id string) kahn.StepFunc {
					return func(context.Context, *kahn.Step) (any, error) { l.add(id); return nil, nil }
				}
				twice := kahn.Retry{MaxAttempts: 2, InitialDelay: -1}
				g := graph(
					kahn.Node{ID: "a", Do: succeeds(1), Compensate: slow, CompensateRetry: twice},
					subgraph("S", graph(kahn.Node{ID: "b", Do: succeeds(1), Compensate: slow, CompensateRetry: twice}), "a"),
					kahn.Node{ID: "ship", After: []string{"S"}, Do: always(errSoldOut)},
					kahn.Node{ID: "tidy", Cleanup: true, After: []string{"ship"}, Do: late("tidy")},
					kahn.Node{ID: "end", Kind: kahn.KindEnd, Do: late("end")},
				)
				lives := &lives{t: t, g: g}
				if stored {
					lives.store = new(store.Memory)
				}
				res, err := lives.next(5*ms, func(run *kahn.Run) {
					require.Equal(t, "S/b", l.String())
					require.Equal(t, kahn.CompensationRunning, run.Compensation())
					switch how {
					case "leave":
						run.Leave()
					case "patient":
						require.NoError(t, lives.runner.Shutdown(t.Context()))
					default:
						shutDown(t, lives.runner)
					}
				})
				require.NoError(t, err)
				require.True(t, res.Left)
				require.Equal(t, kahn.RunSuspended, res.Status)
				first := "S/b S/b. "
				if how == "interrupted" {
					first = "S/b cut S/b S/b S/b. " // the interrupted call does not count as an attempt
				}
				res, err = lives.next(0, nil)
				require.ErrorContains(t, err, errSoldOut.Error())
				require.NotErrorIs(t, err, kahn.ErrCompensation)
				require.Equal(t, first+"a a. tidy end", l.String())
				require.Equal(t, kahn.RunFailed, res.Status)
			})
		}
	}
}

// A process may leave a cancelled run that is undoing nodes if the run has a store, and the next process continues. Without a store the run first
// undoes all its nodes.
func TestCancelledRunThatUndoesIsLeft(t *testing.T) {
	for _, stored := range []bool{false, true} {
		inBubble(t, fmt.Sprint("stored ", stored), func(t *testing.T) {
			var l undoLog
			lives := &lives{t: t, g: graph(
				kahn.Node{ID: "a", Do: succeeds(1), Compensate: l.slow}, kahn.Node{ID: "b", Do: succeeds(1), Compensate: l.slow, After: []string{"a"}},
				kahn.Node{ID: "ship", After: []string{"b"}, Do: takes(time.Hour)})}
			if stored {
				lives.store = new(store.Memory)
			}
			res, err := lives.next(5*ms, func(run *kahn.Run) {
				require.NoError(t, run.Cancel())
				time.Sleep(5 * ms)
				require.Equal(t, "b", l.String())
				run.Leave()
			})
			if stored {
				require.NoError(t, err)
				require.True(t, res.Left)
				require.Equal(t, "b b.", l.String())
				res, _ = lives.next(0, nil)
			}
			require.Equal(t, kahn.RunCancelled, res.Status)
			require.Equal(t, "b b. a a.", l.String())
		})
	}
}

// If Serve ends in a process while a run undoes nodes, the process leaves the run. Another process that serves the store continues the run.
func TestServeEndsWhileCompensating(t *testing.T) {
	inBubble(t, "serve", func(t *testing.T) {
		var l undoLog
		g := flow("order",
			kahn.Node{ID: "a", Do: succeeds(1), Compensate: l.slow}, kahn.Node{ID: "b", Do: succeeds(1), Compensate: l.slow, After: []string{"a"}},
			kahn.Node{ID: "ship", After: []string{"b"}, Do: always(errSoldOut)})
		s := new(served)
		s.create(t, g, time.Time{}, "order-17")
		end := serve(t, new(kahn.Runner), s.service(g))
		time.Sleep(5 * ms)
		require.Equal(t, "b", l.String())
		end()
		require.Equal(t, "b b.", l.String())
		find := func(c kahn.Compensation) int {
			page, err := s.List(t.Context(), store.Query{Filter: store.Filter{Compensation: c}})
			require.NoError(t, err)
			return len(page.Runs)
		}
		require.Equal(t, 1, find(kahn.CompensationRunning))
		require.False(t, s.status(t, "order-17").Terminal())
		end = serve(t, new(kahn.Runner), s.service(g))
		time.Sleep(time.Minute)
		end()
		require.Equal(t, "b b. a a.", l.String())
		require.Equal(t, kahn.RunFailed, s.status(t, "order-17"))
		require.Equal(t, 1, find(kahn.CompensationDone))
	})
}

// Adopt refuses a run that is undoing nodes: compensations belong to the graph whose steps they undo.
func TestCompensatingRunIsNotAdopted(t *testing.T) {
	waits := func(ctx context.Context, _ *kahn.Step) error { <-ctx.Done(); return ctx.Err() }
	pay := kahn.Node{ID: "pay", Do: succeeds(1), Compensate: waits}
	ship := kahn.Node{ID: "ship", After: []string{"pay"}, Do: always(errSoldOut)}
	retried := subgraph("S", graph(pay, ship))
	retried.Retry = kahn.Retry{MaxAttempts: 2}
	for _, row := range []struct {
		name, words string
		g           *kahn.Graph
	}{
		{"a run", `run "r" is undoing its nodes`, graph(pay, ship)},
		{"a sub-graph between two attempts", `run "r" is undoing node "S/pay"`, graph(retried)},
	} {
		inBubble(t, row.name, func(t *testing.T) {
			s := new(store.Memory)
			l := &lives{t: t, g: row.g, store: s}
			res, err := l.next(5*ms, nil)
			require.NoError(t, err)
			require.True(t, res.Left)
			before, err := s.Load(t.Context(), "r")
			require.NoError(t, err)
			other := graph(append(row.g.Nodes(), kahn.Node{ID: "more"})...)
			_, err = kahn.Adopt(t.Context(), other, s, "r")
			require.ErrorIs(t, err, kahn.ErrFinished)
			require.ErrorContains(t, err, row.words)
			snapshot, err := kahn.ReadSnapshot(t.Context(), s, "r")
			require.NoError(t, err)
			_, err = kahn.AdoptPreview(compiled(t, other), snapshot)
			require.ErrorIs(t, err, kahn.ErrFinished)
			require.ErrorContains(t, err, row.words)
			after, err := s.Load(t.Context(), "r")
			require.NoError(t, err)
			require.Equal(t, before, after, "a refusal changes nothing")
		})
	}
}
