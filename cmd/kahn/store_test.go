package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn/store"
	"github.com/seed-c794f7ef/kahn/store/sqlite"
)

// A run with an id runs once. Until the run has ended, the command continues it. Afterwards the command reports how the run ended, with the same
// exit code.
func TestRunID(t *testing.T) {
	t.Parallel()
	db, out := filepath.Join(t.TempDir(), "runs.db"), t.TempDir()
	args := []string{"run", "-store", db, "-run", "note-1", "-input", "out=" + out, "definitions/approval.yaml"}
	expect(t, exitWaiting, "to answer: kahn run -store "+db+" -run note-1 -answer approve=VALUE definitions/approval.yaml", "", args...)
	expect(t, exitUsage, "run note-1 has begun with other inputs", "", "run", "-store", db, "-run", "note-1", "-input", "out=x", "definitions/approval.yaml")
	expect(t, exitOK, "run note-1 continues", "", append(args, "-answer", "approve=approved")...)
	expect(t, exitOK, "run note-1 had ended before", "", args...)
	failing := file(t, "fail.yaml", "version: 1\nnodes: [{id: a, kind: fail, config: {message: 'no {{input \"x\" \"luck\"}}'}}]\n")
	for range 2 {
		expect(t, exitProblems, "a: failed: node \"a\": step_error: no luck", "", "run", "-store", db, "-run", "failing", failing)
	}
}

// If the gate refuses an answer, the run keeps waiting.
func TestRefusedAnswer(t *testing.T) {
	t.Parallel()
	definition := file(t, "choices.yaml", "version: 1\nnodes: [{id: g, kind: gate, gate: {choices: [left, right]}}]\n")
	args := []string{"run", "-store", filepath.Join(t.TempDir(), "runs.db"), definition, "-answer"}
	expect(t, exitWaiting, `did you mean "left"?`, "", append(args, "g=lefft")...)
	expect(t, exitOK, "run completed", "", append(args, "g=left")...)
}

// Runs of one definition with different inputs are different runs. If several have not ended and no inputs are given, the user must name the run.
func TestRunsWithInputs(t *testing.T) {
	t.Parallel()
	const definition = "definitions/approval.yaml"
	db, first, second := filepath.Join(t.TempDir(), "runs.db"), t.TempDir(), t.TempDir()
	for range 2 {
		for _, out := range []string{first, second} {
			expect(t, exitWaiting, "run suspended", "", "run", "-store", db, "-input", "out="+out, definition)
		}
	}
	expect(t, exitUsage, "several runs of definitions/approval.yaml have not ended", "", "run", "-store", db, "-answer", "approve=yes", definition)
	expect(t, exitOK, "run completed", "", "run", "-store", db, "-input", "out="+second, "-answer", "approve=yes", definition)
	contains(t, filepath.Join(second, "note.txt"), "version 2 is out")
	missing(t, filepath.Join(first, "note.txt"))
	expect(t, exitOK, "run completed", "", "run", "-store", db, "-answer", "approve=yes", definition) // the other run
	contains(t, filepath.Join(first, "note.txt"), "version 2 is out")
}

// Two commands with the same -run perform the run once, and each of them reports how the run ended.
func TestOneRunTwice(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	definition := filepath.Join(dir, "long.yaml")
	text := "version: 1\nnodes:\n  - {id: a, kind: exec, config: {command: [sh, -c, 'sleep 0.3; echo once >> " + filepath.Join(dir, "calls") + "']}}\n"
	require.NoError(t, os.WriteFile(definition, []byte(text), 0o600))
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() {
			code, stdout, stderr := invoke(t, "", "run", "-store", filepath.Join(dir, "runs.db"), "-run", "R", definition)
			if code != exitOK || !strings.Contains(stdout, "run completed") {
				t.Errorf("exit code %d\n%s%s", code, stdout, stderr)
			}
		})
	}
	both.Wait()
	calls, err := os.ReadFile(filepath.Join(dir, "calls"))
	require.NoError(t, err)
	require.Equal(t, "once\n", string(calls))
}

// A command does not take over a run from a live process. After the process has died and its lease has ended, the command continues the run.
func TestRunOfAnotherProcess(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "runs.db")
	args := []string{"run", "-store", path, "-run", "held", "-lease", "1s", "definitions/approval.yaml"}
	expect(t, exitWaiting, "run suspended", "", args...)
	db, err := sqlite.Open(path, sqlite.Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	var lease store.Lease
	lease, _, err = db.Acquire(t.Context(), "held", "somebody", time.Hour)
	require.NoError(t, err)
	expect(t, exitUsage, "run held is performed by another process", "", args...)
	require.NoError(t, db.Renew(t.Context(), lease, time.Second)) // the process dies without releasing the lease, which ends a second later
	expect(t, exitWaiting, "run held is performed by another process; waiting for it, for at most 15s", "", "run", "-store", path, "-run", "held", "definitions/approval.yaml")

	_, _, err = db.Acquire(t.Context(), "held", "somebody", time.Hour)
	require.NoError(t, err)
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	var out, errs strings.Builder
	require.Equal(t, exitUsage, kahnCommand(ctx, args, newTerminal(strings.NewReader(""), &out, &errs)))
	require.Contains(t, errs.String(), "context canceled")
}

