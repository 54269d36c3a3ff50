package kahn

import (
	"encoding/json"

	"github.com/seed-c794f7ef/kahn/internal/ordset"
	"github.com/seed-c794f7ef/kahn/machine"
)

// room is what the end of an attempt takes up in a transaction, or how much there may be.
type room struct {
	rows  int // of nodes
	bytes int // of values
}

// defaultBounds are the bounds of a transaction, which the outbox keeps. While it is full, attempts wait before they end, and no attempt begins. The end of
// an attempt and all its consequences are in one transaction, so one end may exceed them.
var defaultBounds = room{rows: 1024, bytes: 8 << 20}

// starts is how many attempts begin with one transaction. The ends of attempts that return at once are written two transactions later, so a crash repeats
// the attempts of two.
func (bounds room) starts() int { return (bounds.rows + 1) / 2 }

// ending is an attempt that has returned, and waits before it ends.
type ending struct {
	at       place
	bytes    int           // of its values
	reserved room          // in the outbox, once it may end
	granted  chan struct{} // closed when it may end
}

// full reports whether the outbox has no room for any end that changes other nodes than those in it.
func (d *durable) full() bool {
	return len(d.outbox.entries)+d.reserved.rows >= d.mostRows() || d.outbox.bytes+d.reserved.bytes >= d.bounds.bytes
}

// mostRows is how many rows the outbox may have. Ends that change the same nodes share a transaction, also if these nodes are more than the bound.
func (d *durable) mostRows() int { return max(d.bounds.rows, 2*d.outbox.widest) }

// reserve reserves room in the outbox for the end of an attempt, without consequences beyond the next nodes, if there is room.
func (d *durable) reserve(at place, bytes int) (n room, ok bool) {
	rows, held := len(d.outbox.entries)+d.reserved.rows, d.outbox.bytes+d.reserved.bytes
	if d.full() && rows > 0 || held > 0 && held+bytes > d.bounds.bytes {
		return n, false
	}
	next := at.run.plan.net.Out(at.ref)
	n = room{1 + len(next), bytes}
	if rows+n.rows > d.bounds.rows {
		n.rows = 1
		for _, a := range next {
			if d.outbox.find(place{at.run, a.To()}) < 0 {
				n.rows++
			}
		}
		if rows > 0 && rows+n.rows > d.mostRows() {
			return n, false
		}
	}
	d.outbox.widest = max(d.outbox.widest, n.rows)
	d.reserved.rows += n.rows
	d.reserved.bytes += n.bytes
	return n, true
}

// awaitRoom makes the worker wait until its attempt, which has returned with values of so many bytes, may end. It is called with the lock held, and reports
// whether it has waited, without the lock. The end must then be applied in the critical section that begins with endWait.
//
//go:noinline
func (w *worker) awaitRoom(bytes int) (waited bool) {
	r, at := w.run, place{w.run, w.task.Ref}
	d := r.durable
	if d.failed != nil {
		return false
	}
	if len(d.line) == 0 {
		if n, ok := d.reserve(at, bytes); ok {
			d.free(n)
			return false
		}
	}
	e := &ending{at: at, bytes: bytes, granted: make(chan struct{})}
	w.ending, d.line = e, append(d.line, e)
	r.hasReturned(at.ref)
	r.release(w.now)
	<-e.granted
	w.now = r.now()
	return true
}

// hasReturned notes that the step of the running attempt has returned, so that nothing ends the attempt but the worker.
func (r *Run) hasReturned(ref Ref) {
	r.records[ref].returned = true
	if x := r.extras[ref]; x != nil {
		r.disarm(&x.attempt)
	}
}

// free ends a reservation: what it was for is in the outbox, or will not be.
func (d *durable) free(n room) {
	if d.failed == nil {
		d.reserved.rows -= n.rows
		d.reserved.bytes -= n.bytes
	}
}

// endWait is called with the lock held when the worker has waited. OverallTimeout, if it has passed meanwhile, ends a node whose attempt has failed.
func (w *worker) endWait(failed bool) {
	r, ref, d := w.run, w.task.Ref, w.run.durable
	if w.ending != nil {
		d.free(w.ending.reserved)
	}
	w.ending, r.records[ref].returned = nil, false
	x := r.extras[ref]
	if x == nil || !x.overdue {
		return
	}
	if x.overdue = false; failed {
		r.timeOut(r.current(ref), x, timeoutOverall, r.plan.node(ref).OverallTimeout, w.now)
	}
}

