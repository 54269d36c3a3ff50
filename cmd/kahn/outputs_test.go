package main

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// vet refuses an edge whose key names no field of the output of its source's kind.
func TestKeysOfKinds(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ source, edge, want string }{
		{"kind: exec, config: {command: [ls]}", "key: stdot", `a.yaml:4:62: node "b": edge "a" -> "b": the output of kind exec has no field "stdot"; did you mean "stdout"?`},
		{"kind: exec, config: {command: [ls]}", "key: nothing", `has no field "nothing" (choose from cut, stderr, stdout)`},
		{"kind: template, config: {text: x}", "key: stdout", `the output of kind template has no field "stdout"; without a key the edge delivers the whole output`},
		{"kind: http, config: {url: 'http://x'}", "key: bdy.name", `did you mean "body"?`},
		{"kind: exec, config: {command: [ls]}", "key: stdout", ""},
		{"kind: exec, config: {command: [ls]}", "key: cut", ""},
		{"kind: exec, config: {command: [ls]}", "key: output", ""},
		{"kind: http, config: {url: 'http://x'}", "key: body.name", ""},
		{"kind: jq, config: {query: .}", "key: any", ""},
		{"map: {over: list}, params: {list: [1]}, kind: exec, config: {command: [ls]}", "key: any", ""},
		{"kind: exec, config: {command: [ls]}", "outcome: failure, key: any", ""},
	} {
		definition := file(t, "a.yaml", "version: 1\nnodes:\n  - {id: a, "+row.source+"}\n  - {id: b, kind: template, after: [{from: a, param: x, "+row.edge+"}], config: {text: x}}\n")
		code := exitOK
		if row.want != "" {
			code = exitProblems
		}
		expect(t, code, row.want, "", "vet", definition)
	}
	inside := "version: 1\nnodes:\n  - {id: s, graph: {nodes: [{id: a, kind: exec, config: {command: [ls]}}, {id: b, kind: template, after: [{from: a, param: x, key: stdot}], config: {text: x}}]}}\n"
	expect(t, exitProblems, `node "s/b": edge "a" -> "b": the output of kind exec has no field "stdot"`, "", "vet", file(t, "a.yaml", inside))
}

// A mock with two fields names them. A gate without a timeout cannot time out, unless a composite around it does.
func TestMocksThatHaveNoEffect(t *testing.T) {
	t.Parallel()
	for mock, want := range map[string]string{
		"ok: {timeout: true}":                     `.test.yaml:3:16: the gate "ok" has no timeout, so it waits for ever; answer it, or let it wait with wait: true`,
		`"m/ok": {timeout: true}`:                 `the gate "m/ok" has no timeout`,
		"ok: {output: 1, wait: true}":             `expected at most 1 field, got 2: output, wait`,
		"late: {timeout: true}":                   "",
		`"s/ok": {timeout: true}`:                 "",
		"x: {timeout: true}":                      "",
		"ok: {wait: true}":                        "",
		"ok: {answer: true}, late: {answer: no1}": "",
	} {
		definition := file(t, "d.yaml", `
version: 1
nodes:
  - {id: ok, kind: gate, branches: {approved: x}}
  - {id: late, kind: gate, gate: {timeout: 1h}, branches: {approved: x}}
  - {id: x, kind: template, config: {text: x}}
  - {id: s, timeout: 1h, graph: {nodes: [{id: ok, kind: gate, branches: {approved: x}}, {id: x, kind: template, config: {text: x}}]}}
  - {id: m, map: {over: list}, params: {list: [1]}, graph: {nodes: [{id: ok, kind: gate, branches: {approved: x}}, {id: x, kind: template, config: {text: x}}]}}
`)
		code := exitOK
		if want != "" {
			code = exitProblems
		}
		expect(t, code, want, "", "vet", testsBeside(t, definition, "cases:\n- name: a\n  mocks: {"+mock+"}\n  expect: {status: completed}\n"))
	}
}

// testsBeside writes a file with tests beside a definition, and returns its name.
func testsBeside(t *testing.T, definition, text string) string {
	t.Helper()
	path := strings.TrimSuffix(definition, ".yaml") + ".test.yaml"
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}
