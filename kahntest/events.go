package kahntest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-c794f7ef/kahn"
)

var (
	runTerminal  = []kahn.EventType{kahn.EventRunCompleted, kahn.EventRunFailed, kahn.EventRunCancelled, kahn.EventRunTimedOut}
	nodeTerminal = map[kahn.EventType]kahn.Status{
		kahn.EventNodeCompleted: kahn.Completed, kahn.EventNodeFailed: kahn.Failed, kahn.EventNodeAborted: kahn.Aborted,
		kahn.EventNodeCancelled: kahn.Cancelled, kahn.EventNodeSkipped: kahn.Skipped,
	}
	// nodeEvents says which event of a node may come next after which; "" is before its first. Deltas and logs are not in
	// it, nor that everything that has not ended may be aborted or cancelled.
	nodeEvents = map[kahn.EventType][]kahn.EventType{
		"": {
			kahn.EventNodeQueued, kahn.EventNodeStarted, kahn.EventNodeBlocked, kahn.EventNodeSkipped, kahn.EventNodeMocked,
			kahn.EventNodeFailed, kahn.EventContractViolated, kahn.EventModerationFlagged, kahn.EventNodeSignalled,
		},
		kahn.EventNodeQueued: {
			kahn.EventNodeStarted, kahn.EventNodeSuspended, kahn.EventNodeMocked, kahn.EventNodeSkipped, kahn.EventNodeTimedOut,
			kahn.EventNodeCompleted, kahn.EventNodeFailed, kahn.EventContractViolated, kahn.EventModerationFlagged,
		},
		kahn.EventNodeStarted: {
			kahn.EventNodeTimedOut, kahn.EventNodeRetried, kahn.EventNodeSuspended, kahn.EventNodeCompleted, kahn.EventNodeFailed,
			kahn.EventNodeSkipped, kahn.EventContractViolated, kahn.EventModerationFlagged, kahn.EventNodePaused,
		},
		kahn.EventNodePaused: {
			kahn.EventNodeTimedOut, kahn.EventNodeRetried, kahn.EventNodeSuspended, kahn.EventNodeCompleted, kahn.EventNodeFailed,
			kahn.EventNodeSkipped, kahn.EventContractViolated, kahn.EventModerationFlagged, kahn.EventNodePaused,
		},
		// What refuses an output, or comes too late for it, leaves room for a fallback, which may be refused in its turn.
		kahn.EventContractViolated: {
			kahn.EventNodeRetried, kahn.EventNodeFailed, kahn.EventNodeCompleted, kahn.EventNodeTimedOut, kahn.EventContractViolated,
			kahn.EventModerationFlagged,
		},
		kahn.EventModerationFlagged: {
			kahn.EventNodeFailed, kahn.EventNodeCompleted, kahn.EventNodeTimedOut, kahn.EventContractViolated, kahn.EventModerationFlagged,
		},
		kahn.EventNodeTimedOut: {
			kahn.EventNodeTimedOut, kahn.EventNodeRetried, kahn.EventNodeFailed, kahn.EventNodeCompleted, kahn.EventContractViolated,
			kahn.EventModerationFlagged,
		},
		kahn.EventNodeRetried: {kahn.EventNodeQueued, kahn.EventNodeMocked, kahn.EventNodeTimedOut},
		kahn.EventNodeBlocked: {kahn.EventNodeSignalled, kahn.EventNodeQueued, kahn.EventNodeStarted, kahn.EventNodeSkipped, kahn.EventNodeFailed},
		kahn.EventNodeSuspended: {
			kahn.EventNodeQueued, kahn.EventNodeMocked, kahn.EventNodeCompleted, kahn.EventNodeTimedOut, kahn.EventNodeFailed,
			kahn.EventNodeSignalled,
		},
		kahn.EventNodeSignalled: {kahn.EventNodeQueued, kahn.EventNodeMocked, kahn.EventNodeCompleted, kahn.EventNodeFailed},
		kahn.EventNodeMocked: {
			kahn.EventNodeTimedOut, kahn.EventNodeRetried, kahn.EventNodeSuspended, kahn.EventNodeCompleted, kahn.EventNodeFailed,
			kahn.EventNodeSkipped,
		},
	}
)

// place finds the node that an event is about: the graph that it stands in, the path up to it, and its id there. Of an item
// "M[2]" that is the map. It looks the parts of the path up, and not at all nodes. There is no graph for what is inside of a node that
// was expanded into one which is not known.
func (c *streamChecker) place(path string) (in *kahn.Graph, prefix, id string, ok bool) {
	return c.placeIn(c.g, "", path)
}

