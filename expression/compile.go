package expression

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/file"

	"github.com/seed-c794f7ef/kahn"
)

// This package uses expr-lang's parser, and this file replaces expr-lang's compiler and virtual machine. That machine cannot be interrupted, calls
// methods of values, and does not distinguish a missing path from a path to null. If it compares an int64 with a float64, it rounds the int64.

// A part is the compiled form of a node of the syntax tree.
type part func(*evaluation) (any, error)

type compiler struct {
	source  file.Source
	words   map[int]string // the original names of the calls that asCalls has changed, by position
	parts   int
	hoping  int      // how many calls of `exists` surround the current syntax node; a path in such a call may name nodes and members that do not exist
	nodes   []string // nodes that the text names outside calls of `exists`
	inputs  []string // inputs that the text names
	reads   []string // nodes whose output the text names outside calls of `exists`
	asks    []string // nodes whose status or error the text names, and nodes that it names in calls of `exists`
	strange []error  // problems that do not depend on values: see check.go

	kinds map[ast.Node]string // the kind of the value of each compiled syntax node, if known
}

func (c *compiler) errorf(n ast.Node, format string, args ...any) error {
	at := file.Error{Location: n.Location()}
	_ = at.Bind(c.source) // returns at
	return &SyntaxError{max(at.Line, 1), at.Column + 1, fmt.Sprintf(format, args...)}
}

// The method `compile` turns a node of the syntax tree into a part. Two nodes may share a child: the parser reads a < b < c as a < b && b < c, with
// one node for b. compile counts a shared node at each visit. Otherwise nested comparisons with fewer than maxParts parts could take exponential
// time.
func (c *compiler) compile(n ast.Node) (part, error) {
	if c.parts++; c.parts > maxParts {
		return nil, fmt.Errorf("%w: more than %d parts", ErrLimit, maxParts)
	}
	run, err := c.translate(n)
	if err != nil {
		return nil, err
	}
	if kind := c.kindOf(n); kind != "" {
		c.kinds[n] = kind
	}
	return func(e *evaluation) (any, error) {
		if err := e.spend(1); err != nil {
			return nil, err
		}
		return run(e)
	}, nil
}

func constant(v any) part { return func(*evaluation) (any, error) { return v, nil } }

func (c *compiler) translate(n ast.Node) (part, error) {
	switch n := n.(type) {
	case *ast.NilNode:
		return constant(nil), nil
	case *ast.BoolNode:
		return constant(n.Value), nil
	case *ast.IntegerNode:
		return constant(int64(n.Value)), nil
	case *ast.FloatNode:
		return constant(n.Value), nil
	case *ast.StringNode:
		return constant(n.Value), nil
	case *ast.IdentifierNode:
		if n.Value == "null" {
			return constant(nil), nil
		}
		return c.path(n)
	case *ast.MemberNode:
		return c.path(n)
	case *ast.ArrayNode:
		return c.list(n)
	case *ast.MapNode:
		return c.object(n)
	case *ast.UnaryNode:
		return c.unary(n)
	case *ast.BinaryNode:
		return c.binary(n)
	case *ast.ConditionalNode:
		return c.conditional(n)
	case *ast.BuiltinNode:
		return c.call(n, n.Name, n.Arguments)
	case *ast.CallNode:
		if name, ok := n.Callee.(*ast.IdentifierNode); ok {
			if word, ok := c.words[name.Location().From]; ok {
				return c.call(n, word, n.Arguments)
			}
			return c.call(n, name.Value, n.Arguments)
		}
		return nil, c.errorf(n, "there are no methods; a function is called as in len(x)")
	}
	kind := strings.TrimSuffix(strings.TrimPrefix(fmt.Sprintf("%T", n), "*ast."), "Node")
	if why, ok := unsupported[kind]; ok {
		return nil, c.errorf(n, "%s", why)
	}
	return nil, c.errorf(n, "%s is not supported", strings.ToLower(kind))
}

