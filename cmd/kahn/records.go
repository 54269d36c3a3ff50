package main

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
)

// The method `records` shows a run that does not store its events. It reads the records of the run repeatedly, and makes events from the changes.
// After each reading it pauses ten times as long as the reading took, but at least for the time `beat`.
func (f *follower) records(ctx context.Context) error {
	seen := changes{run: f.id, known: map[string]kahn.SnapshotNode{}}
	for {
		begun := time.Now()
		row, err := f.db.Load(ctx, f.id)
		if err != nil {
			return err
		}
		nodes, err := f.nodes(ctx)
		if err != nil {
			return err
		}
		now := time.Now()
		for _, e := range seen.events(nodes, row.Created, now) {
			f.take(e)
		}
		if row.Status.Terminal() {
			f.take(event.Event{Type: endOf[row.Status], RunID: f.id, Workflow: row.Workflow, Time: row.Ended, Payload: event.RunEnd{
				Status: row.Status, TotalSteps: len(nodes), Duration: row.Ended.Sub(row.Created), Usage: row.Usage,
			}})
			return nil
		}
		select {
		case <-time.After(max(beat, 10*now.Sub(begun))):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// endOf maps the final status of a run to the type of the run's last event.
var endOf = map[kahn.RunStatus]event.Type{
	kahn.RunCompleted: event.RunCompleted, kahn.RunFailed: event.RunFailed, kahn.RunCancelled: event.RunCancelled,
}

// The type `changes` makes events from the records of a run.
type changes struct {
	run   string
	begun bool
	known map[string]kahn.SnapshotNode // the nodes by path, as the last reading returned them
}

// The method `events` returns events in the order of time: an event for each node whose status or number of attempts has changed since the previous
// call. Before these events, the first call also returns an event for the start of the run. The events have no ids.
func (c *changes) events(nodes []kahn.SnapshotNode, created, now time.Time) (list []event.Event) {
	if !c.begun {
		c.begun = true
		list = append(list, event.Event{Type: event.RunStatusChanged, RunID: c.run, Time: created, Payload: event.StatusChange{To: kahn.RunRunning}})
	}
	first := len(list)
	c.add(&list, nodes, "", now)
	slices.SortStableFunc(list[first:], func(a, b event.Event) int { return a.Time.Compare(b.Time) })
	return list
}

// The method `add` adds the events of nodes, and of the nodes inside them. The path of each of the given nodes is prefix followed by the id.
func (c *changes) add(list *[]event.Event, nodes []kahn.SnapshotNode, prefix string, now time.Time) {
	for _, n := range nodes {
		before, known := c.known[n.ID]
		if known && before.Status == n.Status && before.Attempts == n.Attempts {
			c.add(list, n.Inside, n.Prefix, now)
			continue
		}
		if n.Status.Terminal() {
			c.add(list, n.Inside, n.Prefix, now) // the ends of the nodes inside come first
		}
		kept := n
		kept.Inside, kept.Output = nil, nil
		c.known[n.ID] = kept
		e := event.Event{RunID: c.run, Node: strings.TrimPrefix(n.ID, prefix), Path: n.ID, Attempt: n.Attempts, Tier: n.Tier, Time: now}
		if fill(&e, &n) {
			*list = append(*list, e)
		}
		if !n.Status.Terminal() {
			c.add(list, n.Inside, n.Prefix, now)
		}
	}
}

// The function `fill` sets the type, the payload and the time of the event by which a node reached its status. It returns false if no event reports
// this status.
func fill(e *event.Event, n *kahn.SnapshotNode) bool {
	ended := n.Start.Add(n.Duration)
	switch n.Status {
	case kahn.Ready:
		e.Type = event.NodeQueued
	case kahn.Running:
		e.Type = event.NodeStarted
		if tries := n.History(); len(tries) > 0 && !tries[len(tries)-1].Start.IsZero() {
			e.Time = tries[len(tries)-1].Start
		} else if !n.Start.IsZero() {
			e.Time = n.Start
		}
	case kahn.Retrying:
		e.Type = event.NodeRetried
		e.Payload = event.Retry{Cause: n.Cause.Kind, Delay: max(n.Until.Sub(e.Time), 0), Err: n.LastErr}
	case kahn.Suspended:
		e.Type = event.NodeSuspended
		var wait event.Suspension
		if n.Wait != nil {
			wait = event.Suspension{Token: n.Wait.Token, Info: n.Wait.Info, Deadline: n.Wait.Deadline}
			e.Time = n.Wait.Since
		}
		e.Payload = wait
	case kahn.Completed:
		e.Type, e.Payload, e.Time = event.NodeCompleted, event.Completion{Duration: n.Duration, Labels: n.Labels, Memoized: n.Memoized, Fallback: n.Fallback, Err: n.LastErr}, ended
	case kahn.Failed, kahn.Aborted, kahn.Cancelled:
		e.Type = map[kahn.Status]event.Type{kahn.Failed: event.NodeFailed, kahn.Aborted: event.NodeAborted, kahn.Cancelled: event.NodeCancelled}[n.Status]
		e.Payload = event.NodeEnd{Cause: n.Cause.Kind, Origins: n.Cause.Origins, Err: n.Cause.Err, Duration: n.Duration, Abandoned: n.Abandoned}
		if n.Attempts > 0 {
			e.Time = ended
		}
	case kahn.Skipped:
		e.Type, e.Payload = event.NodeSkipped, event.Skip{Reason: n.Skip}
	default:
		return false
	}
	return true
}
