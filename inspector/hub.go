package inspector

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
)

// hub sends changes to the open pages. While a page is open, one goroutine reads the state of the Runner's runs for all pages, several times a
// second. The goroutine encodes each message once, however many pages get it. If Options.Visible is set, each page gets its own message about the
// list of runs. The messages contain only what a client without ViewData may see.
type hub struct {
	handler *handler

	mu    sync.Mutex
	pages map[*page]bool
	stop  chan struct{} // closed when the last page leaves; nil without pages
	ready chan struct{} // closed when the goroutine has listed the runs for the first time; the goroutine notices all later changes
	steps int64         // how many events were read and rows were made; tests check that this number does not grow with the number of pages
}

// A page is one open stream.
type page struct {
	run  string
	from cursor // the run's cursor when the page joined, before the page had read anything
	wake chan struct{}
	sees func(*kahn.Run) bool // reports whether the client may know of a run; nil if the client may know of all runs

	// The hub's mu guards the fields below.
	pending [][]byte // messages that have yet to be written
	size    int
}

const (
	// tick is the interval at which the hub looks at the Runner.
	tick = 200 * time.Millisecond
	// maxPending is the maximum number of bytes that wait for a slow client. If more bytes would wait, the hub replaces them by a reset. Then the
	// client reads everything again.
	maxPending = 1 << 20
	// maxChanges is the maximum number of nodes in one message. If more nodes have changed, the hub sends a reset.
	maxChanges = 4_000
)

// The method `join` adds a page that shows the list of runs and, if `run` is not empty, the run with this id. join returns false if there are
// already `most` pages.
func (h *hub) join(run string, most int, sees func(*kahn.Run) bool) (*page, bool) {
	p, ready := h.add(run, most, sees)
	if p == nil {
		return nil, false
	}
	// After the goroutine has listed the runs for the first time, it reports all changes. So the page misses none.
	<-ready
	return p, true
}

// The method `add` adds a page, and returns the page and h.ready. It starts the goroutine if the page is the first. It returns nil if there are
// already `most` pages.
func (h *hub) add(run string, most int, sees func(*kahn.Run) bool) (*page, chan struct{}) {
	from := h.last(run)
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.pages) >= most {
		return nil, nil
	}
	p := &page{run: run, from: from, wake: make(chan struct{}, 1), sees: sees}
	if h.pages == nil {
		h.pages = map[*page]bool{}
	}
	h.pages[p] = true
	if h.stop == nil {
		h.stop, h.ready = make(chan struct{}), make(chan struct{})
		w := &watch{hub: h, listed: map[string]seen{}, cursors: map[string]cursor{}}
		go w.follow(h.stop, h.ready)
	}
	return p, h.ready
}

// The method `last` returns the cursor of the present state of a run: the cursor at the run's last event. It returns the zero cursor if the
// Runner does not have the run.
func (h *hub) last(id string) (c cursor) {
	if run, ok := h.handler.Runner.Run(id); ok {
		c.run = run
		if _, c.event = run.EventRange(); c.event == 0 {
			c.nodes = statusesOf(run)
		}
	}
	return c
}

// statusesOf returns the statuses of the nodes of a run's graph, one letter each.
func statusesOf(run *kahn.Run) string {
	var text strings.Builder
	for n := range run.Nodes() {
		text.WriteByte(letters[n.Status])
	}
	return text.String()
}

// The function `differences` returns the nodes of a run without events whose statuses differ between the cursor `now` and any of the cursors
// `before`.
func differences(now cursor, before []cursor) nodesMessage {
	m := nodesMessage{Run: now.run.ID(), Nodes: []change{}}
	i := 0
	for _, id := range now.run.Plan().Declared() {
		if slices.ContainsFunc(before, func(c cursor) bool { return c.nodes[i] != now.nodes[i] }) {
			m.Nodes = append(m.Nodes, change{Path: id, Status: now.nodes[i : i+1]})
		}
		i++
	}
	return m
}

// The method `joined` returns the cursors of the pages that show the run. Each cursor is from the time when its page joined.
func (h *hub) joined(id string) (list []cursor) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for p := range h.pages {
		if p.run == id {
			list = append(list, p.from)
		}
	}
	return list
}

// The method `leave` removes a page. It stops the goroutine if the page was the last.
func (h *hub) leave(p *page) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.pages, p)
	if len(h.pages) == 0 && h.stop != nil {
		close(h.stop)
		h.stop = nil
	}
}

