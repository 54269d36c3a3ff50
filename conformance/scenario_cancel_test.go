package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/machine"
)

func TestScenarioCancel(t *testing.T) {
	inBubble(t, "165 Cancel while steps run", func(t *testing.T) {
		g := graph(after("A"), kahn.Node{ID: "B", After: []string{"A"}, Do: neverStep(t)}, after("C"))
		r := tryControlled(t, t.Context(), g, untilStopped, soon(func(r *kahn.Run) { r.Cancel() }))
		r.expect("A:C B:C C:C", "cancelled")
		for _, id := range []string{"A", "B", "C"} {
			r.cause(id, kahn.CauseCancelRun)
		}
		r.count(event.NodeStarted, "B", 0)
		if r.last() != event.RunCancelled || !errors.Is(r.err, kahn.ErrCancelled) || !r.CancelRequested || r.Cause.Kind != kahn.CauseCancelRun {
			t.Errorf("%s, error %v, requested %v, cause %v", r.last(), r.err, r.CancelRequested, r.Cause.Kind)
		}
		if r.Duration != 10*ms {
			t.Errorf("the run took %v", r.Duration)
		}
	})

	inBubble(t, "166 a success after Cancel is kept", func(t *testing.T) {
		g := graph(after("A"), kahn.Node{ID: "B", After: []string{"A"}, Do: neverStep(t)})
		r := tryControlled(t, t.Context(), g, func(context.Context, *kahn.Step) (any, error) {
			time.Sleep(20 * ms)
			return 7, nil
		}, soon(func(r *kahn.Run) { r.Cancel() }))
		r.expect("A:ok B:C", "cancelled")
		if got, err := kahn.Output[int](r.Result, "A"); got != 7 || err != nil {
			t.Errorf("the output of A is %v, %v", got, err)
		}
	})

	inBubble(t, "166 a Cancel that stops nothing", func(t *testing.T) {
		r := tryControlled(t, t.Context(), graph(after("A")), func(context.Context, *kahn.Step) (any, error) {
			time.Sleep(20 * ms)
			return nil, nil
		}, soon(func(r *kahn.Run) { r.Cancel() }))
		r.expect("A:ok", "completed")
		if !r.CancelRequested || r.err != nil {
			t.Errorf("requested %v, error %v", r.CancelRequested, r.err)
		}
	})

	// The backoff begins at once and ends after a second. The stop comes in the meantime.
	for _, row := range []struct {
		name       string
		stop       func(*kahn.Run, context.CancelCauseFunc)
		nodes, run string
		cause      kahn.CauseKind
		err        error
	}{
		{"168 ctx ends during the backoff", func(_ *kahn.Run, cancel context.CancelCauseFunc) { cancel(errHost) },
			"A:C", "cancelled", kahn.CauseContext, errHost},
		{"168 Cancel during the backoff", func(run *kahn.Run, _ context.CancelCauseFunc) { run.Cancel() },
			"A:C", "cancelled", kahn.CauseCancelRun, kahn.ErrCancelled},
		{"168 CancelNode during the backoff", func(run *kahn.Run, _ context.CancelCauseFunc) {
			if err := run.CancelNode("A"); err != nil {
				panic(err)
			}
		}, "A:C", "cancelled", kahn.CauseCancelNode, kahn.ErrNodeStopped},
		{"168 AbortAll during the backoff", func(run *kahn.Run, _ context.CancelCauseFunc) { run.AbortAll(errHost) },
			"A:X", "failed", kahn.CauseAbortAll, errHost},
	} {
		inBubble(t, row.name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			var c calls
			g := graph(kahn.Node{ID: "A", Retry: kahn.RetryStandard()})
			r := tryControlled(t, ctx, g, c.count(always(errStep)), soon(func(run *kahn.Run) {
				if status, _ := run.NodeStatus("A"); status != kahn.Retrying {
					t.Errorf("A is %v", status)
				}
				row.stop(run, cancel)
			}))
			r.expect(row.nodes, row.run)
			r.cause("A", row.cause)
			r.expectDelays("A", time.Second)
			if n := r.node("A"); c.of("A") != 1 || !errors.Is(n.LastErr, errStep) || n.Attempts != 1 || r.Duration != 10*ms {
				t.Errorf("%d calls, %+v after %v", c.of("A"), n, r.Duration)
			}
			if !errors.Is(r.err, row.err) || errors.Is(r.err, errStep) {
				t.Errorf("error %v", r.err)
			}
		})
	}

	for _, cause := range []error{nil, errHost} {
		inBubble(t, fmt.Sprintf("169 ctx cancelled before the call, cause %v", cause), func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			cancel(cause)
			r := tryControlled(t, ctx, graph(after("A"), after("B", "A")), neverStep(t), nil)
			r.expect("A:C B:C", "cancelled")
			r.cause("A", kahn.CauseContext)
			r.cause("B", kahn.CauseContext)
			r.order("run.started", "run.cancelled")
			if want := context.Cause(ctx); !errors.Is(r.err, want) || !r.CancelRequested {
				t.Errorf("error %v, requested %v", r.err, r.CancelRequested)
			}
		})
	}

	inBubble(t, "170 the caller's deadline passes", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 30*ms)
		defer cancel()
		r := tryControlled(t, ctx, graph(after("A")), untilStopped, nil)
		r.expect("A:C", "cancelled")
		r.cause("A", kahn.CauseContext)
		r.count(event.NodeTimedOut, "A", 0)
		if !errors.Is(r.err, context.DeadlineExceeded) || errors.Is(r.err, kahn.ErrRunTimeout) || r.last() != event.RunCancelled || r.Duration != 30*ms {
			t.Errorf("error %v, %s, %v", r.err, r.last(), r.Duration)
		}
	})

	// The step returns at the instant at which its deadline passes, before the run handles the timeout.
	inBubble(t, "170 the step is faster than the run", func(t *testing.T) {
		for range 100 {
			ctx, cancel := context.WithTimeout(t.Context(), 30*ms)
			r := tryControlled(t, ctx, graph(after("A")), func(context.Context, *kahn.Step) (any, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			}, nil)
			cancel()
			r.expect("A:C", "cancelled")
		}
	})

	inBubble(t, "170 the timeout of the run is a failure", func(t *testing.T) {
		r := try(t, graph(after("A"), after("B", "A")), untilStopped, kahn.Timeout(30*ms))
		r.expect("A:X B:X", "failed")
		r.cause("A", kahn.CauseRunTimeout)
		r.cause("B", kahn.CauseRunTimeout)
		if !errors.Is(r.err, kahn.ErrRunTimeout) || r.last() != event.RunTimedOut || r.Cause.Kind != kahn.CauseRunTimeout || r.CancelRequested {
			t.Errorf("error %v, %s, cause %v", r.err, r.last(), r.Cause.Kind)
		}
	})
}

