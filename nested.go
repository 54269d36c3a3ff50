package kahn

import (
	"slices"
	"strings"
)

// composite is what a run keeps of a composite node, from its start on, and of a node that has been expanded.
type composite struct {
	child   *Run // the current, or the last, of the runs that perform it; nil for a loop that pauses since an earlier life
	working bool // a worker looks at what the child came to
	put     bool // that was given up because the run is being left: somebody is to look again

	before iterations // of a loop
	pause  *pause     // of a loop that waits for its next iteration, or was interrupted doing so; else nil
}

// atWork returns the run nested in a composite that has not ended, or nil.
func (x *extra) atWork() *Run {
	if x.comp == nil || x.comp.child == nil || x.comp.child.concluded {
		return nil
	}
	return x.comp.child
}

// outermost is the run that this one is nested in, at whatever depth, or the run itself.
func (r *Run) outermost() *Run {
	if r.outer == nil {
		return r
	}
	return r.tree.root
}

// path is what a node goes by in the outermost run.
func (r *Run) path(ref Ref) string {
	if r.prefix == "" {
		return r.plan.names[ref]
	}
	return r.prefix + r.plan.names[ref]
}

// beginComposites begins the composites that are due, in the critical section in which the worker takes its next task, so
// that the order in which nested runs begin depends on nothing else. It returns the first task that is another thing, gates
// apart, which are seen to.
func (w *worker) beginComposites(t Task, ok bool) (Task, bool) {
	r := w.run
	for ok && !t.Check && (t.Gate || r.plan.facts[t.Ref].is(factComposite)) {
		if t.Gate {
			r.reachGate(t.Ref, w.now)
			if r.durable != nil {
				r.flush(w.now)
			}
		} else {
			w.task = t
			w.begin(t)
			r.beginComposite(w.step, w.now)
		}
		t, ok = r.st.next()
	}
	return t, ok
}

func (r *Run) beginComposite(step *Step, now int64) {
	x := r.extra(step.ref)
	x.comp = &composite{}
	var child *Run
	switch n := r.plan.node(step.ref); {
	case n.Map != nil:
		child = r.itemsRun(step, x.items)
	case n.Loop != nil:
		child = r.iterationRun(step, 1, nil)
	default:
		child = r.subRun(step, r.plan.sub(step.ref))
	}
	r.beginChild(x.comp, child, now)
}

// subRun makes the run of a composite's sub-graph.
func (r *Run) subRun(step *Step, p *Plan) *Run {
	c := r.nested(step, p, r.path(step.ref)+"/", 0)
	c.setKeys()
	return c
}

// nested makes a run that is to perform a composite, or a part of it: its number index.
func (r *Run) nested(step *Step, p *Plan, prefix string, index int32) *Run {
	if r.cfg.test != nil {
		p = r.cfg.test.plan(p, r.plan.doubles[step.ref])
	}
	c := &Run{
		plan: p, step: r.step, wrapped: r.wrapped, careful: r.careful, mayEnd: r.mayEnd, epoch: r.epoch, ctx: r.ctx, base: r.base, cfg: r.tree.config(), start: r.start, log: r.log,
		single: r.single, tree: r.tree, outer: r, within: step, prefix: prefix, remaining: r.remainingAfter(step.ref), nests: p.composite,
	}
	c.limitTo(step)
	c.st.turn.order = append(slices.Clone(r.st.turn.order), r.plan.decl[step.ref], index)
	return c
}

// config is that of the nested runs, which share it: the outermost run's without what concerns that one alone.
func (t *tree) config() *config {
	if t.cfg == nil {
		cfg := *t.root.cfg
		cfg.inputs, cfg.limit, cfg.timeout, cfg.estimates, cfg.sinks = nil, 0, 0, nil, nil
		t.cfg = &cfg
	}
	return t.cfg
}

// limitTo bounds a nested run by what bounds its composite's attempt.
func (r *Run) limitTo(step *Step) {
	if r.bound = 0; step.flags&stepDetached == 0 {
		r.bound = r.outer.bound
	}
	if x := step.ctx.Load(); x != nil && x.deadline != 0 && (r.bound == 0 || x.deadline < r.bound) {
		r.bound = x.deadline
	}
}

