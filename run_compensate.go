package kahn

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/internal/saturate"
	"github.com/seed-c794f7ef/kahn/machine"
)

// defaultUndoAttempts is the MaxAttempts of a compensation if its CompensateRetry sets none.
const defaultUndoAttempts = 10

// policy returns the retry policy of a compensation.
func (x *compensation) policy() Retry {
	p := x.retry
	if p.MaxAttempts == 0 {
		p.MaxAttempts = defaultUndoAttempts
	}
	return p.withDefaults()
}

// undoing is the state of a run that undoes nodes. Each run of a tree undoes its own nodes, in its own order. If a run undoes a composite, the runs
// nested in this composite undo their nodes when the composite's turn comes.
type undoing struct {
	nodes   map[machine.Ref]*undo
	status  RunStatus       // the status (not RunCompleted) because of which the run first began to undo its nodes; RunPending if it undoes them for another reason
	whole   bool            // whether the nested run keeps its verdict although its nodes are undone, see insideState.Whole
	again   bool            // whether the run performs only the compensations that a repair has begun again, see Run.repeatsNode
	open    bool            // whether the restored nested run had failed because of a compensation: if a repeated one fails, the run fails again
	by      *Run            // the run that waits for the undos in progress, and counts their goroutines and timers; nil if no undo is in progress
	then    func(now int64) // called when all nodes are undone; nil if `by` is the run itself
	failed  []*undoFailure  // the failed compensations in this run and its nested runs, in the order of failure
	fails   int             // how many of these count: see undoFailure.gone
	delayed []*undo         // the restored undos, until the run begins again to undo its nodes: see delayUndos
	active  []*undo         // the undos, in this run and in nested runs, that are running or backing off and for which this run waits: see `by`
	abort   *stopCause      // in the outermost run: why no more nodes are undone; nil while nodes may be undone

	busy     int                      // in the outermost run: the number of runs of the tree that undo nodes now, plus the number of undos whose field `resumed` is true
	fresh    []*undo                  // in the outermost run: the undos that a redrive has changed; empty once the change is recorded
	times    map[string]int           // in the outermost run: maps the path of a node to the number of times it was undone, see Step.IdempotencyKey
	reported map[string]*undoFailure  // in the outermost run: the failed compensations, by the paths of the nodes
	kept     map[place][]*undoFailure // in the outermost run: the failed compensations inside each expanded node whose graph is not known, see reportKept
}

// undo is the compensation of a node. The field `cut` is the number of attempts that do not count towards MaxAttempts, because they were interrupted
// or crashed. The field `crashes` says how many of the latest attempts, in a row, crashed.
type undo struct {
	run                     *Run
	ref                     machine.Ref
	status                  Compensation
	attempts                int32
	cut, crashes            int32      // see above
	step                    *Step      // the Step of the running attempt, or nil
	stop                    *stopCause // why the running attempt must stop, or nil
	err                     error      // the error of the last attempt
	began, ended            int64      // when the first attempt began, and when the undo succeeded or was given up, in ns since the run's start
	due                     int64      // when the next attempt begins, after a backoff
	before                  int32      // how often the node was undone before this undo
	inside                  []*Run     // for a composite: the nested runs that are not undone yet; the last one is undone next
	resumed                 bool       // whether the undo began before the run was resumed, and performUndos has not taken the node since
	again                   bool       // for a composite: whether the undo performs only the compensations inside that a repair has begun again
	regained                bool       // whether the node's step was called again to get the graph that the step had returned before the run was resumed
	attempt, grace, backoff *alarm

	by     *Request     // if the node was undone by hand: the request that stated this; otherwise nil
	noted  uint64       // the number of the last transaction that records the undo
	stored Compensation // the status of the undo in the store
}

// compensate calls the node's Compensate function or, if the node has none, the step function byKind.
func (r *Run) compensate(ctx context.Context, s *Step, byKind StepFunc) error {
	x := s.node().Undo
	if x.do != nil {
		return x.do(ctx, s)
	}
	_, err := byKind(ctx, s)
	return err
}

