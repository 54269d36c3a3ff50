package temporal

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"

	"github.com/seed-c794f7ef/kahn/store"
)

// coded is the BlobStore that CodedBlobs returns. If the data converter encrypts payloads, coded encrypts blobs, too.
type coded struct {
	store.BlobStore
	dc converter.DataConverter
}

// codedPrefix begins each blob that the data converter has encoded.
var codedPrefix = []byte("\x00kahn/temporal payload\x00")

// CodedBlobs returns a BlobStore that encodes and decodes blobs with a data converter, as workers with Options.DataConverter do. A program needs this
// BlobStore to read the blobs of these workers itself, for example with kahn.FileRef.Restore. The BlobStore also reads blobs that were stored
// without a data converter. If dc is nil, CodedBlobs returns the given BlobStore.
func CodedBlobs(blobs store.BlobStore, dc converter.DataConverter) store.BlobStore {
	if _, is := blobs.(coded); is || dc == nil {
		return blobs
	}
	return coded{blobs, dc}
}

// Put implements [store.BlobStore].
func (c coded) Put(ctx context.Context, key string, data []byte) error {
	p, err := c.dc.ToPayload(data)
	if err == nil {
		data, err = p.Marshal()
	}
	if err != nil {
		return fmt.Errorf("the data converter: %w", err)
	}
	return c.BlobStore.Put(ctx, key, slices.Concat(codedPrefix, data))
}

// Get implements [store.BlobStore].
func (c coded) Get(ctx context.Context, key string) (data []byte, err error) {
	data, err = c.BlobStore.Get(ctx, key)
	text, is := bytes.CutPrefix(data, codedPrefix)
	if err != nil || !is {
		return data, err
	}
	p := new(commonpb.Payload)
	data = nil
	if err = p.Unmarshal(text); err == nil {
		err = c.dc.FromPayload(p, &data)
	}
	if err != nil {
		return nil, fmt.Errorf("the data converter cannot read the blob: %w: %s", err, setDataConverter)
	}
	return data, nil
}
