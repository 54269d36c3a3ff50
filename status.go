package kahn

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Status is where a node stands in one run. The zero value is [Idle].
//
// The words separate who is to blame from who is merely affected: a [Failed] node broke itself, an [Aborted] node was
// stopped because something inside the run failed, a [Cancelled] node was stopped because somebody asked, and a
// [Skipped] node was never on the chosen path.
type Status uint8

// The statuses of a node. The last five are terminal: a node that reached one of them never leaves it.
const (
	Idle      Status = iota // no predecessor has started or settled yet
	Waiting                 // a predecessor has started or settled, the join is still open
	Ready                   // the join is satisfied and every check passed: queued for a slot
	Running                 // an attempt is executing
	Retrying                // an attempt failed, another was granted: backing off, holding no slot
	Suspended               // waits for a signal from outside, holding neither slot nor goroutine
	Completed               // has an output
	Failed                  // the node's own work failed, after all retries
	Aborted                 // stopped, or never started, because of a failure inside the run
	Cancelled               // stopped, or never started, because somebody asked
	Skipped                 // deliberately not on the path

	statusCount
)

var statusNames = [statusCount]string{
	"idle", "waiting", "ready", "running", "retrying", "suspended",
	"completed", "failed", "aborted", "cancelled", "skipped",
}

// statusAliases are the spellings that other engines use for the same statuses; they are understood when read.
var statusAliases = map[string]Status{
	"succeeded": Completed, "error": Failed, "upstream_failed": Aborted, "blocked": Aborted,
	"canceled": Cancelled, "omitted": Skipped, "tracking": Waiting, "dispatched": Running,
}

// Terminal reports whether the status is final.
func (s Status) Terminal() bool { return s >= Completed && s < statusCount }

// String returns the lower-case name of the status, the form in which it is encoded.
func (s Status) String() string { return enumName(statusNames[:], int(s), "Status") }

// MarshalText encodes the status as its name. A value outside the enum is an error that matches [ErrBadValue].
func (s Status) MarshalText() ([]byte, error) { return enumText(statusNames[:], int(s), "status") }

// UnmarshalText decodes a name, or one of the aliases that other engines use ("succeeded", "error",
// "upstream_failed", "blocked", "canceled", "omitted", "tracking", "dispatched"). Anything else is an error that
// matches [ErrBadValue].
func (s *Status) UnmarshalText(text []byte) error {
	if alias, ok := statusAliases[string(text)]; ok {
		*s = alias
		return nil
	}
	return enumParse(s, statusNames[:], text, "status")
}

// transitions is the only place that knows which status may follow which: bit t of entry s is set when s may become t.
//
// Waiting is derived when it is read and never stored, so the stored transitions start at Idle. An attempt that ends is
// never Failed on the way to a retry: Failed is terminal. A terminal status has no successor.
//
// Ready may become Skipped and Running may become Skipped for different reasons: the former when a node is superseded
// before it started, the latter when its step skips itself. Running becomes Ready again when the run is left.
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

// CanBecome reports whether a node may go from s to t in one step.
func (s Status) CanBecome(t Status) bool {
	return s < statusCount && t < statusCount && transitions[s]>>t&1 == 1
}

// RunStatus is where a whole run stands. The zero value is [RunPending].
type RunStatus uint8

// The statuses of a run. The last three are terminal.
const (
	RunPending   RunStatus = iota // accepted, not started
	RunRunning                    // executing
	RunSuspended                  // nothing left to do until a signal arrives
	RunCompleted                  // every failure, if there was one, was handled
	RunFailed                     // a failure escaped
	RunCancelled                  // somebody asked for the run to stop, and something stopped

	runStatusCount
)

var runStatusNames = [runStatusCount]string{"pending", "running", "suspended", "completed", "failed", "cancelled"}

// Terminal reports whether the status is final.
func (s RunStatus) Terminal() bool { return s >= RunCompleted && s < runStatusCount }

// String returns the lower-case name of the status, the form in which it is encoded.
func (s RunStatus) String() string { return enumName(runStatusNames[:], int(s), "RunStatus") }

// MarshalText encodes the status as its name. A value outside the enum is an error that matches [ErrBadValue].
func (s RunStatus) MarshalText() ([]byte, error) {
	return enumText(runStatusNames[:], int(s), "run status")
}

// UnmarshalText decodes a name, "succeeded", "error" or "canceled". Anything else is an error that matches
// [ErrBadValue].
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
	return enumParse(s, runStatusNames[:], text, "run status")
}

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
	CauseSuperseded        // nobody needs the result any more

	causeCount
)

