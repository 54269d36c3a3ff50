package temporal

import (
	"encoding/json"
	"reflect"
	"sync"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// writtenOnce is a codec that encodes a list or a map only once, even if many calls contain it. The call of each item of a map node may contain
// the whole list, so without this codec the time for n items would grow with n². The codec remembers texts from a call of its method `begin` until
// the next call of its method `end`. Values do not change between these two calls.
type writtenOnce struct {
	kahn.Codec
	written map[place]written // nil outside of begin and end
}

// place is the address of a list or a map in memory, with its type and length.
type place struct {
	of   reflect.Type
	at   uintptr
	size int
}

// written is a value and its text. The value stays reachable while the codec remembers the text, so no other value gets the same address.
type written struct {
	value any
	text  json.RawMessage
}

func (w *writtenOnce) begin() { w.written = map[place]written{} }
func (w *writtenOnce) end()   { w.written = nil }

// Encode implements [kahn.Codec].
func (w *writtenOnce) Encode(value any) (json.RawMessage, error) {
	var at place
	if w.written != nil {
		switch v := reflect.ValueOf(value); v.Kind() {
		case reflect.Slice, reflect.Map:
			at = place{v.Type(), v.Pointer(), v.Len()}
		}
	}
	if before, ok := w.written[at]; ok {
		return before.text, nil
	}
	text, err := w.Codec.Encode(value)
	if err == nil && at.size > 0 {
		w.written[at] = written{value, text}
	}
	return text, err
}

// readOnce is a codec that remembers the values of recent blobs. So the steps of one worker share a value, like the steps of a run in one
// process.
type readOnce struct {
	kahn.Codec
	mu     sync.Mutex // guards the fields below
	values map[string]any
	order  []string // the references, the oldest first
}

// sharedValues is how many values a worker remembers.
const sharedValues = 8

// Decode implements [kahn.Codec].
func (r *readOnce) Decode(data json.RawMessage) (any, error) {
	if len(store.BlobKeys(data)) == 0 {
		return r.Codec.Decode(data)
	}
	if value, ok := r.find(string(data)); ok {
		return value, nil
	}
	value, err := r.Codec.Decode(data)
	if err == nil {
		r.keep(string(data), value)
	}
	return value, err
}

func (r *readOnce) find(ref string) (value any, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	value, ok = r.values[ref]
	return value, ok
}

func (r *readOnce) keep(ref string, value any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.values == nil {
		r.values = map[string]any{}
	}
	if _, ok := r.values[ref]; ok {
		return
	}
	if len(r.order) == sharedValues {
		delete(r.values, r.order[0])
		r.order = r.order[1:]
	}
	r.values[ref], r.order = value, append(r.order, ref)
}
