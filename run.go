package kahn

import (
	"context"
	"runtime/trace"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
)

// Run is one execution of a graph. Its methods may be called from any goroutine.
type Run struct {
	// Everything below is guarded by st.mu unless it says otherwise. The lock is never held while user code runs. There is no
	// scheduler goroutine: the worker that finished a step settles it, takes the best ready node in the same critical section
	// and performs that itself; for what else is ready it starts one more worker, which does the same.

	runGiven         // what the run performs
	st         State // the lock, and every decision
	runNodes         // what it keeps of each node
	runReports       // its events
	runNest          // its place among runs nested in one another
	runCrew          // its goroutines and timers
	runStops         // its stops
	runRest          // gates, signals, rest
	runOutcome       // what comes of it
	runIdentity
}

// runGiven is what a run performs, and how. It is fixed when the run begins, but for base, which the caller's context may replace.
type runGiven struct {
	plan     *Plan
	step     StepFunc        // wrapped in the middleware
	ctx      context.Context // the caller's
	base     context.Context // the caller's values, without its cancellation: attempts are stopped by the run alone
	cfg      *config
	start    time.Time
	wrapped  bool         // step is wrapped and performs the nodes' own Do too
	stepless bool         // the host has given no step function
	mayEnd   bool         // the caller's context may end
	careful  bool         // something beside the result decides what becomes of an attempt
	unheld   bool         // started by Execute, so nobody can signal it: suspending ends the run
	epoch    int          // 1, and one more with each redrive
	from     *restoration // what it is to go on with, until it is opened
}

// runNodes is what a run keeps of its nodes.
type runNodes struct {
	records []record
	extras  map[Ref]*extra
	checks  map[Ref]*evaluation // that workers perform
	slips   map[Ref]error       // see noteSlip
	slipped atomic.Bool         // there was one; not guarded
}

// runReports is how a run's events are recorded.
type runReports struct {
	log      *eventLog // nil if nobody listens; immutable, and recorder is of use only with it; the outermost run's
	recorder recorder
	scope    *eventScope // nil without a log
	task     *trace.Task // in the execution trace; nil without the option RuntimeTrace
}

// runNest is the place of a run among others. A run with composites, and the runs nested in it, form a tree. They have one lock, one
// log and one clock.
type runNest struct {
	tree       *tree           // nil for a run without composites that is not nested
	outer      *Run            // nil for a run that is not nested
	within     *Step           // the attempt of the composite that the run is a part of
	prefix     string          // of the paths of the run's nodes
	keys       string          // of their keys in the store, see key
	began      int64           // ns since start, which is the outermost run's
	bound      int64           // when the run's time is up, ns since start, which may be before it; 0 means never
	remaining  int64           // the longest path of the tree that remains after the run
	stoppedBy  CauseKind       // what the composite was stopped for, if it was
	items      *items          // of a map, of whose items this is the run
	iteration  int             // of a loop, from 1, of which this is the run; else 0
	previous   any             // the output of the iteration before
	touched    bool            // see tree
	nests      bool            // some node is a composite, or has been expanded
	rootInputs map[string]any  // of the run of a graph that a node was expanded into, never nil then
	lends      map[string]bool // groups that graphs around this one declare, and only graphs inside of expanded nodes name
}

// runCrew is who works for a run.
type runCrew struct {
	workers   int      // goroutines in work, abandoned ones not counted
	alone     int      // workers that evaluate something inline under Limit(1): nothing is begun meanwhile, or the order would be chance
	starting  bool     // one of them has not taken its first task yet: it will look for more
	timers    int      // callbacks that are armed or running
	single    *single  // nil but for runs with one slot; the outermost run's
	unwritten int      // ready nodes, and nested runs that have ended, that wait for their store
	durable   *durable // the outermost run's; nil without a store
	pooled    []*slots // what the run shares with others of its Runner; the outermost run's
	heard     []*claim // turns that have come and were not used yet; the outermost run's
	tokenDue  *alarm   // for the next token that a node waits for; the outermost run's
	tokenAt   int64    // when it falls due
}

