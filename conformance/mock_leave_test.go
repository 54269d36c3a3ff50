package conformance_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
)

// TestMocksOfALeftRun: the mock of a gate or of a composite needs no slot. Leaving the run interrupts the mock like a step, and the next life
// calls it again. If the run is stopped while it is being left, the same life calls the mock of a cleanup node again.
func TestMocksOfALeftRun(t *testing.T) {
	sub := graph(after("x"))
	for name, n := range map[string]kahn.Node{
		"a composite": {ID: "E", Sub: sub}, "a gate": gate("E"), "a loop": {ID: "E", Sub: sub, Loop: &kahn.Loop{While: func(kahn.View) (bool, error) { return false, nil }, MaxIterations: 1}},
		"a step": after("E"), "a condition": {ID: "E", Test: func(kahn.View) (any, error) { return true, nil }},
	} {
		for _, cleanup := range []bool{false, true} {
			if n.Cleanup = cleanup; cleanup && n.Kind != "" {
				continue
			}
			inBubble(t, fmt.Sprintf("%s, cleanup %v", name, cleanup), func(t *testing.T) {
				calls := 0
				mocks := kahn.TestMode{Mocks: map[string]kahn.Mock{"E": {Do: func(ctx context.Context, s *kahn.Step) (any, error) {
					calls++
					return takes(time.Minute)(ctx, s)
				}}}}
				g := graph(n, after("F", "E"), after("L"))
				rn, rec := new(kahn.Runner), newRecorder()
				run, err := rn.Start(t.Context(), g, takes(10*time.Second), mocks, kahn.OnEvent(rec.add), kahn.CleanupTimeout(time.Hour))
				if err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				ctx, cancel := context.WithTimeout(t.Context(), ms)
				defer cancel()
				begin := time.Now()
				if err := rn.Shutdown(ctx); err == nil || time.Since(begin) != ms {
					t.Errorf("after %v: %v", time.Since(begin), err)
				}
				res, err := run.Wait()
				r := trial{res, t, err, rec.all()}
				checkEvents(t, g, res, r.events)
				if res.Status != kahn.RunSuspended || calls != 1 {
					t.Errorf("it is %v after %d calls\n%s", res.Status, calls, eventText(r.events))
				}
				r = r.resume(g, takes(ms), nil, mocks, kahn.CleanupTimeout(time.Hour))
				if r.Status != kahn.RunCompleted || calls != 2 || r.node("E").Attempts != 2 {
					t.Errorf("it is %v after %d calls\n%s", r.Status, calls, eventText(r.events))
				}
			})
		}
	}
	inBubble(t, "a stop while the run is being left", func(t *testing.T) {
		calls := 0
		mocks := kahn.TestMode{Mocks: map[string]kahn.Mock{"E": {Do: func(ctx context.Context, s *kahn.Step) (any, error) {
			calls++
			return takes(time.Minute)(ctx, s)
		}}}}
		stubborn := func(context.Context, *kahn.Step) (any, error) {
			time.Sleep(2 * time.Second)
			return nil, nil
		}
		g := graph(kahn.Node{ID: "E", Sub: sub, Cleanup: true}, kahn.Node{ID: "L", Do: stubborn}, after("F", "L"))
		rn, rec := new(kahn.Runner), newRecorder()
		run, err := rn.Start(t.Context(), g, takes(ms), mocks, kahn.OnEvent(rec.add), kahn.CleanupTimeout(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		go func() { _ = rn.Shutdown(ctx) }()
		time.Sleep(time.Second)
		if calls != 1 {
			t.Errorf("it was called %d times before the stop", calls)
		}
		run.Cancel()
		res, err := run.Wait()
		r := trial{res, t, err, rec.all()}
		checkEvents(t, g, res, r.events)
		r.expect("E:ok L:ok F:C", "cancelled")
		if calls != 2 {
			t.Errorf("%d calls\n%s", calls, eventText(r.events))
		}
	})
}

// An abandoned step may return a graph while the assertions of the run are judged.
func TestAssertionsDuringAnExpansion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		judging, late := make(chan struct{}), make(chan struct{})
		n := kahn.Node{ID: "late", Timeout: ms, Do: func(context.Context, *kahn.Step) (any, error) {
			<-judging
			time.AfterFunc(ms, func() { close(late) }) // in a bubble, after the expansion
			return nil, kahn.Expand(graph(after("x"), after("y")), nil, nil)
		}}
		wait := func(f func()) kahn.Assertion {
			return kahn.Assert("late", "waits", func(kahn.NodeResult) error { f(); return nil })
		}
		assertions := []kahn.Assertion{wait(func() { close(judging) })}
		for range 1000 {
			assertions = append(assertions, kahn.AssertStatus("late", kahn.Failed))
		}
		assertions = append(assertions, wait(func() { <-late }))
		res, err := kahn.Execute(t.Context(), graph(n), nop, kahn.CancelGrace(ms), kahn.TestMode{Assertions: assertions})
		require.Error(t, err)
		require.NoError(t, res.Test.Err())
	})
}
