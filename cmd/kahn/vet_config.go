package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/seed-c794f7ef/kahn/definition"
)

// checkConfigs checks the configs of nodes against the schemas of their kinds, also in documents that definition.Load refuses with an error.
func (c *checker) checkConfigs(root *definition.Value, refused error) {
	scopes := scopesOf(refused)
	for at, n := range nodesOf(root) {
		scope := scopes.of(at, n)
		k, ok := kinds[text(n, "kind")]
		if !ok || member(n, "graph") != nil || member(n, "test") != nil {
			continue
		}
		config := member(n, "config")
		if config == nil {
			c.checkConfig(k, at, &definition.Value{Type: definition.Object, At: n.At}, map[string]any{})
			continue
		}
		if config.Type == definition.Null || config.Problem != nil { // a problem of the definition
			continue
		}
		at = at.in(".config")
		c.checkConfig(k, at, config, valueOf(config))
		if !k.verbatim {
			scope.inputs = inputsOf(root, at)
			c.checkTemplates(at, config, scope)
		}
	}
}

// checkConfig compares a config with the schema of its kind.
func (c *checker) checkConfig(k kind, at place, config *definition.Value, v any) {
	bad := func(n *definition.Value, path, message string) {
		c.addAt(n.At, problem{Path: path, Node: at.node, Message: fmt.Sprintf("config of kind %s: %s", k.name, message)})
	}
	replaced := c.addUnknownFields(at, config, slices.Sorted(maps.Keys(k.Properties)), fmt.Sprintf("config of kind %s: ", k.name))
	for _, violation := range k.contract().Check(v) {
		name, rest, _ := strings.Cut(strings.TrimPrefix(violation.Path, "/"), "/")
		property, known := k.Properties[name]
		written := member(config, name)
		switch {
		case name != "" && !known, name != "" && written == nil && replaced[name]: // addUnknownFields has reported the field that is there
		case name != "" && written == nil && rest == "":
			bad(config, at.path, fmt.Sprintf("%s: %s", name, violation.Message))
		case property.Title != "":
			bad(written, at.path+"."+name, fmt.Sprintf("%s: expected %s", name, property.Title))
		case name != "":
			bad(below(config, violation.Path), at.path+pathOf(violation.Path), name+": "+violation.Message)
		default:
			bad(config, at.path, violation.Message)
		}
	}
	if k.check == nil {
		return
	}
	if field, offset, message := k.check(v); message != "" {
		written := member(config, field)
		c.addAt(c.within(written, max(offset, 0)), problem{Path: at.path + "." + field, Node: at.node, Message: fmt.Sprintf("config of kind %s: %s: %s", k.name, field, message)})
	}
}

// addUnknownFields reports the fields of an object that are none of the known ones, each at its key. It returns the fields that the author
// has probably meant by them.
func (c *checker) addUnknownFields(at place, object *definition.Value, known []string, prefix string) map[string]bool {
	probably := map[string]bool{}
	if object.Type != definition.Object {
		return probably
	}
	for _, item := range object.Items {
		if slices.Contains(known, item.Key) {
			continue
		}
		suggestion := meant(item.Key, known)
		probably[suggestion] = true
		c.addAt(item.KeyAt, problem{
			Path: at.path + "." + item.Key, Node: at.node, Suggestion: suggestion,
			Message: fmt.Sprintf("%sunknown field %q (choose from %s)", prefix, item.Key, strings.Join(known, ", ")),
		})
	}
	return probably
}

// inputsOf returns the names of the inputs that the templates of a node may name: those of its graph, those that a map or a loop around the graph
// adds, those of the document, and here. It returns nil if the graph or the document takes any.
func inputsOf(root *definition.Value, at place) []string {
	own, names := declared(at.graph), declared(root)
	if own == nil || names == nil {
		return nil
	}
	if member(at.outer, "map") != nil {
		own = append(own, "item", "index")
	}
	if member(at.outer, "loop") != nil {
		own = append(own, "iteration", "previous")
	}
	for _, name := range append(own, here) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// declared returns the names of the inputs that a graph declares.
func declared(graph *definition.Value) (names []string) {
	for _, item := range items(member(graph, "inputs")) {
		if item.Type == definition.Text {
			names = append(names, item.Text)
		} else {
			names = append(names, text(&item, "name"))
		}
	}
	return names
}
