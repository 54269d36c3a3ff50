package conformance_test

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/reactive"
	"github.com/seed-c794f7ef/kahn/store"
)

func TestCoordinatorRefuses(t *testing.T) {
	plan, err := graph(after("a")).Compile()
	require.NoError(t, err)
	use := kahn.Use(func(next kahn.StepFunc) kahn.StepFunc { return next })
	for name, o := range map[string]kahn.Option{
		"Durable": kahn.Durable(new(store.Memory)), "Idempotent": kahn.Idempotent(new(kahn.IdempotencyStore), "k"), "Memo": new(kahn.Memo), "Use": use,
	} {
		_, err := kahn.NewCoordinator(plan, deskEpoch, o)
		require.ErrorIs(t, err, kahn.ErrBadOption)
		require.ErrorContains(t, err, "a Coordinator does not support "+name)
	}
	_, err = kahn.NewCoordinator(new(kahn.Plan), deskEpoch)
	require.ErrorIs(t, err, kahn.ErrNoGraph)
	_, err = kahn.NewCoordinator(plan, deskEpoch, kahn.Limit(-1))
	require.ErrorIs(t, err, kahn.ErrBadOption)
}

// A result counts only for an attempt that the run waits for, and only once.
func TestCoordinatorStale(t *testing.T) {
	c := coordinate(t, graph(after("a"), after("b", "a")))
	a := nextOf(t, c, "a")
	_, ok := c.Next()
	require.False(t, ok, "it was handed out twice")
	require.ErrorIs(t, c.Return(nil, nil, nil), kahn.ErrStale)
	require.ErrorIs(t, c.Return(kahn.NewStep(t.Context(), a.Call(), nil), 1, nil), kahn.ErrStale, "it belongs to no run")
	require.NoError(t, c.Return(a, 1, nil))
	require.ErrorIs(t, c.Return(a, 2, nil), kahn.ErrStale)
	b := nextOf(t, c, "b")
	v, err := kahn.Upstream[int](b, "a")
	require.NoError(t, err)
	require.Equal(t, 1, v)
	other := coordinate(t, graph(after("a"), after("b", "a")))
	require.ErrorIs(t, other.Return(b, 2, nil), kahn.ErrStale, "it belongs to another run")
	require.NoError(t, c.Return(b, 2, nil))
	res, err := c.Result()
	require.NoError(t, err)
	require.Equal(t, 2, res.Output())
	require.ErrorIs(t, c.Return(b, 3, nil), kahn.ErrStale)
	_, ok = c.Due()
	require.False(t, ok)
}

// Backoffs, timeouts and grace end by the clock that the host sets.
func TestCoordinatorClock(t *testing.T) {
	rec := newRecorder()
	g := graph(kahn.Node{ID: "a", Timeout: time.Minute, Retry: kahn.Retry{MaxAttempts: 2, InitialDelay: time.Second, Jitter: kahn.JitterNone, RetryOn: []kahn.CauseKind{kahn.CauseStepError, kahn.CauseTimeout}}})
	c := coordinate(t, g, kahn.OnEvent(rec.add), kahn.CancelGrace(10*time.Second))
	at := func(d time.Duration) {
		t.Helper()
		due, ok := c.Due()
		require.True(t, ok)
		require.Equal(t, deskEpoch.Add(d), due)
	}
	a := nextOf(t, c, "a")
	deadline, ok := a.Deadline()
	require.True(t, ok)
	require.Equal(t, deskEpoch.Add(time.Minute), deadline)
	at(time.Minute)
	c.Advance(deskEpoch.Add(5 * time.Second))
	require.NoError(t, c.Return(a, nil, errStep))
	at(6 * time.Second)
	_, ok = c.Next()
	require.False(t, ok)
	c.Advance(deskEpoch.Add(time.Second)) // the Coordinator's clock does not go back
	at(6 * time.Second)
	c.Advance(deskEpoch.Add(6*time.Second - 1))
	_, ok = c.Next()
	require.False(t, ok)
	c.Advance(deskEpoch.Add(6 * time.Second))
	a2 := nextOf(t, c, "a")
	require.Equal(t, 2, a2.Attempt())
	require.Equal(t, errStep, a2.LastErr())
	_, ok = c.NextStop()
	require.False(t, ok)
	c.Advance(deskEpoch.Add(66 * time.Second))
	stopped, ok := c.NextStop()
	require.True(t, ok)
	require.Same(t, a2, stopped)
	require.ErrorIs(t, context.Cause(stopped), kahn.ErrTimeout)
	_, ok = c.NextStop()
	require.False(t, ok)
	at(76 * time.Second)
	c.Advance(deskEpoch.Add(80 * time.Second))
	require.ErrorIs(t, c.Return(a2, 1, nil), kahn.ErrStale, "it was abandoned")
	res, err := c.Result()
	require.Error(t, err)
	require.Equal(t, []string{"a"}, res.Abandoned)
	require.Equal(t, 80*time.Second, res.Duration)
	require.Equal(t, deskEpoch, res.Start)
	require.Equal(t, deskEpoch.Add(80*time.Second), rec.all()[len(rec.all())-1].Time.UTC())
	require.Empty(t, leftovers(c.Run()))
}

