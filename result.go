package kahn

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/internal/foreign"
	"github.com/seed-c794f7ef/kahn/machine"
)

// Result is the outcome of a run. The zero value is the Result of a run that has no nodes, no plan and no id. Execute returns a nil Result if the
// graph or the options are wrong; a nil Result behaves like the zero value.
type Result struct {
	// Status is RunCompleted, RunFailed or RunCancelled. It is RunSuspended for a run that has not ended: see Waiting.
	Status RunStatus
	// Degraded is true for a completed run with failures that were handled or tolerated. A node whose Fallback produced the output is completed, so
	// it does not degrade the run.
	Degraded bool
	// Left is true for a suspended run that was left for one of these reasons:
	//   - [Run.Leave] or [Runner.Shutdown] was called;
	//   - the run is durable, and the context of its caller ended: the run's error matches [ErrLeft];
	//   - the store did not confirm a write or a renewal of the lease in time: the run's error matches [ErrStore], and the nodes have their stored
	//     states.
	Left bool
	// Cause is the reason why the run as a whole failed or was cancelled. Its kind is [CauseEndFailed] if the run failed because its end node
	// failed, and [CauseCompensationFailed] if the run failed because a node could not be undone. Cause is zero if the run completed, is suspended,
	// or failed only because of unhandled failures of its nodes.
	Cause Cause
	// CancelRequested is true if the run was to be cancelled, because of [Run.Cancel] or because the caller's context ended. It is true even if no
	// node was running any more. [Run.AbortAll] does not set it.
	CancelRequested bool
	// StopRequest is the first request to stop the run, see [Run.Cancel] and [Run.AbortAll]. It is set even if no node was running any more.
	// RedriveRequest is the request for the last redrive of the run, see [Redrive].
	StopRequest, RedriveRequest Request
	// Start is the time when the run began. Duration is the time that the run took, by the monotonic clock.
	Start    time.Time
	Duration time.Duration
	// Pruned are the ids of the nodes that are not part of the run because the fired trigger does not lead to them, in the order of declaration.
	Pruned []string
	// Warnings are problems that did not fail the run:
	//   - guards that could not decide ([ErrGuard]), with one warning for each guarded node of the graph;
	//   - conditions with an answer that is not one of their choices and matches no edge ([ErrNoMatch]), with one warning for each condition of the
	//     graph;
	//   - the warnings of [Plan.Warnings] that do not concern triggers, for the run's graph and for graphs that steps returned;
	//   - sinks that panicked or got stuck;
	//   - unknown triggers, and triggers that lead to a node but not to one of its predecessors;
	//   - gates whose deadlines lie beyond the run's Timeout ([ErrGateOutlasts]);
	//   - a bug of this module that the run has noticed.
	Warnings []error
	// Abandoned contains the ids of abandoned nodes, and the paths of abandoned nodes inside composites. A node is abandoned if its step ignores the
	// end of its context. It is also abandoned if its guard, merge or test does not return in time after the node or the run was stopped, or the run
	// was left. The goroutines of abandoned nodes may still be running.
	Abandoned []string
	// Waiting describes the waits of a suspended run, in the order of declaration of the waiting nodes.
	Waiting []Wait
	// Test is the summary of a run in test mode, and nil for other runs: see the option [TestMode].
	Test *TestSummary

	run *Run
	err error
}

