package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/internal/race"
)

type (
	// nilError is an error whose methods dereference the receiver.
	nilError struct{ text string }
	// rudeError is an error whose methods all panic.
	rudeError struct{}
	// sliceError is an error that cannot be compared.
	sliceError []string
	// selfError is an error that wraps itself.
	selfError struct{}
	// ringError is an error that wraps another ringError, in a cycle.
	ringError struct{ next error }
	// treeError is an error that wraps itself twice.
	treeError struct{}
	// freshError is an error that wraps a new error at each call of Unwrap.
	freshError struct{ n int }
)

func (e *nilError) Error() string    { return e.text }
func (rudeError) Error() string      { panic("Error") }
func (rudeError) Unwrap() error      { panic("Unwrap") }
func (rudeError) Is(error) bool      { panic("Is") }
func (rudeError) As(any) bool        { panic("As") }
func (e sliceError) Error() string   { return strings.Join(e, ", ") }
func (e *selfError) Error() string   { return "self" }
func (e *selfError) Unwrap() error   { return e }
func (e *ringError) Error() string   { return "ring" }
func (e *ringError) Unwrap() error   { return e.next }
func (e *treeError) Error() string   { return "tree" }
func (e *treeError) Unwrap() []error { return []error{e, e} }
func (e *freshError) Error() string  { return "fresh" }
func (e *freshError) Unwrap() error  { return &freshError{e.n + 1} }
func (e *ringError) close() error    { e.next = &ringError{e}; return e }
func endless() map[string]error {
	return map[string]error{"self": &selfError{}, "ring": new(ringError).close(), "tree": &treeError{}, "fresh": &freshError{}}
}

// ends reports whether the tree of errors in err is finite.
func ends(err error) bool {
	todo := []error{err}
	for n := 0; len(todo) > 0; n++ {
		if n == 100_000 {
			return false
		}
		err, todo = todo[0], todo[1:]
		switch w := err.(type) {
		case interface{ Unwrap() error }:
			if next := w.Unwrap(); next != nil {
				todo = append(todo, next)
			}
		case interface{ Unwrap() []error }:
			todo = append(todo, w.Unwrap()...)
		}
	}
	return true
}

// An error may be a typed nil pointer, or its methods may panic. Its node still fails, and the run's error has a text.
func TestRudeErrors(t *testing.T) {
	for name, err := range map[string]error{
		"typed nil":           (*nilError)(nil),
		"typed nil, wrapped":  fmt.Errorf("call: %w", &wrapper{(*nilError)(nil)}),
		"methods that panic":  rudeError{},
		"typed nil permanent": kahn.Permanent((*nilError)(nil)),
		"typed nil abort":     kahn.AbortRun((*nilError)(nil)),
		"typed nil limited":   kahn.RateLimited((*nilError)(nil), time.Second),
		"uncomparable":        sliceError{"a", "b"},
	} {
		inBubble(t, name, func(t *testing.T) {
			for how, step := range map[string]kahn.StepFunc{
				"returned": always(err),
				"panicked": func(context.Context, *kahn.Step) (any, error) { panic(err) },
			} {
				r := try(t, graph(kahn.Node{ID: "A", Retry: kahn.RetryStandard()}, after("B", "A"),
					kahn.Node{ID: "C", After: []string{"A"}, OnUpstreamFailure: kahn.UpstreamPropagate}), step)
				r.expect("A:F B:X C:F", "failed")
				for _, err := range []error{r.err, r.node("A").Err, r.node("B").Err, r.node("C").Err, r.node("A").LastErr} {
					if err != nil && how == "returned" && name != "methods that panic" {
						_ = errors.Is(err, errStep)
					}
				}
				if text := r.err.Error(); !strings.Contains(text, `"A"`) {
					t.Errorf("%s: the error is %q", how, text)
				}
				if text := r.node("A").Err.Error(); !strings.Contains(text, `"A"`) {
					t.Errorf("%s: the node's error is %q", how, text)
				}
				_ = eventText(r.events)
			}
		})
	}

	inBubble(t, "wrappers of nil are nil", func(t *testing.T) {
		for _, err := range []error{kahn.Permanent(nil), kahn.AbortRun(nil)} {
			if err != nil {
				t.Errorf("%#v", err)
			}
		}
		r := try(t, graph(after("A")), always(kahn.RateLimited(nil, 0))) // a nil reason is allowed
		r.expect("A:F", "failed")
		r.cause("A", kahn.CauseRateLimit)
	})

	inBubble(t, "a typed nil can be found", func(t *testing.T) {
		r := try(t, graph(after("A")), always((*nilError)(nil)))
		var found *nilError
		if !errors.As(r.err, &found) || found != nil {
			t.Errorf("found %v", found)
		}
	})

	inBubble(t, "as what stops the run", func(t *testing.T) {
		for _, err := range []error{(*nilError)(nil), rudeError{}, sliceError{"a"}} {
			r := tryControlled(t, t.Context(), graph(after("A"), after("B", "A")), untilStopped, soon(func(run *kahn.Run) { run.AbortAll(err) }))
			r.expect("A:X B:X", "failed")
			if r.err.Error() == "" {
				t.Error("no text")
			}
			ctx, cancel := context.WithCancelCause(t.Context())
			r = tryControlled(t, ctx, graph(after("A"), after("B", "A")), untilStopped, soon(func(*kahn.Run) { cancel(err) }))
			r.expect("A:C B:C", "cancelled")
			if r.err.Error() == "" {
				t.Error("no text")
			}
		}
	})
}

