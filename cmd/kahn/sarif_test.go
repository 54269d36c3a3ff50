package main

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn/schema"
)

// sarifSchema is the part of the schema of SARIF 2.1.0 (OASIS, errata 01) that vet's reports use, written by hand from the standard. It lists the
// members of each object, the required members, and their values. Every object is closed, so an unlisted member is refused. The schema file of
// OASIS is not in this project, since its license does not allow this. KAHN_SARIF_SCHEMA may name a copy of the file, sarif-schema-2.1.0.json;
// the reports are then checked against this copy, too.
const sarifSchema = `{
  "type": "object", "additionalProperties": false, "required": ["version", "runs"],
  "properties": {
    "$schema": {"type": "string", "format": "uri"},
    "version": {"enum": ["2.1.0"]},
    "runs": {"type": "array", "items": {"$ref": "#/$defs/run"}}
  },
  "$defs": {
    "run": {
      "type": "object", "additionalProperties": false, "required": ["tool"],
      "properties": {
        "tool": {"type": "object", "additionalProperties": false, "required": ["driver"], "properties": {"driver": {"$ref": "#/$defs/toolComponent"}}},
        "columnKind": {"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
        "results": {"type": "array", "items": {"$ref": "#/$defs/result"}}
      }
    },
    "toolComponent": {
      "type": "object", "additionalProperties": false, "required": ["name"],
      "properties": {
        "name": {"type": "string"},
        "informationUri": {"type": "string", "format": "uri"},
        "version": {"type": "string"},
        "rules": {"type": "array", "uniqueItems": true, "items": {"$ref": "#/$defs/reportingDescriptor"}}
      }
    },
    "reportingDescriptor": {
      "type": "object", "additionalProperties": false, "required": ["id"],
      "properties": {"id": {"type": "string"}, "shortDescription": {"$ref": "#/$defs/text"}}
    },
    "text": {"type": "object", "additionalProperties": false, "required": ["text"], "properties": {"text": {"type": "string"}}},
    "result": {
      "type": "object", "additionalProperties": false, "required": ["message"],
      "properties": {
        "ruleId": {"type": "string"},
        "ruleIndex": {"type": "integer", "minimum": -1},
        "level": {"enum": ["none", "note", "warning", "error"]},
        "message": {"$ref": "#/$defs/text"},
        "locations": {"type": "array", "items": {"$ref": "#/$defs/location"}}
      }
    },
    "location": {
      "type": "object", "additionalProperties": false,
      "properties": {
        "physicalLocation": {
          "type": "object", "additionalProperties": false, "required": ["artifactLocation"],
          "properties": {
            "artifactLocation": {
              "type": "object", "additionalProperties": false, "required": ["uri"], "properties": {"uri": {"type": "string", "format": "uri-reference"}}
            },
            "region": {
              "type": "object", "additionalProperties": false, "required": ["startLine"],
              "properties": {"startLine": {"type": "integer", "minimum": 1}, "startColumn": {"type": "integer", "minimum": 1}}
            }
          }
        },
        "logicalLocations": {
          "type": "array", "uniqueItems": true,
          "items": {"type": "object", "additionalProperties": false, "properties": {"fullyQualifiedName": {"type": "string"}}}
        }
      }
    }
  }
}`

// Reports satisfy the schema of SARIF: with problems of each severity, with and without a place, with strange names, and without problems.
func TestSARIFSchema(t *testing.T) {
	t.Parallel()
	schemas := []string{sarifSchema}
	if name := os.Getenv("KAHN_SARIF_SCHEMA"); name != "" {
		data, err := os.ReadFile(name)
		require.NoError(t, err)
		schemas = append(schemas, string(data))
	}
	strange := file(t, "ä b%#?.yaml", "version: 1\nnodes:\n  - {id: a, kind: sleep, config: {for: soon}}\n")
	long := file(t, "long.json", `{"version": 1, "nodes": [`+strings.Repeat(" ", 1<<20)+`]}`)
	broken := file(t, "broken.yaml", "nodes: [")
	_, wrong, _ := invoke(t, "", "vet", "-format", "sarif", "testdata/vet/unused.yaml", "testdata/vet/kinds.yaml", strange, long, broken)
	_, clean, _ := invoke(t, "", "vet", "-format", "sarif", "definitions/approval.yaml")
	require.Contains(t, wrong, `"warning"`)
	require.Contains(t, wrong, "the document is longer", "a problem without a place")
	for _, text := range schemas {
		contract, err := schema.Compiler{}.Compile(text)
		require.NoError(t, err)
		for _, report := range []string{wrong, clean} {
			require.Empty(t, contract.Check(json.RawMessage(report)))
		}
		for was, is := range map[string]string{ // the schema must refuse each of these changes
			`"version": "2.1.0"`:   `"version": "2.1"`,
			`"startLine": `:        `"startLine": -`,
			`"startColumn": `:      `"column": `,
			`"level": "error"`:     `"level": "fatal"`,
			`"message": {`:         `"said": {`,
			`"driver": {`:          `"driver_": {`,
			`"unicodeCodePoints"`:  `"characters"`,
			`"uri": "`:             `"file": "`,
			`"shortDescription": `: `"description": `,
		} {
			require.Contains(t, wrong, was)
			require.NotEmpty(t, contract.Check(json.RawMessage(strings.Replace(wrong, was, is, 1))), "%s for %s", is, was)
		}
	}
}
