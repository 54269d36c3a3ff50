package kahn

import (
	"cmp"
	"context"
	"log/slog"
	"sync/atomic"

	"github.com/seed-c794f7ef/kahn/event"
)

// LogTo logs the events of the run as [event.LogTo] does, and adds to those of nodes two attributes, kind and label, if the node has them.
// Nodes of a graph that a step has returned have neither. A nil logger is [slog.Default].
func LogTo(logger *slog.Logger) Option {
	return PerRun(func() []Option {
		var plan atomic.Pointer[Plan] // a sink gets events, not the plan
		return []Option{
			Around(func(_ context.Context, r *Run) (context.Context, func(*Result)) {
				plan.Store(r.Plan())
				return nil, nil
			}),
			OnEvent(event.LogTo(logger, func(e Event) []slog.Attr { return plan.Load().describe(cmp.Or(e.Path, e.Node)) })),
		}
	})
}

// describe returns the kind and the label of the node with a path. p may be nil.
func (p *Plan) describe(path string) (attrs []slog.Attr) {
	n, ok := p.At(path)
	if ok && n.Kind != "" {
		attrs = append(attrs, slog.String("kind", n.Kind))
	}
	if ok && n.Label != "" {
		attrs = append(attrs, slog.String("label", n.Label))
	}
	return attrs
}
