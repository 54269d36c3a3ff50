package kahn

import (
	"fmt"
	"slices"
	"time"

	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/machine"
)

// undoFailure is a failed compensation. The node's run and the runs around it have the failure in their lists undoing.failed.
type undoFailure struct {
	path string // of the node
	err  error
	at   time.Time  // when the undo was given up
	gone bool       // whether the failure no longer counts: a redrive has reset the node. The failure keeps its place in the lists.
	in   []*undoing // the runs that have the failure in their lists
}

// set changes whether the failure counts.
func (f *undoFailure) set(gone bool) {
	if f.gone == gone {
		return
	}
	f.gone = gone
	for _, x := range f.in {
		if gone {
			x.fails--
		} else {
			x.fails++
		}
	}
}

// The method `errors` returns the errors of the failed compensations that count.
func (x *undoing) errors() []error {
	list := make([]error, 0, x.fails)
	for _, f := range x.failed {
		if !f.gone {
			list = append(list, f.err)
		}
	}
	return list
}

// reportUndone adds a failed compensation to undoing.failed, in the run and in the runs around it. Each node is added only once.
func (r *Run) reportUndone(path string, err error, at time.Time) *undoFailure {
	root := r.outermost().undoes()
	f := root.reported[path]
	if f == nil {
		if f = (&undoFailure{path: path, gone: true}); root.reported == nil {
			root.reported = map[string]*undoFailure{}
		}
		root.reported[path] = f
	}
	if f.gone {
		f.err, f.at = fmt.Errorf("node %s: %w: %w", quoteID(path), ErrCompensation, err), at
		f.set(false)
	}
	for o := r; o != nil; o = o.outer {
		// Even if the failure was reported before, it may be missing in some of these runs: a nested run may have been made after the report.
		if x := o.undoes(); !slices.Contains(f.in, x) {
			f.in, x.failed = append(f.in, x), append(x.failed, f)
			x.fails++
		}
	}
	return f
}

// sortFailures restores the order in which compensations failed, in the restored run and in the runs nested in it. Failures at one time keep the order
// of declaration.
func (h *held) sortFailures() {
	h.walk(func(of *held) {
		if u := of.run.undo; u != nil {
			slices.SortStableFunc(u.failed, func(a, b *undoFailure) int { return a.at.Compare(b.at) })
		}
	})
}

// A repair is a redrive that only repeats failed compensations or marks them as done, see [RepeatCompensations]. The compensation of a composite
// stands for the compensations inside it. But nodes inside are undone nevertheless if the attempt of the composite has failed, and the compensation of
// such a node may fail. To repeat it, a repair goes into a composite whose own compensation has ended. Inside, it undoes no other node.

// repeatsInside reports whether compensations inside a composite that has a compensation of its own have begun and not ended: a repair has begun them
// again, or the process died while it performed them. They end before the composite's own compensation begins, unless the latter has ended already.
func (r *Run) repeatsInside(ref machine.Ref) bool {
	if root := r.outermost().undo; root == nil || root.busy == 0 || r.ownUndo(ref) == nil {
		return false
	}
	return r.undoingInside(ref)
}

// undoingInside reports whether the compensation of a node inside a composite, at any depth, is [CompensationRunning].
func (r *Run) undoingInside(ref machine.Ref) bool {
	x := r.extras[ref]
	switch {
	case x == nil:
		return false
	case x.comp == nil:
		return x.undoingKept()
	}
	for _, c := range x.comp.past {
		if c.undoingSome() {
			return true
		}
	}
	return x.comp.child != nil && x.comp.child.undoingSome()
}

// undoneInside returns the combined state of the compensations inside a composite, in the composite's last attempt.
func (r *Run) undoneInside(ref machine.Ref) (c Compensation) {
	x := r.extras[ref]
	switch {
	case x != nil && x.comp == nil && x.kept != nil:
		return x.kept.Inside.undone()
	case x != nil && x.former != nil: // then there is no x.comp: see beginAttempt
		return x.former.Inside.undone()
	case x == nil || x.comp == nil:
		return CompensationNone
	}
	for _, in := range append(slices.Clone(x.comp.past), x.comp.child) {
		switch {
		case in == nil:
			continue
		case in.undo != nil && in.undo.by != nil:
			return CompensationRunning
		case in.undo != nil && in.undo.fails > 0:
			c = CompensationFailed
		case in.undo != nil && len(in.undo.nodes) > 0:
			c = max(c, CompensationDone)
		}
		for ref := range in.extras { // for a composite from a snapshot, the snapshot contains the state of the compensations inside
			deep := in.undoneInside(ref)
			if deep == CompensationRunning {
				return deep
			}
			if in.ownUndo(ref) != nil {
				deep = min(deep, CompensationDone) // the node's own compensation stands for one inside that has failed
			}
			c = max(c, deep)
		}
	}
	return c
}

func (r *Run) undoingSome() bool {
	if !r.st.AllowsUndo() {
		return false
	}
	r.st.CountVisits(len(r.records))
	for ref := range r.records {
		if r.repeatsNode(machine.Ref(ref)) {
			return true
		}
	}
	return false
}

// repeatsNode reports whether a node has ended, and its compensation, or the compensation of a node inside it, is [CompensationRunning].
func (r *Run) repeatsNode(ref machine.Ref) bool {
	if !r.st.Word(ref).Status().Terminal() {
		return false
	}
	if r.undo != nil && r.undo.nodes[ref] != nil && r.undo.nodes[ref].status == CompensationRunning {
		return true
	}
	x := r.extras[ref]
	return x != nil && x.undoingKept() || r.undoingInside(ref)
}

// undoingKept reports whether an earlier life began to undo a node inside a composite whose graph is not known, and did not finish. It returns false
// if the composite's step was called again and did not return its graph: then the nodes inside cannot be undone in this life.
func (x *extra) undoingKept() bool {
	return x.comp == nil && x.kept != nil && !x.kept.lost && x.kept.Inside.undoing()
}

// The method `own` returns the compensation that the undo performs. It returns nil if the undo only undoes nodes inside a composite.
func (u *undo) own() *compensation {
	if u.again {
		return nil
	}
	return u.run.ownUndo(u.ref)
}

// The method `repeated` is called when a repair has performed the compensations inside a composite that has a compensation of its own. If the
// composite's own compensation must be performed too, it is performed now. Inside a composite that is repaired, only a compensation that has begun
// must be performed.
func (u *undo) repeated(now int64) {
	r := u.run
	if r.undoesNode(u.ref) && (!r.undo.again || r.undo.nodes[u.ref] != nil) {
		r.st.ContinueUndo(u.ref)
		if r.tree != nil {
			r.tree.touch(r)
		}
		return
	}
	u.over(now)
}

// noteRepairs records the compensations that a redrive begins again or marks as done. The parameter `all` is the restored state of the run.
func (r *Run) noteRepairs(all *held) {
	x := r.undo
	if x == nil {
		return
	}
	for _, u := range x.fresh {
		if u.note(); u.status == CompensationDone {
			u.ended = r.now()
			u.run.countUndone(u.run.path(u.ref))
			u.run.event(entry{kind: evNodeCompensated, ref: u.ref, attempt: u.attempts, at: u.ended, arg: event.Compensation{Request: requestOf(u.by)}})
		}
	}
	x.fresh = nil
	all.noteKept()
}
