package schedule

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/definition"
	"github.com/seed-c794f7ef/kahn/store"
)

// FromDocument returns the schedule of a document. The workflow is the document's graph. A schedule without a name has the graph's name. The runs
// get the inputs that the schedule sets. If the schedule does not set the input "tick", the runs also get this input, unless the graph declares only
// other inputs. The error matches [ErrBadSchedule] if the schedule is invalid, or if the document has no schedule.
func FromDocument(doc *definition.Document) (Schedule, error) {
	d := doc.Schedule
	if d == nil {
		return Schedule{}, fmt.Errorf("%w %q: the document has none", ErrBadSchedule, doc.Graph.Name)
	}
	s := Schedule{
		Name: cmp.Or(d.Name, doc.Graph.Name), Workflow: doc.Graph.Name, Cron: d.Cron, Zone: d.Zone, Every: d.Every, Missed: Missed(d.Missed),
		StartingDeadline: d.StartingDeadline, Overlap: Overlap(d.Overlap), Jitter: d.Jitter, Labels: maps.Clone(d.Labels),
		Key: d.Key, Priority: d.Priority,
	}
	if len(d.Inputs) > 0 {
		given, ticks := maps.Clone(d.Inputs), declares(doc.Graph, definition.InputTick)
		s.Inputs = func(tick time.Time) (map[string]any, error) {
			all := map[string]any{}
			if ticks {
				all[definition.InputTick] = tick.UTC().Format(time.RFC3339)
			}
			maps.Copy(all, given)
			return all, nil
		}
	}
	_, _, err := s.define()
	return s, err
}

// Check returns the problems with the schedule of a document, joined into one error. It is meant for the field CheckSchedule of a
// [definition.Loader]. Each problem is a [*kahn.Problem] that matches [ErrBadSchedule]. The Field of a problem is Cron, Zone, Every, Key, Priority or
// Labels, or empty if the problem concerns another field.
func Check(d *definition.Schedule) error {
	s := Schedule{
		Name: cmp.Or(d.Name, "name"), Cron: d.Cron, Zone: d.Zone, Every: d.Every, Missed: Missed(d.Missed), StartingDeadline: d.StartingDeadline,
		Overlap: Overlap(d.Overlap), Jitter: d.Jitter,
	}
	var errs []error
	add := func(field string, err error) {
		if err != nil {
			errs = append(errs, &kahn.Problem{Field: field, Err: err})
		}
	}
	switch {
	case d.Every != 0:
		_, err := Every(d.Every)
		add("Every", err)
	case d.Cron != "":
		_, err := Cron("@daily", d.Zone)
		add("Zone", err)
		_, err = Cron(d.Cron, "")
		add("Cron", err)
	}
	if err := store.CheckKey(d.Key); err != nil {
		add("Key", fmt.Errorf("%w: %w", ErrBadSchedule, err))
	}
	if err := store.CheckPriority(d.Priority); err != nil {
		add("Priority", fmt.Errorf("%w: %w", ErrBadSchedule, err))
	}
	for name := range d.Labels {
		s.Labels = map[string]string{name: ""}
		if _, _, err := s.define(); err != nil && len(errs) == 0 {
			add("Labels", err)
		}
	}
	if _, _, err := s.define(); err != nil && len(errs) == 0 {
		add("", err)
	}
	return errors.Join(errs...)
}