// placeIn is place for a path inside of the nodes that the path above leads to, in the graph g.
func (c *streamChecker) placeIn(g *kahn.Graph, above, path string) (in *kahn.Graph, prefix, id string, ok bool) {
	nodes := c.decls(g)
	if nodes[path] != nil {
		return g, "", path, true
	}
	for i := 1; i < len(path); i++ {
		n := nodes[path[:i]]
		if n == nil || !strings.ContainsRune("/[#", rune(path[i])) {
			continue
		}
		item, inner, deeper := strings.Cut(path[i:], "/")
		switch {
		case !deeper && path[i] == '[':
			return g, "", n.ID, true
		case deeper && n.Sub != nil:
			in, prefix, id, ok = c.placeIn(n.Sub, above+n.ID+item+"/", inner)
			return in, n.ID + item + "/" + prefix, id, ok
		case deeper && n.step():
			if sub := c.expanded[above+n.ID+item]; sub != nil {
				in, prefix, id, ok = c.placeIn(sub, above+n.ID+item+"/", inner)
				return in, n.ID + item + "/" + prefix, id, ok
			}
			at := strings.LastIndexByte(path, '/') + 1
			prefix, id = path[:at], path[at:]
			if base, _, isItem := strings.Cut(id, "["); isItem && c.nodes[above+prefix+base] != nil {
				id = base
			}
			return nil, prefix, id, true
		}
	}
	return nil, "", "", false
}

// decls are the nodes of a graph by id.
func (c *streamChecker) decls(g *kahn.Graph) map[string]*decl {
	if known := c.graphs[g]; known != nil {
		return known
	}
	nodes := map[string]*decl{}
	c.graphs[g] = nodes
	for _, n := range g.Nodes() {
		nodes[n.ID] = &decl{Node: n}
	}
	for _, e := range g.Edges() {
		if g == c.g && slices.Contains(c.pruned, e.From) {
			continue
		}
		nodes[e.To].sources = append(nodes[e.To].sources, e.From)
	}
	return nodes
}

// around is the path of the composite that a node is inside of, or "", for the path of the node, and the prefix and the id that
// place has found.
func around(path, prefix, id string) string {
	if strings.HasPrefix(path, prefix+id+"[") {
		return prefix + id // of an item
	}
	within := strings.TrimSuffix(prefix, "/")
	if at := strings.LastIndexByte(within, '#'); at > strings.LastIndexByte(within, '/') {
		within = within[:at] // an iteration has no events of its own
	}
	return within
}

// interior is what was seen inside of a composite, but for what is inside of composites in there.
type interior struct {
	nodes      []string // paths
	composites []string // paths of those that have an interior
	last       int      // of a loop: the number of its last iteration
}

// interior finds or makes the interior of a composite, which is part of that of the composite around it.
func (c *streamChecker) interior(path string) *interior {
	in := c.inside[path]
	if in == nil {
		in = &interior{}
		c.inside[path] = in
		if _, prefix, id, _ := c.place(path); prefix != "" || id != path {
			outer := c.interior(around(path, prefix, id))
			outer.composites = append(outer.composites, path)
		}
	}
	return in
}

// forget forgets what was seen inside of a composite.
func (c *streamChecker) forget(path string) {
	in := c.inside[path]
	if in == nil {
		return
	}
	for _, node := range in.nodes {
		delete(c.nodes, node)
	}
	for _, inner := range in.composites {
		c.forget(inner)
		delete(c.inside, inner)
	}
	*in = interior{}
}

// unended returns a node inside of a composite that has begun, and has not ended.
func (c *streamChecker) unended(composite string) (path string, ok bool) {
	in := c.inside[composite]
	if in == nil {
		return "", false
	}
	for _, path := range in.nodes {
		if n := c.nodes[path]; n.terminal == kahn.Idle && n.last != "" && !c.again(n) {
			return path, true
		}
	}
	for _, inner := range in.composites {
		if path, ok := c.unended(inner); ok {
			return path, true
		}
	}
	return "", false
}

// giveUp forgets that nodes inside of a composite wait.
func (c *streamChecker) giveUp(composite string) {
	in := c.inside[composite]
	for _, path := range in.nodes {
		delete(c.waits, path)
		delete(c.untold, path)
	}
	for _, inner := range in.composites {
		c.giveUp(inner)
	}
}

// quiet reports whether nothing inside of a composite has happened since the run was resumed.
func (c *streamChecker) quiet(composite string) bool {
	in := c.inside[composite]
	return in != nil && !slices.ContainsFunc(in.nodes, func(path string) bool { return !c.again(c.nodes[path]) }) &&
		!slices.ContainsFunc(in.composites, func(inner string) bool { return !c.quiet(inner) })
}

// again reports whether the run was resumed since the last event of a node that has not ended: it may be queued, and begun, again.
func (c *streamChecker) again(n *nodeLife) bool { return n.resumed < c.resumptions }

