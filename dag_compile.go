package kahn

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/seed-c794f7ef/kahn/internal/index"
	"github.com/seed-c794f7ef/kahn/internal/nearest"
	"github.com/seed-c794f7ef/kahn/machine"
)

const maxNodes = math.MaxInt32 / 2 // Refs, edge indices and pending counts are int32

// compile turns a graph into a plan, or reports problems. Its time is linear in the nodes and edges, apart from sorting. Each step needs the
// results of earlier steps. First come the ids of the nodes, then the edges, and then the tiers. The tiers determine the numbers of the nodes, and
// the remaining steps use these numbers as indices. If the steps before checkChoices find problems, the only remaining checks are the checks of
// choices, texts and groups.
func (n *nesting) compile(g *Graph, outer *force) (*Plan, *problems) {
	return n.compiler(g, outer).compile()
}

// compileInside compiles a graph into which a node of plan p expands.
func (p *Plan) compileInside(g *Graph) (*Plan, error) {
	n := nesting{within: []*Graph{nil}, top: p.force} // nil stands for the enclosing graphs, which g cannot contain
	inner, ps := n.compile(g, p.force)
	return inner, ps.err()
}

// compileItem compiles a graph whose only node represents an item of a map. It does not check the inputs of the item's Sub, since checkInputsOf
// checks them for the map.
func (n *nesting) compileItem(g *Graph, outer *force) (*Plan, *problems) {
	c := n.compiler(g, outer)
	c.isItem = true
	return c.compile()
}

// compilePruned compiles the part of a valid graph that runs when a trigger fires. It does not report what a node lacks because predecessors were
// pruned.
func (n *nesting) compilePruned(g *Graph) (*Plan, *problems) {
	c := n.compiler(g, nil)
	c.isPruned = true
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
	found := c.count()
	c.indexNodes()
	c.resolveEdges()
	c.broken = c.count() > found
	for i, n := range g.nodes {
		c.checkNode(i)
		c.lower(i)
		c.has.slash = c.has.slash || strings.Contains(n.ID, "/")
		c.has.composite = c.has.composite || n.composite()
		c.has.member = c.has.member || n.Key != "" || n.KeyFrom != "" || len(n.Groups) > 0
		c.has.condition = c.has.condition || isRouter(n)
		c.has.priority = c.has.priority || n.Priority != 0
		c.has.estimate = c.has.estimate || n.Estimate > 0
	}
	c.checkIDs()
	c.levels()
	found = c.count()
	c.checkChoices()
	if found > 0 {
		c.checkTextsBeside()
		c.checkGroups()
		c.checkMembers()
		return nil, &c.problems
	}
	c.number()
	c.warnOfRetry("", g.Defaults.Retry)
	c.branches()
	c.b.Shield()
	c.b.FindSides()
	c.bindInputs()
	c.bindKeys()
	c.nest()
	c.checkTexts()
	c.checkAnswers()
	c.checkMerges()
	c.checkAbsences()
	c.schedule()
	c.group()
	if len(c.list) > 0 {
		return nil, &c.problems
	}
	return c.p, &c.problems
}

// compiler holds the results that each step of compile passes to later steps. Until the method `number` has run, a node is identified by
// its declaration index, and afterwards by its Ref.
type compiler struct {
	problems
	g     *Graph
	p     *Plan
	block *planBlock
	*nesting
	*force
	subs   map[int32]*Plan // by declaration index: the plan of a composite; nil for a graph that does not compile
	isItem bool            // whether the graph represents an item of a map

	isPruned bool // whether the graph is the part of another graph that runs when a trigger fires
	broken   bool // whether the graph has a problem, such as a cycle or a duplicate id, that makes it impossible to number the nodes

	names  []string         // by declaration index: the ids of the nodes
	index  index.Table      // of names
	ports  map[int32]*ports // by declaration index: the declared Outputs of nodes
	end    int32            // the end node, or -1
	b      machine.Builder  // builds the net
	n      *machine.Net     // the plan's net; nil until the method `number` has run
	edges  []machine.Edge   // From and To are declaration indices; once b.Begin has been called, the builder owns the slice
	origin []int            // for each edge its index in g.edges; nil until an edge is left out
	terms  []*terms         // by edge; nil if no edge has any

	member  [][]int32          // by Ref: the groups of the node
	lowered map[int32]*lowered // by index of declaration
	named   map[[2]string]bool // see noted
	has     traits

	defaulted *nodeExtras // see setRetry

	inputs     []Input // Graph.Inputs
	inputIndex map[string]int
}

