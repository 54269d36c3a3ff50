package conformance_test

import (
	"iter"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"github.com/seed-c794f7ef/kahn/internal/race"
)

// long reports whether long tests run at full length.
func long() bool { return os.Getenv("KAHN_LONG") != "" }

// size returns the size of a search: usual, raced under the slow race detector, or full in the long mode.
func size(usual, raced, full int) int {
	switch {
	case long():
		return full
	case race.Enabled:
		return raced
	}
	return usual
}

// firstSeed returns and logs the seed at which a search begins: 0, or in the long mode the value of KAHN_FIRST or a random seed below 1e9.
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

// seeds yields n seeds, starting with firstSeed.
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
