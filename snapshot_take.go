package kahn

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/seed-c794f7ef/kahn/internal/jsonwrite"
	"github.com/seed-c794f7ef/kahn/machine"
)

// Snapshot returns the current state of the run. If the run is running, resuming from the Snapshot is like resuming after a crash: the attempts that
// are running now are repeated.
func (r *Run) Snapshot() *Snapshot {
	r.plan.Hash() // calls user code (MarshalJSON), so it is called without the lock
	r.ID()
	r.lockHashed()
	defer r.st.Unlock()
	return r.takeSnapshot()
}

// takeSnapshot does what Snapshot does. The caller holds the run's lock, and has called Plan.Hash, Run.ID and lockHashed.
func (r *Run) takeSnapshot() *Snapshot {
	file := r.fileHeader()
	file.Inputs, file.Deltas = r.inputValues(), r.deltas()
	file.Nodes = append(file.Nodes, r.nodeStates()...)
	s := &Snapshot{file: file, codec: r.cfg.codec, log: r.log}
	if r.log == nil && r.cfg.from != nil {
		s.log = r.cfg.from.log
	}
	return s
}

// nodeStates returns the states of the nodes whose joins have decided. The caller holds the run's lock.
func (r *Run) nodeStates() (nodes []nodeState) {
	for _, ref := range r.plan.declared {
		if w := r.st.Word(ref); w.Is(machine.WordDecided) && !r.isUntold(ref) {
			n := r.nodeState(ref)
			if x := r.extras[ref]; n.Inside != nil && x.comp != nil {
				n.Inside.Collected = x.comp.before.collected(n.Inside.Iteration)
			}
			if n.Inside != nil && n.Inside.Due.IsZero() {
				n.Inside.Nodes = r.extras[ref].insideNodes()
				r.waiters().lend(place{r, ref})
			}
			if n.Former != nil {
				n.Former.Inside.Nodes = r.extras[ref].formerNodes()
			}
			if n.Inside != nil && n.Inside.Undoes {
				n.Inside.Past = r.extras[ref].pastStates(n.Inside.Iteration)
			}
			nodes = append(nodes, n)
		}
	}
	return nodes
}

// earlySignalStates returns the signals for gates that the run has not reached.
func (r *Run) earlySignalStates() (list []signalState) {
	if len(r.signals) == 0 {
		return nil
	}
	for _, ref := range r.plan.declared {
		if a, ok := r.signals[ref]; ok {
			d := a.decision
			list = append(list, signalState{Node: r.plan.names[ref], Value: stored{d.Value, a.text}, Actor: d.Actor, Comment: d.Comment, ID: d.ID})
		}
	}
	return list
}

// stopState returns the stop of the run, or nil if the run was not stopped.
func (r *Run) stopState() *stopState {
	if r.st.StoppedFor() == CauseNone {
		return nil
	}
	stop := &stopState{Kind: r.st.StoppedFor(), Drain: r.stopManner == machine.StopDraining, Err: storeError(r.stopError(r.st.StoppedFor()))}
	if r.stopOrigin != noRef {
		stop.Origin = r.plan.names[r.stopOrigin]
	}
	for _, kind := range slices.Sorted(maps.Keys(r.stopCauses)) {
		if kind != stop.Kind {
			stop.Later = append(stop.Later, laterStop{kind, storeError(r.stopError(kind))})
		}
	}
	return stop
}

// inputValues returns the inputs of the run.
func (r *Run) inputValues() map[string]stored {
	if len(r.cfg.inputs) == 0 {
		return nil
	}
	values := make(map[string]stored, len(r.cfg.inputs))
	for name, v := range r.cfg.inputs {
		values[name] = stored{value: v}
	}
	return values
}