// beginChild begins a nested run, with the lock held.
func (r *Run) beginChild(comp *composite, c *Run, now int64) {
	comp.child, comp.working = c, false
	c.began = now
	r.flush(now) // the start of the composite comes before what happens inside
	r.timers++   // until the child's goroutines have returned
	r.furnish(c)
	if r.leaving {
		c.leave()
	}
	c.st.begin()
	c.stopLateMembers()
	if c.iteration > 1 || c.rootInputs != nil {
		c.outdate()
	}
	c.flush(now)
	c.tree.touch(c)
	c.tree.queue(&c.st)
}

// furnish gives a nested run what it needs to begin, with the lock held.
func (r *Run) furnish(c *Run) {
	c.st.init(c.plan, c.cfg)
	c.st.mu, c.st.admits = r.st.mu, true
	c.st.host = c
	c.st.parks = r.st.parks
	if c.items == nil { // whose run goes by the prefix of the run around it
		c.tree.nested[c.prefix] = c
	}
	if c.st.logged = r.st.logged; c.st.logged {
		c.scope = &eventScope{c.plan, c.prefix, c.epoch}
		c.st.noted = true
		start := r.recorder.latest[c.within.ref].id
		c.recorder = recorder{first: start, wave: start, ended: start, latest: make([]latest, len(c.plan.names))}
	}
	c.records = make([]record, len(c.plan.names))
	c.enter()
}

// childEnded is called when everything in a nested run is terminal. What it came to is found out by a worker, since that
// may take user code.
func (r *Run) childEnded(c *Run) {
	if d := r.durable; d != nil && d.failed == nil {
		d.push(&transaction{ended: c})
		r.unwritten++
		r.tree.touch(r.tree.root)
		return
	}
	c.returnTo()
}

// returnTo queues the composite of a nested run that has ended.
func (r *Run) returnTo() { r.outer.returnedTo(r.within.ref) }

// returnedTo queues a composite for a worker that finds out what it came to.
func (r *Run) returnedTo(ref Ref) {
	r.st.evaluateInline(ref)
	r.tree.touch(r)
}

// childLeft is called when the goroutines of a nested run that has ended have returned.
func (r *Run) childLeft() {
	if !r.left {
		r.left = true
		r.outer.timers--
		r.tree.touch(r.outer)
	}
}

// returned finds out what a nested run that has ended means for its composite.
func (w *worker) returned() bool {
	r, ref := w.run, w.task.Ref
	r.st.mu.Lock()
	x := r.extras[ref]
	w.step, x.comp.working = r.current(ref), true
	if r.leaving {
		r.armReturnGrace(ref, x)
	}
	if x.grace == nil && (r.st.words[ref]&wordStopping != 0 || x.timedOut != timeoutNone) {
		r.armGrace(w.step, x) // there was nobody to be waited for before
	}
	comp, halted := x.comp, r.st.words[ref]&wordStopping != 0
	if comp.pause != nil { // it was interrupted
		c := r.stoppedLoop(ref)
		r.st.mu.Unlock()
		return w.finishAs(c, attemptResult{}, true)
	}
	r.st.mu.Unlock()
	w.phase = phaseUser
	var c conclusion
	switch n := r.plan.node(ref); {
	case n.Map != nil:
		c = w.ofItems(comp.child)
	case n.Loop != nil && !halted:
		var more bool
		var soFar iterations
		if c, soFar, more = w.ofIteration(comp); more {
			w.phase = phaseEngine
			if c, more = w.iterate(comp, soFar); more {
				return w.take()
			}
		}
	default:
		c = w.ofChild(comp.child)
	}
	w.phase = phaseEngine
	return w.finishAs(c, attemptResult{}, true)
}

// ofChild is what a composite comes to by the run of its sub-graph.
func (w *worker) ofChild(c *Run) conclusion {
	v := &c.verdict
	if v.status == RunCompleted && c.st.allSkipped() {
		return conclusion{Outcome: Outcome{Status: Skipped}, skip: "every node of its graph was skipped"}
	}
	if v.status == RunCompleted {
		done := w.conclude(attemptResult{value: c.output()})
		done.Degraded = v.degraded && done.Status == Completed
		if c.rootInputs != nil && done.Status == Completed {
			w.keepExpanded(done.value)
		}
		return done
	}
	err := c.outcome().err
	kind := c.stoppedBy
	switch {
	case v.status == RunFailed && (kind == CauseNone || kind.stopStatus() != Aborted || v.failed > 0):
		return conclusion{Outcome: Outcome{Status: Failed, Cause: CauseSubrun}, err: err}
	case kind == CauseNone || kind.stopStatus() == Aborted && v.status == RunCancelled:
		return conclusion{Outcome: Outcome{Status: Cancelled, Cause: CauseExternal}, err: err}
	}
	return conclusion{Outcome: Outcome{Status: kind.stopStatus(), Cause: kind}, err: err}
}

