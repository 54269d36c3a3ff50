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

// durable connects a run to its store. The run's lock guards it, and is not held during calls of the store or a codec.
//
// The run goes ahead in memory, and each critical section that changes the State notes its changes in the outbox. One
// goroutine, the committer, takes the whole outbox and writes it as one transaction, again and again; there is one as long as
// something is to be written, and it counts as a worker of the run. The outbox is bounded: while it is full, attempts wait before they end, see room. So the start of a node is in the same transaction as the
// completion that made the node ready, and the longer a write takes, the more the next one holds. Until its transaction is
// written, an attempt that was begun does not call its step, a condition or trigger that became ready is not queued, the result
// of a nested run is not evaluated, and the events are hidden. Steps and readers of events see a change only when it is durable;
// Status, Node and Counts show what is in memory.
//
// The runs of a tree share one durable. The nodes inside composites are stored under keys that are paths, see Run.key; the
// record of a composite holds the data of its nested run as a whole. The store sees the start of a composite not as an
// attempt but as a commit of its record: after a crash the composite continues.
type durable struct {
	store       store.Store
	lease       store.Lease
	sequence    uint64       // of the last transaction that was taken out of the outbox
	status      RunStatus    // of the run, in this transaction and all before
	outbox      *transaction // what has changed since; never nil
	spare       *transaction // empty, in the memory of a written transaction; nil if there is none
	current     *transaction // that the store has been given and has not answered; nil if there is none
	writing     bool         // there is a committer
	coming      int          // workers that were started and have not taken their first tasks yet: no committer starts before
	failed      error
	stale       bool                   // the store's record of the run itself is to be replaced by the next transaction
	unspecified bool                   // the next transaction is to say what the run does
	steps       int64                  // entries made and read, by which tests check that the work is linear
	open        map[place]int32        // attempts whose start was noted and whose end was not
	endHold     func()                 // ends the renewal by holdLease
	renewal     *time.Timer            // nil until the run is prepared
	given       bool                   // the lease is being given back, or was: the run is over and everything is written
	lost        *lost                  // the run is left without its store; nil otherwise
	stored      map[place]storedStatus // of the nodes that have not ended
	written     bool                   // a write of this life has succeeded
	ctx         context.Context        // of the writes
	cancel      context.CancelFunc     // ends it when the store has failed
	alarms      due.Queue[*wake]       // the alarms that the store has to know of
	expires     time.Time              // of the lease, at the earliest: it was asked for leaseTime before
	scratch     []byte                 // in which the committer encodes records
	kept        []keptEpoch            // see keptEpoch
	undoing     Compensation           // of the run, as the store has it
	used        Usage                  // what the run has used in attempts that have ended, as the store has it
	undone      map[string]int         // by path: the part of undoing.times that no record of a node holds
	deltas      map[string]int         // by path: the counts that are in the record of the run, and not in a node's
	payload     json.RawMessage        // of the trigger, as the codec has written it; the committer owns it
	line        []*ending              // attempts that wait for room in the outbox, in the order of their ends
	bounds      room                   // of the outbox
	reserved    room                   // in the outbox, for nodes that wait no more and have not ended yet
	heldBack    []*Run                 // runs of the tree that begin nothing until the outbox is taken
	roots       map[*Run]*ordset.Set   // ready roots of which the outbox does not know, see inTurn
	events      *eventWriter           // nil if the run's events are not stored
	forked      string                 // the id of the run with whose results this one began; "" if it is no fork
	inbox       *inbox                 // nil if the store takes no requests
	awaits      map[string]string      // by paths of nodes: the runs that the store has been asked to await for them in this life
}

// place is a node of one of the runs of a tree.
type place struct {
	run *Run
	ref machine.Ref
}

// transaction is one write of the store, and before that the outbox. When it is written, a later one reuses its memory, except the
// commit's, which belongs to the store.
type transaction struct {
	entries []pendingNode
	at      map[place]int // indexes into entries, if there are more than a few
	due     bool          // it is to be written even without entries
	ended   []*Run        // nested runs whose results are to be evaluated afterwards
	undos   []undoRecord  // of nodes that are undone
	emitted []place       // nodes of which only the number of deltas has changed: their records are replaced with the next changes
	back    *takenBack    // what a redrive takes back with it; nil for any other transaction
	bytes   int           // of the values in the entries
	begins  int           // attempts and composites that begin
	widest  int           // the most rows that one end has needed
	*writing

	// Set when it is taken out of the outbox:
	commit   store.Commit
	nodes    []nodeState     // the records of the commit's nodes, not encoded yet
	places   []place         // of these nodes
	children []*Run          // the runs nested in them; nil for most
	outputs  []collected     // of iterations, that loops collect
	signals  []answeredState // with IDs, that have no record yet
	signal   int             // the number of the first of these
	header   *snapshotFile
	show     uint64  // the id of the last event to be shown afterwards
	events   []Event // to be stored: drafts of events that no earlier transaction holds
}

