//go:build race

package conformance_test

// raceEnabled tells tests of size that the race detector, which takes ten times the time and memory, is at work.
const raceEnabled = true
