package event

import (
	"encoding/json"
	"log/slog"
	"time"

	"github.com/seed-c794f7ef/kahn/internal/foreign"
	"github.com/seed-c794f7ef/kahn/machine"
)

// Start is the payload of run.started.
type Start struct {
	TotalNodes int
	Waves      bool // whether the run proceeds tier by tier
	Test       bool // whether the run is a test, in which nodes may be mocked
	// If the run is a fork, Forked is the id of the run whose results the fork keeps: see kahn.Fork. A node with a kept result has no events.
	Forked string
}

// StatusChange is the payload of run.status.changed: the run is suspended, or it continues. A run is suspended if it can only wait, or if it is left.
// A run continues, for example, after a signal or a redrive.
type StatusChange struct {
	From, To machine.RunStatus
	// Waiting lists, in declaration order, the paths of the nodes that began to wait after the previous event of this type, if any, and still wait.
	// After a crash, an event may list nodes that an event before the crash has listed.
	Waiting []string
	// TotalWaiting is the number of all waiting nodes. If the run continues because of a signal, TotalWaiting includes the node that the signal answers.
	// Run.Waiting lists all waiting nodes.
	TotalWaiting int
	// Request is set if the run continues because of a redrive. It says who requested the redrive, and why: see kahn.Redrive.
	Request Request
}

// Recovery is the payload of run.recovered: the run continues after a crash. Before the crash, readers may have seen events with ids greater than
// From: deltas, logs, and events caused by errors of the store. These events are no longer part of the run, and later events reuse their ids. A
// reader that continues after the crash gets a GapError if it has not seen all events up to From. But if the run stores its events (see
// kahn.StoreEvents), a crash loses no event that a reader has seen, and a reader of the store can continue without a GapError.
type Recovery struct {
	From uint64 // the id of the last event before the crash that the run keeps
}

// RunEnd is the payload of the events that end a run.
type RunEnd struct {
	Status   machine.RunStatus
	Degraded bool
	Cause    machine.CauseKind
	// TotalSteps is the number of nodes, and FailedSteps is the number of failed nodes. Both numbers leave out the end node.
	TotalSteps  int
	FailedSteps int
	Failed      []string // the ids of the failed nodes, in the order of declaration
	Duration    time.Duration
	Timeout     time.Duration // the run's timeout, for run.timed_out
	// CancellationRequested is true if Run.Cancel was called, or if the end of the caller's context cancelled the run. It is true even if no node was
	// running at that time.
	CancellationRequested bool
	// Aggregation is the output of the run. If the graph has an end node, this is the output of the end node. Otherwise it is the output of the only
	// leaf, or a map with the outputs of all leaves by id. See kahn.EventOutputs.
	Aggregation Output
	Usage       map[string]float64 // the usage that steps reported, in all processes that performed the run
	Request     Request            // who first asked the run to stop, and why: see Result.StopRequest
}

// Beat is the payload of heartbeat. This event tells a reader that the run is alive.
type Beat struct {
	Last uint64 // the id of the run's last event
}

// Wave is the payload of wave events.
type Wave struct {
	Tier  int
	Nodes []string
}

// Delta is the payload of node.stream.delta. Index counts from 1 for each path. The count does not begin again if the node or a composite around it
// is attempted again, or if another process continues the run.
type Delta struct {
	Index int
	Chunk any
}

// LogRecord is the payload of node.log.
type LogRecord struct {
	Level   slog.Level
	Message string
}

// Breach is the payload of contract.violated: a contract has refused the parameters or the output. The node is then retried, fails, or gets its
// output from its Fallback.
type Breach struct {
	Phase  Phase
	Errors []string // the violations, in the form of Violation.String
}

// Refusal is the payload of moderation.flagged: the moderator has refused the parameters or the output. The node then fails, or gets its output from
// its Fallback.
type Refusal struct {
	Phase  Phase
	Errors []string // the moderator's reasons
}

// Timeout is the payload of node.timed_out. The node is then retried, fails, or gets its output from its Fallback.
type Timeout struct {
	Timeout time.Duration
	Overall bool // true if the node's overall timeout has passed, false if the attempt's timeout has passed
}

// Retry is the payload of node.retried: the event's attempt failed, and another attempt follows after Delay.
type Retry struct {
	Cause machine.CauseKind
	Delay time.Duration
	Err   error
}

// Block is the payload of node.blocked: the node's join can no longer be satisfied, because predecessors failed, were aborted or were cancelled. The
// node's policy for upstream failures then decides what happens to the node.
type Block struct {
	Origins []string
	Policy  machine.UpstreamPolicy
}

