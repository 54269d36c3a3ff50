package definition

import (
	"reflect"

	"github.com/seed-c794f7ef/kahn"
)

// Encode writes a graph as a JSON document. For equal graphs it writes the same document, even if they were read from documents that spell
// the graph in different ways. Decoding the document gives an equal graph. However, the values in fields such as Config, Params and Default get
// the types that [Decode] uses, for example int64 for an int.
//
// The document has no schedule: see [Document.Encode].
//
// The error is an [*Error] with a [*Problem] for everything that a document cannot express. A Go function, or a Go value without a JSON form, is
// a problem of kind [ErrNotData]. A problem that Decode would find, such as a duplicate id or an edge to an unknown node, has the same kind as
// in Decode's errors. Encode does not compile the graph. It does not write the graph's Evaluator and Schemas: like the step function, they
// belong to the host, and the host must set them again.
func Encode(g *kahn.Graph) ([]byte, error) {
	return (&Document{Graph: g}).Encode()
}

// Encode is like the function [Encode], but also writes the schedule.
func (d *Document) Encode() ([]byte, error) {
	root, err := d.Tree()
	if err != nil {
		return nil, err
	}
	return append(appendValue(nil, root, 0, 0), '\n'), nil
}

// Tree is [Encode] for writers of other formats. It returns the document as a tree without positions.
func Tree(g *kahn.Graph) (*Value, error) { return (&Document{Graph: g}).Tree() }

// Tree is like the function [Tree], but the tree also has the schedule.
func (d *Document) Tree() (*Value, error) {
	e := encoder{limits: Limits{Bytes: -1, Values: -1, Nodes: -1, Edges: -1, NameBytes: -1}.Resolved(), schedule: d.Schedule}
	v := e.graph(d.Graph, &documentRecord)
	if err := e.result(); err != nil {
		return nil, err
	}
	return &v, nil
}

// maxShown bounds the nesting of an encoded graph. A graph that is nested deeper probably contains itself.
const maxShown = 1000

// encoder turns a graph into a tree.
type encoder struct {
	report
	limits Limits
	ids    map[string]bool // the ids of the nodes of the current graph
	// schedule is the schedule of the document. The outermost graph's record writes it; the records of inner graphs do not.
	schedule *Schedule
}

// tooDeep reports whether a problem has stopped the encoding. If the current place is nested too deeply, tooDeep first adds
// such a problem.
func (e *encoder) tooDeep() bool {
	if len(e.path) > maxShown {
		e.stop(Position{}, ErrNotData, "nested deeper than %d levels, or it contains itself", maxShown)
	}
	return e.stopped
}

// graph returns a graph as a value.
func (e *encoder) graph(g *kahn.Graph, r *record[graph]) Value {
	if e.tooDeep() {
		return Value{}
	}
	for _, name := range g.Merges() {
		if p := e.add(Position{}, ErrNotData, "the merge strategy %s is a function, which a document cannot hold", quote(name)); p != nil {
			p.Field = "RegisterMerge"
		}
	}
	declared := g.Nodes()
	x := graph{Graph: g, nodes: make([]node, len(declared)), schedule: e.schedule}
	outer := e.ids
	e.ids = make(map[string]bool, len(declared))
	for i := range declared {
		x.nodes[i].Node = declared[i]
		e.ids[declared[i].ID] = true
	}
	x.edges = edgesAtNodes(x.nodes, g.Edges())
	v := r.show(e, &x)
	e.ids = outer
	return v
}

// notData reports each of the named fields that is set in a struct, since these fields hold code.
func (e *encoder) notData(of any, fields []string) {
	for _, name := range fields {
		if f := reflect.ValueOf(of).Elem().FieldByName(name); !f.IsZero() {
			if p := e.add(Position{}, ErrNotData, "%s is a %s, which a document cannot hold", name, f.Kind()); p != nil {
				p.Field = name
			}
		}
	}
}
