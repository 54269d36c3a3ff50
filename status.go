package kahn

import (
	"fmt"
	"strings"

	"github.com/seed-c794f7ef/kahn/internal/enum"
	"github.com/seed-c794f7ef/kahn/machine"
)

// This file declares the types and constants of package machine again in this package, so that callers of [Execute] need not import package machine.

// Status is the status of a node in one run. The zero value is [Idle].
//
// The statuses distinguish a node that failed from the nodes that its failure affects. A [Failed] node failed by itself or, under
// [UpstreamPropagate], because of its predecessors. An [Aborted] node was stopped, or never started, because of a failure elsewhere: usually another
// node failed. A [Cancelled] node was stopped, or never started, on request. A [Skipped] node is not on the chosen path, or was skipped for another
// reason.
type Status = machine.Status

// The statuses of a node. The last five are terminal: a node never leaves a terminal status.
const (
	Idle      Status = machine.Idle      // no predecessor has started or ended yet
	Waiting   Status = machine.Waiting   // a predecessor has started or ended, and the join is undecided
	Ready     Status = machine.Ready     // the join is satisfied, every check has passed, and the node waits for a slot
	Running   Status = machine.Running   // an attempt is being performed
	Retrying  Status = machine.Retrying  // an attempt failed and another will follow: the node backs off and holds no slot
	Suspended Status = machine.Suspended // the node waits for a signal from outside, and holds neither a slot nor a goroutine
	Completed Status = machine.Completed // the node has an output
	Failed    Status = machine.Failed    // the node's own work failed, after all retries; or UpstreamPropagate passed a failure on to the node
	Aborted   Status = machine.Aborted   // the node was stopped, or never started, because of a failure elsewhere
	Cancelled Status = machine.Cancelled // the node was stopped, or never started, on request
	Skipped   Status = machine.Skipped   // the node is not on the chosen path, or was skipped for another reason
)

// RunStatus is the status of a whole run. The zero value is [RunPending].
type RunStatus = machine.RunStatus

// The statuses of a run. The last three are terminal.
const (
	RunPending   RunStatus = machine.RunPending   // the run was accepted, but has not started
	RunRunning   RunStatus = machine.RunRunning   // the run has started, and has not ended
	RunSuspended RunStatus = machine.RunSuspended // the run waits for a signal, and has nothing else to do
	RunCompleted RunStatus = machine.RunCompleted // all failures, if any, were handled
	RunFailed    RunStatus = machine.RunFailed    // a failure was not handled
	RunCancelled RunStatus = machine.RunCancelled // at least one node was stopped on request, and all failures were handled
)

// CauseKind names the reason why a node or a run failed or was stopped. A completed or skipped node has the zero value, [CauseNone]. A run that
// failed only because of its nodes also has CauseNone.
type CauseKind = machine.CauseKind

// The kinds of cause. CauseStepError to CauseCrashed are a node's own failures. CauseContext to CauseSuperseded are requests to stop. Only a
// run has CauseEndFailed or CauseCompensationFailed. All other causes originate outside the node.
const (
	CauseNone               CauseKind = machine.CauseNone
	CauseStepError          CauseKind = machine.CauseStepError          // the step returned an error
	CauseTimeout            CauseKind = machine.CauseTimeout            // an attempt, or the node as a whole, took too long
	CauseRateLimit          CauseKind = machine.CauseRateLimit          // the step reported RateLimited
	CauseContractInput      CauseKind = machine.CauseContractInput      // the inputs violate the node's contract
	CauseContractOutput     CauseKind = machine.CauseContractOutput     // the output violates the node's contract
	CauseModeration         CauseKind = machine.CauseModeration         // a moderation check refused the inputs or the output
	CausePanic              CauseKind = machine.CausePanic              // user code panicked
	CauseGoexit             CauseKind = machine.CauseGoexit             // user code ended its goroutine with runtime.Goexit, as t.FailNow does
	CauseConditionError     CauseKind = machine.CauseConditionError     // a guard, a condition or the test of a loop failed to decide
	CauseMergeError         CauseKind = machine.CauseMergeError         // the inputs could not be merged
	CauseNoBranchMatch      CauseKind = machine.CauseNoBranchMatch      // a condition with NoMatchFail matched no edge
	CauseLoopLimit          CauseKind = machine.CauseLoopLimit          // a loop reached its MaxIterations
	CauseSubrun             CauseKind = machine.CauseSubrun             // a nested run failed
	CauseMapItems           CauseKind = machine.CauseMapItems           // too many items of a map failed
	CauseGateTimeout        CauseKind = machine.CauseGateTimeout        // a gate's deadline passed
	CauseStoreError         CauseKind = machine.CauseStoreError         // the store refused a write, or did not answer
	CauseStoreRejected      CauseKind = machine.CauseStoreRejected      // the store can never hold the value
	CauseCrashed            CauseKind = machine.CauseCrashed            // the process died during each of the last attempts
	CauseEndFailed          CauseKind = machine.CauseEndFailed          // the end node failed
	CauseUpstreamFailure    CauseKind = machine.CauseUpstreamFailure    // a node upstream failed
	CauseUpstreamCancelled  CauseKind = machine.CauseUpstreamCancelled  // a node upstream was cancelled
	CauseSiblingFailure     CauseKind = machine.CauseSiblingFailure     // a member of the same group failed
	CauseFailFast           CauseKind = machine.CauseFailFast           // the run stops at the first failure
	CauseAbortAll           CauseKind = machine.CauseAbortAll           // AbortAll was called
	CauseRunTimeout         CauseKind = machine.CauseRunTimeout         // the run's deadline passed
	CauseContext            CauseKind = machine.CauseContext            // the caller's context ended
	CauseCancelRun          CauseKind = machine.CauseCancelRun          // Cancel was called
	CauseCancelNode         CauseKind = machine.CauseCancelNode         // CancelNode was called
	CauseExternal           CauseKind = machine.CauseExternal           // the step returned ErrCallAborted
	CauseSuperseded         CauseKind = machine.CauseSuperseded         // no other node needs the result any more
	CauseCompensationFailed CauseKind = machine.CauseCompensationFailed // a node could not be undone
	CauseBudget             CauseKind = machine.CauseBudget             // the run has used more than its budget allows
)

