package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/store"
)

// When a node is stopped, the run waits for the node's guard or merge until the grace ends, and then abandons the call. The run drops a result
// that arrives later.
func TestChecksThatDoNotReturn(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"guard", "merge"} {
		for _, how := range []string{"Cancel", "AbortAll", "CancelNode"} {
			for _, limit := range []int{0, 1} {
				for _, nested := range []bool{false, true} {
					inBubble(t, fmt.Sprintf("%s, %s, limit %d, nested %v", what, how, limit, nested), func(t *testing.T) {
						release := make(chan struct{})
						g := graph(after("A"), after("B"), kahn.Node{ID: "C", After: []string{"X"}, Cleanup: true})
						x := kahn.Node{ID: "X", In: []kahn.Edge{{From: "A", Param: "p"}, {From: "B", Param: "p"}}}
						if what == "guard" {
							x.When = func(kahn.View) (bool, error) { <-release; return true, nil }
						} else {
							x.Merge = "stuck"
							g.RegisterMerge("stuck", func([]kahn.Contribution) (any, error) { <-release; return 1, nil })
						}
						g.Add(x)
						stuck, composite := "X", ""
						if nested {
							g, stuck, composite = graph(subgraph("S", g)), "S/X", "S"
						}
						r := tryControlled(t, t.Context(), g, takes(ms), func(run *kahn.Run) {
							time.Sleep(10 * ms)
							switch {
							case how == "Cancel":
								run.Cancel()
							case how == "AbortAll":
								run.AbortAll(errHost)
							case nested:
								if err := run.CancelNode(composite); err != nil {
									t.Error(err)
								}
							default:
								if err := run.CancelNode("X"); err != nil {
									t.Error(err)
								}
							}
						}, kahn.Limit(limit), kahn.CancelGrace(100*ms))
						if !slices.Equal(r.Abandoned, []string{stuck}) {
							t.Errorf("abandoned are %q", r.Abandoned)
						}
						if r.Duration > 120*ms {
							t.Errorf("the run took %v", r.Duration)
						}
						before := eventText(r.events)
						close(release)
						synctest.Wait()
						if after := eventText(r.events); after != before {
							t.Errorf("what it said late was heard:\n%s", after)
						}
					})
				}
			}
		}
	}
	inBubble(t, "one that returns in time is not left behind", func(t *testing.T) {
		x := kahn.Node{ID: "X", When: func(kahn.View) (bool, error) { time.Sleep(50 * ms); return true, nil }}
		r := tryControlled(t, t.Context(), graph(x), takes(ms), func(run *kahn.Run) {
			time.Sleep(10 * ms)
			run.Cancel()
		}, kahn.CancelGrace(100*ms))
		r.expect("X:C", "cancelled")
		if len(r.Abandoned) > 0 || r.Duration > 51*ms {
			t.Errorf("abandoned are %q, after %v", r.Abandoned, r.Duration)
		}
	})
}

