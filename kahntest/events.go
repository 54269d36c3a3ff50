package kahntest

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
)

var (
	runTerminal  = []event.Type{event.RunCompleted, event.RunFailed, event.RunCancelled, event.RunTimedOut}
	nodeTerminal = map[event.Type]kahn.Status{
		event.NodeCompleted: kahn.Completed, event.NodeFailed: kahn.Failed, event.NodeAborted: kahn.Aborted,
		event.NodeCancelled: kahn.Cancelled, event.NodeSkipped: kahn.Skipped,
	}
	// nodeEvents lists, for each event of a node, the events that may follow it; "" stands before the first one. It leaves out deltas and logs,
	// and the aborts and cancels that any node may have until it ends.
	nodeEvents = map[event.Type][]event.Type{
		"": {
			event.NodeQueued, event.NodeStarted, event.NodeBlocked, event.NodeSkipped, event.NodeMocked,
			event.NodeFailed, event.ContractViolated, event.ModerationFlagged, event.NodeSignalled,
		},
		event.NodeQueued: {
			event.NodeStarted, event.NodeSuspended, event.NodeMocked, event.NodeSkipped, event.NodeTimedOut,
			event.NodeCompleted, event.NodeFailed, event.ContractViolated, event.ModerationFlagged,
		},
		event.NodeStarted: {
			event.NodeTimedOut, event.NodeRetried, event.NodeSuspended, event.NodeCompleted, event.NodeFailed,
			event.NodeSkipped, event.ContractViolated, event.ModerationFlagged, event.NodePaused,
		},
		event.NodePaused: {
			event.NodeTimedOut, event.NodeRetried, event.NodeSuspended, event.NodeCompleted, event.NodeFailed,
			event.NodeSkipped, event.ContractViolated, event.ModerationFlagged, event.NodePaused,
		},
		// After an event that refuses an output, or that comes too late for one, a fallback may follow, whose output may be
		// refused, too.
		event.ContractViolated: {
			event.NodeRetried, event.NodeFailed, event.NodeCompleted, event.NodeTimedOut, event.ContractViolated,
			event.ModerationFlagged,
		},
		event.ModerationFlagged: {
			event.NodeFailed, event.NodeCompleted, event.NodeTimedOut, event.ContractViolated, event.ModerationFlagged,
		},
		event.NodeTimedOut: {
			event.NodeTimedOut, event.NodeRetried, event.NodeFailed, event.NodeCompleted, event.ContractViolated,
			event.ModerationFlagged,
		},
		event.NodeRetried: {event.NodeQueued, event.NodeMocked, event.NodeTimedOut},
		event.NodeBlocked: {event.NodeSignalled, event.NodeQueued, event.NodeStarted, event.NodeSkipped, event.NodeFailed},
		event.NodeSuspended: {
			event.NodeQueued, event.NodeMocked, event.NodeCompleted, event.NodeTimedOut, event.NodeFailed,
			event.NodeSignalled,
		},
		event.NodeSignalled: {event.NodeQueued, event.NodeMocked, event.NodeCompleted, event.NodeFailed},
		event.NodeMocked: {
			event.NodeTimedOut, event.NodeRetried, event.NodeSuspended, event.NodeCompleted, event.NodeFailed,
			event.NodeSkipped,
		},
	}
)

