package main

import (
	"bytes"
	"strings"
	"testing"
)

// The queue delivers in another order for each seed. The run has the same result.
func TestLambdas(t *testing.T) {
	for seed := range uint64(50) {
		var out bytes.Buffer
		if err := run(&out, seed); err != nil || !strings.Contains(out.String(), "sent again") || !strings.Contains(out.String(), "scan: timed out") {
			t.Fatalf("seed %d: %v\n%s", seed, err, &out)
		}
	}
}
