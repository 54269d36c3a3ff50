package kahntest

import (
	"fmt"
	"slices"

	"github.com/seed-c794f7ef/kahn"
)

// nodeLife is the record of a node's events.
type nodeLife struct {
	*decl
	last      kahn.EventType // that was neither a delta nor a log
	id        uint64         // of that
	attempt   int            // the number of the last attempt
	reentered bool           // the next start is of the same attempt: it was suspended
	maybe     bool           // one attempt more may have begun in a life that is not in the stream: the next start may be of the same one
	terminal  kahn.Status
	unseen    bool   // what came before is not in the stream, which begins with a resumption
	resumed   int    // how often the run had been resumed at the last event
	began     uint64 // its first event, deltas and logs not counted; 0: there was none
	unbound   bool   // it may have begun in a life without waves that is not in the stream
	sourced   bool   // its predecessors have ended
	assumed   bool   // unseen, and it has ended, or something would not have followed from that
}

// guessed reports whether the node's declaration is unknown.
func (n *nodeLife) guessed() bool { return n.decl != nil && n.unknown }

// refused reports whether the attempt's output does not count.
func (n *nodeLife) refused() bool {
	return n.last == kahn.EventNodeTimedOut || n.last == kahn.EventContractViolated || n.last == kahn.EventModerationFlagged
}

// again reports whether the run was resumed since the last event of a node that has not ended: it may be queued, and begun, again.
func (c *streamChecker) again(n *nodeLife) bool { return n.resumed < c.resumptions }

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
	case n.within != "" && !c.running(n.within):
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
			if !n.reentered { // else the nodes inside go on
				c.forget(e.Path)
			}
			n.attempt, n.reentered, n.maybe = attempt, false, false
		}
		told := c.wave >= 0 || !c.midway
		if c.waves && told && !c.unbound(n) && n.within == "" && n.Kind != kahn.KindEnd && !n.Cleanup && (!c.open || c.wave != e.Tier) && !c.carried(n) {
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
			return fmt.Errorf("it is not followed by the next event of the node")
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
			return fmt.Errorf("it is not followed by the end that the policy demands")
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
	if n.began == 0 {
		n.began = e.ID
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

// firstSeen infers the earlier life of a node from its first event in a stream that begins with a resumption.
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

// unbound reports whether a node began in a life without waves, or may have: it goes on outside its wave.
func (c *streamChecker) unbound(n *nodeLife) bool {
	return n.unbound || n.began != 0 && n.began < c.switched
}

// running reports whether a composite has started, and has not ended.
func (c *streamChecker) running(path string) bool {
	n := c.nodes[path]
	if c.part && (n == nil || n.unseen) {
		return true
	}
	return n != nil && n.terminal == kahn.Idle && slices.Contains([]kahn.EventType{kahn.EventNodeStarted, kahn.EventNodePaused, kahn.EventNodeMocked, kahn.EventNodeTimedOut}, n.last)
}

// interrupted reports whether a node is queued because its attempt was interrupted: the run is being left. The node begins
// again in another life of the run, or is stopped. Cleanup, which a stop does not affect, begins again in the same life if
// the run was stopped meanwhile; a stop that affects no other node has no event.
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
		return true // a composite begins at once, and the nodes inside are held
	}
	return !c.begins(i)
}

// begins reports whether a node that is queued by an event begins before its run rests, or is recovered.
func (c *streamChecker) begins(i int) bool {
	if c.taken == nil {
		c.taken = map[int]bool{}
		life, began := 1, map[string]int{} // by path: the life in which a node begins next, the last one being the first
		for i, e := range slices.Backward(c.events) {
			c.steps++
			p, changed := e.Payload.(kahn.RunStatusChanged)
			switch {
			case changed && p.To == kahn.RunSuspended || e.Type == kahn.EventRunRecovered:
				life++
			case e.Type == kahn.EventNodeStarted || e.Type == kahn.EventNodeMocked:
				began[e.Path] = life
			case e.Type == kahn.EventNodeQueued:
				c.taken[i] = began[e.Path] == life
			}
		}
	}
	return c.taken[i]
}

// cleansUp reports whether a node is a cleanup node or an end node, or is inside of one.
func (c *streamChecker) cleansUp(n *nodeLife) bool {
	for n != nil && !n.Cleanup && n.Kind != kahn.KindEnd && n.within != "" {
		n = c.nodes[n.within]
	}
	return n != nil && (n.Cleanup || n.Kind == kahn.KindEnd)
}

// mayFollow reports whether the event may come next in its node's life. Only a gate waits, and completes, without a start,
// and only inline nodes start without having been queued. The mocks of these, and of composites, are evaluated inline. again
// tells whether the run was resumed since the node's last event.
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
		return true // it was expanded; the new call of its step has no event
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