// If a guard or a merge hangs, a run can still be left: it abandons the call after the grace. The process that continues the run calls the
// function again.
func TestChecksThatHoldALeave(t *testing.T) {
	t.Parallel()
	leave := func(run *kahn.Run) { run.Leave() }
	for _, c := range []struct {
		what   string
		nested bool
		limit  int
		act    func(*kahn.Run) // if nil, the test calls Shutdown with a context that has ended
		store  bool
	}{
		{"guard", false, 0, leave, false},
		{"guard", false, 1, nil, false},
		{"guard", true, 0, nil, true},
		{"guard", true, 1, leave, true},
		{"merge", false, 1, leave, true},
		{"merge", true, 0, nil, false},
	} {
		inBubble(t, fmt.Sprintf("%s, nested %v, limit %d, shutdown %v, store %v", c.what, c.nested, c.limit, c.act == nil, c.store), func(t *testing.T) {
			release := make(chan struct{})
			var asked atomic.Int32
			ask := func() {
				if asked.Add(1) == 1 {
					<-release
				}
			}
			g := graph(after("A"), after("B"), after("C", "X"))
			x := kahn.Node{ID: "X", In: []kahn.Edge{{From: "A", Param: "p"}, {From: "B", Param: "p"}}}
			if c.what == "guard" {
				x.When = func(kahn.View) (bool, error) { ask(); return true, nil }
			} else {
				x.Merge = "stuck"
				g.RegisterMerge("stuck", func([]kahn.Contribution) (any, error) { ask(); return 1, nil })
			}
			g.Add(x)
			stuck := "X"
			if c.nested {
				g, stuck = graph(subgraph("S", g)), "S/X"
			}
			l := &lives{t: t, g: g, step: takes(ms), opts: []kahn.Option{kahn.Limit(c.limit), kahn.CancelGrace(100 * ms)}}
			if c.store {
				l.store = new(store.Memory)
			}
			began := time.Now()
			res, _ := l.next(10*ms, c.act)
			if res.Status != kahn.RunSuspended || !slices.Equal(res.Abandoned, []string{stuck}) {
				t.Errorf("%v, abandoned are %q", res.Status, res.Abandoned)
			}
			if took := time.Since(began); took > 120*ms {
				t.Errorf("left after %v", took)
			}
			res, err := l.next(0, nil)
			if err != nil || res.Status != kahn.RunCompleted || len(res.Abandoned) > 0 || asked.Load() != 2 {
				t.Errorf("%v, %v, abandoned are %q, asked %d times", res.Status, err, res.Abandoned, asked.Load())
			}
			close(release)
			synctest.Wait()
		})
	}
	inBubble(t, "one that returns in time is heard", func(t *testing.T) {
		x := kahn.Node{ID: "X", When: func(kahn.View) (bool, error) { time.Sleep(50 * ms); return false, nil }}
		l := &lives{t: t, g: graph(x, after("A", "X")), step: takes(ms), opts: []kahn.Option{kahn.CancelGrace(100 * ms)}}
		if res, err := l.next(10*ms, leave); err != nil || res.Status != kahn.RunCompleted || len(res.Abandoned) > 0 {
			t.Errorf("%v, %v, abandoned are %q", res.Status, err, res.Abandoned)
		}
	})
	for _, c := range []struct {
		name      string
		after     time.Duration // from the stop to the end
		asked     int32
		abandoned []string
	}{
		{"a check that the grace has not ended goes on when the run is stopped instead", 50 * ms, 1, nil},
		{"a check that was left behind is performed again when the run is stopped instead", 110 * ms, 2, []string{"X"}},
	} {
		inBubble(t, c.name, func(t *testing.T) {
			var asked atomic.Int32
			x := kahn.Node{ID: "X", Cleanup: true, When: func(kahn.View) (bool, error) {
				if asked.Add(1) == 1 {
					time.Sleep(200 * ms)
				}
				return true, nil
			}}
			r := tryControlled(t, t.Context(), graph(x, kahn.Node{ID: "W", Do: takes(150 * ms)}), takes(ms), func(run *kahn.Run) {
				time.Sleep(10 * ms)
				run.Leave()
				time.Sleep(c.after)
				run.Cancel()
			}, kahn.CancelGrace(100*ms))
			time.Sleep(200 * ms) // abandoned calls return meanwhile
			if n := r.node("X"); n.Status != kahn.Completed || asked.Load() != c.asked || !slices.Equal(r.Abandoned, c.abandoned) {
				t.Errorf("X is %v, asked %d times, abandoned are %q", n.Status, asked.Load(), r.Abandoned)
			}
		})
	}
}

