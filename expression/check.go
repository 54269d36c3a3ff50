package expression

import (
	"slices"
	"strings"

	"github.com/expr-lang/expr/ast"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/internal/nearest"
)

// Check implements [kahn.Checker]: a text may ask for ancestors only, other than by exists, compare their statuses with the
// names of statuses only, and ask for declared inputs only.
func (e *expression) Check(ancestor, input func(name string) error) error {
	found := slices.Clone(e.strange)
	each := func(names []string, check func(name string) error) {
		for i, name := range names {
			if slices.Contains(names[:i], name) {
				continue
			}
			if err := check(name); err != nil {
				found = append(found, err)
			}
		}
	}
	each(e.nodes, ancestor)
	each(e.inputs, input)
	if len(found) == 0 {
		return nil
	}
	return problems(found)
}

// problems are all problems of a text, in one line.
type problems []error

// Error lists them.
func (p problems) Error() string {
	texts := make([]string, len(p))
	for i, err := range p {
		texts[i] = err.Error()
	}
	return strings.Join(texts, "; ")
}

// Unwrap returns them.
func (p problems) Unwrap() []error { return p }

// checkStatuses notes texts that are compared with a status but are not the name of one.
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
		c.strange = append(c.strange, c.errorf(word, "%.40q is no status%s (there is %s)", s.Value, didYouMean(s.Value, statuses), strings.Join(statuses, ", ")))
	}
}

// didYouMean is the end of a message about an unknown word: a suggestion, if one of the choices is similar.
func didYouMean(word string, choices []string) string {
	if meant, ok := nearest.Name(word, choices); ok {
		return "; did you mean \"" + meant + "\"?"
	}
	return ""
}

// statuses are the names of all statuses.
var statuses = func() (names []string) {
	for status := kahn.Idle; status <= kahn.Skipped; status++ {
		names = append(names, status.String())
	}
	return names
}()
