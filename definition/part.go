package definition

import (
	"errors"
	"regexp"
	"slices"
	"strings"

	"github.com/seed-c794f7ef/kahn"
)

// addFromPart compiles the part of the graph that could be read, and adds the problems of this part to the document's problems. It leaves
// out a problem if the whole graph might not have it.
func (l Loader) addFromPart(err error, doc *Document) {
	written, ok := err.(*Error)
	g, root := doc.Graph, doc.Root
	if !ok || g == nil {
		return
	}
	if l.Prepare != nil {
		l.Prepare(g)
	}
	lost, parts := lossOf(written), partsOf(root)
	var found kahn.GraphError
	if _, err := g.Compile(); err != nil {
		if all, ok := err.(*kahn.GraphError); ok {
			found.Problems = slices.Clone(all.Problems)
		}
	}
	if l.Kinds != nil {
		found.Problems = append(found.Problems, checkKinds(g, l.Kinds, true)...)
	}
	graphs := map[string]*kahn.Graph{}
	addGraphs(graphs, "", g)
	found.Problems = slices.DeleteFunc(found.Problems, func(p error) bool {
		return !lost.leaves(p) && !parts.closes(p) && !lost.leavesLabel(p, parts, graphs)
	})
	if !lost.schedule {
		found.Problems = append(found.Problems, l.checkSchedule(doc.Schedule, g, !lost.inputs)...)
	}
	if found.Problems = checkMembers(found.Problems, g, parts); len(found.Problems) == 0 {
		return
	}
	located, ok := (&Document{Graph: g, Root: root}).Locate(&found).(*Error)
	if !ok {
		return
	}
	room := min(maxProblems-len(written.Problems), len(located.Problems))
	written.More += located.More + len(located.Problems) - room
	written.Problems = append(written.Problems, located.Problems[:room]...)
	slices.SortStableFunc(written.Problems, inOrder)
}

// A loss says what the graph may lack because parts of the document could not be read.
type loss struct {
	fields map[string][]string // fields that could not be read completely, by the path of their node; a field "" stands for any field
	edges  bool                // the document may have edges, labels or kinds of nodes that the graph lacks
	nodes  bool                // the document may have nodes that the graph lacks
	inputs bool                // the document may have inputs that the graph lacks
	groups bool                // the document may have groups that the graph lacks
	// schedule is true if the schedule could not be read completely.
	schedule bool
}

// ownFields are the fields of a node that do not affect other nodes.
var ownFields = []string{
	"label", "config", "params", "choices", "disabled", "when", "guard_errors", "no_match", "join", "skip_mode", "on_upstream_failure", "default",
	"handling", "cancel_losers", "cancel_on_late_failure", "continue_on_fail", "cleanup", "critical", "retry", "timeout", "overall_timeout",
	"max_crashes", "priority", "estimate", "groups", "key", "memo", "memo_name", "files", "ports", "merge", "merge_json", "input_schema", "output_schema", "moderation",
}

// inNode matches the path of a problem in a node. The groups of the pattern are the field of the node and the rest of the path.
var inNode = regexp.MustCompile(`^.*\.nodes\[\d+\]\.([a-z_]+)(.*)$`)

// lossOf finds what the graph lacks because of a document's problems.
func lossOf(err *Error) loss {
	lost := loss{fields: map[string][]string{}, nodes: err.More > 0}
	for _, p := range err.Problems {
		lost.add(p)
	}
	return lost
}

func (l *loss) add(p *Problem) {
	at := inNode.FindStringSubmatch(p.Path)
	if at == nil {
		if p.Kind != ErrVersion {
			l.inGraph(strings.TrimPrefix(p.Path, "$."), p)
		}
		return
	}
	field, rest := at[1], at[2]
	if p.Kind == ErrUnknownField && rest == "" {
		field = p.Suggestion // the field that the author meant is lost; if there is no suggestion, it may be a field with edges
	}
	l.fields[p.Node] = append(l.fields[p.Node], field)
	switch {
	case slices.Contains(ownFields, field):
	case field == "graph" && rest != "":
		l.inGraph(strings.TrimPrefix(rest, "."), p)
	case rest != "" && (field == "map" || field == "loop"): // other nodes lose nothing, because they depend only on whether this node is a composite
	case field == "id":
		l.nodes = true
	default:
		l.edges = true
	}
}