// nodeLife is what has been seen of a node.
type nodeLife struct {
	*decl
	last      kahn.EventType // that was neither a delta nor a log
	id        uint64         // of that
	attempt   int            // the number of the last attempt
	reentered bool           // the next start is of the same attempt: it was suspended
	maybe     bool           // one attempt more may have begun in a life that is not in the stream: the next start may be of the same one
	terminal  kahn.Status
	unseen    bool // what came before is not in the stream, which begins with a resumption
	resumed   int  // how often the run had been resumed at the last event
	unbound   bool // it began in a life without waves, or may have: it goes on outside its wave
	assumed   bool // unseen, and it has ended, or something would not have followed from that
}

// guessed reports whether nothing is known of the node's declaration.
func (n *nodeLife) guessed() bool { return n.decl != nil && n.unknown }

// mockedInline reports whether a mock of the node is called without having been queued.
func (d *decl) mockedInline() bool { return d.inline() || d.isGate() || d.Sub != nil || d.Map != nil }

// refused reports whether the attempt's output does not count.
func (n *nodeLife) refused() bool {
	return n.last == kahn.EventNodeTimedOut || n.last == kahn.EventContractViolated || n.last == kahn.EventModerationFlagged
}

// decl is how a node is declared.
type decl struct {
	kahn.Node
	sources []string // of all edges, by path
	within  string   // the path of the composite that it is inside of, or ""
	item    bool     // it is an item of a map, declared by the map
	unknown bool     // it is inside of a node that was expanded into a graph which is not known
}

func (d *decl) inline() bool { return d.Test != nil || d.TestExpr != "" || d.Kind == kahn.KindTrigger }

// step reports whether the node is performed by a step, which may return a graph.
func (d *decl) step() bool { return d.Sub == nil && !d.inline() && !d.isGate() }

func (d *decl) isGate() bool { return d.Kind == kahn.KindGate && d.Do == nil && !d.inline() }

// early reports whether the node may start before all its predecessors have ended.
func (d *decl) early() bool {
	return d.Join == kahn.AnySucceeded || d.Join == kahn.OneFailed || d.Join == kahn.OneDone || d.Join > 255 // AtLeast
}

// streamChecker goes through the events of one run.
type streamChecker struct {
	g           *kahn.Graph
	pruned      []string // nodes that are no part of the run
	events      []kahn.Event
	nodes       map[string]*nodeLife // by path
	deltas      map[string]int       // by path; they outlive everything
	waits       map[string]bool      // by path: the nodes that wait
	untold      map[string]bool      // those that no change of the run's status has named
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
	tiers       bool   // nodes inside of composites may be led to by what has begun their wave: so it is in waves mode, or may be
	open        bool
	midway      bool // which tier is open was not told: the stream begins with a resumption, or the mode has changed
}

// CheckEvents holds the events of a run that is over, or suspended, against what every stream of events must satisfy: ids
// without holes; the start first and the end last; each node's events in the order of its life, one end each, the attempts
// counted; predecessors before what follows from them; each event led to by one that can have led to it; waves that do not
// overlap; and the same ends as in the Result. Indices of deltas are contiguous for each path, whatever is retried, resumed or
// driven again. It returns the first violation. events are those of the run from the first on, not decoded from JSON. Of a run
// that was resumed they are those of all its lives, one after the other, of one that crashed up to [kahn.RunRecovered].From; or
// those of the last life alone, of which as much is checked as can be known.
func CheckEvents(g *kahn.Graph, res *kahn.Result, events []kahn.Event) error {
	if g == nil || res == nil {
		return fmt.Errorf("no graph, or no result")
	}
	for _, e := range events {
		if !payloadFits(e) {
			return fmt.Errorf("%v has a payload of type %T, or one that does not fit", e, e.Payload)
		}
	}
	c := streamChecker{
		g: g, pruned: res.Pruned, events: events, nodes: map[string]*nodeLife{}, deltas: map[string]int{},
		waits: map[string]bool{}, untold: map[string]bool{},
		graphs: map[*kahn.Graph]map[string]*decl{}, expanded: map[string]*kahn.Graph{}, inside: map[string]*interior{}, wave: -1,
	}
	if len(events) < 2 {
		return fmt.Errorf("it has %d events", len(events))
	}
	switch first := events[0]; {
	case first.Type == kahn.EventRunStarted:
		c.waves = first.Payload.(kahn.RunStarted).Mode == kahn.Waves
	case resumes(first):
		c.part = true
		c.waves = c.wavesAfter(0)
	default:
		return fmt.Errorf("it does not begin with %s, nor with what resumes a run", kahn.EventRunStarted)
	}
	c.expansions(res, "")
	c.midway = c.part
	c.tiers = c.waves || c.part // a life in which nothing but the inside of composites went on has no wave
	last := events[len(events)-1]
	if res.Status == kahn.RunSuspended {
		if p, ok := last.Payload.(kahn.RunStatusChanged); !ok || p.To != kahn.RunSuspended {
			return fmt.Errorf("%v is the last event of a suspended run", last)
		}
	} else if !slices.Contains(runTerminal, last.Type) {
		return fmt.Errorf("%v is the last event", last)
	}
	for i, e := range events {
		if err := c.event(i, e); err != nil {
			return fmt.Errorf("%v (led to by %d): %w", e, e.Parent, err)
		}
	}
	return c.result(res, "")
}

