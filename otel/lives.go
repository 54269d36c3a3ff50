package otelkahn

import (
	"context"
	"sync"

	"go.opentelemetry.io/otel/trace"
)

// Lives remembers, for each run, the span of its last life. A life lasts from a start or a continuation of the run until the run ends, suspends, is
// left or crashes. The methods may be called from any goroutine, and are never called under a lock of the run.
//
// If runs continue in another process, the host must store each [trace.SpanContext] where the other process can read it. The method MarshalJSON of
// the SpanContext encodes it, and [trace.NewSpanContext] restores it.
type Lives interface {
	// Last returns the span of the run's last life, or the zero value if the span is unknown.
	Last(ctx context.Context, run string) trace.SpanContext
	// Began records the span of a life that has begun.
	Began(ctx context.Context, run string, span trace.SpanContext)
}

// MemoryLives returns a Lives that remembers the given number of runs, at least one. If there are more runs, the Lives forgets the run whose first
// life began earliest.
func MemoryLives(runs int) Lives {
	return &memoryLives{most: max(runs, 1), spans: map[string]trace.SpanContext{}}
}

type memoryLives struct {
	mu    sync.Mutex
	most  int
	spans map[string]trace.SpanContext
	order []string // the run ids, in the order in which their first lives began
}

func (l *memoryLives) Last(_ context.Context, run string) trace.SpanContext {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.spans[run]
}

func (l *memoryLives) Began(_ context.Context, run string, span trace.SpanContext) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, known := l.spans[run]; !known {
		l.order = append(l.order, run)
	}
	l.spans[run] = span
	if len(l.order) > l.most {
		delete(l.spans, l.order[0])
		l.order = l.order[1:]
	}
}
