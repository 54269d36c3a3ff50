package progress

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/kahntest"
)

// script performs a run with every kind of event. Its steps run at these times, in seconds:
//
//	fetch   0-1.5, then build until 11.5
//	lint    0-0.7, fails; test, which follows it, is aborted
//	flaky   0-0.25, fails; 1.25-3.25
//	日本語   0-45
//	old     is disabled
func script(t testing.TB, sink func(event.Event)) *kahn.Result {
	t.Helper()
	const ms = time.Millisecond
	lasts := map[string]time.Duration{
		"fetch": 1500 * ms, "build": 10 * time.Second, "lint": 700 * ms, "flaky": 250 * ms, "日本語": 45 * time.Second,
	}
	var g kahn.Graph
	g.Add(
		kahn.Node{ID: "fetch"},
		kahn.Node{ID: "lint"},
		kahn.Node{ID: "flaky", Retry: kahn.Retry{MaxAttempts: 2, InitialDelay: time.Second, Jitter: kahn.JitterNone}},
		kahn.Node{ID: "日本語"},
		kahn.Node{ID: "build", After: []string{"fetch"}},
		kahn.Node{ID: "test", After: []string{"lint"}},
		kahn.Node{ID: "old", Disabled: true},
	)
	step := func(ctx context.Context, s *kahn.Step) (any, error) {
		time.Sleep(lasts[s.ID()])
		switch {
		case s.ID() == "lint":
			return nil, errors.New("3 problems:\n\ta\n\tb")
		case s.ID() == "flaky" && s.Attempt() == 1:
			return nil, errors.New("\x1b[2Jconnection reset")
		case s.ID() == "flaky":
			time.Sleep(1750 * ms)
		}
		return nil, nil
	}
	sink, checked := watched(t, &g, sink)
	res, err := kahn.Execute(context.Background(), &g, step, kahn.OnEvent(sink))
	checked(res)
	if err == nil || !strings.Contains(err.Error(), "3 problems") {
		t.Errorf("lint has failed, and the error is %v", err)
	}
	return res
}

// watched returns a sink that passes events on to sink, and a function that checks all events against the rules of event streams. Call it when
// the run is over.
func watched(t testing.TB, g *kahn.Graph, sink func(event.Event)) (_ func(event.Event), checked func(*kahn.Result)) {
	var events []event.Event // one goroutine at a time appends, and none after the run
	return func(e event.Event) {
			events = append(events, e)
			sink(e)
		}, func(res *kahn.Result) {
			t.Helper()
			if err := kahntest.CheckEvents(g, res, events); err != nil {
				t.Errorf("the events of the run: %v", err)
			}
		}
}

