package kahn

import (
	"fmt"
	"time"

	"github.com/seed-c794f7ef/kahn/internal/enum"
)

// SuspendMode tells what happens to the rest of the run while a node is suspended. It is an option. Default: SuspendDrain,
// in [Waves] SuspendStop.
type SuspendMode uint8

// The suspend modes.
const (
	suspendDefault SuspendMode = iota
	SuspendDrain               // everything that does not depend on the suspended node goes on
	SuspendStop                // nodes that have started finish, retries included; no other node starts

	suspendModeCount
)

var suspendModeNames = [suspendModeCount]string{"", "drain", "stop"}

// String returns "drain" or "stop", or "" for the zero value.
func (m SuspendMode) String() string { return enum.Name(suspendModeNames[:], int(m), "SuspendMode") }

// MarshalText encodes m as its name. A value outside the enum is an error that matches [ErrBadValue].
func (m SuspendMode) MarshalText() ([]byte, error) {
	return enum.Text(suspendModeNames[:], int(m), "suspend mode")
}

// UnmarshalText decodes a name. Anything else is an error that matches [ErrBadValue].
func (m *SuspendMode) UnmarshalText(text []byte) error {
	return enum.Parse(m, suspendModeNames[:], text, "suspend mode")
}

func (m SuspendMode) apply(c *config) error {
	if m == suspendDefault || m >= suspendModeCount {
		return fmt.Errorf("%w: %s", ErrBadOption, enumField{"SuspendMode", int(m), suspendModeNames[:]}.wrong())
	}
	c.onSuspend = m
	return nil
}

// Suspend, returned by a step, makes its node wait for a signal: the node is suspended, and when the signal comes the step
// is entered again from its start. It then finds the signal's value with [Step.Resumed] and its own state with
// [Step.SavedState]; the number of the attempt is the same, its Timeout begins anew.
//
// token is the name under which the signal will come, empty for the node's id; it must be neither that of another node nor
// one that another node waits under, else the step fails with an error that matches [ErrDuplicateGate]. info is for the
// person or program that answers. Both info and state go into a snapshot.
//
// The end node, and a node that was asked to stop, cannot wait: the former fails, the latter stops.
func Suspend(token string, info, state any) error { return &suspendError{token, info, state} }

type suspendError struct {
	token       string
	info, state any
}

func (e *suspendError) Error() string { return "suspended, waiting for " + quoteID(e.token) }

// Wait is the wait of a node for a signal.
type Wait struct {
	Node string
	// Token is the name under which Run.Signal reaches the node, beside the node's id.
	Token string
	// Info is the info that the step passed to Suspend.
	Info any
	// Since is when the wait began.
	Since time.Time
	// Deadline is when the wait ends, zero if never.
	Deadline time.Time
}
