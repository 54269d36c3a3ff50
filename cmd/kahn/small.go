package main

import (
	"context"
	"errors"
	"time"

	"github.com/seed-c794f7ef/kahn"
)

// sleep is the step of kind sleep.
func sleep(ctx context.Context, s *kahn.Step) (any, error) {
	c, err := configured[struct{ For string }](s)
	if err != nil {
		return nil, err
	}
	d, err := time.ParseDuration(c.For)
	if err != nil {
		return nil, kahn.Permanent(err)
	}
	select {
	case <-time.After(d):
		return nil, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// The function `expanded` is the step of kind template.
func expanded(_ context.Context, s *kahn.Step) (any, error) {
	c, err := configured[struct{ Text string }](s)
	return c.Text, err
}

// fail is the step of kind fail.
func fail(_ context.Context, s *kahn.Step) (any, error) {
	c, err := configured[struct{ Message string }](s)
	if err != nil {
		return nil, err
	}
	return nil, kahn.Permanent(errors.New(c.Message))
}
