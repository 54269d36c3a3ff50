package kahn

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"iter"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-c794f7ef/kahn/internal/index"
	"github.com/seed-c794f7ef/kahn/machine"
)

// Plan is a compiled graph: validated, immutable, and ready to be run repeatedly and concurrently. A Plan is a copy: later changes of the graph
// do not affect it. [Graph.Compile] and [Plan.Prune] create Plans; the zero value is not a valid Plan. A nil Plan, which Compile returns with an
// error, has no nodes.
type Plan struct {
	name       string
	net        machine.Net    // the graph in numbers
	names      []string       // by Ref: the ids, in a separate slice because code needs the ids more often than the nodes
	nodes      []*node        // by Ref: the declarations with the defaults applied; the plan shares a node with the graph if no default changes it
	terms      []*terms       // by edge; nil if no edge has terms
	longest    int            // the length of the longest name
	index      index.Table    // finds a Ref by id
	declared   []machine.Ref  // the Refs in order of declaration
	decl       []int32        // by Ref: the position in the order of declaration
	routers    []*router      // the router of condition r is routers[net.Router(r)]
	data       []*inputs      // by Ref: the sources of the parameters; nil for a node without parameters; data is nil if no node has parameters
	inputs     []Input        // Graph.Inputs
	inputIndex map[string]int // by name
	leaves     []machine.Ref  // nodes without successors; the end node counts neither as a successor nor as a leaf
	end        machine.Ref    // the end node, or noRef
	// stepless lists the nodes that need the step function of the run, and the composites that contain such nodes.
	stepless []machine.Ref

	force *force // the settings that a graph inherits if a node of this plan expands into the graph

	composite bool                  // some node is a composite
	undoes    bool                  // some node of this plan, or of a plan inside it, has a compensation
	subs      map[machine.Ref]*Plan // the compiled Sub of each composite

	*shared
	*planRare
}

// planRare contains the fields that few plans set, so that all other plans are smaller. A plan that has set none of them shares plainPlan, which is
// never written to, because writers call Plan.rare first.
type planRare struct {
	merges     []string         // Graph.Merges
	groups     []group          // the declared groups, and also the inherited groups and the groups of keys
	groupIndex map[string]int32 // declared and inherited groups, by name
	// contracts holds the contracts of each node that has a contract, by phase.
	contracts       map[machine.Ref][phaseCount]Contract
	answerContracts map[machine.Ref]Contract // for each gate with a Schema: the contract of the answer
	moderated       []machine.Ref            // nodes with a Moderation
	prunes          *prunes                  // nil if there are no triggers
	pruned          []string                 // the ids of the nodes that Prune has left out of this plan, in declaration order
	warnings        []error
	keyed           error                 // the warning for a run that does not limit keys: it names the first node with a key; nil if no node has a key
	memoized        error                 // the warning for a run without a Memo: it names the first node with a Memo; nil if no node has a Memo
	whole           *Plan                 // the plan from which this plan was pruned; nil if this plan is not pruned
	slashed         []string              // the ids that contain a slash, sorted
	items           map[machine.Ref]*Plan // for each map: a plan of one node, which represents an item
	loops           map[machine.Ref]func(View) (bool, error)
	itemOf          string                    // in the plan of a map's items: the id of the map; such a plan has no index
	body            *Plan                     // in the plan of a map's items: the plan of the map's Sub, if any
	keySources      map[machine.Ref]keySource // the sources of the keys, for nodes with a KeyFrom
	keys            []string                  // in the plan of a map's items: by Ref, the keys from Map.Key or KeyFrom; nil if there are no such keys
	estimates       []time.Duration           // in the plan of a map's items: by Ref, the results of Map.Estimate; nil if the map has no Map.Estimate
	lacks           []string                  // groups that an enclosing graph must declare, since this graph or a graph inside it names them
	naming          map[string][]machine.Ref  // by group: the composites whose graphs name the group and do not declare it, in order of their Refs

	// The following fields are set only in the plan of a run in test mode, see testMode.
	tested  *Plan     // the plan of which this plan is a copy
	doubles []*double // by Ref
}

var plainPlan planRare

