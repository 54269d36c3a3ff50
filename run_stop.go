package kahn

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/seed-c794f7ef/kahn/machine"
	"github.com/seed-c794f7ef/kahn/store"
)

// Cancel stops the run. Nodes that have not started are cancelled at once. The contexts of running steps are cancelled; under [Drain] the steps may
// finish instead. Cleanup nodes and the end node are still performed. Cancel does nothing if the run has ended. A [Request] says who stops the run,
// and why. The run records the Request of the first call of Cancel or AbortAll. If that call has no Request, the run records none.
//
// If the run is at rest, Cancel posts the request in the run's store, as [Run.Signal] posts an answer. The process that continues the run then
// cancels it. The error matches [ErrAtRest] if no store accepts the request, [ErrStore] if the store fails, and [ErrFinished] if
// another process has continued and ended the run. Cancel returns nil if this process still performs the run, or has ended it.
func (r *Run) Cancel(by ...Request) error {
	q := asked(by)
	if r.control(func(int64) { r.cancel(q) }) || !r.isAtRest() {
		return nil
	}
	return r.post(context.Background(), store.Request{Kind: store.KindCancel, Actor: q.Actor, Comment: q.Reason})
}

func (r *Run) cancel(q Request) {
	r.cancelled, r.requests = true, max(r.requests, 1)
	r.ask(q)
	r.outdate() // stores the request, even if another cause has already stopped the run
	r.stop(CauseCancelRun, noRef, &stopCause{ErrCancelled, context.Canceled}, r.cfg.stopMode.manner())
}

// AbortAll stops the run because of a failure that the host has found. Unlike Cancel, it aborts the nodes, and the run fails with err, or with
// [ErrAborted] if err is nil. A [Request] says who stops the run, and why, as for Cancel. If Cancel or AbortAll was called before, AbortAll ends the
// compensations that run or back off. AbortAll returns [ErrAtRest] if the run is at rest; use Cancel to stop a run at rest.
func (r *Run) AbortAll(err error, by ...Request) error {
	if err = bounded(err); err == nil {
		err = ErrAborted
	}
	q := asked(by)
	called := r.control(func(now int64) {
		if r.abortUndos(err) {
			return
		}
		r.ask(q)
		r.outdate() // stores the request, even if another cause has already stopped the run
		r.stop(CauseAbortAll, noRef, &stopCause{err, context.Canceled}, r.cfg.stopMode.manner())
	})
	if !called && r.isAtRest() {
		return ErrAtRest
	}
	return nil
}

// isAtRest reports whether this process no longer performs the run although the run has not ended. If so, another process may continue the run. A run
// that has lost its store is not at rest.
func (r *Run) isAtRest() bool {
	r.st.Lock()
	defer r.st.Unlock()
	return r.isPutAway() && !r.isLost()
}

// CancelNode stops one node. When the node has stopped, its dependents are aborted. The error matches [ErrUnknownNode] if there is no such node, and
// [ErrFinished] if the run has ended. It matches [ErrTransition] if the node is terminal or the end node, or if the run is pending. If the run is
// at rest, CancelNode posts the request in the run's store or returns [ErrAtRest], like [Run.Signal].
func (r *Run) CancelNode(id string) error {
	ref, ok := r.plan.Ref(id)
	if !ok {
		return r.plan.unknownOwn(id)
	}
	err := ErrFinished
	r.control(func(now int64) { err = r.cancelNode(ref, now) })
	if err != ErrFinished {
		return err
	}
	if err := r.judgeCancelAtRest(ref); err != nil {
		return err
	}
	return r.post(context.Background(), store.Request{Kind: store.KindCancelNode, Node: id})
}

// judgeCancelAtRest is for a run that this process no longer performs. It returns why the node cannot be cancelled. It returns nil if the run is at
// rest and the caller may post the request in the run's store.
func (r *Run) judgeCancelAtRest(ref machine.Ref) error {
	r.st.Lock()
	defer r.st.Unlock()
	switch status := r.st.Word(ref).Status(); {
	case !r.isPutAway() || r.isLost():
		return ErrFinished
	case status.Terminal() || ref == r.plan.end:
		return &machine.TransitionError{Node: r.plan.names[ref], From: status, To: Cancelled}
	case r.mailbox() == nil:
		return ErrAtRest
	}
	return nil
}

