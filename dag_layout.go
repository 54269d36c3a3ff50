package kahn

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/machine"
)

// The method `number` gives the nodes their Refs, by tier and then by declaration, and applies the defaults. Afterwards edges name nodes by Ref.
func (c *compiler) number() {
	n := len(c.g.nodes)
	p := &c.block.Plan // set field by field, since for a literal Go would allocate twice
	p.name, p.inputs, p.inputIndex, p.nodes, p.terms = c.g.Name, c.inputs, c.inputIndex, make([]*node, n), c.terms
	p.shared, p.planRare, p.force, p.index = &c.block.own, &plainPlan, c.force, c.index
	if len(c.g.merges) > 0 {
		p.rare().merges = c.g.Merges()
	}
	c.p, c.n = p, &p.net
	p.stepless = c.b.Number(c.n, c.names)
	p.names, p.declared, p.decl, p.end = c.n.Numbering()
	for i, r := range p.declared {
		p.nodes[r] = c.g.nodes[i]
		p.longest = max(p.longest, len(c.names[i]))
	}
	if c.has.slash {
		for _, id := range p.names {
			if strings.Contains(id, "/") {
				p.rare().slashed = append(p.rare().slashed, id)
			}
		}
		slices.Sort(p.slashed)
	}
	// If p.declared is sorted, the Ref of each node equals its declaration index, and p.index stays as it is.
	if !slices.IsSorted(p.declared) {
		p.index.Move(func(i int) int { return int(p.declared[i]) })
	}
	for r, i := range p.decl {
		if l := c.lowered[i]; l != nil {
			l.install(c, machine.Ref(r))
		}
		c.resolve(machine.Ref(r))
	}
}

// warnOfNode warns of fields of a node that are valid but probably mistakes.
func (c *compiler) warnOfNode(n *node, r machine.Ref) {
	for _, t := range []struct {
		field string
		d     time.Duration
	}{{"Timeout", n.Timeout}, {"OverallTimeout", n.OverallTimeout}} {
		if lacksUnit(t.d) {
			c.warn(problemOf(n.ID, t.field, "%w: %s %v: is its unit missing?", ErrBadValue, t.field, t.d))
		}
	}
	for _, kind := range []string{KindGate, KindCondition, KindTrigger, KindEnd} {
		if n.Kind != kind && strings.EqualFold(n.Kind, kind) {
			c.warn(problemOf(n.ID, "Kind", "%w: Kind %s differs from %q in case, and has no meaning of its own", ErrBadValue, quoteID(n.Kind), kind))
		}
	}
	if n.Cleanup && len(c.p.names) > 1 && len(c.b.Row(int(c.p.decl[r]))) == 0 {
		c.warn(problemOf(n.ID, "Cleanup", "%w: a cleanup node that follows no node starts before the other nodes have ended", ErrBadValue))
	}
}

