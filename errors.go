package kahn

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/internal/foreign"
	"github.com/seed-c794f7ef/kahn/internal/nearest"
	"github.com/seed-c794f7ef/kahn/store"
)

// No error text of this package names the package: many of these texts become parts of other texts, and a program knows which package returned the
// error that it prints.

// Errors of Compile. Compile returns a [*GraphError], which contains a [*Problem] for each problem of the graph. The Problem names its node or edge,
// if any. It matches one of these errors, or another error, such as [ErrBadValue].
var (
	ErrCycle         = errors.New("cycle")
	ErrDuplicateNode = errors.New("duplicate node")
	ErrDuplicateEdge = errors.New("duplicate edge")
	ErrBadEdge       = errors.New("bad edge")
	ErrBadJoin       = errors.New("bad join")
	ErrBadEnd        = errors.New("bad end node")
	ErrMergeConflict = errors.New("merge conflict")
	ErrUnboundPort   = errors.New("unbound required port")
	ErrNoEvaluator   = errors.New("no evaluator")
	ErrBadExpression = errors.New("bad expression")
	ErrNoSchemas     = errors.New("no schema compiler")
	ErrBadSchema     = errors.New("bad schema")
)

// Errors that Execute and Start return before the run begins.
var (
	ErrNoGraph      = errors.New("no graph")
	ErrNoContext    = errors.New("no context")
	ErrNoStep       = errors.New("no step function")
	ErrMissingInput = errors.New("missing root input")
	ErrUnknownInput = errors.New("unknown root input")
	ErrBadOption    = errors.New("bad option")
	ErrNoModerator  = errors.New("no moderator")
)

// Errors of a run and its State.
var (
	// ErrType is returned if a value does not have the requested type.
	ErrType = errors.New("wrong type")
	// ErrNoValue is returned if there is no value: the node did not complete, or the edge delivered no value.
	ErrNoValue = errors.New("no value")
	// ErrHandlers is returned if a [Redrive] or a [Fork] is refused because a node has handled a failure, for example by a refund: see
	// [DespiteHandlers].
	ErrHandlers = errors.New("failures were handled")
	// ErrTooEarly is returned if a node reads the value of a predecessor that had not ended when an early join started the node. The error names the
	// predecessor, its status and the join. The error does not match ErrNoValue.
	ErrTooEarly = errors.New("too early")
	// ErrSuspended is returned by [Output] if the run is suspended and does not have the output yet. The returned error also matches ErrNoValue.
	ErrSuspended = errors.New("run suspended")
	// ErrNotAncestor is the error of a guard or a condition if it asks its [View] about a node that is not an ancestor. The method [View.Has] accepts
	// any node.
	ErrNotAncestor = errors.New("not an ancestor")
	// ErrUnreadFailure is the error of a condition, the test of a loop or a guard in Go if it reads the output of a failed, aborted or cancelled node,
	// but asks for neither the node's status nor the node's error: see [View.Unread].
	ErrUnreadFailure = errors.New("unread failure")
	// ErrGuard is in Result.Warnings for each node whose guard could not decide. The warning also wraps the error of the guard.
	ErrGuard = errors.New("guard could not decide")
	// ErrUnknownKind fails a node whose Kind is not in the [Mux].
	ErrUnknownKind = errors.New("unknown kind")
	// ErrNoMatch fails a condition with NoMatchFail if no edge matches the condition's answer. In Plan.Warnings an error matches ErrNoMatch if no node
	// uses the answer of a condition, or of a gate with declared choices. In Result.Warnings an error matches ErrNoMatch if the answer of a condition
	// has matched no edge and is none of the condition's choices.
	ErrNoMatch = errors.New("no branch matches")
	// ErrGoexit fails a node whose user code called runtime.Goexit.
	ErrGoexit = errors.New("runtime.Goexit called")
	// ErrBadVerdict fails an end node that returns an [EndVerdict] with a status other than completed or failed.
	ErrBadVerdict = errors.New("bad verdict")
	// ErrCallAborted is returned by a step to report that its remote call was aborted from outside, and not by kahn. The node is then cancelled with
	// [CauseExternal].
	ErrCallAborted = errors.New("call aborted externally")
	// ErrUnknownGate rejects a signal for a node that does not wait for a signal.
	ErrUnknownGate = errors.New("unknown gate")
	// ErrDuplicateGate fails a step that wants to wait under the id of another node, or under the same name as another waiting node. It also rejects a
	// call with two signals for the same node.
	ErrDuplicateGate = errors.New("duplicate gate")
	// ErrAnswered rejects a second signal for a node, and a second result of an attempt (see [Coordinator.Attempt]): only the first one counts.
	ErrAnswered = errors.New("answered already")
	// ErrUnknownAttempt means that the run has begun no attempt with the given token: see [Coordinator.Attempt].
	ErrUnknownAttempt = errors.New("unknown attempt")
	// ErrNotEncodable rejects a value if a codec cannot encode it, or if decoding would return another value.
	ErrNotEncodable = errors.New("value cannot be encoded")
	// ErrFinished rejects a request to a run that has ended.
	ErrFinished = store.ErrEnded
	// ErrAtRest rejects a request to a run at rest if no [store.Inbox] can keep the request until the run continues. A run is at rest if it has returned
	// its Result before its end, because it can only wait or was left. The run continues from its store (see [Durable]) or from its Snapshot (see
	// [Resume]).
	ErrAtRest = errors.New("the run is at rest: it continues from its store or snapshot")
	// ErrNotEnded rejects a request for the Result of a run, or for a redrive, if the run has not ended.
	ErrNotEnded = store.ErrNotEnded
	// ErrCyclicError replaces an error whose chain of causes never ends, because a search of this chain would never return.
	ErrCyclicError = foreign.ErrCyclicError
)

