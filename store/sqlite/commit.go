package sqlite

import (
	"context"
	"database/sql/driver"
	"fmt"
	"strings"

	"github.com/seed-c794f7ef/kahn/machine"
	"github.com/seed-c794f7ef/kahn/store"
)

// rowStatements write rows of runs and nodes.
type rowStatements struct {
	run      *statement // the row of a run; written only if the lease is valid
	spec     *statement // the columns of a run's Spec
	first    *statement // the whole row of the first node that a commit writes; written only if the lease is valid
	whole    *statement // the whole row of a node
	counters *statement // the row of a node without its record
	event    *statement
}

func (s *rowStatements) prepare(w *writer, now string, err *error) {
	held := "run = ? AND " + fmt.Sprintf(holds, now)
	row := "?" + strings.Repeat(", ?", 16)
	s.run = w.prepare(err, "UPDATE kahn_runs SET status = ?, sequence = ?, nodes = ?, ended = CASE ? WHEN 2 THEN "+now+" WHEN 1 THEN ended END, wake = nullif(?, 0), record = coalesce(?, record), compensation = ?, usage = coalesce(?, usage), checksum = ? WHERE "+held)
	s.spec = w.prepare(err, "UPDATE kahn_runs SET workflow = ?, plan = ?, inputs = ?, labels = ?, parent = ?, run_key = ?, priority = ? WHERE run = ?")
	s.whole = w.prepare(err, "REPLACE INTO kahn_nodes VALUES ("+row+")")
	s.first = w.prepare(err, "REPLACE INTO kahn_nodes SELECT "+row+" WHERE EXISTS (SELECT 1 FROM kahn_runs WHERE "+held+")")
	s.event = w.prepare(err, "INSERT INTO kahn_events VALUES (?, ?, ?)")
	s.counters = w.prepare(err, "UPDATE kahn_nodes SET sequence = ?, attempt = ?, terminal = ?, queued = ?, completed = ?, resolved = ?, required = ?, checksum = ? WHERE node = ?")
}

// Commit implements [store.Store].
func (s *Store) Commit(ctx context.Context, lease store.Lease, c store.Commit) (applied store.Applied, err error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	w := s.writer
	var refused error
	var posted []string // the runs to which the commit has posted answers
	err = w.write(ctx, func() (err error) {
		applied, refused, err = w.apply(lease, &c)
		if posted = nil; err == nil && refused == nil && applied == store.AppliedNow && (len(c.Awaits) > 0 || c.Status.Terminal()) {
			posted, err = s.settleAwaits(lease.Run, &c)
		}
		return err
	})
	if err == nil {
		err = refused
	}
	if err != nil {
		return 0, s.about("commit", lease.Run, err)
	}
	if len(c.Events) > 0 {
		s.board.Notify(lease.Run)
	}
	for _, run := range posted {
		s.requests.Tell(run)
	}
	return applied, nil
}

// settleAwaits stores, withdraws or answers the awaits of an applied commit. If the commit ends the run, settleAwaits also answers the nodes that
// await the run. It returns the runs for which it has posted answers.
func (s *Store) settleAwaits(id string, c *store.Commit) (posted []string, err error) {
	w := s.writer
	if posted, err = s.await(w.in, w.runs[id].number, id, c); err == nil && c.Status.Terminal() {
		var ended []string
		ended, err = s.endAwaits(w.in, w.inboxes.awaited.query, id, c.Status)
		posted = append(posted, ended...)
	}
	return posted, err
}

