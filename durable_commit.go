package kahn

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/seed-c794f7ef/kahn/internal/jsonwrite"
	"github.com/seed-c794f7ef/kahn/machine"
	"github.com/seed-c794f7ef/kahn/store"
)

// A write that has failed is repeated after minPause, and then after twice the pause before, up to maxPause.
const (
	minPause = 50 * time.Millisecond
	maxPause = 2 * time.Second
)

// guarded calls the store, and returns its panic as an error.
func guarded(f func() error) error { return bounded(contain(f)) }

// add notes the changes of a run in the outbox, with the lock held.
func (d *durable) add(r *Run, changes []machine.Change) {
	if d.lost != nil {
		for _, c := range changes {
			if c.Wave == 0 {
				d.lost.note(place{r, c.Ref}, -1)
			}
		}
	}
	if d.failed != nil {
		return
	}
	for _, c := range changes {
		if c.Wave != 0 { // a wave has no record: the next life derives it from the nodes, or from InWave in the record of the run
			d.outbox.due = d.outbox.due || d.events != nil && r.outer == nil // but an event
			continue
		}
		d.addNode(r, c)
	}
	if r.tree != nil {
		r.tree.touch(r.tree.root) // whose committer it is
	}
	d.show(r.log)
}

// addNode is add for a node.
func (d *durable) addNode(r *Run, c machine.Change) {
	at := place{r, c.Ref}
	e := d.pending(at)
	e.change()
	switch {
	case c.Blocked: // its check may have no result for long
		return
	case c.Status == Running && !r.performsInside(c.Ref):
		e.begin(0) // if it has inputs that were accepted: else its start was noted before
		return
	case c.Status == Ready && r.st.Word(c.Ref).Status() == Ready: // else it has been taken already, or is a composite that continues
		if e.ready(r.st.ParksNode(c.Ref)) {
			r.awaitsWrite(1)
		}
	}
	if attempt := d.open[at]; attempt > 0 { // it was running
		delete(d.open, at)
		e.finish(attempt)
	}
	if c.Status.Terminal() {
		e.end()
		d.resolve(r, c.Ref)
	}
}

// resolve notes that each of the nodes after one has a predecessor more that is terminal.
func (d *durable) resolve(r *Run, ref machine.Ref) {
	for _, a := range r.plan.net.Out(ref) {
		d.pending(place{r, a.To()}).resolved++
	}
}

// told puts an event that is not a transition into the outbox: in the record of its node, or of the run. The last event of a
// run comes with the change of its status. Deltas and logs have no record: unless events are stored, nothing is written for
// them, and a crash loses the unwritten ones.
func (d *durable) told(r *Run, e *entry) {
	switch {
	case e.kind.ofNode() && !e.kind.passing():
		r.outdated(e.ref)
	case !e.kind.ofNode() && !e.kind.endsRun():
		d.stale, d.outbox.due = true, d.failed == nil
	case e.kind.passing() && d.events != nil:
		d.events.postpone()
	}
}

// noteDelta notes that a node has emitted a delta. Nothing is written for that alone, but the next transaction knows of the event, and so of
// the delta's number.
func (r *Run) noteDelta(ref machine.Ref, x *extra) {
	d := r.durable
	if d == nil || d.failed != nil {
		return
	}
	if next := d.sequence + 1; x.counted != next {
		x.counted = next
		d.outbox.emitted = append(d.outbox.emitted, place{r, ref})
	}
}

// show makes the events visible for which nothing is to be written. The others are shown by the committer.
//
// An event is shown only when the store has all that it reports, or what it follows from: the code that appends an event notes
// its fact in the outbox before it calls show. Otherwise a crash makes the next life announce it again. Where events are stored,
// each is shown by the committer.
func (d *durable) show(l *eventLog) {
	if !d.writing {
		d.showRest(l)
	}
}

// showRest is show for the committer, when it finds nothing to be written.
func (d *durable) showRest(l *eventLog) {
	if d.failed == nil && d.events == nil && !d.hasWork() {
		l.publish(l.lastID())
	}
}

// changeStatus writes the status of the run, which has changed.
func (d *durable) changeStatus() { d.outbox.due = d.failed == nil }