// If the engine stops an attempt, [context.Cause] returns an error for the attempt's context that says why. The error matches one of the errors
// before ErrCrashed, or [ErrLeft]. But if the caller's context, [Run.AbortAll], a [Budget] or the store stopped the run, context.Cause returns the
// error of that stop. The two timeout errors also match [context.DeadlineExceeded].
var (
	ErrCancelled         = errors.New("run cancelled")
	ErrNodeStopped       = errors.New("node cancelled")
	ErrAborted           = errors.New("run aborted")
	ErrTimeout     error = &timeoutError{"timed out"}
	ErrRunTimeout  error = &timeoutError{"run timed out"}
	ErrSuperseded        = errors.New("superseded: no other node waits for the result any more")
	ErrLateFailure       = errors.New("a predecessor failed after the node had started")
	// ErrCrashed is the error of a node if the process died during too many successive attempts of the node: see [MaxCrashes].
	ErrCrashed = errors.New("the process died during each of the last attempts")
	// ErrCompensation is the error of a compensation that has failed permanently. Result.Err joins these errors, each with the path of its node.
	ErrCompensation = errors.New("compensation failed")
)

// sentinels maps names to the errors that a snapshot stores by name.
var sentinels = map[string]error{
	"timeout": ErrTimeout, "run_timeout": ErrRunTimeout, "cancelled": ErrCancelled, "node_stopped": ErrNodeStopped,
	"aborted": ErrAborted, "superseded": ErrSuperseded, "late_failure": ErrLateFailure, "goexit": ErrGoexit,
	"no_match": ErrNoMatch, "call_aborted": ErrCallAborted, "unknown_kind": ErrUnknownKind, "type": ErrType,
	"no_value": ErrNoValue, "too_early": ErrTooEarly, "not_ancestor": ErrNotAncestor, "bad_value": ErrBadValue, "bad_end": ErrBadEnd, "bad_verdict": ErrBadVerdict,
	"not_encodable": ErrNotEncodable, "duplicate_gate": ErrDuplicateGate, "cyclic": ErrCyclicError,
	"rejected": ErrRejected, "crashed": ErrCrashed, "compensation": ErrCompensation, "deadline": context.DeadlineExceeded, "canceled": context.Canceled,
}

