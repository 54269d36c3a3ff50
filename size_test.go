package kahn_test

import "os"

// long reports whether what is long by nature is to run at its full length.
func long() bool { return os.Getenv("KAHN_LONG") != "" }

// size chooses how much of a search is done: usually, under the race detector, which is slow, and at full length.
func size(usual, race, full int) int {
	switch {
	case long():
		return full
	case raceEnabled:
		return race
	}
	return usual
}