// unsupported has the constructs that only the parser supports, each with a message that says what to write instead.
var unsupported = map[string]string{
	"Sequence":           "several expressions in one text are not supported; && joins conditions",
	"VariableDeclarator": "let is not supported: there are no variables; a node of kind expression before this one may compute the value",
	"Chain":              "?. is not supported; a ?? b is b if a does not exist, and exists(a) asks for it",
	"Slice":              "a slice is not supported; take members by their position, as in [0]",
	"Bytes":              "a text of bytes is not supported; write it without the letter before the quote",
	"Predicate":          noPredicates,
	"Pointer":            noPredicates,
}

func (c *compiler) list(n *ast.ArrayNode) (part, error) {
	members := make([]part, len(n.Nodes))
	for i, m := range n.Nodes {
		var err error
		if members[i], err = c.compile(m); err != nil {
			return nil, err
		}
	}
	return func(e *evaluation) (any, error) {
		values := make([]any, len(members))
		for i, m := range members {
			var err error
			if values[i], err = m(e); err != nil {
				return nil, err
			}
		}
		return values, nil
	}, nil
}

// The method `object` translates a map literal.
func (c *compiler) object(n *ast.MapNode) (part, error) {
	keys, members := make([]part, len(n.Pairs)), make([]part, len(n.Pairs))
	for i := range n.Pairs {
		pair, ok := n.Pairs[i].(*ast.PairNode)
		if !ok {
			return nil, c.errorf(n, "a map has pairs of a key and a value")
		}
		var err error
		if keys[i], err = c.compile(pair.Key); err != nil {
			return nil, err
		}
		if members[i], err = c.compile(pair.Value); err != nil {
			return nil, err
		}
	}
	return func(e *evaluation) (any, error) {
		values := make(map[string]any, len(keys))
		for i := range keys {
			key, err := keys[i](e)
			if err != nil {
				return nil, err
			}
			name, ok := text(key)
			if !ok {
				return nil, mismatch("a key of a map must be text, not %s", kind(key))
			}
			if values[name], err = members[i](e); err != nil {
				return nil, err
			}
		}
		return values, nil
	}, nil
}

func (c *compiler) unary(n *ast.UnaryNode) (part, error) {
	x, err := c.compile(n.Node)
	if err != nil {
		return nil, err
	}
	switch n.Operator {
	case "!", "not":
		c.checkTruth(n.Node)
		return func(e *evaluation) (any, error) {
			v, err := x(e)
			return err == nil && !kahn.Truthy(v), err
		}, nil
	case "-":
		c.checkOperands(n, "-", func(values []any) error {
			_, err := negate(values[0])
			return err
		}, n.Node)
		return func(e *evaluation) (any, error) {
			v, err := x(e)
			if err != nil {
				return nil, err
			}
			return negate(v)
		}, nil
	}
	return nil, c.errorf(n, "operator %s is not supported", n.Operator)
}

func (c *compiler) binary(n *ast.BinaryNode) (part, error) {
	if n.Operator == "-" && isNode(n.Left) {
		return nil, c.errorf(n, `a node has no value to subtract from; a node whose id has a dash is $nodes["my-id"]`)
	}
	left, err := c.compile(n.Left)
	if err != nil {
		return nil, err
	}
	right, err := c.compile(n.Right)
	if err != nil {
		return nil, err
	}
	switch n.Operator {
	case "&&", "and", "||", "or":
		c.checkTruth(n.Left)
		c.checkTruth(n.Right)
		decisive := n.Operator == "||" || n.Operator == "or" // if the left operand has this value, the right operand is not evaluated
		return func(e *evaluation) (any, error) {
			v, err := left(e)
			if err != nil {
				return nil, err
			}
			if kahn.Truthy(v) == decisive {
				return decisive, nil
			}
			v, err = right(e)
			return err == nil && kahn.Truthy(v), err
		}, nil
	case "??":
		return func(e *evaluation) (any, error) {
			if v, err := left(e); err == nil && kind(v) != "null" || err != nil && !isMissing(err) {
				return v, err
			}
			return right(e)
		}, nil
	}
	apply, ok := operators[n.Operator]
	if !ok {
		return nil, c.errorf(n, "operator %s is not supported%s", n.Operator, insteadOfOperator[n.Operator])
	}
	switch n.Operator {
	case "==", "!=", "in":
		c.checkStatuses(n.Left, n.Right)
		c.checkStatuses(n.Right, n.Left)
	}
	c.checkOperands(n, n.Operator, func(values []any) error {
		_, err := apply(&evaluation{ctx: context.Background()}, values[0], values[1])
		return err
	}, n.Left, n.Right)
	return func(e *evaluation) (any, error) {
		a, err := left(e)
		if err != nil {
			return nil, err
		}
		b, err := right(e)
		if err != nil {
			return nil, err
		}
		return apply(e, a, b)
	}, nil
}

