// Package schema compiles JSON Schemas into contracts. It provides the compiler for graphs with schemas:
//
//	g.Schemas = schema.Compiler{}
//
//	kahn.Node{ID: "store", OutputSchema: map[string]any{"type": "object", "required": []string{"id"}}}
//
// A schema is JSON text (a string, a []byte or a [json.RawMessage]), or any other value whose JSON form is a JSON Schema. Drafts 4, 6, 7, 2019-09 and
// 2020-12 are supported; the default is 2020-12. In drafts 4, 6 and 7, the keyword "format" is checked. In the later drafts it is only an annotation:
// values are not checked against it. Patterns have the syntax of package regexp.
//
// A compiled schema checks the JSON form of a value, as package json encodes it. Integers are exact. A number of more than 1,000 digits, or with an
// exponent above 1,000, is a violation. A value without a JSON form is a violation.
//
// # Limits
//
// Compile loads no documents. If a $ref or $schema refers to another document, the error matches [ErrRemote]; a reference to a standard metaschema
// is allowed. A schema may have 200 levels, 20,000 parts, and 10,000 schemas that apply to the same value, nested at most 50 deep. The error for a
// larger schema matches [ErrLimit]. The error for a pattern of more than 1,000 bytes is an [*Error]. A value may have 1,000 levels and ten million
// parts, and checking it may take a million applications of schemas; a value beyond these bounds is a violation. An application is counted when
// it is complete, so the last bound is only approximate. For example, recursive alternatives below a "not" are not counted if they fail at once.
package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/seed-c794f7ef/kahn"
)

// These are the limits that the package comment describes.
const (
	maxSchemaDepth  = 200
	maxSchemaParts  = 20_000
	maxPattern      = 1000
	maxInPlace      = 10_000
	maxInPlaceDepth = 50
	maxDepth        = 1000
	maxParts        = 10_000_000
	maxApplications = 1_000_000
	maxDigits       = 1000
	maxViolations   = 100    // the maximum number of violations in a report
	maxLeaves       = 10_000 // the number of violations after which flatten visits no more errors
)

var (
	// ErrRemote is returned if a schema refers to a document outside the schema.
	ErrRemote = errors.New("remote reference")
	// ErrLimit is returned if a schema is too large.
	ErrLimit = errors.New("schema limit exceeded")
)

// Error lists the parts of a schema that violate its metaschema.
type Error struct {
	Violations []kahn.Violation // with paths into the schema
}

// Error lists the violations.
func (e *Error) Error() string {
	var parts []string
	for _, v := range e.Violations {
		parts = append(parts, v.String())
	}
	return strings.Join(parts, "; ")
}

// Compiler compiles JSON Schemas. It can be the Schemas of a [kahn.Graph].
type Compiler struct{}

// Compile compiles a schema into a contract. The error is an [*Error], matches [ErrRemote] or [ErrLimit], or says why the schema is not JSON.
func (Compiler) Compile(schema any) (kahn.Contract, error) {
	doc, err := document(schema)
	if err != nil {
		return nil, err
	}
	first, err := compile(doc)
	if err != nil {
		return nil, err
	}
	c := &contract{}
	c.pool.New = func() any {
		j, err := compile(doc)
		if err != nil { // cannot happen, since the schema was compiled above
			panic(err)
		}
		return j
	}
	c.pool.Put(first)
	return c, nil
}

// The function `document` decodes a schema. It returns an error that matches ErrLimit if the schema is nested too deeply, has too many parts, or
// contains a bad number.
func document(schema any) (any, error) {
	var text []byte
	switch s := schema.(type) {
	case string:
		text = []byte(s)
	case []byte:
		text = s
	case json.RawMessage:
		text = s
	default:
		if err := measure(schema, maxSchemaDepth, maxSchemaParts); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrLimit, err)
		}
		var err error
		if text, err = json.Marshal(schema); err != nil {
			return nil, fmt.Errorf("the schema has no JSON form: %w", err)
		}
	}
	doc, err := decode(text)
	if err != nil {
		return nil, fmt.Errorf("the schema is not JSON: %w", err)
	}
	if err := measure(doc, maxSchemaDepth, maxSchemaParts); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrLimit, err)
	}
	if v, bad := badNumber(doc, nil); bad {
		return nil, fmt.Errorf("%w: %v", ErrLimit, v)
	}
	return doc, nil
}

