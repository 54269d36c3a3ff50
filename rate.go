package kahn

import (
	"fmt"
	"math"
	"time"

	"github.com/seed-c794f7ef/kahn/internal/bucket"
)

// Rate bounds how often attempts start: Starts in each interval Per, a first attempt and a retry alike. It is a token bucket: a
// token comes every Per/Starts, the bucket holds at most Burst of them and is full at the start of a run's life, and each attempt
// takes one when it starts. So no window of length Per holds more than Starts+Burst starts. The zero Rate bounds nothing.
//
// An attempt that lacks a token waits as one that lacks a slot of [Limit] does: it holds nothing, and only OverallTimeout
// and the run's [Timeout] run meanwhile. Nodes that do not call a step take no token: gates, triggers, conditions with a
// Test, composites, mocked nodes, nodes whose inputs are refused, and nodes whose output comes from a [Memo]. Neither do the
// cleanup nodes and the end node of a run that is being stopped, for such a run is to end soon.
type Rate struct {
	// Starts is how many attempts may start in each interval.
	Starts int
	// Per is the length of the interval.
	Per time.Duration
	// Burst is how many tokens can be saved up. Zero means 1: attempts start evenly spaced.
	Burst int
}

// String returns the rate as "10 per 1s, burst 5", and "no rate" for the zero value.
func (r Rate) String() string {
	if r == (Rate{}) {
		return "no rate"
	}
	return fmt.Sprintf("%d per %v, burst %d", r.Starts, r.Per, max(r.Burst, 1))
}

// validate refuses a rate at which nothing would ever start, or whose bucket cannot be counted in an int64.
func (r Rate) validate() error {
	switch {
	case r == Rate{}:
		return nil
	case r.Starts <= 0:
		return fmt.Errorf("%w: Rate.Starts %d is not positive", ErrBadValue, r.Starts)
	case r.Per <= 0:
		return fmt.Errorf("%w: Rate.Per %v is not positive", ErrBadValue, r.Per)
	case r.Burst < 0:
		return fmt.Errorf("%w: Rate.Burst %d is negative", ErrBadValue, r.Burst)
	}
	if !r.count().Fits() {
		return fmt.Errorf("%w: rate of %v: the burst is longer than %v", ErrBadValue, r, time.Duration(math.MaxInt64))
	}
	return nil
}

// count is the rate as buckets count it.
func (r Rate) count() bucket.Rate {
	return bucket.Rate{Starts: r.Starts, Per: int64(r.Per), Burst: r.Burst}
}
