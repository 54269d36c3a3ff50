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
	"go.temporal.io/api/serviceerror"

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

// Temporal takes 2,000 updates in one execution of a workflow. While a running step keeps the run from continuing as a new execution, further answers
// are refused with Temporal's error, and nothing of them is kept. Once the run has continued, they are taken.
func TestServerUpdateLimit(t *testing.T) {
	c := dial(t)
	const most, gates = 2000, 2010
	g := (&kahn.Graph{Name: "limit"}).Add(kahn.Node{ID: "slow"})
	for i := range gates {
		g.Add(kahn.Node{ID: fmt.Sprint("g", i), Kind: kahn.KindGate})
	}
	release := make(chan struct{})
	w := serve(t, c, plan(t, g), Options{Step: func(context.Context, *kahn.Step) (any, error) { <-release; return nil, nil }})
	run, err := Start(t.Context(), c, w, nil)
	require.NoError(t, err)
	var all sync.WaitGroup
	for worker := range maxUpdates {
		all.Go(func() {
			for i := worker; i < most; i += maxUpdates {
				if err := run.Signal(t.Context(), fmt.Sprint("g", i), "yes"); err != nil {
					t.Errorf("gate %d: %v", i, err)
				}
			}
		})
	}
	all.Wait()
	for i := most; i < gates; i++ {
		var refused *serviceerror.FailedPrecondition
		require.ErrorAs(t, run.Signal(t.Context(), fmt.Sprint("g", i), "yes"), &refused)
	}
	close(release)
	for i := most; i < gates; i++ {
		require.Eventually(t, func() bool {
			return run.Signal(t.Context(), fmt.Sprint("g", i), "yes") == nil
		}, 20*time.Second, 20*time.Millisecond)
	}
	res, err := run.Wait(t.Context())
	require.NoError(t, err)
	require.Equal(t, gates+1, res.Count(kahn.Completed))
}
