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
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/kahntest"
	"github.com/seed-c794f7ef/kahn/store"
)

// polling returns a loop of the given number of iterations of a graph, with a pause of a second between them. Its output is the list of the
// outputs of its iterations.
func polling(id string, sub *kahn.Graph, iterations int) kahn.Node {
	return kahn.Node{ID: id, Sub: sub, Loop: &kahn.Loop{While: whileLess(iterations), MaxIterations: 10, Collect: true, Pause: time.Second}}
}

// iteration returns a step that takes the time d. Its output is the number of its iteration.
func iteration(d time.Duration) kahn.StepFunc {
	return func(ctx context.Context, s *kahn.Step) (any, error) {
		if _, err := takes(d)(ctx, s); err != nil {
			return nil, err
		}
		return s.Iteration(), nil
	}
}

func TestLoopPause(t *testing.T) {
	x := graph(after("x"))
	inBubble(t, "the next iteration begins when the pause is over", func(t *testing.T) {
		for _, opts := range [][]kahn.Option{{}, {kahn.Limit(1)}, {kahn.Waves}, {kahn.Durable(new(store.Memory))}} {
			r := try(t, graph(polling("L", x, 3), after("B", "L")), iteration(100*ms), opts...)
			r.expect("L:ok B:ok", "completed")
			if got := fmt.Sprint(r.node("L").Output); got != "[1 2 3]" || r.Duration != 2400*ms {
				t.Errorf("%s after %v", got, r.Duration)
			}
			for k, at := range []time.Duration{0, 1100 * ms, 2200 * ms} {
				if got := r.at(event.NodeStarted, fmt.Sprintf("L#%d/x", k+1)); got != at {
					t.Errorf("iteration %d began after %v, expected %v", k+1, got, at)
				}
			}
			paused := r.find(event.NodePaused, "L")
			if len(paused) != 2 {
				t.Fatalf("%d pauses\n%s", len(paused), eventText(r.events))
			}
			for i, e := range paused {
				if p := e.Payload.(event.Pause); p != (event.Pause{Iteration: i + 1, Delay: time.Second}) || r.since(e) != time.Duration(1100*i+100)*ms {
					t.Errorf("%v after %v", e, r.since(e))
				}
				if queued := r.find(event.NodeQueued, fmt.Sprintf("L#%d/x", i+2)); len(queued) != 1 || queued[0].Parent != e.ID {
					t.Errorf("%v does not lead to %v", e, queued)
				}
			}
		}
	})
	inBubble(t, "a loop that pauses holds no slot", func(t *testing.T) {
		r := try(t, graph(polling("L", x, 2), kahn.Node{ID: "A", Priority: -1}), iteration(600*ms), kahn.Limit(1))
		r.expect("L:ok A:ok", "completed")
		if got := r.at(event.NodeStarted, "A"); got != 600*ms || r.Duration != 2200*ms {
			t.Errorf("A began after %v, the run took %v", got, r.Duration)
		}
	})
	inBubble(t, "no pause after the last iteration, at the bound, after a failure, or before a retry", func(t *testing.T) {
		stop := polling("L", x, 99)
		stop.Loop.MaxIterations, stop.Loop.OnLimit = 2, kahn.LoopStop
		if r := try(t, graph(stop), iteration(0)); r.Duration != time.Second || fmt.Sprint(r.Output()) != "[1 2]" {
			t.Errorf("%v after %v", r.Output(), r.Duration)
		}
		again := polling("L", x, 3)
		again.Retry = kahn.Retry{MaxAttempts: 2, InitialDelay: 10 * time.Second, Jitter: kahn.JitterNone}
		broken := false
		r := try(t, graph(again), func(_ context.Context, s *kahn.Step) (any, error) {
			if s.Iteration() == 2 && !broken {
				broken = true
				return nil, errStep
			}
			return s.Iteration(), nil
		})
		r.expect("L:ok", "completed")
		if r.Duration != 13*time.Second || fmt.Sprint(r.Output()) != "[1 2 3]" {
			t.Errorf("%v after %v", r.Output(), r.Duration)
		}
	})
	inBubble(t, "inside of maps and of sub-graphs each loop pauses for itself", func(t *testing.T) {
		m := kahn.Node{ID: "M", Params: map[string]any{"over": []int{1, 2, 3}}, Sub: graph(polling("L", x, 2), after("y", "L")), Map: &kahn.Map{Over: "over"}}
		r := try(t, graph(m), func(ctx context.Context, s *kahn.Step) (any, error) {
			return iteration(time.Duration(s.Index()+1)*100*ms)(ctx, s)
		}, kahn.Limit(3))
		r.expect("M:ok", "completed")
		for i, at := range []time.Duration{1100 * ms, 1200 * ms, 1300 * ms} {
			if got := r.at(event.NodeStarted, fmt.Sprintf("M[%d]/L#2/x", i)); got != at {
				t.Errorf("item %d went on after %v, expected %v", i, got, at)
			}
		}
	})
	inBubble(t, "values", func(t *testing.T) {
		for d, want := range map[time.Duration]error{-1: kahn.ErrBadValue, 0: nil, 1<<63 - 1: nil} {
			n := polling("L", x, 2)
			n.Loop.Pause = d
			if _, err := graph(n).Compile(); !errors.Is(err, want) {
				t.Errorf("%v: %v", d, err)
			}
		}
		n := polling("L", x, 2) // a pause of 292 years is a pause, too
		n.Loop.Pause, n.OverallTimeout = 1<<63-1, time.Hour
		r := try(t, graph(n), iteration(time.Second))
		r.expect("L:F", "failed")
		if r.cause("L", kahn.CauseTimeout); r.Duration != time.Hour {
			t.Errorf("it took %v", r.Duration)
		}
	})
}

