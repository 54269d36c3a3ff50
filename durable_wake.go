package kahn

import (
	"container/heap"
	"time"

	"github.com/seed-c794f7ef/kahn/internal/saturate"
)

// wake is an alarm that matters to the next life of a run, too, and when it rings, in ns since the run's start.
type wake struct {
	at    int64
	alarm *alarm
}

// dueAlarms are the alarms of a run with a store that have not rung, the first one first, and some that were disarmed.
type dueAlarms struct {
	list []wake
	most int // how long the list may become before those that were disarmed are taken out
}

func (w *dueAlarms) Len() int           { return len(w.list) }
func (w *dueAlarms) Less(i, j int) bool { return w.list[i].at < w.list[j].at }
func (w *dueAlarms) Swap(i, j int)      { w.list[i], w.list[j] = w.list[j], w.list[i] }
func (w *dueAlarms) Push(x any)         { w.list = append(w.list, x.(wake)) }

func (w *dueAlarms) Pop() any {
	last := len(w.list) - 1
	x := w.list[last]
	w.list[last] = wake{}
	w.list = w.list[:last]
	return x
}

func (w *dueAlarms) add(x wake) {
	if len(w.list) >= max(w.most, 64) {
		kept := w.list[:0]
		for _, x := range w.list {
			if !x.alarm.over {
				kept = append(kept, x)
			}
		}
		clear(w.list[len(kept):])
		w.list, w.most = kept, 2*len(kept)
		heap.Init(w)
	}
	heap.Push(w, x)
}

// first is when the first alarm rings, and whether there is one.
func (w *dueAlarms) first() (int64, bool) {
	for len(w.list) > 0 && w.list[0].alarm.over {
		heap.Pop(w)
	}
	if len(w.list) == 0 {
		return 0, false
	}
	return w.list[0].at, true
}

// afterAsStored is after for what goes on in the next life of the run: the end of a backoff or of a pause, a deadline. Its store
// learns when the first of these is due.
func (r *Run) afterAsStored(d time.Duration, f func(now int64)) *alarm {
	a := r.after(d, f)
	if r.durable != nil {
		r.durable.alarms.add(wake{saturate.Add(r.now(), int64(max(d, 0))), a})
	}
	return a
}

// wakeAt is when the run has something to do without a signal.
func (d *durable) wakeAt(root *Run) time.Time {
	at, ok := d.alarms.first()
	if !ok || d.status.Terminal() {
		return time.Time{}
	}
	return root.timeAt(at).UTC().Round(0)
}
