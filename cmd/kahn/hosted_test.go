package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// shipment is a definition for a host. The host has the kinds fetch and sql, and its own kind http.
const shipment = `version: 1
inputs: [here, order]
nodes:
  - {id: load, kind: fetch, config: {from: 'a {{ template of the host'}}
  - {id: call, kind: http, after: load, config: {verb: GET}}
  - {id: ask, kind: gate, after: load}
  - {id: store, kind: sql, after: [call, ask], when: "nodes.load.output.n > 1"}
  - {id: last, kind: end, after: store}
`

// With -kinds a definition may name only the listed kinds, and a kind of this command only if it is listed. Vet does not check the configs of a
// host's kinds, and the folder of the definition is no input.
func TestVetKinds(t *testing.T) {
	t.Parallel()
	definition := file(t, "shipment.yaml", shipment)
	listed := file(t, "kinds.txt", "\ufeff# what our workers perform\r\n\r\nfetch\r\n  sql # and its tables\nhttp\n")
	for _, flags := range [][]string{
		{"-kinds", "fetch,sql,http"}, {"-kinds", " fetch , sql,http,fetch"}, {"-kinds", "fetch,sql", "-kinds", "http"}, {"-kinds=@" + listed},
		{"-kinds", "fetch,end,gate", "-kinds", "@" + listed},
	} {
		code, stdout, stderr := invoke(t, "", append(append([]string{"vet"}, flags...), definition)...)
		require.Equal(t, exitOK, code, "%v: %s%s", flags, stdout, stderr)
		require.Empty(t, stdout+stderr, "%v", flags)
	}
	for want, kinds := range map[string]string{
		`shipment.yaml:7:23: node "store": unknown kind "sql"; there are fetch, http` + "\n":           "http,fetch",
		`shipment.yaml:5:22: node "call": unknown kind "http"; there are fetch, sql` + "\n":            "fetch,sql",
		`shipment.yaml:7:23: node "store": unknown kind "sql"; did you mean "sqll"?` + "\n":            "http,fetch,sqll",
		`shipment.yaml:4:22: node "load": unknown kind "fetch"; there are http, send mail, sql` + "\n": "http,sql,send mail",
	} {
		code, stdout, stderr := invoke(t, "", "vet", "-kinds", kinds, definition)
		require.Equal(t, exitProblems, code, stderr)
		require.Contains(t, stdout, want)
		require.Equal(t, 1, strings.Count(stdout, "\n"), stdout)
	}
	expect(t, exitProblems, `when: bad expression: not an ancestor: "lost"`, "", "vet", "-kinds", "fetch", file(t, "a.yaml", `version: 1
nodes: [{id: a, kind: fetch}, {id: b, kind: fetch, after: a, when: nodes.lost.output.n > 1}, {id: lost, kind: fetch}]
`))
	expect(t, exitProblems, `cycle: "b" -> "a" -> "b"`, "", "vet", "-kinds", "fetch", file(t, "a.yaml", "version: 1\nnodes: [{id: a, kind: fetch, after: b}, {id: b, kind: fetch, after: a}]\n"))
}

// A host's definition has no input for its folder: guards do not see such an input, and tests do not set it.
func TestHostsHaveNoFolder(t *testing.T) {
	t.Parallel()
	const text = "version: 1\ninputs: [order]\nnodes: [{id: a, kind: fetch, when: %s}]\n"
	expect(t, exitProblems, `unknown root input: "here" (there is "order")`, "", "vet", "-kinds", "fetch", file(t, "a.yaml", fmt.Sprintf(text, "inputs.here != ''")))
	definition := tested(t, fmt.Sprintf(text, "inputs.order > 6"), "cases: [{name: run, inputs: {order: 7}, expect: {status: completed, nodes: {a: completed}}}]\n")
	expect(t, exitOK, "1 case, 0 failed\n", "", "test", "-kinds", "fetch", definition)
}

// kindsIn skips comments and empty lines, and trims spaces.
func TestKindsIn(t *testing.T) {
	t.Parallel()
	list, err := kindsIn(file(t, "kinds.txt", "\ufeff# a comment\r\n\r\nfetch\r\n\tsql\t# more\nc#\nsend mail\n#end\nfetch"))
	require.NoError(t, err)
	require.Equal(t, []string{"fetch", "sql", "c#", "send mail", "fetch"}, list)
}

// Without -kinds, the error for an unknown kind mentions this flag, unless the unknown kind is similar to a kind of the command.
func TestUnknownKindNamesTheFlag(t *testing.T) {
	t.Parallel()
	definition := file(t, "a.yaml", "version: 1\nnodes: [{id: a, kind: warehouse}, {id: b, kind: exce}, {id: c}]\n")
	code, stdout, _ := invoke(t, "", "vet", definition)
	require.Equal(t, exitProblems, code)
	require.Contains(t, stdout, `node "a": unknown kind "warehouse"; there are checksum, exec, fail, http, jq, read, sleep, template, write; if a host performs this kind, list it in the file of "kahn vet -kinds"`+"\n")
	require.Contains(t, stdout, `node "b": unknown kind "exce"; did you mean "exec"?`+"\n")
	require.Equal(t, 1, strings.Count(stdout, "-kinds"), stdout)
	_, stdout, _ = invoke(t, "", "vet", "-kinds", "fetch", definition)
	require.NotContains(t, stdout, "-kinds")
}

