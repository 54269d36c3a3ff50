package main

import (
	"context"
	_ "embed"
	"errors"

	"github.com/seed-c794f7ef/kahn/definition"
)

var schemaCommand = command{
	name: "schema", summary: "print the JSON Schema of definitions, for editors",
	text: `
The schema has the kinds of steps, and what the config of each takes. An editor that knows it completes and checks while you type. With the
language server for YAML, which VS Code has with the extension redhat.vscode-yaml, the first line of a definition names the file:

    # yaml-language-server: $schema=kahn.schema.json

In a definition in JSON the field "$schema" names it. "kahn help vet" says how problems get into a pull request.

With -kinds the schema has the kinds of a host, each with any config: see "kahn help vet".

The exit code is 0.`,
	register: func(f *flags) action {
		var by performer
		f.kinds(&by)
		tests := f.Bool("test", false, "print the schema of the files with tests")
		return func(_ context.Context, t *terminal, _ []string) int {
			if *tests && by.hosted != nil {
				return t.refuse(errors.New("-test and -kinds do not go together: the files with tests are the same for all kinds"))
			}
			text, err := by.schema()
			if *tests {
				text, err = testSchema, nil
			}
			if err != nil {
				return t.refuse(err)
			}
			_, _ = t.out.Write(text) // the command reports the error when it ends
			return exitOK
		}
	},
}

// The method `schema` returns the JSON Schema of definitions. The schema allows only the kinds of the performer, each with its config.
func (p performer) schema() ([]byte, error) {
	all := p.kinds()
	for name := range all {
		if k, ok := kinds[name]; ok && p.hosted == nil {
			all[name] = definition.Kind{Description: k.Description, Config: k.schema}
		}
	}
	return definition.SchemaWith(all)
}
