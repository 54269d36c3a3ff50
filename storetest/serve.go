package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// RunServe lets two processes serve runs of one database, which open opens for each of them: each run is performed once.
func RunServe(t *testing.T, open func(t *testing.T) store.QueueStore) {
	const runs = 60
	var mu sync.Mutex
	calls, done := map[string]int{}, make(chan bool, 2*runs)
	var runners [2]kahn.Runner
	over := make(chan error, len(runners))
	for process := range runners {
		s := open(t)
		g := (&kahn.Graph{Name: "w"}).Add(kahn.Node{ID: "a", Do: func(_ context.Context, step *kahn.Step) (any, error) {
			mu.Lock()
			defer mu.Unlock()
			calls[step.RunID()]++
			done <- true
			return nil, nil
		}})
		for i := range runs {
			n, err := kahn.Prepare(g, kahn.RunID(fmt.Sprint("r", i)))
			require.NoError(t, err)
			n.IfExists = store.Reuse
			_, _, err = s.Create(t.Context(), n)
			require.NoError(t, err)
		}
		rn := &runners[process]
		rn.MaxRuns = 3
		defer func() { // after both have begun
			require.NoError(t, errors.Join(rn.Shutdown(t.Context()), <-over))
		}()
		go func() {
			over <- rn.Serve(t.Context(), kahn.Service{Store: s, Workflows: []kahn.Workflow{{Graph: g}}, OnError: func(e *kahn.ServeError) { t.Error(e) }})
		}()
	}
	for range runs {
		<-done
	}
	mu.Lock()
	defer mu.Unlock()
	require.Len(t, calls, runs)
	for run, n := range calls {
		require.Equal(t, 1, n, run)
	}
}
