package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/seed-c794f7ef/kahn/internal/foreign"
)

// BlobStore keeps data of any size under keys that are computed from the data. Several goroutines, and several processes, may call its
// methods at the same time.
type BlobStore interface {
	// Put keeps data under a key. If the same data is put again, only the time at which it was put changes. The error matches [ErrRejected] if the
	// store will never accept the data.
	Put(ctx context.Context, key string, data []byte) error
	// Get returns the data under a key. The error matches [ErrNoBlob] if there is no such key.
	Get(ctx context.Context, key string) ([]byte, error)
	// Delete removes a key and its data. It returns no error if there is no such key.
	Delete(ctx context.Context, key string) error
}

// BlobSweeper is a [BlobStore] that records when blobs were put. [Admin] needs it to remove blobs to which no run refers any more.
type BlobSweeper interface {
	BlobStore
	// Sweep removes the blob of a key unless the blob was put after the given time. The result "gone" is true if there is no blob under the key any
	// more. Sweep must not remove a blob that is being put at the same time.
	Sweep(ctx context.Context, key string, before time.Time) (gone bool, err error)
}

// BlobLister is a [BlobSweeper] that can list its keys. It is for programs that search for unused blobs themselves. [Admin].Prune does not need it.
type BlobLister interface {
	BlobSweeper
	// Keys yields the keys under which blobs were put. A key that is put or removed during the iteration may be missing. After an error, the
	// iteration ends.
	Keys(ctx context.Context) iter.Seq2[string, error]
}

// Errors of blobs.
var (
	// ErrNoBlob is returned if there is no blob under a key.
	ErrNoBlob = errors.New("no such blob")
	// ErrBlobDamaged is returned if the data of a blob does not match its key.
	ErrBlobDamaged = errors.New("the blob is damaged")
)

// Blobs is a codec that keeps large values in a [BlobStore] and writes a short reference in their place. When Blobs reads a value back from the
// BlobStore, it checks the value against the reference. A blob stays in the store while a run refers to it; [Admin].Prune removes unused blobs.
// Do not wrap Blobs in a codec that hides the references, such as [Sealed]. Instead, make Sealed the Codec of Blobs. A Blobs must not be copied.
type Blobs struct {
	Codec Codec
	Store BlobStore
	// A value becomes a blob if the Codec's output has more bytes than Over. Zero means 64 KiB; if Over is negative, all values become blobs.
	Over int
	// Patience is how long Blobs repeats a failing call of the Store, and also how long one call may take. If the calls fail for longer, the value
	// cannot be encoded or decoded. If the value of a node cannot be encoded, the node fails. Zero means 30 s.
	Patience time.Duration

	shows atomic.Int32 // whether references can be found in the Codec's output: unknown, shown or hidden
}

// Check returns an error if there is no Store or no Codec, or if [CheckCodec] returns an error for the Codec.
func (b *Blobs) Check() error {
	if b.Store == nil {
		return errors.New("the Store of the Blobs is nil")
	}
	return CheckCodec(b.Codec)
}

const (
	defaultOver     = 64 << 10
	defaultPatience = 30 * time.Second
	blobMark        = "$blob"
)

// Encode encodes a value with the Codec. If the result has more than Over bytes, Encode puts it into the Store and returns a reference to it.
func (b *Blobs) Encode(value any) (json.RawMessage, error) {
	data, err := b.Codec.Encode(value)
	if err != nil {
		return nil, err
	}
	over := b.Over
	if over == 0 {
		over = defaultOver
	}
	held, err := b.keepContents(value, data)
	if err != nil {
		return nil, err
	}
	if _, looks := wrapped(data, blobMark); (len(data) <= over || held) && !looks {
		return data, nil
	}
	key := blobKey(data)
	if err := b.repeat(func(ctx context.Context) error { return b.Store.Put(ctx, key, data) }); err != nil {
		return nil, fmt.Errorf("blob %s: %w", key, err)
	}
	return json.Marshal(map[string]string{blobMark: key})
}

// Content is a value with a content of its own, such as a file. [Blobs] keeps the content as a blob. The JSON of the value has {"$blob": key} in
// place of the content. If a codec other than [Sealed] hides this reference, [Blobs] cannot encode the value; the error matches [ErrRejected].
type Content interface {
	// BlobKey returns the hex SHA-256 of the content.
	BlobKey() string
	// Content returns the content. It is called when the value is encoded.
	Content() ([]byte, error)
}

// keepContents puts the content of each [Content] inside a value into the Store. The result "held" is true if data refers to a content. If
// "held" is true, data must not become a blob, because [BlobKeys] must find the references in data.
func (b *Blobs) keepContents(value any, data json.RawMessage) (held bool, err error) {
	if !bytes.Contains(data, []byte(`"`+blobMark+`"`)) && b.showsReferences() {
		return false, nil
	}
	store := b.Contents()
	eachContent(reflect.ValueOf(value), 0, func(c Content) {
		if err != nil {
			return
		}
		var key string
		if key, err = b.reference(c.BlobKey()); err != nil {
			return
		}
		switch {
		case bytes.Contains(data, []byte(`"`+key+`"`)):
			held = true
			err = b.keepContent(c, store)
		case !b.showsReferences():
			err = fmt.Errorf("%w: a %T has a content, but the codec %T hides the reference to it: use Sealed to encrypt values, give a codec that wraps "+
				"Sealed a method Unwrap() store.Codec, or let the codec write %q: key in the clear", ErrRejected, c, b.Codec, blobMark)
		} // otherwise the JSON form of the value leaves the content out
	})
	return held, err
}

