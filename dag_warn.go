package kahn

import (
	"slices"

	"github.com/seed-c794f7ef/kahn/machine"
)

// This file has the warnings about edges and values: about lost values, about values that may be missing, and about nodes that run whether another
// node succeeds or fails.

// checkMerges warns if several nodes deliver the same parameter and the parameter has no merge strategy: all values except the last would be lost.
// It counts only the nodes that run whenever nothing fails. It ignores nodes behind branches, guards, triggers and join rules that tolerate
// failures, since often only one of several such nodes delivers.
func (c *compiler) checkMerges() {
	p := c.p
	if p.data == nil || c.isPruned {
		return
	}
	var runs []bool // by Ref: see runsAnyway
	for _, r := range p.declared {
		in := p.data[r]
		if in == nil || p.node(r).Merge != "" || !c.joinsAll(r) {
			continue
		}
		for i := range in.params {
			g := &in.params[i]
			if len(g.edges) == 1 || g.strategy != MergeLast {
				continue
			}
			if runs == nil {
				runs = c.runsAnyway()
			}
			var from []string
			for _, i := range g.edges {
				t := p.termsOf(i)
				if t.Merge != "" {
					from = nil
					break
				}
				if id := p.names[c.n.Source(i)]; t.On == OnSuccess && t.Label == "" && t.Key == "" && runs[c.n.Source(i)] && !slices.Contains(from, id) {
					from = append(from, id)
				}
			}
			if len(from) > 1 {
				c.warn(problemOf(p.names[r], "Merge", "%w: %s deliver the parameter %s, and all values but the last are lost: set Merge, or set it to %s if you want only the last value",
					ErrMergeConflict, quoteList(from), quoteID(g.name), MergeLast))
			}
		}
	}
}

// joinsAll reports whether the node's join rule is AllSucceeded. This rule is also the default of most nodes.
func (c *compiler) joinsAll(r machine.Ref) bool {
	n := c.p.node(r)
	return n.Join == AllSucceeded || n.Join == joinDefault && n.Test == nil && !n.Cleanup && r != c.p.end
}

// runsAnyway reports, for each node, whether the node surely runs if no node fails, no node is stopped, and no step returns a Skip.
func (c *compiler) runsAnyway() []bool {
	runs := make([]bool, len(c.p.names))
	for r := range runs { // Refs are in the order of the tiers, so the predecessors have already been judged
		n := c.p.node(machine.Ref(r))
		runs[r] = !n.Disabled && n.When == nil && n.WhenExpr == "" && n.Kind != KindTrigger && c.joinsAll(machine.Ref(r)) &&
			!slices.ContainsFunc(n.Ports, func(port Port) bool { return port.Required }) &&
			!slices.ContainsFunc(c.n.In(machine.Ref(r)), func(i int32) bool {
				t := c.p.termsOf(i)
				return t.Label != "" || t.On == OnFailure || !runs[c.n.Source(i)]
			})
	}
	return runs
}

// warnOfOutcomes warns if edges without a parameter lead to a node from both the success and the failure of another node. The node then runs in
// both cases.
func (c *compiler) warnOfOutcomes(r machine.Ref) {
	if c.terms == nil || c.isPruned {
		return
	}
	var failures map[machine.Ref]bool // the sources of catch edges without a parameter and without causes
	for _, i := range c.n.In(r) {
		if e := c.n.Edge(i); e.Flags&machine.EdgeFailure != 0 && c.p.termsOf(i).Param == "" && len(c.p.termsOf(i).Causes) == 0 {
			if failures == nil {
				failures = map[machine.Ref]bool{}
			}
			failures[e.From] = true
		}
	}
	if failures == nil {
		return
	}
	for _, i := range c.n.In(r) {
		e := c.n.Edge(i)
		if e.Flags&(machine.EdgeFailure|machine.EdgeAlways|machine.EdgeLabelled|machine.EdgeData) == 0 && c.p.termsOf(i).Param == "" && failures[e.From] {
			from := c.p.names[e.From]
			c.warn(problemOf(c.p.node(r).ID, "In", "%w: it runs whether %s succeeds or fails, since edges for both outcomes lead here: remove one of them, or use %v", ErrBadEdge, quoteID(from), OnAlways))
			delete(failures, e.From)
		}
	}
}

// checkAbsences warns of a parameter that is missing whenever a branch is not taken. It warns if all edges that deliver the parameter are data-only
// and come from nodes on branches, and the node with the parameter is not on a branch. It does not warn if one of the edges has a Default, if the
// node has a port with the name of the parameter, or if Node.Params has a value for the parameter: the author then expects that it may be missing.
func (c *compiler) checkAbsences() {
	p := c.p
	if p.data == nil || c.isPruned {
		return
	}
	var surely, perhaps []bool // by Ref: see onBranches
	for _, r := range p.declared {
		in := p.data[r]
		if in == nil {
			continue
		}
		for i := range in.params {
			g := &in.params[i]
			if _, given := p.node(r).Params[g.name]; given || in.ports[g.name] != nil || slices.ContainsFunc(g.edges, c.alwaysDelivers) {
				continue
			}
			if surely == nil {
				surely, perhaps = c.onBranches()
			}
			if !perhaps[r] && !slices.ContainsFunc(g.edges, func(i int32) bool { return !surely[c.n.Source(i)] }) {
				from := p.names[c.n.Source(g.edges[0])]
				c.warn(problemOf(p.names[r], "In", "%w: it lacks the parameter %s whenever %s is skipped, since %s is on a branch: give the edge a Default, or declare a port %s that is not required",
					ErrBadEdge, quoteID(g.name), quoteID(from), quoteID(from), quoteID(g.name)))
			}
		}
	}
}

// alwaysDelivers reports whether an edge has a Default or is not data-only. checkAbsences does not warn of a parameter with such an edge.
func (c *compiler) alwaysDelivers(i int32) bool {
	return c.n.Edge(i).Flags&machine.EdgeData == 0 || c.p.termsOf(i).Default != nil
}

// onBranches reports, for each node, whether the node is surely on a branch of a condition, and whether it is perhaps on a branch. A node that is
// surely on a branch runs only if the branch is taken.
func (c *compiler) onBranches() (surely, perhaps []bool) {
	surely, perhaps = make([]bool, len(c.p.names)), make([]bool, len(c.p.names))
	for r := range surely { // Refs are in the order of the tiers, so the predecessors have already been judged
		for _, i := range c.n.In(machine.Ref(r)) {
			if c.n.Edge(i).Flags&machine.EdgeData == 0 {
				labelled, from := c.p.termsOf(i).Label != "", c.n.Source(i)
				surely[r], perhaps[r] = surely[r] || labelled || surely[from], perhaps[r] || labelled || perhaps[from]
			}
		}
		surely[r] = surely[r] && c.joinsAll(machine.Ref(r))
	}
	return surely, perhaps
}
