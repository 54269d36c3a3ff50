package main

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/kahntest"
	"github.com/seed-c794f7ef/kahn/progress"
)

// After a question was answered, the display opens again, and shows what the run did while the question was open.
func TestEventsWhileSomebodyIsAsked(t *testing.T) {
	t.Parallel()
	var out, errs bytes.Buffer
	s := newScreen(&host{t: newTerminal(strings.NewReader(""), &out, &errs), show: progress.Plain})
	g := new(kahn.Graph).Add(kahn.Node{ID: "ask", Kind: kahn.KindGate}, kahn.Node{ID: "work", After: []string{"ask"}})
	var rec kahntest.Recorder
	var rn kahn.Runner
	run, err := rn.Start(t.Context(), g, func(context.Context, *kahn.Step) (any, error) { return nil, nil }, kahn.OnEvent(s.event), kahn.OnEvent(rec.Add), kahn.Around(s.follow))
	require.NoError(t, err)
	s.pause()
	require.NoError(t, run.Signal(context.Background(), "ask", true))
	res, err := run.Wait()
	require.NoError(t, err)
	require.NoError(t, kahntest.CheckEvents(g, res, rec.Events()))
	s.resume()
	s.close()
	require.Contains(t, errs.String(), "[2/2] run completed in ")
}

// The clock continues while the user is asked. After the answer, and at the end, the progress shows the time since the start of the run.
func TestClockAfterAQuestion(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out, errs bytes.Buffer
		s := newScreen(&host{t: newTerminal(strings.NewReader(""), &out, &errs), show: progress.Plain})
		g := new(kahn.Graph).Add(kahn.Node{ID: "ask", Kind: kahn.KindGate}, kahn.Node{ID: "work", After: []string{"ask"}})
		var rec kahntest.Recorder
		var rn kahn.Runner
		run, err := rn.Start(t.Context(), g, func(context.Context, *kahn.Step) (any, error) { time.Sleep(7 * time.Second); return nil, nil },
			kahn.OnEvent(s.event), kahn.OnEvent(rec.Add), kahn.Around(s.follow))
		require.NoError(t, err)
		synctest.Wait()
		s.pause()
		time.Sleep(2 * time.Minute)
		s.resume()
		require.NoError(t, run.Signal(context.Background(), "ask", true))
		res, err := run.Wait()
		require.NoError(t, err)
		require.NoError(t, kahntest.CheckEvents(g, res, rec.Events()))
		s.close()
		require.Contains(t, errs.String(), "00:00 ask: suspended\n")
		require.Contains(t, errs.String(), "02:00 work: started\n02:07 work: completed in 7.000s\n02:07 [2/2] run completed in 127.000s\n")
	})
}
