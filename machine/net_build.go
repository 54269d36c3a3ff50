package machine

import (
	"cmp"
	"slices"
)

// Builder builds a net in steps: edges, tiers, numbers, rules, labels, side edges, order. Each step needs the results of the earlier steps. Until
// Number is called, edges name nodes by their declaration indices.
type Builder struct {
	p     *Net
	edges []Edge
	into  csr // by node: its in-edges
	outOf csr // by node: its out-edges, except edges into the end node
	end   int32
	tier  []int32
	depth int32 // the number of tiers

	last     []int32 // by source: one more than the index of the last node to which IsParallel has found an edge from the source
	scratch  slab    // memory for slices that only the builder needs
	filters  map[CauseSet]int32
	boundary bool // some node has the join rule Boundary
	wideRows bool // some node may need the extra counters that widen adds
}

// Begin begins a net. The parameter `nodes` is the number of nodes, and `edges` lists the edges in declaration order. The parameter `end` is the
// index of the end node, or -1. If there is an end node, Begin appends an edge to it for each other node without any out-edge. Begin returns the
// number of appended edges.
func (b *Builder) Begin(nodes int, edges []Edge, end int32) (added int) {
	implicit := 0
	if end >= 0 {
		implicit = nodes
	}
	*b = Builder{edges: edges, end: end, scratch: make(slab, 8*nodes+2*len(edges)+implicit+6)} // room for two calls of newCSR and six values per node
	b.outOf, b.scratch = newCSR(nodes, b.edges, true, Ref(end), b.scratch)
	if end >= 0 {
		added = b.leadToEnd(nodes)
	}
	b.into, b.scratch = newCSR(nodes, b.edges, false, NoRef, b.scratch)
	return added
}

// leadToEnd adds an edge to the end node for each other node without any out-edge. It returns the number of these edges.
func (b *Builder) leadToEnd(nodes int) (added int) {
	connected := make([]bool, nodes)
	for _, e := range b.edges {
		if e.To == Ref(b.end) {
			connected[e.From] = true
		}
	}
	for i := range int32(nodes) {
		if i != b.end && !connected[i] && len(b.outOf.row(Ref(i))) == 0 {
			b.edges = append(b.edges, Edge{From: Ref(i), To: Ref(b.end), LabelID: -1})
			added++
		}
	}
	return added
}

// Row returns the numbers of the in-edges of the node with declaration index i.
func (b *Builder) Row(i int) []int32 { return b.into.row(Ref(i)) }

// IsParallel reports whether two edges lead from the same node to the node with declaration index i. Do not call it twice for the same node.
func (b *Builder) IsParallel(i int) (parallel bool) {
	if b.last == nil {
		b.last, b.scratch = b.scratch.cut(len(b.into.start) - 1)
	}
	for _, e := range b.Row(i) {
		from := b.edges[e].From
		parallel = parallel || b.last[from] == int32(i)+1
		b.last[from] = int32(i) + 1
	}
	return parallel
}

// At returns an edge by its number.
func (b *Builder) At(i int32) Edge { return b.edges[i] }

// Levels returns at most maxCycles cycles.
const maxCycles = 100

// Levels computes the tiers of Kahn's algorithm (A. B. Kahn, Topological sorting of large networks, 1962). The tier of a node is the length of the
// longest path to it. If the graph has cycles, Levels cannot compute the tiers, and returns up to a hundred cycles. A cycle is a list of the numbers
// of its edges, in order, and ends with the highest number.
func (b *Builder) Levels() (cycles [][]int32) {
	n := len(b.into.start) - 1
	var pending, queue []int32
	b.tier, b.scratch = b.scratch.cut(n)
	pending, b.scratch = b.scratch.cut(n)
	queue, b.scratch = b.scratch.cut(n)
	queue = queue[:0]
	for i := range n {
		if int32(i) != b.end {
			pending[i] = int32(len(b.Row(i)))
		}
	}
	for i := range n {
		if pending[i] == 0 && int32(i) != b.end {
			queue = append(queue, int32(i))
		}
	}
	total := n
	if b.end >= 0 {
		total--
	}
	queue = b.peel(queue, 0, pending, nil)
	if len(queue) < total {
		return b.cycles(queue, total, pending)
	}
	if b.end >= 0 {
		b.tier[b.end] = b.depth
		b.depth++
	}
	return nil
}

