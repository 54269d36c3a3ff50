package kahn

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
)

// durable is the side of a run that its store sees. It is guarded by the run's lock, which is not held while the store, or a
// codec, is at work.
//
// The run goes ahead in memory, and each critical section that changes the State leaves a transaction in the outbox. One
// goroutine, the committer, writes them in order; there is one as long as the outbox is not empty, and it counts as a worker
// of the run. Until its transaction is written, a node that became ready is not queued, an attempt that was begun does not
// call its step, a nested run that has ended is not looked at, and the events are hidden. So nothing that depends on a change is
// ever seen before the change is durable.
//
// The runs of a tree have one of these. What is inside of composites is stored under keys that are paths, see Run.key; the
// record of a composite holds what belongs to its nested run as a whole. The start of a composite is no attempt to the store
// but a commit of its record: after a crash it goes on.
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
	steps    int64           // entries of the outbox and of outdated looked at, to show that the work is linear
	open     map[place]int32 // attempts whose start was recorded and whose end was not
	renewal  *time.Timer
	expires  time.Time // of the lease, at the earliest: it was asked for leaseTime before
}

// place is a node of one of the runs of a tree.
type place struct {
	run *Run
	ref Ref
}

// transaction is one thing for the store to do.
type transaction struct {
	start  *AttemptStart // an attempt that begins, or
	commit *Commit       // what changed, or neither: there are events to be shown only
	nodes  []nodeState   // the records of the commit's nodes, or of the start's, not encoded yet
	header *snapshotFile
	places []place       // of the commit's nodes, or of the start's
	ready  []place       // nodes to be queued afterwards
	ended  *Run          // a nested run that is to be looked at afterwards
	show   uint64        // the id of the last event to be shown afterwards
	done   chan struct{} // of a start: closed when it is written, or err says why not
	err    error
}

// acquire takes the lease of the run, and makes what the store has of it the restoration.
func (r *Run) acquire() (*restoration, error) {
	if r.cfg.from != nil {
		return nil, fmt.Errorf("%w: a run goes on from its store or from a snapshot, not from both", ErrBadOption)
	}
	r.plan.Hash() // user code has a part in it: not under the lock, later
	d := &durable{store: r.cfg.store, open: map[place]int32{}, starts: map[place]*transaction{}, listed: map[place]bool{}}
	owner := uuid.NewString()
	var stored *StoredRun
	asked := time.Now()
	err := guarded(func() (err error) {
		d.lease, stored, err = d.store.Acquire(r.ctx, r.ID(), owner, leaseTime)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrStore, err)
	}
	r.durable, d.expires = d, asked.Add(leaseTime)
	if stored == nil || stored.Sequence == 0 {
		d.stale = true
		return nil, nil
	}
	d.sequence = stored.Sequence
	return r.restoreStored(stored)
}

// outdate has the record of a composite replaced, or that of the run itself, with the next commit.
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

// outdated has the record of a node replaced with the next commit.
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

// guarded calls the store, and returns its panic as an error.
func guarded(f func() error) error { return bounded(contain(f)) }

// add puts what changed in a run into the outbox, with the lock held.
func (d *durable) add(r *Run, changes []change) {
	if d.failed != nil {
		return
	}
	tx := &transaction{commit: &Commit{}, show: r.log.lastID()}
	increments := map[Ref]int{}
	seen := map[Ref]bool{}
	for _, c := range changes {
		if c.wave != 0 || c.blocked {
			continue
		}
		at := place{r, c.ref}
		if c.status == Running && !r.performsInside(c.ref) {
			if !d.started(r, c.ref) { // its start was written before its inputs were judged
				seen[c.ref] = true
				tx.places = append(tx.places, at)
			}
			continue
		}
		if c.status == Ready && statusOf(r.st.words[c.ref]) == Ready { // else it is a composite that goes on
			tx.ready = append(tx.ready, at)
			r.unwritten++
		}
		if c.status.Terminal() {
			for _, a := range r.plan.outOf(c.ref) {
				increments[a.to]++
			}
		}
		if !seen[c.ref] {
			seen[c.ref] = true
			tx.places = append(tx.places, at)
		}
		if attempt := d.open[at]; attempt > 0 { // it was running
			delete(d.open, at)
			tx.commit.Completed = AttemptEnd{Node: r.key(c.ref), Attempt: attempt}
		}
	}
	for _, at := range d.outdated {
		delete(d.listed, at)
		if ended := statusOf(at.run.st.words[at.ref]).Terminal(); !ended && (at.run != r || !seen[at.ref]) { // else its end is written
			tx.places = append(tx.places, at)
		}
	}
	d.outdated = d.outdated[:0]
	if r.tree != nil {
		r.tree.touch(r.tree.root) // whose committer it is
	}
	if len(tx.places) == 0 && !d.stale {
		tx.commit = nil // starts and waves alone
		d.push(tx)
		return
	}
	for _, at := range tx.places {
		n := at.run.nodeState(at.ref, at.run.st.words[at.ref])
		n.Event = tx.show
		tx.nodes = append(tx.nodes, n)
	}
	targets := make([]Ref, 0, len(increments))
	for ref := range increments {
		targets = append(targets, ref)
	}
	slices.Sort(targets)
	for _, ref := range targets {
		tx.commit.Readiness = append(tx.commit.Readiness, Readiness{r.key(ref), increments[ref], len(r.plan.in.row(ref))})
	}
	for _, at := range tx.ready {
		tx.commit.Ready = append(tx.commit.Ready, at.run.key(at.ref))
	}
	d.pushCommit(r.outermost(), tx)
}

