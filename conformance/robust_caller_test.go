package conformance_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/kahntest"
	"github.com/seed-c794f7ef/kahn/store"
)

var errOther = errors.New("other")

// rudeContext is a context that behaves normally until err or stop is set.
type rudeContext struct {
	context.Context
	stop func() // called by the function that AfterFunc returns

	mu  sync.Mutex
	err func() // called by Err
}

// After a call of turn, each call of Err calls act.
func (c *rudeContext) turn(act func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = act
}

func (c *rudeContext) Err() error {
	c.mu.Lock()
	act := c.err
	c.mu.Unlock()
	if act != nil {
		act()
	}
	return c.Context.Err()
}

func (c *rudeContext) AfterFunc(f func()) func() bool {
	stop := context.AfterFunc(c.Context, f)
	return func() bool {
		if c.stop != nil {
			c.stop()
		}
		return stop()
	}
}

// The caller's context is user code. If one of its methods panics or calls Goexit during a run, the run ends and the process continues.
func TestRudeContext(t *testing.T) {
	t.Parallel()
	does := map[string]func(){"panic": func() { panic("rude") }, "Goexit": runtime.Goexit}
	for how, act := range does {
		for kind, retry := range map[string]kahn.Retry{"plain nodes": {}, "nodes that are retried": kahn.RetryStandard()} {
			inBubble(t, "Err, "+how+", "+kind, func(t *testing.T) {
				parent, cancel := context.WithCancel(t.Context())
				defer cancel()
				ctx := &rudeContext{Context: parent}
				g := graph(kahn.Node{ID: "A", Retry: retry}, kahn.Node{ID: "B", After: []string{"A"}, Retry: retry}, kahn.Node{ID: "C", After: []string{"B"}, Cleanup: true})
				rec := newRecorder()
				run, err := kahn.Start(ctx, g, func(_ context.Context, s *kahn.Step) (any, error) {
					ctx.turn(act)
					return nil, nil
				}, kahn.OnEvent(rec.add))
				require.NoError(t, err)
				res := endsWithin(t, run, time.Second)
				_, err = run.Wait()
				var p *kahn.PanicError
				if found := errors.As(err, &p) || errors.Is(err, kahn.ErrGoexit); !found || !res.Status.Terminal() || res.Status == kahn.RunCompleted {
					t.Errorf("%v, %v", res.Status, err)
				}
				if err := kahntest.CheckEvents(g, res, rec.all()); err != nil {
					t.Error(err)
				}
			})
		}
		inBubble(t, "when it has ended, "+how, func(t *testing.T) {
			parent, cancel := context.WithCancel(t.Context())
			ctx := &rudeContext{Context: parent}
			run, err := kahn.Start(ctx, graph(after("A")), untilStopped)
			require.NoError(t, err)
			time.Sleep(ms)
			ctx.turn(act)
			cancel()
			res := endsWithin(t, run, time.Second)
			if want := map[string]kahn.RunStatus{"panic": kahn.RunCancelled, "Goexit": kahn.RunFailed}[how]; res.Status != want {
				t.Errorf("%v", res.Status)
			}
		})
		inBubble(t, "when it is left, "+how, func(t *testing.T) {
			parent, cancel := context.WithCancel(t.Context())
			defer cancel()
			run, err := kahn.Start(&rudeContext{Context: parent, stop: act}, graph(after("A"), after("B", "A")), takes(ms))
			require.NoError(t, err)
			if res := endsWithin(t, run, time.Second); res.Status != kahn.RunCompleted {
				t.Errorf("%v", res.Status)
			}
		})
		t.Run("at the start, "+how, func(t *testing.T) {
			rn := new(kahn.Runner)
			returned := make(chan error, 1)
			go func() {
				defer close(returned)
				_, err := rn.Start(&rudeContext{Context: t.Context(), err: act}, graph(after("A")), takes(0))
				returned <- err
			}()
			err, ok := <-returned
			var p *kahn.PanicError
			if how == "panic" && (!ok || !errors.As(err, &p)) {
				t.Errorf("%v", err)
			}
			require.NoError(t, rn.Shutdown(t.Context()))
		})
	}
	inBubble(t, "when it has ended, panic, over a store", func(t *testing.T) { // Execute returns, and the run is left
		parent, cancel := context.WithCancel(t.Context())
		ctx := &rudeContext{Context: parent}
		time.AfterFunc(ms, func() { ctx.turn(does["panic"]); cancel() })
		res, err := kahn.Execute(ctx, graph(after("A")), untilStopped, kahn.Durable(new(store.Memory)), kahn.RunID("r"))
		require.ErrorIs(t, err, kahn.ErrLeft)
		require.True(t, res.Left)
	})
}

// politeError is an error whose method Unwrap panics. Its other methods do not.
type politeError struct{ err error }

func (e *politeError) Error() string { return "polite" }
func (e *politeError) Unwrap() error { return e.err.(*politeError).err } // panics unless it wraps a politeError

