// Package sse serves the events of runs over HTTP as server-sent events, and reads them: a [Handler] for browsers'
// EventSource and any other client, and a [Client] in Go. It needs nothing but the standard library.
//
//	http.Handle("/runs/{id}/events", &sse.Handler{Find: func(r *http.Request) (sse.Source, error) {
//		if run, ok := runner.Run(r.PathValue("id")); ok {
//			return run, nil
//		}
//		return nil, errors.New("no such run")
//	}})
//
// A stream can be cut at any time and resumed without loss, because an event's id is its place in the run's log:
//
//	id: 7
//	event: node.completed
//	data: {"eventId":7,"sequence":7,"type":"node.completed",...}
//
// The id of the last event that a client has seen is its cursor. A client sends it as the query parameter afterEventId or,
// as every EventSource does by itself when it reconnects, as the header Last-Event-ID; the query wins. It then gets the
// events with greater ids, past events first and the others as they happen, and after the run's last event the stream ends.
// A run that is suspended keeps its streams open, across its resumption if Find then returns the run that continues.
//
// # In a browser
//
//	const events = new EventSource("/runs/42/events")
//	events.addEventListener("node.completed", e => show(JSON.parse(e.data)))
//	for (const end of ["run.completed", "run.failed", "run.cancelled", "run.timed_out"])
//		events.addEventListener(end, () => events.close())
//
// An EventSource reconnects whenever a stream ends. If the page does not close it, it gets status 204 when it reconnects
// after the run's last event, and stops. Do not put afterEventId into the URL of an EventSource: it would come back there
// each time, and would win over what the browser has seen since.
//
// An event after a pause is sent at once; events in quick succession are sent together, none later than 20 ms.
//
// # Runs that other processes perform
//
// A run with the option kahn.StoreEvents has its events in its store, where every process finds them, over all lives of the run:
//
//	Find: func(r *http.Request) (sse.Source, error) {
//		log, err := store.OpenEvents(r.Context(), db, r.PathValue("id"))
//		switch {
//		case errors.Is(err, store.ErrUnknownRun):
//			return nil, err // 404, after which an EventSource does not come back
//		case err != nil:
//			return nil, &sse.StatusError{Code: http.StatusServiceUnavailable, Message: "the store does not answer"}
//		}
//		return log, nil
//	}
//
// # When events are gone
//
// A run that keeps only its last events, see [kahn.Retain], answers an older cursor with status 410 and
//
//	{"error":"events 4 to 9 are no longer kept","after":3,"first":10}
//
// The client has missed events for good. It resets: it drops the state that it has built from the events so far, gets the
// run's state from the host by other means, and continues with afterEventId = first - 1. An EventSource does not show the
// status; a page whose EventSource has closed itself asks the same URL again with fetch and Accept: application/json. A
// cursor above the last event of a running run gets the same answer: a crash has lost the events that the client saw last,
// see [event.Recovery].
//
// # Without streaming
//
// A client that accepts application/json and not text/event-stream, and any client if the response cannot be flushed, gets
// the events so far as one page, and asks again from its lastEventId, until done:
//
//	{"events":[{"eventId":1,...},...],"lastEventId":9,"more":false,"done":true}
//
// more says that there are more events already; a page holds some hundred kilobytes. An event that was withheld has only
// its eventId.
package sse

import (
	"context"
	"fmt"
	"iter"
	"net/http"
	"time"

	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/machine"
)

// Source is a run whose events can be read. A *kahn.Run is one, and so is a *store.EventLog.
type Source interface {
	// Status is terminal as soon as the run's last event can be read.
	Status() machine.RunStatus
	// EventRange returns the ids of the first and the last event that can be read now; none if first is above last.
	EventRange() (first, last uint64)
	// Events yields the events with ids above after, and waits for later ones. An error ends it: a [*event.GapError] if
	// events are no longer kept.
	Events(ctx context.Context, after uint64) iter.Seq2[event.Event, error]
	// Heartbeat returns an event of type heartbeat.
	Heartbeat() event.Event
}

// StatusError is an HTTP status as an error. Hooks of a [Handler] return it to choose the answer, and a [Client] yields it
// for an answer that is not a stream.
type StatusError struct {
	Code    int    // 401, 404, ...
	Message string // the text for the client; "" for the standard text of the code
	// RetryAfter is how long the client is asked to wait before it tries again; 0 means that it is not asked.
	RetryAfter time.Duration
}

// Error returns the code and the message.
func (e *StatusError) Error() string { return fmt.Sprintf("sse: status %d: %s", e.Code, e.text()) }

func (e *StatusError) text() string {
	if e.Message != "" {
		return e.Message
	}
	return http.StatusText(e.Code)
}

const (
	streamType = "text/event-stream"
	jsonType   = "application/json"
)
