package main

import (
	"context"
	_ "embed"

	"github.com/seed-c794f7ef/kahn/definition"
)

var schemaCommand = command{
	name: "schema", summary: "print the JSON Schema of definitions, for editors",
	text: `
The schema has the kinds of steps, and what the config of each takes. An editor that knows it completes and checks while you type. With the
language server for YAML, the first line of a definition names the file:

    # yaml-language-server: $schema=kahn.schema.json

The exit code is 0.`,
	register: func(f *flags) action {
		tests := f.Bool("test", false, "print the schema of the files with tests")
		return func(_ context.Context, t *terminal, _ []string) int {
			text, err := definitionSchema()
			if *tests {
				text, err = testSchema, nil
			}
			if err != nil {
				return t.refuse(err)
			}
			_, _ = t.out.Write(text) // the output keeps the error
			return exitOK
		}
	},
}

// definitionSchema is the schema of package definition with the kinds of this command: a node has one of them, and its config is what
// the kind takes.
func definitionSchema() ([]byte, error) {
	all := map[string]definition.Kind{}
	for name, k := range kinds {
		all[name] = definition.Kind{Description: k.Description, Config: k.schema}
	}
	return definition.SchemaWith(all)
}
