// Package definition reads and writes graphs as documents: versioned JSON that is easy to write, hard to misread and safe to accept
// from strangers. The module definition/yaml reads and writes the same documents as YAML; package definition/import converts documents
// of three other formats.
//
//	{
//	  "version": 1,
//	  "name": "nightly",
//	  "defaults": {"retry": {"max_attempts": 3, "initial_delay": "1s"}},
//	  "nodes": [
//	    {"id": "fetch", "kind": "http", "config": {"url": "https://example.com/rows"}, "timeout": "30s"},
//	    {"id": "clean", "kind": "sql", "after": [{"from": "fetch", "param": "rows"}]},
//	    {"id": "alert", "kind": "mail", "after": [{"from": "fetch", "outcome": "failure"}]}
//	  ]
//	}
//
// # Fields
//
// The fields of a document are the fields of [kahn.Graph], [kahn.Node], [kahn.Edge] and of the structs in these, in snake case. The values of
// enums are written as names. A field that is left out has its default value. Null and an empty text are errors, except in data such as a
// config. [Schema] lists all fields. A few fields have other names: WhenExpr is "when", TestExpr is "test", UntilExpr is "until", CompensateBy
// is "compensate", and Sub is "graph". The field On of [kahn.Edge] is "outcome", since older YAML readers read the word "on" without quotes as
// true.
//
// A node with the field "expression" computes its output. The field is a text (kind "expression"), or an object with a text for each member of
// the output (kind "assignment"). In the graph, the expression becomes the test of the node. If the node has no "join", its join is
// all_succeeded. So a failed predecessor blocks the node. It would not block a condition.
//
// If a node fails, its successors do not run by default. An edge with the outcome "failure" or "always" lets its target run after a failure. If
// an edge with the outcome "failure" lists "causes", only failures with one of these causes count. The target's "handling" says whether the
// target "handles" or only "observes" the failure; see [kahn.Node] for the default. If a failed node has "continue_on_fail", its successors run
// without its value. A node with "cleanup" runs when its predecessors have ended, even while the run is being stopped. The "memo" of a node is
// the version of its step: if the host keeps outputs, the node takes its output from an earlier run with the same version and the same inputs.
// Nodes with the same "key" count against the same limit, which the host sets.
//
// A root input is written as its name, or as an object with "name", "optional" and "default".
//
// The "schedule" says when runs begin: at the times of a "cron" expression in a "zone", or at the interval "every"; see [Schedule]. It becomes
// a field of the [Document], not of the graph.
//
// Durations are texts with a unit, such as "30s". A delay, or the timeout of a node, may also be "none". Fields such as "config", "params" and
// "default" hold JSON. In these fields, an integer becomes an int64, or an [encoding/json.Number] if it does not fit into an int64, so that no
// digit is lost. Any other number becomes a float64.
//
// # Edges and their order
//
// An edge may be written in any of three places: in its target, in its source, or in the graph's list "edges". The target has the edge in "after",
// or in the synonym "needs". The source has the edge in "next", or in "branches" under the label of the branch. In a node, an edge is the id of
// the other node, or an object. The object has no field for what its place already says: no "to" in "after", no "from" in "next", and neither
// "from" nor "label" in "branches". A single edge in a node needs no list around it.
//
// A node receives its inputs in the order of the edges. First come the edges written in nodes, node by node: for each node the edges in "after",
// then in "next", then in "branches" (by label, in byte order). The edges in the list "edges" come last. So the order of a list matters.
// The order of an object's keys never matters, so tools may sort keys.
//
// [Encode] writes edges into "after" until an edge would be out of order there. It writes this edge, and all later edges, into the list
// "edges".
//
// # Safety
//
// Each [Problem] in an error has its place in the document. [Loader] also compiles the graph, and reports the problems of the graph with
// their places in the document. Unknown fields, duplicate keys, values of the wrong type, invalid UTF-8, and text after the end of the document
// are errors. A name must be one line without control characters or changes of writing direction. The id of a node must not be __proto__ and
// must not contain <, > or ". If a document exceeds the [Limits] for size, depth or counts, reading ends at once and uses no more memory.
//
// A document is data: it names kinds of steps and merge strategies, which the host implements. It cannot contain Go functions.
package definition
