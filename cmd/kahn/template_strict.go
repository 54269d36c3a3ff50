package main

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"text/template/parse"
)

// refuseMissing changes a parsed template so that it fails where package text/template would write "<no value>": every read of a field first calls the
// function `field`, and the function `text` gets every value that is written.
func refuseMissing(n parse.Node) {
	branch := func(b *parse.BranchNode) {
		refuseMissing(b.Pipe)
		refuseMissing(b.List)
		if b.ElseList != nil {
			refuseMissing(b.ElseList)
		}
	}
	switch n := n.(type) {
	case *parse.ListNode:
		for _, n := range n.Nodes {
			refuseMissing(n)
		}
	case *parse.ActionNode:
		refuseMissing(n.Pipe)
		if len(n.Pipe.Decl) == 0 {
			n.Pipe.Cmds = append(n.Pipe.Cmds, callOf("text", n.Pos))
		}
	case *parse.IfNode:
		branch(&n.BranchNode)
	case *parse.RangeNode:
		branch(&n.BranchNode)
	case *parse.WithNode:
		branch(&n.BranchNode)
	case *parse.TemplateNode:
		if n.Pipe != nil {
			refuseMissing(n.Pipe)
		}
	case *parse.PipeNode:
		for _, c := range n.Cmds {
			for i, arg := range c.Args {
				c.Args[i] = withChecks(arg)
			}
		}
	}
}

// withChecks returns a part of an expression in which every read of a field is checked: x.name becomes (field x "name").name.
func withChecks(n parse.Node) parse.Node {
	var names []string
	switch read := n.(type) {
	case *parse.PipeNode:
		refuseMissing(read)
	case *parse.ChainNode:
		n, names = withChecks(read.Node), read.Field
	case *parse.FieldNode:
		n, names = &parse.DotNode{NodeType: parse.NodeDot, Pos: read.Pos}, read.Ident
	case *parse.VariableNode:
		n, names = &parse.VariableNode{NodeType: parse.NodeVariable, Pos: read.Pos, Ident: read.Ident[:1]}, read.Ident[1:]
	}
	for _, name := range names {
		call := callOf("field", n.Position(), n, &parse.StringNode{NodeType: parse.NodeString, Pos: n.Position(), Quoted: fmt.Sprintf("%q", name), Text: name})
		checked := &parse.PipeNode{NodeType: parse.NodePipe, Pos: n.Position(), Cmds: []*parse.CommandNode{call}}
		n = &parse.ChainNode{NodeType: parse.NodeChain, Pos: n.Position(), Node: checked, Field: []string{name}}
	}
	return n
}

// callOf returns the call of a template function.
func callOf(function string, at parse.Pos, args ...parse.Node) *parse.CommandNode {
	return &parse.CommandNode{NodeType: parse.NodeCommand, Pos: at, Args: append([]parse.Node{parse.NewIdentifier(function).SetPos(at)}, args...)}
}

// errNull is the error of a template that writes a null.
var errNull = errors.New("the value is null; {{or value \"text\"}} writes a text instead, and {{json value}} writes null")

// notNull is the template function `text`: it returns a value that the template writes, and an error for null.
func notNull(v any) (any, error) {
	if v == nil {
		return nil, errNull
	}
	return v, nil
}

// fieldOf is the template function `field`: it returns v, and an error if v is a map without the key `name`.
func fieldOf(v any, name string) (any, error) {
	if m := reflect.ValueOf(v); m.Kind() == reflect.Map {
		if _, err := memberOf(m, name); err != nil {
			return nil, err
		}
	}
	return v, nil
}

// memberOf returns the value of a key of a map. If the map lacks the key, the error lists the keys of the map.
func memberOf(m reflect.Value, key any) (any, error) {
	name, isText := key.(string)
	if m.Type().Key().Kind() != reflect.String || !isText {
		return nil, fmt.Errorf("the key %v of the value is not a text", key)
	}
	if value := m.MapIndex(reflect.ValueOf(name).Convert(m.Type().Key())); value.IsValid() {
		return value.Interface(), nil
	}
	known := make([]string, 0, m.Len())
	for _, key := range m.MapKeys() {
		known = append(known, key.String())
	}
	slices.Sort(known)
	fields := "it has none"
	if len(known) > 0 {
		fields = "it has " + some(known)
	}
	text := fmt.Sprintf("the value has no field %q; %s", name, fields)
	if meant := meant(name, known); meant != "" {
		text += fmt.Sprintf("; did you mean %q?", meant)
	}
	return nil, fmt.Errorf("%s (an optional field is {{get value %q}})", text, name)
}

// getOf is the template function `get`: it returns the value of a key of a map, and null if the map lacks the key or the map is null.
func getOf(v any, name string) (any, error) {
	switch m := reflect.ValueOf(v); {
	case v == nil:
		return nil, nil
	case m.Kind() != reflect.Map:
		return nil, fmt.Errorf("a value of type %T has no fields", v)
	default:
		found, err := memberOf(m, name)
		if err != nil {
			return nil, nil
		}
		return found, nil
	}
}

// indexOf is the template function `index`. In contrast to the function of package text/template, it returns an error for a key that a map lacks.
func indexOf(v any, keys ...any) (any, error) {
	for _, key := range keys {
		switch at, i := reflect.ValueOf(v), reflect.ValueOf(key); at.Kind() {
		case reflect.Map:
			var err error
			if v, err = memberOf(at, key); err != nil {
				return nil, err
			}
		case reflect.Slice, reflect.Array, reflect.String:
			if !i.CanInt() {
				return nil, fmt.Errorf("the index %v is no whole number", key)
			}
			if i.Int() < 0 || i.Int() >= int64(at.Len()) {
				return nil, fmt.Errorf("there is no item %d: the length is %d", i.Int(), at.Len())
			}
			v = at.Index(int(i.Int())).Interface()
		default:
			return nil, fmt.Errorf("a value of type %T has no fields and no items", v)
		}
	}
	return v, nil
}
