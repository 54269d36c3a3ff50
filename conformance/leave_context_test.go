package conformance_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

var errCtrlC = errors.New("interrupted by the user")

// ctrlC returns a context, and a function that ends it as Ctrl-C does.
func ctrlC(t *testing.T) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(t.Context())
	return ctx, func() { cancel(errCtrlC) }
}

// leftBy checks what Execute returns for a durable run whose caller's context has ended.
func leftBy(t *testing.T, res *kahn.Result, err error) {
	t.Helper()
	if !errors.Is(err, kahn.ErrLeft) || !errors.Is(err, errCtrlC) {
		t.Errorf("error %v", err)
	}
	if res == nil || res.Status != kahn.RunSuspended || !res.Left || res.CancelRequested {
		t.Errorf("result %+v", res)
	}
}

// callList records the nodes whose steps were called, in order.
type callList struct {
	mu    sync.Mutex
	nodes []string
}

func (c *callList) add(node string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nodes = append(c.nodes, node)
}

func (c *callList) list() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.nodes)
}

// slowChain returns a graph of a, then b, which is slow, and a cleanup node that records the end of the run.
func slowChain() (*kahn.Graph, func() []string, kahn.StepFunc) {
	var calls callList
	g := (&kahn.Graph{Name: "chain"}).Add(kahn.Node{ID: "a"}, kahn.Node{ID: "b", After: []string{"a"}}, kahn.Node{ID: "clean", After: []string{"b"}, Cleanup: true})
	return g, calls.list, func(ctx context.Context, s *kahn.Step) (any, error) {
		calls.add(s.ID())
		if s.ID() != "b" {
			return s.ID(), nil
		}
		select {
		case <-time.After(time.Second):
			return "b", nil
		case <-ctx.Done():
			if cause := context.Cause(ctx); !errors.Is(cause, kahn.ErrLeft) && !errors.Is(cause, errCtrlC) && !errors.Is(cause, kahn.ErrCancelled) {
				return "wrong cause", nil
			}
			return nil, ctx.Err()
		}
	}
}

func TestContextLeavesDurableRun(t *testing.T) {
	for name, nest := range map[string]func(*kahn.Graph) *kahn.Graph{
		"plain": func(g *kahn.Graph) *kahn.Graph { return g },
		"inside": func(g *kahn.Graph) *kahn.Graph {
			return (&kahn.Graph{Name: "outer"}).Add(kahn.Node{ID: "S", Sub: g}, kahn.Node{ID: "after", After: []string{"S"}, Do: func(context.Context, *kahn.Step) (any, error) { return "done", nil }})
		},
	} {
		inBubble(t, name, func(t *testing.T) {
			g, calls, step := slowChain()
			g = nest(g)
			db := new(store.Memory)
			ctx, end := ctrlC(t)
			time.AfterFunc(time.Second/2, end)
			res, err := kahn.Execute(ctx, g, step, kahn.Durable(db), kahn.RunID("1"))
			leftBy(t, res, err)
			if got := calls(); !slices.Equal(got, []string{"a", "b"}) {
				t.Errorf("called %v: a cleanup node of a run that is not over", got)
			}
			if s := load(t, db, "1"); s.Status != kahn.RunSuspended || s.WakeAt.IsZero() {
				t.Errorf("stored %v, due at %v", s.Status, s.WakeAt)
			}
			res, err = kahn.Execute(t.Context(), g, step, kahn.Durable(db), kahn.RunID("1"))
			if err != nil || res.Status != kahn.RunCompleted {
				t.Fatal(res, err)
			}
			if got := calls(); !slices.Equal(got, []string{"a", "b", "b", "clean"}) {
				t.Errorf("called %v", got)
			}
		})
	}
}

