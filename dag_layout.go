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
	n, m := len(c.g.nodes), len(c.edges)
	ints, refs := make(slab, 4*n+m+3+int(c.depth)+1), make([]Ref, 3*n)
	p := &Plan{
		name: c.g.Name, inputs: c.inputs, inputIndex: c.inputIndex, names: make([]string, n), facts: make([]facts, n),
		declared: refs[:n:n], schedule: schedule{at: refs[n : 2*n : 2*n]}, stepless: refs[2*n : 2*n : 3*n], end: noRef, shared: &shared{}, force: c.force, index: c.index,
		edges: c.edges, prioritized: c.has.priority,
	}
	c.p = p
	p.decl, ints = ints.cut(n)
	p.pos, ints = ints.cut(n)
	p.out, ints = ints.cut(n + 1)
	p.in.start, ints = ints.cut(n + 1)
	p.in.items, ints = ints.cut(m)
	p.tiers, _ = ints.cut(int(c.depth) + 1)
	for _, t := range c.tier {
		p.tiers[t+1]++
	}
	for t := range c.depth {
		p.tiers[t+1] += p.tiers[t]
	}
	var next []int32
	next, c.scratch = c.scratch.cut(int(c.depth))
	copy(next, p.tiers)
	for i := range n {
		r := Ref(next[c.tier[i]])
		next[c.tier[i]]++
		p.declared[i], p.decl[r] = r, int32(i)
		p.facts[r].node, p.names[r] = c.g.nodes[i], c.names[i]
		p.longest = max(p.longest, len(p.names[r]))
		p.facts[r].tier = c.tier[i]
		if int32(i) == c.end {
			p.end = r
		}
	}
	if c.has.slash {
		for _, id := range p.names {
			if strings.Contains(id, "/") {
				p.slashed = append(p.slashed, id)
			}
		}
		slices.Sort(p.slashed)
	}
	p.index.Move(func(i int) int { return int(p.declared[i]) })
	for i := range c.edges {
		e := &c.edges[i]
		e.from, e.to = p.declared[e.from], p.declared[e.to]
	}
	items := p.in.items[:0]
	for r, i := range p.decl {
		if l := c.lowered[i]; l != nil {
			l.install(c, Ref(r))
		}
		items = append(items, c.into.row(Ref(i))...)
		p.in.start[r+1] = int32(len(items))
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
	f.guard = cmp.Or(n.GuardErrors, d.GuardErrors, GuardAllow)
	if !n.Retry.isZero() {
		c.setRetry(r, n.Retry.withDefaults(), false)
	} else if !d.Retry.isZero() && n.ownStep() {
		c.setRetry(r, d.Retry.withDefaults(), true)
	}
	if n.Timeout == 0 && d.Timeout != 0 && n.ownStep() {
		c.own(r).Timeout = d.Timeout
	}
	n = c.p.node(r)
	var flags factFlags
	set := func(flag factFlags, on bool) {
		if on {
			flags |= flag
		}
	}
	gate, trigger, composite := isGate(n), n.Kind == KindTrigger, n.composite()
	observer := isEnd || n.Cleanup || f.join == AllDone || f.join == AllSkipped
	set(factObserver, observer != n.HandlesFailure)
	set(factTolerant, n.ContinueOnFail)
	set(factCleanup, n.Cleanup || isEnd)
	set(factGate, gate)
	set(factInline, n.Test != nil || gate || composite || trigger)
	set(factComposite, composite)
	set(factCheck, n.When != nil || len(n.Ports) > 0 || n.Map != nil)
	set(factCritical, n.Critical)
	set(factCancelLosers, n.CancelLosers)
	set(factLateCancel, n.CancelOnLateFailure)
	set(factTimed, n.Timeout > 0 || n.OverallTimeout > 0 || n.Cleanup || isEnd)
	contracts := c.p.contracts[r]
	set(factAdmit, contracts[PhaseInput] != nil || n.Moderation.covers(PhaseInput) || n.Memo != "")
	set(factJudge, contracts[PhaseOutput] != nil || n.Moderation.covers(PhaseOutput))
	set(factOwn, n.Do != nil || n.Test != nil || flags&factAdmit != 0 || trigger)
	c.p.losers = c.p.losers || n.CancelLosers
	switch f.join.rule() {
	case AnySucceeded, joinAtLeast, OneFailed, OneDone:
		flags |= factEarly
		c.p.early = true
	case Boundary:
		c.has.boundary = true
	}
	f.flags = flags
	row := c.p.in.row(r)
	f.total = int32(len(row))
	if c.has.terms {
		for _, i := range row {
			if c.p.edges[i].flags&arcData != 0 {
				f.total--
			}
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
		if e.to != p.end {
			p.out[e.from+1]++
		}
	}
	p.routes = make([]int32, len(p.routers))
	for i, router := range p.routers {
		p.routes[i] = int32(len(router.labels))
	}
	for r := range p.facts {
		f := &p.facts[r]
		if f.router >= 0 {
			f.labels = int32(p.labels)
			p.labels += int(p.routes[f.router])
		} else if !f.is(factInline|factTimed|factAdmit|factJudge) && Ref(r) != p.end {
			f.flags |= factPlain
		}
	}
	if p.labels > 1<<(32-arcBits)-1 {
		c.add("%w: more than %d branches", ErrBadValue, 1<<(32-arcBits)-1)
		return
	}
	if p.labels > 0 {
		for i := range p.edges {
			if e := &p.edges[i]; e.flags&arcLabelled != 0 {
				e.label += p.facts[e.from].labels
			}
		}
	}
	for r := range p.facts {
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
	if !c.has.boundary {
		return
	}
	x := shielding{p: p}
	for r := range p.facts {
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
		x.visited = make([]Ref, len(p.facts))
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
	if len(c.g.Groups) == 0 && !c.has.member && !p.composite {
		return
	}
	byName := make(map[string]int32, len(c.g.Groups))
	for i, g := range c.g.Groups {
		_, taken := byName[g.Name]
		if text, is := named("group", i+1, g.Name, taken); is {
			c.add("Groups: %w: %s", ErrBadValue, text)
		}
		if g.Limit < 0 {
			c.add("group %s: %w: Limit %d is negative", quoteID(g.Name), ErrBadValue, g.Limit)
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
			p.member = make([][]int32, len(p.facts))
		}
		for _, name := range n.Groups {
			g, ok := byName[name]
			if !ok && len(c.within) > 1 {
				g, ok = int32(len(p.groups)), true
				byName[name] = g
				p.groups = append(p.groups, group{Group: Group{Name: name}, inherited: true})
				p.lacks = append(p.lacks, name)
			}
			if !ok || p.lastMember(g) == r {
				rest := " is named twice"
				if !ok {
					rest = " is not declared" + c.instead(name, c.groupNames)
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
	p.bind()
	c.nestGroups(byName)
}

// bind computes the bounds of the groups.
func (p *Plan) bind() {
	p.bounds = make([]bound, len(p.groups))
	for i := range p.groups {
		g := &p.groups[i]
		p.bounds[i] = bound{limit: g.Limit, rate: g.Rate.count(), key: g.key}
	}
}

func (p *Plan) join(r Ref, g int32) {
	p.member[r] = append(p.member[r], g)
	p.groups[g].members = append(p.groups[g].members, r)
}

// lastMember is the node that joined a group last, or noRef.
func (p *Plan) lastMember(g int32) Ref {
	members := p.groups[g].members
	if len(members) == 0 {
		return noRef
	}
	return members[len(members)-1]
}

// initialWords precomputes the state of a run that has not begun.
func (c *compiler) initialWords() {
	p := c.p
	p.words = make([]uint64, len(p.facts))
	for r := range p.facts {
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
