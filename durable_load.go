package kahn

import (
	"context"
	"encoding"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/seed-c794f7ef/kahn/store"
)

// restoreStored builds a restoration from the records of a store.
func (r *Run) restoreStored(stored *store.Run) (*restoration, error) {
	if stored.Status.Terminal() && !r.cfg.reads && !r.cfg.redrive {
		return nil, fmt.Errorf("%w: run %s is %v", ErrFinished, quoteID(stored.ID), stored.Status)
	}
	file, err := fileOf(stored)
	if err != nil {
		return nil, err
	}
	r.cfg.from = &Snapshot{file: file}
	switch given := r.cfg.fired != nil; {
	case given:
		if err := r.firedBefore(file.Fired); err != nil {
			return nil, err
		}
	case file.Fired != nil:
		if err := r.choosePlan(); err != nil {
			return nil, err
		}
	}
	return r.restoration(stored)
}

// fileOf makes a snapshot of a stored run, with the nodes of the outermost graph in the order of their ids.
func fileOf(stored *store.Run) (file snapshotFile, err error) {
	if err := json.Unmarshal(stored.Record, &file); err != nil {
		return file, fmt.Errorf("%w: stored run: %w", ErrBadValue, err)
	}
	if err := checkVersion(file.Version, answersVersion); err != nil {
		return file, fmt.Errorf("%w: stored run %s: %w", ErrBadValue, quoteID(stored.ID), err)
	}
	file.Version = snapshotVersion
	if stored.Inputs != nil { // records of older versions hold them
		if file.Inputs, err = readInputs(stored.Inputs); err != nil {
			return file, err
		}
	}
	file.Nodes, file.counted = nil, file.Deltas
	file.Deltas = maps.Clone(file.Deltas)
	if file.Status = stored.Status; file.Status == RunPending {
		file.Status = RunRunning
	}
	records, outputs, taken := map[string]nodeState{}, map[string]json.RawMessage{}, map[string]answeredState{}
	for key, s := range stored.Nodes {
		if s.Record == nil {
			continue
		}
		var n nodeState
		if err := json.Unmarshal(s.Record, &n); err != nil {
			return file, fmt.Errorf("%w: stored node %s: %w", ErrBadValue, quoteID(key), err)
		}
		if err := n.addColumns(key, &s.Columns); err != nil {
			return file, fmt.Errorf("%w: stored node %s: %w", ErrBadValue, quoteID(key), err)
		}
		if n.Hash != "" && n.ID != key {
			return file, fmt.Errorf("%w: stored node %s: the record is that of %s", ErrBadValue, quoteID(key), quoteID(n.ID))
		}
		switch {
		case n.Collected > 0:
			outputs[key] = s.Value
			continue
		case n.Taken != nil:
			taken[key] = *n.Taken
			continue
		}
		file.LastEvent = max(file.LastEvent, n.Event)
		file.count(key, &n)
		if n.Status == Running && n.Inside == nil && n.Attempts > 0 && n.Refused == nil {
			n.Cut++ // its life has ended without it
			n.Crashes++
		}
		if n.Hash == "" { // it is inside of a composite
			records[key] = n
			continue
		}
		file.Nodes = append(file.Nodes, n)
	}
	if file.LastEvent > stored.LastEvent && stored.LastEvent > 0 {
		return file, fmt.Errorf("%w: stored run %s: its nodes tell of event %d, and the last stored event is %d", ErrBadValue, quoteID(stored.ID), file.LastEvent, stored.LastEvent)
	}
	file.LastEvent = max(file.LastEvent, stored.LastEvent) // deltas and logs have no record that tells
	if err := file.addTaken(taken); err != nil {
		return file, err
	}
	file.restoreEpochs()
	slices.SortFunc(file.Nodes, func(a, b nodeState) int { return strings.Compare(a.ID, b.ID) })
	f := newFiller(records, outputs)
	f.fillIn(file.Nodes, func(n *nodeState) string { return n.ID })
	return file, f.err
}

// addTaken puts the signals with IDs that have records into their order, before those of a former version in the record of the run.
func (file *snapshotFile) addTaken(taken map[string]answeredState) error {
	list, known := make([]answeredState, len(taken), len(taken)+len(file.Answered)), map[int]bool{}
	for key, a := range taken {
		n := signalNumber(key)
		if n < 1 || n > len(list) || known[n] {
			return fmt.Errorf("%w: stored run %s: of its %d records of signals some are missing", ErrBadValue, quoteID(file.Run), len(taken))
		}
		list[n-1], known[n] = a, true
	}
	file.Answered, file.recorded = append(list, file.Answered...), len(taken)
	return nil
}

