package schedule_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/machine"
	"github.com/seed-c794f7ef/kahn/schedule"
	"github.com/seed-c794f7ef/kahn/store"
)

// diary records what steps do, each with the hours and minutes since midnight, when the test begins.
type diary struct {
	mu   sync.Mutex
	list []string
}

func (d *diary) note(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.list = append(d.list, fmt.Sprintf(format, args...))
}

func (d *diary) take() (list []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	list, d.list = d.list, nil
	return list
}

func clock() string { return time.Now().UTC().Format("15:04") }

// reports returns a service with a workflow whose step records its tick, and takes some time.
func reports(d *diary, takes time.Duration) kahn.Service {
	g := &kahn.Graph{Name: "report"}
	g.Add(kahn.Node{ID: "a"})
	return kahn.Service{Poll: time.Second, Workflows: []kahn.Workflow{{Graph: g, Step: func(_ context.Context, s *kahn.Step) (any, error) {
		tick, _ := s.Root("tick")
		d.note("%v at %s", tick, clock())
		time.Sleep(takes)
		return nil, nil
	}}}}
}

// start serves schedules. end shuts the Runner down.
func start(t *testing.T, db store.ScheduleStore, x kahn.Service, list ...schedule.Schedule) (s *schedule.Scheduler, end func()) {
	t.Helper()
	x.Store = db
	if x.OnError == nil {
		x.OnError = func(_ string, _ store.Queue, err error) { t.Error(err) }
	}
	rn := new(kahn.Runner)
	s, err := schedule.New(rn, x, list...)
	require.NoError(t, err)
	over := make(chan error, 1)
	go func() { over <- s.Serve(t.Context()) }()
	synctest.Wait()
	return s, func() {
		t.Helper()
		require.NoError(t, rn.Shutdown(t.Context()))
		require.NoError(t, <-over)
	}
}

// left returns the stored ticks of a schedule in the order of their times, each with its status and the reason why it was left out.
func left(t *testing.T, db store.ScheduleStore) (list []string) {
	t.Helper()
	page, err := db.List(t.Context(), store.Query{Limit: store.MaxPage})
	require.NoError(t, err)
	for _, r := range page.Runs {
		tick := at(t, r.Labels[schedule.LabelTick])
		list = append(list, strings.TrimSpace(fmt.Sprintf("%s %v %s", tick.UTC().Format("15:04"), r.Status, r.Labels[schedule.LabelLeftOut])))
	}
	slices.Sort(list)
	return list
}

func bubble(t *testing.T, name string, f func(t *testing.T)) {
	t.Run(name, func(t *testing.T) { t.Parallel(); synctest.Test(t, f) })
}

var hourly = schedule.Schedule{Name: "hourly", Workflow: "report", Cron: "0 * * * *"}

func with(f func(s *schedule.Schedule)) schedule.Schedule {
	s := hourly
	f(&s)
	return s
}

