package inspector

import (
	"bytes"
	"encoding"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

var writing = flag.Bool("write", false, "write openapi.json anew")

// object is a JSON object of the description.
type object = map[string]any

// describe builds the description of the endpoints from the handler's table.
func describe() object {
	d := describer{schemas: object{}}
	paths := object{}
	for i := range routes {
		x := &routes[i]
		item, _ := paths["/"+x.path].(object)
		if item == nil {
			item = object{}
			paths["/"+x.path] = item
		}
		item[strings.ToLower(x.method)] = d.operation(x)
	}
	return object{
		"openapi": "3.1.0",
		"info": object{
			"title": "kahn inspector", "version": "1",
			"description": "The runs of a kahn.Runner. All paths are relative to where the handler is mounted. A POST needs the Content-Type application/json, an Idempotency-Key, and an Origin of this site.",
		},
		"paths":      paths,
		"components": object{"schemas": d.schemas},
	}
}

type describer struct{ schemas object }

func (d *describer) operation(x *route) object {
	needs := []Action{View}
	if x.action != "" {
		needs = append(needs, x.action)
	}
	params := []object{}
	for _, p := range x.params {
		params = append(params, object{"name": p.Name, "in": "query", "required": p.Required, "description": p.Note, "schema": paramSchema(p)})
	}
	status, content := "200", object{x.media: object{"schema": object{"type": "string"}}}
	if x.reply != nil {
		content = object{jsonType: object{"schema": d.schema(reflect.TypeOf(x.reply))}}
	}
	op := object{"summary": x.summary, "x-actions": needs}
	if x.open {
		op["x-actions"] = []Action{}
	}
	if x.method == "POST" {
		status = "202"
	}
	if x.method == "POST" && !x.open {
		params = append(params, object{"name": "Idempotency-Key", "in": "header", "required": true, "description": "a request that is repeated with its key is answered, and not performed, again",
			"schema": object{"type": "string", "maxLength": maxKey}})
	}
	if x.method == "POST" {
		op["requestBody"] = object{"required": true, "content": object{jsonType: object{"schema": d.schema(reflect.TypeOf(x.body()).Elem())}}}
	}
	op["parameters"] = params
	op["responses"] = object{
		status:    object{"description": "the answer", "content": content},
		"default": object{"description": "a refusal", "content": object{jsonType: object{"schema": d.schema(reflect.TypeFor[faultReply]())}}},
	}
	return op
}

func paramSchema(p param) object {
	s := object{"type": "string", "maxLength": maxText}
	switch {
	case p.Number:
		s = object{"type": "integer", "minimum": p.Least, "maximum": p.Most, "default": p.Default}
	case p.Choices != nil:
		s = object{"type": "string", "enum": p.Choices}
	}
	if p.Many {
		s = object{"type": "array", "items": s, "maxItems": maxMany}
	}
	return s
}

// enums has the possible texts of types with few values.
var enums = map[reflect.Type][]string{
	reflect.TypeFor[kahn.Status]():         nodeStatuses,
	reflect.TypeFor[kahn.RunStatus]():      runStatuses,
	reflect.TypeFor[kahn.WhyKind]():        names(kahn.WhyEnded, kahn.WhySignal),
	reflect.TypeFor[store.RequestKind]():   names(store.KindSignal, store.KindRedrive),
	reflect.TypeFor[store.RequestStatus](): names(store.RequestWaiting, store.RequestRefused),
	reflect.TypeFor[Action]():              {string(View), string(ViewData), string(Signal), string(Cancel), string(Redrive), string(Start), string(Schedule)},
}

func (d *describer) schema(t reflect.Type) object {
	if list, ok := enums[t]; ok {
		return object{"type": "string", "enum": list}
	}
	switch {
	case t == reflect.TypeFor[json.RawMessage]():
		return object{}
	case t.Implements(reflect.TypeFor[encoding.TextMarshaler]()):
		return object{"type": "string"}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return d.schema(t.Elem())
	case reflect.String:
		return object{"type": "string"}
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.Int, reflect.Uint64:
		return object{"type": "integer"}
	case reflect.Float64:
		return object{"type": "number"}
	case reflect.Slice:
		return object{"type": "array", "items": d.schema(t.Elem())}
	case reflect.Map:
		return object{"type": "object", "additionalProperties": d.schema(t.Elem())}
	case reflect.Struct:
		if _, ok := d.schemas[t.Name()]; !ok {
			s := object{"type": "object", "additionalProperties": false}
			d.schemas[t.Name()] = s // stored before the fields are described, since they may refer to the type
			properties, required := object{}, []string{}
			d.fields(t, properties, &required)
			s["properties"], s["required"] = properties, required
		}
		return object{"$ref": "#/components/schemas/" + t.Name()}
	}
	panic(fmt.Sprint("no schema for ", t))
}

func (d *describer) fields(t reflect.Type, properties object, required *[]string) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous:
			d.fields(f.Type, properties, required)
			continue
		case name == "-":
			continue
		}
		properties[name] = d.schema(f.Type)
		if !strings.Contains(options, "omitempty") {
			*required = append(*required, name)
		}
	}
}

