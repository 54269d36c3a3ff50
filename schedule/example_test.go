package schedule_test

import (
	"fmt"
	"time"

	"github.com/seed-c794f7ef/kahn/schedule"
)

// In Berlin, half past two does not exist on 29 March 2026, and exists twice on 25 October.
func ExampleCron() {
	times, err := schedule.Cron("30 2 * * *", "Europe/Berlin")
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, day := range []time.Time{time.Date(2026, 3, 28, 12, 0, 0, 0, time.UTC), time.Date(2026, 10, 24, 12, 0, 0, 0, time.UTC)} {
		first := times.Next(day)
		fmt.Println(first.Format(time.RFC3339), times.Next(first).Format(time.RFC3339))
	}
	_, err = schedule.Cron("30 2 * * 8", "Europe/Berlin")
	fmt.Println(err)
	// Output:
	// 2026-03-29T03:00:00+02:00 2026-03-30T02:30:00+02:00
	// 2026-10-25T02:30:00+02:00 2026-10-26T02:30:00+01:00
	// bad schedule: cron "30 2 * * 8": day of week "8": end of range (8) above maximum (6): 8
}
