package kahn

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/seed-c794f7ef/kahn/internal/saturate"
	"github.com/seed-c794f7ef/kahn/machine"
)

// This file restores the nodes inside composites when a run continues: it matches them with the plan, and makes the nested runs again. It works
// level by level, from the outside to the inside. Its recursion is as deep as the nesting, which is bounded.

// The method `revive` makes, at every depth, a Run for each nested run and each earlier iteration in the snapshot. It does not change r.
func (h *held) revive(r *Run) {
	h.run = r
	for _, in := range h.inside {
		if !in.begun() && in.past == nil {
			continue
		}
		n, step := in.within, in.step(r)
		for _, past := range in.past {
			past.revive(r.iterationRun(step, past.within.Inside.Iteration, nil))
		}
		if !in.begun() {
			continue
		}
		var c *Run
		switch node := r.plan.node(in.ref); {
		case node.Map != nil:
			c = r.itemsRun(step, in.list)
			in.list.abort = n.Inside.AbortRun
		case node.Loop != nil:
			var previous any
			if n.Inside.Previous != nil {
				previous = n.Inside.Previous.value
			}
			c = r.iterationRun(step, n.Inside.Iteration, previous)
		case n.expanded():
			c = r.expandedRun(step, &expansion{plan: in.plan, inputs: map[string]any{}})
			r.nests = r.nests || in.continues()
		default:
			c = r.subRun(step, r.plan.sub(in.ref))
		}
		in.revive(c)
	}
}

// holdInside matches the nodes inside a composite with the plan. If the composite has not begun, holdInside returns nil; for a map with a known list
// it returns only the list.
func holdInside(p *Plan, ref machine.Ref, n *nodeState, prefix string) (h *held, err error) {
	node := p.node(ref)
	var list *items
	if node.Map != nil && !n.Checking && !n.Status.Terminal() {
		var value any
		if n.List != nil {
			value = n.List.value
		}
		if list, err = p.itemsOf(ref, value, n.Key, contain); err != nil {
			return nil, fmt.Errorf("snapshot: node %s: %w", quoteID(prefix+n.ID), err)
		}
		list.stored = n.apart
	}
	in := n.Inside
	if in == nil {
		if list != nil { // the list is known, but the map has not begun
			return &held{within: n, ref: ref, list: list}, nil
		}
		return nil, nil
	}
	if !in.Due.IsZero() {
		if node.Loop == nil || n.Status != Running || in.Iteration < 2 || len(in.Nodes) > 0 {
			return nil, fmt.Errorf("%w: snapshot: node %s cannot be in a pause between two iterations", ErrBadValue, quoteID(prefix+n.ID))
		}
		h = &held{within: n, ref: ref}
		return h, h.holdPast(p.sub(ref), prefix)
	}
	if node.Loop != nil && n.isBefore() {
		return &held{within: n, ref: ref}, nil
	}
	inner := p.sub(ref)
	if node.Map != nil {
		if list == nil {
			if in.Items > len(in.Nodes) { // the map has ended, so the snapshot must contain the states of all its items
				return nil, fmt.Errorf("%w: snapshot: node %s has %d items, but not the states of all of them", ErrBadValue, quoteID(prefix+n.ID), in.Items)
			}
			list = &items{m: node.Map, plan: p.items[ref].repeated(n.ID, min(max(in.Items, 0), maxNodes))}
			list.keep(n)
		}
		inner = list.plan
	}
	if bad := in.Items < 0 || in.Items != 0 && (node.Map == nil || in.Items != len(inner.names)) || (in.Iteration > 0) != (node.Loop != nil); bad {
		return nil, fmt.Errorf("%w: snapshot: the state of the nodes inside node %s is not valid", ErrBadValue, quoteID(prefix+n.ID))
	}
	if h, err = holdGraph(inner, ref, n, prefix); err != nil {
		return nil, err
	}
	h.list = list
	return h, h.holdPast(inner, prefix)
}

// isBefore reports whether a loop was resumed in a pause and was then stopped, before its next iteration began. Of the earlier iterations only the
// outputs are known. The state has the number of the next iteration, and in Began the time at which the pause would have ended.
func (n *nodeState) isBefore() bool {
	in := n.Inside
	return n.Status.Terminal() && in.Iteration > 1 && in.Ended.IsZero() && in.Due.IsZero() && len(in.Nodes) == 0 && len(in.Past) == 0
}