// fileHeader returns a snapshot without the inputs, the deltas and the nodes. The caller holds the run's lock.
func (r *Run) fileHeader() snapshotFile {
	tier, _ := r.st.OpenTier()
	file := snapshotFile{
		Version: snapshotVersion, Graph: r.plan.name, Hash: r.plan.Hash(), Run: r.ID(), Epoch: r.epoch, Status: RunRunning,
		Taken: r.wallClock(), Cancelled: r.cancelled, Stop: r.stopState(), Asked: r.asked, Redriven: r.redrivenBy, Signals: r.earlySignalStates(), Mode: r.cfg.mode, InWave: r.cfg.mode == Waves && tier >= 0, Failed: r.failedGroups.all(), Estimates: r.estimates(), Usage: r.usages(), Labels: r.remarked().labels, Nodes: []nodeState{},
	}
	switch {
	case r.concluded():
		file.Status = r.verdict.status
	case r.stage == stageResting:
		file.Status = RunSuspended
	}
	if r.durable != nil {
		file.Kept, file.Forked = r.durable.kept, r.durable.forked
	}
	if r.waits != nil {
		file.Answered = r.waits.answered.list
	}
	if r.bound != 0 {
		file.Deadline = r.timeAt(r.bound)
	}
	if x := r.undo; x != nil {
		file.Version, file.Undone = undoVersion, maps.Clone(x.times)
		if file.Undoing = (&undoingState{Status: x.status}); x.abort != nil {
			file.Undoing.Abort = storeError(x.abort.err)
		}
	}
	switch {
	case r.log != nil:
		file.LastEvent = r.log.lastID()
	case r.cfg.from != nil: // this Run has no log, so the last event is still the last event of the snapshot
		file.LastEvent = r.cfg.from.file.LastEvent
	}
	if f := r.cfg.fired; f != nil {
		file.Fired = &firedState{Trigger: f.trigger, Prune: r.cfg.prune, Payload: &stored{f.payload, f.text}}
	}
	return file
}

// Snapshot returns the final state of the run. A suspended run can be resumed from it, and an ended run can be redriven from it. For the zero
// Result it returns nil.
func (r *Result) Snapshot() *Snapshot {
	if !r.hasRun() {
		return nil
	}
	return r.run.Snapshot()
}

// nodeState returns the state of a node whose join has decided. For a composite, the nodes inside are missing. For a loop, the collected outputs are
// missing. The caller holds the run's lock.
func (r *Run) nodeState(ref machine.Ref) nodeState {
	rec, of := &r.records[ref], r.st.Saved(ref)
	n := nodeState{ID: r.plan.names[ref], Facts: of.Facts, Attempts: rec.attempts, Fallback: rec.fallback}
	if of.Origin != noRef {
		n.Origin = r.plan.names[of.Origin]
	}
	for _, id := range of.Route {
		n.Labels = append(n.Labels, r.plan.labelsOf(ref)[id])
	}
	if r.outer == nil {
		n.Hash = r.plan.nodeHash(ref)
	}
	n.Epoch = r.st.Epoch(ref)
	if r.recorder != nil {
		n.Latest = r.recorder.latest[ref].id
	}
	if rec.attempts > 0 || n.Status.Terminal() {
		n.Start, n.End = r.timeAt(rec.start), r.timeAt(rec.end)
	}
	switch {
	case n.Status == Completed:
		n.Value = storedValue(rec.value)
	case rec.value != nil:
		n.Err = storeError(rec.errorOf())
	}
	if x := r.extras[ref]; x != nil {
		n.nodeFacts = x.nodeFacts
		if n.Status.Terminal() {
			n.Cut, n.Crashes, n.Sleeps = 0, 0, false
		} else {
			n.Entries, n.Refused = x.reentries, storeError(x.refused)
			if n.Status == Retrying {
				n.Due = r.timeAt(x.due)
			}
		}
		r.extraState(&n, x)
		r.compositeState(&n, ref, x)
	}
	if r.undo != nil {
		if u := r.undo.nodes[ref]; u != nil && (r.ownUndo(ref) != nil || u.regained || u.stored != CompensationNone || u.err != nil) {
			n.Undo = u.state()
		}
	}
	return n
}

func (r *Run) extraState(n *nodeState, x *extra) {
	if x.asked != nil {
		n.Asked = append([]string{}, r.names(x.asked)...) // the list may be empty, but is not nil
	}
	n.LastErr, n.GuardErr, n.StopErr = storeError(x.lastErr), storeError(x.guardErr), storeError(x.stop)
	for _, e := range x.errs {
		n.Errs = append(n.Errs, storeError(e.err))
		kept := retriedState{Number: e.number, Delay: e.delay}
		if e.number != 0 {
			kept.Start, kept.End = r.timeAt(e.start), r.timeAt(e.end)
		}
		n.Retried = append(n.Retried, kept)
	}
	if x.began != 0 {
		n.Began = r.timeAt(x.began)
	}
	if x.merged != nil {
		n.Merged = make(map[string]stored, len(x.merged))
		for name, v := range x.merged {
			n.Merged[name] = stored{value: v}
		}
	}
	text := x.texts.known()
	if x.wait != nil {
		n.Wait = &waitState{Token: x.wait.Token, Info: stored{x.wait.Info, text.info}, Since: x.wait.Since, Deadline: x.wait.Deadline, Run: x.wait.Run, Choices: x.wait.Choices}
	}
	n.Awaited = slices.Clone(x.awaited)
	if x.saved != nil {
		n.Saved = &stored{x.saved, text.saved}
	}
	if d := x.decision; d != nil {
		n.Signal, n.Signalled, n.Actor, n.Comment, n.SignalID = &stored{d.Value, text.signal}, true, d.Actor, d.Comment, d.ID
	}
}

