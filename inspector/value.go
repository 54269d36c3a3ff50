package inspector

import (
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"unicode/utf8"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/internal/foreign"
)

const (
	shownValue = 32 << 10 // maximum size of a value in a response, in bytes
	shownText  = 4 << 10  // maximum size of an error or a line, in bytes
	mostInputs = 100      // maximum number of inputs in a response
)

// The type `value` is a value of user code in a response.
type value struct {
	// JSON is the value, if it is short enough.
	JSON json.RawMessage `json:"json,omitempty"`
	// Text is the beginning of a longer value, or the text of a value that JSON cannot express.
	Text string `json:"text,omitempty"`
	// Type is the Go type.
	Type string `json:"type"`
	// Bytes is the length of the whole value as JSON, or the length of Text if JSON cannot express the value.
	Bytes int `json:"bytes"`
	// Truncated means that Text is the beginning of a longer value. The endpoint api/v1/value returns the whole value.
	Truncated bool `json:"truncated,omitempty"`
}

// The method `redacted` returns what the client may see in place of a value.
func (c *call) redacted(v Value) (shown any) {
	if raw, ok := v.Value.(jsonValue); ok {
		v.Value = c.h.decode(raw)
	}
	if c.h.Redact == nil {
		return v.Value
	}
	if v.RunID == "" && c.target != nil {
		v.RunID = c.target.ID()
	}
	if err := c.h.contain(c.r, "Redact", func() error { shown = c.h.Redact(c.r, v); return nil }); err != nil {
		return "withheld: Redact has panicked"
	}
	return shown
}

// The method `decode` decodes a stored value. If the codec cannot decode the value, decode returns the value in its stored form.
func (h *handler) decode(raw jsonValue) (value any) {
	value = json.RawMessage(raw)
	_ = foreign.Contain(func() error {
		if v, err := h.Codec.Decode(json.RawMessage(raw)); err == nil {
			value = v
		}
		return nil
	}, func(any) error { return nil })
	return value
}

// The method `shown` returns a value as the client may see it, or nil if the client may not see values.
func (c *call) shown(v Value) *value { return c.shownWithin(v, shownValue) }

// shownWithin is like the method `shown`, but with the maximum size `most`. For a longer value, Text is the beginning of the value's JSON.
func (c *call) shownWithin(v Value, most int) *value {
	if !c.mayViewData() {
		return nil
	}
	shown := c.redacted(v)
	data, err := encode(shown)
	x := &value{Type: typeName(shown), Bytes: len(data)}
	switch {
	case err != nil:
		x.Text = clip(foreign.ValueText(shown), shownText)
		x.Bytes = len(x.Text)
	case len(data) <= most:
		x.JSON = data
	default:
		x.Text, x.Truncated = clip(string(data), most), true
	}
	return x
}

// typeName returns the Go name of a value's type; "null" for nil.
func typeName(v any) string {
	if v == nil {
		return "null"
	}
	return fmt.Sprintf("%T", v)
}

const (
	mostDepth = 10_000 // maximum nesting of an encoded value; there is a limit, because package json needs stack for each level
	// mostParts is the maximum number of elements, members and pointers of an encoded value. A value that needs little memory may have many parts,
	// because JSON repeats a part for each pointer to it.
	mostParts = 10_000_000
)

var jsonMarshaler, textMarshaler = reflect.TypeFor[json.Marshaler](), reflect.TypeFor[encoding.TextMarshaler]()

// encodable reports whether a value is within mostDepth and mostParts. It subtracts the parts of the value from *parts, the number of
// parts that are still allowed.
func encodable(v reflect.Value, depth int, parts *int) bool {
	if *parts--; depth > mostDepth || *parts < 0 {
		return false
	}
	if v.IsValid() && v.Type().NumMethod() > 0 && (v.Type().Implements(jsonMarshaler) || v.Type().Implements(textMarshaler)) {
		return true // package json calls the value's own method
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		return v.IsNil() || encodable(v.Elem(), depth+1, parts)
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); !f.IsExported() && !f.Anonymous {
				continue // the field does not count: package json leaves it out
			}
			if !encodable(v.Field(i), depth+1, parts) {
				return false
			}
		}
	case reflect.Slice, reflect.Array:
		if v.Type().Elem().Kind() < reflect.Array { // numbers and booleans in a list are not counted
			return true
		}
		for i := range v.Len() {
			if !encodable(v.Index(i), depth+1, parts) {
				return false
			}
		}
	case reflect.Map:
		for each := v.MapRange(); each.Next(); {
			if !encodable(each.Value(), depth+1, parts) {
				return false
			}
		}
	}
	return true
}

