package kahn

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// durable connects a run to its store. The run's lock guards it, and is not held during calls of the store or a codec.
//
// The run goes ahead in memory, and each critical section that changes the State leaves a transaction in the outbox. One
// goroutine, the committer, writes them in order; there is one as long as the outbox is not empty, and it counts as a worker
// of the run. Until its transaction is written, a node that became ready is not queued, an attempt that was begun does not
// call its step, the result of a nested run is not evaluated, and the events are hidden. So no effect of a change is visible
// before the change is durable.
//
// The runs of a tree share one durable. The nodes inside of composites are stored under keys that are paths, see Run.key;
// the record of a composite holds the data of its nested run as a whole. The store sees the start of a composite not as an
// attempt but as a commit of its record: after a crash the composite goes on.
type durable struct {
	store    Store
	lease    Lease
	sequence uint64 // of the last commit that was put into the outbox
	outbox   []*transaction
	starts   map[place]*transaction // those in the outbox, by node the last
	writing  bool                   // there is a committer
	current  *transaction           // that the store has been given and has not answered; nil if there is none
	failed   error
	stale    bool            // the store's record of the run itself is to be replaced
	outdated []place         // composites whose records are to be replaced, though their statuses have not changed
	listed   map[place]bool  // those in outdated
	steps    int64           // entries of the outbox and of outdated visited, by which tests check that the work is linear
	open     map[place]int32 // attempts whose start was recorded and whose end was not
	renewal  *time.Timer
	expires  time.Time // of the lease, at the earliest: it was asked for leaseTime before
}

// place is a node of one of the runs of a tree.
type place struct {
	run *Run
	ref Ref
}

// transaction is one write of the store.
type transaction struct {
	start  *AttemptStart // an attempt that begins, or
	commit *Commit       // what changed, or neither: there are events to be shown only
	nodes  []nodeState   // the records of the commit's nodes, or of the start's, not encoded yet
	header *snapshotFile
	places []place       // of the commit's nodes, or of the start's
	ready  []place       // nodes to be queued afterwards
	ended  *Run          // a nested run whose result is to be evaluated afterwards
	show   uint64        // the id of the last event to be shown afterwards
	done   chan struct{} // of a start: closed when it is written, or err says why not
	err    error

	attempts int32   // of a start: those of its node that had begun before
	admitted []place // nodes whose inputs were accepted: their first attempt begins with this
}

// outdate marks the record of the run, or of the composite that the run performs, so that the next commit writes it again.
func (r *Run) outdate() {
	d := r.durable
	switch {
	case d == nil:
	case r.outer == nil:
		d.stale = true
	default:
		r.outer.outdated(r.within.ref)
		r.tree.touch(r.tree.root)
	}
}

// outdated marks the record of a node, so that the next commit writes it again.
func (r *Run) outdated(ref Ref) {
	d := r.durable
	if d == nil {
		return
	}
	d.steps++
	if p := (place{r, ref}); !d.listed[p] {
		d.listed[p] = true
		d.outdated = append(d.outdated, p)
	}
}

// settleLease releases the lease of a run that has ended with nothing to write: one that was left, or whose store has
// failed. The lock is held.
func (r *Run) settleLease() {
	if d := r.durable; !d.writing {
		d.writing = true
		r.enlist()
		go r.commit()
	}
}

// recordsStart reports whether the start of an attempt that begins now is written before its step is called.
func (r *Run) recordsStart(ref Ref) bool {
	return r.durable != nil && r.durable.failed == nil && !r.plan.facts[ref].is(factInline)
}

