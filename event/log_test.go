package event_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/machine"
)

// textLogger returns a logger that writes lines without times and trace ids to a buffer.
func textLogger(out *bytes.Buffer, level slog.Level) *slog.Logger {
	return slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{Level: level, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey || a.Key == "trace_id" {
			return slog.Attr{}
		}
		return a
	}}))
}

// TestLogOfAllTypes: every event type has a level, and is logged with any payload.
func TestLogOfAllTypes(t *testing.T) {
	var out bytes.Buffer
	sink := event.LogTo(textLogger(&out, slog.LevelDebug))
	lines := exampleEvents(t)
	for _, line := range lines {
		var e event.Event
		if err := e.UnmarshalJSON(line); err != nil {
			t.Fatal(err)
		}
		sink(e)
	}
	if n := strings.Count(out.String(), "\n"); n != len(lines) || strings.Contains(out.String(), "!") {
		t.Errorf("%d records of %d events:\n%s", n, len(lines), &out)
	}
	sink(event.Event{ID: 1, Type: event.NodeFailed, Node: "A", Payload: event.NodeEnd{Err: errors.New(strings.Repeat("x", 1<<20))}})
	if out.Len() > 1<<15 {
		t.Errorf("%d bytes logged", out.Len())
	}
}

// TestLogOfCompensations: a failed compensation is logged as an error, and another attempt as a warning. Both records contain the error.
func TestLogOfCompensations(t *testing.T) {
	var out bytes.Buffer
	sink := event.LogTo(textLogger(&out, slog.LevelDebug))
	failed := errors.New("no such booking")
	for _, e := range []event.Event{
		{Type: event.NodeCompensating, Payload: event.Compensation{Certain: true}},
		{Type: event.NodeCompensating, Payload: event.Compensation{Certain: true, Err: failed}},
		{Type: event.NodeCompensated, Payload: event.Compensation{Err: failed, Duration: time.Second}},
		{Type: event.NodeCompensated, Payload: event.Compensation{Duration: time.Second}},
		{Type: event.NodeCompensated, Payload: event.Compensation{Request: event.Request{Actor: "ann", Reason: "paid back"}}},
	} {
		sink(e)
	}
	want := `level=DEBUG msg=node.compensating run_id="" event_id=0 certain=true
level=WARN msg=node.compensating run_id="" event_id=0 certain=true error="no such booking"
level=ERROR msg=node.compensated run_id="" event_id=0 error="no such booking" duration=1s
level=INFO msg=node.compensated run_id="" event_id=0 duration=1s
level=INFO msg=node.compensated run_id="" event_id=0 actor=ann request_reason="paid back"
`
	if out.String() != want {
		t.Errorf("logged:\n%s\nwant:\n%s", &out, want)
	}
}

func ExampleLogTo() {
	logger := slog.New(slog.NewTextHandler(stdout{}, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		switch a.Key {
		case slog.TimeKey, "trace_id", "duration":
			return slog.Attr{}
		}
		return a
	}}))
	sink := event.LogTo(logger) // with kahn.OnEvent(sink) a run logs its events
	sink(event.Event{ID: 1, Type: event.RunStarted, RunID: "1", Payload: event.Start{TotalNodes: 1}})
	sink(event.Event{ID: 4, Type: event.NodeLog, RunID: "1", Node: "greet", Path: "greet", Attempt: 1, Payload: event.LogRecord{Message: "hello"}})
	sink(event.Event{ID: 5, Type: event.NodeCompleted, RunID: "1", Node: "greet", Path: "greet", Attempt: 1, Payload: event.Completion{Duration: time.Second}})
	sink(event.Event{ID: 6, Type: event.RunCompleted, RunID: "1", Payload: event.RunEnd{Status: machine.RunCompleted, TotalSteps: 1}})
	// Output:
	// level=INFO msg=run.started run_id=1 event_id=1 total=1 mode=eager
	// level=INFO msg=hello run_id=1 event_id=4 node=greet attempt=1 tier=0
	// level=INFO msg=node.completed run_id=1 event_id=5 node=greet attempt=1 tier=0
	// level=INFO msg=run.completed run_id=1 event_id=6 status=completed total=1
}

// stdout is a writer that looks up os.Stdout in each Write, because package testing replaces os.Stdout while an example runs.
type stdout struct{}

func (stdout) Write(p []byte) (int, error) { return fmt.Print(string(p)) }
