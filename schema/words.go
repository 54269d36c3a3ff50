package schema

import (
	"encoding/json"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/internal/nearest"
)

// typeWords maps the types of JSON Schema to words.
var typeWords = map[string]string{
	"null": "null", "boolean": "a boolean", "number": "a number", "integer": "an integer", "string": "text", "array": "a list", "object": "an object",
}

// The function `violations` describes an error that has no causes, or an error for which isWhole is true. If fields are missing or not allowed, each
// of these fields becomes a violation, with the field's path.
func violations(e *jsonschema.ValidationError) (list []kahn.Violation) {
	members := func(names []string, message string) []kahn.Violation {
		for _, name := range names {
			list = append(list, kahn.Violation{Path: pointer(append(slices.Clip(e.InstanceLocation), name)), Message: message})
		}
		return list
	}
	switch k := e.ErrorKind.(type) {
	case *kind.Required:
		return members(k.Missing, "the field is missing")
	case *kind.AdditionalProperties:
		return members(k.Properties, noField)
	case *kind.Dependency:
		return members(k.Missing, fmt.Sprintf("the field is missing: %q needs it", k.Prop))
	case *kind.DependentRequired:
		return members(k.Missing, fmt.Sprintf("the field is missing: %q needs it", k.Prop))
	case *kind.PropertyNames:
		reason := ""
		if len(e.Causes) == 1 && len(e.Causes[0].Causes) == 0 {
			reason = ": " + message(e.Causes[0].ErrorKind)
		}
		return members([]string{k.Property}, shorten("this is not a name for a field here"+reason))
	}
	return []kahn.Violation{{Path: pointer(e.InstanceLocation), Message: shorten(message(e.ErrorKind))}}
}

// noField is the message about an unknown field.
const noField = "there is no field of this name"

// The function `instead` returns the end of a message about an unknown field: the name that the author probably meant, or the names of all fields.
func instead(name string, fields []string) string {
	if meant, ok := nearest.Name(name, fields); ok {
		return fmt.Sprintf("; did you mean %q?", meant)
	}
	if len(fields) == 0 {
		return ""
	}
	for i, field := range fields {
		fields[i] = strconv.Quote(field)
	}
	return "; there are " + strings.Join(fields, ", ")
}

// The function `message` describes what is wrong with a value.
func message(k jsonschema.ErrorKind) string {
	if w, ok := expected(k); ok {
		return w.String()
	}
	switch k := k.(type) {
	case *kind.FalseSchema:
		return "this field is not permitted here, or not together with another field"
	case *kind.Not:
		return "the schema forbids this value"
	case *kind.OneOf:
		return "the value satisfies several alternatives, of which it must satisfy one"
	case *kind.MinProperties:
		return fmt.Sprintf("expected at least %s, got %d", count(k.Want, "field"), k.Got)
	case *kind.MaxProperties:
		return fmt.Sprintf("expected at most %s, got %d", count(k.Want, "field"), k.Got)
	case *kind.MinItems:
		return fmt.Sprintf("expected at least %s, got %d", count(k.Want, "item"), k.Got)
	case *kind.MaxItems:
		return fmt.Sprintf("expected at most %s, got %d", count(k.Want, "item"), k.Got)
	case *kind.AdditionalItems:
		return fmt.Sprintf("%s too many", count(k.Count, "item"))
	case *kind.UniqueItems:
		return fmt.Sprintf("the items %d and %d are equal", k.Duplicates[0], k.Duplicates[1])
	case *kind.Contains:
		return "the list lacks an item that the schema requires"
	case *kind.MinContains:
		return fmt.Sprintf("expected at least %s of a kind, got %d", count(k.Want, "item"), len(k.Got))
	case *kind.MaxContains:
		return fmt.Sprintf("expected at most %s of a kind, got %d", count(k.Want, "item"), len(k.Got))
	case *kind.MinLength:
		return fmt.Sprintf("expected at least %s, got %d", count(k.Want, "character"), k.Got)
	case *kind.MaxLength:
		return fmt.Sprintf("expected at most %s, got %d", count(k.Want, "character"), k.Got)
	case *kind.Pattern:
		return fmt.Sprintf("expected text that matches %.200s, got %.100q", k.Want, k.Got)
	case *kind.Minimum:
		return fmt.Sprintf("expected at least %s, got %s", decimal(k.Want), decimal(k.Got))
	case *kind.Maximum:
		return fmt.Sprintf("expected at most %s, got %s", decimal(k.Want), decimal(k.Got))
	case *kind.ExclusiveMinimum:
		return fmt.Sprintf("expected more than %s, got %s", decimal(k.Want), decimal(k.Got))
	case *kind.ExclusiveMaximum:
		return fmt.Sprintf("expected less than %s, got %s", decimal(k.Want), decimal(k.Got))
	case *kind.MultipleOf:
		return fmt.Sprintf("expected a multiple of %s, got %s", decimal(k.Want), decimal(k.Got))
	}
	return "the value does not satisfy " + strings.Join(k.KeywordPath(), "/")
}

