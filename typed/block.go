package typed

import (
	"context"
	"fmt"
	"slices"

	"github.com/seed-c794f7ef/kahn"
)

// Block is a place to add nodes to: the pipeline itself, a branch, or the graph of a sub-pipeline. Values have the scope of Go variables: a node
// can take the values made in its own block and in the blocks around that block. [Either] brings a value out of a branch. The function of a
// sub-pipeline brings a value out of the sub-pipeline by returning the value.
//
// Only one goroutine may use a Block, and only until [New] returns.
type Block struct {
	in     *flow
	parent *Block
	router *source // for a branch: the node whose output decides whether the branch is taken
	label  string
	taken  bool // for a branch: whether a node has the edge with the branch's label
}

// Graph returns the graph that the block belongs to. The host can set its Defaults and Groups, and can add nodes that are not typed, such as an end
// node. New adds the typed nodes to this graph just before New returns.
func (b *Block) Graph() *kahn.Graph {
	if b == nil {
		return nil
	}
	return b.in.graph
}

// within reports whether a node of the block b can take a value that was made in the block "outer".
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

// Val is the value that a node of a pipeline will have in a run. While the pipeline is built, the Val stands for this value, like a variable in a
// program. Only the functions of this package make Vals; [Pipeline.Plan] returns an error if the zero Val is used.
type Val[T any] struct {
	src  *source
	view view[T]
}

// The type view converts a value to a T if kahn keeps it as another type: the result of a map, for example, is kept as []any.
type view[T any] func(s *kahn.Step, id string, v any) (T, error)

// Handle is a [Val] of any type. A list of values of different types is a list of Handles, for example Options.After.
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

// source is the origin of a value: a node, or an input of the graph.
type source struct {
	block *Block
	id    string
	do    kahn.StepFunc
	takes []*source  // the values that the node takes, a value from a surrounding graph appears as the input that delivers it
	few   [3]*source // memory for takes
	next  *source    // the graph's next node, in declaration order
	after *source    // the last node that was found to follow this one
	from  *source    // for the item of an EachSub: the node that the method `kept` has made, or nil; for an input from a surrounding graph: the source there

	input  bool // a root input of the graph, not a node
	item   bool // an input that delivers the item of an EachSub
	either bool
	over   bool   // the node is an Each or EachSub, so it takes its list as a parameter
	text   bool   // for a gate: its value is a text
	choice choice // which function made the output a choice

	*extras // never nil; only the result of the method `more` may be changed
}

// The type extras has the fields that most sources do not need. All sources that need none of the fields share noExtras.
type extras struct {
	zero       any       // for a root input: a pointer to a value of its type
	follows    []*source // the nodes in Options.After
	opts       *Options
	gate       *kahn.Gate
	items      *kahn.Map
	fallback   func(context.Context, error) (any, error)
	compensate func(context.Context, *kahn.Step) error
	tries      *source              // for a Try: the node that may fail
	inner      *flow                // the graph of a sub-pipeline; otherwise nil
	cases      []*Block             // the branches that depend on the output, in the order in which they were requested
	answer     func(out any) string // for a choice: the label of the branch that an output takes
	imports    []*source            // for a sub-pipeline: the inputs of its graph that deliver values from outside
	result     any                  // for an Each: the view that converts the result of an item
}

var noExtras extras

// The method `more` returns the extras of the source, which the caller may change.
func (src *source) more() *extras {
	if src.extras == &noExtras {
		src.extras = new(extras)
	}
	return src.extras
}

// The type choice says which function made a node's output a choice.
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
	outer  *Block  // for a sub-pipeline: the block that contains it
	owner  *source // for a sub-pipeline: its node
	top    Block
	first  *source // the nodes in declaration order, as a list
	last   *source
	space  []source // memory for the next sources
	count  int      // the number of sources
	inputs map[string]*source
	taken  map[*source]*source // the inputs that deliver values of surrounding graphs, by the source of the value
	chosen []*source           // the nodes that If or Switch made choices
	result *source             // the result of the pipeline or the sub-pipeline
}

// newFlow begins the graph of a pipeline, or of a node's sub-pipeline.
func newFlow(build *building, owner *source) *flow {
	f := &flow{build: build, graph: &kahn.Graph{Name: build.name}, owner: owner}
	f.top.in = f
	if owner != nil {
		f.outer, f.graph.Name = owner.block, owner.id
	}
	return f
}

// The method source makes a source. Sources are allocated together, so that a graph takes few objects.
func (f *flow) source(b *Block, id string) *source {
	if len(f.space) == 0 {
		f.space = make([]source, min(max(f.count, 2), 68)) // 68 sources fill 8 KiB
	}
	src := &f.space[0]
	f.space = f.space[1:]
	f.count++
	src.block, src.id, src.extras = b, id, &noExtras
	src.takes = src.few[:0]
	return src
}

// node adds a node to the graph.
func (f *flow) node(src *source) {
	if src.id == "" {
		f.build.report("%w: a node of %v has an empty id", kahn.ErrBadValue, &f.top)
	}
	if f.last == nil {
		f.first = src
	} else {
		f.last.next = src
	}
	f.last = src
}

// input adds a root input to the graph.
func (f *flow) input(id string) *source {
	src := f.source(&f.top, id)
	src.input = true
	switch {
	case id == "":
		f.build.report("%w: an input of %v has an empty name", kahn.ErrBadValue, &f.top)
	case f.inputs[id] != nil:
		f.twice(id)
	}
	if f.inputs == nil {
		f.inputs = map[string]*source{}
	}
	f.inputs[id] = src
	return src
}

