package main

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestShippedTests(t *testing.T) {
	t.Parallel()
	code, stdout, stderr := invoke(t, "", "test", "definitions/release.yaml", "definitions/approval.test.yaml")
	require.Equal(t, exitOK, code, stdout+stderr)
	require.True(t, strings.HasSuffix(stdout, "7 cases, 0 failed\n"), stdout)
	code, stdout, _ = invoke(t, "", "test", "-case", "72 hours", "definitions/approval.yaml")
	require.Equal(t, exitOK, code)
	require.Contains(t, stdout, "1 case, 0 failed\n")
}

// If one of the arguments is a file that cannot be read, or a definition without tests, the cases of the other files still run. The order of
// the arguments does not matter.
func TestCasesBesideAMissingFile(t *testing.T) {
	t.Parallel()
	good := tested(t, "version: 1\nnodes: [{id: a, kind: template, config: {text: x}}]\n", "cases: [{name: first, expect: {status: completed}}, {name: second, expect: {status: completed}}]\n")
	bad := tested(t, "version: 1\nnodes: [{id: a, kind: template, config: {text: x}}]\n", "cases: [{name: third, expect: {status: failed}}]\n")
	for _, files := range [][]string{{"missing.test.yaml", good, bad}, {good, "missing.test.yaml", bad}, {good, bad, "missing.test.yaml"}, {"definitions/survey.json", good, bad}} {
		code, stdout, stderr := invoke(t, "", append([]string{"test"}, files...)...)
		require.Equal(t, exitUsage, code, files)
		if slices.Contains(files, "missing.test.yaml") {
			require.Equal(t, 1, strings.Count(stderr, "missing.test.yaml: no such file"), stderr)
		} else {
			require.Contains(t, stderr, "definitions/survey.json has no tests")
		}
		for _, want := range []string{"  ok    first\n", "  ok    second\n", "  FAIL  third\n"} {
			require.Equal(t, 1, strings.Count(stdout, want), "%v: %s", files, stdout)
		}
		require.True(t, strings.HasSuffix(stdout, "3 cases, 1 failed\n"), "%v: %s", files, stdout)
	}
}

// tested writes a definition and its tests, and returns the name of the definition's file.
func tested(t *testing.T, definition, cases string) string {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "work.yaml"), []byte(definition), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "work.test.yaml"), []byte(cases), 0o600))
	return filepath.Join(dir, "work.yaml")
}

const shop = `
version: 1
inputs: [items]
nodes:
  - {id: load, kind: http, config: {url: "http://127.0.0.1:1/"}, retry: {max_attempts: 3, initial_delay: 1h}, timeout: 2h}
  - {id: pack, kind: exec, map: {over: items}, config: {command: ["false"]}}
  - {id: S, after: [load, pack], graph: {nodes: [{id: ask, kind: gate}, {id: pay, kind: exec, after: ask, config: {command: ["false"]}}]}}
  - {id: end, kind: template, after: S, config: {text: paid}}
`

func TestMocks(t *testing.T) {
	t.Parallel()
	definition := tested(t, shop, `
cases:
  - name: attempts, items, a gate inside
    inputs: {items: [a, b]}
    real: [end]
    mocks:
      load: {sequence: [{error: busy}, {timeout: true}, {output: {body: {sum: 1, more: [2.5]}, status: 200}}]}
      "pack[]": {output: packed}
      S/ask: {answer: {by: Ada}}
      S/pay: {answer: 7}
    expect:
      status: completed
      output: paid
      nodes:
        load: {status: completed, calls: 3, includes: {body: {sum: 1}}}
        pack: {output: [packed, packed]}
        "pack[]": {calls: 2}
        "pack[1]": {output: packed}
        S/ask: {output: {by: Ada}}
        S/pay: {output: 7}
  - name: a permanent error is not tried again
    inputs: {items: []}
    mocks: {load: {error: no such shop, permanent: true}}
    expect:
      status: failed
      nodes: {load: {error: no such shop, calls: 1}, S: aborted}
  - name: nobody answers
    inputs: {items: []}
    mocks: {S/ask: {wait: true}}
    expect: {status: suspended, waiting: [S/ask], nodes: {end: waiting}}
  - name: a step waits
    inputs: {items: []}
    mocks: {load: {wait: true}}
    expect: {status: suspended, waiting: [load]}
  - name: a step skips itself
    inputs: {items: []}
    mocks: {load: {skip: closed}}
    expect: {status: completed, nodes: {load: {skip: self}}}
  - name: what is not mocked fails
    inputs: {items: [a]}
    missing: fail
    expect: {status: failed, nodes: {load: {error: no mock}}}
`)
	code, stdout, stderr := invoke(t, "", "test", definition)
	require.Equal(t, exitOK, code, stdout+stderr)
	require.Contains(t, stdout, "6 cases, 0 failed\n")
}