// take takes the outbox, for the committer, as it stands at this moment: the records of its nodes hold all their changes, and
// the transaction covers all events of the log.
func (d *durable) take(root *Run) *transaction {
	for _, at := range d.outbox.emitted {
		d.pending(at).change()
	}
	tx := d.outbox
	d.outbox = d.nextTransaction()
	d.sequence++
	tx.show = root.log.lastID()
	tx.events = d.events.take(tx.show)
	if few := new(fewChanges); len(tx.entries) <= len(few.readiness) {
		few.lend(&tx.commit)
	}
	d.takeRun(tx, root)
	for i := range tx.entries {
		d.steps++
		tx.takeNode(&tx.entries[i])
	}
	d.withdrawAwaits(&tx.commit)
	for i := range tx.undos {
		u := &tx.undos[i]
		u.key, u.state = u.run.key(u.ref)+undoMark, u.undo.state()
	}
	return tx
}

// takeRun is take for what a transaction says of the run itself.
func (d *durable) takeRun(tx *transaction, root *Run) {
	c := &tx.commit
	c.Sequence = d.sequence
	if status := root.status(); status != d.status && status != RunPending {
		if c.Status, d.status = status, status; status.Terminal() && d.inbox.holds() {
			d.inbox.end(c)
			d.stale = true
		}
	}
	if root.undo != nil || d.undoing != CompensationNone {
		if now := root.compensation(); now != d.undoing {
			d.undoing, c.Compensation = now, &now
		}
	}
	c.WakeAt = d.wakeAt(root)
	if back := tx.back; back != nil {
		c.Reopen, c.Reset, c.Readiness, c.Started = true, back.keys, back.counts, back.started
	}
	if x := root.waits; x != nil {
		tx.signals, tx.signal = x.answered.unstored()
	}
	if x := root.remarked().usage; x != nil && d.stale { // so are its parts, in the record
		if sum := x.ended(); !maps.Equal(sum, d.used) {
			d.used, c.Usage = sum, sum
		}
	}
	if d.stale || len(tx.signals) > 0 { // a record of the run that a former version has written has signals
		file := root.fileHeader() // the inputs are in the Spec
		if file.Deltas, file.Ahead = d.deltas, d.inbox.answersAhead(); len(file.Answered)+len(file.Ahead) > 0 {
			file.Version = max(file.Version, answersVersion)
		}
		file.Answered, file.Undone = nil, d.undone
		tx.header, d.stale = &file, false
	}
	if d.unspecified {
		c.Spec, d.unspecified = &store.Spec{Labels: root.labels()}, false
	}
}

// takeNode is take for what a transaction says of a node.
func (tx *transaction) takeNode(e *pendingNode) {
	c, r, w := &tx.commit, e.run, e.run.st.Word(e.ref)
	key := r.key(e.ref)
	if e.ended > 0 {
		c.Completed = append(c.Completed, store.Attempt{Node: key, Attempt: e.ended})
	}
	for n := e.attempt - e.starts + 1; e.starts > 0 && n <= e.attempt; n++ {
		c.Started = append(c.Started, store.Attempt{Node: key, Attempt: n})
	}
	if e.is(nodeChanged) && (e.is(nodeTerminal) || !w.Status().Terminal()) && w.Is(machine.WordDecided) { // nothing is stored of a node that is idle
		tx.takeRecord(e, key)
	}
	if e.resolved > 0 {
		c.Readiness = append(c.Readiness, store.Readiness{Node: key, By: e.resolved, Required: len(r.plan.net.In(e.ref))})
	}
	if e.is(nodeReady) && w.Status() == Ready {
		c.Ready = append(c.Ready, key)
	}
}

// takeRecord takes the record of a node, which is encoded later.
func (tx *transaction) takeRecord(e *pendingNode, key string) {
	r := e.run
	n := r.nodeState(e.ref)
	r.extras[e.ref].addToRecord(&n)
	n.Deltas, n.Undo = r.deltasOf(e.ref), nil
	if n.Event = tx.show; n.Value != nil {
		n.Value.raw = e.text
	}
	tx.list(e.place, key, &n)
	if d := r.durable; n.Wait != nil || len(d.awaits) > 0 {
		d.await(&tx.commit, r.path(e.ref), &n)
	}
	tx.nodes, tx.places, tx.children = append(tx.nodes, n), append(tx.places, e.place), append(tx.children, e.child())
	if n.Inside != nil {
		tx.collect(e.place, key, &n)
	}
}

