package kahn

import (
	"encoding/json"
	"slices"

	"github.com/seed-c794f7ef/kahn/internal/saturate"
	"github.com/seed-c794f7ef/kahn/machine"
)

// composite is the record of a composite node that has begun, or of a node that has been expanded.
type composite struct {
	child   *Run // the current or last nested run; nil for a loop that paused when the run was restored, unless its nodes may have to be undone
	working bool // whether a worker is concluding the composite, whose nested run has ended
	// put reports whether the run has abandoned the worker that was concluding the composite. This happens while the run is being left. Another worker
	// must then conclude the composite.
	put bool

	// seen records for a memo which inputs the nodes inside read. It is nil if no memo needs this record, or if the node began before the run was last
	// restored.
	seen *sights

	*compositeMore
}

// compositeMore contains the fields that only loops set, and composites whose nodes are undone. All other composites share plainComposite, which is
// never written to, because writers call composite.own first.
type compositeMore struct {
	past   []*Run          // for a loop with nodes that may have to be undone: the runs of earlier iterations
	failed *failedWhole    // set while the nodes inside are undone after a failed attempt; otherwise nil
	ended  *endedExpansion // for an expanded node: set when its attempt has ended and another attempt follows; otherwise nil

	before iterations     // for a loop: the outputs of its earlier iterations
	pause  *pause         // for a loop that waits for its next iteration, or whose wait was interrupted; otherwise nil
	text   *iterationText // for a loop in a run with a store: the output of the last iteration
	stored int32          // the number of outputs in before.all that were sent to the store
}

var plainComposite compositeMore

// The method `own` returns the fields of compositeMore for writing.
func (c *composite) own() *compositeMore {
	if c.compositeMore == &plainComposite {
		c.compositeMore = &compositeMore{}
	}
	return c.compositeMore
}

// newComposite returns the record of a composite whose nested run is c, or will be made.
func newComposite(c *Run) *composite { return &composite{child: c, compositeMore: &plainComposite} }

// iterationText is the encoded output of an iteration, and the number of the next iteration.
type iterationText struct {
	of  int
	raw json.RawMessage
}

// atWork returns the composite's nested run if it has not ended. Otherwise it returns nil.
func (x *extra) atWork() *Run {
	if x.comp == nil || x.comp.child == nil || x.comp.child.concluded() {
		return nil
	}
	return x.comp.child
}

// path returns the full path of a node: the path that names the node in the outermost run.
func (r *Run) path(ref machine.Ref) string {
	if r.prefix == "" {
		return r.plan.names[ref]
	}
	return r.prefix + r.plan.names[ref]
}