// expansions finds the graphs that nodes were expanded into. Of a node that was attempted more than once that of the last attempt is
// in the result: it may be another one than before.
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
				g.Connect(e.Edge)
			}
			c.expanded[path] = g
		}
		c.expansions(r.Sub, c.prefixInside(r, prefix))
	}
}

// payloadFits reports whether the payload is of the type that the rest of the checker takes for granted, and whether a failure,
// and nothing else, says why there was no other attempt.
func payloadFits(e kahn.Event) (ok bool) {
	switch e.Type {
	case kahn.EventRunStarted:
		_, ok = e.Payload.(kahn.RunStarted)
	case kahn.EventRunStatus:
		_, ok = e.Payload.(kahn.RunStatusChanged)
	case kahn.EventNodeFailed, kahn.EventNodeAborted, kahn.EventNodeCancelled:
		var p kahn.NodeEnded
		p, ok = e.Payload.(kahn.NodeEnded)
		ok = ok && (p.NoRetry != 0) == (e.Type == kahn.EventNodeFailed)
	case kahn.EventNodeDelta:
		_, ok = e.Payload.(kahn.Delta)
	case kahn.EventNodeCompleted:
		_, ok = e.Payload.(kahn.NodeCompleted)
	case kahn.EventNodeBlocked:
		_, ok = e.Payload.(kahn.NodeBlocked)
	case kahn.EventNodeSkipped:
		_, ok = e.Payload.(kahn.NodeSkipped)
	default:
		ok = true
	}
	return ok
}

// resumes reports whether the event tells that a run goes on.
func resumes(e kahn.Event) bool {
	if e.Type == kahn.EventRunStatus {
		return e.Payload.(kahn.RunStatusChanged).To == kahn.RunRunning
	}
	return e.Type == kahn.EventRunRecovered
}

// wavesAfter reports whether the life that begins with an event has waves. A life in waves mode in which nothing happens outside
// of composites has none, as one in eager mode.
func (c *streamChecker) wavesAfter(i int) bool {
	for _, e := range c.events[i+1:] {
		switch {
		case e.Type == kahn.EventWaveStarted || e.Type == kahn.EventWaveCompleted:
			return true
		case resumes(e):
			return false
		}
	}
	return false
}

// resumed prepares for what a resumption may repeat: what had not ended is queued and begun again. The run may go on in
// another mode.
func (c *streamChecker) resumed(i int) {
	waves := c.wavesAfter(i)
	c.changed = waves != c.waves
	if c.changed {
		c.waves, c.wave, c.open = waves, -1, false
		c.midway, c.tiers = true, true
		for _, n := range c.nodes {
			n.unbound = waves && n.last != ""
		}
		c.switched = 0
		if waves {
			c.switched = c.events[i].ID
		}
	}
	c.resumptions++
}

// judgedAnew reports whether an event is the end of a node that has not begun, decided because the run goes on in another mode: where
// there are no waves any more joins are decided at once, also inside of a composite in which everything else waits.
func (c *streamChecker) judgedAnew(e kahn.Event, n *nodeLife) bool {
	around := c.nodes[n.within]
	return c.changed && n.last == "" && around != nil && around.last == kahn.EventNodeSuspended &&
		(e.Type == kahn.EventNodeSkipped || e.Type == kahn.EventNodeBlocked || e.Type == kahn.EventNodeAborted)
}

// carried reports whether the join of a node may have been decided in a life without waves, before the present one in waves mode: its
// check, which no event tells of, goes on outside its wave.
func (c *streamChecker) carried(n *nodeLife) bool {
	return slices.ContainsFunc(n.sources, func(path string) bool {
		source := c.nodes[path]
		return source != nil && source.terminal != kahn.Idle && source.id < c.switched
	})
}

// event returns an earlier event of the stream, or false if it is from before the stream began.
func (c *streamChecker) at(id uint64) (kahn.Event, bool) {
	if first := c.events[0].ID; id >= first {
		return c.events[id-first], true
	}
	return kahn.Event{}, false
}

// result compares the nodes of a result, those inside of composites too, with what the stream told of them.
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

// prefixInside is what the paths of a composite's nodes begin with: of a loop those of its last iteration.
func (c *streamChecker) prefixInside(r kahn.NodeResult, prefix string) string {
	in, _, id, ok := c.place(prefix + r.ID)
	if !ok || in == nil {
		return prefix + r.ID + "/"
	}
	switch n := c.decls(in)[id]; {
	case id != r.ID: // an item
	case n.Map != nil:
		return prefix // the id of an item has that of the map in it
	case n.Loop != nil:
		last := 0
		if in := c.inside[prefix+r.ID]; in != nil {
			last = in.last
		}
		return fmt.Sprintf("%s%s#%d/", prefix, r.ID, last)
	}
	return prefix + r.ID + "/"
}

