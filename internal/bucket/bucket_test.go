package bucket

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
)

// TestBucketIsExact compares the bucket with rational numbers: after any sequence of calls, the bucket has exactly the number of tokens
// that the arithmetic with rational numbers gives.
func TestBucketIsExact(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		rate := Rate{Starts: 1 + rnd.IntN(50), Per: 1 + rnd.Int64N(1000), Burst: rnd.IntN(5)}
		if !rate.Fits() {
			t.Fatal(rate)
		}
		size := big.NewRat(int64(max(rate.Burst, 1)), 1)
		level, at := new(big.Rat).Set(size), int64(0)
		b := New(rate, 0)
		for range 40 {
			now := at + rnd.Int64N(60)
			level.Add(level, big.NewRat((now-at)*int64(rate.Starts), rate.Per))
			if level.Cmp(size) > 0 {
				level.Set(size)
			}
			at = now
			whole := new(big.Int).Quo(level.Num(), level.Denom()).Int64()
			if got := b.Tokens(now); got != whole {
				t.Fatalf("%v at %d: %d tokens, expected %v", rate, now, got, level)
			}
			if whole > 0 && rnd.IntN(2) == 0 {
				b.Take()
				level.Sub(level, big.NewRat(1, 1))
			}
			if due, _ := b.Next(); level.Cmp(big.NewRat(1, 1)) < 0 {
				// At the time due there is a token, and one nanosecond before there is none.
				missing := new(big.Rat).Sub(big.NewRat(1, 1), level)
				missing.Mul(missing, big.NewRat(rate.Per, int64(rate.Starts)))
				if got := big.NewRat(due-at, 1); got.Cmp(missing) < 0 || got.Sub(got, missing).Cmp(big.NewRat(1, 1)) >= 0 {
					t.Fatalf("%v at %d with %v: due at %d", rate, at, level, due)
				}
			}
		}
	}
}

// At math.MaxInt64 the bucket is full, even if its tokens would fall due later, and however many tokens were taken.
func TestBucketAtTheEndOfTheClock(t *testing.T) {
	b := New(Rate{Starts: 1, Per: 1000}, math.MaxInt64-500)
	b.Take()
	due, ok := b.Next()
	if due != math.MaxInt64 || !ok {
		t.Fatal(due, ok)
	}
	for range 3 {
		if got := b.Tokens(due); got != 1 {
			t.Fatalf("%d tokens where the clock stops", got)
		}
		b.Take()
	}
}
