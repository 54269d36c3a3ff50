package machine

import "github.com/seed-c794f7ef/kahn/internal/enum"

// CauseKind names the reason why a node or a run failed or was stopped. A completed or skipped node has the zero value, [CauseNone]. A run that
// failed only because of its nodes also has [CauseNone].
type CauseKind uint8

// The kinds of cause. [CauseStepError] to [CauseCrashed] are a node's own failures. [CauseUpstreamFailure] to [CauseRunTimeout], and [CauseBudget],
// arise outside the node, and stop the node or keep it from running. [CauseContext] to [CauseSuperseded] are requests to stop the node. Only a run
// has [CauseEndFailed] or [CauseCompensationFailed].
const (
	CauseNone CauseKind = iota

	CauseStepError          // the step returned an error
	CauseTimeout            // an attempt, or the node as a whole, took too long
	CauseRateLimit          // the step reported RateLimited
	CauseContractInput      // the inputs violate the node's contract
	CauseContractOutput     // the output violates the node's contract
	CauseModeration         // a moderation check refused the inputs or the output
	CausePanic              // user code panicked
	CauseGoexit             // user code ended its goroutine with runtime.Goexit, as t.FailNow does
	CauseConditionError     // a guard, a condition or the test of a loop failed to decide
	CauseMergeError         // the inputs could not be merged
	CauseNoBranchMatch      // a condition with NoMatchFail has no edge for its answer
	CauseLoopLimit          // a loop reached its iteration bound
	CauseSubrun             // a nested run failed
	CauseMapItems           // too many items of a map failed
	CauseGateTimeout        // a gate's deadline passed
	CauseStoreError         // the store refused a write, or did not answer
	CauseStoreRejected      // the store can never hold the value
	CauseCrashed            // the process died during each of the last attempts
	CauseEndFailed          // the end node failed
	CauseUpstreamFailure    // a node upstream failed
	CauseUpstreamCancelled  // a node upstream was cancelled
	CauseSiblingFailure     // a member of the same group failed
	CauseFailFast           // the run stops at the first failure
	CauseAbortAll           // AbortAll was called
	CauseRunTimeout         // the run's deadline passed
	CauseContext            // the caller's context ended
	CauseCancelRun          // Cancel was called
	CauseCancelNode         // CancelNode was called
	CauseExternal           // the call was aborted outside the engine
	CauseSuperseded         // no other node needs the result any more
	CauseCompensationFailed // a node could not be undone: a cause of a run, like CauseEndFailed
	CauseBudget             // the run has used more than its budget allows
)

var causeNames = enum.Of[CauseKind]("cause",
	"", "step_error", "timeout", "rate_limit", "contract_violated_input", "contract_violated_output", "moderation",
	"panic", "goexit", "condition_error", "merge_error", "no_branch_match", "loop_limit", "subrun", "map_items",
	"gate_timeout", "store_error", "store_rejected", "crashed", "end_failed", "upstream_failure", "upstream_cancelled", "sibling_failure",
	"fail_fast", "abort_all", "run_timeout", "ctx", "cancel_run", "cancel_node", "external", "superseded", "compensation_failed", "budget",
)

// String returns the snake-case name of the cause; [CauseNone] is the empty string.
func (k CauseKind) String() string { return causeNames.Name(k) }

// MarshalText encodes the cause as its name. It returns an error that matches [ErrBadValue] for a value outside the enum.
func (k CauseKind) MarshalText() ([]byte, error) { return causeNames.Text(k) }

// UnmarshalText decodes a name. It returns an error that matches [ErrBadValue] for any other text.
func (k *CauseKind) UnmarshalText(text []byte) error { return causeNames.Parse(k, text) }

// Each set contains causes for nodes of one status: ownFailures for failed nodes, otherFailures for aborted nodes, and requests for cancelled nodes.
// A node that failed because of its predecessors has a cause in upstreamCauses. CauseStoreError is in two sets: it fails the node whose end cannot be
// written, and aborts the other nodes. [CauseEndFailed] and [CauseCompensationFailed] are in no set, since only a run has them.
const (
	ownFailures    = CauseSet(1<<CauseEndFailed - 1<<CauseStepError) // all from CauseStepError to CauseCrashed
	upstreamCauses = CauseSet(1<<CauseUpstreamFailure | 1<<CauseUpstreamCancelled)
	otherFailures  = upstreamCauses | CauseSet(1<<CauseSiblingFailure|1<<CauseFailFast|1<<CauseAbortAll|1<<CauseBudget|1<<CauseRunTimeout|1<<CauseStoreError)
	requests       = CauseSet(1<<CauseContext | 1<<CauseCancelRun | 1<<CauseCancelNode | 1<<CauseExternal | 1<<CauseSuperseded)
)

// causesOf maps a status to the causes of nodes that ended by themselves or were stopped. It does not cover nodes that failed because of their
// predecessors: their causes are in upstreamCauses.
var causesOf = [statusCount]CauseSet{Failed: ownFailures, Aborted: otherFailures, Cancelled: requests}

// StopStatus returns the status of a node that is stopped for the cause k: [Cancelled] for a request such as [CauseCancelRun], and [Aborted] for any
// other cause.
func (k CauseKind) StopStatus() Status {
	if requests.Has(k) {
		return Cancelled
	}
	return Aborted
}

// The method `stops` reports whether a node or a run can be stopped for the cause k.
func (k CauseKind) stops() bool { return (otherFailures | requests).Has(k) }

// CauseSet is a set of CauseKinds, with one bit for each kind.
type CauseSet uint64

// Has reports whether k is in the set.
func (s CauseSet) Has(k CauseKind) bool { return s>>k&1 == 1 }

// IsUpstream reports whether a node with the cause k was aborted, or failed without running, because of its predecessors.
func IsUpstream(k CauseKind) bool { return upstreamCauses.Has(k) }
