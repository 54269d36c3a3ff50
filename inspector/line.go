package inspector

import (
	"cmp"
	"context"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// lineRow is the place of a pending run in a line of runs that wait to begin. For a run of the Runner, the line consists of the Runner's pending
// runs. For a stored run, it consists of the pending stored runs with the same key.
type lineRow struct {
	Ahead   int  `json:"ahead"`           // the number of pending runs that begin before this run
	More    bool `json:"more,omitempty"`  // Ahead may be too small, because not all pending runs were read
	Running int  `json:"running"`         // how many runs of the Runner run now; for a stored run: how many runs with its key, or 0 if it has no key
	Limit   int  `json:"limit,omitempty"` // how many may run at once, if the Runner has a limit
	// From is the earliest time at which a stored run may begin. It is set only if this time is in the future. Then Ahead is 0.
	From string `json:"from,omitempty"`
}

// mostInLine is the maximum number of pending runs that are read from a store to find a run's place.
const mostInLine = 500

// lineOf returns the place of a run of the Runner, or nil if the run is not pending.
func (h *handler) lineOf(run *kahn.Run) *lineRow {
	if run.Status() != kahn.RunPending || over(run) {
		return nil
	}
	x := lineRow{Limit: h.Runner.MaxRuns}
	before := true
	for other := range h.Runner.Runs() { // in the order of their arrival, which is also the order in which they begin
		switch before = before && other != run; {
		case other.Status() == kahn.RunRunning && !over(other):
			x.Running++
		case before && other.Status() == kahn.RunPending && !over(other):
			x.Ahead++
		}
	}
	return &x
}

// storedLineOf returns the place of a pending stored run among the runs with its key. It returns nil if the run is not pending, or if the store
// is not a store.TurnStore.
func (h *handler) storedLineOf(ctx context.Context, run *store.Run) (*lineRow, error) {
	keys, ok := h.Store.(store.TurnStore)
	if !ok || run.Status != kahn.RunPending {
		return nil, nil
	}
	places, err := keys.LeasedKeys(ctx)
	if err != nil {
		return nil, err
	}
	x := &lineRow{Running: places[run.Key]}
	now := time.Now()
	if run.WakeAt.After(now) {
		x.From = stamp(run.WakeAt)
		return x, nil
	}
	page, err := h.Store.List(ctx, store.Query{Filter: store.Filter{Key: run.Key, Statuses: []kahn.RunStatus{kahn.RunPending}}, Limit: mostInLine})
	if err != nil {
		return nil, err
	}
	x.More = page.Next != ""
	for i := range page.Runs {
		if other := &page.Runs[i]; other.ID != run.ID && other.Key == run.Key && !other.WakeAt.After(now) && comesFirst(other, run) {
			x.Ahead++
		}
	}
	return x, nil
}

// comesFirst reports whether run a begins before run b. Both runs are due and have the same key.
func comesFirst(a, b *store.Run) bool {
	if a.Priority != b.Priority {
		return a.Priority > b.Priority
	}
	return cmp.Or(dueSince(a).Compare(dueSince(b)), cmp.Compare(a.ID, b.ID)) < 0
}

// dueSince returns the time at which a pending run became due.
func dueSince(run *store.Run) time.Time {
	if run.WakeAt.IsZero() {
		return run.Created
	}
	return run.WakeAt
}
