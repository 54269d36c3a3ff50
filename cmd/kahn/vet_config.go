package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/seed-c794f7ef/kahn/definition"
)

// checkConfigs checks the configs of nodes and of compensations. It compares each config with the schema of its kind, and checks the templates in
// the config. `refused` is the error of definition.Loader for the document, or nil.
func (c *checker) checkConfigs(root *definition.Value, refused error) {
	scopes := scopesOf(refused)
	for at, n := range nodesOf(root) {
		scope := scopes.of(at, n)
		check := func(at place, of *definition.Value, undo bool) {
			k, ok := kinds[text(of, "kind")]
			config := member(of, "config")
			switch {
			case !ok, config == nil && scopes.unread.misses(at.path, "config"): // the config may be among the unread parts
				return
			case config == nil:
				c.checkConfig(k, at, &definition.Value{Type: definition.Object, At: of.At}, map[string]any{})
				return
			case config.Type == definition.Null, config.Problem != nil: // package definition has reported the problem
				return
			}
			at = at.in(".config")
			c.checkConfig(k, at, config, valueOf(config))
			if !k.verbatim {
				scope.inputs, scope.undo = scopes.inputsOf(root, at), undo
				c.checkTemplates(at, config, scope)
			}
		}
		if member(n, "graph") == nil && member(n, "test") == nil {
			check(at, n, false)
		}
		if by := member(n, "compensate"); by != nil && by.Problem == nil && by.Type == definition.Object {
			check(at.in(".compensate"), by, true)
		}
	}
}

// checkConfig checks a config against the schema of its kind. If the kind has a function for a further check, checkConfig calls it.
func (c *checker) checkConfig(k kind, at place, config *definition.Value, v any) {
	bad := func(n *definition.Value, path, message string) {
		c.addAt(n.At, problem{Path: path, Node: at.node, Message: fmt.Sprintf("config of kind %s: %s", k.name, message)})
	}
	replaced := c.addUnknownFields(at, config, slices.Sorted(maps.Keys(k.Properties)), fmt.Sprintf("config of kind %s: ", k.name))
	for _, violation := range k.contract().Check(v) {
		name, rest, _ := strings.Cut(strings.TrimPrefix(violation.Path, "/"), "/")
		property, known := k.Properties[name]
		if name != "" && !known { // addUnknownFields has reported the field
			continue
		}
		written := member(config, name)
		switch {
		case name != "" && written == nil && replaced[name]: // addUnknownFields has already reported a field that is probably a misspelling of this one
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

// besideConfig maps the names of some fields of a node to messages. The message is for an author who has written the field into the node's config.
var besideConfig = func() map[string]string {
	notes := map[string]string{}
	for _, field := range []string{"after", "continue_on_fail", "groups", "label", "needs", "next", "params", "priority", "retry", "timeout", "when"} {
		notes[field] = field + " is a field of the node, and stands beside its config"
	}
	return notes
}()

// addUnknownFields reports the unknown fields of an object, each at its key. It returns the known fields that the author probably meant.
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
		if note := besideConfig[item.Key]; note != "" && suggestion == "" && prefix != "" {
			c.addAt(item.KeyAt, problem{Path: at.path + "." + item.Key, Node: at.node, Message: fmt.Sprintf("%sunknown field %q: %s", prefix, item.Key, note)})
			continue
		}
		c.addAt(item.KeyAt, problem{
			Path: at.path + "." + item.Key, Node: at.node, Suggestion: suggestion,
			Message: fmt.Sprintf("%sunknown field %q (choose from %s)", prefix, item.Key, strings.Join(known, ", ")),
		})
	}
	return probably
}

// The function `declared` returns the names of the inputs that a graph declares.
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
