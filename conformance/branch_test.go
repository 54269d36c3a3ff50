package conformance_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/kahntest"
)

// TestBranchIntoTheEnd: a condition may choose the label of an edge into the end node, like any other branch. The end node runs
// for any choice of the condition; only the inputs of the end node depend on the choice.
func TestBranchIntoTheEnd(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		output any
		want   string
		value  string // the value that the labelled edge delivers to the end node
	}{
		{true, "A:ok B:S/br Z:ok", "true"},
		{"yes", "A:ok B:S/br Z:ok", "yes"},
		{false, "A:ok B:ok Z:ok", "nothing"},
		{"else", "A:ok B:ok Z:ok", "nothing"},
		{kahn.Outputs{"label": "x", "true": "port"}, "A:ok B:ok Z:ok", "nothing"},
		{kahn.Outputs{"label": "true", "true": "port"}, "A:ok B:S/br Z:ok", "port"},
	} {
		for _, mode := range []kahn.Mode{kahn.Eager, kahn.Waves} {
			inBubble(t, fmt.Sprint(test.output, mode), func(t *testing.T) {
				value := "not run"
				g := graph(kahn.Node{ID: "A", Routes: true, Do: func(context.Context, *kahn.Step) (any, error) { return test.output, nil }},
					kahn.Node{ID: "B", In: []kahn.Edge{{From: "A", Label: "default"}}, Do: nop},
					kahn.Node{ID: "Z", Kind: kahn.KindEnd, In: []kahn.Edge{{From: "A", Label: "true", Param: "a"}},
						Do: func(_ context.Context, s *kahn.Step) (any, error) {
							value = "nothing"
							if v, ok := s.Param("a"); ok {
								value = fmt.Sprint(v)
							}
							return nil, nil
						}})
				r := try(t, g, nil, mode)
				kahntest.RequireStatuses(t, r.Result, test.want)
				if value != test.value {
					t.Errorf("the end node was given %s, expected %s", value, test.value)
				}
			})
		}
	}
	// A label whose only edge leads to the end node is a valid choice. A label that a plain step's output cannot equal is not a branch.
	inBubble(t, "is a match", func(t *testing.T) {
		yes := func(context.Context, *kahn.Step) (any, error) { return true, nil }
		end := kahn.Node{ID: "Z", Kind: kahn.KindEnd, In: []kahn.Edge{{From: "A", Label: "true", Param: "a"}, {From: "P", Label: "x", Param: "p"}},
			Do: func(_ context.Context, s *kahn.Step) (any, error) {
				for _, name := range []string{"a", "p"} {
					if v, _ := s.Param(name); v != true {
						t.Errorf("parameter %s is %v", name, v)
					}
				}
				return nil, nil
			}}
		r := try(t, graph(kahn.Node{ID: "A", Routes: true, NoMatch: kahn.NoMatchFail, Do: yes}, kahn.Node{ID: "P", Do: yes}, end), nil)
		kahntest.RequireStatuses(t, r.Result, "A:ok P:ok Z:ok")
	})
	// A label on a data-only edge into the end node is not a branch, and the end node always gets the value of this edge.
	inBubble(t, "data only", func(t *testing.T) {
		a := kahn.Node{ID: "A", Routes: true, Choices: []string{"x"}, Do: func(context.Context, *kahn.Step) (any, error) { return "x", nil }}
		end := kahn.Node{ID: "Z", Kind: kahn.KindEnd, In: []kahn.Edge{{From: "A", Label: "other", Param: "a", DataOnly: true}},
			Do: func(_ context.Context, s *kahn.Step) (any, error) {
				if v, _ := s.Param("a"); v != "x" {
					t.Errorf("parameter a is %v", v)
				}
				return nil, nil
			}}
		r := try(t, graph(a, end), nil)
		kahntest.RequireStatuses(t, r.Result, "A:ok Z:ok")
	})
}
