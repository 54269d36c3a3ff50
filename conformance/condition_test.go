package conformance_test

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
)

type labeled []string

func (l labeled) BranchLabels() []string { return l }

// TestRouting lists, for outputs of a condition, the branches that run. The condition has a branch for each label.
func TestRouting(t *testing.T) {
	type text string
	yes := "yes"
	for _, c := range []struct {
		name   string
		output any
		labels []string // the labels of the branches
		taken  []string
	}{
		{"bool", true, []string{"true", "false"}, []string{"true"}},
		{"bool to an alias", false, []string{"yes", "no"}, []string{"no"}},
		{"alias in another case", "YES", []string{"True", "false"}, []string{"True"}},
		{"all branches of an alias class", "true", []string{"yes", "Yes"}, []string{"yes", "Yes"}},
		{"exact hides alias", "yes", []string{"true", "yes"}, []string{"yes"}},
		{"exact is case-sensitive", "A", []string{"a", "default"}, []string{"default"}},
		{"trimmed", " a\n", []string{"a"}, []string{"a"}},
		{"several, trimmed", []string{"b", " a", "c\n"}, []string{"a", "b", "c"}, []string{"a", "b", "c"}},
		{"several of any, trimmed", []any{" a"}, []string{"a"}, []string{"a"}},
		{"labeler, trimmed", labeled{"a\t"}, []string{"a"}, []string{"a"}},
		{"named type", text("a"), []string{"a"}, []string{"a"}},
		{"pointer", &yes, []string{"yes"}, []string{"yes"}},
		{"several", []string{"a", "c"}, []string{"a", "b", "c"}, []string{"a", "c"}},
		{"several of any", []any{"a", true}, []string{"a", "true"}, []string{"a", "true"}},
		{"several, some unknown", []string{"a", "x"}, []string{"a", "default"}, []string{"a"}},
		{"several, all unknown", []string{"y", "x"}, []string{"a", "default"}, []string{"default"}},
		{"none", nil, []string{"a", "default"}, []string{"default"}},
		{"a number is not a label", 7, []string{"7", "default"}, []string{"default"}},
		{"map", map[string]any{"label": "b", "branch": "a"}, []string{"a", "b"}, []string{"a"}},
		{"map, second choice", map[string]any{"result": "c", "label": "b"}, []string{"c", "b"}, []string{"b"}},
		{"map, the first that is a label", map[string]any{"branch": 7, "result": true}, []string{"true"}, []string{"true"}},
		{"map of strings", map[string]string{"branch": "a"}, []string{"a"}, []string{"a"}},
		{"struct", struct{ Branch string }{"a"}, []string{"a"}, []string{"a"}},
		{"struct by JSON name", struct {
			X bool `json:"result"`
		}{true}, []string{"true"}, []string{"true"}},
		{"labeler", labeled{"a", "b"}, []string{"a", "b", "c"}, []string{"a", "b"}},
		{"labeler without labels", labeled{}, []string{"a", "default"}, []string{"default"}},
		{"no gate alias on a condition", "approved", []string{"true", "default"}, []string{"default"}},
		{"nothing matches", "x", []string{"a", "b"}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := graph(kahn.Node{ID: "?", Routes: true, Do: yields(0, c.output)})
			for _, label := range c.labels {
				g.Add(kahn.Node{ID: label, In: []kahn.Edge{{From: "?", Label: label}}})
			}
			synctest.Test(t, func(t *testing.T) {
				r := try(t, g, nothing)
				var taken []string
				for _, label := range c.labels {
					if n := r.node(label); n.Status == kahn.Completed {
						taken = append(taken, label)
					} else {
						require.Equal(t, event.SkipReason{Kind: kahn.SkipConditionBranch, Node: "?", Label: label, Answer: n.Skip.Answer}, n.Skip)
					}
				}
				require.Equal(t, c.taken, taken)
				completed := r.find(event.NodeCompleted, "?")[0].Payload.(event.Completion)
				require.ElementsMatch(t, c.taken, completed.Labels)
			})
		})
	}
}

func TestGateAliases(t *testing.T) {
	g := graph(kahn.Node{ID: "?", Kind: kahn.KindGate, Do: yields(0, "Approve")},
		kahn.Node{ID: "A", In: []kahn.Edge{{From: "?", Label: "yes"}}}, kahn.Node{ID: "B", In: []kahn.Edge{{From: "?", Label: "rejected"}}})
	try(t, g, nothing).expect("?:ok A:ok B:S/br", "completed")
}

func TestNoMatchFails(t *testing.T) {
	g := graph(kahn.Node{ID: "?", Routes: true, NoMatch: kahn.NoMatchFail, Do: yields(0, "x")}, kahn.Node{ID: "A", In: []kahn.Edge{{From: "?", Label: "a"}}})
	r := try(t, g, nothing)
	r.expect("?:F A:X", "failed")
	r.cause("?", kahn.CauseNoBranchMatch)
	require.ErrorIs(t, r.err, kahn.ErrNoMatch)
}

// TestTimesFollowTheOrder: the times of events follow their order. The test runs in real time, where workers read the clock at the same time.
func TestTimesFollowTheOrder(t *testing.T) {
	g := layered(300, 30, 3)
	for range size(20, 4, 20) {
		try(t, g, nothing)
	}
}

// TestSwitchAndIf: conditions with a Go test see only their ancestors.
func TestSwitchAndIf(t *testing.T) {
	g := graph(
		kahn.Node{ID: "A", Do: yields(0, 3)}, kahn.Node{ID: "B", Do: always(errStep)}, kahn.Node{ID: "other", Do: yields(0, 4)},
		kahn.Switch("size", func(v kahn.View) (string, error) {
			require.Equal(t, "size", v.ID())
			require.Equal(t, 3, v.Output("A"))
			require.ErrorIs(t, v.Err("B"), errStep)
			require.Equal(t, kahn.Failed, v.Status("B"))
			require.Nil(t, v.Output("B"))
			for _, stranger := range []string{"other", "small", "nobody"} {
				require.False(t, v.Has(stranger))
			}
			value, ok := v.Root("root")
			require.Equal(t, "input", value)
			require.True(t, ok)
			return "small", nil
		}, "A", "B"),
		kahn.Node{ID: "small", In: []kahn.Edge{{From: "size", Label: "small"}}},
		kahn.Node{ID: "large", In: []kahn.Edge{{From: "size", Label: "large"}}},
		kahn.If("far?", func(v kahn.View) (bool, error) { return v.Output("A") == 3, nil }, "small"),
		kahn.Node{ID: "near", In: []kahn.Edge{{From: "far?", Label: "no"}}},
	)
	try(t, g, nothing, kahn.Inputs(map[string]any{"root": "input"})).
		expect("A:ok B:F other:ok size:ok small:ok large:S/br far?:ok near:S/br", "completed+d")
}
