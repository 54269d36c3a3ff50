// Package importer converts three other formats into documents of package definition: documents of steps, playbooks, and documents of nodes and edges.
// [Convert] recognizes them by their fields; they come as JSON, or as YAML by [From].
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
//   - Ports may have a "type": any, boolean, integer, number, string, object, array, one of these with [] behind it, or a JSON Schema. The types
//     become the schemas of the parameters and of the output, so that the host sets the Schemas of the graph. What is not required may be null.
//   - A step in "next" is an id, or an object with "target", "sourceHandle" and "targetHandle", the ports that the edge connects. An id connects
//     the ports that have the same name on both sides.
//   - "groups" are lists of steps, or of ids of steps. A step of type "loop" performs the "group" in its config: until "until" is true, at most
//     "maxIterations" times, or once for each item of the parameter that "over" names. It becomes a node with a graph and a loop, or a map.
//
// # Playbooks
//
// A document with a "workflow". A "step" has a "tool", whose kind becomes the kind of the node and whose other fields its config, a "desc",
// a "retry", and the transitions in "next". A step without a tool has an empty graph: it only leads to others. The values of the "workload" are
// inputs with defaults. A failure ends what follows it, and the run at its end, which always runs.
//
//   - A transition with a condition leads through a condition node: from a to b through a.b?. All transitions whose conditions are true are
//     taken.
//   - A parameter of a transition is a value, the same in all transitions to the step, or the result of the step before: {{ result.rows }}.
//   - Conditions stay as they are, and are read by the Evaluator of the host.
//
// # Nodes and edges
//
// A document with "nodes" that have a "lens_id", or "edges" with "source_node_id" and "target_node_id". A node becomes one of kind "lens", with lens_id and
// version_id in its config. Nodes are ordered by their "ordinal". Their config has "retry", "timeout_ms", "moderation", "merge" and "on_parent_failure". The
// cause provider_error becomes step_error, and contract_violated becomes contract_violated_output. The other keys of a config stay as they are, unless they
// nearly spell one of these. Array and json_object merges are rendered as JSON text. The ids of edges are dropped.
//
// # All of them
//
// A step or node with the id "end", in any case, is the end node. An edge may lead to it even if it is not listed.
package importer
