package definition

import (
	"encoding/json"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// The method `data` of a decoder turns a value into its Go form: nil, bool, string, []any or map[string]any. An
// integer becomes an int64, or a json.Number if it does not fit into an int64. Any other number becomes a float64.
func (d *decoder) data(v *Value) any {
	switch v.Type {
	case Bool:
		return v.Text == "true"
	case Number:
		n, ok := number(v.Text)
		if !ok {
			d.add(v.At, ErrValue, "%.60s is beyond the numbers of a float64", v.Text)
		}
		return n
	case Text:
		return v.Text
	case List:
		list := make([]any, 0, min(len(v.Items), 64))
		for i := range v.Items {
			if !d.enter(&v.Items[i], "", i) {
				continue
			}
			list = append(list, d.data(&v.Items[i]))
			d.pop()
		}
		return list
	case Object:
		object := make(map[string]any, min(len(v.Items), 64))
		for i := range v.Items {
			item := &v.Items[i]
			if !d.enter(item, item.Key, -1) {
				continue
			}
			if _, twice := object[item.Key]; twice {
				d.add(item.KeyAt, ErrDuplicate, "the key occurs twice")
			}
			object[item.Key] = d.data(item)
			d.pop()
		}
		return object
	}
	return nil
}

// The function `number` returns the Go form of a number literal. It returns false if the number does not fit into a float64.
func number(text string) (n any, ok bool) {
	if !strings.ContainsAny(text, ".eE") {
		if i, err := strconv.ParseInt(text, 10, 64); err == nil {
			return i, true
		}
		return json.Number(text), true
	}
	f, err := strconv.ParseFloat(text, 64)
	return f, err == nil
}

// The method `data` of an encoder converts a Go value to a Value. If the Go value has no JSON form, this method adds a problem.
// It writes integers of any type as integers. It writes every float with a point or an exponent, so that the decoder reads a float
// again.
func (e *encoder) data(x any) Value {
	if e.tooDeep() {
		return Value{}
	}
	switch x := x.(type) {
	case nil:
		return Value{}
	case json.Number:
		if n, ok := number(string(x)); ok && numberLength(string(x)) == len(x) && x != "" {
			switch n := n.(type) {
			case int64:
				return Value{Type: Number, Text: strconv.FormatInt(n, 10)}
			case float64:
				return Value{Type: Number, Text: floatText(n)}
			}
			return Value{Type: Number, Text: string(x)}
		}
		e.add(Position{}, ErrValue, "%s is not a number", quote(string(x)))
		return Value{}
	}
	switch v := reflect.ValueOf(x); v.Kind() {
	case reflect.Bool:
		return Value{Type: Bool, Text: strconv.FormatBool(v.Bool())}
	case reflect.String:
		if !utf8.ValidString(v.String()) {
			e.add(Position{}, ErrEncoding, "%s is not valid UTF-8", quote(v.String()))
		}
		return Value{Type: Text, Text: v.String()}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return Value{Type: Number, Text: strconv.FormatInt(v.Int(), 10)}
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return Value{Type: Number, Text: strconv.FormatUint(v.Uint(), 10)}
	case reflect.Float32, reflect.Float64:
		if math.IsNaN(v.Float()) || math.IsInf(v.Float(), 0) {
			e.add(Position{}, ErrValue, "%v is not a JSON number", v.Float())
		}
		return Value{Type: Number, Text: floatText(v.Float())}
	case reflect.Slice, reflect.Array:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			break // bytes have no obvious JSON form, because they could be a text, base64 or a list of numbers
		}
		list := Value{Type: List}
		for i := range v.Len() {
			e.push("", i)
			list.Items = append(list.Items, e.data(v.Index(i).Interface()))
			e.pop()
		}
		return list
	case reflect.Map:
		if v.Type().Key().Kind() != reflect.String {
			break
		}
		return e.dataObject(v)
	}
	e.add(Position{}, ErrNotData, "a %T has no JSON form; convert it first", x)
	return Value{}
}

func (e *encoder) dataObject(v reflect.Value) Value {
	keys := v.MapKeys()
	slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
	object := Value{Type: Object}
	for _, k := range keys {
		e.push(k.String(), -1)
		if !utf8.ValidString(k.String()) {
			e.add(Position{}, ErrEncoding, "the key %s is not valid UTF-8", quote(k.String()))
		}
		item := e.data(v.MapIndex(k).Interface())
		item.Key = k.String()
		object.Items = append(object.Items, item)
		e.pop()
	}
	return object
}

func floatText(f float64) string {
	s := strconv.FormatFloat(f, 'g', -1, 64)
	if !strings.ContainsAny(s, ".e") {
		s += ".0"
	}
	return s
}