type wrapper struct{ err error }

func (w *wrapper) Error() string { return "wrapped" }
func (w *wrapper) Unwrap() error { return w.err }

// However long the text of a step's error is, the texts of the node's error and of the run's error stay readable.
func TestHugeErrors(t *testing.T) {
	size := 3 << 20
	if race.Enabled {
		size = 1 << 20
	}
	huge := strings.Repeat("x", size)
	bounded := func(t *testing.T, err error, most int) {
		t.Helper()
		if n := len(err.Error()); n > most {
			t.Errorf("%T has a text of %d bytes", err, n)
		}
	}
	inBubble(t, "returned, panicked and said by a guard", func(t *testing.T) {
		g := graph()
		for i := range 100 {
			n := after(fmt.Sprint("node ", i))
			switch i % 3 {
			case 0:
				n.Do = always(errors.New(huge))
			case 1:
				n.Do = func(context.Context, *kahn.Step) (any, error) { panic(huge) }
			case 2:
				n.When = func(kahn.View) (bool, error) { return false, errors.New(huge) }
				n.GuardErrors = kahn.GuardFail
			}
			g.Add(n)
		}
		g.Add(kahn.Node{ID: "log", GuardErrors: kahn.GuardAllow, When: func(kahn.View) (bool, error) { return false, errors.New(huge) }})
		r := try(t, g, nop)
		if r.Count(kahn.Failed) != 100 || r.Status != kahn.RunFailed {
			t.Errorf("%d failed, %v", r.Count(kahn.Failed), r.Status)
		}
		bounded(t, r.err, 20_000)
		for n := range r.Nodes() {
			if n.Err != nil {
				bounded(t, n.Err, 2000)
			}
		}
		if logs := r.find(event.NodeLog, "log"); len(logs) != 1 || len(logs[0].Payload.(event.LogRecord).Message) > 2000 {
			t.Errorf("%d logs", len(logs))
		}
	})
	inBubble(t, "as names", func(t *testing.T) {
		g := graph(kahn.Node{ID: huge, Do: always(errStep)}, kahn.Node{ID: "B", After: []string{huge}})
		g.Name = huge
		r := try(t, g, nop)
		bounded(t, r.err, 20_000)
		bounded(t, r.node("B").Err, 2000)
	})
	inBubble(t, "as what stops the run", func(t *testing.T) {
		r := tryControlled(t, t.Context(), graph(after("A")), untilStopped, soon(func(run *kahn.Run) { run.AbortAll(errors.New(huge)) }))
		r.expect("A:X", "failed")
		bounded(t, r.err, 20_000)
		bounded(t, r.node("A").Err, 2000)
	})
	inBubble(t, "as the words of a skip", func(t *testing.T) {
		try(t, graph(after("A"), after("B", "A")), always(kahn.Skip(huge))).expect("A:S/self B:S/up", "completed")
	})
}