// NodeResult is the result of one node.
type NodeResult struct {
	ID     string
	Kind   string
	Label  string // Label of the Node, for human readers
	Tier   int
	Status Status
	// RunID is the id of the run, for programs that read many runs. [OnNode], [Run.Node], [Run.Nodes] and [Run.Inside] set it. It is empty if the
	// NodeResult comes from a Result: then [Result.ID] returns the id.
	RunID string
	// Output is the output of a completed node.
	Output any
	// Err is a [*NodeError] for a node that failed by itself, or that was stopped, alone or with the run. It is an [*UpstreamError] for a victim of
	// an upstream failure.
	Err   error
	Cause Cause
	// Skip is the reason why the node was skipped. It is zero if the node was not skipped.
	Skip event.SkipReason
	// Attempts is the number of attempts that have begun.
	Attempts int
	// Start is the time when the first attempt began, and zero if none began. Duration is the time from Start to the end of the last attempt. For a
	// composite that waits in a suspended run, it is the time from Start until the run was suspended.
	Start    time.Time
	Duration time.Duration
	// Memoized is true if the output comes from an earlier run, see [Memo].
	Memoized bool
	// Hit contains the id of the run that produced the memoized output, and the time when the step returned this output. It is nil if Memoized is
	// false, or if an older version of this package stored the run.
	Hit *event.Hit
	// Fallback is true if the node's fallback produced the output.
	Fallback bool
	// Mocked is true if a mock replaced the node's step: see [TestMode].
	Mocked bool
	// Tolerated is true for a node that failed under ContinueOnFail. It is also true for a completed composite if failures inside it were handled
	// or tolerated there.
	Tolerated bool
	// Abandoned is true if the last attempt ignored the end of its context, and the run continued without waiting for it.
	Abandoned bool
	// Decision is the signal that answered the gate, or that ended the last wait of the step: its value, its sender and the sender's comment. It is
	// nil if there was no signal, for example because the gate timed out.
	Decision *Decision
	// GuardErr is the reason why the guard could not decide.
	GuardErr error
	// Sub is the Result of a composite's nested run, or of the last nested run if there were several. It is nil for other nodes, and for a composite
	// that has not begun. Its ids and origins are names of the nested graph. An expanded node is a composite, see [Expand]. If an expanded node
	// ended before the run was continued from a file or a store, its graph is not known and its Sub is nil.
	Sub *Result
	// Compensation is the state of the node's compensation. If the compensation failed, CompensationErr is its error. See Compensate of [Node].
	Compensation    Compensation
	CompensationErr error
	// Undoing describes the calls of the node's Compensate. It is nil before the first call, and for a composite without a Compensate.
	Undoing *Undoing
	// LastErr is the error of the last attempt that was followed by a retry or a fallback, or that failed after the node was stopped.
	LastErr error
	// Labels are the branches that a condition took.
	Labels []string
	// Key is the node's concurrency key if a value determines it, see KeyFrom of [Node]. It is empty if there is no such value, or if the node ended
	// before its inputs were checked.
	Key string
	// Usage is the consumption of the node in all ended attempts, including nodes inside a composite: see [Step.Use]. It is nil if nothing was
	// used.
	Usage Usage

	attempts []Attempt // nil if the node had one attempt
}

// Undoing describes how a node was undone, or is being undone: see Compensate of [Node].
type Undoing struct {
	Attempts int       // the number of attempts of the compensation
	Certain  bool      // true if the node completed, so it had an effect; false if it is not known whether the node had an effect
	Began    time.Time // when the first attempt began
	Ended    time.Time // when the undo succeeded or was given up; zero before then
	By       *Request  // names the person who undid the node by hand, see [CompensatedByHand]; nil if kahn calls the node's Compensate
}

// Attempt is one attempt of a node, see [NodeResult.History]. If an older version of this package stored the attempt, the fields that did not exist
// in the older version are zero.
type Attempt struct {
	// Number is the number of the attempt, counted from 1. The history omits attempts that a crash interrupted.
	Number int
	// Start and End are wall clock times. End is zero while the attempt runs. It is also zero if the attempt will begin again when the run
	// continues.
	Start, End time.Time
	// Err is the error of a failed attempt, or nil.
	Err error
	// Delay is the backoff before the next attempt, if another attempt follows.
	Delay time.Duration
}