// ownUndo returns the compensation of a node. It returns nil if the node has none. It also returns nil for a map, since the map's compensation undoes
// the items.
func (r *Run) ownUndo(ref machine.Ref) *compensation {
	if n := r.plan.node(ref); n.Map == nil || r.items != nil {
		return n.Undo
	}
	return nil
}

// allowUndo prepares the run, and the runs around it, so that nodes inside an expanded node can be undone.
func (r *Run) allowUndo() {
	for o := r; o != nil; o = o.outer {
		o.st.AllowUndo()
	}
}

// outdateUndoes makes the next transaction write the composites around the run. It is called when a node of the run expands into a graph with nodes
// that may have to be undone. The records of the composites state whether there are such nodes inside, see insideState.Undoes. When outdateUndoes
// reaches a run that already had such nodes, it stops, since the records of the composites around that run state this already.
func (r *Run) outdateUndoes() {
	for o := r; o.outer != nil && !o.st.AllowsUndo(); o = o.outer {
		o.outer.outdated(o.within.ref)
	}
}

// effect reports whether a node may have had an effect outside the run, and whether it certainly had one. The caller holds the run's lock.
func (r *Run) effect(ref machine.Ref) (perhaps, certain bool) {
	rec, x, w := &r.records[ref], r.extras[ref], r.st.Word(ref)
	if rec.attempts == 0 || r.plan.net.Is(ref, machine.FlagMocked) && r.mockedUndo(ref) == nil || x != nil && x.Inherited {
		return false, false
	}
	known, memoized := int32(0), false // known is the number of attempts that certainly had no effect
	if x != nil {
		memoized = w.Status() == Completed && x.Memoized && !rec.fallback
		if known = x.Harmless; memoized {
			known++
		}
	}
	return rec.attempts > known, w.Status() == Completed && !memoized && !rec.fallback
}

// undoesNode reports whether the run still has to undo a node.
func (r *Run) undoesNode(ref machine.Ref) bool {
	if !r.st.Word(ref).Status().Terminal() { // a restored cleanup composite is still running; after its end, `reverses` examines the composite again
		return false
	}
	if r.undo != nil && r.undo.nodes[ref] != nil && r.undo.nodes[ref].status != CompensationRunning {
		return r.repeatsInside(ref)
	}
	if r.ownUndo(ref) != nil {
		perhaps, _ := r.effect(ref)
		return perhaps || r.repeatsInside(ref)
	}
	return len(r.undoable(ref)) > 0 || r.regains(ref)
}

// undoable returns those nested runs of a composite that have nodes to undo. The composite, or its attempt, has ended.
func (r *Run) undoable(ref machine.Ref) (list []*Run) {
	x := r.extras[ref]
	if x == nil || x.comp == nil {
		return nil
	}
	for _, c := range x.comp.past {
		if c.undoesSome() {
			list = append(list, c)
		}
	}
	if c := x.comp.child; c != nil && c.undoesSome() {
		list = append(list, c)
	}
	return list
}

// undoesSome reports whether at least one node of the run must be undone.
func (r *Run) undoesSome() bool {
	if !r.st.AllowsUndo() {
		return false
	}
	r.st.CountVisits(len(r.records))
	for ref := range r.records {
		if r.undoesNode(machine.Ref(ref)) {
			return true
		}
	}
	return false
}

// The method `reverses` is called when all nodes except the cleanup nodes and the end node have ended, and again when all nodes except the end node
// have ended. If nodes must be undone, it begins to undo them and returns true. A run that is about to end with a status other than RunCompleted
// undoes all its nodes. Any other run undoes only the nodes inside the expanded nodes for which isCut returns true. The run of a map's items undoes
// only these nodes, whatever its status is, since the failure of an item concerns only the map.
func (r *Run) reverses() bool {
	if r.isLost() || r.st.IsClosed() || r.cfg.reads || r.st.Untroubled() && r.undo == nil {
		return false
	}
	if r.items == nil {
		status, _ := r.st.RunStatus(machine.StatusRule(r.cfg.statusRule))
		if r.undo != nil && status == RunCompleted {
			if status = cmp.Or(r.undo.status, status); r.undo.fails > 0 && !r.undo.whole {
				status = RunFailed
			}
		}
		if status != RunCompleted {
			return r.reverse(r.undoesNode, status, r, nil)
		}
	}
	for ref := range r.extras {
		if r.isCut(ref) {
			return r.reverse(func(ref machine.Ref) bool { return r.isCut(ref) && r.undoesNode(ref) }, RunPending, r, nil)
		}
	}
	return false
}

