package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// gateInMap has a gate in each of two items.
const gateInMap = `
version: 1
nodes:
  - {id: q, kind: jq, params: {input: 1}, config: {query: '[1,2]'}}
  - id: each
    after: [{from: q, param: items}]
    map: {over: items}
    graph: {inputs: [item, items], nodes: [{id: ok, kind: gate, branches: {approved: pub}}, {id: pub, kind: template, config: {text: x}}]}
`

const twoGates = `
version: 1
nodes:
  - {id: one, kind: gate, branches: {approved: two, rejected: never}}
  - {id: two, kind: gate, branches: {approved: last}}
  - {id: never, kind: gate, branches: {approved: last}}
  - {id: last, kind: template, config: {text: x}, join: any_succeeded}
`

// An answer that no gate takes is reported with the reason and the gates that wait.
func TestAnswersThatNoGateTakes(t *testing.T) {
	t.Parallel()
	two, each := file(t, "two.yaml", twoGates), file(t, "each.yaml", gateInMap)
	stored := []string{"run", "-store", filepath.Join(t.TempDir(), "runs.db"), "-run", "r", two}
	expect(t, exitWaiting, `no gate took the answer for "two": the run has not reached it; the run waits for one`, "", append(stored, "-answer", "two=yes")...)
	expect(t, exitWaiting, "to answer: ", "", append(stored, "-answer", "one=yes")...)
	expect(t, exitWaiting, `no gate took the answer for "one": it has the answer "yes"; the run waits for two`, "", append(stored, "-answer", "one=no")...)
	expect(t, exitWaiting, `no gate took the answer for "never": it is skipped; no gate waits`, "",
		append(stored, "-answer", "one=yes", "-answer", "two=yes", "-answer", "never=yes")...)
	expect(t, exitWaiting, `no gate took the answer for "two": it has the answer "yes"; no gate waits`, "", append(stored, "-answer", "two=no")...)
	expect(t, exitOK, "run completed", "", append(stored, "-answer", "one=yes", "-answer", "two=yes")...) // the same answers again are no mistake
	expect(t, exitWaiting, `no gate took the answer for "each[7]/ok"`, "", "run", "-answer", "each[7]/ok=yes", each)
	expect(t, exitWaiting, "each[0]/ok: waits for an answer\neach[1]/ok: waits for an answer\n", "", "run", each)
	expect(t, exitUsage, `there is no gate "each/ok"; gates are each[0]/ok`, "", "run", "-answer", "each/ok=yes", each)
	expect(t, exitOK, "no step was run", "", "run", "-dry", "-answer", "each/ok=yes", each)
	expect(t, exitOK, "run completed", "", "run", "-answer", "each[0]/ok=yes", "-answer", "each[1]/ok=yes", each)
}

// A gate inside a loop has the number of its iteration in its path.
func TestAnswersInALoop(t *testing.T) {
	t.Parallel()
	loop := file(t, "loop.yaml", `
version: 1
nodes:
  - id: l
    loop: {until: '$nodes.ok.output == "yes"', max_iterations: 3}
    graph: {nodes: [{id: ok, kind: gate, gate: {choices: ["yes", "no"]}}]}
`)
	expect(t, exitUsage, "gates are l#1/ok", "", "run", "-answer", "l/ok=yes", loop)
	expect(t, exitOK, "run completed", "", "run", "-answer", "l#1/ok=no", "-answer", "l#2/ok=yes", loop)
	expect(t, exitWaiting, `no gate took the answer for "l#2/ok"`, "", "run", "-answer", "l#1/ok=yes", "-answer", "l#2/ok=yes", loop)
}

// A flag with name=value takes each name once.
func TestNamesGivenTwice(t *testing.T) {
	t.Parallel()
	two := file(t, "two.yaml", twoGates)
	expect(t, exitUsage, `for flag -answer: one is given twice`, "", "run", "-answer", "one=yes", "-answer", "one:=1", two)
	expect(t, exitUsage, `for flag -input: who is given twice`, "", "run", "-input", "who=x", "-input", "who=y", two)
}

// A run whose definition has changed does not continue. The command says what its user can do, and does not say that the run continues. An unchanged
// definition still continues the run.
func TestRunOfAChangedDefinition(t *testing.T) {
	t.Parallel()
	two := file(t, "two.yaml", twoGates)
	db := filepath.Join(t.TempDir(), "runs.db")
	run := func(more ...string) (int, string) {
		code, stdout, stderr := invoke(t, "", append([]string{"run", "-store", db, "-run", "r", two}, more...)...)
		return code, stdout + stderr
	}
	code, _ := run()
	require.Equal(t, exitWaiting, code)
	write := func(text string) { require.NoError(t, os.WriteFile(two, []byte(text), 0o600)) }
	refused := func(more ...string) {
		t.Helper()
		code, said := run(more...)
		require.Equal(t, exitUsage, code)
		require.Contains(t, said, "the definition has changed since the run began")
		require.Contains(t, said, "restore the file, or begin a new run with another -run")
		require.NotContains(t, said, "continues")
		require.NotContains(t, said, "Adopt")
	}
	changed := strings.ReplaceAll(twoGates, "text: x", "text: changed")
	write(changed)
	refused()
	refused("-answer", "one=yes")
	write(twoGates)
	code, said := run("-answer", "one=yes", "-answer", "two=yes")
	require.Equal(t, exitOK, code)
	require.Contains(t, said, "run r continues")
	write(changed)
	refused()
	refused("-redrive")
	refused("-redrive", "-dry")
}

// The display of a continued run names the gate for which the run waits, also if the answer is given at once.
func TestContinuedRunNamesItsGate(t *testing.T) {
	t.Parallel()
	two := file(t, "two.yaml", twoGates)
	args := []string{"run", "-store", filepath.Join(t.TempDir(), "runs.db"), "-run", "r", "-progress", "plain", two}
	expect(t, exitWaiting, "run suspended: waits for one\n", "", args...)
	_, _, stderr := invoke(t, "", append(args, "-answer", "one=yes")...)
	require.Contains(t, stderr, "run suspended: waits for one\n")
	require.NotContains(t, stderr, "waits for 1 node")
}
