package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-c794f7ef/kahn"
)

// The tests of this file compare the duration of a run, in fake time and so to the nanosecond, with the optimum for its graph.

// TestMakespanCriticalPath: a chain must begin before independent nodes. If it began last, or in the order of declaration, the same steps
// on the same two slots would take up to 200 ms.
func TestMakespanCriticalPath(t *testing.T) {
	for _, chainFirst := range []bool{true, false} {
		inBubble(t, fmt.Sprintf("chain declared first %t", chainFirst), func(t *testing.T) {
			var chain, wide []kahn.Node
			for i := range 10 {
				n := kahn.Node{ID: fmt.Sprintf("chain %d", i)}
				if i > 0 {
					n.After = []string{chain[i-1].ID}
				}
				chain = append(chain, n)
			}
			for i := range 20 {
				wide = append(wide, kahn.Node{ID: fmt.Sprintf("wide %d", i)})
			}
			g := graph(chain...).Add(wide...)
			if !chainFirst {
				g = graph(wide...).Add(chain...)
			}
			// 30 steps of 10 ms on two slots: no schedule is shorter.
			if r := try(t, g, takes(10*ms), kahn.Limit(2)); r.Duration != 150*ms || r.Status != kahn.RunCompleted {
				t.Errorf("%v after %v, expected 150ms", r.Status, r.Duration)
			}
		})
	}
}

// TestMakespanModes: three chains of three steps, each with its slow step in another tier. In eager mode the run takes as long as one
// chain, the critical path. In waves every tier takes as long as its slow step.
func TestMakespanModes(t *testing.T) {
	const slow, fast = 30 * ms, 10 * ms
	for mode, want := range map[kahn.Mode]time.Duration{kahn.Eager: slow + 2*fast, kahn.Waves: 3 * slow} {
		inBubble(t, mode.String(), func(t *testing.T) {
			var g kahn.Graph
			for chain := range 3 {
				for tier := range 3 {
					n := kahn.Node{ID: fmt.Sprintf("%d.%d", chain, tier), Do: takes(fast)}
					if chain == tier {
						n.Do = takes(slow)
					}
					if tier > 0 {
						n.After = []string{fmt.Sprintf("%d.%d", chain, tier-1)}
					}
					g.Add(n)
				}
			}
			if r := try(t, &g, nil, mode); r.Duration != want || r.Status != kahn.RunCompleted {
				t.Errorf("%v after %v, expected %v", r.Status, r.Duration, want)
			}
		})
	}
}

// TestMakespanUnlimited: waiting steps take a goroutine each, and all wait at the same time.
func TestMakespanUnlimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g kahn.Graph
		for i := range 1000 {
			g.Add(kahn.Node{ID: fmt.Sprint(i)})
		}
		if r := try(t, &g, takes(20*ms)); r.Duration != 20*ms || r.Status != kahn.RunCompleted {
			t.Errorf("%v after %v, expected 20ms", r.Status, r.Duration)
		}
	})
}

// TestMakespanCancel: from Cancel to the return of Wait no more time passes than the steps take to end.
func TestMakespanCancel(t *testing.T) {
	const inFlight = 100
	synctest.Test(t, func(t *testing.T) {
		var g kahn.Graph
		for i := range inFlight {
			g.Add(kahn.Node{ID: fmt.Sprint(i)}, after(fmt.Sprintf("after %d", i), fmt.Sprint(i)))
		}
		entered := make(chan bool, inFlight)
		run, err := kahn.Start(t.Context(), &g, func(ctx context.Context, s *kahn.Step) (any, error) {
			entered <- true
			return untilStopped(ctx, s)
		})
		if err != nil {
			t.Fatal(err)
		}
		for range inFlight {
			<-entered
		}
		time.Sleep(7 * ms)
		asked := time.Now()
		run.Cancel()
		res, err := run.Wait()
		if took := time.Since(asked); took != 0 || res.Duration != 7*ms {
			t.Errorf("%v passed from Cancel to the return, the run took %v, expected 0 and 7ms", took, res.Duration)
		}
		if !errors.Is(err, kahn.ErrCancelled) || res.Count(kahn.Cancelled) != 2*inFlight {
			t.Errorf("error %v, %d cancelled", err, res.Count(kahn.Cancelled))
		}
	})
}