// If an error wraps itself, the engine must not hang, and errors.Is and errors.As must not hang on an error that kahn
// returns.
func TestEndlessErrors(t *testing.T) {
	// search calls errors.Is, errors.As and similar functions, except where they would not end or would overflow the stack.
	search := func(t *testing.T, err error) {
		t.Helper()
		if err == nil {
			return
		}
		if !ends(err) {
			t.Errorf("a %T that wraps itself was handed out", err)
			return
		}
		var other *nilError
		if errors.Is(err, errStep) || errors.As(err, &other) {
			t.Errorf("found what is not there in %v", err)
		}
	}
	everywhere := func(t *testing.T, r trial) {
		t.Helper()
		search(t, r.err)
		search(t, r.Cause.Err)
		for _, err := range r.Warnings {
			search(t, err)
		}
		for n := range r.Nodes() {
			for _, err := range []error{n.Err, n.Cause.Err, n.LastErr, n.GuardErr} {
				search(t, err)
			}
		}
		for _, e := range r.events {
			switch p := e.Payload.(type) {
			case event.NodeEnd:
				search(t, p.Err)
			case event.Retry:
				search(t, p.Err)
			}
		}
	}
	quick := kahn.Retry{MaxAttempts: 2, InitialDelay: -1}
	for kind, cyclic := range endless() {
		do := func(err error) kahn.Node { return kahn.Node{ID: "A", Do: always(err), Retry: quick} }
		for name, row := range map[string]struct {
			g     *kahn.Graph
			nodes string
			run   string
		}{
			"returned":        {graph(do(cyclic)), "A:F", "failed"},
			"wrapped":         {graph(do(fmt.Errorf("call: %w", cyclic))), "A:F", "failed"},
			"joined":          {graph(do(errors.Join(cyclic, errors.New("other")))), "A:F", "failed"},
			"permanent":       {graph(do(kahn.Permanent(cyclic))), "A:F", "failed"},
			"aborts the run":  {graph(do(kahn.AbortRun(cyclic))), "A:F", "failed"},
			"rate limited":    {graph(do(kahn.RateLimited(cyclic, 0))), "A:F", "failed"},
			"of an end node":  {graph(kahn.Node{ID: "A", Kind: kahn.KindEnd, Do: always(cyclic)}), "A:F", "failed"},
			"of a test":       {graph(kahn.Node{ID: "A", Test: func(kahn.View) (any, error) { return nil, cyclic }}), "A:F", "failed"},
			"panicked":        {graph(kahn.Node{ID: "A", Do: func(context.Context, *kahn.Step) (any, error) { panic(cyclic) }}), "A:F", "failed"},
			"panicked, test":  {graph(kahn.Node{ID: "A", Test: func(kahn.View) (any, error) { panic(cyclic) }}), "A:F", "failed"},
			"of a guard":      {graph(kahn.Node{ID: "A", Do: nop, GuardErrors: kahn.GuardAllow, When: func(kahn.View) (bool, error) { return true, cyclic }}), "A:ok", "completed"},
			"panicked, guard": {graph(kahn.Node{ID: "A", Do: nop, GuardErrors: kahn.GuardAllow, When: func(kahn.View) (bool, error) { panic(cyclic) }}), "A:ok", "completed"},
			"of a strict guard": {graph(kahn.Node{ID: "A", Do: nop, GuardErrors: kahn.GuardFail,
				When: func(kahn.View) (bool, error) { return true, cyclic }}), "A:F", "failed"},
			"of a fallback": {graph(kahn.Node{ID: "A", Do: always(errors.New("other")),
				Fallback: func(context.Context, error) (any, error) { return nil, cyclic }}), "A:F", "failed"},
			"given to a fallback": {graph(kahn.Node{ID: "A", Do: always(cyclic),
				Fallback: func(_ context.Context, err error) (any, error) { search(t, err); return nil, nil }}), "A:ok", "completed"},
			"of a merge": {graph(kahn.Node{ID: "A", Do: nop}, kahn.Node{ID: "B", Do: nop},
				kahn.Node{ID: "J", In: into("A", "B"), Merge: "m", Do: nop}).
				RegisterMerge("m", func([]kahn.Contribution) (any, error) { return nil, cyclic }), "A:ok B:ok J:F", "failed"},
			"caught": {graph(do(cyclic), kahn.Node{ID: "H", In: []kahn.Edge{{From: "A", On: kahn.OnFailure, Param: "p"}},
				Do: func(_ context.Context, s *kahn.Step) (any, error) {
					v, _ := s.Param("p")
					search(t, v.(error))
					search(t, s.UpstreamErr("A"))
					search(t, s.View().Err("A"))
					return nil, nil
				}}), "A:F H:ok", "completed+d"},
			"seen by the next attempt": {graph(kahn.Node{ID: "A", Retry: quick, Do: func(_ context.Context, s *kahn.Step) (any, error) {
				search(t, s.LastErr())
				return script(cyclic)(s, s)
			}}), "A:ok", "completed"},
			"after the timeout": {graph(kahn.Node{ID: "A", Timeout: time.Millisecond, Do: func(ctx context.Context, _ *kahn.Step) (any, error) {
				<-ctx.Done()
				return nil, cyclic
			}}), "A:F", "failed"},
		} {
			t.Run(kind+" "+name, func(t *testing.T) {
				within(t, func() {
					r := try(t, row.g, nil)
					r.expect(row.nodes, row.run)
					everywhere(t, r)
					if r.err != nil && name != "of a fallback" && !errors.Is(r.err, kahn.ErrCyclicError) {
						// panics are rendered as text.
						var p *kahn.PanicError
						if !errors.As(r.err, &p) {
							t.Errorf("error %v", r.err)
						}
					}
				})
			})
		}

		t.Run(kind+" stops the run", func(t *testing.T) {
			within(t, func() {
				started := make(chan struct{})
				ask := func(ctx context.Context, _ *kahn.Step) (any, error) {
					close(started)
					<-ctx.Done()
					if ctx.Err() == nil || context.Cause(ctx) == nil {
						t.Errorf("after Done: %v, %v", ctx.Err(), context.Cause(ctx))
					}
					return nil, ctx.Err()
				}
				r := tryControlled(t, t.Context(), graph(after("A"), after("B", "A")), ask, func(run *kahn.Run) {
					<-started
					run.AbortAll(cyclic)
				})
				r.expect("A:X B:X", "failed")
				everywhere(t, r)
			})
		})
		t.Run(kind+" is the cause of ctx", func(t *testing.T) {
			within(t, func() {
				ctx, cancel := context.WithCancelCause(t.Context())
				cancelIn := func(*kahn.Run) { cancel(cyclic) }
				r := tryControlled(t, ctx, graph(after("A"), after("B", "A")), untilStopped, cancelIn)
				r.expect("A:C B:C", "cancelled")
				everywhere(t, r)
			})
		})
	}
}

