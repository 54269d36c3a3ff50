package temporal

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/seed-c794f7ef/kahn"
)

// packed is the form of a snapshot in a payload. Only one of its fields is set.
type packed struct {
	JSON json.RawMessage `json:"json,omitempty"` // a short snapshot
	Gzip []byte          `json:"gzip,omitempty"`
	Blob json.RawMessage `json:"blob,omitempty"` // a reference to a long snapshot
}

const (
	plainBytes  = 1 << 10        // JSON of at most this many bytes is not compressed, so that people can read it
	packedBytes = 3<<19 - 64<<10 // a snapshot of this many bytes fits in base64 into a payload of 2 MiB, with room for the payload's other fields
	openBytes   = 64 << 20       // the most bytes of an unpacked snapshot
)

func (t texts) pack(s *kahn.Snapshot) (*packed, error) {
	data, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("kahn/temporal: the snapshot: %w", err)
	}
	if t.blobs && len(data) > plainBytes {
		if short, err := packJSON(data); err != nil || len(short.Gzip) > inlineBytes {
			ref, err := t.write(data)
			return &packed{Blob: ref}, err
		}
	}
	return packJSON(data)
}

// packJSON packs a snapshot that the run does not store as a blob.
func packJSON(data []byte) (*packed, error) {
	if len(data) <= plainBytes {
		return &packed{JSON: data}, nil
	}
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(data); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	if b.Len() > packedBytes || len(data) > openBytes {
		return nil, fmt.Errorf("kahn/temporal: %w: the results of the run are %d bytes of JSON, %d bytes compressed, and Temporal takes %d: see Options.Blobs", ErrTooLarge, len(data), b.Len(), packedBytes)
	}
	return &packed{Gzip: b.Bytes()}, nil
}

func (p *packed) open(t texts) (*kahn.Snapshot, error) {
	data := []byte(p.JSON)
	switch {
	case p.Blob != nil:
		var err error
		if data, err = t.read(p.Blob); err != nil {
			return nil, fmt.Errorf("kahn/temporal: the snapshot: %w", err)
		}
	case p.Gzip != nil:
		r, err := gzip.NewReader(bytes.NewReader(p.Gzip))
		if err == nil {
			data, err = io.ReadAll(io.LimitReader(r, openBytes+1))
		}
		if err != nil {
			return nil, fmt.Errorf("kahn/temporal: the snapshot: %w", err)
		}
	}
	s := new(kahn.Snapshot)
	if err := json.Unmarshal(data, s); err != nil {
		return nil, fmt.Errorf("kahn/temporal: the snapshot: %w", err)
	}
	return s, nil
}

// encodeAll encodes each of the named values.
func encodeAll(codec kahn.Codec, values map[string]any) (map[string]json.RawMessage, error) {
	data := make(map[string]json.RawMessage, len(values))
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(values)) {
		raw, err := codec.Encode(values[name])
		if err != nil {
			errs = append(errs, fmt.Errorf("kahn/temporal: input %q: %w", name, err))
		}
		data[name] = raw
	}
	return data, errors.Join(errs...)
}

// decodeAll is the reverse of encodeAll.
func decodeAll(codec kahn.Codec, data map[string]json.RawMessage) (map[string]any, error) {
	values := make(map[string]any, len(data))
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(data)) {
		value, err := codec.Decode(data[name])
		if err != nil {
			errs = append(errs, fmt.Errorf("kahn/temporal: input %q: %w", name, err))
		}
		values[name] = value
	}
	return values, errors.Join(errs...)
}
