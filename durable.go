package kahn

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
// call its step, and the events are hidden. So nothing that depends on a change is ever seen before the change is durable.
type durable struct {
	store    Store
	lease    Lease
	sequence uint64 // of the last commit that was put into the outbox
	outbox   []*transaction
	writing  bool // there is a committer
	failed   error
	stale    bool          // the store's record of the run itself is to be replaced
	open     map[Ref]int32 // attempts whose start was recorded and whose end was not
	renewal  *time.Timer
	expires  time.Time // of the lease, as far as this process knows
}

// transaction is one thing for the store to do.
type transaction struct {
	start  *AttemptStart // an attempt that begins, or
	commit *Commit       // what changed, or neither: there are events to be shown only
	nodes  []nodeState   // the records of the commit's nodes, or of the start's, not encoded yet
	header *snapshotFile
	refs   []Ref         // of the commit's nodes
	ready  []Ref         // nodes to be queued afterwards
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
	d := &durable{store: r.cfg.store, open: map[Ref]int32{}}
	owner := uuid.NewString()
	var stored *StoredRun
	err := guarded(func() (err error) {
		d.lease, stored, err = d.store.Acquire(r.ctx, r.ID(), owner, leaseTime)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrStore, err)
	}
	r.durable, d.expires = d, time.Now().Add(leaseTime)
	if stored == nil || stored.Sequence == 0 {
		d.stale = true
		return nil, nil
	}
	d.sequence = stored.Sequence
	return r.restoreStored(stored)
}

// restoreStored makes a restoration of what a store has.
func (r *Run) restoreStored(stored *StoredRun) (*restoration, error) {
	if stored.Status.Terminal() {
		return nil, fmt.Errorf("%w: run %s is %v", ErrFinished, quoteID(stored.ID), stored.Status)
	}
	var file snapshotFile
	if err := json.Unmarshal(stored.Record, &file); err != nil {
		return nil, fmt.Errorf("%w: stored run: %w", ErrBadValue, err)
	}
	file.Nodes = nil
	file.Status = RunRunning
	if stored.Status == RunSuspended {
		file.Status = RunSuspended
	}
	place := func(n nodeState) int {
		if ref, ok := r.plan.Ref(n.ID); ok {
			return int(r.plan.decl[ref])
		}
		return -1
	}
	for id, s := range stored.Nodes {
		if s.Record == nil {
			continue
		}
		var n nodeState
		if err := json.Unmarshal(s.Record, &n); err != nil || n.ID != id {
			return nil, fmt.Errorf("%w: stored node %s: %w", ErrBadValue, quoteID(id), err)
		}
		file.LastEvent = max(file.LastEvent, n.Event)
		file.Nodes = append(file.Nodes, n)
	}
	slices.SortFunc(file.Nodes, func(a, b nodeState) int { return place(a) - place(b) })
	signals := r.cfg.signals
	r.cfg.from, r.cfg.redrive = &Snapshot{file: file}, false
	r.cfg.signals = signals
	return r.restoration()
}

// guarded calls the store, and returns its panic as an error.
func guarded(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = newPanicError(p)
		}
	}()
	return bounded(f())
}

// add puts what changed into the outbox, with the lock held.
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
		if c.status == Running && !r.plan.facts[c.ref].is(factComposite) {
			d.started(r, c.ref)
			continue
		}
		if c.status == Ready {
			tx.ready = append(tx.ready, c.ref)
		}
		if c.status.Terminal() {
			for _, a := range r.plan.outOf(c.ref) {
				increments[a.to]++
			}
		}
		if !seen[c.ref] {
			seen[c.ref] = true
			tx.refs = append(tx.refs, c.ref)
		}
		if attempt := d.open[c.ref]; attempt > 0 { // it was running
			delete(d.open, c.ref)
			tx.commit.Completed = AttemptEnd{Node: r.plan.nodes[c.ref].ID, Attempt: attempt}
		}
	}
	if len(tx.refs) == 0 && !d.stale {
		tx.commit = nil // starts and waves alone
		d.push(tx)
		return
	}
	for _, ref := range tx.refs {
		n := r.nodeState(ref, r.st.words[ref])
		n.Event, n.Inside = tx.show, nil
		tx.nodes = append(tx.nodes, n)
	}
	targets := make([]Ref, 0, len(increments))
	for ref := range increments {
		targets = append(targets, ref)
	}
	slices.Sort(targets)
	for _, ref := range targets {
		tx.commit.Readiness = append(tx.commit.Readiness, Readiness{r.plan.nodes[ref].ID, increments[ref], len(r.plan.in.row(ref))})
	}
	for _, ref := range tx.ready {
		tx.commit.Ready = append(tx.commit.Ready, r.plan.nodes[ref].ID)
	}
	d.pushCommit(r, tx)
}