// addToRecord adds to the record of a node what no snapshot has of it. While its graph is not known, the record has the signals for all that
// is inside. And a life whose record shows a running node has ended by a crash, which the load counts, unless the node is performed inside or
// its output was refused: so the record of an attempt that calls its step again, or only its Fallback, counts that crash beforehand.
func (x *extra) addToRecord(n *nodeState) {
	if x == nil || n.Status.Terminal() {
		return
	}
	if x.kept != nil && n.Inside != nil {
		n.Inside.Signals = slices.Concat(n.Inside.Signals, n.Inside.deeper)
	}
	if n.Status == Running && (x.kept != nil || x.refused != nil) {
		n.Crashes++
	}
}

// fewChanges is the memory for the lists of a transaction as short as a chain's: one object instead of five.
type fewChanges struct {
	completed, started [1]store.Attempt
	nodes              [2]store.NodeRecord
	readiness          [3]store.Readiness
	ready              [1]string
}

func (f *fewChanges) lend(c *store.Commit) {
	c.Completed, c.Started, c.Readiness, c.Ready = f.completed[:0], f.started[:0], f.readiness[:0], f.ready[:0]
	c.Nodes = f.nodes[:0]
}

// list takes the list of a map out of its record, which does not grow with it then. It has a record of its own, which is written once.
func (tx *transaction) list(at place, key string, n *nodeState) {
	if n.List == nil {
		return
	}
	if x := at.run.extras[at.ref].items; !x.stored {
		x.stored = true
		tx.outputs = append(tx.outputs, collected{key: listKey(key), path: at.run.path(at.ref), value: *n.List, at: at.run.timeAt(at.run.now())})
	}
	n.List = nil
}

// collect takes the outputs that a loop has collected, before its last iteration, and the store does not have.
func (tx *transaction) collect(at place, key string, n *nodeState) {
	r := at.run
	comp := r.extras[at.ref].comp
	if comp == nil {
		return
	}
	for most := min(len(comp.before.all), n.Inside.Iteration-1); int(comp.stored) < most; comp.stored++ {
		i := int(comp.stored) + 1
		key := collectedKey(key, n.Attempts, i)
		tx.outputs = append(tx.outputs, collected{key, key, i, stored{value: comp.before.all[i-1]}, r.timeAt(r.now())})
	}
}

// commitPending starts the committer if there is something to write and no committer runs. A worker that is about to take its
// first task comes first, and calls this then: so the transaction holds the starts of all nodes that can be started.
func (r *Run) commitPending() {
	r = r.outermost()
	d := r.durable
	d.admit()
	if !d.writing && d.coming == 0 && d.hasWork() && r.from == nil { // a run that continues then writes the answers that it was given before it began
		d.writing = true
		r.enlist()
		go r.commit()
	}
}

// commit is the committer.
func (r *Run) commit() {
	d := r.durable
	finished := false
	defer func() { // if the store has called runtime.Goexit
		if !finished {
			r.st.Lock()
			if d.given { // its end is written
				r.warn(fmt.Errorf("%w: the lease is left to run out: %w", ErrStore, ErrGoexit))
			} else {
				r.lose(fmt.Errorf("%w: %w", ErrStore, ErrGoexit))
			}
			d.writing, d.current = false, nil
			r.dismiss()
			r.release(r.now())
		}
	}()
	for {
		runtime.Gosched() // workers that are about to change something go first: the transaction holds it then
		r.st.Lock()
		if !d.hasWork() {
			d.showRest(r.log)
			if r.concluded() {
				r.st.Unlock()
				err := errors.Join(r.releaseLease(), r.createUnbegun())
				r.st.Lock()
				if err != nil {
					r.warn(err)
				}
			}
			break
		}
		tx := d.take(r)
		d.current = tx
		if r.letGo() {
			r.release(r.now())
		} else {
			r.st.Unlock()
		}
		err := r.write(tx)
		refused := errors.Is(err, ErrRejected) && r.refuse(tx)
		r.st.Lock()
		switch {
		case d.failed != nil: // it came too late
		case err == nil:
			r.written(tx)
		case lasting(err) && !refused:
			r.storeFailed(err)
		default:
			r.lose(err)
		}
		d.current = nil
		r.release(r.now())
	}
	finished = true
	d.writing = false
	r.dismiss()
	r.release(r.now())
}

