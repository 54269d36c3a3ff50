package sse

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/machine"
)

// stream is the answer to one request. Everything but its reader happens on the request's goroutine.
type stream struct {
	h       *Handler
	w       http.ResponseWriter
	rc      *http.ResponseController
	r       *http.Request
	buf     bytes.Buffer // frames that were not written yet
	shared  *frames      // of the source, nil if its events are redacted
	last    uint64       // the client's cursor once it has read what was written
	flushed time.Time    // when the last flush began
	beat    *time.Timer  // fires when the stream has been silent for too long
}

// resumption is how often a stream asks Find for the run that goes on after a suspended one.
const resumption = time.Second

// stream answers with the events after a cursor, until the run or the client is gone.
func (h *Handler) stream(w http.ResponseWriter, r *http.Request, src Source, after uint64) {
	s := &stream{h: h, w: w, r: r, rc: http.NewResponseController(w), last: after}
	header := w.Header()
	header.Set("Content-Type", streamType+"; charset=utf-8")
	header.Set("Cache-Control", "no-cache, no-transform")
	header.Set("Connection", "keep-alive")
	header.Set("X-Accel-Buffering", "no")
	if r.Method == http.MethodHead {
		return
	}
	s.beat = time.NewTimer(s.heartbeat())
	defer s.beat.Stop()
	// The headers go first, so that the client knows at once that it is connected.
	if err := s.flush(); errors.Is(err, errors.ErrUnsupported) {
		header.Del("Connection")
		header.Del("X-Accel-Buffering")
		h.page(w, r, src, after)
		return
	} else if err != nil {
		return
	}
	// The server ends the response after this function, and the deadline applies to that write, too.
	defer s.deadline()
	if h.Retry > 0 {
		// The field is part of the first event: some clients read fields without data, ended by an empty line, as an event.
		fmt.Fprintf(&s.buf, "retry: %d\n", h.Retry.Milliseconds())
		if s.flush() != nil {
			return
		}
	}
	for {
		if s.follow(src) != nil || src.Status().Terminal() {
			return
		}
		// The run is suspended and its log has ended: it goes on, if it does, as another one.
		next, err := s.resumed(src)
		if err != nil {
			return
		}
		src = next
	}
}

// item is what a source yields.
type item struct {
	event event.Event
	err   error
}