// The file openapi.json matches the table of endpoints and the types of their replies exactly.
func TestOpenAPI(t *testing.T) {
	want, err := json.MarshalIndent(describe(), "", "  ")
	require.NoError(t, err)
	want = append(want, '\n')
	if *writing {
		require.NoError(t, os.WriteFile("openapi.json", want, 0o644))
	}
	have, err := os.ReadFile("openapi.json")
	require.NoError(t, err)
	if !bytes.Equal(want, have) {
		t.Error("openapi.json differs from the handler: go test ./inspector -run TestOpenAPI -write")
	}
	for _, x := range routes {
		require.NotEmpty(t, x.summary, x.path)
		require.True(t, (x.reply == nil) != (x.media == ""), x.path)
	}
}

// conforms returns how a JSON value violates a schema of the description.
func conforms(all, schema object, v any, at string) []string {
	if ref, ok := schema["$ref"].(string); ok {
		name := ref[strings.LastIndexByte(ref, '/')+1:]
		schemas := all["components"].(object)["schemas"].(object)
		return conforms(all, schemas[name].(object), v, at)
	}
	bad := func(format string, args ...any) []string { return []string{at + ": " + fmt.Sprintf(format, args...)} }
	switch schema["type"] {
	case "string":
		text, ok := v.(string)
		if !ok {
			return bad("%v is not a string", v)
		}
		if list, ok := schema["enum"].([]any); ok && !slices.Contains(list, any(text)) {
			return bad("%q is none of %v", text, list)
		}
	case "boolean":
		if _, ok := v.(bool); !ok {
			return bad("%v is no boolean", v)
		}
	case "integer", "number":
		if _, ok := v.(float64); !ok {
			return bad("%v is not a number", v)
		}
	case "array":
		list, ok := v.([]any)
		if !ok {
			return bad("%v is no array", v)
		}
		var problems []string
		for i, x := range list {
			problems = append(problems, conforms(all, schema["items"].(object), x, fmt.Sprintf("%s[%d]", at, i))...)
		}
		return problems
	case "object":
		x, ok := v.(object)
		if !ok {
			return bad("%v is no object", v)
		}
		var problems []string
		required, _ := schema["required"].([]any)
		for _, name := range required {
			if _, ok := x[name.(string)]; !ok {
				problems = append(problems, bad("%s is missing", name)...)
			}
		}
		properties, _ := schema["properties"].(object)
		for name, value := range x {
			own, ok := properties[name].(object)
			if !ok {
				if own, ok = schema["additionalProperties"].(object); !ok {
					problems = append(problems, bad("%s is not described", name)...)
					continue
				}
			}
			problems = append(problems, conforms(all, own, value, at+"."+name)...)
		}
		return problems
	}
	return nil
}

// requireConforms checks a response against the file.
func requireConforms(t *testing.T, method, path string, body []byte) {
	t.Helper()
	var all, answer any
	require.NoError(t, json.Unmarshal(description, &all))
	require.NoError(t, json.Unmarshal(body, &answer), "%s", body)
	op := all.(object)["paths"].(object)["/"+path].(object)[strings.ToLower(method)].(object)
	status := map[string]string{"GET": "200", "POST": "202"}[method]
	content := op["responses"].(object)[status].(object)["content"].(object)
	schema := content[jsonType].(object)["schema"].(object)
	require.Empty(t, conforms(all.(object), schema, answer, path))
}
