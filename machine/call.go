package machine

import "github.com/seed-c794f7ef/kahn/internal/enum"

// CallAction is what a coordinator does with the remote call of a node when the node reaches a status.
type CallAction uint8

// The actions on a call.
const (
	CallNone  CallAction = iota // leave the call alone
	CallStart                   // the node is ready: start the call
	CallSkip                    // the node was skipped: there will be no call
	CallAbort                   // the node was stopped: abort the call
)

var callActionNames = enum.Of[CallAction]("action", "none", "start", "skip", "abort")

// String returns "none", "start", "skip" or "abort".
func (a CallAction) String() string { return callActionNames.Name(a) }

// CallAction returns what a coordinator should do with a node's call when the node reaches status s: [CallStart] for ready, [CallSkip] for skipped,
// [CallAbort] for aborted and for cancelled, and [CallNone] for every other status. Call protocols do not distinguish aborted from cancelled.
func (s Status) CallAction() CallAction {
	switch s {
	case Ready:
		return CallStart
	case Skipped:
		return CallSkip
	case Aborted, Cancelled:
		return CallAbort
	}
	return CallNone
}

// CallStatus is the status of a remote call, as call protocols name it.
type CallStatus uint8

// The statuses of a call.
const (
	CallRunning CallStatus = iota
	CallCompleted
	CallFailed
	CallAborted
)

var callStatusNames = enum.Of[CallStatus]("call", "running", "completed", "failed", "aborted")

// String returns "running", "completed", "failed" or "aborted".
func (c CallStatus) String() string { return callStatusNames.Name(c) }

// NodeStatus returns the status and the cause of a node whose call has the status c. After a failed call, the node is [Retrying] if retryGranted is
// set, and [Failed] otherwise. The parameter `stop` matters only after an aborted call. If the engine was asked to stop the node, `stop` must be the
// cause of this stop. The node then has this cause, and the status that [CauseKind.StopStatus] returns for it. If `stop` is [CauseNone], the node is
// [Cancelled] with [CauseExternal].
func (c CallStatus) NodeStatus(retryGranted bool, stop CauseKind) (Status, CauseKind) {
	switch c {
	case CallCompleted:
		return Completed, CauseNone
	case CallFailed:
		if retryGranted {
			return Retrying, CauseNone
		}
		return Failed, CauseStepError
	case CallAborted:
		if stop == CauseNone {
			return Cancelled, CauseExternal
		}
		return stop.StopStatus(), stop
	}
	return Running, CauseNone
}
