package sse

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/machine"
)

// Handler serves the events of runs. Find must be set. A Handler responds with 405 to any method other than GET and HEAD. If a numeric field
// is negative, the Handler responds to every request with 500 and the name of the field. A handler must not be copied after first use, and
// its fields must not change.
//
// A stream ends when its request's context ends. http.Server.Shutdown waits for streams. To end the streams, cancel the context that the server's
// BaseContext returns, in a function passed to RegisterOnShutdown. Clients then reconnect and miss nothing.
//
// A write has a deadline if the ResponseWriter, or a writer that its Unwrap method returns, supports write deadlines. So if middleware wraps the
// ResponseWriter, its wrapper should have an Unwrap method.
type Handler struct {
	// Find returns the run for a request; see [Fixed]. If it returns an error, the status of the response is 404 or, for a [*StatusError], its Code
	// (400 to 599). If the run is suspended and its log has ended, the handler calls Find repeatedly to get the Source with which the run continues.
	Find func(*http.Request) (Source, error)
	// Authorize is called once for each request, before Find. If Authorize returns nil, the request passes. If Authorize returns an error, the status of
	// the response is 403 or, for a [*StatusError], its Code (400 to 599). Without Authorize every client that reaches the handler may read.
	Authorize func(*http.Request) error
	// Redact gets each event before it is sent, including heartbeats, and returns the version that the client may see. If it returns false, the event is
	// withheld, and the client gets only its id. Redact must not change values to which the payload refers: other streams share these values. It may
	// replace the payload by another payload of the same type, or by a json.RawMessage. An event with any other payload is withheld. Redact cannot
	// change the id and the type of an event. It runs on the request's goroutine.
	Redact func(*http.Request, event.Event) (event.Event, bool)
	// Heartbeat is how long a stream may be silent. Then the handler sends an event of type heartbeat without an id. Default: 15 s.
	Heartbeat time.Duration
	// WriteTimeout bounds each write to a client, and overrides http.Server.WriteTimeout. If a write takes longer, the stream is cut. Default: 10 s.
	WriteTimeout time.Duration
	// Retry is how long clients should wait before they reconnect. If it is 0, the clients decide.
	Retry time.Duration
	// MaxStreams bounds the number of concurrent streams. MaxStreamsPerKey bounds the number of concurrent streams with the same key. 0 means no bound.
	// A request that exceeds a bound gets the response 503 with Retry-After. Pages do not count as streams.
	MaxStreams, MaxStreamsPerKey int
	// Key returns the key of a request for MaxStreamsPerKey, such as a user or a tenant. Default: the host of the remote address.
	Key func(*http.Request) string

	slots slots
	feeds feeds
}

const (
	defaultHeartbeat    = 15 * time.Second
	defaultWriteTimeout = 10 * time.Second
	// fullRetryAfter is the Retry-After of the response to a request that exceeds a bound on streams.
	fullRetryAfter = 5 * time.Second
)

// Fixed returns a Find function for a handler of a single run.
func Fixed(run Source) func(*http.Request) (Source, error) {
	return func(*http.Request) (Source, error) { return run, nil }
}

// ServeHTTP responds with the events after the request's cursor.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		refuse(w, &StatusError{Code: http.StatusMethodNotAllowed}, 0)
		return
	}
	if err := h.check(); err != nil {
		refuse(w, &StatusError{Code: http.StatusInternalServerError, Message: err.Error()}, 0)
		return
	}
	if h.Authorize != nil {
		if err := h.Authorize(r); err != nil {
			refuse(w, err, http.StatusForbidden)
			return
		}
	}
	src, err := h.Find(r)
	if err != nil {
		refuse(w, err, http.StatusNotFound)
		return
	}
	cur, err := cursorOf(r)
	if err != nil {
		refuse(w, err, http.StatusBadRequest)
		return
	}
	// The handler reads the status before the range, so that the range is final if the status is terminal. It must find problems with the cursor now,
	// without waiting: once the stream has begun, it cannot respond with another status.
	ended := src.Status().Terminal()
	first, last := src.EventRange()
	if err := readable(src, cur.after, first, last); err != nil {
		refuse(w, err, http.StatusInternalServerError)
		return
	}
	if wantsPage(r) {
		h.page(w, r, src, cur.after)
		return
	}
	if ended && cur.after >= last && cur.header {
		w.Header().Set("Cache-Control", "no-store")
		w.WriteHeader(http.StatusNoContent) // this status stops an EventSource from reconnecting
		return
	}
	release, ok := h.slots.take(h, r)
	if !ok {
		refuse(w, &StatusError{Code: http.StatusServiceUnavailable, Message: "too many streams", RetryAfter: fullRetryAfter}, 0)
		return
	}
	defer release()
	h.stream(w, r, src, cur.after)
}

