package store_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// wrapping is a codec of a host around another codec.
type wrapping struct{ store.Codec }

func (w wrapping) Unwrap() store.Codec { return w.Codec }

// hiding is a codec of a host that hides references.
type hiding struct{ store.Codec }

func (h hiding) Encode(value any) (json.RawMessage, error) {
	data, err := h.Codec.Encode(value)
	if err != nil {
		return nil, err
	}
	return json.Marshal(base64.StdEncoding.EncodeToString(data))
}

func (h hiding) Decode(data json.RawMessage) (any, error) {
	var text []byte
	if err := json.Unmarshal(data, &text); err != nil {
		return nil, err
	}
	return h.Codec.Decode(text)
}

const secret = "the secret of the file"

func secretFile(t *testing.T) kahn.FileRef {
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(path, []byte(secret), 0o600))
	f, err := kahn.File(path)
	require.NoError(t, err)
	return f
}

// requireNoSecret checks that no blob, and no key of a blob, shows the secret or its hash.
func requireNoSecret(t *testing.T, blobs store.BlobLister) {
	t.Helper()
	sum := sha256.Sum256([]byte(secret))
	for key, err := range blobs.Keys(t.Context()) {
		require.NoError(t, err)
		require.NotEqual(t, hex.EncodeToString(sum[:]), key)
		data, err := blobs.Get(t.Context(), key)
		require.NoError(t, err)
		require.False(t, bytes.Contains(data, []byte("secret")))
	}
}

// TestSealedContents: Blobs around Sealed keeps the contents of values, encrypted, under keys that the stored text shows, and another process
// reads them. If Blobs is around several codecs, too.
func TestSealedContents(t *testing.T) {
	t.Parallel()
	key, other := newKey(t), newKey(t)
	sealed := func(c store.Codec, name string, key []byte) store.Codec {
		return &store.Sealed{Codec: c, Keys: map[string][]byte{name: key}, Current: name}
	}
	for name, codec := range map[string]func() store.Codec{
		"sealed":          func() store.Codec { return sealed(kahn.Types{}, "k", key) },
		"sealed twice":    func() store.Codec { return sealed(sealed(kahn.Types{}, "k", key), "o", other) },
		"inside a host's": func() store.Codec { return wrapping{sealed(kahn.Types{}, "k", key)} },
		"around a host's": func() store.Codec { return sealed(wrapping{kahn.Types{}}, "k", key) },
		"blobs in between": func() store.Codec {
			return &store.Blobs{Codec: sealed(kahn.Types{}, "k", key), Store: new(store.MemoryBlobs)}
		},
	} {
		for _, over := range []int{-1, 0, 10, 1 << 20} {
			f, blobs := secretFile(t), new(store.MemoryBlobs)
			value := map[string]any{"files": []any{f, f}, "long": strings.Repeat("x", 1000)}
			data, err := (&store.Blobs{Codec: codec(), Store: blobs, Over: over}).Encode(value)
			require.NoError(t, err, name)
			require.Equal(t, 1, blobs.Len(), "%s, over %d", name, over)
			require.NotContains(t, string(data), f.SHA256, name)
			requireNoSecret(t, blobs)
			keys := store.BlobKeys(data)
			require.Len(t, keys, 1, name)
			_, err = blobs.Get(t.Context(), keys[0])
			require.NoError(t, err, name)

			require.NoError(t, os.Remove(f.Path))
			again := &store.Blobs{Codec: codec(), Store: blobs, Over: over} // another process
			back, err := again.Decode(data)
			require.NoError(t, err, name)
			require.Equal(t, value, back, name)
			require.NoError(t, f.Restore(t.Context(), again.Contents()), name)
			text, err := f.Content()
			require.NoError(t, err, name)
			require.Equal(t, secret, string(text), name)
			second, err := again.Encode(value)
			require.NoError(t, err, name)
			require.Equal(t, string(data), string(second), name)

			require.NoError(t, again.Contents().Delete(t.Context(), f.SHA256))
			require.Zero(t, blobs.Len(), name)
			_, err = again.Contents().Get(t.Context(), f.SHA256)
			require.ErrorIs(t, err, store.ErrNoBlob, name)
		}
	}
	plain := &store.Blobs{Codec: kahn.Types{}, Store: new(store.MemoryBlobs)}
	require.Same(t, plain.Store, plain.Contents())
}

