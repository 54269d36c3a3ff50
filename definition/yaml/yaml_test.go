package yaml_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/definition"
	"github.com/seed-c794f7ef/kahn/definition/yaml"
)

// same compares two graphs by their canonical form, which contains all their data.
func same(t *testing.T, want, got *kahn.Graph) {
	t.Helper()
	w, err := definition.Encode(want)
	require.NoError(t, err)
	g, err := definition.Encode(got)
	require.NoError(t, err)
	require.Equal(t, string(w), string(g))
	require.Equal(t, want.Nodes(), got.Nodes())
	require.Equal(t, want.Edges(), got.Edges())
}

// The YAML form of each golden file is as expected, and decodes to the same graph as its JSON form.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("../testdata/*.json")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		g, err := definition.Decode(text, definition.Limits{})
		require.NoError(t, err)
		root, err := definition.Parse(text, definition.Limits{})
		require.NoError(t, err)
		doc, err := definition.NewDocument(root, definition.Limits{})
		require.NoError(t, err)
		got, err := yaml.EncodeDocument(doc)
		require.NoError(t, err)
		want, err := os.ReadFile(filepath.Join("testdata", strings.TrimSuffix(filepath.Base(file), ".json")+".yaml"))
		require.NoError(t, err)
		require.Equal(t, string(want), string(got))
		again, err := yaml.Decode(got, definition.Limits{})
		require.NoError(t, err)
		same(t, g, again)
		root, err = yaml.Parse(got, definition.Limits{})
		require.NoError(t, err)
		read, err := definition.NewDocument(root, definition.Limits{})
		require.NoError(t, err)
		require.Equal(t, doc.Schedule, read.Schedule)
	}
}

// The YAML decoder reads any JSON document to the same graph as the JSON decoder.
func TestJSONIsYAML(t *testing.T) {
	text, err := os.ReadFile("../testdata/full.json")
	require.NoError(t, err)
	want, err := definition.Decode(text, definition.Limits{})
	require.NoError(t, err)
	got, err := yaml.Decode(text, definition.Limits{})
	require.NoError(t, err)
	same(t, want, got)
}