// traits record what occurs in the graph. So later steps need not search for things that do not occur.
type traits struct {
	slash, composite, condition, member, priority, estimate bool
}

// The function `named` returns an error message if a required name is empty or already used. In the message, `what` is the word for an item of
// the list, such as "port", and `number` is the position of the name in the list, from 1.
func named(what string, number int, name string, taken bool) (text string, ok bool) {
	switch {
	case name == "":
		return fmt.Sprintf("%s number %d has no name", what, number), true
	case taken:
		return fmt.Sprintf("%s %s is declared twice", what, quoteID(name)), true
	}
	return "", false
}

func (c *compiler) checkDefaults() {
	d := &c.force.Defaults
	if text, bad := wrong(enumField{"SkipMode", int(d.SkipMode), skipModeNames}, enumField{"OnUpstreamFailure", int(d.OnUpstreamFailure), upstreamNames},
		enumField{"GuardErrors", int(d.GuardErrors), guardNames.Names()}); bad {
		c.add("%w: Defaults.%s", ErrBadValue, text).Field = "Defaults"
	}
	if field, err := d.Retry.validate(); err != nil {
		c.add("Defaults: %w", err).Field = "Defaults.Retry." + field
	}
	if d.Timeout < 0 && d.Timeout != NoTimeout {
		c.add("%w: Defaults.Timeout %v is negative", ErrBadValue, d.Timeout).Field = "Defaults.Timeout"
	}
	for _, name := range c.g.Merges() {
		if c.g.merges[name] == nil {
			c.add("%w: merge strategy %s is nil or registered twice", ErrBadValue, quoteID(name))
		}
	}
}

func (c *compiler) indexNodes() {
	c.names, c.index = make([]string, len(c.g.nodes)), index.Make(len(c.g.nodes))
	c.end = -1
	for i, n := range c.g.nodes {
		c.names[i] = n.ID
		if n.ID == "" {
			c.add("node number %d: %w: empty ID", i+1, ErrBadValue)
			continue
		}
		if !c.index.Add(c.names, i) {
			p := c.add("%w: %s", ErrDuplicateNode, quoteID(n.ID))
			p.Node, p.Field = n.ID, "ID"
			continue
		}
		if n.Kind != KindEnd {
			continue
		}
		if c.end >= 0 {
			p := c.add("%w: both %s and %s are of kind %q", ErrBadEnd, quoteID(c.names[c.end]), quoteID(n.ID), KindEnd)
			p.Node, p.Field = n.ID, "Kind"
			continue
		}
		c.end = int32(i)
	}
}

// isRouter reports whether the node's output is a label of a branch, or names several branches.
func isRouter(n *node) bool {
	return n.Routes || n.Test != nil || n.TestExpr != "" || n.Kind == KindCondition || n.Kind == KindGate
}

// portsOf returns the declared Outputs of a node.
func (c *compiler) portsOf(i int32) *ports {
	p := c.ports[i]
	if p == nil {
		if c.ports == nil {
			c.ports = map[int32]*ports{}
		}
		p = newPorts(c.g.nodes[i].Outputs)
		c.ports[i] = p
	}
	return p
}

