package machine

import "github.com/seed-c794f7ef/kahn/internal/enum"

// Status is the status of a node in one run. The zero value is [Idle].
//
// The statuses distinguish a node that failed from the nodes that its failure affects. A [Failed] node failed by itself or, under
// [UpstreamPropagate], because of its predecessors. An [Aborted] node was stopped, or never started, because of a failure elsewhere: usually another
// node of the run failed. A [Cancelled] node was stopped, or never started, on request. A [Skipped] node was not on the chosen path, or was skipped
// for another reason: see [SkipKind].
type Status uint8

// The statuses of a node. The last five are terminal: a node that reached one of them never leaves it.
const (
	Idle      Status = iota // no predecessor has started or ended yet
	Waiting                 // a predecessor has started or ended, and the join is undecided
	Ready                   // the join is satisfied and every check has passed; the node is queued for a slot
	Running                 // an attempt is executing
	Retrying                // an attempt failed and another will follow; the node backs off and holds no slot
	Suspended               // the node waits for a signal from outside, and holds neither a slot nor a goroutine
	Completed               // the node has an output
	Failed                  // the node's own work failed, after all retries; or UpstreamPropagate passed a failure on to the node
	Aborted                 // stopped, or never started, because of a failure elsewhere, such as a failed node or the timeout of the run
	Cancelled               // stopped, or never started, on request
	Skipped                 // not on the chosen path, or skipped for another reason: see SkipKind

	statusCount
)

var statusNames = enum.Of[Status]("status",
	"idle", "waiting", "ready", "running", "retrying", "suspended",
	"completed", "failed", "aborted", "cancelled", "skipped",
)

// statusAliases are the spellings that other engines use for the same statuses; UnmarshalText accepts them.
var statusAliases = map[string]Status{
	"succeeded": Completed, "error": Failed, "upstream_failed": Aborted, "blocked": Aborted,
	"canceled": Cancelled, "omitted": Skipped, "tracking": Waiting, "dispatched": Running,
}

// Terminal reports whether the status is final.
func (s Status) Terminal() bool { return s >= Completed && s < statusCount }

// String returns the lower-case name of the status, the form in which it is encoded.
func (s Status) String() string { return statusNames.Name(s) }

// MarshalText encodes the status as its name. If the value is outside the enum, it returns an error that matches [ErrBadValue].
func (s Status) MarshalText() ([]byte, error) { return statusNames.Text(s) }

// UnmarshalText decodes a name, or one of the aliases that other engines use ("succeeded", "error",
// "upstream_failed", "blocked", "canceled", "omitted", "tracking", "dispatched"). For any other text
// it returns an error that matches [ErrBadValue].
func (s *Status) UnmarshalText(text []byte) error {
	if alias, ok := statusAliases[string(text)]; ok {
		*s = alias
		return nil
	}
	return statusNames.Parse(s, text)
}

// The variable `transitions` is the table of permitted transitions: bit t of entry s is set if s may become t.
//
// Waiting is never stored: a State stores Idle, and computes Waiting when a status is read. A node that is retried does not pass through Failed,
// since Failed is terminal. No transition leads out of a terminal status.
//
// Ready and Running may become Skipped for different reasons: a ready node is superseded before it starts, and a running node's step returns
// Skip. Running becomes Ready again in three cases: the attempt is interrupted because the run is being left (see [Locked.Leave]), the store cannot
// record the result of the attempt, or the attempt gave up its slots to wait for a memoized output and did not get it.
var transitions = [statusCount]uint16{
	Idle:      bits(Waiting, Ready, Skipped, Aborted, Failed, Cancelled),
	Waiting:   bits(Ready, Skipped, Aborted, Failed, Cancelled),
	Ready:     bits(Running, Completed, Failed, Aborted, Cancelled, Suspended, Skipped),
	Running:   bits(Ready, Completed, Failed, Retrying, Suspended, Skipped, Aborted, Cancelled),
	Retrying:  bits(Ready, Failed, Aborted, Cancelled),
	Suspended: bits(Ready, Completed, Failed, Aborted, Cancelled),
}

func bits(to ...Status) (set uint16) {
	for _, s := range to {
		set |= 1 << s
	}
	return set
}

// CanBecome reports whether a node may change from s to t in one step.
func (s Status) CanBecome(t Status) bool {
	return s < statusCount && t < statusCount && transitions[s]>>t&1 == 1
}

// RunStatus is the status of a whole run. The zero value is [RunPending].
type RunStatus uint8

// The statuses of a run. The last three are terminal.
const (
	RunPending   RunStatus = iota // accepted, not started
	RunRunning                    // executing
	RunSuspended                  // the run can do nothing until a signal arrives
	RunCompleted                  // no failure, or every failure was handled
	RunFailed                     // a failure was not handled
	RunCancelled                  // at least one node was stopped on request, and every failure was handled

	runStatusCount
)

var runStatusNames = enum.Of[RunStatus]("run status", "pending", "running", "suspended", "completed", "failed", "cancelled")

// Terminal reports whether the status is final.
func (s RunStatus) Terminal() bool { return s >= RunCompleted && s < runStatusCount }

// String returns the lower-case name of the status, the form in which it is encoded.
func (s RunStatus) String() string { return runStatusNames.Name(s) }

// MarshalText encodes the status as its name. If the value is outside the enum, it returns an error that matches [ErrBadValue].
func (s RunStatus) MarshalText() ([]byte, error) { return runStatusNames.Text(s) }

// UnmarshalText decodes a name, or one of the aliases that other engines use ("succeeded", "error", "canceled"). For any other text it returns an
// error that matches [ErrBadValue].
func (s *RunStatus) UnmarshalText(text []byte) error {
	switch string(text) {
	case "succeeded":
		*s = RunCompleted
		return nil
	case "error":
		*s = RunFailed
		return nil
	case "canceled":
		*s = RunCancelled
		return nil
	}
	return runStatusNames.Parse(s, text)
}