// The method `rare` returns the fields of planRare for writing. It is called only while a plan is made.
func (p *Plan) rare() *planRare {
	if p.planRare == &plainPlan {
		p.planRare = &planRare{}
	}
	return p.planRare
}

// The method `copied` returns a copy of the plan with its own planRare, for changes.
func (p *Plan) copied() *Plan {
	q, rare := *p, *p.planRare
	q.planRare = &rare
	return &q
}

// planBlock holds a plan and its shared data, so that one allocation is enough for both.
type planBlock struct {
	Plan
	own shared
}

// The type `shared` holds data that a plan computes on first use. All copies of the plan share the data.
type shared struct {
	hashed  atomic.Pointer[hashes] // nil until the hashes are computed
	hashing atomic.Int32           // the number of goroutines that compute the hashes
}

// The type `inputs` describes the sources of a node's parameters.
type inputs struct {
	params []param
	ports  map[string]*Port
	// byName maps the name of a parameter to its index in params. It is nil if the node has few parameters: then a linear search is fast enough.
	byName map[string]int
}

const manyParams = 16 // a node with more parameters has a map byName

// inputsOf returns the sources of a node's parameters, or nil for a node without parameters.
func (p *Plan) inputsOf(r machine.Ref) *inputs {
	if p.data == nil {
		return nil
	}
	return p.data[r]
}

// param returns the parameter with this name, or nil if no edge delivers to such a parameter. The result `steps` is the number of parameters that
// the search examined.
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

// param is a parameter to which edges deliver.
type param struct {
	name     string
	edges    []int32 // the edges that feed the parameter, in the order of declaration
	strategy string
	fn       func([]Contribution) (any, error) // the registered strategy; nil for a built-in strategy
	keys     []string                          // by edge: the key under MergeObject
}

// group holds a Group or a concurrency key, and its members.
type group struct {
	Group
	key       bool
	inherited bool // whether an enclosing graph, and not this graph, declares the group
	members   []machine.Ref
}

// isCompiled reports whether the plan is neither nil nor the zero Plan.
func (p *Plan) isCompiled() bool { return p != nil && p.nodes != nil }

// orEmpty returns the plan or, for a nil Plan, the plan of an empty graph.
func (p *Plan) orEmpty() *Plan {
	if p == nil || p.planRare == nil {
		return emptyPlan()
	}
	return p
}

var emptyPlan = sync.OnceValue(func() *Plan {
	p, _ := new(Graph).Compile() // an empty graph has no problems
	return p
})

// Len returns the number of nodes.
func (p *Plan) Len() int { return len(p.orEmpty().names) }

// Name returns the name of the graph.
func (p *Plan) Name() string { return p.orEmpty().name }

// Ref returns the dense id of a node.
func (p *Plan) Ref(id string) (machine.Ref, bool) {
	p = p.orEmpty()
	if p.itemOf != "" {
		return p.item(id)
	}
	return p.find(id)
}

// find is like Ref, but cannot be used for the plan of a map's items.
func (p *Plan) find(id string) (machine.Ref, bool) {
	r, ok := p.index.Find(p.names, id)
	return machine.Ref(r), ok
}

// Edge returns the edge with number i. Edges are numbered from 0, in the order of [Plan.Edges]. Edge panics if no edge has the number i.
func (p *Plan) Edge(i int32) Edge {
	e := p.net.Edge(i)
	return p.termsOf(i).edge(p.names[e.From], p.names[e.To])
}

// planEdge is an edge with its terms.
type planEdge struct {
	machine.Edge
	*terms
}

func (p *Plan) edgeAt(i int32) planEdge { return planEdge{p.net.Edge(i), p.termsOf(i)} }

func (p *Plan) termsOf(i int32) *terms {
	if p.terms == nil {
		return &noTerms
	}
	return p.terms[i]
}

// ID returns the id of a node. It panics if r is out of range.
func (p *Plan) ID(r machine.Ref) string { return p.names[r] }

// Node returns a copy of the node, with After and In empty. It panics if r is out of range.
func (p *Plan) Node(r machine.Ref) Node {
	n := p.node(r).whole()
	n.ID, n.GuardErrors = p.names[r], p.guard(r)
	if p.keys != nil {
		n.Key = p.keys[r]
	}
	if p.estimates != nil {
		n.Estimate = p.estimates[r]
	}
	if n.WhenExpr != "" {
		n.When = nil // the field When was derived from WhenExpr
	}
	if n.TestExpr != "" {
		n.Test = nil
	}
	return n
}

