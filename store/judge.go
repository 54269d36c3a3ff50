package store

import (
	"fmt"

	"github.com/seed-c794f7ef/kahn/internal/foreign"
	"github.com/seed-c794f7ef/kahn/machine"
)

// Judge decides how a store answers a commit, by the rules of [Store].Commit, and changes the States of the nodes. It is for implementations of
// [Store]. An implementation checks the lease before it calls Judge. Afterwards it writes the rest of the commit: the records of nodes, the
// Spec, the Run, the Status and WakeAt.
//
// The parameters "sequence" and "status" are the Sequence and the Status of the stored run. The function "node" returns a copy of the stored State
// of a node, or a zero State if none is stored. If Judge asks for the same node again, the function returns the same copy, which Judge may have
// changed. A store keeps the copies if the answer is AppliedNow, and drops them otherwise. After each call of the function, Judge no longer uses the
// pointers that earlier calls returned.
func (c *Commit) Judge(sequence uint64, status machine.RunStatus, node func(key string) *State) (Applied, error) {
	switch {
	case c.Sequence < sequence:
		return Stale, nil
	case c.Sequence == sequence:
		return Duplicate, nil
	case c.Sequence != sequence+1 || !c.Reopen && (status.Terminal() && !c.refuses() || len(c.Reset) > 0):
		return Conflict, nil
	}
	if err := checkTime(c.WakeAt); err != nil {
		return 0, fmt.Errorf("%w: WakeAt: %w", ErrRejected, err)
	}
	for _, key := range c.Reset {
		*node(key) = State{}
	}
	for _, end := range c.Completed {
		switch n := node(end.Node); {
		case end.Attempt < n.Attempt:
			return Stale, nil
		case end.Attempt != n.Attempt || n.Completed:
			return Conflict, nil
		default:
			n.Completed = true
		}
	}
	for _, start := range c.Started {
		switch n := node(start.Node); {
		case start.Attempt <= n.Attempt:
			return Stale, nil
		case start.Attempt != n.Attempt+1 || n.Terminal:
			return Conflict, nil
		default:
			n.Attempt, n.Queued, n.Completed = start.Attempt, false, false
		}
	}
	for i := range c.Nodes {
		n := node(c.Nodes[i].Node)
		if n.Terminal {
			return Conflict, nil
		}
		n.Terminal = c.Nodes[i].Terminal
		n.Queued = n.Queued && !n.Terminal
	}
	for _, inc := range c.Readiness {
		n := node(inc.Node)
		n.Resolved += inc.By
		if n.Required = inc.Required; n.Resolved > n.Required {
			return 0, fmt.Errorf("%w: node %s: %d of %d", ErrReadinessOverflow, foreign.Quote(inc.Node), n.Resolved, n.Required)
		}
	}
	for _, key := range c.Ready {
		node(key).Queued = true
	}
	return AppliedNow, nil
}

// The method `refuses` reports whether the commit refuses requests and does nothing else.
func (c *Commit) refuses() bool {
	for _, t := range c.Taken {
		if t.Refused == "" {
			return false
		}
	}
	changes := len(c.Reset) + len(c.Completed) + len(c.Started) + len(c.Nodes) + len(c.Readiness) + len(c.Ready) + len(c.Events) + len(c.Awaits)
	return len(c.Taken) > 0 && changes == 0 && c.Spec == nil && c.Run == nil && c.Compensation == nil && len(c.Usage) == 0 && c.Status == machine.RunPending && c.WakeAt.IsZero()
}