// holdPast matches the earlier iterations of a loop with the plan.
func (h *held) holdPast(inner *Plan, prefix string) error {
	n := h.within
	for i := range n.Inside.Past {
		in := &n.Inside.Past[i]
		if in.Iteration != i+1 || in.Iteration >= n.Inside.Iteration || in.Items != 0 || in.Expanded != "" || !in.Due.IsZero() {
			return fmt.Errorf("%w: snapshot: iteration %d of node %s is not valid", ErrBadValue, in.Iteration, quoteID(prefix+n.ID))
		}
		past := &nodeState{ID: n.ID, Facts: machine.Facts{Status: Completed, Substituted: n.Substituted}, Attempts: n.Attempts, Inside: in}
		held, err := holdGraph(inner, h.ref, past, prefix)
		if err != nil {
			return err
		}
		h.past = append(h.past, held)
	}
	return nil
}

// holdGraph matches the nodes inside a composite with the plan of its graph.
func holdGraph(inner *Plan, ref machine.Ref, n *nodeState, prefix string) (*held, error) {
	in := n.Inside
	inner.inOrder(in.Nodes) // a store returns nodes in any order
	h, err := holdNodes(inner, in.Nodes, n.prefixInside(prefix), false)
	if err != nil {
		return nil, err
	}
	h.within, h.ref, h.dropped = n, ref, in.dropped
	h.early(in.Signals)
	return h, nil
}

// The method `step` makes the Step of the composite's current attempt.
func (h *held) step(r *Run) *Step {
	step := &Step{run: r, ref: h.ref, attempt: h.within.Attempts}
	if h.within.Substituted {
		step.flags |= stepSubstituted
	}
	if r.plan.net.Is(h.ref, machine.FlagCleanup) {
		step.flags |= stepDetached
	}
	return step
}

// The method `judge` computes the effects of the signals on their nodes. It may call user code, so the caller must not hold the run's lock.
func (h *held) judge() {
	h.answers, h.refused = h.run.answers(h.signals)
	for _, in := range h.inside {
		if in.begun() {
			in.judge()
		}
	}
}

// The method `install` restores the records and words of the nodes, and of the nodes inside them. The caller holds the run's lock.
func (h *held) install() {
	r := h.run
	if r.recorder != nil {
		r.recorder.restored = true
	}
	for i, ref := range h.refs {
		n := &h.nodes[i]
		r.restoreRecord(ref, n)
		word := r.plan.restored(ref, n)
		r.st.Restore(ref, &word)
		if n.Undo != nil {
			r.restoreUndo(ref, n.Undo)
		}
		if r.log != nil {
			r.recorder.latest[ref] = latest{n.Latest, n.Status.Terminal()}
		}
		if f := h.former[i]; f != nil {
			r.extra(ref).former = f
		}
		if kept := h.kept[i]; kept != nil {
			if r.extra(ref).kept = kept; kept.Inside.Undoes {
				r.allowUndo()
				if kept.Inside.undoing() {
					r.outermost().undoes().busy++
				}
				r.reportKept(ref, kept) // the nested run reports the same failures again when the step has returned its graph; they count once
			}
			if kept.Status == Running {
				r.reentered = true
				r.outdated(ref) // kept may contain a new signal
				r.waiters().keep(place{r, ref})
			}
		}
	}
	for _, in := range h.inside {
		x := r.extraInside(in.ref)
		x.items = in.list
		switch {
		case in.begun():
			if in.installInside(x); in.ended != nil {
				x.comp.own().ended = in.ended
			}
		case in.pauses():
			in.installPause(r, x)
		case in.within.Inside != nil && in.within.isBefore():
			x.comp = newComposite(nil)
			x.comp.restore(in.within.Inside)
			x.comp.own().pause = &pause{next: in.within.Inside.Iteration, due: int64(in.within.Inside.Began.Sub(r.start)), over: true}
		}
		for _, past := range in.past {
			past.installPast(r, x.comp)
		}
		if in.pauses() {
			x.comp.resumePaused()
		}
	}
}

