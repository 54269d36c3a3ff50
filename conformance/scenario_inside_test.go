package conformance_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
)

// TestScenarioInside: a run continues in the middle of its composites.
func TestScenarioInside(t *testing.T) {
	inBubble(t, "242 finished items are not performed again", func(t *testing.T) {
		g := graph(mapped("M", []string{"a", "b", "c"}, kahn.Map{}), after("B", "M"))
		var c paths
		step := c.count(waitsOnce("M[1]"))
		r := pause(t, g, step)
		r.expect("M:suspended B:waiting", "suspended")
		if got := r.items("M"); got != "ok suspended ok" {
			t.Errorf("items %s", got)
		}
		if got := r.Snapshot().Waiting(); !slices.Equal(got, []string{"M[1]"}) {
			t.Errorf("the snapshot waits for %v", got)
		}
		c.n = nil
		r = r.resume(g, step, map[string]any{"M[1]": "signal"})
		r.expect("M:ok B:ok", "completed")
		c.once(t, "M[1]", "B")
		if got := fmt.Sprint(r.node("M").Output); got != "[M signal M]" || r.node("M").Attempts != 1 {
			t.Errorf("%s in %d attempts", got, r.node("M").Attempts)
		}
	})

	inBubble(t, "242 the items stay what they were", func(t *testing.T) {
		g := graph(kahn.Node{ID: "M", Map: &kahn.Map{Over: "list"}})
		g.Inputs = inputs("list")
		step := func(ctx context.Context, s *kahn.Step) (any, error) {
			if _, ok := s.Resumed(); !ok {
				return nil, kahn.Suspend("", nil, nil)
			}
			item, _ := s.Item()
			return item, nil
		}
		r := pause(t, g, step, kahn.Inputs(map[string]any{"list": []int64{7, 8}}))
		r = r.resume(g, step, map[string]any{"M[0]": 1, "M[1]": 1}, kahn.Inputs(map[string]any{"list": []int64{1, 2, 3}}))
		if got := r.node("M").Output; fmt.Sprintf("%#v", got) != "[]interface {}{7, 8}" {
			t.Errorf("%#v", got)
		}
	})

	for _, deep := range []bool{false, true} {
		inBubble(t, fmt.Sprintf("246 a gate is answered by its path, deep %v", deep), func(t *testing.T) {
			inner := graph(gate("g"), after("y", "g"), after("z"))
			g, path := graph(subgraph("S", inner), after("A", "S")), "S/g"
			want := []string{"S/y", "A"}
			if deep {
				g, path = graph(subgraph("S", graph(subgraph("T", inner))), after("A", "S")), "S/T/g"
				want[0] = "S/T/y"
			}
			var c paths
			r := pause(t, g, c.count(takes(10*ms)))
			c.n = nil
			r = r.resume(g, c.count(takes(10*ms)), map[string]any{path: "yes"})
			r.expect("S:ok A:ok", "completed")
			c.once(t, want...)
			r.order("node.suspended "+path, "node.suspended S", "run.status.changed", "run.status.changed", "node.started S", "node.completed "+path, "node.completed S")
		})
	}

	inBubble(t, "247 a loop goes on at its iteration", func(t *testing.T) {
		var seen []string
		g := graph(kahn.Node{ID: "L", Loop: &kahn.Loop{While: whileLess(4), MaxIterations: 9, Collect: true}, Sub: graph(after("a"), kahn.Node{ID: "x", After: []string{"a"}, Do: func(_ context.Context, s *kahn.Step) (any, error) {
			previous, _ := s.Root("previous")
			number, _ := s.Root("iteration")
			if _, ok := s.Resumed(); !ok && s.Iteration() == 3 {
				return nil, kahn.Suspend("", nil, nil)
			}
			seen = append(seen, fmt.Sprint(number, " after ", previous))
			return number, nil
		}})})
		var c paths
		r := pause(t, g, c.count(takes(10*ms)))
		c.n = nil
		r = r.resume(g, c.count(takes(10*ms)), map[string]any{"L#3/x": 1})
		r.expect("L:ok", "completed")
		c.once(t, "L#4/a")
		if got := fmt.Sprint(r.node("L").Output, seen); got != "[1 2 3 4] [1 after <nil> 2 after 1 3 after 2 4 after 3]" {
			t.Error(got)
		}
	})

	inBubble(t, "247 a handled failure of an earlier iteration degrades", func(t *testing.T) {
		child := graph(kahn.Node{ID: "x", ContinueOnFail: true, Do: func(_ context.Context, s *kahn.Step) (any, error) {
			if s.Iteration() == 1 {
				return nil, errStep
			}
			return nil, nil
		}}, kahn.Node{ID: "y", After: []string{"x"}})
		g := graph(kahn.Node{ID: "L", Sub: child, Loop: &kahn.Loop{While: whileLess(2), MaxIterations: 2}}, gate("G", "L"))
		step := waitsOnce("L#2/y")
		r := pause(t, g, step).resume(g, step, map[string]any{"L#2/y": 1})
		r.expect("L:ok G:suspended", "suspended")
		r = r.resume(g, step, map[string]any{"G": 1}) // L had ended before this snapshot, and stays tolerated
		if !r.Degraded || !r.node("L").Tolerated {
			t.Errorf("degraded %v, %v", r.Degraded, r.node("L").Tolerated)
		}
	})

	inBubble(t, "218 signals inside: unknown, answered, twice, by token", func(t *testing.T) {
		child := graph(gate("g"), after("x"), kahn.Node{ID: "w", Do: func(_ context.Context, s *kahn.Step) (any, error) {
			if answer, ok := s.Resumed(); ok {
				return answer, nil
			}
			return nil, kahn.Suspend("ticket", nil, nil)
		}}, gate("late", "g"))
		g := graph(subgraph("S", child), gate("G"), subgraph("I", graph(gate("g")), "G"), subgraph("D", graph(after("x"))))
		s := reload(t, pause(t, g, takes(10*ms)).Snapshot())
		for _, x := range []struct {
			want    error
			signals map[string]any
		}{
			{kahn.ErrUnknownGate, map[string]any{"g": 1}},
			{kahn.ErrUnknownGate, map[string]any{"S/nobody": 1}},
			{kahn.ErrUnknownGate, map[string]any{"I/g": 1}}, // I has not begun
			{kahn.ErrUnknownGate, map[string]any{"S": 1}},
			{kahn.ErrUnknownGate, map[string]any{"S/x": 1}}, // S/x is a step that has not waited
			{kahn.ErrUnknownGate, map[string]any{"D/x": 1}},
			{kahn.ErrDuplicateGate, map[string]any{"S/w": 1, "ticket": 2}},
		} {
			if res, err := resumeRun(t, t.Context(), g, neverStep(t), s, x.signals); res != nil || !errors.Is(err, x.want) {
				t.Errorf("%v: %v, %v", x.signals, res, err)
			}
		}
		res, err := resumeRun(t, t.Context(), g, takes(10*ms), s, map[string]any{"ticket": 2, "S/late": 3})
		if err != nil || !slices.Equal(res.Snapshot().Waiting(), []string{"S/g", "G"}) {
			t.Fatalf("%v, %v", res, err)
		}
		// An answer for a gate that has not been reached is kept.
		res, err = resumeRun(t, t.Context(), g, takes(10*ms), reload(t, res.Snapshot()), map[string]any{"S/g": 2, "G": 1})
		if err != nil || !slices.Equal(res.Snapshot().Waiting(), []string{"I/g"}) {
			t.Fatalf("%v, %v", res, err)
		}
	})

	inBubble(t, "a value inside that cannot be encoded is named by its path", func(t *testing.T) {
		bad := func(context.Context, *kahn.Step) (any, error) { return make(chan int), nil }
		m := mapped("M", numbers(2), kahn.Map{})
		m.Do = bad
		for path, g := range map[string]*kahn.Graph{
			`"S/x"`:   graph(subgraph("S", graph(kahn.Node{ID: "x", Do: bad}, gate("g", "x")))),
			`"M[1]"`:  graph(m, gate("g", "M")),
			`"L#1/x"`: graph(kahn.Node{ID: "L", Loop: &kahn.Loop{While: whileLess(2), MaxIterations: 2}, Sub: graph(kahn.Node{ID: "x", Do: bad}, gate("g", "x"))}),
		} {
			r := pause(t, g, nil)
			if _, err := json.Marshal(r.Snapshot()); !errors.Is(err, kahn.ErrNotEncodable) || !strings.Contains(err.Error(), path) {
				t.Errorf("%s: %v", path, err)
			}
			r = try(t, g, nil, kahn.Encoding(kahn.Types{}))
			if !errors.Is(r.err, kahn.ErrNotEncodable) {
				t.Errorf("%s: %v", path, r.err)
			}
		}
		g := graph(mapped("M", []chan int{nil}, kahn.Map{}))
		r := try(t, g, neverStep(t), kahn.Encoding(kahn.Types{}))
		r.expect("M:F", "failed")
		r.cause("M", kahn.CauseStoreError)
	})

	inBubble(t, "265 attempts, deltas and keys inside go on", func(t *testing.T) {
		var keys []string
		child := graph(kahn.Node{ID: "x", Retry: kahn.RetryStandard(), Do: func(_ context.Context, s *kahn.Step) (any, error) {
			s.Emit("delta")
			keys = append(keys, fmt.Sprint(s.Attempt(), s.IdempotencyKey()))
			if _, ok := s.Resumed(); ok || s.Attempt() == 3 {
				return s.Attempt(), nil
			}
			if s.Attempt() == 2 {
				return nil, kahn.Suspend("", nil, nil)
			}
			return nil, errStep
		}})
		g := graph(subgraph("S", child))
		r := pause(t, g, nil).resume(g, nil, map[string]any{"S/x": 1})
		r.expect("S:ok", "completed")
		if len(keys) != 3 || keys[1] != keys[2] || keys[0][1:] != keys[1][1:] || r.node("S").Output != 2 {
			t.Errorf("%v, output %v", keys, r.node("S").Output)
		}
		var got []int
		for _, e := range r.find(event.NodeDelta, "S/x") {
			got = append(got, e.Payload.(event.Delta).Index)
		}
		if !slices.Equal(got, []int{1, 2, 3}) {
			t.Errorf("delta indices %v", got)
		}
	})

	inBubble(t, "a retry of the composite begins anew, and its attempts count on", func(t *testing.T) {
		child := graph(after("a"), after("x", "a"))
		g := graph(kahn.Node{ID: "S", Sub: child, Retry: kahn.Retry{MaxAttempts: 3, InitialDelay: 5 * time.Second, Jitter: kahn.JitterNone}})
		var c paths
		s := crashed(t, g, c.count(breaks("S/x")), 3*time.Second) // S is in backoff
		c.n = nil
		s = crashed(t, g, c.count(breaks("S/x")), 2*time.Second+35*ms, kahn.Resume(s)) // S/x runs in the second attempt, after the rest of the backoff
		c.once(t, "S/a", "S/x")
		c.n = nil
		res, err := resumeRun(t, t.Context(), g, c.count(breaks("S/x")), s, nil)
		if n, _ := res.Node("S"); n.Attempts != 3 || err == nil {
			t.Errorf("%d attempts, %v", n.Attempts, err)
		}
		if c.n["S/a"] != 1 || c.n["S/x"] != 2 {
			t.Errorf("calls %v", c.n)
		}
	})

	inBubble(t, "what has ended before keeps what is inside", func(t *testing.T) {
		m := mapped("M", numbers(3), kahn.Map{ToleratedCount: 1})
		g := graph(m, subgraph("S", graph(after("x"), after("y", "x"))), gate("G", "M", "S"))
		r := pause(t, g, breaks("M[1]"))
		r = r.resume(g, neverStep(t), map[string]any{"G": 1})
		r.expect("M:ok S:ok G:ok", "completed+d")
		if got := r.items("M"); got != "ok F ok" || !r.Degraded {
			t.Errorf("items %s, degraded %v", got, r.Degraded)
		}
		if sub := r.node("S").Sub; sub == nil || sub.Status != kahn.RunCompleted || sub.Output() != "y" || sub.Duration != 20*ms {
			t.Errorf("S is %+v", sub)
		}
	})

	inBubble(t, "219 deadlines inside go on", func(t *testing.T) {
		child := graph(kahn.Node{ID: "g", Kind: kahn.KindGate, Gate: &kahn.Gate{Timeout: time.Hour, OnTimeout: kahn.GateLabel}})
		g := graph(subgraph("S", child))
		s := crashed(t, g, nil, time.Minute)
		time.Sleep(58 * time.Minute)
		start := time.Now()
		run, err := startRun(t, t.Context(), g, nil, kahn.Resume(s))
		if err != nil {
			t.Fatal(err)
		}
		res, _ := run.Wait()
		if took := time.Since(start); took != time.Minute || res.Status != kahn.RunCompleted || res.Output() != "timeout" {
			t.Errorf("%v after %v, output %v", res.Status, took, res.Output())
		}
		res, err = resumeRun(t, t.Context(), g, nil, s, map[string]any{"S/g": 1}) // after the deadline
		if err != nil || res.Output() != "timeout" {
			t.Errorf("%v, %v", res.Output(), err)
		}
	})

	for name, x := range map[string]struct {
		node kahn.Node
		left time.Duration
	}{
		"attempt": {kahn.Node{Timeout: time.Hour}, time.Hour}, // the timeout of the attempt starts again
		"overall": {kahn.Node{OverallTimeout: time.Hour}, 40 * time.Minute},
		"both":    {kahn.Node{Timeout: 2 * time.Hour, OverallTimeout: time.Hour}, 40 * time.Minute},
	} {
		inBubble(t, "the time of a composite: "+name, func(t *testing.T) {
			node := x.node
			node.ID, node.Sub = "S", graph(gate("g"))
			g := graph(node)
			s := crashed(t, g, nil, 20*time.Minute)
			start := time.Now()
			run, err := startRun(t, t.Context(), g, nil, kahn.Resume(s))
			if err != nil {
				t.Fatal(err)
			}
			res, _ := run.Wait()
			if n, _ := res.Node("S"); n.Cause.Kind != kahn.CauseTimeout || time.Since(start) != x.left {
				t.Errorf("%v after %v", n.Cause, time.Since(start))
			}
		})
	}

	inBubble(t, "a composite whose time was up stays so", func(t *testing.T) {
		stubborn := func(ctx context.Context, s *kahn.Step) (any, error) { time.Sleep(2 * time.Second); return s.ID(), nil }
		g := graph(kahn.Node{ID: "S", Timeout: time.Second, Sub: graph(after("x"), after("y", "x"))})
		s := crashed(t, g, stubborn, 1500*ms)
		res, err := resumeRun(t, t.Context(), g, neverStep(t), s, nil)
		if n, _ := res.Node("S"); n.Cause.Kind != kahn.CauseTimeout {
			t.Errorf("%v, %v", n.Cause, err)
		}
	})

	for name, x := range map[string]struct {
		stop func(*kahn.Run)
		want kahn.Status
		kind kahn.CauseKind
		run  kahn.RunStatus
	}{
		"cancel":      {func(r *kahn.Run) { r.Cancel() }, kahn.Cancelled, kahn.CauseCancelRun, kahn.RunCancelled},
		"abort":       {func(r *kahn.Run) { r.AbortAll(errHost) }, kahn.Aborted, kahn.CauseAbortAll, kahn.RunFailed},
		"cancel node": {func(r *kahn.Run) { _ = r.CancelNode("S") }, kahn.Cancelled, kahn.CauseCancelNode, kahn.RunCancelled},
	} {
		inBubble(t, "a composite that was being stopped: "+name, func(t *testing.T) {
			stubborn := func(ctx context.Context, s *kahn.Step) (any, error) {
				time.Sleep(time.Second)
				return s.ID(), ctx.Err()
			}
			g := graph(subgraph("S", graph(after("x"), after("y", "x"), kahn.Node{ID: "c", Cleanup: true, After: []string{"y"}})))
			run, err := startRun(t, t.Context(), g, stubborn)
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(100 * ms)
			x.stop(run)
			synctest.Wait()
			s := reload(t, run.Snapshot())
			_, _ = run.Wait()
			var c paths
			res, _ := resumeRun(t, t.Context(), g, c.count(takes(10*ms)), s, nil)
			n, _ := res.Node("S")
			if n.Status != x.want || n.Cause.Kind != x.kind || res.Status != x.run {
				t.Errorf("S is %v %v, the run %v", n.Status, n.Cause, res.Status)
			}
			if n.Sub.CancelRequested != (x.want == kahn.Cancelled) {
				t.Errorf("cancel requested inside: %v", n.Sub.CancelRequested)
			}
			c.once(t, "S/c")
		})
	}

	inBubble(t, "a composite that was asked to stop is not retried", func(t *testing.T) {
		step := func(_ context.Context, s *kahn.Step) (any, error) {
			if s.ID() == "x" {
				return nil, errStep
			}
			time.Sleep(time.Second)
			return nil, nil
		}
		g := graph(kahn.Node{ID: "S", Sub: graph(after("x"), after("y")), Retry: kahn.RetryStandard()})
		run, err := startRun(t, t.Context(), g, step)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(100 * ms)
		if err := run.CancelNode("S"); err != nil {
			t.Error(err)
		}
		s := reload(t, run.Snapshot())
		_, _ = run.Wait()
		res, _ := resumeRun(t, t.Context(), g, neverStep(t), s, nil)
		if n, _ := res.Node("S"); n.Status != kahn.Cancelled || n.Attempts != 1 {
			t.Errorf("S is %v after %d attempts", n.Status, n.Attempts)
		}
	})

	inBubble(t, "a map that was stopped by its items", func(t *testing.T) {
		m := mapped("M", numbers(3), kahn.Map{FailFast: true, Limit: 2})
		m.Do = func(ctx context.Context, s *kahn.Step) (any, error) {
			if s.Index() == 0 {
				time.Sleep(10 * ms)
				return nil, errStep
			}
			time.Sleep(time.Second)
			return nil, ctx.Err()
		}
		s := crashed(t, graph(m), nil, 500*ms)
		res, err := resumeRun(t, t.Context(), graph(m), neverStep(t), s, nil)
		if res == nil {
			t.Fatal(err)
		}
		r := trial{res, t, err, nil}
		r.expect("M:F", "failed")
		if got := r.items("M"); got != "F X X" {
			t.Errorf("items %s", got)
		}
	})

	inBubble(t, "an item that asked for the end of the run", func(t *testing.T) {
		m := mapped("M", numbers(2), kahn.Map{ToleratedCount: 2})
		m.Do = func(ctx context.Context, s *kahn.Step) (any, error) {
			if s.Index() == 0 {
				time.Sleep(10 * ms)
				return nil, kahn.AbortRun(errStep)
			}
			time.Sleep(time.Second)
			return nil, nil
		}
		g := graph(m, kahn.Node{ID: "A", Do: takes(time.Hour)})
		s := crashed(t, g, nil, 500*ms)
		res, err := resumeRun(t, t.Context(), g, nil, s, nil)
		if res == nil {
			t.Fatal(err)
		}
		trial{res, t, err, nil}.expect("M:F A:X", "failed")
	})

	inBubble(t, "a run that was left in the middle", func(t *testing.T) {
		g := graph(subgraph("S", graph(after("a"), subgraph("T", graph(after("x"), after("y", "x")), "a"))), mapped("M", numbers(3), kahn.Map{Limit: 1}))
		var c paths
		r := left(t, g, c.count(takes(20*ms)), 30*ms)
		r.expect("S:suspended M:suspended", "suspended")
		r = r.resume(g, c.count(takes(20*ms)), nil)
		r.expect("S:ok M:ok", "completed")
		c.once(t, "S/a", "S/T/x", "S/T/y", "M[0]", "M[1]", "M[2]")
	})

	inBubble(t, "a gate beside a composite is not a step", func(t *testing.T) {
		r := pause(t, graph(subgraph("S", graph(after("x"))), gate("G")), takes(0), kahn.Limit(1))
		r.expect("S:ok G:suspended", "suspended")
	})

	inBubble(t, "a nested run that lacks a slot does not wait", func(t *testing.T) {
		child := graph(gate("g"), after("x"))
		r := pause(t, graph(kahn.Node{ID: "A", Priority: 9}, subgraph("S", child)), takes(10*ms), kahn.Limit(1))
		r.order("node.completed A", "node.completed S/x", "node.suspended S")
	})

	inBubble(t, "redriven composites go on inside", func(t *testing.T) {
		g := graph(subgraph("S", graph(after("a"), after("x", "a"))), subgraph("K", graph(after("k"))))
		var c paths
		r := try(t, g, c.count(breaks("S/x")))
		r.expect("S:F K:ok", "failed")
		c.n = nil
		r = r.redrive(g, c.count(takes(0)))
		r.expect("S:ok K:ok", "completed")
		c.once(t, "S/x")
		if r.node("K").Sub == nil {
			t.Error("what is inside of K is gone")
		}
	})

	inBubble(t, "another graph inside", func(t *testing.T) {
		loop := func(limit int, child *kahn.Graph) *kahn.Graph {
			return graph(kahn.Node{ID: "L", Sub: child, Loop: &kahn.Loop{While: whileLess(2), MaxIterations: limit}})
		}
		s := reload(t, pause(t, loop(3, graph(gate("g"))), neverStep(t)).Snapshot())
		for name, g := range map[string]*kahn.Graph{
			"another node": loop(3, graph(gate("g"), after("x"))), "another bound": loop(4, graph(gate("g"))),
		} {
			for _, opts := range [][]kahn.Option{nil, {kahn.AllowGraphChange()}} {
				if _, err := resumeRun(t, t.Context(), g, neverStep(t), s, nil, opts...); !errors.Is(err, kahn.ErrGraphChanged) {
					t.Errorf("%s: %v", name, err)
				}
			}
		}
	})
}