// If the Test of a condition hangs, a run can still be left, by Leave, by Shutdown or because the caller's context ends. The run abandons the Test
// after the grace, and calls it again when the run continues.
func TestConditionsThatHoldALeave(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"Leave", "Shutdown", "the caller's context"} {
		for _, stored := range []bool{false, true} {
			for _, limit := range []int{0, 1} {
				for _, around := range []string{"", "S", "M", "L"} {
					if how == "the caller's context" && !stored {
						continue // without a store, the end of the context cancels the run
					}
					inBubble(t, fmt.Sprintf("%s, stored %v, limit %d, in %q", how, stored, limit, around), func(t *testing.T) {
						release := make(chan struct{})
						var asked, began atomic.Int32
						step := func(ctx context.Context, s *kahn.Step) (any, error) {
							began.Add(1)
							return takes(ms)(ctx, s)
						}
						x := kahn.If("X", func(kahn.View) (bool, error) {
							if asked.Add(1) == 1 {
								<-release
							}
							return true, nil
						}, "A")
						g, stuck := graph(after("A"), x, kahn.Node{ID: "C", In: []kahn.Edge{{From: "X", Label: "true"}}}), "X"
						switch around {
						case "S":
							g, stuck = graph(subgraph("S", g)), "S/X"
						case "M":
							m := mapped("M", []any{1.0}, kahn.Map{})
							m.Sub = g
							g, stuck = graph(m), "M[0]/X"
						case "L":
							g, stuck = graph(kahn.Node{ID: "L", Sub: g, Loop: &kahn.Loop{MaxIterations: 2, Until: func(kahn.View) (bool, error) { return true, nil }}}), "L#1/X"
						}
						rn, rec := new(kahn.Runner), newRecorder()
						opts := []kahn.Option{kahn.RunID("r"), kahn.Limit(limit), kahn.CancelGrace(100 * ms)}
						if stored {
							opts = append(opts, kahn.Durable(new(store.Memory)))
						}
						ctx, end := context.WithCancel(t.Context())
						defer end()
						run, err := rn.Start(ctx, g, step, append(opts, kahn.OnEvent(rec.add))...)
						require.NoError(t, err)
						time.Sleep(10 * ms)
						begin := time.Now()
						switch how {
						case "Leave":
							run.Leave()
						case "Shutdown":
							go shutDown(t, rn)
						default:
							end()
						}
						select {
						case <-run.Done():
						case <-time.After(time.Hour):
							close(release)
							require.Fail(t, "the run waits for the test of the condition")
						}
						res, err := run.Wait()
						require.Equal(t, how == "the caller's context", errors.Is(err, kahn.ErrLeft), "%v", err)
						require.Equal(t, kahn.RunSuspended, res.Status)
						require.True(t, res.Left)
						require.Equal(t, []string{stuck}, res.Abandoned)
						require.LessOrEqual(t, time.Since(begin), 120*ms)
						checkEvents(t, g, res, rec.all())
						again := newRecorder()
						if opts = append(opts, kahn.OnEvent(again.add)); !stored {
							opts = append(opts, kahn.Resume(reload(t, res.Snapshot())))
						}
						res, err = kahn.Execute(t.Context(), g, step, opts...)
						require.NoError(t, err)
						require.Equal(t, kahn.RunCompleted, res.Status)
						require.Empty(t, res.Abandoned)
						require.EqualValues(t, 2, asked.Load())
						require.EqualValues(t, 2, began.Load(), "A and C, each once")
						checkEvents(t, g, res, append(rec.all(), again.all()...))
						close(release)
						synctest.Wait()
					})
				}
			}
		}
	}
	for _, c := range []struct {
		name      string
		after     time.Duration // from the stop to the end
		asked     int32
		abandoned []string
	}{
		{"one that the grace has not ended goes on when the run is stopped instead", 50 * ms, 1, nil},
		{"one that was left behind is asked again when the run is stopped instead", 110 * ms, 2, []string{"X"}},
	} {
		for _, limit := range []int{0, 2} {
			inBubble(t, fmt.Sprint(c.name, ", limit ", limit), func(t *testing.T) {
				var asked atomic.Int32
				x := kahn.Node{ID: "X", Cleanup: true, Test: func(kahn.View) (any, error) {
					if asked.Add(1) == 1 {
						time.Sleep(200 * ms)
					}
					return true, nil
				}}
				r := tryControlled(t, t.Context(), graph(x, kahn.Node{ID: "W", Do: takes(150 * ms)}), takes(ms), func(run *kahn.Run) {
					time.Sleep(10 * ms)
					run.Leave()
					time.Sleep(c.after)
					run.Cancel()
				}, kahn.CancelGrace(100*ms), kahn.Limit(limit))
				time.Sleep(200 * ms) // abandoned calls return meanwhile
				require.Equal(t, kahn.Completed, r.node("X").Status)
				require.Equal(t, c.asked, asked.Load())
				require.Equal(t, c.abandoned, r.Abandoned)
			})
		}
	}
	inBubble(t, "one that returns in time is heard", func(t *testing.T) {
		x := kahn.Node{ID: "X", Test: func(kahn.View) (any, error) { time.Sleep(50 * ms); return false, nil }}
		l := &lives{t: t, g: graph(x), step: takes(ms), opts: []kahn.Option{kahn.CancelGrace(100 * ms)}}
		res, err := l.next(10*ms, func(run *kahn.Run) { run.Leave() })
		require.NoError(t, err)
		require.Equal(t, kahn.RunCompleted, res.Status)
		require.Empty(t, res.Abandoned)
	})
}