// written takes note that a transaction is durable.
func (r *Run) written(tx *transaction) {
	d := r.durable
	d.written = true
	for i, at := range tx.places {
		n := &tx.nodes[i]
		d.storedAs(at, n, tx.children[i])
		if n.Status.Terminal() {
			at.run.forgetTexts(at.ref)
		}
		if in := n.Inside; in != nil && in.Previous != nil {
			if x := at.run.extras[at.ref]; x != nil && x.comp != nil {
				x.comp.text = &iterationText{in.Iteration, in.Previous.raw}
			}
		}
	}
	for _, u := range tx.undos {
		u.stored = u.state.Status
	}
	r.log.publish(tx.show)
	for i := range tx.entries {
		if e := &tx.entries[i]; e.is(nodeParked) {
			e.run.awaitsWrite(-1)
			if s := &e.run.st; s.Word(e.ref).Status() == Ready {
				s.Queue(e.ref)
			}
			if r.tree != nil {
				r.tree.touch(e.run)
			}
		}
	}
	for _, c := range tx.ended {
		c.outer.awaitsWrite(-1)
		c.returnTo()
	}
	close(tx.done)
	d.reuse(tx)
}

// lasting reports whether a write failed for what it says, so that the stored run contradicts the one in memory. After any other error
// the run can continue elsewhere, also after an error of a codec that could encode a value before, and needs a service that is out of
// reach.
func lasting(err error) bool {
	for _, kind := range []error{ErrFenced, ErrUnknownRun, store.ErrReadinessOverflow, ErrRejected, ErrNotEncodable, errRefused} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}

// errRefused is the error of a write that the store has understood and not applied.
var errRefused = errors.New("a write is refused")

// write encodes a transaction and passes it to the store. It repeats what the store has not answered until the lease runs out; but
// the first write of a life, before which nothing was called, is written at once or not at all.
func (r *Run) write(tx *transaction) (err error) {
	if err := r.encode(tx); err != nil {
		return fmt.Errorf("%w: %w", ErrStore, err)
	}
	d, asked := r.durable, time.Now()
	for try, pause := 1, minPause; ; try, pause = try+1, min(2*pause, maxPause) {
		var applied store.Applied
		err = guarded(func() (err error) {
			applied, err = d.store.Commit(d.ctx, d.lease, tx.commit)
			return err
		})
		switch {
		case err == nil && (applied == store.AppliedNow || applied == store.Duplicate && try > 1):
			return nil
		case err == nil:
			return fmt.Errorf("%w: %w: it is %v", ErrStore, errRefused, applied)
		case lasting(err) || errors.Is(err, ErrUnusable) || !r.repeats(asked, pause):
			return fmt.Errorf("%w: %w", ErrStore, err)
		}
	}
}

// repeats waits before a write is repeated, and reports whether it is: not the first write of a life, not after the lease has run out,
// and, where the lease is renewed meanwhile, not when the store has refused the write for as long as a lease lasts.
func (r *Run) repeats(asked time.Time, pause time.Duration) bool {
	d := r.durable
	left := func() time.Duration {
		r.st.Lock()
		defer r.st.Unlock()
		if !d.written || d.failed != nil {
			return 0
		}
		return min(time.Until(d.expires), time.Until(asked.Add(r.cfg.leaseTime)))
	}
	most := left()
	if most <= 0 {
		return false
	}
	timer := time.NewTimer(min(pause, most))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-d.ctx.Done():
	}
	return left() > 0
}

// maxScratch bounds the memory that a committer keeps from one transaction to the next, in bytes.
const maxScratch = 64 << 10

// encode makes the records of a transaction. Its nodes are its own but for what is inside them.
func (r *Run) encode(tx *transaction) error {
	if tx.hasValues() {
		if err := r.encodeValues(tx); err != nil {
			return err
		}
	}
	if err := r.encodeNodes(tx); err != nil {
		return err
	}
	if err := r.encodeEvents(tx); err != nil {
		return err
	}
	if tx.commit.Spec != nil {
		var err error
		labels := tx.commit.Spec.Labels // when the transaction was taken
		if *tx.commit.Spec, err = r.spec(); err != nil {
			return err
		}
		tx.commit.Spec.Labels = labels
	}
	if tx.header != nil {
		return r.encodeHeader(tx)
	}
	return nil
}