// The type of a scalar depends only on its text.
func TestScalars(t *testing.T) {
	config := func(text string) (any, error) {
		g, err := yaml.Decode([]byte("version: 1\nnodes:\n  - id: node\n    config: ["+text+"]\n"), definition.Limits{})
		if err != nil {
			return nil, err
		}
		return g.Nodes()[0].Config.([]any)[0], nil
	}
	for text, want := range map[string]any{
		"null": nil, "~": nil, "true": true, "false": false, "1": int64(1), "-1": int64(-1), "0": int64(0), "1.0": 1.0, "1e3": 1000.0,
		"-0.5": -0.5, "9007199254740993": int64(9007199254740993), "'1'": "1", `"true"`: "true", "'yes'": "yes", `"\u00e4"`: "ä", "x": "x",
		"1.2.3": "1.2.3", "v1.0": "v1.0", "10s": "10s", "nope": "nope", "1/2": "1/2", "a: b": map[string]any{"a": "b"}, "2024-01": "2024-01",
		"80:80": "80:80", "1 2": "1 2", ".": ".", "./x": "./x", "-": "-", "-x": "-x", "--": "--", "5d": "5d", "0.5.1": "0.5.1",
		"é": "é", "nullable": "nullable", "one\n  two": "one two", `""`: "",
	} {
		if text == "-" {
			continue // the text begins a list
		}
		got, err := config(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{
		"yes", "Yes", "no", "NO", "on", "On", "off", "y", "N", "True", "TRUE", "False", "Null", "NULL", "0x1f", "0X1F", "0o17", "017", "08",
		"0b1", "1_000", "+1", ".5", "1.", "+.5", "-.5", "1_0.5", "1e_3", ".inf", "-.Inf", ".nan", ".NaN", "12:30", "190:20:30", "1:30.5",
		"2024-01-31", "2024-1-3", "2024-01-31T10:00:00Z", "2024-01-31 10:00:00", "=", "<<", "-0x1f", "00", "-01", "01.5",
	} {
		if text == "0X1F" {
			continue // every reader takes the value for text
		}
		_, err := config(text)
		require.ErrorIs(t, err, definition.ErrAmbiguous, text)
		_, err = config("'" + text + "'")
		require.NoError(t, err, text)
	}
}

// Every problem is reported with kind, path, line and column.
func TestProblems(t *testing.T) {
	for name, row := range map[string]struct {
		text         string
		kind         definition.ErrorKind
		path         string
		line, column int
	}{
		"empty":               {"", definition.ErrSyntax, "$", 1, 1},
		"comment only":        {"# nothing\n", definition.ErrSyntax, "$", 1, 1},
		"null":                {"---\n", definition.ErrType, "$", 2, 1},
		"a text":              {"hello", definition.ErrType, "$", 1, 1},
		"indentation":         {"version: 1\n  name: x\n", definition.ErrSyntax, "$.version", 2, 7},
		"no end of list":      {"version: 1\nnodes: [\n", definition.ErrSyntax, "$.nodes", 3, 1},
		"tab":                 {"version: 1\nnodes:\n\t- id: a\n", definition.ErrSyntax, "$.nodes", 3, 1},
		"control character":   {"version: 1\nname: a\x01\n", definition.ErrSyntax, "$", 2, 8},
		"NUL":                 {"version: 1\nname: ä\x00\n", definition.ErrSyntax, "$", 2, 8},
		"invalid UTF-8":       {"version: 1\nname: ä\xff\n", definition.ErrEncoding, "$", 2, 8},
		"UTF-16":              {"\xff\xfev\x00", definition.ErrEncoding, "$", 1, 1},
		"byte order mark":     {"\uFEFFversion: 1\n", definition.ErrEncoding, "$", 1, 1},
		"hidden line break":   {"version: 1 # one\u2028name: x\n", definition.ErrAmbiguous, "$", 1, 17},
		"carriage return":     {"version: 1 # one\rname: x\n", definition.ErrAmbiguous, "$", 1, 17},
		"lone surrogate":      {"version: 1\nname: \"\\ud800\"\n", definition.ErrSyntax, "$.name", 2, 10},
		"directive":           {"%YAML 1.1\n---\nversion: 1\n", definition.ErrUnsupported, "$", 1, 1},
		"two documents":       {"version: 1\n---\nversion: 1\n", definition.ErrUnsupported, "$", 2, 1},
		"goes on":             {"{version: 1} }\n", definition.ErrSyntax, "$", 1, 14},
		"tag":                 {"version: 1\nname: !!str x\n", definition.ErrUnsupported, "$.name", 2, 7},
		"tag of the host":     {"version: 1\nname: !ruby/object x\n", definition.ErrUnsupported, "$.name", 2, 7},
		"tag of all":          {"!!map\nversion: 1\n", definition.ErrUnsupported, "$", 1, 1},
		"merge key":           {"version: 1\nnodes:\n  - id: a\n    config: {<<: {a: 1}}\n", definition.ErrUnsupported, `$.nodes[0].config["<<"]`, 4, 14},
		"number as a key":     {"version: 1\nnodes:\n  - id: a\n    config: {1: x}\n", definition.ErrType, `$.nodes[0].config["1"]`, 4, 14},
		"yes as a key":        {"version: 1\nnodes:\n  - id: a\n    branches: {yes: a}\n", definition.ErrAmbiguous, "$.nodes[0].branches.yes", 4, 16},
		"true as a key":       {"version: 1\nnodes:\n  - id: a\n    branches: {true: a}\n", definition.ErrType, "$.nodes[0].branches.true", 4, 16},
		"on as a key":         {"version: 1\nnodes:\n  - id: a\n    next: {on: x}\n", definition.ErrUnknownField, "$.nodes[0].next.on", 4, 12},
		"list as a key":       {"version: 1\n? [a]\n: b\n", definition.ErrUnsupported, `$["?"]`, 2, 3},
		"alias as a key":      {"version: 1\nname: &x name\n*x : b\n", definition.ErrUnsupported, `$["?"]`, 3, 1},
		"nothing as a key":    {"version: 1\n: b\n", definition.ErrType, `$[""]`, 2, 1},
		"unknown anchor":      {"version: 1\nname: *x\n", definition.ErrSyntax, "$.name", 2, 7},
		"alias in its anchor": {"version: 1\nnodes: &x\n  - id: a\n    config: *x\n", definition.ErrUnsupported, "$.nodes[0].config", 4, 13},
		"key twice":           {"version: 1\nname: x\nname: x\n", definition.ErrDuplicate, "$.name", 3, 1},
		"key twice, quoted":   {"version: 1\nnodes:\n  - id: a\n    config:\n      a: 1\n      \"\\x61\": 2\n", definition.ErrDuplicate, "$.nodes[0].config.a", 6, 7},
		"unknown field":       {"version: 1\nnodes:\n  - id: a\n    ä: 1\n    retries: 3\n", definition.ErrUnknownField, `$.nodes[0]["ä"]`, 4, 5},
		"duration":            {"version: 1\nnodes:\n  - {id: ä, timeout: 30}\n", definition.ErrType, "$.nodes[0].timeout", 3, 22},
		"nothing as a value":  {"version: 1\nnodes:\n  - id: a\n    after:\n", definition.ErrType, "$.nodes[0].after", 4, 11},
		"version":             {"version: 1.0\n", definition.ErrVersion, "$.version", 1, 10},
		"id __proto__":        {"version: 1\nnodes: [{id: __proto__}]\n", definition.ErrValue, "$.nodes[0].id", 2, 14},
		"id with HTML":        {"version: 1\nnodes: [{id: <b>}]\n", definition.ErrValue, "$.nodes[0].id", 2, 14},
		"id with a newline":   {"version: 1\nnodes:\n  - id: |\n      a\n", definition.ErrValue, "$.nodes[0].id", 3, 9},
		"id with NUL":         {"version: 1\nnodes:\n  - id: \"a\\0\"\n", definition.ErrValue, "$.nodes[0].id", 3, 9},
		"mistake in an alias": {"version: 1\nnodes:\n  - id: a\n    config: &x [{timeout: 3}]\n  - id: b\n    groups: *x\n", definition.ErrType, "$.nodes[1].groups[0]", 4, 17},
	} {
		t.Run(name, func(t *testing.T) {
			g, err := yaml.Decode([]byte(row.text), definition.Limits{})
			require.Nil(t, g)
			require.ErrorIs(t, err, row.kind)
			var e *definition.Error
			require.ErrorAs(t, err, &e)
			p := e.Problems[0]
			at := fmt.Sprint(p.Path, " ", p.Position.Line, ":", p.Position.Column)
			require.Equal(t, fmt.Sprint(row.path, " ", row.line, ":", row.column), at, err.Error())
			require.Equal(t, row.kind, p.Kind)
			lines := strings.SplitAfter(row.text, "\n")[:row.line]
			if last := lines[row.line-1]; !strings.Contains(last, "\xff") {
				runes := []rune(last)
				require.Equal(t, len(strings.Join(lines[:row.line-1], ""))+len(string(runes[:row.column-1])), p.Position.Offset)
			}
		})
	}
}

// Decode reports all problems at once, both problems of YAML and problems of the document.
func TestAllProblems(t *testing.T) {
	_, err := yaml.Decode([]byte("version: 1\nnodes:\n  - id: !x a\n    timeout: 017\n    after: b\n  - id: b\n    Disabled: yes\n"), definition.Limits{})
	var e *definition.Error
	require.ErrorAs(t, err, &e)
	var paths []string
	for _, p := range e.Problems {
		paths = append(paths, p.Path)
	}
	require.Equal(t, []string{"$.nodes[0].id", "$.nodes[0].timeout", "$.nodes[1].Disabled"}, paths)
}

// Anchors and aliases stand for the same value in several places.
func TestAliases(t *testing.T) {
	g, err := yaml.Decode([]byte(`
version: 1
nodes:
  - id: &first a
    retry: &twice {max_attempts: 2}
    config: &list [1, &x [2]]
  - id: b
    after: *first
    retry: *twice
    config: [*list, *x]
`), definition.Limits{Aliases: 4})
	require.NoError(t, err)
	b := g.Nodes()[1]
	require.Equal(t, 2, b.Retry.MaxAttempts)
	require.Equal(t, []any{[]any{int64(1), []any{int64(2)}}, []any{int64(2)}}, b.Config)
	require.Equal(t, []kahn.Edge{{From: "a", To: "b"}}, g.Edges())
}

// bomb returns a text that stands for many values through aliases of aliases.
func bomb(levels, width int) string {
	var b strings.Builder
	b.WriteString("version: 1\nnodes:\n  - id: a\n    config:\n      - &a0 [x]\n")
	for i := range levels {
		fmt.Fprintf(&b, "      - &a%d [*a%d%s]\n", i+1, i, strings.Repeat(fmt.Sprintf(", *a%d", i), width-1))
	}
	return b.String()
}

// Decode rejects a document that would need too much memory, before it allocates this memory.
func TestMemoryIsBounded(t *testing.T) {
	item := "version: 1\nnodes:\n  - id: a\n    config: "
	for name, text := range map[string]string{
		"alias bomb":            bomb(9, 9),
		"long chain of aliases": bomb(2000, 1),
		"deep lists":            item + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000),
		"deep mappings":         item + strings.Repeat("{a: ", 100_000) + "1" + strings.Repeat("}", 100_000),
		"deep blocks":           item + "\n      " + strings.Repeat("- ", 100_000) + "x",
		"deep keys":             strings.Repeat("? ", 100_000) + "x",
		"many values":           item + "[" + strings.Repeat("1,", 150_000) + "1]",
		"long text":             item + strings.Repeat("x", 2<<20),
		"long id":               "version: 1\nnodes:\n  - id: " + strings.Repeat("x", 1<<19),
		"many anchors":          item + "[" + strings.Repeat("&a 1,", 120_000) + "1]",
		"long anchor":           "version: 1\nname: *" + strings.Repeat("x", 1<<19),
		"many documents":        strings.Repeat("---\n", 200_000),
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := yaml.Decode([]byte(text), definition.Limits{})
			runtime.ReadMemStats(&after)
			var e *definition.Error
			require.ErrorAs(t, err, &e)
			require.Less(t, len(err.Error()), 10_000)
			require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(128<<20))
		})
	}
	for what, limits := range map[string]definition.Limits{
		"aliases": {Aliases: 3}, "values": {Values: 30}, "depth": {Depth: 4},
	} {
		_, err := yaml.Decode([]byte(bomb(2, 4)), definition.Limits{Aliases: -1})
		require.NoError(t, err)
		_, err = yaml.Decode([]byte(bomb(2, 4)), limits)
		require.ErrorIs(t, err, definition.ErrLimit, what)
	}
	_, err := yaml.Decode([]byte(bomb(9, 9)), definition.Limits{Aliases: -1})
	require.ErrorIs(t, err, definition.ErrLimit)
	_, err = yaml.Decode([]byte(item+strings.Repeat("[", 100_000)), definition.Limits{Depth: -1})
	require.ErrorIs(t, err, definition.ErrLimit)
}