// node returns the declaration of a node. The items of a map share one declaration. They differ only in their names, keys and estimates.
func (p *Plan) node(r machine.Ref) *node {
	return p.nodes[r]
}

// The method `guard` returns the node's GuardPolicy. If the guard is a Go function, the default is GuardFail: a defect of the function must not
// let the node run. Otherwise the default is GuardAllow.
func (p *Plan) guard(r machine.Ref) GuardPolicy {
	n := p.node(r)
	if policy := cmp.Or(n.GuardErrors, p.force.Defaults.GuardErrors); policy != guardDefault {
		return policy
	}
	if n.When != nil && n.WhenExpr == "" {
		return GuardFail
	}
	return GuardAllow
}

// Declared yields all nodes in the order of their declaration.
func (p *Plan) Declared() iter.Seq2[machine.Ref, string] {
	return func(yield func(machine.Ref, string) bool) {
		for _, r := range p.orEmpty().declared {
			if !yield(r, p.names[r]) {
				return
			}
		}
	}
}

// Edges yields all edges in the order of their declaration, including the edges of Node.After and Node.In. Then it
// yields the implicit edges into the end node.
//
// side is true for a side edge. A side edge delivers data only: if it could make its target run, the target's labelled edges and catch edges would
// have no effect, see [Edge]. The join rules [AllSucceeded] and [Boundary] ignore side edges, and the other join rules count them. For every other
// edge, side is false. Some of these edges make their target run in one case only: all sources of the target's labelled edges and catch edges were
// skipped because their branches were not taken. Documents, hashes and snapshots do not contain the value of side, since it follows from the graph.
func (p *Plan) Edges() iter.Seq2[Edge, bool] {
	return func(yield func(e Edge, side bool) bool) {
		for i := range p.orEmpty().net.Edges() {
			if !yield(p.Edge(i), p.net.IsSide(i)) {
				return
			}
		}
	}
}

// Groups returns the declared groups in the order of their declaration.
func (p *Plan) Groups() []Group {
	var groups []Group
	p = p.orEmpty()
	for i := range p.groups {
		if g := &p.groups[i]; !g.key && !g.inherited {
			groups = append(groups, g.Group)
		}
	}
	return groups
}

// Tier returns the node's Kahn level: the number of edges on the longest path to the node. The end node has its own tier, after all others.
func (p *Plan) Tier(r machine.Ref) int { return int(p.net.Tier(r)) }

// Tiers returns the ids of the nodes tier by tier, each tier in the order of declaration.
func (p *Plan) Tiers() [][]string {
	p = p.orEmpty()
	tiers := make([][]string, p.net.TierCount())
	for t := range tiers {
		lo, hi := p.net.TierRange(int32(t))
		tiers[t] = slices.Clone(p.names[lo:hi])
	}
	return tiers
}

// Ancestors returns the ids of all nodes from which a path leads to the node, in declaration order. A path may contain edges of any kind. For the
// end node, Ancestors returns all other nodes. For an unknown id it returns nil. Ancestors takes time linear in the graph.
func (p *Plan) Ancestors(id string) []string {
	r, ok := p.Ref(id)
	switch {
	case !ok:
		return nil
	case r == p.end:
		return p.idsOf(func(n machine.Ref) bool { return n != r })
	}
	return p.reachable(r, func(r machine.Ref, visit func(machine.Ref)) {
		for _, i := range p.net.In(r) {
			visit(p.net.Source(i))
		}
	})
}

// Descendants returns the ids of all nodes to which a path leads from the node, in declaration order. The end node is a descendant of every other
// node. For an unknown id, Descendants returns nil. It takes time linear in the graph.
func (p *Plan) Descendants(id string) []string {
	r, ok := p.Ref(id)
	if !ok {
		return nil
	}
	return p.reachable(r, func(r machine.Ref, visit func(machine.Ref)) {
		for _, a := range p.net.Out(r) {
			visit(a.To())
		}
		if p.end != noRef && r != p.end {
			visit(p.end)
		}
	})
}