// The retry policy of a node also applies to its mock.
func TestMocksAreRetried(t *testing.T) {
	t.Parallel()
	definition := tested(t, `
version: 1
nodes:
  - {id: work, kind: exec, config: {command: ["false"]}, retry: {max_attempts: 3, initial_delay: 1h}}
  - {id: strict, kind: exec, config: {command: ["false"]}, retry: {max_attempts: 3, retry_on: [rate_limit]}}
`, `
cases:
  - name: an error
    mocks: {work: {error: busy}, strict: {error: busy}}
    expect: {status: failed, nodes: {work: {status: failed, calls: 3, error: busy}, strict: {status: failed, calls: 1}}}
  - name: a timeout
    mocks: {work: {timeout: true}}
    expect: {status: failed, nodes: {work: {calls: 3, error: timed out}}}
  - name: a permanent error
    mocks: {work: {error: gone, permanent: true}}
    expect: {status: failed, nodes: {work: {calls: 1, error: gone}}}
  - name: as the step itself
    real: [work, strict]
    expect: {status: failed, nodes: {work: {calls: 3}, strict: {calls: 1}}}
`)
	code, stdout, stderr := invoke(t, "", "test", definition)
	require.Equal(t, exitOK, code, stdout+stderr)
	require.Contains(t, stdout, "4 cases, 0 failed\n")
}

// A case ends in bounded time, even if a real step or the attempts of a mock never end.
func TestCasesWithoutEnd(t *testing.T) {
	t.Parallel()
	definition := tested(t, `
version: 1
nodes:
  - {id: work, kind: sleep, config: {for: 100000h}, retry: {max_attempts: 2000000000, initial_delay: 1h}}
  - {id: once, kind: sleep, config: {for: 100000h}, when: inputs.once}
`, `
cases:
  - {name: a real step, real: [work], inputs: {once: false}, expect: {status: failed}}
  - {name: a real step whose failure is expected, real: [once], inputs: {once: true}, mocks: {work: {output: 1}}, expect: {status: failed}}
  - {name: a mock, inputs: {once: false}, mocks: {work: {error: busy}}, expect: {status: failed}}
`)
	code, stdout, _ := invoke(t, "", "test", "-case", "step", "-timeout", "50ms", definition)
	require.Equal(t, exitProblems, code)
	require.Equal(t, 2, strings.Count(stdout, "the case takes longer than 50ms, the bound of -timeout"), stdout)
	code, stdout, _ = invoke(t, "", "test", "-case", "mock", "-timeout", "0", definition)
	require.Equal(t, exitProblems, code)
	require.Contains(t, stdout, "the run has waited 100000 times")
}

// An invalid mock or number is reported at its place in the file.
func TestWrongCases(t *testing.T) {
	t.Parallel()
	definition := tested(t, shop, `
cases:
  - name: x
    mocks:
      load: {output: 1, error: busy}
      end: {permanent: true}
      S: {sequence: [{error: busy, skip: closed}, {permanent: false}]}
    expect: {nodes: {load: {calls: 99999999999999999999}}}
`)
	_, stdout, _ := invoke(t, "", "vet", strings.TrimSuffix(definition, ".yaml")+".test.yaml")
	for _, want := range []string{
		":5:22: this field is not permitted here, or not together with another field\n",
		":6:12: error: the field is missing: \"permanent\" needs it\n",
		":7:42: this field is not permitted here, or not together with another field\n",
		":7:51: error: the field is missing: \"permanent\" needs it\n",
		":8:36: expected at most 1000000000, got 100000000000000000000\n",
	} {
		require.Contains(t, stdout, want)
	}
}

