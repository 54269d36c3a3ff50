package main

import (
	"context"
	"fmt"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/definition"
	"github.com/seed-c794f7ef/kahn/schedule"
)

var vetCommand = command{
	name: "vet", args: "FILE...", least: 1, most: manyFiles,
	summary: "report every problem of definitions, with file, line and column",
	text: `
It reads each definition, compiles its graph, parses its expressions and templates, and compares the config of each step with what its
kind takes. It reports all problems that it finds, not only the first one. Some problems hide others: if an edge comes from a node that does not
exist, vet does not know which nodes a guard can see. A file whose name ends in .test.yaml, .test.yml or .test.json is
read as the tests of a definition: see "kahn help test". Nothing is run.

With -kinds the definitions are those of a host, a program that performs kinds of its own: they may name these kinds, and those of this command
only if they are listed. Configs are not checked then, since the host decides what is in them, and the folder of the definition is no input.
Guards and conditions are read as the expressions of this command. A line in a file of kinds names a kind; a comment begins with #.

With -format json the problems are an array of objects with file, line, column, path, node, severity, message and suggestion; with -format github they are
annotations that GitHub Actions shows in a pull request, and with -format sarif a report for code scanning and for editors.

The exit code is 0 if there are no problems, 1 if there are some, and 2 if a file cannot be read. Warnings are no problems.`,
	register: func(f *flags) action {
		var format string
		f.choice(&format, "format", "how problems are printed", formats...)
		var by performer
		f.kinds(&by)
		return func(_ context.Context, t *terminal, files []string) int {
			return vetFiles(t, by, files, format)
		}
	},
}

// vetFiles performs the command `kahn vet`.
func vetFiles(t *terminal, by performer, files []string, format string) int {
	all, code := problems{}, exitOK
	for _, file := range files {
		data, err := readFile(file)
		if err != nil {
			code = t.refuse(err)
			continue
		}
		var found problems
		if isTests(file) {
			_, found = by.vetTests(file, data)
		} else {
			_, found = by.vet(file, data)
		}
		all = append(all, found.without(all)...)
	}
	all.writeAs(t.out, format)
	if code == exitOK && len(all.errors()) > 0 {
		return exitProblems
	}
	return code
}

// vet returns a definition and its problems. The definition is nil if definition.Loader refuses it.
func (p performer) vet(file string, data []byte) (*definition.Document, problems) {
	c := checker{file: file, text: data, by: p}
	root, parseErr := parserOf(file)(data, definition.Limits{})
	parsed := func([]byte, definition.Limits) (*definition.Value, error) { return root, parseErr }
	doc, err := definition.Loader{Parse: parsed, File: file, Prepare: p.equip, Kinds: p.kinds(), CheckSchedule: schedule.Check}.Load(data)
	c.addError(err)
	var g *kahn.Graph
	var plan *kahn.Plan
	if doc != nil {
		g = doc.Graph
		plan, _ = g.Compile() // Load has compiled it without errors
	}
	if parseErr == nil && isSmall(root) {
		c.checkLabels(root)
		if p.hosted == nil {
			c.addReserved(root)
			c.checkConfigs(root, err)
		}
	}
	if plan != nil {
		warnings := plan.Warnings()
		// vet does not know what the steps of a host read, so it does not look for unused parts in a host's definition.
		if p.hosted == nil {
			warnings = append(warnings, unused(g)...)
			if bad := undelivered(g, ""); len(bad) > 0 {
				c.addError(doc.Locate(&kahn.GraphError{Problems: bad}))
			}
		}
		c.addWarnings(doc, warnings)
		c.addAliases(doc.Aliases)
	}
	return doc, c.finish()
}

// addReserved reports a declared input with the name "here", which is reserved for the folder of the definition.
func (c *checker) addReserved(root *definition.Value) {
	inputs := items(member(root, "inputs"))
	for i, name := range declared(root) {
		if name == here {
			c.addAt(inputs[i].At, problem{Path: fmt.Sprintf("$.inputs[%d]", i), Message: here + " is the folder of the definition; give the input another name"})
		}
	}
}

// addAliases adds a warning for each name of another engine that a definition uses.
func (c *checker) addAliases(aliases []*definition.Problem) {
	for _, p := range aliases {
		c.add(problem{
			Line: p.Position.Line, Column: p.Position.Column, Path: p.Path, Node: p.Node, Severity: isWarning,
			Message: p.Message + "; write that", Suggestion: p.Suggestion,
		})
	}
}

// addWarnings adds warnings about valid constructs that are probably mistakes.
func (c *checker) addWarnings(doc *definition.Document, warnings []error) {
	before := len(c.found)
	if len(warnings) > 0 {
		c.addError(doc.Locate(&kahn.GraphError{Problems: warnings}))
	}
	for i := range c.found[before:] {
		c.found[before+i].Severity = isWarning
	}
}
