package main

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/definition"
	"github.com/seed-c794f7ef/kahn/definition/yaml"
)

// parserOf returns the parser for a file, chosen by the extension of its name.
func parserOf(file string) func([]byte, definition.Limits) (*definition.Value, error) {
	if ext := filepath.Ext(file); ext == ".yaml" || ext == ".yml" {
		return yaml.Parse
	}
	return definition.Parse
}

// The function `member` returns a member of an object, or nil if the object lacks it.
func member(v *definition.Value, key string) *definition.Value {
	if v == nil || v.Type != definition.Object {
		return nil
	}
	for i := range v.Items {
		if v.Items[i].Key == key {
			return &v.Items[i]
		}
	}
	return nil
}

// The function `text` returns the text of a member of an object. It returns "" if the object lacks the member, or if the member is not a text.
func text(v *definition.Value, key string) string {
	if m := member(v, key); m != nil && m.Type == definition.Text {
		return m.Text
	}
	return ""
}

// The function `items` returns the items of a list, and nil for any other value.
func items(v *definition.Value) []definition.Value {
	if v == nil || v.Type != definition.List {
		return nil
	}
	return v.Items
}

// The function `below` returns the part of a value at a JSON pointer. If this part does not exist, it returns the innermost existing
// part around it.
func below(v *definition.Value, pointer string) *definition.Value {
	for step := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		next := member(v, strings.NewReplacer("~1", "/", "~0", "~").Replace(step))
		if list := items(v); list != nil {
			if i, err := strconv.Atoi(step); err == nil && i >= 0 && i < len(list) {
				next = &list[i]
			}
		}
		if next == nil {
			break
		}
		v = next
	}
	return v
}

// The function `located` returns the part of a value that violates the schema, the path of this part, and a message. If a field is missing, the part
// is the object that lacks the field, and the message names the field.
func located(v *definition.Value, violation kahn.Violation) (at *definition.Value, path, message string) {
	if i := strings.LastIndexByte(violation.Path, '/'); i >= 0 {
		object, name := below(v, violation.Path[:i]), strings.TrimPrefix(pathOf(violation.Path[i:]), ".")
		if object.Type == definition.Object && below(v, violation.Path) == object {
			return object, pathOf(violation.Path[:i]), name + ": " + violation.Message
		}
	}
	return below(v, violation.Path), pathOf(violation.Path), violation.Message
}

// pathOf converts a JSON pointer to a path in the notation of package definition, such as .cases[2].name.
func pathOf(pointer string) string {
	var b strings.Builder
	if pointer == "" {
		return ""
	}
	for step := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		if _, err := strconv.Atoi(step); err == nil {
			fmt.Fprintf(&b, "[%s]", step)
		} else {
			b.WriteString("." + step)
		}
	}
	return b.String()
}

// valueOf returns a value of a document as a Go value: nil, bool, int64, float64, string, []any or map[string]any.
func valueOf(v *definition.Value) any {
	switch v.Type {
	case definition.Bool:
		return v.Text == "true"
	case definition.Text:
		return v.Text
	case definition.Number:
		if n, err := strconv.ParseInt(v.Text, 10, 64); err == nil {
			return n
		}
		f, _ := strconv.ParseFloat(v.Text, 64) // f is infinite if the number is out of range
		return f
	case definition.List:
		list := make([]any, len(v.Items))
		for i := range v.Items {
			list[i] = valueOf(&v.Items[i])
		}
		return list
	case definition.Object:
		object := make(map[string]any, len(v.Items))
		for i := range v.Items {
			object[v.Items[i].Key] = valueOf(&v.Items[i])
		}
		return object
	}
	return nil
}

// isSmall reports whether the number of a value's parts is within the limit for definitions. A part that YAML aliases repeat counts each time.
func isSmall(v *definition.Value) bool {
	left := definition.Limits{}.Resolved().Values
	var count func(v *definition.Value) bool
	count = func(v *definition.Value) bool {
		left--
		for i := range v.Items {
			if left < 0 || !count(&v.Items[i]) {
				return false
			}
		}
		return left >= 0
	}
	return count(v)
}
