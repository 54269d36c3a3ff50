package storetest_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn/store"
	"github.com/seed-c794f7ef/kahn/storetest"
)

// checking is a store with its own CheckValue and its own limit for values.
type checking struct {
	store.Memory
	check func(value json.RawMessage) error
	limit int // how many bytes of a value Commit accepts; 0 means any number
}

func (c *checking) CheckValue(value json.RawMessage) error { return c.check(value) }

func (c *checking) Commit(ctx context.Context, l store.Lease, x store.Commit) (store.Applied, error) {
	for _, n := range x.Nodes {
		if c.limit > 0 && len(n.Value) > c.limit {
			return 0, store.ErrRejected
		}
	}
	return c.Memory.Commit(ctx, l, x)
}

// TestCheckedValues: checkedValues accepts a store only if CheckValue agrees with Commit.
func TestCheckedValues(t *testing.T) {
	t.Parallel()
	long := func(value json.RawMessage) error {
		if len(value) > 1000 {
			return store.ErrRejected
		}
		return nil
	}
	for name, row := range map[string]struct {
		check func(value json.RawMessage) error
		limit int
		sound bool
	}{
		"it takes everything":                {func(json.RawMessage) error { return nil }, 0, true},
		"it rejects what it does not take":   {long, 1000, true},
		"it rejects what it takes":           {long, 0, false},
		"it takes what a commit rejects":     {func(json.RawMessage) error { return nil }, 1000, false},
		"it rejects with an error of others": {func(json.RawMessage) error { return errors.New("too long") }, 0, false},
	} {
		errs := storetest.Check(t.Context(), func() store.Store { return &checking{check: row.check, limit: row.limit} })
		found := false
		for _, err := range errs {
			found = found || strings.HasPrefix(err.Error(), "values are checked as they are taken: ")
		}
		require.Equal(t, row.sound, !found, "%s: %v", name, errs)
	}
}