// Other goroutines make requests; the next call of the Coordinator carries them out.
func TestCoordinatorAsked(t *testing.T) {
	c := coordinate(t, graph(after("a"), kahn.Node{ID: "g", Kind: kahn.KindGate}, after("b", "a", "g"), kahn.Node{ID: "c", Cleanup: true, After: []string{"b"}}))
	a := nextOf(t, c, "a")
	asked := make(chan error)
	go func() { asked <- c.Run().Signal(context.Background(), "g", "yes") }()
	require.NoError(t, <-asked)
	require.NoError(t, c.Return(a, 1, nil))
	b := nextOf(t, c, "b")
	go func() { c.Run().Cancel(); asked <- nil }()
	require.NoError(t, <-asked)
	stopped, ok := c.NextStop()
	require.True(t, ok)
	require.Same(t, b, stopped)
	require.ErrorIs(t, context.Cause(b), kahn.ErrCancelled)
	require.NoError(t, c.Return(b, nil, b.Err()))
	require.NoError(t, c.Return(nextOf(t, c, "c"), nil, nil))
	res, err := c.Result()
	require.ErrorIs(t, err, kahn.ErrCancelled)
	require.Equal(t, kahn.RunCancelled, res.Status)
}

// Observers of the run are called on the goroutine of the host: sinks, effects, and functions of Around.
func TestCoordinatorObserved(t *testing.T) {
	var told []string
	type key struct{}
	around := kahn.Around(func(ctx context.Context, r *kahn.Run) (context.Context, func(*kahn.Result)) {
		return context.WithValue(ctx, key{}, "span"), func(res *kahn.Result) { told = append(told, "around "+res.Status.String()) }
	})
	bad := kahn.OnEvent(func(kahn.Event) { panic("sink") })
	c := coordinate(t, graph(after("a")), around, bad, kahn.OnNode(func(n kahn.NodeResult) { told = append(told, "node "+n.ID) }))
	_, err := c.Run().State().StatusSignal(0).Subscribe(c.Run().State().Scope(), func(_ reactive.Writer, s kahn.Status) { told = append(told, "signal "+s.String()) })
	require.NoError(t, err)
	a := nextOf(t, c, "a")
	require.Equal(t, "span", a.Value(key{}))
	require.NoError(t, c.Return(a, nil, nil))
	require.Equal(t, []string{"signal running", "signal completed", "node a", "around completed"}, told)
	res, err := c.Result()
	require.NoError(t, err)
	require.Len(t, res.Warnings, 1)
	require.ErrorContains(t, res.Warnings[0], "event sink disabled: panic: sink")
}

// The Coordinator itself calls guards, tests and fallbacks. A panic of such a function fails only its node.
func TestCoordinatorEvaluates(t *testing.T) {
	c := coordinate(t, graph(
		kahn.Node{ID: "t", Test: func(kahn.View) (any, error) { panic("test") }},
		kahn.Node{ID: "g", When: func(kahn.View) (bool, error) { panic("guard") }, GuardErrors: kahn.GuardFail},
		kahn.Node{ID: "f", Fallback: func(_ context.Context, err error) (any, error) { return "saved", nil }},
	))
	require.NoError(t, c.Return(nextOf(t, c, "f"), nil, &kahn.PanicError{Value: "step"}))
	res, err := c.Result()
	require.Error(t, err)
	for id, want := range map[string]kahn.CauseKind{"t": kahn.CauseConditionError, "g": kahn.CauseConditionError, "f": kahn.CauseNone} {
		n, _ := res.Node(id)
		require.Equal(t, want, n.Cause.Kind, id)
	}
	f, _ := res.Node("f")
	require.Equal(t, "saved", f.Output)
	var p *kahn.PanicError
	require.True(t, errors.As(f.LastErr, &p))
}

