package conformance_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/kahntest"
)

// timeless returns a logger that writes text without times, trace ids and the attributes in dropped.
func timeless(w *bytes.Buffer, level slog.Level, dropped ...string) *slog.Logger {
	dropped = append(dropped, slog.TimeKey, "trace_id")
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if slices.Contains(dropped, a.Key) {
			return slog.Attr{}
		}
		return a
	}}))
}

// The log lines of nodes have the node's kind and label, also inside composites. A Runner may set the option LogTo for all its runs.
func TestLogTo(t *testing.T) {
	t.Parallel()
	g := graph(
		kahn.Node{ID: "a", Kind: "http", Label: "Fetch"},
		kahn.Node{ID: "m", Kind: "mail", Map: &kahn.Map{Over: "to"}, Params: map[string]any{"to": []int{1}}, After: []string{"a"}},
		kahn.Node{ID: "s", After: []string{"m"}, Sub: graph(kahn.Node{ID: "x", Kind: "sql"})},
		kahn.Node{ID: "plain", After: []string{"s"}},
	)
	step := func(_ context.Context, s *kahn.Step) (any, error) {
		if s.ID() == "plain" {
			return nil, kahn.Expand(graph(kahn.Node{ID: "later", Kind: "unknown"}), nil, nil)
		}
		s.Log(slog.LevelInfo, "hello")
		return nil, nil
	}
	var out bytes.Buffer
	runner := kahn.Runner{Options: []kahn.Option{kahn.LogTo(timeless(&out, slog.LevelDebug, "duration")), kahn.Limit(1)}}
	for range 2 {
		out.Reset()
		var rec kahntest.Recorder
		res, err := runner.Execute(t.Context(), g, step, kahn.RunID("7"), kahn.OnEvent(rec.Add))
		require.NoError(t, err)
		require.NoError(t, kahntest.CheckEvents(g, res, rec.Events()))
		log := out.String()
		for node, want := range map[string]string{"a": " kind=http label=Fetch", "m": " kind=mail", "m[0]": " kind=mail", "s": "", "s/x": " kind=sql", "plain": "", "plain/later": ""} {
			lines := 0
			for line := range strings.Lines(log) {
				if strings.Contains(line, " node="+node+" ") {
					lines++
					require.Equal(t, want != "", strings.HasSuffix(line, want+"\n") && want != "", line)
					require.Equal(t, want != "", strings.Contains(line, " kind="), line)
				}
			}
			require.GreaterOrEqual(t, lines, 3, "%s in\n%s", node, log)
		}
		require.Contains(t, log, "level=INFO msg=hello run_id=7 event_id=4 node=a attempt=1 tier=0 kind=http label=Fetch\n")
		require.Contains(t, log, "msg=run.completed run_id=7")
	}
}

// logged executes a graph as the run "7", logs its events to logger, and checks the events.
func logged(t *testing.T, g *kahn.Graph, step kahn.StepFunc, logger *slog.Logger, opts ...kahn.Option) {
	t.Helper()
	var rec kahntest.Recorder
	res, _ := kahn.Execute(t.Context(), g, step, append(opts, kahn.RunID("7"), kahn.OnEvent(event.LogTo(logger)), kahn.OnEvent(rec.Add))...) // res has the same error
	require.NoError(t, kahntest.CheckEvents(g, res, rec.Events()))
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
			logged(t, g, step, timeless(&out, row.level))
			if got := out.String(); got != row.want[1:] {
				t.Errorf("got\n%s\nexpected\n%s", got, row.want)
			}
		})
	}
}

// If events contain outputs, their size is logged. A handled failure is not logged as routed to the end of the graph.
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
		logged(t, g, step, timeless(&out, slog.LevelInfo), kahn.EventOutputs(100))
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
