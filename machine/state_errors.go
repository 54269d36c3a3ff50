package machine

import (
	"errors"
	"fmt"

	"github.com/seed-c794f7ef/kahn/internal/enum"
	"github.com/seed-c794f7ef/kahn/internal/foreign"
)

// Errors of a State, and of the values of its enums.
var (
	ErrBadValue    = enum.ErrBadValue
	ErrUnknownNode = errors.New("unknown node")
	// ErrStale rejects an outcome whose token is not, or no longer, the node's current token. The State is unchanged.
	ErrStale = errors.New("stale token")
	// ErrTransition rejects a call that the node's status does not allow. The State is unchanged. See
	// [*TransitionError].
	ErrTransition = errors.New("transition not allowed")
	// ErrGraphChanged rejects a snapshot from a State of another plan.
	ErrGraphChanged = errors.New("the graph has changed")
)

// TransitionError rejects a call that the status of a node does not allow. It matches [ErrTransition].
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