// apply does what Commit does, within a transaction. If the result "refused" is not nil, only this commit has failed, and the transaction can be
// committed.
func (w *writer) apply(lease store.Lease, c *store.Commit) (applied store.Applied, refused, err error) {
	r := w.runs[lease.Run]
	if r == nil || r.lease != lease {
		if refused, err = w.held(lease); err != nil || refused != nil {
			return 0, refused, err
		}
		if _, r, refused, err = w.loader.load(lease.Run); err != nil || refused != nil {
			return 0, refused, err
		}
		r.lease = lease
		w.runs[lease.Run] = r
	}
	st := stage{run: r, sums: &w.sums}
	applied, refused = st.judge(c)
	if applied == store.AppliedNow && refused == nil && len(c.Taken) > 0 {
		follows, err := w.follows(r.number, c)
		if err != nil {
			return 0, nil, err
		}
		if !follows {
			applied = store.Conflict
		}
	}
	if applied != store.AppliedNow || refused != nil {
		st.drop()
		fenced, err := w.held(lease)
		if err != nil || fenced != nil {
			return 0, fenced, err
		}
		return applied, refused, nil
	}
	held, err := st.write(w, c)
	if err != nil { // the caller rolls the transaction back
		return 0, nil, err
	}
	if !held {
		st.drop()
		delete(w.runs, lease.Run)
		if refused, err = w.held(lease); err == nil && refused == nil {
			err = fmt.Errorf("%w: the row of run %d has another id", ErrDamaged, r.number)
		}
		return 0, refused, err
	}
	st.keep(c)
	return store.AppliedNow, nil, nil
}

// stage is a commit that is being judged. The states of the run's nodes change only after the commit is written.
type stage struct {
	run     *run
	sums    *summer
	changes []change
}

// change is the state that a commit gives to a node.
type change struct {
	key    string
	node   *node
	next   node
	record *store.Columns // nil if the record does not change
	fresh  bool           // the node has no row yet
}

// The method `node` returns the staged change of a node. If there is none yet, it stages a change that keeps the node's state.
func (st *stage) node(key string) *change {
	n := st.run.nodes[key]
	fresh := n == nil
	if fresh {
		n = &node{number: int64(len(st.run.nodes)), record: noRecord}
		st.run.nodes[key] = n
	}
	if n.staged == 0 {
		st.changes = append(st.changes, change{key: key, node: n, next: *n, fresh: fresh})
		n.staged = len(st.changes)
	}
	return &st.changes[n.staged-1]
}

// The method `judge` decides whether a commit applies, and stages its changes.
func (st *stage) judge(c *store.Commit) (store.Applied, error) {
	r := st.run
	applied, refused := c.Judge(r.sequence, r.status, func(key string) *store.State { return &st.node(key).next.State })
	if refused != nil || applied != store.AppliedNow {
		return applied, refused
	}
	if !c.EventsFollow(r.event) {
		return store.Conflict, nil
	}
	if n := len(c.Events); n > 0 && c.Events[n-1].ID >= eventsOfRun {
		return 0, fmt.Errorf("%w: event %d of a run, which has events up to %d", store.ErrRejected, c.Events[n-1].ID, eventsOfRun-1)
	}
	if len(r.nodes) > nodesOfRun {
		return 0, fmt.Errorf("%w: a run of more than %d nodes", store.ErrRejected, nodesOfRun)
	}
	for _, key := range c.Reset {
		st.node(key).replace(st.sums, new(store.Columns))
	}
	for i := range c.Nodes {
		st.node(c.Nodes[i].Node).replace(st.sums, &c.Nodes[i].Columns)
	}
	return store.AppliedNow, nil
}

// The method `replace` gives a node another record.
func (ch *change) replace(sums *summer, record *store.Columns) {
	ch.record, ch.next.record = record, checksum(sums, record)
}

// drop discards the changes that judge has staged.
func (st *stage) drop() {
	for i := range st.changes {
		ch := &st.changes[i]
		if ch.node.staged = 0; ch.fresh {
			delete(st.run.nodes, ch.key)
		}
	}
}

