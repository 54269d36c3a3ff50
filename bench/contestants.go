package main

import (
	"context"
	"errors"
	"strconv"

	"github.com/seed-c794f7ef/kahn"
)

// job is a task for an executor: a shape, a step and a limit.
type job struct {
	shape *shape
	visit func(node int) // the step of every node; nil means the cheapest step that does nothing
	limit int            // the number of steps that may run at the same time; 0 means no limit
	kinds []string       // the kinds of the nodes; may be nil
	ends  bool           // whether the caller's context may end, as in nearly all programs
}

// lasting is a context that may end, but is never cancelled.
var lasting, _ = context.WithCancel(context.Background())

// The method `context` returns the context with which the caller runs the graph.
func (j job) context() context.Context {
	if j.ends {
		return lasting
	}
	return context.Background()
}

// contestant is an executor. The function `prepare` does all work that is needed once per graph, and returns a function that runs the graph.
type contestant struct {
	name    string
	prepare func(j job) (run func() error, err error)
}

// underContext returns a copy of c that runs the graph under a context that may end.
func (c contestant) underContext() contestant {
	return contestant{c.name, func(j job) (func() error, error) {
		j.ends = true
		return c.prepare(j)
	}}
}

var (
	kahnEager     = contestant{"kahn", func(j job) (func() error, error) { return prepareKahn(j) }}
	kahnBuilt     = contestant{"kahn", prepareBuilt}
	kahnLearned   = contestant{"kahn, learned", func(j job) (func() error, error) { return prepareLearned(j, "") }}
	kahnKinds     = contestant{"kahn, learned by kind", func(j job) (func() error, error) { return prepareLearned(j, "earlier ") }}
	kahnWaves     = contestant{"kahn, Waves", func(j job) (func() error, error) { return prepareKahn(j, kahn.Waves) }}
	handPlain     = contestant{"hand-written", func(j job) (func() error, error) { return prepareHand(j, false) }}
	handClocked   = contestant{"hand-written, clock", func(j job) (func() error, error) { return prepareHand(j, true) }}
	errgroupChans = contestant{"errgroup and channels", prepareErrgroup}
)

// errNoLimit is returned if a job has a limit, and the executor cannot limit how many steps run at the same time.
var errNoLimit = errors.New("it has no limit on concurrency")

// kahnGraph makes the graph of a shape as a program makes a graph that it loads: it first adds all nodes, and then all edges. If config is true, the
// Config of each node is the node's number.
func kahnGraph(s *shape, config bool) *kahn.Graph {
	g := &kahn.Graph{}
	nodes := make([]kahn.Node, s.n)
	for i := range nodes {
		nodes[i].ID = strconv.Itoa(i)
		if config {
			nodes[i].Config = i
		}
	}
	edges := make([]kahn.Edge, len(s.edges))
	for i, e := range s.edges {
		edges[i] = kahn.Edge{From: nodes[e[0]].ID, To: nodes[e[1]].ID}
	}
	g.Add(nodes...)
	g.Connect(edges...)
	return g
}

// prepareLearned is like prepareKahn, but the runs have a History that has recorded one run. If prefix is not empty, the nodes of the recorded run
// have other names than the nodes of the measured runs. The measured runs then get only the mean durations of kinds from the History.
func prepareLearned(j job, prefix string) (func() error, error) {
	h, step, ctx := &kahn.History{}, kahnStep(j.visit), context.Background()
	opts := []kahn.Option{h}
	if j.limit > 0 {
		opts = append(opts, kahn.Limit(j.limit))
	}
	g := &kahn.Graph{}
	for i, n := range kahnGraph(j.shape, true).Nodes() {
		if n.ID = prefix + n.ID; j.kinds != nil {
			n.Kind = j.kinds[i]
		}
		g.Add(n)
	}
	if _, err := kahn.Execute(ctx, g, step, h); err != nil {
		return nil, err
	}
	return prepareKahn(j, opts...)
}

// prepareBuilt is like prepareKahn, but adds each node together with its in-edges, as a program does that builds a graph for one run.
func prepareBuilt(j job) (func() error, error) {
	g, in := &kahn.Graph{}, j.shape.predecessors()
	ids := make([]string, j.shape.n)
	for i := range ids {
		ids[i] = strconv.Itoa(i)
		row := in.row(i)
		after := make([]string, len(row))
		for k, from := range row {
			after[k] = ids[from]
		}
		n := kahn.Node{ID: ids[i], After: after}
		if j.visit != nil {
			n.Config = i
		}
		g.Add(n)
	}
	plan, err := g.Compile()
	if err != nil {
		return nil, err
	}
	step, ctx := kahnStep(j.visit), j.context()
	var opts []kahn.Option
	if j.limit > 0 {
		opts = append(opts, kahn.Limit(j.limit))
	}
	return func() error {
		_, err := plan.Execute(ctx, step, opts...)
		return err
	}, nil
}

// kahnStep returns a step that calls visit with the number of its node, or a step that does nothing if visit is nil.
func kahnStep(visit func(node int)) kahn.StepFunc {
	if visit == nil {
		return func(context.Context, *kahn.Step) (any, error) { return nil, nil }
	}
	return func(_ context.Context, s *kahn.Step) (any, error) {
		visit(s.Config().(int))
		return nil, nil
	}
}

func prepareKahn(j job, opts ...kahn.Option) (func() error, error) {
	g := kahnGraph(j.shape, j.visit != nil)
	if j.kinds != nil {
		kinds := &kahn.Graph{}
		for i, n := range g.Nodes() {
			n.Kind = j.kinds[i]
			kinds.Add(n)
		}
		g = kinds.Connect(g.Edges()...)
	}
	plan, err := g.Compile()
	if err != nil {
		return nil, err
	}
	if j.limit > 0 {
		opts = append(opts, kahn.Limit(j.limit))
	}
	step, ctx := kahnStep(j.visit), j.context()
	return func() error {
		_, err := plan.Execute(ctx, step, opts...)
		return err
	}, nil
}

func handStep(visit func(node int)) stepFunc {
	if visit == nil {
		return func(context.Context, int) error { return nil }
	}
	return func(_ context.Context, node int) error {
		visit(node)
		return nil
	}
}

func prepareHand(j job, clock bool) (func() error, error) {
	h := newHandWritten(j.shape, handStep(j.visit))
	h.limit, h.clock = j.limit, clock
	ctx := j.context()
	return func() error {
		_, err := h.run(ctx)
		return err
	}, nil
}

func prepareErrgroup(j job) (func() error, error) {
	w := newWithErrgroup(j.shape, handStep(j.visit))
	w.limit = j.limit
	ctx := j.context()
	return func() error { return w.run(ctx) }, nil
}
