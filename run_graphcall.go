package kahn

import "fmt"

// GraphCall is a call of a function of the graph that decides in a run: see [GraphCalls].
type GraphCall struct {
	Path  string // of the node
	Field string // the field of the node: "When", "Test", "Loop" or "Fallback", also if the node has a text instead of a function
	// Call calls the function. The value of a guard and of a loop's test is a bool. The error has what the function asked its [View] for in vain.
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

// judged calls a function that judges by a View of the node. What it asked for in vain is a part of what it returns, and so of what a host
// records that makes the call. If the function panics, the run adds it to the panic: the node fails whether or not a record has it.
func judged[T any](r *Run, ref Ref, call func() (T, error)) (T, error) {
	value, err := call()
	return value, r.slip(ref, err)
}

// callWhen calls the guard of a node.
func (r *Run) callWhen(ref Ref, n *node) (bool, error) {
	call := func() (bool, error) {
		return judged(r, ref, func() (bool, error) { return n.When(View{run: r, ref: ref, judge: true}) })
	}
	if r.cfg.graphCalls == nil {
		return call()
	}
	return byHost(r, ref, "When", call)
}

// callTest calls the test of a condition.
func (r *Run) callTest(ref Ref, n *node) (any, error) {
	call := func() (any, error) {
		return judged(r, ref, func() (any, error) { return n.Test(View{run: r, ref: ref, judge: true}) })
	}
	if r.cfg.graphCalls == nil {
		return call()
	}
	return byHost(r, ref, "Test", call)
}

// callLoop calls the test of a loop, which sees the run of the last iteration.
func (r *Run) callLoop(ref Ref, of *Run) (again bool, err error) {
	call := func() (bool, error) {
		return judged(of, everyNode, func() (bool, error) { return r.plan.loops[ref](View{run: of, ref: everyNode, judge: true}) })
	}
	if r.cfg.graphCalls == nil {
		return call()
	}
	return byHost(r, ref, "Loop", call)
}

// callFallback calls the fallback of a node.
func (r *Run) callFallback(s *Step, failed error) (any, error) {
	f := r.plan.node(s.ref).Fallback
	if r.cfg.graphCalls == nil {
		return f(s, failed)
	}
	return byHost(r, s.ref, "Fallback", func() (any, error) { return f(s, failed) })
}