// The method `peel` removes the nodes of the queue, from the index `head` on. When a node loses its last in-edge, peel appends the node to the queue.
// Edges in `cut` count as removed.
func (b *Builder) peel(queue []int32, head int, pending []int32, cut map[int32]bool) []int32 {
	for ; head < len(queue); head++ {
		i := queue[head]
		b.depth = max(b.depth, b.tier[i]+1)
		for _, e := range b.outOf.row(Ref(i)) {
			if cut[e] {
				continue
			}
			to := b.edges[e].To
			b.tier[to] = max(b.tier[to], b.tier[i]+1)
			if pending[to]--; pending[to] == 0 {
				queue = append(queue, int32(to))
			}
		}
	}
	return queue
}

// The method `cycles` finds a cycle among the nodes that Kahn's algorithm has not removed, cuts the last edge of this cycle and all edges parallel to
// it, and continues the algorithm. It repeats this until all nodes are removed or maxCycles cycles are found.
func (b *Builder) cycles(queue []int32, total int, pending []int32) (cycles [][]int32) {
	cut := map[int32]bool{}
	for len(queue) < total && len(cycles) < maxCycles {
		cycle := b.findCycle(pending, cut)
		cycles = append(cycles, cycle)
		last := b.edges[cycle[len(cycle)-1]]
		head := len(queue)
		for _, e := range b.into.row(last.To) {
			if b.edges[e].From != last.From {
				continue
			}
			cut[e] = true
			if pending[last.To]--; pending[last.To] == 0 {
				queue = append(queue, int32(last.To))
			}
		}
		queue = b.peel(queue, head, pending, cut)
	}
	return cycles
}

// findCycle returns a shortest cycle through one of the nodes that Kahn's algorithm has not removed.
func (b *Builder) findCycle(pending []int32, cut map[int32]bool) []int32 {
	// Every remaining node has a remaining predecessor. So a walk against the edges meets some node twice, and this node is on a cycle.
	at := Ref(slices.IndexFunc(pending, func(n int32) bool { return n > 0 }))
	seen := make([]bool, len(pending))
	for !seen[at] {
		seen[at] = true
		for _, e := range b.into.row(at) {
			if from := b.edges[e].From; pending[from] > 0 && !cut[e] {
				at = from
				break
			}
		}
	}
	start := at
	by := make(map[Ref]int32) // by node: the edge over which the search first reached it
	queue := []Ref{start}
	for head := 0; head < len(queue); head++ {
		for _, e := range b.outOf.row(queue[head]) {
			to := b.edges[e].To
			if _, reached := by[to]; reached || cut[e] || pending[to] <= 0 {
				continue
			}
			if by[to] = e; to == start {
				return b.wayBack(start, by)
			}
			queue = append(queue, to)
		}
	}
	return nil // not reached, since start is on a cycle
}

// wayBack lists the edges of the cycle through the node `start`, in order. The edge with the highest number is the last.
func (b *Builder) wayBack(start Ref, by map[Ref]int32) []int32 {
	cycle := []int32{by[start]}
	for at := b.edges[by[start]].From; at != start; at = b.edges[by[at]].From {
		cycle = append(cycle, by[at])
	}
	slices.Reverse(cycle)
	last := slices.Index(cycle, slices.Max(cycle))
	return append(cycle[last+1:], cycle[:last+1]...)
}

