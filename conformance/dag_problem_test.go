package conformance_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
)

// Every problem names the part of the graph that has it, and suggests a correction.
func TestProblemTellsItsPlace(t *testing.T) {
	t.Parallel()
	nested := func(sub *kahn.Graph) *kahn.Graph {
		return graph(kahn.Node{ID: "outer", Sub: graph(kahn.Node{ID: "middle", Sub: sub})})
	}
	for name, row := range map[string]struct {
		g    *kahn.Graph
		kind error
		want kahn.Problem
	}{
		"a node and its field": {
			graph(after("A"), kahn.Node{ID: "B", After: []string{"A"}, Join: kahn.AtLeast(2)}),
			kahn.ErrBadJoin, kahn.Problem{Node: "B", Field: "Join"},
		},
		"a field of a field": {
			graph(kahn.Node{ID: "A", Kind: kahn.KindGate, Gate: &kahn.Gate{Timeout: -1}}),
			kahn.ErrBadValue, kahn.Problem{Node: "A", Field: "Gate.Timeout"},
		},
		"a node twice": {graph(after("A"), after("A")), kahn.ErrDuplicateNode, kahn.Problem{Node: "A", Field: "ID"}},
		"an item of a list": {
			&kahn.Graph{Groups: []kahn.Group{{Name: "a"}, {Name: "b", Limit: -1}}},
			kahn.ErrBadValue, kahn.Problem{Field: "Groups[1].Limit"},
		},
		"a group that a node names": {
			groups(graph(kahn.Node{ID: "A", Groups: []string{"disk", "netwrk"}}), "disk", "network"),
			kahn.ErrBadValue, kahn.Problem{Node: "A", Field: "Groups[1]", Suggestion: "network"},
		},
		"an edge": {
			graph(after("A"), after("build"), after("C", "A", "biuld")),
			kahn.ErrUnknownNode, kahn.Problem{Edge: 2, Field: "From", Suggestion: "build"},
		},
		"the terms of an edge": {
			graph(after("A"), after("B", "A")).Connect(kahn.Edge{From: "A", To: "B", Label: "yes"}),
			kahn.ErrBadEdge, kahn.Problem{Edge: 2, Field: "Label"},
		},
		"an edge twice": {
			graph(after("A"), after("B", "A")).Connect(kahn.Edge{From: "A", To: "B"}),
			kahn.ErrDuplicateEdge, kahn.Problem{Edge: 2},
		},
		"a cycle":           {graph(after("A", "C"), after("B", "A"), after("C", "B")), kahn.ErrCycle, kahn.Problem{Edge: 3}},
		"a node of its own": {graph(after("A"), after("B", "A", "B")), kahn.ErrCycle, kahn.Problem{Edge: 2}},
		"a conflict of edges": {
			graph(after("A"), after("B"), kahn.Node{ID: "C", In: []kahn.Edge{
				{From: "A", Param: "p", Merge: kahn.MergeArray}, {From: "B", Param: "p", Merge: kahn.MergeConcat}}}),
			kahn.ErrMergeConflict, kahn.Problem{Node: "C", Edge: 2},
		},
		"a port": {
			graph(kahn.Node{ID: "A", Ports: []kahn.Port{{Name: "p"}, {Name: "q", Required: true}}}),
			kahn.ErrUnboundPort, kahn.Problem{Node: "A", Field: "Ports[1]"},
		},
		"a text without an evaluator": {graph(kahn.Node{ID: "A", WhenExpr: "x"}), kahn.ErrNoEvaluator, kahn.Problem{Node: "A", Field: "WhenExpr"}},
		"a node of a graph in a graph": {
			nested(graph(kahn.Node{ID: "A", Merge: "concta"})),
			kahn.ErrBadValue, kahn.Problem{Graph: "outer/middle", Node: "A", Field: "Merge", Suggestion: kahn.MergeConcat},
		},
		"an edge of a graph in a graph": {
			nested(graph(after("A", "A"))), kahn.ErrCycle, kahn.Problem{Graph: "outer/middle", Edge: 1},
		},
	} {
		_, err := row.g.Compile()
		var p *kahn.Problem
		require.ErrorAs(t, err, &p, name)
		require.ErrorIs(t, p, row.kind, name)
		require.Equal(t, row.want, kahn.Problem{Graph: p.Graph, Node: p.Node, Edge: p.Edge, Field: p.Field, Suggestion: p.Suggestion}, "%s: %v", name, err)
	}
}

func groups(g *kahn.Graph, names ...string) *kahn.Graph {
	for _, name := range names {
		g.Groups = append(g.Groups, kahn.Group{Name: name, Limit: 1})
	}
	return g
}

// A Problem that a host creates or decodes renders the host's error text and the place.
func TestProblemOfAHost(t *testing.T) {
	t.Parallel()
	why := errors.New("no")
	for want, p := range map[string]kahn.Problem{
		`in "S": node "a": no`: {Graph: "S", Node: "a", Err: why},
		`edge 3: no`:           {Edge: 3, Err: why},
		`no`:                   {Field: "Name", Err: why},
	} {
		require.Equal(t, want, p.Error())
	}
}

func TestAllCycles(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		edges []kahn.Edge
		want  [][]string
		last  []int
	}{
		"apart":        {edges("AB", "BA", "CD", "DC"), [][]string{{"A", "B"}, {"C", "D"}}, []int{2, 4}},
		"one node":     {edges("AB", "BA", "BC", "CB"), [][]string{{"A", "B"}, {"B", "C"}}, []int{2, 4}},
		"one edge":     {edges("AB", "BC", "CA", "CD", "DA"), [][]string{{"A", "B", "C"}, {"A", "B", "C", "D"}}, []int{3, 5}},
		"behind a bad": {edges("AX", "AB", "BA"), [][]string{{"A", "B"}}, []int{3}},
	} {
		_, err := graph(after("A"), after("B"), after("C"), after("D")).Connect(row.edges...).Compile()
		var all *kahn.GraphError
		require.ErrorAs(t, err, &all, name)
		var cycles [][]string
		var last []int
		for _, problem := range all.Problems {
			var p *kahn.Problem
			if errors.As(problem, &p) && p.Cycle != nil {
				cycles, last = append(cycles, p.Cycle), append(last, p.Edge)
			}
		}
		require.Equal(t, row.want, cycles, name)
		require.Equal(t, row.last, last, name)
	}
}

func edges(pairs ...string) (list []kahn.Edge) {
	for _, pair := range pairs {
		list = append(list, kahn.Edge{From: pair[:1], To: pair[1:]})
	}
	return list
}
