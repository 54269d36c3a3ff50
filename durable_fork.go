package kahn

import "fmt"

// acquireFork is acquire for a fork, which the store may have already.
func (r *Run) acquireFork() (*restoration, error) {
	forked := r.cfg.from.file.Run
	x, err := r.restoration(nil)
	if err != nil {
		return nil, err
	}
	if err := r.keepGiven(); err != nil { // those of the run that it was forked from
		return nil, err
	}
	stored, err := r.takeLease()
	if err != nil {
		return nil, err
	}
	var file snapshotFile
	if stored.Sequence > 0 {
		if file, err = fileOf(stored); err != nil {
			return nil, err
		}
	}
	switch {
	case stored.Sequence == 0 && stored.Workflow == "" && stored.Plan == "": // nobody has created it
	case file.Forked != forked:
		return nil, fmt.Errorf("%w: %s, which is no fork of %s", ErrDuplicateRun, quoteID(stored.ID), quoteID(forked))
	default:
		r.cfg.fork = false
		if x, err = r.restoreStored(stored); err != nil {
			return nil, err
		}
	}
	r.specify(&stored.Spec, false)
	return x, nil
}

// keep puts the nodes that a fork keeps, and those inside of them, into the outbox.
func (d *durable) keep(h *held) {
	for _, ref := range h.refs {
		e := d.pending(place{h.run, ref})
		e.record, e.terminal = true, true
		for _, a := range h.run.plan.net.Out(ref) {
			d.pending(place{h.run, a.To()}).resolved++
		}
	}
	for _, in := range h.inside {
		if in.begun() {
			d.keep(in)
		}
	}
}
