package kahn

import (
	"cmp"
	"fmt"
	"iter"
	"math"
	"slices"
	"time"
)

// Ref is a node's dense id in its [Plan]. Refs run from 0 in topological order: by tier, then by declaration. A node's
// predecessors therefore always have smaller Refs.
type Ref int32

// Plan is a compiled graph: validated, immutable, and ready to be run any number of times at once. It is a copy; what
// happens to the graph afterwards does not reach it.
type Plan struct {
	name     string
	nodes    []Node // by Ref
	facts    []facts
	ids      map[string]Ref
	declared []Ref   // the Refs in order of declaration
	decl     []int32 // by Ref: the index of declaration
	edges    []edge  // in order of declaration, the implicit edges into the end node last
	in       csr     // by Ref: indices into edges, in order of declaration
	out      []int32 // by Ref, one more than nodes: where the node's arcs start
	arcs     []arc   // the out-edges, by target, then declaration; edges into the end node have none
	tiers    []int32 // by tier, one more than tiers: the first Ref of the tier
	rank     []int64 // by Ref: the longest remaining path, itself included
	pos      []int32 // by Ref: the place in schedule order (priority, rank, declaration)
	at       []Ref   // the inverse of pos
	words    []uint64
	routers  []*router    // see facts.router
	filters  []causeSet   // what filtered catch edges let through; the first lets everything through
	data     []*inputs    // by Ref: nil for a node without parameters
	inputs   []needsInput // required ports that only a root input can feed
	disabled []Ref
	labels   int  // number of (condition, label) pairs
	wide     int  // number of nodes with facts.wide >= 0
	early    bool // some node has an early rule
	end      Ref  // the end node, or noRef
	stepless []Ref
}

const noRef Ref = -1

// facts is what the state machine needs to know of a node, fixed at compile time.
type facts struct {
	catch  causeSet // the causes for which an On failure edge leaves the node
	join   Join
	total  int32 // control edges
	wide   int32 // index of the node's extra counters, or -1
	router int32 // index into routers, or -1
	labels int32 // the plan-wide number of the router's first label
	tier   int32
	mode   SkipMode
	policy UpstreamPolicy
	flags  factFlags
}

type factFlags uint16

const (
	factObserver factFlags = 1 << iota // a failure that reaches the node is not handled by it
	factTolerant                       // ContinueOnFail
	factCleanup                        // Cleanup or the end node: starts in a stopping run too
	factInline                         // evaluated by the engine: takes no slot, is not queued
	factCheck                          // user code or data decides after the join
	factEarly                          // its rule may start it before all edges have resolved
	factCritical
	factHandled // some direct dependent is there to handle its failure
)

func (f *facts) is(flag factFlags) bool { return f.flags&flag != 0 }

// edge is an Edge with its endpoints resolved.
type edge struct {
	*Edge
	from, to Ref
	flags    uint8
	label    int32 // labelled: the plan-wide number of the (condition, label) pair; On failure: the filter; else -1
}

// arc is an out-edge as the settle loop reads it: eight bytes, with the facts that are fixed at compile time.
type arc struct {
	to    Ref
	facts uint32 // arc flags in the low bits, the edge's label above
}

const (
	arcFailure  uint8 = 1 << iota // On failure
	arcAlways                     // On always
	arcLabelled                   // taken only if the label was selected
	arcData                       // data-only
	arcShielded                   // a boundary judges the failure
	arcPort                       // feeds a required port of a node with an early rule
	arcWide                       // its target keeps counters beside its word

	arcBits = 8
	// arcSpecial are the flags that matter when the source completed.
	arcSpecial = uint32(arcFailure | arcLabelled | arcData | arcPort | arcWide)
)

func (a arc) is(flag uint8) bool { return a.facts&uint32(flag) != 0 }
func (a arc) label() uint32      { return a.facts >> arcBits }

// csr is a flat adjacency: the values of row r are items[start[r]:start[r+1]].
type csr struct {
	start []int32
	items []int32
}

func (c *csr) row(r Ref) []int32 { return c.items[c.start[r]:c.start[r+1]] }

// newCSR builds rows out of (row, item) pairs, in the order of the pairs. A negative row is left out.
func newCSR(rows int, n int, rowOf func(i int) Ref) csr {
	c := csr{start: make([]int32, rows+1)}
	for i := range n {
		if r := rowOf(i); r >= 0 {
			c.start[r+1]++
		}
	}
	for r := range rows {
		c.start[r+1] += c.start[r]
	}
	c.items = make([]int32, c.start[rows])
	next := slices.Clone(c.start[:rows])
	for i := range n {
		if r := rowOf(i); r >= 0 {
			c.items[next[r]] = int32(i)
			next[r]++
		}
	}
	return c
}

