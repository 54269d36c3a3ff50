package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/internal/sagas"
	"github.com/seed-c794f7ef/kahn/kahntest"
	"github.com/seed-c794f7ef/kahn/store"
)

// livesOfSaga performs a random saga over a store in memory. Its process dies at one given write in each life. Between two lives the lease
// expires.
func livesOfSaga(t *testing.T, x sagas.Trial) (o *sagas.Outcome) {
	synctest.Test(t, func(t *testing.T) {
		x.Run, x.CheckEvents, x.Away = "r", kahntest.CheckEvents, func(store.Lease) { time.Sleep(time.Minute) }
		o = x.Perform(t.Context(), new(store.Memory))
	})
	require.Empty(t, o.Wrong, "seed %d, depth %d, deaths %v, kept %v: %v", x.Seed, x.Depth, x.Deaths, x.Kept, o)
	return o
}

// If a process dies at any write, no compensation is lost. The next process continues the run and repeats at most the interrupted calls, under
// the same idempotency keys.
func TestSagasAfterDeaths(t *testing.T) {
	t.Parallel()
	livesOfSaga(t, sagas.Trial{Seed: 887641071, Depth: 2, Deaths: []int{1, 6}, Kept: true})  // a former bug: a node that was undone inside a node without a graph had no end event
	livesOfSaga(t, sagas.Trial{Seed: 500487660, Depth: 1, Deaths: []int{11, 4}, Kept: true}) // a node inside an expanded node could not be undone, and the next life has only to end the stopped node
	livesOfSaga(t, sagas.Trial{Seed: 413441415, Depth: 2, Deaths: []int{13}, Kept: true})    // a former bug: List found no run with a compensation while nodes inside an expanded node were undone
	livesOfSaga(t, sagas.Trial{Seed: 695104367, Depth: 2, Deaths: []int{3, 8}, Kept: true})
	livesOfSaga(t, sagas.Trial{Seed: 4868061186563055808, Depth: 1, Deaths: []int{13}, Kept: true}) // a former bug: an interrupted compensation inside a node without a graph was repeated last
	died, undone := sagas.EachDeath(firstSeed(t), size(30, 10, 400), long(), func(x sagas.Trial) *sagas.Outcome { return livesOfSaga(t, x) })
	t.Log(died, undone)
	require.Greater(t, undone, died/2)
}

// A life may call the step of an expanded node again to get the graph, and then undo the nodes inside. A node that was not undone keeps its key,
// and a failed compensation is reported once.
func TestUndoneAfterLivesOfExpansions(t *testing.T) {
	for _, stored := range []bool{false, true} {
		t.Run(fmt.Sprint("stored ", stored), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				keys := map[string][]string{}
				inner := graph(
					kahn.Node{ID: "declined", Compensate: func(context.Context, *kahn.Step) error { return nil }, Do: func(_ context.Context, s *kahn.Step) (any, error) {
						keys[s.Path()] = append(keys[s.Path()], s.IdempotencyKey())
						return nil, kahn.NoEffect(errSoldOut)
					}},
				)
				again := false
				sub := subgraph("S", graph(
					kahn.Node{ID: "E", Do: func(context.Context, *kahn.Step) (any, error) { return nil, kahn.Expand(inner, nil, nil) }},
					kahn.Node{ID: "slow", Do: func(ctx context.Context, _ *kahn.Step) (any, error) {
						if !again {
							<-ctx.Done()
							return nil, ctx.Err()
						}
						return nil, nil
					}},
				))
				sub.Retry = kahn.Retry{MaxAttempts: 2, InitialDelay: -1}
				res, err := inLives(t, graph(sub), stored, func() { again = true })
				require.ErrorIs(t, err, errSoldOut)
				require.Len(t, keys["S/E/declined"], 2)
				require.Equal(t, keys["S/E/declined"][0], keys["S/E/declined"][1], "it was not undone")
				require.Equal(t, kahn.CompensationNone, must(res.Node("S")).Compensation)
			})
			synctest.Test(t, func(t *testing.T) {
				inner := graph(kahn.Node{ID: "pay", Do: succeeds(1), Compensate: func(context.Context, *kahn.Step) error { return kahn.Permanent(errors.New("closed")) }})
				life := 1
				waits := func(until int) func(context.Context) error {
					return func(ctx context.Context) error {
						if life < until {
							<-ctx.Done()
						}
						return ctx.Err()
					}
				}
				g := graph(
					kahn.Node{ID: "look", Do: succeeds(1), Compensate: func(ctx context.Context, _ *kahn.Step) error { return waits(3)(ctx) }},
					kahn.Node{ID: "E", After: []string{"look"}, Do: func(context.Context, *kahn.Step) (any, error) { return nil, kahn.Expand(inner, nil, nil) }},
					kahn.Node{ID: "ship", After: []string{"E"}, Do: func(ctx context.Context, _ *kahn.Step) (any, error) {
						if err := waits(2)(ctx); err != nil {
							return nil, err
						}
						return nil, kahn.NoEffect(errSoldOut)
					}},
				)
				res, err := inLives(t, g, stored, func() { life++ }, func() { life++ })
				require.ErrorIs(t, err, kahn.ErrCompensation)
				require.Equal(t, 1, strings.Count(err.Error(), "compensation failed"), err)
				require.ErrorContains(t, err, `node "E/pay": compensation failed: closed`)
				require.NotContains(t, err.Error(), "%!")
				require.Equal(t, kahn.CompensationFailed, must(res.Node("E")).Compensation)
				preview, err := kahn.RedrivePreview(compiled(t, g), res.Snapshot(), nil, kahn.CompensatedByHand)
				require.NoError(t, err)
				require.Equal(t, []string{"E/pay"}, preview)
			})
		})
	}
}

