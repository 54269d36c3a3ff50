package typed

import (
	"reflect"

	"github.com/seed-c794f7ef/kahn"
)

// register makes a type known to the codec of the pipeline's runs.
func register[T any](build *building) {
	build.registerType(reflect.TypeFor[T]())
}

// registerType registers a type under its name. For a list, or a map with string keys, it registers the type of the elements, since kahn.Types then
// knows the list or map, too.
func (x *building) registerType(t reflect.Type) {
	if t.PkgPath() == "" && t.Name() != "" || x.seen[t] {
		return // kahn knows Go's predeclared types
	}
	if x.seen == nil {
		x.seen = map[reflect.Type]bool{}
	}
	x.seen[t] = true
	for t.Name() == "" && (t.Kind() == reflect.Slice || t.Kind() == reflect.Map && t.Key() == reflect.TypeFor[string]()) {
		t = t.Elem()
	}
	if t.Kind() == reflect.Interface || t.PkgPath() == "" && t.Name() != "" {
		return // values of an interface have types of their own, and kahn knows Go's predeclared types, so there is nothing to register
	}
	name := typeName(t)
	if other, is := x.types[name]; is && reflect.TypeOf(other) != t {
		x.report("%w: two types of values have the name %q, so a snapshot could not distinguish them: declare the types outside of functions, under different names", kahn.ErrType, name)
		return
	}
	x.types[name] = reflect.Zero(t).Interface()
}

// typeName returns the full name of a type.
func typeName(t reflect.Type) string {
	switch {
	case t.Name() != "":
		return t.PkgPath() + "." + t.Name()
	case t.Kind() == reflect.Pointer:
		return "*" + typeName(t.Elem())
	}
	return t.String()
}
