package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// RunServe lets two processes serve the runs of one database. The function "open" opens a store for each process. RunServe checks that each run is
// performed once, and that other runs can begin while a run waits for a long time.
func RunServe(t *testing.T, open func(t *testing.T) store.QueueStore) {
	t.Run("each run once", func(t *testing.T) { serveOnce(t, open) })
	t.Run("runs that rest", func(t *testing.T) { serveRests(t, open) })
}

// serveRests starts two processes, each of which may perform one run at a time. Each run pauses three times: between the iterations of a loop, in a
// sleep, and before a retry. A pausing run must not count as the one run of its process, so another run can begin in that process.
func serveRests(t *testing.T, open func(t *testing.T) store.QueueStore) {
	const runs, pause = 8, 1500 * time.Millisecond
	var mu sync.Mutex
	begun := map[string]int{}
	entered := func(s *kahn.Step) int {
		mu.Lock()
		defer mu.Unlock()
		begun[s.RunID()]++
		return begun[s.RunID()]
	}
	g := (&kahn.Graph{Name: "rests"}).Add(
		kahn.Node{ID: "loop", Sub: new(kahn.Graph).Add(kahn.Node{ID: "x"}), Loop: &kahn.Loop{
			MaxIterations: 2, Pause: pause, While: func(v kahn.View) (bool, error) { return v.Iteration() < 2, nil },
		}},
		kahn.Node{ID: "sleep", After: []string{"loop"}},
		kahn.Node{ID: "retry", After: []string{"sleep"}, Retry: kahn.Retry{MaxAttempts: 2, InitialDelay: pause, MaxDelay: pause, Jitter: kahn.JitterNone}})
	step := func(_ context.Context, s *kahn.Step) (any, error) {
		entered(s)
		switch {
		case s.ID() == "sleep" && s.SavedState() == nil:
			return nil, kahn.SuspendUntil(time.Now().Add(pause), "slept")
		case s.ID() == "sleep" && s.Attempt() != 1:
			return nil, kahn.Permanent(fmt.Errorf("it sleeps in attempt %d", s.Attempt()))
		case s.ID() == "retry" && s.Attempt() == 1:
			return nil, errors.New("busy")
		}
		return s.ID(), nil
	}
	var runners [2]kahn.Runner
	over := make(chan error, len(runners))
	var stores []store.QueueStore
	for process := range runners {
		s := open(t)
		stores = append(stores, s)
		for i := range runs {
			n, err := kahn.Prepare(g, kahn.RunID(fmt.Sprint("rest", i)))
			n.IfExists = store.Reuse
			if err == nil {
				_, _, err = s.Create(t.Context(), n)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		rn := &runners[process]
		rn.MaxRuns = 1
		go func() {
			over <- rn.Serve(t.Context(), kahn.Service{
				Store: s, Workflows: []kahn.Workflow{{Graph: g, Step: step}}, RestAfter: 100 * time.Millisecond, OnError: func(_ string, _ store.Queue, err error) { t.Error(err) },
			})
		}()
	}
	admin := stores[0].(store.Admin)
	began, patience := time.Now(), time.Minute
	for done := 0; done < runs; {
		if time.Since(began) > patience {
			t.Fatalf("%d of %d runs have ended after %v", done, runs, patience)
		}
		time.Sleep(20 * time.Millisecond)
		page, err := admin.List(t.Context(), store.Query{Filter: store.Filter{Workflow: "rests"}})
		if err != nil {
			t.Fatal(err)
		}
		done = 0
		for _, r := range page.Runs {
			if r.Status.Terminal() {
				done++
			}
			if r.Status == kahn.RunFailed {
				t.Fatalf("run %s has failed", r.ID)
			}
		}
	}
	// If a process could begin no other run during the three pauses of a run, all runs would take at least this long.
	if took := time.Since(began); took >= runs/2*3*pause {
		t.Errorf("the runs have taken %v: runs that rest keep their places", took)
	}
	for process := range runners {
		if err := errors.Join(runners[process].Shutdown(t.Context()), <-over); err != nil {
			t.Error(err)
		}
	}
	want := map[string]int{}
	for i := range runs {
		want[fmt.Sprint("rest", i)] = 6 // two calls each: for the iterations, for the sleep, and for the attempts
	}
	if err := same("the calls of each run", begun, want); err != nil {
		t.Error(err)
	}
}

// serveOnce checks that two processes together perform each run once.
func serveOnce(t *testing.T, open func(t *testing.T) store.QueueStore) {
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
			over <- rn.Serve(t.Context(), kahn.Service{Store: s, Workflows: []kahn.Workflow{{Graph: g}}, OnError: func(_ string, _ store.Queue, err error) { t.Error(err) }})
		}()
	}
	for range runs {
		<-done
	}
	for process := range runners { // after Shutdown no step runs, and calls can be counted
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
