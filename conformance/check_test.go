package conformance_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/kahntest"
)

var (
	runTerminal  = []event.Type{event.RunCompleted, event.RunFailed, event.RunCancelled, event.RunTimedOut}
	nodeTerminal = map[event.Type]kahn.Status{
		event.NodeCompleted: kahn.Completed, event.NodeFailed: kahn.Failed, event.NodeAborted: kahn.Aborted,
		event.NodeCancelled: kahn.Cancelled, event.NodeSkipped: kahn.Skipped,
	}
)

// checkEvents checks the event stream of a finished run against the rules of every stream.
func checkEvents(t testing.TB, g *kahn.Graph, res *kahn.Result, events []kahn.Event) {
	t.Helper()
	err := kahntest.CheckEvents(g, res, events)
	for i, size := 0, 0; i < len(events) && err == nil && size < 1<<20; i++ { // some tests use names of megabytes
		var data []byte
		data, err = surviveJSON(events[i])
		size += len(data)
	}
	if err != nil {
		t.Errorf("event stream: %v\n%s", err, eventText(events))
	}
}

// surviveJSON encodes an event, decodes it and encodes it again, to the same.
func surviveJSON(e kahn.Event) ([]byte, error) {
	first, err := json.Marshal(e)
	if err != nil {
		return nil, fmt.Errorf("%v: %w", e, err)
	}
	var again kahn.Event
	if err := json.Unmarshal(first, &again); err != nil {
		return nil, fmt.Errorf("%s: %w", first, err)
	}
	if second, err := json.Marshal(again); err != nil || !bytes.Equal(first, second) {
		return nil, fmt.Errorf("%s became %s, %w", first, second, err)
	}
	return first, nil
}
