package typed

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/internal/prepared"
)

// Pipeline is a graph of typed nodes whose result is a T. It holds no state of runs, so any number of runs may use it at once. [New]
// makes pipelines.
type Pipeline[T any] struct {
	build  building
	graph  *kahn.Graph
	plan   *kahn.Plan
	result string
	view   view[T]
	opts   [1]kahn.Option // the option that Encoding returns
}

// New makes a pipeline: f adds its nodes to the block, and returns the value that is the result. [Pipeline.Plan] reports all mistakes that the
// compiler cannot find, in one *kahn.GraphError. Each function that runs the pipeline returns this error, too. In this error errors.Is finds
// [ErrElsewhere], [ErrBranch], kahn.ErrDuplicateNode, kahn.ErrType, kahn.ErrBadValue, and the errors of kahn.Graph.Compile.
func New[T any](name string, f func(b *Block) Val[T]) *Pipeline[T] {
	p := &Pipeline[T]{build: building{name: name}}
	build := &p.build
	top := newFlow(build, nil)
	p.graph = top.graph
	if f == nil {
		build.report("%w: the function that adds the nodes is nil", kahn.ErrBadValue)
	} else {
		result := f(&top.top)
		top.returns(result.src)
		p.result, p.view = result.ID(), result.view
	}
	build.finished.Store(true)
	p.opts[0] = prepared.Types(&build.types).(kahn.Option)
	build.types.check(build)
	top.lower()
	if build.err() == nil {
		p.plan, build.compiled = top.graph.Compile()
	}
	if build.err() != nil {
		top.duplicates()
	}
	return p
}

// building is the state of New.
type building struct {
	name  string
	types typeList

	finished atomic.Bool
	compiled error      // the error of Compile
	mu       sync.Mutex // guards the problems, since any goroutine may call functions after New has returned
	problems kahn.GraphError
}

// maxProblems is how many problems an error lists.
const maxProblems = 100

// The method report adds a problem.
func (x *building) report(format string, args ...any) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.problems.Problems) == maxProblems {
		x.problems.More++
		return
	}
	x.problems.Problems = append(x.problems.Problems, fmt.Errorf(format, args...))
}

// The method `over` reports whether New has returned. If New has returned, the method also adds a problem for the late call, with the id of the node
// or input that the call is about.
func (x *building) over(id string) bool {
	if !x.finished.Load() {
		return false
	}
	x.report("%q: %w: New has returned: only the function given to New may add or change nodes and inputs", id, kahn.ErrBadValue)
	return true
}

// err returns the problems, or nil.
func (x *building) err() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.problems.Problems) == 0 {
		return x.compiled
	}
	return &kahn.GraphError{Graph: x.name, Problems: slices.Clone(x.problems.Problems), More: x.problems.More}
}

// Plan returns the compiled graph. The error lists the mistakes that [New] describes.
func (p *Pipeline[T]) Plan() (*kahn.Plan, error) {
	if p == nil {
		return nil, kahn.ErrNoGraph
	}
	if err := p.build.err(); err != nil {
		return nil, err
	}
	return p.plan, nil
}

// Graph returns the graph of the pipeline, for a [kahn.Runner], a picture or a test. A host that runs the graph passes
// [Pipeline.Encoding] as an option. The error lists the mistakes that [New] describes.
func (p *Pipeline[T]) Graph() (*kahn.Graph, error) {
	if p == nil {
		return nil, kahn.ErrNoGraph
	}
	if err := p.build.err(); err != nil {
		return nil, err
	}
	return p.graph, nil
}

// Types returns the types of the pipeline's values, which a codec of the host needs: [kahn.Encoding], or a codec that encrypts. Types are
// registered by their full names, such as "example.com/shop.Order": if a type is moved or renamed, runs that were stored earlier cannot find the
// type. Interface types are not registered.
func (p *Pipeline[T]) Types() kahn.Types {
	return maps.Clone(p.build.types.Types())
}

