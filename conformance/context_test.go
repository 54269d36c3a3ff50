package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-c794f7ef/kahn"
)

type keyType string

const key keyType = "key"

// stop is a way in which the context of an attempt ends before the attempt returns.
type stop struct {
	name  string
	node  kahn.Node
	opts  []kahn.Option
	act   func(run *kahn.Run, cancel context.CancelCauseFunc) // 10 ms into the run
	after time.Duration                                       // when the context ends, from the start
	cause error                                               // matches context.Cause
	err   error
	nodes string
}

func stops() []stop {
	late := fmt.Errorf("the host's own deadline: %w", context.DeadlineExceeded)
	nothing := func(*kahn.Run, context.CancelCauseFunc) {}
	return []stop{
		{"Timeout", kahn.Node{Timeout: 20 * ms}, nil, nothing, 20 * ms, kahn.ErrTimeout, context.DeadlineExceeded, "A:F"},
		{"OverallTimeout", kahn.Node{OverallTimeout: 20 * ms}, nil, nothing, 20 * ms, kahn.ErrTimeout, context.DeadlineExceeded, "A:F"},
		{"timeout of the run", kahn.Node{}, []kahn.Option{kahn.Timeout(20 * ms)}, nothing, 20 * ms, kahn.ErrRunTimeout, context.DeadlineExceeded, "A:X"},
		{"CancelNode", kahn.Node{}, nil, func(run *kahn.Run, _ context.CancelCauseFunc) { _ = run.CancelNode("A") },
			10 * ms, kahn.ErrNodeStopped, context.Canceled, "A:C"},
		{"Cancel", kahn.Node{}, nil, func(run *kahn.Run, _ context.CancelCauseFunc) { run.Cancel() },
			10 * ms, kahn.ErrCancelled, context.Canceled, "A:C"},
		{"AbortAll", kahn.Node{}, nil, func(run *kahn.Run, _ context.CancelCauseFunc) { run.AbortAll(errHost) },
			10 * ms, errHost, context.Canceled, "A:X"},
		{"AbortAll without a reason", kahn.Node{}, nil, func(run *kahn.Run, _ context.CancelCauseFunc) { run.AbortAll(nil) },
			10 * ms, kahn.ErrAborted, context.Canceled, "A:X"},
		// The reason of the stop is a DeadlineExceeded of the host, but no deadline of this context has passed.
		{"AbortAll for somebody's deadline", kahn.Node{}, nil, func(run *kahn.Run, _ context.CancelCauseFunc) { run.AbortAll(late) },
			10 * ms, late, context.Canceled, "A:X"},
		{"the caller", kahn.Node{}, nil, func(_ *kahn.Run, cancel context.CancelCauseFunc) { cancel(errHost) },
			10 * ms, errHost, context.Canceled, "A:C"},
		{"the caller, without a reason", kahn.Node{}, nil, func(_ *kahn.Run, cancel context.CancelCauseFunc) { cancel(nil) },
			10 * ms, context.Canceled, context.Canceled, "A:C"},
		{"the caller, for somebody's deadline", kahn.Node{}, nil, func(_ *kahn.Run, cancel context.CancelCauseFunc) { cancel(late) },
			10 * ms, late, context.Canceled, "A:C"},
	}
}

// run executes the stop's node, called A, with a step that checks its context.
func (s stop) run(t *testing.T, look func(ctx context.Context)) trial {
	t.Helper()
	ctx, cancel := context.WithCancelCause(context.WithValue(t.Context(), key, "value"))
	defer cancel(nil)
	a := s.node
	a.ID = "A"
	a.Do = func(ctx context.Context, _ *kahn.Step) (any, error) {
		look(ctx)
		return nil, ctx.Err()
	}
	r := tryControlled(t, ctx, graph(a), nil, soon(func(run *kahn.Run) { s.act(run, cancel) }), s.opts...)
	if status := "A:" + shortStatus(r.node("A")); status != s.nodes {
		t.Errorf("%s, expected %s", status, s.nodes)
	}
	return r
}

