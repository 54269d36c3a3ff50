package importer_test

import (
	"errors"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn/definition"
	importer "github.com/seed-c794f7ef/kahn/definition/import"
)

// What a document says wrongly, and what has no equivalent, has a message with the place.
func TestWrongDocuments(t *testing.T) {
	t.Parallel()
	steps := func(s string) string { return `{"steps": [` + s + `]}` }
	lens := func(s string) string { return `{"nodes": [{"id": "a", "lens_id": "x", ` + s + `}]}` }
	for name, row := range map[string]struct{ document, want string }{
		"neither":             {`{"version": 1, "nodes": [{"id": "a"}]}`, `line 1, column 1: $: the document has neither "steps" nor "nodes" with "source_node_id" and "target_node_id" in its "edges"`},
		"a list":              {`[]`, `line 1, column 1: $: expected an object, got a list`},
		"syntax":              {`{"steps": [}`, `line 1, column 12: $.steps[0]: expected a value, got '}'`},
		"no list":             {`{"spec": {}}`, `line 1, column 1: $: the field "steps" is missing`},
		"unknown at the top":  {`{"steps": [], "metdata": {}}`, `line 1, column 15: $.metdata: unknown field "metdata"; did you mean "metadata"?`},
		"two lists":           {`{"steps": [{"id": "a"}], "spec": {"steps": [{"id": "b"}]}}`, `line 1, column 44: $.spec.steps: the document has steps at the top and in its spec`},
		"two names":           {`{"steps": [], "name": "one", "metadata": {"name": "two"}}`, `line 1, column 51: $.metadata.name: the document is named "one" and "two"`},
		"two timeouts":        {steps(`{"id": "a", "timeoutMs": 5, "config": {"timeoutMs": 7}}`), `line 1, column 64: $.steps[0].config.timeoutMs: node "a": timeoutMs occurs in the step and in its config`},
		"two policies":        {steps(`{"id": "a", "retryPolicy": {}, "config": {"retryPolicy": {}}}`), `line 1, column 69: $.steps[0].config.retryPolicy: node "a": retryPolicy occurs in the step and in its config`},
		"groups":              {`{"spec": {"steps": [], "groups": []}}`, `line 1, column 24: $.spec.groups: loops over groups of steps have no equivalent; write the steps of a group as the graph of a node, with a loop`},
		"unknown in a step":   {steps(`{"id": "a", "nxt": []}`), `line 1, column 24: $.steps[0].nxt: node "a": unknown field "nxt"; did you mean "next"?`},
		"twice":               {steps(`{"id": "a", "next": [], "next": []}`), `line 1, column 36: $.steps[0].next: node "a": the field occurs twice`},
		"a description":       {steps(`{"id": "a", "description": "x"}`), `line 1, column 24: $.steps[0].description: node "a": nodes have no descriptions; a label is one line`},
		"next":                {steps(`{"id": "build", "next": ["tset"]}, {"id": "test"}`), `line 1, column 37: $.steps[0].next[0]: node "build": there is no node "tset"; did you mean "test"?`},
		"a branch":            {steps(`{"id": "a", "branches": {"a b": 1}}`), `line 1, column 44: $.steps[0].branches["a b"]: node "a": expected text, got a number`},
		"unknown in a policy": {steps(`{"id": "a", "retryPolicy": {"initialDelay": 1}}`), `line 1, column 40: $.steps[0].retryPolicy.initialDelay: node "a": unknown field "initialDelay"; did you mean "initialDelayMs"?`},
		"linear":              {steps(`{"id": "a", "config": {"retryPolicy": {"backoff": "linear"}}}`), `line 1, column 62: $.steps[0].config.retryPolicy.backoff: node "a": the backoff "linear" is not supported; there are exponential, fixed and constant`},
		"backoff":             {steps(`{"id": "a", "retryPolicy": {"backoff": "exponentia"}}`), `line 1, column 51: $.steps[0].retryPolicy.backoff: node "a": "exponentia" is none of constant, exponential, fixed; did you mean "exponential"?`},
		"milliseconds":        {steps(`{"id": "a", "timeoutMs": 1.5}`), `line 1, column 37: $.steps[0].timeoutMs: node "a": expected a whole number of milliseconds, got 1.5`},
		"the type of an end":  {steps(`{"id": "END", "type": "action"}`), `line 1, column 34: $.steps[0].type: node "END": the step "END" is the end of the workflow, which has no type of its own`},
		"order": {steps(`{"id": "a", "config": {"timeoutMs": "x"}, "nxt": [], "next": ["b"]}`), "3 problems\n\t" +
			"line 1, column 48: $.steps[0].config.timeoutMs: node \"a\": expected a number, got text\n\t" +
			"line 1, column 54: $.steps[0].nxt: node \"a\": unknown field \"nxt\"; did you mean \"next\"?\n\t" +
			"line 1, column 74: $.steps[0].next[0]: node \"a\": there is no node \"b\""},
		"found later":      {steps(`{"id": "a", "disabled": 1}`), `line 1, column 36: $.nodes[0].disabled: node "a": expected a boolean, got 1`},
		"found by Compile": {steps(`{"id": "a", "next": "b"}, {"id": "b", "next": ["a"]}`), `line 1, column 59: $.nodes[1].next[0]: node "b": cycle: "a" -> "b" -> "a"`},

		"a node's config":   {lens(`"config": {"timeout": 1}`), `line 1, column 51: $.nodes[0].config.timeout: node "a": unknown field "timeout"; did you mean "timeout_ms"?`},
		"cause":             {lens(`"config": {"retry": {"retry_on": ["provider_eror"]}}`), `line 1, column 74: $.nodes[0].config.retry.retry_on[0]: node "a": "provider_eror" is none of contract_violated, provider_error, rate_limit, timeout; did you mean "provider_error"?`},
		"merge":             {lens(`"config": {"merge": "json"}`), `line 1, column 60: $.nodes[0].config.merge: node "a": "json" is none of array, concat, json_object, last_write_wins`},
		"parents":           {lens(`"config": {"on_parent_failure": "skp"}`), `line 1, column 72: $.nodes[0].config.on_parent_failure: node "a": "skp" is none of propagate, skip, substitute_default; did you mean "skip"?`},
		"ordinal":           {lens(`"ordinal": "1"`), `line 1, column 51: $.nodes[0].ordinal: node "a": expected a number, got text`},
		"half an edge":      {`{"nodes": [{"id": "a"}], "edges": [{"source_node_id": "a"}]}`, `line 1, column 36: $.edges[0]: the field "target_node_id" is missing`},
		"an edge to nobody": {`{"nodes": [{"id": "a"}], "edges": [{"source_node_id": "a", "target_node_id": "b"}]}`, `line 1, column 78: $.edges[0].target_node_id: there is no node "b"`},
		"no nodes":          {`{"edges": [{"source_node_id": "end", "target_node_id": "end"}]}`, `line 1, column 1: $: the field "nodes" is missing`},
	} {
		_, err := definition.Loader{Parse: importer.Parse}.Load([]byte(row.document))
		require.EqualError(t, err, "definition: "+row.want, name)
	}
}