// Compensation is the progress of undoing a node, or the nodes of a run: see Compensate of [Node].
type Compensation = machine.Compensation

// The states of a compensation. For a run, and for a composite without a Compensate, the state summarizes the nodes inside.
const (
	CompensationNone    Compensation = machine.CompensationNone    // nothing was undone, and nothing is being undone
	CompensationRunning Compensation = machine.CompensationRunning // the node is being undone, or waits for its turn
	CompensationDone    Compensation = machine.CompensationDone    // the node was undone
	CompensationFailed  Compensation = machine.CompensationFailed  // the node could not be undone
)

// The kinds of skip.
const (
	SkipNone            machine.SkipKind = machine.SkipNone
	SkipAnnotation      machine.SkipKind = machine.SkipAnnotation      // Node.Disabled
	SkipWhenGuard       machine.SkipKind = machine.SkipWhenGuard       // the guard did not let the node run
	SkipConditionBranch machine.SkipKind = machine.SkipConditionBranch // conditions took other branches
	SkipNullPropagation machine.SkipKind = machine.SkipNullPropagation // a required port has no value
	SkipUpstreamSkipped machine.SkipKind = machine.SkipUpstreamSkipped // predecessors of the node were skipped
	SkipParentFailure   machine.SkipKind = machine.SkipParentFailure   // a predecessor failed, and the node's OnUpstreamFailure is UpstreamSkip
	SkipRuleUnsatisfied machine.SkipKind = machine.SkipRuleUnsatisfied // the join rule can no longer be satisfied
	SkipSelf            machine.SkipKind = machine.SkipSelf            // the step returned Skip
	SkipSuperseded      machine.SkipKind = machine.SkipSuperseded      // no other node needs the result any more
)

// Join is the rule that decides whether a node runs. The rule looks at the classes of the node's in-edges. All rules except [AtLeast] are constants.
// The zero value means [AllDone] for a Cleanup node and the end node, [Boundary] for any other node with a Test, and [AllSucceeded] for the rest.
//
// Every in-edge resolves exactly once, when its source is terminal. A control edge then has one class: S (satisfied), N (neutral: the source was
// skipped, or a boundary judges its failure), X (dead: the source's outcome selects other edges) or F (failed). A data-only edge delays the node, but
// has no class. A rule with the name of a trigger rule of Apache Airflow decides like that trigger rule. A side edge only delivers data, see
// [Plan.Edges]. Under AllSucceeded and Boundary, side edges alone do not make a node run. The other rules count a side edge like any other edge.
type Join = machine.Join

// The join rules. A rule marked "early" can decide before all edges have resolved. But no rule skips a node early.
const (
	AllSucceeded  Join = machine.AllSucceeded  // all edges resolved, no F, and an S from an edge that is no side edge; an F blocks the node early
	AnySucceeded  Join = machine.AnySucceeded  // one S, early
	AllDone       Join = machine.AllDone       // all edges resolved, in any class; the node observes failures and does not handle them
	AllDoneMinOne Join = machine.AllDoneMinOne // all edges resolved, at least one S
	OneFailed     Join = machine.OneFailed     // one F, early
	AllFailed     Join = machine.AllFailed     // all edges F
	NoneFailed    Join = machine.NoneFailed    // all edges resolved, no F; an F blocks the node early
	NoneSkipped   Join = machine.NoneSkipped   // all edges resolved, none N or X
	AllSkipped    Join = machine.AllSkipped    // all edges N or X; the node observes failures
	OneDone       Join = machine.OneDone       // one S or F, early
	Boundary      Join = machine.Boundary      // all edges resolved, and an S or F from an edge that is no side edge: for conditions that judge failures
)

