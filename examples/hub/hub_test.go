package main

import (
	"bytes"
	"io"
	"strings"
	"testing"
)

func TestCommand(t *testing.T) {
	var out, errs bytes.Buffer
	code := command([]string{"-seed", "7"}, &out, &errs)
	text := out.String()
	if code != 0 || errs.Len() > 0 || !strings.HasPrefix(text, "A hub starts") || !strings.Contains(text, "As it should be") {
		t.Errorf("exit code %d\n%s%s", code, text, &errs)
	}
	for _, args := range [][]string{{"-sede", "7"}, {"7"}, {"-seed", "x"}} {
		out.Reset()
		errs.Reset()
		if code := command(args, &out, &errs); code != 2 || out.Len() > 0 || errs.Len() == 0 {
			t.Errorf("%v: exit code %d\n%s", args, code, &errs)
		}
	}
}

// TestHub checks that the results are as expected for any order of the answers.
func TestHub(t *testing.T) {
	for seed := range uint64(200) {
		if err := run(io.Discard, seed); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}
