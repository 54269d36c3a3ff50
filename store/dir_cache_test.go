package store_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/machine"
	"github.com/seed-c794f7ef/kahn/store"
	"github.com/seed-c794f7ef/kahn/storetest"
)

func TestDirCache(t *testing.T) {
	t.Parallel()
	storetest.RunCache(t, func(t *testing.T) storetest.Cache {
		return store.DirCache{Dir: filepath.Join(t.TempDir(), "new", "folder")}
	})

	t.Run("the time of a file is that of its use", func(t *testing.T) {
		c := store.DirCache{Dir: t.TempDir()}
		for key, ago := range map[string]time.Duration{"aaaa": 3 * time.Hour, "bbbb": 2 * time.Hour, "cccc": 4 * time.Hour} {
			require.NoError(t, c.Put(t.Context(), key, []byte(key)))
			at := time.Now().Add(-ago)
			require.NoError(t, os.Chtimes(filepath.Join(c.Dir, key[:2], key), at, at))
		}
		_, ok, err := c.Get(t.Context(), "cccc")
		require.NoError(t, err)
		require.True(t, ok)
		n, err := c.Prune(t.Context(), 150*time.Minute, 0)
		require.NoError(t, err)
		require.Equal(t, 1, n)
		n, err = c.Prune(t.Context(), 0, 4)
		require.NoError(t, err)
		require.Equal(t, 1, n)
		_, ok, err = c.Get(t.Context(), "cccc")
		require.NoError(t, err)
		require.True(t, ok)
	})
	t.Run("files of others stay", func(t *testing.T) {
		c := store.DirCache{Dir: t.TempDir()}
		old := time.Now().Add(-48 * time.Hour)
		for _, name := range []string{"README.md", "aaaa-1.part"} {
			name = filepath.Join(c.Dir, name)
			require.NoError(t, os.WriteFile(name, []byte("x"), 0o600))
			require.NoError(t, os.Chtimes(name, old, old))
		}
		n, err := c.Prune(t.Context(), time.Minute, 1)
		require.NoError(t, err)
		require.Equal(t, 0, n)
		require.FileExists(t, filepath.Join(c.Dir, "README.md"))
		require.NoFileExists(t, filepath.Join(c.Dir, "aaaa-1.part")) // the unfinished file of a process that has died
	})
	t.Run("slips", func(t *testing.T) {
		for _, key := range []string{"", "..", "../../x", "AB12", "ab"} {
			require.ErrorIs(t, store.DirCache{Dir: t.TempDir()}.Put(t.Context(), key, nil), machine.ErrBadValue, key)
		}
		require.ErrorIs(t, store.DirCache{}.Put(t.Context(), "abcd", nil), machine.ErrBadValue)
		_, err := store.DirCache{}.Prune(t.Context(), 0, 0)
		require.ErrorIs(t, err, machine.ErrBadValue)
		_, err = store.DirCache{Dir: t.TempDir()}.Prune(t.Context(), -1, 0)
		require.ErrorIs(t, err, machine.ErrBadValue)
		n, err := store.DirCache{Dir: filepath.Join(t.TempDir(), "none")}.Prune(t.Context(), 1, 1)
		require.NoError(t, err)
		require.Equal(t, 0, n)
	})
	t.Run("readers see whole entries", func(t *testing.T) {
		c := store.DirCache{Dir: t.TempDir()}
		var all sync.WaitGroup
		for i := range 4 {
			all.Go(func() {
				for range 50 {
					_ = c.Put(t.Context(), "abcd", bytes.Repeat([]byte{byte('0' + i)}, 10_000))
					data, ok, err := c.Get(t.Context(), "abcd")
					if err != nil || !ok || len(data) != 10_000 || !bytes.Equal(data, bytes.Repeat(data[:1], 10_000)) {
						t.Errorf("%d bytes, %v, %v", len(data), ok, err)
					}
				}
			})
		}
		all.Wait()
	})
}

// A second process finds the entry that the first process has put.
func ExampleDirCache() {
	dir, err := os.MkdirTemp("", "cache")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	g := new(kahn.Graph).Add(kahn.Node{ID: "compile", Memo: "v1", Do: func(context.Context, *kahn.Step) (any, error) {
		fmt.Println("compiling")
		return "a.out", nil
	}})
	for range 2 {
		res, err := kahn.Execute(context.Background(), g, nil, &kahn.Memo{Cache: store.DirCache{Dir: dir}})
		compile, _ := res.Node("compile")
		fmt.Println(res.Output(), compile.Memoized, err)
	}
	// Output:
	// compiling
	// a.out false <nil>
	// a.out true <nil>
}