// The skip modes determine how edges from skipped predecessors count for a node. These edges have the class N. No mode counts an X edge as satisfied.
const (
	// SkipCascade leaves N edges neutral. Under AllSucceeded, a node is skipped if all its predecessors were skipped. It runs if some predecessors were
	// skipped and the others completed.
	SkipCascade machine.SkipMode = machine.SkipCascade
	// SkipSatisfy counts an N edge as satisfied, without a value. But the edge stays neutral if its source was skipped because a branch was not
	// taken. So the rest of that branch does not run either.
	SkipSatisfy machine.SkipMode = machine.SkipSatisfy
	// SkipStrict matters only under AllSucceeded: a node is skipped if at least one of its edges is N or X, and none is F.
	SkipStrict machine.SkipMode = machine.SkipStrict
)

// The upstream policies determine what happens to a node whose join can no longer be satisfied because predecessors failed, were aborted or were
// cancelled.
const (
	// UpstreamAbort aborts the node.
	UpstreamAbort machine.UpstreamPolicy = machine.UpstreamAbort
	// UpstreamSkip skips the node with the reason parent_failure. The failure then counts as handled, unless the node only observes failures.
	UpstreamSkip machine.UpstreamPolicy = machine.UpstreamSkip
	// UpstreamPropagate fails the node without running it, and without a retry.
	UpstreamPropagate machine.UpstreamPolicy = machine.UpstreamPropagate
	// UpstreamSubstitute waits for all predecessors, then runs the node with defaults instead of the missing values.
	UpstreamSubstitute machine.UpstreamPolicy = machine.UpstreamSubstitute
)

// Handling determines what a node does with the failures that reach it, if the node runs: it handles them or only observes them. Under
// [StatusEscaped], an unhandled failure fails the run.
type Handling uint8

// The values of Handling.
const (
	HandlingDefault Handling = iota // the end node, cleanup nodes, and nodes with AllDone or AllSkipped observe failures; all other nodes handle them
	Handles                         // the node handles failures
	Observes                        // the node only observes failures

	handlingCount
)

var handlingNames = enum.Of[Handling]("handling", "default", "handles", "observes")

// String returns the name of h: "default", "handles" or "observes".
func (h Handling) String() string { return handlingNames.Name(h) }

// MarshalText encodes h as its name. If h is not one of the values of Handling, the error matches [ErrBadValue].
func (h Handling) MarshalText() ([]byte, error) { return handlingNames.Text(h) }

// UnmarshalText decodes a name. It returns an error that matches [ErrBadValue] for any other text.
func (h *Handling) UnmarshalText(text []byte) error { return handlingNames.Parse(h, text) }

// AtLeast returns a Join that is satisfied as soon as k edges are satisfied. Compile refuses a k below 1 or above the number of control
// edges.
func AtLeast(k int) Join { return machine.AtLeast(k) }

// These errors of package machine concern values and the calls of a State.
var (
	ErrBadValue    = machine.ErrBadValue
	ErrUnknownNode = machine.ErrUnknownNode
	// ErrStale is returned for an outcome with an old token: the token is not the node's current token. The State is unchanged.
	ErrStale = machine.ErrStale
	// ErrTransition is returned if the node's status does not allow the call. The State is unchanged. See [*machine.TransitionError].
	ErrTransition = machine.ErrTransition
	// ErrGraphChanged is returned if a snapshot belongs to a run of another graph.
	ErrGraphChanged = machine.ErrGraphChanged
)

// enumField is a field whose type is an enum.
type enumField struct {
	name  string
	value int
	names []string
}

// The function `wrong` describes the first field with a value that its enum does not have. If all values are valid, ok is false.
func wrong(fields ...enumField) (text string, ok bool) {
	for _, f := range fields {
		if f.value >= len(f.names) {
			return f.wrong(), true
		}
	}
	return "", false
}

// The method `wrong` returns a text with the field's name, the field's value, and the names of the allowed values.
func (f enumField) wrong() string {
	choices := f.names
	if choices[0] == "" { // the default has no name
		choices = choices[1:]
	}
	return fmt.Sprintf("%s %d is none of %s", f.name, f.value, strings.Join(choices, ", "))
}
