package definition

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-c794f7ef/kahn"
)

// endpoint returns a field that names a node of the graph.
func endpoint(key string, at func(*kahn.Edge) *string) field[kahn.Edge] {
	f := id(key, at)
	f.read = func(d *decoder, v *Value, to *kahn.Edge) { d.endpoint(v, at(to)) }
	show := f.show
	f.show = func(e *encoder, from *kahn.Edge) (Value, bool) {
		if id := *at(from); id != "" && !e.ids[id] {
			e.noNode(Position{}, id, e.ids)
		}
		return show(e, from)
	}
	return f
}

// noNode reports an id that no node of the graph has.
func (r *report) noNode(at Position, id string, ids map[string]bool) {
	const most = 1000 // in a larger graph the message suggests no id, because comparing all ids for each of many mistakes would take too long
	p := r.add(at, ErrReference, "there is no node %s in this graph", quote(id))
	if p == nil || len(ids) > most {
		return
	}
	known := slices.Sorted(maps.Keys(ids))
	for _, other := range known {
		if alike(id, other) {
			p.Message = fmt.Sprintf("there is no node %.60s in this graph; %.60s looks the same", strconv.QuoteToASCII(id), strconv.QuoteToASCII(other))
			p.Suggestion = other
			return
		}
	}
	p.nearest(id, known)
}

// endpoint reads the id of a node. It reports an id that no node of the graph has.
func (d *decoder) endpoint(v *Value, to *string) {
	switch {
	case !d.expect(v, Text):
	case !d.ids[v.Text]:
		d.noNode(v.At, v.Text, d.ids)
	default:
		*to = v.Text
	}
}

// edgesOf reads one edge or a list of edges. Each edge is the id of a node or an object.
func (d *decoder) edgesOf(v *Value, r *record[kahn.Edge], end func(*kahn.Edge) *string) []kahn.Edge {
	edges := []kahn.Edge{}
	one := func(v *Value) {
		var e kahn.Edge
		d.countEdge(v)
		switch v.Type {
		case Text:
			d.endpoint(v, end(&e))
		case Object:
			r.read(d, v, &e)
		default:
			p := d.add(v.At, ErrType, "expected the id of a node or an object, got %s", v.describe())
			if p != nil && v.Type == Null {
				p.Message += "; leave the field out to have no edge"
			}
		}
		edges = append(edges, e)
	}
	if v.Type == List {
		d.list(v, one)
	} else {
		one(v)
	}
	return edges
}

func (d *decoder) countEdge(v *Value) {
	if d.edges++; d.edges > d.limits.Edges {
		d.stop(v.At, ErrLimit, "more than %d edges", d.limits.Edges)
	}
}

func edgeFrom(e *kahn.Edge) *string { return &e.From }
func edgeTo(e *kahn.Edge) *string   { return &e.To }

// afterEdges returns the field for edges to this node from other nodes. Encode writes an edge into this field if the
// order of the edges stays the same; see edgesAtNodes.
func afterEdges(key string) field[node] {
	return field[node]{
		name: key,
		read: func(d *decoder, v *Value, to *node) { d.after(v, to) },
		show: func(e *encoder, from *node) (Value, bool) {
			v := Value{Type: List}
			for i := range from.after {
				edge := from.after[i]
				e.push("", i)
				item := afterRecord.show(e, &edge)
				if len(item.Items) == 1 { // the edge has only a source
					item = Value{Type: Text, Text: edge.From}
				}
				v.Items = append(v.Items, item)
				e.pop()
			}
			return v, len(v.Items) > 0
		},
	}
}

// needsEdges returns the field "needs", a synonym of the field "after".
func needsEdges(key string) field[node] {
	return field[node]{name: key, read: func(d *decoder, v *Value, to *node) { d.after(v, to) }}
}

func (d *decoder) after(v *Value, to *node) {
	if to.after != nil {
		d.add(v.KeyAt, ErrValue, "after and needs mean the same; use one of them")
		return
	}
	to.after = d.edgesOf(v, afterRecord, edgeFrom)
}

// nextEdges returns the field for edges from this node to other nodes.
func nextEdges(key string) field[node] {
	return field[node]{name: key, read: func(d *decoder, v *Value, to *node) {
		to.next = d.edgesOf(v, nextRecord, edgeTo)
	}}
}

// branchEdges returns the field for labelled edges from this node to other nodes. The field is an object whose keys are the labels. The
// edges are declared in the byte order of the labels, not in the order of the keys, since tools may sort the keys of an object.
func branchEdges(key string) field[node] {
	return field[node]{name: key, read: func(d *decoder, v *Value, to *node) {
		if !d.expect(v, Object) {
			if v.Type == List || v.Type == Text {
				d.addToLast("; write the label of each branch before its node, as in {approved: publish}")
			}
			return
		}
		seen := make(map[string]bool, len(v.Items))
		for i := range v.Items {
			item := &v.Items[i]
			if !d.enter(item, item.Key, -1) {
				continue
			}
			if kind, problem := checkName(item.Key, d.limits); problem != "" {
				d.add(item.KeyAt, kind, "the label %s %s", quote(item.Key), problem)
			}
			if seen[item.Key] {
				d.add(item.KeyAt, ErrDuplicate, "the label occurs twice")
			}
			seen[item.Key] = true
			edges := d.edgesOf(item, branchRecord, edgeTo)
			for i := range edges {
				edges[i].Label = item.Key
			}
			to.branches = append(to.branches, edges...)
			d.pop()
		}
		slices.SortStableFunc(to.branches, func(a, b kahn.Edge) int { return strings.Compare(a.Label, b.Label) })
	}}
}

// edgeList returns the field for the edges that are written outside nodes.
func edgeList(key string) field[graph] {
	f := many(key, &edgeRecord, func(g *graph) *[]kahn.Edge { return &g.edges })
	f.read = func(d *decoder, v *Value, to *graph) {
		records(d, v, &edgeRecord, func(item *Value) {
			var e kahn.Edge
			d.countEdge(item)
			edgeRecord.read(d, item, &e)
			to.edges = append(to.edges, e)
		})
	}
	return f
}

// declare puts the edges of a graph in order. First come the edges written in nodes, node by node in document order:
// for each node the edges in "after", in "next" and in "branches". The edges outside nodes come last.
func declare(nodes []node, outside []kahn.Edge) []kahn.Edge {
	n := len(outside)
	for i := range nodes {
		n += len(nodes[i].after) + len(nodes[i].next) + len(nodes[i].branches)
	}
	edges := make([]kahn.Edge, 0, n)
	for i := range nodes {
		n := &nodes[i]
		for _, e := range n.after {
			e.To = n.ID
			edges = append(edges, e)
		}
		for _, out := range [][]kahn.Edge{n.next, n.branches} {
			for _, e := range out {
				e.From = n.ID
				edges = append(edges, e)
			}
		}
	}
	return append(edges, outside...)
}

// edgesAtNodes moves edges from the beginning of the list to the nodes to which they lead. It moves as many edges as
// possible without changing their order. It returns the remaining edges.
func edgesAtNodes(nodes []node, edges []kahn.Edge) (outside []kahn.Edge) {
	index := make(map[string]int, len(nodes))
	for i := range nodes {
		index[nodes[i].ID] = i
	}
	last := 0
	for i, e := range edges {
		to, known := index[e.To]
		if !known || to < last {
			return edges[i:]
		}
		nodes[to].after = append(nodes[to].after, e)
		last = to
	}
	return nil
}