func TestTicks(t *testing.T) {
	t.Parallel()
	bubble(t, "at their times, with their inputs and labels", func(t *testing.T) {
		db, d := new(store.Memory), new(diary)
		x := reports(d, time.Minute)
		_, end := start(t, db, x, with(func(s *schedule.Schedule) {
			s.Cron, s.Zone, s.Labels = "30 2 * * *", "Europe/Berlin", map[string]string{"tenant": "acme"}
		}), schedule.Schedule{Name: "report", Every: 12 * time.Hour})
		page, err := db.List(t.Context(), store.Query{Filter: store.Filter{Labels: map[string]string{"tenant": "acme"}}})
		require.NoError(t, err)
		require.Len(t, page.Runs, 1)
		r := page.Runs[0]
		require.Equal(t, "hourly@2000-01-01T01:30:00Z", r.ID)
		require.Equal(t, at(t, "2000-01-01T01:30:00Z"), r.WakeAt.UTC())
		require.Empty(t, r.Plan)
		require.Equal(t, "hourly", r.Labels[schedule.LabelSchedule])
		require.Equal(t, "2000-01-01T01:30:00Z", r.Labels[schedule.LabelTick])
		time.Sleep(26 * time.Hour)
		require.Equal(t, []string{"2000-01-01T01:30:00Z at 01:30", "2000-01-01T12:00:00Z at 12:00", "2000-01-02T00:00:00Z at 00:00", "2000-01-02T01:30:00Z at 01:30"}, d.take())
		end()
		require.Equal(t, []string{"00:00 completed", "01:30 completed", "01:30 completed", "01:30 pending", "12:00 completed", "12:00 pending"}, left(t, db))
	})
	bubble(t, "inputs are a function of the tick, and a tick that fails fails alone", func(t *testing.T) {
		db, d := new(store.Memory), new(diary)
		g := (&kahn.Graph{Name: "report", Inputs: []kahn.Input{{Name: "hour"}}}).Add(kahn.Node{ID: "a"}, kahn.Node{ID: "clean", After: []string{"a"}, Cleanup: true})
		x := kahn.Service{Workflows: []kahn.Workflow{{Graph: g, Step: func(_ context.Context, s *kahn.Step) (any, error) {
			hour, err := kahn.Root[int](s, "hour")
			if d.note("%s %d", s.ID(), hour); hour == 1 {
				err = errors.New("broken")
			}
			return nil, err
		}}}}
		reported := new(diary)
		x.OnError = func(run string, q store.Queue, err error) {
			require.ErrorIs(t, err, schedule.ErrBadSchedule)
			_, reason, _ := strings.Cut(err.Error(), " will be left out: ")
			reported.note("%s at %s %s: %s", q.Workflow, clock(), run, reason)
		}
		_, end := start(t, db, x, with(func(s *schedule.Schedule) {
			s.Inputs = func(tick time.Time) (map[string]any, error) {
				switch hour := tick.Hour(); hour {
				case 2:
					return nil, errors.New("no rates")
				case 3:
					panic("no rates")
				case 4:
					return map[string]any{"minute": 1}, nil // an input that the graph does not declare
				default:
					return map[string]any{"hour": hour}, nil
				}
			}
		}))
		time.Sleep(5*time.Hour + time.Minute)
		require.Equal(t, []string{"a 1", "clean 1", "a 5", "clean 5"}, d.take())
		end()
		list := left(t, db)
		require.Equal(t, []string{"01:00 failed", "02:00 cancelled inputs: no rates", "03:00 cancelled inputs: panic: no rates"}, list[:3])
		require.True(t, strings.HasPrefix(list[3], "04:00 cancelled inputs: "), list[3])
		require.Equal(t, []string{"05:00 completed", "06:00 pending"}, list[4:])
		told := reported.take()
		require.Len(t, told, 3, "each tick that is left out is reported once, when it is created")
		require.Equal(t, []string{
			"report at 01:00 hourly@2000-01-01T02:00:00Z: inputs: no rates", "report at 02:00 hourly@2000-01-01T03:00:00Z: inputs: panic: no rates",
		}, told[:2])
		require.True(t, strings.HasPrefix(told[2], "report at 03:00 hourly@2000-01-01T04:00:00Z: inputs: "), told[2])
	})
	bubble(t, "RunNow and Backfill report runs whose inputs cannot be made", func(t *testing.T) {
		db, reported := new(store.Memory), new(diary)
		x := reports(new(diary), 0)
		x.OnError = func(run string, _ store.Queue, err error) { reported.note("%s", run) }
		s, end := start(t, db, x, with(func(s *schedule.Schedule) {
			s.Inputs = func(tick time.Time) (map[string]any, error) {
				if tick.Minute() == 30 || tick.Year() < 2000 {
					return nil, errors.New("no rates")
				}
				return nil, nil
			}
		}))
		time.Sleep(30 * time.Minute)
		id, err := s.RunNow(t.Context(), "hourly")
		require.NoError(t, err)
		ids, err := s.Backfill(t.Context(), "hourly", time.Now().Add(-2*time.Hour), time.Now())
		require.NoError(t, err)
		require.Equal(t, []string{"hourly@1999-12-31T23:00:00Z", "hourly@2000-01-01T00:00:00Z"}, ids)
		require.Equal(t, []string{id, ids[0]}, reported.take())
		end()
	})
	bubble(t, "jitter is a function of name and tick", func(t *testing.T) {
		db, d := new(store.Memory), new(diary)
		jitter := with(func(s *schedule.Schedule) { s.Jitter = 30 * time.Minute })
		_, end := start(t, db, reports(d, 0), jitter)
		time.Sleep(24*time.Hour + 31*time.Minute)
		first := d.take()
		end()
		require.Len(t, first, 24)
		var minutes []string
		for i, line := range first {
			require.True(t, strings.HasPrefix(line, fmt.Sprintf("2000-01-%02dT%02d:00:00Z at %02d:", 1+(i+1)/24, (i+1)%24, (i+1)%24)), line)
			minutes = append(minutes, line[len(line)-2:])
		}
		slices.Sort(minutes)
		require.Less(t, minutes[23], "30")
		require.Greater(t, len(slices.Compact(minutes)), 5)
	})
}

