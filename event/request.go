package event

import (
	"fmt"
	"strings"
)

// Request says who requests a stop or a redrive of a run, and why: see Run.Cancel, Run.AbortAll and Redrive of package kahn. The two texts are for
// display and logs only. kahn shortens each text to about a kilobyte, and keeps it in the Result, in events, in snapshots and in stores.
type Request struct {
	// Actor names the person or program that makes the request.
	Actor string `json:"actor,omitempty"`
	// Reason says why the actor makes the request.
	Reason string `json:"reason,omitempty"`
}

// String renders the request as a part of a line, for example: by "ann" because "wrong input". Both texts are quoted and shortened.
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

// The method `said` returns the request, or nil if both texts are empty.
func (q *Request) said() *Request {
	if q == nil || *q == (Request{}) {
		return nil
	}
	return q
}