func TestLoopPauseIsInterrupted(t *testing.T) {
	x := graph(after("x"))
	loop := polling("L", x, 9)
	timed, overall := loop, loop
	timed.Timeout, overall.OverallTimeout = 500*ms, 500*ms
	for name, c := range map[string]struct {
		g     *kahn.Graph
		host  func(*kahn.Run)
		want  string
		run   string
		cause kahn.CauseKind
		opts  []kahn.Option
	}{
		"cancel":          {graph(loop), func(r *kahn.Run) { r.Cancel() }, "L:C", "cancelled", kahn.CauseCancelRun, nil},
		"cancel, drained": {graph(loop), func(r *kahn.Run) { r.Cancel() }, "L:C", "cancelled", kahn.CauseCancelRun, []kahn.Option{kahn.Drain}},
		"cancel, nested":  {graph(subgraph("S", graph(loop))), func(r *kahn.Run) { r.Cancel() }, "S:C", "cancelled", kahn.CauseCancelRun, nil},
		"nested, drained": {graph(subgraph("S", graph(loop))), func(r *kahn.Run) { r.Cancel() }, "S:C", "cancelled", kahn.CauseCancelRun, []kahn.Option{kahn.Drain}},
		"abort":           {graph(loop), func(run *kahn.Run) { run.AbortAll(nil) }, "L:X", "failed", kahn.CauseAbortAll, nil},
		"node": {graph(loop), func(run *kahn.Run) {
			if err := run.CancelNode("L"); err != nil {
				t.Error(err)
			}
		}, "L:C", "cancelled", kahn.CauseCancelNode, nil},
		"timeout":         {graph(timed), func(*kahn.Run) {}, "L:F", "failed", kahn.CauseTimeout, nil},
		"overall timeout": {graph(overall), func(*kahn.Run) {}, "L:F", "failed", kahn.CauseTimeout, nil},
		"run timeout":     {graph(loop), func(*kahn.Run) {}, "L:X", "failed", kahn.CauseRunTimeout, []kahn.Option{kahn.Timeout(500 * ms)}},
		"fail fast":       {graph(loop, kahn.Node{ID: "Z", Do: fails(500 * ms)}), func(*kahn.Run) {}, "L:X Z:F", "failed", kahn.CauseFailFast, []kahn.Option{kahn.AbortRunning}},
		"no scheduling":   {graph(loop, kahn.Node{ID: "Z", Do: fails(500 * ms)}), func(*kahn.Run) {}, "L:X Z:F", "failed", kahn.CauseFailFast, []kahn.Option{kahn.StopScheduling}},
	} {
		for _, limit := range []int{1, 2} {
			inBubble(t, fmt.Sprint(name, ", limit ", limit), func(t *testing.T) {
				if limit == 1 && c.g.Nodes()[len(c.g.Nodes())-1].ID == "Z" {
					limit = 2 // L and Z must both run
				}
				r := tryControlled(t, t.Context(), c.g, iteration(10*ms), func(run *kahn.Run) {
					time.Sleep(500 * ms)
					synctest.Wait()
					c.host(run)
				}, append(slices.Clone(c.opts), kahn.Limit(limit))...)
				r.expect(c.want, c.run)
				id := c.g.Nodes()[0].ID
				r.cause(id, c.cause)
				if r.Duration != 500*ms {
					t.Errorf("it took %v", r.Duration)
				}
				if n := r.node(id); id == "L" && (n.Sub == nil || n.Sub.Status != kahn.RunCompleted) {
					t.Errorf("of the last iteration there is %v", n.Sub)
				}
			})
		}
	}
	inBubble(t, "a timeout that is retried", func(t *testing.T) {
		n := polling("L", x, 2)
		n.Timeout, n.Retry = 600*ms, kahn.Retry{MaxAttempts: 2, InitialDelay: time.Second, Jitter: kahn.JitterNone}
		r := try(t, graph(n), iteration(100*ms))
		r.expect("L:F", "failed")
		r.count(event.NodePaused, "L", 2)
		if r.Duration != 2200*ms {
			t.Errorf("it took %v", r.Duration)
		}
	})
	inBubble(t, "a cleanup loop goes on", func(t *testing.T) {
		n := polling("L", x, 2)
		n.Cleanup, n.After = true, []string{"A"}
		r := tryControlled(t, t.Context(), graph(after("A"), n), func(ctx context.Context, s *kahn.Step) (any, error) {
			if s.ID() == "A" {
				return nil, nil
			}
			return s.Iteration(), nil
		}, soon(func(r *kahn.Run) { r.Cancel() }))
		r.expect("A:ok L:ok", "completed")
		if r.Duration != time.Second {
			t.Errorf("it took %v", r.Duration)
		}
	})
}

