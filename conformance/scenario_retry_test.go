package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
)

func TestScenarioRetry(t *testing.T) {
	standard := kahn.RetryStandard()
	hard := errors.New("no use in trying again")

	inBubble(t, "136 no policy, one attempt", func(t *testing.T) {
		var c calls
		r := try(t, graph(after("A")), c.count(always(errStep)))
		r.expect("A:F", "failed")
		r.expectDelays("A")
		if c.of("A") != 1 || !errors.Is(r.err, errStep) {
			t.Errorf("%d calls, error %v", c.of("A"), r.err)
		}
	})

	inBubble(t, "137 two failures and a success", func(t *testing.T) {
		var c calls
		r := try(t, graph(kahn.Node{ID: "A", Retry: standard}), c.count(script(errStep, errStep)))
		r.expect("A:ok", "completed")
		r.expectDelays("A", time.Second, 2*time.Second)
		r.order("node.queued A", "node.started A", "node.retried A", "node.queued A", "node.started A", "node.retried A",
			"node.queued A", "node.started A", "node.completed A")
		if c.of("A") != 3 || r.Duration != 3*time.Second || r.node("A").Attempts != 3 || !errors.Is(r.node("A").LastErr, errStep) {
			t.Errorf("%d calls, %v, %+v", c.of("A"), r.Duration, r.node("A"))
		}
		for _, e := range r.find(event.NodeRetried, "A") {
			if p := e.Payload.(event.Retry); p.Cause != kahn.CauseStepError || !errors.Is(p.Err, errStep) {
				t.Errorf("%v", e)
			}
		}
	})

	inBubble(t, "137 every event of an attempt carries its number", func(t *testing.T) {
		for _, limit := range []int{0, 1} {
			r := try(t, graph(
				kahn.Node{ID: "A", Retry: standard, Do: script(errStep)},
				kahn.Node{ID: "B", After: []string{"A"}, Retry: standard, Do: script(errStep, errStep)},
				kahn.Node{ID: "C", After: []string{"B"}, Do: takes(ms)},
			), nil, kahn.Limit(limit))
			r.expect("A:ok B:ok C:ok", "completed")
			attempt := map[string]int{}
			for _, e := range r.events {
				if e.Type == event.NodeQueued {
					attempt[e.Node]++
				}
				if e.Node != "" && e.Attempt != attempt[e.Node] {
					t.Errorf("%s of %s carries attempt %d, expected %d", e.Type, e.Node, e.Attempt, attempt[e.Node])
				}
			}
		}
	})

	inBubble(t, "138 failures to the last attempt", func(t *testing.T) {
		r := try(t, graph(kahn.Node{ID: "A", Retry: standard}), always(errStep))
		r.expect("A:F", "failed")
		r.expectDelays("A", time.Second, 2*time.Second)
		r.count(event.NodeFailed, "A", 1)
		var own *kahn.NodeError
		if !errors.As(r.err, &own) || own.Attempt != 3 || own.Kind != kahn.CauseStepError {
			t.Errorf("error %v", r.err)
		}
		if failed := r.find(event.NodeFailed, "A")[0]; failed.Attempt != 3 {
			t.Errorf("%v is of attempt %d", failed, failed.Attempt)
		}
	})

	// The delays of a policy depend on the random number. The cap is applied before the jitter, and the first delay is InitialDelay.
	seconds := func(list ...float64) (delays []time.Duration) {
		for _, s := range list {
			delays = append(delays, time.Duration(s*float64(time.Second)))
		}
		return delays
	}
	for _, row := range []struct {
		name   string
		policy kahn.Retry
		u      float64
		want   []time.Duration
	}{
		{"140 half jitter at its lowest", kahn.RetryJittered(6), 0, seconds(.25, .5, 1, 2, 4)},
		{"141 half jitter in its middle", kahn.RetryJittered(7), .5, seconds(.375, .75, 1.5, 3, 6, 6)},
		{"141 unset fields are 500 ms, 8 s, half", kahn.Retry{MaxAttempts: 7}, .5, seconds(.375, .75, 1.5, 3, 6, 6)},
		{"141 no jitter", kahn.Retry{MaxAttempts: 7, Jitter: kahn.JitterNone}, .5, seconds(.5, 1, 2, 4, 8, 8)},
		{"141 full jitter", kahn.Retry{MaxAttempts: 7, Jitter: kahn.JitterFull}, .5, seconds(.25, .5, 1, 2, 4, 4)},
		{"141 full jitter at its lowest", kahn.Retry{MaxAttempts: 3, Jitter: kahn.JitterFull}, 0, seconds(0, 0)},
		{"141 a cap below the first delay", kahn.Retry{MaxAttempts: 3, MaxDelay: 100 * ms, Jitter: kahn.JitterNone}, .5, seconds(.1, .1)},
		{"141 standard", kahn.Retry{MaxAttempts: 8, InitialDelay: time.Second, MaxDelay: 30 * time.Second, Jitter: kahn.JitterNone}, .5,
			seconds(1, 2, 4, 8, 16, 30, 30)},
		{"141 a multiplier of one", kahn.Retry{MaxAttempts: 4, Multiplier: 1, Jitter: kahn.JitterNone}, .5, seconds(.5, .5, .5)},
		{"141 a multiplier below one", kahn.Retry{MaxAttempts: 4, Multiplier: .5, Jitter: kahn.JitterNone}, .5, seconds(.5, .25, .125)},
		{"141 no delay", kahn.Retry{MaxAttempts: 4, InitialDelay: -1}, .5, seconds(0, 0, 0)},
		{"141 no cap", kahn.Retry{MaxAttempts: 7, MaxDelay: -1, Jitter: kahn.JitterNone}, .5, seconds(.5, 1, 2, 4, 8, 16)},
	} {
		inBubble(t, row.name, func(t *testing.T) {
			var total time.Duration
			for _, d := range row.want {
				total += d
			}
			r := try(t, graph(kahn.Node{ID: "A", Retry: row.policy}), always(errStep), random(row.u))
			r.expect("A:F", "failed")
			r.expectDelays("A", row.want...)
			if r.Duration != total {
				t.Errorf("the run took %v, expected %v", r.Duration, total)
			}
			// The same policy comes from the defaults of the graph or of the run.
			g := graph(after("A"))
			g.Defaults.Retry = row.policy
			try(t, g, always(errStep), random(row.u)).expectDelays("A", row.want...)
			try(t, graph(after("A")), always(errStep), random(row.u), row.policy).expectDelays("A", row.want...)
		})
	}

	inBubble(t, "142 delays that would overflow", func(t *testing.T) {
		for _, jitter := range []kahn.Jitter{kahn.JitterNone, kahn.JitterHalf, kahn.JitterFull} {
			policy := kahn.Retry{MaxAttempts: 100, Multiplier: 10, Jitter: jitter}
			r := try(t, graph(kahn.Node{ID: "A", Retry: policy}), always(errStep), random(.999))
			r.expect("A:F", "failed")
			delays := r.delays("A")
			if len(delays) != 99 {
				t.Fatalf("%d delays", len(delays))
			}
			for i, d := range delays {
				if d <= 0 || d > 8*time.Second || i > 0 && d < delays[i-1] {
					t.Errorf("%v: delay %d is %v after %v", jitter, i+1, d, delays[max(i-1, 0)])
				}
			}
		}
	})

	inBubble(t, "142 delays without a cap saturate", func(t *testing.T) {
		policy := kahn.Retry{MaxAttempts: 100, InitialDelay: time.Second, Multiplier: 1e9, MaxDelay: -1, Jitter: kahn.JitterNone}
		r := tryControlled(t, t.Context(), graph(kahn.Node{ID: "A", Retry: policy}), always(errStep), func(run *kahn.Run) {
			time.Sleep(2 * time.Second)
			synctest.Wait()
			run.Cancel() // the delay is 31 or 292 years
		})
		r.expect("A:C", "cancelled")
		delays := r.delays("A")
		if len(delays) != 2 || delays[0] != time.Second || delays[1] < time.Duration(math.MaxInt64)/10 {
			t.Errorf("delays %v", delays)
		}
	})

	for _, row := range []struct {
		name   string
		policy kahn.Retry
		err    error
	}{
		{"144 a cause that RetryOn does not list", kahn.Retry{MaxAttempts: 3, RetryOn: []kahn.CauseKind{kahn.CauseTimeout}}, errStep},
		{"145 an empty RetryOn", kahn.Retry{MaxAttempts: 3, RetryOn: []kahn.CauseKind{}}, errStep},
		{"146 a permanent error", standard, kahn.Permanent(errStep)},
		{"146 a permanent error, wrapped", standard, fmt.Errorf("%w: %w", hard, kahn.Permanent(errStep))},
		{"146 an error that aborts the run", standard, kahn.AbortRun(errStep)},
	} {
		inBubble(t, row.name, func(t *testing.T) {
			var c calls
			r := try(t, graph(kahn.Node{ID: "A", Retry: row.policy}), c.count(always(row.err)))
			r.expect("A:F", "failed")
			r.expectDelays("A")
			r.cause("A", kahn.CauseStepError)
			if c.of("A") != 1 || !errors.Is(r.err, errStep) {
				t.Errorf("%d calls, error %v", c.of("A"), r.err)
			}
		})
	}

	inBubble(t, "144 a cause that RetryOn lists", func(t *testing.T) {
		policy := kahn.Retry{MaxAttempts: 3, InitialDelay: time.Second, Jitter: kahn.JitterNone, RetryOn: []kahn.CauseKind{kahn.CauseTimeout}}
		r := try(t, graph(kahn.Node{ID: "A", Retry: policy, Timeout: 50 * ms}), func(ctx context.Context, s *kahn.Step) (any, error) {
			if s.Attempt() == 1 {
				return untilStopped(ctx, s)
			}
			return nil, nil
		})
		r.expect("A:ok", "completed")
		r.expectDelays("A", time.Second)
		r.order("node.started A", "node.timed_out A", "node.retried A", "node.started A", "node.completed A")
		if timedOut := r.find(event.NodeTimedOut, "A")[0]; timedOut.Payload != (event.Timeout{Timeout: 50 * ms}) || timedOut.Attempt != 1 {
			t.Errorf("%v of attempt %d", timedOut, timedOut.Attempt)
		}
	})

	for _, row := range []struct {
		name string
		hint time.Duration
		want time.Duration
	}{
		{"148 a hint below the computed delay", 100 * ms, time.Second},
		{"148 a hint above the computed delay", 10 * time.Second, 10 * time.Second},
		{"148 a hint above MaxDelay", 2 * time.Minute, 2 * time.Minute},
		{"148 a hint of exactly MaxRetryAfter", 5 * time.Minute, 5 * time.Minute},
		{"148 a negative hint", -time.Hour, time.Second},
	} {
		inBubble(t, row.name, func(t *testing.T) {
			r := try(t, graph(kahn.Node{ID: "A", Retry: standard}), script(kahn.RateLimited(errStep, row.hint)))
			r.expect("A:ok", "completed")
			r.expectDelays("A", row.want)
		})
	}

	inBubble(t, "148 a hint is not jittered", func(t *testing.T) {
		r := try(t, graph(kahn.Node{ID: "A", Retry: kahn.RetryJittered(3)}), script(kahn.RateLimited(nil, time.Minute)), random(0))
		r.expect("A:ok", "completed")
		r.expectDelays("A", time.Minute)
	})

	inBubble(t, "149 a hint above MaxRetryAfter", func(t *testing.T) {
		r := try(t, graph(kahn.Node{ID: "A", Retry: standard}), always(kahn.RateLimited(errStep, 10*time.Minute)))
		r.expect("A:F", "failed")
		r.expectDelays("A")
		r.cause("A", kahn.CauseRateLimit)
		if r.Duration != 0 || !errors.Is(r.err, errStep) {
			t.Errorf("%v, error %v", r.Duration, r.err)
		}
	})

	inBubble(t, "150 a wait that cannot fit is not slept", func(t *testing.T) {
		var c calls
		r := try(t, graph(kahn.Node{ID: "A", Retry: standard, OverallTimeout: 1500 * ms}), c.count(always(errStep)))
		r.expect("A:F", "failed")
		r.expectDelays("A", time.Second)
		r.cause("A", kahn.CauseStepError) // the last error and not a timeout: no timeout has passed
		if c.of("A") != 2 || r.Duration != time.Second || !errors.Is(r.err, errStep) {
			t.Errorf("%d calls, %v, error %v", c.of("A"), r.Duration, r.err)
		}
	})

	inBubble(t, "150 a wait that does not fit into the run", func(t *testing.T) {
		r := try(t, graph(kahn.Node{ID: "A", Retry: standard}), always(errStep), kahn.Timeout(1500*ms))
		r.expect("A:F", "failed")
		r.expectDelays("A", time.Second)
		if r.Duration != time.Second || r.last() != event.RunFailed {
			t.Errorf("%v, %s", r.Duration, r.last())
		}
	})
}