// The states of Blobs.shows.
const (
	unknown int32 = iota
	shown
	hidden
)

// showsReferences reports whether references to contents can be found in the output of the Codec. The first call encodes a reference as a test.
func (b *Blobs) showsReferences() bool {
	if b.shows.Load() == unknown {
		c := b.Codec
		for outer, is := c.(*Blobs); is; outer, is = c.(*Blobs) { // a Blobs hides no references, but could put the test value into its store
			c = outer.Codec
		}
		state, test := hidden, blobKey(nil)
		if key, err := b.reference(test); err == nil {
			var data json.RawMessage
			err = foreign.Contain(func() (err error) {
				data, err = c.Encode([]any{map[string]any{blobMark: test}})
				return err
			}, func(v any) error { return foreign.NewPanicError(v) }) // the codec may panic for values that do not have the host's types
			if err == nil && slices.Contains(BlobKeys(data), key) {
				state = shown
			}
		}
		b.shows.Store(state)
	}
	return b.shows.Load() == shown
}

func (b *Blobs) keepContent(c Content, in BlobStore) error {
	key := c.BlobKey()
	data, err := c.Content()
	if err == nil && blobKey(data) != key {
		err = ErrBlobDamaged
	}
	if err != nil { // the content cannot be read, but it may be in the store already, perhaps under an old key of Sealed
		missing := b.repeat(func(ctx context.Context) (err error) {
			data, err = in.Get(ctx, key)
			return err
		})
		if missing == nil && blobKey(data) != key {
			missing = ErrBlobDamaged
		}
		if missing != nil {
			return fmt.Errorf("blob %s: %w", key, errors.Join(err, missing))
		}
	}
	if err := b.repeat(func(ctx context.Context) error { return in.Put(ctx, key, data) }); err != nil {
		return fmt.Errorf("blob %s: %w", key, err)
	}
	return nil
}

// maxContentDepth is the depth to which eachContent searches a value.
const maxContentDepth = 100

// eachContent calls f with each Content inside v. It visits the entries of a map in the order of their keys.
func eachContent(v reflect.Value, depth int, f func(c Content)) {
	if !v.IsValid() || depth > maxContentDepth {
		return
	}
	if v.CanInterface() && v.Kind() != reflect.Interface && (v.Kind() != reflect.Pointer || !v.IsNil()) {
		if c, is := v.Interface().(Content); is {
			f(c)
			return
		}
	}
	switch v.Kind() {
	case reflect.Interface, reflect.Pointer:
		eachContent(v.Elem(), depth+1, f)
	case reflect.Slice, reflect.Array:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return
		}
		for i := range v.Len() {
			eachContent(v.Index(i), depth+1, f)
		}
	case reflect.Map:
		keys := v.MapKeys()
		slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
		for _, key := range keys {
			eachContent(v.MapIndex(key), depth+1, f)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if field := v.Type().Field(i); field.IsExported() && field.Tag.Get("json") != "-" {
				eachContent(v.Field(i), depth+1, f)
			}
		}
	}
}

// Decode reads what Encode wrote.
func (b *Blobs) Decode(data json.RawMessage) (any, error) {
	texts, looks := wrapped(data, blobMark)
	switch {
	case !looks:
		return b.Codec.Decode(data)
	case texts == nil:
		return nil, fmt.Errorf("%w: the text is not a valid reference", ErrBlobDamaged)
	}
	key := texts[blobMark]
	var blob []byte
	err := b.repeat(func(ctx context.Context) (err error) {
		blob, err = b.Store.Get(ctx, key)
		return err
	})
	if err == nil && blobKey(blob) != key {
		err = ErrBlobDamaged
	}
	if err != nil {
		return nil, fmt.Errorf("blob %s: %w", key, err)
	}
	return b.Codec.Decode(blob)
}

func blobKey(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// The method `repeat` repeats a call of the Store until it succeeds, returns ErrRejected or ErrNoBlob, or the time Patience has passed.
func (b *Blobs) repeat(call func(ctx context.Context) error) error {
	patience := b.Patience
	if patience <= 0 {
		patience = defaultPatience
	}
	end := time.Now().Add(patience)
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, 2*time.Second) {
		ctx, cancel := context.WithDeadline(context.Background(), end)
		err := call(ctx)
		cancel()
		if err == nil || errors.Is(err, ErrRejected) || errors.Is(err, ErrNoBlob) || time.Until(end) <= pause {
			return err
		}
		time.Sleep(pause)
	}
}

// BlobKeys returns the keys of the blobs to which data refers. The keys are sorted and distinct. The parameter "data" contains records or values in
// the form in which a [Store] keeps them.
func BlobKeys(data ...json.RawMessage) (keys []string) {
	if !slices.ContainsFunc(data, func(d json.RawMessage) bool { return bytes.Contains(d, []byte(blobMark)) }) {
		return nil // most data refers to no blob and needs no parsing
	}
	var visit func(v any)
	visit = func(v any) {
		switch v := v.(type) {
		case []any:
			for _, x := range v {
				visit(x)
			}
		case map[string]any:
			if key, ok := v[blobMark].(string); ok && len(v) == 1 {
				keys = append(keys, key)
				return
			}
			for _, x := range v {
				visit(x)
			}
		}
	}
	for _, d := range data {
		var v any
		if json.Unmarshal(d, &v) == nil {
			visit(v)
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}
