package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn/definition"
)

// each joins n copies of a text, in which %d is replaced by the numbers from 0 to n-1.
func each(n int, format string) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(strings.ReplaceAll(format, "%d", fmt.Sprint(i)))
	}
	return b.String()
}

// Vetting a large definition with many or deeply nested mistakes takes time in proportion to its length, and reports a bounded number of
// problems.
func TestVetBounds(t *testing.T) {
	t.Parallel()
	const node = "version: 1\nnodes:\n- {id: a, kind: template, config: {text: '%s'}}\n"
	program := func(query string) string {
		return "version: 1\nnodes: [{id: a, kind: jq, config: {query: '" + query + "'}}]\n"
	}
	for name, text := range map[string]string{
		"templates of a text":    fmt.Sprintf(node, each(20_000, `{{status "m%d"}}`)),
		"templates of a line":    `{"version": 1, "nodes": [{"id": "a", "kind": "exec", "config": {"command": ["x"` + each(15_000, ",\"{{status `m%d`}}\"") + `]}}]}`,
		"templates of lines":     "version: 1\nnodes:\n- id: a\n  kind: template\n  config:\n    text: |\n" + each(15_000, "      {{status \"m%d\"}}\n"),
		"templates of nodes":     "version: 1\nnodes:\n" + each(5_000, "- {id: n%d, kind: template, config: {text: '{{status \"m%d\"}}'}}\n"),
		"inputs":                 "version: 1\ninputs: [" + each(30_000, "i%d, ") + "]\nnodes:\n" + each(4_000, "- {id: n%d, kind: template, config: {text: '{{input \"j%d\"}}{{param \"k%d\"}}'}}\n"),
		"inputs inside":          "version: 1\ninputs: [" + each(20_000, "i%d, ") + "]\nnodes:\n- id: s\n  graph:\n    inputs: [" + each(20_000, "k%d, ") + "]\n    nodes:\n    - {id: n, kind: template, config: {text: '{{input \"j\"}}'}}\n",
		"params":                 "version: 1\nnodes:\n- {id: a, kind: template, config: {text: x}}\n- {id: b, kind: template, after: a, params: {" + each(20_000, "p%d: 1, ") + "}, config: {text: '" + each(10_000, `{{param "q%d"}}`) + "'}}\n",
		"fields of a config":     "version: 1\nnodes: [{id: a, kind: exec, config: {" + each(30_000, "f%d: 1, ") + "}}]\n",
		"a cycle":                "version: 1\nnodes:\n- {id: n0, kind: template, after: z, config: {text: '{{status \"n0\"}}'}}\n" + each(3_000, "- {id: m%d, kind: template, after: n0, config: {text: '{{status \"z\"}}'}}\n") + "- {id: z, kind: template, after: n0, config: {text: x}}\n",
		"a deep program":         program(strings.Repeat("[", 500_000)),
		"a deep program, closed": program(strings.Repeat("[", 500_000) + strings.Repeat("]", 500_000)),
		"a deep template":        fmt.Sprintf(node, strings.Repeat("{{if 1}}", 20_000)),
		"a deep list":            "version: 1\nx: " + strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000) + "\n",
		"a bomb":                 "version: 1\na: &a0 [x, x]\n" + each(60, "b%d: &a [*a0, *a0, *a0, *a0]\n"),
		"graphs in one another":  "version: 1\nx0: &x0 [{id: a, kind: template, config: {text: '{{param \"y\"}}'}}]\n" + aliases(20) + "nodes: *x20\n",
	} {
		ext := ".yaml"
		if strings.HasPrefix(text, "{") {
			ext = ".json"
		}
		require.LessOrEqual(t, len(text), definition.Limits{}.Resolved().Bytes, name)
		begin := time.Now()
		_, found := performer{}.vet(name+ext, []byte(text))
		require.NotEmpty(t, found, name)
		require.LessOrEqual(t, len(found), maxProblems+1, name)
		require.Less(t, time.Since(begin), time.Minute, name) // without bounds, vet took much longer, or exceeded the stack
	}
}

// aliases returns n lists of nodes with graphs. Each list contains the previous list twice.
func aliases(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "x%d: &x%d [{id: a, graph: {nodes: *x%d}}, {id: b, graph: {nodes: *x%d}}]\n", i+1, i+1, i, i)
	}
	return b.String()
}

// For syntax from other engines, vet says what to write instead.
func TestVetMends(t *testing.T) {
	t.Parallel()
	const text = "version: 1\ninputs: [{name: user}]\nnodes:\n  - {id: a, kind: template, config: {text: x}}\n  - {id: b, kind: exec, after: a, %s}\n"
	for field, want := range map[string]string{
		`config: {command: [echo, "{{ inputs.user }}"]}`:                             `an input is {{input "name"}}`,
		`config: {command: [echo, "{{ nodes.a.output }}"]}`:                          `{{param "name"}}`,
		`config: {command: [echo, "{{ .user }}"]}`:                                   `a template has no data, and so no .user: {{input "name"}}`,
		`config: {command: [echo, "{{status a}}"]}`:                                  `as in {{status "name"}}`,
		`config: {command: [echo, "{{input 'u'}}"]}`:                                 `as in {{input "name"}}`,
		`config: {command: [echo, "{{item}}"]}`:                                      `{{param "item"}}`,
		`config: {command: [echo, "{{range input ` + "`user`" + `}}{{.x}}{{end}}"]}`: ``,
		`config: {command: [echo], timeout: 5m}`:                                     `timeout is a field of the node, and stands beside its config`,
		`command: [echo]`:                                                            `the settings of a step stand in the config of its kind`,
		`config: {command: [echo]}, outputs: {rows: list}`:                           `write the names alone: ["rows", ...]`,
		`config: {command: [echo]}, groups: [api]`:                                   `declare it in groups`,
	} {
		_, stdout, _ := invoke(t, "", "vet", file(t, "d.yaml", fmt.Sprintf(text, field)))
		if want == "" {
			require.NotContains(t, stdout, "template:", field)
			continue
		}
		require.Contains(t, stdout, want, field)
		require.Equal(t, 1, strings.Count(strings.ReplaceAll(stdout, "warning: nothing uses the input", ""), "\n")-strings.Count(stdout, "warning: nothing uses the input"), "%s:\n%s", field, stdout)
	}
}

// FuzzVet searches for definitions that break the command. All problems must have places in the text, and every format must be writable.
func FuzzVet(f *testing.F) {
	for _, pattern := range []string{"definitions/*", "testdata/vet/*"} {
		files, err := filepath.Glob(pattern)
		require.NoError(f, err)
		for _, name := range files {
			data, err := os.ReadFile(name)
			require.NoError(f, err)
			f.Add(data, filepath.Ext(name) == ".json")
		}
	}
	f.Fuzz(func(t *testing.T, data []byte, isJSON bool) {
		name := "d.yaml"
		if isJSON {
			name = "d.json"
		}
		g, found := performer{}.vet(name, data)
		require.True(t, g != nil || len(found.errors()) > 0, "no graph and no problem")
		_, tests := performer{}.vetTests("d.test"+filepath.Ext(name), data)
		lines := strings.Count(string(data), "\n") + 1
		for _, p := range append(found, tests...) {
			require.NotEmpty(t, p.Message)
			if p.File == name {
				require.LessOrEqual(t, p.Line, lines, p.Message)
			}
			require.NotContains(t, p.annotation(), "\n")
		}
		require.Len(t, found.sarif().Runs[0].Results, len(found))
	})
}