// undoRecord is the record of the undoing of a node, which is encoded later.
type undoRecord struct {
	*undo
	key   string
	state *undoState
}

// collected is the output of an iteration of a loop that collects them, or the list of a map. It has a record of its own, so that the loop's
// record does not grow with each iteration, nor the map's with its list.
type collected struct {
	key       string
	path      string // for errors
	iteration int    // 0 for a list
	value     stored
	at        time.Time
}

// writing says what became of a transaction. It outlives the transaction, whose memory is reused, for its readers.
type writing struct {
	done chan struct{} // closed, with the lock held, when the transaction is written, or err says why not
	err  error
}

// failed reports whether the transaction may not have been written. The lock is held.
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

// pendingNode is what a transaction holds of one node: what has happened to it, which only its methods add to, and the numbers that belong to
// that.
type pendingNode struct {
	place
	happened nodeNews
	ended    int32 // nodeReturned: the attempt that has ended, if its start was in an earlier transaction; else 0
	starts   int32 // attempts that begin; more than one only if the earlier ones were given up while the store was busy
	attempt  int32 // the last of these
	before   int32 // nodeBegan: attempts that had begun before
	resolved int   // predecessors that have resolved

	text json.RawMessage // its output as the codec has written it; nil if the committer has to ask the codec
}

// nodeNews are what has happened to a node since the transaction before.
type nodeNews uint8

const (
	nodeChanged  nodeNews = 1 << iota // its record is to be replaced
	nodeBegan                         // an attempt has begun, as the events have it: also a composite's, or when inputs were accepted
	nodeReturned                      // an attempt has ended
	nodeReady                         // it became ready
	nodeParked                        // and is to be queued when the transaction is written
	nodeTerminal                      // it has become terminal; the record of a node that was so before is never replaced
)

func (e *pendingNode) is(what nodeNews) bool { return e.happened&what != 0 }

// change notes that the record of the node is to be replaced. What follows from that is noted by the other methods.
func (e *pendingNode) change() { e.happened |= nodeChanged }

// begin notes that an attempt begins, and how many had begun before.
func (e *pendingNode) begin(before int32) {
	if !e.is(nodeBegan) {
		e.happened |= nodeBegan
		e.before = before
	}
}

// start notes that an attempt begins for which the step is called once that is stored.
func (e *pendingNode) start(attempt, before int32) {
	e.change()
	e.begin(before)
	e.attempt = attempt
	e.starts++
}

// finish notes that an attempt has ended whose start was noted.
func (e *pendingNode) finish(attempt int32) {
	if e.happened |= nodeReturned; e.starts == 0 {
		e.ended = attempt
	}
}

// ready notes that the node became ready. If it parks, it is queued afterwards; the first time, ready returns true.
func (e *pendingNode) ready(parks bool) (parked bool) {
	e.happened |= nodeReady
	if parked = parks && !e.is(nodeParked); parked {
		e.happened |= nodeParked
	}
	return parked
}

// end notes that the node has become terminal. See also resolve.
func (e *pendingNode) end() { e.happened |= nodeChanged | nodeTerminal }

func newTransaction() *transaction {
	return &transaction{writing: &writing{done: make(chan struct{})}}
}

// reuse keeps the memory of a transaction that is written, unless it is large, and nothing of what was in it: neither values nor nested runs.
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

// nextTransaction returns an empty transaction, in the memory of a written one if there is any.
func (d *durable) nextTransaction() *transaction {
	tx := d.spare
	if d.spare = nil; tx == nil {
		return newTransaction()
	}
	tx.writing = &writing{done: make(chan struct{})}
	return tx
}

// maxSpare is the number of nodes up to which the memory of a transaction is used again.
const maxSpare = 1024

// fewEntries is the number of entries that are searched one by one.
const fewEntries = 8

// find returns the index of a node's entry; -1 if there is none.
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

// pending returns the outbox's entry of a node.
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