// TestTickBesideInputs: a run has the input "tick" in addition to the schedule's own inputs, unless these include a tick or the graph does not
// take a tick.
func TestTickBesideInputs(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		declared []kahn.Input
		given    map[string]any
		want     string
	}{
		"a graph that takes any input": {nil, map[string]any{"region": "eu"}, "eu 2000-01-01T01:00:00Z"},
		"no other inputs":              {nil, nil, "<nil> 2000-01-01T01:00:00Z"},
		"a tick of its own":            {nil, map[string]any{"tick": "mine"}, "<nil> mine"},
		"a graph that declares tick":   {[]kahn.Input{{Name: "tick"}, {Name: "region"}}, map[string]any{"region": "eu"}, "eu 2000-01-01T01:00:00Z"},
		"a graph without tick":         {[]kahn.Input{{Name: "region"}}, map[string]any{"region": "eu"}, "eu <nil>"},
	} {
		bubble(t, name, func(t *testing.T) {
			g, d := (&kahn.Graph{Name: "report", Inputs: row.declared}).Add(kahn.Node{ID: "a"}), new(diary)
			_, end := start(t, new(store.Memory), kahn.Service{Workflows: []kahn.Workflow{{Graph: g, Step: func(_ context.Context, s *kahn.Step) (any, error) {
				region, _ := s.Root("region")
				tick, _ := s.Root("tick")
				d.note("%v %v", region, tick)
				return nil, nil
			}}}}, with(func(s *schedule.Schedule) {
				s.Inputs = func(time.Time) (map[string]any, error) { return row.given, nil }
			}))
			time.Sleep(61 * time.Minute)
			end()
			require.Equal(t, []string{row.want}, d.take())
		})
	}
}

// TestInputsOfNew: New refuses a schedule if the graph does not take the inputs of the next tick. It accepts a schedule whose Inputs returns an
// error.
func TestInputsOfNew(t *testing.T) {
	t.Parallel()
	give := func(names ...string) func(time.Time) (map[string]any, error) {
		return func(time.Time) (map[string]any, error) {
			all := map[string]any{}
			for _, name := range names {
				all[name] = 1
			}
			return all, nil
		}
	}
	for name, row := range map[string]struct {
		inputs func(time.Time) (map[string]any, error)
		want   string // the error; "" if New accepts the schedule
	}{
		"none":     {nil, `missing root input: "region"`},
		"misspelt": {give("regoin"), `"regoin"`},
		"right":    {give("region"), ""},
		"failing":  {func(time.Time) (map[string]any, error) { return nil, errors.New("no rates") }, ""},
		"panic":    {func(time.Time) (map[string]any, error) { panic("no rates") }, ""},
	} {
		g := (&kahn.Graph{Name: "report", Inputs: []kahn.Input{{Name: "region"}, {Name: "tick", Optional: true}}}).Add(kahn.Node{ID: "a"})
		x := kahn.Service{Store: new(store.Memory), Workflows: []kahn.Workflow{{Graph: g}}}
		_, err := schedule.New(new(kahn.Runner), x, with(func(s *schedule.Schedule) { s.Inputs = row.inputs }))
		if row.want == "" {
			require.NoError(t, err, name)
			continue
		}
		require.ErrorIs(t, err, schedule.ErrBadSchedule, name)
		require.ErrorContains(t, err, row.want, name)
		var inputs *kahn.InputError
		require.ErrorAs(t, err, &inputs, name)
	}
}

