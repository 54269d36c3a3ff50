package definition

import (
	"slices"

	"github.com/seed-c794f7ef/kahn"
)

// A node of these kinds computes its output by an expression. It is a node with a test, so the engine evaluates it, but no boundary: it
// joins as a step does, so a failure before it blocks it.
const (
	kindExpression = "expression" // one value
	kindAssignment = "assignment" // a map of values
)

// isComputed reports whether a node is one that expressionField has read.
func isComputed(n *node) bool {
	return (n.Kind == kindExpression || n.Kind == kindAssignment) && n.TestExpr != "" && n.Join == kahn.AllSucceeded
}

// expressionField is the expression of a node that computes its output: a text, or an object with a text for each member of the output.
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

// unlessComputed is a field that follows from the expression of a node that has one.
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

// assignment reads the expressions of the members of an output. Together they are the expression of a map.
func (d *decoder) assignment(v *Value, to *node) {
	if len(v.Items) == 0 {
		d.add(v.At, ErrValue, "an assignment has at least one name")
	}
	b := []byte{'{'}
	var names []string
	for i := range v.Items {
		item := &v.Items[i]
		if !d.enter(item, item.Key, -1) {
			continue
		}
		if slices.Contains(names, item.Key) {
			d.add(item.KeyAt, ErrDuplicate, "the name occurs twice")
		}
		names = append(names, item.Key)
		if item.Type == Text && item.Text == "" {
			d.add(item.At, ErrValue, "must not be empty; leave it out instead")
		} else if d.expect(item, Text) {
			if len(b) > 1 {
				b = append(b, ", "...)
			}
			b = append(append(append(appendText(b, item.Key), ": ("...), item.Text...), ')')
		}
		d.pop()
	}
	to.expression = string(append(b, '}'))
}

// compute puts the expression of a node into its test, once all fields have been read.
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
