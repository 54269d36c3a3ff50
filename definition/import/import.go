package importer

import (
	"cmp"
	"slices"
	"strings"

	"github.com/seed-c794f7ef/kahn/definition"
)

// Parse reads a JSON document in one of this package's formats, and converts it. It is a Parse function for a [definition.Loader].
func Parse(data []byte, limits definition.Limits) (*definition.Value, error) {
	return From(definition.Parse)(data, limits)
}

// From returns a function like Parse for another syntax. For example, if the argument is the function Parse of package definition/yaml,
// the returned function reads YAML.
func From(parse func([]byte, definition.Limits) (*definition.Value, error)) func([]byte, definition.Limits) (*definition.Value, error) {
	return func(data []byte, limits definition.Limits) (*definition.Value, error) {
		root, err := parse(data, limits)
		if err != nil {
			return nil, err
		}
		return Convert(root)
	}
}

// Convert converts a document into a document of package definition, see [definition.FromTree]. It recognizes the document's format by the
// fields. The error is a [*definition.Error] with the problems in document order.
func Convert(root *definition.Value) (*definition.Value, error) {
	r := reader{scope: scope{ids: map[string]bool{}}, groups: map[string]*group{}, members: map[string]string{}}
	top := place{root, "$"}
	var converted *definition.Value
	switch {
	case !r.expect(top, definition.Object):
	case top.has("workflow"):
		converted = r.playbook(top)
	case top.has("steps") || top.has("spec"):
		converted = r.steps(top)
	case top.hasEdges():
		converted = r.edges(top)
	default:
		r.add(top, definition.ErrUnsupported, "%s", top.reason())
	}
	if r.compared > maxCompared {
		r.add(top, definition.ErrLimit, "the steps have too many ports: more than %d comparisons with the outputs before them", maxCompared)
	}
	if len(r.err.Problems) > 0 {
		slices.SortStableFunc(r.err.Problems, func(a, b *definition.Problem) int { return cmp.Compare(a.Position.Offset, b.Position.Offset) })
		return nil, &r.err
	}
	return converted, nil
}

// hasEdges reports whether the document has the format "nodes and edges".
func (p place) hasEdges() bool {
	for list, keys := range map[string][]string{"nodes": {"lens_id"}, "edges": {"source_node_id", "target_node_id"}} {
		for _, item := range p.member(list).items() {
			for _, key := range keys {
				if item.has(key) {
					return true
				}
			}
		}
	}
	return false
}

// The method `reason` returns why Convert rejects a document that has none of this package's formats.
func (p place) reason() string {
	for _, format := range []struct{ list, key, reason string }{
		{"", "children", "a tree of components is a program that makes a graph; write the graph that it makes, as nodes and edges"},
		{"nodes", "node_type", "nodes with a node_type are the rows in which an engine stores a program that it has compiled; there is no equivalent to its inline nodes and frontiers"},
	} {
		within := []place{p}
		if format.list != "" {
			within = p.member(format.list).items()
		}
		if slices.ContainsFunc(within, func(p place) bool { return p.has(format.key) }) {
			return format.reason
		}
	}
	return `the document has neither "steps", nor a "workflow", nor "nodes" with "source_node_id" and "target_node_id" in its "edges"`
}

// isEnd reports whether a node with this id is the end node.
func isEnd(id string) bool { return strings.EqualFold(id, endID) }

const endID = "end"
