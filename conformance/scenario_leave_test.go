package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/internal/trees"
	"github.com/seed-c794f7ef/kahn/kahntest"
	"github.com/seed-c794f7ef/kahn/store"
)

// statusAt returns the result of the node with a path.
func statusAt(res *kahn.Result, path string) kahn.NodeResult {
	head, rest, deeper := strings.Cut(path, "/")
	id, _, item := strings.Cut(head, "[")
	n, _ := res.Node(id)
	if item {
		n, _ = n.Sub.Node(head)
	}
	if deeper {
		return statusAt(n.Sub, rest)
	}
	return n
}

// lingers is a step that takes 100 ms after its context has ended.
func lingers(ctx context.Context, _ *kahn.Step) (any, error) {
	<-ctx.Done()
	time.Sleep(100 * ms)
	return nil, ctx.Err()
}

func TestScenarioStopWinsOverLeave(t *testing.T) {
	stops := map[string]func(*kahn.Run){"Cancel": func(r *kahn.Run) { r.Cancel() }, "AbortAll": func(r *kahn.Run) { r.AbortAll(errHost) }}
	for name, stop := range stops {
		for _, first := range []string{"CancelNode", "Timeout", "nothing"} {
			inBubble(t, fmt.Sprintf("%s of a run that is being left, %s before", name, first), func(t *testing.T) {
				var cleaned atomic.Int32
				sub := graph(kahn.Node{ID: "x", Do: lingers}, kahn.Node{ID: "c", Cleanup: true, After: []string{"x"}, Do: func(context.Context, *kahn.Step) (any, error) {
					cleaned.Add(1)
					return nil, nil
				}})
				n := subgraph("S", sub)
				if first == "Timeout" {
					n.Timeout = ms
				}
				run, err := startRun(t, t.Context(), graph(n, subgraph("T", graph(n))), nil)
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(2 * ms)
				if first == "CancelNode" {
					if err := run.CancelNode("S"); err != nil {
						t.Error(err)
					}
				}
				run.Leave()
				time.Sleep(ms)
				stop(run)
				run.Leave() // too late: the run has ended
				if res := endsWithin(t, run, 200*ms); !res.Status.Terminal() || cleaned.Load() != 2 {
					t.Errorf("%v, cleaned up %d times", res.Status, cleaned.Load())
				}
			})
		}
		inBubble(t, name+" of a run that is being left while a cleanup composite runs", func(t *testing.T) {
			sub := graph(kahn.Node{ID: "y1", Do: takes(100 * ms)}, kahn.Node{ID: "y2", After: []string{"y1"}, Do: takes(0)})
			clean := subgraph("C", sub)
			clean.Cleanup, clean.After = true, []string{"a"}
			run, err := startRun(t, t.Context(), graph(after("a"), clean, gate("g")), takes(0))
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * ms)
			run.Leave()
			time.Sleep(ms)
			stop(run)
			res := endsWithin(t, run, 200*ms)
			if n, _ := res.Node("C"); n.Status != kahn.Completed {
				t.Errorf("C is %v", n.Status)
			}
		})
	}
	inBubble(t, "a cleanup composite that waits goes on waiting", func(t *testing.T) {
		waits := kahn.Node{ID: "w", Do: func(context.Context, *kahn.Step) (any, error) { return nil, kahn.Suspend("", nil, nil) }}
		for _, composite := range []kahn.Node{subgraph("K", graph(waits)), subgraph("K", graph(subgraph("S", graph(waits))))} {
			composite.Cleanup = true
			r := tryControlled(t, t.Context(), graph(kahn.Node{ID: "A", Do: lingers}, composite), nil, func(run *kahn.Run) {
				time.Sleep(ms)
				run.Leave()
				time.Sleep(ms)
				run.Cancel()
				time.Sleep(ms)
				if s, _ := run.NodeStatus("K"); s != kahn.Suspended {
					t.Errorf("K is %v after the stop", s)
				}
			}, kahn.CleanupTimeout(time.Second))
			r.count(event.NodeSuspended, "K", 1)
			if goesOn := r.find(event.NodeStarted, "K")[1:]; len(goesOn) != 1 || r.since(goesOn[0]) != time.Second {
				t.Errorf("K goes on before its time is up: %v", goesOn)
			}
		}
	})
	inBubble(t, "what a signal has reached while the last record was written", func(t *testing.T) {
		// S has timed out, and its cleanup node waits. A ends while the run is being left. After that only the record that the run is at rest
		// must be written.
		asks := kahn.Node{ID: "c", Cleanup: true, After: []string{"x"}, Do: func(_ context.Context, s *kahn.Step) (any, error) {
			if _, ok := s.Resumed(); !ok {
				return nil, kahn.Suspend("", nil, nil)
			}
			return nil, nil
		}}
		for name, inner := range map[string]*kahn.Graph{
			"S/":   graph(kahn.Node{ID: "x", Do: untilStopped}, asks, kahn.Node{ID: "d", Cleanup: true, After: []string{"c"}}),
			"S/T/": graph(subgraph("T", graph(kahn.Node{ID: "x", Do: untilStopped}, asks, kahn.Node{ID: "d", Cleanup: true, After: []string{"c"}}))),
		} {
			s := subgraph("S", inner)
			s.Timeout = 100 * ms
			l := &lives{t: t, g: graph(s, kahn.Node{ID: "A", Do: takes(2 * time.Second)}), step: takes(0), store: &slowStore{Store: new(store.Memory), takes: 10 * ms}}
			res, _ := l.next(time.Second, func(run *kahn.Run) {
				run.Leave()
				for run.Status() != kahn.RunSuspended {
					time.Sleep(ms)
				}
				if err := run.Signal(context.Background(), name+"c", true); err != nil {
					t.Error(err)
				}
				run.Cancel()
				endsWithin(t, run, time.Second)
			})
			if c, d := statusAt(res, name+"c"), statusAt(res, name+"d"); c.Status != kahn.Completed || d.Status != kahn.Completed || !res.Status.Terminal() {
				t.Errorf("%v: c is %v, d is %v", res.Status, c.Status, d.Status)
			}
		}
	})
	for how, node := range map[string]kahn.Node{
		"before the stop": {ID: "c", Cleanup: true},
		"after the stop":  {ID: "c", Cleanup: true, After: []string{"a"}},
	} {
		inBubble(t, "a cleanup node that waits is bounded, "+how, func(t *testing.T) {
			node.Do = func(context.Context, *kahn.Step) (any, error) { return nil, kahn.Suspend("", nil, nil) }
			run, err := startRun(t, t.Context(), graph(kahn.Node{ID: "a", Do: lingers}, node), nil, kahn.CleanupTimeout(time.Second))
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * ms)
			run.Cancel()
			res := endsWithin(t, run, 1100*ms+100*ms)
			if n, _ := res.Node("c"); n.Status != kahn.Failed || n.Cause.Kind != kahn.CauseTimeout {
				t.Errorf("c is %v %v", n.Status, n.Cause)
			}
		})
	}
}

