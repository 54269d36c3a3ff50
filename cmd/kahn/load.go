package main

import (
	"errors"
	"io"
	"os"
	"slices"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/definition"
	"github.com/seed-c794f7ef/kahn/expression"
	"github.com/seed-c794f7ef/kahn/schema"
)

// The constant `here` is the name of the root input that contains the folder of the definition.
const here = "here"

// readFile reads a file. If the file is too long for a definition, readFile returns one byte more than the limit, so that the parser
// refuses the text.
func readFile(name string) (data []byte, err error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	return io.ReadAll(io.LimitReader(file, int64(definition.Limits{}.Resolved().Bytes)+1))
}

// The method `load` reads the definition in a file. If the definition has problems, the error lists all of them, with their places.
func (p performer) load(file string) (*kahn.Graph, error) {
	doc, err := p.document(file)
	if err != nil {
		return nil, err
	}
	return doc.Graph, nil
}

// The method `document` is like the method `load`, but returns the whole document, which includes the schedule.
func (p performer) document(file string) (*definition.Document, error) {
	data, err := readFile(file)
	if err != nil {
		return nil, err
	}
	doc, found := p.vet(file, data)
	if errs := found.errors(); len(errs) > 0 {
		return nil, errs
	}
	return doc, nil
}

// equip sets the evaluator, the schema compiler and strict guards of a graph. If this command performs the definition, equip also
// declares the input `here`.
func (p performer) equip(g *kahn.Graph) {
	g.Evaluator = expression.Evaluator{}
	g.StrictGuards = true
	g.Schemas = schema.Compiler{}
	if p.hosted != nil {
		return
	}
	isHere := func(in kahn.Input) bool { return in.Name == here }
	// A graph without declared inputs accepts any input. If the definition itself declares an input `here`, addReserved reports this as a problem.
	if len(g.Inputs) > 0 && !slices.ContainsFunc(g.Inputs, isHere) {
		g.Inputs = append(g.Inputs, kahn.Input{Name: here, Optional: true})
	}
}

// The function `name` returns the name of a definition: the name of its graph or, if the graph has no name, the name of the file without the
// extension.
func name(g *kahn.Graph, file string) string {
	if g.Name != "" {
		return g.Name
	}
	return stem(file)
}
