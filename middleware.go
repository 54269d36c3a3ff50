package kahn

import (
	"context"
	"errors"
	"fmt"

	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/machine"
)

// Middleware wraps a step function in another one: see [Use].
type Middleware func(next StepFunc) StepFunc

// Use wraps every attempt of every step in the given middleware, the first one outermost; a later Use wraps inside an
// earlier one. It applies to the host's step function and to the nodes' own Do, not to tests and fallbacks. Each Middleware
// is called once for the run, before anything starts; the function that it returns is called for every attempt:
//
//	func timed(next kahn.StepFunc) kahn.StepFunc {
//		return func(ctx context.Context, s *kahn.Step) (any, error) {
//			defer func(start time.Time) { log.Print(s.ID(), time.Since(start)) }(time.Now())
//			return next(ctx, s)
//		}
//	}
//
// The function may pass a derived context to next, which then becomes the context of the Step, too; it may return without
// calling next, or change the results of next: its results are those of the attempt. A Middleware that is nil, panics or
// returns nil is an error that matches [ErrBadOption].
//
// Middleware does not see nodes without an attempt, which were skipped or stopped before their start: see [OnNode].
func Use(mw ...Middleware) Option {
	return optionFunc(func(c *config) error {
		for _, m := range mw {
			if m == nil {
				return fmt.Errorf("%w: nil Middleware", ErrBadOption)
			}
		}
		c.middleware = append(c.middleware, mw...)
		return nil
	})
}

// OnNode adds an observer of nodes: it is called once for every node that has ended, also for those that were skipped or
// stopped before they started, which middleware does not see. Retries are inside a node's one result.
//
// It observes and does not wrap, because a node without an attempt has nothing to wrap, and a cascade may end a million
// nodes in one step of the run. So it is called like a sink of [OnEvent], after the fact, in the order of events, on a
// goroutine of its own, and with the same protection. Origins are those known when the node ended; the Result has them all.
// Nodes inside a composite are observed too; their ID is their path, as in [Event].
func OnNode(observer func(NodeResult)) Option {
	return optionFunc(func(c *config) error {
		if observer == nil {
			return fmt.Errorf("%w: OnNode(nil)", ErrBadOption)
		}
		c.observers = append(c.observers, observer)
		return nil
	})
}

// observe makes a sink of an observer.
func observe(observer func(NodeResult)) func(uint64, block) {
	return func(_ uint64, b block) {
		for i := range b.lines {
			if r, ref, arg, ok := b.end(i); ok {
				res := r.endOf(ref, arg)
				res.RunID = r.ID()
				observer(res)
			}
		}
	}
}

// endOf is the result of a node that has ended in a run that goes on; payload is that of its end event.
func (r *Run) endOf(ref Ref, payload any) NodeResult {
	r.st.Lock()
	res := r.nodeResult(ref)
	res.ID = r.path(ref)
	origin := r.st.OriginOf(ref)
	r.st.Unlock()
	end, ok := payload.(event.NodeEnd)
	if !ok {
		return res
	}
	res.Err = end.Err
	res.Cause = Cause{Kind: end.Cause, Origins: end.Origins}
	switch {
	case machine.IsUpstream(end.Cause):
		res.Err = &UpstreamError{Node: r.plan.ID(ref), Kind: end.Cause, Origins: end.Origins}
	case origin != noRef && end.Cause != CauseContext && end.Cause != CauseCancelRun:
		res.Cause.Origins = r.names([]Ref{origin})
	}
	res.Cause.Err = res.Err
	return res
}

// wrap puts the middleware around the step function.
func (r *Run) wrap() error {
	if len(r.cfg.middleware) == 0 {
		return nil
	}
	step := r.step
	var wrapped StepFunc = func(ctx context.Context, s *Step) (any, error) {
		if own := s.node().Do; own != nil {
			return own(ctx, s)
		}
		return step(ctx, s)
	}
	for i := len(r.cfg.middleware) - 1; i >= 0; i-- {
		inner := wrapped
		next := func(ctx context.Context, s *Step) (any, error) { return inner(ctx, s.under(ctx)) }
		err := contain(func() error {
			if wrapped = r.cfg.middleware[i](next); wrapped == nil {
				return errors.New("it returned nil")
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("%w: Middleware number %d: %w", ErrBadOption, i+1, bounded(err))
		}
	}
	r.step, r.wrapped = wrapped, true
	return nil
}