// inLives performs a run over a store or by snapshots. Once all nodes of the run wait, the run is left. inLives then calls the next function of
// between, and continues the run.
func inLives(t *testing.T, g *kahn.Graph, stored bool, between ...func()) (res *kahn.Result, err error) {
	t.Helper()
	memory := new(store.Memory)
	var from *kahn.Snapshot
	for life := 0; ; life++ {
		opts := []kahn.Option{kahn.RunID("r")}
		switch {
		case stored:
			opts = append(opts, kahn.Durable(memory))
		case from != nil:
			opts = append(opts, kahn.Resume(from))
		}
		runner := new(kahn.Runner)
		run, err := runner.Start(t.Context(), g, nil, opts...)
		require.NoError(t, err)
		if life == len(between) {
			return run.Wait()
		}
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_ = runner.Shutdown(ctx)
		res, err := run.Wait()
		require.NoError(t, err)
		require.True(t, res.Left)
		from = reload(t, res.Snapshot())
		between[life]()
	}
}

// A node that was expanded in an earlier life is undone once. Only the life that undoes the node calls its step again for the graph.
func TestExpandedNodeIsUndoneInOneLife(t *testing.T) {
	for _, stored := range []bool{false, true} {
		inBubble(t, fmt.Sprintf("stored %v", stored), func(t *testing.T) {
			var l undoLog
			calls, fails, ends := 0, false, false
			inner := graph(kahn.Node{ID: "x", Do: succeeds(1), Compensate: l.undo}, kahn.Node{ID: "plain", Do: succeeds(1)})
			waits := func(stops *bool, err error) kahn.StepFunc {
				return func(ctx context.Context, _ *kahn.Step) (any, error) {
					if *stops {
						return nil, err
					}
					<-ctx.Done()
					return nil, ctx.Err()
				}
			}
			g := graph(
				kahn.Node{ID: "e", Do: func(context.Context, *kahn.Step) (any, error) { calls++; return nil, kahn.Expand(inner, nil, nil) }},
				kahn.Node{ID: "f", Do: waits(&fails, kahn.Permanent(errSoldOut)), After: []string{"e"}},
				kahn.Node{ID: "tidy", Cleanup: true, Do: waits(&ends, nil), After: []string{"f"}})
			res, err := inLives(t, g, stored, func() { fails = true }, func() {}, func() {}, func() { ends = true })
			require.ErrorContains(t, err, "sold out")
			require.Equal(t, "e/x", l.String())
			require.Equal(t, 2, calls)
			require.Equal(t, kahn.CompensationDone, must(res.Node("e")).Compensation)
		})
	}
}

