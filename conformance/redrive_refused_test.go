package conformance_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// TestRedriveRefused: a run charges an order, cannot ship it, and refunds the charge, which handles the failure. A redrive that would repeat the
// refund or the failure is refused, at every depth, whether or not it names the nodes. A fork that keeps the charge is refused, too. A node whose
// failure was not handled may run again.
func TestRedriveRefused(t *testing.T) {
	t.Parallel()
	failed := func(v kahn.View) (bool, error) { return v.Status("ship") == kahn.Failed, nil }
	refunds := map[string][]kahn.Node{
		"a catch edge":         {{ID: "refund", In: []kahn.Edge{{From: "ship", On: kahn.OnFailure}}}},
		"OneFailed":            {{ID: "refund", Join: kahn.OneFailed, After: []string{"charge", "ship"}}},
		"AllFailed":            {{ID: "refund", Join: kahn.AllFailed, After: []string{"ship"}}},
		"a boundary's branch":  {kahn.If("failed?", failed, "ship"), {ID: "refund", In: []kahn.Edge{{From: "failed?", Label: "true"}}}},
		"behind such a branch": {kahn.If("failed?", failed, "ship"), {ID: "note", In: []kahn.Edge{{From: "failed?", Label: "true"}}}, {ID: "refund", After: []string{"note"}}},
	}
	places := []struct {
		name      string
		around    func(shop *kahn.Graph) *kahn.Graph
		all       []string // path prefixes of the shops inside
		composite string
	}{
		{"at the top", func(shop *kahn.Graph) *kahn.Graph { return shop }, []string{""}, ""},
		{"in a sub-graph", func(shop *kahn.Graph) *kahn.Graph { return graph(subgraph("S", shop)) }, []string{"S/"}, "S"},
		{"in a sub-graph of a sub-graph", func(shop *kahn.Graph) *kahn.Graph { return graph(subgraph("S", graph(subgraph("S", shop)))) }, []string{"S/S/"}, "S"},
		{"in items", func(shop *kahn.Graph) *kahn.Graph {
			return graph(kahn.Node{ID: "M", Params: map[string]any{"l": []int{1, 2}}, Map: &kahn.Map{Over: "l"}, Sub: shop})
		}, []string{"M[0]/", "M[1]/"}, "M"},
		{"in a loop", func(shop *kahn.Graph) *kahn.Graph {
			return graph(kahn.Node{ID: "L", Sub: shop, Loop: &kahn.Loop{MaxIterations: 1, Until: func(kahn.View) (bool, error) { return true, nil }}})
		}, []string{"L#1/"}, "L"},
	}
	const whole = "the composite"
	for what, refund := range refunds {
		shop := graph(append([]kahn.Node{after("charge"), after("ship", "charge"), after("other")}, refund...)...)
		for _, place := range places {
			for _, row := range []struct {
				name    string
				names   []string // of the nodes in the last graph; nil for all failed nodes
				modes   kahn.RedriveMode
				fork    bool
				refused bool
				calls   []string
			}{
				{"all", nil, 0, false, true, []string{"ship", "other"}},
				{"what was answered", []string{"ship"}, 0, false, true, []string{"ship"}},
				{"what was before", []string{"charge"}, 0, false, true, []string{"charge", "ship"}},
				{"the handler", []string{"refund"}, 0, false, true, []string{"refund"}},
				{"the composite", []string{whole}, 0, false, true, []string{"ship", "other"}},
				{"the composite, anew", []string{whole}, kahn.Anew, false, true, []string{"charge", "ship", "other"}},
				{"all, and descendants are kept", nil, kahn.KeepDescendants, false, true, []string{"ship", "other"}},
				{"what was before, and descendants are kept", []string{"charge"}, kahn.KeepDescendants, false, true, []string{"charge", "ship"}},
				{"what nobody has answered", []string{"other"}, 0, false, false, []string{"other"}},
				{"what nobody has answered, and descendants are kept", []string{"other"}, kahn.KeepDescendants, false, false, []string{"other"}},
				{"a fork", nil, 0, true, true, []string{"ship", "other"}},
				{"a fork from the beginning", []string{"charge"}, 0, true, len(place.all) > 1, []string{"charge", "ship", "other"}},
				{"a fork with the composite anew", []string{whole}, kahn.Anew, true, false, []string{"charge", "ship", "other"}},
			} {
				if len(row.names) == 1 && row.names[0] == whole && place.composite == "" {
					continue
				}
				t.Run(fmt.Sprintf("%s, %s, %s", what, place.name, row.name), func(t *testing.T) {
					t.Parallel()
					g, last := place.around(shop), place.all[len(place.all)-1]
					p := compiled(t, g)
					var names, want []string
					within := place.all
					for _, name := range row.names {
						if name == whole {
							names = append(names, place.composite)
							continue
						}
						names = append(names, last+name)
						if within = []string{last}; row.fork {
							within = place.all
						}
					}
					for _, prefix := range within {
						for _, id := range row.calls {
							if prefix == last || id != "charge" || len(row.names) == 0 || row.names[0] == whole {
								want = append(want, prefix+id)
							}
						}
					}
					slices.Sort(want)
					for _, where := range []string{"a snapshot", "a file", "a store"} {
						db := new(store.Memory)
						stored := []kahn.Option{kahn.Durable(db), kahn.RunID("r")}
						var opts []kahn.Option
						if where == "a store" {
							opts = stored
						}
						broken := []string{"ship", "other"}
						var called []string
						step := func(_ context.Context, s *kahn.Step) (any, error) {
							called = append(called, s.Path())
							if slices.Contains(broken, s.ID()) {
								return nil, errStep
							}
							return s.ID(), nil
						}
						opts = append(opts, kahn.Limit(1))
						res, err := kahn.Execute(t.Context(), g, step, opts...)
						require.Error(t, err, where)
						require.Contains(t, called, last+"refund", where)
						snapshot := res.Snapshot()
						if where != "a snapshot" {
							snapshot = reload(t, snapshot)
						}
						preview := func(modes kahn.RedriveMode) error {
							var opts []kahn.Option
							if modes != 0 {
								opts = append(opts, modes)
							}
							if row.fork {
								_, err := kahn.ForkPreview(p, snapshot, names, opts...)
								return err
							}
							_, err := kahn.RedrivePreview(p, snapshot, names, opts...)
							return err
						}
						again := func(modes kahn.RedriveMode) error {
							called, broken = nil, nil
							opts := []kahn.Option{kahn.Redrive(snapshot, names), kahn.Limit(1)}
							switch {
							case row.fork && where == "a store":
								opts = []kahn.Option{kahn.Fork(snapshot, names...), kahn.Durable(db), kahn.RunID("f"), kahn.Limit(1)}
							case row.fork:
								opts = []kahn.Option{kahn.Fork(snapshot, names...), kahn.Limit(1)}
							case where == "a store":
								opts = append([]kahn.Option{kahn.Redrive(nil, names), kahn.Limit(1)}, stored...)
							}
							if modes != 0 {
								opts = append(opts, modes)
							}
							_, err := kahn.Execute(t.Context(), g, step, opts...)
							return err
						}
						if row.refused {
							require.ErrorIs(t, preview(row.modes), kahn.ErrHandlers, where)
							err := again(row.modes)
							require.ErrorIs(t, err, kahn.ErrHandlers, where)
							at := last
							if row.fork {
								at = place.all[0] // all nodes of the other item run
							}
							require.ErrorContains(t, err, fmt.Sprintf("%q has run because of %q", at+"refund", at+"ship"), where)
							require.Empty(t, called, where)
						}
						modes := row.modes
						if row.refused {
							modes |= kahn.DespiteHandlers
						}
						require.NoError(t, preview(modes), where)
						require.NotErrorIs(t, again(modes), kahn.ErrHandlers, where)
						slices.Sort(called)
						called = slices.DeleteFunc(called, func(path string) bool { return lastOf(path) == "note" })
						require.Equal(t, want, called, where)
					}
				})
			}
		}
	}
}
