package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/reactive"
	"github.com/seed-c794f7ef/kahn/store"
)

type noteKey struct{}

// notes records the calls of Around and of steps, in order.
type notes struct {
	sync.Mutex
	list []string
}

func (n *notes) add(format string, args ...any) {
	n.Lock()
	defer n.Unlock()
	n.list = append(n.list, fmt.Sprintf(format, args...))
}

func (n *notes) all() []string {
	n.Lock()
	defer n.Unlock()
	return slices.Clone(n.list)
}

// spanning returns an Around that records its calls and puts a value into the context of the steps.
func spanning(n *notes, name string) kahn.Option {
	return kahn.Around(func(ctx context.Context, r *kahn.Run) (context.Context, func(*kahn.Result)) {
		before, _ := ctx.Value(noteKey{}).(string)
		n.add("%s begins around %s in %q", name, r.ID(), before)
		return context.WithValue(ctx, noteKey{}, before+name), func(res *kahn.Result) {
			time.Sleep(5 * ms) // the run waits for the sleep
			n.add("%s ends: %v", name, res.Status)
		}
	})
}

func TestAround(t *testing.T) {
	t.Parallel()
	inBubble(t, "spans", func(t *testing.T) {
		g := graph(
			kahn.Node{ID: "S", Sub: graph(kahn.Node{ID: "x", Do: func(ctx context.Context, s *kahn.Step) (any, error) { return ctx.Value(noteKey{}), nil }})},
			kahn.Node{ID: "tidy", Cleanup: true, After: []string{"S"}, Do: func(ctx context.Context, s *kahn.Step) (any, error) { return s.Value(noteKey{}), nil }},
		)
		for _, parent := range []context.Context{t.Context(), context.Background()} {
			n := new(notes)
			ctx := context.WithValue(parent, noteKey{}, "caller ")
			res, err := kahn.Execute(ctx, g, nil, kahn.RunID("r"), spanning(n, "outer "), spanning(n, "inner"))
			require.NoError(t, err)
			require.Equal(t, []string{`outer  begins around r in "caller "`, `inner begins around r in "caller outer "`, "inner ends: completed", "outer  ends: completed"}, n.all())
			for _, id := range []string{"S", "tidy"} {
				out, _ := res.Node(id)
				require.Equal(t, "caller outer inner", out.Output)
			}
		}
	})
	inBubble(t, "a derived context that ends does not stop the run, and the caller's does", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		short := kahn.Around(func(ctx context.Context, r *kahn.Run) (context.Context, func(*kahn.Result)) {
			ctx, cancel := context.WithCancel(ctx)
			cancel()
			return ctx, nil
		})
		work := graph(kahn.Node{ID: "a", Do: takes(10 * ms)})
		res, err := kahn.Execute(ctx, work, nil, short)
		require.NoError(t, err)
		require.Equal(t, kahn.RunCompleted, res.Status)
		time.AfterFunc(5*ms, cancel)
		res, _ = kahn.Execute(ctx, work, nil, short)
		require.Equal(t, kahn.RunCancelled, res.Status)
	})
	inBubble(t, "a runner", func(t *testing.T) {
		n := new(notes)
		rn := &kahn.Runner{MaxRuns: 1, Options: []kahn.Option{spanning(n, "span")}}
		for i := range 3 {
			_, err := rn.Start(t.Context(), graph(kahn.Node{ID: "a", Do: takes(10 * ms)}), nil, kahn.RunID(fmt.Sprint("r", i)))
			require.NoError(t, err)
		}
		synctest.Wait()
		require.Len(t, n.all(), 1, "pending runs have not begun")
		gone, _ := rn.Run("r2")
		gone.Cancel()
		_, _ = gone.Wait()
		time.Sleep(18 * ms)
		require.NoError(t, rn.Shutdown(t.Context()))
		require.Equal(t, []string{`span begins around r0 in ""`, `span begins around r1 in ""`, "span ends: completed", "span ends: completed"}, n.all())
	})
	inBubble(t, "what goes wrong", func(t *testing.T) {
		n := new(notes)
		rude := func(end func(*kahn.Result)) kahn.Option {
			return kahn.Around(func(ctx context.Context, _ *kahn.Run) (context.Context, func(*kahn.Result)) { return nil, end })
		}
		res, err := kahn.Execute(t.Context(), graph(after("a")), nothing, spanning(n, "span"),
			kahn.Around(func(context.Context, *kahn.Run) (context.Context, func(*kahn.Result)) { panic("at the beginning") }),
			rude(func(*kahn.Result) { panic("at the end") }), rude(func(*kahn.Result) { runtime.Goexit() }),
		)
		require.NoError(t, err)
		var warnings []string
		for _, w := range res.Warnings {
			warnings = append(warnings, w.Error())
		}
		require.Equal(t, []string{"Around: panic: at the beginning", "Around: runtime.Goexit called", "Around: panic: at the end"}, warnings)
		require.True(t, errors.Is(res.Warnings[1], kahn.ErrGoexit))
		require.Equal(t, "span ends: completed", n.all()[1])

		begun := time.Now()
		res, err = kahn.Execute(t.Context(), graph(after("a")), nothing, rude(func(*kahn.Result) { time.Sleep(time.Minute) }), kahn.CancelGrace(2*time.Second))
		require.NoError(t, err)
		require.Equal(t, 2*time.Second, time.Since(begun))
		require.Contains(t, fmt.Sprint(res.Warnings), "still running")
		time.Sleep(time.Hour)
		_, err = kahn.Execute(t.Context(), graph(after("a")), nothing, kahn.Around(nil))
		require.ErrorIs(t, err, kahn.ErrBadOption)
	})
	inBubble(t, "an Around that ends its goroutine", func(t *testing.T) {
		rn := &kahn.Runner{}
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = rn.Start(t.Context(), graph(after("a")), nothing, kahn.RunID("r"), kahn.Around(func(context.Context, *kahn.Run) (context.Context, func(*kahn.Result)) {
				runtime.Goexit()
				return nil, nil
			}))
		}()
		<-done
		run, ok := rn.Run("r")
		require.True(t, ok)
		_, err := run.Wait()
		require.NoError(t, err)
	})
}