func load(t *testing.T, db store.Store, id string) *store.Run {
	t.Helper()
	s, err := db.Load(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestInterruptedAttemptDoesNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := new(store.Memory)
		attempts := 0
		g := (&kahn.Graph{Name: "g"}).Add(kahn.Node{ID: "a", Do: func(ctx context.Context, _ *kahn.Step) (any, error) {
			attempts++
			select {
			case <-time.After(time.Hour):
				return attempts, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}})
		for range 5 { // more than MaxCrashes, and more than the one attempt that the node has
			ctx, end := ctrlC(t)
			time.AfterFunc(time.Minute, end)
			res, err := kahn.Execute(ctx, g, nil, kahn.Durable(db), kahn.RunID("1"))
			leftBy(t, res, err)
		}
		res, err := kahn.Execute(t.Context(), g, nil, kahn.Durable(db), kahn.RunID("1"))
		if err != nil || res.Output() != 6 {
			t.Fatal(res, err)
		}
	})
}

func TestDoneContextCreatesNothing(t *testing.T) {
	g, calls, step := slowChain()
	ctx, end := ctrlC(t)
	end()
	db := new(store.Memory)
	res, err := kahn.Execute(ctx, g, step, kahn.Durable(db), kahn.RunID("1"))
	if res != nil || !errors.Is(err, kahn.ErrLeft) || !errors.Is(err, errCtrlC) {
		t.Errorf("%v, %v", res, err)
	}
	if runs := db.Runs(); len(runs)+len(calls()) > 0 {
		t.Errorf("stored %v, called %v", runs, calls())
	}
	res, err = kahn.Execute(ctx, g, step) // in memory the run is cancelled
	if !errors.Is(err, errCtrlC) || errors.Is(err, kahn.ErrLeft) || res.Status != kahn.RunCancelled || len(calls()) > 1 {
		t.Error(res, err, calls())
	}
}

func TestCancelWithContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, calls, step := slowChain()
		db := new(store.Memory)
		ctx, end := ctrlC(t)
		time.AfterFunc(time.Second/2, end)
		res, err := kahn.Execute(ctx, g, step, kahn.Durable(db), kahn.RunID("1"), kahn.CancelWithContext())
		if res.Status != kahn.RunCancelled || res.Cause.Kind != kahn.CauseContext || !errors.Is(err, errCtrlC) || errors.Is(err, kahn.ErrLeft) {
			t.Error(res.Status, err)
		}
		if got := calls(); !slices.Equal(got, []string{"a", "b", "clean"}) {
			t.Errorf("called %v", got)
		}
		if _, err = kahn.Execute(t.Context(), g, step, kahn.Durable(db), kahn.RunID("1")); !errors.Is(err, kahn.ErrFinished) {
			t.Error(err)
		}
	})
}

// A durable run is left when the caller's context ends. If the run is cancelled before its last record is written, it ends as cancelled.
func TestStopAfterContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := new(store.Memory)
		g := (&kahn.Graph{Name: "g"}).Add(kahn.Node{ID: "stubborn", Do: func(context.Context, *kahn.Step) (any, error) {
			time.Sleep(2 * time.Second)
			return nil, errors.New("too late")
		}}, kahn.Node{ID: "clean", Cleanup: true, Do: func(context.Context, *kahn.Step) (any, error) { return nil, nil }})
		ctx, end := ctrlC(t)
		run, err := kahn.Start(ctx, g, nil, kahn.Durable(db), kahn.RunID("1"))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		end()
		synctest.Wait()
		run.Cancel()
		res, err := run.Wait()
		if res.Status != kahn.RunCancelled || errors.Is(err, kahn.ErrLeft) {
			t.Error(res.Status, err)
		}
		if n, _ := res.Node("clean"); n.Status != kahn.Completed {
			t.Error(n.Status)
		}
		if s := load(t, db, "1"); s.Status != kahn.RunCancelled {
			t.Error(s.Status)
		}
	})
}

