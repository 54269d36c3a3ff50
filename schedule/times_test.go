package schedule_test

import (
	"archive/zip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // so that each machine has the same zones

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn/schedule"
)

func at(t *testing.T, text string) time.Time {
	t.Helper()
	u, err := time.Parse(time.RFC3339, text)
	require.NoError(t, err)
	return u
}

// ticks returns the ticks of a time span, in RFC 3339 and in their zone.
func ticks(t *testing.T, times *schedule.Times, from, before string) (list []string) {
	t.Helper()
	for u := range times.Between(at(t, from), at(t, before)) {
		list = append(list, u.Format(time.RFC3339))
	}
	return list
}

func cron(t *testing.T, expression, zone string) *schedule.Times {
	t.Helper()
	times, err := schedule.Cron(expression, zone)
	require.NoError(t, err)
	return times
}

// If the clock skips a time of an expression without a star, the tick moves to the end of the gap. If such a time occurs twice, only the first one is
// a tick. An expression with a star follows the clock.
func TestClocksAreChanged(t *testing.T) {
	t.Parallel()
	const spring, fall = "2026-03-29T00:00:00+01:00", "2026-10-25T00:00:00+02:00"
	const afterSpring, afterFall = "2026-03-29T05:00:00+02:00", "2026-10-25T05:00:00+01:00"
	for _, x := range []struct {
		expression   string
		spring, fall []string
	}{
		{"30 2 * * *", []string{"2026-03-29T03:00:00+02:00"}, []string{"2026-10-25T02:30:00+02:00"}},
		{"0,30 2 * * *", []string{"2026-03-29T03:00:00+02:00"}, []string{"2026-10-25T02:00:00+02:00", "2026-10-25T02:30:00+02:00"}},
		{"0 2,3 * * *", []string{"2026-03-29T03:00:00+02:00"}, []string{"2026-10-25T02:00:00+02:00", "2026-10-25T03:00:00+01:00"}},
		{"15 1-3 * * *", []string{"2026-03-29T01:15:00+01:00", "2026-03-29T03:00:00+02:00", "2026-03-29T03:15:00+02:00"},
			[]string{"2026-10-25T01:15:00+02:00", "2026-10-25T02:15:00+02:00", "2026-10-25T03:15:00+01:00"}},
		{"*/30 2 * * *", nil, []string{"2026-10-25T02:00:00+02:00", "2026-10-25T02:30:00+02:00", "2026-10-25T02:00:00+01:00", "2026-10-25T02:30:00+01:00"}},
		{"30 */2 * * *", []string{"2026-03-29T00:30:00+01:00", "2026-03-29T04:30:00+02:00"},
			[]string{"2026-10-25T00:30:00+02:00", "2026-10-25T02:30:00+02:00", "2026-10-25T02:30:00+01:00", "2026-10-25T04:30:00+01:00"}},
		{"@daily", []string{"2026-03-29T00:00:00+01:00"}, []string{"2026-10-25T00:00:00+02:00"}},
	} {
		times := cron(t, x.expression, "Europe/Berlin")
		require.Equal(t, x.spring, ticks(t, times, spring, afterSpring), x.expression)
		require.Equal(t, x.fall, ticks(t, times, fall, afterFall), x.expression)
	}
	// In Santiago the clock skips midnight, and in Apia it skipped a whole day.
	require.Equal(t, []string{"2026-09-06T01:00:00-03:00", "2026-09-07T00:00:00-03:00"},
		ticks(t, cron(t, "0 0 * * *", "America/Santiago"), "2026-09-06T00:00:00-04:00", "2026-09-07T12:00:00-03:00"))
	require.Equal(t, []string{"2011-12-29T12:00:00-10:00", "2011-12-31T00:00:00+14:00", "2011-12-31T12:00:00+14:00"},
		ticks(t, cron(t, "0 12 * * *", "Pacific/Apia"), "2011-12-29T00:00:00-10:00", "2012-01-01T00:00:00+14:00"))
}

