package kahn

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/machine"
)

// ExpandedGraphs lets a Coordinator continue the attempts inside expanded nodes (see [Expand]) when it resumes from the JSON form of a snapshot of
// [Coordinator.Snapshot]. The JSON form does not contain the graphs of these nodes. So NewCoordinator calls the function `graph` for each expanded
// node that has not ended or that contains nodes to undo. The arguments are the node's path and the state that the step gave to Expand; `graph` must
// return the graph that the step returned. Without this option the run calls the step again to get the graph, and repeats the attempts inside.
//
// NewCoordinator returns the errors of `graph`. Its error matches [ErrGraphChanged] if a graph has another [Plan.Hash] than the graph that the step
// returned. The option's error matches [ErrBadOption] if `graph` is nil.
func ExpandedGraphs(graph func(path string, state any) (*Graph, error)) Option {
	return optionFunc(func(c *config) error {
		if graph == nil {
			return fmt.Errorf("%w: ExpandedGraphs(nil)", ErrBadOption)
		}
		c.expanded = graph
		return nil
	})
}

// inFlight returns the state of the attempts in flight that the run continues. It returns nil if there is no snapshot, if the snapshot contains no
// attempts in flight, or if the run must repeat these attempts.
func (c *config) inFlight(p *Plan) *flightState {
	if c.from == nil || c.manual == nil || c.redrive || c.fork || c.adopts != nil || !p.isCompiled() || c.from.file.Hash != p.Hash() {
		return nil
	}
	return c.from.file.InFlight
}

// takeClock sets the clock to the time of the snapshot, if the run continues the attempts in flight of this snapshot.
func (h *manual) takeClock(p *Plan, c *config) {
	if f := c.inFlight(p); f != nil {
		h.start, h.count, h.keepsFlight = f.Start, f.Count, true
		h.clock.Store(max(f.Clock, 0))
	}
}

