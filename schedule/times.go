package schedule

import (
	"errors"
	"fmt"
	"iter"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

// ErrBadSchedule is returned if an expression, a zone, an interval or a [Schedule] is invalid.
var ErrBadSchedule = errors.New("bad schedule")

// Times are the ticks of a cron expression or of an interval. They depend only on the interval, or on the expression and its zone: no tick
// depends on the previous tick.
type Times struct {
	every int64 // seconds between ticks; 0 for an expression
	zone  *time.Location
	// Each field has a bit for every number that it allows.
	minute, hour, day, month, weekday uint64
	wild                              bool // the minute or the hour begins with a star
	bothDays                          bool // day of month and day of week must both match; otherwise one of the two is enough
}

// Cron returns the times of a cron expression in a time zone of the IANA database, such as "Europe/Berlin"; "" is UTC. The expression has
// five fields (minute, hour, day of month, month, day of week) or is @hourly, @daily, @midnight, @weekly, @monthly, @yearly or @annually.
//
// When clocks change, Cron follows the rule of Vixie cron. If neither the minute nor the hour begins with a star, the expression ticks once for each
// local time that matches. If clocks go forward, a time in the gap moves to the end of the gap. If clocks go back, a local time that occurs twice
// ticks at its first occurrence. If the minute or the hour begins with a star, the expression ticks whenever the local time matches. So
// "*/10 * * * *" ticks every ten minutes, even when clocks change. If the day of month or the day of week begins with a star, both must match;
// otherwise it is enough if one of them matches.
//
// The error matches [ErrBadSchedule] and names the field.
func Cron(expression, zone string) (*Times, error) {
	bad := func(format string, args ...any) (*Times, error) {
		return nil, fmt.Errorf("%w: cron %q: %s", ErrBadSchedule, expression, fmt.Sprintf(format, args...))
	}
	location, err := time.LoadLocation(zone)
	if err != nil || zone == "Local" { // the meaning of Local depends on the machine
		return nil, fmt.Errorf("%w: zone %q is not in the IANA database", ErrBadSchedule, zone)
	}
	words := strings.Fields(expression)
	if len(words) == 1 && strings.HasPrefix(words[0], "@") {
		full, ok := named[words[0]]
		switch {
		case strings.HasPrefix(words[0], "@every"):
			return bad("@every is an interval: set Every")
		case !ok:
			return bad("unknown name; known are %s", strings.Join(names, ", "))
		}
		words = strings.Fields(full)
	}
	switch {
	case len(words) > 0 && strings.Contains(words[0], "TZ="):
		return bad("the expression cannot contain the zone: give the zone separately")
	case len(words) > 0 && words[0] == "@every":
		return bad("@every is an interval: set Every")
	case len(words) != len(fields):
		return bad("it has %d fields instead of five: minute, hour, day of month, month, day of week", len(words))
	}
	var bits [len(fields)]uint64
	for i := range fields {
		if bits[i], err = fields[i].parse(words[i]); err != nil {
			return bad("%s %q: %v", fields[i].name, words[i], err)
		}
	}
	t := &Times{
		zone: location, minute: bits[0], hour: bits[1], day: bits[2], month: bits[3], weekday: bits[4],
		wild: star(words[0]) || star(words[1]), bothDays: star(words[2]) || star(words[4]),
	}
	if _, ok := t.match(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Unix()); !ok {
		return bad("no date matches day of month %q, month %q and day of week %q", words[2], words[3], words[4])
	}
	return t, nil
}

// Every returns the times of an interval: the multiples of d since the beginning of 1970, UTC. The error matches [ErrBadSchedule] if d is
// not a positive number of whole seconds.
func Every(d time.Duration) (*Times, error) {
	if d <= 0 || d%time.Second != 0 {
		return nil, fmt.Errorf("%w: interval %v is not a positive number of seconds", ErrBadSchedule, d)
	}
	return &Times{every: int64(d / time.Second), zone: time.UTC}, nil
}

// The map `named` maps names such as @daily to the expressions for which they stand.
var (
	named = map[string]string{
		"@hourly": "0 * * * *", "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@weekly": "0 0 * * 0",
		"@monthly": "0 0 1 * *", "@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *",
	}
	names = []string{"@hourly", "@daily", "@midnight", "@weekly", "@monthly", "@yearly", "@annually"}
)

// field is one of the five fields of a cron expression.
type field struct {
	name   string
	most   int // the largest step
	option cron.ParseOption
}

var fields = [...]field{
	{"minute", 59, cron.Minute}, {"hour", 23, cron.Hour}, {"day of month", 31, cron.Dom}, {"month", 12, cron.Month}, {"day of week", 7, cron.Dow},
}

// The pattern `part` matches one element of the comma-separated list in a field. It is stricter than package cron, which accepts signs, for
// example, and ignores what follows a star.
var part = regexp.MustCompile(`^(?:\*|([0-9A-Za-z]+)(?:-([0-9A-Za-z]+))?)(?:/([0-9]{1,9}))?$`)

// The function `star` reports whether a field begins with a star. As in Vixie cron, a field such as */2 also begins with a star.
func star(field string) bool { return strings.HasPrefix(field, "*") }

// The function `weekday` rewrites a day of week so that package cron can read it as an hour, see parse: a name becomes its number, and a number loses
// its leading zeros.
func weekday(text string) string {
	if i := slices.Index([]string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}, strings.ToLower(text)); i >= 0 {
		return strconv.Itoa(i)
	}
	if n, err := strconv.Atoi(text); err == nil {
		return strconv.Itoa(n)
	}
	return text
}

