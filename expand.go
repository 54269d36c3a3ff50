package kahn

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/machine"
)

// maxExpansions bounds how deep nodes may be expanded within one another.
const maxExpansions = 32

// Expand, returned by a step, makes its node a sub-graph: the graph is performed by a nested run, whose result is the
// node's, as with Node.Sub. Events, paths, limits, signals and stops are as in a sub-graph, too. The node's
// OutputSchema, moderation, Routes, Memo, Retry and Fallback go by the output of the nested run; Timeout and OverallTimeout
// span the step and the run. The step releases its slots of the run, of groups and of keys before the nested run begins,
// except that an item of a map counts against Map.Limit until it has ended.
//
// inputs are the root inputs of the graph; the node's own parameters are not. The graph is compiled when the step has
// returned: later changes have no effect. Where its Defaults, Evaluator and Schemas are unset, the values of the graph
// around it apply, and it may name the groups of that graph.
//
// Snapshots and stores do not hold the graph; they hold state, as with [Suspend]. When the run continues in another life while
// the nested run has not ended, the step is called again, in the same attempt and without another event, finds the state
// with [Step.SavedState], and has to return a graph of the same [Plan.Hash]; the nested run then continues from where it was.
// A step that asks a model for a plan puts the plan into the state. A new attempt begins without a state, and may return
// another graph.
//
// The node fails with [CauseContractOutput] if the graph is nil, does not compile (a [*GraphError]), names a group that no graph
// around it declares, lacks a root input ([ErrMissingInput]), a step function, a moderator or a kind ([ErrNoStep],
// [ErrNoModerator], [ErrUnknownKind]), or has nodes whose paths are ids of nodes around it. It fails with [CauseSubrun] if it is inside 32 nodes that were
// expanded already, and, with an error that matches [ErrGraphChanged], if the step is called again and returns something else.
//
// Only steps can be expanded, each item of a map of steps for itself: from a Test, a Fallback and the end node the result
// of Expand is an error like any other. A node that is asked to stop is not expanded but stops; a node that is stopped
// before its step has returned the graph again ends without its nested run.
func Expand(g *Graph, inputs map[string]any, state any) error {
	return &expandError{g, maps.Clone(inputs), state}
}

type expandError struct {
	graph  *Graph
	inputs map[string]any
	state  any
}

func (e *expandError) Error() string { return "expanded into a graph" }

// expansion is the graph that a node is to be expanded into, compiled, and its inputs.
type expansion struct {
	plan   *Plan
	inputs map[string]any // not nil
	state  any

	warnings []error // of the plan, each with the nodes around it

	// For a node that was expanded in an earlier life: the inside as the snapshot has it, the nested runs made from that,
	// and the number of signals it has answered.
	held    *held
	answers int
	back    takenBack // what that takes out of the store, if it is redriven
}

// outdated reports whether a signal for a node inside has come since the expansion was computed.
func (e *expansion) outdated(x *extra) bool {
	return e.held != nil && x != nil && x.kept != nil && x.answers != e.answers
}

// expansion concludes an attempt whose step has returned a graph; it calls user code. failed is the conclusion if the graph
// is refused.
func (w *worker) expansion(e *expandError, failed conclusion) conclusion {
	r, ref := w.run, w.task.Ref
	switch {
	case failed.Cause == CauseConditionError:
		failed.err = fmt.Errorf("%w: a Test cannot be expanded", ErrBadValue)
		return failed
	case ref == r.plan.end:
		failed.Cause, failed.err = CauseStepError, fmt.Errorf("%w: the end node cannot be expanded", ErrBadEnd)
		return failed
	}
	refuse := func(kind CauseKind, err error) conclusion {
		failed.Cause, failed.err = kind, bounded(err)
		return failed
	}
	depth := 1
	for c := r; c != nil; c = c.outer {
		if c.rootInputs != nil {
			depth++
		}
	}
	if depth > maxExpansions {
		return refuse(CauseSubrun, fmt.Errorf("%w: nodes are expanded more than %d deep", ErrBadValue, maxExpansions))
	}
	x := &expansion{inputs: e.inputs, state: e.state}
	if x.inputs == nil {
		x.inputs = map[string]any{}
	}
	if err := w.compileExpansion(x, e.graph); err != nil {
		return refuse(CauseContractOutput, fmt.Errorf("the graph that the step has returned: %w", err))
	}
	var err error
	if w.kept[1], err = r.keep(x.state); err != nil {
		return refuse(causeOfKeep(err), fmt.Errorf("state: %w", err))
	}
	if w.step.flags&stepAgain != 0 {
		if err := w.holdExpansion(x); err != nil {
			return refuse(CauseSubrun, err)
		}
	}
	failed.Cause, failed.noRetry = CauseStepError, event.NoRetryCause // if it may not
	failed.err, failed.expand = e, x
	return failed
}