// compositeState adds the state of a composite to the state of its node, without the nodes inside.
func (r *Run) compositeState(n *nodeState, ref machine.Ref, x *extra) {
	if x.items != nil && (!n.Status.Terminal() || x.items.list.IsValid()) {
		n.List = &stored{x.items.value(), x.items.text}
	}
	w := r.st.Word(ref)
	switch {
	case x.kept != nil:
		in := *x.kept.Inside
		in.Nodes = nil
		n.Inside, n.Dormant, n.TimedOut, n.Timeout = &in, x.kept.Dormant, x.kept.TimedOut, x.kept.Timeout
		return
	case x.former != nil && n.Status.Terminal():
		f := x.formerState()
		n.Inside, n.Saved = f.Inside, f.Saved
		return
	case x.former != nil, x.comp != nil && x.comp.isExpansion() && !n.Status.Terminal() && !w.Is(machine.WordExpanded): // there is only a nested run of an earlier attempt
		n.Former = x.formerState()
		return
	case x.comp == nil:
		return
	}
	if ended := x.comp.ended; ended != nil { // the node was stopped before its next attempt
		n.Saved = ended.stored()
	}
	switch p := x.comp.pause; {
	case p != nil && n.Status == Running:
		n.Inside = x.comp.stateBetween(p, r.timeAt(p.due))
	case x.comp.child != nil:
		n.Inside = x.comp.state()
	case p != nil && n.Status.Terminal():
		n.Inside = x.comp.stateBetween(p, r.timeAt(p.due))
		n.Inside.Due = time.Time{} // see insideState.isBefore
	}
	if n.Status != Running {
		return
	}
	n.Dormant, n.Draining = w.Is(machine.WordDormant), w.Is(machine.WordDraining)
	n.TimedOut, n.Timeout = x.timedOut, x.timeout
	if c := x.comp.child; n.Inside != nil && c != nil { // the composite runs, so its nested run will get a verdict again when the run is resumed
		n.Inside.Whole = c.undo != nil && c.undo.whole
	}
}

// The method `state` returns the state of the nested run, without the run's nodes and the collected outputs of a loop.
func (comp *composite) state() *insideState {
	c := comp.child
	in := &insideState{
		Iteration: c.iteration, Degraded: comp.before.degraded > 0, DegradedAt: comp.before.degraded, Began: c.timeAt(c.began), StoppedFor: c.stoppedBy, Stop: c.stopState(),
		Cancelled: c.cancelled, Signals: c.earlySignalStates(), Failed: c.failedGroups.all(),
	}
	// Earlier iterations may have nodes to undo even if the current iteration has none: a node may have been expanded in an earlier iteration.
	if in.Undoes = c.st.AllowsUndo() || len(comp.past) > 0; c.undo != nil {
		in.Undoing = c.undo.status
	}
	if c.recorder != nil {
		in.First = c.recorder.first
	}
	if c.iteration > 1 {
		in.Previous = comp.previous(c.iteration, c.previous)
	}
	if c.items != nil {
		in.Items, in.AbortRun = len(c.plan.names), c.items.abort // a map that has ended may have no list
	}
	if c.concluded() {
		in.Ended = c.timeAt(c.ended)
		in.Whole = in.Undoes && c.verdict.cause != CauseCompensationFailed && (c.undo == nil || !c.undo.open)
	}
	if c.rootInputs != nil {
		if in.plan = c.plan; c.plan.tested != nil {
			in.plan = c.plan.tested
		}
		in.Expanded = in.plan.Hash()
	}
	return in
}

