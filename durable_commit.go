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

// A failed write is repeated after minPause. Each further pause is twice the previous one, up to maxPause.
const (
	minPause = 50 * time.Millisecond
	maxPause = 2 * time.Second
)

// The function `guarded` calls f, a function that calls the store. It returns the error of f or, if f panics, the panic as an error.
func guarded(f func() error) error { return bounded(contain(f)) }

// add puts the changes of a run into the outbox. The caller holds the run's lock.
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
		if c.Wave != 0 { // a wave has no record: the next life derives it from the nodes, or from InWave in the run's record
			d.outbox.due = d.outbox.due || d.events != nil && r.outer == nil // an event of a wave must be written
			continue
		}
		d.addNode(r, c)
	}
	if r.tree != nil {
		r.tree.touch(r.tree.root) // the committer belongs to the root
	}
	d.show(r.log)
}

// addNode adds the change of one node.
func (d *durable) addNode(r *Run, c machine.Change) {
	at := place{r, c.Ref}
	e := d.pending(at)
	e.change()
	switch {
	case c.Blocked: // the node has not ended: its policy for upstream failures causes a later change
		return
	case c.Status == Running && !r.performsInside(c.Ref):
		e.begin(0) // if the inputs were judged first, the attempt begins only now; for other steps begin changes nothing, since start has called it
		return
	case c.Status == Ready && r.st.Word(c.Ref).Status() == Ready: // if the node is no longer Ready, a worker has it, or the node is a composite that continues
		if e.ready(r.st.ParksNode(c.Ref)) {
			r.awaitsWrite(1)
		}
	}
	if attempt := d.open[at]; attempt > 0 { // the attempt was running
		delete(d.open, at)
		e.finish(attempt)
	}
	if c.Status.Terminal() {
		e.end()
		d.resolve(r, c.Ref)
	}
}

// The method `resolve` records, for each direct successor of ref, that one more predecessor is terminal.
func (d *durable) resolve(r *Run, ref machine.Ref) {
	for _, a := range r.plan.net.Out(ref) {
		d.pending(place{r, a.To()}).resolved++
	}
}

// The method `told` is called for an event that is not a transition. It makes the next transaction write the record that the event concerns: the
// record of the node, or of the run. told does nothing for the last event of a run, since the change of the run's status is written anyway. Deltas
// and logs of nodes change no record, so they are written only if events are stored. A crash loses the deltas and logs that are not written yet.
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

// noteDelta records that a node has emitted a delta. A delta alone causes no write. But the next transaction covers the event of the delta, so this
// transaction must contain the node's record with the new number of deltas.
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

// The method `show` makes events visible if nothing must be written before. Otherwise the committer shows them later.
//
// An event becomes visible only after the store contains the fact that the event reports. Otherwise the next life would announce the event again
// after a crash. So the code that appends an event puts its fact into the outbox before it calls show. If events are stored, only the committer
// shows them.
func (d *durable) show(l *eventLog) {
	if !d.writing {
		d.showRest(l)
	}
}

// showRest is like show, but it also works while the committer is running. The committer calls it when there are no changes to write.
func (d *durable) showRest(l *eventLog) {
	if d.failed == nil && d.events == nil && !d.hasWork() {
		l.publish(l.lastID())
	}
}

// changeStatus makes the next transaction write the status of the run, which has changed.
func (d *durable) changeStatus() { d.outbox.due = d.failed == nil }

// The method `take` completes the transaction that was the outbox, and returns it to the committer. An empty transaction becomes the outbox. The
// records of the taken transaction contain all changes so far, and it covers all events that the log has so far.
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
		if u := &tx.undos[i]; u.undo != nil {
			u.key, u.state = u.run.key(u.ref)+undoMark, u.undo.state()
		}
	}
	return tx
}

