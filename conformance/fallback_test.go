package conformance_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/seed-c794f7ef/kahn"
)

// TestFallbackIsTheLastWord: a node is not attempted again after its fallback, however the fallback ends.
func TestFallbackIsTheLastWord(t *testing.T) {
	inBubble(t, "Goexit after its time is up", func(t *testing.T) {
		var c calls
		g := graph(kahn.Node{ID: "A", Cleanup: true, Retry: kahn.Retry{MaxAttempts: 3, RetryOn: []kahn.CauseKind{kahn.CauseTimeout}},
			Do: c.count(always(errStep)),
			Fallback: func(ctx context.Context, _ error) (any, error) {
				<-ctx.Done()
				runtime.Goexit()
				return nil, nil
			}})
		r := try(t, g, nil, kahn.CleanupTimeout(10*ms))
		r.expect("A:F", "failed")
		if c.of("A") != 1 {
			t.Errorf("%d attempts", c.of("A"))
		}
	})
	inBubble(t, "Goexit keeps the step's error", func(t *testing.T) {
		g := graph(kahn.Node{ID: "A", Do: always(errStep), Fallback: func(context.Context, error) (any, error) { runtime.Goexit(); return nil, nil }})
		r := try(t, g, nil)
		r.expect("A:F", "failed")
		r.cause("A", kahn.CauseGoexit)
		if !errors.Is(r.err, errStep) || !errors.Is(r.err, kahn.ErrGoexit) {
			t.Errorf("the error is %v", r.err)
		}
	})
	inBubble(t, "an overall timeout that passes as the step returns", func(t *testing.T) {
		for range size(2000, 200, 2000) { // the order in which the timeout passes and the step returns is random
			g := graph(kahn.Node{ID: "A", OverallTimeout: 5 * ms, Do: fails(5 * ms),
				Fallback: func(ctx context.Context, _ error) (any, error) {
					select {
					case <-ctx.Done():
						return nil, ctx.Err()
					case <-time.After(time.Hour):
						return "far too late", nil
					}
				}})
			r := try(t, g, nil, kahn.CancelGrace(10*ms))
			if r.node("A").Status != kahn.Failed || r.Duration != 5*ms {
				t.Fatalf("A is %v, the run took %v", r.node("A").Status, r.Duration)
			}
		}
	})
}

// TestLastErrBelongsToItsAttempt: the LastErr of an attempt does not change when the node fails later.
func TestLastErrBelongsToItsAttempt(t *testing.T) {
	inBubble(t, "of an abandoned first attempt", func(t *testing.T) {
		said := make(chan error)
		g := graph(kahn.Node{ID: "A", Do: func(_ context.Context, s *kahn.Step) (any, error) {
			time.Sleep(time.Second)
			said <- s.LastErr()
			return nil, nil
		}})
		tryControlled(t, t.Context(), g, nil, soon(func(r *kahn.Run) { r.Cancel() }), kahn.CancelGrace(ms)).expect("A:C", "cancelled")
		if err := <-said; err != nil {
			t.Errorf("the first attempt follows %v", err)
		}
	})
}

// TestCleanupMembersOfAGroup: the failure of a group does not stop cleanup nodes of the group.
func TestCleanupMembersOfAGroup(t *testing.T) {
	inBubble(t, "run on", func(t *testing.T) {
		g := graph(kahn.Node{ID: "A", Groups: []string{"g"}, Do: fails(10 * ms)}, kahn.Node{ID: "B", Groups: []string{"g"}, Do: untilStopped},
			kahn.Node{ID: "K", Groups: []string{"g"}, Cleanup: true, Do: takes(50 * ms)})
		g.Groups = []kahn.Group{{Name: "g", CancelOnFailure: true}}
		try(t, g, nil).expect("A:F B:X K:ok", "failed")
	})
}
