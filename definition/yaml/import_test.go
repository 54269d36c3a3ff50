package yaml_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn/definition"
	importer "github.com/seed-c794f7ef/kahn/definition/import"
	"github.com/seed-c794f7ef/kahn/definition/yaml"
)

// The importer's formats may also be written as YAML, and problems then have their places in the YAML text.
func TestImport(t *testing.T) {
	t.Parallel()
	loader := definition.Loader{Parse: importer.From(yaml.Parse), File: "flow.yaml"}
	doc, err := loader.Load([]byte(`
steps:
  - id: call-external-api
    type: action
    config:
      action: github.pr.create
      retryPolicy:
        maxAttempts: 5
        backoff: exponential
        initialDelayMs: 2000
        maxDelayMs: 60000
    next: [END]
`))
	require.NoError(t, err)
	text, err := yaml.Encode(doc.Graph)
	require.NoError(t, err)
	want, err := yaml.Decode([]byte(`
version: 1
defaults: {retry: {max_attempts: 3, initial_delay: 1s, multiplier: 2, max_delay: 30s, jitter: none}}
nodes:
  - id: call-external-api
    kind: action
    config: {action: github.pr.create}
    retry: {max_attempts: 5, initial_delay: 2s, multiplier: 2, max_delay: 1m, jitter: none}
  - {id: end, kind: end, after: call-external-api}
`), definition.Limits{})
	require.NoError(t, err)
	wantText, err := yaml.Encode(want)
	require.NoError(t, err)
	require.Equal(t, string(wantText), string(text))

	_, err = loader.Load([]byte("steps:\n  - id: a\n    disabled: yes\n    retryPolicy:\n      maxAttempt: 3\n"))
	require.EqualError(t, err, `definition: 2 problems
	flow.yaml:3:15: $.steps[0].disabled: node "a": readers of YAML disagree about a plain yes; quote it, or write it as JSON does
	flow.yaml:5:7: $.steps[0].retryPolicy.maxAttempt: node "a": unknown field "maxAttempt"; did you mean "maxAttempts"?`)
	_, err = loader.Load([]byte("steps:\n\t- id: a\n"))
	require.EqualError(t, err, `definition: flow.yaml:2:1: $.steps: the line is indented by a tab; YAML is indented by spaces`)
}