func TestScenarioLeave(t *testing.T) {
	inBubble(t, "a node that backs off inside of a composite", func(t *testing.T) {
		sub := graph(kahn.Node{ID: "x", Retry: kahn.Retry{MaxAttempts: 3, InitialDelay: 50 * ms, MaxDelay: time.Hour, Jitter: kahn.JitterNone}, OverallTimeout: 200 * ms, Do: always(errStep)})
		rec := newRecorder()
		run, err := startRun(t, t.Context(), graph(subgraph("S", sub), kahn.Node{ID: "L", Do: takes(time.Second)}), nil, kahn.OnEvent(rec.add))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * ms)
		run.Leave()
		time.Sleep(ms)
		if s, _ := run.NodeStatus("S"); s != kahn.Running {
			t.Errorf("S is %v, though something in it backs off", s)
		}
		res := endsWithin(t, run, time.Hour)
		if s, _ := res.Node("S"); s.Status != kahn.Failed {
			t.Errorf("S is %v after the overall timeout inside", s.Status)
		}
		checkEvents(t, graph(subgraph("S", sub), after("L")), res, rec.all())
	})
	inBubble(t, "no iteration and no item is begun", func(t *testing.T) {
		var c calls
		loop := subgraph("L", graph(after("x")))
		loop.Loop = &kahn.Loop{While: func(kahn.View) (bool, error) { return true, nil }, MaxIterations: 5, OnLimit: kahn.LoopStop}
		g := graph(loop, mapped("M", numbers(5), kahn.Map{Limit: 1}))
		run, err := startRun(t, t.Context(), g, c.count(takes(20*ms)))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * ms)
		run.Leave()
		res := endsWithin(t, run, 20*ms)
		if c.of("x") != 2 || c.of("M") != 2 || res.Status != kahn.RunSuspended {
			t.Errorf("%v after %d iterations and %d items", res.Status, c.of("x"), c.of("M"))
		}
		res, err = resumeRun(t, t.Context(), g, c.count(takes(20*ms)), res.Snapshot(), nil)
		if err != nil || c.of("x") != 5 || c.of("M") != 5 {
			t.Errorf("%v, %v after %d iterations and %d items", res.Status, err, c.of("x"), c.of("M"))
		}
	})
	inBubble(t, "the grace of a loop's test begins with the test", func(t *testing.T) {
		loop, end := subgraph("L", graph(kahn.Node{ID: "x", Do: takes(100 * ms)})), make(chan struct{})
		defer close(end)
		loop.Loop = &kahn.Loop{MaxIterations: 2, OnLimit: kahn.LoopStop, While: func(kahn.View) (bool, error) {
			<-end
			return false, nil
		}}
		run, err := kahn.Start(t.Context(), graph(loop), nothing, kahn.CancelGrace(30*ms)) // a Coordinator does not abandon tests
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * ms)
		run.Leave()
		res := endsWithin(t, run, 125*ms) // x may finish, and then the test has 30 ms
		if res.Status != kahn.RunSuspended || fmt.Sprint(res.Abandoned) != "[L]" {
			t.Errorf("%v, abandoned %v", res.Status, res.Abandoned)
		}
	})
	inBubble(t, "with one slot, what ends inside meanwhile has its turn before the run rests", func(t *testing.T) {
		waits := gate("w")
		waits.Gate = &kahn.Gate{Timeout: 50 * ms, OnTimeout: kahn.GateLabel}
		for path, n := range map[string]kahn.Node{
			"S":   subgraph("S", graph(subgraph("T", graph(waits)))),
			"S/v": subgraph("S", graph(waits, gate("v", "w"))),
		} {
			l := &lives{t: t, g: graph(kahn.Node{ID: "A", Do: lingers}, n, after("B", "S")), step: takes(0), opts: []kahn.Option{kahn.Limit(1)}}
			want := kahn.Completed
			if path == "S/v" {
				want = kahn.Suspended
			}
			res, err := l.next(10*ms, nil) // no node starts until A returns, and the gate w times out before that
			if n := statusAt(res, path); err != nil || res.Status != kahn.RunSuspended || n.Status != want {
				t.Errorf("%v, %v, %s is %v", res.Status, err, path, n.Status)
			}
		}
	})
	inBubble(t, "the cleanup inside of a composite that has timed out waits", func(t *testing.T) {
		asks := kahn.Node{ID: "c", Cleanup: true, After: []string{"x"}, Do: func(_ context.Context, s *kahn.Step) (any, error) {
			if _, ok := s.Resumed(); !ok {
				return nil, kahn.Suspend("", nil, nil)
			}
			return nil, nil
		}}
		n := subgraph("S", graph(kahn.Node{ID: "x", Do: untilStopped}, asks))
		n.Timeout = 10 * ms
		l := &lives{t: t, g: graph(n), step: takes(0)}
		if res, err := l.next(20*ms, (*kahn.Run).Leave); err != nil || res.Status != kahn.RunSuspended {
			t.Fatalf("%v, %v", res.Status, err)
		}
		res, _ := l.next(10*ms, func(run *kahn.Run) {
			if err := run.Signal(context.Background(), "S/c", true); err != nil {
				t.Error(err)
			}
		})
		if s, c := statusAt(res, "S"), statusAt(res, "S/c"); s.Cause.Kind != kahn.CauseTimeout || c.Status != kahn.Completed {
			t.Errorf("S is %v %v, c is %v", s.Status, s.Cause, c.Status)
		}
	})
	inBubble(t, "what is held inside of a suspended composite is queued once", func(t *testing.T) {
		var c calls
		l := &lives{t: t, g: graph(subgraph("S", graph(gate("w"), after("A"), after("B", "A")))), step: c.count(takes(20 * ms)), opts: []kahn.Option{kahn.SuspendStop}}
		for range 2 {
			if res, err := l.next(30*ms, (*kahn.Run).Leave); err != nil || res.Status != kahn.RunSuspended || c.of("A") != 1 || c.of("B") != 0 {
				t.Errorf("%v, %v after %d calls of A, %d of B", res.Status, err, c.of("A"), c.of("B"))
			}
		}
		res, err := l.next(30*ms, func(run *kahn.Run) {
			if err := run.Signal(context.Background(), "S/w", true); err != nil {
				t.Error(err)
			}
		})
		if err != nil || res.Status != kahn.RunCompleted || c.of("B") != 1 {
			t.Errorf("%v, %v after %d calls of B", res.Status, err, c.of("B"))
		}
		queued := 0
		for _, e := range l.events {
			if e.Type == event.NodeQueued && e.Path == "S/B" {
				queued++
			}
		}
		if queued != 1 {
			t.Errorf("B was queued %d times", queued)
		}
	})
	inBubble(t, "a node that times out while it waits wakes the run", func(t *testing.T) {
		waits := kahn.Node{ID: "w", OverallTimeout: time.Second, Do: func(context.Context, *kahn.Step) (any, error) { return nil, kahn.Suspend("", nil, nil) }}
		for _, g := range []*kahn.Graph{graph(waits, kahn.Node{ID: "A", In: []kahn.Edge{{From: "w", On: kahn.OnFailure}}}),
			graph(subgraph("S", graph(waits)), kahn.Node{ID: "A", In: []kahn.Edge{{From: "S", On: kahn.OnFailure}}})} {
			r := tryControlled(t, t.Context(), g, takes(time.Second), func(run *kahn.Run) {
				time.Sleep(1500 * ms)
				if s := run.Status(); s != kahn.RunRunning {
					t.Errorf("the run is %v while a step runs", s)
				}
			})
			if r.Status != kahn.RunCompleted {
				t.Errorf("%v: %v", r.Status, r.err)
			}
		}
	})
}