// twice reports two nodes or inputs with the same name.
func (f *flow) twice(id string) {
	f.build.report("%w: %q occurs twice in %v: nodes and root inputs have different names", kahn.ErrDuplicateNode, id, &f.top)
}

// The method hasItem reports whether src is the node that the method `kept` has made.
func (f *flow) hasItem(src *source) bool {
	in := f.inputs[src.id]
	return in != nil && in.from == src
}

// duplicates reports nodes with the same id. Compile finds such nodes, too, but only if the pipeline has no other problem.
func (f *flow) duplicates() {
	ids := map[string]bool{}
	for src := f.first; src != nil; src = src.next {
		if src.id != "" && !f.hasItem(src) {
			if ids[src.id] {
				f.twice(src.id)
			}
			ids[src.id] = true
		}
		if src.inner != nil {
			src.inner.duplicates()
		}
	}
}

// add begins a node. It returns nil if New has returned, or if b is nil. The caller then returns the zero Val; Plan returns an error if a node takes
// that Val. The parameter "missing" says whether the node's function is nil.
func (b *Block) add(id string, missing bool) *source {
	if b == nil {
		return nil
	}
	build := b.in.build
	if build.over(id) {
		return nil
	}
	if missing {
		build.report("node %q: %w: its function is nil", id, kahn.ErrBadValue)
	}
	src := b.in.source(b, id)
	b.in.node(src)
	return src
}

// The method reach returns the source of a value in the graph f: src itself, or the input that delivers a value of a surrounding graph. The result
// "ok" is false if f cannot take the value.
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
	in := f.input(src.path())
	in.from = up.kept()
	if f.taken == nil {
		f.taken = map[*source]*source{}
	}
	f.taken[up] = in
	owner := f.owner.more()
	owner.imports = append(owner.imports, in)
	return in, true
}

// path returns the name under which nested graphs get the value. This is the name of a root input, or the path of a node, such as "/S/x" for x in
// the sub-pipeline S.
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

// The method kept returns src. For the item of an EachSub it instead returns a node whose value is the item. A nested graph gets the item from
// this node, under the node's path, because an EachSub in the nested graph uses the item's input name for its own items.
func (src *source) kept() *source {
	if !src.item {
		return src
	}
	f := src.block.in
	if src.from == nil {
		src.from = f.source(&f.top, src.id)
		src.from.do = func(_ context.Context, s *kahn.Step) (any, error) {
			v, _ := s.Root(src.id)
			return v, nil
		}
		f.node(src.from)
	}
	return src.from
}

// take makes the node src take the value of the source "of". It returns the value's source in the node's graph, or nil if the node cannot take the
// value.
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

// The type in describes a value that the function of a node takes. Its methods take no pointer, so that a function literal holds the value itself.
type in[T any] struct {
	name string
	root bool // an input of the graph, not the output of a node
	view view[T]
}

// The function input makes a node take a value. The parameter "number" counts the node's inputs from 1.
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

// The method raw returns the value as kahn keeps it.
func (x in[T]) raw(s *kahn.Step) (any, bool) {
	if x.root {
		return s.Root(x.name)
	}
	return s.Upstream(x.name)
}

// get returns the value in a run.
func (x in[T]) get(s *kahn.Step) (T, error) {
	v, ok := x.raw(s)
	// A view, if there is one, converts even a value that is a T: T may be []any, and the view may drop items of such a list.
	if t, is := v.(T); is && x.view == nil {
		return t, nil
	}
	return x.convert(s, v, ok)
}

// missing is the error for a value that does not exist, with the reason. A node may run without a value because of its own Join, or because the
// node that makes the value has ContinueOnFail. This error makes the node skip itself.
type missing string

func (m missing) Error() string { return string(m) }

func (m missing) Is(target error) bool { return target == kahn.ErrNoValue }

// convert does the work of get for a value that does not exist, is not a T, or has a view.
func (x in[T]) convert(s *kahn.Step, v any, ok bool) (t T, err error) {
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

// The method read returns a value as a T.
func (f view[T]) read(s *kahn.Step, id string, v any) (T, error) {
	if _, list := v.([]any); list && f != nil { // checked first, since T may be []any
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
	return does[T](src, func(_ context.Context, s *kahn.Step) (any, error) { return output(f(s)) })
}

// The function does completes a node whose function returns a T.
func does[T any](src *source, do kahn.StepFunc) Val[T] {
	if src == nil {
		return Val[T]{}
	}
	register[T](src.block.in.build)
	src.do = do
	return Val[T]{src: src}
}

// The function output returns the results of a node's function for the engine.
func output[T any](t T, err error) (any, error) {
	if err != nil {
		return nil, failure(err)
	}
	return t, nil
}

// failure returns the error for the engine: it turns a missing value into a skip, and leaves any other error unchanged.
func failure(err error) error {
	if m, is := err.(missing); is {
		return kahn.Skip(string(m))
	}
	return err
}

// The method branch returns the branch with the label. It makes the branch if there is none.
func (src *source) branch(label string) *Block {
	i := slices.IndexFunc(src.cases, func(b *Block) bool { return b.label == label })
	if i < 0 {
		i = len(src.cases)
		more := src.more()
		more.cases = append(more.cases, &Block{in: src.block.in, parent: src.block, router: src, label: label})
	}
	return src.cases[i]
}