// isCut reports whether a stop cut off an expanded node: the node was expanded before the run was resumed, and when the stop ended it, a node inside
// had not ended or was being undone. The stop could not undo the nodes inside, since the run did not know their graph at that time.
func (r *Run) isCut(ref machine.Ref) bool {
	return r.regains(ref) && r.st.Word(ref).Status() != Completed && r.extras[ref].kept.Inside.isOpen()
}

// undoesAfterEnd begins to undo nodes if the end node has turned a completed run into a failed one. It returns true if the run must wait until these
// nodes are undone.
func (r *Run) undoesAfterEnd(now int64) bool {
	if !r.st.AllowsUndo() || r.plan.end == noRef || r.st.IsClosed() || r.cfg.reads {
		return false
	}
	v := verdictOf(&r.st, r.plan.end, r.cfg.statusRule, r.endOutput())
	if v.status == RunCompleted || !r.reverse(r.undoesNode, v.status, r, nil) {
		return false
	}
	r.performUndos(now)
	return !r.st.Done()
}

// reverse begins to undo those nodes of the run for which the function `undoes` returns true. The run `by` waits until these nodes are undone. The
// result is false if there is no node to undo.
func (r *Run) reverse(undoes func(machine.Ref) bool, status RunStatus, by *Run, then func(now int64)) bool {
	if r.st.Reverse(undoes, by == r) == 0 {
		return false
	}
	if root := r.outermost(); root.undo == nil {
		root.undoes()
		root.outdate()
	}
	r.outermost().undo.busy++
	r.shareGroupsOf() // reconnects a nested run to the pool, which the run left when it ended
	x := r.undoes()
	x.by, x.then = by, then
	if by == r {
		if x.status == RunPending {
			x.status = status
			r.outdate()
		}
		if r.outer == nil {
			r.disarm(&r.deadline) // the deadline does not bound the undoing
		}
	}
	by.undoes()
	if r.tree != nil {
		r.tree.touch(r)
	}
	return true
}

// The method `undoes` returns r.undo. If r.undo is nil, the method creates it.
func (r *Run) undoes() *undoing {
	if r.undo == nil {
		r.undo = &undoing{nodes: map[machine.Ref]*undo{}}
	}
	return r.undo
}

// performUndos asks the State which nodes must be undone next, and begins to undo these nodes. The caller holds the run's lock.
func (r *Run) performUndos(now int64) {
	if r.undo.by == nil || r.outermost().leaving || r.isLost() {
		return
	}
	r.landUndos(now)
	r.delayUndos(now)
	for !r.holdsBack() {
		ref, ok := r.st.NextUndo()
		if !ok {
			break
		}
		u := r.undo.nodes[ref]
		switch {
		case r.repeatsInside(ref):
			u = &undo{run: r, ref: ref, status: CompensationRunning, began: now, inside: r.undoable(ref), again: true}
		case u == nil:
			u = &undo{run: r, ref: ref, status: CompensationRunning, began: now, before: r.timesUndone(r.path(ref)), again: r.undo.again}
			r.undo.nodes[ref] = u
			if r.ownUndo(ref) == nil {
				u.inside = r.undoable(ref)
			}
		}
		u.taken()
		switch {
		case u.own() == nil && !r.regains(ref):
			r.st.PauseUndo(ref) // the composite itself needs no slot: the nodes inside take slots
			u.nextInside(now)
		case u.due > now: // the node still backs off, since before the run was resumed
			u.pause(u.rules().policy().bound(time.Duration(u.due - now)))
		default:
			u.begin(now)
		}
	}
}

