package kahn

import (
	"cmp"
	"slices"
)

// waits lists the nodes that wait for signals, in an outermost run and in the runs nested in it. It is guarded by the run's
// lock. The events of a changed status name a node once, when it has begun to wait: so all of them together are no longer
// than the list of waits.
type waits struct {
	total int
	began []place // waits since the last such event; some may have ended
	kept  []keptWaits
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
	told bool // an event has named them
}

func (k *keptWaits) paths() []string {
	x := k.run.extras[k.ref]
	if x == nil || x.kept == nil || statusOf(k.run.st.words[k.ref]).Terminal() {
		return nil
	}
	return x.kept.Inside.waiting(nil, x.kept.prefixInside(k.run.prefix), false)
}

// drop forgets the waits inside of a node whose graph is known again. It reports whether an event has named them.
func (x *waits) drop(at place) (told bool) {
	i := slices.IndexFunc(x.kept, func(k keptWaits) bool { return k.place == at })
	if i < 0 {
		return false
	}
	told = x.kept[i].told
	x.kept = slices.Delete(x.kept, i, i+1)
	return told
}

// stillWaiting returns the places whose nodes still wait, each once, in the order of declaration.
func stillWaiting(places []place) []place {
	places = slices.DeleteFunc(places, func(at place) bool { return statusOf(at.run.st.words[at.ref]) != Suspended })
	slices.SortFunc(places, place.compare)
	return slices.Compact(places)
}

// compare orders places by declaration, as if the graphs were one.
func (at place) compare(other place) int {
	a, b := at.run.st.placeInTree(), other.run.st.placeInTree()
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
	changed := RunStatusChanged{From: from, To: to, TotalWaiting: x.total}
	for i := range x.kept {
		paths := x.kept[i].paths()
		if changed.TotalWaiting += len(paths); !x.kept[i].told {
			x.kept[i].told = true
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