func TestScenarioTimeout(t *testing.T) {
	standard := kahn.RetryStandard()

	inBubble(t, "152 a value after the deadline is dropped", func(t *testing.T) {
		r := try(t, graph(kahn.Node{ID: "A", Timeout: 50 * ms, Do: func(context.Context, *kahn.Step) (any, error) {
			time.Sleep(60 * ms)
			return "late", nil
		}}), nil)
		r.expect("A:F", "failed")
		r.cause("A", kahn.CauseTimeout)
		r.order("node.timed_out A", "node.failed A")
		if n := r.node("A"); n.Output != nil || n.Abandoned || !errors.Is(n.Err, kahn.ErrTimeout) || !errors.Is(r.err, context.DeadlineExceeded) {
			t.Errorf("%+v, error %v", n, r.err)
		}
		if at := r.at(event.NodeTimedOut, "A"); at != 50*ms || r.Duration != 60*ms {
			t.Errorf("timed out at %v, over at %v", at, r.Duration)
		}
	})

	inBubble(t, "152 the overall timeout, too", func(t *testing.T) {
		r := try(t, graph(kahn.Node{ID: "A", OverallTimeout: 50 * ms, Retry: standard, Do: func(context.Context, *kahn.Step) (any, error) {
			time.Sleep(60 * ms)
			return "late", nil
		}}), nil)
		r.expect("A:F", "failed")
		r.cause("A", kahn.CauseTimeout)
		r.expectDelays("A") // the overall timeout is not retried
		if e := r.find(event.NodeTimedOut, "A")[0]; e.Payload != (event.Timeout{Timeout: 50 * ms, Overall: true}) {
			t.Errorf("%v", e)
		}
	})

	inBubble(t, "152 a retry after a timeout", func(t *testing.T) {
		r := try(t, graph(kahn.Node{ID: "A", Timeout: 50 * ms, Retry: standard}), untilStopped)
		r.expect("A:F", "failed")
		r.expectDelays("A", time.Second, 2*time.Second)
		r.count(event.NodeTimedOut, "A", 3)
		if r.Duration != 3*time.Second+150*ms {
			t.Errorf("%v", r.Duration)
		}
	})

	inBubble(t, "153 a step that ignores its context for ever", func(t *testing.T) {
		over := make(chan struct{})
		var c calls
		r := try(t, graph(kahn.Node{ID: "A", Timeout: 50 * ms, Retry: standard}), c.count(func(context.Context, *kahn.Step) (any, error) {
			<-over
			return "late", nil
		}))
		r.expect("A:F", "failed")
		r.expectDelays("A")
		r.cause("A", kahn.CauseTimeout)
		if n := r.node("A"); !n.Abandoned || n.Output != nil || !slices.Equal(r.Abandoned, []string{"A"}) || c.of("A") != 1 {
			t.Errorf("%+v, abandoned %v, %d calls", n, r.Abandoned, c.of("A"))
		}
		if r.Duration != 5*time.Second+50*ms {
			t.Errorf("the run took %v: a timeout and the default grace", r.Duration)
		}
		close(over)
		synctest.Wait()
		if n := r.node("A"); n.Output != nil || n.Status != kahn.Failed {
			t.Errorf("the late result changed %+v", n)
		}
	})

	inBubble(t, "154 an abandoned step gives its slot back", func(t *testing.T) {
		over := make(chan struct{})
		r := try(t, graph(
			kahn.Node{ID: "A", Timeout: 50 * ms, Do: func(_ context.Context, s *kahn.Step) (any, error) {
				<-over
				s.Emit("late")
				return "late", nil
			}},
			kahn.Node{ID: "B", Do: func(ctx context.Context, s *kahn.Step) (any, error) {
				close(over) // A returns while B is running
				return takes(10*ms)(ctx, s)
			}},
		), nil, kahn.Limit(1), kahn.CancelGrace(time.Second))
		r.expect("A:F B:ok", "failed")
		r.count(event.NodeDelta, "A", 0)
		if at := r.at(event.NodeStarted, "B"); at != 50*ms+time.Second {
			t.Errorf("B started at %v", at)
		}
		if n := r.node("A"); !n.Abandoned || n.Output != nil {
			t.Errorf("%+v", n)
		}
	})
}