// A run is cancelled, and running attempts may finish. If the caller's context ends meanwhile, these attempts are
// interrupted, and the run ends as cancelled.
func TestContextAfterStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, _, step := slowChain()
		db := new(store.Memory)
		ctx, end := ctrlC(t)
		run, err := kahn.Start(ctx, g, step, kahn.Durable(db), kahn.RunID("1"), kahn.Drain)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second / 4)
		run.Cancel()
		end()
		start := time.Now()
		res, err := run.Wait()
		if res.Status != kahn.RunCancelled || errors.Is(err, kahn.ErrLeft) || time.Since(start) > 0 {
			t.Error(res.Status, err, time.Since(start))
		}
	})
}

func TestContextOfPendingRun(t *testing.T) {
	for _, created := range []bool{false, true} {
		inBubble(t, map[bool]string{true: "created", false: "not created"}[created], func(t *testing.T) {
			g, calls, step := slowChain()
			db := new(store.Memory)
			rn := &kahn.Runner{MaxRuns: 1, Options: []kahn.Option{kahn.Durable(db)}}
			first, err := rn.Start(t.Context(), g, step, kahn.RunID("first"))
			if err != nil {
				t.Fatal(err)
			}
			opts := []kahn.Option{kahn.RunID("1"), kahn.Describe(store.Spec{Labels: map[string]string{"k": "v"}}), kahn.Inputs(map[string]any{"x": 1})}
			if created {
				n, err := kahn.Prepare(g, opts...)
				if err == nil {
					_, _, err = db.Create(t.Context(), n)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			ctx, end := ctrlC(t)
			time.AfterFunc(time.Second/4, end)
			res, err := rn.Execute(ctx, g, step, opts...)
			leftBy(t, res, err)
			s := load(t, db, "1")
			if s.Status != kahn.RunPending || s.Sequence != 0 || s.Workflow != "chain" || s.Labels["k"] != "v" || len(s.Inputs) == 0 {
				t.Errorf("%+v", s)
			}
			if _, err := first.Wait(); err != nil {
				t.Fatal(err)
			}
			before := len(calls())
			go func() {
				_ = rn.Serve(t.Context(), kahn.Service{Store: db, Workflows: []kahn.Workflow{{Graph: g, Step: step}}})
			}()
			time.Sleep(time.Minute)
			if s := load(t, db, "1"); s.Status != kahn.RunCompleted || len(calls()) != before+3 {
				t.Error(s.Status, calls())
			}
			if err := rn.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// If other callers have joined the run of a key, the run continues when the context of the first caller ends.
func TestJoinersGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, calls, step := slowChain()
		db, keys := new(store.Memory), new(kahn.IdempotencyStore)
		opts := []kahn.Option{kahn.Durable(db), kahn.Idempotent(keys, "k")}
		ctx, end := ctrlC(t)
		type outcome struct {
			res *kahn.Result
			err error
		}
		first, others := make(chan outcome, 1), make(chan outcome, 2)
		execute := func(ctx context.Context, to chan outcome) {
			res, err := kahn.Execute(ctx, g, step, opts...)
			to <- outcome{res, err}
		}
		go execute(ctx, first)
		synctest.Wait()
		go execute(t.Context(), others)
		go execute(t.Context(), others)
		time.Sleep(time.Second / 2)
		end()
		o := <-first
		leftBy(t, o.res, o.err)
		for range 2 {
			next := <-others
			if next.err != nil || next.res.Status != kahn.RunCompleted || next.res.ID() != o.res.ID() {
				t.Error(next.res.Status, next.err)
			}
		}
		if got := calls(); !slices.Equal(got, []string{"a", "b", "b", "clean"}) {
			t.Errorf("called %v", got)
		}
		if runs := db.Runs(); len(runs) != 1 {
			t.Errorf("runs %v", runs)
		}
	})
}

// The context of the first caller ends during the last step. The step completes nevertheless, and so does the run. The other callers get its Result,
// and begin nothing.
func TestJoinersOfARunThatCompletes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys, begun := new(kahn.IdempotencyStore), 0
		g := graph(kahn.Node{ID: "a", Do: yields(time.Second, "kept")})
		opts := []kahn.Option{kahn.Durable(new(store.Memory)), kahn.Idempotent(keys, "k"), kahn.Use(func(next kahn.StepFunc) kahn.StepFunc {
			if begun++; begun > 2 { // it is called for each caller
				panic("a caller begins the run again")
			}
			return next
		})}
		ctx, end := ctrlC(t)
		time.AfterFunc(time.Second/2, end)
		done := make(chan struct{})
		go func() {
			defer close(done)
			res, err := kahn.Execute(ctx, g, nil, opts...)
			if err != nil || res.Status != kahn.RunCompleted {
				t.Error(res, err)
			}
		}()
		synctest.Wait()
		res, err := kahn.Execute(t.Context(), g, nil, opts...)
		if err != nil || res.Status != kahn.RunCompleted || res.Output() != "kept" {
			t.Error(res, err)
		}
		<-done
	})
}

