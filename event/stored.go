package event

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// storedJSON is the JSON form of an Event in a store. It lacks the id, the run and the workflow, since the store keeps them outside the event's JSON.
type storedJSON struct {
	Type    Type            `json:"type"`
	Time    time.Time       `json:"timestamp"`
	TraceID string          `json:"traceId,omitempty"` // omitted if it is equal to TraceID(run)
	Parent  uint64          `json:"parentEventId,omitempty"`
	Payload json.RawMessage `json:"payload"`
}

// MarshalStored encodes the event for a store, see kahn.StoreEvents. The result is like the result of MarshalJSON, but without the run, the
// workflow and the id.
func (e Event) MarshalStored() ([]byte, error) {
	return e.marshal(func(w *writer, _ *int) {
		w.Open()
		w.Text("type", string(e.Type))
		w.Time("timestamp", e.Time.UTC())
		if e.TraceID != TraceID(e.RunID) {
			w.TextIf("traceId", e.TraceID)
		}
		w.IDIf("parentEventId", e.Parent)
	})
}

// UnmarshalStored decodes the result of MarshalStored. The other arguments become the event's run, workflow and id. UnmarshalStored decodes the
// payload by the rules of UnmarshalJSON.
func UnmarshalStored(run, workflow string, id uint64, data []byte) (e Event, err error) {
	var env storedJSON
	if err := json.Unmarshal(data, &env); err != nil {
		return Event{}, fmt.Errorf("event %d: %w", id, err)
	}
	e = Event{ID: id, Type: env.Type, RunID: run, Workflow: workflow, Time: env.Time, TraceID: env.TraceID, Parent: env.Parent}
	if e.TraceID == "" {
		e.TraceID = TraceID(run)
	}
	if err := e.unmarshal(env.Payload); err != nil {
		return Event{}, fmt.Errorf("event %d: %w", id, err)
	}
	return e, nil
}

// TraceID returns the trace id of a run without the option kahn.TraceID. It has the form of a W3C trace id. If the run's id is a UUID, the trace id
// is the UUID without hyphens. Otherwise the trace id is a hash of the run's id.
func TraceID(run string) string {
	trace := strings.ReplaceAll(run, "-", "")
	if raw, err := hex.DecodeString(trace); err != nil || len(raw) != 16 {
		sum := sha256.Sum256([]byte(run))
		return hex.EncodeToString(sum[:16])
	}
	return trace
}