// While a run is being stopped, CleanupTimeout bounds the guard and the merge of a cleanup node.
func TestCleanupChecksThatDoNotReturn(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"guard", "merge"} {
		for name, after := range map[string]string{"asked before the stop": "A", "asked after it": "B"} {
			for _, limit := range []int{0, 1} {
				for _, around := range []string{"", "S", "K"} {
					inBubble(t, fmt.Sprintf("%s, %s, limit %d, in %q", what, name, limit, around), func(t *testing.T) {
						release := make(chan struct{})
						defer close(release)
						stuck := kahn.Node{ID: "X", Cleanup: true, After: []string{after}}
						g := graph(kahn.Node{ID: "A"}, kahn.Node{ID: "B", Do: untilStopped})
						if what == "guard" {
							stuck.When = func(kahn.View) (bool, error) { <-release; return true, nil }
						} else {
							stuck.In, stuck.Merge = []kahn.Edge{{From: after, Param: "p"}, {From: "A", Param: "p", On: kahn.OnAlways}}, "stuck"
							g.RegisterMerge("stuck", func([]kahn.Contribution) (any, error) { <-release; return 1, nil })
							if after == "B" {
								stuck.In[0].On = kahn.OnAlways
							}
							stuck.After = nil
						}
						g.Add(stuck, kahn.Node{ID: "end", Kind: kahn.KindEnd})
						path := "X"
						if around != "" {
							s := subgraph(around, g)
							s.Cleanup = around == "K"
							g, path = graph(s, kahn.Node{ID: "O", Do: untilStopped}), around+"/X"
						}
						r := tryControlled(t, t.Context(), g, takes(ms), func(run *kahn.Run) {
							time.Sleep(10 * ms)
							run.Cancel()
						}, kahn.Limit(limit), kahn.CancelGrace(100*ms), kahn.CleanupTimeout(300*ms))
						if !slices.Equal(r.Abandoned, []string{path}) {
							t.Errorf("abandoned are %q", r.Abandoned)
						}
						if r.Duration > 850*ms {
							t.Errorf("the run took %v", r.Duration)
						}
						for _, e := range r.events {
							if p, ok := e.Payload.(event.NodeEnd); ok && e.Path == path && around != "K" && p.Cause != kahn.CauseTimeout {
								t.Errorf("%v", e)
							}
						}
					})
				}
			}
		}
	}
}