// delayUndos lets the restored undos back off that backed off before the run was resumed. They neither take nor await slots before their backoffs end,
// as if the run had not been interrupted.
func (r *Run) delayUndos(now int64) {
	list := r.undo.delayed
	r.undo.delayed = nil
	for _, u := range list {
		if u.due > now && r.undo.nodes[u.ref] == u && u.own() != nil && !r.repeatsInside(u.ref) && r.st.DelayUndo(u.ref) {
			u.taken()
			u.backOff(u.rules().policy().bound(time.Duration(u.due - now)))
		}
	}
}

// The method `taken` records that performUndos has taken a node whose undo began before the run was resumed. It does nothing for any other node.
func (u *undo) taken() {
	if u.resumed {
		u.resumed = false
		u.run.outermost().undo.busy--
	}
}

// nextInside begins to undo the composite's next nested run, from the last to the first. If none is left, it ends the undo of the composite or, after
// a repair, calls `repeated`.
func (u *undo) nextInside(now int64) {
	r := u.run
	for len(u.inside) > 0 {
		last := len(u.inside) - 1
		c := u.inside[last]
		u.inside = u.inside[:last]
		undoes := c.undoesNode
		if u.again {
			undoes, c.undoes().again = c.repeatsNode, true
		}
		if c.reverse(undoes, RunPending, r.undo.by, u.nextInside) {
			c.performUndos(now)
			return
		}
	}
	if r.ownUndo(u.ref) != nil {
		u.repeated(now)
		return
	}
	u.status = r.undoneInside(u.ref)
	// The store records this undo as done if the undo has called the composite's step again, or if the store has recorded the undo as running. The
	// records of the nodes inside state which of these nodes were undone.
	if u.regained || u.stored == CompensationRunning {
		u.status, u.ended = CompensationDone, now
		u.note()
	}
	u.over(now)
}

// begin begins an attempt to undo a node. A durable run calls the compensation only after the store has recorded the start of the attempt.
func (u *undo) begin(now int64) {
	r, by := u.run, u.run.undo.by
	if stop := r.outermost().undoes().abort; stop != nil {
		u.fail(stop.err, now)
		return
	}
	if most := r.mostCrashes(u.ref); most >= 0 && int(u.crashes) > most {
		u.fail(fmt.Errorf("%w: %d times in a row", ErrCrashed, u.crashes), now)
		return
	}
	u.attempts++
	u.due = 0
	step := &Step{run: r, ref: u.ref, attempt: u.attempts, flags: stepUndo | stepDetached}
	if r.st.Word(u.ref).Is(machine.WordSubstituted) {
		step.flags |= stepSubstituted
	}
	u.step, u.stop = step, nil
	by.undo.active = append(by.undo.active, u)
	by.enlist()
	if u.own() == nil {
		step.flags = step.flags&^stepUndo | stepAgain
		step.attempt = r.records[u.ref].attempts
		u.armTimeout(now)
		u.launch(step, nil)
		return
	}
	_, certain := r.effect(u.ref)
	for o := r; o != nil; o = o.outer {
		o.flush(now) // the end of a node around this one may be the reason for the undo
	}
	r.event(entry{kind: evNodeCompensating, ref: u.ref, attempt: u.attempts, at: now, arg: event.Compensation{Certain: certain, Err: u.err}})
	recorded := u.note()
	if d := r.durable; recorded != nil {
		d.outbox.begins++
	} else {
		u.armTimeout(now)
	}
	u.launch(step, recorded)
}

// launch performs an attempt on its own goroutine. In a run that a Coordinator drives, launch leaves the attempt to the Coordinator.
func (u *undo) launch(step *Step, recorded *writing) {
	if h := u.run.manual; h != nil {
		h.undos = append(h.undos, undoCall{u, step})
		return
	}
	go u.perform(step, recorded)
}