func decode(text []byte) (v any, err error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errors.New("there is more after the value")
	}
	return v, nil
}

const location = "contract:///schema.json"

// The type `judge` is a compiled schema that counts its applications. Only one goroutine at a time may use it.
type judge struct {
	compiler *jsonschema.Compiler
	schema   *jsonschema.Schema
	spent    int
}

func compile(doc any) (*judge, error) {
	c := jsonschema.NewCompiler()
	j := &judge{compiler: c}
	c.UseLoader(nothing{})
	c.UseRegexpEngine(pattern)
	c.RegisterVocabulary(&jsonschema.Vocabulary{
		URL:     "contract:///count",
		Compile: func(*jsonschema.CompilerContext, map[string]any) (jsonschema.SchemaExt, error) { return j, nil },
	})
	c.AssertVocabs()
	if err := c.AddResource(location, doc); err != nil {
		return nil, explain(err)
	}
	var err error
	if j.schema, err = c.Compile(location); err != nil {
		return nil, explain(err)
	}
	return j, checkReach(j.schema)
}

// The function `explain` turns an error of the JSON Schema library into an error of this package.
func explain(err error) error {
	var load *jsonschema.LoadURLError
	if errors.As(err, &load) {
		return fmt.Errorf("%w: %.200q", ErrRemote, load.URL)
	}
	if errors.Is(err, ErrLimit) {
		return err
	}
	var invalid *jsonschema.SchemaValidationError
	if errors.As(err, &invalid) {
		var found *jsonschema.ValidationError
		if errors.As(invalid.Err, &found) {
			return &Error{Violations: flatten(found, nil)}
		}
	}
	return &Error{Violations: []kahn.Violation{{Message: strings.ReplaceAll(err.Error(), location, "")}}}
}

// The type `nothing` is a loader that refuses every reference.
type nothing struct{}

func (nothing) Load(url string) (any, error) { return nil, ErrRemote }

// errCostly is the panic value that ends a validation with too many applications.
var errCostly = fmt.Errorf("checking the value takes more than %d applications of schemas", maxApplications)

// Validate implements jsonschema.SchemaExt. The validator calls it after each application of a schema to a value.
func (j *judge) Validate(*jsonschema.ValidatorContext, any) {
	if j.spent++; j.spent > maxApplications {
		panic(errCostly)
	}
}

func (j *judge) check(v any) (err error) {
	j.spent = 0
	defer func() {
		switch p := recover(); p {
		case nil:
		case errCostly:
			err = errCostly
		default:
			panic(p)
		}
	}()
	return j.schema.Validate(v)
}

// The method `fields` returns the names of the fields that a part of the schema lists, sorted. The part is at the given location.
func (j *judge) fields(location string) []string {
	s, err := j.compiler.Compile(location) // compiled already: the compiler looks it up
	if err != nil {
		return nil
	}
	return slices.Sorted(maps.Keys(s.Properties))
}

// contract implements kahn.Contract.
type contract struct{ pool sync.Pool }

func (c *contract) Check(value any) []kahn.Violation {
	if err := measure(value, maxDepth, maxParts); err != nil {
		return []kahn.Violation{{Message: err.Error()}}
	}
	text, err := json.Marshal(value)
	if err != nil {
		return []kahn.Violation{{Message: "the value has no JSON form: " + err.Error()}}
	}
	v, err := decode(text)
	if err != nil {
		return []kahn.Violation{{Message: "the value has no JSON form: " + err.Error()}}
	}
	if err := measure(v, maxDepth, maxParts); err != nil { // the first call of measure could not examine values with their own JSON encoding
		return []kahn.Violation{{Message: err.Error()}}
	}
	if bad, is := badNumber(v, nil); is {
		return []kahn.Violation{bad}
	}
	j := c.pool.Get().(*judge)
	defer c.pool.Put(j)
	err = j.check(v)
	var found *jsonschema.ValidationError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &found):
		return flatten(found, j)
	}
	return []kahn.Violation{{Message: err.Error()}}
}