// History returns the attempts of the node, in order. The caller owns the slice.
func (n NodeResult) History() []Attempt {
	switch {
	case n.attempts != nil:
		return slices.Clone(n.attempts)
	case n.Attempts == 0:
		return nil
	}
	only := Attempt{Number: n.Attempts, Start: n.Start, End: n.Start.Add(n.Duration), Err: n.LastErr}
	if failed, ok := n.Err.(*NodeError); ok && n.Status == Failed {
		only.Err = failed.Err
	}
	if n.Status == Running {
		only.End = time.Time{}
	}
	return []Attempt{only}
}

// hasRun reports whether the Result belongs to a run. It is false for nil and for the zero value.
func (r *Result) hasRun() bool { return r != nil && r.run != nil }

// The method `performed` returns the run of the Result. For nil and for the zero value, it returns a run without nodes.
func (r *Result) performed() *Run {
	if !r.hasRun() {
		return newRun(&Plan{end: noRef, planRare: &plainPlan}, nil)
	}
	return r.run
}

// ID returns the id of the run.
func (r *Result) ID() string {
	if !r.hasRun() {
		return ""
	}
	return r.run.ID()
}

// Plan returns the plan that the run executed, or nil for the zero Result.
func (r *Result) Plan() *Plan {
	if !r.hasRun() {
		return nil
	}
	if tested := r.run.plan.tested; tested != nil {
		return tested
	}
	return r.run.plan
}

// Len returns the number of nodes.
func (r *Result) Len() int { return len(r.performed().plan.names) }

// Output returns the output of the run. This is the end node's output or, without an end node, the output of the only leaf. If there are several
// leaves, it is a new map[string]any that maps the id of each completed leaf to the leaf's output. Output returns nil for a suspended run.
func (r *Result) Output() any {
	if !r.hasRun() || r.Status == RunSuspended {
		return nil
	}
	return r.run.output()
}

// Node returns the result of the node with this id. It reports whether the graph has such a node.
func (r *Result) Node(id string) (NodeResult, bool) {
	ref, ok := r.performed().plan.Ref(id)
	if !ok {
		return NodeResult{}, false
	}
	return r.node(ref), true
}

// Nodes yields the results of all nodes in the order of declaration.
func (r *Result) Nodes() iter.Seq[NodeResult] {
	return func(yield func(NodeResult) bool) {
		for _, ref := range r.performed().plan.declared {
			if !yield(r.node(ref)) {
				return
			}
		}
	}
}

// Count returns the number of nodes with the given status.
func (r *Result) Count(status Status) (n int) {
	s := &r.performed().st
	for ref := range s.Words() {
		if s.Status(ref) == status {
			n++
		}
	}
	return n
}

// Output returns the output of a completed node as a T, converted as by [Param]. The error matches [ErrType] if the output has another type,
// [ErrNoValue] if the output is null or the node did not complete, and [ErrUnknownNode] if the graph has no node with this id. If the run is
// suspended and the node has not ended, the error also matches [ErrSuspended].
func Output[T any](r *Result, id string) (T, error) {
	n, ok := r.Node(id)
	if !ok {
		return *new(T), r.performed().plan.unknownOwn(id)
	}
	if r.Status == RunSuspended && !n.Status.Terminal() {
		return *new(T), fmt.Errorf("output of %s: %w: it is %v: %w%s", quoteID(id), ErrNoValue, n.Status, ErrSuspended, r.suspendedBy())
	}
	return typed[T](n.Output, n.Status == Completed, "output of", id, func() error { return fmt.Errorf("%w: it is %v", ErrNoValue, n.Status) })
}

// suspendedBy returns why a suspended run does not continue. The text is the end of a sentence.
func (r *Result) suspendedBy() string {
	const most = 5
	var names []string
	for i, w := range r.Waiting {
		if i == most {
			names = append(names, fmt.Sprintf("%d more", len(r.Waiting)-most))
			break
		}
		names = append(names, quoteID(w.Node))
	}
	switch {
	case len(names) > 0:
		return ": it waits for " + strings.Join(names, ", ")
	case r.Left:
		return ": it was left"
	}
	return ""
}

