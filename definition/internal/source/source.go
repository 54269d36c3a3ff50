// Package source contains functions that the readers of all formats call before they parse a text.
package source

import (
	"io"
	"strings"
	"unicode/utf8"
)

// Read returns at most limit bytes. The result `more` is true if the reader has further bytes; to find out, Read reads one byte beyond the limit.
func Read(r io.Reader, limit int) (data []byte, more bool, err error) {
	data, err = io.ReadAll(io.LimitReader(r, int64(limit)))
	if err != nil || len(data) < limit {
		return data, false, err
	}
	for { // a reader may return 0 bytes and a nil error several times
		n, err := r.Read(make([]byte, 1))
		if n > 0 || err == io.EOF {
			return data, n > 0, nil
		}
		if err != nil {
			return data, false, err
		}
	}
}

// Invalid looks for bytes that no document may contain. It returns the offset of the first such byte, and a message. The message is
// "" if there is no such byte.
func Invalid(text string) (offset int, problem string) {
	if strings.HasPrefix(text, "\uFEFF") {
		return 0, "the text begins with a byte order mark"
	}
	for i, r := range text {
		if r == utf8.RuneError {
			if _, size := utf8.DecodeRuneInString(text[i:]); size == 1 {
				return i, "invalid UTF-8"
			}
		}
	}
	return 0, ""
}

// Cursor is a place in a text; it can only move forward. Lines and columns count from 1. Columns count characters.
type Cursor struct {
	Line, Column, Offset int
}

// Start is the beginning of a text.
var Start = Cursor{Line: 1, Column: 1}

// Advance moves the cursor forward to an offset.
func (c *Cursor) Advance(text string, offset int) {
	between := text[c.Offset:offset]
	if n := strings.Count(between, "\n"); n > 0 {
		c.Line += n
		c.Column = 1
		between = between[strings.LastIndexByte(between, '\n')+1:]
	}
	c.Column += utf8.RuneCountInString(between)
	c.Offset = offset
}
