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

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/definition"
	"github.com/seed-c794f7ef/kahn/machine"
)

// testSchema is the JSON Schema of the files with tests.
//
//go:embed tests.json
var testSchema []byte

var testContract = sync.OnceValue(func() kahn.Contract { return compile(testSchema) })

// suite is a file with tests.
type suite struct {
	Definition string
	Cases      []testCase

	file  string
	by    performer   // the program that performs the steps of the definition
	graph *kahn.Graph // the graph of the definition
	plan  *kahn.Plan
}

// testCase is a case in a file with tests: one run of the definition, with the expected result.
type testCase struct {
	Name    string
	Inputs  map[string]any
	Mocks   map[string]mock
	Undos   map[string]mock // these mocks have an Error, a Sequence or, if the undoing succeeds, no field
	Real    []string
	Missing *kahn.OnMissing // nil means kahn.MissingStub
	Expect  expectation
}

// mock replaces a node or a compensation in a test.
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

// expectation is what a case expects of the run and its nodes.
type expectation struct {
	Status  string
	Output  json.RawMessage
	Waiting []string
	Nodes   map[string]nodeExpectation
}

// nodeExpectation is what a case expects of a node.
type nodeExpectation struct {
	Status           *kahn.Status
	Output, Includes json.RawMessage
	Error            string
	Skip             *machine.SkipKind
	Compensation     *kahn.Compensation
	Calls            *int
}

// UnmarshalJSON implements json.Unmarshaler. A text stands for an object whose only field is status.
func (e *nodeExpectation) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '"' {
		return json.Unmarshal(data, &e.Status)
	}
	type plain nodeExpectation
	return json.Unmarshal(data, (*plain)(e))
}

// extensions are the file name extensions of definitions.
var extensions = []string{".yaml", ".yml", ".json"}

// stem returns the name of a file without its folder and its extension.
func stem(file string) string {
	return strings.TrimSuffix(filepath.Base(file), filepath.Ext(file))
}

// isTests reports whether a file is a file with tests: its name ends with .test.yaml, .test.yml or .test.json.
func isTests(file string) bool {
	return slices.Contains(extensions, filepath.Ext(file)) && strings.HasSuffix(stem(file), ".test")
}

// The function `beside` returns the first file that exists among name.yaml, name.yml and name.json.
func beside(name string) (string, error) {
	for _, extension := range extensions {
		if _, err := os.Stat(name + extension); err == nil {
			return name + extension, nil
		}
	}
	return "", fmt.Errorf("none of these files exists: %s%s", name, strings.Join(extensions, ", "+name))
}

// testsOf returns the name of the file with the tests of a definition.
func testsOf(definition string) (string, error) {
	if err := present(definition); err != nil {
		return "", err
	}
	file, err := beside(strings.TrimSuffix(definition, filepath.Ext(definition)) + ".test")
	if err != nil {
		return "", fmt.Errorf("%s has no tests: %w", definition, err)
	}
	return file, nil
}

// definitionOf returns the name of the definition that a file with tests is for. The parameter `named` is the suite's field Definition. If it is
// empty, the definition lies beside the file with tests, under the same name without ".test".
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

// vetTests returns the suite in a file with tests, and the problems of the file. The suite is nil if at least one problem is an error, not a warning.
func (p performer) vetTests(file string, data []byte) (*suite, problems) {
	c := checker{file: file}
	s, root := c.readTests(data)
	if s != nil {
		s.by = p
		c.findDefinition(s)
	}
	if s != nil && s.plan != nil {
		c.checkCases(s, root)
	}
	found := c.finish()
	if len(found.errors()) > 0 {
		return nil, found
	}
	return s, found
}