// ended expects that a context has ended for the stop's reason.
func (s stop) ended(t *testing.T, what string, ctx context.Context) {
	t.Helper()
	select {
	case <-ctx.Done():
	default:
		t.Errorf("%s: not done", what)
	}
	if err := ctx.Err(); err != s.err {
		t.Errorf("%s: Err is %v, expected %v", what, err, s.err)
	}
	if cause := context.Cause(ctx); !errors.Is(cause, s.cause) {
		t.Errorf("%s: the cause is %v, expected %v", what, cause, s.cause)
	}
}

func TestContextCause(t *testing.T) {
	for _, s := range stops() {
		inBubble(t, s.name, func(t *testing.T) {
			s.run(t, func(ctx context.Context) {
				if ctx.Err() != nil || context.Cause(ctx) != nil {
					t.Errorf("at the start: %v, %v", ctx.Err(), context.Cause(ctx))
				}
				begin := time.Now()
				<-ctx.Done()
				if took := time.Since(begin); took != s.after {
					t.Errorf("it ended after %v, expected %v", took, s.after)
				}
				s.ended(t, "the attempt's", ctx)
				if ctx.Value(key) != "value" {
					t.Errorf("the value is %v", ctx.Value(key))
				}
			})
		})
	}
}

// An attempt's context is created on first use. It gives the same results if the first use comes after its end.
func TestContextAskedLate(t *testing.T) {
	asks := map[string]func(s stop, t *testing.T, ctx context.Context){
		"Done": func(s stop, t *testing.T, ctx context.Context) { <-ctx.Done() },
		"Err": func(s stop, t *testing.T, ctx context.Context) {
			if ctx.Err() != s.err {
				t.Errorf("Err is %v, expected %v", ctx.Err(), s.err)
			}
		},
		"Cause": func(s stop, t *testing.T, ctx context.Context) {
			if cause := context.Cause(ctx); !errors.Is(cause, s.cause) {
				t.Errorf("the cause is %v, expected %v", cause, s.cause)
			}
		},
		"Value": func(_ stop, t *testing.T, ctx context.Context) {
			if ctx.Value(key) != "value" {
				t.Errorf("the value is %v", ctx.Value(key))
			}
		},
		"child": func(s stop, t *testing.T, ctx context.Context) {
			child, cancel := context.WithCancel(ctx)
			defer cancel()
			s.ended(t, "a child's", child)
		},
	}
	for _, s := range stops() {
		for name, ask := range asks {
			inBubble(t, s.name+" "+name, func(t *testing.T) {
				s.run(t, func(ctx context.Context) {
					time.Sleep(s.after + ms)
					ask(s, t, ctx)
					s.ended(t, "the attempt's", ctx)
				})
			})
		}
	}
}

