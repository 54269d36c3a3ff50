package main

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"text/template"
	"text/template/parse"

	"github.com/seed-c794f7ef/kahn/definition"
)

// templateCall is a call of one of the functions of expandText.
type templateCall struct {
	function string
	name     string // the first argument
	computed bool   // the first argument is no literal: name is empty
}

// templateFunctions are the functions that templates have beside those of text/template. The parser needs their names.
var templateFunctions = template.FuncMap{
	"input": none, "param": none, "status": none, "error": none, "json": none, "tempdir": os.TempDir,
}

func none(...any) string { return "" }

// callsIn returns the calls in a template.
func callsIn(text string) ([]templateCall, error) {
	t, err := template.New("").Funcs(templateFunctions).Parse(text)
	if err != nil {
		return nil, err
	}
	var calls []templateCall
	for _, t := range t.Templates() {
		if t.Tree != nil {
			calls = appendCalls(calls, t.Root)
		}
	}
	return calls, nil
}

func appendCalls(calls []templateCall, n parse.Node) []templateCall {
	each := func(nodes ...parse.Node) {
		for _, n := range nodes {
			calls = appendCalls(calls, n)
		}
	}
	branch := func(b *parse.BranchNode) { each(b.Pipe, b.List, b.ElseList) }
	switch n := n.(type) {
	case *parse.ListNode:
		if n != nil {
			each(n.Nodes...)
		}
	case *parse.ActionNode:
		each(n.Pipe)
	case *parse.PipeNode:
		if n != nil {
			for _, c := range n.Cmds {
				each(c)
			}
		}
	case *parse.CommandNode:
		if f, ok := n.Args[0].(*parse.IdentifierNode); ok {
			call := templateCall{function: f.Ident, computed: true}
			if len(n.Args) > 1 { // else a pipe delivers the argument
				if literal, ok := n.Args[1].(*parse.StringNode); ok {
					call.name, call.computed = literal.Text, false
				}
			}
			calls = append(calls, call)
		}
		each(n.Args...)
	case *parse.ChainNode: // (input "user").name
		each(n.Node)
	case *parse.IfNode:
		branch(&n.BranchNode)
	case *parse.RangeNode:
		branch(&n.BranchNode)
	case *parse.WithNode:
		branch(&n.BranchNode)
	case *parse.TemplateNode:
		each(n.Pipe)
	}
	return calls
}

// templateError is the text of an error of the parser, without the name of the template.
var templateError = regexp.MustCompile(`^template: :(\d+): `)

// undefined is the error for a function that templates do not have.
var undefined = regexp.MustCompile(`^function "(\w+)" not defined$`)

// checkTemplates finds the defects of the templates in a config.
func (c *checker) checkTemplates(at place, v *definition.Value, in scope) {
	if v.Type == definition.Text {
		c.checkTemplate(at, v, in)
	}
	for i := range v.Items {
		part := fmt.Sprintf("[%d]", i)
		if v.Type == definition.Object {
			part = "." + v.Items[i].Key
		}
		c.checkTemplates(at.in(part), &v.Items[i], in)
	}
}

func (c *checker) checkTemplate(at place, v *definition.Value, in scope) {
	bad := func(suggestion, format string, args ...any) {
		c.addAt(v.At, problem{Path: at.path, Node: at.node, Message: "template: " + fmt.Sprintf(format, args...), Suggestion: suggestion})
	}
	calls, err := callsIn(v.Text)
	if err != nil {
		message := templateError.ReplaceAllString(err.Error(), "")
		suggestion := ""
		if name := undefined.FindStringSubmatch(message); name != nil {
			suggestion = meant(name[1], functionNames())
		}
		bad(suggestion, "%s", message)
		return
	}
	for _, call := range calls {
		if call.computed {
			continue
		}
		switch call.function {
		case "input":
			if in.inputs != nil && !slices.Contains(in.inputs, call.name) {
				bad(meant(call.name, in.inputs), "unknown input %q (choose from %s)", call.name, strings.Join(in.inputs, ", "))
			}
		case "param":
			if in.closed && !slices.Contains(in.params, call.name) {
				bad(meant(call.name, in.params), "nothing delivers a parameter %q: no edge, port, input or field of params", call.name)
			}
		case "status", "error":
			ids := idsOf(at.graph)
			switch {
			case !slices.Contains(ids, call.name):
				bad(meant(call.name, ids), "unknown node %q (choose from %s)", call.name, some(ids))
			case in.plan != nil && !slices.Contains(in.plan.Ancestors(in.id), call.name):
				bad("", "no edge leads from node %q to this one, directly or through others, and templates see no other nodes", call.name)
			}
		}
	}
}

func functionNames() (names []string) {
	for name := range templateFunctions {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