// resolve derives the machine.NodeSpec of a node from the node's fields and the graph's defaults.
func (c *compiler) resolve(r machine.Ref) {
	n, d := c.p.node(r), &c.force.Defaults
	f := machine.NodeSpec{Join: n.Join, Ports: len(n.Ports)}
	isEnd := r == c.p.end
	if f.Join == joinDefault {
		switch {
		case n.Cleanup || isEnd:
			f.Join = AllDone
		case n.Test != nil:
			f.Join = Boundary
		default:
			f.Join = AllSucceeded
		}
	}
	f.Skip = cmp.Or(n.SkipMode, d.SkipMode, SkipCascade)
	f.Upstream = cmp.Or(n.OnUpstreamFailure, d.OnUpstreamFailure, UpstreamAbort)
	c.warnOfNode(n, r)
	if !n.Retry.isZero() {
		c.warnOfRetry(n.ID, n.Retry)
		c.setRetry(r, n.Retry.withDefaults(), false)
	} else if !d.Retry.isZero() && n.ownStep() {
		c.setRetry(r, d.Retry.withDefaults(), true)
	}
	if n.Timeout == 0 && d.Timeout != 0 && n.ownStep() {
		c.own(r).Timeout = d.Timeout
	}
	n = c.p.node(r)
	c.p.undoes = c.p.undoes || n.Undo != nil
	var flags machine.Flags
	set := func(flag machine.Flags, on bool) {
		if on {
			flags |= flag
		}
	}
	gate, trigger, composite := isGate(n), n.Kind == KindTrigger, n.composite()
	set(machine.FlagObserver, n.Handling == Observes || n.Handling != Handles && n.observes(f.Join))
	set(machine.FlagTolerant, n.ContinueOnFail)
	set(machine.FlagCleanup, n.Cleanup || isEnd)
	set(machine.FlagGate, gate)
	set(machine.FlagInline, n.Test != nil || gate || composite || trigger)
	set(machine.FlagComposite, composite)
	set(machine.FlagCheck, n.When != nil || len(n.Ports) > 0 || n.Map != nil || n.KeyFrom != "")
	set(machine.FlagCritical, n.Critical)
	set(machine.FlagCancelLosers, n.CancelLosers)
	set(machine.FlagLateCancel, n.CancelOnLateFailure)
	set(factTimed, n.Timeout > 0 || n.OverallTimeout > 0 || n.Cleanup || isEnd)
	contracts := c.p.contracts[r]
	set(machine.FlagAdmit, contracts[event.PhaseInput] != nil || n.Moderation.covers(event.PhaseInput) || n.Memo != "" && n.Map == nil)
	set(factJudge, contracts[event.PhaseOutput] != nil || n.Moderation.covers(event.PhaseOutput))
	set(factOwn, n.Do != nil || n.Test != nil || flags&machine.FlagAdmit != 0 || trigger)
	set(machine.FlagPlain, flags&(machine.FlagInline|factTimed|machine.FlagAdmit|factJudge) == 0 && !isEnd)
	f.Flags = flags
	c.b.Rule(r, f)
	if n.Disabled {
		c.b.Disable(r)
	}
	if (n.Key != "" || n.KeyFrom != "" || n.Map != nil && n.Map.Key != nil) && !n.Disabled && c.p.keyed == nil {
		field := "Key"
		if n.KeyFrom != "" {
			field = "KeyFrom"
		}
		c.p.rare().keyed = problemOf(n.ID, field, "%w: its %s bounds nothing: the run has neither KeyLimit nor KeyRate", ErrBadOption, field)
	}
	if n.Memo != "" && !n.Disabled && c.p.memoized == nil {
		c.p.rare().memoized = problemOf(n.ID, "Memo", "%w: its Memo has no effect: the run does not have the option *Memo", ErrBadOption)
	}
	if n.Moderation != ModerateNone && !n.Disabled {
		c.p.rare().moderated = append(c.p.rare().moderated, r)
	}
	if trigger && c.p.prunes == nil && !c.isPruned {
		c.p.rare().prunes = &prunes{source: c.source(), force: c.force}
	}
	if (n.Do == nil && n.ownStep() || n.Undo != nil && n.Undo.by != nil) && !n.Disabled {
		c.p.stepless = append(c.p.stepless, r)
	}
}

// The method `observes` reports whether the node, with this join rule, only observes failures by default, that is, if its Handling is not set.
func (n *node) observes(join Join) bool {
	return n.Kind == KindEnd || n.Cleanup || join == AllDone || join == AllSkipped
}

// The method `branches` gives numbers to the labels of conditions, and registers the causes that catch edges accept.
func (c *compiler) branches() {
	p := c.p
	var late []machine.Ref // the sources of edges labelled "timeout"
	for i, t := range p.terms {
		if e := c.n.Edge(int32(i)); e.Flags&machine.EdgeFailure != 0 {
			c.b.Catch(int32(i), t.Causes)
		} else if e.Flags&machine.EdgeLabelled != 0 {
			router, first := c.b.Routed(e.From)
			if first {
				p.routers = append(p.routers, newRouter(p.node(e.From).Kind == KindGate))
			}
			c.b.Label(int32(i), p.routers[router].add(t.Label))
			if t.Label == timeoutLabel {
				late = append(late, e.From)
			}
		}
	}
	slices.Sort(late)
	for _, r := range slices.Compact(late) {
		if n := p.node(r); isGate(n) && n.Gate != nil && n.Gate.Timeout > 0 && n.Gate.OnTimeout == GateFail && len(n.declaredChoices()) == 0 {
			c.warn(problemOf(n.ID, "Gate.OnTimeout", "%w: when its timeout passes, the gate fails, so the edge labelled %q is never taken: set OnTimeout to %v", ErrBadValue, timeoutLabel, GateLabel))
		}
	}
	if !c.b.Lay() {
		c.add("%w: more than %d branches", ErrBadValue, machine.MostLabels)
	}
}

