package kahn

import (
	"fmt"
	"strings"

	"github.com/seed-c794f7ef/kahn/internal/foreign"
)

// Request tells who asks for a run to be stopped or redriven, and why: see [Run.CancelBy], [Run.AbortAllBy] and [RedriveBy].
// Both texts are for people and for logs; neither changes what happens. They are shortened to about a kilobyte each, and kept in
// the Result, in events, in snapshots and in stores.
type Request struct {
	// Actor names the person or program that asks.
	Actor string `json:"actor,omitempty"`
	// Reason is why.
	Reason string `json:"reason,omitempty"`
}

// String renders the request as a part of a line: by "ann" because "wrong input". Both texts are quoted and shortened.
func (q Request) String() string {
	var parts []string
	if q.Actor != "" {
		parts = append(parts, fmt.Sprintf("by %.60q", q.Actor))
	}
	if q.Reason != "" {
		parts = append(parts, fmt.Sprintf("because %.200q", q.Reason))
	}
	return strings.Join(parts, " ")
}

// boundedRequest is bounded for a request that may be missing, of a file that others may have written.
func boundedRequest(q *Request) *Request {
	if q == nil {
		return nil
	}
	b := q.bounded()
	return &b
}

func (q Request) bounded() Request {
	return Request{foreign.Shorten(strings.ToValidUTF8(q.Actor, "\uFFFD")), foreign.Shorten(strings.ToValidUTF8(q.Reason, "\uFFFD"))}
}

// said is the request, or nil if both texts are empty.
func (q *Request) said() *Request {
	if q == nil || *q == (Request{}) {
		return nil
	}
	return q
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