func (p *Plan) reachable(from machine.Ref, neighbours func(machine.Ref, func(machine.Ref))) []string {
	seen := make([]bool, len(p.names))
	work := []machine.Ref{from}
	for len(work) > 0 {
		r := work[len(work)-1]
		work = work[:len(work)-1]
		neighbours(r, func(n machine.Ref) {
			if !seen[n] {
				seen[n] = true
				work = append(work, n)
			}
		})
	}
	return p.idsOf(func(r machine.Ref) bool { return seen[r] })
}

func (p *Plan) idsOf(in func(machine.Ref) bool) (ids []string) {
	for _, r := range p.declared {
		if in(r) {
			ids = append(ids, p.names[r])
		}
	}
	return ids
}

// CriticalPath returns the ids of the nodes on the path with the largest sum of Estimates. The path ends with its last node that has an Estimate.
// If no node has an Estimate, CriticalPath returns the path with the most nodes. The end node is never on the path.
func (p *Plan) CriticalPath() []string {
	best := noRef
	for r := range p.orEmpty().names {
		if r := machine.Ref(r); r != p.end && (best == noRef || p.net.Rank(r) > p.net.Rank(best)) {
			best = r
		}
	}
	var path []string
	for best != noRef {
		path = append(path, p.names[best])
		next := noRef
		for _, a := range p.net.Out(best) {
			if p.net.Rank(a.To()) > 0 && (next == noRef || p.net.Rank(a.To()) > p.net.Rank(next)) {
				next = a.To()
			}
		}
		best = next
	}
	return path
}

// Portable returns an error if the graph, or a graph inside it, contains Go code: a function or a [Contract] in a node, or a registered merge
// strategy. Such a graph cannot run outside this process. The error lists all Go code. Portable returns nil if the graph consists of data alone.
// Schemas are data, and so are guards and conditions that are texts.
func (p *Plan) Portable() error {
	p = p.orEmpty()
	ps := problems{graph: p.name}
	for _, name := range p.merges {
		ps.add("%w: the merge strategy %s is Go code", ErrBadValue, quoteID(name))
	}
	for _, r := range p.declared {
		n := p.Node(r)
		for _, f := range []struct {
			name string
			set  bool
		}{
			{"Do", n.Do != nil}, {"Test", n.Test != nil}, {"When", n.When != nil}, {"Fallback", n.Fallback != nil}, {"Compensate", n.Compensate != nil},
			{"MemoKey", n.MemoKey != nil}, {"Gate.Check", n.Gate != nil && n.Gate.Check != nil},
			{"InputSchema", isContract(n.InputSchema)}, {"OutputSchema", isContract(n.OutputSchema)},
			{"Gate.Schema", n.Gate != nil && isContract(n.Gate.Schema)},
			{"Map.Key", n.Map != nil && n.Map.Key != nil}, {"Map.Estimate", n.Map != nil && n.Map.Estimate != nil},
			{"Loop.While", n.Loop != nil && n.Loop.While != nil}, {"Loop.Until", n.Loop != nil && n.Loop.Until != nil},
		} {
			if f.set {
				ps.ofNode(n.ID, f.name, "%w: %s is Go code", ErrBadValue, f.name)
			}
		}
		if sub := p.subs[r]; sub != nil {
			ps.inside(n.ID, sub.Portable())
		}
	}
	return ps.err()
}

// node is a Node as graphs and plans store it, without its edges. A Node is large and most of its fields are zero. So the less common fields are
// in nodeExtras, and all nodes without such fields share noExtras. Once a node has been added to a graph, the node does not change, since plans
// refer to it.
type node struct {
	ID, Kind, Label   string
	Config            any
	Params            map[string]any
	Do                StepFunc
	Test              func(View) (any, error)
	When              func(View) (bool, error)
	Timeout           time.Duration
	Estimate          time.Duration
	Priority          int
	Key               string
	Join              Join
	SkipMode          machine.SkipMode
	OnUpstreamFailure machine.UpstreamPolicy
	Handling          Handling
	GuardErrors       GuardPolicy
	NoMatch           NoMatch
	Moderation        Moderation

	Routes, Disabled, CancelLosers, CancelOnLateFailure, ContinueOnFail, Cleanup, Critical, MergeJSON bool

	*nodeExtras
}

