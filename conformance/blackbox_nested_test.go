package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
)

// cleaned returns a graph of three nodes for a composite: x, which runs until it is stopped; a cleanup node, which takes the time d; and an end
// node. The cleanup node and the end node fail if their contexts have ended.
func cleaned(d time.Duration) *kahn.Graph {
	uncancelled := func(ctx context.Context, s *kahn.Step) (any, error) {
		time.Sleep(d)
		return s.ID(), ctx.Err()
	}
	return graph(kahn.Node{ID: "x", Do: untilStopped}, after("y", "x"), kahn.Node{ID: "c", Cleanup: true, After: []string{"y"}, Do: uncancelled},
		kahn.Node{ID: "e", Kind: kahn.KindEnd, Do: uncancelled})
}

// TestBlackBoxStop combines all kinds of composites with all kinds of stops.
func TestBlackBoxStop(t *testing.T) {
	// The item's cleanup and end nodes take longer than the grace. The stop waits for them nevertheless.
	deep := func() *kahn.Graph {
		m := mapped("M", numbers(2), kahn.Map{ToleratedPercent: 100})
		m.Sub = cleaned(8 * time.Second)
		return graph(kahn.Node{ID: "L", Sub: graph(m), Loop: &kahn.Loop{MaxIterations: 3, While: func(kahn.View) (bool, error) { return true, nil }}},
			kahn.Node{ID: "c", Cleanup: true, After: []string{"L"}, Do: takes(ms)})
	}
	cancelled, aborted := "C", "X"
	for name, x := range map[string]struct {
		node  kahn.Node // S, with only the fields that the row sets
		group *kahn.Group
		extra []kahn.Node
		opts  []kahn.Option
		host  func(*kahn.Run)
		inner string
		want  string // the expected statuses of all nodes
		run   string
		kind  kahn.CauseKind // of S's cause
		tries int
	}{
		"cancel":          {host: soon(func(r *kahn.Run) { r.Cancel() }), inner: cancelled, want: "S:C Z:C", run: "cancelled", kind: kahn.CauseCancelRun},
		"abort":           {host: soon(func(r *kahn.Run) { r.AbortAll(errHost) }), inner: aborted, want: "S:X Z:X", run: "failed", kind: kahn.CauseAbortAll},
		"cancel node":     {host: soon(func(r *kahn.Run) { _ = r.CancelNode("S") }), inner: cancelled, want: "S:C Z:X", run: "cancelled", kind: kahn.CauseCancelNode},
		"run timeout":     {opts: []kahn.Option{kahn.Timeout(time.Second)}, inner: aborted, want: "S:X Z:X", run: "failed", kind: kahn.CauseRunTimeout},
		"overall timeout": {node: kahn.Node{OverallTimeout: time.Second, Retry: kahn.RetryStandard()}, inner: aborted, want: "S:F Z:X", run: "failed", kind: kahn.CauseTimeout},
		"timeout, twice": {node: kahn.Node{Timeout: time.Second, Retry: kahn.Retry{MaxAttempts: 2}}, inner: aborted, want: "S:F Z:X", run: "failed",
			kind: kahn.CauseTimeout, tries: 2},
		"timeout, tolerated": {node: kahn.Node{Timeout: time.Second, ContinueOnFail: true}, inner: aborted, want: "S:F Z:ok", run: "completed+d", kind: kahn.CauseTimeout},
		"sibling failure": {node: kahn.Node{Groups: []string{"g"}}, group: &kahn.Group{Name: "g", CancelOnFailure: true},
			extra: []kahn.Node{{ID: "B", Groups: []string{"g"}, Do: fails(time.Second)}}, inner: aborted, want: "S:X Z:X B:F", run: "failed", kind: kahn.CauseSiblingFailure},
		"critical": {extra: []kahn.Node{{ID: "B", Critical: true, Do: fails(time.Second)}}, inner: aborted, want: "S:X Z:X B:F", run: "failed", kind: kahn.CauseFailFast},
		"superseded": {extra: []kahn.Node{{ID: "B", Do: takes(time.Second)}, {ID: "J", After: []string{"Z", "B"}, Join: kahn.AnySucceeded, CancelLosers: true}},
			inner: cancelled, want: "S:C Z:S/superseded B:ok J:ok", run: "completed", kind: kahn.CauseSuperseded},
	} {
		inBubble(t, "cleanup and end nodes of items in a loop in a sub-graph: "+name, func(t *testing.T) {
			s := x.node
			s.ID, s.Sub = "S", deep()
			g := graph(s, after("Z", "S"))
			if g.Add(x.extra...); x.group != nil {
				g.Groups = []kahn.Group{*x.group}
			}
			r := tryControlled(t, t.Context(), g, takes(10*ms), x.host, append(x.opts, kahn.CancelGrace(2*time.Second))...)
			r.expectShort(x.want, x.run)
			r.cause("S", x.kind)
			r.inside(strings.ReplaceAll("S/L:? S/L/M:? S/L/M[0]:? S/L/M[0]/x:? S/L/M[0]/y:? S/L/M[1]/c:ok S/L/M[1]/e:ok S/c:ok", "?", x.inner))
			for _, path := range []string{"S/L#1/M[0]/c", "S/L#1/M[0]/e", "S/L#1/M[1]/c", "S/L#1/M[1]/e", "S/c"} {
				r.count(event.NodeCompleted, path, max(x.tries, 1))
			}
			if len(r.Abandoned) > 0 {
				t.Errorf("abandoned %v", r.Abandoned)
			}
			if n := r.node("S"); n.Attempts != max(x.tries, 1) || n.Duration < 16*time.Second {
				t.Errorf("S took %v in %d attempts", n.Duration, n.Attempts)
			}
			r.order("node.completed S/L#1/M[1]/c", "node.completed S/L#1/M[1]/e", "node.completed S/c")
		})
	}

	inBubble(t, "fail fast meets items that run, back off, wait and arrive anyway", func(t *testing.T) {
		steps := []kahn.StepFunc{
			fails(20 * ms), fails(30 * ms), untilStopped,
			func(context.Context, *kahn.Step) (any, error) { return nil, kahn.Suspend("", nil, nil) },
			func(ctx context.Context, _ *kahn.Step) (any, error) {
				<-ctx.Done()
				time.Sleep(time.Second)
				return "anyway", nil
			},
			takes(10 * ms), always(kahn.RateLimited(errStep, time.Minute)),
		}
		m := mapped("M", numbers(len(steps)), kahn.Map{FailFast: true, ToleratedCount: 1})
		m.Sub = graph(kahn.Node{ID: "x", Retry: kahn.Retry{MaxAttempts: 2, RetryOn: []kahn.CauseKind{kahn.CauseRateLimit}}},
			kahn.Node{ID: "c", Cleanup: true, After: []string{"x"}, Do: takes(10 * ms)})
		left := ""
		m.Fallback = func(_ context.Context, err error) (any, error) {
			var failed *kahn.MapError
			if errors.As(err, &failed) {
				left = fmt.Sprint(failed.Failed, len(failed.Errs), failed.Results)
			}
			return nil, err
		}
		r := try(t, graph(m, after("A", "M")), func(ctx context.Context, s *kahn.Step) (any, error) { return steps[s.Index()](ctx, s) })
		r.expect("M:F A:X", "failed")
		r.cause("M", kahn.CauseMapItems)
		if got := r.items("M"); got != "F F X X ok ok X" {
			t.Errorf("items %s", got)
		}
		r.inside("M[2]/x:X M[3]/x:X M[4]/x:ok M[6]/x:X")
		for i := range steps {
			r.count(event.NodeCompleted, fmt.Sprintf("M[%d]/c", i), 1)
		}
		if left != "2 2 [<nil> <nil> <nil> <nil> c c <nil>]" {
			t.Errorf("the map left %v", left)
		}
		if r.Duration != 40*ms+time.Second+10*ms {
			t.Errorf("it took %v", r.Duration) // the second failure stops the map only after the cleanup node of the failed item has ended
		}
	})

	inBubble(t, "a failure inside stops what is inside, and the rest only if nobody outside handles it", func(t *testing.T) {
		child := func() *kahn.Graph {
			return graph(kahn.Node{ID: "x", Do: fails(10 * ms)}, kahn.Node{ID: "z", Do: untilStopped})
		}
		beside := kahn.Node{ID: "B", Do: takes(time.Second)}
		caught := kahn.Node{ID: "H", In: []kahn.Edge{{From: "S", On: kahn.OnFailure}}, Do: takes(ms)}
		r := try(t, graph(subgraph("S", child()), beside, caught), nil, kahn.AbortRunning)
		r.expect("S:F B:ok H:ok", "completed+d")
		r.inside("S/x:F S/z:X")
		r = try(t, graph(subgraph("S", child()), beside), nil, kahn.AbortRunning)
		r.expect("S:F B:X", "failed")
		handled := graph(kahn.Node{ID: "x", Do: fails(10 * ms)}, kahn.Node{ID: "z", Do: takes(time.Second)}, kahn.Node{ID: "h", In: []kahn.Edge{{From: "x", On: kahn.OnFailure}}, Do: takes(ms)})
		r = try(t, graph(subgraph("S", handled), beside), nil, kahn.AbortRunning)
		r.expect("S:ok B:ok", "completed+d")
	})

	inBubble(t, "an attempt inside that ignores its end is not overlapped by a retry of the composite", func(t *testing.T) {
		release := make(chan struct{})
		var running, most atomic.Int32
		stubborn := func(context.Context, *kahn.Step) (any, error) {
			most.Store(max(most.Load(), running.Add(1)))
			defer running.Add(-1)
			<-release
			return nil, nil
		}
		retry := kahn.Retry{MaxAttempts: 3}
		for name, g := range map[string]*kahn.Graph{
			"of the composite":    graph(kahn.Node{ID: "S", Timeout: time.Second, Retry: retry, Sub: graph(after("x"))}),
			"of the node":         graph(kahn.Node{ID: "S", Retry: retry, Sub: graph(kahn.Node{ID: "x", Timeout: time.Second})}),
			"of a node, two deep": graph(kahn.Node{ID: "S", Retry: retry, Sub: graph(subgraph("T", graph(kahn.Node{ID: "x", Timeout: time.Second})))}),
			"of an item":          graph(kahn.Node{ID: "S", Retry: retry, Sub: graph(boundedNode(mapped("M", numbers(1), kahn.Map{})))}),
			"of an item's subgraph": graph(func() kahn.Node {
				m := mapped("S", numbers(1), kahn.Map{})
				m.Retry, m.Sub = retry, graph(kahn.Node{ID: "x", Timeout: time.Second})
				return m
			}()),
		} {
			most.Store(running.Load())
			before := running.Load()
			r := try(t, g, stubborn)
			r.expect("S:F", "failed")
			ended := r.find(event.NodeFailed, "S")[0].Payload.(event.NodeEnd)
			if got := most.Load() - before; got != 1 || len(r.Abandoned) != 1 || ended.NoRetry != event.NoRetryAbandoned {
				t.Errorf("the timeout %s: %d copies at once, abandoned %v, not retried for %v\n%s", name, got, r.Abandoned, ended.NoRetry, eventText(r.events))
			}
		}
		close(release)
	})
}