// node finds what is known of the node that goes by a path.
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
			for _, from := range n.sources {
				d.sources = append(d.sources, prefix+from)
			}
		}
		n.decl = &d
		inside := c.interior(d.within)
		inside.nodes = append(inside.nodes, path)
		if number, iteration := strings.CutPrefix(strings.TrimSuffix(prefix, "/"), d.within+"#"); iteration {
			k, _ := strconv.Atoi(number)
			inside.last = max(inside.last, k)
		}
	}
	c.nodes[path] = n
	return n, nil
}

func (c *streamChecker) event(i int, e kahn.Event) error {
	first := c.events[0]
	switch {
	case e.ID != first.ID+uint64(i) || e.ID == 0 || !c.part && e.ID != uint64(i+1):
		return fmt.Errorf("it is event %d of those from %d on", i+1, first.ID)
	case i > 0 && e.Type == kahn.EventRunStarted:
		return fmt.Errorf("not at its place")
	case slices.Contains(runTerminal, e.Type) && i < len(c.events)-1 && !redrives(c.events[i+1]):
		return fmt.Errorf("something comes after it")
	case i > 0 && e.Time.Before(c.events[i-1].Time):
		return fmt.Errorf("it is before its predecessor in time")
	case e.RunID != first.RunID || e.TraceID != first.TraceID || e.TraceID == "" || e.Workflow != c.g.Name:
		return fmt.Errorf("it is of run %q, trace %q, workflow %q", e.RunID, e.TraceID, e.Workflow)
	case e.Parent >= e.ID:
		return fmt.Errorf("it comes before what led to it")
	}
	switch p := e.Payload.(type) {
	case kahn.Wave:
		return c.waveEvent(e, p)
	case kahn.RunEnded:
		if c.open {
			return fmt.Errorf("wave %d is not over", c.wave)
		}
	case kahn.RunRecovered:
		if i > 0 && p.From != e.ID-1 {
			return fmt.Errorf("it goes on after event %d", p.From)
		}
		c.crash = true
	case kahn.RunStatusChanged:
		if err := c.statusChanged(p); err != nil {
			return err
		}
	}
	if redrives(e) || e.Type == kahn.EventNodeInvalidated {
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
	case kahn.NodeSuspended:
		if p.Token != "" { // else it is a composite in which nodes wait, or one that was answered at once
			c.waits[e.Path], c.untold[e.Path] = true, true
		}
	case kahn.Delta, kahn.LogRecord:
	default:
		delete(c.waits, e.Path)
		delete(c.untold, e.Path)
	}
	return nil
}

// statusChanged checks that a change of the run's status names the nodes that have begun to wait since the last one, and
// counts all that wait.
func (c *streamChecker) statusChanged(p kahn.RunStatusChanged) error {
	if c.part {
		return nil
	}
	for _, path := range p.Waiting {
		if !c.waits[path] || !c.untold[path] && !c.crash {
			return fmt.Errorf("%s does not wait, or was named before", path)
		}
		delete(c.untold, path)
	}
	for path := range c.untold {
		return fmt.Errorf("%s waits, and is not named", path)
	}
	if p.TotalWaiting != len(c.waits) {
		return fmt.Errorf("%d nodes wait", len(c.waits))
	}
	return nil
}

// redrives reports whether the event begins a new epoch of a run that was over, or suspended.
func redrives(e kahn.Event) bool {
	p, ok := e.Payload.(kahn.RunStatusChanged)
	return ok && p.To == kahn.RunRunning && p.From.Terminal()
}

