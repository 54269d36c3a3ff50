package inspector

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/schedule"
	"github.com/seed-c794f7ef/kahn/store"
)

const (
	nextTicks = 5 // the number of next ticks listed for each schedule
	lastRuns  = 10
)

// schedulesReply lists the schedules in the Scheduler's store.
type schedulesReply struct {
	Schedules []scheduleRow `json:"schedules"`
	Now       string        `json:"now"`
}

// scheduleRow is one schedule.
type scheduleRow struct {
	Name     string   `json:"name"`
	Workflow string   `json:"workflow"`
	Cron     string   `json:"cron,omitempty"`
	Zone     string   `json:"zone,omitempty"`
	Every    string   `json:"every,omitempty"`
	Missed   string   `json:"missed"`
	Overlap  string   `json:"overlap"`
	Paused   bool     `json:"paused,omitempty"`
	Next     []string `json:"next"` // the next ticks; none while the schedule is paused
	// Queue is set if Options.Store is the Scheduler's store and no live process serves the queue of the schedule's runs.
	Queue *queueRow `json:"queue,omitempty"`
	// Last lists the latest runs that are not pending, the newest first.
	Last []scheduleRun `json:"last"`
}

// scheduleRun is a run of a schedule.
type scheduleRun struct {
	ID      string         `json:"id"`
	Status  kahn.RunStatus `json:"status"`
	Tick    string         `json:"tick,omitempty"`
	Kind    string         `json:"kind,omitempty"`     // "now" or "backfill"; empty for the run of a tick
	LeftOut string         `json:"left_out,omitempty"` // why the run was left out
	Ended   string         `json:"ended,omitempty"`
}

var scheduleParam = param{Name: "schedule", Required: true, Note: "name of the schedule"}

// The method `schedules` lists the schedules.
func (c *call) schedules() (any, error) {
	if !c.h.hasSchedules() {
		return nil, errNoSchedules
	}
	var list []schedule.Status
	var unclaimable []store.QueueState
	err := c.h.contain(c.r, "Scheduler.List", func() (err error) {
		if list, err = c.h.Scheduler.List(c.r.Context(), nextTicks, lastRuns); err == nil {
			unclaimable, err = c.h.unclaimable(c.r.Context())
		}
		return err
	})
	if err != nil {
		return nil, c.h.storeFault(c.r.Context(), err)
	}
	reply := schedulesReply{Schedules: []scheduleRow{}, Now: stamp(time.Now())}
	for i := range list {
		row := c.scheduleRowOf(&list[i])
		for _, q := range unclaimable {
			if q.Queue == (store.Queue{Workflow: row.Workflow}) { // the runs of schedules have no plan
				row.Queue = queueRowOf(q)
			}
		}
		reply.Schedules = append(reply.Schedules, row)
	}
	return reply, nil
}

func (c *call) scheduleRowOf(s *schedule.Status) scheduleRow {
	row := scheduleRow{
		Name: s.Name, Workflow: s.Workflow, Cron: s.Cron, Zone: s.Zone, Missed: cmp.Or(string(s.Missed), "latest"), Overlap: cmp.Or(string(s.Overlap), "skip"),
		Paused: s.Paused, Next: []string{}, Last: []scheduleRun{},
	}
	if s.Every != 0 {
		row.Every = s.Every.String()
	}
	for _, tick := range s.Next {
		row.Next = append(row.Next, stamp(tick))
	}
	for i := range s.Last {
		run := &s.Last[i]
		row.Last = append(row.Last, scheduleRun{
			ID: run.ID, Status: run.Status, Tick: run.Labels[schedule.LabelTick], Kind: run.Labels[schedule.LabelKind],
			LeftOut: c.leftOut(run), Ended: stamp(run.Ended),
		})
	}
	return row
}

// leftOut returns why a run was left out. The part of this text after a colon may come from a function of the host. Only clients that may ViewData
// see that part.
func (c *call) leftOut(run *store.Run) string {
	reason := run.Labels[schedule.LabelLeftOut]
	if !c.mayViewData() {
		reason, _, _ = strings.Cut(reason, ":")
		return reason
	}
	if reason == "" {
		return ""
	}
	return c.shownText(Value{RunID: run.ID, Kind: Label, Name: schedule.LabelLeftOut, Value: reason})
}

var errNoSchedules = &fault{Status: http.StatusNotFound, Code: "no_schedules", Message: "the page has no schedules: Options.Scheduler is nil, or Options.Visible is set"}

// hasSchedules reports whether the page has schedules. If Options.Visible is set, the page has none, since a schedule concerns all clients.
func (h *handler) hasSchedules() bool { return h.Scheduler != nil && h.Visible == nil }

// onSchedule calls the function `act` with the schedule that the query names.
func (c *call) onSchedule(act func(s *schedule.Scheduler, ctx context.Context, name string) error) error {
	if !c.h.hasSchedules() {
		return errNoSchedules
	}
	name := c.query.text("schedule")
	err := act(c.h.Scheduler, context.WithoutCancel(c.r.Context()), name)
	switch {
	case errors.Is(err, schedule.ErrUnknownSchedule):
		return &fault{Status: http.StatusNotFound, Code: "unknown_schedule", Message: fmt.Sprintf("there is no schedule %.60q", name)}
	case errors.Is(err, schedule.ErrBadSchedule):
		return &fault{Status: http.StatusConflict, Code: "not_here", Message: "this process does not serve the schedule"}
	}
	if err != nil {
		return c.h.storeFault(c.r.Context(), err)
	}
	return nil
}

func (c *call) runSchedule() (any, error) {
	var id string
	err := c.onSchedule(func(s *schedule.Scheduler, ctx context.Context, name string) (err error) {
		id, err = s.RunNow(ctx, name)
		return err
	})
	return runReply{Run: id}, err
}

func (c *call) pauseSchedule() (any, error) {
	return accepted, c.onSchedule((*schedule.Scheduler).Pause)
}
func (c *call) resumeSchedule() (any, error) {
	return accepted, c.onSchedule((*schedule.Scheduler).Resume)
}
