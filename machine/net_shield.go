package machine

import "math"

// The method `filter` returns the index of the set of causes in p.filters. If the set is new, filter adds it. The map `known` maps sets to indices.
// If a set has one of the two upstream causes, filter adds the other cause to the set: the State resolves a catch edge before it knows which of the
// two applies. Until the run ends, the State does not know whether a failure or a cancellation stopped the source of the edge.
func (p *Net) filter(causes []CauseKind, known map[CauseSet]int32) int32 {
	var set CauseSet
	for _, k := range causes {
		set |= 1 << k
		if IsUpstream(k) {
			set |= 1<<CauseUpstreamFailure | 1<<CauseUpstreamCancelled
		}
	}
	if len(causes) == 0 {
		set = math.MaxUint64
	}
	i, ok := known[set]
	if !ok {
		i = int32(len(p.filters))
		p.rare().filters = append(p.rare().filters, set)
		known[set] = i
	}
	return i
}

// The method `handles` reports whether, by the rules of the plan, the target of the edge handles a failure of the edge's source. The failure
// mode of a run does not apply to such a failure.
func (p *Net) handles(e *Edge) bool {
	if e.Flags&EdgeData != 0 {
		return false
	}
	if e.Flags&EdgeFailure != 0 {
		return true
	}
	if e.Flags&EdgeAlways != 0 {
		return false
	}
	f := &p.facts[e.To]
	if f.is(FlagObserver) {
		return false
	}
	switch f.join.Rule() {
	case AllSucceeded, NoneFailed:
		return f.policy == UpstreamSkip || f.policy == UpstreamSubstitute
	}
	return true
}

// Shield marks an edge f -> t if t also has an in-edge from an error boundary c, and f is an ancestor of c. The boundary c then judges a failure of
// f, and t does not. Shield marks no edge into the end node.
func (b *Builder) Shield() {
	p := b.p
	if !b.boundary {
		return
	}
	x := shielding{p: p}
	for r := range p.facts {
		row := p.in.row(Ref(r))
		x.boundaries = x.boundaries[:0]
		for _, i := range row {
			if from := p.edges[i].From; p.facts[from].join == Boundary {
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
			if e := &p.edges[i]; judged(e.From) {
				e.Flags |= edgeShielded
			}
		}
	}
}

// The type `shielding` examines a node t and the error boundaries among t's predecessors. It finds each predecessor of t that is an ancestor of one
// of these boundaries. If t has few boundaries, the method `judged` checks for each predecessor and each boundary whether the predecessor is an
// ancestor of the boundary. If t has many boundaries, one search upwards from all of them is cheaper: see the method `above`.
type shielding struct {
	p          *Net
	boundaries []Ref           // the error boundaries among the predecessors of t
	found      map[[2]Ref]bool // the results of searches, by pair of node and boundary
	visited    []Ref           // by Ref: one more than the last t whose search visited the node
}

// The method `judged` reports whether node f is an ancestor of one of the boundaries.
func (x *shielding) judged(f Ref) bool {
	for _, b := range x.boundaries {
		is, sure := x.p.judgeAncestor(f, b)
		if !sure { // x.found keeps the answer, since other nodes t may need it
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

// The method `above` visits the ancestors of all boundaries of r. It skips nodes with Refs below the lowest Ref of r's predecessors, since neither
// they nor their ancestors are predecessors of r. The result `judged` reports whether the search has visited a node.
func (x *shielding) above(r Ref, row []int32) (judged func(Ref) bool) {
	p := x.p
	if x.visited == nil {
		x.visited = make([]Ref, len(p.facts))
	}
	lowest := r
	for _, i := range row {
		lowest = min(lowest, p.edges[i].From)
	}
	stack := x.boundaries
	for len(stack) > 0 {
		at := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		p.ancestry.steps.Add(int64(len(p.in.row(at))))
		for _, i := range p.in.row(at) {
			if from := p.edges[i].From; from >= lowest && x.visited[from] != r+1 {
				x.visited[from] = r + 1
				stack = append(stack, from)
			}
		}
	}
	return func(f Ref) bool { return x.visited[f] == r+1 }
}

// portEdges counts the in-edges of a node that the method Port has marked.
func (p *Net) portEdges(r Ref) (n int32) {
	for _, i := range p.in.row(r) {
		if p.edges[i].Flags&edgePort != 0 {
			n++
		}
	}
	return n
}