// Result does not wait: before the run ends it returns an error. Wait blocks and is for other goroutines. It returns after sinks and functions of
// Around were called for the end.
func TestCoordinatorResult(t *testing.T) {
	told := make(chan string, 2)
	c := coordinate(t, graph(kahn.Node{ID: "g", Kind: kahn.KindGate}),
		kahn.OnEvent(func(e kahn.Event) {
			if e.Type == event.RunCompleted {
				told <- "sink"
			}
		}),
		kahn.Around(func(ctx context.Context, _ *kahn.Run) (context.Context, func(*kahn.Result)) {
			return ctx, func(*kahn.Result) { told <- "around" }
		}))
	_, err := c.Result()
	require.ErrorIs(t, err, kahn.ErrNotEnded)
	require.ErrorContains(t, err, "suspended")
	waited := make(chan *kahn.Result)
	go func() {
		res, _ := c.Run().Wait()
		waited <- res
	}()
	require.NoError(t, c.Run().Signal(context.Background(), "g", true))
	<-c.Run().Done()
	require.Empty(t, told, "they are called by the Coordinator alone")
	res, err := c.Result()
	require.NoError(t, err)
	require.Equal(t, kahn.RunCompleted, res.Status)
	require.Empty(t, res.Warnings)
	require.Same(t, res, <-waited)
	require.Equal(t, []string{"sink", "around"}, []string{<-told, <-told})
}

// The Coordinator detects a call during another call, from a function that it calls or from another goroutine.
func TestCoordinatorCalledTwice(t *testing.T) {
	const text = "a method of a Coordinator was called during another call"
	var c *kahn.Coordinator
	in, out := make(chan bool), make(chan bool)
	g := graph(
		after("begin"),
		kahn.Node{ID: "guard", After: []string{"begin"}, When: func(kahn.View) (bool, error) { c.Next(); return true, nil }, GuardErrors: kahn.GuardFail},
		kahn.Node{ID: "test", After: []string{"begin"}, Test: func(kahn.View) (any, error) { c.Advance(deskEpoch); return true, nil }},
		kahn.Node{ID: "fails", After: []string{"begin"}, Fallback: func(context.Context, error) (any, error) { return c.Result() }},
		kahn.Node{ID: "slow", After: []string{"fails"}, Join: kahn.AllDone, When: func(kahn.View) (bool, error) { in <- true; <-out; return true, nil }},
	)
	c = coordinate(t, g, kahn.OnNode(func(n kahn.NodeResult) {
		if n.ID == "begin" {
			c.NextStop()
		}
	}))
	require.NoError(t, c.Return(nextOf(t, c, "begin"), nil, nil))
	fails := nextOf(t, c, "fails")
	returned := make(chan error)
	go func() { returned <- c.Return(fails, nil, errStep) }()
	<-in
	for name, call := range map[string]func(){
		"Next": func() { c.Next() }, "NextStop": func() { c.NextStop() }, "Return": func() { _ = c.Return(fails, nil, nil) }, "Due": func() { c.Due() },
		"Advance": func() { c.Advance(deskEpoch) }, "Result": func() { _, _ = c.Result() },
	} {
		require.PanicsWithValue(t, text+", by a second goroutine or by a function that the Coordinator calls", call, name)
	}
	out <- true
	require.NoError(t, <-returned)
	require.NoError(t, c.Return(nextOf(t, c, "slow"), nil, nil))
	res, err := c.Result()
	require.Error(t, err)
	for _, id := range []string{"guard", "test", "fails"} {
		n, _ := res.Node(id)
		require.Equal(t, kahn.Failed, n.Status, id)
		require.ErrorContains(t, n.Err, text, id)
	}
	require.Len(t, res.Warnings, 2)
	require.ErrorIs(t, res.Warnings[0], kahn.ErrGuard)
	require.ErrorContains(t, res.Warnings[1], text)
}

// The Coordinator's clock stops at the greatest time since the start that a [time.Duration] can express. Retries, deadlines and rate tokens that
// are due later fall due at that time.
func TestCoordinatorAtTheEndOfTheClock(t *testing.T) {
	t.Parallel()
	retry := kahn.Retry{MaxAttempts: 3, InitialDelay: time.Second}
	for name, x := range map[string]struct {
		opts []kahn.Option
		err  error // that each call returns
		want kahn.RunStatus
	}{
		"timeout":         {[]kahn.Option{kahn.Limit(1), kahn.Timeout(math.MaxInt64)}, nil, kahn.RunFailed},
		"retry":           {[]kahn.Option{kahn.Limit(1), retry}, errStep, kahn.RunFailed},
		"retry unlimited": {[]kahn.Option{retry}, errStep, kahn.RunFailed},
		"plain":           {[]kahn.Option{kahn.Limit(1)}, nil, kahn.RunCompleted},
		"rate":            {[]kahn.Option{kahn.Rate{Starts: 1, Per: time.Second}}, nil, kahn.RunCompleted},
		"rate and limit":  {[]kahn.Option{kahn.Limit(1), kahn.KeyRate(kahn.Rate{Starts: 1, Per: time.Second})}, nil, kahn.RunCompleted},
	} {
		c := coordinate(t, graph(kahn.Node{ID: "a", Key: "k"}, kahn.Node{ID: "b", Key: "k"}, kahn.Node{ID: "c", Key: "k", After: []string{"a"}}), x.opts...)
		now := deskEpoch.AddDate(1000, 0, 0)
		c.Advance(now)
		for range 10 {
			for s, ok := c.Next(); ok; s, ok = c.Next() {
				require.NoError(t, c.Return(s, nil, x.err))
			}
			now = now.AddDate(1, 0, 0)
			c.Advance(now)
		}
		require.Equal(t, x.want, c.Run().Status(), name)
		require.Empty(t, leftovers(c.Run()), name)
	}
}

