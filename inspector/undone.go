package inspector

import (
	"slices"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// undoTask is a run with a failed compensation. An operator must repeat the compensation, or undo the node's effects by hand.
type undoTask struct {
	Run      string         `json:"run"`
	Workflow string         `json:"workflow"`
	Status   kahn.RunStatus `json:"status"`
	Ended    string         `json:"ended,omitempty"`
}

// addTasks adds runs with failed compensations, at most `limit`: first a page of the store's runs, then the runs that only the Runner has. It also
// sets reply.Failed.
func (c *call) addTasks(reply *gatesReply, limit int) {
	here := map[string]undoTask{}
	for run := range c.liveRuns {
		if over(run) && run.Status().Terminal() && run.Compensation() == kahn.CompensationFailed {
			here[run.ID()] = undoTask{run.ID(), run.Name(), run.Status(), stamp(lastEnd(run, time.Time{}))}
		}
	}
	page, stored, err := c.storedTasks(max(limit, store.DefaultPage))
	if err != nil {
		reply.note("The store does not answer: runs with failed compensations may be missing.")
	}
	reply.Failed = stored
	add := func(t undoTask) {
		if len(reply.Compensations) < limit {
			reply.Compensations = append(reply.Compensations, t)
		}
	}
	for _, r := range page.Runs {
		delete(here, r.ID)
		add(undoTask{r.ID, r.Workflow, r.Status, stamp(r.Ended)})
	}
	for run := range c.liveRuns { // in the order of the Runner
		if t, alone := here[run.ID()]; alone {
			// If the store has a next page, the run may be on that page. Then the store's number already includes the run.
			if add(t); page.Next == "" {
				reply.Failed++
			}
		}
	}
}

// addTask adds the run that the request names, if a compensation of the run has failed.
func (c *call) addTask(reply *gatesReply) {
	run := c.target
	if !run.Status().Terminal() || compensationOf(run) != kahn.CompensationFailed {
		return
	}
	ended := stamp(lastEnd(run, time.Time{}))
	if s := c.stored(); s != nil {
		ended = stamp(s.row.Ended)
	}
	reply.Compensations, reply.Failed = []undoTask{{run.ID(), run.Name(), run.Status(), ended}}, 1
}

// storedTasks returns the store's latest runs with a failed compensation, and the number of all such runs. If Options.Visible is set, it returns only
// visible runs, and the number of the returned runs.
func (c *call) storedTasks(most int) (page store.Page, total int, err error) {
	if c.h.Store == nil {
		return page, 0, nil
	}
	failed := store.Filter{Compensation: kahn.CompensationFailed, Statuses: []kahn.RunStatus{kahn.RunCompleted, kahn.RunFailed, kahn.RunCancelled}}
	err = c.h.contain(c.r, "Store.List", func() error {
		var counts []store.Count
		if page, err = c.h.Store.List(c.r.Context(), store.Query{Filter: failed, Limit: most}); err == nil {
			counts, err = c.h.Store.Count(c.r.Context(), failed)
		}
		for _, n := range counts {
			total += n.Runs
		}
		if c.h.Visible != nil { // the store's counts include runs that the client may not see
			page.Runs = slices.DeleteFunc(page.Runs, func(run store.Run) bool { return !c.h.seesStored(c.r, &run) })
			total = len(page.Runs)
		}
		return err
	})
	return page, total, err
}

// undoneReply is the progress of undoing a node.
type undoneReply struct {
	State    string `json:"state"`              // running, done or failed
	Unknown  bool   `json:"unknown,omitempty"`  // it is unknown whether the node had an effect
	Attempts int    `json:"attempts,omitempty"` // the attempts of the compensation
	Began    string `json:"began,omitempty"`
	Ended    string `json:"ended,omitempty"`
	ByHand   bool   `json:"by_hand,omitempty"` // the node was undone by hand
	// The field By is the person who undid the node by hand, Comment is this person's comment, and Error says why undoing failed. These three
	// fields are only for clients that may view_data.
	By      string `json:"by,omitempty"`
	Comment string `json:"comment,omitempty"`
	Error   string `json:"error,omitempty"`
}

// The method `undone` returns the progress of undoing a node; nil if the node's Compensation is CompensationNone.
func (c *call) undone(res kahn.NodeResult) *undoneReply {
	if res.Compensation == kahn.CompensationNone {
		return nil
	}
	reply := &undoneReply{State: res.Compensation.String(), Error: firstLine(c.shownError(res.ID, res.CompensationErr))}
	u := res.Undoing
	if u == nil { // the node is a composite, whose Compensation summarizes the nodes inside
		return reply
	}
	reply.Unknown, reply.Attempts, reply.Began, reply.Ended, reply.ByHand = !u.Certain, u.Attempts, stamp(u.Began), stamp(u.Ended), u.By != nil
	if u.By != nil && c.mayViewData() {
		reply.By = clip(u.By.Actor, shownText)
		reply.Comment = c.dataText(Value{Path: res.ID, Kind: Answer, Name: "comment", Value: u.By.Reason})
	}
	return reply
}
