package main

import (
	"context"
	"slices"
	"sync"
	"time"
)

// stepFunc is the function that the hand-written executors call for every node.
type stepFunc func(ctx context.Context, node int) error

// handWritten is the executor that a good engineer would write for one program and one kind of graph. It consists of flat counters under one mutex
// and of workers. A worker continues with a node that it has made ready. handWritten has no statuses, joins, retries, timeouts or events. It does
// not recover from panics, and stores no outputs. Most ratios in this directory are relative to handWritten.
type handWritten struct {
	in    []int32   // by node: the number of its predecessors
	out   adjacency // by node: its successors
	step  stepFunc
	limit int  // the number of steps that may run at the same time; 0 means no limit
	clock bool // whether to read the clock at every completion, and record the start and duration of every node
}

func newHandWritten(s *shape, step stepFunc) *handWritten {
	return &handWritten{in: s.indegrees(), out: s.successors(), step: step}
}

// handRun is one run of a handWritten.
type handRun struct {
	*handWritten
	ctx   context.Context
	start time.Time
	wg    sync.WaitGroup

	mu       sync.Mutex
	pending  []int32 // by node: the number of predecessors that have not completed
	ready    []int32 // a stack: the node that became ready last is probably still in the processor's cache
	workers  int
	starting bool // true from the start of a worker until it looks for its first node
	err      error

	times []nodeTime // by node; nil without a clock
}

type nodeTime struct {
	start, duration int64 // ns; start is relative to the start of the run
}

// run performs each node after its predecessors. It returns the error of the first step that fails, and starts no further node after this failure.
func (h *handWritten) run(ctx context.Context) (*handRun, error) {
	r := &handRun{handWritten: h, ctx: ctx, pending: slices.Clone(h.in)}
	if h.clock {
		r.start, r.times = time.Now(), make([]nodeTime, len(h.in))
	}
	for node, n := range h.in {
		if n == 0 {
			r.ready = append(r.ready, int32(node))
		}
	}
	if len(r.ready) > 0 {
		r.workers, r.starting = 1, true
		r.wg.Add(1)
		go r.work()
		r.wg.Wait()
	}
	return r, r.err
}

// The method `work` is the loop of a worker. It ends when no node is ready or a step has failed. In one critical section the worker settles a node
// and takes the next one: the first node that the settled node has made ready. If there is none, the worker takes the node that became ready last.
// If ready nodes remain and the limit permits, the worker starts another worker. So a worker starts only when there is work.
func (r *handRun) work() {
	defer r.wg.Done()
	step, start, successors, pending := r.step, r.out.start, r.out.items, r.pending
	now := int64(0)
	if r.clock {
		now = int64(time.Since(r.start))
	}
	r.mu.Lock()
	r.starting = false
	next := int32(-1)
	for r.err == nil {
		if next < 0 {
			last := len(r.ready) - 1
			if last < 0 {
				break
			}
			next = r.ready[last]
			r.ready = r.ready[:last]
		}
		more := len(r.ready) > 0 && !r.starting && (r.limit == 0 || r.workers < r.limit)
		if more {
			r.starting = true
			r.workers++
		}
		r.mu.Unlock()
		if more {
			r.wg.Add(1) // the counter of wg is above zero, since this worker counts
			go r.work()
		}
		node := next
		err := step(r.ctx, int(node))
		if r.clock {
			end := int64(time.Since(r.start))
			r.times[node] = nodeTime{now, end - now}
			now = end
		}
		next = -1
		r.mu.Lock()
		if err != nil {
			if r.err == nil {
				r.err = err
			}
			break
		}
		for _, to := range successors[start[node]:start[node+1]] {
			left := pending[to] - 1
			pending[to] = left
			if left > 0 {
				continue
			}
			if next < 0 {
				next = to
			} else {
				r.ready = append(r.ready, to)
			}
		}
	}
	r.workers--
	r.mu.Unlock()
}