// takeRun adds the state of the run itself to a transaction.
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
	if x := root.remarked().usage; x != nil && d.stale { // the run's record has the usage by kind; the sum is written with this record
		if sum := x.ended(); !maps.Equal(sum, d.used) {
			d.used, c.Usage = sum, sum
		}
	}
	// A transaction that writes records of signals also replaces the run's record, since a former version may have stored these signals there.
	if d.stale || len(tx.signals) > 0 {
		file := root.fileHeader() // the header lacks the inputs, which are in the Spec
		if file.Deltas, file.Ahead = d.deltas, d.inbox.answersAhead(); len(file.Answered)+len(file.Ahead) > 0 {
			file.Version = max(file.Version, answersVersion)
		}
		file.Answered, file.Undone = nil, maps.Clone(d.undone) // a clone, since it is encoded without the lock: see countTaken
		tx.header, d.stale = &file, false
	}
	if d.unspecified {
		c.Spec, d.unspecified = &store.Spec{Labels: root.labels()}, false
	}
}

// takeNode adds the state of a node to a transaction.
func (tx *transaction) takeNode(e *pendingNode) {
	c, r, w := &tx.commit, e.run, e.run.st.Word(e.ref)
	key := r.key(e.ref)
	if e.ended > 0 {
		c.Completed = append(c.Completed, store.Attempt{Node: key, Attempt: e.ended})
	}
	for n := e.attempt - e.starts + 1; e.starts > 0 && n <= e.attempt; n++ {
		c.Started = append(c.Started, store.Attempt{Node: key, Attempt: n})
	}
	if e.is(nodeChanged) && (e.is(nodeTerminal) || !w.Status().Terminal()) && w.Is(machine.WordDecided) { // the store has no record for an idle node
		tx.takeRecord(e, key)
	}
	if e.resolved > 0 {
		c.Readiness = append(c.Readiness, store.Readiness{Node: key, By: e.resolved, Required: len(r.plan.net.In(e.ref))})
	}
	if e.is(nodeReady) && w.Status() == Ready {
		c.Ready = append(c.Ready, key)
	}
}

// takeRecord adds the record of a node, which is encoded later.
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

// addToRecord adds to the record of a node what snapshots do not contain. If an earlier life expanded the node, and this life does not have the
// node's graph yet, the record contains the signals for all nodes inside, at any depth. The record also counts one crash more if this life calls
// user code for the running node: the step of such an expanded node, to get the graph again, or the Fallback of a node whose output the store has
// refused. For these nodes fileOf counts no crash when the run is loaded. So the crash is counted in advance, as if the process had died during the
// call.
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

// fewChanges is the memory for the five lists of a short transaction, such as the transaction for one node of a chain. It is allocated as one
// object.
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

// The method `list` takes the list of a map out of the map's record, and gives the list a record of its own. The list's record is written once,
// while the map's record is written often.
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

// collect adds to the transaction the outputs of a loop's earlier iterations, except the outputs that the store has already.
func (tx *transaction) collect(at place, key string, n *nodeState) {
	r := at.run
	comp := r.extras[at.ref].comp
	if comp == nil {
		return
	}
	for most := min(len(comp.before.all), n.Inside.Iteration-1); int(comp.stored) < most; comp.own().stored++ {
		i := int(comp.stored) + 1
		key := collectedKey(key, n.Attempts, i)
		tx.outputs = append(tx.outputs, collected{key, key, i, stored{value: comp.before.all[i-1]}, r.timeAt(r.now())})
	}
}

// commitPending starts the committer if there are changes to write and no committer runs. If a worker is about to take its first task,
// commitPending leaves this to the worker, which calls commitPending later. So the transaction contains the starts of all nodes that can start.
func (r *Run) commitPending() {
	r = r.outermost()
	d := r.durable
	d.admit()
	// While r.from is set, the run is restored but not continued. Until it is continued, nothing is written.
	if !d.writing && d.coming == 0 && d.hasWork() && r.from == nil {
		d.writing = true
		r.enlist()
		go r.commit()
	}
}