// CheckCancelNode returns the error that CancelNode would return now, and changes nothing. See [Run.CheckSignal].
func (r *Run) CheckCancelNode(id string) error {
	ref, ok := r.plan.Ref(id)
	if !ok {
		return r.plan.unknownOwn(id)
	}
	r.st.Lock()
	if r.concluded() {
		r.st.Unlock()
		return r.judgeCancelAtRest(ref)
	}
	defer r.st.Unlock()
	if err := r.mayBeCancelled(); err != nil {
		return err
	}
	return r.st.MayStop(ref, CauseCancelNode)
}

// mayBeCancelled returns why no node of the run can be cancelled now, or nil.
func (r *Run) mayBeCancelled() error {
	switch {
	case r.stage == stagePending:
		return fmt.Errorf("%w: the run is pending", ErrTransition)
	case r.isLost():
		return r.durable.failed
	}
	return nil
}

func (r *Run) cancelNode(ref machine.Ref, now int64) error {
	if err := r.mayBeCancelled(); err != nil {
		return err
	}
	r.wake(now)
	if err := r.st.StopNode(ref, CauseCancelNode, ref, machine.StopAsking); err != nil {
		return err
	}
	if x := r.extra(ref); x.stop == nil {
		x.stop = ErrNodeStopped
	}
	if r.st.Word(ref).Status().Terminal() {
		r.disarmNode(ref)
	}
	return nil
}

// control calls f with the run's lock held and applies the consequences. If the run has ended, control does not call f. It reports whether it has
// called f.
func (r *Run) control(f func(now int64)) bool {
	now := r.now()
	r.st.Lock()
	if r.concluded() {
		r.st.Unlock()
		return false
	}
	f(now)
	r.release(now)
	return true
}

// stop stops the whole run: its nodes and the runs nested in it. It bounds the waits of cleanup nodes. The first stop determines why the run ends.
// A later stop cannot change that, but it may stop more nodes.
func (r *Run) stop(kind CauseKind, origin machine.Ref, cause *stopCause, manner machine.StopManner) {
	if r.st.Done() || r.isLost() {
		return
	}
	r.rouse(r.now())
	r.outdate() // stores the stop, so that the run is also stopped if another process continues it
	if !r.noteStop(kind, origin, cause, manner) {
		return
	}
	r.st.CountVisits(len(r.extras))
	r.st.Stop(kind, origin, manner)
	if r.nests {
		if manner == machine.StopDraining {
			r.drainChildren(kind, cause)
		}
		r.hurryInside()
	}
	r.disarmStopped()
	r.boundWaits()
	if r.st.StoppedFor() != CauseNone {
		r.boundChecks()
	}
}

// rouse wakes a run that is pending, at rest or being left, so that it can be stopped.
func (r *Run) rouse(now int64) {
	if r.stage == stagePending {
		r.openUnbegun(now)
	}
	r.wake(now)
	r.stay(now)
}

// noteStop records the cause of a stop. It reports whether the stop reaches more nodes than earlier stops. If not, the caller does not visit the
// nodes: many failed nodes may each request the same stop, and one visit is enough.
func (r *Run) noteStop(kind CauseKind, origin machine.Ref, cause *stopCause, manner machine.StopManner) (more bool) {
	if r.stopCauses[kind] == nil {
		if r.stopCauses == nil {
			r.rare().stopCauses = map[CauseKind]*stopCause{}
		}
		r.stopCauses[kind] = cause
	}
	switch {
	case r.st.StoppedFor() == CauseNone:
		r.stopManner, r.stopOrigin = manner, origin
	case (manner == machine.StopDraining || r.stopsAll) && !r.st.IsClosed():
		return false
	}
	r.stopsAll = r.stopsAll || manner == machine.StopAsking
	return true
}

