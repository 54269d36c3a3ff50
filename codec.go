package kahn

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/seed-c794f7ef/kahn/internal/foreign"
	"github.com/seed-c794f7ef/kahn/internal/prepared"
	"github.com/seed-c794f7ef/kahn/store"
)

// Codec converts the values of a run to JSON and back, for snapshots and stores. The values are outputs, inputs and the Info of suspended nodes. If
// Decode would return a value that differs from the original, Encode must return an error that matches [ErrNotEncodable]. Several goroutines may
// call both methods at once.
type Codec interface {
	// Encode encodes a value.
	Encode(value any) (json.RawMessage, error)
	// Decode decodes what Encode returned.
	Decode(data json.RawMessage) (any, error)
}

// Types is the default Codec of a run. It maps names to values of the host's types: Types{"order": Order{}, "orders": []*Order(nil)}. A nil Types
// encodes only the built-in types. Given as an option, Types becomes the codec of a run without [Encoding]. A run without Encoding encodes an output
// only when a store, [EventOutputs] or an encoded snapshot needs it. docs/durable.md describes the form of each type.
//
// Integers of every size keep their type and value. A time.Time loses its monotonic clock reading. Package json encodes a value of a registered
// type, usually without unexported fields. An error keeps its text. A decoded error still matches context.Canceled, context.DeadlineExceeded and
// some sentinel errors of this package, such as [ErrTimeout], if the original did. It does not match others, such as [ErrBudget]. A [*NodeError], an
// [*UpstreamError] and a [*MapError] keep their fields, too. If the type of a value is unknown, Encode returns an error that names the type.
//
// If a type has two names, its values are written under the name that is first in alphabetical order. The option's error matches [ErrBadOption] if
// Types has a nil value or one of the names bool, string, float32, float64, int to int64, uint to uint64, bytes, time, duration, number, raw, any,
// outputs, verdict, kahn.file and error.
type Types map[string]any

// Encoding sets the Codec of the run. The run then encodes every output when its node completes. An output that cannot be encoded fails its node
// with [CauseStoreError], so it cannot make a later snapshot fail. Without this option the codec is [Types], and the run encodes an output only when
// a store, [EventOutputs] or an encoded snapshot needs it. The option's error matches [ErrBadOption] if c is nil or [store.CheckCodec] returns an
// error for it.
func Encoding(c Codec) Option {
	return optionFunc(func(cfg *config) error {
		if c == nil {
			return fmt.Errorf("%w: Encoding(nil)", ErrBadOption)
		}
		if t, ok := c.(Types); ok {
			if err := t.check(); err != nil {
				return err
			}
			c = t.indexed()
		}
		err := foreign.Contain(func() error { return store.CheckCodec(c) }, func(v any) error { return foreign.NewPanicError(v) })
		if err != nil {
			return fmt.Errorf("%w: Encoding: %w", ErrBadOption, err)
		}
		cfg.codec, cfg.checkValues = c, true
		return nil
	})
}

// apply makes t the codec of a run that has no Encoding.
func (t Types) apply(c *config) error {
	if c.codec == nil {
		c.codec = t.indexed()
	}
	return t.check()
}

// check returns an error if an entry of t has the name of a built-in type, the name "error", or a nil value.
func (t Types) check() error {
	bad, found := "", false // the first wrong entry in alphabetical order
	for name, value := range t {
		if (leaves[name] != nil || name == "error" || value == nil) && (!found || name < bad) {
			bad, found = name, true
		}
	}
	switch {
	case !found:
		return nil
	case leaves[bad] != nil, bad == "error":
		return fmt.Errorf("%w: Types: the name %q is reserved for a built-in type", ErrBadOption, bad)
	}
	return fmt.Errorf("%w: Types: the value for %q is nil: give a value of the type", ErrBadOption, bad)
}

// maxValueDepth is the greatest depth of nesting at which a value is still encoded or decoded. A value that is nested more deeply probably contains
// itself.
const maxValueDepth = 1000

