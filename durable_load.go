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

	"github.com/seed-c794f7ef/kahn/machine"
	"github.com/seed-c794f7ef/kahn/store"
)

// restoreStored builds a restoration from the stored run.
func (r *Run) restoreStored(stored *store.Run) (*restoration, error) {
	if stored.Status.Terminal() && !r.cfg.reads && !r.cfg.redrive {
		return nil, fmt.Errorf("%w: run %s is %v: see ReadResult and Redrive, or give another RunID", ErrFinished, quoteID(stored.ID), stored.Status)
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
		// The host gave no trigger to this life, but the run's record contains one. choosePlan reduces the plan to the nodes to which this trigger
		// leads. It is called now, because restoration looks up the stored nodes in the reduced plan.
		if err := r.choosePlan(); err != nil {
			return nil, err
		}
	}
	return r.restoration(stored)
}

// fileOf returns a snapshot of a stored run, with the nodes of the outermost graph in the order of their ids.
func fileOf(stored *store.Run) (file snapshotFile, err error) {
	if err := json.Unmarshal(stored.Record, &file); err != nil {
		return file, fmt.Errorf("%w: stored run: %w", ErrBadValue, err)
	}
	if err := checkVersion(file.Version, snapshotVersion, answersVersion, undoVersion); err != nil {
		return file, fmt.Errorf("%w: stored run %s: %w", ErrBadValue, quoteID(stored.ID), err)
	}
	file.Version = snapshotVersion
	if stored.Inputs != nil { // if it is nil, an older version may have stored the inputs in the record
		if file.Inputs, err = readInputs(stored.Inputs); err != nil {
			return file, err
		}
	}
	file.Nodes, file.counted, file.undone = nil, file.Deltas, file.Undone
	file.Deltas = maps.Clone(file.Deltas)
	if file.Status = stored.Status; file.Status == RunPending {
		file.Status = RunRunning
	}
	var undos storedUndos
	f := newFiller(len(stored.Nodes))
	taken := map[string]answeredState{}
	for key, s := range stored.Nodes {
		if s.Record == nil {
			continue
		}
		n := f.next()
		if err := json.Unmarshal(s.Record, n); err != nil {
			return file, fmt.Errorf("%w: stored node %s: %w", ErrBadValue, quoteID(key), err)
		}
		if err := n.addColumns(key, &s.Columns); err != nil {
			return file, fmt.Errorf("%w: stored node %s: %w", ErrBadValue, quoteID(key), err)
		}
		if n.Hash != "" && n.ID != key {
			return file, fmt.Errorf("%w: stored node %s: the record belongs to %s", ErrBadValue, quoteID(key), quoteID(n.ID))
		}
		switch {
		case n.Listed:
			f.lists[key] = s.Value
			continue
		case n.Collected > 0:
			f.outputs[key] = s.Value
			continue
		case n.Taken != nil:
			taken[key] = *n.Taken
			continue
		}
		file.LastEvent = max(file.LastEvent, n.Event)
		if n.Undo != nil {
			n.Undo.Inside = n.Status == Skipped
			undos.add(key, n.Undo)
			continue
		}
		file.count(key, n)
		if n.Status == Running && n.Inside == nil && n.Attempts > 0 && n.Refused == nil {
			n.Cut++ // an earlier life began the attempt, and ended before the attempt's result was stored
			n.Crashes++
		}
		f.take(key)
	}
	if file.LastEvent > stored.LastEvent && stored.LastEvent > 0 {
		return file, fmt.Errorf("%w: stored run %s: its nodes refer to event %d, and the last stored event is %d", ErrBadValue, quoteID(stored.ID), file.LastEvent, stored.LastEvent)
	}
	// The run's last event may be a delta or a log message. No node's record contains the id of such an event.
	file.LastEvent = max(file.LastEvent, stored.LastEvent)
	if err := file.addTaken(taken); err != nil {
		return file, err
	}
	undos.restore(&file, f)
	f.sort()
	file.Nodes = f.of[siblings{outermost: true}]
	f.fillIn(file.Nodes, func(n *nodeState) string { return n.ID })
	restoreEpochs(file.Nodes, file.Kept)
	return file, f.err
}

