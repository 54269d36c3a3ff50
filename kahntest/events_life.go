package kahntest

import (
	"fmt"
	"slices"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
)

// nodeLife records what is known about a node from its events.
type nodeLife struct {
	*decl
	last      event.Type // the last event that was neither a delta nor a log
	id        uint64     // the id of the event in the field `last`
	attempt   int        // the number of the last attempt
	reentered bool       // whether the attempt was suspended, so that the next start continues it
	maybe     bool       // whether the next attempt may have begun in a life whose events are not in the stream
	terminal  kahn.Status
	unseen    bool // whether the stream may lack earlier events of the node: it begins with a resumption, or the run is a fork
	resumed   int  // the number of resumptions of the run before the node's last event
	undo      undoLife
	began     uint64 // the id of the node's first event other than deltas and logs; 0 if there is none
	unbound   bool   // whether the node may begin outside its wave: it may have begun in a life whose events are missing, or a redrive continues nodes inside it
	sourced   bool   // whether the checker knows that all predecessors have ended
	givenUp   bool   // whether the node is inside an expanded node whose step did not return its graph again after a resumption
	assumed   bool   // whether the stream lacks the node's end: the events of a successor show that the node has ended
}

// The method `guessed` reports whether the node's declaration is a guess, because the graph that declares the node is unknown.
func (n *nodeLife) guessed() bool { return n.decl != nil && n.unknown }

// The method `refused` reports whether the attempt timed out, or whether the inputs or the output were rejected. If so, the attempt's output is not
// used.
func (n *nodeLife) refused() bool {
	return n.last == event.NodeTimedOut || n.last == event.ContractViolated || n.last == event.ModerationFlagged
}

// The method `again` reports whether the run was resumed after the node's last event. If so, the run may queue and begin the node again, unless the
// node has ended.
func (c *streamChecker) again(n *nodeLife) bool { return n.resumed < c.resumptions }

