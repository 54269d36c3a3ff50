package kahn

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
)

// writeTries is how often a write is tried, and retryPause how long after a failure.
const (
	writeTries = 3
	retryPause = 100 * time.Millisecond
)

// guarded calls the store, and returns its panic as an error.
func guarded(f func() error) error { return bounded(contain(f)) }

// add puts the changes of a run into the outbox, with the lock held.
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
				tx.places, tx.admitted = append(tx.places, at), append(tx.admitted, at)
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
		d.show(r.log) // starts and waves alone: a start's event is shown once its record is written
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

// told records in the node's record an event of the node that reports no change of the State.
func (d *durable) told(r *Run, ref Ref) {
	if d.failed != nil {
		return
	}
	if n := len(d.outbox); n > 0 { // an earlier transaction must not contain later changes
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

// show makes the events visible that report no change, after those that do.
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

// changeStatus adds a change of the run's status to the last transaction of the outbox. The event of a change that does not
// end the run belongs to no node: the record of the run counts it, so that the next life does not assign its id again.
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

// commitPending starts the committer if there is something to write and no committer runs.
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

// commit is the committer.
func (r *Run) commit() {
	d := r.durable
	finished := false
	defer func() { // if the store has called runtime.Goexit
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
			if r.concluded() {
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

// write encodes a transaction and passes it to the store, and tries again if the store does not know whether it was written.
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
