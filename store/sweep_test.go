package store_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// TestSweep: Sweep removes a blob unless a Put, first or repeated, came after the given time.
func TestSweep(t *testing.T) {
	t.Parallel()
	ctx, key := t.Context(), strings.Repeat("ab", 32)
	for name, s := range map[string]store.BlobSweeper{"memory": new(store.MemoryBlobs), "folder": store.Dir(t.TempDir())} {
		sweep := func(before time.Time) bool {
			gone, err := s.Sweep(ctx, key, before)
			require.NoError(t, err, name)
			return gone
		}
		require.True(t, sweep(time.Now()), "%s: it is not there", name)
		begin := time.Now().Add(-time.Second) // the clock of the file system may differ from time.Now
		require.NoError(t, s.Put(ctx, key, []byte("data")))
		require.False(t, sweep(begin), name)
		time.Sleep(20 * time.Millisecond)
		between := time.Now()
		time.Sleep(20 * time.Millisecond)
		require.NoError(t, s.Put(ctx, key, []byte("data")))
		require.False(t, sweep(between), "%s: it was put again", name)
		data, err := s.Get(ctx, key)
		require.NoError(t, err)
		require.Equal(t, "data", string(data))
		require.True(t, sweep(time.Now().Add(time.Second)), name)
		_, err = s.Get(ctx, key)
		require.ErrorIs(t, err, store.ErrNoBlob, name)
		dead, cancel := context.WithCancel(ctx)
		cancel()
		_, err = s.Sweep(dead, key, begin)
		require.ErrorIs(t, err, context.Canceled)
	}
	_, err := store.Dir(t.TempDir()).Sweep(ctx, "../x", time.Now())
	require.ErrorIs(t, err, store.ErrRejected)
}

// TestSweepWhilePut: a blob that is put during two Sweeps is stored afterwards, and no temporary files are left.
func TestSweepWhilePut(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, s := range map[string]store.BlobSweeper{"memory": new(store.MemoryBlobs), "folder": store.Dir(dir)} {
		ctx, key := t.Context(), strings.Repeat("cd", 32)
		old := time.Now().Add(-time.Hour)
		for range 200 {
			require.NoError(t, s.Put(ctx, key, []byte("data")))
			if name == "folder" {
				require.NoError(t, os.Chtimes(filepath.Join(dir, key[:2], key[2:]), old, old))
			}
			var wg sync.WaitGroup
			for range 2 {
				wg.Go(func() {
					_, err := s.Sweep(ctx, key, old.Add(time.Minute))
					require.NoError(t, err)
				})
			}
			wg.Go(func() { require.NoError(t, s.Put(ctx, key, []byte("data"))) })
			wg.Wait()
			data, err := s.Get(ctx, key)
			require.NoError(t, err, name)
			require.Equal(t, "data", string(data), name)
		}
	}
	left, err := filepath.Glob(filepath.Join(dir, "*", ".*"))
	require.NoError(t, err)
	require.Empty(t, left)
}

// TestKeys: Keys yields the keys of all blobs, and of nothing else.
func TestKeys(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, s := range map[string]store.BlobLister{"memory": new(store.MemoryBlobs), "folder": store.Dir(dir)} {
		list := func(ctx context.Context) (keys []string, err error) {
			for key, err := range s.Keys(ctx) {
				if err != nil {
					return keys, err
				}
				keys = append(keys, key)
			}
			return keys, nil
		}
		keys, err := list(t.Context())
		require.NoError(t, err, name)
		require.Empty(t, keys, name)
		want := []string{"aa11", "aa22", "bb33"}
		for _, key := range want {
			require.NoError(t, s.Put(t.Context(), key, []byte("data")))
		}
		require.NoError(t, os.WriteFile(filepath.Join(dir, "README"), nil, 0o600))
		keys, err = list(t.Context())
		require.NoError(t, err, name)
		require.Equal(t, want, keys, name)
		for key, err := range s.Keys(t.Context()) {
			require.NoError(t, err, name)
			require.Equal(t, "aa11", key)
			break
		}
		dead, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = list(dead)
		require.ErrorIs(t, err, context.Canceled, name)
	}
	for key, err := range store.Dir(filepath.Join(dir, "nothing")).Keys(t.Context()) {
		t.Error("nothing was put", key, err)
	}
	for _, err := range store.Dir(filepath.Join(dir, "README")).Keys(t.Context()) {
		require.Error(t, err, "it is no folder")
	}
}

// TestSweepOfDeadProcess: a process that dies in Sweep leaves a file that it has set aside. The blob can be read meanwhile and afterwards, is listed, and
// the next Sweep removes it, or puts it back if it is still used.
func TestSweepOfDeadProcess(t *testing.T) {
	t.Parallel()
	d, key, ctx := store.Dir(t.TempDir()), strings.Repeat("ab", 32), t.Context()
	died := func() {
		require.NoError(t, d.Put(ctx, key, []byte("data")))
		file := filepath.Join(string(d), key[:2], key[2:])
		require.NoError(t, os.Rename(file, filepath.Join(filepath.Dir(file), ".swept-"+key[2:]+"-1f")))
	}
	read := func() {
		data, err := d.Get(ctx, key)
		require.NoError(t, err)
		require.Equal(t, "data", string(data))
		var keys []string
		for k, err := range d.Keys(ctx) {
			require.NoError(t, err)
			keys = append(keys, k)
		}
		require.Equal(t, []string{key}, keys)
	}
	died()
	read()
	gone, err := d.Sweep(ctx, key, time.Now().Add(-time.Hour))
	require.NoError(t, err)
	require.False(t, gone)
	read()
	died()
	read()
	gone, err = d.Sweep(ctx, key, time.Now().Add(time.Hour))
	require.NoError(t, err)
	require.True(t, gone)
	_, err = d.Get(ctx, key)
	require.ErrorIs(t, err, store.ErrNoBlob)
	empty := func() {
		left, err := os.ReadDir(filepath.Join(string(d), key[:2]))
		require.NoError(t, err)
		require.Empty(t, left)
	}
	empty()
	died()
	require.NoError(t, d.Delete(ctx, key))
	_, err = d.Get(ctx, key)
	require.ErrorIs(t, err, store.ErrNoBlob)
	empty()
}

// A key whose file would have the name of a temporary file is refused, since Keys would not list it.
func TestKeyWithDot(t *testing.T) {
	t.Parallel()
	require.ErrorIs(t, store.Dir(t.TempDir()).Put(t.Context(), "ab.new-1", nil), store.ErrRejected)
}

// A Sealed around a Blobs would leave the blobs in the clear.
func TestSealedAroundBlobs(t *testing.T) {
	t.Parallel()
	sealed := func(c store.Codec) *store.Sealed {
		return &store.Sealed{Codec: c, Keys: map[string][]byte{"k": make([]byte, 32)}, Current: "k"}
	}
	blobs := &store.Blobs{Codec: kahn.Types{}, Store: new(store.MemoryBlobs)}
	for _, c := range []store.Codec{blobs, wrapping{blobs}} {
		require.ErrorContains(t, store.CheckCodec(sealed(c)), "use &Blobs{Codec: &Sealed{...}}")
	}
	require.NoError(t, store.CheckCodec(&store.Blobs{Codec: sealed(kahn.Types{}), Store: new(store.MemoryBlobs)}))
}
