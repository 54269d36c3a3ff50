package definition

import _ "embed"

//go:embed schema.json
var schema string

// Schema returns the JSON Schema, draft 2020-12, of the documents. The decoder alone checks rules that a schema cannot
// express: that ids are unique, that edges lead to nodes that exist, and the limits.
func Schema() []byte { return []byte(schema) }