// TestStopEndsRun: after a stop at any depth, before or after a Leave, the run ends within CancelGrace and CleanupTimeout.
func TestStopEndsRun(t *testing.T) {
	n := uint64(400)
	if testing.Short() {
		n = 100
	}
	const grace, cleanup = 20 * ms, 150 * ms
	for seed := range n {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(31, seed))
			g := trees.Maker{Rand: rng, Inline: true, Waits: true, Cleanups: true}.Graph(2)
			opts := []kahn.Option{kahn.Limit(rng.IntN(3)), kahn.KeyLimit(rng.IntN(2)), kahn.Mode(rng.IntN(2)), kahn.FailureMode(rng.IntN(3)),
				kahn.StopMode(rng.IntN(2)), kahn.SuspendMode(1 + rng.IntN(2)), kahn.CancelGrace(grace), kahn.CleanupTimeout(cleanup), kahn.Random(func() float64 { return 0.5 })}
			run, err := startRun(t, t.Context(), g, trees.Step(rng.Uint64()), opts...)
			if err != nil {
				t.Fatal(seed, err)
			}
			for range rng.IntN(6) {
				time.Sleep(time.Duration(rng.IntN(40)) * ms)
				switch rng.IntN(4) {
				case 0:
					_ = run.CancelNode(fmt.Sprint("n", rng.IntN(4)))
				case 1:
					if rng.IntN(3) == 0 {
						run.Leave()
					}
				default:
					if w := run.Waiting(); len(w) > 0 {
						_ = run.Signal(context.Background(), w[rng.IntN(len(w))].Token, rng.IntN(3) > 0)
					}
				}
			}
			stop := func() error { return run.Cancel() }
			if rng.IntN(2) == 0 {
				stop = func() error { return run.AbortAll(errHost) }
			}
			err = stop()
			left := errors.Is(err, kahn.ErrAtRest) // the run was left before the stop
			if err != nil && !left {
				t.Error(err)
			}
			if rng.IntN(2) == 0 {
				run.Leave()
			}
			// Running attempts that may finish take up to 70 ms. The cleanup nodes run one after the other.
			res := endsWithin(t, run, 100*ms+grace+8*cleanup)
			if res.Status.Terminal() == left {
				t.Errorf("run is %v, and the stop returned %v", res.Status, err)
			}
			if t.Failed() {
				t.Errorf("seed %d", seed)
			}
			time.Sleep(time.Second) // abandoned steps return
		})
		if t.Failed() {
			return
		}
	}
}