// stateBetween does what the method `state` does, for a loop that pauses before its next iteration.
func (comp *composite) stateBetween(p *pause, due time.Time) *insideState {
	undoes := len(comp.past) > 0 || comp.child != nil && comp.child.st.AllowsUndo()
	return &insideState{Undoes: undoes, Iteration: p.next, Previous: comp.previous(p.next, comp.before.last), Degraded: comp.before.degraded > 0, DegradedAt: comp.before.degraded, Began: due, Due: due, Failed: p.failed}
}

// pastStates returns the iterations that precede the given iteration of a loop, with their nodes. They are needed if nodes of the loop may have to
// be undone.
func (x *extra) pastStates(before int) (list []insideState) {
	switch {
	case x.kept != nil:
		return x.kept.Inside.Past
	case x.comp == nil:
		return nil // an expanded node has no earlier iterations
	}
	runs := x.comp.past
	if c := x.comp.child; c != nil && c.iteration < before {
		runs = append(slices.Clone(runs), c) // if the loop pauses, the child is the iteration that has ended
	}
	for _, c := range runs {
		list = append(list, insideState{Iteration: c.iteration, Nodes: c.nodeStates()})
	}
	return list
}

// The method `previous` returns the output of the iteration before the given one, with the encoded value if it is known.
func (comp *composite) previous(iteration int, value any) *stored {
	v := storedValue(value)
	if comp.text != nil && comp.text.of == iteration {
		v.raw = comp.text.raw
	}
	return v
}

// The method `collected` returns the collected outputs of the iterations before the given one.
func (it iterations) collected(iteration int) (list []stored) {
	// If a loop was stopped during a pause, it.all also contains the output of the last iteration.
	for _, v := range it.all[:min(len(it.all), max(iteration-1, 0))] {
		list = append(list, stored{value: v})
	}
	return list
}

// insideNodes returns the states of the nodes inside a composite.
func (x *extra) insideNodes() []nodeState {
	switch {
	case x.kept != nil:
		return x.keptNodes()
	case x.former != nil:
		return x.formerNodes()
	case x.comp.child == nil:
		return nil
	}
	return x.comp.child.nodeStates()
}

// The method `value` returns the list that the map's parameter has delivered.
func (x *items) value() any {
	if !x.list.IsValid() {
		return nil
	}
	return x.list.Interface()
}

// nodeWriter writes nodes for snapshots and for stores.
type nodeWriter struct{ jsonwrite.Writer }

// The method `node` writes a node of a snapshot, with all values and errors as text. The members are in the order of nodeState, as package json would
// write them. For the rare members, the method `node` calls package json.
func (w *nodeWriter) node(n *nodeState) {
	w.Open()
	w.Text("id", n.ID)
	w.Text("status", n.Status.String())
	w.rest(n)
	w.Close()
}

// The method `record` writes the store's record of a node, without its key and without the parts that store.Columns contains.
func (w *nodeWriter) record(n *nodeState, key string) {
	rest := *n
	rest.Hash, rest.Cause, rest.Start, rest.End, rest.Value = "", CauseNone, time.Time{}, time.Time{}, nil
	w.Open()
	if n.ID != key {
		w.Text("id", n.ID)
	}
	w.rest(&rest)
	w.Close()
}

