package importer_test

import (
	"errors"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn/definition"
	importer "github.com/seed-c794f7ef/kahn/definition/import"
)

// Each mistake in a document, and each construct without an equivalent, is reported with a message and its place.
func TestWrongDocuments(t *testing.T) {
	t.Parallel()
	steps := func(s string) string { return `{"steps": [` + s + `]}` }
	group := func(g, s string) string { return `{"groups": [{` + g + `}], "steps": [{` + s + `}]}` }
	loop := func(id, g string) string {
		return `{"id": "` + id + `", "type": "loop", "config": {"group": "` + g + `", "over": "x"}}`
	}
	loopOf := func(s string) string {
		return `{"groups": [{"id": "g", "steps": []}], "steps": [{"id": "l", "type": "loop", "config": {"group": "g"` + s + `}}]}`
	}
	playbook := func(s string) string { return `{"workflow": [` + s + `]}` }
	lens := func(s string) string { return `{"nodes": [{"id": "a", "lens_id": "x", ` + s + `}]}` }
	for name, row := range map[string]struct{ document, want string }{
		"neither":            {`{"version": 1, "nodes": [{"id": "a"}]}`, `line 1, column 1: $: the document has neither "steps", nor a "workflow", nor "nodes" with "source_node_id" and "target_node_id" in its "edges"`},
		"a list":             {`[]`, `line 1, column 1: $: expected an object, got a list`},
		"syntax":             {`{"steps": [}`, `line 1, column 12: $.steps[0]: expected a value, got '}'`},
		"no list":            {`{"spec": {}}`, `line 1, column 1: $: the field "steps" is missing`},
		"unknown at the top": {`{"steps": [], "metdata": {}}`, `line 1, column 15: $.metdata: unknown field "metdata"; did you mean "metadata"?`},
		"two lists":          {`{"steps": [{"id": "a"}], "spec": {"steps": [{"id": "b"}]}}`, `line 1, column 44: $.spec.steps: the document has steps at the top and in its spec`},
		"two names":          {`{"steps": [], "name": "one", "metadata": {"name": "two"}}`, `line 1, column 51: $.metadata.name: the document is named "one" and "two"`},
		"two timeouts":       {steps(`{"id": "a", "timeoutMs": 5, "config": {"timeoutMs": 7}}`), `line 1, column 64: $.steps[0].config.timeoutMs: node "a": timeoutMs occurs in the step and in its config`},
		"two policies":       {steps(`{"id": "a", "retryPolicy": {}, "config": {"retryPolicy": {}}}`), `line 1, column 69: $.steps[0].config.retryPolicy: node "a": retryPolicy occurs in the step and in its config`},
		"no steps at all":    {`{"spec": {"steps": [], "groups": []}}`, `line 1, column 20: $.nodes: there are no nodes, so there is nothing to run`},
		"a tree":             {`{"type": "Sequential", "children": []}`, `line 1, column 1: $: a tree of components is a program that makes a graph; write the graph that it makes, as nodes and edges`},

		"a group without an id": {group(`"steps": []`, `"id": "a"`), `line 1, column 13: $.groups[0]: the field "id" is missing`},
		"a group twice":         {`{"groups": [{"id": "g"}, {"id": "g"}], "steps": [{"id": "l", "type": "loop", "config": {"group": "g", "over": "x"}}]}`, `line 1, column 33: $.groups[1].id: there is a group "g" already`},
		"a group of nobody":     {group(`"id": "g", "steps": ["a"]`, `"id": "a"`), `line 1, column 20: $.groups[0].id: no step of type "loop" performs the group "g", so its steps would never run`},
		"a step in two groups": {`{"groups": [{"id": "g", "steps": ["a"]}, {"id": "h", "steps": ["a"]}], "steps": [{"id": "a"}, ` + loop("l", "g") + `, ` + loop("m", "h") + `]}`,
			`line 1, column 64: $.groups[1].steps[0]: the step "a" is in the group "g" already`},
		"a member that is not there": {`{"groups": [{"id": "g", "steps": ["fecth"]}], "steps": [{"id": "fetch"}, ` + loop("l", "g") + `]}`,
			`line 1, column 35: $.groups[0].steps[0]: there is no step "fecth"; did you mean "fetch"?`},
		"into a group": {`{"groups": [{"id": "g", "steps": ["a"]}], "steps": [{"id": "a"}, {"id": "b", "next": "a"}, ` + loop("l", "g") + `]}`,
			`line 1, column 86: $.steps[1].next: node "b": the step "a" is in the group "g"; lead to the step that performs the group`},
		"out of a group": {`{"groups": [{"id": "g", "steps": ["a"]}], "steps": [{"id": "a", "next": "b"}, {"id": "b"}, ` + loop("l", "g") + `]}`,
			`line 1, column 73: $.steps[0].next: node "a": there is no step "b" in the group "g", whose steps lead to one another; what follows the group is in the next of the step that performs it`},
		"a group in itself": {`{"groups": [{"id": "g", "steps": ["l"]}], "steps": [` + loop("l", "g") + `, ` + loop("m", "g") + `]}`,
			`line 1, column 101: $.steps[0].config.group: node "l": the group "g" performs itself`},
		"a loop without a config": {steps(`{"id": "l", "type": "loop"}`), `line 1, column 12: $.steps[0]: node "l": a loop has a config with the "group" that it performs`},
		"a loop without a group":  {steps(`{"id": "l", "type": "loop", "config": {"until": "x", "maxIterations": 2}}`), `line 1, column 50: $.steps[0].config: node "l": a loop names the "group" that it performs`},
		"a group that is not there": {`{"groups": [{"id": "refine", "steps": []}], "steps": [` + loop("l", "refien") + `, ` + loop("m", "refine") + `]}`,
			`line 1, column 103: $.steps[0].config.group: node "l": there is no group "refien"; did you mean "refine"?`},
		"a loop without an end":  {loopOf(``), `line 1, column 88: $.steps[0].config: node "l": a loop needs "until", the expression that ends it, or "over", the parameter with the items`},
		"a loop without a bound": {loopOf(`, "until": "x"`), `line 1, column 88: $.steps[0].config: node "l": a loop with until needs "maxIterations", its bound`},
		"while":                  {loopOf(`, "until": "x", "maxIterations": 3, "while": "y"`), `line 1, column 137: $.steps[0].config.while: node "l": a loop ends by until: write the opposite condition there`},
		"both loops":             {loopOf(`, "until": "x", "over": "y"`), `line 1, column 125: $.steps[0].config.over: node "l": a loop has until or over, not both: until repeats the group, over performs it once for each item`},
		"a loop and a list":      {loopOf(`, "over": "y", "collect": true`), `line 1, column 111: $.steps[0].config.over: node "l": maxIterations, collect and delayMs are for a loop with until; one with over takes each item once and collects the outputs`},

		"the type of a port":          {steps(`{"id": "a", "inputs": [{"name": "x", "type": "strng"}]}`), `line 1, column 57: $.steps[0].inputs[0].type: node "a": the type "strng" of a port is none of any, array, boolean, integer, json, list, number, object, string, text, unknown, alone or followed by []; did you mean "string"?`},
		"a port without a name":       {steps(`{"id": "a", "outputs": [{"type": "text"}]}`), `line 1, column 36: $.steps[0].outputs[0]: node "a": the field "name" is missing`},
		"the whole and a port":        {steps(`{"id": "a", "outputs": {"output": "text", "x": "any"}}`), `line 1, column 35: $.steps[0].outputs: node "a": the port "output" is the whole output: its type cannot stand beside the types of other ports`},
		"a connection without a step": {steps(`{"id": "a", "next": {"sourceHandle": "x"}}`), `line 1, column 32: $.steps[0].next: node "a": the field "target" is missing`},

		"a playbook":             {`{"workflow": {}}`, `line 1, column 14: $.workflow: expected a list, got an object`},
		"a workbook":             {`{"workflow": [{"step": "a"}], "workbook": []}`, `line 1, column 31: $.workbook: tools by name have no equivalent; write the tool in the step that uses it`},
		"a step without a name":  {playbook(`{"tool": "x"}`), `line 1, column 15: $.workflow[0]: the field "step" is missing`},
		"a tool without a kind":  {playbook(`{"step": "a", "tool": {"code": "x"}}`), `line 1, column 37: $.workflow[0].tool: node "a": the field "kind" is missing`},
		"a loop of a playbook":   {playbook(`{"step": "a", "tool": "x", "loop": {}}`), `line 1, column 42: $.workflow[0].loop: node "a": a step with a loop has no equivalent here: the names of its item and its result are known to the tool only; write a node with a map`},
		"a transition":           {playbook(`{"step": "build", "next": [{"step": "tset"}]}, {"step": "test"}`), `line 1, column 51: $.workflow[0].next[0].step: node "build": there is no node "tset"; did you mean "test"?`},
		"a transition to nobody": {playbook(`{"step": "a", "next": [{"when": "x"}]}`), `line 1, column 38: $.workflow[0].next[0]: node "a": the field "step" is missing`},
		"two conditions":         {playbook(`{"step": "a", "next": [{"step": "a", "when": "x", "condition": "y"}]}`), `line 1, column 78: $.workflow[0].next[0].condition: node "a": when and condition mean the same; use one of them`},
		"else": {playbook(`{"step": "a", "next": [{"when": "x", "then": "b"}, {"else": "c"}]}, {"step": "b"}`), `2 problems` + "\n\t" +
			`line 1, column 66: $.workflow[0].next[1]: node "a": the field "step" is missing` + "\n\t" +
			`line 1, column 67: $.workflow[0].next[1].else: node "a": all transitions are judged on their own; write the opposite condition in another transition`},
		"a parameter from elsewhere": {playbook(`{"step": "a", "next": [{"step": "b", "with": {"x": "{{ workload.region }}"}}]}, {"step": "b"}`),
			`line 1, column 66: $.workflow[0].next[0].with.x: node "a": the parameter "x" is neither a value nor the result of the step before, such as {{ a.result.name }}`},
		"parameters that differ": {playbook(`{"step": "a", "next": {"step": "c", "with": {"x": 1}}}, {"step": "b", "next": {"step": "c", "with": {"x": 2}}}, {"step": "c"}`), `2 problems` + "\n\t" +
			`line 1, column 65: $.workflow[0].next.with.x: node "a": the transitions to the step "c" do not agree about the parameter "x", which has one value` + "\n\t" +
			`line 1, column 121: $.workflow[1].next.with.x: node "b": the transitions to the step "c" do not agree about the parameter "x", which has one value`},
		"a result on condition": {playbook(`{"step": "a", "next": {"step": "c", "when": "x", "with": {"x": "{{ a.result }}"}}}, {"step": "b", "next": "c"}, {"step": "c"}`),
			`line 1, column 78: $.workflow[0].next.with.x: node "a": the step "c" has other transitions, too: it would get the parameter "x" although this transition is not taken`},
		"seconds": {playbook(`{"step": "a", "tool": "x", "retry": {"initial_delay": -1}}`), `line 1, column 69: $.workflow[0].retry.initial_delay: node "a": expected a number of seconds, got -1`},

		"a version in a config": {lens(`"config": {"version_id": "v"}`), `line 1, column 51: $.nodes[0].config.version_id: node "a": the version_id stands beside the config`},
		"unknown in a step":     {steps(`{"id": "a", "nxt": []}`), `line 1, column 24: $.steps[0].nxt: node "a": unknown field "nxt"; did you mean "next"?`},
		"twice":                 {steps(`{"id": "a", "next": [], "next": []}`), `line 1, column 36: $.steps[0].next: node "a": the field occurs twice`},
		"a description":         {steps(`{"id": "a", "description": "x"}`), `line 1, column 24: $.steps[0].description: node "a": nodes have no descriptions; a label is one line`},
		"a mock":                {steps(`{"id": "a", "mock": {}}`), `line 1, column 24: $.steps[0].mock: node "a": a mock is not part of a workflow: it is an option of a run, or part of a case of its tests`},
		"skip":                  {steps(`{"id": "a", "skip": true}`), `line 1, column 24: $.steps[0].skip: node "a": a step that is left out is disabled: true`},
		"the group of a step":   {steps(`{"id": "a", "group": "g"}`), `line 1, column 24: $.steps[0].group: node "a": a step is in the group that lists it in its steps; a loop names the group that it performs in its config`},
		"metadata":              {`{"metadata": {"description": "x"}, "steps": [{"id": "a"}]}`, `line 1, column 15: $.metadata.description: workflows have no descriptions`},
		"triggers":              {`{"spec": {"triggers": [], "steps": [{"id": "a"}]}}`, `line 1, column 11: $.spec.triggers: a trigger is a step of type "trigger"`},
		"root inputs":           {`{"rootInputs": {}, "nodes": [{"id": "a", "lens_id": "x"}]}`, `line 1, column 2: $.rootInputs: the inputs are given when a run begins`},
		"next":                  {steps(`{"id": "build", "next": ["tset"]}, {"id": "test"}`), `line 1, column 37: $.steps[0].next[0]: node "build": there is no node "tset"; did you mean "test"?`},
		"a branch":              {steps(`{"id": "a", "branches": {"a b": 1}}`), `line 1, column 44: $.steps[0].branches["a b"]: node "a": expected text, got a number`},
		"unknown in a policy":   {steps(`{"id": "a", "retryPolicy": {"initialDelay": 1}}`), `line 1, column 40: $.steps[0].retryPolicy.initialDelay: node "a": unknown field "initialDelay"; did you mean "initialDelayMs"?`},
		"linear":                {steps(`{"id": "a", "config": {"retryPolicy": {"backoff": "linear"}}}`), `line 1, column 62: $.steps[0].config.retryPolicy.backoff: node "a": the backoff "linear" is not supported; there are exponential, fixed and constant`},
		"backoff":               {steps(`{"id": "a", "retryPolicy": {"backoff": "exponentia"}}`), `line 1, column 51: $.steps[0].retryPolicy.backoff: node "a": "exponentia" is none of constant, exponential, fixed; did you mean "exponential"?`},
		"milliseconds":          {steps(`{"id": "a", "timeoutMs": 1.5}`), `line 1, column 37: $.steps[0].timeoutMs: node "a": expected a whole number of milliseconds, got 1.5`},
		"the type of an end":    {steps(`{"id": "END", "type": "action"}`), `line 1, column 34: $.steps[0].type: node "END": the step "END" is the end of the workflow, which has no type of its own`},
		"order": {steps(`{"id": "a", "config": {"timeoutMs": "x"}, "nxt": [], "next": ["b"]}`), "3 problems\n\t" +
			"line 1, column 48: $.steps[0].config.timeoutMs: node \"a\": expected a number, got text\n\t" +
			"line 1, column 54: $.steps[0].nxt: node \"a\": unknown field \"nxt\"; did you mean \"next\"?\n\t" +
			"line 1, column 74: $.steps[0].next[0]: node \"a\": there is no node \"b\""},
		"found later":      {steps(`{"id": "a", "disabled": 1}`), `line 1, column 36: $.nodes[0].disabled: node "a": expected a boolean, got 1; did you mean "true"?`},
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
		assert.EqualError(t, err, "definition: "+row.want, name)
	}
}

// An Error lists at most 100 problems, and counts the others.
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

// FuzzParse looks for documents on which the importer panics, or whose converted form has a problem that the importer should have reported.
func FuzzParse(f *testing.F) {
	for _, file := range []string{"steps", "lenses", "loops", "ports", "playbook", "tree", "rows"} {
		data, err := os.ReadFile("testdata/" + file + ".json")
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
