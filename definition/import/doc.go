// Package importer converts documents of three other formats into documents of package definition. The formats are steps, playbooks, and
// nodes and edges. [Convert] recognizes the format by its fields. The documents are JSON, or YAML with [From].
//
//	doc, err := definition.Loader{Parse: importer.Parse, File: "flow.json"}.Load(data)
//	text, err := definition.Encode(doc.Graph) // the same workflow, as package definition spells it
//
// Every unknown field is reported as a [*definition.Problem] with path, position and suggestion, except in the configs of kinds that the
// host performs. A construct without an equivalent is reported with the reason (definition.ErrUnsupported). Problems that the
// [definition.Loader] finds later have the position in the original text, and the path in the converted document.
//
// # Steps
//
// This format has "steps", at the top or in its "spec". A step has an "id", a "type", "next", "branches", "when", "disabled", "config", and
// the ports "inputs" and "outputs". A step becomes a node whose kind is the step's type, with these changes:
//
//   - "retryPolicy" and "timeoutMs", of the step or in its config, become retry and timeout. A step without a retryPolicy makes three
//     attempts, with delays of 1s, 2s and so on up to 30s, without jitter; these are also the defaults of a policy's fields.
//   - The "expression" in the config of a condition becomes its test, and the "timeoutMs" of a gate becomes the gate's timeout.
//   - The other keys of the config stay as they are.
//   - Ports may have a "type": any, boolean, integer, number, string, object, array, one of these followed by [], or a JSON Schema. The
//     types become the schemas of the parameters and of the output; the host must set the Schemas of the graph, which compiles them. A
//     port that is not required may be null.
//   - A step in "next" is an id, or an object with "target" and the ports that the edge connects, "sourceHandle" and "targetHandle". An id
//     connects the ports that have the same name on both sides.
//   - "groups" are lists of steps, or of ids of steps. A step of type "loop" performs the group that "group" in its config names. The step
//     repeats the group until the expression "until" is true, at most "maxIterations" times, or performs the group once for each item of the
//     parameter that "over" names. The step becomes a node with a graph, and with a loop or a map.
//
// # Playbooks
//
// This format has a "workflow". A "step" has a "tool", a "desc", a "retry", and transitions in "next". The kind of the tool becomes the
// kind of the node, and the tool's other fields become the config. A step without a tool becomes a node with an empty graph: the step
// only leads to other steps. The values of the "workload" become inputs with defaults. If a step fails, the steps that follow it do not
// run. The end node also runs after a failure; the run then fails.
//
//   - A transition with a condition goes through a condition node, such as "a.b?" between a and b. All transitions whose
//     conditions are true are taken.
//   - A parameter of a transition is a value, which must be the same in all transitions to the step, or a result of the step before, such
//     as {{ result.rows }}.
//   - Conditions stay as they are. The host's Evaluator reads them.
//
// # Nodes and edges
//
// This format has "nodes" with a "lens_id", or "edges" with "source_node_id" and "target_node_id". A node becomes a node of kind "lens",
// with lens_id and version_id in its config. Nodes are ordered by their "ordinal". Their config has "retry", "timeout_ms", "moderation",
// "merge" and "on_parent_failure". The cause provider_error becomes step_error, and contract_violated becomes contract_violated_output.
// The other keys of a config stay as they are, but a key that is spelled almost like one of these is reported. The results of the
// merges "array" and "json_object" are rendered as JSON text. The ids of edges are dropped.
//
// # All formats
//
// A step or node with the id "end", in upper or lower case, is the end node. An edge may lead to the end node even if the document does not
// list this node.
package importer