// Each failed expectation is reported with the actual value, and the exit code says that the run failed.
func TestFailingCases(t *testing.T) {
	t.Parallel()
	definition := tested(t, shop, `
cases:
  - name: everything else
    inputs: {items: []}
    mocks: {load: {output: {sum: 1}}}
    expect:
      status: failed
      output: x
      waiting: [S/ask]
      nodes:
        load: {status: skipped, calls: 2, output: {sum: 2}, includes: {other: 1}, error: broken, skip: self}
  - name: an input is missing
    expect: {status: completed}
`)
	code, stdout, _ := invoke(t, "", "test", definition)
	require.Equal(t, exitProblems, code)
	for _, want := range []string{
		"FAIL  everything else\n",
		"the run: expected status failed: completed\n",
		`the run: expected output "x": null`,
		"the run: expected to wait for S/ask: nothing\n",
		`node "load": expected status skipped: completed`,
		`node "load": expected 2 calls: 1 calls`,
		`node "load": expected output {"sum":2}: {"sum":1}`,
		`node "load": expected output that includes {"other":1}: {"sum":1}`,
		`node "load": expected an error with "broken": completed, without an error`,
		`node "load": expected skip reason self: completed`,
		"load: completed (mocked, 1 call)\n",
		"FAIL  an input is missing\n",
		`missing root input`,
		"2 cases, 2 failed\n",
	} {
		require.Contains(t, stdout, want)
	}
}

// If a pattern matches definitions and their tests, each case runs once. The output of steps cannot look like lines of the report.
func TestReportOfCases(t *testing.T) {
	t.Parallel()
	definition := tested(t, `
version: 1
nodes: [{id: a, kind: fail, config: {message: "tea\e[2J\n  ok    another"}}]
`, `
cases: [{name: "x\ty\e[2J", real: [a], expect: {status: completed}}]
`)
	dir := filepath.Dir(definition)
	code, stdout, _ := invoke(t, "", "test", definition, filepath.Join(dir, "work.test.yaml"), dir+"/./work.yaml")
	require.Equal(t, exitProblems, code)
	require.True(t, strings.HasSuffix(stdout, "\n1 case, 1 failed\n"), stdout)
	require.Contains(t, stdout, "  FAIL  x y"+`\x1b[2J`+"\n")
	require.Contains(t, stdout, `step_error: tea\x1b[2J`+"\n")
	require.NotContains(t, stdout, "\n  ok    another")
	require.NotContains(t, stdout, "\x1b")
}

// Paths of nodes inside a map may have brackets or not. A mock, an answer or a real step applies to all items.
func TestMocksInsideOfMaps(t *testing.T) {
	t.Parallel()
	definition := tested(t, `
version: 1
nodes:
  - id: M
    params: {l: [1, 2]}
    map: {over: l}
    graph:
      nodes:
        - {id: ask, kind: gate}
        - {id: x, kind: template, after: ask, config: {text: x}}
        - {id: w, kind: template, after: x, config: {text: real}}
        - {id: z, kind: end, after: [{from: x, param: x}, {from: w, param: w}]}
`, `
cases:
  - name: plain
    mocks: {M/ask: {answer: true}, M/x: {output: 7}}
    real: [M/w]
    expect: {status: completed, nodes: {"M[1]/x": {output: 7}, "M[1]/w": {output: real}}}
  - name: brackets
    mocks: {"M[]/ask": {answer: true}, "M[]/x": {output: 7}}
    real: ["M[]/w"]
    expect: {status: completed, nodes: {"M[1]/x": {output: 7}, "M[1]/w": {output: real}}}
`)
	code, stdout, stderr := invoke(t, "", "test", definition)
	require.Equal(t, exitOK, code, stdout+stderr)
	tests := file(t, "twice.test.yaml", "definition: "+definition+"\ncases: [{name: x, mocks: {M/x: {output: 1}, 'M[]/x': {output: 2}}, expect: {status: completed}}]\n")
	expect(t, exitProblems, `the node "M[]/x" has two mocks`, "", "vet", tests)
}

