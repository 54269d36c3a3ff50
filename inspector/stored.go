package inspector

import (
	"cmp"
	"errors"
	"net/http"
	"slices"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// storedRow is one run of the store. This process, another process or no process may perform the run.
type storedRow struct {
	ID       string         `json:"id"`
	Workflow string         `json:"workflow"`
	Status   kahn.RunStatus `json:"status"`
	// Compensation is the progress of undoing the run's nodes: running, done or failed; empty if no node is undone.
	Compensation string            `json:"compensation,omitempty"`
	Usage        kahn.Usage        `json:"usage,omitempty"` // the amounts that the ended attempts have used, by the names of the resources
	Created      string            `json:"created,omitempty"`
	Ended        string            `json:"ended,omitempty"`
	WakeAt       string            `json:"wake_at,omitempty"` // when the run continues, or may begin
	Parent       string            `json:"parent,omitempty"`
	Labels       map[string]string `json:"labels,omitempty"` // for clients that may view_data
	Key          string            `json:"key,omitempty"`    // the fairness key, by which due runs take turns; only for clients that may view_data
	Priority     int               `json:"priority,omitempty"`
	Here         bool              `json:"here,omitempty"`  // whether the Runner has the run, too
	Queue        *queueRow         `json:"queue,omitempty"` // the run's queue, if no live process serves it
	// Waiting has the first few nodes that wait for a signal. Waits is the number of all nodes that wait.
	Waiting []storedWait `json:"waiting,omitempty"`
	Waits   int          `json:"waits,omitempty"`
	// Gone is when the run's process was last heard of. It is set only if the status of the run is running but no process performs the run.
	Gone string `json:"gone,omitempty"`
}

type storedReply struct {
	Runs []storedRow `json:"runs"`
	// Urgent are at most 100 matching runs that need an operator: first the runs that have lost their process, then the runs that wait for an answer.
	// Only the first page has Urgent. The field Runs of this page or of a later page lists the same runs, too.
	Urgent []storedRow `json:"urgent,omitempty"`
	// Next is the value of the parameter "after" for the next page; empty on the last page.
	Next string `json:"next,omitempty"`
	// Unclaimable are the first few queues that no live process serves; UnclaimableRuns is the number of runs in all such queues.
	Unclaimable     []*queueRow `json:"unclaimable,omitempty"`
	UnclaimableRuns int         `json:"unclaimable_runs,omitempty"`
}

// The method `filter` returns the store.Filter for the runs that a query selects. It returns an error if the query has a key and the client may not
// ViewData.
func (c *call) filter() (f store.Filter, err error) {
	f.Workflow, f.Prefix, f.Key = c.query.text("workflow"), c.query.text("prefix"), c.query.text("key")
	for _, name := range c.query.texts["status"] {
		var s kahn.RunStatus
		_ = s.UnmarshalText([]byte(name)) // cannot fail: the route has checked the name
		f.Statuses = append(f.Statuses, s)
	}
	if name := c.query.text("compensation"); name != "" {
		_ = f.Compensation.UnmarshalText([]byte(name)) // cannot fail: the route has checked the name
	}
	if f.Key != "" {
		err = c.h.authorize(c.r, ViewData)
	}
	return f, err
}

func (c *call) listStored() (any, error) {
	f, err := c.filter()
	if err != nil {
		return nil, err
	}
	q := store.Query{Filter: f, Limit: c.query.numbers["limit"], After: c.query.text("after")}
	if c.h.Store == nil {
		return nil, errNoStore
	}
	var page store.Page
	var unclaimable []store.QueueState
	err = c.h.contain(c.r, "Store.List", func() (err error) {
		if unclaimable, err = c.h.unclaimable(c.r.Context()); err != nil {
			return err
		}
		if c.query.text("queue") == "" {
			page, err = c.h.Store.List(c.r.Context(), q)
		} else {
			page, err = c.h.listUnclaimable(c.r.Context(), q, unclaimable)
		}
		return err
	})
	if err != nil {
		return nil, c.listFault(err)
	}
	reply := storedReply{Runs: []storedRow{}, Next: page.Next}
	if c.h.Visible != nil { // the store's counts include runs that the client may not see
		unclaimable = nil
		page.Runs = slices.DeleteFunc(page.Runs, func(run store.Run) bool { return !c.h.seesStored(c.r, &run) })
	}
	for i, x := range unclaimable {
		if reply.UnclaimableRuns += x.Runs; i < few {
			reply.Unclaimable = append(reply.Unclaimable, queueRowOf(x))
		}
	}
	rows := func(runs []store.Run) (list []storedRow) {
		for i := range runs {
			list = append(list, c.storedRow(&runs[i], unclaimable))
		}
		c.addWaits(list)
		return list
	}
	reply.Runs = append(reply.Runs, rows(page.Runs)...)
	if q.After == "" && c.query.text("queue") == "" {
		reply.Urgent = rows(c.urgent(q.Filter))
	}
	return reply, nil
}

// mostUrgent is the maximum number of runs in storedReply.Urgent.
const mostUrgent = 100

// The method `urgent` returns at most mostUrgent stored runs that match a filter and need an operator. If the store returns an error, urgent logs the
// error and returns the runs that it has found so far, since the other fields of the reply are useful without these runs.
func (c *call) urgent(f store.Filter) (list []store.Run) {
	needs := map[string]need{}
	err := c.h.contain(c.r, "Store", func() error {
		runs, _, err := c.restingRuns(c.r.Context(), f)
		if err != nil {
			return err
		}
		found, _, err := c.h.resting(c.r.Context(), idsOf(runs))
		for _, run := range runs {
			if needs[run.ID] = found[run.ID].need(); needs[run.ID] != needsNobody {
				list = append(list, run)
			}
		}
		return err
	})
	if err != nil {
		_ = c.h.storeFault(c.r.Context(), err) // called for its side effect, a record in the log
	}
	slices.SortStableFunc(list, func(a, b store.Run) int { return cmp.Compare(needs[a.ID], needs[b.ID]) })
	return list[:min(len(list), mostUrgent)]
}

// storedRow returns the row of a stored run, without its waits.
func (c *call) storedRow(run *store.Run, unclaimable []store.QueueState) storedRow {
	row := storedRow{ID: run.ID, Workflow: run.Workflow, Status: run.Status, Created: stamp(run.Created), Ended: stamp(run.Ended), WakeAt: stamp(run.WakeAt), Parent: run.Parent, Compensation: compensationName(run.Compensation), Usage: run.Usage, Priority: run.Priority, Queue: c.h.queueOf(run, unclaimable)}
	if _, row.Here = c.h.Runner.Run(run.ID); c.mayViewData() && len(run.Labels) > 0 {
		row.Labels = map[string]string{}
		for name, label := range run.Labels {
			row.Labels[clip(name, shownText)] = c.shownText(Value{RunID: run.ID, Kind: Label, Name: name, Value: label})
		}
	}
	if run.Key != "" && c.mayViewData() {
		row.Key = c.shownText(Value{RunID: run.ID, Kind: Key, Value: run.Key})
	}
	return row
}

// storedCount is the number of the store's runs that match the query.
type storedCount struct {
	Total int  `json:"total"`
	More  bool `json:"more,omitempty"` // Total may be too small, because not all runs were read
}

func (c *call) countStored() (any, error) {
	if c.h.Store == nil {
		return nil, errNoStore
	}
	f, err := c.filter()
	if err != nil {
		return nil, err
	}
	var reply storedCount
	err = c.h.contain(c.r, "Store.Count", func() error {
		if c.h.Visible == nil {
			list, err := c.h.Store.Count(c.r.Context(), f)
			for _, x := range list {
				reply.Total += x.Runs
			}
			return err
		}
		page, err := c.h.Store.List(c.r.Context(), store.Query{Filter: f, Limit: mostResting})
		for i := range page.Runs {
			if c.h.seesStored(c.r, &page.Runs[i]) {
				reply.Total++
			}
		}
		reply.More = page.Next != ""
		return err
	})
	if err != nil {
		return nil, c.listFault(err)
	}
	return reply, nil
}

var errNoStore = &fault{Status: http.StatusNotFound, Code: "no_store", Message: "Options.Store is nil"}

var errNoCursor = badQuery("the parameter after is not a cursor of this list")

// listFault returns the error that the client gets if the store's method List or Count returns an error. The client gets errNoCursor if its cursor
// is malformed.
func (c *call) listFault(err error) error {
	if own := (*fault)(nil); errors.As(err, &own) {
		return own
	}
	if errors.Is(err, kahn.ErrBadValue) {
		return errNoCursor
	}
	return c.h.storeFault(c.r.Context(), err)
}