// count takes the number of deltas from the record of a node. The later attempts of a composite have other keys, and go on counting.
func (file *snapshotFile) count(key string, n *nodeState) {
	deltas := n.Deltas
	if n.Deltas = 0; deltas == 0 {
		return
	}
	if file.Deltas == nil {
		file.Deltas = map[string]int{}
	}
	path := pathOfKey(key)
	file.Deltas[path] = max(file.Deltas[path], deltas)
}

// columns returns what a store keeps of a node. The record, which is what has no column, and after it the hash are in the memory of w, until it
// is written to again.
func (n *nodeState) columns(w *nodeWriter, key string) store.Columns {
	d := store.Columns{Status: n.Status, Cause: n.Cause, Start: n.Start.UTC().Round(0), End: n.End.UTC().Round(0)}
	begin := len(w.Data)
	w.record(n, key)
	end := len(w.Data)
	w.Data = append(w.Data, n.Hash...)
	size, _ := hex.Decode(w.Data[end:], w.Data[end:]) // what [Plan] has made
	w.Data = w.Data[:end+size]
	d.Record, d.Hash = w.Data[begin:end:end], w.Data[end:]
	if n.Value != nil {
		d.Value = n.Value.raw
	}
	return d
}

// addColumns is the reverse of columns for a node that was decoded from the record. In records of older versions the node has an id, and
// the parts are members of the record.
func (n *nodeState) addColumns(key string, d *store.Columns) error {
	if n.ID == "" {
		n.ID = key
	}
	for _, part := range []encoding.TextMarshaler{d.Status, d.Cause, d.Start, d.End} { // a store may return anything
		if _, err := part.MarshalText(); err != nil {
			return err
		}
	}
	n.Status, n.Cause = max(n.Status, d.Status), max(n.Cause, d.Cause)
	if !d.Start.IsZero() {
		n.Start = d.Start
	}
	if !d.End.IsZero() {
		n.End = d.End
	}
	if len(d.Hash) > 0 {
		n.Hash = hex.EncodeToString(d.Hash)
	}
	if d.Value != nil {
		n.Value = &stored{raw: d.Value}
	}
	return nil
}

// filler moves each record into the composite that it is inside of. It needs no plans of composites, since a node may have
// been expanded. Records of former attempts and iterations are left out.
type filler struct {
	nodes map[string][]nodeState // by the prefix of their keys, up to their ids
	items map[string][]nodeState // by the keys of their maps

	outputs map[string]json.RawMessage // that loops have collected, by the keys of the iterations
	err     error                      // one of them is missing
}

func newFiller(records map[string]nodeState, outputs map[string]json.RawMessage) *filler {
	f := &filler{nodes: map[string][]nodeState{}, items: map[string][]nodeState{}, outputs: outputs}
	for _, key := range slices.Sorted(maps.Keys(records)) {
		n := records[key]
		if prefix, ok := strings.CutSuffix(key, n.ID); ok {
			f.nodes[prefix] = append(f.nodes[prefix], n)
		}
		if at := strings.LastIndexByte(key, '['); at >= 0 && strings.HasSuffix(n.ID, key[at:]) {
			f.items[key[:at]] = append(f.items[key[:at]], n)
		}
	}
	return f
}

// fillIn fills the composites among the nodes of a graph, or the items of a map. key is the key of a node in the store.
func (f *filler) fillIn(nodes []nodeState, key func(n *nodeState) string) {
	for i := range nodes {
		n := &nodes[i]
		if n.Inside == nil {
			continue
		}
		f.collect(n, key(n))
		prefix := n.keyInside(key(n))
		if n.Inside.Items > 0 {
			n.Inside.Nodes = slices.Clone(f.items[prefix])
			f.fillIn(n.Inside.Nodes, func(item *nodeState) string { return prefix + item.ID[strings.LastIndexByte(item.ID, '['):] })
			continue
		}
		n.Inside.Nodes = withoutItems(f.nodes[prefix])
		f.fillIn(n.Inside.Nodes, func(n *nodeState) string { return prefix + n.ID })
		if n.expanded() && !n.Status.Terminal() {
			n.Inside.placeSignals()
		}
	}
}

// collect fills in the outputs of the iterations of a loop that goes on, if it collects them.
func (f *filler) collect(n *nodeState, key string) {
	in := n.Inside
	if n.Status.Terminal() {
		return
	}
	var list []stored
	for i := 1; i < in.Iteration; i++ {
		if v := f.outputs[collectedKey(key, n.Attempts, i)]; v != nil {
			list = append(list, stored{raw: v})
		}
	}
	switch len(list) {
	case 0: // it does not collect them, or a former version has written them
	case in.Iteration - 1:
		in.Collected, in.apart = list, len(list)
	default:
		f.err = fmt.Errorf("%w: stored node %s: it has the outputs of %d of %d iterations", ErrBadValue, quoteID(key), len(list), in.Iteration-1)
	}
}

