package machine

import (
	"cmp"
	"slices"
	"sync"

	"github.com/seed-c794f7ef/kahn/internal/bucket"
)

// Ref is a node's dense id in its [Net]. Refs run from 0 in topological order: by tier, then by declaration. A node's
// predecessors therefore always have smaller Refs.
type Ref int32

// Net is the graph of a plan in numbers: what a State needs of it. It is immutable.
type Net struct {
	names      []string // by Ref: the ids of the nodes, for errors
	facts      []facts
	declared   []Ref   // the Refs in order of declaration
	decl       []int32 // by Ref: the index of declaration
	edges      []Edge  // in order of declaration, the implicit edges into the end node last
	in         csr     // by Ref: indices into edges, in order of declaration
	out        []int32 // by Ref, one more than nodes: where the node's arcs start
	arcs       []Arc   // the out-edges, by target, then declaration; edges into the end node have none
	tiers      []int32 // by tier, one more than tiers: the first Ref of the tier
	words      []uint64
	order      Schedule
	priorities []int           // by Ref; nil if all are 0
	routes     []int32         // by facts.router: the number of labels
	filters    []CauseSet      // the causes that filtered catch edges let through; the first set is all causes
	bySource   map[Ref][]int32 // the in-edges by source, then declaration, of nodes that have too many to look through
	disabled   []Ref           // nodes that are skipped at once
	labels     int             // number of (condition, label) pairs
	wide       int             // number of nodes with facts.wide >= 0
	end        Ref             // the end node, or NoRef
	bounds     []Bound         // of the groups
	member     [][]int32       // by Ref: the groups of the node, nil if there are no groups at all
	lateKeys   *lateKeys       // nil unless a value decides the keys of nodes
	early      bool            // some node has an early rule
	losers     bool            // some node has CancelLosers
	nests      bool            // some node is a composite
	handlers   bool            // some node handles the failure of another one
	items      bool            // the nodes are the items of a map
	sideSteps  int64           // edges visited to find the side edges: a measure of the cost, for tests
	ancestry   *ancestry
	hash       *netHash
}

// netHash is a hash of a net, made when it is first needed.
type netHash struct {
	once sync.Once
	sum  uint64
}

// manyEdges are too many in-edges of a node to look through.
const manyEdges = 16

// mostPorts stands for this number of parameters, or more.
const mostPorts = 1<<16 - 1

// Size is the number of nodes.
func (p *Net) Size() int { return len(p.facts) }

// ID names a node.
func (p *Net) ID(r Ref) string { return p.names[r] }

// Is reports whether a node has one of the flags.
func (p *Net) Is(r Ref, flags Flags) bool { return p.facts[r].flags&flags != 0 }

// Rules returns the join rule of a node, how the rule counts skipped predecessors, and what the node does when predecessors have failed.
func (p *Net) Rules(r Ref) (Join, SkipMode, UpstreamPolicy) {
	f := &p.facts[r]
	return f.join, f.mode, f.policy
}

// Router is the number of a condition among the conditions with labels, or -1.
func (p *Net) Router(r Ref) int32 { return p.facts[r].router }

// Tier is the Kahn level of a node.
func (p *Net) Tier(r Ref) int32 { return p.facts[r].tier }

// TierCount is the number of tiers.
func (p *Net) TierCount() int32 { return int32(len(p.tiers) - 1) }

// TierRange returns the first node of a tier, and the first after it.
func (p *Net) TierRange(tier int32) (from, to Ref) { return Ref(p.tiers[tier]), Ref(p.tiers[tier+1]) }

// In returns the numbers of the in-edges of a node, in the order of declaration.
func (p *Net) In(r Ref) []int32 { return p.in.row(r) }

// Edge returns an edge by its number.
func (p *Net) Edge(i int32) Edge { return p.edges[i] }

// Edges is the number of edges.
func (p *Net) Edges() int32 { return int32(len(p.edges)) }

// Numbering is how the nodes are numbered: their ids by Ref, the Refs in the order of declaration, the index of declaration by Ref, and
// the end node, or NoRef.
func (p *Net) Numbering() (names []string, declared []Ref, decl []int32, end Ref) {
	return p.names, p.declared, p.decl, p.end
}

// Source is the node that an edge leads from.
func (p *Net) Source(i int32) Ref { return p.edges[i].From }

// IsSide reports whether an edge delivers data only because it would make a label pointless.
func (p *Net) IsSide(i int32) bool { return p.edges[i].standing == standsBy }

// IsSpare reports whether an edge counts only if no router of its target was reached.
func (p *Net) IsSpare(i int32) bool { return p.edges[i].standing == standsSpare }

// Steps counts the edges that were visited to find side edges, and ancestors so far, by which tests check that the work is linear.
func (p *Net) Steps() (sides, ancestors int64) { return p.sideSteps, p.ancestry.steps.Load() }

// hasPort reports whether a parameter with this index may be one of a node.
func (f *facts) hasPort(i int) bool { return i >= 0 && (i < int(f.ports) || f.ports == mostPorts) }

// Bound is the limit and the rate of a group; limits and rates of keys are options of the run.
type Bound struct {
	Limit int
	Rate  bucket.Rate
	Key   bool

	Cancels bool // CancelOnFailure
}