// nodeExtras are the fields of a Node that few nodes set.
type nodeExtras struct {
	TestExpr, WhenExpr        string
	Sub                       *Graph
	Map                       *Map
	Loop                      *Loop
	Choices                   []string
	Gate                      *Gate
	Default                   any
	Fallback                  func(ctx context.Context, err error) (any, error)
	Memo, MemoName            string
	MemoKey                   func(s *Step) (string, error)
	Files                     []string
	Retry                     Retry
	OverallTimeout            time.Duration
	MaxCrashes                int
	Groups                    []string
	KeyFrom                   string
	Ports                     []Port
	Merge                     string
	Outputs                   []string
	InputSchema, OutputSchema any
	Undo                      *compensation // nil if no field about compensation is set
}

// keySource is the source of a node's key: a parameter, a root input, or the item or the index of a map.
type keySource struct {
	name, path           string // path leads into the value of the source `name`; if path is "", the key is the whole value
	root, item, optional bool
}

// compensation holds the fields of a Node that are about compensation.
type compensation struct {
	do      func(ctx context.Context, s *Step) error
	by      *CompensateBy
	retry   Retry
	timeout time.Duration
}

// compensates reports whether one of the fields about compensation is set.
func (n *Node) compensates() bool {
	return n.Compensate != nil || n.CompensateBy != nil || !n.CompensateRetry.isZero() || n.CompensateTimeout != 0
}

// The method "compensation" returns the fields about compensation, or nil if all are zero.
func (n *Node) compensation() *compensation {
	if !n.compensates() {
		return nil
	}
	return &compensation{n.Compensate, n.CompensateBy, n.CompensateRetry, n.CompensateTimeout}
}

var noExtras nodeExtras

// hasExtras reports whether a node sets one of the fields in nodeExtras.
func (n *Node) hasExtras() bool {
	return n.TestExpr != "" || n.WhenExpr != "" || n.Sub != nil || n.Map != nil || n.Loop != nil || n.Choices != nil || n.Gate != nil ||
		n.Default != nil || n.Fallback != nil || n.Memo != "" || n.MemoName != "" || n.MemoKey != nil || n.Files != nil || !n.Retry.isZero() || n.OverallTimeout != 0 || n.MaxCrashes != 0 || n.Groups != nil || n.KeyFrom != "" ||
		n.Ports != nil || n.Merge != "" || n.Outputs != nil || n.InputSchema != nil || n.OutputSchema != nil ||
		n.compensates()
}

// The method `keep` copies the fields of a Node into n, which must be zero.
func (n *node) keep(from *Node) {
	n.ID, n.Kind, n.Label, n.Config, n.Params = from.ID, from.Kind, from.Label, from.Config, from.Params
	n.Do, n.Test, n.When, n.Timeout, n.Estimate, n.Priority, n.Key = from.Do, from.Test, from.When, from.Timeout, from.Estimate, from.Priority, from.Key
	n.Join, n.SkipMode, n.OnUpstreamFailure, n.Handling, n.GuardErrors = from.Join, from.SkipMode, from.OnUpstreamFailure, from.Handling, from.GuardErrors
	n.NoMatch, n.Moderation = from.NoMatch, from.Moderation
	n.Routes, n.Disabled, n.CancelLosers = from.Routes, from.Disabled, from.CancelLosers
	n.CancelOnLateFailure, n.ContinueOnFail, n.Cleanup = from.CancelOnLateFailure, from.ContinueOnFail, from.Cleanup
	n.Critical, n.MergeJSON = from.Critical, from.MergeJSON
	if n.nodeExtras = &noExtras; from.hasExtras() {
		n.nodeExtras = &nodeExtras{
			TestExpr: from.TestExpr, WhenExpr: from.WhenExpr, Sub: from.Sub, Map: from.Map, Loop: from.Loop, Choices: from.Choices,
			Gate: from.Gate, Default: from.Default, Fallback: from.Fallback, Memo: from.Memo, MemoName: from.MemoName, MemoKey: from.MemoKey, Files: from.Files, Retry: from.Retry,
			OverallTimeout: from.OverallTimeout, MaxCrashes: from.MaxCrashes, Groups: from.Groups, KeyFrom: from.KeyFrom, Ports: from.Ports, Merge: from.Merge, Outputs: from.Outputs,
			InputSchema: from.InputSchema, OutputSchema: from.OutputSchema, Undo: from.compensation(),
		}
	}
}

