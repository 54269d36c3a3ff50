// Package definition reads and writes graphs as documents: versioned JSON that is easy to write, hard to misread and safe
// to accept from strangers. The module definition/yaml reads and writes the same documents as YAML;
// package definition/import converts documents in other spellings.
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
// The fields are the fields of [kahn.Graph], [kahn.Node], [kahn.Edge] and of the types of their fields, in snake case,
// with the values of enums by name. A field that is left out has its default; null and empty texts are refused. [Schema]
// lists them all. A few names differ: the texts WhenExpr, TestExpr and UntilExpr are "when", "test" and "until", a Sub is
// a "graph", and [kahn.Edge].On is "outcome", since YAML readers of the older kind take a bare on for true.
//
// A node with an "expression" computes its output: kind expression has a text, kind assignment an object with a text for each member. It is a
// node with a test and the join all_succeeded: unlike a condition, it is blocked by a failure before it as a step is.
//
// A failure blocks what follows it. An edge with the outcome "failure" or "always" leads on after one, for the "causes" that it lists, and its node
// handles the failure; "handling" says "handles" or "observes" where something else is meant. "continue_on_fail" lets what follows a node run without
// its value, and "cleanup" runs a node when its predecessors have ended, also while the run is stopped. A node with a "memo", the version of its step,
// takes its output from an earlier run with the same inputs if the host keeps outputs; nodes with the same "key" share the limits of the host for keys.
//
// A root input is its name, or an object with "name", "optional" and "default".
//
// "schedule" says when runs begin: a "cron" in a "zone", or "every"; see [Schedule]. [Document] has it, since it is no part of the graph.
//
// Durations are texts with a unit, such as "30s"; a delay may be "none". Config, params and defaults hold any JSON. Their
// integers come as int64, or as [encoding/json.Number] if they are beyond it, so none loses a digit; other numbers come
// as float64.
//
// # Edges and their order
//
// An edge may be written in any of these places: at the node that it leads to, in "after" (or "needs", which is the same);
// at the node that it comes from, in "next", or in "branches" by the label of the branch; or in the graph's list of "edges".
// The graph is the same. In a node, an edge is the id of the other node, or an object with the fields of an edge that do not
// follow from its place. A single edge needs no list around it.
//
// The order of edges decides the order of fan-in. It is: node by node in the order of the list of nodes; of each node
// "after", then "next", then "branches" in the order of their labels (byte by byte); then the list of "edges". So lists
// have an order, and objects never do: tools may sort their keys.
//
// [Encode] writes one spelling: "after", and a list of "edges" from the first edge on that could not be written so without
// changing the order.
//
// # Safety
//
// Every problem is reported with its place ([Problem]); [Loader] reports the problems of the graph so, too. Unknown
// fields, duplicate keys, values of the wrong type, invalid UTF-8 and anything after the end are refused. Names are one
// line without control characters or changes of writing direction; ids of nodes are no markup either, and not
// __proto__. [Limits] bound size, depth and counts before memory is spent on them.
//
// A document is data: it names kinds of steps and merge strategies, but the host implements them. Go functions are not part
// of it.
package definition