func TestDays(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		expression string
		want       string // the days in June 2026, which begins on a Monday
	}{
		{"0 9 13 * *", "13"},
		{"0 9 * * fri", "05 12 19 26"},
		{"0 9 13 * 5", "05 12 13 19 26"}, // one of the two fields must match
		{"0 9 */13 * 5", ""},             // both fields must match, and neither 1, 14 nor 27 is a Friday
		{"0 9 */13 * 6", "27"},           // both fields must match
		{"0 9 1-7 6 */2", "02 04 06 07"}, // both fields must match; the days of the week are Sunday, Tuesday, Thursday and Saturday
		{"0 9 * JUN 0", "07 14 21 28"},   // Sundays
		{"0 9 * 6-8 7", "07 14 21 28"},   // Sundays
		{"0 9 * * 5-7/2", "05 07 12 14 19 21 26 28"},
		{"0 9 * * 7,1", "01 07 08 14 15 21 22 28 29"},
		{"@monthly", "01"},
		{"@weekly", "07 14 21 28"},
		{"@yearly", ""},
	} {
		var days []string
		for _, tick := range ticks(t, cron(t, x.expression, ""), "2026-06-01T00:00:00Z", "2026-07-01T00:00:00Z") {
			days = append(days, tick[8:10])
		}
		require.Equal(t, x.want, strings.Join(days, " "), x.expression)
	}
	require.Equal(t, []string{"2024-02-29T00:00:00Z", "2028-02-29T00:00:00Z"}, ticks(t, cron(t, "0 0 29 2 *", ""), "2021-01-01T00:00:00Z", "2030-01-01T00:00:00Z"))
	require.Equal(t, []string{"2096-02-29T00:00:00Z", "2104-02-29T00:00:00Z"}, ticks(t, cron(t, "0 0 29 2 *", ""), "2095-01-01T00:00:00Z", "2105-01-01T00:00:00Z"))
}

func TestIntervals(t *testing.T) {
	t.Parallel()
	times, err := schedule.Every(7 * time.Minute)
	require.NoError(t, err)
	require.Equal(t, []string{"1970-01-01T00:00:00Z", "1970-01-01T00:07:00Z"}, ticks(t, times, "1970-01-01T00:00:00Z", "1970-01-01T00:14:00Z"))
	require.Equal(t, []string{"1969-12-31T23:53:00Z", "1970-01-01T00:00:00Z"}, ticks(t, times, "1969-12-31T23:52:59Z", "1970-01-01T00:07:00Z"))
	require.Equal(t, at(t, "1970-01-01T00:07:00Z"), times.Next(at(t, "1970-01-01T00:00:00Z").Add(time.Nanosecond)))
	for _, d := range []time.Duration{0, -time.Minute, time.Millisecond, 1500 * time.Millisecond} {
		_, err := schedule.Every(d)
		require.ErrorIs(t, err, schedule.ErrBadSchedule)
		require.ErrorContains(t, err, d.String())
	}
}

// The error for a bad expression names the field, or says what else is wrong.
func TestBadExpressions(t *testing.T) {
	t.Parallel()
	for _, x := range []struct{ expression, want string }{
		{"", "0 fields instead of five"},
		{"* * * *", "4 fields"},
		{"0 30 2 * * *", "6 fields"},
		{"60 * * * *", `minute "60": end of range (60) above maximum (59)`},
		{"* 24 * * *", `hour "24"`},
		{"* * 0 * *", `day of month "0": beginning of range (0) below minimum (1)`},
		{"* * 32 * *", `day of month "32"`},
		{"* * * 13 *", `month "13"`},
		{"* * * Juni *", `month "Juni"`},
		{"* * * * 8", `day of week "8"`},
		{"* * * * fri-mon", `day of week "fri-mon": beginning of range (5) beyond end of range (1)`},
		{"* * * * 7-5", `day of week "7-5"`},
		{"5-1 * * * *", `minute "5-1"`},
		{"*/0 * * * *", `minute "*/0": step of range should be a positive number`},
		{"*/60 * * * *", `minute "*/60": the step 60 is above 59`},
		{"1,,2 * * * *", `minute "1,,2": "" is not a *, number, range or step`},
		{", * * * *", `minute ","`},
		{"+1 * * * *", `minute "+1"`},
		{"*-5 * * * *", `minute "*-5"`},
		{"1/2/3 * * * *", `minute "1/2/3"`},
		{"99999999999999999999 * * * *", `minute`},
		{"0 0 30 2 *", `no date matches day of month "30", month "2" and day of week "*"`},
		{"@Daily", "unknown name"},
		{"@reboot", "unknown name"},
		{"@every 5m", "set Every"},
		{"TZ=Europe/Berlin 0 0 * * *", "the expression cannot contain the zone"},
	} {
		_, err := schedule.Cron(x.expression, "")
		require.ErrorIs(t, err, schedule.ErrBadSchedule, x.expression)
		require.ErrorContains(t, err, x.want)
	}
	for _, zone := range []string{"Local", "Berlin", "../etc/passwd"} {
		_, err := schedule.Cron("@daily", zone)
		require.ErrorIs(t, err, schedule.ErrBadSchedule)
		require.ErrorContains(t, err, zone)
	}
}

