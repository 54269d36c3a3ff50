package importer_test

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/definition"
	importer "github.com/seed-c794f7ef/kahn/definition/import"
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/kahntest"
)

// answers is an Evaluator that looks up the value of each text in the map.
type answers map[string]any

func (a answers) Parse(text string) (kahn.Expression, error) {
	value, ok := a[text]
	if !ok {
		return nil, errors.New("unknown text " + text)
	}
	return answer{value}, nil
}

type answer struct{ value any }

func (a answer) Evaluate(context.Context, kahn.View) (any, error) { return a.value, nil }

// allow is a moderator that rejects nothing.
func allow(context.Context, event.Phase, *kahn.Step, any) error { return nil }

func load(t *testing.T, file string, a answers) *kahn.Graph {
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	doc, err := definition.Loader{Parse: importer.Parse, Prepare: func(g *kahn.Graph) { g.Evaluator = a }}.Load(data)
	require.NoError(t, err)
	return doc.Graph
}

// requireSame compares a graph with a definition's graph.
func requireSame(t *testing.T, want string, g *kahn.Graph) {
	t.Helper()
	expected, err := definition.Decode([]byte(want), definition.Limits{})
	require.NoError(t, err)
	wantText, err := definition.Encode(expected)
	require.NoError(t, err)
	text, err := definition.Encode(g)
	require.NoError(t, err)
	require.Equal(t, string(wantText), string(text))
}

// A document of steps, with branches, guards, gates, retries and an unlisted end, becomes the expected definition.
func TestSteps(t *testing.T) {
	t.Parallel()
	g := load(t, "testdata/steps.json", answers{"{{ nodes.classify.output.score }} > 0.8": true, "{{ nodes.classify.output.needsTicket }}": true})
	requireSame(t, `{
	  "version": 1, "name": "triage",
	  "defaults": {"retry": {"max_attempts": 3, "initial_delay": "1s", "max_delay": "30s", "multiplier": 2, "jitter": "none"}},
	  "nodes": [
	    {"id": "opened", "kind": "trigger", "config": {"event": "issue.opened"}},
	    {"id": "classify", "kind": "action", "label": "Classify the issue", "config": {"action": "llm.classify"}, "after": ["opened"], "timeout": "20s",
	      "retry": {"max_attempts": 5, "initial_delay": "2s", "max_delay": "1m", "multiplier": 1, "jitter": "none"}},
	    {"id": "severe", "kind": "condition", "after": ["classify"], "test": "{{ nodes.classify.output.score }} > 0.8"},
	    {"id": "approve", "kind": "gate", "config": {"who": "on-call"}, "gate": {"timeout": "1h"}},
	    {"id": "notify", "kind": "action", "config": {"action": "chat.post"}},
	    {"id": "fix", "kind": "action", "config": {"action": "github.pr.create"}},
	    {"id": "file", "kind": "action", "config": {"action": "linear.file"}, "when": "{{ nodes.classify.output.needsTicket }}"},
	    {"id": "old", "kind": "action", "disabled": true, "ports": [{"name": "rows", "default": []}], "outputs": ["rows"]},
	    {"id": "end", "kind": "end"}
	  ],
	  "edges": [
	    {"from": "severe", "to": "file", "label": "false"}, {"from": "severe", "to": "approve", "label": "true"}, {"from": "severe", "to": "notify", "label": "true"},
	    {"from": "approve", "to": "fix", "label": "approved"}, {"from": "fix", "to": "end"}, {"from": "file", "to": "end"}
	  ]
	}`, g)

	kahntest.InFakeTime(t, func(t *testing.T) {
		busy := kahntest.Act{Err: errors.New("busy")}
		steps := &kahntest.Script{Acts: map[string][]kahntest.Act{"classify": {busy, busy, busy, busy, {Value: "done"}}, "notify": {busy, busy, busy}}}
		started := time.Now()
		r := kahntest.Run(t, g, steps.Step, kahn.Fire("opened", nil))
		require.Equal(t, kahn.RunSuspended, r.Status)
		require.Equal(t, 4*2*time.Second+(1+2)*time.Second, time.Since(started), "the delays of a policy that is fixed, and of the default")
		kahntest.RequireStatuses(t, r.Result, "opened:ok classify:ok severe:ok approve:suspended notify:F fix:waiting file:S/br end:waiting")
	})
}

// The converted form of a document of nodes and edges has the same order, causes, merges and policies.
func TestNodesAndEdges(t *testing.T) {
	t.Parallel()
	g := load(t, "testdata/lenses.json", nil)
	requireSame(t, `{
	  "version": 1, "name": "essay",
	  "nodes": [
	    {"id": "draft", "kind": "lens", "label": "Draft", "config": {"lens_id": "writer", "version_id": "v7"}, "moderation": "output", "timeout": "30s",
	      "retry": {"max_attempts": 3, "initial_delay": "250ms", "max_delay": "4s", "retry_on": ["timeout", "step_error", "contract_violated_output"]}},
	    {"id": "facts", "kind": "lens", "label": "Facts", "config": {"lens_id": "researcher", "version_id": "v2"}, "on_upstream_failure": "propagate"},
	    {"id": "join", "kind": "lens", "config": {"lens_id": "editor"}, "merge": "json_object", "merge_json": true, "on_upstream_failure": "substitute_default",
	      "after": [{"from": "draft", "param": "parts"}, {"from": "facts", "key": "text", "param": "parts"}]},
	    {"id": "End", "kind": "end", "config": {"lens_id": "end"}, "after": [{"from": "join", "param": "essay", "merge": "last_write_wins"}]}
	  ]
	}`, g)

	steps := &kahntest.Script{Acts: map[string][]kahntest.Act{
		"draft": {{Value: "Once"}}, "facts": {{Value: map[string]any{"text": "True"}}},
		"join": {{Do: func(_ context.Context, s *kahn.Step) (any, error) { return s.Params()["parts"], nil }}},
	}}
	r := kahntest.Run(t, g, steps.Step, kahn.Moderate(allow))
	require.NoError(t, r.Err)
	joined, _ := r.Node("join")
	require.Equal(t, `{"Draft":"Once","Facts":"True"}`, joined.Output)
}