// compileExpansion makes the plan of a graph, and checks that a nested run can perform it.
func (w *worker) compileExpansion(x *expansion, g *Graph) (err error) {
	r, ref := w.run, w.task.Ref
	if g == nil {
		return ErrNoGraph
	}
	if x.plan, err = r.plan.compileInside(g); err != nil {
		return err
	}
	p := x.plan
	x.warnings = r.warningsInside(ref, p)
	p.Hash() // calls user code (MarshalJSON), so not later, under the lock
	for _, name := range p.lacks {
		if r.declaring(name) == nil {
			return fmt.Errorf("%w: group %s, which it names, is not declared", ErrBadValue, quoteID(name))
		}
	}
	if err := p.checkInputs(x.inputs, x.inputs); err != nil {
		return err
	}
	if id, ok := r.plan.within(r.plan.names[ref]); ok {
		return fmt.Errorf("%w: the id of node %s could be taken for the path of a node in it", ErrBadValue, quoteID(id))
	}
	var within *double
	if t := r.cfg.test; t != nil {
		within = r.plan.doubles[ref]
		if bad := t.checkGates(p, within); len(bad) > 0 {
			return bad[0]
		}
	}
	return r.checkPerformers(p, within)
}

// warningsInside returns the warnings of the plan that a node expands into, in the form that a graph containing it would
// report: items and iterations share their node's.
func (r *Run) warningsInside(ref machine.Ref, p *Plan) []error {
	warnings := append(slices.Clone(p.warnings), r.cfg.unused(p)...)
	for i := range warnings {
		for c, ref := r, ref; ; ref, c = c.within.ref, c.outer {
			if c.items == nil { // the run of a map's items is no graph of its own
				warnings[i] = fmt.Errorf("in %s: %w", quoteID(c.plan.names[ref]), warnings[i])
			}
			if c.outer == nil {
				break
			}
		}
	}
	return warnings
}

// warnOfExpansion adds what [Run.warningsInside] returned to the warnings of the whole run, each once, with the lock held. The texts
// are fixed: no user code renders them.
func (r *Run) warnOfExpansion(warnings []error) {
	for _, warning := range warnings {
		x := r.outermost().remark()
		if text := warning.Error(); !x.warnedInside[text] {
			if x.warnedInside == nil {
				x.warnedInside = map[string]bool{}
			}
			x.warnedInside[text] = true
			x.warnings = append(x.warnings, warning)
		}
	}
}

// within returns a node whose id looks like the path of a node inside the node with the given id.
func (p *Plan) within(id string) (other string, ok bool) {
	i, _ := slices.BinarySearch(p.slashed, id+"/")
	if i < len(p.slashed) && strings.HasPrefix(p.slashed[i], id+"/") {
		return p.slashed[i], true
	}
	return "", false
}

// declaring returns the nearest run, this one or one around it, whose graph declares a group; nil if there is none.
func (r *Run) declaring(group string) *Run {
	for ; r != nil; r = r.outer {
		if r.plan.declaresGroup(group) {
			return r
		}
	}
	return nil
}

