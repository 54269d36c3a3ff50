package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/definition"
	"github.com/seed-c794f7ef/kahn/definition/yaml"
	"github.com/seed-c794f7ef/kahn/expression"
	"github.com/seed-c794f7ef/kahn/schema"
)

// load reads a definition and finds its problems before anything runs: in the document, in the graph, in its guards, and
// unknown kinds of steps.
func load(file string, steps kahn.Mux) (*kahn.Graph, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	read := definition.Read
	if ext := filepath.Ext(file); ext == ".yaml" || ext == ".yml" {
		read = yaml.Read
	}
	g, err := read(f, definition.Limits{})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	g.Evaluator = expression.Evaluator{}
	g.StrictGuards = true
	g.Schemas = schema.Compiler{}
	if len(g.Inputs) > 0 { // else a run takes any
		g.Inputs = append(g.Inputs, kahn.Input{Name: "here"})
	}
	if err := steps.Check(g); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return g, nil
}