// commit runs the committer.
func (r *Run) commit() {
	d := r.durable
	finished := false
	defer func() { // deferred, in case the store calls runtime.Goexit
		if !finished {
			r.st.Lock()
			if d.given { // the store called Goexit while the lease was being released
				r.warn(fmt.Errorf("%w: the release of the lease failed, so another process may have to wait until the lease runs out: %w", ErrStore, ErrGoexit))
			} else {
				r.lose(fmt.Errorf("%w: %w", ErrStore, ErrGoexit))
			}
			d.writing, d.current = false, nil
			r.dismiss()
			r.release(r.now())
		}
	}()
	for {
		runtime.Gosched() // workers that are about to make changes go first, so that the transaction includes their changes
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
		case d.failed != nil: // the store answered too late: the run was ended or left in the meantime
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

// The method `written` is called when a transaction is durable. It shows the transaction's events, queues the nodes that waited for the write, and
// evaluates the results of ended nested runs.
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
				x.comp.own().text = &iterationText{in.Iteration, in.Previous.raw}
			}
		}
	}
	for _, u := range tx.undos {
		if u.undo != nil {
			u.stored = u.state.Status
		}
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

// The function `lasting` reports whether a failed write would fail again later: its content cannot be stored, the stored run contradicts the run in
// memory, or this process has lost the lease. After any other error the run is left and can continue later, for example if the codec needs a
// service that cannot be reached now.
func lasting(err error) bool {
	for _, kind := range []error{ErrFenced, ErrUnknownRun, store.ErrReadinessOverflow, ErrRejected, ErrNotEncodable, errRefused} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}

// errRefused is the error of a write that the store received and did not apply.
var errRefused = errors.New("the store did not apply a write")

// write encodes a transaction and passes it to the store. It repeats a failed write until the lease expires, except after a lasting error or
// ErrUnusable. It does not repeat the first write of a life: no step was called before this write, so no work is lost.
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
			return fmt.Errorf("%w: %w: its answer was %v", ErrStore, errRefused, applied)
		case lasting(err) || errors.Is(err, ErrUnusable) || !r.repeats(asked, pause):
			return fmt.Errorf("%w: %w", ErrStore, err)
		}
	}
}

// The method `repeats` waits for the pause after a failed write, and reports whether to repeat the write. The first write of a life is not
// repeated. A later write is repeated until the lease expires, but for at most leaseTime, even if the lease is renewed.
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

// A committer keeps its buffer for the next transaction only if the buffer has at most maxScratch bytes.
const maxScratch = 64 << 10

// encode encodes the records of a transaction. The transaction owns its nodes, but not the values inside them.
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
		labels := tx.commit.Spec.Labels // the labels of the run when the transaction was taken
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

// hasValues reports whether the records of a transaction contain a value or an error that is not text yet.
func (tx *transaction) hasValues() bool {
	for i := range tx.nodes {
		if !tx.nodes[i].isText() {
			return true
		}
	}
	return len(tx.outputs) > 0
}

// isText reports whether the record can be encoded without the codec: it contains no error, and no value except an output whose text is known.
func (n *nodeState) isText() bool {
	return (n.Value == nil || n.Value.raw != nil) && n.Saved == nil && n.Signal == nil && n.List == nil && n.Merged == nil && n.Wait == nil && n.Inside == nil && n.Former == nil &&
		n.Err == nil && n.LastErr == nil && n.GuardErr == nil && n.StopErr == nil && n.Refused == nil && n.Errs == nil
}

// encodeValues encodes the values and errors in the records of a transaction as text.
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
		n.Inside, n.Former = n.Inside.clone(), n.Former.clone()
		visit.node(n, tx.places[i].run.prefix)
		n.renderErrors()
	}
	for i := range tx.outputs {
		visit(tx.outputs[i].path, &tx.outputs[i].value)
	}
	return errors.Join(errs...)
}

// encodeNodes encodes the records of a transaction into one block of memory.
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
	memory := slices.Clone(w.Data) // the store owns the clone
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

