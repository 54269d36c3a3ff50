package kahn

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Coordinator drives a run from elsewhere: from a workflow of a distributed engine, an event loop, a simulation. It is the executor
// without goroutines, clock and context. Its methods return at once, and everything that the run does happens in them: the host begins
// the calls of steps in its own way, anywhere, reports their results, and says what time it is.
//
//	c, err := kahn.NewCoordinator(plan, now, kahn.Inputs(in))
//	for c.Run().Status() == kahn.RunRunning {
//		for s, ok := c.Next(); ok; s, ok = c.Next() {
//			begin(s, s.Call()) // the step as data, see Call.Perform
//		}
//		for s, ok := c.NextStop(); ok; s, ok = c.NextStop() {
//			stop(s) // end the context of that call
//		}
//		switch e := wait(c.Due()); { // for a result, for a signal, or for the next deadline
//		case e.step != nil:
//			err = c.Return(e.step, e.value, e.err)
//		default:
//			c.Advance(e.now)
//		}
//	}
//	res, err := c.Result()
//
// A run that a Coordinator drives has the statuses, events, snapshots and the Result of one that [Execute] performs, composites, retries,
// timeouts, limits and gates included, since the same code makes them. Given the same options, results and times in the same order, and
// with the options [RunID] and [Random], it does the same again.
//
// The methods of a Coordinator are called by one goroutine at a time. They call the guards, tests, merges, contracts, moderators, mocks,
// fallbacks and sinks of the run, and the functions of [Around], [OnNode], [CloneInputs], [Random] and codecs, on that goroutine; these must
// not call the Coordinator. A call during another one panics, since what it would return is wrong. A function of the graph that makes one
// fails its node; of one of Around or a sink the Result has a warning. One that calls runtime.Goexit fails its node and ends the goroutine;
// the Coordinator may then be called by another one.
//
// The methods of its [Run] may be called from anywhere; what they cause happens in the next call of the Coordinator, see
// [Coordinator.Wake]. That the run has ended is told to sinks in a call, too, so that a host which has waited for [Run.Done] calls
// [Coordinator.Result]. [Run.Wait] waits for that call: it is for other goroutines than the one that calls the Coordinator.
type Coordinator struct {
	run *Run
	h   *manual
}

// NewCoordinator begins a run at the given time. With [ResumeFrom] it goes on from a snapshot, in which calls that were under way are
// called again. Steps that have no function of their own need none here: the host calls them.
//
// Errors are those of [Plan.Start]. [Durable], [Idempotent], a [*Memo], [Use] and [RuntimeTrace], which wait for others or surround the calls of
// steps, are refused with an error that matches [ErrBadOption], and so is a time outside of the years 1 to 9999, which JSON cannot express.
func NewCoordinator(p *Plan, now time.Time, opts ...Option) (*Coordinator, error) {
	if y := now.UTC().Year(); y < 1 || y > 9999 {
		return nil, fmt.Errorf("%w: the run would begin in the year %d, which is not from 1 to 9999", ErrBadOption, y)
	}
	h := &manual{start: now, wake: make(chan struct{}, 1), told: make(chan struct{}), calls: map[*Step]*worker{}}
	manually := optionFunc(func(c *config) error {
		for _, refused := range []struct {
			name string
			set  bool
		}{
			{"Durable", c.store != nil}, {"Idempotent", c.idempotency != nil}, {"a Memo", c.memo != nil},
			{"RuntimeTrace", c.traceTask}, {"Use", len(c.middleware) > 0},
		} {
			if refused.set {
				return fmt.Errorf("%w: %s is not for a Coordinator", ErrBadOption, refused.name)
			}
		}
		c.manual = h
		return nil
	})
	notCalled := func(context.Context, *Step) (any, error) { return nil, ErrNoStep }
	r, err := p.Start(context.Background(), notCalled, append(opts[:len(opts):len(opts)], manually)...)
	if err != nil {
		return nil, err
	}
	c := &Coordinator{run: r, h: h}
	defer c.enter()()
	h.settle(r)
	return c, nil
}

// enter begins a call of the Coordinator, and returns the function that ends it.
func (c *Coordinator) enter() (exit func()) {
	if c.h == nil {
		panic("a Coordinator is made by NewCoordinator")
	}
	if !c.h.busy.CompareAndSwap(false, true) {
		panic("a Coordinator was called during another call of it: by a second goroutine, or by a function that it calls")
	}
	return c.exit
}

func (c *Coordinator) exit() { c.h.busy.Store(false) }

// Result returns what [Execute] would return, without waiting. The error matches [ErrNotEnded] if the run has not ended.
func (c *Coordinator) Result() (*Result, error) {
	defer c.enter()()
	c.h.settle(c.run)
	select {
	case <-c.h.told:
		return c.run.Wait()
	default:
		return nil, fmt.Errorf("%w: it is %v", ErrNotEnded, c.run.Status())
	}
}