// The method `took` returns how long the node with this id took in the run. It returns false if the node was not executed, and for a nil Result.
func (r *Result) took(id string) (int64, bool) {
	if !r.hasRun() {
		return 0, false
	}
	if old, ok := r.run.plan.find(id); ok {
		if rec := &r.run.records[old]; rec.attempts > 0 {
			return rec.end - rec.start, true
		}
	}
	return 0, false
}

// The method `estimate` returns a function that estimates the duration of a node of p. If this run executed the node, the function returns the
// duration in this run. Otherwise it returns the node's own Estimate.
func (r *Result) estimate(p *Plan) func(machine.Ref) int64 {
	return func(ref machine.Ref) int64 {
		if took, ok := r.took(p.names[ref]); ok {
			return took
		}
		return int64(p.node(ref).Estimate)
	}
}

// nodeResult returns the result of a node, without its cause and its error. Unless the run has ended, the caller must hold the run's lock.
func (r *Run) nodeResult(ref machine.Ref) NodeResult {
	return r.resultOf(ref, r.st.Word(ref), r.extras[ref])
}

// resultOf does the same as nodeResult, but gets the node's word and extra from its caller. For a completed node it needs no lock.
func (r *Run) resultOf(ref machine.Ref, w machine.Word, x *extra) NodeResult {
	rec, n := &r.records[ref], r.plan.node(ref)
	res := NodeResult{
		ID: r.plan.names[ref], Kind: n.Kind, Label: n.Label, Tier: r.plan.Tier(ref), Status: w.Status(), Attempts: int(rec.attempts),
		Fallback: rec.fallback, Tolerated: w.Is(machine.WordTolerated), Mocked: rec.attempts > 0 && r.plan.net.Is(ref, machine.FlagMocked),
	}
	if res.Status == Skipped {
		res.Skip = r.skipReason(ref)
	}
	if rec.attempts > 0 {
		res.Start = r.start.Add(time.Duration(rec.start))
		if res.Duration = time.Duration(rec.end - rec.start); res.Status == Running && r.concluded() { // in a run that was left, the duration of a composite ends with the run
			res.Duration = time.Duration(r.ended - rec.start)
		}
	}
	if x != nil {
		res.Abandoned, res.GuardErr, res.LastErr = x.Abandoned, x.guardErr, x.lastErr
		res.Decision, res.Key = clonePtr(x.decision), x.Key
		if res.Memoized = x.Memoized && res.Status == Completed && !rec.fallback; res.Memoized {
			res.Hit = clonePtr(x.Hit)
		}
		// Sub stays nil if the store failed before it recorded the start of the nested run.
		if x.comp != nil && x.comp.child != nil && x.comp.child.concluded() && (x.comp.child.st.IsLogged() || !r.st.IsLogged()) {
			res.Sub = x.comp.child.outcome()
		}
		res.attempts, res.Usage = r.attempts(ref, w, x), x.Usage.all()
	}
	if res.Status == Completed {
		res.Output, res.Labels = rec.value, r.branchesOf(ref)
	}
	// If a run that was read or restored has undone only nodes inside composites, it has no r.undo. But these composites have an extra.
	if r.undo != nil || x != nil {
		res.Compensation, res.CompensationErr = r.compensationOf(ref)
	}
	if r.undo != nil {
		if u := r.undo.nodes[ref]; u != nil && r.ownUndo(ref) != nil {
			_, certain := r.effect(ref)
			res.Undoing = u.state().shown(certain)
		}
	}
	return res
}

// branchesOf returns the labels of the branches that a completed condition took.
func (r *Run) branchesOf(ref machine.Ref) (labels []string) {
	for _, id := range r.st.Route(ref) {
		labels = append(labels, r.plan.labelsOf(ref)[id])
	}
	return labels
}

