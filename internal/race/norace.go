//go:build !race

// Package race reports whether the race detector is on. With the detector, tests of large graphs take ten times the time and memory.
package race

// Enabled reports whether the program was built with the race detector.
const Enabled = false
