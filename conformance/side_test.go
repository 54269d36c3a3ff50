package conformance_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/kahntest"
)

// fetchAndStore is the README's first graph, with another condition.
func fetchAndStore(rows []int, stored *[]int) *kahn.Graph {
	return graph(
		kahn.Node{ID: "fetch", Do: func(context.Context, *kahn.Step) (any, error) { return rows, nil }},
		kahn.If("any?", func(v kahn.View) (bool, error) {
			rows := v.Output("fetch")
			return len(rows.([]int)) > 0, nil
		}, "fetch"),
		kahn.Node{ID: "store", In: []kahn.Edge{{From: "any?", Label: "true"}, {From: "fetch", Param: "rows"}},
			Do: func(_ context.Context, s *kahn.Step) (any, error) {
				rows, err := kahn.Param[[]int](s, "rows")
				*stored = rows
				return len(rows), err
			}},
		kahn.Node{ID: "alert", In: []kahn.Edge{{From: "any?", Label: "false"}}, Do: nop},
		kahn.Node{ID: "close", After: []string{"store", "alert"}, Cleanup: true, Do: nop},
	)
}

// TestDataBesideABranch: a node on a branch does not run if the branch was not taken, even if a data edge delivers to it. If the branch was
// taken, the node gets the data.
func TestDataBesideABranch(t *testing.T) {
	t.Parallel()
	for _, mode := range []kahn.Mode{kahn.Eager, kahn.Waves} {
		inBubble(t, "rows, "+mode.String(), func(t *testing.T) {
			stored := []int{}
			r := try(t, fetchAndStore([]int{1, 2}, &stored), nil, mode)
			kahntest.RequireStatuses(t, r.Result, "fetch:ok any?:ok store:ok alert:S/br close:ok")
			require.Equal(t, []int{1, 2}, stored)
		})
		inBubble(t, "no rows, "+mode.String(), func(t *testing.T) {
			r := try(t, fetchAndStore([]int{}, nil), nil, mode)
			kahntest.RequireStatuses(t, r.Result, "fetch:ok any?:ok store:S/br alert:ok close:ok")
		})
		for broken, want := range map[string]string{
			"":       "order:ok charge:ok refund:S/br ship:ok",
			"charge": "order:ok charge:F refund:ok ship:S/br",
		} {
			inBubble(t, "refund(order) if charge failed, "+mode.String()+broken, func(t *testing.T) {
				g := graph(after("order"), after("charge", "order"),
					kahn.Node{ID: "refund", In: []kahn.Edge{{From: "order", Param: "order"}, {From: "charge", On: kahn.OnFailure}}},
					after("ship", "charge"))
				r := try(t, g, func(_ context.Context, s *kahn.Step) (any, error) {
					if s.ID() == broken {
						return nil, errStep
					}
					if order, _ := s.Param("order"); s.ID() == "refund" && order != "order" {
						t.Errorf("refund got %v", order)
					}
					return s.ID(), nil
				}, mode)
				kahntest.RequireStatuses(t, r.Result, want)
			})
		}
	}
}

// TestPlanTellsSideEdges: a side edge delivers data to a node that is on a branch. The rows list the side edges of graphs.
func TestPlanTellsSideEdges(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"A>C C-[true]>T A>T":                   "A>T",
		"A>R B-!>R":                            "A>R",
		"C-[true]>X X>T C-[false]>T":           "",
		"F>T F-!>T A>T":                        "A>T",
		"C-[true]>T C>T C-!>H":                 "C>T",
		"A>T C-[true]>T T{any}":                "A>T", // the graph makes it a side edge, but the join rule still counts it
		"A~>T C-[true]>T B-*>T":                "",
		"C-[true]>X X>T A>T":                   "", // T is not on the branch but below it, where the usual rules apply
		"A>V V-[no]>F F>P V-[yes]>R R-[b]>P":   "", // V counts if R is not evaluated
		"D-[x]>F F~>G G-*>H H>T D-[y]>R R-!>T": "",
		"C-[a]>Z A>Z Z{end}":                   "",
	} {
		plan, err := kahntest.Graph(t, text).Compile()
		require.NoError(t, err)
		var sides []string
		for e, side := range plan.Edges() {
			if side {
				sides = append(sides, e.From+">"+e.To)
			}
		}
		require.Equal(t, want, strings.Join(sides, " "), text)
	}
}

