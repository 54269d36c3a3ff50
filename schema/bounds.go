package schema

import (
	"cmp"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"github.com/seed-c794f7ef/kahn"
)

// The function `measure` returns an error if a value is nested too deeply, has too many parts or contains itself, since it would take unbounded work
// to encode or validate the value. If the value or a part of it has its own JSON encoding, it counts as one part.
func measure(v any, maxDepth, maxParts int) error {
	m := meter{depth: maxDepth, parts: maxParts}
	return m.walk(reflect.ValueOf(v), 0)
}

type meter struct{ depth, parts int }

var (
	jsonMarshaler = reflect.TypeFor[json.Marshaler]()
	textMarshaler = reflect.TypeFor[encoding.TextMarshaler]()
)

func (m *meter) walk(v reflect.Value, depth int) error {
	if m.parts--; m.parts < 0 {
		return errors.New("too many parts")
	}
	if depth > m.depth {
		return fmt.Errorf("nested deeper than %d levels", m.depth)
	}
	switch v.Kind() {
	case reflect.Interface, reflect.Pointer, reflect.Map, reflect.Slice, reflect.Array, reflect.Struct:
		if v.Type().Implements(jsonMarshaler) || v.Type().Implements(textMarshaler) {
			return nil
		}
	}
	switch v.Kind() {
	case reflect.Interface, reflect.Pointer:
		if !v.IsNil() {
			return m.walk(v.Elem(), depth+1)
		}
	case reflect.Map:
		for it := v.MapRange(); it.Next(); {
			if err := m.walk(it.Value(), depth+1); err != nil {
				return err
			}
		}
	case reflect.Slice, reflect.Array:
		switch v.Type().Elem().Kind() {
		case reflect.Interface, reflect.Pointer, reflect.Map, reflect.Slice, reflect.Array, reflect.Struct:
		default:
			m.parts -= v.Len()
			return nil
		}
		for i := range v.Len() {
			if err := m.walk(v.Index(i), depth+1); err != nil {
				return err
			}
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if err := m.walk(v.Field(i), depth+1); err != nil {
				return err
			}
		}
	}
	return nil
}

// badNumber looks for a number that has too many digits or too large an exponent, since an exact comparison would take unbounded work.
func badNumber(v any, path []string) (bad kahn.Violation, found bool) {
	switch v := v.(type) {
	case json.Number:
		mantissa, exponent, _ := strings.Cut(strings.ToLower(v.String()), "e")
		e, err := strconv.Atoi(cmp.Or(exponent, "0"))
		if len(mantissa) > maxDigits || err != nil || e > maxDigits || e < -maxDigits {
			return kahn.Violation{Path: pointer(path), Message: "the number is too large or has too many digits"}, true
		}
	case []any:
		for i := range v {
			if bad, found = badNumber(v[i], append(path, strconv.Itoa(i))); found {
				return bad, true
			}
		}
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			if bad, found = badNumber(v[key], append(path, key)); found {
				return bad, true
			}
		}
	}
	return bad, false
}

// The function `pattern` compiles a pattern of a schema. It returns an error if the pattern is too long. Package regexp also refuses a pattern whose
// compiled form would be too large, and matches in linear time.
func pattern(text string) (jsonschema.Regexp, error) {
	if len(text) > maxPattern {
		return nil, fmt.Errorf("%w: a pattern of %d bytes", ErrLimit, len(text))
	}
	re, err := regexp.Compile(text)
	if err != nil {
		return nil, err
	}
	return re, nil
}

// reach contains the number of schemas, including itself, that a schema applies to the same value, and the depth of their nesting.
type reach struct{ schemas, depth int }

// checkReach returns an error if a schema would apply too many schemas to one value, or would nest them too deeply. It visits each schema once. If
// several paths lead to a schema, the schema counts once for each path, since the validator applies it once for each path.
func checkReach(root *jsonschema.Schema) error {
	known := map[*jsonschema.Schema]reach{}
	var of func(s *jsonschema.Schema) reach
	of = func(s *jsonschema.Schema) reach {
		if r, ok := known[s]; ok {
			return r // zero if s is being visited, since the schemas then form a cycle, and the validator stops there
		}
		known[s] = reach{}
		sum := reach{1, 0}
		for _, next := range sameValue(s) {
			r := of(next)
			sum.schemas = min(sum.schemas+r.schemas, maxInPlace+1)
			sum.depth = max(sum.depth, r.depth)
		}
		sum.depth++
		known[s] = sum
		return sum
	}
	seen := map[*jsonschema.Schema]bool{root: true}
	for all := []*jsonschema.Schema{root}; len(all) > 0; {
		s := all[len(all)-1]
		all = all[:len(all)-1]
		if r := of(s); r.schemas > maxInPlace || r.depth > maxInPlaceDepth {
			return fmt.Errorf("%w: more than %d schemas apply to one value, or %d within one another", ErrLimit, maxInPlace, maxInPlaceDepth)
		}
		for _, next := range append(sameValue(s), members(s)...) {
			if !seen[next] {
				seen[next] = true
				all = append(all, next)
			}
		}
	}
	return nil
}