// goOn makes a composite continue inside. The composite runs again, in the same attempt, with its full timeouts.
func (n *nodeState) goOn(a *again, epoch int, keep bool) {
	in := *n.Inside
	if n.isBefore() {
		in.Due = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC) // the loop pauses again for its whole Pause: see installPause
	}
	n.Inside = &in
	ended := n.Status.Terminal()
	if n.reopened = ended; ended {
		n.Facts = machine.Facts{Status: Running, Reached: true, Substituted: n.Substituted, Decided: n.Decided, Started: n.Attempts}
		n.nodeFacts = nodeFacts{Tokens: n.Tokens, Usage: n.Usage, Cut: max(n.Attempts-1, 0)}
		n.Value, n.Err, n.LastErr, n.Refused, n.Labels, n.Fallback, n.Entries = nil, nil, nil, nil, nil, false, 0
	}
	n.Cause, n.Origin, n.StopErr, n.Draining, n.TimedOut, n.Timeout, n.Epoch, n.Undo = CauseNone, "", nil, false, timeoutNone, 0, 0, nil
	// A composite that had ended is no longer dormant. A dormant composite that has not ended stays dormant until a node inside it can continue: see
	// continueWaits.
	if in.redone = ended || a.any(); ended {
		n.Dormant = false
	}
	in.Whole = in.Whole && !in.redone
	in.Ended, in.StoppedFor, in.Stop, in.Cancelled, in.Failed, in.AbortRun, in.Undoing = time.Time{}, CauseNone, nil, false, nil, false, RunPending
	switch {
	case a.later != nil:
		in.Redo = a.later
	case a.back > 0:
		if a.back == in.Iteration {
			in.dropped = in.Nodes
		}
		in.rewind(a.back)
	case a.plan != nil:
		in.Nodes, in.dropped = a.take(in.Nodes, epoch, keep)
	}
}

// beginInside emits the start events of the composites that continue in a fork. The other nodes from the snapshot have no events.
func (h *held) beginInside() {
	r := h.run
	for _, in := range h.inside {
		if !in.continues() {
			continue
		}
		for _, kind := range []eventKind{evNodeQueued, evNodeStarted} {
			r.event(entry{kind: kind, ref: in.ref, attempt: 1})
		}
		if c := in.run; r.recorder != nil {
			first := r.recorder.latest[in.ref].id
			c.recorder.first, c.recorder.wave, c.recorder.ended = first, first, first
		}
		in.beginInside()
	}
}

// The method `rewind` makes a loop continue at the beginning of the iteration `to`: an earlier iteration, or the current one.
func (in *insideState) rewind(to int) {
	if to < in.Iteration {
		if in.Previous = nil; to > 1 {
			in.Previous = clonePtr(&in.Collected[to-2])
		}
	}
	in.Collected = in.Collected[:min(to-1, len(in.Collected))]
	in.Past = in.Past[:min(to-1, len(in.Past))]
	in.apart = min(in.apart, len(in.Collected))
	if to == 1 || in.DegradedAt >= to {
		in.Degraded, in.DegradedAt = false, 0
	}
	in.Iteration, in.Due, in.Nodes = to, time.Time{}, nil
}

// installPast restores an earlier iteration of a loop.
func (h *held) installPast(r *Run, comp *composite) {
	c := h.run
	comp.own().past = append(comp.own().past, c)
	c.began, c.ended = r.records[h.ref].start, r.records[h.ref].start
	c.limitTo(c.within)
	r.setUp(c)
	h.install()
}

// resumePaused makes the last earlier iteration of a restored loop that pauses the current nested run again. If the loop is stopped during its pause,
// the run thus has the record of this iteration, and writes the iterations into later snapshots.
func (c *composite) resumePaused() {
	last := len(c.past) - 1
	if last < 0 || c.past[last].iteration != c.pause.next-1 {
		return
	}
	m := c.own()
	c.child, m.past = m.past[last], m.past[:last]
	if c.child.undo != nil { // the iteration had completed, and undoesInside undoes its nodes
		c.child.undo.whole = true
	}
}

