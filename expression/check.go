package expression

import (
	"errors"
	"slices"
	"strings"

	"github.com/expr-lang/expr/ast"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/internal/nearest"
)

// Check implements [kahn.Checker]: a text may ask for ancestors only, other than by exists, and compare their statuses with the
// names of statuses only.
func (e *expression) Check(ancestor func(id string) error) error {
	errs := slices.Clone(e.strange)
	for i, id := range e.nodes {
		if !slices.Contains(e.nodes[:i], id) {
			errs = append(errs, ancestor(id))
		}
	}
	return errors.Join(errs...)
}

// checkStatuses notes texts that a status is compared with although it can never be one of them.
func (c *compiler) checkStatuses(status, with ast.Node) {
	m, ok := status.(*ast.MemberNode)
	if !ok {
		return
	}
	aspect, ok := m.Property.(*ast.StringNode)
	if !ok || aspect.Value != "status" {
		return
	}
	node, ok := m.Node.(*ast.MemberNode)
	if !ok {
		return
	}
	if name, ok := node.Node.(*ast.IdentifierNode); !ok || strings.TrimPrefix(name.Value, "$") != "nodes" {
		return
	}
	var words []ast.Node
	switch with := with.(type) {
	case *ast.StringNode:
		words = []ast.Node{with}
	case *ast.ArrayNode:
		words = with.Nodes
	}
	for _, word := range words {
		s, ok := word.(*ast.StringNode)
		if !ok || slices.Contains(statuses, s.Value) {
			continue
		}
		hint := ""
		if meant, ok := nearest.Name(s.Value, statuses); ok {
			hint = "; did you mean \"" + meant + "\"?"
		}
		c.strange = append(c.strange, c.errorf(word, "%.40q is no status%s (there is %s)", s.Value, hint, strings.Join(statuses, ", ")))
	}
}

// statuses are the names of all statuses.
var statuses = func() (names []string) {
	for status := kahn.Idle; status <= kahn.Skipped; status++ {
		names = append(names, status.String())
	}
	return names
}()