func TestScenarioDrainingStepSuspends(t *testing.T) {
	for how, want := range map[string]kahn.CauseKind{
		"Cancel": kahn.CauseCancelRun, "AbortAll": kahn.CauseAbortAll, "StopScheduling": kahn.CauseFailFast, "sibling": kahn.CauseSiblingFailure,
	} {
		for _, deep := range []bool{false, true} {
			inBubble(t, fmt.Sprintf("%s, deep %v", how, deep), func(t *testing.T) {
				waits := kahn.Node{ID: "w", Do: func(context.Context, *kahn.Step) (any, error) {
					time.Sleep(time.Second)
					return nil, kahn.Suspend("", nil, nil)
				}}
				fails := kahn.Node{ID: "f", Do: takes(ms)}
				opts := []kahn.Option{kahn.Drain}
				switch how {
				case "StopScheduling":
					opts = []kahn.Option{kahn.StopScheduling}
					fails.Do = always(errStep)
				case "sibling":
					waits.Groups, fails.Groups = []string{"g"}, []string{"g"}
					fails.Do = always(errStep)
				}
				g := graph(waits, fails)
				if deep {
					inner := subgraph("S", graph(waits))
					if inner.Groups = waits.Groups; how == "sibling" {
						inner.Sub = graph(kahn.Node{ID: "w", Do: waits.Do})
					}
					g = graph(inner, fails)
				}
				g.Groups = []kahn.Group{{Name: "g", CancelOnFailure: true}}
				run, err := startRun(t, t.Context(), g, nil, opts...)
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(2 * ms)
				switch how {
				case "Cancel":
					run.Cancel()
				case "AbortAll":
					run.AbortAll(errHost)
				}
				res := endsWithin(t, run, time.Second)
				id := "w"
				if deep {
					id = "S"
				}
				if n, _ := res.Node(id); n.Cause.Kind != want {
					t.Errorf("%s is %v %v", id, n.Status, n.Cause)
				}
				if how != "Cancel" && res.Status != kahn.RunFailed {
					t.Errorf("the run is %v", res.Status)
				}
			})
		}
	}
	inBubble(t, "Execute", func(t *testing.T) {
		g := graph(kahn.Node{ID: "w", Do: func(context.Context, *kahn.Step) (any, error) {
			time.Sleep(time.Second)
			return nil, kahn.Suspend("", nil, nil)
		}}, kahn.Node{ID: "f", Do: always(errStep)})
		if res, err := executeRun(t, t.Context(), g, nil, kahn.StopScheduling); !errors.Is(err, errStep) || res.Status != kahn.RunFailed {
			t.Errorf("%v, %v", res.Status, err)
		}
	})
}

