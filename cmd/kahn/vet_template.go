package main

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"text/template/parse"
	"unicode/utf8"

	"github.com/seed-c794f7ef/kahn/definition"
)

// templateCall is a call of a function in a template, or a place where the template reads its data.
type templateCall struct {
	function string
	name     string // the first argument
	computed bool   // whether the first argument is missing or is not a literal text; if so, the field `name` is empty
	noText   bool   // whether the first argument cannot be a text: it is a number, a bool, nil, or a word that is not the name of a function
	data     string // "" for a call; otherwise the template reads this field of its data, although templates have no data
	at       int    // the offset of the function or field in the text
	nameAt   int    // the offset of the first argument
}

// templateFunctions are the functions that templates have in addition to the functions of package text/template.
var templateFunctions = template.FuncMap{
	"input": none, "param": none, "status": none, "error": none, "json": none, "get": none, "tempdir": os.TempDir,
	"output": none, "certain": none,
}

func none(...any) string { return "" }

// callsIn returns the calls in a template, even calls of functions that do not exist. It also returns each place where the template reads its data,
// although templates have no data.
func callsIn(text string) ([]templateCall, error) {
	top := parse.New("")
	top.Mode = parse.SkipFuncCheck
	all := map[string]*parse.Tree{}
	if _, err := top.Parse(text, "", "", all); err != nil {
		return nil, err
	}
	var calls []templateCall
	for _, name := range slices.Sorted(maps.Keys(all)) {
		calls = appendCalls(calls, all[name].Root, name != "")
	}
	return calls, nil
}

// appendCalls adds the calls in a part of a template. dot is true where the template's dot has a value: in the body of a {{range}} or a
// {{with}}, and in a template that a {{define}} defines.
func appendCalls(calls []templateCall, n parse.Node, dot bool) []templateCall {
	each := func(nodes ...parse.Node) {
		for _, n := range nodes {
			calls = appendCalls(calls, n, dot)
		}
	}
	branch := func(b *parse.BranchNode, inner bool) {
		each(b.Pipe)
		calls = appendCalls(calls, b.List, dot || inner)
		each(b.ElseList)
	}
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
			call := templateCall{function: f.Ident, computed: true, at: int(f.Position())}
			// If a call has no written argument, a pipe may deliver one, so `computed` stays true.
			if len(n.Args) > 1 {
				call.nameAt = int(n.Args[1].Position())
				switch n.Args[1].(type) {
				case *parse.NumberNode, *parse.BoolNode, *parse.NilNode:
					call.noText = true
				case *parse.IdentifierNode:
					call.noText = !slices.Contains(templateNames, n.Args[1].String())
				}
				if literal, ok := n.Args[1].(*parse.StringNode); ok {
					call.name, call.computed = literal.Text, false
				}
			}
			calls = append(calls, call)
			if call.noText && isNaming(f.Ident) {
				each(n.Args[2:]...)
			} else {
				each(n.Args[1:]...)
			}
			return calls
		}
		each(n.Args...)
	case *parse.IdentifierNode: // nodes.x
		calls = append(calls, templateCall{function: n.Ident, computed: true, at: int(n.Position())})
	case *parse.ChainNode: // (input "user").name
		each(n.Node)
	case *parse.IfNode:
		branch(&n.BranchNode, false)
	case *parse.RangeNode:
		branch(&n.BranchNode, true)
	case *parse.WithNode:
		branch(&n.BranchNode, true)
	case *parse.TemplateNode:
		each(n.Pipe)
	case *parse.FieldNode:
		if !dot {
			calls = append(calls, templateCall{data: n.String(), at: int(n.Position())})
		}
	}
	return calls
}

// isNaming reports whether the first argument of a function is a name.
func isNaming(function string) bool {
	return function == "input" || function == "param" || function == "status" || function == "error"
}

// isUndoing reports whether a function reads data about the node that is being undone.
func isUndoing(function string) bool { return function == "output" || function == "certain" }

