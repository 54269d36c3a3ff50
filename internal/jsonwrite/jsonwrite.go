// Package jsonwrite writes the same JSON as package json, but uses reflection only for values of the host and for rare fields. kahn uses it for
// events and for the records of nodes, since it encodes these very often.
package jsonwrite

import (
	"encoding/json"
	"strconv"
	"time"

	"github.com/seed-c794f7ef/kahn/internal/enum"
)

// Writer appends to Data. The zero value is ready for use.
type Writer struct {
	Data []byte
	Err  error // the first error
}

// Open begins an object.
func (w *Writer) Open() { w.Data = append(w.Data, '{') }

// Close ends an object.
func (w *Writer) Close() { w.Data = append(w.Data, '}') }

// Key begins a member. The key must not contain a character that JSON escapes.
func (w *Writer) Key(key string) {
	if w.Data[len(w.Data)-1] != '{' {
		w.Data = append(w.Data, ',')
	}
	w.Data = append(w.Data, '"')
	w.Data = append(w.Data, key...)
	w.Data = append(w.Data, '"', ':')
}

// Text writes a member with a text.
func (w *Writer) Text(key, s string) {
	w.Key(key)
	w.Quote(s)
}

// TextIf writes a member with a text, unless the text is empty.
func (w *Writer) TextIf(key, s string) {
	if s != "" {
		w.Text(key, s)
	}
}

// Quote writes a string. If a character of the string may need an escape, package json encodes the string.
func (w *Writer) Quote(s string) {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			data, _ := json.Marshal(s) // strings always encode
			w.Data = append(w.Data, data...)
			return
		}
	}
	w.Data = append(w.Data, '"')
	w.Data = append(w.Data, s...)
	w.Data = append(w.Data, '"')
}

// Number writes a member with an integer.
func (w *Writer) Number(key string, n int) {
	w.Key(key)
	w.Data = strconv.AppendInt(w.Data, int64(n), 10)
}

// ID writes a member with an id.
func (w *Writer) ID(key string, n uint64) {
	w.Key(key)
	w.Data = strconv.AppendUint(w.Data, n, 10)
}

// NumberIf writes a member with an integer, unless it is zero.
func (w *Writer) NumberIf(key string, n int64) {
	if n != 0 {
		w.Key(key)
		w.Data = strconv.AppendInt(w.Data, n, 10)
	}
}

// IDIf writes a member with an id, unless it is zero.
func (w *Writer) IDIf(key string, n uint64) {
	if n != 0 {
		w.ID(key, n)
	}
}

// Flag writes a member with the value true if b is true, and nothing if b is false.
func (w *Writer) Flag(key string, b bool) {
	if b {
		w.Is(key, true)
	}
}

// Is writes a member with the value b.
func (w *Writer) Is(key string, b bool) {
	w.Key(key)
	w.Data = strconv.AppendBool(w.Data, b)
}

// Milliseconds writes a member with a duration, as a number of milliseconds that may have a fraction. Package json would write the same text, because
// it writes no exponent for numbers in this range.
func (w *Writer) Milliseconds(key string, d time.Duration) {
	w.Key(key)
	w.Data = strconv.AppendFloat(w.Data, float64(d)/float64(time.Millisecond), 'f', -1, 64)
}

// List writes a member with a list of texts. It writes nil as null.
func (w *Writer) List(key string, list []string) {
	w.Key(key)
	if list == nil {
		w.Data = append(w.Data, "null"...)
		return
	}
	w.Data = append(w.Data, '[')
	for i, s := range list {
		if i > 0 {
			w.Data = append(w.Data, ',')
		}
		w.Quote(s)
	}
	w.Data = append(w.Data, ']')
}

// Name writes a member with the name names[i] of an enum. If there is no names[i], Name calls Fail. The parameter "what" describes the enum in the
// error.
func (w *Writer) Name(key string, names []string, i int, what string) {
	if i >= len(names) {
		_, err := enum.Text(names, i, what)
		w.Fail(err)
		return
	}
	w.Text(key, names[i])
}

// Time writes a member with a time, in the form of time.Time.MarshalJSON. If RFC 3339 cannot represent the time, Time calls Fail.
func (w *Writer) Time(key string, t time.Time) {
	w.Key(key)
	w.Data = append(w.Data, '"')
	var err error
	w.Data, err = t.AppendText(w.Data)
	w.Fail(err)
	w.Data = append(w.Data, '"')
}

// TimeIf writes a member with a time, unless the time is zero.
func (w *Writer) TimeIf(key string, t time.Time) {
	if !t.IsZero() {
		w.Time(key, t)
	}
}

// JSON lets package json encode a value, and writes a member with the result.
func (w *Writer) JSON(key string, v any) {
	data, err := json.Marshal(v)
	w.Fail(err)
	w.Key(key)
	w.Data = append(w.Data, data...)
}

// Fail records err in Err, unless Err is already set.
func (w *Writer) Fail(err error) {
	if w.Err == nil {
		w.Err = err
	}
}
