package foreign

import (
	"bytes"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// MaxText is the length in bytes to which texts are shortened.
const MaxText = 1000

// Quote renders an id for a message. It cuts the id to 60 characters and quotes it, so that the id cannot imitate the text around it.
func Quote(id string) string { return fmt.Sprintf("%.60q", id) }

// ErrorText returns the text of an error, shortened by Shorten. If the Error method panics, it returns the type of the error.
func ErrorText(err error) (text string) {
	if err == nil {
		return "<nil>"
	}
	return textOf(err, err.Error)
}

// ValueText returns the text of an error, of a fmt.Stringer or of a simple value such as a number, shortened by Shorten. For any other value it
// returns the type: the value may contain itself, and then package fmt would never return.
func ValueText(v any) string {
	switch v := v.(type) {
	case error:
		return ErrorText(v)
	case fmt.Stringer:
		return textOf(v, v.String)
	}
	switch reflect.ValueOf(v).Kind() {
	case reflect.Invalid:
		return "null"
	case reflect.Bool, reflect.String, reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Float32, reflect.Float64:
		return Shorten(fmt.Sprint(v))
	}
	return typeName(v)
}

// textOf returns the text that a method of v renders, or the type of v if the method panics.
func textOf(v any, render func() string) (text string) {
	_ = Contain(func() error {
		text = Shorten(render())
		return nil
	}, func(any) error {
		text = typeName(v)
		return nil
	})
	return text
}

func typeName(v any) string { return fmt.Sprintf("<%T>", v) }

// Shorten returns a text of at most MaxText bytes as it is. It cuts a longer text to MaxText bytes, and appends the original length.
func Shorten(text string) string {
	if len(text) <= MaxText {
		return text
	}
	return fmt.Sprintf("%s... (%d bytes)", strings.ToValidUTF8(text[:MaxText], ""), len(text))
}

// Line renders a text on one line, and cuts it after `most` characters. Each white-space character becomes a space. Line escapes all other characters
// that are not printable, such as control characters and marks that change the direction of text.
func Line(text string, most int) string {
	if len(text) <= most && strings.IndexFunc(text, func(r rune) bool { return r < ' ' || r > '~' }) < 0 {
		return text
	}
	var b strings.Builder
	for n := 0; len(text) > 0; n++ {
		if n == most {
			b.WriteString("...")
			break
		}
		r, size := utf8.DecodeRuneInString(text)
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, text[0])
		case unicode.IsSpace(r):
			b.WriteByte(' ')
		case unicode.IsPrint(r):
			b.WriteRune(r)
		default:
			quoted := strconv.QuoteRune(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		}
		text = text[size:]
	}
	return b.String()
}

// VisibleJSON escapes each character that may control a terminal: control characters, direction marks and the like. Between its values, the JSON text
// must have no white space except spaces and newlines. Then the escaped characters all are in strings, and the result is JSON with the same values.
func VisibleJSON(text []byte) []byte {
	hidden := func(r rune) bool { return r != '\n' && !unicode.IsGraphic(r) }
	if bytes.IndexFunc(text, hidden) < 0 {
		return text
	}
	var b []byte
	for _, r := range string(text) {
		switch {
		case !hidden(r):
			b = utf8.AppendRune(b, r)
		case r > 0xFFFF:
			high, low := utf16.EncodeRune(r)
			b = fmt.Appendf(b, `\u%04x\u%04x`, high, low)
		default:
			b = fmt.Appendf(b, `\u%04x`, r)
		}
	}
	return b
}
