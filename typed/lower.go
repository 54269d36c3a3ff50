package typed

import (
	"context"
	"slices"

	"github.com/seed-c794f7ef/kahn"
)

// The method lower adds the nodes to the graph, and reports their problems.
func (f *flow) lower() {
	last := make(map[*source]bool, len(f.nodes)) // nodes without successors
	for _, src := range f.nodes {
		last[src] = true
	}
	for _, src := range f.nodes {
		src.check()
		src.connect()
		for _, before := range append(src.before(), src.block.router) {
			delete(last, before)
		}
	}
	for _, src := range f.nodes {
		src.decide()
		if src.inner != nil {
			src.inner.lower()
			src.node.Sub = src.inner.graph
		}
		f.graph.Add(src.node)
	}
	if f.owner != nil && f.result != nil && (len(last) > 1 || !last[f.result]) {
		f.graph.Add(f.end())
	}
}

// The method before returns the nodes and inputs that src follows, except the node that decides whether the branch of src is
// taken.
func (src *source) before() []*source { return slices.Concat(src.takes, src.imported(), src.after) }

// The method imported returns the values that the nodes in a sub-pipeline take from outside.
func (src *source) imported() []*source {
	list := make([]*source, len(src.imports))
	for i, in := range src.imports {
		list[i] = in.from
	}
	return list
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
func (src *source) connect() {
	n := &src.node
	plain := slices.Concat(src.takes, src.after)
	if src.over {
		plain = src.after
		for _, list := range src.takes {
			src.param(list, list.id)
		}
	}
	for _, of := range plain {
		if !of.input && !slices.Contains(n.After, of.id) {
			n.After = append(n.After, of.id)
		}
	}
	for _, in := range src.imports {
		src.param(in.from, in.id)
	}
	switch {
	case src.tries != nil:
		n.In = append(n.In, kahn.Edge{From: src.tries.id, On: kahn.OnFailure})
		if r := src.block.router; r != nil {
			n.In = append(n.In, kahn.Edge{From: r.id, DataOnly: true}) // lets the guard isTaken read the output of r
			n.When, n.GuardErrors = src.block.isTaken, kahn.GuardFail
		}
	case src.either:
	default:
		n.SkipMode = kahn.SkipStrict
	}
	inside := func(of *source) bool { return of.block == src.block }
	if b := src.block; b.router != nil && src.tries == nil && !src.either && !slices.ContainsFunc(src.before(), inside) {
		b.taken = true
		n.In = append(n.In, kahn.Edge{From: b.router.id, Label: b.label})
	}
}

// The method param turns a value into a parameter of a map or a sub-pipeline. The nested runs get this parameter. A root input
// keeps its name.
func (src *source) param(of *source, name string) {
	n := &src.node
	if of.input {
		if !slices.ContainsFunc(n.Ports, func(p kahn.Port) bool { return p.Name == name }) {
			n.Ports = append(n.Ports, kahn.Port{Name: name})
		}
		return
	}
	if !slices.ContainsFunc(n.In, func(e kahn.Edge) bool { return e.From == of.id && e.Param == name }) {
		n.In = append(n.In, kahn.Edge{From: of.id, Param: name})
	}
}

// check reports the values that the node cannot take, and the nodes that it cannot follow.
func (src *source) check() {
	if src.either {
		src.checkEither()
		return
	}
	build := src.block.in.build
	report := func(of *source, verb string) {
		build.report("node %q: %w: it %s %q, which exists only in %v, but %q is in %v: add %q to that branch, or join the values of the branches by Either",
			src.id, ErrBranch, verb, of.id, of.block, src.id, src.block, src.id)
	}
	for _, of := range slices.Concat(src.takes, src.imported()) {
		if !of.input && !src.block.within(of.block) {
			report(of, "takes")
		}
	}
	for _, of := range src.after {
		if !src.ownJoin() && !src.block.within(of.block) {
			report(of, "follows")
		}
	}
}

// decide turns a node that has branches into a condition, and reports cases without nodes.
func (src *source) decide() {
	build, n := src.block.in.build, &src.node
	switch {
	case src.choice == noChoice:
		if n.Gate != nil && len(n.Gate.Choices) > 0 {
			n.Outputs = []string{"output"} // nodes can take the answer as a value, so the gate needs no branches
		}
		return
	case src.waiting: // a gate's answers are already the labels of the branches
	case src.choice == choiceIf:
		n.Routes, n.Choices = true, []string{"true", "false"}
	default:
		n.Routes, n.NoMatch = true, kahn.NoMatchFail
	}
	for _, b := range src.cases {
		if src.choice == choiceSwitch && !b.taken {
			build.report("node %q: %w: its case %q has no node: add a node, or leave the case out", src.id, kahn.ErrBadValue, b.label)
		}
	}
}