// inputs says how a node's parameters come about.
type inputs struct {
	params []param
	ports  map[string]*Port
	// bySource holds the in-edges by source, then declaration, of a node that has too many to look through.
	bySource []int32
}

const manyEdges = 16

// param is one parameter that edges deliver to.
type param struct {
	name     string
	edges    []int32 // in order of declaration
	strategy string
	fn       MergeFunc // for a registered strategy
	keys     []string  // by edge: the key under MergeObject
}

type needsInput struct{ node, port string }

// Len returns the number of nodes.
func (p *Plan) Len() int { return len(p.nodes) }

// Name returns the name of the graph.
func (p *Plan) Name() string { return p.name }

// Ref returns the dense id of a node.
func (p *Plan) Ref(id string) (Ref, bool) {
	r, ok := p.ids[id]
	return r, ok
}

// ID returns the id of a node. It panics if r is out of range.
func (p *Plan) ID(r Ref) string { return p.nodes[r].ID }

// Node returns a copy of the node, with After and In empty. It panics if r is out of range.
func (p *Plan) Node(r Ref) Node { return p.nodes[r] }

// Declared yields all nodes in the order of their declaration.
func (p *Plan) Declared() iter.Seq2[Ref, string] {
	return func(yield func(Ref, string) bool) {
		for _, r := range p.declared {
			if !yield(r, p.nodes[r].ID) {
				return
			}
		}
	}
}

// Tier returns the node's Kahn level: the number of edges on the longest path that leads to it. The end node has a tier
// of its own after all others.
func (p *Plan) Tier(r Ref) int { return int(p.facts[r].tier) }

// Tiers returns the ids of the nodes tier by tier, each tier in the order of declaration.
func (p *Plan) Tiers() [][]string {
	tiers := make([][]string, len(p.tiers)-1)
	for t := range tiers {
		for r := p.tiers[t]; r < p.tiers[t+1]; r++ {
			tiers[t] = append(tiers[t], p.nodes[r].ID)
		}
	}
	return tiers
}

// CriticalPath returns the ids along the longest path by Estimate, or by the number of nodes where none is estimated.
func (p *Plan) CriticalPath() []string {
	best := noRef
	for r := range p.nodes {
		if r := Ref(r); r != p.end && (best == noRef || p.rank[r] > p.rank[best]) {
			best = r
		}
	}
	var path []string
	for best != noRef {
		path = append(path, p.nodes[best].ID)
		next := noRef
		for _, a := range p.outOf(best) {
			if next == noRef || p.rank[a.to] > p.rank[next] {
				next = a.to
			}
		}
		best = next
	}
	return path
}

// edgesFrom returns a part of to's in-edges that holds all edges from the given node.
func (p *Plan) edgesFrom(to, from Ref) []int32 {
	row := p.in.row(to)
	if len(row) > manyEdges {
		row = p.data[to].bySource
		lo, _ := slices.BinarySearchFunc(row, from, func(e int32, from Ref) int { return cmp.Compare(p.edges[e].from, from) })
		hi, _ := slices.BinarySearchFunc(row, from+1, func(e int32, from Ref) int { return cmp.Compare(p.edges[e].from, from) })
		return row[lo:hi]
	}
	for i, e := range row {
		if p.edges[e].from == from {
			return row[i:]
		}
	}
	return nil
}

func (p *Plan) outOf(r Ref) []arc { return p.arcs[p.out[r]:p.out[r+1]] }

// Portable reports what keeps the graph from running anywhere but in this process: the functions that its nodes hold. It
// returns nil for a graph that is all data.
func (p *Plan) Portable() error {
	ps := problems{graph: p.name}
	for _, r := range p.declared {
		n := &p.nodes[r]
		for _, f := range []struct {
			name string
			set  bool
		}{{"Do", n.Do != nil}, {"Test", n.Test != nil}, {"When", n.When != nil}, {"Fallback", n.Fallback != nil}} {
			if f.set {
				ps.add("node %s: %w: %s is a Go function", quoteID(n.ID), ErrBadValue, f.name)
			}
		}
	}
	return ps.err()
}

// problems collects what is wrong with a graph, as much of it as people read.
type problems struct {
	graph string
	list  []error
	more  int
}

const maxProblems = 100

func (ps *problems) add(format string, args ...any) { ps.addErr(fmt.Errorf(format, args...)) }

func (ps *problems) addErr(err error) {
	if len(ps.list) == maxProblems {
		ps.more++
		return
	}
	ps.list = append(ps.list, err)
}

