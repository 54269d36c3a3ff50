// Package expression evaluates guards and conditions that are written as text, for example in a graph from a document:
//
//	g.Evaluator = expression.Evaluator{}
//	g.StrictGuards = true // Compile reports texts that cannot be read or name nodes that they cannot see
//
//	kahn.Node{ID: "open-pr", After: []string{"classify"}, WhenExpr: `$nodes.classify.output.score > 0.8`}
//
// # Language
//
// The syntax is expr-lang's. The supported parts are:
//
//	$nodes.id.output.a.b    the output of an ancestor and what is in it; $nodes["my-id"] for ids that are not identifiers
//	$nodes.id.status        the status of the ancestor as text, such as "completed" or "failed"
//	$nodes.id.error         the text of the ancestor's error, or null
//	$trigger, $config       the payload that the run was fired with, the Config of the node
//	$inputs.name            a root input of the run
//	list[0], map["a key"]   members by position or by name
//	1, -2.5, "text", true, false, null, [1, 2]
//	== != < <= > >=  in     comparisons
//	&& || !                 also and, or, not
//	+ - * / %               arithmetic; + also joins two texts
//	condition ? a : b       for conditions whose branches are labels
//	a ?? b                  b if a does not exist, or is null
//	{"total": a + b}        a map
//	exists(path)            whether there is such a path
//	len(x)                  the length of a text, list or map
//	contains(x, y)          whether the text x has the part y, the list x the member y, or the map x the key y; also x contains y
//	startsWith(x, y)        whether the text x begins with y; also x startsWith y
//	endsWith(x, y)          whether the text x ends with y; also x endsWith y
//	lower(x), upper(x)      a text in lower or upper case
//	trim(x), trim(x, y)     a text without the white space, or the characters of y, around it
//	split(x, y), join(x, y) a list of the parts of the text x between y, and the text of a list with y between its members
//	replace(x, y, z)        the text x with z for every y
//	string(x)               a number or a boolean as text
//	int(x)                  a text as an integer, or a number without its fraction; an error if the integer does not fit 64 bits
//	float(x)                a text or a number as a floating-point number
//	abs(x)                  a number without its sign
//	floor(x), ceil(x)       a number rounded down or up: an integer if it has 64 bits, and otherwise a floating-point number
//	round(x)                a number rounded to the nearest integer; the result has the type of floor(x)
//	min(x, ...), max(x, ...) the least and the greatest of numbers or texts, or of the members of a list
//
// The dollar signs are optional. As in a template, any part may be in double braces: {{ nodes.check.output.n }} > 3.
//
// # Values
//
// An expression may read only ancestors and, if the graph declares inputs, only the declared inputs. If it names a node that is not an ancestor, the
// error matches [kahn.ErrNotAncestor]; a call of exists(...) may name any node. If it names an undeclared input, the error matches
// [kahn.ErrUnknownInput].
//
// A path leads through slices, arrays, pointers, [json.RawMessage], exported fields of structs, and maps whose keys are of a string or integer type
// or of type any. A path names a field by its JSON name. If the field has none, the path names it by its Go name, in any case. Methods are never
// called. A path to null exists, and its value is null. If a path does not exist, the error matches [kahn.ErrNoValue]; for a guard, the field
// GuardErrors decides what happens next. The output of a node that has not completed does not exist.
//
// Suppose that a condition, or the test of a loop, names the output of a node that failed, was aborted or was cancelled. Then it must also name
// the status or the error of that node. Otherwise it fails with an error that matches [kahn.ErrUnreadFailure], even if && or || would skip the path
// to the output: see [kahn.View.Unread]. A call exists(path) counts as naming the status of the node in the path; len(path) does not.
//
// Numbers of all Go types and [json.Number] are compared by value, exactly: 5 equals 5.0, and 9007199254740993 does not equal
// 9007199254740992. A json.Number that is an integer beyond 64 bits counts as the nearest float64. Texts are ordered by their bytes. Lists and maps
// are equal if their members are. Values of different kinds are not equal. If an expression orders anything but two numbers or two texts, or
// compares structs as a whole, the error matches [kahn.ErrType]. Where a truth value is needed, [kahn.Truthy] decides whether a value counts as true.
// Check reports operators and functions that fail whatever the values are, such as $nodes.id.status + 1. It also reports a status that is compared
// with a value that no status equals, and a status that is used as a truth value.
//
// Arithmetic on integers yields an int64 if the exact result is an int64, and otherwise a float64. So 6 / 2 is an integer, and 7 / 2 is not.
// If an expression divides by zero, or a result is infinite or not a number, the error matches [kahn.ErrType].
//
// # Limits
//
// A text may have 4,096 bytes and about a thousand parts. There are no loops, and the host cannot add functions. An evaluation may take 100,000
// steps. It spends a step on each part of the text that it evaluates, on each member of a list or map that it reads, on each 16 bytes of a
// json.RawMessage that it decodes, and on each 16 bytes of a text that a function reads or makes. An evaluation checks its context every 256 steps,
// and stops if the context has ended. Compared values may be 100 levels deep. If a limit is exceeded, the error matches [ErrLimit].
package expression

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/file"
	"github.com/expr-lang/expr/parser"

	"github.com/seed-c794f7ef/kahn"
)

