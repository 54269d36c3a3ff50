package kahn

import (
	"cmp"
	"iter"
	"slices"
	"sync/atomic"
	"time"

	"github.com/seed-c794f7ef/kahn/internal/bucket"
	"github.com/seed-c794f7ef/kahn/internal/index"
)

// Ref is a node's dense id in its [Plan]. Refs run from 0 in topological order: by tier, then by declaration. A node's
// predecessors therefore always have smaller Refs.
type Ref int32

// Plan is a compiled graph: validated, immutable, and ready to be run any number of times at once. It is a copy: later
// changes of the graph do not affect it. Plans are made by [Graph.Compile] and [Plan.Prune]; the zero value is not a valid
// Plan.
type Plan struct {
	name     string
	names    []string // by Ref: their ids, which are needed more often than the nodes are
	longest  int      // the length of the longest of them
	facts    []facts
	index    index.Table // of names
	declared []Ref       // the Refs in order of declaration
	decl     []int32     // by Ref: the index of declaration
	edges    []edge      // in order of declaration, the implicit edges into the end node last
	in       csr         // by Ref: indices into edges, in order of declaration
	out      []int32     // by Ref, one more than nodes: where the node's arcs start
	arcs     []arc       // the out-edges, by target, then declaration; edges into the end node have none
	tiers    []int32     // by tier, one more than tiers: the first Ref of the tier
	words    []uint64
	schedule
	routers     []*router      // see facts.router
	routes      []int32        // by facts.router: the number of labels
	filters     []causeSet     // the causes that filtered catch edges let through; the first set is all causes
	data        []*inputs      // by Ref: nil for a node without parameters; nil if no node has any
	inputs      []Input        // Graph.Inputs
	inputIndex  map[string]int // by name
	disabled    []Ref
	leaves      []Ref // nodes that nothing but the end node follows
	labels      int   // number of (condition, label) pairs
	wide        int   // number of nodes with facts.wide >= 0
	early       bool  // some node has an early rule
	end         Ref   // the end node, or noRef
	stepless    []Ref
	sideSteps   int64            // edges visited to find the side edges: a measure of the cost, for tests
	losers      bool             // some node has CancelLosers
	prioritized bool             // some node has a Priority
	groups      []group          // the declared groups, then one for each key
	groupIndex  map[string]int32 // the groups of these, and the inherited ones, by name
	bounds      []bound          // of the groups
	member      [][]int32        // by Ref: the groups of the node, nil if there are no groups at all

	// contracts are those of the nodes that have any, by phase.
	contracts map[Ref][phaseCount]Contract
	moderated []Ref // nodes that ask for a moderator

	prunes   *prunes  // nil if there are no triggers
	pruned   []string // the nodes that are not part of this plan because of a trigger, in order of declaration
	warnings []error
	whole    *Plan  // the plan that this one was pruned from; nil if it was not
	force    *force // the settings that a graph inherits that a node expands into

	composite bool          // some node is a composite
	slashed   []string      // the ids that have a slash, sorted
	subs      map[Ref]*Plan // the compiled Sub of each composite
	items     map[Ref]*Plan // the plan, of one node, that a map performs for each item
	loops     map[Ref]func(View) (bool, error)
	itemOf    string           // in a plan of the items of a map: the id of the map; index is then empty
	body      *Plan            // in a plan of items: the plan of the map's Sub, if it has one
	keys      []string         // in a plan of items: by Ref, the results of Map.Key; nil without one
	estimates []time.Duration  // in a plan of items: by Ref, the results of Map.Estimate; nil without one
	lacks     []string         // groups that a graph around this one has to declare
	naming    map[string][]Ref // by group: the composites whose graphs lack it, in order

	// The plan of a run in test mode, see testMode, has these.
	tested  *Plan     // the plan of which this one is a copy
	doubles []*double // by Ref

	*shared
}

// shared is computed on demand, once for a plan and its copies.
type shared struct {
	hashed   atomic.Pointer[hashes] // nil until they are made
	hashing  atomic.Int32           // the number of goroutines that compute them
	ancestry ancestry
}

const noRef Ref = -1

// facts are the properties of a node that the state machine needs, fixed at compile time.
type facts struct {
	node   *node    // the declaration with the defaults applied; the graph's own node if they change nothing
	catch  causeSet // the causes for which an On failure edge leaves the node
	join   Join
	total  int32 // control edges
	wide   int32 // index of the node's extra counters, or -1
	router int32 // index into routers, or -1
	labels int32 // the plan-wide number of the router's first label
	tier   int32
	mode   SkipMode
	policy UpstreamPolicy
	guard  GuardPolicy
	flags  factFlags
}

