package store_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// values are test values; some of them look like the output of the codecs of this package.
var values = []any{
	nil, true, 7.5, "text", "", strings.Repeat("long ", 1000), 42, []byte("bytes"), time.Second, []any{1.0, nil, "x"}, map[string]any{},
	map[string]any{"$blob": "x"}, map[string]any{"$blob": "x", "y": 1.0}, map[string]any{"$blob": 1.0}, map[string]any{"$blob": nil},
	map[string]any{"$sealed": "k", "data": "x"}, map[string]any{"$sealed": 1.0}, []any{map[string]any{"$blob": "x"}},
}

func newKey(t *testing.T) []byte {
	key := make([]byte, 32)
	_, err := rand.Read(key)
	require.NoError(t, err)
	return key
}

// TestRoundTrip: every combination of the codecs decodes a value to the value that it encoded.
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	sealed := func(c store.Codec) store.Codec {
		return &store.Sealed{Codec: c, Keys: map[string][]byte{"k": newKey(t)}, Current: "k"}
	}
	blobs := func(c store.Codec, over int) store.Codec {
		return &store.Blobs{Codec: c, Store: new(store.MemoryBlobs), Over: over}
	}
	for name, c := range map[string]store.Codec{
		"blobs": blobs(kahn.Types{}, 100), "all blobs": blobs(kahn.Types{}, -1), "sealed": sealed(kahn.Types{}),
		"blobs of sealed": blobs(sealed(kahn.Types{}), 100), "sealed blobs": sealed(blobs(kahn.Types{}, 100)),
		"twice": sealed(sealed(blobs(blobs(kahn.Types{}, 20), 100))), "in a folder": &store.Blobs{Codec: kahn.Types{}, Store: store.Dir(t.TempDir()), Over: 10},
	} {
		for _, v := range values {
			data, err := c.Encode(v)
			require.NoError(t, err, name)
			require.True(t, json.Valid(data), "%s: %s", name, data)
			var spaced bytes.Buffer // a store may write the same JSON in another way
			require.NoError(t, json.Indent(&spaced, data, " ", "  "))
			got, err := c.Decode(spaced.Bytes())
			require.NoError(t, err, "%s: %s", name, data)
			require.Equal(t, v, got, "%s: %s", name, data)
			again, err := c.Encode(v)
			require.NoError(t, err)
			require.Equal(t, string(data), string(again), name)
		}
		_, err := c.Encode(func() {})
		require.ErrorIs(t, err, kahn.ErrNotEncodable, name)
	}
}

// TestBlobs: Blobs keeps only values larger than Over in the blob store, and equal values once.
func TestBlobs(t *testing.T) {
	t.Parallel()
	memory := new(store.MemoryBlobs)
	c := &store.Blobs{Codec: kahn.Types{}, Store: memory, Over: 100}
	small, err := c.Encode(strings.Repeat("x", 98))
	require.NoError(t, err)
	require.Len(t, small, 100)
	require.Zero(t, memory.Len())
	large, err := c.Encode(strings.Repeat("x", 99))
	require.NoError(t, err)
	require.Less(t, len(large), 100)
	require.Equal(t, 1, memory.Len())

	keys := store.BlobKeys(json.RawMessage(`{"value": `+string(large)+`, "list": [`+string(large)+`, {"$blob": 1}, {"$blob": "x", "y": 1}, null]}`), large, json.RawMessage("{"))
	require.Len(t, keys, 1)
	require.NoError(t, memory.Delete(t.Context(), keys[0]))
	require.NoError(t, memory.Delete(t.Context(), keys[0]))
	_, err = c.Decode(large)
	require.ErrorIs(t, err, store.ErrNoBlob)
	require.NoError(t, memory.Put(t.Context(), keys[0], []byte(`"another"`)))
	_, err = c.Decode(large)
	require.ErrorIs(t, err, store.ErrBlobDamaged)
	_, err = c.Decode(json.RawMessage(`{"$blob": 7}`))
	require.ErrorIs(t, err, store.ErrBlobDamaged)
}

// TestStores tests the methods that every blob store has.
func TestStores(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, s := range map[string]store.BlobStore{"memory": new(store.MemoryBlobs), "folder": store.Dir(filepath.Join(dir, "blobs"))} {
		ctx, key := t.Context(), strings.Repeat("ab", 32)
		_, err := s.Get(ctx, key)
		require.ErrorIs(t, err, store.ErrNoBlob, name)
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() { require.NoError(t, s.Put(ctx, key, []byte("data"))) })
		}
		wg.Wait()
		require.NoError(t, s.Put(ctx, "abc", nil))
		data, err := s.Get(ctx, key)
		require.NoError(t, err)
		require.Equal(t, "data", string(data), name)
		data[0] = 'x'
		data, err = s.Get(ctx, key)
		require.NoError(t, err)
		require.Equal(t, "data", string(data), name)
		dead, cancel := context.WithCancel(ctx)
		cancel()
		require.ErrorIs(t, s.Put(dead, "abcd", nil), context.Canceled)
		_, err = s.Get(dead, key)
		require.ErrorIs(t, err, context.Canceled)
		require.NoError(t, s.Delete(ctx, key))
		require.NoError(t, s.Delete(ctx, key))
		_, err = s.Get(ctx, key)
		require.ErrorIs(t, err, store.ErrNoBlob, name)
	}
	for _, bad := range []string{"", "a", "ab", "../../secret", "a/b/c", ".hidden", "..."} {
		require.ErrorIs(t, store.Dir(dir).Put(t.Context(), bad, nil), store.ErrRejected, bad)
		_, err := store.Dir(dir).Get(t.Context(), bad)
		require.ErrorIs(t, err, store.ErrRejected, bad)
		require.ErrorIs(t, store.Dir(dir).Delete(t.Context(), bad), store.ErrRejected, bad)
	}
	var left []string
	require.NoError(t, filepath.Walk(dir, func(path string, f os.FileInfo, err error) error {
		if err == nil && !f.IsDir() {
			left = append(left, path)
		}
		return err
	}))
	require.Equal(t, []string{filepath.Join(dir, "blobs", "ab", "c")}, left) // no temporary file
}