// runStops is what is known of the stops of a run.
type runStops struct {
	followed     bool                     // the end of the caller's context is going to stop the run
	unfollow     func() bool              // ends that, until it was called; of the outermost run
	unfollowed   atomic.Bool              // nothing more comes of it
	deadline     *alarm                   // of the run
	stopCauses   map[CauseKind]*stopCause // what stopped the run, for its attempts' contexts; nil if nothing did
	stopManner   stopManner               // of the first stop
	stopOrigin   Ref                      // the node that it goes back to, or noRef
	cancelled    bool                     // Cancel was called or the caller's context ended
	asked        *Request                 // of the first who asked for a stop, nil if nobody did; the outermost run's
	redrivenBy   *Request                 // of who asked for the redrive that began the epoch, if there was one; the outermost run's
	ending       []stopOrder              // attempts whose contexts end when the lock is released
	failedGroups []groupFailure           // of those that stop their members, each once: see groupFailed
}

// runRest is what a run that waits, rests or is being left has to know.
type runRest struct {
	leaving   bool           // Leave was called
	resting   bool           // suspended, nothing left to do
	pending   bool           // the Runner has not let it begin
	opened    bool           // it has begun, or was announced in order to end
	waits     waits          // of the outermost run
	reentered bool           // some step was entered again after a wait
	tokens    map[string]Ref // of the steps that wait
	signals   map[Ref]answer // of gates that were not reached yet
}

// runOutcome is what comes of a run.
type runOutcome struct {
	ended           int64
	concluded       bool // every node is terminal, the verdict is in
	left            bool // concluded, and its goroutines have returned
	verdict         verdict
	endOutput       any
	abandoned       []Ref
	abandonedInside []string // the paths of those in nested runs
	warnings        []error
	warned          map[*router]bool // of the outermost run: the conditions, anywhere, of whose answers it has warned
	warnedInside    map[string]bool  // of the outermost run: the warnings that graphs which steps have returned have added
	done            chan struct{}    // closed when concluded, workers and timers are 0
	result          *Result
	resMu           sync.Mutex // guards result
}

// runIdentity is what a run goes by.
type runIdentity struct {
	idOnce, traceOnce sync.Once
	id, trace         string
}

// prepare makes what a run that has not begun needs to be looked at, and to be cancelled.
func (r *Run) prepare(x *restoration) {
	r.start = time.Now()
	r.epoch = 1
	r.st.init(r.plan, r.cfg)
	r.st.host = r
	r.st.admits = true
	if r.cfg.limit == 1 {
		r.single = &single{}
		r.single.note()
	}
	if r.nests = r.plan.composite; r.nests {
		r.makeTree()
	}
	r.joinPool()
	r.records = make([]record, len(r.plan.names))
	if len(r.cfg.sinks) > 0 || len(r.cfg.observers) > 0 || r.cfg.retain > 0 || r.durable != nil {
		var last uint64
		if x != nil {
			last = x.file.LastEvent
		}
		r.scope = &eventScope{r.plan, "", r.epoch}
		r.log, r.recorder.latest = newEventLog(r, last), make([]latest, len(r.plan.names))
		if r.durable != nil {
			r.log.hides, r.st.parks = true, true
		}
		r.st.logged, r.st.noted = true, true
	}
	if x != nil { // now, since a run that is pending may be left before it begins
		r.mayEnd, r.careful, r.base = true, true, context.WithoutCancel(r.ctx)
		r.keepBound(x.file.Deadline)
		x.held.revive(r)
		x.held.judge()
		r.from = x
	}
}

// begin begins the run, or goes on with the one that was restored, at the given time of its clock. A run that was pending may
// have been cancelled meanwhile; it has ended then.
func (r *Run) begin(x *restoration, now int64) {
	mayEnd, ended := true, &stopCause{ErrGoexit, context.Canceled}
	defer func() { // also if a method of the caller's context ends the goroutine: the run is to end all the same
		r.careful = r.cfg.checkValues || mayEnd || r.single != nil
		if r.mayEnd = mayEnd; mayEnd {
			r.base = context.WithoutCancel(r.ctx)
		}
		if r.open(x, ended, now) && mayEnd && ended == nil {
			r.followCaller()
		}
	}()
	var err error
	if mayEnd, ended, err = askCaller(r.ctx); err != nil { // it was asked before and could tell
		mayEnd, ended = true, &stopCause{err, context.Canceled}
	}
}

