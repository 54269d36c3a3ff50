package main

import "testing"

func TestGreeting(t *testing.T) {
	if got := greeting("Arthur"); got != "Hello, Arthur!" {
		t.Error(got)
	}
}