// Number gives the nodes their Refs, by tier and then by declaration, and stores them in the net p. The net must be the zero Net. The argument
// `names` lists the ids in declaration order. The net may keep this slice, so the caller must not change it any more. After Number, edges name nodes
// by Ref. Number returns an empty slice with room for one Ref per node, which the caller may use. The slice saves the caller an allocation.
func (b *Builder) Number(p *Net, names []string) (room []Ref) {
	n, m := len(names), len(b.edges)
	ints, refs := make(slab, 4*n+m+3+int(b.depth)+1), make([]Ref, 3*n)
	later := &struct {
		ancestry
		netHash
	}{} // one allocation for both
	p.names, p.facts, p.declared, p.end, p.edges = names, make([]facts, n), refs[:n:n], NoRef, b.edges
	p.netRare = &plainNet
	p.order.at, p.ancestry, p.hash = refs[n:2*n:2*n], &later.ancestry, &later.netHash
	b.p = p
	p.decl, ints = ints.cut(n)
	p.order.pos, ints = ints.cut(n)
	p.out, ints = ints.cut(n + 1)
	p.in.start, ints = ints.cut(n + 1)
	p.in.items, ints = ints.cut(m)
	p.tiers, _ = ints.cut(int(b.depth) + 1)
	for _, t := range b.tier {
		p.tiers[t+1]++
	}
	for t := range b.depth {
		p.tiers[t+1] += p.tiers[t]
	}
	var next []int32
	next, b.scratch = b.scratch.cut(int(b.depth))
	copy(next, p.tiers)
	for i := range n {
		r := Ref(next[b.tier[i]])
		next[b.tier[i]]++
		p.declared[i], p.decl[r] = r, int32(i)
		p.facts[r] = facts{tier: b.tier[i], wide: -1, router: -1}
		if int32(i) == b.end {
			p.end = r
		}
	}
	if !slices.IsSorted(p.declared) { // if they are sorted, each Ref equals the declaration index
		p.names = make([]string, n)
		for i, r := range p.declared {
			p.names[r] = names[i]
		}
	}
	for i := range b.edges {
		e := &b.edges[i]
		e.From, e.To = p.declared[e.From], p.declared[e.To]
	}
	items := p.in.items[:0]
	for r, i := range p.decl {
		items = append(items, b.Row(int(i))...)
		p.in.start[r+1] = int32(len(items))
	}
	return refs[2*n : 2*n]
}

// NodeSpec describes a node's behavior.
type NodeSpec struct {
	Join     Join // Builder.Rule needs a rule other than zero; Build accepts zero, too
	Skip     SkipMode
	Upstream UpstreamPolicy
	Ports    int // the number of parameters that may be required
	Flags    Flags
}

// Rule sets the behavior of node r.
func (b *Builder) Rule(r Ref, x NodeSpec) {
	f := &b.p.facts[r]
	f.join, f.mode, f.policy, f.flags, f.ports = x.Join, x.Skip, x.Upstream, x.Flags, uint16(min(x.Ports, mostPorts))
	b.p.losers = b.p.losers || f.is(FlagCancelLosers)
	b.p.nests = b.p.nests || f.is(FlagComposite)
	switch f.join.Rule() {
	case AnySucceeded, RuleAtLeast, OneFailed, OneDone:
		f.flags |= FlagEarly
		b.p.early = true
	case Boundary:
		b.boundary = true
	}
	b.wideRows = b.wideRows || f.join.Rule() == RuleAtLeast
	row := b.p.in.row(r)
	f.total = int32(len(row))
	for _, i := range row {
		if b.edges[i].Flags&EdgeData != 0 {
			f.total--
		}
	}
	if len(row) > manyEdges {
		b.sortBySource(r, row)
	}
}

// sortBySource stores a node's in-edges, sorted by source. EdgesFrom needs them in this order.
func (b *Builder) sortBySource(r Ref, row []int32) {
	bySource := func(x, y int32) int { return int(b.edges[x].From) - int(b.edges[y].From) }
	if !slices.IsSortedFunc(row, bySource) {
		row = slices.Clone(row)
		slices.SortStableFunc(row, bySource)
	}
	if b.p.bySource == nil {
		b.p.rare().bySource = map[Ref][]int32{}
	}
	b.p.bySource[r] = row
}

// Disable makes every run skip node r when the run begins.
func (b *Builder) Disable(r Ref) { b.p.rare().disabled = append(b.p.rare().disabled, r) }

// Catch registers a catch edge that handles failures of the given causes. If no causes are given, the edge handles all failures.
func (b *Builder) Catch(i int32, causes []CauseKind) {
	if b.filters == nil {
		b.filters = map[CauseSet]int32{}
	}
	e := &b.edges[i]
	e.LabelID = b.p.filter(causes, b.filters)
	b.p.facts[e.From].catch |= b.p.filters[e.LabelID]
}

// Routed returns the number of a condition among all conditions with labels. If the condition has no number yet, Routed gives it one, and `first` is
// true.
func (b *Builder) Routed(r Ref) (router int32, first bool) {
	f := &b.p.facts[r]
	if f.router < 0 {
		f.router, first = int32(len(b.p.routes)), true
		b.p.rare().routes = append(b.p.rare().routes, 0)
	}
	return f.router, first
}

