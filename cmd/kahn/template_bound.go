package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"text/template"
	"text/template/parse"
)

// maxTurns bounds how often the bodies of loops and templates are executed. Each byte that a template writes allows one more execution.
const maxTurns = 100_000

// errBound marks the error of a template that exceeds a limit.
var errBound = errors.New("template limit exceeded")

// bounded is the writer of a template. It accepts at most maxText bytes, and no bytes after its context has ended. A template calls Write at
// least once in each turn of a loop: see countTurns.
type bounded struct {
	ctx   context.Context
	turns int
	bytes.Buffer
}

// Write implements io.Writer.
func (b *bounded) Write(p []byte) (int, error) {
	if b.ctx.Err() != nil {
		return 0, context.Cause(b.ctx)
	}
	if len(p) == 0 {
		b.turns++
	}
	if b.turns > maxTurns+b.Len() {
		return 0, fmt.Errorf("%w: more than %d turns of loops and templates", errBound, b.turns-1)
	}
	if b.Len()+len(p) > maxText {
		return 0, fmt.Errorf("%w: the text is longer than %d bytes", errBound, maxText)
	}
	return b.Buffer.Write(p)
}

// The method `made` checks a text that a template function has made, and returns an error if the text is too long. Without this limit, a loop could
// double the length of a variable in each turn.
func (b *bounded) made(text string) (string, error) {
	if len(text) > maxText {
		return "", fmt.Errorf("%w: a function makes a text that is longer than %d bytes", errBound, maxText)
	}
	return text, nil
}

// functions returns replacements for those functions of package template whose results are texts. A replacement returns an error if an argument is
// null, or if its result is too long.
func (b *bounded) functions() template.FuncMap {
	made := func(args []any, f func() string) (string, error) {
		if slices.Contains(args, nil) {
			return "", errNull
		}
		return b.made(f())
	}
	all := template.FuncMap{
		"printf": func(format string, args ...any) (string, error) {
			return made(args, func() string { return fmt.Sprintf(format, args...) })
		},
	}
	for name, f := range map[string]func(...any) string{
		"print": fmt.Sprint, "println": fmt.Sprintln, "html": template.HTMLEscaper, "js": template.JSEscaper, "urlquery": template.URLQueryEscaper,
	} {
		all[name] = func(args ...any) (string, error) { return made(args, func() string { return f(args...) }) }
	}
	return all
}

// countTurns adds an empty text at the beginning of the body of each loop and of each template. So each turn calls the writer, even if the
// template writes nothing else, and an error of the writer ends the execution.
func countTurns(t *template.Template) {
	for _, t := range t.Templates() {
		if t.Tree != nil {
			count := func(body *parse.ListNode) {
				body.Nodes = append([]parse.Node{&parse.TextNode{NodeType: parse.NodeText}}, body.Nodes...)
			}
			eachLoop(t.Root, func(r *parse.RangeNode) { count(r.List) })
			count(t.Root)
		}
	}
}

// eachLoop calls f for each loop in a list of parsed nodes, including loops inside other nodes.
func eachLoop(list *parse.ListNode, f func(*parse.RangeNode)) {
	if list == nil {
		return
	}
	for _, n := range list.Nodes {
		var b *parse.BranchNode
		switch n := n.(type) {
		case *parse.RangeNode:
			b = &n.BranchNode
			f(n)
		case *parse.IfNode:
			b = &n.BranchNode
		case *parse.WithNode:
			b = &n.BranchNode
		default:
			continue
		}
		eachLoop(b.List, f)
		eachLoop(b.ElseList, f)
	}
}
