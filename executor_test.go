package kahn_test

import (
	"context"

	"github.com/seed-c794f7ef/kahn"
)

// nothing is the step that does nothing.
func nothing(context.Context, *kahn.Step) (any, error) { return nil, nil }
