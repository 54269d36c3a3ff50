package definition

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/internal/nearest"
)

// Schedule says when runs of a document's graph begin. Package schedule explains the fields, parses the cron expressions and starts the
// runs.
type Schedule struct {
	// Name identifies the schedule in its store. Default: the name of the graph.
	Name string
	// Cron is a cron expression, and Zone is its time zone. Every is an interval. A schedule has either a Cron or
	// an Every.
	Cron, Zone string
	Every      time.Duration
	// Missed says which missed ticks get a run later: none of them ("none"), all of them ("all") or, if Missed is empty, the latest one. A tick
	// is a time at which a run is due.
	Missed string
	// Overlap is "allow" if the run of a tick may begin before the run of an earlier tick has ended. If Overlap is empty, a tick is skipped while
	// an earlier run has not ended.
	Overlap string
	// StartingDeadline is how late the run of a tick may begin. Jitter bounds the random delay of a tick.
	StartingDeadline, Jitter time.Duration
	// Key and Priority are the key and the priority of the runs, see [kahn.RunKey] and [kahn.RunPriority].
	Key      string
	Priority int
	// Labels are the labels of the runs.
	Labels map[string]string
	// Inputs are root inputs of the runs, in addition to the time of the tick.
	Inputs map[string]any
}

// InputTick is the name of a root input. In the runs of a schedule, this input has the time of the tick, as a text in RFC 3339.
const InputTick = "tick"

var scheduleRecord = record[Schedule]{alone: "cron", fields: []field[Schedule]{
	checked("name", func(s *Schedule) *string { return &s.Name }, checkScheduleName),
	name("cron", func(s *Schedule) *string { return &s.Cron }),
	name("zone", func(s *Schedule) *string { return &s.Zone }),
	duration("every", func(s *Schedule) *time.Duration { return &s.Every }),
	choice("missed", []string{"latest", "none", "all"}, func(s *Schedule) *string { return &s.Missed }),
	duration("starting_deadline", func(s *Schedule) *time.Duration { return &s.StartingDeadline }),
	choice("overlap", []string{"skip", "allow"}, func(s *Schedule) *string { return &s.Overlap }),
	duration("jitter", func(s *Schedule) *time.Duration { return &s.Jitter }),
	name("key", func(s *Schedule) *string { return &s.Key }),
	integer("priority", func(s *Schedule) *int { return &s.Priority }),
	labels("labels", func(s *Schedule) *map[string]string { return &s.Labels }),
	dataMap("inputs", func(s *Schedule) *map[string]any { return &s.Inputs }),
}}

func checkScheduleName(s string, limits Limits) (kind ErrorKind, problem string) {
	if kind, problem = checkName(s, limits); problem == "" && strings.Contains(s, "@") {
		return ErrValue, "must not contain '@', which stands between the name and the time in the ids of runs"
	}
	return kind, problem
}

// scheduleField returns the field of a document that holds the schedule.
func scheduleField(key string) field[graph] {
	f := optional(key, &scheduleRecord, func(g *graph) **Schedule { return &g.schedule })
	read := f.read
	f.read = func(d *decoder, v *Value, to *graph) {
		before := len(d.err.Problems)
		if read(d, v, to); len(d.err.Problems) > before {
			return
		}
		switch s := to.schedule; {
		case s.Cron == "" && s.Every == 0:
			d.add(v.At, ErrMissing, `the schedule has neither a "cron" such as "30 2 * * *" nor an "every" such as "15m"`)
		case s.Cron != "" && s.Every != 0:
			d.inMember(v, "every", `the schedule has "cron", too; leave one of them out`)
		case s.Every != 0 && s.Zone != "":
			d.inMember(v, "zone", `an interval has no zone; leave it out, or write a "cron"`)
		}
	}
	return f
}

// inMember reports a defect of a member that was read.
func (d *decoder) inMember(v *Value, key, message string) {
	d.push(key, -1)
	d.add(members(v, key)[0].KeyAt, ErrValue, "%s", message)
	d.pop()
}

