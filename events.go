package kahn

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"time"
)

// EventType names the kind of fact that an event reports.
type EventType string

// The types of event, with the type of their payload.
const (
	EventRunStarted   EventType = "run.started"        // RunStarted
	EventRunStatus    EventType = "run.status.changed" // RunStatusChanged
	EventRunRecovered EventType = "run.recovered"      // RunRecovered
	EventRunCompleted EventType = "run.completed"      // RunEnded
	EventRunFailed    EventType = "run.failed"         // RunEnded
	EventRunCancelled EventType = "run.cancelled"      // RunEnded
	EventRunTimedOut  EventType = "run.timed_out"      // RunEnded
	EventHeartbeat    EventType = "heartbeat"          // Heartbeat; see Run.Heartbeat

	EventWaveStarted   EventType = "wave.started"   // Wave
	EventWaveCompleted EventType = "wave.completed" // Wave

	EventNodeQueued        EventType = "node.queued"        // none
	EventNodeStarted       EventType = "node.started"       // none
	EventNodeDelta         EventType = "node.stream.delta"  // Delta
	EventNodeLog           EventType = "node.log"           // LogRecord
	EventContractViolated  EventType = "contract.violated"  // ContractViolated
	EventModerationFlagged EventType = "moderation.flagged" // ModerationFlagged
	EventNodeTimedOut      EventType = "node.timed_out"     // TimedOut
	EventNodeRetried       EventType = "node.retried"       // Retried
	EventNodeBlocked       EventType = "node.blocked"       // NodeBlocked
	EventNodePaused        EventType = "node.paused"        // NodePaused
	EventNodeSuspended     EventType = "node.suspended"     // NodeSuspended
	EventNodeSignalled     EventType = "node.signalled"     // NodeSignalled
	EventNodeMocked        EventType = "node.mocked"        // none
	EventNodeInvalidated   EventType = "node.invalidated"   // NodeInvalidated
	EventNodeCompleted     EventType = "node.completed"     // NodeCompleted
	EventNodeFailed        EventType = "node.failed"        // NodeEnded
	EventNodeAborted       EventType = "node.aborted"       // NodeEnded
	EventNodeCancelled     EventType = "node.cancelled"     // NodeEnded
	EventNodeSkipped       EventType = "node.skipped"       // NodeSkipped
)

// Event is one fact about a run. The events of a run are in one total order: run.started comes first, the event that ends
// the run last, a node's events in the order of its life, and a predecessor's end before its consequences.
//
// As JSON an event is an envelope with the keys eventId, sequence, type, runId, workflowId, timestamp, correlation and
// payload; the file event.schema.json describes it.
type Event struct {
	ID       uint64 // 1, 2, 3, ... without holes; 0 for a heartbeat, which is not kept
	Type     EventType
	RunID    string
	Workflow string // the graph's Name
	Time     time.Time
	// TraceID is the same for all events of a run, see the option of this name.
	TraceID string
	// Parent is the id of the event that led to this one, 0 if there is none: for the first event of a node, in each epoch,
	// the end of the predecessor that decided it, the start of its wave, or the failure that stops it; after that the node's
	// own last event, deltas and logs not counted. Either may precede the resumption of the run.
	Parent uint64
	// Node, Path, Attempt, Tier and Epoch are set for node events. Path is the node's id, and inside a composite also the
	// way to it: "S/x" is node x of sub-graph S, "M[2]" the third item of map M, and "L#1/x" node x in the first iteration
	// of loop L. Epoch counts from 1 how often the run was driven anew.
	Node    string
	Path    string
	Attempt int
	Tier    int
	Epoch   int
	// Payload is of the type that the constant of the event's Type names, or nil. The payload of a type that is not known
	// here, of an event that was decoded, is a json.RawMessage.
	Payload any
}

