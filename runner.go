package kahn

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"
)

// Runner holds what many runs share: options, a bound on how many are at work at once, and a registry of those that are live
// or were lately. The zero value bounds nothing and remembers 100 runs that have ended. Its fields must not be changed once
// it is in use. Execute and Start work without one.
type Runner struct {
	// Options are those of every run; the run's own come after them.
	Options []Option
	// MaxRuns bounds how many runs are at work at the same time. Further ones are pending, and begin in the order in which
	// they arrived, but none waits for the functions of another one's [Around]. A suspended run is not at work: when its signal comes it goes on at once, even above the bound. Zero
	// means no bound; a negative number is an error that matches [ErrBadOption], as it is of Limit and KeyLimit.
	MaxRuns int
	// History is how many of the runs that have ended are remembered, the latest ones. Zero means 100, a negative number none.
	History int
	// Learn is the History of every run that has none of its own, see the option [Learn]. Nil: none.
	Learn *History
	// CancelOnShutdown makes Shutdown cancel the runs that are still at work when its context ends, instead of interrupting
	// them: cleanup nodes run, and the runs are over. It is for hosts that keep neither stores nor snapshots, whose runs
	// cannot go on anywhere. A run with a store would be cancelled in its store, too, for good.
	CancelOnShutdown bool
	// Limit bounds how many steps of all runs together run at the same time, and Rate how often they start, as [Limit] and
	// [StartRate] do in one run; a run may have such bounds of its own as well. A run that lacks a slot or a token takes its
	// turn after the runs that have waited longer. The cleanup nodes and the end node of a run that is being stopped do not
	// wait for other runs: they start above these bounds, and those of KeyLimit and KeyRate.
	Limit int
	Rate  Rate
	// KeyLimit and KeyRate are the same for the nodes of one Key in all runs.
	KeyLimit int
	KeyRate  Rate

	pooling sync.Once
	pool    *pool // the limits that the runs share, nil without any
	badPool error // the defect of MaxRuns, Limit, Rate, KeyLimit or KeyRate

	mu        sync.Mutex // guards what follows; a leaf: nothing else is locked under it
	entries   map[string]*runnerEntry
	reserved  map[string]bool // the ids of runs that take their leases, and are about to be admitted
	arrived   list.List       // of *runnerEntry, as are the next two: all, in the order of arrival
	ended     list.List       // those that have ended, in the order of their ends
	queue     list.List       // those that are pending, in the order of arrival
	active    int
	closed    bool
	over      chan struct{}  // see shutdownBegun
	due       []*runnerEntry // to be begun, by the launcher
	launching bool           // there is one
	watchers  []*runWatcher  // see Watch
	steps     int64          // entries visited, by which tests check that the work is linear
}

// runnerEntry is a run in the registry.
type runnerEntry struct {
	run   *Run
	id    string
	from  *restoration // for a pending run
	at    time.Time
	state runnerState

	inArrived, inEnded, inQueue *list.Element // its places; nil where it is not
}

// runnerState is the state of a run in its Runner.
type runnerState uint8

const (
	queued    runnerState = iota
	active                // counted
	asleep                // suspended: not counted
	forgotten             // it has ended
)

// runnerChange is a change that a run reports to its Runner, with the run's lock held.
type runnerChange uint8

const (
	rests runnerChange = iota
	wakes
	leftActive
)

const defaultHistory = 100

// Start is [Start] under the Runner: with its options, and pending while MaxRuns are at work. A pending run can be waited
// for, cancelled and left; without having begun it calls no step, cleanup nodes and the end node included. A run whose
// caller's context ends while it is pending is cancelled.
//
// Errors are those of Start; [ErrBadOption] if a bound or a rate of the Runner cannot be; [ErrDuplicateRun] if a run of this id is known and has not ended, and [ErrShutdown] after
// Shutdown.
func (rn *Runner) Start(ctx context.Context, g *Graph, step StepFunc, opts ...Option) (*Run, error) {
	return Start(ctx, g, step, rn.options(opts)...)
}

// options are those of a run under the Runner.
func (rn *Runner) options(opts []Option) []Option {
	all := append(slices.Clone(rn.Options), opts...)
	return append(all, optionFunc(func(c *config) (err error) {
		c.runner, c.given = rn, &given{opts: opts}
		if c.history == nil {
			c.history = rn.Learn
		}
		rn.pooling.Do(func() { rn.pool, rn.badPool = rn.makePool() })
		c.pool = rn.pool
		return rn.badPool
	}))
}

