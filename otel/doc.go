// Package otelkahn traces and measures runs with OpenTelemetry.
//
//	telemetry, err := otelkahn.New(otelkahn.Options{})
//	runner := kahn.Runner{Options: telemetry.Options()}
//
// # Spans
//
// A run has a span, each of its nodes has one below that, and each attempt of a node has one below the node's. A composite is the
// parent of the nodes inside it. The context of a step has the span of its attempt, so that the spans of clients that the step calls are
// children of the attempt, and a step that sends a request passes the trace on as usual. The span of the run is a child of the
// span in the context that Execute, Start or the Runner was given.
//
// A node's span begins when the node became ready to start, and ends with the node: the first thing in it may be a wait. The span of a node that began, a composite like
// any other, links to the spans of the nodes that it follows. A node that was skipped, or stopped before it began, has a span without duration that says so. Retries are
// events of the node's span. Each attempt to undo a node has a span beside the node's, "compensate" and its id, with a link to it.
//
// # Lives
//
// A run that suspends itself, is left or crashes, and continues later, has one span for each of its lives. Each links to the span before
// it, as far as [Options.Lives] knows it: by default for the lives in one process.
//
// # Metrics
//
// Metrics have the workflow, which is the name of the graph, and the kind of the node as attributes, never the id of a run or of a node:
//
//   - kahn.runs.active: runs in flight
//   - kahn.run.duration: seconds, by status
//   - kahn.attempts.active: running attempts, by kind
//   - kahn.attempt.queue.duration: seconds between the time at which an attempt was ready to start and its start, by kind
//   - kahn.attempt.duration: seconds, by kind and outcome, which is "ok" or a cause such as "timeout"
//   - kahn.node.duration: seconds from the first attempt to the end of the last one, by kind and status
//   - kahn.nodes.ended: nodes, by kind and status, nodes that never began included
//   - kahn.node.retries: attempts after the first, by kind
//   - kahn.compensation.duration: seconds of an attempt to undo a node, by the kind of its compensation and by outcome; the instruments above do not
//     count it
//   - kahn.store.duration: seconds that a call of the store took, by operation and outcome; see [Telemetry.Store]
package otelkahn
