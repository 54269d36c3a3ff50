// Package importer converts documents of three other formats into documents of package definition. The formats have the names "steps",
// "playbooks", and "nodes and edges". [Convert] recognizes a document's format by the fields. The documents are JSON, or YAML with [From].
//
//	doc, err := definition.Loader{Parse: importer.Parse, File: "flow.json"}.Load(data)
//	text, err := definition.Encode(doc.Graph) // the same workflow, as package definition spells it
//
// Convert reports each unknown field as a [*definition.Problem] with path, position and suggestion. The config of a kind that the host performs
// may have any fields. Convert reports a construct without an equivalent as a Problem of kind definition.ErrUnsupported, with the reason. A
// Problem that the [definition.Loader] finds later has the position in the original text, but the path in the converted document.
//
// # Steps
//
// A document of this format has "steps", at the top or in its "spec". A step has the fields "id", "type", "label", "next", "branches", "when",
// "disabled" and "config", and ports in "inputs" and "outputs". It becomes a node whose kind is the step's type, with these changes:
//
//   - "retryPolicy" and "timeoutMs", in the step or in its config, become retry and timeout. A step without a retryPolicy makes three
//     attempts. The delay begins at 1s, doubles up to 30s, and has no jitter. The fields of a retryPolicy have the same defaults.
//   - The "expression" in the config of a condition becomes the condition's test, and the "timeoutMs" of a gate becomes the gate's timeout.
//   - The other keys of the config stay as they are.
//   - Ports may have a "type": a word such as any, boolean, integer, number, string, object or array, such a word followed by [], or a JSON
//     Schema. The types become the schemas of the parameters and of the output. The Schemas of the graph compile them, so the host must set
//     Schemas. An output port may be null, and so may an input port that is not required.
//   - A step in "next" is an id, or an object with "target" and, for the ports that the edge connects, "sourceHandle" and "targetHandle". For
//     an id, an edge connects each output port with the input port of the same name. If no names are the same, the edge connects no ports.
//   - A group in "groups" has an "id" and lists its "steps", as objects or by their ids. A step of type "loop" performs a group: the "group" in
//     its config is the group's id. The step repeats the group until the expression "until" is true, at most "maxIterations" times. Or it
//     performs the group once for each item of the parameter that "over" names. It becomes a node with a graph, and with a loop or a map.
//
// # Playbooks
//
// A document of this format has a "workflow", which is a list of steps. A step has its id in "step", a "tool", a "desc", a "retry", and
// transitions in "next". The kind of the tool becomes the kind of the node, and the tool's other fields become the config. A step without a
// tool only leads to other steps: it becomes a node with an empty graph. The values of the "workload" become inputs with defaults. If a step
// fails, the steps that follow it do not run. The end node runs even after a failure, but the run then fails.
//
//   - A transition with a condition goes through a condition node, such as "a.b?" between a and b. A run takes all transitions whose
//     conditions are true.
//   - A parameter of a transition is a fixed value, or a result of the step before, such as {{ result.rows }}. A fixed value must be the same
//     in all transitions to the step.
//   - Conditions stay as they are. The host's Evaluator parses them.
//
// # Nodes and edges
//
// A document of this format has "nodes" with a "lens_id", or "edges" with "source_node_id" and "target_node_id". A node becomes a node of kind
// "lens", with lens_id and version_id in its config. Nodes are ordered by their "ordinal". The keys "retry", "timeout_ms", "moderation", "merge"
// and "on_parent_failure" of a node's config become fields of the node. The cause provider_error becomes step_error, and contract_violated
// becomes contract_violated_output. The other keys of a config stay as they are. But Convert reports a key that is spelled almost like one of
// the five keys above. The results of the merges "array" and "json_object" are rendered as JSON text. The ids of edges are dropped.
//
// # All formats
//
// A step or node with the id "end", in upper or lower case, is the end node. An edge may lead to the end node even if the document does not
// contain this node.
package importer