// streamChecker goes through the events of one run.
type streamChecker struct {
	g           *kahn.Graph
	pruned      map[string]bool // nodes that are no part of the run
	events      []event.Event
	nodes       map[string]*nodeLife // by path
	deltas      map[string]int       // by path; they outlive everything
	waits       map[string]bool      // by path: the nodes that wait
	untold      map[string]bool      // tokens of waits that no change of the run's status has named
	crash       bool                 // the run has crashed: what a change has named before may be lost
	part        bool                 // the stream begins with a resumption
	graphs      map[*kahn.Graph]map[string]*decl
	expanded    map[string]*kahn.Graph // by path: what nodes were expanded into, in their only attempt
	inside      map[string]*interior   // by the path of the composite
	resumptions int
	wave        int // the tier that is open, in waves mode; -1 before the first
	waves       bool
	changed     bool   // the present life has another mode than the one before
	switched    uint64 // the event with which lives in waves mode began, after one without; 0: there was none
	tiers       bool   // the event that began a wave may have led to nodes inside composites: the life is, or may be, in waves mode
	open        bool
	midway      bool         // which tier is open is not known: the stream begins with a resumption, or the mode has changed
	taken       map[int]bool // by the index of an event that queues a node: the node begins in the same life; nil before the first question
	steps       int          // what was looked at beside the event itself, to show that the work is linear
}

// CheckEvents checks the events of a run that is over, or suspended, against the rules of every stream of events: ids without holes; the start first and the end last;
// each node's events in the order of its life, one end each, the attempts counted; predecessors before their consequences; a possible Parent for each event; waves that
// do not overlap; and the same ends as in the Result. A run that was left because its store did not answer may end with any event. Indices of deltas are contiguous for
// each path, whatever is retried, resumed or driven again. It returns the first violation. events are the run's events from the first on, not decoded from JSON. For a
// run that was resumed, give the events of all its lives, one after the other, and of a life that crashed the events up to [event.Recovery].From; or the events of the
// last life alone, of which as much is checked as can be known.
func CheckEvents(g *kahn.Graph, res *kahn.Result, events []event.Event) error {
	return new(streamChecker).check(g, res, events)
}

func (c *streamChecker) check(g *kahn.Graph, res *kahn.Result, events []event.Event) error {
	if g == nil || res == nil {
		return fmt.Errorf("no graph, or no result")
	}
	for _, e := range events {
		if !payloadFits(e) {
			return fmt.Errorf("%v has a payload of type %T, or one that does not fit", e, e.Payload)
		}
	}
	*c = streamChecker{
		g: g, pruned: make(map[string]bool, len(res.Pruned)), events: events, nodes: map[string]*nodeLife{}, deltas: map[string]int{},
		waits: map[string]bool{}, untold: map[string]bool{},
		graphs: map[*kahn.Graph]map[string]*decl{}, expanded: map[string]*kahn.Graph{}, inside: map[string]*interior{}, wave: -1,
	}
	for _, id := range res.Pruned {
		c.pruned[id] = true
	}
	lost := res.Status == kahn.RunSuspended && res.Cause.Kind == kahn.CauseStoreError // its store did not answer: nothing more was published
	if lost && len(events) == 0 {
		return nil
	}
	if len(events) < 2 && !lost {
		return fmt.Errorf("it has %d events", len(events))
	}
	switch first := events[0]; {
	case first.Type == event.RunStarted:
		c.waves = first.Payload.(event.Start).Waves
		c.part = forks(first) // the nodes that keep their results have no events
	case resumes(first):
		c.part = true
		c.waves = c.wavesAfter(0)
	default:
		return fmt.Errorf("it does not begin with %s, nor with the resumption of a run", event.RunStarted)
	}
	c.expansions(res, "")
	c.midway = c.part
	c.tiers = c.waves || c.part // a life in which only nodes in composites continued has no wave
	last := events[len(events)-1]
	switch p, changes := last.Payload.(event.StatusChange); {
	case lost: // anything may be the last event
	case res.Status == kahn.RunSuspended && !(changes && p.To == kahn.RunSuspended):
		return fmt.Errorf("%v is the last event of a suspended run", last)
	case res.Status != kahn.RunSuspended && !slices.Contains(runTerminal, last.Type):
		return fmt.Errorf("%v is the last event", last)
	}
	for i, e := range events {
		if err := c.event(i, e); err != nil {
			return fmt.Errorf("%v (led to by %d): %w", e, e.Parent, err)
		}
	}
	return c.result(res, "")
}