func (ps *problems) err() error {
	if len(ps.list) == 0 {
		return nil
	}
	return &GraphError{Graph: ps.graph, Problems: ps.list, More: ps.more}
}

const maxNodes = math.MaxInt32 / 2 // Refs, edge indices and pending counts are int32

// compile turns a graph into a plan, in time linear in its nodes and edges but for one sort, or reports all problems.
//
// The steps build on one another: ids, then edges between them, then tiers, which number the nodes, then everything that
// is indexed by these numbers. Checks that need only what an earlier step gave run even if others found something.
func compile(g *Graph) (*Plan, error) {
	c := compiler{g: g, problems: problems{graph: g.Name}}
	if len(g.nodes) > maxNodes || len(g.edges) > maxNodes {
		c.add("%w: more than %d nodes or edges", ErrBadValue, maxNodes)
		return nil, c.err()
	}
	c.checkDefaults()
	c.indexNodes()
	c.resolveEdges()
	for i := range g.nodes {
		c.checkNode(i)
	}
	c.levels()
	if err := c.err(); err != nil {
		return nil, err
	}
	c.number()
	c.adjacency()
	c.shield()
	c.bindInputs()
	c.schedule()
	c.initialWords()
	if err := c.err(); err != nil {
		return nil, err
	}
	return c.p, nil
}

// compiler holds what compile's steps hand to one another. Until number has run, nodes go by their index of declaration.
type compiler struct {
	problems
	g     *Graph
	p     *Plan
	index map[string]int32
	end   int32  // the end node, or -1
	edges []edge // from and to are indices of declaration at first
	into  csr    // by node: its in-edges
	outOf csr    // by node: its out-edges, edges into the end node left out
	tier  []int32
	depth int32 // number of tiers
}

func (c *compiler) checkDefaults() {
	d := c.g.Defaults
	if d.SkipMode >= skipModeCount || d.OnUpstreamFailure >= upstreamCount || d.GuardErrors >= guardCount {
		c.add("Defaults: %w: %v, %v, %v", ErrBadValue, d.SkipMode, d.OnUpstreamFailure, d.GuardErrors)
	}
	if err := d.Retry.validate(); err != nil {
		c.add("Defaults: %w", err)
	}
	for name, fn := range c.g.merges {
		if fn == nil {
			c.add("%w: merge strategy %s is nil or registered twice", ErrBadValue, quoteID(name))
		}
	}
}

func (c *compiler) indexNodes() {
	c.index = make(map[string]int32, len(c.g.nodes))
	c.end = -1
	for i := range c.g.nodes {
		n := &c.g.nodes[i]
		if n.ID == "" {
			c.add("node number %d: %w: empty ID", i+1, ErrBadValue)
			continue
		}
		if _, taken := c.index[n.ID]; taken {
			c.add("%w: %s", ErrDuplicateNode, quoteID(n.ID))
			continue
		}
		c.index[n.ID] = int32(i)
		if n.Kind != KindEnd {
			continue
		}
		if c.end >= 0 {
			c.add("%w: both %s and %s are of kind %q", ErrBadEnd, quoteID(c.g.nodes[c.end].ID), quoteID(n.ID), KindEnd)
			continue
		}
		c.end = int32(i)
	}
}

// isRouter reports whether the node's output is labelled.
func isRouter(n *Node) bool {
	return n.Routes || n.Test != nil || n.Kind == KindCondition || n.Kind == KindGate
}