// String renders the event as one line without its time, for logs and tests. Of user values it shows lists, maps and structs
// by their type alone, and shortens others to about a kilobyte.
func (e Event) String() string {
	text := fmt.Sprintf("%d %s", e.ID, e.Type)
	if e.Node != "" {
		text += " " + e.Path
	}
	if e.Attempt > 1 {
		text += fmt.Sprintf(" #%d", e.Attempt)
	}
	payload := e.Payload
	switch p := payload.(type) { // a user value may contain itself: package fmt would never return
	case nil:
		return text
	case Delta:
		if p.Chunk != nil {
			p.Chunk = valueText(p.Chunk)
		}
		payload = p
	case NodeSuspended:
		if p.Info != nil {
			p.Info = valueText(p.Info)
		}
		payload = p
	case NodeCompleted:
		p.Output.Value = nil // its length is told
		payload = p
	case RunEnded:
		p.Aggregation.Value = nil
		payload = p
	case NodeSignalled:
		if p.Value != nil {
			p.Value = valueText(p.Value)
		}
		payload = p
	}
	return text + fmt.Sprintf(" %+v", payload)
}

// RunStarted is the payload of run.started.
type RunStarted struct {
	TotalNodes int
	Mode       Mode
	Test       bool // the run is a test: nodes may be mocked
}

// RunStatusChanged is the payload of run.status.changed: nothing is left to do until a signal comes, or one has come.
type RunStatusChanged struct {
	From, To RunStatus
	// Waiting are the nodes, by path and in the order of declaration, that have begun to wait since the last event of this
	// type, or since the run's start, and wait still. After a crash it may name nodes that an event before the crash named.
	Waiting []string
	// TotalWaiting counts all nodes that wait, including the one whose signal lets the run go on. Run.Waiting lists them.
	TotalWaiting int
	// Request identifies who asked for the redrive, and why, see [RedriveBy].
	Request Request
}

// RunRecovered is the payload of run.recovered: the run goes on after a crash. Events that were shown after event From
// (deltas, logs, the effects of store errors) are not part of the run any more, and later events get their ids; events that
// were kept but never shown are a gap for a reader that goes on.
type RunRecovered struct {
	From uint64 // the id of the last event before the crash that was kept
}

// RunEnded is the payload of the events that end a run.
type RunEnded struct {
	Status   RunStatus
	Degraded bool
	Cause    CauseKind
	// TotalSteps counts the nodes without the end node, FailedSteps those in status failed.
	TotalSteps  int
	FailedSteps int
	Failed      []string // their ids, in the order of declaration
	Duration    time.Duration
	Timeout     time.Duration // the run's timeout, for run.timed_out
	// CancellationRequested is true if somebody asked the run to stop, whether or not anything was left to stop.
	CancellationRequested bool
	// Aggregation is the output of the run: of the end node, else of the only leaf, else of all leaves by id. See EventOutputs.
	Aggregation EventOutput
	Request     Request // who first asked for the run to stop, and why, see Result.StopRequest
}

// Heartbeat is the payload of heartbeat, which tells a reader that the run is alive.
type Heartbeat struct {
	Last uint64 // the id of the run's last event
}

// Wave is the payload of wave events.
type Wave struct {
	Tier  int
	Nodes []string
}

// Delta is the payload of node.stream.delta. Index counts from 1 for each path, and goes on over the attempts of the node and
// of the composites around it, and over the lives of the run.
type Delta struct {
	Index int
	Chunk any
}

// LogRecord is the payload of node.log.
type LogRecord struct {
	Level   slog.Level
	Message string
}

// ContractViolated is the payload of contract.violated, which comes before node.retried or node.failed.
type ContractViolated struct {
	Phase  Phase
	Errors []string // the violations, as Violation.String renders them
}

// ModerationFlagged is the payload of moderation.flagged, which comes before node.failed.
type ModerationFlagged struct {
	Phase  Phase
	Errors []string // the moderator's reasons
}

// TimedOut is the payload of node.timed_out, which comes before node.retried or node.failed.
type TimedOut struct {
	Timeout time.Duration
	Overall bool // the node's overall timeout, not the attempt's
}

// Retried is the payload of node.retried: the attempt that the event names failed, and another one follows after Delay.
type Retried struct {
	Cause CauseKind
	Delay time.Duration
	Err   error
}

// NodeBlocked is the payload of node.blocked: predecessors have made the join impossible, and the policy decides the next
// event.
type NodeBlocked struct {
	Origins []string
	Policy  UpstreamPolicy
}

