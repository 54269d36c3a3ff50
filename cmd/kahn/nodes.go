package main

import (
	"fmt"
	"iter"

	"github.com/seed-c794f7ef/kahn/definition"
)

// place is the position of a part of a document.
type place struct {
	path  string            // the path of the part, such as $.nodes[3].config
	node  string            // the path of the node around the part, such as S/x
	graph *definition.Value // the graph that contains the node
	outer *definition.Value // the composite that contains the graph; nil for the outermost graph
}

// The method `in` returns the place of a part within p. path leads from p to this part.
func (p place) in(path string) place {
	p.path += path
	return p
}

// nodesOf yields the nodes of a definition. After a composite come the nodes of its sub-graph.
func nodesOf(root *definition.Value) iter.Seq2[place, *definition.Value] {
	return func(yield func(place, *definition.Value) bool) {
		eachNode(root, nil, place{path: "$"}, yield)
	}
}

func eachNode(graph, outer *definition.Value, at place, yield func(place, *definition.Value) bool) bool {
	prefix := at.node
	if prefix != "" {
		prefix += "/"
	}
	nodes := items(member(graph, "nodes"))
	for i := range nodes {
		n := &nodes[i]
		inner := place{fmt.Sprintf("%s.nodes[%d]", at.path, i), prefix + text(n, "id"), graph, outer}
		if !yield(inner, n) {
			return false
		}
		if sub := member(n, "graph"); sub != nil && !eachNode(sub, n, inner.in(".graph"), yield) {
			return false
		}
	}
	return true
}
