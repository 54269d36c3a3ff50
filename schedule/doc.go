// Package schedule begins runs at times: by a cron expression in a time zone ([Cron]), or by an interval ([Every]). Runs and schedules are in a
// store, and any number of processes serve them: each tick has one run.
//
//	s, err := schedule.New(runner, service, schedule.Schedule{Name: "report", Cron: "30 2 * * *", Zone: "Europe/Berlin"})
//	err = s.Serve(ctx) // instead of runner.Serve(ctx, service)
//
// A [Schedule] is its next run: a pending run whose id is the name and the time of the tick, report@2026-10-25T00:30:00Z, which is due at that
// time. A [Scheduler] decides when it is about to begin, whether it is missed or overlaps, and creates the following one.
//
// The times follow from the definition alone, so [Times] are of use without a store.
package schedule