// A cursor is the position from which a client wants to continue.
type cursor struct {
	after  uint64
	header bool // whether the cursor came in the header Last-Event-ID
}

func cursorOf(r *http.Request) (cursor, error) {
	// A query that cannot be parsed may contain a cursor. So the handler refuses the request, and does not send the events from the beginning.
	if query, err := url.ParseQuery(r.URL.RawQuery); err != nil || query.Has("afterEventId") {
		n, bad := strconv.ParseUint(query.Get("afterEventId"), 10, 64)
		if err != nil || bad != nil {
			return cursor{}, &StatusError{Code: http.StatusBadRequest, Message: "afterEventId is not the id of an event"}
		}
		return cursor{after: n}, nil
	}
	n, err := strconv.ParseUint(r.Header.Get("Last-Event-ID"), 10, 64)
	if err != nil {
		return cursor{}, nil // the header is ignored, since a browser may send an id from another server
	}
	return cursor{after: n, header: true}, nil
}

// The function `readable` returns an error if the handler can tell, without waiting, that the events after the cursor cannot be read.
func readable(src Source, after, first, last uint64) error {
	if first > last {
		// There is no event to read: either no event has happened yet, or the run keeps no events. To distinguish these cases, readable calls Events
		// with an ended context. Events then yields an error at once. This error matches event.ErrNoLog if the run keeps no events.
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		for _, err := range src.Events(ctx, after) {
			if errors.Is(err, event.ErrNoLog) {
				return &StatusError{Code: http.StatusNotFound, Message: event.ErrNoLog.Error()}
			}
			break
		}
		return nil
	}
	if first > 0 && after < first-1 {
		return &event.GapError{After: after, First: first}
	}
	// If the run is running, a cursor beyond its last event means that a crash has lost an event that the client saw. A later event will get the
	// id of the lost event. If the run is not running, src may be out of date: the run may have continued as another Source.
	if after > last && src.Status() == machine.RunRunning {
		return &event.GapError{After: after, First: first}
	}
	return nil
}

// The method `key` returns the key of the request, for MaxStreamsPerKey.
func (h *Handler) key(r *http.Request) string {
	if h.Key != nil {
		return h.Key(r)
	}
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}

// wantsPage reports whether the client requests JSON and not a stream.
func wantsPage(r *http.Request) bool {
	accept := strings.Join(r.Header.Values("Accept"), ",")
	return strings.Contains(accept, jsonType) && !strings.Contains(accept, streamType)
}

// The type `gone` is the body of a response with status 410.
type gone struct {
	Error string `json:"error"`
	After uint64 `json:"after"`
	First uint64 `json:"first"`
}

// refuse responds with an error. For an [*event.GapError] the status is 410. For a [*StatusError] with a Code from 400 to 599 the status is this
// Code. For any other error the status is the parameter `code`.
func refuse(w http.ResponseWriter, err error, code int) {
	header := w.Header()
	header.Set("Cache-Control", "no-store")
	var gap *event.GapError
	if errors.As(err, &gap) {
		header.Set("Content-Type", jsonType)
		w.WriteHeader(http.StatusGone)
		// If the write fails, the client is gone.
		_ = json.NewEncoder(w).Encode(gone{Error: gap.Error(), After: gap.After, First: gap.First})
		return
	}
	status := &StatusError{Code: code}
	// A Code outside 400 to 599 is ignored, since the response would not look like an error.
	if own := (*StatusError)(nil); errors.As(err, &own) && own != nil && own.Code >= 400 && own.Code < 600 {
		status = own
	}
	if status.RetryAfter > 0 {
		header.Set("Retry-After", strconv.Itoa(int(math.Ceil(status.RetryAfter.Seconds()))))
	}
	http.Error(w, status.text(), status.Code)
}

// slots counts the open streams.
type slots struct {
	mu    sync.Mutex
	all   int
	byKey map[string]int
}

// The method `take` counts a new stream. When the stream ends, the caller calls release. If the stream would exceed a bound, ok is false.
func (s *slots) take(h *Handler, r *http.Request) (release func(), ok bool) {
	key := ""
	if h.MaxStreamsPerKey > 0 {
		key = h.key(r)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.MaxStreams > 0 && s.all >= h.MaxStreams || h.MaxStreamsPerKey > 0 && s.byKey[key] >= h.MaxStreamsPerKey {
		return nil, false
	}
	if s.byKey == nil {
		s.byKey = map[string]int{}
	}
	s.all++
	s.byKey[key]++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.all--
		if s.byKey[key]--; s.byKey[key] == 0 {
			delete(s.byKey, key)
		}
	}, true
}
