package store

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/seed-c794f7ef/kahn/internal/foreign"
	"github.com/seed-c794f7ef/kahn/machine"
)

// ExportVersion is the version of the format that [Export] writes. [Import] reads only this version.
const ExportVersion = 1

// The type `exported` is the form of a run in a file.
type exported struct {
	Version int  `json:"kahn_run"`
	Run     *Run `json:"run"`
}

// Export writes a stored run as a JSON object: {"kahn_run": 1, "run": …}, where "run" is a [Run]. The values are as the store has them. Export does
// not decrypt values and does not copy blobs, so a reader of the file needs the same codec and blob store. The file also contains the stored events
// of the run. The file is a consistent copy of the run, even if the run continues while Export writes.
func Export(ctx context.Context, s Store, run string, w io.Writer) error {
	stored, err := s.Load(ctx, run)
	if err != nil {
		return err
	}
	if err := loadLog(ctx, s, stored); err != nil {
		return fmt.Errorf("export run %s: %w", foreign.Quote(run), err)
	}
	for _, id := range append(slices.Sorted(maps.Keys(stored.Nodes)), stored.ID) {
		if !utf8.ValidString(id) {
			return fmt.Errorf("export run %s: %w: %s is not UTF-8, and JSON cannot hold it", foreign.Quote(run), machine.ErrBadValue, foreign.Quote(id))
		}
	}
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	if err := e.Encode(exported{ExportVersion, stored}); err != nil {
		return fmt.Errorf("export run %s: %w", foreign.Quote(run), err)
	}
	return nil
}

// loadLog adds the stored events, up to LastEvent, to a loaded run.
func loadLog(ctx context.Context, s Store, r *Run) error {
	if r.LastEvent == 0 {
		return nil
	}
	events, ok := s.(EventStore)
	if !ok {
		return fmt.Errorf("its events are stored, and %T does not implement store.EventStore", s)
	}
	for after := uint64(0); after < r.LastEvent; {
		page, err := events.LoadEvents(ctx, r.ID, after, MaxPage)
		if err != nil {
			return err
		}
		if len(page.Events) == 0 || !follow(page.Events, after) {
			return fmt.Errorf("%w: the run has events up to %d, but the events after %d are missing", machine.ErrBadValue, r.LastEvent, after)
		}
		for _, e := range page.Events {
			if after = e.ID; e.ID <= r.LastEvent {
				r.Events = append(r.Events, e)
			}
		}
	}
	return nil
}

// Import stores a run that [Export] has written, and returns the id of the run. kahn.Execute continues the run, and kahn.ReadResult reads its
// result. The error matches [ErrExists] if a run of this id is stored already. It matches [machine.ErrBadValue] if Export did not write the text, or
// if the text has another version of the format.
func Import(ctx context.Context, s Admin, r io.Reader) (run string, err error) {
	data, err := io.ReadAll(r)
	if err != nil {
		return "", fmt.Errorf("import: %w", err)
	}
	var form struct {
		Version int             `json:"kahn_run"`
		Run     json.RawMessage `json:"run"`
	}
	if err := decode(data, &form); err != nil {
		return "", fmt.Errorf("import: %w: %w", machine.ErrBadValue, err)
	}
	if form.Version != ExportVersion {
		return "", fmt.Errorf("import: %w: kahn_run %d: this version reads %d", machine.ErrBadValue, form.Version, ExportVersion)
	}
	var stored Run
	if err := decode(form.Run, &stored); err != nil {
		return "", fmt.Errorf("import: %w: run: %w", machine.ErrBadValue, err)
	}
	if _, ok := s.(EventStore); !ok && len(stored.Events) > 0 {
		return "", fmt.Errorf("import: the run has events, and %T does not implement store.EventStore", s)
	}
	if err := s.Insert(ctx, &stored); err != nil {
		return "", fmt.Errorf("import: %w", err)
	}
	return stored.ID, nil
}

// The function `decode` decodes one JSON value. It returns an error if the value has an unknown member, or if anything follows the value.
func decode(data []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("there is more after the run")
	}
	return nil
}