func (c *compiler) resolveEdges() {
	c.edges = make([]edge, 0, len(c.g.edges))
	for i := range c.g.edges {
		e := &c.g.edges[i]
		name := func() string { return quoteID(e.From) + " -> " + quoteID(e.To) }
		from, okFrom := c.index[e.From]
		to, okTo := c.index[e.To]
		if !okFrom {
			c.add("edge %s: %w: %s", name(), ErrUnknownNode, quoteID(e.From))
		}
		if !okTo {
			c.add("edge %s: %w: %s", name(), ErrUnknownNode, quoteID(e.To))
		}
		if !okFrom || !okTo {
			continue
		}
		if from == to {
			c.add("edge %s: %w", name(), &CycleError{Nodes: []string{e.From}})
			continue
		}
		r := edge{Edge: e, from: Ref(from), to: Ref(to), label: -1}
		switch {
		case e.On >= onCount:
			c.add("edge %s: %w: %v", name(), ErrBadValue, e.On)
		case from == c.end:
			c.add("edge %s: %w: nothing can follow the end node", name(), ErrBadEnd)
		case e.DataOnly && (e.On != OnSuccess || e.Label != "") && to != c.end:
			c.add("edge %s: %w: a data-only edge has neither a label nor an outcome to wait for", name(), ErrBadEdge)
		case e.On != OnSuccess && e.Label != "" && to != c.end:
			c.add("edge %s: %w: a labelled edge waits for success", name(), ErrBadEdge)
		case len(e.Causes) > 0 && e.On != OnFailure:
			c.add("edge %s: %w: Causes belong on an edge that waits for failure", name(), ErrBadEdge)
		case e.Label != "" && to != c.end && !isRouter(&c.g.nodes[from]):
			c.add("edge %s: %w: label %s, but the output of %s is not a label (set Routes, or kind %q)",
				name(), ErrBadEdge, quoteID(e.Label), quoteID(e.From), KindCondition)
		}
		for _, k := range e.Causes {
			if k == CauseNone || k >= causeCount {
				c.add("edge %s: %w: cause %v", name(), ErrBadValue, k)
			}
		}
		if e.Merge != "" && !c.knownMerge(e.Merge) {
			c.add("edge %s: %w: no merge strategy %s", name(), ErrBadValue, quoteID(e.Merge))
		}
		if to != c.end { // an edge into the end node carries data and nothing else
			switch e.On {
			case OnFailure:
				r.flags |= arcFailure
			case OnAlways:
				r.flags |= arcAlways
			}
			if e.Label != "" {
				r.flags |= arcLabelled
			}
			if e.DataOnly {
				r.flags |= arcData
			}
		}
		c.edges = append(c.edges, r)
	}
	n := len(c.g.nodes)
	c.outOf = newCSR(n, len(c.edges), func(i int) Ref {
		if c.edges[i].to == Ref(c.end) {
			return noRef
		}
		return c.edges[i].from
	})
	if c.end >= 0 {
		c.implicitEnd()
	}
	c.into = newCSR(n, len(c.edges), func(i int) Ref { return c.edges[i].to })
	c.duplicateEdges()
}

// implicitEnd connects the nodes without successors to the end node, unless they are connected already.
func (c *compiler) implicitEnd() {
	connected := make([]bool, len(c.g.nodes))
	for _, e := range c.edges {
		if e.to == Ref(c.end) {
			connected[e.from] = true
		}
	}
	for i := range c.g.nodes {
		if int32(i) == c.end || connected[i] || len(c.outOf.row(Ref(i))) > 0 || c.index[c.g.nodes[i].ID] != int32(i) {
			continue
		}
		c.edges = append(c.edges, edge{
			Edge: &Edge{From: c.g.nodes[i].ID, To: c.g.nodes[c.end].ID}, from: Ref(i), to: Ref(c.end), label: -1,
		})
	}
}

// duplicateEdges reports edges that say the same. Parallel edges that differ in parameter, key, label or outcome are
// edges of their own.
func (c *compiler) duplicateEdges() {
	type key struct {
		from              Ref
		param, key, label string
		on                On
	}
	last := make([]int32, len(c.g.nodes)) // by source: the last target seen plus one, so that a map is needed for parallels only
	for to := range c.g.nodes {
		var seen map[key]bool
		parallel := false
		row := c.into.row(Ref(to))
		for _, i := range row {
			from := c.edges[i].from
			parallel = parallel || last[from] == int32(to)+1
			last[from] = int32(to) + 1
		}
		if !parallel {
			continue
		}
		seen = make(map[key]bool, len(row))
		for _, i := range row {
			e := c.edges[i]
			k := key{e.from, e.Param, e.Key, e.Label, e.On}
			if seen[k] {
				c.add("%w: %s -> %s", ErrDuplicateEdge, quoteID(e.From), quoteID(e.To))
			}
			seen[k] = true
		}
	}
}

func (c *compiler) knownMerge(name string) bool {
	if builtinMerge(name) {
		return true
	}
	_, ok := c.g.merges[name]
	return ok
}

