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
	// Forked is, for a fork, the id of the run whose results the fork keeps, see kahn.Fork. Nodes with kept results have no events.
	Forked string
}

// StatusChange is the payload of run.status.changed: the run is suspended, or it continues. It is suspended if it can only wait, or if it is left. It
// continues, for example, after a signal or a redrive.
type StatusChange struct {
	From, To machine.RunStatus
	// Waiting lists the paths of waiting nodes in declaration order: only nodes that have begun to wait since the previous event of this type, or since
	// the run's start. After a crash Waiting may repeat nodes that an event before the crash named.
	Waiting []string
	// TotalWaiting is the number of all waiting nodes. If a signal lets the run continue, TotalWaiting includes the node that gets the signal.
	// Run.Waiting lists all waiting nodes.
	TotalWaiting int
	// Request is set if the run continues because of a redrive. It names who requested the redrive, and the reason, see kahn.Redrive.
	Request Request
}

// Recovery is the payload of run.recovered: the run continues after a crash. Before the crash, readers may have seen events with ids greater than
// From: deltas, logs, and events caused by errors of the store. These events are no longer part of the run, and later events reuse their ids. A reader
// that continues after the crash gets a GapError if it has not seen all events up to From. If the run stores its events, see kahn.StoreEvents,
// readers never see an event that a crash then loses, and get no GapError.
type Recovery struct {
	From uint64 // the id of the last event before the crash that the run keeps
}

// RunEnd is the payload of the events that end a run.
type RunEnd struct {
	Status   machine.RunStatus
	Degraded bool
	Cause    machine.CauseKind
	// TotalSteps is the number of nodes, the end node not counted. FailedSteps is the number of failed nodes.
	TotalSteps  int
	FailedSteps int
	Failed      []string // the ids of the failed nodes, in the order of declaration
	Duration    time.Duration
	Timeout     time.Duration // the run's timeout, for run.timed_out
	// CancellationRequested is true if Run.Cancel was called or the end of the caller's context cancelled the run, even if no node was running then.
	CancellationRequested bool
	// Aggregation is the output of the run: the output of the end node. Without an end node it is the output of the only leaf,
	// or the outputs of all leaves by id. See kahn.EventOutputs.
	Aggregation Output
	Usage       map[string]float64 // the usage that steps reported, in all processes that performed the run
	Request     Request            // who first asked the run to stop, and the reason, see Result.StopRequest
}

// Beat is the payload of heartbeat, which shows a reader that the run is alive.
type Beat struct {
	Last uint64 // the id of the run's last event
}

// Wave is the payload of wave events.
type Wave struct {
	Tier  int
	Nodes []string
}

// Delta is the payload of node.stream.delta. Index counts from 1 for each path. The count continues in further attempts of the node or of a
// composite around it, and in another process that continues the run.
type Delta struct {
	Index int
	Chunk any
}

// LogRecord is the payload of node.log.
type LogRecord struct {
	Level   slog.Level
	Message string
}

// Breach is the payload of contract.violated, which precedes node.retried or node.failed.
type Breach struct {
	Phase  Phase
	Errors []string // the violations, in the form of Violation.String
}

// Refusal is the payload of moderation.flagged, which precedes node.failed.
type Refusal struct {
	Phase  Phase
	Errors []string // the moderator's reasons
}

// Timeout is the payload of node.timed_out, which precedes node.retried or node.failed.
type Timeout struct {
	Timeout time.Duration
	Overall bool // true: the node's overall timeout has passed; false: the timeout of the attempt
}

// Retry is the payload of node.retried: the event's attempt failed, and another attempt follows after Delay.
type Retry struct {
	Cause machine.CauseKind
	Delay time.Duration
	Err   error
}

// Block is the payload of node.blocked: the node's join can no longer be satisfied, because predecessors failed, were aborted or were cancelled.
// The node's policy for upstream failures decides what happens next.
type Block struct {
	Origins []string
	Policy  machine.UpstreamPolicy
}

// Pause is the payload of node.paused: an iteration of a loop has ended, and the next one begins after Delay. See Loop.Pause.
type Pause struct {
	Iteration int // the number of the iteration that has ended
	Delay     time.Duration
}

// Suspension is the payload of node.suspended: the node waits for a signal or, without a Token, sleeps until the Deadline.
type Suspension struct {
	Token    string    // the token that the signal must name
	Info     any       // the Info that the step passed to Suspend
	Deadline time.Time // zero if there is no deadline
}

// Answer is the payload of node.signalled: a signal has answered the node. The next event of a gate is node.completed. The next event of a step,
// which continues, is node.queued. Actor and Comment are set only if the signal was a kahn.Decision.
type Answer struct {
	Value          any
	Actor, Comment string
	ID             string // the id of the signal, if it was a kahn.Decision with an ID
}

// Invalidation is the payload of node.invalidated: an ended node will run again.
type Invalidation struct {
	Reason  string  // "redrive", or "inside" for a composite in which nodes run again
	Request Request // who requested the redrive, and the reason, see kahn.Redrive
}

// Compensation is the payload of node.compensating, when an attempt to undo the node begins, and of node.compensated, when the compensation has
// ended. Both events come after the node's end.
type Compensation struct {
	// Certain reports, in node.compensating, whether the node certainly had its effect. A node that completed certainly had it.
	Certain bool
	// Err is, in node.compensating, the error of the previous attempt to undo the node. In node.compensated it is the reason why the node could
	// not be undone, or nil if the node was undone.
	Err error
	// Duration is, in node.compensated, the time since the first attempt began.
	Duration time.Duration
	// Request is set in node.compensated if a person has declared that the node was undone by hand. It names this person, and the reason.
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
	Usage        map[string]float64 // what the step reported with Step.Use, over all attempts; excludes nodes inside a composite
	Output       Output             // see kahn.EventOutputs
}

// Hit names the run that produced a memoized output, and the time at which the step returned the output.
type Hit struct {
	Run string    `json:"run"`
	At  time.Time `json:"at"`
}

// Output is an output in an event. It is zero unless the run has the option kahn.EventOutputs.
type Output struct {
	// Value is the output as plain JSON, or as the run's own kahn.Codec encodes it. Value is nil if the output is longer than kahn.EventOutputs
	// allows.
	Value json.RawMessage
	// Bytes is the length of the whole output.
	Bytes int
	// Err is the reason why the Codec could not encode the output.
	Err error
}

// NodeEnd is the payload of node.failed, node.aborted and node.cancelled. Origins lists the ids of the nodes that caused the end, as far as they
// are known when the event happens. The Result contains all of them.
type NodeEnd struct {
	Cause     machine.CauseKind
	Origins   []string
	Err       error
	Duration  time.Duration
	Abandoned bool               // whether the step ignored the end of its context and was abandoned
	Usage     map[string]float64 // as in [Completion]
	NoRetry   NoRetry            // in node.failed: why the node is not attempted again
	Request   Request            // in node.aborted and node.cancelled: who requested the stop that ended the node, and the reason
	// RoutedToEnd is true, in node.failed, if no node of the graph handles the failure. In this case OriginalFailedStep is the path of the node that
	// failed first: this node, or the node whose failure was passed on to this node.
	RoutedToEnd        bool
	OriginalFailedStep string
}

// Skip is the payload of node.skipped.
type Skip struct {
	Reason SkipReason
}

// The method `message` returns the reason why the node ended, shortened to about a kilobyte.
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
