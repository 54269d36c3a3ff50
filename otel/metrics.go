package otelkahn

import (
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// These are the attributes of spans and metrics.
const (
	workflowKey  = attribute.Key("kahn.workflow")
	runKey       = attribute.Key("kahn.run.id")
	planKey      = attribute.Key("kahn.plan.hash")
	statusKey    = attribute.Key("kahn.status")
	nodeKey      = attribute.Key("kahn.node.path")
	labelKey     = attribute.Key("kahn.node.label")
	kindKey      = attribute.Key("kahn.node.kind")
	attemptKey   = attribute.Key("kahn.attempt")
	causeKey     = attribute.Key("kahn.cause")
	skipKey      = attribute.Key("kahn.skip.reason")
	branchesKey  = attribute.Key("kahn.branches")
	outcomeKey   = attribute.Key("kahn.outcome")
	operationKey = attribute.Key("kahn.store.operation")
)

// instruments are the metrics.
type instruments struct {
	runsActive, attemptsActive                                metric.Int64UpDownCounter
	nodesEnded, retries                                       metric.Int64Counter
	runDuration, nodeDuration, attemptDuration, queueDuration metric.Float64Histogram
	compensationDuration, storeDuration                       metric.Float64Histogram
}

// The option `seconds` sets the bounds of the buckets of the histograms. The bounds fit steps that take between a millisecond and some hours.
var seconds = metric.WithExplicitBucketBoundaries(0.001, 0.005, 0.025, 0.1, 0.25, 1, 2.5, 10, 30, 60, 300, 1800, 7200)

func newInstruments(m metric.Meter) (in instruments, err error) {
	var errs []error
	upDown := func(name, unit, description string) metric.Int64UpDownCounter {
		x, err := m.Int64UpDownCounter(name, metric.WithUnit(unit), metric.WithDescription(description))
		errs = append(errs, err)
		return x
	}
	counter := func(name, unit, description string) metric.Int64Counter {
		x, err := m.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(description))
		errs = append(errs, err)
		return x
	}
	histogram := func(name, description string) metric.Float64Histogram {
		x, err := m.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(description), seconds)
		errs = append(errs, err)
		return x
	}
	in = instruments{
		runsActive:           upDown("kahn.runs.active", "{run}", "Runs in flight."),
		attemptsActive:       upDown("kahn.attempts.active", "{attempt}", "Attempts in flight."),
		nodesEnded:           counter("kahn.nodes.ended", "{node}", "Nodes that have ended."),
		retries:              counter("kahn.node.retries", "{attempt}", "Attempts after the first."),
		runDuration:          histogram("kahn.run.duration", "Time of a run, from its start to its end or its rest."),
		nodeDuration:         histogram("kahn.node.duration", "Time of a node, from its first attempt to the end of its last one."),
		attemptDuration:      histogram("kahn.attempt.duration", "Time of an attempt."),
		queueDuration:        histogram("kahn.attempt.queue.duration", "Time between readiness and start of an attempt."),
		compensationDuration: histogram("kahn.compensation.duration", "Time of an attempt to undo a node."),
		storeDuration:        histogram("kahn.store.duration", "Time of a call of the store."),
	}
	return in, errors.Join(errs...)
}