// follow writes the events of a source until it ends, which is no error. It cannot report errors: the client reconnects, and
// either misses nothing or gets the error then.
func (s *stream) follow(src Source) error {
	if s.shared = nil; s.h.Redact == nil {
		shared, leave := s.h.sharing.join(src)
		s.shared = shared
		defer leave()
	}
	ctx, cancel := context.WithCancel(s.r.Context())
	items := make(chan item, 16)
	go read(ctx, src, s.last, items)
	defer func() {
		cancel()
		for range items { // the reader is gone when the channel is closed
		}
	}()
	s.flushed = time.Time{} // what the client has missed goes out at once
	due := time.NewTimer(0) // for the next flush, while one is pending
	due.Stop()
	defer due.Stop()
	pending, atOnce := false, false // there are frames to be flushed; as soon as there are no more items
	for {
		var i item
		more := true
		if atOnce {
			select {
			case i, more = <-items:
			default:
				if err := s.flush(); err != nil {
					return err
				}
				pending, atOnce = false, false
				continue
			}
		} else {
			select {
			case i, more = <-items:
			case <-due.C:
				if err := s.flush(); err != nil {
					return err
				}
				pending = false
				continue
			case <-s.beat.C:
				if err := s.sendHeartbeat(src); err != nil { // which flushes
					return err
				}
				pending = false
				due.Stop()
				continue
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		if !more {
			return s.flush()
		}
		if i.err != nil {
			_ = s.flush() // send the events before the error; if that fails, too, the stream ends anyway
			return i.err
		}
		if err := s.event(i.event); err != nil {
			return err
		}
		if wait := flushEvery - time.Since(s.flushed); !pending && wait > 0 {
			due.Reset(wait)
		} else if !pending {
			atOnce = true
		}
		pending = true
	}
}

// read feeds a stream. It ends when the source does, or ctx.
func read(ctx context.Context, src Source, after uint64, items chan<- item) {
	defer close(items)
	defer func() {
		if v := recover(); v != nil { // on a goroutine of its own a source would take the process down
			select {
			case items <- item{err: fmt.Errorf("sse: panic of a source: %v", v)}:
			case <-ctx.Done():
			}
		}
	}()
	for event, err := range src.Events(ctx, after) {
		select {
		case items <- item{event, err}:
		case <-ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}

// resumed waits for the run that goes on where a suspended one has stopped.
func (s *stream) resumed(src Source) (Source, error) {
	ask := time.NewTicker(resumption)
	defer ask.Stop()
	for {
		select {
		case <-ask.C:
			next, err := s.h.Find(s.r)
			if err != nil {
				return nil, err
			}
			if _, last := next.EventRange(); last > s.last || next.Status() != machine.RunSuspended {
				return next, nil
			}
		case <-s.beat.C:
			if err := s.sendHeartbeat(src); err != nil {
				return nil, err
			}
		case <-s.r.Context().Done():
			return nil, s.r.Context().Err()
		}
	}
}

// flushEvery is how often a stream flushes at most: an event after a pause goes out at once, and events in quick succession together.
const flushEvery = 20 * time.Millisecond

// fullBuffer is how many bytes of frames are written without waiting for the next flush.
const fullBuffer = 32 << 10

// event adds the frame of an event to those that the next flush writes.
func (s *stream) event(e event.Event) error {
	s.buf.Write(s.shared.of(e.ID, func() []byte {
		data := s.h.render(s.r, e)
		if data == nil {
			return fmt.Appendf(nil, "id: %d\n\n", e.ID) // an id without data moves the cursor and is no event
		}
		return fmt.Appendf(make([]byte, 0, len(data)+64), "id: %d\nevent: %s\ndata: %s\n\n", e.ID, e.Type, data)
	}))
	s.last = e.ID
	if s.buf.Len() < fullBuffer {
		return nil
	}
	return s.write()
}

// sendHeartbeat writes a heartbeat. It has no id: it is not part of the run's log.
func (s *stream) sendHeartbeat(src Source) error {
	beat := src.Heartbeat()
	beat.ID = 0
	beat.Payload = event.Beat{Last: s.last} // the last event of this stream: its client has not missed later ones
	if data := s.h.render(s.r, beat); data != nil {
		fmt.Fprintf(&s.buf, "event: %s\ndata: %s\n\n", event.Heartbeat, data)
	} else {
		s.buf.WriteString(":\n") // a comment without an empty line, which would end the event that the retry field has begun
	}
	return s.flush()
}

// deadline sets the deadline of the next write. A writer that does not support deadlines has those of its server.
func (s *stream) deadline() {
	_ = s.rc.SetWriteDeadline(time.Now().Add(cmp.Or(s.h.WriteTimeout, defaultWriteTimeout)))
}

// write writes the frames so far, in one piece.
func (s *stream) write() error {
	if s.buf.Len() == 0 {
		return nil
	}
	s.deadline()
	_, err := s.w.Write(s.buf.Bytes())
	s.buf.Reset()
	return err
}

// flush writes the frames so far, sends them to the client, and then removes the deadline: HTTP/2 would reset an idle stream whose deadline
// passes, also one that the server has set.
func (s *stream) flush() error {
	s.flushed = time.Now()
	if s.buf.Len() == 0 {
		s.deadline()
	} else if err := s.write(); err != nil {
		return err
	}
	if err := s.rc.Flush(); err != nil {
		return err
	}
	s.beat.Reset(s.heartbeat())
	_ = s.rc.SetWriteDeadline(time.Time{})
	return nil
}

func (s *stream) heartbeat() time.Duration { return cmp.Or(s.h.Heartbeat, defaultHeartbeat) }

// render returns the JSON form of an event as the client may see it, one line; nil if the event is withheld.
func (h *Handler) render(r *http.Request, e event.Event) []byte {
	if h.Redact != nil {
		shown, ok := h.Redact(r, e)
		if !ok {
			return nil
		}
		shown.ID, shown.Type = e.ID, e.Type
		e = shown
	}
	data, err := e.MarshalJSON() // by json.Marshal it would be compacted a second time
	if err != nil {
		return nil // only a payload that Redact has made up cannot be encoded
	}
	return data
}