// sameValue lists the schemas that apply to a value because s applies to the same value.
func sameValue(s *jsonschema.Schema) []*jsonschema.Schema {
	list := slices.Concat([]*jsonschema.Schema{s.Ref, s.RecursiveRef, s.Not, s.If, s.Then, s.Else}, s.AllOf, s.AnyOf, s.OneOf)
	if s.DynamicRef != nil {
		list = append(list, s.DynamicRef.Ref)
	}
	for _, d := range s.Dependencies {
		list = append(list, schemasIn(d)...)
	}
	return present(append(list, slices.Collect(maps.Values(s.DependentSchemas))...))
}

// The function `members` lists the schemas that s applies to the fields, field names or items of a value.
func members(s *jsonschema.Schema) []*jsonschema.Schema {
	list := slices.Concat([]*jsonschema.Schema{s.PropertyNames, s.UnevaluatedProperties, s.Contains, s.Items2020, s.UnevaluatedItems, s.ContentSchema},
		s.PrefixItems, schemasIn(s.AdditionalProperties), schemasIn(s.Items), schemasIn(s.AdditionalItems))
	list = slices.AppendSeq(list, maps.Values(s.Properties))
	return present(slices.AppendSeq(list, maps.Values(s.PatternProperties)))
}

func schemasIn(v any) []*jsonschema.Schema {
	switch v := v.(type) {
	case *jsonschema.Schema:
		return []*jsonschema.Schema{v}
	case []*jsonschema.Schema:
		return v
	}
	return nil
}

func present(list []*jsonschema.Schema) []*jsonschema.Schema {
	return slices.DeleteFunc(list, func(s *jsonschema.Schema) bool { return s == nil })
}

// The function `flatten` turns the leaves of a tree of errors into violations. It sorts the violations by path, since the validator finds the errors
// in the order of a map iteration. If j is not nil, a violation about an unknown field also says which fields there are.
func flatten(root *jsonschema.ValidationError, j *judge) (list []kahn.Violation) {
	unknown := map[string]string{} // by the path of an unknown field: the location in the schema
	stack := []*jsonschema.ValidationError{root}
	for len(stack) > 0 && len(list) < maxLeaves {
		e := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		switch w, together := alternatives(e); {
		case together:
			list = append(list, kahn.Violation{Path: pointer(e.InstanceLocation), Message: shorten(w.String())})
		case len(e.Causes) == 0 || isWhole(e.ErrorKind):
			found := violations(e)
			list = append(list, found...)
			if _, extra := e.ErrorKind.(*kind.AdditionalProperties); extra && j != nil {
				for _, v := range found {
					unknown[v.Path] = max(unknown[v.Path], e.SchemaURL)
				}
			}
		default:
			stack = append(stack, e.Causes...)
		}
	}
	slices.SortFunc(list, func(a, b kahn.Violation) int {
		return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Message, b.Message))
	})
	list = slices.Compact(list) // the validator may find the same error in two ways
	if more := len(list) - maxViolations; more > 0 {
		list = append(list[:maxViolations], kahn.Violation{Message: fmt.Sprintf("and %d more", more)})
	}
	for i, v := range list {
		if v.Message == noField && unknown[v.Path] != "" {
			name := pointerUnescape.Replace(v.Path[strings.LastIndexByte(v.Path, '/')+1:])
			list[i].Message = shorten(noField + instead(name, j.fields(unknown[v.Path])))
		}
	}
	return list
}

var (
	pointerEscape   = strings.NewReplacer("~", "~0", "/", "~1")
	pointerUnescape = strings.NewReplacer("~1", "/", "~0", "~")
)

// The function `pointer` returns a path as a JSON pointer.
func pointer(path []string) string {
	var b strings.Builder
	for _, step := range path {
		b.WriteByte('/')
		b.WriteString(pointerEscape.Replace(step))
	}
	return b.String()
}

// The function `shorten` cuts off the end of a long message. Messages may be long because they contain parts of the value.
func shorten(text string) string {
	const most = 500
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "..."
}
