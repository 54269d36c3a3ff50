package kahn

import (
	"fmt"

	"github.com/seed-c794f7ef/kahn/internal/nearest"
)

// Problem is one problem of a [GraphError] or a warning of a plan, and its place in the graph. It unwraps to the error behind it, such as [ErrBadJoin] or a [*CycleError].
type Problem struct {
	// Graph is empty if the problem is in the outermost graph. For one in the Sub of a composite it is the path of the composite: ids,
	// joined by slashes.
	Graph string
	// Node is the id of the node, for [Mux.Check] its path, or empty: then an edge or the whole graph has the problem.
	Node string
	// Edge is the number of the edge in the Edges of its graph, counted from 1, or 0. For a cycle it is the edge that closes it: the
	// last of its edges in the order of declaration.
	Edge int
	// Field is the Go field, such as "Join", "Gate.Timeout" or "Groups[2].Limit", of the node, the edge or the graph. It is empty if
	// several fields have the problem together. Indices in it begin with 0.
	Field string
	// Suggestion is what the author probably meant to write instead of a name that does not exist, or empty.
	Suggestion string
	// Err is the error without the names of graph, node and edge.
	Err error

	owner string // in Error, if the compiler has found the problem: `edge "x" -> "y": `
}

// Error names the graph, if it is not the outermost one, and the node or the edge.
func (p *Problem) Error() string {
	text := p.owner
	switch {
	case text != "":
	case p.Node != "":
		text = "node " + quoteID(p.Node) + ": "
	case p.Edge > 0:
		text = fmt.Sprintf("edge %d: ", p.Edge)
	}
	if p.Graph != "" {
		text = "in " + quoteID(p.Graph) + ": " + text
	}
	if p.Err == nil {
		return text
	}
	return text + p.Err.Error()
}

// Unwrap returns Err.
func (p *Problem) Unwrap() error { return p.Err }

// insideOf returns the problem as one of the graph around: id is the composite.
func insideOf(id string, err error) error {
	p, ok := err.(*Problem)
	if !ok {
		return fmt.Errorf("in %s: %w", quoteID(id), err)
	}
	inner := *p
	if inner.Graph = id; p.Graph != "" {
		inner.Graph += "/" + p.Graph
	}
	return &inner
}

// report adds a problem of a node, with the field that has it.
type report func(kind error, field, format string, args ...any)

// problems collects the problems of a graph, up to a number that people still read.
type problems struct {
	graph string
	list  []error
	more  int
}

const maxProblems = 100

// newProblem makes a problem of a message. A hint among args is the Suggestion.
func newProblem(format string, args ...any) *Problem {
	p := &Problem{Err: fmt.Errorf(format, args...)}
	for _, arg := range args {
		if h, ok := arg.(hint); ok {
			p.Suggestion = h.meant
		}
	}
	return p
}

// problemOf makes a problem of a node as newProblem does.
func problemOf(node, field, format string, args ...any) *Problem {
	p := newProblem(format, args...)
	p.Node, p.Field, p.owner = node, field, "node "+quoteID(node)+": "
	return p
}

// add adds a problem of the graph as a whole, ofNode one of a node. They return it, so that the caller can add to it.
func (ps *problems) add(format string, args ...any) *Problem {
	p := newProblem(format, args...)
	ps.keep(p)
	return p
}

func (ps *problems) ofNode(id, field, format string, args ...any) *Problem {
	p := problemOf(id, field, format, args...)
	ps.keep(p)
	return p
}

// ofEdge adds a problem of an edge, by its index of declaration.
func (c *compiler) ofEdge(i int, field, format string, args ...any) {
	p := newProblem(format, args...)
	p.Edge, p.Field, p.owner = i+1, field, "edge "+c.g.edges[i].name()+": "
	c.keep(p)
}

func (ps *problems) count() int { return len(ps.list) + ps.more }

func (ps *problems) keep(err error) {
	if len(ps.list) == maxProblems {
		ps.more++
		return
	}
	ps.list = append(ps.list, err)
}

// inside adds the problems, if there are any, of the sub-graph of a node.
func (ps *problems) inside(id string, err error) {
	if sub, ok := err.(*GraphError); ok {
		for _, p := range sub.Problems {
			ps.keep(insideOf(id, p))
		}
		ps.more += sub.More
	}
}

func (ps *problems) err() error {
	if len(ps.list) == 0 {
		return nil
	}
	return &GraphError{Graph: ps.graph, Problems: ps.list, More: ps.more}
}

// hint is the end of a message about an unknown name, with the name that was probably meant.
type hint struct{ text, meant string }

func (h hint) String() string { return h.text }

// instead is the function instead for a problem that is to be added. The choices are listed only if somebody is to read it.
func (ps *problems) instead(written string, choices func() []string) hint {
	if len(ps.list) == maxProblems {
		return hint{}
	}
	names := choices()
	meant, _ := nearest.Name(written, names)
	return hint{instead(written, names), meant}
}

// didYouMean is the function didYouMean for a problem that is to be added.
func (ps *problems) didYouMean(written string, choices []string) hint {
	meant, _ := nearest.Name(written, choices)
	return hint{didYouMean(written, choices), meant}
}
