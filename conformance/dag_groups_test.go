package conformance_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
)

// Compile checks groups and branch labels even in graphs with other problems, and in nested graphs.
func TestGroupsAndLabelsBesideOtherProblems(t *testing.T) {
	t.Parallel()
	wanted := []string{
		`group "net": bad value: Limit -1 is negative`,
		`node "member": bad value: group "ent" is not declared; did you mean "net"? (there is "net")`,
		`node "member": bad value: group "net" is named twice`,
		`node "member": bad value: group "disk" is not declared (there is "net"); declare it in Groups`,
		`in "S": node "inner": bad value: group "pool" is not declared (there is "own", "net"); declare it in Groups`,
		`in "S": edge "?" -> "inner": bad edge: the label "rde" can never match: the choices of "?" are "red"; did you mean "red"?`,
		`edge "?" -> "yes": bad edge: the label "ture" can never match: the choices of "?" are "true", "false", "yes", "no"; did you mean "true"?`,
		`node "gate": bad value: the gate answers "timeout" when its timeout passes, but no edge has this label, nor "default"; its labels are "approved"`,
	}
	for name, row := range map[string]struct {
		other kahn.Node
		edges []kahn.Edge
	}{
		"no other problem":   {},
		"a negative timeout": {other: kahn.Node{ID: "other", OverallTimeout: -time.Second}},
		"an unknown node":    {other: kahn.Node{ID: "other", After: []string{"nobody"}}},
		"an id twice":        {other: kahn.Node{ID: "member"}},
		"a cycle":            {kahn.Node{ID: "other"}, []kahn.Edge{{From: "yes", To: "?"}}},
		"a status":           {other: kahn.Node{ID: "other", SkipMode: 99}},
		"an unlabelled end":  {other: kahn.Node{ID: "other", Kind: kahn.KindEnd, In: []kahn.Edge{{From: "?", Label: "maybe", On: kahn.OnAlways}}, Join: kahn.AllDone}},
	} {
		inside := graph(kahn.Node{ID: "?", Routes: true, Choices: []string{"red"}}, kahn.Node{ID: "inner", Groups: []string{"net", "pool", "own"},
			In: []kahn.Edge{{From: "?", Label: "rde"}}})
		inside.Groups = []kahn.Group{{Name: "own"}}
		g := graph(kahn.If("?", func(kahn.View) (bool, error) { return true, nil }),
			kahn.Node{ID: "yes", In: []kahn.Edge{{From: "?", Label: "ture"}}},
			kahn.Node{ID: "gate", Kind: kahn.KindGate, Gate: &kahn.Gate{Timeout: time.Second, OnTimeout: kahn.GateLabel}},
			kahn.Node{ID: "approved", In: []kahn.Edge{{From: "gate", Label: "approved"}}},
			kahn.Node{ID: "member", Groups: []string{"ent", "net", "net", "disk"}}, kahn.Node{ID: "S", Sub: inside})
		g.Groups = []kahn.Group{{Name: "net", Limit: -1}}
		if row.other.ID != "" {
			g.Add(row.other)
		}
		_, err := g.Connect(row.edges...).Compile()
		var all *kahn.GraphError
		require.ErrorAs(t, err, &all, name)
		var found []string
		for _, one := range all.Problems {
			found = append(found, one.Error())
		}
		for _, want := range wanted {
			require.Equal(t, 1, strings.Count(strings.Join(found, "\n")+"\n", want+"\n"), "%s: %s in\n%s", name, want, strings.Join(found, "\n"))
		}
		if row.other.ID == "" {
			require.Len(t, found, len(wanted), name)
		} else {
			require.Greater(t, len(found), len(wanted), name)
		}
	}
}

// TestUndeclaredGroups compares Compile with an independent search, on nested graphs, some of which are used twice. If neither the node's
// graph nor an enclosing graph declares a node's group, Compile reports a problem of the node.
func TestUndeclaredGroups(t *testing.T) {
	t.Parallel()
	names := []string{"a", "b", "c", "d"}
	refused := 0
	for seed := range uint64(400) {
		random := rand.New(rand.NewPCG(seed, 0))
		some := func() (list []string) {
			for _, name := range names {
				if random.IntN(4) == 0 {
					list = append(list, name)
				}
			}
			return list
		}
		var all []*kahn.Graph
		for depth := range 4 {
			g := new(kahn.Graph)
			for _, name := range some() {
				g.Groups = append(g.Groups, kahn.Group{Name: name})
			}
			for i := range 1 + random.IntN(3) {
				n := kahn.Node{ID: fmt.Sprint("n", i), Groups: some()}
				if depth > 0 && random.IntN(2) == 0 {
					n.Sub = all[random.IntN(len(all))]
				}
				g.Add(n)
			}
			all = append(all, g)
		}
		g := all[len(all)-1]
		want := map[string]bool{} // each problem once, by the names of the graph, the node and the group
		var look func(g *kahn.Graph, around []string)
		look = func(g *kahn.Graph, around []string) {
			for _, declared := range g.Groups {
				around = append(slices.Clip(around), declared.Name)
			}
			for _, n := range g.Nodes() {
				for i, name := range n.Groups {
					if !slices.Contains(around, name) {
						want[fmt.Sprintf("%p %s Groups[%d]", g, n.ID, i)] = true
					}
				}
				if n.Sub != nil {
					look(n.Sub, around)
				}
			}
		}
		look(g, nil)
		_, err := g.Compile()
		var problems *kahn.GraphError
		if errors.As(err, &problems) {
			refused++
			for _, one := range problems.Problems {
				var p *kahn.Problem
				require.ErrorAs(t, one, &p)
				at := g
				for id := range strings.SplitSeq(p.Graph, "/") {
					for _, n := range at.Nodes() {
						if n.ID == id {
							at = n.Sub
							break
						}
					}
				}
				key := fmt.Sprintf("%p %s %s", at, p.Node, p.Field)
				require.True(t, want[key], "%d: %v", seed, p)
				delete(want, key)
			}
		}
		require.Empty(t, want, "%d: %v", seed, err)
	}
	require.Greater(t, refused, 100)
	require.Less(t, refused, 400)
}