// The map `leaves` contains the built-in types. The key of a type is the name under which its values are written.
var leaves = map[string]reflect.Type{
	"bool": reflect.TypeFor[bool](), "string": reflect.TypeFor[string](), "float32": reflect.TypeFor[float32](),
	"float64": reflect.TypeFor[float64](), "int": reflect.TypeFor[int](), "int8": reflect.TypeFor[int8](),
	"int16": reflect.TypeFor[int16](), "int32": reflect.TypeFor[int32](), "int64": reflect.TypeFor[int64](),
	"uint": reflect.TypeFor[uint](), "uint8": reflect.TypeFor[uint8](), "uint16": reflect.TypeFor[uint16](),
	"uint32": reflect.TypeFor[uint32](), "uint64": reflect.TypeFor[uint64](), "bytes": reflect.TypeFor[[]byte](),
	"time": reflect.TypeFor[time.Time](), "duration": reflect.TypeFor[time.Duration](),
	"number": reflect.TypeFor[json.Number](), "raw": reflect.TypeFor[json.RawMessage](), "any": reflect.TypeFor[any](),
	"outputs": reflect.TypeFor[Outputs](), "verdict": reflect.TypeFor[EndVerdict](), "kahn.file": reflect.TypeFor[FileRef](),
}

var leafNames = func() map[reflect.Type]string {
	names := make(map[reflect.Type]string, len(leaves))
	for name, t := range leaves {
		names[t] = name
	}
	return names
}()

const (
	listPrefix = "[]"
	mapPrefix  = "map[string]"
	typeKey    = "$type"
)

// The type `types` is the codec that implements Types. The codec of a run has an index of the types; the codec for a single call has none. The codec
// of a typed pipeline gets its types from the index.
type types struct {
	of    Types
	index *typeIndex
}

// typeIndex contains the name of each registered type: the first in alphabetical order if the type has several names. The first lookup fills the
// map.
type typeIndex struct {
	from  prepared.Source // for a typed pipeline; otherwise nil
	once  sync.Once
	names map[reflect.Type]string
}

// The method `indexed` returns the codec for a run.
func (t Types) indexed() types { return types{of: t, index: new(typeIndex)} }

func (x *typeIndex) of(t Types) map[reflect.Type]string {
	x.once.Do(func() {
		x.names = make(map[reflect.Type]string, len(t))
		for name, zero := range t {
			typ := reflect.TypeOf(zero)
			if known, ok := x.names[typ]; leaves[name] == nil && (!ok || name < known) {
				x.names[typ] = name
			}
		}
	})
	return x.names
}

// all returns the registered types.
func (t types) all() Types {
	if t.index != nil && t.index.from != nil {
		return t.index.from.Types()
	}
	return t.of
}

// The method `registered` returns the name of a registered type: the first in alphabetical order if the type has several names.
func (t types) registered(typ reflect.Type) (found string, ok bool) {
	if t.index != nil {
		found, ok = t.index.of(t.all())[typ]
		return found, ok
	}
	for name, zero := range t.of {
		if reflect.TypeOf(zero) == typ && leaves[name] == nil && (!ok || name < found) {
			found, ok = name, true
		}
	}
	return found, ok
}

// nameOf returns the name under which values of a type are written.
func (t types) nameOf(typ reflect.Type) (string, bool) {
	if name, ok := leafNames[typ]; ok {
		return name, true
	}
	if found, ok := t.registered(typ); ok || typ.Name() != "" {
		return found, ok
	}
	prefix := listPrefix
	switch {
	case typ.Kind() == reflect.Map && typ.Key() == reflect.TypeFor[string]():
		prefix = mapPrefix
	case typ.Kind() != reflect.Slice:
		return "", false
	}
	name, ok := t.nameOf(typ.Elem())
	return prefix + name, ok
}

// typeOf is the reverse of nameOf: it returns the type to which a name belongs.
func (t types) typeOf(name string) (reflect.Type, bool) {
	if typ, ok := leaves[name]; ok {
		return typ, true
	}
	if zero, ok := t.all()[name]; ok && zero != nil {
		return reflect.TypeOf(zero), true
	}
	if elem, ok := strings.CutPrefix(name, listPrefix); ok && len(name) <= foreign.MaxText {
		if typ, ok := t.typeOf(elem); ok {
			return reflect.SliceOf(typ), true
		}
	}
	if elem, ok := strings.CutPrefix(name, mapPrefix); ok && len(name) <= foreign.MaxText {
		if typ, ok := t.typeOf(elem); ok {
			return reflect.MapOf(reflect.TypeFor[string](), typ), true
		}
	}
	return nil, false
}

