package progress

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/store"
)

// The last lines that a running step logged or emitted are shown below the step. The lines of a failed step are shown below its failure, up
// to ten in the last frame.
func TestOutputOfSteps(t *testing.T) {
	v := onTerminal(t, 32, 9, []time.Duration{1020 * time.Millisecond, 2040 * time.Millisecond}, func(t *testing.T, v *terminal) {
		p := New(v.tty, Auto)
		g := new(kahn.Graph).Add(kahn.Node{ID: "test"}, kahn.Node{ID: "tell"}, kahn.Node{ID: "mute"})
		step := func(_ context.Context, s *kahn.Step) (any, error) {
			switch s.ID() {
			case "test":
				for i := range 12 {
					s.Log(slog.LevelInfo, fmt.Sprint("line ", i))
				}
				time.Sleep(1500 * time.Millisecond)
				return nil, errors.New("12 problems")
			case "tell":
				for _, chunk := range []any{"Once \x1b[2J", []byte("upon\r\n\na "), "ti", 7, "me"} { // 7 is not a text
					s.Emit(chunk)
				}
			}
			time.Sleep(3 * time.Second)
			return nil, nil
		}
		sink, checked := watched(t, g, p.Event)
		res, err := kahn.Execute(t.Context(), g, step, kahn.OnEvent(sink))
		if err == nil {
			t.Error("the run has not failed")
		}
		checked(res)
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	// The terminal has 9 lines: the header, three steps, the cursor, and four lines for outputs. The first step gets a third of the four lines, and
	// the second step half of the remaining lines.
	if got, want := v.snapshots["1.02s"], "[0/3] 3 running 00:01\n=> test                     1.0s\n   | line 11\n"+
		"=> tell                     1.0s\n   | a time\n=> mute                     1.0s\n"; got != want {
		t.Errorf("running:\n%s", got)
	}
	// With one failure and two running steps, four lines are left for outputs. The output of the failed step gets all four.
	if got, want := v.snapshots["2.04s"], "[1/3] 1 failed 2 running 00:02\nFAILED test: step_error: 12 pro…\n   | line 8\n   | line 9\n   | line 10\n"+
		"   | line 11\n=> tell                     2.0s\n=> mute                     2.0s\n"; got != want {
		t.Errorf("failed:\n%s", got)
	}
	if got := v.String(); !strings.HasPrefix(got, "   | line 4\n   | line 5\n") || !strings.HasSuffix(got, "   | line 11\n") {
		t.Errorf("the end of ten lines on a screen of nine:\n%s", got)
	}
}

// A tail contains the last ten lines that are not empty, including an unfinished line. Each line has at most 400 bytes.
func TestTail(t *testing.T) {
	var o tail
	for i := range 15 {
		o.write(fmt.Sprintf("%d\n", i))
	}
	o.write("half")
	if got := o.last(3); !slices.Equal(got, []string{"13", "14", "half"}) {
		t.Errorf("%q", got)
	}
	o.write("\n\n  \n" + strings.Repeat("x", 3*tailBytes))
	got := o.last(tailLines)
	if len(got) != tailLines-1 || got[0] != "8" || got[7] != "half" || len(got[8]) != tailBytes {
		t.Errorf("%d lines, %q", len(got), got)
	}
	o = tail{}
	for _, chunk := range []string{strings.Repeat("x", tailBytes-1) + "é", "y\n", strings.Repeat("x", tailBytes-2) + "\xc3", "\xa9\n"} {
		o.write(chunk)
	}
	if got, want := o.last(2), []string{strings.Repeat("x", tailBytes-1), strings.Repeat("x", tailBytes-2) + "é"}; !slices.Equal(got, want) {
		t.Errorf("characters at the end of a line that is cut: %q", got)
	}
	if got := (*tail)(nil).last(2); got != nil {
		t.Errorf("%q", got)
	}
}

// The frame names the waiting nodes, with their Info. Running steps get lines before waiting nodes.
func TestWaitingNodes(t *testing.T) {
	s, now := crowd(0, 0)
	at := now.Add(-90 * time.Second)
	for _, id := range []string{"approve", "pay", "sign"} {
		s.record(event.Event{Type: event.NodeSuspended, Node: id, Attempt: 1, Time: at, Payload: event.Suspension{Info: "by Ada"}})
	}
	s.record(event.Event{Type: event.NodeSuspended, Node: "approve", Attempt: 1, Time: at, Payload: event.Suspension{Info: 7}})
	s.record(event.Event{Type: event.NodeCompleted, Node: "pay", Attempt: 1, Time: now, Payload: event.Completion{}})
	if got := text(s.frame(now, 30, 9)); got != "[1/1000] 2 suspended 01:01\n?? sign: by Ada          1m30s\n?? approve               1m30s\n" {
		t.Error(got)
	}
	s.record(event.Event{Type: event.NodeStarted, Node: "a", Attempt: 1, Time: now})
	s.record(event.Event{Type: event.NodeStarted, Node: "b", Attempt: 1, Time: now})
	if got := text(s.frame(now, 30, 5)); !strings.HasSuffix(got, "\n... and 2 more waiting\n=> a                      0.0s\n=> b                      0.0s\n") {
		t.Error(got)
	}
	if got := s.reminder(now); got != "still running: [1/1000] 2 running 2 suspended: a 0.0s, b 0.0s, sign waits, approve waits" {
		t.Error(got)
	}
	s.record(event.Event{Type: event.NodeCompleted, Node: "a", Attempt: 1, Time: now, Payload: event.Completion{}})
	s.record(event.Event{Type: event.NodeCompleted, Node: "b", Attempt: 1, Time: now, Payload: event.Completion{}})
	if got := s.reminder(now); got != "waiting: [3/1000] 2 suspended: sign waits, approve waits" {
		t.Error(got)
	}
}

// If a terminal becomes narrower, the number of failures is the last part of the header to disappear.
func TestNarrowHeader(t *testing.T) {
	s, now := crowd(2, 3)
	for width, want := range map[int]string{
		60: "[2/1000] 2 failed 3 running 01:01", 26: "[2/1000] 2 failed 3… 01:01", 24: "[2/1000] 2 failed… 01:01", 23: "[2/1000] 2 failed", 17: "[2/1000] 2 failed",
		16: "2 failed", 8: "2 failed", 6: "2 fai…",
	} {
		if got := s.header(now, width); got != want {
			t.Errorf("%d columns: %q, want %q", width, got, want)
		}
	}
}

// A run that continues from a store or a snapshot, or is redriven, shows its total number of nodes and the nodes that ended before.
func TestResumedRunHasATotal(t *testing.T) {
	fail := true
	step := func(_ context.Context, s *kahn.Step) (any, error) {
		if s.ID() == "send" && fail {
			return nil, errors.New("no stamps")
		}
		return nil, nil
	}
	g := new(kahn.Graph).Add(kahn.Node{ID: "draft"}, kahn.Node{ID: "optional", ContinueOnFail: true, Do: func(context.Context, *kahn.Step) (any, error) {
		return nil, errors.New("no luck")
	}}, kahn.Node{ID: "approve", Kind: kahn.KindGate, After: []string{"draft"}}, kahn.Node{ID: "send", After: []string{"approve"}})
	var db store.Memory
	stored := []kahn.Option{kahn.Durable(&db), kahn.RunID("r")}
	life := func(perform func(opts ...kahn.Option) (*kahn.Result, error)) (*kahn.Result, string) {
		var log bytes.Buffer
		p := New(&log, Plain)
		sink, checked := watched(t, g, func(event.Event) {})
		res, _ := perform(append(p.Options(), kahn.OnEvent(sink))...)
		checked(res)
		last := p.run.summary()
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		return res, last
	}
	first, summary := life(func(opts ...kahn.Option) (*kahn.Result, error) {
		return kahn.Execute(t.Context(), g, step, append(opts, stored...)...)
	})
	if summary != "[2/4] 1 failed 1 suspended" {
		t.Error(summary)
	}
	answer := map[string]any{"approve": true}
	second, summary := life(func(opts ...kahn.Option) (*kahn.Result, error) {
		return kahn.Execute(t.Context(), g, step, append(append(opts, stored...), kahn.EarlySignals(answer))...)
	})
	if summary != "[4/4] run failed: 2 failed" {
		t.Error(summary)
	}
	_, summary = life(func(opts ...kahn.Option) (*kahn.Result, error) {
		return kahn.Execute(t.Context(), g, step, append(opts, kahn.Resume(first.Snapshot()), kahn.EarlySignals(answer))...)
	})
	if summary != "[4/4] run failed: 2 failed" {
		t.Error(summary)
	}
	fail = false
	_, summary = life(func(opts ...kahn.Option) (*kahn.Result, error) {
		return kahn.Execute(t.Context(), g, step, append(opts, kahn.Redrive(second.Snapshot(), []string{"send"}))...)
	})
	if summary != "[4/4] run completed (degraded): 1 failed" {
		t.Error(summary)
	}
}

// The two numbers in the header's brackets do not include the items of a map. The output of a failed item is shown below the failure of the map.
func TestItemsDoNotCount(t *testing.T) {
	var log bytes.Buffer
	p := New(&log, Plain)
	g := new(kahn.Graph).Add(kahn.Node{ID: "m", Params: map[string]any{"list": []int{1, 2, 3}}, Map: &kahn.Map{Over: "list"}, Do: func(_ context.Context, s *kahn.Step) (any, error) {
		if s.Index() != 1 {
			return nil, nil
		}
		s.Log(slog.LevelInfo, "no paper")
		return nil, errors.New("jammed")
	}}, kahn.Node{ID: "x[0]"})
	sink, checked := watched(t, g, p.Event)
	res, _ := kahn.Execute(t.Context(), g, func(context.Context, *kahn.Step) (any, error) { return nil, nil }, kahn.OnEvent(sink))
	checked(res)
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	rows := text(p.run.frame(time.Now(), 80, 20))
	if !strings.HasPrefix(rows, "[2/2] run failed: 1 failed ") || !strings.Contains(rows, "FAILED m: ") || !strings.Contains(rows, "   | no paper\n") {
		t.Error(rows)
	}
}

// If a run that waits continues in another process, the display names the node, or the item of a map, for which the run already waited before.
func TestLaterLifeNamesWhatItWaitsFor(t *testing.T) {
	g := new(kahn.Graph).Add(kahn.Node{ID: "m", Params: map[string]any{"list": []int{1, 2}}, Map: &kahn.Map{Over: "list"}, Do: func(_ context.Context, s *kahn.Step) (any, error) {
		if v, ok := s.Resumed(); ok {
			return v, nil
		}
		return nil, kahn.Suspend("", "a printer", nil)
	}}, kahn.Node{ID: "approve", Kind: kahn.KindGate})
	var db store.Memory
	life := func(options func(*Progress) []kahn.Option, answers map[string]any) string {
		var log bytes.Buffer
		p := New(&log, Plain)
		if _, err := kahn.Execute(t.Context(), g, nil, append(options(p), kahn.Durable(&db), kahn.RunID("r"), kahn.EarlySignals(answers))...); err != nil {
			t.Error(err)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		lines := strings.Split(strings.TrimSpace(log.String()), "\n")
		return lines[len(lines)-1]
	}
	alone := func(p *Progress) []kahn.Option { return []kahn.Option{kahn.OnEvent(p.Event)} }
	life((*Progress).Options, nil)
	if got, want := life((*Progress).Options, map[string]any{"m[0]": 1}), "00:00 run suspended: waits for approve, m[1]"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := life(alone, map[string]any{"m[1]": 2}), "00:00 run suspended: waits for 1 node"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := life(alone, map[string]any{"approve": true}), "00:00 [2/2] run completed in 0.000s"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// If no event since a continuation names the nodes for which the run waits, the reminder still says that the run waits.
func TestReminderOfRunThatWaits(t *testing.T) {
	s := &state{}
	s.record(event.Event{Type: event.RunStatusChanged, Time: time.Unix(9, 0), Payload: event.StatusChange{From: kahn.RunRunning, To: kahn.RunSuspended, TotalWaiting: 1}})
	if got := s.reminder(time.Unix(10, 0)); got != "waiting: [0/?]" {
		t.Error(got)
	}
	s.record(event.Event{Type: event.RunStatusChanged, Time: time.Unix(9, 0), Payload: event.StatusChange{From: kahn.RunSuspended, To: kahn.RunRunning, TotalWaiting: 1}})
	if got := s.reminder(time.Unix(10, 0)); got != "still running: [0/?]" {
		t.Error(got)
	}
}

// The output of a failed node inside a composite stays below the composite while the composite runs, and then below the composite's
// failure. This holds for a sub-graph, a loop, an item of a map, and composites in composites.
func TestOutputInsideOfComposites(t *testing.T) {
	inner := func() *kahn.Graph {
		return new(kahn.Graph).Add(kahn.Node{ID: "work"}, kahn.Node{ID: "tidy", Cleanup: true, After: []string{"work"}})
	}
	v := onTerminal(t, 40, 30, []time.Duration{1020 * time.Millisecond}, func(t *testing.T, v *terminal) {
		p := New(v.tty, Auto)
		g := new(kahn.Graph).Add(
			kahn.Node{ID: "sub", Sub: inner()},
			kahn.Node{ID: "loop", Sub: inner(), Loop: &kahn.Loop{While: func(kahn.View) (bool, error) { return true, nil }, MaxIterations: 2}},
			kahn.Node{ID: "each", Sub: inner(), Map: &kahn.Map{Over: "items"}, Params: map[string]any{"items": []any{1}}},
			kahn.Node{ID: "deep", Sub: new(kahn.Graph).Add(kahn.Node{ID: "S", Sub: inner()})},
			kahn.Node{ID: "fine", Sub: inner()},
		)
		step := func(_ context.Context, s *kahn.Step) (any, error) {
			if s.ID() == "tidy" {
				time.Sleep(2 * time.Second)
				return nil, nil
			}
			s.Log(slog.LevelInfo, "output of "+s.Path())
			if strings.HasPrefix(s.Path(), "fine/") {
				return nil, nil
			}
			return nil, errors.New("broken")
		}
		sink, checked := watched(t, g, p.Event)
		res, err := kahn.Execute(t.Context(), g, step, kahn.OnEvent(sink))
		if err == nil {
			t.Error("the run has not failed")
		}
		checked(res)
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	for name, path := range map[string]string{"sub": "sub/work", "loop": "loop#1/work", "each": "each[0]/work", "deep": "deep/S/work"} {
		if name != "deep" && !strings.Contains(v.snapshots["1.02s"], "   | output of "+path+"\n") {
			t.Errorf("%s, at work:\n%s", name, v.snapshots["1.02s"])
		}
		if _, below, _ := strings.Cut(v.String(), "FAILED "+name); !strings.HasPrefix(strings.SplitN(below, "\n", 2)[1], "   | output of "+path+"\n") {
			t.Errorf("%s, at the end:\n%s", name, v)
		}
	}
	if strings.Contains(v.String(), "output of fine") {
		t.Errorf("the output of a step that has not failed:\n%s", v)
	}
}

// A line of JSON contains no control characters for a terminal, and still decodes to the same text.
func TestJSONIsVisible(t *testing.T) {
	t.Parallel()
	const hostile = "a\u009b2J \u202e\U000e0001\x7f é\u00a0"
	var log bytes.Buffer
	p := New(&log, JSON)
	g := new(kahn.Graph).Add(kahn.Node{ID: "a"})
	_, err := kahn.Execute(t.Context(), g, func(_ context.Context, s *kahn.Step) (any, error) {
		s.Log(slog.LevelInfo, hostile)
		return nil, nil
	}, kahn.OnEvent(p.Event))
	if err != nil {
		t.Fatal(err)
	}
	_, _ = p.Write([]byte(hostile + "\n"))
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Count(log.String(), `"a\u009b2J \u202e\udb40\udc01\u007f é "`), 2; got != want {
		t.Errorf("%d of %d:\n%s", got, want, log.String())
	}
	for line := range strings.Lines(log.String()) {
		var v any
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			t.Errorf("%v: %s", err, line)
		}
	}
}