// checkNode validates what a node says of itself and what it says of its edges.
func (c *compiler) checkNode(i int) {
	n := &c.g.nodes[i]
	bad := func(kind error, format string, args ...any) {
		c.addErr(fmt.Errorf("node %s: %w: %s", quoteID(n.ID), kind, fmt.Sprintf(format, args...)))
	}
	if n.SkipMode >= skipModeCount || n.OnUpstreamFailure >= upstreamCount || n.GuardErrors >= guardCount || n.NoMatch >= noMatchCount {
		bad(ErrBadValue, "%v, %v, %v, %v", n.SkipMode, n.OnUpstreamFailure, n.GuardErrors, n.NoMatch)
	}
	for _, d := range []struct {
		name string
		d    time.Duration
	}{{"Timeout", n.Timeout}, {"OverallTimeout", n.OverallTimeout}, {"Estimate", n.Estimate}} {
		if d.d < 0 {
			bad(ErrBadValue, "%s %v is negative", d.name, d.d)
		}
	}
	if err := n.Retry.validate(); err != nil {
		c.add("node %s: %w", quoteID(n.ID), err)
	}
	if n.Do != nil && n.Test != nil {
		bad(ErrBadValue, "it has both a Do and a Test")
	}
	if n.Merge != "" && !c.knownMerge(n.Merge) {
		bad(ErrBadValue, "no merge strategy %s", quoteID(n.Merge))
	}
	ports := make(map[string]bool, len(n.Ports))
	for _, p := range n.Ports {
		if p.Name == "" || ports[p.Name] {
			bad(ErrBadValue, "port %s is unnamed or declared twice", quoteID(p.Name))
		}
		ports[p.Name] = true
	}
	control := 0
	for _, e := range c.into.row(Ref(i)) {
		if !c.edges[e].DataOnly {
			control++
		}
	}
	switch {
	case !n.Join.valid():
		bad(ErrBadJoin, "%v", n.Join)
	case int32(i) == c.end:
		if n.Join != joinDefault || n.When != nil || n.Disabled || n.Test != nil || n.Routes || n.OnUpstreamFailure != upstreamDefault ||
			n.SkipMode != skipModeDefault {
			bad(ErrBadEnd, "the end node has no join rule, guard, policy or branches, and cannot be disabled")
		}
	case n.Join.rule() == joinAtLeast && (n.Join.k() < 1 || n.Join.k() > control):
		bad(ErrBadJoin, "%v with %d control edges", n.Join, control)
	case n.Cleanup && n.Join != joinDefault && n.Join != AllDone:
		bad(ErrBadJoin, "a cleanup node joins by all_done, not by %v", n.Join)
	}
}

// levels computes the Kahn tiers: A. B. Kahn, Topological sorting of large networks (1962), with the longest path as the
// level.
func (c *compiler) levels() {
	n := len(c.g.nodes)
	c.tier = make([]int32, n)
	pending := make([]int32, n)
	for i := range n {
		if int32(i) != c.end {
			pending[i] = int32(len(c.into.row(Ref(i))))
		}
	}
	queue := make([]int32, 0, n)
	for i := range n {
		if pending[i] == 0 && int32(i) != c.end {
			queue = append(queue, int32(i))
		}
	}
	for head := 0; head < len(queue); head++ {
		i := queue[head]
		c.depth = max(c.depth, c.tier[i]+1)
		for _, e := range c.outOf.row(Ref(i)) {
			to := c.edges[e].to
			c.tier[to] = max(c.tier[to], c.tier[i]+1)
			if pending[to]--; pending[to] == 0 {
				queue = append(queue, int32(to))
			}
		}
	}
	total := n
	if c.end >= 0 {
		total--
		c.tier[c.end] = c.depth
		c.depth++
	}
	if len(queue) < total {
		c.addErr(c.findCycle(pending))
	}
}

// findCycle names one cycle among the nodes that Kahn's algorithm left over: from one that is certainly on a cycle, the
// shortest way back to it.
func (c *compiler) findCycle(pending []int32) error {
	// Every node left over has a predecessor left over, so walking backwards must meet a node twice: it is on a cycle.
	var at int32
	for i := range pending {
		if pending[i] > 0 {
			at = int32(i)
			break
		}
	}
	seen := make([]bool, len(pending))
	for !seen[at] {
		seen[at] = true
		for _, e := range c.into.row(Ref(at)) {
			if from := c.edges[e].from; pending[from] > 0 {
				at = int32(from)
				break
			}
		}
	}
	start := Ref(at)
	parent := make([]Ref, len(pending))
	for i := range parent {
		parent[i] = noRef
	}
	queue := []Ref{start}
	for head := 0; head < len(queue); head++ {
		for _, e := range c.outOf.row(queue[head]) {
			to := c.edges[e].to
			if to == start {
				cycle := []string{}
				for r := queue[head]; r != start; r = parent[r] {
					cycle = append(cycle, c.g.nodes[r].ID)
				}
				cycle = append(cycle, c.g.nodes[start].ID)
				slices.Reverse(cycle)
				return &CycleError{Nodes: cycle}
			}
			if pending[to] > 0 && parent[to] == noRef {
				parent[to] = queue[head]
				queue = append(queue, to)
			}
		}
	}
	return &CycleError{} // not reached: start is on a cycle
}