// Mistakes in -kinds are reported before the definition is read.
func TestSlipsInKinds(t *testing.T) {
	t.Parallel()
	definition := file(t, "a.yaml", "version: 1\nnodes: [{id: a, kind: fetch}]\n")
	bare := file(t, "kinds.txt", "fetch\n")
	for value, want := range map[string]string{
		"":                                       `the list of kinds is empty; name kinds as fetch,sql, or a file of kinds as @kinds.txt`,
		" ":                                      `the list of kinds is empty; name kinds as fetch,sql, or a file of kinds as @kinds.txt`,
		"fetch,,sql":                             `an empty name between commas`,
		"fetch,":                                 `an empty name between commas`,
		"fetch,@kinds.txt":                       `@kinds.txt: give a file of kinds in a flag of its own: -kinds @kinds.txt`,
		"fe\x07tch":                              `the kind "fe\atch" has a character that no kind may have`,
		"fe\xfftch":                              `the kind "fe\xfftch" has a character that no kind may have`,
		"@":                                      `the name of a file is missing after @`,
		"@missing.kinds":                         `missing.kinds: no such file or directory`,
		"@" + t.TempDir():                        `is a directory`,
		"@" + file(t, "k", "# no\n"):             `/k names no kind; each line names a kind, and # begins a comment`,
		"@" + file(t, "k", "fetch\nsql, http\n"): `/k:2: "sql, http": a line names one kind`,
		"@" + file(t, "k", "fetch\n\ns\x00ql\n"): `/k:3: the kind "s\x00ql" has a character that no kind may have`,
		"@" + file(t, "k", "version: 1\nnodes:\n"): `/k:1: "version: 1": a line names one kind`,
		bare: bare + " is a file; -kinds @" + bare + " reads the kinds in it",
	} {
		for _, command := range []string{"vet", "draw", "test"} {
			code, stdout, stderr := invoke(t, "", command, "-kinds", value, definition)
			require.Equal(t, exitUsage, code, "%q: %s%s", value, stdout, stderr)
			require.Empty(t, stdout, "%q", value)
			require.Contains(t, stderr, want, "%q", value)
			require.Contains(t, stderr, "-kinds", "%q", value)
		}
	}
	large := "@" + file(t, "large", strings.Repeat("fetch\n", 1<<20))
	expect(t, exitUsage, "/large: it is longer than ", "", "vet", "-kinds", large, definition)
	expect(t, exitUsage, `unknown flag -kinds; choose from -anew, -answer`, "", "run", "-kinds", "fetch", definition)
	expect(t, exitUsage, `unknown flag -kind; did you mean -kinds?`, "", "vet", "-kind", "fetch", definition)
}

// The definition of a host is drawn, too.
func TestDrawKinds(t *testing.T) {
	t.Parallel()
	definition := file(t, "shipment.yaml", shipment)
	expect(t, exitProblems, `unknown kind "sql"`, "", "draw", "-kinds", "fetch,http", definition)
	expect(t, exitOK, "flowchart TD\n", "", "draw", "-kinds", "fetch,http,sql", definition)
}

// With -kinds the schema for editors lists the kinds of the host and omits the kinds of the command.
func TestSchemaKinds(t *testing.T) {
	t.Parallel()
	code, text, stderr := invoke(t, "", "schema", "-kinds", "fetch,http")
	require.Equal(t, exitOK, code, stderr)
	contract := compile([]byte(text))
	node := func(kind, config string) (messages string) {
		var v any
		require.NoError(t, json.Unmarshal([]byte(`{"version": 1, "nodes": [{"id": "a", "kind": "`+kind+`", "config": `+config+`}]}`), &v))
		for _, violation := range contract.Check(v) {
			messages += violation.String() + "\n"
		}
		return messages
	}
	require.Empty(t, node("fetch", `{"any": [1]}`))
	require.Empty(t, node("http", `{"verb": 1}`), "the host's own http")
	require.Empty(t, node("gate", `{}`))
	require.Contains(t, node("exec", `{"command": ["ls"]}`), "/nodes/0/kind: expected ")
	expect(t, exitUsage, "-test and -kinds do not go together", "", "schema", "-test", "-kinds", "fetch")
}

// The tests of a host's definition run with mocks. No step of the host can be called here, even if the command has the same kind.
func TestTestKinds(t *testing.T) {
	t.Parallel()
	definition := tested(t, shipment, `
cases:
  - name: stored
    inputs: {order: 7, here: elsewhere}
    mocks: {load: {output: {"n": 2}}, ask: {answer: yes it is}}
    expect: {status: completed, nodes: {store: {status: completed, calls: 1}, call: {calls: 1}}}
  - name: too little
    inputs: {order: 7, here: elsewhere}
    mocks: {load: {output: {"n": 1}}, ask: {answer: yes it is}}
    expect: {nodes: {store: skipped}}
`)
	tests := filepath.Join(filepath.Dir(definition), "work.test.yaml")
	expect(t, exitProblems, `unknown kind "fetch"`, "", "test", definition)
	expect(t, exitOK, "", "", "vet", "-kinds", "fetch,http,sql", definition, tests)
	expect(t, exitOK, "2 cases, 0 failed\n", "", "test", "-kinds", "fetch,http,sql", definition)
	require.NoError(t, os.WriteFile(tests, []byte(`
cases:
  - name: real
    inputs: {order: 7, here: elsewhere}
    mocks: {load: {output: {"n": 2}}, ask: {answer: yes it is}}
    real: [call]
    expect: {status: completed}
  - name: missing
    inputs: {order: 7, here: elsewhere}
    mocks: {load: {output: {"n": 2}}, ask: {answer: yes it is}}
    missing: real
    expect: {status: completed}
`), 0o600))
	code, stdout, _ := invoke(t, "", "test", "-kinds", "fetch,http,sql", definition)
	require.Equal(t, exitProblems, code)
	require.Contains(t, stdout, `node "call": step_error: a host performs the kind "http": the node needs a mock here`)
	require.Contains(t, stdout, "2 cases, 2 failed\n")
}
