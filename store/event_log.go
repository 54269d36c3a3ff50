package store

import (
	"context"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/internal/foreign"
	"github.com/seed-c794f7ef/kahn/machine"
)

// EventLog reads the stored events of a run, in any process. It implements sse.Source. So if the Find function of an sse.Handler calls OpenEvents,
// the handler can serve runs that other processes perform. A process that continues a run also continues the ids of its events. Open a separate
// EventLog for each stream: Status and EventRange make no request, but return what the last request of their EventLog found.
type EventLog struct {
	// Poll is how long a reader waits until it asks the store again. Zero means DefaultPoll. If the store is an [EventNotifier], and the run is
	// performed with the same store value, new events wake the reader at once. Poll must not change during a read.
	Poll time.Duration

	store EventStore
	run   string
	mu    sync.Mutex // guards the fields below
	page  EventPage  // the last page, without its events
}

// DefaultPoll is how long a reader of an [EventLog] waits until it asks the store again.
const DefaultPoll = 250 * time.Millisecond

// eventPage is how many events a reader of an EventLog loads at once.
const eventPage = 256

// OpenEvents returns the stored log of a run. The run may be pending, running in any process, or ended. The error matches [ErrUnknownRun] if the
// run is not stored.
func OpenEvents(ctx context.Context, s EventStore, run string) (*EventLog, error) {
	l := &EventLog{store: s, run: run}
	_, err := l.load(ctx, 0, 1)
	if err != nil {
		return nil, err
	}
	return l, nil
}

// The method `load` asks the store for events.
func (l *EventLog) load(ctx context.Context, after uint64, most int) (EventPage, error) {
	page, err := l.store.LoadEvents(ctx, l.run, after, most)
	if err != nil {
		return EventPage{}, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.page = page
	l.page.Events = nil
	return page, nil
}

// The method `last` returns the result of the last request, without its events.
func (l *EventLog) last() EventPage {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.page
}

// Status returns the stored status of the run.
func (l *EventLog) Status() machine.RunStatus { return l.last().Status }

// EventRange returns the ids of the first and the last stored event, or 1 and 0 if no event is stored.
func (l *EventLog) EventRange() (first, last uint64) {
	p := l.last()
	if p.Last == 0 {
		return 1, 0
	}
	return p.First, p.Last
}

// Heartbeat returns an event for a client that waits: the event shows that the stream is still open. It has no id and is not stored.
func (l *EventLog) Heartbeat() event.Event {
	p := l.last()
	return event.Event{
		Type: event.Heartbeat, RunID: l.run, Workflow: p.Workflow, TraceID: event.TraceID(l.run), Time: time.Now().UTC(),
		Payload: event.Beat{Last: p.Last},
	}
}

// Events yields the stored events with ids above "after", in order: first the events that are stored already, then new ones as they are stored. When
// the run has ended, the sequence ends with the run's last event. While a run is suspended, or its process is dead, the sequence waits until a
// process continues the run. If "after" is 0, Events begins with event 1.
//
// An error ends the sequence; Events yields it with a zero Event. It is the cause of ctx's end, an error of the store, or an error that [ReadEvents]
// also returns. It matches [machine.ErrBadValue] if an event is missing in the stored log. A second loop over the sequence starts anew.
func (l *EventLog) Events(ctx context.Context, after uint64) iter.Seq2[event.Event, error] {
	return func(yield func(event.Event, error) bool) {
		known, at := l.last(), after
		err := known.readable(after)
		for ended := false; err == nil && !ended; {
			var goesOn bool
			if goesOn, ended, err = l.follow(ctx, &at, yield); !goesOn {
				return
			}
		}
		if err != nil {
			yield(event.Event{}, err)
		}
	}
}

// The method `follow` yields one page of stored events. If it has yielded the last stored event and the run has not ended, it waits for more events.
// The result "goesOn" is false if the reader has stopped the loop. The result "ended" is true if the run will have no more events.
func (l *EventLog) follow(ctx context.Context, after *uint64, yield func(event.Event, error) bool) (goesOn, ended bool, err error) {
	if ctx.Err() != nil {
		return true, false, context.Cause(ctx)
	}
	var changed <-chan struct{}
	if n, ok := l.store.(EventNotifier); ok { // watch before asking the store, so that no event is missed
		var stop func()
		changed, stop = n.NotifyEvents(l.run)
		defer stop()
	}
	page, err := l.load(ctx, *after, eventPage)
	if err == nil {
		err = page.readable(*after)
	}
	if err != nil {
		return true, false, err
	}
	events, err := page.decode(l.run)
	for _, e := range events {
		if e.ID != *after+1 {
			return true, false, fmt.Errorf("%w: stored events of run %s: event %d after event %d", machine.ErrBadValue, foreign.Quote(l.run), e.ID, *after)
		}
		if *after = e.ID; !yield(e, nil) {
			return false, false, nil
		}
	}
	switch {
	case err == nil && len(events) == 0 && *after < page.Last:
		return true, false, fmt.Errorf("%w: stored events of run %s: the events after %d are missing, but the last event is %d", machine.ErrBadValue, foreign.Quote(l.run), *after, page.Last)
	case err != nil || *after < page.Last:
		return true, false, err
	case page.Status.Terminal():
		return true, true, nil
	}
	return true, false, l.pause(ctx, changed)
}

// The method `pause` waits until there may be more events. If ctx ends first, it returns the cause as an error.
func (l *EventLog) pause(ctx context.Context, changed <-chan struct{}) error {
	poll := l.Poll
	if poll <= 0 {
		poll = DefaultPoll
	}
	timer := time.NewTimer(poll)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-changed:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}