// Encode implements [Codec].
func (t Types) Encode(value any) (json.RawMessage, error) { return types{of: t}.Encode(value) }

// Decode implements [Codec].
func (t Types) Decode(data json.RawMessage) (any, error) { return types{of: t}.Decode(data) }

// Encode implements [Codec].
func (t types) Encode(value any) (json.RawMessage, error) {
	form, err := t.form(value, 0)
	if err != nil {
		return nil, err
	}
	data, err := json.Marshal(form)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotEncodable, err)
	}
	return data, nil
}

// The method `form` returns a value that package json encodes as the JSON form of the given value. The form includes the name of the type, unless
// the JSON syntax implies the type, as for a string.
func (t types) form(value any, depth int) (any, error) {
	switch v := value.(type) {
	case nil, bool:
		return v, nil
	case string:
		if utf8.ValidString(v) {
			return v, nil
		}
		return tag("string", []byte(v)), nil
	case float64:
		if !math.IsNaN(v) && !math.IsInf(v, 0) {
			return v, nil
		}
		return tag("float64", strconv.FormatFloat(v, 'g', -1, 64)), nil
	case map[string]any:
		if _, clash := v[typeKey]; v != nil && !clash {
			return t.formOf(reflect.ValueOf(v), depth)
		}
	case []any:
		if v != nil {
			return t.formOf(reflect.ValueOf(v), depth)
		}
	}
	typ := reflect.TypeOf(value)
	name, ok := t.nameOf(typ)
	if err, is := value.(error); is && !ok {
		return tag("error", t.formOfError(err, depth)), nil
	}
	if !ok {
		see := "add it to the Types of the option Encoding"
		if typ.Kind() == reflect.Pointer {
			if _, is := t.nameOf(typ.Elem()); is {
				see = fmt.Sprintf("but %v is: return a %[1]v in place of the pointer, or register the pointer", typ.Elem())
			}
		}
		return nil, fmt.Errorf("%w: type %v is not registered: %s", ErrNotEncodable, typ, see)
	}
	form, err := t.formOf(reflect.ValueOf(value), depth)
	return tag(name, form), err
}

// errorForm is the JSON form of an error: its text, the names of the sentinel errors that it matches, and the fields of a [*NodeError],
// [*UpstreamError] or [*MapError].
type errorForm struct {
	storedError
	Node     string       `json:"node,omitempty"`
	Attempt  int          `json:"attempt,omitempty"`
	Kind     CauseKind    `json:"kind,omitempty"`
	Cause    *storedError `json:"cause,omitempty"`
	Upstream bool         `json:"upstream,omitempty"`
	Origins  []string     `json:"origins,omitempty"`
	Items    *itemsForm   `json:"items,omitempty"`
}

// itemsForm is the stored form of a [*MapError]'s items.
type itemsForm struct {
	Results json.RawMessage `json:"results"`
	Failed  int             `json:"failed"`
	Errs    []errorForm     `json:"errors"`
	Indexes []int           `json:"indexes"`
}

func (t types) formOfError(err error, depth int) errorForm {
	switch e := err.(type) {
	case *NodeError:
		if e != nil {
			form := errorForm{Node: e.Node, Attempt: e.Attempt, Kind: e.Kind, Cause: storeError(e.Err).text()}
			if items, is := e.Err.(*MapError); is {
				form.Items = t.formOfItems(items, depth+1)
			}
			return form
		}
	case *UpstreamError:
		if e != nil {
			return errorForm{Node: e.Node, Kind: e.Kind, Origins: e.Origins, Upstream: true}
		}
	case *MapError:
		return errorForm{storedError: *storeError(err).text(), Items: t.formOfItems(e, depth+1)}
	}
	return errorForm{storedError: *storeError(err).text()}
}

