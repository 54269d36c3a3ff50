package typed

import (
	"reflect"
	"slices"
	"sync"

	"github.com/seed-c794f7ef/kahn"
)

// typeList lists the types of a pipeline's values, each once: the types that kahn does not know.
type typeList struct {
	list   []reflect.Type
	few    [8]reflect.Type       // memory for the list
	all    map[reflect.Type]bool // the types of the list, if there are more than few can hold
	unsure bool                  // whether two types may have the same name

	once  sync.Once
	named kahn.Types
}

// register makes a type known to the codec of the pipeline's runs.
func register[T any](build *building) {
	build.types.add(reflect.TypeFor[T]())
}

// add adds a type. For a list, or a map with string keys, it adds the type of the elements, since kahn.Types then knows the list or map, too.
func (x *typeList) add(t reflect.Type) {
	for t.Name() == "" && (t.Kind() == reflect.Slice || t.Kind() == reflect.Map && t.Key() == reflect.TypeFor[string]()) {
		t = t.Elem()
	}
	if x.all[t] || x.all == nil && slices.Contains(x.list, t) {
		return
	}
	if t.Kind() == reflect.Interface || t.PkgPath() == "" && t.Name() != "" {
		return // values of an interface have types of their own, and kahn knows Go's predeclared types, so there is nothing to register
	}
	if x.list == nil {
		x.list = x.few[:0]
	}
	if len(x.list) == len(x.few) {
		x.all, x.unsure = map[reflect.Type]bool{}, true
		for _, t := range x.list {
			x.all[t] = true
		}
	}
	if x.all != nil {
		x.all[t] = true
	}
	x.unsure = x.unsure || slices.ContainsFunc(x.list, func(other reflect.Type) bool { return other.String() == t.String() })
	x.list = append(x.list, t)
}

// check reports types with the same full name.
func (x *typeList) check(build *building) {
	if !x.unsure {
		return
	}
	if types := x.Types(); len(types) == len(x.list) {
		return
	}
	names := map[string]bool{}
	for _, t := range x.list {
		name := typeName(t)
		if names[name] {
			build.report("%w: two types of values have the name %q, so a snapshot could not distinguish them: declare the types outside of functions, under different names", kahn.ErrType, name)
		}
		names[name] = true
	}
}

// Types returns the zero values of the types, by the types' full names. Most pipelines run without a store and never need them.
func (x *typeList) Types() map[string]any {
	x.once.Do(func() {
		x.named = make(kahn.Types, len(x.list))
		for _, t := range x.list {
			x.named[typeName(t)] = reflect.Zero(t).Interface()
		}
	})
	return x.named
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
