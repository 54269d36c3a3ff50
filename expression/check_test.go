package expression

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
)

// TestCheck: a text that asks for a node or an input that it cannot see is a problem of the graph.
func TestCheck(t *testing.T) {
	for text, problem := range map[string]string{
		`$nodes.A.output.x > 1`:                             ``,
		`$nodes.B.output > 1`:                               `not an ancestor: "B"`,
		`true || {{ nodes.stranger.error }}`:                `not an ancestor: "stranger"`,
		`exists($nodes.stranger.output)`:                    ``,
		`exists($nodes.stranger.output) && $nodes.A.output`: ``,
		`$nodes.A.status == "completed"`:                    ``,
		`$nodes.A.status == "complete"`:                     `1:20: "complete" is no status; did you mean "completed"?`,
		`"Failed" != nodes.A.status`:                        `"Failed" is no status; did you mean "failed"?`,
		`$nodes.A.status in ["failed", "error"]`:            `"error" is no status (there is idle, waiting, `,
		`$nodes.A.output.status == "complete"`:              ``,
		`$nodes.A.status + ": done" == "failed: done"`:      ``,
		`$nodes.A.status startsWith "comp"`:                 ``,
		`$nodes.A.status contains "ed" && $nodes.A.status endsWith "ed" && "idle: " + $nodes.A.status != ""`: ``,
		`$inputs.status == "complete"`:              ``,
		`$inputs.sttaus == "complete"`:              `unknown root input: "sttaus"; did you mean "status"? (there is "status")`,
		`exists($inputs.sttaus)`:                    `unknown root input: "sttaus"; did you mean "status"?`,
		`$inputs.item == $inputs.iteration`:         ``,
		`$inputs.x && $nodes.C.output && $inputs.x`: `not an ancestor: "C" (there is "A"); unknown root input: "x" (there is "status")`,
	} {
		g := new(kahn.Graph).Add(kahn.Node{ID: "A"}, kahn.Node{ID: "stranger"}, kahn.Node{ID: "B", After: []string{"A"}, WhenExpr: text})
		g.Evaluator, g.StrictGuards, g.Inputs = Evaluator{}, true, []kahn.Input{{Name: "status", Optional: true}}
		_, err := g.Compile()
		if problem == "" {
			require.NoError(t, err, text)
			continue
		}
		require.ErrorIs(t, err, kahn.ErrBadExpression, text)
		require.ErrorContains(t, err, problem)
		require.NotContains(t, err.Error(), "\n")

		g.StrictGuards = false
		p, err := g.Compile()
		require.NoError(t, err, text)
		require.Len(t, p.Warnings(), 1, text)
		require.ErrorIs(t, p.Warnings()[0], kahn.ErrBadExpression)
		require.ErrorContains(t, p.Warnings()[0], problem)
	}
}

// TestLenientGuards: a guard that asks for a node or an input that it cannot see is a warning of each run, at any depth, and
// the GuardErr of its node lists the alternatives.
func TestLenientGuards(t *testing.T) {
	inner := func(text string) *kahn.Graph {
		g := new(kahn.Graph).Add(kahn.Node{ID: "fetch"}, kahn.Node{ID: "B", After: []string{"fetch"}, WhenExpr: text})
		g.Evaluator, g.Inputs = Evaluator{}, []kahn.Input{{Name: "user", Optional: true}}
		return g
	}
	for text, want := range map[string]string{
		`$nodes.fecth.output`:                       `not an ancestor: "fecth"; did you mean "fetch"? (there is "fetch")`,
		`$inputs.usr`:                               `unknown root input: "usr"; did you mean "user"? (there is "user")`,
		`exists($inputs.usr)`:                       `unknown root input: "usr"; did you mean "user"? (there is "user")`,
		`$nodes.fetch.status == "completd" || true`: "",
	} {
		for _, g := range []*kahn.Graph{inner(text), new(kahn.Graph).Add(kahn.Node{ID: "B", Sub: inner(text)})} {
			res, err := kahn.Execute(t.Context(), g, func(context.Context, *kahn.Step) (any, error) { return nil, nil })
			require.NoError(t, err)
			require.Len(t, res.Warnings, 1, text)
			require.ErrorIs(t, res.Warnings[0], kahn.ErrBadExpression)
			require.ErrorContains(t, res.Warnings[0], want)
			n, _ := res.Node("B")
			if n.Sub != nil {
				require.ErrorContains(t, res.Warnings[0], `in "B": node "B": WhenExpr: `)
				n, _ = n.Sub.Node("B")
			}
			require.Equal(t, kahn.Completed, n.Status)
			if want == "" {
				require.NoError(t, n.GuardErr)
				continue
			}
			require.ErrorContains(t, n.GuardErr, want)
			require.Equal(t, text[0] == '$', errors.Is(n.GuardErr, kahn.ErrNoValue), "%s: %v", text, n.GuardErr)
		}
	}
}