// groupNames returns the names of groups.
func groupNames(groups []Group) []string {
	names := make([]string, len(groups))
	for i := range groups {
		names[i] = groups[i].Name
	}
	return names
}

// checkGroups validates the groups of the graph.
func (c *compiler) checkGroups() {
	seen := make(map[string]bool, len(c.g.Groups))
	for i, g := range c.g.Groups {
		if text, is := named("group", i+1, g.Name, seen[g.Name]); is {
			c.add("Groups: %w: %s", ErrBadValue, text).Field = fmt.Sprintf("Groups[%d]", i)
		}
		seen[g.Name] = true
		if g.Limit < 0 {
			c.add("group %s: %w: Limit %d is negative", quoteID(g.Name), ErrBadValue, g.Limit).Field = fmt.Sprintf("Groups[%d].Limit", i)
		}
		if err := g.Rate.validate(); err != nil {
			c.add("group %s: %w", quoteID(g.Name), err).Field = fmt.Sprintf("Groups[%d].Rate", i)
		}
	}
}

// checkMembers reports groups that a node names twice. For the outermost graph it also reports undeclared groups that nodes at any depth name. A
// group is undeclared if neither the node's graph nor an enclosing graph declares it.
func (c *compiler) checkMembers() {
	for _, n := range c.g.nodes {
		seen := make(map[string]bool, len(n.Groups))
		for i, name := range n.Groups {
			if seen[name] {
				c.ofNode(n.ID, fmt.Sprintf("Groups[%d]", i), "%w: group %s is named twice", ErrBadValue, quoteID(name))
			}
			seen[name] = true
		}
	}
	if len(c.within) > 1 {
		return
	}
	for _, use := range undeclared(c.g, map[*Graph][]membership{}) {
		hint, mend := c.instead(use.name, func() []string {
			if use.g == c.g {
				return groupNames(c.g.Groups)
			}
			return append(groupNames(use.g.Groups), groupNames(c.g.Groups)...)
		}), ""
		if hint.meant == "" {
			mend = "; declare it in Groups"
		}
		p := problemOf(use.node, fmt.Sprintf("Groups[%d]", use.index), "%w: group %s is not declared%s%s", ErrBadValue, quoteID(use.name), hint, mend)
		p.Graph = use.path
		c.keep(p)
	}
}

// membership records that a node names a group.
type membership struct {
	// path is the path of the composite around the node, as seen from the graph that `undeclared` examines. It is empty if the node is in that graph
	// itself.
	path  string
	g     *Graph // the node's graph
	node  string
	index int // the index of the group in the node's Groups
	name  string
}

// The function `undeclared` returns the memberships in undeclared groups, for the nodes of g and of all graphs inside g. A group is undeclared
// if neither the node's graph nor an enclosing graph, up to g, declares it. Each membership appears once, with the first path to its node.
// known contains the results so far, by graph.
func undeclared(g *Graph, known map[*Graph][]membership) (list []membership) {
	if list, ok := known[g]; ok {
		return list
	}
	known[g] = nil // ends the recursion if g contains itself; another check reports this problem
	declared := make(map[string]bool, len(g.Groups))
	for i := range g.Groups {
		declared[g.Groups[i].Name] = true
	}
	type place struct {
		g     *Graph
		node  string
		index int
	}
	seen := map[place]bool{}
	add := func(use membership) {
		at := place{use.g, use.node, use.index}
		if !declared[use.name] && !seen[at] {
			seen[at] = true
			list = append(list, use)
		}
	}
	for _, n := range g.nodes {
		for i, name := range n.Groups {
			add(membership{g: g, node: n.ID, index: i, name: name})
		}
		if n.Sub == nil {
			continue
		}
		for _, use := range undeclared(n.Sub, known) {
			use.path = strings.TrimSuffix(n.ID+"/"+use.path, "/")
			add(use)
		}
	}
	known[g] = list
	return list
}

