package trace

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/seed-c794f7ef/kahn"
)

// WriteText writes the report for people: a summary, the critical path, the nodes that ran (in the order of their starts), the failures (each below
// its origin), the compensations, and the reasons why other nodes did not run. If the longest chain of dependencies is not the critical path, the
// text contains it, too.
func (r *Report) WriteText(w io.Writer) error {
	out := bufio.NewWriter(w) // stores its first error
	fmt.Fprintf(out, "run %s", r.RunID)
	if r.Workflow != "" {
		fmt.Fprintf(out, " of %s", clean(r.Workflow))
	}
	fmt.Fprintf(out, ": %v", r.Status)
	if r.Degraded {
		out.WriteString(" (degraded)")
	}
	if r.Cause != "" {
		fmt.Fprintf(out, " (%s)", r.Cause)
	}
	fmt.Fprintf(out, " in %s\n", seconds(r.Duration))
	if r.StopRequest != nil {
		fmt.Fprintf(out, "stop asked for %v\n", r.StopRequest)
	}
	if r.RedriveRequest != nil {
		fmt.Fprintf(out, "redrive asked for %v\n", r.RedriveRequest)
	}
	for _, w := range r.Warnings {
		fmt.Fprintf(out, "warning: %s\n", clean(w))
	}
	var counts []string
	for s := kahn.Idle; s <= kahn.Skipped; s++ {
		if n := r.Statuses[s]; n > 0 {
			counts = append(counts, fmt.Sprintf("%d %v", n, s))
		}
	}
	fmt.Fprintf(out, "%d nodes: %s\n", len(r.Nodes), strings.Join(counts, ", "))
	fmt.Fprintf(out, "work %s, queue wait %s, backoff %s, retries %d, slots in use at most %d\n",
		seconds(r.Work), seconds(r.QueueWait), seconds(r.Backoff), r.Retries, r.Slots)

	if len(r.CriticalPath) > 0 {
		fmt.Fprintf(out, "\ncritical path\n%11s %11s %11s  node\n", "start", "took", "waited")
	}
	for _, s := range r.CriticalPath {
		fmt.Fprintf(out, "%11s %11s %11s  %s", seconds(s.Start), seconds(s.Duration), seconds(s.Wait), clean(s.Node))
		if s.Via == ViaSlot || s.Via == ViaWave {
			fmt.Fprintf(out, " (%s)", s.Via)
		}
		out.WriteString("\n")
	}

	if !slices.EqualFunc(r.CriticalPath, r.DependencyPath, func(a, b Step) bool { return a.Node == b.Node }) {
		fmt.Fprintf(out, "\nlongest chain of dependencies: %s without waits for slots\n%11s %11s  node\n", seconds(r.DependencyTime), "start", "took")
		for _, s := range r.DependencyPath {
			fmt.Fprintf(out, "%11s %11s  %s\n", seconds(s.Start), seconds(s.Duration), clean(s.Node))
		}
	}

	var ran, not []Node
	for _, n := range r.Nodes {
		if n.Attempts > 0 {
			ran = append(ran, n)
		} else if n.Why != "" {
			not = append(not, n)
		}
	}
	slices.SortStableFunc(ran, func(a, b Node) int { return cmp.Compare(a.Start, b.Start) })
	if len(ran) > 0 {
		fmt.Fprintf(out, "\nnodes that ran, * on the critical path\n  %11s %11s %11s %11s %11s  node\n", "start", "took", "slack", "queue wait", "backoff")
	}
	for _, n := range ran {
		mark := " "
		if n.Critical {
			mark = "*"
		}
		fmt.Fprintf(out, "%s %11s %11s %11s %11s %11s  %s: %v", mark, seconds(n.Start), seconds(n.Duration), seconds(n.Slack),
			seconds(n.QueueWait), seconds(n.Backoff), clean(n.ID), n.Status)
		if n.Attempts > 1 {
			fmt.Fprintf(out, ", %d attempts", n.Attempts)
		}
		out.WriteString("\n")
	}

	if len(r.Failures) > 0 {
		out.WriteString("\nfailures\n")
	}
	for _, f := range r.Failures {
		const deepest = 20
		fmt.Fprintf(out, "%s%s: %v (%s)", strings.Repeat("  ", min(f.Depth, deepest)), clean(f.Node), f.Status, f.Cause)
		if len(f.Origins) > 0 {
			fmt.Fprintf(out, " because of %s", list(f.Origins))
		}
		if f.Error != "" {
			fmt.Fprintf(out, ": %s", clean(f.Error))
		}
		out.WriteString("\n")
	}

	if len(r.Compensations) > 0 {
		fmt.Fprintf(out, "\ncompensations\n%11s %11s  node\n", "start", "took")
	}
	for _, c := range r.Compensations {
		fmt.Fprintf(out, "%11s %11s  %s: %v", seconds(c.Start), seconds(c.Duration), clean(c.Node), c.Status)
		if !c.Certain {
			out.WriteString(", its effect was unknown")
		}
		if c.Attempts > 1 {
			fmt.Fprintf(out, ", %d attempts", c.Attempts)
		}
		if c.Error != "" {
			fmt.Fprintf(out, ": %s", clean(c.Error))
		}
		out.WriteString("\n")
	}

	if len(not) > 0 {
		out.WriteString("\nnodes that did not run\n")
	}
	for _, n := range not {
		fmt.Fprintf(out, "%s: %v: %s\n", clean(n.ID), n.Status, n.Why)
	}
	return out.Flush()
}

// The function seconds renders a duration as text. A duration below a minute is in seconds, to the microsecond; a longer duration is in
// hours, minutes and seconds.
func seconds(d time.Duration) string {
	if d.Abs() < time.Minute {
		return fmt.Sprintf("%.6fs", d.Seconds())
	}
	sign := ""
	if d < 0 {
		sign, d = "-", -d
	}
	d = d.Round(10 * time.Millisecond)
	minutes, rest := d.Truncate(time.Minute), d%time.Minute
	if d < time.Hour {
		return fmt.Sprintf("%s%dm%05.2fs", sign, int(minutes.Minutes()), rest.Seconds())
	}
	return fmt.Sprintf("%s%dh%02dm%02ds", sign, int(minutes.Hours()), int(minutes.Minutes())%60, int(rest.Seconds()))
}
