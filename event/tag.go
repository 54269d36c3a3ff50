package event

import (
	"time"

	"github.com/seed-c794f7ef/kahn/machine"
)

// ExecutionTag describes a transition of a node as a row of a table.
type ExecutionTag struct {
	RunID    string         `json:"run_id"`
	Node     string         `json:"node_id"`
	Tag      string         `json:"tag"`
	Metadata map[string]any `json:"metadata"`
}

// tagCauses are the names of causes in tags, where they differ.
var tagCauses = map[machine.CauseKind]string{
	machine.CauseStepError: "provider_error", machine.CauseContractInput: "contract_violated", machine.CauseContractOutput: "contract_violated",
}

// ExecutionTag projects the event to an execution tag: node_started, node_retried, moderation_flagged, contract_violated,
// timed_out, node_failed, node_completed or node_cancelled, which also stands for an aborted node. ok is false for other
// types of event. Metadata holds numbers, strings and slices of strings.
func (e Event) ExecutionTag() (tag ExecutionTag, ok bool) {
	tag = ExecutionTag{RunID: e.RunID, Node: e.Node, Tag: e.Type.EngineName(), Metadata: map[string]any{}}
	switch p := e.Payload.(type) {
	case nil:
		if e.Type != NodeStarted {
			return ExecutionTag{}, false
		}
		tag.Metadata["attempt"], tag.Metadata["wave"] = e.Attempt, e.Tier
	case Retry:
		cause := tagCauses[p.Cause]
		if cause == "" {
			cause = p.Cause.String()
		}
		tag.Metadata["attempt"], tag.Metadata["cause"], tag.Metadata["delay_ms"] = e.Attempt, cause, milliseconds(p.Delay)
	case Refusal:
		tag.Metadata["phase"], tag.Metadata["errors"] = p.Phase.String(), p.Errors
	case Breach:
		tag.Metadata["phase"], tag.Metadata["errors"] = p.Phase.String(), p.Errors
	case Timeout:
		tag.Metadata["timeout_ms"] = milliseconds(p.Timeout)
	case Completion:
		tag.Metadata["duration_ms"] = milliseconds(p.Duration)
		if p.InputTokens != 0 || p.OutputTokens != 0 {
			tag.Metadata["input_tokens"], tag.Metadata["output_tokens"] = p.InputTokens, p.OutputTokens
		}
	case NodeEnd:
		if e.Type == NodeFailed {
			tag.Metadata["error_code"], tag.Metadata["error_message"] = p.Cause.String(), p.message()
		} else {
			tag.Tag = NodeCancelled.EngineName()
		}
	default:
		return ExecutionTag{}, false
	}
	return tag, true
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
