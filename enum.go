package kahn

import (
	"fmt"
	"strings"
)

func enumName(names []string, i int, typ string) string {
	if i < len(names) {
		return names[i]
	}
	return fmt.Sprintf("%s(%d)", typ, i)
}

func enumText(names []string, i int, what string) ([]byte, error) {
	if i < len(names) {
		return []byte(names[i]), nil
	}
	return nil, fmt.Errorf("%w: %s %d", ErrBadValue, what, i)
}

func enumParse[E ~uint8](e *E, names []string, text []byte, what string) error {
	for i, name := range names {
		if name == string(text) {
			*e = E(i)
			return nil
		}
	}
	return fmt.Errorf("%w: %s %.40q", ErrBadValue, what, text)
}

// enumField is a field that holds a value of an enum.
type enumField struct {
	name  string
	value int
	names []string
}

// wrong says what is wrong with the first field whose value is none of the enum's.
func wrong(fields ...enumField) (text string, ok bool) {
	for _, f := range fields {
		if f.value < len(f.names) {
			continue
		}
		choices := f.names
		if choices[0] == "" { // the default
			choices = choices[1:]
		}
		return fmt.Sprintf("%s %d is none of %s", f.name, f.value, strings.Join(choices, ", ")), true
	}
	return "", false
}
