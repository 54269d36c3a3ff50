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
// The fields are the fields of [kahn.Graph], [kahn.Node], [kahn.Edge] and of their fields' types, in snake case, with enum values by name.
// A field that is left out has its default; null and empty texts are errors. [Schema] lists all fields. A few names differ: the texts
// WhenExpr, TestExpr and UntilExpr are "when", "test" and "until", a Sub is a "graph", and [kahn.Edge].On is "outcome", since older YAML
// readers take a bare on for true.
//
// A node with an "expression" computes its output: kind expression has a text, kind assignment an object with a text for each member. Such
// a node has a test and the join all_succeeded: like a step, and unlike a condition, it is blocked by a failure before it.
//
// A failure blocks what follows it. An edge with the outcome "failure" or "always" leads on after a failure; if it lists "causes", only
// after failures with one of these causes. Its target handles the failure, unless its "handling" says otherwise: "handles" or "observes".
// With "continue_on_fail" the successors of a failed node run without its value. A node with "cleanup" runs when its predecessors have
// ended, even while the run is being stopped. A node with a "memo", the version of its step, takes its output from an earlier run with the
// same inputs if the host keeps outputs. Nodes with the same "key" share the host's limits for keys.
//
// A root input is its name, or an object with "name", "optional" and "default".
//
// "schedule" says when runs begin: a "cron" in a "zone", or "every"; see [Schedule]. [Document] has it, since it is not part of the graph.
//
// Durations are texts with a unit, such as "30s"; a delay may be "none". Config, params and defaults hold any JSON. Their integers become
// int64, or [encoding/json.Number] if they are out of its range, so that no digit is lost; other numbers become float64.
//
// # Edges and their order
//
// An edge may be written in any of three places, with the same result. At its target, it is in "after" (or "needs", a synonym). At its
// source, it is in "next", or in "branches" by the label of the branch. Or it is in the graph's list of "edges". In a node, an edge is the
// id of the other node, or an object with the fields of an edge that do not follow from its place. A single edge needs no list around it.
//
// The order of edges decides the order of fan-in. First come the edges written in nodes, node by node: for each node the edges of
// "after", then of "next", then of "branches" in the byte order of their labels. Then come the edges of the list "edges". So the order of
// a list matters and the order of an object's keys never does: tools may sort keys.
//
// [Encode] writes edges in "after" as long as this keeps their order. The first edge for which it would not, and all edges after that
// one, are in the list "edges".
//
// # Safety
//
// Every problem is reported with its place ([Problem]); [Loader] also reports the problems of the graph with theirs. Unknown fields,
// duplicate keys, values of the wrong type, invalid UTF-8 and text after the end are errors. Names must be one line without control
// characters or changes of writing direction; ids of nodes also must not be markup or __proto__. [Limits] bound size, depth and counts
// before memory is spent on them.
//
// A document is data: it names kinds of steps and merge strategies, which the host implements. It cannot contain Go functions.
package definition
