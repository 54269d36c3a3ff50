// Package schedule begins runs at the times of a cron expression in a time zone ([Cron]), or at the times of an interval ([Every]).
//
//	var runner kahn.Runner
//	service := kahn.Service{Store: db, Workflows: []kahn.Workflow{{Graph: report, Step: mux.Step}}}
//	s, err := schedule.New(&runner, service, schedule.Schedule{
//		Name: "report", Cron: "30 2 * * *", Zone: "Europe/Berlin",
//	})
//	…
//	err = s.Serve(ctx) // instead of runner.Serve(ctx, service)
//
// A store contains the runs and the schedules, and any number of processes can serve them. A tick is a time at which a schedule begins a run. A tick
// has one run, however many processes serve the schedule. The store keeps the run of the next tick as a pending run, which is due at the time of the
// tick. The run's id consists of the schedule's name and this time, as in report@2026-10-25T00:30:00Z. When the run is about to begin, a [Scheduler]
// decides whether the tick was missed or overlaps with another run. The Scheduler also creates the run of the next tick.
//
// The names by task:
//
//   - Serving schedules: [New], [Scheduler], [Schedule] with [Missed] and [Overlap]. The runs of a
//     schedule have [LabelSchedule] and the other labels.
//   - Operating them: [Scheduler.RunNow], [Scheduler.Pause], [Scheduler.Resume], [Scheduler.Backfill], [Scheduler.List], [Status],
//     [Scheduler.Remove]; [ErrUnknownSchedule].
//   - Schedules in documents: [FromDocument], [Check], [ErrBadSchedule].
//   - Computing ticks without a store: [Cron] and [Every] return [Times].
package schedule
