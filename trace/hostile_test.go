package trace_test

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/kahntest"
	"github.com/seed-c794f7ef/kahn/trace"
)

// TestEventsThatDoNotFit: reports and timelines of invalid streams of events are meaningless, but well-formed. Streams are cut or shuffled,
// or contain times that go back, unknown nodes, or events without payloads.
func TestEventsThatDoNotFit(t *testing.T) {
	inner := new(kahn.Graph)
	inner.Add(kahn.Node{ID: "a"}, kahn.Node{ID: "b", After: []string{"a"}})
	again := func(v kahn.View) (bool, error) { return v.Iteration() < 3, nil }
	var g kahn.Graph
	g.Add(
		kahn.Node{ID: "x"},
		kahn.Node{ID: "m", Map: &kahn.Map{Over: "list"}, Params: map[string]any{"list": []int{1, 2, 3}}, After: []string{"x"}},
		kahn.Node{ID: "s", Sub: inner, After: []string{"m"}},
		kahn.Node{ID: "broken", After: []string{"x"}, Retry: kahn.Retry{MaxAttempts: 3, InitialDelay: time.Millisecond}},
		kahn.Node{ID: "victim", After: []string{"broken"}},
		kahn.Node{ID: "l", Sub: inner, Loop: &kahn.Loop{While: again, MaxIterations: 4}},
	)
	var rec trace.Recorder
	steps := kahntest.Script{Acts: map[string][]kahntest.Act{"broken": {{Err: kahn.ErrType}}}}
	res, err := kahn.Execute(t.Context(), &g, steps.Step, kahn.OnEvent(rec.Event), kahn.Limit(2))
	require.ErrorIs(t, err, kahn.ErrType)
	events := rec.Events()

	check := func(events []event.Event) {
		t.Helper()
		report := trace.NewReport(res, events)
		require.LessOrEqual(t, len(report.CriticalPath), len(events)+1)
		_, err := json.Marshal(report)
		require.NoError(t, err)
		var b bytes.Buffer
		require.NoError(t, report.WriteText(&b))
		b.Reset()
		require.NoError(t, trace.WritePerfetto(&b, res, events))
		require.True(t, json.Valid(b.Bytes()))
	}
	for i := range events {
		check(events[i:])
		check(events[:i])
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		bad := slices.Clone(events)
		for range 1 + r.IntN(4) {
			i, j := r.IntN(len(bad)), r.IntN(len(bad))
			switch r.IntN(6) {
			case 0:
				bad[i], bad[j] = bad[j], bad[i]
			case 1:
				bad = slices.Delete(bad, i, i+1)
			case 2:
				bad[i].Time = bad[i].Time.Add(-time.Duration(r.IntN(3)) * time.Hour)
			case 3:
				bad[i].Payload = nil
			case 4:
				bad[i].Path, bad[i].Node = "nowhere/x", "x"
			case 5:
				bad[i].Attempt = r.IntN(9) - 4
			}
		}
		check(bad)
	}
}
