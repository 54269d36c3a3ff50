package expression

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"reflect"
	"strconv"
	"strings"

	"github.com/seed-c794f7ef/kahn"
)

var errMember = fmt.Errorf("%w: no such path", kahn.ErrNoValue)

func isMissing(err error) bool { return errors.Is(err, kahn.ErrNoValue) }

func mismatch(format string, args ...any) error {
	return fmt.Errorf("%w: %s", kahn.ErrType, fmt.Sprintf(format, args...))
}

// The method `open` decodes a json.RawMessage, or a pointer to one, and charges steps for its size. It returns any other value unchanged. The
// evaluation calls open for every value from outside the expression.
func (e *evaluation) open(v any) (any, error) {
	raw, ok := v.(json.RawMessage)
	if p, is := v.(*json.RawMessage); is && p != nil {
		raw, ok = *p, true
	}
	if !ok {
		return v, nil
	}
	if err := e.spend(1 + len(raw)/16); err != nil || len(raw) == 0 {
		return nil, err
	}
	var decoded any
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(&decoded); err != nil {
		return nil, mismatch("a json.RawMessage that is not JSON: %v", err)
	}
	return decoded, nil
}

// The function `plain` returns the value to which v's pointers and interfaces lead. It follows at most 10 of them, since a pointer may point to
// itself. If this value is null, plain returns the zero Value.
func plain(v any) reflect.Value {
	r := reflect.ValueOf(v)
	for range 10 {
		if r.Kind() != reflect.Pointer && r.Kind() != reflect.Interface {
			break
		}
		r = r.Elem()
	}
	switch r.Kind() {
	case reflect.Map, reflect.Slice, reflect.Chan, reflect.Func, reflect.Pointer, reflect.Interface, reflect.UnsafePointer:
		if r.IsNil() {
			return reflect.Value{}
		}
	}
	return r
}

var numberType = reflect.TypeFor[json.Number]()

// The function `member` returns a member of a value. The key is a key of a map, a name of a field of a struct, or a position in a list.
func member(v, key any) (any, error) {
	switch r := plain(v); r.Kind() {
	case reflect.Map:
		return mapMember(r, key)
	case reflect.Slice, reflect.Array:
		i, ok := integer(key)
		if !ok || i < 0 || i >= int64(r.Len()) {
			return nil, errMember
		}
		return inside(r.Index(int(i)))
	case reflect.Struct:
		if name, ok := text(key); ok {
			if f, ok := field(r, name); ok {
				return inside(f)
			}
		}
	}
	return nil, errMember // a value of another kind, such as null or a number, has no members
}

// The function `inside` returns the value of r, which is a part of a larger value. It returns errMember if r was read from an unexported field.
func inside(r reflect.Value) (any, error) {
	if !r.CanInterface() {
		return nil, errMember
	}
	return r.Interface(), nil
}

func mapMember(m reflect.Value, key any) (any, error) {
	t := m.Type().Key()
	var k reflect.Value
	switch {
	case t.Kind() == reflect.String:
		s, ok := text(key)
		if !ok {
			return nil, errMember
		}
		k = reflect.ValueOf(s)
	case reflect.Zero(t).CanInt() || reflect.Zero(t).CanUint():
		i, ok := integer(key)
		if !ok || reflect.Zero(t).CanInt() && reflect.Zero(t).OverflowInt(i) ||
			reflect.Zero(t).CanUint() && (i < 0 || reflect.Zero(t).OverflowUint(uint64(i))) {
			return nil, errMember
		}
		k = reflect.ValueOf(i)
	case t.Kind() == reflect.Interface && t.NumMethod() == 0: // map[any]any
		if s, ok := text(key); ok {
			k = reflect.ValueOf(s)
		} else if i, ok := integer(key); ok {
			k = reflect.ValueOf(int(i))
		} else {
			return nil, errMember
		}
	default:
		return nil, mismatch("a map with keys of type %v", t)
	}
	v := m.MapIndex(k.Convert(t))
	if !v.IsValid() {
		return nil, errMember
	}
	return inside(v)
}

