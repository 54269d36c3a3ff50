package kahn

import (
	"cmp"
	"fmt"

	"github.com/seed-c794f7ef/kahn/machine"
)

// bindInputs groups the edges of each parameter, settles their merge strategy, and finds required ports that nothing
// feeds. The net is complete then, but for order and groups.
func (c *compiler) bindInputs() {
	p := c.p
	leaves := 0
	for r := range Ref(len(p.names)) {
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
		if c.n.Is(r, machine.FlagCheck) { // else it has no ports
			n := p.node(r)
			for i := range n.Ports {
				c.bindPort(n, i, in)
			}
		}
		if c.n.IsLeaf(r) {
			leaves++
		}
	}
	p.leaves = make([]Ref, 0, leaves)
	for _, r := range p.declared {
		if c.n.IsLeaf(r) {
			p.leaves = append(p.leaves, r)
		}
	}
	c.b.Finish()
}

func (c *compiler) inputsOf(r Ref) *inputs {
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

// mergeGroup settles how the edges of one parameter are merged: by the strategy that the edges agree on, else the node's,
// else the last value wins.
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
		g.strategy = MergeLast // one edge declared: there is nothing to merge
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
