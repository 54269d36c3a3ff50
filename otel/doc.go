// Package otelkahn traces and measures runs with OpenTelemetry.
//
//	telemetry, err := otelkahn.New(otelkahn.Options{})
//	runner := kahn.Runner{Options: telemetry.Options()}
//
// # Spans
//
// The span of a run is the parent of its nodes' spans, and the span of a node is the parent of its attempts' spans. The span of a composite is the
// parent of the spans of the nodes inside it. The context of a step contains the span of its attempt. So if the step calls a client that makes
// spans, these spans are children of the attempt's span. Requests of the step propagate the trace as usual. The parent of the run's span is the
// span in the context passed to Execute, Start or the Runner.
//
// A node's span begins when the node is ready to start, and ends when the node ends. So the span includes a wait for a slot before the first
// attempt. If a node began, or is a composite, its span links to the spans of the predecessors that completed or failed. If a node was skipped, or
// was stopped before it began, its span has no duration, and the attributes of the span give the reason. [Options.OnlyStarted] omits such spans.
// Retries are events of the node's span. Each attempt to undo a node has its own span, whose name is "compensate" followed by the node's id. This
// span has the same parent as the node's span, and links to the node's span.
//
// # Lives
//
// A life of a run is the time in which one process performs the run. A run that suspends, is left or crashes, and continues later, has one span
// for each of its lives. The span of a life links to the span of the previous life if [Options.Lives] returns that span. The default,
// [MemoryLives], remembers only lives in this process.
//
// # Metrics
//
// No metric has the id of a run or of a node as an attribute. All metrics except kahn.store.duration have the workflow, which is the name of the
// graph, as an attribute. In the following list, the words after "by" name the other attributes of a metric:
//
//   - kahn.runs.active: runs in flight
//   - kahn.run.duration: seconds, by status
//   - kahn.attempts.active: running attempts, by kind
//   - kahn.attempt.queue.duration: seconds that a ready attempt waits for its start, by kind
//   - kahn.attempt.duration: seconds, by kind and outcome, which is "ok" or a cause such as "timeout"
//   - kahn.node.duration: seconds from the first attempt to the end of the last one, by kind and status
//   - kahn.nodes.ended: ended nodes, including nodes that never began, by kind and status
//   - kahn.node.retries: attempts after the first, by kind
//   - kahn.compensation.duration: seconds that an attempt to undo a node took, by the kind of the node's compensation and by outcome; the
//     metrics above do not count compensations
//   - kahn.store.duration: seconds that a call of the store took, by operation and outcome; see [Telemetry.Store]
package otelkahn