// The function `cut` splits the memory after n bytes. The result part is nil if n is 0.
func cut(memory []byte, n int) (part, rest []byte) {
	if n == 0 {
		return nil, memory
	}
	return memory[:n:n], memory[n:]
}

// encodeHeader encodes the record of the run. It encodes the payload of the trigger only once.
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

// StoreEvents stores the events of a durable run in its store, see [Durable]. The transaction that writes a fact also writes the event that reports
// the fact. So the stored log agrees with the stored run, whenever the process dies. The ids in the log have no gap, even if several processes
// perform the run one after the other. Any process can read the log, during the run and afterwards: see [store.ReadEvents] and [store.OpenEvents].
//
// Deltas and logs change nothing in the stored run, so they wait in memory for the next transaction. If no transaction follows within 50 ms, they are
// written alone, as soon as no other transaction is being written. Sinks, [Run.Events] and readers of the store see an event only when it is written.
// So a crash loses only events that no reader has seen.
//
// The store must implement [store.EventStore]. A codec that is or wraps a [store.Sealed] must have EventsInClear. Otherwise no run begins, and the
// error matches [ErrBadOption]. If a run has stored events, it also stores its further events when it is continued without the option. If a run
// began without the option, the log begins when the run is first continued with it. Events are unencrypted JSON with signals, errors, and the
// chunks and logs of steps. [EventOutputs] determines which outputs they contain.
func StoreEvents() Option {
	return optionFunc(func(c *config) error { c.storeEvents = true; return nil })
}

// eventDelay is how long deltas and logs wait for a transaction before they cause one.
const eventDelay = 50 * time.Millisecond

// eventWriter puts the events of a run into its transactions. The run's lock guards it.
//
// Deltas and logs have no change in the outbox, so they wait for the next transaction. When they have waited for eventDelay, the outbox becomes due,
// and this causes a transaction. Every other event has a change in the outbox, so the next transaction covers it.
type eventWriter struct {
	root  *Run
	last  uint64 // the id of the last event that is in a transaction
	maker *eventMaker
	delay timer // the timer of postpone; nil if no deltas or logs are waiting; root.timers counts it until it fires or is stopped
}

// checkEvents returns an error if StoreEvents is set and the store or the codec does not support it.
func (c *config) checkEvents() error {
	if !c.storeEvents {
		return nil
	}
	if c.store == nil {
		return fmt.Errorf("%w: StoreEvents is for a durable run: see Durable", ErrBadOption)
	}
	if _, ok := c.store.(store.EventStore); !ok {
		return fmt.Errorf("%w: StoreEvents: %T does not implement store.EventStore", ErrBadOption, c.store)
	}
	if err := store.CheckEvents(c.codec); err != nil {
		return fmt.Errorf("%w: StoreEvents: %w", ErrBadOption, err)
	}
	return nil
}

// eventWriter returns the writer of an acquired run's events, or nil if they are not stored.
func (r *Run) eventWriter(stored *store.Run) (*eventWriter, error) {
	if stored.LastEvent == 0 && !r.cfg.storeEvents {
		return nil, nil
	}
	if _, ok := r.cfg.store.(store.EventStore); !ok {
		return nil, fmt.Errorf("%w: the events of run %s are stored, and %T does not implement store.EventStore", ErrBadOption, quoteID(r.ID()), r.cfg.store)
	}
	if err := store.CheckEvents(r.cfg.codec); err != nil {
		return nil, fmt.Errorf("%w: the events of run %s are stored: %w", ErrBadOption, quoteID(r.ID()), err)
	}
	return &eventWriter{root: r}, nil
}

// begin sets the field last to the id of the last event before this life.
func (w *eventWriter) begin(last uint64) {
	if w != nil {
		w.last = last
	}
}