// faulty is a blob store that returns an error until a given time.
type faulty struct {
	store.MemoryBlobs
	until time.Time
	err   error
	calls int
}

func (f *faulty) Put(ctx context.Context, key string, data []byte) error {
	if f.calls++; time.Now().Before(f.until) {
		return f.err
	}
	return f.MemoryBlobs.Put(ctx, key, data)
}

func (f *faulty) Get(ctx context.Context, key string) ([]byte, error) {
	if f.calls++; time.Now().Before(f.until) {
		return nil, f.err
	}
	return f.MemoryBlobs.Get(ctx, key)
}

// TestPatience: Blobs repeats a failing call until its Patience ends, but does not repeat a call that returned ErrRejected.
func TestPatience(t *testing.T) {
	t.Parallel()
	down := errors.New("no connection")
	for _, row := range []struct {
		outage, patience, took time.Duration
		err, want              error
	}{
		{20 * time.Second, 0, 20 * time.Second, down, nil},
		{time.Hour, 0, 30 * time.Second, down, down},
		{time.Hour, time.Minute, time.Minute, down, down},
		{time.Hour, 0, 0, fmt.Errorf("too large: %w", store.ErrRejected), store.ErrRejected},
	} {
		synctest.Test(t, func(t *testing.T) {
			begin := time.Now()
			s := &faulty{err: row.err}
			c := &store.Blobs{Codec: kahn.Types{}, Store: s, Over: -1, Patience: row.patience}
			data, err := c.Encode("x")
			require.NoError(t, err)
			s.until, s.calls = begin.Add(row.outage), 0
			_, err = c.Encode("y")
			require.ErrorIs(t, err, row.want)
			took := time.Since(begin)
			require.True(t, took >= row.took*9/10 && took <= row.took+2*time.Second, "%v", took)
			require.LessOrEqual(t, s.calls, 50)
			s.until = time.Now().Add(row.outage)
			v, err := c.Decode(data)
			if require.ErrorIs(t, err, row.want); err == nil {
				require.Equal(t, "x", v)
			}
		})
	}
}

// TestSealedKeysDiffer: Check refuses equal keys, since the same value under both names would be encrypted with the same nonce.
func TestSealedKeysDiffer(t *testing.T) {
	t.Parallel()
	key := newKey(t)
	c := &store.Sealed{Codec: kahn.Types{}, Keys: map[string][]byte{"c": newKey(t), "b": key, "a": bytes.Clone(key)}, Current: "c"}
	err := c.Check()
	require.ErrorIs(t, err, store.ErrSealed)
	require.ErrorContains(t, err, `the keys "a" and "b" are equal`)
	delete(c.Keys, "a")
	require.NoError(t, c.Check())
}

