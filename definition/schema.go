package definition

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"

	"github.com/seed-c794f7ef/kahn"
)

//go:embed schema.json
var schema string

// Schema returns the JSON Schema, draft 2020-12, of the documents. A schema cannot express all rules: only the decoder
// checks that ids are unique, that edges lead to existing nodes, and that the limits hold. [SchemaWith] adds the kinds of a host.
func Schema() []byte { return []byte(schema) }

// Kind describes a kind of nodes that a host performs.
type Kind struct {
	// Description is for authors of documents: editors show it.
	Description string
	// Config is the JSON Schema for the configs of these nodes. It is a JSON text (a string, a []byte or a json.RawMessage), or another value
	// that json.Marshal encodes as the schema, such as a map. If Config is nil, any config is accepted.
	Config any
}

// ownKinds are the kinds whose meaning does not depend on the host.
var ownKinds = map[string]Kind{
	kahn.KindEnd:       {Description: "Sums up the run: its output is the output of the run."},
	kahn.KindCondition: {Description: "Takes one of its branches: its test, or its step, answers with the label."},
	kahn.KindGate:      {Description: "Waits for an answer from outside, which is the label of the branch to take."},
	kindExpression:     {Description: "Computes its output by its expression."},
	kindAssignment:     {Description: "Computes the members of its output by the texts of its expression."},
	kahn.KindTrigger:   {Description: "Begins the run when it is fired. Other triggers, and what only they lead to, are left out."},
}

// SchemaWith returns the JSON Schema of documents for a host that performs the given kinds. The keys of the map are the names of the kinds.
// The schema accepts these kinds, and the kinds with a meaning of their own, such as [kahn.KindGate]. It rejects all other kinds,
// and configs that violate the schema of their kind. A config's schema must not refer to anything outside itself. An error is
// returned if a Config is not valid JSON or cannot be encoded as JSON; it names the kind.
func SchemaWith(kinds map[string]Kind) ([]byte, error) {
	root, err := Parse([]byte(schema), Limits{})
	if err != nil {
		return nil, err
	}
	node := root.at("$defs").at("node")
	word := node.at("properties").at("kind")
	all := maps.Clone(ownKinds)
	maps.Copy(all, kinds)
	choices, rules := Value{Key: "anyOf", Type: List}, Value{Key: "allOf", Type: List}
	var configs []Value
	for _, name := range slices.Sorted(maps.Keys(all)) {
		choice := object(text("const", name))
		if d := all[name].Description; d != "" {
			choice.Items = append(choice.Items, text("description", d))
		}
		choices.Items = append(choices.Items, choice)
		if all[name].Config == nil {
			continue
		}
		config, err := configSchema(name, all[name].Config)
		if err != nil {
			return nil, fmt.Errorf("definition: kind %s: %w", quote(name), err)
		}
		configs = append(configs, *config)
		rules.Items = append(rules.Items, object(
			member("if", object(
				Value{Key: "required", Type: List, Items: []Value{text("", "kind")}},
				member("properties", object(member("kind", object(text("const", name))))),
			)),
			member("then", object(member("properties", object(member("config", object(text("$ref", "#/$defs/"+pointer(config.Key)))))))),
		))
	}
	word.Items = append([]Value{*word.at("description")}, choices)
	if len(rules.Items) > 0 {
		node.Items = append(node.Items, rules)
	}
	// The configs are appended to $defs last, since append may move the other items of $defs, and the variable `node` points to one of them.
	defs := root.at("$defs")
	defs.Items = append(defs.Items, configs...)
	return append(appendValue(nil, root, 0, 0), '\n'), nil
}

// configSchema returns the schema of a kind's config, as a member of $defs. The schema gets an $id, so that a reference
// such as #/$defs/x leads into this schema, and not into the schema around it.
func configSchema(kind string, schema any) (*Value, error) {
	var data []byte
	switch s := schema.(type) {
	case string:
		data = []byte(s)
	case []byte:
		data = s
	default:
		var err error
		if data, err = json.Marshal(schema); err != nil {
			return nil, err
		}
	}
	config, err := Parse(data, Limits{})
	if err != nil {
		return nil, err
	}
	if config.Type == Object && len(members(config, "$id")) == 0 {
		config.Items = append([]Value{text("$id", "kinds/"+url.PathEscape(kind))}, config.Items...)
	}
	config.Key = "config of " + kind
	return config, nil
}

// The function `pointer` escapes a key for a JSON pointer in the fragment of a URI.
func pointer(key string) string {
	return url.PathEscape(pointerEscape.Replace(key))
}

// The method `at` returns the first member with the key. The member always exists, because the schema belongs to this
// package.
func (v *Value) at(key string) *Value { return members(v, key)[0] }

func object(items ...Value) Value { return Value{Type: Object, Items: items} }

func member(key string, v Value) Value {
	v.Key = key
	return v
}

func text(key, s string) Value { return Value{Key: key, Type: Text, Text: s} }