// The next caller of the key continues a run that was left.
func TestKeyOfLeftRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, calls, step := slowChain()
		db, keys := new(store.Memory), new(kahn.IdempotencyStore)
		opts := []kahn.Option{kahn.Durable(db), kahn.Idempotent(keys, "k")}
		ctx, end := ctrlC(t)
		time.AfterFunc(time.Second/2, end)
		res, err := kahn.Execute(ctx, g, step, opts...)
		leftBy(t, res, err)
		again, err := kahn.Execute(t.Context(), g, step, opts...)
		if err != nil || again.ID() != res.ID() || !slices.Equal(calls(), []string{"a", "b", "b", "clean"}) {
			t.Error(err, calls())
		}
		if _, err = kahn.Execute(t.Context(), g, step, append(opts, kahn.Inputs(map[string]any{"other": 1}))...); !errors.Is(err, kahn.ErrKeyConflict) {
			t.Error(err)
		}
	})
}

// A caller that names another run does not continue the run of the key.
func TestKeyOfLeftRunAndAnotherRunID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, calls, step := slowChain()
		db, keys := new(store.Memory), new(kahn.IdempotencyStore)
		opts := []kahn.Option{kahn.Durable(db), kahn.Idempotent(keys, "k")}
		ctx, end := ctrlC(t)
		time.AfterFunc(time.Second/2, end)
		res, err := kahn.Execute(ctx, g, step, opts...)
		leftBy(t, res, err)
		before := calls()
		run, err := kahn.Start(t.Context(), g, step, append(opts, kahn.RunID("another"))...)
		if err != nil || run.ID() != res.ID() {
			t.Fatal(run, err)
		}
		if again, err := run.Wait(); again.Status != kahn.RunSuspended || !errors.Is(err, kahn.ErrLeft) || !slices.Equal(calls(), before) {
			t.Error(again.Status, err, calls())
		}
		if again, err := kahn.Execute(t.Context(), g, step, append(opts, kahn.RunID("another"))...); again.Status != kahn.RunSuspended || !errors.Is(err, kahn.ErrLeft) || !slices.Equal(calls(), before) {
			t.Error(again.Status, err, calls())
		}
	})
}

// A run that waits for an answer is also left, and takes the answer in its next life.
func TestContextOfRestingRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := new(store.Memory)
		g := (&kahn.Graph{Name: "g"}).Add(kahn.Node{ID: "ok?", Kind: kahn.KindGate})
		ctx, end := ctrlC(t)
		run, err := kahn.Start(ctx, g, nil, kahn.Durable(db), kahn.RunID("1"))
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		end()
		res, err := run.Wait()
		leftBy(t, res, err)
		if err := run.Signal(context.Background(), "ok?", true); err != nil {
			t.Error(err)
		}
		res, err = kahn.Execute(t.Context(), g, nil, kahn.Durable(db), kahn.RunID("1"))
		if err != nil || res.Status != kahn.RunCompleted {
			t.Error(res.Status, err)
		}
	})
}
