package schema

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

// The message about each violated keyword is a sentence that names what is expected.
func TestWords(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ schema, value, want string }{
		{`{"type": "array"}`, `"x"`, "expected a list, got text; write it as [item, item]"},
		{`{"type": ["integer", "null"]}`, `true`, "expected null or an integer, got a boolean"},
		{`{"enum": ["GET", "POST", 1]}`, `"PSOT"`, `expected one of "GET", "POST", 1, got "PSOT"; did you mean "POST"?`},
		{`{"enum": [[1]]}`, `2`, `expected [1]`},
		{`{"const": "a"}`, `"b"`, `expected "a", got "b"`},
		{`false`, `1`, "this field is not permitted here, or not together with another field"},
		{`{"not": {}}`, `1`, "the schema forbids this value"},
		{`{"required": ["a/b", "c"]}`, `{}`, "/a~1b: the field is missing; /c: the field is missing"},
		{`{"additionalProperties": false}`, `{"x": 1}`, "/x: there is no field of this name"},
		{`{"additionalProperties": false, "properties": {"top": {}, "engine": {}}}`, `{"tpo": 1, "x": 1}`,
			`/tpo: there is no field of this name; did you mean "top"?; /x: there is no field of this name; there are "engine", "top"`},
		{`{"properties": {"a/b": {"$ref": "#/$defs/l"}}, "$defs": {"l": {"items": {"additionalProperties": false, "properties": {"x y": {}}}}}}`, `{"a/b": [{"x_y/": 1}]}`,
			`/a~1b/0/x_y~1: there is no field of this name; did you mean "x y"?`},
		{`{"dependentRequired": {"a": ["b"]}}`, `{"a": 1}`, `/b: the field is missing: "a" needs it`},
		{`{"propertyNames": {"maxLength": 1}}`, `{"ab": 1}`, "/ab: this is not a name for a field here: expected at most 1 character, got 2"},
		{`{"anyOf": [{"type": "string"}, {"$ref": "#/$defs/n"}], "$defs": {"n": {"type": "number"}}}`, `null`, "expected text or a number, got null"},
		{`{"anyOf": [{"type": "array"}, {"enum": ["on", "off"]}]}`, `"of"`, `expected a list or one of "on", "off", got "of"; did you mean "off"?`},
		{`{"oneOf": [{"type": "number"}, {"type": "integer"}]}`, `1`, "the value satisfies several alternatives, of which it must satisfy one"},
		{`{"minProperties": 1}`, `{}`, "expected at least 1 field, got 0"},
		{`{"maxProperties": 1}`, `{"a": 1, "b": 1}`, "expected at most 1 field, got 2"},
		{`{"minItems": 2}`, `[1]`, "expected at least 2 items, got 1"},
		{`{"maxItems": 1}`, `[1, 2]`, "expected at most 1 item, got 2"},
		{`{"uniqueItems": true}`, `[1, 2, 1]`, "the items 0 and 2 are equal"},
		{`{"contains": {"const": 1}}`, `[2]`, "the list lacks an item that the schema requires"},
		{`{"contains": {"const": 1}, "minContains": 2}`, `[1]`, "expected at least 2 items of a kind, got 1"},
		{`{"contains": {"const": 1}, "maxContains": 1}`, `[1, 1]`, "expected at most 1 item of a kind, got 2"},
		{`{"prefixItems": [{}], "items": false}`, `[1, 2]`, "/1: this field is not permitted here, or not together with another field"},
		{`{"minLength": 1}`, `""`, "expected at least 1 character, got 0"},
		{`{"maxLength": 1}`, `"ab"`, "expected at most 1 character, got 2"},
		{`{"pattern": "^x"}`, `"y"`, `expected text that matches ^x, got "y"`},
		{`{"minimum": 0.5}`, `-5`, "expected at least 0.5, got -5"},
		{`{"maximum": 9007199254740993}`, `9007199254740994`, "expected at most 9007199254740993, got 9007199254740994"},
		{`{"exclusiveMinimum": 0}`, `0`, "expected more than 0, got 0"},
		{`{"exclusiveMaximum": 0}`, `0`, "expected less than 0, got 0"},
		{`{"multipleOf": 2}`, `3`, "expected a multiple of 2, got 3"},
	} {
		contract, err := Compiler{}.Compile(row.schema)
		require.NoError(t, err, row.schema)
		text := ""
		for i, v := range contract.Check(json.RawMessage(row.value)) {
			if i > 0 {
				text += "; "
			}
			if v.Path != "" {
				text += v.Path + ": "
			}
			text += v.Message
		}
		require.Equal(t, row.want, text, row.schema)
	}
}
