package typed

import (
	"context"
	"slices"

	"github.com/seed-c794f7ef/kahn"
)

// The method lower adds the nodes to the graph, and reports their problems.
func (f *flow) lower() {
	var batch [4]kahn.Node // added together, since Add then makes fewer objects
	var room []string      // memory for the lists After of the batch, which Add copies
	count := 0
	for src := f.first; src != nil; src = src.next {
		if f.inputs[src.id] != nil && !f.hasItem(src) {
			f.twice(src.id)
		}
		src.check()
		if count == len(batch) {
			f.graph.Add(batch[:]...)
			count, room = 0, room[:0]
		}
		n := &batch[count]
		*n = kahn.Node{ID: src.id, Do: src.do}
		if count++; src.extras != &noExtras {
			src.set(n)
		}
		room = src.connect(n, room)
	}
	f.graph.Add(batch[:count]...)
	for _, src := range f.chosen {
		src.checkCases()
	}
	if f.owner != nil && f.result != nil && !f.endsWith(f.result) {
		f.graph.Add(f.end())
	}
}

// The method endsWith reports whether src is the only node without successors. Only after lower has connected the nodes, their successors are known.
func (f *flow) endsWith(src *source) bool {
	for other := f.first; other != nil; other = other.next {
		if other.after == nil && other != src {
			return false
		}
	}
	return src.after == nil
}

// The method end returns an end node that makes the result the output of the nested run. A sub-pipeline needs this node if the result's node has
// successors, or if another node has none.
func (f *flow) end() kahn.Node {
	id := f.result.id
	return kahn.Node{ID: "return " + id, Kind: kahn.KindEnd, After: []string{id}, Do: func(_ context.Context, s *kahn.Step) (any, error) {
		v, _ := s.Upstream(id)
		return v, nil
	}}
}

// connect gives the node its edges and ports. A node runs when all values that it takes exist, and is skipped when one of its predecessors was
// skipped. So a node in a branch needs an edge from the condition only if none of its predecessors is in the branch.
//
// An Either follows nodes of its own block and of the branches inside this block. If none of these nodes has a value, the Either has no value. A
// Try in a branch also checks whether the branch was taken. Otherwise, if a failure elsewhere stopped the tried node, the Try would run although
// its branch was not taken.
//
// The method appends the list After of the node to the slice "room", and returns the slice.
func (src *source) connect(n *kahn.Node, room []string) []string {
	start := len(room)
	if !src.over {
		for _, of := range src.takes {
			if of.after == src && src.either {
				src.block.in.build.report("node %q: %w: Either takes %q twice", src.id, kahn.ErrBadValue, of.id)
			}
			room = src.behind(of, room)
		}
	}
	for _, of := range src.follows {
		room = src.behind(of, room)
	}
	n.After = room[start:]
	if src.over {
		for _, list := range src.takes {
			src.param(n, list, list.id)
		}
	}
	for _, in := range src.imports {
		if !src.over || len(src.takes) == 0 || in.from != src.takes[0] || in.id != in.from.id {
			src.param(n, in.from, in.id)
		}
	}
	b := src.block
	switch {
	case src.tries != nil:
		n.In = append(n.In, kahn.Edge{From: src.tries.id, On: kahn.OnFailure})
		if b.router != nil {
			n.In = append(n.In, kahn.Edge{From: b.router.id, DataOnly: true}) // lets the guard isTaken read the output of the router
			n.When, n.GuardErrors = b.isTaken, kahn.GuardFail
		}
	case src.either:
	default:
		n.SkipMode = kahn.SkipStrict
		if b.router != nil && !src.hasInside() {
			b.taken = true
			n.In = append(n.In, kahn.Edge{From: b.router.id, Label: b.label})
		}
	}
	if b.router != nil {
		b.router.after = src
	}
	return room
}

// behind makes the node run after another node, unless the node already does. It appends the id of the other node to the list "after".
func (src *source) behind(of *source, after []string) []string {
	if of.after == src {
		return after
	}
	if of.after = src; !of.input {
		after = append(after, of.id)
	}
	return after
}

// The method hasInside reports whether the node follows a node of its own block.
func (src *source) hasInside() bool {
	inside := func(of *source) bool { return of.block == src.block }
	return slices.ContainsFunc(src.takes, inside) || slices.ContainsFunc(src.follows, inside) ||
		slices.ContainsFunc(src.imports, func(in *source) bool { return inside(in.from) })
}

// The method param turns a value into a parameter of a map or a sub-pipeline. The nested runs get this parameter. A root input
// keeps its name.
func (src *source) param(n *kahn.Node, of *source, name string) {
	if of.after = src; of.input {
		n.Ports = append(n.Ports, kahn.Port{Name: name})
		return
	}
	n.In = append(n.In, kahn.Edge{From: of.id, Param: name})
}

// check reports the values that the node cannot take, and the nodes that it cannot follow.
func (src *source) check() {
	if src.either {
		src.checkEither()
		return
	}
	for _, of := range src.takes {
		src.checkTaken(of)
	}
	for _, in := range src.imports {
		src.checkTaken(in.from)
	}
	for _, of := range src.follows {
		if !src.ownJoin() && !src.block.within(of.block) {
			src.outside(of, "follows")
		}
	}
}

// checkTaken reports a value that the node cannot take.
func (src *source) checkTaken(of *source) {
	if !of.input && !src.block.within(of.block) {
		src.outside(of, "takes")
	}
}

// outside reports that a node takes or follows a node of a branch that may not be taken.
func (src *source) outside(of *source, verb string) {
	src.block.in.build.report("node %q: %w: it %s %q, which exists only in %v, but %q is in %v: add %q to that branch, or join the values of the branches by Either",
		src.id, ErrBranch, verb, of.id, of.block, src.id, src.block, src.id)
}

// The method set sets the fields of a node that most nodes do not need. It turns a node that has branches into a condition.
func (src *source) set(n *kahn.Node) {
	if src.opts != nil {
		src.opts.set(n)
	}
	n.Map, n.Fallback, n.Compensate = src.items, src.fallback, src.compensate
	if n.Gate = src.opts.gate(src.gate); src.gate != nil {
		n.Kind = kahn.KindGate
	}
	if src.inner != nil {
		src.inner.lower()
		n.Sub = src.inner.graph
	}
	switch {
	case src.choice == noChoice:
		if n.Gate != nil && len(n.Gate.Choices) > 0 {
			n.Outputs = []string{"output"} // nodes can take the answer as a value, so the gate needs no branches
		}
	case src.gate != nil: // a gate's answers are already the labels of the branches
	case src.choice == choiceIf:
		n.Routes, n.Choices = true, []string{"true", "false"}
	default:
		n.Routes, n.NoMatch = true, kahn.NoMatchFail
	}
}

// checkCases reports cases without nodes.
func (src *source) checkCases() {
	for _, b := range src.cases {
		if src.choice == choiceSwitch && !b.taken {
			src.block.in.build.report("node %q: %w: its case %q has no node: add a node, or leave the case out", src.id, kahn.ErrBadValue, b.label)
		}
	}
}
