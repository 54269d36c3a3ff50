package inspector

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/schedule"
	"github.com/seed-c794f7ef/kahn/store"
)

// scheduler serves a workflow with two schedules over a store in memory.
func scheduler(t *testing.T, list ...schedule.Schedule) (*schedule.Scheduler, *kahn.Runner) {
	t.Helper()
	g := (&kahn.Graph{Name: "report"}).Add(kahn.Node{ID: "n"})
	rn := &kahn.Runner{}
	s, err := schedule.New(rn, kahn.Service{Store: &store.Memory{}, Workflows: []kahn.Workflow{{Graph: g, Step: func(context.Context, *kahn.Step) (any, error) { return nil, nil }}}}, list...)
	require.NoError(t, err)
	return s, rn
}

// The page shows the next ticks and the last runs, and operators run, pause and resume a schedule.
func TestSchedules(t *testing.T) {
	t.Parallel()
	s, rn := scheduler(t, schedule.Schedule{Name: "often", Workflow: "report", Every: 7 * time.Hour}, schedule.Schedule{Name: "report", Cron: "30 2 * * *", Zone: "Europe/Berlin", Missed: schedule.None, Overlap: schedule.Allow})
	served := make(chan error, 1)
	go func() { served <- s.Serve(t.Context()) }()
	d := newDesk(t, func(o *Options) { o.Scheduler = s })
	var list []scheduleRow
	require.Eventually(t, func() bool { list = get[schedulesReply](d, "api/v1/schedules").Schedules; return len(list) == 2 }, 10*time.Second, 5*time.Millisecond)
	require.Equal(t, []string{"often", "7h0m0s", "report", "", "latest", "skip"}, []string{list[0].Name, list[0].Every, list[0].Workflow, list[0].Cron, list[0].Missed, list[0].Overlap})
	require.Equal(t, []string{"report", "30 2 * * *", "Europe/Berlin", "none", "allow"}, []string{list[1].Name, list[1].Cron, list[1].Zone, list[1].Missed, list[1].Overlap})
	for _, row := range list {
		require.Len(t, row.Next, 5, row.Name)
		require.True(t, slices.IsSorted(row.Next), row.Name)
		require.Empty(t, row.Last, row.Name)
	}

	var answer runReply
	require.NoError(t, json.Unmarshal(d.post("api/v1/schedule/run", "{}", "schedule", "report"), &answer))
	require.Eventually(t, func() bool {
		last := get[schedulesReply](d, "api/v1/schedules").Schedules[1].Last
		return len(last) == 1 && last[0].ID == answer.Run && last[0].Status == kahn.RunCompleted && last[0].Kind == "now" && last[0].Ended != ""
	}, 10*time.Second, 5*time.Millisecond)

	require.JSONEq(t, `{"status":"accepted"}`, string(d.post("api/v1/schedule/pause", "{}", "schedule", "report")))
	row := get[schedulesReply](d, "api/v1/schedules").Schedules[1]
	require.True(t, row.Paused)
	require.Empty(t, row.Next)
	require.JSONEq(t, `{"status":"accepted"}`, string(d.post("api/v1/schedule/resume", "{}", "schedule", "report")))
	require.Len(t, get[schedulesReply](d, "api/v1/schedules").Schedules[1].Next, 5)

	for _, path := range []string{"run", "pause", "resume"} {
		f := d.refusal(http.StatusNotFound, http.MethodPost, "api/v1/schedule/"+path+"?schedule=nightly", "{}")
		require.Equal(t, fault{Code: "unknown_schedule", Message: `there is no schedule "nightly"`}, *f, path)
	}
	require.Contains(t, d.audit.String(), "action=schedule/pause")
	require.NoError(t, rn.Shutdown(context.Background()))
	require.NoError(t, <-served)
}

// Only clients with ViewData see what the host's Inputs function returns or reports about a tick. Without a Scheduler, and under
// Visible, there are no schedules and nobody runs, pauses or resumes one.
func TestSchedulesArePrivate(t *testing.T) {
	t.Parallel()
	var s *schedule.Scheduler
	synctest.Test(t, func(t *testing.T) {
		var rn *kahn.Runner
		s, rn = scheduler(t, schedule.Schedule{Name: "report", Every: time.Hour, Inputs: func(time.Time) (map[string]any, error) { panic("secret") }})
		served := make(chan error, 1)
		go func() { served <- s.Serve(t.Context()) }()
		time.Sleep(90 * time.Minute)
		require.NoError(t, rn.Shutdown(context.Background()))
		require.NoError(t, <-served)
	})
	may := []Action{View}
	d := newDesk(t, func(o *Options) {
		o.Scheduler = s
		o.Authorize = func(_ *http.Request, a Action) error {
			if slices.Contains(may, a) {
				return nil
			}
			return errNoSchedules
		}
	})
	last := get[schedulesReply](d, "api/v1/schedules").Schedules[0].Last
	require.NotEmpty(t, last)
	require.Equal(t, "inputs", last[0].LeftOut)
	may = append(may, ViewData)
	require.Contains(t, get[schedulesReply](d, "api/v1/schedules").Schedules[0].Last[0].LeftOut, "secret")

	for _, without := range []func(*Options){nil, func(o *Options) {
		o.Scheduler = s
		o.Visible = func(*http.Request, RunInfo) bool { return true } // a schedule concerns all clients
	}} {
		d = newDesk(t, without)
		require.Equal(t, "no_schedules", d.refusal(http.StatusNotFound, http.MethodGet, "api/v1/schedules", "").Code)
		for _, act := range []string{"run", "pause", "resume"} {
			require.Equal(t, "no_schedules", d.refusal(http.StatusNotFound, http.MethodPost, "api/v1/schedule/"+act+"?schedule=report", "{}").Code, act)
		}
	}
}

// TestSchedulesThatNoProcessServes requires that a schedule is marked if no process serves the runs of its ticks.
func TestSchedulesThatNoProcessServes(t *testing.T) {
	t.Parallel()
	memory := &store.Memory{}
	g := (&kahn.Graph{Name: "report"}).Add(kahn.Node{ID: "n"})
	rn := &kahn.Runner{}
	s, err := schedule.New(rn, kahn.Service{Store: memory, Workflows: []kahn.Workflow{{Graph: g, Step: func(context.Context, *kahn.Step) (any, error) { return nil, nil }}}},
		schedule.Schedule{Name: "nightly", Workflow: "report", Cron: "30 2 * * *"})
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- s.Serve(t.Context()) }()
	shown := func() *desk { return newDesk(t, func(o *Options) { o.Scheduler, o.Store = s, memory }) }
	d := shown()
	require.Eventually(t, func() bool { return len(get[schedulesReply](d, "api/v1/schedules").Schedules) == 1 }, 10*time.Second, 5*time.Millisecond)
	require.Nil(t, get[schedulesReply](shown(), "api/v1/schedules").Schedules[0].Queue)
	require.NoError(t, rn.Shutdown(t.Context()))
	require.NoError(t, <-served)
	row := get[schedulesReply](shown(), "api/v1/schedules").Schedules[0]
	require.NotNil(t, row.Queue)
	require.Equal(t, []any{"report", "", 1}, []any{row.Queue.Workflow, row.Queue.Plan, row.Queue.Runs})
}
