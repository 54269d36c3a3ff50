package kahn

import (
	"slices"
	"strings"
	"time"

	"github.com/seed-c794f7ef/kahn/machine"
)

// A composite is a node that consists of other nodes: a sub-graph (Node.Sub), a map (Node.Map) or a loop (Node.Loop). It is
// performed by runs nested in its own run, see run_nested.go, and holds no slot: the nodes that it consists of do.

// maxNesting bounds how deep sub-graphs may be nested: deeper than any graph in practice, and shallow enough for the few
// functions that follow the nesting by recursion.
const maxNesting = 100

// composite reports whether the node is performed by nested runs.
func (n *node) composite() bool { return n.Sub != nil || n.Map != nil || n.Loop != nil }

// ownStep reports whether the node is performed, once or for each item, by a Do or the host's step function.
func (n *node) ownStep() bool {
	return n.Sub == nil && n.Loop == nil && n.Test == nil && n.Kind != KindTrigger && (n.Kind != KindGate || n.Do != nil)
}

// nesting compiles a graph together with the sub-graphs of its nodes. A graph that is used more than once is compiled once.
type nesting struct {
	within []*Graph              // being compiled: each is a sub-graph of the one before
	plans  map[nestedKey]*Plan   // nil for a graph that does not compile; its problems have been reported
	top    *force                // of the outermost graph
	forces map[forceKey][]*force // all distinct ones so far
	seen   []compiledGraph

	outermost [1]*Graph // the memory of within for a graph without sub-graphs
}

// compileAll compiles a graph and all that it contains.
func (n *nesting) compileAll(g *Graph) (*Plan, error) {
	p, ps := n.compile(g, nil)
	if err := ps.err(); err != nil {
		return nil, err
	}
	return p, nil
}

// nestedKey identifies the plan of a sub-graph: the graph, and the settings of the graphs around it.
type nestedKey struct {
	g     *Graph
	outer *force
}

// compiledGraph is the version of a graph that was compiled, to tell whether the graph has changed since.
type compiledGraph struct {
	g       *Graph
	version uint64
	baked   settings
}

func (x *compiledGraph) changed() bool {
	return x.g.version != x.version || !x.baked.of(x.g)
}

// force holds the settings that a graph inherits from the graphs around it where it has none itself.
type force struct {
	Defaults
	evaluator Evaluator
	schemas   SchemaCompiler
}

// inForce returns the settings that apply to a graph that is compiled within others.
func (n *nesting) inForce(g *Graph, outer *force) *force {
	f := force{g.Defaults, g.Evaluator, g.Schemas}
	if outer != nil {
		f.Defaults = f.Defaults.or(&outer.Defaults)
		if isNull(f.evaluator) {
			f.evaluator = outer.evaluator
		}
		if isNull(f.schemas) {
			f.schemas = outer.schemas
		}
	}
	if n.top == nil {
		n.top = &f
	}
	if n.top == &f || n.top.same(&f) {
		return n.top
	}
	key := f.key()
	for _, known := range n.forces[key] {
		if known.same(&f) {
			return known
		}
	}
	if n.forces == nil {
		n.forces = map[forceKey][]*force{}
	}
	n.forces[key] = append(n.forces[key], &f)
	return &f
}

func (f *force) same(o *force) bool {
	return sameDefaults(f.Defaults, o.Defaults) && same(f.evaluator, o.evaluator) && same(f.schemas, o.schemas)
}

// forceKey is the part of a force that can be compared: few forces share one.
type forceKey struct {
	skipMode          SkipMode
	onUpstreamFailure UpstreamPolicy
	guardErrors       GuardPolicy
	timeout           time.Duration
	attempts          int
	initial, longest  time.Duration
	multiplier        float64
	retryOn           machine.CauseSet
}

func (f *force) key() forceKey {
	k := forceKey{
		f.SkipMode, f.OnUpstreamFailure, f.GuardErrors, f.Timeout,
		f.Retry.MaxAttempts, f.Retry.InitialDelay, f.Retry.MaxDelay, f.Retry.Multiplier, 0,
	}
	for _, cause := range f.Retry.RetryOn {
		k.retryOn |= 1 << (cause % 64)
	}
	return k
}

// sub compiles the sub-graph of node i.
func (c *compiler) sub(i int) {
	node := c.g.nodes[i]
	g, n := node.Sub, c.nesting
	switch {
	case slices.Contains(n.within, g):
		c.ofNode(node.ID, "Sub", "%w: its graph contains itself", ErrCycle)
		return
	case len(n.within) > maxNesting:
		c.ofNode(node.ID, "Sub", "%w: graphs are nested more than %d deep", ErrBadValue, maxNesting)
		return
	}
	key := nestedKey{g, c.force}
	p, known := n.plans[key]
	if !known {
		n.seen = append(n.seen, compiledGraph{g, g.version, g.settings()})
		var ps *problems
		p, ps = n.compile(g, c.force)
		c.inside(node.ID, ps.err())
		if n.plans == nil {
			n.plans = map[nestedKey]*Plan{}
		}
		n.plans[key] = p
	}
	if c.subs == nil {
		c.subs = map[int32]*Plan{}
	}
	c.subs[int32(i)] = p
}

