package store

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/internal/foreign"
	"github.com/seed-c794f7ef/kahn/machine"
)

// EventStore is a [Store] that also keeps the events of runs. It stores the events of a [Commit] in the transaction that applies the commit.
// [Memory], store/sqlite and store/postgres implement it; other stores need not. Package storetest tests an EventStore.
type EventStore interface {
	Store
	// LoadEvents returns at most "limit" stored events of a run with ids above "after", in order. The page also has the state of the log at the time
	// of the read. The limit is from 1 to MaxPage. LoadEvents may return fewer events than "limit", but returns at least one if the log has an event
	// above "after". The error matches ErrUnknownRun if the run is not stored.
	LoadEvents(ctx context.Context, run string, after uint64, limit int) (EventPage, error)
}

// EventNotifier is an [EventStore] that notifies readers in its own process when it has stored events. If a store is not an EventNotifier, its
// readers find new events when they ask again.
type EventNotifier interface {
	EventStore
	// NotifyEvents returns a channel that is closed when this store value has stored more events of the run. The caller must call stop
	// when it no longer waits.
	NotifyEvents(run string) (changed <-chan struct{}, stop func())
}

// EventRecord is a stored event.
type EventRecord struct {
	ID   uint64          `json:"id"`   // the position of the event in the log, from 1
	Data json.RawMessage `json:"data"` // the result of [event.Event.MarshalStored]
}

// EventPage is one page of the stored log of a run.
type EventPage struct {
	Events []EventRecord
	// First and Last are the ids of the first and the last stored event. Last is 0 if no event is stored.
	First, Last uint64
	// Begun is set if the run has a commit. If Begun is set, Status is not RunPending and Last is 0, the run does not store its events.
	Begun    bool
	Status   machine.RunStatus
	Workflow string
}

// EventsFollow reports whether the ids of the commit's events continue the log of the run without a gap. The parameter "last" is the id of the last
// event in the log, or 0 if the log is empty. The first event of a log may have any id above 0. EventsFollow is for implementations of [EventStore],
// which answer with [Conflict] if it returns false.
func (c *Commit) EventsFollow(last uint64) bool { return follow(c.Events, last) }

func follow(events []EventRecord, last uint64) bool {
	for i, e := range events {
		if e.ID == 0 || e.ID != last+1 && (i > 0 || last > 0) {
			return false
		}
		last = e.ID
	}
	return true
}

// ReadEvents returns at most "count" stored events of a run with ids above "after", in order. A count of 0 means [DefaultPage]. ReadEvents returns
// no events and no error if the log has no event above "after" yet. If "after" is 0, the result begins with event 1.
//
// The error is a [*event.GapError] if the event that follows "after" is older than the first stored event. This is so, for example, if the process
// that began the run did not store events. The error matches [event.ErrNoLog] if the run does not store its events, and [ErrUnknownRun] if the run
// is not stored. It matches [machine.ErrBadValue] if count is above [MaxPage] or below 0.
func ReadEvents(ctx context.Context, s EventStore, run string, after uint64, count int) ([]event.Event, error) {
	most, err := limit(count)
	if err != nil {
		return nil, err
	}
	page, err := loadEvents(ctx, s, run, after, most)
	if err != nil {
		return nil, err
	}
	return page.decode(run)
}

// loadEvents calls LoadEvents, and checks the page with the method `readable`.
func loadEvents(ctx context.Context, s EventStore, run string, after uint64, most int) (EventPage, error) {
	page, err := s.LoadEvents(ctx, run, after, most)
	if err != nil {
		return EventPage{}, err
	}
	return page, page.readable(after)
}

// The method `readable` returns an error if the run does not store its events, or if the event that follows "after" is older than the first stored
// event.
func (p *EventPage) readable(after uint64) error {
	switch {
	case p.Last == 0 && p.Begun && p.Status != machine.RunPending: // a pending run may have stored answers to requests, but no events
		return event.ErrNoLog
	case p.Last > 0 && after < p.First-1:
		return &event.GapError{After: after, First: p.First}
	}
	return nil
}

func (p *EventPage) decode(run string) (events []event.Event, err error) {
	for _, r := range p.Events {
		e, err := event.UnmarshalStored(run, p.Workflow, r.ID, r.Data)
		if err != nil {
			return events, fmt.Errorf("stored events of run %s: %w", foreign.Quote(run), err)
		}
		events = append(events, e)
	}
	return events, nil
}
