package kahn

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/seed-c794f7ef/kahn/internal/saturate"
	"github.com/seed-c794f7ef/kahn/machine"
)

// Run is one execution of a graph. Its methods may be called from any goroutine.
type Run struct {
	// st.mu guards the fields below, except where a comment states otherwise. No goroutine holds the lock while it calls user code. There is no
	// scheduler goroutine. A worker that has finished a step records the step's outcome and takes the best ready node in the same critical section. Then
	// it performs that node itself. If more nodes are ready, the worker starts one more worker, which does the same.

	runGiven                   // its plan, inputs and options
	st          machine.Locked // the lock, and all decisions
	runNodes                   // its records of nodes
	*runReports                // its events
	runNest                    // its place in a tree of nested runs
	runCrew                    // its goroutines and timers
	runStops                   // its stops
	runOutcome                 // its end
	undo        *undoing       // the nodes that the run undoes or has undone; nil if neither this run nor a run nested in it has begun to undo nodes
	*runRare                   // the fields that few runs need
}

// runRare contains the fields that few runs set, so that all other runs are smaller. A run that has set none of them shares notRare, which is never
// written to, because writers call Run.rare first. Readers need no check, since all fields of notRare are zero.
type runRare struct {
	from         *restoration                        // the state from which the run continues; nil after the run has been opened
	dozes        int64                               // if the method doze has left the run: the time from that moment to the first alarm, in ns; otherwise 0
	checks       map[machine.Ref]*evaluation         // the checks that workers perform
	slips        map[machine.Ref]*slips[machine.Ref] // see slipsOf
	flushing     chan struct{}                       // closed when the goroutine that publishes the signals has finished; nil if no goroutine publishes
	lends        map[string]map[machine.Ref]bool     // see lend
	unwritten    int                                 // how many ready nodes and ended nested runs wait until the store has been written
	shared       *stakes                             // the stakes in limits shared with other runs of the Runner, or nil; belongs to the outermost run
	tokenDue     *alarm                              // rings when the next token of a rate arrives, if a node waits for it; belongs to the outermost run
	tokenAt      int64                               // when tokenDue rings
	unfollow     func() bool                         // makes the run stop following the caller's context; nil once called; belongs to the outermost run
	deadline     *alarm                              // rings when the run's Timeout has passed
	learning     *learning                           // the run's estimates and its link to a History; nil if it has neither; set before the run begins
	stopCauses   map[CauseKind]*stopCause            // for each cause that stopped the run: what the attempts' contexts report; nil without a stop
	asked        *Request                            // the first request to stop, or nil; belongs to the outermost run
	redrivenBy   *Request                            // the request for the redrive that began the epoch, or nil; belongs to the outermost run
	ending       []stopOrder                         // attempts whose contexts the method `release` cancels after it has released the lock
	failedGroups *groupFailures                      // see groupFailed; nil if no group has failed
	leftFor      *stopCause                          // how the caller's context ended, if its end leaves the run, or nil; belongs to the outermost run
	waits        *waits                              // the nodes that wait for signals; belongs to the outermost run
	tokens       map[string]machine.Ref              // the nodes whose steps wait for signals, by the token of the wait
	signals      map[machine.Ref]answer              // the answers to gates that the run has not reached yet
}

var notRare runRare

// The method `rare` returns the fields of runRare for writing. The caller holds the run's lock, or the run has not begun.
func (r *Run) rare() *runRare {
	if r.runRare == &notRare {
		r.runRare = &runRare{}
	}
	return r.runRare
}

// runGiven contains the plan, inputs and options of a run. It does not change after the run has begun.
type runGiven struct {
	plan *Plan
	cfg  *config
	*runCommon
}