// open is the part of begin that takes the lock. It reports whether the run had not ended before.
func (r *Run) open(x *restoration, ended *stopCause, now int64) bool {
	s := &r.st
	s.mu.Lock()
	if r.concluded || r.opened { // it has ended, or is about to, without having begun
		s.mu.Unlock()
		return false
	}
	r.pending, r.opened, r.began, r.from = false, true, now, nil
	if r.cfg.timeout > 0 && r.bound == 0 {
		r.bound = saturatingAdd(now, int64(r.cfg.timeout))
	}
	if x != nil {
		r.restore(x)
		x.held.continueWaits(now)
	} else {
		r.event(entry{kind: evRunStarted, at: now})
		s.begin()
	}
	r.flush(now)
	if r.durable != nil {
		r.startRenewal()
	}
	if r.mayEnd && ended != nil {
		r.stopForContext(ended)
	}
	if r.bound > now && !r.st.done() {
		r.deadline = r.after(time.Duration(r.bound-now), func(int64) { r.timeUp() })
	}
	r.release(now)
	return true
}

// timeUp stops the run because of its Timeout.
func (r *Run) timeUp() {
	r.stop(CauseRunTimeout, noRef, &stopCause{ErrRunTimeout, context.DeadlineExceeded}, stopAsking)
}

// keepBound keeps the deadline of an earlier life, if there is one and this life has a Timeout, too.
func (r *Run) keepBound(deadline time.Time) {
	if r.cfg.timeout <= 0 || deadline.IsZero() {
		return
	}
	if r.bound = int64(deadline.Sub(r.start)); r.bound == 0 {
		r.bound = -1 // zero means never
	}
}

// now is the run's clock: nanoseconds since its start, monotonic.
func (r *Run) now() int64 { return int64(time.Since(r.start)) }

// dispatch starts a worker if there is work and none is on its way. It is called with the lock held after every change that no
// worker follows up on.
func (r *Run) dispatch(now int64) {
	if !r.starting && r.alone == 0 && !r.single.interrupts() && (r.tree == nil || r.tree.limit != 1) && r.st.hasNext() { // else the tree does
		r.starting = true
		r.enlist()
		go r.work()
	}
	if r.durable != nil {
		r.commitPending()
	}
	if r.tree == nil && r.st.limits.rates != nil { // else the tree does
		r.awaitToken(now)
	}
	if r.st.asleep > 0 || r.leaving {
		r.rest(now)
	}
	r.conclude(now)
}

// enlist and dismiss count the goroutines that are at work in a run, and in its tree.
func (r *Run) enlist() {
	r.workers++
	if r.tree != nil {
		r.tree.workers++
	}
}

func (r *Run) dismiss() {
	r.workers--
	if r.tree != nil {
		r.tree.workers--
	}
}

// conclude ends the run if everything is terminal. When the last worker and the last callback are gone too, Wait may return.
func (r *Run) conclude(now int64) {
	if !r.concluded && !r.pending && r.st.done() {
		r.sumUp(now)
	}
	if r.concluded && r.workers == 0 && r.timers == 0 {
		if r.outer != nil {
			r.childLeft()
			return
		}
		select {
		case <-r.done:
		default:
			if r.task != nil {
				r.task.End()
			}
			if r.cfg.runner != nil {
				r.cfg.runner.changed(r, leftActive)
			}
			close(r.done)
		}
	}
}