// A step adds nodes in one iteration of a loop, and the loop fails in a later iteration. The added nodes are undone, at
// whichever point the process dies.
func TestExpandedNodeOfAnEarlierIterationIsUndone(t *testing.T) {
	for _, stored := range []bool{false, true} {
		inBubble(t, fmt.Sprintf("stored %v", stored), func(t *testing.T) {
			var l undoLog
			fails := false
			inner := graph(kahn.Node{ID: "x", Do: succeeds(1), Compensate: l.undo})
			waits := func(ctx context.Context, s *kahn.Step) (any, error) {
				if fails {
					return nil, kahn.Permanent(errSoldOut)
				}
				<-ctx.Done()
				return nil, ctx.Err()
			}
			body := graph(kahn.Node{ID: "e", Do: func(ctx context.Context, s *kahn.Step) (any, error) {
				if strings.HasPrefix(s.Path(), "L#1/") {
					return nil, kahn.Expand(inner, nil, nil)
				}
				return waits(ctx, s)
			}})
			g := graph(kahn.Node{ID: "L", Sub: body, Loop: &kahn.Loop{MaxIterations: 2, While: func(kahn.View) (bool, error) { return true, nil }}})
			_, err := inLives(t, g, stored, func() {}, func() { fails = true })
			require.ErrorContains(t, err, "sold out")
			require.Equal(t, "L#1/e/x", l.String())
		})
	}
}

// An expanded node whose step fails when it is called again for its graph, after the process died, is not attempted again: the next attempt would repeat
// the effects inside, which only the graph can undo. The node ends, and its step is called once more, for the undoing.
func TestExpandedNodeIsNotRepeatedBeforeItIsUndone(t *testing.T) {
	retry := kahn.Retry{MaxAttempts: 3, InitialDelay: -1}
	for _, shape := range []struct {
		name, path string
		of         func(kahn.Node) kahn.Node
		res        []string // the node in its result
	}{
		{"alone", "e", func(e kahn.Node) kahn.Node { return e }, []string{"e"}},
		{"in a sub-graph", "S/e", func(e kahn.Node) kahn.Node { return subgraph("S", graph(e)) }, []string{"S", "e"}},
		{"in a map", "e[0]", func(e kahn.Node) kahn.Node {
			e.Map, e.Params = &kahn.Map{Over: "items"}, map[string]any{"items": numbers(1)}
			return e
		}, []string{"e", "e[0]"}},
		{"in an expanded node", "o/e", func(e kahn.Node) kahn.Node {
			return kahn.Node{ID: "o", Do: func(context.Context, *kahn.Step) (any, error) { return nil, kahn.Expand(graph(e), nil, nil) }}
		}, []string{"o", "e"}},
	} {
		for _, stored := range []bool{false, true} {
			for _, slow := range []bool{false, true} {
				inBubble(t, fmt.Sprintf("%s, stored %v, slow %v", shape.name, stored, slow), func(t *testing.T) {
					var l undoLog
					calls, did := 0, 0
					inner := graph(
						kahn.Node{ID: "x", Do: func(context.Context, *kahn.Step) (any, error) { did++; return 1, nil }, Compensate: l.undo},
						kahn.Node{ID: "y", Do: func(ctx context.Context, _ *kahn.Step) (any, error) { <-ctx.Done(); return nil, ctx.Err() }})
					g := graph(shape.of(kahn.Node{ID: "e", Retry: retry, Timeout: time.Minute, Do: func(ctx context.Context, _ *kahn.Step) (any, error) {
						if calls++; calls != 2 {
							return nil, kahn.Expand(inner, nil, nil)
						}
						if slow {
							<-ctx.Done()
							return nil, ctx.Err()
						}
						return nil, errSoldOut
					}}))
					res, err := inLives(t, g, stored, func() {})
					if slow {
						require.ErrorContains(t, err, "timed out")
					} else {
						require.ErrorIs(t, err, errSoldOut)
					}
					require.Equal(t, 1, did, "the effect is not repeated")
					require.Equal(t, shape.path+"/x", l.String())
					require.Equal(t, 3, calls)
					n := must(res.Node(shape.res[0]))
					for _, id := range shape.res[1:] {
						n = must(n.Sub.Node(id))
					}
					require.Equal(t, kahn.CompensationDone, n.Compensation)
					require.Equal(t, 1, n.Attempts)
				})
			}
		}
	}
}