// EdgesFrom returns a part of to's in-edges that holds all edges from the given node.
func (p *Net) EdgesFrom(to, from Ref) []int32 {
	row := p.in.row(to)
	if len(row) > manyEdges {
		row = p.bySource[to]
		lo, _ := slices.BinarySearchFunc(row, from, func(e int32, from Ref) int { return cmp.Compare(p.edges[e].From, from) })
		hi, _ := slices.BinarySearchFunc(row, from+1, func(e int32, from Ref) int { return cmp.Compare(p.edges[e].From, from) })
		return row[lo:hi]
	}
	for i, e := range row {
		if p.edges[e].From == from {
			return row[i:]
		}
	}
	return nil
}

// Out returns the out-edges of a node, without edges into the end node, by target.
func (p *Net) Out(r Ref) []Arc { return p.arcs[p.out[r]:p.out[r+1]] }

// NoRef is no node.
const NoRef Ref = -1

// facts are the properties of a node that the state machine needs, fixed at compile time.
type facts struct {
	catch  CauseSet // the causes for which an On failure edge leaves the node
	join   Join
	total  int32 // control edges
	wide   int32 // index of the node's extra counters, or -1
	router int32 // index into Net.routes, or -1
	labels int32 // the plan-wide number of the router's first label
	tier   int32
	mode   SkipMode
	policy UpstreamPolicy
	ports  uint16 // the number of parameters that may be required, or mostPorts
	flags  Flags
}

// Flags are properties of a node.
type Flags uint32

// The flags that a State reads.
const (
	FlagObserver Flags = 1 << iota // a failure that reaches the node is not handled by it
	FlagTolerant                   // ContinueOnFail
	FlagCleanup                    // Cleanup or the end node: starts in a stopping run too
	FlagInline                     // evaluated by the engine: takes no slot, is not queued
	FlagCheck                      // user code or data decides after the join
	FlagEarly                      // its rule may start it before all edges have resolved
	FlagCritical
	FlagCancelLosers
	FlagLateCancel
	FlagPlain     // a value that its step returns is its output, and the engine need not check anything else
	factHandled   // some direct dependent exists to handle its failure
	FlagGate      // a signal from outside completes it
	FlagAdmit     // its inputs are judged when it has its slot, before it starts
	FlagComposite // performed by the engine, as nested runs
	FlagMocked    // performed by its mock: see Test
	flagBranch    // some of its in-edges are side edges, or count only if none of its routers was asked
	flagForks     // when it completes, not all of its out-edges are satisfied, or some are counted elsewhere than in the word

	// FlagHost is the first of the flags that are the coordinator's: a State does not read them.
	FlagHost Flags = 1 << 24
)

func (f *facts) is(flag Flags) bool { return f.flags&flag != 0 }

// Edge is an edge of a net.
type Edge struct {
	From, To Ref
	Flags    uint8
	standing standing
	LabelID  int32 // labelled: the plan-wide number of the (condition, label) pair; On failure: the filter; else -1
}

// Arc is an out-edge as the settle loop reads it: eight bytes, with the facts that are fixed at compile time.
type Arc struct {
	to    Ref
	facts uint32 // arc flags in the low bits, the edge's label above
}

// The flags of an edge.
const (
	EdgeFailure  uint8 = 1 << iota // On failure
	EdgeAlways                     // On always
	EdgeLabelled                   // taken only if the label was selected
	EdgeData                       // data-only
	edgeShielded                   // a boundary judges the failure
	edgePort                       // feeds a required port of a node with an early rule
	edgeWide                       // its target keeps counters beside its word
	edgeSide                       // its success is no reason for its target to run: see net_side.go

	edgeBits = 8
	// edgeSpecial are the flags that matter when the source completed.
	edgeSpecial = uint32(EdgeFailure | EdgeLabelled | EdgeData | edgePort | edgeWide | edgeSide)
)

func (a Arc) is(flag uint8) bool { return a.facts&uint32(flag) != 0 }

// To is the node that the arc leads to.
func (a Arc) To() Ref { return a.to }

func (a Arc) label() uint32 { return a.facts >> edgeBits }

// csr is a flat adjacency: the values of row r are items[start[r]:start[r+1]].
type csr struct {
	start []int32
	items []int32
}

func (c *csr) row(r Ref) []int32 { return c.items[c.start[r]:c.start[r+1]] }

// newCSR lists the edges of each node, in their order: its out-edges without edges into the end node, or its in-edges. It takes its
// memory from space and returns the rest.
func newCSR(rows int, edges []Edge, bySource bool, end Ref, space slab) (csr, slab) {
	start, space := space.cut(rows + 2)
	for i := range edges {
		switch e := &edges[i]; {
		case !bySource:
			start[e.To+2]++
		case e.To != end:
			start[e.From+2]++
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
			items[next[e.To]] = int32(i)
			next[e.To]++
		case e.To != end:
			items[next[e.From]] = int32(i)
			next[e.From]++
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

func (e *Edge) arc() Arc {
	return Arc{to: e.To, facts: uint32(e.Flags) | uint32(max(e.LabelID, 0))<<edgeBits}
}

// isData reports whether the edge delivers a value and does nothing else.
func (e *Edge) isData() bool { return e.Flags&EdgeData != 0 }
