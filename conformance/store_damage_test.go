package conformance_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// keysOfBlobs records the key of each blob by a word that the blob contains.
type keysOfBlobs struct {
	store.MemoryBlobs
	mu   sync.Mutex
	gets int
	keys map[string]string
}

func (s *keysOfBlobs) Put(ctx context.Context, key string, data []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keys[string(data)] = key
	return s.MemoryBlobs.Put(ctx, key, data)
}

func (s *keysOfBlobs) Get(ctx context.Context, key string) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gets++
	return s.MemoryBlobs.Get(ctx, key)
}

// TestLostOutput: if an output of a run is lost, a redrive or fork is possible only if it repeats the node of that output.
func TestLostOutput(t *testing.T) {
	t.Parallel()
	blobs := &keysOfBlobs{keys: map[string]string{}}
	g := graph(kahn.Node{ID: "A"}, kahn.Node{ID: "B", After: []string{"A"}}, subgraph("S", graph(kahn.Node{ID: "x"}), "B"))
	step := func(_ context.Context, s *kahn.Step) (any, error) { return strings.Repeat(s.ID(), 100), nil }
	s := new(store.Memory)
	opts := func(id string) []kahn.Option {
		return []kahn.Option{kahn.RunID(id), kahn.Durable(s), kahn.Encoding(&store.Blobs{Codec: kahn.Types{}, Store: blobs, Over: 20})}
	}
	_, err := kahn.Execute(t.Context(), g, step, opts("old")...)
	require.NoError(t, err)
	for _, id := range []string{"B", "x"} {
		require.NoError(t, blobs.Delete(t.Context(), blobs.keys[fmt.Sprintf("%q", strings.Repeat(id, 100))]))
	}
	snapshot, err := kahn.ReadSnapshot(t.Context(), s, "old")
	require.NoError(t, err)
	for name, nodes := range map[string][]string{"a node that keeps a lost output": {"S"}, "no node": nil} {
		_, err = kahn.Execute(t.Context(), g, step, append(opts("fork of "+name), kahn.Fork(snapshot, nodes...))...)
		require.ErrorIs(t, err, store.ErrNoBlob, name)
		require.ErrorContains(t, err, `"B"`)
	}
	_, err = kahn.Execute(t.Context(), g, step, append(opts("old"), kahn.Redrive(nil, []string{"S"}))...)
	require.ErrorIs(t, err, store.ErrNoBlob)

	blobs.gets = 0
	for what, again := range map[string]func() (*kahn.Result, error){
		"fork": func() (*kahn.Result, error) {
			return kahn.Execute(t.Context(), g, step, append(opts("fork"), kahn.Fork(snapshot, "B"))...)
		},
		"redrive": func() (*kahn.Result, error) {
			return kahn.Execute(t.Context(), g, step, append(opts("old"), kahn.Redrive(nil, []string{"B"}))...)
		},
	} {
		res, err := again()
		require.NoError(t, err, what)
		require.Equal(t, kahn.RunCompleted, res.Status, what)
	}
	require.Equal(t, 2, blobs.gets, "of A alone, twice")
}
