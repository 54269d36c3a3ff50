package kahn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// This file is about what is inside of composites when a run goes on: how a snapshot holds it, and how the nested runs are
// made again. They are made level by level, from the outside to the inside: nesting has a bound, and graphs have none.

// compositeState adds to a node what a snapshot holds of a composite, but for the nodes inside.
func (r *Run) compositeState(n *nodeState, ref Ref, x *extra) {
	if x.items != nil && !n.Status.Terminal() {
		n.List = store(x.items.value())
	}
	w := r.st.words[ref]
	switch {
	case x.kept != nil:
		in := *x.kept.Inside
		in.Nodes = nil
		n.Inside, n.Dormant = &in, x.kept.Dormant
		return
	case x.comp == nil, x.comp.isExpansion() && !n.Status.Terminal() && w&wordExpanded == 0: // that was an attempt before
		return
	}
	if p := x.comp.pause; p != nil && n.Status == Running {
		n.Inside = x.comp.stateBetween(p, r.timeAt(p.due))
	} else if x.comp.child != nil {
		n.Inside = x.comp.state()
	}
	if n.Status != Running {
		return
	}
	n.Dormant, n.Draining = w&wordDormant != 0, w&wordDraining != 0
	n.TimedOut, n.Timeout = x.timedOut, x.timeout
}

// state is what a snapshot holds of the run nested in a composite, but for its nodes.
func (comp *composite) state() *insideState {
	c := comp.child
	in := &insideState{
		Iteration: c.iteration, Degraded: comp.before.degraded, Began: c.timeAt(c.began), StoppedFor: c.stoppedBy, Stop: c.stopState(),
		Cancelled: c.cancelled, Signals: c.earlySignalStates(), First: c.recorder.first, Failed: c.failedGroups,
	}
	if c.iteration > 1 {
		in.Previous = store(c.previous)
	}
	for _, v := range comp.before.all {
		in.Collected = append(in.Collected, stored{value: v})
	}
	if c.items != nil {
		in.Items, in.AbortRun = len(c.plan.names), c.items.abort // a map that has ended knows its list no more
	}
	if c.concluded {
		in.Ended = c.timeAt(c.ended)
	}
	if c.rootInputs != nil {
		if in.plan = c.plan; c.plan.tested != nil {
			in.plan = c.plan.tested
		}
		in.Expanded = in.plan.Hash()
	}
	return in
}

// stateBetween is state for a loop that pauses before its next iteration.
func (comp *composite) stateBetween(p *pause, due time.Time) *insideState {
	in := &insideState{Iteration: p.next, Previous: store(comp.before.last), Degraded: comp.before.degraded, Began: due, Due: due, Failed: p.failed}
	for _, v := range comp.before.all {
		in.Collected = append(in.Collected, stored{value: v})
	}
	return in
}

// insideNodes is what a snapshot has of the nodes inside of a composite.
func (x *extra) insideNodes() []nodeState {
	if x.kept != nil {
		return x.kept.Inside.Nodes
	}
	return x.comp.child.nodeStates()
}

// value is the list as the map's parameter gave it.
func (x *items) value() any {
	if !x.list.IsValid() {
		return nil
	}
	return x.list.Interface()
}

// held is what a snapshot has of the nodes of one run, held against the run's plan.
type held struct {
	plan    *Plan
	nodes   []nodeState
	refs    []Ref              // by node
	at      map[Ref]int        // the reverse
	tokens  map[string]Ref     // of the steps that wait
	signals map[Ref]Decision   // for nodes that wait, and gates that were not reached
	inside  []*held            // of composites, in the order of nodes
	kept    map[int]*nodeState // of expanded nodes whose graphs are not known, by index

	within *nodeState // the composite whose nodes these are; nil for the outermost run
	ref    Ref        // of that
	list   *items     // of a map

	run     *Run // that goes on; nil until it is made
	answers map[Ref]answer
	refused []error // of signals that the snapshot had accepted for gates of another version of the graph
}

