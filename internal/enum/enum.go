// Package enum names the values of small enums: each has a table of its names, and its methods String, MarshalText and UnmarshalText are
// one call of it.
package enum

import (
	"errors"
	"fmt"
	"reflect"
)

// ErrBadValue is the error for a value, or a name, that is none of an enum's.
var ErrBadValue = errors.New("bad value")

// Table is an enum's names, by value.
type Table[E ~uint8] struct {
	noun  string
	names []string
}

// Of makes the table of an enum whose values count from 0. The noun says in errors what a value is.
func Of[E ~uint8](noun string, names ...string) Table[E] { return Table[E]{noun, names} }

// Names are the names. The caller must not change them.
func (t *Table[E]) Names() []string { return t.names }

// Name returns the name of a value, and the type with the number if it has none.
func (t *Table[E]) Name(e E) string {
	if int(e) < len(t.names) {
		return t.names[e]
	}
	return fmt.Sprintf("%s(%d)", reflect.TypeFor[E]().Name(), uint8(e))
}

// Text encodes a value as its name.
func (t *Table[E]) Text(e E) ([]byte, error) { return Text(t.names, int(e), t.noun) }

// Parse decodes a name.
func (t *Table[E]) Parse(e *E, text []byte) error {
	for i, name := range t.names {
		if name == string(text) {
			*e = E(i)
			return nil
		}
	}
	return fmt.Errorf("%w: %s %.40q", ErrBadValue, t.noun, text)
}

// Text encodes value i of the enum with these names. what says in an error what the enum is.
func Text(names []string, i int, what string) ([]byte, error) {
	if i < len(names) {
		return []byte(names[i]), nil
	}
	return nil, fmt.Errorf("%w: %s %d", ErrBadValue, what, i)
}

// Names returns the names of the values of an enum, in their order.
func Names[E interface {
	~uint8
	MarshalText() ([]byte, error)
}]() (names []string) {
	for value := E(0); ; value++ {
		text, err := value.MarshalText()
		if err != nil {
			return names
		}
		names = append(names, string(text))
	}
}