// number gives the nodes their Refs, by tier and then by declaration, and resolves what a node leaves to defaults. From
// here on edges go by Refs.
func (c *compiler) number() {
	n := len(c.g.nodes)
	p := &Plan{
		name: c.g.Name, nodes: make([]Node, n), facts: make([]facts, n), ids: make(map[string]Ref, n),
		declared: make([]Ref, n), decl: make([]int32, n), tiers: make([]int32, c.depth+1), end: noRef,
	}
	c.p = p
	for _, t := range c.tier {
		p.tiers[t+1]++
	}
	for t := range c.depth {
		p.tiers[t+1] += p.tiers[t]
	}
	next := slices.Clone(p.tiers)
	for i := range n {
		r := Ref(next[c.tier[i]])
		next[c.tier[i]]++
		p.declared[i], p.decl[r] = r, int32(i)
		p.nodes[r] = c.g.nodes[i]
		p.ids[p.nodes[r].ID] = r
		p.facts[r].tier = c.tier[i]
		if int32(i) == c.end {
			p.end = r
		}
	}
	for i := range c.edges {
		e := &c.edges[i]
		e.from, e.to = p.declared[e.from], p.declared[e.to]
	}
	p.edges = c.edges
	p.in = newCSR(n, len(p.edges), func(i int) Ref { return p.edges[i].to })
	for r := range p.nodes {
		c.resolve(Ref(r))
	}
}

// resolve works out the node's facts from its fields and the graph's defaults.
func (c *compiler) resolve(r Ref) {
	n, f, d := &c.p.nodes[r], &c.p.facts[r], c.g.Defaults
	f.wide, f.router = -1, -1
	f.join = n.Join
	isEnd := r == c.p.end
	if f.join == joinDefault {
		switch {
		case n.Cleanup || isEnd:
			f.join = AllDone
		case n.Test != nil:
			f.join = Boundary
		default:
			f.join = AllSucceeded
		}
	}
	f.mode = cmp.Or(n.SkipMode, d.SkipMode, SkipCascade)
	f.policy = cmp.Or(n.OnUpstreamFailure, d.OnUpstreamFailure, UpstreamAbort)
	n.GuardErrors = cmp.Or(n.GuardErrors, d.GuardErrors, GuardAllow)
	if n.Retry.isZero() {
		n.Retry = d.Retry
	}
	if !n.Retry.isZero() {
		n.Retry = n.Retry.withDefaults()
	}
	set := func(flag factFlags, on bool) {
		if on {
			f.flags |= flag
		}
	}
	observer := isEnd || n.Cleanup || f.join == AllDone || f.join == AllSkipped
	set(factObserver, observer != n.HandlesFailure)
	set(factTolerant, n.ContinueOnFail)
	set(factCleanup, n.Cleanup || isEnd)
	set(factInline, n.Test != nil)
	set(factCheck, n.When != nil || len(n.Ports) > 0)
	set(factCritical, n.Critical)
	switch f.join.rule() {
	case AnySucceeded, joinAtLeast, OneFailed, OneDone:
		f.flags |= factEarly
		c.p.early = true
	}
	for _, i := range c.p.in.row(r) {
		if !c.p.edges[i].DataOnly {
			f.total++
		}
	}
	if n.Disabled {
		c.p.disabled = append(c.p.disabled, r)
	}
	if n.Do == nil && n.Test == nil {
		c.p.stepless = append(c.p.stepless, r)
	}
}

// adjacency lays the out-edges out flat, by target and then by declaration, which is the order in which a completion
// takes effect, and numbers the labels of conditions.
func (c *compiler) adjacency() {
	p := c.p
	for i := range p.edges {
		e := &p.edges[i]
		if e.to == p.end {
			continue
		}
		f := &p.facts[e.from]
		if e.flags&arcFailure != 0 {
			e.label = p.filter(e.Causes)
			f.catch |= p.filters[e.label]
		}
		if p.handles(e) {
			f.flags |= factHandled
		}
		if e.flags&arcLabelled != 0 {
			if f.router < 0 {
				f.router = int32(len(p.routers))
				p.routers = append(p.routers, newRouter(p.nodes[e.from].Kind == KindGate))
			}
			e.label = p.routers[f.router].add(e.Label)
		}
	}
	for r := range p.facts {
		if f := &p.facts[r]; f.router >= 0 {
			f.labels = int32(p.labels)
			p.labels += len(p.routers[f.router].labels)
		}
	}
	if p.labels > 1<<(32-arcBits)-1 {
		c.add("%w: more than %d branches", ErrBadValue, 1<<(32-arcBits)-1)
		return
	}
	p.out = make([]int32, len(p.nodes)+1)
	for i := range p.edges {
		e := &p.edges[i]
		if e.to != p.end {
			p.out[e.from+1]++
		}
		if e.flags&arcLabelled != 0 {
			e.label += p.facts[e.from].labels
		}
	}
	for r := range p.nodes {
		p.out[r+1] += p.out[r]
	}
}

