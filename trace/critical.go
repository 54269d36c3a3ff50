package trace

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/seed-c794f7ef/kahn"
)

// Via tells how one node held up the start of another.
type Via string

// The ways to hold up a start.
const (
	ViaNothing    Via = ""           // nothing did: the node was ready when the run began
	ViaDependency Via = "dependency" // it was the last of the node's predecessors to end
	ViaSlot       Via = "slot"       // the node was ready, and got the slot of the run, a group or a key that became free
	ViaWave       Via = "wave"       // it was the last of the previous wave to end
)

// constraint is what a node began after: the end of another one, or of an attempt of it that gave back a slot.
type constraint struct {
	node int // or -1
	via  Via
	seq  int           // the event
	at   time.Duration // its time
}

// analysis is what held up what in a run. Its slices are by node of the timeline.
type analysis struct {
	*timeline
	preds    [][]int // the sources of the in-edges
	binds    []constraint
	tierLast map[int]int // in waves: the node of each tier that ended last
	slack    []time.Duration
	path     []int // the critical path, from its beginning
}

// analyse finds for each node what its start waited for last, and from that the chain that the run's length comes from, and
// how much later each node could have ended without a longer run.
func analyse(p *kahn.Plan, t *timeline) *analysis {
	a := &analysis{timeline: t, preds: make([][]int, len(t.nodes)), binds: make([]constraint, len(t.nodes))}
	for e := range p.Edges() {
		from, _ := p.Ref(e.From)
		to, _ := p.Ref(e.To)
		a.preds[to] = append(a.preds[to], int(from))
	}
	a.bind(p)
	last := -1
	for id := range p.Len() {
		if n := &t.nodes[id]; n.started > 0 && (last < 0 || n.lastEvent() > t.nodes[last].lastEvent()) {
			last = id
		}
	}
	for id := last; id >= 0; id = a.binds[id].node {
		a.path = append(a.path, id)
	}
	slices.Reverse(a.path)
	a.findSlack(p, last)
	return a
}

// lastEvent orders nodes by their ends, those without an end last.
func (n *life) lastEvent() int {
	if n.ended == 0 {
		return math.MaxInt
	}
	return n.ended
}

// decided is the event at which it was settled whether the node runs.
func (n *life) decided() int {
	switch {
	case n.queued > 0:
		return n.queued
	case n.started > 0:
		return n.started
	}
	return n.ended
}

// bind finds what each node's start, or the end of one that was never started, waited for last.
func (a *analysis) bind(p *kahn.Plan) {
	for id := range a.binds {
		c := constraint{node: -1}
		decided := a.nodes[id].decided()
		for _, from := range a.preds[id] {
			if f := &a.nodes[from]; f.ended > c.seq && f.ended < decided {
				c = constraint{from, ViaDependency, f.ended, f.end}
			}
		}
		a.binds[id] = c
	}
	if a.mode == kahn.Waves {
		a.bindWaves(p)
	}
	a.bindSlots(p)
}

// bindWaves puts the last of the previous tier in the place of predecessors.
func (a *analysis) bindWaves(p *kahn.Plan) {
	a.tierLast = map[int]int{}
	for id := range p.Len() {
		tier := p.Tier(kahn.Ref(id))
		if last, ok := a.tierLast[tier]; !ok || a.nodes[id].ended > a.nodes[last].ended {
			a.tierLast[tier] = id
		}
	}
	for id := range p.Len() {
		last, ok := a.tierLast[p.Tier(kahn.Ref(id))-1]
		if l := &a.nodes[last]; ok && l.ended > 0 && l.ended < a.nodes[id].decided() {
			a.binds[id] = constraint{last, ViaWave, l.ended, l.end}
		}
	}
}

// bindSlots goes through the attempts' starts and ends in order. A node that was ready while all slots that were ever in
// use were taken, or those of one of its groups or its key, was held up by the last attempt that gave one back.
func (a *analysis) bindSlots(p *kahn.Plan) {
	type event struct {
		seq  int
		span int
		end  bool
	}
	var events []event
	for i := range a.spans {
		s := &a.spans[i]
		if s.inline {
			continue
		}
		events = append(events, event{s.began, i, false})
		if s.ended > 0 {
			events = append(events, event{s.ended, i, true})
		}
	}
	slices.SortFunc(events, func(x, y event) int { return cmp.Compare(x.seq, y.seq) })

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
			return nil
		}
		n := p.Node(kahn.Ref(id))
		for _, g := range n.Groups {
			if limited[g] {
				of = append(of, pool{name: g})
			}
		}
		if n.Key != "" {
			of = append(of, pool{true, n.Key})
		}
		return of
	}

	var full constraint // the last end at which all slots had been taken
	byPool := map[pool]constraint{}
	busy := 0
	for _, e := range events {
		s := &a.spans[e.span]
		if e.end {
			released := constraint{s.node, ViaSlot, e.seq, s.end}
			if busy == a.slots {
				full = released
			}
			for _, pool := range pools(s.node) {
				byPool[pool] = released
			}
			busy--
			continue
		}
		busy++
		n := &a.nodes[s.node]
		if n.started != e.seq || n.start == n.queuedAt {
			continue // another attempt, or one that did not wait
		}
		last := full
		for _, pool := range pools(s.node) {
			if released := byPool[pool]; released.seq > last.seq {
				last = released
			}
		}
		if last.seq > n.queued {
			a.binds[s.node] = last
		}
	}
}

// findSlack goes back from the node that ended last. A node may end so much later that what it holds up next does not
// begin later than what that has slack for; where another node held up more, up to the end of that one.
func (a *analysis) findSlack(p *kahn.Plan, last int) {
	a.slack = make([]time.Duration, len(a.nodes))
	var order []int
	for id := range p.Len() {
		if n := &a.nodes[id]; last >= 0 {
			a.slack[id] = max(a.nodes[last].end-n.end, 0)
			order = append(order, id)
		}
	}
	begin := func(id int) int { return cmp.Or(a.nodes[id].started, a.nodes[id].ended, math.MaxInt) }
	slices.SortFunc(order, func(x, y int) int { return cmp.Compare(begin(y), begin(x)) }) // all that a node holds up precede it
	for _, id := range order {
		if wave, ok := a.tierLast[p.Tier(kahn.Ref(id))]; ok {
			a.slack[id] = min(a.slack[id], a.slack[wave]+a.nodes[wave].end-a.nodes[id].end)
		}
		b := a.binds[id]
		if b.node < 0 {
			continue
		}
		a.slack[b.node] = min(a.slack[b.node], a.slack[id])
		for _, from := range a.preds[id] {
			if f := &a.nodes[from]; f.ended > 0 && f.ended < a.nodes[id].decided() {
				a.slack[from] = min(a.slack[from], a.slack[id]+b.at-f.end)
			}
		}
	}
}