// disarmStopped disarms the backoffs and waits of nodes that a stop has made terminal. Some of these nodes are composites: they end when their
// nested runs are stopped.
func (r *Run) disarmStopped() {
	for ref, x := range r.extras {
		if (x.backoff != nil || x.wait != nil) && r.st.Word(ref).Status().Terminal() {
			r.disarmNode(ref)
		}
	}
}

// hurryInside is called when a run is being stopped. It visits the runs nested in the run's cleanup composites, at every depth. In each of them it
// bounds the checks. If a suspended node holds other nodes back there, hurryInside lets these other nodes start.
func (r *Run) hurryInside() {
	for _, c := range r.children() {
		if r.st.StoppedFor() == CauseNone || r.plan.net.Is(c.within.ref, machine.FlagCleanup) {
			c.st.Hurry()
			c.boundChecks()
			if c.st.LiftFresh() && c.stage == stageResting && c.st.MayGoOn() {
				c.wake(r.now())
			}
			c.hurryInside()
			r.tree.touch(c)
		}
	}
}

// boundWaits bounds the waits of the cleanup nodes of a stopped run, so that the run ends.
func (r *Run) boundWaits() {
	if r.st.StoppedFor() == CauseNone || r.st.Sleepers() == 0 {
		return
	}
	r.st.CountVisits(len(r.plan.declared))
	for _, ref := range r.plan.declared {
		r.boundWait(ref)
	}
}

// boundWait bounds the wait of a node in a stopped run, if the node is a waiting cleanup node.
func (r *Run) boundWait(ref machine.Ref) {
	x := r.extras[ref]
	if r.st.Word(ref).Status() == Suspended && r.plan.net.Is(ref, machine.FlagCleanup) && x.gate == nil {
		r.waitEndsIn(ref, x, r.cfg.cleanupTimeout)
	}
}

// waitEndsIn ends the wait of a cleanup node in a stopped run after the duration d.
func (r *Run) waitEndsIn(ref machine.Ref, x *extra, d time.Duration) {
	x.own().gate = r.after(d, func(now int64) {
		if r.st.Word(ref).Status() == Suspended {
			r.overallTimeOut(ref, x, r.cfg.cleanupTimeout, now)
		}
	})
}

// callerCause returns why ctx, the context of the run's caller, has ended. It calls user code, so the run's lock must not be held.
func callerCause(ctx context.Context) *stopCause {
	cause := &stopCause{bounded(context.Cause(ctx)), context.Canceled}
	if ctx.Err() == context.DeadlineExceeded {
		cause.is = context.DeadlineExceeded
	}
	return cause
}

// endForContext ends an outermost run because its caller's context has ended. If the run is durable and the option CancelWithContext is not set,
// endForContext leaves the run. Otherwise it cancels the run.
func (r *Run) endForContext(cause *stopCause, now int64) {
	if r.isLeftByCaller() {
		r.leaveForContext(cause, now)
		return
	}
	r.cancelled = true
	r.stop(CauseContext, noRef, cause, machine.StopAsking)
}

// isLeftByCaller reports whether the end of the caller's context leaves the run.
func (r *Run) isLeftByCaller() bool { return r.cfg.store != nil && !r.cfg.ctxCancels }

// callerLeft returns the error of a run that was left because its caller's context ended.
func callerLeft(cause *stopCause) error { return fmt.Errorf("%w: %w", ErrLeft, cause.err) }

// stopError returns the error of the stop with this kind of cause, or nil if no stop had this kind.
func (r *Run) stopError(kind CauseKind) error {
	if cause := r.stopCauses[kind]; cause != nil {
		return cause.err
	}
	return nil
}

// collectStops arms the grace of the attempts that must stop. The records of their nodes, with the cause of the stop, go into the same
// transaction as the event that caused the stop. So if the process crashes and another process continues the run, it stops these nodes, too. The
// attempts' contexts are cancelled when the lock is released.
func (r *Run) collectStops() {
	for _, ref := range r.st.TakeUnchecked() {
		r.armCheck(ref, false)
	}
	for t, ok := r.st.NextStop(); ok; t, ok = r.st.NextStop() {
		r.outdated(t.Ref)
		step := r.current(t.Ref)
		if step == nil {
			continue // the node is an inline node: its test cannot be interrupted
		}
		x := r.extra(t.Ref)
		cause := r.causeOf(t.Ref)
		if x.timedOut == timeoutNone { // otherwise the timeout of the attempt has already stopped it
			r.disarmAttempt(t.Ref)
			r.halt(step, x, r.st.Word(t.Ref).Kind(), cause)
		}
		r.orderStop(step, cause)
	}
}

