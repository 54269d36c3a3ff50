package otelkahn

import (
	"context"
	"sync"

	"github.com/seed-c794f7ef/kahn"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
)

// scope is the name of the instrumentation.
const scope = "github.com/seed-c794f7ef/kahn/otel"

// Options configure a [Telemetry]. The zero value is ready for use.
type Options struct {
	// TracerProvider makes the spans. Default: the global one.
	TracerProvider trace.TracerProvider
	// MeterProvider makes the instruments. Default: the global one.
	MeterProvider metric.MeterProvider
	// OnlyStarted omits the spans of nodes that never began because they were skipped or stopped. Metrics still count these nodes.
	OnlyStarted bool
	// Lives remembers the span of each run's last life, so that the span of the next life can link to it. Default: [MemoryLives] for 1,000 runs.
	Lives Lives
}

// Telemetry traces and measures runs. One Telemetry may serve several runs at once.
type Telemetry struct {
	tracer      trace.Tracer
	lives       Lives
	onlyStarted bool
	instruments
	runs sync.Map // by run id: *runSpans
}

// New returns a Telemetry. If the MeterProvider cannot make an instrument, New returns the provider's error.
func New(o Options) (*Telemetry, error) {
	if o.TracerProvider == nil {
		o.TracerProvider = otel.GetTracerProvider()
	}
	if o.MeterProvider == nil {
		o.MeterProvider = otel.GetMeterProvider()
	}
	if o.Lives == nil {
		o.Lives = MemoryLives(1000)
	}
	t := &Telemetry{tracer: o.TracerProvider.Tracer(scope), lives: o.Lives, onlyStarted: o.OnlyStarted}
	var err error
	t.instruments, err = newInstruments(o.MeterProvider.Meter(scope))
	return t, err
}

// Options returns the options of a run, or of a [kahn.Runner] for all of its runs. If an option after these options adds middleware, this
// middleware runs inside the attempt's span.
func (t *Telemetry) Options() []kahn.Option {
	return []kahn.Option{kahn.Around(t.around), kahn.Use(t.attempt), kahn.OnNode(t.node)}
}

// TraceID returns an option that sets the trace id in the events of a run to the trace id of ctx, so that the events match the run's spans. Without
// this option, or if ctx has no trace, the trace id in the events is derived from the run's id.
func TraceID(ctx context.Context) kahn.Option {
	if span := trace.SpanContextFromContext(ctx); span.HasTraceID() {
		return kahn.TraceID(span.TraceID().String())
	}
	return kahn.TraceID("")
}
