package kahn

import (
	"cmp"
	"container/heap"
	"encoding/json"
	"slices"
	"sync/atomic"

	"github.com/seed-c794f7ef/kahn/internal/due"
	"github.com/seed-c794f7ef/kahn/internal/saturate"
	"github.com/seed-c794f7ef/kahn/machine"
)

// composite is the record of a composite node, from its start on, and of a node that has been expanded.
type composite struct {
	child   *Run // the current, or the last, of the runs that perform it; nil for a loop that pauses since an earlier life
	working bool // a worker concludes the composite: its nested run has ended
	put     bool // the worker was given up because the run is being left: another one must conclude the composite

	before iterations     // of a loop
	pause  *pause         // of a loop that waits for its next iteration, or was interrupted doing so; else nil
	text   *iterationText // of a loop under a store
	stored int32          // outputs in before.all that have been given to the store
}

// iterationText is the output before the iteration with a number, as the codec has written it.
type iterationText struct {
	of  int
	raw json.RawMessage
}

// atWork returns the run nested in a composite that has not ended, or nil.
func (x *extra) atWork() *Run {
	if x.comp == nil || x.comp.child == nil || x.comp.child.concluded() {
		return nil
	}
	return x.comp.child
}

// path is the path of a node in the outermost run.
func (r *Run) path(ref Ref) string {
	if r.prefix == "" {
		return r.plan.names[ref]
	}
	return r.prefix + r.plan.names[ref]
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

// nested makes the run that performs a composite, or its part number index.
func (r *Run) nested(step *Step, p *Plan, prefix string, index int32) *Run {
	if r.cfg.test != nil {
		p = r.cfg.test.plan(p, r.plan.doubles[step.ref])
	}
	c := &Run{runGiven: r.runGiven}
	c.plan, c.cfg, c.unheld, c.from = p, r.tree.config(), false, nil
	c.stage = stageRunning // nothing keeps it from beginning
	c.log, c.single, c.manual = r.log, r.single, r.manual
	c.runNest = runNest{
		tree: r.tree, outer: r, nests: p.composite,
		turn:     &turn{order: append(slices.Clone(r.placeInTree()), r.plan.decl[step.ref], index)},
		instance: &instance{prefix: prefix, within: step},
	}
	c.limitTo(step)
	return c
}

// config is the config that all nested runs share: the outermost run's without the options that concern that one alone.
func (t *tree) config() *config {
	if t.cfg == nil {
		cfg := *t.root.cfg
		cfg.inputs, cfg.limit, cfg.timeout, cfg.estimates, cfg.sinks = nil, 0, 0, nil, nil
		t.cfg = &cfg
	}
	return t.cfg
}

// limitTo bounds a nested run by the timeouts of its composite's attempt.
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
	r.flush(now) // the start of the composite comes before the events inside
	r.timers++   // until the child's goroutines have returned
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

// setUp prepares a nested run to begin, with the lock held.
func (r *Run) setUp(c *Run) {
	c.initState()
	c.remaining = r.remainingAfter(c.within.ref)
	c.st.DrivenBy((*runHost)(c), &r.st)
	c.st.Park(r.st.ParksNodes())
	if c.items == nil { // a run of items has the prefix of the run around it
		c.tree.nested[c.prefix] = c
		c.tree.longest = max(c.tree.longest, len(c.prefix))
	}
	if r.st.IsLogged() {
		c.scope = &eventScope{c.plan, c.prefix, c.epoch}
		c.st.KeepLog()
		start := r.recorder.latest[c.within.ref].id
		c.recorder = &recorder{first: start, wave: start, ended: start, latest: make([]latest, len(c.plan.names))}
	}
	c.records = make([]record, len(c.plan.names))
	c.enter()
}

// childEnded is called when everything in a nested run is terminal. A worker concludes the composite, since that
// may take user code.
func (r *Run) childEnded(c *Run) {
	if d := r.durable; d != nil && d.failed == nil {
		d.outbox.ended = append(d.outbox.ended, c)
		r.unwritten++
		r.tree.touch(r.tree.root)
		return
	}
	c.returnTo()
}

// returnTo queues the composite of a nested run that has ended.
func (r *Run) returnTo() { r.outer.returnedTo(r.within.ref) }

// returnedTo queues a composite for a worker that concludes it.
func (r *Run) returnedTo(ref Ref) {
	r.st.EvaluateInline(ref)
	r.tree.touch(r)
}

// childLeft is called when the goroutines of a nested run that has ended have returned.
func (r *Run) childLeft() {
	if r.stage != stageOver {
		r.stage = stageOver
		r.outer.timers--
		r.tree.touch(r.outer)
	}
}

// returned concludes the composite of a nested run that has ended.
func (w *worker) returned() bool {
	r, ref := w.run, w.task.Ref
	r.st.Lock()
	x := r.extras[ref]
	w.step, x.comp.working = r.current(ref), true
	if r.leaving {
		r.armReturnGrace(ref, x)
	}
	if x.grace == nil && (r.st.Word(ref).Is(machine.WordStopping) || x.timedOut != timeoutNone) {
		r.armGrace(w.step, x) // there was no goroutine to wait for before
	}
	comp := x.comp
	if comp.pause != nil { // the pause was interrupted
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
	w.phase = phaseEngine
	return w.finishAs(c, attemptResult{}, true)
}

// ofChild returns the conclusion of a composite after the run of its sub-graph has ended.
func (w *worker) ofChild(c *Run) conclusion {
	v := &c.verdict
	if v.status == RunCompleted && c.st.AllSkipped() {
		return conclusion{Outcome: machine.Outcome{Status: Skipped}, skip: "every node of its graph was skipped"}
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

// outcome is the Result of a run that has ended.
func (r *Run) outcome() *Result {
	r.resMu.Lock()
	defer r.resMu.Unlock()
	if !r.summed {
		r.makeResult()
	}
	return &r.result
}

// spread carries a stop from the outermost run down to this one.
func (r *Run) spread() {
	if r.outer != nil {
		r.outer.spread()
		r.tree.touch(r.outer)
	}
	r.collectStops()
}

// input returns a root input of the run, or the default that its graph declares. The inputs of a nested run are the
// parameters of its composite, or the inputs given to Expand.
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
	return r.plan.net.Is(ref, machine.FlagComposite) || r.st.IsExpanded(ref)
}

// tree is the state that a run and the runs nested in it share besides the lock: the slots of Limit, which the leaves of the
// tree hold and composites do not, and the list of runs that a critical section has touched. Only a run whose plan has
// composites has one. All of it is guarded by the common lock.
//
// With one slot the order of everything is determined. Three rules make it so: a worker that may take something takes the
// first of the whole tree, not of its own run; tasks without a slot come before tasks with one; and while a worker evaluates
// something without a slot, no worker takes a task. So the next event is a function of the state of the tree alone,
// whichever worker comes first.
type tree struct {
	root    *Run
	cfg     *config // of the nested runs; nil before the first one
	workers int     // goroutines at work in all runs together, abandoned ones not counted
	limit   int     // slots of all runs together; 0 means no limit
	machine.TreeSlots
	waiting queue       // runs with a ready node that wants a slot, with one slot all that could go on; the best first; empty without a limit
	touched []*Run      // to be attended before the lock is released
	ending  []stopOrder // attempts whose contexts end when the lock is released
	keys    map[string]*machine.Slots
	flights map[place]*flight // of nodes that are memoized and have been expanded
	nested  map[string]*Run   // those that have not ended, by the prefix of the paths in them; without those of items
	longest int               // the length of the longest prefix that there was
	tokens  map[string][]*Run // runs that are nested in which a step waits, by its token, in the order of declaration
	steps   int64             // runs visited, by which tests check that the work is linear
	deltas  deltaCounts

	// Of a tree with one slot.
	coming bool   // a worker was started that has not taken its first task
	gated  []*Run // runs with gates that were not reached
}

// turn is the place of a run among those that wait for a slot: that of its best ready node, by priority, then by the
// longest remaining path up to the end of the outermost run, then by declaration, as if the graphs were one.
type turn struct {
	index    int  // in the queue plus one; 0 means that it is not in there
	gated    bool // it is among the tree's
	slotless bool // in a tree with one slot: its best node needs none
	lends    bool // it is inside an item of a map with a limit, to which the item's slot goes back while it waits
	priority int
	rank     int64
	order    []int32 // of the composites that the run is in, each followed by the run's number
	node     int32   // of the best ready node
}

// placeInTree is the order of the run's turn, nil for an outermost run.
func (r *Run) placeInTree() []int32 {
	if r.turn == nil {
		return nil
	}
	return r.turn.order
}

// touch notes a change of a run that the run's own worker may not see.
func (t *tree) touch(r *Run) {
	if !r.touched {
		r.touched = true
		t.touched = append(t.touched, r)
	}
}

// settle attends every run that was touched, and hands the free slots out.
func (t *tree) settle(now int64) {
	t.attend(now)
	if t.root.isLost() {
		t.touch(t.root) // which ends when no goroutine of any run is left
		t.attend(now)
		return
	}
	t.root.awaitToken(now)
	switch {
	case t.limit == 1:
		t.pass(now)
	// A worker that has been started and has not taken its task gets the next slot, and then attends the other runs.
	case len(t.waiting) > 0 && t.Used < t.limit:
		t.waiting[0].dispatch(now)
	}
	if t.root.leaving && t.workers == 0 { // only once every run that was touched has started its remaining work
		t.root.rest(now)
		t.touch(t.root)
		t.attend(now)
	}
}

// attend logs the changes of every run that was touched, updates its place in the queue, and starts a worker if it needs one.
func (t *tree) attend(now int64) {
	for len(t.touched) > 0 {
		r := t.touched[len(t.touched)-1]
		t.touched = t.touched[:len(t.touched)-1]
		t.steps++
		r.touched = false
		if r.outer != nil && r.concluded() && !r.isPutAway() {
			r.conclude(now) // and nothing else: a worker of the outer run may be reading the verdict, without the lock
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

// pass starts, in a tree with one slot, the first of all tasks.
func (t *tree) pass(now int64) {
	for !t.coming && !t.root.single.halts() {
		switch {
		case len(t.waiting) > 0 && t.hasTurn(t.waiting[0]):
			t.coming = true
			t.waiting[0].st.Announce()
			return
		case len(t.gated) == 0:
			return
		}
		// No other task comes before a gate: it is reached at once.
		r := t.gated[0]
		t.gated = t.gated[1:]
		r.turn.gated = false
		for g, ok := r.st.NextGate(); ok; g, ok = r.st.NextGate() {
			r.reachGate(g.Ref, now)
		}
		t.touch(r)
		t.attend(now)
	}
}

// hasTurn reports whether a run has the first task, in a tree with one slot.
func (t *tree) hasTurn(r *Run) bool {
	return !t.root.single.halts() && len(t.waiting) > 0 && t.waiting[0] == r && (r.turn.slotless || t.Used < t.limit)
}

// takeTurn is [machine.Locked.Next] for a worker of a tree with one slot, up to the first task that is for a worker.
func (w *worker) takeTurn() (machine.Task, bool) {
	r := w.run
	t, s := r.tree, &r.st
	for t.touch(r); ; t.touch(r) {
		t.attend(w.now)
		if !t.hasTurn(r) {
			return machine.Task{}, false
		}
		task, ok := s.Next()
		switch {
		case ok && task.Gate: // only held tasks come before it
			r.reachGate(task.Ref, w.now)
		case ok && !task.Check && r.plan.net.Is(task.Ref, machine.FlagComposite):
			w.beginInside(task)
		default:
			if ok && (task.Check || !s.InTree() || r.plan.net.Is(task.Ref, machine.FlagInline)) {
				w.evaluates()
			}
			return task, ok
		}
	}
}

// queue puts a run into its place among those that wait for a slot, or with one slot for anything.
func (t *tree) queue(r *Run) {
	s := &r.st
	wants := s.WantsSlot()
	switch {
	case t.limit == 1:
		if _, inline := s.FirstInline(); inline {
			wants = true
		}
		if s.HasGates() && !r.turn.gated {
			r.turn.gated = true
			t.gated = append(t.gated, r)
		}
	case !s.InTree():
		return
	}
	r.turn.update(r)
	switch {
	case wants && r.turn.index == 0:
		heap.Push(&t.waiting, r)
	case wants:
		heap.Fix(&t.waiting, r.turn.index-1)
	case r.turn.index > 0:
		heap.Remove(&t.waiting, r.turn.index-1)
	}
}

// update computes the place of the run's best ready node.
func (x *turn) update(r *Run) {
	s := &r.st
	if first, ok := s.FirstInline(); ok && r.tree.limit == 1 {
		x.slotless, x.priority, x.rank, x.node = true, 0, 0, r.plan.decl[first]
		return
	}
	if ref, ok := s.FirstReady(); ok {
		x.slotless = !s.InTree()
		x.priority, x.rank = r.plan.node(ref).Priority, saturate.Add(s.Rank(ref), r.remaining)
		x.node = r.plan.decl[ref]
	}
}

// grants reports whether the best ready node of the run may have a slot: one is free, and no other run is before it.
func (r *Run) grants() bool {
	t := r.tree
	if t.Used >= t.limit {
		return false
	}
	if len(t.waiting) == 0 || t.waiting[0] == r {
		return true
	}
	mine := *r.turn
	mine.update(r)
	return !t.waiting[0].turn.before(&mine)
}

func (x *turn) before(y *turn) bool {
	if x.slotless != y.slotless {
		return x.slotless
	}
	if c := cmp.Or(cmp.Compare(y.priority, x.priority), cmp.Compare(y.rank, x.rank)); c != 0 {
		return c < 0
	}
	both := min(len(x.order), len(y.order))
	return cmp.Or(slices.Compare(x.order[:both], y.order[:both]), cmp.Compare(x.at(both), y.at(both))) < 0
}

// at is the place of the composite at a depth of the nesting, or of the node itself.
func (x *turn) at(depth int) int32 {
	if depth < len(x.order) {
		return x.order[depth]
	}
	return x.node
}

// queue is a heap of runs that wait for a slot.
type queue []*Run

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].turn.before(q[j].turn) }

func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].turn.index, q[j].turn.index = i+1, j+1
}

func (q *queue) Push(x any) {
	r := x.(*Run)
	*q = append(*q, r)
	r.turn.index = len(*q)
}

func (q *queue) Pop() any {
	last := len(*q) - 1
	r := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	r.turn.index = 0
	return r
}

// shareGroups connects this run to the limits that the tree shares: the slots and rates of keys, of the whole run, and of
// groups that a graph around this one declares.
func (r *Run) shareGroups() {
	s, t := &r.st, r.tree
	s.ShareLimits(&t.root.st)
	for i := range r.plan.groups {
		g := &r.plan.groups[i]
		switch own := s.SlotsOf(int32(i)); {
		case g.key && own != nil:
			if known := t.keys[g.Name]; known != nil {
				s.UseSlots(int32(i), known)
				continue
			}
			if s.Pooled() && !own.IsShared() {
				t.root.shareKey(own, g.Name)
			}
			t.keys[g.Name] = own
		case g.inherited:
			if common := r.outer.slotsOf(g.Name); common != nil {
				s.UseSlots(int32(i), common)
			}
		}
	}
}

// slotsOf returns the slots of a group that the run's graph, or the nearest around it, declares; nil if it has no limit.
func (r *Run) slotsOf(name string) *machine.Slots {
	for ; r != nil; r = r.outer {
		i, ok := r.plan.groupIndex[name]
		if !ok || r.plan.groups[i].inherited {
			continue
		}
		if g := &r.plan.groups[i]; r.nests && !r.plan.composite && (g.Limit > 0 || g.Rate != Rate{}) { // no node of the graph may be a member
			r.st.MakeSlots(i)
		}
		return r.st.SlotsOf(i)
	}
	return nil
}

// remainingAfter is the longest path that remains after a node, in the run and in the runs around it.
func (r *Run) remainingAfter(ref Ref) int64 {
	longest := int64(0)
	for _, a := range r.plan.net.Out(ref) {
		longest = max(longest, r.st.Rank(a.To()))
	}
	return saturate.Add(longest, r.remaining)
}

// addToken notes that a step of a run waits under a token. A token that equals the id of its node is left out: the path
// finds it.
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
		return slices.Compare(x.turn.order, y.turn.order)
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

// makeTree makes the run the root of a tree, when it begins, or when the first of its nodes is expanded.
func (r *Run) makeTree() {
	r.tree = &tree{root: r, limit: r.cfg.limit, keys: map[string]*machine.Slots{}, nested: map[string]*Run{}}
	t := r.tree
	if t.workers = r.workers; t.limit > 0 {
		_, t.Used = r.st.OwnSlots()
	}
	t.coming = t.limit == 1 && r.st.IsAnnounced()
	r.enter()
}

// enter makes the run's slots, and those of its groups and keys, the tree's.
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
		return // the items of such a map hold slots of the map alone
	}
	s.ShareTree(&r.tree.TreeSlots)
}

