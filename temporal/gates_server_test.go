//go:build server

package temporal

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
)

// Many gates of one run are answered at the same time. KAHN_GATES is the number of gates, and 300 without it.
func TestServerManyGates(t *testing.T) {
	c := dial(t)
	gates := 300
	if n, err := strconv.Atoi(os.Getenv("KAHN_GATES")); err == nil {
		gates = n
	}
	g := &kahn.Graph{Name: "gates"}
	for i := range gates {
		g.Add(kahn.Node{ID: fmt.Sprint("g", i), Kind: kahn.KindGate})
	}
	for _, at := range []int{1, 20} {
		t.Run(fmt.Sprint(at, " at a time"), func(t *testing.T) {
			w := serve(t, c, plan(t, g), Options{Step: func(context.Context, *kahn.Step) (any, error) { return nil, nil }})
			run, err := Start(t.Context(), c, w, nil)
			require.NoError(t, err)
			began := time.Now()
			var mu sync.Mutex
			var longest time.Duration
			todo := make(chan string)
			var all sync.WaitGroup
			for range at {
				all.Go(func() {
					for id := range todo {
						asked := time.Now()
						err := run.Signal(t.Context(), id, "yes")
						mu.Lock()
						if longest = max(longest, time.Since(asked)); err != nil {
							t.Errorf("%s: %v", id, err)
						}
						mu.Unlock()
					}
				})
			}
			for i := range gates {
				todo <- fmt.Sprint("g", i)
			}
			close(todo)
			all.Wait()
			took := time.Since(began)
			res, err := run.Wait(t.Context())
			require.NoError(t, err)
			require.Equal(t, gates, res.Count(kahn.Completed))
			about, err := c.DescribeWorkflowExecution(t.Context(), w.ID, "")
			require.NoError(t, err)
			info := about.GetWorkflowExecutionInfo()
			t.Logf("%d gates: %v, the longest answer %v; the last execution has %d events and %d bytes", gates, took, longest, info.GetHistoryLength(), info.GetHistorySizeBytes())
		})
	}
}