func TestMissed(t *testing.T) {
	t.Parallel()
	// No process serves the schedule from 01:30 to 05:30.
	for _, row := range []struct {
		name  string
		s     schedule.Schedule
		takes time.Duration
		ran   []string
		left  []string
	}{
		{"latest", hourly, 0, []string{"05:00 at 05:30", "06:00 at 06:00"}, []string{"02:00 cancelled missed", "03:00 cancelled missed", "04:00 cancelled missed", "05:00 completed", "06:00 completed"}},
		{"none", with(func(s *schedule.Schedule) { s.Missed = schedule.None }), 0, []string{"06:00 at 06:00"},
			[]string{"02:00 cancelled missed", "03:00 cancelled missed", "04:00 cancelled missed", "05:00 cancelled missed", "06:00 completed"}},
		{"all, one after the other", with(func(s *schedule.Schedule) { s.Missed = schedule.All }), 5 * time.Minute,
			[]string{"02:00 at 05:30", "03:00 at 05:35", "04:00 at 05:40", "05:00 at 05:45", "06:00 at 06:00"},
			[]string{"02:00 completed", "03:00 completed", "04:00 completed", "05:00 completed", "06:00 completed"}},
		{"all, at once", with(func(s *schedule.Schedule) { s.Missed, s.Overlap = schedule.All, schedule.Allow }), 5 * time.Minute,
			[]string{"02:00 at 05:30", "03:00 at 05:30", "04:00 at 05:30", "05:00 at 05:30", "06:00 at 06:00"},
			[]string{"02:00 completed", "03:00 completed", "04:00 completed", "05:00 completed", "06:00 completed"}},
		{"all, with a deadline", with(func(s *schedule.Schedule) { s.Missed, s.StartingDeadline = schedule.All, 2*time.Hour }), 0,
			[]string{"04:00 at 05:30", "05:00 at 05:30", "06:00 at 06:00"}, []string{"02:00 cancelled missed", "03:00 cancelled missed", "04:00 completed", "05:00 completed", "06:00 completed"}},
		{"latest, with a deadline", with(func(s *schedule.Schedule) { s.StartingDeadline = 29 * time.Minute }), 0,
			[]string{"06:00 at 06:00"}, []string{"02:00 cancelled missed", "03:00 cancelled missed", "04:00 cancelled missed", "05:00 cancelled missed", "06:00 completed"}},
	} {
		bubble(t, row.name, func(t *testing.T) {
			db, d := new(store.Memory), new(diary)
			_, end := start(t, db, reports(d, row.takes), row.s)
			time.Sleep(90 * time.Minute)
			require.Equal(t, []string{"2000-01-01T01:00:00Z at 01:00"}, d.take())
			end()
			time.Sleep(4 * time.Hour)
			_, end = start(t, db, reports(d, row.takes), row.s)
			time.Sleep(45 * time.Minute)
			ran := d.take()
			for i := range ran {
				ran[i] = ran[i][11:16] + ran[i][20:]
			}
			require.Equal(t, row.ran, ran)
			end()
			list := left(t, db)
			require.Equal(t, append(append([]string{"01:00 completed"}, row.left...), "07:00 pending"), list)
		})
	}
	bubble(t, "a thousand have runs", func(t *testing.T) {
		db, d := new(store.Memory), new(diary)
		minutely := with(func(s *schedule.Schedule) { s.Cron = "* * * * *" })
		_, end := start(t, db, reports(d, 0), minutely)
		end()
		time.Sleep(48*time.Hour + 30*time.Second)
		_, end = start(t, db, reports(d, 0), minutely)
		time.Sleep(20 * time.Second)
		require.Equal(t, []string{"2000-01-03T00:00:00Z at 00:00"}, d.take())
		end()
		counts, err := db.Count(t.Context(), store.Filter{})
		require.NoError(t, err)
		require.Equal(t, []store.Count{{Workflow: "report", Status: machine.RunPending, Runs: 1}, {Workflow: "report", Status: machine.RunCompleted, Runs: 1},
			{Workflow: "report", Status: machine.RunCancelled, Runs: 1000}}, counts)
		first, err := db.Load(t.Context(), "hourly@2000-01-01T00:01:00Z")
		require.NoError(t, err)
		require.Equal(t, "missed, and so were 1879 ticks after it, which have no runs", first.Labels[schedule.LabelLeftOut])
	})
}

func TestOverlaps(t *testing.T) {
	t.Parallel()
	for overlap, want := range map[schedule.Overlap][]string{
		schedule.Skip:  {"01:00 completed", "02:00 cancelled overlaps", "03:00 cancelled overlaps", "04:00 running", "05:00 cancelled overlaps", "06:00 pending"},
		schedule.Allow: {"01:00 completed", "02:00 completed", "03:00 running", "04:00 running", "05:00 running", "06:00 pending"},
	} {
		bubble(t, "overlap "+string(overlap), func(t *testing.T) {
			db, d := new(store.Memory), new(diary)
			_, end := start(t, db, reports(d, 150*time.Minute), with(func(s *schedule.Schedule) { s.Overlap = overlap }))
			time.Sleep(5*time.Hour + time.Minute)
			require.Equal(t, want, left(t, db))
			end()
		})
	}
}