// runCommon contains what a run and the runs nested in it share, so that nested runs are small. After the run has begun, only the field `tree` and the
// fields of the outermost run change. Until then the functions of the option Around may replace base.
type runCommon struct {
	step     StepFunc        // the host's step function, wrapped in the middleware
	ctx      context.Context // the context of the caller
	base     context.Context // has the values of the caller's context, but not its cancellation: only the run stops attempts
	start    time.Time
	wrapped  bool     // whether middleware wraps the field `step`, which then also calls the nodes' own Do
	stepless bool     // whether the host has given no step function
	mayEnd   bool     // whether the caller's context may end
	careful  bool     // whether performPlain checks more than a step's result: the caller's context may end, outputs are encoded, or the run has one slot
	attended bool     // whether Execute waits for the run, which then follows the caller's context
	epoch    int      // 1, plus one for each redrive
	durable  *durable // nil without a store
	tree     *tree    // nil for a run without composites that is not nested
	single   *single  // the additional state of a run with one slot; otherwise nil
	manual   *manual  // replaces goroutines and clock in a run that a Coordinator drives; otherwise nil

	// The following fields belong to the outermost run. No lock guards id and trace, each of which is made when it is first needed.
	bell      *bell                       // nil until an alarm is armed
	done      chan struct{}               // see Done; nil until a caller needs it; resMu guards it
	span      atomic.Pointer[surrounding] // nil without the option Around
	id, trace atomic.Pointer[string]
}

// newRun makes a run that is not nested, in one allocation.
func newRun(p *Plan, cfg *config) *Run {
	x := &struct {
		Run
		common runCommon
		own    Result
	}{}
	r := &x.Run
	r.plan, r.cfg, r.runCommon, r.result = p, cfg, &x.common, &x.own
	r.instance, r.runRare, r.runReports = &notNested, &notRare, &notReported
	return r
}

// runNodes are the records of a run's nodes.
type runNodes struct {
	records []record
	extras  map[machine.Ref]*extra
	texts   atomic.Pointer[sync.Map] // see branchText and inputsHash
}

// runNest is the position of a run among nested runs. A run with composites and the runs nested in it form a tree. The tree has one lock, one log
// and one clock.
type runNest struct {
	outer     *Run        // nil for a run that is not nested
	turn      *turn       // the run's position in the tree; nil without a tree
	began     int64       // when the run began, in ns since the start of the outermost run
	bound     int64       // when the run's Timeout passes, in ns since the start of the outermost run; may be negative; 0 means never
	touched   bool        // see tree
	heldBack  bool        // whether the run is in durable.heldBack
	nests     bool        // whether at least one node is a composite or has been expanded
	stoppedBy CauseKind   // the cause for which the composite was stopped, or CauseNone
	slipped   atomic.Bool // whether the map `slips` has ever had an entry; readable without the lock; stands here because it fits into the gap
	*instance
}

// instance describes which composite, or part of a composite, a nested run performs. Runs that are not nested share notNested, which is never
// written to.
type instance struct {
	prefix     string         // the prefix of the paths of the run's nodes
	keys       string         // the prefix of these nodes' keys in the store, see key
	within     *Step          // the attempt of a composite; the run is a part of this attempt
	remaining  int64          // the length of the longest path from the end of the composite to the end of the outermost run
	seen       *sights        // for a memoized composite: the inputs from outside that the nodes inside read; otherwise nil
	items      *items         // in the run of a map's items: the items
	rootInputs map[string]any // in the run of an expanded node's graph: the graph's inputs, never nil
	*round
}

// The type `round` describes the iteration of a loop that a nested run performs. Runs that perform no iteration share noRound, which is never written
// to.
type round struct {
	iteration int // the number of the iteration, from 1; otherwise 0
	previous  any // the output of the previous iteration
}

var noRound round

var notNested = instance{round: &noRound}

// runCrew contains the counts of a run's goroutines and timers, and the objects that they use.
type runCrew struct {
	workers int32  // the number of working goroutines, without abandoned ones
	timers  int32  // the number of timer callbacks that are armed or running
	worker  func() // the function of the workers: Run.work; nil until the first worker starts
}

