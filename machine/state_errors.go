package machine

import (
	"errors"
	"fmt"

	"github.com/seed-c794f7ef/kahn/internal/enum"
	"github.com/seed-c794f7ef/kahn/internal/foreign"
)

// The errors that the methods of a State return match these. The methods that encode and decode the enums of this package use ErrBadValue, too.
var (
	ErrBadValue    = enum.ErrBadValue
	ErrUnknownNode = errors.New("unknown node")
	// ErrStale is returned if a token is not the node's current token. The State is unchanged.
	ErrStale = errors.New("stale token")
	// ErrTransition is returned if the node's status does not allow the call. The State is unchanged. See [*TransitionError].
	ErrTransition = errors.New("transition not allowed")
	// ErrGraphChanged is returned if a snapshot is from a State of another plan.
	ErrGraphChanged = errors.New("the graph has changed")
)

// TransitionError is returned if the status of a node does not allow a call. It matches [ErrTransition].
type TransitionError struct {
	Node     string
	From, To Status
}

// Error names the node and both statuses.
func (e *TransitionError) Error() string {
	return fmt.Sprintf("node %s: %v: %v to %v", foreign.Quote(e.Node), ErrTransition, e.From, e.To)
}

// Is reports whether target is [ErrTransition].
func (e *TransitionError) Is(target error) bool { return target == ErrTransition }
