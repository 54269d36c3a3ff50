package definition

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"
)

// lineWidth bounds the length of a line that holds a whole list or object.
const lineWidth = 100

// appendValue appends the JSON text of a value that begins at the given column. indent is the indentation of the line,
// in levels. A list or an object is written on one line if the line is not longer than lineWidth, and if the value has at
// most two levels, as nests counts them. Otherwise each item begins on a line of its own.
func appendValue(b []byte, v *Value, indent, column int) []byte {
	if !nests(v, 2) {
		line := appendLine(nil, v)
		if v.Type < List || column+utf8.RuneCount(line) <= lineWidth {
			return append(b, line...)
		}
	}
	b = append(b, brackets[v.Type][0])
	for i := range v.Items {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendIndent(b, indent+1)
		start := len(b)
		b = appendKey(b, &v.Items[i], v.Type)
		b = appendValue(b, &v.Items[i], indent+1, 2*(indent+1)+utf8.RuneCount(b[start:]))
	}
	return append(appendIndent(b, indent), brackets[v.Type][1])
}

var brackets = [...]string{List: "[]", Object: "{}"}

// nests reports whether a value has more than the given number of levels of lists and objects. The value itself is the
// first level. Empty lists and objects do not count.
func nests(v *Value, levels int) bool {
	if len(v.Items) > 0 && levels == 0 {
		return true
	}
	for i := range v.Items {
		if nests(&v.Items[i], levels-1) {
			return true
		}
	}
	return false
}

// appendLine appends a value on one line.
func appendLine(b []byte, v *Value) []byte {
	switch v.Type {
	case Null:
		return append(b, "null"...)
	case Text:
		return appendText(b, v.Text)
	case Bool, Number:
		return append(b, v.Text...)
	}
	b = append(b, brackets[v.Type][0])
	for i := range v.Items {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = appendKey(b, &v.Items[i], v.Type)
		b = appendLine(b, &v.Items[i])
	}
	return append(b, brackets[v.Type][1])
}

func appendIndent(b []byte, indent int) []byte {
	b = append(b, '\n')
	for range indent {
		b = append(b, "  "...)
	}
	return b
}

func appendKey(b []byte, item *Value, in Type) []byte {
	if in == Object {
		b = append(appendText(b, item.Key), ": "...)
	}
	return b
}

// appendText appends a JSON string. Characters with a meaning in HTML are not escaped, because people read the file.
func appendText(b []byte, s string) []byte {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // Encode cannot fail: every string has a JSON form, and every write to a Buffer succeeds
	return append(b, bytes.TrimSuffix(buf.Bytes(), []byte("\n"))...)
}
