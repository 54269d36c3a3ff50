package main

import (
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	var out strings.Builder
	if err := check(t.Context(), &out); err != nil {
		t.Errorf("%v\n%s", err, &out)
	}
}