// If the process dies after an expanded node was asked to stop, the next life undoes the completed nodes inside, although the run completes. To
// do so, it calls the step again to get the graph.
func TestExpandedNodeThatWasCancelledIsUndoneInAnotherLife(t *testing.T) {
	for _, stored := range []bool{false, true} {
		var l undoLog
		undo := func(ctx context.Context, s *kahn.Step) error {
			if _ = l.undo(ctx, s); !strings.Contains(l.String(), " ") {
				time.Sleep(time.Hour) // the process dies during the sleep
			}
			return nil
		}
		inner := graph(kahn.Node{ID: "x", Do: succeeds(1), Compensate: undo}, kahn.Node{ID: "y", Do: func(ctx context.Context, _ *kahn.Step) (any, error) { <-ctx.Done(); return nil, ctx.Err() }})
		e := kahn.Node{ID: "e", Do: func(context.Context, *kahn.Step) (any, error) { return nil, kahn.Expand(inner, nil, nil) }}
		g := graph(e, kahn.Node{ID: "f", Do: succeeds(1)}, kahn.Node{ID: "h", Do: succeeds(1), After: []string{"e", "f"}, Join: kahn.AnySucceeded})
		for path, g := range map[string]*kahn.Graph{"e/x": g, "S/e/x": graph(kahn.Node{ID: "S", Sub: g})} {
			inBubble(t, fmt.Sprintf("%s, stored %v", path, stored), func(t *testing.T) {
				l.lines = nil
				again := crash(t, g, nil, stored, func(run *kahn.Run) {
					synctest.Wait()
					require.NoError(t, run.Cancel())
					synctest.Wait()
					require.Equal(t, path, l.String())
				})
				res, err := kahn.Execute(t.Context(), g, nil, again...)
				require.NoError(t, err)
				require.Equal(t, path+" "+path, l.String())
				require.Equal(t, kahn.CompensationDone, must(res.Node(path[:1])).Compensation)
			})
		}
	}
}

// The process dies while a node deep inside an expanded node is being undone, and then the expanded node fails, since its step does not return the graph
// again. The interrupted compensation is repeated, and then the expanded node's own compensation stands for all others inside.
func TestUndoingDeepInsideAFailedExpandedNode(t *testing.T) {
	for _, stored := range []bool{false, true} {
		for _, own := range []bool{false, true} {
			inBubble(t, fmt.Sprintf("stored %v, own %v", stored, own), func(t *testing.T) {
				var l undoLog
				died := false
				inside := subgraph("s", graph(
					kahn.Node{ID: "x", Do: succeeds(1), Compensate: func(ctx context.Context, s *kahn.Step) error {
						if !died {
							time.Sleep(time.Hour) // the process dies during the sleep
						}
						return l.undo(ctx, s)
					}},
					kahn.Node{ID: "y", After: []string{"x"}, Do: always(errSoldOut)}))
				inside.Compensate = l.undo
				calls := 0
				e := kahn.Node{ID: "e", Do: func(context.Context, *kahn.Step) (any, error) {
					if calls++; calls == 2 {
						return nil, errSoldOut
					}
					return nil, kahn.Expand(graph(inside), nil, nil)
				}}
				want := "e/s/x e/s"
				if own {
					e.Compensate, want = l.undo, "e/s/x e"
				}
				again := crash(t, graph(e), nil, stored, func(*kahn.Run) { synctest.Wait() })
				died, l.lines = true, nil
				res, err := kahn.Execute(t.Context(), graph(e), nil, again...)
				require.ErrorIs(t, err, errSoldOut)
				require.Equal(t, want, l.String())
				require.Equal(t, kahn.CompensationDone, must(res.Node("e")).Compensation)
			})
		}
	}
}