func TestScenarioAbort(t *testing.T) {
	inBubble(t, "172 AbortAll while steps run", func(t *testing.T) {
		for _, cause := range []error{errHost, nil} {
			g := graph(after("A"), kahn.Node{ID: "B", After: []string{"A"}, Do: neverStep(t)}, after("C"))
			r := tryControlled(t, t.Context(), g, untilStopped, soon(func(run *kahn.Run) { run.AbortAll(cause) }))
			r.expect("A:X B:X C:X", "failed")
			for _, id := range []string{"A", "B", "C"} {
				r.cause(id, kahn.CauseAbortAll)
			}
			want := cause
			if want == nil {
				want = kahn.ErrAborted
			}
			if r.last() != event.RunFailed || !errors.Is(r.err, want) || r.CancelRequested {
				t.Errorf("%s, error %v, requested %v", r.last(), r.err, r.CancelRequested)
			}
		}
	})

	inBubble(t, "173 AbortAll leaves terminal nodes alone", func(t *testing.T) {
		g := graph(kahn.Node{ID: "A", Disabled: true}, kahn.Node{ID: "done", Do: takes(0)}, after("B"))
		r := tryControlled(t, t.Context(), g, untilStopped, soon(func(run *kahn.Run) { run.AbortAll(errHost) }))
		r.expect("A:S/ann done:ok B:X", "failed")
	})

	inBubble(t, "174 the first failure stops what runs", func(t *testing.T) {
		var cause error
		r := try(t, graph(
			kahn.Node{ID: "A", Do: fails(10 * ms)},
			kahn.Node{ID: "B", Do: func(ctx context.Context, s *kahn.Step) (any, error) {
				<-ctx.Done()
				cause = context.Cause(ctx)
				return nil, ctx.Err()
			}},
			kahn.Node{ID: "C", After: []string{"B"}, Do: neverStep(t)},
		), nil, kahn.AbortRunning)
		r.expect("A:F B:X C:X", "failed")
		r.cause("A", kahn.CauseStepError)
		r.cause("B", kahn.CauseFailFast)
		r.cause("C", kahn.CauseFailFast)
		if !errors.Is(cause, kahn.ErrAborted) || r.Duration != 10*ms || !errors.Is(r.err, errStep) {
			t.Errorf("cause %v, %v, error %v", cause, r.Duration, r.err)
		}
		if origins := r.node("B").Cause.Origins; !slices.Equal(origins, []string{"A"}) {
			t.Errorf("origins of B: %v", origins)
		}
	})

	inBubble(t, "174 StopScheduling lets the attempt run out", func(t *testing.T) {
		r := try(t, graph(
			kahn.Node{ID: "A", Do: fails(10 * ms)},
			kahn.Node{ID: "B", Do: takes(20 * ms)},
			kahn.Node{ID: "C", After: []string{"B"}, Do: neverStep(t)},
			kahn.Node{ID: "D", Do: fails(20 * ms), Retry: kahn.RetryStandard()},
		), nil, kahn.StopScheduling)
		r.expect("A:F B:ok C:X D:F", "failed")
		r.expectDelays("D") // no retries after the stop of the run
		r.cause("C", kahn.CauseFailFast)
	})

	inBubble(t, "174 what backs off, waits for a slot or for others does not start any more", func(t *testing.T) {
		for _, mode := range []kahn.FailureMode{kahn.StopScheduling, kahn.AbortRunning} {
			r := try(t, graph(
				kahn.Node{ID: "R", Priority: 2, Retry: kahn.RetryStandard(), Do: always(errHost)},
				kahn.Node{ID: "A", Priority: 1, Do: fails(10 * ms)},
				kahn.Node{ID: "Q", Do: neverStep(t)},
				kahn.Node{ID: "W", After: []string{"Q"}, Do: neverStep(t)},
				kahn.Node{ID: "K", After: []string{"W"}, Cleanup: true, Do: takes(ms)},
			), nil, mode, kahn.Limit(1))
			r.expect("R:X A:F Q:X W:X K:ok", "failed")
			if n := r.node("R"); n.Attempts != 1 || !errors.Is(n.LastErr, errHost) || r.at(event.NodeAborted, "R") != 10*ms {
				t.Errorf("%+v", n)
			}
			if !errors.Is(r.err, errStep) || errors.Is(r.err, errHost) {
				t.Errorf("error %v", r.err)
			}
		}
	})

	for _, mode := range []kahn.FailureMode{kahn.StopScheduling, kahn.AbortRunning} {
		inBubble(t, fmt.Sprintf("176 a failure that can be handled does not stop the run, %v", mode), func(t *testing.T) {
			r := try(t, graph(
				kahn.Node{ID: "A", Do: fails(10 * ms)},
				kahn.Node{ID: "H", In: []kahn.Edge{{From: "A", On: kahn.OnFailure}}},
				kahn.Node{ID: "B"},
				kahn.Node{ID: "C", After: []string{"B"}},
			), takes(20*ms), mode)
			r.expect("A:F H:ok B:ok C:ok", "completed+d")
		})
	}

	inBubble(t, "177 a critical node stops the run in every mode", func(t *testing.T) {
		for _, mode := range []kahn.FailureMode{kahn.Continue, kahn.StopScheduling, kahn.AbortRunning} {
			r := try(t, graph(
				kahn.Node{ID: "A", Critical: true, Do: fails(10 * ms)},
				kahn.Node{ID: "B", Do: untilStopped},
				kahn.Node{ID: "C", After: []string{"B"}, Do: neverStep(t)},
			), nil, mode)
			r.expect("A:F B:X C:X", "failed")
			r.cause("B", kahn.CauseFailFast)
		}
	})

	inBubble(t, "177 a critical node stops the run when it has failed for good", func(t *testing.T) {
		r := try(t, graph(
			kahn.Node{ID: "A", Critical: true, Retry: kahn.RetryStandard(), Do: script(errStep)},
			kahn.Node{ID: "B", Do: takes(2 * time.Second)},
		), nil)
		r.expect("A:ok B:ok", "completed")
	})

	inBubble(t, "178 a step aborts the run", func(t *testing.T) {
		r := try(t, graph(
			kahn.Node{ID: "A", Do: untilStopped},
			kahn.Node{ID: "B", Retry: kahn.RetryStandard(), Do: func(context.Context, *kahn.Step) (any, error) {
				time.Sleep(10 * ms)
				return nil, kahn.AbortRun(errStep)
			}},
		), nil)
		r.expect("A:X B:F", "failed")
		r.cause("A", kahn.CauseFailFast)
		r.cause("B", kahn.CauseStepError)
		if !errors.Is(r.err, errStep) || r.Duration != 10*ms {
			t.Errorf("error %v after %v", r.err, r.Duration)
		}
	})
}