// The method `whole` returns the Node, with After and In empty.
func (n *node) whole() Node {
	to := Node{
		ID: n.ID, Kind: n.Kind, Label: n.Label, Config: n.Config, Params: n.Params, Do: n.Do, Test: n.Test, When: n.When,
		Timeout: n.Timeout, Estimate: n.Estimate, Priority: n.Priority, Key: n.Key, Join: n.Join, SkipMode: n.SkipMode,
		OnUpstreamFailure: n.OnUpstreamFailure, GuardErrors: n.GuardErrors, NoMatch: n.NoMatch, Moderation: n.Moderation,
		Routes: n.Routes, Disabled: n.Disabled, Handling: n.Handling, CancelLosers: n.CancelLosers,
		CancelOnLateFailure: n.CancelOnLateFailure, ContinueOnFail: n.ContinueOnFail, Cleanup: n.Cleanup, Critical: n.Critical,
		MergeJSON: n.MergeJSON,
		TestExpr:  n.TestExpr, WhenExpr: n.WhenExpr, Sub: n.Sub, Map: n.Map, Loop: n.Loop, Choices: n.Choices,
		Gate: n.Gate, Default: n.Default, Fallback: n.Fallback, Memo: n.Memo, MemoName: n.MemoName, MemoKey: n.MemoKey, Files: n.Files, Retry: n.Retry,
		OverallTimeout: n.OverallTimeout, MaxCrashes: n.MaxCrashes, Groups: n.Groups, KeyFrom: n.KeyFrom, Ports: n.Ports, Merge: n.Merge, Outputs: n.Outputs,
		InputSchema: n.InputSchema, OutputSchema: n.OutputSchema,
	}
	if x := n.Undo; x != nil {
		to.Compensate, to.CompensateBy, to.CompensateRetry, to.CompensateTimeout = x.do, x.by, x.retry, x.timeout
	}
	return to
}

// The method `own` returns the plan's own copy of a node, which the caller may change. If the plan still shares the node with the graph, the method
// first makes the copy.
func (c *compiler) own(r machine.Ref) *node {
	n := &c.p.nodes[r]
	if declared := c.g.nodes[c.p.decl[r]]; *n == declared {
		own := *declared
		*n = &own
	}
	return *n
}

// setRetry replaces the Retry of a node. If nodes have no extras and get the default Retry, all of them share one nodeExtras.
func (c *compiler) setRetry(r machine.Ref, retry Retry, isDefault bool) {
	n := c.own(r)
	if isDefault && n.nodeExtras == &noExtras && c.defaulted != nil {
		n.nodeExtras = c.defaulted
		return
	}
	extras := *n.nodeExtras
	extras.Retry = retry
	if isDefault && n.nodeExtras == &noExtras {
		c.defaulted = &extras
	}
	n.nodeExtras = &extras
}

// Hash returns the hex SHA-256 by which snapshots identify the graph. It covers nodes, the graphs inside them, edges, defaults of inputs, joins,
// policies, and configuration as far as it has a JSON form. Go functions cannot be compared, so Hash covers only whether they are set. It does not
// cover the fields that only decide when and how often steps are performed: Retry, Timeout, OverallTimeout, CompensateRetry, CompensateTimeout,
// MaxCrashes, Priority, Estimate, Groups, Key, KeyFrom, MemoKey and the Pause of a loop. Nor does it cover the Check and the Schema of a [Gate],
// or the fields that only Compile reads: the Choices of a condition and the Outputs of a node.
//
// Hash calls the MarshalJSON methods of the values that it covers. If such a method itself calls Hash of the same graph, this inner call returns
// "".
func (p *Plan) Hash() string {
	p = p.orEmpty()
	if h := p.hashed.Load(); h != nil {
		return h.whole()
	}
	if p.hashing.Load() > 0 && isHashing() {
		return ""
	}
	// Hash takes no lock, since user code may call Goexit. So several concurrent callers may compute the hash. All of them get
	// the same result.
	p.hashing.Add(1)
	defer p.hashing.Add(-1)
	w := hasher{plan: p, sum: sha256.New()}
	texts := make([]byte, 0, hashLength*len(p.names)+2*sha256.Size)
	for _, ref := range p.declared {
		texts = w.node(texts, ref)
	}
	all, inputs := sha256.New(), w.inputs()
	all.Write(inputs)
	for i := range p.declared {
		all.Write(append(append(w.text[:0], texts[i*hashLength:][:hashLength]...), '\n'))
	}
	h := hashes(hex.AppendEncode(texts, all.Sum(nil)))
	p.hashed.CompareAndSwap(nil, &h)
	return h.whole()
}