// TestSealedContentsNewKey: after a new key became Current, contents are kept under the new key when their values are stored again, even if the
// file is gone. So the old key can be removed. A changed blob is detected.
func TestSealedContentsNewKey(t *testing.T) {
	t.Parallel()
	keys := map[string][]byte{"old": newKey(t), "new": newKey(t)}
	f, blobs := secretFile(t), new(store.MemoryBlobs)
	codec := func(current string, plain bool, names ...string) *store.Blobs {
		known := map[string][]byte{}
		for _, name := range names {
			known[name] = keys[name]
		}
		return &store.Blobs{Codec: &store.Sealed{Codec: kahn.Types{}, Keys: known, Current: current, Plain: plain}, Store: blobs}
	}
	first, err := codec("old", false, "old").Encode(f)
	require.NoError(t, err)
	require.NoError(t, os.Remove(f.Path))
	both := codec("new", false, "old", "new")
	text, err := both.Contents().Get(t.Context(), f.SHA256)
	require.NoError(t, err)
	require.Equal(t, secret, string(text))
	young := codec("new", false, "new")
	_, err = young.Contents().Get(t.Context(), f.SHA256)
	require.ErrorIs(t, err, store.ErrNoBlob)

	second, err := both.Encode(f)
	require.NoError(t, err)
	require.Equal(t, 2, blobs.Len())
	require.NotEqual(t, store.BlobKeys(first), store.BlobKeys(second))
	require.NoError(t, blobs.Delete(t.Context(), store.BlobKeys(first)[0]))
	require.NoError(t, f.Restore(t.Context(), young.Contents()))
	requireNoSecret(t, blobs)

	key := store.BlobKeys(second)[0]
	data, err := blobs.Get(t.Context(), key)
	require.NoError(t, err)
	for _, changed := range [][]byte{nil, data[:5], append(slices.Clone(data[:len(data)-1]), data[len(data)-1]^1)} {
		require.NoError(t, blobs.Delete(t.Context(), key))
		require.NoError(t, blobs.Put(t.Context(), key, changed))
		_, err = young.Contents().Get(t.Context(), f.SHA256)
		require.ErrorIs(t, err, store.ErrSealed)
	}
	require.NoError(t, blobs.Delete(t.Context(), key))

	_, err = (&store.Blobs{Codec: kahn.Types{}, Store: blobs}).Encode(f) // before the store changed over to Sealed
	require.NoError(t, err)
	_, err = young.Contents().Get(t.Context(), f.SHA256)
	require.ErrorIs(t, err, store.ErrNoBlob)
	text, err = codec("new", true, "new").Contents().Get(t.Context(), f.SHA256)
	require.NoError(t, err)
	require.Equal(t, secret, string(text))
}

// TestHiddenContents: a codec that hides the references to contents is refused once a value has a content, not before.
func TestHiddenContents(t *testing.T) {
	t.Parallel()
	f := secretFile(t)
	type left struct {
		File kahn.FileRef `json:"-"`
		Name string
	}
	types := kahn.Types{"left": left{}}
	sealed := &store.Sealed{Codec: types, Keys: map[string][]byte{"k": newKey(t)}, Current: "k"}
	for name, c := range map[string]store.Codec{
		"hiding": hiding{types}, "hiding sealed": hiding{sealed}, "sealed hiding": &store.Sealed{Codec: hiding{types}, Keys: sealed.Keys, Current: "k"},
		"wraps sealed, without Unwrap": struct{ store.Codec }{sealed}, "in blobs": &store.Blobs{Codec: hiding{types}, Store: new(store.MemoryBlobs)},
	} {
		blobs := new(store.MemoryBlobs)
		codec := &store.Blobs{Codec: c, Store: blobs}
		for _, v := range []any{"x", []any{1.0, map[string]any{"x": "y"}}, left{File: f, Name: "x"}} {
			_, err := codec.Encode(v)
			require.NoError(t, err, name)
		}
		for _, v := range []any{f, []any{"x", f}} {
			_, err := codec.Encode(v)
			require.ErrorIs(t, err, store.ErrRejected, name)
			require.ErrorContains(t, err, "Unwrap() store.Codec", name)
		}
		require.Zero(t, blobs.Len(), name)
	}
	blobs := new(store.MemoryBlobs)
	_, err := (&store.Blobs{Codec: sealed, Store: blobs}).Encode([]any{left{File: f, Name: "x"}, map[string]any{"$blob": "y"}})
	require.NoError(t, err) // the JSON of left has no file
	require.Zero(t, blobs.Len())
}

// TestPruneSealedContents: Prune keeps the content of a file while a run refers to it, and then removes the content.
func TestPruneSealedContents(t *testing.T) {
	t.Parallel()
	f, blobs, runs := secretFile(t), new(store.MemoryBlobs), new(store.Memory)
	codec := &store.Blobs{Codec: &store.Sealed{Codec: kahn.Types{}, Keys: map[string][]byte{"k": newKey(t)}, Current: "k"}, Store: blobs}
	step := func(context.Context, *kahn.Step) (any, error) { return f, nil }
	g := new(kahn.Graph).Add(kahn.Node{ID: "file"})
	for _, id := range []string{"a", "b"} {
		_, err := kahn.Execute(t.Context(), g, step, kahn.Durable(runs), kahn.RunID(id), kahn.Encoding(codec))
		require.NoError(t, err)
	}
	require.NoError(t, os.Remove(f.Path))
	require.Equal(t, 1, blobs.Len())
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

// textCodec takes only texts, and panics if it gets another value.
type textCodec struct{}

func (textCodec) Encode(value any) (json.RawMessage, error)    { return json.Marshal(value.(string)) }
func (textCodec) Decode(data json.RawMessage) (v any, _ error) { return v, json.Unmarshal(data, &v) }

// A codec that panics for the value with which Blobs tests it still encodes the values of the host.
func TestBlobsOverACodecOfTexts(t *testing.T) {
	t.Parallel()
	b := &store.Blobs{Codec: textCodec{}, Store: &store.MemoryBlobs{}}
	data, err := b.Encode("text")
	require.NoError(t, err)
	require.JSONEq(t, `"text"`, string(data))
}