// holdExpansion compares the inside the node, as a snapshot has it, with the graph that the step has returned again.
func (w *worker) holdExpansion(x *expansion) error {
	r, ref := w.run, w.task.Ref
	r.lock()
	kept := cloneNodes([]nodeState{*r.extras[ref].kept})
	x.answers = r.extras[ref].answers
	r.st.Unlock()
	if done, err := w.redoExpansion(x, &kept[0]); done || err != nil {
		return err
	}
	h, err := holdGraph(x.plan, ref, &kept[0], r.prefix)
	if err != nil {
		return err
	}
	h.storedAs(kept[0].stored)
	r.lock()
	h.revive(r.expandedRun(w.step, x))
	h.endBackoffs(r.wallClock())
	r.st.Unlock()
	h.judge()
	x.held = h
	return nil
}

// redoExpansion compares the graph with the one before, and takes out of the inside what a redrive runs again. It reports whether the node begins
// anew, since the graph is another one.
func (w *worker) redoExpansion(x *expansion, kept *nodeState) (anew bool, err error) {
	r, in, hash := w.run, kept.Inside, kept.Inside.Expanded
	d, key := in.Redo, r.key(w.task.Ref)
	switch {
	case x.plan.Hash() == hash && d == nil:
		return false, nil
	case d == nil:
		return false, fmt.Errorf("%w: the step has returned one with the hash %s, and before one with the hash %s", ErrGraphChanged, x.plan.Hash(), quoteID(hash))
	case x.plan.Hash() != hash:
		x.back = new(again).takeBackInside(kept, key)
		return true, nil
	}
	a, err := d.level(x.plan, in, kept.prefixInside(r.prefix))
	if err != nil {
		return false, err
	}
	if !d.Despite && !d.Strict {
		if err := a.handled(nil, in.Nodes, kept.prefixInside(r.prefix), true, false).refusal(); err != nil {
			return false, err
		}
	}
	x.back = a.takeBackInside(kept, key)
	in.Nodes, in.dropped = a.take(in.Nodes, r.epoch-1, d.Keep)
	in.Redo, in.redone = nil, true
	return false, nil
}

// again is the result of an attempt whose step was called to return the graph of an earlier life once more: any other result
// is a failure.
func (w *worker) again(c conclusion) conclusion {
	if c.expand != nil || c.Status == Failed && c.suspend == nil || c.Status == Cancelled {
		return c
	}
	return conclusion{Outcome: machine.Outcome{Status: Failed, Cause: CauseSubrun}, err: fmt.Errorf("%w: the step has returned none", ErrGraphChanged)}
}

// expandedRun makes the run of a graph that a step has returned, with the lock held.
func (r *Run) expandedRun(step *Step, x *expansion) *Run {
	if root := r.outermost(); root.tree == nil {
		root.makeTree()
	}
	c := r.subRun(step, x.plan)
	c.rootInputs = x.inputs
	return c
}

// expand makes a composite of the node of an attempt whose step has returned a graph.
func (r *Run) expand(step *Step, e *expansion, now int64) {
	ref := step.ref
	x := r.extra(ref)
	r.warnOfExpansion(e.warnings)
	x.saved, x.left, r.nests = e.state, false, true
	r.disarm(&x.grace)
	if r.single != nil && r.single.interrupted == step {
		r.single.interrupted = nil // it has returned
	}
	for _, name := range e.plan.lacks {
		r.lend(name, ref)
	}
	if r.durable != nil {
		r.durable.takeBackMore(&e.back)
	}
	if e.held == nil {
		if x.kept != nil { // a redrive begins it anew
			r.waiters().drop(place{r, ref})
			r.dropKept(x)
		}
		c := r.expandedRun(step, e)
		r.st.Expand(ref)
		x.comp = &composite{}
		if e.plan.undoes {
			r.allowUndo()
		}
		r.beginChild(x.comp, c, now)
		return
	}
	r.st.Expand(ref)
	if e.plan.undoes {
		r.allowUndo()
	}
	r.goOnExpanded(ref, x, e.held, now)
}