// The method `attempts` returns the history of a node that was attempted more than once. For other nodes it returns nil. The caller holds the run's
// lock.
func (r *Run) attempts(ref machine.Ref, w machine.Word, x *extra) (list []Attempt) {
	if len(x.errs) == 0 && x.began == 0 {
		return nil
	}
	rec := &r.records[ref]
	last := int32(0)
	for _, e := range x.errs {
		last = e.number
		a := Attempt{Number: int(last), Err: e.err, Delay: e.delay}
		if last != 0 { // otherwise the times are unknown
			a.Start, a.End = r.timeAt(e.start), r.timeAt(e.end)
		}
		list = append(list, a)
	}
	if last >= rec.attempts {
		return list
	}
	current := Attempt{Number: int(rec.attempts)}
	if x.began != 0 {
		current.Start = r.timeAt(x.began)
	}
	switch status := w.Status(); status {
	case Running:
		return append(list, current)
	case Completed:
		if rec.fallback {
			current.Err = x.lastErr
		}
	case Failed:
		current.Err = rec.errorOf()
	case Aborted, Cancelled:
		if current.Err = rec.errorOf(); current.Err == nil {
			current.Err = x.lastErr
		}
	}
	// If rec.end is before x.began, it is the end of an earlier attempt: the process ended during the current attempt, which begins again.
	if rec.end >= x.began {
		current.End = r.timeAt(rec.end)
	}
	return append(list, current)
}

// The method `node` makes the result of a node. The run has ended, so the lock is needed only for the origins, which are computed on request.
func (r *Result) node(ref machine.Ref) NodeResult {
	run := r.run
	s := &run.st
	res := run.nodeResult(ref)
	if res.Status == Completed || res.Status == Skipped {
		return res
	}
	if !res.Status.Terminal() { // the run is suspended
		res.Status = s.Status(ref)
		return res
	}
	s.Lock()
	defer s.Unlock()
	run.addCause(ref, &res)
	return res
}

// addCause adds the cause and the error, if they are known, to the result of a node that has failed or was stopped. The caller holds the run's
// lock.
func (r *Run) addCause(ref machine.Ref, res *NodeResult) {
	if res.Status == Completed || res.Status == Skipped {
		return
	}
	s := &r.st
	kind, origins := s.CauseOf(ref)
	if res.Cause.Kind = kind; kind != CauseContext && kind != CauseCancelRun { // CauseContext and CauseCancelRun have no origins
		res.Cause.Origins = origins
	}
	if s.Victim(ref) {
		res.Err = &UpstreamError{Node: r.plan.names[ref], Kind: res.Cause.Kind, Origins: res.Cause.Origins}
	} else {
		res.Err = r.nodeError(ref)
	}
	res.Cause.Err = res.Err
}

func (r *Run) names(refs []machine.Ref) []string {
	var names []string
	for _, ref := range refs {
		names = append(names, r.plan.names[ref])
	}
	return names
}

// skipReason returns why the node was skipped. It adds the message of a step that skipped itself, or the answer of the condition that took other
// branches.
func (r *Run) skipReason(ref machine.Ref) event.SkipReason {
	x := r.st.SkipOf(ref)
	reason := r.plan.skipReason(ref, x)
	switch {
	case x.Kind == SkipSelf:
		if x := r.extras[ref]; x != nil {
			reason.Message = x.Message
		}
	case x.Kind == SkipConditionBranch && reason.Label != "":
		if extra := r.extras[x.Node]; extra != nil && extra.Answer != "" {
			reason.Answer = extra.Answer
		} else {
			reason.Answer = r.branchText(x.Node)
		}
	}
	return reason
}