// filter returns the number of the set of causes in filters.
func (p *Plan) filter(causes []CauseKind) int32 {
	var set causeSet
	for _, k := range causes {
		set |= 1 << k
	}
	if len(causes) == 0 {
		set = math.MaxUint64
	}
	i := slices.Index(p.filters, set)
	if i < 0 {
		i = len(p.filters)
		p.filters = append(p.filters, set)
	}
	return int32(i)
}

// handles reports whether the edge leads to something that is there to handle its source's failure, whatever else
// happens: a failure with no such edge is what the failure modes react to.
func (p *Plan) handles(e *edge) bool {
	if e.flags&arcData != 0 {
		return false
	}
	if e.flags&arcFailure != 0 {
		return true
	}
	if e.flags&arcAlways != 0 {
		return false
	}
	f := &p.facts[e.to]
	if f.is(factObserver) {
		return false
	}
	switch f.join.rule() {
	case AllSucceeded, NoneFailed:
		return f.policy == UpstreamSkip || f.policy == UpstreamSubstitute
	}
	return true
}

// shield marks the edges f -> t for which t has a direct in-edge from an error boundary c that f is an ancestor of: c
// judges that failure, not t.
//
// For each boundary c it looks backwards from c for the other predecessors of c's successors. The search stays above the
// tier of the lowest candidate, so that on graphs where conditions judge their neighbourhood it is linear in all.
func (c *compiler) shield() {
	p := c.p
	var stack []Ref
	visited := make([]Ref, len(p.nodes)) // by Ref: the last boundary that visited it plus one
	successors := make([]Ref, 0, 8)
	for r := range p.nodes {
		b := Ref(r)
		if p.facts[b].join != Boundary {
			continue
		}
		lowest := b
		successors = successors[:0]
		for _, i := range c.outOf.row(Ref(p.decl[b])) {
			to := p.edges[i].to
			successors = append(successors, to)
			for _, j := range p.in.row(to) {
				lowest = min(lowest, p.edges[j].from)
			}
		}
		if lowest == b {
			continue
		}
		stack = append(stack[:0], b)
		for len(stack) > 0 {
			at := stack[len(stack)-1]
			stack = stack[:len(stack)-1]
			for _, i := range p.in.row(at) {
				if from := p.edges[i].from; from >= lowest && visited[from] != b+1 {
					visited[from] = b + 1
					stack = append(stack, from)
				}
			}
		}
		for _, to := range successors {
			for _, j := range p.in.row(to) {
				if e := &p.edges[j]; visited[e.from] == b+1 {
					e.flags |= arcShielded
				}
			}
		}
	}
}

// bindInputs groups the edges of each parameter, settles their merge strategy, and finds required ports that nothing
// feeds. It then writes the arcs, whose facts are complete only now.
func (c *compiler) bindInputs() {
	p := c.p
	p.data = make([]*inputs, len(p.nodes))
	for r := range p.nodes {
		n, f := &p.nodes[r], &p.facts[r]
		in := c.inputsOf(Ref(r))
		p.data[r] = in
		wide := f.join.rule() == joinAtLeast
		if in != nil {
			for i := range in.params {
				if in.params[i].strategy != MergeLast {
					f.flags |= factCheck
				}
				port := in.ports[in.params[i].name]
				if port != nil && port.Required && f.is(factEarly) {
					wide = true
					for _, e := range in.params[i].edges {
						p.edges[e].flags |= arcPort
					}
				}
			}
		}
		if wide {
			f.wide = int32(p.wide)
			p.wide++
			for _, i := range p.in.row(Ref(r)) {
				p.edges[i].flags |= arcWide
			}
		}
		for i := range n.Ports {
			c.bindPort(n, &n.Ports[i], in)
		}
	}
	next := slices.Clone(p.out)
	p.arcs = make([]arc, p.out[len(p.nodes)])
	for r := range p.nodes {
		if Ref(r) == p.end {
			continue
		}
		for _, i := range p.in.row(Ref(r)) {
			e := &p.edges[i]
			p.arcs[next[e.from]] = e.arc()
			next[e.from]++
		}
	}
}

