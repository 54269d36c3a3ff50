package definition

import _ "embed"

//go:embed schema.json
var schema string

// Schema returns the JSON Schema, draft 2020-12, of the documents. What a schema cannot say is checked by the decoder
// alone: that ids are unique, that edges lead to nodes that exist, and the limits.
func Schema() []byte { return []byte(schema) }
