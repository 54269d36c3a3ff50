package temporal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

const (
	// inlineBytes is the length of JSON above which a value, a call, a reply or a packed snapshot is stored as a blob.
	inlineBytes = 32 << 10
	// cacheBytes is the most bytes of blobs that a cache keeps in memory.
	cacheBytes = 64 << 20
	// workflowPatience is how long a workflow task repeats a failing call of the BlobStore. After that time Temporal repeats the whole task.
	workflowPatience = 3 * time.Second
)

// errBlobs is matched by errors of the BlobStore itself. Such an error says nothing about the value.
var errBlobs = errors.New("the BlobStore")

// The type texts encodes and decodes what goes through Temporal: the values of runs, and whole calls, replies and snapshots. If
// there is a BlobStore, the methods of texts store long JSON in the BlobStore, and return a reference for Temporal.
type texts struct {
	kahn.Codec            // writes and reads values
	whole      kahn.Codec // writes and reads a json.RawMessage, unchanged
	blobs      bool       // there is a BlobStore
}

// textsIn returns a value of type texts for values of the given types. Without a BlobStore, the methods of this value never write a
// reference, and return an error if they read a reference.
func textsIn(blobs store.BlobStore, types kahn.Types, patience time.Duration) texts {
	over := inlineBytes
	if blobs == nil {
		blobs, over = noBlobs{}, math.MaxInt
	}
	return texts{
		Codec: explained{&store.Blobs{Codec: types, Store: blobs, Over: over, Patience: patience}},
		whole: explained{&store.Blobs{Codec: plain{}, Store: blobs, Over: over, Patience: patience}},
		blobs: over == inlineBytes,
	}
}

// write returns a short text unchanged. It stores a long text in the BlobStore, and returns a reference to the blob. Without a BlobStore,
// write returns long texts unchanged, too.
func (t texts) write(text json.RawMessage) (json.RawMessage, error) { return t.whole.Encode(text) }

// The method read is the reverse of write.
func (t texts) read(data json.RawMessage) (json.RawMessage, error) {
	text, err := t.whole.Decode(data)
	if err != nil {
		return nil, err
	}
	return text.(json.RawMessage), nil
}

// plain is a codec that returns JSON unchanged.
type plain struct{}

func (plain) Encode(value any) (json.RawMessage, error) {
	if text, ok := value.(json.RawMessage); ok {
		return text, nil
	}
	return json.Marshal(value) // the list with which Blobs tests its codec
}
func (plain) Decode(data json.RawMessage) (any, error) { return data, nil }

// noBlobs is used as the BlobStore if a worker or a client has none.
type noBlobs struct{}

func (noBlobs) Put(context.Context, string, []byte) error {
	return fmt.Errorf("%w: a value that looks like a reference to a blob needs the field Blobs of Options and Workflow", store.ErrRejected)
}

func (noBlobs) Get(context.Context, string) ([]byte, error) {
	return nil, fmt.Errorf("%w: the field Blobs of Options, Workflow or Store is nil; give each of them the same BlobStore", store.ErrNoBlob)
}

func (noBlobs) Delete(context.Context, string) error { return nil }

// cache is a BlobStore that remembers recent blobs, because the calls of a step's successors soon need the value of the step.
type cache struct {
	store.BlobStore
	mu    sync.Mutex       // guards the fields below
	blobs map[string]*kept // by key
	order []string         // the keys of the blobs, the oldest first
	size  int              // the size of the blobs, in bytes
}

// kept is a blob in a cache.
type kept struct {
	data []byte    // never written to
	put  time.Time // when the cache has put the blob into the BlobStore
}

// putAgain is how long a cache skips further puts of a blob that it has put. PruneBlobs removes an old blob if no history refers
// to it yet. So after putAgain, the cache passes the next put of the blob on to the BlobStore, and the blob counts as new.
const putAgain = 10 * time.Minute

