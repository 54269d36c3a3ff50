// Package schedule begins runs at given times: by a cron expression in a time zone ([Cron]), or by an interval ([Every]).
//
//	var runner kahn.Runner
//	service := kahn.Service{Store: db, Workflows: []kahn.Workflow{{Graph: report, Step: mux.Step}}}
//	s, err := schedule.New(&runner, service, schedule.Schedule{
//		Name: "report", Cron: "30 2 * * *", Zone: "Europe/Berlin",
//	})
//	…
//	err = s.Serve(ctx) // instead of runner.Serve(ctx, service)
//
// Runs and schedules are in a store, and any number of processes serve them. A tick is a time at which a schedule begins a run. Each tick has one
// run, however many processes serve the schedule. The next run of a [Schedule] is stored as a pending run, which is due at the time of the tick.
// Its id is the schedule's name and that time, as in report@2026-10-25T00:30:00Z. When the run is about to begin, a [Scheduler] decides whether the
// tick was missed or overlaps with another run, and creates the next run.
//
// The names by task:
//
//   - Serving schedules: [New], [Scheduler], [Schedule] with [Missed] and [Overlap]. [LabelSchedule] and the other label constants label
//     their runs.
//   - Operating them: [Scheduler.RunNow], [Scheduler.Pause], [Scheduler.Resume], [Scheduler.Backfill], [Scheduler.List], [Status],
//     [Scheduler.Remove]; [ErrUnknownSchedule].
//   - Schedules in documents: [FromDocument], [Check], [ErrBadSchedule].
//   - Times without a store: [Times], from [Cron] or [Every], depend only on the definition.
package schedule
