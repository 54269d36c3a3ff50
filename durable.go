package kahn

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/internal/due"
	"github.com/seed-c794f7ef/kahn/internal/ordset"
	"github.com/seed-c794f7ef/kahn/machine"
	"github.com/seed-c794f7ef/kahn/store"
)

// durable connects a run to its store during one life of the run. A life begins when a process acquires the run's lease, and ends when this process
// releases the lease. The run's lock guards durable. The store and codecs are never called under this lock.
//
// The run proceeds in memory. Each critical section that changes the State adds its changes to the outbox. One goroutine, the committer, repeatedly
// takes the whole outbox and writes it as one transaction. The committer runs while there are changes to write, and counts as a worker of the run.
// The size of the outbox is limited: while the outbox is full, attempts wait before they end, see defaultBounds. If a completion makes a node ready
// and this node begins at once, one transaction contains the completion and the start. The longer a write takes, the more changes the next
// transaction contains. Four things wait for a write. An event becomes visible when its transaction is written. A step is called when the start of
// its attempt is written. A condition or trigger is queued when the change that made it ready is written. The result of a nested run is evaluated
// when the run's end is written. So steps and readers of events see no change before it is durable. The methods Status, Node and Counts, however,
// show the state in memory.
//
// A run and all runs nested in it, together called a tree, share one durable. In the store, the key of a node inside a composite is made from the
// node's path, see Run.key. The record of a composite contains the data of its nested run. But the nodes inside, the list of a map and the
// collected outputs of a loop have records of their own. The start of a composite is not stored as an attempt: its record shows that it has begun,
// and the composite continues after a crash.
type durable struct {
	store       store.Store
	lease       store.Lease
	sequence    uint64       // the number of the last transaction that was taken out of the outbox
	status      RunStatus    // the run's status when that transaction was taken
	outbox      *transaction // the changes since that transaction; never nil
	spare       *transaction // an empty transaction, in memory that a written transaction has used; may be nil
	current     *transaction // the transaction that the committer is writing; nil if there is none
	writing     bool         // whether the committer is running
	coming      int          // the number of started workers that have not taken their first task; the committer waits for these workers
	failed      error
	stale       bool                   // whether the next transaction replaces the record of the run itself
	unspecified bool                   // whether the next transaction stores the Spec
	steps       int64                  // the number of entries looked up or taken; tests check that it is linear in the changes
	open        map[place]int32        // by place of a node: its attempt whose start was put into an outbox and whose end was not
	endHold     func()                 // stops the renewals of holdLease
	renewal     *time.Timer            // nil until the run is prepared
	given       bool                   // whether the lease has been released, or is being released, see releaseLease
	lost        *lost                  // not nil once the run is left because of its store, see Run.lose
	stored      map[place]storedStatus // by place of a node: its status in the store; only for nodes that have not ended in the store
	written     bool                   // whether a write of this life has succeeded
	ctx         context.Context        // the context of the writes
	cancel      context.CancelFunc     // cancels ctx when the store has failed or the lease is to be released
	alarms      due.Queue[*wake]       // the alarms that the next life also needs; the store contains the time of the first one
	expires     time.Time              // the lease lasts at least until this time: leaseTime after the last successful call of Acquire or Renew began
	scratch     []byte                 // the committer's buffer for encoding records
	kept        []keptEpoch            // see keptEpoch
	undoing     Compensation           // the run's Compensation, as stored
	used        Usage                  // the usage of ended attempts, as stored
	undone      map[string]int         // by path of a node: how often it was undone according to records that redrives have removed
	deltas      map[string]int         // by path of a node: the number of its deltas before the last redrive, which removed records of nodes
	payload     json.RawMessage        // the trigger's payload as the codec encoded it; only the committer uses this field
	line        []*ending              // attempts that wait for room in the outbox, in the order in which their steps returned
	bounds      room                   // the bounds of the outbox
	reserved    room                   // the room in the outbox that attempts have reserved for their ends
	heldBack    []*Run                 // runs of the tree in which nothing may begin until the committer takes the outbox
	roots       map[*Run]*ordset.Set   // by run: its ready roots whose changes inTurn has dropped
	events      *eventWriter           // nil if the run's events are not stored
	forked      string                 // the id of the run from which this run was forked; "" if this run is not a fork
	inbox       *inbox                 // nil if the store does not take requests
	awaits      map[string]string      // by path of a node: the run whose end the node awaits, as registered with the store in this life
}

// place identifies a node in one of the runs of a tree.
type place struct {
	run *Run
	ref machine.Ref
}