// hasValues reports whether something in the records of a transaction is not text yet.
func (tx *transaction) hasValues() bool {
	for i := range tx.nodes {
		if !tx.nodes[i].isText() {
			return true
		}
	}
	return len(tx.outputs) > 0
}

// isText reports whether the output is all that a node has of values and errors, and its text is known.
func (n *nodeState) isText() bool {
	return (n.Value == nil || n.Value.raw != nil) && n.Saved == nil && n.Signal == nil && n.List == nil && n.Merged == nil && n.Wait == nil && n.Inside == nil &&
		n.Err == nil && n.LastErr == nil && n.GuardErr == nil && n.StopErr == nil && n.Refused == nil && n.Errs == nil
}

// encodeValues makes text of the values and errors in the records of a transaction.
func (r *Run) encodeValues(tx *transaction) error {
	var errs []error
	encode := encoder(r.cfg.codec)
	visit := visitor(func(path string, v *stored) {
		if err := encode(path, v); err != nil {
			errs = append(errs, err)
		}
	})
	for i := range tx.nodes {
		n := &tx.nodes[i]
		n.Inside = n.Inside.clone()
		visit.node(n, tx.places[i].run.prefix)
		n.renderErrors()
	}
	for i := range tx.outputs {
		visit(tx.outputs[i].path, &tx.outputs[i].value)
	}
	return errors.Join(errs...)
}

// encodeNodes makes the records of a transaction, all of them in one piece of memory.
func (r *Run) encodeNodes(tx *transaction) error {
	w := nodeWriter{jsonwrite.Writer{Data: r.durable.scratch[:0]}}
	c := &tx.commit
	c.Nodes = slices.Grow(c.Nodes, len(tx.nodes)+len(tx.outputs)+len(tx.signals)+len(tx.undos))
	for i := range tx.nodes {
		n, at := &tx.nodes[i], tx.places[i]
		key := at.run.key(at.ref)
		c.Nodes = append(c.Nodes, store.NodeRecord{Node: key, Terminal: n.Status.Terminal(), Columns: n.columns(&w, key)})
	}
	for _, o := range tx.outputs {
		n := nodeState{Facts: machine.Facts{Status: Completed}, End: o.at, Value: &o.value, Collected: o.iteration, Listed: o.iteration == 0}
		c.Nodes = append(c.Nodes, store.NodeRecord{Node: o.key, Terminal: true, Columns: n.columns(&w, "")})
	}
	for i := range tx.signals {
		n := nodeState{Facts: machine.Facts{Status: Completed}, Taken: &tx.signals[i]}
		c.Nodes = append(c.Nodes, store.NodeRecord{Node: r.plan.signalKey(tx.signal + i), Terminal: true, Columns: n.columns(&w, "")})
	}
	for i := range tx.undos {
		u := &tx.undos[i]
		n := u.state.record(tx.show)
		c.Nodes = append(c.Nodes, store.NodeRecord{Node: u.key, Terminal: n.Status.Terminal(), Columns: n.columns(&w, "")})
	}
	if w.Err != nil {
		return w.Err
	}
	memory := slices.Clone(w.Data) // it belongs to the store
	for i := range c.Nodes {
		columns := &c.Nodes[i].Columns
		columns.Record, memory = cut(memory, len(columns.Record))
		columns.Hash, memory = cut(memory, len(columns.Hash))
	}
	if cap(w.Data) <= maxScratch {
		r.durable.scratch = w.Data
	}
	return nil
}

// cut takes the first n bytes, nil for none.
func cut(memory []byte, n int) (part, rest []byte) {
	if n == 0 {
		return nil, memory
	}
	return memory[:n:n], memory[n:]
}

// encodeHeader makes the record of the run. The payload of its trigger is encoded once.
func (r *Run) encodeHeader(tx *transaction) error {
	d, fired := r.durable, tx.header.Fired
	if fired != nil && fired.Payload.raw == nil {
		fired.Payload.raw = d.payload
	}
	header, err := tx.header.encoded(r.cfg.codec)
	if err != nil {
		return err
	}
	if fired != nil {
		d.payload = header.Fired.Payload.raw
	}
	tx.commit.Run, err = json.Marshal(header)
	return err
}