// The inputs of a run are texts or, with :=, JSON values. Steps of stored runs get the inputs as they were given.
func TestTypedInputs(t *testing.T) {
	t.Parallel()
	definition := file(t, "map.yaml", `
version: 1
inputs: [hosts, count, text]
nodes:
  - {id: sum, kind: template, config: {text: '{{range input "hosts"}}{{.}} {{end}}{{json (input "count")}} {{input "text"}}'}}
`)
	code, stdout, stderr := invoke(t, "", "run", "-store", filepath.Join(t.TempDir(), "runs.db"), definition,
		"-input", `hosts:=["a","b"]`, "-input", "count:=9007199254740993", "-input", "text=1=2")
	require.Equal(t, exitOK, code, stderr)
	require.True(t, strings.HasSuffix(stdout, "\na b 9007199254740993 1=2\n"), stdout)
}

// -limit and -timeout apply to the run, and programs can read its progress.
func TestLimits(t *testing.T) {
	t.Parallel()
	definition := file(t, "slow.yaml", "version: 1\nnodes: [{id: a, kind: sleep, config: {for: 1h}}]\n")
	code, stdout, stderr := invoke(t, "", "run", "-timeout", "50ms", "-limit", "1", "-progress", "json", definition)
	require.Equal(t, exitProblems, code)
	require.Contains(t, stdout, "run failed")
	for line := range strings.Lines(stderr) {
		require.True(t, json.Valid([]byte(line)), line)
	}
	require.Contains(t, stderr, `"run.timed_out"`)
	expect(t, exitUsage, "bad option", "", "run", "-limit", "-1", definition)
}

// A dry run calls no step and follows the branch of the given answer. It shows configs with templates expanded as far as values are known.
func TestDry(t *testing.T) {
	t.Parallel()
	out := t.TempDir()
	args := []string{"run", "-dry", "-input", "out=" + out, "definitions/approval.yaml"}
	code, stdout, _ := invoke(t, "", args...)
	require.Equal(t, exitOK, code)
	require.Contains(t, stdout, `would run draft: template {"text":"Dear reader, version 2 is out."}`+"\n")
	require.Contains(t, stdout, `would run publish: write {"path":"`+filepath.Join(out, "note.txt")+`","text":""}`+"\n")
	require.Contains(t, stdout, "shelve: skipped: ")
	require.Contains(t, stdout, "\nno step was run\n")
	missing(t, filepath.Join(out, "note.txt"))
	expect(t, exitOK, "would run shelve: ", "", append(args, "-answer", "approve=never")...)
	expect(t, exitOK, "would run M[1]/no: ", "", "run", "-dry", "-answer", "M[0]/ask=no", file(t, "map.yaml", `
version: 1
nodes:
  - id: M
    params: {l: [1, 2]}
    map: {over: l}
    graph: {nodes: [{id: ask, kind: gate, branches: {approved: yes_, rejected: "no"}}, {id: yes_, kind: template, config: {text: x}}, {id: "no", kind: template, config: {text: x}}]}
`))

	nested := file(t, "nested.yaml", `
version: 1
inputs: [files]
nodes:
  - {id: S, graph: {nodes: [{id: x, kind: exec, config: {command: [touch, `+out+`/x]}}]}}
  - {id: M, kind: exec, map: {over: files}, config: {command: [touch, '`+out+`/{{param "item"}}']}}
`)
	code, stdout, stderr := invoke(t, "", "run", "-dry", "-input", `files:=["a","b"]`, nested)
	require.Equal(t, exitOK, code, stderr)
	for _, want := range []string{"would run S/x: exec", "would run M[0]: exec", out + "/b\"]"} {
		require.Contains(t, stdout, want)
	}
	missing(t, filepath.Join(out, "x"))
	missing(t, filepath.Join(out, "a"))
}

