// Package vary sets fields to values of many kinds, for tests of code that handles each field of a struct by hand.
package vary

import (
	"encoding/json"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"
)

// Texts lists strings of many kinds: some need escapes in JSON, and some are long, empty or invalid UTF-8.
var Texts = []string{
	"", "plain", `"quoted" \ back`, "<script>&amp;</script>", "\x00\x01\b\f\n\r\t\x1f\x7f", "é€😀", "\u2028\u2029\ufffd", "\xff\xfe broken \xc3", strings.Repeat("x", 3000),
}

// JSON returns one of four documents. The first one is not compact.
func JSON(variant int) json.RawMessage {
	return json.RawMessage([]string{`{"a": [1, 2] }`, `"<x>"`, `null`, "1"}[variant%4])
}

// Set sets a value, including its exported fields and elements, to one of many variants. If the function `own` is not nil, Set first calls `own` with
// the address of the value, and does the same for each field and element. If `own` returns true, `own` has set the value, and Set leaves the value as
// it is.
func Set(t testing.TB, v reflect.Value, variant int, own func(at any, variant int) bool) {
	at := v.Addr().Interface()
	if own != nil && own(at, variant) {
		return
	}
	switch x := at.(type) {
	case *json.RawMessage:
		*x = JSON(variant)
		return
	case *time.Time:
		*x = []time.Time{{}, time.Unix(0, 1).UTC(), time.Date(9999, 12, 31, 23, 59, 59, 999_999_999, time.UTC), time.Unix(1e9, 0).In(time.FixedZone("", 3600))}[variant%4]
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		Set(t, v.Elem(), variant, own)
	case reflect.String:
		v.SetString(Texts[variant%len(Texts)])
	case reflect.Int, reflect.Int64:
		v.SetInt([]int64{0, 1, -1, math.MaxInt64}[variant%4])
	case reflect.Int32:
		v.SetInt([]int64{0, 1, -1, math.MaxInt32}[variant%4])
	case reflect.Uint64:
		v.SetUint([]uint64{0, 1, math.MaxUint64}[variant%3])
	case reflect.Float64:
		v.SetFloat([]float64{0, 1, -1.5, math.MaxFloat64}[variant%4])
	case reflect.Bool:
		v.SetBool(variant%2 == 0)
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.String {
			v.Set(reflect.ValueOf([][]string{nil, {}, {"a"}, Texts}[variant%4]))
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), variant%3, 3))
		for i := range v.Len() {
			Set(t, v.Index(i), variant, own)
		}
	case reflect.Array:
		Set(t, v.Index(variant%v.Len()), variant, own)
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for _, key := range Texts[:variant%3] {
			value := reflect.New(v.Type().Elem()).Elem()
			Set(t, value, variant, own)
			v.SetMapIndex(reflect.ValueOf(key), value)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				Set(t, v.Field(i), variant, own)
			}
		}
	default:
		t.Fatalf("a member of kind %v", v.Kind())
	}
}
