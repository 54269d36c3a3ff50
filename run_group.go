package kahn

import (
	"context"
	"fmt"
	"slices"
)

// This file is about Group.CancelOnFailure. A graph declares a group; the nodes of its sub-graphs that name the group belong to
// it too, at every depth. Of a map it is the map that belongs to it, not the items.

// groupFailure records that a member of a group has failed for good, so that members which have not begun never will.
type groupFailure struct {
	Group string `json:"group"`
	Node  string `json:"node"` // its path
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
	if r.plan.member == nil || r.items != nil || r.plan.facts[ref].is(factTolerant) {
		return
	}
	for _, i := range r.plan.member[ref] {
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
	if !slices.ContainsFunc(r.failedGroups, func(known groupFailure) bool { return known.Group == f.Group }) { // else they were stopped then
		r.failedGroups = append(slices.Clip(r.failedGroups), f)
		r.outdate()
		r.stopMembers(at, f)
	}
}

// groupsFailedInside reports the group failures inside of a composite that is terminal, which were held back in case it was
// attempted again.
func (r *Run) groupsFailedInside(ref Ref, c *Run) {
	for _, f := range c.failedGroups {
		if !c.plan.declaresGroup(f.Group) {
			r.groupFailed(place{r, ref}, f)
		}
	}
}

// mayAttemptAgain reports whether a composite that runs is to be attempted again if it fails.
func (r *Run) mayAttemptAgain(step *Step) bool {
	x := r.extras[step.ref]
	return r.st.mayRetry(step.ref) && r.attemptsCounted(step) < r.retryOf(step.ref).MaxAttempts && x.timedOut != timeoutOverall
}

// stopMembers stops the unfinished members of a group, in the run and in the runs nested in it, except composites around the
// node that failed.
func (r *Run) stopMembers(at place, f groupFailure) {
	around, origin := at.in(r), noRef
	if at.run == r && statusOf(r.st.words[at.ref]) == Failed {
		origin = at.ref
	}
	if g := r.plan.groupNamed(f.Group); g != nil && r.items == nil {
		r.st.visits += int64(len(g.members))
		for _, m := range g.members {
			if statusOf(r.st.words[m]).Terminal() || r.plan.facts[m].is(factCleanup) || m == around {
				continue // no failure stops a cleanup node or the end node
			}
			r.stopMember(m, origin, f.err())
		}
	}
	if !r.nests {
		return
	}
	for _, c := range r.children() {
		if c.st.stopped == CauseNone && (slices.Contains(c.plan.lacks, f.Group) || c.lends[f.Group]) {
			c.stopMembers(at, f)
		}
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
	if e := r.st.stopNode(m, CauseSiblingFailure, origin, manner); e != nil {
		r.st.noteBug(e)
	}
	if statusOf(r.st.words[m]).Terminal() {
		r.disarmNode(m)
	} else if manner == stopDraining {
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
			if i := slices.IndexFunc(o.failedGroups, func(f groupFailure) bool { return f.Group == name }); i >= 0 {
				r.stopMembers(place{}, o.failedGroups[i])
				break
			}
			if o.plan.declaresGroup(name) {
				break
			}
		}
	}
}
