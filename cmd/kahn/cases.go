package main

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/seed-c794f7ef/kahn"
)

// testSchema is the schema of a file with tests.
//
//go:embed tests.json
var testSchema []byte

var testContract = sync.OnceValue(func() kahn.Contract { return compile(testSchema) })

// suite is a file with tests.
type suite struct {
	Definition string
	Cases      []testCase

	file  string
	graph *kahn.Graph // of the definition
	plan  *kahn.Plan
}

// testCase is one run of the definition.
type testCase struct {
	Name    string
	Inputs  map[string]any
	Mocks   map[string]mock
	Real    []string
	Missing *kahn.OnMissing // nil: stub
	Expect  expectation
}

// mock takes the place of a node.
type mock struct {
	Output    json.RawMessage
	Error     string
	Permanent bool
	Skip      *string
	Answer    json.RawMessage
	Wait      bool
	Timeout   bool
	Sequence  []mock
}

// expectation is what a case compares.
type expectation struct {
	Status  string
	Output  json.RawMessage
	Waiting []string
	Nodes   map[string]nodeExpectation
}

// nodeExpectation is what is expected of a node.
type nodeExpectation struct {
	Status           *kahn.Status
	Output, Includes json.RawMessage
	Error            string
	Skip             *kahn.SkipKind
	Calls            *int
}

// UnmarshalJSON implements json.Unmarshaler: a status alone is a text.
func (e *nodeExpectation) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '"' {
		return json.Unmarshal(data, &e.Status)
	}
	type plain nodeExpectation
	return json.Unmarshal(data, (*plain)(e))
}

// extensions are the endings of the names of definitions.
var extensions = []string{".yaml", ".yml", ".json"}

// stem is the name of a file, without its folder and its ending.
func stem(file string) string {
	return strings.TrimSuffix(filepath.Base(file), filepath.Ext(file))
}

// isTests reports whether the name of a file is that of a file with tests.
func isTests(file string) bool {
	return slices.Contains(extensions, filepath.Ext(file)) && strings.HasSuffix(stem(file), ".test")
}

// beside returns the first file that there is, of those with a name and one of the extensions.
func beside(name string) (string, error) {
	for _, extension := range extensions {
		if _, err := os.Stat(name + extension); err == nil {
			return name + extension, nil
		}
	}
	return "", fmt.Errorf("there is none of %s%s", name, strings.Join(extensions, ", "+name))
}

// testsOf returns the file with the tests of a definition.
func testsOf(definition string) (string, error) {
	file, err := beside(strings.TrimSuffix(definition, filepath.Ext(definition)) + ".test")
	if err != nil {
		return "", fmt.Errorf("%s has no tests: %w", definition, err)
	}
	return file, nil
}

// definitionOf returns the definition that a file with tests is about.
func definitionOf(file, named string) (string, error) {
	switch {
	case filepath.IsAbs(named):
		return named, nil
	case named != "":
		return filepath.Join(filepath.Dir(file), named), nil
	}
	definition, err := beside(strings.TrimSuffix(strings.TrimSuffix(file, filepath.Ext(file)), ".test"))
	if err != nil {
		return "", fmt.Errorf("%s has no definition: %w", file, err)
	}
	return definition, nil
}

// vetTests finds the problems of a file with tests. The suite is nil if it has some.
func vetTests(file string, data []byte) (*suite, problems) {
	c := checker{file: file}
	s := c.readTests(data)
	if s != nil {
		c.findDefinition(s)
	}
	if s != nil && s.plan != nil {
		c.checkCases(s)
	}
	c.found.sort()
	if len(c.found.errors()) > 0 {
		return nil, c.found
	}
	return s, c.found
}

// readTests reads the text of a file with tests; nil if it has problems.
func (c *checker) readTests(data []byte) *suite {
	doc, err := parseDocument(data)
	if err != nil {
		c.addSyntaxError(err)
		return nil
	}
	c.doc = doc
	v, err := value(doc.root)
	if err != nil {
		c.add(problem{Message: err.Error()})
		return nil
	}
	for _, violation := range testContract().Check(v) {
		c.addViolation(doc.root, violation)
	}
	if len(c.found) > 0 {
		return nil
	}
	text, err := json.Marshal(v)
	if err == nil {
		s := &suite{file: c.file}
		if err = json.Unmarshal(text, s); err == nil {
			return s
		}
	}
	c.add(problem{Message: err.Error()})
	return nil
}