// inGraph records what may be lost because of a problem in a graph but outside its nodes. The parameter `path` is the path of the problem within the
// object of the graph.
func (l *loss) inGraph(path string, p *Problem) {
	end := strings.IndexAny(path, ".[")
	field := path
	if end >= 0 {
		field = path[:end]
	} else if p.Kind == ErrUnknownField {
		field = p.Suggestion // the field that the author meant is lost; if there is no suggestion, it may be any field
	}
	switch field {
	case "name", "defaults", "strict_guards", "$schema", "version":
	case "schedule":
		l.schedule = true
	case "edges":
		l.edges = true
	case "groups":
		l.groups = true
	case "inputs":
		l.inputs = true
	case "": // any field may be lost
		l.edges, l.groups, l.inputs, l.schedule = true, true, true, true
	default:
		l.nodes = true
	}
}

// The method `leaves` reports whether a problem of the part that was read is certainly a problem of the whole document.
func (l *loss) leaves(err error) bool {
	var p *kahn.Problem
	if !errors.As(err, &p) {
		return false
	}
	name := joinPath(p.Graph, p.Node)
	field, _, _ := strings.Cut(p.Field, ".")
	field, _, _ = strings.Cut(field, "[")
	switch {
	case p.Edge > 0 && field == "Label":
		return false // the method leavesLabel decides about labels
	case field == "Groups":
		return !l.nodes && !l.groups && !slices.Contains(l.fields[name], "groups") && !slices.Contains(l.fields[name], "")
	case field == "Kind":
		return true // a kind is read completely or not at all
	case field == "Config":
		return !slices.Contains(l.fields[name], "config")
	case errors.Is(err, kahn.ErrUnknownNode) && errors.Is(err, kahn.ErrBadExpression):
		return !l.nodes && (!l.inputs || !errors.Is(err, kahn.ErrUnknownInput))
	case errors.Is(err, kahn.ErrUnknownInput) && !errors.Is(err, kahn.ErrNotAncestor):
		return !l.nodes && !l.inputs
	case errors.Is(err, kahn.ErrNotAncestor):
		return !l.nodes && !l.edges && (!l.inputs || !errors.Is(err, kahn.ErrUnknownInput))
	case errors.Is(err, kahn.ErrBadExpression), errors.Is(err, kahn.ErrBadSchema):
		return true // the text or the schema was read completely, so the whole document has the error, too
	}
	return !l.nodes && !l.edges && !l.inputs && len(l.fields[name]) == 0
}

// labelFields are the fields of a node that say which labels the edges from the node may have.
var labelFields = []string{"", "kind", "test", "expression", "routes", "choices", "gate", "graph", "map", "loop"}

// leavesLabel reports whether the error is about an edge's label, and certainly holds for the whole document. This is so if all
// nodes were read, the document has the edge at the index in the error, and all labelFields of the edge's source were read.
func (l *loss) leavesLabel(err error, parts *parts, graphs map[string]*kahn.Graph) bool {
	var p *kahn.Problem
	if !errors.As(err, &p) || p.Field != "Label" || l.nodes {
		return false
	}
	edges := parts.edges[p.Graph]
	read := graphs[p.Graph].Edges()
	if p.Edge < 1 || p.Edge > len(edges) || p.Edge > len(read) {
		return false
	}
	written, edge := edges[p.Edge-1], read[p.Edge-1]
	return written.from == edge.From && written.to == edge.To &&
		!slices.ContainsFunc(l.fields[joinPath(p.Graph, edge.From)], func(field string) bool { return slices.Contains(labelFields, field) })
}

// addGraphs adds a graph and all graphs nested in it to a map. The key of a nested graph is the path of the composite that contains it.
func addGraphs(to map[string]*kahn.Graph, path string, g *kahn.Graph) {
	to[path] = g
	for _, n := range g.Nodes() {
		if n.Sub != nil {
			addGraphs(to, joinPath(path, n.ID), n.Sub)
		}
	}
}

// The method `closes` reports whether the error is about a cycle and the document has the closing edge of the cycle at the index in the
// error. Another edge may be at this index, since an index in the error counts only the edges that could be read.
func (p *parts) closes(err error) bool {
	var problem *kahn.Problem
	if !errors.As(err, &problem) {
		return false
	}
	edges, nodes := p.edges[problem.Graph], problem.Cycle
	if problem.Edge < 1 || problem.Edge > len(edges) || len(nodes) == 0 {
		return false
	}
	last := edges[problem.Edge-1]
	return last.from == nodes[len(nodes)-1] && last.to == nodes[0]
}