// StoreEvents keeps the events of a durable run in its store, see [Durable]. Each is written in the transaction of the fact that it reports,
// so the stored log fits the stored run, whenever the process dies: its ids have no gap and continue over all lives of the run. Any process
// reads it with [store.ReadEvents] and [store.OpenEvents], during the run and afterwards.
//
// Deltas and logs, which change nothing in the stored run, are written with the next transaction, which begins at the latest 50 ms after the first of them, or when the
// one in flight has been written: it is one of their own, if there is no other. Until then they are kept in memory. Sinks, [Run.Events] and readers of the store see any
// event only when it is written. So a crash loses the unwritten ones, which no reader has seen.
//
// The store must be a [store.EventStore], and the codec no [store.Sealed] without EventsInClear, otherwise the error matches [ErrBadOption] and nothing is run. A run
// whose events are stored continues to store them in later lives, with or without the option. If a run began without it, the stored log begins with the first event of
// the life that has it. Events are stored as JSON. Outputs in them are as [EventOutputs] says; what steps emit and log, and signals, are in the clear.
func StoreEvents() Option {
	return optionFunc(func(c *config) error { c.storeEvents = true; return nil })
}

// eventDelay is how long deltas and logs wait for a transaction.
const eventDelay = 50 * time.Millisecond

// eventWriter takes the events of a run into its transactions. The run's lock guards it.
//
// Every other event has a change in the outbox, so the next transaction covers it. Deltas and logs have none, and wait for that
// transaction; the delay makes the outbox due.
type eventWriter struct {
	root  *Run
	last  uint64 // the id of the last event that is in a transaction
	maker *eventMaker
	delay timer // nil if nothing waits; while it is armed, it is one of the run's timers
}

// checkEvents refuses to store events where that is impossible.
func (c *config) checkEvents() error {
	if !c.storeEvents {
		return nil
	}
	if c.store == nil {
		return fmt.Errorf("%w: StoreEvents is for a durable run: see Durable", ErrBadOption)
	}
	if _, ok := c.store.(store.EventStore); !ok {
		return fmt.Errorf("%w: StoreEvents: %T keeps no events: it is no store.EventStore", ErrBadOption, c.store)
	}
	if err := store.CheckEvents(c.codec); err != nil {
		return fmt.Errorf("%w: StoreEvents: %w", ErrBadOption, err)
	}
	return nil
}

// eventWriter returns the writer of an acquired run's events; nil if they are not stored.
func (r *Run) eventWriter(stored *store.Run) (*eventWriter, error) {
	if stored.LastEvent == 0 && !r.cfg.storeEvents {
		return nil, nil
	}
	if _, ok := r.cfg.store.(store.EventStore); !ok {
		return nil, fmt.Errorf("%w: the events of run %s are stored, and %T keeps none: it is no store.EventStore", ErrBadOption, quoteID(r.ID()), r.cfg.store)
	}
	if err := store.CheckEvents(r.cfg.codec); err != nil {
		return nil, fmt.Errorf("%w: the events of run %s are stored: %w", ErrBadOption, quoteID(r.ID()), err)
	}
	return &eventWriter{root: r}, nil
}

// begin begins with the events after the last one of the life before.
func (w *eventWriter) begin(last uint64) {
	if w != nil {
		w.last = last
	}
}

// postpone makes the outbox due after the delay, for events that have no change in it.
func (w *eventWriter) postpone() {
	d := w.root.durable
	if w.delay != nil || d.failed != nil {
		return
	}
	var own timer
	w.root.timers++
	own = w.root.startTimer(eventDelay, func() {
		w.root.callback(func(int64) {
			if w.delay == own { // else the events are in a transaction already
				w.delay, d.outbox.due = nil, d.failed == nil
			}
		})
	})
	w.delay = own
}

// arrive ends the delay.
func (w *eventWriter) arrive() {
	if w == nil || w.delay == nil {
		return
	}
	if w.delay.Stop() {
		w.root.timers--
	}
	w.delay = nil
}

