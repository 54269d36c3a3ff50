// Package enum names the values of small enums: the methods String, MarshalText and UnmarshalText of each are one call.
package enum

import (
	"errors"
	"fmt"
)

// ErrBadValue is the error for a value, or a name, that is none of an enum's.
var ErrBadValue = errors.New("bad value")

// Name returns the name of value i, and the type with the number if it has none.
func Name(names []string, i int, typ string) string {
	if i < len(names) {
		return names[i]
	}
	return fmt.Sprintf("%s(%d)", typ, i)
}

// Text encodes value i as its name. what says in an error what the enum is.
func Text(names []string, i int, what string) ([]byte, error) {
	if i < len(names) {
		return []byte(names[i]), nil
	}
	return nil, fmt.Errorf("%w: %s %d", ErrBadValue, what, i)
}

// Parse decodes a name.
func Parse[E ~uint8](e *E, names []string, text []byte, what string) error {
	for i, name := range names {
		if name == string(text) {
			*e = E(i)
			return nil
		}
	}
	return fmt.Errorf("%w: %s %.40q", ErrBadValue, what, text)
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