// TestScenarioGroupsInside: CancelOnFailure stops the members of the group at every depth.
func TestScenarioGroupsInside(t *testing.T) {
	in := func(n kahn.Node) kahn.Node { n.Groups = []string{"g"}; return n }
	fails := func(id string) kahn.Node {
		return kahn.Node{ID: id, Do: func(context.Context, *kahn.Step) (any, error) { time.Sleep(5 * ms); return nil, errStep }}
	}
	slow := func(id string) kahn.Node { return kahn.Node{ID: id, Do: takes(50 * ms)} }
	caught := func(id string) kahn.Node {
		return kahn.Node{ID: id, In: []kahn.Edge{{From: "f", On: kahn.OnFailure}}, Do: takes(0)}
	}
	for _, row := range []struct {
		name  string
		nodes []kahn.Node
		want  string // expected statuses, by path
	}{
		{"from outside to inside", []kahn.Node{in(fails("f")), subgraph("S", graph(in(slow("x")), slow("y")))}, "f:F S:F S/x:X S/y:ok"},
		{"from inside to outside", []kahn.Node{in(slow("x")), subgraph("S", graph(in(fails("f")), caught("c")))}, "x:X S:ok S/f:F S/c:ok"},
		{"across", []kahn.Node{subgraph("S", graph(in(fails("f")), caught("c"))), subgraph("T", graph(subgraph("U", graph(in(slow("x"))))))}, "S:ok S/f:F T:F T/U:F T/U/x:X"},
		{"a composite that is a member", []kahn.Node{in(fails("f")), in(subgraph("S", graph(slow("x"))))}, "f:F S:X S/x:X"},
		{"not a composite around it", []kahn.Node{in(subgraph("S", graph(in(fails("f")), caught("c"), in(slow("x")), slow("y"))))}, "S:F S/f:F S/c:ok S/x:X S/y:ok"},
		{"a member that has not begun", []kahn.Node{in(fails("f")), slow("a"), func() kahn.Node {
			n := subgraph("S", graph(in(slow("x")), slow("y")))
			n.After = []string{"a"}
			return n
		}()}, "f:F a:ok S:F S/x:X S/y:ok"},
		{"a group of its own", []kahn.Node{in(fails("f")), func() kahn.Node {
			sub := graph(in(slow("x")))
			sub.Groups = []kahn.Group{{Name: "g", CancelOnFailure: true}}
			return subgraph("S", sub)
		}()}, "f:F S:ok S/x:ok"},
		{"a group of its own around a member that has not begun", []kahn.Node{in(fails("f")), func() kahn.Node {
			n := subgraph("T", graph(in(slow("x"))))
			n.After = []string{"a"}
			sub := graph(slow("a"), n)
			sub.Groups = []kahn.Group{{Name: "g", CancelOnFailure: true}}
			return subgraph("S", sub)
		}()}, "f:F S:ok S/a:ok S/T:ok S/T/x:ok"},
		{"an item is no member, the map is", []kahn.Node{in(slow("x")), func() kahn.Node {
			n := in(mapped("M", numbers(2), kahn.Map{ToleratedCount: 1}))
			n.Do = func(ctx context.Context, s *kahn.Step) (any, error) {
				if s.Index() == 0 {
					return nil, errStep
				}
				return takes(10*ms)(ctx, s)
			}
			return n
		}()}, "x:ok M:ok M[0]:F M[1]:ok"},
		{"a map that fails", []kahn.Node{in(slow("x")), func() kahn.Node {
			n := in(mapped("M", numbers(2), kahn.Map{}))
			n.Do = always(errStep)
			return n
		}()}, "x:X M:F M[0]:F M[1]:F"},
		{"inside of a map's items", []kahn.Node{in(fails("f")), func() kahn.Node {
			n := mapped("M", numbers(2), kahn.Map{ToleratedCount: 2})
			n.Sub = graph(in(slow("x")), slow("y"))
			return n
		}()}, "f:F M:ok M[0]:F M[0]/x:X M[0]/y:ok M[1]:F M[1]/x:X M[1]/y:ok"},
		{"from inside of a map's item", []kahn.Node{in(slow("x")), func() kahn.Node {
			n := mapped("M", numbers(1), kahn.Map{ToleratedCount: 1})
			n.Sub = graph(in(fails("f")))
			return n
		}()}, "x:X M:ok M[0]:F M[0]/f:F"},
		{"a map that is stopped", []kahn.Node{in(fails("f")), func() kahn.Node {
			n := in(mapped("M", numbers(2), kahn.Map{}))
			n.Do = takes(20 * ms)
			return n
		}()}, "f:F M:X M[0]:X M[1]:X"},
	} {
		for _, mode := range []kahn.StopMode{kahn.Interrupt, kahn.Drain} {
			inBubble(t, fmt.Sprintf("%s, %v", row.name, mode), func(t *testing.T) {
				g := graph(row.nodes...)
				g.Groups = []kahn.Group{{Name: "g", CancelOnFailure: true}}
				rec := newRecorder()
				res, _ := executeRun(t, t.Context(), g, nil, mode, kahn.OnEvent(rec.add))
				if err := kahntest.CheckEvents(g, res, rec.all()); err != nil {
					t.Error(err)
				}
				want := row.want
				if mode == kahn.Drain { // running nodes may finish
					return
				}
				for _, w := range strings.Fields(want) {
					path, status, _ := strings.Cut(w, ":")
					if got := statusAt(res, path); got.Status.String()[:1] != map[string]string{"ok": "c", "F": "f", "X": "a"}[status] ||
						status == "X" && got.Cause.Kind != kahn.CauseSiblingFailure && got.Cause.Kind != kahn.CauseAbortAll {
						t.Errorf("%s is %v %v, not %s", path, got.Status, got.Cause.Kind, status)
					}
				}
			})
		}
	}
}

