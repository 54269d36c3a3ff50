package trace_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/trace"
)

// A report lists the guards that could not decide and let their nodes run, and the warnings of the Result.
func TestWarnings(t *testing.T) {
	broken := func(kahn.View) (bool, error) { return false, errors.New("no idea") }
	var g kahn.Graph
	g.Add(
		kahn.Node{ID: "runs", When: broken, GuardErrors: kahn.GuardAllow}, kahn.Node{ID: "skips", When: broken, GuardErrors: kahn.GuardSkip},
		kahn.Node{ID: "fails", When: broken, GuardErrors: kahn.GuardFail, ContinueOnFail: true},
		kahn.Switch("?", func(kahn.View) (string, error) { return "gren", nil }), kahn.Node{ID: "on", In: []kahn.Edge{{From: "?", Label: "green"}}},
	)
	res, events := play(t, &g, func(context.Context, *kahn.Step) (any, error) { return nil, nil })
	r := trace.NewReport(res, events)
	want := []string{
		`guard could not decide: node "runs" runs: no idea`,
		`guard could not decide: node "skips" is skipped: no idea`,
		`guard could not decide: node "fails" fails: no idea`,
		`no branch matches: node "?": no such choice: "gren"; choose one of "green"; did you mean "green"?`,
	}
	require.ElementsMatch(t, want, r.Warnings)
	var text strings.Builder
	require.NoError(t, r.WriteText(&text))
	for _, w := range want {
		require.Contains(t, text.String(), "\nwarning: "+w+"\n")
	}
}

// The report lists a cascade of failures of any depth as a flat list. A victim appears once, even if it has several
// origins.
func TestFailures(t *testing.T) {
	g := &kahn.Graph{}
	g.Add(kahn.Node{ID: "x"}, kahn.Node{ID: "y"}, kahn.Node{ID: "both", After: []string{"y", "x"}})
	const deep = 5000
	for i := range deep {
		before := "both"
		if i > 0 {
			before = fmt.Sprint(i - 1)
		}
		g.Add(kahn.Node{ID: fmt.Sprint(i), After: []string{before}})
	}
	res, events := play(t, g, lasts(nil, map[string]int{"x": 1, "y": 1}))
	r := trace.NewReport(res, events)
	require.Len(t, r.Failures, deep+3)
	require.Equal(t, "x", r.Failures[0].Node)
	require.Equal(t, "y", r.Failures[1].Node)
	require.Equal(t, trace.Failure{Node: "both", Parent: "y", Depth: 1, Status: kahn.Aborted, Cause: "upstream_failure", Origins: []string{"x", "y"}},
		r.Failures[2])
	require.Equal(t, deep+1, r.Failures[deep+2].Depth)
	require.NoError(t, r.WriteText(io.Discard))
}

// In a run that stopped at the first failure, the stopped nodes are listed below the failed node.
func TestFailuresOfFailFast(t *testing.T) {
	g := new(kahn.Graph).Add(kahn.Node{ID: "bad"}, kahn.Node{ID: "slow"}, kahn.Node{ID: "next", After: []string{"slow"}})
	step := func(ctx context.Context, s *kahn.Step) (any, error) {
		if s.ID() == "bad" {
			time.Sleep(time.Second)
			return nil, errors.New("broken")
		}
		<-ctx.Done()
		return nil, ctx.Err()
	}
	res, events := play(t, g, step, kahn.AbortRunning)
	var got []string
	for _, f := range trace.NewReport(res, events).Failures {
		got = append(got, fmt.Sprintf("%d %s %v %s", f.Depth, f.Node, f.Status, f.Cause))
	}
	require.Equal(t, []string{"0 bad failed step_error", "1 slow aborted fail_fast", "1 next aborted fail_fast"}, got)
}

func TestWritersAtFault(t *testing.T) {
	res, events := demo(t)
	full := errors.New("disk full")
	w := writerFunc(func([]byte) (int, error) { return 0, full })
	require.ErrorIs(t, trace.WritePerfetto(w, res, events), full)
	require.ErrorIs(t, trace.NewReport(res, events).WriteText(w), full)
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// A run that did not begin has neither a plan nor a Result. Its pictures and reports are empty.
func TestNothingToDraw(t *testing.T) {
	var none *kahn.Result
	for name, text := range map[string]func() string{
		"mermaid": func() string { return trace.Mermaid(none.Plan(), none) },
		"dot":     func() string { return trace.DOT(none.Plan(), none) },
		"svg":     func() string { return trace.SVG(none.Plan(), none) },
	} {
		empty, err := new(kahn.Graph).Compile()
		require.NoError(t, err)
		want := map[string]string{"mermaid": trace.Mermaid(empty, nil), "dot": trace.DOT(empty, nil), "svg": trace.SVG(empty, nil)}[name]
		require.Equal(t, want, text(), name)
	}
	for _, res := range []*kahn.Result{none, {}} {
		require.Empty(t, trace.NewReport(res, nil).Nodes)
		var b bytes.Buffer
		require.NoError(t, trace.WritePerfetto(&b, res, nil))
		require.True(t, json.Valid(b.Bytes()), b.String())
	}
}
