package event_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn/event"
)

// TestStoredForm: every example event can be decoded from its stored form, which contains neither the run nor the id.
func TestStoredForm(t *testing.T) {
	t.Parallel()
	for _, line := range exampleEvents(t) {
		var want event.Event
		require.NoError(t, json.Unmarshal(line, &want))
		for _, trace := range []string{want.TraceID, event.TraceID(want.RunID)} {
			want.TraceID = trace
			data, err := want.MarshalStored()
			require.NoError(t, err)
			require.NotContains(t, string(data), want.RunID)
			require.NotContains(t, string(data), `"eventId"`)
			require.Equal(t, trace != event.TraceID(want.RunID), strings.Contains(string(data), trace))
			got, err := event.UnmarshalStored(want.RunID, want.Workflow, want.ID, data)
			require.NoError(t, err)
			require.Equal(t, want, got)
		}
	}
	_, err := event.UnmarshalStored("r", "w", 7, []byte(`{"type": 1}`))
	require.ErrorContains(t, err, "event 7")
	_, err = event.UnmarshalStored("r", "w", 7, []byte(`{"type":"node.log","payload":{"level":"loud"}}`))
	require.ErrorContains(t, err, "event 7")
}

func TestTraceID(t *testing.T) {
	t.Parallel()
	require.Equal(t, "0af7651916cd43dd8448eb211c80319c", event.TraceID("0af76519-16cd-43dd-8448-eb211c80319c"))
	require.Len(t, event.TraceID("order-17"), 32)
	require.NotEqual(t, event.TraceID("order-17"), event.TraceID("order-18"))
}
