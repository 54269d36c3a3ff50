package progress

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
)

// orders performs three runs under a Runner. One completes after two seconds, one fails after one second, and one waits for an answer. The answer
// comes between two frames, a little more than four seconds after the start. So the next frame contains both the host's output at that time and
// the end of the run.
func orders(t *testing.T, group *Group) {
	t.Helper()
	g := &kahn.Graph{Name: "order"}
	g.Add(kahn.Node{ID: "pack"}, kahn.Node{ID: "paid", Kind: kahn.KindGate, After: []string{"pack"}})
	step := func(_ context.Context, s *kahn.Step) (any, error) {
		if s.RunID() == "2" {
			time.Sleep(time.Second)
			return nil, errors.New("no stock")
		}
		time.Sleep(2 * time.Second)
		return nil, nil
	}
	runner := kahn.Runner{Options: group.Options()}
	live := map[string]*kahn.Run{}
	for _, id := range []string{"1", "2", "3"} {
		sink, checked := watched(t, g, func(event.Event) {})
		run, err := runner.Start(context.Background(), g, step, kahn.RunID(id), kahn.OnEvent(sink))
		if err != nil {
			t.Fatal(err)
		}
		live[id] = run
		defer func() {
			res, _ := run.Wait()
			checked(res)
		}()
		synctest.Wait() // so that the runs begin in this order
	}
	for id, at := range map[string]time.Duration{"1": 0, "3": 4*time.Second + redrawEvery/2} {
		go func() {
			time.Sleep(at)
			if err := live[id].Signal(context.Background(), "paid", true); err != nil {
				t.Error(err)
			}
		}()
	}
}

// Each running run has a part of the picture. An ended run stays above the picture and is never overwritten.
func TestGroupOnATerminal(t *testing.T) {
	v := onTerminal(t, 40, 12, []time.Duration{520 * time.Millisecond, 1520 * time.Millisecond, 3520 * time.Millisecond}, func(t *testing.T, v *terminal) {
		group := NewGroup(v.tty, Auto)
		orders(t, group)
		fmt.Fprintln(group, "from the host")
		if err := group.Close(); err != nil {
			t.Error(err)
		}
	})
	failed := "order 2 [2/2] run failed: 1 faile… 00:01\nFAILED pack: step_error: no stock\n"
	done := "order 1 [2/2] run completed 00:02\n"
	for name, want := range map[string]string{
		"520ms": "3 runs running 00:00\norder 1 [0/2] 1 running 00:00\n=> pack                             0.5s\n" +
			"order 2 [0/2] 1 running 00:00\n=> pack                             0.5s\norder 3 [0/2] 1 running 00:00\n=> pack                             0.5s\n",
		"1.52s": failed + "2 runs running, 1 failed 00:01\norder 1 [0/2] 1 running 00:01\n=> pack                             1.5s\n" +
			"order 3 [0/2] 1 running 00:01\n=> pack                             1.5s\n",
		"3.52s": failed + done + "0 runs running, 1 waiting, 1 comp… 00:03\norder 3 [1/2] 1 suspended 00:03\n?? paid                             1.5s\n",
	} {
		if got := v.snapshots[name]; got != want {
			t.Errorf("%s:\n%s", name, got)
		}
	}
	if got := v.String(); got != failed+done+"from the host\norder 3 [2/2] run completed 00:04\n0 runs running, 2 completed, 1 fa… 00:04\n" {
		t.Errorf("at the end:\n%s", got)
	}
	if err := v.atRest(); err != nil {
		t.Error(err)
	}
}

// lives performs two lives of a run: Execute leaves the run suspended, and the run continues after between returns.
func lives(t *testing.T, group *Group, between func()) {
	t.Helper()
	g := new(kahn.Graph).Add(kahn.Node{ID: "a"}, kahn.Node{ID: "b", Kind: kahn.KindGate, After: []string{"a"}}, kahn.Node{ID: "c", After: []string{"b"}})
	step := func(context.Context, *kahn.Step) (any, error) { time.Sleep(time.Second); return nil, nil }
	life := func(perform func(...kahn.Option) (*kahn.Result, error)) *kahn.Result {
		sink, checked := watched(t, g, func(event.Event) {})
		res, err := perform(append(group.Options(), kahn.OnEvent(sink))...)
		if err != nil {
			t.Fatal(err)
		}
		checked(res)
		return res
	}
	res := life(func(opts ...kahn.Option) (*kahn.Result, error) {
		return kahn.Execute(t.Context(), g, step, append(opts, kahn.RunID("r"))...)
	})
	between()
	life(func(opts ...kahn.Option) (*kahn.Result, error) {
		return kahn.Execute(t.Context(), g, step, append(opts, kahn.Resume(res.Snapshot()), kahn.EarlySignals(map[string]any{"b": true}))...)
	})
	if err := group.Close(); err != nil {
		t.Error(err)
	}
}

// A run that Execute left suspended stays above the picture. When it continues, at once or later, it gets a new part of the picture.
func TestGroupOfLives(t *testing.T) {
	for _, pause := range []time.Duration{0, 120 * time.Millisecond} {
		v := onTerminal(t, 40, 12, nil, func(t *testing.T, v *terminal) {
			lives(t, NewGroup(v.tty, Auto), func() {
				if pause > 0 {
					time.Sleep(pause)
					synctest.Wait()
					v.snapshot("left")
				}
			})
		})
		left := "r [1/3] 1 suspended 00:01\n?? b                                0.0s\n"
		if got := v.snapshots["left"]; pause > 0 && got != left+"0 runs running, 1 suspended 00:01\n" {
			t.Errorf("left:\n%s", got)
		}
		if got := v.String(); got != left+"r [3/3] run completed 00:01\n0 runs running, 1 suspended, 1 co… 00:02\n" {
			t.Errorf("after %v:\n%s", pause, got)
		}
	}
}