// Run returns the run, to look at it, to signal it, to stop it, and for its events, snapshots and Result.
func (c *Coordinator) Run() *Run { return c.run }

// Next returns an attempt that has begun, each once: its step is to be called, with the Step as it is or elsewhere with its [Step.Call].
// ok is false if there is none now.
func (c *Coordinator) Next() (s *Step, ok bool) {
	defer c.enter()()
	c.h.settle(c.run)
	h := c.h
	for len(h.begun) > 0 {
		s, h.begun = h.begun[0], h.begun[1:]
		if c.waitsFor(s) {
			return s, true
		}
	}
	return nil, false
}

// waitsFor reports whether the run waits for the result of an attempt.
func (c *Coordinator) waitsFor(s *Step) bool {
	if s == nil || c.h.calls[s] == nil {
		return false
	}
	c.run.st.Lock()
	defer c.run.st.Unlock()
	return s.run.current(s.ref) == s
}

// Return reports the result of an attempt: what the step has returned, and in place of a panic a [*PanicError]. What follows has happened
// when Return returns. For an attempt that the run does not wait for, since it was abandoned or its result has been reported, the error
// matches [ErrStale], and nothing has changed.
func (c *Coordinator) Return(s *Step, value any, err error) error {
	return c.end(s, attemptResult{value: value, err: err, kind: causeOfEnd(err)})
}

// Crash reports that the process of an attempt has died, more often in a row than the host allows: the node fails with [CauseCrashed] as
// under [MaxCrashes], so it is not retried, and its Fallback is called. The node's error matches [ErrCrashed] and err. Crash returns the errors of
// [Coordinator.Return]. A host that begins the attempt again elsewhere reports nothing.
func (c *Coordinator) Crash(s *Step, err error) error {
	switch {
	case err == nil:
		err = ErrCrashed
	case !errors.Is(err, ErrCrashed):
		err = fmt.Errorf("%w: %w", ErrCrashed, err)
	}
	return c.end(s, attemptResult{err: err, kind: CauseCrashed})
}

// end ends an attempt, and applies the consequences.
func (c *Coordinator) end(s *Step, res attemptResult) error {
	defer c.enter()()
	if s != nil {
		s = s.known()
	}
	if !c.waitsFor(s) {
		delete(c.h.calls, s)
		if s == nil {
			return fmt.Errorf("%w: no Step", ErrStale)
		}
		return fmt.Errorf("%w: the run waits for no result of %v", ErrStale, s)
	}
	w := c.h.calls[s]
	delete(c.h.calls, s)
	w.now = c.run.now()
	c.h.work(w, func() bool { return w.finish(res, true) })
	c.h.settle(c.run)
	return nil
}

// NextStop returns an attempt whose step is to be asked to stop, each once: context.Cause of the Step tells why. The run waits for its
// result, as long as [CancelGrace] says.
func (c *Coordinator) NextStop() (s *Step, ok bool) {
	defer c.enter()()
	c.h.settle(c.run)
	for {
		c.run.st.Lock()
		if len(c.h.stops) == 0 {
			c.run.st.Unlock()
			return nil, false
		}
		s, c.h.stops = c.h.stops[0], c.h.stops[1:]
		c.run.st.Unlock()
		if c.waitsFor(s) {
			return s, true
		}
	}
}

// Due returns when [Coordinator.Advance] is to be called next: at the end of a backoff, a pause or a grace, at a deadline, or when a
// token of a rate falls due. ok is false if the run waits for no time.
func (c *Coordinator) Due() (at time.Time, ok bool) {
	defer c.enter()()
	c.h.settle(c.run)
	c.run.st.Lock()
	defer c.run.st.Unlock()
	first, ok := c.h.timers.First()
	if !ok {
		return time.Time{}, false
	}
	return c.run.timeAt(first.Due), true
}

// Wake returns a channel that has a message when another goroutine has asked something of the run, such as a signal or a stop, so that a
// method of the Coordinator is to be called. Each method does what was asked by then and takes the message away. So a host that has called
// [Coordinator.Due] last, before it waits, calls [Coordinator.Next] first: Due may have begun attempts. A message may come without a reason, too. A host with one goroutine needs none.
func (c *Coordinator) Wake() <-chan struct{} { return c.h.wake }

// Advance sets the clock of the run, and does everything that has fallen due by then. A time before the last one changes nothing.
func (c *Coordinator) Advance(now time.Time) {
	defer c.enter()()
	h := c.h
	h.settle(c.run)
	if t := int64(now.Sub(h.start)); t > h.clock.Load() {
		h.clock.Store(t)
	}
	for {
		c.run.st.Lock()
		first, ok := h.timers.Next(h.clock.Load())
		c.run.st.Unlock()
		if !ok {
			break
		}
		first.f()
	}
	c.h.settle(c.run)
}
