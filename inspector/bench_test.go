package inspector

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
)

// busyRun performs a run of 10,000 steps that do nothing but take 1 ms, with pages open on it, and returns how long it took.
func busyRun(t testing.TB, pages int) time.Duration {
	g := layered("busy", 100, 100, func(context.Context, *kahn.Step) (any, error) { time.Sleep(time.Millisecond); return nil, nil })
	rn := &kahn.Runner{}
	h := Handler(Options{Runner: rn})
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

// What 50 open pages cost a busy run, by the wall clock.
func BenchmarkPages(b *testing.B) {
	for _, pages := range []int{0, 1, 50} {
		b.Run(fmt.Sprint(pages), func(b *testing.B) {
			for b.Loop() {
				b.ReportMetric(float64(busyRun(b, pages).Milliseconds()), "ms/run")
			}
		})
	}
}

// Fifty pages cost a busy run less than a tenth of its time. It is measured under KAHN_LONG alone; TestManyTabs counts the work.
func TestPagesCostLittle(t *testing.T) {
	if os.Getenv("KAHN_LONG") == "" {
		t.Skip("TestManyTabs counts the work; KAHN_LONG=1 measures")
	}
	const rounds = 7
	best := map[int]time.Duration{}
	for range rounds { // in turn: the machine may be busy with something else for a while
		for _, pages := range []int{0, 50} {
			if took := busyRun(t, pages); best[pages] == 0 || took < best[pages] {
				best[pages] = took
			}
		}
	}
	t.Logf("without pages %v, with 50 pages %v: %+.1f %%", best[0], best[50], 100*(best[50].Seconds()/best[0].Seconds()-1))
	require.Less(t, best[50], best[0]+best[0]/10)
}