type factFlags uint32

const (
	factObserver factFlags = 1 << iota // a failure that reaches the node is not handled by it
	factTolerant                       // ContinueOnFail
	factCleanup                        // Cleanup or the end node: starts in a stopping run too
	factInline                         // evaluated by the engine: takes no slot, is not queued
	factCheck                          // user code or data decides after the join
	factEarly                          // its rule may start it before all edges have resolved
	factCritical
	factCancelLosers
	factLateCancel
	factTimed     // it has a timeout of its own
	factOwn       // it has a Do, a Test or inputs to judge: an attempt is more than a call of the host's step function
	factPlain     // a value that its step returns is its output, and the engine need not check anything else
	factHandled   // some direct dependent exists to handle its failure
	factGate      // a signal from outside completes it
	factAdmit     // its inputs are judged when it has its slot, before it starts
	factJudge     // its output is judged
	factComposite // performed by the engine, as nested runs
	factMocked    // performed by its mock: see Test
	factOnce      // its mock is called once: there is no retry
	factBranch    // some of its in-edges are side edges, or count only if none of its routers was asked
	factForks     // when it completes, not all of its out-edges are satisfied, or some are counted elsewhere than in the word
)

func (f *facts) is(flag factFlags) bool { return f.flags&flag != 0 }

// edge is an Edge with its endpoints resolved.
type edge struct {
	*terms
	from, to Ref
	flags    uint8
	standing standing
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
	arcSide                       // its success is no reason for its target to run: see dag_side.go

	arcBits = 8
	// arcSpecial are the flags that matter when the source completed.
	arcSpecial = uint32(arcFailure | arcLabelled | arcData | arcPort | arcWide | arcSide)
)

func (a arc) is(flag uint8) bool { return a.facts&uint32(flag) != 0 }
func (a arc) label() uint32      { return a.facts >> arcBits }

// csr is a flat adjacency: the values of row r are items[start[r]:start[r+1]].
type csr struct {
	start []int32
	items []int32
}

func (c *csr) row(r Ref) []int32 { return c.items[c.start[r]:c.start[r+1]] }

// newCSR lists the edges of each node, in their order: its out-edges without those into the end node, or its in-edges. It takes its
// memory from space and returns the rest.
func newCSR(rows int, edges []edge, bySource bool, end Ref, space slab) (csr, slab) {
	start, space := space.cut(rows + 2)
	for i := range edges {
		switch e := &edges[i]; {
		case !bySource:
			start[e.to+2]++
		case e.to != end:
			start[e.from+2]++
		}
	}
	for r := 2; r < len(start); r++ {
		start[r] += start[r-1]
	}
	items, space := space.cut(int(start[rows+1]))
	next := start[1:] // by row: where its next item goes, and in the end where the next row begins
	for i := range edges {
		switch e := &edges[i]; {
		case !bySource:
			items[next[e.to]] = int32(i)
			next[e.to]++
		case e.to != end:
			items[next[e.from]] = int32(i)
			next[e.from]++
		}
	}
	return csr{start[:rows+1], items}, space
}

// slab is memory for several slices of the same lifetime.
type slab []int32

// cut takes n zeros from the slab, or from the heap if the slab is too short.
func (b slab) cut(n int) ([]int32, slab) {
	if n > len(b) {
		return make([]int32, n), b
	}
	return b[:n:n], b[n:]
}

// inputs describes the sources of a node's parameters.
type inputs struct {
	params []param
	ports  map[string]*Port
	// bySource holds the in-edges by source, then declaration, of a node that has too many to look through.
	bySource []int32
	// byName holds the indices into params, of a node that has too many to look through; else it is nil.
	byName map[string]int
}

const manyEdges = 16 // or parameters

// inputsOf says how a node's parameters come about; nil for one without.
func (p *Plan) inputsOf(r Ref) *inputs {
	if p.data == nil {
		return nil
	}
	return p.data[r]
}

// param finds a parameter that edges deliver to; nil if there is none of this name. steps counts the parameters looked at.
func (in *inputs) param(name string) (p *param, steps int) {
	if in.byName != nil {
		if i, ok := in.byName[name]; ok {
			p = &in.params[i]
		}
		return p, 1
	}
	for i := range in.params {
		if in.params[i].name == name {
			return &in.params[i], i + 1
		}
	}
	return nil, len(in.params)
}

