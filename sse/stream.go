package sse

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/machine"
)

// The type `stream` is the response to one request. All its methods run on the request's goroutine. A feed reads the source on another goroutine.
type stream struct {
	h    *Handler
	w    http.ResponseWriter
	rc   *http.ResponseController
	r    *http.Request
	last uint64      // the id of the last written event; before the first event, the client's cursor
	beat *time.Timer // fires when the stream has been silent for too long
}

// resumption is the interval at which the stream of a suspended run calls Find, to get the Source with which the run continues.
const resumption = time.Second

// The method `stream` responds with the events after a cursor, until the run has ended or the client is gone.
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
	// The headers are sent first, so that the client knows at once that it is connected.
	if err := s.send(nil); errors.Is(err, errors.ErrUnsupported) {
		header.Del("Connection")
		header.Del("X-Accel-Buffering")
		h.page(w, r, src, after)
		return
	} else if err != nil {
		return
	}
	// The server writes the end of the response after this function has returned. This last write must have a deadline, too.
	defer s.deadline()
	if h.Retry > 0 {
		// No empty line follows the retry field, so the field is part of the first event. Some clients treat a retry field with an empty line as an event.
		if s.send(fmt.Appendf(nil, "retry: %d\n", h.Retry.Milliseconds())) != nil {
			return
		}
	}
	for {
		if s.follow(src) != nil || src.Status().Terminal() {
			return
		}
		// The run is suspended and its log has ended. If the run continues, Find returns another Source.
		next, err := s.resumed(src)
		if err != nil {
			return
		}
		src = next
	}
}

// The method `follow` writes the events of a source. It returns nil if the source ends without an error. The client does not see an
// error of the source: it reconnects, and then gets the events that it has not seen, or an error response.
func (s *stream) follow(src Source) error {
	f, leave := s.h.feeds.join(src, s.last, s.h)
	defer leave()
	for {
		next := f.after(s.last)
		switch {
		case next.chunk != nil:
			frames := next.chunk.frames
			for _, e := range next.chunk.events {
				frames = append(frames, s.h.frame(s.r, e)...)
			}
			if err := s.send(frames); err != nil {
				return err
			}
			s.last = next.chunk.last
		case next.behind:
			if err := s.catchUp(src, &f.segments, next.upTo); err != nil {
				return err
			}
		case next.ended:
			return next.err
		default:
			select {
			case <-next.wait:
			case <-s.beat.C:
				if err := s.sendHeartbeat(src); err != nil {
					return err
				}
			case <-s.r.Context().Done():
				return s.r.Context().Err()
			}
		}
	}
}

// The method `resumed` calls Find until the returned Source has new events or is not suspended. Then it returns this Source.
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

// The function `contain` recovers from a panic while a source is read or an event is encoded. It logs the panic, and sets *err to an error that
// contains the value of the panic. The client sees only the end of its stream. Callers defer contain.
func contain(err *error) {
	if v := recover(); v != nil {
		*err = fmt.Errorf("sse: panic while events are read: %v", v)
		slog.Error("sse: a panic has ended a stream", "panic", fmt.Sprint(v))
	}
}

// The method `frame` returns the bytes that a stream sends for an event. Only Redact uses r.
func (h *Handler) frame(r *http.Request, e event.Event) []byte {
	data := h.render(r, e)
	if data == nil {
		return fmt.Appendf(nil, "id: %d\n\n", e.ID) // an id without data sets the client's cursor and is not an event
	}
	return fmt.Appendf(make([]byte, 0, len(data)+64), "id: %d\nevent: %s\ndata: %s\n\n", e.ID, e.Type, data)
}

// sendHeartbeat writes a heartbeat. The heartbeat has no id, since it is not part of the run's log.
func (s *stream) sendHeartbeat(src Source) error {
	beat := src.Heartbeat()
	beat.ID = 0
	beat.Payload = event.Beat{Last: s.last} // this stream's last event, which may be earlier than the last event of the log
	if data := s.h.render(s.r, beat); data != nil {
		return s.send(fmt.Appendf(nil, "event: %s\ndata: %s\n\n", event.Heartbeat, data))
	}
	// The heartbeat is withheld, so the stream sends a comment instead. An empty line after it would end the block that begins with the retry field.
	return s.send([]byte(":\n"))
}

// The method `deadline` sets the deadline of the next write. If the writer does not support deadlines, the server's own deadline remains.
func (s *stream) deadline() {
	_ = s.rc.SetWriteDeadline(time.Now().Add(cmp.Or(s.h.WriteTimeout, defaultWriteTimeout)))
}

// The method `send` writes frames in one write and flushes them. Then it removes the write deadline, because HTTP/2 resets a stream at its deadline
// even if nothing is being written. A write deadline that the server has set is removed, too.
func (s *stream) send(frames []byte) error {
	s.deadline()
	if len(frames) > 0 {
		if _, err := s.w.Write(frames); err != nil {
			return err
		}
	}
	if err := s.rc.Flush(); err != nil {
		return err
	}
	s.beat.Reset(s.heartbeat())
	_ = s.rc.SetWriteDeadline(time.Time{})
	return nil
}

func (s *stream) heartbeat() time.Duration { return cmp.Or(s.h.Heartbeat, defaultHeartbeat) }

// The method `render` returns the version of an event that the client may see, as JSON on one line. It returns nil if the event is withheld or cannot
// be encoded.
func (h *Handler) render(r *http.Request, e event.Event) []byte {
	if h.Redact != nil {
		shown, ok := h.Redact(r, e)
		if !ok {
			return nil
		}
		shown.ID, shown.Type = e.ID, e.Type
		e = shown
	}
	data, err := e.MarshalJSON() // a direct call, since json.Marshal would compact the result a second time
	if err != nil {
		return nil // only the encoding of a payload from Redact can fail
	}
	return data
}