// A Step reports when it was queued, which nodes it follows, and under which lease it runs.
func TestStepPlace(t *testing.T) {
	t.Parallel()
	inBubble(t, "queued", func(t *testing.T) {
		var mu sync.Mutex
		queued := map[string]time.Time{}
		note := func(d time.Duration) kahn.StepFunc {
			return func(ctx context.Context, s *kahn.Step) (any, error) {
				mu.Lock()
				queued[fmt.Sprint(s.Path(), " ", s.Attempt())] = s.Queued()
				mu.Unlock()
				_, _ = takes(d)(ctx, s)
				if s.ID() == "c" && s.Attempt() == 1 {
					return nil, errStep
				}
				return nil, nil
			}
		}
		g := graph(
			kahn.Node{ID: "a", Do: note(10 * ms)}, kahn.Node{ID: "b", Do: note(30 * ms), Priority: 1},
			kahn.Node{ID: "c", After: []string{"a", "b"}, Do: note(5 * ms), Retry: kahn.Retry{MaxAttempts: 2, InitialDelay: 20 * ms, Jitter: kahn.JitterNone}},
			kahn.Node{ID: "off", After: []string{"c"}, When: func(kahn.View) (bool, error) { return false, nil }},
			kahn.Node{ID: "d", After: []string{"off"}, SkipMode: kahn.SkipSatisfy, Do: note(5 * ms)},
			kahn.Node{ID: "S", After: []string{"c"}, Sub: graph(kahn.Node{ID: "x", Do: note(5 * ms)}, kahn.Node{ID: "y", After: []string{"x"}, Do: note(5 * ms)})},
		)
		r := try(t, g, nothing, kahn.Limit(1))
		want := map[string]time.Time{}
		for _, e := range r.events {
			if e.Type == event.NodeQueued && e.Path != "S" {
				want[fmt.Sprint(e.Path, " ", e.Attempt)] = e.Time
			}
		}
		require.Len(t, queued, 7)
		for at, when := range queued {
			require.True(t, when.Equal(want[at]), "%s: %v, the event says %v", at, when, want[at])
		}
	})
	inBubble(t, "predecessors", func(t *testing.T) {
		got := map[string][]kahn.Predecessor{}
		note := func(_ context.Context, s *kahn.Step) (any, error) {
			got[s.Path()] = s.Predecessors()
			return nil, nil
		}
		inner := graph(kahn.Node{ID: "x", Do: note}, kahn.Node{ID: "y", In: []kahn.Edge{{From: "x"}, {From: "x", Param: "p"}}, Do: note})
		g := graph(
			kahn.Node{ID: "bad", Do: always(errStep)}, kahn.Node{ID: "off", Disabled: true}, kahn.Node{ID: "slow", Do: takes(10 * ms)},
			kahn.Node{ID: "S", Join: kahn.AllDone, After: []string{"off", "bad"}, Sub: inner},
			kahn.Node{ID: "M", After: []string{"S"}, Map: &kahn.Map{Over: "l"}, Params: map[string]any{"l": []int{1}}, Do: note},
			kahn.Node{ID: "early", Join: kahn.AnySucceeded, After: []string{"slow", "M"}, Do: note},
			kahn.Node{ID: "late", Join: kahn.AllDone, After: []string{"bad", "off"}, Do: note},
		)
		_, _ = kahn.Execute(t.Context(), g, nothing)
		require.Equal(t, map[string][]kahn.Predecessor{
			"S/x": {}, "S/y": {{ID: "x", Path: "S/x", Status: kahn.Completed}}, "M[0]": {{ID: "S", Path: "S", Status: kahn.Completed}},
			"early": {{ID: "slow", Path: "slow", Status: kahn.Running}, {ID: "M", Path: "M", Status: kahn.Completed}},
			"late":  {{ID: "bad", Path: "bad", Status: kahn.Failed}, {ID: "off", Path: "off", Status: kahn.Skipped}},
		}, got)
	})
	inBubble(t, "epoch", func(t *testing.T) {
		store := new(store.Memory)
		var epochs []uint64
		note := func(_ context.Context, s *kahn.Step) (any, error) {
			epochs = append(epochs, s.Epoch())
			return nil, nil
		}
		g := graph(kahn.Node{ID: "S", Sub: graph(kahn.Node{ID: "a", Do: note}, gate("g", "a"), kahn.Node{ID: "b", After: []string{"g"}, Do: note})})
		res, err := kahn.Execute(t.Context(), g, nil, kahn.RunID("r"), kahn.Durable(store))
		require.NoError(t, err)
		require.Equal(t, kahn.RunSuspended, res.Status)
		_, err = kahn.Execute(t.Context(), g, nil, kahn.RunID("r"), kahn.Durable(store), kahn.EarlySignals(map[string]any{"S/g": 1}))
		require.NoError(t, err)
		_, err = kahn.Execute(t.Context(), graph(kahn.Node{ID: "a", Do: note}), nil)
		require.NoError(t, err)
		require.Equal(t, []uint64{1, 2, 0}, epochs)
	})
}

