package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"sync"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/schema"
)

// maxText is the maximum length in bytes of a text in a step. A step fails if a file, a response or an expanded template is longer. If a
// command writes a longer output, the step keeps the last maxText bytes.
const maxText = 1 << 20

// The type `kind` describes a kind of steps.
type kind struct {
	name     string
	step     kahn.StepFunc
	verbatim bool // whether the texts of its config are used as written, and not as templates
	// check looks in a text of the config for a defect that the schema cannot find. It returns the field, the offset in the text (-1 if it is
	// not known), and a message ("" if there is no defect). check may be nil.
	check    func(config any) (field string, offset int, message string)
	empty    any                  // the output in a dry run; if it is an object, the output of every run has the same fields
	open     bool                 // whether the output depends on the config, so that its fields are not known
	contract func() kahn.Contract // the schema of the kind's config
	schema   json.RawMessage
	object
}

// kindSchemas contains the JSON Schemas of the configs, by kind. Their descriptions are the documentation of the kinds.
//
//go:embed kinds.json
var kindSchemas []byte

// kinds contains the kinds of steps that a definition may name, by name.
var kinds = describe(
	kind{name: "exec", step: execute, empty: map[string]any{"stdout": "", "stderr": "", "cut": false}},
	kind{name: "http", step: request, empty: map[string]any{"status": 200, "headers": map[string]any{}, "body": nil}},
	kind{name: "read", step: read},
	kind{name: "write", step: write},
	kind{name: "checksum", step: checksum},
	kind{name: "sleep", step: sleep},
	kind{name: "template", step: expanded},
	kind{name: "jq", step: jq, verbatim: true, open: true, check: checkQuery},
	kind{name: "fail", step: fail},
)

// object holds the parts of a kind's schema that this program uses without the schema compiler.
type object struct {
	Description string
	Properties  map[string]struct{ Title string }
}

// The function `describe` adds the schemas to the kinds. describe panics when the program starts if an embedded schema has a defect.
func describe(list ...kind) map[string]kind {
	var schemas map[string]json.RawMessage
	if err := json.Unmarshal(kindSchemas, &schemas); err != nil {
		panic(err)
	}
	all := make(map[string]kind, len(list))
	for _, k := range list {
		k.schema = schemas[k.name]
		if k.empty == nil {
			k.empty = ""
		}
		if err := json.Unmarshal(k.schema, &k.object); err != nil {
			panic(err)
		}
		text := k.schema
		k.contract = sync.OnceValue(func() kahn.Contract { return compile(text) })
		all[k.name] = k
	}
	return all
}

// The function `compile` compiles a schema that is embedded in the program.
func compile(text []byte) kahn.Contract {
	c, err := schema.Compiler{}.Compile(text)
	if err != nil {
		panic(err)
	}
	return c
}

// The function `steps` returns the step function of each kind. The step of an end node does nothing.
func steps() kahn.Mux {
	mux := kahn.Mux{kahn.KindEnd: func(context.Context, *kahn.Step) (any, error) { return nil, nil }}
	for name, k := range kinds {
		mux[name] = k.step
	}
	return mux
}
