package yaml_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
	yamlparser "go.yaml.in/yaml/v4"

	"github.com/seed-c794f7ef/kahn/definition"
	"github.com/seed-c794f7ef/kahn/definition/yaml"
)

// validator returns the compiled published schema.
func validator(t testing.TB) *jsonschema.Schema { return compiled(t, definition.Schema()) }

func compiled(t testing.TB, text []byte) *jsonschema.Schema {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	require.NoError(t, err)
	c := jsonschema.NewCompiler()
	require.NoError(t, c.AddResource("definition.json", doc))
	s, err := c.Compile("definition.json")
	require.NoError(t, err)
	return s
}

// valid checks a JSON document against the schema.
func valid(t testing.TB, s *jsonschema.Schema, text []byte) error {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	require.NoError(t, err)
	return s.Validate(doc)
}

// raw converts a document to JSON without dropping or changing anything.
func raw(t testing.TB, file string, text []byte) []byte {
	if filepath.Ext(file) != ".yaml" {
		return text
	}
	var doc any
	require.NoError(t, yamlparser.Unmarshal(text, &doc), file)
	text, err := json.Marshal(doc)
	require.NoError(t, err, file)
	return text
}

// Every document in this repository conforms to the schema, both as it was written and as Encode writes it.
func TestSchemaAcceptsEveryExample(t *testing.T) {
	s := validator(t)
	count := 0
	spelled := map[string]bool{} // the fields of nodes that the documents have
	for _, pattern := range []string{"../testdata/full.json", "testdata/full.yaml", "../../cmd/kahn/definitions/*"} {
		files, err := filepath.Glob(pattern)
		require.NoError(t, err)
		require.NotEmpty(t, files, pattern)
		for _, file := range files {
			if strings.HasSuffix(file, ".test.yaml") {
				continue // the file has tests of a definition
			}
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			decode := definition.Decode
			if filepath.Ext(file) == ".yaml" {
				decode = yaml.Decode
			}
			g, err := decode(text, definition.Limits{})
			require.NoError(t, err, file)
			canonical, err := definition.Encode(g)
			require.NoError(t, err, file)
			require.NoError(t, valid(t, s, canonical), file)

			text = raw(t, file, text)
			require.NoError(t, valid(t, s, text), file)
			var fields struct{ Nodes []map[string]any }
			require.NoError(t, json.Unmarshal(text, &fields), file)
			for _, node := range fields.Nodes {
				for field := range node {
					spelled[field] = true
				}
			}
			count++
		}
	}
	require.GreaterOrEqual(t, count, 5)
	for _, field := range []string{"after", "next", "branches"} {
		require.True(t, spelled[field], "no document is written with %s", field)
	}
}

// The schema accepts every spelling of an edge that the decoder accepts.
func TestSchemaAcceptsEverySpellingOfEdges(t *testing.T) {
	s := validator(t)
	for _, fields := range []string{
		`next: b`,
		`next: [b, c]`,
		`next: {to: b, outcome: always}`,
		`next: [b, {to: c, param: p}]`,
		`branches: {yes-label: b, default: c}`,
		`branches: {x: [b, {to: c}], z: {to: b, param: p}}`,
		`needs: b`,
		`needs: [b, {from: c, key: k, param: p}]`,
		`after: [b, {from: c, label: x}]`,
	} {
		text := []byte("version: 1\nnodes: [{id: a, kind: condition, test: x, " + fields + "}, {id: b}, {id: c}]\n")
		_, err := yaml.Decode(text, definition.Limits{})
		require.NoError(t, err, fields)
		require.NoError(t, valid(t, s, raw(t, "a.yaml", text)), fields)
	}
}

