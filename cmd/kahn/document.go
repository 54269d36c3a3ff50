package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
)

// document is the text of a file as a tree that knows the places of its parts. JSON is read as the YAML that it is.
type document struct {
	root *yaml.Node
}

// position is a place in a text. Both count from 1; zero means unknown.
type position struct{ Line, Column int }

func of(n *yaml.Node) position { return position{n.Line, n.Column} }

// maxDepth bounds how deep a document may be nested.
const maxDepth = 200

// depth refuses what is nested deeper. It is a plugin of the parser.
type depth struct{}

// CheckDepth implements yaml.LoaderLimitsPlugin.
func (depth) CheckDepth(depth int, _ *yaml.DepthContext) error {
	if depth > maxDepth {
		return fmt.Errorf("nested deeper than %d levels", maxDepth)
	}
	return nil
}

// CheckAlias implements yaml.LoaderLimitsPlugin. Aliases are not followed by the parser.
func (depth) CheckAlias(int, int) error { return nil }

// parseDocument reads a text.
func parseDocument(data []byte) (*document, error) {
	loader, err := yaml.NewLoader(strings.NewReader(string(data)), yaml.WithV4Defaults(), yaml.WithPlugin(depth{}))
	if err != nil {
		return nil, err
	}
	var n yaml.Node
	if err := loader.Load(&n); err != nil {
		return nil, err
	}
	return &document{n.Content[0]}, nil
}

// resolve returns what an alias stands for.
func resolve(n *yaml.Node) *yaml.Node {
	if n != nil && n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

// member returns the key and the value of a member of an object; nil if there is none.
func member(n *yaml.Node, name string) (key, value *yaml.Node) {
	if n = resolve(n); n == nil || n.Kind != yaml.MappingNode {
		return nil, nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			return n.Content[i], n.Content[i+1]
		}
	}
	return nil, nil
}

// field returns the value of a member of an object; nil if there is none.
func field(n *yaml.Node, name string) *yaml.Node {
	_, value := member(n, name)
	return value
}

// text returns the text of a member of an object; "" if there is none.
func text(n *yaml.Node, name string) string {
	if v := resolve(field(n, name)); v != nil && v.Kind == yaml.ScalarNode {
		return v.Value
	}
	return ""
}

// items returns the items of a list.
func items(n *yaml.Node) []*yaml.Node {
	if n = resolve(n); n == nil || n.Kind != yaml.SequenceNode {
		return nil
	}
	return n.Content
}

// below returns the part of a value at a JSON pointer, or the innermost one on the way to it that there is.
func below(n *yaml.Node, pointer string) *yaml.Node {
	for step := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		step = strings.NewReplacer("~1", "/", "~0", "~").Replace(step)
		next := field(n, step)
		if list := items(n); next == nil && list != nil {
			if i, err := strconv.Atoi(step); err == nil && i >= 0 && i < len(list) {
				next = list[i]
			}
		}
		if next == nil {
			break
		}
		n = next
	}
	return n
}

// at returns the place of a part of the document that a path such as $.nodes[3].retry names.
func (d *document) at(path string) position {
	pointer := strings.NewReplacer(".", "/", "[", "/", "]", "").Replace(strings.TrimPrefix(path, "$"))
	return of(below(d.root, pointer))
}

// maxValues bounds how many values a document has, those behind aliases counted each time.
const maxValues = 1_000_000

// value returns a part of a document as a value of Go: nil, bool, int64, float64, string, []any or map[string]any.
func value(n *yaml.Node) (any, error) {
	left := maxValues
	return valueOf(n, nil, &left)
}

func valueOf(n *yaml.Node, within []*yaml.Node, left *int) (any, error) {
	if *left--; *left < 0 {
		return nil, fmt.Errorf("more than %d values", maxValues)
	}
	if n.Kind == yaml.AliasNode {
		for _, around := range within {
			if around == n.Alias {
				return nil, fmt.Errorf("line %d, column %d: the alias contains itself", n.Line, n.Column)
			}
		}
		n = n.Alias
	}
	within = append(within, n)
	switch n.Kind {
	case yaml.MappingNode:
		object := make(map[string]any, len(n.Content)/2)
		for i := 0; i+1 < len(n.Content); i += 2 {
			key := n.Content[i]
			if _, twice := object[key.Value]; twice || key.Kind != yaml.ScalarNode {
				return nil, fmt.Errorf("line %d, column %d: a key must be text, and occur once", key.Line, key.Column)
			}
			v, err := valueOf(n.Content[i+1], within, left)
			if err != nil {
				return nil, err
			}
			object[key.Value] = v
		}
		return object, nil
	case yaml.SequenceNode:
		list := make([]any, len(n.Content))
		for i, item := range n.Content {
			v, err := valueOf(item, within, left)
			if err != nil {
				return nil, err
			}
			list[i] = v
		}
		return list, nil
	}
	return scalar(n), nil
}

// scalar returns the value of a scalar. What JSON has no form for is text.
func scalar(n *yaml.Node) any {
	if n.ShortTag() == "!!str" {
		return n.Value
	}
	switch n.Value {
	case "", "~", "null":
		return nil
	case "true":
		return true
	case "false":
		return false
	}
	if i, err := strconv.ParseInt(n.Value, 10, 64); err == nil {
		return i
	}
	if f, err := strconv.ParseFloat(n.Value, 64); err == nil && json.Valid([]byte(n.Value)) {
		return f
	}
	return n.Value
}

// isYAML reports whether the name of a file is that of a YAML file.
func isYAML(file string) bool {
	ext := filepath.Ext(file)
	return ext == ".yaml" || ext == ".yml"
}
