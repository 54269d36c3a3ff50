package otelkahn

import (
	"context"
	"sync"

	"go.opentelemetry.io/otel/trace"
)

// Lives remembers the span of a run's last life. Its methods are called from any goroutine, and not under a lock of the run.
//
// A host whose runs continue in another process keeps the [trace.SpanContext] where that process finds it, beside the run: its
// methods MarshalJSON and TraceID return what is to be kept, and [trace.NewSpanContext] makes it again.
type Lives interface {
	// Last returns the span of the run's last life; the zero value if it is not known.
	Last(ctx context.Context, run string) trace.SpanContext
	// Began notes that a life of the run has begun.
	Began(ctx context.Context, run string, span trace.SpanContext)
}

// MemoryLives remembers the spans of the given number of runs, at least one; beyond it forgets the run whose first life began first.
func MemoryLives(runs int) Lives {
	return &memoryLives{most: max(runs, 1), spans: map[string]trace.SpanContext{}}
}

type memoryLives struct {
	mu    sync.Mutex
	most  int
	spans map[string]trace.SpanContext
	order []string // in which their first lives began
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
