package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A failed run undoes its steps, the last step first, with their outputs, and reports what it undid.
func TestRunUndoes(t *testing.T) {
	t.Parallel()
	out := t.TempDir()
	definition := file(t, "order.yaml", `
version: 1
inputs: [out]
nodes:
  - id: reserve
    kind: template
    config: {text: "seat 7"}
    compensate: {kind: write, config: {path: '{{input "out"}}/freed', text: '{{output}}, certain: {{certain}}'}}
  - id: pay
    after: reserve
    graph:
      nodes:
        - id: charge
          kind: fail
          config: {message: declined}
          compensate: {kind: write, config: {path: '{{input "out"}}/refunded', text: '{{with output}}{{.}}{{else}}nothing is known{{end}}, certain: {{certain}}'}}
  - id: never
    kind: template
    after: pay
    config: {text: x}
    compensate: {kind: write, config: {path: '{{input "out"}}/wrong', text: x}}
  - id: book
    kind: template
    config: {text: x}
    compensate: {kind: fail, config: {message: the shop is closed}}
    compensate_retry: {max_attempts: 2, initial_delay: 1ms}
`)
	code, stdout, stderr := invoke(t, "", "run", "-input", "out="+out, "-progress", "plain", definition)
	require.Equal(t, exitProblems, code, "%s%s", stdout, stderr)
	contains(t, filepath.Join(out, "freed"), "seat 7, certain: true")
	contains(t, filepath.Join(out, "refunded"), "nothing is known, certain: false")
	missing(t, filepath.Join(out, "wrong"))
	require.Contains(t, stdout, "reserve: undone\npay/charge: undone\nbook: could not be undone: the shop is closed\n")
	require.Contains(t, stderr, "reserve: compensated in ")
	require.Contains(t, stderr, "pay/charge: compensating, its effect is unknown")
	require.Contains(t, stderr, "book: compensation failed after ")
	require.Less(t, strings.Index(stderr, "pay/charge: compensated"), strings.Index(stderr, "reserve: compensating"))
}

// -kinds also applies to the kinds of compensations.
func TestVetKindsOfCompensations(t *testing.T) {
	t.Parallel()
	definition := file(t, "order.yaml", `
version: 1
nodes:
  - id: pay
    kind: charge
    compensate: {kind: refnd, config: {any: thing}}
`)
	expect(t, exitProblems, `order.yaml:6:24: node "pay": unknown kind "refnd"; did you mean "refund"?`, "", "vet", "-kinds", "charge,refund", definition)
	expect(t, exitOK, "", "", "vet", "-kinds", "charge,refnd", definition)
}

// A case may mock compensations and may expect which nodes were undone. Backoffs between attempts of a compensation take no time.
func TestTestUndoes(t *testing.T) {
	t.Parallel()
	definition := `
version: 1
nodes:
  - {id: reserve, kind: template, config: {text: seat}, compensate: {kind: template, config: {text: freed}}}
  - {id: charge, kind: template, config: {text: x}, after: reserve, compensate: {kind: template, config: {text: refunded}}, compensate_retry: {max_attempts: 3, initial_delay: 1h}}
  - {id: ship, kind: template, config: {text: x}, after: charge}
`
	cases := func(undos, expected string) string {
		return `
cases:
  - name: no truck
    real: [reserve]
    mocks: {charge: {output: receipt}, ship: {error: no truck}}
    undos: ` + undos + `
    expect: {status: failed, nodes: {` + expected + `}}
`
	}
	for name, row := range map[string]struct {
		tests, says string
		code        int
	}{
		"undone":        {cases("{charge: {sequence: [{error: busy}, {}]}}", "reserve: {status: completed, compensation: done}, charge: {compensation: done}, ship: {compensation: none}"), "1 case, 0 failed", exitOK},
		"could not be":  {cases("{charge: {error: busy}}", "charge: {compensation: failed}, reserve: {compensation: done}"), "1 case, 0 failed", exitOK},
		"mocked":        {cases("{}", "charge: {compensation: none}, reserve: {compensation: done}"), "1 case, 0 failed", exitOK},
		"it was not":    {cases("{charge: {error: closed, permanent: true}}", "charge: {compensation: done}"), `node "charge": expected compensation done: failed: closed`, exitProblems},
		"no such node":  {cases("{chrge: {}}", "charge: completed"), `unknown node "chrge"`, exitProblems},
		"none to undo":  {cases("{ship: {}}", "charge: completed"), `node "ship" has no Compensate`, exitProblems},
		"a value":       {cases("{charge: {output: 1}}", "charge: completed"), "output", exitProblems},
		"not an answer": {cases("{}", "charge: {compensation: undone}"), "undone", exitProblems},
	} {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, "order.yaml"), []byte(definition), 0o600))
		tests := filepath.Join(dir, "order.test.yaml")
		require.NoError(t, os.WriteFile(tests, []byte(row.tests), 0o600))
		code, stdout, stderr := invoke(t, "", "test", tests)
		require.Equal(t, row.code, code, "%s: %s%s", name, stdout, stderr)
		require.Contains(t, stdout+stderr, row.says, name)
	}
}