// These limits are described in the package comment.
const (
	maxText  = 4096
	maxParts = 1000
	maxSteps = 100_000
)

// ErrLimit marks the error for a text or an evaluation that exceeds a limit of this package.
var ErrLimit = errors.New("expression limit exceeded")

// SyntaxError describes what is wrong with a text, and where.
type SyntaxError struct {
	Line, Column int // from 1
	Message      string
}

// Error returns the place and the message.
func (e *SyntaxError) Error() string { return fmt.Sprintf("%d:%d: %s", e.Line, e.Column, e.Message) }

// notUTF8 returns the error for a text that is not UTF-8. The error names the first byte that belongs to no character.
func notUTF8(text string) error {
	at := 0
	for r, n := utf8.DecodeRuneInString(text); r != utf8.RuneError || n != 1; r, n = utf8.DecodeRuneInString(text[at:]) {
		at += n
	}
	line := text[strings.LastIndexByte(text[:at], '\n')+1 : at]
	return &SyntaxError{1 + strings.Count(text[:at], "\n"), 1 + utf8.RuneCountInString(line), fmt.Sprintf("the byte 0x%02x is not UTF-8", text[at])}
}

// Evaluator parses the expressions of a graph. Set it as the field Evaluator of a [kahn.Graph].
type Evaluator struct{}

// Parse reads a text. The error is a [*SyntaxError] or matches [ErrLimit].
func (Evaluator) Parse(text string) (_ kahn.Expression, err error) {
	if len(text) > maxText {
		return nil, fmt.Errorf("%w: a text of %d bytes", ErrLimit, len(text))
	}
	if !utf8.ValidString(text) { // the parser panics on some texts that are not UTF-8
		return nil, notUTF8(text)
	}
	defer func() { // a text on which the parser panics is rejected
		if v := recover(); v != nil {
			err = &SyntaxError{1, 1, fmt.Sprintf("the parser panics: %v", v)}
		}
	}()
	plain, unpaired := unbrace(text)
	calls, words := asCalls(plain)
	tree, err := parser.Parse(calls)
	var at *file.Error
	switch {
	case errors.As(err, &at):
		return nil, refusal(text, unpaired, &SyntaxError{at.Line, at.Column + 1, at.Message})
	case err != nil:
		return nil, &SyntaxError{1, 1, err.Error()}
	}
	c := compiler{source: tree.Source, words: words, kinds: map[ast.Node]string{}}
	run, err := c.compile(tree.Node)
	if err != nil {
		return nil, err
	}
	unasked := slices.DeleteFunc(c.reads, func(id string) bool { return slices.Contains(c.asks, id) })
	hoped := slices.DeleteFunc(c.asks, func(id string) bool { return slices.Contains(c.nodes, id) })
	return &expression{run, c.nodes, hoped, c.inputs, c.strange, unasked, c.answersOf(tree.Node)}, nil
}

type expression struct {
	run     part
	nodes   []string // the nodes that the text names outside calls of `exists`
	hoped   []string // the nodes that the text names only in calls of `exists`
	inputs  []string // the inputs that the text names
	strange []error  // see check.go
	unasked []string // nodes whose output the text names outside calls of `exists`, and of which it names nothing else
	answers []string // what the method Answers returns
}

// Evaluate implements [kahn.Expression].
func (e *expression) Evaluate(ctx context.Context, v kahn.View) (any, error) {
	for _, id := range e.unasked {
		if err := v.Unread(id); err != nil {
			return nil, err
		}
	}
	return e.run(&evaluation{ctx: ctx, view: v})
}

// evaluation is the state of one evaluation, with the number of steps so far.
type evaluation struct {
	ctx   context.Context
	view  kahn.View
	steps int
}

// The method `spend` charges n steps. The package comment lists what costs steps.
func (e *evaluation) spend(n int) error {
	if e.steps%256+n >= 256 || e.steps == 0 {
		if err := e.ctx.Err(); err != nil {
			return err
		}
	}
	if e.steps += n; e.steps > maxSteps {
		return fmt.Errorf("%w: more than %d steps", ErrLimit, maxSteps)
	}
	return nil
}
