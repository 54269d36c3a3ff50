package definition

import (
	"errors"
	"regexp"
	"slices"
	"strings"

	"github.com/seed-c794f7ef/kahn"
)

// addFromPart adds to the problems of a document the problems of the part of its graph that could be read, unless they follow from
// what could not be read.
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

// loss is what a document with problems lacks once it is read.
type loss struct {
	fields map[string][]string // by the path of a node: fields of which a part could not be read, "" for a field that may be any
	edges  bool                // there may be other edges, labels or kinds of nodes
	nodes  bool                // there may be other nodes, too
	inputs bool                // there may be other inputs
	groups bool                // there may be other groups
	// schedule: it could not be read as a whole.
	schedule bool
}

// ownFields are the fields of a node that matter to no other node.
var ownFields = []string{
	"label", "config", "params", "choices", "disabled", "when", "guard_errors", "no_match", "join", "skip_mode", "on_upstream_failure", "default",
	"handling", "cancel_losers", "cancel_on_late_failure", "continue_on_fail", "cleanup", "critical", "retry", "timeout", "overall_timeout",
	"max_crashes", "priority", "estimate", "groups", "key", "memo", "memo_name", "files", "ports", "merge", "merge_json", "input_schema", "output_schema", "moderation",
}

// inNode is the path of a problem in a node: the field, and what follows.
var inNode = regexp.MustCompile(`^.*\.nodes\[\d+\]\.([a-z_]+)(.*)$`)

// lossOf finds what a document lacks because of its problems.
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
		field = p.Suggestion // what was meant is lost; without a suggestion it may be any edge
	}
	l.fields[p.Node] = append(l.fields[p.Node], field)
	switch {
	case slices.Contains(ownFields, field):
	case field == "graph" && rest != "":
		l.inGraph(strings.TrimPrefix(rest, "."), p)
	case rest != "" && (field == "map" || field == "loop"): // the node is one all the same
	case field == "id":
		l.nodes = true
	default:
		l.edges = true
	}
}

// inGraph adds a problem outside of the nodes of a graph, by its path in the object of the graph.
func (l *loss) inGraph(path string, p *Problem) {
	end := strings.IndexAny(path, ".[")
	field := path
	if end >= 0 {
		field = path[:end]
	} else if p.Kind == ErrUnknownField {
		field = p.Suggestion // what was meant is lost
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
	case "": // the field may be any
		l.edges, l.groups, l.inputs, l.schedule = true, true, true, true
	default:
		l.nodes = true
	}
}

// leaves reports whether a problem of the part that was read is one of the whole document.
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
		return false // see leavesLabel
	case field == "Groups":
		return !l.nodes && !l.groups && !slices.Contains(l.fields[name], "groups") && !slices.Contains(l.fields[name], "")
	case field == "Kind":
		return true // a kind is read as a whole, or not at all
	case field == "Config":
		return !slices.Contains(l.fields[name], "config")
	case errors.Is(err, kahn.ErrUnknownNode) && errors.Is(err, kahn.ErrBadExpression):
		return !l.nodes && (!l.inputs || !errors.Is(err, kahn.ErrUnknownInput))
	case errors.Is(err, kahn.ErrUnknownInput) && !errors.Is(err, kahn.ErrNotAncestor):
		return !l.nodes && !l.inputs
	case errors.Is(err, kahn.ErrNotAncestor):
		return !l.nodes && !l.edges && (!l.inputs || !errors.Is(err, kahn.ErrUnknownInput))
	case errors.Is(err, kahn.ErrBadExpression), errors.Is(err, kahn.ErrBadSchema):
		return true // the text and the schema were read as a whole
	}
	return !l.nodes && !l.edges && !l.inputs && len(l.fields[name]) == 0
}

// labelFields are the fields of a node that say which labels its edges may have.
var labelFields = []string{"", "kind", "test", "expression", "routes", "choices", "gate", "graph", "map", "loop"}

// leavesLabel reports whether the error is one of the label of an edge, which the document has where the error says, and everything about the node that
// the edge comes from was read.
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

// addGraphs adds a graph and the graphs in it, by the paths of their composites.
func addGraphs(to map[string]*kahn.Graph, path string, g *kahn.Graph) {
	to[path] = g
	for _, n := range g.Nodes() {
		if n.Sub != nil {
			addGraphs(to, joinPath(path, n.ID), n.Sub)
		}
	}
}

// closes reports whether the error is a cycle, and the document has the edge that closes it where the error says. An edge that could not be read may
// have moved the others.
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