// The function `field` finds an exported field by its JSON name. If the field has no JSON name, its Go name counts, in upper or lower case. The
// function also finds promoted fields.
func field(r reflect.Value, name string) (reflect.Value, bool) {
	for _, f := range reflect.VisibleFields(r.Type()) {
		tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !f.IsExported() || f.Tag.Get("json") == "-" || tag != name && (tag != "" || !strings.EqualFold(f.Name, name)) {
			continue
		}
		v, err := r.FieldByIndexErr(f.Index) // an embedded pointer may be nil
		return v, err == nil
	}
	return reflect.Value{}, false
}

// The function `text` returns a text value as a string. It returns false if the value is not a text.
func text(v any) (string, bool) {
	if s, ok := v.(string); ok {
		return s, true
	}
	r := plain(v)
	if r.Kind() != reflect.String || r.Type() == numberType {
		return "", false
	}
	return r.String(), true
}

// The function `number` returns a number as an int64, a uint64 or a float64. It returns a uint64 only for an integer beyond int64. It returns false
// if the value is not a number.
func number(v any) (any, bool) {
	switch v := v.(type) {
	case int64, float64:
		return v, true
	}
	r := plain(v)
	switch {
	case !r.IsValid():
		return nil, false
	case r.CanInt():
		return r.Int(), true
	case r.CanUint():
		if u := r.Uint(); u > math.MaxInt64 {
			return u, true
		}
		return int64(r.Uint()), true
	case r.CanFloat():
		return r.Float(), true
	case r.Type() == numberType:
		s := r.String()
		if i, err := strconv.ParseInt(s, 10, 64); err == nil {
			return i, true
		}
		if u, err := strconv.ParseUint(s, 10, 64); err == nil {
			return u, true
		}
		f, err := strconv.ParseFloat(s, 64)
		return f, err == nil || errors.Is(err, strconv.ErrRange)
	}
	return nil, false
}

// The function `integer` returns a number as an int64. It returns false if the value is not an integer, is beyond int64, or is a floating-point
// number so large that it may have been rounded.
func integer(v any) (int64, bool) {
	switch n, _ := number(v); n := n.(type) {
	case int64:
		return n, true
	case float64:
		if i := int64(n); float64(i) == n && math.Abs(n) < 1<<53 {
			return i, true
		}
	}
	return 0, false
}

func negate(v any) (any, error) {
	switch n, _ := number(v); n := n.(type) {
	case float64:
		return -n, nil
	case int64:
		if n != math.MinInt64 {
			return -n, nil
		}
		return -float64(n), nil
	case uint64:
		if n == -math.MinInt64 {
			return int64(math.MinInt64), nil
		}
		return -float64(n), nil
	}
	return nil, mismatch("minus %s", kind(v))
}

// The function `order` compares two numbers or two texts. If one of the numbers is NaN, the result `ordered` is false.
func order(a, b any) (c int, ordered bool, err error) {
	x, isNumber := number(a)
	y, both := number(b)
	if isNumber && both {
		c, ordered = orderNumbers(x, y)
		return c, ordered, nil
	}
	s, isText := text(a)
	t, both := text(b)
	if isText && both {
		return cmp.Compare(s, t), true, nil
	}
	return 0, false, mismatch("%s and %s have no order", kind(a), kind(b))
}

func orderNumbers(a, b any) (c int, ordered bool) {
	x, xInt := a.(int64)
	y, yInt := b.(int64)
	if xInt && yInt {
		return cmp.Compare(x, y), true
	}
	f, okF := exact(a)
	g, okG := exact(b)
	if !okF || !okG {
		return 0, false
	}
	return f.Cmp(g), true
}

// The function `exact` returns a number without rounding it. The result `ok` is false if n is NaN or nil.
func exact(n any) (f *big.Float, ok bool) {
	switch n := n.(type) {
	case int64:
		return new(big.Float).SetInt64(n), true
	case uint64:
		return new(big.Float).SetUint64(n), true
	case float64:
		if !math.IsNaN(n) {
			return big.NewFloat(n), true
		}
	}
	return nil, false
}

// maxNesting is the maximum nesting of two values that can be compared. There must be a limit, since a value may contain itself.
const maxNesting = 100

