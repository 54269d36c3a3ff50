package definition

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"
)

// lineWidth is how long a line may get: what fits is written on one.
const lineWidth = 100

// appendValue appends the JSON text of a value that begins in a column of a line that is indented by some levels. Lists
// and objects of plain values stand on one line if they fit, all others take a line for each item.
func appendValue(b []byte, v *Value, indent, column int) []byte {
	var open, end byte
	switch v.Type {
	case List:
		open, end = '[', ']'
	case Object:
		open, end = '{', '}'
	default:
		return appendScalar(b, v)
	}
	if line, ok := appendLine(nil, v, open, end, lineWidth-column); ok {
		return append(b, line...)
	}
	b = append(b, open)
	for i := range v.Items {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendIndent(b, indent+1)
		start := len(b)
		b = appendKey(b, &v.Items[i], v.Type)
		b = appendValue(b, &v.Items[i], indent+1, 2*(indent+1)+utf8.RuneCount(b[start:]))
	}
	return append(appendIndent(b, indent), end)
}

// appendLine appends a list or an object on one line, unless it nests or is wider than width.
func appendLine(b []byte, v *Value, open, end byte, width int) ([]byte, bool) {
	b = append(b, open)
	for i := range v.Items {
		if v.Items[i].Type >= List && len(v.Items[i].Items) > 0 {
			return nil, false
		}
		if i > 0 {
			b = append(b, ", "...)
		}
		b = appendKey(b, &v.Items[i], v.Type)
		b = appendValue(b, &v.Items[i], 0, 0)
		if len(b) > width && len(v.Items) > 0 {
			return nil, false
		}
	}
	return append(b, end), true
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

func appendScalar(b []byte, v *Value) []byte {
	switch v.Type {
	case Null:
		return append(b, "null"...)
	case Text:
		return appendText(b, v.Text)
	}
	return append(b, v.Text...)
}

// appendText appends a JSON string. Characters that mean something in HTML are not escaped: this is a file for people.
func appendText(b []byte, s string) []byte {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // cannot fail: neither strings nor buffers do
	return append(b, bytes.TrimSuffix(buf.Bytes(), []byte("\n"))...)
}
