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
	Waves      bool // the run proceeds tier by tier
	Test       bool // the run is a test: nodes may be mocked
	// Forked is, for a fork, the id of the run whose results the fork keeps, see kahn.Fork. Nodes with kept results have no events.
	Forked string
}

// StatusChange is the payload of run.status.changed: either the run has nothing to do until a signal arrives, or it continues, for
// example after a signal or a redrive.
type StatusChange struct {
	From, To machine.RunStatus
	// Waiting lists the paths of the nodes that have begun to wait since the previous event of this type, or since the run's start, and
	// still wait. They are in the order of declaration. After a crash Waiting may repeat nodes that an event before the crash named.
	Waiting []string
	// TotalWaiting is the number of all waiting nodes, including the node whose signal lets the run continue. Run.Waiting lists them.
	TotalWaiting int
	// Request says who asked for the redrive, and why, see kahn.Redrive.
	Request Request
}

// Recovery is the payload of run.recovered: the run continues after a crash. Readers may have seen events after event From that are no
// longer part of the run: deltas, logs, and events caused by errors of the store. The ids of these events are used again for later
// events. A reader that continues gets a GapError if it has not seen all events that were kept before the crash. If the run stores its
// events, see kahn.StoreEvents, readers see no such events, and get no GapError.
type Recovery struct {
	From uint64 // the id of the last kept event before the crash
}

// RunEnd is the payload of the events that end a run.
type RunEnd struct {
	Status   machine.RunStatus
	Degraded bool
	Cause    machine.CauseKind
	// TotalSteps is the number of nodes, not counting the end node; FailedSteps is the number of nodes in status failed.
	TotalSteps  int
	FailedSteps int
	Failed      []string // the ids of the failed nodes, in the order of declaration
	Duration    time.Duration
	Timeout     time.Duration // the run's timeout, for run.timed_out
	// CancellationRequested is true if a request asked the run to stop, even if no node was left to stop.
	CancellationRequested bool
	// Aggregation is the output of the run: the output of the end node. Without an end node it is the output of the only leaf,
	// or the outputs of all leaves by id. See kahn.EventOutputs.
	Aggregation Output
	Usage       map[string]float64 // what the steps of the run have used, in all processes that performed it
	Request     Request            // who first asked the run to stop, and why, see Result.StopRequest
}

// Beat is the payload of heartbeat, which tells a reader that the run is alive.
type Beat struct {
	Last uint64 // the id of the run's last event
}

// Wave is the payload of wave events.
type Wave struct {
	Tier  int
	Nodes []string
}

// Delta is the payload of node.stream.delta. Index counts from 1 for each path. The count goes on in further attempts of the node or of
// a composite around it, and in a process that continues the run.
type Delta struct {
	Index int
	Chunk any
}

// LogRecord is the payload of node.log.
type LogRecord struct {
	Level   slog.Level
	Message string
}

// Breach is the payload of contract.violated, which comes before node.retried or node.failed.
type Breach struct {
	Phase  Phase
	Errors []string // the violations, in the form of Violation.String
}

// Refusal is the payload of moderation.flagged, which comes before node.failed.
type Refusal struct {
	Phase  Phase
	Errors []string // the moderator's reasons
}

// Timeout is the payload of node.timed_out, which comes before node.retried or node.failed.
type Timeout struct {
	Timeout time.Duration
	Overall bool // true for the node's overall timeout, false for the attempt's
}

// Retry is the payload of node.retried: the event's attempt failed, and another one follows after Delay.
type Retry struct {
	Cause machine.CauseKind
	Delay time.Duration
	Err   error
}

// Block is the payload of node.blocked: predecessors have made the join impossible, and the policy decides the next
// event.
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
	Info     any       // the info that the step passed to Suspend
	Deadline time.Time // zero if there is no deadline
}

// Answer is the payload of node.signalled: a signal has answered the node. It comes directly before node.completed of a gate, and
// before node.queued of a step that continues. Actor and Comment are set only if the signal was a kahn.Decision.
type Answer struct {
	Value          any
	Actor, Comment string
	ID             string // the id of the signal, if the kahn.Decision has one
}

// Invalidation is the payload of node.invalidated: an ended node will run again.
type Invalidation struct {
	Reason  string  // "redrive", or "inside" for a composite in which nodes run again
	Request Request // who asked for the redrive, and why, see kahn.Redrive
}

// Compensation is the payload of node.compensating, when an attempt to undo the node begins, and of node.compensated, when the compensation
// has ended. Both events come after the node's own end.
type Compensation struct {
	// Certain reports, in node.compensating, whether the node certainly had its effect, because it completed.
	Certain bool
	// Err is, in node.compensating, the error of the previous attempt to undo the node. In node.compensated it says why the node could
	// not be undone; it is nil if the node was undone.
	Err error
	// Duration is, in node.compensated, the time since the first attempt began.
	Duration time.Duration
	// Request says, in node.compensated, who has undone the node by hand.
	Request Request
}

// Completion is the payload of node.completed.
type Completion struct {
	Duration     time.Duration
	Labels       []string // the branches that a condition took
	Memoized     bool     // the output comes from an earlier run
	Hit          *Hit     // the earlier run; nil if Memoized is false
	Fallback     bool     // the fallback produced the output
	Err          error    // the error that the fallback replaced
	InputTokens  int      // as the step reported them with Step.Tokens
	OutputTokens int
	Usage        map[string]float64 // what the step reported with Step.Use, over all attempts; excludes nodes inside a composite
	Output       Output             // see kahn.EventOutputs
}

// Hit identifies the run that produced a memoized output, and when its step returned.
type Hit struct {
	Run string    `json:"run"`
	At  time.Time `json:"at"`
}

// Output is an output in an event, see kahn.EventOutputs. Without this option, all Outputs are zero.
type Output struct {
	// Value is the output as plain JSON, or as the run's own kahn.Codec writes it; nil if it is longer than the option allows.
	Value json.RawMessage
	// Bytes is the length of the whole output.
	Bytes int
	// Err is why the Codec could not encode the output.
	Err error
}

// NodeEnd is the payload of node.failed, node.aborted and node.cancelled. Origins are the ids of the nodes that caused the end, as far as
// they were known at that time; the Result has all of them.
type NodeEnd struct {
	Cause     machine.CauseKind
	Origins   []string
	Err       error
	Duration  time.Duration
	Abandoned bool               // the step ignored the end of its context and was left behind
	Usage     map[string]float64 // as in a Completion
	NoRetry   NoRetry            // in node.failed: why there is no other attempt
	Request   Request            // in node.aborted and node.cancelled: who asked for the stop that ended the node, and why
	// RoutedToEnd is true, in node.failed, if no node could handle the failure, so that only the end of the graph handles it. In this
	// case OriginalFailedStep is the path of the node that failed first: this node, or the origin of a propagated failure.
	RoutedToEnd        bool
	OriginalFailedStep string
}

// Skip is the payload of node.skipped.
type Skip struct {
	Reason SkipReason
}

// message renders why the node ended, with bounded length.
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
