package typed

import (
	"context"
	"fmt"
	"slices"

	"github.com/seed-c794f7ef/kahn"
)

// Block is a place where nodes are added: the pipeline itself, a branch of it, or the inside a sub-pipeline. Values have the scope
// that variables have in Go: what was made in a block can be taken there and in the blocks within. [Either] brings a value
// out of a branch, and the result of its function out of a sub-pipeline.
//
// A Block is used by one goroutine, and until [New] returns.
type Block struct {
	in     *flow
	parent *Block
	router *source // of a branch: the node whose output decides whether it is taken
	label  string
	taken  bool // of a branch: a node hangs on its edge
}

// Graph returns the graph that the block belongs to, for what belongs to the whole of it: Defaults, Groups, and nodes that are not
// typed, such as an end node. The nodes of the pipeline are added to it when [New] returns.
func (b *Block) Graph() *kahn.Graph {
	if b == nil {
		return nil
	}
	return b.in.graph
}

// within reports whether what was made in the block outer can be taken in b.
func (b *Block) within(outer *Block) bool {
	for ; b != nil; b = b.parent {
		if b == outer {
			return true
		}
	}
	return false
}

// String names the block in errors.
func (b *Block) String() string {
	switch {
	case b.router != nil:
		return fmt.Sprintf("the branch %q of %q", b.label, b.router.id)
	case b.in.owner != nil:
		return fmt.Sprintf("the sub-pipeline %q", b.in.owner.id)
	}
	return fmt.Sprintf("the pipeline %q", b.in.build.name)
}

// Val is the value that a node of a pipeline will have in a run. It stands for the value when functions are connected, as a
// variable does in a program. Values come from the functions of this package alone; the zero Val is reported by [New].
type Val[T any] struct {
	src  *source
	view view[T]
}

// view returns a value that a node does not keep as a T, such as the list of a map, which kahn keeps as []any.
type view[T any] func(s *kahn.Step, id string, v any) (T, error)

// Handle is any [Val]. It is for lists of values whose types do not matter, as in [Options].
type Handle interface {
	source() *source
}

func (v Val[T]) source() *source { return v.src }

// ID returns the id of the node that makes the value, or the name of the root input. It is empty for the zero Val.
func (v Val[T]) ID() string {
	if v.src == nil {
		return ""
	}
	return v.src.id
}

// source is what a value comes from: a node, or an input of the graph.
type source struct {
	block *Block
	id    string
	input bool    // it is a root input of the graph, and no node
	item  bool    // it is the input that has the item of an EachSub
	from  *source // of an input: what it comes from in the graph around; of an item: the node that has it, if one is needed
	node  kahn.Node
	zero  any       // of a root input: a pointer to its type
	takes []*source // the values that it takes, each of its own graph
	after []*source
	opts  *Options

	either  bool
	tries   *source              // of Try: the node that may fail
	over    bool                 // it is an Each, and takes its list as a parameter
	inner   *flow                // the graph of a sub-pipeline; else nil
	cases   []*Block             // the branches that the output decides on, in the order in which they were asked for
	choice  choice               // what makes the output a choice
	answer  func(out any) string // of a choice: the label of the branch that an output takes
	waiting bool                 // it is a gate
	text    bool                 // of a gate: its value is a text
	imports []*source            // of a sub-pipeline: the inputs of its graph by which values come in from around it
	undone  bool                 // it has a Compensate
	result  any                  // of an Each: the view of a result
}

// choice says how a node's output became a choice.
type choice uint8

const (
	noChoice choice = iota
	choiceIf
	choiceSwitch
)

// flow is a graph that is being built.
type flow struct {
	build  *building
	graph  *kahn.Graph
	outer  *Block  // of a sub-pipeline: the block that it is in
	owner  *source // of a sub-pipeline: its node
	top    *Block
	nodes  []*source // in the order of declaration
	names  map[string]*source
	taken  map[*source]*source // values of the graphs around, and the inputs by which they come in
	result *source             // of the pipeline, or of the sub-pipeline
}

// newFlow begins the graph of a pipeline, or of a node's sub-pipeline.
func newFlow(build *building, owner *source) *flow {
	f := &flow{build: build, graph: &kahn.Graph{Name: build.name}, owner: owner, names: map[string]*source{}, taken: map[*source]*source{}}
	f.top = &Block{in: f}
	if owner != nil {
		f.outer, f.graph.Name = owner.block, owner.id
	}
	return f
}

// declare adds a source to the graph.
func (f *flow) declare(src *source) {
	if src.id == "" {
		f.build.report("%w: a node of %v has an empty id", kahn.ErrBadValue, f.top)
	} else if f.names[src.id] != nil {
		f.build.report("%w: %q occurs twice in %v: nodes and root inputs have different names", kahn.ErrDuplicateNode, src.id, f.top)
	}
	f.names[src.id] = src
	if !src.input {
		f.nodes = append(f.nodes, src)
	}
}

// add begins a node. It returns nil if there is no block, and after New has returned: the zero Val that follows is reported where it is
// taken.
func (b *Block) add(id string, missing bool) *source {
	if b == nil {
		return nil
	}
	src := &source{block: b, id: id, node: kahn.Node{ID: id}}
	build := b.in.build
	if build.over(id) {
		return nil
	}
	if missing {
		build.report("node %q: %w: its function is nil", id, kahn.ErrBadValue)
	}
	b.in.declare(src)
	return src
}