// param is one parameter that edges deliver to.
type param struct {
	name     string
	edges    []int32 // in order of declaration
	strategy string
	fn       MergeFunc // for a registered strategy
	keys     []string  // by edge: the key under MergeObject
}

// group is a Group, or a concurrency key, with its members.
type group struct {
	Group
	key       bool
	inherited bool // a graph around this one declares it
	members   []Ref
}

// bound is the limit and the rate of a group; those of a key are options of the run.
type bound struct {
	limit int
	rate  bucket.Rate
	key   bool
}

// isCompiled reports whether the plan was made by Compile.
func (p *Plan) isCompiled() bool { return p != nil && len(p.tiers) > 0 }

// Len returns the number of nodes.
func (p *Plan) Len() int { return len(p.names) }

// Name returns the name of the graph.
func (p *Plan) Name() string { return p.name }

// Ref returns the dense id of a node.
func (p *Plan) Ref(id string) (Ref, bool) {
	if p.itemOf != "" {
		return p.item(id)
	}
	return p.find(id)
}

// find is Ref for a plan that is not that of the items of a map.
func (p *Plan) find(id string) (Ref, bool) {
	r, ok := p.index.Find(p.names, id)
	return Ref(r), ok
}

// Edge returns an edge by its number, the place in [Plan.Edges]. It panics if there is none.
func (p *Plan) Edge(i int32) Edge {
	e := &p.edges[i]
	return e.terms.edge(p.names[e.from], p.names[e.to])
}

// ID returns the id of a node. It panics if r is out of range.
func (p *Plan) ID(r Ref) string { return p.names[r] }

// Node returns a copy of the node, with After and In empty. It panics if r is out of range.
func (p *Plan) Node(r Ref) Node {
	n := p.node(r).whole()
	n.ID, n.GuardErrors = p.names[r], p.facts[r].guard
	if p.keys != nil {
		n.Key = p.keys[r]
	}
	if p.estimates != nil {
		n.Estimate = p.estimates[r]
	}
	if n.WhenExpr != "" {
		n.When = nil // what it was lowered to
	}
	if n.TestExpr != "" {
		n.Test = nil
	}
	return n
}

// node returns the declaration of a node. The items of a map share one: their differences are in names, keys and estimates.
func (p *Plan) node(r Ref) *node {
	return p.facts[r].node
}

// Declared yields all nodes in the order of their declaration.
func (p *Plan) Declared() iter.Seq2[Ref, string] {
	return func(yield func(Ref, string) bool) {
		for _, r := range p.declared {
			if !yield(r, p.names[r]) {
				return
			}
		}
	}
}

// PlanEdge is an edge of a plan.
type PlanEdge struct {
	Edge
	// Side says that the edge delivers data only, since it would otherwise make a label, or a catch edge, of its target
	// pointless: see [Edge]. Join rules other than [AllSucceeded] and [Boundary] count it all the same. A plain edge that
	// counts only if no router of the target was reached is no side edge. Side follows from the graph; documents, hashes and
	// snapshots do not contain it.
	Side bool
}

// Edges yields all edges in the order of their declaration, and after them the implicit ones into the end node. Those of
// Node.After and Node.In are among them.
func (p *Plan) Edges() iter.Seq[PlanEdge] {
	return func(yield func(PlanEdge) bool) {
		for i := range p.edges {
			if !yield(PlanEdge{Edge: p.Edge(int32(i)), Side: p.edges[i].standing == standsBy}) {
				return
			}
		}
	}
}

// Groups returns the declared groups in the order of their declaration.
func (p *Plan) Groups() []Group {
	var groups []Group
	for i := range p.groups {
		if g := &p.groups[i]; !g.key && !g.inherited {
			groups = append(groups, g.Group)
		}
	}
	return groups
}

// Tier returns the node's Kahn level: the number of edges on the longest path that leads to it. The end node has a tier
// of its own after all others.
func (p *Plan) Tier(r Ref) int { return int(p.facts[r].tier) }

// Tiers returns the ids of the nodes tier by tier, each tier in the order of declaration.
func (p *Plan) Tiers() [][]string {
	tiers := make([][]string, len(p.tiers)-1)
	for t := range tiers {
		for r := p.tiers[t]; r < p.tiers[t+1]; r++ {
			tiers[t] = append(tiers[t], p.names[r])
		}
	}
	return tiers
}

