package kahn

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"time"
)

// problems collects the problems of a graph, up to a number that people still read.
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

// inside adds the problems, if there are any, of the sub-graph of a node.
func (ps *problems) inside(id string, err error) {
	if sub, ok := err.(*GraphError); ok {
		for _, p := range sub.Problems {
			ps.addErr(insideOf(id, p))
		}
		ps.more += sub.More
	}
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
// The steps build on one another: ids, then edges between them, then tiers, which number the nodes, then everything that is
// indexed by these numbers. A check runs, even if others have found problems, as soon as the results that it needs are
// there.
func (n *nesting) compile(g *Graph, outer *force) (*Plan, *problems) {
	c := compiler{g: g, nesting: n, force: n.inForce(g, outer), problems: problems{graph: g.Name}}
	return c.compile()
}

// compileInside compiles a graph that a node of this plan expands into.
func (p *Plan) compileInside(g *Graph) (*Plan, error) {
	n := nesting{within: []*Graph{nil}} // it is nested in others, and contains none of them
	inner, ps := n.compile(g, p.force)
	return inner, ps.err()
}

// compileItem compiles a graph of one node, which stands for the items of a map: its inputs are those of the map.
func (n *nesting) compileItem(g *Graph, outer *force) (*Plan, *problems) {
	c := compiler{g: g, nesting: n, force: n.inForce(g, outer), problems: problems{graph: g.Name}, isItem: true}
	return c.compile()
}

// compilePruned compiles the part of a valid graph that a trigger leads to. Edges that were lost with other nodes are no
// problem.
func (n *nesting) compilePruned(g *Graph) (*Plan, *problems) {
	c := compiler{g: g, nesting: n, force: n.inForce(g, nil), problems: problems{graph: g.Name}, isPruned: true}
	return c.compile()
}

func (c *compiler) compile() (*Plan, *problems) {
	g, n := c.g, c.nesting
	if len(g.nodes) > maxNodes || len(g.edges) > maxNodes {
		c.add("%w: more than %d nodes or edges", ErrBadValue, maxNodes)
		return nil, &c.problems
	}
	n.within = append(n.within, g)
	defer func() { n.within = n.within[:len(n.within)-1] }()
	c.checkDefaults()
	c.indexInputs()
	c.indexNodes()
	c.resolveEdges()
	for i := range g.nodes {
		c.checkNode(i)
		c.lower(i)
	}
	c.checkPaths()
	c.levels()
	if len(c.list) > 0 {
		return nil, &c.problems
	}
	c.number()
	c.adjacency()
	if !c.isPruned {
		c.checkChoices()
	}
	c.shield()
	c.findSides()
	c.bindInputs()
	c.nest()
	c.checkTexts()
	c.schedule()
	c.group()
	c.initialWords()
	if len(c.list) > 0 {
		return nil, &c.problems
	}
	return c.p, &c.problems
}

// compiler holds the results that compile's steps pass to one another. Until number has run, a node is identified by its
// index of declaration.
type compiler struct {
	problems
	g *Graph
	p *Plan
	*nesting
	*force
	subs   map[int32]*Plan // of composites; nil for one that does not compile
	isItem bool            // the graph stands for an item of a map

	isPruned bool // the graph is the part of another one that a trigger leads to

	index map[string]int32
	end   int32  // the end node, or -1
	edges []edge // from and to are indices of declaration at first
	into  csr    // by node: its in-edges
	outOf csr    // by node: its out-edges, edges into the end node left out
	tier  []int32
	depth int32 // number of tiers

	lowered map[int32]*lowered // by index of declaration

	inputs     []Input // Graph.Inputs
	inputIndex map[string]int
}

func (c *compiler) checkDefaults() {
	d := &c.force.Defaults
	if d.SkipMode >= skipModeCount || d.OnUpstreamFailure >= upstreamCount || d.GuardErrors >= guardCount {
		c.add("Defaults: %w: %v, %v, %v", ErrBadValue, d.SkipMode, d.OnUpstreamFailure, d.GuardErrors)
	}
	if err := d.Retry.validate(); err != nil {
		c.add("Defaults: %w", err)
	}
	if d.Timeout < 0 && d.Timeout != NoTimeout {
		c.add("Defaults: %w: Timeout %v is negative", ErrBadValue, d.Timeout)
	}
	for _, name := range slices.Sorted(maps.Keys(c.g.merges)) {
		if c.g.merges[name] == nil {
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
	return n.Routes || n.Test != nil || n.TestExpr != "" || n.Kind == KindCondition || n.Kind == KindGate
}

func (c *compiler) resolveEdges() {
	for _, s := range c.g.strays {
		c.add("node %s: %w: the edge from %s in its In leads to this node, and its To names %s: leave To empty, or add the edge with Connect%s",
			quoteID(s.node), ErrBadEdge, quoteID(s.edge.From), quoteID(s.edge.To), didYouMean(s.edge.To, []string{s.node}))
	}
	c.edges = make([]edge, 0, len(c.g.edges))
	for i := range c.g.edges {
		e := &c.g.edges[i]
		name := func() string { return quoteID(e.From) + " -> " + quoteID(e.To) }
		from, okFrom := c.index[e.From]
		to, okTo := c.index[e.To]
		if !okFrom {
			c.add("edge %s: %w: %s%s", name(), ErrUnknownNode, quoteID(e.From), c.nodeInstead(e.From))
		}
		if !okTo {
			c.add("edge %s: %w: %s%s", name(), ErrUnknownNode, quoteID(e.To), c.nodeInstead(e.To))
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
		case e.DataOnly && (e.On != OnSuccess || e.Label != "" && to != c.end):
			c.add("edge %s: %w: a data-only edge has neither a label nor an outcome to wait for", name(), ErrBadEdge)
		case e.On != OnSuccess && e.Label != "" && to != c.end:
			c.add("edge %s: %w: a labelled edge waits for success", name(), ErrBadEdge)
		case e.On == OnFailure && c.g.nodes[from].Kind == KindTrigger:
			c.add("edge %s: %w: a trigger does not fail", name(), ErrBadEdge)
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
			c.add("edge %s: %w: no merge strategy %s%s", name(), ErrBadValue, quoteID(e.Merge), instead(e.Merge, c.mergeNames()))
		}
		if outputs := c.g.nodes[from].Outputs; e.On != OnFailure && !hasOutput(outputs, e.Key) {
			c.add("edge %s: %w: the Key %s names none of the Outputs of %s%s", name(), ErrBadEdge, quoteID(e.Key), quoteID(e.From), instead(e.Key, outputs))
		}
		switch e.On {
		case OnFailure:
			r.flags |= arcFailure
		case OnAlways:
			r.flags |= arcAlways
		}
		// A label on an edge into the end node is a branch like any other. One that a plain step's output cannot name is
		// ignored there, as is one on an edge that does not wait for success.
		if e.Label != "" && (to != c.end || e.On == OnSuccess && !e.DataOnly && isRouter(&c.g.nodes[from])) {
			r.flags |= arcLabelled
		}
		if e.DataOnly {
			r.flags |= arcData
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

// duplicateEdges reports edges that are declared twice. Parallel edges that differ in parameter, key, label or outcome are
// no duplicates.
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

// mergeNames lists the merge strategies.
func (c *compiler) mergeNames() []string {
	return append([]string{MergeLast, MergeConcat, MergeArray, MergeObject}, slices.Sorted(maps.Keys(c.g.merges))...)
}

// nodeInstead is instead for the id of a node that does not exist.
func (c *compiler) nodeInstead(id string) string {
	if len(c.list) == maxProblems {
		return "" // the problem would not be listed any more
	}
	names := make([]string, 0, min(len(c.g.nodes), maxCompared))
	for i := range c.g.nodes[:cap(names)] {
		names = append(names, c.g.nodes[i].ID)
	}
	return instead(id, names)
}

// checkNode validates the fields of a node and of its in-edges.
func (c *compiler) checkNode(i int) {
	n := &c.g.nodes[i]
	bad := func(kind error, format string, args ...any) {
		c.addErr(fmt.Errorf("node %s: %w: %s", quoteID(n.ID), kind, fmt.Sprintf(format, args...)))
	}
	if n.SkipMode >= skipModeCount || n.OnUpstreamFailure >= upstreamCount || n.GuardErrors >= guardCount || n.NoMatch >= noMatchCount ||
		n.Moderation >= moderationCount {
		bad(ErrBadValue, "%v, %v, %v, %v, %v", n.SkipMode, n.OnUpstreamFailure, n.GuardErrors, n.NoMatch, n.Moderation)
	}
	for _, d := range []struct {
		name string
		d    time.Duration
	}{{"Timeout", n.Timeout}, {"OverallTimeout", n.OverallTimeout}, {"Estimate", n.Estimate}} {
		if d.d < 0 && (d.name != "Timeout" || d.d != NoTimeout) {
			bad(ErrBadValue, "%s %v is negative", d.name, d.d)
		}
	}
	if err := n.Retry.validate(); err != nil {
		c.add("node %s: %w", quoteID(n.ID), err)
	}
	if n.Do != nil && (n.Test != nil || n.TestExpr != "") {
		bad(ErrBadValue, "it has both a Do and a Test")
	}
	if n.Test != nil && n.TestExpr != "" {
		bad(ErrBadValue, "it has both a Test and a TestExpr")
	}
	if n.When != nil && n.WhenExpr != "" {
		bad(ErrBadValue, "it has both a When and a WhenExpr")
	}
	c.checkGate(n, bad)
	switch {
	case len(n.Choices) > 0 && isGate(n):
		bad(ErrBadValue, "the choices of a gate are declared in Gate")
	case len(n.Choices) > 0 && !isRouter(n):
		bad(ErrBadValue, "it has Choices, but its output is not a label (set Routes, or kind %q)", KindCondition)
	}
	if text := badChoices(n.Choices); text != "" {
		bad(ErrBadValue, "%s", text)
	}
	if n.Memo != "" && (n.Test != nil || n.TestExpr != "" || n.Kind == KindTrigger || n.Kind == KindEnd || isGate(n) || n.Sub != nil || n.Map != nil) {
		bad(ErrBadValue, "Memo is for steps: the outputs of conditions, gates, triggers, composites and the end node depend on more than inputs")
	}
	if isGate(n) && (n.InputSchema != nil || n.OutputSchema != nil || n.Moderation != ModerateNone) {
		bad(ErrBadValue, "a gate has no step whose inputs or output could be judged")
	}
	if n.composite() {
		c.checkComposite(i, bad)
	}
	if n.Kind == KindTrigger {
		checkTrigger(n, bad)
	}
	if n.Merge != "" && !c.knownMerge(n.Merge) {
		bad(ErrBadValue, "no merge strategy %s%s", quoteID(n.Merge), instead(n.Merge, c.mergeNames()))
	}
	ports := make(map[string]bool, len(n.Ports))
	for _, p := range n.Ports {
		if p.Name == "" || ports[p.Name] {
			bad(ErrBadValue, "port %s is unnamed or declared twice", quoteID(p.Name))
		}
		ports[p.Name] = true
	}
	outputs := make(map[string]bool, len(n.Outputs))
	for _, name := range n.Outputs {
		if name == "" || outputs[name] {
			bad(ErrBadValue, "output %s is unnamed or declared twice", quoteID(name))
		}
		outputs[name] = true
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
		if n.Join != joinDefault || n.When != nil || n.WhenExpr != "" || n.Disabled || n.Test != nil || n.TestExpr != "" || n.Routes || n.OnUpstreamFailure != upstreamDefault ||
			n.SkipMode != skipModeDefault {
			bad(ErrBadEnd, "the end node has no join rule, guard, policy or branches, and cannot be disabled")
		}
	case n.Join.rule() == joinAtLeast && (n.Join.k() < 1 || n.Join.k() > control && !c.isPruned):
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

// checkGate validates the fields that only a gate has.
func (c *compiler) checkGate(n *Node, bad func(kind error, format string, args ...any)) {
	switch {
	case !isGate(n):
		if n.Gate != nil {
			bad(ErrBadValue, "Gate belongs on a node of kind %q without a Do", KindGate)
		}
		return
	case n.Timeout != 0 || n.OverallTimeout != 0 || n.Fallback != nil || !n.Retry.isZero() || n.Cleanup:
		bad(ErrBadValue, "a gate has no attempts: Timeout, OverallTimeout, Retry, Fallback and Cleanup are not for it; see Gate.Timeout")
	}
	if n.Gate != nil && (n.Gate.Timeout < 0 || n.Gate.OnTimeout >= gateTimeoutCount) {
		bad(ErrBadValue, "Gate: %v, %v", n.Gate.Timeout, n.Gate.OnTimeout)
	}
	if n.Gate != nil {
		if text := badChoices(n.Gate.Choices); text != "" {
			bad(ErrBadValue, "Gate.%s", text)
		}
	}
}
