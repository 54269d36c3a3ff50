package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// pairs is a flag that may be repeated. Its values have the form name=text or name:=JSON.
type pairs map[string]any

// String implements flag.Value.
func (p pairs) String() string { return "" }

// Set implements flag.Value.
func (p pairs) Set(s string) error {
	name, text, ok := strings.Cut(s, "=")
	name, typed := strings.CutSuffix(name, ":")
	if !ok || name == "" {
		return errors.New("expected name=value")
	}
	if _, twice := p[name]; twice {
		return fmt.Errorf("%s is given twice", name)
	}
	if !typed {
		p[name] = text
		return nil
	}
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil || d.More() {
		return fmt.Errorf("%q is not JSON; write %s=%s for a text", text, name, text)
	}
	p[name] = plain(v)
	return nil
}
