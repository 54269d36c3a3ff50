// Package chrometrace reads files in the JSON object form of the Trace Event Format, and checks them strictly. Perfetto and chrome://tracing open
// these files. The package is for tests of code that writes them.
package chrometrace

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"slices"
)

// File is a trace, with the fields that package trace writes. Read returns an error for any other field, even if the format allows this field.
type File struct {
	TraceEvents     []Event        `json:"traceEvents"`
	DisplayTimeUnit string         `json:"displayTimeUnit"` // ms or ns
	OtherData       map[string]any `json:"otherData"`
}

// Event is one event. Fields that do not belong to the event's phase are nil.
type Event struct {
	Name  *string         `json:"name"`
	Cat   *string         `json:"cat"`
	Phase string          `json:"ph"`
	TS    *json.Number    `json:"ts"`
	Dur   *json.Number    `json:"dur"`
	PID   *int            `json:"pid"`
	TID   *int            `json:"tid"`
	ID    *string         `json:"id"`
	Scope *string         `json:"s"`
	Bind  *string         `json:"bp"`
	Color *string         `json:"cname"`
	Args  *map[string]any `json:"args"`

	start, end *big.Rat // microseconds
}

// Read decodes a trace, checks each event by itself, and then checks how the events fit together: nesting, asynchronous events, flows and tracks.
func Read(r io.Reader) (*File, error) {
	dec := json.NewDecoder(r)
	dec.DisallowUnknownFields()
	file := &File{}
	if err := dec.Decode(file); err != nil {
		return nil, err
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, errors.New("something follows the trace")
	}
	if file.TraceEvents == nil {
		return nil, errors.New("no traceEvents")
	}
	if u := file.DisplayTimeUnit; u != "ms" && u != "ns" {
		return nil, fmt.Errorf("displayTimeUnit %q", u)
	}
	for i := range file.TraceEvents {
		if err := file.TraceEvents[i].check(); err != nil {
			return nil, fmt.Errorf("event %d: %w", i, err)
		}
	}
	return file, errors.Join(file.checkNesting(), file.checkAsync(), file.checkFlows(), file.checkTracks())
}

// A track is the row in which an event is shown.
type track struct{ pid, tid int }

func (e *Event) track() track { return track{*e.PID, *e.TID} }

// The method `check` checks an event by itself.
func (e *Event) check() error {
	if e.Name == nil || e.PID == nil || e.TID == nil {
		return errors.New("name, pid and tid are required")
	}
	if e.TS == nil {
		return errors.New("ts is required")
	}
	var ok bool
	if e.start, ok = new(big.Rat).SetString(string(*e.TS)); !ok || e.start.Sign() < 0 {
		return fmt.Errorf("ts %s", *e.TS)
	}
	e.end = e.start
	if e.Dur != nil {
		dur, ok := new(big.Rat).SetString(string(*e.Dur))
		if !ok || dur.Sign() < 0 {
			return fmt.Errorf("dur %s", *e.Dur)
		}
		e.end = new(big.Rat).Add(e.start, dur)
	}
	if e.Color != nil && !slices.Contains(colours, *e.Color) {
		return fmt.Errorf("cname %s", *e.Color)
	}
	needs, ok := phases[e.Phase]
	if !ok {
		return fmt.Errorf("phase %q", e.Phase)
	}
	for _, field := range []struct {
		name               string
		has, may, required bool
	}{
		{"dur", e.Dur != nil, needs.dur, needs.dur},
		{"id", e.ID != nil, needs.id, needs.id},
		{"cat", e.Cat != nil, e.Phase != "M", needs.id},
		{"s", e.Scope != nil, needs.scope, needs.scope},
		{"bp", e.Bind != nil, e.Phase == "f", false},
		{"args", e.Args != nil, true, e.Phase == "M"},
	} {
		if field.has && !field.may || !field.has && field.required {
			return fmt.Errorf("phase %s and field %s", e.Phase, field.name)
		}
	}
	if e.Scope != nil && !slices.Contains([]string{"g", "p", "t"}, *e.Scope) {
		return fmt.Errorf("scope %q", *e.Scope)
	}
	if e.Bind != nil && *e.Bind != "e" {
		return fmt.Errorf("binding point %q", *e.Bind)
	}
	return nil
}

// The map `phases` has each phase that kahn writes. For each of the fields dur, id and s, it says whether an event of the phase must have the
// field or must not have it.
var phases = map[string]struct{ dur, id, scope bool }{
	"X": {dur: true}, "i": {scope: true}, "M": {}, "b": {id: true}, "e": {id: true}, "s": {id: true}, "f": {id: true},
}

// The variable `colours` lists the reserved colour names that kahn uses.
var colours = []string{
	"thread_state_running", "thread_state_sleeping", "good", "bad", "terrible", "grey", "white", "yellow",
}