// The schema rejects the same documents as the decoder, as far as a schema can.
func TestSchemaRefusesWhatTheDecoderRefuses(t *testing.T) {
	s := validator(t)
	for name, text := range map[string]string{
		"no version":              `{"nodes": []}`,
		"another version":         `{"version": 2}`,
		"unknown field":           `{"version": 1, "steps": []}`,
		"unknown field in a node": `{"version": 1, "nodes": [{"id": "a", "retries": 3}]}`,
		"no id":                   `{"version": 1, "nodes": [{}]}`,
		"empty id":                `{"version": 1, "nodes": [{"id": ""}]}`,
		"id __proto__":            `{"version": 1, "nodes": [{"id": "__proto__"}]}`,
		"id with HTML":            `{"version": 1, "nodes": [{"id": "<b>"}]}`,
		"id with NUL":             `{"version": 1, "nodes": [{"id": "a\u0000"}]}`,
		"id with a newline":       `{"version": 1, "nodes": [{"id": "a\n"}]}`,
		"id that runs backwards":  `{"version": 1, "nodes": [{"id": "a\u202eb"}]}`,
		"duration as a number":    `{"version": 1, "nodes": [{"id": "a", "timeout": 30}]}`,
		"duration without a unit": `{"version": 1, "nodes": [{"id": "a", "timeout": "30"}]}`,
		"negative duration":       `{"version": 1, "nodes": [{"id": "a", "timeout": "-1s"}]}`,
		"negative delay":          `{"version": 1, "nodes": [{"id": "a", "retry": {"initial_delay": "-1s"}}]}`,
		"no duration":             `{"version": 1, "nodes": [{"id": "a", "overall_timeout": "none"}]}`,
		"unknown join":            `{"version": 1, "nodes": [{"id": "a", "join": "at_least(x)"}]}`,
		"empty join":              `{"version": 1, "nodes": [{"id": "a", "join": ""}]}`,
		"null as a default":       `{"version": 1, "nodes": [{"id": "a", "default": null}]}`,
		"null as a list":          `{"version": 1, "nodes": null}`,
		"edge with its own from":  `{"version": 1, "nodes": [{"id": "a", "next": {"from": "a", "to": "a"}}]}`,
		"edge without to":         `{"version": 1, "nodes": [{"id": "a"}], "edges": [{"from": "a"}]}`,
		"no causes":               `{"version": 1, "nodes": [{"id": "a", "next": {"to": "a", "causes": []}}]}`,
		"text as a schema":        `{"version": 1, "nodes": [{"id": "a", "input_schema": "object"}]}`,
		"empty guard":             `{"version": 1, "nodes": [{"id": "a", "when": ""}]}`,
		"fraction":                `{"version": 1, "nodes": [{"id": "a", "priority": 1.5}]}`,
		"negative count":          `{"version": 1, "nodes": [{"id": "a", "retry": {"max_attempts": -1}}]}`,
		"group without a name":    `{"version": 1, "groups": [{"limit": 1}]}`,
		"empty label":             `{"version": 1, "nodes": [{"id": "a", "branches": {"": "a"}}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			_, err := definition.Decode([]byte(text), definition.Limits{})
			require.Error(t, err)
			require.Error(t, valid(t, s, []byte(text)))
		})
	}
}

// FuzzSchema: a document that the decoder accepts conforms to the schema.
func FuzzSchema(f *testing.F) {
	s := validator(f)
	text, err := os.ReadFile("../testdata/full.json")
	require.NoError(f, err)
	f.Add(text)
	for _, field := range []string{
		`"timeout": "1h2m.5s"`, `"timeout": "+1µs"`, `"retry": {"initial_delay": "+0.5ms", "max_delay": "none"}`, `"join": "at_least(12)"`,
		`"branches": {"a": ["n", {"to": "n"}], "b": "n"}, "next": ["n", {"to": "n", "outcome": "always"}], "needs": {"from": "n"}`,
	} {
		f.Add([]byte(`{"version": 1, "nodes": [{"id": "n", ` + field + `}]}`))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		g, err := definition.Decode(data, definition.Limits{Bytes: 1 << 16})
		if err != nil {
			return
		}
		require.NoError(t, valid(t, s, data))
		text, err := definition.Encode(g)
		require.NoError(t, err)
		require.NoError(t, valid(t, s, text))
	})
}

// The schema for a host rejects other kinds, and configs that do not fit their kind.
func TestSchemaWithKinds(t *testing.T) {
	t.Parallel()
	text, err := definition.SchemaWith(map[string]definition.Kind{
		"exec": {Description: "Runs a program.", Config: `{"type": "object", "required": ["command"], "properties": {"command": {"$ref": "#/$defs/words"}},
			"$defs": {"words": {"type": "array", "items": {"type": "string"}}}}`},
		"http/get %": {Config: map[string]any{"properties": map[string]any{"url": map[string]any{"type": "string"}}}},
		"any":        {},
		"none":       {Config: false},
		"k1":         {Config: false}, "k2": {Config: false}, "k3": {Config: false}, "k4": {Config: false}, "k5": {Config: false}, // several further kinds
	})
	require.NoError(t, err)
	s := compiled(t, text)
	for document, ok := range map[string]bool{
		`{"version": 1, "nodes": [{"id": "a", "kind": "exec", "config": {"command": ["ls"]}}]}`:     true,
		`{"version": 1, "nodes": [{"id": "a", "kind": "exec", "config": {"command": [1]}}]}`:        false,
		`{"version": 1, "nodes": [{"id": "a", "kind": "exec", "config": {}}]}`:                      false,
		`{"version": 1, "nodes": [{"id": "a", "kind": "http/get %", "config": {"url": "x"}}]}`:      true,
		`{"version": 1, "nodes": [{"id": "a", "kind": "http/get %", "config": {"url": 1}}]}`:        false,
		`{"version": 1, "nodes": [{"id": "a", "kind": "any", "config": [1]}]}`:                      true,
		`{"version": 1, "nodes": [{"id": "a", "kind": "none", "config": [1]}]}`:                     false,
		`{"version": 1, "nodes": [{"id": "a", "kind": "none"}, {"id": "b"}]}`:                       true,
		`{"version": 1, "nodes": [{"id": "a", "kind": "gate"}]}`:                                    true,
		`{"version": 1, "nodes": [{"id": "a", "kind": "exce"}]}`:                                    false,
		`{"version": 1, "nodes": [{"id": "a", "graph": {"nodes": [{"id": "b", "kind": "exce"}]}}]}`: false,
	} {
		if err := valid(t, s, []byte(document)); ok {
			require.NoError(t, err, document)
		} else {
			require.Error(t, err, document)
		}
	}
	require.Contains(t, string(text), "Runs a program.")

	_, err = definition.SchemaWith(map[string]definition.Kind{"exec": {Config: "{"}})
	require.ErrorContains(t, err, `kind "exec"`)
	_, err = definition.SchemaWith(map[string]definition.Kind{"exec": {Config: make(chan int)}})
	require.ErrorContains(t, err, `kind "exec"`)
	none, err := definition.SchemaWith(nil)
	require.NoError(t, err)
	require.Error(t, valid(t, compiled(t, none), []byte(`{"version": 1, "nodes": [{"id": "a", "kind": "exec"}]}`)))
}