// TestSideEdgesAtEveryCut: a run continues with the same side edges at whichever point it was interrupted, in every kind of composite.
func TestSideEdgesAtEveryCut(t *testing.T) {
	t.Parallel()
	spare := func() []kahn.Node {
		return []kahn.Node{after("A"), gate("V", "A"), branch("F", "V", "no"), {ID: "R", Kind: kahn.KindGate, In: []kahn.Edge{{From: "V", Label: "yes"}}},
			{ID: "P", In: []kahn.Edge{{From: "F", Param: "p"}, {From: "R", Label: "yes"}, {From: "A", Param: "p"}}}}
	}
	plain := func() []kahn.Node {
		return []kahn.Node{after("A"), gate("C"), {ID: "T", In: []kahn.Edge{{From: "A", Param: "p"}, {From: "C", Label: "yes"}}}, after("U", "T", "A")}
	}
	refund := []kahn.Node{after("order"), {ID: "charge", After: []string{"order"}, Retry: kahn.Retry{MaxAttempts: 3, InitialDelay: ms}},
		{ID: "refund", In: []kahn.Edge{{From: "order", Param: "p"}, {From: "charge", On: kahn.OnFailure}}}}
	defaults := plain()
	defaults[2].OnUpstreamFailure = kahn.UpstreamSubstitute
	for name, test := range map[string]struct {
		c    *cutter
		want string
	}{
		"a gate says no":                      {&cutter{g: graph(plain()...), answers: map[string]any{"C": false}}, "A:ok C:ok T:S/br U:ok"},
		"a gate says yes":                     {&cutter{g: graph(plain()...), answers: map[string]any{"C": true}}, "A:ok C:ok T:ok U:ok"},
		"nothing failed for good":             {&cutter{g: graph(refund...), flaky: map[string]int{"charge": 2}}, "order:ok charge:ok refund:S/br"},
		"it failed":                           {&cutter{g: graph(refund...), broken: map[string]bool{"charge": true}}, "order:ok charge:F refund:ok"},
		"another way in, no router asked":     {&cutter{g: graph(spare()...), answers: map[string]any{"V": false}}, "A:ok V:ok F:ok R:S/br P:ok"},
		"another way in, the router said no":  {&cutter{g: graph(spare()...), answers: map[string]any{"V": true, "R": false}}, "A:ok V:ok F:S/br R:ok P:S/br"},
		"another way in, the router said yes": {&cutter{g: graph(spare()...), answers: map[string]any{"V": true, "R": true}}, "A:ok V:ok F:S/br R:ok P:ok"},
		"no defaults": {&cutter{g: graph(defaults...), broken: map[string]bool{"A": true}, answers: map[string]any{"C": false}},
			"A:F C:ok T:S/br U:X"},
		"in a sub-graph": {&cutter{g: graph(subgraph("S", graph(plain()...))), answers: map[string]any{"C": false}},
			"S:ok S/A:ok S/C:ok S/T:S/br S/U:ok"},
		"in a map": {&cutter{g: graph(kahn.Node{ID: "M", Params: map[string]any{"items": []int{1, 2}}, Map: &kahn.Map{Over: "items"}, Sub: graph(spare()...)}),
			answers: map[string]any{"V": false}}, "M:ok M[0]:ok M[1]:ok"},
	} {
		inBubble(t, name, func(t *testing.T) {
			if cuts := test.c.everyCut(t, name); cuts < 2 {
				t.Errorf("%d cuts", cuts)
			}
			kahntest.RequireStatuses(t, test.c.res, test.want)
		})
	}
}

// TestSideEdgesOfOtherLives: in a redrive, a node on a branch that is not taken this time does not run because of a side edge. If a trigger has
// removed the condition from the plan, the node is not on a branch, and its plain edge is no side edge.
func TestSideEdgesOfOtherLives(t *testing.T) {
	t.Parallel()
	inBubble(t, "redriven", func(t *testing.T) {
		g := graph(after("order"), after("charge", "order"),
			kahn.Node{ID: "refund", In: []kahn.Edge{{From: "order", Param: "order"}, {From: "charge", On: kahn.OnFailure}}})
		r := try(t, g, breaks("charge"))
		kahntest.RequireStatuses(t, r.Result, "order:ok charge:F refund:ok")
		res, err := kahn.Execute(t.Context(), g, breaks(), kahn.Redrive(reload(t, r.Snapshot()), []string{"charge"}), kahn.DespiteHandlers)
		require.NoError(t, err)
		kahntest.RequireStatuses(t, res, "order:ok charge:ok refund:S/br")
	})
	triggered := func() *kahn.Graph {
		return graph(kahn.Node{ID: "T1", Kind: kahn.KindTrigger}, after("A", "T1"), kahn.Node{ID: "C", Routes: true},
			kahn.Node{ID: "T", In: []kahn.Edge{{From: "C", Label: "true"}, {From: "A", Param: "p"}}})
	}
	for _, test := range []struct {
		opts []kahn.Option
		want string
	}{
		{nil, "T1:ok A:ok C:ok T:S/br"},
		{[]kahn.Option{kahn.Fire("T1", nil)}, "T1:ok A:ok T:ok"},
		{[]kahn.Option{kahn.Fire("T1", nil), kahn.PruneClosure}, "T1:ok A:ok C:ok T:S/br"},
	} {
		inBubble(t, fmt.Sprint("fired with ", len(test.opts)), func(t *testing.T) {
			kahntest.RequireStatuses(t, try(t, triggered(), nop, test.opts...).Result, test.want)
		})
	}
}
