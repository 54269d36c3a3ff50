package kahn

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/seed-c794f7ef/kahn/machine"
)

// This file is about Group.CancelOnFailure. A graph declares a group; the nodes of its sub-graphs that name the group belong to
// it too, at every depth. Of a map it is the map that belongs to it, not the items.

// groupFailure records that a member of a group has failed for good, so that members which have not begun never will.
type groupFailure struct {
	Group string `json:"group"`
	Node  string `json:"node"` // its path
}

// groupFailures are those of groups that stop their members, each once, in the order in which they failed. They are only added to: a
// snapshot may have the list as it was.
type groupFailures struct {
	list   []groupFailure
	byName map[string]groupFailure
}

// failuresOf takes over what a snapshot, or an iteration before this one, has.
func failuresOf(list []groupFailure) (x *groupFailures) {
	for _, f := range list {
		x, _ = x.with(f)
	}
	return x
}

// all are the failures in their order.
func (x *groupFailures) all() []groupFailure {
	if x == nil {
		return nil
	}
	return x.list
}

// of returns the failure of a group.
func (x *groupFailures) of(group string) (f groupFailure, failed bool) {
	if x != nil {
		f, failed = x.byName[group]
	}
	return f, failed
}

// with adds a failure, and reports whether the group had not failed before.
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

// groupNamed returns the group of this name in the plan, or nil if the plan neither declares it nor has nodes that name it.
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

// cancelsOnFailure reports whether the group of this name, declared by this graph or one around it, has CancelOnFailure.
func (r *Run) cancelsOnFailure(name string) bool {
	for ; r != nil; r = r.outer {
		if g := r.plan.groupNamed(name); g != nil && !g.inherited {
			return g.CancelOnFailure
		}
	}
	return false
}

// membersFailed reports the failure of a node to the groups that it belongs to.
func (r *Run) membersFailed(ref Ref) {
	if r.items != nil || r.plan.net.Is(ref, machine.FlagTolerant) {
		return
	}
	for _, i := range r.plan.net.Groups(ref) {
		if g := &r.plan.groups[i]; !g.key {
			r.groupFailed(place{r, ref}, groupFailure{g.Name, r.path(ref)})
		}
	}
}

// groupFailed stops the unfinished members of a group because a node of this run has failed for good, or a composite inside
// of which one has. As long as a composite around the node may be attempted again, it stops only members inside of that
// composite; the composite reports the failure when it is terminal itself.
func (r *Run) groupFailed(at place, f groupFailure) {
	if !r.cancelsOnFailure(f.Group) {
		return
	}
	for !r.plan.declaresGroup(f.Group) && !r.outer.mayAttemptAgain(r.within) {
		r = r.outer
	}
	failed, added := r.failedGroups.with(f)
	if r.failedGroups = failed; added { // else all was stopped then
		r.outdate()
		r.stopMembers(at, f)
	}
}

// groupsFailedInside reports the group failures inside of a composite that is terminal, which were held back in case it was
// attempted again.
func (r *Run) groupsFailedInside(ref Ref, c *Run) {
	for _, f := range c.failedGroups.all() {
		if !c.plan.declaresGroup(f.Group) {
			r.groupFailed(place{r, ref}, f)
		}
	}
}

// mayAttemptAgain reports whether a composite that runs is to be attempted again if it fails.
func (r *Run) mayAttemptAgain(step *Step) bool {
	x := r.extras[step.ref]
	return r.st.MayRetry(step.ref) && r.attemptsCounted(step) < r.retryOf(step.ref).MaxAttempts && x.timedOut != timeoutOverall
}

// stopMembers stops the unfinished members of a group, in the run and in the runs nested in it, except composites around the
// node that failed.
func (r *Run) stopMembers(at place, f groupFailure) {
	around, origin := at.in(r), noRef
	if at.run == r && r.st.Word(at.ref).Status() == Failed {
		origin = at.ref
	}
	if g := r.plan.groupNamed(f.Group); g != nil && r.items == nil {
		r.st.CountVisits(len(g.members))
		for _, m := range g.members {
			if r.st.Word(m).Status().Terminal() || r.plan.net.Is(m, machine.FlagCleanup) || m == around {
				continue // no failure stops a cleanup node or the end node
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

// childrenNaming yields the nested runs in which something belongs to a group of a graph around them, in the order of their composites.
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

// lend takes note that a node has been expanded into a graph that names a group of a graph around it.
func (r *Run) lend(group string, ref Ref) {
	for {
		if r.lends == nil {
			r.lends = map[string]map[Ref]bool{}
		}
		if r.lends[group] == nil {
			r.lends[group] = map[Ref]bool{}
		}
		r.lends[group][ref] = true
		if r.outer == nil || r.plan.declaresGroup(group) {
			return
		}
		r, ref = r.outer, r.within.ref
	}
}

// in returns the node of a run that the place is, or that it is inside of; else noRef.
func (p place) in(r *Run) Ref {
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

func (r *Run) stopMember(m Ref, origin Ref, err error) {
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

// stopLateMembers stops the members of groups that had failed before the nested run began.
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