// started completes the record of a start by its event.
func (d *durable) started(r *Run, ref Ref) {
	for i := len(d.outbox) - 1; i >= 0; i-- {
		if tx := d.outbox[i]; tx.start != nil && tx.start.Node == r.plan.nodes[ref].ID {
			tx.nodes[0].Latest = r.recorder.latest[ref].id
			tx.nodes[0].Event = tx.nodes[0].Latest
			return
		}
	}
}

// told puts an event of a node that tells of no change into the node's record.
func (d *durable) told(r *Run, ref Ref) {
	if d.failed != nil {
		return
	}
	if n := len(d.outbox); n > 0 { // an earlier one must not know of what comes after it
		for i := range d.outbox[n-1].nodes {
			if node := &d.outbox[n-1].nodes[i]; node.ID == r.plan.nodes[ref].ID {
				node.Latest = r.recorder.latest[ref].id
				node.Event = node.Latest
				return
			}
		}
	}
	n := r.nodeState(ref, r.st.words[ref])
	n.Event, n.Inside = n.Latest, nil
	d.pushCommit(r, &transaction{commit: &Commit{}, nodes: []nodeState{n}})
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

// changeStatus makes the transaction that is last in line change the status of the run.
func (d *durable) changeStatus(r *Run, status RunStatus) {
	if d.failed != nil {
		return
	}
	if n := len(d.outbox); n > 0 && d.outbox[n-1].commit != nil {
		d.outbox[n-1].commit.Status = status
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
	if d := r.durable; !d.writing && len(d.outbox) > 0 {
		d.writing = true
		r.workers++
		go r.commit()
	}
}

// commit is the committer.
func (r *Run) commit() {
	d := r.durable
	finished := false
	var tx *transaction
	defer func() { // the store has called runtime.Goexit
		if !finished {
			r.st.mu.Lock()
			r.storeFailed(tx, fmt.Errorf("%w: %w", ErrStore, ErrGoexit))
			d.writing = false
			r.workers--
			r.release(r.now())
		}
	}()
	for {
		r.st.mu.Lock()
		if len(d.outbox) == 0 {
			if r.concluded && d.failed == nil {
				r.st.mu.Unlock()
				err := r.releaseLease()
				r.st.mu.Lock()
				if err != nil {
					r.warnings = append(r.warnings, fmt.Errorf("%w: the lease is left to run out: %w", ErrStore, err))
				}
			}
			break
		}
		tx = d.outbox[0]
		d.outbox = d.outbox[1:]
		r.st.mu.Unlock()
		err := r.write(tx)
		r.st.mu.Lock()
		switch {
		case err != nil:
			r.storeFailed(tx, err)
		default:
			r.written(tx)
		}
		if len(d.outbox) > 0 {
			r.followUp(r.now())
			r.st.mu.Unlock()
			continue
		}
		r.st.mu.Unlock()
	}
	finished = true
	d.writing = false
	r.workers--
	r.release(r.now())
}

// written takes note that a transaction is durable.
func (r *Run) written(tx *transaction) {
	if tx.show != 0 {
		r.log.publish(tx.show)
	}
	for _, ref := range tx.ready {
		if statusOf(r.st.words[ref]) == Ready {
			r.st.queue(ref)
		}
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
	file, err := snapshotFile{Nodes: tx.nodes}.encoded(r.cfg.codec)
	if err != nil {
		return err
	}
	for i := range file.Nodes {
		record, err := json.Marshal(file.Nodes[i])
		if err != nil {
			return err
		}
		if tx.start != nil {
			tx.start.Record = record
			return nil
		}
		tx.commit.Nodes = append(tx.commit.Nodes, NodeRecord{Node: file.Nodes[i].ID, Terminal: file.Nodes[i].Status.Terminal(), Record: record})
	}
	if tx.header != nil {
		header, err := tx.header.encoded(r.cfg.codec)
		if err != nil {
			return err
		}
		tx.commit.Run, err = json.Marshal(header)
		return err
	}
	return nil
}

// record puts the start of an attempt into the outbox. The worker waits for it before it calls the step.
func (w *worker) record(t Task) {
	r := w.run
	if w.recorded = nil; r.plan.facts[t.Ref].is(factInline) || r.durable.failed != nil {
		return
	}
	if r.durable.stale { // by deltas, which come before the start
		r.durable.pushCommit(r, &transaction{commit: &Commit{}})
	}
	n := r.nodeState(t.Ref, r.st.words[t.Ref])
	n.Event = r.log.lastID()
	w.recorded = &transaction{
		start: &AttemptStart{Node: n.ID, Attempt: t.Attempt}, nodes: []nodeState{n}, done: make(chan struct{}),
	}
	r.durable.open[t.Ref] = t.Attempt
	r.durable.push(w.recorded)
}

// awaitRecord waits until the start of the attempt is durable.
func (w *worker) awaitRecord() error {
	tx := w.recorded
	w.recorded = nil
	<-tx.done
	w.now = w.run.now()
	return tx.err
}

// storeFailed ends the run where its store has left it: nothing that was not written has happened. tx is the transaction
// that failed, or nil. The lock is held.
func (r *Run) storeFailed(tx *transaction, err error) {
	d, s, now := r.durable, &r.st, r.now()
	if d.failed != nil {
		return
	}
	r.flush(now)
	lost := d.outbox
	if tx != nil {
		lost = append([]*transaction{tx}, lost...)
	}
	d.failed, d.outbox = err, nil
	s.parks = false
	r.retract()
	for _, tx := range lost {
		if tx.start != nil {
			tx.err = err
			close(tx.done)
			if ref, ok := r.plan.Ref(tx.start.Node); ok {
				r.records[ref].attempts-- // it was not begun
			}
		}
		for _, ref := range tx.refs {
			if statusOf(s.words[ref]).Terminal() {
				own := tx.commit.Completed.Node == r.plan.nodes[ref].ID
				s.overrule(ref, own)
				if r.records[ref].value = nil; own {
					r.records[ref].value = err
				}
			}
		}
	}
	if d.renewal != nil {
		d.renewal.Stop()
	}
	if r.concluded {
		r.concluded = false // it had not ended, as it turns out
	}
	s.stopped, s.closed = CauseStoreError, true
	r.stopCauses = map[CauseKind]*stopCause{CauseStoreError: {err, context.Canceled}}
	s.stop(CauseStoreError, noRef, stopAsking)
	for ref := range r.extras {
		if statusOf(s.words[ref]).Terminal() {
			r.disarmNode(ref)
		}
	}
	r.resting, r.leaving = false, false
	r.collectStops()
	r.flush(now)
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
	err := guarded(func() error { return d.store.Renew(context.WithoutCancel(r.ctx), d.lease, leaseTime) })
	r.st.mu.Lock()
	r.timers--
	switch now := time.Now(); {
	case r.concluded || d.failed != nil:
	case err == nil:
		d.expires = now.Add(leaseTime)
		d.renewal.Reset(leaseTime / 3)
	case errors.Is(err, ErrFenced) || now.After(d.expires):
		r.storeFailed(nil, fmt.Errorf("%w: %w", ErrStore, err))
	default:
		d.renewal.Reset(time.Second)
	}
	r.release(r.now())
}

// releaseLease gives the run back when it is over. The lock is not held.
func (r *Run) releaseLease() error {
	d := r.durable
	if d.renewal != nil {
		d.renewal.Stop()
	}
	return guarded(func() error { return d.store.Release(context.WithoutCancel(r.ctx), d.lease) })
}