// Label sets the label of an edge. Routed must already have given a number to the edge's source. The labels of a condition are numbered from 0.
func (b *Builder) Label(i int32, label int32) {
	e := &b.edges[i]
	e.LabelID = label
	routes := &b.p.routes[b.p.facts[e.From].router]
	*routes = max(*routes, label+1)
}

// Check marks a node that needs a check after its join. In the check, user code or data decides whether the node runs.
func (b *Builder) Check(r Ref) { b.p.facts[r].flags |= FlagCheck }

// Port marks an edge that feeds a required parameter of a node with an early rule.
func (b *Builder) Port(i int32) {
	b.edges[i].Flags |= edgePort
	b.wideRows = true
}

// MostLabels is the highest number of labels in a net: the labels of all its conditions together.
const MostLabels = 1<<(32-edgeBits) - 1

// Lay numbers the labels of all conditions, marks each node whose failures some successor handles, and clears FlagPlain of conditions with
// labels. It also computes where each node's out-edges begin. If the net has more than MostLabels labels, Lay returns false.
func (b *Builder) Lay() bool {
	p := b.p
	for i := range p.edges {
		e := &p.edges[i]
		if p.handles(e) {
			p.facts[e.From].flags |= factHandled
			p.handlers = true
		}
		if e.To != p.end {
			p.out[e.From+1]++
		}
	}
	for r := range p.facts {
		f := &p.facts[r]
		if f.router >= 0 {
			f.labels = int32(p.labels)
			p.labels += int(p.routes[f.router])
			f.flags &^= FlagPlain
		}
	}
	if p.labels > MostLabels {
		return false
	}
	if p.labels > 0 {
		for i := range p.edges {
			if e := &p.edges[i]; e.Flags&EdgeLabelled != 0 {
				e.LabelID += p.facts[e.From].labels
			}
		}
	}
	for r := range p.facts {
		p.out[r+1] += p.out[r]
	}
	return true
}

// Finish writes the arcs, since the flags of the edges are complete now. It sorts the arcs of each node by target and then by declaration. The
// completion of a node takes effect in this order.
func (b *Builder) Finish() {
	p := b.p
	if b.wideRows {
		for r := range p.facts {
			b.widen(Ref(r))
		}
	}
	next := b.into.start // reuses the memory of b.into.start, which nothing needs any more
	copy(next, p.out)
	p.arcs = make([]Arc, p.out[len(p.facts)])
	for r := range p.facts {
		if Ref(r) == p.end {
			continue
		}
		for _, i := range p.in.row(Ref(r)) {
			e := &p.edges[i]
			a := e.arc()
			if a.facts&edgeSpecial != 0 {
				p.facts[e.From].flags |= flagForks
			}
			p.arcs[next[e.From]] = a
			next[e.From]++
		}
	}
	b.initialWords()
}

// The method `widen` gives extra counters to a node under AtLeast, and to a node with an edge that Port has marked. The node's word has too few bits
// for these counters.
func (b *Builder) widen(r Ref) {
	p := b.p
	f, row := &p.facts[r], p.in.row(r)
	if f.join.Rule() != RuleAtLeast && !slices.ContainsFunc(row, func(i int32) bool { return p.edges[i].Flags&edgePort != 0 }) {
		return
	}
	f.wide = int32(p.wide)
	p.wide++
	for _, i := range row {
		p.edges[i].Flags |= edgeWide
	}
}

// initialWords computes the words with which a run begins. The word of a node is the number in which a State stores the node's status and counters.
func (b *Builder) initialWords() {
	p := b.p
	p.words = make([]uint64, len(p.facts))
	for r := range p.facts {
		f := &p.facts[r]
		w := uint64(uint32(len(p.in.row(Ref(r)))))
		plain := !f.is(FlagEarly | FlagInline | FlagCheck)
		switch f.join {
		case AllFailed, AllSkipped:
			plain = false
		}
		if !plain || f.wide >= 0 {
			w |= wordSpecial
		}
		if f.is(FlagPlain) {
			w |= wordPlain
		}
		p.words[r] = w
	}
}