// goOnExpanded makes the nested runs of an expanded node continue where a snapshot has them.
func (r *Run) goOnExpanded(ref machine.Ref, x *extra, h *held, now int64) {
	waits := r.waiters()
	told := waits.drop(place{r, ref})
	began, keeping := len(waits.began), len(waits.kept)
	r.dropKept(x)
	r.flush(now)
	h.installInside(x)
	h.invalidate(requestOf(r.outermost().redrivenBy))
	if h.within.Dormant {
		r.st.Doze(ref)
	}
	if h.within.TimedOut != timeoutNone { // it ends as it would have ended then, although what was stopped inside completes
		x.timedOut, x.timeout = h.within.TimedOut, h.within.Timeout
		r.disarmAttempt(ref)
		r.disarm(&x.overall)
	}
	r.timers++ // until the child's goroutines have returned
	h.resume(h.within.Inside.Stop, true)
	if told { // an event has named the waiting nodes
		waits.began = waits.began[:min(began, len(waits.began))]
		for _, k := range waits.kept[keeping:] {
			k.told = true
		}
	}
	h.continueWaits(now)
	if r.leaving {
		h.run.leave()
	}
	h.run.stopLateMembers()
	h.run.outdate()
	h.each(func(h *held) {
		h.run.flush(now)
		r.tree.touch(h.run)
	})
}

// regains reports whether the step of a node has to be called again for the graph that it has returned in an earlier life of the run, since what nodes
// inside have done may have to be undone.
func (r *Run) regains(ref machine.Ref) bool {
	x := r.extras[ref]
	return x != nil && x.kept != nil && x.comp == nil && x.kept.Inside.Undoes && r.st.Word(ref).Status().Terminal() && x.kept.Inside.mayUndo()
}

// mayUndo reports whether a node inside has begun, and was not undone.
func (in *insideState) mayUndo() bool {
	return slices.ContainsFunc(in.Nodes, func(n nodeState) bool {
		return n.Attempts > 0 && (n.Undo == nil || n.Undo.Status == CompensationRunning) || n.Inside != nil && n.Inside.mayUndo()
	}) || slices.ContainsFunc(in.Past, func(past insideState) bool { return past.mayUndo() })
}

// isOpen reports whether something inside had not ended, or was being undone.
func (in *insideState) isOpen() bool {
	return slices.ContainsFunc(in.Nodes, func(n nodeState) bool {
		return !n.Status.Terminal() || n.Undo != nil && n.Undo.Status == CompensationRunning || n.Inside != nil && n.Inside.isOpen()
	})
}

// regain calls the step of a node for the graph that it has returned in an earlier life of the run, and makes the nested run as it was. It calls user
// code, without the lock.
func (u *undo) regain(step *Step) error {
	r := u.run
	do := r.plan.node(u.ref).Do
	if do == nil || r.wrapped {
		do = r.step
	}
	_, err := do(step, step)
	return u.regainedBy(step, err)
}

