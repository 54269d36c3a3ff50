package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-c794f7ef/kahn"
)

// The collector of a map gets typed outputs and, for the items that failed, their errors.
func TestItems(t *testing.T) {
	errOdd := errors.New("odd")
	numbers := func(m kahn.Map) kahn.Node {
		m.Over = "list"
		return kahn.Node{ID: "M", Map: &m, Params: map[string]any{"list": []int{0, 1, 2, 3}}, Do: func(_ context.Context, s *kahn.Step) (any, error) {
			n, _ := s.Item()
			switch n := n.(int); {
			case n == 1:
				return nil, errOdd
			case n == 3:
				return nil, kahn.Skip("three")
			default:
				return fmt.Sprint(n), nil
			}
		}}
	}
	collect := func(want []string, failed ...int) kahn.StepFunc {
		return func(_ context.Context, s *kahn.Step) (any, error) {
			list, errs, err := kahn.UpstreamItems[string](s, "M")
			if err != nil || !slices.Equal(list, want) || (errs == nil) != (len(failed) == 0) {
				t.Errorf("%q %v %v, expected %q", list, errs, err, want)
			}
			for i, err := range errs {
				if got := errors.Is(err, errOdd); got != slices.Contains(failed, i) {
					t.Errorf("item %d: %v", i, err)
				}
			}
			return nil, nil
		}
	}
	inBubble(t, "failed items that are tolerated", func(t *testing.T) {
		g := graph(numbers(kahn.Map{ToleratedCount: 1}), kahn.Node{ID: "C", After: []string{"M"}, Do: collect([]string{"0", "", "2", ""}, 1)})
		r := try(t, g, nop)
		r.expect("M:ok C:ok", "completed+d")
		list, errs, err := kahn.OutputItems[string](r.Result, "M")
		if !slices.Equal(list, []string{"0", "", "2", ""}) || len(errs) != 4 || !errors.Is(errs[1], errOdd) || err != nil {
			t.Errorf("%q %v %v", list, errs, err)
		}
		if _, _, err := kahn.OutputItems[int](r.Result, "M"); !errors.Is(err, kahn.ErrType) || !strings.Contains(err.Error(), "item 0") {
			t.Error(err)
		}
		if _, _, err := kahn.OutputItems[int](r.Result, "C"); !errors.Is(err, kahn.ErrNoValue) {
			t.Error(err)
		}
		if _, _, err := kahn.OutputItems[int](r.Result, "X"); !errors.Is(err, kahn.ErrUnknownNode) {
			t.Error(err)
		}
	})
	inBubble(t, "no item fails", func(t *testing.T) {
		r := try(t, graph(mapped("M", []int{1, 2}, kahn.Map{})), func(_ context.Context, s *kahn.Step) (any, error) { return s.Path(), nil })
		list, errs, err := kahn.OutputItems[string](r.Result, "M")
		if !slices.Equal(list, []string{"M[0]", "M[1]"}) || errs != nil || err != nil {
			t.Errorf("%q %v %v", list, errs, err)
		}
	})
	inBubble(t, "a map that was skipped", func(t *testing.T) {
		g := graph(kahn.Node{ID: "a"}, func() kahn.Node { n := numbers(kahn.Map{}); n.After = []string{"a"}; return n }())
		r := try(t, g, func(context.Context, *kahn.Step) (any, error) { return nil, kahn.Skip("none today") })
		r.expect("a:S/self M:S/up", "completed")
		if _, _, err := kahn.OutputItems[string](r.Result, "M"); !errors.Is(err, kahn.ErrNoValue) {
			t.Error(err)
		}
	})
	inBubble(t, "a compact output keeps the places of the errors", func(t *testing.T) {
		g := graph(numbers(kahn.Map{ToleratedCount: 1, Compact: true}), kahn.Node{ID: "C", After: []string{"M"}, Do: collect([]string{"0", "", "2", ""}, 1)})
		try(t, g, nop).expect("M:ok C:ok", "completed+d")
	})
	inBubble(t, "a map that failed, by a catch edge", func(t *testing.T) {
		g := graph(numbers(kahn.Map{}), kahn.Node{ID: "C", In: []kahn.Edge{{From: "M", On: kahn.OnFailure}}, Do: collect([]string{"0", "", "2", ""}, 1)})
		try(t, g, nop).expect("M:F C:ok", "completed+d")
	})
	inBubble(t, "after a resume", func(t *testing.T) {
		g := graph(numbers(kahn.Map{ToleratedCount: 1}), kahn.Node{ID: "G", Kind: kahn.KindGate, After: []string{"M"}},
			kahn.Node{ID: "C", After: []string{"M", "G"}, Do: collect([]string{"0", "", "2", ""}, 1)})
		res, err := kahn.Execute(t.Context(), g, nop)
		if err != nil || res.Status != kahn.RunSuspended {
			t.Fatal(res, err)
		}
		collected := false
		g2 := graph(numbers(kahn.Map{ToleratedCount: 1}), kahn.Node{ID: "G", Kind: kahn.KindGate, After: []string{"M"}},
			kahn.Node{ID: "C", After: []string{"M", "G"}, Do: func(_ context.Context, s *kahn.Step) (any, error) {
				collected = true
				list, errs, err := kahn.UpstreamItems[string](s, "M")
				if !slices.Equal(list, []string{"0", "", "2", ""}) || len(errs) != 4 || errs[1] == nil || err != nil {
					t.Errorf("%q %v %v", list, errs, err)
				}
				return nil, nil
			}})
		if res, err := kahn.Execute(t.Context(), g2, nop, kahn.Resume(res.Snapshot()), kahn.EarlySignals(map[string]any{"G": true})); err != nil || res.Status != kahn.RunCompleted || !collected {
			t.Fatal(res.Status, err, collected)
		}
	})
	inBubble(t, "UpstreamErr tells of the failed items", func(t *testing.T) {
		g := graph(numbers(kahn.Map{ToleratedCount: 1}), kahn.Node{ID: "C", After: []string{"M"}, Do: func(_ context.Context, s *kahn.Step) (any, error) {
			var e *kahn.MapError
			if !errors.As(s.UpstreamErr("M"), &e) || e.Failed != 1 || !slices.Equal(e.Indexes, []int{1}) || !errors.Is(e, errOdd) {
				t.Errorf("%v", s.UpstreamErr("M"))
			}
			return nil, nil
		}})
		try(t, g, nop)
	})
}

