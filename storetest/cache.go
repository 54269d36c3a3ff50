package storetest

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
)

// Cache is a cache for a [kahn.Memo]. Its entries outlive the process.
type Cache interface {
	Get(ctx context.Context, key string) (data []byte, ok bool, err error)
	Put(ctx context.Context, key string, data []byte) error
	Prune(ctx context.Context, unused time.Duration, bytes int64) (removed int, err error)
}

// RunCache tests what a cache must satisfy. The function "open" makes a new and empty cache.
func RunCache(t *testing.T, open func(t *testing.T) Cache) {
	t.Run("what was put is found", func(t *testing.T) {
		c := open(t)
		_, ok, err := c.Get(t.Context(), "ab12")
		require.NoError(t, err)
		require.False(t, ok)
		for _, data := range [][]byte{[]byte("one"), {}, {0, 255, '\n'}, bytes.Repeat([]byte("long"), 100_000)} {
			require.NoError(t, c.Put(t.Context(), "ab12", data))
			require.NoError(t, c.Put(t.Context(), "ab13", []byte("another")))
			got, ok, err := c.Get(t.Context(), "ab12")
			require.NoError(t, err)
			require.True(t, ok)
			require.True(t, bytes.Equal(data, got), "%d bytes were put, %d are there", len(data), len(got))
		}
	})
	t.Run("pruned to a size", func(t *testing.T) {
		c := open(t)
		for i := range 10 {
			require.NoError(t, c.Put(t.Context(), fmt.Sprintf("%04x", i), make([]byte, 1000)))
		}
		for _, x := range []struct {
			bytes   int64
			removed int
		}{{0, 0}, {10_000, 0}, {9_999, 1}, {3_500, 6}, {1, 3}} {
			n, err := c.Prune(t.Context(), 0, x.bytes)
			require.NoError(t, err)
			require.Equal(t, x.removed, n, "to %d bytes", x.bytes)
		}
		n, err := c.Prune(t.Context(), time.Hour, 0)
		require.NoError(t, err)
		require.Zero(t, n)
	})
	t.Run("a memo over it", func(t *testing.T) {
		c := open(t)
		calls := 0
		g := new(kahn.Graph).Add(kahn.Node{ID: "A", Memo: "1", Do: func(_ context.Context, s *kahn.Step) (any, error) {
			calls++
			x, err := kahn.Root[float64](s, "x")
			return map[string]any{"twice": 2 * x}, err
		}})
		for i, x := range []float64{1, 2, 1, 2} {
			res, err := kahn.Execute(t.Context(), g, nil, &kahn.Memo{Cache: c}, kahn.Inputs(map[string]any{"x": x, "i": i}))
			require.NoError(t, err)
			require.Equal(t, map[string]any{"twice": 2 * x}, res.Output())
			a, _ := res.Node("A")
			require.Equal(t, i > 1, a.Memoized)
		}
		require.Equal(t, 2, calls)
	})
	t.Run("a context that has ended", func(t *testing.T) {
		c := open(t)
		require.NoError(t, c.Put(t.Context(), "ab12", nil))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := c.Prune(ctx, 0, 1)
		require.ErrorIs(t, err, context.Canceled)
	})
}