// regainedBy is the part of regain after the step has returned.
func (u *undo) regainedBy(step *Step, err error) error {
	r, ref := u.run, u.ref
	facts := inspectError(err)
	if facts.expand == nil {
		if err == nil {
			err = fmt.Errorf("%w: the step has returned none", ErrGraphChanged)
		}
		return fmt.Errorf("the graph whose nodes are to be undone: %w", err)
	}
	e := facts.expand
	x := &expansion{inputs: e.inputs, state: e.state}
	if x.inputs == nil {
		x.inputs = map[string]any{}
	}
	w := &worker{run: r, step: step}
	w.task.Ref = ref
	if err := w.compileExpansion(x, e.graph); err != nil {
		return fmt.Errorf("the graph whose nodes are to be undone: %w", err)
	}
	r.lock()
	n := cloneNodes([]nodeState{*r.extras[ref].kept})[0]
	r.st.Unlock()
	if hash := n.Inside.Expanded; x.plan.Hash() != hash {
		return fmt.Errorf("%w: the step has returned one with the hash %s, and before one with the hash %s", ErrGraphChanged, x.plan.Hash(), quoteID(hash))
	}
	n.Inside.end()
	ended := &nodeState{ID: n.ID, Facts: machine.Facts{Status: Completed, Substituted: n.Substituted}, Attempts: n.Attempts, Inside: n.Inside}
	h, err := holdGraph(x.plan, ref, ended, r.prefix)
	if err != nil {
		return err
	}
	h.ref = ref
	r.lock()
	defer r.st.Unlock()
	if u.step != step { // it was given up
		return errAbandoned
	}
	h.revive(r.expandedRun(step, x))
	r.nests = true
	for _, name := range x.plan.lacks {
		r.lend(name, ref)
	}
	comp := &composite{}
	h.installPast(r, comp)
	h.resume(nil, true)
	r.extras[ref].comp = comp
	return nil
}

// end ends the nodes that have not ended, at every depth: what is around them has been stopped.
func (in *insideState) end() {
	in.Due = time.Time{}
	ended := machine.Facts{Status: Aborted, Cause: CauseAbortAll}
	for i := range in.Nodes {
		n := &in.Nodes[i]
		if !n.Status.Terminal() {
			substituted := n.Substituted
			n.Facts = ended
			n.Substituted = substituted
		}
		if n.Inside != nil {
			n.Inside.end()
			n.Inside.addItems(n.ID, ended)
		}
	}
}

// addItems adds the items of a map that have not begun.
func (in *insideState) addItems(id string, ended machine.Facts) {
	known := map[string]bool{}
	for i := range in.Nodes {
		known[in.Nodes[i].ID] = true
	}
	for i := range in.Items {
		if item := fmt.Sprintf("%s[%d]", id, i); !known[item] {
			in.Nodes = append(in.Nodes, nodeState{ID: item, Facts: ended})
		}
	}
}

// keptNodes are the nodes inside an expanded node whose graph is not known, with what was undone of them since it was called again for that.
func (x *extra) keptNodes() []nodeState {
	if x.comp == nil || len(x.comp.past) == 0 {
		return x.kept.Inside.Nodes
	}
	nodes := cloneNodes(x.kept.Inside.Nodes)
	x.comp.past[0].addUndos(nodes)
	return nodes
}

// addUndos adds to nodes of a snapshot what the run has undone of them, and of the nodes inside.
func (r *Run) addUndos(nodes []nodeState) {
	for i := range nodes {
		n := &nodes[i]
		ref, ok := r.plan.Ref(n.ID)
		if !ok {
			continue
		}
		if r.undo != nil && r.undo.nodes[ref] != nil && r.ownUndo(ref) != nil {
			n.Undo = r.undo.nodes[ref].state()
		}
		x := r.extras[ref]
		if n.Inside == nil || x == nil || x.comp == nil {
			continue
		}
		for _, c := range append(slices.Clone(x.comp.past), x.comp.child) {
			switch {
			case c == nil:
			case c.iteration > 0 && c.iteration < n.Inside.Iteration && c.iteration <= len(n.Inside.Past):
				c.addUndos(n.Inside.Past[c.iteration-1].Nodes)
			default:
				c.addUndos(n.Inside.Nodes)
			}
		}
	}
}

// isExpansion reports whether the run performs a graph that a step has returned.
func (comp *composite) isExpansion() bool { return comp.child != nil && comp.child.rootInputs != nil }

// forgetExpansion drops the expansion of an earlier attempt.
func (r *Run) forgetExpansion(ref machine.Ref) {
	if x := r.extras[ref]; x != nil && x.comp != nil && x.comp.isExpansion() {
		x.comp = nil
	}
}

