package definition

import "fmt"

// Type is the type of a [Value].
type Type uint8

// The types of values are the types of JSON.
const (
	Null Type = iota
	Bool
	Number
	Text
	List
	Object
)

var typeNames = [...]string{"null", "a boolean", "a number", "text", "a list", "an object"}

// String returns the type in words, such as "a list".
func (t Type) String() string {
	if int(t) < len(typeNames) {
		return typeNames[t]
	}
	return fmt.Sprintf("Type(%d)", uint8(t))
}

// Value is a document or a part of a document, as a tree. The tree records where each value begins in the text. The readers of all formats
// make such trees, and the same code decodes them; see [FromTree].
type Value struct {
	Type Type
	// Text is the content of a text, the JSON literal of a number, or "true" or "false" for a Bool.
	Text string
	// Items are the elements of a list or the members of an object, in document order. An object may have a key twice here; the decoder
	// rejects such an object.
	Items []Value
	// Key is the key of a member of an object.
	Key string
	// Problem is a problem that the reader of the format found in the value, or nil. Its Kind, Position and Message are set. FromTree
	// reports the problem with the value's path, and does not read the value. A syntax problem is the Problem of the root, and its
	// Path may name a place deeper in the document. An ambiguous value keeps its Text.
	Problem *Problem
	// At is where the value begins. KeyAt is where the key of a member begins.
	At, KeyAt Position
}

// badKey stands for a key that is not text.
const badKey = "?"

// The method `describe` describes a value for a message.
func (v *Value) describe() string {
	switch v.Type {
	case Bool, Number:
		return fmt.Sprintf("%.60s", v.Text)
	case Text:
		return "the text " + quote(v.Text)
	}
	return v.Type.String()
}