// resumePast computes the verdicts of the earlier iterations of a loop.
func (h *held) resumePast() {
	for i, past := range h.past {
		if i > 0 {
			past.run.previous = h.past[i-1].run.output()
		}
		past.resume(nil, true)
	}
}

// firstStart returns the time at which the first node started. It also considers the nodes that a redrive runs again. If no node has started, it
// returns the zero time.
func (h *held) firstStart() (first time.Time) {
	for _, list := range [][]nodeState{h.nodes, h.dropped} {
		for i := range list {
			if at := list[i].Start; !at.IsZero() && (first.IsZero() || at.Before(first)) {
				first = at
			}
		}
	}
	return first
}

// restoreEpochs sets the epoch of each node that ended in an earlier epoch and was kept. It does so at every depth, also in nested runs that have
// ended.
func (h *held) restoreEpochs() {
	if slices.ContainsFunc(h.nodes, func(n nodeState) bool { return n.Epoch != 0 }) {
		epochs := slices.Repeat([]int{h.run.epoch}, len(h.plan.names))
		for i, ref := range h.refs {
			if n := &h.nodes[i]; n.Epoch != 0 {
				epochs[ref] = n.Epoch
			}
		}
		h.run.st.SetEpochs(epochs)
	}
	for _, in := range h.inside {
		if in.begun() {
			in.restoreEpochs()
		}
		for _, past := range in.past {
			past.restoreEpochs()
		}
	}
}

// The method `restored` returns the data that the State needs to restore a node from a snapshot.
func (p *Plan) restored(ref machine.Ref, n *nodeState) machine.Restored {
	x := machine.Restored{
		Facts: n.Facts, Route: p.routeOf(ref, n.Labels), Origin: noRef, Inside: n.Inside != nil, Judging: n.Started > 0 && n.Attempts == 0,
		Expanded: n.expanded(),
	}
	if origin, ok := p.Ref(n.Origin); ok {
		x.Origin = origin
	}
	return x
}

// installPause restores a loop that pauses.
func (h *held) installPause(r *Run, x *extra) {
	state := h.within.Inside
	due := min(int64(state.Due.Sub(r.start)), saturate.Add(r.now(), int64(r.plan.node(h.ref).Loop.Pause))) // at most Loop.Pause from now
	x.comp = newComposite(nil)
	x.comp.restore(state)
	x.comp.own().pause = &pause{next: state.Iteration, due: due, failed: state.Failed}
	h.continueAttempt(r, h.step(r), x)
}

// The method `restore` restores the outputs of a loop's earlier iterations.
func (c *composite) restore(state *insideState) {
	if before := state.iterations(); before.degraded != 0 || before.last != nil || before.all != nil || state.apart != 0 {
		m := c.own()
		m.before, m.stored = before, int32(state.apart)
	}
}

// The method `iterations` returns the results of a loop's iterations before the current one.
func (in *insideState) iterations() iterations {
	before := iterations{degraded: in.DegradedAt}
	if in.Degraded && in.DegradedAt == 0 {
		before.degraded = 1
	}
	if in.Previous != nil {
		before.last = in.Previous.value
	}
	for _, v := range in.Collected {
		before.all = append(before.all, v.value)
	}
	return before
}

// continueAttempt continues a composite's running attempt.
func (h *held) continueAttempt(r *Run, step *Step, x *extra) {
	n := h.within
	r.activate(step)
	if n.TimedOut != timeoutNone || n.Timeout != 0 {
		m := x.own()
		m.timedOut, m.timeout = n.TimedOut, n.Timeout
	}
	if l := r.landing(); l != nil { // the alarms are armed later
		if f := l.of(r, n.ID); f != nil && f.Deadline != 0 {
			step.endBy(f.Deadline)
		}
		return
	}
	if n.TimedOut == timeoutNone && n.Cause == CauseNone {
		now := r.now()
		r.continueOverall(h.ref, now)
		r.armTimeouts(r.plan.node(h.ref), step, false, now)
	}
}

