package trace

import (
	"cmp"
	"container/heap"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/machine"
)

// timeline holds the attempts and waits of a run, taken from its events. All times are measured from the run's first event. An event is represented
// by its id; the id 0 means that the event did not happen.
type timeline struct {
	waves   bool
	end     time.Duration // the time of the last event
	nodes   []life        // the nodes of the plan by Ref, then the nodes in composites in the order of their first events
	spans   []span        // in the order of their starts
	bounds  []bound       // the starts and ends of spans, in the order of the events
	waits   []wait        // in the order of their ends
	slots   int           // the highest number of attempts that held a slot at the same time
	inlines int           // the highest number of attempts that ran without a slot at the same time
}

// life is the history of a node.
type life struct {
	path                   string
	queued, started, ended int           // ids of the events by which the node was first queued, first started, and ended
	queuedAt, start, end   time.Duration // the times of these events
	status                 kahn.Status   // Idle for a node that has not ended
	after                  constraint    // the event that caused the node's first event
	within                 int           // the composite that contains the node, or -1
	lastInside             int           // for a composite: the inner node that ended last, or -1
	first, last            int           // the indices of the node's first and last spans, if the node has started
	current                int           // the index of the unfinished span, or -1
	waiting                waitKind      // what the node waits for; the wait began at the time "since"
	since                  time.Duration
	total                  [waitKinds]time.Duration
	seen, composite        bool
}

// span is an attempt. It lasts from the start of the attempt until the node is retried, is suspended, or ends.
type span struct {
	node       int
	attempt    int
	start, end time.Duration
	inline     bool        // whether the attempt took no slot: the node was not queued, or is a composite
	lane       int         // the lane of the attempt, from 0; attempts without slots have separate lanes
	status     kahn.Status // the node's status after the span; Running if the span has no end
	cause      kahn.CauseKind
	usage      map[string]float64 // for the last span of a node: the usage of all attempts of the node
}

// bound is the start or the end of a span.
type bound struct {
	event int
	span  int
	end   bool
}

// wait is a period in which a node waited.
type wait struct {
	node     int
	kind     waitKind
	from, to time.Duration
}

type waitKind uint8

const (
	waitNone    waitKind = iota
	waitSlot             // the node is ready and waits for a slot
	waitBackoff          // the node waits for its next attempt
	waitSignal           // the node waits for a signal from outside

	waitKinds
)

var waitNames = [waitKinds]string{"", "queue", "backoff", "signal"}

// endStatus has, by event type, the status of a node after an event that skips the node or ends its attempt.
var endStatus = map[event.Type]kahn.Status{
	event.NodeCompleted: kahn.Completed, event.NodeFailed: kahn.Failed, event.NodeAborted: kahn.Aborted,
	event.NodeCancelled: kahn.Cancelled, event.NodeSkipped: kahn.Skipped,
	event.NodeRetried: kahn.Retrying, event.NodeSuspended: kahn.Suspended,
}

// newTimeline reads the events of a run of the plan.
func newTimeline(p *kahn.Plan, events []event.Event) *timeline {
	t := &timeline{}
	r := reader{timeline: t, ids: make(map[string]int, p.Len()), led: map[int]constraint{}}
	for ref := range machine.Ref(p.Len()) {
		r.add(p.ID(ref))
	}
	for _, e := range events {
		r.read(e, e.Time.Sub(events[0].Time))
	}
	for i := range t.nodes { // if the run was left, some nodes may have no end
		if n := &t.nodes[i]; n.ended == 0 {
			t.resume(i, t.end)
			n.end = t.end
		}
	}
	t.layOut()
	return t
}

// reader is the state of newTimeline.
type reader struct {
	*timeline
	ids map[string]int // nodes by path
	// An event that is the Parent of other events constrains their times. The map `led` contains these constraints by the id of the parent. If the
	// parent is an event of a node, the constraint names this node. If the parent is the start of a wave, it names the last node that ended before
	// the wave.
	led   map[int]constraint
	ended constraint // names the node that ended last
}

func (r *reader) add(path string) int {
	r.ids[path] = len(r.nodes)
	r.nodes = append(r.nodes, life{path: path, after: nothing, within: -1, lastInside: -1, current: -1})
	return r.ids[path]
}

// The method node returns the node of an event. If a composite is performed again, its inner nodes begin again. If an inner node has ended before,
// its new events count as events of another node.
func (r *reader) node(e event.Event) int {
	path := cmp.Or(e.Path, e.Node)
	if id, ok := r.ids[path]; ok && (r.nodes[id].ended == 0 || path == e.Node) {
		return id
	}
	return r.add(path)
}