// allSkipped reports whether there are nodes, and all of them were skipped.
func (s *State) allSkipped() bool {
	return len(s.words) > 0 && !slices.ContainsFunc(s.words, func(w uint64) bool { return statusOf(w) != Skipped })
}

// outcome is the Result of a run that has ended.
func (r *Run) outcome() *Result {
	r.resMu.Lock()
	defer r.resMu.Unlock()
	if r.result == nil {
		r.result = r.makeResult()
	}
	return r.result
}

// halt sees to it that an attempt that was asked to stop does so in time: by its grace, or, if nested runs perform it, by
// stopping these, which keep to the grace themselves.
func (r *Run) halt(step *Step, x *extra, kind CauseKind, cause *stopCause) {
	switch c := x.atWork(); {
	case x.comp == nil || x.comp.working:
		r.armGrace(step, x)
	case x.comp.pause != nil:
		r.interruptPause(step.ref, x)
	case c != nil:
		c.stopFor(kind, cause, stopAsking)
	}
}

// stopFor stops a nested run for what its composite is stopped for.
func (r *Run) stopFor(kind CauseKind, cause *stopCause, manner stopManner) {
	r.wake(r.now())
	r.stoppedBy = kind
	switch kind {
	case CauseFailFast, CauseAbortAll, CauseRunTimeout, CauseContext, CauseCancelRun, CauseStoreError:
	default: // what concerned a node concerns all of its run
		if kind = CauseCancelRun; r.stoppedBy.stopStatus() == Aborted {
			kind = CauseAbortAll
		}
	}
	r.cancelled = kind.stopStatus() == Cancelled
	r.stop(kind, noRef, cause, manner)
	r.tree.touch(r)
}

// drainChildren passes a stop that lets running steps finish on to the nested runs.
func (r *Run) drainChildren(kind CauseKind, cause *stopCause) {
	var refs []Ref
	for ref, x := range r.extras {
		if x.comp != nil && !r.plan.facts[ref].is(factCleanup) {
			refs = append(refs, ref)
		}
	}
	slices.Sort(refs)
	for _, ref := range refs {
		r.drainChild(ref, kind, cause)
	}
}

func (r *Run) drainChild(ref Ref, kind CauseKind, cause *stopCause) {
	x := r.extras[ref]
	if x == nil || x.comp == nil {
		return
	}
	if c := x.atWork(); c != nil {
		c.stopFor(kind, cause, stopDraining)
	} else if x.comp.pause != nil && statusOf(r.st.words[ref]) == Running {
		r.interruptPause(ref, x)
	}
}

// spread carries a stop from the outermost run down to this one.
func (r *Run) spread() {
	if r.outer != nil {
		r.outer.spread()
		r.tree.touch(r.outer)
	}
	r.collectStops()
}

// input returns a root input of the run, or the default that its graph declares. The inputs of a nested run are the parameters of
// its composite, or what came with its graph.
func (r *Run) input(name string) (value any, ok bool) {
	if value, ok = r.given(name); ok {
		return value, true
	}
	if in := r.plan.input(name); in != nil && in.Default != nil {
		return in.Default, true
	}
	return nil, false
}

func (r *Run) given(name string) (value any, ok bool) {
	if value, ok = r.cfg.inputs[name]; ok || r.outer == nil {
		return value, ok
	}
	if r.rootInputs != nil {
		value, ok = r.rootInputs[name]
		return value, ok
	}
	if r.iteration > 0 {
		switch {
		case name == inputIteration:
			return r.iteration, true
		case name == inputPrevious && r.iteration > 1:
			return r.previous, true
		}
	}
	return r.outer.param(r.within.ref, r.within.flags, name)
}

