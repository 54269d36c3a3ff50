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

// maxExpansions bounds the nesting of expanded nodes.
const maxExpansions = 32

// Expand turns a node into a sub-graph: the step of the node returns the result of Expand as its error. As with Node.Sub, a nested run performs the
// graph, and the node gets the result of this run. The graph gets the given root inputs, not the node's own parameters. Only a step, or an item of
// a map of steps, can expand; for a Test, a Fallback or the end node, the result of Expand is an ordinary error. OutputSchema, moderation, Routes,
// Memo, Retry and Fallback apply to the result of the nested run. Timeout and OverallTimeout bound the step and the nested run together.
//
// Snapshots and stores contain the argument `state`, as with [Suspend], but not the graph. If a run continues from a snapshot or store and the nested
// run has not ended, kahn calls the step again, in the same attempt. The step gets the state from [Step.SavedState], and must return a graph with the
// same [Plan.Hash]; only in a redrive may the graph differ. See docs/composites.md.
//
// The node fails with [CauseContractOutput] if the graph is nil, does not compile (a [*GraphError]), clashes with the graphs around it or lacks a root
// input ([ErrMissingInput]), a step function ([ErrNoStep]), a moderator ([ErrNoModerator]) or a kind ([ErrUnknownKind]). The node fails with
// [CauseSubrun] if 32 expanded nodes enclose it, or if a repeated call returns another graph ([ErrGraphChanged]).
func Expand(g *Graph, inputs map[string]any, state any) error {
	return &expandError{g, maps.Clone(inputs), state}
}

type expandError struct {
	graph  *Graph
	inputs map[string]any
	state  any
}

func (e *expandError) Error() string { return "expanded into a graph" }

// expansion is the compiled graph into which a node expands, and its inputs.
type expansion struct {
	plan   *Plan
	inputs map[string]any // never nil
	state  any

	warnings []error // the warnings of the plan, each with the path of the enclosing nodes

	// The following fields are set for a node that was expanded in an earlier life of the run. The field `held` has the nodes inside as the snapshot
	// describes them, and the nested runs that continue them. The field `answers` is the number of signals that these nodes had received when `held`
	// was computed.
	held    *held
	answers int
	back    takenBack // what a redrive of the nodes inside removes from the store
}

// noInputs are the inputs of graphs that get none. It is never written to.
var noInputs = map[string]any{}

// outdated reports whether a node inside has received a signal since `held` was computed.
func (e *expansion) outdated(x *extra) bool {
	return e.held != nil && x != nil && x.kept != nil && x.answers != e.answers
}

// The method `expansion` concludes an attempt whose step has returned a graph. It calls user code. If the graph is refused, it returns
// the conclusion `failed`, with the reason as its error.
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
		x.inputs = noInputs
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
	// If the node is being stopped, amend drops the expansion. Then the attempt fails with this cause and this error, and is not retried.
	failed.Cause, failed.noRetry = CauseStepError, event.NoRetryCause
	failed.err, failed.expand = e, x
	return failed
}