// Contexts derived from an attempt's context end together with it, for the same reason, as contexts of package context do.
func TestContextChildren(t *testing.T) {
	for _, s := range stops() {
		inBubble(t, s.name, func(t *testing.T) {
			s.run(t, func(ctx context.Context) {
				before := time.Now()
				withCancel, cancel := context.WithCancel(ctx)
				defer cancel()
				withCause, cancelCause := context.WithCancelCause(ctx)
				defer cancelCause(nil)
				withTimeout, cancel := context.WithTimeout(ctx, time.Hour)
				defer cancel()
				withValue := context.WithValue(ctx, keyType("other"), "of the child")
				deep, cancel := context.WithDeadline(context.WithValue(withCause, keyType("deep"), 1), before.Add(time.Minute))
				defer cancel()
				detached := context.WithoutCancel(ctx)
				called := make(chan error, 1)
				context.AfterFunc(ctx, func() { called <- context.Cause(ctx) })
				notCalled := context.AfterFunc(ctx, func() { t.Error("an AfterFunc that was stopped is called") })
				if !notCalled() {
					t.Error("the AfterFunc cannot be stopped")
				}

				// A child context that ends does not end its parent.
				short, cancel := context.WithTimeout(ctx, ms)
				defer cancel()
				<-short.Done()
				if short.Err() != context.DeadlineExceeded || ctx.Err() != nil || time.Since(before) != ms {
					t.Errorf("a short child: %v, its parent: %v", short.Err(), ctx.Err())
				}
				own, cancelOwn := context.WithCancelCause(ctx)
				cancelOwn(errStep)
				if context.Cause(own) != errStep || ctx.Err() != nil {
					t.Errorf("a child with a cause of its own: %v, its parent: %v", context.Cause(own), ctx.Err())
				}

				<-ctx.Done()
				time.Sleep(ms) // AfterFunc calls its function on another goroutine
				for what, child := range map[string]context.Context{
					"WithCancel": withCancel, "WithCancelCause": withCause, "WithTimeout": withTimeout, "WithValue": withValue, "a grandchild": deep,
				} {
					s.ended(t, what, child)
					if child.Value(key) != "value" {
						t.Errorf("%s: the value is %v", what, child.Value(key))
					}
				}
				if withValue.Value(keyType("other")) != "of the child" {
					t.Errorf("the child's own value is %v", withValue.Value(keyType("other")))
				}
				select {
				case cause := <-called:
					if !errors.Is(cause, s.cause) {
						t.Errorf("AfterFunc sees the cause %v", cause)
					}
				default:
					t.Error("AfterFunc was not called")
				}
				if detached.Err() != nil || detached.Done() != nil || context.Cause(detached) != nil || detached.Value(key) != "value" {
					t.Errorf("WithoutCancel: %v", detached.Err())
				}
				if context.Cause(own) != errStep {
					t.Errorf("the cause of a child changed to %v", context.Cause(own))
				}
				if !strings.Contains(fmt.Sprint(withTimeout), `"A"`) {
					t.Errorf("%v does not name the node", withTimeout)
				}
			})
		})
	}
}

func TestContextFirstCauseStands(t *testing.T) {
	inBubble(t, "a timeout, then Cancel", func(t *testing.T) {
		tryControlled(t, t.Context(), graph(kahn.Node{ID: "A", Timeout: 5 * ms}), func(ctx context.Context, _ *kahn.Step) (any, error) {
			time.Sleep(20 * ms)
			if !errors.Is(context.Cause(ctx), kahn.ErrTimeout) {
				t.Errorf("the cause is %v", context.Cause(ctx))
			}
			return nil, ctx.Err()
		}, soon(func(r *kahn.Run) { r.Cancel() })).expect("A:F", "failed")
	})
	inBubble(t, "CancelNode, then AbortAll", func(t *testing.T) {
		tryControlled(t, t.Context(), graph(after("A")), func(ctx context.Context, _ *kahn.Step) (any, error) {
			time.Sleep(20 * ms)
			if !errors.Is(context.Cause(ctx), kahn.ErrNodeStopped) {
				t.Errorf("the cause is %v", context.Cause(ctx))
			}
			return nil, ctx.Err()
		}, soon(func(run *kahn.Run) {
			_ = run.CancelNode("A")
			run.AbortAll(errHost) // changes nothing: the node is being stopped already
		})).expect("A:C", "cancelled")
	})
}

func TestContextIdentity(t *testing.T) {
	inBubble(t, "a Step is its context", func(t *testing.T) {
		ctx := context.WithValue(t.Context(), key, "value")
		tryControlled(t, ctx, graph(after("A")), func(ctx context.Context, s *kahn.Step) (any, error) {
			if ctx != context.Context(s) {
				t.Errorf("%v and %v", ctx, s)
			}
			if s.Value(key) != "value" || s.Value(keyType("unknown")) != nil || s.Value(nil) != nil {
				t.Errorf("values %v, %v", s.Value(key), s.Value(keyType("unknown")))
			}
			s.Done() // from here on s wraps a real context
			if s.Value(key) != "value" || s.Value(keyType("unknown")) != nil {
				t.Errorf("values %v, %v", s.Value(key), s.Value(keyType("unknown")))
			}
			return nil, nil
		}, nil)
	})
}