// hashes holds the hashes of the nodes of a plan, in the order of declaration, and then the hash of the plan.
type hashes string

func (h hashes) whole() string { return string(h[len(h)-2*sha256.Size:]) }

// nodeHash returns the hash of a node, or "" if the plan has not been hashed.
func (p *Plan) nodeHash(ref machine.Ref) string {
	if h := p.hashed.Load(); h != nil {
		return string((*h)[int(p.decl[ref])*hashLength:][:hashLength])
	}
	return ""
}

// isHashing reports whether hashedForm is on the stack of this goroutine. If it is, hashedForm has called user code, and this code is calling Hash.
func isHashing() bool {
	name := runtime.FuncForPC(reflect.ValueOf(hashedForm).Pointer()).Name()
	var pcs [256]uintptr
	for skip := 0; ; skip += len(pcs) {
		n := runtime.Callers(skip, pcs[:])
		if n == 0 {
			return false
		}
		frames := runtime.CallersFrames(pcs[:n])
		for more := true; more; {
			var f runtime.Frame
			if f, more = frames.Next(); f.Function == name {
				return true
			}
		}
	}
}

// hashedField is a struct field that a hash covers.
type hashedField struct {
	index int
	name  string
}

// hashedFields returns the fields of a struct except the fields named in `but`.
func hashedFields(t reflect.Type, but ...string) (fields []hashedField) {
	for i := range t.NumField() {
		if name := t.Field(i).Name; !slices.Contains(but, name) {
			fields = append(fields, hashedField{i, name})
		}
	}
	return fields
}

// nodeHashed and edgeHashed list the struct fields that a hash covers: all fields of a Node except the fields named here, and all fields of an
// Edge. After and In are empty in a plan, and Sub has its own plan with its own hash. The comment on Plan.Hash explains the other omitted fields.
var (
	nodeHashed = hashedFields(reflect.TypeFor[Node](), "After", "In", "Sub",
		"Retry", "Timeout", "OverallTimeout", "CompensateRetry", "CompensateTimeout", "MaxCrashes", "Priority", "Estimate", "Groups", "Key", "KeyFrom", "MemoKey", "Choices", "Outputs")
	edgeHashed = hashedFields(reflect.TypeFor[Edge]())
)

// hashLength is the length of the hash of a node, in characters: 16 bytes in hex.
const hashLength = 32

// hasher hashes the nodes of a plan, one after the other. It uses the same buffers for all nodes, to save allocations.
type hasher struct {
	plan *Plan
	sum  hash.Hash
	text []byte // the text to hash
	n    Node
	e    Edge
	out  [sha256.Size]byte
}

// The method `inputs` returns the text to hash for the graph's inputs: the name and the Default of each input that has a Default.
func (w *hasher) inputs() (text []byte) {
	for i := range w.plan.inputs {
		if in := &w.plan.inputs[i]; in.Default != nil {
			text = fmt.Appendf(text, "Input %q=%s\n", in.Name, hashedForm(reflect.ValueOf(in.Default)))
		}
	}
	return text
}