// branchText returns, as text, the branches that a condition has taken. The SkipReason of each node on a branch that was not taken contains this
// text. A condition with many labels may cause many skips, so its text is cached.
func (r *Run) branchText(ref machine.Ref) string {
	const many = 16
	if len(r.plan.labelsOf(ref)) <= many {
		return r.plan.branchNames(ref, r.st.Route(ref))
	}
	texts := r.textsMade()
	text, ok := texts.Load(ref)
	if !ok {
		text = r.plan.branchNames(ref, r.st.Route(ref))
		texts.Store(ref, text)
	}
	return text.(string)
}

// textsMade returns the cache of texts. If there is none, textsMade creates it.
func (r *Run) textsMade() *sync.Map {
	if r.texts.Load() == nil {
		r.texts.CompareAndSwap(nil, &sync.Map{})
	}
	return r.texts.Load()
}

// nodeError returns the error of a terminal node, or nil if the node completed or was skipped. It reads only words and records of terminal nodes,
// and extras. The caller must hold the run's lock, unless the run has ended or the node failed by itself.
func (r *Run) nodeError(ref machine.Ref) error {
	s, rec, id := &r.st, &r.records[ref], r.plan.names[ref]
	w := s.Word(ref)
	switch w.Status() {
	case Failed:
		if !w.Is(machine.WordPropagated) {
			return &NodeError{Node: id, Attempt: int(rec.attempts), Kind: w.Kind(), Err: rec.errorOf()}
		}
	case Cancelled, Aborted:
		switch kind := w.Kind(); {
		case kind == CauseExternal:
			return &NodeError{Node: id, Attempt: int(rec.attempts), Kind: kind, Err: rec.errorOf()}
		case !machine.IsUpstream(kind):
			err := r.stopError(kind)
			switch x := r.extras[ref]; {
			case kind == CauseSuperseded:
				err = ErrSuperseded
			case err == nil && x != nil:
				err = x.stop
			}
			return &NodeError{Node: id, Attempt: int(rec.attempts), Kind: kind, Err: err}
		}
	default:
		return nil
	}
	kind, origins := s.CauseOf(ref)
	return &UpstreamError{Node: id, Kind: kind, Origins: origins}
}

// makeResult makes the Result. It is called once, when the run has ended.
func (r *Run) makeResult() {
	v := r.verdict
	if r.result == nil {
		r.result = &Result{}
	}
	res := r.result // it is zero; fields that few runs have are not written, since a write costs more while the garbage collector marks
	res.Status, res.Degraded, res.CancelRequested = v.status, v.degraded, r.cancelled
	res.Start, res.Duration = r.start.Add(time.Duration(r.began)), time.Duration(r.ended-r.began)
	res.run = r
	if x := r.remarks; x != nil {
		res.Abandoned = append(r.names(x.abandoned), x.abandonedInside...)
		slices.Sort(res.Abandoned)
		res.Warnings = slices.Clone(x.warnings)
	}
	if r.asked != nil {
		res.StopRequest = *r.asked
	}
	if r.redrivenBy != nil {
		res.RedriveRequest = *r.redrivenBy
	}
	if r.plan.pruned != nil {
		res.Pruned = slices.Clone(r.plan.pruned)
	}
	if r.log != nil && r.outer == nil {
		res.Warnings = append(res.Warnings, r.log.problems()...)
	}
	if r.st.Defect() != nil {
		res.Warnings = append(res.Warnings, r.st.Defect())
	}
	if v.cause != CauseNone {
		res.Cause = Cause{Kind: v.cause, Err: r.stopError(v.cause)}
		if v.cause == CauseCompensationFailed {
			res.Cause.Err = errors.Join(r.undo.errors()...)
		}
		if v.cause == CauseEndFailed {
			res.Cause.Origins, res.Cause.Err = r.names([]machine.Ref{r.plan.end}), r.nodeError(r.plan.end)
		}
	}
	switch v.status {
	case RunCompleted:
	case RunSuspended:
		res.Waiting, res.Left = r.waiting(), r.leaving
		if d := r.durable; d != nil && r.outer == nil {
			res.err = d.leftError()
		}
		if res.err == nil && r.leftFor != nil && res.Left {
			res.err = callerLeft(r.leftFor)
		}
	default:
		res.err = r.runError(v)
	}
	r.summed = true
}

