package store

import "encoding/json"

// Codec turns values into JSON and back. It is the interface of the same name in package kahn.
type Codec interface {
	Encode(value any) (json.RawMessage, error)
	Decode(data json.RawMessage) (any, error)
}

// wrapped returns the member of an object that has exactly the given members, all of them texts, as what a codec of this package has
// written. looks reports whether the data may not be written as it is, since it would be taken for that.
func wrapped(data json.RawMessage, mark string, members ...string) (texts map[string]string, looks bool) {
	if len(data) == 0 || data[0] != '{' {
		return nil, false
	}
	var object map[string]json.RawMessage
	if json.Unmarshal(data, &object) != nil || object[mark] == nil {
		return nil, false
	}
	texts = map[string]string{}
	for _, name := range append(members, mark) {
		var text string
		if json.Unmarshal(object[name], &text) != nil {
			return nil, true
		}
		texts[name] = text
	}
	if len(object) != len(texts) {
		return nil, true
	}
	return texts, true
}
