package conformance_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
)

func TestScenarioResume(t *testing.T) {
	inBubble(t, "213 the gate's output is the signal", func(t *testing.T) {
		g := graph(gate("G"), after("B", "G"))
		r := pause(t, g, neverStep(t)).resume(g, func(_ context.Context, s *kahn.Step) (any, error) {
			v, _ := s.Upstream("G")
			return v, nil
		}, map[string]any{"G": map[string]any{"ok": 1}})
		r.expect("G:ok B:ok", "completed")
		if got := fmt.Sprint(r.node("B").Output); got != "map[ok:1]" {
			t.Errorf("B got %s", got)
		}
		r.order("run.started", "node.suspended G", "run.status.changed", "run.status.changed", "node.completed G", "node.started B", "run.completed")
		r.count(event.NodeStarted, "G", 0)
	})

	inBubble(t, "214 a gate routes", func(t *testing.T) {
		g := graph(gate("G"), branch("P", "G", "approve"), branch("R", "G", "reject"))
		pause(t, g, neverStep(t)).resume(g, takes(0), map[string]any{"G": false}).expect("G:ok P:S/br R:ok", "completed")
	})

	inBubble(t, "220 partial signals", func(t *testing.T) {
		g := graph(gate("G"), gate("H"), after("B", "H"))
		r := pause(t, g, neverStep(t)).resume(g, neverStep(t), map[string]any{"G": 1})
		r.expect("G:ok H:suspended B:waiting", "suspended")
		if r.err != nil {
			t.Error(r.err)
		}
		r.resume(g, takes(0), map[string]any{"H": 1}).expect("G:ok H:ok B:ok", "completed")
	})

	inBubble(t, "221 an unknown gate runs nothing", func(t *testing.T) {
		g := graph(gate("G"), kahn.Node{ID: "A", Do: takes(0)}, kahn.Node{ID: "S", Do: func(_ context.Context, s *kahn.Step) (any, error) {
			if _, ok := s.Resumed(); ok {
				return nil, nil
			}
			return nil, kahn.Suspend("token", nil, nil)
		}})
		r := pause(t, g, nil)
		for _, row := range []struct {
			signals map[string]any
			want    error
		}{
			{map[string]any{"X": 1}, kahn.ErrUnknownGate}, {map[string]any{"A": 1}, kahn.ErrUnknownGate},
			{map[string]any{"S": 1, "token": 2}, kahn.ErrDuplicateGate}, {map[string]any{"G": 1, "": 2}, kahn.ErrUnknownGate},
		} {
			res, err := resumeRun(t, t.Context(), g, neverStep(t), r.Snapshot(), row.signals, kahn.OnEvent(func(e kahn.Event) { t.Error(e) }))
			if res != nil || !errors.Is(err, row.want) {
				t.Errorf("%v: %v, %v", row.signals, res, err)
			}
		}
		r.resume(g, nil, map[string]any{"G": 1, "token": 2}).expect("G:ok A:ok S:ok", "completed")
	})

	inBubble(t, "222 the branch that was taken is remembered", func(t *testing.T) {
		var c calls
		g := graph(kahn.Node{ID: "A", Do: c.count(takes(0))}, kahn.Node{ID: "C", After: []string{"A"}, Test: func(kahn.View) (any, error) {
			if c.of("A") != 1 {
				t.Error("C was evaluated again")
			}
			return false, nil
		}}, branch("T", "C", "true"), gate("G", "A"), branch("late", "C", "true"))
		r := pause(t, g, neverStep(t))
		r.expect("A:ok C:ok T:S/br G:suspended late:S/br", "suspended")
		r = r.resume(g, neverStep(t), map[string]any{"G": true})
		r.expect("A:ok C:ok T:S/br G:ok late:S/br", "completed")
		if c.of("A") != 1 {
			t.Errorf("A was called %d times", c.of("A"))
		}
		if skip := r.node("T").Skip; skip.Node != "C" || skip.Label != "true" {
			t.Errorf("T was skipped because of %+v", skip)
		}
	})

	for _, row := range []struct {
		on         kahn.GateTimeout
		late       bool
		nodes, run string
	}{
		{kahn.GateFail, true, "G:F B:X", "failed"}, {kahn.GateLabel, true, "G:ok B:ok", "completed"},
		{kahn.GateFail, false, "G:suspended B:waiting", "suspended"},
	} {
		inBubble(t, fmt.Sprintf("224 a deadline that passed before the resumption: %v %v", row.on, row.late), func(t *testing.T) {
			g := graph(kahn.Node{ID: "G", Kind: kahn.KindGate, Gate: &kahn.Gate{Timeout: time.Hour, OnTimeout: row.on}}, after("B", "G"))
			r := pause(t, g, neverStep(t))
			time.Sleep(50 * time.Minute)
			if row.late {
				time.Sleep(20 * time.Minute)
			}
			next := r.resume(g, takes(0), nil)
			next.expect(row.nodes, row.run)
			switch {
			case row.on == kahn.GateLabel && row.late:
				if next.node("G").Output != "timeout" {
					t.Errorf("the output is %v", next.node("G").Output)
				}
			case row.late:
				next.cause("G", kahn.CauseGateTimeout)
			case !next.Waiting[0].Deadline.Equal(r.Waiting[0].Deadline):
				t.Errorf("the deadline was %v and is %v", r.Waiting[0].Deadline, next.Waiting[0].Deadline)
			}
		})
	}

	inBubble(t, "225 what ran when the process died runs again", func(t *testing.T) {
		g := graph(kahn.Node{ID: "A"}, after("B", "A"))
		rec := newRecorder()
		run, err := startRun(t, t.Context(), g, takes(time.Hour), kahn.OnEvent(rec.add))
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		s := run.Snapshot()
		seen := rec.all()
		run.Cancel() // the process dies
		if _, err := run.Wait(); err == nil {
			t.Error("a run that was cancelled has no error")
		}
		attempt := 0
		res, err := resumeRun(t, t.Context(), g, func(_ context.Context, s *kahn.Step) (any, error) {
			if s.ID() == "A" {
				attempt = s.Attempt()
			}
			return s.RunID(), nil
		}, reload(t, s), nil, kahn.OnEvent(rec.add))
		if err != nil {
			t.Fatal(err)
		}
		r := trial{res, t, err, append(seen, rec.all()[len(rec.all())-8:]...)}
		checkEvents(t, g, res, r.events)
		r.expect("A:ok B:ok", "completed")
		if attempt != 2 || r.node("A").Attempts != 2 || r.node("B").Output != run.ID() {
			t.Errorf("attempt %d, %d attempts, run %v", attempt, r.node("A").Attempts, r.node("B").Output)
		}
		r.order("node.started A", "run.recovered", "node.queued A", "node.started A", "node.completed A", "node.queued B")
		for i, e := range r.events {
			if e.ID != uint64(i+1) {
				t.Errorf("event %d is %v", i+1, e)
			}
		}
	})

	inBubble(t, "226 redrive of what failed and what follows", func(t *testing.T) {
		var c calls
		g := graph(kahn.Node{ID: "A"}, after("B", "A"), after("C"), kahn.Node{ID: "Z", Kind: kahn.KindEnd})
		r := try(t, g, c.count(func(_ context.Context, s *kahn.Step) (any, error) {
			if s.ID() == "A" {
				return nil, errStep
			}
			return s.ID(), nil
		}))
		r.expect("A:F B:X C:ok Z:ok", "failed")
		r = r.redrive(g, c.count(takes(0)))
		r.expect("A:ok B:ok C:ok Z:ok", "completed")
		if c.of("A") != 2 || c.of("B") != 1 || c.of("C") != 1 || c.of("Z") != 2 || r.node("C").Output != "C" || r.node("A").Attempts != 1 {
			t.Errorf("calls %v, output of C %v, attempts of A %d", c.n, r.node("C").Output, r.node("A").Attempts)
		}
		r.order("run.failed", "node.invalidated A", "node.invalidated B", "node.started A", "node.completed B", "run.completed")
		r.count("node.invalidated", "C", 0)
		if s := r.Snapshot(); s.Epoch() != 2 {
			t.Errorf("epoch %d", s.Epoch())
		}
	})

	inBubble(t, "226 redrive of named nodes", func(t *testing.T) {
		g := graph(after("A"), after("B", "A"), after("C", "B"), after("D"))
		var c calls
		r := try(t, g, c.count(takes(0))).redrive(g, c.count(takes(0)), "B")
		r.expect("A:ok B:ok C:ok D:ok", "completed")
		if c.of("A") != 1 || c.of("B") != 2 || c.of("C") != 2 || c.of("D") != 1 {
			t.Errorf("calls %v", c.n)
		}
		if _, err := kahn.Execute(t.Context(), g, neverStep(t), kahn.Redrive(r.Snapshot(), []string{"nobody"})); !errors.Is(err, kahn.ErrUnknownNode) {
			t.Error(err)
		}
		if _, err := resumeRun(t, t.Context(), g, neverStep(t), r.Snapshot(), nil); !errors.Is(err, kahn.ErrFinished) {
			t.Error(err)
		}
	})

	inBubble(t, "232 a suspended run is resumed to be cancelled", func(t *testing.T) {
		g := graph(gate("G"), after("B", "G"))
		r := pause(t, g, neverStep(t))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		res, err := kahn.Execute(ctx, g, neverStep(t), kahn.Resume(r.Snapshot()))
		trial{res, t, err, nil}.expect("G:C B:C", "cancelled")
	})

	inBubble(t, "233 another graph", func(t *testing.T) {
		one := graph(after("A"), gate("G", "A"), after("B", "G"))
		r := pause(t, one, takes(0))
		for name, other := range map[string]*kahn.Graph{
			"a node less":  graph(after("A"), gate("G", "A")),
			"a node more":  graph(after("A"), gate("G", "A"), after("B", "G"), after("C")),
			"another edge": graph(after("A"), gate("G", "A"), after("B", "G", "A")),
			"a new config": graph(after("A"), gate("G", "A"), kahn.Node{ID: "B", After: []string{"G"}, Config: 1}),
		} {
			res, err := resumeRun(t, t.Context(), other, neverStep(t), r.Snapshot(), map[string]any{"G": 1})
			if res != nil || !errors.Is(err, kahn.ErrGraphChanged) {
				t.Errorf("%s: %v, %v", name, res, err)
			}
			r.resume(other, takes(0), map[string]any{"G": 1}, kahn.AllowGraphChange()) // the graphs differ only in nodes that have no effect
		}
		for name, other := range map[string]*kahn.Graph{
			"what has run is gone":      graph(gate("G"), after("B", "G")),
			"what has run is different": graph(kahn.Node{ID: "A", Kind: "other"}, gate("G", "A"), after("B", "G")),
			"the gate is different":     graph(after("A"), gate("G"), after("B", "G")),
		} {
			res, err := resumeRun(t, t.Context(), other, neverStep(t), r.Snapshot(), map[string]any{"G": 1}, kahn.AllowGraphChange())
			if res != nil || !errors.Is(err, kahn.ErrGraphChanged) {
				t.Errorf("%s: %v, %v", name, res, err)
			}
		}
		same := graph(kahn.Node{ID: "A", Timeout: time.Hour, Retry: kahn.RetryStandard()}, gate("G", "A"), kahn.Node{ID: "B", After: []string{"G"}, Priority: 3})
		r.resume(same, takes(0), map[string]any{"G": 1}).expect("A:ok G:ok B:ok", "completed")
	})

	inBubble(t, "265 delta indices and event ids continue", func(t *testing.T) {
		g := graph(kahn.Node{ID: "A", Do: func(_ context.Context, s *kahn.Step) (any, error) {
			s.Emit("a")
			s.Emit("b")
			if _, ok := s.Resumed(); ok {
				return nil, nil
			}
			return nil, kahn.Suspend("", nil, nil)
		}})
		r := pause(t, g, nil).resume(g, nil, map[string]any{"A": 1})
		var got []int
		for _, e := range r.find(event.NodeDelta, "A") {
			got = append(got, e.Payload.(event.Delta).Index)
		}
		if !slices.Equal(got, []int{1, 2, 3, 4}) {
			t.Errorf("delta indices %v", got)
		}
	})

	inBubble(t, "a snapshot keeps values, errors, inputs and saved state", func(t *testing.T) {
		type opaque struct{ N int }
		flaky := kahn.Node{ID: "flaky", Retry: kahn.RetryStandard(), Do: func(_ context.Context, s *kahn.Step) (any, error) {
			if s.Attempt() == 1 {
				return nil, errStep
			}
			if s.LastErr() == nil || s.LastErr().Error() != errStep.Error() {
				t.Errorf("the last error is %v", s.LastErr())
			}
			if v, ok := s.Resumed(); ok {
				return fmt.Sprint(v, s.SavedState()), nil
			}
			return nil, kahn.Suspend("go", nil, []int{1, 2})
		}}
		g := graph(flaky, kahn.Node{ID: "value", Do: func(context.Context, *kahn.Step) (any, error) { return opaque{7}, nil }},
			kahn.Node{ID: "broken", Do: func(context.Context, *kahn.Step) (any, error) {
				return nil, fmt.Errorf("wrapped: %w", context.DeadlineExceeded)
			}},
			kahn.Node{ID: "J", After: []string{"value", "flaky"}, Do: func(_ context.Context, s *kahn.Step) (any, error) {
				v, err := kahn.Upstream[opaque](s, "value")
				in, _ := s.Root("in")
				return fmt.Sprint(v.N, in), err
			}})
		types := kahn.Encoding(kahn.Types{"opaque": opaque{}})
		r := pause(t, g, nil, types, kahn.Inputs(map[string]any{"in": 3}))
		r = r.resume(g, nil, map[string]any{"go": "on"}, types)
		r.expect("flaky:ok value:ok broken:F J:ok", "failed")
		if r.node("flaky").Output != "on[1 2]" || r.node("J").Output != "7 3" || r.node("flaky").Attempts != 2 {
			t.Errorf("outputs %v, %v, attempts %d", r.node("flaky").Output, r.node("J").Output, r.node("flaky").Attempts)
		}
		var own *kahn.NodeError
		if err := r.node("broken").Err; !errors.As(err, &own) || own.Kind != kahn.CauseTimeout || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the error of broken is %v", err)
		}
		// If no codec knows the type, encoding the snapshot returns an error that names the node.
		r = pause(t, g, nil)
		if _, err := json.Marshal(r.Snapshot()); !errors.Is(err, kahn.ErrNotEncodable) {
			t.Errorf("%v", err)
		}
	})

	inBubble(t, "a value that cannot be encoded is found when its node completes", func(t *testing.T) {
		r := try(t, graph(kahn.Node{ID: "A", Do: func(context.Context, *kahn.Step) (any, error) { return make(chan int), nil }}, after("B", "A")),
			neverStep(t), kahn.Encoding(kahn.Types{}))
		r.expect("A:F B:X", "failed")
		r.cause("A", kahn.CauseStoreError)
		if !errors.Is(r.err, kahn.ErrNotEncodable) {
			t.Error(r.err)
		}
	})

	inBubble(t, "a run that was left goes on", func(t *testing.T) {
		var c calls
		step := c.count(takes(time.Second))
		g := graph(after("A"), after("B", "A"), after("C", "B"), kahn.Node{ID: "Z", Kind: kahn.KindEnd})
		rec := newRecorder()
		run, err := startRun(t, t.Context(), g, step, kahn.OnEvent(rec.add))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(1500 * ms)
		run.Leave()
		res, err := run.Wait()
		r := trial{res, t, err, rec.all()}
		checkEvents(t, g, res, r.events)
		r.expect("A:ok B:ok C:ready Z:idle", "suspended")
		r = r.resume(g, step, nil)
		r.expect("A:ok B:ok C:ok Z:ok", "completed")
		if c.of("A") != 1 || c.of("B") != 1 || c.of("C") != 1 {
			t.Errorf("calls %v", c.n)
		}
	})
}