// NodePaused is the payload of node.paused: an iteration of a loop has ended, and the next one begins after Delay. See Loop.Pause.
type NodePaused struct {
	Iteration int // the number of the iteration that has ended
	Delay     time.Duration
}

// NodeSuspended is the payload of node.suspended: the node waits for a signal from outside.
type NodeSuspended struct {
	Token    string    // the token that the signal must name
	Info     any       // the info that the step passed to Suspend
	Deadline time.Time // zero if there is none
}

// NodeSignalled is the payload of node.signalled: a signal has answered the node. It comes directly before node.completed of a gate,
// and before node.queued of a step that goes on. Actor and Comment are empty unless the signal was a [Decision].
type NodeSignalled struct {
	Value          any
	Actor, Comment string
}

// NodeInvalidated is the payload of node.invalidated: the node has ended and is to run again.
type NodeInvalidated struct {
	Reason  string  // "redrive"
	Request Request // who asked for the redrive, and why, see [RedriveBy]
}

// NodeCompleted is the payload of node.completed.
type NodeCompleted struct {
	Duration     time.Duration
	Labels       []string // the branches that a condition took
	Memoized     bool     // the output is that of an earlier run
	Fallback     bool     // the fallback produced the output
	Err          error    // the error that the fallback replaced
	InputTokens  int      // as the step reported with Step.Tokens
	OutputTokens int
	Output       EventOutput // see EventOutputs
}

// EventOutput is an output as an event carries it by the option [EventOutputs]; zero without that.
type EventOutput struct {
	// Value is the output as the run's [Codec] writes it, nil if that is longer than the option allows.
	Value json.RawMessage
	// Bytes is how long the whole is.
	Bytes int
	// Err is why the Codec could not write it.
	Err error
}

// NodeEnded is the payload of node.failed, node.aborted and node.cancelled. Origins are those known at the time; the
// Result names them all.
type NodeEnded struct {
	Cause     CauseKind
	Origins   []string
	Err       error
	Duration  time.Duration
	Abandoned bool    // the step ignored the end of its context and was left behind
	NoRetry   NoRetry // of node.failed: why there is no other attempt
	Request   Request // of node.aborted and node.cancelled: who asked for the stop that ended the node, and why
	// RoutedToEnd is, for node.failed, whether nothing in the graph was there to handle the failure, so that it is left to the end of the
	// graph. OriginalFailedStep is the path of the node that broke then: this one, or the first that a propagated failure goes back to.
	RoutedToEnd        bool
	OriginalFailedStep string
}

// NodeSkipped is the payload of node.skipped.
type NodeSkipped struct {
	Reason SkipReason
}

// engineNames are the names that other workflow engines use for the types: first the one that EngineName returns, then
// others that ParseEventType accepts.
var engineNames = map[EventType][]string{
	EventRunStarted:        {"run_started", "workflow_started", "playbook_started"},
	EventRunStatus:         {"run_status_changed"},
	EventRunRecovered:      {"run_recovered"},
	EventRunCompleted:      {"workflow_completed", "playbook_completed", "run_completed", "execution_complete"},
	EventRunFailed:         {"workflow_failed", "playbook_failed", "run_failed"},
	EventRunCancelled:      {"run_cancelled", "workflow_cancelled", "playbook_cancelled"},
	EventRunTimedOut:       {"run_timed_out"},
	EventHeartbeat:         {"heartbeat"},
	EventWaveStarted:       {"tier_start", "wave_started"},
	EventWaveCompleted:     {"tier_complete", "wave_completed"},
	EventNodeQueued:        {"node_queued"},
	EventNodeStarted:       {"node_started", "node_start", "step_started"},
	EventNodeDelta:         {"partial", "node_stream_delta"},
	EventNodeLog:           {"node_log"},
	EventContractViolated:  {"contract_violated"},
	EventModerationFlagged: {"moderation_flagged"},
	EventNodeTimedOut:      {"timed_out", "node_timed_out"},
	EventNodeRetried:       {"node_retried", "node_retry"},
	EventNodeBlocked:       {"node_blocked"},
	EventNodePaused:        {"node_paused"},
	EventNodeSuspended:     {"node_waiting", "node_suspended"},
	EventNodeSignalled:     {"node_signalled"},
	EventNodeMocked:        {"node_mocked"},
	EventNodeInvalidated:   {"node_invalidated"},
	EventNodeCompleted:     {"node_completed", "node_complete", "step.exit"},
	EventNodeFailed:        {"node_failed", "step_failed"},
	EventNodeAborted:       {"node_aborted"},
	EventNodeCancelled:     {"node_cancelled"},
	EventNodeSkipped:       {"node_skipped"},
}

