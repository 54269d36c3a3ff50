package event

import (
	"errors"
	"fmt"
	"strings"

	"github.com/seed-c794f7ef/kahn/internal/foreign"
	"github.com/seed-c794f7ef/kahn/machine"
)

// ErrNoLog is returned by Run.Events of package kahn if the run keeps no events.
var ErrNoLog = errors.New("the run keeps no events")

// GapError is returned if a reader of events is too late: the log no longer keeps the events between After and First. The reader may continue with
// Events(ctx, First-1). If After is equal to First or greater, a crash has lost events that the reader had seen. The lost events are no longer part
// of the run, and First is the first event of the log.
type GapError struct {
	After uint64 // the last event that the reader has seen
	First uint64 // the first event that the log keeps
}

// Error names the missing ids.
func (e *GapError) Error() string {
	if e.After >= e.First {
		return fmt.Sprintf("event %d has not happened", e.After)
	}
	return fmt.Sprintf("events %d to %d are no longer kept", e.After+1, e.First-1)
}

// NodeError is the failure or the stop of one node. It unwraps to the step's error or to the cause of the stop.
type NodeError struct {
	Node    string
	Attempt int // the last attempt; 0 if no attempt was started
	Kind    machine.CauseKind
	Err     error
}

// Error names the node and the kind of failure, and contains the text of Err, shortened to about a kilobyte.
func (e *NodeError) Error() string {
	kind := e.Kind.String() + ": "
	return "node " + foreign.Quote(e.Node) + ": " + kind + strings.TrimPrefix(foreign.ErrorText(e.Err), kind) // the text of a panic begins with the kind, so do not repeat it
}

// Unwrap returns Err.
func (e *NodeError) Unwrap() error { return e.Err }
