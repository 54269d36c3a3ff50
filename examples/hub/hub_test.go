package main

import (
	"io"
	"testing"
)

// TestHub checks that the promises are kept whatever the order of the answers.
func TestHub(t *testing.T) {
	for seed := range uint64(200) {
		if err := run(io.Discard, seed); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}