// insteadOfOperator says what to write instead of an operator that only the parser supports.
var insteadOfOperator = map[string]string{
	"matches": "; contains, startsWith and endsWith look for a text", "..": "; write the list out, as in [1, 2, 3]",
	"**": "; write the product out", "^": "; write the product out",
}

// isNode reports whether a path ends with a node's id.
func isNode(n ast.Node) bool {
	m, ok := n.(*ast.MemberNode)
	if !ok {
		return false
	}
	root, ok := m.Node.(*ast.IdentifierNode)
	return ok && strings.TrimPrefix(root.Value, "$") == "nodes"
}

// The map `operators` has the operators that always need the values of both sides.
var operators = func() map[string]func(e *evaluation, a, b any) (any, error) {
	all := maps.Clone(arithmetic)
	for op, holds := range comparisons {
		all[op] = func(e *evaluation, a, b any) (any, error) {
			result, err := holds(e, a, b)
			return result, err
		}
	}
	for _, name := range wordOperators {
		all[name] = func(e *evaluation, a, b any) (any, error) { return functions[name].call(e, []any{a, b}) }
	}
	return all
}()

var comparisons = map[string]func(e *evaluation, a, b any) (bool, error){
	"==": func(e *evaluation, a, b any) (bool, error) { return e.equal(a, b, 0) },
	"!=": func(e *evaluation, a, b any) (bool, error) {
		equal, err := e.equal(a, b, 0)
		return err == nil && !equal, err
	},
	"<":  ordering(func(c int) bool { return c < 0 }),
	"<=": ordering(func(c int) bool { return c <= 0 }),
	">":  ordering(func(c int) bool { return c > 0 }),
	">=": ordering(func(c int) bool { return c >= 0 }),
	"in": func(e *evaluation, a, b any) (bool, error) { return e.in(a, b) },
}

func ordering(holds func(int) bool) func(*evaluation, any, any) (bool, error) {
	return func(_ *evaluation, a, b any) (bool, error) {
		c, ordered, err := order(a, b)
		return ordered && holds(c), err
	}
}

func (c *compiler) conditional(n *ast.ConditionalNode) (part, error) {
	var parts [3]part
	for i, x := range []ast.Node{n.Cond, n.Exp1, n.Exp2} {
		var err error
		if parts[i], err = c.compile(x); err != nil {
			return nil, err
		}
	}
	c.checkTruth(n.Cond)
	return func(e *evaluation) (any, error) {
		v, err := parts[0](e)
		switch {
		case err != nil:
			return nil, err
		case kahn.Truthy(v):
			return parts[1](e)
		}
		return parts[2](e)
	}, nil
}

func (c *compiler) call(n ast.Node, name string, args []ast.Node) (part, error) {
	if name == "exists" {
		return c.exists(n, args)
	}
	if _, ok := functions[name]; ok {
		return c.apply(n, name, args)
	}
	if meant, ok := foreignFunctions[strings.ToLower(name)]; ok {
		if meant == "" {
			return nil, c.errorf(n, "there is no function %.40q: %s", name, noPredicates)
		}
		return nil, c.errorf(n, "there is no function %.40q; did you mean %q?", name, meant)
	}
	known := append(slices.Sorted(maps.Keys(functions)), "exists")
	return nil, c.errorf(n, "there is no function %.40q%s (there is %s)", name, didYouMean(name, known), strings.Join(known, ", "))
}