// runStops contains the stops of a run.
type runStops struct {
	requests   uint8              // the number of calls of Cancel and AbortAll, counted up to 2
	followed   bool               // whether the run follows the caller's context, whose end stops or leaves the run
	cancelled  bool               // whether Cancel was called or the caller's context ended
	stopsAll   bool               // whether a stop has reached all running attempts
	unfollowed atomic.Bool        // whether the run no longer follows the caller's context, so that callerEnded does nothing
	stopManner machine.StopManner // the manner of the first stop
	runRest                       // stands here because it fits into the gap before the next field
	stopOrigin machine.Ref        // the node whose failure caused the first stop, or noRef
}

// runRest contains the state of a run that waits, rests or is being left.
type runRest struct {
	stage     runStage
	reentered bool // whether an attempt was entered again, after a wait or an interruption
	leaving   bool // whether the run is being left, because of a call of Leave or the end of the caller's context
}

// runStage is the stage that a run has reached. Stages advance, with two exceptions: a resting run that continues is running again, and a concluded
// run is running again if the store refuses to record its end. Being left is not a stage: a run that is being left may be running or resting.
type runStage uint8

const (
	stagePending   runStage = iota // the Runner has not begun the run yet, or a function of Around has not returned
	stageRunning                   // the run has begun, or ends without having begun: see openUnbegun
	stageResting                   // the run is suspended: it only waits for signals
	stageConcluded                 // the run has a verdict: every node is terminal, or the run ends at rest
	stageOver                      // the run is concluded, and its goroutines have returned
)

// The method `concluded` reports whether the run has a verdict. The caller holds the run's lock.
func (r *Run) concluded() bool { return r.stage >= stageConcluded }

// runOutcome contains what is known about the end of a run.
type runOutcome struct {
	ended   int64
	summed  bool          // whether the field `result` is complete
	unheld  bool          // whether Execute or Runner.Serve started the run, so that the run ends when it comes to rest
	waited  atomic.Uint32 // in the outermost run: whether the run is over, and whether the channel of Done exists, see waitOver
	verdict verdict
	remarks *remarks   // nil if there are none
	result  *Result    // nil for a nested run until the Result is needed
	resMu   sync.Mutex // guards result, summed and done
}

// remarks contains what the Result reports about a run besides its nodes.
type remarks struct {
	abandoned       []machine.Ref
	abandonedInside []string // the paths of abandoned nodes in nested runs
	warnings        []error
	warned          map[*router]bool  // in the outermost run: the conditions of the tree with a warning about an answer
	warnedGuards    map[*node]bool    // in the outermost run: the nodes with a warning about a guard that could not decide
	warnedInside    map[string]bool   // in the outermost run: warnings about graphs that steps have returned
	outlasting      map[*Gate]bool    // in the outermost run: the gates that have the warning ErrGateOutlasts
	labels          map[string]string // belongs to the outermost run: the labels that steps have set; each change makes a new map
	usage           *runUsage         // belongs to the outermost run: the consumption; nil if nothing was used
	first           time.Time         // belongs to the outermost run: when the first node started, if that was before the run was continued; or zero
	holders         map[any][]place   // in the outermost run: for each resource, the holders that Why has found
}

// The method `remarked` returns the remarks for reading.
func (o *runOutcome) remarked() remarks {
	if o.remarks == nil {
		return remarks{}
	}
	return *o.remarks
}

// The method `remark` returns the remarks for writing. It creates them if there are none.
func (o *runOutcome) remark() *remarks {
	if o.remarks == nil {
		o.remarks = &remarks{}
	}
	return o.remarks
}

// The method `warn` adds warnings to the Result.
func (o *runOutcome) warn(warnings ...error) {
	if len(warnings) > 0 {
		x := o.remark()
		x.warnings = append(x.warnings, warnings...)
	}
}