// A transaction is first the run's outbox. When the committer takes it, the transaction becomes one write to the store. After the write, a later
// transaction reuses the memory. Only the memory of the commit is not reused, since the store owns it.
type transaction struct {
	entries []pendingNode
	at      map[place]int // by place: the index of its entry; not used while there are only a few entries
	due     bool          // whether the transaction is written even without entries
	ended   []*Run        // nested runs whose results are evaluated once the transaction is written
	undos   []undoRecord  // the records of undoing that have changed
	emitted []place       // nodes that have emitted deltas; the method `take` adds their records, which count the deltas
	back    *takenBack    // what a redrive removes from the store; nil without a redrive
	bytes   int           // the number of bytes of the outputs in the entries
	begins  int           // the number of attempts and composites that begin
	widest  int           // the largest number of rows that the end of a single attempt has needed
	*writing

	// The following fields, except commit.Taken, are set when the transaction is taken:
	commit   store.Commit
	nodes    []nodeState     // the records of the commit's nodes, not encoded yet
	places   []place         // the places of these nodes
	children []*Run          // the run nested in each of these nodes; nil for most nodes
	outputs  []collected     // the outputs of iterations of collecting loops, and the lists of maps
	signals  []answeredState // the signals with an ID for which no earlier transaction has a record
	signal   int             // the number of the first of these signals
	header   *snapshotFile
	show     uint64  // the id of the last event that readers may see once the transaction is written
	events   []Event // drafts of the events that this transaction stores
}

// undoRecord is the record of a node's undoing. The committer encodes it later. If the node is in a graph that is not known, the field undo is nil,
// and the other fields are set at once.
type undoRecord struct {
	*undo
	key   string
	state *undoState
}

// collected is the output of an iteration of a collecting loop, or the list of a map. It has a record of its own. So the record of the loop does
// not grow with each iteration, and the record of the map does not contain the list.
type collected struct {
	key       string
	path      string // the path of the node, for errors
	iteration int    // the number of the iteration; 0 for a list
	value     stored
	at        time.Time
}

// The type `writing` is the outcome of writing a transaction. The outcome is an object of its own, since it may be read after the memory of the
// transaction is reused.
type writing struct {
	done chan struct{} // closed under the run's lock, when the write has succeeded or failed
	err  error         // why the write has failed; nil if it has succeeded
}

// The method `failed` reports whether the write of the transaction has failed. Even then the store may contain the transaction: perhaps only the
// store's answer was lost. The caller holds the run's lock.
func (w *writing) failed() bool {
	if w == nil {
		return false
	}
	select {
	case <-w.done:
		return w.err != nil
	default:
		return false
	}
}

// pendingNode is a transaction's entry for one node. It says what has happened to the node, and in which attempts. Only methods of pendingNode
// change the field `happened`.
type pendingNode struct {
	place
	happened nodeNews
	ended    int32 // the number of the attempt that ended; 0 if none ended, or if this transaction also contains its start
	starts   int32 // the number of attempts that begin; above 1 if one of them was abandoned before the transaction was taken
	attempt  int32 // the number of the last attempt that begins
	before   int32 // with nodeBegan: the number of attempts before the ones that begin
	resolved int   // the number of predecessors that became terminal

	text json.RawMessage // the output of the node as the codec encoded it; nil if the committer must call the codec
}

// nodeNews describes what has happened to a node since the previous transaction.
type nodeNews uint8

const (
	nodeChanged  nodeNews = 1 << iota // the record of the node must be replaced
	nodeBegan                         // an attempt of a step or of a composite began
	nodeReturned                      // an attempt ended
	nodeReady                         // the node became ready
	nodeParked                        // the node became ready, and is queued only when the transaction is written
	nodeTerminal                      // the node became terminal; later transactions never replace its record
)

func (e *pendingNode) is(what nodeNews) bool { return e.happened&what != 0 }

// The method `change` records that the node's record must be replaced. The methods below record what has happened to the node.
func (e *pendingNode) change() { e.happened |= nodeChanged }

// begin records that an attempt begins. The parameter `before` is the number of earlier attempts.
func (e *pendingNode) begin(before int32) {
	if !e.is(nodeBegan) {
		e.happened |= nodeBegan
		e.before = before
	}
}

// The method `start` records that an attempt starts. The step of this attempt is called once the start is stored.
func (e *pendingNode) start(attempt, before int32) {
	e.change()
	e.begin(before)
	e.attempt = attempt
	e.starts++
}