// holdNodes holds nodes against a plan. Those of the outermost run have hashes, which cover what is inside.
func holdNodes(p *Plan, nodes []nodeState, prefix string, outermost bool) (*held, error) {
	h := &held{plan: p, nodes: nodes, at: map[Ref]int{}, tokens: map[string]Ref{}, signals: map[Ref]Decision{}, kept: map[int]*nodeState{}}
	for i := range nodes {
		n := &nodes[i]
		name := quoteID(prefix + n.ID)
		ref, ok := p.Ref(n.ID)
		if !ok || outermost && n.Hash != p.nodeHash(ref) {
			return nil, fmt.Errorf("%w: node %s is %v in the snapshot", ErrGraphChanged, name, n.Status)
		}
		if _, twice := h.at[ref]; twice || n.Status >= statusCount || n.Status == Waiting || n.Status == Idle && !n.Checking {
			return nil, fmt.Errorf("%w: snapshot: node %s in status %v", ErrBadValue, name, n.Status)
		}
		if n.Status == Suspended && n.Wait == nil {
			return nil, fmt.Errorf("%w: snapshot: node %s waits for nothing", ErrBadValue, name)
		}
		if !n.sound(p, ref) {
			return nil, fmt.Errorf("%w: snapshot: what is said of node %s, which is %v", ErrBadValue, name, n.Status)
		}
		h.at[ref] = i
		h.refs = append(h.refs, ref)
		if n.Status == Suspended && !p.facts[ref].is(factGate) {
			h.tokens[n.Wait.Token] = ref
		}
		if n.expanded() {
			if n.Inside.plan != nil && n.Status.Terminal() {
				in, err := holdGraph(n.Inside.plan, ref, n, prefix)
				if err != nil {
					return nil, err
				}
				h.inside = append(h.inside, in)
			} else if err := h.keep(i, prefix); err != nil {
				return nil, err
			}
			continue
		}
		if !p.facts[ref].is(factComposite) {
			n.Inside = nil // it is mocked
			continue
		}
		in, err := holdInside(p, ref, n, prefix)
		if err != nil {
			return nil, err
		}
		if in != nil {
			h.inside = append(h.inside, in)
		}
	}
	return h, nil
}

// maxStored bounds the counters of a snapshot, so that they can go on counting.
const maxStored = 1 << 30

// sound reports whether what a snapshot says of a node fits together so far that a word can be made of it: files may have been
// written by others.
func (n *nodeState) sound(p *Plan, ref Ref) bool {
	for _, count := range []int32{n.Attempts, n.Cut, n.Started, n.Entries, n.Settled, n.Decided} {
		if count < 0 || count > maxStored {
			return false
		}
	}
	deciders := len(p.in.row(ref))
	if n.Skip == SkipNullPropagation {
		deciders = len(p.node(ref).Ports)
	}
	stopped := n.Status == Failed || n.Status == Aborted || n.Status == Cancelled
	switch {
	case n.By < 0 || n.By > deciders || n.TimedOut > timeoutOverall || n.Checking && n.Status != Idle:
		return false
	case (n.Status == Skipped) != (n.Skip != SkipNone):
		return false
	case n.Skip == SkipSuperseded:
		_, known := p.Ref(n.Origin)
		return known
	}
	return !n.Status.Terminal() || stopped == (n.Cause != CauseNone) // one that runs may be about to stop
}

// holdInside is holdNodes for what is inside of a composite, if there is something.
func holdInside(p *Plan, ref Ref, n *nodeState, prefix string) (h *held, err error) {
	node := p.node(ref)
	var list *items
	if node.Map != nil && !n.Checking && !n.Status.Terminal() {
		var value any
		if n.List != nil {
			value = n.List.value
		}
		if list, err = p.itemsOf(ref, value, contain); err != nil {
			return nil, fmt.Errorf("snapshot: node %s: %w", quoteID(prefix+n.ID), err)
		}
	}
	in := n.Inside
	if in == nil {
		if list != nil { // the map has not begun
			return &held{within: n, ref: ref, list: list}, nil
		}
		return nil, nil
	}
	if !in.Due.IsZero() {
		if node.Loop == nil || n.Status != Running || in.Iteration < 2 || len(in.Nodes) > 0 {
			return nil, fmt.Errorf("%w: snapshot: node %s pauses", ErrBadValue, quoteID(prefix+n.ID))
		}
		return &held{within: n, ref: ref}, nil
	}
	inner := p.sub(ref)
	if node.Map != nil {
		if list == nil {
			if in.Items > len(in.Nodes) { // all items of a map that has ended have
				return nil, fmt.Errorf("%w: snapshot: node %s has %d items", ErrBadValue, quoteID(prefix+n.ID), in.Items)
			}
			list = &items{m: node.Map, plan: p.items[ref].repeated(n.ID, min(max(in.Items, 0), maxNodes))}
		}
		inner = list.plan
	}
	if bad := in.Items < 0 || in.Items != 0 && (node.Map == nil || in.Items != len(inner.names)) || (in.Iteration > 0) != (node.Loop != nil); bad {
		return nil, fmt.Errorf("%w: snapshot: what is inside of node %s", ErrBadValue, quoteID(prefix+n.ID))
	}
	if h, err = holdGraph(inner, ref, n, prefix); err == nil {
		h.list = list
	}
	return h, err
}