// started completes the record of a start by its event, unless it was written already.
func (d *durable) started(r *Run, ref Ref) bool {
	d.steps++
	tx := d.starts[place{r, ref}]
	if tx == nil {
		return false
	}
	tx.nodes[0].Latest = r.recorder.latest[ref].id
	tx.nodes[0].Event = tx.nodes[0].Latest
	return true
}

// told puts an event of a node that tells of no change into the node's record.
func (d *durable) told(r *Run, ref Ref) {
	if d.failed != nil {
		return
	}
	if n := len(d.outbox); n > 0 { // an earlier one must not know of what comes after it
		for i, at := range d.outbox[n-1].places {
			if node := &d.outbox[n-1].nodes[i]; at == (place{r, ref}) {
				node.Latest = r.recorder.latest[ref].id
				node.Event = node.Latest
				return
			}
		}
	}
	n := r.nodeState(ref, r.st.words[ref])
	n.Event = n.Latest
	d.pushCommit(r.outermost(), &transaction{commit: &Commit{}, places: []place{{r, ref}}, nodes: []nodeState{n}})
}

func (d *durable) pushCommit(r *Run, tx *transaction) {
	d.sequence++
	tx.commit.Sequence = d.sequence
	if d.stale {
		file := r.fileHeader()
		tx.header, d.stale = &file, false
		if tx.commit.Status == RunPending {
			tx.commit.Status = RunRunning
		}
	}
	d.push(tx)
}

func (d *durable) push(tx *transaction) {
	d.outbox = append(d.outbox, tx)
	if tx.start != nil {
		d.starts[tx.places[0]] = tx
	}
}

// pop takes the first transaction out of the outbox.
func (d *durable) pop() *transaction {
	tx := d.outbox[0]
	d.outbox = d.outbox[1:]
	if tx.start != nil && d.starts[tx.places[0]] == tx {
		delete(d.starts, tx.places[0])
	}
	return tx
}

// show shows the events that tell of no change, after those that do.
func (d *durable) show(l *eventLog) {
	if d.failed != nil {
		return
	}
	if id := l.lastID(); len(d.outbox) > 0 {
		d.outbox[len(d.outbox)-1].show = id
	} else if d.writing {
		d.push(&transaction{show: id})
	} else {
		l.publish(id)
	}
}

// changeStatus makes the transaction that is last in line change the status of the run. The event of a change that does not
// end the run is no node's: the record of the run counts it, so that the next life does not give its id again.
func (d *durable) changeStatus(r *Run, status RunStatus) {
	if d.failed != nil {
		return
	}
	d.stale = d.stale || !status.Terminal()
	if n := len(d.outbox); n > 0 && d.outbox[n-1].commit != nil {
		tx := d.outbox[n-1]
		if tx.commit.Status = status; d.stale {
			file := r.fileHeader()
			tx.header, d.stale = &file, false
		}
		return
	}
	tx := &transaction{commit: &Commit{Status: status}}
	if n := len(d.outbox); n > 0 {
		tx.show, d.outbox[n-1].show = d.outbox[n-1].show, 0
	}
	d.pushCommit(r, tx)
}

