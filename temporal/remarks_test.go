package temporal

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/testsuite"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/kahntest"
	"github.com/seed-c794f7ef/kahn/store"
)

// remarksIn returns the events of what steps reported, by path, without times.
func remarksIn(events []event.Event) (list []string) {
	for _, e := range events {
		switch a := e.Payload.(type) {
		case event.LogRecord:
			list = append(list, fmt.Sprint(e.Path, " ", e.Attempt, " ", a.Level, " ", a.Message))
		case event.Delta:
			list = append(list, fmt.Sprint(e.Path, " ", e.Attempt, " ", a.Chunk))
		}
	}
	slices.SortStableFunc(list, func(a, b string) int { return strings.Compare(strings.Fields(a)[0], strings.Fields(b)[0]) })
	return list
}

// The events of a run have everything that its steps report, even if a step fails or is in a batch. A long chunk becomes a blob.
func TestRemarks(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		graph *kahn.Graph
		blobs store.BlobStore
		chunk string
		nodes int
	}{
		"steps":   {kahntest.Graph(t, "a>b"), nil, "chunk", 2},
		"blobs":   {kahntest.Graph(t, "a>b"), new(store.MemoryBlobs), long("c"), 2},
		"batches": {overItems(5, kahn.Map{}, kahn.Node{}), nil, "chunk", 5},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			step := func(_ context.Context, s *kahn.Step) (any, error) {
				s.Log(slog.LevelWarn, "before")
				s.Emit(map[string]any{"attempt": s.Attempt()})
				s.Emit(row.chunk)
				s.Tokens(3, 4)
				s.Tokens(1, 0)
				s.Use("cents", 0.25)
				if err := s.SetLabel("last", s.Path()); err != nil {
					return nil, err
				}
				s.Log(slog.LevelDebug, "after")
				if s.Attempt() == 1 {
					return nil, errStep
				}
				return nil, nil
			}
			s := Settings{DefaultRetry: &kahn.Retry{MaxAttempts: 2}, MapChildren: 4}
			var want []event.Event
			opts := append(s.options(), kahn.OnEvent(func(e event.Event) { want = append(want, e) }))
			local, err := kahn.Execute(t.Context(), row.graph, step, opts...)
			require.NoError(t, err)
			require.Len(t, remarksIn(want), 4*2*row.nodes)
			x := &trial{workflow: Workflow{Plan: plan(t, row.graph), Settings: s}, options: Options{Step: step, Blobs: row.blobs}}
			var by shares
			x.during = func(env *testsuite.TestWorkflowEnvironment, _ int) { by.listen(t, env) }
			res, err := x.run(t)
			require.NoError(t, err)
			require.Equal(t, name == "batches", len(by.batches) > 0)
			require.Equal(t, local.Usage(), res.Usage())
			require.InDelta(t, float64(2*row.nodes)*0.25, res.Usage()["cents"], 0, "of two attempts each")
			text, err := json.Marshal(res.Snapshot())
			require.NoError(t, err)
			require.Contains(t, string(text), `"labels":{"last":`)
			var got []event.Event
			for e, err := range x.log(t).Events(t.Context(), 0) {
				require.NoError(t, err)
				got = append(got, e)
			}
			require.Equal(t, remarksIn(want), remarksIn(got))
			require.NoError(t, kahntest.CheckEvents(row.graph, res, got))
			for _, e := range got {
				if c, is := e.Payload.(event.Completion); is && e.Node != "M" {
					require.Equal(t, [2]int{8, 8}, [2]int{c.InputTokens, c.OutputTokens}, "of two attempts")
				}
			}
		})
	}
}

// If an attempt reports too much, the first remarks are kept, and a message says how many were dropped.
func TestRemarkBytes(t *testing.T) {
	t.Parallel()
	r := &recorder{log: discard, codec: kahn.Types(nil)}
	r.Log(slog.LevelInfo, "first")
	r.Emit(make(chan int)) // has no JSON form
	for range 3 {
		r.Emit(strings.Repeat("x", remarkBytes/2))
	}
	r.Log(slog.LevelInfo, "last")
	told := r.told()
	require.Len(t, told, 3)
	require.Equal(t, "first", *told[0].Message)
	require.Contains(t, *told[2].Message, "3 messages and chunks")

	h := newHost(Options{MaxBytes: 1000})
	reply, _, result := h.write("a", kahn.Reply{Value: "v"}, remarked{Remarks: told})
	require.NoError(t, reply.Err)
	require.JSONEq(t, `{"value": "v"}`, string(result), "there is no room for the remarks")
}
