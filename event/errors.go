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

// GapError is returned if a reader of events is too late: the log no longer keeps the events between After and First. The reader may continue
// with Events(ctx, First-1). If After is not below First, a crash lost events that the reader had seen, and these events are no longer part of
// the run. First is then the first event of the log.
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

// NodeError is the failure of one node. It unwraps to the error of its step.
type NodeError struct {
	Node    string
	Attempt int // the attempt that failed permanently; 0 if none was started
	Kind    machine.CauseKind
	Err     error
}

// Error returns the node, the kind of failure and the cause, shortened to about a kilobyte.
func (e *NodeError) Error() string {
	kind := e.Kind.String() + ": "
	return "node " + foreign.Quote(e.Node) + ": " + kind + strings.TrimPrefix(foreign.ErrorText(e.Err), kind) // the text of a panic begins with the kind, so do not repeat it
}

// Unwrap returns the error of the step.
func (e *NodeError) Unwrap() error { return e.Err }