// formOfItems returns the form of a [*MapError]'s items. It returns nil if the results cannot be encoded or are nested too deeply. The error is then
// stored without its items.
func (t types) formOfItems(e *MapError, depth int) *itemsForm {
	if e == nil || depth > maxValueDepth {
		return nil
	}
	form := &itemsForm{Failed: e.Failed, Indexes: e.Indexes}
	results, err := t.form(e.Results, depth)
	if err == nil {
		form.Results, err = json.Marshal(results)
	}
	if err != nil {
		return nil
	}
	for _, err := range e.Errs {
		form.Errs = append(form.Errs, t.formOfError(err, depth+1))
	}
	return form
}

func (t types) error(f *errorForm, depth int) error {
	items := t.items(f.Items, depth)
	switch {
	case f.Upstream:
		return &UpstreamError{Node: f.Node, Kind: f.Kind, Origins: f.Origins}
	case f.Node != "" && items != nil:
		return &NodeError{Node: f.Node, Attempt: f.Attempt, Kind: f.Kind, Err: items}
	case f.Node != "":
		return &NodeError{Node: f.Node, Attempt: f.Attempt, Kind: f.Kind, Err: f.Cause.restore()}
	case items != nil:
		return items
	}
	return f.restore()
}

// The method `items` is the reverse of formOfItems: it returns the error with its items, or nil if the items are missing or damaged.
func (t types) items(f *itemsForm, depth int) *MapError {
	if f == nil || depth > maxValueDepth || len(f.Errs) != len(f.Indexes) {
		return nil
	}
	value, err := t.value(f.Results, depth+1)
	results, ok := value.([]any)
	if err != nil || !ok || slices.ContainsFunc(f.Indexes, func(i int) bool { return i < 0 || i >= len(results) }) {
		return nil
	}
	e := &MapError{Results: results, Failed: f.Failed, Indexes: f.Indexes}
	for i := range f.Errs {
		e.Errs = append(e.Errs, t.error(&f.Errs[i], depth+1))
	}
	return e
}

func tag(name string, value any) map[string]any { return map[string]any{typeKey: name, "value": value} }

// formOf returns the form of a value. This form does not include the name of the value's type. The decoder knows the type from the tag around the
// value, or from the type of the list or map that contains the value.
func (t types) formOf(v reflect.Value, depth int) (any, error) {
	if depth > maxValueDepth {
		return nil, fmt.Errorf("%w: nested deeper than %d", ErrNotEncodable, maxValueDepth)
	}
	switch x := v.Interface().(type) {
	case Outputs:
		return t.formOf(reflect.ValueOf(map[string]any(x)), depth+1)
	case EndVerdict:
		output, err := t.form(x.Output, depth+1)
		return map[string]any{"status": x.Status, "output": output}, err
	}
	switch typ := v.Type(); {
	case typ.Kind() == reflect.Interface || typ.Kind() == reflect.String && typ.Name() == "string" || typ.Kind() == reflect.Float64 && typ.Name() == "float64":
		if v.Kind() == reflect.Interface && v.IsNil() {
			return nil, nil
		}
		return t.form(v.Interface(), depth+1)
	case typ.Name() != "" || typ == reflect.TypeFor[[]byte]() || typ.Kind() != reflect.Slice && typ.Kind() != reflect.Map:
		if f, ok := v.Interface().(float32); ok && (math.IsNaN(float64(f)) || math.IsInf(float64(f), 0)) {
			return strconv.FormatFloat(float64(f), 'g', -1, 32), nil
		}
		return v.Interface(), nil // the value needs no tag
	case v.IsNil():
		return nil, nil
	case typ.Kind() == reflect.Slice:
		list := make([]any, v.Len())
		for i := range list {
			form, err := t.formOf(v.Index(i), depth+1)
			if err != nil {
				return nil, err
			}
			list[i] = form
		}
		return list, nil
	}
	entries := make(map[string]any, v.Len())
	for _, key := range slices.Sorted(func(yield func(string) bool) {
		for _, k := range v.MapKeys() {
			if !yield(k.String()) {
				return
			}
		}
	}) {
		if !utf8.ValidString(key) {
			return nil, fmt.Errorf("%w: a map key is not valid UTF-8", ErrNotEncodable)
		}
		form, err := t.formOf(v.MapIndex(reflect.ValueOf(key)), depth+1)
		if err != nil {
			return nil, err
		}
		entries[key] = form
	}
	return entries, nil
}