// TestLoopPauseSurvives: in the next life of a run a loop waits for the remainder of its pause, and repeats nothing.
func TestLoopPauseSurvives(t *testing.T) {
	x := graph(after("x"))
	nested := graph(subgraph("S", graph(polling("L", x, 3))), after("B", "S"))
	for name, g := range map[string]*kahn.Graph{
		"outermost": graph(polling("L", x, 3), after("B", "L")), "nested": nested,
		"item": graph(kahn.Node{ID: "S", Params: map[string]any{"over": []int{1}}, Sub: graph(polling("L", x, 3)), Map: &kahn.Map{Over: "over"}}, after("B", "S")),
	} {
		for _, durable := range []bool{false, true} {
			for away, rest := range map[time.Duration]time.Duration{300 * ms: 300 * ms, time.Hour: 0} { // 400 ms of the first pause have passed
				inBubble(t, fmt.Sprintf("%s crashed, store %v, away for %v", name, durable, away), func(t *testing.T) {
					asked := 0
					opts := crash(t, g, iteration(0), durable, lasting(400*ms))
					time.Sleep(away)
					rec := newRecorder()
					res, err := kahn.Execute(t.Context(), g, func(ctx context.Context, s *kahn.Step) (any, error) {
						if s.Iteration() == 1 {
							asked++
						}
						return iteration(0)(ctx, s)
					}, append(opts, kahn.OnEvent(rec.add))...)
					if err != nil {
						t.Fatal(err)
					}
					r := trial{res, t, err, rec.all()}
					checkEvents(t, g, res, r.events)
					out := res.Snapshot() // everything about the run
					if _, err := out.MarshalJSON(); err != nil {
						t.Error(err)
					}
					first := g.Nodes()[0].ID
					if got := fmt.Sprint(r.node(first).Output); got != "[1 2 3]" && got != "[[1 2 3]]" || asked > 0 {
						t.Errorf("%s, the first iteration was asked %d times", got, asked)
					}
					if r.Duration != rest+time.Second {
						t.Errorf("it took %v, expected %v\n%s", r.Duration, rest+time.Second, eventText(r.events))
					}
				})
			}
		}
	}
	inBubble(t, "left, resumed, left again, and resumed", func(t *testing.T) {
		for _, g := range []*kahn.Graph{graph(polling("L", x, 3), after("B", "L")), nested} {
			r := left(t, g, iteration(0), 400*ms)
			for range 2 {
				if r.Status != kahn.RunSuspended || len(r.Waiting) > 0 {
					t.Fatalf("%v, waiting for %v", r.Status, r.Waiting)
				}
				time.Sleep(100 * ms)
				rec := newRecorder()
				run, err := kahn.Start(t.Context(), g, neverStep(t), kahn.Resume(reload(t, r.Snapshot())), kahn.OnEvent(rec.add))
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(100 * ms)
				run.Leave()
				res, err := run.Wait()
				r = trial{res, t, err, append(slices.Clone(r.events), rec.all()...)}
				checkEvents(t, g, res, r.events)
			}
			r = r.resume(g, iteration(0), nil)
			if got := fmt.Sprint(r.node(g.Nodes()[0].ID).Output); got != "[1 2 3]" || r.Duration != 1200*ms {
				t.Errorf("%s after %v", got, r.Duration)
			}
		}
	})
	inBubble(t, "stopped in another life", func(t *testing.T) {
		timed := polling("L", x, 3)
		timed.OverallTimeout = 700 * ms
		for name, c := range map[string]struct {
			g     *kahn.Graph
			host  func(*kahn.Run)
			after time.Duration
			cause kahn.CauseKind
		}{
			"cancel":         {graph(polling("L", x, 3)), func(r *kahn.Run) { r.Cancel() }, 100 * ms, kahn.CauseCancelRun},
			"timeout":        {graph(timed), func(*kahn.Run) {}, 300 * ms, kahn.CauseTimeout},
			"cancel, nested": {graph(subgraph("L", graph(polling("L", x, 3)))), func(r *kahn.Run) { r.Cancel() }, 100 * ms, kahn.CauseCancelRun},
		} {
			for _, durable := range []bool{false, true} {
				run, err := kahn.Start(t.Context(), c.g, neverStep(t), crash(t, c.g, iteration(0), durable, lasting(400*ms))...)
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(100 * ms)
				synctest.Wait()
				c.host(run)
				res, err := run.Wait()
				if err == nil || res.Duration != c.after {
					t.Errorf("%s: %v after %v", name, err, res.Duration)
				}
				n, _ := res.Node("L")
				if n.Cause.Kind != c.cause {
					t.Errorf("%s: %v, %v", name, n.Status, n.Cause)
				}
				if c.cause == kahn.CauseTimeout {
					continue
				}
				if next, err := kahn.Execute(t.Context(), c.g, iteration(0), kahn.Redrive(reload(t, res.Snapshot()), nil)); err != nil || next.Duration != 2*time.Second {
					t.Errorf("%s: redriven: %v after %v", name, err, next.Duration)
				}
			}
		}
	})
	inBubble(t, "overdue before the pause is over", func(t *testing.T) {
		n := polling("L", x, 3)
		n.OverallTimeout = 700 * ms
		opts := crash(t, graph(n), iteration(0), false, lasting(400*ms))
		time.Sleep(time.Hour)
		r := try(t, graph(n), neverStep(t), opts...)
		r.expect("L:F", "failed")
		if r.cause("L", kahn.CauseTimeout); r.Duration != 0 {
			t.Errorf("it took %v", r.Duration)
		}
	})
	inBubble(t, "the hash of a graph does not know of pauses", func(t *testing.T) {
		other := polling("L", x, 3)
		other.Loop.Pause = time.Minute
		a, _ := graph(polling("L", x, 3)).Compile()
		b, _ := graph(other).Compile()
		if a.Hash() != b.Hash() {
			t.Error("another hash")
		}
	})
}