// prepare makes a run ready, before it begins, so that callers can already observe and cancel it.
func (r *Run) prepare(x *restoration) {
	r.start = time.Now()
	if r.manual != nil {
		r.start = r.manual.start
	}
	r.epoch = 1
	switch {
	case x != nil && (x.file.Estimates != nil || r.cfg.history != nil):
		r.rare().learning = &learning{known: x.file.Estimates}
	case x == nil && r.cfg.history != nil:
		r.rare().learning = &learning{known: r.cfg.history.estimates(r.plan.name)}
	}
	r.initState()
	r.st.DrivenBy((*runHost)(r), nil)
	if r.cfg.limit == 1 {
		r.single = &single{rang: -1}
		r.single.note(r)
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
		r.runReports = r.reports(newEventLog(r, last), recorder{})
		if x != nil {
			r.log.goOn(r.earlierLog())
		}
		if r.durable != nil {
			r.log.hides = true
			r.durable.events.begin(last)
			r.st.Park(true)
		}
		r.st.KeepLog()
	}
	if x != nil { // the run is restored now, since a pending run may be left before it begins
		r.careful = true
		r.endless()
		r.keepBound(x.file.Deadline)
		x.held.revive(r)
		x.held.judge()
		r.rare().from = x
	}
	if r.durable != nil {
		r.startRenewal()
	}
}

// The method `begin` begins the run, or continues the restored run, at the given time of its clock. If the run was cancelled while it was pending, it
// has already ended, and it does not begin any more: see openUnbegun.
func (r *Run) begin(x *restoration, now int64) {
	mayEnd, ended := true, callerGone
	defer func() { // the run must end even if a method of the caller's context calls Goexit
		r.st.Lock()
		if r.stage < stageRunning { // otherwise a stop or a Leave has already begun the run
			r.careful = r.cfg.checkValues || mayEnd || r.single != nil
			if r.mayEnd = mayEnd; mayEnd {
				r.endless()
			}
		}
		r.st.Unlock()
		if r.open(x, ended, now) && mayEnd && ended == nil {
			r.followCaller()
		}
		if r.cfg.runner != nil {
			r.cfg.runner.begun(r)
		}
	}()
	var err error
	if mayEnd, ended, err = askCaller(r.ctx); err != nil { // unexpected, since the context's methods did not panic when the run was created
		mayEnd, ended = true, &stopCause{err, context.Canceled}
	}
	if len(r.cfg.around) > 0 {
		r.surround()
	}
}

// The method `endless` makes base a context that does not end.
func (r *Run) endless() {
	if len(r.cfg.around) == 0 { // no function of Around can have replaced base, so base has only the values of the caller's context
		r.base = (*runValues)(r)
	} else {
		r.base = context.WithoutCancel(r.base)
	}
}

// runValues is a Run as a context. This context has the values of the caller's context, and never ends. A context from context.WithoutCancel would be
// a separate object.
type runValues Run

func (*runValues) Deadline() (time.Time, bool) { return time.Time{}, false }
func (*runValues) Done() <-chan struct{}       { return nil }
func (*runValues) Err() error                  { return nil }

// Value returns the value of the caller's context, except for the key with which package context looks up the cause of a context's end.
func (v *runValues) Value(key any) any {
	if key == causeKey {
		return nil
	}
	return v.ctx.Value(key)
}

// initState makes the State of a run before the run begins or continues.
func (r *Run) initState() {
	x := r.cfg.setup(r.plan)
	if x.Order == nil {
		x.Order = r.schedule()
	}
	if r.st.Init(&r.plan.net, &x); r.plan.undoes {
		r.st.AllowUndo()
	}
}

// callerGone is the cause with which a run is stopped if a method of the caller's context calls Goexit.
var callerGone = &stopCause{ErrGoexit, context.Canceled}