// TestScenarioGroupsAttemptedAgain: if a composite is attempted again, a failure inside affects only the attempt in which it happened.
func TestScenarioGroupsAttemptedAgain(t *testing.T) {
	for _, attempts := range []int{2, 3} { // the first two attempts fail
		for _, deep := range []bool{false, true} {
			inBubble(t, fmt.Sprintf("%d attempts, deep %v", attempts, deep), func(t *testing.T) {
				calls := 0
				f := kahn.Node{ID: "f", Groups: []string{"g"}, Do: func(context.Context, *kahn.Step) (any, error) {
					time.Sleep(5 * ms)
					if calls++; calls < 3 {
						return nil, errStep
					}
					return nil, nil
				}}
				x := kahn.Node{ID: "x", Groups: []string{"g"}, Do: takes(20 * ms)}
				s := subgraph("S", graph(f, x))
				if deep {
					s = subgraph("S", graph(subgraph("T", graph(f)), x))
				}
				s.Retry = kahn.Retry{MaxAttempts: attempts, InitialDelay: ms, Jitter: kahn.JitterNone}
				y := kahn.Node{ID: "y", Groups: []string{"g"}, Do: takes(200 * ms)}
				late := subgraph("L", graph(kahn.Node{ID: "z", Groups: []string{"g"}, Do: takes(0)}, after("a")), "S")
				late.Join = kahn.AllDone
				g := graph(s, y, late)
				g.Groups = []kahn.Group{{Name: "g", CancelOnFailure: true}}
				res, _ := executeRun(t, t.Context(), g, takes(0))
				want := map[string]kahn.Status{"S": kahn.Completed, "S/x": kahn.Completed, "y": kahn.Completed, "L/z": kahn.Completed, "L/a": kahn.Completed}
				if attempts == 2 {
					want = map[string]kahn.Status{"S": kahn.Failed, "S/x": kahn.Aborted, "y": kahn.Aborted, "L/z": kahn.Aborted, "L/a": kahn.Completed}
				}
				for path, status := range want {
					if n := statusAt(res, path); n.Status != status {
						t.Errorf("%s is %v %v, not %v", path, n.Status, n.Cause, status)
					}
				}
			})
		}
	}
	inBubble(t, "a failure that the attempt survives is for good when the composite has ended", func(t *testing.T) {
		f := kahn.Node{ID: "f", Groups: []string{"g"}, Do: always(errStep)}
		s := subgraph("S", graph(f, kahn.Node{ID: "c", In: []kahn.Edge{{From: "f", On: kahn.OnFailure}}, Do: takes(50 * ms)}))
		s.Retry = kahn.Retry{MaxAttempts: 2}
		g := graph(s, kahn.Node{ID: "y", Groups: []string{"g"}, Do: takes(200 * ms)})
		g.Groups = []kahn.Group{{Name: "g", CancelOnFailure: true}}
		rec := newRecorder()
		res, _ := executeRun(t, t.Context(), g, nil, kahn.OnEvent(rec.add))
		if n := statusAt(res, "y"); n.Status != kahn.Aborted || n.Duration != 50*ms || statusAt(res, "S").Status != kahn.Completed {
			t.Errorf("y is %v after %v", n.Status, n.Duration)
		}
		checkEvents(t, g, res, rec.all())
	})
	inBubble(t, "the iterations of a loop, and lives", func(t *testing.T) {
		f := kahn.Node{ID: "f", Groups: []string{"g"}, Do: always(errStep)}
		loop := subgraph("L", graph(f, kahn.Node{ID: "c", In: []kahn.Edge{{From: "f", On: kahn.OnFailure}}}, gate("q", "c"), kahn.Node{ID: "x", Groups: []string{"g"}, After: []string{"q"}}))
		loop.Loop = &kahn.Loop{While: func(v kahn.View) (bool, error) { return v.Iteration() < 2, nil }, MaxIterations: 5}
		loop.Retry = kahn.Retry{MaxAttempts: 2, InitialDelay: ms}
		g := graph(loop, kahn.Node{ID: "y", Groups: []string{"g"}, After: []string{"L"}}, gate("p"))
		g.Groups = []kahn.Group{{Name: "g", CancelOnFailure: true}}
		res, err := executeRun(t, t.Context(), g, takes(0))
		if err != nil || statusAt(res, "L").Sub == nil {
			t.Fatal(res, err)
		}
		for i := 0; res.Status == kahn.RunSuspended && i < 9; i++ {
			signals := map[string]any{}
			for _, w := range res.Waiting {
				if w.Node != "p" || len(res.Waiting) == 1 {
					signals[w.Token] = true
				}
			}
			data, err := res.Snapshot().MarshalJSON()
			if err != nil {
				t.Fatal(err)
			}
			s := new(kahn.Snapshot)
			if err := s.UnmarshalJSON(data); err != nil {
				t.Fatal(err)
			}
			res, _ = resumeRun(t, t.Context(), g, takes(0), s, signals)
		}
		if l, y := statusAt(res, "L"), statusAt(res, "y"); l.Status != kahn.Failed || l.Attempts != 2 || y.Status != kahn.Aborted || res.Status != kahn.RunFailed {
			t.Errorf("%v: L is %v after %d attempts, y is %v", res.Status, l.Status, l.Attempts, y.Status)
		}
	})
}