// The method `group` collects the members of groups and of keys.
func (c *compiler) group() {
	p := c.p
	if len(c.g.Groups) == 0 && !c.has.member && !p.composite {
		return
	}
	c.checkGroups()
	byName := make(map[string]int32, len(c.g.Groups))
	for i, g := range c.g.Groups {
		if g.Limit == 0 && g.Rate == (Rate{}) && !g.CancelOnFailure {
			w := newProblem("group %s: %w: the group has no effect unless Runner.Shared bounds it: it has no limit and no rate, and a failure in it does not stop its other nodes", quoteID(g.Name), ErrBadValue)
			w.Field, w.group = fmt.Sprintf("Groups[%d]", i), g.Name
			c.warn(w)
		}
		byName[g.Name] = int32(len(p.groups))
		p.rare().groups = append(p.rare().groups, group{Group: g})
	}
	byKey, late, wrong := map[string]int32{}, map[machine.Ref]int32(nil), false
	for _, r := range p.declared {
		n := p.node(r)
		if len(n.Groups) == 0 && n.Key == "" && n.KeyFrom == "" {
			continue
		}
		if c.member == nil {
			c.member = make([][]int32, len(p.names))
		}
		for _, name := range n.Groups {
			g, ok := byName[name]
			if !ok && len(c.within) > 1 {
				g, ok = int32(len(p.groups)), true
				byName[name] = g
				p.rare().groups = append(p.rare().groups, group{Group: Group{Name: name}, inherited: true})
				p.rare().lacks = append(p.rare().lacks, name)
			}
			if !ok || p.lastMember(g) == r { // checkMembers reports undeclared groups, and groups that are named twice
				wrong = true
				continue
			}
			c.join(r, g)
		}
		if n.KeyFrom != "" && n.Map == nil {
			if late == nil {
				late = map[machine.Ref]int32{}
			}
			late[r] = int32(len(p.groups))
			p.rare().groups = append(p.rare().groups, group{key: true})
			c.join(r, late[r])
		}
		if n.Key == "" {
			continue
		}
		g, ok := byKey[n.Key]
		if !ok {
			g = int32(len(p.groups))
			byKey[n.Key] = g
			p.rare().groups = append(p.rare().groups, group{Group: Group{Name: n.Key}, key: true})
		}
		c.join(r, g)
	}
	if len(byName) > 0 {
		p.rare().groupIndex = byName
	}
	c.n.SetGroups(c.member, p.bounds())
	if late != nil {
		c.n.SetLateKeys(late, byKey)
	}
	if c.nestGroups(byName) || wrong {
		c.checkMembers()
	}
}

// The method `bounds` returns the limits and rates of the groups.
func (p *Plan) bounds() []machine.Bound {
	bounds := make([]machine.Bound, len(p.groups))
	for i := range p.groups {
		g := &p.groups[i]
		bounds[i] = machine.Bound{Limit: g.Limit, Rate: g.Rate.count(), Key: g.key, Cancels: g.CancelOnFailure}
	}
	return bounds
}

func (c *compiler) join(r machine.Ref, g int32) {
	c.member[r] = append(c.member[r], g)
	c.p.groups[g].members = append(c.p.groups[g].members, r)
}

// lastMember returns the last node that was added to a group, or noRef.
func (p *Plan) lastMember(g int32) machine.Ref {
	members := p.groups[g].members
	if len(members) == 0 {
		return noRef
	}
	return members[len(members)-1]
}

// bindInputs groups the edges of each parameter, chooses their merge strategy, and finds required ports without a source. When bindInputs returns,
// the net is complete except for the order in which ready nodes start, and the groups. The methods `schedule` and `group` add these.
func (c *compiler) bindInputs() {
	p := c.p
	leaves := 0
	for r := range machine.Ref(len(p.names)) {
		in := c.inputsOf(r)
		if in != nil {
			if p.data == nil {
				p.data = make([]*inputs, len(p.names))
			}
			p.data[r] = in
			for i := range in.params {
				if in.params[i].strategy != MergeLast {
					c.b.Check(r)
				}
				port := in.ports[in.params[i].name]
				if port != nil && port.Required && c.n.Is(r, machine.FlagEarly) {
					for _, e := range in.params[i].edges {
						c.b.Port(e)
					}
				}
			}
		}
		if c.n.Is(r, machine.FlagCheck) { // a node with ports has a check
			n := p.node(r)
			for i := range n.Ports {
				c.bindPort(n, i, in)
			}
			c.checkEarly(r, in)
		}
		c.warnOfOutcomes(r)
		if c.n.IsLeaf(r) {
			leaves++
		}
	}
	p.leaves = make([]machine.Ref, 0, leaves)
	for _, r := range p.declared {
		if c.n.IsLeaf(r) {
			p.leaves = append(p.leaves, r)
		}
	}
	c.b.Finish()
}

