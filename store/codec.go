package store

import (
	"encoding/json"
	"errors"
	"fmt"
)

// Codec turns values into JSON and back. It is the interface of the same name in package kahn.
type Codec interface {
	Encode(value any) (json.RawMessage, error)
	Decode(data json.RawMessage) (any, error)
}

// CheckCodec returns an error if a codec is nil. If the codec has a method `Check() error`, like [Sealed] and [Blobs],
// CheckCodec calls the method and returns its error.
func CheckCodec(c Codec) error {
	if c == nil {
		return errors.New("the Codec is nil")
	}
	if checked, ok := c.(interface{ Check() error }); ok {
		if err := checked.Check(); err != nil {
			return fmt.Errorf("%T: %w", c, err)
		}
	}
	return nil
}

// CheckEvents returns an error if a codec is, or wraps, a [Sealed] without EventsInClear. Events are stored in the clear, so a run with
// this codec must not store its events. If a host's codec wraps another codec, it must have a method `Unwrap() Codec` that
// returns the wrapped codec.
func CheckEvents(c Codec) error {
	for ; c != nil; c = inner(c) {
		if s, is := c.(*Sealed); is && !s.EventsInClear {
			return errors.New("what steps emit and log, answers and errors would be in the clear beside values that are sealed; see Sealed.EventsInClear")
		}
	}
	return nil
}

// The function `inner` returns the codec that c wraps, or nil if c wraps none.
func inner(c Codec) Codec {
	switch x := c.(type) {
	case *Sealed:
		return x.Codec
	case *Blobs:
		return x.Codec
	case interface{ Unwrap() Codec }:
		return x.Unwrap()
	}
	return nil
}

// The function `wrapped` reads an object that a codec of this package has written. The parameters "mark" and "members" name all members of this
// object; all of them are texts. For any other data the result "texts" is nil. The result "looks" says whether data is an object with the member that
// "mark" names. If a value of the host has this member, a codec must not write the value unchanged, since a reader would take the value for an object
// that the codec has made.
func wrapped(data json.RawMessage, mark string, members ...string) (texts map[string]string, looks bool) {
	if len(data) == 0 || data[0] != '{' {
		return nil, false
	}
	var object map[string]json.RawMessage
	if json.Unmarshal(data, &object) != nil || object[mark] == nil {
		return nil, false
	}
	texts = map[string]string{}
	for _, name := range append(members, mark) {
		var text string
		if json.Unmarshal(object[name], &text) != nil {
			return nil, true
		}
		texts[name] = text
	}
	if len(object) != len(texts) {
		return nil, true
	}
	return texts, true
}