// If the test of a loop hangs, the run can still be left. The test is called again when the run continues.
func TestLoopTestThatDoesNotReturn(t *testing.T) {
	t.Parallel()
	for _, stored := range []bool{false, true} {
		for _, limit := range []int{0, 1} {
			for _, nested := range []bool{false, true} {
				for _, end := range []string{"leave", "shut down", "cancel", "return"} {
					inBubble(t, fmt.Sprintf("stored %v, limit %d, nested %v, %s", stored, limit, nested, end), func(t *testing.T) {
						release := make(chan struct{})
						var asked, calls atomic.Int32
						loop := kahn.Node{ID: "L", Sub: graph(kahn.Node{ID: "x", Do: func(context.Context, *kahn.Step) (any, error) { calls.Add(1); return nil, nil }}),
							Loop: &kahn.Loop{MaxIterations: 5, While: func(kahn.View) (bool, error) {
								n := asked.Add(1)
								if n == 2 {
									<-release
								}
								return n < 3, nil
							}}}
						g, path := graph(loop, kahn.Node{ID: "O", After: []string{"P"}}, kahn.Node{ID: "P", Priority: -1, Do: takes(600 * ms)}), "L"
						if nested {
							g, path = graph(subgraph("S", g)), "S/L"
						}
						rn, rec := new(kahn.Runner), newRecorder()
						opts := []kahn.Option{kahn.RunID("r"), kahn.Limit(limit), kahn.CancelGrace(100 * ms), kahn.CleanupTimeout(300 * ms)}
						inStore := new(store.Memory)
						if stored {
							opts = append(opts, kahn.Durable(inStore))
						}
						run, err := rn.Start(t.Context(), g, takes(ms), append(opts, kahn.OnEvent(rec.add))...)
						require.NoError(t, err)
						for asked.Load() < 2 { // until P runs, or the only slot is taken
							time.Sleep(50 * ms)
						}
						begin := time.Now()
						switch end {
						case "shut down":
							ctx, cancel := context.WithTimeout(t.Context(), 10*ms)
							defer cancel()
							_ = rn.Shutdown(ctx)
						case "return":
							run.Leave()
							time.Sleep(50 * ms)
							close(release)
						default:
							run.Leave()
						}
						if end == "cancel" {
							time.Sleep(150 * ms)
							err, rests := run.Cancel(), run.Status() == kahn.RunSuspended
							if atRest := errors.Is(err, kahn.ErrAtRest); atRest != (rests && !stored) || err != nil && !atRest {
								t.Errorf("Cancel of a run that rests (%v): %v", rests, err)
							}
						}
						res, _ := run.Wait()
						if took := time.Since(begin); took > 800*ms {
							t.Errorf("it ended after %v", took)
						}
						checkEvents(t, g, res, rec.all())
						if want := end != "return"; slices.Contains(res.Abandoned, path) != want {
							t.Errorf("abandoned are %q", res.Abandoned)
						}
						if left := leftovers(run); left != "" && res.Status.Terminal() {
							t.Error(left)
						}
						if end != "return" {
							close(release)
							synctest.Wait()
						}
						if res.Status.Terminal() {
							return
						}
						again := newRecorder()
						if opts = append(opts, kahn.OnEvent(again.add)); !stored {
							opts = append(opts, kahn.Resume(reload(t, res.Snapshot())))
						}
						res, err = kahn.Execute(t.Context(), g, takes(ms), opts...)
						if stored && end == "cancel" { // the run had been left, so Cancel posted a request, which now stops the nodes that have not ended
							posted, err := inStore.LoadRequests(t.Context(), "r", 0, 10)
							require.NoError(t, err)
							require.Len(t, posted, 1)
							require.Equal(t, store.RequestApplied, posted[0].Status)
						}
						if res.Status == kahn.RunCancelled && stored && end == "cancel" {
							checkEvents(t, g, res, append(rec.all(), again.all()...))
							return
						}
						require.NoError(t, err)
						checkEvents(t, g, res, append(rec.all(), again.all()...))
						want := asked.Load()
						if end != "return" {
							want-- // the abandoned call is repeated
						}
						if got := calls.Load(); got != want {
							t.Errorf("%d iterations, %d tests", got, asked.Load())
						}
					})
				}
			}
		}
	}
}