// TestTimeoutOfAPausedLoopThatIsLeft: the Timeout of a loop may pass while a run is left, during its last write. Then the loop has timed
// out, and the graphs around it, at every depth, are running again.
func TestTimeoutOfAPausedLoopThatIsLeft(t *testing.T) {
	t.Parallel()
	loop := polling("L", graph(after("x")), 3)
	loop.Loop.Pause, loop.Timeout = time.Minute, 10*time.Second
	for name, c := range map[string]struct {
		g    *kahn.Graph
		path string
	}{
		"at the top": {graph(loop, after("B", "L")), "L"},
		"inside":     {graph(subgraph("S", graph(loop, after("B", "L")))), "S/L"},
		"deeper":     {graph(subgraph("S", graph(subgraph("T", graph(loop))))), "S/T/L"},
	} {
		inBubble(t, name, func(t *testing.T) {
			rec := newRecorder()
			db := &slowStore{Store: new(store.Memory), takes: 2 * time.Second}
			run, err := kahn.Start(t.Context(), c.g, takes(time.Second), kahn.Durable(db), kahn.RunID("r"), kahn.Lease("", time.Hour), kahn.OnEvent(rec.add))
			require.NoError(t, err)
			var began time.Time
			for began.IsZero() {
				time.Sleep(time.Second)
				for _, e := range rec.all() {
					if e.Type == event.NodeStarted && e.Path == c.path {
						began = e.Time
					}
				}
			}
			time.Sleep(time.Until(began.Add(9 * time.Second)))
			run.Leave()
			res, _ := run.Wait()
			events := rec.all()
			require.NoError(t, kahntest.CheckEvents(c.g, res, events))
			require.True(t, slices.ContainsFunc(events, func(e kahn.Event) bool { return e.Type == event.NodeTimedOut && e.Path == c.path }), "%s", eventText(events))
		})
	}
}
