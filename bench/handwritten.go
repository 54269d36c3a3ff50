package main

import (
	"context"
	"slices"
	"sync"
	"time"
)

// stepFunc is the function that the hand-written executors call for every node.
type stepFunc func(ctx context.Context, node int) error

// handWritten is the executor that a good engineer would write for one program and one kind of graph: flat counters under one mutex, and workers
// that continue with nodes that they made ready. It has no statuses, joins, retries, timeouts or events, does not recover from panics, and
// stores no outputs. Most ratios in this directory are relative to handWritten.
type handWritten struct {
	in    []int32   // by node: the number of its predecessors
	out   adjacency // by node: its successors
	step  stepFunc
	limit int  // the number of steps that may run at the same time; 0 means no limit
	clock bool // whether to read the clock at every completion, and to record the start and duration of every node
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
	ready    []int32 // a stack, since the node that became ready last is still in the cache
	workers  int
	starting bool // whether a worker was started and has not taken a node from `ready` yet
	err      error

	times []nodeTime // by node; nil without a clock
}

type nodeTime struct {
	start, duration int64 // ns; start is relative to the start of the run
}

// run performs every node after its predecessors. After an error it starts no further node. It returns the first error.
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

// The method `work` is the loop of a worker. It ends when no node is ready or a step has failed. One critical section settles a node and takes the
// next one. The next node is the first node that the settled node made ready or, if it made none ready, the node that became ready last. If ready
// nodes remain, the worker starts another worker, within the limit. So a worker starts only when there is work.
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
			r.wg.Add(1) // wg is above zero, since it counts this worker
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