// take drafts the events up to an id, which no transaction holds yet. It is called with the lock held: later a failure of the store may
// undo the ends of nodes that they report.
func (w *eventWriter) take(last uint64) (events []Event) {
	if w == nil || w.last == last {
		return nil
	}
	w.arrive()
	if w.maker == nil {
		w.maker = w.root.eventMaker()
	}
	events = make([]Event, 0, last-w.last)
	ev := w.maker.head
	for w.last < last {
		b := w.root.log.upTo(w.last+1, last)
		for i := range b.lines {
			w.last++
			w.maker.draft(&ev, &b, i, w.last)
			events = append(events, ev)
		}
	}
	return events
}

// encodeEvents puts the events of a transaction into its commit. It calls user code, and is called without the lock.
func (r *Run) encodeEvents(tx *transaction) error {
	for i := range tx.events {
		e := &tx.events[i]
		e.Payload = r.withOutput(e.Payload)
		data, err := e.MarshalStored()
		if err != nil { // JSON has no form for a time in the payload
			e.Payload = nil
			data, err = e.MarshalStored()
		}
		if err != nil {
			return err
		}
		tx.commit.Events = append(tx.commit.Events, store.EventRecord{ID: e.ID, Data: data})
	}
	tx.events = nil
	return nil
}

// A store may refuse the output of a step when its transaction is committed, and no earlier. By then the run has gone ahead in memory.
// So the committer finds out which output it is, marks the record of that node, and leaves the run as after an outage: nothing of the
// transaction has happened. The next life fails the node before anything else, like a node that has crashed too often.

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
			err = write(&before, key, nil) // the store has the value of a node that continues
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

// lastShown returns the ids of the last event that is not hidden, and of the last of these that belongs to the node, deltas and logs not
// counted.
func (l *eventLog) lastShown(scope *eventScope, ref machine.Ref) (last, of uint64) {
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

// storedUndos are a store's records of how far the undoing of nodes has come, by the keys of the nodes.
type storedUndos map[string]*undoState

// undoMark ends the key of such a record: no path has letters after this sign.
const undoMark = "#undo"

// add adds a record. The attempt in flight has ended with the process that ran it.
func (u *storedUndos) add(key string, s *undoState) {
	if *u == nil {
		*u = storedUndos{}
	}
	if s.AtWork && s.Status == CompensationRunning {
		s.AtWork = false
		s.Cut++
		s.Crashes++
	}
	(*u)[strings.TrimSuffix(key, undoMark)] = s
}

// restore gives the nodes what was read, and counts how often what they have done was undone.
func (u storedUndos) restore(file *snapshotFile, f *filler) {
	if len(u) == 0 {
		return
	}
	file.Undone = maps.Clone(file.Undone)
	if file.Undone == nil {
		file.Undone = map[string]int{}
	}
	for i := range f.nodes {
		f.nodes[i].Undo = u[f.keys[i]]
	}
	for key, s := range u {
		if s.Status == CompensationDone && !s.inside {
			file.Undone[pathOfKey(key)]++
		}
	}
}

// takeUndos takes back the records of compensations that have failed, by the paths of their nodes, and any of the nodes around.
func takeUndos(stored map[string]store.Node, failed, around []string) (back takenBack) {
	paths := map[string]bool{} // and whether it is one around
	for _, path := range failed {
		paths[path] = false
	}
	for _, path := range around {
		paths[path] = true
	}
	for _, key := range slices.Sorted(maps.Keys(stored)) {
		of, undo := strings.CutSuffix(key, undoMark)
		if !undo {
			continue
		}
		if any, known := paths[pathOfKey(of)]; known && (any || stored[key].Status == Failed) {
			back.keys = append(back.keys, key)
		}
	}
	return back
}

// fillPast fills in the iterations of a loop that others have followed.
func (f *filler) fillPast(n *nodeState, key string) {
	in := n.Inside
	in.Past = nil
	for k := 1; k < in.Iteration; k++ {
		prefix := keyInside(key, n.Attempts, k, false)
		past := insideState{Iteration: k, Nodes: f.of[siblings{prefix: prefix}]}
		f.fillIn(past.Nodes, func(n *nodeState) string { return prefix + n.ID })
		in.Past = append(in.Past, past)
	}
}
