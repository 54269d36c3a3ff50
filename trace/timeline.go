package trace

import (
	"container/heap"
	"time"

	"github.com/seed-c794f7ef/kahn"
)

// timeline is what the events of a run tell about when. All times are since the run's start. Events are numbered from 1 by
// their place; 0 stands for an event that did not happen.
type timeline struct {
	mode    kahn.Mode
	end     time.Duration // of the last event
	nodes   []life        // by Ref, then those that are not the plan's own, as they come
	spans   []span        // in the order of their starts
	waits   []wait        // in the order of their ends
	slots   int           // how many attempts held a slot at the same time, at most
	inlines int           // the same for attempts that take no slot
}

// life is what happened to a node.
type life struct {
	id                     string
	queued, started, ended int           // the events: the first queued, the first started, the last one
	queuedAt, start, end   time.Duration // their times
	status                 kahn.Status   // Idle for a node that did not end
	first, last            int           // its spans; meaningful only if it was started
	current                int           // the span that has not ended, or -1
	waiting                waitKind      // what it waits for, since
	since                  time.Duration
	total                  [waitKinds]time.Duration
	attempts               int
}

// span is an attempt: from its start to the retry, the suspension or the end of its node.
type span struct {
	node       int
	attempt    int
	start, end time.Duration
	inline     bool // it took no slot
	lane       int  // from 0, among those that took slots or among those that did not
	began      int  // events
	ended      int
	status     kahn.Status // what the node became at its end; Running if it has no end
	cause      kahn.CauseKind
}

// wait is a time in which a node was held up.
type wait struct {
	node     int
	kind     waitKind
	from, to time.Duration
}

type waitKind uint8

const (
	waitNone    waitKind = iota
	waitSlot             // it was ready
	waitBackoff          // for its next attempt
	waitSignal           // from outside

	waitKinds
)

var waitNames = [waitKinds]string{"", "queue", "backoff", "signal"}

// endStatus is what an event makes of the node whose attempt it ends.
var endStatus = map[kahn.EventType]kahn.Status{
	kahn.EventNodeCompleted: kahn.Completed, kahn.EventNodeFailed: kahn.Failed, kahn.EventNodeAborted: kahn.Aborted,
	kahn.EventNodeCancelled: kahn.Cancelled, kahn.EventNodeSkipped: kahn.Skipped,
	kahn.EventNodeRetried: kahn.Retrying, kahn.EventNodeSuspended: kahn.Suspended,
}

// newTimeline reads the events of a run of the plan.
func newTimeline(p *kahn.Plan, events []kahn.Event) *timeline {
	t := &timeline{}
	ids := make(map[string]int, p.Len())
	add := func(id string) int {
		ids[id] = len(t.nodes)
		t.nodes = append(t.nodes, life{id: id, current: -1})
		return ids[id]
	}
	for ref := range kahn.Ref(p.Len()) {
		add(p.ID(ref))
	}
	slots, inlines := &lanes{}, &lanes{}
	for i, e := range events {
		seq, at := i+1, e.Time.Sub(events[0].Time)
		t.end = at
		if started, ok := e.Payload.(kahn.RunStarted); ok {
			t.mode = started.Mode
		}
		if e.Node == "" {
			continue
		}
		id, ok := ids[e.Node]
		if !ok {
			id = add(e.Node)
		}
		n := &t.nodes[id]
		status, ends := endStatus[e.Type]
		switch {
		case e.Type == kahn.EventNodeQueued:
			t.resume(id, at)
			n.waiting, n.since = waitSlot, at
			if n.queued == 0 {
				n.queued, n.queuedAt = seq, at
			}
		case e.Type == kahn.EventNodeStarted:
			s := span{node: id, attempt: e.Attempt, start: at, began: seq, inline: n.waiting != waitSlot, status: kahn.Running}
			t.resume(id, at)
			if s.inline {
				s.lane = inlines.take()
			} else {
				s.lane = slots.take()
			}
			n.last, n.current = len(t.spans), len(t.spans)
			if n.started == 0 {
				n.started, n.start, n.first = seq, at, n.last
			}
			n.attempts = max(n.attempts, e.Attempt)
			t.spans = append(t.spans, s)
		case ends:
			t.resume(id, at)
			if n.current >= 0 {
				s := &t.spans[n.current]
				s.end, s.ended, s.status, s.cause = at, seq, status, causeOf(e)
				if s.inline {
					inlines.free(s.lane)
				} else {
					slots.free(s.lane)
				}
				n.current = -1
			}
			switch {
			case status.Terminal():
				n.ended, n.end, n.status = seq, at, status
			case status == kahn.Retrying:
				n.waiting, n.since = waitBackoff, at
			default:
				n.waiting, n.since = waitSignal, at
			}
		}
	}
	for i := range t.nodes { // of a run that was left before its end
		if n := &t.nodes[i]; n.ended == 0 {
			t.resume(i, t.end)
			n.end = t.end
		}
	}
	for i := range t.spans {
		if s := &t.spans[i]; s.ended == 0 {
			s.end = t.end
		}
	}
	t.slots, t.inlines = slots.n, inlines.n
	return t
}

// resume ends what the node waits for.
func (t *timeline) resume(id int, at time.Duration) {
	n := &t.nodes[id]
	if n.waiting != waitNone {
		t.waits = append(t.waits, wait{id, n.waiting, n.since, at})
		n.total[n.waiting] += at - n.since
		n.waiting = waitNone
	}
}

func causeOf(e kahn.Event) kahn.CauseKind {
	switch payload := e.Payload.(type) {
	case kahn.Retried:
		return payload.Cause
	case kahn.NodeEnded:
		return payload.Cause
	}
	return kahn.CauseNone
}

// lanes hands out the smallest number that is free, and so as few numbers as there are holders at the same time.
type lanes struct {
	n        int // numbers ever handed out
	returned intHeap
}

func (l *lanes) take() int {
	if len(l.returned) > 0 {
		return heap.Pop(&l.returned).(int)
	}
	l.n++
	return l.n - 1
}

func (l *lanes) free(lane int) { heap.Push(&l.returned, lane) }

// intHeap is a heap.Interface.
type intHeap []int

func (h intHeap) Len() int           { return len(h) }
func (h intHeap) Less(i, j int) bool { return h[i] < h[j] }
func (h intHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *intHeap) Push(x any)        { *h = append(*h, x.(int)) }
func (h *intHeap) Pop() any {
	last := len(*h) - 1
	x := (*h)[last]
	*h = (*h)[:last]
	return x
}
