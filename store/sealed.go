package store

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// ErrSealed is returned for a value that cannot be encrypted or decrypted: its key is unknown or has a wrong length, the stored value was changed, or
// the stored value was not encrypted and [Sealed].Plain is not set.
var ErrSealed = errors.New("the value cannot be opened")

// Sealed is a codec that encrypts each value as a whole with AES-256-GCM. Names, labels, statuses, causes and the texts of errors stay readable.
//
// The same value under the same key is always written as the same text. So a [Blobs] that wraps Sealed keeps equal values only once. A reader of
// the store therefore learns which values are equal, and how long they are, but nothing else about them. The nonce is an HMAC of the value: the
// probability that two among n different values share a nonce is about n²/2⁹⁷.
//
// If values have a [Content], such as a file, a Blobs that wraps Sealed encrypts the content, too. [Blobs.Contents] reads it. References to
// contents are HMACs, and stay readable beside the value, so that [Admin].Prune finds them.
//
// A value does not say to which node or run it belongs. So a program that can write to the store can replace one value by another, and no reader
// notices. The results of sqlite.Once and postgres.Once do not pass through the codec, and are not encrypted.
type Sealed struct {
	Codec Codec
	// Keys maps names to different keys of 32 bytes each. A stored value contains the name of its key. To replace a key, add a new key, make it
	// Current, and remove the old key when no run needs it any more.
	Keys map[string][]byte
	// Current is the name of the key under which values are written.
	Current string
	// Plain allows reading values that were written without encryption. Use it while a store changes over to Sealed.
	Plain bool
	// EventsInClear allows events to be stored without encryption. Events contain what steps emit and log, answers, and the texts of errors. Without
	// EventsInClear, runs with this codec do not store their events.
	EventsInClear bool
}

// Check returns an error if there is no Codec, a key does not have 32 bytes, the Current key is missing, or two keys are equal. If one key had
// two names, a value would be encrypted with one nonce but with two different authenticated texts, which endangers the encryption. Check
// also returns an error if Sealed wraps a [Blobs], directly or inside another codec, since the blobs would not be encrypted.
func (s *Sealed) Check() error {
	if err := CheckCodec(s.Codec); err != nil {
		return err
	}
	for c := s.Codec; c != nil; c = inner(c) {
		if _, is := c.(*Blobs); is {
			return errors.New("it wraps a Blobs, which would store blobs in the clear: use &Blobs{Codec: &Sealed{...}} in place of &Sealed{Codec: &Blobs{...}}")
		}
	}
	names := map[string]string{} // by key
	for _, name := range slices.Sorted(maps.Keys(s.Keys)) {
		x, err := s.sealer(name)
		if err != nil {
			return err
		}
		if other, taken := names[string(x.key)]; taken {
			return fmt.Errorf("%w: the keys %q and %q are equal", ErrSealed, other, name)
		}
		names[string(x.key)] = name
	}
	_, err := s.sealer(s.Current)
	return err
}

const sealedMark = "$sealed"

// blobsMember is the member of a sealed value that lists the references in the value. So [BlobKeys] and stores find the references without the key.
const blobsMember = "blobs"

// sealer encrypts with one key of Sealed. It derives a separate key for each purpose.
type sealer struct{ key []byte }

// derive makes a key for one purpose.
func derive(key []byte, purpose string) []byte {
	h := hmac.New(sha256.New, key)
	_, _ = h.Write([]byte(purpose)) // writing to a hash never fails
	return h.Sum(nil)
}

func (s *Sealed) sealer(name string) (*sealer, error) {
	key, ok := s.Keys[name]
	switch {
	case !ok:
		return nil, fmt.Errorf("%w: there is no key %q", ErrSealed, name)
	case len(key) != 32:
		return nil, fmt.Errorf("%w: key %q has %d bytes, not 32", ErrSealed, name, len(key))
	}
	return &sealer{key}, nil
}

// purpose names the keys for one kind of data: the key of the cipher, and the key of the HMAC that is the nonce.
type purpose struct{ cipher, nonces string }

var (
	forValues   = purpose{"kahn: values", "kahn: nonces"}
	forContents = purpose{"kahn: contents", "kahn: nonces of contents"}
)

// seal encrypts data. Callers pass the same text "about" to the method `open`. The key and the data must determine this text: the nonce depends only
// on the key and the data, and two different texts must not share a nonce.
func (x *sealer) seal(p purpose, data []byte, about string) ([]byte, error) {
	aead, err := x.aead(p)
	if err != nil {
		return nil, err
	}
	h := hmac.New(sha256.New, derive(x.key, p.nonces))
	_, _ = h.Write(data) // writing to a hash never fails
	nonce := h.Sum(nil)[:aead.NonceSize()]
	return aead.Seal(nonce, nonce, data, []byte(about)), nil
}

// open decrypts what the method `seal` has encrypted.
func (x *sealer) open(p purpose, sealed []byte, about string) ([]byte, error) {
	aead, err := x.aead(p)
	if err != nil {
		return nil, err
	}
	size := aead.NonceSize()
	if len(sealed) < size {
		return nil, fmt.Errorf("%w: it is too short", ErrSealed)
	}
	data, err := aead.Open(nil, sealed[:size], sealed[size:], []byte(about))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSealed, err)
	}
	return data, nil
}

func (x *sealer) aead(p purpose) (cipher.AEAD, error) {
	block, err := aes.NewCipher(derive(x.key, p.cipher))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSealed, err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSealed, err)
	}
	return aead, nil
}

// Encode encrypts what the Codec writes.
func (s *Sealed) Encode(value any) (json.RawMessage, error) {
	x, err := s.sealer(s.Current)
	if err != nil {
		return nil, err
	}
	data, err := s.Codec.Encode(value)
	if err != nil {
		return nil, err
	}
	sealed, err := x.seal(forValues, data, s.Current)
	if err != nil {
		return nil, err
	}
	form := map[string]any{sealedMark: s.Current, "data": base64.StdEncoding.EncodeToString(sealed)}
	var refs []map[string]string
	for _, key := range BlobKeys(data) {
		refs = append(refs, map[string]string{blobMark: x.reference(key)})
	}
	if refs != nil {
		form[blobsMember] = refs
	}
	return json.Marshal(form)
}

// Decode decrypts what Encode wrote.
func (s *Sealed) Decode(data json.RawMessage) (any, error) {
	texts, _ := wrapped(withoutReferences(data), sealedMark, "data")
	if texts == nil {
		if s.Plain {
			return s.Codec.Decode(data)
		}
		return nil, fmt.Errorf("%w: it was not encrypted", ErrSealed)
	}
	x, err := s.sealer(texts[sealedMark])
	if err != nil {
		return nil, err
	}
	sealed, err := base64.StdEncoding.DecodeString(texts["data"])
	if err != nil {
		return nil, fmt.Errorf("%w: the text is not a sealed value", ErrSealed)
	}
	opened, err := x.open(forValues, sealed, texts[sealedMark])
	if err != nil {
		return nil, err
	}
	return s.Codec.Decode(opened)
}

// withoutReferences returns a sealed value without the list of its references.
func withoutReferences(data json.RawMessage) json.RawMessage {
	if !bytes.Contains(data, []byte(`"`+blobMark+`"`)) { // most values contain no references
		return data
	}
	var form map[string]json.RawMessage
	if json.Unmarshal(data, &form) != nil {
		return data
	}
	delete(form, blobsMember)
	rest, err := json.Marshal(form)
	if err != nil {
		return data
	}
	return rest
}