// Values behind a tag are not read and do not count: a document in which a tag stands for millions of nodes is rejected as quickly as any
// other.
func TestTaggedGraphs(t *testing.T) {
	var b strings.Builder
	b.WriteString("version: 1\nnodes:\n  - {id: a, after: b}\n  - {id: b, after: a}\n")
	b.WriteString("  - id: c\n    config:\n      - &g0 {nodes: [{id: x}]}\n")
	for i := range 7 {
		fmt.Fprintf(&b, "      - &g%d {nodes: [", i+1)
		for k := range 11 {
			fmt.Fprintf(&b, "{id: n%d, graph: *g%d}, ", k, i)
		}
		b.WriteString("]}\n")
	}
	b.WriteString("  - {id: d, !!str graph: *g7}\n")
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := definition.Loader{Parse: yaml.Parse, Limits: definition.Limits{Values: 1 << 30}}.Load([]byte(strings.Replace(b.String(), "config:", "!!str config:", 1)))
	runtime.ReadMemStats(&after)
	require.ErrorIs(t, err, kahn.ErrCycle)
	require.ErrorIs(t, err, definition.ErrUnsupported)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(16<<20))
}

func TestReadAndLoad(t *testing.T) {
	text := "version: 1\nnodes:\n  - {id: a, merge: mine}\n"
	g, err := yaml.Read(iotest.OneByteReader(strings.NewReader(text)), definition.Limits{Bytes: len(text)})
	require.NoError(t, err)
	require.Len(t, g.Nodes(), 1)
	_, err = yaml.Read(strings.NewReader(text), definition.Limits{Bytes: len(text) - 1})
	require.ErrorIs(t, err, definition.ErrLimit)
	_, err = yaml.Load([]byte(text), definition.Limits{}, nil)
	require.ErrorIs(t, err, kahn.ErrBadValue)
	_, err = yaml.Load([]byte(text), definition.Limits{}, func(g *kahn.Graph) {
		g.RegisterMerge("mine", func([]kahn.Contribution) (any, error) { return nil, nil })
	})
	require.NoError(t, err)
}

