package definition

import (
	"errors"
	"slices"

	"github.com/seed-c794f7ef/kahn"
)

// Loader reads documents and compiles their graphs, so that it also reports the defects of a graph. The zero value reads
// JSON.
//
//	doc, err := definition.Loader{Parse: yaml.Parse, File: "build.yaml", Prepare: prepare}.Load(data)
//	var all *definition.Error
//	if errors.As(err, &all) {
//		for _, p := range all.Problems { // in the order of the document
//			fmt.Println(p.File, p.Position.Line, p.Position.Column, p.Path, p.Message, p.Suggestion)
//		}
//	}
type Loader struct {
	// Parse reads the text of a document into a tree. Default: [Parse], which reads JSON. Package definition/yaml has a Parse for YAML.
	Parse func(data []byte, limits Limits) (*Value, error)
	// File is the name of the document in reported problems. Default: none.
	File string
	// Limits bound the document. A field that is 0 has its default.
	Limits Limits
	// Kinds are the kinds of nodes that the host performs, by name. If Kinds is not nil, any other kind is a problem, except the kinds with
	// a meaning of their own, such as [kahn.KindGate]. If Prepare sets the Schemas of the graph, a config that violates the schema of its
	// kind is a problem, too. If Kinds is nil, every kind is accepted.
	Kinds map[string]Kind
	// Prepare, if not nil, sets what a document cannot contain: fields of the graph such as Evaluator and Schemas, and functions that merge.
	// It cannot change nodes, since [kahn.Graph.Nodes] returns copies: to give a node a Fallback, build another graph from the Nodes and the
	// Edges after Load. Load calls Prepare before it compiles the graph. If the document has problems, Prepare gets the part of the graph that
	// could be read, so that Load also reports problems in guards, configs and contracts.
	Prepare func(*kahn.Graph)
	// CheckSchedule, if not nil, returns the defects of a document's schedule. It may be the function Check of module
	// schedule. It may return several defects, joined by errors.Join. If a defect is a [*kahn.Problem], its Field names the
	// defective field of the Schedule, such as Cron.
	CheckSchedule func(*Schedule) error
}

// Document is a graph together with its text.
type Document struct {
	Graph *kahn.Graph
	Root  *Value // the text as a tree
	File  string // the name of the document in its problems, or ""
	// Schedule says when runs of the graph begin. It is nil if the document has no schedule.
	Schedule *Schedule
	// Aliases has a Problem for each name of another engine in the document, such as the cause provider_error. The Problem has the
	// place of the name. Its Suggestion has the names that [Encode] writes instead, separated by commas.
	Aliases []*Problem
}

// Load reads a document and compiles its graph. The error is an [*Error] with a [*Problem] for each defect, in document order. A defect that
// Compile finds has kind [ErrGraph]. If the whole document could be read, errors.As also finds the [*kahn.GraphError].
func (l Loader) Load(data []byte) (*Document, error) {
	parse := l.Parse
	if parse == nil {
		parse = Parse
	}
	root, err := parse(data, l.Limits)
	if err != nil {
		return nil, named(err, l.File)
	}
	doc, err := partOf(root, l.Limits)
	if err != nil {
		l.addFromPart(err, doc)
		return nil, named(err, l.File)
	}
	g := doc.Graph
	if l.Prepare != nil {
		l.Prepare(g)
	}
	for _, p := range doc.Aliases {
		p.File = l.File
	}
	doc.File = l.File
	var all kahn.GraphError
	_, err = g.Compile()
	if failed, ok := err.(*kahn.GraphError); ok {
		all = kahn.GraphError{Graph: failed.Graph, Problems: slices.Clone(failed.Problems), More: failed.More}
	} else if err != nil {
		return nil, doc.Locate(err)
	}
	if len(g.Nodes()) == 0 {
		all.Problems = append(all.Problems, &kahn.Problem{Field: "Nodes", Err: errors.New("there are no nodes, so there is nothing to run")})
	}
	if l.Kinds != nil {
		all.Problems = append(all.Problems, checkKinds(g, l.Kinds, false)...)
	}
	all.Problems = append(all.Problems, l.checkSchedule(doc.Schedule, g, true)...)
	if all.Problems = checkMembers(all.Problems, g, partsOf(root)); len(all.Problems) > 0 {
		return nil, doc.Locate(&all)
	}
	return doc, nil
}

// Load decodes a document and compiles its graph: see [Loader]. The function prepare, which may be nil, sets
// what a document cannot contain: see Prepare of Loader.
func Load(data []byte, limits Limits, prepare func(*kahn.Graph)) (*kahn.Graph, error) {
	doc, err := Loader{Limits: limits, Prepare: prepare}.Load(data)
	if err != nil {
		return nil, err
	}
	return doc.Graph, nil
}

// The function `named` adds the name of a file to the problems in an error.
func named(err error, file string) error {
	if e, ok := err.(*Error); ok {
		for _, p := range e.Problems {
			p.File = file
		}
	}
	return err
}

// Parse reads a JSON text into a tree. It stops at the first problem, and returns it.
func Parse(data []byte, limits Limits) (*Value, error) {
	limits = limits.Resolved()
	if len(data) > limits.Bytes {
		return nil, tooLong(limits)
	}
	return parse(data, limits)
}