// The end function of Around must not call the Coordinator. If it does, the Result has a warning, and the run still ends.
func TestCoordinatorCalledByAround(t *testing.T) {
	t.Parallel()
	var c *kahn.Coordinator
	called := 0
	c = coordinate(t, graph(after("a")), kahn.Around(func(context.Context, *kahn.Run) (context.Context, func(*kahn.Result)) {
		return nil, func(*kahn.Result) {
			called++
			c.Due()
		}
	}))
	require.NoError(t, c.Return(nextOf(t, c, "a"), 1, nil))
	res, err := c.Result()
	require.NoError(t, err)
	require.Equal(t, kahn.RunCompleted, res.Status)
	require.Len(t, res.Warnings, 1)
	require.ErrorContains(t, res.Warnings[0], "a method of a Coordinator was called during another call")
	require.Equal(t, 1, called)
}

// In a later life the end of a backoff is compared with the clock that the host sets, not with the computer's clock.
func TestCoordinatorBacksOffInALaterLife(t *testing.T) {
	plan, err := graph(kahn.Node{ID: "a", Retry: kahn.Retry{MaxAttempts: 2, InitialDelay: time.Minute, Jitter: kahn.JitterNone}}).Compile()
	require.NoError(t, err)
	for name, begin := range map[string]time.Time{"past": time.Now().AddDate(-20, 0, 0), "future": time.Now().AddDate(20, 0, 0)} {
		c, err := kahn.NewCoordinator(plan, begin)
		require.NoError(t, err)
		require.NoError(t, c.Return(nextOf(t, c, "a"), nil, errStep))
		snapshot := reload(t, c.Run().Snapshot())

		c, err = kahn.NewCoordinator(plan, begin.Add(time.Second), kahn.Resume(snapshot))
		require.NoError(t, err)
		due, ok := c.Due()
		require.True(t, ok, name)
		require.WithinDuration(t, begin.Add(time.Minute), due, time.Millisecond, name)
		_, ok = c.Next()
		require.False(t, ok, name)

		c, err = kahn.NewCoordinator(plan, begin.Add(time.Hour), kahn.Resume(snapshot))
		require.NoError(t, err)
		require.Equal(t, 2, nextOf(t, c, "a").Attempt(), name)
	}
}

// After a gate was answered its deadline no longer counts: the Coordinator has no next due time.
func TestDueOfAnsweredGate(t *testing.T) {
	t.Parallel()
	asks := gate("g")
	asks.Gate = &kahn.Gate{Timeout: time.Hour}
	c := coordinate(t, graph(asks, after("b", "g")))
	at, ok := c.Due()
	require.True(t, ok)
	require.Equal(t, time.Hour, at.Sub(deskEpoch))
	require.NoError(t, c.Run().Signal(t.Context(), "g", "yes"))
	nextOf(t, c, "b")
	at, ok = c.Due()
	require.False(t, ok, "%v", at)
}

// TestWakeUpIsNotLost: another goroutine signals or stops the run after Next and NextStop have returned their last Steps. The calls of Due and
// Result that follow do not remove the message from the channel of Wake: otherwise the host would wait forever, although an attempt is ready.
func TestWakeUpIsNotLost(t *testing.T) {
	for name, request := range map[string]func(run *kahn.Run) error{
		"a signal": func(run *kahn.Run) error { return run.Signal(context.Background(), "g", "ok") },
		"a stop":   func(run *kahn.Run) error { return run.CancelNode("a") },
	} {
		t.Run(name, func(t *testing.T) {
			c := coordinate(t, graph(gate("g"), after("b", "g"), after("a")))
			a := nextOf(t, c, "a")
			for _, ok := c.Next(); ok; _, ok = c.Next() {
			}
			_, ok := c.NextStop()
			require.False(t, ok)
			require.Empty(t, c.Wake(), "the message came before the request")
			require.NoError(t, request(c.Run()))
			c.Due()
			_, _ = c.Result()
			select {
			case <-c.Wake():
			default:
				t.Fatal("Wake has no message, so the host would wait")
			}
			if name == "a stop" {
				stopped, ok := c.NextStop()
				require.True(t, ok)
				require.Same(t, a, stopped)
				return
			}
			require.Equal(t, "b", nextOf(t, c, "b").ID())
		})
	}
}
