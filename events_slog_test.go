package kahn_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/kahntest"
)

// timeless returns a logger that writes texts without times.
func timeless(w *bytes.Buffer) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey || a.Key == "duration" || a.Key == "trace_id" {
			return slog.Attr{}
		}
		return a
	}}))
}

// The events of nodes are logged with kind and label, inside of composites, too; a Runner may have the option for all of its runs.
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
	runner := kahn.Runner{Options: []kahn.Option{kahn.LogTo(timeless(&out)), kahn.Limit(1)}}
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
