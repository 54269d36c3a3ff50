package importer_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/definition"
	importer "github.com/seed-c794f7ef/kahn/definition/import"
	"github.com/seed-c794f7ef/kahn/kahntest"
)

// A step that loops over a group becomes a node whose graph has the steps of the group.
func TestGroups(t *testing.T) {
	t.Parallel()
	g := load(t, "testdata/loops.json", answers{"{{ nodes.judge.output.good }}": true})
	requireSame(t, `{
	  "version": 1, "name": "essay",
	  "defaults": {"retry": {"max_attempts": 3, "initial_delay": "1s", "max_delay": "30s", "multiplier": 2, "jitter": "none"}},
	  "nodes": [
	    {"id": "plan", "kind": "action", "config": {"action": "llm.plan"}},
	    {"id": "rounds", "after": "plan", "loop": {"until": "{{ nodes.judge.output.good }}", "max_iterations": 4, "pause": "500ms"}, "graph": {"name": "one round", "nodes": [
	      {"id": "write", "kind": "action", "config": {"action": "llm.write"}},
	      {"id": "judge", "kind": "action", "config": {"action": "llm.judge"}, "after": "write"}
	    ]}},
	    {"id": "languages", "after": "rounds", "ports": [{"name": "languages", "default": ["de", "fr"]}], "map": {"over": "languages", "limit": 2}, "graph": {"nodes": [
	      {"id": "text", "kind": "action", "config": {"action": "llm.translate"}}
	    ]}}
	  ]
	}`, g)
	steps := &kahntest.Script{}
	r := kahntest.Run(t, g, steps.Step)
	require.NoError(t, r.Err)
	require.Len(t, r.Result.Output(), 2, "an output for each language")
}

// The types of ports become the schemas of a node's parameters and of its output. The schema of a required port does not allow null, since a
// node whose required parameter is null is skipped.
func TestTypedPorts(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("testdata/ports.json")
	require.NoError(t, err)
	doc, err := definition.Loader{Parse: importer.Parse, Prepare: func(g *kahn.Graph) { g.Schemas = anySchema{} }}.Load(data)
	require.NoError(t, err)
	requireSame(t, `{
	  "version": 1, "name": "invoices",
	  "defaults": {"retry": {"max_attempts": 3, "initial_delay": "1s", "max_delay": "30s", "multiplier": 2, "jitter": "none"}},
	  "nodes": [
	    {"id": "fetch", "kind": "action", "outputs": ["rows", "total", "note"], "output_schema": {"properties": {
	      "rows": {"anyOf": [{"type": "array", "items": {"type": "object"}}, {"type": "null"}]}, "total": {"anyOf": [{"type": "number"}, {"type": "null"}]}}}},
	    {"id": "bill", "kind": "action", "after": {"from": "fetch", "key": "rows", "param": "rows"}, "ports": [{"name": "rows", "required": true}, {"name": "currency", "default": "EUR"}],
	      "input_schema": {"type": "object", "properties": {
	        "rows": {"type": "array", "items": {"type": "object"}}, "currency": {"anyOf": [{"type": "string"}, {"type": "null"}]}}}},
	    {"id": "report", "kind": "action", "after": {"from": "fetch", "key": "note", "param": "anything"}, "ports": [{"name": "title"}, {"name": "anything"}],
	      "input_schema": {"type": "object", "properties": {"title": {"anyOf": [{"type": "string", "minLength": 1}, {"type": "null"}]}}},
	      "output_schema": {"anyOf": [{"type": "string"}, {"type": "null"}]}}
	  ]
	}`, doc.Graph)

	steps := &kahntest.Script{Acts: map[string][]kahntest.Act{"fetch": {{Value: map[string]any{"rows": nil, "total": 0.0, "note": "none today"}}}}}
	r := kahntest.Run(t, doc.Graph, steps.Step)
	require.NoError(t, r.Err)
	kahntest.RequireStatuses(t, r.Result, "fetch:ok bill:S/null report:ok")
}

// anySchema is a SchemaCompiler that accepts everything.
type anySchema struct{}

func (anySchema) Compile(any) (kahn.Contract, error) { return anySchema{}, nil }
func (anySchema) Check(any) []kahn.Violation         { return nil }