// expansions finds the graphs that nodes were expanded into. For a node that was attempted more than once the result has
// only the graph of the last attempt, which may differ from earlier ones.
func (c *streamChecker) expansions(res *kahn.Result, prefix string) {
	for r := range res.Nodes() {
		path := prefix + r.ID
		in, _, id, ok := c.place(path)
		if r.Sub == nil || !ok || in == nil {
			continue
		}
		if n := c.decls(in)[id]; n.step() && (n.Map == nil || id != r.ID) && r.Attempts == 1 {
			g := new(kahn.Graph)
			for ref := range r.Sub.Plan().Declared() {
				g.Add(r.Sub.Plan().Node(ref))
			}
			for e := range r.Sub.Plan().Edges() {
				g.Connect(e)
			}
			c.expanded[path] = g
		}
		c.expansions(r.Sub, c.prefixInside(r, prefix))
	}
}

// payloadFits reports whether the payload is of the type that the rest of the checker assumes, and whether failures, and no
// other events, say why there was no other attempt.
func payloadFits(e event.Event) (ok bool) {
	switch e.Type {
	case event.RunStarted:
		_, ok = e.Payload.(event.Start)
	case event.RunStatusChanged:
		_, ok = e.Payload.(event.StatusChange)
	case event.NodeFailed, event.NodeAborted, event.NodeCancelled:
		var p event.NodeEnd
		p, ok = e.Payload.(event.NodeEnd)
		ok = ok && (p.NoRetry != 0) == (e.Type == event.NodeFailed)
	case event.NodeDelta:
		_, ok = e.Payload.(event.Delta)
	case event.NodeCompleted:
		_, ok = e.Payload.(event.Completion)
	case event.NodeBlocked:
		_, ok = e.Payload.(event.Block)
	case event.NodeSkipped:
		_, ok = e.Payload.(event.Skip)
	default:
		ok = true
	}
	return ok
}

// resumes reports whether the event says that a run continues.
func resumes(e event.Event) bool {
	if e.Type == event.RunStatusChanged {
		return e.Payload.(event.StatusChange).To == kahn.RunRunning
	}
	return e.Type == event.RunRecovered
}

// forks reports whether the event begins a run with results of another one.
func forks(e event.Event) bool {
	p, ok := e.Payload.(event.Start)
	return ok && p.Forked != ""
}

// wavesAfter reports whether the life that begins with an event has waves. A life in waves mode in which nothing happens outside composites
// has none, like a life in eager mode. A life that continues in an open wave has no event of a wave if it is left before the wave ends: then
// the nodes that the wave's start led to show it.
func (c *streamChecker) wavesAfter(i int) bool {
	for _, e := range c.events[i+1:] {
		c.steps++
		cause, known := c.at(e.Parent)
		switch {
		case known && cause.Type == event.WaveStarted:
			return true
		case e.Type == event.WaveStarted || e.Type == event.WaveCompleted:
			return true
		case resumes(e):
			return false
		}
	}
	return false
}

// resumed prepares for the events that a resumption may repeat: nodes that had not ended are queued and begin again. The run
// may continue in another mode.
func (c *streamChecker) resumed(i int) {
	waves := c.wavesAfter(i)
	c.changed = waves != c.waves
	if c.changed {
		c.waves, c.wave, c.open = waves, -1, false
		c.midway, c.tiers = true, true
		c.switched = 0
		if waves {
			c.switched = c.events[i].ID
		}
	}
	c.resumptions++
}

// carried reports whether the join of a node may have been decided in a life without waves, before the present one in waves mode: its
// check, which has no event, continues outside its wave.
func (c *streamChecker) carried(n *nodeLife) bool {
	c.steps += len(n.sources)
	return slices.ContainsFunc(n.sources, func(path string) bool {
		source := c.nodes[path]
		return source != nil && source.terminal != kahn.Idle && source.id < c.switched
	})
}

