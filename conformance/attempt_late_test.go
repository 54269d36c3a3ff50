package conformance_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/kahntest"
	"github.com/seed-c794f7ef/kahn/reactive"
	"github.com/seed-c794f7ef/kahn/store"
)

// oneSlot returns a Coordinator with one slot, and the running step of the given node, which has the slot. Another node, "again", has failed once
// and backs off without a delay.
func oneSlot(t *testing.T, second kahn.Node, opts ...kahn.Option) (c *kahn.Coordinator, other *kahn.Step) {
	g := graph(kahn.Node{ID: "again", Priority: 1, Retry: kahn.Retry{MaxAttempts: 2, InitialDelay: -1}}, second)
	plan, err := g.Compile()
	require.NoError(t, err)
	c, err = kahn.NewCoordinator(plan, time.Now(), append(opts, kahn.Limit(1), kahn.CancelGrace(0))...)
	require.NoError(t, err)
	first, ok := c.Next()
	require.True(t, ok)
	require.NoError(t, c.Return(first, nil, errStep))
	other, ok = c.Next()
	require.True(t, ok, "a node that backs off holds no slot")
	return c, other
}

// There is one slot. An attempt returns after it was abandoned, when the backoff of another node has already ended. The other node is then
// retried, even if the abandoned attempt was a fallback.
func TestAbandonedAttemptsLetOthersGoOn(t *testing.T) {
	t.Parallel()
	for _, inFallback := range []bool{false, true} {
		var c *kahn.Coordinator
		stop := func() { require.NoError(t, c.Run().CancelNode("late")) }
		late := kahn.Node{ID: "late"}
		if inFallback {
			late.Fallback = func(context.Context, error) (any, error) { stop(); return nil, nil }
		}
		var rec kahntest.Recorder
		var other *kahn.Step
		c, other = oneSlot(t, late, kahn.OnEvent(rec.Add))
		if !inFallback {
			stop()
		}
		require.NoError(t, c.Return(other, nil, errStep))
		again, ok := c.Next()
		require.True(t, ok, "in a fallback: %v", inFallback)
		require.Equal(t, 2, again.Attempt())
		require.NoError(t, c.Return(again, nil, nil))
		res, _ := c.Run().Wait()
		kahntest.RequireStatuses(t, res, "again:ok late:C")
		require.Equal(t, []string{"late"}, res.Abandoned)
		require.NoError(t, kahntest.CheckEvents(graph(kahn.Node{ID: "again", Priority: 1, Retry: kahn.Retry{MaxAttempts: 2, InitialDelay: -1}}, late), res, rec.Events()))
	}
}

// The backoff of node "again" ends before a worker calls the fallback of node "late". The run logs node.queued for the retry of "again" before
// the fallback returns.
func TestFallbackHoldsNothingBack(t *testing.T) {
	t.Parallel()
	var c *kahn.Coordinator
	queued := 0
	late := kahn.Node{ID: "late", Fallback: func(context.Context, error) (any, error) {
		_, last := c.Run().EventRange()
		for e, err := range c.Run().Events(t.Context(), 0) {
			require.NoError(t, err)
			if e.Type == event.NodeQueued && e.Node == "again" {
				queued++
			}
			if e.ID == last {
				break
			}
		}
		return nil, nil
	}}
	var other *kahn.Step
	c, other = oneSlot(t, late)
	require.NoError(t, c.Return(other, nil, errStep))
	require.Equal(t, 2, queued, "for each attempt")
}

// Observers see a node as running once its inputs have been accepted, before its step returns.
func TestAdmissionIsObserved(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		g := graph(kahn.Node{ID: "a", Moderation: kahn.ModerateInput})
		judge := func(context.Context, event.Phase, *kahn.Step, any) error { time.Sleep(10 * ms); return nil }
		run, err := kahn.Start(t.Context(), g, takes(time.Hour), kahn.Moderate(judge))
		require.NoError(t, err)
		begun := time.Now()
		at, _ := run.Plan().Ref("a")
		status := run.State().StatusSignal(at)
		changed := make(chan time.Duration, 1)
		_, err = reactive.NewEffect(run.State().Scope(), func(w reactive.Writer) {
			if status.Get(w) == kahn.Running {
				changed <- time.Since(begun)
			}
		})
		require.NoError(t, err)
		require.Equal(t, 10*ms, <-changed)
		run.Cancel()
		_, _ = run.Wait()
	})
}

