package machine

import (
	"encoding/binary"
	"slices"

	"github.com/seed-c794f7ef/kahn/internal/ordset"
)

// A node with routing in-edges (labelled edges and catch edges) is on a branch. The sources of these edges are the routers of the node. A plain edge
// into the node is either a side edge or another way in (defined below). A side edge only delivers data, and does not make the node run: if it did,
// the label that chooses the branch would have no effect. Another way in can make the node run.
//
// If labelled edges or catch edges lead from a node, some of its out-edges are grouped into exits. Each label of the node is an exit. If catch edges
// lead from the node, it has two more exits: its failure (the catch edges) and its success (the plain edges). But the success of a node is no exit
// for the targets of the node's labelled edges. If a condition has no catch edges, its plain edges belong to no exit, since they are always taken. An
// edge that waits for any outcome belongs to no exit either. Nor does a data-only edge, since it does not decide whether its target runs.
//
// Let f -> t be a plain edge into a node on a branch. An exit leads to a node if an edge of the exit ends at the node or at an ancestor of the node.
// An exit leads to the edge f -> t if the exit contains this edge or leads to f. The edge f -> t is another way in if some exit leads to this edge
// but to no router of t, and belongs to a router of t or to an ancestor of a router of t. If such an exit belongs to a router of t, the edge f -> t
// counts like any other edge. If such exits belong only to ancestors of routers, the edge is a spare edge: it counts only if all routers of t were
// skipped because of branches that were not taken. If no such exit exists, the edge is a side edge.
//
// A Builder finds side edges from the graph alone, so documents, snapshots and the hash of a Plan do not contain them. If a trigger has pruned a
// plan, the remaining graph is compiled again, and its side edges are found anew.

// The type `standing` determines how a plain edge counts for a target that is on a branch.
type standing uint8

const (
	standsIn    standing = iota // the edge counts like any other edge; edges to which `standing` does not apply also have this value
	standsBy                    // the edge is a side edge
	standsSpare                 // the edge is a spare edge: it counts only if all routers of the target were skipped because of branches not taken
)

// isRouting reports whether the edge puts its target on a branch.
func (e *Edge) isRouting() bool { return e.Flags&(EdgeLabelled|EdgeFailure) != 0 }

// isPlain reports whether the edge waits only for success.
func (e *Edge) isPlain() bool { return e.Flags&(EdgeLabelled|EdgeFailure|EdgeAlways|EdgeData) == 0 }

// The type `branching` finds the side edges of a plan.
//
// Targets with the same routers form one class. A sweep works on up to 64 classes at a time, with one bit for each class. It visits nodes in falling
// order of Refs. It combines two searches for ancestors: one from the routers, and one from the sources of the plain edges. An exit matters for a
// class if it leads to a plain edge of the class but to no router of the class. Only a node that both searches reach can have such an exit. The sweep
// ends as soon as no exit can lead to an undecided edge. If the routers and sources of a class are close together, the sweep visits only the nodes
// between them, even if they have many ancestors. A second pass visits the same nodes in rising order of Refs. It follows the exits that matter, and
// finds the plain edges to which they lead.
type branching struct {
	c       *Builder
	p       *Net
	reached []bool // by Ref: whether some exit leads to the node
	stem    []Ref  // by Ref: the node itself, or a node with a lower Ref to which the same exits lead: see the method `reach`
	classes []branchClass
	marks   []branchMarks // by Ref
	queue   ordset.Set    // nodes that the sweep has not visited yet, the highest Ref first
	pending int           // the number of nodes in the queue that may lead to a plain edge
	swept   []Ref         // nodes that the sweep has visited, in falling order of their Refs
	leads   []uint64      // by exit of the current node: the classes with a router to which the exit leads
	firsts  map[exitOf][]Ref
	steps   int64 // edges visited
}

// exitOf is an exit of a node.
type exitOf struct {
	from Ref
	exit int
}

// branchClass holds targets with the same routers. The field `sources` lists the nodes from which plain edges lead to the targets. If certainly no
// exit leads to an edge, `sources` omits the source of this edge.
type branchClass struct {
	routers []branchRouter
	targets []Ref
	sources []Ref
}

type branchRouter struct {
	ref   Ref
	hangs bool // a labelled edge leads from the router to the targets
}

// branchMarks holds facts about a node. Each field is a set of classes of the batch: those for which the fact is true. An exit counts for a class if
// the exit leads to no router of the class: see the method `leave`.
type branchMarks struct {
	above  uint64 // the node is a router or an ancestor of a router
	before uint64 // the node is the source of a plain edge to a target, or an ancestor of such a source
	router uint64 // the node is a router
	hangs  uint64 // the node is a router, and a labelled edge leads from it to the targets
	lowest uint64 // the node is the router with the lowest Ref
	near   uint64 // an exit of a router counts and leads to the node, or the node is a router whose own success is an exit that counts
	far    uint64 // like near, but the exit belongs to an ancestor of a router, and not to a router
}

