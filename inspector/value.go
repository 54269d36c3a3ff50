package inspector

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/internal/foreign"
)

const (
	shownValue = 32 << 10 // bytes of a value that an answer contains
	shownText  = 4 << 10  // bytes of an error or a line
	mostInputs = 100      // inputs that an answer contains
)

// value is a value of user code as an answer contains it.
type value struct {
	// JSON is the value, if it is short enough.
	JSON json.RawMessage `json:"json,omitempty"`
	// Text is how a longer value begins, or the text of one that JSON cannot express.
	Text string `json:"text,omitempty"`
	// Type is the Go type.
	Type string `json:"type"`
	// Bytes is how long the whole is.
	Bytes int `json:"bytes"`
	// Truncated says that Text is not all of it: see the endpoint value.
	Truncated bool `json:"truncated,omitempty"`
}

// redacted is what the client may see in place of a value.
func (c *call) redacted(v Value) (shown any) {
	if raw, ok := v.Value.(jsonValue); ok {
		v.Value = c.h.decode(raw)
	}
	if c.h.Redact == nil {
		return v.Value
	}
	v.RunID = c.target.ID()
	_ = foreign.Contain(func() error { shown = c.h.Redact(c.r, v); return nil }, func(any) error {
		shown = "withheld: Redact has panicked"
		return nil
	})
	return shown
}

// decode reads a stored value. One that the codec cannot read stays as it is stored.
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

// shown is a value as the client may see it, nil if it may not.
func (c *call) shown(v Value) *value {
	if !c.mayViewData() {
		return nil
	}
	shown := c.redacted(v)
	data, err := encode(shown)
	x := &value{Type: fmt.Sprintf("%T", shown), Bytes: len(data)}
	switch {
	case err != nil:
		x.Text = clip(foreign.ValueText(shown), shownText)
		x.Bytes = len(x.Text)
	case len(data) <= shownValue:
		x.JSON = data
	default:
		x.Text, x.Truncated = clip(string(data), shownValue), true
	}
	return x
}

// encode writes a value as JSON; a method of the value may panic.
func encode(v any) (data []byte, err error) {
	err = foreign.Contain(func() (err error) {
		data, err = json.Marshal(v)
		return err
	}, func(any) error { return errPanic })
	return data, err
}

var errPanic = errors.New("the value has panicked")

// shownError is the text of an error as the client may see it.
func (c *call) shownError(path string, err error) string {
	if err == nil || !c.mayViewData() {
		return ""
	}
	return c.shownText(Value{Path: path, Kind: Error, Value: text(err)})
}

// shownText is a text as the client may see it.
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

// text is the text of an error of any length.
func text(err error) string { return clip(foreign.ErrorText(err), shownText) }

// clip cuts a text off, between two characters.
func clip(text string, most int) string {
	if len(text) > most {
		for most > 0 && !utf8.RuneStart(text[most]) {
			most--
		}
		text = text[:most]
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}

// firstLine is the first line of a text, shortened for a list.
func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return clip(line, 200)
}

// value answers with a whole value, as a download.
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
		in, err := c.target.Inputs(path)
		if err != nil {
			return nil, err
		}
		param, ok := in.Params[c.query.text("name")]
		if !ok {
			return nil, missing
		}
		v.Name, v.Value = c.query.text("name"), param
	case Config:
		at, err := find(c.target, path)
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
	kindOf, name := jsonType, "value.json"
	if err != nil {
		data, kindOf, name = []byte(foreign.ValueText(shown)), "text/plain; charset=utf-8", "value.txt"
	}
	header := c.w.Header()
	header.Set("Content-Type", kindOf)
	header.Set("Content-Disposition", `attachment; filename="`+name+`"`)
	_, _ = c.w.Write(data) // a client that is gone needs no answer
	return nil, nil
}

// waitOf is what a node waits for.
func waitOf(run subject, path string) (kahn.Wait, bool) {
	for _, wait := range run.Waiting() {
		if wait.Node == path {
			return wait, true
		}
	}
	return kahn.Wait{}, false
}
