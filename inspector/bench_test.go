package inspector

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
)

// What 50 open pages cost a run of 10,000 steps that do nothing but take 1 ms, by the wall clock.
func BenchmarkPages(b *testing.B) {
	g := layered("", 100, 100, func(context.Context, *kahn.Step) (any, error) { time.Sleep(time.Millisecond); return nil, nil })
	for _, pages := range []int{0, 1, 50} {
		b.Run(fmt.Sprint(pages), func(b *testing.B) {
			for b.Loop() {
				rn := &kahn.Runner{}
				h := Handler(Options{Runner: rn})
				run, err := rn.Start(b.Context(), g, nil, kahn.Limit(10))
				require.NoError(b, err)
				var tabs []*tab
				for range pages {
					tabs = append(tabs, openTab(b.Context(), h, run.ID()))
				}
				_, err = run.Wait()
				require.NoError(b, err)
				b.StopTimer()
				for _, p := range tabs {
					p.close()
				}
				b.StartTimer()
			}
		})
	}
}