// FuzzDecode: any text is either rejected with a typed error, or read into a graph that is written and read again unchanged in both formats.
func FuzzDecode(f *testing.F) {
	for _, pattern := range []string{"testdata/*.yaml", "../testdata/*.json"} {
		files, err := filepath.Glob(pattern)
		require.NoError(f, err)
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(f, err)
			f.Add(text)
		}
	}
	f.Add([]byte(bomb(3, 3)))
	f.Add([]byte("version: 1\nnodes:\n  - id: a\n    config: |\n      a\n       b\n\n  - id: 'yes'\n    config: >-\n      x\n      y\n"))
	f.Add([]byte("version: 1\nname: \"\\u2028\\x85\\e\\0\"\nnodes: [{id: b, config: {'': [.5, 0x1, ~, -1e3]}}]\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		g, err := yaml.Decode(data, definition.Limits{Bytes: 1 << 16})
		if err != nil {
			var e *definition.Error
			require.ErrorAs(t, err, &e)
			require.NotEmpty(t, e.Problems)
			require.NotEmpty(t, err.Error())
			return
		}
		text, err := yaml.Encode(g)
		require.NoError(t, err)
		again, err := yaml.Decode(text, definition.Limits{})
		require.NoError(t, err, "%s", text)
		same(t, g, again)
		text, err = definition.Encode(g)
		require.NoError(t, err)
		again, err = definition.Decode(text, definition.Limits{})
		require.NoError(t, err, "%s", text)
		same(t, g, again)
	})
}