// Ancestors returns the ids of all nodes from which a path of edges of any kind leads to the node, in the order of declaration; nil
// for an unknown id. The end node follows all others. It takes time linear in the graph.
func (p *Plan) Ancestors(id string) []string {
	r, ok := p.Ref(id)
	switch {
	case !ok:
		return nil
	case r == p.end:
		return p.idsOf(func(n Ref) bool { return n != r })
	}
	return p.reachable(r, func(r Ref, visit func(Ref)) {
		for _, i := range p.in.row(r) {
			visit(p.edges[i].from)
		}
	})
}

// Descendants returns the ids of all nodes to which a path leads from the node, in the order of declaration, the end node among them;
// nil for an unknown id. It takes time linear in the graph.
func (p *Plan) Descendants(id string) []string {
	r, ok := p.Ref(id)
	if !ok {
		return nil
	}
	return p.reachable(r, func(r Ref, visit func(Ref)) {
		for _, a := range p.outOf(r) {
			visit(a.to)
		}
		if p.end != noRef && r != p.end {
			visit(p.end)
		}
	})
}

func (p *Plan) reachable(from Ref, neighbours func(Ref, func(Ref))) []string {
	seen := make([]bool, len(p.facts))
	work := []Ref{from}
	for len(work) > 0 {
		r := work[len(work)-1]
		work = work[:len(work)-1]
		neighbours(r, func(n Ref) {
			if !seen[n] {
				seen[n] = true
				work = append(work, n)
			}
		})
	}
	return p.idsOf(func(r Ref) bool { return seen[r] })
}

func (p *Plan) idsOf(in func(Ref) bool) (ids []string) {
	for _, r := range p.declared {
		if in(r) {
			ids = append(ids, p.names[r])
		}
	}
	return ids
}

// CriticalPath returns the ids along the longest path by Estimate, without trailing nodes whose Estimate is zero. If no node
// has an Estimate, the path with the most nodes is the longest.
func (p *Plan) CriticalPath() []string {
	best := noRef
	for r := range p.facts {
		if r := Ref(r); r != p.end && (best == noRef || p.rank[r] > p.rank[best]) {
			best = r
		}
	}
	var path []string
	for best != noRef {
		path = append(path, p.names[best])
		next := noRef
		for _, a := range p.outOf(best) {
			if p.rank[a.to] > 0 && (next == noRef || p.rank[a.to] > p.rank[next]) {
				next = a.to
			}
		}
		best = next
	}
	return path
}

// edgePosition is the place of an edge among the in-edges of its target.
func (p *Plan) edgePosition(to Ref, edge int32) int { return slices.Index(p.in.row(to), edge) }

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

// Portable reports the functions and contracts that the graph's nodes hold, which keep it from running outside of this
// process. It returns nil for a graph that is all data; guards and conditions that are texts, and schemas, are data.
func (p *Plan) Portable() error {
	ps := problems{graph: p.name}
	for _, r := range p.declared {
		n := p.Node(r)
		for _, f := range []struct {
			name string
			set  bool
		}{
			{"Do", n.Do != nil}, {"Test", n.Test != nil}, {"When", n.When != nil}, {"Fallback", n.Fallback != nil},
			{"InputSchema", isContract(n.InputSchema)}, {"OutputSchema", isContract(n.OutputSchema)},
			{"Map.Key", n.Map != nil && n.Map.Key != nil}, {"Map.Estimate", n.Map != nil && n.Map.Estimate != nil},
			{"Loop.While", n.Loop != nil && n.Loop.While != nil}, {"Loop.Until", n.Loop != nil && n.Loop.Until != nil},
		} {
			if f.set {
				ps.add("node %s: %w: %s is Go code", quoteID(n.ID), ErrBadValue, f.name)
			}
		}
		if sub := p.subs[r]; sub != nil {
			ps.inside(n.ID, sub.Portable())
		}
	}
	return ps.err()
}

// portsOf is the number of the node's Ports.
func (p *Plan) portsOf(r Ref) int { return len(p.node(r).Ports) }

// isData reports whether the edge delivers a value and does nothing else.
func (e *edge) isData() bool { return e.flags&arcData != 0 }

func (e *edge) arc() arc {
	return arc{to: e.to, facts: uint32(e.flags) | uint32(max(e.label, 0))<<arcBits}
}