// kahn wraps an error whose methods panic. The wrapping error has a text and can be searched by errors.Is and errors.As.
func TestErrorsBehindAShield(t *testing.T) {
	t.Parallel()
	for name, rude := range map[string]error{
		"typed nil": (*nilError)(nil), "every method": rudeError{}, "Unwrap": &politeError{errHost},
		"far below": fmt.Errorf("call: %w", errors.Join(errHost, &politeError{errStep})),
	} {
		inBubble(t, name, func(t *testing.T) {
			search := func(what string, err error) {
				t.Helper()
				defer func() {
					if v := recover(); v != nil {
						t.Errorf("%s: %v", what, v)
					}
				}()
				var other *kahn.MapError
				if errors.Is(err, errOther) || errors.As(err, &other) {
					t.Errorf("%s: found what is not there", what)
				}
				for ; err != nil; err = errors.Unwrap(err) {
					_ = err.Error()
				}
			}
			for how, step := range map[string]kahn.StepFunc{
				"returned": always(rude),
				"panicked": func(context.Context, *kahn.Step) (any, error) { panic(rude) },
			} {
				r := try(t, graph(kahn.Node{ID: "A"}), step)
				search(how, r.err)
				search(how, r.node("A").Err)
			}
			r := try(t, graph(kahn.Node{ID: "A", GuardErrors: kahn.GuardFail, When: func(kahn.View) (bool, error) { return false, rude }}), nop)
			search("said by a guard", r.node("A").GuardErr)
			search("said by a guard", r.err)
			r = tryControlled(t, t.Context(), graph(after("A")), untilStopped, soon(func(run *kahn.Run) { run.AbortAll(rude) }))
			search("aborted", r.err)
		})
	}
	inBubble(t, "what is behind it is found", func(t *testing.T) {
		r := try(t, graph(after("A")), always(errors.Join(errHost, &politeError{errStep})))
		var found *politeError
		if !errors.Is(r.err, errHost) || !errors.As(r.err, &found) {
			t.Errorf("not found in %v", r.err)
		}
	})
}

// User code calls Goexit on a goroutine that is inside a call to the library: no lock stays held, and every run can end.
func TestGoexitOfTheHost(t *testing.T) {
	t.Parallel()
	ends := func(f func()) { // runs f, which calls Goexit
		done := make(chan bool)
		go func() {
			defer close(done)
			f()
			done <- true
		}()
		if <-done {
			t.Error("it returned")
		}
	}
	inBubble(t, "Signal", func(t *testing.T) {
		run, err := kahn.Start(t.Context(), graph(gate("g"), kahn.Node{ID: "A", In: []kahn.Edge{{From: "g", Label: "approve"}}}), nop, kahn.Encoding(goexitCodec{}))
		require.NoError(t, err)
		time.Sleep(ms)
		ends(func() { _ = run.Signal(context.Background(), "g", goexitLabels{}) })
		ends(func() { _ = run.Signal(context.Background(), "g", 7) })
		require.NoError(t, run.Signal(context.Background(), "g", "approve"))
		if res := endsWithin(t, run, time.Second); res.Status != kahn.RunCompleted {
			t.Errorf("%v", res.Status)
		}
	})
	inBubble(t, "Compile", func(t *testing.T) {
		g := graph(kahn.Node{ID: "A", WhenExpr: "x"})
		g.Evaluator = goexitEvaluator{}
		ends(func() { _, _ = g.Compile() })
		g.Evaluator = nil
		_, err := g.Compile()
		require.ErrorIs(t, err, kahn.ErrNoEvaluator)
	})
	inBubble(t, "Middleware", func(t *testing.T) {
		rn := new(kahn.Runner)
		ends(func() {
			_, _ = rn.Start(t.Context(), graph(after("A")), nop, kahn.RunID("r"), kahn.Use(func(kahn.StepFunc) kahn.StepFunc { runtime.Goexit(); return nil }))
		})
		run, err := rn.Start(t.Context(), graph(after("A")), nop, kahn.RunID("r"))
		require.NoError(t, err)
		endsWithin(t, run, time.Second)
		require.NoError(t, rn.Shutdown(t.Context()))
	})
}

type goexitLabels struct{}

func (goexitLabels) BranchLabels() []string { runtime.Goexit(); return nil }

// goexitCodec is a codec that calls Goexit when it encodes a number.
type goexitCodec struct{}

func (goexitCodec) Encode(v any) (json.RawMessage, error) {
	if _, ok := v.(int); ok {
		runtime.Goexit()
	}
	return json.RawMessage("null"), nil
}
func (goexitCodec) Decode(json.RawMessage) (any, error) { return nil, nil }

type goexitEvaluator struct{}

func (goexitEvaluator) Parse(string) (kahn.Expression, error) { runtime.Goexit(); return nil, nil }

// If the caller's context of a pending run calls Goexit when the run begins, the Runner begins the next runs in the queue.
func TestRudeContextOfPendingRun(t *testing.T) {
	inBubble(t, "Goexit", func(t *testing.T) {
		rn := &kahn.Runner{MaxRuns: 1}
		rude := &rudeContext{Context: t.Context()}
		var runs []*kahn.Run
		for _, ctx := range []context.Context{t.Context(), rude, t.Context()} {
			run, err := rn.Start(ctx, graph(after("A")), takes(10*ms))
			require.NoError(t, err)
			runs = append(runs, run)
		}
		rude.turn(runtime.Goexit)
		endsWithin(t, runs[1], time.Second)
		_, err := runs[1].Wait()
		require.ErrorIs(t, err, kahn.ErrGoexit)
		require.Equal(t, kahn.RunCompleted, endsWithin(t, runs[2], time.Second).Status)
	})
}
