package expression

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
)

// TestCheck: what a text asks for in vain is a problem of the graph.
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
		`$inputs.status == "complete"`:                      ``,
	} {
		g := new(kahn.Graph).Add(kahn.Node{ID: "A"}, kahn.Node{ID: "stranger"}, kahn.Node{ID: "B", After: []string{"A"}, WhenExpr: text})
		g.Evaluator, g.StrictGuards = Evaluator{}, true
		_, err := g.Compile()
		if problem == "" {
			require.NoError(t, err, text)
			continue
		}
		require.ErrorIs(t, err, kahn.ErrBadExpression, text)
		require.ErrorContains(t, err, problem)
		g.StrictGuards = false
		_, err = g.Compile()
		require.NoError(t, err, text)
	}
}
