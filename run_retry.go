package kahn

import "github.com/seed-c794f7ef/kahn/machine"

// RetryNow ends the backoff of a node: its next attempt is ready at once. path is that of [Run.Node]. A path that leads nowhere is a
// [*PathError], a node that does not back off an error that matches [ErrTransition], and a run that has ended one that matches
// [ErrFinished]. RetryNow returns [ErrAtRest] if the run is at rest.
func (r *Run) RetryNow(path string) error {
	var lost *PathError
	err := ErrFinished
	r.control(func(now int64) {
		var at place
		if at, lost = r.locate(path); lost != nil {
			return
		}
		if err = at.retryNow(now); at.run.tree != nil {
			at.run.tree.touch(at.run)
		}
	})
	if lost != nil {
		return lost.complete()
	}
	if err == ErrFinished {
		r.st.Lock()
		defer r.st.Unlock()
		if r.isPutAway() {
			return ErrAtRest
		}
	}
	return err
}

func (at place) retryNow(now int64) error {
	r, ref := at.run, at.ref
	if r.isLost() {
		return r.durable.failed
	}
	if r.st.Word(ref).Status() != Retrying {
		return &machine.TransitionError{Node: r.path(ref), From: r.st.Status(ref), To: Ready}
	}
	x := r.extras[ref]
	r.disarm(&x.backoff)
	r.endBackoff(r.st.Token(ref), x, now)
	return nil
}