func TestScenarioPanic(t *testing.T) {
	inBubble(t, "156 a panic that is retried", func(t *testing.T) {
		policy := kahn.Retry{MaxAttempts: 2, RetryOn: []kahn.CauseKind{kahn.CausePanic}}
		r := try(t, graph(kahn.Node{ID: "A", Retry: policy}), func(_ context.Context, s *kahn.Step) (any, error) {
			if s.Attempt() == 1 {
				panic("at the first attempt")
			}
			return nil, nil
		})
		r.expect("A:ok", "completed")
		var p *kahn.PanicError
		if retried := r.find(event.NodeRetried, "A"); len(retried) != 1 || retried[0].Payload.(event.Retry).Cause != kahn.CausePanic ||
			!errors.As(r.node("A").LastErr, &p) || p.Value != "at the first attempt" || !strings.Contains(string(p.Stack), "scenario_retry_test.go") {
			t.Errorf("%v, last error %v", retried, r.node("A").LastErr)
		}
	})

	inBubble(t, "156 a panic is not retried unless listed", func(t *testing.T) {
		r := try(t, graph(kahn.Node{ID: "A", Retry: kahn.RetryStandard()}), func(context.Context, *kahn.Step) (any, error) { panic("always") })
		r.expect("A:F", "failed")
		r.expectDelays("A")
		r.cause("A", kahn.CausePanic)
	})

	inBubble(t, "157 Goexit", func(t *testing.T) {
		for _, limit := range []int{0, 1} {
			r := try(t, graph(
				kahn.Node{ID: "A", Retry: kahn.RetryStandard(), Do: func(context.Context, *kahn.Step) (any, error) {
					runtime.Goexit()
					return nil, nil
				}},
				kahn.Node{ID: "B", After: []string{"A"}, Do: neverStep(t)},
				after("C"),
			), takes(ms), kahn.Limit(limit))
			r.expect("A:F B:X C:ok", "failed")
			r.expectDelays("A")
			r.cause("A", kahn.CauseGoexit)
			if !errors.Is(r.err, kahn.ErrGoexit) {
				t.Errorf("error %v", r.err)
			}
		}
	})

	for _, row := range []struct {
		name  string
		err   error
		cause kahn.CauseKind
	}{
		{"158 context.Canceled that nobody asked for", context.Canceled, kahn.CauseStepError},
		{"158 context.Canceled, wrapped", fmt.Errorf("call: %w", context.Canceled), kahn.CauseStepError},
		{"158 context.DeadlineExceeded that nobody asked for", context.DeadlineExceeded, kahn.CauseTimeout},
	} {
		inBubble(t, row.name, func(t *testing.T) {
			r := try(t, graph(after("A"), after("B", "A")), always(row.err))
			r.expect("A:F B:X", "failed")
			r.cause("A", row.cause)
			if !errors.Is(r.err, row.err) {
				t.Errorf("error %v", r.err)
			}
		})
	}

	inBubble(t, "160 a propagated failure is not retried", func(t *testing.T) {
		r := try(t, graph(
			kahn.Node{ID: "A", Do: always(errStep)},
			kahn.Node{ID: "B", After: []string{"A"}, OnUpstreamFailure: kahn.UpstreamPropagate, Retry: kahn.RetryStandard(), Do: neverStep(t)},
		), nil)
		r.expect("A:F B:F", "failed")
		r.expectDelays("B")
		r.cause("B", kahn.CauseUpstreamFailure)
		if n := r.node("B"); n.Attempts != 0 || !slices.Equal(n.Cause.Origins, []string{"A"}) || r.Duration != 0 ||
			!strings.Contains(n.Err.Error(), "upstream_failure") {
			t.Errorf("%+v after %v", n, r.Duration)
		}
		var runErr *kahn.RunError
		if !errors.As(r.err, &runErr) || len(runErr.Errs) != 1 { // B is not an origin
			t.Errorf("error %v", r.err)
		}
	})

	inBubble(t, "164 deltas are counted across attempts", func(t *testing.T) {
		var first atomic.Pointer[kahn.Step]
		r := try(t, graph(kahn.Node{ID: "A", Retry: kahn.RetryStandard()}, after("B", "A")), func(_ context.Context, s *kahn.Step) (any, error) {
			switch {
			case s.ID() == "B":
				s.Emit("of another node")
			case s.Attempt() == 1:
				first.Store(s)
				s.Emit("a")
				s.Emit("b")
				s.Emit("c")
				return nil, errStep
			default:
				first.Load().Emit("late, of an attempt that is over")
				s.Emit("d")
				s.Emit("e")
			}
			return nil, nil
		})
		r.expect("A:ok B:ok", "completed")
		var got []string
		for _, e := range r.find(event.NodeDelta, "A") {
			d := e.Payload.(event.Delta)
			got = append(got, fmt.Sprintf("%d%v@%d", d.Index, d.Chunk, e.Attempt))
		}
		if text := strings.Join(got, " "); text != "1a@1 2b@1 3c@1 4d@2 5e@2" {
			t.Errorf("deltas %s", text)
		}
		if d := r.find(event.NodeDelta, "B")[0].Payload.(event.Delta); d.Index != 1 {
			t.Errorf("the first delta of B has index %d", d.Index)
		}
	})
}