const batchSize = 64

// FindSides finds the side edges and the spare edges. If the graph has no branches, it does nothing.
func (c *Builder) FindSides() {
	if c.p.labels == 0 && len(c.p.filters) == 0 {
		return
	}
	b := branching{c: c, p: c.p}
	b.classify()
	if len(b.classes) > 0 {
		b.marks = make([]branchMarks, len(b.p.facts))
		b.queue = ordset.Make(len(b.p.facts))
		b.leads = make([]uint64, firstLabelExit+b.p.labels)
	}
	if len(b.classes) > batchSize/8 { // with fewer classes a sweep is cheap
		b.classes = slices.DeleteFunc(b.classes, b.plainly)
	}
	for batch := range slices.Chunk(b.classes, batchSize) {
		b.sweep(batch)
		b.spread()
		b.judge(batch)
		b.clear()
	}
	c.p.sideSteps = b.steps
	for r := range c.p.facts {
		f := &c.p.facts[r]
		for _, i := range c.p.in.row(Ref(r)) {
			if e := &c.p.edges[i]; e.standing != standsIn {
				f.flags |= flagBranch
				if f.join == AllSucceeded || f.join == Boundary { // the other rules count every edge
					e.Flags |= edgeSide
				}
			}
		}
	}
}

// The method `classify` marks every plain edge into a node on a branch as a side edge. If some exit may lead to the edge, the mark may be wrong. Then
// classify also adds the target of the edge to the class of the targets with the same routers.
func (b *branching) classify() {
	p := b.p
	var index map[string]int32
	var routers []branchRouter
	var key []byte
	for r := range p.facts {
		row := p.in.row(Ref(r))
		if Ref(r) == p.end || !slices.ContainsFunc(row, func(i int32) bool { return p.edges[i].isRouting() }) {
			continue
		}
		var sources []Ref
		for _, i := range row {
			if e := &p.edges[i]; e.isPlain() {
				e.standing = standsBy
				if b.reached == nil {
					b.reach()
				}
				if b.reached[e.From] || p.facts[e.From].catch != 0 {
					sources = append(sources, e.From)
				}
			}
		}
		if len(sources) == 0 {
			continue
		}
		routers, key = routers[:0], key[:0]
		for _, i := range row {
			if e := &p.edges[i]; e.isRouting() {
				routers = append(routers, branchRouter{e.From, e.Flags&EdgeLabelled != 0})
			}
		}
		routers = distinctRouters(routers)
		for _, x := range routers {
			code := uint32(x.ref) << 1
			if x.hangs {
				code |= 1
			}
			key = binary.LittleEndian.AppendUint32(key, code)
		}
		k, ok := index[string(key)]
		if !ok {
			if index == nil {
				index = map[string]int32{}
			}
			k = int32(len(b.classes))
			index[string(key)] = k
			b.classes = append(b.classes, branchClass{routers: slices.Clone(routers)})
		}
		x := &b.classes[k]
		x.targets, x.sources = append(x.targets, Ref(r)), append(x.sources, sources...)
	}
}

// distinctRouters sorts the routers and removes duplicates.
func distinctRouters(routers []branchRouter) []branchRouter {
	slices.SortFunc(routers, func(a, b branchRouter) int { return int(a.ref) - int(b.ref) })
	distinct := routers[:0]
	for _, x := range routers {
		if last := len(distinct) - 1; last >= 0 && distinct[last].ref == x.ref {
			distinct[last].hangs = distinct[last].hangs || x.hangs
			continue
		}
		distinct = append(distinct, x)
	}
	return distinct
}

// The method `reach` finds the nodes to which some exit leads, and the stems of these nodes. A node is its own stem if an edge into it belongs to an
// exit, or if its predecessors have different stems. Otherwise the node has the stem of its predecessors. Predecessors to which no exit leads are
// ignored.
func (b *branching) reach() {
	p := b.p
	b.reached, b.stem = make([]bool, len(p.facts)), make([]Ref, len(p.facts))
	for r := range Ref(len(p.facts)) {
		stem := NoRef
		for _, i := range p.in.row(r) {
			e := &p.edges[i]
			switch {
			case b.exit(e) != noExit:
				b.reached[r], stem = true, r
			case !b.reached[e.From]:
			case stem == NoRef:
				b.reached[r], stem = true, b.stem[e.From]
			case stem != b.stem[e.From]:
				stem = r
			}
		}
		b.stem[r] = stem
	}
}

