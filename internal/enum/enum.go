// Package enum names the values of small enums. Each enum has a table of names. The enum's methods String, MarshalText and UnmarshalText call the
// table's methods Name, Text and Parse.
package enum

import (
	"errors"
	"fmt"
	"reflect"
)

// ErrBadValue is returned if a value or a name does not belong to an enum. Other packages also return it, for other values that they reject.
var ErrBadValue = errors.New("bad value")

// Table holds the names of an enum, by value.
type Table[E ~uint8] struct {
	noun  string
	names []string
}

// Of makes the table of an enum. The values of the enum are 0, 1, 2 and so on, in the order of the names. The parameter "noun" describes the values
// in errors.
func Of[E ~uint8](noun string, names ...string) Table[E] { return Table[E]{noun, names} }

// Names returns the names. The caller must not change them.
func (t *Table[E]) Names() []string { return t.names }

// Name returns the name of a value. For a value without a name it returns the type and the number, for example "Status(99)".
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

// Text returns names[i], which encodes value i of an enum. It returns an error if there is no names[i]. The parameter "what" describes the enum in
// this error.
func Text(names []string, i int, what string) ([]byte, error) {
	if i < len(names) {
		return []byte(names[i]), nil
	}
	return nil, fmt.Errorf("%w: %s %d", ErrBadValue, what, i)
}

// Names returns the names of the values of an enum, in order.
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