// A nested run drains after a failure, and is then cancelled. The second stop ends the nodes that are still running, and the next life keeps the
// error of this stop.
func TestSecondStopGoesOn(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		inner := graph(after("work"), kahn.Node{ID: "clean", Cleanup: true, After: []string{"work"}})
		g := graph(kahn.Node{ID: "D", Sub: graph(after("bad"), kahn.Node{ID: "E", Sub: inner})})
		step := func(ctx context.Context, s *kahn.Step) (any, error) {
			switch s.Path() {
			case "D/bad":
				time.Sleep(ms)
				return nil, errors.New("bad")
			case "D/E/work":
				<-ctx.Done()
				return nil, ctx.Err()
			}
			time.Sleep(100 * ms)
			return nil, nil
		}
		opts := []kahn.Option{kahn.StopScheduling, kahn.Drain}
		run, err := startRun(t, t.Context(), g, step, opts...)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * ms)
		if err := run.CancelNode("D"); err != nil {
			t.Error(err)
		}
		time.Sleep(10 * ms)
		stopped := func(r *kahn.Run) {
			t.Helper()
			why, err := r.Why("D/E")
			if err != nil || why.Cause.Kind != kahn.CauseCancelRun || !errors.Is(why.Cause.Err, kahn.ErrNodeStopped) {
				t.Errorf("D/E: %v, %v", why, err)
			}
		}
		stopped(run)
		snapshot := reload(t, run.Snapshot())
		_, _ = run.Wait()
		again, err := startRun(t, t.Context(), g, step, append(opts, kahn.Resume(snapshot))...)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * ms)
		stopped(again)
		_, _ = again.Wait()
	})
}

