package inspector

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A param is a parameter of a query. Ids of runs and paths of nodes are query parameters, not parts of the URL's path, because they may contain
// slashes and dots, which routers normalize.
type param struct {
	Name     string
	Required bool
	Many     bool     // the parameter may occur several times
	Choices  []string // the allowed values; nil: any text
	Number   bool     // the value is a whole number from Least to Most; if the parameter is absent, the value is Default
	Least    int
	Most     int
	Default  int
	Note     string // for openapi.json
}

const (
	maxText  = 256 << 10 // maximum size of a parameter's value, in bytes
	maxMany  = 1_000     // maximum number of values of a parameter
	maxBody  = 64 << 10  // maximum size of a request's body, in bytes
	jsonType = "application/json"
)

// The type `query` contains the values of a request's parameters, by name: `numbers` for a param with Number, `texts` for any other.
type query struct {
	texts   map[string][]string
	numbers map[string]int
}

func (q query) text(name string) string {
	if list := q.texts[name]; len(list) > 0 {
		return list[0]
	}
	return ""
}

// parseQuery reads a query according to a route's parameters. It returns an error if the query has a parameter that the route does not have, if a
// required parameter is missing, or if a value is not allowed.
func parseQuery(params []param, raw string) (query, error) {
	q := query{texts: map[string][]string{}, numbers: map[string]int{}}
	all, err := url.ParseQuery(raw)
	if err != nil {
		return q, badQuery("the query cannot be read")
	}
	for name := range all {
		if !slices.ContainsFunc(params, func(p param) bool { return p.Name == name }) {
			return q, badQuery("there is no parameter %.60q", name)
		}
	}
	for _, p := range params {
		list := all[p.Name]
		switch {
		case len(list) == 0 && p.Required:
			return q, badQuery("the parameter %s is missing", p.Name)
		case len(list) > 1 && !p.Many:
			return q, badQuery("the parameter %s is given more than once", p.Name)
		case len(list) > maxMany:
			return q, badQuery("the parameter %s is given more than %d times", p.Name, maxMany)
		}
		for _, text := range list {
			switch {
			case len(text) > maxText || !utf8.ValidString(text):
				return q, badQuery("the parameter %s is longer than %d bytes, or not UTF-8", p.Name, maxText)
			case p.Required && text == "":
				return q, badQuery("the parameter %s is empty", p.Name)
			case p.Choices != nil && !slices.Contains(p.Choices, text):
				f := badQuery("the parameter %s cannot be %.60q", p.Name, text)
				f.Choices = p.Choices
				return q, f
			}
		}
		if !p.Number {
			q.texts[p.Name] = list
			continue
		}
		n := p.Default
		if len(list) > 0 {
			if n, err = strconv.Atoi(list[0]); err != nil || n < p.Least || n > p.Most {
				return q, badQuery("the parameter %s is not a whole number from %d to %d", p.Name, p.Least, p.Most)
			}
		}
		q.numbers[p.Name] = n
	}
	return q, nil
}

func badQuery(format string, args ...any) *fault {
	return &fault{Status: http.StatusBadRequest, Code: "bad_query", Message: fmt.Sprintf(format, args...)}
}

// parseBody decodes the body of a request, and stores the result in the variable to which `into` points. The body must be one JSON object without
// unknown members.
func parseBody(data []byte, into any) error {
	if !utf8.Valid(data) {
		return badBody("the body is not UTF-8")
	}
	if trimmed := bytes.TrimLeft(data, " \t\r\n"); len(trimmed) == 0 || trimmed[0] != '{' {
		return badBody("the body is not a JSON object")
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return badBody("the body cannot be read: %.200s", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return badBody("the body has more than one value")
	}
	return nil
}

// parseValue decodes a JSON value. Its numbers become float64. It returns an error if the value contains an integer that a float64 cannot
// represent exactly.
func parseValue(data json.RawMessage) (value any, err error) {
	d := json.NewDecoder(bytes.NewReader(data))
	for d.UseNumber(); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, badBody("the value cannot be read")
		}
		if number, ok := token.(json.Number); ok && !exact(number) {
			return nil, badBody("the number %.60s would be changed: send it as a string", number)
		}
	}
	if err := json.Unmarshal(data, &value); err != nil {
		return nil, badBody("the value cannot be read")
	}
	return value, nil
}

// The function `exact` reports whether a float64 can hold a number. An integer must keep its exact value. A number with a fraction or an exponent
// may be rounded.
func exact(number json.Number) bool {
	f, err := number.Float64()
	if err != nil || strings.ContainsAny(number.String(), ".eE") {
		return err == nil
	}
	return strconv.FormatFloat(f, 'f', -1, 64) == number.String() || number == "-0"
}

func badBody(format string, args ...any) *fault {
	return &fault{Status: http.StatusBadRequest, Code: "bad_body", Message: fmt.Sprintf(format, args...)}
}
