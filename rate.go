package kahn

import (
	"container/heap"
	"fmt"
	"math"
	"time"
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
	gain, cost := r.parts()
	if burst := int64(max(r.Burst, 1)); burst > (math.MaxInt64-gain)/cost {
		return fmt.Errorf("%w: rate of %v: the burst is longer than %v", ErrBadValue, r, time.Duration(math.MaxInt64))
	}
	return nil
}

// parts are the units that a bucket counts in, so that it needs no fractions: each nanosecond brings gain of them, and a token
// is worth cost.
func (r Rate) parts() (gain, cost int64) {
	a, b := int64(r.Starts), int64(r.Per)
	for b != 0 {
		a, b = b, a%b
	}
	return int64(r.Starts) / a, int64(r.Per) / a
}

// bucket is a token bucket. Times are nanoseconds of a clock that its owner chooses; a clock that runs backwards counts as
// standing still.
type bucket struct {
	gain, cost int64
	size       int64 // parts that it holds at most
	level      int64 // parts in it at the time at
	at         int64
}

// newBucket returns a full bucket, nil for the zero Rate.
func newBucket(r Rate, now int64) *bucket {
	if r == (Rate{}) {
		return nil
	}
	gain, cost := r.parts()
	size := cost * int64(max(r.Burst, 1))
	return &bucket{gain: gain, cost: cost, size: size, level: size, at: now}
}

func (b *bucket) refill(now int64) {
	if now <= b.at {
		return
	}
	if passed := now - b.at; passed > (b.size-b.level)/b.gain {
		b.level = b.size
	} else {
		b.level += passed * b.gain
	}
	b.at = now
}

// tokens returns how many tokens are in the bucket.
func (b *bucket) tokens(now int64) int64 {
	b.refill(now)
	return b.level / b.cost
}

// take takes a token, which must be there.
func (b *bucket) take() { b.level -= b.cost }

// put returns a token that was not needed.
func (b *bucket) put() { b.level = min(b.level+b.cost, b.size) }

// full reports whether the bucket is full, like a new one.
func (b *bucket) full(now int64) bool {
	b.refill(now)
	return b.level == b.size
}

// next returns when the bucket holds one token more than now, if none is taken. ok is false if it is full.
func (b *bucket) next() (at int64, ok bool) {
	missing := b.cost - b.level%b.cost
	if missing > b.size-b.level {
		return 0, false
	}
	return saturatingAdd(b.at, (missing-1)/b.gain+1), true
}

// awaited is a queue of the holders of buckets, such as groups, for whose next token a node waits, ordered by the time when
// it falls due.
type awaited[T dated] []T

type dated interface{ date() *appointment }

// appointment is the place of a holder among the awaited.
type appointment struct {
	due   int64
	index int // plus one; 0 means that it is not there
}

func (a *appointment) date() *appointment { return a }

// add reports whether x is the first now, and was not there before.
func (q *awaited[T]) add(x T, due int64) (first bool) {
	a := x.date()
	if a.index > 0 {
		return false
	}
	a.due = due
	heap.Push(q, x)
	return a.index == 1
}

// next takes out the first that is due by now.
func (q *awaited[T]) next(now int64) (x T, ok bool) {
	if len(*q) == 0 || (*q)[0].date().due > now {
		return x, false
	}
	return heap.Pop(q).(T), true
}

func (q awaited[T]) Len() int           { return len(q) }
func (q awaited[T]) Less(i, j int) bool { return q[i].date().due < q[j].date().due }

func (q awaited[T]) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].date().index, q[j].date().index = i+1, j+1
}

func (q *awaited[T]) Push(x any) {
	*q = append(*q, x.(T))
	x.(T).date().index = len(*q)
}

func (q *awaited[T]) Pop() any {
	last := len(*q) - 1
	x := (*q)[last]
	clear((*q)[last:])
	*q = (*q)[:last]
	x.date().index = 0
	return x
}
