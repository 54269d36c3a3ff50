package kahn

import "fmt"

// GraphCall is a call of a function of the graph that decides in a run: see [GraphCalls].
type GraphCall struct {
	Path  string // of the node
	Field string // the field of the node: "When", "Test", "Loop" or "Fallback", also if the node has a text instead of a function
	// Call calls the function. The value of a guard and of a loop's test is a bool.
	Call func() (any, error)
}

// GraphCalls passes each call of a guard, of the test of a condition or a loop, and of a fallback to by, whether the graph has a function or a
// text. by calls GraphCall.Call, or returns what an earlier call has returned: so an engine that replays histories records the results of
// functions that are not pure. What by returns counts as the function's result; a value of another type fails the call with an error that
// matches [ErrBadValue]. A nil function is an error that matches [ErrBadOption].
//
// by is called without a lock and may block. It is called by several goroutines at once, unless [Limit] is 1. Path and Field, with the order of
// the calls of one node, identify a call.
func GraphCalls(by func(GraphCall) (any, error)) Option {
	return optionFunc(func(c *config) error {
		if by == nil {
			return fmt.Errorf("%w: GraphCalls(nil)", ErrBadOption)
		}
		c.graphCalls = by
		return nil
	})
}

// byHost has the host make a call.
func byHost[T any](r *Run, ref Ref, field string, call func() (T, error)) (value T, err error) {
	got, err := r.cfg.graphCalls(GraphCall{Path: r.path(ref), Field: field, Call: func() (any, error) { return call() }})
	if err != nil {
		return value, err
	}
	value, ok := got.(T)
	if _, takesNil := any(&value).(*any); !ok && !takesNil {
		return value, fmt.Errorf("%w: GraphCalls has answered %s of node %s with %T, not %T", ErrBadValue, field, quoteID(r.path(ref)), got, value)
	}
	return value, nil
}

// callWhen calls the guard of a node.
func (r *Run) callWhen(ref Ref, n *node) (bool, error) {
	v := View{run: r, ref: ref, judge: true}
	if r.cfg.graphCalls == nil {
		return n.When(v)
	}
	return byHost(r, ref, "When", func() (bool, error) { return n.When(v) })
}

// callTest calls the test of a condition.
func (r *Run) callTest(ref Ref, n *node) (any, error) {
	v := View{run: r, ref: ref, judge: true}
	if r.cfg.graphCalls == nil {
		return n.Test(v)
	}
	return byHost(r, ref, "Test", func() (any, error) { return n.Test(v) })
}

// callLoop calls the test of a loop, which sees the run of the last iteration.
func (r *Run) callLoop(ref Ref, of *Run) (again bool, err error) {
	v := View{run: of, ref: everyNode, judge: true}
	if r.cfg.graphCalls == nil {
		return r.plan.loops[ref](v)
	}
	return byHost(r, ref, "Loop", func() (bool, error) { return r.plan.loops[ref](v) })
}

// callFallback calls the fallback of a node.
func (r *Run) callFallback(s *Step, failed error) (any, error) {
	f := r.plan.node(s.ref).Fallback
	if r.cfg.graphCalls == nil {
		return f(s, failed)
	}
	return byHost(r, s.ref, "Fallback", func() (any, error) { return f(s, failed) })
}