// The method `open` performs the part of begin that needs the lock. It returns false if the run has ended, or will end, without having begun.
func (r *Run) open(x *restoration, ended *stopCause, now int64) bool {
	s := &r.st
	s.Lock()
	if r.stage >= stageRunning { // openUnbegun was called before: the run ends without having begun
		s.Unlock()
		return false
	}
	if x != nil && x.inFlight != nil {
		now = r.now() // the clock continues
	}
	r.stage, r.began = stageRunning, now
	if r.from != nil {
		r.rare().from = nil
	}
	if r.cfg.timeout > 0 && r.bound == 0 {
		r.bound = saturate.Add(now, int64(r.cfg.timeout))
	}
	if x != nil {
		r.restore(x)
		r.continueFrom(x, now)
	} else {
		r.event(entry{kind: evRunStarted, at: now})
		s.Begin()
	}
	r.flush(now)
	if r.mayEnd && ended != nil {
		r.endForContext(ended, now)
	}
	if r.bound > now && !r.st.Done() && !r.isUndoing() && r.deadline == nil {
		r.rare().deadline = r.afterAsStored(time.Duration(r.bound-now), func(int64) { r.timeUp() })
	}
	r.takeStops(now)
	r.release(now)
	return true
}

// continueFrom continues the waits, the alarms and the attempts of a restored run.
func (r *Run) continueFrom(x *restoration, now int64) {
	switch {
	case x.inFlight != nil:
		r.land(x)
		return
	case r.manual != nil:
		x.held.lapseAll()
	}
	x.held.continueWaits(now)
}

// openUnbegun records the start of a pending run that ends without having begun. If the run was to continue from a snapshot or a store, openUnbegun
// instead restores the results from there. If the run continues its attempts in flight, these attempts continue.
func (r *Run) openUnbegun(now int64) {
	x := r.from
	r.stage, r.began = stageRunning, now
	if r.from != nil {
		r.rare().from = nil
	}
	switch {
	case x == nil:
		r.event(entry{kind: evRunStarted, at: now})
	case x.inFlight != nil: // the run has begun: another Coordinator has handed out its attempts
		r.restore(x)
		r.land(x)
		return
	default:
		r.restore(x)
		x.held.continueWaits(now)
	}
	r.st.Close()
}

// timeUp stops the run when its Timeout has passed.
func (r *Run) timeUp() {
	r.stop(CauseRunTimeout, noRef, &stopCause{ErrRunTimeout, context.DeadlineExceeded}, machine.StopAsking)
}

// keepBound keeps the deadline that the run had before it was continued. If there was none, or the run has no Timeout now, keepBound does nothing.
func (r *Run) keepBound(deadline time.Time) {
	if r.cfg.timeout <= 0 || deadline.IsZero() {
		return
	}
	r.bound = cmp.Or(int64(deadline.Sub(r.start)), -1) // zero means never
}

// The method `now` returns the time of the run's clock, in nanoseconds since the run's start. This time never decreases. If a Coordinator drives the
// run, the Coordinator sets the clock.
func (r *Run) now() int64 {
	if r.manual != nil {
		return r.manual.clock.Load()
	}
	return int64(time.Since(r.start))
}

// dispatch lets the State announce work. It is called after every change of the State, unless a worker makes the change and then takes its next task
// itself. The caller holds the run's lock.
func (r *Run) dispatch(now int64) {
	if r.isLost() {
		if r.outer == nil {
			r.endLost(now)
		}
		r.conclude(now)
		return
	}
	if r.undo != nil {
		r.performUndos(now)
	}
	r.order().announce(r)
	if r.durable != nil {
		r.commitPending()
	}
	// If the run belongs to a tree, tree.settle calls awaitToken and doze.
	if r.tree == nil && r.st.Rated() {
		r.awaitToken(now)
	}
	if r.tree == nil && r.cfg.restAfter > 0 {
		r.doze(now)
	}
	if r.st.Sleepers() > 0 || r.leaving {
		r.rest(now)
	}
	r.conclude(now)
}

// The method `announced` starts a worker when the State announces work. But the committer, the goroutine that writes to the store, may have to take
// the outbox first. Then the method starts no worker.
func (r *Run) announced() {
	if r.holdsBack() {
		r.st.Answer() // the committer will let the run continue
		return
	}
	r.engage()
}

