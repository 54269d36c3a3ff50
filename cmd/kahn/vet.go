package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/definition"
)

var vetCommand = command{
	name: "vet", args: "FILE...", least: 1, most: manyFiles,
	summary: "report every problem of definitions, with file, line and column",
	text: `
It reads each definition, compiles its graph, parses its expressions and templates, and compares the config of each step with what its
kind takes. It reports all problems that it finds, not only the first one. Some hide others: in a graph with an edge from a node that is not
there it is not known which nodes a guard can see. A file whose name ends in .test.yaml, .test.yml or .test.json is
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
	all, code := problems{}, exitOK
	for _, file := range files {
		data, err := readFile(file)
		if err != nil {
			code = t.refuse(err)
			continue
		}
		var found problems
		if isTests(file) {
			_, found = vetTests(file, data)
		} else {
			_, found = vet(file, data)
		}
		all = append(all, found.without(all)...)
	}
	if asJSON {
		encoder := json.NewEncoder(t.out)
		encoder.SetIndent("", "  ")
		encoder.SetEscapeHTML(false)
		_ = encoder.Encode(all) // the output keeps the error
	} else {
		all.write(t.out)
	}
	if code == exitOK && len(all.errors()) > 0 {
		return exitProblems
	}
	return code
}

// vet finds the problems of a definition. The graph is nil if it has some.
func vet(file string, data []byte) (*kahn.Graph, problems) {
	c := checker{file: file}
	parser := parserOf(file)
	doc, err := definition.Loader{Parse: parser, File: file, Prepare: equip, Kinds: performed()}.Load(data)
	c.addError(err)
	var g *kahn.Graph
	var plan *kahn.Plan
	if doc != nil {
		g = doc.Graph
		plan, _ = g.Compile() // Load has compiled it
	}
	if root, parseErr := parser(data, definition.Limits{}); parseErr == nil && isSmall(root) {
		c.addReserved(root)
		c.checkConfigs(root, plan)
	}
	if plan != nil {
		c.addWarnings(doc, plan)
	}
	return g, c.finish()
}

// addReserved reports an input with the name of the folder of the definition.
func (c *checker) addReserved(root *definition.Value) {
	inputs := items(member(root, "inputs"))
	for i, name := range declared(root) {
		if name == here {
			c.addAt(inputs[i].At, problem{Path: fmt.Sprintf("$.inputs[%d]", i), Message: here + " is the folder of the definition; give the input another name"})
		}
	}
}

// performed returns the kinds without their schemas: vet checks configs itself, also in documents that Load refuses.
func performed() map[string]definition.Kind {
	all := map[string]definition.Kind{}
	for name := range kinds {
		all[name] = definition.Kind{}
	}
	return all
}

// addWarnings adds what is valid and probably a mistake.
func (c *checker) addWarnings(doc *definition.Document, plan *kahn.Plan) {
	before := len(c.found)
	if warnings := append(plan.Warnings(), unused(doc.Graph)...); len(warnings) > 0 {
		c.addError(doc.Locate(&kahn.GraphError{Problems: warnings}))
	}
	for i := range c.found[before:] {
		c.found[before+i].Severity = isWarning
	}
}
