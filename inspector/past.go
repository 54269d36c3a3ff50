package inspector

import (
	"context"
	"errors"
	"iter"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// longLog is the log of a run of the Runner, preceded by the events that only the store has: events of other processes that performed the run
// earlier, and events that the Runner no longer keeps.
type longLog struct {
	subject
	past  *store.EventLog
	first uint64 // the id of the first event that the Runner has
}

// mostPast is a limit for withPast: if the Runner lacks at least the first mostPast events of a run, withPast reads none of them from the store.
const mostPast = mostScanned

// withPast returns the run of the request. If the Runner does not have the first events of the run, withPast adds these events from the store. If
// it cannot read them, it returns the run without them.
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
		if !errors.Is(err, kahn.ErrUnknownRun) { // ErrUnknownRun is no fault of the store: the run is not stored
			_ = c.h.storeFault(c.r.Context(), err) // called for its side effect, a record in the log
		}
		return c.target
	}
	if begin, end := past.EventRange(); end == 0 || begin >= first {
		return c.target
	}
	return longLog{subject: run, past: past, first: first}
}

// EventRange returns the ids of the first event of the store and of the last event of the run.
func (l longLog) EventRange() (first, last uint64) {
	first, _ = l.past.EventRange()
	_, last = l.subject.EventRange()
	return first, last
}

// Events yields the stored events that the run lacks, and then the events of the run.
func (l longLog) Events(ctx context.Context, after uint64) iter.Seq2[kahn.Event, error] {
	_, end := l.past.EventRange()
	end = min(end, l.first-1) // the log of the store waits for further events, so the loop must stop at the last stored event
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