// causeOf returns the cause that the context of a stopped node reports.
func (r *Run) causeOf(ref machine.Ref) *stopCause {
	switch kind := r.st.Word(ref).Kind(); kind {
	case CauseSuperseded:
		return &stopCause{ErrSuperseded, context.Canceled}
	case CauseUpstreamFailure, CauseUpstreamCancelled:
		return &stopCause{ErrLateFailure, context.Canceled}
	case CauseCancelNode, CauseSiblingFailure:
		return &stopCause{r.extra(ref).stop, context.Canceled}
	default:
		return r.stopCauses[kind]
	}
}

type stopOrder struct {
	step  *Step
	cause *stopCause
}

// orderStop notes an attempt, so that the method `release` cancels the attempt's context. The caller holds the run's lock.
func (r *Run) orderStop(step *Step, cause *stopCause) {
	x := r.rare()
	x.ending = append(x.ending, stopOrder{step, cause})
}

// endings returns the attempts whose contexts must be cancelled.
func (r *Run) endings() []stopOrder {
	r.collectStops()
	ending := r.ending
	if ending != nil {
		r.runRare.ending = nil
	}
	if r.single != nil {
		for _, o := range ending {
			if in := o.step.run; !in.plan.net.Is(o.step.ref, machine.FlagInline) && !in.performsInside(o.step.ref) {
				r.single.interrupted = o.step
			}
		}
	}
	return ending
}

// halt bounds the time of an attempt that must stop: it arms the attempt's grace. If a nested run performs the attempt, halt stops the nested run
// instead, which arms the grace of its own attempts. If the node is a loop that pauses, halt interrupts the pause.
func (r *Run) halt(step *Step, x *extra, kind CauseKind, cause *stopCause) {
	switch c := x.atWork(); {
	case x.comp == nil || x.comp.working:
		r.armGrace(step, x)
	case x.comp.pause != nil:
		r.interruptPause(step.ref, x)
	case c != nil:
		c.stopFor(kind, cause, machine.StopAsking)
	}
}

// stopFor stops a nested run because its composite is being stopped. The nested run gets the cause of that stop.
func (r *Run) stopFor(kind CauseKind, cause *stopCause, manner machine.StopManner) {
	r.wake(r.now())
	r.stoppedBy = kind
	switch kind {
	case CauseFailFast, CauseAbortAll, CauseBudget, CauseRunTimeout, CauseContext, CauseCancelRun, CauseStoreError:
	default: // the cause stops a single node, but the nested run needs a cause that stops a whole run
		if kind = CauseCancelRun; r.stoppedBy.StopStatus() == Aborted {
			kind = CauseAbortAll
		}
	}
	r.cancelled = kind.StopStatus() == Cancelled
	r.stop(kind, noRef, cause, manner)
	r.tree.touch(r)
}

// drainChildren applies a draining stop to the nested runs, except those in cleanup composites.
func (r *Run) drainChildren(kind CauseKind, cause *stopCause) {
	var refs []machine.Ref
	for ref, x := range r.extras {
		if x.comp != nil && !r.plan.net.Is(ref, machine.FlagCleanup) {
			refs = append(refs, ref)
		}
	}
	slices.Sort(refs)
	for _, ref := range refs {
		r.drainChild(ref, kind, cause)
	}
}

func (r *Run) drainChild(ref machine.Ref, kind CauseKind, cause *stopCause) {
	x := r.extras[ref]
	if x == nil || x.comp == nil {
		return
	}
	if c := x.atWork(); c != nil {
		c.stopFor(kind, cause, machine.StopDraining)
	} else if x.comp.pause != nil && r.st.Word(ref).Status() == Running {
		r.interruptPause(ref, x)
	}
}

