package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
)

func TestScenarioMap(t *testing.T) {
	inBubble(t, "234 the output is in the order of the items", func(t *testing.T) {
		m := mapped("M", []string{"a", "b", "c"}, kahn.Map{})
		m.Label, m.Config = "the map", 7
		m.After = []string{"A"}
		r := try(t, graph(after("A"), m), func(_ context.Context, s *kahn.Step) (any, error) {
			if s.ID() == "A" {
				return "of A", nil
			}
			item, ok := s.Item()
			param, _ := s.Param("item")
			upstream, _ := s.Upstream("A")
			if !ok || item != param || upstream != "of A" || s.Config() != 7 || s.Label() != "the map" || len(s.UpstreamAll()) != 1 || s.View().Status("A") != kahn.Completed {
				t.Errorf("%v has %v, %v, %v", s, item, param, upstream)
			}
			time.Sleep(time.Duration(10-s.Index()) * ms) // item c ends first
			return fmt.Sprint(item, s.Index(), s.ID(), s.Path(), s.Params()["index"], len(s.Params())), nil
		})
		r.expect("A:ok M:ok", "completed")
		if got := fmt.Sprint(r.node("M").Output); got != "[a0MM[0]0 3 b1MM[1]1 3 c2MM[2]2 3]" && got != "[a0MM[0]03 b1MM[1]13 c2MM[2]23]" {
			t.Errorf("%s", got)
		}
		if _, ok := r.node("M").Output.([]any); !ok {
			t.Errorf("the output is a %T", r.node("M").Output)
		}
		r.order("node.started M", "node.completed M[2]", "node.completed M[1]", "node.completed M[0]", "node.completed M")
		if got := r.items("M"); got != "ok ok ok" {
			t.Errorf("items %s", got)
		}
		if n, ok := r.node("M").Sub.Node("M[1]"); !ok || n.ID != "M[1]" || n.Status != kahn.Completed {
			t.Errorf("M[1] is %+v", n)
		}
		for _, id := range []string{"M[3]", "M[-1]", "M[01]", "M", "M[1", "N[1]"} {
			if _, ok := r.node("M").Sub.Node(id); ok {
				t.Errorf("there is a node %s", id)
			}
		}
	})

	inBubble(t, "235 no items", func(t *testing.T) {
		for name, list := range map[string]any{"empty": []string{}, "null": nil, "typed null": []int(nil), "array": [0]int{}} {
			r := try(t, graph(mapped("M", list, kahn.Map{}), after("A", "M")), func(_ context.Context, s *kahn.Step) (any, error) {
				if s.ID() == "M" {
					t.Errorf("%s was called", s.Path())
				}
				return nil, nil
			})
			r.expect("M:ok A:ok", "completed")
			if out, ok := r.node("M").Output.([]any); !ok || out == nil || len(out) != 0 {
				t.Errorf("%s: %#v", name, r.node("M").Output)
			}
		}
	})

	inBubble(t, "236 null for a required port", func(t *testing.T) {
		r := try(t, graph(after("A"), kahn.Node{ID: "M", Map: &kahn.Map{Over: "list"}, Ports: []kahn.Port{{Name: "list", Required: true}},
			In: []kahn.Edge{{From: "A", Param: "list"}}}), func(_ context.Context, s *kahn.Step) (any, error) { return nil, nil })
		r.expect("A:ok M:S/null", "completed")
		r = try(t, graph(after("A"), kahn.Node{ID: "M", Map: &kahn.Map{Over: "list"}, In: []kahn.Edge{{From: "A", Param: "list"}}}),
			func(_ context.Context, s *kahn.Step) (any, error) { return nil, nil })
		r.expect("A:ok M:ok", "completed")
	})

	for name, value := range map[string]any{"text": "x", "number": 3, "map": map[string]any{}, "bytes": []byte("[1]")} {
		inBubble(t, "237 not a list: "+name, func(t *testing.T) {
			r := try(t, graph(mapped("M", value, kahn.Map{})), neverStep(t))
			r.expect("M:F", "failed")
			r.cause("M", kahn.CauseContractInput)
			if !errors.Is(r.err, kahn.ErrType) {
				t.Errorf("%v", r.err)
			}
		})
	}

	for _, sub := range []bool{false, true} {
		inBubble(t, fmt.Sprintf("242 an item that waits lets the others go on, nested %v", sub), func(t *testing.T) {
			n := kahn.Node{ID: "M", Map: &kahn.Map{Over: "items", Limit: 1}, Params: map[string]any{"items": []int{1, 2, 3}}}
			do := func(_ context.Context, s *kahn.Step) (any, error) {
				if _, ok := s.Resumed(); s.Index() == 0 && !ok {
					return nil, kahn.Suspend("token", nil, nil)
				}
				return s.Index(), nil
			}
			if n.Do = do; sub {
				n.Do, n.Sub = nil, graph(kahn.Node{ID: "x", Do: do})
			}
			r := tryControlled(t, t.Context(), graph(n), nil, func(run *kahn.Run) {
				synctest.Wait()
				if run.Status() != kahn.RunSuspended {
					t.Error(run.Status())
				}
				if err := run.Signal(context.Background(), "token", nil); err != nil {
					t.Error(err)
				}
			})
			r.expect("M:ok", "completed")
			order := ""
			for _, e := range r.events {
				if path, ok := strings.CutPrefix(e.Path, "M["); ok && e.Type == event.NodeCompleted && strings.HasSuffix(path, "]") {
					order += path + " "
				}
			}
			if order != "1] 2] 0] " {
				t.Errorf("items ended in the order %s\n%s", order, eventText(r.events))
			}
		})
	}

	inBubble(t, "238 siblings are independent", func(t *testing.T) {
		r := try(t, graph(mapped("M", numbers(3), kahn.Map{}), after("A", "M")), breaks("M[1]"), kahn.AbortRunning)
		r.expect("M:F A:X", "failed")
		r.cause("M", kahn.CauseMapItems)
		if got := r.items("M"); got != "ok F ok" {
			t.Errorf("items %s", got)
		}
		var failed *kahn.MapError
		if !errors.As(r.err, &failed) || failed.Failed != 1 || fmt.Sprint(failed.Results) != "[M <nil> M]" || !errors.Is(r.err, errStep) {
			t.Errorf("%v, %+v", r.err, failed)
		}
		if r.Count(kahn.Failed) != 1 {
			t.Errorf("%d failed nodes", r.Count(kahn.Failed))
		}
	})

	t.Run("239 tolerance", func(t *testing.T) {
		for _, row := range []struct {
			m        kahn.Map
			failing  []string
			expected string
		}{
			{kahn.Map{ToleratedCount: 1}, []string{"M[1]"}, "completed+d [M <nil> M M]"},
			{kahn.Map{ToleratedCount: 1, Compact: true}, []string{"M[1]"}, "completed+d [M M M]"},
			{kahn.Map{ToleratedCount: 1}, []string{"M[1]", "M[2]"}, "failed <nil>"},
			{kahn.Map{ToleratedPercent: 25}, []string{"M[1]"}, "completed+d [M <nil> M M]"},
			{kahn.Map{ToleratedPercent: 25}, []string{"M[1]", "M[3]"}, "failed <nil>"},
			{kahn.Map{ToleratedPercent: 24.9}, []string{"M[1]"}, "failed <nil>"},
			{kahn.Map{ToleratedCount: 3, ToleratedPercent: 25}, []string{"M[1]", "M[2]"}, "failed <nil>"},
			{kahn.Map{ToleratedCount: 1, ToleratedPercent: 75}, []string{"M[1]", "M[2]"}, "failed <nil>"},
			{kahn.Map{ToleratedPercent: 100}, []string{"M[0]", "M[1]", "M[2]", "M[3]"}, "completed+d [<nil> <nil> <nil> <nil>]"},
			{kahn.Map{ToleratedPercent: 100, Compact: true}, []string{"M[0]", "M[1]", "M[2]", "M[3]"}, "completed+d []"},
			{kahn.Map{ToleratedCount: 1, FailFast: true}, []string{"M[0]"}, "completed+d [<nil> M M M]"},
		} {
			inBubble(t, fmt.Sprintf("%+v %v", row.m, row.failing), func(t *testing.T) {
				r := try(t, graph(mapped("M", numbers(4), row.m)), breaks(row.failing...))
				status := r.Status.String()
				if r.Degraded {
					status += "+d"
				}
				if got := fmt.Sprintf("%s %v", status, r.node("M").Output); got != row.expected {
					t.Errorf("got %s, expected %s", got, row.expected)
				}
			})
		}
	})
	inBubble(t, "239 an item that skips itself is null in place", func(t *testing.T) {
		for compact, want := range map[bool]string{false: "[0 <nil> 2]", true: "[0 2]"} {
			r := try(t, graph(mapped("M", numbers(3), kahn.Map{Compact: compact})), func(_ context.Context, s *kahn.Step) (any, error) {
				if s.Index() == 1 {
					return nil, kahn.Skip("odd")
				}
				item, _ := s.Item()
				return item, nil
			})
			r.expect("M:ok", "completed")
			if got := fmt.Sprint(r.node("M").Output); got != want {
				t.Errorf("%s", got)
			}
		}
	})

	inBubble(t, "240 fail fast", func(t *testing.T) {
		r := try(t, graph(mapped("M", numbers(10), kahn.Map{FailFast: true})), func(ctx context.Context, s *kahn.Step) (any, error) {
			if s.Index() == 0 {
				return fails(10*ms)(ctx, s)
			}
			return untilStopped(ctx, s)
		})
		r.expect("M:F", "failed")
		r.cause("M", kahn.CauseMapItems)
		if got := r.items("M"); got != "F X X X X X X X X X" || r.Duration != 10*ms {
			t.Errorf("items %s in %v", got, r.Duration)
		}
		r = try(t, graph(mapped("M", numbers(10), kahn.Map{FailFast: true})), breaks("M[0]"), kahn.Limit(1))
		if got := r.items("M"); got != "F X X X X X X X X X" || r.Duration != 10*ms {
			t.Errorf("items %s in %v", got, r.Duration)
		}
	})

	for _, sub := range []bool{false, true} {
		inBubble(t, fmt.Sprintf("241 the limit of the map, nested %v", sub), func(t *testing.T) {
			var running, most atomic.Int32
			step := func(ctx context.Context, s *kahn.Step) (any, error) {
				most.Store(max(most.Load(), running.Add(1)))
				defer running.Add(-1)
				return takes(10*ms)(ctx, s)
			}
			m := mapped("M", numbers(100), kahn.Map{Limit: 4})
			if sub {
				m.Sub = graph(after("x"), after("y", "x"))
			}
			r := try(t, graph(m), step)
			r.expect("M:ok", "completed")
			want := 25 * 10 * ms
			if sub {
				want *= 2
			}
			if most.Load() != 4 || r.Duration != want {
				t.Errorf("at most %d at a time, in %v", most.Load(), r.Duration)
			}
			most.Store(0)
			try(t, graph(m), step, kahn.Limit(3))
			if most.Load() != 3 {
				t.Errorf("at most %d at a time under Limit(3)", most.Load())
			}
			m.Map.Limit = 0
			most.Store(0)
			try(t, graph(m), step)
			if most.Load() != 100 {
				t.Errorf("at most %d at a time without a limit", most.Load())
			}
		})
	}

	inBubble(t, "238 retries and timeouts are those of an item", func(t *testing.T) {
		var c calls
		m := mapped("M", numbers(3), kahn.Map{})
		m.Retry, m.Timeout = kahn.RetryStandard(), 500*ms
		r := try(t, graph(m), func(ctx context.Context, s *kahn.Step) (any, error) {
			return c.count(func(ctx context.Context, s *kahn.Step) (any, error) {
				if s.Index() == 1 && s.Attempt() < 3 {
					return untilStopped(ctx, s)
				}
				return takes(400*ms)(ctx, s)
			})(ctx, s)
		})
		r.expect("M:ok", "completed")
		r.count(event.NodeRetried, "M[1]", 2)
		r.count(event.NodeRetried, "M", 0)
		r.count(event.NodeTimedOut, "M", 0)
		if c.of("M") != 5 || r.Duration != 4400*ms {
			t.Errorf("%d calls in %v", c.of("M"), r.Duration)
		}
	})
	inBubble(t, "238 the overall timeout is that of the map", func(t *testing.T) {
		m := mapped("M", numbers(3), kahn.Map{ToleratedPercent: 100})
		m.OverallTimeout = 50 * ms
		r := try(t, graph(m), untilStopped)
		r.expect("M:F", "failed")
		r.cause("M", kahn.CauseTimeout)
		if got := r.items("M"); got != "X X X" {
			t.Errorf("items %s", got)
		}
	})
	inBubble(t, "238 a fallback for the map", func(t *testing.T) {
		m := mapped("M", numbers(3), kahn.Map{})
		m.Fallback = func(_ context.Context, err error) (any, error) {
			var failed *kahn.MapError
			errors.As(err, &failed)
			return failed.Results, nil
		}
		r := try(t, graph(m), breaks("M[1]"))
		r.expect("M:ok", "completed")
		if got := fmt.Sprint(r.Output()); got != "[M <nil> M]" {
			t.Errorf("%s", got)
		}
	})
	inBubble(t, "238 an item that ends the run", func(t *testing.T) {
		r := try(t, graph(mapped("M", numbers(3), kahn.Map{ToleratedPercent: 100}), kahn.Node{ID: "A", Do: untilStopped}), func(ctx context.Context, s *kahn.Step) (any, error) {
			if s.Index() == 1 {
				return nil, kahn.AbortRun(errStep)
			}
			return untilStopped(ctx, s)
		})
		r.expect("M:F A:X", "failed")
		r.cause("M", kahn.CauseMapItems)
		r.cause("A", kahn.CauseFailFast)
	})
	inBubble(t, "238 cancel", func(t *testing.T) {
		r := tryControlled(t, t.Context(), graph(mapped("M", numbers(3), kahn.Map{})), untilStopped, soon(func(r *kahn.Run) { r.Cancel() }))
		r.expect("M:C", "cancelled")
		if got := r.items("M"); got != "C C C" {
			t.Errorf("items %s", got)
		}
	})
	inBubble(t, "238 an item that ignores its context", func(t *testing.T) {
		release := make(chan struct{})
		r := tryControlled(t, t.Context(), graph(mapped("M", numbers(2), kahn.Map{})), func(ctx context.Context, s *kahn.Step) (any, error) {
			if s.Index() == 1 {
				<-release
			}
			return nil, ctx.Err()
		}, soon(func(r *kahn.Run) { r.Cancel() }), kahn.CancelGrace(time.Second))
		r.expect("M:C", "cancelled")
		if !slices.Equal(r.Abandoned, []string{"M[1]"}) {
			t.Errorf("abandoned %v", r.Abandoned)
		}
		close(release)
	})

	inBubble(t, "238 a sub-graph for each item", func(t *testing.T) {
		child := graph(
			kahn.Node{ID: "x", Ports: []kahn.Port{{Name: "item", Required: true}, {Name: "index"}, {Name: "k"}}},
			kahn.Node{ID: "y", After: []string{"x"}})
		child.Inputs = append(inputs("item"), kahn.Input{Name: "k", Optional: true})
		m := mapped("M", []string{"a", "b", "c"}, kahn.Map{ToleratedCount: 1})
		m.Sub, m.Params["k"] = child, "K"
		r := try(t, graph(m), func(_ context.Context, s *kahn.Step) (any, error) {
			if s.Path() == "M[1]/y" {
				return nil, errStep
			}
			item, _ := s.Item()
			p := s.Params()
			return fmt.Sprint(s.Path(), " ", item, " ", s.Index(), " ", p["item"], p["index"], p["k"]), nil
		})
		r.expect("M:ok", "completed+d")
		if got := r.items("M"); got != "ok F ok" {
			t.Errorf("items %s", got)
		}
		n, _ := r.node("M").Sub.Node("M[0]")
		x, _ := n.Sub.Node("x")
		if x.Output != "M[0]/x a 0 a0K" && x.Output != "M[0]/x a 0 a0 K" {
			t.Errorf("M[0]/x = %q", x.Output)
		}
		r.order("node.started M", "node.started M[0]", "node.started M[0]/x", "node.completed M[0]/y", "node.completed M[0]", "node.completed M")
	})
	inBubble(t, "238 a retry is a fresh run of the item", func(t *testing.T) {
		var c calls
		m := mapped("M", numbers(3), kahn.Map{})
		m.Sub, m.Retry = graph(after("x"), after("y", "x")), kahn.RetryStandard()
		failed := false
		r := try(t, graph(m), c.count(func(_ context.Context, s *kahn.Step) (any, error) {
			if s.Path() == "M[1]/y" && !failed {
				failed = true
				return nil, errStep
			}
			return nil, nil
		}), kahn.Limit(1))
		r.expect("M:ok", "completed")
		r.count(event.NodeRetried, "M[1]", 1)
		if c.of("x") != 4 || c.of("y") != 4 {
			t.Errorf("x was called %d times, y %d times", c.of("x"), c.of("y"))
		}
	})
	inBubble(t, "238 maps in maps", func(t *testing.T) {
		inner := kahn.Node{ID: "N", Map: &kahn.Map{Over: "item"}, Ports: []kahn.Port{{Name: "item"}}}
		m := mapped("M", [][]int{{1, 2}, {}, {3}}, kahn.Map{})
		m.Sub = graph(inner)
		for _, opts := range [][]kahn.Option{{}, {kahn.Limit(1)}, {kahn.Waves}} {
			r := try(t, graph(m), func(_ context.Context, s *kahn.Step) (any, error) {
				item, _ := s.Item()
				return fmt.Sprint(s.Path(), "=", item), nil
			}, opts...)
			r.expect("M:ok", "completed")
			if got := fmt.Sprint(r.node("M").Output); got != "[[M[0]/N[0]=1 M[0]/N[1]=2] [] [M[2]/N[0]=3]]" {
				t.Errorf("%s", got)
			}
		}
	})
	inBubble(t, "126 groups and keys are those of each item", func(t *testing.T) {
		m := mapped("M", numbers(4), kahn.Map{})
		m.Groups = []string{"g"}
		g := graph(m, kahn.Node{ID: "A", Groups: []string{"g"}}, subgraph("S", graph(kahn.Node{ID: "x", Groups: []string{"g"}, Key: "k"})), kahn.Node{ID: "B", Key: "k"},
			subgraph("T", graph(subgraph("U", graph(kahn.Node{ID: "x", Key: "k"})))))
		g.Groups = []kahn.Group{{Name: "g", Limit: 2}}
		r := try(t, g, takes(10*ms), kahn.KeyLimit(1))
		r.expect("M:ok A:ok S:ok B:ok T:ok", "completed")
		if r.Duration != 30*ms {
			t.Errorf("six of a group of two took %v", r.Duration)
		}
		r = try(t, graph(kahn.Node{ID: "B", Key: "k"}, subgraph("T", graph(subgraph("U", graph(kahn.Node{ID: "x", Key: "k"}))))), takes(10*ms), kahn.KeyLimit(1))
		if r.Duration != 20*ms {
			t.Errorf("two of a key took %v", r.Duration)
		}
		if _, err := graph(subgraph("S", graph(kahn.Node{ID: "x", Groups: []string{"g"}}))).Compile(); !errors.Is(err, kahn.ErrBadValue) {
			t.Errorf("%v", err)
		}
	})

	for name, m := range map[string]kahn.Map{
		"over": {}, "limit": {Over: "x", Limit: -1}, "count": {Over: "x", ToleratedCount: -1}, "percent": {Over: "x", ToleratedPercent: 101},
	} {
		if _, err := graph(kahn.Node{ID: "M", Map: &m}).Compile(); !errors.Is(err, kahn.ErrBadValue) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := kahn.Execute(t.Context(), graph(mapped("M", nil, kahn.Map{})), nil); !errors.Is(err, kahn.ErrNoStep) {
		t.Errorf("%v", err)
	}
}

// TestMapScale: the cost of a map is linear in the number of its items.
func TestMapScale(t *testing.T) {
	for _, n := range []int{1000, size(10_000, 2_000, 10_000)} {
		for _, limit := range []int{0, 3} {
			for _, sub := range []*kahn.Graph{nil, graph(after("x"))} {
				m := mapped("M", numbers(n), kahn.Map{})
				m.Sub = sub
				begin := time.Now()
				run, err := startRun(t, t.Context(), graph(m), func(_ context.Context, s *kahn.Step) (any, error) { return s.Index(), nil }, kahn.Limit(limit))
				if err != nil {
					t.Fatal(err)
				}
				res, err := run.Wait()
				if err != nil {
					t.Fatal(err)
				}
				node, _ := res.Node("M")
				out := node.Output.([]any)
				for i, v := range out {
					if v != i {
						t.Fatalf("item %d came to %v", i, v)
					}
				}
				if left := leftovers(run); left != "" || len(out) != n {
					t.Errorf("left over: %s; %d results", left, len(out))
				}
				t.Logf("%d items, limit %d, nested %v: %v", n, limit, sub != nil, time.Since(begin))
			}
		}
	}
}