// Each problem that Compile reports has the position of the node, edge or field that it names.
func TestGraphProblemsHavePlaces(t *testing.T) {
	t.Parallel()
	text := `version: 1
nodes:
  - id: a
    after: c
  - {id: ä, after: [{from: a}, {from: a, param: "ü", label: yeah}]}
  - id: c
    after:
      - ä
    join: at_least(2)
`
	_, err := definition.Loader{Parse: yaml.Parse, File: "w.yaml"}.Load([]byte(text))
	var all *definition.Error
	require.ErrorAs(t, err, &all)
	var got []string
	for _, p := range all.Problems {
		require.True(t, strings.HasPrefix(text[p.Position.Offset:], map[int]string{5: "yeah", 8: "ä", 9: "at_least"}[p.Position.Line]), p)
		got = append(got, p.Error())
	}
	require.Equal(t, []string{
		`definition: w.yaml:5:61: $.nodes[1].after[1].label: node "ä": edge "a" -> "ä": bad edge: the edge has the label "yeah", but the output of "a" is not a label (set routes, or kind "condition")`,
		`definition: w.yaml:8:9: $.nodes[2].after[0]: node "c": cycle: "c" -> "a" -> "ä" -> "c"`,
		`definition: w.yaml:9:11: $.nodes[2].join: node "c": bad join: at_least(2), but the node has 1 control edges`,
	}, got)
}