// engage starts a worker.
func (r *Run) engage() {
	r.enlist()
	if r.durable != nil {
		r.durable.coming++
	}
	r.launch()
}

// enlist and dismiss count the goroutines that work for the run and for its tree.
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

// conclude concludes the run if every node is terminal. When the run is concluded, and its last worker and its last callback have ended, conclude
// lets Wait return or, if the run is nested, calls childLeft.
func (r *Run) conclude(now int64) {
	if !r.concluded() && r.stage != stagePending && r.st.Done() && !r.isLost() && !r.undoesAfterEnd(now) {
		r.sumUp(now)
	}
	if r.concluded() && r.workers == 0 && r.timers == 0 {
		if r.outer != nil {
			r.childLeft()
			return
		}
		if r.stage == stageOver || !r.bell.silence() {
			return
		}
		r.stage = stageOver
		if r.tree != nil {
			r.tree.landFlights()
		}
		if r.cfg.runner != nil {
			r.cfg.runner.changed(r, leftActive)
		}
		if r.waited.Swap(waitOver) == waitOpen {
			close(r.done)
		}
	}
}

// sumUp ends the run: it computes the verdict, disarms the alarms and reports the end.
func (r *Run) sumUp(now int64) {
	r.stage, r.ended = stageConcluded, now
	r.flush(now)
	r.judge()
	if r.cfg.history != nil {
		r.noteLessons() // a separate function, so that its frame is not on the stacks of other runs: see attemptAndFinish
	}
	r.disarm(&r.deadline)
	r.disarm(&r.tokenDue)
	r.leavePool()
	if r.timers > 0 { // a superseded node may have left an armed backoff behind
		r.disarmAll(false)
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
		r.durable.changeStatus()
		if r.commitPending(); r.durable.failed != nil {
			r.settleLease()
		}
	}
}

//go:noinline
func (r *Run) logEnd(now int64) { // must not be inlined into sumUp: see attemptAndFinish
	ended, arg := r.endedPayload(), any(nil)
	if arg = ended; r.cfg.eventOutputs > 0 {
		arg = &endedWith{RunEnd: ended, value: r.output()}
	}
	r.event(entry{kind: r.verdict.event(), at: now, arg: arg})
}

// release writes the log, dispatches remaining work and releases the lock. Then it cancels the contexts of stopped attempts. If the run has
// ended, the run stops following the caller's context.
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
	if r.single != nil {
		r.takeUp()
	}
	root := r.outermost()
	root.yieldTurns()
	if root.st.IsObserved() {
		root.bringSignals()
	}
	if r.manual != nil {
		r.manual.note(ending)
	}
	var unfollow func() bool
	if root.concluded() && root.unfollow != nil {
		unfollow, root.runRare.unfollow = root.unfollow, nil
	}
	learns := root.learning != nil && root.learning.news.Load() // read under the lock, since another goroutine may call Run.rare after the unlock
	r.st.Unlock()
	for _, o := range ending {
		o.step.end(o.cause)
	}
	if unfollow != nil {
		root.leaveCaller(unfollow)
	}
	if learns {
		root.teach()
	}
}

func newRunID() string {
	if id, err := uuid.NewV7(); err == nil {
		return id.String()
	}
	return uuid.NewString() // the clock or the entropy source failed; NewString panics if the entropy source continues to fail
}

// ID returns the run's id. This is the id that the option RunID gives. Without this option, it is a version 7 UUID that the first call makes.
func (r *Run) ID() string {
	r = r.outermost()
	if known := r.id.Load(); known != nil {
		return *known
	}
	id := r.cfg.runID
	if id == "" {
		id = newRunID()
	}
	r.id.CompareAndSwap(nil, &id) // has no effect if another goroutine has set the id meanwhile
	return *r.id.Load()
}

