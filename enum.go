package kahn

import "fmt"

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