// finish records the end of an attempt.
func (e *pendingNode) finish(attempt int32) {
	if e.happened |= nodeReturned; e.starts == 0 {
		e.ended = attempt
	}
}

// The method `ready` records that the node became ready. If parks is true, the node is queued only after the write. Only the first call with parks
// set returns true, so that awaitsWrite counts the node once.
func (e *pendingNode) ready(parks bool) (parked bool) {
	e.happened |= nodeReady
	if parked = parks && !e.is(nodeParked); parked {
		e.happened |= nodeParked
	}
	return parked
}

// The method `end` records that the node became terminal. See also resolve.
func (e *pendingNode) end() { e.happened |= nodeChanged | nodeTerminal }

func newTransaction() *transaction {
	return &transaction{writing: &writing{done: make(chan struct{})}}
}

// The method `reuse` clears a written transaction and, unless it is large, keeps its memory for a later one. The cleared memory references no
// values and no nested runs.
func (d *durable) reuse(tx *transaction) {
	if cap(tx.entries) > maxSpare {
		return
	}
	clear(tx.entries)
	clear(tx.nodes)
	clear(tx.places)
	clear(tx.children)
	clear(tx.at)
	*tx = transaction{entries: tx.entries[:0], nodes: tx.nodes[:0], places: tx.places[:0], children: tx.children[:0], at: tx.at}
	d.spare = tx
}

// nextTransaction returns an empty transaction: d.spare or, if d.spare is nil, a new one.
func (d *durable) nextTransaction() *transaction {
	tx := d.spare
	if d.spare = nil; tx == nil {
		return newTransaction()
	}
	tx.writing = &writing{done: make(chan struct{})}
	return tx
}

// maxSpare bounds the memory that is kept: the memory of a transaction is reused only if its list of entries has at most this capacity.
const maxSpare = 1024

// fewEntries is the largest number of entries for which find uses a linear search.
const fewEntries = 8

// find returns the index of a node's entry, or -1 if there is none.
func (tx *transaction) find(at place) int {
	if len(tx.entries) > fewEntries {
		if i, ok := tx.at[at]; ok {
			return i
		}
		return -1
	}
	for i := range tx.entries {
		if tx.entries[i].place == at {
			return i
		}
	}
	return -1
}

// The method `pending` returns the outbox's entry for a node. It creates the entry if there is none.
func (d *durable) pending(at place) *pendingNode {
	d.steps++
	tx := d.outbox
	i := tx.find(at)
	if i < 0 {
		i = len(tx.entries)
		tx.entries = append(tx.entries, pendingNode{place: at})
		tx.index(i)
	}
	return &tx.entries[i]
}

// awaitsWrite adds `more` to the number of ready nodes and ended nested runs that wait for a write. In a run with one slot, no attempt begins while
// this number is above 0. Otherwise the order of attempts would depend on the speed of the store.
func (r *Run) awaitsWrite(more int) {
	if r.rare().unwritten += more; r.single != nil {
		r.single.unwritten += more
	}
}

// The method `index` adds entry i to the map that find uses. For up to fewEntries entries, index does nothing. With the first entry beyond that,
// index also adds the earlier entries.
func (tx *transaction) index(i int) {
	if i < fewEntries {
		return
	}
	if tx.at == nil {
		tx.at = make(map[place]int, 4*fewEntries)
	}
	first := i
	if i == fewEntries {
		first = 0
	}
	for ; first <= i; first++ {
		tx.at[tx.entries[first].place] = first
	}
}

// The method `starts` reports whether an attempt of a node begins with the transaction.
func (tx *transaction) starts(at place) bool {
	i := tx.find(at)
	return i >= 0 && tx.entries[i].starts > 0
}

// The method `parks` reports whether the node is queued when the transaction is written.
func (tx *transaction) parks(at place) bool {
	i := tx.find(at)
	return i >= 0 && tx.entries[i].is(nodeParked)
}

// hasWork reports whether there are changes to write.
func (d *durable) hasWork() bool {
	tx := d.outbox
	return len(tx.entries) > 0 || len(tx.undos) > 0 || len(tx.ended) > 0 || tx.due || len(tx.commit.Taken) > 0
}

// outdate makes the next commit write the record of the run again. For a nested run this is the record of its composite.
func (r *Run) outdate() {
	d := r.durable
	switch {
	case d == nil:
	case r.outer == nil:
		d.stale, d.outbox.due = true, d.failed == nil
	default:
		r.outer.outdated(r.within.ref)
	}
}

// The method `outdated` makes the next commit write the record of a node again.
func (r *Run) outdated(ref machine.Ref) {
	if d := r.durable; d != nil && d.failed == nil {
		d.pending(place{r, ref}).change()
	}
}

