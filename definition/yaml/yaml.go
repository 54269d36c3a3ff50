// Package yaml reads and writes the documents of package definition as YAML. Fields, checks and limits are the same as for JSON: both
// formats are read into trees of the same type, and the same code decodes these trees.
//
// # What is YAML here
//
// This package accepts only YAML that all readers understand in the same way. A plain scalar is null (null, ~ or nothing at all), true or
// false, a number as JSON writes it, or text. If readers disagree about a plain scalar, the error matches [definition.ErrAmbiguous], and
// the scalar must be quoted. Examples are yes, no, on, off, y and n; true, false and null with capital letters, such as True; numbers such
// as 0x1f, 017, 1_000, +1, .5 or .inf; and 12:30 and 2024-01-31. Keys follow the same rules, and must be text.
//
// Anchors and aliases are accepted; the values that an alias stands for count against Limits.Values each time the alias is used.
// The error matches [definition.ErrUnsupported] for tags, merge keys, directives and several documents in one text.
//
// The parser needs up to 200 bytes of memory for each byte of text, so Limits.Bytes bounds the memory.
package yaml

import (
	"fmt"
	"io"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/definition"
	"github.com/seed-c794f7ef/kahn/definition/internal/source"
)

// Decode reads a YAML document: see [definition.Decode]. The error is a [*definition.Error] with the path, line and column of every
// problem.
func Decode(data []byte, limits definition.Limits) (*kahn.Graph, error) {
	root, err := Parse(data, limits)
	if err != nil {
		return nil, err
	}
	return definition.FromTree(root, limits)
}

// Parse reads a YAML text into a tree. [definition.Loader] and [definition.FromTree] report the problems that Parse finds. Parse itself
// returns an error only if the text is too long.
func Parse(data []byte, limits definition.Limits) (*definition.Value, error) {
	limits = limits.Resolved()
	if len(data) > limits.Bytes {
		return nil, tooLong(limits)
	}
	return parse(string(data), limits), nil
}

// Read decodes the text of a reader as Decode does. It reads at most Limits.Bytes and one byte more. It returns the reader's own
// errors unchanged.
func Read(r io.Reader, limits definition.Limits) (*kahn.Graph, error) {
	limits = limits.Resolved()
	data, more, err := source.Read(r, limits.Bytes)
	switch {
	case err != nil:
		return nil, err
	case more:
		return nil, tooLong(limits)
	}
	return Decode(data, limits)
}

func tooLong(limits definition.Limits) error {
	return &definition.Error{Problems: []*definition.Problem{{
		Kind: definition.ErrLimit, Path: "$", Message: fmt.Sprintf("the document is longer than %d bytes", limits.Bytes),
	}}}
}

// Load decodes a YAML document and compiles its graph: see [definition.Load].
func Load(data []byte, limits definition.Limits, prepare func(*kahn.Graph)) (*kahn.Graph, error) {
	doc, err := definition.Loader{Parse: Parse, Limits: limits, Prepare: prepare}.Load(data)
	if err != nil {
		return nil, err
	}
	return doc.Graph, nil
}