// compileExpansion compiles the graph, and checks that a nested run can perform it.
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
	if r.durable != nil {
		p.Hash() // calls user code (MarshalJSON), which must not be called under the run's lock; without a store only snapshots need the hash, see lockHashed
	}
	for _, name := range p.lacks {
		if r.declaring(name) == nil {
			return fmt.Errorf("%w: a node of the graph names group %s, which neither this graph nor a graph around it declares", ErrBadValue, quoteID(name))
		}
	}
	if err := p.checkInputs(x.inputs, x.inputs); err != nil {
		return err
	}
	if id, ok := r.plan.within(r.plan.names[ref]); ok {
		return fmt.Errorf("%w: the id of node %s looks like the path of a node in the returned graph", ErrBadValue, quoteID(id))
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

// warningsInside returns the warnings about the plan into which a node expands. The texts name the node as if the graph were its Sub, without the
// number of an item or an iteration. So all items of a map and all iterations of a loop have the same warnings.
func (r *Run) warningsInside(ref machine.Ref, p *Plan) []error {
	warnings := slices.Clone(r.cfg.warnings(p))
	for i := range warnings {
		for c, ref := r, ref; ; ref, c = c.within.ref, c.outer {
			if c.items == nil { // leaves out the run of a map's items, in which the node is an item
				warnings[i] = fmt.Errorf("in %s: %w", quoteID(c.plan.names[ref]), warnings[i])
			}
			if c.outer == nil {
				break
			}
		}
	}
	return warnings
}

// warnOfExpansion adds the warnings from [Run.warningsInside] to the warnings of the outermost run, without duplicates. The caller holds the
// run's lock. Calling Error runs no user code here, since each text was rendered when the warning was made.
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

// The method `within` looks for a node of p whose id begins with `id` and a slash. Such an id could be taken for the path of a node inside `id`.
func (p *Plan) within(id string) (other string, ok bool) {
	i, _ := slices.BinarySearch(p.slashed, id+"/")
	if i < len(p.slashed) && strings.HasPrefix(p.slashed[i], id+"/") {
		return p.slashed[i], true
	}
	return "", false
}

// The method `declaring` looks at this run and at the runs around it. It returns the innermost run whose graph declares the group, or nil if no
// graph declares the group.
func (r *Run) declaring(group string) *Run {
	for ; r != nil; r = r.outer {
		if r.plan.declaresGroup(group) {
			return r
		}
	}
	return nil
}

// holdExpansion is called when the step has returned its graph again. It prepares the nested run to continue from the stored state of the nodes
// inside. It returns an error if the graph does not fit this state.
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

// redoExpansion compares the returned graph with the previous graph. If they differ, redoExpansion returns an error; but in a redrive it returns
// true, and the nested run performs the new graph from its beginning. If a redrive repeats nodes inside, redoExpansion removes them from `kept`.
func (w *worker) redoExpansion(x *expansion, kept *nodeState) (anew bool, err error) {
	r, in, hash := w.run, kept.Inside, kept.Inside.Expanded
	d, key := in.Redo, r.key(w.task.Ref)
	switch {
	case x.plan.Hash() == hash && d == nil:
		return false, nil
	case d == nil:
		return false, fmt.Errorf("%w: the step has returned a graph with the hash %s, not %s as before", ErrGraphChanged, x.plan.Hash(), quoteID(hash))
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

// The method `again` checks the result of an attempt whose step was called once more to return its graph. If the step has returned no graph, the
// result becomes a failure, unless the attempt has failed or was cancelled.
func (w *worker) again(c conclusion) conclusion {
	if c.expand != nil || c.Status == Failed && c.suspend == nil || c.Status == Cancelled {
		return c
	}
	return conclusion{Outcome: machine.Outcome{Status: Failed, Cause: CauseSubrun}, err: fmt.Errorf("%w: the step has returned no graph", ErrGraphChanged)}
}

// expandedRun makes the run of a graph that a step has returned. The caller holds the run's lock.
func (r *Run) expandedRun(step *Step, x *expansion) *Run {
	if root := r.outermost(); root.tree == nil {
		root.makeTree()
	}
	c := r.subRun(step, x.plan)
	c.rootInputs = x.inputs
	return c
}

// expand turns a node into a composite, after the step of its attempt has returned a graph.
func (r *Run) expand(step *Step, e *expansion, now int64) {
	ref := step.ref
	x := r.extraInside(ref)
	r.warnOfExpansion(e.warnings)
	if r.nests = true; e.state != nil || x.saved != nil || x.left {
		m := x.own()
		m.saved, m.left = e.state, false
	}
	r.disarm(&x.grace)
	if r.single != nil && r.single.interrupted == step {
		r.single.interrupted = nil // the step of the interrupted attempt has returned
	}
	for _, name := range e.plan.lacks {
		r.lend(name, ref)
	}
	if r.durable != nil {
		r.durable.takeBackMore(&e.back)
	}
	if e.held == nil {
		if x.kept != nil { // a redrive begins the nested run again, so the waits and the failed compensations of the earlier life are dropped
			r.waiters().drop(place{r, ref})
			r.dropKept(x)
			r.reportAgain(ref, func() {})
		}
		c := r.expandedRun(step, e)
		r.st.Expand(ref)
		x.comp = newComposite(nil)
		if e.plan.undoes {
			r.outdateUndoes()
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

// goOnExpanded makes the nested runs of an expanded node continue from the state in a snapshot.
func (r *Run) goOnExpanded(ref machine.Ref, x *extra, h *held, now int64) {
	waits := r.waiters()
	told := waits.drop(place{r, ref})
	began, keeping := len(waits.began), len(waits.kept)
	r.dropKept(x)
	r.flush(now)
	r.reportAgain(ref, func() { h.installInside(x) })
	h.sortFailures()
	h.invalidate(requestOf(r.outermost().redrivenBy))
	if h.within.Dormant {
		r.st.Doze(ref)
	}
	// If a timeout stopped the nodes inside in the earlier life, the attempt of the expanded node times out, even if the nodes inside still complete.
	if h.within.TimedOut != timeoutNone {
		x.timedOut, x.timeout = h.within.TimedOut, h.within.Timeout
		r.disarmAttempt(ref)
		r.disarm(&x.overall)
	}
	r.timers++ // counts the nested run until its goroutines have returned
	h.resume(h.within.Inside.Stop, true)
	if told { // an event has already named the waiting nodes
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

// The method `regains` reports whether kahn must call the step of an ended node again to get the node's graph. This is so if the node was expanded in
// an earlier life, this life does not know the graph yet, and nodes inside may have to be undone.
func (r *Run) regains(ref machine.Ref) bool {
	return r.lacksGraph(ref) && r.st.Word(ref).Status().Terminal()
}

// lacksGraph reports whether nodes inside an expanded node may have to be undone, and this life does not know their graph yet.
func (r *Run) lacksGraph(ref machine.Ref) bool {
	x := r.extras[ref]
	return x != nil && x.kept != nil && x.comp == nil && x.kept.Inside.Undoes && x.kept.Inside.mayUndo()
}

// keepsEffects reports whether nodes inside a composite were not undone after its attempt. Such a composite is not attempted again: the next attempt
// would repeat their effects.
func (r *Run) keepsEffects(ref machine.Ref) bool {
	return r.undo != nil && r.undoneInside(ref) == CompensationFailed || r.lacksGraph(ref)
}

// mayUndo reports whether a node inside has begun, and its undoing has not ended.
func (in *insideState) mayUndo() bool {
	return slices.ContainsFunc(in.Nodes, func(n nodeState) bool {
		return n.Attempts > 0 && (n.Undo == nil || n.Undo.Status == CompensationRunning) || n.Inside != nil && n.Inside.mayUndo()
	}) || slices.ContainsFunc(in.Past, func(past insideState) bool { return past.mayUndo() })
}

// isOpen reports whether a node inside had not ended, or was being undone.
func (in *insideState) isOpen() bool {
	return slices.ContainsFunc(in.Nodes, func(n nodeState) bool {
		return !n.Status.Terminal() || n.Undo != nil && n.Undo.Status == CompensationRunning || n.Inside != nil && n.Inside.isOpen()
	})
}

// isUnfinished reports whether a node inside has not ended. An ended node has such nodes inside only if its step did not return its graph again.
func (in *insideState) isUnfinished() bool {
	return slices.ContainsFunc(in.Nodes, func(n nodeState) bool {
		return !n.Status.Terminal() || n.Inside != nil && n.Inside.isUnfinished()
	})
}

// regain calls the step of an ended node again to get the graph of an earlier life, and restores the nested run. It calls user code, so the caller
// must not hold the run's lock.
func (u *undo) regain(step *Step) error {
	r := u.run
	do := r.plan.node(u.ref).Do
	if do == nil || r.wrapped {
		do = r.step
	}
	_, err := do(step, step)
	return u.regainedBy(step, err)
}

// regainedBy continues regain after the step has returned.
func (u *undo) regainedBy(step *Step, err error) error {
	r, ref := u.run, u.ref
	facts := inspectError(err)
	if facts.expand == nil {
		if err == nil {
			err = fmt.Errorf("%w: the step has returned no graph", ErrGraphChanged)
		}
		return fmt.Errorf("the graph whose nodes are to be undone: %w", err)
	}
	e := facts.expand
	x := &expansion{inputs: e.inputs, state: e.state}
	if x.inputs == nil {
		x.inputs = noInputs
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
		return fmt.Errorf("%w: the step has returned a graph with the hash %s, not %s as before", ErrGraphChanged, x.plan.Hash(), quoteID(hash))
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
	if u.step != step { // the attempt was abandoned
		return errAbandoned
	}
	h.revive(r.expandedRun(step, x))
	r.nests = true
	for _, name := range x.plan.lacks {
		r.lend(name, ref)
	}
	comp := newComposite(nil)
	h.installPast(r, comp)
	h.resume(nil, true)
	r.extras[ref].comp = comp
	return nil
}

// The method `end` marks the nodes inside that have not ended, at every depth, as aborted, since the node around them has ended.
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

// addItems adds each item of a map that has not begun, as an ended item with the given facts.
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

// keptNodes returns the nodes inside an expanded node as an earlier life left them. If the step was called again to undo these
// nodes, the result also shows which nodes have been undone since.
func (x *extra) keptNodes() []nodeState {
	if x.comp == nil || len(x.comp.past) == 0 {
		return x.kept.Inside.Nodes
	}
	nodes := cloneNodes(x.kept.Inside.Nodes)
	x.comp.past[0].addUndos(nodes)
	return nodes
}

// addUndos enters the progress of each node's undoing into the nodes of a snapshot, and into the nodes inside them.
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

// lockHashed takes the run's lock after it has computed the hashes of all graphs that steps have returned. Computing them calls user code, and so must
// not happen under the lock.
func (r *Run) lockHashed() {
	for r.st.Lock(); r.tree != nil && r.durable == nil; r.st.Lock() {
		plans := r.unhashed(nil)
		if len(plans) == 0 {
			return
		}
		r.st.Unlock()
		for _, p := range plans {
			if p.Hash() == "" { // MarshalJSON, which is called for this hash, takes the snapshot
				r.st.Lock()
				return
			}
		}
	}
}

// unhashed appends to the list the plans of the graphs that steps in the run, and in the runs nested in it, have returned, and that have no hash yet.
func (r *Run) unhashed(list []*Plan) []*Plan {
	if r.rootInputs != nil && r.plan.hashed.Load() == nil {
		list = append(list, r.plan)
	}
	for _, x := range r.extras {
		if x.comp == nil {
			continue
		}
		for _, c := range x.comp.past {
			list = c.unhashed(list)
		}
		if c := x.comp.child; c != nil {
			list = c.unhashed(list)
		}
	}
	return list
}

// isExpansion reports whether the composite's nested run performs a graph that a step has returned.
func (comp *composite) isExpansion() bool { return comp.child != nil && comp.child.rootInputs != nil }

// forgetExpansion drops the nested run of an earlier attempt of an expanded node, since the next attempt begins.
func (r *Run) forgetExpansion(ref machine.Ref) {
	x := r.extras[ref]
	if x == nil {
		return
	}
	if x.comp != nil && x.comp.isExpansion() {
		x.comp = nil
	}
	if x.former != nil {
		x.former = nil
	}
}

// The method `contract` ends the expansion of an attempt that has ended and will be repeated. The next attempt begins without an expansion. Until then
// the nested run of the ended attempt is kept, for the result of a node that is stopped before its next attempt.
func (r *Run) contract(x *extra) {
	if x.comp != nil && x.comp.isExpansion() {
		x.comp.own().ended = &endedExpansion{x.saved, x.texts.known().saved}
	}
	if x.kept != nil || x.comp != nil && x.comp.isExpansion() {
		r.dropKept(x)
		m := x.own()
		m.saved, m.texts = nil, nil
	}
}

// dropKept drops the state in which an earlier life left the nodes inside a node. If one of them was being undone, dropKept no longer counts this
// compensation as busy, since the restored nested run counts it.
func (r *Run) dropKept(x *extra) {
	if x.kept == nil {
		return
	}
	if x.kept.Inside.Undoes && x.kept.Inside.undoing() {
		r.outermost().undo.busy--
	}
	x.kept = nil
}

// keepExpanded stores the output of an expanded node in the memo, since there was no output yet when the step returned.
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

// The method `keeps` reports whether a node was expanded in an earlier life and its graph is not known yet.
func (r *Run) keeps(ref machine.Ref) bool {
	x := r.extras[ref]
	return x != nil && x.kept != nil
}

// errNotKept means that the graph of an expanded node became known during the search for a signal's node.
var errNotKept = errors.New("not kept")

// answerKept stores a signal for a waiting node inside an expanded node whose graph is not known yet. The caller holds the run's lock. If there is no
// such waiting node, answerKept returns the result of the function `unknown`. But if more than `seen` graphs have become known, answerKept returns
// errNotKept, since the waiting node may be in one of the new graphs.
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

// The method `choices` returns the answers that the gate accepted in the earlier life, or nil if it accepted any answer or the node is no gate.
func (k *keptNode) choices() []string {
	if k.Wait == nil {
		return nil
	}
	return k.Wait.Choices
}

// reportKept reports the failed compensations inside a node that was expanded in an earlier life. They count until reportAgain corrects them.
func (r *Run) reportKept(ref machine.Ref, of *nodeState) {
	root := r.outermost().undoes()
	of.notUndone(r.prefix, func(path string, u *undoState) {
		if root.kept == nil {
			root.kept = map[place][]*undoFailure{}
		}
		root.kept[place{r, ref}] = append(root.kept[place{r, ref}], r.reportUndone(path, u.Err.restore(), u.Ended))
	})
}

// notUndone calls `report` for each failed compensation inside a composite, with the path of the node. The path of the composite begins with prefix.
func (of *nodeState) notUndone(prefix string, report func(path string, u *undoState)) {
	for i := range of.Inside.Past {
		(&nodeState{ID: of.ID, Inside: &of.Inside.Past[i]}).notUndone(prefix, report)
	}
	prefix = of.prefixInside(prefix)
	for i := range of.Inside.Nodes {
		n := &of.Inside.Nodes[i]
		if n.Undo != nil && n.Undo.Status == CompensationFailed {
			report(prefix+n.ID, n.Undo)
		}
		if n.Inside != nil {
			n.notUndone(prefix, report)
		}
	}
}

// reportAgain corrects the lists of failed compensations when kahn learns the graph of an expanded node. Until then the lists contain the failures that
// reportKept has read from the snapshot, but a redrive may have reset the nodes of some of them. These failures stop counting. Then reportAgain calls
// the function `install`, which restores the nodes inside and reports the failures that remain. Each of these keeps its place in the lists.
func (r *Run) reportAgain(ref machine.Ref, install func()) {
	root := r.outermost().undo
	if root == nil || len(root.kept[place{r, ref}]) == 0 {
		install()
		return
	}
	former := root.kept[place{r, ref}]
	delete(root.kept, place{r, ref})
	for _, f := range former {
		f.set(true)
	}
	install()
	for _, f := range former {
		if f.gone && root.reported[f.path] == f {
			delete(root.reported, f.path) // if the node fails to be undone once more, that is a new failure, the last of all
		}
	}
}

// The method `undoing` reports whether an earlier life began to undo a node inside and did not finish.
func (in *insideState) undoing() bool {
	return slices.ContainsFunc(in.Nodes, func(n nodeState) bool {
		return n.Undo != nil && n.Undo.Status == CompensationRunning || n.Inside != nil && n.Inside.undoing()
	}) || slices.ContainsFunc(in.Past, func(past insideState) bool { return past.undoing() })
}

// The method `undone` returns how far the undoing of the nodes inside a composite has come, from the composite's state in a snapshot.
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