// beginComposite begins the nested run of a composite. The parameter `seen` records for a memo which inputs the nodes inside read. It is nil if no
// memo needs this record.
func (r *Run) beginComposite(step *Step, seen *sights, now int64) {
	x := r.extraInside(step.ref)
	x.comp = newComposite(nil)
	x.comp.seen = seen
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

// beginsInside reports whether the node is a composite whose nested run begins without a look-up in a memo.
func (r *Run) beginsInside(ref machine.Ref) bool {
	return r.plan.net.Is(ref, machine.FlagComposite) && (!r.plan.net.Is(ref, machine.FlagAdmit) || r.memoOf(ref) == nil)
}

// beginWhole begins an attempt of a composite that starts with a look-up in the memo. The caller holds the run's lock.
func (r *Run) beginWhole(ref machine.Ref, before int32, now int64) {
	if x := r.extras[ref]; x != nil {
		x.comp = nil // the old x.comp belongs to the previous attempt
	}
	r.life().begunInside(r, ref, before, now)
}

// goInside begins the nested run of a composite whose output is not in the memo.
func (w *worker) goInside() bool {
	r, step := w.run, w.step
	ref := step.ref
	w.phase, w.now = phaseEngine, r.now()
	r.lock()
	r.ringDue(w.now)
	x := r.extra(ref)
	if r.current(ref) == step && !r.isLost() && r.st.Word(ref).Is(machine.WordDraining) {
		r.st.StopDrained(ref) // nothing inside it has begun
	}
	if r.current(ref) != step || r.isLost() || r.st.Word(ref).Is(machine.WordStopping) || x.timedOut != timeoutNone || x.left {
		r.st.Unlock()
		return w.finish(attemptResult{err: errNotAdmitted, kind: CauseStepError}, true)
	}
	if r.single != nil && r.single.interrupted == step {
		r.single.interrupted = nil
	}
	var seen *sights
	if w.flight != nil {
		seen = &sights{of: step}
		r.tree.board(place{r, ref}, w.flight)
		w.flight = nil
	}
	r.beginComposite(step, seen, w.now)
	return w.next(true)
}

// subRun makes the nested run of a composite's sub-graph.
func (r *Run) subRun(step *Step, p *Plan) *Run {
	c := r.nested(step, p, r.path(step.ref)+"/", 0)
	c.setKeys()
	return c
}

// nestedRun contains what every nested run has, so that one allocation is enough.
type nestedRun struct {
	Run
	turn  turn
	in    instance
	order [4]int32 // the memory of turn.order, in a run that is not nested too deep
}

// The method `nested` makes a nested run of a composite. The parameter `index` is the number of the nested run in the composite.
func (r *Run) nested(step *Step, p *Plan, prefix string, index int32) *Run {
	if r.cfg.test != nil {
		p = r.cfg.test.plan(p, r.plan.doubles[step.ref])
	}
	x := &nestedRun{}
	c := &x.Run
	c.runRare, c.runReports = &notRare, &notReported
	c.plan, c.cfg, c.runCommon = p, r.tree.config(), r.runCommon
	c.stage = stageRunning // no Runner delays a nested run
	c.outer, c.nests, c.turn, c.instance = r, p.composite, &x.turn, &x.in
	c.prefix, c.within, c.round = prefix, step, &noRound
	c.turn.order = append(append(x.order[:0], r.placeInTree()...), r.plan.decl[step.ref], index)
	if x := r.extras[step.ref]; x != nil && x.comp != nil {
		c.seen = x.comp.seen
	}
	c.limitTo(step)
	return c
}

// config returns the config that all nested runs share. This is the outermost run's config without the options that concern only the outermost
// run.
func (t *tree) config() *config {
	if t.cfg == nil {
		cfg := *t.root.cfg
		cfg.inputs, cfg.limit, cfg.timeout, cfg.estimates, cfg.sinks = nil, 0, 0, nil, nil
		t.cfg = &cfg
	}
	return t.cfg
}

// limitTo sets the field `bound` of a nested run to the deadline of its composite's attempt or to the deadline of the run around it, whichever is
// earlier. If the step is detached, only the deadline of the attempt counts.
func (r *Run) limitTo(step *Step) {
	bound := int64(0)
	if step.flags&stepDetached == 0 {
		bound = r.outer.bound
	}
	if x := step.ctx.Load(); x != nil && x.deadline != 0 && (bound == 0 || x.deadline < bound) {
		bound = x.deadline
	}
	r.bound = bound
}

// beginChild begins a nested run. The caller holds the run's lock.
func (r *Run) beginChild(comp *composite, c *Run, now int64) {
	comp.child, comp.working = c, false
	c.began = now
	r.flush(now) // logs the start of the composite before the events inside
	r.timers++   // counts the child until its goroutines have returned
	r.setUp(c)
	if r.leaving {
		c.leave()
	}
	c.st.Begin()
	c.stopLateMembers()
	if c.iteration > 1 || c.rootInputs != nil {
		c.outdate()
	}
	c.flush(now)
	c.tree.touch(c)
	c.tree.queue(c)
}

// setUp prepares a nested run to begin. The caller holds the run's lock.
func (r *Run) setUp(c *Run) {
	c.initState()
	c.remaining = r.remainingAfter(c.within.ref)
	c.st.DrivenBy((*runHost)(c), &r.st)
	c.st.Park(r.st.ParksNodes())
	if c.items == nil { // a run of items has the same prefix as the run around it
		c.tree.nested[c.prefix] = c
		c.tree.longest = max(c.tree.longest, len(c.prefix))
	}
	if r.st.IsLogged() {
		c.st.KeepLog()
		start := r.recorder.latest[c.within.ref].id
		c.runReports = c.reports(r.log, recorder{first: start, wave: start, ended: start})
	}
	c.records = make([]record, len(c.plan.names))
	c.enter()
}

// childEnded is called when every node of a nested run is terminal. A worker then concludes the composite, since this may call user code. If the
// run has a store, the store writes the end of the nested run before that.
func (r *Run) childEnded(c *Run) {
	if d := r.durable; d != nil && d.failed == nil {
		d.outbox.ended = append(d.outbox.ended, c)
		r.awaitsWrite(1)
		r.tree.touch(r.tree.root)
		return
	}
	c.returnTo()
}

// returnTo queues the composite of an ended nested run.
func (r *Run) returnTo() { r.outer.returnedTo(r.within.ref) }

// returnedTo queues a composite, so that a worker concludes it.
func (r *Run) returnedTo(ref machine.Ref) {
	r.st.EvaluateInline(ref)
	r.tree.touch(r)
}

// childLeft is called after a nested run has ended and its goroutines have returned.
func (r *Run) childLeft() {
	if r.stage != stageOver {
		r.stage, r.worker = stageOver, nil
		r.outer.timers--
		r.tree.touch(r.outer)
	}
}

// The method `returned` concludes the composite of an ended nested run.
func (w *worker) returned() bool {
	r, ref := w.run, w.task.Ref
	r.st.Lock()
	x := r.extras[ref]
	w.step, x.comp.working = r.current(ref), true
	if r.leaving {
		r.armReturnGrace(ref, x)
	}
	if x.grace == nil && (r.st.Word(ref).Is(machine.WordStopping) || x.timedOut != timeoutNone) {
		r.armGrace(w.step, x) // until now, there was no goroutine of the composite to wait for
	}
	comp := x.comp
	if f := comp.failed; f != nil && f.undone {
		r.st.Unlock()
		return w.finishAs(f.c, f.res, true)
	}
	if comp.pause != nil { // the pause of the loop was interrupted
		c := r.stoppedLoop(ref)
		r.st.Unlock()
		return w.finishAs(c, attemptResult{}, true)
	}
	r.st.Unlock()
	w.phase = phaseUser
	var c conclusion
	switch n := r.plan.node(ref); {
	case n.Map != nil:
		c = w.ofItems(comp.child)
	case n.Loop != nil:
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
	if comp.seen != nil {
		w.keepWhole(&c, comp.seen)
	}
	w.phase = phaseEngine
	return w.finishAs(c, attemptResult{}, true)
}

// ofChild returns the conclusion of a composite whose sub-graph was performed by the ended run c.
func (w *worker) ofChild(c *Run) conclusion {
	v := &c.verdict
	if v.status == RunCompleted && c.st.AllSkipped() {
		return conclusion{Outcome: machine.Outcome{Status: Skipped}, harmless: true, skip: "every node of its graph was skipped"}
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
	case v.status == RunFailed && (kind == CauseNone || kind.StopStatus() != Aborted || v.failed > 0):
		return conclusion{Outcome: machine.Outcome{Status: Failed, Cause: CauseSubrun}, err: err}
	case kind == CauseNone || kind.StopStatus() == Aborted && v.status == RunCancelled:
		return conclusion{Outcome: machine.Outcome{Status: Cancelled, Cause: CauseExternal}, err: err}
	}
	return conclusion{Outcome: machine.Outcome{Status: kind.StopStatus(), Cause: kind}, err: err}
}

// outcome returns the Result of an ended run.
func (r *Run) outcome() *Result {
	r.resMu.Lock()
	defer r.resMu.Unlock()
	if !r.summed {
		r.makeResult()
	}
	return r.result
}

// spread calls collectStops for this run and for the runs around it, the outermost first.
func (r *Run) spread() {
	if r.outer != nil {
		r.outer.spread()
		r.tree.touch(r.outer)
	}
	r.collectStops()
}

// input returns a root input of the run. If the run has no such input, input returns the default that the graph declares. The inputs of a nested
// run are the parameters of its composite, or the inputs given to Expand.
func (r *Run) input(name string) (value any, ok bool) {
	return r.given(name, true)
}

// The method `given` returns a root input. If `noted` is set and the method asks the composite around the run for the input, it also notes for a
// memo that the input was read: see the type sights.
func (r *Run) given(name string, noted bool) (value any, ok bool) {
	if value, ok = r.delivers(name, noted); ok {
		return value, true
	}
	if in := r.plan.input(name); in != nil && in.Default != nil {
		return in.Default, true
	}
	return nil, false
}

func (r *Run) delivers(name string, noted bool) (value any, ok bool) {
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
	if noted {
		r.seen.note(readParam, name)
	}
	return r.outer.param(r.within.ref, r.within.flags, name)
}

// eachInput calls f with the names of the root inputs. It may repeat a name.
func (r *Run) eachInput(f func(name string)) { r.everyInput(true, f) }

// everyInput calls f with the names of the root inputs. It may repeat a name. If `noted` is set and the names come from the composite around the
// run, everyInput also notes for a memo that the run read these names: see the type sights.
func (r *Run) everyInput(noted bool, f func(name string)) {
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
		if noted {
			r.seen.note(readParams, "")
		}
		r.outer.eachParam(r.within.ref, f)
	}
	if r.iteration > 0 {
		f(inputIteration)
		f(inputPrevious)
	}
}

// performsInside reports whether nested runs perform the node. They perform a composite, and a running node that was expanded.
func (r *Run) performsInside(ref machine.Ref) bool {
	return r.plan.net.Is(ref, machine.FlagComposite) || r.st.IsExpanded(ref)
}

// tree is the state that a run and the runs nested in it share besides the lock. It contains the slots of Limit, which leaf nodes hold and
// composites do not. It also contains the list of touched runs: the runs that the current critical section has changed. Only a run whose plan has
// composites, or whose nodes have been expanded, has a tree. The lock that all these runs share guards the tree.
//
// With one slot, three rules determine the order of all nodes. A worker takes the first task of the whole tree, not of its own run. Tasks that
// need no slot precede tasks that need one. While a worker evaluates something without a slot, no worker takes a task. So the next event depends
// only on the state of the tree, and not on which worker is first.
type tree struct {
	root    *Run
	cfg     *config // shared by the nested runs; nil before the first one
	workers int32   // the number of running goroutines of all runs together, without abandoned ones
	limit   int     // the number of slots of all runs together; 0 means no limit
	machine.TreeSlots
	// waiting contains the runs with a ready node that needs a slot, the best first. With one slot, waiting contains all runs that could
	// continue. Without a limit, waiting is empty.
	waiting queue
	touched []*Run      // the changed runs, which the method `settle` must handle before the lock is released
	ending  []stopOrder // attempts whose contexts are cancelled when the lock is released
	keys    map[string]*machine.Slots
	flights map[place]*flight // maps memoized nodes that have been expanded to their flights
	nested  map[string]*Run   // the nested runs that have not ended, by the prefix of their nodes' paths; without the runs of a map's items
	longest int               // the length of the longest prefix so far
	tokens  map[string][]*Run // maps a token to the nested runs with a step that waits under it, in the order of declaration
	steps   int64             // the number of visits to runs; tests check with it that the work is linear
	deltas  deltaCounts

	starting int    // the number of goroutines that were started and have not taken the lock yet, see mayLaunch
	late     []*Run // the runs whose workers are started later, the first next

	// The following fields are for a tree with one slot.
	coming bool   // whether a started worker has not taken its first task yet
	gated  []*Run // runs with gates that are ready, and wait until no other node can start
}

// The method `touch` records a change of a run that the run's own worker may not notice.
func (t *tree) touch(r *Run) {
	if !r.touched {
		r.touched = true
		t.touched = append(t.touched, r)
	}
}

// maxStarting is the number of goroutines of a tree that may have been started without having taken the lock.
const maxStarting = 32

// mayLaunch reports whether a worker of the run may be started now. Otherwise the next goroutine that takes the lock starts the worker. A map without
// a limit begins all its items in one critical section. If each of them started a goroutine at once, there would be as many goroutines as items, and
// the Go runtime never frees the memory that describes a goroutine.
func (t *tree) mayLaunch(r *Run) bool {
	if t.starting >= maxStarting {
		t.late = append(t.late, r)
		return false
	}
	t.starting++
	return true
}

// The method `arrived` is called when a started goroutine has taken the lock. It starts the next worker that was held back by mayLaunch.
func (t *tree) arrived() {
	t.starting--
	if len(t.late) > 0 {
		next := t.late[0]
		t.late[0] = nil
		if t.late = t.late[1:]; len(t.late) == 0 {
			t.late = nil
		}
		next.launch()
	}
}

// settle handles the changes of every touched run, and assigns the free slots.
func (t *tree) settle(now int64) {
	t.attend(now)
	if t.root.isLost() {
		t.touch(t.root) // the root ends when no goroutine of any run remains
		t.attend(now)
		return
	}
	t.root.awaitToken(now)
	switch {
	case t.limit == 1:
		t.pass(now)
	// Only the first waiting run is dispatched. The worker that takes its task then handles the other runs.
	case len(t.waiting) > 0 && t.Used < t.limit:
		t.waiting[0].dispatch(now)
	}
	if t.root.cfg.restAfter > 0 && t.root.doze(now) {
		t.attend(now)
	}
	if t.root.leaving && t.workers == 0 { // the root is suspended only after every touched run has started its remaining work
		t.root.rest(now)
		t.touch(t.root)
		t.attend(now)
	}
}

// attend logs the changes of every touched run, updates its position in the queue, and starts a worker if the run needs one.
func (t *tree) attend(now int64) {
	for len(t.touched) > 0 {
		r := t.touched[len(t.touched)-1]
		t.touched = t.touched[:len(t.touched)-1]
		t.steps++
		r.touched = false
		if r.undo != nil {
			r.performUndos(now)
		}
		if r.outer != nil && r.concluded() && !r.isPutAway() {
			// After r.conclude, a worker of the outer run may read r's verdict without the lock. So attend then changes nothing in r.
			r.conclude(now)
			continue
		}
		t.ending = append(t.ending, r.endings()...)
		if t.limit == 1 && r.st.HasGates() {
			r.reachEarly(now)
		}
		r.flush(now)
		t.queue(r)
		r.dispatch(now)
	}
}

// shareGroups connects this run to the limits that the tree shares: the slots and rates of keys, of the whole run, and of groups that a graph
// around the run's graph declares.
func (r *Run) shareGroups() {
	s := &r.st
	s.ShareLimits(&r.tree.root.st)
	for i := range r.plan.groups {
		g := &r.plan.groups[i]
		switch own := s.SlotsOf(int32(i)); {
		case g.key && own != nil && g.Name != "":
			r.shareTreeKey(int32(i), g.Name)
		case g.inherited:
			if common := r.outer.slotsOf(g.Name); common != nil {
				s.UseSlots(int32(i), common)
			}
		case own != nil:
			r.shareGroup(own, int32(i))
		}
	}
	for key, g := range s.LateKeys() { // keys of nodes that were checked before the run became the root of a tree
		r.shareTreeKey(g, key)
	}
}

// shareTreeKey connects a key to the tree: the run's group g for the key uses the same slots as the key's groups in the other runs.
func (r *Run) shareTreeKey(g int32, key string) {
	t, own := r.tree, r.st.SlotsOf(g)
	if known := t.keys[key]; known != nil {
		r.st.UseSlots(g, known)
		return
	}
	if r.st.Pooled() && own.Shared() == nil {
		t.root.shareKey(own, key)
	}
	t.keys[key] = own
}

// bindKey sets the key of a node that takes its key from the value of an input. It shares the key's slots with other runs. The caller holds the run's
// lock.
func (r *Run) bindKey(ref machine.Ref, key string) {
	if key == "" {
		return
	}
	made := r.st.BindKey(ref, key)
	switch {
	case made == nil:
	case r.tree != nil:
		r.shareTreeKey(r.st.GroupOfKey(key), key)
	default:
		r.shareKey(made, key)
	}
}

// slotsOf returns the slots of a group, or nil if the group has no limit. It uses the run's own graph if this graph declares the group, and otherwise
// the nearest graph around it that declares the group.
func (r *Run) slotsOf(name string) *machine.Slots {
	for ; r != nil; r = r.outer {
		i, ok := r.plan.groupIndex[name]
		if !ok || r.plan.groups[i].inherited {
			continue
		}
		pooled := r.cfg.pool.group(r.plan, i) != nil
		// If no node of this graph is a member of the group, the group has no slots yet.
		if g := &r.plan.groups[i]; r.nests && !r.plan.composite && (g.Limit > 0 || g.Rate != Rate{} || pooled) {
			r.st.MakeSlots(i)
		}
		own := r.st.SlotsOf(i)
		if pooled && own != nil {
			r.shareGroup(own, i)
		}
		return own
	}
	return nil
}

// remainingAfter returns the length of the longest path that remains after a node, in the run and in the runs around it.
func (r *Run) remainingAfter(ref machine.Ref) int64 {
	longest := int64(0)
	for _, a := range r.plan.net.Out(ref) {
		longest = max(longest, r.st.Rank(a.To()))
	}
	return saturate.Add(longest, r.remaining)
}

// addToken records that a step of a nested run waits under a token. It does not record a token that is the id of a node, which is the default,
// since a signal finds the node by its path.
func (t *tree) addToken(token string, r *Run) {
	if r.outer == nil {
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

// tokenPlace returns the index of a run in the list t.tokens[token], or the index at which the run must be inserted. The list is in the order of
// declaration.
func (t *tree) tokenPlace(token string, r *Run) int {
	i, _ := slices.BinarySearchFunc(t.tokens[token], r, func(x, y *Run) int {
		t.steps++
		return slices.Compare(x.turn.order, y.turn.order)
	})
	return i
}

func (t *tree) dropToken(token string, r *Run) {
	if r.outer == nil {
		return
	}
	list := t.tokens[token]
	for i := t.tokenPlace(token, r); i < len(list); i++ {
		// This is usually true for the first i, since only r and the runs of other attempts of the same composite have this position.
		if list[i] == r {
			t.tokens[token] = slices.Delete(list, i, i+1)
			break
		}
	}
	if len(t.tokens[token]) == 0 {
		delete(t.tokens, token)
	}
}

// makeTree makes the run the root of a tree. It is called when a run with composites begins or is restored, or when the first node of a run is
// expanded.
func (r *Run) makeTree() {
	r.tree = &tree{root: r, limit: r.cfg.limit, keys: map[string]*machine.Slots{}, nested: map[string]*Run{}}
	t := r.tree
	if t.workers = r.workers; t.limit > 0 {
		_, t.Used = r.st.OwnSlots()
	}
	t.coming = t.limit == 1 && r.st.IsAnnounced()
	if r.st.IsAnnounced() { // the worker that will answer has been started
		t.starting = 1
	}
	r.enter()
}

// enter connects the run, its groups and its keys to the slots of the tree.
func (r *Run) enter() {
	s := &r.st
	if r.turn == nil {
		r.turn = &turn{}
	}
	if o := r.outer; o != nil {
		limit, _ := o.st.OwnSlots()
		r.turn.lends = o.turn.lends || o.items != nil && limit > 0
	}
	r.shareGroups()
	if r.tree.limit == 0 || r.items != nil && r.plan.composite {
		return // items that are composites hold only slots of their map
	}
	s.ShareTree(&r.tree.TreeSlots)
}

// hurries reports whether a run around this run is being stopped.
func (r *Run) hurries() bool {
	for o := r.outer; o != nil; o = o.outer {
		if o.st.StoppedFor() != CauseNone {
			return true
		}
	}
	return false
}

// children returns the nested runs that have not ended, in the order of their composites.
func (r *Run) children() []*Run {
	var refs []machine.Ref
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

// restInside suspends a nested run and its composite, until a node in the run can continue.
func (r *Run) restInside() {
	if r.stage != stageResting {
		r.stage = stageResting
		r.outer.st.Sleep(r.within.ref)
		r.tree.touch(r.outer)
	}
}

// restAll suspends the nested runs of a run that is being left. The caller ensures that no worker runs in them. Afterwards no nested run begins a
// node, even if it is being stopped. Otherwise the node could take the slot that an item of a map releases when the item is suspended.
func (r *Run) restAll(now int64) {
	if !r.nests {
		return
	}
	for _, c := range r.children() {
		c.leaving = true
		c.st.Leave()
		c.restAll(now)
		c.restInside()
	}
	r.flush(now)
}

// wakeOuter is called when a suspended nested run continues.
func (r *Run) wakeOuter(now int64) {
	o, ref := r.outer, r.within.ref
	o.wake(now)
	o.reentered = true
	if !o.st.IsExpanded(ref) {
		o.extra(ref).reentries++
	}
	o.st.Rouse(ref)
	o.flush(now) // logs these changes before the events inside
	o.tree.touch(o)
}

// putAside ends the nested runs of a run that ends in status RunSuspended.
func (r *Run) putAside() {
	if !r.nests {
		return
	}
	for _, c := range r.children() {
		c.ended = r.ended
		c.putAside()
		c.stage, c.verdict = stageConcluded, verdict{status: RunSuspended}
		c.st.DropChanges() // the log is closed, so it must not get the changes of nodes that became ready again after the snapshot
		c.disarmAll(true)
		c.tree.touch(c)
	}
}
