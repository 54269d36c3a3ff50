package kahntest

import (
	"bytes"
	"cmp"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/seed-c794f7ef/kahn/event"
)

// GoldenVariable is the name of an environment variable. If the variable is not empty, [Golden] writes its files instead of comparing them:
//
//	KAHNTEST_WRITE=1 go test ./...
const GoldenVariable = "KAHNTEST_WRITE"

// Golden renders the events of a run with [Stream], compares the text with a file, and reports the first line that differs. If the environment
// variable [GoldenVariable] is not empty, Golden writes the file instead. Events of nodes that run at the same time may come in any order. To fix the
// order, pass kahn.Limit(1) to the run, or pass the events through [ByNode].
func Golden(t testing.TB, file string, events []event.Event) {
	t.Helper()
	got := Stream(events)
	if os.Getenv(GoldenVariable) != "" {
		err := os.MkdirAll(filepath.Dir(file), 0o750)
		if err == nil {
			err = os.WriteFile(file, []byte(got), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v; %s=1 writes the file", err, GoldenVariable)
	}
	if difference := firstDifference(got, strings.ReplaceAll(string(want), "\r\n", "\n")); difference != "" {
		t.Errorf("the events differ from %s; %s=1 writes the file again\n%s", file, GoldenVariable, difference)
	}
}

// firstDifference returns a text that shows the first line in which the texts differ, or "" if the texts are equal.
func firstDifference(got, want string) string {
	if got == want {
		return ""
	}
	a, b := strings.Split(got, "\n"), strings.Split(want, "\n")
	i := 0
	for i < min(len(a), len(b)) && a[i] == b[i] {
		i++
	}
	line := func(lines []string) string {
		if i >= len(lines) || i == len(lines)-1 && lines[i] == "" {
			return "(no more events)"
		}
		return lines[i]
	}
	return "event " + strconv.Itoa(i+1) + "\nactual   " + line(a) + "\nexpected " + line(b)
}

// notInStream lists the attributes that Stream omits: the level, and the attributes that differ from run to run.
var notInStream = []string{slog.TimeKey, slog.LevelKey, "run_id", "trace_id", "event_id", "duration", "delay", "deadline"}

// Stream renders events as text, one per line. A line has the attributes that [event.LogTo] logs, except the time, level, run_id, trace_id, event_id,
// duration, delay and deadline. Events that differ only in these attributes have equal lines.
func Stream(events []event.Event) string {
	var b bytes.Buffer
	sink := event.LogTo(slog.New(slog.NewTextHandler(&b, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if slices.Contains(notInStream, a.Key) {
			return slog.Attr{}
		}
		return a
	}})))
	for _, e := range events {
		sink(e)
	}
	return b.String()
}

// ByNode returns the events in another order: first the events of the run itself, then the events of each node, by path. This order does not depend
// on which nodes run at the same time. The events of one node keep their order, and so do the events of the run itself.
func ByNode(events []event.Event) []event.Event {
	events = slices.Clone(events)
	slices.SortStableFunc(events, func(a, b event.Event) int { return cmp.Compare(a.Path, b.Path) })
	return events
}
