package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A run that fails undoes what its steps have done, the last step first, with their outputs, and reports that.
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

// The kinds of a host are those of its compensations, too.
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