func (c *compiler) exists(n ast.Node, args []ast.Node) (part, error) {
	if len(args) != 1 {
		return nil, c.errorf(n, "exists takes exactly one argument, which is a path, as in exists($inputs.name)")
	}
	switch args[0].(type) {
	case *ast.MemberNode, *ast.IdentifierNode:
	default:
		return nil, c.errorf(n, "the argument of exists must be a path, as in exists($inputs.name)")
	}
	c.hoping++
	defer func() { c.hoping-- }()
	x, err := c.compile(args[0])
	if err != nil {
		return nil, err
	}
	c.kinds[n] = "bool"
	return func(e *evaluation) (any, error) {
		_, err := x(e)
		if isMissing(err) {
			return false, nil
		}
		return err == nil, err
	}, nil
}

// The method `path` translates a path. A path begins with a namespace such as $nodes, or with a value such as a list literal. The rest of the path
// is names or positions of members.
func (c *compiler) path(n ast.Node) (part, error) {
	var members []*ast.MemberNode // outermost first
	root := n
	for {
		m, ok := root.(*ast.MemberNode)
		if !ok {
			break
		}
		if c.parts++; c.parts > maxParts {
			return nil, fmt.Errorf("%w: more than %d parts", ErrLimit, maxParts)
		}
		members, root = append(members, m), m.Node
	}
	take := func() *ast.MemberNode { // returns the next member of the path, or nil at the end of the path
		if len(members) == 0 {
			return nil
		}
		m := members[len(members)-1]
		members = members[:len(members)-1]
		return m
	}
	var value part
	if name, ok := root.(*ast.IdentifierNode); ok {
		var err error
		if value, err = c.namespace(name, take); err != nil {
			return nil, err
		}
	} else {
		var err error
		if value, err = c.compile(root); err != nil { // for example ["a", "b"][0]
			return nil, err
		}
	}
	missing := errMember
	if len(members) > 0 {
		missing = noMember(n)
	}
	for m := take(); m != nil; m = take() {
		if m.Method {
			return nil, c.errorf(m, "there are no methods; a function is called as in len(x)")
		}
		key, err := c.compile(m.Property)
		if err != nil {
			return nil, err
		}
		whole := value
		value = func(e *evaluation) (any, error) {
			v, err := whole(e)
			if err != nil {
				return nil, err
			}
			k, err := key(e)
			if err != nil {
				return nil, err
			}
			if v, err = member(v, k); err == errMember {
				return nil, missing
			}
			if err != nil {
				return nil, err
			}
			return e.open(v)
		}
	}
	return value, nil
}

// noMember returns the error for a path that leads to no value. The error shows the path, with […] for a member that the evaluation computes.
func noMember(path ast.Node) error {
	var names []string // the last one first
	for {
		m, ok := path.(*ast.MemberNode)
		if !ok {
			break
		}
		path = m.Node
		switch key := m.Property.(type) {
		case *ast.StringNode:
			name := "." + key.Value
			if strings.ContainsFunc(name[1:], func(r rune) bool { return r == '.' || !isWord(r) }) {
				name = fmt.Sprintf("[%q]", key.Value)
			}
			names = append(names, name)
		case *ast.IntegerNode:
			names = append(names, fmt.Sprintf("[%d]", key.Value))
		default:
			names = append(names, "[…]")
		}
	}
	root, ok := path.(*ast.IdentifierNode)
	if !ok {
		return errMember
	}
	names = append(names, root.Value)
	slices.Reverse(names)
	return fmt.Errorf("%w: %.200s", errMember, strings.Join(names, ""))
}

// The method `namespace` translates the beginning of a path. The function "take" returns the next member of the path.
func (c *compiler) namespace(n *ast.IdentifierNode, take func() *ast.MemberNode) (part, error) {
	name := strings.TrimPrefix(n.Value, "$")
	translate, ok := namespaces[name]
	if !ok {
		return nil, c.errorf(n, "there is no %.40q%s", n.Value, insteadOf(n.Value))
	}
	return translate(c, n, func(what string) (string, error) {
		m := take()
		if m == nil {
			return "", c.errorf(n, "$%s needs %s", name, what)
		}
		s, ok := m.Property.(*ast.StringNode)
		if !ok || m.Method {
			return "", c.errorf(m, "%s must be a name or a text in quotes", what)
		}
		return s.Value, nil
	})
}