// sumUp computes the verdict and disarms what is armed.
func (r *Run) sumUp(now int64) {
	r.concluded, r.ended = true, now
	r.flush(now)
	r.judge()
	r.disarm(&r.deadline)
	r.disarm(&r.tokenDue)
	r.leavePool()
	if r.timers > 0 { // a node that backs off may have become terminal as a loser
		r.disarmAll()
	}
	if r.outer != nil {
		if r.tree.nested[r.prefix] == r {
			delete(r.tree.nested, r.prefix)
		}
		r.outer.childEnded(r)
	} else if r.log != nil {
		r.logEnd(now)
	}
	if r.durable != nil && r.outer == nil {
		r.durable.changeStatus(r, r.verdict.status)
		if r.commitPending(); r.durable.failed != nil {
			r.settleLease()
		}
	}
}

//go:noinline
func (r *Run) logEnd(now int64) { // not a part of sumUp: see attemptAndFinish
	r.event(entry{kind: r.verdict.event(), at: now, arg: r.endedPayload()})
}

// release writes the log, dispatches what is left to do, releases the lock, ends the contexts that are to end, and leaves the
// caller's context if the run has ended.
func (r *Run) release(now int64) {
	var ending []stopOrder
	if r.tree != nil {
		r.tree.touch(r)
		r.tree.settle(now)
		ending, r.tree.ending = r.tree.ending, nil
	} else {
		ending = r.endings()
		r.flush(now)
		r.dispatch(now)
	}
	root := r.outermost()
	root.yieldTurns()
	if root.st.obs != nil {
		root.bringSignals()
	}
	var unfollow func() bool
	if root.concluded {
		unfollow, root.unfollow = root.unfollow, nil
	}
	r.st.mu.Unlock()
	for _, o := range ending {
		o.step.end(o.cause)
	}
	if unfollow != nil {
		root.leaveCaller(unfollow)
	}
}

func newRunID() string {
	if id, err := uuid.NewV7(); err == nil {
		return id.String()
	}
	return uuid.NewString() // the clock or the entropy source failed; NewString panics if the latter did for good
}

// ID returns the run's id: what the option RunID gave, or a UUID of version 7 that is made now.
func (r *Run) ID() string {
	r = r.outermost()
	r.idOnce.Do(func() {
		if r.id = r.cfg.runID; r.id == "" {
			r.id = newRunID()
		}
	})
	return r.id
}

// Done returns a channel that is closed when the run has ended and its goroutines have returned. Sinks may still be
// catching up.
func (r *Run) Done() <-chan struct{} { return r.done }

// minSinkGrace keeps a grace of nothing for steps from blaming sinks that are prompt.
const minSinkGrace = time.Second

// Wait waits for the run to end and returns what Execute returns. It may be called any number of times.
func (r *Run) Wait() (*Result, error) {
	<-r.done
	if r.log != nil {
		r.log.wait(max(r.cfg.cancelGrace, minSinkGrace))
	}
	r.resMu.Lock()
	if r.result == nil {
		if err := r.observed(max(r.cfg.cancelGrace, minSinkGrace)); err != nil {
			r.warnings = append(r.warnings, err)
		}
		r.result = r.makeResult()
	}
	res := r.result
	r.resMu.Unlock()
	if t := r.cfg.test; t != nil {
		res = t.complete(res, max(r.cfg.cancelGrace, minSinkGrace))
	}
	return res, res.err
}

// Status returns the status of the run.
func (r *Run) Status() RunStatus {
	r.st.mu.Lock()
	defer r.st.mu.Unlock()
	return r.status()
}

func (r *Run) status() RunStatus {
	switch {
	case r.concluded:
		return r.verdict.status
	case r.resting:
		return RunSuspended
	case r.pending:
		return RunPending
	}
	return RunRunning
}

// NodeStatus returns the status of a node, and whether there is one of this id.
func (r *Run) NodeStatus(id string) (Status, bool) {
	ref, ok := r.plan.Ref(id)
	if !ok {
		return Idle, false
	}
	r.st.mu.Lock()
	defer r.st.mu.Unlock()
	return r.st.status(ref), true
}

// outermost is the run that this one is nested in, at whatever depth, or the run itself.
func (r *Run) outermost() *Run {
	if r.outer == nil {
		return r
	}
	return r.tree.root
}

func (r *Run) timeAt(now int64) time.Time { return r.start.Add(time.Duration(now)) }