// hurries reports whether a run around this one is being stopped.
func (r *Run) hurries() bool {
	for o := r.outer; o != nil; o = o.outer {
		if o.st.StoppedFor() != CauseNone {
			return true
		}
	}
	return false
}

// contends makes the tree check again whether a node of the run gets a slot.
func (r *Run) contends() {
	if r.turn != nil {
		r.tree.touch(r)
	}
}

// single is the additional state of a run with one slot, shared by its tree. Such a run orders everything that can be ordered:
//
//   - Timers of equal time go off in any order. So every holder of the lock, a worker that reports or a timer, rings all alarms
//     that are due first: those of equal time in the order of arming, and all of them before what a step does at that time.
//   - What alarms make due that needs no slot, composites, checks and gates, comes before the result of a step that returns at the time of
//     the alarm: that is put off meanwhile.
//   - When an attempt is interrupted nothing is begun before it has returned, or was abandoned: otherwise their order would be
//     random.
//   - A gate that has its answer is reached at once: its successors may need no slot, and then come before nodes that do. When
//     the item of a map waits, the next item may begin; so the gates inside of items are reached at once, too, if the map has a
//     limit. Other gates that are going to wait are reached when nothing can be started any more.
//   - While a worker evaluates something without a slot, nothing is begun. See also, for runs with composites, tree.
//
// The lock guards all fields but next.
type single struct {
	alone       int               // workers that evaluate something without a slot
	alarms      due.Queue[*alarm] // those that are armed
	next        atomic.Int64      // when the first of them is due, for a look without the lock
	interrupted *Step             // the last attempt that held the slot and was interrupted, or nil
	rang        int64             // when an alarm has rung, the last time
	off         []*putOff         // results that are put off
}