// holdGraph is holdInside for a graph that is known.
func holdGraph(inner *Plan, ref Ref, n *nodeState, prefix string) (*held, error) {
	in := n.Inside
	in.Nodes = inner.inOrder(in.Nodes) // a store has none
	h, err := holdNodes(inner, in.Nodes, n.prefixInside(prefix), false)
	if err != nil {
		return nil, err
	}
	h.within, h.ref = n, ref
	h.early(in.Signals)
	return h, nil
}

// inOrder puts nodes into the order of their declaration.
func (p *Plan) inOrder(nodes []nodeState) []nodeState {
	type numbered struct{ at, i int32 }
	order := make([]numbered, len(nodes))
	for i := range nodes {
		order[i] = numbered{-1, int32(i)}
		if ref, ok := p.Ref(nodes[i].ID); ok {
			order[i].at = p.decl[ref]
		}
	}
	compare := func(a, b numbered) int { return cmp.Compare(a.at, b.at) }
	if slices.IsSortedFunc(order, compare) {
		return nodes
	}
	slices.SortStableFunc(order, compare)
	sorted := make([]nodeState, len(nodes))
	for i, x := range order {
		sorted[i] = nodes[x.i]
	}
	return sorted
}

// expanded reports whether the node was expanded: its graph is in no snapshot, but for one that was taken in this process.
func (n *nodeState) expanded() bool { return n.Inside != nil && n.Inside.Expanded != "" }

// keep keeps what is inside of an expanded node whose graph is not known. If that has not ended the step is to be called again, in
// the same attempt.
func (h *held) keep(i int, prefix string) error {
	n := &h.nodes[i]
	if n.Inside.Items != 0 || n.Inside.Iteration != 0 || !n.Status.Terminal() && n.Status != Running && n.Status != Ready {
		return fmt.Errorf("%w: snapshot: what is inside of node %s", ErrBadValue, quoteID(prefix+n.ID))
	}
	kept := *n
	h.kept[i], n.Inside = &kept, nil
	if n.Status == Running {
		n.Status, n.Entries = Ready, max(n.Entries, n.Started-n.Attempts)+1
	}
	if kept.Status == Ready {
		kept.Status = Running
	}
	kept.Draining, n.Dormant = false, false
	return nil
}

// begun reports whether there is a nested run.
func (h *held) begun() bool { return h.plan != nil }

// continues reports whether the nested run goes on, and is not only the result of its composite.
func (h *held) continues() bool { return h.begun() && h.within.Status == Running }

// pauses reports whether the composite is a loop that waits for its next iteration.
func (h *held) pauses() bool {
	return h.within != nil && h.within.Inside != nil && !h.within.Inside.Due.IsZero()
}

// early takes the signals of a snapshot, for gates that were not reached, and for nodes that wait inside of an expanded node.
func (h *held) early(signals []signalState) {
	for _, s := range signals {
		ref, ok := h.plan.Ref(s.Node)
		if i, known := h.at[ref]; ok && (h.plan.facts[ref].is(factGate) || known && h.nodes[i].Status == Suspended) {
			h.signals[ref] = Decision{s.Value.value, s.Actor, s.Comment}
		}
	}
}

