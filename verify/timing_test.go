package verify

import "slices"

// moment is the time at which the join of a node is decided, and the time at which the node is terminal, in milliseconds since the start of the
// run.
type moment struct{ decided, ended int }

// retryMS is the delay between two attempts in milliseconds.
const retryMS = 2

// cost returns the time from a node's readiness to its end if nothing delays the node.
func (p *prediction) cost(n *node) int {
	f := p.fates[n.id]
	if !f.ready || n.test {
		return 0
	}
	return f.attempts*n.ms + (f.attempts-1)*retryMS
}

// eager predicts mode Eager without a limit.
func (p *prediction) eager() map[string]moment {
	at := map[string]moment{}
	last := 0
	for _, n := range p.g.sorted() {
		decided := p.decided(n, at)
		if n.end {
			decided = last
		}
		at[n.id] = moment{decided, decided + p.cost(n)}
		last = max(last, at[n.id].ended)
	}
	return at
}

// decided returns the earliest time at which the node's rule can decide.
func (p *prediction) decided(n *node, at map[string]moment) int {
	f := p.fates[n.id]
	if f.root {
		return 0
	}
	var times []int
	for _, e := range p.g.in(n.id) {
		times = append(times, at[e.from].ended)
	}
	slices.Sort(times)
	if len(times) == 0 {
		return 0
	}
	verdict := p.join(n)
	for _, now := range times {
		var s, failed, open int
		waits := false
		for _, e := range p.g.in(n.id) {
			resolved := at[e.from].ended <= now
			for _, port := range n.ports {
				waits = waits || !resolved && port.required && port.name == e.param
			}
			c := p.seen(n, e)
			switch {
			case c == dataOnly:
			case !resolved:
				open++
			case c == satisfied:
				s++
			case c == failure:
				failed++
			}
		}
		early := false
		switch {
		case verdict == "run" && !waits:
			switch n.rule() {
			case "any":
				early = s >= 1
			case "k":
				early = s >= n.k
			case "1fail":
				early = failed >= 1
			case "1done":
				early = s+failed >= 1
			}
		case verdict == "blocked" && n.up != "def":
			switch n.rule() {
			case "all", "nofail":
				early = failed >= 1
			case "k":
				early = failed >= 1 && s+open < n.k
			}
		}
		if early {
			return now
		}
	}
	return times[len(times)-1]
}

// tiers returns the Kahn levels of the nodes.
func (p *prediction) tiers() map[string]int {
	tier := map[string]int{}
	for _, n := range p.g.sorted() {
		tier[n.id] = 0
		for _, e := range p.g.in(n.id) {
			tier[n.id] = max(tier[n.id], tier[e.from]+1)
		}
	}
	return tier
}

// waves predicts mode Waves without a limit.
func (p *prediction) waves() map[string]moment {
	at := map[string]moment{}
	tier := p.tiers()
	boundary := 0
	for level := range len(p.g.nodes) {
		next := boundary
		for _, n := range p.g.nodes {
			if tier[n.id] != level {
				continue
			}
			at[n.id] = moment{boundary, boundary + p.cost(n)}
			if p.fates[n.id].root {
				at[n.id] = moment{}
			}
			next = max(next, at[n.id].ended)
		}
		boundary = next
	}
	return at
}