// settleLease makes the committer release the lease of a run that was left, or whose store failed. Such a run may have no changes to write. So
// settleLease starts the committer, unless the committer is running. The caller holds the run's lock.
func (r *Run) settleLease() {
	if d := r.durable; !d.writing {
		d.writing = true
		r.enlist()
		go r.commit()
	}
}

// recordsStart reports whether an attempt of this node writes its start before it calls the step.
func (r *Run) recordsStart(ref machine.Ref) bool {
	return r.durable != nil && r.durable.failed == nil && !r.plan.net.Is(ref, machine.FlagInline)
}

// storedLife is the [life] of a run with a store: an attempt waits until the store has recorded its start.
type storedLife struct{ plainLife }

func (storedLife) arrived(r *Run) { r.durable.coming-- }

// mayTake puts earlier changes into the outbox, and reports whether the worker may take a task.
func (storedLife) mayTake(r *Run, now int64) bool {
	r.flush(now)
	return !r.holdsBack()
}

// The method `begun` puts the start of an attempt into the outbox. The parameter `before` is the number of earlier attempts. The worker calls the
// step once the start is written. If recordsStart returns false, nothing is written, and the worker need not wait.
func (l storedLife) begun(step *Step, attempt, before int32, now int64) (way, *writing) {
	r, ref := step.run, step.ref
	if !r.recordsStart(ref) {
		return l.plainLife.begun(step, attempt, before, now)
	}
	d := r.durable
	r.noteBegin(ref, now).start(attempt, before)
	d.open[place{r, ref}] = attempt
	return wayFull, d.outbox.writing
}

func (storedLife) begunInside(r *Run, ref machine.Ref, before int32, now int64) {
	if r.durable.failed == nil {
		r.noteBegin(ref, now).begin(before)
	}
}

// noteBegin counts an attempt that begins, and returns the entry of its node.
func (r *Run) noteBegin(ref machine.Ref, now int64) *pendingNode {
	r.tellRoot(ref, now)
	r.durable.outbox.begins++
	return r.durable.pending(place{r, ref})
}

// errNotCalled is the error of an attempt that was stopped while its start was being written.
var errNotCalled = errors.New("the attempt was stopped before its step was called")

// awaitRecord waits until the start of the attempt is written, and then starts the timeout of the attempt. If the result has an error, the worker
// must not call the step: the store has failed, the lease has expired, or the attempt was stopped or has timed out.
func (w *worker) awaitRecord() attemptResult {
	r, step, tx := w.run, w.step, w.recorded
	w.recorded = nil
	<-tx.done
	w.now = r.now()
	if tx.err != nil {
		return attemptResult{err: errNotCalled, kind: CauseStepError} // the failure of the store has stopped the attempt
	}
	r.st.Lock()
	d, x := r.durable, r.extras[step.ref]
	if d.failed == nil && !time.Now().Before(d.expires) {
		root := r.outermost()
		root.lose(fmt.Errorf("%w: the lease has run out", ErrStore))
		defer root.release(w.now)
	} else {
		defer r.st.Unlock()
	}
	switch {
	case d.failed != nil:
		return attemptResult{err: d.failed, kind: CauseStoreError}
	case r.current(step.ref) != step || r.st.Word(step.ref).Is(machine.WordStopping) || x != nil && x.timedOut != timeoutNone:
		return attemptResult{err: errNotCalled, kind: CauseStepError} // this error does not count: the stop or the timeout of the attempt decides the outcome
	}
	if r.plan.net.Is(step.ref, factTimed) {
		r.armTimeout(r.plan.node(step.ref), step, false, w.now)
	}
	return attemptResult{}
}

