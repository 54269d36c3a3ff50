package definition

import (
	"errors"
	"fmt"
	"slices"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/internal/foreign"
)

// Nodes of these kinds compute their output by an expression. The engine evaluates the expression like the test of a condition.
// But a failed predecessor blocks such a node, and does not block a condition.
const (
	kindExpression = "expression" // one value
	kindAssignment = "assignment" // a map of values
)

// isComputed reports whether the node has an expression that computes its output.
func isComputed(n *node) bool {
	return (n.Kind == kindExpression || n.Kind == kindAssignment) && n.TestExpr != "" && n.Join == kahn.AllSucceeded
}

// expressionField returns the field for the expression of a node that computes its output: a text, or an object with a text for each
// member of the output.
func expressionField(key string) field[node] {
	return field[node]{
		name: key,
		read: func(d *decoder, v *Value, to *node) {
			switch v.Type {
			case Text:
				to.computes = kindExpression
				prose("", func(n *node) *string { return &n.expression }).read(d, v, to)
			case Object:
				to.computes = kindAssignment
				d.assignment(v, to)
			default:
				d.add(v.At, ErrType, "expected an expression, or an object with an expression for each name, got %s", v.describe())
			}
		},
		show: func(_ *encoder, from *node) (Value, bool) {
			return Value{Type: Text, Text: from.TestExpr}, isComputed(from)
		},
	}
}

// unlessComputed returns the field f, with one change: Encode leaves out the field for a node with an expression, since the
// expression determines the field's value.
func unlessComputed(f field[node]) field[node] {
	show := f.show
	f.show = func(e *encoder, from *node) (Value, bool) {
		if isComputed(from) {
			return Value{}, false
		}
		return show(e, from)
	}
	return f
}

// assignment reads the expressions of an output's members. It joins them into one expression for a map, with each text in parentheses.
// The closing parenthesis is on a new line, since a text may end with a comment.
func (d *decoder) assignment(v *Value, to *node) {
	if len(v.Items) == 0 {
		d.add(v.At, ErrValue, "an assignment has at least one name")
	}
	b := []byte{'{'}
	names := make(map[string]bool, len(v.Items))
	for i := range v.Items {
		item := &v.Items[i]
		if !d.enter(item, item.Key, -1) {
			continue
		}
		if names[item.Key] {
			d.add(item.KeyAt, ErrDuplicate, "the name occurs twice")
		}
		names[item.Key] = true
		if item.Type == Text && item.Text == "" {
			d.add(item.At, ErrValue, "must not be empty; leave it out instead")
		} else if d.expect(item, Text) {
			if len(b) > 1 {
				b = append(b, ", "...)
			}
			b = append(append(append(appendText(b, item.Key), ": ("...), item.Text...), "\n)"...)
		}
		d.pop()
	}
	to.expression = string(append(b, '}'))
}

// compute puts a node's expression into the node's TestExpr, and reports fields that such a node must not have. It is called after all fields of the
// node have been read.
func (d *decoder) compute(v *Value, n *node) {
	if n.computes == "" {
		return
	}
	for _, other := range []string{"test", "graph", "map", "loop", "gate", "routes"} {
		for _, item := range members(v, other) {
			d.add(item.KeyAt, ErrValue, "a node with an expression computes its output, and has no %s", other)
		}
	}
	switch n.Kind {
	case "":
		n.Kind = n.computes
	case kindExpression, kindAssignment:
	default:
		for _, item := range members(v, "kind") {
			if p := d.add(item.At, ErrValue, "a node with an expression is of kind %s or %s", quote(kindExpression), quote(kindAssignment)); p != nil {
				p.Suggestion = n.computes
			}
		}
	}
	if len(members(v, "join")) == 0 {
		n.Join = kahn.AllSucceeded
	}
	n.TestExpr = n.expression
}

// checkMembers checks the members of assignments, and adds their problems to the problems that Compile has found. It parses each member alone with
// the graph's evaluator, because texts that are not expressions may form an expression when they are joined. If a member has a problem,
// checkMembers removes the problem that Compile has found in the joined text.
func checkMembers(found []error, g *kahn.Graph, parts *parts) []error {
	c := memberChecker{parts: parts, wrong: map[string]bool{}}
	c.graph("", g, nil)
	found = slices.DeleteFunc(found, func(err error) bool {
		var p *kahn.Problem
		return errors.As(err, &p) && p.Field == "TestExpr" && c.wrong[joinPath(p.Graph, p.Node)]
	})
	return append(found, c.problems...)
}

// evaluator is the type of kahn.Graph.Evaluator.
type evaluator = interface {
	Parse(text string) (kahn.Expression, error)
}

type memberChecker struct {
	parts    *parts
	wrong    map[string]bool // paths of nodes
	problems []error
}

func (c *memberChecker) graph(path string, g *kahn.Graph, outer evaluator) {
	own := g.Evaluator
	if own == nil {
		own = outer
	}
	nodes := g.Nodes()
	for i := range nodes {
		n := &nodes[i]
		at := joinPath(path, n.ID)
		if n.Sub != nil {
			c.graph(at, n.Sub, own)
		}
		if n.Kind != kindAssignment || own == nil || len(c.problems) >= maxProblems {
			continue
		}
		expression := c.parts.nodes[at].member("expression")
		if expression.value == nil || expression.value.Type != Object { // there are no members
			continue
		}
		for member := range expression.items() {
			if err := parses(own, member.value.Text); err != nil {
				c.wrong[at] = true
				c.problems = append(c.problems, &kahn.Problem{Graph: path, Node: n.ID, Field: "TestExpr." + member.value.Key, Err: fmt.Errorf("%w: %w", kahn.ErrBadExpression, err)})
			}
		}
	}
}

// The function `parses` returns the error with which an evaluator rejects a text, or nil. The evaluator is the host's code: if it panics, the
// function returns the panic as an error.
func parses(e evaluator, text string) error {
	return foreign.Contain(func() error {
		_, err := e.Parse(text)
		return err
	}, func(value any) error { return foreign.NewPanicError(value) })
}
