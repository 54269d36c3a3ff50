package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

// TestMain makes the test binary one of the processes that the program starts.
func TestMain(m *testing.M) {
	if os.Getenv(dirVariable) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

func TestCommand(t *testing.T) {
	var out, errs bytes.Buffer
	code := command(nil, &out, &errs)
	text := out.String()
	for _, want := range []string{"process 1 is killed", "process 2 goes on with order-2, order-3, order-4\n", "repeated: order-2 ship, order-4 pay;", "not repeated: 14 steps", "As it should be"} {
		if code != 0 || errs.Len() > 0 || !strings.Contains(text, want) {
			t.Errorf("exit code %d\n%s%s", code, text, &errs)
		}
	}
	for _, args := range [][]string{{"-x"}, {"7"}} {
		out.Reset()
		errs.Reset()
		if code := command(args, &out, &errs); code != 2 || out.Len() > 0 || errs.Len() == 0 {
			t.Errorf("%v: exit code %d\n%s", args, code, &errs)
		}
	}
}