func (h *held) installInside(x *extra) {
	c, n := h.run, h.within
	r, state := c.outer, n.Inside
	x.comp = newComposite(c)
	x.comp.restore(state)
	c.cancelled, c.stoppedBy = state.Cancelled, state.StoppedFor
	c.setFailedGroups(failuresOf(state.Failed))
	c.began = int64(state.Began.Sub(r.start))
	if state.Undoing != RunPending {
		c.undoes().status = state.Undoing
	}
	if state.Whole {
		c.undoes().whole = true
	} else if state.Undoes && n.Status.Terminal() { // a running composite gives the nested run a verdict again
		c.undoes().open = true
	}
	if h.continues() && n.Dormant {
		c.stage = stageResting
	}
	if h.continues() && (c.rootInputs == nil || r.landing() != nil) { // c.rootInputs is set for an expanded node, whose attempt is already running
		h.continueAttempt(r, c.within, x)
	}
	c.limitTo(c.within)
	r.setUp(c)
	if c.rootInputs != nil && c.plan.undoes {
		r.allowUndo()
	}
	if first := state.First; first != 0 && c.log != nil {
		c.recorder.first, c.recorder.wave, c.recorder.ended = first, first, first
	}
	h.install()
	if c.items != nil {
		for i := range h.nodes {
			if h.nodes[i].Status == Failed {
				c.items.failed++
			}
		}
	}
	if !h.continues() {
		c.ended = int64(state.Ended.Sub(r.start))
	}
}

// The method `resume` computes the consequences of the installed words, from the outside to the inside. The parameter `inWave` is true if the run had
// already begun the wave with which it continues, see [machine.Locked.Rebuild].
func (h *held) resume(stop *stopState, inWave bool) {
	r, s := h.run, &h.run.st
	if h.within != nil && !h.continues() {
		if stop != nil {
			r.restoreStop(stop)
		}
		r.stage = stageOver
		r.judge()
		for _, in := range h.inside {
			if in.resumePast(); in.begun() {
				in.resume(in.within.Inside.Stop, true)
			}
		}
		return
	}
	words := make([]machine.Restored, len(h.nodes))
	for i, ref := range h.refs {
		words[i] = r.plan.restored(ref, &h.nodes[i])
	}
	s.Rebuild(h.refs, words, inWave)
	for i, ref := range h.refs {
		if n := &h.nodes[i]; n.Cause != CauseNone && !s.Word(ref).Status().Terminal() && s.Word(ref).Status() != Running {
			origin := noRef
			if o, ok := r.plan.Ref(n.Origin); ok {
				origin = o
			}
			if h.kept[i] != nil {
				r.wake(r.now()) // the stop ends this node, so the run is not suspended
			}
			if err := s.StopNode(ref, n.Cause, origin, machine.StopAsking); err != nil {
				s.NoteBug(err)
			}
			r.disarmNode(ref)
		}
	}
	if stop != nil {
		r.restoreStop(stop)
		s.Stop(stop.Kind, r.stopOrigin, r.stopManner)
		for ref := range r.extras {
			if s.Word(ref).Status().Terminal() {
				r.disarmNode(ref)
			}
		}
		r.boundWaits()
	}
	for _, in := range h.inside {
		if in.resumePast(); !in.begun() {
			continue
		}
		if in.continues() {
			r.timers++ // counts the nested run until its goroutines have returned
			r.tree.touch(in.run)
		}
		in.resume(in.within.Inside.Stop, !in.within.Inside.redone)
	}
	if stop != nil && stop.Drain {
		for _, in := range h.inside {
			if in.continues() && in.run.st.StoppedFor() == CauseNone && !r.plan.net.Is(in.ref, machine.FlagCleanup) {
				in.run.stopFor(stop.Kind, r.stopCauses[stop.Kind], machine.StopDraining)
			}
		}
	}
}

// restoreStop restores the stop of the run.
func (r *Run) restoreStop(stop *stopState) {
	r.st.SetStopped(stop.Kind)
	if r.stopManner = machine.StopAsking; stop.Drain {
		r.stopManner = machine.StopDraining
	}
	r.stopOrigin = noRef
	if origin, ok := r.plan.Ref(stop.Origin); ok {
		r.stopOrigin = origin
	}
	r.rare().stopCauses = map[CauseKind]*stopCause{stop.Kind: stop.Err.stopCause(stop.Kind == CauseRunTimeout)}
	for _, later := range stop.Later {
		r.stopCauses[later.Kind] = later.Err.stopCause(later.Kind == CauseRunTimeout)
	}
}