// In a log each line names its run. If a run continues, each node is counted once.
func TestGroupOfLivesInALog(t *testing.T) {
	var log bytes.Buffer
	synctest.Test(t, func(t *testing.T) { lives(t, NewGroup(&log, Plain), func() {}) })
	for _, want := range []string{"00:01 r run suspended: waits for b\n", "00:02 r [3/3] run completed in "} {
		if strings.Count(log.String(), want) != 1 {
			t.Errorf("not one %q in\n%s", want, &log)
		}
	}
}

// In every mode a group drops a run that has ended or was left. After Close it keeps no run.
func TestGroupForgetsRuns(t *testing.T) {
	g := new(kahn.Graph).Add(kahn.Node{ID: "a"}, kahn.Node{ID: "ask", Kind: kahn.KindGate})
	step := func(context.Context, *kahn.Step) (any, error) { return nil, nil }
	for _, mode := range []Mode{TTY, Plain, JSON} {
		synctest.Test(t, func(t *testing.T) {
			var log bytes.Buffer
			group := NewGroup(&log, mode)
			perform := func(opts ...kahn.Option) {
				sink, checked := watched(t, g, func(event.Event) {})
				res, err := kahn.Execute(t.Context(), g, step, append(append(group.Options(), kahn.OnEvent(sink)), opts...)...)
				if err != nil {
					t.Error(err)
				}
				checked(res)
			}
			for range 20 {
				perform() // left suspended
				perform(kahn.EarlySignals(map[string]any{"ask": true}))
			}
			time.Sleep(redrawEvery + time.Millisecond)
			synctest.Wait()
			r := &group.runs
			want := "0 runs running, 20 suspended, 20 completed"
			if len(r.byID)+len(r.live)+len(r.ended) > 0 || r.summary() != want {
				t.Errorf("%v: %d runs, %d at work, %d ended: %s", mode, len(r.byID), len(r.live), len(r.ended), r.summary())
			}
			if err := group.Close(); err != nil {
				t.Error(err)
			}
			perform()
			if len(r.byID)+len(r.live)+len(r.ended) > 0 || r.summary() != want {
				t.Errorf("%v: %d runs after Close: %s", mode, len(r.byID), r.summary())
			}
		})
	}
}

// In a log each line names its run.
func TestGroupInALog(t *testing.T) {
	var log bytes.Buffer
	synctest.Test(t, func(t *testing.T) {
		group := NewGroup(&log, Plain)
		orders(t, group)
		if err := group.Close(); err != nil {
			t.Error(err)
		}
	})
	for _, want := range []string{
		"00:00 order 1 run started: 2 nodes\n", "00:01 order 2 pack: failed after 1.000s: step_error: no stock\n", "00:01 order 2 [2/2] run failed: 1 failed 1 aborted in 1.000s\n",
		"00:02 order 3 run suspended: waits for paid\n", "00:04 order 3 [2/2] run completed in 4.050s\n",
	} {
		if strings.Count(log.String(), want) != 1 {
			t.Errorf("not one %q in\n%s", want, &log)
		}
	}
}

// Runs with failures get the first lines. No frame is higher than the terminal, however low the terminal is.
func TestGroupFitsTheHeight(t *testing.T) {
	var r runs
	start := time.Unix(1000, 0)
	for i := range 5 {
		id := fmt.Sprint("r", i)
		r.record(event.Event{RunID: id, Type: event.RunStarted, Time: start, Payload: event.Start{TotalNodes: 9}})
		for _, node := range []string{"a", "b", "c"} {
			r.record(event.Event{RunID: id, Type: event.NodeStarted, Node: node, Attempt: 1, Time: start})
		}
	}
	r.record(event.Event{RunID: "r3", Type: event.NodeFailed, Node: "a", Attempt: 1, Time: start, Payload: event.NodeEnd{Cause: kahn.CausePanic}})
	for height := range 40 {
		rows := r.frame(start, 60, height)
		if len(rows) > max(height-1, 1) || height > 3 && !strings.HasPrefix(rows[1].text, "r3 [1/9] 1 failed") {
			t.Errorf("%d lines:\n%s", height, text(rows))
		}
	}
	if got := text(r.frame(start, 60, 5)); !strings.HasSuffix(got, "\nr0 [0/9] 3 running 00:00\n... and 3 more runs\n") {
		t.Error(got)
	}
	if got := text(r.frame(start, 60, 12)); !strings.Contains(got, "5 runs running 00:00\n") {
		t.Error(got)
	}
	if got := r.reminder(start); got != "5 runs running: r0 [0/9], r1 [0/9], r2 [0/9], r3 [1/9], r4 [0/9]" {
		t.Error(got)
	}
	for _, id := range []string{"r0", "r1", "r2", "r4"} {
		r.record(event.Event{RunID: id, Type: event.RunCompleted, Time: start, Payload: event.RunEnd{Status: kahn.RunCompleted}})
	}
	if got := r.reminder(start); got != "1 run running, 4 completed: r3 [1/9]" {
		t.Error(got)
	}
}