// The expected screens were written by hand. Frames are drawn at multiples of 100 ms. At any time, the screen shows the last frame that was drawn
// before this time. The terminal has 44 columns and 7 lines.
func TestScreens(t *testing.T) {
	t.Setenv("NO_COLOR", "")
	at := []time.Duration{50 * time.Millisecond, 220 * time.Millisecond, 950 * time.Millisecond, 1650 * time.Millisecond, 12340 * time.Millisecond}
	v := onTerminal(t, 44, 7, at, func(t *testing.T, v *terminal) {
		fmt.Fprint(v.tty, "$ run\r\n")
		p := New(v.tty, Auto)
		script(t, p.Event)
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	var got strings.Builder
	for _, d := range at {
		fmt.Fprintf(&got, "-- %d ms\n%s", d.Milliseconds(), v.snapshots[d.String()])
	}
	fmt.Fprintf(&got, "-- end\n%s", v)
	golden(t, "testdata/screens.txt", got.String())
	if err := v.atRest(); err != nil {
		t.Error(err)
	}
}

// The expected log was written by hand.
func TestPlainLog(t *testing.T) {
	var log bytes.Buffer
	synctest.Test(t, func(t *testing.T) {
		p := New(&log, Auto)
		script(t, p.Event)
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	golden(t, "testdata/plain.txt", log.String())
}

// The lines of stopped nodes and of the run's end name who stopped the run, and the reason.
func TestPlainLogOfStops(t *testing.T) {
	var log bytes.Buffer
	synctest.Test(t, func(t *testing.T) {
		var g kahn.Graph
		g.Add(kahn.Node{ID: "A"})
		p := New(&log, Plain)
		sink, checked := watched(t, &g, p.Event)
		run, err := kahn.Start(t.Context(), &g, func(ctx context.Context, _ *kahn.Step) (any, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}, kahn.OnEvent(sink))
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		run.Cancel(kahn.Request{Actor: "ann", Reason: "wrong\x1b[2J\ninput"})
		res, _ := run.Wait()
		checked(res)
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	by := `by "ann" because "wrong\x1b[2J\ninput"`
	want := "00:00 run started: 1 node\n00:00 A: started\n00:00 A: cancelled after 0.000s: cancel_run " + by + ": run cancelled\n" +
		"00:00 [1/1] run cancelled, stop asked for " + by + ": 1 cancelled in 0.000s\n"
	if log.String() != want {
		t.Errorf("got\n%s", log.String())
	}
}

// The log has a line for a guard that could not decide and let its node run, and one for each line that a step logs. The word panic appears
// once.
func TestPlainLogOfGuards(t *testing.T) {
	var log bytes.Buffer
	synctest.Test(t, func(t *testing.T) {
		var g kahn.Graph
		g.Add(kahn.Node{ID: "A"}, kahn.Node{ID: "B", After: []string{"A"}, GuardErrors: kahn.GuardAllow, When: func(v kahn.View) (bool, error) { return v.Output("C") == nil, nil }})
		p := New(&log, Plain)
		sink, checked := watched(t, &g, p.Event)
		res, _ := kahn.Execute(t.Context(), &g, func(_ context.Context, s *kahn.Step) (any, error) {
			s.Log(slog.LevelWarn, "own")
			if s.ID() == "B" {
				panic("oh")
			}
			return nil, nil
		}, kahn.OnEvent(sink))
		checked(res)
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	want := `00:00 run started: 2 nodes
00:00 A: started
00:00 A | own
00:00 A: completed in 0.000s
00:00 B: guard could not decide: not an ancestor: "C" (there is "A")
00:00 B: started
00:00 B | own
00:00 B: failed after 0.000s: panic: oh
00:00 [2/2] run failed: 1 failed in 0.000s
`
	if log.String() != want {
		t.Errorf("got\n%s", log.String())
	}
}

func golden(t *testing.T, file, got string) {
	t.Helper()
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s: got\n%s", file, got)
	}
}

// Nodes inside a composite have lines, but the header does not count them. The display stays open while a run waits for a signal.
func TestPlainLogOfCompositesAndGates(t *testing.T) {
	var log bytes.Buffer
	synctest.Test(t, func(t *testing.T) {
		p := New(&log, Plain)
		var g kahn.Graph
		g.Add(
			kahn.Node{ID: "sub", Sub: new(kahn.Graph).Add(kahn.Node{ID: "in"}, kahn.Node{ID: "off", Disabled: true})},
			kahn.Node{ID: "approve", Kind: kahn.KindGate, After: []string{"sub"}, Gate: &kahn.Gate{Timeout: time.Hour}},
			kahn.Node{ID: "done", After: []string{"approve"}},
		)
		step := func(context.Context, *kahn.Step) (any, error) { time.Sleep(time.Second); return nil, nil }
		sink, checked := watched(t, &g, p.Event)
		run, err := kahn.Start(context.Background(), &g, step, kahn.OnEvent(sink))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		if err := run.Signal(context.Background(), "approve", kahn.Decision{Value: "yes", Actor: "ann", Comment: "go on"}); err != nil {
			t.Fatal(err)
		}
		res, _ := run.Wait()
		checked(res)
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	want := strings.Join([]string{
		"00:00 run started: 3 nodes",
		"00:00 sub: started",
		"00:00 sub/off: skipped: annotation",
		"00:00 sub/in: started",
		"00:01 sub/in: completed in 1.000s",
		"00:01 sub: completed in 1.000s",
		"00:01 approve: suspended until 1:00:01",
		"00:01 run suspended: waits for approve",
		"00:03 approve: answered by \"ann\": \"go on\"",
		"00:03 approve: completed in 0.000s",
		"00:03 done: started",
		"00:04 done: completed in 1.000s",
		"00:04 [3/3] run completed in 4.000s",
		"",
	}, "\n")
	if got := log.String(); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// The events of a run that continues do not contain the number of the run's nodes.
func TestSummaryWithoutTotal(t *testing.T) {
	s := &state{}
	s.record(event.Event{Type: event.RunStatusChanged, Time: time.Unix(9, 0)})
	s.record(event.Event{Type: event.NodeSuspended, Node: "gate", Time: time.Unix(9, 0)})
	s.record(event.Event{Type: event.NodeStarted, Node: "a", Time: time.Unix(9, 0)})
	if got := text(s.frame(time.Unix(10, 0), 60, 10)[:1]); got != "[0/?] 1 running 1 suspended 00:01\n" {
		t.Error(got)
	}
}

// In mode JSON every event is one line, in order.
func TestJSON(t *testing.T) {
	var log bytes.Buffer
	var events []event.Event
	synctest.Test(t, func(t *testing.T) {
		p := New(&log, JSON)
		script(t, func(e event.Event) {
			events = append(events, e)
			p.Event(e)
		})
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	lines := strings.Split(strings.TrimSuffix(log.String(), "\n"), "\n")
	if len(lines) != len(events) {
		t.Fatalf("%d lines for %d events", len(lines), len(events))
	}
	for i, e := range events {
		want, err := json.Marshal(e)
		if err != nil || string(want) != lines[i] {
			t.Errorf("%s for event %v, %v", lines[i], e, err)
		}
	}
}

func TestModeOfWriter(t *testing.T) {
	v := newTerminal(t, 80, 24)
	defer v.close()
	file, err := os.Create(t.TempDir() + "/log")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }() // nothing was written
	for _, test := range []struct {
		name, term, ci string
		file           *os.File
		want           Mode
	}{
		{"terminal", "xterm", "", v.tty, TTY},
		{"terminal, CI=false", "xterm", "false", v.tty, TTY},
		{"dumb terminal", "dumb", "", v.tty, Plain},
		{"terminal in CI", "xterm", "true", v.tty, Plain},
		{"file", "xterm", "", file, Plain},
	} {
		t.Setenv("TERM", test.term)
		t.Setenv("CI", test.ci)
		if got := New(test.file, Auto).display.mode; got != test.want {
			t.Errorf("%s: mode %v, want %v", test.name, got, test.want)
		}
		if got := New(test.file, JSON).display.mode; got != JSON {
			t.Errorf("%s: mode %v, want what was asked for", test.name, got)
		}
	}

	var m Mode
	for _, name := range []string{"auto", "tty", "plain", "json"} {
		if err := m.UnmarshalText([]byte(name)); err != nil || m.String() != name {
			t.Errorf("%q is read as %v, %v", name, m, err)
		}
	}
	if err := m.UnmarshalText([]byte("fancy")); !errors.Is(err, kahn.ErrBadValue) {
		t.Errorf("error %v", err)
	}
	if text, err := (JSON + 1).MarshalText(); !errors.Is(err, kahn.ErrBadValue) {
		t.Errorf("a mode without a name is %q, %v", text, err)
	}
}

// writerFunc is a writer that calls itself.
type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// A writer that fails, panics or does not return does not affect the run.
func TestWritersAtFault(t *testing.T) {
	full := errors.New("disk full")
	for _, mode := range []Mode{TTY, Plain, JSON} {
		writes := 0
		for name, w := range map[string]writerFunc{
			"error": func([]byte) (int, error) { writes++; return 0, full },
			"panic": func([]byte) (int, error) { writes++; panic(full) },
		} {
			writes = 0
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				p := New(w, mode)
				res := script(t, p.Event)
				if res.Status != kahn.RunFailed || len(res.Warnings) > 0 || time.Since(start) != 45*time.Second {
					t.Errorf("%v, %s: %v after %v, warnings %v", mode, name, res.Status, time.Since(start), res.Warnings)
				}
				if err := p.Close(); err == nil || !strings.Contains(err.Error(), "disk full") {
					t.Errorf("%v, %s: error %v", mode, name, err)
				}
				if writes != 1 {
					t.Errorf("%v, %s: %d writes", mode, name, writes)
				}
			})
		}
		synctest.Test(t, func(t *testing.T) {
			release := make(chan struct{})
			start := time.Now()
			p := New(writerFunc(func(p []byte) (int, error) { <-release; return len(p), nil }), mode)
			res := script(t, p.Event)
			if len(res.Warnings) > 0 || time.Since(start) != 45*time.Second {
				t.Errorf("%v, stuck: %v, warnings %v", mode, time.Since(start), res.Warnings)
			}
			close(release)
			if err := p.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestCloseWithoutARun(t *testing.T) {
	var b bytes.Buffer
	p := New(&b, TTY)
	if err := p.Close(); err != nil || p.Close() != nil || b.Len() > 0 {
		t.Errorf("%v, %q", err, &b)
	}
	p.Event(event.Event{Type: event.RunStarted, Payload: event.Start{}})
	if b.Len() > 0 {
		t.Errorf("%q after Close", &b)
	}
}

// However a process ends, its terminal is in its original state: nothing needs to be restored between two frames.
func TestTerminalIsLeftAsItWas(t *testing.T) {
	for _, end := range []string{"return", "panic", "foreign panic", "exit", "SIGINT", "SIGKILL"} {
		t.Run(end, func(t *testing.T) {
			v := newTerminal(t, 60, 10)
			defer v.close()
			ready, out, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = ready.Close() }() // an error does not matter after reading
			child := exec.Command(os.Args[0])
			child.Env = append(os.Environ(), childEnv+"="+end)
			child.Stdout = v.tty
			child.ExtraFiles = []*os.File{out}
			if err := child.Start(); err != nil {
				t.Fatal(err)
			}
			if err := out.Close(); err != nil {
				t.Fatal(err)
			}
			if n, err := ready.Read(make([]byte, 1)); n != 1 {
				t.Fatal(err)
			}
			switch end {
			case "SIGINT":
				err = child.Process.Signal(os.Interrupt)
			case "SIGKILL":
				err = child.Process.Kill()
			}
			if err != nil {
				t.Fatal(err)
			}
			err = child.Wait()
			if ws := child.ProcessState.Sys().(syscall.WaitStatus); (end == "return") != (err == nil) || strings.HasPrefix(end, "SIG") != ws.Signaled() {
				t.Errorf("the child: %v", err)
			}
			v.close()
			if err := v.atRest(); err != nil {
				t.Error(err)
			}
			if got := v.String(); !strings.HasPrefix(got, "[0/1] 1 running 00:0") || !strings.Contains(got, "\n=> endless  ") {
				t.Errorf("screen:\n%s", got)
			}
		})
	}
}

const childEnv = "KAHN_PROGRESS_CHILD"

func TestMain(m *testing.M) {
	if end := os.Getenv(childEnv); end != "" {
		child(end)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// child shows the progress of an endless run on its standard output, a terminal. After a few frames it ends in the given way.
func child(end string) {
	frames := make(chan struct{}, 100)
	p := New(counted{os.Stdout, frames}, TTY)
	var g kahn.Graph
	g.Add(kahn.Node{ID: "endless", Do: func(context.Context, *kahn.Step) (any, error) { select {} }})
	if _, err := kahn.Start(context.Background(), &g, nil, kahn.OnEvent(p.Event)); err != nil {
		panic(err)
	}
	for range 3 {
		<-frames
	}
	if _, err := os.NewFile(3, "ready").Write([]byte{1}); err != nil {
		panic(err)
	}
	if end == "exit" {
		os.Exit(1) // without Close
	}
	defer func() { _ = p.Close() }() // the test checks the terminal instead
	switch end {
	case "return":
	case "panic":
		panic("at the disco")
	case "foreign panic":
		go panic("elsewhere")
		select {}
	default:
		select {}
	}
}

// counted is a terminal that signals every frame.
type counted struct {
	*os.File
	frames chan<- struct{}
}

func (c counted) Write(p []byte) (int, error) {
	defer func() { c.frames <- struct{}{} }()
	return c.File.Write(p)
}

// The host's own output is complete and above the picture, in any width and length.
func TestOutputAboveThePicture(t *testing.T) {
	t.Setenv("CI", "")
	t.Setenv("TERM", "xterm")
	v := newTerminal(t, 20, 12)
	synctest.Test(t, func(t *testing.T) {
		p := New(v.tty, Auto)
		go func() {
			time.Sleep(120 * time.Millisecond)
			synctest.Wait()
			v.snapshot("before")
			fmt.Fprintln(p, "one")
			fmt.Fprint(p, "two\r\nthr")
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
			v.snapshot("two lines and a half")
			fmt.Fprint(p, "ee\x1b[2J\n"+strings.Repeat("x", 20)+"\n"+strings.Repeat("日", 11)+"\n")
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
			v.snapshot("wide lines")
		}()
		g := new(kahn.Graph).Add(kahn.Node{ID: "A"})
		sink, checked := watched(t, g, p.Event)
		res, err := kahn.Execute(context.Background(), g, func(context.Context, *kahn.Step) (any, error) {
			time.Sleep(time.Second)
			return nil, nil
		}, kahn.OnEvent(sink))
		if err != nil {
			t.Error(err)
		}
		checked(res)
		synctest.Wait() // waits for the last picture, which stays
		fmt.Fprint(p, "last")
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		if n, err := fmt.Fprint(p, "late"); n != 0 || !errors.Is(err, os.ErrClosed) {
			t.Errorf("%d, %v", n, err)
		}
	})
	v.close()
	wide := "one\ntwo\nthree\\x1b[2J\nxxxxxxxxxxxxxxxxxxxx\n日日日日日日日日日日\n日\n"
	for name, want := range map[string]string{
		"before":               "[0/1] 1 runni… 00:00\n=> A            0.1s\n",
		"two lines and a half": "one\ntwo\n[0/1] 1 runni… 00:00\n=> A            0.2s\n",
		"wide lines":           wide + "[0/1] 1 runni… 00:00\n=> A            0.3s\n",
	} {
		if got := v.snapshots[name]; got != want {
			t.Errorf("%s:\n%s", name, got)
		}
	}
	if got := v.String(); !strings.HasPrefix(got, wide+"[1/1]") || !strings.HasSuffix(got, "\nlast\n") {
		t.Errorf("at the end:\n%s", got)
	}
	if err := v.atRest(); err != nil {
		t.Error(err)
	}
}

// In a log the host's lines are between the events' lines, and concurrent writes do not split them.
func TestOutputInALog(t *testing.T) {
	for mode, format := range map[Mode]string{Plain: "%s\n", JSON: "{\"output\":\"%s\"}\n", TTY: "%s\n"} {
		var out bytes.Buffer
		p := New(&out, mode)
		g := new(kahn.Graph).Add(kahn.Node{ID: "A"}, kahn.Node{ID: "B"}, kahn.Node{ID: "C"})
		sink, checked := watched(t, g, p.Event)
		res, err := kahn.Execute(context.Background(), g, func(_ context.Context, s *kahn.Step) (any, error) {
			for i := range 100 {
				fmt.Fprintf(p, "%s says %d\n", s.ID(), i)
			}
			return nil, nil
		}, kahn.OnEvent(sink))
		if err != nil {
			t.Error(err)
		}
		checked(res)
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		got := strings.ReplaceAll(out.String(), "\r\n", "\n")
		for _, id := range []string{"A", "B", "C"} {
			for i := range 100 {
				if line := fmt.Sprintf(format, fmt.Sprintf("%s says %d", id, i)); strings.Count(got, line) != 1 {
					t.Fatalf("%v: not one %q in\n%s", mode, line, got)
				}
			}
		}
	}
}
