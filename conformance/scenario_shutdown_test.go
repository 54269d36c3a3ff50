package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/store"
)

func shutDown(t *testing.T, rn *kahn.Runner) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := rn.Shutdown(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestScenarioShutdown(t *testing.T) {
	each := func(name string, f func(t *testing.T, db store.Store)) {
		inBubble(t, name+", from snapshots", func(t *testing.T) { f(t, nil) })
		inBubble(t, name+", from a store", func(t *testing.T) { f(t, new(store.Memory)) })
	}
	each("an attempt that is interrupted does not count", func(t *testing.T, db store.Store) {
		var causes []error
		var attempts []int
		calls := 0
		work := func(ctx context.Context, s *kahn.Step) (any, error) {
			attempts = append(attempts, s.Attempt())
			switch calls++; calls {
			case 1, 2:
				<-ctx.Done()
				causes = append(causes, context.Cause(ctx))
				return nil, ctx.Err()
			case 3:
				return nil, errStep
			}
			return "done", nil
		}
		cleaned := 0
		g := graph(kahn.Node{ID: "A", Do: work, Retry: kahn.Retry{MaxAttempts: 2, InitialDelay: ms}}, after("B", "A"),
			kahn.Node{ID: "c", Cleanup: true, After: []string{"A"}, Do: func(context.Context, *kahn.Step) (any, error) { cleaned++; return nil, nil }},
			kahn.Node{ID: "end", Kind: kahn.KindEnd})
		l := &lives{t: t, g: g, step: takes(0), store: db}
		for range 2 {
			res, err := l.next(10*ms, nil)
			if n, _ := res.Node("A"); err != nil || res.Status != kahn.RunSuspended || n.Status != kahn.Ready || len(res.Abandoned) > 0 || cleaned > 0 || res.CancelRequested {
				t.Fatalf("%v, %v, A is %v, abandoned %v, cleaned up %d times", res.Status, err, n.Status, res.Abandoned, cleaned)
			}
		}
		res, err := l.next(0, nil)
		if n, _ := res.Node("A"); err != nil || n.Output != "done" || n.Attempts != 4 || cleaned != 1 || !slices.Equal(attempts, []int{1, 2, 3, 4}) {
			t.Errorf("%v, A is %v after attempts %v", err, n.Status, attempts)
		}
		for _, cause := range causes {
			if cause != kahn.ErrLeft {
				t.Errorf("interrupted by %v", cause)
			}
		}
	})
	each("what is inside of composites", func(t *testing.T, db store.Store) {
		var c calls
		slow := c.count(func(ctx context.Context, s *kahn.Step) (any, error) { return takes(100*ms)(ctx, s) })
		loop := subgraph("L", graph(subgraph("S", graph(after("x")))))
		loop.Loop = &kahn.Loop{While: func(v kahn.View) (bool, error) { return v.Iteration() < 2, nil }, MaxIterations: 2}
		m := mapped("M", []any{1.0, 2.0}, kahn.Map{})
		l := &lives{t: t, g: graph(loop, m, subgraph("F", graph(gate("g"), after("y", "g")))), step: slow, store: db}
		res, err := l.next(150*ms, nil) // the Shutdown comes during the second iteration
		if err != nil || res.Status != kahn.RunSuspended || c.of("x") != 2 || c.of("M") != 2 {
			t.Fatalf("%v, %v, %d and %d calls", res, err, c.of("x"), c.of("M"))
		}
		res, err = l.next(150*ms, func(run *kahn.Run) {
			if err := run.Signal(context.Background(), "F/g", true); err != nil {
				t.Error(err)
			}
		})
		if err != nil || c.of("x") != 3 || c.of("M") != 2 || c.of("y") != 1 || res.Status != kahn.RunCompleted {
			t.Errorf("%v, %v, %d and %d calls", res.Status, err, c.of("x"), c.of("M"))
		}
	})
	each("a success that arrives anyway is kept", func(t *testing.T, db store.Store) {
		var c calls
		l := &lives{t: t, g: graph(after("A"), after("B", "A")), store: db, step: c.count(func(context.Context, *kahn.Step) (any, error) {
			time.Sleep(20 * ms)
			return "kept", nil
		})}
		res, err := l.next(10*ms, nil)
		if n, _ := res.Node("A"); err != nil || n.Output != "kept" || c.of("B") != 0 || res.Duration != 20*ms {
			t.Errorf("%v: A is %v, the run ended after %v", err, n.Status, res.Duration)
		}
		if _, err = l.next(0, nil); err != nil || c.of("A") != 1 || c.of("B") != 1 {
			t.Errorf("%v: %d calls of A, %d of B", err, c.of("A"), c.of("B"))
		}
	})
	each("one that ignores its context is left behind", func(t *testing.T, db store.Store) {
		var calls atomic.Int32 // the abandoned call and the next life's call are not synchronized
		stuck := func(context.Context, *kahn.Step) (any, error) {
			if calls.Add(1) == 1 {
				time.Sleep(time.Hour)
				return "too late", nil
			}
			return "again", nil
		}
		l := &lives{t: t, g: graph(kahn.Node{ID: "A", Do: stuck}, subgraph("S", graph(after("x")))), step: takes(0), store: db}
		res, err := l.next(10*ms, nil)
		if err != nil || !slices.Equal(res.Abandoned, []string{"A"}) || res.Duration != 10*ms+5*time.Second {
			t.Errorf("%v: abandoned %v after %v", err, res.Abandoned, res.Duration)
		}
		res, err = l.next(0, nil)
		if n, _ := res.Node("A"); err != nil || n.Output != "again" || n.Abandoned {
			t.Errorf("%v: %+v", err, n)
		}
		time.Sleep(2 * time.Hour)
	})
	each("an OverallTimeout that passes after the interruption counts", func(t *testing.T, db store.Store) {
		var c calls
		l := &lives{t: t, g: graph(kahn.Node{ID: "A", OverallTimeout: 50 * ms}, gate("G")), step: c.count(lingers), store: db}
		for _, leave := range []func(*kahn.Run){nil, (*kahn.Run).Leave} {
			res, err := l.next(10*ms, leave)
			if n, _ := res.Node("A"); err != nil || res.Status != kahn.RunSuspended || n.Status != kahn.Failed || n.Cause.Kind != kahn.CauseTimeout || c.of("A") != 1 {
				t.Errorf("%v, %v: A is %v %v after %d calls", res.Status, err, n.Status, n.Cause, c.of("A"))
			}
		}
	})
	each("a judge of inputs is asked again", func(t *testing.T, db store.Store) {
		judged := 0
		judge := func(ctx context.Context, _ event.Phase, _ *kahn.Step, _ any) error {
			if judged++; judged == 1 {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}
		var c calls
		l := &lives{t: t, g: graph(kahn.Node{ID: "A", Moderation: kahn.ModerateInput}), step: c.count(takes(0)), store: db, opts: []kahn.Option{kahn.Moderate(judge)}}
		if res, err := l.next(10*ms, nil); err != nil || res.Status != kahn.RunSuspended || c.of("A") != 0 {
			t.Fatalf("%v, %v", res.Status, err)
		}
		res, err := l.next(0, nil)
		if n, _ := res.Node("A"); err != nil || judged != 2 || n.Attempts != 1 || c.of("A") != 1 {
			t.Errorf("%v: judged %d times, %d attempts", err, judged, n.Attempts)
		}
	})
	for _, deep := range []bool{false, true} {
		each(fmt.Sprintf("a stop wins over an interruption, deep %v", deep), func(t *testing.T, db store.Store) {
			g := graph(kahn.Node{ID: "A", Do: lingers}, kahn.Node{ID: "c", Cleanup: true, After: []string{"A"}, Do: takes(0)})
			if deep {
				g = graph(subgraph("S", g), kahn.Node{ID: "c", Cleanup: true, After: []string{"S"}, Do: takes(0)})
			}
			l := &lives{t: t, g: g, store: db}
			res, _ := l.next(10*ms, func(run *kahn.Run) {
				go shutDown(t, l.runner)
				time.Sleep(10 * ms)
				run.Cancel()
			})
			if n, _ := res.Node("c"); res.Status != kahn.RunCancelled || n.Status != kahn.Completed {
				t.Errorf("%v, c is %v", res.Status, n.Status)
			}
		})
	}
	each("a stop that lets running steps finish wins, too", func(t *testing.T, db store.Store) {
		for _, stubborn := range []bool{false, true} { // whether the step runs longer than its grace
			for _, deep := range []bool{false, true} {
				calls := 0
				a := kahn.Node{ID: "A", Do: func(ctx context.Context, s *kahn.Step) (any, error) {
					calls++
					return lingers(ctx, s)
				}}
				g := graph(a, kahn.Node{ID: "c", Cleanup: true, After: []string{"A"}, Do: takes(0)})
				if deep {
					g = graph(subgraph("S", g))
				}
				l := &lives{t: t, g: g, opts: []kahn.Option{kahn.Drain}}
				if db != nil {
					l.store = new(store.Memory)
				}
				if stubborn {
					l.opts = append(l.opts, kahn.CancelGrace(50*ms))
				}
				res, _ := l.next(10*ms, func(run *kahn.Run) {
					go shutDown(t, l.runner)
					time.Sleep(10 * ms)
					run.Cancel()
				})
				if deep {
					n, _ := res.Node("S")
					res = n.Sub
				}
				n, _ := res.Node("A")
				if c, _ := res.Node("c"); n.Cause.Kind != kahn.CauseCancelRun || n.Abandoned != stubborn || calls != 1 || c.Status != kahn.Completed || res.Status != kahn.RunCancelled {
					t.Errorf("stubborn %v, deep %v: %v, A is %v %v after %d calls, c is %v", stubborn, deep, res.Status, n.Status, n.Cause, calls, c.Status)
				}
				time.Sleep(time.Second)
			}
		}
	})
	each("a loop whose iteration has just ended is not interrupted", func(t *testing.T, db store.Store) {
		rn := new(kahn.Runner)
		loop := subgraph("L", graph(after("x"), gate("w", "x")))
		loop.Loop = &kahn.Loop{While: func(v kahn.View) (bool, error) { return v.Iteration() < 3, nil }, MaxIterations: 3}
		slow := &slowStore{Store: new(store.Memory), takes: 10 * ms}
		opts := []kahn.Option{kahn.RunID("r"), kahn.CancelGrace(20 * ms)}
		if db != nil {
			opts = append(opts, kahn.Durable(slow)) // the test of the loop is called when the record of the iteration is written
		}
		run, err := rn.Start(t.Context(), graph(loop), takes(0), opts...)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(100 * ms)
		if err := run.Signal(context.Background(), "L#1/w", true); err != nil {
			t.Error(err)
		}
		shutDown(t, rn)
		res := endsWithin(t, run, time.Second)
		if n, _ := res.Node("L"); res.Status != kahn.RunSuspended || n.Attempts != 1 || len(res.Abandoned) > 0 {
			t.Errorf("%v, L is %v after %d attempts, abandoned %v", res.Status, n.Status, n.Attempts, res.Abandoned)
		}
	})
	each("the fallback of a composite", func(t *testing.T, db store.Store) {
		calls := 0
		n := subgraph("S", graph(kahn.Node{ID: "x", Do: always(errStep)}))
		n.Fallback = func(ctx context.Context, _ error) (any, error) {
			if calls++; calls == 1 {
				return lingers(ctx, nil)
			}
			return "made up", nil
		}
		l := &lives{t: t, g: graph(n), step: takes(0), store: db}
		if res, err := l.next(10*ms, nil); err != nil || res.Status != kahn.RunSuspended || len(res.Abandoned) > 0 {
			t.Errorf("%v, %v, abandoned %v", res.Status, err, res.Abandoned)
		}
		res, err := l.next(0, nil)
		if s, _ := res.Node("S"); err != nil || s.Output != "made up" || calls != 2 || s.Attempts != 2 {
			t.Errorf("%v: S is %v, %v after %d calls", err, s.Status, s.Output, calls)
		}
	})
	each("a cleanup node that was interrupted begins again when the run is stopped", func(t *testing.T, db store.Store) {
		for _, shape := range []string{"plain", "end", "composite", "loop", "map"} {
			calls := 0
			lingersOnce := func(ctx context.Context, s *kahn.Step) (any, error) {
				if calls++; calls == 1 {
					return lingers(ctx, s)
				}
				return nil, nil
			}
			c := kahn.Node{ID: "c", Do: lingersOnce}
			switch shape {
			case "composite", "loop":
				c = subgraph("c", graph(kahn.Node{ID: "x", Do: lingersOnce}))
				if shape == "loop" {
					c.Loop = &kahn.Loop{Until: func(kahn.View) (bool, error) { return true, nil }, MaxIterations: 2}
				}
			case "map":
				c = mapped("c", numbers(1), kahn.Map{})
				c.Do = lingersOnce
			}
			if c.Cleanup, c.After = true, []string{"A"}; shape == "end" {
				c = kahn.Node{ID: "c", Kind: kahn.KindEnd, Do: lingersOnce}
			}
			l := &lives{t: t, g: graph(after("A"), c), step: takes(0)}
			if db != nil {
				l.store = new(store.Memory)
			}
			res, err := l.next(10*ms, func(run *kahn.Run) {
				go shutDown(t, l.runner)
				time.Sleep(10 * ms)
				run.Cancel() // no node is left to stop
			})
			if err != nil || res.Status != kahn.RunCompleted || calls != 2 {
				t.Errorf("%s: %v, %v after %d calls", shape, res.Status, err, calls)
			}
		}
	})
	inBubble(t, "what a stopped run was to finish is interrupted", func(t *testing.T) {
		for _, deep := range []bool{false, true} {
			g := graph(kahn.Node{ID: "A", Do: untilStopped}, kahn.Node{ID: "c", Cleanup: true, After: []string{"A"}, Do: takes(10 * ms)})
			if deep {
				g = graph(subgraph("S", g))
			}
			rn := new(kahn.Runner)
			run, err := rn.Start(t.Context(), g, nil, kahn.Drain)
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(ms)
			run.Cancel()
			shutDown(t, rn)
			res, _ := run.Wait()
			if deep {
				n, _ := res.Node("S")
				res = n.Sub
			}
			a, _ := res.Node("A")
			c, _ := res.Node("c")
			if a.Cause.Kind != kahn.CauseCancelRun || c.Status != kahn.Completed || res.Status != kahn.RunCancelled {
				t.Errorf("%v: A is %v, c is %v", res.Status, a.Status, c.Status)
			}
		}
	})
	inBubble(t, "until the last record of the life is written a stop wins", func(t *testing.T) {
		db := &slowStore{Store: new(store.Memory), takes: 50 * ms}
		l := &lives{t: t, g: graph(kahn.Node{ID: "A", Do: takes(30 * ms)}, gate("B", "A")), store: db}
		res, _ := l.next(60*ms, func(run *kahn.Run) { // A ends at 80 ms; its end and the gate are written until 130 ms, and then the status
			run.Leave()
			time.Sleep(90 * ms)
			if s := run.Status(); s != kahn.RunSuspended {
				t.Errorf("it is %v", s)
			}
			run.Cancel()
		})
		if res.Status != kahn.RunCancelled {
			t.Errorf("it is %v", res.Status)
		}
	})
	inBubble(t, "a run whose store has failed gives its lease back", func(t *testing.T) {
		db := &slowStore{Store: new(store.Memory)}
		var c calls
		g := graph(after("A"), after("B", "A"))
		fails := c.count(func(_ context.Context, s *kahn.Step) (any, error) { db.broken = s.ID() == "A"; return nil, nil })
		if _, err := kahn.Execute(t.Context(), g, fails, kahn.RunID("r"), kahn.Durable(db)); !errors.Is(err, kahn.ErrStore) {
			t.Fatal(err)
		}
		db.broken = false
		if res, err := kahn.Execute(t.Context(), g, c.count(takes(0)), kahn.RunID("r"), kahn.Durable(db)); err != nil || c.of("A") != 2 || c.of("B") != 1 {
			t.Errorf("%v, %v: %d calls of A, %d of B", res, err, c.of("A"), c.of("B"))
		}
	})
}

// slowStore is a store whose commits are slow or fail.
type slowStore struct {
	store.Store
	takes  time.Duration
	broken bool
}

func (s *slowStore) Commit(ctx context.Context, lease store.Lease, c store.Commit) (store.Applied, error) {
	time.Sleep(s.takes)
	if s.broken {
		return 0, errHost
	}
	return s.Store.Commit(ctx, lease, c)
}
