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
	// Forked is the id of the run with whose results a fork began, see kahn.Fork. The nodes that have them have no events.
	Forked string
}

// StatusChange is the payload of run.status.changed: nothing is left to do until a signal comes, or one has come.
type StatusChange struct {
	From, To machine.RunStatus
	// Waiting are the nodes, by path and in the order of declaration, that have begun to wait since the last event of this
	// type, or since the run's start, and wait still. After a crash it may name nodes that an event before the crash named.
	Waiting []string
	// TotalWaiting counts all nodes that wait, including the node whose signal lets the run continue. Run.Waiting lists them.
	TotalWaiting int
	// Request identifies who asked for the redrive, and why, see kahn.Redrive.
	Request Request
}

// Recovery is the payload of run.recovered: the run continues after a crash. Events that were shown after event From (deltas,
// logs, the effects of store errors) are not part of the run any more, and later events get their ids; events that were kept but
// never shown are a gap for a reader that continues. Neither happens if the events are stored, see kahn.StoreEvents.
type Recovery struct {
	From uint64 // the id of the last event before the crash that was kept
}

// RunEnd is the payload of the events that end a run.
type RunEnd struct {
	Status   machine.RunStatus
	Degraded bool
	Cause    machine.CauseKind
	// TotalSteps counts the nodes without the end node, FailedSteps the nodes in status failed.
	TotalSteps  int
	FailedSteps int
	Failed      []string // their ids, in the order of declaration
	Duration    time.Duration
	Timeout     time.Duration // the run's timeout, for run.timed_out
	// CancellationRequested is true if a request asked the run to stop, whether or not anything was left to stop.
	CancellationRequested bool
	// Aggregation is the output of the run: of the end node, else of the only leaf, else of all leaves by id. See kahn.EventOutputs.
	Aggregation Output
	Usage       map[string]float64 // what the run has used in all its lives
	Request     Request            // who first asked for the run to stop, and why, see Result.StopRequest
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

// Delta is the payload of node.stream.delta. Index counts from 1 for each path, and continues over the attempts of the node
// and of the composites around it, and over the lives of the run.
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
	Errors []string // the violations, as Violation.String renders them
}

// Refusal is the payload of moderation.flagged, which comes before node.failed.
type Refusal struct {
	Phase  Phase
	Errors []string // the moderator's reasons
}

// Timeout is the payload of node.timed_out, which comes before node.retried or node.failed.
type Timeout struct {
	Timeout time.Duration
	Overall bool // the node's overall timeout, not the attempt's
}

// Retry is the payload of node.retried: the attempt that the event names failed, and another one follows after Delay.
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

// Suspension is the payload of node.suspended: the node waits for a signal from outside, or, without a token, sleeps until the deadline.
type Suspension struct {
	Token    string    // the token that the signal must name
	Info     any       // the info that the step passed to Suspend
	Deadline time.Time // zero if there is none
}

// Answer is the payload of node.signalled: a signal has answered the node. It comes directly before node.completed of a gate,
// and before node.queued of a step that continues. Actor and Comment are empty unless the signal was a kahn.Decision.
type Answer struct {
	Value          any
	Actor, Comment string
	ID             string // of the signal, if the kahn.Decision has one
}

// Invalidation is the payload of node.invalidated: the node has ended and is to run again.
type Invalidation struct {
	Reason  string  // "redrive"
	Request Request // who asked for the redrive, and why, see kahn.Redrive
}

// Compensation is the payload of node.compensating, an attempt to undo what the node has done, and of node.compensated, the end of that. Both come
// after the node's own end.
type Compensation struct {
	// Certain is, of node.compensating, whether the node has certainly had its effect: it has completed.
	Certain bool
	// Err is what the attempt before has failed with, and of node.compensated why the node could not be undone; nil if it was.
	Err error
	// Duration is, of node.compensated, the time since the first attempt began.
	Duration time.Duration
	// Request is, of node.compensated, who has undone by hand what the node did.
	Request Request
}

// Completion is the payload of node.completed.
type Completion struct {
	Duration     time.Duration
	Labels       []string // the branches that a condition took
	Memoized     bool     // the output comes from an earlier run
	Hit          *Hit     // of which; nil if Memoized is false
	Fallback     bool     // the fallback produced the output
	Err          error    // the error that the fallback replaced
	InputTokens  int      // as the step reported with Step.Tokens
	OutputTokens int
	Usage        map[string]float64 // as the step reported with Step.Use, in all attempts; without what is inside a composite
	Output       Output             // see kahn.EventOutputs
}

// Hit says of which run an output is that a memo had, and when its step returned.
type Hit struct {
	Run string    `json:"run"`
	At  time.Time `json:"at"`
}

// Output is an output as an event carries it by the option kahn.EventOutputs; zero without that.
type Output struct {
	// Value is the output as plain JSON, or as the run's own kahn.Codec writes it, nil if that is longer than the option allows.
	Value json.RawMessage
	// Bytes is how long the whole is.
	Bytes int
	// Err is why the Codec could not write it.
	Err error
}

// NodeEnd is the payload of node.failed, node.aborted and node.cancelled. Origins are the origins known at the
// time; the Result names them all.
type NodeEnd struct {
	Cause     machine.CauseKind
	Origins   []string
	Err       error
	Duration  time.Duration
	Abandoned bool               // the step ignored the end of its context and was left behind
	Usage     map[string]float64 // as in a Completion
	NoRetry   NoRetry            // of node.failed: why there is no other attempt
	Request   Request            // of node.aborted and node.cancelled: who asked for the stop that ended the node, and why
	// RoutedToEnd is, for node.failed, whether nothing in the graph was there to handle the failure, so that it is left to the end of the
	// graph. OriginalFailedStep is the path of the node that broke then: this one, or the first that a propagated failure goes back to.
	RoutedToEnd        bool
	OriginalFailedStep string
}

// Skip is the payload of node.skipped.
type Skip struct {
	Reason SkipReason
}

// message renders why the node ended, bounded.
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
