// Package importer converts two other formats into documents of package definition: documents of steps, and documents of nodes and edges.
// [Convert] recognizes them by their fields; both come as JSON, or as YAML by [From].
//
//	doc, err := definition.Loader{Parse: importer.Parse, File: "flow.json"}.Load(data)
//	text, err := definition.Encode(doc.Graph) // the same workflow, as package definition spells it
//
// Every field that is neither known nor the host's own is a [*definition.Problem] with path, position and suggestion. What has no equivalent is
// refused with the reason (definition.ErrUnsupported). Problems that the [definition.Loader] finds later have the position in the text, and
// the path in the converted document.
//
// # Steps
//
// A document with "steps", at the top or in its "spec". A step has an "id", a "type", "next", "branches", "when", "disabled", "config", and the
// ports "inputs" and "outputs". It becomes a node of the kind of its type, with these changes:
//
//   - "retryPolicy" and "timeoutMs", of the step or in its config, become retry and timeout. A step without a retryPolicy makes three attempts,
//     with delays of 1s, 2s and so on up to 30s, which are not jittered; a policy takes the fields that it lacks from this one.
//   - The "expression" in the config of a condition becomes its test, the "timeoutMs" of a gate the timeout of the gate.
//   - The rest of the config stays as it is.
//
// # Nodes and edges
//
// A document with "nodes" that have a "lens_id", or "edges" with "source_node_id" and "target_node_id". A node becomes one of kind "lens", with lens_id
// and version_id in its config. Nodes are ordered by their "ordinal". Their config has "retry", "timeout_ms", "moderation", "merge" and "on_parent_failure". The
// cause provider_error becomes step_error, and contract_violated becomes contract_violated_output. Array and json_object merges are rendered as JSON text.
// The ids of edges are dropped.
//
// # Both
//
// A step or node with the id "end", in any case, is the end node. An edge may lead to it even if it is not listed.
package importer
