package kahn

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/seed-c794f7ef/kahn/machine"
)

// number gives the nodes their Refs, by tier and then by declaration, and applies the defaults to each node. From here on
// edges name nodes by Ref.
func (c *compiler) number() {
	n := len(c.g.nodes)
	both := &struct { // one allocation
		Plan
		own shared
	}{}
	p := &both.Plan // field by field: a literal would be made beside it and copied
	p.name, p.inputs, p.inputIndex, p.nodes, p.terms = c.g.Name, c.inputs, c.inputIndex, make([]*node, n), c.terms
	p.shared, p.force, p.index = &both.own, c.force, c.index
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
				p.slashed = append(p.slashed, id)
			}
		}
		slices.Sort(p.slashed)
	}
	p.index.Move(func(i int) int { return int(p.declared[i]) })
	for r, i := range p.decl {
		if l := c.lowered[i]; l != nil {
			l.install(c, Ref(r))
		}
		c.resolve(Ref(r))
	}
}

// resolve works out the node's facts from its fields and the graph's defaults.
func (c *compiler) resolve(r Ref) {
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
	if !n.Retry.isZero() {
		c.setRetry(r, n.Retry.withDefaults(), false)
	} else if !d.Retry.isZero() && n.ownStep() {
		c.setRetry(r, d.Retry.withDefaults(), true)
	}
	if n.Timeout == 0 && d.Timeout != 0 && n.ownStep() {
		c.own(r).Timeout = d.Timeout
	}
	n = c.p.node(r)
	var flags machine.Flags
	set := func(flag machine.Flags, on bool) {
		if on {
			flags |= flag
		}
	}
	gate, trigger, composite := isGate(n), n.Kind == KindTrigger, n.composite()
	observer := isEnd || n.Cleanup || f.Join == AllDone || f.Join == AllSkipped
	set(machine.FlagObserver, observer != n.HandlesFailure)
	set(machine.FlagTolerant, n.ContinueOnFail)
	set(machine.FlagCleanup, n.Cleanup || isEnd)
	set(machine.FlagGate, gate)
	set(machine.FlagInline, n.Test != nil || gate || composite || trigger)
	set(machine.FlagComposite, composite)
	set(machine.FlagCheck, n.When != nil || len(n.Ports) > 0 || n.Map != nil)
	set(machine.FlagCritical, n.Critical)
	set(machine.FlagCancelLosers, n.CancelLosers)
	set(machine.FlagLateCancel, n.CancelOnLateFailure)
	set(factTimed, n.Timeout > 0 || n.OverallTimeout > 0 || n.Cleanup || isEnd)
	contracts := c.p.contracts[r]
	set(machine.FlagAdmit, contracts[PhaseInput] != nil || n.Moderation.covers(PhaseInput) || n.Memo != "")
	set(factJudge, contracts[PhaseOutput] != nil || n.Moderation.covers(PhaseOutput))
	set(factOwn, n.Do != nil || n.Test != nil || flags&machine.FlagAdmit != 0 || trigger)
	set(machine.FlagPlain, flags&(machine.FlagInline|factTimed|machine.FlagAdmit|factJudge) == 0 && !isEnd)
	f.Flags = flags
	c.b.Rule(r, f)
	if n.Disabled {
		c.b.Disable(r)
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

// branches numbers the labels of conditions, and the causes that edges let through.
func (c *compiler) branches() {
	p := c.p
	for i, t := range p.terms {
		if e := c.n.Edge(int32(i)); e.Flags&machine.EdgeFailure != 0 {
			c.b.Catch(int32(i), t.Causes)
		} else if e.Flags&machine.EdgeLabelled != 0 {
			router, first := c.b.Routed(e.From)
			if first {
				p.routers = append(p.routers, newRouter(p.node(e.From).Kind == KindGate))
			}
			c.b.Label(int32(i), p.routers[router].add(t.Label))
		}
	}
	if !c.b.Lay() {
		c.add("%w: more than %d branches", ErrBadValue, machine.MostLabels)
	}
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
			c.add("Groups: %w: %s", ErrBadValue, text).Field = fmt.Sprintf("Groups[%d]", i)
		}
		if g.Limit < 0 {
			c.add("group %s: %w: Limit %d is negative", quoteID(g.Name), ErrBadValue, g.Limit).Field = fmt.Sprintf("Groups[%d].Limit", i)
		}
		if err := g.Rate.validate(); err != nil {
			c.add("group %s: %w", quoteID(g.Name), err).Field = fmt.Sprintf("Groups[%d].Rate", i)
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
		if c.member == nil {
			c.member = make([][]int32, len(p.names))
		}
		for i, name := range n.Groups {
			g, ok := byName[name]
			if !ok && len(c.within) > 1 {
				g, ok = int32(len(p.groups)), true
				byName[name] = g
				p.groups = append(p.groups, group{Group: Group{Name: name}, inherited: true})
				p.lacks = append(p.lacks, name)
			}
			if !ok || p.lastMember(g) == r {
				field := fmt.Sprintf("Groups[%d]", i)
				if ok {
					c.ofNode(n.ID, field, "%w: group %s is named twice", ErrBadValue, quoteID(name))
				} else {
					c.ofNode(n.ID, field, "%w: group %s is not declared%s", ErrBadValue, quoteID(name), c.instead(name, c.groupNames))
				}
				continue
			}
			c.join(r, g)
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
		c.join(r, g)
	}
	p.groupIndex = byName
	c.n.SetGroups(c.member, p.bounds())
	c.nestGroups(byName)
}

// bounds are the limits and rates of the groups.
func (p *Plan) bounds() []machine.Bound {
	bounds := make([]machine.Bound, len(p.groups))
	for i := range p.groups {
		g := &p.groups[i]
		bounds[i] = machine.Bound{Limit: g.Limit, Rate: g.Rate.count(), Key: g.key, Cancels: g.CancelOnFailure}
	}
	return bounds
}

func (c *compiler) join(r Ref, g int32) {
	c.member[r] = append(c.member[r], g)
	c.p.groups[g].members = append(c.p.groups[g].members, r)
}

// lastMember is the node that joined a group last, or noRef.
func (p *Plan) lastMember(g int32) Ref {
	members := p.groups[g].members
	if len(members) == 0 {
		return noRef
	}
	return members[len(members)-1]
}