func (c *compiler) resolveEdges() {
	for _, s := range c.g.strays {
		c.ofNode(s.node, "In", "%w: an edge in In leads to this node, but the To of the edge from %s names %s: leave To empty, or add the edge with Connect%s",
			ErrBadEdge, quoteID(s.edge.From), quoteID(s.edge.To), c.didYouMean(s.edge.To, []string{s.node}))
	}
	c.edges = make([]machine.Edge, 0, len(c.g.edges))
	last := int32(-1) // the target of the previous edge
	for i := range c.g.edges {
		e := &c.g.edges[i]
		from, okFrom := c.find(e.from)
		to, okTo := last, true
		if to < 0 || c.names[to] != e.to { // successive edges often have the same target
			to, okTo = c.find(e.to)
		}
		if !okFrom || !okTo || from == to || from == c.end {
			c.leaveOut(i)
		}
		if !okFrom {
			c.ofEdge(i, "From", "%w: %s%s", ErrUnknownNode, quoteID(e.from), c.nodeInstead(e.from))
		}
		if !okTo {
			c.ofEdge(i, "To", "%w: %s%s", ErrUnknownNode, quoteID(e.to), c.nodeInstead(e.to))
			continue
		}
		last = to
		switch {
		case !okFrom:
			continue
		case from == to:
			c.ofEdge(i, "", "%w", cycleError([]string{e.from})).Cycle = []string{e.from}
			continue
		case from == c.end:
			c.ofEdge(i, "", "%w: nothing can follow the end node", ErrBadEnd)
			continue
		}
		c.edges = append(c.edges, machine.Edge{From: machine.Ref(from), To: machine.Ref(to), LabelID: -1})
		if c.origin != nil {
			c.origin = append(c.origin, i)
		}
		if e.terms != &noTerms {
			c.checkTerms(i, &c.edges[len(c.edges)-1])
			c.addTerms(e.terms)
		} else if c.terms != nil {
			c.terms = append(c.terms, &noTerms)
		}
	}
	added := c.b.Begin(len(c.g.nodes), c.edges, c.end)
	if c.terms != nil {
		for range added {
			c.terms = append(c.terms, &noTerms)
		}
	}
	c.duplicateEdges()
}

// leaveOut is called before the compiler omits edge i of the graph. The first call creates c.origin, since from then on an edge of the compiler and
// the same edge of the graph have different numbers.
func (c *compiler) leaveOut(i int) {
	if c.origin != nil {
		return
	}
	c.origin = make([]int, i, len(c.g.edges))
	for before := range c.origin {
		c.origin[before] = before
	}
}

// declaredEdge returns the index in c.g.edges of edge e of c.edges.
func (c *compiler) declaredEdge(e int32) int {
	if c.origin == nil {
		return int(e)
	}
	return c.origin[e]
}

// find returns a node's declaration index.
func (c *compiler) find(id string) (int32, bool) {
	i, ok := c.index.Find(c.names, id)
	return int32(i), ok && id != "" // a short index also finds nodes without an id
}

// name returns the edge's name in the text of a [Problem].
func (l *link) name() string { return quoteID(l.from) + " -> " + quoteID(l.to) }

// addTerms records the terms of the last edge.
func (c *compiler) addTerms(t *terms) {
	if c.terms == nil {
		c.terms = make([]*terms, len(c.edges)-1, len(c.g.edges))
		for i := range c.terms {
			c.terms[i] = &noTerms
		}
	}
	c.terms = append(c.terms, t)
}

// termsOf returns the terms of an edge.
func (c *compiler) termsOf(i int32) *terms {
	if c.terms == nil {
		return &noTerms
	}
	return c.terms[i]
}