// Execute is Start and [Run.Wait]. Unlike [Execute] it waits for a suspended run to go on: the registry has it.
func (rn *Runner) Execute(ctx context.Context, g *Graph, step StepFunc, opts ...Option) (*Result, error) {
	p, err := g.compiled()
	if err != nil {
		return nil, err
	}
	return p.execute(ctx, step, rn.options(opts), true)
}

// Run returns a run that is live or remembered.
func (rn *Runner) Run(id string) (*Run, bool) {
	rn.mu.Lock()
	defer rn.mu.Unlock()
	if e := rn.entries[id]; e != nil {
		return e.run, true
	}
	return nil, false
}

// Runs yields the runs that are live or remembered when Runs is called, with the times of their arrival, in the order of it. Runs that arrive
// later are not yielded, and runs that are forgotten later still are.
func (rn *Runner) Runs() iter.Seq2[*Run, time.Time] {
	rn.mu.Lock()
	all := make([]*runnerEntry, 0, rn.arrived.Len())
	for e := range entriesOf(&rn.arrived) {
		all = append(all, e)
	}
	rn.mu.Unlock()
	return func(yield func(*Run, time.Time) bool) {
		for _, e := range all {
			if !yield(e.run, e.at) {
				return
			}
		}
	}
}

// Shutdown ends the Runner: no run is begun any more, and the live ones are left, see [Run.Leave], so that they can go on
// elsewhere from their stores or from the snapshots of their Results, pending ones included. It returns when all have ended.
//
// When ctx ends first, Shutdown interrupts running attempts: their contexts end with the cause [ErrLeft]. A node whose step
// returns an error then is ready again when the run goes on, and the attempt does not count against MaxAttempts; the output
// of a step that completes all the same is kept. A step that ignores its context for longer than [CancelGrace] is left
// behind and named in Result.Abandoned, like a guard or merge that does not return: stop the process before the run goes on,
// or two attempts overlap. Neither cleanup nodes nor the end node are run, since the run is not over. Shutdown waits for all
// that and returns the cause of ctx's end.
//
// A run that was stopped, or is stopped meanwhile, is not left: it ends as usual, with its cleanup. Attempts that it lets
// finish, see [Drain], are interrupted when ctx ends.
func (rn *Runner) Shutdown(ctx context.Context) error {
	if ctx == nil {
		return ErrNoContext
	}
	rn.mu.Lock()
	if rn.over != nil && !rn.closed {
		close(rn.over)
	}
	rn.closed = true
	rn.note(nil)
	for e := range entriesOf(&rn.queue) {
		e.inQueue = nil
	}
	rn.queue.Init()
	live := rn.live()
	rn.mu.Unlock()
	for _, run := range live {
		run.Leave()
	}
	var err error
	for _, run := range live {
		select {
		case <-run.Done():
			continue
		case <-ctx.Done():
		}
		if err == nil {
			err = bounded(context.Cause(ctx))
			for _, run := range live {
				if rn.CancelOnShutdown {
					run.Cancel()
				} else {
					run.interrupt()
				}
			}
		}
		<-run.Done()
	}
	for _, run := range live {
		if run.span.Load() != nil {
			_, _ = run.Wait()
		}
	}
	return err
}

// live returns the runs that have not ended, with the lock held.
func (rn *Runner) live() (runs []*Run) {
	for e := range entriesOf(&rn.arrived) {
		if e.state != forgotten {
			runs = append(runs, e.run)
		}
	}
	return runs
}

// reserve reserves the id of a run that is about to be admitted, or refuses the run.
func (rn *Runner) reserve(id string) error {
	rn.mu.Lock()
	defer rn.mu.Unlock()
	old, reserved := rn.entries[id], rn.reserved[id]
	switch {
	case rn.closed:
		return ErrShutdown
	case reserved || old != nil && old.state != forgotten:
		return fmt.Errorf("%w: %s", ErrDuplicateRun, quoteID(id))
	}
	if rn.reserved == nil {
		rn.reserved = map[string]bool{}
	}
	rn.reserved[id] = true
	return nil
}

// unreserve ends a reservation.
func (rn *Runner) unreserve(id string) {
	rn.mu.Lock()
	defer rn.mu.Unlock()
	delete(rn.reserved, id)
}

