package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/seed-c794f7ef/kahn/store/postgres/localserver"
)

// TestMain lets the test binary act as one of the processes that the program starts.
func TestMain(m *testing.M) {
	if os.Getenv(lifeVariable) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

func TestCommand(t *testing.T) {
	var out, errs bytes.Buffer
	code := command(nil, &out, &errs)
	text := out.String()
	for _, want := range []string{"process 1 is killed", "process 2 continues order-2, order-3, order-4\n", "repeated: order-2 ship, order-4 pay;", "not repeated: 14 steps", "As it should be"} {
		if code != 0 || errs.Len() > 0 || !strings.Contains(text, want) {
			t.Errorf("exit code %d\n%s%s", code, text, &errs)
		}
	}
	for _, args := range [][]string{{"-x"}, {"7"}, {"-workers", "1"}, {"-postgres", ""}, {"-postgres", "local", "-workers", "2"}} {
		out.Reset()
		errs.Reset()
		if code := command(args, &out, &errs); code != 2 || out.Len() > 0 || errs.Len() == 0 {
			t.Errorf("%v: exit code %d\n%s", args, code, &errs)
		}
	}
}

func TestWorkers(t *testing.T) {
	var out, errs bytes.Buffer
	code := command([]string{"-workers", "3"}, &out, &errs)
	for _, want := range []string{"the performer is killed", "30 orders: 24 completed, 6 cancelled;", "As it should be"} {
		if code != 0 || errs.Len() > 0 || !strings.Contains(out.String(), want) {
			t.Errorf("exit code %d\n%s%s", code, &out, &errs)
		}
	}
}

func TestPostgres(t *testing.T) {
	var out, errs bytes.Buffer
	code := command([]string{"-postgres", "local"}, &out, &errs)
	if strings.Contains(errs.String(), localserver.ErrNoServer.Error()) {
		t.Skip(errs.String())
	}
	for _, want := range []string{"performer-2 is killed", "100 orders: 80 completed, 20 cancelled;", "recorded twice: 0", "As it should be"} {
		if code != 0 || errs.Len() > 0 || !strings.Contains(out.String(), want) {
			t.Errorf("exit code %d\n%s%s", code, &out, &errs)
		}
	}
	out.Reset()
	if code := command([]string{"-postgres", "postgres://nobody@127.0.0.1:1/none"}, &out, &errs); code != 1 || errs.Len() == 0 {
		t.Errorf("exit code %d\n%s%s", code, &out, &errs)
	}
}
