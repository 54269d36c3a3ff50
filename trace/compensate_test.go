package trace_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/trace"
)

// A report contains the nodes that were undone or could not be undone, with attempts and times. The attempts to undo a node do not count
// as work of the node.
func TestReportOfCompensations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		do := func(context.Context, *kahn.Step) (any, error) { time.Sleep(time.Second); return nil, nil }
		undo := func(_ context.Context, s *kahn.Step) error {
			time.Sleep(2 * time.Second)
			if s.ID() == "hold" || s.Attempt() == 1 {
				return errors.New("bank\nclosed")
			}
			return nil
		}
		retry := kahn.Retry{MaxAttempts: 2, InitialDelay: time.Second, Jitter: kahn.JitterNone}
		g := new(kahn.Graph).Add(
			kahn.Node{ID: "hold", Do: do, Compensate: undo, CompensateRetry: retry},
			kahn.Node{ID: "S", Sub: new(kahn.Graph).Add(kahn.Node{ID: "x", Do: do, Compensate: undo, CompensateRetry: retry}), After: []string{"hold"}},
			kahn.Node{ID: "ship", Do: func(context.Context, *kahn.Step) (any, error) { return nil, errors.New("no truck") }, Compensate: undo, CompensateRetry: retry, After: []string{"S"}},
		)
		var events []event.Event
		res, err := kahn.Execute(t.Context(), g, nil, kahn.OnEvent(func(e kahn.Event) { events = append(events, e) }))
		require.ErrorIs(t, err, kahn.ErrCompensation)
		r := trace.NewReport(res, events)
		require.Equal(t, []trace.Compensation{
			{Node: "ship", Status: kahn.CompensationDone, Attempts: 2, Start: 2 * time.Second, Duration: 5 * time.Second},
			{Node: "S/x", Status: kahn.CompensationDone, Attempts: 2, Certain: true, Start: 7 * time.Second, Duration: 5 * time.Second},
			{Node: "hold", Status: kahn.CompensationFailed, Attempts: 2, Certain: true, Start: 12 * time.Second, Duration: 5 * time.Second, Error: "bank\nclosed"},
		}, r.Compensations)
		require.Equal(t, 2*time.Second, r.Work)
		require.Zero(t, r.Retries)
		var b bytes.Buffer
		require.NoError(t, r.WriteText(&b))
		_, text, found := strings.Cut(b.String(), "\ncompensations\n")
		require.True(t, found, b.String())
		require.True(t, strings.HasPrefix(text, `      start        took  node
  2.000000s   5.000000s  ship: done, its effect was unknown, 2 attempts
  7.000000s   5.000000s  S/x: done, 2 attempts
 12.000000s   5.000000s  hold: failed, 2 attempts: `), text)
		data, err := json.Marshal(r)
		require.NoError(t, err)
		require.Contains(t, string(data), `"compensations":[{"node":"ship","status":"done","attempts":2,"certain":false,`)
		// If a run was left while a node was being undone, durations last until the run was left.
		for i, e := range events {
			if e.Type == event.NodeCompensating && e.Node == "x" {
				r = trace.NewReport(res, events[:i+1])
				break
			}
		}
		require.Equal(t, trace.Compensation{Node: "S/x", Status: kahn.CompensationRunning, Attempts: 1, Certain: true, Start: 7 * time.Second}, r.Compensations[1])
	})
}
