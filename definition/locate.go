package definition

import (
	"cmp"
	"errors"
	"iter"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-c794f7ef/kahn"
)

// Locate converts an error about the graph to an [*Error] about the document. A [*kahn.Problem], alone or in a [*kahn.GraphError], becomes
// a [*Problem] of kind [ErrGraph], with the path and the position of the node, edge or field that the kahn.Problem names. If the document
// lacks the field, for example a Do that the host has set, the Problem has the path and the position of the innermost value around the
// field. Any other error becomes a Problem at the beginning of the document. If errors.Join has joined a kahn.Problem with other errors,
// each of them becomes a Problem of its own. Locate(nil) returns nil.
//
// A host can report violations of its own rules in the same way:
//
//	problems = append(problems, &kahn.Problem{Node: "fetch", Field: "Config.url", Err: errors.New("the URL names no host")})
//	err := doc.Locate(errors.Join(problems...))
func (d *Document) Locate(err error) error {
	if err == nil {
		return nil
	}
	r := report{file: d.File}
	list, all := flat(nil, err)
	if all != nil {
		r.err.More, r.err.Err = all.More, all
	}
	parts := partsOf(d.Root)
	for _, one := range list {
		r.locate(parts, one.err, one.compiled)
	}
	slices.SortStableFunc(r.err.Problems, inOrder)
	return r.result()
}

// foundError is an error about a graph. compiled is true if the error comes from a GraphError, as Compile returns it.
type foundError struct {
	err      error
	compiled bool
}

// The function `flat` appends err to the list `to`. It splits a GraphError into its problems. If errors.Join has joined a
// Problem or a GraphError with other errors, flat splits err, too. The result `all` is the first GraphError in err.
func flat(to []foundError, err error) (list []foundError, all *kahn.GraphError) {
	var problem *kahn.Problem
	many, joined := err.(interface{ Unwrap() []error })
	switch err.(type) {
	case *kahn.Problem, *kahn.GraphError: // a GraphError has the same method Unwrap, but is not from errors.Join
		joined = false
	}
	switch {
	case joined && (errors.As(err, &all) || errors.As(err, &problem)):
		all = nil
		for _, e := range many.Unwrap() {
			var more *kahn.GraphError
			to, more = flat(to, e)
			all = cmp.Or(all, more)
		}
		return to, all
	case errors.As(err, &all):
		for _, e := range all.Problems {
			to = append(to, foundError{e, true})
		}
		return to, all
	}
	return append(to, foundError{err, false}), nil
}

// inOrder compares the positions of two problems.
func inOrder(a, b *Problem) int { return cmp.Compare(a.Position.Offset, b.Position.Offset) }

// locate adds an error about a graph to the report. If the parameter `compiled` is true and the error is not about a Config,
// locate replaces the names of Go fields in the message by the names of document fields.
func (r *report) locate(parts *parts, err error, compiled bool) {
	var p *kahn.Problem
	if !errors.As(err, &p) {
		p = &kahn.Problem{Err: err}
	}
	at, node, text := parts.nodes[""], joinPath(p.Graph, p.Node), errorText(p.Err)
	if compiled && !strings.HasPrefix(p.Field, "Config") {
		text = renameFields(text)
	}
	if part, ok := parts.nodes[node]; ok {
		at = part
	}
	if edges := parts.edges[p.Graph]; 0 < p.Edge && p.Edge <= len(edges) {
		e := &edges[p.Edge-1]
		at, node = e.part, joinPath(p.Graph, e.node)
		if !errors.Is(err, kahn.ErrCycle) && !errors.Is(err, kahn.ErrDuplicateEdge) { // the messages of these two errors name the edge already
			text = "edge " + quote(e.from) + " -> " + quote(e.to) + ": " + text
		}
	}
	at = at.field(p.Field)
	r.path = at.path
	if added := r.add(at.position(), ErrGraph, "%s", text); added != nil {
		added.Node, added.Suggestion, added.Err = node, p.Suggestion, err
	}
}

func errorText(err error) string {
	if err == nil {
		return "invalid"
	}
	return err.Error()
}

func joinPath(graph, node string) string {
	if graph == "" || node == "" {
		return graph + node
	}
	return graph + "/" + node
}

// part is a value of a document, together with the path of the value.
type part struct {
	value *Value
	path  []segment
	name  *Value // for a node: its id, since problems of the node are reported at the position of the id
}

// edgePart is an edge of a document. node is the id of the node in which the edge is written, or "" for an edge of a graph's list "edges".
type edgePart struct {
	part
	node, from, to string
}

// parts are the nodes and edges of a document.
type parts struct {
	nodes map[string]part       // the nodes by path; "" is the document itself
	edges map[string][]edgePart // the edges in declaration order, by the path of the graph
}

func partsOf(root *Value) *parts {
	p := &parts{nodes: map[string]part{"": {value: root}}, edges: map[string][]edgePart{}}
	p.graph("", part{value: root})
	return p
}

// The method `graph` adds the nodes and edges of a graph. The edges are in the order in which the function `declare` puts them. The
// method skips a value with a Problem: the decoder has neither read the value nor checked its size against the limits.
func (p *parts) graph(path string, at part) {
	var edges []edgePart
	for node := range at.member("nodes").items() {
		edges = append(edges, p.node(path, node)...)
	}
	for edge := range at.member("edges").items() {
		edges = append(edges, edge.edge(edgePart{}))
	}
	p.edges[path] = edges
}

