package kahn

import (
	"slices"
	"time"

	"github.com/seed-c794f7ef/kahn/internal/due"
	"github.com/seed-c794f7ef/kahn/internal/saturate"
)

// wake is the place of an alarm that matters to the next life of a run, too, among those of its store.
type wake struct{ due.Entry }

// afterAsStored is after for what goes on in the next life of the run: the end of a backoff or of a pause, a deadline. Its store
// learns when the first of these is due.
func (r *Run) afterAsStored(d time.Duration, f func(now int64)) *alarm {
	a := r.after(d, f)
	if r.durable != nil {
		a.stored = new(wake)
		r.durable.alarms.Add(a.stored, saturate.Add(r.now(), int64(max(d, 0))))
	}
	return a
}

// wakeAt is when the run has something to do without a signal: at once, if it was left before it had only to wait.
func (d *durable) wakeAt(root *Run) time.Time {
	switch {
	case d.status.Terminal():
		return time.Time{}
	case d.status == RunSuspended && root.leaving && root.hasWork():
		return root.timeAt(root.now()).UTC().Round(0)
	case d.alarms.Len() == 0:
		return time.Time{}
	}
	return root.timeAt(d.alarms.Due()).UTC().Round(0)
}

// hasWork reports whether the run, or one nested in it, has more to do than to wait.
func (r *Run) hasWork() bool {
	return r.st.HasWork(r.pausing()) || slices.ContainsFunc(r.descendants(), func(c *Run) bool { return c.st.HasWork(c.pausing()) })
}

// pausing counts the loops that pause between two iterations.
func (r *Run) pausing() (n int) {
	for _, x := range r.extras {
		if x.comp != nil && x.comp.pause != nil {
			n++
		}
	}
	return n
}