// If the process dies while a node inside an expanded node is being undone, the next life undoes this node. From then on the run reports that
// nothing is being undone, although the run continues.
func TestUndoingInsideAnExpandedNodeEndsInAnotherLife(t *testing.T) {
	for _, stored := range []bool{false, true} {
		inBubble(t, fmt.Sprintf("stored %v", stored), func(t *testing.T) {
			var l undoLog
			inner := graph(
				kahn.Node{ID: "pay", Do: succeeds(1), Compensate: func(ctx context.Context, s *kahn.Step) error {
					if _ = l.undo(ctx, s); l.String() == "e/pay" {
						time.Sleep(time.Hour) // the process dies during the sleep
					}
					return nil
				}},
				kahn.Node{ID: "ship", After: []string{"pay"}, Do: always(errSoldOut)},
			)
			g := graph(
				kahn.Node{ID: "e", Do: func(context.Context, *kahn.Step) (any, error) { return nil, kahn.Expand(inner, nil, nil) }},
				kahn.Node{ID: "ask", Kind: kahn.KindGate, In: []kahn.Edge{{From: "e", On: kahn.OnFailure}}},
			)
			again := crash(t, g, nil, stored, func(run *kahn.Run) {
				synctest.Wait()
				require.Equal(t, kahn.CompensationRunning, run.Compensation())
			})
			run, err := kahn.Start(t.Context(), g, nil, again...)
			require.NoError(t, err)
			synctest.Wait()
			require.Len(t, run.Waiting(), 1)
			require.Equal(t, "e/pay e/pay", l.String())
			require.Equal(t, kahn.CompensationDone, run.Compensation())
			require.NoError(t, run.Cancel())
			_, _ = run.Wait()
		})
	}
}

// A loop has failed although all nodes inside completed. The loop keeps its cause if the process dies while these nodes are being undone.
func TestUndoneLoopKeepsItsCause(t *testing.T) {
	odd := errors.New("odd")
	for want, loop := range map[kahn.CauseKind]*kahn.Loop{
		kahn.CauseLoopLimit:      {While: func(kahn.View) (bool, error) { return true, nil }, MaxIterations: 2},
		kahn.CauseConditionError: {While: func(kahn.View) (bool, error) { return false, odd }, MaxIterations: 2},
	} {
		for _, stored := range []bool{false, true} {
			dies := true
			fails := func(context.Context, *kahn.Step) error { return kahn.Permanent(odd) }
			lasts := func(context.Context, *kahn.Step) error {
				if dies {
					time.Sleep(time.Hour)
				}
				return nil
			}
			l := kahn.Node{ID: "l", Loop: loop, Sub: graph(kahn.Node{ID: "x", Do: succeeds(1), Compensate: fails}, kahn.Node{ID: "y", Do: succeeds(1), Compensate: lasts})}
			for name, g := range map[string]*kahn.Graph{"loop": graph(l), "inside": graph(kahn.Node{ID: "s", Sub: graph(l)})} {
				inBubble(t, fmt.Sprintf("%s, %v, stored %v", name, want, stored), func(t *testing.T) {
					dies = true
					again := crash(t, g, nil, stored, func(*kahn.Run) { synctest.Wait() })
					dies = false
					res, err := kahn.Execute(t.Context(), g, nil, again...)
					require.ErrorIs(t, err, kahn.ErrCompensation)
					if name == "inside" {
						res = must(res.Node("s")).Sub
					}
					require.Equal(t, want, must(res.Node("l")).Cause.Kind)
				})
			}
		}
	}
}

// A node of an earlier iteration, inside an expanded node, cannot be undone. Every later life reports this node.
func TestIterationInsideAnExpandedNodeThatCannotBeUndone(t *testing.T) {
	for _, stored := range []bool{false, true} {
		inBubble(t, fmt.Sprintf("stored %v", stored), func(t *testing.T) {
			hangs, undone := "x", ""
			undo := func(ctx context.Context, s *kahn.Step) error {
				if undone += " " + s.Path(); s.ID() == hangs {
					<-ctx.Done()
					return ctx.Err()
				}
				if strings.Contains(s.Path(), "#1/") {
					return kahn.Permanent(errSoldOut)
				}
				return nil
			}
			inner := graph(kahn.Node{
				ID: "l", Loop: &kahn.Loop{While: func(v kahn.View) (bool, error) { return v.Iteration() < 2, nil }, MaxIterations: 2},
				Sub: graph(kahn.Node{ID: "x", Do: succeeds(1), Compensate: undo}),
			})
			l := &lives{t: t, g: graph(
				kahn.Node{ID: "f", Do: succeeds(1), Compensate: undo},
				kahn.Node{ID: "e", After: []string{"f"}, Do: func(context.Context, *kahn.Step) (any, error) { return nil, kahn.Expand(inner, nil, nil) }},
				kahn.Node{ID: "z", After: []string{"e"}, Do: func(context.Context, *kahn.Step) (any, error) { return nil, errSoldOut }},
			)}
			if stored {
				l.store = new(store.Memory)
			}
			for _, id := range []string{"x", "f", "f", ""} {
				after := time.Second
				if hangs = id; id == "" {
					after = 0
				}
				res, err := l.next(after, nil)
				if id == "" {
					require.Equal(t, kahn.RunFailed, res.Status)
					require.ErrorIs(t, err, kahn.ErrCompensation)
					require.ErrorContains(t, err, "e/l#1/x")
				}
			}
			require.Equal(t, " e/l#2/x e/l#2/x e/l#1/x f f f", undone)
		})
	}
}