// Decode implements [Codec].
func (t types) Decode(data json.RawMessage) (any, error) {
	return t.value(data, 0)
}

// The method `value` is the reverse of the method `form`: it decodes a value from its JSON form.
func (t types) value(data json.RawMessage, depth int) (any, error) {
	data = bytes.TrimSpace(data)
	if len(data) == 0 {
		return nil, fmt.Errorf("%w: no value", ErrBadValue)
	}
	switch data[0] {
	case '{':
		name, value, err := untag(data)
		switch {
		case err != nil:
			return nil, fmt.Errorf("%w: %w", ErrBadValue, err)
		case name == nil:
			return t.valueOf(reflect.TypeFor[map[string]any](), data, depth)
		case *name == "error":
			var form errorForm
			if err := json.Unmarshal(value, &form); err != nil {
				return nil, fmt.Errorf("%w: %w", ErrBadValue, err)
			}
			return t.error(&form, depth), nil
		}
		typ, ok := t.typeOf(*name)
		if !ok {
			return nil, fmt.Errorf("%w: type %s is not registered", ErrBadValue, quoteID(*name))
		}
		return t.taggedValue(typ, value, depth)
	case '[':
		return t.valueOf(reflect.TypeFor[[]any](), data, depth)
	}
	var v any
	if err := json.Unmarshal(data, &v); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBadValue, err)
	}
	return v, nil
}

// untag returns the type name and the value of a tagged object. name is nil if the object is not tagged. Only the exact key $type is a tag. When
// package json decodes into a struct, it also accepts $TYPE. So untag looks up the key in a map, too.
func untag(data json.RawMessage) (name *string, value json.RawMessage, err error) {
	var seems struct {
		Type json.RawMessage `json:"$type"`
	}
	if err := json.Unmarshal(data, &seems); err != nil || seems.Type == nil {
		return nil, nil, err
	}
	var exact map[string]json.RawMessage
	if err := json.Unmarshal(data, &exact); err != nil {
		return nil, nil, err
	}
	if text, ok := exact[typeKey]; ok {
		err = json.Unmarshal(text, &name)
	}
	return name, exact["value"], err
}

// taggedValue decodes the value in a tag. The method `form` tags a string that is not valid UTF-8, and writes it in base64. It writes a float that
// JSON cannot express, such as NaN, as text.
func (t types) taggedValue(typ reflect.Type, data json.RawMessage, depth int) (any, error) {
	var text string
	switch typ {
	case leaves["string"]:
		var b []byte
		if err := json.Unmarshal(data, &b); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrBadValue, err)
		}
		return string(b), nil
	case leaves["float64"], leaves["float32"]:
		if json.Unmarshal(data, &text) == nil {
			f, err := strconv.ParseFloat(text, typ.Bits())
			if err != nil {
				return nil, fmt.Errorf("%w: %w", ErrBadValue, err)
			}
			return reflect.ValueOf(f).Convert(typ).Interface(), nil
		}
	}
	return t.valueOf(typ, data, depth)
}

// valueOf is the reverse of formOf: it decodes a value of a known type.
func (t types) valueOf(typ reflect.Type, data json.RawMessage, depth int) (any, error) {
	if depth > maxValueDepth {
		return nil, fmt.Errorf("%w: nested deeper than %d", ErrBadValue, maxValueDepth)
	}
	isList := typ.Kind() == reflect.Slice && typ.Name() == "" && typ != leaves["bytes"]
	isMap := typ.Kind() == reflect.Map && typ.Name() == ""
	switch {
	case typ == leaves["outputs"]:
		m, err := t.valueOf(reflect.TypeFor[map[string]any](), data, depth+1)
		entries, _ := m.(map[string]any)
		return Outputs(entries), err
	case typ == leaves["verdict"]:
		var parts struct {
			Status RunStatus       `json:"status"`
			Output json.RawMessage `json:"output"`
		}
		if err := json.Unmarshal(data, &parts); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrBadValue, err)
		}
		output, err := t.value(parts.Output, depth+1)
		return EndVerdict{Status: parts.Status, Output: output}, err
	case isList || isMap:
		v := reflect.New(typ).Elem()
		if string(bytes.TrimSpace(data)) == "null" {
			return v.Interface(), nil
		}
		var err error
		if isList {
			err = t.fillList(v, data, depth)
		} else {
			err = t.fillMap(v, data, depth)
		}
		return v.Interface(), err
	}
	v := reflect.New(typ)
	if err := json.Unmarshal(data, v.Interface()); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBadValue, err)
	}
	return v.Elem().Interface(), nil
}