// Done returns a channel that is closed when the run has ended and its goroutines have returned. Sinks may still be receiving events then.
func (r *Run) Done() <-chan struct{} {
	r = r.outermost()
	r.resMu.Lock()
	defer r.resMu.Unlock()
	if r.done == nil {
		if r.done = make(chan struct{}); !r.waited.CompareAndSwap(waitNone, waitOpen) {
			close(r.done)
		}
	}
	return r.done
}

// isOver reports whether the channel that Done returns is closed, and does not make the channel.
func (r *Run) isOver() bool { return r.waited.Load() == waitOver }

// The values of runOutcome.waited. The method conclude sets waitOver, and closes the channel of Done if it exists then. So neither conclude nor a caller that
// waits needs the lock of the other.
const (
	waitNone uint32 = iota // the run is not over, and the channel does not exist
	waitOpen               // the run is not over, and the channel exists
	waitOver               // the run is over
)

// An ended run waits for its sinks for the duration CancelGrace or, if that is shorter, for minSinkGrace. So fast sinks get all events.
const minSinkGrace = time.Second

// Wait waits for the end of the run and returns the same results as Execute. It may be called any number of times. If a [Coordinator] drives the run,
// the goroutine that calls the Coordinator must not call Wait, because Wait would never return: see [Coordinator.Result].
func (r *Run) Wait() (*Result, error) {
	if r.manual != nil {
		<-r.manual.told
	}
	res, err := r.finished()
	r.awaitAround(res)
	return res, err
}

// The method `finished` does the same as Wait, but does not wait for the functions of Around.
func (r *Run) finished() (*Result, error) {
	if !r.isOver() {
		<-r.Done()
	}
	if r.log != nil {
		r.log.wait(max(r.cfg.cancelGrace, minSinkGrace))
	}
	r.resMu.Lock()
	summed := r.summed
	r.resMu.Unlock()
	var effects error
	if !summed {
		effects = r.observed(max(r.cfg.cancelGrace, minSinkGrace)) // called without resMu, so that other callers need not wait for the lock
	}
	r.resMu.Lock()
	if !r.summed {
		if effects != nil {
			r.warn(effects)
		}
		r.st.Lock() // other goroutines may be reading the run
		r.makeResult()
		r.st.Unlock()
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
	r.st.Lock()
	defer r.st.Unlock()
	return r.status()
}

func (r *Run) status() RunStatus {
	switch {
	case r.concluded():
		return r.verdict.status
	case r.stage == stageResting:
		return RunSuspended
	case r.stage == stagePending:
		return RunPending
	}
	return RunRunning
}

// NodeStatus returns the status of the node with this id. The second result is false if the graph has no node with this id.
func (r *Run) NodeStatus(id string) (Status, bool) {
	ref, ok := r.plan.Ref(id)
	if !ok {
		return Idle, false
	}
	r.st.Lock()
	defer r.st.Unlock()
	return r.st.Status(ref), true
}

// The method `outermost` returns the outermost run around this run. For a run that is not nested, this is the run itself.
func (r *Run) outermost() *Run {
	if r.outer == nil {
		return r
	}
	return r.tree.root
}

func (r *Run) timeAt(now int64) time.Time { return r.start.Add(time.Duration(now)) }

// runHost contains the methods of a Run that its State calls. The caller of these methods holds the run's lock.
type runHost Run

func (h *runHost) RunStatus() RunStatus      { return (*Run)(h).status() }
func (h *runHost) Hurries() bool             { return (*Run)(h).hurries() }
func (h *runHost) BeganToWait(r machine.Ref) { (*Run)(h).beganToWait(r) }
func (h *runHost) EndedWait()                { (*Run)(h).endedWait() }
func (h *runHost) Keeps(r machine.Ref) bool  { return (*Run)(h).keeps(r) }
func (h *runHost) Contends()                 { (*Run)(h).contends() }
func (h *runHost) Grants() bool              { return (*Run)(h).grants() }
func (h *runHost) Announced()                { (*Run)(h).announced() }
func (h *runHost) Reverses() bool            { return (*Run)(h).reverses() }
