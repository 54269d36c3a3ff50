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

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/definition"
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
	s, root := c.readTests(data)
	if s != nil {
		c.findDefinition(s)
	}
	if s != nil && s.plan != nil {
		c.checkCases(s, root)
	}
	c.found.sort()
	if len(c.found.errors()) > 0 {
		return nil, c.found
	}
	return s, c.found
}

// readTests reads the text of a file with tests; nil if it has problems.
func (c *checker) readTests(data []byte) (*suite, *definition.Value) {
	root, err := parserOf(c.file)(data, definition.Limits{})
	if err != nil {
		c.addError(err)
		return nil, nil
	}
	if !isSmall(root) {
		c.add(problem{Message: "the file has too many values"})
		return nil, nil
	}
	c.addDefects(root, "$")
	v := valueOf(root)
	for _, violation := range testContract().Check(v) {
		if below(root, violation.Path).Problem == nil {
			c.addViolation(root, violation)
		}
	}
	if len(c.found) > 0 {
		return nil, nil
	}
	text, err := json.Marshal(v)
	if err == nil {
		s := &suite{file: c.file}
		if err = json.Unmarshal(text, s); err == nil {
			return s, root
		}
	}
	c.add(problem{Message: err.Error()})
	return nil, nil
}

// addDefects adds what the parser has found in the parts of a value, and keys that come twice.
func (c *checker) addDefects(v *definition.Value, path string) {
	if v.Problem != nil {
		c.addAt(v.Problem.Position, problem{Path: path, Message: v.Problem.Message, Suggestion: v.Problem.Suggestion})
		return
	}
	seen := map[string]bool{}
	for i := range v.Items {
		item, inner := &v.Items[i], fmt.Sprintf("%s[%d]", path, i)
		if v.Type == definition.Object {
			inner = path + "." + item.Key
			if seen[item.Key] {
				c.addAt(item.KeyAt, problem{Path: inner, Message: "the field occurs twice"})
			}
			seen[item.Key] = true
		}
		c.addDefects(item, inner)
	}
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
func (c *checker) addViolation(root *definition.Value, v kahn.Violation) {
	n, path := below(root, v.Path), "$"+pathOf(v.Path)
	fields := strangeFields(v.Message)
	for _, name := range fields {
		c.addAt(member(n, name).KeyAt, problem{Path: path + "." + name, Message: fmt.Sprintf("unknown field %q", name), Suggestion: meant(name, testFields())})
	}
	if len(fields) == 0 {
		c.addAt(n.At, problem{Path: path, Message: reworded(v.Message)})
	}
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
func (c *checker) checkCases(s *suite, root *definition.Value) {
	cases := items(member(root, "cases"))
	for i := range s.Cases {
		x := &s.Cases[i]
		expected := member(member(&cases[i], "expect"), "nodes")
		for _, path := range slices.Sorted(maps.Keys(x.Mocks)) {
			c.checkPath(s.plan, path, fmt.Sprintf("$.cases[%d].mocks", i), member(member(&cases[i], "mocks"), path).KeyAt)
		}
		for j, path := range x.Real {
			c.checkPath(s.plan, path, fmt.Sprintf("$.cases[%d].real[%d]", i, j), items(member(&cases[i], "real"))[j].At)
		}
		for _, path := range plainPaths(slices.Collect(maps.Keys(x.Expect.Nodes))) {
			c.checkPath(s.plan, path, fmt.Sprintf("$.cases[%d].expect.nodes", i), member(expected, path).KeyAt)
		}
	}
}

// checkPath reports a path that leads to no node. The test mode of a run knows.
func (c *checker) checkPath(p *kahn.Plan, path, where string, at definition.Position) {
	if _, err := kahn.NewCoordinator(p, time.Now(), kahn.TestMode{Unmock: []string{path}}); path == "" || errors.Is(err, kahn.ErrUnknownNode) {
		c.addAt(at, problem{Path: where, Message: fmt.Sprintf("unknown node %q", path), Suggestion: meant(path, idsOfPlan(p))})
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