func TestScenarioCleanup(t *testing.T) {
	inBubble(t, "181 a cleanup node runs in a cancelled run", func(t *testing.T) {
		r := tryControlled(t, t.Context(), graph(
			kahn.Node{ID: "A", Do: untilStopped},
			kahn.Node{ID: "K", After: []string{"A"}, Cleanup: true, Do: takes(time.Second)}, // K would fail if its context ended
		), nil, soon(func(r *kahn.Run) { r.Cancel() }))
		r.expect("A:C K:ok", "cancelled")
		r.order("node.cancelled A", "node.queued K", "node.started K", "node.completed K", "run.cancelled")
		if r.Duration != time.Second+10*ms {
			t.Errorf("the run took %v", r.Duration)
		}
	})

	inBubble(t, "181 also when ctx was done before the call", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		r := tryControlled(t, ctx, graph(
			kahn.Node{ID: "A", Do: neverStep(t)},
			kahn.Node{ID: "K", After: []string{"A"}, Cleanup: true},
			kahn.Node{ID: "Z", Kind: kahn.KindEnd},
		), takes(time.Second), nil)
		r.expect("A:C K:ok Z:ok", "cancelled")
	})

	inBubble(t, "182 AllDone alone does not start in a cancelled run", func(t *testing.T) {
		r := tryControlled(t, t.Context(), graph(
			kahn.Node{ID: "A", Do: untilStopped},
			kahn.Node{ID: "K", After: []string{"A"}, Join: kahn.AllDone, Do: neverStep(t)},
		), nil, soon(func(r *kahn.Run) { r.Cancel() }))
		r.expect("A:C K:C", "cancelled")
		r.cause("K", kahn.CauseCancelRun)
	})

	verdict := func(status kahn.RunStatus) kahn.Node {
		return kahn.Node{ID: "Z", Kind: kahn.KindEnd, Do: func(context.Context, *kahn.Step) (any, error) {
			return kahn.EndVerdict{Status: status, Output: "said Z"}, nil
		}}
	}

	inBubble(t, "184 a verdict cannot un-cancel", func(t *testing.T) {
		r := tryControlled(t, t.Context(), graph(kahn.Node{ID: "A", Do: untilStopped}, verdict(kahn.RunCompleted)), nil, soon(func(r *kahn.Run) { r.Cancel() }))
		r.expect("A:C Z:ok", "cancelled")
		if r.Output() != "said Z" || !errors.Is(r.err, kahn.ErrCancelled) {
			t.Errorf("output %v, error %v", r.Output(), r.err)
		}
	})

	inBubble(t, "185 a verdict excuses a failure", func(t *testing.T) {
		r := try(t, graph(kahn.Node{ID: "A", Do: fails(ms)}, verdict(kahn.RunCompleted)), nil)
		r.expect("A:F Z:ok", "completed")
		r.order("node.failed A", "node.started Z", "node.completed Z", "run.completed")
		if r.Output() != "said Z" {
			t.Errorf("output %v", r.Output())
		}
		ended := r.events[len(r.events)-1].Payload.(event.RunEnd)
		if ended.TotalSteps != 1 || ended.FailedSteps != 1 || !slices.Equal(ended.Failed, []string{"A"}) {
			t.Errorf("%+v", ended)
		}
	})

	inBubble(t, "186 a verdict fails the run", func(t *testing.T) {
		r := try(t, graph(kahn.Node{ID: "A", Do: takes(ms)}, verdict(kahn.RunFailed)), nil)
		r.expect("A:ok Z:ok", "failed")
		if r.last() != event.RunFailed {
			t.Errorf("%s", r.last())
		}
	})

	t.Run("188 the immediate form of AbortAll", func(t *testing.T) {
		p, err := graph(after("A"), after("B")).Compile()
		if err != nil {
			t.Fatal(err)
		}
		st, err := kahn.NewState(p)
		if err != nil {
			t.Fatal(err)
		}
		var running []machine.Task
		for task, ok := st.Next(); ok; task, ok = st.Next() {
			running = append(running, task)
		}
		if len(running) != 2 {
			t.Fatalf("%d nodes run", len(running))
		}
		if err := st.Settle(running[1].Token, machine.Outcome{Status: kahn.Completed}); err != nil {
			t.Fatal(err)
		}
		st.AbortAll()
		a, b := running[0], running[1]
		if st.Status(a.Ref) != kahn.Aborted || st.Status(b.Ref) != kahn.Completed {
			t.Errorf("A is %v, B %v", st.Status(a.Ref), st.Status(b.Ref))
		}
		if err := st.Settle(a.Token, machine.Outcome{Status: kahn.Completed}); !errors.Is(err, kahn.ErrStale) {
			t.Errorf("the late result of A: %v", err)
		}
		if st.Status(a.Ref) != kahn.Aborted {
			t.Errorf("the late result made A %v", st.Status(a.Ref))
		}
		if task, ok := st.Next(); ok {
			t.Errorf("%s starts", p.ID(task.Ref))
		}
	})

	inBubble(t, "189 a decision is latched", func(t *testing.T) {
		r := try(t, graph(
			kahn.Node{ID: "A", Priority: 2, Do: takes(10 * ms)},
			kahn.Node{ID: "B", Priority: 1, Do: fails(10 * ms)},
			kahn.Node{ID: "J", After: []string{"A", "B"}, Join: kahn.AnySucceeded, Do: takes(10 * ms)},
		), nil, kahn.Limit(1))
		r.expect("A:ok B:F J:ok", "completed+d")
		r.order("node.queued J", "node.started B", "node.failed B", "node.started J")
	})
}

// A cancelled run stays cancelled when another process continues it. A node that exists only in the new version of the graph does not start.
func TestResumeOfCancelledRunWithMoreNodes(t *testing.T) {
	inBubble(t, "resume", func(t *testing.T) {
		a, c := kahn.Node{ID: "A", Do: untilStopped}, kahn.Node{ID: "C", After: []string{"A"}, Cleanup: true, Do: takes(20 * ms)}
		run, err := startRun(t, t.Context(), graph(a, c), nothing)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * ms)
		run.Cancel()
		time.Sleep(5 * ms)
		s := reload(t, run.Snapshot()) // C is running
		_, _ = run.Wait()
		res, err := resumeRun(t, t.Context(), graph(a, c, kahn.Node{ID: "N", Do: neverStep(t)}), nothing, s, nil, kahn.AllowGraphChange())
		if !errors.Is(err, kahn.ErrCancelled) || status(res, "N") != kahn.Cancelled || status(res, "C") != kahn.Completed {
			t.Errorf("%v, N is %v, C is %v", err, status(res, "N"), status(res, "C"))
		}
	})
}