// The numbers of the exits of a node: its failure, its success, and its labels.
const (
	noExit         = -1
	failureExit    = 0
	successExit    = 1
	firstLabelExit = 2
)

// The method `exit` returns the exit to which an edge belongs, or noExit.
func (b *branching) exit(e *Edge) int {
	switch {
	case e.Flags&EdgeLabelled != 0:
		return firstLabelExit + int(e.LabelID)
	case e.Flags&EdgeFailure != 0:
		return failureExit
	case e.isPlain() && b.p.facts[e.From].catch != 0:
		return successExit
	}
	return noExit
}

// The method `plainly` reports whether a quick check shows that no exit matters for a class. If so, all plain edges of the class are side edges. The
// quick check is enough in two common cases in which a sweep would visit many nodes. In the first case, the root of a long chain delivers data to
// handlers all along the chain. In the second case, all nodes are on one branch of a condition far above them.
func (b *branching) plainly(x branchClass) bool {
	const few = 16
	if len(x.sources) > few || len(x.routers) > few {
		return false
	}
	p := b.p
	stack, looked := slices.Clone(x.sources), 0
	for len(stack) > 0 {
		r := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if looked++; looked > few {
			return false
		}
		above, sure := b.isAbove(r, &x)
		if !sure {
			return false
		}
		if above {
			hangs := slices.ContainsFunc(x.routers, func(router branchRouter) bool { return router.ref == r && router.hangs })
			if p.facts[r].catch != 0 && !hangs && !b.leadsAbove(exitOf{r, successExit}, &x) {
				return false
			}
			continue
		}
		if !b.reached[r] {
			continue // no exit leads to r, and r's own exits do not matter, since r is neither a router nor an ancestor of a router
		}
		// The check continues at the stem. If the stem leads to a router, every exit that leads to the stem also leads to this router. If the
		// stem leads to no router, no node between the stem and r leads to one, since the stem leads to each of these nodes.
		if stem := b.stem[r]; stem != r {
			if !slices.Contains(stack, stem) {
				stack = append(stack, stem)
			}
			continue
		}
		row := p.in.row(r)
		if len(row) > few {
			return false
		}
		b.steps += int64(len(row))
		for _, i := range row {
			e := &p.edges[i]
			exit := b.exit(e)
			if exit == noExit && !b.reached[e.From] {
				continue
			}
			above, sure := b.isAbove(e.From, &x)
			switch {
			case !sure, above && exit != noExit && !b.leadsAbove(exitOf{e.From, exit}, &x):
				return false
			case !above && !slices.Contains(stack, e.From):
				stack = append(stack, e.From)
			}
		}
	}
	return true
}

// isAbove reports whether a node is a router of the class or an ancestor of a router. If only a search could decide that, the result `sure` is
// false.
func (b *branching) isAbove(r Ref, x *branchClass) (above, sure bool) {
	sure = true
	for _, router := range x.routers {
		if r == router.ref {
			return true, true
		}
		is, certain := b.p.judgeAncestor(r, router.ref)
		if is {
			return true, true
		}
		sure = sure && certain
	}
	return false, sure
}

// leadsAbove reports whether an exit certainly leads to a router of the class. It looks at the four targets of the exit with the lowest Refs. These
// targets are in the lowest tiers, and so usually have the most descendants.
func (b *branching) leadsAbove(exit exitOf, x *branchClass) bool {
	const few = 4
	firsts, ok := b.firsts[exit]
	if !ok {
		out := b.c.outOf.row(Ref(b.p.decl[exit.from]))
		b.steps += int64(len(out))
		for _, i := range out {
			if e := &b.p.edges[i]; b.exit(e) == exit.exit {
				at, _ := slices.BinarySearch(firsts, e.To)
				if firsts = slices.Insert(firsts, at, e.To); len(firsts) > few {
					firsts = firsts[:few]
				}
			}
		}
		if b.firsts == nil {
			b.firsts = map[exitOf][]Ref{}
		}
		b.firsts[exit] = firsts
	}
	return slices.ContainsFunc(firsts, func(r Ref) bool {
		above, _ := b.isAbove(r, x)
		return above
	})
}

