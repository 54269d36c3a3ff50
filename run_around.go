package kahn

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/seed-c794f7ef/kahn/internal/once"
)

// Around calls f when the run begins, and what f returns when the run has ended: it is for what is to span a run, such as a span of a
// trace, a log of its own or a metric.
//
//	kahn.Around(func(ctx context.Context, r *kahn.Run) (context.Context, func(*kahn.Result)) {
//		ctx, span := tracer.Start(ctx, r.Name())
//		return ctx, func(res *kahn.Result) { span.SetStatus(res.Status); span.End() }
//	})
//
// ctx is the caller's context. The context that f returns has to be derived from it, or nil: its values are those of the steps' contexts;
// that it ends, if it does before the caller's, does not stop the run. f is called before anything is run, on the goroutine of [Start], or
// for a run that had to wait on one of the [Runner]. The run is pending as long as f is at work, and has no time at which it started: it
// can be looked at, signalled, cancelled and left, and is not to be waited for; if it ends by that, the functions that come later are not
// called. Several Arounds nest, the first one outermost.
//
// The function that f returns, if it is not nil, gets the Result on a goroutine of the run's own. [Run.Wait], [Execute] and
// [Runner.Shutdown] wait for it, for CancelGrace, but at least a second. A run that never begins, since it was cancelled or left as long
// as it was pending, calls nothing. A panic of either function is a warning in the Result, and so is one that is still at work then. A nil f
// is an error that matches [ErrBadOption].
func Around(f func(ctx context.Context, r *Run) (context.Context, func(*Result))) Option {
	return optionFunc(func(c *config) error {
		if f == nil {
			return fmt.Errorf("%w: Around(nil)", ErrBadOption)
		}
		c.around = append(slices.Clip(c.around), f)
		return nil
	})
}

// surrounding holds the functions that a run calls at its end.
type surrounding struct {
	ends   []func(*Result)
	late   []error       // warnings of functions of Around that were at work when the run ended
	done   chan struct{} // closed when all have returned
	waited once.Once     // the grace is granted once
	told   bool          // the Result has been returned; guarded by the run's resMu
}

// surround calls the functions of Around, unless the run has ended. One of them may end the goroutine. It is called without the lock,
// before the run is open.
func (r *Run) surround() {
	a := &surrounding{done: make(chan struct{})}
	defer func() {
		if r.span.Load() != nil && r.manual == nil { // else the Coordinator does when the run has ended
			go r.endAround(a)
		}
	}()
	for _, f := range r.cfg.around {
		if !r.isAhead(a) {
			return
		}
		err := contain(func() error {
			ctx, end := f(r.base, r)
			if ctx != nil {
				r.st.Lock()
				if r.stage < stageRunning { // else the run was stopped or left meanwhile, and reads it
					r.base = ctx
				}
				r.st.Unlock()
			}
			if end != nil {
				a.ends = append(a.ends, end)
			}
			return nil
		})
		if err != nil {
			r.warnOfAround(a, fmt.Errorf("Around: %w", bounded(err)))
		}
	}
}

// isAhead reports whether the run has not ended before it began. From the first time on, whoever waits for the run waits for its
// functions of Around, too.
func (r *Run) isAhead(a *surrounding) bool {
	r.st.Lock()
	defer r.st.Unlock()
	if r.stage >= stageRunning {
		return false
	}
	r.span.Store(a)
	return true
}

// warnOfAround adds a warning to the Result, or leaves it to endAround if the run has ended meanwhile.
func (r *Run) warnOfAround(a *surrounding, err error) {
	r.st.Lock()
	defer r.st.Unlock()
	if r.stage >= stageRunning {
		a.late = append(a.late, err)
		return
	}
	r.warn(err)
}

// endAround waits for the end of the run and tells those who are to know, the innermost first. One that ends the goroutine does not keep
// the others from being called.
func (r *Run) endAround(a *surrounding) {
	defer close(a.done)
	var res *Result
	for _, end := range a.ends {
		defer r.callEnd(end, &res)
	}
	res, _ = r.finished()
	for _, err := range a.late {
		r.warnOfEnd(res, err)
	}
}

func (r *Run) callEnd(end func(*Result), res **Result) {
	err := ErrGoexit
	defer func() {
		if err != nil {
			r.warnOfEnd(*res, fmt.Errorf("Around: %w", err))
		}
	}()
	err = bounded(contain(func() error { end(*res); return nil }))
}

// warnOfEnd adds a warning to a Result that Wait has not returned yet.
func (r *Run) warnOfEnd(res *Result, err error) {
	r.resMu.Lock()
	defer r.resMu.Unlock()
	if !r.span.Load().told {
		res.Warnings = append(res.Warnings, err)
	}
}

var errStuckAround = errors.New("Around: still busy after the run's end and its grace")

// awaitAround waits for the functions that Around's have returned, for as long as the grace says, and only once.
func (r *Run) awaitAround(res *Result) {
	a := r.span.Load()
	if a == nil {
		return
	}
	a.waited.Do(func() {
		timer := time.NewTimer(max(r.cfg.cancelGrace, minSinkGrace))
		defer timer.Stop()
		select {
		case <-a.done:
		case <-timer.C:
			r.warnOfEnd(res, errStuckAround)
		}
		r.resMu.Lock()
		a.told = true
		r.resMu.Unlock()
	})
}
