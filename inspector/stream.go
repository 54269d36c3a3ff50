package inspector

import (
	"net/http"
	"time"

	"github.com/seed-c794f7ef/kahn"
)

// streamWrite is the maximum duration of a write to the client of a stream.
const streamWrite = 10 * time.Second

// The method `stream` sends changes until the client is gone, has lost the permission View, or may no longer know of the run that the request
// names.
func (c *call) stream() (any, error) {
	var sees func(*kahn.Run) bool
	if c.h.Visible != nil {
		sees = func(run *kahn.Run) bool { return c.h.seesLive(c.r, run) }
	}
	page, ok := c.h.hub.join(c.query.text("run"), c.h.MaxStreams, sees)
	if !ok {
		c.w.Header().Set("Retry-After", "5")
		return nil, &fault{Status: http.StatusServiceUnavailable, Code: "too_many_streams", Message: "too many pages are open; Options.MaxStreams is their maximum"}
	}
	defer c.h.hub.leave(page)
	header := c.w.Header()
	header.Set("Content-Type", "text/event-stream; charset=utf-8")
	header.Set("Cache-Control", "no-cache, no-transform")
	header.Set("X-Accel-Buffering", "no")
	if c.r.Method == http.MethodHead {
		return nil, nil
	}
	rc := http.NewResponseController(c.w)
	write := func(messages ...[]byte) error {
		_ = rc.SetWriteDeadline(time.Now().Add(streamWrite)) // if c.w does not support write deadlines, the server's timeout applies
		for _, m := range messages {
			if _, err := c.w.Write(m); err != nil {
				return err
			}
		}
		if err := rc.Flush(); err != nil {
			return err
		}
		_ = rc.SetWriteDeadline(time.Time{})
		return nil
	}
	ask := time.NewTicker(c.h.Reauthorize)
	defer ask.Stop()
	err := write(hello)
	for err == nil {
		select {
		case <-page.wake:
			err = write(c.h.hub.take(page)...)
		case <-ask.C:
			if c.h.admit(c.r) != nil || !c.seesTarget() {
				return nil, nil
			}
			err = write([]byte(": \n\n"))
		case <-c.r.Context().Done():
			return nil, nil
		}
	}
	return nil, nil // no error: the client is gone, and will read everything again when it returns
}
