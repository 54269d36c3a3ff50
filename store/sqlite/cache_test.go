package sqlite_test

import (
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn/machine"
	"github.com/seed-c794f7ef/kahn/store/sqlite"
	"github.com/seed-c794f7ef/kahn/storetest"
)

func openCache(t *testing.T, path string) *sqlite.Cache {
	t.Helper()
	c, err := sqlite.OpenCache(path)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

func TestCache(t *testing.T) {
	t.Parallel()
	storetest.RunCache(t, func(t *testing.T) storetest.Cache { return openCache(t, filepath.Join(t.TempDir(), "cache.db")) })

	t.Run("the next process finds it", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "cache.db")
		require.NoError(t, openCache(t, path).Put(t.Context(), "ab", []byte("x")))
		data, ok, err := openCache(t, path).Get(t.Context(), "ab")
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, "x", string(data))
	})
	t.Run("two write at once", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "cache.db")
		caches := []*sqlite.Cache{openCache(t, path), openCache(t, path)}
		var all sync.WaitGroup
		for i := range 100 {
			all.Go(func() {
				if err := caches[i%2].Put(t.Context(), fmt.Sprint(i), []byte{byte(i)}); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		n, err := caches[0].Prune(t.Context(), 0, 40)
		require.NoError(t, err)
		require.Equal(t, 60, n)
	})
	t.Run("many are pruned in several transactions", func(t *testing.T) {
		c := openCache(t, filepath.Join(t.TempDir(), "cache.db"))
		for i := range 1203 {
			require.NoError(t, c.Put(t.Context(), fmt.Sprint(i), []byte("x")))
		}
		n, err := c.Prune(t.Context(), time.Hour, 1)
		require.NoError(t, err)
		require.Equal(t, 1202, n)
	})
	t.Run("slips", func(t *testing.T) {
		for _, path := range []string{"", ":memory:"} {
			_, err := sqlite.OpenCache(path)
			require.ErrorIs(t, err, machine.ErrBadValue)
		}
		path := filepath.Join(t.TempDir(), "runs.db")
		s, err := sqlite.Open(path, sqlite.Options{})
		require.NoError(t, err)
		require.NoError(t, s.Close())
		_, err = sqlite.OpenCache(path)
		require.ErrorIs(t, err, sqlite.ErrSchema)
		_, err = openCache(t, filepath.Join(t.TempDir(), "cache.db")).Prune(t.Context(), 0, -1)
		require.ErrorIs(t, err, machine.ErrBadValue)
	})
}