// Pause is the payload of node.paused: an iteration of a loop has ended, and the next one begins after Delay. See Loop.Pause.
type Pause struct {
	Iteration int // the number of the iteration that has ended
	Delay     time.Duration
}

// Suspension is the payload of node.suspended. If Token is empty, the node sleeps until the Deadline. Otherwise the node waits for a signal or, after
// kahn.AwaitRun, for the end of another run.
type Suspension struct {
	Token    string    // the token that the signal must name
	Info     any       // the info that the step passed to Suspend; for AwaitRun, a text that names the other run
	Deadline time.Time // the zero time if the node has no deadline
}

// Answer is the payload of node.signalled: a signal has answered the node. If the node is a gate, its next event is node.completed or, if the gate
// cannot use the answer, node.failed. If the node is a step, the step continues, and the next event is node.queued. Only a kahn.Decision sets Actor
// and Comment.
type Answer struct {
	Value          any
	Actor, Comment string
	ID             string // the ID of the kahn.Decision, if the signal was one
}

// Invalidation is the payload of node.invalidated: an ended node will run again.
type Invalidation struct {
	Reason  string  // "redrive", or "inside" if the node is a composite in which only some nodes run again
	Request Request // who requested the redrive, and why: see kahn.Redrive
}

// Compensation is the payload of two types of events, which come after the node's end. The event node.compensating reports that an attempt to undo
// the node begins. The event node.compensated reports that the compensation has ended.
type Compensation struct {
	// Certain is for node.compensating. It is true if the node certainly had its effect, for example because the node completed.
	Certain bool
	// In node.compensating, Err is the error of the previous attempt to undo the node, if any. In node.compensated, it is the reason why the node could
	// not be undone, or nil if the node was undone.
	Err error
	// Duration is for node.compensated. It is the time since the first attempt to undo the node began.
	Duration time.Duration
	// Request is for node.compensated. If a person has declared that the node was undone by hand, Request contains the person's name and the reason.
	Request Request
}

// Completion is the payload of node.completed.
type Completion struct {
	Duration     time.Duration
	Labels       []string // the branches that a condition has taken
	Memoized     bool     // the output comes from an earlier run
	Hit          *Hit     // the earlier run; nil if Memoized is false
	Fallback     bool     // the fallback produced the output
	Err          error    // the error that the fallback has replaced
	InputTokens  int      // the number of input tokens that the step reported with Step.Tokens
	OutputTokens int
	Usage        map[string]float64 // what the step reported with Step.Use, over all attempts; without the nodes inside a composite
	Output       Output             // see kahn.EventOutputs
}

// Hit says which run produced a memoized output, and when the step returned this output.
type Hit struct {
	Run string    `json:"run"`
	At  time.Time `json:"at"`
}

// Output is an output in an event. It is zero unless the run has the option kahn.EventOutputs.
type Output struct {
	// Value is the output as plain JSON or, if the run has its own kahn.Codec, in the form of this codec. Value is nil if the output is longer than
	// kahn.EventOutputs allows, or if Err is not nil.
	Value json.RawMessage
	// Bytes is the length of the whole output.
	Bytes int
	// Err is the reason why the Codec could not encode the output.
	Err error
}

// NodeEnd is the payload of node.failed, node.aborted and node.cancelled. Origins lists the ids of the nodes that caused the end of this node. It
// lists only nodes that are known to be causes when the event happens. The Result lists all of them.
type NodeEnd struct {
	Cause     machine.CauseKind
	Origins   []string
	Err       error
	Duration  time.Duration
	Abandoned bool               // whether the step ignored the end of its context and was abandoned
	Usage     map[string]float64 // as in [Completion]
	NoRetry   NoRetry            // in node.failed: why the node is not attempted again
	Request   Request            // in node.aborted and node.cancelled: who requested the stop that ended the node, and why
	// RoutedToEnd is for node.failed. It is true if no node of the graph handles the failure. OriginalFailedStep is then the path of the node that
	// failed first: this node, or the node whose failure was passed on to this node.
	RoutedToEnd        bool
	OriginalFailedStep string
}

// Skip is the payload of node.skipped.
type Skip struct {
	Reason SkipReason
}

// The method `message` returns a text that says why the node ended, shortened to about a kilobyte.
func (p NodeEnd) message() string {
	switch err := p.Err.(type) {
	case nil:
		return p.Cause.String()
	case *NodeError:
		if err.Err == nil {
			return p.Cause.String()
		}
		return foreign.ErrorText(err.Err)
	default:
		return messageOf(err)
	}
}
