package main

import (
	_ "embed"
	"encoding/json"
	"maps"
	"slices"
	"sync"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/schema"
)

// maxText bounds the texts that a step keeps of files, responses and the output of commands.
const maxText = 1 << 20

// kind is a kind of steps.
type kind struct {
	name     string
	step     kahn.StepFunc
	verbatim bool                   // the texts of its config are no templates
	check    func(config any) error // what its schema cannot tell; nil: nothing
	contract func() kahn.Contract   // its schema
	fields   func() map[string]any  // of its config
	schema   json.RawMessage
}

// kindSchemas has the JSON Schemas of the configs, by kind. Their descriptions are the documentation of the kinds.
//
//go:embed kinds.json
var kindSchemas []byte

// kinds are the steps that a definition may name, by kind.
var kinds = describe(
	kind{name: "exec", step: execute},
	kind{name: "http", step: request},
	kind{name: "read", step: read},
	kind{name: "write", step: write},
	kind{name: "checksum", step: checksum},
	kind{name: "sleep", step: sleep},
	kind{name: "template", step: expanded},
	kind{name: "jq", step: jq, verbatim: true, check: checkQuery},
	kind{name: "fail", step: fail},
)

// ownKinds are those that have a meaning of their own for the engine.
var ownKinds = []string{kahn.KindEnd, kahn.KindCondition, kahn.KindGate, kahn.KindTrigger}

// expects describes in words what a field of the config takes; "" if its schema says it well enough.
func (k kind) expects(field string) string {
	property, _ := k.fields()[field].(map[string]any)
	title, _ := property["title"].(string)
	return title
}

// describe adds the schemas to the kinds. They are part of the program: a defect in them is found by any test.
func describe(list ...kind) map[string]kind {
	var schemas map[string]json.RawMessage
	if err := json.Unmarshal(kindSchemas, &schemas); err != nil {
		panic(err)
	}
	all := make(map[string]kind, len(list))
	for _, k := range list {
		text := schemas[k.name]
		k.schema = text
		k.contract = sync.OnceValue(func() kahn.Contract { return compile(text) })
		k.fields = sync.OnceValue(func() map[string]any {
			var object struct{ Properties map[string]any }
			if err := json.Unmarshal(text, &object); err != nil {
				panic(err)
			}
			return object.Properties
		})
		all[k.name] = k
	}
	return all
}

// compile compiles a schema of the program.
func compile(text []byte) kahn.Contract {
	c, err := schema.Compiler{}.Compile(text)
	if err != nil {
		panic(err)
	}
	return c
}

// kindNames are all kinds that a node may have, sorted.
func kindNames() []string {
	return slices.Sorted(slices.Values(slices.Concat(slices.Collect(maps.Keys(kinds)), ownKinds)))
}

// steps has the step of each kind.
func steps() kahn.Mux {
	mux := kahn.Mux{}
	for name, k := range kinds {
		mux[name] = k.step
	}
	return mux
}
