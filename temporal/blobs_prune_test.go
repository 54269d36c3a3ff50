package temporal

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// All references are found: in a text, in a blob to which the text refers, and in a compressed snapshot.
func TestMarks(t *testing.T) {
	t.Parallel()
	blobs := new(store.MemoryBlobs)
	x := textsIn(blobs, nil, 0)
	value, err := x.Encode(long("v"))
	require.NoError(t, err)
	call, err := x.write([]byte(`{"params":{"a":` + string(value) + `},"more":"` + long("m") + `"}`))
	require.NoError(t, err)
	packedValue, err := x.Encode(long("p"))
	require.NoError(t, err)
	unused, err := x.Encode(long("u"))
	require.NoError(t, err)
	snapshot, err := packJSON([]byte(`{"value":` + string(packedValue) + `,"more":"` + long("m") + `"}`))
	require.NoError(t, err)
	require.NotNil(t, snapshot.Gzip)
	out, err := json.Marshal(output{Snapshot: *snapshot})
	require.NoError(t, err)
	m := &marker{of: blobs, dc: converter.GetDefaultDataConverter(), used: map[string]bool{}}
	require.NoError(t, m.mark(t.Context(), call))
	require.NoError(t, m.mark(t.Context(), out))
	require.NoError(t, m.mark(t.Context(), []byte(`{"gzip":"a value of a step"}`)))
	for _, ref := range []json.RawMessage{value, call, packedValue} {
		require.True(t, m.used[store.BlobKeys(ref)[0]], "%s", ref)
	}
	require.False(t, m.used[store.BlobKeys(unused)[0]])
	require.Len(t, m.used, 3)

	_, err = PruneBlobs(t.Context(), BlobPrune{Blobs: blobs})
	require.ErrorIs(t, err, kahn.ErrBadOption)
}

// coarse is a codec that reverses payloads, and fails for payloads that it did not write.
type coarse struct{}

func (coarse) Encode(list []*commonpb.Payload) ([]*commonpb.Payload, error) {
	return secret{}.Encode(list)
}

func (coarse) Decode(list []*commonpb.Payload) ([]*commonpb.Payload, error) {
	for _, p := range list {
		if string(p.GetMetadata()["encoding"]) != "binary/secret" {
			return nil, errors.New("not a payload of this codec")
		}
	}
	return secret{}.Decode(list)
}

// Blobs pass through the data converter, in workers and in clients. Blobs that were stored without it can still be read.
func TestCodedBlobs(t *testing.T) {
	t.Parallel()
	dc := converter.NewCodecDataConverter(converter.GetDefaultDataConverter(), coarse{})
	blobs := new(store.MemoryBlobs)
	former, err := newHost(Options{Blobs: blobs}).texts.Encode(long("former"))
	require.NoError(t, err)
	o := Options{Blobs: blobs, DataConverter: dc}
	ref, err := newHost(o).texts.Encode(long("hidden"))
	require.NoError(t, err)
	stored, err := blobs.Get(t.Context(), store.BlobKeys(ref)[0])
	require.NoError(t, err)
	require.False(t, bytes.Contains(stored, []byte("hidden")))
	for _, reader := range []texts{newHost(o).texts, Workflow{Blobs: blobs, DataConverter: dc}.texts(), Store{Client: newService(), Blobs: blobs, DataConverter: dc}.run("w").of.texts(), {Codec: Store{Blobs: blobs, DataConverter: dc}.Codec(nil)}} {
		for text, ref := range map[string]json.RawMessage{"hidden": ref, "former": former} {
			value, err := reader.Decode(ref)
			require.NoError(t, err)
			require.Equal(t, long(text), value)
		}
	}
	_, err = newHost(Options{Blobs: blobs}).texts.Decode(ref)
	require.ErrorIs(t, err, store.ErrBlobDamaged, "without the data converter")
	other := converter.NewCodecDataConverter(converter.GetDefaultDataConverter(), broken{})
	_, err = textsIn(&cache{BlobStore: CodedBlobs(blobs, other)}, nil, time.Millisecond).Decode(ref)
	require.ErrorIs(t, err, errBlobs, "the codec does not answer")
	require.ErrorContains(t, err, "no codec server")
}

// broken is a codec that fails.
type broken struct{}

func (broken) Encode([]*commonpb.Payload) ([]*commonpb.Payload, error) { return nil, errNoCodec }
func (broken) Decode([]*commonpb.Payload) ([]*commonpb.Payload, error) { return nil, errNoCodec }

var errNoCodec = errors.New("no codec server")

// A worker that has stored a blob long ago stores it again before a new reference to it, since PruneBlobs may have removed it.
func TestPutAgain(t *testing.T) {
	t.Parallel()
	blobs := new(store.MemoryBlobs)
	c := &cache{BlobStore: blobs}
	require.NoError(t, c.Put(t.Context(), "key", []byte("data")))
	require.NoError(t, blobs.Delete(t.Context(), "key"))
	require.NoError(t, c.Put(t.Context(), "key", []byte("data")))
	require.Zero(t, blobs.Len(), "the worker has stored it just now")
	c.blobs["key"].put = time.Now().Add(-putAgain)
	require.NoError(t, c.Put(t.Context(), "key", []byte("data")))
	require.Equal(t, 1, blobs.Len())

	c = &cache{BlobStore: blobs}
	_, err := c.Get(t.Context(), "key")
	require.NoError(t, err)
	require.NoError(t, blobs.Delete(t.Context(), "key"))
	require.NoError(t, c.Put(t.Context(), "key", []byte("data")))
	require.Equal(t, 1, blobs.Len(), "a blob that the worker has only read")
}

// Clients give an error with the choices for inputs and answers that Temporal would refuse.
func TestLongInputs(t *testing.T) {
	t.Parallel()
	p := plan(t, (&kahn.Graph{Inputs: []kahn.Input{{Name: "text"}}}).Add(kahn.Node{ID: "a"}))
	s := newService()
	text := map[string]any{"text": strings.Repeat("x", 2<<20)}
	_, err := Start(t.Context(), s, Workflow{ID: "w", Plan: p}, text)
	require.ErrorIs(t, err, ErrTooLarge)
	require.ErrorContains(t, err, `workflow "w": the inputs are 2097`)
	require.ErrorContains(t, err, "see Workflow.Blobs")
	_, err = Workflow{Plan: p}.signalRequest("ask", text)
	require.ErrorIs(t, err, ErrTooLarge)
	require.ErrorContains(t, err, `the signal for "ask": the value is 2097`)
	_, err = Start(t.Context(), s, Workflow{ID: "w", Plan: p, Blobs: new(store.MemoryBlobs)}, text)
	require.NoError(t, err)
}
