package kahn

import "slices"

// rest is called when a node is suspended, or the run is being left, and no worker is at work. If nothing is left to do, the
// run is suspended; if Execute began it, or it is being left, it ends so.
func (r *Run) rest(now int64) {
	s := &r.st
	switch {
	case r.concluded() || r.workers > 0 || s.Done() || s.HasNext():
		return
	case r.leaving && r.outer == nil: // nodes that back off do not count, nor held nodes inside of composites
		if t := r.tree; t != nil && (t.workers > 0 || len(t.touched) > 0 || t.limit == 1 && len(t.waiting)+len(t.gated) > 0) {
			return // with one slot, the tree starts the remaining nodes when it passes the turn on
		}
	case !s.OnlySleeps(): // a nested run that is held because it is being left is not waiting for a signal
		return
	}
	if r.outer == nil && (s.Rated() || s.Pooled()) && s.WaitsForSlot() { // for a token
		return
	}
	if r.outer != nil {
		if r.unwritten == 0 && !s.WaitsForSlot() {
			r.restInside()
		}
		return
	}
	if r.leaving {
		r.restAll(now)
	}
	if r.stage != stageResting {
		r.stage = stageResting
		r.tellStatus(RunRunning, RunSuspended, now)
		if r.durable != nil {
			r.durable.changeStatus()
			r.commitPending()
		}
		if !r.leaving && !r.unheld && r.cfg.runner != nil {
			r.cfg.runner.changed(r, rests)
		}
	}
	if !r.leaving && !r.unheld {
		return
	}
	if d := r.durable; d != nil && (d.writing || d.hasWork() || d.inbox.isBusy()) {
		return // a stop may still arrive until the last record of this life is written
	}
	r.endAtRest(now)
}

// endAtRest ends a run that is not over.
func (r *Run) endAtRest(now int64) {
	r.stage, r.ended = stageConcluded, now
	r.verdict = verdict{status: RunSuspended}
	r.disarm(&r.deadline)
	r.disarm(&r.tokenDue)
	r.leavePool()
	r.disarmAll(true)
	r.putAside()
	if r.log != nil {
		r.log.close()
	}
	if r.durable != nil {
		r.settleLease()
	}
}

// wake marks that a run that was suspended goes on.
func (r *Run) wake(now int64) {
	if r.stage == stageResting && r.outer != nil {
		r.stage = stageRunning
		r.wakeOuter(now)
		return
	}
	if r.stage == stageResting {
		r.stage = stageRunning
		if r.cfg.runner != nil {
			r.cfg.runner.changed(r, wakes)
		}
		r.tellStatus(RunSuspended, RunRunning, now)
		if r.durable != nil {
			r.durable.changeStatus()
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
	if r.stage != stageResting {
		r.stage = stageResting
		r.outer.st.Sleep(r.within.ref)
		r.tree.touch(r.outer)
	}
}

// restAll brings all runs to rest that are nested in a run which is being left, and in which no worker is at work. Runs that
// were stopped were not held before, and are held now: an item that comes to rest gives its slot back, and no node may take
// it any more.
func (r *Run) restAll(now int64) {
	if !r.nests {
		return
	}
	for _, c := range r.children() {
		c.leaving = true
		c.st.Leave()
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
	if !o.st.IsExpanded(ref) {
		o.extra(ref).reentries++
	}
	o.st.Rouse(ref)
	o.flush(now) // before the events inside
	o.tree.touch(o)
}

// putAside ends the nested runs of a run that ends at rest.
func (r *Run) putAside() {
	if !r.nests {
		return
	}
	for _, c := range r.children() {
		c.ended = r.ended
		c.putAside()
		c.stage, c.verdict = stageConcluded, verdict{status: RunSuspended}
		c.st.DropChanges() // nodes that became ready again since the snapshot; the log has ended
		c.disarmAll(true)
		c.tree.touch(c)
	}
}
