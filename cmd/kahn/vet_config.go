package main

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/seed-c794f7ef/kahn"
)

// checkNodes compares the configs of nodes with what their kinds take, whether or not the graph can be compiled.
func (c *checker) checkNodes(root *yaml.Node) {
	inputs := declared(root)
	for at, n := range nodesOf(root) {
		if !hasStep(n) {
			continue
		}
		kind := text(n, "kind")
		k, ok := kinds[kind]
		if !ok {
			if where := field(n, "kind"); where != nil && kind != "" && !slices.Contains(ownKinds, kind) {
				c.addUnknownKind(at, where, kind)
			}
			continue
		}
		config := field(n, "config")
		if config == nil {
			c.checkConfig(k, at, n, map[string]any{})
			continue
		}
		v, err := value(config)
		if err != nil {
			continue // package definition reports it
		}
		at.path += ".config"
		c.checkConfig(k, at, config, v)
		if !k.verbatim {
			c.checkTemplates(at, config, inputs)
		}
	}
}

// hasStep reports whether a node needs the step of a kind.
func hasStep(n *yaml.Node) bool {
	for _, other := range []string{"graph", "test"} {
		if field(n, other) != nil {
			return false
		}
	}
	return true
}

func (c *checker) addUnknownKind(at place, where *yaml.Node, kind string) {
	c.add(problem{
		Line: where.Line, Column: where.Column, Path: at.path + ".kind", Node: at.node, Suggestion: meant(kind, kindNames()),
		Message: fmt.Sprintf("unknown kind: %q (there is %s)", kind, strings.Join(kindNames(), ", ")),
	})
}

// checkKinds reports the nodes of a graph that have no kind and need one. Unknown kinds are found in the document.
func (c *checker) checkKinds(g *kahn.Graph) {
	before := len(c.found)
	c.addError(steps().Check(g))
	for i := len(c.found) - 1; i >= before; i-- {
		p := c.found[i]
		if slices.ContainsFunc(c.found[:before], func(earlier problem) bool {
			return earlier.Node == p.Node && strings.HasPrefix(earlier.Message, "unknown kind")
		}) {
			c.found = slices.Delete(c.found, i, i+1)
		}
	}
}

// addWarnings adds what is valid and probably a mistake.
func (c *checker) addWarnings(g *kahn.Graph) {
	plan, err := g.Compile()
	if err != nil {
		return
	}
	before := len(c.found)
	for _, warning := range plan.Warnings() {
		c.addGraphProblem(warning)
	}
	for i := range c.found[before:] {
		c.found[before+i].Severity = isWarning
	}
}

// strange is a violation of a schema that forbids other fields.
var strange = regexp.MustCompile(`^additional properties (.*) not allowed$`)

// lacking is a violation of a schema that requires a field.
var lacking = regexp.MustCompile(`^missing property '(.*)'$`)

// phrases are messages of package schema in other words.
var phrases = []struct {
	found *regexp.Regexp
	words string
}{
	{regexp.MustCompile(`^got (\w+), want (\w+)$`), "expected $2, got $1"},
	{lacking, `the field "$1" is missing`},
	{regexp.MustCompile(`^missing properties (.*)$`), "the fields $1 are missing"},
	{regexp.MustCompile(`^value must be one of (.*)$`), "expected one of $1"},
	{regexp.MustCompile(`^maxProperties: got (\d+), want 1$`), "it has $1 fields that exclude each other"},
	{regexp.MustCompile(`^minProperties: got 0, want 1$`), "it has no field"},
	{regexp.MustCompile(`^minItems: got 0, want 1$`), "it is empty"},
	{regexp.MustCompile(`^minLength: got 0, want 1$`), "it is empty"},
}

func reworded(message string) string {
	for _, p := range phrases {
		message = p.found.ReplaceAllString(message, p.words)
	}
	return message
}

// checkConfig compares a config with the schema of its kind.
func (c *checker) checkConfig(k kind, at place, config *yaml.Node, v any) {
	replaced := map[string]bool{} // fields that were written under another name
	bad := func(n *yaml.Node, path, message string) {
		c.add(problem{Line: n.Line, Column: n.Column, Path: path, Node: at.node, Message: fmt.Sprintf("config of kind %s: %s", k.name, message)})
	}
	violations := k.contract().Check(v)
	for _, violation := range violations {
		if strange.MatchString(violation.Message) {
			c.addStrangeFields(k, at, config, replaced)
		}
	}
	for _, violation := range violations {
		n, path := below(config, violation.Path), at.path+strings.ReplaceAll(violation.Path, "/", ".")
		name, _, _ := strings.Cut(strings.TrimPrefix(violation.Path, "/"), "/")
		lacks := lacking.FindStringSubmatch(violation.Message)
		switch expected := k.expects(name); {
		case strange.MatchString(violation.Message), lacks != nil && replaced[lacks[1]]:
		case expected != "":
			key, _ := member(config, name)
			bad(resolve(field(config, key.Value)), at.path+"."+name, fmt.Sprintf("%s: expected %s", name, expected))
		case name != "":
			bad(n, path, name+": "+reworded(violation.Message))
		default:
			bad(n, path, reworded(violation.Message))
		}
	}
	if k.check == nil {
		return
	}
	if err := k.check(v); err != nil {
		bad(config, at.path, err.Error())
	}
}

// addStrangeFields reports the fields that a kind does not have, each at its key, and notes those that may be meant.
func (c *checker) addStrangeFields(k kind, at place, object *yaml.Node, replaced map[string]bool) {
	object = resolve(object)
	fields := slices.Sorted(maps.Keys(k.fields()))
	for i := 0; i+1 < len(object.Content); i += 2 {
		key := object.Content[i]
		if !slices.Contains(fields, key.Value) {
			replaced[meant(key.Value, fields)] = true
			c.add(problem{
				Line: key.Line, Column: key.Column, Path: at.path + "." + key.Value, Node: at.node, Suggestion: meant(key.Value, fields),
				Message: fmt.Sprintf("config of kind %s: unknown field %q (there is %s)", k.name, key.Value, strings.Join(fields, ", ")),
			})
		}
	}
}

// declared returns the names of the inputs that a definition declares; nil if it declares none, and takes any.
func declared(root *yaml.Node) []string {
	var names []string
	for _, item := range items(field(root, "inputs")) {
		if item = resolve(item); item.Kind == yaml.ScalarNode {
			names = append(names, item.Value)
		} else {
			names = append(names, text(item, "name"))
		}
	}
	if names != nil {
		names = append(names, here)
	}
	return names
}
