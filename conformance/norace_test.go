//go:build !race

package kahn_test

const raceEnabled = false
