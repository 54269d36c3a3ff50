package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
)

// logTo returns a sink that writes a line for every event worth logging. The sink needs no lock: kahn calls it with one event at a time,
// and Execute returns after the sink has seen the last event.
func logTo(w io.Writer, g *kahn.Graph) func(kahn.Event) {
	nodes := map[string]kahn.Node{}
	for _, n := range g.Nodes() {
		nodes[n.ID] = n
	}
	var start time.Time
	return func(e kahn.Event) {
		if e.Type == event.RunStarted {
			start = e.Time
		}
		if text := describe(e, nodes[e.Node]); text != "" {
			fmt.Fprintf(w, "%7.3f s  %-8s %s\n", e.Time.Sub(start).Seconds(), cmp.Or(e.Node, "run"), text)
		}
	}
}

// describe returns the text for an event, or "" if the event is not worth a line. n is the node of the event, if the event has one.
func describe(e kahn.Event, n kahn.Node) string {
	if e.Type == event.NodeStarted && e.Attempt == 1 {
		return "# " + n.Label // the steps log their attempts themselves
	}
	switch p := e.Payload.(type) {
	case event.Start:
		return fmt.Sprintf("%s started, %d nodes", e.Workflow, p.TotalNodes)
	case event.LogRecord:
		return p.Message
	case event.Timeout:
		if p.Overall {
			return fmt.Sprintf("all its time is up: %v", p.Timeout)
		}
		return fmt.Sprintf("time is up: %v for an attempt", p.Timeout)
	case event.Retry:
		return fmt.Sprintf("failed (%v): %v; again in %v", p.Cause, p.Err, p.Delay)
	case event.Completion:
		if p.Fallback {
			return "completed by its fallback"
		}
		return "completed"
	case event.NodeEnd:
		text := fmt.Sprintf("%s (%v)", strings.TrimPrefix(string(e.Type), "node."), p.Cause)
		if e.Type == event.NodeFailed {
			text = fmt.Sprintf("failed, no retry (%v), attempt %d of %d",
				p.Cause, e.Attempt, cmp.Or(n.Retry.MaxAttempts, policy.MaxAttempts))
		}
		if err := errors.Unwrap(p.Err); err != nil { // the step's error, without the text that kahn has added
			text += fmt.Sprintf(": %v", err)
		}
		return text
	case event.Skip:
		return fmt.Sprintf("skipped: %v", p.Reason)
	case event.RunEnd:
		text := p.Status.String()
		if p.Degraded {
			text += ", degraded"
		}
		if p.Cause != kahn.CauseNone {
			text += fmt.Sprintf(" (%v)", p.Cause)
		}
		return text
	}
	return ""
}

// writeTable writes a line for every node of the runs.
func writeTable(w io.Writer, runs ...*runReport) error {
	table := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "node\tstatus\tattempts\tcause")
	for _, r := range runs {
		for n := range r.result.Nodes() {
			status := n.Status.String()
			switch {
			case n.Fallback:
				status += ", fallback"
			case n.Tolerated:
				status += ", tolerated"
			case n.Abandoned:
				status += ", abandoned"
			}
			fmt.Fprintf(table, "%s\t%s\t%d\t%s\n", n.ID, status, n.Attempts, cmp.Or(n.Cause.Kind.String(), "-"))
		}
	}
	return table.Flush()
}
