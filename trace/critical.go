package trace

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/machine"
)

// Via is the way in which one node delayed another.
type Via string

// The ways to delay a node.
const (
	ViaNothing    Via = ""           // the node was ready when the run began
	ViaDependency Via = "dependency" // the delaying node was the last predecessor to end
	ViaSlot       Via = "slot"       // the node was ready, and waited for a slot of the run, of a group or of a key, until the delaying node released the slot
	ViaWave       Via = "wave"       // the delaying node was the last node to end before the node's wave began
	ViaComposite  Via = "composite"  // the node is inside the delaying node
)

// constraint is the event that delayed a node: the end of another node, the end of an attempt of another node, or the start of a composite.
type constraint struct {
	node  int // the node that caused the delay, or -1
	via   Via
	event int
	at    time.Duration
}

var nothing = constraint{node: -1}

// analysis holds, for each node of a run, the constraint that delayed the node. Its slices are indexed like the nodes of the timeline.
type analysis struct {
	*timeline
	preds [][]int // the sources of the in-edges
	binds []constraint
	slack []time.Duration
	path  []int // the critical path, first node first
}

// analyse finds, for each node, the last constraint on its start. From these constraints it computes the critical path, and the slack of each node:
// how much later the node could have ended without making the run longer.
func analyse(p *kahn.Plan, res *kahn.Result, t *timeline) *analysis {
	a := &analysis{timeline: t, preds: make([][]int, len(t.nodes)), binds: make([]constraint, len(t.nodes))}
	for e := range p.Edges() {
		from, _ := p.Ref(e.From)
		to, _ := p.Ref(e.To)
		a.preds[to] = append(a.preds[to], int(from))
	}
	for id := range a.binds {
		a.binds[id] = t.nodes[id].after
	}
	a.bindSlots(p, res)
	for id, b := range a.binds {
		if b.via == ViaDependency || b.via == ViaWave {
			a.binds[id].node = a.descend(b.node)
		}
	}
	last := -1
	for id := range p.Len() {
		if n := &t.nodes[id]; n.started > 0 && (last < 0 || n.lastEvent() > t.nodes[last].lastEvent()) {
			last = id
		}
	}
	if last >= 0 {
		a.path = append(a.path, a.descend(last))
		// A path has at most all nodes. The loop checks this bound because the constraints may form a cycle if the events are out of
		// order.
		for b := a.binds[a.path[0]]; b.node >= 0 && len(a.path) < len(a.nodes); b = a.binds[b.node] {
			a.path = append(a.path, b.node)
		}
	}
	slices.Reverse(a.path)
	a.findSlack(p, last)
	return a
}

// The method chain finds the chain of dependencies whose nodes took the longest time in total. It returns the nodes of this chain, first node
// first, and the total. The run would have taken this long if no node had waited for a slot or a wave. A composite counts as one node.
func (a *analysis) chain(p *kahn.Plan) (path []int, took time.Duration) {
	before, until := make([]int, p.Len()), make([]time.Duration, p.Len())
	last := -1
	for id := range p.Len() { // Refs are in topological order
		before[id] = -1
		n := &a.nodes[id]
		if n.started == 0 {
			continue // a node without a start delayed no successor
		}
		for _, from := range a.preds[id] {
			if until[from] > 0 && (before[id] < 0 || until[from] > until[before[id]]) {
				before[id] = from
			}
		}
		if before[id] >= 0 {
			until[id] = until[before[id]]
		}
		if until[id] += n.end - n.start; last < 0 || until[id] > until[last] {
			last = id
		}
	}
	if last < 0 {
		return nil, 0
	}
	for id := last; id >= 0; id = before[id] {
		path = append(path, id)
	}
	slices.Reverse(path)
	return path, until[last]
}

// descend returns the node inside a composite that ended last. For a node that is not a composite it returns the node itself.
func (a *analysis) descend(id int) int {
	for a.nodes[id].lastInside >= 0 {
		id = a.nodes[id].lastInside
	}
	return id
}

// lastEvent returns the event that ended the node. For a node that has not ended it returns the largest int, so that the node counts as the last
// to end.
func (n *life) lastEvent() int {
	if n.ended == 0 {
		return math.MaxInt
	}
	return n.ended
}

// decided returns the event by which the node was queued or, if it was not queued, started or, if it did not start, ended. At this
// event the run decided whether the node runs.
func (n *life) decided() int { return cmp.Or(n.queued, n.started, n.ended) }

