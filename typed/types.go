package typed

import (
	"reflect"

	"github.com/seed-c794f7ef/kahn"
)

// register makes the values of a type known to the codec of the pipeline's runs.
func register[T any](build *building) {
	build.registerType(reflect.TypeFor[T]())
}

// registerType registers a type under its name. Lists, and maps by string, have names of their own in kahn.Types, if their elements have.
func (x *building) registerType(t reflect.Type) {
	for t.Name() == "" && (t.Kind() == reflect.Slice || t.Kind() == reflect.Map && t.Key() == reflect.TypeFor[string]()) {
		t = t.Elem()
	}
	if t.Kind() == reflect.Interface || t.PkgPath() == "" && t.Name() != "" {
		return // values of an interface have other types, and kahn knows the types of the language
	}
	name := typeName(t)
	if other, is := x.types[name]; is && reflect.TypeOf(other) != t {
		x.report("%w: two types of values have the name %q, which a snapshot could not tell apart: declare them outside of functions, under names of their own", kahn.ErrType, name)
		return
	}
	x.types[name] = reflect.Zero(t).Interface()
}

// typeName is the full name of a type.
func typeName(t reflect.Type) string {
	switch {
	case t.Name() != "":
		return t.PkgPath() + "." + t.Name()
	case t.Kind() == reflect.Pointer:
		return "*" + typeName(t.Elem())
	}
	return t.String()
}
