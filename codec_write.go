package kahn

import (
	"encoding/json"
	"strconv"
	"time"

	"github.com/seed-c794f7ef/kahn/internal/enum"
)

// jsonWriter writes JSON as package json does, without reflection but for values of the host and what is rare: events and the records of
// nodes are encoded more often than anything else.
type jsonWriter struct {
	data []byte
	err  error // the first one
}

func (w *jsonWriter) open()  { w.data = append(w.data, '{') }
func (w *jsonWriter) close() { w.data = append(w.data, '}') }

// key begins a member. Keys need no escapes.
func (w *jsonWriter) key(key string) {
	if w.data[len(w.data)-1] != '{' {
		w.data = append(w.data, ',')
	}
	w.data = append(w.data, '"')
	w.data = append(w.data, key...)
	w.data = append(w.data, '"', ':')
}

func (w *jsonWriter) text(key, s string) {
	w.key(key)
	w.string(s)
}

// textIf leaves out an empty text.
func (w *jsonWriter) textIf(key, s string) {
	if s != "" {
		w.text(key, s)
	}
}

// string leaves strings that need an escape to package json.
func (w *jsonWriter) string(s string) {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			data, _ := json.Marshal(s) // every string can be encoded
			w.data = append(w.data, data...)
			return
		}
	}
	w.data = append(w.data, '"')
	w.data = append(w.data, s...)
	w.data = append(w.data, '"')
}

func (w *jsonWriter) number(key string, n int) {
	w.key(key)
	w.data = strconv.AppendInt(w.data, int64(n), 10)
}

func (w *jsonWriter) id(key string, n uint64) {
	w.key(key)
	w.data = strconv.AppendUint(w.data, n, 10)
}

// numberIf leaves out a zero, as idIf and flag do.
func (w *jsonWriter) numberIf(key string, n int64) {
	if n != 0 {
		w.key(key)
		w.data = strconv.AppendInt(w.data, n, 10)
	}
}

func (w *jsonWriter) idIf(key string, n uint64) {
	if n != 0 {
		w.id(key, n)
	}
}

func (w *jsonWriter) flag(key string, b bool) {
	if b {
		w.is(key, true)
	}
}

func (w *jsonWriter) is(key string, b bool) {
	w.key(key)
	w.data = strconv.AppendBool(w.data, b)
}

// milliseconds writes a duration as durationJSON does: package json uses an exponent for smaller and larger numbers only.
func (w *jsonWriter) milliseconds(key string, d time.Duration) {
	w.key(key)
	w.data = strconv.AppendFloat(w.data, milliseconds(d), 'f', -1, 64)
}

// list writes nil as null.
func (w *jsonWriter) list(key string, list []string) {
	w.key(key)
	if list == nil {
		w.data = append(w.data, "null"...)
		return
	}
	w.data = append(w.data, '[')
	for i, s := range list {
		if i > 0 {
			w.data = append(w.data, ',')
		}
		w.string(s)
	}
	w.data = append(w.data, ']')
}

// name writes the name of a value of an enum.
func (w *jsonWriter) name(key string, names []string, i int, what string) {
	if i >= len(names) {
		_, err := enum.Text(names, i, what)
		w.fail(err)
		return
	}
	w.text(key, names[i])
}

// time writes a time as time.Time does, and reports one that RFC 3339 does not have.
func (w *jsonWriter) time(key string, t time.Time) {
	w.key(key)
	w.data = append(w.data, '"')
	var err error
	w.data, err = t.AppendText(w.data)
	w.fail(err)
	w.data = append(w.data, '"')
}

// timeIf leaves out the zero time.
func (w *jsonWriter) timeIf(key string, t time.Time) {
	if !t.IsZero() {
		w.time(key, t)
	}
}

// json leaves a value to package json.
func (w *jsonWriter) json(key string, v any) {
	data, err := json.Marshal(v)
	w.fail(err)
	w.key(key)
	w.data = append(w.data, data...)
}

func (w *jsonWriter) fail(err error) {
	if w.err == nil {
		w.err = err
	}
}