// waveEvent checks that waves do not overlap and come in order, and that all nodes of one have ended when it is over.
func (c *streamChecker) waveEvent(e kahn.Event, p kahn.Wave) error {
	start := e.Type == kahn.EventWaveStarted
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

func (c *streamChecker) nodeEvent(i int, e kahn.Event, n *nodeLife) error {
	switch {
	case e.Type == kahn.EventNodeInvalidated:
		if parent, known := c.at(e.Parent); e.Parent == 0 || known && parent.ID != n.id && !(c.part && n.unseen && resumes(parent)) {
			return fmt.Errorf("its node's last event is %d", n.id)
		}
		*n = nodeLife{decl: n.decl, resumed: c.resumptions}
		return nil
	case n.terminal != kahn.Idle || n.assumed:
		return fmt.Errorf("after the node's end")
	case n.within != "" && !c.running(n.within) && !c.judgedAnew(e, n):
		return fmt.Errorf("%s does not run", n.within)
	case e.Type == kahn.EventNodeDelta || e.Type == kahn.EventNodeLog:
		return c.passing(e, n)
	case !mayFollow(e, n, c.again(n)) && !c.interrupted(i, e, n):
		return fmt.Errorf("after %q", n.last)
	}
	if err := c.parent(e, n); err != nil {
		return err
	}
	if n.unseen {
		c.firstSeen(e, n)
	}
	attempt := n.attempt
	switch e.Type {
	case kahn.EventNodeQueued, kahn.EventNodeStarted, kahn.EventNodeMocked:
		if !n.reentered && !(c.again(n) && n.inline() && e.Attempt == attempt) { // a store does not hear of inline starts
			attempt++
		}
		if e.Type != kahn.EventNodeQueued {
			if !n.reentered { // else what is inside goes on
				c.forget(e.Path)
			}
			n.attempt, n.reentered, n.maybe = attempt, false, false
		}
		told := c.wave >= 0 || !c.midway
		if c.waves && told && !n.unbound && n.within == "" && n.Kind != kahn.KindEnd && !n.Cleanup && (!c.open || c.wave != e.Tier) && !c.carried(n) {
			return fmt.Errorf("outside its wave")
		}
	case kahn.EventNodeRetried:
		n.reentered = false
	case kahn.EventNodeSuspended:
		n.reentered = n.last == kahn.EventNodeStarted || n.last == kahn.EventNodePaused || n.last == kahn.EventNodeMocked || n.last == kahn.EventNodeTimedOut
		if n.last == kahn.EventNodeQueued {
			attempt = e.Attempt // a gate's
		}
	case kahn.EventNodeTimedOut:
		if n.last == kahn.EventNodeQueued && e.Attempt == attempt+1 { // while the inputs of the next attempt were judged
			attempt++
		}
	case kahn.EventContractViolated, kahn.EventModerationFlagged:
		phase := kahn.PhaseOutput
		if attempt = e.Attempt; n.last == "" || n.last == kahn.EventNodeBlocked || n.last == kahn.EventNodeQueued {
			phase = kahn.PhaseInput
		}
		if p, ok := e.Payload.(kahn.ContractViolated); ok && (p.Phase != phase || len(p.Errors) == 0) {
			return fmt.Errorf("after %q", n.last)
		}
		if p, ok := e.Payload.(kahn.ModerationFlagged); ok && p.Phase != phase {
			return fmt.Errorf("after %q", n.last)
		}
	case kahn.EventNodeCompleted:
		if p := e.Payload.(kahn.NodeCompleted); n.refused() && !p.Fallback {
			return fmt.Errorf("after %q", n.last)
		}
	case kahn.EventNodeSignalled:
		if n.last != kahn.EventNodeSuspended { // a gate that was answered before it was reached
			attempt = e.Attempt
		}
		if next := c.events[min(i+1, len(c.events)-1)]; next.Path != e.Path {
			return fmt.Errorf("it is not followed by what the node does")
		}
	case kahn.EventNodePaused:
		in := c.inside[e.Path]
		p, ok := e.Payload.(kahn.NodePaused)
		if !ok || n.Loop == nil && !n.unknown || p.Delay <= 0 || in != nil && in.last > 0 && p.Iteration != in.last {
			return fmt.Errorf("it is no pause of a loop after its last iteration")
		}
	case kahn.EventNodeBlocked:
		next := c.events[min(i+1, len(c.events)-1)]
		policy := e.Payload.(kahn.NodeBlocked).Policy
		if policy != kahn.UpstreamSubstitute && (next.Path != e.Path || nodeTerminal[next.Type] == kahn.Idle) {
			return fmt.Errorf("it is not followed by what the policy does")
		}
	}
	if n.maybe && e.Attempt == attempt+1 {
		attempt++
		n.attempt, n.maybe = attempt, false
	}
	if e.Attempt != attempt && n.unknown {
		n.attempt, attempt = e.Attempt, e.Attempt
	}
	if e.Attempt != attempt {
		return fmt.Errorf("attempt %d, expected %d", e.Attempt, attempt)
	}
	if err := c.sourcesEnded(e, n); err != nil {
		return err
	}
	n.last, n.id, n.terminal, n.resumed = e.Type, e.ID, nodeTerminal[e.Type], c.resumptions
	if n.terminal != kahn.Idle || e.Type == kahn.EventNodeRetried || e.Type == kahn.EventNodePaused {
		if n.step() && (n.Map == nil || n.item) && c.quiet(e.Path) {
			c.giveUp(e.Path) // its step has not returned the graph again
		} else if path, ok := c.unended(e.Path); ok {
			return fmt.Errorf("before the end of %s", path)
		}
	}
	return nil
}

// firstSeen takes from the first event of a node, in a stream that begins with a resumption, what was to be known before.
func (c *streamChecker) firstSeen(e kahn.Event, n *nodeLife) {
	n.unseen, n.unbound = false, true
	switch e.Type {
	case kahn.EventNodeQueued, kahn.EventNodeStarted, kahn.EventNodeMocked:
		n.attempt = e.Attempt - 1
		n.maybe = e.Type == kahn.EventNodeQueued // a step that was suspended is queued to go on in its attempt
	case kahn.EventNodeSuspended:
		if n.attempt = e.Attempt; !n.isGate() {
			n.last = kahn.EventNodeStarted // a composite that goes on
		}
	case kahn.EventNodeSignalled:
		n.attempt, n.reentered = e.Attempt, !n.isGate()
	default:
		n.attempt = e.Attempt
	}
}

// running reports whether a composite has started, and has not ended.
func (c *streamChecker) running(path string) bool {
	n := c.nodes[path]
	if c.part && (n == nil || n.unseen) {
		return true
	}
	return n != nil && n.terminal == kahn.Idle && slices.Contains([]kahn.EventType{kahn.EventNodeStarted, kahn.EventNodePaused, kahn.EventNodeMocked, kahn.EventNodeTimedOut}, n.last)
}

// interrupted reports whether a node is queued because its attempt was interrupted: the run is being left. The node begins again
// in another life of the run, or is stopped. Cleanup, which a stop leaves alone, begins again in the same life if the run was
// stopped meanwhile; of a stop that concerned nothing else no event tells.
func (c *streamChecker) interrupted(i int, e kahn.Event, n *nodeLife) bool {
	began := n.last == kahn.EventNodeStarted || n.last == kahn.EventNodePaused || n.last == kahn.EventNodeMocked || n.refused()
	if e.Type == kahn.EventNodeMocked && n.mockedInline() {
		return began && c.cleansUp(n)
	}
	if e.Type != kahn.EventNodeQueued || !began || n.inline() {
		return false
	}
	composite := n.Sub != nil || n.Map != nil && !n.item
	if composite || c.cleansUp(n) {
		return true // a composite begins at once, and what is inside of it is held
	}
	for _, later := range c.events[i+1:] {
		if p, ok := later.Payload.(kahn.RunStatusChanged); ok && p.To == kahn.RunSuspended || later.Type == kahn.EventRunRecovered {
			return true
		}
		if later.Path == e.Path && (later.Type == kahn.EventNodeStarted || later.Type == kahn.EventNodeMocked) {
			return false
		}
	}
	return true
}

// cleansUp reports whether a node is a cleanup node or an end node, or is inside of one.
func (c *streamChecker) cleansUp(n *nodeLife) bool {
	for n != nil && !n.Cleanup && n.Kind != kahn.KindEnd && n.within != "" {
		n = c.nodes[n.within]
	}
	return n != nil && (n.Cleanup || n.Kind == kahn.KindEnd)
}

// mayFollow reports whether the event may come next in its node's life. A gate waits, and completes, without a start, and
// what is evaluated inline starts without having been queued; nothing else does. The mocks of these, and of composites, are
// evaluated inline. again tells whether the run was resumed since the node's last event.
func mayFollow(e kahn.Event, n *nodeLife, again bool) bool {
	fresh := n.last == "" || n.last == kahn.EventNodeBlocked
	switch e.Type {
	case kahn.EventNodeAborted, kahn.EventNodeCancelled:
		return true
	}
	switch {
	case n.unseen || n.unknown:
		return true
	case again && n.inline() && e.Type == kahn.EventNodeStarted,
		again && n.mockedInline() && e.Type == kahn.EventNodeMocked,
		again && !n.inline() && e.Type == kahn.EventNodeQueued:
		return true
	}
	switch e.Type {
	case kahn.EventNodeQueued:
		if n.inline() {
			return false
		}
	case kahn.EventNodeStarted:
		if fresh && !n.inline() {
			return false
		}
	case kahn.EventNodeMocked:
		if n.last != kahn.EventNodeQueued && !n.mockedInline() {
			return false
		}
	case kahn.EventNodeSuspended, kahn.EventNodeSignalled, kahn.EventNodeCompleted:
		if fresh {
			return n.isGate()
		}
		if n.last == kahn.EventNodeTimedOut && e.Type == kahn.EventNodeSuspended {
			return n.Sub != nil || n.step() // a cleanup node inside waits
		}
	}
	if n.last == kahn.EventNodeSuspended && again && n.step() && slices.Contains(nodeEvents[kahn.EventNodeStarted], e.Type) {
		return true // it was expanded, and no event tells that its step was called again
	}
	return slices.Contains(nodeEvents[n.last], e.Type)
}

// passing checks deltas and logs: they come from an attempt that has begun, or from the engine before the first one.
func (c *streamChecker) passing(e kahn.Event, n *nodeLife) error {
	running := n.last == kahn.EventNodeStarted || n.last == kahn.EventNodePaused || n.last == kahn.EventNodeMocked || n.refused()
	running = running || n.step() && n.last == kahn.EventNodeSuspended && c.again(n) && e.Type == kahn.EventNodeLog // it was expanded
	if checked := n.last == "" || n.last == kahn.EventNodeBlocked || n.last == kahn.EventNodeQueued; !running && (e.Type != kahn.EventNodeLog || !checked) {
		return fmt.Errorf("after %q", n.last)
	}
	if e.Attempt != n.attempt && running {
		return fmt.Errorf("in attempt %d", n.attempt)
	}
	if p, ok := e.Payload.(kahn.Delta); ok {
		count, seen := c.deltas[e.Path]
		if !seen && c.part {
			count = p.Index - 1
		}
		if c.deltas[e.Path] = count + 1; p.Index != count+1 || count < 0 {
			return fmt.Errorf("it is delta %d of the node", count+1)
		}
	}
	return c.parent(e, n)
}

// parent checks what led to the event: the node's own last event; for the first one the end of a predecessor, or the start
// of the wave, of the composite or of the run. A stop may have any reason, or none that is known.
func (c *streamChecker) parent(e kahn.Event, n *nodeLife) error {
	if n.unknown {
		return nil
	}
	cause, known := c.at(e.Parent)
	if !known && e.Parent != 0 {
		if stopped := e.Type == kahn.EventNodeAborted || e.Type == kahn.EventNodeCancelled; n.id != 0 && !(c.again(n) && n.inline()) && !stopped {
			return fmt.Errorf("its node's last event is %d", n.id)
		}
		return nil
	}
	superseded := false
	switch p := e.Payload.(type) {
	case kahn.NodeSkipped:
		superseded = p.Reason.Kind == kahn.SkipSuperseded
	case kahn.NodeEnded:
		superseded = p.Cause == kahn.CauseSuperseded
		if e.Type == kahn.EventNodeFailed || superseded {
			break
		}
		if e.Parent != 0 && e.Parent != n.id {
			switch nodeTerminal[cause.Type] {
			case kahn.Failed, kahn.Aborted, kahn.Cancelled:
			default:
				return fmt.Errorf("led to by %v", cause)
			}
		}
		return nil
	}
	if superseded {
		if e.Parent == 0 || cause.Node == "" && !resumes(cause) || cause.Path == e.Path && e.Type == kahn.EventNodeSkipped {
			return fmt.Errorf("no other node led to it")
		}
		return nil
	}
	if n.id != 0 && e.Parent == n.id {
		return nil
	}
	if n.id != 0 && !(c.again(n) && n.inline()) { // of which a store knows nothing until it has ended
		return fmt.Errorf("its node's last event is %d", n.id)
	}
	if e.Parent == 0 {
		return fmt.Errorf("nothing led to it")
	}
	root := len(n.sources) == 0
	if p, skipped := e.Payload.(kahn.NodeSkipped); skipped && p.Reason.Kind == kahn.SkipAnnotation {
		root = true
	}
	switch {
	case n.within != "" && cause.Path == n.within && (root || c.tiers) && (cause.Type == kahn.EventNodeStarted || cause.Type == kahn.EventNodePaused || cause.Type == kahn.EventNodeMocked):
	case cause.Type == kahn.EventRunStarted && n.within == "" && root && (!c.waves || e.Type == kahn.EventNodeSkipped):
	case cause.Type == kahn.EventWaveStarted && n.within == "" && c.waves:
	case resumes(cause) && (root || c.tiers): // that begins, or that has been judged, anew
	case nodeTerminal[cause.Type] != kahn.Idle && (slices.Contains(n.sources, cause.Path) || n.Kind == kahn.KindEnd):
	default:
		return fmt.Errorf("led to by %v", cause)
	}
	return nil
}

// sourcesEnded checks that a predecessor's end comes before what follows from it. A join that is not early starts or skips
// its node after all predecessors have ended; a blocked one has at least one that ended badly.
func (c *streamChecker) sourcesEnded(e kahn.Event, n *nodeLife) error {
	if n.unknown {
		return nil
	}
	ended := func(path string) kahn.Status {
		if from := c.nodes[path]; from != nil {
			return from.terminal
		}
		return kahn.Idle
	}
	switch e.Type {
	case kahn.EventNodeQueued, kahn.EventNodeStarted, kahn.EventNodeMocked:
		if n.early() {
			return nil
		}
	case kahn.EventNodeSkipped:
		switch e.Payload.(kahn.NodeSkipped).Reason.Kind {
		case kahn.SkipAnnotation, kahn.SkipSuperseded, kahn.SkipSelf, kahn.SkipParentFailure:
			return nil
		case kahn.SkipWhenGuard, kahn.SkipNullPropagation: // checks, after the join has decided
			if n.early() {
				return nil
			}
		}
	case kahn.EventNodeBlocked:
		if !c.part && !slices.ContainsFunc(n.sources, func(from string) bool {
			status := ended(from)
			return status == kahn.Failed || status == kahn.Aborted || status == kahn.Cancelled
		}) {
			return fmt.Errorf("no predecessor has ended badly")
		}
		return nil
	default:
		return nil
	}
	for _, path := range n.sources {
		from, err := c.node(path)
		switch {
		case err != nil:
			return err
		case from.unseen:
			from.assumed = true
		case from.terminal == kahn.Idle:
			return fmt.Errorf("before the end of %s", path)
		}
	}
	return nil
}