// eventTypesByName finds a type by its own name and by the names of other engines.
var eventTypesByName = func() map[string]EventType {
	types := map[string]EventType{}
	for t, names := range engineNames {
		types[string(t)] = t
		for _, name := range names {
			types[name] = t
		}
	}
	return types
}()

// EngineName returns the snake-case name that other workflow engines use for the type, such as node_completed; for an
// unknown type its own name.
func (t EventType) EngineName() string {
	if names := engineNames[t]; names != nil {
		return names[0]
	}
	return string(t)
}

// ParseEventType returns the type of this name: its own, its [EventType.EngineName], or another spelling that engines use,
// such as node_start or step.exit. execution_complete, the end of a run of whatever status, is read as run.completed.
func ParseEventType(name string) (t EventType, ok bool) {
	t, ok = eventTypesByName[name]
	return t, ok
}

// ExecutionTag describes a transition of a node as a row of a table.
type ExecutionTag struct {
	RunID    string         `json:"run_id"`
	Node     string         `json:"node_id"`
	Tag      string         `json:"tag"`
	Metadata map[string]any `json:"metadata"`
}

// tagCauses are the names of causes in tags, where they differ.
var tagCauses = map[CauseKind]string{
	CauseStepError: "provider_error", CauseContractInput: "contract_violated", CauseContractOutput: "contract_violated",
}

// ExecutionTag projects the event to an execution tag: node_started, node_retried, moderation_flagged, contract_violated,
// timed_out, node_failed, node_completed or node_cancelled, which also stands for an aborted node. ok is false for other
// types of event. Metadata holds numbers, strings and slices of strings.
func (e Event) ExecutionTag() (tag ExecutionTag, ok bool) {
	tag = ExecutionTag{RunID: e.RunID, Node: e.Node, Tag: e.Type.EngineName(), Metadata: map[string]any{}}
	switch p := e.Payload.(type) {
	case nil:
		if e.Type != EventNodeStarted {
			return ExecutionTag{}, false
		}
		tag.Metadata["attempt"], tag.Metadata["wave"] = e.Attempt, e.Tier
	case Retried:
		cause := tagCauses[p.Cause]
		if cause == "" {
			cause = p.Cause.String()
		}
		tag.Metadata["attempt"], tag.Metadata["cause"], tag.Metadata["delay_ms"] = e.Attempt, cause, milliseconds(p.Delay)
	case ModerationFlagged:
		tag.Metadata["phase"], tag.Metadata["errors"] = p.Phase.String(), p.Errors
	case ContractViolated:
		tag.Metadata["phase"], tag.Metadata["errors"] = p.Phase.String(), p.Errors
	case TimedOut:
		tag.Metadata["timeout_ms"] = milliseconds(p.Timeout)
	case NodeCompleted:
		tag.Metadata["duration_ms"] = milliseconds(p.Duration)
		if p.InputTokens != 0 || p.OutputTokens != 0 {
			tag.Metadata["input_tokens"], tag.Metadata["output_tokens"] = p.InputTokens, p.OutputTokens
		}
	case NodeEnded:
		if e.Type == EventNodeFailed {
			tag.Metadata["error_code"], tag.Metadata["error_message"] = p.Cause.String(), p.message()
		} else {
			tag.Tag = EventNodeCancelled.EngineName()
		}
	default:
		return ExecutionTag{}, false
	}
	return tag, true
}

// message renders why the node ended, bounded.
func (p NodeEnded) message() string {
	switch err := p.Err.(type) {
	case nil:
		return p.Cause.String()
	case *NodeError:
		if err.Err == nil {
			return p.Cause.String()
		}
		return errorText(err.Err)
	default:
		return messageOf(err)
	}
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