// The method `rest` writes the members after id and status.
func (w *nodeWriter) rest(n *nodeState) {
	w.Flag("checking", n.Checking)
	w.Flag("reached", n.Reached)
	w.Flag("substituted", n.Substituted)
	w.Flag("propagated", n.Propagated)
	w.Flag("tolerated", n.Tolerated)
	w.Flag("bypass", n.Bypass)
	if n.Cause != CauseNone {
		w.Text("cause", n.Cause.String())
	}
	if n.Skip != SkipNone {
		w.Text("skip", n.Skip.String())
	}
	w.NumberIf("by", int64(n.By))
	w.NumberIf("settled", int64(n.Settled))
	w.NumberIf("decided", int64(n.Decided))
	w.NumberIf("started", int64(n.Started))
	w.Flag("dormant", n.Dormant)
	w.Flag("draining", n.Draining)
	w.TextIf("message", n.Message)
	w.TextIf("key", n.Key)
	w.TextIf("answer", n.Answer)
	w.Flag("memoized", n.Memoized)
	writeIf(w, "hit", n.Hit)
	w.NumberIf("harmless", int64(n.Harmless))
	w.Flag("inherited", n.Inherited)
	w.Flag("abandoned", n.Abandoned)
	w.Flag("sleeps", n.Sleeps)
	if n.Tokens != [2]int{} {
		w.JSON("tokens", n.Tokens)
	}
	writeIf(w, "usage", n.Usage)
	w.NumberIf("cut", int64(n.Cut))
	w.NumberIf("crashes", int64(n.Crashes))
	w.IDIf("event", n.Event)
	w.TextIf("hash", n.Hash)
	w.TextIf("origin", n.Origin)
	if len(n.Labels) > 0 {
		w.List("labels", n.Labels)
	}
	if n.Asked != nil {
		w.List("asked", n.Asked)
	}
	w.NumberIf("epoch", int64(n.Epoch))
	w.NumberIf("attempts", int64(n.Attempts))
	w.TimeIf("due", n.Due)
	writeIf(w, "refused", n.Refused)
	w.NumberIf("entries", int64(n.Entries))
	w.TimeIf("start", n.Start)
	w.TimeIf("end", n.End)
	writeIf(w, "value", n.Value)
	w.Flag("fallback", n.Fallback)
	w.IDIf("latest", n.Latest)
	w.NumberIf("deltas", int64(n.Deltas))
	w.NumberIf("collected", int64(n.Collected))
	writeIf(w, "taken", n.Taken)
	writeIf(w, "error", n.Err)
	writeIf(w, "last_error", n.LastErr)
	writeIf(w, "guard_error", n.GuardErr)
	writeIf(w, "stop_error", n.StopErr)
	if len(n.Errs) > 0 {
		w.JSON("attempt_errors", n.Errs)
	}
	if len(n.Retried) > 0 {
		w.JSON("retried", n.Retried)
	}
	w.TimeIf("attempt_start", n.Began)
	if len(n.Merged) > 0 {
		w.JSON("merged", n.Merged)
	}
	writeIf(w, "wait", n.Wait)
	if len(n.Awaited) > 0 {
		w.JSON("awaited", n.Awaited)
	}
	writeIf(w, "saved", n.Saved)
	writeIf(w, "signal", n.Signal)
	w.Flag("signalled", n.Signalled)
	w.TextIf("actor", n.Actor)
	w.TextIf("comment", n.Comment)
	w.TextIf("signal_id", n.SignalID)
	w.NumberIf("timed_out", int64(n.TimedOut))
	w.NumberIf("timeout", int64(n.Timeout))
	writeIf(w, "list", n.List)
	writeIf(w, "inside", n.Inside)
	writeIf(w, "former", n.Former)
	w.Flag("listed", n.Listed)
	writeIf(w, "undo", n.Undo)
}

// writeIf writes a member with package json, unless the member's value is nil.
func writeIf[T any](w *nodeWriter, key string, v *T) {
	if v != nil {
		w.JSON(key, v)
	}
}

// The method `superseded` reports whether the node ended because no other node needed its result any longer.
func (n *nodeState) superseded() bool {
	return n.Skip == SkipSuperseded || n.Status == Cancelled && n.Cause == CauseSuperseded
}

// The type `handled` describes a handler: a completed node that ran because of failures.
type handled struct {
	node  string
	first string // the first failed node
	more  int    // the number of further failed nodes
	kept  bool   // whether the handler would keep its result
}

type handledNodes []handled

// The method `refusal` returns the error with which a redrive or a fork is refused because of the listed handlers. It returns nil if the list is
// empty.
func (list handledNodes) refusal() error {
	if len(list) == 0 {
		return nil
	}
	const most = 10
	var b strings.Builder
	for i, h := range list {
		if i == most {
			fmt.Fprintf(&b, "; and %d more", len(list)-most)
			break
		}
		if i > 0 {
			b.WriteString("; ")
		}
		b.WriteString(quoteID(h.node) + " has run because of " + quoteID(h.first))
		if h.more > 0 {
			fmt.Fprintf(&b, " and %d more", h.more)
		}
		if h.kept {
			b.WriteString(", and would be kept")
		}
	}
	return fmt.Errorf("%w: %s: nothing undoes the effects of a handler: begin another run, or give DespiteHandlers to run the failed nodes again anyway", ErrHandlers, b.String())
}