// addTaken sets file.Answered. First come the signals that have records of their own, ordered by the numbers in the keys of the records. Then come
// the signals that a former version stored in the record of the run.
func (file *snapshotFile) addTaken(taken map[string]answeredState) error {
	list, known := make([]answeredState, len(taken), len(taken)+len(file.Answered)), map[int]bool{}
	for key, a := range taken {
		n := signalNumber(key)
		if n < 1 || n > len(list) || known[n] {
			return fmt.Errorf("%w: stored run %s: its %d records of signals are not numbered from 1 to %d", ErrBadValue, quoteID(file.Run), len(taken), len(list))
		}
		list[n-1], known[n] = a, true
	}
	file.Answered, file.recorded = append(list, file.Answered...), len(taken)
	return nil
}

// The method `count` moves the number of deltas from the record of a node to the snapshot file, which counts by path. If a composite is attempted
// again, the nodes inside get other keys but keep their paths, so they continue the count.
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

// The method `columns` returns the stored columns of a node. The record contains every field that has no column of its own. The columns Record
// and Hash use the memory of the writer w, and are valid until w is used again.
func (n *nodeState) columns(w *nodeWriter, key string) store.Columns {
	d := store.Columns{Status: n.Status, Cause: n.Cause, Start: n.Start.UTC().Round(0), End: n.End.UTC().Round(0)}
	begin := len(w.Data)
	w.record(n, key)
	end := len(w.Data)
	w.Data = append(w.Data, n.Hash...)
	size, _ := hex.Decode(w.Data[end:], w.Data[end:]) // Decode cannot fail, since the Plan has encoded the hash
	w.Data = w.Data[:end+size]
	d.Record, d.Hash = w.Data[begin:end:end], w.Data[end:]
	if n.Value != nil {
		d.Value = n.Value.raw
	}
	return d
}

