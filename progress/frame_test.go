package progress

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
)

// crowd returns a run of 1000 nodes with the given numbers of failed and running nodes, and a time 61 seconds after its start.
func crowd(failed, running int) (*state, time.Time) {
	start := time.Unix(1000, 0)
	s := &state{}
	s.record(event.Event{Type: event.RunStarted, Time: start, Payload: event.Start{TotalNodes: 1000}})
	for i := range failed {
		id := fmt.Sprintf("f%d", i)
		s.record(event.Event{Type: event.NodeStarted, Node: id, Attempt: 1, Time: start})
		s.record(event.Event{Type: event.NodeFailed, Node: id, Attempt: 1, Time: start, Payload: event.NodeEnd{Cause: kahn.CausePanic}})
	}
	for i := range running {
		s.record(event.Event{Type: event.NodeStarted, Node: fmt.Sprintf("r%d", i), Attempt: 1, Time: start})
	}
	return s, start.Add(61 * time.Second)
}

func text(rows []row) string {
	var b strings.Builder
	for _, r := range rows {
		b.WriteString(r.text + "\n")
	}
	return b.String()
}

// Failures, warnings of the engine and running steps share the lines that the header and the cursor leave.
func TestFrameFitsTheHeight(t *testing.T) {
	for _, test := range []struct {
		failed, warnings, running, height int
		want                              string
	}{
		{0, 0, 3, 5, "=> r0 1m01s\n=> r1 1m01s\n=> r2 1m01s\n"},
		{0, 0, 3, 4, "=> r0 1m01s\n... and 2 mo…\n"},
		{2, 0, 9, 6, "FAILED f0: p…\nFAILED f1: p…\n=> r0 1m01s\n... and 8 mo…\n"},
		{9, 0, 2, 6, "FAILED f0: p…\n... and 8 mo…\n=> r0 1m01s\n=> r1 1m01s\n"},
		{9, 0, 1, 6, "FAILED f0: p…\nFAILED f1: p…\n... and 7 mo…\n=> r0 1m01s\n"},
		{9, 0, 9, 7, "FAILED f0: p…\nFAILED f1: p…\n... and 7 mo…\n=> r0 1m01s\n... and 8 mo…\n"},
		{9, 0, 0, 4, "FAILED f0: p…\n... and 8 mo…\n"},
		{9, 0, 9, 4, "... and 9 mo…\n... and 9 mo…\n"},
		{9, 0, 9, 3, "... and 9 mo…\n"},
		{9, 0, 9, 2, ""},
		{9, 0, 9, 1, ""},
		{0, 1, 0, 5, "WARNING w0: …\n"},
		{0, 3, 0, 4, "WARNING w0: …\n... and 2 mo…\n"},
		{0, 3, 1, 5, "WARNING w0: …\n... and 2 mo…\n=> r0 1m01s\n"},
		{0, 3, 9, 5, "... and 3 mo…\n=> r0 1m01s\n... and 8 mo…\n"},
		{0, 3, 9, 3, "... and 9 mo…\n"},
		{0, 3, 9, 2, ""},
	} {
		s, now := crowd(test.failed, test.running)
		warn(s, test.warnings)
		got := text(s.frame(now, 13, test.height))
		header, rest, _ := strings.Cut(got, "\n")
		rest = strings.ReplaceAll(rest, "   ", " ") // the padding before right-aligned text
		wanted := strings.HasSuffix(header, "… 01:01")
		if test.failed > 0 { // failures leave no room for other sections
			wanted = header == fmt.Sprintf("%d failed", test.failed)
		}
		if !wanted || rest != test.want {
			t.Errorf("%d failed, %d warnings, %d running, %d lines:\n%s", test.failed, test.warnings, test.running, test.height, got)
		}
	}
}

// The last frame shows the engine's warnings, but not the warnings that a step logs.
func TestLastFrameShowsWarnings(t *testing.T) {
	s, now := crowd(1, 0)
	warn(s, maxFailures+2)
	s.record(event.Event{Type: event.NodeLog, Node: "own", Attempt: 1, Payload: event.LogRecord{Level: slog.LevelWarn, Message: "a step's own"}})
	s.record(event.Event{Type: event.NodeLog, Node: "?", Attempt: 1, Payload: event.LogRecord{Level: slog.LevelWarn, Message: kahn.ErrNoMatch.Error() + ": x"}})
	s.record(event.Event{Type: event.RunFailed, Time: now, Payload: event.RunEnd{Status: kahn.RunFailed}})
	rows := s.frame(now, 80, 5)
	if len(rows) != 3+maxFailures || rows[1].text != "FAILED f0: panic" || rows[2].text != "WARNING w0: guard could not decide" ||
		rows[len(rows)-1].text != "... and 3 more warnings" {
		t.Errorf("%d lines:\n%s", len(rows), text(rows))
	}
}