// The method `equal` compares two values.
func (e *evaluation) equal(a, b any, depth int) (bool, error) {
	if err := e.spend(1); err != nil {
		return false, err
	}
	if depth > maxNesting {
		return false, fmt.Errorf("%w: values nested deeper than %d", ErrLimit, maxNesting)
	}
	a, err := e.open(a)
	if err != nil {
		return false, err
	}
	if b, err = e.open(b); err != nil {
		return false, err
	}
	x, xNumber := number(a)
	y, yNumber := number(b)
	if xNumber || yNumber {
		if !xNumber || !yNumber {
			return false, nil
		}
		c, ordered := orderNumbers(x, y)
		return ordered && c == 0, nil
	}
	r, s := plain(a), plain(b)
	switch k := kindOf(r); {
	case k == "struct" && kindOf(s) != "null" || k != "null" && kindOf(s) == "struct":
		return false, mismatch("a struct cannot be compared as a whole")
	case k != kindOf(s):
		return false, nil
	case k == "null":
		return true, nil
	case k == "text":
		return r.String() == s.String(), nil
	case k == "bool":
		return r.Bool() == s.Bool(), nil
	case k == "list":
		return e.equalLists(r, s, depth)
	case k == "map":
		return e.equalMaps(r, s, depth)
	}
	return false, mismatch("values of type %v cannot be compared", r.Type())
}

func (e *evaluation) equalLists(r, s reflect.Value, depth int) (bool, error) {
	if r.Len() != s.Len() {
		return false, nil
	}
	for i := range r.Len() {
		if equal, err := e.equalInside(r.Index(i), s.Index(i), depth); !equal || err != nil {
			return false, err
		}
	}
	return true, nil
}

// equalMaps compares the members of two maps. Map iteration order may affect which of several errors equalMaps returns. If a member differs, but the
// comparison of all members exceeds a limit, the order also decides whether equalMaps returns false or an error.
func (e *evaluation) equalMaps(r, s reflect.Value, depth int) (bool, error) {
	if r.Len() != s.Len() {
		return false, nil
	}
	var problem error
	for it := r.MapRange(); it.Next(); {
		key, err := inside(it.Key())
		if err != nil {
			return false, err
		}
		other, err := mapMember(s, key)
		switch {
		case isMissing(err):
			return false, nil
		case err != nil:
			return false, err
		}
		equal, err := e.equalInside(it.Value(), reflect.ValueOf(other), depth)
		switch {
		case errors.Is(err, kahn.ErrType):
			problem = err // returned only if the comparison finds no member that differs
		case err != nil:
			return false, err
		case !equal:
			return false, nil
		}
	}
	return problem == nil, problem
}

func (e *evaluation) equalInside(r, s reflect.Value, depth int) (bool, error) {
	var a, b any
	var err error
	if r.IsValid() {
		if a, err = inside(r); err != nil {
			return false, err
		}
	}
	if s.IsValid() {
		if b, err = inside(s); err != nil {
			return false, err
		}
	}
	return e.equal(a, b, depth+1)
}

// The method `in` reports whether the value `a` is a member of the list `b`, a key of the map `b`, or the name of a field of the struct `b`.
func (e *evaluation) in(a, b any) (bool, error) {
	r := plain(b)
	switch kindOf(r) {
	case "list":
		for i := range r.Len() {
			m, err := inside(r.Index(i))
			if err != nil {
				return false, err
			}
			if equal, err := e.equal(a, m, 0); equal || err != nil {
				return equal, err
			}
		}
		return false, nil
	case "map", "struct":
		_, err := member(b, a)
		if isMissing(err) {
			return false, nil
		}
		return err == nil, err
	}
	return false, mismatch("nothing is in %s", kind(b))
}

func length(v any) (any, error) {
	r := plain(v)
	switch kindOf(r) {
	case "list", "map":
		return int64(r.Len()), nil
	}
	return nil, mismatch("%s has no length", kind(v))
}

func kind(v any) string { return kindOf(plain(v)) }

func kindOf(r reflect.Value) string {
	switch r.Kind() {
	case reflect.Invalid:
		return "null"
	case reflect.Bool:
		return "bool"
	case reflect.String:
		if r.Type() == numberType {
			return "number"
		}
		return "text"
	case reflect.Slice, reflect.Array:
		return "list"
	case reflect.Map:
		return "map"
	case reflect.Struct:
		return "struct"
	}
	if r.CanInt() || r.CanUint() || r.CanFloat() {
		return "number"
	}
	return r.Kind().String()
}