var causeNames = [causeCount]string{
	"", "step_error", "timeout", "rate_limit", "contract_violated_input", "contract_violated_output", "moderation",
	"panic", "goexit", "condition_error", "merge_error", "no_branch_match", "loop_limit", "subrun", "map_items",
	"gate_timeout", "store_error", "end_failed", "upstream_failure", "upstream_cancelled", "sibling_failure",
	"fail_fast", "abort_all", "run_timeout", "ctx", "cancel_run", "cancel_node", "external", "superseded",
}

// String returns the snake-case name of the cause; [CauseNone] is the empty string.
func (k CauseKind) String() string { return enumName(causeNames[:], int(k), "CauseKind") }

// MarshalText encodes the cause as its name. A value outside the enum is an error that matches [ErrBadValue].
func (k CauseKind) MarshalText() ([]byte, error) { return enumText(causeNames[:], int(k), "cause") }

// UnmarshalText decodes a name. Anything else is an error that matches [ErrBadValue].
func (k *CauseKind) UnmarshalText(text []byte) error {
	return enumParse(k, causeNames[:], text, "cause")
}

// stopStatus is the status of a node that is stopped for the cause: aborted when a failure inside the run is behind it,
// cancelled when somebody asked.
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
	// Origins are the ids of the nodes whose failure, or cancellation, reached this one, in declaration order. A node
	// that broke by itself is its own origin. Nodes that go back to the same ones may share the slice: it must not be
	// modified. It is worked out when it is asked for, in time that grows with the edges that let the failure through.
	Origins []string
	// Err is the [*NodeError] of a node that broke or was stopped by itself or with the run; it unwraps to the step's error
	// or to what the stop was for. Victims of an upstream failure carry an [*UpstreamError] that unwraps to nothing: the
	// origins carry the errors.
	Err error
}

// SkipKind names why a node was skipped. The zero value belongs to nodes that were not.
type SkipKind uint8

// The kinds of skip.
const (
	SkipNone            SkipKind = iota
	SkipAnnotation               // Node.Disabled
	SkipWhenGuard                // the guard said no
	SkipConditionBranch          // every way here was routed past
	SkipNullPropagation          // a required port has no value
	SkipUpstreamSkipped          // the inputs were skipped
	SkipParentFailure            // OnUpstreamFailure is UpstreamSkip
	SkipRuleUnsatisfied          // the join rule can no longer be satisfied
	SkipSelf                     // the step returned Skip
	SkipSuperseded               // nobody needs the result any more

	skipCount
)

var skipNames = [skipCount]string{
	"", "annotation", "when_guard", "condition_branch", "null_propagation", "upstream_skipped", "parent_failure",
	"rule_unsatisfied", "self", "superseded",
}

// String returns the snake-case name of the kind; [SkipNone] is the empty string.
func (k SkipKind) String() string { return enumName(skipNames[:], int(k), "SkipKind") }

// MarshalText encodes the kind as its name. A value outside the enum is an error that matches [ErrBadValue].
func (k SkipKind) MarshalText() ([]byte, error) { return enumText(skipNames[:], int(k), "skip reason") }

// UnmarshalText decodes a name. Anything else is an error that matches [ErrBadValue].
func (k *SkipKind) UnmarshalText(text []byte) error {
	return enumParse(k, skipNames[:], text, "skip reason")
}

// SkipReason tells why a node was skipped. Which fields are set depends on the kind. As JSON it is a union tagged by kind,
// whose members have the names that the comments give.
type SkipReason struct {
	Kind SkipKind
	// Node is the condition of a condition_branch, the source of an upstream_skipped, parent_failure or
	// null_propagation (empty when no edge feeds the port), and the successor that made a node superseded. In JSON
	// conditionNodeId, sourceNodeId and by.
	Node string
	// Label is the label of the edge that was not taken, for condition_branch; empty if that is a catch edge. In JSON label.
	Label string
	// Answer is what the condition answered instead, for condition_branch: its label or labels, separated by ", ", or, if it has none, the
	// answer as text, shortened to about a kilobyte. It is empty if the condition failed, or if the edge is a catch edge. In JSON answer.
	Answer string
	// Port is the required port without a value, for null_propagation. In JSON portId.
	Port string
	// Rule is the join rule, for rule_unsatisfied. In JSON rule.
	Rule string
	// Expression is the guard's text, for when_guard; "func" for a Go function. In JSON expression.
	Expression string
	// Message is the step's own words, for self. In JSON message.
	Message string
}

// skipJSON is the form of a SkipReason in JSON. A kind has all its members, empty ones included, and no others.
type skipJSON struct {
	Kind       SkipKind `json:"kind"`
	Condition  *string  `json:"conditionNodeId,omitempty"`
	Source     *string  `json:"sourceNodeId,omitempty"`
	By         *string  `json:"by,omitempty"`
	Label      *string  `json:"label,omitempty"`
	Answer     *string  `json:"answer,omitempty"`
	Port       *string  `json:"portId,omitempty"`
	Rule       *string  `json:"rule,omitempty"`
	Expression *string  `json:"expression,omitempty"`
	Message    *string  `json:"message,omitempty"`
}

