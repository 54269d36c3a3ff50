package inspector

import (
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/internal/saturate"
)

// This file shows the forecasts of live runs: how long a run will still take, and which nodes are late. A stored run has no forecast, because
// only the process that performs a run can compute the forecast.

// addForecast adds the forecast of the run, if it has one: the remaining time, and the step that exceeds its estimate by the longest time.
func (row *runRow) addForecast(run *kahn.Run) {
	f, ok := run.Forecast()
	if !ok {
		return
	}
	row.Remaining, row.RemainingWaits, row.Late = expectedMillis(f.Left), f.Waits, lateBy(f)
	if f.LateNode == "" {
		return
	}
	row.LateNode = f.LateNode
	if res, err := run.Node(f.LateNode); err == nil {
		row.LateLabel = res.Label
	}
	if d, ok := run.Estimate(f.LateNode); ok {
		row.LateEstimate = expectedMillis(d)
	}
}

// lateBy returns the longest time by which a running step exceeds its estimate. It returns nil if no running step exceeds its estimate.
func lateBy(f kahn.Forecast) *float64 {
	if f.Late == 0 {
		return nil
	}
	return expectedMillis(f.Late)
}

// lateAfter returns how long an attempt of a node may run before the node is late: twice the estimate, but at least one second longer than the
// estimate.
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

// lateIn returns the time until a running node counts as late. This time is negative if the node is already late. The result `ok` is false if the
// node is not running, or has no estimate.
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

// addLateness sets the field Late of each running attempt: the time from which the attempt's node counts as late.
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