func (t types) fillList(v reflect.Value, data json.RawMessage, depth int) error {
	var parts []json.RawMessage
	if err := json.Unmarshal(data, &parts); err != nil {
		return fmt.Errorf("%w: %w", ErrBadValue, err)
	}
	v.Set(reflect.MakeSlice(v.Type(), len(parts), len(parts)))
	for i, part := range parts {
		if err := t.fill(v.Index(i), part, depth); err != nil {
			return err
		}
	}
	return nil
}

func (t types) fillMap(v reflect.Value, data json.RawMessage, depth int) error {
	var parts map[string]json.RawMessage
	if err := json.Unmarshal(data, &parts); err != nil {
		return fmt.Errorf("%w: %w", ErrBadValue, err)
	}
	v.Set(reflect.MakeMapWithSize(v.Type(), len(parts)))
	elem := reflect.New(v.Type().Elem()).Elem()
	for key, part := range parts {
		elem.SetZero()
		if err := t.fill(elem, part, depth); err != nil {
			return err
		}
		v.SetMapIndex(reflect.ValueOf(key), elem)
	}
	return nil
}

// fill decodes data, and sets v, an element of a list or map, to the result.
func (t types) fill(v reflect.Value, data json.RawMessage, depth int) error {
	var x any
	var err error
	switch v.Type() {
	case leaves["any"], leaves["string"], leaves["float64"]: // the method `form` tags some values of these types
		x, err = t.value(data, depth+1)
	case leaves["float32"]:
		x, err = t.taggedValue(v.Type(), data, depth+1)
	default:
		x, err = t.valueOf(v.Type(), data, depth+1)
	}
	if err != nil || x == nil {
		return err
	}
	if rv := reflect.ValueOf(x); rv.Type().AssignableTo(v.Type()) {
		v.Set(rv)
		return nil
	}
	return fmt.Errorf("%w: a value of type %T in a list or map of %v", ErrBadValue, x, v.Type())
}

// encodeValue encodes a value with codec, which may be user code. If codec is nil, encodeValue uses a nil Types.
func encodeValue(codec Codec, v any) (data json.RawMessage, err error) {
	if codec == nil {
		codec = Types(nil)
	}
	err = foreign.Contain(func() (err error) {
		data, err = codec.Encode(v)
		return err
	}, func(v any) error { return fmt.Errorf("%w: %w", ErrNotEncodable, newPanicError(v)) })
	if err == nil && !json.Valid(data) {
		err = fmt.Errorf("%w: the codec has not written valid JSON", ErrNotEncodable)
	}
	return data, bounded(err)
}

// plainValue encodes a value for display. If the host has its own codec, which may hide values, plainValue uses this codec. Otherwise it encodes the
// value as plain JSON. An error, or a value without a JSON form, such as NaN, gets the form that a store would contain.
func plainValue(codec Codec, v any) (data json.RawMessage, err error) {
	switch codec.(type) {
	case nil, Types, types:
		_, isError := v.(error)
		err := contain(func() (err error) {
			data, err = json.Marshal(v)
			return err
		})
		if err == nil && !isError {
			return data, nil
		}
	}
	return encodeValue(codec, v)
}

// decodeValue is the reverse of encodeValue: it decodes a value with codec.
func decodeValue(codec Codec, data json.RawMessage) (v any, err error) {
	if codec == nil {
		codec = Types(nil)
	}
	err = contain(func() (err error) {
		v, err = codec.Decode(data)
		return err
	})
	return v, bounded(err)
}