// at returns an event of the stream, or false if it is not in it: it may be from before the stream began.
func (c *streamChecker) at(id uint64) (event.Event, bool) {
	if first := c.events[0].ID; id >= first && id-first < uint64(len(c.events)) {
		return c.events[id-first], true
	}
	return event.Event{}, false
}

// result compares the nodes of a result, nodes inside composites included, with the events of the stream.
func (c *streamChecker) result(res *kahn.Result, prefix string) error {
	for r := range res.Nodes() {
		n := c.nodes[prefix+r.ID]
		if n == nil {
			n = &nodeLife{unseen: c.part}
		}
		switch {
		case n.unseen:
		case n.terminal != r.Status && (n.terminal != kahn.Idle || r.Status.Terminal()):
			return fmt.Errorf("node %s is %v in the result and %v in the stream", prefix+r.ID, r.Status, n.terminal)
		case n.attempt != r.Attempts && !(n.maybe && n.attempt+1 == r.Attempts):
			return fmt.Errorf("node %s has %d attempts in the result and %d in the stream", prefix+r.ID, r.Attempts, n.attempt)
		}
		if r.Sub != nil && !n.guessed() {
			if err := c.result(r.Sub, c.prefixInside(r, prefix)); err != nil {
				return err
			}
		}
	}
	return nil
}

// node finds the record of the node with the given path.
func (c *streamChecker) node(path string) (*nodeLife, error) {
	if n := c.nodes[path]; n != nil {
		return n, nil
	}
	in, prefix, id, ok := c.g, "", path, true
	if strings.ContainsAny(path, "/[#") {
		in, prefix, id, ok = c.place(path)
	}
	d := &decl{Node: kahn.Node{ID: id}, unknown: true}
	if ok && in != nil {
		d = c.decls(in)[id]
	}
	if !ok || d == nil {
		return nil, fmt.Errorf("no such node")
	}
	n := &nodeLife{decl: d, unseen: c.part, resumed: c.resumptions}
	if item := strings.HasPrefix(path, prefix+id+"["); prefix != "" || item {
		d := *n.decl
		d.item, d.sources = item, nil
		d.within = around(path, prefix, id)
		if !item {
			c.steps += len(n.sources)
			for _, from := range n.sources {
				d.sources = append(d.sources, prefix+from)
			}
		}
		n.decl = &d
		inside := c.interior(d.within)
		inside.nodes, inside.open = append(inside.nodes, path), append(inside.open, path)
		c.opened(inside)
		if number, iteration := strings.CutPrefix(strings.TrimSuffix(prefix, "/"), d.within+"#"); iteration {
			k, _ := strconv.Atoi(number)
			inside.last = max(inside.last, k)
		}
	}
	c.nodes[path] = n
	return n, nil
}

func (c *streamChecker) event(i int, e event.Event) error {
	first := c.events[0]
	switch {
	case e.ID != first.ID+uint64(i) || e.ID == 0 || !c.part && e.ID != uint64(i+1):
		return fmt.Errorf("it is event %d of those from %d on", i+1, first.ID)
	case i > 0 && e.Type == event.RunStarted:
		return fmt.Errorf("not at its place")
	case slices.Contains(runTerminal, e.Type) && i < len(c.events)-1 && !redrives(c.events[i+1]):
		return fmt.Errorf("something comes after it")
	case i > 0 && e.Time.Before(c.events[i-1].Time):
		return fmt.Errorf("it is before its predecessor in time")
	case e.RunID != first.RunID || e.TraceID != first.TraceID || e.TraceID == "" || e.Workflow != c.g.Name:
		return fmt.Errorf("it is of run %q, trace %q, workflow %q", e.RunID, e.TraceID, e.Workflow)
	case e.Parent >= e.ID:
		return fmt.Errorf("it comes before its parent")
	}
	switch p := e.Payload.(type) {
	case event.Wave:
		return c.waveEvent(e, p)
	case event.RunEnd:
		if c.open {
			return fmt.Errorf("wave %d is not over", c.wave)
		}
	case event.Recovery:
		if i > 0 && p.From != e.ID-1 {
			return fmt.Errorf("it goes on after event %d", p.From)
		}
		c.crash = true
	case event.StatusChange:
		if err := c.statusChanged(i, p); err != nil {
			return err
		}
	}
	if redrives(e) || e.Type == event.NodeInvalidated && !strings.ContainsAny(e.Path, "/[#") { // nodes inside may be invalidated once their composite begins
		c.wave, c.open = -1, false // a new epoch
	}
	if resumes(e) {
		c.resumed(i)
	}
	if e.Node == "" {
		return nil
	}
	n, err := c.node(e.Path)
	if err != nil {
		return err
	}
	if err := c.nodeEvent(i, e, n); err != nil {
		return err
	}
	switch p := e.Payload.(type) {
	case event.Suspension:
		if p.Token != "" { // else it is a composite in which nodes wait, or a node that was answered at once
			c.waits[e.Path], c.untold[e.Path] = true, true
		}
	case event.Delta, event.LogRecord:
	default:
		delete(c.waits, e.Path)
		delete(c.untold, e.Path)
	}
	return nil
}