// runError joins the errors of the nodes that failed by themselves or were cancelled alone, the cause that stopped the run, and the errors of failed
// compensations. If a group stopped a node of this run because a node of another run failed, runError adds the error of the stopped node, which names
// the failed one. If the run was not stopped as a whole and StatusEscaped is the rule for its status, runError leaves out the handled failures.
func (r *Run) runError(v verdict) error {
	e := &RunError{Graph: r.plan.name, Status: v.status, Cause: v.cause, Request: requestOf(r.asked)}
	nodes, passed := r.plan.declared, machine.Word(machine.WordPropagated|machine.WordTolerated)
	if (v.cause == CauseNone || v.cause == CauseCompensationFailed && r.st.StoppedFor() == CauseNone) && r.cfg.statusRule == StatusEscaped {
		if escaped := r.st.EscapedOrigins(); len(escaped) > 0 { // there are none if the end node, or the StatusRule of an earlier process, has determined the status
			nodes, passed = escaped, machine.WordPropagated // tolerated failures are included, since other nodes may have been aborted because of them
		}
	}
	for _, ref := range nodes {
		w := r.st.Word(ref)
		own := w.Status() == Failed && !w.Is(passed) || w.Status() == Cancelled && w.Kind() == CauseExternal
		if own || w.Status() == Cancelled && w.Kind() == CauseCancelNode {
			e.Errs = append(e.Errs, r.nodeError(ref))
		} else if w.Status() == Aborted && w.Kind() == CauseSiblingFailure {
			if _, origins := r.st.CauseOf(ref); len(origins) == 0 { // the failed member of the group is in another run: the error names it
				e.Errs = append(e.Errs, r.nodeError(ref))
			}
		}
	}
	cause := v.cause
	if cause == CauseCompensationFailed {
		cause = r.st.StoppedFor()
	}
	if err := r.stopError(cause); err != nil && cause != CauseFailFast {
		e.Errs = append(e.Errs, err)
	}
	if r.undo != nil {
		e.Errs = append(e.Errs, r.undo.errors()...)
	}
	return e
}

// endOutput returns the output of the end node, or nil if there is none or if it has not completed.
func (r *Run) endOutput() any {
	if r.plan.end == noRef || r.st.Word(r.plan.end).Status() != Completed {
		return nil
	}
	return r.records[r.plan.end].value
}

// The method `output` returns the output of the run.
func (r *Run) output() any {
	if r.items != nil {
		return nil // the map determines the form of its items' outputs
	}
	if r.plan.end != noRef {
		value := r.endOutput()
		if said, ok := value.(EndVerdict); ok {
			return said.Output
		}
		return value
	}
	if leaves := r.plan.leaves; len(leaves) == 1 {
		if r.st.Word(leaves[0]).Status() == Completed {
			return r.records[leaves[0]].value
		}
		return nil
	}
	outputs := make(map[string]any, len(r.plan.leaves))
	for _, ref := range r.plan.leaves {
		if r.st.Word(ref).Status() == Completed {
			outputs[r.plan.names[ref]] = r.records[ref].value
		}
	}
	return outputs
}

// SkipReason returns why a node was skipped in the State s of a run of the plan. A State contains neither the message of a step that skipped itself
// nor the output of a condition. So the Message is empty, and the Answer contains the labels of the branches that the condition took.
func (p *Plan) SkipReason(s *machine.State, r machine.Ref) event.SkipReason {
	x := s.SkipOf(r)
	reason := p.skipReason(r, x)
	if x.Kind == SkipConditionBranch && reason.Label != "" {
		reason.Answer = p.branchNames(x.Node, s.Taken(x.Node))
	}
	return reason
}