// checkEarly warns of an early join that has no effect, because the node's required ports need the values of several predecessors.
func (c *compiler) checkEarly(r machine.Ref, in *inputs) {
	n := c.p.node(r)
	if in == nil || c.isPruned || !c.n.Is(r, machine.FlagEarly) {
		return
	}
	var from []string
	for i := range n.Ports {
		fed, _ := in.param(n.Ports[i].Name)
		if fed == nil || !n.Ports[i].Required {
			continue
		}
		for _, e := range fed.edges {
			if id := c.p.names[c.n.Source(e)]; !slices.Contains(from, id) {
				from = append(from, id)
			}
		}
	}
	if len(from) > 1 {
		c.warn(problemOf(n.ID, "Join", "%w: %v would let it run early, but %s feed its required ports, and it waits for all of them: join by %v to take what succeeded",
			ErrBadJoin, n.Join, quoteList(from), AllDoneMinOne))
	}
}

func (c *compiler) inputsOf(r machine.Ref) *inputs {
	p := c.p
	var in *inputs
	var byName map[string]int
	row := c.n.In(r)
	named := row
	if c.terms == nil {
		named = nil
	}
	for _, i := range named {
		e := p.termsOf(i)
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
	if in == nil && !c.n.Is(r, machine.FlagCheck) && len(row) <= manyParams {
		return nil
	}
	n := p.node(r)
	if in == nil {
		in = &inputs{}
	}
	if len(n.Ports) > 0 {
		in.ports = make(map[string]*Port, len(n.Ports))
	}
	for i := range n.Ports {
		in.ports[n.Ports[i].Name] = &n.Ports[i]
	}
	for i := range in.params {
		c.mergeGroup(n, &in.params[i])
	}
	if len(in.params) > manyParams {
		in.byName = byName
	}
	return in
}

// mergeGroup chooses the merge strategy for the edges of one parameter: the strategy that the edges name or, if they name none, the node's Merge. The
// default is MergeLast.
func (c *compiler) mergeGroup(n *node, g *param) {
	g.strategy = cmp.Or(n.Merge, MergeLast)
	explicit := ""
	labels := make(map[string]int, len(g.edges))
	for _, i := range g.edges {
		e := c.p.termsOf(i)
		labels[c.p.node(c.n.Source(i)).Label]++
		if e.Merge == "" {
			continue
		}
		if explicit != "" && explicit != e.Merge {
			c.ofNode(n.ID, "", "%w: parameter %s is merged by %s and by %s", ErrMergeConflict, quoteID(g.name), quoteID(explicit), quoteID(e.Merge)).Edge = int(i) + 1
			return
		}
		explicit, g.strategy = e.Merge, e.Merge
	}
	if len(g.edges) == 1 {
		g.strategy = MergeLast // a single edge needs no merge
		return
	}
	g.fn = c.g.merges[g.strategy]
	for _, i := range g.edges {
		source := c.p.node(c.n.Source(i))
		key := source.Label
		if key == "" || labels[key] > 1 {
			key = source.ID
		}
		g.keys = append(g.keys, key)
	}
}

func (c *compiler) bindPort(n *node, i int, in *inputs) {
	port := &n.Ports[i]
	if !port.Required || !isNull(port.Default) {
		return
	}
	if v, ok := n.Params[port.Name]; ok && !isNull(v) {
		return
	}
	if fed, _ := in.param(port.Name); fed != nil {
		return
	}
	if c.p.input(port.Name) != nil || c.isPruned {
		return
	}
	c.ofNode(n.ID, fmt.Sprintf("Ports[%d]", i), "%w: %s has neither an edge nor a static value, a default or a root input", ErrUnboundPort, quoteID(port.Name))
}

// A composite is a node that consists of other nodes: a sub-graph (Node.Sub), a map (Node.Map) or a loop (Node.Loop). Nested runs perform the
// nodes inside it, see run_nested.go. The nodes inside hold slots, and the composite itself holds none.

// maxNesting bounds how deep sub-graphs may be nested. Graphs in practice are nested less deeply, and 100 levels are few enough for the
// functions that recurse over the nesting.
const maxNesting = 100

// The method `composite` reports whether nested runs perform the node.
func (n *node) composite() bool { return n.Sub != nil || n.Map != nil || n.Loop != nil }

// ownStep reports whether a Do or the host's step function performs the node, once or for each item.
func (n *node) ownStep() bool {
	return n.Sub == nil && n.Loop == nil && n.Test == nil && n.Kind != KindTrigger && (n.Kind != KindGate || n.Do != nil)
}

// nesting compiles a graph together with the sub-graphs of its nodes. A graph that is used several times with the same inherited settings is
// compiled once.
type nesting struct {
	within []*Graph              // the graphs that are being compiled: each is a sub-graph of the previous graph
	plans  map[nestedKey]*Plan   // the plans of sub-graphs; nil for a sub-graph whose problems have been reported
	top    *force                // the settings of the outermost graph
	forces map[forceKey][]*force // the settings of all graphs compiled so far, without duplicates
	seen   []compiledGraph
	tried  force // the memory of inForce

	outermost [1]*Graph // the memory of the slice `within` while only one graph is being compiled
	first     compiler  // the memory of the first compiler
}

// compiler returns a compiler for graph g. outer contains the settings of the graph around g.
func (n *nesting) compiler(g *Graph, outer *force) *compiler {
	c := &n.first
	if c.g != nil {
		c = &compiler{}
	}
	c.g, c.nesting, c.graph = g, n, g.Name
	if n.top == nil {
		b := &struct {
			planBlock
			force force
		}{}
		c.block, n.top = &b.planBlock, &b.force
		n.inForce(n.top, g, outer)
		c.force = n.top
		return c
	}
	c.block, c.force = &planBlock{}, n.inForce(&n.tried, g, outer)
	return c
}

// compileAll compiles a graph and all graphs inside it.
func (n *nesting) compileAll(g *Graph) (*Plan, error) {
	p, ps := n.compile(g, nil)
	if err := ps.err(); err != nil {
		return nil, err
	}
	return p, nil
}

// nestedKey identifies the plan of a sub-graph: the graph and the settings that it inherits.
type nestedKey struct {
	g     *Graph
	outer *force
}

// compiledGraph records the version in which a graph was compiled, so that later changes of the graph can be detected.
type compiledGraph struct {
	g       *Graph
	version uint64
	baked   settings
}

func (x *compiledGraph) changed() bool {
	return x.g.version != x.version || !x.baked.of(x.g)
}

// force holds the settings that apply to a graph. A setting that the graph itself lacks comes from the enclosing graphs.
type force struct {
	Defaults
	evaluator evaluator
	schemas   schemaCompiler
}

// inForce determines the settings of graph g, and stores them in f. outer contains the settings of the graph around g. If an earlier result has
// equal settings, inForce returns that result. Otherwise it returns f or, if f is n.tried, a copy of f.
func (n *nesting) inForce(f *force, g *Graph, outer *force) *force {
	*f = force{g.Defaults, g.Evaluator, g.Schemas}
	if outer != nil {
		f.Defaults = f.Defaults.or(&outer.Defaults)
		if isNull(f.evaluator) {
			f.evaluator = outer.evaluator
		}
		if isNull(f.schemas) {
			f.schemas = outer.schemas
		}
	}
	if n.top == f || n.top.same(f) {
		return n.top
	}
	key := f.key()
	for _, known := range n.forces[key] {
		if known.same(f) {
			return known
		}
	}
	if n.forces == nil {
		n.forces = map[forceKey][]*force{}
	}
	if f == &n.tried {
		own := *f
		f = &own
	}
	n.forces[key] = append(n.forces[key], f)
	return f
}

func (f *force) same(o *force) bool {
	return sameDefaults(f.Defaults, o.Defaults) && same(f.evaluator, o.evaluator) && same(f.schemas, o.schemas)
}

// forceKey is the comparable part of a force. The map nesting.forces has a short list for each key, since few settings have equal keys.
type forceKey struct {
	skipMode          machine.SkipMode
	onUpstreamFailure machine.UpstreamPolicy
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

// checkComposite validates the fields of composites.
func (c *compiler) checkComposite(i int, bad report) {
	n := c.g.nodes[i]
	switch {
	case n.Kind == KindEnd:
		bad(ErrBadEnd, "", "the end node cannot be a composite")
	case n.Test != nil || n.TestExpr != "":
		bad(ErrBadValue, "", "a composite cannot have a Test or a TestExpr")
	case n.Sub != nil && n.Do != nil:
		bad(ErrBadValue, "Sub", "it has both a Do and a Sub")
	}
	if n.Map != nil {
		n.Map.check(n, bad)
	}
	if n.Loop != nil {
		n.Loop.check(n, bad)
	}
	if n.InputSchema != nil || n.Moderation.covers(event.PhaseInput) {
		bad(ErrBadValue, "", "a composite cannot have an InputSchema or a Moderation of inputs: set them on the nodes inside it")
	}
	if n.Sub != nil {
		c.sub(i)
	}
}

// nest connects the plan to the plans of its sub-graphs, and checks that the composites provide the inputs of their graphs.
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
			continue // the node is a map of steps, without a graph
		}
		if p.subs == nil {
			p.subs = map[machine.Ref]*Plan{}
		}
		p.subs[r] = sub
		p.undoes = p.undoes || sub.undoes
		for _, warning := range sub.warnings {
			p.rare().warnings = append(p.rare().warnings, insideOf(n.ID, warning))
		}
		if p.keyed == nil && sub.keyed != nil && !n.Disabled {
			p.rare().keyed = insideOf(n.ID, sub.keyed)
		}
		if p.memoized == nil && sub.memoized != nil && !n.Disabled {
			p.rare().memoized = insideOf(n.ID, sub.memoized)
		}
		// A node with CompensateBy is already in p.stepless.
		if len(sub.stepless) > 0 && !n.Disabled && (n.Undo == nil || n.Undo.by == nil) {
			p.stepless = append(p.stepless, r)
		}
		if len(sub.moderated) > 0 && !n.Disabled {
			p.rare().moderated = append(p.rare().moderated, r)
		}
		if !c.isItem {
			c.checkInputsOf(r, sub)
		}
	}
}