// sentinelsOf returns the sorted names of the sentinel errors that err wraps.
func sentinelsOf(err error) (names []string) {
	walkError(err, func(e error) bool {
		for name, sentinel := range sentinels {
			if e == sentinel && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
		return true
	})
	slices.Sort(names)
	return names
}

type timeoutError struct{ text string }

func (e *timeoutError) Error() string        { return e.text }
func (e *timeoutError) Timeout() bool        { return true }
func (e *timeoutError) Is(target error) bool { return target == context.DeadlineExceeded }

// GraphError reports the problems of a graph.
type GraphError struct {
	Graph string
	// Problems contains the first 100 problems, in the order in which they were found. In an error of Compile or [Mux.Check], each problem is a
	// [*Problem].
	Problems []error
	// More is the number of further problems.
	More int
}

// Error lists the problems, one per line.
func (e *GraphError) Error() string {
	var b strings.Builder
	b.WriteString("invalid graph")
	if e.Graph != "" {
		b.WriteString(" " + quoteID(e.Graph))
	}
	sep := ": "
	if len(e.Problems) > 1 {
		sep = "\n\t"
	}
	for _, p := range e.Problems {
		b.WriteString(sep)
		b.WriteString(errorText(p))
	}
	if e.More > 0 {
		fmt.Fprintf(&b, "\n\tand %d more", e.More)
	}
	return b.String()
}

// Unwrap returns the problems.
func (e *GraphError) Unwrap() []error { return e.Problems }

// cycleError returns the error for a cycle. The error names the nodes in the order of the edges. A long list is shortened in the middle.
func cycleError(nodes []string) error {
	const head, tail = 5, 2
	var names []string
	for i, id := range nodes {
		if len(nodes) > head+tail+1 && i >= head && i < len(nodes)-tail {
			if i == head {
				names = append(names, fmt.Sprintf("(%d more)", len(nodes)-head-tail))
			}
			continue
		}
		names = append(names, quoteID(id))
	}
	return fmt.Errorf("%w: %s", ErrCycle, strings.Join(append(names, quoteID(nodes[0])), " -> "))
}

// NodeError is the failure or the stop of one node. It unwraps to the step's error or to the cause of the stop.
type NodeError = event.NodeError

// UpstreamError is the error of a node that failed, was aborted or was cancelled because other nodes, its origins, failed or were cancelled. It wraps
// no error, since the origins have their own errors. So a search of the run's error finds each failure once.
type UpstreamError struct {
	Node    string
	Kind    CauseKind
	Origins []string // in declaration order; do not change this slice: several errors may share it
}

// Error names the node, the kind of cause and the first origins.
func (e *UpstreamError) Error() string {
	const most = 5
	var names []string
	for i, id := range e.Origins {
		if i == most {
			names = append(names, fmt.Sprintf("%d more", len(e.Origins)-most))
			break
		}
		names = append(names, quoteID(id))
	}
	text := fmt.Sprintf("node %s: %v", quoteID(e.Node), e.Kind)
	if len(names) > 0 {
		text += " of " + strings.Join(names, ", ")
	}
	return text
}

// PanicError is a recovered panic of user code. Value is the value of the panic, and Stack is the stack of the goroutine that panicked, as
// runtime/debug.Stack returns it. The text of a PanicError is "panic: " and the text of the value, shortened to about a kilobyte. It does not contain
// the stack. If Value is an error, Unwrap returns it.
type PanicError = foreign.PanicError

// RunError is the error of a run that did not complete. It wraps the error of each node that failed by itself or was cancelled alone, but no error of
// a node that was stopped because of another node. If the whole run was cancelled, aborted or timed out, the RunError also wraps the cause. The
// RunError includes handled failures, for example of a node with a catch edge, only if the run was stopped as a whole, or has a [StatusRule] other
// than [StatusEscaped].
type RunError struct {
	Graph  string
	Status RunStatus // RunFailed or RunCancelled
	Cause  CauseKind // why the whole run was stopped, or CauseNone
	// Request says who asked the run to stop, and why: see Result.StopRequest.
	Request Request
	Errs    []error // the *NodeError of each origin in declaration order, then the cause that stopped the run, then the errors of failed compensations
}

// Error names the status and the first errors, one per line, each shortened to about a kilobyte. The errors of a nested run are indented. The text shows
// a failed compensation once, although the errors of all runs around the node contain it.
func (e *RunError) Error() string {
	const most = 10
	var b strings.Builder
	b.WriteString("run")
	if e.Graph != "" {
		fmt.Fprintf(&b, " of %s", quoteID(e.Graph))
	}
	fmt.Fprintf(&b, " %v", e.Status)
	if e.Cause != CauseNone {
		fmt.Fprintf(&b, " (%v)", e.Cause)
	}
	if e.Request != (Request{}) {
		fmt.Fprintf(&b, " %v", e.Request)
	}
	if len(e.Errs) == 1 && e.Errs[0] == ErrCancelled {
		return b.String() // the error would repeat the status
	}
	sep := ": "
	if len(e.Errs) > 1 {
		sep = "\n\t"
	}
	shown := 0
	for i, err := range e.Errs {
		if shown == most {
			fmt.Fprintf(&b, "\n\tand %d more", len(e.Errs)-i)
			break
		}
		text := strings.ReplaceAll(errorText(err), "\n", "\n\t")
		_, ofNode := err.(*NodeError)
		if undone := !ofNode && strings.Contains(text, ErrCompensation.Error()); undone && strings.Contains(b.String()+"\n", "\t"+text+"\n") {
			continue // the error of a composite has shown this failed compensation of a node inside it
		}
		b.WriteString(sep)
		b.WriteString(text)
		shown++
	}
	return b.String()
}

// Unwrap returns the errors.
func (e *RunError) Unwrap() []error { return e.Errs }

// Permanent wraps an error so that the node is not retried, even if the node's [Retry] policy permits a retry. Permanent returns nil if err is nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanentError{err}
}