func TestContextDeadline(t *testing.T) {
	const none = -1
	for name, row := range map[string]struct {
		node   kahn.Node
		run    time.Duration // timeout of the run
		caller time.Duration // timeout of the caller's context
		want   time.Duration // the expected deadline, from the start of the run
	}{
		"none":                       {want: none},
		"of the attempt":             {kahn.Node{Timeout: 10 * ms}, 30 * ms, 40 * ms, 10 * ms},
		"of the node":                {kahn.Node{Timeout: 20 * ms, OverallTimeout: 10 * ms}, 30 * ms, 40 * ms, 10 * ms},
		"of the node alone":          {kahn.Node{OverallTimeout: 10 * ms}, 0, 0, 10 * ms},
		"of the run":                 {kahn.Node{Timeout: 20 * ms, OverallTimeout: 30 * ms}, 10 * ms, 40 * ms, 10 * ms},
		"of the run alone":           {kahn.Node{}, 10 * ms, 0, 10 * ms},
		"of the caller":              {kahn.Node{Timeout: 20 * ms, OverallTimeout: 30 * ms}, 40 * ms, 10 * ms, 10 * ms},
		"of the caller alone":        {kahn.Node{}, 0, 10 * ms, 10 * ms},
		"of cleanup, by default":     {kahn.Node{Cleanup: true}, 10 * ms, 10 * ms, 30 * time.Second},
		"of cleanup, its own":        {kahn.Node{Cleanup: true, Timeout: time.Second}, 10 * ms, 10 * ms, time.Second},
		"of cleanup, over all":       {kahn.Node{Cleanup: true, OverallTimeout: time.Second}, 10 * ms, 10 * ms, time.Second},
		"of cleanup, not for longer": {kahn.Node{Cleanup: true, Timeout: time.Hour}, 10 * ms, 10 * ms, 30 * time.Second},
		"of the end":                 {kahn.Node{Kind: kahn.KindEnd}, 10 * ms, 10 * ms, 30 * time.Second},
	} {
		inBubble(t, name, func(t *testing.T) {
			ctx, opts := t.Context(), []kahn.Option{}
			if row.caller > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, row.caller)
				defer cancel()
			}
			if row.run > 0 {
				opts = append(opts, kahn.Timeout(row.run))
			}
			begin := time.Now()
			n := row.node
			n.ID = "A"
			n.Do = func(ctx context.Context, s *kahn.Step) (any, error) {
				deadline, ok := ctx.Deadline()
				if want := begin.Add(row.want); ok != (row.want != none) || ok && !deadline.Equal(want) {
					t.Errorf("Deadline says %v, %v, expected %v", deadline.Sub(begin), ok, row.want)
				}
				child, cancel := context.WithTimeout(ctx, time.Hour)
				defer cancel()
				if of, _ := child.Deadline(); ok && !of.Equal(deadline) {
					t.Errorf("Deadline of a child says %v", of.Sub(begin))
				}
				return nil, nil
			}
			tryControlled(t, ctx, graph(n), nil, nil, opts...).expect("A:ok", "completed")
		})
	}

	inBubble(t, "of each attempt", func(t *testing.T) {
		begin := time.Now()
		var deadlines []time.Duration
		policy := kahn.Retry{MaxAttempts: 3, InitialDelay: time.Second, Jitter: kahn.JitterNone}
		try(t, graph(kahn.Node{ID: "A", Retry: policy, Timeout: 700 * ms, OverallTimeout: 3500 * ms}), func(ctx context.Context, s *kahn.Step) (any, error) {
			deadline, _ := ctx.Deadline()
			deadlines = append(deadlines, deadline.Sub(begin))
			return script(errStep, errStep)(ctx, s)
		}).expect("A:ok", "completed")
		if fmt.Sprint(deadlines) != "[700ms 1.7s 3.5s]" { // attempts start at 0 s, 1 s and 3 s
			t.Errorf("deadlines %v", deadlines)
		}
	})

	inBubble(t, "of a fallback", func(t *testing.T) {
		begin := time.Now()
		r := try(t, graph(kahn.Node{ID: "A", Timeout: 50 * ms, OverallTimeout: 200 * ms, Do: fails(10 * ms),
			Fallback: func(ctx context.Context, _ error) (any, error) {
				if deadline, ok := ctx.Deadline(); !ok || deadline.Sub(begin) != 200*ms {
					t.Errorf("Deadline says %v, %v", deadline.Sub(begin), ok)
				}
				<-ctx.Done()
				if time.Since(begin) != 200*ms || ctx.Err() != context.DeadlineExceeded || !errors.Is(context.Cause(ctx), kahn.ErrTimeout) {
					t.Errorf("after %v: %v, %v", time.Since(begin), ctx.Err(), context.Cause(ctx))
				}
				return "too late", nil
			}}), nil)
		r.expect("A:F", "failed")
		r.cause("A", kahn.CauseTimeout)
	})
}

