package main

import (
	"fmt"
	"iter"

	"go.yaml.in/yaml/v4"
)

// place is a part of a document.
type place struct {
	path  string     // of the part, such as $.nodes[3].config
	node  string     // the path of the node that it belongs to, such as S/x
	graph *yaml.Node // the graph that the node is in
}

// nodesOf yields the nodes of a definition, those of its sub-graphs after the node around them.
func nodesOf(root *yaml.Node) iter.Seq2[place, *yaml.Node] {
	return func(yield func(place, *yaml.Node) bool) {
		eachNode(root, place{path: "$"}, 0, yield)
	}
}

func eachNode(graph *yaml.Node, at place, depth int, yield func(place, *yaml.Node) bool) bool {
	if depth > maxDepth { // an alias contains itself
		return true
	}
	prefix := at.node
	if prefix != "" {
		prefix += "/"
	}
	for i, n := range items(field(graph, "nodes")) {
		n = resolve(n)
		inner := place{fmt.Sprintf("%s.nodes[%d]", at.path, i), prefix + text(n, "id"), graph}
		if !yield(inner, n) {
			return false
		}
		if sub := field(n, "graph"); sub != nil && !eachNode(sub, place{path: inner.path + ".graph", node: inner.node}, depth+1, yield) {
			return false
		}
	}
	return true
}

// idsOf returns the ids of the nodes of a graph, without those of its sub-graphs.
func idsOf(graph *yaml.Node) (ids []string) {
	for _, n := range items(field(graph, "nodes")) {
		ids = append(ids, text(n, "id"))
	}
	return ids
}