// The functions below implement Group.CancelOnFailure. The graph that declares a group has members of the group, and so have its sub-graphs, at
// every depth: each node that names the group is a member. If a map is a member, its items are not.

// groupFailure records that a member of a group has failed permanently. After that, no member may begin except the cleanup nodes.
type groupFailure struct {
	Group string `json:"group"`
	Node  string `json:"node"` // the path of the failed member
}

// groupFailures are the failures that made groups stop their members: one failure for each group, in the order of failure. The run only appends to
// the list, since a snapshot may share it.
type groupFailures struct {
	list   []groupFailure
	byName map[string]groupFailure
}

// failuresOf makes groupFailures from the list in a snapshot.
func failuresOf(list []groupFailure) (x *groupFailures) {
	for _, f := range list {
		x, _ = x.with(f)
	}
	return x
}

// The method `all` returns the failures in order.
func (x *groupFailures) all() []groupFailure {
	if x == nil {
		return nil
	}
	return x.list
}

// The method `of` returns the failure of a group, and reports whether there is one.
func (x *groupFailures) of(group string) (f groupFailure, failed bool) {
	if x != nil {
		f, failed = x.byName[group]
	}
	return f, failed
}

// The method `with` adds the failure f to x, or to a new list if x is nil, and returns the list. The result `added` is
// false if x already contained a failure of the group.
func (x *groupFailures) with(f groupFailure) (_ *groupFailures, added bool) {
	if x == nil {
		x = &groupFailures{byName: map[string]groupFailure{}}
	}
	if _, known := x.byName[f.Group]; known {
		return x, false
	}
	x.byName[f.Group] = f
	x.list = append(x.list, f)
	return x, true
}

func (f groupFailure) err() error {
	return fmt.Errorf("%w: node %s of group %s failed", ErrAborted, quoteID(f.Node), quoteID(f.Group))
}

// groupNamed returns the group with this name. It returns nil if the plan does not declare the group and none of its nodes names the group.
func (p *Plan) groupNamed(name string) *group {
	if i, ok := p.groupIndex[name]; ok {
		return &p.groups[i]
	}
	return nil
}

func (p *Plan) declaresGroup(name string) bool {
	g := p.groupNamed(name)
	return g != nil && !g.inherited
}

// cancelsOnFailure reports whether the group with this name has CancelOnFailure. This graph or a graph around it declares the group.
func (r *Run) cancelsOnFailure(name string) bool {
	for ; r != nil; r = r.outer {
		if g := r.plan.groupNamed(name); g != nil && !g.inherited {
			return g.CancelOnFailure
		}
	}
	return false
}

// membersFailed reports the failure of a node to the groups of the node.
func (r *Run) membersFailed(ref machine.Ref) {
	if r.items != nil || r.plan.net.Is(ref, machine.FlagTolerant) {
		return
	}
	for _, i := range r.plan.net.Groups(ref) {
		if g := &r.plan.groups[i]; !g.key {
			r.groupFailed(place{r, ref}, groupFailure{g.Name, r.path(ref)})
		}
	}
}

// groupFailed stops the unfinished members of a group because a member has failed permanently. The failed node is in this run or in a run nested in
// it. If a composite around the failed node may be attempted again, groupFailed stops only the members inside that composite. When the composite
// is terminal, groupsFailedInside stops the other members.
func (r *Run) groupFailed(at place, f groupFailure) {
	if !r.cancelsOnFailure(f.Group) {
		return
	}
	for !r.plan.declaresGroup(f.Group) && !r.outer.mayAttemptAgain(r.within) {
		r = r.outer
	}
	failed, added := r.failedGroups.with(f)
	if r.setFailedGroups(failed); added { // otherwise the group had already failed, and that failure stopped its members
		r.outdate()
		r.stopMembers(at, f)
	}
}

// groupsFailedInside reports the group failures inside a terminal composite. They were not reported earlier, since the composite might have been
// attempted again.
func (r *Run) groupsFailedInside(ref machine.Ref, c *Run) {
	for _, f := range c.failedGroups.all() {
		if !c.plan.declaresGroup(f.Group) {
			r.groupFailed(place{r, ref}, f)
		}
	}
}

