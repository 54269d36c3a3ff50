package expression

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/expr-lang/expr/ast"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/internal/nearest"
)

// Check finds errors before a run: see [kahn.Expression]. It reports each undeclared input. It also reports each node that is not an
// ancestor, unless the text names the node only in calls of `exists`. Check also reports problems for which Parse does not reject the text, for
// example a status that is compared with a value that no status equals.
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
	for _, name := range e.hoped {
		_ = ancestor(name) // called only to mark the name as used; the node need not exist
	}
	each(e.inputs, input)
	if len(found) == 0 {
		return nil
	}
	return problems(found)
}

// problems are all problems of a text, as one error.
type problems []error

// Error lists the problems on one line.
func (p problems) Error() string {
	texts := make([]string, len(p))
	for i, err := range p {
		texts[i] = err.Error()
	}
	return strings.Join(texts, "; ")
}

// Unwrap returns the problems.
func (p problems) Unwrap() []error { return p }

// isStatus reports whether a node of the syntax tree is the path to a status.
func isStatus(n ast.Node) bool {
	m, ok := n.(*ast.MemberNode)
	if !ok {
		return false
	}
	aspect, ok := m.Property.(*ast.StringNode)
	return ok && aspect.Value == "status" && isNode(m.Node)
}

// checkStatuses is called for the two operands of a comparison. If the first is the path to a status, checkStatuses reports a second operand that
// no status equals: a text literal that is not the name of a status, or a value that is never a text. If the second operand is a list,
// checkStatuses checks each of its members.
func (c *compiler) checkStatuses(status, with ast.Node) {
	if !isStatus(status) {
		return
	}
	words := []ast.Node{with}
	if list, ok := with.(*ast.ArrayNode); ok {
		words = list.Nodes
	}
	for _, word := range words {
		switch s, isText := word.(*ast.StringNode); {
		case isText && !slices.Contains(statuses, s.Value):
			c.strange = append(c.strange, c.errorf(word, "%.40q is not a status%s (there is %s)", s.Value, didYouMean(s.Value, statuses), strings.Join(statuses, ", ")))
		case !isText && c.kinds[word] != "" && c.kinds[word] != "text":
			c.strange = append(c.strange, c.errorf(word, "a status is a text, which no %s equals", c.kinds[word]))
		}
	}
}

// checkTruth reports a status that is used as a truth value.
func (c *compiler) checkTruth(n ast.Node) {
	if isStatus(n) {
		c.strange = append(c.strange, c.errorf(rootOf(n), `a status is a text, which is always true; compare it, as in == "completed"`))
	}
}

// rootOf returns the beginning of a path.
func rootOf(n ast.Node) ast.Node {
	for {
		m, ok := n.(*ast.MemberNode)
		if !ok {
			return n
		}
		n = m.Node
	}
}

// kindOf returns the kind of the value of a syntax node. If the kind is unknown or not always the same, kindOf returns "". The caller has already
// compiled the parts of the node.
func (c *compiler) kindOf(n ast.Node) string {
	same := func(a, b ast.Node) string {
		if c.kinds[a] != c.kinds[b] {
			return ""
		}
		return c.kinds[a]
	}
	switch n := n.(type) {
	case *ast.NilNode:
		return "null"
	case *ast.BoolNode:
		return "bool"
	case *ast.IntegerNode, *ast.FloatNode:
		return "number"
	case *ast.StringNode:
		return "text"
	case *ast.ArrayNode:
		return "list"
	case *ast.MapNode:
		return "map"
	case *ast.IdentifierNode:
		if n.Value == "null" {
			return "null"
		}
	case *ast.MemberNode:
		if isStatus(n) {
			return "text"
		}
	case *ast.UnaryNode:
		if n.Operator == "-" {
			return "number"
		}
		return "bool"
	case *ast.BinaryNode:
		switch n.Operator {
		case "??":
			return same(n.Left, n.Right)
		case "+": // both operands are texts, or both are numbers
			if kind := cmp.Or(c.kinds[n.Left], c.kinds[n.Right]); kind == "text" || kind == "number" {
				return kind
			}
			return ""
		case "-", "*", "/", "%":
			return "number"
		}
		return "bool"
	case *ast.ConditionalNode:
		return same(n.Exp1, n.Exp2)
	}
	return c.kinds[n] // exists and apply have set the kinds of calls; the kind of a path is unknown
}

// Answers returns the answers that the text may give as a condition, or nil if they are unknown. They are known for a truth value (true and
// false), for a text literal and for the status of a node. For a ? b : c they are known if they are known for both b and c.
func (e *expression) Answers() []string { return slices.Clone(e.answers) }

// answersOf finds the possible answers of a text.
func (c *compiler) answersOf(n ast.Node) []string {
	switch n := n.(type) {
	case *ast.StringNode:
		return []string{n.Value}
	case *ast.ConditionalNode:
		a, b := c.answersOf(n.Exp1), c.answersOf(n.Exp2)
		if a == nil || b == nil {
			return nil
		}
		return append(a, b...)
	}
	switch {
	case c.kinds[n] == "bool":
		return []string{"true", "false"}
	case isStatus(n):
		return slices.Clone(statuses)
	}
	return nil
}

// A sample is a value with the name of its kind.
type sample struct {
	kind  string
	value any
}

// The list `samples` has a value of each kind. An operator or a function that refuses the sample of a kind refuses all values of this kind.
var samples = []sample{{"text", "1"}, {"number", int64(1)}, {"bool", true}, {"null", nil}, {"list", []any{"1"}}, {"map", map[string]any{"1": "1"}}}

// checkOperands reports an operator or a function that always fails. It finds two cases. Either the kinds of all operands are known, and do not fit.
// Or there are two operands, the kind of only one is known, and no kind of the other would fit.
func (c *compiler) checkOperands(n ast.Node, what string, call func(values []any) error, operands ...ast.Node) {
	values, open, known := make([]any, len(operands)), -1, ""
	for i, operand := range operands {
		at := slices.IndexFunc(samples, func(s sample) bool { return s.kind == c.kinds[operand] })
		switch {
		case at >= 0:
			values[i], known = samples[at].value, samples[at].kind
		case open >= 0:
			return
		default:
			open = i
		}
	}
	var messages []string
	fails := func() bool {
		err := call(values)
		if !errors.Is(err, kahn.ErrType) {
			return false
		}
		if message := strings.TrimPrefix(err.Error(), kahn.ErrType.Error()+": "); !slices.Contains(messages, message) {
			messages = append(messages, message)
		}
		return true
	}
	switch {
	case open < 0:
		if !fails() {
			return
		}
	case known == "" || len(operands) > 2:
		return
	default:
		for _, s := range samples {
			if values[open] = s.value; !fails() {
				return
			}
		}
	}
	text := messages[0]
	if len(messages) > 1 {
		text = fmt.Sprintf("%q takes no %s", what, known)
	} else if _, ok := functions[what]; ok {
		text = what + ": " + text
	}
	c.strange = append(c.strange, c.errorf(n, "%s", text))
}

// didYouMean returns the end of a message about an unknown word: a suggestion if one of the choices is similar, otherwise "".
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