// The function `encode` encodes a value as JSON. If a method of the value panics, encode returns errPanic.
func encode(v any) (data []byte, err error) {
	if parts := mostParts; !encodable(reflect.ValueOf(v), 0, &parts) {
		return nil, errTooDeep
	}
	err = foreign.Contain(func() (err error) {
		data, err = json.Marshal(v)
		return err
	}, func(any) error { return errPanic })
	return data, err
}

var (
	errPanic   = errors.New("a method of the value has panicked")
	errTooDeep = fmt.Errorf("the value is nested deeper than %d steps, or has more than %d parts", mostDepth, mostParts)
)

// shownError returns an error's text as the client may see it; "" if the client may not see errors.
func (c *call) shownError(path string, err error) string {
	if err == nil || !c.mayViewData() {
		return ""
	}
	return c.shownText(Value{Path: path, Kind: Error, Value: text(err)})
}

// dataText returns v.Value as the client may see it; "" if the client may not see values. v.Value is a text from user code or from a person's
// request.
func (c *call) dataText(v Value) string {
	if v.Value == "" || !c.mayViewData() {
		return ""
	}
	return c.shownText(v)
}

// shownText returns a text as the client may see it. The caller has checked that the client may see values.
func (c *call) shownText(v Value) string {
	switch shown := c.redacted(v).(type) {
	case nil:
		return ""
	case string:
		return clip(shown, shownText)
	default:
		return clip(foreign.ValueText(shown), shownText)
	}
}

// The function `text` returns an error's text, shortened if necessary.
func text(err error) string { return clip(foreign.ErrorText(err), shownText) }

// The function `clip` shortens a text to a number of bytes, without splitting a character. Then it replaces invalid UTF-8.
func clip(text string, most int) string {
	if len(text) > most {
		for most > 0 && !utf8.RuneStart(text[most]) {
			most--
		}
		text = text[:most]
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}

// firstLine returns the first line of a text, shortened for a list.
func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return clip(line, 200)
}

// The method `value` responds with a whole value, as a download.
func (c *call) value() (any, error) {
	path, kind := c.query.text("path"), ValueKind(c.query.text("of"))
	v := Value{Path: path, Kind: kind}
	missing := &fault{Status: http.StatusNotFound, Code: "no_value", Message: "there is no such value"}
	switch kind {
	case Output:
		res, err := c.target.Node(path)
		if err != nil {
			return nil, err
		}
		v.Value = res.Output
	case Input:
		params, _, err := c.target.Inputs(path)
		if err != nil {
			return nil, err
		}
		param, ok := params[c.query.text("name")]
		if !ok {
			return nil, missing
		}
		v.Name, v.Value = c.query.text("name"), param
	case Config:
		at, err := c.place(path)
		if err != nil {
			return nil, err
		}
		v.Value = at.node().Config
	case Info:
		wait, ok := waitOf(c.target, path)
		if !ok {
			return nil, missing
		}
		v.Value = wait.Info
	}
	shown := c.redacted(v)
	data, err := encode(shown)
	if errors.Is(err, errTooDeep) {
		return nil, &fault{Status: http.StatusUnprocessableEntity, Code: "too_deep", Message: err.Error()}
	}
	kindOf, name := jsonType, "value.json"
	if err != nil {
		data, kindOf, name = []byte(foreign.ValueText(shown)), "text/plain; charset=utf-8", "value.txt"
	}
	header := c.w.Header()
	header.Set("Content-Type", kindOf)
	header.Set("Content-Disposition", `attachment; filename="`+name+`"`)
	_, _ = c.w.Write(data) // an error means that the client is gone
	return nil, nil
}

// waitOf returns the wait of a node.
func waitOf(run subject, path string) (kahn.Wait, bool) {
	for _, wait := range run.Waiting() {
		if wait.Node == path {
			return wait, true
		}
	}
	return kahn.Wait{}, false
}