// contract ends the expansion of an attempt that is over and to be repeated: the next attempt begins without it.
func (r *Run) contract(x *extra) {
	if x.kept != nil || x.comp != nil && x.comp.isExpansion() {
		r.dropKept(x)
		x.saved, x.texts = nil, nil
	}
}

// dropKept forgets what a node had inside in an earlier life of the run. What is restored of it is counted by itself.
func (r *Run) dropKept(x *extra) {
	if x.kept != nil && x.kept.Inside.Undoes && x.kept.Inside.undoing() {
		r.outermost().undo.busy--
	}
	x.kept = nil
}

// keepExpanded gives the output of an expanded node to the memo, since the attempt of its step had no output to keep.
func (w *worker) keepExpanded(value any) {
	r, s := w.run, w.step
	m := r.memoOf(w.task.Ref)
	if m == nil {
		return
	}
	r.st.Lock()
	var f *flight
	if r.tree != nil {
		f = r.tree.flights[place{r, s.ref}]
	}
	r.st.Unlock()
	var k memoKey
	if f != nil {
		k = f.by
	} else {
		var err error
		if k, err = s.memoKey(); err != nil {
			s.Log(slog.LevelWarn, "memo: "+errorText(err))
			return
		}
	}
	m.keep(s, k, s.readsSoFar(), value, f)
}

// keeps reports whether a node was expanded in an earlier life of the run, and its graph is not known.
func (r *Run) keeps(ref machine.Ref) bool {
	x := r.extras[ref]
	return x != nil && x.kept != nil
}

// errNotKept says that the graph of an expanded node has become known while a signal was looked for.
var errNotKept = errors.New("not kept")

// answerKept leaves a signal with what waits inside a node whose graph is not known yet, with the lock held. unknown is the error if
// nothing does; it is errNotKept if more such graphs have become known than were seen: what the signal is for may be in one of them.
func (r *Run) answerKept(s *signal, text json.RawMessage, seen int, unknown func() error) error {
	waits := r.waiters()
	n := waits.keptNode(s.gate)
	switch {
	case n == nil && waits.found > seen:
		return errNotKept
	case n == nil:
		return unknown()
	}
	if err := n.refusalAt(s.gate, n.of.run.wallClock()); err != nil {
		return err
	}
	n.answer(s.Decision, text, false)
	at := n.of.place
	at.run.extras[at.ref].answers++
	at.run.outdated(at.ref)
	return nil
}

// reportKept reports what could not be undone of nodes inside a node that was expanded in an earlier life.
func (r *Run) reportKept(of *nodeState, prefix string) {
	for i := range of.Inside.Past {
		r.reportKept(&nodeState{ID: of.ID, Inside: &of.Inside.Past[i]}, prefix)
	}
	prefix = of.prefixInside(prefix)
	for i := range of.Inside.Nodes {
		n := &of.Inside.Nodes[i]
		if n.Undo != nil && n.Undo.Status == CompensationFailed {
			r.reportUndone(prefix+n.ID, n.Undo.Err.restore())
		}
		if n.Inside != nil {
			r.reportKept(n, prefix)
		}
	}
}

// undoing reports whether an earlier life has begun to undo something inside, and has not ended that.
func (in *insideState) undoing() bool {
	return slices.ContainsFunc(in.Nodes, func(n nodeState) bool {
		return n.Undo != nil && n.Undo.Status == CompensationRunning || n.Inside != nil && n.Inside.undoing()
	}) || slices.ContainsFunc(in.Past, func(past insideState) bool { return past.undoing() })
}

// undone is the state of the undoing of what is inside a composite in a snapshot.
func (in *insideState) undone() (c Compensation) {
	if in.undoing() {
		return CompensationRunning
	}
	for i := range in.Past {
		c = max(c, in.Past[i].undone())
	}
	for i := range in.Nodes {
		n := &in.Nodes[i]
		if n.Undo != nil {
			c = max(c, n.Undo.Status)
		}
		if n.Inside != nil {
			c = max(c, n.Inside.undone())
		}
	}
	return c
}