type permanentError struct{ err error }

func (e *permanentError) Error() string { return e.err.Error() }
func (e *permanentError) Unwrap() error { return e.err }

// AbortRun wraps the error of a step. The step's node fails without a retry, and the whole run is aborted, whatever its failure mode. AbortRun
// returns nil if err is nil.
//
// In a sub-graph or a loop, AbortRun aborts only the nested run. The composite then fails like any other node, so the enclosing graph may retry the
// composite or handle its failure. In an item of a map of steps, AbortRun aborts the run that contains the map.
func AbortRun(err error) error {
	if err == nil {
		return nil
	}
	return &abortRunError{err}
}

// NoEffect wraps the error of an attempt that has changed nothing outside the run. A node is not undone if no attempt of the node had an effect: see
// Compensate of [Node]. NoEffect applies only to the attempt that returns it. NoEffect returns nil if err is nil.
func NoEffect(err error) error {
	if err == nil {
		return nil
	}
	return &noEffectError{err}
}

type noEffectError struct{ err error }

func (e *noEffectError) Error() string { return e.err.Error() }
func (e *noEffectError) Unwrap() error { return e.err }

type abortRunError struct{ err error }

func (e *abortRunError) Error() string { return e.err.Error() }
func (e *abortRunError) Unwrap() error { return e.err }

// RateLimited wraps an error that means "not now". If the node has a retry policy, the next attempt waits for the given duration or longer. Neither
// jitter nor MaxDelay shortens this wait. If the duration is longer than MaxRetryAfter, the node fails at once. The new error has the text of err or,
// if err is nil, the text "rate limited".
func RateLimited(err error, after time.Duration) error {
	if err == nil {
		err = errors.New("rate limited")
	}
	return &rateLimitedError{err, after}
}

type rateLimitedError struct {
	err   error
	after time.Duration
}

func (e *rateLimitedError) Error() string { return e.err.Error() }
func (e *rateLimitedError) Unwrap() error { return e.err }

// Skip returns an error that a step returns to skip its node. The reason of the skip has the kind "self" and contains the message.
func Skip(message string) error { return &skipError{message} }

type skipError struct{ message string }

func (e *skipError) Error() string { return "skipped: " + e.message }

// The functions from here to newPanicError handle the errors, values and functions of user code: see package foreign.

func quoteID(id string) string   { return foreign.Quote(id) }
func errorText(err error) string { return foreign.ErrorText(err) }
func valueText(v any) string     { return foreign.ValueText(v) }

// walkError calls foreign.Walk, and stops when visit returns false.
func walkError(err error, visit func(error) bool) foreign.Shape {
	return foreign.Walk(err, func(e error) foreign.Next {
		if !visit(e) {
			return foreign.Stop
		}
		return descend(e)
	})
}

// descend makes foreign.Walk skip the errors inside a [*RunError], since the nested run has already inspected them.
func descend(err error) foreign.Next {
	if _, ok := err.(*RunError); ok {
		return foreign.Pass
	}
	return foreign.Descend
}

// errorFacts are the properties of a user's error that matter to the engine.
type errorFacts struct {
	skip      *skipError
	suspend   *suspendError
	expand    *expandError
	rate      *rateLimitedError
	permanent bool
	abortRun  bool
	noEffect  bool
	external  bool
	deadline  bool
	unsafe    bool // whether the engine must replace the error before it passes the error on: see bounded
}

