package kahn

import (
	"fmt"
	"time"

	"github.com/seed-c794f7ef/kahn/store"
)

// StoreEvents keeps the events of a durable run in its store, see [Durable]. Each is written in the transaction of the fact that it tells, so
// the stored log is that of the stored run, whenever the process dies: its ids have no hole and go on over all lives of the run. Any
// process reads it with [store.ReadEvents] and [store.OpenEvents], while the run goes on and afterwards.
//
// Deltas and logs, which change nothing in the stored run, are written with the next transaction, which begins at the latest 50 ms after the first of them, or when the
// one under way has been written: it is one of their own, if there is no other. Until then they are kept in memory. Sinks, [Run.Events] and readers of the store see any event only when it is written. So a
// crash loses those that were not written yet, and nobody has seen these.
//
// The store must be a [store.EventStore], otherwise the error matches [ErrBadOption] and nothing is run. A run whose events are stored goes on
// storing them in later lives, with or without the option. If a run began without it, the stored log begins with the first event of the life
// that has it. Events are stored as JSON. Outputs in them, see [EventOutputs], are as the codec of [Encoding] has written them; what
// steps emit and log, and signals, are in the clear.
func StoreEvents() Option {
	return optionFunc(func(c *config) error { c.storeEvents = true; return nil })
}

// eventDelay is how long deltas and logs wait for a transaction.
const eventDelay = 50 * time.Millisecond

// eventWriter takes the events of a run into its transactions. The run's lock guards it.
//
// Every other event has a change in the outbox, so the next transaction covers it. Deltas and logs have none, and wait for that
// transaction; the delay makes the outbox due.
type eventWriter struct {
	root  *Run
	last  uint64 // the id of the last event that is in a transaction
	maker *eventMaker
	delay timer // nil if nothing waits; while it is armed, it is one of the run's timers
}

// checkEvents refuses to store events where that is impossible.
func (c *config) checkEvents() error {
	if !c.storeEvents {
		return nil
	}
	if c.store == nil {
		return fmt.Errorf("%w: StoreEvents is for a durable run: see Durable", ErrBadOption)
	}
	if _, ok := c.store.(store.EventStore); !ok {
		return fmt.Errorf("%w: StoreEvents: %T keeps no events: it is no store.EventStore", ErrBadOption, c.store)
	}
	return nil
}

// eventWriter is that of a run which has been acquired; nil if its events are not stored.
func (r *Run) eventWriter(stored *store.Run) (*eventWriter, error) {
	if stored.LastEvent == 0 && !r.cfg.storeEvents {
		return nil, nil
	}
	if _, ok := r.cfg.store.(store.EventStore); !ok {
		return nil, fmt.Errorf("%w: the events of run %s are stored, and %T keeps none: it is no store.EventStore", ErrBadOption, quoteID(r.ID()), r.cfg.store)
	}
	return &eventWriter{root: r}, nil
}

// begin begins with the events after the last one of the life before.
func (w *eventWriter) begin(last uint64) {
	if w != nil {
		w.last = last
	}
}

// postpone makes the outbox due after the delay, for events that have no change in it.
func (w *eventWriter) postpone() {
	d := w.root.durable
	if w.delay != nil || d.failed != nil {
		return
	}
	var own timer
	w.root.timers++
	own = w.root.startTimer(eventDelay, func() {
		w.root.callback(func(int64) {
			if w.delay == own { // else the events are in a transaction already
				w.delay, d.outbox.due = nil, d.failed == nil
			}
		})
	})
	w.delay = own
}

// arrive ends the delay.
func (w *eventWriter) arrive() {
	if w == nil || w.delay == nil {
		return
	}
	if w.delay.Stop() {
		w.root.timers--
	}
	w.delay = nil
}

// take drafts the events up to an id, which no transaction holds yet. It is called with the lock held: later a failure of the store may
// undo the ends of nodes of which they tell.
func (w *eventWriter) take(last uint64) (events []Event) {
	if w == nil || w.last == last {
		return nil
	}
	w.arrive()
	if w.maker == nil {
		w.maker = w.root.eventMaker()
	}
	events = make([]Event, 0, last-w.last)
	ev := w.maker.head
	for w.last < last {
		b := w.root.log.upTo(w.last+1, last)
		for i := range b.lines {
			w.last++
			w.maker.draft(&ev, &b, i, w.last)
			events = append(events, ev)
		}
	}
	return events
}

// encodeEvents puts the events of a transaction into its commit. It calls user code, and is called without the lock.
func (r *Run) encodeEvents(tx *transaction) error {
	for i := range tx.events {
		e := &tx.events[i]
		e.Payload = r.withOutput(e.Payload)
		data, err := e.MarshalStored()
		if err != nil { // JSON has no form for a time in the payload
			e.Payload = nil
			data, err = e.MarshalStored()
		}
		if err != nil {
			return err
		}
		tx.commit.Events = append(tx.commit.Events, store.EventRecord{ID: e.ID, Data: data})
	}
	tx.events = nil
	return nil
}