// addColumns adds the columns to a node that was decoded from its record. A record of an older version also contains the id of the node and the
// data of the columns.
func (n *nodeState) addColumns(key string, d *store.Columns) error {
	if n.ID == "" {
		n.ID = key
	}
	for _, part := range []encoding.TextMarshaler{d.Status, d.Cause, d.Start, d.End} { // MarshalText returns an error only for values that a faulty store returns
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

// filler moves the record of each node inside a composite into the record of the composite. It works without the plans of composites, since the
// graph of an expanded node is unknown. It omits the records of former attempts. It also omits the records of former iterations, unless nodes
// inside may have to be undone. All records are in one slice. In this slice the nodes of a graph are adjacent, and so are the items of a map.
type filler struct {
	nodes []nodeState
	keys  []string // by index in the field nodes: the key of the node in the store
	of    map[siblings][]nodeState

	outputs map[string]json.RawMessage // the outputs that loops have collected, by collectedKey
	lists   map[string]json.RawMessage // the lists of maps, by listKey
	err     error                      // not nil if the store lacks outputs that a loop has collected
}

// The type `siblings` identifies the nodes of one graph by the prefix of their keys, or the items of one map by the part of their keys before the
// index.
type siblings struct {
	prefix           string
	items, outermost bool
}

func newFiller(records int) *filler {
	return &filler{nodes: make([]nodeState, 0, records), of: map[siblings][]nodeState{}, outputs: map[string]json.RawMessage{}, lists: map[string]json.RawMessage{}}
}

// The method `next` returns the memory for the next record. If the record belongs to a node, the caller then calls the method `take`, which adds
// the record to f.nodes. Otherwise the next record gets the same memory.
func (f *filler) next() *nodeState {
	n := &f.nodes[:len(f.nodes)+1][len(f.nodes)]
	*n = nodeState{}
	return n
}

func (f *filler) take(key string) {
	f.nodes, f.keys = f.nodes[:len(f.nodes)+1], append(f.keys, key)
}

// The method `sort` groups the nodes by graph and the items by map. Each group is in the order of the keys.
func (f *filler) sort() {
	maps, begun := map[string]bool{}, map[string]bool{} // `maps`: the keys of the maps that have begun; `begun`: the prefixes of their items' keys
	for i := range f.nodes {
		if n := &f.nodes[i]; n.Inside != nil && n.Inside.Items > 0 {
			maps[f.keys[i]], begun[n.keyInside(f.keys[i])] = true, true
		}
	}
	order := make([]int32, len(f.nodes))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortFunc(order, func(a, b int32) int { return strings.Compare(f.keys[a], f.keys[b]) })
	numbers, sizes := map[siblings]int32{{}: 0}, []int32{0} // number 0 stands for the omitted records
	numberOf := make([]int32, len(f.nodes))
	for _, i := range order {
		of := f.siblingsOf(i, maps, begun)
		number, known := numbers[of]
		if !known {
			number = int32(len(sizes))
			numbers[of], sizes = number, append(sizes, 0)
		}
		numberOf[i] = number
		sizes[number]++
	}
	ends := slices.Clone(sizes) // by group: the index for the next record; when all records have an index, the end of the group
	begin := int32(0)
	for number, size := range sizes {
		ends[number], begin = begin, begin+size
	}
	at := make([]int32, len(f.nodes))
	for _, i := range order {
		at[i] = ends[numberOf[i]]
		ends[numberOf[i]]++
	}
	moveTo(f.nodes, at)
	for of, number := range numbers {
		end := ends[number]
		f.of[of] = f.nodes[end-sizes[number] : end : end]
	}
	delete(f.of, siblings{})
}

// siblingsOf returns the siblings to which a record belongs, or the zero value if the record is omitted.
func (f *filler) siblingsOf(i int32, maps, begun map[string]bool) siblings {
	n, key := &f.nodes[i], f.keys[i]
	if n.Hash != "" { // only nodes of the outermost graph have a hash
		return siblings{outermost: true}
	}
	if at := strings.LastIndexByte(key, '['); at >= 0 && strings.HasSuffix(n.ID, key[at:]) {
		switch {
		case begun[key[:at]]:
			return siblings{prefix: key[:at], items: true}
		case maps[key[:at]]: // the record belongs to an item in an earlier attempt of the map, since no other node of the graph has such an id
			return siblings{}
		}
	}
	prefix, ok := strings.CutSuffix(key, n.ID)
	if !ok {
		return siblings{}
	}
	return siblings{prefix: prefix}
}

// fillIn sets Inside.Nodes of each composite among the given nodes, and continues with the composites inside. The given nodes are the nodes of one
// graph or the items of one map. key(n) is the key of node n in the store.
func (f *filler) fillIn(nodes []nodeState, key func(n *nodeState) string) {
	for i := range nodes {
		n := &nodes[i]
		if list := f.lists[listKey(key(n))]; list != nil {
			n.List, n.apart = &stored{raw: list}, true
		}
		if f.fillFormer(n, key(n)); n.Inside == nil {
			continue
		}
		f.collect(n, key(n))
		prefix := n.keyInside(key(n))
		if n.Inside.Items > 0 {
			n.Inside.Nodes = f.of[siblings{prefix: prefix, items: true}]
			f.fillIn(n.Inside.Nodes, func(item *nodeState) string { return prefix + item.ID[strings.LastIndexByte(item.ID, '['):] })
			continue
		}
		if n.Inside.Undoes {
			f.fillPast(n, key(n))
		}
		n.Inside.Nodes = f.of[siblings{prefix: prefix}]
		f.fillIn(n.Inside.Nodes, func(n *nodeState) string { return prefix + n.ID })
		if n.expanded() && !n.Status.Terminal() {
			n.Inside.placeSignals()
		}
	}
}

// fillFormer fills in the nodes of the last attempt's nested run.
func (f *filler) fillFormer(n *nodeState, key string) {
	if n.Former == nil || n.Former.Inside == nil {
		return
	}
	prefix := keyInside(key, n.Attempts, 0, false)
	n.Former.Inside.Nodes = slices.Clone(f.of[siblings{prefix: prefix}])
	f.fillIn(n.Former.Inside.Nodes, func(n *nodeState) string { return prefix + n.ID })
}

// collect fills in the collected outputs of a loop's earlier iterations, if the loop continues and collects outputs.
func (f *filler) collect(n *nodeState, key string) {
	in := n.Inside
	var list []stored
	for i := 1; i < in.Iteration; i++ {
		if v := f.outputs[collectedKey(key, n.Attempts, i)]; v != nil {
			list = append(list, stored{raw: v})
		}
	}
	switch len(list) {
	case 0: // the loop does not collect outputs, or a former version wrote the run
	case in.Iteration - 1:
		in.Collected, in.apart = list, len(list)
	default:
		f.err = fmt.Errorf("%w: stored node %s: the store has the outputs of %d of the loop's %d past iterations", ErrBadValue, quoteID(key), len(list), in.Iteration-1)
	}
}

// keyInside returns the prefix of the keys of the nodes inside a composite. The argument is the composite's own key. If the composite is attempted
// again, the nodes inside keep their paths and get other keys, since the store still contains their records from the earlier attempt.
func (n *nodeState) keyInside(key string) string {
	return keyInside(key, n.Attempts, n.Inside.Iteration, n.Inside.Items > 0)
}

// pathOfKey returns the path of the node with the given key. The path is the key without the attempt numbers of composites.
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
		return key // the caller appends [index]
	case iteration > 0:
		return fmt.Sprintf("%s#%d/", key, iteration)
	}
	return key + "/"
}