func TestOperate(t *testing.T) {
	t.Parallel()
	bubble(t, "pause, resume, run now, backfill, list and remove", func(t *testing.T) {
		db, d := new(store.Memory), new(diary)
		s, end := start(t, db, reports(d, time.Minute), hourly)
		time.Sleep(90 * time.Minute)
		d.take()
		list, err := s.List(t.Context(), 2, 5)
		require.NoError(t, err)
		require.Len(t, list, 1)
		require.Equal(t, []time.Time{at(t, "2000-01-01T02:00:00Z"), at(t, "2000-01-01T03:00:00Z")}, list[0].Next)
		require.Len(t, list[0].Last, 1)
		require.Equal(t, machine.RunCompleted, list[0].Last[0].Status)
		require.NoError(t, s.Pause(t.Context(), "hourly"))
		require.NoError(t, s.Pause(t.Context(), "hourly"))
		time.Sleep(2 * time.Hour) // until 03:30
		id, err := s.RunNow(t.Context(), "hourly")
		require.NoError(t, err)
		require.Equal(t, "hourly@2000-01-01T03:30:00Z/now", id)
		again, err := s.RunNow(t.Context(), "hourly")
		require.NoError(t, err)
		require.NotEqual(t, id, again)
		time.Sleep(2 * time.Minute)
		require.Len(t, d.take(), 2)
		list, err = s.List(t.Context(), 2, 0)
		require.NoError(t, err)
		require.True(t, list[0].Paused)
		require.Empty(t, list[0].Next)
		require.NoError(t, s.Resume(t.Context(), "hourly"))
		time.Sleep(30 * time.Minute)
		require.Equal(t, []string{"2000-01-01T04:00:00Z at 04:00"}, d.take())
		created, err := s.Backfill(t.Context(), "hourly", at(t, "2000-01-01T01:00:00Z"), at(t, "2000-01-01T09:00:00Z"))
		require.NoError(t, err)
		require.Equal(t, []string{"hourly@2000-01-01T03:00:00Z"}, created, "1, 2 and 4 have runs")
		time.Sleep(2 * time.Minute)
		require.Equal(t, []string{"2000-01-01T03:00:00Z at 04:02"}, d.take())
		created, err = s.Backfill(t.Context(), "hourly", at(t, "2000-01-01T01:00:00Z"), at(t, "2000-01-01T09:00:00Z"))
		require.NoError(t, err)
		require.Empty(t, created)
		_, err = s.Backfill(t.Context(), "hourly", at(t, "1999-01-01T01:00:00Z"), at(t, "2000-01-01T09:00:00Z"))
		require.ErrorIs(t, err, schedule.ErrBadSchedule)
		require.NoError(t, s.Remove(t.Context(), "hourly"))
		time.Sleep(5 * time.Hour)
		require.Empty(t, d.take())
		for _, err := range []error{s.Pause(t.Context(), "hourly"), s.Resume(t.Context(), "hourly"), s.Remove(t.Context(), "hourly")} {
			require.ErrorIs(t, err, schedule.ErrUnknownSchedule)
		}
		end()
		require.Contains(t, left(t, db), "02:00 cancelled paused")
	})
	bubble(t, "a pause that ends before the tick changes nothing", func(t *testing.T) {
		db, d := new(store.Memory), new(diary)
		s, end := start(t, db, reports(d, 0), hourly)
		require.NoError(t, s.Pause(t.Context(), "hourly"))
		time.Sleep(30 * time.Minute)
		require.NoError(t, s.Resume(t.Context(), "hourly"))
		time.Sleep(31 * time.Minute)
		require.Equal(t, []string{"2000-01-01T01:00:00Z at 01:00"}, d.take())
		end()
	})
}