// nestItems compiles the plan that a map performs for each item.
func (c *compiler) nestItems(r machine.Ref) {
	p := c.p
	item := &Graph{Name: c.g.Name, nodes: []*node{itemNode(c.g.nodes[p.decl[r]])}}
	plan, ps := c.nesting.compileItem(item, c.force)
	for _, err := range ps.list {
		c.keep(err)
	}
	if p.items == nil {
		p.rare().items = map[machine.Ref]*Plan{}
	}
	if p.items[r] = plan; plan != nil {
		plan.rare().itemOf = p.names[r]
	}
}

// nestGroups finds groups that the graph of a composite names but does not declare. For each of these groups it records the composites. The
// outermost graph must declare these groups. If it lacks one of them, the result `wrong` is true, and checkMembers reports the group. For an inner
// graph, the result is false.
func (c *compiler) nestGroups(declared map[string]int32) (wrong bool) {
	p := c.p
	if !p.composite {
		return false
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
				p.rare().naming = map[string][]machine.Ref{}
			}
			p.naming[name] = append(p.naming[name], r)
			switch _, ok := declared[name]; {
			case ok || slices.Contains(n.Groups, name) || lacked[name]:
			case len(c.within) > 1:
				lacked[name] = true
				p.rare().lacks = append(p.rare().lacks, name)
			default:
				wrong = true
			}
		}
	}
	for _, composites := range p.naming {
		slices.Sort(composites)
	}
	return wrong
}

const untilField = "Loop.UntilExpr"

// parseUntil parses the text of a loop's Until. It returns nil if there is no such text.
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

// checkUntil checks the text of a loop's Until, if the Expression of the text is a checker. The text may name all nodes of the loop's graph.
func (c *compiler) checkUntil(r machine.Ref, l *lowered) {
	sub := c.subs[c.p.decl[r]]
	if check, ok := l.until.(checker); ok && sub != nil {
		c.checkText(c.p.node(r), fieldChecker{untilField, check, false}, c.noted(c.p.names[r], sub.ancestor(everyNode)), sub.notInput)
	}
}

func (c *compiler) nestLoop(r machine.Ref) {
	p := c.p
	var until Expression
	if l := c.lowered[p.decl[r]]; l != nil {
		until = l.until
	}
	if p.loops == nil {
		p.rare().loops = map[machine.Ref]func(View) (bool, error){}
	}
	p.loops[r] = p.node(r).Loop.again(until)
}

// instanceInput reports whether the engine adds an input with this name to each nested run of the composite.
func (n *node) instanceInput(name string) bool {
	return n.Map != nil && (name == inputItem || name == inputIndex) ||
		n.Loop != nil && (name == inputIteration || name == inputPrevious)
}