// addSyntaxError adds an error of the parser.
func (c *checker) addSyntaxError(err error) {
	p := problem{Message: err.Error()}
	var at *yaml.LoadError
	if errors.As(err, &at) && at.Mark.Line > 0 {
		p.Line, p.Column, p.Message = at.Mark.Line, at.Mark.Column, strings.TrimSpace(at.Message+" "+at.ContextMsg)
	}
	c.add(p)
}

// strangeFields is a violation that names fields which the schema does not have.
func strangeFields(message string) (fields []string) {
	list := strange.FindStringSubmatch(message)
	if list == nil {
		return nil
	}
	for name := range strings.SplitSeq(list[1], ", ") {
		fields = append(fields, strings.Trim(name, "'"))
	}
	return fields
}

// testFields are the fields that some object of a file with tests has, for suggestions.
var testFields = sync.OnceValue(func() []string {
	var names []string
	var collect func(v any)
	collect = func(v any) {
		object, ok := v.(map[string]any)
		if !ok {
			return
		}
		properties, _ := object["properties"].(map[string]any)
		names = slices.AppendSeq(names, maps.Keys(properties))
		for _, inner := range object {
			collect(inner)
		}
	}
	var root any
	if err := json.Unmarshal(testSchema, &root); err != nil {
		panic(err)
	}
	collect(root)
	slices.Sort(names)
	return slices.Compact(names)
})

// addViolation adds a violation of the schema of tests.
func (c *checker) addViolation(root *yaml.Node, v kahn.Violation) {
	n := below(root, v.Path)
	path := "$" + strings.ReplaceAll(v.Path, "/", ".")
	if fields := strangeFields(v.Message); fields != nil {
		for _, name := range fields {
			key, _ := member(n, name)
			c.add(problem{
				Line: key.Line, Column: key.Column, Path: path + "." + name,
				Message: fmt.Sprintf("unknown field %q", name), Suggestion: meant(name, testFields()),
			})
		}
		return
	}
	c.add(problem{Line: n.Line, Column: n.Column, Path: path, Message: reworded(v.Message)})
}

// findDefinition reads the definition of a suite. Its problems are those of another file.
func (c *checker) findDefinition(s *suite) {
	file, err := definitionOf(c.file, s.Definition)
	if err == nil {
		s.graph, err = load(file)
	}
	var found problems
	switch {
	case errors.As(err, &found):
		c.found = append(c.found, found...)
	case err != nil:
		c.add(problem{Message: err.Error()})
	default:
		s.plan, err = s.graph.Compile()
		if err != nil {
			c.add(problem{Message: err.Error()})
		}
		s.Definition = file
	}
}

// checkCases reports paths that lead to no node.
func (c *checker) checkCases(s *suite) {
	for i := range s.Cases {
		x := &s.Cases[i]
		node := below(c.doc.root, fmt.Sprintf("/cases/%d", i))
		paths := func(list []string, at *yaml.Node) {
			for _, path := range list {
				_, err := kahn.NewCoordinator(s.plan, time.Now(), kahn.TestMode{Unmock: []string{path}})
				if path != "" && !errors.Is(err, kahn.ErrUnknownNode) {
					continue
				}
				where := at
				if key, _ := member(at, path); key != nil {
					where = key
				}
				c.add(problem{
					Line: where.Line, Column: where.Column, Path: fmt.Sprintf("$.cases[%d]", i), Suggestion: meant(path, idsOfPlan(s.plan)),
					Message: fmt.Sprintf("case %q: unknown node %q", x.Name, path),
				})
			}
		}
		paths(slices.Sorted(maps.Keys(x.Mocks)), field(node, "mocks"))
		paths(x.Real, field(node, "real"))
		paths(plainPaths(slices.Collect(maps.Keys(x.Expect.Nodes))), field(field(node, "expect"), "nodes"))
	}
}

// plainPaths leaves out the paths of single items and iterations, which no plan has.
func plainPaths(paths []string) []string {
	slices.Sort(paths)
	return slices.DeleteFunc(paths, func(path string) bool { return numbers.MatchString(path) })
}

func idsOfPlan(p *kahn.Plan) (ids []string) {
	for _, id := range p.Declared() {
		ids = append(ids, id)
	}
	return ids
}
