package kahn

import (
	"errors"
	"fmt"

	"github.com/seed-c794f7ef/kahn/store"
)

// A store may refuse the output of a step when its transaction is committed, and no earlier. By then the run has gone ahead in memory.
// So the committer finds out which output it is, marks the record of that node, and leaves the run as after an outage: nothing of
// the transaction has happened. The next life fails the node before anything else, like one that has crashed too often.

// refuse marks the nodes whose outputs the store refuses, and reports whether there are any. It is called by the committer, without
// the lock, for a transaction that was not applied.
func (r *Run) refuse(tx *transaction) (found bool) {
	next := tx.commit.Sequence
	write := func(n *nodeState, key string, value []byte) error {
		var w nodeWriter
		record := store.NodeRecord{Node: key, Columns: n.columns(&w, key)}
		record.Value = value
		err := w.Err
		if err == nil {
			err = guarded(func() error {
				applied, err := r.durable.store.Commit(r.durable.ctx, r.durable.lease, store.Commit{Sequence: next, Nodes: []store.NodeRecord{record}, WakeAt: tx.commit.WakeAt})
				if err == nil && applied != store.AppliedNow {
					err = fmt.Errorf("%w: it is %v", errRefused, applied)
				}
				return err
			})
		}
		if err == nil {
			next++
		}
		return err
	}
	for i := range tx.nodes {
		n, at := &tx.nodes[i], tx.places[i]
		e := &tx.entries[tx.find(at)]
		if n.Status != Completed || n.Value == nil || n.Inside != nil || e.ended == 0 {
			continue // a step that has returned its output
		}
		before, key := r.beforeEnd(n, at, e.ended), at.run.key(at.ref)
		switch err := write(&before, key, n.Value.raw); {
		case err == nil:
			err = write(&before, key, nil) // the store has the value of a node that goes on
			if err != nil {
				return found
			}
		case !errors.Is(err, ErrRejected):
			return found
		default:
			before.Refused = storeError(err).text()
			if write(&before, key, nil) != nil {
				return found
			}
			found = true
		}
	}
	return found
}

// beforeEnd is the state of a node before the end of its attempt, which has the given number in the store.
func (r *Run) beforeEnd(n *nodeState, at place, attempt int32) nodeState {
	before := *n
	before.Status, before.Value, before.Labels, before.Answer = Running, nil, nil, ""
	before.Settled, before.Started, before.End = 0, attempt, before.Start
	before.Event, before.Latest = r.log.lastShown(at.run.scope, at.ref)
	return before
}

// lastShown returns the ids of the last event that is not hidden, and of the last one of a node among those, deltas and logs not counted.
func (l *eventLog) lastShown(scope *eventScope, ref Ref) (last, of uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	last = l.last - l.hidden
	id := l.base
	for i := range l.blocks {
		b := &l.blocks[i]
		for i := range b.lines {
			id++
			if k := b.lines[i].kind; id <= last && b.lines[i].ref == ref && k.ofNode() && !k.passing() && b.scope(i) == scope {
				of = id
			}
		}
	}
	return last, of
}
