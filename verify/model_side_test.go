package verify

import "slices"

// standing says how a control edge counts for a target that also has routing edges.
type standing byte

const (
	regular      standing = iota // the target is on no branch, or the edge is not plain
	wayIn                        // the edge begins on a branch of one of the target's routers
	earlierWayIn                 // the edge begins on a branch of an ancestor of a router, and counts only if no router was evaluated
	sideEdge                     // the edge delivers data and may block the target, but does not make the target run
)

// routes reports whether the edge puts its target on a branch.
func (e *edge) routes() bool { return !e.data && (e.label != "" || e.on == '!') }

// plain reports whether the edge waits only for success.
func (e *edge) plain() bool { return !e.data && e.on == 0 && e.label == "" }

// routers returns the nodes that decide whether t runs.
func (g *graph) routers(t string) (ids []string) {
	for _, e := range g.in(t) {
		if e.routes() && !slices.Contains(ids, e.from) {
			ids = append(ids, e.from)
		}
	}
	return ids
}

// exits returns the alternative exits of c as seen from t. Each exit is a set of edges. A run takes one exit, or several exits if they are
// labels.
func (g *graph) exits(c, t string) (exits [][]*edge) {
	var labels []string
	var caught, succeeded []*edge
	hangs := false
	for _, e := range g.out(c) {
		switch {
		case e.data:
		case e.label != "":
			hangs = hangs || e.to == t
			if !slices.Contains(labels, e.label) {
				labels = append(labels, e.label)
			}
		case e.on == '!':
			caught = append(caught, e)
		case e.plain():
			succeeded = append(succeeded, e)
		}
	}
	for _, label := range labels {
		var exit []*edge
		for _, e := range g.out(c) {
			if e.label == label {
				exit = append(exit, e)
			}
		}
		exits = append(exits, exit)
	}
	if len(caught) > 0 {
		exits = append(exits, caught)
		if !hangs {
			exits = append(exits, succeeded)
		}
	}
	return exits
}

// leads reports whether the exit leads to the node, over edges of every kind.
func (p *prediction) leads(exit []*edge, id string) bool {
	return slices.ContainsFunc(exit, func(e *edge) bool { return e.to == id || p.ancestors[id][e.to] })
}

// standing computes the standing of an edge from the graph alone.
func (p *prediction) standing(e *edge) standing {
	routers := p.g.routers(e.to)
	if len(routers) == 0 || !e.plain() || p.g.node(e.to).end {
		return regular
	}
	best := sideEdge
	for _, c := range p.g.nodes {
		isRouter := slices.Contains(routers, c.id)
		above := slices.ContainsFunc(routers, func(r string) bool { return p.ancestors[r][c.id] })
		if !isRouter && !above {
			continue
		}
		for _, exit := range p.g.exits(c.id, e.to) {
			here := slices.Contains(exit, e) || p.leads(exit, e.from)
			both := slices.ContainsFunc(routers, func(r string) bool { return p.leads(exit, r) })
			switch {
			case !here || both:
			case isRouter:
				return wayIn
			default:
				best = earlierWayIn
			}
		}
	}
	return best
}

// side reports whether the edge is a side edge in this run.
func (p *prediction) side(n *node, e *edge) bool {
	switch p.standing(e) {
	case sideEdge:
		return true
	case earlierWayIn:
		return slices.ContainsFunc(p.g.in(n.id), func(r *edge) bool {
			return r.routes() && !(p.seen(n, r) == neutral && p.fates[r.from].status == "S" && p.fates[r.from].routing)
		})
	}
	return false
}

// countReasons counts the in-edges of class c that are a reason for the node to run.
func (p *prediction) countReasons(n *node, c class) (count int) {
	for _, e := range p.g.in(n.id) {
		if p.seen(n, e) == c && !p.side(n, e) {
			count++
		}
	}
	return count
}

// noDefaults reports whether the node, whose join is blocked, is on a branch that was not taken. Such a node gets no defaults for failures
// outside the branch.
func (p *prediction) noDefaults(n *node) bool {
	if n.rule() != "all" {
		return false // any other rule that can block was chosen explicitly, and counts every edge
	}
	for _, e := range p.g.in(n.id) {
		switch p.seen(n, e) {
		case failure:
			if !p.side(n, e) {
				return false
			}
		case satisfied:
			if e.routes() || e.on == '*' || e.plain() && !p.side(n, e) { // an always edge makes the target run even on a branch that was not taken
				return false
			}
		}
	}
	return len(p.g.routers(n.id)) > 0
}
