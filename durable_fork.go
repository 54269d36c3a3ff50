package kahn

import "fmt"

// acquireFork is acquire for a fork, which the store may have already.
func (r *Run) acquireFork() (*restoration, error) {
	forked := r.cfg.from.file.Run
	x, err := r.restoration(nil)
	if err != nil {
		return nil, err
	}
	stored, err := r.takeLease()
	if err != nil {
		return nil, err
	}
	switch file, err := fileOf(stored); {
	case stored.Sequence == 0 && stored.Workflow == "" && stored.Plan == "":
	case err != nil && stored.Sequence > 0:
		return nil, err
	case file.Forked != forked || stored.Sequence == 0:
		return nil, fmt.Errorf("%w: the store has run %s, which is no fork of %s", ErrDuplicateRun, quoteID(stored.ID), quoteID(forked))
	default:
		r.cfg.fork = false
		x, err = r.restoreStored(stored)
		if err != nil {
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
