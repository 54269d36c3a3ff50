package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

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
			n.IfExists = store.Reuse
			if err == nil {
				_, _, err = s.Create(t.Context(), n)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		rn := &runners[process]
		rn.MaxRuns = 3
		go func() {
			over <- rn.Serve(t.Context(), kahn.Service{Store: s, Workflows: []kahn.Workflow{{Graph: g}}, OnError: func(e *kahn.ServeError) { t.Error(e) }})
		}()
	}
	for range runs {
		<-done
	}
	for process := range runners { // after that nothing is performed, and what was is counted
		if err := errors.Join(runners[process].Shutdown(t.Context()), <-over); err != nil {
			t.Error(err)
		}
	}
	want := map[string]int{}
	for i := range runs {
		want[fmt.Sprint("r", i)] = 1
	}
	if err := same("the calls of each run", calls, want); err != nil {
		t.Error(err)
	}
}