// The method `parse` parses the text of a field, and returns a bit for each number that the field allows.
func (f *field) parse(text string) (bits uint64, err error) {
	for item := range strings.SplitSeq(text, ",") {
		m := part.FindStringSubmatch(item)
		if m == nil {
			return 0, fmt.Errorf("%q is not a *, number, range or step", item)
		}
		if step, _ := strconv.Atoi(m[3]); step > f.most {
			return 0, fmt.Errorf("the step %d is above %d", step, f.most)
		}
		option := f.option
		if first, last := weekday(m[1]), weekday(m[2]); option == cron.Dow && (first == "7" || last == "7") {
			option = cron.Hour // package cron accepts 7 as an hour, but not as a day of week
			if end, err := strconv.Atoi(last); last != "" && (err != nil || end > 7) {
				return 0, fmt.Errorf("the range %s does not end with a day from 0 to 7", item)
			}
			if last != "" {
				item = strings.Replace(item, m[1]+"-"+m[2], first+"-"+last, 1)
			}
		}
		parsed, err := cron.NewParser(option).Parse(item)
		if err != nil {
			return 0, err
		}
		s := parsed.(*cron.SpecSchedule)
		switch option {
		case cron.Minute:
			bits |= s.Minute
		case cron.Hour:
			bits |= s.Hour
		case cron.Dom:
			bits |= s.Dom
		case cron.Month:
			bits |= s.Month
		case cron.Dow:
			bits |= s.Dow
		}
	}
	if f.option == cron.Dow && bits&(1<<7) != 0 {
		bits |= 1 // both 0 and 7 mean Sunday
	}
	return bits, nil
}

// Next returns the first tick after a time, in the zone of the ticks, or the zero time if there is none in the next thirty years.
func (t *Times) Next(after time.Time) time.Time {
	switch {
	case t.every > 0:
		n := after.Unix() / t.every
		if after.Unix()%t.every < 0 {
			n--
		}
		return time.Unix((n+1)*t.every, 0).UTC()
	case t.wild:
		return t.nextByClock(after)
	}
	for c := shown(after.In(t.zone)); ; {
		next, ok := t.match(c + 1)
		if !ok {
			return time.Time{}
		}
		if u := t.reached(next); u.After(after) {
			return u
		}
		c = next // the clock already showed this time before it was set back
	}
}

// Between yields the ticks at or after the time "from" and before the time "before".
func (t *Times) Between(from, before time.Time) iter.Seq[time.Time] {
	return func(yield func(time.Time) bool) {
		for u := t.Next(from.Add(-1)); !u.IsZero() && u.Before(before) && yield(u); {
			u = t.Next(u)
		}
	}
}

// The function `shown` returns the local time of u as a number: the Unix time at which a clock in UTC shows the same local time.
func shown(u time.Time) int64 {
	_, offset := u.Zone()
	return u.Unix() + int64(offset)
}

// margin is a number of seconds that is larger than the offset of any zone.
const margin = 26 * 3600

// The method `reached` returns the first time at which a clock in the zone shows the local time c. The number c is a local time, see
// the function `shown`. If the clock skips c, the method returns the end of the gap.
func (t *Times) reached(c int64) time.Time {
	for u := time.Unix(c-margin, 0).In(t.zone); ; {
		_, end := u.ZoneBounds()
		_, offset := u.Zone()
		switch at := c - int64(offset); {
		case at < u.Unix():
			return u // c is in the gap before u
		case end.IsZero() || at < end.Unix():
			return time.Unix(at, 0).In(t.zone)
		}
		u = end
	}
}

// nextByClock does what Next does, for an expression whose minute or hour begins with a star: see the function Cron.
func (t *Times) nextByClock(after time.Time) time.Time {
	for u := time.Unix(after.Unix()+1, 0).In(t.zone); ; {
		_, end := u.ZoneBounds()
		_, offset := u.Zone()
		c, ok := t.match(shown(u))
		if !ok {
			return time.Time{}
		}
		if at := time.Unix(c-int64(offset), 0); end.IsZero() || at.Before(end) {
			return at.In(t.zone)
		}
		u = end
	}
}

// horizon is the number of days that Times.match looks ahead.
const horizon = 30 * 366

// The method `match` returns the first minute, at or after c, that the expression allows. Both `minute` and c are local times as numbers, see the
// function `shown`. The result ok is false if the expression allows no minute within the horizon.
func (t *Times) match(c int64) (minute int64, ok bool) {
	day := time.Unix(c, 0).UTC()
	first := day.Hour()*60 + day.Minute()
	if day.Second() > 0 {
		first++
	}
	day = time.Date(day.Year(), day.Month(), day.Day(), 0, 0, 0, 0, time.UTC)
	for last := day.AddDate(0, 0, horizon); day.Before(last); first = 0 {
		if t.month>>day.Month()&1 == 0 {
			day = time.Date(day.Year(), day.Month()+1, 1, 0, 0, 0, 0, time.UTC)
			continue
		}
		if t.matchDay(day) {
			for m := first; m < 24*60; m++ {
				if t.hour>>(m/60)&1 == 0 {
					m += 59 - m%60
					continue
				}
				if t.minute>>(m%60)&1 != 0 {
					return day.Unix() + int64(m)*60, true
				}
			}
		}
		day = day.AddDate(0, 0, 1)
	}
	return 0, false
}

func (t *Times) matchDay(day time.Time) bool {
	month, week := t.day>>day.Day()&1 != 0, t.weekday>>day.Weekday()&1 != 0
	if t.bothDays {
		return month && week
	}
	return month || week
}
