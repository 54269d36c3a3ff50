package kahn

import (
	"maps"
	"slices"
	"strings"

	"github.com/seed-c794f7ef/kahn/store"
)

// takenBack is what a redrive takes out of the store with its first transaction.
type takenBack struct {
	keys   []string          // of the nodes that run again, and of those inside of them
	counts []store.Readiness // what becomes of the counters of nodes that run again, or follow such a node
}

// takeBack finds what the nodes that run again have left in the store.
func takeBack(p *Plan, stored *store.Run, again []bool) (back takenBack) {
	for _, key := range slices.Sorted(maps.Keys(stored.Nodes)) {
		if ref, ok := p.outermost(key); !ok || again[ref] { // a node that the plan does not have was dropped, see Adopt
			back.keys = append(back.keys, key)
		}
	}
	for r := range again { // a counter of a node that runs again begins at zero
		if Ref(r) == p.end {
			continue // its predecessors are not counted: it waits for all nodes
		}
		sources := p.net.In(Ref(r))
		c := store.Readiness{Node: p.names[r], Required: len(sources)}
		for _, i := range sources {
			from := p.net.Source(i)
			switch ended := stored.Nodes[p.names[from]].Terminal; {
			case !ended:
			case again[r] && !again[from]:
				c.By++
			case again[from] && !again[r]:
				c.By--
			}
		}
		if c.By != 0 {
			back.counts = append(back.counts, c)
		}
	}
	return back
}

// outermost finds the node of the outermost graph that has a key in the store, or that the node of the key is inside of.
func (p *Plan) outermost(key string) (Ref, bool) {
	if ref, ok := p.Ref(key); ok {
		return ref, true
	}
	for i := len(key) - 1; i > 0; i-- {
		if strings.IndexByte("/[#", key[i]) < 0 {
			continue
		}
		if ref, ok := p.Ref(key[:i]); ok {
			return ref, true
		}
	}
	return noRef, false
}

// takeBack makes the next transaction the first one of a redrive.
func (d *durable) takeBack(back *takenBack) {
	d.outbox.back, d.outbox.due, d.stale = back, true, true
}

// keptEpoch tells that the nodes which a redrive with [KeepDescendants] has kept belong to the epoch before it. Their records in the store
// do not change: they are those that were written up to an event.
type keptEpoch struct {
	Epoch int    `json:"epoch"`
	Event uint64 `json:"event"`
}

// restoreEpochs sets the epochs of kept nodes.
func (file *snapshotFile) restoreEpochs() {
	for i := range file.Nodes {
		n := &file.Nodes[i]
		for _, k := range file.Kept {
			if n.Epoch == 0 && n.Event <= k.Event {
				n.Epoch = k.Epoch
			}
		}
	}
}
