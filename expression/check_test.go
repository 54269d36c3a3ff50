package expression

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
)

// TestCheck: Compile reports a text that names a node or an input that it cannot see.
func TestCheck(t *testing.T) {
	for text, problem := range map[string]string{
		`$nodes.A.output.x > 1`:                             ``,
		`$nodes.B.output > 1`:                               `not an ancestor: "B"`,
		`true || {{ nodes.stranger.error }}`:                `not an ancestor: "stranger"`,
		`exists($nodes.stranger.output)`:                    ``,
		`exists($nodes.stranger.output) && $nodes.A.output`: ``,
		`$nodes.A.status == "completed"`:                    ``,
		`$nodes.A.status == "complete"`:                     `1:20: "complete" is not a status; did you mean "completed"?`,
		`"Failed" != nodes.A.status`:                        `"Failed" is not a status; did you mean "failed"?`,
		`$nodes.A.status in ["failed", "error"]`:            `"error" is not a status (there is idle, waiting, `,
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

// Compile reports an expression that must fail whatever its values are: the operator or the function does not accept an operand of that kind. A
// status is a text, so it is always true as a truth value.
func TestKinds(t *testing.T) {
	t.Parallel()
	for text, problem := range map[string]string{
		`$nodes.A.status + 1`:                                     `1:17: text + number; string(x) makes a text of a number`,
		`1 + $nodes.A.status`:                                     `1:3: number + text; string(x) makes a text of a number`,
		`(true ? $nodes.A.status : "none") + 1`:                   `1:35: text + number; string(x) makes a text of a number`,
		`$nodes.A.output.n > 1 && 2 < $nodes.A.status + len("x")`: `text + number`,
		`$nodes.A.status - $nodes.A.output.n`:                     `1:17: "-" takes no text`,
		`$nodes.A.output.n * $nodes.A.status`:                     `1:19: "*" takes no text`,
		`$nodes.A.status / 2`:                                     `text / number`,
		`$nodes.A.status % 2`:                                     `text % number: both must be integers`,
		`-$nodes.A.status`:                                        `1:1: minus text`,
		`$nodes.A.status > 1`:                                     `text and number have no order`,
		`$nodes.A.status >= true`:                                 `text and bool have no order`,
		`"x" in $nodes.A.status`:                                  `nothing is in text`,
		`$nodes.A.output in $nodes.A.status`:                      `nothing is in text`,
		`len($nodes.A.output) + "x"`:                              `number + text`,
		`len($nodes.A.output) > "3"`:                              `number and text have no order`,
		`abs($nodes.A.status)`:                                    `1:1: abs: text and number have no order`,
		`lower(len("x"))`:                                         `lower: argument 1 must be text, not number`,
		`[1] + [2]`:                                               `list + list`,
		`($nodes.A.output.n > 1) + 1`:                             `bool + number`,
		`startsWith($nodes.A.output.x, 1)`:                        `"startsWith" takes no number`,
		`$nodes.A.status == 1`:                                    `1:20: a status is a text, which no number equals`,
		`null != $nodes.A.status`:                                 `1:1: a status is a text, which no null equals`,
		`$nodes.A.status in ["failed", true]`:                     `a status is a text, which no bool equals`,
		`!$nodes.A.status`:                                        `1:2: a status is a text, which is always true; compare it, as in == "completed"`,
		`$nodes.A.status && true`:                                 `1:1: a status is a text, which is always true`,
		`false or $nodes.A.status`:                                `a status is a text, which is always true`,
		`$nodes.A.status ? 1 : 2`:                                 `a status is a text, which is always true`,

		`$nodes.A.status`:                                    ``, // the label of a branch
		`$nodes.A.output.status + 1`:                         ``,
		`$nodes.A.error + 1 > 2`:                             ``,
		`$nodes.A.output.n + 1`:                              ``,
		`$nodes.A.output.n + "x"`:                            ``,
		`$nodes.A.status + $nodes.A.output.x`:                ``,
		`$nodes.A.status + string(1)`:                        ``,
		`len($nodes.A.status) + 1 > 2`:                       ``,
		`(true ? $nodes.A.status : 1) + 1`:                   ``,
		`int("5") + float("5") > min([1, 2]) + max(3, 4)`:    ``,
		`($nodes.A.output.x ?? $nodes.A.status) + 1`:         ``,
		`join(["a"], ",") + replace("a", "b", "c") == "a"`:   ``,
		`1 < len("x") and not ($nodes.A.status == "failed")`: ``,
		`contains($nodes.A.output, 1) || contains([1], 1)`:   ``,
		`"failed" < $nodes.A.status`:                         ``,
		`1 in [1] && "a" in {"a": 1}`:                        ``,
		`7 % 2 == 1 && 7 / 2 > 3 && -7 < abs(-7)`:            ``,
		`1 < 2 < 3`: ``,
		`$nodes.A.status in $nodes.A.output.list`: ``,
		`"x" + upper($nodes.A.output.x)`:          ``,
		`exists($nodes.A.output.x) == true`:       ``,
		`[$nodes.A.status, "x"][0] + "x"`:         ``,
	} {
		e, err := Evaluator{}.Parse(text)
		require.NoError(t, err, text)
		none := func(string) error { return nil }
		err = e.(*expression).Check(none, none)
		if problem == "" {
			require.NoError(t, err, text)
		} else {
			require.ErrorContains(t, err, problem, text)
		}
	}
}

// The answers of a text are known if it is a truth value, a text literal, or a conditional between these.
func TestAnswers(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		`$nodes.A.output > 1`:                            {"true", "false"},
		`!$nodes.A.output.ok && true`:                    {"true", "false"},
		`exists($nodes.A.output)`:                        {"true", "false"},
		`"left"`:                                         {"left"},
		`$nodes.A.output > 1 ? "left" : "right"`:         {"left", "right"},
		`$inputs.a ? (1 > 2) : "right"`:                  {"true", "false", "right"},
		`$nodes.A.status`:                                statuses,
		`$nodes.A.output`:                                nil,
		`$nodes.A.output.ok ? $nodes.A.output : "right"`: nil,
		`{{ nodes.A.output.ok }}`:                        nil,
		`1`:                                              nil,
		`["left", "right"]`:                              nil,
		`$nodes.A.status + "!"`:                          nil,
	} {
		e, err := Evaluator{}.Parse(text)
		require.NoError(t, err, text)
		require.Equal(t, want, e.(*expression).Answers(), text)
	}
}

// If Check rejects an expression because of the kinds of its values, the expression must fail for all values of these kinds.
func TestKindsDecide(t *testing.T) {
	t.Parallel()
	values := map[string][]string{
		"text": {`""`, `"x"`, `"-5"`}, "number": {`0`, `3`, `-2.5`, `9007199254740993`}, "bool": {`true`, `false`}, "null": {`null`},
		"list": {`[]`, `[1]`, `["a", 2]`, `[[1]]`}, "map": {`{}`, `{"a": 1}`},
	}
	var forms []string
	for _, op := range []string{"+", "-", "*", "/", "%", "<", "<=", ">", ">=", "==", "!=", "in", "contains", "startsWith", "endsWith", "??", "&&", "||"} {
		forms = append(forms, "%[1]s "+strings.ReplaceAll(op, "%", "%%")+" %[2]s")
	}
	forms = append(forms, "-(%[1]s)", "!(%[1]s)", "(%[1]s) ? %[2]s : %[1]s")
	for name, f := range functions {
		if f.least == 1 {
			forms = append(forms, name+"(%[1]s)")
		}
		if f.least <= 2 && f.most >= 2 {
			forms = append(forms, name+"(%[1]s, %[2]s)")
		}
	}
	none := func(string) error { return nil }
	refused := 0
	for _, form := range forms {
		for left, lefts := range values {
			for right, rights := range values {
				of := map[bool]int{}
				for _, a := range lefts {
					for _, b := range rights {
						text := fmt.Sprintf(form, a, b)
						e, err := Evaluator{}.Parse(text)
						require.NoError(t, err, text)
						isRefused := e.(*expression).Check(none, none) != nil
						of[isRefused]++
						if isRefused {
							refused++
							_, err := e.Evaluate(t.Context(), kahn.View{})
							require.ErrorIs(t, err, kahn.ErrType, text)
						}
					}
				}
				require.Len(t, of, 1, "%s of %s and %s depends on the values", form, left, right)
			}
		}
	}
	require.Greater(t, refused, 1000)
}

// TestLenientGuards: if a guard names a node or an input that it cannot see, the Result of each run has a warning, even if the guard is in a sub-graph. The GuardErr of its node
// lists the alternatives.
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
			require.ErrorIs(t, res.Warnings[0], kahn.ErrBadExpression)
			require.ErrorContains(t, res.Warnings[0], want)
			if want == "" {
				require.Len(t, res.Warnings, 1, text)
			} else {
				require.Len(t, res.Warnings, 2, text)
				require.ErrorIs(t, res.Warnings[1], kahn.ErrGuard)
				require.ErrorContains(t, res.Warnings[1], want)
			}
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
