package conformance_test

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// TestLeaks: many runs release their goroutines, timers and memory however they end. synctest fails a bubble whose goroutines do not end. The test
// finds leaked memory by the size of the heap: a leaked run of one node would add about 2 kB, and the test allows 500 bytes.
func TestLeaks(t *testing.T) { // not parallel: it measures the heap
	runs := size(250, 80, 1_000)
	nested := func() *kahn.Graph {
		return graph(subgraph("S", graph(after("x"), after("y", "x"))), kahn.Node{ID: "M", Map: &kahn.Map{Over: "list"}, Params: map[string]any{"list": []int{1, 2}}},
			kahn.Node{ID: "C", Cleanup: true, After: []string{"S"}})
	}
	gated := func() *kahn.Graph { return graph(subgraph("S", graph(gate("G"), after("x", "G"))), after("A")) }
	start := func(t *testing.T, g *kahn.Graph, step kahn.StepFunc, opts ...kahn.Option) *kahn.Run {
		run, err := kahn.Start(t.Context(), g, step, opts...)
		require.NoError(t, err)
		return run
	}
	ends := func(t *testing.T, run *kahn.Run, suspended bool) {
		res, _ := run.Wait()
		require.Equal(t, suspended, res.Status == kahn.RunSuspended)
	}
	timed := []kahn.Option{kahn.Timeout(time.Hour), kahn.CancelGrace(ms), kahn.Rate{Starts: 1, Per: time.Hour, Burst: 100}}
	for name, one := range map[string]func(t *testing.T, rn *kahn.Runner){
		"plain": func(t *testing.T, _ *kahn.Runner) {
			res, err := kahn.Execute(t.Context(), graph(after("A"), after("B", "A")), nop)
			require.NoError(t, err)
			require.Equal(t, 2, res.Count(kahn.Completed))
		},
		"nested": func(t *testing.T, _ *kahn.Runner) {
			ends(t, start(t, nested(), takes(ms), timed...), false)
		},
		"cancelled": func(t *testing.T, _ *kahn.Runner) {
			run := start(t, nested(), takes(time.Minute), timed...)
			time.Sleep(ms)
			run.Cancel()
			ends(t, run, false)
		},
		"left": func(t *testing.T, _ *kahn.Runner) {
			run := start(t, nested(), takes(10*ms), timed...)
			time.Sleep(ms)
			run.Leave()
			ends(t, run, true)
		},
		"with abandoned steps": func(t *testing.T, _ *kahn.Runner) {
			release := make(chan struct{})
			run := start(t, nested(), func(context.Context, *kahn.Step) (any, error) { <-release; return nil, nil }, append(timed, kahn.CleanupTimeout(ms))...)
			time.Sleep(ms)
			run.Cancel()
			ends(t, run, false)
			close(release)
			synctest.Wait()
		},
		"waiting at gates": func(t *testing.T, _ *kahn.Runner) {
			run := start(t, gated(), nop, timed...)
			synctest.Wait()
			require.NoError(t, run.Signal(context.Background(), "S/G", true))
			ends(t, run, false)
			run = start(t, gated(), nop, timed...)
			synctest.Wait()
			run.Leave()
			ends(t, run, true)
		},
		"under a Runner": func(t *testing.T, rn *kahn.Runner) {
			a, err := rn.Start(t.Context(), nested(), takes(ms))
			require.NoError(t, err)
			b, err := rn.Start(t.Context(), nested(), takes(time.Minute))
			require.NoError(t, err)
			time.Sleep(10 * ms)
			b.Cancel()
			ends(t, a, false)
			ends(t, b, false)
		},
		"shut down": func(t *testing.T, _ *kahn.Runner) {
			rn := &kahn.Runner{Limit: 1, MaxRuns: 2, Rate: kahn.Rate{Starts: 1, Per: time.Hour, Burst: 2}}
			for range 3 {
				_, err := rn.Start(t.Context(), nested(), takes(time.Minute), kahn.Durable(new(store.Memory)))
				require.NoError(t, err)
			}
			synctest.Wait()
			ctx, cancel := context.WithTimeout(t.Context(), ms)
			defer cancel()
			require.ErrorIs(t, rn.Shutdown(ctx), context.DeadlineExceeded)
		},
	} {
		inBubble(t, name, func(t *testing.T) {
			rn := &kahn.Runner{Limit: 2, History: -1}
			measure := func(n int) (goroutines int, heap int64) {
				for range n {
					one(t, rn)
				}
				synctest.Wait()
				var m runtime.MemStats
				runtime.GC()
				runtime.GC() // collects what the first call finalized
				runtime.ReadMemStats(&m)
				return runtime.NumGoroutine(), int64(m.HeapAlloc)
			}
			goroutines, heap := measure(runs / 4)
			more, larger := measure(runs)
			require.LessOrEqual(t, more, goroutines, "goroutines")
			require.Less(t, (larger-heap)/int64(runs), int64(500), "bytes a run")
			t.Log(name, (larger-heap)/int64(runs), "bytes a run")
		})
	}
}
