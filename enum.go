package kahn

import (
	"fmt"
	"strings"
)

// enumField is a field that holds a value of an enum.
type enumField struct {
	name  string
	value int
	names []string
}

// wrong says what is wrong with the first field whose value is none of the enum's.
func wrong(fields ...enumField) (text string, ok bool) {
	for _, f := range fields {
		if f.value >= len(f.names) {
			return f.wrong(), true
		}
	}
	return "", false
}

// wrong names the field, its value and the choices.
func (f enumField) wrong() string {
	choices := f.names
	if choices[0] == "" { // the default
		choices = choices[1:]
	}
	return fmt.Sprintf("%s %d is none of %s", f.name, f.value, strings.Join(choices, ", "))
}