// The method `rules` returns the compensation that the undo performs. If there is none, the attempt only calls the node's step again to get the
// node's graph. For such an attempt the method returns a compensation that has only the node's Timeout.
func (u *undo) rules() *compensation {
	if x := u.own(); x != nil {
		return x
	}
	return &compensation{timeout: max(u.run.plan.node(u.ref).Timeout, 0)}
}

// armTimeout arms the timeout of the attempt.
func (u *undo) armTimeout(now int64) {
	if d := u.rules().timeout; d > 0 {
		u.step.endBy(saturate.Add(now, int64(d)))
		u.timeOutIn(d)
	}
}

func (u *undo) timeOutIn(d time.Duration) {
	u.attempt = u.run.undo.by.after(d, func(int64) { u.halt(&stopCause{ErrTimeout, context.DeadlineExceeded}) })
}

// perform calls the compensation. If the attempt only has to get the node's graph (see rules), perform calls the step instead. In a durable run it
// first waits until the store has recorded the start of the attempt.
func (u *undo) perform(step *Step, recorded *writing) {
	err := ErrGoexit
	defer func() { u.returned(step, err) }()
	if recorded != nil {
		<-recorded.done
		if err = u.mayBegin(step, recorded); err != nil {
			return
		}
		err = ErrGoexit
	}
	result := contain(func() error {
		if step.flags&stepUndo == 0 {
			return u.regain(step)
		}
		step.forgetMemos()
		if mock := u.run.mockedUndo(u.ref); mock != nil {
			return mock.perform(step.node(), step).err
		}
		if u.run.wrapped {
			_, err := u.run.step(step, step)
			return err
		}
		return u.run.compensate(step, step, u.run.step)
	})
	err = result
}

// mayBegin is called when the store has recorded, or has failed to record, the start of an attempt. It arms the attempt's timeout, or returns an
// error if the attempt must not begin.
func (u *undo) mayBegin(step *Step, recorded *writing) error {
	r, now := u.run, u.run.now()
	r.st.Lock()
	d := r.durable
	if d.failed == nil && recorded.err == nil && !time.Now().Before(d.expires) {
		root := r.outermost()
		root.lose(fmt.Errorf("%w: the lease has run out", ErrStore))
		defer root.release(now)
	} else {
		defer r.st.Unlock()
	}
	if d.failed != nil || recorded.err != nil || u.step != step || u.stop != nil {
		return errNotCalled
	}
	u.armTimeout(now)
	return nil
}

// halt stops the running attempt: it cancels the attempt's context. If the attempt does not return within CancelGrace, halt abandons it.
func (u *undo) halt(cause *stopCause) {
	if u.step == nil || u.stop != nil {
		return
	}
	u.stop = cause
	by, step := u.run.undo.by, u.step
	by.orderStop(step, cause)
	u.graceEnds(by.cfg.cancelGrace)
}

// graceEnds makes the run abandon the attempt if the attempt has not returned after the duration d.
func (u *undo) graceEnds(d time.Duration) {
	by, step, cause := u.run.undo.by, u.step, u.stop
	u.grace = by.after(d, func(now int64) {
		if u.step != step {
			return
		}
		u.run.manual.lapse(step)
		u.run.leftBehind(u.ref)
		by.dismiss()
		u.leave()
		if u.run.isLost() || cause.err == ErrLeft {
			u.putOff()
			return
		}
		u.fail(fmt.Errorf("%w: %w", cause.err, errAbandoned), now)
	})
}

// putOff ends an attempt whose result does not count, because the run is being left or has lost its store. When the run continues, another attempt
// begins.
func (u *undo) putOff() {
	u.cut++
	u.run.st.PauseUndo(u.ref)
	u.run.st.ContinueUndo(u.ref)
	u.note()
}

// leave disarms the timers of the attempt or the backoff that ends, and removes the undo from the active undos.
func (u *undo) leave() {
	by := u.run.undo.by
	by.disarm(&u.attempt)
	by.disarm(&u.grace)
	by.disarm(&u.backoff)
	u.step = nil
	by.undo.active = slices.DeleteFunc(by.undo.active, func(other *undo) bool { return other == u })
}

