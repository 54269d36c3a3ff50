package kahn

import (
	"sync/atomic"
	"time"

	"github.com/seed-c794f7ef/kahn/internal/due"
)

// manual replaces the goroutines and the clock of a run that a [Coordinator] drives, and of those nested in it: a worker is a job that the
// Coordinator performs, a timer fires when the Coordinator sets the clock past it, and a worker whose step would be called stops until the
// result is reported. Everything else is the same as in other runs.
//
// The lock of the run guards jobs, timers and stops. The rest belongs to the goroutine that calls the Coordinator.
type manual struct {
	start  time.Time    // the time at which the run's clock is zero
	clock  atomic.Int64 // that clock
	jobs   []*Run       // each has counted a worker that has not begun
	timers due.Queue[*manualTimer]
	stops  []*Step // attempts whose contexts have ended

	wake chan struct{} // has room for one message
	busy atomic.Bool   // a method of the Coordinator is at work
	told chan struct{} // is closed when sinks and functions of Around have been told that the run has ended

	calls map[*Step]*worker // that wait for the result of their step
	begun []*Step           // those of them that Next has not handed out
}

// manualTimer is a timer of a run that a Coordinator drives. Timers that are due at the same time fire in the order in which they were set.
type manualTimer struct {
	due.Entry
	of *manual
	f  func()
}

// Stop is called with the lock held.
func (t *manualTimer) Stop() bool { return t.of.timers.Remove(t) }

// note keeps the attempts whose contexts end, and wakes the host. It is called with the lock held.
func (h *manual) note(ending []stopOrder) {
	for _, o := range ending {
		h.stops = append(h.stops, o.step)
	}
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// forHost reports whether the host calls the step of a worker's task: not so of conditions, triggers and mocks, which the engine
// evaluates.
func (w *worker) forHost() bool {
	r, n := w.run, w.run.plan.node(w.task.Ref)
	if r.cfg.test != nil && r.plan.doubles[w.task.Ref].mock != nil {
		return false
	}
	return n.Kind != KindTrigger && n.Test == nil
}

// handOver does what precedes the call of a step, and leaves the call to the host: the worker goes on when its result is reported. Inputs
// that are refused are the result of the attempt.
func (w *worker) handOver() (more bool) {
	w.phase = phaseUser
	res := w.admission()
	w.phase = phaseEngine
	w.now = w.run.now()
	if res.err != nil {
		return w.finish(res, true)
	}
	if w.run.cfg.test != nil {
		w.run.plan.doubles[w.task.Ref].called()
	}
	w.handed = true
	return false
}

// work lets a worker do what it can do without the result of a step.
func (h *manual) work(w *worker, proceed func() (more bool)) {
	defer w.exit()
	w.goOn(proceed())
	if w.handed {
		w.handed = false
		h.calls[w.step] = w
		h.begun = append(h.begun, w.step)
	}
}

// settle does all that can be done now.
func (h *manual) settle(r *Run) {
	select {
	case <-h.wake: // before the look at what there is
	default:
	}
	for {
		r.st.Lock()
		var next *Run
		if len(h.jobs) > 0 {
			next, h.jobs = h.jobs[0], h.jobs[1:]
		}
		observed := r.st.IsObserved() && r.st.SignalsDue()
		r.st.Unlock()
		switch {
		case next != nil:
			w := &worker{run: next, now: next.now()}
			h.work(w, w.arrive)
			continue
		case observed:
			r.st.PublishSignals()
			continue
		}
		if r.log != nil {
			r.log.feedReady()
		}
		r.st.Lock()
		more := len(h.jobs) > 0
		r.st.Unlock()
		if !more {
			break
		}
	}
	select {
	case <-r.done:
		h.conclude(r)
	default:
	}
}

// conclude tells the functions of Around that the run has ended.
func (h *manual) conclude(r *Run) {
	select {
	case <-h.told:
		return
	default:
	}
	defer close(h.told)
	if a := r.span.Load(); a != nil {
		r.endAround(a)
	}
}
