// Package sse serves the events of runs over HTTP as server-sent events, and reads them. A [Handler] serves browsers' EventSource and other
// clients, and a [Client] reads the events in a Go program. The package needs only the standard library.
//
//	http.Handle("/runs/{id}/events", &sse.Handler{Find: func(r *http.Request) (sse.Source, error) {
//		if run, ok := runner.Run(r.PathValue("id")); ok {
//			return run, nil
//		}
//		return nil, errors.New("no such run")
//	}})
//
// A stream can be cut at any time and resumed without loss, because an event's id is its position in the run's log:
//
//	id: 7
//	event: node.completed
//	data: {"eventId":7,"sequence":7,"type":"node.completed",...}
//
// A client's cursor is the id of the last event that the client has seen. The client sends it in the query parameter afterEventId or in the header
// Last-Event-ID. Every EventSource sends the header when it reconnects. If a request has both, the query parameter counts. The response contains the
// events with greater ids: past events first, then new events as they happen. After the run's last event the stream ends. The streams of a suspended
// run stay open. If the run later continues as another Source, and Find returns this Source, the streams continue with the events of this Source.
//
// # In a browser
//
//	const events = new EventSource("/runs/42/events")
//	events.addEventListener("node.completed", e => show(JSON.parse(e.data)))
//	for (const end of ["run.completed", "run.failed", "run.cancelled", "run.timed_out"])
//		events.addEventListener(end, () => events.close())
//
// An EventSource reconnects whenever a stream ends. If the web page does not close its EventSource, the EventSource reconnects after the run's last
// event, gets status 204, and stops. Do not put afterEventId into the URL of an EventSource: the browser would send the parameter on every
// reconnection, and the parameter would override the browser's own cursor.
//
// The first event after a pause is sent at once. Events in quick succession are sent together, with a delay of at most 20 ms.
//
// # Runs that other processes perform
//
// A run with the option kahn.StoreEvents stores all its events, even if several processes perform the run in turn. Every process can read the
// events from the store:
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
// A run may keep only its last events, see [kahn.Retain]. If the event after a client's cursor is no longer kept, the response is status 410 with
//
//	{"error":"events 4 to 9 are no longer kept","after":3,"first":10}
//
// The client can never get the missing events, and must reset: it drops the state that it built from earlier events, asks the host for the run's
// current state, and continues with afterEventId = first - 1. An EventSource does not show the status of a response. So when an EventSource has
// closed itself, the web page must request the same URL with fetch and Accept: application/json, to see the status. If the run is running and the
// cursor is beyond its last event, the response is the same: a crash has lost the last events that the client saw, see [event.Recovery].
//
// # Without streaming
//
// Two kinds of clients get a page of events instead of a stream: a client that accepts application/json and not text/event-stream, and any client
// whose response cannot be flushed. Until `done` is true, the client requests the next page, with the lastEventId of this page as the cursor:
//
//	{"events":[{"eventId":1,...},...],"lastEventId":9,"more":false,"done":true}
//
// If `more` is true, events for the next page exist already. A page holds a few hundred kilobytes. Of a withheld event, the page has only the
// eventId.
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

// Source is a run whose events can be read, such as a *kahn.Run or a *store.EventLog.
type Source interface {
	// Status returns the status of the run. Once the status is terminal, the run's last event can be read.
	Status() machine.RunStatus
	// EventRange returns the ids of the first and the last event that can be read now. If first is greater than last, no event can be read.
	EventRange() (first, last uint64)
	// Events yields the events with ids greater than `after`, and waits for later events. An error ends the sequence. The error is a
	// [*event.GapError] if events after `after` are no longer kept.
	Events(ctx context.Context, after uint64) iter.Seq2[event.Event, error]
	// Heartbeat returns an event of type heartbeat.
	Heartbeat() event.Event
}

// StatusError is an error with an HTTP status. The functions Find and Authorize of a [Handler] return it to choose the response. A [Client] yields
// it if the server responds with an error status.
type StatusError struct {
	Code    int    // 401, 404, ...
	Message string // the text for the client; "" means the standard text of the code
	// RetryAfter is how long the client should wait before it tries again. If it is 0, the response has no Retry-After.
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
