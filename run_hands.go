package kahn

import (
	"cmp"
	"container/heap"
	"sync/atomic"
	"time"

	"github.com/seed-c794f7ef/kahn/internal/saturate"
)

// hands take the place of the goroutines and the clock of a run that a [Coordinator] drives, in the run and in those nested in it: what
// would be a goroutine is a job that the Coordinator does, what would be a timer rings when the Coordinator says how late it is, and a
// worker whose step would be called stops until the result is reported. All else of the run is as ever.
//
// The lock of the run guards jobs, bells and stops. The rest belongs to the goroutine that calls the Coordinator.
type hands struct {
	start time.Time    // the time at which the run's clock is zero
	clock atomic.Int64 // that clock
	jobs  []*Run       // each has counted a worker that has not begun
	bells
	seq   uint64
	stops []*Step // attempts whose contexts have ended

	wake chan struct{} // has room for one message

	calls map[*Step]*worker // that wait for the result of their step
	begun []*Step           // those of them that Next has not handed out
}

// timer is what [time.AfterFunc] returns, or a bell of hands.
type timer interface{ Stop() bool }

// startTimer calls f after d, on a goroutine of its own or when the Coordinator says that it is due. It is called with the lock held.
func (r *Run) startTimer(d time.Duration, f func()) timer {
	if h := r.hands; h != nil {
		h.seq++
		b := &bell{of: h, due: saturate.Add(h.clock.Load(), int64(max(d, 0))), seq: h.seq, f: f}
		heap.Push(h, b)
		return b
	}
	return time.AfterFunc(d, f)
}

// launch starts a worker that the run has counted. It is called with the lock held.
func (r *Run) launch() {
	if h := r.hands; h != nil {
		h.jobs = append(h.jobs, r)
		return
	}
	go r.work()
}

// wallClock is the time of day.
func (r *Run) wallClock() time.Time {
	if r.hands != nil {
		return r.timeAt(r.now())
	}
	return time.Now()
}

// bell is a timer of hands. Bells that are due at the same time ring in the order in which they were hung up.
type bell struct {
	of    *hands
	due   int64
	seq   uint64
	f     func()
	index int // in the heap plus one; 0 when it has rung or was stopped
}

// Stop is called with the lock held.
func (b *bell) Stop() bool {
	if b.index == 0 {
		return false
	}
	heap.Remove(b.of, b.index-1)
	return true
}

// bells is a heap of them.
type bells []*bell

func (q bells) Len() int { return len(q) }
func (q bells) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(q[i].due, q[j].due), cmp.Compare(q[i].seq, q[j].seq)) < 0
}

func (q bells) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i+1, j+1
}

func (q *bells) Push(x any) {
	b := x.(*bell)
	*q = append(*q, b)
	b.index = len(*q)
}

func (q *bells) Pop() any {
	last := len(*q) - 1
	b := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	b.index = 0
	return b
}

// note keeps the attempts whose contexts end, and wakes the host. It is called with the lock held.
func (h *hands) note(ending []stopOrder) {
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
		w.run.plan.doubles[w.task.Ref].calls.Add(1)
	}
	w.handed = true
	return false
}

// work lets a worker do what it can do without the result of a step.
func (h *hands) work(w *worker, proceed func() (more bool)) {
	defer w.exit()
	w.goOn(proceed())
	if w.handed {
		w.handed = false
		h.calls[w.step] = w
		h.begun = append(h.begun, w.step)
	}
}

// settle does all that can be done now.
func (h *hands) settle(r *Run) {
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
func (h *hands) conclude(r *Run) {
	a := r.span.Load()
	if a == nil {
		return
	}
	select {
	case <-a.done:
	default:
		r.endAround(a)
	}
}