func inspectError(err error) (f errorFacts) {
	shape := walkError(err, func(e error) bool {
		switch e := e.(type) {
		case *skipError:
			if f.skip == nil {
				f.skip = e
			}
		case *suspendError:
			if f.suspend == nil {
				f.suspend = e
			}
		case *expandError:
			if f.expand == nil {
				f.expand = e
			}
		case *rateLimitedError:
			if f.rate == nil {
				f.rate = e
			}
		case *permanentError:
			f.permanent = true
		case *abortRunError:
			f.abortRun = true
		case *noEffectError:
			f.noEffect = true
		default:
			// These comparisons cannot panic: a comparison panics only if both values have the same uncomparable type, and the types of ErrCallAborted and
			// context.DeadlineExceeded are comparable.
			f.external = f.external || e == ErrCallAborted
			f.deadline = f.deadline || e == context.DeadlineExceeded
		}
		return true
	})
	f.unsafe = shape != foreign.Sound || !renders(err)
	return f
}

// The function `bounded` returns err, or a replacement if the chain of err never ends or a method of an error panics. So errors.Is returns for every
// error that the engine passes on.
func bounded(err error) error {
	return foreign.Bounded(err, descend, renders)
}

// The function `renders` reports whether the Error method of err returns without a panic. It does not call Error for the engine's own errors: their
// Error methods never panic, and would render all errors of nested runs.
func renders(err error) bool {
	switch err.(type) {
	case nil, *RunError, *NodeError, *MapError, *PanicError:
		return true
	}
	return foreign.Renders(err)
}

// contain calls f, which is user code. It returns the error of f or, if f panics, the panic as an error. If f calls runtime.Goexit, the caller's
// goroutine ends.
func contain(f func() error) error { return foreign.Contain(f, panicError) }

func panicError(v any) error { return newPanicError(v) }

func newPanicError(v any) *PanicError {
	if err, ok := v.(error); ok {
		v = bounded(err)
	}
	return foreign.NewPanicError(v)
}

// The function `instead` returns a part of an error message about an unknown name. If a choice is similar to the written name, the text suggests the
// most similar choice. Then the text lists the first 20 choices, and says how many more there are.
func instead(written string, choices []string) string { return insteadIn("", written, choices) }

// insteadIn is like instead, but the message has the choices with the given text before them.
func insteadIn(before, written string, choices []string) string {
	const most = 20
	var b strings.Builder
	if meant, ok := nearest.Name(written, choices); ok {
		b.WriteString("; did you mean " + quoteID(before+meant) + "?")
	}
	for i, choice := range choices {
		switch i {
		case 0:
			b.WriteString(" (there is ")
		case most:
			fmt.Fprintf(&b, " and %d more)", len(choices)-most)
			return b.String()
		default:
			b.WriteString(", ")
		}
		b.WriteString(quoteID(before + choice))
	}
	if len(choices) == 0 {
		return " (there are none)"
	}
	b.WriteByte(')')
	return b.String()
}

// maxListed bounds how many names the engine collects for an error message about an unknown name.
const maxListed = 10_000

// didYouMean returns the end of an error message about an unknown name. It suggests the most similar choice, or is empty if no choice is similar.
func didYouMean(name string, choices []string) string {
	if meant, ok := nearest.Name(name, choices); ok {
		return "; did you mean " + quoteID(meant) + "?"
	}
	return ""
}

// quoteList renders the first 20 names, and the number of the others, for an error message.
func quoteList(names []string) string {
	const most = 20
	var b strings.Builder
	for i, name := range names {
		switch {
		case i == most:
			fmt.Fprintf(&b, ", and %d more", len(names)-most)
			return b.String()
		case i > 0:
			b.WriteString(", ")
		}
		b.WriteString(quoteID(name))
	}
	return b.String()
}

// ErrNoAwait fails a step that calls [AwaitRun] if the step's run is not [Durable], or if the run's store does not implement [store.Awaiter].
var ErrNoAwait = errors.New("no run can be awaited here")

// ErrAwaitCycle is the error of [AwaitRun] if the awaited run awaits this run, directly or through other runs: all these runs would wait forever.
var ErrAwaitCycle = errors.New("runs would await one another")

// awaitsRun returns the error that rejects a signal for a node that awaits the end of a run.
func awaitsRun(name, run string) error {
	return fmt.Errorf("%w: node %s waits for the end of run %s, not for a signal", ErrUnknownGate, quoteID(name), quoteID(run))
}