func (r *reader) read(e event.Event, at time.Duration) {
	number := int(e.ID)
	r.end = at
	switch payload := e.Payload.(type) {
	case event.Start:
		r.waves = payload.Waves
	case event.Wave:
		if e.Type == event.WaveStarted && r.ended.via != ViaNothing {
			c := r.ended
			c.via = ViaWave
			r.led[number] = c
		}
	}
	status, ends := endStatus[e.Type]
	if e.Node == "" || !ends && e.Type != event.NodeQueued && e.Type != event.NodeStarted && e.Type != event.NodeBlocked &&
		e.Type != event.NodeSignalled {
		return
	}
	id := r.node(e)
	n := &r.nodes[id]
	if !n.seen {
		n.seen = true
		r.begin(id, int(e.Parent), e.Path != e.Node)
	}
	r.led[number] = constraint{id, ViaDependency, number, at}
	switch {
	case e.Type == event.NodeQueued:
		r.resume(id, at)
		n.waiting, n.since = waitSlot, at
		if n.queued == 0 {
			n.queued, n.queuedAt = number, at
		}
	case e.Type == event.NodeStarted:
		s := span{node: id, attempt: e.Attempt, start: at, inline: n.waiting != waitSlot, status: kahn.Running}
		r.resume(id, at)
		n.last, n.current = len(r.spans), len(r.spans)
		if n.started == 0 {
			n.started, n.start, n.first = number, at, n.last
		}
		r.bounds = append(r.bounds, bound{number, n.last, false})
		r.spans = append(r.spans, s)
		// If events of other nodes have this start as their Parent, the node is a composite that contains the other nodes.
		r.led[number] = constraint{id, ViaComposite, number, at}
	case ends:
		r.resume(id, at)
		if n.current >= 0 {
			s := &r.spans[n.current]
			s.end, s.status, s.cause, s.usage = at, status, causeOf(e), usageOf(e)
			r.bounds = append(r.bounds, bound{number, n.current, true})
			n.current = -1
		}
		switch {
		case status.Terminal():
			n.ended, n.end, n.status = number, at, status
			r.ended = r.led[number]
			if n.within >= 0 {
				r.nodes[n.within].lastInside = id
			}
		case status == kahn.Retrying:
			n.waiting, n.since = waitBackoff, at
		default:
			n.waiting, n.since = waitSignal, at
		}
	}
}

// begin records the event that caused a node's first event. If the parameter "inside" is set, begin also records the composite that contains the
// node.
func (r *reader) begin(id, parent int, inside bool) {
	n := &r.nodes[id]
	if c, ok := r.led[parent]; ok {
		n.after = c
	}
	switch {
	case !inside:
	case n.after.via == ViaComposite:
		n.within = n.after.node
		r.nodes[n.within].composite = true
	case n.after.node >= 0:
		n.within = r.nodes[n.after.node].within
	}
}

// layOut assigns a lane to every span. There are as many lanes as the highest number of spans at the same time. Spans without slots have lanes of
// their own.
func (t *timeline) layOut() {
	slots, inlines := &lanes{}, &lanes{}
	for _, b := range t.bounds {
		s := &t.spans[b.span]
		s.inline = s.inline || t.nodes[s.node].composite
		of := slots
		if s.inline {
			of = inlines
		}
		if b.end {
			of.free(s.lane)
		} else {
			s.lane = of.take()
		}
	}
	for i := range t.spans {
		if s := &t.spans[i]; s.status == kahn.Running {
			s.end = t.end
		}
	}
	t.slots, t.inlines = slots.n, inlines.n
}

// resume ends the node's wait.
func (t *timeline) resume(id int, at time.Duration) {
	n := &t.nodes[id]
	if n.waiting != waitNone {
		t.waits = append(t.waits, wait{id, n.waiting, n.since, at})
		n.total[n.waiting] += at - n.since
		n.waiting = waitNone
	}
}

func causeOf(e event.Event) kahn.CauseKind {
	switch payload := e.Payload.(type) {
	case event.Retry:
		return payload.Cause
	case event.NodeEnd:
		return payload.Cause
	}
	return kahn.CauseNone
}

func usageOf(e event.Event) map[string]float64 {
	switch payload := e.Payload.(type) {
	case event.Completion:
		return payload.Usage
	case event.NodeEnd:
		return payload.Usage
	}
	return nil
}

// The type lanes hands out numbers from 0 on, always the smallest free one. If at most n numbers are in use at the same time, all are below n.
type lanes struct {
	n        int // how many different numbers were handed out
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

// intHeap implements heap.Interface.
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