// listKey returns the key of the list of a map.
func listKey(key string) string { return key + "[]" }

// collectedKey returns the key of the output of an iteration, for a loop that collects outputs.
func collectedKey(key string, attempt int32, iteration int) string {
	return strings.TrimSuffix(keyInside(key, attempt, iteration, false), "/")
}

// The method `key` returns the key of a node in the store: its path, with the attempt number of each enclosing composite that is not in its first
// attempt.
func (r *Run) key(ref machine.Ref) string {
	id := r.plan.names[ref]
	switch {
	case r.outer == nil:
		return id
	case r.items != nil:
		id = id[len(r.plan.itemOf):]
	}
	return r.keys + id
}

// setKeys sets the field `keys` of a nested run with a store: the prefix of the keys of all its nodes.
func (r *Run) setKeys() {
	if r.durable != nil {
		r.keys = keyInside(r.outer.key(r.within.ref), r.within.attempt, r.iteration, r.items != nil)
	}
}

// acquire takes the lease of the run, and builds the restoration from the stored run.
func (r *Run) acquire() (x *restoration, err error) {
	switch {
	case r.cfg.fork:
		return r.acquireFork()
	case r.cfg.redrive:
		if _, err := load(r.ctx, r.cfg.store, r.ID()); err != nil { // for an unknown run, load returns an error, but Acquire would create the run
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
		switch err = r.sameWorkflow(stored); {
		case err != nil:
		case stored.Status.Terminal() && !r.cfg.redrive && r.durable.inbox.asksRedrive():
			x, err = r.restoreAsked(stored)
		default:
			if x, err = r.restoreStored(stored); err == nil {
				r.durable.inbox.restore(x.file.Ahead)
				r.refuseRedrives()
			}
		}
	case r.cfg.redrive || r.cfg.served && stored.Plan == "" && stored.Workflow == "": // the run was removed before this process acquired the lease
		err = fmt.Errorf("%w: %s", ErrUnknownRun, quoteID(r.ID()))
	default:
		if err, given = r.adopt(stored), false; err == nil {
			err = r.askAdmission(stored)
		}
	}
	r.specify(&stored.Spec, given)
	return x, err
}

// askAdmission calls Service.Admit for a stored run that has not begun and whose lease this process holds.
func (r *Run) askAdmission(created *store.Run) error {
	c := r.cfg
	if c.admission == nil {
		return nil
	}
	head := *created
	head.Labels, head.Nodes = maps.Clone(created.Labels), nil
	ctx, cancel := context.WithTimeout(r.ctx, c.leaseTime)
	defer cancel()
	err := contain(func() (err error) {
		c.refused, err = c.admission(ctx, &head)
		return err
	})
	if err != nil {
		return fmt.Errorf("the function Admit: %w", bounded(err))
	}
	c.described().Labels = head.Labels
	return nil
}

// takeLease takes the lease of the run, and returns the stored run.
func (r *Run) takeLease() (stored *store.Run, err error) {
	r.plan.Hash() // the first call of Hash calls user code (MarshalJSON), so it must not come later, under the run's lock
	d := &durable{store: r.cfg.store, outbox: newTransaction(), open: map[place]int32{}, stored: map[place]storedStatus{}, bounds: defaultBounds}
	if most := r.cfg.bounds; most != nil {
		d.bounds = *most
	}
	d.ctx, d.cancel = context.WithCancel(context.WithoutCancel(r.ctx))
	asked := time.Now()
	err = guarded(func() (err error) {
		if t := r.cfg.turn; t != nil {
			d.lease, stored, err = t.store.AcquireTurn(r.ctx, r.ID(), r.cfg.leaseOwner(), r.cfg.leaseTime, t.Turn)
			return err
		}
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
	d.sequence, d.status, d.undoing, d.used, d.stale = stored.Sequence, stored.Status, stored.Compensation, stored.Usage, stored.Sequence == 0
	if d.events, err = r.eventWriter(stored); err == nil {
		err = r.openInbox(stored)
	}
	return stored, err
}

// acquireFork is acquire for a fork. The store may already contain the fork.
func (r *Run) acquireFork() (*restoration, error) {
	forked := r.cfg.from.file.Run
	x, err := r.restoration(nil)
	if err != nil {
		return nil, err
	}
	if err := r.keepGiven(); err != nil { // the fork gets the inputs of the original run
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
	case stored.Sequence == 0 && stored.Workflow == "" && stored.Plan == "": // no process has created the fork
	case file.Forked != forked:
		return nil, fmt.Errorf("%w: run %s is not a fork of run %s", ErrDuplicateRun, quoteID(stored.ID), quoteID(forked))
	default:
		r.cfg.fork = false
		if x, err = r.restoreStored(stored); err != nil {
			return nil, err
		}
	}
	r.specify(&stored.Spec, false)
	return x, nil
}

// The method `keep` puts the nodes that a fork keeps, and the nodes inside them, into the outbox.
func (d *durable) keep(h *held) {
	for i, ref := range h.refs {
		e := d.pending(place{h.run, ref})
		if !h.nodes[i].Status.Terminal() { // the node is a composite that continues
			e.change()
			continue
		}
		e.end()
		d.resolve(h.run, ref)
	}
	for _, in := range h.inside {
		if in.begun() {
			d.keep(in)
		}
	}
}

// takenBack lists what a redrive removes from the store.
type takenBack struct {
	keys    []string          // the keys of the removed records: of the nodes that run again and of the nodes inside them
	counts  []store.Readiness // the changes to the counters of nodes that run again, and of kept nodes that follow such a node
	started []store.Attempt   // attempts that continue; their starts are written again, since removing a node's record also removes the starts
	undone  []string          // the paths of undone nodes: one path for each removed record of a finished undoing

	fates map[string]fate // by key: the fate of the node; only needed until the field keys is filled
}

// takeBack lists what a redrive removes from the store. The given nodes are the stored nodes of the outermost graph.
func (a *again) takeBack(nodes []nodeState, stored map[string]store.Node) (back takenBack) {
	back.fates = map[string]fate{}
	back.level(a, nodes, "", stored)
	for _, key := range slices.Sorted(maps.Keys(stored)) {
		back.take(key, stored[key])
	}
	back.fates = nil
	return back
}

// take adds the key of a record, unless the redrive keeps the record.
func (back *takenBack) take(key string, n store.Node) {
	if !back.takes(key) {
		return
	}
	back.keys = append(back.keys, key)
	if of, undo := strings.CutSuffix(key, undoMark); undo && n.Status == Completed {
		back.undone = append(back.undone, pathOfKey(of))
	}
}

// takeBackInside is takeBack for the nodes inside the expanded node with the given key. If the receiver is the zero value, it lists all records of
// nodes inside.
func (a *again) takeBackInside(n *nodeState, key string) (back takenBack) {
	prefix := n.keyInside(key)
	back.fates = map[string]fate{}
	if a.plan != nil {
		back.level(a, n.Inside.Nodes, prefix, n.stored)
	}
	for _, key := range slices.Sorted(maps.Keys(n.stored)) {
		if strings.HasPrefix(key, prefix) {
			back.take(key, n.stored[key])
		}
	}
	return back
}

// fate determines what a redrive does with a node's record in the store.
type fate uint8

const (
	fateKept  fate = iota + 1
	fateAnew       // the node's record is removed, with the records of the nodes inside
	fateAgain      // only the node's own record is removed
)

// The method `takes` reports whether the redrive removes the record with this key. A record whose node is not in the plan is also removed, see Adopt.
func (back *takenBack) takes(key string) bool {
	if f := back.fates[strings.TrimSuffix(key, undoMark)]; f != 0 {
		return f != fateKept
	}
	for i := len(key) - 1; i > 0; i-- {
		if strings.IndexByte("/[#", key[i]) < 0 {
			continue
		}
		if f := back.fates[key[:i]]; f != 0 {
			return f == fateAnew
		}
	}
	return true
}

// The method `level` sets the fates of the nodes of one graph and of the nodes inside them, and records how the counters of these nodes change. The
// keys of the graph's nodes begin with prefix.
func (back *takenBack) level(a *again, nodes []nodeState, prefix string, stored map[string]store.Node) {
	p := a.plan
	at := p.found(nodes)
	fates, keys := make([]fate, len(at)), make([]string, len(at))
	for r := range at {
		keys[r] = prefix + p.names[r][len(p.itemOf):]
		switch {
		case a.runs[r]:
			fates[r] = fateAnew
		case a.inside[machine.Ref(r)] != nil && stored[keys[r]].Terminal:
			fates[r] = fateAgain
		default:
			fates[r] = fateKept
		}
		back.fates[keys[r]] = fates[r]
	}
	// The store removes the counter of a node together with the node's record. So the counter of a node that runs again begins at zero, and the
	// kept predecessors must be counted again.
	for r := range at {
		if machine.Ref(r) == p.end {
			continue // the end node has no counter: it waits for all nodes, not for certain predecessors
		}
		sources := p.net.In(machine.Ref(r))
		c := store.Readiness{Node: keys[r], Required: len(sources)}
		for _, i := range sources {
			from := p.net.Source(i)
			switch ended := stored[keys[from]].Terminal; {
			case !ended:
			case fates[r] != fateKept && fates[from] == fateKept:
				c.By++
			case fates[r] == fateKept && fates[from] != fateKept:
				c.By--
			}
		}
		if c.By != 0 {
			back.counts = append(back.counts, c)
		}
	}
	for _, ref := range slices.Sorted(maps.Keys(a.inside)) {
		in, n, key := a.inside[ref], at[ref], keys[ref]
		if loop := p.node(ref).Loop; loop != nil && !n.expanded() { // the outputs from the iteration that continues onwards are collected again
			for k := max(in.back, 1); in.back > 0 && k <= n.Inside.Iteration; k++ {
				back.fates[collectedKey(key, n.Attempts, k)] = fateAnew
			}
			if in.back == 0 {
				back.fates[collectedKey(key, n.Attempts, n.Inside.Iteration)] = fateAgain
			}
		}
		switch {
		case in.plan != nil:
			back.level(in, n.Inside.Nodes, n.keyInside(key), stored)
		case n.expanded() && fates[ref] == fateAgain: // the step of the node is called again, in the same attempt
			for attempt := range n.Attempts {
				back.started = append(back.started, store.Attempt{Node: key, Attempt: attempt + 1})
			}
		}
	}
}

// takeBack makes the next transaction the first transaction of a redrive.
func (d *durable) takeBack(back *takenBack) {
	d.countTaken(back)
	d.outbox.back, d.outbox.due, d.stale = back, true, true
}

// countTaken counts the undoings whose records the redrive removes. The counts are in d.undone, which is stored in the record of the run.
func (d *durable) countTaken(back *takenBack) {
	if d.undone == nil && len(back.undone) > 0 {
		d.undone = map[string]int{}
	}
	for _, path := range back.undone {
		d.undone[path]++
	}
	back.undone = nil
}

// takeBackMore adds records to the list of records that the next transaction removes.
func (d *durable) takeBackMore(more *takenBack) {
	if len(more.keys)+len(more.counts) == 0 || d.failed != nil {
		return
	}
	d.countTaken(more)
	d.stale = d.stale || len(d.undone) > 0
	back := orZero(d.outbox.back)
	back.keys, back.counts, back.started = append(back.keys, more.keys...), append(back.counts, more.counts...), append(back.started, more.started...)
	d.outbox.back, d.outbox.due = back, true
}

// keptEpoch describes the nodes that a redrive has left in the earlier epoch, see [Run.Epoch]. A redrive with [KeepDescendants] leaves the kept
// nodes in it, and a redrive that performs only compensations leaves all nodes in it. The redrive does not change the records of these nodes in the
// store. restoreEpochs recognizes such a record: the id of the node's last event is at most the field Event.
type keptEpoch struct {
	Epoch int    `json:"epoch"`
	Event uint64 `json:"event"`
}

// restoreEpochs sets the epochs of kept nodes.
func restoreEpochs(nodes []nodeState, kept []keptEpoch) {
	if len(kept) == 0 {
		return
	}
	for i := range nodes {
		n := &nodes[i]
		for _, k := range kept {
			if n.Epoch == 0 && n.Event <= k.Event {
				n.Epoch = k.Epoch
			}
		}
		if n.Inside != nil {
			restoreEpochs(n.Inside.Nodes, kept)
		}
		if n.Former != nil && n.Former.Inside != nil {
			restoreEpochs(n.Former.Inside.Nodes, kept)
		}
	}
}

// storedStatus is the status of a node in the store. A node that has ended there has no storedStatus.
type storedStatus struct {
	status  Status
	inside  bool  // nested runs perform the node
	child   *Run  // the nested run; for a loop, the last nested run
	dormant bool  // whether all unfinished nodes inside wait
	retried int32 // the number of the last attempt that was followed by a retry
}

// storedAs records the status that a node now has in the store.
func (d *durable) storedAs(at place, n *nodeState, child *Run) {
	if n.Status.Terminal() {
		delete(d.stored, at)
		return
	}
	s := storedStatus{status: n.Status, child: child, inside: n.Inside != nil, dormant: n.Dormant}
	if last := len(n.Retried); last > 0 {
		s.retried = n.Retried[last-1].Number
	}
	d.stored[at] = s
}

// holdStored records the stored statuses of the nodes of a run that continues, and of the runs nested in it.
func (d *durable) holdStored(h *held) {
	h.each(func(h *held) {
		for i, ref := range h.refs {
			at := place{h.run, ref}
			d.storedAs(at, &h.nodes[i], at.child())
		}
	})
}

// holdAnswers records that the next transaction writes the signals that this life has accepted so far.
func (d *durable) holdAnswers(x *takenSignals) {
	for i := x.before; i < len(x.list); i++ {
		x.list[i].in = d.outbox.writing
	}
}

// The method `noteKept` calls Run.noteKept for the expanded nodes whose graphs are not known. Such a node may be inside a composite that has
// ended.
func (h *held) noteKept() {
	if h.run == nil {
		return
	}
	for i, ref := range h.refs {
		if n := h.kept[i]; n != nil {
			h.run.noteKept(n, h.run.key(ref), h.run.prefix)
		}
	}
	for _, in := range h.inside {
		in.noteKept()
		for _, past := range in.past {
			past.noteKept()
		}
	}
}

// noteKept records the compensations inside a composite that a redrive has marked as done or begins again. The composite is, or is in, an expanded
// node whose graph is not known, so the nodes inside have no undo and no event. Since the redrive has removed the records of failures, a crash before
// the graph is known would otherwise lose the repair. The composite has the given key, and its path begins with prefix.
func (r *Run) noteKept(n *nodeState, key, prefix string) {
	nodes := func(list []nodeState, key, prefix string, cut int) {
		for i := range list {
			in := &list[i]
			at := key + in.ID[cut:]
			if u := in.Undo; u != nil && u.fresh {
				if u.Status == CompensationDone {
					u.fresh, u.Ended = false, r.timeAt(r.now())
					r.countUndone(prefix + in.ID)
				}
				if d := r.durable; d != nil && d.failed == nil {
					d.outbox.undos = append(d.outbox.undos, undoRecord{key: at + undoMark, state: clonePtr(u)})
				}
			}
			if in.Inside != nil {
				r.noteKept(in, at, prefix)
			}
		}
	}
	for k := range n.Inside.Past {
		past := nodeState{ID: n.ID, Attempts: n.Attempts, Inside: &n.Inside.Past[k]}
		nodes(past.Inside.Nodes, past.keyInside(key), past.prefixInside(prefix), 0)
	}
	cut := 0
	if n.Inside.Items > 0 { // the id of an item contains the id of its map, and so does its key
		cut = len(n.ID)
	}
	nodes(n.Inside.Nodes, n.keyInside(key), n.prefixInside(prefix), cut)
}
