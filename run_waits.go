package kahn

import (
	"cmp"
	"slices"

	"github.com/seed-c794f7ef/kahn/event"
)

// waits lists the nodes that wait for signals, in an outermost run and in the runs nested in it. It is guarded by the run's
// lock. The events of a changed status name a node once, when it has begun to wait: so all of them together are no longer
// than the list of waits.
type waits struct {
	total int
	began []place // since the last event that told of it; some may have ended

	answered takenSignals

	kept   []*keptWaits         // in the order in which they were found
	keptAt map[place]*keptWaits // those whose graphs are not known
	lent   []*keptWaits         // those that are not owned
	names  keptNodes
	found  int   // how many graphs have become known
	steps  int64 // how many of all that were looked at
}

// waiters returns the waits of the outermost run.
func (r *Run) waiters() *waits {
	r = r.outermost()
	if r.waits == nil {
		r.waits = &waits{}
	}
	return r.waits
}

// beganToWait takes note that a node of the run waits.
func (r *Run) beganToWait(ref Ref) {
	if r.log == nil {
		return
	}
	x := r.waiters()
	x.total++
	x.began = append(x.began, place{r, ref})
	if len(x.began) > 2*x.total+64 { // a run that never rests has no such event
		x.began = stillWaiting(x.began)
	}
}

func (r *Run) endedWait() {
	if r.log != nil {
		r.waiters().total--
	}
}

// keptWaits are the nodes that wait inside of a node that was expanded in an earlier life of the run, until its graph is known.
type keptWaits struct {
	place
	told  bool // an event has told of them
	known bool // the graph is
	owned bool // what is inside is in no snapshot, and its nodes go by their names
}

// state is what a snapshot had of the node; nil if it waits for its graph no more.
func (k *keptWaits) state() *nodeState {
	x := k.run.extras[k.ref]
	if k.known || x == nil || k.run.st.Word(k.ref).Status().Terminal() {
		return nil
	}
	return x.kept
}

func (k *keptWaits) paths() []string {
	n := k.state()
	if n == nil {
		return nil
	}
	return n.Inside.waiting(nil, n.prefixInside(k.run.prefix), false)
}

// keep takes note of a node whose graph is not known.
func (x *waits) keep(at place) {
	k := &keptWaits{place: at}
	x.kept = append(x.kept, k)
	if x.keptAt == nil {
		x.keptAt = map[place]*keptWaits{}
	}
	x.keptAt[at] = k
	x.lent = append(x.lent, k)
}

// drop forgets the waits inside of a node whose graph is known again. It reports whether an event has named them.
func (x *waits) drop(at place) (told bool) {
	k := x.keptAt[at]
	if k == nil {
		return false
	}
	delete(x.keptAt, at)
	k.known = true
	x.found++
	if len(x.kept) > 2*len(x.keptAt)+64 {
		x.kept = slices.DeleteFunc(x.kept, func(k *keptWaits) bool { x.steps++; return k.known })
	}
	return k.told
}

// lend takes note that a snapshot has what is inside of a node: it is not to be changed any more.
func (x *waits) lend(at place) {
	if k := x.keptAt[at]; k != nil && k.owned {
		k.owned = false
		x.lent = append(x.lent, k)
	}
}

// keptNode finds the node that goes by a name inside of one whose graph is not known; nil if there is none.
func (x *waits) keptNode(name string) *keptNode {
	for _, k := range x.lent {
		n := k.state()
		if n == nil {
			continue
		}
		if x.names == nil {
			x.names = keptNodes{}
		}
		n = &cloneNodes([]nodeState{*n})[0]
		k.run.extras[k.ref].kept, k.owned = n, true
		x.steps += int64(len(n.Inside.Nodes))
		x.names.add(n, k.run.prefix, k)
	}
	x.lent = nil
	if n := x.names[name]; n != nil && n.of.state() != nil {
		return n
	}
	return nil
}

// stillWaiting returns the places whose nodes still wait, each once, in the order of declaration.
func stillWaiting(places []place) []place {
	places = slices.DeleteFunc(places, func(at place) bool { return at.run.st.Word(at.ref).Status() != Suspended })
	slices.SortFunc(places, place.compare)
	return slices.Compact(places)
}

// compare orders places by declaration, as if the graphs were one.
func (at place) compare(other place) int {
	a, b := at.run.placeInTree(), other.run.placeInTree()
	both := min(len(a), len(b))
	if c := slices.Compare(a[:both], b[:both]); c != 0 {
		return c
	}
	next := func(order []int32, at place) int32 {
		if len(order) > both {
			return order[both]
		}
		return at.run.plan.decl[at.ref]
	}
	return cmp.Or(cmp.Compare(next(a, at), next(b, other)), cmp.Compare(len(a), len(b)))
}

// tellStatus logs that the status of the run, which is an outermost one, has changed.
func (r *Run) tellStatus(from, to RunStatus, now int64) {
	if r.log == nil {
		return
	}
	x := r.waiters()
	changed := event.StatusChange{From: from, To: to, TotalWaiting: x.total}
	for _, k := range x.kept {
		paths := k.paths()
		x.steps += int64(1 + len(paths))
		if changed.TotalWaiting += len(paths); !k.told {
			k.told = true
			changed.Waiting = append(changed.Waiting, paths...)
		}
	}
	for _, at := range stillWaiting(x.began) {
		changed.Waiting = append(changed.Waiting, at.run.path(at.ref))
	}
	clear(x.began)
	x.began = x.began[:0]
	r.event(entry{kind: evRunStatus, at: now, arg: changed})
}