// The method `handled` appends, at every depth, the handlers because of which a redrive or a fork is refused: see DespiteHandlers. If `before` is
// set, a composite around these nodes has an ancestor whose result the fork keeps.
func (a *again) handled(list handledNodes, nodes []nodeState, prefix string, redrive, before bool) handledNodes {
	p, marks := a.plan, a.marks()
	answers, at := p.answers(nodes)
	var keptBefore []bool // by Ref
	if !redrive && (answers != nil || len(a.inside) > 0) {
		keptBefore = p.keptBefore(nodes, marks)
	}
	for _, r := range p.declared {
		if answers == nil || answers[r] == nil {
			continue
		}
		repeats := slices.ContainsFunc(answers[r], func(b machine.Ref) bool { return marks[b] })
		if redrive && marks[r] || repeats && (redrive || before || keptBefore[r]) {
			list = append(list, handled{prefix + p.names[r], prefix + p.names[answers[r][0]], len(answers[r]) - 1, !marks[r]})
		}
	}
	for _, r := range p.declared {
		switch n, in := at[r], a.inside[r]; {
		case n == nil || !marks[r]:
		case a.runs[r] || in.back > 0:
			if redrive {
				list = p.handledInside(list, r, n, prefix)
			}
		case in.later != nil && n.Inside.plan != nil:
			within := n.prefixInside(prefix)
			if inner, err := in.later.level(n.Inside.plan, n.Inside, within); err == nil {
				list = inner.handled(list, n.Inside.Nodes, within, redrive, before || !redrive && keptBefore[r])
			}
		case in.later != nil && n.Status == Completed:
			// Only a completed node is searched here. For any other node, the handlers are found when the graph is known.
			list = handledUnknown(list, n, prefix)
		case in.plan != nil:
			list = in.handled(list, n.Inside.Nodes, n.prefixInside(prefix), redrive, before || !redrive && keptBefore[r])
		}
	}
	return list
}

// keptBefore reports, by Ref, which nodes have a completed ancestor that does not run again.
func (p *Plan) keptBefore(nodes []nodeState, again []bool) []bool {
	kept, before := make([]bool, len(p.names)), make([]bool, len(p.names))
	for i := range nodes {
		if r, ok := p.Ref(nodes[i].ID); ok {
			kept[r] = nodes[i].Status == Completed && !again[r]
		}
	}
	for r := range before { // predecessors precede their followers
		for _, i := range p.net.In(machine.Ref(r)) {
			from := p.net.Source(i)
			before[r] = before[r] || kept[from] || before[from]
		}
	}
	return before
}

// handledInside appends the handlers inside a composite that runs again as a whole.
func (p *Plan) handledInside(list handledNodes, r machine.Ref, n *nodeState, prefix string) handledNodes {
	if n.Inside == nil {
		return list
	}
	inner, within, in := p.sub(r), n.prefixInside(prefix), n.Inside
	switch {
	case in.Expanded != "" && in.plan == nil:
		return handledUnknown(list, n, prefix)
	case in.Expanded != "":
		inner = in.plan
	case in.Items > 0:
		for i := range in.Nodes { // there are no edges between items
			list = p.items[r].handledInside(list, 0, &in.Nodes[i], within)
		}
		return list
	case inner == nil:
		return list // the node was mocked
	}
	answers, at := inner.answers(in.Nodes)
	for _, r := range inner.declared {
		if answers != nil && answers[r] != nil {
			list = append(list, handled{node: within + inner.names[r], first: within + inner.names[answers[r][0]], more: len(answers[r]) - 1})
		}
		if at[r] != nil {
			list = inner.handledInside(list, r, at[r], within)
		}
	}
	return list
}

// handledUnknown appends the handlers in an expanded node whose graph is not known. If an expanded node completed although nodes inside it failed,
// an unknown node inside it has handled the failures. handledUnknown then appends the expanded node.
func handledUnknown(list handledNodes, n *nodeState, prefix string) handledNodes {
	within := n.prefixInside(prefix)
	var failed handled
	for i := range n.Inside.Nodes {
		// The failed items of a map do not count, since a map only tolerates their failures and does not handle them.
		if in := &n.Inside.Nodes[i]; in.isBad() && n.Inside.Items == 0 {
			if failed.first == "" {
				failed = handled{node: prefix + n.ID, first: within + in.ID, more: -1}
			}
			failed.more++
		} else if in.Inside != nil {
			list = handledUnknown(list, in, within)
		}
	}
	if n.Status == Completed && failed.first != "" {
		list = append(list, failed)
	}
	return list
}