// More problems than people read are counted.
func TestManyProblems(t *testing.T) {
	t.Parallel()
	document := `{"steps": [{"id": "a"`
	for range 150 {
		document += `, "x": 1`
	}
	_, err := importer.Parse([]byte(document+`}]}`), definition.Limits{})
	var all *definition.Error
	require.ErrorAs(t, err, &all)
	require.Len(t, all.Problems, 100)
	require.Equal(t, 50, all.More)
}

// FuzzParse looks for documents that break the importer, or of which it makes what only a defect of its own explains.
func FuzzParse(f *testing.F) {
	for _, file := range []string{"testdata/steps.json", "testdata/lenses.json"} {
		data, err := os.ReadFile(file)
		require.NoError(f, err)
		f.Add(data)
	}
	f.Add([]byte(`{"spec": {"steps": [{"id": "END", "next": ["end", 1], "branches": {"": []}, "config": {"expression": null}}]}}`))
	f.Add([]byte(`{"edges": [{"source_node_id": "end"}], "nodes": [{"ordinal": 1e9, "config": {"retry": {"retry_on": ["timeout"]}}}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		root, err := importer.Parse(data, definition.Limits{})
		if err == nil {
			_, err = definition.FromTree(root, definition.Limits{})
		}
		var all *definition.Error
		if err == nil {
			return
		}
		require.True(t, errors.As(err, &all), "%v", err)
		require.NotErrorIs(t, err, definition.ErrVersion)
		for _, p := range all.Problems {
			require.NotEmpty(t, p.Message)
			require.NotEmpty(t, p.Path)
		}
	})
}
