package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/seed-c794f7ef/kahn/internal/foreign"
	"github.com/seed-c794f7ef/kahn/machine"
)

// ScheduleStore is a [QueueStore] that keeps schedules of recurring runs. Each schedule is one row. [Memory], store/sqlite and store/postgres
// implement it; other stores need not. The host gives a schedule its meaning, usually by the module schedule. A store does not interpret the
// definition.
//
// [Admin].Prune does not remove the run whose id is the Tick of a schedule.
type ScheduleStore interface {
	QueueStore
	// Schedules returns the schedules of the given names, or all schedules if no name is given, sorted by name. It also returns the time by the
	// clock of the store. It leaves out names that are not stored.
	Schedules(ctx context.Context, names ...string) ([]ScheduleState, time.Time, error)
	// PutSchedule stores a schedule and, unless create is nil, creates a run, in one transaction. The error matches ErrScheduleChanged if s.Revision
	// differs from the stored revision, which counts as 0 if the schedule is not stored. The call increments the stored revision. If the run cannot
	// be created, PutSchedule returns the same errors as Create. If create.IfExists is Reuse, PutSchedule accepts an existing run. After an error
	// nothing has changed, with one exception: if the store did not answer, it may have stored the schedule and created the run.
	PutSchedule(ctx context.Context, s Schedule, create *NewRun) error
	// RemoveSchedule removes the row of a schedule, but none of its runs. The error matches ErrScheduleChanged if the parameter "revision" differs
	// from the stored revision.
	RemoveSchedule(ctx context.Context, name string, revision uint64) error
}

// ErrScheduleChanged is returned if a schedule has changed since the caller read it. The call has then neither written nor removed the schedule.
var ErrScheduleChanged = errors.New("the schedule has changed")

// Schedule is the row of a schedule.
type Schedule struct {
	Name     string `json:"name"`
	Revision uint64 `json:"revision"` // the number of times the row was written
	// Definition says in JSON what is performed, and when. A store returns it as it was given.
	Definition json.RawMessage `json:"definition"`
	Paused     bool            `json:"paused,omitempty"`
	// Tick is the id of the run of the latest tick, "" if there was no tick. This run is usually pending. It may be missing in the store.
	Tick string `json:"tick,omitempty"`
	// Active is the id of the run that began last, "" if no run has begun.
	Active string `json:"active,omitempty"`
}

// ScheduleState is a schedule with the state of its runs.
type ScheduleState struct {
	Schedule
	Begun bool // the run Tick is not pending: it has begun, or is not stored
	Ended bool // the run Tick has ended, or is not stored
	Busy  bool // the run Active has not ended, and has begun or is leased
}

// Check returns an error that matches [machine.ErrBadValue] if the schedule makes no sense. Check is for implementations of [ScheduleStore].
func (s *Schedule) Check() error {
	for _, text := range []string{s.Name, s.Tick, s.Active} {
		if !utf8.ValidString(text) {
			return fmt.Errorf("%w: schedule %s: %s is not UTF-8", machine.ErrBadValue, foreign.Quote(s.Name), foreign.Quote(text))
		}
	}
	switch {
	case s.Name == "":
		return fmt.Errorf("%w: a schedule without a name", machine.ErrBadValue)
	case !json.Valid(s.Definition):
		return fmt.Errorf("%w: schedule %s: the definition is not JSON", machine.ErrBadValue, foreign.Quote(s.Name))
	}
	return nil
}

// Changed returns the error that refuses a schedule because its revision differs from the stored revision. The argument "stored" is 0 if the schedule
// is not stored. Changed is for implementations of [ScheduleStore].
func (s *Schedule) Changed(stored uint64) error {
	return fmt.Errorf("%w: %s: revision %d is stored, not %d", ErrScheduleChanged, foreign.Quote(s.Name), stored, s.Revision)
}