// Check returns an error that matches [machine.ErrBadValue] if the run cannot be inserted.
func (r *Run) Check() error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: run %s: %s", machine.ErrBadValue, foreign.Quote(r.ID), fmt.Sprintf(format, args...))
	}
	begun := r.Sequence > 0
	switch {
	case r.ID == "":
		return fmt.Errorf("%w: a run without an id", machine.ErrBadValue)
	case r.Status > machine.RunCancelled:
		return bad("status %d does not exist", r.Status)
	case begun != (len(r.Record) > 0):
		return bad("sequence %d, and a record of %d bytes", r.Sequence, len(r.Record))
	case !begun && (r.Status != machine.RunPending || len(r.Nodes) > 0):
		return bad("it has not begun, and is %v with %d nodes", r.Status, len(r.Nodes))
	case r.Compensation > machine.CompensationFailed || !begun && r.Compensation != machine.CompensationNone:
		return bad("compensation %v at sequence %d", r.Compensation, r.Sequence)
	case !begun && len(r.Usage) > 0 || !soundUsage(r.Usage):
		return bad("usage %v at sequence %d", r.Usage, r.Sequence)
	case r.Status.Terminal() == r.Ended.IsZero():
		return bad("it is %v, and ended at %v", r.Status, r.Ended)
	case r.Created.IsZero():
		return bad("it has no time of creation")
	case !begun && r.LastEvent > 0:
		return bad("it has not begun, and has %d events", len(r.Events))
	case !follow(r.Events, 0) || len(r.Events) == 0 && r.LastEvent > 0 || len(r.Events) > 0 && r.Events[len(r.Events)-1].ID != r.LastEvent:
		return bad("its last event is %d, and it has %d events, which do not lead to that one", r.LastEvent, len(r.Events))
	}
	for _, t := range []time.Time{r.Created, r.Ended, r.WakeAt} {
		if err := checkTime(t); err != nil {
			return fmt.Errorf("run %s: %w", foreign.Quote(r.ID), err)
		}
	}
	if err := r.Spec.check(); err != nil {
		return fmt.Errorf("run %s: %w", foreign.Quote(r.ID), err)
	}
	for _, key := range slices.Sorted(maps.Keys(r.Nodes)) {
		n := r.Nodes[key]
		_, status := n.Status.MarshalText()
		_, cause := n.Cause.MarshalText()
		switch {
		case status != nil || cause != nil:
			return bad("node %s: %v", foreign.Quote(key), errors.Join(status, cause))
		case n.Attempt < 0 || n.Completed && n.Attempt == 0:
			return bad("node %s: attempt %d, completed: %v", foreign.Quote(key), n.Attempt, n.Completed)
		case n.Resolved < 0 || n.Resolved > n.Required:
			return bad("node %s: %d of %d predecessors have resolved", foreign.Quote(key), n.Resolved, n.Required)
		case n.Terminal && n.Queued:
			return bad("node %s: it has ended and is queued", foreign.Quote(key))
		case !inNanoseconds(n.Start) || !inNanoseconds(n.End):
			return bad("node %s: from %v to %v: a store has times from 1678 to 2262", foreign.Quote(key), n.Start, n.End)
		case n.Hash != nil && len(n.Hash) == 0 || n.Value != nil && len(n.Value) == 0 || n.Record != nil && len(n.Record) == 0:
			return bad("node %s: a hash, value or record without bytes", foreign.Quote(key))
		}
	}
	return nil
}

// soundUsage reports whether JSON can represent each name and each amount, and whether each amount is at least 0.
func soundUsage(usage map[string]float64) bool {
	for name, amount := range usage {
		if !(amount >= 0 && amount <= math.MaxFloat64) || !utf8.ValidString(name) {
			return false
		}
	}
	return true
}

// checkTime refuses a time that JSON cannot represent.
func checkTime(t time.Time) error {
	if y := t.UTC().Year(); y < 1 || y > 9999 {
		return fmt.Errorf("%w: the year %d: a store has the years 1 to 9999", machine.ErrBadValue, y)
	}
	return nil
}

// inNanoseconds reports whether an int64 can represent the nanoseconds from 1970 to t. It also returns true for the zero time, which stands for "no
// time".
func inNanoseconds(t time.Time) bool {
	return t.IsZero() || !t.Before(time.Unix(0, math.MinInt64)) && !t.After(time.Unix(0, math.MaxInt64))
}
