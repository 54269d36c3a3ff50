package typed

import (
	"errors"
	"fmt"

	"github.com/seed-c794f7ef/kahn"
)

// ErrElsewhere means that a node takes a value of another pipeline. It also means that a node outside a sub-pipeline takes a value made inside,
// instead of the value that [Sub] returns.
var ErrElsewhere = errors.New("a value made elsewhere")

// Sub adds a sub-pipeline: a node that a nested run performs. f adds the nested run's nodes to its block, and returns the value that
// becomes the node's value. f may take values of the surrounding blocks, like variables in a function literal. These values become inputs of
// the nested run.
//
//	receipt := typed.Sub(b, "checkout", func(b *typed.Block) typed.Val[Receipt] { return checkout(b, order) })
//
// Nodes of different sub-pipelines may have the same ids, so any number of sub-pipelines can use the same function f. In events the nodes have
// paths, such as "checkout/charge". Options.Retry repeats the whole sub-pipeline, Timeout bounds it, and [Try] returns its error.
func Sub[T any](b *Block, id string, f func(b *Block) Val[T]) Val[T] {
	src := b.add(id, f == nil)
	if src == nil || f == nil {
		return Val[T]{}
	}
	return sub(src, f)
}

func sub[T any](src *source, f func(*Block) Val[T]) Val[T] {
	build := src.block.in.build
	inner := newFlow(build, src)
	src.more().inner = inner
	result := f(&inner.top)
	inner.returns(result.src)
	return Val[T]{src: src, view: func(s *kahn.Step, id string, v any) (t T, err error) {
		if v == nil && any(t) != nil { // T is not an interface type, so nil means that there is no result
			return t, missing(fmt.Sprintf("the result of %q was skipped", id))
		}
		return result.view.read(s, id, v)
	}}
}

// The method `returns` sets the value that is the output of the graph.
func (f *flow) returns(src *source) {
	switch {
	case src == nil:
		f.build.report("%v: %w: its function returns the zero Val: return the value of a node", &f.top, kahn.ErrBadValue)
	case src.block.in != f, src.input:
		f.build.report("%v: %w: its function returns %q, which is not the value of a node that the function has added: return the value of such a node", &f.top, ErrElsewhere, src.id)
	case src.block != &f.top:
		f.build.report("%v: %w: it returns %q, which exists only in %v: join the values of the branches by Either", &f.top, ErrBranch, src.id, src.block)
	default:
		f.result = src
	}
}

// The method elsewhere reports a value that a node cannot take.
func (x *building) elsewhere(node, of *source) {
	if of.block.in.build != x {
		x.report("node %q takes %q, %w: it belongs to the pipeline %q", node.id, of.id, ErrElsewhere, of.block.in.build.name)
		return
	}
	x.report("node %q takes %q, %w: it is made inside %v: let the function of that pipeline return it", node.id, of.id, ErrElsewhere, &of.block.in.top)
}