// The method `returned` ends an attempt whose compensation has returned.
func (u *undo) returned(step *Step, err error) {
	step.returned()
	if err == nil {
		u.settle(step, nil, errorFacts{}, 0)
		return
	}
	var facts errorFacts
	var random float64
	known := ErrGoexit
	defer func() { u.settle(step, known, facts, random) }() // deferred, since a method of the error or the host's random source may call Goexit
	facts = inspectError(err)
	known = bounded(err)
	_ = contain(func() error {
		random = u.run.random()
		return nil
	})
}

// settle ends an attempt after its error was inspected.
func (u *undo) settle(step *Step, err error, facts errorFacts, random float64) {
	r := u.run
	now := r.now()
	r.st.Lock()
	if u.step != step { // the attempt was abandoned
		r.st.Unlock()
		return
	}
	by, stop := r.undo.by, u.stop
	by.dismiss()
	u.leave()
	switch {
	case r.isLost(), err != nil && stop != nil && stop.err == ErrLeft:
		u.putOff()
	case err == errNotCalled && stop == nil:
		u.attempts--
		u.fail(r.durable.failed, now)
	case err == errNotCalled:
		u.fail(stop.err, now)
	case stop != nil && stop.err == ErrTimeout: // an attempt that outlasts its timeout fails, even if it returned no error
		u.failed(timeoutAfter(u.rules().timeout, err), CauseTimeout, errorFacts{}, random, now)
	case err == nil && u.own() == nil:
		r.st.PauseUndo(u.ref)
		u.regained, u.err, u.inside = true, nil, r.undoable(u.ref)
		u.nextInside(now)
	case err == nil:
		u.status, u.err, u.ended = CompensationDone, nil, now
		r.countUndone(r.path(u.ref))
		u.note()
		r.event(entry{kind: evNodeCompensated, ref: u.ref, attempt: u.attempts, at: now, arg: event.Compensation{Duration: time.Duration(now - u.began)}})
		u.over(now)
	case stop != nil:
		u.fail(err, now)
	default:
		kind := causeOfEnd(err)
		if kind == CauseNone {
			kind = facts.cause()
		}
		u.failed(err, kind, facts, random, now)
	}
	if by.tree != nil {
		by.tree.touch(by)
	}
	r.release(now)
}

// The method `failed` handles a failed attempt: it begins a backoff before another attempt, or gives up.
func (u *undo) failed(err error, kind CauseKind, facts errorFacts, random float64, now int64) {
	policy := u.rules().policy()
	delay, refused := policy.next(int(u.attempts-u.cut), kind, facts.hint(), random)
	if u.err, u.crashes = err, 0; facts.permanent || facts.abortRun || refused != 0 {
		u.fail(err, now)
		return
	}
	u.due = saturate.Add(now, int64(delay))
	u.note()
	u.pause(delay)
}

// pause delays the next attempt.
func (u *undo) pause(delay time.Duration) {
	u.run.st.PauseUndo(u.ref)
	u.backOff(delay)
}

func (u *undo) backOff(delay time.Duration) {
	r, by := u.run, u.run.undo.by
	by.undo.active = append(by.undo.active, u)
	u.backoff = by.after(delay, func(int64) {
		u.leave()
		u.due = 0
		r.st.ContinueUndo(u.ref)
		if r.tree != nil {
			r.tree.touch(r)
		}
	})
}

// fail ends the undo of a node that could not be undone: its compensation has failed.
func (u *undo) fail(err error, now int64) {
	r := u.run
	u.status, u.err, u.ended = CompensationFailed, err, now
	if x := r.extras[u.ref]; u.own() == nil && x != nil && x.kept != nil {
		x.kept.lost = true
	}
	r.reportUndone(r.path(u.ref), err, r.timeAt(now))
	for o := r; o != nil; o = o.outer {
		if o.undo.open { // the nested run has ended
			o.judgeUndone(&o.verdict)
		}
	}
	u.note()
	r.event(entry{kind: evNodeCompensated, ref: u.ref, attempt: u.attempts, at: now, arg: event.Compensation{Err: u.err, Duration: time.Duration(now - u.began)}})
	u.over(now)
}

