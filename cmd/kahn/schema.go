package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"

	"github.com/seed-c794f7ef/kahn/definition"
)

var schemaCommand = command{
	name: "schema", summary: "print the JSON Schema of definitions, for editors",
	text: `
The schema has the kinds of steps, and what the config of each takes. An editor that knows it completes and checks while you type. With the
language server for YAML, the first line of a definition names the file:

    # yaml-language-server: $schema=kahn.schema.json

The exit code is 0.`,
	register: func(f *flags) action {
		tests := f.Bool("test", false, "print the schema of the files with tests")
		return func(_ context.Context, t *terminal, _ []string) int {
			text, err := definitionSchema()
			if *tests {
				text, err = testSchema, nil
			}
			if err == nil {
				_, err = fmt.Fprintf(t.out, "%s", text)
			}
			if err != nil {
				return t.refuse(err)
			}
			return exitOK
		}
	},
}

// definitionSchema is the schema of package definition with the kinds of this command: a node has one of them, and its config is what
// the kind takes.
func definitionSchema() ([]byte, error) {
	var root map[string]any
	if err := json.Unmarshal(definition.Schema(), &root); err != nil {
		return nil, err
	}
	defs, _ := root["$defs"].(map[string]any)
	node, _ := defs["node"].(map[string]any)
	properties, _ := node["properties"].(map[string]any)
	kindField, _ := properties["kind"].(map[string]any)
	if kindField == nil {
		return nil, fmt.Errorf("the schema of package definition has no kinds of nodes")
	}
	var words, rules []any
	for _, name := range kindNames() {
		word := map[string]any{"const": name}
		if k, ok := kinds[name]; ok {
			var config map[string]any
			if err := json.Unmarshal(k.schema, &config); err != nil {
				return nil, err
			}
			word["description"] = config["description"]
			shared, _ := config["$defs"].(map[string]any)
			maps.Copy(defs, shared)
			delete(config, "$defs")
			defs["config_"+name] = config
			rules = append(rules, ruleOf(name))
		}
		words = append(words, word)
	}
	delete(kindField, "$ref")
	kindField["anyOf"] = words
	earlier, _ := node["allOf"].([]any)
	node["allOf"] = append(earlier, rules...)
	text, err := json.MarshalIndent(root, "", "  ")
	return append(text, '\n'), err
}

// ruleOf is the rule that the nodes with the step of a kind have its config.
func ruleOf(kind string) map[string]any {
	type object = map[string]any
	has := func(field string) object { return object{"required": []any{field}} }
	return object{
		"if": object{
			"required": []any{"kind"}, "properties": object{"kind": object{"const": kind}},
			"not": object{"anyOf": []any{has("graph"), has("test")}},
		},
		"then": object{"required": []any{"config"}, "properties": object{"config": object{"$ref": "#/$defs/config_" + kind}}},
	}
}
