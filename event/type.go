package event

// Type names the kind of fact that an event reports.
type Type string

// The event types, each with the type of its payload.
const (
	RunStarted       Type = "run.started"        // Start
	RunStatusChanged Type = "run.status.changed" // StatusChange
	RunRecovered     Type = "run.recovered"      // Recovery
	RunCompleted     Type = "run.completed"      // RunEnd
	RunFailed        Type = "run.failed"         // RunEnd
	RunCancelled     Type = "run.cancelled"      // RunEnd
	RunTimedOut      Type = "run.timed_out"      // RunEnd
	Heartbeat        Type = "heartbeat"          // Beat; see Run.Heartbeat

	WaveStarted   Type = "wave.started"   // Wave
	WaveCompleted Type = "wave.completed" // Wave

	NodeQueued        Type = "node.queued"        // none
	NodeStarted       Type = "node.started"       // none
	NodeDelta         Type = "node.stream.delta"  // Delta
	NodeLog           Type = "node.log"           // LogRecord
	ContractViolated  Type = "contract.violated"  // Breach
	ModerationFlagged Type = "moderation.flagged" // Refusal
	NodeTimedOut      Type = "node.timed_out"     // Timeout
	NodeRetried       Type = "node.retried"       // Retry
	NodeBlocked       Type = "node.blocked"       // Block
	NodePaused        Type = "node.paused"        // Pause
	NodeSuspended     Type = "node.suspended"     // Suspension
	NodeSignalled     Type = "node.signalled"     // Answer
	NodeMocked        Type = "node.mocked"        // none
	NodeInvalidated   Type = "node.invalidated"   // Invalidation
	NodeCompensating  Type = "node.compensating"  // Compensation
	NodeCompensated   Type = "node.compensated"   // Compensation
	NodeCompleted     Type = "node.completed"     // Completion
	NodeFailed        Type = "node.failed"        // NodeEnd
	NodeAborted       Type = "node.aborted"       // NodeEnd
	NodeCancelled     Type = "node.cancelled"     // NodeEnd
	NodeSkipped       Type = "node.skipped"       // Skip
)

// engineNames are the names that other workflow engines use for the types. EngineName returns the first name; ParseType accepts all names.
var engineNames = map[Type][]string{
	RunStarted:        {"run_started", "workflow_started", "playbook_started"},
	RunStatusChanged:  {"run_status_changed"},
	RunRecovered:      {"run_recovered"},
	RunCompleted:      {"workflow_completed", "playbook_completed", "run_completed", "execution_complete"},
	RunFailed:         {"workflow_failed", "playbook_failed", "run_failed"},
	RunCancelled:      {"run_cancelled", "workflow_cancelled", "playbook_cancelled"},
	RunTimedOut:       {"run_timed_out"},
	Heartbeat:         {"heartbeat"},
	WaveStarted:       {"tier_start", "wave_started"},
	WaveCompleted:     {"tier_complete", "wave_completed"},
	NodeQueued:        {"node_queued"},
	NodeStarted:       {"node_started", "node_start", "step_started"},
	NodeDelta:         {"partial", "node_stream_delta"},
	NodeLog:           {"node_log"},
	ContractViolated:  {"contract_violated"},
	ModerationFlagged: {"moderation_flagged"},
	NodeTimedOut:      {"timed_out", "node_timed_out"},
	NodeRetried:       {"node_retried", "node_retry"},
	NodeBlocked:       {"node_blocked"},
	NodePaused:        {"node_paused"},
	NodeSuspended:     {"node_waiting", "node_suspended"},
	NodeSignalled:     {"node_signalled"},
	NodeMocked:        {"node_mocked"},
	NodeInvalidated:   {"node_invalidated"},
	NodeCompensating:  {"node_compensating"},
	NodeCompensated:   {"node_compensated"},
	NodeCompleted:     {"node_completed", "node_complete", "step.exit"},
	NodeFailed:        {"node_failed", "step_failed"},
	NodeAborted:       {"node_aborted"},
	NodeCancelled:     {"node_cancelled"},
	NodeSkipped:       {"node_skipped"},
}

// typesByName maps a type's own name, and its names in other engines, to the type.
var typesByName = func() map[string]Type {
	types := map[string]Type{}
	for t, names := range engineNames {
		types[string(t)] = t
		for _, name := range names {
			types[name] = t
		}
	}
	return types
}()

// EngineName returns the snake-case name that other workflow engines use for the type, such as node_completed. For an unknown type it
// returns the type's own name.
func (t Type) EngineName() string {
	if names := engineNames[t]; names != nil {
		return names[0]
	}
	return string(t)
}

// ParseType returns the type with the given name. The name may be the type's own name, its [Type.EngineName], or another name that other engines use,
// such as node_start or step.exit. Some engines report the end of every run as execution_complete, whatever the run's status. ParseType returns
// RunCompleted for this name.
func ParseType(name string) (t Type, ok bool) {
	t, ok = typesByName[name]
	return t, ok
}