// Put implements [store.BlobStore].
func (c *cache) Put(ctx context.Context, key string, data []byte) error {
	if time.Since(c.find(key).put) < putAgain {
		return nil
	}
	now := time.Now()
	if err := c.BlobStore.Put(ctx, key, data); err != nil {
		if errors.Is(err, store.ErrRejected) {
			return err
		}
		return fmt.Errorf("%w: %w", errBlobs, err)
	}
	c.keep(key, data, now)
	return nil
}

// Get implements [store.BlobStore].
func (c *cache) Get(ctx context.Context, key string) ([]byte, error) {
	if k := c.find(key); k.data != nil {
		return k.data, nil
	}
	data, err := c.BlobStore.Get(ctx, key)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errBlobs, err)
	}
	c.keep(key, data, time.Time{})
	return data, nil
}

func (c *cache) find(key string) kept {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k := c.blobs[key]; k != nil {
		return *k
	}
	return kept{}
}

// keep remembers a blob. The parameter "put" is the time at which the cache has put the blob into the BlobStore. It is zero if the
// cache has read the blob.
func (c *cache) keep(key string, data []byte, put time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.blobs == nil {
		c.blobs = map[string]*kept{}
	}
	if k := c.blobs[key]; k != nil {
		if put.After(k.put) {
			k.put = put
		}
		return
	}
	if len(data) > cacheBytes {
		return
	}
	c.blobs[key], c.order, c.size = &kept{data, put}, append(c.order, key), c.size+len(data)
	for c.size > cacheBytes {
		oldest := c.order[0]
		c.order, c.size = c.order[1:], c.size-len(c.blobs[oldest].data)
		delete(c.blobs, oldest)
	}
}

// watched returns a value of type texts for a workflow. A replay reads the same blobs, since a key always names the same blob. But the
// history does not record errors of the BlobStore, so a replay cannot repeat them. The methods of the returned value therefore store
// an error of the BlobStore in *note. The workflow then fails its task, and Temporal repeats the task.
func (h *host) watched(ctx workflow.Context, note *error) texts {
	if h.Blobs == nil {
		return h.texts
	}
	t := textsIn(h.cache, h.Types, workflowPatience)
	t.Codec, t.whole = watch{t.Codec, ctx, note}, watch{t.whole, ctx, note}
	return t
}

// watch is a codec that stores errors of the BlobStore in *note. During calls of the codec, the SDK's deadlock detector is paused.
type watch struct {
	codec kahn.Codec
	ctx   workflow.Context
	note  *error
}

// Encode implements [kahn.Codec].
func (w watch) Encode(value any) (data json.RawMessage, err error) {
	withoutDeadlockDetection(w.ctx, func() { data, err = w.codec.Encode(value) })
	w.look(err)
	return data, err
}

// Decode implements [kahn.Codec].
func (w watch) Decode(data json.RawMessage) (value any, err error) {
	withoutDeadlockDetection(w.ctx, func() { value, err = w.codec.Decode(data) })
	w.look(err)
	return value, err
}

func (w watch) look(err error) {
	if errors.Is(err, errBlobs) || errors.Is(err, store.ErrBlobDamaged) {
		*w.note = err
	}
}

// withoutDeadlockDetection calls a function. During the call, the SDK's deadlock detector is paused. The SDK pauses it only for data converters,
// so the data converter `caller` calls f.
func withoutDeadlockDetection(ctx workflow.Context, f func()) {
	c := workflow.DataConverterWithoutDeadlockDetection(caller{converter.GetDefaultDataConverter()})
	if aware, is := c.(workflow.ContextAware); is {
		c = aware.WithWorkflowContext(ctx)
	}
	if _, err := c.ToPayload(f); err != nil {
		panic(err) // this is a bug, because the data converter caller never returns an error
	}
}

// caller is a data converter for functions: instead of converting a function, it calls the function.
type caller struct{ converter.DataConverter }

// ToPayload implements [converter.DataConverter].
func (caller) ToPayload(f any) (*commonpb.Payload, error) {
	f.(func())()
	return nil, nil
}
