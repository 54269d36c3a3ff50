package event

import (
	"time"

	"github.com/seed-c794f7ef/kahn/machine"
)

// ExecutionTag describes an event of a node, in the form of a row of a table.
type ExecutionTag struct {
	RunID    string         `json:"run_id"`
	Node     string         `json:"node_id"`
	Tag      string         `json:"tag"`
	Metadata map[string]any `json:"metadata"`
}

// tagCauses maps some causes to the names that they have in the tag node_retried. All other causes have their own names there.
var tagCauses = map[machine.CauseKind]string{
	machine.CauseStepError: "provider_error", machine.CauseContractInput: "contract_violated", machine.CauseContractOutput: "contract_violated",
}

// suspendedTag is the tag of node.suspended. Other engines call this event node_waiting, but a tag uses kahn's name for the status of the
// node.
const suspendedTag = "node_suspended"

// ExecutionTag converts the event to an execution tag: node_queued, node_started, node_retried, moderation_flagged, contract_violated, timed_out,
// node_blocked, node_suspended, node_skipped, node_failed, node_completed or node_cancelled. The end of an aborted node also becomes node_cancelled.
// For any other event, ok is false. Metadata holds numbers, strings and slices of strings.
func (e Event) ExecutionTag() (tag ExecutionTag, ok bool) {
	tag = ExecutionTag{RunID: e.RunID, Node: e.Node, Tag: e.Type.EngineName(), Metadata: map[string]any{}}
	switch p := e.Payload.(type) {
	case nil:
		if e.Type != NodeStarted && e.Type != NodeQueued {
			return ExecutionTag{}, false
		}
		tag.Metadata["attempt"], tag.Metadata["wave"] = e.Attempt, e.Tier
	case Block:
		tag.Metadata["origins"], tag.Metadata["policy"] = p.Origins, p.Policy.String()
	case Suspension:
		tag.Tag = suspendedTag
		tag.Metadata["token"] = p.Token
		if !p.Deadline.IsZero() {
			tag.Metadata["deadline"] = p.Deadline.UTC().Format(time.RFC3339Nano)
		}
	case Skip:
		tag.Metadata["reason"] = p.Reason.Kind.String()
		for name, value := range map[string]string{
			"node": p.Reason.Node, "label": p.Reason.Label, "answer": p.Reason.Answer, "port": p.Reason.Port, "rule": p.Reason.Rule,
			"expression": p.Reason.Expression, "message": p.Reason.Message,
		} {
			if value != "" {
				tag.Metadata[name] = value
			}
		}
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