// stopCause returns the cause of a stop with this error. The parameter `late` is true if the run's timeout caused the stop.
func (e *storedError) stopCause(late bool) *stopCause {
	cause := &stopCause{cmp.Or(e.restore(), ErrCancelled), context.Canceled}
	if late {
		cause.is = context.DeadlineExceeded
	}
	return cause
}

// The method `early` adds the signals in a snapshot to h.signals. These are signals for gates that the run has not reached, and for nodes that wait
// inside an expanded node. If a node has ended, `early` drops its signal without a warning, unless the node is a gate and the signal is from the
// options of the run that continues.
func (h *held) early(signals []signalState) {
	for _, s := range signals {
		ref, ok := h.plan.Ref(s.Node)
		i, known := h.at[ref]
		switch {
		case !ok, known && !s.given && h.nodes[i].Status.Terminal():
		case h.plan.net.Is(ref, machine.FlagGate), known && h.nodes[i].Status == Suspended:
			h.signals[ref] = Decision{s.Value.value, s.Actor, s.Comment, s.ID}
			if known && !s.given {
				h.accept(ref)
			}
		}
	}
}

// The method `accept` records that a signal for a waiting node was accepted before the wait's deadline. This signal is delivered even if the
// deadline has passed since then.
func (h *held) accept(ref machine.Ref) {
	if h.accepted == nil {
		h.accepted = map[machine.Ref]bool{}
	}
	h.accepted[ref] = true
}

// The method `late` returns an error for a signal if the deadline of the node's wait has passed. The deadline may pass before the run is continued,
// or while the node's graph is not known.
func (n *nodeState) late(name string, now time.Time) error {
	if n.Status != Suspended || n.Wait == nil || n.Wait.Deadline.IsZero() || n.Wait.Deadline.After(now) {
		return nil
	}
	return fmt.Errorf("%w: the deadline of node %s has passed", ErrAnswered, quoteID(name))
}

// heldNames finds runs and nodes in composites by name, so that a signal does not require a search through all nested runs.
type heldNames struct {
	runs   map[string]heldRun  // by the common prefix of the paths of the run's nodes; for the items of a map, by the map's path and a bracket
	tokens map[string]heldNode // the steps that wait, by token; a token that equals the node's id is omitted
	kept   keptNodes

	longest int // the length of the longest key in runs
}

type heldRun struct {
	*held
	prefix    string
	continues bool // whether the run and all runs around it continue
}

type heldNode struct {
	in  *held
	ref machine.Ref
}

// The method `names` returns the names in an outermost run. The first call collects them.
func (h *held) names() *heldNames {
	if h.named == nil {
		h.named = &heldNames{runs: map[string]heldRun{}, tokens: map[string]heldNode{}, kept: keptNodes{}}
		h.named.add(h, "", true)
	}
	return h.named
}

func (x *heldNames) add(h *held, prefix string, continues bool) {
	for i := range h.nodes {
		if n := h.kept[i]; n != nil && n.Status == Running && continues {
			x.kept.add(n, prefix, nil)
		}
	}
	for _, in := range h.inside {
		if !in.begun() {
			continue
		}
		run := heldRun{in, in.within.prefixInside(prefix), continues && in.continues()}
		key := run.prefix
		if in.list != nil {
			key = prefix + in.within.ID + "["
		}
		x.runs[key] = run
		x.longest = max(x.longest, len(key))
		if run.continues {
			for token, ref := range in.tokens {
				if _, taken := x.tokens[token]; !taken && in.plan.names[ref] != token {
					x.tokens[token] = heldNode{in, ref}
				}
			}
		}
		x.add(in, run.prefix, run.continues)
	}
}

// The method `find` returns the node with the given path or token, and its run. It finds paths only in nested runs that have begun.
func (h *held) find(name string) (*held, machine.Ref, bool) {
	if ref, ok := h.nodeNamed(name); ok {
		return h, ref, true
	}
	names := h.names()
	for i := range min(len(name), names.longest) {
		if name[i] != '/' && name[i] != '[' {
			continue
		}
		if in, ok := names.runs[name[:i+1]]; ok {
			if ref, ok := in.nodeNamed(name[len(in.prefix):]); ok {
				return in.held, ref, true
			}
		}
	}
	at, ok := names.tokens[name]
	return at.in, at.ref, ok
}

