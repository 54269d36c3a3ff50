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
	// nodeEvents maps each type of a node's events to the types that may follow it. The key "" stands for a node without events. The map omits deltas
	// and logs. It also omits aborts and cancellations, which may follow any event of a node that has not ended.
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
		// After a timeout, or after the output was rejected, the fallback may run. The fallback's output may be rejected, too.
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

// streamChecker checks the events of one run, one event after the other. A life of the run begins with the run's start or with a resumption. It lasts
// until the run ends, is suspended, is left or crashes.
type streamChecker struct {
	g           *kahn.Graph
	pruned      map[string]bool // nodes that are not part of the run
	events      []event.Event
	nodes       map[string]*nodeLife // by path
	deltas      map[string]int       // by path: the index of the last delta; never reset
	waits       map[string]bool      // the nodes that wait, by path
	untold      map[string]bool      // by path: the waiting nodes that no event about the run's status has listed yet
	crash       bool                 // whether the run has crashed, so that an event may list a waiting node a second time
	part        bool                 // whether nodes may have results without events: the stream begins with a resumption, or the run is a fork
	graphs      map[*kahn.Graph]map[string]*decl
	expanded    map[string]*kahn.Graph // by path: the graph of each expanded node that had exactly one attempt
	inside      map[string]*interior   // by the path of a composite: the interior of the composite
	resumptions int
	wave        int // in waves mode, the tier of the latest wave; -1 before the first wave
	waves       bool
	changed     bool   // whether the current life has another mode than the previous life
	switched    uint64 // the id of the event that resumed the run in waves mode after a life without waves; 0 if there is none
	tiers       bool   // whether the life may be in waves mode: then the first event of a node with predecessors may have the resumption as its Parent, or the start of the composite around the node
	open        bool
	midway      bool         // whether the tier of the open wave may be unknown: the stream begins with a resumption, the run is a fork, or the mode has changed
	taken       map[int]bool // by the index of an event that queues a node: whether the node begins in the same life; computed on first use
	steps       int          // the number of the checker's visits to nodes, edges and events, without the first visit to each event; tests check that it is linear in the number of events
}

