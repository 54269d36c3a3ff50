package machine

import (
	"cmp"
	"slices"
	"sync"

	"github.com/seed-c794f7ef/kahn/internal/bucket"
)

// Ref is the number of a node in its [Net]. The nodes are numbered from 0 in topological order: by tier, then by declaration. So the
// predecessors of a node always have smaller Refs.
type Ref int32

// Net is the graph of a plan, stored as numbers. It contains all properties of the graph that a State needs. A finished Net does not change.
type Net struct {
	names     []string // by Ref: the ids of the nodes, for errors
	facts     []facts
	declared  []Ref   // the Refs in order of declaration
	decl      []int32 // by Ref: the node's index in the order of declaration
	edges     []Edge  // the edges in order of declaration, and then the implicit edges into the end node
	in        csr     // by Ref: indices into edges, in declaration order
	out       []int32 // by Ref, with one extra entry: the index at which the node's arcs begin
	arcs      []Arc   // the out-edges, sorted by source, target and declaration; edges into the end node have no arcs
	tiers     []int32 // by tier, with one extra entry: the first Ref of the tier
	words     []uint64
	order     Schedule
	labels    int   // the number of (condition, label) pairs
	wide      int   // the number of nodes with facts.wide >= 0
	end       Ref   // the end node, or NoRef
	early     bool  // some node has an early rule
	losers    bool  // some node has CancelLosers
	nests     bool  // some node is a composite
	handlers  bool  // some node handles failures of another node
	items     bool  // the nodes are the items of a map
	sideSteps int64 // the number of edges that were visited to find the side edges; tests check it
	ancestry  *ancestry
	hash      *netHash
	*netRare
}

// netRare contains the fields that few nets set, so that all other nets are smaller. A net that has set none of them shares plainNet, which is never
// written to, because writers call Net.rare first.
type netRare struct {
	priorities []int           // by Ref; nil if all are 0
	routes     []int32         // by facts.router: the number of labels
	filters    []CauseSet      // the sets of causes that catch edges handle, without duplicates
	bySource   map[Ref][]int32 // for nodes with many in-edges: the in-edges, sorted by source and declaration
	disabled   []Ref           // nodes that are skipped at the start
	bounds     []Bound         // by group
	member     [][]int32       // by Ref: the groups of the node; nil if the net has no groups
	lateKeys   *lateKeys       // nil unless the keys of some nodes come from values
}

var plainNet netRare

// The method `rare` returns the fields of netRare for writing. It is called only while a net is made.
func (p *Net) rare() *netRare {
	if p.netRare == &plainNet {
		p.netRare = &netRare{}
	}
	return p.netRare
}

// netHash is a hash of a net, computed on first use.
type netHash struct {
	once sync.Once
	sum  uint64
}

// If a node has more than manyEdges in-edges, EdgesFrom uses binary search.
const manyEdges = 16

// mostPorts stands for 65,535 parameters or more.
const mostPorts = 1<<16 - 1

// Size returns the number of nodes.
func (p *Net) Size() int { return len(p.facts) }

// ID returns a node's id.
func (p *Net) ID(r Ref) string { return p.names[r] }

// Is reports whether a node has at least one of the flags.
func (p *Net) Is(r Ref, flags Flags) bool { return p.facts[r].flags&flags != 0 }

// Rules returns a node's join rule, its skip mode and its upstream policy.
func (p *Net) Rules(r Ref) (Join, SkipMode, UpstreamPolicy) {
	f := &p.facts[r]
	return f.join, f.mode, f.policy
}

// Router returns the number of a condition among all conditions with labels. For any other node it returns -1.
func (p *Net) Router(r Ref) int32 { return p.facts[r].router }

// Tier returns the number of the node's tier, from 0.
func (p *Net) Tier(r Ref) int32 { return p.facts[r].tier }

// TierCount returns the number of tiers.
func (p *Net) TierCount() int32 { return int32(len(p.tiers) - 1) }

// TierRange returns the first node of a tier and the first node after it.
func (p *Net) TierRange(tier int32) (from, to Ref) { return Ref(p.tiers[tier]), Ref(p.tiers[tier+1]) }

// In returns the numbers of the in-edges of a node, in the order of declaration.
func (p *Net) In(r Ref) []int32 { return p.in.row(r) }

// Edge returns an edge by its number.
func (p *Net) Edge(i int32) Edge { return p.edges[i] }

// Edges returns the number of edges.
func (p *Net) Edges() int32 { return int32(len(p.edges)) }

// Numbering returns the nodes' ids by Ref, their Refs in declaration order, their declaration indices by Ref, and the end node. If there is
// no end node, the result `end` is NoRef.
func (p *Net) Numbering() (names []string, declared []Ref, decl []int32, end Ref) {
	return p.names, p.declared, p.decl, p.end
}

// Source returns the node from which an edge leads.
func (p *Net) Source(i int32) Ref { return p.edges[i].From }

// IsSide reports whether an edge is a side edge. Every plain edge into a node on a branch is a side edge, unless it is another way in (see
// net_side.go). A side edge delivers data. Under [AllSucceeded] and [Boundary] it is no reason to run the node: if it were, the node would run even
// if its branch is not taken.
func (p *Net) IsSide(i int32) bool { return p.edges[i].standing == standsBy }

// IsSpare reports whether an edge is a spare edge. Under [AllSucceeded] and [Boundary], a spare edge is a reason to run its target only if all
// routers of the target were skipped because of branches that were not taken (see net_side.go). The routers of a node are the sources of the labelled
// edges and catch edges to the node.
func (p *Net) IsSpare(i int32) bool { return p.edges[i].standing == standsSpare }