// awaitsWrite counts the ready nodes, and the nested runs that have ended, that wait for their store before they are evaluated. With one slot,
// nothing begins meanwhile: otherwise the order would depend on the speed of the store.
func (r *Run) awaitsWrite(more int) {
	if r.unwritten += more; r.single != nil {
		r.single.unwritten += more
	}
}

// index makes an entry known to find. The first ones are indexed when there are more than a few.
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

// starts reports whether an attempt of a node begins with the transaction.
func (tx *transaction) starts(at place) bool {
	i := tx.find(at)
	return i >= 0 && tx.entries[i].starts > 0
}

// parks reports whether a node is queued when the transaction is written.
func (tx *transaction) parks(at place) bool {
	i := tx.find(at)
	return i >= 0 && tx.entries[i].is(nodeParked)
}

// hasWork reports whether there is something to be written.
func (d *durable) hasWork() bool {
	tx := d.outbox
	return len(tx.entries) > 0 || len(tx.undos) > 0 || len(tx.ended) > 0 || tx.due || len(tx.commit.Taken) > 0
}

// outdate marks the record of the run, or of the composite that the run performs, so that the next commit writes it again.
func (r *Run) outdate() {
	d := r.durable
	switch {
	case d == nil:
	case r.outer == nil:
		d.stale, d.outbox.due = true, d.failed == nil
	default:
		r.outer.outdated(r.within.ref)
		r.tree.touch(r.tree.root)
	}
}

// outdated marks the record of a node, so that the next commit writes it again.
func (r *Run) outdated(ref machine.Ref) {
	if d := r.durable; d != nil && d.failed == nil {
		d.pending(place{r, ref}).change()
	}
}

// settleLease releases the lease of a run that has ended with nothing to write: the run was left, or its store has
// failed. The lock is held.
func (r *Run) settleLease() {
	if d := r.durable; !d.writing {
		d.writing = true
		r.enlist()
		go r.commit()
	}
}

// recordsStart reports whether the start of an attempt that begins now is written before its step is called.
func (r *Run) recordsStart(ref machine.Ref) bool {
	return r.durable != nil && r.durable.failed == nil && !r.plan.net.Is(ref, machine.FlagInline)
}

// storedLife is the life of a run over a store.
type storedLife struct{ plainLife }

func (storedLife) arrived(r *Run) { r.durable.coming-- }

// mayTake writes past changes before the start of the next attempt.
func (storedLife) mayTake(r *Run, now int64) bool {
	r.flush(now)
	return !r.holdsBack()
}

// begun puts the start of an attempt into the outbox, with the number of attempts before it. The worker waits until it is
// written before it calls the step.
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

// errNotCalled is the result of an attempt that was stopped while its start was written.
var errNotCalled = errors.New("stopped before its step was called")

// awaitRecord waits until the start of the attempt is durable, and lets its timeout begin. A result with an error means that the
// step is not to be called: the store has failed, the lease has run out meanwhile, or the attempt was stopped.
func (w *worker) awaitRecord() attemptResult {
	r, step, tx := w.run, w.step, w.recorded
	w.recorded = nil
	<-tx.done
	w.now = r.now()
	if tx.err != nil {
		return attemptResult{err: errNotCalled, kind: CauseStepError} // the store's failure has stopped it
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
		return attemptResult{err: errNotCalled, kind: CauseStepError} // the end of the attempt decides the outcome
	}
	if r.plan.net.Is(step.ref, factTimed) {
		r.armTimeout(r.plan.node(step.ref), step, false, w.now)
	}
	return attemptResult{}
}

