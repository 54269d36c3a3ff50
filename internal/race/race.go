//go:build race

// Package race lets tests of large graphs know whether the race detector is on, which takes ten times the time and memory.
package race

// Enabled reports whether the program was built with the race detector.
const Enabled = true