func boundedNode(n kahn.Node) kahn.Node {
	n.Timeout = time.Second
	return n
}

// expectShort is like expect, but the parameter "nodes" need not list every node, and may list nodes inside composites.
func (r trial) expectShort(nodes, run string) {
	r.t.Helper()
	r.inside(nodes)
	status := r.Status.String()
	if r.Degraded {
		status += "+d"
	}
	if status != run {
		r.t.Errorf("the run is %s, expected %s\n%s", status, run, eventText(r.events))
	}
}

// TestBlackBoxSlots combines all kinds of composites with limits.
func TestBlackBoxSlots(t *testing.T) {
	inBubble(t, "one slot, five deep, with retries, waits and cleanup", func(t *testing.T) {
		var running, most atomic.Int32
		failed := map[string]bool{}
		var mu sync.Mutex
		step := func(ctx context.Context, s *kahn.Step) (any, error) {
			most.Store(max(most.Load(), running.Add(1)))
			defer running.Add(-1)
			time.Sleep(10 * ms)
			mu.Lock()
			defer mu.Unlock()
			if s.ID() == "y" && !failed[s.Path()] {
				failed[s.Path()] = true
				return nil, errStep
			}
			if _, ok := s.Resumed(); !ok && s.ID() == "w" {
				return nil, kahn.Suspend("", nil, nil)
			}
			return s.Path(), nil
		}
		build := func() *kahn.Graph {
			leaf := graph(after("x"), kahn.Node{ID: "y", After: []string{"x"}, Retry: kahn.RetryStandard()}, after("w", "y"), kahn.Node{ID: "c", Cleanup: true, After: []string{"w"}})
			inner := mapped("N", numbers(2), kahn.Map{})
			inner.Sub = leaf
			loop := kahn.Node{ID: "L", Sub: graph(inner), Loop: &kahn.Loop{MaxIterations: 2, While: whileLess(2)}}
			outer := mapped("M", numbers(2), kahn.Map{Limit: 1})
			outer.Sub = graph(loop)
			return graph(subgraph("S", graph(outer, after("z"))), after("A", "S"))
		}
		var logs []string
		for range 2 {
			clear(failed)
			most.Store(0)
			r := tryControlled(t, t.Context(), build(), step, func(run *kahn.Run) {
				for answered := 0; answered < 8; {
					time.Sleep(time.Hour)
					waiting := run.Waiting()
					if len(waiting) == 0 {
						t.Fatalf("%d were answered, and nothing waits", answered)
					}
					for _, w := range waiting {
						if err := run.Signal(context.Background(), w.Node, 1); err != nil {
							t.Error(err)
						}
						synctest.Wait() // without this wait, the order in which the answered nodes continue would be random
						answered++
					}
				}
			}, kahn.Limit(1))
			r.expect("S:ok A:ok", "completed")
			if most.Load() != 1 {
				t.Errorf("%d at a time", most.Load())
			}
			for i := range 2 {
				for k := range 2 {
					for j := range 2 {
						path := fmt.Sprintf("S/M[%d]/L#%d/N[%d]", i, k+1, j)
						r.count(event.NodeRetried, path+"/y", 1)
						r.count(event.NodeCompleted, path+"/w", 1)
						r.count(event.NodeCompleted, path+"/c", 1)
					}
				}
			}
			logs = append(logs, r.started())
		}
		if logs[0] != logs[1] {
			t.Errorf("two orders of starts:\n%s\n%s", logs[0], logs[1])
		}
	})

	inBubble(t, "the key of an item is free while the item backs off or waits", func(t *testing.T) {
		var mu sync.Mutex
		by, most := map[string]int{}, map[string]int{}
		step := func(ctx context.Context, s *kahn.Step) (any, error) {
			key := s.ID()[:1]
			mu.Lock()
			by[key]++
			most[key] = max(most[key], by[key])
			mu.Unlock()
			defer func() { mu.Lock(); by[key]--; mu.Unlock() }()
			time.Sleep(time.Second)
			if s.ID() == "a1" && s.Index() == 0 && s.Attempt() == 1 {
				return nil, errStep
			}
			if _, ok := s.Resumed(); !ok && s.ID() == "a2" {
				return nil, kahn.Suspend(fmt.Sprint("token", s.Index()), nil, nil)
			}
			return nil, nil
		}
		retry := kahn.Retry{MaxAttempts: 2, InitialDelay: 10 * time.Second, MaxDelay: time.Minute, Jitter: kahn.JitterNone}
		m1 := mapped("a1", numbers(4), kahn.Map{})
		m1.Key, m1.Retry = "a", retry
		m2 := mapped("M", numbers(3), kahn.Map{})
		m2.Sub = graph(kahn.Node{ID: "a2", Key: "a"}, kahn.Node{ID: "b", Key: "b", After: []string{"a2"}})
		g := graph(m1, subgraph("S", graph(m2)))
		r := tryControlled(t, t.Context(), g, step, func(run *kahn.Run) {
			time.Sleep(time.Minute)
			for i := range 3 {
				if err := run.Signal(context.Background(), fmt.Sprint("token", i), 1); err != nil {
					t.Error(err)
				}
			}
		}, kahn.KeyLimit(2))
		r.expect("a1:ok S:ok", "completed")
		if most["a"] != 2 || most["b"] != 2 {
			t.Errorf("at most %v at a time", most)
		}
		// First attempts: seven nodes share a key, of which two run at a time, so they take four seconds. The retry comes ten seconds after the
		// failure.
		retried := r.find(event.NodeStarted, "a1[0]")
		if len(retried) != 2 || retried[1].Time.Sub(retried[0].Time) != 11*time.Second {
			t.Errorf("%v", retried)
		}
		for i := range 3 {
			waits := r.find(event.NodeSuspended, fmt.Sprintf("S/M[%d]/a2", i))
			if len(waits) != 1 || r.since(waits[0]) > 4*time.Second {
				t.Errorf("%v", waits)
			}
		}
		// After the signals three calls of a2 run, each followed by a call of b. At most two calls of each key run at a time.
		if end := r.Duration - time.Minute; end != 3*time.Second {
			t.Errorf("what was answered took %v", end)
		}
	})

	inBubble(t, "items of two runs that want the same output share one call", func(t *testing.T) {
		var c paths
		memo := new(kahn.Memo)
		var bad atomic.Int32
		step := c.count(func(ctx context.Context, s *kahn.Step) (any, error) {
			item, _ := s.Item()
			if item == "bad" && bad.Add(1) == 1 {
				return fails(time.Second)(ctx, s)
			}
			return takes(time.Second)(ctx, s)
		})
		build := func(x kahn.Node) *kahn.Graph {
			m := mapped("M", []string{"a", "bad", "c"}, kahn.Map{ToleratedCount: 1})
			x.ID, x.Memo = "x", "v1"
			x.Ports = []kahn.Port{{Name: "item", Required: true}}
			m.Sub = graph(x)
			m.Sub.Inputs = inputs("item")
			return graph(subgraph("S", graph(m)))
		}
		g := build(kahn.Node{})
		one, err := kahn.Start(t.Context(), g, step, memo)
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		two := try(t, g, step, memo)
		first, _ := one.Wait()
		if first.Status != kahn.RunCompleted || !first.Degraded || first.Duration != time.Second {
			t.Errorf("the first is %v after %v", first.Status, first.Duration)
		}
		two.expect("S:ok", "completed") // steps that failed in the first run are called again
		two.inside("S/M[1]:ok")
		if two.Duration != 2*time.Second || c.n["S/M[0]/x"] != 1 || c.n["S/M[1]/x"] != 2 || c.n["S/M[2]/x"] != 1 {
			t.Errorf("calls %v, in %v", c.n, two.Duration)
		}
		three := try(t, g, neverStep(t), memo, kahn.Limit(1))
		three.expect("S:ok", "completed")
		for i := range 3 {
			done := three.find(event.NodeCompleted, fmt.Sprintf("S/M[%d]/x", i))
			if len(done) != 1 || !done[0].Payload.(event.Completion).Memoized {
				t.Errorf("%v", done)
			}
		}
	})
}

