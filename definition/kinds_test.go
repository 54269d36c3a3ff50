package definition_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/definition"
)

// lists is a SchemaCompiler. Its schemas are lists of the keys that a config may have. Any other key is a violation.
type lists struct{}

func (lists) Compile(schema any) (kahn.Contract, error) {
	if schema == "broken" {
		return nil, errors.New("no schema")
	}
	return keys(schema.(string)), nil
}

type keys string

func (k keys) Check(value any) (found []kahn.Violation) {
	config := value.(map[string]any)
	if _, has := config["must"]; !has && k == "must" {
		return []kahn.Violation{{Path: "/must", Message: "the field is missing"}}
	}
	if len(config) == 0 {
		return []kahn.Violation{{Message: "it is empty"}}
	}
	for _, key := range []string{"args", "url", "a/b"} {
		if _, has := config[key]; has && !strings.Contains(string(k), key) {
			pointer := "/" + strings.ReplaceAll(key, "/", "~1")
			if key == "args" {
				pointer += "/1/0"
			}
			found = append(found, kahn.Violation{Path: pointer, Message: "not for this kind"})
		}
	}
	return found
}

// If the Loader has Kinds, Load rejects other kinds and configs that do not fit their kind, together with the problems of the graph.
func TestLoadKnowsKinds(t *testing.T) {
	t.Parallel()
	loader := definition.Loader{
		Kinds:   map[string]definition.Kind{"exec": {Config: "args"}, "http": {Config: "url"}, "any": {}, "bad": {Config: "broken"}},
		Prepare: func(g *kahn.Graph) { g.Schemas = lists{} },
	}
	_, err := loader.Load([]byte(`{"version": 1, "nodes": [
  {"id": "a", "kind": "exce", "config": {"args": []}},
  {"id": "b", "kind": "exec", "config": {"url": 1, "args": []}},
  {"id": "c", "kind": "http", "config": {"args": ["x", ["y"]], "a/b": 1}, "after": "c"},
  {"id": "d", "kind": "any", "config": {"url": 1}},
  {"id": "e"},
  {"id": "f", "disabled": true},
  {"id": "g", "graph": {"nodes": [{"id": "h", "kind": "gaet"}, {"id": "i", "kind": "gate"}, {"id": "j", "kind": "x"}, {"id": "k", "kind": "exec"}]}},
  {"id": "l", "kind": "end"},
  {"id": "m", "kind": "bad"}
]}`))
	require.EqualError(t, err, `definition: 10 problems
	line 1, column 1: $: the schema of kind "bad": no schema
	line 2, column 23: $.nodes[0].kind: node "a": unknown kind "exce"; did you mean "exec"?
	line 3, column 49: $.nodes[1].config.url: node "b": config of kind "exec": url: not for this kind
	line 4, column 57: $.nodes[2].config.args[1][0]: node "c": config of kind "http": args[1][0]: not for this kind
	line 4, column 71: $.nodes[2].config["a/b"]: node "c": config of kind "http": a/b: not for this kind
	line 4, column 84: $.nodes[2].after: node "c": cycle: "c" -> "c"
	line 6, column 10: $.nodes[4]: node "e": unknown kind "": the node has a step to perform; there are any, bad, exec, http
	line 8, column 55: $.nodes[6].graph.nodes[0].kind: node "g/h": unknown kind "gaet"; did you mean "gate"?
	line 8, column 113: $.nodes[6].graph.nodes[2].kind: node "g/j": unknown kind "x"; there are any, bad, exec, http
	line 8, column 126: $.nodes[6].graph.nodes[3]: node "g/k": config of kind "exec": it is empty`)
	require.ErrorIs(t, err, kahn.ErrUnknownKind)
	var all *definition.Error
	require.ErrorAs(t, err, &all)
	require.Equal(t, "exec", all.Problems[1].Suggestion)

	// Load also checks the kinds and configs of compensations. The engine's own kinds cannot compensate.
	_, err = loader.Load([]byte(`{"version": 1, "nodes": [
  {"id": "a", "kind": "any", "compensate": {"kind": "exce"}},
  {"id": "b", "kind": "any", "compensate": {"kind": "exec", "config": {"url": 1, "args": []}}},
  {"id": "c", "kind": "any", "compensate": {"kind": "http"}},
  {"id": "d", "kind": "any", "compensate": {"kind": "gate"}},
  {"id": "e", "kind": "any", "compensate": {"kind": "any"}},
  {"id": "f", "compensate": {"kind": "exec", "config": {"args": []}}, "graph": {"nodes": [{"id": "g", "kind": "any", "compensate": {"kind": "htpp", "config": {}}}]}}
]}`))
	require.EqualError(t, err, `definition: 5 problems
	line 2, column 53: $.nodes[0].compensate.kind: node "a": unknown kind "exce"; did you mean "exec"?
	line 3, column 79: $.nodes[1].compensate.config.url: node "b": config of kind "exec": url: not for this kind
	line 4, column 44: $.nodes[2].compensate: node "c": config of kind "http": it is empty
	line 5, column 53: $.nodes[3].compensate.kind: node "d": unknown kind "gate"; there are any, bad, exec, http
	line 7, column 141: $.nodes[5].graph.nodes[0].compensate.kind: node "f/g": unknown kind "htpp"; did you mean "http"?`)

	// A missing field has no place of its own, so its problem has the place of the config, or of the node, and names the field.
	loader.Kinds["llm"] = definition.Kind{Config: "must"}
	_, err = loader.Load([]byte(`{"version": 1, "nodes": [{"id": "a", "kind": "llm", "config": {"x": 1}}, {"id": "b", "kind": "llm"}]}`))
	require.EqualError(t, err, `definition: 2 problems
	line 1, column 63: $.nodes[0].config: node "a": config of kind "llm": must: the field is missing
	line 1, column 81: $.nodes[1]: node "b": config of kind "llm": must: the field is missing`)

	loader.Kinds = nil
	_, err = loader.Load([]byte(`{"version": 1, "nodes": [{"id": "a", "kind": "exce"}]}`))
	require.NoError(t, err)
}