// eachInput calls f with the names of the root inputs, some of them perhaps more than once.
func (r *Run) eachInput(f func(name string)) {
	for name := range r.cfg.inputs {
		f(name)
	}
	for i := range r.plan.inputs {
		f(r.plan.inputs[i].Name)
	}
	switch {
	case r.rootInputs != nil:
		for name := range r.rootInputs {
			f(name)
		}
	case r.outer != nil:
		r.outer.eachParam(r.within.ref, f)
	}
	if r.iteration > 0 {
		f(inputIteration)
		f(inputPrevious)
	}
}

// performsInside reports whether nested runs perform a node: it is a composite, or runs and has been expanded.
func (r *Run) performsInside(ref Ref) bool {
	return r.plan.facts[ref].is(factComposite) || r.st.isExpanded(ref)
}

// The rest of this file is about nested runs that can do nothing but wait for a signal.

// children yields the nested runs that have not ended, in the order of their composites.
func (r *Run) children() []*Run {
	var refs []Ref
	for ref, x := range r.extras {
		if x.atWork() != nil {
			refs = append(refs, ref)
		}
	}
	slices.Sort(refs)
	if r.tree.steps += int64(len(r.extras)); len(refs) == 0 {
		return nil
	}
	list := make([]*Run, len(refs))
	for i, ref := range refs {
		list[i] = r.extras[ref].comp.child
	}
	return list
}

// restInside is rest for a nested run: its composite is suspended as long as nothing in it can go on.
func (r *Run) restInside() {
	if !r.resting {
		r.resting = true
		r.outer.st.sleep(r.within.ref)
		r.tree.touch(r.outer)
	}
}

// restAll brings all that is nested in a run to rest that is being left: nothing in it is at work. What was stopped was not held
// before, and is now: an item that comes to rest gives its slot back, which nobody is to take any more.
func (r *Run) restAll(now int64) {
	if !r.nests {
		return
	}
	for _, c := range r.children() {
		c.leaving, c.st.hold = true, holdAll
		c.restAll(now)
		c.restInside()
	}
	r.flush(now)
}

// wakeOuter is called when a nested run goes on that was at rest.
func (r *Run) wakeOuter(now int64) {
	o, ref := r.outer, r.within.ref
	o.wake(now)
	o.reentered = true
	if !o.st.isExpanded(ref) {
		o.extra(ref).reentries++
	}
	o.st.rouse(ref)
	o.flush(now) // before what happens inside
	o.tree.touch(o)
}

// leave keeps the run, and what is nested in it, from starting anything else. A run that was stopped goes on to its end, its
// cleanup included, and so does what is nested in it. So a run that is being left was not stopped, and the run around it is
// being left too.
func (r *Run) leave() {
	if r.leaving || r.st.stopped != CauseNone {
		return
	}
	r.leaving = true
	r.st.hold = holdAll
	r.leaveChecks()
	r.leaveReturns()
	if !r.nests {
		return
	}
	for _, c := range r.children() {
		c.leave()
		c.tree.touch(c)
	}
}

// leaveReturns bounds the tests of loops, and whatever else is asked of the host when a nested run has ended, in a run that is being
// left: it is asked again when the run goes on.
func (r *Run) leaveReturns() {
	if !r.nests {
		return
	}
	for ref, x := range r.extras {
		if x.comp != nil && x.comp.working {
			r.armReturnGrace(ref, x)
		}
	}
}

func (r *Run) armReturnGrace(ref Ref, x *extra) {
	step := r.current(ref)
	if x.grace != nil || step == nil || step.flags&stepFallback != 0 {
		return
	}
	x.grace = r.after(r.cfg.cancelGrace, func(int64) {
		if r.leaving && r.current(ref) == step && x.comp.working {
			r.abandonReturn(step, x)
		}
	})
}

// abandonReturn gives up on a worker that looks at what a nested run has come to, and leaves the composite as it was before.
func (r *Run) abandonReturn(step *Step, x *extra) {
	r.activate(&Step{run: r, ref: step.ref, attempt: step.attempt, flags: step.flags}) // what the worker finds is of another one
	x.grace = nil
	x.comp.working, x.comp.put = false, true
	r.leftBehind(step.ref)
	r.dismiss()
	if r.tree.limit == 1 && r.tree.alone > 0 {
		r.tree.alone--
	}
}