func TestRoot(t *testing.T) {
	g := graph(kahn.Node{ID: "A", Do: func(_ context.Context, s *kahn.Step) (any, error) {
		if n, err := kahn.Root[int](s, "n"); n != 3 || err != nil {
			t.Error(n, err)
		}
		if _, err := kahn.Root[string](s, "n"); !errors.Is(err, kahn.ErrType) || !strings.Contains(err.Error(), `root input "n"`) {
			t.Error(err)
		}
		if _, err := kahn.Root[int](s, "m"); !errors.Is(err, kahn.ErrNoValue) {
			t.Error(err)
		}
		return nil, nil
	}})
	if _, err := kahn.Execute(t.Context(), g, nil, kahn.Inputs(map[string]any{"n": 3})); err != nil {
		t.Fatal(err)
	}
}

func TestRelatives(t *testing.T) {
	g := graph(after("A"), after("B", "A"), kahn.Node{ID: "C", In: []kahn.Edge{{From: "A", On: kahn.OnFailure}}}, after("D", "B", "C"), after("E"), kahn.Node{ID: "end", Kind: kahn.KindEnd})
	p, err := g.Compile()
	if err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string][2]string{
		"A": {"", "B C D end"}, "B": {"A", "D end"}, "C": {"A", "D end"}, "D": {"A B C", "end"}, "E": {"", "end"}, "end": {"A B C D E", ""}, "?": {"", ""},
	} {
		if got := [2]string{strings.Join(p.Ancestors(id), " "), strings.Join(p.Descendants(id), " ")}; got != want {
			t.Errorf("%s: %q, expected %q", id, got, want)
		}
	}
}