// record puts the start of an attempt into the outbox, the number of those before it beside it. The worker waits until it is
// written before it calls the step.
func (w *worker) record(t Task, attempts int32) {
	r := w.run
	if w.recorded = nil; !r.recordsStart(t.Ref) {
		return
	}
	if r.durable.stale { // deltas, whose events precede the start, made it so
		r.durable.pushCommit(r.outermost(), &transaction{commit: &Commit{}})
	}
	n := r.nodeState(t.Ref, r.st.words[t.Ref])
	n.Event = r.log.lastID()
	w.recorded = &transaction{
		start: &AttemptStart{Node: r.key(t.Ref), Attempt: t.Attempt}, places: []place{{r, t.Ref}}, nodes: []nodeState{n}, done: make(chan struct{}), attempts: attempts,
	}
	r.durable.open[place{r, t.Ref}] = t.Attempt
	r.durable.push(w.recorded)
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
		return attemptResult{err: tx.err, kind: CauseStoreError}
	}
	r.st.mu.Lock()
	d, x := r.durable, r.extras[step.ref]
	if d.failed == nil && !time.Now().Before(d.expires) {
		root := r.outermost()
		root.storeFailed(fmt.Errorf("%w: %w: its time is up", ErrStore, ErrFenced))
		defer root.release(w.now)
	} else {
		defer r.st.mu.Unlock()
	}
	switch {
	case d.failed != nil:
		return attemptResult{err: d.failed, kind: CauseStoreError}
	case r.current(step.ref) != step || r.st.words[step.ref]&wordStopping != 0 || x != nil && x.timedOut != timeoutNone:
		return attemptResult{err: errNotCalled, kind: CauseStepError} // the end of the attempt decides the outcome
	}
	if r.plan.facts[step.ref].is(factTimed) {
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
	runs := append([]*Run{r}, r.descendants()...)
	for _, c := range runs {
		c.flush(now)
	}
	lost := d.outbox
	if d.current != nil {
		lost = append([]*transaction{d.current}, lost...)
	}
	d.failed, d.outbox, d.outdated = err, nil, nil
	clear(d.starts)
	clear(d.listed)
	r.retract(runs)
	for _, c := range runs {
		c.st.parks, c.st.closed = false, true
	}
	for _, tx := range lost {
		r.rollback(tx, err)
	}
	if d.renewal != nil {
		d.renewal.Stop()
	}
	if r.stage > stageRunning {
		r.stage = stageRunning // its end was not written, so it has not ended
	}
	r.lost(err)
	s.stop(CauseStoreError, noRef, stopAsking)
	for ref := range r.extras {
		if statusOf(s.words[ref]).Terminal() {
			r.disarmNode(ref)
		}
	}
	r.stay(now)
	r.collectStops()
	for _, c := range runs[1:] { // a run that was being stopped already is not stopped again: its cleanup nodes were to run
		if !c.concluded() {
			c.stopFor(CauseStoreError, &stopCause{err, context.Canceled}, stopAsking)
			c.collectStops()
		}
	}
	r.flush(now)
}

// rollback undoes the nodes of a transaction that was not written.
func (r *Run) rollback(tx *transaction, err error) {
	if tx.start != nil {
		tx.err = err
		close(tx.done)
		at := tx.places[0]
		at.run.records[at.ref].attempts = tx.attempts // this one never began
		return
	}
	for _, at := range tx.ready {
		at.run.unwritten--
	}
	for _, at := range tx.admitted {
		at.run.records[at.ref].attempts = 0
	}
	if c := tx.ended; c != nil { // the nested run fails instead
		c.outer.unwritten--
		c.stoppedBy = CauseStoreError
		c.lost(err)
		c.judge()
		c.returnTo()
	}
	for _, at := range tx.places {
		s, rec := &at.run.st, &at.run.records[at.ref]
		if statusOf(s.words[at.ref]).Terminal() {
			own := tx.commit.Completed.Node == at.run.key(at.ref)
			s.overrule(at.ref, own)
			if rec.value = nil; own {
				rec.value = err
			}
		}
	}
}

// lost records the failure of the store as the cause that stopped the run.
func (r *Run) lost(err error) {
	r.st.stopped, r.stopOrigin = CauseStoreError, noRef
	r.stopCauses = map[CauseKind]*stopCause{CauseStoreError: {err, context.Canceled}}
}

// descendants yields the runs nested in this one whose composites have not ended, the outer ones first.
func (r *Run) descendants() (runs []*Run) {
	if !r.nests {
		return nil
	}
	refs := slices.Sorted(maps.Keys(r.extras))
	for _, ref := range refs {
		if x := r.extras[ref]; x.comp != nil && x.comp.child != nil && !statusOf(r.st.words[ref]).Terminal() {
			runs = append(append(runs, x.comp.child), x.comp.child.descendants()...)
		}
	}
	return runs
}

// startRenewal keeps the lease while the run goes on.
func (r *Run) startRenewal() {
	r.durable.renewal = time.AfterFunc(leaseTime/3, r.renew)
}

// renew extends the lease. Each call is a goroutine of its own that counts as a timer of the run.
func (r *Run) renew() {
	d := r.durable
	r.st.mu.Lock()
	if r.concluded() || d.failed != nil {
		r.st.mu.Unlock()
		return
	}
	r.timers++
	r.st.mu.Unlock()
	asked := time.Now()
	err := guarded(func() error { return d.store.Renew(context.WithoutCancel(r.ctx), d.lease, leaseTime) })
	r.st.mu.Lock()
	r.timers--
	switch now := time.Now(); {
	case r.concluded() || d.failed != nil:
	case err == nil:
		d.expires = asked.Add(leaseTime)
		d.renewal.Reset(leaseTime / 3)
	case errors.Is(err, ErrFenced) || now.After(d.expires):
		r.storeFailed(fmt.Errorf("%w: %w", ErrStore, err))
	default:
		d.renewal.Reset(time.Second)
	}
	r.release(r.now())
}

// releaseLease releases the lease when the run is over. It waits for the store at most until the lease has expired, provided
// that the store heeds its context; the zero time means no bound. The lock is not held.
func (r *Run) releaseLease(until time.Time) error {
	d := r.durable
	if d.renewal != nil {
		d.renewal.Stop()
	}
	ctx := context.WithoutCancel(r.ctx)
	if !until.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, until)
		defer cancel()
	}
	return guarded(func() error { return d.store.Release(ctx, d.lease) })
}