// statusChanged checks that a change of the run's status names the nodes that have begun to wait since the last one, and
// counts all that wait.
func (c *streamChecker) statusChanged(i int, p event.StatusChange) error {
	before := len(c.waits)
	if p.To == kahn.RunRunning {
		c.stopWaiting(i)
	}
	if c.part {
		return nil
	}
	for _, path := range p.Waiting {
		if !c.waits[path] || !c.untold[path] && !c.crash {
			return fmt.Errorf("%s does not wait, or was named before", path)
		}
		delete(c.untold, path)
	}
	if len(c.untold) > 0 {
		return fmt.Errorf("%s waits, and is not named", slices.Min(slices.Collect(maps.Keys(c.untold))))
	}
	// What runs again in a graph that a step has to return again is known when it has, and counts until then.
	if p.TotalWaiting < len(c.waits) || p.TotalWaiting > before {
		return fmt.Errorf("%d nodes wait", len(c.waits))
	}
	return nil
}

// stopWaiting forgets that nodes wait which run again, as the events say that follow a change of the run's status.
func (c *streamChecker) stopWaiting(i int) {
	for _, e := range c.events[i+1:] {
		if e.Type != event.NodeInvalidated {
			return
		}
		for path := range c.waits {
			if path == e.Path || !goesOnInside(e) && isInside(path, e.Path) {
				delete(c.waits, path)
				delete(c.untold, path)
			}
		}
	}
}

// isInside reports whether a path leads to a node in a composite, or of an item.
func isInside(path, composite string) bool {
	rest, ok := strings.CutPrefix(path, composite)
	return ok && rest != "" && strings.IndexByte("/[#", rest[0]) >= 0
}

// redrives reports whether the event begins a new epoch of a run that was over, or suspended.
func redrives(e event.Event) bool {
	p, ok := e.Payload.(event.StatusChange)
	return ok && p.To == kahn.RunRunning && p.From.Terminal()
}

// waveEvent checks that waves do not overlap and come in order, and that all nodes of one have ended when it is over.
func (c *streamChecker) waveEvent(e event.Event, p event.Wave) error {
	start := e.Type == event.WaveStarted
	if c.midway && c.wave < 0 && !start {
		c.wave, c.open = p.Tier, true // it was open when the stream began
	}
	if !c.waves || c.open == start || start && p.Tier <= c.wave || !start && p.Tier != c.wave {
		return fmt.Errorf("wave %d, open %v", c.wave, c.open)
	}
	c.wave, c.open = p.Tier, start
	for _, id := range p.Nodes {
		n, err := c.node(id)
		if err != nil {
			return err
		}
		if !start && n.terminal == kahn.Idle && !n.unseen {
			return fmt.Errorf("node %s has not ended", id)
		}
	}
	return nil
}
