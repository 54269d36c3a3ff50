package main

import (
	"context"
	"encoding/json"
	"os"

	"github.com/seed-c794f7ef/kahn"
)

var vetCommand = command{
	name: "vet", args: "FILE...", least: 1, most: manyFiles,
	summary: "report every problem of definitions, with file, line and column",
	text: `
It reads each definition, compiles its graph, parses its expressions and templates, and compares the config of each step with what its
kind takes. It reports all problems that it finds, not only the first one. A file whose name ends in .test.yaml, .test.yml or .test.json is
read as the tests of a definition: see "kahn help test". Nothing is run.

The exit code is 0 if there are no problems, 1 if there are some, and 2 if a file cannot be read. Warnings are no problems.`,
	register: func(f *flags) action {
		asJSON := f.Bool("json", false, "print an array of objects with file, line, column, path, node, severity, message and suggestion")
		return func(_ context.Context, t *terminal, files []string) int {
			return vetFiles(t, files, *asJSON)
		}
	},
}

// vetFiles performs the command vet.
func vetFiles(t *terminal, files []string, asJSON bool) int {
	all := problems{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return t.refuse(err)
		}
		if isTests(file) {
			_, found := vetTests(file, data)
			all = append(all, found...)
			continue
		}
		_, found := vet(file, data)
		all = append(all, found...)
	}
	if asJSON {
		encoder := json.NewEncoder(t.out)
		encoder.SetIndent("", "  ")
		encoder.SetEscapeHTML(false)
		if err := encoder.Encode(all); err != nil {
			return t.refuse(err)
		}
	} else {
		all.write(t.out)
	}
	if len(all.errors()) > 0 {
		return exitProblems
	}
	return exitOK
}

// vet finds the problems of a definition. The graph is nil if it cannot be compiled.
func vet(file string, data []byte) (*kahn.Graph, problems) {
	c := checker{file: file}
	g, err := decode(file, data)
	doc, parseErr := parseDocument(data)
	if parseErr == nil {
		c.doc = doc
	}
	c.addError(err)
	if c.doc != nil && !c.limited {
		c.checkNodes(doc.root)
	}
	if g != nil {
		c.checkKinds(g)
		c.addWarnings(g)
	}
	c.found.sort()
	return g, c.found
}