// commitPending sees to it that somebody writes what is in the outbox.
func (r *Run) commitPending() {
	r = r.outermost()
	d := r.durable
	if len(d.outdated) > 0 {
		d.add(r, nil)
	}
	if !d.writing && len(d.outbox) > 0 {
		d.writing = true
		r.enlist()
		go r.commit()
	}
}

// settleLease gives back the run that has ended with nothing to write: one that was left, or whose store has failed. The lock is
// held.
func (r *Run) settleLease() {
	if d := r.durable; !d.writing {
		d.writing = true
		r.enlist()
		go r.commit()
	}
}

// commit is the committer.
func (r *Run) commit() {
	d := r.durable
	finished := false
	defer func() { // the store has called runtime.Goexit
		if !finished {
			r.st.mu.Lock()
			r.storeFailed(fmt.Errorf("%w: %w", ErrStore, ErrGoexit))
			d.writing = false
			r.dismiss()
			r.release(r.now())
		}
	}()
	for {
		r.st.mu.Lock()
		if len(d.outbox) == 0 {
			if r.concluded {
				var until time.Time
				if d.failed != nil {
					until = d.expires
				}
				r.st.mu.Unlock()
				err := r.releaseLease(until)
				r.st.mu.Lock()
				if err != nil {
					r.warnings = append(r.warnings, fmt.Errorf("%w: the lease is left to run out: %w", ErrStore, err))
				}
			}
			break
		}
		tx := d.pop()
		d.current = tx
		r.st.mu.Unlock()
		err := r.write(tx)
		r.st.mu.Lock()
		switch {
		case err != nil:
			r.storeFailed(err)
		case d.failed == nil: // else it came too late
			r.written(tx)
		}
		d.current = nil
		r.release(r.now())
	}
	finished = true
	d.writing = false
	r.dismiss()
	r.release(r.now())
}

// written takes note that a transaction is durable.
func (r *Run) written(tx *transaction) {
	if tx.show != 0 {
		r.log.publish(tx.show)
	}
	for _, at := range tx.ready {
		at.run.unwritten--
		if s := &at.run.st; statusOf(s.words[at.ref]) == Ready {
			s.queue(at.ref)
		}
		if r.tree != nil {
			r.tree.touch(at.run)
		}
	}
	if tx.ended != nil {
		tx.ended.outer.unwritten--
		tx.ended.returnTo()
	}
	if tx.start != nil {
		close(tx.done)
	}
}

// writeTries is how often a write is tried, and retryPause how long after a failure.
const (
	writeTries = 3
	retryPause = 100 * time.Millisecond
)

// write encodes a transaction and gives it to the store, again if the store does not know what has become of it.
func (r *Run) write(tx *transaction) (err error) {
	if err := r.encode(tx); err != nil {
		return err
	}
	if tx.start == nil && tx.commit == nil {
		return nil
	}
	ctx := context.WithoutCancel(r.ctx)
	for try := 1; ; try++ {
		var applied Applied
		err = guarded(func() (err error) {
			if tx.start != nil {
				applied, err = r.durable.store.StartAttempt(ctx, r.durable.lease, *tx.start)
			} else {
				applied, err = r.durable.store.Commit(ctx, r.durable.lease, *tx.commit)
			}
			return err
		})
		switch {
		case err == nil && (applied == AppliedNow || applied == Duplicate && try > 1):
			return nil
		case err == nil:
			return fmt.Errorf("%w: a write is %v", ErrStore, applied)
		case try == writeTries || errors.Is(err, ErrFenced) || errors.Is(err, ErrReadinessOverflow):
			return fmt.Errorf("%w: %w", ErrStore, err)
		}
		time.Sleep(retryPause)
	}
}