// TestDaysOfWeek: both 0 and 7 mean Sunday, at either end of a range, beside numbers and names.
func TestDaysOfWeek(t *testing.T) {
	t.Parallel()
	const all = "Sun Mon Tue Wed Thu Fri Sat"
	for field, want := range map[string]string{
		"*": all, "0": "Sun", "7": "Sun", "07": "Sun", "0,7": "Sun", "sun": "Sun", "sat": "Sat",
		"0-7": all, "1-7": all, "mon-7": all, "MON-7": all, "Sun-7": all, "sun-7": all, "0-07": all, "1-5,7": "Sun Mon Tue Wed Thu Fri",
		"5-7": "Sun Fri Sat", "fri-7": "Sun Fri Sat", "6-7": "Sun Sat", "sat-7": "Sun Sat", "7-7": "Sun", "7-07": "Sun", "6-7,wed": "Sun Wed Sat",
		"0-6": all, "sun-sat": all, "1-5": "Mon Tue Wed Thu Fri", "mon-5": "Mon Tue Wed Thu Fri",
		"1-7/2": "Sun Mon Wed Fri", "mon-7/2": "Sun Mon Wed Fri", "0-7/7": "Sun", "0-7/2": "Sun Tue Thu Sat", "5-7/2": "Sun Fri", "6-7/2": "Sat", "7-7/3": "Sun",
		"7/2": "Sun", "5/2": "Fri", "*/2": "Sun Tue Thu Sat", "*/7": "Sun", "1,3-4,7": "Sun Mon Wed Thu",
		// errors
		"8": "", "7-8": "", "7-9": "", "7-20": "", "7-23": "", "7-24": "", "7-0": "", "7-1": "", "7-6": "", "7-sun": "", "7-mon": "", "7-sat": "", "8-7": "", "20-7": "",
		"1-8": "", "mon-8": "", "fri-sun": "", "7-x": "", "x-7": "", "1-7/0": "", "1-7/8": "", "1,7-9": "", "jan-7": "", "7-99999999999999999999": "", "17": "", "1-17": "", "7/0": "", "7/8": "",
	} {
		times, err := schedule.Cron("0 0 * * "+field, "")
		if want == "" {
			require.ErrorIs(t, err, schedule.ErrBadSchedule, field)
			require.ErrorContains(t, err, `day of week "`+field+`": `)
			require.NotContains(t, err.Error(), "(23)", field) // the range has the bounds of days, not of hours
			continue
		}
		require.NoError(t, err, field)
		var days []string
		for u := range times.Between(at(t, "2026-11-29T00:00:00Z"), at(t, "2026-12-06T00:00:00Z")) { // from Sunday
			days = append(days, u.Format("Mon"))
		}
		require.Equal(t, want, strings.Join(days, " "), field)
	}
}

// minutes lists expressions; match reports whether the minute that a clock shows matches the expression.
var minutes = []struct {
	expression string
	wild       bool
	match      func(clock time.Time) bool
}{
	{"30 2 * * *", false, func(c time.Time) bool { return c.Hour() == 2 && c.Minute() == 30 }},
	{"*/20 * * * *", true, func(c time.Time) bool { return c.Minute() == 0 || c.Minute() == 20 || c.Minute() == 40 }},
	{"15,45 0-3,23 * * 0", false, func(c time.Time) bool {
		return (c.Minute() == 15 || c.Minute() == 45) && (c.Hour() <= 3 || c.Hour() == 23) && c.Weekday() == time.Sunday
	}},
	{"0 */2 1-7 * 1", true, func(c time.Time) bool {
		return c.Minute() == 0 && c.Hour()&1 == 0 && (c.Day() <= 7 || c.Weekday() == time.Monday)
	}},
	{"0 0 29,30 2,3,10 *", false, func(c time.Time) bool {
		return c.Minute() == 0 && c.Hour() == 0 && (c.Day() == 29 || c.Day() == 30) && (c.Month() == 2 || c.Month() == 3 || c.Month() == 10)
	}},
}