// The method `take` removes the pending messages of a page, and returns them.
func (h *hub) take(p *page) [][]byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := p.pending
	p.pending, p.size = nil, 0
	return list
}

// The method `tell` sends an event to every page for which `wants` returns true. If the event cannot be encoded, tell sends a reset instead.
func (h *hub) tell(name string, data any, wants func(*page) bool) {
	message, err := frame(name, data)
	if err != nil {
		h.handler.log().Error("inspector", "stream", name, "error", text(err))
		message = reset
	}
	h.send(message, wants)
}

// The method `send` queues a message for every page for which `wants` returns true.
func (h *hub) send(message []byte, wants func(*page) bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for p := range h.pages {
		if !wants(p) {
			continue
		}
		if p.size += len(message); p.size > maxPending {
			p.pending, p.size = [][]byte{reset}, len(reset)
		} else {
			p.pending = append(p.pending, message)
		}
		select {
		case p.wake <- struct{}{}:
		default: // a wake-up is pending already
		}
	}
}

func (h *hub) count(steps int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.steps += int64(steps)
}

// shownRuns returns the ids of the runs that pages show.
func (h *hub) shownRuns() map[string]bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	ids := map[string]bool{}
	for p := range h.pages {
		if p.run != "" {
			ids[p.run] = true
		}
	}
	return ids
}

// Messages without data: hello is the first message, and reset makes a page read everything again.
var hello, reset = []byte("event: hello\ndata: {}\n\n"), []byte("event: reset\ndata: {}\n\n")

// The function `frame` encodes a server-sent event.
func frame(name string, data any) ([]byte, error) {
	text, err := json.Marshal(data)
	if err != nil {
		return nil, err
	}
	return fmt.Appendf(nil, "event: %s\ndata: %s\n\n", name, text), nil
}

// The type `watch` is the state of the hub's goroutine.
type watch struct {
	hub     *hub
	listed  map[string]seen
	cursors map[string]cursor // the cursors of the runs that pages show
}

// A cursor is a position in the events of a run. The pages that show the run know all changes up to the event with the id `event`.
type cursor struct {
	run   *kahn.Run
	event uint64
	nodes string // for a run without events: the letters of the nodes' statuses
}

// The type `seen` is the state in which the goroutine last saw a run.
type seen struct {
	run    *kahn.Run
	status kahn.RunStatus
	over   bool // the run has ended, or was left
	last   uint64
	counts [16]int // for a run without events: the number of nodes in each status
	undoes kahn.Compensation
}

// runsMessage reports changes in the list of runs.
type runsMessage struct {
	Runs    []runRow `json:"runs"`
	Removed []string `json:"removed"`
	// Counts has the number of all runs in each status. If Options.Visible is set, Counts is missing: to count, the hub would have to call
	// Visible for each run at every change.
	Counts counts `json:"counts,omitempty"`

	runs, gone []*kahn.Run // the runs whose rows are in Runs, and the runs whose ids are in Removed
}

// The method `of` returns the message without the counts, and without the runs that the client of a page may not see.
func (m runsMessage) of(p *page) (part runsMessage) {
	part = runsMessage{Runs: []runRow{}, Removed: []string{}}
	for i, run := range m.runs {
		if p.sees(run) {
			part.Runs = append(part.Runs, m.Runs[i])
		}
	}
	for i, run := range m.gone {
		if p.sees(run) {
			part.Removed = append(part.Removed, m.Removed[i])
		}
	}
	return part
}

// tellRuns sends the changes in the list of runs. Each page gets only the changes that its client may see.
func (h *hub) tellRuns(m runsMessage) {
	h.tell("runs", m, func(p *page) bool { return p.sees == nil })
	for _, p := range h.choosing() {
		if part := m.of(p); len(part.Runs)+len(part.Removed) > 0 {
			h.tell("runs", part, func(other *page) bool { return other == p })
		}
	}
}

// The method `choosing` returns the pages whose field `sees` is set. The clients of these pages may not know of all runs.
func (h *hub) choosing() (list []*page) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for p := range h.pages {
		if p.sees != nil {
			list = append(list, p)
		}
	}
	return list
}

// nodesMessage reports the changes in a run: the path, the status letter and the attempt of each changed node.
type nodesMessage struct {
	Run   string   `json:"run"`
	Event uint64   `json:"event"`
	Nodes []change `json:"nodes"`
	Lines int      `json:"lines"` // the number of events since the previous message
}