// checkNesting checks that two complete events (phase X) in a track do not overlap, except that one may lie within the other.
func (f *File) checkNesting() error {
	tracks := map[track][]*Event{}
	for i := range f.TraceEvents {
		if e := &f.TraceEvents[i]; e.Phase == "X" {
			tracks[e.track()] = append(tracks[e.track()], e)
		}
	}
	for track, events := range tracks {
		slices.SortStableFunc(events, func(a, b *Event) int {
			if c := a.start.Cmp(b.start); c != 0 {
				return c
			}
			return b.end.Cmp(a.end)
		})
		var open []*Event
		for _, e := range events {
			for len(open) > 0 && open[len(open)-1].end.Cmp(e.start) <= 0 {
				open = open[:len(open)-1]
			}
			if len(open) > 0 && e.end.Cmp(open[len(open)-1].end) > 0 {
				return fmt.Errorf("track %v: %q begins within %q and ends after it", track, *e.Name, *open[len(open)-1].Name)
			}
			open = append(open, e)
		}
	}
	return nil
}

// checkAsync checks that each asynchronous event has a beginning and an end with the same category, id, name and track.
func (f *File) checkAsync() error {
	type key struct{ cat, id string }
	open := map[key][]*Event{}
	for i := range f.TraceEvents {
		e := &f.TraceEvents[i]
		if e.Phase != "b" && e.Phase != "e" {
			continue
		}
		k := key{*e.Cat, *e.ID}
		if e.Phase == "b" {
			open[k] = append(open[k], e)
			continue
		}
		stack := open[k]
		if len(stack) == 0 {
			return fmt.Errorf("asynchronous %q %v ends without a beginning", *e.Name, k)
		}
		begin := stack[len(stack)-1]
		if open[k] = stack[:len(stack)-1]; *begin.Name != *e.Name || begin.start.Cmp(e.start) > 0 || begin.track() != e.track() {
			return fmt.Errorf("asynchronous %q %v ends another event, or before its beginning", *e.Name, k)
		}
	}
	for k, stack := range open {
		if len(stack) > 0 {
			return fmt.Errorf("asynchronous %q %v does not end", *stack[0].Name, k)
		}
	}
	return nil
}

// checkFlows checks that each flow (an arrow between two events) has a start and an end, and that both lie within complete events of their tracks.
func (f *File) checkFlows() error {
	type key struct{ cat, name, id string }
	starts := map[key]*Event{}
	bound := func(e *Event) bool {
		return slices.ContainsFunc(f.TraceEvents, func(x Event) bool {
			return x.Phase == "X" && x.track() == e.track() && x.start.Cmp(e.start) <= 0 && x.end.Cmp(e.start) >= 0
		})
	}
	ends := 0
	for i := range f.TraceEvents {
		e := &f.TraceEvents[i]
		if e.Phase != "s" && e.Phase != "f" {
			continue
		}
		if !bound(e) {
			return fmt.Errorf("flow %s is at no event", *e.ID)
		}
		k := key{*e.Cat, *e.Name, *e.ID}
		start := starts[k]
		switch {
		case e.Phase == "s" && start != nil:
			return fmt.Errorf("flow %v starts twice", k)
		case e.Phase == "s":
			starts[k] = e
		case start == nil || start.start.Cmp(e.start) > 0:
			return fmt.Errorf("flow %v ends before its start", k)
		default:
			ends++
		}
	}
	if ends != len(starts) {
		return fmt.Errorf("%d flows start and %d end", len(starts), ends)
	}
	return nil
}

// checkTracks checks that every track with events has a name, and that each metadata event has a known name and a value.
func (f *File) checkTracks() error {
	named := map[track]bool{}
	for i := range f.TraceEvents {
		e := &f.TraceEvents[i]
		if e.Phase != "M" {
			continue
		}
		field := map[string]string{"process_name": "name", "thread_name": "name", "thread_sort_index": "sort_index"}[*e.Name]
		switch value := (*e.Args)[field].(type) {
		case string:
			if field != "name" || value == "" {
				return fmt.Errorf("metadata %s: %q", *e.Name, value)
			}
			if *e.Name == "thread_name" {
				named[e.track()] = true
			}
		case float64:
			if field != "sort_index" {
				return fmt.Errorf("metadata %s: %v", *e.Name, value)
			}
		default:
			return fmt.Errorf("metadata %q with %v", *e.Name, *e.Args)
		}
	}
	for i := range f.TraceEvents {
		if e := &f.TraceEvents[i]; e.Phase != "M" && !named[e.track()] {
			return fmt.Errorf("%q is on track %v, which has no name", *e.Name, e.track())
		}
	}
	return nil
}