// postpone makes the outbox due after eventDelay. It is called for an event that has no change in the outbox.
func (w *eventWriter) postpone() {
	d := w.root.durable
	if w.delay != nil || d.failed != nil {
		return
	}
	var own timer
	w.root.timers++
	own = w.root.startTimer(eventDelay, func() {
		w.root.callback(func(int64) {
			if w.delay == own { // if the timers differ, a transaction already has the events
				w.delay, d.outbox.due = nil, d.failed == nil
			}
		})
	})
	w.delay = own
}

// The method `arrive` ends the delay, since a transaction is being taken or the store has failed.
func (w *eventWriter) arrive() {
	if w == nil || w.delay == nil {
		return
	}
	if w.delay.Stop() {
		w.root.timers--
	}
	w.delay = nil
}

// take drafts the events up to the given id that are in no transaction yet. The caller holds the run's lock: once it releases the lock, a failure
// of the store may take back the ends of nodes that these events report.
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

// encodeEvents encodes the events of a transaction into its commit. It calls user code, so the caller does not hold the run's lock.
func (r *Run) encodeEvents(tx *transaction) error {
	for i := range tx.events {
		e := &tx.events[i]
		e.Payload = r.withOutput(e.Payload)
		data, err := e.MarshalStored()
		if err != nil { // JSON cannot represent a time in the payload
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

// A store refuses the output of a step when the committer writes the transaction with the output. By then the run has continued in memory, so this
// life cannot fail the node any more. Instead the committer finds out which output the store refuses, and marks the record of that node. Then it
// leaves the run as after an outage: the transaction counts as not written. The next life of the run first fails the node, like a node that has
// crashed too often.

// The method `refuse` marks the nodes whose outputs the store refuses, and reports whether there are any. The committer calls refuse, without the
// run's lock, for a transaction that was not applied.
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
					err = fmt.Errorf("%w: its answer was %v", errRefused, applied)
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
		if n.Value == nil || n.Inside != nil || e.ended == 0 {
			continue // only a step whose start is in the store and whose output is new can be set back to running
		}
		before, key := r.beforeEnd(n, at, e.ended), at.run.key(at.ref)
		switch err := write(&before, key, n.Value.raw); {
		case err == nil:
			err = write(&before, key, nil) // the store accepts the output; it is removed from the record again, since the node has not ended in the store
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

// beforeEnd returns the state of a node before its attempt ended. The parameter `attempt` is the number of this attempt in the store.
func (r *Run) beforeEnd(n *nodeState, at place, attempt int32) nodeState {
	before := *n
	before.Status, before.Value, before.Labels, before.Answer = Running, nil, nil, ""
	before.Settled, before.Started, before.End = 0, attempt, before.Start
	before.Event, before.Latest = r.log.lastShown(at.run.scope, at.ref)
	return before
}

// lastShown returns two ids of events that are not hidden: `last`, the id of the last event, and `of`, the id of the node's last event. For `of`,
// deltas and logs do not count.
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

// storedUndos are the stored records of undoing, by the key of the undone node.
type storedUndos map[string]*undoState

// add adds a record. If an attempt is running according to the record, the attempt counts as crashed, since its process has ended.
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

// restore gives each node its record of undoing, and counts by path how often nodes were undone.
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
		if s.Status == CompensationDone && !s.Inside {
			file.Undone[pathOfKey(key)]++
		}
	}
}

// takeUndos returns the records of undoing that a redrive removes. For a path in the list `failed`, these are the records of failed undoings. For a
// path in the list `around`, these are the records that sum up the compensations inside a composite.
func takeUndos(stored map[string]store.Node, failed, around []string) (back takenBack) {
	paths := map[string]bool{} // by path: whether the path is in the list `around`
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
		if any, known := paths[pathOfKey(of)]; known && (any && stored[key].Status != Completed || !any && stored[key].Status == Failed) {
			back.keys = append(back.keys, key)
		}
	}
	return back
}

// fillPast sets the field Past of a loop: its earlier iterations and the nodes inside them.
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