// storeFailed ends the run at the last change that its store has confirmed: every later change is undone, and a write that
// the store has not answered counts as not written. The lock is held.
func (r *Run) storeFailed(err error) {
	d, s, now := r.durable, &r.st, r.now()
	if d.failed != nil {
		return
	}
	if r.stage == stagePending { // the store has refused a transaction with an answer to one of its gates
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
	for _, tx := range slices.Backward(unwritten) { // what was before the older one stands
		r.rollback(tx, err)
	}
	if r.stage > stageRunning {
		r.stage = stageRunning // its end was not written, so it has not ended
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
	for _, c := range runs[1:] { // a run that was being stopped already is not stopped again: its cleanup nodes were to run
		if !c.concluded() {
			c.stopFor(CauseStoreError, &stopCause{err, context.Canceled}, machine.StopAsking)
			c.collectStops()
		}
	}
	r.flush(now)
}

// announce logs the first event of a life whose first event the store does not hold.
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

// rollback undoes the nodes of a transaction that was not written.
func (r *Run) rollback(tx *transaction, err error) {
	for i := range tx.entries {
		e := &tx.entries[i]
		s, rec := &e.run.st, &e.run.records[e.ref]
		if e.is(nodeParked) {
			e.run.awaitsWrite(-1)
		}
		if e.is(nodeBegan) {
			rec.attempts = e.before // it never began
		}
		if e.is(nodeTerminal) {
			s.Overrule(e.ref, e.is(nodeReturned))
			if rec.value = nil; e.is(nodeReturned) {
				rec.value = err
			}
		}
	}
	for _, c := range tx.ended { // these runs fail instead
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

// lost records the failure of the store as the cause that stopped the run.
func (r *Run) lost(err error) {
	r.st.SetStopped(CauseStoreError)
	r.stopOrigin = noRef
	r.stopCauses = map[CauseKind]*stopCause{CauseStoreError: {err, context.Canceled}}
}

// descendants yields the runs nested in this one whose composites have not ended, the outer ones first.
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

// holdLease renews the lease until the run is prepared, see startRenewal: decoding the values of a stored run may take long. It may
// not use the State, which does not exist before. The function that it returns ends the renewals and waits for one in flight; it may
// be called again.
func (r *Run) holdLease() (end func()) {
	d, over := r.durable, make(chan struct{})
	ctx, cancel := context.WithCancel(d.ctx)
	timer := time.AfterFunc(r.cfg.leaseTime/3, func() {
		defer close(over) // even if the store ends the goroutine
		for {
			asked, pause := time.Now(), r.cfg.leaseTime/3
			switch err := guarded(func() error { return d.store.Renew(ctx, d.lease, r.cfg.leaseTime) }); {
			case err == nil:
				d.expires = asked.Add(r.cfg.leaseTime)
			case errors.Is(err, ErrFenced) || errors.Is(err, ErrUnusable) || !time.Now().Before(d.expires):
				return // the first write of the run will show it
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

// startRenewal keeps the lease of a prepared run while it is pending, while it runs, and until its end is written. It renews the lease
// when a third of its time has passed, or at once if it has passed already.
func (r *Run) startRenewal() {
	d := r.durable
	d.endHold()
	r.st.Lock()
	defer r.st.Unlock()
	d.renewal = time.AfterFunc(time.Until(d.expires)-2*r.cfg.leaseTime/3, r.renew)
}

// renew extends the lease. Each call is a goroutine of its own that counts as a timer of the run.
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
		// The first write of the run will show it.
	case errors.Is(err, ErrFenced):
		r.storeFailed(fmt.Errorf("%w: %w", ErrStore, err))
	case errors.Is(err, ErrUnusable) || !now.Before(d.expires):
		r.lose(fmt.Errorf("%w: %w", ErrStore, err))
	default:
		d.renewal.Reset(d.untilRenewal(r.cfg.leaseTime))
	}
	r.release(r.now())
}

// untilRenewal is the pause before a renewal that has failed is repeated.
func (d *durable) untilRenewal(leaseTime time.Duration) time.Duration {
	return min(time.Second, leaseTime/10, max(time.Until(d.expires), 0))
}

// releaseLease releases the lease when the run is over, or will not begin. It waits for the store at most until the lease has expired,
// provided that the store heeds its context. The lock is not held.
func (r *Run) releaseLease() error {
	d := r.durable
	d.endHold()
	unwatched := d.inbox.close()
	if d.renewal != nil {
		r.st.Lock()
		d.given = true // so a renewal in flight changes nothing any more
		d.renewal.Stop()
		d.inbox.giveUp()
		r.st.Unlock()
	}
	ctx, cancel := context.WithDeadline(context.WithoutCancel(r.ctx), d.expires)
	defer cancel()
	d.cancel()
	if err := guarded(func() error { return d.store.Release(ctx, d.lease) }); err != nil {
		return errors.Join(unwatched, fmt.Errorf("%w: the lease is left to run out: %w", ErrStore, err))
	}
	return unwatched
}

// createUnbegun writes to the store what a run is to do that was left before it began, so that another process can begin it: the store has
// nothing else of it. The lock is not held.
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
	if err == nil || errors.Is(err, ErrLeased) || errors.Is(err, store.ErrMismatch) { // it was created, or another process has it
		return nil
	}
	return fmt.Errorf("%w: run %s is not created: %w", ErrStore, quoteID(r.ID()), err)
}

// room is what the end of an attempt takes up in a transaction, or how much there may be.
type room struct {
	rows  int // of nodes
	bytes int // of values
}

// defaultBounds are the bounds of a transaction, which the outbox keeps. While it is full, attempts wait before they end, and no attempt begins. The end of
// an attempt and all its consequences are in one transaction, so one end may exceed them.
var defaultBounds = room{rows: 1024, bytes: 8 << 20}

// starts is how many attempts begin with one transaction. The ends of attempts that return at once are written two transactions later, so a crash repeats
// the attempts of two.
func (bounds room) starts() int { return (bounds.rows + 1) / 2 }

// ending is an attempt that has returned, and waits before it ends.
type ending struct {
	at       place
	bytes    int           // of its values
	reserved room          // in the outbox, once it may end
	granted  chan struct{} // closed when it may end
}

// full reports whether the outbox has no room for an end that changes nodes which are not in it yet.
func (d *durable) full() bool {
	return len(d.outbox.entries)+len(d.outbox.undos)+d.reserved.rows >= d.mostRows() || d.outbox.bytes+d.reserved.bytes >= d.bounds.bytes
}

// mostRows is how many rows the outbox may have. Ends that change the same nodes share a transaction, also if these nodes are more than the bound.
func (d *durable) mostRows() int { return max(d.bounds.rows, 2*d.outbox.widest) }

// reserve reserves room in the outbox for the end of an attempt, without consequences beyond the next nodes, if there is room.
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

// awaitRoom makes the worker wait until its attempt, which has returned with values of so many bytes, may end. It is called with the lock held, and reports
// whether it has waited, without the lock. The end must then be applied in the critical section that begins with endWait.
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

// hasReturned notes that the step of the running attempt has returned, so that nothing ends the attempt but the worker.
func (r *Run) hasReturned(ref machine.Ref) {
	r.records[ref].returned = true
	r.disarmAttempt(ref)
}

// free ends a reservation: what it was for is in the outbox, or will not be.
func (d *durable) free(n room) {
	if d.failed == nil {
		d.reserved.rows -= n.rows
		d.reserved.bytes -= n.bytes
	}
}

// endWait is called with the lock held when the worker has waited. OverallTimeout, if it has passed meanwhile, ends a node whose attempt has failed.
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

// admit lets attempts end that wait for room, in their order.
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

// admitAll lets all waiting attempts continue, since nothing is written any more.
func (d *durable) admitAll() {
	for _, e := range d.line {
		close(e.granted)
	}
	d.line, d.reserved = nil, room{}
}

// holdsBack reports whether the run begins nothing until the committer has taken the outbox. The run then continues by itself.
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

// letGo releases what has waited for room in the outbox, which the committer has taken, and reports whether runs of the tree may begin more. The lock
// is held.
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

// inTurn leaves out of the changes of a run that roots became ready, if these are many: the readiness of a root follows from the start of its run;
// it is written, and has its event, when the root begins. So the first transaction of a run does not grow with the number of its roots.
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

// tellRoot reports that a root which is about to begin is ready, if inTurn has left this out.
func (r *Run) tellRoot(ref machine.Ref, now int64) {
	if r.durable.roots[r].Remove(int(ref)) {
		r.tell([]machine.Change{{Ref: ref, Status: Ready}}, now)
	}
}

// isUntold reports whether a node is a root that is ready and of which neither the outbox nor an event knows.
func (r *Run) isUntold(ref machine.Ref) bool {
	return r.durable != nil && r.durable.roots[r].Has(int(ref))
}

// isFreshRoot reports whether a change makes a node ready that has no predecessors and of which nothing is stored.
func (r *Run) isFreshRoot(c machine.Change) bool {
	return c.Status == Ready && !c.Blocked && c.Attempt == 0 && (!c.Quiet || r.recorder.latest[c.Ref].id == 0) && r.records[c.Ref].attempts == 0 && len(r.plan.net.In(c.Ref)) == 0 &&
		!r.st.ParksNode(c.Ref) && r.extras[c.Ref] == nil
}

// sizeOf is how many bytes the values have that the end of an attempt writes.
func (r *Run) sizeOf(c *conclusion, kept *[2]json.RawMessage) int {
	switch {
	case c.Status == Completed:
		return len(kept[0]) + min(len(kept[0]), r.cfg.eventOutputs)
	case c.suspend != nil || c.expand != nil:
		return len(kept[0]) + len(kept[1])
	}
	return 0
}
