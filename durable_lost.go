package kahn

import (
	"context"
	"slices"

	"github.com/seed-c794f7ef/kahn/machine"
)

// lost holds the unwritten changes of a run that is left because of its store, see Run.lose.
//
// The run does not fail: the next process that acquires its lease continues it. So once the field durable.lost is set, this process calls no step
// of the run and publishes no event of it. This process interrupts the running attempts and drops their results. When all goroutines have returned,
// it sets the nodes back to their stored states. Until then the State still changes in memory, but readers of events do not see these changes.
type lost struct {
	places   []place         // the nodes, in the order in which the method `note` added them
	attempts map[place]int32 // by place: the number of the node's attempts in the store, or -1 if no start was lost
	ended    []*Run          // the nested runs whose ends were not written
}

// The method `note` adds a node whose state differs from its stored state. The parameter `attempts` is the number of the node's attempts in the
// store if the start of an attempt was lost, and otherwise -1. Of several numbers for one node, note keeps the first one other than -1.
func (l *lost) note(at place, attempts int32) {
	old, known := l.attempts[at]
	switch {
	case !known:
		l.places = append(l.places, at)
		l.attempts[at] = attempts
	case old < 0:
		l.attempts[at] = attempts
	}
}

// leftError returns the error of a run that this life has left. If the run was left because of its store, this is the error of the store. Otherwise
// it is the error of the posted requests that could not be read, or nil if there are none.
func (d *durable) leftError() error {
	if d.lost != nil {
		return d.failed
	}
	return d.inbox.unreadable()
}

// isLost reports whether the run is being left because of its store.
func (r *Run) isLost() bool { return r.durable != nil && r.durable.lost != nil }

// lose leaves an outermost run because of its store: a write has failed but may succeed later, the store is unusable or has refused an output, or
// the lease has run out. The caller holds the run's lock.
func (r *Run) lose(err error) {
	d, now := r.durable, r.now()
	if d.failed != nil {
		return
	}
	runs := append([]*Run{r}, r.descendants()...)
	for _, c := range runs {
		c.flush(now)
	}
	d.lost = &lost{attempts: map[place]int32{}}
	for _, tx := range d.unwritten() {
		for i := range tx.entries {
			e := &tx.entries[i]
			before := int32(-1)
			if e.is(nodeBegan) {
				before = e.before
			}
			d.lost.note(e.place, before)
		}
		d.lost.ended = append(d.lost.ended, tx.ended...)
		tx.err = err
		close(tx.done)
	}
	for _, c := range runs {
		for roots := d.roots[c]; roots.Len() > 0; {
			ref, _ := roots.PopMin()
			d.lost.note(place{c, machine.Ref(ref)}, -1)
		}
	}
	d.fail(err)
	r.disarm(&r.deadline)
	r.disarm(&r.tokenDue)
	r.log.retract()
	r.log.close()
	if r.stage > stageResting {
		r.stage = stageRunning // the end was not written, so the run has not ended
	}
	interruptUndos(runs, &stopCause{err, context.Canceled})
	for _, c := range runs {
		c.leaving = true
		c.st.Leave()
		c.leaveChecks()
		c.leaveReturns()
		c.interruptLost(&stopCause{err, context.Canceled})
		for _, x := range c.extras { // no deadline ends a node of a lost run
			c.disarm(&x.backoff)
			c.disarm(&x.overall)
			c.disarm(&x.gate)
		}
		c.restUndos()
		if c.tree != nil {
			c.tree.touch(c)
		}
	}
}

// unwritten returns the transactions that the store has not confirmed, the older transaction first.
func (d *durable) unwritten() []*transaction {
	if d.current != nil {
		return []*transaction{d.current, d.outbox}
	}
	return []*transaction{d.outbox}
}

// The method `fail` ends the calls to the store. Only the lease is released later.
func (d *durable) fail(err error) {
	d.failed, d.outbox = err, newTransaction()
	d.admitAll()
	d.events.arrive()
	if d.renewal != nil {
		d.renewal.Stop()
	}
	d.cancel()
}

// interruptLost ends the contexts of the running attempts of a run that is left because of its store.
func (r *Run) interruptLost(cause *stopCause) {
	for ref := range r.st.Words() {
		step, x := r.current(ref), r.extras[ref]
		if step == nil || x != nil && x.comp != nil && step.flags&stepFallback == 0 {
			continue // no user code runs for the node, or a worker is concluding the composite
		}
		x = r.extra(ref)
		r.disarmAttempt(ref)
		r.armGrace(step, x)
		r.orderStop(step, cause)
	}
}

// The method `drop` ends an attempt whose result cannot be written.
func (r *Run) drop(step *Step, now int64) {
	ref := step.ref
	rec := &r.records[ref]
	rec.active, rec.end = activeNone, now
	r.disarmAttempt(ref)
	if x := r.extras[ref]; x != nil {
		r.disarm(&x.grace)
		if x.comp != nil {
			x.comp.working = false
		}
	}
	if err := r.st.Requeue(r.st.Token(ref), Running); err != nil { // the attempt releases its slots
		r.st.NoteBug(err)
	}
	r.durable.lost.note(place{r, ref}, -1)
}

// endLost ends a run that is left because of its store. While workers of the run are running, endLost does nothing.
func (r *Run) endLost(now int64) {
	workers := r.workers
	if r.tree != nil {
		workers = r.tree.workers
	}
	if r.concluded() || workers > 0 {
		return
	}
	d := r.durable
	r.endAtRest(now)
	for _, at := range d.lost.places {
		at.setBack(d.stored[at], d.lost.attempts[at])
	}
	if r.undo != nil {
		r.setUndosBack()
	}
	for _, c := range d.lost.ended {
		if c.verdict, c.summed = (verdict{status: RunSuspended}), false; c.result != nil {
			*c.result = Result{}
		}
	}
	r.verdict.cause = CauseStoreError
	r.rare().stopCauses = map[CauseKind]*stopCause{CauseStoreError: {d.failed, context.Canceled}}
}

// setBack puts a node into its stored state.
func (at place) setBack(to storedStatus, attempts int32) {
	r, ref := at.run, at.ref
	rec, x := &r.records[ref], r.extras[ref]
	if now := r.st.Word(ref).Status(); now.Terminal() || to.status != now {
		rec.value, rec.noRetry, rec.fallback = nil, 0, false
	}
	if attempts >= 0 {
		rec.attempts = attempts
	}
	if rec.active = activeNone; to.status == Running && !to.inside {
		to.status = Ready // the attempt of the node begins again
	}
	if x != nil {
		r.disarmNode(ref)
		x.own()
		if x.errs = slices.DeleteFunc(x.errs, func(e attemptError) bool { return e.number > to.retried }); len(x.errs) == 0 {
			x.lastErr = nil
		}
		if x.comp != nil && x.comp.child != to.child {
			if x.comp.child = to.child; to.child == nil {
				x.comp = nil // in the store, the composite has not begun
			}
		}
		if x.wait == nil && to.status == Suspended && !to.dormant {
			x.wait = x.answered
		}
		x.Abandoned, x.Message, x.Answer, x.Memoized, x.stop = false, "", "", false, nil
	}
	r.st.SetBack(ref, to.status, to.dormant, rec.attempts)
}
