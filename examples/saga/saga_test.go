package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

// TestMain lets the test binary act as one of the processes that the program starts.
func TestMain(m *testing.M) {
	if os.Getenv(lifeVariable) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

func TestSaga(t *testing.T) {
	var out bytes.Buffer
	if err := run(&out); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	for _, want := range []string{"process 2 is killed while it refunds", "process 3: order-7 failed", "undo ship, which may have had an effect", "under the key of before", "As it should be"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, &out)
		}
	}
}
