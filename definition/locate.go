package definition

import (
	"cmp"
	"errors"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-c794f7ef/kahn"
)

// Locate returns an error about the graph as an [*Error] about the document: each [*kahn.Problem] of a [*kahn.GraphError] becomes a [*Problem] of
// kind [ErrGraph], with the path and the position of the node, the edge or the field that it names. What the document does not hold, such as
// the Do that the host has set, has the position of the innermost value around it. An error of another kind has the position of the document.
// Locate returns nil for nil.
//
// A host reports in the same way what it finds by rules of its own:
//
//	err := doc.Locate(&kahn.Problem{Node: "fetch", Field: "Config.url", Err: errors.New("the URL names no host")})
func (d *Document) Locate(err error) error {
	if err == nil {
		return nil
	}
	list := []error{err}
	r := report{file: d.File}
	var all *kahn.GraphError
	if errors.As(err, &all) {
		list = all.Problems
		r.err.More, r.err.Err = all.More, all
	}
	parts := partsOf(d.Root)
	for _, one := range list {
		r.locate(parts, one, all != nil)
	}
	slices.SortStableFunc(r.err.Problems, inOrder)
	return r.result()
}

// inOrder compares the places of problems.
func inOrder(a, b *Problem) int { return cmp.Compare(a.Position.Offset, b.Position.Offset) }

// locate adds an error about a graph. Compile names Go fields, which are named as in documents then.
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
		if !errors.Is(err, kahn.ErrCycle) && !errors.Is(err, kahn.ErrDuplicateEdge) { // which name it
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

// part is a value of a document with its path.
type part struct {
	value *Value
	path  []segment
	name  *Value // the id, if the value is a node: its position stands for that of the node
}

// edgePart is where an edge stands, with its ends, and the node in which it stands or "".
type edgePart struct {
	part
	node, from, to string
}

// parts are the nodes and edges of a document.
type parts struct {
	nodes map[string]part       // by path; the document itself by ""
	edges map[string][]edgePart // by the path of the graph; in the order of declaration
}

func partsOf(root *Value) *parts {
	p := &parts{nodes: map[string]part{"": {value: root}}, edges: map[string][]edgePart{}}
	p.graph("", part{value: root})
	return p
}

// closes reports whether the error is a cycle, and the document has the edge that closes it where the error says. An edge that could not be read may
// have moved the others.
func (p *parts) closes(err error) bool {
	var problem *kahn.Problem
	var cycle *kahn.CycleError
	if !errors.As(err, &problem) || !errors.As(err, &cycle) {
		return false
	}
	edges, nodes := p.edges[problem.Graph], cycle.Nodes
	if problem.Edge < 1 || problem.Edge > len(edges) || len(nodes) == 0 {
		return false
	}
	last := edges[problem.Edge-1]
	return last.from == nodes[len(nodes)-1] && last.to == nodes[0]
}

// graph adds the nodes and edges of a graph. The order of the edges is that of declare.
func (p *parts) graph(path string, at part) {
	var edges []edgePart
	nodes := at.member("nodes")
	for i := range nodes.items() {
		edges = append(edges, p.node(path, nodes.item(i))...)
	}
	outside := at.member("edges")
	for i := range outside.items() {
		edges = append(edges, outside.item(i).edge(edgePart{}))
	}
	p.edges[path] = edges
}

// node adds a node and the nodes inside of it. It returns the edges that stand in the node.
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
	branches := at.member("branches")
	labels := make([]part, 0, len(branches.items()))
	for i := range branches.items() {
		item := &branches.value.Items[i]
		labels = append(labels, part{value: item, path: append(slices.Clip(branches.path), segment{key: item.Key, index: -1})})
	}
	slices.SortStableFunc(labels, func(a, b part) int { return cmp.Compare(a.value.Key, b.value.Key) })
	for _, label := range labels {
		edges = append(edges, label.edges(edgePart{node: id, from: id})...)
	}
	if sub := at.member("graph"); sub.value != nil {
		p.graph(path, sub)
	}
	return edges
}

// edges returns one edge or a list of edges.
func (at part) edges(known edgePart) (edges []edgePart) {
	switch {
	case at.value == nil:
	case at.value.Type != List:
		edges = append(edges, at.edge(known))
	default:
		for i := range at.value.Items {
			edges = append(edges, at.item(i).edge(known))
		}
	}
	return edges
}

// edge returns an edge, given what follows from its place.
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

func (at part) items() []Value {
	if at.value == nil {
		return nil
	}
	return at.value.Items
}

func (at part) text() string {
	if at.value == nil || at.value.Type != Text {
		return ""
	}
	return at.value.Text
}

// member returns the member of an object, or a part without a value.
func (at part) member(key string) part {
	if at.value != nil {
		if found := members(at.value, key); len(found) > 0 {
			return part{value: found[0], path: append(slices.Clip(at.path), segment{key: key, index: -1})}
		}
	}
	return part{}
}

func (at part) item(i int) part {
	return part{value: &at.value.Items[i], path: append(slices.Clip(at.path), segment{index: i})}
}

// field returns the part that a Go field names, such as "Gate.Timeout" or "Groups[2].Limit", as far as the document has it.
func (at part) field(path string) part {
	for name := range strings.SplitSeq(path, ".") {
		name, indices, _ := strings.Cut(name, "[")
		inner := at.member(name) // a key of the data in Config, Params or a schema
		if inner.value == nil {
			inner = at.member(fieldNamed(name))
		}
		if inner.value == nil {
			break
		}
		at = inner
		for index := range strings.SplitSeq(indices, "[") {
			if i, err := strconv.Atoi(strings.TrimSuffix(index, "]")); err == nil && 0 <= i && i < len(at.items()) {
				at = at.item(i)
			}
		}
	}
	return at
}

// position is where the part begins.
func (at part) position() Position {
	switch {
	case at.name != nil:
		return at.name.At
	case at.value == nil:
		return Position{}
	}
	return at.value.At
}

// renamed are the fields of documents whose names do not follow from those of the Go fields.
var renamed = map[string]string{"WhenExpr": "when", "TestExpr": "test", "UntilExpr": "until", "Sub": "graph", "On": "outcome", "ID": "id", "In": "after"}

// goFields are the names of the Go fields of which Compile speaks.
var goFields = func() map[string]bool {
	names := map[string]bool{}
	for _, of := range []any{kahn.Graph{}, kahn.Node{}, kahn.Edge{}, kahn.Defaults{}, kahn.Gate{}, kahn.Map{}, kahn.Loop{}, kahn.Retry{}, kahn.Rate{}} {
		for _, f := range reflect.VisibleFields(reflect.TypeOf(of)) {
			names[f.Name] = f.IsExported()
		}
	}
	return names
}()

var quotedOrField = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|[A-Z][A-Za-z]+`)

// renameFields replaces the names of Go fields in a message, but for what stands in quotes, by those of the fields of documents.
func renameFields(message string) string {
	return quotedOrField.ReplaceAllStringFunc(message, func(word string) string {
		if goFields[word] {
			return fieldNamed(word)
		}
		return word
	})
}

// fieldNamed returns the name of a Go field in documents.
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
