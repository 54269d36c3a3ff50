package conformance_test

import (
	"iter"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"github.com/seed-c794f7ef/kahn/internal/race"
)

// long reports whether what is long by nature is to run at its full length.
func long() bool { return os.Getenv("KAHN_LONG") != "" }

// size chooses how much of a search is done: usually, under the race detector, which is slow, and at full length.
func size(usual, raced, full int) int {
	switch {
	case long():
		return full
	case race.Enabled:
		return raced
	}
	return usual
}

// firstSeed returns the seed at which a search begins: 0. In the long mode it returns a fresh one below 1e9, or the value of KAHN_FIRST, and logs it.
func firstSeed(t *testing.T) uint64 {
	t.Helper()
	if !long() {
		return 0
	}
	first := rand.Uint64N(1e9)
	if text := os.Getenv("KAHN_FIRST"); text != "" {
		n, err := strconv.ParseUint(text, 10, 32)
		if err != nil {
			t.Fatal(err)
		}
		first = n
	}
	t.Logf("KAHN_FIRST=%d", first)
	return first
}

// seeds yields n seeds, beginning with firstSeed.
func seeds(t *testing.T, n int) iter.Seq[uint64] {
	t.Helper()
	first := firstSeed(t)
	return func(yield func(uint64) bool) {
		for seed := range uint64(n) {
			if !yield(first + seed) {
				return
			}
		}
	}
}
