package progress

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/store"
)

func numbers(n int) map[string]any {
	list := make([]any, n)
	for i := range list {
		list[i] = i
	}
	return map[string]any{"list": list}
}

// mapOf returns a graph with a map of n items between two nodes. Four items run at a time.
func mapOf(n int) *kahn.Graph {
	return new(kahn.Graph).Add(
		kahn.Node{ID: "list"},
		kahn.Node{ID: "m", After: []string{"list"}, Params: numbers(n), Map: &kahn.Map{Over: "list", Limit: 4, ToleratedCount: n}},
		kahn.Node{ID: "end", After: []string{"m"}},
	)
}

// A map has 400 items, each takes a second, and four run at a time. After 30.5 s, 120 items have ended, at 4 per second, and 280/4 = 70 s remain.
// After 60.5 s, 240 items have ended and 40 s remain.
func TestItemsOnATerminal(t *testing.T) {
	v := onTerminal(t, 80, 8, []time.Duration{30500 * time.Millisecond, 60500 * time.Millisecond}, func(t *testing.T, v *terminal) {
		p := New(v.tty, Auto)
		sink, checked := watched(t, mapOf(400), func(event.Event) {})
		res, err := kahn.Execute(t.Context(), mapOf(400), func(_ context.Context, s *kahn.Step) (any, error) {
			if s.Index() < 0 {
				return nil, nil
			}
			time.Sleep(time.Second)
			if s.Index()%40 == 0 {
				return nil, errors.New("no stock")
			}
			return nil, nil
		}, append(p.Options(), kahn.OnEvent(sink))...)
		if err != nil {
			t.Error(err)
		}
		checked(res)
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	for at, want := range map[string][2]string{
		"30.5s":  {"[1/3] 120/400 items (3 failed, 4.0/s, 1m11s left) 1 running 00:30", "=> m 120/400 items (3 failed, 4.0/s, 1m11s left)"},
		"1m0.5s": {"[1/3] 240/400 items (6 failed, 4.0/s, 41s left) 1 running 01:00", "=> m 240/400 items (6 failed, 4.0/s, 41s left)"},
	} {
		lines := strings.Split(v.snapshots[at], "\n")
		if len(lines) < 3 || !near(lines[0], want[0]) || !near(lines[1], want[1]) || !strings.HasPrefix(lines[2], "=> m[") {
			t.Errorf("after %s, want about %q:\n%s", at, want, v.snapshots[at])
		}
	}
	if got := v.String(); !strings.HasPrefix(got, "[3/3] run completed (degraded) 01:40\n") {
		t.Error(got)
	}
}

var figure = regexp.MustCompile(`\d\.\d/s|(\d+m)?\d+s left`)

// near reports whether a line equals the given one, except for small differences in the rate and the remaining time, which an item that is
// running causes.
func near(got, want string) bool {
	first, last := figure.FindAllString(got, 2), figure.FindAllString(want, 2)
	if len(first) == 0 || len(first) != len(last) || !strings.HasPrefix(figure.ReplaceAllString(got, "~"), figure.ReplaceAllString(want, "~")) {
		return false
	}
	perSecond := func(s string) (x float64) { _, _ = fmt.Sscanf(s, "%f/s", &x); return x }
	left := func(s string) float64 { d, _ := time.ParseDuration(strings.TrimSuffix(s, " left")); return d.Seconds() }
	return within(perSecond(first[0]), perSecond(last[0]), 0.1) && within(left(first[len(first)-1]), left(last[len(last)-1]), 2)
}

func within(a, b, by float64) bool { return a-b <= by && b-a <= by }

// For a large map, plain mode writes the number of ended items at most every five seconds of the run's clock, and no lines for items that start
// and complete. Items that fail keep their lines.
func TestItemsInALog(t *testing.T) {
	var log bytes.Buffer
	synctest.Test(t, func(t *testing.T) {
		p := New(&log, Plain)
		_, err := kahn.Execute(t.Context(), mapOf(400), func(_ context.Context, s *kahn.Step) (any, error) {
			if s.Index() >= 0 {
				time.Sleep(100 * time.Millisecond)
			}
			if s.Index() == 7 {
				return nil, errors.New("no stock")
			}
			return nil, nil
		}, p.Options()...)
		if err != nil {
			t.Error(err)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	want := []string{
		"00:00 run started: 3 nodes", "00:00 list: started", "00:00 list: completed in 0.000s", "00:00 m: started",
		"00:00 m[7]: failed after 0.100s: step_error: no stock",
		"00:05 m 197/400 items (1 failed, 39/s, 6s left)", // 196 items have ended before 5 s. Four items end at 5 s, and the end of the first of them causes this line
		"00:10 m 397/400 items (1 failed, 40/s, 1s left)",
		"00:10 m: completed in 10.000s, 400/400 items (1 failed)",
		"00:10 end: started", "00:10 end: completed in 0.000s", "00:10 [3/3] run completed (degraded) in 10.000s", "",
	}
	if got := log.String(); got != strings.Join(want, "\n") {
		t.Error(got)
	}
}

// After a crash the counts include items that ended before the crash. The rate does not include them.
func TestItemsAfterALife(t *testing.T) {
	twoLives(t, "120/200 items (2.0/s, 40s left)", func(p *Progress, first bool) []kahn.Option {
		if first {
			return nil
		}
		return p.Options()
	})
}

// A display that gets the events of a run from the stored log, as in another process, shows the same as a display in the run's own process.
func TestItemsFromTheLogOfTwoLives(t *testing.T) {
	twoLives(t, "120 items done (2.0/s)", func(p *Progress, _ bool) []kahn.Option { return []kahn.Option{kahn.OnEvent(p.Event)} })
	twoLives(t, "120/200 items (2.0/s, 40s left)", func(p *Progress, first bool) []kahn.Option {
		return []kahn.Option{kahn.OnEvent(func(e event.Event) {
			if p.Event(e); !first && e.Path == "m[100]" {
				p.Items("m", 200)
			}
		})}
	})
}

// twoLives performs a map of 200 items in two lives of a run. In the first life ten items end per second, for ten seconds. The second life begins
// an hour later, and two items end per second. After ten seconds of the second life a display must show 120 items and a rate of 2.
func twoLives(t *testing.T, want string, options func(p *Progress, first bool) []kahn.Option) {
	synctest.Test(t, func(t *testing.T) {
		p := New(&bytes.Buffer{}, Plain)
		g := new(kahn.Graph).Add(kahn.Node{ID: "m", Params: numbers(200), Map: &kahn.Map{Over: "list", Limit: 1}})
		var db store.Memory
		took := 100 * time.Millisecond
		life := func(ctx context.Context, first bool) {
			_, err := kahn.Execute(ctx, g, func(ctx context.Context, _ *kahn.Step) (any, error) {
				select {
				case <-time.After(took):
					return nil, nil
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			}, append(options(p, first), kahn.Durable(&db), kahn.RunID("r"))...)
			if ctx.Err() == nil && err != nil {
				t.Error(err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second+50*time.Millisecond)
		life(ctx, true)
		cancel()
		time.Sleep(time.Hour)
		took = 500 * time.Millisecond
		done := make(chan struct{})
		go func() { life(t.Context(), false); close(done) }()
		time.Sleep(10*time.Second + 50*time.Millisecond)
		synctest.Wait()
		p.mu.Lock()
		got := p.run.itemsText(time.Now())
		p.mu.Unlock()
		if !near(got, want) {
			t.Errorf("%q, want about %q", got, want)
		}
		<-done
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
}

// Each composite counts the nodes directly inside, at any depth of nesting: a sub-graph and an expanded node the nodes of their graph, a loop the
// nodes of its current iteration, and a map its items. The header counts the items of the outer map only.
func TestInsideOfComposites(t *testing.T) {
	pair := func() *kahn.Graph {
		return new(kahn.Graph).Add(kahn.Node{ID: "x"}, kahn.Node{ID: "y", After: []string{"x"}}, kahn.Node{ID: "z", After: []string{"y"}})
	}
	nested := func() *kahn.Graph {
		return new(kahn.Graph).Add(kahn.Node{ID: "in", Map: &kahn.Map{Over: "list", Limit: 1}, Params: numbers(9)})
	}
	g := new(kahn.Graph).Add(
		kahn.Node{ID: "sub", Sub: pair()},
		kahn.Node{ID: "loop", Sub: pair(), Loop: &kahn.Loop{While: func(kahn.View) (bool, error) { return true, nil }, MaxIterations: 9, OnLimit: kahn.LoopStop}},
		kahn.Node{ID: "grow", Do: func(context.Context, *kahn.Step) (any, error) { return nil, kahn.Expand(pair(), nil, nil) }},
		kahn.Node{ID: "out", Map: &kahn.Map{Over: "list"}, Params: numbers(2), Sub: nested()},
	)
	v := onTerminal(t, 60, 30, []time.Duration{4520 * time.Millisecond, 500 * time.Millisecond}, func(t *testing.T, v *terminal) {
		p := New(v.tty, Auto)
		_, err := kahn.Execute(t.Context(), g, func(_ context.Context, s *kahn.Step) (any, error) {
			time.Sleep(time.Second)
			if s.ID() == "z" && strings.HasPrefix(s.Path(), "sub") || strings.HasPrefix(s.Path(), "grow") {
				time.Sleep(3 * time.Second)
			}
			return nil, nil
		}, p.Options()...)
		if err != nil {
			t.Error(err)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	got := v.snapshots["4.52s"]
	for _, want := range []string{
		"[0/4] 0/2 items 4 running ",
		"=> sub 2/3 nodes ", "=> loop iteration 2, 1/3 nodes ", "=> grow 1/3 nodes ", "=> out 0/2 items ",
		"=> out[0]/in 4/9 items (53/min, 6s left) ", "=> out[1]/in 4/9 items (53/min, 6s left) ",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}

// Until an item has ended, the remaining time follows from the declared estimate, and afterwards from the rate. While the run waits there is no
// rate.
func TestEstimateOfItems(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(&bytes.Buffer{}, Plain)
		shows := func(want string) {
			t.Helper()
			synctest.Wait()
			p.mu.Lock()
			defer p.mu.Unlock()
			if got := p.run.itemsText(time.Now()); got != want {
				t.Errorf("%q, want %q", got, want)
			}
		}
		g := new(kahn.Graph).Add(kahn.Node{ID: "m", Estimate: time.Minute, Params: numbers(8), Map: &kahn.Map{Over: "list", Limit: 2}})
		run, err := kahn.Start(t.Context(), g, func(_ context.Context, s *kahn.Step) (any, error) {
			if _, answered := s.Resumed(); s.Index() > 3 && !answered {
				return nil, kahn.Suspend("", nil, nil)
			}
			time.Sleep(2 * time.Minute)
			return nil, nil
		}, p.Options()...)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		shows("0/8 items (4m00s left)")
		time.Sleep(2 * time.Minute)
		shows("2/8 items (1/min, 6m03s left)")
		time.Sleep(2 * time.Minute)
		shows("4/8 items")
		time.Sleep(time.Hour)
		for i := 4; i < 8; i++ {
			if err := run.Signal(t.Context(), fmt.Sprintf("m[%d]", i), nil); err != nil {
				t.Error(err)
			}
		}
		time.Sleep(2*time.Minute + time.Second)
		shows("6/8 items (1/min, 2m01s left)")
		if _, err := run.Wait(); err != nil {
			t.Error(err)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
}

// While no process performs the run, its times and rates do not change.
func TestRunWithoutAProcess(t *testing.T) {
	start := time.Unix(1000, 0)
	p := New(&bytes.Buffer{}, Plain)
	at := func(after time.Duration, what event.Type, node string, payload any) {
		p.Event(event.Event{Type: what, Node: node, Path: node, Attempt: 1, Time: start.Add(after), Payload: payload})
	}
	at(0, event.RunStarted, "", event.Start{TotalNodes: 2})
	at(0, event.NodeStarted, "m", nil)
	for i := range 10 {
		at(0, event.NodeStarted, fmt.Sprintf("m[%d]", i), nil)
	}
	at(2*time.Second, event.NodeCompleted, "m[0]", event.Completion{})
	p.Items("m", 10)
	frame := func() string { return text(p.run.frame(start.Add(time.Hour), 60, 3)) }
	p.Gone(start.Add(4 * time.Second))
	if got := frame(); got != "[0/2] no process: 1/10 items 1 running 00:04\n... and 10 more running\n" {
		t.Errorf("%s", got)
	}
	if got := p.run.reminder(start.Add(time.Hour)); !strings.HasPrefix(got, "no process performs the run: [0/2] no process: 1/10 items 1 running: m 4.0s, m[1] 4.0s") {
		t.Error(got)
	}
	at(time.Hour, event.RunRecovered, "", event.Recovery{})
	at(time.Hour, event.NodeQueued, "m[1]", nil)
	if got := frame(); got != "[0/2] 1/10 items 1 running 1:00:00\n... and 9 more running\n" {
		t.Errorf("%s", got)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

// A node that a redrive repeats counts neither as ended nor as failed.
func TestRedriveInTheLog(t *testing.T) {
	var s state
	at := time.Unix(1000, 0)
	for _, e := range []event.Event{
		{Type: event.RunStarted, Payload: event.Start{TotalNodes: 2}}, {Type: event.NodeCompleted, Node: "a", Payload: event.Completion{}},
		{Type: event.NodeFailed, Node: "b", Payload: event.NodeEnd{}}, {Type: event.NodeInvalidated, Node: "b", Payload: event.Invalidation{Reason: "redrive"}},
	} {
		e.Path, e.Time = e.Node, at
		s.record(e)
	}
	if got := s.summary(); got != "[1/2]" || len(s.failed) > 0 {
		t.Errorf("%s, %d failures", got, len(s.failed))
	}
}

func TestRates(t *testing.T) {
	for perSecond, want := range map[float64]string{812.4: "812/s", 10: "10/s", 9.96: "10/s", 3.44: "3.4/s", 1: "1.0/s", 0.99: "59/min", 0.1: "6/min", 1. / 600: "6/h", 1e-9: "1/h"} {
		if got := rate(perSecond); got != want {
			t.Errorf("%g: %q, want %q", perSecond, got, want)
		}
	}
	for d, want := range map[time.Duration]string{
		1: "1s", 6500 * time.Millisecond: "7s", 59*time.Second + 1: "1m00s", 200 * time.Second: "3m20s", 3599*time.Second + 1: "1h00m", 130 * time.Minute: "2h10m", 123 * time.Hour: "5d3h",
	} {
		if got := remaining(d); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
}

// The rate covers the last 30 moments, so after 200 quick items and 40 slow ones it is the rate of the slow items.
func TestPaceForgets(t *testing.T) {
	at := time.Unix(1000, 0)
	p := pace{{at, 0}}
	for i := range 240 {
		d := 10 * time.Millisecond
		if i >= 200 {
			d = 5 * time.Second
		}
		at = at.Add(d)
		p.note(at, i+1)
	}
	if got := rate(p.of(at, 240)); got != "12/min" || len(p) > mostMoments {
		t.Errorf("%s of %d moments", got, len(p))
	}
}
