package kahn_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/seed-c794f7ef/kahn"
)

// checkEvents holds the event stream of a finished run against what every stream must satisfy.
func checkEvents(t testing.TB, g *kahn.Graph, res *kahn.Result, events []kahn.Event) {
	t.Helper()
	if err := eventErrors(g, res, events); err != nil {
		t.Errorf("event stream: %v\n%s", err, eventText(events))
	}
}

var (
	runTerminal  = []kahn.EventType{kahn.EventRunCompleted, kahn.EventRunFailed, kahn.EventRunCancelled, kahn.EventRunTimedOut}
	nodeTerminal = map[kahn.EventType]kahn.Status{
		kahn.EventNodeCompleted: kahn.Completed, kahn.EventNodeFailed: kahn.Failed, kahn.EventNodeAborted: kahn.Aborted,
		kahn.EventNodeCancelled: kahn.Cancelled, kahn.EventNodeSkipped: kahn.Skipped,
	}
)

func eventErrors(g *kahn.Graph, res *kahn.Result, events []kahn.Event) error {
	if len(events) < 2 || events[0].Type != kahn.EventRunStarted {
		return fmt.Errorf("it does not begin with %s", kahn.EventRunStarted)
	}
	type life struct {
		queued, started int
		refused         kahn.EventType // its last event, if that says that it was refused
		reentered       int            // starts after a wait, in the same attempt
		gate            bool           // it is completed by a signal, without a start
		terminal        kahn.Status
		at              int // index of the terminal event
	}
	nodes := map[string]*life{}
	for _, n := range g.Nodes() {
		nodes[n.ID] = &life{gate: n.Kind == kahn.KindGate && n.Do == nil}
	}
	for i, e := range events {
		if e.ID != uint64(i+1) {
			return fmt.Errorf("event %d has id %d", i+1, e.ID)
		}
		if slices.Contains(runTerminal, e.Type) != (i == len(events)-1) {
			return fmt.Errorf("%v is, or is not, the last event", e)
		}
		if i > 0 && e.Time.Before(events[i-1].Time) {
			return fmt.Errorf("%v is before its predecessor", e)
		}
		if e.Node == "" {
			continue
		}
		n := nodes[e.Node]
		if n == nil {
			return fmt.Errorf("%v: no such node", e)
		}
		if n.terminal != kahn.Idle {
			return fmt.Errorf("%v after the node's end", e)
		}
		if n.refused != "" && (e.Type == kahn.EventNodeStarted || e.Type == kahn.EventNodeSkipped) {
			return fmt.Errorf("%v after %s", e, n.refused)
		}
		n.refused = ""
		switch e.Type {
		case kahn.EventContractViolated, kahn.EventModerationFlagged:
			n.refused = e.Type
			phase := kahn.PhaseOutput
			if n.started == 0 {
				phase = kahn.PhaseInput
			}
			if p, ok := e.Payload.(kahn.ContractViolated); ok && (p.Phase != phase || len(p.Errors) == 0) {
				return fmt.Errorf("%v after %d starts", e, n.started)
			}
			if p, ok := e.Payload.(kahn.ModerationFlagged); ok && p.Phase != phase {
				return fmt.Errorf("%v after %d starts", e, n.started)
			}
		case kahn.EventNodeQueued:
			n.queued++
		case kahn.EventNodeStarted:
			n.started++
			if n.started != e.Attempt+n.reentered || n.queued != 0 && n.queued != n.started {
				return fmt.Errorf("%v: attempt %d after %d queued, %d started", e, e.Attempt, n.queued, n.started)
			}
		case kahn.EventNodeSuspended:
			if n.started > 0 {
				n.reentered++
			}
		case kahn.EventNodeCompleted:
			if n.started == 0 && !n.gate {
				return fmt.Errorf("%v without a start", e)
			}
		case kahn.EventNodeBlocked:
			next := events[min(i+1, len(events)-1)]
			policy := e.Payload.(kahn.NodeBlocked).Policy
			if policy != kahn.UpstreamSubstitute && (next.Node != e.Node || nodeTerminal[next.Type] == kahn.Idle) {
				return fmt.Errorf("%v is not followed by what the policy does", e)
			}
		}
		if status := nodeTerminal[e.Type]; status != kahn.Idle {
			n.terminal, n.at = status, i
		}
	}
	for r := range res.Nodes() {
		if n := nodes[r.ID]; n.terminal != r.Status {
			return fmt.Errorf("node %s is %v in the result and %v in the stream", r.ID, r.Status, n.terminal)
		} else if n.started != r.Attempts+n.reentered {
			return fmt.Errorf("node %s has %d attempts in the result and %d in the stream", r.ID, r.Attempts, n.started)
		}
	}
	// A node that joins all its predecessors starts after the last of them has ended.
	early := map[string]bool{}
	for _, n := range g.Nodes() {
		switch n.Join {
		case kahn.AnySucceeded, kahn.OneFailed, kahn.OneDone:
			early[n.ID] = true
		}
		early[n.ID] = early[n.ID] || n.Join > 255 // AtLeast
	}
	ended := map[string]bool{}
	for _, e := range events {
		if e.Type == kahn.EventNodeStarted && !early[e.Node] {
			for _, edge := range g.Edges() {
				if edge.To == e.Node && !ended[edge.From] {
					return fmt.Errorf("%v before the end of %s", e, edge.From)
				}
			}
		}
		if nodeTerminal[e.Type] != kahn.Idle {
			ended[e.Node] = true
		}
	}
	return nil
}