// note makes the next transaction record the state of the compensation. It returns this transaction, or nil if no transaction has to record the
// state.
func (u *undo) note() *writing {
	d := u.run.durable
	if d == nil || d.failed != nil || u.own() != u.run.ownUndo(u.ref) {
		return nil // no store, a failed store, or the record of the undo belongs to the composite's own compensation
	}
	if next := d.sequence + 1; u.noted != next {
		u.noted = next
		d.outbox.undos = append(d.outbox.undos, undoRecord{undo: u})
	}
	return d.outbox.writing
}

// isUndoing reports whether the run undoes its nodes, or has undone them, because it is about to end with a status other than RunCompleted. If so,
// the Timeout of an outermost run no longer applies.
func (r *Run) isUndoing() bool { return r.undo != nil && r.undo.status != RunPending }

// The method `over` tells the State that the undo of the node has ended, successfully or not. If this was the last node that the run had to undo, the
// method calls undoing.then, unless that function is nil.
func (u *undo) over(now int64) {
	r := u.run
	x := r.undo
	by, then := x.by, x.then
	if !r.st.Undone(u.ref) {
		if r.tree != nil {
			r.tree.touch(r)
		}
		return
	}
	r.outermost().undo.busy--
	if !r.st.Undoes() { // if it does, Undone has called `reverses` again, since the last cleanup node ended during the undoing
		x.by, x.then = nil, nil
	}
	if r.outer != nil && r.concluded() {
		r.leavePool()
	}
	if then != nil {
		then(now)
	}
	if r.tree != nil {
		r.tree.touch(by)
	}
}

// descendantsOf returns the nested runs, at every depth, that have not ended.
func (r *Run) descendantsOf() []*Run {
	if !r.nests {
		return nil
	}
	return r.descendants()
}

// failedWhole keeps the conclusion of a composite's failed attempt while the nodes inside the composite are undone.
type failedWhole struct {
	c      conclusion
	res    attemptResult
	undone bool
}

// hasFailed reports whether the composite's attempt has failed, and nodes inside were or are being undone before the attempt ends. The node's Timeout
// bounds neither these compensations nor the cleanup nodes that follow them.
func (comp *composite) hasFailed() bool {
	return comp.failed != nil || comp.child != nil && comp.child.isUndoing()
}

// undoesInside begins to undo the nodes inside a composite whose attempt has failed, before the composite ends or backs off. It returns true if there
// is a node to undo. The caller holds the run's lock.
func (r *Run) undoesInside(step *Step, x *extra, c *conclusion, res attemptResult, now int64) bool {
	comp := x.comp
	if comp.failed != nil {
		return false
	}
	if (c.Status == Completed || c.Status == Skipped) && x.timedOut == timeoutNone || c.suspend != nil || c.expand != nil || r.cutShort(step, x, c) {
		return false
	}
	runs := r.undoable(step.ref)
	if len(runs) == 0 {
		return false
	}
	comp.own().failed = &failedWhole{c: *c, res: res}
	if child := comp.child; child != nil && child.concluded() && child.verdict.status == RunCompleted {
		child.undoes().whole = true
		r.outdated(step.ref)
	}
	comp.working = false
	r.disarm(&x.grace)
	var next func(now int64)
	next = func(now int64) {
		for len(runs) > 0 {
			last := len(runs) - 1
			c := runs[last]
			runs = runs[:last]
			if c.reverse(c.undoesNode, RunPending, r, next) {
				c.performUndos(now)
				return
			}
		}
		comp.failed.undone = true
		r.returnedTo(step.ref)
	}
	next(now)
	return true
}

// judgeUndone adjusts the verdict of a run that has undone nodes. If the run undid nodes because it was about to fail or to be cancelled, it cannot
// end as completed any more. If a compensation failed, the run fails, unless it was cancelled or undoing.whole is set.
func (r *Run) judgeUndone(v *verdict) {
	x := r.undo
	if x == nil {
		return
	}
	if v.status == RunCompleted && x.status != RunPending {
		v.status, v.degraded = x.status, false
	}
	if x.fails > 0 && v.status != RunCancelled && !x.whole {
		v.status, v.degraded, v.cause = RunFailed, false, CauseCompensationFailed
	}
}