// The method `keep` replaces the cached state of the run by the staged state.
func (st *stage) keep(c *store.Commit) {
	r := st.run
	for i := range st.changes {
		ch := &st.changes[i]
		*ch.node = ch.next
		ch.node.staged = 0
	}
	r.sequence, r.wake = c.Sequence, wakeTime(c.WakeAt)
	if n := len(c.Events); n > 0 {
		r.event = c.Events[n-1].ID
	}
	if c.Status != machine.RunPending {
		r.status = c.Status
	}
	if c.Compensation != nil {
		r.undoing = *c.Compensation
	}
	if c.Spec != nil {
		r.spec = specSum(st.sums, c.Spec)
	}
	if c.Run != nil {
		r.record = recordSum(st.sums, c.Run)
	}
}

// write writes the changes. If the lease is not valid, the result "held" is false, and write has changed nothing.
func (st *stage) write(w *writer, c *store.Commit) (held bool, err error) {
	r := st.run
	proof := []driver.Value{r.number, r.lease.Owner, int64(r.lease.Epoch)}
	proven := false
	next := run{id: r.id, status: r.status, undoing: r.undoing, sequence: c.Sequence, spec: r.spec, record: r.record, wake: wakeTime(c.WakeAt), rows: int64(len(r.nodes))}
	if c.Run != nil || c.Compensation != nil || len(c.Usage) > 0 || c.Spec != nil || c.Status != machine.RunPending || next.wake != r.wake || len(st.changes) == 0 {
		if c.Status != machine.RunPending {
			next.status = c.Status
		}
		if c.Compensation != nil {
			next.undoing = *c.Compensation
		}
		if c.Spec != nil {
			next.spec = specSum(st.sums, c.Spec)
		}
		var bytes driver.Value
		if c.Run != nil {
			bytes, next.record = []byte(c.Run), recordSum(st.sums, c.Run)
		}
		changed, err := w.rows.run.exec(append([]driver.Value{next.status.String(), int64(c.Sequence), next.rows, toInt(next.status.Terminal()) + toInt(c.Status.Terminal()), next.wake, bytes, compensationText(next.undoing), usageText(c.Usage), next.checksum(st.sums)}, proof...)...)
		if err != nil || changed == 0 {
			return false, err
		}
		proven = true
	}
	for i := range st.changes {
		ch := &st.changes[i]
		row := r.number*nodesOfRun + ch.node.number
		whole := ch.record != nil || ch.fresh
		if !proven && !whole {
			refused, err := w.held(r.lease)
			if err != nil || refused != nil {
				return false, err
			}
			proven = true
		}
		values := ch.columns(w.values[:0], st.sums, row, c.Sequence, whole)
		w.values = values[:0]
		switch {
		case !whole:
			_, err = w.rows.counters.exec(values...)
		case proven:
			_, err = w.rows.whole.exec(values...)
		default:
			changed, err := w.rows.first.exec(append(values, proof...)...)
			if err != nil || changed == 0 {
				return false, err
			}
			proven = true
		}
		if err != nil {
			return false, err
		}
	}
	clear(w.values[:cap(w.values)]) // so that w.values keeps no data alive
	if err := w.putEvents(r.number, c.Events); err != nil {
		return false, err
	}
	if err := w.putAnswers(r.number, c); err != nil {
		return false, err
	}
	return true, w.writeAside(r.number, c)
}

// The method `columns` adds the values of a node's row to the parameter "values": all of them if "whole" is set, otherwise only the arguments of the
// statement `counters`.
func (ch *change) columns(values []driver.Value, sums *summer, row int64, sequence uint64, whole bool) []driver.Value {
	n := &ch.next
	if whole {
		values = append(values, row, ch.key)
	}
	values = append(values, int64(sequence), int64(n.Attempt), toInt(n.Terminal), toInt(n.Queued), toInt(n.Completed), int64(n.Resolved), int64(n.Required))
	checksum := n.checksum(sums, row, ch.key, sequence)
	switch {
	case !whole:
		return append(values, checksum, row)
	case ch.record == nil:
		return append(appendColumns(values, new(store.Columns)), checksum)
	}
	return append(appendColumns(values, ch.record), checksum)
}
