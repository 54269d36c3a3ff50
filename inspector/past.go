package inspector

import (
	"context"
	"errors"
	"iter"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// longLog is a run of the Runner with a longer log. The log begins with the events that only the store has. These are events from other
// processes, which performed the run earlier, and events that the Runner no longer keeps.
type longLog struct {
	subject
	past  *store.EventLog
	first uint64 // the id of the first event that the Runner has
}

// mostPast is a limit for withPast. If the Runner lacks mostPast or more events at the beginning of a run, withPast reads none of them from the
// store.
const mostPast = mostScanned

// withPast returns the run that the request names. If the Runner has the run but not the run's first events, withPast adds these events from the
// store. If the store cannot supply them, withPast returns the run without them.
func (c *call) withPast() subject {
	from, ok := c.h.Store.(store.EventStore)
	run := c.live()
	if !ok || run == nil {
		return c.target
	}
	first, last := run.EventRange()
	if first <= 1 || last == 0 || first > mostPast {
		return c.target
	}
	var past *store.EventLog
	err := c.h.contain(c.r, "Store.LoadEvents", func() (err error) {
		past, err = store.OpenEvents(c.r.Context(), from, run.ID())
		return err
	})
	if err != nil {
		if !errors.Is(err, kahn.ErrUnknownRun) { // ErrUnknownRun is no fault of the store: it means that the run is not stored
			_ = c.h.storeFault(c.r.Context(), err) // called for its side effect, a record in the log
		}
		return c.target
	}
	if begin, end := past.EventRange(); end == 0 || begin >= first {
		return c.target
	}
	return longLog{subject: run, past: past, first: first}
}

// EventRange returns the id of the first event in the store, and the id of the last event of the Runner's run.
func (l longLog) EventRange() (first, last uint64) {
	first, _ = l.past.EventRange()
	_, last = l.subject.EventRange()
	return first, last
}

// Events yields the events with ids greater than `after`: first the events that only the store has, then the events that the Runner has.
func (l longLog) Events(ctx context.Context, after uint64) iter.Seq2[kahn.Event, error] {
	_, end := l.past.EventRange()
	end = min(end, l.first-1) // the loop stops at this event: after the last stored event, the store's log would wait for further events
	return func(yield func(kahn.Event, error) bool) {
		if after < end {
			for e, err := range l.past.Events(ctx, after) {
				if !yield(e, err) || err != nil {
					return
				}
				if e.ID >= end {
					break
				}
			}
		}
		for e, err := range l.subject.Events(ctx, max(after, l.first-1)) {
			if !yield(e, err) {
				return
			}
		}
	}
}