// nodeNamed returns the node of this run with the given token or id.
func (h *held) nodeNamed(name string) (machine.Ref, bool) {
	if ref, ok := h.tokens[name]; ok {
		return ref, true
	}
	return h.plan.Ref(name)
}

// unknownGate returns the error for a name under which no node waits.
func (h *held) unknownGate(name string) error {
	return h.plan.unknownGate(name, func(prefix string, r machine.Ref) (Status, bool) {
		in := h.performed(prefix)
		if in == nil {
			return Idle, false
		}
		if i, known := in.at[r]; known {
			return in.nodes[i].Status, true
		}
		return Idle, true
	})
}

// The method `performed` returns the run for a prefix: the paths of its nodes, relative to h, begin with the prefix. It returns nil if no run has
// the prefix, or if the run does not continue.
func (h *held) performed(prefix string) *held {
	if prefix == "" {
		return h
	}
	if in := h.names().runs[prefix]; in.continues {
		return in.held
	}
	return nil
}

// The method `answer` adds a signal for the node with the given path or token. If the run accepted the same signal before it was continued, `answer`
// does nothing.
func (x *restoration) answer(name string, value any) error {
	s := signal{gate: name, Decision: decisionOf(value)}
	if err := s.identify(); err != nil {
		return err
	}
	if _, repeated, err := x.answered.repeats(&s); repeated || err != nil {
		return err
	}
	if err := x.held.answer(name, s.Decision); err != nil {
		return err
	}
	x.answered.take(&s, nil)
	return nil
}

// The method `answer` adds a signal for the node with the given path or token. It calls user code.
func (h *held) answer(name string, d Decision) error {
	in, ref, kept, err := h.answerable(name)
	switch {
	case err != nil:
		return err
	case kept != nil:
		if err = cmp.Or(kept.refusal(name), refuseOther(name, d.Value, kept.choices(), true)); err == nil {
			kept.answer(d, nil, true)
		}
		return err
	}
	if _, twice := in.signals[ref]; twice {
		return fmt.Errorf("%w: two signals for node %s", ErrDuplicateGate, quoteID(name))
	}
	if in.plan.net.Is(ref, machine.FlagGate) {
		if err := in.plan.refuse(ref, name, d.Value); err != nil {
			return err
		}
	}
	in.signals[ref] = d
	return nil
}

// answerable returns the node with the given path or token, and its run. If the node is inside an expanded node whose graph is not known, answerable
// returns only the result `kept`. If the node accepts no signal, the error is the reason.
func (h *held) answerable(name string) (in *held, ref machine.Ref, kept *keptNode, err error) {
	in, ref, ok := h.find(name)
	if !ok {
		if kept = h.names().kept[name]; kept == nil {
			err = h.unknownGate(name)
		}
		return nil, noRef, kept, err
	}
	i, known := in.at[ref]
	gate := in.plan.net.Is(ref, machine.FlagGate)
	switch {
	case in.within != nil && !in.continues():
		err = h.unknownGate(name)
	case known && gate && in.nodes[i].Status.Terminal():
		err = endedUnanswered(name, in.nodes[i].Status)
	case gate, known && in.nodes[i].Status == Suspended:
		if known && in.nodes[i].Wait != nil && in.nodes[i].Wait.Run != "" {
			err = awaitsRun(name, in.nodes[i].Wait.Run)
		}
	case known && in.nodes[i].Signalled:
		err = answeredAlready(name)
	default:
		err = h.unknownGate(name)
	}
	return in, ref, nil, err
}

// keptNode is a node inside an expanded node whose graph is not known yet. A signal for such a node is checked when the graph is known.
type keptNode struct {
	*nodeState
	in       *insideState // the state of the nearest composite
	expanded *insideState // the state of the expanded node
	path     string       // relative to the expanded node
	answered bool
	of       *keptWaits // nil before the run continues
}

// keptNodes contains waiting and ended nodes inside expanded nodes, by path. A waiting node has a second entry, by token.
type keptNodes map[string]*keptNode