// encode makes the records of a transaction.
func (r *Run) encode(tx *transaction) error {
	nodes := cloneNodes(tx.nodes)
	encode := encoder(r.cfg.codec)
	var errs []error
	for i := range nodes {
		n, at := &nodes[i], tx.places[i]
		visitor(func(path string, v *stored) {
			if err := encode(path, v); err != nil {
				errs = append(errs, err)
			}
		}).node(n, at.run.prefix)
		n.renderErrors()
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for i := range nodes {
		record, err := json.Marshal(nodes[i])
		if err != nil {
			return err
		}
		if tx.start != nil {
			tx.start.Record = record
			return nil
		}
		at := tx.places[i]
		tx.commit.Nodes = append(tx.commit.Nodes, NodeRecord{Node: at.run.key(at.ref), Terminal: nodes[i].Status.Terminal(), Record: record})
	}
	if tx.header != nil {
		header, err := tx.header.encoded(r.cfg.codec)
		if err == nil {
			tx.commit.Run, err = json.Marshal(header)
		}
		return err
	}
	return nil
}

// recordsStart reports whether the start of an attempt that begins now is written before its step is called.
func (r *Run) recordsStart(ref Ref) bool {
	return r.durable != nil && r.durable.failed == nil && !r.plan.facts[ref].is(factInline)
}

// record puts the start of an attempt into the outbox. The worker waits for it before it calls the step.
func (w *worker) record(t Task) {
	r := w.run
	if w.recorded = nil; !r.recordsStart(t.Ref) {
		return
	}
	if r.durable.stale { // by deltas, which come before the start
		r.durable.pushCommit(r.outermost(), &transaction{commit: &Commit{}})
	}
	n := r.nodeState(t.Ref, r.st.words[t.Ref])
	n.Event = r.log.lastID()
	w.recorded = &transaction{
		start: &AttemptStart{Node: r.key(t.Ref), Attempt: t.Attempt}, places: []place{{r, t.Ref}}, nodes: []nodeState{n}, done: make(chan struct{}),
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
		return attemptResult{err: errNotCalled, kind: CauseStepError} // what it comes to is found where the attempt ends
	}
	if r.plan.facts[step.ref].is(factTimed) {
		r.armTimeout(r.plan.node(step.ref), step, false, w.now)
	}
	return attemptResult{}
}

// storeFailed ends the run where its store has left it: nothing that was not written has happened. What the store has not
// answered yet counts as not written. The lock is held.
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
		r.lose(tx, err)
	}
	if d.renewal != nil {
		d.renewal.Stop()
	}
	if r.concluded {
		r.concluded = false // it had not ended, as it turns out
	}
	r.lost(err)
	s.stop(CauseStoreError, noRef, stopAsking)
	for ref := range r.extras {
		if statusOf(s.words[ref]).Terminal() {
			r.disarmNode(ref)
		}
	}
	r.stay(now)
	r.resting = false
	r.collectStops()
	for _, c := range runs[1:] { // those that were being stopped already are not asked again, and were to clean up
		if !c.concluded {
			c.stopFor(CauseStoreError, &stopCause{err, context.Canceled}, stopAsking)
			c.collectStops()
		}
	}
	r.flush(now)
}

// lose makes of what a transaction was to write something that has not happened.
func (r *Run) lose(tx *transaction, err error) {
	if tx.start != nil {
		tx.err = err
		close(tx.done)
		at := tx.places[0]
		at.run.records[at.ref].attempts-- // it was not begun
		return
	}
	for _, at := range tx.ready {
		at.run.unwritten--
	}
	if c := tx.ended; c != nil { // it has come to something else
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

// lost makes the failure of the store what has stopped the run.
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

// overrule makes a node, whose end was not written, one that a store error ended: failed if it was the node's own end.
func (s *State) overrule(r Ref, own bool) {
	w := s.words[r]
	switch statusOf(w) {
	case Failed:
		s.badNodes--
		if w&wordTolerated != 0 {
			s.tolerated--
		}
	case Aborted:
		s.badNodes--
	case Cancelled:
		s.badNodes--
		s.cancelled--
	}
	origin := noRef
	to, arg := Aborted, uint64(uint32(origin))
	if own {
		to, arg = Failed, 0
	}
	s.badNodes++
	s.origins = nil // what was final is not
	s.words[r] = w&(wordReached|wordBlocked|wordObserved) | wordDecided | uint64(to)<<statusShift | uint64(CauseStoreError)<<kindShift | arg
	s.log(r, w, to)
}

// startRenewal keeps the lease while the run goes on.
func (r *Run) startRenewal() {
	r.durable.renewal = time.AfterFunc(leaseTime/3, r.renew)
}

// renew extends the lease. Each call is a goroutine of its own that counts as a timer of the run.
func (r *Run) renew() {
	d := r.durable
	r.st.mu.Lock()
	if r.concluded || d.failed != nil {
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
	case r.concluded || d.failed != nil:
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

// releaseLease gives the run back when it is over. A store that does not answer until the lease has run out is not waited for any
// longer than that, if it heeds its context; the zero time means no bound. The lock is not held.
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
