package inspector

import (
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/internal/saturate"
)

// This file has what live runs expect: how long they take, and which nodes are late. Stored runs show none of this, because only the
// process that performs a run computes its forecast.

// addForecast adds when the run is expected to end, if the run knows that.
func (row *runRow) addForecast(run *kahn.Run) {
	if f, ok := run.Forecast(); ok {
		row.Remaining, row.RemainingWaits = expectedMillis(f.Left), f.Waits
	}
}

// lateAfter returns how long an attempt of a node with this estimate may run until the node is late: twice as long as expected, and at least
// a second longer than expected.
func lateAfter(estimate time.Duration) time.Duration {
	return time.Duration(saturate.Add(int64(estimate), int64(max(estimate, time.Second))))
}

// estimateOf returns how long a node of a live run is expected to take.
func estimateOf(run subject, path string) (time.Duration, bool) {
	live, ok := run.(*kahn.Run)
	if !ok {
		return 0, false
	}
	return live.Estimate(path)
}

// lateIn returns how long it takes until a running node is late; the time is negative if the node is late already. ok is false if the node
// does not run, or if nothing is known.
func lateIn(run subject, n kahn.NodeResult) (in time.Duration, ok bool) {
	if n.Status != kahn.Running || over(run) {
		return 0, false
	}
	estimate, ok := estimateOf(run, n.ID)
	tries := n.History()
	if !ok || len(tries) == 0 {
		return 0, false
	}
	return lateAfter(estimate) - time.Since(tries[len(tries)-1].Start), true
}

// addLateness adds to the attempts that run when their nodes will be late.
func addLateness(run subject, spans []span) {
	for i := range spans {
		x := &spans[i]
		if x.Status != kahn.Running.String() || x.End != 0 {
			continue
		}
		if estimate, ok := estimateOf(run, x.Path); ok {
			x.Late = expectedMillis(lateAfter(estimate))
			*x.Late += x.Start
		}
	}
}

func expectedMillis(d time.Duration) *float64 {
	ms := millis(d)
	return &ms
}
