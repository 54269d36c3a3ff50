package verify

import (
	"bytes"
	"encoding/json"
	"os"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
)

func eventSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	const file = "../event/schema.json"
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	require.NoError(t, err)
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	require.NoError(t, c.AddResource(file, doc))
	schema, err := c.Compile(file)
	require.NoError(t, err)
	return schema
}

func validate(schema *jsonschema.Schema, data []byte) error {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		return err
	}
	return schema.Validate(doc)
}

// The schema accepts every example. It refuses an example with a missing or an additional member.
func TestEventSchemaOnExamples(t *testing.T) {
	schema := eventSchema(t)
	data, err := os.ReadFile("../event/testdata/events.jsonl")
	require.NoError(t, err)
	optional := map[string]bool{
		"workflowId": true, "parentEventId": true, "wave": true, "cause": true, "label": true, "input_tokens": true,
		"output_tokens": true, "error_message": true, "abandoned": true, "deadline": true, "actor": true, "comment": true,
		"request": true, "output": true, "aggregation_data": true, "output_bytes": true, "output_error": true, "cancellation_requested": true,
		"forkedFrom": true, "signal_id": true,
	}
	for _, line := range bytes.Split(bytes.TrimSpace(data), []byte("\n")) {
		require.NoError(t, validate(schema, line), "%s", line)
		for _, object := range []string{"", "correlation", "payload"} {
			fields := at(t, line, object)
			if object == "" && fields["type"] == string(event.Heartbeat) {
				optional["eventId"] = true
			}
			for key := range fields {
				if optional[key] {
					continue
				}
				require.Error(t, validate(schema, altered(t, line, object, func(m map[string]any) { delete(m, key) })), "%s without %s", line, key)
				wrong := altered(t, line, object, func(m map[string]any) { m[key] = []any{map[string]any{}} })
				if key != "chunk" && key != "info" && !(key == "value" && object == "payload") { // these values may have any type
					require.Error(t, validate(schema, wrong), "%s", wrong)
				}
			}
			more := altered(t, line, object, func(m map[string]any) { m["mood"] = "good" })
			require.Error(t, validate(schema, more), "%s", more)
		}
	}
}

func at(t *testing.T, line []byte, object string) map[string]any {
	t.Helper()
	var all map[string]any
	require.NoError(t, json.Unmarshal(line, &all))
	if object == "" {
		return all
	}
	return all[object].(map[string]any)
}

func altered(t *testing.T, line []byte, object string, change func(map[string]any)) []byte {
	t.Helper()
	var all map[string]any
	require.NoError(t, json.Unmarshal(line, &all))
	part := all
	if object != "" {
		part = all[object].(map[string]any)
	}
	change(part)
	data, err := json.Marshal(all)
	require.NoError(t, err)
	return data
}

// The schema accepts the events of random runs of all kinds.
func TestEventSchemaOnRuns(t *testing.T) {
	schema := eventSchema(t)
	seen := map[event.Type]bool{}
	for seed := range 60 {
		g := graphs.Example(seed)
		for _, mode := range []kahn.Mode{kahn.Eager, kahn.Waves} {
			r, err := execute(t, g, predict(g), way{mode, 2, kahn.StatusEscaped})
			require.NoError(t, err)
			for _, e := range r.events {
				data, err := json.Marshal(e)
				require.NoError(t, err)
				require.NoError(t, validate(schema, data), "%s\n%v", data, g)
				seen[e.Type] = true
			}
		}
	}
	for _, kind := range []event.Type{
		event.RunStarted, event.RunCompleted, event.RunFailed, event.RunCancelled, event.WaveStarted,
		event.WaveCompleted, event.NodeQueued, event.NodeStarted, event.NodeRetried, event.NodeBlocked,
		event.NodeCompleted, event.NodeFailed, event.NodeAborted, event.NodeSkipped,
	} {
		require.True(t, seen[kind], "no run had an event %s", kind)
	}
}