// storeFailed ends the run because of a lasting error of its store. It takes back all changes that the store has not confirmed. A write that the
// store has not answered counts as not written. The caller holds the run's lock.
func (r *Run) storeFailed(err error) {
	d, s, now := r.durable, &r.st, r.now()
	if d.failed != nil {
		return
	}
	if r.stage == stagePending { // the run is pending, and the store has refused a transaction with an answer to one of its gates
		r.openUnbegun(now)
	}
	runs := append([]*Run{r}, r.descendants()...)
	for _, c := range runs {
		c.flush(now)
	}
	unwritten := d.unwritten()
	d.fail(err)
	if r.retract(runs); r.log.lastID() == r.log.start {
		r.announce(now)
	}
	for _, c := range runs {
		c.st.Park(false)
		c.st.Close()
	}
	for _, tx := range slices.Backward(unwritten) { // newest first: each rollback restores the values from before its transaction
		r.rollback(tx, err)
	}
	if r.stage > stageRunning {
		r.stage = stageRunning // the end of the run was not written, so the run has not ended
	}
	r.lost(err)
	r.failUndos(runs, err)
	s.Stop(CauseStoreError, noRef, machine.StopAsking)
	for ref := range r.extras {
		if s.Word(ref).Status().Terminal() {
			r.disarmNode(ref)
		}
	}
	r.stay(now)
	r.collectStops()
	for _, c := range runs[1:] { // the stop above does not reach a run that was already being stopped and was about to run its cleanup nodes
		if !c.concluded() {
			c.stopFor(CauseStoreError, &stopCause{err, context.Canceled}, machine.StopAsking)
			c.collectStops()
		}
	}
	r.flush(now)
}

// announce logs the first event of this life. storeFailed calls it if retract has dropped all events of this life.
func (r *Run) announce(now int64) {
	e := entry{kind: evRunStarted, at: now}
	if from := r.cfg.from; from != nil && !r.cfg.fork {
		e.kind, e.arg = evRunRecovered, event.Recovery{From: from.file.LastEvent}
		if from.file.Status != RunRunning || r.cfg.redrive {
			e.kind, e.arg = evRunStatus, event.StatusChange{From: from.file.Status, To: RunRunning, TotalWaiting: r.waiters().total}
		}
	}
	r.event(e)
}

// rollback takes back the changes of nodes, and the ends of nested runs, that are in an unwritten transaction.
func (r *Run) rollback(tx *transaction, err error) {
	for i := range tx.entries {
		e := &tx.entries[i]
		s, rec := &e.run.st, &e.run.records[e.ref]
		if e.is(nodeParked) {
			e.run.awaitsWrite(-1)
		}
		if e.is(nodeBegan) {
			rec.attempts = e.before // the store does not contain the start of the attempt
		}
		if e.is(nodeTerminal) {
			s.Overrule(e.ref, e.is(nodeReturned))
			if rec.value = nil; e.is(nodeReturned) {
				rec.value = err
			}
		}
	}
	for _, c := range tx.ended { // the ends of these nested runs were not written, so the runs fail instead
		c.outer.awaitsWrite(-1)
		c.stoppedBy = CauseStoreError
		c.lost(err)
		c.flush(c.now())
		c.judge()
		c.returnTo()
	}
	tx.err = err
	close(tx.done)
}

// The method `lost` records that the run was stopped because its store has failed.
func (r *Run) lost(err error) {
	r.st.SetStopped(CauseStoreError)
	r.stopOrigin = noRef
	r.rare().stopCauses = map[CauseKind]*stopCause{CauseStoreError: {err, context.Canceled}}
}

// descendants returns the nested runs, at any depth, whose composites have not ended. A run comes before the runs nested in it.
func (r *Run) descendants() (runs []*Run) {
	if !r.nests {
		return nil
	}
	refs := slices.Sorted(maps.Keys(r.extras))
	for _, ref := range refs {
		if x := r.extras[ref]; x.comp != nil && x.comp.child != nil && !r.st.Word(ref).Status().Terminal() {
			runs = append(append(runs, x.comp.child), x.comp.child.descendants()...)
		}
	}
	return runs
}

// holdLease renews the lease until startRenewal takes over, since decoding the values of a stored run may take long. It must not use the State,
// which does not exist yet. The returned function stops the renewals, and waits until a running renewal has ended; it may be called repeatedly.
func (r *Run) holdLease() (end func()) {
	d, over := r.durable, make(chan struct{})
	ctx, cancel := context.WithCancel(d.ctx)
	timer := time.AfterFunc(r.cfg.leaseTime/3, func() {
		defer close(over) // deferred, in case the store calls Goexit
		for {
			asked, pause := time.Now(), r.cfg.leaseTime/3
			switch err := guarded(func() error { return d.store.Renew(ctx, d.lease, r.cfg.leaseTime) }); {
			case err == nil:
				d.expires = asked.Add(r.cfg.leaseTime)
			case errors.Is(err, ErrFenced) || errors.Is(err, ErrUnusable) || !time.Now().Before(d.expires):
				return // no further renewal is needed: the first write of the run will fail with the same error
			default:
				pause = d.untilRenewal(r.cfg.leaseTime)
			}
			select {
			case <-time.After(pause):
			case <-ctx.Done():
				return
			}
		}
	})
	return sync.OnceFunc(func() {
		if cancel(); !timer.Stop() {
			<-over
		}
	})
}

