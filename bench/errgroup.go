package main

import (
	"context"

	"golang.org/x/sync/errgroup"
)

// withErrgroup is the executor that most people would write first: every node has a goroutine, which waits for a channel of each predecessor.
type withErrgroup struct {
	in    adjacency // by node: its predecessors
	n     int
	step  stepFunc
	limit int // the number of steps that may run at the same time; 0 means no limit
}

func newWithErrgroup(s *shape, step stepFunc) *withErrgroup {
	return &withErrgroup{in: s.predecessors(), n: s.n, step: step}
}

func (w *withErrgroup) run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	done := make([]chan struct{}, w.n)
	for i := range done {
		done[i] = make(chan struct{})
	}
	// The executor does not call SetLimit of errgroup, which would also count goroutines that wait for predecessors. If these goroutines reached the
	// limit, no goroutine with a ready node could start.
	var slots chan struct{}
	if w.limit > 0 {
		slots = make(chan struct{}, w.limit)
	}
	for node := range w.n {
		g.Go(func() error {
			for _, from := range w.in.row(node) {
				select {
				case <-done[from]:
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			if slots != nil {
				slots <- struct{}{}
				defer func() { <-slots }()
			}
			if err := w.step(ctx, node); err != nil {
				return err
			}
			close(done[node])
			return nil
		})
	}
	return g.Wait()
}
