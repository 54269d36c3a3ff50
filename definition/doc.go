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
// The fields of a document are the fields of [kahn.Graph], [kahn.Node], [kahn.Edge] and the structs in these, in snake case. The values of enums
// are written as names. A field that is left out has its default value; null is an error, and so is an empty text. [Schema] lists all fields. A
// few names differ. The fields WhenExpr, TestExpr and UntilExpr have the names "when", "test" and "until", and Sub has the name "graph". The
// field On of [kahn.Edge] has the name "outcome", since older YAML readers take the word "on" without quotes for true.
//
// A node with an "expression" computes its output. For the kind "expression" this field is a text, for the kind "assignment" an object with
// a text for each member. In the graph, the expression becomes the test of the node. If the node has no "join", its join is all_succeeded: a
// failed predecessor blocks the node, as it blocks a step. It does not block a condition.
//
// If a node fails, its successors do not run by default. An edge with the outcome "failure" or "always" starts its target after a failure; if
// the edge lists "causes", only failures with one of these causes count. The target node handles the failure if the node's "handling" is
// "handles", and only observes the failure if the "handling" is "observes"; see [kahn.Node] for the default. With "continue_on_fail" the
// successors of a failed node run without its value. A node with "cleanup" runs when its predecessors have ended, even while the run is being
// stopped. The "memo" of a node is the version of its step: if the host keeps outputs, the node takes its output from an earlier run with the
// same version and the same inputs. Nodes with the same "key" count against the same limit, which the host sets.
//
// A root input is written as its name, or as an object with "name", "optional" and "default".
//
// "schedule" says when runs begin: a "cron" in a "zone", or "every"; see [Schedule]. The schedule is a field of [Document], not of the
// graph.
//
// Durations are texts with a unit, such as "30s"; a delay may be "none". Config, params and defaults hold any JSON. Their integers
// become int64, or [encoding/json.Number] if an int64 is too small for them, so that no digit is lost. Other numbers become float64.
//
// # Edges and their order
//
// An edge may be written in any of three places, with the same result. At its target, it is in "after" (or "needs", a synonym). At its source,
// it is in "next", or in "branches" under the label of the branch. Or it is in the graph's list of "edges". In a node, an edge is the id of the
// other node, or an object. The object has no field for what its place already says: no "to" in "after", no "from" in "next", and neither "from"
// nor "label" in "branches". A single edge needs no list around it.
//
// The order of edges decides in which order a node receives its inputs. First come the edges written in nodes, node by node: for each node the
// edges of "after", then of "next", then of "branches" in the byte order of their labels. Then come the edges of the list "edges". So the order
// of a list matters. The order of an object's keys never matters, so tools may sort keys.
//
// [Encode] writes edges in "after" until an edge would be out of order there. It writes this edge, and all later edges, in the list
// "edges".
//
// # Safety
//
// Every problem is reported with its place ([Problem]); [Loader] also compiles the graph, and reports the problems of the graph with
// their places in the document. Unknown fields, duplicate keys, values of the wrong type, invalid UTF-8 and text after the end are
// errors. Names must be one line without control characters or changes of writing direction; ids of nodes also must not be markup or
// __proto__. A document that exceeds the [Limits] for size, depth and counts is refused before more memory is spent on it.
//
// A document is data: it names kinds of steps and merge strategies, which the host implements. It cannot contain Go functions.
package definition
