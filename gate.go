package kahn

import (
	"time"

	"github.com/seed-c794f7ef/kahn/internal/enum"
)

// Gate bounds the wait of a gate: a node of [KindGate] without a Do, which a signal from outside completes. The value of the
// signal is the gate's output, and routes like that of a condition; in addition to the spellings of true and false, approve
// and approved mean true, and reject and rejected mean false.
//
// A gate accepts its choices only: Choices if it declares some, else the labels of its out-edges; and where one of these is
// approved, approve, true, yes, rejected, reject, false or no, in any case, all of these words. Any other answer is refused
// with a [*ChoiceError], and the gate waits on. A choice without an edge takes no branch. A gate with an edge labelled
// "default", and one with neither Choices nor labelled edges, accepts anything.
//
// While a node waits it holds neither a slot nor a goroutine. [Execute] goes on with everything that does not depend on it
// and returns, when nothing else is left to do, a Result in status [RunSuspended] with a [Snapshot] to resume from. A [Run]
// that was begun with [Start] lives on until [Run.Signal] answers, or until [Run.Leave].
type Gate struct {
	// Timeout is how long the gate waits. It goes on while the run is not in memory: what counts is the wall clock. Zero
	// means for ever.
	Timeout time.Duration
	// OnTimeout tells what happens then. Default: [GateFail].
	OnTimeout GateTimeout
	// Choices declares the answers that the gate accepts. Default: the labels of its out-edges.
	Choices []string `json:",omitempty"`
	// Check judges an answer that is one of the choices, if the gate has choices. An error refuses it as one that is no choice is refused: the
	// signal gets an error that matches [ErrChoice] and unwraps to that of Check, and the gate waits on. It is called without a lock: on the
	// goroutine of the caller of Signal, Resume or Execute, or on one of the run for a signal that was posted to a store. It must not change
	// the value, and may be called by several goroutines at once. It is no part of [Plan.Hash]. Default: none.
	Check func(answer any) error `json:"-"`
}

// GateTimeout tells what happens to a gate whose Timeout has passed.
type GateTimeout uint8

// The choices.
const (
	GateFail  GateTimeout = iota // it fails, with the cause gate_timeout
	GateLabel                    // it completes with the output "timeout", which is also its label: if it has labelled edges, one is "timeout" or "default"

	gateTimeoutCount
)

var gateTimeoutNames = [gateTimeoutCount]string{"fail", "label"}

// timeoutLabel is the output of a gate under GateLabel.
const timeoutLabel = "timeout"

// String returns "fail" or "label".
func (t GateTimeout) String() string { return enum.Name(gateTimeoutNames[:], int(t), "GateTimeout") }

// MarshalText encodes t as its name. A value outside the enum is an error that matches [ErrBadValue].
func (t GateTimeout) MarshalText() ([]byte, error) {
	return enum.Text(gateTimeoutNames[:], int(t), "gate timeout")
}

// UnmarshalText decodes a name. Anything else is an error that matches [ErrBadValue].
func (t *GateTimeout) UnmarshalText(text []byte) error {
	return enum.Parse(t, gateTimeoutNames[:], text, "gate timeout")
}

// Decision is a signal that tells who has decided, and why. Its Value plays the part of any other signal's value: it routes,
// and the gate's dependents, or the step that goes on, receive it. [NodeResult] and the event node.signalled hold the whole
// Decision.
type Decision struct {
	Value any
	// Actor names who has decided.
	Actor string
	// Comment is the actor's comment.
	Comment string
	// ID identifies the signal among those for the same name, so that it may be sent again: see [Run.Signal]. Its value must have a JSON
	// form then, by which values are compared. Empty: it is another signal each time.
	ID string
}

// decisionOf is a signal as a Decision.
func decisionOf(signal any) Decision {
	switch d := signal.(type) {
	case Decision:
		return d
	case *Decision:
		if d != nil {
			return *d
		}
		return Decision{}
	}
	return Decision{Value: signal}
}

// isGate reports whether the node is completed by a signal.
func isGate(n *node) bool {
	return n.Kind == KindGate && n.Do == nil && n.Test == nil && n.TestExpr == "" && !n.composite()
}
