package kahn

import (
	"sync/atomic"
	"time"

	"github.com/seed-c794f7ef/kahn/internal/due"
)

// manual replaces the goroutines and the clock of a run, and of its nested runs, if a [Coordinator] drives the run. The Coordinator performs the
// workers, one after the other. When a worker needs the result of a step, it pauses until the host reports the result. A timer fires when the host
// sets the clock to the timer's time or a later time. Everything else is the same as in other runs.
//
// The run's lock guards jobs, timers, stops and undos. Any goroutine may use start, clock, wake, busy and told. Only the goroutine that calls the
// Coordinator uses the other fields.
type manual struct {
	start  time.Time    // the zero of the run's clock
	clock  atomic.Int64 // the run's clock
	jobs   []*Run       // the runs of the workers that have not begun, one element for each worker
	timers due.Queue[*manualTimer]
	stops  []*Step // attempts whose contexts have ended; NextStop takes attempts from this list

	wake chan struct{} // a channel with room for one message
	busy atomic.Bool   // a method of the Coordinator is running
	told chan struct{} // closed at the end of the run, when the sinks and the functions of Around have been called

	undos []undoCall // attempts to undo nodes; each attempt has begun, and waits for settle

	calls  map[*Step]inFlight // the attempts handed to the host, including attempts to undo a node, until the host reports their results
	begun  []*Step            // the attempts in `calls` that Next has not returned
	count  uint64             // the number of attempts that were handed to the host
	lapsed map[string]bool    // the tokens of attempts that ended before the host reported a result; nil if there are none

	keepsFlight bool                  // whether the run continues the attempts in flight of a snapshot
	landing     *landing              // set while the run is being restored with its attempts in flight; otherwise nil
	reversals   []place               // the composites with nodeFlight.Undoes that reverseAgain has not concluded yet
	unlanded    map[string]*runFlight // by Run.flightKey: the runs whose attempts to undo nodes are not restored yet
}

// inFlight describes an attempt that was handed to the host, until the host reports the result.
type inFlight struct {
	worker *worker // the worker that needs the result; nil for an attempt to undo a node
	undo   *undo   // the compensation of the attempt; nil for any other attempt
	told   bool    // whether NextStop has returned the attempt
	number uint64  // the position among all attempts that were handed to the host, from 1
}

// current reports whether the run waits for the result of the attempt. The caller holds the run's lock.
func (x inFlight) current(s *Step) bool {
	if x.undo != nil {
		return x.undo.step == s
	}
	return s.run.current(s.ref) == s
}

// hand hands an attempt to the host, so that Next returns the attempt.
func (h *manual) hand(s *Step, x inFlight) {
	h.count++
	x.number = h.count
	h.calls[s] = x
	h.begun = append(h.begun, s)
}

// manualTimer is a timer of a run that a Coordinator drives. Timers that are due at the same time fire in the order in which they were set.
type manualTimer struct {
	due.Entry
	of *manual
	f  func()
}

// Stop stops the timer. The caller holds the run's lock.
func (t *manualTimer) Stop() bool { return t.of.timers.Remove(t) }

// note records the attempts whose contexts end, so that [Coordinator.NextStop] returns them. It also wakes the host. The caller
// holds the run's lock.
func (h *manual) note(ending []stopOrder) {
	for _, o := range ending {
		h.stops = append(h.stops, o.step)
	}
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// forHost reports whether the host calls the step of an attempt. The engine itself evaluates tests of conditions, and performs triggers and mocks.
func (s *Step) forHost() bool {
	r, n := s.run, s.run.plan.node(s.ref)
	if r.cfg.test != nil && r.plan.doubles[s.ref].mock != nil {
		return false
	}
	return n.Kind != KindTrigger && n.Test == nil
}

// handOver does everything that precedes the call of a step. Then the worker pauses, the host calls the step, and the worker continues when the
// host reports the result. If the contract or the moderator refuses the inputs, handOver ends the attempt with the error.
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

// work runs a worker until the worker ends or needs the result of a step.
func (h *manual) work(w *worker, proceed func() (more bool)) {
	defer w.exit()
	w.goOn(proceed())
	if w.handed {
		w.handed = false
		h.hand(w.step, inFlight{worker: w})
	}
}

// advance does what [Coordinator.Advance] does.
func (h *manual) advance(r *Run, now time.Time) {
	h.settle(r)
	if t := int64(now.Sub(h.start)); t > h.clock.Load() {
		h.clock.Store(t)
	}
	for {
		r.st.Lock()
		first, ok := h.timers.Next(h.clock.Load())
		r.st.Unlock()
		if !ok {
			break
		}
		first.f()
	}
	h.settle(r)
}

// settle does everything that the run can do without the host.
func (h *manual) settle(r *Run) {
	for {
		r.st.Lock()
		var next *Run
		var undo undoCall
		switch {
		case len(h.jobs) > 0:
			next, h.jobs = h.jobs[0], h.jobs[1:]
		case len(h.undos) > 0:
			undo, h.undos = h.undos[0], h.undos[1:]
		}
		observed := r.st.IsObserved() && r.st.SignalsDue()
		r.st.Unlock()
		switch {
		case next != nil:
			w := &worker{run: next, now: next.now()}
			h.work(w, w.arrive)
			continue
		case undo.step != nil:
			h.undo(undo)
			continue
		case observed:
			r.st.PublishSignals()
			continue
		}
		if r.log != nil {
			r.log.feedReady()
		}
		r.st.Lock()
		more := len(h.jobs)+len(h.undos) > 0
		r.st.Unlock()
		if !more {
			break
		}
	}
	if r.isOver() {
		h.conclude(r)
	}
}

// conclude is called when the run has ended. The first call calls the functions that Around's functions have returned.
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