func (c *compiler) inputsOf(r Ref) *inputs {
	p := c.p
	n := &p.nodes[r]
	var in *inputs
	var byName map[string]int
	for _, i := range p.in.row(r) {
		e := &p.edges[i]
		if e.Param == "" {
			continue
		}
		if in == nil {
			in, byName = &inputs{}, map[string]int{}
		}
		at, ok := byName[e.Param]
		if !ok {
			at = len(in.params)
			byName[e.Param] = at
			in.params = append(in.params, param{name: e.Param})
		}
		in.params[at].edges = append(in.params[at].edges, i)
	}
	row := p.in.row(r)
	if in == nil && len(n.Ports) == 0 && len(row) <= manyEdges {
		return nil
	}
	if in == nil {
		in = &inputs{}
	}
	if len(row) > manyEdges {
		in.bySource = slices.Clone(row)
		slices.SortStableFunc(in.bySource, func(a, b int32) int { return cmp.Compare(p.edges[a].from, p.edges[b].from) })
	}
	in.ports = make(map[string]*Port, len(n.Ports))
	for i := range n.Ports {
		in.ports[n.Ports[i].Name] = &n.Ports[i]
	}
	for i := range in.params {
		c.mergeGroup(n, &in.params[i])
	}
	return in
}

// mergeGroup settles how the edges of one parameter are merged: by the strategy that the edges agree on, else the node's,
// else the last value wins.
func (c *compiler) mergeGroup(n *Node, g *param) {
	g.strategy = cmp.Or(n.Merge, MergeLast)
	explicit := ""
	labels := make(map[string]int, len(g.edges))
	for _, i := range g.edges {
		e := &c.p.edges[i]
		labels[c.p.nodes[e.from].Label]++
		if e.Merge == "" {
			continue
		}
		if explicit != "" && explicit != e.Merge {
			c.add("node %s: %w: parameter %s is merged by %s and by %s", quoteID(n.ID), ErrMergeConflict,
				quoteID(g.name), quoteID(explicit), quoteID(e.Merge))
			return
		}
		explicit, g.strategy = e.Merge, e.Merge
	}
	if len(g.edges) == 1 {
		g.strategy = MergeLast // one edge declared: there is nothing to merge
		return
	}
	g.fn = c.g.merges[g.strategy]
	for _, i := range g.edges {
		source := &c.p.nodes[c.p.edges[i].from]
		key := source.Label
		if key == "" || labels[key] > 1 {
			key = source.ID
		}
		g.keys = append(g.keys, key)
	}
}

func (c *compiler) bindPort(n *Node, port *Port, in *inputs) {
	if !port.Required || !isNull(port.Default) {
		return
	}
	if v, ok := n.Params[port.Name]; ok && !isNull(v) {
		return
	}
	if slices.ContainsFunc(in.params, func(g param) bool { return g.name == port.Name }) {
		return
	}
	if slices.Contains(c.g.Inputs, port.Name) {
		c.p.inputs = append(c.p.inputs, needsInput{n.ID, port.Name})
		return
	}
	c.add("node %s: %w: %s has neither an edge nor a static value, a default or a root input", quoteID(n.ID),
		ErrUnboundPort, quoteID(port.Name))
}

// schedule computes the longest remaining paths and the order in which ready nodes are taken.
func (c *compiler) schedule() {
	p := c.p
	n := len(p.nodes)
	estimated := false
	for i := range p.nodes {
		estimated = estimated || p.nodes[i].Estimate > 0
	}
	p.rank = make([]int64, n)
	for r := n - 1; r >= 0; r-- {
		longest := int64(0)
		for _, a := range p.outOf(Ref(r)) {
			longest = max(longest, p.rank[a.to])
		}
		own := int64(1)
		if estimated {
			own = int64(p.nodes[r].Estimate)
		}
		p.rank[r] = saturatingAdd(longest, own)
	}
	p.at = make([]Ref, n)
	copy(p.at, p.declared)
	slices.SortStableFunc(p.at, func(a, b Ref) int {
		return cmp.Or(cmp.Compare(p.nodes[b].Priority, p.nodes[a].Priority), cmp.Compare(p.rank[b], p.rank[a]))
	})
	p.pos = make([]int32, n)
	for i, r := range p.at {
		p.pos[r] = int32(i)
	}
}

func saturatingAdd(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// initialWords precomputes the state of a run that has not begun.
func (c *compiler) initialWords() {
	p := c.p
	p.words = make([]uint64, len(p.nodes))
	for r := range p.nodes {
		f := &p.facts[r]
		w := uint64(uint32(len(p.in.row(Ref(r)))))
		plain := !f.is(factEarly | factInline | factCheck)
		switch f.join {
		case AllFailed, AllSkipped:
			plain = false
		}
		if !plain || f.wide >= 0 {
			w |= wordSpecial
		}
		p.words[r] = w
	}
}
