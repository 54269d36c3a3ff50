package kahn

import (
	"strings"

	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/internal/foreign"
)

// Request tells who asks for a run to be stopped or redriven, and why: see [Run.CancelBy], [Run.AbortAllBy] and [RedriveBy].
// Both texts are for people and for logs; neither changes what happens. They are shortened to about a kilobyte each, and kept in
// the Result, in events, in snapshots and in stores.
type Request = event.Request

// boundedRequest is shortened for a request that may be missing, of a file that others may have written.
func boundedRequest(q *Request) *Request {
	if q == nil {
		return nil
	}
	b := shortened(*q)
	return &b
}

// shortened is a request with texts of bounded length.
func shortened(q Request) Request {
	return Request{Actor: foreign.Shorten(strings.ToValidUTF8(q.Actor, "\uFFFD")), Reason: foreign.Shorten(strings.ToValidUTF8(q.Reason, "\uFFFD"))}
}

// requestOf is the request that q points to, or none.
func requestOf(q *Request) Request {
	if q == nil {
		return Request{}
	}
	return *q
}

// ask keeps the first request to stop the run, with the lock held. It is called before the stop, whose events contain the
// request.
func (r *Run) ask(q Request) {
	if r.asked == nil {
		r.asked = &q
	}
}

// requestFor is the request that made nodes of the run end with a cause of this kind, with the lock held. Nested runs are
// also stopped with such causes without a request.
func (r *Run) requestFor(kind CauseKind) Request {
	asked := r.outermost().asked
	if asked == nil || kind != CauseCancelRun && kind != CauseAbortAll {
		return Request{}
	}
	for ; r.outer != nil; r = r.outer {
		if r.stoppedBy != kind {
			return Request{}
		}
	}
	return *asked
}