// resumeReturns is the reverse of leaveReturns, for a run that is not left after all.
func (r *Run) resumeReturns() {
	if !r.nests {
		return
	}
	for ref, x := range r.extras {
		switch {
		case x.comp == nil:
		case x.comp.put:
			x.comp.put = false
			r.st.evaluateInline(ref)
		case x.comp.working && x.timedOut == timeoutNone && r.st.words[ref]&wordStopping == 0:
			r.disarm(&x.grace) // a stop gives it its own
		}
	}
}

// stay undoes leave for the run, and for what is nested in it: a stop wins over leaving.
func (r *Run) stay(now int64) {
	if !r.leaving {
		return
	}
	r.leaving = false
	r.resumeChecks()
	r.resumeReturns()
	r.st.lift()
	if r.st.asleep > 0 && r.st.onSuspend == SuspendStop {
		r.st.hold = holdFresh
	}
	if !r.nests {
		return
	}
	for _, c := range r.children() {
		c.stay(now)
		if c.resting && c.canGoOn() {
			c.wake(now)
		}
		c.tree.touch(c)
	}
}

// putAside ends the nested runs of a run that ends at rest.
func (r *Run) putAside() {
	if !r.nests {
		return
	}
	for _, c := range r.children() {
		c.putAside()
		c.concluded, c.verdict = true, verdict{status: RunSuspended}
		c.st.changes = nil // what is ready again since the snapshot, in a run that has rested on: the log has ended
		for ref, x := range c.extras {
			c.disarmNode(ref)
			c.disarm(&x.overall)
			c.disarm(&x.gate)
		}
		c.tree.touch(c)
	}
}

// waiter finds the run in which a node waits that goes by a path, or under a token of its own, and what it goes by there. It
// is called for an outermost run. It looks up what the parts of the path name, and not at all runs.
func (r *Run) waiter(gate string) (*Run, string) {
	if r.tree == nil || r.waitsUnder(gate) {
		return r, gate
	}
	if in := r.itemsOf(gate); in != nil {
		return in, gate
	}
	for i, c := range []byte(gate) {
		if c != '/' {
			continue
		}
		in, name := r.tree.nested[gate[:i+1]], gate[i+1:]
		r.tree.steps++
		switch {
		case in == nil || in.concluded:
		case in.waitsUnder(name):
			return in, name
		default:
			if items := in.itemsOf(name); items != nil {
				return items, name
			}
		}
	}
	if in := r.tree.tokens[gate]; len(in) > 0 {
		return in[0], gate
	}
	return r, gate
}

// itemsOf finds the run of a map's items, if the name is that of one that waits: an item goes by the same name there.
func (r *Run) itemsOf(name string) *Run {
	i := strings.LastIndexByte(name, '[')
	if i < 0 {
		return nil
	}
	ref, ok := r.plan.Ref(name[:i])
	if !ok {
		return nil
	}
	if x := r.extras[ref]; x != nil {
		if c := x.atWork(); c != nil && c.items != nil && c.waitsUnder(name) {
			return c
		}
	}
	return nil
}

func (r *Run) waitsUnder(gate string) bool {
	_, err := r.gateOf(gate)
	return err == nil
}

// addToken notes that a step of a run waits under a token. One that is the id of its node is found by its path alone.
func (t *tree) addToken(token string, r *Run) {
	if t == nil || r.outer == nil {
		return
	}
	if _, is := r.plan.Ref(token); is {
		return
	}
	if t.tokens == nil {
		t.tokens = map[string][]*Run{}
	}
	t.tokens[token] = slices.Insert(t.tokens[token], t.tokenPlace(token, r), r)
}

// tokenPlace is the place of a run among those in which a step waits under a token, which are in the order of declaration.
func (t *tree) tokenPlace(token string, r *Run) int {
	i, _ := slices.BinarySearchFunc(t.tokens[token], r, func(x, y *Run) int {
		t.steps++
		return slices.Compare(x.st.turn.order, y.st.turn.order)
	})
	return i
}

func (t *tree) dropToken(token string, r *Run) {
	if t == nil || r.outer == nil {
		return
	}
	list := t.tokens[token]
	for i := t.tokenPlace(token, r); i < len(list); i++ {
		if list[i] == r { // it is the first, unless another attempt of its composite has not ended
			t.tokens[token] = slices.Delete(list, i, i+1)
			break
		}
	}
	if len(t.tokens[token]) == 0 {
		delete(t.tokens, token)
	}
}