// reach returns the source by which a value can be taken in the graph f: the one given, or the input by which a value of a
// graph around f comes in. ok is false for a value of elsewhere.
func (f *flow) reach(src *source) (_ *source, ok bool) {
	if src.block.in == f {
		return src, true
	}
	if f.outer == nil {
		return nil, false
	}
	up, ok := f.outer.in.reach(src)
	if !ok {
		return nil, false
	}
	if in := f.taken[up]; in != nil {
		return in, true
	}
	in := &source{block: f.top, id: src.path(), input: true, from: up.kept()}
	f.taken[up] = in
	f.declare(in)
	f.owner.imports = append(f.owner.imports, in)
	return in, true
}

// path names the value in the graphs within its own: the name of a root input, or the place of a node, such as "/S/x" for x in the sub-pipeline
// S.
func (src *source) path() string {
	if src.input && !src.item {
		return src.id
	}
	path := "/" + src.id
	for f := src.block.in; f.owner != nil; f = f.owner.block.in {
		path = "/" + f.owner.id + path
	}
	return path
}

// kept returns the source itself, or in place of the item of an EachSub a node that has it: the items of different lists have one name, so
// that a graph within needs another one.
func (src *source) kept() *source {
	if !src.item {
		return src
	}
	f := src.block.in
	if src.from == nil {
		src.from = &source{block: f.top, id: src.id}
		src.from.node = kahn.Node{ID: src.id, Do: func(_ context.Context, s *kahn.Step) (any, error) {
			v, _ := s.Root(src.id)
			return v, nil
		}}
		f.nodes = append(f.nodes, src.from)
	}
	return src.from
}

// take makes a node take a value, and returns the source of it in the node's graph; nil for a value that it cannot take.
func (src *source) take(of *source, number int) *source {
	build := src.block.in.build
	if of == nil {
		build.report("node %q: %w: input %d is the zero Val, which no node makes", src.id, kahn.ErrBadValue, number)
		return nil
	}
	in, ok := src.block.in.reach(of)
	if !ok {
		build.elsewhere(src, of)
		return nil
	}
	src.takes = append(src.takes, in)
	return in
}

// in is a value as the function of a node takes it.
type in[T any] struct {
	name string
	root bool // an input of the graph, not the output of a node
	view view[T]
}

// input makes a node take a value. It is the input with the given number, from 1.
func input[T any](src *source, v Val[T], number int) in[T] {
	if src == nil {
		return in[T]{}
	}
	of := src.take(v.src, number)
	if of == nil {
		return in[T]{}
	}
	return in[T]{name: of.id, root: of.input, view: v.view}
}

// raw returns the value as the node keeps it.
func (x *in[T]) raw(s *kahn.Step) (any, bool) {
	if x.root {
		return s.Root(x.name)
	}
	return s.Upstream(x.name)
}

// get returns the value in a run.
func (x *in[T]) get(s *kahn.Step) (T, error) {
	v, ok := x.raw(s)
	if t, is := v.(T); is && x.view == nil { // a view may leave out items of a list of any
		return t, nil
	}
	return x.convert(s, v, ok)
}

// missing is the error of a value that is not there, and says why. The Join of the node, or the ContinueOnFail of the node that makes
// the value, has let it run; it skips itself.
type missing string

func (m missing) Error() string { return string(m) }

func (m missing) Is(target error) bool { return target == kahn.ErrNoValue }

// convert is get for a value that is no T.
func (x *in[T]) convert(s *kahn.Step, v any, ok bool) (t T, err error) {
	switch {
	case !ok && x.root:
		_, err = kahn.Root[any](s, x.name)
		return t, missing(err.Error())
	case !ok:
		_, err = kahn.Upstream[any](s, x.name)
		return t, missing(err.Error())
	}
	return x.view.read(s, x.name, v)
}

// read returns a value as a T.
func (f view[T]) read(s *kahn.Step, id string, v any) (T, error) {
	if _, list := v.([]any); list && f != nil { // a T may be such a list, too
		return f(s, id, v)
	}
	if t, is := v.(T); is {
		return t, nil
	}
	if f != nil {
		return f(s, id, v)
	}
	return plain[T](id, v)
}

// add completes a node whose function returns a T.
func add[T any](src *source, f func(s *kahn.Step) (T, error)) Val[T] {
	if src == nil {
		return Val[T]{}
	}
	register[T](src.block.in.build)
	src.node.Do = func(_ context.Context, s *kahn.Step) (any, error) {
		t, err := f(s)
		if err != nil {
			return nil, failure(err)
		}
		return t, nil
	}
	return Val[T]{src: src}
}

// failure is the error of a function, or of its values, as the engine has it.
func failure(err error) error {
	if m, is := err.(missing); is {
		return kahn.Skip(string(m))
	}
	return err
}

// branch returns the branch that is taken for a label.
func (src *source) branch(label string) *Block {
	i := slices.IndexFunc(src.cases, func(b *Block) bool { return b.label == label })
	if i < 0 {
		i = len(src.cases)
		src.cases = append(src.cases, &Block{in: src.block.in, parent: src.block, router: src, label: label})
	}
	return src.cases[i]
}