// checkTerms validates the terms of edge i of the graph, and sets the flags of r accordingly.
func (c *compiler) checkTerms(i int, r *machine.Edge) {
	e := &c.g.edges[i]
	from, to := int32(r.From), int32(r.To)
	source := c.g.nodes[from]
	switch {
	case e.On >= onCount:
		text, _ := wrong(enumField{"On", int(e.On), onNames.Names()})
		c.ofEdge(i, "On", "%w: %s", ErrBadValue, text)
	case e.DataOnly && (e.On != OnSuccess || e.Label != "" && to != c.end):
		c.ofEdge(i, "DataOnly", "%w: a data-only edge cannot have a Label, or an On other than success", ErrBadEdge)
	case e.On != OnSuccess && e.Label != "" && to != c.end:
		c.ofEdge(i, "On", "%w: an edge with a Label cannot have an On other than success", ErrBadEdge)
	case e.On == OnFailure && source.Kind == KindTrigger:
		c.ofEdge(i, "On", "%w: a trigger cannot fail, so an edge from it cannot wait for failure", ErrBadEdge)
	case len(e.Causes) > 0 && e.On != OnFailure:
		c.ofEdge(i, "Causes", "%w: Causes belong on an edge that waits for failure", ErrBadEdge)
	case e.Label != "" && to != c.end && !isRouter(source):
		c.ofEdge(i, "Label", "%w: the edge has the label %s, but the output of %s is not a label (set Routes, or kind %q)",
			ErrBadEdge, quoteID(e.Label), quoteID(e.from), KindCondition)
	}
	for _, k := range e.Causes {
		if k == CauseNone || k >= causeCount {
			c.ofEdge(i, "Causes", "%w: Causes contains %v, with which no node fails", ErrBadValue, k)
		}
	}
	if e.Merge != "" && !c.knownMerge(e.Merge) {
		c.ofEdge(i, "Merge", "%w: no merge strategy %s%s", ErrBadValue, quoteID(e.Merge), c.instead(e.Merge, c.mergeNames))
	}
	if outputs := source.Outputs; e.On != OnFailure && len(outputs) > 0 && !c.portsOf(from).has(e.Key) {
		c.ofEdge(i, "Key", "%w: the Key %s names none of the Outputs of %s%s", ErrBadEdge, quoteID(e.Key), quoteID(e.from), c.instead(e.Key, func() []string { return outputs }))
	}
	switch e.On {
	case OnFailure:
		r.Flags |= machine.EdgeFailure
	case OnAlways:
		r.Flags |= machine.EdgeAlways
	}
	// A label on an edge into the end node names a branch, as on any other edge. But the label is ignored if the output of the source is not a label,
	// if the edge is data-only, or if the edge does not wait for success.
	if e.Label != "" && (to != c.end || e.On == OnSuccess && !e.DataOnly && isRouter(source)) {
		r.Flags |= machine.EdgeLabelled
	}
	if e.DataOnly {
		r.Flags |= machine.EdgeData
	}
}

