package typed

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/seed-c794f7ef/kahn"
)

// Root returns a root input of the pipeline. Each run gets the input from [kahn.Inputs]. Root may be called in any block, and repeatedly for the same
// name and type. A run does not begin if the input is missing, or if the host passes an input that the pipeline does not have. The error is then a
// [*kahn.InputError]. If an input has another type, the nodes that take it fail with an error that matches [kahn.ErrType].
//
// A value in one of JSON's types (a map, a list, a number, a text) is decoded into a T as by package json, since other programs pass inputs in that
// form. But an object with a member that T lacks counts as another type, so that a misspelt name is noticed. A T that is a map accepts all members,
// and a T with its own UnmarshalJSON decides which members it accepts.
func Root[T any](b *Block, name string) Val[T] {
	if b == nil {
		return Val[T]{}
	}
	f := b.in
	for f.outer != nil {
		f = f.outer.in
	}
	if f.build.over(name) {
		return Val[T]{}
	}
	register[T](f.build)
	if src := f.inputs[name]; src != nil {
		if _, same := src.zero.(*T); !same {
			here, there := fmt.Sprintf("%T", new(T)), fmt.Sprintf("%T", src.zero)
			f.build.report("input %q: %w: one Root gives it the type %s, and another Root gives it the type %s", name, kahn.ErrType, here[1:], there[1:])
		}
		return Val[T]{src: src}
	}
	src := f.input(name)
	src.more().zero = new(T)
	f.graph.Inputs = append(f.graph.Inputs, kahn.Input{Name: name})
	return Val[T]{src: src}
}

// Gate adds a gate: a node that waits for a signal from outside, and whose value is the value of the signal. The parameter "after" lists values that
// may help to answer. The gate opens for signals once the nodes of these values have completed. A [Root] in the list is an error, since it comes from
// no node. Options.Gate bounds the wait and declares the choices; see [kahn.Gate].
//
//	yes, no := typed.If(typed.Gate[bool](b, "approve?", draft))
//
// The value of a gate is decoded like the value of a [Root]; a bool may also be one of the words that kahn accepts as an approval or a rejection.
// An answer that is not a T is rejected, with an error that matches [kahn.ErrChoice] and [kahn.ErrType], and the gate keeps waiting.
func Gate[T any](b *Block, id string, after ...Handle) Val[T] {
	src := b.add(id, false)
	if src == nil {
		return Val[T]{}
	}
	register[T](b.in.build)
	src.text = reflect.TypeFor[T]().Kind() == reflect.String
	src.more().gate = &kahn.Gate{Check: func(v any) error {
		if _, is := v.(T); is {
			return nil
		}
		_, err := answer[T](nil, id, v)
		return err
	}}
	for i, h := range after {
		src.follow(h, i+1)
	}
	return Val[T]{src: src, view: answer[T]}
}

// The function answer reads the value of a gate.
func answer[T any](_ *kahn.Step, id string, v any) (t T, err error) {
	if yes, is := any(&t).(*bool); is {
		if word, is := v.(string); is {
			switch strings.ToLower(strings.TrimSpace(word)) {
			case "true", "yes", "approve", "approved":
				*yes = true
				return t, nil
			case "false", "no", "reject", "rejected":
				return t, nil
			}
		}
	}
	return plain[T](id, v)
}

// The function plain converts a value that is not a T to a T, through JSON. If this fails, the error is permanent, so the node is
// not retried.
func plain[T any](id string, v any) (T, error) {
	t, err := fromJSON[T](v)
	switch {
	case errors.Is(err, errNotJSON):
		return t, kahn.Permanent(fmt.Errorf("value of %q: %w: %T instead of %T", id, kahn.ErrType, v, t))
	case err != nil:
		return t, kahn.Permanent(fmt.Errorf("value of %q: %w: %T instead of %T: %w", id, kahn.ErrType, v, t, err))
	}
	return t, nil
}

// errNotJSON means that a value has none of the types that package json decodes into an any.
var errNotJSON = errors.New("not JSON")

// fromJSON decodes a T from a value of one of the types that package json decodes into an any. It returns an error if the value has another type,
// or a member that T lacks.
func fromJSON[T any](v any) (t T, err error) {
	switch v.(type) {
	case nil:
		return t, nil // null becomes the zero value of T
	case bool, string, float64, json.Number, json.RawMessage, map[string]any, []any:
	default:
		return t, errNotJSON
	}
	data, err := json.Marshal(v)
	if err != nil {
		return t, err
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&t); err != nil {
		var zero T
		return zero, err
	}
	return t, nil
}
