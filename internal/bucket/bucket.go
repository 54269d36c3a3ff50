// Package bucket implements token buckets with integer arithmetic.
package bucket

import (
	"math"

	"github.com/seed-c794f7ef/kahn/internal/saturate"
)

// Rate is the speed at which a bucket fills: Starts tokens every Per nanoseconds, up to Burst tokens. A Burst of 0 means 1.
type Rate struct {
	Starts int
	Per    int64
	Burst  int
}

// The method `parts` divides a token into parts, so that no fractions occur. Each nanosecond adds `gain` parts to the bucket, and a token consists
// of `cost` parts.
func (r Rate) parts() (gain, cost int64) {
	a, b := int64(r.Starts), r.Per
	for b != 0 {
		a, b = b, a%b
	}
	return int64(r.Starts) / a, r.Per / a
}

// Fits reports whether the contents of a full bucket can be counted in an int64.
func (r Rate) Fits() bool {
	gain, cost := r.parts()
	return int64(max(r.Burst, 1)) <= (math.MaxInt64-gain)/cost
}

// Bucket is a token bucket. Times are in nanoseconds, by a clock that the bucket's owner chooses. The bucket ignores a time that is before the latest
// time it has seen. At [math.MaxInt64], the last possible time, the bucket is always full: a token that is missing then could not arrive later.
type Bucket struct {
	gain, cost int64
	size       int64 // parts in a full bucket
	level      int64 // parts in the bucket at the time `at`
	at         int64
}

// New returns a full bucket, or nil for the zero Rate.
func New(r Rate, now int64) *Bucket {
	if r == (Rate{}) {
		return nil
	}
	gain, cost := r.parts()
	size := cost * int64(max(r.Burst, 1))
	return &Bucket{gain: gain, cost: cost, size: size, level: size, at: now}
}

func (b *Bucket) refill(now int64) {
	if now <= b.at && now != math.MaxInt64 {
		return
	}
	if now == math.MaxInt64 { // at the last possible time the bucket is always full
		b.level = b.size
	} else if passed := now - b.at; passed > (b.size-b.level)/b.gain {
		b.level = b.size
	} else {
		b.level += passed * b.gain
	}
	b.at = now
}

// Tokens returns the number of tokens in the bucket.
func (b *Bucket) Tokens(now int64) int64 {
	b.refill(now)
	return b.level / b.cost
}

// Take removes a token. The bucket must contain a token.
func (b *Bucket) Take() { b.level -= b.cost }

// Put puts back a token that was taken but not needed.
func (b *Bucket) Put() { b.level = min(b.level+b.cost, b.size) }

// Contents returns the parts in the bucket and the latest time that the bucket has seen. Refill restores both.
func (b *Bucket) Contents() (level, at int64) { return b.level, b.at }

// Refill sets the level and the time to values that Contents has returned. It limits the level to the size of the bucket.
func (b *Bucket) Refill(level, at int64) { b.level, b.at = min(max(level, 0), b.size), at }

// Full reports whether the bucket is full, like a new one.
func (b *Bucket) Full(now int64) bool {
	b.refill(now)
	return b.level == b.size
}

// Next returns the time at which the next token falls due if no token is taken before. The result `ok` is false if the bucket is full.
func (b *Bucket) Next() (at int64, ok bool) {
	missing := b.cost - b.level%b.cost
	if missing > b.size-b.level {
		return 0, false
	}
	return saturate.Add(b.at, (missing-1)/b.gain+1), true
}
