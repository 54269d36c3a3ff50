package kahn

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/seed-c794f7ef/kahn/internal/saturate"
	"github.com/seed-c794f7ef/kahn/machine"
)

// waiting counts the nodes that wait.
func (h *held) waiting() (n int) {
	h.each(func(h *held) {
		for i := range h.nodes {
			if h.nodes[i].Status == Suspended {
				n++
			}
			if kept := h.kept[i]; kept != nil && kept.Status == Running {
				n += len(kept.Inside.waiting(nil, "", false))
			}
		}
	})
	return n
}

// endBackoffs makes nodes ready that backed off until a time that has passed, or that an older version has not kept.
func (h *held) endBackoffs(now time.Time) {
	h.each(func(h *held) {
		for i := range h.nodes {
			if n := &h.nodes[i]; n.Status == Retrying && !n.Due.After(now) {
				n.Status = Ready
			}
		}
	})
}

// continueWaits ends overdue waits and nodes, arms the other deadlines, and then delivers the signals, in the order of
// declaration. Overall timeouts have gone on counting between the lives of the run.
func (h *held) continueWaits(now int64) {
	h.endDoomed(now)
	h.settleOverdue(now)
	h.each(func(h *held) { h.run.armWaits(now) })
	h.each(func(h *held) { h.run.deliver(h.answers, h.refused, now) })
	var inner []*held
	h.each(func(h *held) { inner = append(inner, h) })
	for _, in := range slices.Backward(inner) {
		if in.run.stage == stageResting && (in.run.st.MayGoOn() || in.run.st.HasEnded()) {
			in.run.wake(now)
		}
	}
	for _, in := range inner {
		if in.run.outer == nil || in.run.stage != stageResting {
			continue
		}
		in.run.st.HushReady() // they are held, and have been queued before
	}
}

// overdue is a deadline that has passed while the run was away.
type overdue struct {
	run  *Run
	ref  Ref   // noRef for the whole run
	due  int64 // on the run's clock
	gate bool  // the wait of a gate; else the time for all attempts of a node
}

// settleOverdue ends overdue waits and nodes, in the order of their deadlines and then of declaration, outer runs first,
// before it delivers a signal and before any step is called. Only gates whose signals came in time are left to these.
func (h *held) settleOverdue(now int64) {
	var list []overdue
	h.each(func(h *held) {
		for _, ref := range h.run.plan.declared {
			due, gate, ok := h.run.dueAt(ref)
			if _, answered := h.answers[ref]; answered && gate && h.accepted[ref] {
				continue
			}
			if ok && due <= now {
				list = append(list, overdue{h.run, ref, due, gate})
			}
		}
	})
	if r := h.run; r.outer == nil && r.stage >= stageRunning && r.bound != 0 && r.bound <= now {
		list = append(list, overdue{r, noRef, r.bound, false})
	}
	slices.SortStableFunc(list, func(a, b overdue) int { return cmp.Compare(a.due, b.due) })
	for _, o := range list {
		if o.ref == noRef {
			o.run.timeUp()
			h.each(func(h *held) { h.run.collectStops() }) // nested runs, too, are stopped before a signal reaches them
			continue
		}
		if _, _, ok := o.run.dueAt(o.ref); !ok {
			continue // an earlier one has ended it
		}
		if o.gate {
			o.run.gateTimedOut(o.ref, now)
			continue
		}
		x := o.run.extra(o.ref)
		o.run.disarm(&x.overall)
		o.run.overallTimeOut(o.ref, x, o.run.plan.node(o.ref).OverallTimeout, now)
	}
}

// dueAt tells when the wait of a gate, or all the attempts of a node that has begun, are to end.
func (r *Run) dueAt(ref Ref) (due int64, gate, ok bool) {
	status, x := r.st.Word(ref).Status(), r.extras[ref]
	if status.Terminal() {
		return 0, false, false
	}
	if r.plan.net.Is(ref, machine.FlagGate) {
		if status != Suspended || x.wait.Deadline.IsZero() {
			return 0, true, false
		}
		return int64(x.wait.Deadline.Sub(r.start)), true, true
	}
	timeout := r.plan.node(ref).OverallTimeout
	if timeout == 0 || r.records[ref].attempts == 0 || x != nil && x.timedOut == timeoutOverall || r.st.Word(ref).Is(machine.WordStopping) {
		return 0, false, false
	}
	return saturate.Add(r.records[ref].start, int64(timeout)), false, true
}

// armWaits arms the deadlines of a run that goes on.
func (r *Run) armWaits(now int64) {
	for _, ref := range r.plan.declared {
		due, gate, ok := r.dueAt(ref)
		switch {
		case !ok:
		case gate:
			r.armGate(ref, r.extras[ref], time.Duration(due-now))
		default:
			r.continueOverall(ref, now)
		}
		if x := r.extras[ref]; x != nil && x.comp != nil && x.comp.pause != nil && r.st.Word(ref).Status() == Running {
			r.continuePause(ref, x, now)
		}
		if r.st.Status(ref) == Retrying {
			r.awaitBackoff(ref, r.extras[ref], now)
		}
	}
}

// deliver delivers signals, and warns of those that were refused.
func (r *Run) deliver(answers map[Ref]answer, refused []error, now int64) {
	root := r.outermost()
	for _, err := range refused {
		root.warn(fmt.Errorf("signal: %w", err))
	}
	for _, ref := range r.plan.declared {
		if a, ok := answers[ref]; ok {
			if err := r.signal(ref, a, now); err != nil {
				root.warn(fmt.Errorf("signal for node %s: %w", quoteID(r.path(ref)), err))
			}
		}
	}
}

// continueOverall arms the overall timeout of a node, unless that was done: it has gone on counting.
func (r *Run) continueOverall(ref Ref, now int64) {
	n := r.plan.node(ref)
	if n.OverallTimeout == 0 || r.records[ref].attempts == 0 || r.st.Word(ref).Status().Terminal() {
		return
	}
	if x := r.extra(ref); x.overall == nil {
		left := saturate.Add(saturate.Add(r.records[ref].start, int64(n.OverallTimeout)), -now)
		x.overall = r.afterAsStored(time.Duration(left), func(now int64) { r.overallTimeOut(ref, x, n.OverallTimeout, now) })
	}
}