// mayAttemptAgain reports whether a running composite would be attempted again if it failed with a cause that its policy retries.
func (r *Run) mayAttemptAgain(step *Step) bool {
	x, policy := r.extras[step.ref], r.plan.retryOf(step.ref, r.cfg.defaultRetry)
	return r.st.MayRetry(step.ref) && r.attemptsCounted(step) < policy.MaxAttempts && policy.causes() != 0 && x.timedOut != timeoutOverall
}

// stopMembers stops the unfinished members of a group, in the run and in the runs nested in it. It does not stop cleanup nodes, or a composite that
// contains the failed node.
func (r *Run) stopMembers(at place, f groupFailure) {
	around, origin := at.in(r), noRef
	if at.run == r && r.st.Word(at.ref).Status() == Failed {
		origin = at.ref
	}
	if g := r.plan.groupNamed(f.Group); g != nil && r.items == nil {
		r.st.CountVisits(len(g.members))
		for _, m := range g.members {
			if r.st.Word(m).Status().Terminal() || r.plan.net.Is(m, machine.FlagCleanup) || m == around {
				continue // a failure stops neither cleanup nodes nor the end node
			}
			r.stopMember(m, origin, f.err())
		}
	}
	if !r.nests {
		return
	}
	for _, c := range r.childrenNaming(f.Group) {
		if c.st.StoppedFor() == CauseNone {
			c.stopMembers(at, f)
		}
	}
}

// childrenNaming returns the nested runs that contain members of a group, in the order of their composites. A graph around these runs declares the
// group.
func (r *Run) childrenNaming(group string) (list []*Run) {
	lent := r.lends[group]
	if r.items != nil {
		return slices.DeleteFunc(r.children(), func(c *Run) bool { return !slices.Contains(c.plan.lacks, group) && !lent[c.within.ref] })
	}
	refs := r.plan.naming[group]
	if len(lent) > 0 {
		refs = slices.AppendSeq(slices.Clone(refs), maps.Keys(lent))
		slices.Sort(refs)
		refs = slices.Compact(refs)
	}
	r.tree.steps += int64(len(refs))
	for _, ref := range refs {
		if x := r.extras[ref]; x != nil && x.atWork() != nil {
			list = append(list, x.atWork())
		}
	}
	return list
}

// setFailedGroups records which groups have failed. The caller holds the run's lock unless the run has not begun.
func (r *Run) setFailedGroups(failed *groupFailures) {
	if failed != r.failedGroups {
		r.rare().failedGroups = failed
	}
}

// lend records that a node was expanded into a graph with members of a group. It records this in the node's run and in the runs around it, up to the
// run whose graph declares the group.
func (r *Run) lend(group string, ref machine.Ref) {
	for {
		if r.lends == nil {
			r.rare().lends = map[string]map[machine.Ref]bool{}
		}
		if r.lends[group] == nil {
			r.lends[group] = map[machine.Ref]bool{}
		}
		r.lends[group][ref] = true
		if r.outer == nil || r.plan.declaresGroup(group) {
			return
		}
		r, ref = r.outer, r.within.ref
	}
}

// The method `in` returns p's node if it is a node of r, or the node of r that contains p's node. It returns noRef if there is none.
func (p place) in(r *Run) machine.Ref {
	for c, ref := p.run, p.ref; c != nil; c = c.outer {
		if c == r {
			return ref
		}
		if c.outer != nil {
			ref = c.within.ref
		}
	}
	return noRef
}

func (r *Run) stopMember(m machine.Ref, origin machine.Ref, err error) {
	now := r.now()
	r.wake(now)
	x := r.extra(m)
	if x.stop == nil {
		x.stop = err
	}
	manner := r.cfg.stopMode.manner()
	if e := r.st.StopNode(m, CauseSiblingFailure, origin, manner); e != nil {
		r.st.NoteBug(e)
	}
	if r.st.Word(m).Status().Terminal() {
		r.disarmNode(m)
	} else if manner == machine.StopDraining {
		r.drainChild(m, CauseSiblingFailure, &stopCause{x.stop, context.Canceled})
	}
	if r.tree != nil {
		r.tree.touch(r)
	}
}