// insteadOf returns the end of a message about a word that cannot begin a path.
func insteadOf(word string) string {
	if meant := didYouMean(word, []string{"true", "false", "null"}); meant != "" {
		return meant
	}
	var choices []string
	for _, name := range slices.Sorted(maps.Keys(namespaces)) {
		choices = append(choices, "$"+name)
	}
	end := didYouMean(word, choices) + "; paths begin with " + strings.Join(choices, ", ")
	if !strings.Contains(end, "did you mean") && !strings.HasPrefix(word, "$") {
		end += "; a text is in quotes"
	}
	return end
}

// namespaces has a function for each namespace, which translates the beginning of a path. The function "literal" returns the next member of the path.
// If this member is not a name, literal returns an error, in which the argument "what" describes the expected name.
var namespaces = map[string]func(c *compiler, n ast.Node, literal func(what string) (string, error)) (part, error){
	"nodes":  (*compiler).ofNode,
	"inputs": (*compiler).ofInput,
	"trigger": func(*compiler, ast.Node, func(string) (string, error)) (part, error) {
		return func(e *evaluation) (any, error) {
			v, ok := e.view.Trigger()
			if !ok {
				return nil, fmt.Errorf("%w: no trigger has fired", kahn.ErrNoValue)
			}
			return e.open(v)
		}, nil
	},
	"config": func(*compiler, ast.Node, func(string) (string, error)) (part, error) {
		return func(e *evaluation) (any, error) { return e.open(e.view.Config()) }, nil
	},
}

func (c *compiler) ofNode(n ast.Node, literal func(what string) (string, error)) (part, error) {
	id, err := literal("the id of a node")
	if err != nil {
		return nil, err
	}
	if c.hoping == 0 {
		c.nodes = append(c.nodes, id)
	}
	what, err := literal("output, status or error")
	if err != nil {
		return nil, err
	}
	look, ok := aspects[what]
	if !ok {
		return nil, c.errorf(n, "a node has an output, a status and an error, but no %.40q%s", what, didYouMean(what, []string{"output", "status", "error"}))
	}
	hoping := c.hoping > 0
	list := &c.asks
	if what == "output" && !hoping {
		list = &c.reads
	}
	if !slices.Contains(*list, id) {
		*list = append(*list, id)
	}
	return func(e *evaluation) (any, error) {
		if !e.view.Has(id) {
			if !hoping {
				e.view.Status(id) // fails the evaluation, with an error that names the ancestors of the expression's node
			}
			return nil, fmt.Errorf("%w: node %.60q is not an ancestor", kahn.ErrNoValue, id)
		}
		v, err := look(e.view, id)
		if err != nil {
			return nil, err
		}
		return e.open(v)
	}, nil
}

func (c *compiler) ofInput(_ ast.Node, literal func(what string) (string, error)) (part, error) {
	key, err := literal("the name of an input")
	if err != nil {
		return nil, err
	}
	c.inputs = append(c.inputs, key)
	return func(e *evaluation) (any, error) {
		v, ok := e.view.Root(key)
		if !ok {
			return nil, fmt.Errorf("%w: no input %.60q", kahn.ErrNoValue, key)
		}
		return e.open(v)
	}, nil
}

// aspects are the properties of a node that an expression may read.
var aspects = map[string]func(v kahn.View, id string) (any, error){
	"output": func(v kahn.View, id string) (any, error) {
		if status := v.Status(id); status != kahn.Completed {
			return nil, fmt.Errorf("%w: node %.60q is %v", kahn.ErrNoValue, id, status)
		}
		return v.Output(id), nil
	},
	"status": func(v kahn.View, id string) (any, error) { return v.Status(id).String(), nil },
	"error": func(v kahn.View, id string) (any, error) {
		if err := v.Err(id); err != nil {
			return err.Error(), nil
		}
		return nil, nil
	},
}