// The method begun returns the event that started the node. For a node that ended without a start it returns the event that ended the node.
func (n *life) begun() int { return cmp.Or(n.started, n.ended, math.MaxInt) }

// bindSlots finds, for each node that waited for a slot before its first start, the attempt whose end released the slot. An attempt that ended
// while the node was ready may have delayed the node in two cases. In the first case the attempt was in one of the node's limited groups or had the
// node's key. In the second case the attempt ended while the number of used slots was the highest of the whole run, which indicates the run's limit.
// bindSlots chooses the last attempt for which one of these cases holds.
func (a *analysis) bindSlots(p *kahn.Plan, res *kahn.Result) {
	type pool struct {
		key  bool
		name string
	}
	limited := map[string]bool{}
	for _, g := range p.Groups() {
		limited[g.Name] = g.Limit > 0
	}
	pools := func(id int) (of []pool) {
		if id >= p.Len() {
			return nil // the node is inside a composite, which has another plan
		}
		n := p.Node(machine.Ref(id))
		for _, g := range n.Groups {
			if limited[g] {
				of = append(of, pool{name: g})
			}
		}
		key := n.Key
		if n.KeyFrom != "" {
			if r, ok := res.Node(n.ID); ok {
				key = r.Key
			}
		}
		if key != "" {
			of = append(of, pool{true, key})
		}
		return of
	}

	full := nothing // the last attempt that ended while all slots of the run were used
	byPool := map[pool]constraint{}
	busy := 0
	for _, b := range a.bounds {
		s := &a.spans[b.span]
		switch {
		case s.inline:
		case b.end:
			released := constraint{s.node, ViaSlot, b.event, s.end}
			if busy == a.slots {
				full = released
			}
			for _, pool := range pools(s.node) {
				byPool[pool] = released
			}
			busy--
		default:
			busy++
			n := &a.nodes[s.node]
			if n.started != b.event || n.start == n.queuedAt {
				continue // not the node's first start, or the node has not waited
			}
			last := full
			for _, pool := range pools(s.node) {
				if released := byPool[pool]; released.event > last.event {
					last = released
				}
			}
			if last.event > n.queued {
				a.binds[s.node] = last
			}
		}
	}
}

// findSlack computes the slack of each node: how much later the node could have ended without making the run longer. It visits the nodes in the
// reverse order of their starts. The slack of a node is at most the slack of each node that it delayed. If a successor of the node was delayed by
// another node, the slack is at most the successor's slack plus the time from the node's end to the end of the delay. If the node delayed a
// composite, the slack is also at most the slack of the nodes that began with the composite.
func (a *analysis) findSlack(p *kahn.Plan, last int) {
	a.slack = make([]time.Duration, len(a.nodes))
	if last < 0 {
		return
	}
	inside := make([]time.Duration, len(a.nodes))
	order := make([]int, len(a.nodes))
	for id := range a.nodes {
		order[id], inside[id] = id, math.MaxInt64
		a.slack[id] = max(a.nodes[last].end-a.nodes[id].end, 0)
	}
	slices.SortFunc(order, func(x, y int) int { return cmp.Compare(a.nodes[y].begun(), a.nodes[x].begun()) })
	tierLast := map[int]int{} // in waves mode, by tier: the node of the tier that was the last to end
	if a.waves {
		for id := range p.Len() {
			tier := p.Tier(machine.Ref(id))
			if last, ok := tierLast[tier]; !ok || a.nodes[id].ended > a.nodes[last].ended {
				tierLast[tier] = id
			}
		}
	}
	for _, id := range order { // each node comes after all nodes that it delayed
		n := &a.nodes[id]
		if id < p.Len() {
			if wave, ok := tierLast[p.Tier(machine.Ref(id))]; ok {
				a.slack[id] = min(a.slack[id], a.slack[wave]+a.nodes[wave].end-n.end)
			}
		}
		b, slack := a.binds[id], min(a.slack[id], inside[id])
		switch {
		case b.node < 0:
			continue
		case b.via == ViaComposite:
			inside[b.node] = min(inside[b.node], slack)
		default:
			a.slack[b.node] = min(a.slack[b.node], slack)
		}
		for _, from := range a.preds[id] {
			if f := &a.nodes[from]; f.ended > 0 && f.ended < n.decided() {
				a.slack[from] = min(a.slack[from], slack+b.at-f.end)
			}
		}
	}
}