// A file with tests may be in JSON, and may run a definition with another file name.
func TestTestFileInJSON(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "work.json"), []byte(`{"version": 1, "nodes": [{"id": "a", "kind": "sleep", "config": {"for": "1h"}}]}`), 0o600))
	tests := filepath.Join(dir, "other.test.json")
	require.NoError(t, os.WriteFile(tests, []byte(`{"definition": "work.json", "cases": [{"name": "sleeps", "expect": {"nodes": {"a": "completed"}}}]}`), 0o600))
	expect(t, exitOK, "ok    sleeps", "", "test", tests)
	require.NoError(t, os.WriteFile(tests, []byte(`{"cases": []}`), 0o600))
	expect(t, exitProblems, "expected at least 1 item, got 0", "", "test", tests)
	require.NoError(t, os.WriteFile(tests, []byte(`{"cases": [{"name": "x", "name": "y", "expect": {"status": "failed"}}]}`), 0o600))
	code, stdout, _ := invoke(t, "", "vet", "-format", "json", tests)
	require.Equal(t, exitProblems, code)
	require.Contains(t, stdout, `"path": "$.cases[0].name"`)
}

// A short text in which YAML aliases stand for very many values is refused, in a time that does not depend on the number of values.
func TestManyValues(t *testing.T) {
	t.Parallel()
	bomb := "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
	for i := 1; i < 12; i++ {
		below := "*a" + strconv.Itoa(i-1)
		bomb += "a" + strconv.Itoa(i) + ": &a" + strconv.Itoa(i) + " [" + strings.Repeat(below+", ", 7) + below + "]\n"
	}
	expect(t, exitProblems, "the file has too many values", "", "vet", file(t, "bomb.test.yaml", bomb))
	expect(t, exitProblems, `unknown field "a11"`, "", "vet", file(t, "bomb.yaml", "version: 1\n"+bomb+"nodes: [{id: a, kind: template, config: *a11}]\n"))
}

// Each unknown field in a file with tests is reported at its key, whatever its name, with the list of allowed fields.
func TestUnknownFieldsOfTests(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("long", 60)
	tests := file(t, "work.test.yaml", `
cases:
  - name: x
    mocks:
      a: {"it's": 1}
      b: {sequence: [{"tab\there": 1}]}
    expect: {nodes: {a: {"status": completed, "": 1}}, stat: x}
"a, b": 1
"\u009b": 1
`+long+`1: 1
`+long+`2: 1
`+long+`3: 1
`)
	code, stdout, _ := invoke(t, "", "vet", tests)
	require.Equal(t, exitProblems, code)
	for _, want := range []string{
		`:5:11: unknown field "it's" (choose from answer, error, output, permanent, sequence, skip, timeout, wait)`,
		`6:23: unknown field "tab\there" (choose from error, output, permanent, skip, timeout)`,
		`:7:47: unknown field "" (choose from calls, compensation, error, includes, output, skip, status)`,
		`:7:56: unknown field "stat" (choose from nodes, output, status, waiting); did you mean "status"?`,
		`:8:1: unknown field "a, b" (choose from cases, definition)`,
		`:9:1: unknown field "\u009b" (choose from cases, definition)`,
		`:10:1: unknown field "` + long + `1" (choose`, `:11:1: unknown field`, `:12:1: unknown field`,
	} {
		require.Contains(t, stdout, want)
	}
	require.Equal(t, 9, strings.Count(stdout, "\n"), stdout)
}

// The paths of a case may name nodes inside composites, and all items of a map.
func TestPathsOfCases(t *testing.T) {
	t.Parallel()
	definition := tested(t, `
version: 1
nodes:
  - {id: M, params: {l: [1]}, map: {over: l}, graph: {nodes: [{id: x, kind: template, config: {text: x}}]}}
  - {id: s, kind: template, config: {text: x}}
`, `
cases:
  - name: x
    mocks: {"M[]": {output: 1}, "s[]": {output: 1}, "s/x": {output: 1}, "": {output: 1}}
    real: ["M[]/x", M/x, M/y]
    expect: {nodes: {"M[0]": completed, "M[0]/x": completed, "M/z": completed}}
`)
	_, stdout, _ := invoke(t, "", "vet", strings.TrimSuffix(definition, ".yaml")+".test.yaml")
	var found []string
	for line := range strings.Lines(stdout) {
		_, problem, _ := strings.Cut(strings.TrimSpace(line), "unknown node ")
		found = append(found, problem)
	}
	require.Equal(t, []string{`"s[]"`, `"s/x"`, `""`, `"M/y"`, `"M/z"`}, found, stdout)
}
