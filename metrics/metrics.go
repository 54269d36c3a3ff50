// Package metrics counts runs and measures their durations, for Prometheus and for package expvar. Besides kahn, it uses only the standard library.
//
//	var m metrics.Metrics
//	http.Handle("/metrics", &m)  // in the text format of Prometheus
//	expvar.Publish("kahn", &m)   // as JSON
//	runner := kahn.Runner{Options: m.Options()}
//
// The labels are the workflow (the name of the graph), the kind of the node, and a status, an outcome or the name of a usage. The ids of runs and
// nodes are never labels, since such labels would have too many values.
//
//   - kahn_runs_active: runs in flight, by workflow
//   - kahn_run_duration_seconds: durations of the lives of runs, by workflow and status. A life begins when the run is started or continued.
//     It ends when the Result is ready: the run has ended, is suspended or was left
//   - kahn_attempts_active: running attempts, by workflow and kind
//   - kahn_attempt_queue_seconds: times for which attempts were ready before they started, by workflow and kind
//   - kahn_attempt_duration_seconds: durations of attempts, by workflow, kind and outcome: "ok", "suspended" or a cause such as "timeout"
//   - kahn_nodes_total: nodes that have ended, by workflow, kind and status. Nodes that ended without a start count, too
//   - kahn_node_retries_total: attempts after the first, by workflow and kind
//   - kahn_compensation_duration_seconds: durations of compensations, from the first attempt to the end, by workflow, kind of the node,
//     and status: "done" or "failed". No other metric counts the attempts of a compensation
//   - kahn_usage_total: the amounts that steps reported with Step.Use, by workflow, kind and the name given to Use
//
// The nodes inside a composite count, and so does the composite itself. Module otel exports the same metrics to OpenTelemetry, and also exports
// traces.
package metrics

import (
	"context"
	"sync"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
)

// Metrics counts several runs and measures their durations. The zero value is ready for use. A Metrics must not be copied.
type Metrics struct {
	mu     sync.Mutex // guards the fields below, and the fields of all runs
	series map[key]*series
}

// The type `run` holds the state of a run in flight.
type run struct {
	m        *Metrics
	workflow string
	plan     *kahn.Plan       // nil before the run begins, and after its end
	nodes    map[string]*node // nodes that have had an event and have not ended, by path
}

// The type `node` describes a node that has had an event and has not ended.
type node struct {
	kind            string
	attempt         int       // the number of the last attempt that has begun
	queued, started time.Time // queued is zero if the node is not queued; started is zero if no attempt is running
}

// Options returns the options that make a run count in m. Pass them to a single run, or to a [kahn.Runner] for all of its runs.
func (m *Metrics) Options() []kahn.Option {
	return []kahn.Option{kahn.PerRun(func() []kahn.Option {
		x := &run{m: m, nodes: map[string]*node{}}
		return []kahn.Option{kahn.Around(x.around), kahn.OnEvent(x.event)}
	})}
}

// The method `around` counts a run as active until its Result is ready. Then it records the duration.
func (x *run) around(_ context.Context, r *kahn.Run) (context.Context, func(*kahn.Result)) {
	m := x.m
	m.mu.Lock()
	defer m.mu.Unlock()
	x.workflow, x.plan = r.Name(), r.Plan()
	m.of(runsActive, x, "", "").value++
	return nil, func(res *kahn.Result) { // called after all events were delivered
		m.mu.Lock()
		defer m.mu.Unlock()
		for _, n := range x.nodes { // if an attempt of the node is still running, it was abandoned, since it ignored the end of its context
			m.stop(x, n)
		}
		x.plan = nil
		m.of(runsActive, x, "", "").value--
		m.of(runDuration, x, "", res.Status.String()).observe(res.Duration)
	}
}

// The method `stop` counts the running attempt of a node as ended. It reports whether an attempt was running.
func (m *Metrics) stop(x *run, n *node) bool {
	if n.started.IsZero() {
		return false
	}
	m.of(attemptsActive, x, n.kind, "").value--
	n.started = time.Time{}
	return true
}

// The method `event` updates the metrics for an event of a run.
func (x *run) event(e event.Event) {
	if e.Node == "" {
		return
	}
	m := x.m
	m.mu.Lock()
	defer m.mu.Unlock()
	if x.plan == nil {
		return
	}
	path := e.Path
	if path == "" {
		path = e.Node
	}
	if undo, is := e.Payload.(event.Compensation); is {
		if e.Type == event.NodeCompensated {
			declared, _ := x.plan.At(path)
			status := kahn.CompensationDone
			if undo.Err != nil {
				status = kahn.CompensationFailed
			}
			m.of(compensationDuration, x, declared.Kind, status.String()).observe(undo.Duration)
		}
		return
	}
	n := x.nodes[path]
	if n == nil {
		declared, _ := x.plan.At(path) // a node in a graph that a step has returned is not declared, and has no kind
		n = &node{kind: declared.Kind}
		x.nodes[path] = n
	}
	switch e.Type {
	case event.NodeQueued:
		n.queued = e.Time
	case event.NodeStarted:
		m.of(attemptsActive, x, n.kind, "").value++
		if !n.queued.IsZero() {
			m.of(attemptQueue, x, n.kind, "").observe(e.Time.Sub(n.queued))
		}
		if e.Attempt > max(1, n.attempt) { // a retry; a start with the same number continues a suspended attempt
			m.of(nodeRetries, x, n.kind, "").value++
		}
		n.attempt, n.queued, n.started = e.Attempt, time.Time{}, e.Time
	}
	outcome, status, ended := endOf(e)
	started := n.started
	if outcome != "" && m.stop(x, n) {
		m.of(attemptDuration, x, n.kind, outcome).observe(e.Time.Sub(started))
	}
	if ended {
		m.of(nodesTotal, x, n.kind, status.String()).value++
		for name, used := range usageOf(e) {
			m.of(usageTotal, x, n.kind, name).sum += used
		}
		delete(x.nodes, path)
	}
}

// The map `statuses` maps the type of an event that ends a node to the status of the node.
var statuses = map[event.Type]kahn.Status{
	event.NodeCompleted: kahn.Completed, event.NodeFailed: kahn.Failed, event.NodeAborted: kahn.Aborted, event.NodeCancelled: kahn.Cancelled,
	event.NodeSkipped: kahn.Skipped,
}

// usageOf returns the usage of an ended node, without the usage of nodes inside it.
func usageOf(e event.Event) map[string]float64 {
	switch payload := e.Payload.(type) {
	case event.Completion:
		return payload.Usage
	case event.NodeEnd:
		return payload.Usage
	}
	return nil
}

// endOf returns the outcome of the attempt that an event ends, or "". If the event ends the node, endOf also returns the node's status, and true.
func endOf(e event.Event) (outcome string, status kahn.Status, ended bool) {
	status, ended = statuses[e.Type]
	switch payload := e.Payload.(type) {
	case event.Completion, event.Skip:
		outcome = "ok"
	case event.NodeEnd:
		outcome = payload.Cause.String()
	case event.Retry:
		outcome = payload.Cause.String()
	case event.Suspension:
		outcome = "suspended"
	}
	return outcome, status, ended
}