// If the grace of a stopped attempt ends at the moment at which the step returns a graph, the attempt continues in the graph.
func TestGraceOfAStepThatExpands(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		inner := graph(kahn.Node{ID: "x", Do: takes(0)})
		for range 100 { // the order in which the step returns and the grace ends is random
			rn := new(kahn.Runner)
			run, err := rn.Start(t.Context(), graph(after("a")), func(context.Context, *kahn.Step) (any, error) {
				time.Sleep(20 * ms) // the timer of this sleep is armed before the timer of the grace, and so fires first
				return nil, kahn.Expand(inner, nil, nil)
			}, kahn.CancelGrace(10*ms))
			require.NoError(t, err)
			time.Sleep(10 * ms)
			ctx, cancel := context.WithCancelCause(t.Context())
			cancel(errHost)
			require.ErrorIs(t, rn.Shutdown(ctx), errHost)
			res, err := run.Wait()
			require.NoError(t, err)
			require.True(t, res.Left)
			a, _ := res.Node("a")
			require.Equal(t, len(res.Abandoned) > 0, a.Status == kahn.Ready, "%v, %v", res.Abandoned, a.Status)
		}
	})
}

// A step that is cancelled, or times out, while an answer for it is being encoded does not get the answer.
func TestSignalMeetsACancelledStep(t *testing.T) {
	for name, stop := range map[string]func(run *kahn.Run){
		"cancelled": func(run *kahn.Run) { _ = run.CancelNode("a") },
		"timed out": func(*kahn.Run) { time.Sleep(time.Minute) },
	} {
		inBubble(t, name, func(t *testing.T) {
			var run *kahn.Run
			codec := &meanwhile{act: func() { stop(run) }}
			waits := func(context.Context, *kahn.Step) (any, error) { return nil, kahn.Suspend("", nil, nil) }
			g := graph(kahn.Node{ID: "a", OverallTimeout: 30 * time.Second, Do: waits}, kahn.Node{ID: "b", Do: takes(2 * time.Minute)})
			var err error
			run, err = kahn.Start(t.Context(), g, nil, kahn.Encoding(codec),
				kahn.Durable(new(store.Memory)), kahn.Lease("", time.Hour))
			require.NoError(t, err)
			_, err = run.WaitFor(t.Context(), "a", kahn.Suspended)
			require.NoError(t, err)
			synctest.Wait()
			err = run.Signal(context.Background(), "a", "yes")
			require.ErrorIs(t, err, kahn.ErrTransition)
			require.NotErrorIs(t, err, kahn.ErrAnswered)
			_, _ = run.Wait()
		})
	}
}

// meanwhile is a Codec that calls act while it encodes an answer.
type meanwhile struct {
	kahn.Types
	act func()
}

func (c *meanwhile) Encode(v any) (json.RawMessage, error) {
	if v == "yes" {
		c.act()
	}
	return c.Types.Encode(v)
}

// The Done method of a context may panic after some calls. If the run has not called a step yet, the panic ends the run or the call that starts
// it. After the end of the run such a panic has no effect. Other runs in the queue are not affected.
func TestPendingRunWithABadContext(t *testing.T) {
	outcomes := map[string]int{}
	for calls := range 8 {
		inBubble(t, fmt.Sprint(calls, " calls"), func(t *testing.T) {
			rn := &kahn.Runner{MaxRuns: 1}
			first, err := rn.Start(t.Context(), graph(after("a")), takes(time.Second))
			require.NoError(t, err)
			ctx := &tiring{Context: t.Context(), left: calls}
			rec, called := newRecorder(), false
			g := graph(after("a"))
			run, err := rn.Start(ctx, g, func(context.Context, *kahn.Step) (any, error) {
				called = true
				require.False(t, ctx.panicked.Load())
				return nil, nil
			}, kahn.OnEvent(rec.add))
			if err != nil {
				require.ErrorAs(t, err, new(*kahn.PanicError))
				require.Nil(t, run)
				outcomes["refused"]++
			} else {
				res := endsWithin(t, run, 2*time.Second)
				_, err := run.Wait()
				require.NoError(t, kahntest.CheckEvents(g, res, rec.all()))
				if called {
					require.NoError(t, err)
					require.Equal(t, kahn.RunCompleted, res.Status)
				} else {
					require.ErrorAs(t, err, new(*kahn.PanicError))
					require.Equal(t, kahn.RunCancelled, res.Status)
				}
				outcomes[res.Status.String()]++
			}
			last, err := rn.Start(t.Context(), graph(after("a")), takes(0))
			require.NoError(t, err)
			for _, other := range []*kahn.Run{first, last} {
				res, err := other.Wait()
				require.NoError(t, err)
				require.Equal(t, kahn.RunCompleted, res.Status)
			}
		})
	}
	for _, outcome := range []string{"refused", "cancelled", "completed"} {
		require.Positive(t, outcomes[outcome], "%s: %v", outcome, outcomes)
	}
}

// tiring is a context whose Done panics after some calls.
type tiring struct {
	context.Context
	left     int
	panicked atomic.Bool
}

func (c *tiring) Done() <-chan struct{} {
	if c.left == 0 {
		c.panicked.Store(true)
		panic("tired")
	}
	c.left--
	return c.Context.Done()
}