// stopLateMembers is called when a nested run begins. If a group has already failed, stopLateMembers stops its members in the nested run.
func (r *Run) stopLateMembers() {
	for _, name := range r.plan.lacks {
		for o := r; o != nil; o = o.outer {
			if f, failed := o.failedGroups.of(name); failed {
				r.stopMembers(place{}, f)
				break
			}
			if o.plan.declaresGroup(name) {
				break
			}
		}
	}
}

// interruptUndos interrupts the running compensations in the given runs, because the outermost run is being left or has lost its store.
func interruptUndos(runs []*Run, cause *stopCause) {
	for _, r := range runs {
		if r.undo == nil {
			continue
		}
		for _, u := range slices.Clone(r.undo.active) {
			if u.step != nil {
				u.halt(cause)
			}
		}
	}
}

// interruptUndoing interrupts the running compensations in a run that is being left, and in its nested runs.
func (r *Run) interruptUndoing() {
	if r.leaving && r.undo != nil {
		interruptUndos(append(r.descendantsOf(), r), &stopCause{ErrLeft, context.Canceled})
	}
}

// failUndos makes the running compensations in the given runs fail. It is called for the outermost run when its store has failed.
func (r *Run) failUndos(runs []*Run, err error) {
	if r.undo != nil && r.undo.busy > 0 {
		runs = slices.DeleteFunc(slices.Clone(runs), func(c *Run) bool { return c.undo == nil })
		r.endUndos(runs, &stopCause{err, context.Canceled})
	}
}

// setUndosBack resets the compensations of a run that has lost its store, and of its nested runs, to their states in the store.
func (r *Run) setUndosBack() {
	if r.undo != nil {
		r.undo.failed, r.undo.fails, r.undo.reported, r.undo.kept = nil, 0, nil, nil
		for ref, u := range r.undo.nodes {
			if u.status = u.stored; u.status == CompensationNone {
				delete(r.undo.nodes, ref)
			}
		}
	}
	if !r.nests {
		return
	}
	for _, x := range r.extras {
		if x.comp == nil {
			continue
		}
		for _, c := range append(slices.Clone(x.comp.past), x.comp.child) {
			if c != nil {
				c.setUndosBack()
			}
		}
	}
}

// restUndos disarms the backoffs of compensations in a run that ends at rest. When the run continues, it arms them again.
func (r *Run) restUndos() {
	if r.undo == nil {
		return
	}
	for _, u := range slices.Clone(r.undo.active) {
		if u.step == nil {
			u.leave()
		}
	}
}

// abortUndos is called by AbortAll. If Cancel or AbortAll was called before, abortUndos ends the compensations that run or back off, and reports
// whether there were any. Compensations that have not begun fail when it is their turn.
func (r *Run) abortUndos(err error) bool {
	if r.requests++; r.requests < 2 {
		return false
	}
	r.requests = 2
	if r.undo == nil || r.undo.busy == 0 {
		return false
	}
	r.outdate()
	// When an attempt of a composite has failed, the compensations inside that attempt are listed in undo.active of the run around the composite. So
	// `runs` must include this outer run even if it undoes none of its own nodes.
	runs := slices.DeleteFunc(append(r.descendantsOf(), r), func(of *Run) bool { return of.undo == nil })
	r.endUndos(runs, &stopCause{err, context.Canceled})
	return true
}

// endUndos ends the compensations in the given runs of the tree that run or back off. Compensations that have not begun fail when it is their turn.
func (r *Run) endUndos(runs []*Run, stop *stopCause) {
	r.undo.abort = stop
	for _, of := range runs {
		for _, u := range slices.Clone(of.undo.active) {
			if u.step != nil {
				u.halt(stop)
				continue
			}
			u.leave()
			u.run.st.ContinueUndo(u.ref) // this node's compensation gets its turn at once, and fails
			if r.tree != nil {
				r.tree.touch(u.run)
			}
		}
		if r.tree != nil {
			r.tree.touch(of)
		}
	}
}