// skipReason returns why a node was skipped, without message and answer.
func (p *Plan) skipReason(r machine.Ref, x machine.Skip) event.SkipReason {
	reason := event.SkipReason{Kind: x.Kind}
	if x.Node != noRef {
		reason.Node = p.names[x.Node]
	}
	switch x.Kind {
	case SkipWhenGuard:
		reason.Expression = cmp.Or(p.node(r).WhenExpr, "func")
	case SkipConditionBranch:
		if x.Edge >= 0 {
			reason.Label = p.termsOf(x.Edge).Label
		}
	case SkipRuleUnsatisfied:
		join, _, _ := p.net.Rules(r)
		reason.Rule = join.String()
	case SkipNullPropagation:
		reason.Port = p.node(r).Ports[x.Port].Name
		for _, i := range p.net.In(r) {
			if p.termsOf(i).Param == reason.Port {
				reason.Node = p.names[p.net.Source(i)]
			}
		}
	}
	return reason
}

// Cause is the reason why a node ended with its status, or why a run was stopped as a whole.
type Cause struct {
	Kind CauseKind
	// Origins are the ids of the nodes whose failure or cancellation reached this node, in declaration order. A node that failed by itself is its
	// own origin. Nodes with the same origins may share the slice, so callers must not modify it. kahn computes Origins on request. This takes time
	// proportional to the number of edges that the failure passed.
	Origins []string
	// Err is a [*NodeError] if the node failed by itself, or if it was stopped, alone or with the run. The NodeError unwraps to the step's error or
	// to the cause of the stop. For a victim of an upstream failure, Err is an [*UpstreamError], which unwraps to nothing, since the errors belong
	// to the nodes in Origins.
	Err error
}

// Request names the person or the program that requests a stop or a redrive of a run, and the reason: see [Run.Cancel], [Run.AbortAll], [Redrive]
// and [Runner.Redrive]. A function with a parameter ...Request uses only the first Request, and may be called without a Request. Actor and Reason
// are meant for display and logs, and have no influence on the run. kahn shortens each of the two texts to about a kilobyte, and keeps it in the
// Result, in events, in snapshots and in stores.
type Request = event.Request

// boundedRequest shortens a request from a file that another program may have written. For nil it returns nil.
func boundedRequest(q *Request) *Request {
	if q == nil {
		return nil
	}
	b := shortened(*q)
	return &b
}

// The function `asked` returns the first request of a call, shortened. If the call has no request, it returns an empty one.
func asked(by []Request) Request {
	if len(by) == 0 {
		return Request{}
	}
	return shortened(by[0])
}

// The function `shortened` returns the request with its texts shortened.
func shortened(q Request) Request {
	return Request{Actor: foreign.Shorten(strings.ToValidUTF8(q.Actor, "\uFFFD")), Reason: foreign.Shorten(strings.ToValidUTF8(q.Reason, "\uFFFD"))}
}

// requestOf returns *q, or an empty request if q is nil.
func requestOf(q *Request) Request {
	if q == nil {
		return Request{}
	}
	return *q
}

// The method `ask` records q if it is the first request to stop the run. The events of a stop contain the request, so the caller calls ask before it
// stops the run. The caller holds the run's lock.
func (r *Run) ask(q Request) {
	if r.asked == nil {
		r.rare().asked = &q
	}
}

// requestFor returns the request that made nodes of the run end with this kind of cause. If no request reached the run, it returns an empty request.
// A request reaches a nested run only if the nested run, and every nested run around it, was stopped for this cause. The caller holds the run's
// lock.
func (r *Run) requestFor(kind CauseKind) Request {
	asked := r.outermost().asked
	if asked == nil || kind != CauseCancelRun && kind != CauseAbortAll {
		return Request{}
	}
	for ; r.outer != nil; r = r.outer {
		if r.stoppedBy != kind {
			return Request{}
		}
	}
	return *asked
}
