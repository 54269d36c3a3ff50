package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
)

// namedNode is a parsed guard text: the id of a node, or a dollar sign and the name of an input. Only the text "(" does not parse.
type namedNode string

func (e namedNode) Evaluate(context.Context, kahn.View) (any, error) { return true, nil }

func (e namedNode) Check(ancestor, input func(string) error) error {
	if e[0] == '$' {
		return input(string(e[1:]))
	}
	return ancestor(string(e))
}

type namedNodes struct{}

func (namedNodes) Parse(text string) (kahn.Expression, error) {
	if text == "(" {
		return nil, errors.New("a bracket is not closed")
	}
	return namedNode(text), nil
}

// Compile checks the texts of guards, conditions and loop tests even in graphs with other problems. If edges have problems, the ancestors of a
// node are unknown, and only a name that no node has is reported.
func TestTextsBesideOtherProblems(t *testing.T) {
	t.Parallel()
	sub := func() *kahn.Graph { return new(kahn.Graph).Add(kahn.Node{ID: "inner"}) }
	nodes := []kahn.Node{
		{ID: "first"}, {ID: "apart"}, {ID: "seen", After: []string{"first"}, WhenExpr: "first"},
		{ID: "blind", After: []string{"first"}, WhenExpr: "apart"},
		{ID: "test", After: []string{"seen"}, TestExpr: "frist"},
		{ID: "input", WhenExpr: "$inptu"},
		{ID: "read", TestExpr: "("},
		{ID: "loop", Sub: sub(), Loop: &kahn.Loop{UntilExpr: "iner", MaxIterations: 2}},
		{ID: "unread", Sub: sub(), Loop: &kahn.Loop{UntilExpr: "(", MaxIterations: 2}},
	}
	always := []string{"input: WhenExpr", "read: TestExpr", "test: TestExpr", "unread: Loop.UntilExpr"}
	numbered := append([]string{"blind: WhenExpr", "loop: Loop.UntilExpr"}, always...)
	for name, row := range map[string]struct {
		other  kahn.Node
		edges  []kahn.Edge
		wanted []string
	}{
		"a negative timeout": {kahn.Node{ID: "other", OverallTimeout: -time.Second}, nil, numbered},
		"a bad policy":       {kahn.Node{ID: "other", Retry: kahn.Retry{MaxAttempts: -1}}, nil, numbered},
		"an unknown node":    {kahn.Node{ID: "other", After: []string{"nobody"}}, nil, always},
		"an id twice":        {kahn.Node{ID: "first"}, nil, always},
		"a cycle":            {kahn.Node{ID: "other"}, []kahn.Edge{{From: "seen", To: "first"}}, always},
		"no join":            {kahn.Node{ID: "other", Join: kahn.AtLeast(3)}, nil, numbered},
		"a status":           {kahn.Node{ID: "other", SkipMode: 99}, nil, always},
	} {
		g := new(kahn.Graph).Add(append(nodes, row.other)...).Connect(row.edges...)
		g.Evaluator, g.StrictGuards, g.Inputs = namedNodes{}, true, []kahn.Input{{Name: "input", Optional: true}}
		_, err := g.Compile()
		var all *kahn.GraphError
		require.ErrorAs(t, err, &all, name)
		var found []string
		others := 0
		for _, one := range all.Problems {
			var p *kahn.Problem
			require.ErrorAs(t, one, &p)
			if errors.Is(p, kahn.ErrBadExpression) {
				found = append(found, fmt.Sprintf("%s: %s", p.Node, p.Field))
			} else {
				others++
			}
		}
		require.ElementsMatch(t, row.wanted, found, name)
		require.Positive(t, others, name)
	}
}
