package kahntest

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-c794f7ef/kahn"
)

// Script is a step function that follows a script, and records how it was called. It may be used by any number of runs at
// once; the zero value lets every node complete.
type Script struct {
	// Acts say what the attempts of a node come to, by the node's path and the number of the attempt; the last act is also that
	// of all further attempts.
	Acts map[string][]Act
	// Else performs the nodes that have no acts. If it is nil they complete with their ids.
	Else kahn.StepFunc

	mu    sync.Mutex
	calls []Call
}

// Act is what one attempt comes to. The zero value completes with a null output.
type Act struct {
	// Delay is how long it takes, unless its context ends earlier; then it fails with the context's error.
	Delay time.Duration
	// Panic, if it is not nil, is what the attempt panics with.
	Panic any
	// Do, if it is not nil, is called, and says the rest.
	Do kahn.StepFunc
	// Value and Err are what is returned.
	Value any
	Err   error
}

// Call is one call of a step.
type Call struct {
	// Node is the path of the node.
	Node    string
	Attempt int
	Params  map[string]any
}

// Step is the step function.
func (s *Script) Step(ctx context.Context, step *kahn.Step) (any, error) {
	s.mu.Lock()
	s.calls = append(s.calls, Call{Node: step.Path(), Attempt: step.Attempt(), Params: step.Params()})
	s.mu.Unlock()
	acts := s.Acts[step.Path()]
	switch {
	case len(acts) > 0:
		return acts[min(step.Attempt(), len(acts))-1].perform(ctx, step)
	case s.Else != nil:
		return s.Else(ctx, step)
	}
	return step.ID(), nil
}

func (a *Act) perform(ctx context.Context, step *kahn.Step) (any, error) {
	if a.Delay > 0 {
		timer := time.NewTimer(a.Delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if a.Panic != nil {
		panic(a.Panic)
	}
	if a.Do != nil {
		return a.Do(ctx, step)
	}
	return a.Value, a.Err
}

// Calls returns the calls so far, in the order in which they began.
func (s *Script) Calls() []Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.calls)
}

// CallsOf returns the calls of one node.
func (s *Script) CallsOf(node string) []Call {
	return slices.DeleteFunc(s.Calls(), func(c Call) bool { return c.Node != node })
}

// RequireCalls ends the test unless the nodes were called in this order, each as often as it is named: "A B B C". Nodes that
// run at the same time are called in any order: pass kahn.Limit(1) to the run.
func RequireCalls(t testing.TB, s *Script, want string) {
	t.Helper()
	var got []string
	for _, c := range s.Calls() {
		got = append(got, c.Node)
	}
	if names := strings.Fields(want); !slices.Equal(got, names) {
		t.Fatalf("called   %s\nexpected %s", strings.Join(got, " "), strings.Join(names, " "))
	}
}
