package kahn

import (
	"cmp"
	"math"
	"slices"
	"strings"
)

// number gives the nodes their Refs, by tier and then by declaration, and applies the defaults to each node. From here on
// edges name nodes by Ref.
func (c *compiler) number() {
	n := len(c.g.nodes)
	p := &Plan{
		name: c.g.Name, inputs: c.inputs, inputIndex: c.inputIndex, nodes: make([]Node, n), names: make([]string, n), facts: make([]facts, n), ids: make(map[string]Ref, n),
		declared: make([]Ref, n), decl: make([]int32, n), tiers: make([]int32, c.depth+1), end: noRef, planHash: &planHash{}, ancestry: &ancestry{}, force: c.force,
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
		if l := c.lowered[int32(i)]; l != nil {
			l.install(p, r)
		}
		p.names[r] = p.nodes[r].ID
		p.slashed = p.slashed || strings.Contains(p.names[r], "/")
		p.ids[p.names[r]] = r
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
	n, f, d := c.p.node(r), &c.p.facts[r], &c.force.Defaults
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
	if n.Retry.isZero() && n.ownStep() {
		n.Retry = d.Retry
	}
	if !n.Retry.isZero() {
		n.Retry = n.Retry.withDefaults()
	}
	if n.Timeout == 0 && n.ownStep() {
		n.Timeout = d.Timeout
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
	set(factGate, isGate(n))
	trigger := n.Kind == KindTrigger
	set(factInline, n.Test != nil || isGate(n) || n.composite() || trigger)
	set(factComposite, n.composite())
	set(factCheck, n.When != nil || len(n.Ports) > 0 || n.Map != nil)
	set(factCritical, n.Critical)
	set(factCancelLosers, n.CancelLosers)
	set(factLateCancel, n.CancelOnLateFailure)
	set(factTimed, n.Timeout > 0 || n.OverallTimeout > 0 || n.Cleanup || isEnd)
	contracts := c.p.contracts[r]
	set(factAdmit, contracts[PhaseInput] != nil || n.Moderation.covers(PhaseInput) || n.Memo != "")
	set(factJudge, contracts[PhaseOutput] != nil || n.Moderation.covers(PhaseOutput))
	set(factOwn, n.Do != nil || n.Test != nil || f.is(factAdmit) || trigger)
	c.p.losers = c.p.losers || n.CancelLosers
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
	if n.Moderation != ModerateNone && !n.Disabled {
		c.p.moderated = append(c.p.moderated, r)
	}
	if trigger && c.p.prunes == nil && !c.isPruned {
		c.p.prunes = &prunes{source: c.source(), force: c.force}
	}
	if n.Do == nil && n.ownStep() && !n.Disabled {
		c.p.stepless = append(c.p.stepless, r)
	}
}

// adjacency lays the out-edges out flat, by target and then by declaration, which is the order in which a completion
// takes effect, and numbers the labels of conditions.
func (c *compiler) adjacency() {
	p := c.p
	filters := map[causeSet]int32{} // the number of each filter, by the causes that it lets through
	for i := range p.edges {
		e := &p.edges[i]
		f := &p.facts[e.from]
		if e.flags&arcFailure != 0 {
			e.label = p.filter(e.Causes, filters)
			f.catch |= p.filters[e.label]
		}
		if p.handles(e) {
			f.flags |= factHandled
		}
		if e.flags&arcLabelled != 0 {
			if f.router < 0 {
				f.router = int32(len(p.routers))
				p.routers = append(p.routers, newRouter(p.node(e.from).Kind == KindGate))
			}
			e.label = p.routers[f.router].add(e.Label)
		}
	}
	for r := range p.facts {
		f := &p.facts[r]
		if f.router >= 0 {
			f.labels = int32(p.labels)
			p.labels += len(p.routers[f.router].labels)
		} else if !f.is(factInline|factTimed|factAdmit|factJudge) && Ref(r) != p.end {
			f.flags |= factPlain
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

// filter returns the number of the set of causes among the plan's filters; known maps sets to numbers. Whether the origin of
// a victim is a failure or a cancellation is known only when everything is terminal, too late for an edge, so the two
// upstream kinds count as one.
func (p *Plan) filter(causes []CauseKind, known map[causeSet]int32) int32 {
	var set causeSet
	for _, k := range causes {
		set |= 1 << k
		if isUpstream(k) {
			set |= 1<<CauseUpstreamFailure | 1<<CauseUpstreamCancelled
		}
	}
	if len(causes) == 0 {
		set = math.MaxUint64
	}
	i, ok := known[set]
	if !ok {
		i = int32(len(p.filters))
		p.filters = append(p.filters, set)
		known[set] = i
	}
	return i
}

// handles reports whether the target of the edge exists to handle the failure of its source, whatever else happens. The
// failure modes react to a failure with no such edge.
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
func (c *compiler) shield() {
	p := c.p
	x := shielding{p: p}
	for r := range p.nodes {
		row := p.in.row(Ref(r))
		x.boundaries = x.boundaries[:0]
		for _, i := range row {
			if from := p.edges[i].from; p.facts[from].join == Boundary {
				x.boundaries = append(x.boundaries, from)
			}
		}
		if len(x.boundaries) == 0 || len(row) == 1 || Ref(r) == p.end {
			continue
		}
		judged := x.judged
		if len(x.boundaries)*len(row) > len(p.edges) {
			judged = x.above(Ref(r), row)
		}
		for _, i := range row {
			if e := &p.edges[i]; judged(e.from) {
				e.flags |= arcShielded
			}
		}
	}
}

// shielding finds the predecessors of a node that one of its boundaries judges. With few boundaries it asks for each pair;
// with many, one search upwards from all of them is cheaper.
type shielding struct {
	p          *Plan
	boundaries []Ref
	found      map[[2]Ref]bool // the results of searches, by pair
	visited    []Ref           // by Ref: the last node for which a search has visited it, plus one
}

// judged reports whether f is an ancestor of a boundary.
func (x *shielding) judged(f Ref) bool {
	for _, b := range x.boundaries {
		is, sure := x.p.judgeAncestor(f, b)
		if !sure { // many nodes may ask the same
			pair := [2]Ref{f, b}
			if is, sure = x.found[pair]; !sure {
				if x.found == nil {
					x.found = map[[2]Ref]bool{}
				}
				is = x.p.ancestry.search(x.p, f, b)
				x.found[pair] = is
			}
		}
		if is {
			return true
		}
	}
	return false
}

// above searches the ancestors of all boundaries of r, no further down than r's lowest predecessor.
func (x *shielding) above(r Ref, row []int32) (judged func(Ref) bool) {
	p := x.p
	if x.visited == nil {
		x.visited = make([]Ref, len(p.nodes))
	}
	lowest := r
	for _, i := range row {
		lowest = min(lowest, p.edges[i].from)
	}
	stack := x.boundaries
	for len(stack) > 0 {
		at := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		p.ancestry.steps.Add(int64(len(p.in.row(at))))
		for _, i := range p.in.row(at) {
			if from := p.edges[i].from; from >= lowest && x.visited[from] != r+1 {
				x.visited[from] = r + 1
				stack = append(stack, from)
			}
		}
	}
	return func(f Ref) bool { return x.visited[f] == r+1 }
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
	for _, r := range p.declared {
		if r != p.end && p.out[r] == p.out[r+1] {
			p.leaves = append(p.leaves, r)
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
			a := e.arc()
			if a.facts&arcSpecial != 0 {
				p.facts[e.from].flags |= factForks
			}
			p.arcs[next[e.from]] = a
			next[e.from]++
		}
	}
}

func (c *compiler) inputsOf(r Ref) *inputs {
	p := c.p
	n := p.node(r)
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
	if len(in.params) > manyEdges {
		in.byName = byName
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
		labels[c.p.node(e.from).Label]++
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
		source := c.p.node(c.p.edges[i].from)
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
	if fed, _ := in.param(port.Name); fed != nil {
		return
	}
	if c.p.input(port.Name) != nil || c.isPruned {
		return
	}
	c.add("node %s: %w: %s has neither an edge nor a static value, a default or a root input", quoteID(n.ID),
		ErrUnboundPort, quoteID(port.Name))
}

// schedule computes the longest remaining paths and the order in which ready nodes are taken.
func (c *compiler) schedule() {
	p := c.p
	estimated := slices.ContainsFunc(p.nodes, func(n Node) bool { return n.Estimate > 0 })
	p.rank, p.pos, p.at = p.order(func(r Ref) int64 {
		if estimated {
			return int64(p.node(r).Estimate)
		}
		return 1
	})
}

// order ranks the nodes by the longest remaining path, in which each node counts its own, and sorts them into the order in
// which ready ones are taken: by priority, rank, and declaration.
func (p *Plan) order(own func(Ref) int64) (rank []int64, pos []int32, at []Ref) {
	n := len(p.nodes)
	rank, pos, at = make([]int64, n), make([]int32, n), slices.Clone(p.declared)
	for r := Ref(n - 1); r >= 0; r-- {
		longest := int64(0)
		for _, a := range p.outOf(r) {
			longest = max(longest, rank[a.to])
		}
		rank[r] = saturatingAdd(longest, own(r))
	}
	slices.SortStableFunc(at, func(a, b Ref) int {
		return cmp.Or(cmp.Compare(p.node(b).Priority, p.node(a).Priority), cmp.Compare(rank[b], rank[a]))
	})
	for i, r := range at {
		pos[r] = int32(i)
	}
	return rank, pos, at
}

// groupNames lists the declared groups.
func (c *compiler) groupNames() []string {
	names := make([]string, len(c.g.Groups))
	for i := range c.g.Groups {
		names[i] = c.g.Groups[i].Name
	}
	return names
}

// group lists the members of groups and of keys.
func (c *compiler) group() {
	p := c.p
	byName := make(map[string]int32, len(c.g.Groups))
	for _, g := range c.g.Groups {
		if _, taken := byName[g.Name]; taken || g.Name == "" || g.Limit < 0 {
			c.add("group %s: %w: unnamed, declared twice, or with a negative limit", quoteID(g.Name), ErrBadValue)
		}
		if err := g.Rate.validate(); err != nil {
			c.add("group %s: %w", quoteID(g.Name), err)
		}
		byName[g.Name] = int32(len(p.groups))
		p.groups = append(p.groups, group{Group: g})
	}
	byKey := map[string]int32{}
	for _, r := range p.declared {
		n := p.node(r)
		if len(n.Groups) == 0 && n.Key == "" {
			continue
		}
		if p.member == nil {
			p.member = make([][]int32, len(p.nodes))
		}
		for _, name := range n.Groups {
			g, ok := byName[name]
			if !ok && len(c.within) > 1 {
				g, ok = int32(len(p.groups)), true
				byName[name] = g
				p.groups = append(p.groups, group{Group: Group{Name: name}, inherited: true})
				p.lacks = append(p.lacks, name)
			}
			if !ok || slices.Contains(p.member[r], g) {
				rest := " is named twice"
				if !ok {
					rest = " is not declared" + instead(name, c.groupNames())
				}
				c.add("node %s: %w: group %s%s", quoteID(n.ID), ErrBadValue, quoteID(name), rest)
				continue
			}
			p.join(r, g)
		}
		if n.Key == "" {
			continue
		}
		g, ok := byKey[n.Key]
		if !ok {
			g = int32(len(p.groups))
			byKey[n.Key] = g
			p.groups = append(p.groups, group{Group: Group{Name: n.Key}, key: true})
		}
		p.join(r, g)
	}
	p.groupIndex = byName
	c.nestGroups(byName)
}

func (p *Plan) join(r Ref, g int32) {
	p.member[r] = append(p.member[r], g)
	p.groups[g].members = append(p.groups[g].members, r)
}

// saturatingAdd adds times and durations: a sum that does not fit is the largest or the smallest number.
func saturatingAdd(a, b int64) int64 {
	sum := a + b
	switch {
	case b > 0 && sum < a:
		return math.MaxInt64
	case b < 0 && sum > a:
		return math.MinInt64
	}
	return sum
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
		if f.is(factPlain) {
			w |= wordPlain
		}
		p.words[r] = w
	}
}

// portEdges counts the edges bound to required ports of a node with an early rule.
func (p *Plan) portEdges(r Ref) (n int32) {
	for _, i := range p.in.row(r) {
		if p.edges[i].flags&arcPort != 0 {
			n++
		}
	}
	return n
}