// findGraphs finds the plans of expanded nodes, at every depth. It calls user code: the function of ExpandedGraphs.
func (p *Plan) findGraphs(nodes []nodeState, prefix string, graph func(path string, state any) (*Graph, error)) error {
	for i := range nodes {
		n := &nodes[i]
		ref, ok := p.Ref(n.ID)
		if err := p.findFormer(n, prefix, graph); err != nil {
			return err
		}
		if !ok || n.Inside == nil || n.Status.Terminal() && !n.Inside.Undoes {
			continue // if the plan does not have the node, holdNodes returns an error later
		}
		inner := p.sub(ref)
		switch {
		case n.expanded():
			if err := p.findGraph(n, prefix, graph); err != nil {
				return err
			}
			inner, n.Inside.goesOn = n.Inside.plan, n.Inside.plan != nil && n.Status == Running
		case p.node(ref).Map != nil:
			inner = p.items[ref].repeated(n.ID, min(max(n.Inside.Items, 0), maxNodes))
		}
		if inner == nil {
			continue
		}
		if err := inner.findGraphs(n.Inside.Nodes, n.prefixInside(prefix), graph); err != nil {
			return err
		}
		for j := range n.Inside.Past {
			past := nodeState{ID: n.ID, Inside: &n.Inside.Past[j]}
			if err := inner.findGraphs(past.Inside.Nodes, past.prefixInside(prefix), graph); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *Plan) findGraph(n *nodeState, prefix string, graph func(path string, state any) (*Graph, error)) error {
	if n.Inside.plan != nil || graph == nil {
		return nil // the snapshot was taken in this process and contains the plan, or the run calls the step again
	}
	var state any
	if n.Saved != nil {
		state = n.Saved.value
	}
	err := contain(func() error {
		g, err := graph(prefix+n.ID, state)
		if err == nil && g == nil {
			err = ErrNoGraph
		}
		if err == nil {
			n.Inside.plan, err = p.compileInside(g)
		}
		return err
	})
	switch {
	case err != nil:
		return fmt.Errorf("the graph of node %s: %w", quoteID(prefix+n.ID), err)
	case n.Inside.plan.Hash() != n.Inside.Expanded:
		return fmt.Errorf("%w: ExpandedGraphs has returned a graph with the hash %s for node %s, not %s as before", ErrGraphChanged, n.Inside.plan.Hash(),
			quoteID(prefix+n.ID), quoteID(n.Inside.Expanded))
	}
	return nil
}

// landing restores the attempts in flight of a snapshot.
type landing struct {
	*flightState
	runs  map[string]*runFlight // by flightKey
	nodes map[flightRef]*nodeFlight
}

// The method `lands` prepares the restoration of the attempts in flight.
func (h *manual) lands(f *flightState) *landing {
	x := &landing{flightState: f, runs: map[string]*runFlight{}, nodes: map[flightRef]*nodeFlight{}}
	for i := range f.Runs {
		of := &f.Runs[i]
		x.runs[of.Run] = of
		if len(of.Undos) > 0 {
			if h.unlanded == nil {
				h.unlanded = map[string]*runFlight{}
			}
			h.unlanded[of.Run] = of
		}
		for j := range of.Nodes {
			x.nodes[flightRef{of.Run, of.Nodes[j].ID}] = &of.Nodes[j]
		}
	}
	h.landing = x
	return x
}

// The method `landing` returns the run's landing while the run is being restored with its attempts in flight. At other times it returns nil.
func (r *Run) landing() *landing {
	if r.manual == nil {
		return nil
	}
	return r.manual.landing
}

// The method `of` returns the state of a node, or nil if the snapshot has none.
func (x *landing) of(r *Run, id string) *nodeFlight { return x.nodes[flightRef{r.flightKey(), id}] }

// walk calls f for h, and then for all nested runs, including earlier iterations. It calls f for an outer run before the runs inside it.
func (h *held) walk(f func(h *held)) {
	f(h)
	for _, in := range h.inside {
		for _, past := range in.past {
			past.walk(f)
		}
		if in.begun() {
			in.walk(f)
		}
	}
}

// resumeInFlight does what the method `resume` does, for a run that continues its attempts in flight: it rebuilds the state of the run and of its
// nested runs from the words of the nodes. It restores a stop, but does not stop nodes again: the words already say which nodes are being stopped.
func (h *held) resumeInFlight(stop *stopState, inWave bool) {
	r, s := h.run, &h.run.st
	if h.within != nil && !h.continues() {
		h.resume(stop, inWave)
		return
	}
	if stop != nil {
		r.restoreStop(stop)
	}
	x := r.manual.landing
	of := x.runs[r.flightKey()]
	if of != nil {
		s.KeepMoment(of.Moment)
	}
	words := make([]machine.Restored, len(h.nodes))
	for i, ref := range h.refs {
		words[i] = r.plan.restored(ref, &h.nodes[i])
		if f := x.of(r, h.nodes[i].ID); f != nil && words[i].Status == Running {
			words[i].InFlight, words[i].Draining, words[i].Stopping = true, f.Draining, f.Stopping
		}
	}
	s.Rebuild(h.refs, words, inWave)
	for _, in := range h.inside {
		if in.resumePast(); !in.begun() {
			continue
		}
		if in.continues() {
			r.timers++ // counts the nested run until the nested run has ended and its workers have returned
			r.tree.touch(in.run)
		}
		in.resumeInFlight(in.within.Inside.Stop, true)
	}
}

// keepsSome reports whether there is an expanded node that has not ended, and has an unknown graph. The run repeats the attempts inside this node.
func (h *held) keepsSome() bool {
	for _, n := range h.kept {
		if !n.Status.Terminal() {
			return true
		}
	}
	return slices.ContainsFunc(h.inside, func(in *held) bool { return in.begun() && in.keepsSome() })
}

// resumeInFlight rebuilds the state of a restored run that continues its attempts in flight.
func (r *Run) resumeInFlight(x *restoration, observed []uint64) {
	if x.recovers {
		r.event(entry{kind: evRunRecovered, at: r.now(), arg: event.Recovery{From: x.file.LastEvent}})
	}
	inWave := x.file.InWave || x.file.Mode == Waves && len(x.file.Nodes) > 0
	x.held.resumeInFlight(x.file.Stop, inWave)
	r.st.RestoredFrom(observed)
}

// land restores the attempts in flight and the alarms. A run that does not continue its attempts in flight calls [held.continueWaits] instead.
func (r *Run) land(from *restoration) {
	h := r.manual
	x, now := h.landing, r.now()
	r.began = 0
	r.requests = max(r.requests, x.Requests)
	if x.Advanced != nil {
		r.st.Advance(min(*x.Advanced, now)) // not to `now`: a token that has fallen due since then is handed out at the next Advance, as without the cut
	} else {
		r.st.Advance(now)
	}
	for _, token := range x.Lapsed {
		h.lapsedToken(token)
	}
	runs := map[string]*Run{}
	from.held.walk(func(of *held) {
		runs[of.run.flightKey()] = of.run
		of.lapseKept()
		of.run.st.DropChanges()
		if of.run.recorder != nil {
			of.run.recorder.restored = false
		}
		if f := x.runs[of.run.flightKey()]; f != nil {
			of.land(f, now)
		}
	})
	x.sortFailures(r, from.held)
	if !x.First.IsZero() {
		r.remark().first = x.First
	}
	if len(x.Abandoned) > 0 {
		r.remark().abandonedInside = append(slices.Clone(x.Abandoned), r.remark().abandonedInside...)
	}
	if r.waits != nil {
		r.waits.began = nil
		for _, at := range x.Began {
			if in := runs[at.Run]; in != nil {
				if ref, ok := in.plan.Ref(at.Node); ok {
					r.waits.began = append(r.waits.began, place{in, ref})
				}
			}
		}
	}
	x.landKeys(r)
	for i := range x.Alarms {
		if in := runs[x.Alarms[i].Run]; in != nil {
			in.rearm(&x.Alarms[i], now)
		}
	}
	from.held.walk(func(of *held) { of.run.interruptPauses() })
	for _, key := range x.Gated {
		if in := runs[key]; in != nil {
			r.tree.awaitGates(in)
		}
	}
	if at := x.Interrupted; at != nil && r.single != nil && runs[at.Run] != nil {
		if ref, ok := runs[at.Run].plan.Ref(at.Node); ok {
			r.single.interrupted = runs[at.Run].current(ref)
		}
	}
	h.inTurn()
	if !from.recovers { // otherwise a slot may be free for which the lines wait, since a repeated attempt does not hold it: all nodes contend again
		x.landLines(runs)
	}
	if from.file.Status == RunSuspended {
		r.stage = stageResting
	}
	from.held.each(func(of *held) { of.run.deliver(of.answers, of.refused, now) })
	h.landing = nil
}

// interruptPauses interrupts the pauses of the restored loops that must stop: the alarms of these pauses were disarmed before the snapshot, but no worker
// has concluded the loops yet. With one slot, such a worker waits until an attempt that was asked to stop has returned.
func (r *Run) interruptPauses() {
	for _, ref := range slices.Sorted(maps.Keys(r.extras)) {
		if x := r.extras[ref]; x.pauses() && x.backoff == nil && r.st.Word(ref).Status() == Running {
			r.interruptPause(ref, x)
		}
	}
}

// sortFailures restores the order in which compensations failed.
func (x *landing) sortFailures(root *Run, runs *held) {
	if root.undo == nil || len(x.NotUndone) < 2 {
		return
	}
	turn := make(map[string]int, len(x.NotUndone))
	for i, path := range x.NotUndone {
		turn[path] = i
	}
	runs.walk(func(of *held) {
		if u := of.run.undo; u != nil {
			slices.SortStableFunc(u.failed, func(a, b *undoFailure) int { return cmp.Compare(turn[a.path], turn[b.path]) })
		}
	})
}

// landKeys restores the token buckets of the keys. The tree of runs keeps the bucket of a key even if the nested runs that used the key have ended.
func (x *landing) landKeys(root *Run) {
	if root.tree == nil || !root.st.Rated() {
		return
	}
	setup := root.cfg.setup(root.plan)
	for i := range x.Keys {
		t := &x.Keys[i]
		root.tree.keys[t.Key] = root.st.KeepKey(root.tree.keys[t.Key], t, &setup.SlotSetup)
	}
}

// landLines restores the lines in which nodes wait for slots and tokens.
func (x *landing) landLines(runs map[string]*Run) {
	type lineOf struct {
		machine.Line
		run *Run
	}
	var list []lineOf
	for i := range x.Runs {
		in := runs[x.Runs[i].Run]
		if in == nil {
			continue
		}
		for _, l := range x.Runs[i].Lines {
			to := lineOf{machine.Line{Group: l.Group, Key: l.Key, Token: l.Token, Arrival: l.Arrival}, in}
			to.Nodes = slices.AppendSeq(to.Nodes, in.plan.refsOf(l.Nodes))
			list = append(list, to)
		}
	}
	slices.SortStableFunc(list, func(a, b lineOf) int { return cmp.Compare(a.Arrival, b.Arrival) })
	for i := range list {
		list[i].run.st.KeepLine(&list[i].Line)
	}
	for i := range x.Runs {
		if in := runs[x.Runs[i].Run]; in != nil {
			in.st.KeepOffers(x.Runs[i].offers())
		}
	}
}

// offers returns the offers as [machine.Locked.KeepOffers] needs them. The result is nil if they are not known.
func (f *runFlight) offers() []machine.Line {
	if f.Offers == nil {
		return nil
	}
	list := make([]machine.Line, len(f.Offers))
	for i, l := range f.Offers {
		list[i] = machine.Line{Group: l.Group, Key: l.Key}
	}
	return list
}

// inTurn sorts the restored lists `begun` and `stops`. Next and NextStop take their attempts from these lists.
func (h *manual) inTurn() {
	h.sort(h.begun)
	x := h.landing
	slices.SortStableFunc(h.stops, func(a, b *Step) int { return cmp.Compare(x.turn(a), x.turn(b)) })
}

// turn returns the position of a restored attempt among the attempts that NextStop has not returned.
func (x *landing) turn(s *Step) int {
	if f := x.of(s.run, s.run.plan.names[s.ref]); f != nil && f.Stop != nil {
		return f.Stop.Turn
	}
	return 0
}

// land restores the state of one run, and its attempts in flight. Attempts to undo nodes are restored later, see landUndos.
func (h *held) land(f *runFlight, now int64) {
	r := h.run
	r.stopsAll = f.StopsAll
	if rec := r.recorder; rec != nil {
		rec.first, rec.wave, rec.ended = f.First, f.Wave, f.Ended
	}
	r.st.KeepTokens(f.Tokens)
	var gates []machine.Ref
	for _, id := range f.Gates {
		if ref, ok := r.plan.Ref(id); ok {
			gates = append(gates, ref)
		}
	}
	r.st.OrderGates(gates)
	r.st.KeepHeld(slices.Collect(r.plan.refsOf(f.Held)))
	if r.rootInputs != nil {
		r.rootInputs = maps.Clone(r.rootInputs)
		for name, v := range f.Inputs {
			r.rootInputs[name] = v.value
		}
		for _, name := range r.plan.lacks {
			r.outer.lend(name, r.within.ref)
		}
	}
	for i := range f.Nodes {
		n := &f.Nodes[i]
		ref, ok := r.plan.Ref(n.ID)
		if !ok {
			continue
		}
		if n.Ready != 0 || n.Behind || n.TimedOut != timeoutNone || len(n.Labels) > 0 || len(n.Using) > 0 {
			x := r.extra(ref)
			x.ready, x.behind, x.labels, x.using = n.Ready, n.Behind, n.Labels, n.Using
			if n.TimedOut != timeoutNone {
				x.timedOut, x.timeout = n.TimedOut, n.Lasts
			}
		}
		if n.Undoes {
			r.manual.reversals = append(r.manual.reversals, place{r, ref})
		}
		if n.Number > 0 && r.st.Word(ref).Status() == Running && r.current(ref) == nil {
			r.landAttempt(ref, n, now)
		}
	}
	for i := range f.Undos {
		if ref, ok := r.plan.Ref(f.Undos[i].ID); ok {
			r.st.KeepUndoSlots(ref)
		}
	}
}

// reverseAgain concludes again the composites whose attempts had failed before the snapshot, so that they continue to undo the nodes inside them. The
// run may halt (see single.halts): then these composites would be concluded too late, and the attempts in flight to undo the nodes would be unknown.
func (h *manual) reverseAgain(root *Run) {
	list := h.reversals
	h.reversals = nil
	for _, at := range list {
		root.st.Lock()
		task, ok := at.run.st.TakeEnded(at.ref)
		if ok {
			at.run.enlist()
		}
		root.st.Unlock()
		if w := (&worker{run: at.run, now: at.run.now(), task: task}); ok {
			h.work(w, w.perform)
		}
	}
}

// landAttempt restores an attempt that the host performs.
func (r *Run) landAttempt(ref machine.Ref, n *nodeFlight, now int64) {
	step := &r.records[ref].first
	step.run, step.ref, step.attempt = r, ref, r.records[ref].attempts
	if r.st.Word(ref).Is(machine.WordSubstituted) {
		step.flags |= stepSubstituted
	}
	if r.plan.net.Is(ref, machine.FlagCleanup) {
		step.flags |= stepDetached
	}
	r.activate(step)
	w := &worker{run: r, now: now, step: step, way: wayHost, task: machine.Task{Token: r.st.Token(ref)}, alone: n.Alone && r.single != nil}
	if r.enlist(); w.alone {
		r.single.alone++
	}
	r.manual.land(step, inFlight{worker: w, number: n.Number}, n)
}

// land registers a restored attempt.
func (h *manual) land(s *Step, x inFlight, n *nodeFlight) {
	x.told = n.Stop != nil && n.Stop.Turn == 0
	h.calls[s] = x
	if n.Begun {
		h.begun = append(h.begun, s)
	}
	if n.Deadline != 0 {
		s.endBy(n.Deadline)
	}
	if n.Stop != nil {
		if n.Stop.Turn > 0 {
			h.stops = append(h.stops, s)
		}
		s.end(n.Stop.cause())
	}
}

func (x *flightStop) cause() *stopCause { return x.Err.stopCause(x.Deadline) }

// rearm arms an alarm from the snapshot again.
func (r *Run) rearm(a *alarmFlight, now int64) {
	left := time.Duration(a.Due - now)
	switch a.Kind {
	case alarmRun:
		r.rare().deadline = r.after(left, func(int64) { r.timeUp() })
		return
	case alarmToken:
		r.tokenComes(a.Due, now)
		return
	}
	ref, ok := r.plan.Ref(a.Node)
	if !ok {
		return
	}
	x, step := r.extra(ref), r.current(ref)
	switch {
	case a.Kind == alarmOverall:
		timeout := r.plan.node(ref).OverallTimeout
		x.overall = r.after(left, func(now int64) { r.overallTimeOut(ref, x, timeout, now) })
	case a.Kind == alarmBackoff:
		x.due = a.Due
		r.awaitBackoff(ref, x, now)
	case a.Kind == alarmPause && x.comp != nil && x.comp.pause != nil:
		x.comp.pause.due = a.Due
		r.awaitIteration(ref, now)
	case a.Kind == alarmWait:
		r.armGate(ref, x, left)
	case a.Kind == alarmCleanup:
		r.waitEndsIn(ref, x, left)
	case step == nil:
	case a.Kind == alarmTimeout:
		step.timeoutAlarm(a.For).arm(a.Due, now)
	case a.Kind == alarmGrace:
		r.graceEnds(step, x, left)
	}
}

// landUndos restores the run's attempts to undo nodes. It is called when the restored run begins again to undo its nodes.
func (r *Run) landUndos(now int64) {
	if r.manual == nil || len(r.manual.unlanded) == 0 {
		return
	}
	f := r.manual.unlanded[r.flightKey()]
	if f == nil {
		return
	}
	delete(r.manual.unlanded, r.flightKey())
	for i := range f.Undos {
		n := &f.Undos[i]
		ref, ok := r.plan.Ref(n.ID)
		if !ok {
			continue
		}
		u := r.undo.nodes[ref]
		if u == nil || u.status != CompensationRunning || r.ownUndo(ref) == nil || !r.st.KeepUndo(ref) {
			r.st.DropUndoSlots(ref) // the attempt is repeated
			continue
		}
		u.taken()
		u.land(n, now)
	}
}

// land restores the attempt in flight to undo the node.
func (u *undo) land(n *nodeFlight, now int64) {
	r, by := u.run, u.run.undo.by
	step := &Step{run: r, ref: u.ref, attempt: u.attempts, flags: stepUndo | stepDetached}
	if r.st.Word(u.ref).Is(machine.WordSubstituted) {
		step.flags |= stepSubstituted
	}
	u.step, u.stop = step, nil
	by.undo.active = append(by.undo.active, u)
	by.enlist()
	if n.Stop != nil {
		u.stop = n.Stop.cause()
	}
	if n.Timeout != nil {
		u.timeOutIn(time.Duration(*n.Timeout - now))
	}
	if n.Grace != nil {
		u.graceEnds(time.Duration(*n.Grace - now))
	}
	r.manual.land(step, inFlight{undo: u, number: n.Number}, n)
	r.manual.sort(r.manual.begun)
}

// lapseAll records the tokens of the attempts that were in flight. It is called for a run that repeats these attempts instead of continuing them.
func (h *held) lapseAll() {
	h.walk(func(h *held) {
		r := h.run
		h.lapseKept()
		for i, ref := range h.refs {
			n := &h.nodes[i]
			if n.Status == Running && n.Inside == nil && !r.plan.net.Is(ref, machine.FlagComposite) {
				r.manual.lapsedToken(r.token(kindStep, ref, n.Attempts, n.Started-n.Attempts))
			}
			if n.Undo != nil && n.Undo.AtWork {
				r.manual.lapsedToken(r.token(kindCompensate, ref, n.Undo.Attempts, 0))
			}
		}
	})
}

// lapseKept does the same as lapseAll, for the nodes inside expanded nodes with unknown graphs.
func (h *held) lapseKept() {
	for _, kept := range h.kept {
		h.run.lapseInside(kept, h.run.prefix, append(h.run.attemptsAround(), kept.Attempts))
	}
}

// attemptsAround returns the attempt numbers of the composites around the run, from the outermost to the innermost.
func (r *Run) attemptsAround() (numbers []int32) {
	for c := r; c.outer != nil; c = c.outer {
		numbers = append(numbers, c.within.attempt)
	}
	slices.Reverse(numbers)
	return numbers
}

// lapseInside does the same as lapseAll, for the nodes inside an expanded node with an unknown graph.
func (r *Run) lapseInside(of *nodeState, prefix string, around []int32) {
	prefix = of.prefixInside(prefix)
	inner := slices.Clone(around)
	slices.Reverse(inner)
	for i := range of.Inside.Nodes {
		n := &of.Inside.Nodes[i]
		if n.Inside != nil {
			r.lapseInside(n, prefix, append(slices.Clone(around), n.Attempts))
		} else if n.Status == Running {
			r.manual.lapsedToken(tokenText(kindStep, r.epoch, inner, n.Attempts, n.Started-n.Attempts, prefix+n.ID, r.ID()))
		}
		if n.Undo != nil && n.Undo.AtWork {
			r.manual.lapsedToken(tokenText(kindCompensate, r.epoch, inner, n.Undo.Attempts, 0, prefix+n.ID, r.ID()))
		}
	}
}
