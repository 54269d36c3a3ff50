package storetest

import (
	"context"
	"fmt"
	"testing"
)

// check is a requirement on stores. Its argument is a new and empty store, or a function that opens one.
type check[A any] struct {
	name string
	f    func(ctx context.Context, arg A) error
}

// runAll runs checks as subtests.
func runAll[A any](t *testing.T, list []check[A], arg func(t *testing.T) A) {
	t.Helper()
	for _, c := range list {
		t.Run(c.name, func(t *testing.T) {
			if err := c.f(t.Context(), arg(t)); err != nil {
				t.Error(err)
			}
		})
	}
}

// findAll runs checks without a test, and returns the failures, each with the name of its check.
func findAll[A any](ctx context.Context, list []check[A], arg func() A) (errs []error) {
	for _, c := range list {
		if err := c.f(ctx, arg()); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", c.name, err))
		}
	}
	return errs
}