// Defaults.Timeout applies to steps at any depth, and to nothing else.
func TestDefaultTimeout(t *testing.T) {
	slow := takes(time.Minute)
	inBubble(t, "where it applies", func(t *testing.T) {
		g := graph(after("A"), kahn.Node{ID: "B", Timeout: 2 * time.Second}, kahn.Node{ID: "C", Timeout: kahn.NoTimeout},
			kahn.Node{ID: "S", Sub: graph(after("x"))}, kahn.Node{ID: "M", Map: &kahn.Map{Over: "list"}, Params: map[string]any{"list": []int{1}}},
			kahn.Node{ID: "G", Kind: kahn.KindGate, Gate: &kahn.Gate{Timeout: time.Hour, OnTimeout: kahn.GateLabel}})
		g.Defaults.Timeout = time.Second
		r := try(t, g, slow)
		r.expect("A:F B:F C:ok S:F M:F G:ok", "failed")
		for id, want := range map[string]time.Duration{"A": time.Second, "B": 2 * time.Second, "C": time.Minute, "S": time.Second, "M": time.Second, "G": 0} {
			if got := r.node(id).Duration; got != want {
				t.Errorf("%s took %v, expected %v", id, got, want)
			}
		}
	})
	inBubble(t, "a graph inside may have its own, or none", func(t *testing.T) {
		own, none := graph(after("x")), graph(after("x"))
		own.Defaults.Timeout, none.Defaults.Timeout = 3*time.Second, kahn.NoTimeout
		g := graph(kahn.Node{ID: "S", Sub: own}, kahn.Node{ID: "T", Sub: none})
		g.Defaults.Timeout = time.Second
		r := try(t, g, slow)
		if s, u := r.node("S").Duration, r.node("T").Duration; s != 3*time.Second || u != time.Minute {
			t.Errorf("%v, %v", s, u)
		}
	})
	g := graph(after("A"))
	g.Defaults.Timeout = -time.Second
	if _, err := g.Compile(); !errors.Is(err, kahn.ErrBadValue) || !strings.Contains(err.Error(), "Timeout") {
		t.Error(err)
	}
}

// If all nodes inside a composite are skipped, the composite is skipped.
func TestSkippedInside(t *testing.T) {
	no := func(kahn.View) (bool, error) { return false, nil }
	inside := func(nodes ...kahn.Node) kahn.Node { return kahn.Node{ID: "S", Sub: graph(nodes...)} }
	inBubble(t, "every node", func(t *testing.T) {
		r := try(t, graph(inside(kahn.Node{ID: "x", When: no}, after("y", "x")), after("T", "S")), nop)
		r.expect("S:S/self T:S/up", "completed")
		if skip := r.node("S").Skip; skip.Message == "" {
			t.Errorf("%+v", skip)
		}
	})
	inBubble(t, "it is a bypass", func(t *testing.T) {
		next := after("T", "S")
		next.SkipMode = kahn.SkipSatisfy
		try(t, graph(inside(kahn.Node{ID: "x", When: no}), next), nop).expect("S:S/self T:ok", "completed")
	})
	inBubble(t, "not if one ran, nor if there are none, nor with an end node", func(t *testing.T) {
		try(t, graph(inside(kahn.Node{ID: "x", When: no}, after("y"))), nop).expect("S:ok", "completed")
		try(t, graph(inside()), nop).expect("S:ok", "completed")
		try(t, graph(inside(kahn.Node{ID: "x", When: no}, kahn.Node{ID: "e", Kind: kahn.KindEnd})), nop).expect("S:ok", "completed")
	})
	inBubble(t, "an item of a map is null in its place", func(t *testing.T) {
		odd := kahn.Node{ID: "x", When: func(v kahn.View) (bool, error) { n, _ := v.Root("item"); return n.(int)%2 == 0, nil }, Do: func(_ context.Context, s *kahn.Step) (any, error) {
			n, _ := s.Item()
			return n, nil
		}}
		m := kahn.Node{ID: "S", Sub: graph(odd), Map: &kahn.Map{Over: "list"}, Params: map[string]any{"list": []int{0, 1, 2}}}
		r := try(t, graph(m), nop)
		if got := fmt.Sprint(r.node("S").Output); got != "[0 <nil> 2]" {
			t.Error(got)
		}
	})
}