// An attempt's context has ended once the step function has returned or called Goexit.
func TestContextAfterReturn(t *testing.T) {
	for name, do := range map[string]kahn.StepFunc{
		"completed": takes(0),
		"failed":    fails(0),
		"panicked":  func(context.Context, *kahn.Step) (any, error) { panic("x") },
		"skipped":   func(context.Context, *kahn.Step) (any, error) { return nil, kahn.Skip("") },
	} {
		for _, asked := range []bool{false, true} {
			inBubble(t, fmt.Sprintf("%s, asked before: %v", name, asked), func(t *testing.T) {
				var kept, children []context.Context
				var dones []<-chan struct{}
				try(t, graph(kahn.Node{ID: "A", Retry: kahn.RetryStandard()}), func(ctx context.Context, s *kahn.Step) (any, error) {
					for _, old := range kept {
						if old.Err() == nil {
							t.Error("the context of an earlier attempt goes on")
						}
					}
					kept = append(kept, ctx)
					if asked {
						child, cancel := context.WithCancel(ctx)
						context.AfterFunc(child, cancel)
						go func() { <-ctx.Done() }() // leaks if the context does not end
						children, dones = append(children, child), append(dones, ctx.Done())
					}
					return do(ctx, s)
				})
				for i, done := range dones { // channels that were obtained before the end are closed
					<-done
					if children[i].Err() != context.Canceled {
						t.Error("a child goes on")
					}
				}
				for _, ctx := range kept {
					if ctx.Err() != context.Canceled || !errors.Is(context.Cause(ctx), context.Canceled) {
						t.Errorf("%v, cause %v", ctx.Err(), context.Cause(ctx))
					}
					for _, wrong := range []error{kahn.ErrTimeout, kahn.ErrCancelled, kahn.ErrNodeStopped, kahn.ErrAborted, kahn.ErrRunTimeout} {
						if errors.Is(context.Cause(ctx), wrong) {
							t.Errorf("the cause is %v, but nobody stopped it", wrong)
						}
					}
					<-ctx.Done()
				}
			})
		}
	}
}

