package kahn_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
)

// thrice returns a policy of three attempts with the same delay before each retry.
func thrice(d time.Duration) kahn.Retry {
	return kahn.Retry{MaxAttempts: 3, InitialDelay: d, MaxDelay: d, Jitter: kahn.JitterNone}
}

// TestTimersOfStoppedMembers: a run does not wait for the timers of members that were stopped with their group.
func TestTimersOfStoppedMembers(t *testing.T) {
	for _, limit := range []int{0, 1} {
		for _, mode := range []kahn.StopMode{kahn.Interrupt, kahn.Drain} {
			inBubble(t, fmt.Sprintf("limit %d, %v", limit, mode), func(t *testing.T) {
				in := []string{"g"}
				g := graph(
					kahn.Node{ID: "R", Groups: in, Priority: 2, Retry: thrice(time.Hour), OverallTimeout: 5 * time.Hour, Timeout: time.Hour, Do: always(errStep)},
					kahn.Node{ID: "S", Groups: in, Priority: 1, OverallTimeout: time.Hour, Do: suspends},
					kahn.Node{ID: "F", Groups: in, Do: fails(10 * ms)},
					kahn.Node{ID: "G", Groups: in, Kind: kahn.KindGate, Gate: &kahn.Gate{Timeout: time.Hour}},
				)
				g.Groups = []kahn.Group{{Name: "g", CancelOnFailure: true}}
				begin := time.Now()
				var left *kahn.Run
				r := tryControlled(t, t.Context(), g, nil, func(run *kahn.Run) { left = run }, kahn.Limit(limit), mode)
				r.expect("R:X S:X F:F G:X", "failed")
				if took := time.Since(begin); r.Duration != 10*ms || took != 10*ms {
					t.Errorf("the run took %v, Wait %v", r.Duration, took)
				}
				if text := left.Leftovers(); text != "" {
					t.Errorf("left: %s", text)
				}
			})
		}
	}
}

// TestAlarmsOfOneSlot: in a run with one slot, an alarm that a node no longer needs does not fire, and is removed.
func TestAlarmsOfOneSlot(t *testing.T) {
	inBubble(t, "timeouts of what ended in time", func(t *testing.T) {
		var left *kahn.Run
		begin := time.Now()
		r := tryControlled(t, t.Context(), graph(
			kahn.Node{ID: "A", Priority: 3, Timeout: 10 * ms, OverallTimeout: 25 * ms, Do: takes(5 * ms)},
			kahn.Node{ID: "B", Priority: 2, Timeout: 40 * ms, Retry: thrice(2 * ms), Do: script(errStep, errStep)},
			kahn.Node{ID: "C", Priority: 1, Timeout: 25 * ms, Do: takes(20 * ms)},
			kahn.Node{ID: "D", Timeout: 15 * ms, Do: takes(20 * ms)},
		), nil, func(run *kahn.Run) { left = run }, kahn.Limit(1))
		r.expect("A:ok B:ok C:ok D:F", "failed")
		for _, id := range []string{"A", "B", "C"} {
			r.count(event.NodeTimedOut, id, 0)
		}
		if took := r.at(event.NodeFailed, "D") - r.at(event.NodeStarted, "D"); took != 15*ms {
			t.Errorf("D failed %v after its start", took)
		}
		if took := time.Since(begin); took != 40*ms { // the run ends with D's failure, not with the Timeout of an attempt that ended in time
			t.Errorf("the run took %v", took)
		}
		if text := left.Leftovers(); text != "" {
			t.Errorf("left: %s", text)
		}
	})
}

// TestTimersOfLeftRuns: a run that was left has no timer and no worker, even if one of its nodes backs off.
func TestTimersOfLeftRuns(t *testing.T) {
	inBubble(t, "a step completes, and another has failed", func(t *testing.T) {
		run, err := kahn.Start(t.Context(), graph(kahn.Node{ID: "A", Do: takes(500 * ms)}, after("B", "A"),
			kahn.Node{ID: "C", Retry: kahn.RetryStandard(), Do: always(errStep)}), takes(0))
		require.NoError(t, err)
		synctest.Wait()
		run.Leave()
		_, err = run.Wait()
		require.NoError(t, err)
		status, _ := run.NodeStatus("C")
		require.Equal(t, kahn.Retrying, status)
		left := run.Leftovers()
		require.NotContains(t, left, "timers")
		require.NotContains(t, left, "workers")
	})
}
