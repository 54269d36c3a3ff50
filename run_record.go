package kahn

import (
	"encoding/json"
	"time"

	"github.com/seed-c794f7ef/kahn/event"
)

// record is the data that a run keeps of every node. It is written under the lock, and never again once the node is
// terminal, unless a store refuses or loses the node's end. Like the State's word of a terminal node it may then be read without the lock,
// except in a durable run by what is called before that end is stored: guards and merges.
type record struct {
	first    Step  // the first attempt; later ones and fallbacks have Steps of their own
	value    any   // completed: the output; failed: the error
	start    int64 // of the first attempt, in ns since the run's start
	end      int64 // of the last attempt
	attempts int32
	active   activeStep // which Step is that of the running attempt, if any; no pointer, see attemptContext
	fallback bool
	noRetry  event.NoRetry // of a failed node whose attempt failed
	returned bool          // the step of the running attempt has returned, and waits before it ends until its store has room
}

type activeStep uint8

const (
	activeNone activeStep = iota
	activeFirst
	activeLater // the one in extra
)

// current returns the Step of the node's current attempt, while it runs; else nil.
func (r *Run) current(ref Ref) *Step {
	rec := &r.records[ref]
	if rec.active == activeFirst {
		return &rec.first
	}
	return r.later(ref)
}

func (r *Run) later(ref Ref) *Step {
	if r.records[ref].active == activeLater {
		return r.extras[ref].later
	}
	return nil
}

// activate makes a Step that of its node's current attempt.
func (r *Run) activate(step *Step) {
	rec := &r.records[step.ref]
	if rec.active = activeFirst; step != &rec.first {
		rec.active = activeLater
		r.extra(step.ref).later = step
	}
}

// errorOf returns the error of a terminal node that failed by itself, or nil.
func (rec *record) errorOf() error {
	err, _ := rec.value.(error)
	return err
}

// extra is the additional record of the few nodes that need one.
type extra struct {
	later     *Step          // of the last attempt or fallback after the first
	errs      []attemptError // of the attempts that were retried, in their order
	began     int64          // of a node that was begun more than once: the last time, in ns since the run's start
	ready     int64          // when it became ready again: after a backoff, or a signal
	lastErr   error          // of the last attempt that was retried, replaced by a fallback, or stopped
	guardErr  error          // why the guard could not decide
	merged    map[string]any // the merged parameters, from the check
	skip      string         // the message of a step that skipped itself
	answer    string         // of a condition, see conclusion
	stop      error          // the cause of the stop, for a node that was stopped by itself
	timedOut  timeoutScope   // of the current attempt
	timeout   time.Duration  // that passed
	overdue   bool           // OverallTimeout has passed after the step of the attempt had returned
	abandoned bool
	behind    bool       // an attempt inside of the composite was abandoned
	deltas    int        // emitted so far, over all attempts
	counted   uint64     // the last transaction whose record of the node counts deltas
	tokens    [2]int     // input and output, reported over all attempts
	comp      *composite // of a composite that has begun, and of a node that has been expanded
	kept      *nodeState // for a node that was expanded in an earlier life, until its graph is known: its state in the snapshot
	answers   int        // signals that were left in kept
	items     *items     // of a map, from the check

	wait      *Wait     // of a suspended node
	answered  *Wait     // the last one that has ended
	saved     any       // the state that the step gave to Suspend or Expand
	decision  *Decision // the signal that answered it, nil without one
	texts     *texts    // of wait, saved and decision; nil for none
	memoized  bool      // the output is that of an earlier run
	reentries int32     // how often the step was entered again in the same attempt
	due       int64     // of a node that backs off: when it is ready, in ns since the run's start
	crashes   int32     // the last attempts that ended with their process
	refused   error     // why the store has refused the output of the last attempt; nil if it has not
	left      bool      // the current attempt was interrupted because the run is being left
	cut       int32     // attempts without a result for that reason: they do not count

	attempt, overall, grace, backoff, gate *alarm // armed ones; nil otherwise
}

// attemptError is the error of an attempt that was retried. Attempts that a crash cut short have none.
type attemptError struct {
	attempt    int32 // 0 for one of an earlier life, which precedes all attempts of this one
	number     int32 // the same, but that of an earlier life is kept; 0 if a file of an older version has not kept it
	err        error
	start, end int64 // ns since the run's start; 0 if a file of an older version has not kept them
	delay      time.Duration
}

func (r *Run) extra(ref Ref) *extra {
	x := r.extras[ref]
	if x == nil {
		if r.extras == nil {
			r.extras = map[Ref]*extra{}
		}
		x = &extra{}
		r.extras[ref] = x
	}
	return x
}

// attemptStart is when the current, or the last, attempt of a node began.
func (r *Run) attemptStart(ref Ref, x *extra) int64 {
	if x != nil && x.began != 0 {
		return x.began
	}
	return r.records[ref].start
}

// attemptOf is the number of an attempt as people count: a step that was suspended is entered again in the same attempt.
func (r *Run) attemptOf(ref Ref, started int32) int32 {
	if x := r.extras[ref]; x != nil {
		return started - x.reentries
	}
	return started
}

// texts are values of a node as the codec has written them: what it waits with, and the signal. Each is nil if the codec was not asked yet.
type texts struct{ info, saved, signal json.RawMessage }

// known returns the texts, none of them for nil.
func (t *texts) known() texts {
	if t == nil {
		return texts{}
	}
	return *t
}