// startRenewal starts the renewals of a prepared run's lease. They end when the lease is released or the store fails. The first renewal is due a
// third of leaseTime after the lease was last acquired or renewed. If this time has passed, the first renewal begins at once.
func (r *Run) startRenewal() {
	d := r.durable
	d.endHold()
	r.st.Lock()
	defer r.st.Unlock()
	d.renewal = time.AfterFunc(time.Until(d.expires)-2*r.cfg.leaseTime/3, r.renew)
}

// renew extends the lease. Each call runs on its own goroutine, which counts as a timer of the run.
func (r *Run) renew() {
	d := r.durable
	r.st.Lock()
	if d.given || d.failed != nil {
		r.st.Unlock()
		return
	}
	r.timers++
	r.st.Unlock()
	asked := time.Now()
	err := guarded(func() error { return d.store.Renew(d.ctx, d.lease, r.cfg.leaseTime) })
	r.st.Lock()
	r.timers--
	switch now := time.Now(); {
	case d.given || d.failed != nil:
	case err == nil:
		d.expires = asked.Add(r.cfg.leaseTime)
		d.renewal.Reset(r.cfg.leaseTime / 3)
	case r.stage == stagePending && (errors.Is(err, ErrFenced) || errors.Is(err, ErrUnusable) || !now.Before(d.expires)):
		// Nothing needs to be done: the first write of the run will fail with the same error.
	case errors.Is(err, ErrFenced):
		r.storeFailed(fmt.Errorf("%w: %w", ErrStore, err))
	case errors.Is(err, ErrUnusable) || !now.Before(d.expires):
		r.lose(fmt.Errorf("%w: %w", ErrStore, err))
	default:
		d.renewal.Reset(d.untilRenewal(r.cfg.leaseTime))
	}
	r.release(r.now())
}

// untilRenewal returns the pause before a failed renewal is tried again.
func (d *durable) untilRenewal(leaseTime time.Duration) time.Duration {
	return min(time.Second, leaseTime/10, max(time.Until(d.expires), 0))
}

// releaseLease releases the lease when the run has ended, was left or will not begin. If the store obeys its context, releaseLease waits for the
// store at most until the lease expires. The caller does not hold the run's lock.
func (r *Run) releaseLease() error {
	d := r.durable
	d.endHold()
	unwatched := d.inbox.close()
	if d.renewal != nil {
		r.st.Lock()
		d.given = true // a running renewal sees this and changes nothing
		d.renewal.Stop()
		d.inbox.giveUp()
		r.st.Unlock()
	}
	ctx, cancel := context.WithDeadline(context.WithoutCancel(r.ctx), d.expires)
	defer cancel()
	d.cancel()
	if err := guarded(func() error { return d.store.Release(ctx, d.lease) }); err != nil {
		return errors.Join(unwatched, fmt.Errorf("%w: the release of the lease failed, so another process may have to wait until the lease runs out: %w", ErrStore, err))
	}
	return unwatched
}

// createUnbegun stores a run that was left before it began, so that another process can begin it. It does nothing if the run was not left, if the
// store already has a record of the run, or if the store is not a [store.Admin]. The caller does not hold the run's lock.
func (r *Run) createUnbegun() error {
	d := r.durable
	admin, ok := d.store.(store.Admin)
	if !ok || r.leftFor == nil || d.sequence > 0 {
		return nil
	}
	spec, err := r.spec()
	if err == nil {
		ctx, cancel := context.WithDeadline(context.WithoutCancel(r.ctx), d.expires)
		defer cancel()
		err = guarded(func() error {
			_, _, err := admin.Create(ctx, store.NewRun{ID: r.ID(), Spec: spec, IfExists: store.Reuse})
			return err
		})
	}
	if err == nil || errors.Is(err, ErrLeased) || errors.Is(err, store.ErrMismatch) { // the run was already created, or another process holds it
		return nil
	}
	return fmt.Errorf("%w: run %s could not be created: %w", ErrStore, quoteID(r.ID()), err)
}

// room is an amount of space in a transaction: the space that the end of an attempt needs, or the space that a whole transaction may use.
type room struct {
	rows  int // rows of nodes
	bytes int // bytes of values
}

// defaultBounds limits the size of the outbox, and so of each transaction. While the outbox is full, attempts wait before they end, and no attempt
// begins. The end of an attempt and all its consequences are in one transaction, so one end may exceed the bounds.
var defaultBounds = room{rows: 1024, bytes: 8 << 20}