// TestLeaveReachesGates: while a run is being left, gates that follow running nodes start to wait, also with one slot and at every depth. So the
// Result lists all waiting nodes.
func TestLeaveReachesGates(t *testing.T) {
	inner := func() *kahn.Graph { return graph(after("x"), gate("G", "x"), gate("H", "x")) }
	for want, g := range map[string]*kahn.Graph{
		"G H":           inner(),
		"S/G S/H":       graph(subgraph("S", inner())),
		"S/T/G S/T/H":   graph(subgraph("S", graph(subgraph("T", inner())))),
		"M[0]/G M[0]/H": graph(kahn.Node{ID: "M", Map: &kahn.Map{Over: "list"}, Sub: inner(), Params: map[string]any{"list": []int{1}}}),
	} {
		for limit := range 3 {
			inBubble(t, fmt.Sprintf("%s, limit %d", want, limit), func(t *testing.T) {
				rec := newRecorder()
				run, err := startRun(t, t.Context(), g, takes(time.Second), kahn.Limit(limit), kahn.OnEvent(rec.add))
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(500 * ms)
				run.Leave()
				res, err := run.Wait()
				checkEvents(t, g, res, rec.all())
				if got := strings.Join(waitIDs(res.Waiting), " "); got != want || res.Status != kahn.RunSuspended || err != nil {
					t.Errorf("it is %v, %v, and %s wait\n%s", res.Status, err, got, eventText(rec.all()))
				}
			})
		}
	}
}