// Steps returns how many edges have been visited to find side edges, and how many to find ancestors. Tests check that these numbers grow linearly.
func (p *Net) Steps() (sides, ancestors int64) { return p.sideSteps, p.ancestry.steps.Load() }

// hasPort reports whether a node has a parameter with the index i. If the node has mostPorts parameters or more, hasPort accepts every index from 0.
func (f *facts) hasPort(i int) bool { return i >= 0 && (i < int(f.ports) || f.ports == mostPorts) }

// Bound holds the limit and the rate of a group. If Key is set, the group consists of all nodes with the same key, and its limit and its rate come
// from options of the run.
type Bound struct {
	Limit int
	Rate  bucket.Rate
	Key   bool

	Cancels bool // CancelOnFailure
}

// EdgesFrom returns the in-edges of node `to` that come from node `from`. The result may also contain in-edges from other nodes, but not as its
// first edge. If no edge leads from `from` to `to`, the result is empty.
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

// Out returns the out-edges of a node, sorted by target. It omits edges into the end node.
func (p *Net) Out(r Ref) []Arc { return p.arcs[p.out[r]:p.out[r+1]] }

// NoRef is not a node.
const NoRef Ref = -1

// The type `facts` holds the properties of a node that the State needs. They are fixed at compile time.
type facts struct {
	catch  CauseSet // the causes of the failures that the catch edges of the node handle
	join   Join
	total  int32 // the number of control edges
	wide   int32 // the index of the node's extra counters, or -1
	router int32 // the index into Net.routes, or -1
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
	FlagObserver Flags = 1 << iota // the node does not handle a failure that reaches it
	FlagTolerant                   // ContinueOnFail
	FlagCleanup                    // the node is a cleanup node or the end node: a stop of the run does not stop it
	FlagInline                     // the engine itself evaluates the node, so the node waits for no slot and takes none
	FlagCheck                      // after the join, user code or data decides whether the node runs
	FlagEarly                      // the join rule may start the node before all edges have resolved
	FlagCritical
	FlagCancelLosers
	FlagLateCancel
	FlagPlain     // the output is the step's result, and nothing else must be checked
	factHandled   // some successor handles failures of the node
	FlagGate      // a signal from outside completes the node
	FlagAdmit     // the inputs of the node are checked once it has its slot, before it starts
	FlagComposite // the engine performs the node, as nested runs
	FlagMocked    // a mock performs the node: see Mock in package kahn
	flagBranch    // some in-edge of the node is a side edge or a spare edge
	flagForks     // some out-edge has a flag of edgeSpecial, so the completion of the node can affect its targets in different ways

	// FlagHost and all higher flags belong to the coordinator. A State does not read them.
	FlagHost Flags = 1 << 24
)

func (f *facts) is(flag Flags) bool { return f.flags&flag != 0 }

// Edge is an edge of a net.
type Edge struct {
	From, To Ref
	Flags    uint8
	standing standing
	// In a finished net, the LabelID of a labelled edge is the number of the (condition, label) pair among all pairs of the net. If the edge was passed
	// to [Builder.Catch], LabelID is the index of the edge's causes in Net.filters. Any other edge does not use LabelID, which is then usually -1.
	LabelID int32
}

// Arc is an out-edge in a compact form of eight bytes. A State reads this form when a node ends.
type Arc struct {
	to    Ref
	facts uint32 // the edge's flags in the low bits, and its LabelID above them
}

// The flags of an edge.
const (
	EdgeFailure  uint8 = 1 << iota // a catch edge: see OnFailure in package kahn
	EdgeAlways                     // see OnAlways in package kahn
	EdgeLabelled                   // satisfied only if the condition selects the label
	EdgeData                       // the edge is data-only
	edgeShielded                   // an error boundary, and not the target, judges the failure of the source
	edgePort                       // the edge feeds a required port, and the target has an early rule
	edgeWide                       // the target has extra counters: see facts.wide
	edgeSide                       // the success of the source is no reason to run the target: see net_side.go

	edgeBits = 8
	// The flags in edgeSpecial matter when the source completes.
	edgeSpecial = uint32(EdgeFailure | EdgeLabelled | EdgeData | edgePort | edgeWide | edgeSide)
)

func (a Arc) is(flag uint8) bool { return a.facts&uint32(flag) != 0 }

// To returns the node that the arc leads to.
func (a Arc) To() Ref { return a.to }

func (a Arc) label() uint32 { return a.facts >> edgeBits }

// The type `csr` stores a row of numbers for each node, all rows in one slice. Row r is items[start[r]:start[r+1]].
type csr struct {
	start []int32
	items []int32
}

func (c *csr) row(r Ref) []int32 { return c.items[c.start[r]:c.start[r+1]] }

// newCSR lists the in-edges of each node, in the order of declaration. If bySource is true, it lists the out-edges instead, but omits edges into the
// end node. newCSR takes its memory from the slab `space` and returns the unused part.
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
	next := start[1:] // by row: the index of the next item to write; in the end, the index at which the next row begins
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

// A slab is one piece of memory for several slices with the same lifetime.
type slab []int32

// The method `cut` takes n zeros from the slab, or from the heap if the slab is too short.
func (b slab) cut(n int) ([]int32, slab) {
	if n > len(b) {
		return make([]int32, n), b
	}
	return b[:n:n], b[n:]
}

func (e *Edge) arc() Arc {
	return Arc{to: e.To, facts: uint32(e.Flags) | uint32(max(e.LabelID, 0))<<edgeBits}
}

// isData reports whether the edge is data-only.
func (e *Edge) isData() bool { return e.Flags&EdgeData != 0 }
