package kahntest

import (
	"fmt"
	"slices"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
)

// The method `parent` checks the Parent of a node's event. The Parent must be the node's previous event. For the first event of a node, the Parent is
// the end of a predecessor, a resumption, or the start of the wave, of the composite or of the run. The Parent of an event that aborts or cancels the
// node may also be missing, or be the failure, abort or cancellation of another node. If the node was superseded, the Parent may be any event of
// another node, or a resumption.
func (c *streamChecker) parent(e event.Event, n *nodeLife) error {
	if n.unknown {
		return nil
	}
	cause, known := c.at(e.Parent)
	if !known && e.Parent != 0 {
		if stopped := e.Type == event.NodeAborted || e.Type == event.NodeCancelled; n.id != 0 && !(c.again(n) && n.inline()) && !stopped {
			return fmt.Errorf("its node's last event is %d", n.id)
		}
		return nil
	}
	superseded := false
	switch p := e.Payload.(type) {
	case event.Skip:
		superseded = p.Reason.Kind == kahn.SkipSuperseded
	case event.NodeEnd:
		superseded = p.Cause == kahn.CauseSuperseded
		if e.Type == event.NodeFailed || superseded {
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
		if e.Parent == 0 || cause.Node == "" && !resumes(cause) && !forks(cause) || cause.Path == e.Path && e.Type == event.NodeSkipped {
			return fmt.Errorf("no other node led to it")
		}
		return nil
	}
	if n.id != 0 && e.Parent == n.id {
		return nil
	}
	// After a resumption an inline node may start a second time, since a store does not record the first start. The Parent of the second start need not
	// be the node's previous event.
	if n.id != 0 && !(c.again(n) && n.inline()) {
		return fmt.Errorf("its node's last event is %d", n.id)
	}
	if e.Parent == 0 {
		return fmt.Errorf("nothing led to it")
	}
	root := len(n.sources) == 0
	if p, skipped := e.Payload.(event.Skip); skipped && p.Reason.Kind == kahn.SkipAnnotation {
		root = true
	}
	switch {
	case n.within != "" && cause.Path == n.within && (root || c.tiers) && (cause.Type == event.NodeStarted || cause.Type == event.NodePaused || cause.Type == event.NodeMocked || goesOnInside(cause)):
	case cause.Type == event.RunStarted && n.within == "" && root && (!c.waves || e.Type == event.NodeSkipped):
	case cause.Type == event.WaveStarted && n.within == "" && c.waves:
	case (resumes(cause) || forks(cause)) && (root || c.tiers): // the new life starts the node, or decides again whether the node runs
	case nodeTerminal[cause.Type] != kahn.Idle && (slices.Contains(n.sources, cause.Path) || n.Kind == kahn.KindEnd):
	default:
		return fmt.Errorf("led to by %v", cause)
	}
	return nil
}

// goesOnInside reports whether the event announces that nodes in an ended composite run again.
func goesOnInside(e event.Event) bool {
	p, ok := e.Payload.(event.Invalidation)
	return ok && p.Reason == "inside"
}

// sourcesEnded checks the events that depend on the ends of predecessors: they must come after these ends. A node without an early join may be queued
// or start only after all its predecessors have ended. If a node is skipped because of its predecessors, all of them must have ended. If
// predecessors block a node, at least one of them must already have failed or been aborted or cancelled.
func (c *streamChecker) sourcesEnded(e event.Event, n *nodeLife) error {
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
	case event.NodeQueued, event.NodeStarted, event.NodeMocked:
		if n.early() || n.sourced {
			return nil
		}
		n.sourced = true
	case event.NodeSkipped:
		switch e.Payload.(event.Skip).Reason.Kind {
		case kahn.SkipAnnotation, kahn.SkipSuperseded, kahn.SkipSelf, kahn.SkipParentFailure:
			return nil
		case kahn.SkipWhenGuard, kahn.SkipNullPropagation: // a guard or a null check follows the join, and the join may be early
			if n.early() {
				return nil
			}
		}
	case event.NodeBlocked:
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
	c.steps += len(n.sources)
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
