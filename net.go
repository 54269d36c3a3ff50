package kahn

import (
	"cmp"
	"slices"

	"github.com/seed-c794f7ef/kahn/internal/bucket"
)

// Ref is a node's dense id in its [Plan]. Refs run from 0 in topological order: by tier, then by declaration. A node's
// predecessors therefore always have smaller Refs.
type Ref int32

// net is the graph of a plan in numbers: what a State needs of it. It is immutable.
type net struct {
	names    []string // by Ref: the ids of the nodes, for errors
	facts    []facts
	declared []Ref   // the Refs in order of declaration
	decl     []int32 // by Ref: the index of declaration
	edges    []edge  // in order of declaration, the implicit edges into the end node last
	in       csr     // by Ref: indices into edges, in order of declaration
	out      []int32 // by Ref, one more than nodes: where the node's arcs start
	arcs     []arc   // the out-edges, by target, then declaration; edges into the end node have none
	tiers    []int32 // by tier, one more than tiers: the first Ref of the tier
	words    []uint64
	schedule
	priorities []int           // by Ref; nil if all are 0
	routes     []int32         // by facts.router: the number of labels
	filters    []causeSet      // the causes that filtered catch edges let through; the first set is all causes
	bySource   map[Ref][]int32 // the in-edges by source, then declaration, of nodes that have too many to look through
	disabled   []Ref           // nodes that are skipped at once
	labels     int             // number of (condition, label) pairs
	wide       int             // number of nodes with facts.wide >= 0
	end        Ref             // the end node, or noRef
	bounds     []bound         // of the groups
	member     [][]int32       // by Ref: the groups of the node, nil if there are no groups at all
	early      bool            // some node has an early rule
	losers     bool            // some node has CancelLosers
	nests      bool            // some node is a composite
	items      bool            // the nodes are the items of a map
	sideSteps  int64           // edges visited to find the side edges: a measure of the cost, for tests
	ancestry   *ancestry
}

// manyEdges are too many in-edges of a node to look through.
const manyEdges = 16

// mostPorts stands for this number of parameters, or more.
const mostPorts = 1<<16 - 1

// size is the number of nodes.
func (p *net) size() int { return len(p.facts) }

// id names a node.
func (p *net) id(r Ref) string { return p.names[r] }

// is reports whether a node has one of the flags.
func (p *net) is(r Ref, flags factFlags) bool { return p.facts[r].flags&flags != 0 }

// rules are a node's join rule, and what it makes of skipped and of failed predecessors.
func (p *net) rules(r Ref) (Join, SkipMode, UpstreamPolicy) {
	f := &p.facts[r]
	return f.join, f.mode, f.policy
}

// router is the number of a condition among those with labels, or -1.
func (p *net) router(r Ref) int32 { return p.facts[r].router }

// tier is the Kahn level of a node.
func (p *net) tier(r Ref) int32 { return p.facts[r].tier }

// tierCount is the number of tiers.
func (p *net) tierCount() int32 { return int32(len(p.tiers) - 1) }

// tierRange returns the first node of a tier, and the first after it.
func (p *net) tierRange(tier int32) (from, to Ref) { return Ref(p.tiers[tier]), Ref(p.tiers[tier+1]) }

// inOf returns the numbers of the in-edges of a node, in the order of declaration.
func (p *net) inOf(r Ref) []int32 { return p.in.row(r) }

// edge returns an edge by its number.
func (p *net) edge(i int32) edge { return p.edges[i] }

// edgeCount is the number of edges.
func (p *net) edgeCount() int32 { return int32(len(p.edges)) }

// source is the node that an edge leads from.
func (p *net) source(i int32) Ref { return p.edges[i].from }

// isSide reports whether an edge delivers data only because it would make a label pointless.
func (p *net) isSide(i int32) bool { return p.edges[i].standing == standsBy }

// isSpare reports whether an edge counts only if no router of its target was reached.
func (p *net) isSpare(i int32) bool { return p.edges[i].standing == standsSpare }

// steps counts the edges that were visited to find side edges, and ancestors so far, by which tests check that the work is linear.
func (p *net) steps() (sides, ancestors int64) { return p.sideSteps, p.ancestry.steps.Load() }

// hasPort reports whether a parameter with this index may be one of a node.
func (f *facts) hasPort(i int) bool { return i >= 0 && (i < int(f.ports) || f.ports == mostPorts) }

// bound is the limit and the rate of a group; those of a key are options of the run.
type bound struct {
	limit int
	rate  bucket.Rate
	key   bool

	cancels bool // CancelOnFailure
}

// edgesFrom returns a part of to's in-edges that holds all edges from the given node.
func (p *net) edgesFrom(to, from Ref) []int32 {
	row := p.in.row(to)
	if len(row) > manyEdges {
		row = p.bySource[to]
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

func (p *net) outOf(r Ref) []arc { return p.arcs[p.out[r]:p.out[r+1]] }

const noRef Ref = -1

// facts are the properties of a node that the state machine needs, fixed at compile time.
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
	ports  uint16 // the number of parameters that may be required, or mostPorts
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

// edge is an edge of a net.
type edge struct {
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

// target is the node that the arc leads to.
func (a arc) target() Ref { return a.to }

func (a arc) label() uint32 { return a.facts >> arcBits }

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

func (e *edge) arc() arc {
	return arc{to: e.to, facts: uint32(e.flags) | uint32(max(e.label, 0))<<arcBits}
}

// isData reports whether the edge delivers a value and does nothing else.
func (e *edge) isData() bool { return e.flags&arcData != 0 }