func TestContextConcurrently(t *testing.T) {
	for _, s := range stops() {
		inBubble(t, s.name, func(t *testing.T) {
			s.run(t, func(ctx context.Context) {
				var wg sync.WaitGroup
				for i := range 50 {
					wg.Go(func() {
						time.Sleep(s.after - ms + time.Duration(i%3)*ms) // before, at, and after the end
						switch i % 5 {
						case 0:
							<-ctx.Done()
						case 1:
							child, cancel := context.WithTimeout(ctx, time.Hour)
							defer cancel()
							<-child.Done()
						case 2:
							_ = ctx.Err()
						case 3:
							_ = context.Cause(ctx)
						case 4:
							if ctx.Value(key) != "value" {
								t.Errorf("the value is %v", ctx.Value(key))
							}
						}
						<-ctx.Done()
						s.ended(t, "the attempt's", ctx)
					})
				}
				wg.Wait()
			})
		})
	}
}

func TestContextOfCleanup(t *testing.T) {
	for _, s := range stops() {
		inBubble(t, s.name+" does not reach it", func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(context.WithValue(t.Context(), key, "value"))
			defer cancel(nil)
			a := s.node
			a.ID, a.Do = "A", untilStopped
			look := func(ctx context.Context, _ *kahn.Step) (any, error) {
				if ctx.Err() != nil || context.Cause(ctx) != nil || ctx.Value(key) != "value" {
					t.Errorf("at the start: %v, %v", ctx.Err(), context.Cause(ctx))
				}
				child, cancel := context.WithTimeout(ctx, time.Second)
				defer cancel()
				<-child.Done()
				return nil, ctx.Err()
			}
			r := tryControlled(t, ctx, graph(a, kahn.Node{ID: "K", After: []string{"A"}, Cleanup: true, Do: look},
				kahn.Node{ID: "Z", Kind: kahn.KindEnd, Do: look}), nil, soon(func(run *kahn.Run) { s.act(run, cancel) }), s.opts...)
			for _, id := range []string{"K", "Z"} {
				if n := r.node(id); n.Status != kahn.Completed || n.Duration != time.Second {
					t.Errorf("%s is %v after %v", id, n.Status, n.Duration)
				}
			}
		})
	}

	// The cleanup node already runs when the stop comes.
	inBubble(t, "a stop while it runs", func(t *testing.T) {
		r := tryControlled(t, t.Context(), graph(after("A"), kahn.Node{ID: "K", Cleanup: true, Do: takes(time.Second)}), untilStopped, soon(func(r *kahn.Run) { r.Cancel() }))
		r.expect("A:C K:ok", "cancelled")
	})

	for _, kind := range []kahn.Node{{ID: "K", Cleanup: true}, {ID: "K", Kind: kahn.KindEnd}} {
		for name, row := range map[string]struct {
			node kahn.Node
			opts []kahn.Option
			want time.Duration
		}{
			"by default":     {want: 30 * time.Second},
			"by the option":  {opts: []kahn.Option{kahn.CleanupTimeout(time.Second)}, want: time.Second},
			"by its Timeout": {node: kahn.Node{Timeout: ms}, opts: []kahn.Option{kahn.CleanupTimeout(time.Second)}, want: ms},
		} {
			inBubble(t, fmt.Sprintf("%s%s is bounded %s", kind.Kind, strings.Repeat("cleanup", len("end")-len(kind.Kind)), name), func(t *testing.T) {
				k := kind
				k.Timeout = row.node.Timeout
				k.Do = func(ctx context.Context, _ *kahn.Step) (any, error) {
					<-ctx.Done()
					if ctx.Err() != context.DeadlineExceeded || !errors.Is(context.Cause(ctx), kahn.ErrTimeout) {
						t.Errorf("%v, cause %v", ctx.Err(), context.Cause(ctx))
					}
					return nil, ctx.Err()
				}
				r := try(t, graph(k), nil, row.opts...)
				r.expect("K:F", "failed")
				r.cause("K", kahn.CauseTimeout)
				if r.Duration != row.want {
					t.Errorf("the run took %v", r.Duration)
				}
			})
		}
	}

	// Only CleanupTimeout bounds a cleanup node, so it must also bound the fallback. Otherwise the run might never end.
	inBubble(t, "its fallback is bounded, too", func(t *testing.T) {
		r := try(t, graph(kahn.Node{ID: "K", Cleanup: true, Do: always(errStep), Fallback: func(ctx context.Context, _ error) (any, error) {
			if _, ok := ctx.Deadline(); !ok {
				t.Error("no deadline")
			}
			select {
			case <-ctx.Done():
			case <-time.After(time.Hour):
				t.Error("nothing has ended it in an hour")
			}
			return nil, ctx.Err()
		}}), nil)
		r.expect("K:F", "failed")
	})
}

