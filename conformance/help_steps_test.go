package conformance_test

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/seed-c794f7ef/kahn"
)

// This file has steps, contracts and options for the graphs of tests.

var errStep = errors.New("the step broke")

// nothing is a step that does nothing.
func nothing(context.Context, *kahn.Step) (any, error) { return nil, nil }

// nop is a step that does nothing.
func nop(context.Context, *kahn.Step) (any, error) { return nil, nil }

// takes returns a step that takes the time d unless it is stopped, and then returns the node's id.
func takes(d time.Duration) kahn.StepFunc {
	return func(ctx context.Context, s *kahn.Step) (any, error) {
		select {
		case <-time.After(d):
			return s.ID(), nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// fails returns a step that takes the time d and fails.
func fails(d time.Duration) kahn.StepFunc {
	return func(context.Context, *kahn.Step) (any, error) {
		time.Sleep(d)
		return nil, errStep
	}
}

// always returns a step that fails with err in every attempt.
func always(err error) kahn.StepFunc {
	return func(context.Context, *kahn.Step) (any, error) { return nil, err }
}

// script returns a step whose attempts fail with the given errors, one per attempt. The next attempt completes.
func script(errs ...error) kahn.StepFunc {
	return func(_ context.Context, s *kahn.Step) (any, error) {
		if k := s.Attempt(); k <= len(errs) {
			return nil, errs[k-1]
		}
		return "done", nil
	}
}

// neverStep returns a step that fails the test when it is called.
func neverStep(t testing.TB) kahn.StepFunc {
	return func(_ context.Context, s *kahn.Step) (any, error) {
		t.Errorf("%s was started", s.ID())
		return nil, nil
	}
}

// untilStopped is a step that waits to be stopped.
func untilStopped(ctx context.Context, _ *kahn.Step) (any, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// yields returns a step that takes the time d and returns value.
func yields(d time.Duration, value any) kahn.StepFunc {
	return func(context.Context, *kahn.Step) (any, error) {
		time.Sleep(d)
		return value, nil
	}
}

// breaks returns a step that fails for the given nodes, and returns the node's id for any other.
func breaks(paths ...string) kahn.StepFunc {
	return func(_ context.Context, s *kahn.Step) (any, error) {
		time.Sleep(10 * ms)
		if slices.Contains(paths, s.Path()) {
			return nil, errStep
		}
		return s.ID(), nil
	}
}

// waitsOnce returns a step that suspends each node of the given paths once, and completes all other nodes.
func waitsOnce(paths ...string) kahn.StepFunc {
	return func(ctx context.Context, s *kahn.Step) (any, error) {
		if answer, ok := s.Resumed(); ok {
			return answer, nil
		}
		if slices.Contains(paths, s.Path()) {
			return nil, kahn.Suspend("", "info", "state")
		}
		return takes(10*ms)(ctx, s)
	}
}

// calls counts the calls of each node's step.
type calls struct {
	mu sync.Mutex
	n  map[string]int
}

func (c *calls) count(step kahn.StepFunc) kahn.StepFunc { return c.by((*kahn.Step).ID, step) }

// by counts the calls of step under the name that the function "name" returns for the node.
func (c *calls) by(name func(*kahn.Step) string, step kahn.StepFunc) kahn.StepFunc {
	return func(ctx context.Context, s *kahn.Step) (any, error) {
		c.mu.Lock()
		if c.n == nil {
			c.n = map[string]int{}
		}
		c.n[name(s)]++
		c.mu.Unlock()
		return step(ctx, s)
	}
}

func (c *calls) of(id string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n[id]
}

// paths counts the calls of a step by path.
type paths struct{ calls }

func (p *paths) count(step kahn.StepFunc) kahn.StepFunc { return p.by((*kahn.Step).Path, step) }

// once fails the test for each path that was not called exactly once.
func (p *paths) once(t *testing.T, want ...string) {
	t.Helper()
	for _, path := range want {
		if p.n[path] != 1 {
			t.Errorf("%s was called %d times", path, p.n[path])
		}
	}
	if len(p.n) != len(want) {
		t.Errorf("called: %v", p.n)
	}
}

// random returns the option Random with a source that always returns u.
func random(u float64) kahn.Option { return kahn.Random(func() float64 { return u }) }

type mocks = map[string]kahn.Mock

// shape is a contract defined by a function.
type shape struct {
	check func(value any) []kahn.Violation
}

func (s shape) Check(value any) []kahn.Violation { return s.check(value) }

// wants returns a contract to which only one value conforms.
func wants(want any) kahn.Contract {
	return shape{func(value any) []kahn.Violation {
		if reflect.DeepEqual(value, want) {
			return nil
		}
		return []kahn.Violation{tooSmall}
	}}
}

var tooSmall = kahn.Violation{Path: "/size", Message: "must be at least 3"}

// shapes compiles maps to contracts to which every value conforms.
type shapes struct{}

func (shapes) Compile(schema any) (kahn.Contract, error) {
	if _, ok := schema.(map[string]any); !ok {
		return nil, errStep
	}
	return shape{func(any) []kahn.Violation { return nil }}, nil
}