// TestSealed: without the key nobody can read a value, and Decode detects a value that was changed.
func TestSealed(t *testing.T) {
	t.Parallel()
	old, young := newKey(t), newKey(t)
	c := &store.Sealed{Codec: kahn.Types{}, Keys: map[string][]byte{"old": old}, Current: "old"}
	data, err := c.Encode("the secret")
	require.NoError(t, err)
	require.NotContains(t, string(data), "secret")

	c.Keys["young"], c.Current = young, "young" // another key from now on
	other, err := c.Encode("the secret")
	require.NoError(t, err)
	require.NotEqual(t, string(data), string(other))
	for _, d := range []json.RawMessage{data, other} {
		v, err := c.Decode(d)
		require.NoError(t, err)
		require.Equal(t, "the secret", v)
	}

	var parts map[string]string
	require.NoError(t, json.Unmarshal(data, &parts))
	for i := range parts["data"] { // Decode detects the change of any character
		changed := []byte(parts["data"])
		if changed[i] ^= 1; changed[i] == '\n' || changed[i] == '=' || strings.HasSuffix(parts["data"][:i+1], "=") {
			continue
		}
		text, err := json.Marshal(map[string]string{"$sealed": "old", "data": string(changed)})
		require.NoError(t, err)
		if v, err := c.Decode(text); err == nil && reflect.DeepEqual(v, "the secret") {
			continue // bits of the last character that base64 does not use
		}
		_, err = c.Decode(text)
		require.ErrorIs(t, err, store.ErrSealed, "character %d", i)
	}
	for name, text := range map[string]string{
		"of another key": fmt.Sprintf(`{"$sealed": "young", "data": %q}`, parts["data"]), "of an unknown key": fmt.Sprintf(`{"$sealed": "none", "data": %q}`, parts["data"]),
		"plain": `"the secret"`, "no text": `{"$sealed": "old", "data": 7}`, "no base64": `{"$sealed": "old", "data": "?"}`, "too short": `{"$sealed": "old", "data": "AAAA"}`,
		"no data": `{"$sealed": "old"}`, "more": `{"$sealed": "old", "data": "", "x": ""}`, "nothing": `null`,
	} {
		_, err := c.Decode(json.RawMessage(text))
		require.ErrorIs(t, err, store.ErrSealed, name)
	}
	c.Plain = true
	v, err := c.Decode(json.RawMessage(`"from before"`))
	require.NoError(t, err)
	require.Equal(t, "from before", v)

	delete(c.Keys, "old")
	_, err = c.Decode(data)
	require.ErrorIs(t, err, store.ErrSealed)
	c.Current = "old"
	_, err = c.Encode("x")
	require.ErrorIs(t, err, store.ErrSealed)
	c.Keys["old"] = old[:16]
	_, err = c.Encode("x")
	require.ErrorIs(t, err, store.ErrSealed)
}

// TestDurableRun: a second Execute continues a durable run whose values are encrypted, the large ones as blobs. If the blob store refuses a
// value, only the node of this value fails.
func TestDurableRun(t *testing.T) {
	t.Parallel()
	blobs, runs := new(refusing), new(store.Memory)
	sealed := &store.Sealed{Codec: kahn.Types{}, Keys: map[string][]byte{"k": newKey(t)}, Current: "k"}
	g := new(kahn.Graph).Add(
		kahn.Node{ID: "small"}, kahn.Node{ID: "large", After: []string{"small"}}, kahn.Node{ID: "huge", After: []string{"small"}, ContinueOnFail: true},
		kahn.Node{ID: "gate", Kind: kahn.KindGate, After: []string{"large", "huge"}}, kahn.Node{ID: "last", After: []string{"gate"}},
	)
	step := func(_ context.Context, s *kahn.Step) (any, error) {
		switch s.ID() {
		case "large":
			return strings.Repeat("secret", 1000), nil
		case "huge":
			return strings.Repeat("secret", 10_000), nil
		}
		return "a secret of " + s.ID(), nil
	}
	opts := []kahn.Option{kahn.Durable(runs), kahn.RunID("r"), kahn.Encoding(&store.Blobs{Codec: sealed, Store: blobs, Over: 1000})}
	res, err := kahn.Execute(t.Context(), g, step, opts...)
	require.NoError(t, err)
	require.Equal(t, kahn.RunSuspended, res.Status)
	huge, _ := res.Node("huge")
	require.Equal(t, kahn.CauseStoreRejected, huge.Cause.Kind)
	require.ErrorIs(t, huge.Err, kahn.ErrRejected)
	require.Equal(t, 1, blobs.Len())
	stored, err := runs.Load(t.Context(), "r")
	require.NoError(t, err)
	text, err := json.Marshal(stored)
	require.NoError(t, err)
	require.NotContains(t, string(text), "secret")
	require.Len(t, store.BlobKeys(text), 1)

	res, err = kahn.Execute(t.Context(), g, step, append(opts, kahn.EarlySignals(map[string]any{"gate": "the secret word"}))...)
	require.NoError(t, err)
	require.Equal(t, kahn.RunCompleted, res.Status)
	large, err := kahn.Output[string](res, "large")
	require.NoError(t, err)
	require.Equal(t, strings.Repeat("secret", 1000), large)
}

// refusing rejects blobs above 20,000 bytes.
type refusing struct{ store.MemoryBlobs }

func (r *refusing) Put(ctx context.Context, key string, data []byte) error {
	if len(data) > 20_000 {
		return fmt.Errorf("%w: %d bytes", store.ErrRejected, len(data))
	}
	return r.MemoryBlobs.Put(ctx, key, data)
}

// Values of a durable run are encrypted, and kept in files if they are large.
func Example() {
	folder, err := os.MkdirTemp("", "blobs")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(folder) }()
	key := bytes.Repeat([]byte{7}, 32) // a real host loads the key from its secret store
	codec := &store.Blobs{
		Codec: &store.Sealed{Codec: kahn.Types{}, Keys: map[string][]byte{"2026": key}, Current: "2026"},
		Store: store.Dir(folder),
	}
	g := new(kahn.Graph).Add(kahn.Node{ID: "greet"})
	res, err := kahn.Execute(context.Background(), g, func(context.Context, *kahn.Step) (any, error) { return "hello", nil },
		kahn.Durable(new(store.Memory)), kahn.Encoding(codec))
	fmt.Println(res.Output(), err)
	// Output: hello <nil>
}