// The method `starts` returns the number of attempts that may begin with one transaction: half of the bound for rows. The steps of these attempts
// are called once the transaction is written. In the meantime, a second transaction may fill with starts. Then the ends of the first attempts are
// in the third transaction at the earliest. If the process dies before the third transaction is written, the attempts of two transactions are
// repeated: about as many as the bound for rows.
func (bounds room) starts() int { return (bounds.rows + 1) / 2 }

// An `ending` is an attempt whose step has returned. The attempt waits for room before it ends.
type ending struct {
	at       place
	bytes    int           // the bytes of the attempt's values
	reserved room          // the room in the outbox that is reserved for the attempt; valid once `granted` is closed
	granted  chan struct{} // closed when the attempt may end
}

// The method `full` reports whether the outbox and the reserved room together have reached the bound for rows (mostRows) or the bound for bytes.
func (d *durable) full() bool {
	return len(d.outbox.entries)+len(d.outbox.undos)+d.reserved.rows >= d.mostRows() || d.outbox.bytes+d.reserved.bytes >= d.bounds.bytes
}

// mostRows returns the number of rows that the outbox may have. This is the bound, or twice the number of rows that the widest end in this outbox
// has needed, if that is more. So if the end of one attempt needs more rows than the bound, the ends of other attempts still have room. They
// usually change the same nodes, and so add few rows.
func (d *durable) mostRows() int { return max(d.bounds.rows, 2*d.outbox.widest) }

// reserve reserves room in the outbox for the end of an attempt and for the changes of the node's direct successors. It reserves none for further
// consequences. ok is false if there is not enough room.
func (d *durable) reserve(at place, bytes int) (n room, ok bool) {
	rows, held := len(d.outbox.entries)+d.reserved.rows, d.outbox.bytes+d.reserved.bytes
	if d.full() && rows > 0 || held > 0 && held+bytes > d.bounds.bytes {
		return n, false
	}
	next := at.run.plan.net.Out(at.ref)
	n = room{1 + len(next), bytes}
	if rows+n.rows > d.bounds.rows {
		n.rows = 1
		for _, a := range next {
			if d.outbox.find(place{at.run, a.To()}) < 0 {
				n.rows++
			}
		}
		if rows > 0 && rows+n.rows > d.mostRows() {
			return n, false
		}
	}
	d.outbox.widest = max(d.outbox.widest, n.rows)
	d.reserved.rows += n.rows
	d.reserved.bytes += n.bytes
	return n, true
}

// awaitRoom makes the worker wait until its attempt may end. The step has returned values of the given size in bytes. The caller holds the run's
// lock. If awaitRoom waits, it releases the lock and returns true. The caller then applies the end in the critical section that begins with endWait.
//
//go:noinline
func (w *worker) awaitRoom(bytes int) (waited bool) {
	r, at := w.run, place{w.run, w.task.Ref}
	d := r.durable
	if d.failed != nil {
		return false
	}
	if len(d.line) == 0 {
		if n, ok := d.reserve(at, bytes); ok {
			d.free(n)
			return false
		}
	}
	e := &ending{at: at, bytes: bytes, granted: make(chan struct{})}
	w.ending, d.line = e, append(d.line, e)
	r.hasReturned(at.ref)
	r.release(w.now)
	<-e.granted
	w.now = r.now()
	return true
}

// hasReturned records that the step of the running attempt has returned, and stops the timer of the attempt. From then on only the worker can end
// the attempt.
func (r *Run) hasReturned(ref machine.Ref) {
	r.records[ref].returned = true
	r.disarmAttempt(ref)
}

// The method `free` ends a reservation. The changes for which the room was reserved come in the same critical section, or never.
func (d *durable) free(n room) {
	if d.failed == nil {
		d.reserved.rows -= n.rows
		d.reserved.bytes -= n.bytes
	}
}

// endWait ends the worker's wait. The caller holds the run's lock. If the attempt has failed and OverallTimeout passed during the wait, the node
// times out.
func (w *worker) endWait(failed bool) {
	r, ref, d := w.run, w.task.Ref, w.run.durable
	if w.ending != nil {
		d.free(w.ending.reserved)
	}
	w.ending, r.records[ref].returned = nil, false
	x := r.extras[ref]
	if x == nil || !x.overdue {
		return
	}
	if x.overdue = false; failed {
		r.timeOut(r.current(ref), x, timeoutOverall, r.plan.node(ref).OverallTimeout, w.now)
	}
}

