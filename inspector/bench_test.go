package inspector

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
)

// busyRun performs a run of 10,000 steps of 1 ms each, while a number of pages show the run, and returns how long the run took.
func busyRun(t testing.TB, pages int) time.Duration {
	g := layered("busy", 100, 100, func(context.Context, *kahn.Step) (any, error) { time.Sleep(time.Millisecond); return nil, nil })
	rn := &kahn.Runner{}
	h := Handler(free(Options{Runner: rn}))
	run, err := rn.Start(t.Context(), g, nil, kahn.Limit(10))
	require.NoError(t, err)
	var tabs []*tab
	for range pages {
		tabs = append(tabs, openTab(t.Context(), h, run.ID()))
	}
	res, err := run.Wait()
	require.NoError(t, err)
	for _, p := range tabs {
		p.close()
	}
	return res.Duration
}

// BenchmarkPages measures the cost of 50 open pages for a busy run, in wall-clock time.
func BenchmarkPages(b *testing.B) {
	for _, pages := range []int{0, 1, 50} {
		b.Run(fmt.Sprint(pages), func(b *testing.B) {
			for b.Loop() {
				b.ReportMetric(float64(busyRun(b, pages).Milliseconds()), "ms/run")
			}
		})
	}
}

// TestPagesCostLittle counts the events read and the rows made for open pages on a busy run. Each count is small in relation to the number of
// steps, and does not depend on the number of pages. BenchmarkPages measures the time.
func TestPagesCostLittle(t *testing.T) {
	t.Parallel()
	const nodes = 30 * 100
	synctest.Test(t, func(t *testing.T) {
		var steps []int64
		for _, pages := range []int{1, 50} {
			g := layered("busy", 30, 100, func(context.Context, *kahn.Step) (any, error) { time.Sleep(time.Millisecond); return nil, nil })
			rn := &kahn.Runner{}
			h := Handler(free(Options{Runner: rn})).(*handler)
			run, err := rn.Start(t.Context(), g, nil, kahn.Limit(10))
			require.NoError(t, err)
			var tabs []*tab
			for range pages {
				tabs = append(tabs, openTab(t.Context(), h, run.ID()))
			}
			res, err := run.Wait()
			require.NoError(t, err)
			require.Equal(t, nodes, res.Count(kahn.Completed))
			time.Sleep(time.Second) // wait for the last messages
			for _, p := range tabs {
				p.close()
			}
			time.Sleep(time.Second)
			steps = append(steps, h.hub.steps)
		}
		require.Greater(t, steps[0], int64(nodes), "the page has not followed the run")
		require.Less(t, steps[1], int64(5*nodes), "for three events a step, and rows of the list")
		require.InDelta(t, steps[0], steps[1], nodes/20)
	})
}
