package sqlite_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
	"github.com/seed-c794f7ef/kahn/store/sqlite"
)

// TestPruneSealedContents: the store finds references in encrypted values. So Prune keeps the content of a file while a run refers to it, as an
// input or as an output, and then removes the content.
func TestPruneSealedContents(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(path, []byte("the secret"), 0o600))
	f, err := kahn.File(path)
	require.NoError(t, err)
	blobs, runs := new(store.MemoryBlobs), openStore(t, file(t), sqlite.Options{})
	codec := &store.Blobs{Codec: &store.Sealed{Codec: kahn.Types{}, Keys: map[string][]byte{"k": bytes.Repeat([]byte{7}, 32)}, Current: "k"}, Store: blobs}
	given := kahn.Inputs(map[string]any{"file": f})
	g := new(kahn.Graph).Add(kahn.Node{ID: "file"})
	for _, opts := range [][]kahn.Option{{kahn.RunID("a")}, {kahn.RunID("b"), given}} {
		step := func(context.Context, *kahn.Step) (any, error) { return f, nil }
		if len(opts) == 2 {
			step = func(context.Context, *kahn.Step) (any, error) { return nil, nil }
		}
		_, err := kahn.Execute(t.Context(), g, step, append(opts, kahn.Durable(runs), kahn.Encoding(codec))...)
		require.NoError(t, err)
	}
	require.NoError(t, os.Remove(path))
	prune := func() {
		pruned, err := runs.Prune(t.Context(), store.PruneQuery{EndedBefore: time.Now().Add(time.Hour), Limit: 1, Blobs: blobs, Grace: -1})
		require.NoError(t, err)
		require.Equal(t, 1, pruned.Runs)
	}
	prune()
	require.Equal(t, 1, blobs.Len())
	require.NoError(t, f.Restore(t.Context(), codec.Contents()))
	prune()
	require.Zero(t, blobs.Len())
}