// Several goroutines wait for a run whose observers are slow at its end. All of them return when the observers have returned, without a
// warning.
func TestWaitersTogether(t *testing.T) {
	t.Parallel()
	slow := func() { time.Sleep(500 * ms) }
	for name, opt := range map[string]kahn.Option{
		"Around": kahn.Around(func(ctx context.Context, _ *kahn.Run) (context.Context, func(*kahn.Result)) {
			return ctx, func(*kahn.Result) { slow() }
		}),
		"a sink": kahn.OnEvent(func(e kahn.Event) {
			if e.Type == event.RunCompleted {
				slow()
			}
		}),
		"an effect": kahn.Around(func(ctx context.Context, r *kahn.Run) (context.Context, func(*kahn.Result)) {
			st := r.State()
			status := st.RunStatusSignal()
			_, _ = reactive.NewEffect(st.Scope(), func(w reactive.Writer) {
				if status.Get(w) == kahn.RunCompleted {
					slow()
				}
			})
			return ctx, nil
		}),
	} {
		inBubble(t, name, func(t *testing.T) {
			run, err := kahn.Start(t.Context(), graph(after("A")), takes(ms), opt)
			require.NoError(t, err)
			var all sync.WaitGroup
			for range 3 {
				all.Go(func() {
					res, err := run.Wait()
					if err != nil || len(res.Warnings) != 0 {
						t.Error(err, res.Warnings)
					}
				})
			}
			begin := time.Now()
			all.Wait()
			if took := time.Since(begin); took != 501*ms {
				t.Errorf("waited for %v", took)
			}
		})
	}
}

// TestAroundKeepsItsCancellation: if the context that a function of Around has returned ends, no step is stopped. The test tries a node
// with a Timeout and a node without one.
func TestAroundKeepsItsCancellation(t *testing.T) {
	for _, timeout := range []time.Duration{0, time.Hour} {
		inBubble(t, fmt.Sprint("timeout ", timeout), func(t *testing.T) {
			var end context.CancelFunc
			res, err := kahn.Execute(context.Background(), graph(kahn.Node{ID: "A", Timeout: timeout, Do: func(ctx context.Context, s *kahn.Step) (any, error) {
				child, cancel := context.WithCancel(ctx)
				defer cancel()
				end()
				select {
				case <-ctx.Done():
				case <-child.Done():
				case <-time.After(ms):
				}
				return ctx.Value(noteKey{}), errors.Join(ctx.Err(), child.Err())
			}}), nil, kahn.Around(func(ctx context.Context, r *kahn.Run) (context.Context, func(*kahn.Result)) {
				ctx, end = context.WithCancel(context.WithValue(ctx, noteKey{}, "around"))
				return ctx, nil
			}))
			require.NoError(t, err)
			value, err := kahn.Output[string](res, "A")
			require.NoError(t, err)
			require.Equal(t, "around", value)
		})
	}
}