type change struct {
	Path    string `json:"p"`
	Status  string `json:"s"`
	Attempt int    `json:"n,omitempty"`
}

// The method `follow` looks for changes until the channel `stop` is closed. It does not report runs that exist when it begins, unless they change
// later.
func (w *watch) follow(stop, ready chan struct{}) {
	w.list()
	close(ready)
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for {
		select {
		case <-stop:
			return
		case <-ticker.C:
		}
		if m := w.list(); len(m.Runs)+len(m.Removed) > 0 {
			w.hub.tellRuns(m)
			w.hub.count(len(m.Runs))
		}
		shown := w.hub.shownRuns()
		for id := range shown {
			w.nodes(id)
		}
		for id := range w.cursors {
			if !shown[id] {
				delete(w.cursors, id)
			}
		}
	}
}

// The method `list` returns the changes in the list of runs since the previous call.
func (w *watch) list() runsMessage {
	m := runsMessage{Runs: []runRow{}, Removed: []string{}, Counts: counts{}}
	now := map[string]bool{}
	for run, at := range w.hub.handler.Runner.Runs() {
		id := run.ID()
		now[id] = true
		x := seen{run: run, over: over(run), status: run.Status(), undoes: run.Compensation()}
		if _, x.last = run.EventRange(); x.last == 0 {
			for status, n := range run.Counts() {
				x.counts[status] = n
			}
		}
		m.Counts[x.status.String()]++
		if w.listed[id] != x {
			w.listed[id] = x
			m.Runs, m.runs = append(m.Runs, w.hub.handler.rowOf(run, at)), append(m.runs, run)
		}
	}
	for id, was := range w.listed {
		if !now[id] {
			delete(w.listed, id)
			m.Removed, m.gone = append(m.Removed, id), append(m.gone, was.run)
		}
	}
	return m
}

// The method `nodes` sends the changes in a run to the pages that show the run. If w.cursors has no cursor of the run, it sends the changes since
// each of these pages joined.
func (w *watch) nodes(id string) {
	now := w.hub.last(id)
	run, last := now.run, now.event
	if run == nil {
		return
	}
	// The hub reads the pages' cursors after `now`: a page that joins even later reads a state that is at least as new as `now`.
	before := w.hub.joined(id)
	if c, known := w.cursors[id]; known {
		before = []cursor{c}
	}
	w.cursors[id] = now
	before = slices.DeleteFunc(before, func(c cursor) bool { return c.run == run && c.event > last || c == now }) // these pages miss nothing
	if len(before) == 0 {
		return
	}
	mine := func(p *page) bool { return p.run == id }
	first, _ := run.EventRange()
	after := slices.MinFunc(before, func(a, b cursor) int { return cmp.Compare(a.event, b.event) }).event
	switch {
	case slices.ContainsFunc(before, func(c cursor) bool { return c.run != run }), first > after+1:
		w.hub.send(reset, mine) // the id names another run now, or the log has dropped events that the pages lack
		return
	case last == 0:
		w.hub.tell("nodes", differences(now, before), mine)
		return
	}
	m := nodesMessage{Run: id, Event: last, Nodes: []change{}}
	at := map[string]int{}
	var failed error
	for e := range reached(context.Background(), run, after, last, &failed) {
		m.Lines++
		status, ok := statusAfter(e.Type)
		if !ok {
			continue
		}
		x := change{Path: e.Path, Status: letters[status : status+1], Attempt: e.Attempt}
		if i, known := at[e.Path]; known {
			m.Nodes[i] = x
			continue
		}
		at[e.Path] = len(m.Nodes)
		if m.Nodes = append(m.Nodes, x); len(m.Nodes) > maxChanges {
			w.hub.send(reset, mine)
			return
		}
	}
	if failed != nil { // an event could not be read: the log may have dropped it meanwhile
		w.hub.send(reset, mine)
		return
	}
	w.hub.tell("nodes", m, mine)
	w.hub.count(m.Lines)
}

// statusAfter returns the status of a node after an event with the given type. It returns false if the event does not determine the status.
func statusAfter(t event.Type) (kahn.Status, bool) {
	switch t {
	case event.NodeQueued:
		return kahn.Ready, true
	case event.NodeInvalidated: // the node is Idle or Ready now; the event does not say whether the node's predecessors have ended
		return kahn.Idle, true
	case event.NodeStarted:
		return kahn.Running, true
	}
	status, ok := outcomes[t]
	return status, ok
}