// checkTemplates reports the defects of the templates in a config.
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
	said := map[string]bool{} // the messages reported for this text so far; each message is reported once
	found := func(offset int, p problem) {
		switch p.Path, p.Node = at.path, at.node; {
		case said[p.Message]:
		case len(said) == maxProblems:
			c.more++
		default:
			said[p.Message] = true
			p.Message = "template: " + p.Message
			c.addAt(c.within(v, offset), p)
		}
	}
	bad := func(offset int, suggestion, format string, args ...any) {
		found(offset, problem{Message: fmt.Sprintf(format, args...), Suggestion: suggestion})
	}
	calls, err := callsIn(v.Text)
	if err != nil {
		message, offset := describeTemplate(v.Text, err)
		bad(offset, "", "%s", message)
		return
	}
	for _, call := range calls {
		if call.data != "" {
			bad(call.at, "", `a template has no data, and so no %s: {{input "name"}} is an input, {{param "name"}} what an edge delivers`, call.data)
			continue
		}
		if instead := foreignNames[call.function]; instead != "" {
			bad(call.at, "", "there is no function %q: %s", call.function, instead)
			continue
		}
		if !slices.Contains(templateNames, call.function) {
			elsewhere := func(name string) bool { return isUndoing(name) && !in.undo }
			known := slices.DeleteFunc(slices.Sorted(maps.Keys(templateFunctions)), elsewhere)
			bad(call.at, meant(call.function, slices.DeleteFunc(slices.Clone(templateNames), elsewhere)), "there is no function %q (choose from %s)", call.function, strings.Join(known, ", "))
			continue
		}
		switch isNamed := isNaming(call.function); {
		case isUndoing(call.function) && !in.undo:
			bad(call.at, "", "only the config of a compensate has {{%s}}, which is about the node that is undone; what an edge delivers is {{param \"name\"}}", call.function)
			continue
		case isNamed && call.noText:
			bad(call.nameAt, "", `a name is a text in double quotes, as in {{%s "name"}}`, call.function)
			continue
		case !isNamed || call.computed:
			continue
		}
		switch call.function {
		case "input":
			if in.inputs != nil && !in.inputs.has[call.name] {
				bad(call.nameAt, meant(call.name, in.inputs.list), "unknown input %q (choose from %s)", call.name, some(in.inputs.list))
			}
		case "param":
			switch {
			case in.delivers(call.name):
			case in.closed || in.inputs != nil:
				known := in.params
				if !in.closed && len(in.inputs.list) <= maxCompared {
					known = append(slices.Clone(known), in.inputs.list...)
				}
				bad(call.nameAt, meant(call.name, known), "nothing delivers a parameter %q: let an edge to this node have it as its param, or write it into params, ports or inputs", call.name)
			default:
				found(call.nameAt, problem{Severity: isWarning, Message: fmt.Sprintf(
					"no edge leads to the node, so that the parameter %q is an input of the run, which the definition does not declare; write {{input %[1]q}} for it, or an edge with this param", call.name)})
			}
		case "status", "error":
			switch _, known := in.wires.ids[call.name]; {
			case !known:
				bad(call.nameAt, meant(call.name, in.wires.names), "unknown node %q (choose from %s)", call.name, some(in.wires.names))
			case !in.wires.leads(call.name, in.id):
				bad(call.nameAt, "", "no edge leads from node %q to this one, directly or through others, and templates see no other nodes; name it in the after of this node", call.name)
			}
		}
	}
}

// describeTemplate describes an error of package text/template/parse. It also returns the offset of the word to which the error refers. It looks for
// this word in the line of the error, from the line's first braces on. If it does not find the word, it returns the offset of these braces, or of
// the line if there are no braces.
func describeTemplate(text string, err error) (message string, offset int) {
	found := templateError.FindStringSubmatch(err.Error())
	if found == nil {
		message, _ = say(templateSayings, noTemplate, err.Error())
		return message, 0
	}
	message, subject := say(templateSayings, noTemplate, found[2])
	line, _ := strconv.Atoi(found[1])
	for range line - 1 {
		next := strings.IndexByte(text[offset:], '\n')
		if next < 0 {
			break
		}
		offset += next + 1
	}
	rest, _, _ := strings.Cut(text[offset:], "\n")
	braces := strings.Index(rest, "{{")
	switch within := max(braces, 0); {
	case subject != "" && strings.Contains(rest[within:], subject):
		offset += within + strings.Index(rest[within:], subject)
	case braces >= 0:
		offset += braces
	}
	return message, offset
}

// The method `within` converts an offset in a text to a position in the file. If the text has another form in the file, for example with escapes, it
// returns the position at which the text begins.
func (c *checker) within(v *definition.Value, offset int) definition.Position {
	offset = min(offset, len(v.Text))
	for quote := range 2 { // the text begins at the value's position or, if it is quoted, one byte later
		at := v.At.Offset + quote
		if at+len(v.Text) <= len(c.text) && v.At.Line > 0 && !strings.Contains(v.Text, "\n") && string(c.text[at:at+len(v.Text)]) == v.Text {
			return definition.Position{Line: v.At.Line, Column: v.At.Column + quote + utf8.RuneCountInString(v.Text[:offset])}
		}
	}
	before := v.Text[:offset]
	begin := strings.LastIndexByte(before, '\n') + 1
	line, _, ended := strings.Cut(v.Text[begin:], "\n")
	at := v.At.Line + 1 + strings.Count(before, "\n") // a text in block style begins in the next line
	if of := c.line(at); (ended || begin > 0) && line != "" && strings.HasSuffix(of, line) {
		return definition.Position{Line: at, Column: utf8.RuneCountInString(of[:len(of)-len(line)+offset-begin]) + 1}
	}
	return v.At
}

// line returns the line of the file with the number n, or "" if there is no such line. The first line has the number 1.
func (c *checker) line(n int) string {
	if c.lines == nil {
		c.lines = strings.Split(string(c.text), "\n")
	}
	if n < 1 || n > len(c.lines) {
		return ""
	}
	return strings.TrimSuffix(c.lines[n-1], "\r")
}