// walk is Vixie's algorithm: it wakes each minute, and compares expressions without a star with all minutes that have passed on the clock since
// it last woke. If the clock was set back, no expression without a star matches until the clock shows again the time at which it was set back. An
// expression with a star is compared only with the minute that the clock shows.
func walk(zone *time.Location, from, before time.Time) (found [][]int64) {
	found = make([][]int64, len(minutes))
	_, offset := from.In(zone).Zone()
	passed := from.Unix()/60 + int64(offset/60) - 1
	for u := from; u.Before(before); u = u.Add(time.Minute) {
		_, offset := u.In(zone).Zone()
		now := u.Unix()/60 + int64(offset/60)
		clock := time.Unix(now*60, 0).UTC()
		for i, x := range minutes {
			if x.wild && x.match(clock) {
				found[i] = append(found[i], u.Unix())
			}
		}
		for ; passed < now; passed++ {
			clock := clock
			if passed+1 < now {
				clock = time.Unix((passed+1)*60, 0).UTC()
			}
			for i, x := range minutes {
				if n := len(found[i]); !x.wild && x.match(clock) && (n == 0 || found[i][n-1] != u.Unix()) {
					found[i] = append(found[i], u.Unix())
				}
			}
		}
	}
	return found
}

// zones returns the names of all time zones.
func zones(t *testing.T) (list []string) {
	t.Helper()
	root, err := exec.Command("go", "env", "GOROOT").Output()
	require.NoError(t, err)
	r, err := zip.OpenReader(filepath.Join(strings.TrimSpace(string(root)), "lib", "time", "zoneinfo.zip"))
	require.NoError(t, err)
	defer func() { require.NoError(t, r.Close()) }()
	for _, f := range r.File {
		if !strings.HasSuffix(f.Name, "/") {
			list = append(list, f.Name)
		}
	}
	require.Greater(t, len(list), 400)
	return list
}

// TestVixie compares Cron with walk over ten years, in all zones, for five expressions. Without KAHN_LONG it tests only a sample of the zones.
func TestVixie(t *testing.T) {
	t.Parallel()
	all := zones(t)
	if os.Getenv("KAHN_LONG") == "" { // a sample of zones with unusual changes of the clock
		all = []string{"Europe/Berlin", "Australia/Lord_Howe", "Antarctica/Troll", "Antarctica/Casey", "America/Santiago", "Africa/Casablanca", "Europe/Dublin", "Asia/Pyongyang", "Asia/Gaza", "UTC"}
	}
	from, before := at(t, "2017-01-01T00:00:00Z"), at(t, "2027-01-01T00:00:00Z")
	for _, name := range all {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			zone, err := time.LoadLocation(name)
			require.NoError(t, err)
			for i, want := range walk(zone, from, before) {
				times := cron(t, minutes[i].expression, name)
				var got []int64
				for u := range times.Between(from, before) {
					got = append(got, u.Unix())
				}
				if !slices.Equal(got, want) {
					at := 0
					for at < len(got) && at < len(want) && got[at] == want[at] {
						at++
					}
					t.Errorf("%s: %d ticks and not %d; from tick %d on %v and not %v", minutes[i].expression, len(got), len(want), at, unix(zone, got[at:]), unix(zone, want[at:]))
				}
			}
		})
	}
}

func unix(zone *time.Location, seconds []int64) (list []string) {
	for _, s := range seconds[:min(3, len(seconds))] {
		list = append(list, time.Unix(s, 0).In(zone).Format(time.RFC3339))
	}
	return list
}

// TestNextFromAnyMoment: for any time, Next returns the first tick after this time.
func TestNextFromAnyMoment(t *testing.T) {
	t.Parallel()
	for _, zone := range []string{"Europe/Berlin", "Australia/Lord_Howe", "America/Santiago", "Antarctica/Troll"} {
		for _, expression := range []string{"30 2 * * *", "0,30 0-2 * * *", "*/20 2 * * *", "15 */2 * * *"} {
			times := cron(t, expression, zone)
			from, before := at(t, "2026-01-01T00:00:00Z"), at(t, "2027-01-01T00:00:00Z")
			list := slices.Collect(times.Between(from, before.AddDate(0, 0, 3)))
			next := 0
			for u := from; u.Before(before); u = u.Add(7*time.Minute + 13*time.Second) {
				for !list[next].After(u) {
					next++
				}
				require.True(t, list[next].Equal(times.Next(u)), "%s in %s after %v: %v and not %v", expression, zone, u, times.Next(u), list[next])
			}
		}
	}
}