// admit registers a run whose id is reserved and that is about to begin, and reports whether it may: else it is pending now, or refused.
// The reservation ends unless the run is refused.
func (rn *Runner) admit(r *Run, from *restoration) (bool, error) {
	id := r.ID()
	e := &runnerEntry{run: r, id: id, from: from, at: r.start}
	rn.mu.Lock()
	defer rn.mu.Unlock()
	if rn.closed {
		return false, ErrShutdown
	}
	if old := rn.entries[id]; old != nil { // it has ended
		rn.forget(old)
	}
	delete(rn.reserved, id)
	if rn.entries == nil {
		rn.entries = map[string]*runnerEntry{}
	}
	rn.entries[id] = e
	e.inArrived = rn.arrived.PushBack(e)
	rn.note(e)
	if rn.MaxRuns == 0 || rn.active < rn.MaxRuns {
		e.state = active
		rn.active++
		return true, nil
	}
	e.inQueue = rn.queue.PushBack(e)
	return false, nil
}

// changed records a change of a run's status, with the lock of the run held. Runs that may begin now do so on another
// goroutine, since beginning takes the lock of another run.
func (rn *Runner) changed(r *Run, change runnerChange) {
	rn.mu.Lock()
	defer rn.mu.Unlock()
	e := rn.entries[r.ID()]
	if e == nil || e.run != r {
		return
	}
	rn.note(e)
	before := e.state == active
	switch change {
	case rests:
		e.state = asleep
	case wakes:
		e.state = active
	case leftActive:
		if e.state == forgotten {
			return
		}
		e.state = forgotten
		e.inEnded = rn.ended.PushBack(e)
		rn.unqueue(e)
		rn.trim()
	}
	if after := e.state == active; after && !before {
		rn.active++
	} else if before && !after {
		rn.active--
	}
	for rn.queue.Len() > 0 && rn.active < rn.MaxRuns {
		next := rn.queue.Front().Value.(*runnerEntry)
		rn.unqueue(next)
		next.state = active
		rn.active++
		rn.due = append(rn.due, next)
	}
	if len(rn.due) > 0 && !rn.launching {
		rn.launching = true
		go rn.launch()
	}
}

// begun tells the watchers of a run that is not pending any more.
func (rn *Runner) begun(r *Run) {
	rn.mu.Lock()
	defer rn.mu.Unlock()
	if e := rn.entries[r.ID()]; e != nil && e.run == r {
		rn.note(e)
	}
}

// launch begins the runs that are due, in their order, and ends. Functions of Around keep no other run waiting.
func (rn *Runner) launch() {
	over := false
	defer func() {
		if !over { // the context of a caller has ended the goroutine
			go rn.launch()
		}
	}()
	for {
		rn.mu.Lock()
		if len(rn.due) == 0 {
			rn.launching, over = false, true
			rn.mu.Unlock()
			return
		}
		next := rn.due[0]
		rn.due = rn.due[1:]
		rn.mu.Unlock()
		if len(next.run.cfg.around) > 0 { // functions of the host, which may take long
			go next.run.begin(next.from, next.run.now())
			continue
		}
		next.run.begin(next.from, next.run.now())
	}
}

// trim forgets the runs that have ended first, beyond the history.
func (rn *Runner) trim() {
	history := rn.History
	if history == 0 {
		history = defaultHistory
	}
	for rn.ended.Len() > max(history, 0) {
		rn.forget(rn.ended.Front().Value.(*runnerEntry))
	}
}

// forget takes an ended run out of the registry.
func (rn *Runner) forget(e *runnerEntry) {
	rn.steps++
	if id := e.run.ID(); rn.entries[id] == e {
		delete(rn.entries, id)
	}
	rn.ended.Remove(e.inEnded)
	rn.arrived.Remove(e.inArrived)
	rn.note(e)
}

// unqueue takes a run out of those that are pending, if it is one.
func (rn *Runner) unqueue(e *runnerEntry) {
	rn.steps++
	if e.inQueue != nil {
		rn.queue.Remove(e.inQueue)
		e.inQueue = nil
	}
}

func entriesOf(l *list.List) iter.Seq[*runnerEntry] {
	return func(yield func(*runnerEntry) bool) {
		for x := l.Front(); x != nil; x = x.Next() {
			if !yield(x.Value.(*runnerEntry)) {
				return
			}
		}
	}
}

// Errors of a Runner.
var (
	// ErrDuplicateRun rejects a run of a Runner whose id is that of one that has not ended, and a fork whose id is that of another run.
	ErrDuplicateRun = errors.New("the id is that of another run")
	// ErrShutdown rejects a run that is started after Shutdown.
	ErrShutdown = errors.New("the runner was shut down")
)