// The transitions of a playbook become edges; each transition with a condition goes through a condition node.
func TestPlaybook(t *testing.T) {
	t.Parallel()
	const many, none = "{{ nodes.fetch.output.count }} > 0", "{{ nodes.fetch.output.count }} == 0"
	want := `{
	  "version": 1, "name": "nightly", "inputs": [{"name": "region", "default": "eu"}, {"name": "limit", "optional": true}],
	  "nodes": [
	    {"id": "start", "label": "Where it begins", "graph": {}},
	    {"id": "fetch", "kind": "http", "config": {"url": "https://example.com/rows"}, "retry": {"max_attempts": 3, "initial_delay": "500ms", "multiplier": 2}},
	    {"id": "load", "kind": "sql", "config": {"table": "rows"}, "params": {"mode": "append"}},
	    {"id": "quiet", "kind": "python", "config": {"code": "def main():\n    return 'nothing to do'"}},
	    {"id": "audit", "kind": "log"},
	    {"id": "end", "kind": "end", "config": {"kind": "python", "code": "def main():\n    return {'status': 'aggregated'}"}},
	    {"id": "fetch.load?", "kind": "condition", "after": "fetch", "test": "` + many + `", "join": "all_succeeded"},
	    {"id": "fetch.quiet?", "kind": "condition", "after": "fetch", "test": "` + none + `", "join": "all_succeeded"}
	  ],
	  "edges": [
	    {"from": "start", "to": "fetch"},
	    {"from": "fetch", "to": "load", "key": "rows", "param": "rows", "data_only": true}, {"from": "fetch.load?", "to": "load", "label": "true"},
	    {"from": "fetch.quiet?", "to": "quiet", "label": "true"},
	    {"from": "fetch", "to": "audit", "param": "answer"},
	    {"from": "quiet", "to": "end"}, {"from": "audit", "to": "end"}
	  ]
	}`
	g := load(t, "testdata/playbook.json", answers{many: true, none: false})
	requireSame(t, want, g)
	var loaded map[string]any
	steps := &kahntest.Script{Acts: map[string][]kahntest.Act{
		"fetch": {{Value: map[string]any{"count": 2, "rows": []any{"a", "b"}}}},
		"load":  {{Do: func(_ context.Context, s *kahn.Step) (any, error) { loaded = s.Params(); return nil, nil }}},
	}}
	r := kahntest.Run(t, g, steps.Step, kahn.Inputs(map[string]any{"limit": 3}))
	require.NoError(t, r.Err)
	kahntest.RequireStatuses(t, r.Result, "start:ok fetch:ok load:ok quiet:S/br audit:ok end:ok fetch.load?:ok fetch.quiet?:ok")
	require.Equal(t, map[string]any{"rows": []any{"a", "b"}, "mode": "append"}, loaded)

	// After a failure only the end node runs.
	kahntest.InFakeTime(t, func(t *testing.T) {
		broken := kahntest.Act{Err: errors.New("broken")}
		steps := &kahntest.Script{Acts: map[string][]kahntest.Act{"fetch": {broken, broken, broken}}}
		r := kahntest.Run(t, load(t, "testdata/playbook.json", answers{many: true, none: true}), steps.Step)
		require.Equal(t, kahn.RunFailed, r.Status)
		kahntest.RequireStatuses(t, r.Result, "start:ok fetch:F load:X quiet:X audit:X end:ok fetch.load?:X fetch.quiet?:X")
	})
}

// The table in the docs has each document of testdata, with the reason for each rejected one.
func TestTableOfDialects(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/import.md")
	require.NoError(t, err)
	files, err := filepath.Glob("testdata/*.json")
	require.NoError(t, err)
	require.Len(t, files, 7)
	rows := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if cells := strings.Split(line, "|"); len(cells) == 5 {
			name := strings.TrimSuffix(filepath.Base(strings.TrimSpace(strings.Trim(cells[1], " `"))), "`")
			rows[name] = strings.TrimSpace(cells[3])
		}
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		row, listed := rows[filepath.Base(file)]
		require.True(t, listed, "%s is not in the table", file)
		_, err = importer.Parse(data, definition.Limits{})
		reason, refused := strings.CutPrefix(row, "refused: ")
		if !refused {
			require.NoError(t, err, file)
			require.True(t, strings.HasPrefix(row, "runs: "), "%s: %s", file, row)
			continue
		}
		require.ErrorContains(t, err, reason, file)
	}
}
