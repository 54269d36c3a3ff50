package store

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// Contents returns a view of the Store for the contents of values, see [Content]. The key of a content is its SHA-256. If the Codec is or wraps a
// [Sealed], the contents in the Store are encrypted, and the view encrypts and decrypts them. So kahn.FileRef.Restore needs Contents if values are
// encrypted. Without Sealed, Contents returns the Store itself. If a host's codec wraps Sealed, it must have a method `Unwrap() Codec` that returns
// the wrapped codec.
func (b *Blobs) Contents() BlobStore {
	in := b.Store
	for _, s := range b.seals() {
		in = &sealedContents{s, in}
	}
	return in
}

// seals returns the Sealed codecs in the Codec, the outermost one first.
func (b *Blobs) seals() (list []*Sealed) {
	for c := b.Codec; c != nil; c = inner(c) {
		if s, is := c.(*Sealed); is {
			list = append(list, s)
		}
	}
	return list
}

// The method `reference` returns the text that the Codec writes in place of the key of a content. This text is not encrypted. Without Sealed it is
// the key itself.
func (b *Blobs) reference(key string) (string, error) {
	for _, s := range slices.Backward(b.seals()) {
		x, err := s.sealer(s.Current)
		if err != nil {
			return "", err
		}
		key = x.reference(key)
	}
	return key, nil
}

// The method `reference` returns the key of the blob that holds the encrypted content. This key differs for each key of [Sealed]: a [BlobStore] never
// replaces data, so each key of Sealed needs a blob of its own. The key of the blob also hides the SHA-256 of the content, by which a reader of the
// store could recognize a content that he knows.
func (x *sealer) reference(key string) string {
	h := hmac.New(sha256.New, derive(x.key, "kahn: names of contents"))
	_, _ = h.Write([]byte(key)) // writing to a hash never fails
	return hex.EncodeToString(h.Sum(nil))
}

// sealedContents is a BlobStore that encrypts contents, as a Sealed encrypts values.
type sealedContents struct {
	by *Sealed
	in BlobStore
}

// Put implements [BlobStore].
func (c *sealedContents) Put(ctx context.Context, key string, data []byte) error {
	x, err := c.by.sealer(c.by.Current)
	if err != nil {
		return err
	}
	sealed, err := x.seal(forContents, data, key)
	if err != nil {
		return err
	}
	return c.in.Put(ctx, x.reference(key), sealed)
}

// Get implements [BlobStore]. It first looks for the blob of the Current key, then for the blobs of the other keys.
func (c *sealedContents) Get(ctx context.Context, key string) ([]byte, error) {
	for _, name := range c.names() {
		x, err := c.by.sealer(name)
		if err != nil {
			return nil, err
		}
		data, err := c.in.Get(ctx, x.reference(key))
		if errors.Is(err, ErrNoBlob) {
			continue
		}
		if err != nil {
			return nil, err
		}
		return x.open(forContents, data, key)
	}
	if c.by.Plain {
		return c.in.Get(ctx, key)
	}
	return nil, fmt.Errorf("%w: %s", ErrNoBlob, key)
}

// Delete implements [BlobStore].
func (c *sealedContents) Delete(ctx context.Context, key string) error {
	for _, name := range c.names() {
		x, err := c.by.sealer(name)
		if err == nil {
			err = c.in.Delete(ctx, x.reference(key))
		}
		if err != nil {
			return err
		}
	}
	if c.by.Plain {
		return c.in.Delete(ctx, key)
	}
	return nil
}

// names returns the names of the keys, the Current one first.
func (c *sealedContents) names() []string {
	list := []string{c.by.Current}
	for _, name := range slices.Sorted(maps.Keys(c.by.Keys)) {
		if name != c.by.Current {
			list = append(list, name)
		}
	}
	return list
}