// duplicateEdges reports edges that are declared twice. Several edges between two nodes are allowed if they differ in parameter, key, label or
// outcome.
func (c *compiler) duplicateEdges() {
	type key struct {
		from              machine.Ref
		param, key, label string
		on                On
	}
	for to := range c.g.nodes {
		if !c.b.IsParallel(to) { // without parallel edges, the map is not needed
			continue
		}
		row := c.b.Row(to)
		seen := make(map[key]bool, len(row))
		for _, i := range row {
			e, t := c.b.At(i), c.termsOf(i)
			k := key{e.From, t.Param, t.Key, t.Label, t.On}
			if seen[k] {
				c.add("%w: %s -> %s", ErrDuplicateEdge, quoteID(c.names[e.From]), quoteID(c.names[to])).Edge = c.declaredEdge(i) + 1
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

// mergeNames returns the names of the merge strategies.
func (c *compiler) mergeNames() []string {
	return append([]string{MergeLast, MergeConcat, MergeArray, MergeObject}, c.g.Merges()...)
}

// nodeInstead returns the hint for an unknown node id: it calls the method `instead` with the ids of the graph.
func (c *compiler) nodeInstead(id string) hint {
	return c.instead(id, func() []string { return c.names[:min(len(c.names), maxListed)] })
}

// checkNode validates the fields of a node.
func (c *compiler) checkNode(i int) {
	n := c.g.nodes[i]
	bad := func(kind error, field, format string, args ...any) {
		c.ofNode(n.ID, field, "%w: "+format, append([]any{kind}, args...)...)
	}
	if n.SkipMode >= skipModeCount || n.OnUpstreamFailure >= upstreamCount || n.Handling >= handlingCount || n.GuardErrors >= guardCount ||
		n.NoMatch >= noMatchCount || n.Moderation >= moderationCount {
		c.broken = true
		text, _ := wrong(enumField{"SkipMode", int(n.SkipMode), skipModeNames}, enumField{"OnUpstreamFailure", int(n.OnUpstreamFailure), upstreamNames},
			enumField{"Handling", int(n.Handling), handlingNames.Names()}, enumField{"GuardErrors", int(n.GuardErrors), guardNames.Names()},
			enumField{"NoMatch", int(n.NoMatch), noMatchNames.Names()}, enumField{"Moderation", int(n.Moderation), moderationNames.Names()})
		bad(ErrBadValue, "", "%s", text)
	}
	negative := func(name string, d time.Duration) {
		if d < 0 {
			bad(ErrBadValue, name, "%s %v is negative", name, d)
		}
	}
	if n.Timeout != NoTimeout {
		negative("Timeout", n.Timeout)
	}
	negative("OverallTimeout", n.OverallTimeout)
	negative("Estimate", n.Estimate)
	if field, err := n.Retry.validate(); err != nil {
		c.ofNode(n.ID, "Retry."+field, "%w", err)
	}
	if n.Do != nil && (n.Test != nil || n.TestExpr != "") {
		bad(ErrBadValue, "Test", "it has both a Do and a Test")
	}
	if n.Test != nil && n.TestExpr != "" {
		bad(ErrBadValue, "TestExpr", "it has both a Test and a TestExpr")
	}
	if n.When != nil && n.WhenExpr != "" {
		bad(ErrBadValue, "WhenExpr", "it has both a When and a WhenExpr")
	}
	c.checkGate(n, bad)
	c.checkKey(n, bad)
	c.checkCompensation(i, bad)
	switch {
	case len(n.Choices) > 0 && isGate(n):
		bad(ErrBadValue, "Choices", "a gate declares its choices in Gate.Choices")
	case len(n.Choices) > 0 && !isRouter(n):
		bad(ErrBadValue, "Choices", "it has Choices, but its output is not a label (set Routes, or kind %q)", KindCondition)
	}
	if text := badChoices(n.Choices); text != "" {
		bad(ErrBadValue, "Choices", "%s", text)
	}
	if n.Memo != "" && (n.Test != nil || n.TestExpr != "" || n.Kind == KindTrigger || n.Kind == KindEnd || isGate(n)) {
		bad(ErrBadValue, "Memo", "Memo is for steps, maps, sub-graphs and loops: the outputs of conditions with a Test, of gates, triggers and the end node depend on more than inputs")
	}
	for i, name := range n.Files {
		switch {
		case name == "":
			bad(ErrBadValue, fmt.Sprintf("Files[%d]", i), "a file without a name")
		case slices.Contains(n.Files[:i], name):
			bad(ErrBadValue, fmt.Sprintf("Files[%d]", i), "file %s is named twice", quoteID(name))
		}
	}
	if n.Memo == "" && len(n.Files) > 0 {
		bad(ErrBadValue, "Files", "it has Files but no Memo: Files are a part of the key of a memoized output")
	}
	if n.Memo == "" && (n.MemoName != "" || n.MemoKey != nil) {
		bad(ErrBadValue, "Memo", "it has a MemoName or a MemoKey but no Memo: without a version its output is not kept")
	}
	if isGate(n) && (n.InputSchema != nil || n.OutputSchema != nil || n.Moderation != ModerateNone) {
		bad(ErrBadValue, "", "a gate has no step, so it cannot have an InputSchema, an OutputSchema or a Moderation; Gate.Schema checks the answer")
	}
	if n.composite() {
		c.checkComposite(i, bad)
	}
	if n.Kind == KindTrigger {
		checkTrigger(n, bad)
	}
	if n.Merge != "" && !c.knownMerge(n.Merge) {
		bad(ErrBadValue, "Merge", "no merge strategy %s%s", quoteID(n.Merge), c.instead(n.Merge, c.mergeNames))
	}
	if len(n.Ports) > 0 {
		names := make([]string, len(n.Ports))
		for i := range n.Ports {
			names[i] = n.Ports[i].Name
		}
		checkNames("port", "Ports", names, bad)
	}
	checkNames("output", "Outputs", n.Outputs, bad)
	switch {
	case !n.Join.Valid():
		c.broken = true
		bad(ErrBadJoin, "Join", "%v", n.Join)
	case int32(i) == c.end:
		if n.Join != joinDefault || n.When != nil || n.WhenExpr != "" || n.Disabled || n.Test != nil || n.TestExpr != "" || n.Routes || n.OnUpstreamFailure != upstreamDefault ||
			n.SkipMode != skipModeDefault {
			bad(ErrBadEnd, "", "the end node cannot have a Join, When, WhenExpr, Test, TestExpr, Routes, OnUpstreamFailure or SkipMode, and cannot be Disabled")
		}
	case n.Join.Rule() == machine.RuleAtLeast && (n.Join.Least() < 1 || n.Join.Least() > c.controlEdges(i) && !c.isPruned):
		bad(ErrBadJoin, "Join", "%v, but the node has %d control edges", n.Join, c.controlEdges(i))
	case n.Cleanup && n.Join != joinDefault && n.Join != AllDone:
		bad(ErrBadJoin, "Join", "a cleanup node joins by all_done, not by %v", n.Join)
	}
}

// controlEdges returns the number of in-edges that the join rule of a node counts.
func (c *compiler) controlEdges(i int) (n int) {
	for _, e := range c.b.Row(i) {
		if !c.termsOf(e).DataOnly {
			n++
		}
	}
	return n
}

// checkNames reports names that are empty or already used.
func checkNames(what, field string, names []string, bad report) {
	if len(names) == 0 {
		return
	}
	seen := make(map[string]bool, len(names))
	for i, name := range names {
		if text, is := named(what, i+1, name, seen[name]); is {
			bad(ErrBadValue, fmt.Sprintf("%s[%d]", field, i), "%s", text)
		}
		seen[name] = true
	}
}

// The method `levels` computes the Kahn tiers, or reports the cycles.
func (c *compiler) levels() {
	for _, cycle := range c.b.Levels() {
		c.broken = true
		nodes := make([]string, len(cycle))
		for i, e := range cycle {
			nodes[i] = c.names[c.b.At(e).From]
		}
		p := c.add("%w", cycleError(nodes))
		p.Edge, p.Cycle = c.declaredEdge(cycle[len(cycle)-1])+1, nodes
	}
}

// checkGate validates the field Gate of a node, and reports fields that a gate must not have.
func (c *compiler) checkGate(n *node, bad report) {
	switch {
	case !isGate(n):
		if n.Gate != nil {
			bad(ErrBadValue, "Gate", "Gate belongs on a node of kind %q without a Do", KindGate)
		}
		return
	case n.Timeout != 0 || n.OverallTimeout != 0 || n.Fallback != nil || !n.Retry.isZero() || n.Cleanup:
		bad(ErrBadValue, "", "a gate has no attempts: Timeout, OverallTimeout, Retry, Fallback and Cleanup are not for it; see Gate.Timeout")
	}
	if n.Gate != nil {
		switch {
		case n.Gate.Timeout < 0:
			bad(ErrBadValue, "Gate.Timeout", "Gate.Timeout %v is negative", n.Gate.Timeout)
		case lacksUnit(n.Gate.Timeout):
			bad(ErrBadValue, "Gate.Timeout", "Gate.Timeout %v: is its unit missing?", n.Gate.Timeout)
		case n.Gate.Timeout == 0 && n.Gate.OnTimeout == GateLabel:
			bad(ErrBadValue, "Gate.OnTimeout", "Gate.OnTimeout %v without a Gate.Timeout: the gate would wait forever", GateLabel)
		}
		if text, is := wrong(enumField{"Gate.OnTimeout", int(n.Gate.OnTimeout), gateTimeoutNames.Names()}); is {
			bad(ErrBadValue, "Gate.OnTimeout", "%s", text)
		}
		if text := badChoices(n.Gate.Choices); text != "" {
			bad(ErrBadValue, "Gate.Choices", "Gate.%s", text)
		}
	}
}

// checkCompensation validates the fields about compensation.
func (c *compiler) checkCompensation(i int, bad report) {
	n := c.g.nodes[i]
	x := n.Undo
	if x == nil {
		return
	}
	field := "Compensate"
	switch {
	case x.do == nil && x.by == nil:
		if field = "CompensateRetry"; x.retry.isZero() {
			field = "CompensateTimeout"
		}
		bad(ErrBadValue, field, "%s needs a compensation, and the node has none", field)
	case x.do != nil && x.by != nil:
		bad(ErrBadValue, field, "it has both a Compensate and a CompensateBy")
	case x.by != nil:
		if field = "CompensateBy"; x.by.Kind == "" {
			bad(ErrBadValue, "CompensateBy.Kind", "CompensateBy has no Kind, by which the step function chooses what to do")
		}
	}
	for _, of := range []struct {
		is   bool
		what string
	}{
		{int32(i) == c.end, "the end node"}, {n.Cleanup, "a cleanup node"}, {isGate(n), "a gate"}, {n.Kind == KindTrigger, "a trigger"},
		{n.Test != nil || n.TestExpr != "" || n.Kind == KindCondition, "a condition"},
	} {
		if of.is {
			bad(ErrBadValue, field, "%s is never undone, so it cannot have a compensation", of.what)
			break
		}
	}
	if text, err := x.retry.validate(); err != nil {
		c.ofNode(n.ID, "CompensateRetry."+text, "%w", err)
	}
	if x.timeout < 0 {
		bad(ErrBadValue, "CompensateTimeout", "CompensateTimeout %v is negative", x.timeout)
	}
}

// schedule orders the nodes by priority. Nodes of equal priority are ordered by their longest remaining paths.
func (c *compiler) schedule() {
	var priorities []int
	if c.has.priority {
		priorities = make([]int, len(c.p.nodes))
		for r, n := range c.p.nodes {
			priorities[r] = n.Priority
		}
	}
	c.b.OrderBy(func(r machine.Ref) int64 {
		if c.has.estimate {
			return int64(c.p.node(r).Estimate)
		}
		return 1
	}, priorities)
}

// Problem is a problem in a [GraphError], or a warning of a plan, with its place in the graph. It unwraps to Err, which matches an error such as
// [ErrBadJoin].
type Problem struct {
	// Graph is empty if the problem is in the outermost graph. For a problem in the Sub of a composite it is the path of the composite: ids
	// joined by slashes.
	Graph string
	// Node is the id of the node; in problems from [Mux.Check] it is the path of the node. It is empty if an edge or
	// the whole graph has the problem.
	Node string
	// Edge is the number of the edge in the Edges of its graph, counted from 1. Edge is 0 if the problem is not a problem
	// of an edge. For a cycle, it is the number of the edge that closes the cycle: of the cycle's edges, this edge has the
	// highest number.
	Edge int
	// Field is the Go field of the node, the edge or the graph, such as "Join", "Gate.Timeout" or "Groups[2].Limit". It is empty if
	// several fields together have the problem. Indices in Field begin at 0.
	Field string
	// Suggestion is the existing name that the author probably meant, or empty.
	Suggestion string
	// Cycle lists the nodes of a cycle. Each node is followed by its successor, and the last node by the first. Cycle is nil if the problem is
	// not a cycle of edges. If Cycle is not nil, Err matches [ErrCycle].
	Cycle []string
	// Err is the error without the names of graph, node and edge.
	Err error

	owner string // the beginning of Error's text, such as `edge "x" -> "y": `, if the compiler found the problem
	group string // the group's name, in the warning that a group has no effect unless [Shared] bounds it
}

// Error names the node or the edge. If the graph is not the outermost graph, Error also names the graph.
func (p *Problem) Error() string {
	text := p.owner
	switch {
	case text != "":
	case p.Node != "":
		text = "node " + quoteID(p.Node) + ": "
	case p.Edge > 0:
		text = fmt.Sprintf("edge %d: ", p.Edge)
	}
	if p.Graph != "" {
		text = "in " + quoteID(p.Graph) + ": " + text
	}
	if p.Err == nil {
		return text
	}
	return text + p.Err.Error()
}

// Unwrap returns Err.
func (p *Problem) Unwrap() error { return p.Err }

// insideOf returns a problem inside a composite as a problem of the graph that contains the composite. id is the id of the composite.
func insideOf(id string, err error) error {
	p, ok := err.(*Problem)
	if !ok {
		return fmt.Errorf("in %s: %w", quoteID(id), err)
	}
	inner := *p
	if inner.Graph = id; p.Graph != "" {
		inner.Graph += "/" + p.Graph
	}
	return &inner
}

// A report is a function that adds a problem in a field of a node.
type report func(kind error, field, format string, args ...any)

// problems collects the problems of a graph: the first maxProblems, and the number of further problems.
type problems struct {
	graph string
	list  []error
	more  int
}

const maxProblems = 100

// newProblem returns a problem with a message. A hint among args becomes the Suggestion.
func newProblem(format string, args ...any) *Problem {
	p := &Problem{Err: fmt.Errorf(format, args...)}
	for _, arg := range args {
		if h, ok := arg.(hint); ok {
			p.Suggestion = h.meant
		}
	}
	return p
}

// problemOf is like newProblem, for a problem of a node.
func problemOf(node, field, format string, args ...any) *Problem {
	p := newProblem(format, args...)
	p.Node, p.Field, p.owner = node, field, "node "+quoteID(node)+": "
	return p
}

// add adds a problem of the whole graph. ofNode adds a problem of a node. Both return the problem, so that the caller can add details.
func (ps *problems) add(format string, args ...any) *Problem {
	p := newProblem(format, args...)
	ps.keep(p)
	return p
}

func (ps *problems) ofNode(id, field, format string, args ...any) *Problem {
	p := problemOf(id, field, format, args...)
	ps.keep(p)
	return p
}

// warn adds a warning to the plan: p describes something that is valid but probably a mistake.
func (c *compiler) warn(p *Problem) { c.p.rare().warnings = append(c.p.rare().warnings, p) }

// ofEdge adds a problem of an edge. i is the edge's declaration index.
func (c *compiler) ofEdge(i int, field, format string, args ...any) *Problem {
	p := newProblem(format, args...)
	p.Edge, p.Field, p.owner = i+1, field, "edge "+c.g.edges[i].name()+": "
	c.keep(p)
	return p
}

func (ps *problems) count() int { return len(ps.list) + ps.more }

func (ps *problems) keep(err error) {
	if len(ps.list) == maxProblems {
		ps.more++
		return
	}
	ps.list = append(ps.list, err)
}

// The method `inside` adds the problems in the sub-graph of a node. id is the id of the node, and err is the error from compiling the sub-graph, or
// nil.
func (ps *problems) inside(id string, err error) {
	if sub, ok := err.(*GraphError); ok {
		for _, p := range sub.Problems {
			ps.keep(insideOf(id, p))
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

// hint is the end of a message about an unknown name, and the name that was probably meant.
type hint struct{ text, meant string }

func (h hint) String() string { return h.text }

// The method `instead` returns the hint for a problem about an unknown name. It gets the text from the function `instead`. If the list of
// problems is full, it returns an empty hint and does not call the function `choices`.
func (ps *problems) instead(written string, choices func() []string) hint {
	if len(ps.list) == maxProblems {
		return hint{}
	}
	names := choices()
	meant, _ := nearest.Name(written, names)
	return hint{instead(written, names), meant}
}

// mostLikely calls didYouMean. If the list of problems is full, it returns an empty hint instead, since comparing many names with many choices
// takes long.
func (ps *problems) mostLikely(written string, choices []string) hint {
	if len(ps.list) == maxProblems {
		return hint{}
	}
	return ps.didYouMean(written, choices)
}

// The method `didYouMean` returns the hint for a problem about an unknown name. It gets the text from the function `didYouMean`.
func (ps *problems) didYouMean(written string, choices []string) hint {
	meant, _ := nearest.Name(written, choices)
	return hint{didYouMean(written, choices), meant}
}

// These texts are parts of the keys under which a store keeps records. checkIDs rejects ids that end with undoMark or contain tryMark.
const (
	undoMark = "#undo" // ends the key of the record of a compensation
	tryMark  = "#try"  // precedes the number of an attempt
)

// checkIDs reports ids that look like the path of a node inside a composite, or like the key of another record in a store.
func (c *compiler) checkIDs() {
	for _, id := range c.names {
		switch {
		case strings.HasSuffix(id, undoMark):
			c.ofNode(id, "ID", "%w: the id ends with %q, which marks the record of a compensation in a store", ErrBadValue, undoMark)
		case strings.Contains(id, tryMark):
			c.ofNode(id, "ID", "%w: the id contains %q, which precedes the number of an attempt in a store", ErrBadValue, tryMark)
		}
	}
	if !c.has.composite {
		return
	}
	longest := 0 // the length of the longest id of a composite
	for i, n := range c.g.nodes {
		if n.composite() {
			longest = max(longest, len(c.names[i]))
		}
	}
	for _, id := range c.names {
		for end, sep := range id[:min(len(id), longest+1)] {
			if !strings.ContainsRune("/[#", sep) {
				continue
			}
			if at, ok := c.find(id[:end]); ok && c.g.nodes[at].composite() {
				c.ofNode(id, "ID", "%w: the id looks like the path of a node inside %s", ErrBadValue, quoteID(id[:end]))
			}
		}
	}
}