func TestBadSnapshotsAreRefused(t *testing.T) {
	for _, text := range []string{``, `null`, `[]`, `{}`, `{"version":2}`, `{"version":1,"nodes":[{"status":"odd"}]}`, `{"version":"1"}`} {
		if err := new(kahn.Snapshot).UnmarshalJSON([]byte(text)); !errors.Is(err, kahn.ErrBadValue) {
			t.Errorf("%s: %v", text, err)
		}
	}
	g := graph(after("A"), gate("G", "A"))
	res, err := executeRun(t, t.Context(), g, takes(0))
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(res.Snapshot())
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(nodes []any){
		"status":     func(n []any) { n[0].(map[string]any)["status"] = "idle" },
		"twice":      func(n []any) { n[1] = n[0] },
		"no wait":    func(n []any) { delete(n[1].(map[string]any), "wait") },
		"value":      func(n []any) { n[0].(map[string]any)["value"] = map[string]any{"$type": "nothing"} },
		"other hash": func(n []any) { n[0].(map[string]any)["hash"] = "0" },
	} {
		var doc map[string]any
		if err := json.Unmarshal(data, &doc); err != nil {
			t.Fatal(err)
		}
		change(doc["nodes"].([]any))
		changed, _ := json.Marshal(doc)
		s := new(kahn.Snapshot)
		if err := s.UnmarshalJSON(changed); err != nil {
			t.Fatal(err)
		}
		if res, err := resumeRun(t, t.Context(), g, neverStep(t), s, map[string]any{"G": 1}); res != nil || !errors.Is(err, kahn.ErrBadValue) && !errors.Is(err, kahn.ErrGraphChanged) {
			t.Errorf("%s: %v, %v", name, res, err)
		}
	}
}