// ownContext is a context of a type that package context does not know.
type ownContext struct {
	context.Context
	done chan struct{}
}

func (c ownContext) Done() <-chan struct{} { return c.done }
func (c ownContext) Err() error {
	select {
	case <-c.done:
		return context.Canceled
	default:
		return nil
	}
}

func TestForeignContext(t *testing.T) {
	inBubble(t, "ends", func(t *testing.T) {
		ctx := ownContext{context.WithValue(context.Background(), key, "value"), make(chan struct{})}
		r := tryControlled(t, ctx, graph(after("A"), after("B", "A")), func(ctx context.Context, _ *kahn.Step) (any, error) {
			<-ctx.Done()
			if ctx.Err() != context.Canceled || !errors.Is(context.Cause(ctx), context.Canceled) || ctx.Value(key) != "value" {
				t.Errorf("%v, cause %v", ctx.Err(), context.Cause(ctx))
			}
			return nil, ctx.Err()
		}, soon(func(*kahn.Run) { close(ctx.done) }))
		r.expect("A:C B:C", "cancelled")
		if !errors.Is(r.err, context.Canceled) {
			t.Errorf("error %v", r.err)
		}
	})
	inBubble(t, "does not end, and leaves nothing behind", func(t *testing.T) {
		ctx := ownContext{context.Background(), make(chan struct{})}
		tryControlled(t, ctx, graph(after("A"), after("B", "A")), takes(ms), nil).expect("A:ok B:ok", "completed")
	})
}

// All properties of a context change at once: if Err returns an error, Done is closed, Cause returns an error, and a new child has ended.
func TestContextEndsAtOnce(t *testing.T) {
	rounds := size(1000, 150, 10_000)
	for name, stop := range map[string]struct {
		how  func(*kahn.Run)
		want error
	}{
		"Cancel":     {func(r *kahn.Run) { r.Cancel() }, kahn.ErrCancelled},
		"AbortAll":   {func(run *kahn.Run) { run.AbortAll(errHost) }, errHost},
		"CancelNode": {func(run *kahn.Run) { _ = run.CancelNode("A") }, kahn.ErrNodeStopped},
	} {
		t.Run(name, func(t *testing.T) {
			for range rounds {
				started := make(chan struct{})
				run, err := kahn.Start(t.Context(), graph(after("A")), func(ctx context.Context, _ *kahn.Step) (any, error) {
					done := ctx.Done()
					for range 100 { // many children make the cancellation take longer
						_, cancel := context.WithCancel(ctx)
						defer cancel()
					}
					close(started)
					for ctx.Err() == nil {
						runtime.Gosched()
					}
					child, cancel := context.WithCancel(ctx)
					defer cancel()
					if cause := context.Cause(ctx); !errors.Is(cause, stop.want) {
						t.Errorf("the cause is %v", cause)
					}
					if child.Err() == nil || !errors.Is(context.Cause(child), stop.want) {
						t.Errorf("a child has %v, %v", child.Err(), context.Cause(child))
					}
					select {
					case <-done:
					default:
						t.Error("Done is not closed")
					}
					return nil, ctx.Err()
				})
				if err != nil {
					t.Fatal(err)
				}
				<-started
				stop.how(run)
				if _, err := run.Wait(); err == nil {
					t.Error("no error")
				}
				if t.Failed() {
					break
				}
			}
		})
	}
}