// A large but finite error is passed on unchanged.
func TestLargeErrors(t *testing.T) {
	deep := errStep
	for i := range 5000 {
		deep = fmt.Errorf("%d: %w", i%10, deep)
		if i%100 == 0 {
			deep = &wrapper{deep} // with a short text
		}
	}
	wide := make([]error, 5000)
	for i := range wide {
		wide[i] = fmt.Errorf("number %d", i)
	}
	wide[len(wide)-1] = errStep
	for name, err := range map[string]error{"deep": deep, "wide": errors.Join(wide...)} {
		inBubble(t, name, func(t *testing.T) {
			r := try(t, graph(after("A")), always(err))
			r.expect("A:F", "failed")
			if !errors.Is(r.err, errStep) || errors.Is(r.err, kahn.ErrCyclicError) {
				t.Errorf("the error is %.300v", r.err)
			}
		})
	}
	inBubble(t, "of a nested run", func(t *testing.T) {
		inner := graph()
		for i := range 1000 {
			inner.Add(after(fmt.Sprint(i)))
		}
		r := try(t, graph(after("A")), func(ctx context.Context, _ *kahn.Step) (any, error) {
			_, err := kahn.Execute(ctx, inner, always(errStep))
			return nil, err
		})
		r.expect("A:F", "failed")
		var own *kahn.RunError
		if !errors.Is(r.err, errStep) || !errors.As(errors.Unwrap(r.node("A").Err), &own) || len(own.Errs) != 1000 {
			t.Errorf("the error is %.300v", r.err)
		}
	})
	inBubble(t, "a wrapper far back in a wide error counts", func(t *testing.T) {
		var c calls
		r := try(t, graph(kahn.Node{ID: "A", Retry: kahn.RetryStandard()}), c.count(always(errors.Join(errors.Join(wide...), kahn.Permanent(errStep)))))
		r.expect("A:F", "failed")
		if c.of("A") != 1 {
			t.Errorf("%d calls", c.of("A"))
		}
	})
}