// TestBlackBoxOutcomes combines all kinds of composites with handlers of failures, and with test mode.
func TestBlackBoxOutcomes(t *testing.T) {
	inBubble(t, "catch edges of composites look at the cause", func(t *testing.T) {
		var saw []string
		catch := func(id, from string, causes ...kahn.CauseKind) kahn.Node {
			return kahn.Node{ID: id, In: []kahn.Edge{{From: from, On: kahn.OnFailure, Causes: causes, Param: "err"}}, Do: func(_ context.Context, s *kahn.Step) (any, error) {
				err, _ := kahn.Param[error](s, "err")
				var own *kahn.NodeError
				if errors.As(err, &own) {
					saw = append(saw, fmt.Sprint(id, " ", own.Node, " ", own.Kind, " ", errors.Is(err, errStep), errors.Is(err, kahn.ErrLoopLimit)))
				}
				return nil, nil
			}}
		}
		never := func(kahn.View) (bool, error) { return true, nil }
		limit := kahn.Node{ID: "L", Sub: graph(after("x")), Loop: &kahn.Loop{MaxIterations: 2, While: never}}
		body := kahn.Node{ID: "K", Sub: graph(after("x")), Loop: &kahn.Loop{MaxIterations: 2, While: never}}
		g := graph(limit, body,
			catch("l1", "L", kahn.CauseLoopLimit), catch("l2", "L", kahn.CauseSubrun),
			catch("k1", "K", kahn.CauseLoopLimit), catch("k2", "K", kahn.CauseSubrun))
		r := try(t, g, breaks("K#2/x"), kahn.Limit(1))
		r.expect("L:F K:F l1:ok l2:X k1:X k2:ok", "failed") // no node handles the two aborted nodes
		if got := strings.Join(saw, ", "); got != "l1 L loop_limit false true, k2 K subrun true false" {
			t.Errorf("%s", got)
		}
	})

	inBubble(t, "a composite that was cancelled is not caught, one that was aborted is", func(t *testing.T) {
		g := graph(kahn.Node{ID: "A", Do: fails(10 * ms)}, subgraph("S", graph(kahn.Node{ID: "x", Do: neverStep(t)}), "A"),
			kahn.Node{ID: "H", In: []kahn.Edge{{From: "S", On: kahn.OnFailure}}},
			subgraph("C", graph(kahn.Node{ID: "x", Do: untilStopped})), kahn.Node{ID: "N", In: []kahn.Edge{{From: "C", On: kahn.OnFailure}}},
			kahn.Node{ID: "W", In: []kahn.Edge{{From: "C", On: kahn.OnAlways}}})
		r := tryControlled(t, t.Context(), g, takes(ms), soon(func(run *kahn.Run) {
			if err := run.CancelNode("C"); err != nil {
				t.Error(err)
			}
		}))
		r.expect("A:F S:X H:ok C:C N:X W:ok", "cancelled")
		r.cause("N", kahn.CauseUpstreamCancelled)
	})

	inBubble(t, "the last word of a nested end node, attempt by attempt", func(t *testing.T) {
		var c calls
		failed := graph(after("x"), kahn.Node{ID: "e", Kind: kahn.KindEnd, Do: c.count(func(_ context.Context, s *kahn.Step) (any, error) {
			if c.of("e") == 1 {
				return kahn.EndVerdict{Status: kahn.RunFailed}, nil
			}
			return kahn.EndVerdict{Status: kahn.RunCompleted, Output: c.of("e")}, nil
		})})
		g := graph(kahn.Node{ID: "S", Sub: failed, Retry: kahn.RetryStandard()}, after("A", "S"))
		r := try(t, g, breaks("S/x"))
		r.expect("S:ok A:ok", "completed")
		if r.node("S").Output != 2 || c.of("e") != 2 {
			t.Errorf("%v after %d calls", r.node("S").Output, c.of("e"))
		}
		waits := graph(after("x"), kahn.Node{ID: "e", Kind: kahn.KindEnd, Do: func(context.Context, *kahn.Step) (any, error) { return nil, kahn.Suspend("", nil, nil) }})
		r = try(t, graph(subgraph("S", waits), after("A", "S")), takes(ms))
		r.expect("S:F A:X", "failed")
		if sub := r.node("S").Sub; sub.Cause.Kind != kahn.CauseEndFailed {
			t.Errorf("%v", sub.Cause)
		}
	})

	inBubble(t, "degraded bubbles, rules and defaults are inherited, three deep", func(t *testing.T) {
		leaf := func() *kahn.Graph { return graph(after("x"), after("y", "x")) }
		m := func() kahn.Node {
			n := mapped("M", numbers(2), kahn.Map{})
			n.Sub = leaf()
			return n
		}
		build := func() *kahn.Graph {
			return graph(subgraph("S", graph(kahn.Node{ID: "L", Sub: graph(m()), Loop: &kahn.Loop{MaxIterations: 1, OnLimit: kahn.LoopStop, While: whileLess(9)}})), after("A", "S"))
		}
		step := breaks("S/L#1/M[1]/x")
		try(t, build(), step).expect("S:F A:X", "failed")
		g := build()
		g.Defaults.OnUpstreamFailure = kahn.UpstreamSkip
		r := try(t, g, step)
		r.expect("S:ok A:ok", "completed+d")
		r.inside("S/L:ok S/L/M[1]:ok S/L/M[1]/x:F S/L/M[1]/y:S/pf")
		if !r.node("S").Tolerated {
			t.Error("S hides what was handled inside")
		}
		try(t, g, step, kahn.StatusStrict).expect("S:F A:S/pf", "failed")
		g = build()
		g.Defaults.Retry = kahn.Retry{MaxAttempts: 2, InitialDelay: ms}
		var c paths
		r = try(t, g, c.count(step))
		r.expect("S:F A:X", "failed")
		if c.n["S/L#1/M[1]/x"] != 2 || r.node("S").Attempts != 1 || c.n["S/L#1/M[0]/x"] != 1 {
			t.Errorf("calls %v", c.n)
		}
	})

	inBubble(t, "test mode inside of loops, maps and sub-graphs", func(t *testing.T) {
		item := graph(after("x"), gate("g", "x"), kahn.Node{ID: "ok", In: []kahn.Edge{{From: "g", Label: "approved"}}}, kahn.Node{ID: "no", In: []kahn.Edge{{From: "g", Label: "rejected"}}},
			kahn.Node{ID: "p", After: []string{"ok"}, Retry: kahn.RetryStandard()})
		m := mapped("M", numbers(2), kahn.Map{})
		m.Sub = item
		steps := mapped("T", numbers(3), kahn.Map{ToleratedCount: 1})
		g := graph(subgraph("S", graph(kahn.Node{ID: "L", Sub: graph(m), Loop: &kahn.Loop{MaxIterations: 5, While: whileLess(2)}}, steps)),
			subgraph("C", graph(kahn.Node{ID: "x", Do: neverStep(t)})), after("A", "S", "C"))
		var mu sync.Mutex
		var seen []string
		mode := kahn.TestMode{
			Mocks: map[string]kahn.Mock{
				"S/L/M/x": {Do: func(_ context.Context, s *kahn.Step) (any, error) {
					mu.Lock()
					defer mu.Unlock()
					seen = append(seen, s.Path())
					return s.Iteration()*10 + s.Index(), nil
				}},
				"S/L/M/p": {Sequence: []kahn.Mock{{Err: errStep}, {Value: "p"}}},
				"S/T[]": {Do: func(_ context.Context, s *kahn.Step) (any, error) {
					if s.Index() == 1 {
						return nil, errStep
					}
					return s.Index(), nil
				}},
				"C": {Value: "c"},
			},
			OnMissing: kahn.MissingFail,
			Unmock:    []string{"A", "S/L/M/ok"},
			Assertions: []kahn.Assertion{
				kahn.AssertStatus("S/L/M/ok", kahn.Completed), kahn.AssertSkip("S/L/M/no", kahn.SkipConditionBranch), kahn.AssertCalls("S/L/M/p", 8), kahn.AssertCalls("S/L/M/x", 4),
				kahn.AssertStatus("S/T[1]", kahn.Failed), kahn.AssertStatus("S/T[2]", kahn.Completed), kahn.AssertOutput("S/T", "2", 2), kahn.AssertOutput("C", "", "c"), kahn.AssertCalls("C/x", 0),
			},
		}
		var c paths
		r := try(t, g, c.count(takes(ms)), mode)
		r.expect("S:ok C:ok A:ok", "completed+d")
		if err := r.Test.Err(); err != nil {
			t.Error(err)
		}
		slices.Sort(seen)
		if got := strings.Join(seen, " "); got != "S/L#1/M[0]/x S/L#1/M[1]/x S/L#2/M[0]/x S/L#2/M[1]/x" {
			t.Errorf("mocked %s", got)
		}
		c.once(t, "A", "S/L#1/M[0]/ok", "S/L#1/M[1]/ok", "S/L#2/M[0]/ok", "S/L#2/M[1]/ok")
		if g, _ := r.Test.Node("S/L/M/g"); g.Outcome != kahn.TestAuto {
			t.Errorf("%+v", g)
		}
		// The gate waits because Unmock names it. The run then continues in the same test mode.
		mode.Unmock = append(mode.Unmock, "S/L/M/g", "S/L/M/no")
		mode.Assertions = nil
		r = pause(t, g, takes(ms), mode)
		r.waits("S/L#1/M[0]/g", "S/L#1/M[1]/g")
		r = r.resume(g, takes(ms), map[string]any{"S/L#1/M[0]/g": "approved", "S/L#1/M[1]/g": "reject"}, mode)
		r.waits("S/L#2/M[0]/g", "S/L#2/M[1]/g")
		r = r.resume(g, takes(ms), map[string]any{"S/L#2/M[0]/g": true, "S/L#2/M[1]/g": false}, mode)
		r.expect("S:ok C:ok A:ok", "completed+d")
		r.inside("S/L/M[0]/ok:ok S/L/M[0]/no:S/br S/L/M[1]/ok:S/br S/L/M[1]/p:S/up")
	})
}