// putOff is the result of an attempt that was put off, and its worker, which the run counts meanwhile.
type putOff struct {
	worker   worker
	c        conclusion
	res      attemptResult
	goOn     bool
	fallback bool // it is that of a fallback
}

// putsOff reports whether the result of an attempt, which holds the slot and has returned at the given time, has to wait.
func (r *Run) putsOff(now int64) bool {
	return r.single != nil && r.single.rang == now && r.manual == nil && r.slotlessDue()
}

// slotlessDue reports whether something is evaluated, or about to be begun, that needs no slot, while an attempt holds it. What an interrupted
// attempt keeps from beginning does not count, and a run without its store begins nothing.
func (r *Run) slotlessDue() bool {
	if r.isLost() {
		return false
	}
	q := r.single
	if t := r.tree; t != nil {
		return q.alone > 0 || t.coming || !q.interrupts() && (len(t.gated) > 0 || len(t.waiting) > 0 && t.waiting[0].turn.slotless)
	}
	_, inline := r.st.FirstInline()
	return q.alone > 0 || r.st.IsAnnounced() || !q.interrupts() && (inline || r.st.HasGates())
}

// putOff ends the worker of an attempt whose result is put off, and releases the lock. The attempt has returned in time, however long the
// evaluation takes that comes before.
func (w *worker) putOff(c conclusion, res attemptResult, goOn, fallback bool) bool {
	q := w.run.single
	if x := w.run.extras[w.step.ref]; x != nil {
		w.run.disarm(&x.attempt)
	}
	q.off = append(q.off, &putOff{*w, c, res, goOn, fallback})
	w.flight = nil // the copy has it
	w.run.release(w.now)
	return false
}