// OrderBy computes the longest remaining path of each node, and the order in which ready nodes start. The function `own` returns the length of a
// single node. The argument `priorities` lists the priorities by Ref. It is nil if all priorities are 0.
func (b *Builder) OrderBy(own func(Ref) int64, priorities []int) {
	if priorities != nil {
		b.p.rare().priorities = priorities
	}
	b.p.order.rank = make([]int64, len(b.p.facts))
	b.p.orderInto(own, b.p.order, b.scratch)
}

// SetGroups sets the groups of the nodes, by Ref, and the bounds of the groups.
func (p *Net) SetGroups(member [][]int32, bounds []Bound) {
	if member != nil || len(bounds) > 0 || p.netRare != &plainNet {
		x := p.rare()
		x.member, x.bounds = member, bounds
	}
}

// The type `lateKeys` lists the nodes whose keys come from values. The key of such a node is unknown until the node has been checked.
type lateKeys struct {
	declared map[string]int32 // by key that the graph itself declares: the key's group
	group    map[Ref]int32    // by node with a late key: the node's own group, which contains no other node
	isLate   map[int32]bool   // by group: whether a node with a late key is in the group
}

// SetLateKeys registers the nodes whose keys come from values. The argument `nodes` maps each of them to a group of its own. The argument `declared`
// maps each key that the graph itself declares to the group of the key.
func (p *Net) SetLateKeys(nodes map[Ref]int32, declared map[string]int32) {
	p.rare().lateKeys = &lateKeys{declared: declared, group: nodes, isLate: make(map[int32]bool, len(nodes))}
	for _, g := range nodes {
		p.lateKeys.isLate[g] = true
	}
}

// Groups returns the groups of a node.
func (p *Net) Groups(r Ref) []int32 {
	if p.member == nil {
		return nil
	}
	return p.member[r]
}

// IsLeaf reports whether a node is a leaf: no edge leads from it, except to the end node. The end node itself is not a leaf.
func (p *Net) IsLeaf(r Ref) bool { return r != p.end && p.out[r] == p.out[r+1] }

// Repeat makes a net for the items of a map. The net has no edges, and one copy of the only node of p for each name. An item that is a composite
// holds a slot of the map.
func (p *Net) Repeat(names []string) Net {
	n := len(names)
	zeros := make([]int32, n+1)
	q := Net{
		names: names, facts: make([]facts, n), declared: make([]Ref, n), decl: make([]int32, n),
		in: csr{start: zeros}, out: zeros, tiers: []int32{0, int32(n)}, order: Schedule{rank: make([]int64, n)},
		words: make([]uint64, n), end: NoRef, nests: p.nests, items: true, ancestry: &ancestry{}, hash: &netHash{}, netRare: &plainNet,
	}
	if p.routes != nil || p.filters != nil || p.bounds != nil {
		q.netRare = &netRare{routes: p.routes, filters: p.filters, bounds: p.bounds}
	}
	if p.member != nil {
		q.rare().member = slices.Repeat(p.member[:1], n)
	}
	item := p.facts[0]
	if item.is(FlagComposite) {
		item.flags &^= FlagInline
	}
	for i := range n {
		q.facts[i], q.declared[i], q.decl[i] = item, Ref(i), int32(i)
		q.order.rank[i], q.words[i] = p.order.rank[0], p.words[0]
	}
	q.order.pos, q.order.at = q.decl, q.declared
	return q
}

// Reorder sorts the nodes of a net without edges by their durations, the longest first.
func (p *Net) Reorder(own func(Ref) int64) {
	p.order = Schedule{make([]int64, len(p.facts)), make([]int32, len(p.facts)), slices.Clone(p.declared)}
	for r := range p.order.rank {
		p.order.rank[r] = own(Ref(r))
	}
	slices.SortStableFunc(p.order.at, func(a, b Ref) int { return cmp.Compare(p.order.rank[b], p.order.rank[a]) })
	for i, r := range p.order.at {
		p.order.pos[r] = int32(i)
	}
}

// With returns a copy of the net with new flags. The function `flags` gets the old flags of a node and returns the new ones. No node of the copy has
// FlagPlain.
func (p *Net) With(flags func(Ref, Flags) Flags) Net {
	q := *p
	q.facts, q.words, q.hash = slices.Clone(p.facts), slices.Clone(p.words), &netHash{}
	for r := range q.facts {
		f := &q.facts[r]
		f.flags = flags(Ref(r), f.flags) &^ FlagPlain
		q.words[r] &^= wordPlain
	}
	return q
}
