package kahn

import "slices"

// rest is called when something is suspended, or the run is being left, and no worker is at work: if nothing is left to do
// the run is suspended, and if nobody holds it, or it is being left, that is its end.
func (r *Run) rest(now int64) {
	s := &r.st
	switch {
	case r.concluded || r.workers > 0 || s.done() || s.hasNext():
		return
	case r.leaving && r.outer == nil: // what backs off does not count, nor what is held inside of composites
		if t := r.tree; t != nil && (t.workers > 0 || len(t.touched) > 0 || t.limit == 1 && len(t.waiting)+len(t.gated) > 0) {
			return // with one slot, what can be done is done when the tree passes the turn on
		}
	case s.busy > 0 || s.asleep == 0: // a nested run that is held back by its being left does not wait for anything
		return
	}
	if r.outer == nil && (s.limits.rates != nil || s.limits.pool != nil) && s.waitsForSlot() { // for a token
		return
	}
	if r.outer != nil {
		if r.unwritten == 0 && !s.waitsForSlot() {
			r.restInside()
		}
		return
	}
	if r.leaving {
		r.restAll(now)
	}
	if !r.resting {
		r.resting = true
		r.tellStatus(RunRunning, RunSuspended, now)
		if r.durable != nil {
			r.durable.changeStatus(r, RunSuspended)
			r.commitPending()
		}
	}
	if !r.leaving && !r.unheld {
		if r.cfg.runner != nil {
			r.cfg.runner.changed(r, rests)
		}
		return
	}
	if d := r.durable; d != nil && (d.writing || len(d.outbox) > 0) {
		return // until the last record of this life is written something may stop the run
	}
	r.concluded, r.ended = true, now
	r.verdict = verdict{status: RunSuspended}
	r.disarm(&r.deadline)
	r.disarm(&r.tokenDue)
	r.leavePool()
	for ref, x := range r.extras {
		r.disarmNode(ref)
		r.disarm(&x.overall)
		r.disarm(&x.gate)
	}
	r.putAside()
	if r.log != nil {
		r.log.close()
	}
	if r.durable != nil {
		r.settleLease()
	}
}

// wake tells that a run that was suspended goes on.
func (r *Run) wake(now int64) {
	if r.resting && r.outer != nil {
		r.resting = false
		r.wakeOuter(now)
		return
	}
	if r.resting {
		r.resting = false
		if r.cfg.runner != nil {
			r.cfg.runner.changed(r, wakes)
		}
		r.tellStatus(RunSuspended, RunRunning, now)
		if r.durable != nil {
			r.durable.changeStatus(r, RunRunning)
		}
	}
}

// children yields the nested runs that have not ended, in the order of their composites.
func (r *Run) children() []*Run {
	var refs []Ref
	for ref, x := range r.extras {
		if x.atWork() != nil {
			refs = append(refs, ref)
		}
	}
	slices.Sort(refs)
	if r.tree.steps += int64(len(r.extras)); len(refs) == 0 {
		return nil
	}
	list := make([]*Run, len(refs))
	for i, ref := range refs {
		list[i] = r.extras[ref].comp.child
	}
	return list
}

// restInside is rest for a nested run: its composite is suspended as long as nothing in it can go on.
func (r *Run) restInside() {
	if !r.resting {
		r.resting = true
		r.outer.st.sleep(r.within.ref)
		r.tree.touch(r.outer)
	}
}

// restAll brings all that is nested in a run to rest that is being left: nothing in it is at work. What was stopped was not held
// before, and is now: an item that comes to rest gives its slot back, and nothing may take that any more.
func (r *Run) restAll(now int64) {
	if !r.nests {
		return
	}
	for _, c := range r.children() {
		c.leaving, c.st.hold = true, holdAll
		c.restAll(now)
		c.restInside()
	}
	r.flush(now)
}

// wakeOuter is called when a nested run goes on that was at rest.
func (r *Run) wakeOuter(now int64) {
	o, ref := r.outer, r.within.ref
	o.wake(now)
	o.reentered = true
	if !o.st.isExpanded(ref) {
		o.extra(ref).reentries++
	}
	o.st.rouse(ref)
	o.flush(now) // before what happens inside
	o.tree.touch(o)
}

// putAside ends the nested runs of a run that ends at rest.
func (r *Run) putAside() {
	if !r.nests {
		return
	}
	for _, c := range r.children() {
		c.putAside()
		c.concluded, c.verdict = true, verdict{status: RunSuspended}
		c.st.changes = nil // what is ready again since the snapshot, in a run that has rested on: the log has ended
		for ref, x := range c.extras {
			c.disarmNode(ref)
			c.disarm(&x.overall)
			c.disarm(&x.gate)
		}
		c.tree.touch(c)
	}
}

// canGoOn reports whether a run that rested when the snapshot was taken has something to do.
func (r *Run) canGoOn() bool {
	s := &r.st
	if s.busy > 0 || s.done() {
		return true
	}
	for _, w := range s.words {
		if statusOf(w) == Ready && (s.hold == holdNothing || w&wordCount != 0) {
			return true
		}
	}
	return false
}