func (c *streamChecker) nodeEvent(i int, e event.Event, n *nodeLife) error {
	switch {
	case e.Type == event.NodeInvalidated:
		if parent, known := c.at(e.Parent); e.Parent == 0 || known && parent.ID != n.id && !(c.part && n.unseen && resumes(parent)) {
			return fmt.Errorf("its node's last event is %d", n.id)
		}
		c.begunAgain(e, n)
		return nil
	case e.Type == event.NodeCompensating || e.Type == event.NodeCompensated:
		return c.compensation(e, n)
	case e.Type == event.NodeLog && n.undo.attempts > 0 && !n.undo.over:
		if e.Attempt != n.undo.attempts {
			return fmt.Errorf("in attempt %d to undo it", n.undo.attempts)
		}
		return nil
	case n.terminal != kahn.Idle && c.rewound(n):
		delete(c.nodes, e.Path)
		c.interior(n.within).last = 0 // the next events belong to a new iteration, which begins with this node
		n, err := c.node(e.Path)
		if err != nil {
			return err
		}
		return c.nodeEvent(i, e, n)
	case n.terminal != kahn.Idle || n.assumed:
		return fmt.Errorf("after the node's end")
	case n.within != "" && !c.running(n.within):
		return fmt.Errorf("%s does not run", n.within)
	case e.Type == event.NodeDelta || e.Type == event.NodeLog:
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
	case event.NodeQueued, event.NodeStarted, event.NodeMocked:
		// A new attempt begins, with two exceptions: a suspended attempt continues, and after a resumption an inline node may start the same attempt
		// again, since a store does not record the starts of inline nodes.
		if !n.reentered && !(c.again(n) && n.inline() && e.Attempt == attempt) {
			attempt++
		}
		if e.Type != event.NodeQueued {
			if !n.reentered { // a new attempt has new nodes inside; a continued attempt keeps the nodes inside
				c.forget(e.Path)
			}
			n.attempt, n.reentered, n.maybe = attempt, false, false
		}
		told := c.wave >= 0 || !c.midway
		if c.waves && told && !c.unbound(n) && n.within == "" && n.Kind != kahn.KindEnd && !n.Cleanup && (!c.open || c.wave != e.Tier) && !c.carried(n) {
			return fmt.Errorf("outside its wave")
		}
	case event.NodeRetried:
		n.reentered = false
	case event.NodeSuspended:
		n.reentered = n.last == event.NodeStarted || n.last == event.NodePaused || n.last == event.NodeMocked || n.last == event.NodeTimedOut
		if n.last == event.NodeQueued {
			attempt = e.Attempt // the attempt of a gate begins with its suspension
		}
	case event.NodeTimedOut:
		if n.last == event.NodeQueued && e.Attempt == attempt+1 { // the node timed out while the inputs of its next attempt were being checked
			attempt++
		}
	case event.ContractViolated, event.ModerationFlagged:
		phase := event.PhaseOutput
		if attempt = e.Attempt; n.last == "" || n.last == event.NodeBlocked || n.last == event.NodeQueued {
			phase = event.PhaseInput
		}
		if p, ok := e.Payload.(event.Breach); ok && (p.Phase != phase || len(p.Errors) == 0) {
			return fmt.Errorf("after %q", n.last)
		}
		if p, ok := e.Payload.(event.Refusal); ok && p.Phase != phase {
			return fmt.Errorf("after %q", n.last)
		}
	case event.NodeCompleted:
		if p := e.Payload.(event.Completion); n.refused() && !p.Fallback {
			return fmt.Errorf("after %q", n.last)
		}
	case event.NodeSignalled:
		if n.last != event.NodeSuspended { // the node is a gate that was answered before the run reached it
			attempt = e.Attempt
		}
		if next := c.events[min(i+1, len(c.events)-1)]; next.Path != e.Path {
			return fmt.Errorf("it is not followed by the next event of the node")
		}
	case event.NodePaused:
		in := c.inside[e.Path]
		p, ok := e.Payload.(event.Pause)
		if !ok || n.Loop == nil && !n.unknown || p.Delay <= 0 || in != nil && in.last > 0 && p.Iteration != in.last {
			return fmt.Errorf("it is no pause of a loop after its last iteration")
		}
	case event.NodeBlocked:
		next := c.events[min(i+1, len(c.events)-1)]
		policy := e.Payload.(event.Block).Policy
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
	if n.terminal != kahn.Idle || e.Type == event.NodeRetried || e.Type == event.NodePaused {
		if n.step() && (n.Map == nil || n.item) && c.quiet(e.Path) {
			c.giveUp(e.Path) // in this life the node's step did not return the graph again, so the nodes inside have no ends
		} else if path, ok := c.unended(e.Path); ok {
			return fmt.Errorf("before the end of %s", path)
		}
	}
	return nil
}

// undoLife records the events about undoing a node.
type undoLife struct {
	attempts int // the number of attempts that have begun
	over     bool
	failed   bool // whether all attempts failed; if so, an operator may repeat the undoing
}

// The method `compensation` checks an event about undoing a node. The node must have ended before the event. The undoing of the node's predecessors
// must not have begun yet. The attempts to undo the node must be numbered from 1.
func (c *streamChecker) compensation(e event.Event, n *nodeLife) error {
	p, ok := e.Payload.(event.Compensation)
	switch {
	case !ok:
		return fmt.Errorf("its payload is a %T", e.Payload)
	case n.terminal == kahn.Idle && !n.unseen && !n.unknown && !n.givenUp:
		return fmt.Errorf("before the node's end")
	case n.undo.over && !n.undo.failed:
		return fmt.Errorf("after the node was undone")
	case n.Cleanup || n.Kind == kahn.KindEnd:
		return fmt.Errorf("a node of this kind is not undone")
	}
	for _, path := range n.sources {
		c.steps++
		if from := c.nodes[path]; from != nil && (from.undo.attempts > 0 || from.undo.over) {
			return fmt.Errorf("after that of %s, which comes before it", path)
		}
	}
	if e.Type == event.NodeCompensating {
		n.undo.attempts++
		if e.Attempt != n.undo.attempts && !c.part {
			return fmt.Errorf("attempt %d, expected %d", e.Attempt, n.undo.attempts)
		}
		n.undo.attempts = e.Attempt
		if p.Certain && n.terminal != kahn.Completed && !n.unseen {
			return fmt.Errorf("the effect of a node that is %v is not certain", n.terminal)
		}
		return nil
	}
	if n.undo.attempts == 0 && p.Err == nil && !c.part {
		return fmt.Errorf("before the first attempt")
	}
	n.undo.over, n.undo.failed = true, p.Err != nil
	return nil
}

// begunAgain resets the record of a node that begins again, or of an ended composite in which nodes run again.
func (c *streamChecker) begunAgain(e event.Event, n *nodeLife) {
	attempt := n.attempt
	*n = nodeLife{decl: n.decl, resumed: c.resumptions}
	if goesOnInside(e) {
		n.last, n.id, n.attempt, n.began, n.sourced = event.NodeStarted, e.ID, max(attempt, e.Attempt), e.ID, true
		n.unbound = true // the composite may run again in any wave
	}
	if n.within != "" {
		in := c.interior(n.within)
		in.open = append(in.open, e.Path)
		c.opened(in)
	}
}

// The method `rewound` reports whether a node is inside a loop that has gone back to an earlier iteration, or inside a node that was expanded again
// into another graph.
func (c *streamChecker) rewound(n *nodeLife) bool {
	around := c.nodes[n.within]
	return around != nil && (around.Loop != nil || around.step()) && around.last == event.NodeStarted && around.began > n.id
}

// firstSeen infers the state of a node from the node's first event, for a stream that begins with a resumption.
func (c *streamChecker) firstSeen(e event.Event, n *nodeLife) {
	n.unseen, n.unbound = false, true
	switch e.Type {
	case event.NodeQueued, event.NodeStarted, event.NodeMocked:
		n.attempt = e.Attempt - 1
		n.maybe = e.Type == event.NodeQueued // the event may queue the next attempt, or an attempt that was suspended and now continues
	case event.NodeSuspended:
		if n.attempt = e.Attempt; !n.isGate() {
			n.last = event.NodeStarted // only gates are suspended without a start
		}
	case event.NodeSignalled:
		n.attempt, n.reentered = e.Attempt, !n.isGate()
	default:
		n.attempt = e.Attempt
	}
}

// The method `unbound` reports whether a node may continue outside its wave: it began before the run changed to waves mode, or its field `unbound` is
// set.
func (c *streamChecker) unbound(n *nodeLife) bool {
	return n.unbound || n.began != 0 && n.began < c.switched
}

// The method `running` reports whether an attempt of a composite is in progress. It also returns true if the stream may lack the composite's start.
func (c *streamChecker) running(path string) bool {
	n := c.nodes[path]
	if c.part && (n == nil || n.unseen) {
		return true
	}
	return n != nil && n.terminal == kahn.Idle && slices.Contains([]event.Type{event.NodeStarted, event.NodePaused, event.NodeMocked, event.NodeTimedOut}, n.last)
}

// The method `interrupted` reports whether the event may queue or begin a node again because the node's attempt was interrupted when the run was
// left. Such a node begins again only in another life of the run, or is stopped. There are two exceptions. A composite begins again at once. And if
// the run is stopped while it is being left, the run reaches its end in the same life; in this life a cleanup node, which no stop affects, may begin
// again. The checker does not look for the stop, because a stop that ends no node has no event.
func (c *streamChecker) interrupted(i int, e event.Event, n *nodeLife) bool {
	began := n.last == event.NodeStarted || n.last == event.NodePaused || n.last == event.NodeMocked || n.refused()
	if e.Type == event.NodeMocked && n.mockedInline() {
		return began && c.cleansUp(n)
	}
	if e.Type == event.NodeStarted && n.inline() && (n.Test != nil || n.TestExpr != "") { // the run was left before the test of the node returned
		return n.last == event.NodeStarted && c.cleansUp(n)
	}
	if e.Type != event.NodeQueued || !began || n.inline() {
		return false
	}
	composite := n.Sub != nil || n.Map != nil && !n.item
	if composite || c.cleansUp(n) {
		return true // a composite begins again at once, even if no node inside begins again
	}
	return !c.begins(i)
}

// The method `begins` reports whether the node that event i queues begins in the same life, which means before the run is suspended or recovered.
func (c *streamChecker) begins(i int) bool {
	if c.taken == nil {
		c.taken = map[int]bool{}
		life, began := 1, map[string]int{} // by path: the life in which the node begins next, counted backwards from the last life
		for i, e := range slices.Backward(c.events) {
			c.steps++
			p, changed := e.Payload.(event.StatusChange)
			switch {
			case changed && p.To == kahn.RunSuspended || e.Type == event.RunRecovered:
				life++
			case e.Type == event.NodeStarted || e.Type == event.NodeMocked:
				began[e.Path] = life
			case e.Type == event.NodeQueued:
				c.taken[i] = began[e.Path] == life
			}
		}
	}
	return c.taken[i]
}

// cleansUp reports whether a node is a cleanup node or an end node, or is inside such a node.
func (c *streamChecker) cleansUp(n *nodeLife) bool {
	for n != nil && !n.Cleanup && n.Kind != kahn.KindEnd && n.within != "" {
		n = c.nodes[n.within]
	}
	return n != nil && (n.Cleanup || n.Kind == kahn.KindEnd)
}

// mayFollow reports whether the event may be the next event of its node. Only a gate may be suspended, be signalled or complete before it is queued
// or starts. Only an inline node may start without being queued. kahn calls the mock of a gate, an inline node or a composite without queueing the
// node. The parameter "again" means that the run was resumed after the node's last event.
func mayFollow(e event.Event, n *nodeLife, again bool) bool {
	fresh := n.last == "" || n.last == event.NodeBlocked
	switch e.Type {
	case event.NodeAborted, event.NodeCancelled:
		return true
	}
	switch {
	case n.unseen || n.unknown:
		return true
	case again && n.inline() && e.Type == event.NodeStarted,
		again && n.mockedInline() && e.Type == event.NodeMocked,
		again && !n.inline() && e.Type == event.NodeQueued:
		return true
	}
	switch e.Type {
	case event.NodeQueued:
		if n.inline() {
			return false
		}
	case event.NodeStarted:
		if fresh && !n.inline() {
			return false
		}
	case event.NodeMocked:
		if n.last != event.NodeQueued && !n.mockedInline() {
			return false
		}
	case event.NodeSuspended, event.NodeSignalled, event.NodeCompleted:
		if fresh {
			return n.isGate()
		}
		if n.last == event.NodeTimedOut && e.Type == event.NodeSuspended {
			return n.Sub != nil || n.step() // the node was suspended because a cleanup node inside it waits
		}
	}
	if n.last == event.NodeSuspended && again && n.step() && slices.Contains(nodeEvents[event.NodeStarted], e.Type) {
		return true // the run called the step again to get the step's graph; this call has no event
	}
	return slices.Contains(nodeEvents[n.last], e.Type)
}

// The method `passing` checks a delta or a log. The event must come from an attempt that has begun. But the engine may also log before an attempt.
func (c *streamChecker) passing(e event.Event, n *nodeLife) error {
	running := n.last == event.NodeStarted || n.last == event.NodePaused || n.last == event.NodeMocked || n.refused()
	// After a resumption, the run may call the step of an expanded node again to get the node's graph. The step may log, but the call has no event.
	running = running || n.step() && n.last == event.NodeSuspended && c.again(n) && e.Type == event.NodeLog
	if checked := n.last == "" || n.last == event.NodeBlocked || n.last == event.NodeQueued; !running && (e.Type != event.NodeLog || !checked) {
		return fmt.Errorf("after %q", n.last)
	}
	if e.Attempt != n.attempt && running {
		return fmt.Errorf("in attempt %d", n.attempt)
	}
	if p, ok := e.Payload.(event.Delta); ok {
		count, seen := c.deltas[e.Path]
		if !seen && c.part {
			count = p.Index - 1
		}
		if c.deltas[e.Path] = count + 1; p.Index != count+1 || count < 0 {
			return fmt.Errorf("its index is %d, but the next index of the node is %d", p.Index, count+1)
		}
	}
	return c.parent(e, n)
}
