package verify

import "slices"

// bad reports whether the node counts against the run.
func (p *prediction) bad(n *node) bool {
	f := p.fates[n.id]
	if n.end {
		return false
	}
	return f.status == "F" && !f.tolerated || f.status == "X" || f.status == "C"
}

// consumed reports whether some node has handled the failure of b.
func (p *prediction) consumed(b *node) bool {
	for _, e := range p.g.out(b.id) {
		t := p.g.node(e.to)
		f := p.fates[t.id]
		c := p.resolve(e)
		caught := c == satisfied && e.on == '!'
		if t.observer() || c != failure && !caught {
			continue
		}
		reached := f.ready
		if t.rule() == "bnd" {
			reached = f.status == "ok"
		}
		if reached || c == failure && (p.bad(t) || f.reason == "pf") {
			return true
		}
	}
	return false
}

// escapedFailures returns, sorted, the ids of the failed and cancelled origins of all bad nodes that no node has handled (see consumed).
func (p *prediction) escapedFailures() (ids []string) {
	for _, n := range p.g.nodes {
		if !p.bad(n) || p.consumed(n) {
			continue
		}
		origins := p.fates[n.id].origins
		if len(origins) == 0 {
			origins = []string{n.id}
		}
		for _, id := range origins {
			if status := p.fates[id].status; status == "F" || status == "C" {
				ids = append(ids, id)
			}
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// failureClass reports whether the bad node counts as a failure rather than as a cancellation.
func (p *prediction) failureClass(n *node) bool {
	f := p.fates[n.id]
	switch f.status {
	case "F":
		return true
	case "X":
		return slices.ContainsFunc(f.origins, func(id string) bool { return p.fates[id].status == "F" })
	}
	return false
}

// leaf reports whether the node has no successor except the end node.
func (p *prediction) leaf(n *node) bool {
	return !n.end && !slices.ContainsFunc(p.g.out(n.id), func(e *edge) bool { return !p.g.node(e.to).end })
}

func (p *prediction) endBroken() bool {
	return slices.ContainsFunc(p.g.nodes, func(n *node) bool { return n.end && p.fates[n.id].status == "F" })
}

// runStatus returns the status of the run under one of the three status rules, after the verdict of the end node.
func (p *prediction) runStatus(rule string) (status string, degraded bool) {
	var failed, cancelled, escapedFailure, escapedCancel, strictFailure, anyBad, handled, deadLeaf bool
	var end *node
	for _, n := range p.g.nodes {
		f := p.fates[n.id]
		if n.end {
			end = n
			continue
		}
		anyBad = anyBad || p.bad(n) || f.tolerated
		handled = handled || p.bad(n) && p.consumed(n) || f.tolerated
		failed = failed || f.status == "F"
		cancelled = cancelled || f.status == "C"
		strictFailure = strictFailure || p.bad(n) && p.failureClass(n)
		if p.bad(n) && !p.consumed(n) {
			escapedFailure = escapedFailure || p.failureClass(n)
			escapedCancel = escapedCancel || !p.failureClass(n)
		}
		deadLeaf = deadLeaf || p.leaf(n) && f.status != "ok" && f.status != "S"
	}
	status = "completed"
	switch rule {
	case "escaped":
		switch {
		case escapedFailure:
			status = "failed"
		case escapedCancel:
			status = "cancelled"
		}
	case "leaves":
		switch {
		case !deadLeaf:
		case cancelled && !failed:
			status = "cancelled"
		default:
			status = "failed"
		}
	case "strict":
		switch {
		case strictFailure:
			status = "failed"
		case cancelled:
			status = "cancelled"
		}
	}
	degraded = status == "completed" && anyBad
	p.computed[rule] = status
	switch {
	case end == nil:
	case p.fates[end.id].status == "F" && status != "cancelled":
		status = "failed"
	case end.outcome == "failed":
		status = "failed"
	case end.outcome == "completed" && status == "failed":
		// The verdict does not make an unhandled failure count as handled.
		status, degraded = "completed", handled
	}
	return status, degraded && status == "completed"
}