// admit lets attempts end that wait for room, in their order.
func (d *durable) admit() {
	for len(d.line) > 0 {
		e := d.line[0]
		var ok bool
		if e.reserved, ok = d.reserve(e.at, e.bytes); !ok {
			break
		}
		d.line[0], d.line = nil, d.line[1:]
		close(e.granted)
	}
}

// admitAll lets all attempts go on that wait, since nothing is written any more.
func (d *durable) admitAll() {
	for _, e := range d.line {
		close(e.granted)
	}
	d.line, d.reserved = nil, room{}
}

// holdsBack reports whether the run begins nothing until the committer has taken the outbox. The run then goes on by itself.
func (r *Run) holdsBack() bool {
	d := r.durable
	if d == nil || d.failed != nil || r.single != nil || d.outbox.begins < d.bounds.starts() && len(d.line) == 0 && !d.full() {
		return false
	}
	if !r.heldBack {
		r.heldBack = true
		d.heldBack = append(d.heldBack, r)
	}
	return true
}

// letGo lets go on what has waited for room in the outbox, which the committer has taken, and reports whether runs of the tree may begin more. The lock
// is held.
func (r *Run) letGo() (more bool) {
	d := r.durable
	d.admit()
	more = len(d.heldBack) > 0
	for i, c := range d.heldBack {
		if c.heldBack = false; c.tree != nil {
			c.tree.touch(c)
		}
		d.heldBack[i] = nil
	}
	d.heldBack = d.heldBack[:0]
	return more
}

// inTurn leaves out of the changes of a run that roots became ready, if these are many: the readiness of a root follows from the start of its run,
// and is written, and told by an event, when the root begins. So the first transaction of a run does not grow with the number of its roots.
func (r *Run) inTurn(changes []machine.Change) []machine.Change {
	d := r.durable
	later, most := d.roots[r], d.bounds.starts()
	if later == nil && len(changes) <= most && r.outermost().cfg.from == nil {
		return changes
	}
	list, roots := make([]machine.Change, 0, min(len(changes)+1, 2*most)), 0
	for _, c := range changes {
		switch {
		case c.Wave != 0:
		case r.isFreshRoot(c):
			if roots++; roots > most || c.Quiet {
				if later == nil {
					later = ordset.New(len(r.records))
				}
				later.Insert(int(c.Ref))
				continue
			}
		case later.Remove(int(c.Ref)) && !c.Status.Terminal():
			list = append(list, machine.Change{Ref: c.Ref, Status: Ready})
		}
		list = append(list, c)
	}
	switch {
	case later.Len() == 0:
		delete(d.roots, r)
	case d.roots == nil:
		d.roots = map[*Run]*ordset.Set{}
		fallthrough
	default:
		d.roots[r] = later
	}
	return list
}

// tellRoot tells that a root is ready which is about to begin, if inTurn has left that out.
func (r *Run) tellRoot(ref Ref, now int64) {
	if r.durable.roots[r].Remove(int(ref)) {
		r.tell([]machine.Change{{Ref: ref, Status: Ready}}, now)
	}
}

// isUntold reports whether a node is a root that is ready and of which neither the outbox nor an event knows.
func (r *Run) isUntold(ref Ref) bool { return r.durable != nil && r.durable.roots[r].Has(int(ref)) }

// isFreshRoot reports whether a change makes a node ready that has no predecessors and of which nothing is stored.
func (r *Run) isFreshRoot(c machine.Change) bool {
	return c.Status == Ready && !c.Blocked && c.Attempt == 0 && (!c.Quiet || r.recorder.latest[c.Ref].id == 0) && r.records[c.Ref].attempts == 0 && len(r.plan.net.In(c.Ref)) == 0 &&
		!r.st.ParksNode(c.Ref) && r.extras[c.Ref] == nil
}

// sizeOf is how many bytes the values have that the end of an attempt writes.
func (r *Run) sizeOf(c *conclusion, kept *[2]json.RawMessage) int {
	switch {
	case c.Status == Completed:
		return len(kept[0]) + min(len(kept[0]), r.cfg.eventOutputs)
	case c.suspend != nil || c.expand != nil:
		return len(kept[0]) + len(kept[1])
	}
	return 0
}