// find finds the node that a signal is for: by its path, or by a token that is not the id of a node. Paths lead to where a
// nested run has begun.
func (h *held) find(name string) (*held, Ref, bool) {
	if ref, ok := h.tokens[name]; ok {
		return h, ref, true
	}
	if ref, ok := h.plan.Ref(name); ok {
		return h, ref, true
	}
	for _, in := range h.inside {
		if !in.begun() {
			continue
		}
		rest, ok := strings.CutPrefix(name, in.within.prefixInside(""))
		if !ok {
			continue
		}
		if x, ref, ok := in.find(rest); ok {
			return x, ref, true
		}
	}
	return h.findToken(name)
}

// findToken finds the node inside of composites that waits under a token.
func (h *held) findToken(token string) (*held, Ref, bool) {
	for _, in := range h.inside {
		if !in.continues() {
			continue
		}
		if ref, ok := in.tokens[token]; ok && in.plan.names[ref] != token {
			return in, ref, true
		}
		if x, ref, ok := in.findToken(token); ok {
			return x, ref, true
		}
	}
	return nil, noRef, false
}

// unknownGate says that nothing waits under a name.
func (h *held) unknownGate(name string) error {
	return h.plan.unknownGate(name, func(prefix string, r Ref) (Status, bool) {
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

// performed finds the run that goes on under a prefix in the paths within this one; nil if there is none.
func (h *held) performed(prefix string) *held {
	if prefix == "" {
		return h
	}
	for _, in := range h.inside {
		if !in.continues() {
			continue
		}
		if rest, ok := strings.CutPrefix(prefix, in.within.prefixInside("")); ok {
			if x := in.performed(rest); x != nil {
				return x
			}
		}
	}
	return nil
}

// answer takes a signal for a node, by path or token.
func (h *held) answer(name string, value any) error {
	in, ref, ok := h.find(name)
	if !ok {
		if err := h.answerKept(name, decisionOf(value)); err != errNotKept {
			return err
		}
		return h.unknownGate(name)
	}
	i, known := in.at[ref]
	gate := in.plan.facts[ref].is(factGate)
	switch {
	case !known && !gate:
		return h.unknownGate(name)
	case known && in.nodes[i].Status.Terminal():
		return fmt.Errorf("%w: node %s is %v", ErrAnswered, quoteID(name), in.nodes[i].Status)
	case in.within != nil && !in.continues():
		return fmt.Errorf("%w: what %s is inside of is %v", ErrUnknownGate, quoteID(name), in.within.Status)
	case known && in.nodes[i].Status != Suspended && !gate:
		return fmt.Errorf("%w: node %s is %v", ErrUnknownGate, quoteID(name), in.nodes[i].Status)
	}
	if _, twice := in.signals[ref]; twice {
		return fmt.Errorf("%w: two signals for node %s", ErrDuplicateGate, quoteID(name))
	}
	d := decisionOf(value)
	if gate {
		if err := in.plan.refuse(ref, name, d.Value); err != nil {
			return err
		}
	}
	in.signals[ref] = d
	return nil
}

// errNotKept says that a signal is for nothing inside of an expanded node.
var errNotKept = errors.New("not kept")

// answerKept takes a signal for a node inside of one that was expanded, and whose graph is not known. It is judged when that is.
func (h *held) answerKept(name string, d Decision) error {
	for i := range h.nodes {
		n := h.kept[i]
		if n == nil || n.Status != Running {
			continue
		}
		if err := n.answer(name, n.prefixInside(""), d); err != errNotKept {
			return err
		}
	}
	for _, in := range h.inside {
		if !in.continues() {
			continue
		}
		rest, within := strings.CutPrefix(name, in.within.prefixInside(""))
		if !within {
			rest = name // a token, or it is for nothing in there
		}
		if err := in.answerKept(rest, d); err != errNotKept {
			return err
		}
	}
	return errNotKept
}

// answer takes a signal for a node inside of this one: by its path, whose prefix is given, or by its token.
func (n *nodeState) answer(name, prefix string, d Decision) error {
	in := n.Inside
	for i := range in.Nodes {
		x := &in.Nodes[i]
		path := prefix + x.ID
		waits := x.Status == Suspended
		switch {
		case path == name && x.Status.Terminal():
			return fmt.Errorf("%w: node %s is %v", ErrAnswered, quoteID(name), x.Status)
		case waits && (path == name || x.Wait != nil && x.Wait.Token == name):
			if in.answers(x.ID) {
				return fmt.Errorf("%w: node %s", ErrAnswered, quoteID(name))
			}
			in.Signals = append(in.Signals, signalState{x.ID, *store(d.Value), d.Actor, d.Comment})
			return nil
		case x.Inside != nil && x.Status == Running:
			if err := x.answer(name, x.prefixInside(prefix), d); err != errNotKept {
				return err
			}
		}
	}
	return errNotKept
}

// revive makes the nested runs. It leaves the run itself alone.
func (h *held) revive(r *Run) {
	h.run = r
	for _, in := range h.inside {
		if !in.begun() {
			continue
		}
		n, step := in.within, in.step(r)
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
		default:
			c = r.subRun(step, r.plan.sub(in.ref))
		}
		in.revive(c)
	}
}

// step makes the Step of the attempt that a composite of the run is in.
func (h *held) step(r *Run) *Step {
	step := &Step{run: r, ref: h.ref, attempt: h.within.Attempts}
	if h.within.Substituted {
		step.flags |= stepSubstituted
	}
	if r.plan.facts[h.ref].is(factCleanup) {
		step.flags |= stepDetached
	}
	return step
}

// judge works out what the signals mean, which may be user code: without the lock.
func (h *held) judge() {
	h.answers, h.refused = h.run.answers(h.signals)
	for _, in := range h.inside {
		if in.begun() {
			in.judge()
		}
	}
}

// install restores the records and the words of the nodes, and of those inside, with the lock held.
func (h *held) install() {
	r := h.run
	r.recorder.restored = true
	for i, ref := range h.refs {
		n := &h.nodes[i]
		r.restoreRecord(ref, n)
		r.st.restoreWord(ref, n)
		if r.log != nil {
			r.recorder.latest[ref] = latest{n.Latest, n.Status.Terminal()}
		}
		if kept := h.kept[i]; kept != nil {
			r.extra(ref).kept = kept
			if kept.Status == Running {
				r.reentered = true
				r.outdated(ref) // a signal may have been left in it
				root := r.outermost()
				root.waits.kept = append(root.waits.kept, keptWaits{place: place{r, ref}})
			}
		}
	}
	for _, in := range h.inside {
		x := r.extra(in.ref)
		x.items = in.list
		switch {
		case in.begun():
			in.installInside(x)
		case in.pauses():
			in.installPause(r, x)
		}
	}
}

// installPause restores a loop that pauses.
func (h *held) installPause(r *Run, x *extra) {
	state := h.within.Inside
	x.comp = &composite{
		before: state.iterations(),
		pause:  &pause{next: state.Iteration, due: int64(state.Due.Sub(r.start)), failed: state.Failed},
	}
	h.continueAttempt(r, h.step(r), x)
}

// iterations is the result of a loop's iterations before the current one.
func (in *insideState) iterations() iterations {
	before := iterations{degraded: in.Degraded}
	if in.Previous != nil {
		before.last = in.Previous.value
	}
	for _, v := range in.Collected {
		before.all = append(before.all, v.value)
	}
	return before
}

// continueAttempt goes on with the attempt of a composite that was running.
func (h *held) continueAttempt(r *Run, step *Step, x *extra) {
	n := h.within
	r.activate(step)
	x.timedOut, x.timeout = n.TimedOut, n.Timeout
	if n.TimedOut == timeoutNone && n.Cause == CauseNone {
		now := r.now()
		r.continueOverall(h.ref, now)
		r.armTimeouts(r.plan.node(h.ref), step, false, now)
	}
}

func (h *held) installInside(x *extra) {
	c, n := h.run, h.within
	r, state := c.outer, n.Inside
	x.comp = &composite{child: c, before: state.iterations()}
	c.epoch, c.cancelled, c.stoppedBy, c.failedGroups = r.epoch, state.Cancelled, state.StoppedFor, state.Failed
	c.began = int64(state.Began.Sub(r.start))
	c.resting = h.continues() && n.Dormant
	if h.continues() && c.rootInputs == nil { // else the attempt is under way
		h.continueAttempt(r, c.within, x)
	}
	c.limitTo(c.within)
	r.setUp(c)
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

// resume works out what follows from what was installed, from the outside to the inside. inWave tells whether the wave that is
// to go on has started.
func (h *held) resume(stop *stopState, inWave bool) {
	r, s := h.run, &h.run.st
	if h.within != nil && !h.continues() {
		if stop != nil {
			r.restoreStop(stop)
		}
		r.concluded, r.left = true, true
		r.judge()
		for _, in := range h.inside {
			if in.begun() {
				in.resume(in.within.Inside.Stop, true)
			}
		}
		return
	}
	s.rebuild(h.refs, h.nodes, inWave)
	for i, ref := range h.refs {
		if n := &h.nodes[i]; n.Cause != CauseNone && !statusOf(s.words[ref]).Terminal() && statusOf(s.words[ref]) != Running {
			origin := noRef
			if o, ok := r.plan.Ref(n.Origin); ok {
				origin = o
			}
			if h.kept[i] != nil {
				r.wake(r.now()) // it ends here, whatever waits around it
			}
			if err := s.stopNode(ref, n.Cause, origin, stopAsking); err != nil {
				s.noteBug(err)
			}
			r.disarmNode(ref)
		}
	}
	if stop != nil {
		r.restoreStop(stop)
		s.stop(stop.Kind, r.stopOrigin, r.stopManner)
		for ref := range r.extras {
			if statusOf(s.words[ref]).Terminal() {
				r.disarmNode(ref)
			}
		}
		r.boundWaits()
	}
	for _, in := range h.inside {
		if !in.begun() {
			continue
		}
		if in.continues() {
			r.timers++ // until the child's goroutines have returned
			r.tree.touch(in.run)
		}
		in.resume(in.within.Inside.Stop, true)
	}
	if stop != nil && stop.Drain {
		for _, in := range h.inside {
			if in.continues() && in.run.st.stopped == CauseNone && !r.plan.facts[in.ref].is(factCleanup) {
				in.run.stopFor(stop.Kind, r.stopCauses[stop.Kind], stopDraining)
			}
		}
	}
}

// restoreStop tells the run what has stopped it.
func (r *Run) restoreStop(stop *stopState) {
	r.st.stopped = stop.Kind
	if r.stopManner = stopAsking; stop.Drain {
		r.stopManner = stopDraining
	}
	r.stopOrigin = noRef
	if origin, ok := r.plan.Ref(stop.Origin); ok {
		r.stopOrigin = origin
	}
	r.stopCauses = map[CauseKind]*stopCause{stop.Kind: {cmp.Or(stop.Err.restore(), ErrCancelled), context.Canceled}}
}

// each calls f for the runs that go on, the outermost first.
func (h *held) each(f func(h *held)) {
	f(h)
	for _, in := range h.inside {
		if in.continues() {
			in.each(f)
		}
	}
}

// waiting counts the nodes that wait.
func (h *held) waiting() (n int) {
	h.each(func(h *held) {
		for i := range h.nodes {
			if h.nodes[i].Status == Suspended {
				n++
			}
			if kept := h.kept[i]; kept != nil && kept.Status == Running {
				n += len(kept.Inside.waiting(nil, "", false))
			}
		}
	})
	return n
}

// continueWaits ends what is overdue, arms the deadlines of what is not, and then delivers the signals, in the order of
// declaration. Timeouts over all attempts have gone on counting while a node did not run.
func (h *held) continueWaits(now int64) {
	h.settleOverdue(now)
	h.each(func(h *held) { h.run.armWaits(now) })
	h.each(func(h *held) { h.run.deliver(h.answers, h.refused, now) })
	var inner []*held
	h.each(func(h *held) { inner = append(inner, h) })
	for _, in := range slices.Backward(inner) {
		if in.run.resting && in.run.canGoOn() {
			in.run.wake(now)
		}
	}
	for _, in := range inner {
		if in.run.outer == nil || !in.run.resting {
			continue
		}
		for i := range in.run.st.changes { // what is ready is held, and has been queued before
			if c := &in.run.st.changes[i]; c.status == Ready {
				c.quiet = true
			}
		}
	}
}

// overdue is a deadline that has passed while the run was away.
type overdue struct {
	run  *Run
	ref  Ref   // noRef for the whole run
	due  int64 // on the run's clock
	gate bool  // the wait of a gate; else the time for all attempts of a node
}

// settleOverdue ends what is overdue, in the order in which it was due and then of declaration, outer runs first: before any signal
// is delivered and any step is called.
func (h *held) settleOverdue(now int64) {
	var list []overdue
	h.each(func(h *held) {
		for _, ref := range h.run.plan.declared {
			if due, gate, ok := h.run.dueAt(ref); ok && due <= now {
				list = append(list, overdue{h.run, ref, due, gate})
			}
		}
	})
	if r := h.run; r.outer == nil && r.opened && r.bound != 0 && r.bound <= now {
		list = append(list, overdue{r, noRef, r.bound, false})
	}
	slices.SortStableFunc(list, func(a, b overdue) int { return cmp.Compare(a.due, b.due) })
	for _, o := range list {
		if o.ref == noRef {
			o.run.timeUp()
			h.each(func(h *held) { h.run.collectStops() }) // what is inside is stopped before a signal reaches it, too
			continue
		}
		if _, _, ok := o.run.dueAt(o.ref); !ok {
			continue // an earlier one has ended it
		}
		if o.gate {
			o.run.gateTimedOut(o.ref, now)
			continue
		}
		x := o.run.extra(o.ref)
		o.run.disarm(&x.overall)
		o.run.overallTimeOut(o.ref, x, o.run.plan.node(o.ref).OverallTimeout, now)
	}
}

// dueAt tells when the wait of a gate, or all the attempts of a node that has begun, are to end.
func (r *Run) dueAt(ref Ref) (due int64, gate, ok bool) {
	status, x := statusOf(r.st.words[ref]), r.extras[ref]
	if status.Terminal() {
		return 0, false, false
	}
	if r.plan.facts[ref].is(factGate) {
		if status != Suspended || x.wait.Deadline.IsZero() {
			return 0, true, false
		}
		return int64(x.wait.Deadline.Sub(r.start)), true, true
	}
	timeout := r.plan.node(ref).OverallTimeout
	if timeout == 0 || r.records[ref].attempts == 0 || x != nil && x.timedOut == timeoutOverall || r.st.words[ref]&wordStopping != 0 {
		return 0, false, false
	}
	return saturatingAdd(r.records[ref].start, int64(timeout)), false, true
}

// armWaits arms the deadlines of a run that goes on.
func (r *Run) armWaits(now int64) {
	for _, ref := range r.plan.declared {
		due, gate, ok := r.dueAt(ref)
		switch {
		case !ok:
		case gate:
			r.armGate(ref, r.extras[ref], time.Duration(due-now))
		default:
			r.continueOverall(ref, now)
		}
		if x := r.extras[ref]; x != nil && x.comp != nil && x.comp.pause != nil && statusOf(r.st.words[ref]) == Running {
			r.continuePause(ref, x, now)
		}
	}
}

// deliver delivers signals, and warns of those that were refused.
func (r *Run) deliver(answers map[Ref]answer, refused []error, now int64) {
	root := r.outermost()
	for _, err := range refused {
		root.warnings = append(root.warnings, fmt.Errorf("signal: %w", err))
	}
	for _, ref := range r.plan.declared {
		if a, ok := answers[ref]; ok {
			if err := r.signal(ref, a, now); err != nil {
				root.warnings = append(root.warnings, fmt.Errorf("signal for node %s: %w", quoteID(r.path(ref)), err))
			}
		}
	}
}

// continueOverall arms the overall timeout of a node, unless that was done: it has gone on counting.
func (r *Run) continueOverall(ref Ref, now int64) {
	n := r.plan.node(ref)
	if n.OverallTimeout == 0 || r.records[ref].attempts == 0 || statusOf(r.st.words[ref]).Terminal() {
		return
	}
	if x := r.extra(ref); x.overall == nil {
		left := saturatingAdd(saturatingAdd(r.records[ref].start, int64(n.OverallTimeout)), -now)
		x.overall = r.after(time.Duration(left), func(now int64) { r.overallTimeOut(ref, x, n.OverallTimeout, now) })
	}
}