// checkComposite validates the fields that make a node a composite.
func (c *compiler) checkComposite(i int, bad report) {
	n := c.g.nodes[i]
	switch {
	case n.Kind == KindEnd:
		bad(ErrBadEnd, "", "the end node cannot be a composite")
	case n.Test != nil || n.TestExpr != "":
		bad(ErrBadValue, "", "a composite has no Test")
	case n.Sub != nil && n.Do != nil:
		bad(ErrBadValue, "Sub", "it has both a Do and a Sub")
	}
	if n.Map != nil {
		n.Map.check(n, bad)
	}
	if n.Loop != nil {
		n.Loop.check(n, bad)
	}
	if n.InputSchema != nil || n.Moderation.covers(PhaseInput) {
		bad(ErrBadValue, "", "the inputs of a composite are judged by the nodes that it consists of")
	}
	if n.Sub != nil {
		c.sub(i)
	}
}

// checkPaths refuses ids that could be taken for the path of a node inside a composite.
func (c *compiler) checkPaths() {
	if !c.has.composite {
		return
	}
	longest := 0 // of the ids of composites
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
				c.ofNode(id, "ID", "%w: it could be taken for a node inside %s", ErrBadValue, quoteID(id[:end]))
			}
		}
	}
}

// nest connects the plan to the plans of its sub-graphs, and checks that the composites provide what these need from outside.
func (c *compiler) nest() {
	p := c.p
	if p.composite = c.has.composite; !p.composite {
		return
	}
	for _, r := range p.declared {
		n := p.node(r)
		if !n.composite() {
			continue
		}
		if n.Loop != nil {
			c.nestLoop(r)
		}
		if n.Map != nil {
			c.checkOver(r)
			c.nestItems(r)
		}
		sub := c.subs[p.decl[r]]
		if sub == nil {
			continue // a map of steps
		}
		if p.subs == nil {
			p.subs = map[Ref]*Plan{}
		}
		p.subs[r] = sub
		for _, warning := range sub.warnings {
			p.warnings = append(p.warnings, insideOf(n.ID, warning))
		}
		if len(sub.stepless) > 0 && !n.Disabled {
			p.stepless = append(p.stepless, r)
		}
		if len(sub.moderated) > 0 && !n.Disabled {
			p.moderated = append(p.moderated, r)
		}
		if !c.isItem {
			c.checkInputsOf(r, sub)
		}
	}
}

// nestItems compiles the plan of an item of a map.
func (c *compiler) nestItems(r Ref) {
	p := c.p
	item := &Graph{Name: c.g.Name, nodes: []*node{itemNode(c.g.nodes[p.decl[r]])}}
	plan, ps := c.nesting.compileItem(item, c.force)
	for _, err := range ps.list {
		c.keep(err)
	}
	if p.items == nil {
		p.items = map[Ref]*Plan{}
	}
	if p.items[r] = plan; plan != nil {
		plan.itemOf = p.names[r]
	}
}

// nestGroups checks that every group named in a nested graph is declared by this graph or by one around it.
func (c *compiler) nestGroups(declared map[string]int32) {
	p := c.p
	if !p.composite {
		return
	}
	lacked := make(map[string]bool, len(p.lacks))
	for _, name := range p.lacks {
		lacked[name] = true
	}
	for _, r := range p.declared {
		n := p.node(r)
		inner := p.subs[r]
		if n.Map != nil {
			inner = p.items[r]
		}
		if inner == nil {
			continue
		}
		for _, name := range inner.lacks {
			if p.naming == nil {
				p.naming = map[string][]Ref{}
			}
			p.naming[name] = append(p.naming[name], r)
			switch _, ok := declared[name]; {
			case ok || slices.Contains(n.Groups, name) || lacked[name]:
			case len(c.within) > 1:
				lacked[name] = true
				p.lacks = append(p.lacks, name)
			default:
				c.ofNode(n.ID, "Sub", "%w: group %s, which its graph names, is not declared%s", ErrBadValue, quoteID(name), c.instead(name, c.groupNames))
			}
		}
	}
	for _, composites := range p.naming {
		slices.Sort(composites)
	}
}

const untilField = "Loop.UntilExpr"

// parseUntil reads the text that ends a loop, if the node is one and has one.
func (c *compiler) parseUntil(n *node) Expression {
	if n.Loop == nil || n.Loop.UntilExpr == "" {
		return nil
	}
	until, err := c.parse(n, untilField, n.Loop.UntilExpr)
	if err != nil {
		c.keep(err)
	}
	return until
}

// checkUntil runs the Checker of the text that ends a loop. It sees all nodes of the loop's graph.
func (c *compiler) checkUntil(r Ref, l *lowered) {
	sub := c.subs[c.p.decl[r]]
	if checker, ok := l.until.(Checker); ok && sub != nil {
		c.checkText(c.p.node(r), fieldChecker{untilField, checker, false}, sub.ancestor(everyNode), sub.notInput)
	}
}

func (c *compiler) nestLoop(r Ref) {
	p := c.p
	var until Expression
	if l := c.lowered[p.decl[r]]; l != nil {
		until = l.until
	}
	if p.loops == nil {
		p.loops = map[Ref]func(View) (bool, error){}
	}
	p.loops[r] = p.node(r).Loop.again(until)
}

// instanceInput reports whether the composite gives each of its runs an input of this name.
func (n *node) instanceInput(name string) bool {
	return n.Map != nil && (name == inputItem || name == inputIndex) ||
		n.Loop != nil && (name == inputIteration || name == inputPrevious)
}