func TestChange(t *testing.T) {
	t.Parallel()
	bubble(t, "the pending tick is replaced", func(t *testing.T) {
		db, d := new(store.Memory), new(diary)
		_, end := start(t, db, reports(d, 0), hourly)
		end()
		_, end = start(t, db, reports(d, 0), with(func(s *schedule.Schedule) { s.Cron = "30 * * * *" }))
		time.Sleep(95 * time.Minute)
		require.Equal(t, []string{"2000-01-01T00:30:00Z at 00:30", "2000-01-01T01:30:00Z at 01:30"}, d.take())
		end()
		require.Equal(t, []string{"00:30 completed", "01:00 cancelled replaced", "01:30 completed", "02:30 pending"}, left(t, db))
	})
	bubble(t, "at the same tick, the run is another one", func(t *testing.T) {
		db, d := new(store.Memory), new(diary)
		_, end := start(t, db, reports(d, 0), hourly)
		end()
		_, end = start(t, db, reports(d, 0), with(func(s *schedule.Schedule) { s.Labels = map[string]string{"v": "2"} }))
		time.Sleep(61 * time.Minute)
		require.Len(t, d.take(), 1)
		end()
		page, err := db.List(t.Context(), store.Query{Filter: store.Filter{Labels: map[string]string{"v": "2"}}})
		require.NoError(t, err)
		require.Len(t, page.Runs, 2)
	})
	bubble(t, "a tick that was missed before the change runs", func(t *testing.T) {
		db, d := new(store.Memory), new(diary)
		_, end := start(t, db, reports(d, 0), hourly)
		end()
		time.Sleep(70 * time.Minute)
		_, end = start(t, db, reports(d, 0), with(func(s *schedule.Schedule) { s.Labels = map[string]string{"v": "2"} }))
		time.Sleep(time.Minute)
		require.Equal(t, []string{"2000-01-01T01:00:00Z at 01:10"}, d.take())
		end()
	})
	bubble(t, "the inputs of the pending tick are those of the process that began last", func(t *testing.T) {
		db, d := new(store.Memory), new(diary)
		say := func(text string) schedule.Schedule {
			return with(func(s *schedule.Schedule) {
				s.Inputs = func(time.Time) (map[string]any, error) { return map[string]any{"tick": text}, nil }
			})
		}
		_, end := start(t, db, reports(d, 0), say("one"))
		_, also := start(t, db, reports(d, 0), say("two"))
		end()
		time.Sleep(61 * time.Minute)
		require.Equal(t, []string{"two at 01:00"}, d.take())
		also()
	})
}

func TestBadSchedules(t *testing.T) {
	t.Parallel()
	for want, f := range map[string]func(s *schedule.Schedule){
		"the name must not be empty":       func(s *schedule.Schedule) { s.Name = "" },
		"or contain an @":                  func(s *schedule.Schedule) { s.Name = "a@b" },
		"exactly one of Cron and Every":    func(s *schedule.Schedule) { s.Every = time.Hour },
		"set exactly one of Cron":          func(s *schedule.Schedule) { s.Cron = "" },
		"set no Zone with Every":           func(s *schedule.Schedule) { s.Cron, s.Every, s.Zone = "", time.Hour, "Europe/Berlin" },
		`Missed "some"`:                    func(s *schedule.Schedule) { s.Missed = "some" },
		`Overlap "some"`:                   func(s *schedule.Schedule) { s.Overlap = "some" },
		"StartingDeadline -1s":             func(s *schedule.Schedule) { s.StartingDeadline = -time.Second },
		"Jitter -1s":                       func(s *schedule.Schedule) { s.Jitter = -time.Second },
		`minute "60"`:                      func(s *schedule.Schedule) { s.Cron = "60 * * * *" },
		`no workflow "none"`:               func(s *schedule.Schedule) { s.Workflow = "none" },
		`the label "schedule.tick"`:        func(s *schedule.Schedule) { s.Labels = map[string]string{"schedule.tick": "x"} },
		"has 201 bytes":                    func(s *schedule.Schedule) { s.Key = strings.Repeat("k", 201) },
		"priority 101":                     func(s *schedule.Schedule) { s.Priority = 101 },
		"is not a positive number":         func(s *schedule.Schedule) { s.Cron, s.Every = "", time.Millisecond },
		`zone "Berlin" is not in the IANA`: func(s *schedule.Schedule) { s.Zone = "Berlin" },
	} {
		x := reports(new(diary), 0)
		x.Store = new(store.Memory)
		_, err := schedule.New(new(kahn.Runner), x, with(f))
		require.ErrorIs(t, err, schedule.ErrBadSchedule, want)
		require.ErrorContains(t, err, want)
	}
	x := reports(new(diary), 0)
	x.Store = new(store.Memory)
	_, err := schedule.New(new(kahn.Runner), x, hourly, hourly)
	require.ErrorIs(t, err, schedule.ErrBadSchedule)
	_, err = schedule.New(nil, x, hourly)
	require.ErrorIs(t, err, kahn.ErrBadOption)
	x.Store = struct{ store.QueueStore }{new(store.Memory)}
	_, err = schedule.New(new(kahn.Runner), x, hourly)
	require.ErrorIs(t, err, kahn.ErrBadOption)
}