// warn adds n warnings, one for each of n guards.
func warn(s *state, n int) {
	for i := range n {
		s.record(event.Event{Type: event.NodeLog, Node: fmt.Sprintf("w%d", i), Payload: event.LogRecord{Level: slog.LevelWarn, Message: "guard could not decide"}})
	}
}

// The last frame shows all failures that the state keeps.
func TestLastFrame(t *testing.T) {
	s, now := crowd(maxFailures+20, 0)
	s.record(event.Event{Type: event.RunFailed, Time: now, Payload: event.RunEnd{Status: kahn.RunFailed}})
	rows := s.frame(now.Add(time.Hour), 80, 5)
	if len(rows) != 1+maxFailures+1 || rows[0].text != "[120/1000] run failed: 120 failed 01:01" ||
		rows[maxFailures].text != "FAILED f99: panic" || rows[maxFailures+1].text != "... and 20 more failed" {
		t.Errorf("%d lines:\n%s", len(rows), text(rows))
	}
	s, _ = crowd(0, 0)
	s.record(event.Event{Type: event.RunCompleted, Time: now, Payload: event.RunEnd{Status: kahn.RunCompleted, Degraded: true}})
	if got := text(s.frame(now, 80, 5)); got != "[0/1000] run completed (degraded) 01:01\n" {
		t.Errorf("%s", got)
	}
}

func TestFrameFitsAnyWidth(t *testing.T) {
	s, now := crowd(2, 2)
	for _, id := range []string{"日本語日本語日本語", "e\u0301e\u0301e\u0301e\u0301", "\x1b[31mred", "👩‍👩‍👧 family", "\u202eright to left"} {
		s.record(event.Event{Type: event.NodeStarted, Node: id, Attempt: 2, Time: now})
	}
	for width := range 60 {
		v := &terminal{t: t, width: max(width, 1), height: 30}
		for range v.height {
			v.cells = append(v.cells, v.blank())
		}
		var screen screen
		if width > 0 {
			v.interpret(string(screen.draw(nil, nil, s.frame(now, width, 30), 30, true))) // reports rows that do not fit
		} else if got := strings.TrimSpace(text(s.frame(now, width, 30))); got != "" {
			t.Errorf("%q for no columns at all", got)
		}
	}
}

func TestClean(t *testing.T) {
	for in, want := range map[string]string{
		"plain":                  "plain",
		"日本 é e\u0301":           "日本 é e\u0301",
		"a\tb\r\nc\u00a0\u2028d": "a b  c  d",
		"\x00\x1b[1m\x7f\u009b":  `\x00\x1b[1m\x7f\u009b`,
		"\u202e\u200d\ufeff":     `\u202e\u200d\ufeff`,
		"\xff\xc3":               `\xff\xc3`,
		"\U000e0001":             `\U000e0001`,
	} {
		if got := clean(in); got != want {
			t.Errorf("clean(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestFit(t *testing.T) {
	for _, test := range []struct {
		text    string
		columns int
		want    string
	}{
		{"abcd", 4, "abcd"}, {"abcd", 3, "ab…"}, {"abcd", 1, "…"}, {"abcd", 0, ""}, {"", 0, ""},
		{"日本語", 6, "日本語"}, {"日本語", 5, "日本…"}, {"日本語", 4, "日…"}, {"日本語", 2, "…"},
		{"e\u0301e\u0301e\u0301", 3, "e\u0301e\u0301e\u0301"}, {"e\u0301e\u0301e\u0301", 2, "e\u0301…"},
	} {
		if got := fit(test.text, test.columns); got != test.want {
			t.Errorf("fit(%q, %d) = %q, want %q", test.text, test.columns, got, test.want)
		}
	}
}

func TestDurations(t *testing.T) {
	for _, test := range []struct {
		d             time.Duration
		clock, tenths string
	}{
		{-time.Second, "00:00", "0.0s"},
		{999 * time.Millisecond, "00:00", "0.9s"},
		{59*time.Second + 999*time.Millisecond, "00:59", "59.9s"},
		{61 * time.Second, "01:01", "1m01s"},
		{time.Hour - 1, "59:59", "59m59s"},
		{25*time.Hour + 2*time.Minute + 3*time.Second, "25:02:03", "25h02m"},
	} {
		if clock(test.d) != test.clock || tenths(test.d) != test.tenths {
			t.Errorf("%v: %q and %q, want %q and %q", test.d, clock(test.d), tenths(test.d), test.clock, test.tenths)
		}
	}
}