// compensation returns the state of all compensations in the tree. It is called on the outermost run. The caller holds the run's lock.
func (r *Run) compensation() Compensation {
	switch x := r.undo; {
	case x == nil:
		return CompensationNone
	case x.busy > 0 && !r.status().Terminal():
		return CompensationRunning
	case x.fails > 0:
		return CompensationFailed
	case len(x.times) > 0:
		return CompensationDone
	}
	return CompensationNone
}

// Compensation returns the state of the run's compensations, at every depth. It is [CompensationRunning] while nodes are being undone,
// [CompensationFailed] if a node could not be undone, and [CompensationDone] if nodes were undone and no undo failed, even if they have run again.
// A store can filter runs by this state, see [store.Filter].
func (r *Run) Compensation() Compensation {
	r.st.Lock()
	defer r.st.Unlock()
	return r.outermost().compensation()
}

// compensationOf returns the state of a node's compensation. If the compensation failed, compensationOf also returns the error.
func (r *Run) compensationOf(ref machine.Ref) (Compensation, error) {
	if r.outermost().undo == nil {
		return CompensationNone, nil
	}
	var u *undo
	if r.undo != nil {
		u = r.undo.nodes[ref]
	}
	switch {
	case u != nil && u.status == CompensationFailed && u.err != nil:
		return u.status, u.err
	case r.ownUndo(ref) == nil:
		return r.undoneInside(ref), nil
	case u == nil:
		return CompensationNone, nil
	}
	return u.status, nil
}

// Compensated returns the output of the node that the Step undoes, or nil if there is no output. The result `certain` is true if the node's own step
// completed, so that the node certainly had an effect. If the node failed, timed out, was stopped after its start, or completed through its Fallback,
// it may or may not have had an effect. For a Step that undoes no node, Compensated returns nil and false.
func (s *Step) Compensated() (output any, certain bool) {
	if c := s.given(); c != nil {
		return c.Compensated, c.Certain
	}
	if s = s.known(); s.flags&stepUndo == 0 {
		return nil, false
	}
	r := s.run
	r.st.Lock()
	perhaps, certain := r.effect(s.ref)
	x := r.extras[s.ref]
	completed := perhaps && r.st.Word(s.ref).Status() == Completed && (x == nil || !x.Memoized || r.records[s.ref].fallback)
	r.st.Unlock()
	if completed {
		output = r.clone(r.records[s.ref].value)
	}
	return output, certain
}

// Compensating reports whether the Step undoes its node. It is meant for middleware and for functions that steps call.
func (s *Step) Compensating() bool { return s.flags&stepUndo != 0 }

var errNoUndo = fmt.Errorf("%w: the graph has nodes with a Compensate, which a State cannot undo: use a Coordinator", ErrBadOption)

// undoCall is an attempt to undo a node that a Coordinator hands to the host.
type undoCall struct {
	*undo
	step *Step
}

// The method `undo` hands the host an attempt to undo a node. If a mock undoes the node, the method calls the mock instead.
func (h *manual) undo(x undoCall) {
	if x.step.flags&stepUndo != 0 && x.run.mockedUndo(x.ref) != nil {
		x.perform(x.step, nil)
		return
	}
	h.hand(x.step, inFlight{undo: x.undo})
}

// The method `answered` ends an attempt to undo a node when the host has reported the attempt's result.
func (u *undo) answered(step *Step, res attemptResult) {
	err := res.err
	switch {
	case res.kind == CauseCrashed:
		err = Permanent(err)
	case step.flags&stepUndo == 0:
		err = ErrGoexit
		defer func() { u.returned(step, err) }()
		err = contain(func() error { return u.regainedBy(step, res.err) })
		return
	}
	u.returned(step, err)
}
