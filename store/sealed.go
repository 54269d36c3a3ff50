package store

import (
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

// ErrSealed is returned for a value that cannot be encrypted or decrypted, because its key is unknown or the stored value was changed.
var ErrSealed = errors.New("the value cannot be opened")

// Sealed is a codec that encrypts each value as a whole with AES-256-GCM. Names, labels, statuses, causes and the texts of errors stay readable.
//
// The same value under the same key is always written as the same text. So a [Blobs] that wraps Sealed keeps equal values only once. A reader of
// the store therefore learns which values are equal, and how long they are, but nothing else about them. The nonce is an HMAC of the value: two of
// n different values share a nonce with a probability of about n²/2⁹⁷.
//
// A value does not say to which node or run it belongs. So somebody who can write to the store can replace one value by another, and no reader
// notices. The results of sqlite.Once and postgres.Once do not pass through the codec, and are not encrypted.
type Sealed struct {
	Codec Codec
	// Keys maps names to keys of 32 bytes each. A stored value contains the name of its key. To replace a key, add the new one, make it Current, and
	// remove the old one when no run needs it any more.
	Keys map[string][]byte
	// Current is the name of the key under which values are written.
	Current string
	// Plain allows reading values that were written without encryption. Use it while a store changes over to Sealed.
	Plain bool
	// EventsInClear allows events to be stored without encryption. Events contain what steps emit and log, answers, and the texts of errors. Without
	// EventsInClear, runs with this codec do not store their events.
	EventsInClear bool
}

// Check returns an error if there is no Codec, a key does not have 32 bytes, or the Current key is missing.
func (s *Sealed) Check() error {
	if err := CheckCodec(s.Codec); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(s.Keys)) {
		if _, err := s.sealer(name); err != nil {
			return err
		}
	}
	_, err := s.sealer(s.Current)
	return err
}

const sealedMark = "$sealed"

// sealer has the cipher and the key of the HMAC, both derived from one key of Sealed.
type sealer struct {
	aead   cipher.AEAD
	nonces []byte // the key of the HMAC
}

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
	block, err := aes.NewCipher(derive(key, "kahn: values"))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSealed, err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSealed, err)
	}
	return &sealer{aead, derive(key, "kahn: nonces")}, nil
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
	h := hmac.New(sha256.New, x.nonces)
	_, _ = h.Write(data) // writing to a hash never fails
	nonce := h.Sum(nil)[:x.aead.NonceSize()]
	text := base64.StdEncoding.EncodeToString(x.aead.Seal(nonce, nonce, data, []byte(s.Current)))
	return json.Marshal(map[string]string{sealedMark: s.Current, "data": text})
}

// Decode decrypts what Encode wrote.
func (s *Sealed) Decode(data json.RawMessage) (any, error) {
	texts, _ := wrapped(data, sealedMark, "data")
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
	if err != nil || len(sealed) < x.aead.NonceSize() {
		return nil, fmt.Errorf("%w: the text is not a sealed value", ErrSealed)
	}
	size := x.aead.NonceSize()
	opened, err := x.aead.Open(nil, sealed[:size], sealed[size:], []byte(texts[sealedMark]))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSealed, err)
	}
	return s.Codec.Decode(opened)
}