// A process leaves a run and abandons the call of a loop's test. If the loop is cancelled meanwhile, the next process stops the loop, and the
// other nodes end as usual.
func TestLoopLeftBehindIsCancelled(t *testing.T) {
	t.Parallel()
	for _, stored := range []bool{false, true} {
		inBubble(t, fmt.Sprint("stored ", stored), func(t *testing.T) {
			var asked atomic.Int32 // the abandoned call and the next life's call are not synchronized
			g := graph(kahn.Node{ID: "L", Sub: graph(after("x")), Loop: &kahn.Loop{MaxIterations: 5, While: func(kahn.View) (bool, error) {
				if asked.Add(1) == 1 {
					time.Sleep(time.Minute)
				}
				return true, nil
			}}}, kahn.Node{ID: "W", Do: takes(5 * time.Second)}, after("Z", "W"))
			opts := []kahn.Option{kahn.RunID("r"), kahn.CancelGrace(100 * ms)}
			if stored {
				opts = append(opts, kahn.Durable(new(store.Memory)))
			}
			run, err := kahn.Start(t.Context(), g, nop, opts...)
			require.NoError(t, err)
			time.Sleep(10 * ms)
			run.Leave()
			time.Sleep(200 * ms)
			require.NoError(t, run.CancelNode("L"))
			res, err := run.Wait()
			require.NoError(t, err)
			require.True(t, res.Left)
			require.Equal(t, []string{"L"}, res.Abandoned)
			w, _ := res.Node("W")
			require.Equal(t, kahn.Completed, w.Status)
			time.Sleep(time.Hour) // the abandoned call returns meanwhile
			if !stored {
				opts = append(opts, kahn.Resume(reload(t, res.Snapshot())))
			}
			try2(t, g, nop, opts...).expect("L:C W:ok Z:ok", "cancelled")
		})
	}
}

// A stopped run in SuspendStop mode performs only cleanup nodes. A cleanup node that waits for a signal does not delay other cleanup nodes.
func TestCleanupThatWaitsHoldsNothingBack(t *testing.T) {
	t.Parallel()
	for _, around := range []string{"", "S", "K"} {
		for _, early := range []bool{false, true} { // early: the node waits before the stop
			inBubble(t, fmt.Sprintf("in %q, early %v", around, early), func(t *testing.T) {
				started := time.Duration(-1)
				begin := time.Now()
				waits := kahn.Node{ID: "W", Cleanup: true, Do: func(context.Context, *kahn.Step) (any, error) {
					return nil, kahn.Suspend("", nil, nil)
				}}
				if !early {
					waits.After = []string{"A"}
				}
				other := kahn.Node{ID: "C", Cleanup: true, After: []string{"B"}, Do: func(context.Context, *kahn.Step) (any, error) {
					started = time.Since(begin)
					return nil, nil
				}}
				slow := func(context.Context, *kahn.Step) (any, error) { time.Sleep(100 * ms); return nil, errStep }
				g := graph(kahn.Node{ID: "A", Do: untilStopped}, waits, kahn.Node{ID: "B", Do: slow}, other)
				if around == "K" {
					g = graph(kahn.Node{ID: "A"}, waits, kahn.Node{ID: "B", Do: slow}, other)
				}
				if around != "" {
					s := subgraph(around, g)
					s.Cleanup = around == "K"
					g = graph(s, kahn.Node{ID: "O", Do: untilStopped})
				}
				r := tryControlled(t, t.Context(), g, takes(ms), func(run *kahn.Run) {
					time.Sleep(10 * ms)
					run.Cancel()
				}, kahn.SuspendStop, kahn.CleanupTimeout(time.Hour))
				if started != 100*ms {
					t.Errorf("C started after %v\n%s", started, eventText(r.events))
				}
			})
		}
	}
}
