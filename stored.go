package kahn

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// restoreStored makes a restoration of what a store has.
func (r *Run) restoreStored(stored *StoredRun) (*restoration, error) {
	if stored.Status.Terminal() {
		return nil, fmt.Errorf("%w: run %s is %v", ErrFinished, quoteID(stored.ID), stored.Status)
	}
	var file snapshotFile
	if err := json.Unmarshal(stored.Record, &file); err != nil {
		return nil, fmt.Errorf("%w: stored run: %w", ErrBadValue, err)
	}
	if err := checkVersion(file.Version); err != nil {
		return nil, fmt.Errorf("%w: stored run %s: %w", ErrBadValue, quoteID(stored.ID), err)
	}
	file.Nodes = nil
	file.Status = RunRunning
	if stored.Status == RunSuspended {
		file.Status = RunSuspended
	}
	records := map[string]nodeState{}
	for key, s := range stored.Nodes {
		if s.Record == nil {
			continue
		}
		var n nodeState
		if err := json.Unmarshal(s.Record, &n); err != nil {
			return nil, fmt.Errorf("%w: stored node %s: %w", ErrBadValue, quoteID(key), err)
		}
		if n.Hash != "" && n.ID != key {
			return nil, fmt.Errorf("%w: stored node %s: the record is that of %s", ErrBadValue, quoteID(key), quoteID(n.ID))
		}
		file.LastEvent = max(file.LastEvent, n.Event)
		if n.Hash == "" { // it is inside of a composite
			records[key] = n
			continue
		}
		file.Nodes = append(file.Nodes, n)
	}
	order := func(n nodeState) int {
		if ref, ok := r.plan.Ref(n.ID); ok {
			return int(r.plan.decl[ref])
		}
		return -1
	}
	slices.SortFunc(file.Nodes, func(a, b nodeState) int { return order(a) - order(b) })
	f := filler{records: records, items: map[string]int{}}
	for key := range records {
		if of, index, ok := itemKey(key); ok {
			f.items[of] = max(f.items[of], index+1)
		}
	}
	f.fillIn(r.plan, file.Nodes, func(id string) string { return id })
	signals := r.cfg.signals
	r.cfg.from, r.cfg.redrive = &Snapshot{file: file}, false
	r.cfg.signals = signals
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
	return r.restoration()
}

// filler puts records into the composites that they are inside of. Those of former attempts and iterations stay where they are.
type filler struct {
	records map[string]nodeState
	items   map[string]int // by the key of a map: above the index of every item that has a record
}

// itemKey splits the key of an item.
func itemKey(key string) (of string, index int, ok bool) {
	at := strings.LastIndexByte(key, '[')
	if at < 0 || !strings.HasSuffix(key, "]") {
		return "", 0, false
	}
	index, err := strconv.Atoi(key[at+1 : len(key)-1])
	return key[:at], index, err == nil && index >= 0 && index < maxNodes
}

func (f *filler) fillIn(p *Plan, nodes []nodeState, key func(id string) string) {
	for i := range nodes {
		n := &nodes[i]
		ref, ok := p.Ref(n.ID)
		if n.Inside == nil || !ok || !p.facts[ref].is(factComposite) {
			continue
		}
		inner, prefix := p.sub(ref), n.keyInside(key(n.ID))
		inside := func(id string) string { return prefix + id }
		if p.node(ref).Map != nil {
			inner = p.items[ref].repeated(n.ID, min(max(n.Inside.Items, 0), f.items[prefix]))
			inside = func(id string) string { return prefix + id[len(n.ID):] }
		}
		for _, ref := range inner.declared {
			if record, ok := f.records[inside(inner.names[ref])]; ok {
				n.Inside.Nodes = append(n.Inside.Nodes, record)
			}
		}
		f.fillIn(inner, n.Inside.Nodes, inside)
	}
}

// keyInside is what the keys of the nodes of a composite begin with, and that of the composite with key. A later attempt
// repeats paths, and what was completed in a store stays so: its keys are others.
func (n *nodeState) keyInside(key string) string {
	return keyInside(key, n.Attempts, n.Inside.Iteration, n.Inside.Items > 0)
}

func keyInside(key string, attempt int32, iteration int, items bool) string {
	if attempt > 1 {
		key = fmt.Sprintf("%s#try%d", key, attempt) // no path has letters after this sign
	}
	switch {
	case items:
		return key // and [index]
	case iteration > 0:
		return fmt.Sprintf("%s#%d/", key, iteration)
	}
	return key + "/"
}

// key is what a node goes by in the store: its path, with the attempts of composites after the first.
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

// setKeys works out what the keys of a nested run's nodes begin with.
func (r *Run) setKeys() {
	if r.durable = r.outer.durable; r.durable != nil {
		r.keys = keyInside(r.outer.key(r.within.ref), r.within.attempt, r.iteration, r.items != nil)
	}
}