// The method `add` adds the nodes inside the expanded node n. The path of n begins with prefix.
func (k keptNodes) add(n *nodeState, prefix string, of *keptWaits) {
	prefix = n.prefixInside(prefix)
	k.addInside(n.Inside, "", func(x *keptNode) {
		x.expanded, x.of = n.Inside, of
		k.name(prefix+x.path, x)
		if x.Status == Suspended && x.Wait != nil {
			k.name(x.Wait.Token, x)
		}
	})
}

// addInside calls the function `add` for each node inside a composite that has ended or waits for a signal. The paths of these nodes begin with
// prefix.
func (k keptNodes) addInside(in *insideState, prefix string, add func(*keptNode)) {
	answered := make(map[string]bool, len(in.Signals))
	for i := range in.Signals {
		answered[in.Signals[i].Node] = true
	}
	for i := range in.Nodes {
		n := &in.Nodes[i]
		switch {
		case n.Status.Terminal() || n.Status == Suspended:
			add(&keptNode{nodeState: n, in: in, path: prefix + n.ID, answered: answered[n.ID]})
		case n.Inside != nil: // the node runs, or is an expanded node whose step will be called again
			k.addInside(n.Inside, n.prefixInside(prefix), add)
		}
	}
}

// The method `name` adds a node under a name. If another node already has the name, the new node takes the name only in two cases: the graph of the
// other node is known again, or both nodes are inside the same expanded node of a continuing run.
func (k keptNodes) name(name string, x *keptNode) {
	if old := k[name]; old == nil || old.of != nil && (old.of == x.of || old.of.known) {
		k[name] = x
	}
}

// The method `refusal` returns an error if the node cannot accept a signal.
func (k *keptNode) refusal(name string) error {
	switch {
	case k.answered:
		return answeredAlready(name)
	case k.Status.Terminal():
		return endedUnanswered(name, k.Status)
	case k.Wait != nil && k.Wait.Run != "":
		return awaitsRun(name, k.Wait.Run)
	}
	return nil
}

// refusalAt returns an error if the node cannot accept a signal that arrives now.
func (k *keptNode) refusalAt(name string, now time.Time) error {
	if err := k.refusal(name); err != nil {
		return err
	}
	return k.late(name, now)
}

// The method `answer` stores a signal for the node in the snapshot. The parameter `text` is the encoded value if it is known. If `given` is set, the
// signal came with the options of the run that continues. For this signal, a deadline that has passed takes precedence.
func (k *keptNode) answer(d Decision, text json.RawMessage, given bool) {
	k.answered = true
	s := signalState{k.ID, stored{d.Value, text}, d.Actor, d.Comment, d.ID, given}
	if k.in.Signals = append(k.in.Signals, s); k.in != k.expanded {
		s.Node = k.path
		k.expanded.deeper = append(k.expanded.deeper, s)
	}
}

// signalsDeeper appends the signals for nodes in composites inside the receiver. It changes the name in each signal to a path: the prefix, followed
// by the node's path relative to the receiver.
func (in *insideState) signalsDeeper(list []signalState, prefix string) []signalState {
	for i := range in.Nodes {
		n := &in.Nodes[i]
		if n.Inside == nil || n.Status.Terminal() {
			continue
		}
		within := n.prefixInside(prefix)
		for _, s := range n.Inside.Signals {
			s.Node = within + s.Node
			list = append(list, s)
		}
		list = n.Inside.signalsDeeper(list, within)
	}
	return list
}

// placeSignals reverses signalsDeeper for a node from a store: it moves each signal to the nearest composite of its node. If the composite already
// has a signal for the node, from an earlier transaction, that signal stays, and the other one is dropped.
func (in *insideState) placeSignals() {
	nodes := keptNodes{}
	nodes.addInside(in, "", func(x *keptNode) { nodes[x.path] = x })
	in.Signals = slices.DeleteFunc(in.Signals, func(s signalState) bool {
		x := nodes[s.Node]
		if x == nil || x.in == in {
			return false
		}
		if !x.answered {
			x.answered, s.Node = true, x.ID
			x.in.Signals = append(x.in.Signals, s)
		}
		return true
	})
}
