package kahn

import "github.com/seed-c794f7ef/kahn/internal/enum"

// CauseKind names why a node, or a run, ended other than by completing. The zero value, [CauseNone], belongs to
// completed and skipped nodes.
type CauseKind uint8

// The kinds of cause. The first group is a node's own failure, the second makes it a victim of a failure elsewhere, the
// third is a request to stop.
const (
	CauseNone CauseKind = iota

	CauseStepError         // the step returned an error
	CauseTimeout           // an attempt, or the node as a whole, took too long
	CauseRateLimit         // the step reported RateLimited
	CauseContractInput     // the inputs violate the node's contract
	CauseContractOutput    // the output violates the node's contract
	CauseModeration        // a moderation check refused the inputs or the output
	CausePanic             // user code panicked
	CauseGoexit            // user code ended its goroutine with runtime.Goexit, as t.FailNow does
	CauseConditionError    // a guard or a condition failed to decide
	CauseMergeError        // the inputs could not be merged
	CauseNoBranchMatch     // a condition with NoMatchFail matched no edge
	CauseLoopLimit         // a loop reached its iteration bound
	CauseSubrun            // a nested run failed
	CauseMapItems          // too many items of a map failed
	CauseGateTimeout       // a gate's deadline passed
	CauseStoreError        // the store refused a commit
	CauseStoreRejected     // the store does not take the value
	CauseCrashed           // the process died during each of the last attempts
	CauseEndFailed         // the end node failed
	CauseUpstreamFailure   // a failed node upstream
	CauseUpstreamCancelled // a cancelled node upstream
	CauseSiblingFailure    // a member of the same group failed
	CauseFailFast          // the run stops at the first failure
	CauseAbortAll          // AbortAll was called
	CauseRunTimeout        // the run's deadline passed
	CauseContext           // the caller's context ended
	CauseCancelRun         // Cancel was called
	CauseCancelNode        // CancelNode was called
	CauseExternal          // the call was aborted outside the engine
	CauseSuperseded        // no other node needs the result any more

	causeCount
)

var causeNames = [causeCount]string{
	"", "step_error", "timeout", "rate_limit", "contract_violated_input", "contract_violated_output", "moderation",
	"panic", "goexit", "condition_error", "merge_error", "no_branch_match", "loop_limit", "subrun", "map_items",
	"gate_timeout", "store_error", "store_rejected", "crashed", "end_failed", "upstream_failure", "upstream_cancelled", "sibling_failure",
	"fail_fast", "abort_all", "run_timeout", "ctx", "cancel_run", "cancel_node", "external", "superseded",
}

// String returns the snake-case name of the cause; [CauseNone] is the empty string.
func (k CauseKind) String() string { return enum.Name(causeNames[:], int(k), "CauseKind") }

// MarshalText encodes the cause as its name. A value outside the enum is an error that matches [ErrBadValue].
func (k CauseKind) MarshalText() ([]byte, error) { return enum.Text(causeNames[:], int(k), "cause") }

// UnmarshalText decodes a name. Anything else is an error that matches [ErrBadValue].
func (k *CauseKind) UnmarshalText(text []byte) error {
	return enum.Parse(k, causeNames[:], text, "cause")
}

// stopStatus is the status of a node that is stopped for the cause: aborted when a failure inside the run is behind it,
// cancelled on request.
func (k CauseKind) stopStatus() Status {
	switch k {
	case CauseContext, CauseCancelRun, CauseCancelNode, CauseExternal, CauseSuperseded:
		return Cancelled
	}
	return Aborted
}

// Cause tells why a node ended as it did.
type Cause struct {
	Kind CauseKind
	// Origins are the ids of the nodes whose failure, or cancellation, reached this one, in declaration order. A node that
	// failed by itself is its own origin. Nodes with the same origins may share the slice: it must not be modified. It is
	// computed on request, in time that grows with the edges that let the failure through.
	Origins []string
	// Err is the [*NodeError] of a node that failed by itself, or was stopped by itself or with the run; it unwraps to the
	// step's error or to the cause of the stop. Victims of an upstream failure carry an [*UpstreamError] that unwraps to
	// nothing: the origins carry the errors.
	Err error
}

// causeSet is a set of CauseKinds, a bit each.
type causeSet uint64

func (s causeSet) has(k CauseKind) bool { return s>>k&1 == 1 }

func isUpstream(k CauseKind) bool { return k == CauseUpstreamFailure || k == CauseUpstreamCancelled }