// fields pairs the members of the kind with the fields of the reason.
func (j *skipJSON) fields(r *SkipReason) map[**string]*string {
	switch j.Kind {
	case SkipWhenGuard:
		return map[**string]*string{&j.Expression: &r.Expression}
	case SkipConditionBranch:
		return map[**string]*string{&j.Condition: &r.Node, &j.Label: &r.Label, &j.Answer: &r.Answer}
	case SkipNullPropagation:
		return map[**string]*string{&j.Source: &r.Node, &j.Port: &r.Port}
	case SkipUpstreamSkipped, SkipParentFailure:
		return map[**string]*string{&j.Source: &r.Node}
	case SkipRuleUnsatisfied:
		return map[**string]*string{&j.Rule: &r.Rule}
	case SkipSelf:
		return map[**string]*string{&j.Message: &r.Message}
	case SkipSuperseded:
		return map[**string]*string{&j.By: &r.Node}
	}
	return nil
}

// MarshalJSON encodes the reason. A kind outside the enum is an error that matches [ErrBadValue].
func (r SkipReason) MarshalJSON() ([]byte, error) {
	j := skipJSON{Kind: r.Kind}
	for member, field := range j.fields(&r) {
		*member = field
	}
	return json.Marshal(j)
}

// UnmarshalJSON decodes what MarshalJSON encodes. A kind that is not known is an error that matches [ErrBadValue].
func (r *SkipReason) UnmarshalJSON(data []byte) error {
	var j skipJSON
	if err := json.Unmarshal(data, &j); err != nil {
		return err
	}
	*r = SkipReason{Kind: j.Kind}
	for member, field := range j.fields(r) {
		if *member != nil {
			*field = **member
		}
	}
	return nil
}

// String renders the reason for people, for example `condition_branch(ok? answered "true", not "false")`.
func (r SkipReason) String() string {
	if r.Kind == SkipNone {
		return ""
	}
	var parts []string
	for _, part := range []string{r.Node, r.Port, r.Rule, r.Expression, r.Message} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	switch {
	case r.Label != "" && r.Answer != "":
		parts = append(parts, fmt.Sprintf("answered %q, not %q", r.Answer, r.Label))
	case r.Label != "":
		parts = append(parts, fmt.Sprintf("not %q", r.Label))
	}
	if len(parts) == 0 {
		return r.Kind.String()
	}
	return r.Kind.String() + "(" + strings.Join(parts, " ") + ")"
}

// CallAction is what a coordinator does with the remote call behind a node when the node reaches a status.
type CallAction uint8

// The actions on a call.
const (
	CallNone  CallAction = iota // leave it alone
	CallStart                   // the node is ready: start the call
	CallSkip                    // the node was skipped: there will be no call
	CallAbort                   // the node was stopped: abort the call
)

var callActionNames = [...]string{"none", "start", "skip", "abort"}

// String returns "none", "start", "skip" or "abort".
func (a CallAction) String() string { return enumName(callActionNames[:], int(a), "CallAction") }

// CallAction maps a node's status to what should happen to its call: ready starts it, skipped skips it, aborted and
// cancelled abort it (a call protocol knows one word for both), and every other status leaves it alone.
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

// CallStatus is where a remote call stands, in the words of a call protocol.
type CallStatus uint8

// The statuses of a call.
const (
	CallRunning CallStatus = iota
	CallCompleted
	CallFailed
	CallAborted
)

var callStatusNames = [...]string{"running", "completed", "failed", "aborted"}

// String returns "running", "completed", "failed" or "aborted".
func (c CallStatus) String() string { return enumName(callStatusNames[:], int(c), "CallStatus") }

// NodeStatus maps the status of a call back to the node: a failed call makes its node retry when another attempt is
// granted, and an aborted call takes the status of whoever asked the engine to stop the node. stop is that cause, or
// [CauseNone] when nobody asked, which makes the node [Cancelled] with [CauseExternal].
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
		return stop.stopStatus(), stop
	}
	return Running, CauseNone
}

func enumName(names []string, i int, typ string) string {
	if i < len(names) {
		return names[i]
	}
	return fmt.Sprintf("%s(%d)", typ, i)
}

func enumText(names []string, i int, what string) ([]byte, error) {
	if i < len(names) {
		return []byte(names[i]), nil
	}
	return nil, fmt.Errorf("%w: %s %d", ErrBadValue, what, i)
}

func enumParse[E ~uint8](e *E, names []string, text []byte, what string) error {
	for i, name := range names {
		if name == string(text) {
			*e = E(i)
			return nil
		}
	}
	return fmt.Errorf("%w: %s %.40q", ErrBadValue, what, text)
}