// The method `answers` returns, by Ref, the failures that each completed node has handled. The result is nil if no node failed or was stopped. The
// second result contains the nodes by Ref.
func (p *Plan) answers(nodes []nodeState) (answers [][]machine.Ref, at []*nodeState) {
	at = p.found(nodes)
	if !slices.ContainsFunc(at, func(n *nodeState) bool { return n != nil && n.isStopped() }) {
		return nil, at
	}
	answers = make([][]machine.Ref, len(p.names))
	branch := make([][]machine.Ref, len(p.names)) // by Ref: the failures that made boundaries take the branches to the node; nil if it also ran for another reason
	for i := range at {                           // predecessors precede their followers
		r := machine.Ref(i)
		if n := at[r]; n == nil || n.Status != Completed || r == p.end || p.net.Is(r, machine.FlagCleanup) || n.Undo != nil {
			continue // if the node was undone, its handling of failures was also undone
		}
		caught, taken := p.answersOf(r, at, branch)
		branch[r], answers[r] = taken, union(caught, taken)
	}
	return answers, at
}

// answersOf returns the failures that a completed node has caught. If the node ran only on branches that boundaries took because of failures,
// the result `taken` lists these failures.
func (p *Plan) answersOf(r machine.Ref, at []*nodeState, branch [][]machine.Ref) (caught, taken []machine.Ref) {
	join, _, _ := p.net.Rules(r)
	otherwise := false // whether the node also ran for another reason
	for _, i := range p.net.In(r) {
		e := p.edgeAt(i)
		from := at[e.From]
		if from == nil || from.Status == Skipped || e.DataOnly || p.net.IsSide(i) {
			continue
		}
		switch bad := from.isBad(); {
		case e.On == OnFailure:
			if (from.Status == Failed || from.Status == Aborted) && (len(e.Causes) == 0 || slices.Contains(e.Causes, from.Cause)) {
				caught = append(caught, e.From)
			}
		case bad && e.On == OnSuccess:
			if join == OneFailed || join == AllFailed {
				caught = append(caught, e.From)
			}
		case e.Label != "" && !slices.Contains(from.Labels, e.Label): // the branch was not taken
		case branch[e.From] != nil:
			taken = union(taken, branch[e.From])
		case e.Label != "" && !bad:
			if asked := p.askedBy(e.From, at); asked != nil {
				taken = union(taken, asked)
			} else {
				otherwise = true
			}
		default:
			otherwise = true
		}
	}
	if otherwise {
		taken = nil
	}
	return caught, taken
}

// The function `union` returns the Refs of both lists, without duplicates. If a list is empty, or both are the same list, `union` does not copy: it
// returns one of the lists, so that nodes of one branch share a list.
func union(a, b []machine.Ref) []machine.Ref {
	switch {
	case len(a) == 0:
		return b
	case len(b) == 0 || &a[0] == &b[0]:
		return a
	}
	all := slices.Concat(a, b)
	slices.Sort(all)
	return slices.Compact(all)
}

// askedBy returns the failed nodes whose status or error a boundary has read. If the snapshot has no list of the nodes read, askedBy returns all
// failed nodes that the boundary directly follows.
func (p *Plan) askedBy(r machine.Ref, at []*nodeState) (asked []machine.Ref) {
	if join, _, _ := p.net.Rules(r); join != Boundary {
		return nil
	}
	if of := at[r].Asked; of != nil {
		for b := range p.refsOf(of) {
			if at[b] != nil && at[b].isBad() {
				asked = append(asked, b)
			}
		}
		return asked
	}
	for _, i := range p.net.In(r) {
		if e := p.edgeAt(i); !e.DataOnly && at[e.From] != nil && at[e.From].isBad() {
			asked = append(asked, e.From)
		}
	}
	return asked
}

// refsOf yields the Refs of the nodes with the given names. It omits names that no node has.
func (p *Plan) refsOf(names []string) iter.Seq[machine.Ref] {
	return func(yield func(machine.Ref) bool) {
		for _, name := range names {
			if r, ok := p.Ref(name); ok && !yield(r) {
				return
			}
		}
	}
}

// isStopped reports whether the node failed, was aborted or was cancelled.
func (n *nodeState) isStopped() bool {
	return n.Status == Failed || n.Status == Aborted || n.Status == Cancelled
}

// isBad reports whether the node counts against its run: see machine.Locked.Bad.
func (n *nodeState) isBad() bool { return n.isStopped() && !n.Tolerated && !n.superseded() }