// The step of an expanded node is called again for its graph. The node releases its slots before the nodes inside are undone.
func TestExpandedNodeLendsItsSlotToTheUndoing(t *testing.T) {
	for _, stored := range []bool{false, true} {
		inBubble(t, fmt.Sprintf("stored %v", stored), func(t *testing.T) {
			var l undoLog
			fails, db := false, []string{"db"}
			inner := graph(kahn.Node{ID: "x", Groups: db, Do: succeeds(1), Compensate: l.undo})
			g := (&kahn.Graph{Groups: []kahn.Group{{Name: "db", Limit: 1}}}).Add(
				kahn.Node{ID: "e", Groups: db, Do: func(context.Context, *kahn.Step) (any, error) { return nil, kahn.Expand(inner, nil, nil) }},
				kahn.Node{ID: "f", After: []string{"e"}, Do: func(ctx context.Context, _ *kahn.Step) (any, error) {
					if fails {
						return nil, kahn.Permanent(errSoldOut)
					}
					<-ctx.Done()
					return nil, ctx.Err()
				}},
			)
			_, err := inLives(t, g, stored, func() { fails = true })
			require.ErrorIs(t, err, errSoldOut)
			require.NotErrorIs(t, err, kahn.ErrCompensation)
			require.Equal(t, "e/x", l.String())
		})
	}
}

// A loop that paused inside an expanded node is undone if the expanded node is stopped before its step returns the graph again.
func TestPausedLoopInsideAStoppedNodeIsUndone(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		var l undoLog
		loop := &kahn.Loop{MaxIterations: 2, Pause: time.Hour, While: func(kahn.View) (bool, error) { return true, nil }}
		inner := graph(kahn.Node{ID: "L", Loop: loop, Sub: graph(kahn.Node{ID: "x", Do: succeeds(1), Compensate: l.undo})})
		var c calls
		g := graph(kahn.Node{ID: "e", Do: c.count(func(ctx context.Context, s *kahn.Step) (any, error) {
			if c.of("e") == 2 {
				return untilStopped(ctx, s)
			}
			return nil, kahn.Expand(inner, nil, nil)
		})})
		run, err := kahn.Start(t.Context(), g, nil)
		require.NoError(t, err)
		synctest.Wait()
		run.Leave()
		res, err := run.Wait()
		require.NoError(t, err)
		run, err = kahn.Start(t.Context(), g, nil, kahn.Resume(reload(t, res.Snapshot())))
		require.NoError(t, err)
		synctest.Wait()
		require.NoError(t, run.AbortAll(errHost))
		_, err = run.Wait()
		require.ErrorIs(t, err, errHost)
		require.NotErrorIs(t, err, kahn.ErrCompensation)
		require.Equal(t, "e/L#1/x", l.String())
	})
}

// NoEffect speaks for its attempt. A node that then completes by its fallback is undone, since the fallback may have had an effect.
func TestNodeThatCompletedByItsFallbackIsUndone(t *testing.T) {
	for _, effect := range []error{errSoldOut, kahn.NoEffect(errSoldOut)} {
		inBubble(t, effect.Error(), func(t *testing.T) {
			var l undoLog
			a := kahn.Node{ID: "a", Do: always(effect), Compensate: l.undo, Fallback: func(context.Context, error) (any, error) { return "instead", nil }}
			res, err := kahn.Execute(t.Context(), graph(a, kahn.Node{ID: "b", After: []string{"a"}, Do: always(errSoldOut)}), nil)
			require.ErrorIs(t, err, errSoldOut)
			require.Equal(t, "a", l.String())
			require.Equal(t, kahn.CompensationDone, must(res.Node("a")).Compensation)
		})
	}
}
