package event_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/kahntest"
)

// textLogger logs lines without times and trace ids to a buffer.
func textLogger(out *bytes.Buffer, level slog.Level) *slog.Logger {
	return slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{Level: level, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey || a.Key == "trace_id" {
			return slog.Attr{}
		}
		return a
	}}))
}

// perform executes a graph and checks its events.
func perform(t *testing.T, g *kahn.Graph, step kahn.StepFunc, opts ...kahn.Option) {
	t.Helper()
	var events []event.Event
	res, _ := kahn.Execute(t.Context(), g, step, append(opts, kahn.OnEvent(func(e event.Event) { events = append(events, e) }))...) // res has the error
	if err := kahntest.CheckEvents(g, res, events); err != nil {
		t.Error(err)
	}
}

func TestLogOfRun(t *testing.T) {
	g := new(kahn.Graph).Add(
		kahn.Node{ID: "A", Retry: kahn.Retry{MaxAttempts: 2, InitialDelay: time.Millisecond, Jitter: kahn.JitterNone}},
		kahn.Node{ID: "B", After: []string{"A"}}, kahn.Node{ID: "C", Disabled: true},
	)
	g.Name = "order"
	step := func(_ context.Context, s *kahn.Step) (any, error) {
		time.Sleep(time.Millisecond)
		if s.ID() == "A" && s.Attempt() == 1 {
			s.Log(slog.LevelDebug+1, "the first time")
			return nil, errors.New("no")
		}
		s.Emit("a secret")
		if s.ID() == "B" {
			return nil, kahn.Permanent(errors.New("never"))
		}
		return nil, nil
	}
	for _, row := range []struct {
		level slog.Level
		want  string
	}{
		{slog.LevelDebug, `
level=INFO msg=run.started run_id=7 event_id=1 workflow=order total=3 mode=eager
level=INFO msg=node.skipped run_id=7 event_id=2 workflow=order node=C attempt=0 tier=0 reason=annotation
level=DEBUG msg=node.queued run_id=7 event_id=3 workflow=order node=A attempt=1 tier=0
level=DEBUG msg=node.started run_id=7 event_id=4 workflow=order node=A attempt=1 tier=0
level=DEBUG+1 msg="the first time" run_id=7 event_id=5 workflow=order node=A attempt=1 tier=0
level=WARN msg=node.retried run_id=7 event_id=6 workflow=order node=A attempt=1 tier=0 cause=step_error delay=1ms error=no
level=DEBUG msg=node.queued run_id=7 event_id=7 workflow=order node=A attempt=2 tier=0
level=DEBUG msg=node.started run_id=7 event_id=8 workflow=order node=A attempt=2 tier=0
level=DEBUG msg=node.stream.delta run_id=7 event_id=9 workflow=order node=A attempt=2 tier=0 index=1
level=INFO msg=node.completed run_id=7 event_id=10 workflow=order node=A attempt=2 tier=0 duration=3ms
level=DEBUG msg=node.queued run_id=7 event_id=11 workflow=order node=B attempt=1 tier=1
level=DEBUG msg=node.started run_id=7 event_id=12 workflow=order node=B attempt=1 tier=1
level=DEBUG msg=node.stream.delta run_id=7 event_id=13 workflow=order node=B attempt=1 tier=1 index=1
level=ERROR msg=node.failed run_id=7 event_id=14 workflow=order node=B attempt=1 tier=1 cause=step_error error=never duration=1ms no_retry=permanent routed_to_end=true original_failed_step=B
level=ERROR msg=run.failed run_id=7 event_id=15 workflow=order status=failed total=3 failed=[B] duration=4ms
`},
		{slog.LevelWarn, `
level=WARN msg=node.retried run_id=7 event_id=6 workflow=order node=A attempt=1 tier=0 cause=step_error delay=1ms error=no
level=ERROR msg=node.failed run_id=7 event_id=14 workflow=order node=B attempt=1 tier=1 cause=step_error error=never duration=1ms no_retry=permanent routed_to_end=true original_failed_step=B
level=ERROR msg=run.failed run_id=7 event_id=15 workflow=order status=failed total=3 failed=[B] duration=4ms
`},
	} {
		synctest.Test(t, func(t *testing.T) {
			var out bytes.Buffer
			perform(t, g, step, kahn.RunID("7"), kahn.OnEvent(event.LogTo(textLogger(&out, row.level))))
			if got := out.String(); got != row.want[1:] {
				t.Errorf("got\n%s\nexpected\n%s", got, row.want)
			}
		})
	}
}

// The size of an output is logged if events carry it, and a failure that is handled is not left to the end of the graph.
func TestLogOfOutputs(t *testing.T) {
	g := new(kahn.Graph).Add(kahn.Node{ID: "A"}, kahn.Node{ID: "B", In: []kahn.Edge{{From: "A", On: kahn.OnFailure}}})
	step := func(_ context.Context, s *kahn.Step) (any, error) {
		if s.ID() == "A" {
			return nil, errors.New("no")
		}
		return "four", nil
	}
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		perform(t, g, step, kahn.RunID("7"), kahn.EventOutputs(100), kahn.OnEvent(event.LogTo(textLogger(&out, slog.LevelInfo))))
		want := `
level=INFO msg=run.started run_id=7 event_id=1 total=2 mode=eager
level=ERROR msg=node.failed run_id=7 event_id=4 node=A attempt=1 tier=0 cause=step_error error=no no_retry=no_policy
level=INFO msg=node.completed run_id=7 event_id=7 node=B attempt=1 tier=1 output_bytes=6
level=INFO msg=run.completed run_id=7 event_id=8 status=completed degraded=true total=2 failed=[A] output_bytes=6
`
		if got := out.String(); got != want[1:] {
			t.Errorf("got\n%s\nexpected\n%s", got, want)
		}
	})
}

// Every type of event has a level, and is logged whatever its payload is.
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

func ExampleLogTo() {
	logger := slog.New(slog.NewTextHandler(stdout{}, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		switch a.Key {
		case slog.TimeKey, "trace_id", "duration":
			return slog.Attr{}
		}
		return a
	}}))
	var g kahn.Graph
	g.Add(kahn.Node{ID: "greet"})
	_, err := kahn.Execute(context.Background(), &g, func(_ context.Context, s *kahn.Step) (any, error) {
		s.Log(slog.LevelInfo, "hello")
		return nil, nil
	}, kahn.RunID("1"), kahn.OnEvent(event.LogTo(logger)))
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// level=INFO msg=run.started run_id=1 event_id=1 total=1 mode=eager
	// level=INFO msg=hello run_id=1 event_id=4 node=greet attempt=1 tier=0
	// level=INFO msg=node.completed run_id=1 event_id=5 node=greet attempt=1 tier=0
	// level=INFO msg=run.completed run_id=1 event_id=6 status=completed total=1
}

// stdout is what the example prints to: os.Stdout as it is when the example runs.
type stdout struct{}

func (stdout) Write(p []byte) (int, error) { return fmt.Print(string(p)) }