// interrupts reports whether an attempt that was interrupted has not returned.
func (q *single) interrupts() bool {
	return q != nil && q.interrupted != nil && q.interrupted.run.current(q.interrupted.ref) == q.interrupted
}

// halts reports whether nothing may be begun now: a worker evaluates something, or an attempt that was interrupted has not returned.
func (q *single) halts() bool { return q != nil && (q.alone > 0 || q.interrupts()) }

// needsNoSlot reports whether what performs a node, in a run with one slot, evaluates it alone.
func (r *Run) needsNoSlot(ref Ref) bool {
	return r.plan.net.Is(ref, machine.FlagInline) || r.performsInside(ref) || r.tree != nil && !r.st.InTree()
}

// note is called with the lock held after every change of the alarms.
func (q *single) note() { q.next.Store(q.alarms.Due()) }

// isDue reports whether an alarm may be due by now: at [math.MaxInt64], which next is without alarms, there may be none.
func (q *single) isDue(now int64) bool { return q != nil && q.next.Load() <= now }

// ringDue rings the alarms of a run with one slot that are due, with the lock held.
func (r *Run) ringDue(now int64) {
	q := r.single
	for q.isDue(now) {
		a, ok := q.alarms.Next(now)
		if !ok {
			return
		}
		q.note()
		q.rang = now
		if a.timer.Stop() {
			a.run.timers--
		} // else it finds nothing left to do
		a.run.rung(a, now)
		if r.tree != nil {
			r.tree.touch(a.run)
			r.tree.attend(now)
		}
	}
}

// rung calls an alarm back, unless it was disarmed or its run has ended.
func (r *Run) rung(a *alarm, now int64) {
	if !a.over && !r.concluded() {
		r.end(a)
		a.ring(now)
	}
}

// reachEarly reaches, in a run with one slot, the gates that let other nodes begin, with the lock held: those that have
// their answer, and those whose wait lets another item of a map begin.
func (r *Run) reachEarly(now int64) {
	r.st.TakeGates(func(ref Ref) bool {
		_, answered := r.signals[ref]
		return answered || r.turn != nil && r.turn.lends || r.cfg.test != nil && r.plan.doubles[ref].role == TestAuto
	}, func(ref Ref) { r.reachGate(ref, now) })
}