// Encoding returns the option that makes the pipeline's types known to snapshots and stores. [Run], [Pipeline.Execute] and [Pipeline.Start]
// apply it.
func (p *Pipeline[T]) Encoding() kahn.Option { return p.opts[0] }

// The method options puts the encoding before the options of a run.
func (p *Pipeline[T]) options(opts []kahn.Option) []kahn.Option {
	return append(p.opts[:], opts...)
}

// Execute runs the pipeline as [kahn.Plan.Execute] does. [Pipeline.Output] returns the result.
func (p *Pipeline[T]) Execute(ctx context.Context, opts ...kahn.Option) (*kahn.Result, error) {
	plan, err := p.Plan()
	if err != nil {
		return nil, err
	}
	return plan.Execute(ctx, nil, p.options(opts)...)
}

// Start begins a run of the pipeline as [kahn.Plan.Start] does.
func (p *Pipeline[T]) Start(ctx context.Context, opts ...kahn.Option) (*kahn.Run, error) {
	plan, err := p.Plan()
	if err != nil {
		return nil, err
	}
	return plan.Start(ctx, nil, p.options(opts)...)
}

// Output returns the result of a run of the pipeline. If the node of the result has not completed, the error matches [kahn.ErrNoValue] and says why,
// with the errors of at most five failed nodes. A suspended run has no result, even if the node has completed: the error then matches
// [kahn.ErrSuspended]. If test mode or a store supplied a value of another type, the error matches [kahn.ErrType].
func (p *Pipeline[T]) Output(res *kahn.Result) (t T, err error) {
	n, ok := res.Node(p.result)
	switch {
	case !ok:
		return t, fmt.Errorf("result %q: %w", p.result, kahn.ErrUnknownNode)
	case res.Status == kahn.RunSuspended && n.Status.Terminal():
		return t, fmt.Errorf("result %q: it is %v, but other nodes have not ended: %w", p.result, n.Status, kahn.ErrSuspended)
	case res.Status == kahn.RunSuspended:
		_, err = kahn.Output[any](res, p.result)
		return t, err
	case n.Status == kahn.Completed:
		if t, err = p.view.read(nil, p.result, n.Output); err != nil {
			return t, fmt.Errorf("result %q: %w", p.result, err)
		}
		return t, nil
	}
	return t, noOutput(res, n)
}

// noOutput returns the error that says why a run has no result.
func noOutput(res *kahn.Result, n kahn.NodeResult) error {
	text := fmt.Sprintf("it is %v", n.Status)
	if n.Status == kahn.Skipped {
		text += ": " + n.Skip.String()
	}
	const most = 5
	format, args := "result %q: %w: %s", []any{n.ID, kahn.ErrNoValue, text}
	failures := 0
	// A failure that a Try has caught counts, too: because of it, other nodes that take the failed node's value were skipped.
	for other := range res.Nodes() {
		if other.Status != kahn.Failed {
			continue
		}
		if failures++; failures > most {
			format += "; and more"
			break
		}
		format, args = format+"; %w", append(args, other.Err)
	}
	return fmt.Errorf(format, args...)
}

// Run runs a pipeline and returns its result. It takes the options of [kahn.Execute], for example inputs, a store or limits.
//
// Run calls [Pipeline.Execute] and then [Pipeline.Output]. So the error is a *kahn.RunError if the run failed or was cancelled. If the run did not
// begin, the error is an error of [New] or of kahn.Execute. A suspended run has not failed, but has no output yet. Then Output
// returns an error that matches [kahn.ErrSuspended]. Use Execute to get the Result of such a run, for [kahn.Result.Waiting] and
// [kahn.Result.Snapshot].
func Run[T any](ctx context.Context, p *Pipeline[T], opts ...kahn.Option) (t T, err error) {
	res, err := p.Execute(ctx, opts...)
	if err != nil {
		return t, err
	}
	return p.Output(res)
}