// CheckEvents checks whether the events of an ended or suspended run obey the following rules, and returns the first violation. Event ids have no
// gaps. The first event is the run's start, and the last event is the run's end or suspension. The events of each node come in a possible order. A
// node ends only once, unless it runs again. The attempts of a node are numbered in order. An event that depends on the end of a predecessor comes
// after this end. Each event has a possible Parent. Waves do not overlap. The status and the number of attempts of each node agree with the Result.
// The indices of the deltas of a path have no gaps, even across retries, resumptions and redrives. If a run was left because its store did not
// answer, the events may stop anywhere.
//
// The argument `events` must contain all events of the run, as kahn delivered them; events decoded from JSON do not suffice. For a resumed run, pass
// the events of all processes that performed the run, in order. If a process crashed, pass its events only up to the id [event.Recovery].From.
// Instead, you may pass only the events of the last process: CheckEvents then checks as much as it can.
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
	lost := res.Status == kahn.RunSuspended && res.Cause.Kind == kahn.CauseStoreError // the store did not answer, so no more events were published
	if lost && len(events) == 0 {
		return nil
	}
	if len(events) < 2 && !lost {
		return fmt.Errorf("it has %d events", len(events))
	}
	switch first := events[0]; {
	case first.Type == event.RunStarted:
		c.waves = first.Payload.(event.Start).Waves
		c.part = forks(first) // nodes whose results come from the forked run have no events
	case resumes(first):
		c.part = true
		c.waves = c.wavesAfter(0)
	default:
		return fmt.Errorf("it does not begin with %s, nor with the resumption of a run", event.RunStarted)
	}
	c.expansions(res, "")
	c.midway = c.part
	// If c.part is set, the life may be in waves mode although c.waves is false: a life in which only nodes in composites continue has no waves.
	c.tiers = c.waves || c.part
	last := events[len(events)-1]
	switch p, changes := last.Payload.(event.StatusChange); {
	case lost: // the store did not answer, so any event may be the last
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

// expansions stores the graphs of expanded nodes in c.expanded. It omits nodes with several attempts: the Result has only the graph of the last
// attempt, and earlier attempts may have had other graphs.
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

// payloadFits reports whether the payload has the type that the rest of the checker expects. The field NoRetry must be set for a failure, and must
// not be set for an abort or a cancellation.
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

// The function `resumes` reports whether the event resumes the run, and so begins a new life of the run.
func resumes(e event.Event) bool {
	if e.Type == event.RunStatusChanged {
		return e.Payload.(event.StatusChange).To == kahn.RunRunning
	}
	return e.Type == event.RunRecovered
}

// The function `forks` reports whether the event begins a run that is a fork of another run.
func forks(e event.Event) bool {
	p, ok := e.Payload.(event.Start)
	return ok && p.Forked != ""
}

// wavesAfter reports whether the life that begins with event i has waves. A life in eager mode has no waves. A life in waves mode has no waves if
// only nodes in composites continue. A life may continue in an open wave and be left before the wave ends. Then it has a wave, but no event about the
// wave's start or end. wavesAfter recognizes this life by events whose Parent is the start of the wave.
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

// The method `resumed` begins a new life of the run with event i. In the new life, nodes that have not ended may be queued and begin again. The mode
// of the new life (waves or eager) may differ from the mode of the previous life.
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

// The method `carried` reports whether a predecessor of a node ended before the run changed to waves mode. Then a life without waves may already have
// decided the node's join, so the node may begin outside its wave.
func (c *streamChecker) carried(n *nodeLife) bool {
	c.steps += len(n.sources)
	return slices.ContainsFunc(n.sources, func(path string) bool {
		source := c.nodes[path]
		return source != nil && source.terminal != kahn.Idle && source.id < c.switched
	})
}

// The method `at` returns the event with an id. The second result is false if the stream lacks the event, for example because the stream begins
// later.
func (c *streamChecker) at(id uint64) (event.Event, bool) {
	if first := c.events[0].ID; id >= first && id-first < uint64(len(c.events)) {
		return c.events[id-first], true
	}
	return event.Event{}, false
}

// The method `result` compares the nodes of a Result, including nodes in composites, with the events of the stream.
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

// The method `node` returns the record of the node at a path. It creates the record if there is none.
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
			return fmt.Errorf("it continues after event %d", p.From)
		}
		c.crash = true
	case event.StatusChange:
		if err := c.statusChanged(i, p); err != nil {
			return err
		}
	}
	// After a redrive, and after a node of the outermost graph was invalidated, the next wave may be of any tier. This does not hold for the
	// invalidation of a node in a composite: its event may come long after the resumption, when the composite begins.
	if redrives(e) || e.Type == event.NodeInvalidated && !strings.ContainsAny(e.Path, "/[#") {
		c.wave, c.open = -1, false
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
		if p.Token != "" { // without a token, the node is a composite with waiting nodes, or it sleeps, or it was answered at once
			c.waits[e.Path], c.untold[e.Path] = true, true
		}
	case event.Delta, event.LogRecord:
	default:
		delete(c.waits, e.Path)
		delete(c.untold, e.Path)
	}
	return nil
}

// statusChanged checks a change of the run's status. The change must name the nodes that have begun to wait since the previous change, and must have
// the right TotalWaiting.
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
	// If a run continues and must call the step of an expanded node again to get the node's graph, the run does not know yet which nodes of the graph
	// run again. Until the step returns, TotalWaiting includes all nodes of the graph that waited before.
	if p.TotalWaiting < len(c.waits) || p.TotalWaiting > before {
		return fmt.Errorf("%d nodes wait", len(c.waits))
	}
	return nil
}

// stopWaiting removes the nodes that run again from c.waits and c.untold. Event i resumes the run, and the NodeInvalidated events directly after
// event i name these nodes.
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

// isInside reports whether path is the path of a node inside a composite, or of an item of the composite.
func isInside(path, composite string) bool {
	rest, ok := strings.CutPrefix(path, composite)
	return ok && rest != "" && strings.IndexByte("/[#", rest[0]) >= 0
}

// The function `redrives` reports whether the event begins a redrive of an ended run.
func redrives(e event.Event) bool {
	p, ok := e.Payload.(event.StatusChange)
	return ok && p.To == kahn.RunRunning && p.From.Terminal()
}

// waveEvent checks that waves come in order and do not overlap, and that all nodes of a wave end before the wave.
func (c *streamChecker) waveEvent(e event.Event, p event.Wave) error {
	start := e.Type == event.WaveStarted
	if c.midway && c.wave < 0 && !start {
		c.wave, c.open = p.Tier, true // the stream lacks the start of this wave
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
