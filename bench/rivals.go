//go:build rivals

package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/cloudwego/eino/compose"
	"github.com/heimdalr/dag"
)

// libraries contains the other libraries that execute graphs.
var libraries = []contestant{{"heimdalr/dag", prepareHeimdalr}, {"cloudwego/eino", prepareEino}}

// prepareHeimdalr prepares github.com/heimdalr/dag. A flow starts at one vertex, so a graph with several roots gets an extra vertex before the
// roots. The extra vertex is not a step.
func prepareHeimdalr(j job) (func() error, error) {
	if j.limit > 0 {
		return nil, errNoLimit
	}
	d := dag.NewDAG()
	const source = "source"
	ids := make([]string, j.shape.n)
	for node := range ids {
		ids[node] = strconv.Itoa(node)
		if err := d.AddVertexByID(ids[node], node); err != nil {
			return nil, err
		}
	}
	start := ids[0]
	roots := []string{}
	for node, in := range j.shape.indegrees() {
		if in == 0 {
			roots = append(roots, ids[node])
		}
	}
	// The edges are added from the end to the beginning. For each edge the library visits all descendants of the edge's target, to look for
	// a cycle. It caches the descendants of a vertex until an edge among them changes. In this order the caches stay valid.
	for i := len(j.shape.edges) - 1; i >= 0; i-- {
		e := j.shape.edges[i]
		if err := d.AddEdge(ids[e[0]], ids[e[1]]); err != nil {
			return nil, err
		}
	}
	if len(roots) > 1 {
		start = source
		if err := d.AddVertexByID(source, source); err != nil {
			return nil, err
		}
		for _, root := range roots {
			if err := d.AddEdge(source, root); err != nil {
				return nil, err
			}
		}
	}
	callback := func(*dag.DAG, string, []dag.FlowResult) (any, error) { return nil, nil }
	if j.visit != nil {
		callback = func(_ *dag.DAG, id string, _ []dag.FlowResult) (any, error) {
			if id == source {
				return nil, nil
			}
			node, err := strconv.Atoi(id)
			if err == nil {
				j.visit(node)
			}
			return node, err
		}
	}
	return func() error {
		results, err := d.DescendantsFlow(start, nil, callback)
		for _, r := range results {
			err = errors.Join(err, r.Error)
		}
		return err
	}, nil
}

// token is the value that eino passes along edges. eino requires a value on each edge, and a function that merges several values into one.
type token struct{}

func init() {
	compose.RegisterValuesMergeFunc(func([]token) (token, error) { return token{}, nil })
}

// prepareEino prepares a graph of github.com/cloudwego/eino. The graph has the mode AllPredecessor: a node runs as soon as all its
// predecessors have run.
func prepareEino(j job) (func() error, error) {
	if j.limit > 0 {
		return nil, errNoLimit
	}
	ctx := j.context()
	g := compose.NewGraph[token, token]()
	ids := make([]string, j.shape.n)
	for node := range ids {
		ids[node] = strconv.Itoa(node)
		step := func(context.Context, token) (token, error) { return token{}, nil }
		if j.visit != nil {
			step = func(context.Context, token) (token, error) {
				j.visit(node)
				return token{}, nil
			}
		}
		if err := g.AddLambdaNode(ids[node], compose.InvokableLambda(step)); err != nil {
			return nil, err
		}
	}
	for node, in := range j.shape.indegrees() {
		if in == 0 {
			if err := g.AddEdge(compose.START, ids[node]); err != nil {
				return nil, err
			}
		}
	}
	for _, e := range j.shape.edges {
		if err := g.AddEdge(ids[e[0]], ids[e[1]]); err != nil {
			return nil, err
		}
	}
	for node, out := range j.shape.outdegrees() {
		if out == 0 {
			if err := g.AddEdge(ids[node], compose.END); err != nil {
				return nil, err
			}
		}
	}
	r, err := g.Compile(ctx, compose.WithNodeTriggerMode(compose.AllPredecessor))
	if err != nil {
		return nil, fmt.Errorf("compile: %w", err)
	}
	return func() error {
		_, err := r.Invoke(ctx, token{})
		return err
	}, nil
}

// outdegrees returns, for each node, the number of its out-edges.
func (s *shape) outdegrees() []int32 {
	out := make([]int32, s.n)
	for _, e := range s.edges {
		out[e[0]]++
	}
	return out
}
