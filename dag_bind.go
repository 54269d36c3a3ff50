package kahn

import (
	"cmp"
	"slices"
)

// bindInputs groups the edges of each parameter, settles their merge strategy, and finds required ports that nothing
// feeds. It then writes the arcs, whose facts are complete only now.
func (c *compiler) bindInputs() {
	p := c.p
	for r := range p.facts {
		f := &p.facts[r]
		in := c.inputsOf(Ref(r))
		if in != nil {
			if p.data == nil {
				p.data = make([]*inputs, len(p.facts))
			}
			p.data[r] = in
		}
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
		if f.is(factCheck) { // else it has no ports
			n := p.node(Ref(r))
			for i := range n.Ports {
				c.bindPort(n, &n.Ports[i], in)
			}
		}
	}
	isLeaf := func(r Ref) bool { return r != p.end && p.out[r] == p.out[r+1] }
	leaves := 0
	for r := range p.facts {
		if isLeaf(Ref(r)) {
			leaves++
		}
	}
	p.leaves = make([]Ref, 0, leaves)
	for _, r := range p.declared {
		if isLeaf(r) {
			p.leaves = append(p.leaves, r)
		}
	}
	next := c.into.start // not needed any more
	copy(next, p.out)
	p.arcs = make([]arc, p.out[len(p.facts)])
	for r := range p.facts {
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
	var in *inputs
	var byName map[string]int
	row, named := p.in.row(r), p.in.row(r)
	if !c.has.terms {
		named = nil
	}
	for _, i := range named {
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
	if in == nil && !p.facts[r].is(factCheck) && len(row) <= manyEdges {
		return nil
	}
	n := p.node(r)
	if in == nil {
		in = &inputs{}
	}
	if len(row) > manyEdges {
		bySource := func(a, b int32) int { return cmp.Compare(p.edges[a].from, p.edges[b].from) }
		if in.bySource = row; !slices.IsSortedFunc(row, bySource) {
			in.bySource = slices.Clone(row)
			slices.SortStableFunc(in.bySource, bySource)
		}
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
	if len(in.params) > manyEdges {
		in.byName = byName
	}
	return in
}

// mergeGroup settles how the edges of one parameter are merged: by the strategy that the edges agree on, else the node's,
// else the last value wins.
func (c *compiler) mergeGroup(n *node, g *param) {
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

func (c *compiler) bindPort(n *node, port *Port, in *inputs) {
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
