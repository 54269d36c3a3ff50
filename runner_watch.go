package kahn

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"time"
)

// RunChange is a change in the list of a Runner's runs: see [Runner.Watch].
type RunChange struct {
	Run *Run
	// Arrived is when the run came to the Runner.
	Arrived time.Time
	// Status is that of the run now.
	Status RunStatus
	// Removed says that the Runner does not remember the run any more: see Runner.History.
	Removed bool
}

// Watch yields the runs that the Runner knows, in the order of their arrival, each with its status, and then, as it happens, each run that
// arrives, whose status has changed, or that is forgotten. It ends when ctx ends, or when all runs of a Runner that was shut down have
// ended. A slow consumer misses what a run was in between, never what it has become, and holds nobody up. The changes inside of a run are
// told by [Run.Events] and [Run.Watch]. A nil ctx yields nothing.
func (rn *Runner) Watch(ctx context.Context) iter.Seq[RunChange] {
	return func(yield func(RunChange) bool) {
		if ctx == nil {
			return
		}
		w := &runWatcher{noted: map[*runnerEntry]bool{}, seen: map[*runnerEntry]RunStatus{}, wake: make(chan struct{}, 1)}
		rn.mu.Lock()
		for e := range entriesOf(&rn.arrived) {
			w.note(e)
		}
		rn.watchers = append(rn.watchers, w)
		rn.mu.Unlock()
		defer func() {
			rn.mu.Lock()
			defer rn.mu.Unlock()
			rn.watchers = slices.DeleteFunc(rn.watchers, func(x *runWatcher) bool { return x == w })
		}()
		for ctx.Err() == nil {
			rn.mu.Lock()
			e := w.next()
			removed := e != nil && rn.entries[e.id] != e
			over := rn.closed && rn.arrived.Len() == rn.ended.Len()
			rn.mu.Unlock()
			switch {
			case e != nil:
				if !w.show(e, removed, yield) {
					return
				}
			case over:
				return
			default:
				select {
				case <-w.wake:
				case <-ctx.Done():
				}
			}
		}
	}
}

// runWatcher collects the runs of which something has changed.
type runWatcher struct {
	queue []*runnerEntry // in the order of the changes, each once; guarded by the Runner's lock, as is noted
	noted map[*runnerEntry]bool
	wake  chan struct{}
	seen  map[*runnerEntry]RunStatus // the watcher's own
}

func (w *runWatcher) note(e *runnerEntry) {
	if e != nil && !w.noted[e] {
		w.noted[e] = true
		w.queue = append(w.queue, e)
	}
	select {
	case w.wake <- struct{}{}:
	default: // it is awake, or will find this when it is
	}
}

func (w *runWatcher) next() *runnerEntry {
	if len(w.queue) == 0 {
		return nil
	}
	e := w.queue[0]
	w.queue = w.queue[1:]
	delete(w.noted, e)
	return e
}

// show yields what has become of a run, if that is new. It is called without
// the Runner's lock: Status takes the lock of the run, which comes before the Runner's.
func (w *runWatcher) show(e *runnerEntry, removed bool, yield func(RunChange) bool) bool {
	status := e.run.Status()
	last, known := w.seen[e]
	switch {
	case removed && !known, !removed && known && last == status:
		return true
	case removed:
		delete(w.seen, e)
	default:
		w.seen[e] = status
	}
	return yield(RunChange{Run: e.run, Arrived: e.at, Status: status, Removed: removed})
}

// note tells the watchers of a run of which something has changed, with the Runner's lock held; of no run if it is the Runner itself.
func (rn *Runner) note(e *runnerEntry) {
	for _, w := range rn.watchers {
		w.note(e)
	}
}

// given is what a run was started with under a Runner, so that it can be redriven.
type given struct {
	plan *Plan
	step StepFunc
	opts []Option // without those of the Runner
}

// Redrive runs a part of a run again that has ended and that the Runner remembers: the named nodes, or without names all that failed,
// were aborted or were cancelled, and everything that follows them; see the function [Redrive]. The new run has the id, the graph, the
// step function and the options of the run, and takes its place; its log goes on where the old one has ended, and [Run.Events] yields
// the old events, too. If it has a key, see [Idempotent], it is the run of that key from now on. ctx is that of the new run.
//
// An id that the Runner does not know is an error that matches [ErrUnknownRun], a run that has not ended one that matches
// [ErrDuplicateRun]. A durable run is redriven in its store. Other errors are those of [Start] and of the function Redrive.
func (rn *Runner) Redrive(ctx context.Context, id string, nodes ...string) (*Run, error) {
	return rn.RedriveBy(ctx, id, Request{}, nodes...)
}

// RedriveBy is Redrive with the word of who asks for it: see the option [RedriveBy].
func (rn *Runner) RedriveBy(ctx context.Context, id string, q Request, nodes ...string) (*Run, error) {
	rn.mu.Lock()
	e := rn.entries[id]
	ended := e != nil && e.state == forgotten
	rn.mu.Unlock()
	switch {
	case e == nil:
		return nil, fmt.Errorf("%w: %s", ErrUnknownRun, quoteID(id))
	case !ended:
		return nil, fmt.Errorf("%w: %s", ErrDuplicateRun, quoteID(id))
	}
	given := e.run.cfg.given
	var from *Snapshot
	if e.run.cfg.store == nil { // else it is redriven in its store
		from = e.run.Snapshot()
	}
	opts := slices.Concat(given.opts, []Option{RunID(id), RedriveFrom(from, nodes...), optionFunc(func(c *config) error {
		c.redrivenBy, c.keep, c.signals = nil, false, nil // of an earlier life
		c.replaces = e.run
		return nil
	})})
	if q != (Request{}) {
		opts = append(opts, RedriveBy(q))
	}
	return given.plan.Start(ctx, given.step, rn.options(opts)...)
}