// The type `wanted` describes what a value should be and what it is.
type wanted struct {
	choices []string
	got     string // the value in words; "" if words add no information
	meant   string // the choice that is similar to the given text; "" if none is
	mend    string // how to write the value; "" if there is no advice
}

// String renders the expectation.
func (w wanted) String() string {
	text := "expected " + strings.Join(w.choices, " or ")
	if w.got != "" {
		text += ", got " + w.got
	}
	if w.meant != "" {
		text += fmt.Sprintf("; did you mean %q?", w.meant)
	}
	if w.mend != "" {
		text += "; " + w.mend
	}
	return text
}

// The function `expected` returns what a keyword expects of the value as a whole. The result ok is true for
// the keywords type, enum and const.
func expected(k jsonschema.ErrorKind) (w wanted, ok bool) {
	switch k := k.(type) {
	case *kind.Type:
		for _, name := range k.Want {
			w.choices = append(w.choices, typeWords[name])
		}
		w.got = typeWords[k.Got]
		switch {
		case len(k.Want) != 1:
		case k.Want[0] == "array" && k.Got == "string":
			w.mend = "write it as [item, item]"
		case k.Want[0] == "string" && (k.Got == "number" || k.Got == "integer" || k.Got == "boolean"):
			w.mend = "write it in quotes"
		case k.Want[0] != "string" && k.Want[0] != "object" && k.Got == "string":
			w.mend = "write it without quotes"
		}
	case *kind.Enum:
		w = oneOf(k.Want, k.Got)
	case *kind.Const:
		w = oneOf([]any{k.Want}, k.Got)
	default:
		return w, false
	}
	return w, true
}

func oneOf(want []any, got any) (w wanted) {
	var texts []string
	words := make([]string, len(want))
	for i, v := range want {
		text, err := json.Marshal(v)
		if err != nil { // cannot happen, since the value was decoded from JSON
			text = fmt.Append(nil, v)
		}
		words[i] = string(text)
		if s, ok := v.(string); ok {
			texts = append(texts, s)
		}
	}
	choices := strings.Join(words, ", ")
	if len(words) != 1 {
		choices = "one of " + choices
	}
	w.choices = []string{choices}
	if s, ok := got.(string); ok {
		w.got = fmt.Sprintf("%.60q", s)
		w.meant, _ = nearest.Name(s, texts)
	}
	return w
}

// The function `alternatives` combines what the alternatives of an anyOf or oneOf expect of the value as a whole. The result ok is false if
// the error of an alternative is about a part of the value or another keyword, or if e is not the error of an anyOf or oneOf.
func alternatives(e *jsonschema.ValidationError) (w wanted, ok bool) {
	switch e.ErrorKind.(type) {
	case *kind.AnyOf, *kind.OneOf:
	default:
		return w, false
	}
	for _, cause := range e.Causes {
		for len(cause.Causes) == 1 {
			if _, reference := cause.ErrorKind.(*kind.Reference); !reference {
				break
			}
			cause = cause.Causes[0]
		}
		one, whole := expected(cause.ErrorKind)
		if !whole || len(cause.InstanceLocation) != len(e.InstanceLocation) {
			return w, false
		}
		w.choices = append(w.choices, one.choices...)
		if w.meant == "" {
			w.meant = one.meant
		}
		if w.got == "" || one.meant != "" {
			w.got = one.got
		}
	}
	return w, len(e.Causes) > 0
}

// isWhole reports whether flatten describes the error itself and not its causes. These causes are errors about parts of the value.
func isWhole(k jsonschema.ErrorKind) bool {
	switch k.(type) {
	case *kind.PropertyNames, *kind.Contains, *kind.MinContains:
		return true
	}
	return false
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}

// The function `decimal` renders a number of a schema or a value.
func decimal(r *big.Rat) string {
	if r.IsInt() {
		return shorten(r.Num().String())
	}
	f, _ := r.Float64()
	return strconv.FormatFloat(f, 'g', -1, 64)
}