// The method `node` appends the hash of a node to the slice `to`. The hash covers the node, its in-edges, and the defaults that apply to the node.
// The method calls user code. If this code hashes another plan, another hasher is used for that plan.
func (w *hasher) node(to []byte, ref machine.Ref) []byte {
	p := w.plan
	join, skip, upstream := p.net.Rules(ref)
	w.text = fmt.Appendf(w.text[:0], "%v %v %v\n", join, skip, upstream)
	w.n = p.node(ref).whole()
	// In former versions GuardAllow was the default policy of every guard, even if the guard was a Go function. The hash still uses this default, so
	// that stored runs match their graphs.
	w.n.GuardErrors = cmp.Or(w.n.GuardErrors, p.force.Defaults.GuardErrors, GuardAllow)
	n := reflect.ValueOf(&w.n).Elem()
	for _, f := range nodeHashed {
		field := n.Field(f.index)
		if field.IsZero() {
			continue
		}
		switch f.name {
		case "Handling": // the hash keeps the form of former versions, where Handling was a bool that inverted the default
			if (w.n.Handling == Observes) != p.node(ref).observes(join) {
				w.text = append(w.text, "HandlesFailure=true\n"...)
			}
			continue
		case "GuardErrors": // hashed for every node: if the node has no policy, w.n.GuardErrors has the default
			w.text = append(append(append(w.text, `GuardErrors="`...), w.n.GuardErrors.String()...), "\"\n"...)
			continue
		case "Loop":
			unpaused := *w.n.Loop
			unpaused.Pause = 0
			field = reflect.ValueOf(&unpaused)
		case "Gate":
			if w.n.Gate.Check != nil || w.n.Gate.Schema != nil {
				unchecked := *w.n.Gate
				unchecked.Check, unchecked.Schema = nil, nil
				if reflect.ValueOf(unchecked).IsZero() {
					continue
				}
			}
		}
		w.field(f.name, field, '\n')
	}
	if sub := p.sub(ref); sub != nil {
		w.text = append(append(append(w.text, "Sub="...), sub.Hash()...), '\n')
	}
	e := reflect.ValueOf(&w.e).Elem()
	for _, i := range p.net.In(ref) {
		w.e = p.Edge(i)
		for _, f := range edgeHashed {
			if field := e.Field(f.index); !field.IsZero() {
				w.field(f.name, field, ' ')
			}
		}
		w.text = append(w.text, '\n')
	}
	w.sum.Reset()
	w.sum.Write(w.text)
	return hex.AppendEncode(to, w.sum.Sum(w.out[:0])[:hashLength/2])
}

// The method `field` appends the text of a field to w.text. Most fields are plain, so their JSON form needs no encoder.
func (w *hasher) field(name string, v reflect.Value, end byte) {
	w.text = append(append(w.text, name...), '=')
	switch {
	case v.Type() == reflect.TypeFor[string]() && isPlain(v.String()):
		w.text = append(append(append(w.text, '"'), v.String()...), '"')
	case v.Type() == reflect.TypeFor[bool]():
		w.text = strconv.AppendBool(w.text, v.Bool())
	case v.Kind() == reflect.Func:
		w.text = append(w.text, "func"...)
	default:
		text := hashedForm(v) // calls user code (MarshalJSON)
		w.text = append(w.text, text...)
	}
	w.text = append(w.text, end)
}

// isPlain reports whether the JSON form of s is s in quotes.
func isPlain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			return false
		}
	}
	return true
}

// hashedForm returns the JSON form of a field. If the field has no JSON form, hashedForm returns "func" for a function, the result of hashedStruct
// for a struct, and the type for any other value. It calls MarshalJSON, which is user code.
func hashedForm(v reflect.Value) (text string) {
	if v.Kind() == reflect.Func {
		return "func"
	}
	err := contain(func() error {
		data, err := json.Marshal(v.Interface())
		text = string(data)
		return err
	})
	if err == nil {
		return text
	}
	if _, ok := err.(*PanicError); ok {
		return fmt.Sprintf("<%v>", v.Type())
	}
	if text, ok := hashedStruct(v); ok {
		return text
	}
	return fmt.Sprintf("<%T>", v.Interface())
}

// hashedStruct is hashedForm for a struct without a JSON form, such as a struct that contains functions, or for a pointer to such a struct.
func hashedStruct(v reflect.Value) (text string, ok bool) {
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	if v.Kind() != reflect.Struct {
		return "", false
	}
	for i := range v.NumField() {
		if f := v.Field(i); v.Type().Field(i).IsExported() && !f.IsZero() {
			text += fmt.Sprintf("%s=%s ", v.Type().Field(i).Name, hashedForm(f))
		}
	}
	return text, true
}