// admit lets the attempts in d.line end, one after the other, as long as the outbox has room for the next one. The steps of these attempts have
// returned.
func (d *durable) admit() {
	for len(d.line) > 0 {
		e := d.line[0]
		var ok bool
		if e.reserved, ok = d.reserve(e.at, e.bytes); !ok {
			break
		}
		d.line[0], d.line = nil, d.line[1:]
		close(e.granted)
	}
}

// admitAll lets all waiting attempts continue, since nothing more will be written.
func (d *durable) admitAll() {
	for _, e := range d.line {
		close(e.granted)
	}
	d.line, d.reserved = nil, room{}
}

// holdsBack reports whether the run must wait: no node of it may begin until the committer has taken the outbox. If so, holdsBack adds the run to
// d.heldBack, and letGo lets the run continue later.
func (r *Run) holdsBack() bool {
	d := r.durable
	if d == nil || d.failed != nil || r.single != nil || d.outbox.begins < d.bounds.starts() && len(d.line) == 0 && !d.full() {
		return false
	}
	if !r.heldBack {
		r.heldBack = true
		d.heldBack = append(d.heldBack, r)
	}
	return true
}

// letGo is called when the committer has taken the outbox. It admits waiting attempts, and continues the runs that holdsBack has held back. It
// reports whether there were such runs. The caller holds the run's lock.
func (r *Run) letGo() (more bool) {
	d := r.durable
	d.admit()
	more = len(d.heldBack) > 0
	for i, c := range d.heldBack {
		if c.heldBack = false; c.tree != nil {
			c.tree.touch(c)
		}
		d.heldBack[i] = nil
	}
	d.heldBack = d.heldBack[:0]
	return more
}

// inTurn returns the changes that are written now. Roots are the nodes without predecessors. If there are many roots, inTurn keeps the
// changes by which the first roots became ready, and drops the changes of the other roots. The store does not need the dropped changes, since the
// start of the run implies that its roots are ready. When a root begins, its dropped change is recorded and gets its event, see tellRoot. So the
// first transaction of a run does not grow with the number of roots.
func (r *Run) inTurn(changes []machine.Change) []machine.Change {
	d := r.durable
	later, most := d.roots[r], d.bounds.starts()
	if later == nil && len(changes) <= most && r.outermost().cfg.from == nil {
		return changes
	}
	list, roots := make([]machine.Change, 0, min(len(changes)+1, 2*most)), 0
	for _, c := range changes {
		switch {
		case c.Wave != 0:
		case r.isFreshRoot(c):
			if roots++; roots > most || c.Quiet {
				if later == nil {
					later = ordset.New(len(r.records))
				}
				later.Insert(int(c.Ref))
				continue
			}
		case later.Remove(int(c.Ref)) && !c.Status.Terminal():
			list = append(list, machine.Change{Ref: c.Ref, Status: Ready})
		}
		list = append(list, c)
	}
	switch {
	case later.Len() == 0:
		delete(d.roots, r)
	case d.roots == nil:
		d.roots = map[*Run]*ordset.Set{}
		fallthrough
	default:
		d.roots[r] = later
	}
	return list
}

// tellRoot is called when a root is about to begin. If inTurn has dropped the change by which the root became ready, tellRoot records the change.
func (r *Run) tellRoot(ref machine.Ref, now int64) {
	if r.durable.roots[r].Remove(int(ref)) {
		r.tell([]machine.Change{{Ref: ref, Status: Ready}}, now)
	}
}

// isUntold reports whether inTurn has dropped the change by which the node became ready, and this change is not recorded yet.
func (r *Run) isUntold(ref machine.Ref) bool {
	return r.durable != nil && r.durable.roots[r].Has(int(ref))
}

// isFreshRoot reports whether the change made a root ready, and the root has no stored record yet.
func (r *Run) isFreshRoot(c machine.Change) bool {
	return c.Status == Ready && !c.Blocked && c.Attempt == 0 && (!c.Quiet || r.recorder.latest[c.Ref].id == 0) && r.records[c.Ref].attempts == 0 && len(r.plan.net.In(c.Ref)) == 0 &&
		!r.st.ParksNode(c.Ref) && r.extras[c.Ref] == nil
}

// sizeOf returns the size in bytes of the values that the end of an attempt writes.
func (r *Run) sizeOf(c *conclusion, kept *[2]json.RawMessage) int {
	switch {
	case c.Status == Completed:
		return len(kept[0]) + min(len(kept[0]), r.cfg.eventOutputs)
	case c.suspend != nil || c.expand != nil:
		return len(kept[0]) + len(kept[1])
	}
	return 0
}