// readTests parses a file with tests. If the file has problems, the suite is nil.
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
	c.addUnknown(root, "$", testShape())
	reported := map[string]bool{} // the paths of the problems found so far
	for _, p := range c.found {
		reported[p.Path] = true
	}
	for _, violation := range testContract().Check(v) {
		if n, path, message := located(root, violation); n.Problem == nil && !reported["$"+path] {
			if n.Type == definition.Object && strings.HasPrefix(message, "expected at most 1 field") {
				var names []string
				for _, field := range n.Items {
					names = append(names, field.Key)
				}
				message += ": " + strings.Join(names, ", ")
			}
			c.addAt(n.At, problem{Path: "$" + path, Message: message})
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

// addDefects adds the problems that the parser has found in a value and its parts. It also adds a problem for each duplicate key.
func (c *checker) addDefects(v *definition.Value, path string) {
	if v.Problem != nil {
		p := *v.Problem
		p.Path = path
		c.addProblem(&p)
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

// shape is the part of a JSON Schema that says which fields an object may have.
type shape struct {
	Ref                  string           `json:"$ref"`
	Defs                 map[string]shape `json:"$defs"`
	Properties           map[string]shape // nil means that any field is allowed
	AdditionalProperties *shape
	Items                *shape
	Else                 *shape
}

// UnmarshalJSON implements json.Unmarshaler. It ignores the schemas true and false, which list no fields.
func (s *shape) UnmarshalJSON(data []byte) error {
	if data[0] != '{' {
		return nil
	}
	type plain shape
	return json.Unmarshal(data, (*plain)(s))
}

var testShape = sync.OnceValue(func() (s shape) {
	if err := json.Unmarshal(testSchema, &s); err != nil {
		panic(err)
	}
	return s
})

// addUnknown adds a problem for each unknown field of a value and of its parts. The schema s lists the known fields.
func (c *checker) addUnknown(v *definition.Value, path string, s shape) {
	if s.Ref != "" {
		s = testShape().Defs[strings.TrimPrefix(s.Ref, "#/$defs/")]
	}
	if s.Properties == nil && s.Else != nil { // the schema allows a text or an object, and its "else" is the schema of the object
		s = *s.Else
	}
	if v.Problem == nil && v.Type == definition.Object && s.Properties != nil {
		c.addUnknownFields(place{path: path}, v, slices.Sorted(maps.Keys(s.Properties)), "")
	}
	for i := range v.Items {
		inner, next := fmt.Sprintf("%s[%d]", path, i), s.Items
		if v.Type == definition.Object {
			inner, next = path+"."+v.Items[i].Key, s.AdditionalProperties
			if field, ok := s.Properties[v.Items[i].Key]; ok {
				next = &field
			}
		}
		if next != nil {
			c.addUnknown(&v.Items[i], inner, *next)
		}
	}
}

// findDefinition reads the definition of a suite. It adds the definition's problems unchanged, because they name places in the definition's file,
// not in the file with tests.
func (c *checker) findDefinition(s *suite) {
	file, err := definitionOf(c.file, s.Definition)
	if err == nil {
		s.graph, err = s.by.load(file)
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

// checkCases adds a problem for each path that names no node, and for each node with two mocks or two undos. It replaces the paths of mocks, undos
// and real nodes by the results of declaredPath, for example M[]/x by M/x.
func (c *checker) checkCases(s *suite, root *definition.Value) {
	known := map[string]kahn.Node{}
	addPaths(known, s.plan, "")
	ids := make([]string, 0, s.plan.Len())
	for _, id := range s.plan.Declared() {
		ids = append(ids, id)
	}
	// A path with the number of an item or an iteration is not in the map `known`, so check reports this path, too.
	check := func(path, where string, at definition.Position) {
		if _, is := known[strings.ReplaceAll(path, "[]/", "/")]; !is {
			c.addAt(at, problem{Path: where, Message: fmt.Sprintf("unknown node %q", path), Suggestion: meant(path, ids)})
		}
	}
	cases := items(member(root, "cases"))
	for i := range s.Cases {
		x := &s.Cases[i]
		expected := member(member(&cases[i], "expect"), "nodes")
		mocks := map[string]mock{}
		for _, path := range slices.Sorted(maps.Keys(x.Mocks)) {
			where, at := fmt.Sprintf("$.cases[%d].mocks", i), member(member(&cases[i], "mocks"), path).KeyAt
			check(path, where, at)
			if x.Mocks[path].Timeout && waitsForever(known, declaredPath(path)) {
				at := member(member(member(&cases[i], "mocks"), path), "timeout").KeyAt
				c.addAt(at, problem{Path: where, Message: fmt.Sprintf("the gate %q has no timeout, so it waits for ever; answer it, or let it wait with wait: true", path)})
			}
			if _, twice := mocks[declaredPath(path)]; twice {
				c.addAt(at, problem{Path: where, Message: fmt.Sprintf("the node %q has two mocks", path)})
			}
			mocks[declaredPath(path)] = x.Mocks[path]
		}
		x.Mocks = mocks
		undos := map[string]mock{}
		for _, path := range slices.Sorted(maps.Keys(x.Undos)) {
			where, at := fmt.Sprintf("$.cases[%d].undos", i), member(member(&cases[i], "undos"), path).KeyAt
			check(path, where, at)
			if _, twice := undos[declaredPath(path)]; twice {
				c.addAt(at, problem{Path: where, Message: fmt.Sprintf("the node %q has two entries in undos", path)})
			}
			undos[declaredPath(path)] = x.Undos[path]
		}
		x.Undos = undos
		for j, path := range x.Real {
			x.Real[j] = declaredPath(path)
			check(path, fmt.Sprintf("$.cases[%d].real[%d]", i, j), items(member(&cases[i], "real"))[j].At)
		}
		for _, path := range plainPaths(slices.Collect(maps.Keys(x.Expect.Nodes))) {
			check(path, fmt.Sprintf("$.cases[%d].expect.nodes", i), member(expected, path).KeyAt)
		}
	}
}

// addPaths adds the paths of the nodes of a plan, of the nodes inside composites, and of the items of maps, such as M[].
func addPaths(to map[string]kahn.Node, p *kahn.Plan, prefix string) {
	for ref, id := range p.Declared() {
		n := p.Node(ref)
		to[prefix+id] = n
		if n.Map != nil {
			to[prefix+id+"[]"] = n
		}
		if sub := p.Sub(ref); sub != nil {
			addPaths(to, sub, prefix+id+"/")
		}
	}
}

// waitsForever reports whether a path names a gate that no timeout ends: neither its own nor the timeout of a composite around it.
func waitsForever(known map[string]kahn.Node, path string) bool {
	n := known[path]
	for end := len(path); end > 0; end = strings.LastIndexByte(path[:end], '/') {
		if around := known[path[:end]]; around.Timeout > 0 || around.OverallTimeout > 0 {
			return false
		}
	}
	return n.Kind == kahn.KindGate && (n.Gate == nil || n.Gate.Timeout == 0)
}

// plainPaths removes the paths with numbers of items or iterations, because the plan does not contain them. It sorts the others.
func plainPaths(paths []string) []string {
	slices.Sort(paths)
	return slices.DeleteFunc(paths, func(path string) bool { return numbers.MatchString(path) })
}