// If a step makes the list of a map, the items are unknown. A dry run then shows the work for one item, and the steps after the map.
func TestDryMapOverUnknownItems(t *testing.T) {
	t.Parallel()
	code, stdout, stderr := invoke(t, "", "run", "-dry", file(t, "map.yaml", `
version: 1
nodes:
  - {id: list, kind: exec, config: {command: [ls]}}
  - {id: M, kind: template, after: {from: list, key: stdout, param: items}, map: {over: items}, config: {text: '{{param "item"}}'}}
  - id: S
    after: {from: list, param: files}
    graph: {nodes: [{id: G, map: {over: files}, graph: {nodes: [{id: x, kind: template, config: {text: '{{input "item"}}'}}]}}]}
  - {id: end, kind: template, after: [M, S], config: {text: done}}
`))
	require.Equal(t, exitOK, code, stderr)
	require.Equal(t, `would run list: exec {"command":["ls"]}
would run M[]: template {"text":"{{param \"item\"}}"}, for each item of a list that a step makes
would run S/G[]: its graph, for each item of a list that a step makes
would run end: template {"text":"done"}
no step was run
`, stdout)
}

// While one process performs a run, a command posts an answer to the store. The process accepts or refuses the answer, and the command reports
// which.
func TestAnswerForAnotherProcess(t *testing.T) {
	t.Parallel()
	definition := file(t, "choices.yaml", "version: 1\nnodes: [{id: g, kind: gate, gate: {choices: [left, right]}}]\n")
	args := []string{"-store", filepath.Join(t.TempDir(), "runs.db"), "-run", "r", definition}
	url, code := shown(t, t.Context(), append(args, "-ui", ":0")...)
	waiting(t, url)
	answer := append([]string{"run"}, append(args, "-lease", "1m", "-answer")...)
	expect(t, exitWaiting, `did you mean "left"?`, "", append(answer, "g=lefft")...)
	expect(t, exitWaiting, "another process performs the run r: it has the answers", "", append(answer, "g=left")...)
	require.Equal(t, exitOK, <-code)
}

// If a second command continues a run, its progress also counts the nodes that ended under the first command.
func TestProgressOfALaterLife(t *testing.T) {
	t.Parallel()
	args := []string{"run", "-store", filepath.Join(t.TempDir(), "runs.db"), "-progress", "plain", "-input", "out=" + t.TempDir(), "definitions/approval.yaml"}
	expect(t, exitWaiting, "run suspended", "", args...)
	expect(t, exitOK, "[4/4] run completed", "", append(args, "-answer", "approve=yes")...)
}

// The inputs of a run reach the items of maps and the nodes of sub-graphs, in a later process, too.
func TestInputsInside(t *testing.T) {
	t.Parallel()
	definition := file(t, "inside.yaml", `
version: 1
inputs: [who]
nodes:
  - {id: list, kind: jq, params: {input: [1, 2]}, config: {query: .}}
  - {id: ask, kind: gate, after: list}
  - {id: M, kind: template, after: [ask, {from: list, param: items}], map: {over: items}, config: {text: '{{param "item"}} {{input "who"}}'}}
  - {id: S, after: ask, graph: {nodes: [{id: x, kind: template, config: {text: '{{input "who"}}'}}]}}
  - id: G
    after: [ask, {from: list, param: items}]
    map: {over: items}
    graph: {nodes: [{id: x, kind: template, config: {text: '{{input "item"}} {{input "who"}}'}}]}
`)
	expect(t, exitOK, "", "", "vet", definition)
	db := filepath.Join(t.TempDir(), "runs.db")
	expect(t, exitWaiting, "run suspended", "", "run", "-store", db, "-input", "who=Ada", definition)
	expect(t, exitWaiting, "continues", "", "run", "-store", db, definition)
	expect(t, exitWaiting, "continues", "", "run", "-store", db, "-input", "who=Ada", definition) // the run is found by its inputs, although a process continued it without them
	code, stdout, stderr := invoke(t, "", "run", "-store", db, "-answer", "ask=yes", definition)
	require.Equal(t, exitOK, code, stdout+stderr)
	for _, want := range []string{`"1 Ada"`, `"2 Ada"`, `"S": "Ada"`} {
		require.Contains(t, stdout, want)
	}
	require.Equal(t, 2, strings.Count(stdout, `"1 Ada"`), stdout)
}

// If the file of a store is removed during a run, the run is lost, and the command reports this.
func TestRemovedStore(t *testing.T) {
	t.Parallel()
	db := filepath.Join(t.TempDir(), "runs.db")
	definition := file(t, "a.yaml", "version: 1\ninputs: [db]\nnodes: [{id: a, kind: exec, config: {command: [rm, '{{input \"db\"}}']}}]\n")
	code, stdout, stderr := invoke(t, "", "run", "-store", db, "-input", "db="+db, definition)
	require.Equal(t, exitProblems, code, stdout+stderr)
	require.Contains(t, stderr, db+" was removed or replaced during the run: the run is not kept")
	require.Contains(t, stdout, "run completed")
}