// The function `choice` returns a field that holds one of several words. The first word is the default, and is read as "".
func choice[T any](key string, words []string, at func(*T) *string) field[T] {
	return field[T]{
		name: key,
		read: func(d *decoder, v *Value, to *T) {
			if !d.expect(v, Text) {
				return
			}
			switch {
			case v.Text == words[0]:
				*at(to) = ""
			case slices.Contains(words, v.Text):
				*at(to) = v.Text
			default:
				if p := d.add(v.At, ErrValue, "%s is none of %s", quote(v.Text), strings.Join(words, ", ")); p != nil {
					p.suggest(meantValue(v.Text, words))
				}
			}
		},
		show: func(e *encoder, from *T) (Value, bool) {
			if s := *at(from); s != "" && !slices.Contains(words[1:], s) {
				e.add(Position{}, ErrValue, "%s is none of %s", quote(s), strings.Join(words[1:], ", "))
			}
			return Value{Type: Text, Text: *at(from)}, *at(from) != ""
		},
	}
}

// The function `labels` returns a field that holds an object of texts.
func labels[T any](key string, at func(*T) *map[string]string) field[T] {
	return field[T]{
		name: key,
		read: func(d *decoder, v *Value, to *T) {
			if !d.expect(v, Object) {
				return
			}
			all := map[string]string{}
			for i := range v.Items {
				item := &v.Items[i]
				if !d.enter(item, item.Key, -1) {
					continue
				}
				if _, twice := all[item.Key]; twice {
					d.add(item.KeyAt, ErrDuplicate, "the key occurs twice")
				}
				if d.expect(item, Text) {
					all[item.Key] = item.Text
				}
				d.pop()
			}
			if len(all) > 0 {
				*at(to) = all
			}
		},
		show: func(e *encoder, from *T) (Value, bool) {
			all := make(map[string]any, len(*at(from)))
			for name, value := range *at(from) {
				all[name] = value
			}
			return e.data(all), len(all) > 0
		},
	}
}

// checkSchedule returns the defects of a document's schedule: the defects that the host's CheckSchedule returns, missing inputs, and inputs that
// the graph does not declare. If the schedule takes its name from the graph, a name that a schedule cannot have is a defect, too. checkSchedule
// checks inputs only if the graph declares inputs and all of them could be read (allInputs is true).
func (l Loader) checkSchedule(s *Schedule, g *kahn.Graph, allInputs bool) (found []error) {
	if s == nil {
		return nil
	}
	if l.CheckSchedule != nil {
		if err := l.CheckSchedule(s); err != nil {
			found = append(found, inSchedule(err)...)
		}
	}
	if s.Name == "" && g.Name != "" {
		if _, problem := checkScheduleName(g.Name, l.Limits.Resolved()); problem != "" {
			found = append(found, &kahn.Problem{Field: "Schedule", Err: fmt.Errorf("the name of the graph, %s, %s; give the schedule a name", quote(g.Name), problem)})
		}
	}
	if !allInputs || len(g.Inputs) == 0 {
		return found
	}
	declared := make([]string, len(g.Inputs))
	for i, in := range g.Inputs {
		declared[i] = in.Name
		if _, given := s.Inputs[in.Name]; !given && !in.Optional && in.Default == nil && in.Name != InputTick {
			found = append(found, &kahn.Problem{Field: "Schedule.Inputs", Err: fmt.Errorf("the graph requires the input %s, and the schedule does not give it", quote(in.Name))})
		}
	}
	for _, given := range slices.Sorted(maps.Keys(s.Inputs)) {
		if slices.Contains(declared, given) {
			continue
		}
		p := &kahn.Problem{Field: "Schedule.Inputs." + given}
		text := fmt.Sprintf("the graph has no input %s", quote(given))
		if p.Suggestion, _ = nearest.Name(given, declared); p.Suggestion != "" {
			text += "; did you mean " + quote(p.Suggestion) + "?"
		}
		p.Err = errors.New(text)
		found = append(found, p)
	}
	return found
}

// inSchedule splits the host's error about a schedule into single errors. Each of them names the field that it is about.
func inSchedule(err error) (list []error) {
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		for _, one := range many.Unwrap() {
			list = append(list, inSchedule(one)...)
		}
		return list
	}
	p := &kahn.Problem{Field: "Schedule", Err: err}
	var of *kahn.Problem
	if errors.As(err, &of) {
		p.Err, p.Suggestion = of.Err, of.Suggestion
		if of.Field != "" {
			p.Field += "." + of.Field
		}
	}
	return []error{p}
}