// The method `node` adds a node and the nodes of its sub-graph. It returns the edges that are written in the node.
func (p *parts) node(graph string, at part) (edges []edgePart) {
	id := at.member("id").text()
	path := joinPath(graph, id)
	at.name = at.member("id").value
	if _, twice := p.nodes[path]; !twice {
		p.nodes[path] = at
	}
	for _, key := range []string{"after", "needs"} {
		edges = append(edges, at.member(key).edges(edgePart{node: id, to: id})...)
	}
	edges = append(edges, at.member("next").edges(edgePart{node: id, from: id})...)
	labels := slices.Collect(at.member("branches").items())
	slices.SortStableFunc(labels, func(a, b part) int { return cmp.Compare(a.value.Key, b.value.Key) })
	for _, label := range labels {
		edges = append(edges, label.edges(edgePart{node: id, from: id})...)
	}
	if sub := at.member("graph"); sub.value != nil {
		p.graph(path, sub)
	}
	return edges
}

// The method `edges` returns the edges of a part that is one edge or a list of edges.
func (at part) edges(known edgePart) (edges []edgePart) {
	switch {
	case at.value == nil:
	case at.value.Type != List:
		edges = append(edges, at.edge(known))
	default:
		for item := range at.items() {
			edges = append(edges, item.edge(known))
		}
	}
	return edges
}

// The method `edge` returns an edge. For an edge that is written in a node, the parameter `known` already has this node and one end of the edge.
// For any other edge, `known` is empty.
func (at part) edge(known edgePart) edgePart {
	known.part = at
	for _, end := range []struct {
		id  *string
		key string
	}{{&known.from, "from"}, {&known.to, "to"}} {
		if *end.id == "" {
			*end.id = cmp.Or(at.member(end.key).text(), at.text())
		}
	}
	return known
}

// The method `items` yields the items of a list, or the members of an object. It skips items with a Problem, which the decoder has not read.
func (at part) items() iter.Seq[part] {
	return func(yield func(part) bool) {
		for i := range at.len() {
			if item := at.item(i); item.value.Problem == nil && !yield(item) {
				return
			}
		}
	}
}

func (at part) len() int {
	if at.value == nil {
		return 0
	}
	return len(at.value.Items)
}

func (at part) text() string {
	if at.value == nil || at.value.Type != Text {
		return ""
	}
	return at.value.Text
}

// The method `member` returns the member with the key. If the decoder has read no such member, it returns a part without a value.
func (at part) member(key string) part {
	if at.value != nil {
		if found := members(at.value, key); len(found) > 0 && found[0].Problem == nil {
			return part{value: found[0], path: append(slices.Clip(at.path), segment{key: key, index: -1})}
		}
	}
	return part{}
}

func (at part) item(i int) part {
	item, step := &at.value.Items[i], segment{index: i}
	if at.value.Type == Object {
		step = segment{key: item.Key, index: -1}
	}
	return part{value: item, path: append(slices.Clip(at.path), step)}
}

// The method `field` returns the part of the document that holds a Go field, such as "Gate.Timeout" or "Groups[2].Limit". If the document lacks
// the field, it returns the innermost part around the field.
func (at part) field(path string) part {
	for name := range strings.SplitSeq(path, ".") {
		name, indices, _ := strings.Cut(name, "[")
		inner := at.member(name) // within the data of Config, Params or a schema the name is a key; elsewhere it is the name of a Go field
		if inner.value == nil {
			inner = at.member(fieldNamed(name))
		}
		if inner.value == nil && name == "TestExpr" {
			inner = at.member("expression")
		}
		if inner.value == nil {
			break
		}
		at = inner
		for index := range strings.SplitSeq(indices, "[") {
			if i, err := strconv.Atoi(strings.TrimSuffix(index, "]")); err == nil && 0 <= i && i < at.len() {
				at = at.item(i)
			}
		}
	}
	return at
}

// The method `position` returns where the part begins. For a node, it returns where the node's id begins.
func (at part) position() Position {
	switch {
	case at.name != nil:
		return at.name.At
	case at.value == nil:
		return Position{}
	}
	return at.value.At
}

// The map `renamed` has the names that Go fields have in documents, if these names do not follow from the Go names.
var renamed = map[string]string{"WhenExpr": "when", "TestExpr": "test", "UntilExpr": "until", "CompensateBy": "compensate", "Sub": "graph", "On": "outcome", "ID": "id", "In": "after"}

// goFields are the names of the Go fields that Compile's errors mention.
var goFields = func() map[string]bool {
	names := map[string]bool{}
	for _, of := range []any{kahn.Graph{}, kahn.Node{}, kahn.Edge{}, kahn.Defaults{}, kahn.Gate{}, kahn.CompensateBy{}, kahn.Map{}, kahn.Loop{}, kahn.Retry{}, kahn.Rate{}} {
		for _, f := range reflect.VisibleFields(reflect.TypeOf(of)) {
			names[f.Name] = f.IsExported()
		}
	}
	return names
}()

var quotedOrField = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|[A-Z][A-Za-z]+`)

// renameFields replaces the names of Go fields in a message by the names of document fields. It does not change quoted
// text.
func renameFields(message string) string {
	return quotedOrField.ReplaceAllStringFunc(message, func(word string) string {
		if goFields[word] {
			return fieldNamed(word)
		}
		return word
	})
}

// fieldNamed returns the name that a Go field has in documents.
func fieldNamed(goName string) string {
	if name, ok := renamed[goName]; ok {
		return name
	}
	var b strings.Builder
	for i, r := range goName {
		if 'A' <= r && r <= 'Z' {
			if i > 0 {
				b.WriteByte('_')
			}
			r += 'a' - 'A'
		}
		b.WriteRune(r)
	}
	return b.String()
}