// The method `sweep` works on up to 64 classes. It begins at the routers of these classes and at the sources of their plain edges, and visits nodes
// in falling order of Refs.
func (b *branching) sweep(batch []branchClass) {
	p := b.p
	single := uint64(0) // classes with one source
	for k := range batch {
		x, bit := &batch[k], uint64(1)<<k
		for i, router := range x.routers {
			m := b.mark(router.ref, bit, 0)
			m.router |= bit
			if router.hangs {
				m.hangs |= bit
			}
			if i == 0 {
				m.lowest |= bit
			}
		}
		for _, from := range x.sources {
			b.mark(from, 0, bit)
		}
		if from := x.sources[0]; !slices.ContainsFunc(x.sources, func(r Ref) bool { return r != from }) {
			single |= bit
		}
	}
	// If a class has a single source, one exit that counts and leads to this source settles the class. Then the search from the source ends. An exit of
	// a router settles the class at once. Because such an exit takes precedence, an exit of an ancestor of a router settles the class only after the
	// sweep has passed all routers of the class.
	var passed, settled uint64
	for b.pending > 0 {
		i, _ := b.queue.PopMin()
		r := Ref(len(p.facts) - 1 - i)
		b.swept = append(b.swept, r)
		m := &b.marks[r]
		passed |= m.lowest
		if m.before != 0 {
			b.pending--
			if m.before&m.above&^settled != 0 {
				near, far := b.leave(r, m)
				settled |= single & (near | far&passed)
			}
		}
		beside := m.before &^ (m.above | settled)
		row := p.in.row(r)
		b.steps += int64(len(row))
		for _, i := range row {
			e := &p.edges[i]
			before := beside
			if !b.reached[e.From] && b.exit(e) == noExit {
				before = 0
			}
			if m.above|before != 0 {
				b.mark(e.From, m.above, before)
			}
		}
	}
}

// The method `mark` adds marks to a node that the sweep has not visited yet.
func (b *branching) mark(r Ref, above, before uint64) *branchMarks {
	m := &b.marks[r]
	if m.before == 0 && before != 0 {
		b.pending++
	}
	m.above |= above
	m.before |= before
	b.queue.Insert(len(b.p.facts) - 1 - int(r))
	return m
}

// The method `leave` looks at the exits of a node. The node leads to plain edges, and is a router or an ancestor of a router. An exit counts for a
// class if it leads to no router of the class. The results `near` and `far` are sets of classes: those for which an exit of the node counts and leads
// to a plain edge. For the classes in `near` the node is a router. For the classes in `far` it is an ancestor of a router, but not itself a router.
// Since the sweep visits nodes in falling order of Refs, it has passed all successors of the node.
func (b *branching) leave(r Ref, m *branchMarks) (near, far uint64) {
	p := b.p
	out := b.c.outOf.row(Ref(p.decl[r]))
	b.steps += int64(len(out))
	for _, i := range out {
		if x := b.exit(&p.edges[i]); x != noExit {
			b.leads[x] |= b.marks[p.edges[i].To].above
		}
	}
	for _, i := range out {
		e := &p.edges[i]
		x := b.exit(e)
		if x == noExit {
			continue
		}
		counts := m.above &^ b.leads[x]
		if x == successExit {
			counts &^= m.hangs
			m.near |= counts & m.router
			m.far |= counts &^ m.router
		}
		if to := &b.marks[e.To]; to.before != 0 {
			to.near |= counts & m.router
			to.far |= counts &^ m.router
			near |= counts & m.router & to.before
			far |= counts &^ m.router & to.before
		}
	}
	for _, i := range out {
		if x := b.exit(&p.edges[i]); x != noExit {
			b.leads[x] = 0
		}
	}
	return near, far
}

// The method `spread` completes the marks `near` and `far`. The method `leave` has set these marks on the targets of the exits' edges. Now `spread`
// copies the marks to the descendants of these targets.
func (b *branching) spread() {
	for _, r := range slices.Backward(b.swept) {
		m := &b.marks[r]
		if m.before&^m.above == 0 {
			continue
		}
		row := b.p.in.row(r)
		b.steps += int64(len(row))
		for _, i := range row {
			// An exit that counts leads to no router, and therefore to no ancestor of a router. So if a router or an ancestor of a router has
			// a mark, the mark comes from the node's own success, and does not spread to the node's successors.
			from := &b.marks[b.p.edges[i].From]
			m.near |= from.near &^ from.above
			m.far |= from.far &^ from.above
		}
	}
}

// The method `judge` decides how the plain edges of a batch of classes count.
func (b *branching) judge(batch []branchClass) {
	p := b.p
	for k := range batch {
		bit := uint64(1) << k
		for _, to := range batch[k].targets {
			for _, i := range p.in.row(to) {
				e := &p.edges[i]
				if !e.isPlain() {
					continue
				}
				switch m := &b.marks[e.From]; {
				case m.near&bit != 0:
					e.standing = standsIn
				case m.far&bit != 0:
					e.standing = standsSpare
				}
			}
		}
	}
}

func (b *branching) clear() {
	for _, r := range b.swept {
		b.marks[r] = branchMarks{}
	}
	b.swept = b.swept[:0]
	for {
		i, ok := b.queue.PopMin()
		if !ok {
			return
		}
		b.marks[len(b.p.facts)-1-i] = branchMarks{}
	}
}