// withoutItems leaves out the items of the maps among the nodes of a graph: no other node of it has an id like theirs.
func withoutItems(nodes []nodeState) (list []nodeState) {
	lists := map[string]bool{}
	for i := range nodes {
		if n := &nodes[i]; n.Inside != nil && n.Inside.Items > 0 {
			lists[n.ID] = true
		}
	}
	for _, n := range nodes {
		if at := strings.LastIndexByte(n.ID, '['); at < 0 || !lists[n.ID[:at]] {
			list = append(list, n)
		}
	}
	return list
}

// keyInside is the prefix of the keys of the nodes inside of the composite with the given key. A later attempt repeats
// paths, and a store keeps what was completed: so the keys of a later attempt differ.
func (n *nodeState) keyInside(key string) string {
	return keyInside(key, n.Attempts, n.Inside.Iteration, n.Inside.Items > 0)
}

// tryMark precedes the number of an attempt in a key: no path has letters after this sign.
const tryMark = "#try"

// pathOfKey is the path of the node with a key in the store: the key without the attempts of composites.
func pathOfKey(key string) string {
	before, rest, found := strings.Cut(key, tryMark)
	if !found {
		return key
	}
	var path strings.Builder
	for path.WriteString(before); found; path.WriteString(before) {
		before, rest, found = strings.Cut(strings.TrimLeft(rest, "0123456789"), tryMark)
	}
	return path.String()
}

func keyInside(key string, attempt int32, iteration int, items bool) string {
	if attempt > 1 {
		key = fmt.Sprintf("%s"+tryMark+"%d", key, attempt)
	}
	switch {
	case items:
		return key // and [index]
	case iteration > 0:
		return fmt.Sprintf("%s#%d/", key, iteration)
	}
	return key + "/"
}

// collectedKey is the key of the output of an iteration that a loop has collected.
func collectedKey(key string, attempt int32, iteration int) string {
	return strings.TrimSuffix(keyInside(key, attempt, iteration, false), "/")
}

// key is the key of a node in the store: its path, with the attempts of composites after the first.
func (r *Run) key(ref Ref) string {
	id := r.plan.names[ref]
	switch {
	case r.outer == nil:
		return id
	case r.items != nil:
		id = id[len(r.plan.itemOf):]
	}
	return r.keys + id
}

// setKeys computes the prefix of the keys of a nested run's nodes.
func (r *Run) setKeys() {
	if r.durable = r.outer.durable; r.durable != nil {
		r.keys = keyInside(r.outer.key(r.within.ref), r.within.attempt, r.iteration, r.items != nil)
	}
}

// acquire takes the lease of the run, and builds the restoration from the records of the store.
func (r *Run) acquire() (x *restoration, err error) {
	switch {
	case r.cfg.fork:
		return r.acquireFork()
	case r.cfg.redrive:
		if _, err := load(r.ctx, r.cfg.store, r.ID()); err != nil { // Acquire would make the run
			return nil, err
		}
	}
	stored, err := r.takeLease()
	if err != nil {
		return nil, err
	}
	given := r.cfg.inputs != nil
	switch {
	case stored.Sequence > 0:
		if err = r.sameWorkflow(stored); err == nil {
			x, err = r.restoreStored(stored)
		}
		if err == nil {
			r.durable.inbox.restore(x.file.Ahead)
		}
	case r.cfg.redrive || r.cfg.served && stored.Plan == "" && stored.Workflow == "": // it was taken out of the store a moment ago
		err = fmt.Errorf("%w: %s", ErrUnknownRun, quoteID(r.ID()))
	default:
		err, given = r.adopt(stored), false
	}
	r.specify(&stored.Spec, given)
	return x, err
}

// takeLease takes the lease of the run, and returns what is stored of it.
func (r *Run) takeLease() (stored *store.Run, err error) {
	r.plan.Hash() // calls user code (MarshalJSON), so not later, under the lock
	d := &durable{store: r.cfg.store, outbox: newTransaction(), open: map[place]int32{}, stored: map[place]storedStatus{}, bounds: defaultBounds}
	if most := r.cfg.bounds; most != nil {
		d.bounds = *most
	}
	d.ctx, d.cancel = context.WithCancel(context.WithoutCancel(r.ctx))
	asked := time.Now()
	err = guarded(func() (err error) {
		d.lease, stored, err = d.store.Acquire(r.ctx, r.ID(), r.cfg.leaseOwner(), r.cfg.leaseTime)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrStore, err)
	}
	r.durable, d.expires = d, asked.Add(r.cfg.leaseTime)
	d.endHold = r.holdLease()
	if stored == nil {
		stored = new(store.Run)
	}
	d.sequence, d.status, d.stale = stored.Sequence, stored.Status, stored.Sequence == 0
	if d.events, err = r.eventWriter(stored); err == nil {
		err = r.openInbox(stored)
	}
	return stored, err
}
